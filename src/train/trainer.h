/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TRL_TRAIN_TRAINER_H
#define TRL_TRAIN_TRAINER_H
/*
 * What makes a trainer: how its data are prepared and what it computes from the model's per-token numbers. The loop
 * (accumulation, exchange, clipping, optimiser, logging, evaluation, checkpoints) is the same for all and knows none of them.
 * A new trainer is one file with one of these tables and one line in trainer.c.
 */
#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "data/sampler.h"
#include "train/run.h"

enum { TRL_MICRO_SUMS = 16 };

/* What one micro-batch gave. */
struct trl_micro {
    double loss;                 /* the value TRL's compute_loss returns on this rank */
    double sums[TRL_MICRO_SUMS]; /* added over the ranks by the loop, then given to metrics() */
};

/* How a micro-batch's loss is normalised. */
struct trl_norm {
    double n_items;    /* labels that count, over the accumulation window (and the ranks with average_tokens_across_devices) */
    double loss_scale; /* fp16: multiplies gradients, not the returned loss */
    double world;      /* factor of loss and gradient: the ranks when n_items is global (gradients are averaged over them), else 1 */
};

struct trl_trainer {
    const char *name; /* "sft" */
    int n_sums;
    /* Fill run->train_data and run->eval_data from the configuration. */
    int (*open_data)(struct trl_run *run, struct trl_err *err);
    /* Forward and head of one micro-batch; with train the head leaves what backward needs. norm NULL: evaluation, the
     * mean over the batch's own labels. */
    int (*micro)(struct trl_run *run, const struct trl_batch *batch, const struct trl_norm *norm, struct trl_micro *ret,
        struct trl_err *err);
    /* Turn the sums of a micro-batch over all ranks into metrics. */
    void (*metrics)(struct trl_run *run, bool train, const double *sums);
};

extern const struct trl_trainer trl_trainer_sft;

/* Table of trainers; NULL with an error that names what is there, and whether the name is one of TRL's. */
const struct trl_trainer *trl_trainer_find(const char *name, struct trl_err *err);

#endif
