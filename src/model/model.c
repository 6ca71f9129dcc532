/* SPDX-License-Identifier: Apache-2.0 */
#include "model/model.h"

#include <string.h>

#include "base/alloc.h"
#include "base/gguf.h"
#include "base/fileio.h"
#include "model/family.h"
#include "model/weights.h"

int trl__model_status(struct trl_model *m, struct trl_err *err, const char *what)
{
    int rc = m->rc;
    m->rc = 0;
    if (rc == TRL_E_NOMEM)
        return trl_fail(err, rc, "out of memory in %s", what);
    return rc ? trl_fail(err, rc, "%s failed on the %s backend: %s", what, m->be->name,
                    trl_status_name(rc))
              : 0;
}

static int choose_types(struct trl_types *t, const struct trl_model_options *opt,
    const struct trl_model_config *c, const char *path, bool folder, struct trl_err *err)
{
    const char *name = opt->dtype ? opt->dtype : "float32";
    if (strcmp(name, "auto") != 0) {
        if (trl_dtype_find(name, &t->w) != 0)
            return trl_fail(err, TRL_E_USAGE,
                "dtype %s is unknown (auto, float32, bfloat16, float16 are allowed)", name);
    } else if (c->dtype[0]) {
        if (trl_dtype_find(c->dtype, &t->w) != 0)
            return trl_fail(err, TRL_E_UNSUPPORTED,
                "dtype auto: config.json says %s (float32, bfloat16, float16 are "
                "supported)",
                c->dtype);
    } else {
        t->w = TRL_DTYPE_F32;
        if (folder && !opt->from_scratch) {
            int rc = trl__weights_file_dtype(path, &t->w, err);
            if (rc)
                return rc;
        }
    }
    t->res = t->w;
    t->act = t->w == TRL_DTYPE_F32 || opt->compute != TRL_DTYPE_F32 ? opt->compute : t->w;
    if (t->w != TRL_DTYPE_F32 && t->act != t->w)
        return trl_fail(err, TRL_E_UNSUPPORTED,
            "dtype %s together with %s mixed precision is not supported; use dtype "
            "float32",
            trl_dtype_name(t->w), trl_dtype_name(t->act));
    return 0;
}

static void fill_info(
    struct trl_model_info *f, const struct trl_model_config *c, const struct trl_layout *l)
{
    *f = (struct trl_model_info){.vocab_size = c->vocab,
        .hidden_size = c->hidden,
        .n_layers = c->layers,
        .max_positions = c->max_positions,
        .tied = c->tied,
        .learned_positions = c->learned_positions,
        .counts_first_label = c->counts_first_label,
        .bos_id = c->bos_id,
        .eos_id = c->eos_id,
        .pad_id = c->pad_id};
    snprintf(f->model_type, sizeof(f->model_type), "%s", c->family->model_type);
    for (int i = 0; i < l->params->n; i++)
        if (l->params->items[i].role == TRL_PARAM_LINEAR)
            f->flops_per_token += 2 * (double)l->params->items[i].numel;
    if (c->tied)
        f->flops_per_token += 2 * (double)c->vocab * (double)c->hidden;
    f->flops_per_token_ctx = 4 * (double)c->heads * (double)c->head_dim * (double)c->layers;
}

/* What plan and load have in common: where, configuration, types, table. */
struct opened {
    char *path;
    bool gguf;
    struct trl_types types;
};

static int open_model(struct opened *o, struct trl_model_config *c,
    const struct trl_model_options *opt, struct trl_err *err)
{
    int rc = trl_model_locate(opt->path, opt->revision, &o->path, err);
    if (rc)
        return rc;
    o->gguf = !trl_path_is_dir(o->path);
    if (o->gguf && opt->from_scratch)
        return trl_fail(err, TRL_E_USAGE,
            "from_scratch needs a folder with config.json, %s is a GGUF file", o->path);
    rc = o->gguf ? trl__gguf_config(c, o->path, err) : trl__config_read(c, o->path, err);
    if (rc)
        return rc;
    return choose_types(&o->types, opt, c, o->path, !o->gguf, err);
}

static int alloc_weights(struct trl_model *m, struct trl_err *err)
{
    struct trl_params *p = &m->params;
    p->dtype = m->types.w;
    m->weights_size = (size_t)p->slab_elems * trl_dtype_size(m->types.w);
    p->weights = m->be->mem_alloc(m->be, m->weights_size);
    if (!p->weights)
        return trl_fail_nomem(err, m->weights_size, "the weights");
    p->copy_dtype = m->types.act;
    if (m->types.act == m->types.w)
        return 0;
    m->copy_size = (size_t)p->slab_elems * trl_dtype_size(m->types.act);
    p->copy = m->be->mem_alloc(m->be, m->copy_size);
    return p->copy ? 0 : trl_fail_nomem(err, m->copy_size, "the rounded copy of the weights");
}

int trl_model_load(struct trl_model **ret, struct trl_backend *be,
    const struct trl_model_options *opt, struct trl_err *err)
{
    struct opened o = {0};
    struct trl_model *m = trl_calloc(1, sizeof(*m));
    if (!m)
        return trl_fail_nomem(err, sizeof(*m), "the model");
    m->be = be;
    int rc = open_model(&o, &m->cfg, opt, err);
    if (rc)
        goto out;
    m->types = o.types;
    m->drop_seed = opt->seed;
    trl_mt_seed(&m->mt, opt->seed);
    rc = trl__layout_build(&m->lay, &m->cfg, &m->params, err);
    if (rc == 0)
        rc = alloc_weights(m, err);
    if (rc)
        goto out;
    fill_info(&m->info, &m->cfg, &m->lay);
    if (opt->from_scratch)
        rc = trl__weights_init(m, opt->seed, err);
    else
        rc = o.gguf ? trl__weights_load_gguf(m, o.path, err)
                    : trl__weights_load_folder(m, o.path, err);
    if (rc == 0)
        rc = trl_model_weights_changed(m, false, err);
out:
    trl_free(o.path);
    if (rc)
        trl_model_free(m);
    else
        *ret = m;
    return rc;
}

static void release_slab(struct trl_backend *be, void *p, size_t size)
{
    if (p)
        be->mem_free(be, p, size);
}

void trl_model_free(struct trl_model *m)
{
    if (!m)
        return;
    release_slab(m->be, m->slab, m->slab_size);
    release_slab(m->be, m->params.grads, m->grads_size);
    release_slab(m->be, m->params.copy, m->copy_size);
    release_slab(m->be, m->params.weights, m->weights_size);
    trl__head_host_free(m);
    trl__buffers_free(&m->buf);
    trl__layout_release(&m->lay);
    trl__config_release(&m->cfg);
    trl_free(m->noise);
    trl_free(m);
}

const struct trl_model_info *trl_model_get_info(const struct trl_model *m)
{
    return &m->info;
}

struct trl_params *trl_model_get_params(struct trl_model *m)
{
    return &m->params;
}

int trl_model_n_ready(const struct trl_model *m)
{
    return (int)m->cfg.layers + 2;
}

static int check_capacity(
    const struct trl_model_config *c, const struct trl_model_capacity *cap, struct trl_err *err)
{
    if (cap->max_tokens < 1 || cap->max_tokens > INT32_MAX / 2 || cap->max_docs < 1 ||
        cap->max_position < 1)
        return trl_fail(err, TRL_E_RANGE,
            "a micro-batch of %lld tokens, %lld rows, %lld positions is not possible; lower "
            "per_device_train_batch_size or max_length",
            (long long)cap->max_tokens, (long long)cap->max_docs, (long long)cap->max_position);
    if (c->learned_positions && cap->max_position > c->max_positions)
        return trl_fail(err, TRL_E_RANGE,
            "rows of %lld tokens do not fit the model's %lld learned positions; lower "
            "max_length",
            (long long)cap->max_position, (long long)c->max_positions);
    return 0;
}

int trl_model_prepare(
    struct trl_model *m, const struct trl_model_capacity *cap, struct trl_err *err)
{
    enum { NOISE_ELEMS = 1 << 14 };
    if (m->prepared)
        return trl_fail(err, TRL_E_USAGE, "the model is prepared already");
    int rc = check_capacity(&m->cfg, cap, err);
    if (rc)
        return rc;
    m->cap = *cap;
    rc = trl__buffers_new(&m->buf, &m->cfg, cap, err);
    if (rc)
        return rc;
    m->slab_size = trl__buffers_cut(&m->buf, &m->cfg, &m->types, cap, NULL);
    m->slab = m->be->mem_alloc(m->be, m->slab_size);
    if (!m->slab)
        return trl_fail_nomem(err, m->slab_size, "activations");
    trl__buffers_cut(&m->buf, &m->cfg, &m->types, cap, m->slab);
    rc = trl__head_host_new(m, err);
    if (rc)
        return rc;
    m->noise_elems = m->cfg.hidden > NOISE_ELEMS ? m->cfg.hidden : NOISE_ELEMS;
    m->noise = trl_malloc((size_t)m->noise_elems * 2 * sizeof(float));
    if (!m->noise)
        return trl_fail_nomem(err, (size_t)m->noise_elems * 8, "noise");
    if (cap->training) {
        m->grads_size = (size_t)m->params.slab_elems * trl_dtype_size(m->types.w);
        m->params.grads = m->be->mem_alloc(m->be, m->grads_size);
        if (!m->params.grads)
            return trl_fail_nomem(err, m->grads_size, "the gradients");
    }
    m->rope_stale = true;
    m->prepared = true;
    rc = trl__rope_tables(m, 0, err);
    return rc ? rc : trl__warm_up(m, err);
}

struct pack_sum {
    struct trl_backend *be;
    size_t bytes;
};

static void add_pack(void *ctx, const struct trl_op_gemm *a)
{
    struct pack_sum *s = ctx;
    if (s->be->weight_pack_bytes)
        s->bytes += s->be->weight_pack_bytes(s->be, a);
}

static void fill_plan(struct trl_model_plan *ret, const struct trl_model_config *c,
    const struct trl_layout *l, const struct trl_types *t, const struct trl_buffers *b,
    const struct trl_model_capacity *cap, struct trl_backend *be)
{
    size_t elems = (size_t)l->params->slab_elems;
    struct pack_sum packs = {be, 0};
    *ret = (struct trl_model_plan){.weights = elems * trl_dtype_size(t->w),
        .activations = b->bytes_activations,
        .head = b->bytes_head,
        .scratch = b->bytes_scratch};
    ret->copy = t->act != t->w ? elems * trl_dtype_size(t->act) : 0;
    ret->grads = cap->training ? elems * trl_dtype_size(t->w) : 0;
    if (be)
        trl__each_weight_gemm(
            l, t, cap->max_tokens, b->head_chunk, cap->training, add_pack, &packs);
    ret->packed = packs.bytes;
}

int trl_model_plan(const struct trl_model_options *opt, struct trl_backend *be,
    const struct trl_model_capacity *cap, struct trl_model_plan *ret,
    struct trl_model_info *ret_info,
    int (*visit)(void *ctx, const struct trl_params *params, struct trl_err *err), void *ctx,
    struct trl_err *err)
{
    struct opened o = {0};
    struct trl_model_config c = {0};
    struct trl_params params = {0};
    struct trl_layout lay = {0};
    struct trl_buffers buf = {0};
    int rc = open_model(&o, &c, opt, err);
    if (rc == 0)
        rc = check_capacity(&c, cap, err);
    if (rc == 0)
        rc = trl__layout_build(&lay, &c, &params, err);
    if (rc == 0)
        rc = trl__buffers_new(&buf, &c, cap, err);
    if (rc == 0) {
        trl__buffers_cut(&buf, &c, &o.types, cap, NULL);
        fill_plan(ret, &c, &lay, &o.types, &buf, cap, be);
        if (ret_info)
            fill_info(ret_info, &c, &lay);
        params.dtype = o.types.w;
        if (visit)
            rc = visit(ctx, &params, err);
    }
    trl__buffers_free(&buf);
    trl__layout_release(&lay);
    trl__config_release(&c);
    trl_free(o.path);
    return rc;
}

int trl_model_zero_grads(struct trl_model *m, struct trl_err *err)
{
    if (m->params.grads && m->be->fill_zero(m->be, m->params.grads, m->grads_size) != 0)
        return trl_fail(err, TRL_E_FAIL, "cannot clear the gradients");
    return 0;
}

int trl_model_weights_changed(struct trl_model *m, bool copies_done, struct trl_err *err)
{
    m->rc = 0;
    if (m->params.copy && !copies_done)
        trl__cast(m, m->params.copy_dtype, m->params.copy, m->params.dtype, m->params.weights,
            m->params.slab_elems);
    if (m->be->weights_changed)
        m->be->weights_changed(m->be);
    return trl__model_status(m, err, "refreshing the weights");
}

int trl_model_reload(struct trl_model *m, const char *dir, struct trl_err *err)
{
    int rc = trl__weights_load_folder(m, dir, err);
    return rc ? rc : trl_model_weights_changed(m, false, err);
}
