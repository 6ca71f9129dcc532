/* SPDX-License-Identifier: Apache-2.0 */
/* Optimiser state in a safetensors file: whole tensors under the parameters' names, whatever the layout of the run. */
#include <math.h>
#include <string.h>

#include "base/alloc.h"
#include "base/arena.h"
#include "model/safetensors.h"
#include "optim/optim-impl.h"

#define STEP_NAME "step"

/* One tensor of the state, where it lies. */
struct entry {
    const char *name;
    void *dev;
    enum trl_dtype dtype;
    int ndim;
    int64_t shape[2], numel;
};
struct entries {
    struct trl_arena arena;
    struct entry *items;
    int n;
};

static int add(struct entries *es, const char *prefix, const struct trl_param *p, void *dev, enum trl_dtype dtype, int ndim,
    int64_t d0, int64_t d1, struct trl_err *err)
{
    char *name = trl_arena_printf(&es->arena, "%s.%s", prefix, p->name);
    if (!name)
        return trl_fail_nomem(err, strlen(p->name), "a name");
    es->items[es->n++] = (struct entry){name, dev, dtype, ndim, {d0, d1}, d0 * (ndim == 2 ? d1 : 1)};
    return 0;
}

static int list_entries(const struct trl_optim *o, struct entries *es, struct trl_err *err)
{
    const struct trl_params *ps = o->params;
    es->items = trl_arena_array(&es->arena, 2 * (size_t)ps->n + 1, sizeof(*es->items));
    if (!es->items)
        return trl_fail_nomem(err, 2 * (size_t)ps->n * sizeof(*es->items), "a list of tensors");
    int rc = 0;
    for (int i = 0; i < ps->n && rc == 0; i++) {
        const struct trl_param *p = &ps->items[i];
        if (!p->trainable)
            continue;
        for (int k = 0; k < o->rule.n_slabs && rc == 0; k++)
            rc = add(es, o->rule.slab_names[k], p, trl_param_at(o->slabs[k], ps->dtype, p), ps->dtype, p->ndim, p->shape[0],
                p->shape[1], err);
        if (o->rule.kind != TRL_OPTIM_ADAFACTOR)
            continue;
        float *state = o->factors + o->factor_offset[i];
        if (p->ndim == 2) {
            rc = add(es, "exp_avg_sq_row", p, state, TRL_DTYPE_F32, 1, p->shape[0], 0, err);
            if (rc == 0)
                rc = add(es, "exp_avg_sq_col", p, state + p->shape[0], TRL_DTYPE_F32, 1, p->shape[1], 0, err);
        } else {
            rc = add(es, "exp_avg_sq", p, state, TRL_DTYPE_F32, 1, p->numel, 0, err);
        }
    }
    return rc;
}

static int fetch(void *ctx, const struct trl_st_item *item, int64_t first, int64_t n, void *dst, struct trl_err *err)
{
    struct trl_optim *o = ctx;
    size_t size = trl_dtype_size(item->dtype);
    if (!item->user) { /* the step count */
        *(float *)dst = (float)o->step;
        return 0;
    }
    int rc = o->be->copy_out(o->be, dst, (const char *)item->user + (size_t)first * size, (size_t)n * size);
    return rc == 0 ? 0 : trl_fail(err, rc, "optimiser state %s: cannot be copied from the device", item->name);
}

int trl_optim_save(struct trl_optim *o, const char *path, struct trl_err *err)
{
    struct entries es = {0};
    struct trl_st_item *items = NULL;
    int rc = list_entries(o, &es, err);
    if (rc != 0)
        goto out;
    items = trl_arena_array(&es.arena, (size_t)es.n + 1, sizeof(*items));
    if (!items) {
        rc = trl_fail_nomem(err, (size_t)es.n * sizeof(*items), "a list of tensors");
        goto out;
    }
    for (int i = 0; i < es.n; i++) {
        const struct entry *e = &es.items[i];
        items[i] = (struct trl_st_item){.name = e->name, .dtype = e->dtype, .ndim = e->ndim,
            .shape = {e->shape[0], e->shape[1]}, .numel = e->numel, .user = e->dev};
    }
    items[es.n] = (struct trl_st_item){.name = STEP_NAME, .dtype = TRL_DTYPE_F32, .ndim = 1, .shape = {1}, .numel = 1};
    rc = trl_st_write(path, items, es.n + 1, fetch, o, err);
out:
    trl_arena_release(&es.arena);
    return rc;
}

static int read_step(const struct trl_st_file *f, int64_t *ret, struct trl_err *err)
{
    const struct trl_st_tensor *t = trl_st_find(f, STEP_NAME);
    float v;
    if (!t || t->dtype != TRL_ST_F32 || t->numel != 1)
        return trl_fail(err, TRL_E_DATA, "%s: no tensor \"" STEP_NAME "\" with one float32", f->path);
    memcpy(&v, trl_st_data(f, t), sizeof(v));
    if (!(v >= 0 && v < 0x1p62f) || v != floorf(v))
        return trl_fail(err, TRL_E_DATA, "%s: \"" STEP_NAME "\" is %g, but must be a whole number of at least 0", f->path, v);
    *ret = (int64_t)v;
    return 0;
}

static int check_entry(const struct trl_st_file *f, const struct entry *e, struct trl_err *err)
{
    const struct trl_st_tensor *t = trl_st_find(f, e->name);
    enum trl_dtype dtype;
    if (!t)
        return trl_fail(err, TRL_E_DATA, "%s: tensor \"%s\" is missing; the state of another optimiser or model?", f->path,
            e->name);
    if (trl_st_dtype_native(t->dtype, &dtype) != 0 || dtype != e->dtype)
        return trl_fail(err, TRL_E_DATA, "%s: tensor \"%s\" is %s, but this run keeps it as %s", f->path, e->name,
            trl_st_dtype_name(t->dtype), trl_dtype_st_name(e->dtype));
    if (t->ndim != e->ndim || t->shape[0] != e->shape[0] || (e->ndim == 2 && t->shape[1] != e->shape[1]) ||
        t->numel != e->numel)
        return trl_fail(err, TRL_E_DATA, "%s: tensor \"%s\" has another shape than its parameter", f->path, e->name);
    return 0;
}

/* Piece by piece, so that the file's pages do not stay beside the state. */
static int load_tensor(struct trl_optim *o, const struct trl_st_file *f, const struct trl_st_tensor *t, void *dev, struct trl_err *err)
{
    const size_t piece = 4u << 20, size = (size_t)(t->end - t->begin);
    for (size_t at = 0; at < size; at += piece) {
        size_t n = size - at < piece ? size - at : piece;
        int rc = o->be->copy_in(o->be, (char *)dev + at, trl_st_data(f, t) + at, n);
        if (rc != 0)
            return trl_fail(err, rc, "%s: cannot be copied to the device", f->path);
        trl_map_drop(&f->map, f->data_offset + t->begin + at, n);
    }
    return 0;
}

/* Nothing is changed unless the whole file fits. */
int trl_optim_load(struct trl_optim *o, const char *path, struct trl_err *err)
{
    struct trl_st_file f = {0};
    struct entries es = {0};
    int64_t step = 0;
    int rc = trl_st_open(&f, path, err);
    if (rc == 0)
        rc = list_entries(o, &es, err);
    if (rc == 0)
        rc = read_step(&f, &step, err);
    for (int i = 0; i < es.n && rc == 0; i++)
        rc = check_entry(&f, &es.items[i], err);
    if (rc == 0 && f.n != es.n + 1)
        rc = trl_fail(err, TRL_E_DATA, "%s: has %d tensors, this optimiser %d; the state of another optimiser or model?", path,
            f.n, es.n + 1);
    for (int i = 0; i < es.n && rc == 0; i++)
        rc = load_tensor(o, &f, trl_st_find(&f, es.items[i].name), es.items[i].dev, err);
    if (rc == 0)
        o->step = step;
    trl_arena_release(&es.arena);
    trl_st_close(&f);
    return rc;
}
