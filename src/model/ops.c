/* SPDX-License-Identifier: Apache-2.0 */
/* Descriptors of the op table for the products, norms and adds that the blocks are made of. */
#include <string.h>

#include "model/internal.h"

const void *trl__weight(const struct trl_model *m, int index, enum trl_dtype *ret_dtype)
{
    const struct trl_param *p = trl__param(m, index);
    *ret_dtype = m->params.copy ? m->params.copy_dtype : m->params.dtype;
    return trl_param_at(m->params.copy ? m->params.copy : m->params.weights, *ret_dtype, p);
}

static void run_gemm(struct trl_model *m, const struct trl_op_gemm *a)
{
    if (m->rc == 0 && a->m > 0)
        m->rc = m->be->ops.gemm(m->be, a);
}

static void *offset(const void *p, enum trl_dtype t, int64_t elems)
{
    return (char *)(uintptr_t)p + (size_t)elems * trl_dtype_size(t);
}

/* A joined linear is one product with all its rows, otherwise each part is one. */
static int n_parts(const struct trl_linear *y)
{
    return y->joined ? 1 : y->n;
}
static int64_t part_out(const struct trl_linear *y, int k)
{
    return y->joined ? y->total : y->out[k];
}
static bool is_conv1d(const struct trl_layout *l, const struct trl_linear *y)
{
    return l->params->items[y->w[0]].conv1d;
}

/* Shape of out[n, part] = x[n, in] W^T; pointers are the caller's. */
static struct trl_op_gemm forward_gemm(const struct trl_layout *l, const struct trl_types *t,
    const struct trl_linear *y, int k, int64_t n)
{
    bool conv = is_conv1d(l, y);
    return (struct trl_op_gemm){.m = n,
        .n = part_out(y, k),
        .k = y->in,
        .trans_b = !conv,
        .lda = y->in,
        .ldb = conv ? y->out[k] : y->in,
        .ldc = y->total,
        .a_dtype = t->act,
        .b_dtype = t->act,
        .c_dtype = t->act,
        .bias_dtype = t->act,
        .round = t->act,
        .alpha = 1,
        .b_is_weight = true};
}

/* Shape of dx[n, in] = dy[n, part] W */
static struct trl_op_gemm input_grad_gemm(const struct trl_layout *l, const struct trl_types *t,
    const struct trl_linear *y, int k, int64_t n)
{
    bool conv = is_conv1d(l, y);
    return (struct trl_op_gemm){.m = n,
        .n = y->in,
        .k = part_out(y, k),
        .trans_b = conv,
        .lda = y->total,
        .ldb = conv ? y->out[k] : y->in,
        .ldc = y->in,
        .a_dtype = t->act,
        .b_dtype = t->act,
        .c_dtype = t->act,
        .round = t->act,
        .alpha = 1,
        .beta = k > 0,
        .b_is_weight = true};
}

void trl__linear_forward(struct trl_model *m, const struct trl_linear *y, const void *x, void *out)
{
    int64_t col = 0;
    for (int k = 0; k < n_parts(y); k++) {
        struct trl_op_gemm a = forward_gemm(&m->lay, &m->types, y, k, m->n);
        enum trl_dtype t;
        a.a = x;
        a.b = trl__weight(m, y->w[k], &t);
        a.bias = y->b[k] >= 0 ? trl__weight(m, y->b[k], &t) : NULL;
        a.c = offset(out, m->types.act, col);
        run_gemm(m, &a);
        col += part_out(y, k);
    }
}

static void *grad_at(const struct trl_model *m, int index)
{
    return trl_param_at(m->params.grads, m->params.dtype, trl__param(m, index));
}

static void bias_grad(struct trl_model *m, int b, const void *dy, int64_t cols, int64_t ld)
{
    if (b < 0 || !trl__param(m, b)->trainable || m->rc)
        return;
    m->rc = m->be->ops.colsum(m->be,
        &(struct trl_op_colsum){.rows = m->n,
            .cols = cols,
            .ld_x = ld,
            .x = dy,
            .out = grad_at(m, b),
            .x_dtype = m->types.act,
            .out_dtype = m->params.dtype});
}

/* dW[out, in] += dy^T x, or dW[in, out] += x^T dy where it is stored so */
static void weight_grad(struct trl_model *m, const struct trl_linear *y, int w, const void *dy,
    int64_t out, const void *x)
{
    if (!trl__param(m, w)->trainable)
        return;
    bool conv = is_conv1d(&m->lay, y);
    enum trl_dtype t = m->types.act;
    struct trl_op_gemm a = {.m = conv ? y->in : out,
        .n = conv ? out : y->in,
        .k = m->n,
        .trans_a = true,
        .a = conv ? x : dy,
        .b = conv ? dy : x,
        .c = grad_at(m, w),
        .lda = conv ? y->in : y->total,
        .ldb = conv ? y->total : y->in,
        .ldc = conv ? out : y->in,
        .a_dtype = t,
        .b_dtype = t,
        .c_dtype = m->params.dtype,
        .round = t,
        .alpha = 1,
        .beta = 1};
    run_gemm(m, &a);
}

static bool all_trainable(const struct trl_model *m, const struct trl_linear *y)
{
    for (int k = 0; k < y->n; k++)
        if (!trl__param(m, y->w[k])->trainable ||
            (y->b[k] >= 0 && !trl__param(m, y->b[k])->trainable))
            return false;
    return true;
}

void trl__linear_backward(
    struct trl_model *m, const struct trl_linear *y, const void *dy, const void *x, void *dx)
{
    if (y->joined && all_trainable(m, y)) {
        weight_grad(m, y, y->w[0], dy, y->total, x);
        bias_grad(m, y->b[0], dy, y->total, y->total);
    } else {
        int64_t col = 0;
        for (int k = 0; k < y->n; k++) {
            const void *part = offset(dy, m->types.act, col);
            weight_grad(m, y, y->w[k], part, y->out[k], x);
            bias_grad(m, y->b[k], part, y->out[k], y->total);
            col += y->out[k];
        }
    }
    int64_t col = 0;
    for (int k = 0; dx && k < n_parts(y); k++) {
        struct trl_op_gemm a = input_grad_gemm(&m->lay, &m->types, y, k, m->n);
        enum trl_dtype t;
        a.a = offset(dy, m->types.act, col);
        a.b = trl__weight(m, y->w[k], &t);
        a.c = dx;
        run_gemm(m, &a);
        col += part_out(y, k);
    }
}

static void *norm_weight(const struct trl_model *m, int index)
{
    return index < 0 ? NULL
                     : trl_param_at(m->params.weights, m->params.dtype, trl__param(m, index));
}
static void *norm_grad(const struct trl_model *m, int index)
{
    return index < 0 || !trl__param(m, index)->trainable ? NULL : grad_at(m, index);
}

void trl__norm_forward(struct trl_model *m, const struct trl_norm *w, const void *x,
    enum trl_dtype x_dtype, void *y, float *stat)
{
    int64_t h = m->cfg.hidden;
    if (m->rc || m->n == 0)
        return;
    if (m->cfg.norm == TRL_NORM_LAYER) {
        m->rc = m->be->ops.layernorm(m->be,
            &(struct trl_op_layernorm){.rows = m->n,
                .cols = h,
                .x = x,
                .w = norm_weight(m, w->w),
                .b = norm_weight(m, w->b),
                .y = y,
                .mean = stat,
                .rstd = stat ? stat + m->n : NULL,
                .eps = (float)m->cfg.eps,
                .x_dtype = x_dtype,
                .w_dtype = m->params.dtype,
                .y_dtype = m->types.act});
        return;
    }
    bool plus1 = m->cfg.norm == TRL_NORM_RMS_PLUS1;
    m->rc = m->be->ops.rmsnorm(m->be,
        &(struct trl_op_rmsnorm){.rows = m->n,
            .cols = h,
            .ld_x = h,
            .ld_y = h,
            .x = x,
            .w = norm_weight(m, w->w),
            .y = y,
            .rstd = stat,
            .eps = (float)m->cfg.eps,
            .offset = plus1,
            /* torch rounds the normalised value to the type of x, then the product: one type only
               without autocast */
            .cast_first = !plus1 && x_dtype == m->types.act,
            .x_dtype = x_dtype,
            .w_dtype = m->params.dtype,
            .y_dtype = m->types.act});
}

void trl__norm_backward(struct trl_model *m, const struct trl_norm *w, const void *x,
    enum trl_dtype x_dtype, const void *dy, enum trl_dtype dy_dtype, const float *stat, void *dx,
    bool accumulate)
{
    int64_t h = m->cfg.hidden;
    if (m->rc || m->n == 0)
        return;
    if (m->cfg.norm == TRL_NORM_LAYER) {
        m->rc = m->be->ops.layernorm_bwd(m->be,
            &(struct trl_op_layernorm_bwd){.rows = m->n,
                .cols = h,
                .x = x,
                .w = norm_weight(m, w->w),
                .dy = dy,
                .mean = stat,
                .rstd = stat + m->n,
                .dx = dx,
                .dw = norm_grad(m, w->w),
                .db = norm_grad(m, w->b),
                .accumulate_dx = accumulate,
                .x_dtype = x_dtype,
                .w_dtype = m->params.dtype,
                .dy_dtype = dy_dtype,
                .dx_dtype = x_dtype});
        return;
    }
    m->rc = m->be->ops.rmsnorm_bwd(m->be,
        &(struct trl_op_rmsnorm_bwd){.rows = m->n,
            .cols = h,
            .ld_x = h,
            .ld_dy = h,
            .ld_dx = h,
            .x = x,
            .w = norm_weight(m, w->w),
            .dy = dy,
            .rstd = stat,
            .dx = dx,
            .dw = norm_grad(m, w->w),
            .offset = m->cfg.norm == TRL_NORM_RMS_PLUS1,
            .accumulate_dx = accumulate,
            .x_dtype = x_dtype,
            .w_dtype = m->params.dtype,
            .dy_dtype = dy_dtype,
            .dx_dtype = x_dtype});
}

void trl__cast(
    struct trl_model *m, enum trl_dtype to, void *y, enum trl_dtype from, const void *x, int64_t n)
{
    if (m->rc == 0 && n > 0)
        m->rc = m->be->ops.axpby(m->be,
            &(struct trl_op_axpby){
                .n = n, .x = x, .y = y, .alpha = 1, .x_dtype = from, .y_dtype = to});
}

void trl__add_residual(struct trl_model *m, const void *x, const void *branch, void *y)
{
    if (m->rc == 0 && m->n > 0)
        m->rc = m->be->ops.add(m->be,
            &(struct trl_op_add){.n = m->n * m->cfg.hidden,
                .a = x,
                .b = branch,
                .y = y,
                .a_dtype = m->types.res,
                .b_dtype = m->types.act,
                .y_dtype = m->types.res});
}

void trl__each_weight_gemm(const struct trl_layout *l, const struct trl_types *types, int64_t n,
    int64_t head_rows, bool training, void (*fn)(void *ctx, const struct trl_op_gemm *a), void *ctx)
{
    for (int64_t i = 0; i < l->c->layers; i++) {
        const struct trl_layer *y = &l->layers[i];
        const struct trl_linear *lin[] = {&y->qkv, &y->o, &y->up, &y->down};
        for (int j = 0; j < 4; j++)
            for (int k = 0; k < n_parts(lin[j]); k++) {
                struct trl_op_gemm a = forward_gemm(l, types, lin[j], k, n);
                fn(ctx, &a);
                if (training) {
                    a = input_grad_gemm(l, types, lin[j], k, n);
                    fn(ctx, &a);
                }
            }
    }
    struct trl_linear head = {.n = 1,
        .w = {l->head},
        .b = {-1},
        .in = l->c->hidden,
        .out = {l->c->vocab},
        .total = l->c->vocab};
    struct trl_op_gemm a = forward_gemm(l, types, &head, 0, head_rows);
    fn(ctx, &a);
    if (training) {
        a = input_grad_gemm(l, types, &head, 0, head_rows);
        fn(ctx, &a);
    }
}
