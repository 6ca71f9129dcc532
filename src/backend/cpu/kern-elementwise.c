/* SPDX-License-Identifier: Apache-2.0 */
/* Activations, casts, sums, gathers: each element is touched once, threads take contiguous parts.
 */
#include <math.h>

#include "backend/cpu/kern.h"

enum { GRAIN = 8192, SUM_BLOCK = 16384, SUM_ROWS = 64 };

/* ---- activations ---- */

INLINE vf each(vf x, float (*fn)(float))
{
    float lane[VW];
    v_storef(lane, x);
    for (int i = 0; i < VW; i++)
        lane[i] = fn(lane[i]);
    return v_loadf(lane);
}

#define GELU_C 0.79788456f /* sqrt(2/pi) */
#define GELU_A 0.044715f

/* act(x), and its derivative if asked */
INLINE vf act_value(enum trl_act act, vf x, vf *slope)
{
    if (act == TRL_ACT_SILU) {
        vf s = v_sigmoid(x);
        if (slope)
            *slope = s * v_fma(x, 1.0f - s, v_set(1));
        return x * s;
    }
    if (act == TRL_ACT_GELU_TANH) {
        vf t = v_tanh(v_set(GELU_C) * v_fma(v_set(GELU_A) * x * x, x, x));
        if (slope)
            *slope = 0.5f * (1.0f + t) +
                0.5f * x * v_fma(-t, t, v_set(1)) * v_set(GELU_C) *
                    v_fma(v_set(3 * GELU_A) * x, x, v_set(1));
        return 0.5f * x * (1.0f + t);
    }
    if (act == TRL_ACT_GELU) {
        vf e = each(x * v_set(0.70710678f), erff);
        if (slope)
            *slope = v_fma(x * v_exp(-0.5f * x * x), v_set(0.39894228f), 0.5f * (1.0f + e));
        return 0.5f * x * (1.0f + e);
    }
    if (slope)
        *slope = v_if_gt(x, v_zero(), v_set(1), v_zero());
    return v_if_gt(v_zero(), x, v_zero(), x);
}

INLINE void act_row(const struct trl_op_act *a, int64_t r, enum trl_act act, enum trl_dtype t)
{
    int64_t g0 = r * a->ld_gate, u0 = r * a->ld_up, y0 = r * a->ld_y;
    for (int64_t j = 0; j < a->cols; j += VW) {
        int64_t n = a->cols - j;
        vf y = act_value(act, v_load_n(t, a->gate, g0 + j, n), NULL);
        if (a->up)
            y *= v_load_n(t, a->up, u0 + j, n);
        v_store_n(t, a->y, y0 + j, n, y);
    }
}

static void act_rows(void *ctx, int64_t begin, int64_t end, int thread)
{
    (void)thread;
    const struct trl_op_act *a = ctx;
    for (int64_t r = begin; r < end; r++)
        if (a->act == TRL_ACT_SILU)
            BY_TYPE(a->dtype, act_row(a, r, TRL_ACT_SILU, T));
        else if (a->act == TRL_ACT_GELU_TANH)
            BY_TYPE(a->dtype, act_row(a, r, TRL_ACT_GELU_TANH, T));
        else
            act_row(a, r, a->act, a->dtype);
}

int KERN(act)(struct trl_backend *be, const struct trl_op_act *a)
{
    trl_parallel_for(be->pool, a->rows, 4, act_rows, (void *)a);
    return 0;
}

INLINE void act_bwd_row(
    const struct trl_op_act_bwd *a, int64_t r, enum trl_act act, enum trl_dtype t)
{
    int64_t g0 = r * a->ld_gate, u0 = r * a->ld_up, y0 = r * a->ld_dy;
    for (int64_t j = 0; j < a->cols; j += VW) {
        int64_t n = a->cols - j;
        vf slope, gate = v_load_n(t, a->gate, g0 + j, n), dy = v_load_n(t, a->dy, y0 + j, n);
        vf up = a->up ? v_load_n(t, a->up, u0 + j, n) : v_set(1);
        vf value = act_value(act, gate, &slope);
        v_store_n(t, a->d_gate, r * a->ld_d_gate + j, n, dy * up * slope);
        if (a->up)
            v_store_n(t, a->d_up, r * a->ld_d_up + j, n, dy * value);
    }
}

static void act_bwd_rows(void *ctx, int64_t begin, int64_t end, int thread)
{
    (void)thread;
    const struct trl_op_act_bwd *a = ctx;
    for (int64_t r = begin; r < end; r++)
        if (a->act == TRL_ACT_SILU)
            BY_TYPE(a->dtype, act_bwd_row(a, r, TRL_ACT_SILU, T));
        else if (a->act == TRL_ACT_GELU_TANH)
            BY_TYPE(a->dtype, act_bwd_row(a, r, TRL_ACT_GELU_TANH, T));
        else
            act_bwd_row(a, r, a->act, a->dtype);
}

int KERN(act_bwd)(struct trl_backend *be, const struct trl_op_act_bwd *a)
{
    trl_parallel_for(be->pool, a->rows, 4, act_bwd_rows, (void *)a);
    return 0;
}

/* ---- embedding and rotary positions ---- */

static void embed_rows(void *ctx, int64_t begin, int64_t end, int thread)
{
    (void)thread;
    const struct trl_op_embed *a = ctx;
    for (int64_t t = begin; t < end; t++)
        for (int64_t j = 0; j < a->h; j += VW)
            v_store_n(a->out_dtype, a->out, t * a->h + j, a->h - j,
                v_load_n(a->table_dtype, a->table, (int64_t)a->ids[t] * a->h + j, a->h - j) *
                    v_set(a->scale));
}

int KERN(embed)(struct trl_backend *be, const struct trl_op_embed *a)
{
    trl_parallel_for(be->pool, a->n, 16, embed_rows, (void *)a);
    return 0;
}

/* Threads own columns, so that every table row takes its tokens in order. */
static void embed_bwd_columns(void *ctx, int64_t begin, int64_t end, int thread)
{
    (void)thread;
    const struct trl_op_embed_bwd *a = ctx;
    vf scale = v_set(a->scale);
    for (int64_t t = 0; t < a->n; t++)
        for (int64_t j = begin; j < end; j += VW) {
            int64_t n = trl_min64(VW, end - j), at = (int64_t)a->ids[t] * a->h + j;
            vf d = v_load_n(a->out_dtype, a->d_out, t * a->h + j, n);
            v_store_n(a->table_dtype, a->d_table, at, n,
                v_load_n(a->table_dtype, a->d_table, at, n) + scale * d);
        }
}

int KERN(embed_bwd)(struct trl_backend *be, const struct trl_op_embed_bwd *a)
{
    trl_parallel_for(be->pool, a->h, 32, embed_bwd_columns, (void *)a);
    return 0;
}

INLINE void rope_head(
    const struct trl_op_rope *a, int64_t x0, int64_t y0, int64_t row, vf sign, enum trl_dtype t)
{
    int64_t half = a->d / 2;
    for (int64_t j = 0; j < half; j += VW) {
        int64_t n = half - j;
        vf c = v_load_n(TRL_DTYPE_F32, a->cos_table, row + j, n);
        vf s = v_load_n(TRL_DTYPE_F32, a->sin_table, row + j, n) * sign;
        vf x1 = v_load_n(t, a->x, x0 + j, n), x2 = v_load_n(t, a->x, x0 + half + j, n);
        v_store_n(t, a->y, y0 + j, n, x1 * c - x2 * s);
        v_store_n(t, a->y, y0 + half + j, n, x2 * c + x1 * s);
    }
}

static void rope_rows(void *ctx, int64_t begin, int64_t end, int thread)
{
    (void)thread;
    const struct trl_op_rope *a = ctx;
    vf sign = v_set(a->inverse ? -1 : 1);
    for (int64_t t = begin; t < end; t++)
        for (int64_t h = 0; h < a->heads; h++)
            BY_TYPE(a->dtype,
                rope_head(a, t * a->ld_x + h * a->d, t * a->ld_y + h * a->d,
                    a->positions[t] * (a->d / 2), sign, T));
}

int KERN(rope)(struct trl_backend *be, const struct trl_op_rope *a)
{
    trl_parallel_for(be->pool, a->n, 8, rope_rows, (void *)a);
    return 0;
}

/* ---- vectors ---- */

INLINE void axpby_part(
    const struct trl_op_axpby *a, int64_t i, int64_t end, enum trl_dtype tx, enum trl_dtype ty)
{
    vf alpha = v_set(a->alpha), beta = v_set(a->beta);
    for (; i < end; i += VW) {
        int64_t n = end - i;
        vf v = v_load_n(tx, a->x, i, n) * alpha;
        if (a->beta != 0)
            v += beta * v_load_n(ty, a->y, i, n);
        v_store_n(ty, a->y, i, n, v);
    }
}

static void axpby_range(void *ctx, int64_t begin, int64_t end, int thread)
{
    (void)thread;
    const struct trl_op_axpby *a = ctx;
    BY_TYPE(a->x_dtype, axpby_part(a, begin, end, T, a->y_dtype));
}

int KERN(axpby)(struct trl_backend *be, const struct trl_op_axpby *a)
{
    trl_parallel_for(be->pool, a->n, GRAIN, axpby_range, (void *)a);
    return 0;
}

INLINE void add_part(const struct trl_op_add *a, int64_t i, int64_t end, enum trl_dtype ta,
    enum trl_dtype tb, enum trl_dtype ty)
{
    for (; i < end; i += VW) {
        int64_t n = end - i;
        v_store_n(ty, a->y, i, n, v_load_n(ta, a->a, i, n) + v_load_n(tb, a->b, i, n));
    }
}

static void add_range(void *ctx, int64_t begin, int64_t end, int thread)
{
    (void)thread;
    const struct trl_op_add *a = ctx;
    if (a->a_dtype == a->b_dtype && a->a_dtype == a->y_dtype)
        BY_TYPE(a->a_dtype, add_part(a, begin, end, T, T, T));
    else
        add_part(a, begin, end, a->a_dtype, a->b_dtype, a->y_dtype);
}

int KERN(add)(struct trl_backend *be, const struct trl_op_add *a)
{
    trl_parallel_for(be->pool, a->n, GRAIN, add_range, (void *)a);
    return 0;
}

static void colsum_columns(void *ctx, int64_t begin, int64_t end, int thread)
{
    (void)thread;
    const struct trl_op_colsum *a = ctx;
    for (int64_t j = begin; j < end; j += VW) {
        int64_t n = trl_min64(VW, end - j);
        vf total = v_zero();
        for (int64_t r0 = 0; r0 < a->rows; r0 += SUM_ROWS) {
            vf s = v_zero();
            for (int64_t r = r0; r < trl_min64(r0 + SUM_ROWS, a->rows); r++)
                s += v_load_n(a->x_dtype, a->x, r * a->ld_x + j, n);
            total += s;
        }
        v_store_n(a->out_dtype, a->out, j, n, v_load_n(a->out_dtype, a->out, j, n) + total);
    }
}

int KERN(colsum)(struct trl_backend *be, const struct trl_op_colsum *a)
{
    trl_parallel_for(be->pool, a->cols, 64, colsum_columns, (void *)a);
    return 0;
}

static void move_rows(void *ctx, int64_t begin, int64_t end, int thread)
{
    (void)thread;
    const struct trl_op_rows *a = ctx;
    size_t row = (size_t)a->cols * trl_dtype_size(a->dtype);
    for (int64_t i = begin; i < end && row; i++) {
        size_t from = (size_t)(a->scatter ? i : a->index[i]),
               to = (size_t)(a->scatter ? a->index[i] : i);
        memcpy((char *)a->dst + to * row, (const char *)a->src + from * row, row);
    }
}

int KERN(rows)(struct trl_backend *be, const struct trl_op_rows *a)
{
    trl_parallel_for(be->pool, a->rows, 16, move_rows, (void *)a);
    return 0;
}

struct sumsq {
    const struct trl_op_sumsq *a;
    double *part; /* one a block, added in order */
};

INLINE double sumsq_block(const void *x, int64_t i, int64_t end, enum trl_dtype t)
{
    vf s[4] = {v_zero(), v_zero(), v_zero(), v_zero()};
    for (; i + 4 * VW <= end; i += 4 * VW)
        for (int k = 0; k < 4; k++) {
            vf v = v_load(t, x, i + k * VW);
            s[k] = v_fma(v, v, s[k]);
        }
    for (; i < end; i += VW) {
        vf v = v_load_n(t, x, i, end - i);
        s[0] = v_fma(v, v, s[0]);
    }
    return (double)v_sum((s[0] + s[1]) + (s[2] + s[3]));
}

static void sumsq_blocks(void *ctx, int64_t begin, int64_t end, int thread)
{
    (void)thread;
    const struct sumsq *j = ctx;
    for (int64_t b = begin; b < end; b++)
        BY_TYPE(j->a->dtype,
            j->part[b] =
                sumsq_block(j->a->x, b * SUM_BLOCK, trl_min64((b + 1) * SUM_BLOCK, j->a->n), T));
}

int KERN(sumsq)(struct trl_backend *be, const struct trl_op_sumsq *a)
{
    int64_t blocks = (a->n + SUM_BLOCK - 1) / SUM_BLOCK;
    struct sumsq j = {.a = a, .part = trl_cpu_work(be, (size_t)blocks * sizeof(double))};
    if (!j.part)
        return TRL_E_NOMEM;
    trl_parallel_for(be->pool, blocks, 1, sumsq_blocks, &j);
    double sum = 0;
    for (int64_t b = 0; b < blocks; b++)
        sum += j.part[b];
    *a->ret = sum;
    return 0;
}
