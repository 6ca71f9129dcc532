/* SPDX-License-Identifier: Apache-2.0 */
/* Opening what a run needs, part by part. */
#include "train/run.h"

#include <string.h>

#include "base/alloc.h"
#include "base/fileio.h"
#include "base/log.h"
#include "comm/node.h"
#include "data/tpl-known.h"

static bool given(const char *s)
{
    return s && s[0];
}

int trl_run_open_backend(struct trl_run *run, struct trl_err *err)
{
    const struct trl_config *cfg = run->cfg;
    run->compute = cfg->bf16.set && cfg->bf16.value ? TRL_DTYPE_BF16 : cfg->fp16 ? TRL_DTYPE_F16 : TRL_DTYPE_F32;
    int rc = trl_comm_bind_plan(&run->comm, cfg->num_threads.set ? (int)cfg->num_threads.value : 0, &run->bind, err);
    if (rc == 0)
        rc = trl_pool_new(&run->pool, run->bind.n_threads, trl_bind_thread, &run->bind, err);
    if (rc)
        return rc;
    trl_bind_thread(&run->bind, 0);
    if (run->bind.oversubscribed && run->comm.local_rank == 0)
        trl_warn("more threads than cores: %s", run->bind.text);
    struct trl_backend_options opt = {.name = cfg->backend, .isa = cfg->cpu_isa, .pool = run->pool};
    rc = trl_backend_open(&run->be, &opt, err);
    trl_phases_mark(&run->phases, "backend");
    return rc;
}

void trl_run_model_options(const struct trl_run *run, struct trl_model_options *ret)
{
    const struct trl_config *cfg = run->cfg;
    *ret = (struct trl_model_options){
        .path = run->model_path ? run->model_path : cfg->model_name_or_path,
        .revision = cfg->model_revision,
        .dtype = cfg->dtype,
        .from_scratch = cfg->from_scratch,
        .seed = (uint64_t)cfg->seed,
        .compute = run->compute,
    };
}

int trl_run_locate(struct trl_run *run, struct trl_err *err)
{
    const struct trl_config *cfg = run->cfg;
    if (!given(cfg->model_name_or_path))
        return trl_fail(err, TRL_E_USAGE, "model_name_or_path is needed: a model folder, a .gguf file or a name in the Hugging Face cache");
    return trl_model_locate(cfg->model_name_or_path, cfg->model_revision, &run->model_path, err);
}

int trl_run_open_model(struct trl_run *run, struct trl_err *err)
{
    struct trl_model_options opt;
    trl_run_model_options(run, &opt);
    int rc = trl_model_load(&run->model, run->be, &opt, err);
    trl_phases_mark(&run->phases, "model");
    return rc;
}

/* A .jinja file, or a tokenizer folder whose template is taken. */
static int read_template_path(const char *path, char **ret, struct trl_err *err)
{
    if (!trl_path_is_dir(path))
        return trl_file_read(path, 16u << 20, ret, NULL, err);
    struct trl_tokenizer *other = NULL;
    int rc = trl_tokenizer_open(&other, path, err);
    if (rc)
        return rc;
    const char *source = trl_tokenizer_chat_template(other, NULL);
    *ret = source ? trl_strdup(source) : NULL;
    if (!source)
        rc = trl_fail(err, TRL_E_DATA, "chat_template_path %s has no chat template", path);
    else if (!*ret)
        rc = trl_fail_nomem(err, strlen(source), "a chat template");
    trl_tokenizer_free(other);
    return rc;
}

static int open_template(struct trl_run *run, struct trl_err *err)
{
    const struct trl_config *cfg = run->cfg;
    const char *name = "the model's chat template";
    char *source = NULL;
    int rc;
    if (given(cfg->chat_template_path)) {
        name = cfg->chat_template_path;
        rc = read_template_path(cfg->chat_template_path, &source, err);
        if (rc)
            return trl_err_prefix(err, rc, "chat_template_path");
        run->tpl_source = source;
    } else {
        const char *own = trl_tokenizer_chat_template(run->tok, NULL);
        if (!own)
            return 0;
        source = trl_strdup(own);
        if (!source)
            return trl_fail_nomem(err, strlen(own), "a chat template");
    }
    rc = trl_template_compile(&run->tpl, source, strlen(source), name, err);
    if (rc == 0 && cfg->assistant_only_loss && !trl_template_has_generation(run->tpl)) {
        /* TRL trains with the variant and saves the template that was given */
        char *variant = NULL;
        rc = trl_template_training_source(&variant, source, err);
        trl_template_free(run->tpl);
        run->tpl = NULL;
        if (rc == 0)
            rc = trl_template_compile(&run->tpl, variant, strlen(variant), "the training template", err);
        trl_free(variant);
    }
    if (!run->tpl_source)
        trl_free(source);
    return rc;
}

int trl_run_open_text(struct trl_run *run, struct trl_err *err)
{
    const struct trl_config *cfg = run->cfg;
    int rc = trl_tokenizer_open(&run->tok, run->model_path, err);
    if (rc == 0 && given(cfg->eos_token))
        rc = trl_tokenizer_set_special(run->tok, TRL_TOKEN_EOS, cfg->eos_token, err);
    if (rc == 0)
        rc = open_template(run, err);
    trl_phases_mark(&run->phases, "tokenizer");
    return rc;
}

void trl_run_close(struct trl_run *run)
{
    trl_dataset_free(run->train_data);
    trl_dataset_free(run->eval_data);
    trl_template_free(run->tpl);
    trl_tokenizer_free(run->tok);
    trl_model_free(run->model);
    trl_backend_close(run->be);
    trl_pool_free(run->pool);
    trl_free(run->model_path);
    trl_free(run->tpl_source);
    if (run->comm_open)
        trl_comm_close(&run->comm);
    *run = (struct trl_run){0};
}
