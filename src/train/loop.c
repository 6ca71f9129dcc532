/* SPDX-License-Identifier: Apache-2.0 */
/* Epochs and what is due when: transformers' Trainer with its DefaultFlowCallback. */
#include "train/loop.h"

#include <math.h>
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/fileio.h"
#include "base/json.h"
#include "base/log.h"
#include "train/facts.h"
#include "train/signals.h"

static const double MAX_STEPS = 1e15; /* whole numbers up to here are exact in a double, with room to spare */

static bool is(const char *value, const char *word)
{
    return value && strcmp(value, word) == 0;
}

/* ---- set-up ---- */

static bool evaluates_at(const struct trl_loop *l, int64_t step)
{
    return is(l->cfg->eval_strategy, "steps") && l->cfg->eval_delay <= (double)step && step % l->eval_every == 0;
}

static bool evaluates_after(const struct trl_loop *l, double epoch)
{
    return is(l->cfg->eval_strategy, "epoch") && l->cfg->eval_delay <= epoch;
}

/* Evaluations that an uninterrupted run has made when it starts this epoch. */
static int64_t evaluations_before(const void *ctx, int64_t epoch)
{
    const struct trl_loop *l = ctx;
    if (!l->run->eval_data)
        return 0;
    int64_t n = l->cfg->eval_on_start ? 1 : 0;
    for (int64_t step = 1; step <= epoch * l->updates_per_epoch; step++)
        n += evaluates_at(l, step);
    for (int64_t e = 1; e <= epoch; e++)
        n += evaluates_after(l, (double)e);
    return n;
}

static int open_samplers(struct trl_loop *l, struct trl_err *err)
{
    struct trl_run *run = l->run;
    struct trl_sampler_options opt;
    trl_run_sampler_options(run, &opt);
    opt.evaluations = evaluations_before;
    opt.evaluations_ctx = l;
    int rc = trl_sampler_new(&l->sampler, run->train_data, &opt, err);
    if (rc || !run->eval_data)
        return rc;
    trl_run_eval_sampler_options(run, &opt);
    return trl_sampler_new(&l->eval_sampler, run->eval_data, &opt, err);
}

/* Numbers of steps, as set_initial_training_values. */
static int count_steps(struct trl_loop *l, struct trl_err *err)
{
    const struct trl_config *cfg = l->cfg;
    l->micro_per_epoch = trl_sampler_batches(l->sampler);
    if (l->micro_per_epoch == 0)
        return trl_fail(err, TRL_E_DATA, "no batch can be made of %lld rows with per_device_train_batch_size %lld on %d ranks%s",
            (long long)trl_dataset_n_rows(l->run->train_data), (long long)cfg->per_device_train_batch_size, l->run->comm.world,
            cfg->dataloader_drop_last ? " and dataloader_drop_last" : "");
    l->updates_per_epoch = (l->micro_per_epoch + l->accumulation - 1) / l->accumulation;
    double steps = cfg->max_steps > 0 ? (double)cfg->max_steps : ceil(cfg->num_train_epochs * (double)l->updates_per_epoch);
    if (!(steps <= MAX_STEPS))
        return trl_fail(err, TRL_E_RANGE, "a run of %g steps; at most %g are possible: lower %s", steps, MAX_STEPS,
            cfg->max_steps > 0 ? "max_steps" : "num_train_epochs");
    l->max_steps = (int64_t)steps;
    l->n_epochs = cfg->max_steps > 0 ? (l->max_steps + l->updates_per_epoch - 1) / l->updates_per_epoch
                                     : (int64_t)ceil(cfg->num_train_epochs);
    l->log_every = trl_trainer_state_every(cfg->logging_steps, l->max_steps);
    l->save_every = trl_trainer_state_every(cfg->save_steps, l->max_steps);
    l->eval_every = trl_trainer_state_every(cfg->eval_steps.set ? cfg->eval_steps.value : cfg->logging_steps, l->max_steps);
    struct trl_trainer_state *s = &l->state;
    s->max_steps = l->max_steps;
    s->num_train_epochs = l->n_epochs;
    s->train_batch_size = cfg->per_device_train_batch_size;
    s->logging_steps = (double)l->log_every;
    s->eval_steps = (double)l->eval_every;
    s->save_steps = (double)l->save_every;
    return 0;
}

/* One process makes no batch of more rows than there are; several complete theirs by going round. */
static int64_t batch_rows(const struct trl_dataset *d, int64_t batch_size, int world)
{
    int64_t n = trl_dataset_n_rows(d);
    return world == 1 && n < batch_size ? n : batch_size;
}

static int reserve_batches(struct trl_loop *l, struct trl_model_capacity *ret_cap, struct trl_err *err)
{
    struct trl_run *run = l->run;
    int64_t rows = batch_rows(run->train_data, l->cfg->per_device_train_batch_size, run->comm.world);
    int64_t tokens, docs, max_len = trl_dataset_max_len(run->train_data);
    trl_batch_bound(run->train_data, rows, &tokens, &docs);
    if (run->eval_data) {
        int64_t t, d, len = trl_dataset_max_len(run->eval_data);
        int64_t b = batch_rows(run->eval_data, l->cfg->per_device_eval_batch_size, run->comm.world);
        trl_batch_bound(run->eval_data, b, &t, &d);
        tokens = t > tokens ? t : tokens;
        docs = d > docs ? d : docs;
        rows = b > rows ? b : rows;
        max_len = len > max_len ? len : max_len;
    }
    *ret_cap = (struct trl_model_capacity){
        .max_tokens = tokens,
        .max_docs = docs,
        .max_position = max_len,
        .training = true,
        .checkpointing = l->cfg->gradient_checkpointing,
    };
    l->rows = trl_malloc_array((size_t)rows, sizeof(*l->rows));
    l->width = run->trainer->n_sums + 1;
    l->sums = trl_calloc((size_t)(l->accumulation * l->width + TRL_STEP_SUMS), sizeof(double));
    int64_t n_eval = l->eval_sampler ? trl_sampler_batches(l->eval_sampler) : 0;
    l->eval_sums = trl_calloc((size_t)(n_eval * (run->trainer->n_sums + 2)), sizeof(double));
    if (!l->rows || !l->sums || !l->eval_sums)
        return trl_fail_nomem(err, (size_t)rows * 8, "the batch tables");
    return trl_batch_reserve(&l->batch, tokens, docs, rows, err);
}

static int open_training(struct trl_loop *l, struct trl_err *err)
{
    const struct trl_config *cfg = l->cfg;
    struct trl_run *run = l->run;
    struct trl_model_capacity cap;
    int rc = reserve_batches(l, &cap, err);
    if (rc == 0)
        rc = trl_model_prepare(run->model, &cap, err);
    if (rc)
        return rc;
    l->params = trl_model_get_params(run->model);
    l->non_embedding_params = trl_facts_non_embedding(l->params);
    if (cfg->neftune_noise_alpha.set)
        trl_model_set_neftune(run->model, cfg->neftune_noise_alpha.value, (uint64_t)cfg->seed);
    struct trl_optim_config oc;
    trl_facts_optim_config(cfg, &oc);
    rc = trl_optim_new(&l->optim, run->be, l->params, &oc, err);
    if (rc == 0)
        rc = trl_schedule_init(&l->schedule, cfg->lr_scheduler_type, cfg->lr_scheduler_kwargs, cfg->learning_rate,
            trl_schedule_warmup_steps(cfg->warmup_steps, l->max_steps), l->max_steps, err);
    trl_scaler_init(&l->scaler, cfg->fp16);
    if (rc == 0 && run->comm.world > 1)
        rc = trl_exchange_new(&l->exchange, &run->comm, l->params, trl_model_n_ready(run->model), TRL_EXCHANGE_BUCKET_BYTES, err);
    return rc;
}

static int open_metrics(struct trl_loop *l, struct trl_err *err)
{
    const struct trl_config *cfg = l->cfg;
    json_t *facts = trl_facts_json(l->run, l->max_steps);
    struct trl_metrics_options opt = {
        .enabled = l->run->comm.rank == 0,
        .output_dir = l->output_dir,
        .resumed = l->resumed_from != NULL,
        .tensorboard = trl_facts_reports_to(cfg, "tensorboard"),
        .progress = !(cfg->disable_tqdm.set && cfg->disable_tqdm.value),
        .facts = facts,
    };
    int rc = facts ? trl_metrics_open(&l->metrics, &opt, &l->state, err) : trl_fail_nomem(err, 0, "the run's facts");
    json_decref(facts);
    return rc;
}

/* What each rank does on its own. */
static int open_parts(struct trl_loop *l, struct trl_err *err)
{
    int rc = trl_trainer_state_init(&l->state, err);
    if (rc)
        return rc;
    l->output_dir = trl_strdup(l->cfg->output_dir);
    if (!l->output_dir)
        return trl_fail_nomem(err, strlen(l->cfg->output_dir), "a path");
    if (l->run->comm.rank == 0)
        rc = trl_mkdirs(l->output_dir, err);
    if (rc == 0)
        rc = open_samplers(l, err);
    if (rc == 0)
        rc = count_steps(l, err);
    return rc ? rc : open_training(l, err);
}

static int open_loop(struct trl_loop *l, struct trl_run *run, struct trl_err *err)
{
    const struct trl_config *cfg = run->cfg;
    *l = (struct trl_loop){
        .run = run,
        .cfg = cfg,
        .accumulation = cfg->gradient_accumulation_steps,
        .step_begun = -1,
        .pad_multiple = cfg->pad_to_multiple_of.set ? cfg->pad_to_multiple_of.value : 0,
    };
    int rc = trl_comm_agree(&run->comm, open_parts(l, err), err);
    if (rc == 0)
        rc = trl_loop_resume(l, err);
    if (rc == 0)
        rc = trl_comm_agree(&run->comm, open_metrics(l, err), err);
    trl_meter_init(&run->train_meter, cfg->logging_nan_inf_filter, l->state.global_step);
    trl_meter_init(&run->eval_meter, cfg->logging_nan_inf_filter, l->state.global_step);
    l->last_log_step = l->state.global_step;
    l->first_loss = l->last_loss = NAN;
    trl_phases_mark(&run->phases, "prepare");
    return rc;
}

static void close_loop(struct trl_loop *l)
{
    trl_metrics_close(l->metrics);
    trl_exchange_free(l->exchange);
    trl_optim_free(l->optim);
    trl_sampler_free(l->sampler);
    trl_sampler_free(l->eval_sampler);
    trl_batch_release(&l->batch);
    trl_free(l->rows);
    trl_free(l->sums);
    trl_free(l->eval_sums);
    trl_free(l->output_dir);
    trl_free(l->resumed_from);
    trl_trainer_state_release(&l->state);
}

/* ---- what is due ---- */

static struct trl_due due_after_step(const struct trl_loop *l)
{
    const struct trl_config *cfg = l->cfg;
    int64_t step = l->state.global_step;
    struct trl_due due = {
        .log = (step == 1 && cfg->logging_first_step) || (is(cfg->logging_strategy, "steps") && step % l->log_every == 0),
        .evaluate = evaluates_at(l, step),
        .save = is(cfg->save_strategy, "steps") && l->save_every > 0 && step % l->save_every == 0,
    };
    if (step >= l->max_steps) {
        due.stop = true;
        due.evaluate = is(cfg->eval_strategy, "steps") && cfg->eval_delay <= (double)step;
        due.save = due.save || is(cfg->save_strategy, "steps");
    }
    return due;
}

static struct trl_due due_after_epoch(const struct trl_loop *l)
{
    const struct trl_config *cfg = l->cfg;
    return (struct trl_due){
        .log = is(cfg->logging_strategy, "epoch"),
        .evaluate = evaluates_after(l, l->state.epoch),
        .save = is(cfg->save_strategy, "epoch"),
    };
}

int trl_loop_add_seen(const struct trl_loop *l, json_t *record, double seconds, struct trl_err *err)
{
    if (is(l->cfg->include_num_input_tokens_seen, "no"))
        return 0;
    int64_t seen = l->state.num_input_tokens_seen;
    if (json_object_set_new(record, "num_input_tokens_seen", json_integer(seen)) != 0)
        return trl_fail_nomem(err, 64, "a log record");
    return seconds > 0 ? trl_metrics_add_token_speed(record, "train", seconds, seen - l->start_seen, err) : 0;
}

static int log_step(struct trl_loop *l, struct trl_err *err)
{
    struct trl_run *run = l->run;
    double loss = run->train_meter.loss_sum, now = trl_clock_now();
    if (run->comm.world > 1) {
        int rc = run->comm.ops->allreduce_f64(&run->comm, &loss, 1, TRL_COMM_SUM, err);
        if (rc)
            return rc;
        loss /= run->comm.world;
    }
    int64_t steps = l->state.global_step - l->last_log_step;
    loss = trl_meter_take_loss(&run->train_meter, loss, l->state.global_step);
    if (l->last_log_step == l->start_step)
        l->first_loss = loss;
    l->last_loss = loss;
    json_t *record = json_pack("{s:o, s:o, s:o}", "loss", trl_json_real(loss), "grad_norm", trl_json_real(l->grad_norm),
        "learning_rate", trl_json_real(l->learning_rate));
    int rc = record ? 0 : trl_fail_nomem(err, 64, "a log record");
    if (rc == 0 && !l->eval_mode)
        rc = trl_meter_take(&run->train_meter, "", record, err);
    if (rc == 0)
        rc = trl_loop_add_seen(l, record, now - l->started, err);
    if (rc) {
        json_decref(record);
        return rc;
    }
    double seconds = now - l->last_log_time;
    struct trl_metrics_speed speed = {
        .step_time = seconds / (double)(steps > 0 ? steps : 1),
        .tokens_per_second = seconds > 0 ? (double)(l->tokens - l->tokens_logged) / seconds : 0,
    };
    l->last_log_step = l->state.global_step;
    l->last_log_time = now;
    l->tokens_logged = l->tokens;
    rc = trl_metrics_log(l->metrics, record, &speed, err);
    trl_phases_mark(&run->phases, "log");
    return rc;
}

/* The value of metric_for_best_model in an evaluation's record. */
static int best_metric(const struct trl_loop *l, const json_t *record, double *ret, struct trl_err *err)
{
    const char *name = l->cfg->metric_for_best_model ? l->cfg->metric_for_best_model : "loss";
    char key[128];
    snprintf(key, sizeof(key), "%s%s", strncmp(name, "eval_", 5) == 0 ? "" : "eval_", name);
    if (!trl_json_number(json_object_get(record, key), ret))
        return trl_fail(err, TRL_E_USAGE, "metric_for_best_model '%s': evaluation gives no '%s'; it gives eval_loss, eval_entropy, "
            "eval_mean_token_accuracy, eval_num_tokens", name, key);
    /* runtimes differ from rank to rank, but what follows from the value must not */
    struct trl_comm *comm = &l->run->comm;
    return comm->world > 1 ? comm->ops->bcast(comm, ret, sizeof(*ret), 0, err) : 0;
}

/* Returns 1 in *ret_best for a new best. */
static int judge(struct trl_loop *l, const json_t *record, bool *ret_best, struct trl_err *err)
{
    const struct trl_config *cfg = l->cfg;
    bool driven = trl_schedule_is_metric_driven(&l->schedule);
    if (!cfg->metric_for_best_model && !driven)
        return 0;
    double value = 0;
    int rc = best_metric(l, record, &value, err);
    if (rc)
        return rc;
    if (driven)
        trl_schedule_metric(&l->schedule, value);
    if (!cfg->metric_for_best_model)
        return 0;
    bool greater = cfg->greater_is_better.set ? cfg->greater_is_better.value : !trl_ends_with(cfg->metric_for_best_model, "loss");
    struct trl_trainer_state *s = &l->state;
    if (s->has_best_metric && !(greater ? value > s->best_metric : value < s->best_metric))
        return 0;
    *ret_best = true;
    return trl_trainer_state_set_best(s, value, is(cfg->save_strategy, "no") ? 0 : s->global_step, s->best_model_checkpoint, err);
}

static int evaluate(struct trl_loop *l, bool *ret_best, struct trl_err *err)
{
    json_t *record = NULL;
    int rc = trl_loop_evaluate(l, &record, err);
    if (rc == 0 && ret_best)
        rc = judge(l, record, ret_best, err);
    json_decref(record);
    return rc;
}

static int act(struct trl_loop *l, struct trl_due due, struct trl_err *err)
{
    int rc = 0;
    if (due.log && l->state.global_step > l->last_log_step)
        rc = log_step(l, err);
    if (rc == 0 && due.evaluate && l->run->eval_data) {
        bool best = false;
        double start = trl_clock_now();
        rc = evaluate(l, &best, err);
        l->last_log_time += trl_clock_now() - start; /* step_time is of training */
        if (is(l->cfg->save_strategy, "best"))
            due.save = best;
    }
    if (rc == 0 && due.save)
        rc = trl_loop_save(l, err);
    return rc;
}

/* ---- epochs ---- */

static int stop_with_checkpoint(struct trl_loop *l, bool saved, struct trl_err *err)
{
    int rc = saved ? 0 : trl_loop_save(l, err);
    if (rc)
        return rc;
    return trl_fail(err, TRL_E_STOPPED, "stopped at step %lld of %lld; %s/checkpoint-%lld is complete, resume_from_checkpoint true "
        "continues there", (long long)l->state.global_step, (long long)l->max_steps, l->output_dir, (long long)l->state.global_step);
}

/* 1 in *ret_stop: the last step is done. */
static int run_epoch(struct trl_loop *l, int64_t epoch, int64_t first_update, bool *ret_stop, struct trl_err *err)
{
    if (first_update == 0)
        trl_model_skip_noise(l->run->model, TRL_LOADER_WORDS);
    for (int64_t u = first_update; u < l->updates_per_epoch && !*ret_stop; u++) {
        int64_t first = u * l->accumulation, n = l->micro_per_epoch - first;
        if (n > l->accumulation)
            n = l->accumulation;
        uint64_t allocations = trl_alloc_calls();
        int rc = trl_loop_step(l, epoch, first, n, err);
        if (rc)
            return rc;
        if (l->state.global_step > l->start_step)
            l->step_allocations += trl_alloc_calls() - allocations;
        l->state.global_step++;
        l->state.epoch = (double)epoch + (double)(first + n) / (double)l->micro_per_epoch;
        if (l->state.global_step == l->start_step + 1)
            trl_facts_first_step(l->run);
        struct trl_due due = due_after_step(l);
        rc = act(l, due, err);
        if (rc)
            return rc;
        *ret_stop = due.stop;
        if (l->stop_asked && !due.stop && u + 1 < l->updates_per_epoch)
            return stop_with_checkpoint(l, due.save, err);
    }
    /* a resumed run begins with the next epoch: what is due at the end of this one comes before a stop */
    struct trl_due due = due_after_epoch(l);
    int rc = act(l, due, err);
    return rc == 0 && l->stop_asked && !*ret_stop ? stop_with_checkpoint(l, due.save, err) : rc;
}

static int run_epochs(struct trl_loop *l, struct trl_err *err)
{
    int64_t done = l->state.global_step, epoch = done / l->updates_per_epoch;
    int64_t update = l->cfg->ignore_data_skip ? 0 : done % l->updates_per_epoch;
    bool stop = done >= l->max_steps;
    for (; epoch < l->n_epochs && !stop; epoch++, update = 0) {
        int rc = run_epoch(l, epoch, update, &stop, err);
        if (rc)
            return rc;
    }
    return 0;
}

static int log_end(struct trl_loop *l, struct trl_err *err)
{
    struct trl_run *run = l->run;
    int64_t steps = l->state.global_step - l->start_step;
    double rest = run->train_meter.loss_sum; /* of steps after the last log: transformers takes rank 0's own */
    double samples = (double)(l->cfg->per_device_train_batch_size * run->comm.world * l->accumulation) * (double)steps;
    samples = fmin(samples, 9e18);
    json_t *record = json_object();
    int rc = trl_metrics_add_speed(record, "train", trl_clock_now() - l->started, (int64_t)samples, steps, err);
    double loss = trl_meter_train_loss(&run->train_meter, rest, l->state.global_step);
    if (rc == 0 && (json_object_set_new(record, "total_flos", trl_json_real(l->state.total_flos)) != 0 ||
                       json_object_set_new(record, "train_loss", trl_json_real(loss)) != 0))
        rc = trl_fail_nomem(err, 64, "a log record");
    if (rc == 0 && !l->eval_mode)
        rc = trl_meter_take(&run->train_meter, "", record, err);
    if (rc == 0)
        rc = trl_loop_add_seen(l, record, 0, err);
    if (rc) {
        json_decref(record);
        return rc;
    }
    return trl_metrics_log(l->metrics, record, NULL, err);
}

int trl_run_train(struct trl_run *run, struct trl_err *err)
{
    struct trl_loop l;
    bool stepping = false; /* from here on a rank may fail alone */
    int rc = open_loop(&l, run, err);
    if (rc)
        goto out;
    stepping = true;
    trl_signals_install();
    l.started = l.last_log_time = trl_clock_now();
    rc = trl_model_zero_grads(run->model, err);
    if (rc == 0 && run->cfg->eval_on_start && run->eval_data) {
        rc = evaluate(&l, NULL, err);
        l.last_log_time = trl_clock_now();
    }
    if (rc == 0)
        rc = run_epochs(&l, err);
    if (rc)
        goto out;
    double seconds = trl_clock_now() - l.started;
    rc = log_end(&l, err);
    if (rc == 0)
        rc = trl_loop_finish(&l, err);
    if (rc == 0)
        rc = trl_facts_summary(&l, seconds, err);
out:
    if (rc && rc != TRL_E_STOPPED && stepping && run->comm.world > 1)
        trl_comm_die(&run->comm, err, l.step_begun);
    close_loop(&l);
    return rc;
}
