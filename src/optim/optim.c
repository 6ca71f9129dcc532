/* SPDX-License-Identifier: Apache-2.0 */
#include "optim/optim.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "optim/optim-impl.h"

/* State of Adafactor for one parameter: floats; matrices keep row and column means, vectors every element. */
static int64_t factor_count(const struct trl_param *p)
{
    return p->ndim == 2 ? p->shape[0] + p->shape[1] : p->numel;
}

struct sizes {
    size_t slab, factors, scratch; /* bytes; slab: each */
};

static void measure(const struct trl__optim_rule *r, const struct trl_params *params, struct sizes *ret)
{
    *ret = (struct sizes){0};
    if (r->kind != TRL_OPTIM_ADAFACTOR) {
        ret->slab = r->n_slabs ? trl_size_mul((size_t)params->slab_elems, trl_dtype_size(params->dtype)) : 0;
        return;
    }
    int64_t total = 0, largest = 0;
    for (int i = 0; i < params->n; i++) {
        const struct trl_param *p = &params->items[i];
        if (!p->trainable)
            continue;
        total += factor_count(p);
        largest = p->numel > largest ? p->numel : largest;
    }
    ret->factors = trl_size_mul((size_t)total, sizeof(float));
    ret->scratch = trl_size_mul((size_t)largest, sizeof(float));
}

int trl_optim_plan(const struct trl_optim_config *cfg, const struct trl_params *params, size_t *ret_bytes,
    struct trl_err *err)
{
    struct trl__optim_rule r;
    struct sizes s;
    int rc = trl__optim_resolve(cfg, &r, err);
    if (rc != 0)
        return rc;
    measure(&r, params, &s);
    *ret_bytes = s.slab * (size_t)r.n_slabs + s.factors + s.scratch;
    return 0;
}

static int by_offset(const void *a, const void *b)
{
    const struct trl_param *x = *(const struct trl_param *const *)a, *y = *(const struct trl_param *const *)b;
    return (x->offset > y->offset) - (x->offset < y->offset);
}

/* Join parameters of one group that are neighbours in the slab, whose order is the model's own; the gaps between them hold
 * zeros everywhere and stay zero, except in an Adam step with epsilon 0 (0/0). */
static int make_runs(struct trl_optim *o, struct trl_err *err)
{
    const struct trl_params *params = o->params;
    bool join = !(o->rule.kind == TRL_OPTIM_ADAMW && o->cfg.eps == 0);
    const struct trl_param **order = trl_malloc_array((size_t)params->n + 1, sizeof(*order));
    o->runs = trl_malloc_array((size_t)params->n + 1, sizeof(*o->runs));
    if (!o->runs || !order) {
        trl_free(order);
        return trl_fail_nomem(err, (size_t)params->n * sizeof(*o->runs), "optimiser runs");
    }
    for (int i = 0; i < params->n; i++)
        order[i] = &params->items[i];
    qsort(order, (size_t)params->n, sizeof(*order), by_offset);
    bool open = false; /* the last run ends at the parameter before this one */
    for (int i = 0; i < params->n; i++) {
        const struct trl_param *p = order[i];
        bool decay = p->decay && o->cfg.weight_decay != 0;
        struct trl__optim_run *last = open && join ? &o->runs[o->n_runs - 1] : NULL;
        open = p->trainable;
        if (!p->trainable)
            continue;
        if (last && last->decay == decay)
            last->n = p->offset + p->numel - last->offset;
        else
            o->runs[o->n_runs++] = (struct trl__optim_run){p->offset, p->numel, decay};
    }
    trl_free(order);
    return 0;
}

static int make_state(struct trl_optim *o, struct trl_err *err)
{
    struct sizes s;
    measure(&o->rule, o->params, &s);
    for (int i = 0; i < o->rule.n_slabs; i++) {
        o->slab_bytes = s.slab;
        o->slabs[i] = o->be->mem_alloc(o->be, s.slab);
        if (!o->slabs[i])
            return trl_fail_nomem(err, s.slab, "optimiser state");
    }
    if (o->rule.kind != TRL_OPTIM_ADAFACTOR)
        return 0;
    o->factor_bytes = s.factors;
    o->scratch_bytes = s.scratch;
    o->factors = o->be->mem_alloc(o->be, s.factors);
    o->scratch = o->be->mem_alloc(o->be, s.scratch);
    o->factor_offset = trl_malloc_array((size_t)o->params->n + 1, sizeof(*o->factor_offset));
    if (!o->factors || !o->scratch || !o->factor_offset)
        return trl_fail_nomem(err, s.factors + s.scratch, "optimiser state");
    int64_t at = 0;
    for (int i = 0; i < o->params->n; i++) {
        const struct trl_param *p = &o->params->items[i];
        o->factor_offset[i] = p->trainable ? at : -1;
        at += p->trainable ? factor_count(p) : 0;
    }
    return 0;
}

int trl_optim_new(struct trl_optim **ret, struct trl_backend *be, struct trl_params *params,
    const struct trl_optim_config *cfg, struct trl_err *err)
{
    struct trl_optim *o = trl_calloc(1, sizeof(*o));
    if (!o)
        return trl_fail_nomem(err, sizeof(*o), "an optimiser");
    o->be = be;
    o->params = params;
    o->cfg = *cfg;
    o->cfg.name = o->cfg.args = NULL; /* the caller's, not kept */
    int rc = trl__optim_resolve(cfg, &o->rule, err);
    if (rc == 0)
        rc = make_runs(o, err);
    if (rc == 0)
        rc = make_state(o, err);
    if (rc != 0) {
        trl_optim_free(o);
        return rc;
    }
    *ret = o;
    return 0;
}

void trl_optim_free(struct trl_optim *o)
{
    if (!o)
        return;
    for (int i = 0; i < 2; i++)
        if (o->slabs[i])
            o->be->mem_free(o->be, o->slabs[i], o->slab_bytes);
    if (o->factors)
        o->be->mem_free(o->be, o->factors, o->factor_bytes);
    if (o->scratch)
        o->be->mem_free(o->be, o->scratch, o->scratch_bytes);
    trl_free(o->factor_offset);
    trl_free(o->runs);
    trl_free(o);
}

int64_t trl_optim_steps(const struct trl_optim *o)
{
    return o->step;
}

/* v rounded to the type in which torch holds norms of such gradients */
static double rounded(enum trl_dtype t, double v)
{
    if (t == TRL_DTYPE_BF16)
        return trl_bf16_to_f32(trl_f32_to_bf16((float)v));
    return t == TRL_DTYPE_F16 ? trl_f16_to_f32(trl_f32_to_f16((float)v)) : (float)v;
}

static void *at(void *slab, enum trl_dtype t, int64_t offset)
{
    return slab ? (char *)slab + (size_t)offset * trl_dtype_size(t) : NULL;
}

static int op_failed(int rc, const char *what, struct trl_err *err)
{
    return rc == 0 ? 0 : trl_fail(err, rc, "%s: the backend could not run the operation (%s)", what, trl_status_name(rc));
}

static int sum_squares(struct trl_optim *o, int64_t offset, int64_t n, double *sum, struct trl_err *err)
{
    double part = 0;
    struct trl_op_sumsq a = {.n = n, .x = at(o->params->grads, o->params->dtype, offset), .ret = &part,
        .dtype = o->params->dtype};
    int rc = o->be->ops.sumsq(o->be, &a);
    *sum = part;
    return op_failed(rc, "gradient norm", err);
}

int trl_optim_grad_norm(struct trl_optim *o, double grad_scale, double *ret, struct trl_err *err)
{
    enum trl_dtype t = o->params->dtype;
    double total = 0, part;
    int rc = 0;
    if (t == TRL_DTYPE_F32) {
        for (int i = 0; i < o->n_runs && rc == 0; i++) {
            rc = sum_squares(o, o->runs[i].offset, o->runs[i].n, &part, err);
            total += rc == 0 ? part : 0;
        }
        total *= grad_scale * grad_scale;
    } else {
        /* torch: norm of the tensors' norms, each stored in 16 bits */
        for (int i = 0; i < o->params->n && rc == 0; i++) {
            const struct trl_param *p = &o->params->items[i];
            if (!p->trainable)
                continue;
            rc = sum_squares(o, p->offset, p->numel, &part, err);
            part = rc == 0 ? rounded(t, sqrt(part) * grad_scale) : 0;
            total += part * part;
        }
    }
    if (rc == 0)
        *ret = rounded(t, sqrt(total));
    return rc;
}

double trl_optim_clip_coef(const struct trl_optim *o, double norm)
{
    enum trl_dtype t = o->params->dtype;
    if (!(o->cfg.max_grad_norm > 0))
        return 1;
    double coef = rounded(t, rounded(t, o->cfg.max_grad_norm) / rounded(t, norm + 1e-6));
    return coef > 1 ? 1 : coef; /* NaN stays, as in torch */
}

static int step_runs(struct trl_optim *o, double lr, double scale, struct trl_err *err)
{
    const struct trl_params *ps = o->params;
    const struct trl__optim_rule *r = &o->rule;
    enum trl_dtype t = ps->dtype;
    double t1 = (double)(o->step + 1);
    int rc = 0;
    for (int i = 0; i < o->n_runs && rc == 0; i++) {
        const struct trl__optim_run *u = &o->runs[i];
        void *p = at(ps->weights, t, u->offset), *g = at(ps->grads, t, u->offset);
        void *copy = at(ps->copy, ps->copy_dtype, u->offset), *m = at(o->slabs[0], t, u->offset);
        double wd = u->decay ? o->cfg.weight_decay : 0;
        if (r->kind == TRL_OPTIM_ADAMW) {
            struct trl_op_adamw a = {.n = u->n, .p = p, .m = m, .v = at(o->slabs[1], t, u->offset), .p_copy = copy, .g = g,
                .lr = lr, .beta1 = o->cfg.beta1, .beta2 = o->cfg.beta2, .eps = o->cfg.eps, .weight_decay = wd,
                .grad_scale = scale, .bias1 = 1 - pow(o->cfg.beta1, t1), .bias2 = 1 - pow(o->cfg.beta2, t1),
                .fused = r->fused, .p_dtype = t, .g_dtype = t, .state_dtype = t, .copy_dtype = ps->copy_dtype};
            rc = o->be->ops.adamw(o->be, &a);
        } else if (r->kind == TRL_OPTIM_SGD) {
            struct trl_op_sgd a = {.n = u->n, .p = p, .buf = m, .p_copy = copy, .g = g, .lr = lr, .momentum = r->momentum,
                .dampening = r->dampening, .weight_decay = wd, .grad_scale = scale, .nesterov = r->nesterov,
                .first = o->step == 0, .p_dtype = t, .g_dtype = t, .state_dtype = t, .copy_dtype = ps->copy_dtype};
            rc = o->be->ops.sgd(o->be, &a);
        } else {
            struct trl_op_lion a = {.n = u->n, .p = p, .m = m, .p_copy = copy, .g = g, .lr = lr, .beta1 = o->cfg.beta1,
                .beta2 = o->cfg.beta2, .weight_decay = wd, .grad_scale = scale, .p_dtype = t, .g_dtype = t,
                .state_dtype = t, .copy_dtype = ps->copy_dtype};
            rc = o->be->ops.lion(o->be, &a);
        }
    }
    return op_failed(rc, "optimiser step", err);
}

/* transformers' Trainer: relative_step and scale_parameter off, decay_rate -0.8, eps 1e-30, clip_threshold 1, no first moment */
static int step_adafactor(struct trl_optim *o, double lr, double scale, struct trl_err *err)
{
    const struct trl_params *ps = o->params;
    double beta2t = 1 - pow((double)(o->step + 1), -0.8);
    int rc = 0;
    for (int i = 0; i < ps->n && rc == 0; i++) {
        const struct trl_param *p = &ps->items[i];
        if (!p->trainable)
            continue;
        float *state = o->factors + o->factor_offset[i];
        bool matrix = p->ndim == 2;
        struct trl_op_adafactor a = {.batch = 1, .rows = matrix ? p->shape[0] : 1, .cols = matrix ? p->shape[1] : p->numel,
            .p = at(ps->weights, ps->dtype, p->offset), .p_copy = at(ps->copy, ps->copy_dtype, p->offset),
            .g = at(ps->grads, ps->dtype, p->offset), .row_sq = matrix ? state : NULL,
            .col_sq = matrix ? state + p->shape[0] : NULL, .sq = matrix ? NULL : state, .scratch = o->scratch, .lr = lr,
            .eps1 = 1e-30, .clip_threshold = 1, .beta2t = beta2t, .weight_decay = p->decay ? o->cfg.weight_decay : 0,
            .grad_scale = scale, .p_dtype = ps->dtype, .g_dtype = ps->dtype, .copy_dtype = ps->copy_dtype};
        rc = o->be->ops.adafactor(o->be, &a);
    }
    return op_failed(rc, "optimiser step", err);
}

int trl_optim_step(struct trl_optim *o, double lr, double grad_scale, struct trl_err *err)
{
    int rc = o->rule.kind == TRL_OPTIM_ADAFACTOR ? step_adafactor(o, lr, grad_scale, err) : step_runs(o, lr, grad_scale, err);
    if (rc == 0)
        o->step++;
    return rc;
}
