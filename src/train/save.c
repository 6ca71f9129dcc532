/* SPDX-License-Identifier: Apache-2.0 */
/* Checkpoints, resume, and what a finished run leaves. Rank 0 writes; the outcome is agreed by all. */
#include <dirent.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/fileio.h"
#include "base/log.h"
#include "train/loop.h"

static const char state_file[] = "trl_state.json"; /* what transformers has no file for */

static json_t *own_state(const struct trl_loop *l)
{
    uint64_t words[TRL_MODEL_RNG_WORDS];
    trl_model_get_rng(l->run->model, words);
    json_t *rng = json_array();
    for (int i = 0; rng && i < TRL_MODEL_RNG_WORDS; i++)
        if (json_array_append_new(rng, json_integer((json_int_t)words[i])) != 0) {
            json_decref(rng);
            return NULL;
        }
    return json_pack("{s:o, s:o, s:o, s:I}", "model_rng", rng, "schedule", trl_schedule_state(&l->schedule), "loss_scale",
        trl_scaler_state(&l->scaler), "skipped_steps", (json_int_t)l->skipped);
}

static int set_own_state(struct trl_loop *l, const json_t *state, struct trl_err *err)
{
    const json_t *rng = json_object_get(state, "model_rng");
    if (json_array_size(rng) != TRL_MODEL_RNG_WORDS)
        return trl_fail(err, TRL_E_DATA, "%s/%s: model_rng has %zu words, not %d", l->resumed_from, state_file,
            json_array_size(rng), TRL_MODEL_RNG_WORDS);
    uint64_t words[TRL_MODEL_RNG_WORDS];
    for (int i = 0; i < TRL_MODEL_RNG_WORDS; i++)
        words[i] = (uint64_t)json_integer_value(json_array_get(rng, (size_t)i));
    const json_t *skipped = json_object_get(state, "skipped_steps");
    if (!json_is_integer(skipped) || json_integer_value(skipped) < 0 || json_integer_value(skipped) > l->state.global_step)
        return trl_fail(err, TRL_E_DATA, "%s/%s: \"skipped_steps\" must be a whole number from 0 to global_step %lld",
            l->resumed_from, state_file, (long long)l->state.global_step);
    trl_model_set_rng(l->run->model, words);
    l->skipped = json_integer_value(skipped);
    int rc = trl_schedule_set_state(&l->schedule, json_object_get(state, "schedule"), err);
    return rc ? rc : trl_scaler_set_state(&l->scaler, json_object_get(state, "loss_scale"), err);
}

static int save_weights(struct trl_loop *l, const char *dir, struct trl_err *err)
{
    struct trl_run *run = l->run;
    int rc = trl_model_save(run->model, dir, l->cfg->save_dtype, (uint64_t)l->cfg->max_shard_bytes, err);
    return rc || !run->tok ? rc : trl_tokenizer_save(run->tok, dir, run->tpl_source, err);
}

static int add_arguments(struct trl_loop *l, struct trl_ckpt *c, struct trl_err *err)
{
    struct trl_str text = {0};
    trl_config_print(l->cfg, &text);
    int rc = trl_str_check(&text, err);
    if (rc == 0)
        rc = trl_ckpt_add_data(c, "training_args.yaml", trl_str_get(&text), text.len, err);
    trl_str_release(&text);
    return rc;
}

static int add_states(struct trl_loop *l, struct trl_ckpt *c, struct trl_err *err)
{
    if (!l->cfg->save_only_model) {
        char *path = trl_path_join(trl_ckpt_dir(c), "optimizer.safetensors");
        if (!path)
            return trl_fail_nomem(err, 0, "a path");
        int rc = trl_optim_save(l->optim, path, err);
        trl_free(path);
        if (rc)
            return rc;
        json_t *own = own_state(l);
        rc = own ? trl_ckpt_add_json(c, state_file, own, err) : trl_fail_nomem(err, 0, "the training state");
        json_decref(own);
        if (rc)
            return rc;
    }
    json_t *state = trl_trainer_state_json(&l->state);
    int rc = state ? trl_ckpt_add_json(c, "trainer_state.json", state, err) : trl_fail_nomem(err, 0, "the training state");
    json_decref(state);
    return rc ? rc : add_arguments(l, c, err);
}

/* The best checkpoint's path is known once its folder exists; the one being written counts. */
static int note_best(struct trl_loop *l, struct trl_err *err)
{
    struct trl_trainer_state *s = &l->state;
    if (!s->has_best_metric || s->best_global_step <= 0)
        return 0;
    char *path = trl_asprintf("%s/checkpoint-%lld", l->output_dir, (long long)s->best_global_step);
    if (!path)
        return trl_fail_nomem(err, 0, "a path");
    int rc = 0;
    if (s->best_global_step == s->global_step || trl_path_is_dir(path))
        rc = trl_trainer_state_set_best(s, s->best_metric, s->best_global_step, path, err);
    trl_free(path);
    return rc;
}

static int write_checkpoint(struct trl_loop *l, struct trl_err *err)
{
    struct trl_ckpt *c = NULL;
    char *path = NULL;
    int rc = note_best(l, err);
    if (rc == 0)
        rc = trl_ckpt_begin(&c, l->output_dir, l->state.global_step, err);
    if (rc)
        return rc;
    rc = save_weights(l, trl_ckpt_dir(c), err);
    if (rc == 0)
        rc = add_states(l, c, err);
    if (rc) {
        trl_ckpt_abort(c);
        return rc;
    }
    rc = trl_ckpt_commit(c, l->run->comm.world, &path, err);
    if (rc == 0 && l->cfg->save_total_limit.set)
        rc = trl_ckpt_retain(l->output_dir, l->cfg->save_total_limit.value, l->state.best_model_checkpoint, path, err);
    trl_free(path);
    return rc;
}

int trl_loop_save(struct trl_loop *l, struct trl_err *err)
{
    int rc = 0;
    char status[64];
    snprintf(status, sizeof(status), "saving checkpoint-%lld", (long long)l->state.global_step);
    trl_metrics_status(l->metrics, status);
    if (l->run->comm.rank == 0) {
        rc = write_checkpoint(l, err);
        if (rc)
            trl_err_prefix(err, rc, "cannot save checkpoint-%lld", (long long)l->state.global_step);
    }
    rc = trl_comm_agree(&l->run->comm, rc, err);
    trl_metrics_status(l->metrics, NULL);
    trl_phases_mark(&l->run->phases, "save");
    return rc;
}

/* Rank 0 looks for it (hashing once); the others get the path. */
static int find_checkpoint(struct trl_loop *l, struct trl_err *err)
{
    struct trl_comm *comm = &l->run->comm;
    char path[4096] = "";
    int rc = 0;
    if (comm->rank == 0) {
        char *found = NULL;
        rc = trl_ckpt_clean(l->output_dir, err);
        if (rc == 0)
            rc = trl_ckpt_find(l->output_dir, l->cfg->resume_from_checkpoint, &found, NULL, err);
        if (rc == 0 && found && strlen(found) >= sizeof(path))
            rc = trl_fail(err, TRL_E_RANGE, "the path of the checkpoint is longer than %zu bytes: %s", sizeof(path) - 1, found);
        if (rc == 0 && found)
            memcpy(path, found, strlen(found) + 1);
        trl_free(found);
    }
    rc = trl_comm_agree(comm, rc, err);
    if (rc)
        return rc;
    if (comm->world > 1)
        rc = comm->ops->bcast(comm, path, sizeof(path), 0, err);
    if (rc == 0 && path[0]) {
        l->resumed_from = trl_strdup(path);
        rc = l->resumed_from ? 0 : trl_fail_nomem(err, strlen(path), "a path");
    }
    return trl_comm_agree(comm, rc, err);
}

static int read_optimizer(struct trl_loop *l, struct trl_err *err)
{
    char *path = trl_path_join(l->resumed_from, "optimizer.safetensors");
    if (!path)
        return trl_fail_nomem(err, 0, "a path");
    int rc;
    if (trl_path_exists(path)) {
        rc = trl_optim_load(l->optim, path, err);
        json_t *own = NULL;
        if (rc == 0)
            rc = trl_ckpt_read_json(l->resumed_from, state_file, &own, err);
        if (rc == 0)
            rc = set_own_state(l, own, err);
        json_decref(own);
    } else {
        trl_warn("%s holds no optimiser state (save_only_model): it starts anew", l->resumed_from);
        rc = 0;
    }
    trl_free(path);
    return rc;
}

static int read_checkpoint(struct trl_loop *l, struct trl_err *err)
{
    int rc = trl_model_reload(l->run->model, l->resumed_from, err);
    char *path = trl_path_join(l->resumed_from, "trainer_state.json");
    if (!path && rc == 0)
        rc = trl_fail_nomem(err, 0, "a path");
    if (rc == 0 && trl_path_exists(path)) {
        int64_t max_steps = l->state.max_steps, epochs = l->state.num_train_epochs, batch = l->state.train_batch_size;
        double logging = l->state.logging_steps, eval = l->state.eval_steps, save = l->state.save_steps;
        rc = trl_trainer_state_read(&l->state, path, err);
        l->state.max_steps = max_steps;
        l->state.num_train_epochs = epochs;
        l->state.train_batch_size = batch;
        l->state.logging_steps = logging;
        l->state.eval_steps = eval;
        l->state.save_steps = save;
    }
    trl_free(path);
    return rc ? rc : read_optimizer(l, err);
}

int trl_loop_resume(struct trl_loop *l, struct trl_err *err)
{
    int rc = find_checkpoint(l, err);
    if (rc)
        return rc;
    if (l->resumed_from) {
        rc = trl_comm_agree(&l->run->comm, read_checkpoint(l, err), err);
        if (rc == 0)
            trl_info("resuming from %s (step %lld of %lld)", l->resumed_from, (long long)l->state.global_step,
                (long long)l->max_steps);
    } else if (l->cfg->resume_from_checkpoint && strcmp(l->cfg->resume_from_checkpoint, "false") != 0) {
        trl_info("resume_from_checkpoint: no complete checkpoint in %s, starting from the beginning", l->output_dir);
    }
    l->start_step = l->state.global_step;
    l->start_seen = l->state.num_input_tokens_seen;
    return rc;
}

static int load_best(struct trl_loop *l, struct trl_err *err)
{
    if (!l->cfg->load_best_model_at_end || !l->state.best_model_checkpoint)
        return 0;
    trl_info("loading the best model from %s (%s %g)", l->state.best_model_checkpoint,
        l->cfg->metric_for_best_model ? l->cfg->metric_for_best_model : "loss", l->state.best_metric);
    return trl_model_reload(l->run->model, l->state.best_model_checkpoint, err);
}

/* The finished folder's files go to output_dir one by one, the weights first; of two forms of weights only the new one stays. */
static int move_files(const char *from, const char *to, struct trl_err *err)
{
    static const char whole[] = "model.safetensors", sharded[] = "model.safetensors.index.json";
    DIR *d = opendir(from);
    if (!d)
        return trl_fail_errno(err, "cannot list", from);
    int rc = 0;
    for (int pass = 0; pass < 2 && rc == 0; pass++) {
        rewinddir(d);
        for (struct dirent *e; rc == 0 && (e = readdir(d)) != NULL;) {
            bool weights = trl_starts_with(e->d_name, "model");
            if (e->d_name[0] == '.' || weights != (pass == 0))
                continue;
            const char *other = strcmp(e->d_name, whole) == 0 ? sharded : strcmp(e->d_name, sharded) == 0 ? whole : NULL;
            char *a = trl_path_join(from, e->d_name), *b = trl_path_join(to, e->d_name), *c = trl_path_join(to, other ? other : "");
            if (!a || !b || !c)
                rc = trl_fail_nomem(err, 0, "a path");
            else if (other && trl_path_exists(c) && unlink(c) != 0)
                rc = trl_fail_errno(err, "cannot remove", c);
            if (rc == 0)
                rc = trl_rename(a, b, err);
            trl_free(a);
            trl_free(b);
            trl_free(c);
        }
    }
    closedir(d);
    return rc;
}

/* All or nothing: a disk that fills up leaves no folder that looks like a model. */
static int save_final(struct trl_loop *l, struct trl_err *err)
{
    struct trl_ckpt *c = NULL;
    int rc = trl_ckpt_begin(&c, l->output_dir, l->state.global_step, err);
    if (rc)
        return rc;
    rc = save_weights(l, trl_ckpt_dir(c), err);
    if (rc == 0)
        rc = move_files(trl_ckpt_dir(c), l->output_dir, err);
    trl_ckpt_abort(c);
    return rc ? trl_err_prefix(err, rc, "cannot save the model") : 0;
}

int trl_loop_finish(struct trl_loop *l, struct trl_err *err)
{
    int rc = load_best(l, err);
    if (rc == 0 && l->run->comm.rank == 0) {
        trl_metrics_status(l->metrics, "saving the model");
        rc = save_final(l, err);
        char *path = trl_path_join(l->output_dir, "trainer_state.json");
        if (rc == 0)
            rc = path ? trl_trainer_state_write(&l->state, path, err) : trl_fail_nomem(err, 0, "a path");
        trl_free(path);
        /* as TRL: with a limit of 1 only the best checkpoint is left */
        if (rc == 0 && l->state.best_model_checkpoint && l->cfg->save_total_limit.set && l->cfg->save_total_limit.value == 1)
            rc = trl_ckpt_retain(l->output_dir, 1, l->state.best_model_checkpoint, l->state.best_model_checkpoint, err);
        trl_metrics_status(l->metrics, NULL);
    }
    rc = trl_comm_agree(&l->run->comm, rc, err);
    trl_phases_mark(&l->run->phases, "save");
    return rc;
}
