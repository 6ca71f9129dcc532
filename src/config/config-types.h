/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TRL_CONFIG_TYPES_H
#define TRL_CONFIG_TYPES_H
/* Value types of options. */
#include <stdbool.h>
#include <stdint.h>

/* `int | None` and friends: set is false for None. */
struct trl_opt_int {
    bool set;
    int64_t value;
};
struct trl_opt_bool {
    bool set, value;
};
struct trl_opt_float {
    bool set;
    double value;
};

#endif
