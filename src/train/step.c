/* SPDX-License-Identifier: Apache-2.0 */
/* One optimiser step: accumulate, exchange, clip, update. */
#include <math.h>
#include <string.h>

#include "base/clock.h"
#include "train/loop.h"
#include "train/signals.h"

int trl_loop_counted_ranks(const struct trl_loop *l, const struct trl_dataset *d, int64_t batch_size, bool last, bool drop_last)
{
    int world = l->run->comm.world;
    int64_t remainder = trl_dataset_n_rows(d) % (batch_size * world);
    if (world == 1 || !last || drop_last || remainder == 0 || remainder >= world)
        return world;
    return (int)remainder;
}

static int collate(struct trl_loop *l, int64_t epoch, int64_t micro, struct trl_err *err)
{
    struct trl_run *run = l->run;
    int64_t n;
    int rc = trl_sampler_get(l->sampler, epoch, micro, run->comm.rank, l->rows, &n, err);
    if (rc)
        return rc;
    return trl_batch_collate(&l->batch, run->train_data, l->rows, n, l->pad_multiple, err);
}

/* transformers shifts labels before it counts them if the model's class name says ForCausalLM, which GPT2LMHeadModel's does not. */
static double batch_items(const struct trl_loop *l)
{
    bool all = trl_model_get_info(l->run->model)->counts_first_label;
    return (double)(all ? l->batch.n_labels : l->batch.n_items);
}

/* The divisor of the window's losses: labels that count, over micro-batches and, if asked, ranks. */
static int count_items(struct trl_loop *l, int64_t epoch, int64_t first, int64_t n, struct trl_norm *ret, struct trl_err *err)
{
    struct trl_comm *comm = &l->run->comm;
    double items = 0;
    for (int64_t i = 0; i < n; i++) {
        int rc = collate(l, epoch, first + i, err);
        if (rc)
            return rc;
        items += batch_items(l);
    }
    bool global = l->cfg->average_tokens_across_devices;
    if (global && comm->world > 1) {
        int rc = comm->ops->allreduce_f64(comm, &items, 1, TRL_COMM_SUM, err);
        if (rc)
            return rc;
    }
    *ret = (struct trl_norm){
        .n_items = items,
        .loss_scale = trl_scaler_get(&l->scaler),
        .world = global ? comm->world : 1,
    };
    return 0;
}

static bool wants_seen(const struct trl_loop *l)
{
    return strcmp(l->cfg->include_num_input_tokens_seen, "no") != 0;
}

/* Elements of the tensor input_ids that TRL would have made. */
static int64_t input_elements(const struct trl_loop *l)
{
    const struct trl_batch *b = &l->batch;
    return trl_dataset_is_flat(l->run->train_data) ? b->padded_len : b->n_rows * b->padded_len;
}

static int64_t seen_tokens(const struct trl_loop *l)
{
    return strcmp(l->cfg->include_num_input_tokens_seen, "non_padding") == 0 ? l->batch.n : input_elements(l);
}

static int micro_step(struct trl_loop *l, int64_t epoch, int64_t micro, int64_t i, int64_t n, const struct trl_norm *norm,
    bool counted, struct trl_err *err)
{
    struct trl_run *run = l->run;
    struct trl_phases *phases = &run->phases;
    double *step_sums = l->sums + l->accumulation * l->width;
    int rc = n > 1 ? collate(l, epoch, micro, err) : 0; /* a single one is there since count_items */
    if (rc)
        return rc;
    trl_phases_mark(phases, "data");
    struct trl_micro m = {0};
    rc = run->trainer->micro(run, &l->batch, norm, &m, err);
    if (rc)
        return rc;
    trl_phases_mark(phases, "forward");
    bool last = i == n - 1 && l->exchange != NULL;
    if (last)
        trl_exchange_begin(l->exchange);
    rc = trl_model_backward(run->model, last ? trl_exchange_ready : NULL, l->exchange, err);
    if (rc)
        return rc;
    trl_phases_mark(phases, "backward");
    trl_meter_add_loss(&run->train_meter, m.loss, l->state.global_step);
    double *sums = l->sums + i * l->width;
    for (int k = 0; k < run->trainer->n_sums; k++)
        sums[k] = counted ? m.sums[k] : 0;
    sums[run->trainer->n_sums] = counted ? (double)l->batch.n_input_tokens : 0;
    step_sums[TRL_STEP_TOKENS] += (double)l->batch.n;
    step_sums[TRL_STEP_SEEN] += (double)seen_tokens(l);
    step_sums[TRL_STEP_ELEMENTS] += (double)input_elements(l);
    return 0;
}

/* Everything that ranks tell one another about a step, in one exchange. */
static int share_sums(struct trl_loop *l, int64_t n, struct trl_err *err)
{
    struct trl_run *run = l->run;
    double *step_sums = l->sums + l->accumulation * l->width;
    step_sums[TRL_STEP_STOP] = trl_signals_stop_asked() ? 1 : 0;
    if (run->comm.world > 1) {
        size_t count = (size_t)(l->accumulation * l->width + TRL_STEP_SUMS);
        int rc = run->comm.ops->allreduce_f64(&run->comm, l->sums, count, TRL_COMM_SUM, err);
        if (rc)
            return rc;
    }
    for (int64_t i = 0; i < n; i++) {
        const double *sums = l->sums + i * l->width;
        run->trainer->metrics(run, true, sums);
        run->num_tokens += sums[run->trainer->n_sums];
    }
    trl_meter_set(&run->train_meter, "num_tokens", run->num_tokens);
    l->tokens += (int64_t)step_sums[TRL_STEP_TOKENS];
    if (wants_seen(l))
        l->state.num_input_tokens_seen += (int64_t)step_sums[TRL_STEP_SEEN];
    l->state.total_flos += 6 * step_sums[TRL_STEP_ELEMENTS] * l->non_embedding_params; /* transformers' estimate */
    l->stop_asked = step_sums[TRL_STEP_STOP] > 0;
    trl_metrics_step(l->metrics, (int64_t)step_sums[TRL_STEP_TOKENS]);
    return 0;
}

/* With fp16 a step whose gradients overflowed is left out and the loss scale halved; otherwise a norm that is not finite ends the run
 * before it can reach the weights. */
static int update(struct trl_loop *l, struct trl_err *err)
{
    struct trl_run *run = l->run;
    double unscale = 1 / trl_scaler_get(&l->scaler), norm;
    int rc = trl_optim_grad_norm(l->optim, unscale, &norm, err);
    if (rc)
        return rc;
    bool finite = isfinite(norm);
    if (!finite && !l->scaler.enabled)
        return trl_fail(err, TRL_E_NUMERIC,
            "gradient norm is %s at step %lld: the weights were not changed, and earlier checkpoints are good. Lower learning_rate or "
            "check the data", isnan(norm) ? "NaN" : "infinite", (long long)l->state.global_step + 1);
    int64_t step = l->state.global_step;
    l->learning_rate = trl_schedule_lr(&l->schedule, step - l->skipped);
    if (!isfinite(l->learning_rate))
        return trl_fail(err, TRL_E_NUMERIC, "the learning rate of step %lld is %g: lr_scheduler_kwargs do not fit this run",
            (long long)step + 1, l->learning_rate);
    l->grad_norm = norm;
    if (finite) {
        rc = trl_optim_step(l->optim, l->learning_rate, unscale * trl_optim_clip_coef(l->optim, norm), err);
        if (rc == 0)
            rc = trl_model_weights_changed(run->model, true, err);
        if (rc)
            return rc;
    } else {
        l->skipped++;
    }
    if (l->scaler.enabled)
        trl_scaler_update(&l->scaler, !finite);
    return trl_model_zero_grads(run->model, err);
}

int trl_loop_step(struct trl_loop *l, int64_t epoch, int64_t first, int64_t n, struct trl_err *err)
{
    struct trl_run *run = l->run;
    struct trl_norm norm;
    l->step_begun = l->state.global_step + 1;
    trl_comm_watch_step(&run->comm, l->step_begun);
    int rc = count_items(l, epoch, first, n, &norm, err);
    if (rc)
        return rc;
    bool last_window = first + n >= l->micro_per_epoch;
    bool counted = run->comm.rank < trl_loop_counted_ranks(l, run->train_data, l->cfg->per_device_train_batch_size, last_window,
        l->cfg->dataloader_drop_last);
    memset(l->sums, 0, (size_t)(l->accumulation * l->width + TRL_STEP_SUMS) * sizeof(*l->sums));
    l->eval_mode = false;
    for (int64_t i = 0; i < n && rc == 0; i++)
        rc = micro_step(l, epoch, first + i, i, n, &norm, counted, err);
    if (rc == 0 && l->exchange)
        rc = trl_exchange_finish(l->exchange, err);
    if (rc)
        return rc;
    trl_phases_mark(&run->phases, "exchange");
    rc = share_sums(l, n, err);
    if (rc == 0)
        rc = update(l, err);
    trl_phases_mark(&run->phases, "optimizer");
    return rc;
}
