/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Optimiser steps as torch and transformers compute them on a CPU: in float32, in torch's order of
 * operations, rounding to the stored type where theirs does. Scalars are derived in double and used
 * as float.
 */
#include <math.h>

#include "backend/ref/ref.h"

static float get(enum trl_dtype t, const void *p, int64_t i)
{
    return trl_dtype_load(t, p, (size_t)i);
}

/* g * scale as clipping stores it */
static float scaled_grad(enum trl_dtype t, const void *g, int64_t i, double scale)
{
    return scale == 1 ? get(t, g, i) : ref_round(t, get(t, g, i) * (float)scale);
}

static void put_param(
    enum trl_dtype t, void *p, enum trl_dtype copy_t, void *copy, int64_t i, float v)
{
    trl_dtype_store(t, p, (size_t)i, v);
    if (copy)
        trl_dtype_store(copy_t, copy, (size_t)i, get(t, p, i));
}

/* torch.lerp: from the nearer end */
static float lerp(float from, float to, float w)
{
    return w < 0.5f ? from + w * (to - from) : to - (to - from) * (1 - w);
}

int trl_ref_adamw(struct trl_backend *be, const struct trl_op_adamw *a)
{
    (void)be;
    /* type that intermediate results are rounded to */
    enum trl_dtype tp = a->fused ? TRL_DTYPE_F32 : a->p_dtype,
                   ts = a->fused ? TRL_DTYPE_F32 : a->state_dtype;
    float decay = (float)(1 - a->lr * a->weight_decay), w1 = (float)(1 - a->beta1),
          b2 = (float)a->beta2;
    float w2 = (float)(1 - a->beta2), root = (float)sqrt(a->bias2), eps = (float)a->eps;
    float step = (float)(-a->lr / a->bias1);
    for (int64_t i = 0; i < a->n; i++) {
        float g = scaled_grad(a->g_dtype, a->g, i, a->grad_scale);
        float p = get(a->p_dtype, a->p, i), m = get(a->state_dtype, a->m, i),
              v = get(a->state_dtype, a->v, i);
        if (a->weight_decay != 0)
            p = ref_round(tp, p * decay);
        m = ref_round(ts, lerp(m, g, w1));
        v = ref_round(ts, v * b2);
        v = ref_round(ts, v + w2 * g * g);
        float denom = ref_round(ts, sqrtf(v));
        denom = ref_round(ts, denom / root);
        denom = ref_round(ts, denom + eps);
        put_param(a->p_dtype, a->p, a->copy_dtype, a->p_copy, i, p + step * m / denom);
        trl_dtype_store(a->state_dtype, a->m, (size_t)i, m);
        trl_dtype_store(a->state_dtype, a->v, (size_t)i, v);
    }
    return 0;
}

/* torch's add(alpha) rounds alpha to the tensor's type; its multiplication by a number does not. */
int trl_ref_sgd(struct trl_backend *be, const struct trl_op_sgd *a)
{
    (void)be;
    float decay = ref_round(a->g_dtype, (float)a->weight_decay), mu = (float)a->momentum;
    float rest = ref_round(a->state_dtype, (float)(1 - a->dampening));
    float look = ref_round(a->g_dtype, mu), step = ref_round(a->p_dtype, (float)-a->lr);
    for (int64_t i = 0; i < a->n; i++) {
        float g = scaled_grad(a->g_dtype, a->g, i, a->grad_scale), p = get(a->p_dtype, a->p, i);
        if (a->weight_decay != 0)
            g = ref_round(a->g_dtype, g + decay * p);
        if (a->buf) {
            float buf = g;
            if (!a->first) {
                buf = ref_round(a->state_dtype, get(a->state_dtype, a->buf, i) * mu);
                buf = ref_round(a->state_dtype, buf + rest * g);
            }
            trl_dtype_store(a->state_dtype, a->buf, (size_t)i, buf);
            g = a->nesterov ? ref_round(a->g_dtype, g + look * buf) : buf;
        }
        put_param(a->p_dtype, a->p, a->copy_dtype, a->p_copy, i, p + step * g);
    }
    return 0;
}

int trl_ref_lion(struct trl_backend *be, const struct trl_op_lion *a)
{
    (void)be;
    float decay = (float)(1 - a->lr * a->weight_decay), b1 = (float)a->beta1, b2 = (float)a->beta2;
    float w1 = (float)(1 - a->beta1), w2 = (float)(1 - a->beta2);
    for (int64_t i = 0; i < a->n; i++) {
        float g = scaled_grad(a->g_dtype, a->g, i, a->grad_scale);
        float p = get(a->p_dtype, a->p, i), m = get(a->state_dtype, a->m, i);
        if (a->weight_decay != 0)
            p = ref_round(a->p_dtype, p * decay);
        float u = ref_round(a->state_dtype, m * b1);
        u = ref_round(a->state_dtype, u + w1 * g);
        float sign = u > 0 ? 1.0f : u < 0 ? -1.0f : u; /* 0 and NaN stay */
        put_param(a->p_dtype, a->p, a->copy_dtype, a->p_copy, i, p + (float)-a->lr * sign);
        m = ref_round(a->state_dtype, m * b2);
        trl_dtype_store(a->state_dtype, a->m, (size_t)i, m + w2 * g);
    }
    return 0;
}

/* R = EMA of row means, C = EMA of column means of g^2 + eps:  update = g / sqrt(R/mean(R)) /
 * sqrt(C) */
static void factored_update(const struct trl_op_adafactor *a, int64_t b, double *sum_sq)
{
    float b2 = (float)a->beta2t, w2 = (float)(1 - a->beta2t), eps = (float)a->eps1;
    int64_t base = b * a->rows * a->cols;
    float *row = a->row_sq + b * a->rows, *col = a->col_sq + b * a->cols;
    double row_mean = 0;
    for (int64_t r = 0; r < a->rows; r++) {
        double sum = 0;
        for (int64_t c = 0; c < a->cols; c++) {
            float g = scaled_grad(a->g_dtype, a->g, base + r * a->cols + c, a->grad_scale);
            sum += g * g + eps;
        }
        row[r] = row[r] * b2 + w2 * (float)(sum / (double)a->cols);
        row_mean += row[r];
    }
    for (int64_t c = 0; c < a->cols; c++) {
        double sum = 0;
        for (int64_t r = 0; r < a->rows; r++) {
            float g = scaled_grad(a->g_dtype, a->g, base + r * a->cols + c, a->grad_scale);
            sum += g * g + eps;
        }
        col[c] = col[c] * b2 + w2 * (float)(sum / (double)a->rows);
    }
    row_mean /= (double)a->rows;
    for (int64_t r = 0; r < a->rows; r++)
        for (int64_t c = 0; c < a->cols; c++) {
            float g = scaled_grad(a->g_dtype, a->g, base + r * a->cols + c, a->grad_scale);
            float u = 1 / sqrtf(row[r] / (float)row_mean) * (1 / sqrtf(col[c])) * g;
            a->scratch[base + r * a->cols + c] = u;
            *sum_sq += (double)u * u;
        }
}

int trl_ref_adafactor(struct trl_backend *be, const struct trl_op_adafactor *a)
{
    (void)be;
    int64_t n = a->batch * a->rows * a->cols;
    double sum_sq = 0;
    if (a->row_sq) {
        for (int64_t b = 0; b < a->batch; b++)
            factored_update(a, b, &sum_sq);
    } else {
        for (int64_t i = 0; i < n; i++) {
            float g = scaled_grad(a->g_dtype, a->g, i, a->grad_scale);
            a->sq[i] =
                a->sq[i] * (float)a->beta2t + (float)(1 - a->beta2t) * (g * g + (float)a->eps1);
            float u = 1 / sqrtf(a->sq[i]) * g;
            a->scratch[i] = u;
            sum_sq += (double)u * u;
        }
    }
    float over = (float)(sqrt(sum_sq) / sqrt((double)n)) / (float)a->clip_threshold;
    float clip = over > 1 ? over : 1;
    for (int64_t i = 0; i < n; i++) {
        float u = a->scratch[i] / clip * (float)a->lr, p = get(a->p_dtype, a->p, i);
        if (a->m) {
            a->m[i] = a->m[i] * (float)a->beta1 + (float)(1 - a->beta1) * u;
            u = a->m[i];
        }
        if (a->weight_decay != 0)
            p += (float)(-a->weight_decay * a->lr) * p;
        put_param(a->p_dtype, a->p, a->copy_dtype, a->p_copy, i, p - u);
    }
    return 0;
}
