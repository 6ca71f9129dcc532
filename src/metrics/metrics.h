/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TRL_METRICS_METRICS_H
#define TRL_METRICS_METRICS_H
/*
 * What a run reports. Two halves:
 *  - trl_meter: sums per micro-batch between two logs, in TRL's way (every rank has one);
 *  - trl_metrics: where a logged record goes: log_history, metrics.jsonl, TensorBoard, the progress bar or a line on stdout
 *    (rank 0 only; on other ranks open it with enabled = false and all calls do nothing).
 */
#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "base/str.h"
#include "metrics/phases.h"
#include "metrics/trainer-state.h"

/* ---- sums between two logs ---- */
enum { TRL_METER_MAX = 64 };

struct trl_meter {
    bool nan_inf_filter;  /* logging_nan_inf_filter */
    float loss_sum;       /* of the returned loss of each micro-step since the last log */
    int64_t start_step;   /* global_step at the start of this process */
    int64_t last_logged;  /* global_step of the last log */
    double total_loss;    /* of all logs of this process */
    int n;
    struct trl_meter_item {
        char name[48];
        double sum;
        int64_t count;
        bool overwrite; /* cumulative (num_tokens): the last value counts */
    } items[TRL_METER_MAX]; /* in order of first use */
};
void trl_meter_init(struct trl_meter *m, bool nan_inf_filter, int64_t global_step);
/* The loss a micro-step returned. A NaN or Inf with the filter adds the running average instead. */
void trl_meter_add_loss(struct trl_meter *m, double loss, int64_t global_step);
/* A metric of one micro-batch (already reduced over ranks); averaged with equal weight over the micro-batches since the last log. */
void trl_meter_add(struct trl_meter *m, const char *name, double value);
void trl_meter_set(struct trl_meter *m, const char *name, double value); /* the last value counts */
/* The loss to log: mean_loss_sum (the ranks' mean of m->loss_sum) over the steps since the last log. Clears the loss and counts it into
 * total_loss. */
double trl_meter_take_loss(struct trl_meter *m, double mean_loss_sum, int64_t global_step);
/* The final train_loss: mean over the steps of this process. mean_loss_sum: of what was not logged yet. */
double trl_meter_train_loss(const struct trl_meter *m, double mean_loss_sum, int64_t global_step);
/* Append all metrics to `record` with a prefix ("" or "eval_") and clear them. */
int trl_meter_take(struct trl_meter *m, const char *prefix, json_t *record, struct trl_err *err);

/* ---- where records go ---- */
struct trl_metrics_options {
    bool enabled;            /* rank 0 */
    const char *output_dir;
    bool resumed;            /* keep metrics.jsonl up to state->global_step and append, instead of starting it anew */
    bool tensorboard;        /* report_to */
    const char *logging_dir; /* NULL: TENSORBOARD_LOGGING_DIR, else output_dir/runs/<Mon..>_<host> */
    bool progress;           /* not disable_tqdm: a bar when stderr is a terminal, else a line a log */
    const json_t *facts;     /* first line of metrics.jsonl (model, ranks, precision...), borrowed */
    const char *args_text;   /* TensorBoard text "args" (JSON), or NULL */
    const char *model_text;  /* TensorBoard text "model_config", or NULL */
};
/* Beyond the record itself, for metrics.jsonl, bar and line. */
struct trl_metrics_speed {
    double step_time;         /* seconds an optimiser step took, mean since the last log */
    double tokens_per_second; /* real tokens, all ranks */
};

struct trl_metrics;
/* `state` is borrowed: records are appended to its log_history; global_step and epoch are read from it. */
int trl_metrics_open(struct trl_metrics **ret, const struct trl_metrics_options *opt, struct trl_trainer_state *state,
    struct trl_err *err);
void trl_metrics_close(struct trl_metrics *m); /* ends the bar, flushes; NULL is fine */

/* One record (object; values as transformers' logs before "epoch" and "step", which are added here). Adds it to log_history, too.
 * speed NULL: an evaluation or the final record. Takes the reference, also on failure. A record that cannot be written is an error. */
int trl_metrics_log(struct trl_metrics *m, json_t *record, const struct trl_metrics_speed *speed, struct trl_err *err);
/* After each optimiser step: moves the bar (redrawn at most ten times a second). */
void trl_metrics_step(struct trl_metrics *m, int64_t tokens);
/* Something longer is going on ("evaluating 3/10", "saving checkpoint-500"); NULL: back to training. */
void trl_metrics_status(struct trl_metrics *m, const char *text);

/* {train,eval}_runtime, _samples_per_second, _steps_per_second, rounded as transformers does. steps < 0: not wanted. */
int trl_metrics_add_speed(json_t *record, const char *split, double seconds, int64_t samples, int64_t steps,
    struct trl_err *err);
/* _runtime and _tokens_per_second. */
int trl_metrics_add_token_speed(json_t *record, const char *split, double seconds, int64_t tokens, struct trl_err *err);

/* ---- the end ---- */
struct trl_summary {
    int64_t steps, tokens;
    double seconds;              /* training, start-up excluded */
    bool has_eval;               /* the losses are of evaluations, else the first and last logged training loss */
    bool eval_before;            /* the first evaluation was before the first step */
    double loss_before, loss_after; /* NaN: not known */
    double flops;                /* of the matmuls of all steps, all ranks; 0: unknown */
    double peak_flops;           /* measured matmul peak, all ranks, FLOP/s; 0: not measured */
    int64_t peak_bytes;          /* largest resident set of a rank */
    int64_t allocations;         /* of memory in steps after the first, most of a rank */
    const struct trl_phases *phases; /* may be NULL */
    const char *output_dir;
};
void trl_summary_print(const struct trl_summary *s); /* on stdout */
/* The same as text, for tests: appended to s. */
void trl_summary_put(struct trl_str *out, const struct trl_summary *s);

#endif
