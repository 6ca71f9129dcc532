/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Evaluation: eval_loss is the mean of the batch losses weighted by rows (TRL repeats each rank's loss batch_size times, gathers, and
 * cuts the last batch to the rows that are left); the other metrics are plain means over batches.
 */
#include <math.h>
#include <string.h>

#include "base/clock.h"
#include "base/json.h"
#include "train/loop.h"

/* Behind the trainer's sums of a micro-step. */
enum { EVAL_LOSS, EVAL_WEIGHT, N_EVAL_SUMS };

/* Rows of this rank that count in a batch. */
static int64_t counted_rows(const struct trl_loop *l, bool last)
{
    int64_t b = l->cfg->per_device_eval_batch_size;
    const struct trl_comm *comm = &l->run->comm;
    int64_t remainder = trl_dataset_n_rows(l->run->eval_data) % (b * comm->world);
    if (!last || l->cfg->dataloader_drop_last || remainder == 0)
        return b;
    int64_t left = remainder - b * comm->rank;
    return left < 0 ? 0 : left < b ? left : b;
}

static int eval_micro(struct trl_loop *l, int64_t i, int64_t n, double *sums, struct trl_err *err)
{
    struct trl_run *run = l->run;
    int64_t n_rows;
    bool last = i == n - 1;
    int rc = trl_sampler_get(l->eval_sampler, 0, i, run->comm.rank, l->rows, &n_rows, err);
    if (rc == 0)
        rc = trl_batch_collate(&l->batch, run->eval_data, l->rows, n_rows, l->pad_multiple, err);
    struct trl_micro m = {0};
    if (rc == 0)
        rc = run->trainer->micro(run, &l->batch, NULL, &m, err);
    if (rc)
        return rc;
    int k = run->trainer->n_sums;
    if (run->comm.rank < trl_loop_counted_ranks(l, run->eval_data, l->cfg->per_device_eval_batch_size, last,
            l->cfg->dataloader_drop_last))
        memcpy(sums, m.sums, (size_t)k * sizeof(*sums));
    double weight = (double)counted_rows(l, last);
    bool use = isfinite(m.loss) || !l->cfg->logging_nan_inf_filter;
    sums[k + EVAL_LOSS] = use && weight > 0 ? m.loss * weight : 0;
    sums[k + EVAL_WEIGHT] = use ? weight : 0;
    return 0;
}

int trl_loop_evaluate(struct trl_loop *l, json_t **ret, struct trl_err *err)
{
    struct trl_run *run = l->run;
    double start = trl_clock_now(), loss = 0, weight = 0;
    int width = run->trainer->n_sums + N_EVAL_SUMS;
    int64_t n = trl_sampler_batches(l->eval_sampler);
    trl_model_skip_noise(run->model, TRL_LOADER_WORDS);
    memset(l->eval_sums, 0, (size_t)(n * width) * sizeof(double));
    for (int64_t i = 0; i < n; i++) {
        int rc = eval_micro(l, i, n, l->eval_sums + i * width, err);
        if (rc)
            return trl_err_prefix(err, rc, "evaluation batch %lld", (long long)i);
        char status[64];
        snprintf(status, sizeof(status), "evaluating %lld/%lld", (long long)i + 1, (long long)n);
        trl_metrics_status(l->metrics, status);
    }
    if (run->comm.world > 1) {
        int rc = run->comm.ops->allreduce_f64(&run->comm, l->eval_sums, (size_t)(n * width), TRL_COMM_SUM, err);
        if (rc)
            return rc;
    }
    for (int64_t i = 0; i < n; i++) {
        const double *sums = l->eval_sums + i * width;
        run->trainer->metrics(run, false, sums);
        loss += sums[width - N_EVAL_SUMS + EVAL_LOSS];
        weight += sums[width - N_EVAL_SUMS + EVAL_WEIGHT];
    }
    loss = weight > 0 ? loss / weight : NAN;
    trl_meter_set(&run->eval_meter, "num_tokens", run->num_tokens);
    l->eval_mode = true;
    trl_metrics_status(l->metrics, NULL);
    if (!l->has_eval_loss)
        l->first_eval_loss = loss;
    l->last_eval_loss = loss;
    l->has_eval_loss = true;

    json_t *record = json_pack("{s:o}", "eval_loss", trl_json_real(loss));
    if (!record)
        return trl_fail_nomem(err, 0, "an evaluation record");
    int64_t rows = trl_dataset_n_rows(run->eval_data), per_step = l->cfg->per_device_eval_batch_size * run->comm.world;
    int rc = trl_metrics_add_speed(record, "eval", trl_clock_now() - start, rows, (rows + per_step - 1) / per_step, err);
    if (rc == 0)
        rc = trl_meter_take(&run->eval_meter, "eval_", record, err);
    if (rc == 0)
        rc = trl_loop_add_seen(l, record, 0, err);
    if (rc) {
        json_decref(record);
        return rc;
    }
    if (ret)
        *ret = json_incref(record);
    rc = trl_metrics_log(l->metrics, record, NULL, err);
    if (rc && ret) {
        json_decref(*ret);
        *ret = NULL;
    }
    trl_phases_mark(&run->phases, "eval");
    return rc;
}
