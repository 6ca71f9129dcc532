/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TRL_OPTIM_SCHEDULE_H
#define TRL_OPTIM_SCHEDULE_H
/*
 * Learning-rate schedules by transformers' names, with lr_scheduler_kwargs. Most are functions of the step (0-based index of the optimiser
 * step that uses the rate: the first step of a run with warm-up has rate 0). reduce_lr_on_plateau and greedy follow a metric instead:
 * call trl_schedule_metric after each evaluation. Plain data, no allocation; one owner.
 */
#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "optim/plateau.h"

enum trl_schedule_kind {
    TRL_SCHEDULE_LINEAR,
    TRL_SCHEDULE_COSINE,
    TRL_SCHEDULE_COSINE_WITH_RESTARTS,
    TRL_SCHEDULE_POLYNOMIAL,
    TRL_SCHEDULE_CONSTANT,
    TRL_SCHEDULE_CONSTANT_WITH_WARMUP,
    TRL_SCHEDULE_INVERSE_SQRT,
    TRL_SCHEDULE_REDUCE_LR_ON_PLATEAU,
    TRL_SCHEDULE_COSINE_WITH_MIN_LR,
    TRL_SCHEDULE_COSINE_WARMUP_WITH_MIN_LR,
    TRL_SCHEDULE_WARMUP_STABLE_DECAY,
    TRL_SCHEDULE_GREEDY,
    TRL_SCHEDULE_MAX_
};
enum trl_schedule_shape { TRL_SHAPE_LINEAR, TRL_SHAPE_COSINE, TRL_SHAPE_ONE_MINUS_SQRT };

struct trl_schedule {
    enum trl_schedule_kind kind;
    double base_lr;
    int64_t warmup, total;
    double num_cycles, power, lr_end, timescale, min_lr_rate, warmup_lr_rate;
    bool has_warmup_lr_rate;
    int64_t num_stable_steps, num_decay_steps;
    enum trl_schedule_shape warmup_type, decay_type;
    struct trl_plateau plateau; /* the two metric-driven ones */
};

/* Every name, NULL at the end (for help texts and the option table). */
extern const char *const trl_schedule_names[];

/* warmup_steps of TrainingArguments: >= 1 that many (cut to a whole number), in [0, 1) ceil(ratio * total). */
int64_t trl_schedule_warmup_steps(double warmup_steps, int64_t total);

/* kwargs: an object or NULL. Unknown or invalid entries are errors that name the allowed ones. */
int trl_schedule_init(struct trl_schedule *s, const char *name, const json_t *kwargs, double base_lr, int64_t warmup,
    int64_t total, struct trl_err *err);
/* The rate of optimiser step `step` (0-based). */
double trl_schedule_lr(const struct trl_schedule *s, int64_t step);

bool trl_schedule_is_metric_driven(const struct trl_schedule *s);
/* An evaluation's metric_for_best_model. No effect on the other schedules. */
void trl_schedule_metric(struct trl_schedule *s, double value);
/* State for checkpoints: an object (empty when the step says it all), NULL when out of memory. */
json_t *trl_schedule_state(const struct trl_schedule *s);
int trl_schedule_set_state(struct trl_schedule *s, const json_t *state, struct trl_err *err);

#endif
