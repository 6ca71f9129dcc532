/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TRL_TRAIN_LOOP_H
#define TRL_TRAIN_LOOP_H
/*
 * The loop's state, shared by its files: loop.c (epochs, flow of log/evaluate/save), step.c (one optimiser step), evaluate.c,
 * save.c (checkpoints and resume). Nothing outside src/train includes this.
 */
#include "ckpt/ckpt.h"
#include "data/sampler.h"
#include "metrics/trainer-state.h"
#include "optim/exchange.h"
#include "optim/optim.h"
#include "optim/schedule.h"
#include "train/run.h"
#include "train/trainer.h"

/* In l->sums behind the micro-steps' own: what belongs to the whole step. */
enum trl_step_sum { TRL_STEP_TOKENS, TRL_STEP_SEEN, TRL_STEP_ELEMENTS, TRL_STEP_STOP, TRL_STEP_SUMS };

/* A PyTorch data loader takes a 64-bit seed from the global generator whenever it starts: for each epoch and evaluation. */
enum { TRL_LOADER_WORDS = 2 };

/* What is due after a step (transformers' TrainerControl). */
struct trl_due {
    bool log, evaluate, save, stop;
};

struct trl_loop {
    struct trl_run *run;
    const struct trl_config *cfg;
    struct trl_params *params;
    struct trl_optim *optim;
    struct trl_schedule schedule;
    struct trl_scaler scaler;
    struct trl_exchange *exchange;
    struct trl_sampler *sampler, *eval_sampler;
    struct trl_batch batch;
    int64_t *rows; /* [max of the two batch sizes] */
    double *sums;  /* [accumulation * width + TRL_STEP_SUMS] */
    double *eval_sums; /* [micro-steps of an evaluation * (trainer sums + 2)] */
    int width;     /* trainer sums + 1 (tokens TRL counts) */

    int64_t accumulation, micro_per_epoch, updates_per_epoch, max_steps, n_epochs;
    int64_t log_every, eval_every, save_every;
    int64_t pad_multiple; /* 0: none */

    struct trl_trainer_state state;
    struct trl_metrics *metrics;
    char *output_dir;
    char *resumed_from;          /* checkpoint folder, or NULL */
    int64_t step_begun;          /* the last one that began; -1: none */
    int64_t start_step;          /* global_step at the start of this process */
    int64_t start_seen;          /* num_input_tokens_seen, likewise */
    bool eval_mode;              /* TRL's model.training is false: the last thing that ran was an evaluation */
    double learning_rate, grad_norm; /* of the last step */
    double started;              /* monotonic, of the first step */
    int64_t tokens, tokens_logged; /* real tokens, all ranks, this process */
    int64_t last_log_step;
    double last_log_time;
    bool has_eval_loss;
    double first_eval_loss, last_eval_loss, first_loss, last_loss;
    bool stop_asked;             /* a signal reached some rank; known to all */
    uint64_t step_allocations;   /* in steps after the first of this process: 0, or something grows */
    int64_t skipped;             /* fp16 steps left out: the schedule does not count them */
    double non_embedding_params;
};

/* One optimiser step: micro-batches [first, first + n) of the epoch. */
int trl_loop_step(struct trl_loop *l, int64_t epoch, int64_t first, int64_t n, struct trl_err *err);
/* The evaluation set; the record is logged and *ret gets a reference to it (object). */
int trl_loop_evaluate(struct trl_loop *l, json_t **ret, struct trl_err *err);
int trl_loop_save(struct trl_loop *l, struct trl_err *err);
/* Find and read the checkpoint to resume from; sets resumed_from, state, optimiser, model, schedule. */
int trl_loop_resume(struct trl_loop *l, struct trl_err *err);
/* include_num_input_tokens_seen: the count in every record; with seconds (of training) also the speed. */
int trl_loop_add_seen(const struct trl_loop *l, json_t *record, double seconds, struct trl_err *err);
/* Final weights and tokenizer in output_dir, trainer_state.json. */
int trl_loop_finish(struct trl_loop *l, struct trl_err *err);

/* How many ranks' numbers TRL's gather_for_metrics keeps: in an epoch's last window it cuts what it gathered to
 * rows % (batch * world), also when that is a number per rank. */
int trl_loop_counted_ranks(const struct trl_loop *l, const struct trl_dataset *d, int64_t batch_size, bool last, bool drop_last);

#endif
