/* SPDX-License-Identifier: Apache-2.0 */
/* The prepared rows: made by one rank of a node, mapped by the others; and --show_batches. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/fileio.h"
#include "comm/node.h"
#include "data/show-batches.h"
#include "train/run.h"
#include "train/trainer.h"

struct share {
    struct trl_run *run;
    struct trl_dataset **data; /* which of the run's two */
    const char *name;
};

/* Memory of the node where there is some, else its disk. */
static int export_rows(void *ctx, char *ret_path, size_t size, struct trl_err *err)
{
    const struct share *s = ctx;
    static const char prefix[] = "trl-rows-";
    const char *dir = trl_path_is_dir("/dev/shm") ? "/dev/shm" : "/tmp";
    trl_remove_leftovers(dir, prefix);
    snprintf(ret_path, size, "%s/%s%ld-%ld-%s", dir, prefix, (long)getuid(), (long)getpid(), s->name);
    return trl_dataset_export(*s->data, ret_path, err);
}

/* The exporting rank maps the file, too: its own copy goes. */
static int import_rows(void *ctx, const char *path, struct trl_err *err)
{
    const struct share *s = ctx;
    trl_dataset_free(*s->data);
    *s->data = NULL;
    return trl_dataset_import(s->data, path, err);
}

static int share_rows(struct trl_run *run, struct trl_dataset **data, const char *name, struct trl_err *err)
{
    struct share s = {.run = run, .data = data, .name = name};
    return trl_comm_node_once(&run->comm, true, export_rows, import_rows, &s, err);
}

int trl_run_open_data(struct trl_run *run, struct trl_err *err)
{
    struct trl_comm *comm = &run->comm;
    bool alone = comm->world == 1;
    int rc = comm->local_rank == 0 ? run->trainer->open_data(run, err) : 0;
    if (!alone)
        rc = trl_comm_agree(comm, rc, err);
    if (rc == 0 && !alone) {
        rc = share_rows(run, &run->train_data, "train", err);
        if (rc == 0 && strcmp(run->cfg->eval_strategy, "no") != 0)
            rc = share_rows(run, &run->eval_data, "eval", err);
    }
    trl_phases_mark(&run->phases, "data");
    return rc;
}

/* group_by_length draws from the global generator, which data_seed does not touch. */
void trl_run_sampler_options(const struct trl_run *run, struct trl_sampler_options *ret)
{
    const struct trl_config *cfg = run->cfg;
    enum trl_sampling kind = strcmp(cfg->train_sampling_strategy, "sequential") == 0 ? TRL_SAMPLING_SEQUENTIAL
        : strcmp(cfg->train_sampling_strategy, "group_by_length") == 0               ? TRL_SAMPLING_GROUP_BY_LENGTH
                                                                                     : TRL_SAMPLING_RANDOM;
    bool own_seed = cfg->data_seed.set && kind != TRL_SAMPLING_GROUP_BY_LENGTH;
    *ret = (struct trl_sampler_options){
        .kind = kind,
        .seed = (uint64_t)(own_seed ? cfg->data_seed.value : cfg->seed),
        .batch_size = cfg->per_device_train_batch_size,
        .world = run->comm.world,
        .drop_last = cfg->dataloader_drop_last,
        .group_window = cfg->per_device_train_batch_size * cfg->gradient_accumulation_steps,
    };
}

/* Evaluation is in order, unless group_by_length sorts it, too: with a generator that starts anew each time. */
void trl_run_eval_sampler_options(const struct trl_run *run, struct trl_sampler_options *ret)
{
    const struct trl_config *cfg = run->cfg;
    trl_run_sampler_options(run, ret);
    ret->kind = ret->kind == TRL_SAMPLING_GROUP_BY_LENGTH ? ret->kind : TRL_SAMPLING_SEQUENTIAL;
    ret->seed = (uint64_t)(cfg->data_seed.set ? cfg->data_seed.value : cfg->seed);
    ret->own_generator = true;
    ret->batch_size = ret->group_window = cfg->per_device_eval_batch_size;
}

int trl_run_show_batches(struct trl_run *run, struct trl_err *err)
{
    const struct trl_config *cfg = run->cfg;
    struct trl_sampler_options opt;
    trl_run_sampler_options(run, &opt);
    struct trl_sampler *sampler = NULL;
    int rc = 0;
    if (run->comm.rank == 0) {
        rc = trl_sampler_new(&sampler, run->train_data, &opt, err);
        struct trl_show_batches show = {
            .data = run->train_data,
            .sampler = sampler,
            .tok = run->tok,
            .n = cfg->show_batches.value,
            .world = run->comm.world,
            .json = cfg->show_batches_json,
            .pad_to_multiple_of = cfg->pad_to_multiple_of.set ? cfg->pad_to_multiple_of.value : 0,
        };
        if (rc == 0)
            rc = trl_show_batches(stdout, &show, err);
        trl_sampler_free(sampler);
    }
    return trl_comm_agree(&run->comm, rc, err);
}
