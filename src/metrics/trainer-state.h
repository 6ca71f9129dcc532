/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TRL_METRICS_TRAINER_STATE_H
#define TRL_METRICS_TRAINER_STATE_H
/*
 * The trainer's state in transformers' schema: trainer_state.json, with the log history.
 */
#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"

struct trl_trainer_state {
    double epoch;
    int64_t global_step, max_steps, num_train_epochs, train_batch_size, num_input_tokens_seen;
    double logging_steps, eval_steps, save_steps; /* whole numbers are written as integers, as transformers does */
    double total_flos;
    bool has_best_metric;
    double best_metric;
    int64_t best_global_step;    /* valid with has_best_metric */
    char *best_model_checkpoint; /* owned, NULL: none */
    /* TrainerControl as it is saved */
    bool should_epoch_stop, should_evaluate, should_log, should_save, should_training_stop;
    json_t *stateful_callbacks; /* owned object or NULL: further callbacks' state (EarlyStoppingCallback) */
    json_t *log_history;        /* owned array of objects */
};

int trl_trainer_state_init(struct trl_trainer_state *s, struct trl_err *err); /* transformers' defaults */
void trl_trainer_state_release(struct trl_trainer_state *s);

/* logging_steps and friends: below 1 they are a share of max_steps (rounded up). */
int64_t trl_trainer_state_every(double steps, int64_t max_steps);
int trl_trainer_state_set_best(struct trl_trainer_state *s, double metric, int64_t step, const char *checkpoint,
    struct trl_err *err); /* checkpoint may be NULL */

/* The whole document as a new reference. */
json_t *trl_trainer_state_json(const struct trl_trainer_state *s);
int trl_trainer_state_write(const struct trl_trainer_state *s, const char *path, struct trl_err *err); /* atomic */
/* Into an initialised state; also reads files that transformers wrote. */
int trl_trainer_state_read(struct trl_trainer_state *s, const char *path, struct trl_err *err);

#endif
