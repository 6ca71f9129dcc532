/* SPDX-License-Identifier: Apache-2.0 */
/* Optimiser steps; the arithmetic is the reference's, operation by operation
 * (backend/ref/ref-optim.c). */
#include <math.h>

#include "backend/cpu/kern.h"

enum { GRAIN = 4096, SUM_BLOCK = 16384 };

/* lanes that exist of the vector at i */
#define LANES(i, end) trl_min64(VW, (end) - (i))

INLINE vf load_grad(enum trl_dtype t, const void *g, int64_t i, int64_t n, float scale)
{
    vf v = v_load_n(t, g, i, n);
    return scale == 1 ? v : v_round(t, v * v_set(scale));
}

INLINE void store_param(
    enum trl_dtype t, void *p, enum trl_dtype copy_t, void *copy, int64_t i, int64_t n, vf v)
{
    v_store_n(t, p, i, n, v);
    if (copy)
        v_store_n(copy_t, copy, i, n, v_round(t, v));
}

INLINE vf lerp(vf from, vf to, float w)
{
    return w < 0.5f ? from + v_set(w) * (to - from) : to - (to - from) * v_set(1 - w);
}

INLINE void adamw_part(const struct trl_op_adamw *a, int64_t i, int64_t end, enum trl_dtype tp,
    enum trl_dtype tg, enum trl_dtype ts, enum trl_dtype rp, enum trl_dtype rs)
{
    float decay = (float)(1 - a->lr * a->weight_decay), w1 = (float)(1 - a->beta1),
          b2 = (float)a->beta2;
    float w2 = (float)(1 - a->beta2), root = (float)sqrt(a->bias2), eps = (float)a->eps;
    float step = (float)(-a->lr / a->bias1), scale = (float)a->grad_scale;
    for (; i < end; i += VW) {
        int64_t n = LANES(i, end);
        vf g = load_grad(tg, a->g, i, n, scale);
        vf p = v_load_n(tp, a->p, i, n), m = v_load_n(ts, a->m, i, n), v = v_load_n(ts, a->v, i, n);
        if (a->weight_decay != 0)
            p = v_round(rp, p * v_set(decay));
        m = v_round(rs, lerp(m, g, w1));
        v = v_round(rs, v * v_set(b2));
        v = v_round(rs, v + v_set(w2) * g * g);
        vf denom = v_round(rs, v_sqrt(v));
        denom = v_round(rs, denom / v_set(root));
        denom = v_round(rs, denom + v_set(eps));
        v_store_n(ts, a->m, i, n, m);
        v_store_n(ts, a->v, i, n, v);
        store_param(tp, a->p, a->copy_dtype, a->p_copy, i, n, p + v_set(step) * m / denom);
    }
}

static void adamw_range(void *ctx, int64_t begin, int64_t end, int thread)
{
    (void)thread;
    const struct trl_op_adamw *a = ctx;
    enum trl_dtype rp = a->fused ? TRL_DTYPE_F32 : a->p_dtype,
                   rs = a->fused ? TRL_DTYPE_F32 : a->state_dtype;
    if (a->p_dtype == TRL_DTYPE_F32 && a->g_dtype == TRL_DTYPE_F32 &&
        a->state_dtype == TRL_DTYPE_F32)
        adamw_part(a, begin, end, TRL_DTYPE_F32, TRL_DTYPE_F32, TRL_DTYPE_F32, TRL_DTYPE_F32,
            TRL_DTYPE_F32);
    else
        adamw_part(a, begin, end, a->p_dtype, a->g_dtype, a->state_dtype, rp, rs);
}

int KERN(adamw)(struct trl_backend *be, const struct trl_op_adamw *a)
{
    trl_parallel_for(be->pool, a->n, GRAIN, adamw_range, (void *)a);
    return 0;
}

static float round_number(enum trl_dtype t, double x)
{
    float f = (float)x;
    uint16_t h;
    if (t == TRL_DTYPE_F32)
        return f;
    trl_dtype_store(t, &h, 0, f);
    return trl_dtype_load(t, &h, 0);
}

static void sgd_range(void *ctx, int64_t i, int64_t end, int thread)
{
    (void)thread;
    const struct trl_op_sgd *a = ctx;
    vf mu = v_set((float)a->momentum), decay = v_set(round_number(a->g_dtype, a->weight_decay));
    vf rest = v_set(round_number(a->state_dtype, 1 - a->dampening));
    vf look = v_set(round_number(a->g_dtype, a->momentum));
    vf step = v_set(round_number(a->p_dtype, -a->lr));
    for (; i < end; i += VW) {
        int64_t n = LANES(i, end);
        vf g = load_grad(a->g_dtype, a->g, i, n, (float)a->grad_scale);
        vf p = v_load_n(a->p_dtype, a->p, i, n);
        if (a->weight_decay != 0)
            g = v_round(a->g_dtype, g + decay * p);
        if (a->buf) {
            vf buf = g;
            if (!a->first) {
                buf = v_round(a->state_dtype, v_load_n(a->state_dtype, a->buf, i, n) * mu);
                buf = v_round(a->state_dtype, buf + rest * g);
            }
            v_store_n(a->state_dtype, a->buf, i, n, buf);
            g = a->nesterov ? v_round(a->g_dtype, g + look * buf) : buf;
        }
        store_param(a->p_dtype, a->p, a->copy_dtype, a->p_copy, i, n, p + step * g);
    }
}

int KERN(sgd)(struct trl_backend *be, const struct trl_op_sgd *a)
{
    trl_parallel_for(be->pool, a->n, GRAIN, sgd_range, (void *)a);
    return 0;
}

static void lion_range(void *ctx, int64_t i, int64_t end, int thread)
{
    (void)thread;
    const struct trl_op_lion *a = ctx;
    float decay = (float)(1 - a->lr * a->weight_decay), b1 = (float)a->beta1, b2 = (float)a->beta2;
    float w1 = (float)(1 - a->beta1), w2 = (float)(1 - a->beta2);
    for (; i < end; i += VW) {
        int64_t n = LANES(i, end);
        vf g = load_grad(a->g_dtype, a->g, i, n, (float)a->grad_scale);
        vf p = v_load_n(a->p_dtype, a->p, i, n), m = v_load_n(a->state_dtype, a->m, i, n);
        if (a->weight_decay != 0)
            p = v_round(a->p_dtype, p * v_set(decay));
        vf u = v_round(a->state_dtype, m * v_set(b1));
        u = v_round(a->state_dtype, u + v_set(w1) * g);
        vf sign = v_if_gt(u, v_zero(), v_set(1), v_if_gt(v_zero(), u, v_set(-1), u));
        m = v_round(a->state_dtype, m * v_set(b2));
        v_store_n(a->state_dtype, a->m, i, n, m + v_set(w2) * g);
        store_param(
            a->p_dtype, a->p, a->copy_dtype, a->p_copy, i, n, p + v_set((float)-a->lr) * sign);
    }
}

int KERN(lion)(struct trl_backend *be, const struct trl_op_lion *a)
{
    trl_parallel_for(be->pool, a->n, GRAIN, lion_range, (void *)a);
    return 0;
}

/* ---- Adafactor: row means, column means, update with its RMS, step ---- */

struct adafactor {
    const struct trl_op_adafactor *a;
    float *row_mean; /* [batch]: mean of row_sq */
    double *part; /* sums of squares of the update, one a block */
    float scale, clip;
};

static void ada_rows(void *ctx, int64_t begin, int64_t end, int thread)
{
    (void)thread;
    const struct adafactor *j = ctx;
    const struct trl_op_adafactor *a = j->a;
    float b2 = (float)a->beta2t, w2 = (float)(1 - a->beta2t);
    for (int64_t r = begin; r < end; r++) {
        double sum = 0;
        for (int64_t c0 = 0; c0 < a->cols; c0 += 1024) {
            int64_t last = trl_min64(c0 + 1024, a->cols);
            vf s = v_zero();
            for (int64_t c = c0; c < last; c += VW) {
                vf g = load_grad(a->g_dtype, a->g, r * a->cols + c, LANES(c, last), j->scale);
                s = v_fma(g, g, s); /* eps is added below: missing lanes must count 0 */
            }
            sum += (double)v_sum(s) + (double)(last - c0) * a->eps1;
        }
        a->row_sq[r] = a->row_sq[r] * b2 + w2 * (float)(sum / (double)a->cols);
    }
}

/* columns of all batches, [0, batch * cols) */
static void ada_columns(void *ctx, int64_t begin, int64_t end, int thread)
{
    (void)thread;
    const struct adafactor *j = ctx;
    const struct trl_op_adafactor *a = j->a;
    float b2 = (float)a->beta2t, w2 = (float)(1 - a->beta2t);
    for (int64_t i = begin; i < end;) {
        int64_t b = i / a->cols, c = i % a->cols,
                n = trl_min64(VW, trl_min64(end - i, a->cols - c));
        vf total = v_zero();
        for (int64_t r0 = 0; r0 < a->rows; r0 += 64) {
            vf s = v_zero();
            for (int64_t r = r0; r < trl_min64(r0 + 64, a->rows); r++) {
                vf g = load_grad(a->g_dtype, a->g, (b * a->rows + r) * a->cols + c, n, j->scale);
                s += v_fma(g, g, v_set((float)a->eps1));
            }
            total += s;
        }
        vf old = v_load_n(TRL_DTYPE_F32, a->col_sq, i, n);
        v_store_n(TRL_DTYPE_F32, a->col_sq, i, n,
            old * v_set(b2) + v_set(w2) * (total / v_set((float)a->rows)));
        i += n;
    }
}

/* one row's update into scratch; returns its sum of squares */
INLINE double ada_update(
    const struct adafactor *j, int64_t begin, int64_t end, float row, const float *col)
{
    const struct trl_op_adafactor *a = j->a;
    float b2 = (float)a->beta2t, w2 = (float)(1 - a->beta2t);
    double sum = 0;
    for (int64_t i0 = begin; i0 < end; i0 += 1024) {
        int64_t last = trl_min64(i0 + 1024, end);
        vf s = v_zero();
        for (int64_t i = i0; i < last; i += VW) {
            int64_t n = LANES(i, last);
            vf g = load_grad(a->g_dtype, a->g, i, n, j->scale), u;
            if (col) {
                u = v_set(row) * (1.0f / v_sqrt(v_load_n(TRL_DTYPE_F32, col, i - begin, n))) * g;
            } else {
                vf sq = v_load_n(TRL_DTYPE_F32, a->sq, i, n) * v_set(b2) +
                    v_set(w2) * (g * g + v_set((float)a->eps1));
                v_store_n(TRL_DTYPE_F32, a->sq, i, n, sq);
                u = 1.0f / v_sqrt(sq) * g;
            }
            v_store_n(TRL_DTYPE_F32, a->scratch, i, n, u);
            u = v_load_n(TRL_DTYPE_F32, a->scratch, i, n); /* missing lanes: 0 */
            s = v_fma(u, u, s);
        }
        sum += (double)v_sum(s);
    }
    return sum;
}

static void ada_update_rows(void *ctx, int64_t begin, int64_t end, int thread)
{
    (void)thread;
    const struct adafactor *j = ctx;
    const struct trl_op_adafactor *a = j->a;
    for (int64_t r = begin; r < end; r++) {
        int64_t b = r / a->rows;
        float row = 1 / sqrtf(a->row_sq[r] / j->row_mean[b]);
        j->part[r] = ada_update(j, r * a->cols, (r + 1) * a->cols, row, a->col_sq + b * a->cols);
    }
}

static void ada_update_blocks(void *ctx, int64_t begin, int64_t end, int thread)
{
    (void)thread;
    const struct adafactor *j = ctx;
    int64_t n = j->a->batch * j->a->rows * j->a->cols;
    for (int64_t b = begin; b < end; b++)
        j->part[b] = ada_update(j, b * SUM_BLOCK, trl_min64((b + 1) * SUM_BLOCK, n), 0, NULL);
}

static void ada_step(void *ctx, int64_t i, int64_t end, int thread)
{
    (void)thread;
    const struct adafactor *j = ctx;
    const struct trl_op_adafactor *a = j->a;
    vf clip = v_set(j->clip), lr = v_set((float)a->lr), b1 = v_set((float)a->beta1),
       w1 = v_set((float)(1 - a->beta1));
    vf decay = v_set((float)(-a->weight_decay * a->lr));
    for (; i < end; i += VW) {
        int64_t n = LANES(i, end);
        vf u = v_load_n(TRL_DTYPE_F32, a->scratch, i, n) / clip * lr,
           p = v_load_n(a->p_dtype, a->p, i, n);
        if (a->m) {
            u = v_load_n(TRL_DTYPE_F32, a->m, i, n) * b1 + w1 * u;
            v_store_n(TRL_DTYPE_F32, a->m, i, n, u);
        }
        if (a->weight_decay != 0)
            p += decay * p;
        store_param(a->p_dtype, a->p, a->copy_dtype, a->p_copy, i, n, p - u);
    }
}

int KERN(adafactor)(struct trl_backend *be, const struct trl_op_adafactor *a)
{
    int64_t n = a->batch * a->rows * a->cols, lines = a->batch * a->rows;
    if (n <= 0)
        return 0;
    int64_t parts = a->row_sq ? lines : (n + SUM_BLOCK - 1) / SUM_BLOCK;
    struct adafactor j = {.a = a, .scale = (float)a->grad_scale};
    j.part = trl_cpu_work(be, (size_t)parts * sizeof(double) + (size_t)a->batch * sizeof(float));
    if (!j.part)
        return TRL_E_NOMEM;
    j.row_mean = (float *)(j.part + parts);
    if (a->row_sq) {
        trl_parallel_for(be->pool, lines, 4, ada_rows, &j);
        trl_parallel_for(be->pool, a->batch * a->cols, 64, ada_columns, &j);
        for (int64_t b = 0; b < a->batch; b++) {
            double sum = 0;
            for (int64_t r = 0; r < a->rows; r++)
                sum += (double)a->row_sq[b * a->rows + r];
            j.row_mean[b] = (float)(sum / (double)a->rows);
        }
        trl_parallel_for(be->pool, lines, 4, ada_update_rows, &j);
    } else {
        trl_parallel_for(be->pool, parts, 1, ada_update_blocks, &j);
    }
    double sum_sq = 0;
    for (int64_t i = 0; i < parts; i++)
        sum_sq += j.part[i];
    float over = (float)(sqrt(sum_sq) / sqrt((double)n)) / (float)a->clip_threshold;
    j.clip = over > 1 ? over : 1;
    trl_parallel_for(be->pool, n, GRAIN, ada_step, &j);
    return 0;
}
