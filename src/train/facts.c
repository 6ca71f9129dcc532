/* SPDX-License-Identifier: Apache-2.0 */
#include "train/facts.h"

#include <string.h>

#include "base/clock.h"
#include "base/log.h"

double trl_facts_non_embedding(const struct trl_params *p)
{
    double n = 0;
    for (int i = 0; i < p->n; i++)
        n += p->items[i].role == TRL_PARAM_EMBED ? 0 : (double)p->items[i].numel;
    return n;
}

void trl_facts_optim_config(const struct trl_config *cfg, struct trl_optim_config *ret)
{
    *ret = (struct trl_optim_config){
        .name = cfg->optim,
        .args = cfg->optim_args,
        .beta1 = cfg->adam_beta1,
        .beta2 = cfg->adam_beta2,
        .eps = cfg->adam_epsilon,
        .weight_decay = cfg->weight_decay,
        .max_grad_norm = cfg->max_grad_norm,
    };
}

bool trl_facts_reports_to(const struct trl_config *cfg, const char *tracker)
{
    size_t i;
    json_t *v;
    json_array_foreach(cfg->report_to, i, v)
    {
        const char *s = json_string_value(v);
        if (s && (strcmp(s, tracker) == 0 || strcmp(s, "all") == 0))
            return true;
    }
    return false;
}

json_t *trl_facts_json(const struct trl_run *run, int64_t max_steps)
{
    const struct trl_model_info *info = trl_model_get_info(run->model);
    const struct trl_params *params = trl_model_get_params(run->model);
    json_t *facts = json_pack("{s:s, s:s, s:s, s:I, s:s, s:s, s:s, s:i, s:i, s:i, s:I, s:I, s:I, s:I}", "trainer", run->trainer->name,
        "model", run->model_path, "model_type", info->model_type, "parameters", (json_int_t)params->numel, "dtype",
        trl_dtype_name(params->dtype), "compute", trl_dtype_name(run->compute), "backend", run->be->describe(run->be), "world_size",
        run->comm.world, "nodes", run->comm.n_nodes, "threads", trl_pool_size(run->pool), "max_steps", (json_int_t)max_steps,
        "train_rows", (json_int_t)trl_dataset_n_rows(run->train_data), "train_tokens", (json_int_t)trl_dataset_n_tokens(run->train_data),
        "seed", (json_int_t)run->cfg->seed);
    if (facts && json_object_set_new(facts, "startup_seconds", trl_phases_json(&run->phases)) != 0) {
        json_decref(facts);
        return NULL;
    }
    return facts;
}

void trl_facts_first_step(struct trl_run *run)
{
    char parts[512] = "";
    size_t n = 0;
    for (int i = 0; i < run->phases.n && n < sizeof(parts); i++) {
        int k = snprintf(parts + n, sizeof(parts) - n, "%s%s %.2f", i ? ", " : "", run->phases.items[i].name,
            run->phases.items[i].seconds);
        n += k > 0 ? (size_t)k : 0;
    }
    trl_info("first step done %.2f s after the start (%s)", trl_clock_since_exec(), parts);
}

/* Matrix products of a training step: forward once, backward twice; recomputation is not counted. */
static double step_flops(const struct trl_loop *l)
{
    const struct trl_model_info *info = trl_model_get_info(l->run->model);
    double mean_len = (double)trl_dataset_n_tokens(l->run->train_data) / (double)trl_dataset_n_rows(l->run->train_data);
    return 3 * (info->flops_per_token + info->flops_per_token_ctx * mean_len / 2) * (double)l->tokens;
}

int trl_facts_summary(struct trl_loop *l, double seconds, struct trl_err *err)
{
    struct trl_run *run = l->run;
    double peak_bytes = (double)trl_clock_peak_rss(), peak_flops = 0, allocations = (double)l->step_allocations;
    bool measure = l->state.global_step > l->start_step && seconds > 5; /* not worth it after a tiny run */
    if (measure)
        peak_flops = 1e9 * trl_backend_gemm_peak(run->be, run->compute, 0.3);
    if (run->comm.world > 1) {
        int rc = run->comm.ops->allreduce_f64(&run->comm, &peak_bytes, 1, TRL_COMM_MAX, err);
        if (rc == 0)
            rc = run->comm.ops->allreduce_f64(&run->comm, &allocations, 1, TRL_COMM_MAX, err);
        if (rc == 0)
            rc = run->comm.ops->allreduce_f64(&run->comm, &peak_flops, 1, TRL_COMM_SUM, err);
        if (rc)
            return rc;
    }
    if (run->comm.rank != 0)
        return 0;
    struct trl_summary s = {
        .steps = l->state.global_step - l->start_step,
        .tokens = l->tokens,
        .seconds = seconds,
        .has_eval = l->has_eval_loss,
        .eval_before = l->cfg->eval_on_start,
        .loss_before = l->has_eval_loss ? l->first_eval_loss : l->first_loss,
        .loss_after = l->has_eval_loss ? l->last_eval_loss : l->last_loss,
        .flops = measure ? step_flops(l) : 0,
        .peak_flops = peak_flops,
        .peak_bytes = (int64_t)peak_bytes,
        .allocations = (int64_t)allocations,
        .phases = &run->phases,
        .output_dir = l->output_dir,
    };
    trl_metrics_close(l->metrics); /* the bar leaves the terminal */
    l->metrics = NULL;
    trl_summary_print(&s);
    return 0;
}
