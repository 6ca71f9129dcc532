/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TRL_METRICS_PHASES_H
#define TRL_METRICS_PHASES_H
/*
 * Where time went: named phases, each with its sum and count. A phase begins when the one before ends, so the sums add up to the
 * whole; the first one begins with exec. Plain data, no allocation.
 *
 *   trl_phases_init(&p);  ... config ...  trl_phases_mark(&p, "config");  ... load ...  trl_phases_mark(&p, "model");
 *   in the loop: trl_phases_mark(&p, "data"), "forward", "backward", "exchange", "optimizer", "log", "save", "eval"
 */
#include <jansson.h>
#include <stdint.h>

enum { TRL_PHASES_MAX = 32 };

struct trl_phases {
    double start, last; /* monotonic seconds */
    int n;
    struct {
        char name[24];
        double seconds;
        int64_t count;
    } items[TRL_PHASES_MAX];
};

void trl_phases_init(struct trl_phases *p); /* time since exec belongs to the first phase */
/* The time since the last mark belongs to `name`. */
void trl_phases_mark(struct trl_phases *p, const char *name);
double trl_phases_get(const struct trl_phases *p, const char *name); /* 0: none */
double trl_phases_total(const struct trl_phases *p);
/* {"config": 0.012, ...} in order of first use; NULL when out of memory */
json_t *trl_phases_json(const struct trl_phases *p);

#endif
