/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TRL_TRAIN_RUN_H
#define TRL_TRAIN_RUN_H
/*
 * One training run: everything that is opened before the first step, in the order in which it is opened. Each function below is one
 * line of main(); all of them may be called on a run that failed half-way, and trl_run_close releases whatever there is.
 */
#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "base/threads.h"
#include "comm/comm.h"
#include "config/config.h"
#include "data/dataset.h"
#include "data/sampler.h"
#include "data/template.h"
#include "data/tokenizer.h"
#include "hw/bind.h"
#include "metrics/metrics.h"
#include "model/model.h"
#include "tensor/backend.h"

struct trl_trainer;

struct trl_run {
    const struct trl_config *cfg;
    const struct trl_trainer *trainer;
    struct trl_comm comm;
    bool comm_open;
    struct trl_bind_plan bind; /* this rank's cores */
    struct trl_pool *pool;
    struct trl_backend *be;
    enum trl_dtype compute; /* what matmul inputs are rounded to */
    char *model_path;       /* folder or .gguf file */
    struct trl_model *model;
    struct trl_tokenizer *tok;
    struct trl_template *tpl;
    char *tpl_source;       /* a template that replaces the model's own in output folders, or NULL */
    struct trl_dataset *train_data, *eval_data;
    struct trl_meter train_meter, eval_meter; /* metrics between two logs, by mode, as TRL keeps them */
    double num_tokens;      /* TRL's cumulative counter of this process's life */
    struct trl_phases phases;
};

/* Where the model is (hub names are looked up in the cache). */
int trl_run_locate(struct trl_run *run, struct trl_err *err);
/* Threads and backend of this rank (num_threads, cpu_isa options). */
int trl_run_open_backend(struct trl_run *run, struct trl_err *err);
/* Tokenizer and chat template. */
int trl_run_open_text(struct trl_run *run, struct trl_err *err);
/* Configuration and weights. */
int trl_run_open_model(struct trl_run *run, struct trl_err *err);
/* Rows prepared once a node. */
int trl_run_open_data(struct trl_run *run, struct trl_err *err);
/* The loop: returns 0 when training is complete, TRL_E_STOPPED after a requested stop with a checkpoint. */
int trl_run_train(struct trl_run *run, struct trl_err *err);
void trl_run_close(struct trl_run *run);

/* Modes that end before training. */
int trl_run_plan(struct trl_run *run, struct trl_err *err);         /* --plan */
int trl_run_show_batches(struct trl_run *run, struct trl_err *err); /* --show_batches: rank 0 shows all ranks' */

/* The model options that follow from the configuration. */
void trl_run_model_options(const struct trl_run *run, struct trl_model_options *ret);

/* The order of the rows in training and in evaluation. */
void trl_run_sampler_options(const struct trl_run *run, struct trl_sampler_options *ret);
void trl_run_eval_sampler_options(const struct trl_run *run, struct trl_sampler_options *ret);

#endif
