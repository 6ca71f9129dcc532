/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TRL_OPTIM_KWARGS_H
#define TRL_OPTIM_KWARGS_H
/* Read a JSON object of keyword arguments into variables, by table. Internal to this module. */
#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

#include "base/err.h"

enum trl__kw_type { TRL__KW_F64, TRL__KW_I64, TRL__KW_BOOL, TRL__KW_CHOICE };

struct trl__kw {
    const char *name;
    enum trl__kw_type type;
    void *target;               /* double, int64_t, bool, or int (choice) */
    bool *was_set;              /* may be NULL */
    const char *const *choices; /* TRL__KW_CHOICE: NULL-terminated; target gets the index */
};
/* null leaves a default. owner: "lr_scheduler_kwargs of cosine". */
int trl__kwargs_read(const struct trl__kw *table, size_t n, const json_t *kwargs, const char *owner, struct trl_err *err);

#endif
