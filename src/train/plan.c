/* SPDX-License-Identifier: Apache-2.0 */
/* --plan: what a run will need, without reading rows or weights. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "job/job.h"
#include "train/facts.h"
#include "train/run.h"

enum { SAVE_BYTES = 4 << 20 }; /* through which weights go into a file, when everything else is there, too */

struct plan_line {
    const char *what;
    double bytes;
};

static void print_size(const char *what, double bytes)
{
    printf("  %-34s %10.1f MB\n", what, bytes / 1e6);
}

static int64_t row_length(const struct trl_config *cfg, const struct trl_model_info *info, struct trl_err *err)
{
    if (cfg->max_length.set)
        return cfg->max_length.value;
    if (info->max_positions > 0)
        return info->max_positions;
    trl_fail(err, TRL_E_USAGE, "--plan needs max_length: without it a row may have any length");
    return -1;
}

struct sized {
    const struct trl_config *cfg;
    int64_t n_params;
    enum trl_dtype dtype;
    size_t optimizer;
};

/* The optimiser's state follows from the shapes. */
static int size_optimizer(void *ctx, const struct trl_params *params, struct trl_err *err)
{
    struct sized *s = ctx;
    struct trl_optim_config oc;
    trl_facts_optim_config(s->cfg, &oc);
    s->n_params = params->numel;
    s->dtype = params->dtype;
    return trl_optim_plan(&oc, params, &s->optimizer, err);
}

static double machine_bytes(void)
{
    return (double)sysconf(_SC_PHYS_PAGES) * (double)sysconf(_SC_PAGESIZE);
}

static void print_batches(const struct trl_config *cfg, int world, int64_t length)
{
    int64_t rows = cfg->per_device_train_batch_size * cfg->gradient_accumulation_steps * world;
    printf("batch: %lld rows a step = %lld rows x %lld accumulation x %d %s; at most %.0f tokens a step\n", (long long)rows,
        (long long)cfg->per_device_train_batch_size, (long long)cfg->gradient_accumulation_steps, world,
        world == 1 ? "process" : "processes", (double)rows * (double)length);
    if (cfg->max_steps > 0)
        printf("steps: %lld (max_steps), %.0f rows\n", (long long)cfg->max_steps, (double)cfg->max_steps * (double)rows);
    else
        printf("steps: %g epochs of ceil(rows / %lld) steps\n", cfg->num_train_epochs, (long long)rows);
}

int trl_run_plan(struct trl_run *run, struct trl_err *err)
{
    const struct trl_config *cfg = run->cfg;
    struct trl_job job;
    int rc = trl_job_read(&job, err);
    if (rc)
        return rc;
    int world = job.world > 1 ? job.world : cfg->num_processes.set ? (int)cfg->num_processes.value : 1;
    struct trl_model_options opt;
    trl_run_model_options(run, &opt);
    struct trl_model_info info;
    struct sized sized = {.cfg = cfg};
    struct trl_model_capacity cap = {.max_tokens = 1, .max_docs = 1, .max_position = 1, .training = true};
    struct trl_model_plan plan;
    rc = trl_model_plan(&opt, run->be, &cap, &plan, &info, NULL, NULL, err);
    int64_t length = rc ? -1 : row_length(cfg, &info, err);
    if (length < 0)
        return rc ? rc : TRL_E_USAGE;
    int64_t rows = cfg->per_device_train_batch_size;
    if (strcmp(cfg->eval_strategy, "no") != 0 && cfg->per_device_eval_batch_size > rows)
        rows = cfg->per_device_eval_batch_size;
    cap = (struct trl_model_capacity){
        .max_tokens = rows * length,
        .max_docs = cfg->packing ? rows * length : rows,
        .max_position = length,
        .training = true,
        .checkpointing = cfg->gradient_checkpointing,
    };
    rc = trl_model_plan(&opt, run->be, &cap, &plan, &info, size_optimizer, &sized, err);
    if (rc)
        return rc;
    double program = (double)trl_clock_peak_rss() + SAVE_BYTES;
    const struct plan_line lines[] = {
        {"weights", (double)plan.weights},
        {"weights rounded for products", (double)plan.copy},
        {"gradients", (double)plan.grads},
        {"optimiser state", (double)sized.optimizer},
        {"activations", (double)plan.activations},
        {"head and loss, one chunk", (double)plan.head},
        {"work space", (double)plan.scratch},
        {"packed weights", (double)plan.packed},
        {"program, libraries, tokenizer", program},
    };
    double total = 0;
    printf("model: %s, %lld parameters, %lld layers, hidden %lld, vocabulary %lld\n", info.model_type, (long long)sized.n_params,
        (long long)info.n_layers, (long long)info.hidden_size, (long long)info.vocab_size);
    printf("types: weights %s, products %s; backend: %s\n", trl_dtype_name(sized.dtype), trl_dtype_name(run->compute),
        run->be->describe(run->be));
    print_batches(cfg, world, length);
    printf("memory of a process, rows of %lld tokens:\n", (long long)length);
    for (size_t i = 0; i < sizeof(lines) / sizeof(lines[0]); i++) {
        if (lines[i].bytes > 0)
            print_size(lines[i].what, lines[i].bytes);
        total += lines[i].bytes;
    }
    print_size("peak", total);
    if (world > 1)
        printf("exchange: %.1f MB of gradients a step and process\n", 2 * (double)plan.grads * (world - 1) / world / 1e6);
    double have = machine_bytes(), here = total * (job.local_world > 0 ? job.local_world : world);
    if (here > have)
        return trl_fail(err, TRL_E_NOMEM, "this run needs %.1f GB on one machine, which has %.1f GB; lower per_device_train_batch_size or "
            "max_length, or set gradient_checkpointing true", here / 1e9, have / 1e9);
    return 0;
}
