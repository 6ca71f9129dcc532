/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TRL_OPTIM_PLATEAU_H
#define TRL_OPTIM_PLATEAU_H
/*
 * Learning rates that follow a metric: torch's ReduceLROnPlateau, and transformers' GreedyLR, which also raises the rate after a
 * run of improvements (arXiv:2512.14527). Plain data.
 */
#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"

enum { TRL_PLATEAU_WINDOW_MAX = 1024 };

struct trl_plateau {
    bool greedy, mode_max, threshold_abs, smooth;
    double factor, threshold, min_lr, max_lr, eps;
    int64_t patience, cooldown, warmup, reset_start, window_size;
    /* state */
    double base_lr, lr, best;
    int64_t n_bad, n_good, cooldown_left, warmup_left, reset_left, epoch;
    double window[TRL_PLATEAU_WINDOW_MAX], window_sum; /* greedy with smooth: the last window_size values, oldest first */
    int64_t window_n;
};

/* kwargs: an object or NULL */
int trl_plateau_init(struct trl_plateau *p, bool greedy, const json_t *kwargs, double base_lr, struct trl_err *err);
void trl_plateau_step(struct trl_plateau *p, double metric);
json_t *trl_plateau_state(const struct trl_plateau *p);
int trl_plateau_set_state(struct trl_plateau *p, const json_t *state, struct trl_err *err);

#endif
