/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <string.h>

#include "backend/ref/ref.h"
#include "base/alloc.h"

int trl_ref_embed(struct trl_backend *be, const struct trl_op_embed *a)
{
    (void)be;
    for (int64_t t = 0; t < a->n; t++)
        for (int64_t j = 0; j < a->h; j++)
            ref_put(a->out_dtype, a->out, t * a->h + j,
                a->scale * ref_get(a->table_dtype, a->table, (int64_t)a->ids[t] * a->h + j));
    return 0;
}

int trl_ref_embed_bwd(struct trl_backend *be, const struct trl_op_embed_bwd *a)
{
    (void)be;
    for (int64_t t = 0; t < a->n; t++)
        for (int64_t j = 0; j < a->h; j++) {
            int64_t at = (int64_t)a->ids[t] * a->h + j;
            ref_put(a->table_dtype, a->d_table, at,
                ref_get(a->table_dtype, a->d_table, at) +
                    a->scale * ref_get(a->out_dtype, a->d_out, t * a->h + j));
        }
    return 0;
}

/* (x1, x2) -> (x1 cos - x2 sin, x2 cos + x1 sin); the transpose has -sin */
int trl_ref_rope(struct trl_backend *be, const struct trl_op_rope *a)
{
    (void)be;
    int64_t half = a->d / 2;
    for (int64_t t = 0; t < a->n; t++)
        for (int64_t h = 0; h < a->heads; h++)
            for (int64_t j = 0; j < half; j++) {
                double c = a->cos_table[a->positions[t] * half + j],
                       s = a->sin_table[a->positions[t] * half + j];
                if (a->inverse)
                    s = -s;
                double x1 = ref_get(a->dtype, a->x, t * a->ld_x + h * a->d + j);
                double x2 = ref_get(a->dtype, a->x, t * a->ld_x + h * a->d + half + j);
                ref_put(a->dtype, a->y, t * a->ld_y + h * a->d + j, x1 * c - x2 * s);
                ref_put(a->dtype, a->y, t * a->ld_y + h * a->d + half + j, x2 * c + x1 * s);
            }
    return 0;
}

double trl_ref_act_value(enum trl_act act, double x)
{
    switch (act) {
    case TRL_ACT_SILU:
        return x / (1 + exp(-x));
    case TRL_ACT_GELU_TANH:
        return 0.5 * x * (1 + tanh(sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
    case TRL_ACT_GELU:
        return 0.5 * x * (1 + erf(x / sqrt(2)));
    case TRL_ACT_RELU:
        return x > 0 ? x : 0;
    case TRL_ACT_MAX_:
        break;
    }
    trl_bug("activation %d", (int)act);
}

double trl_ref_act_slope(enum trl_act act, double x)
{
    switch (act) {
    case TRL_ACT_SILU: {
        double s = 1 / (1 + exp(-x));
        return s * (1 + x * (1 - s));
    }
    case TRL_ACT_GELU_TANH: {
        double c = sqrt(2 / M_PI), t = tanh(c * (x + 0.044715 * x * x * x));
        return 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * c * (1 + 3 * 0.044715 * x * x);
    }
    case TRL_ACT_GELU:
        return 0.5 * (1 + erf(x / sqrt(2))) + x * exp(-0.5 * x * x) / sqrt(2 * M_PI);
    case TRL_ACT_RELU:
        return x > 0 ? 1 : 0;
    case TRL_ACT_MAX_:
        break;
    }
    trl_bug("activation %d", (int)act);
}

int trl_ref_act(struct trl_backend *be, const struct trl_op_act *a)
{
    (void)be;
    for (int64_t r = 0; r < a->rows; r++)
        for (int64_t j = 0; j < a->cols; j++) {
            double y = trl_ref_act_value(a->act, ref_get(a->dtype, a->gate, r * a->ld_gate + j));
            if (a->up)
                y *= ref_get(a->dtype, a->up, r * a->ld_up + j);
            ref_put(a->dtype, a->y, r * a->ld_y + j, y);
        }
    return 0;
}

int trl_ref_act_bwd(struct trl_backend *be, const struct trl_op_act_bwd *a)
{
    (void)be;
    for (int64_t r = 0; r < a->rows; r++)
        for (int64_t j = 0; j < a->cols; j++) {
            double gate = ref_get(a->dtype, a->gate, r * a->ld_gate + j),
                   dy = ref_get(a->dtype, a->dy, r * a->ld_dy + j);
            double up = a->up ? ref_get(a->dtype, a->up, r * a->ld_up + j) : 1;
            ref_put(a->dtype, a->d_gate, r * a->ld_d_gate + j,
                dy * up * trl_ref_act_slope(a->act, gate));
            if (a->up)
                ref_put(
                    a->dtype, a->d_up, r * a->ld_d_up + j, dy * trl_ref_act_value(a->act, gate));
        }
    return 0;
}

int trl_ref_axpby(struct trl_backend *be, const struct trl_op_axpby *a)
{
    (void)be;
    for (int64_t i = 0; i < a->n; i++) {
        double v = a->alpha * ref_get(a->x_dtype, a->x, i);
        if (a->beta != 0)
            v += a->beta * ref_get(a->y_dtype, a->y, i);
        ref_put(a->y_dtype, a->y, i, v);
    }
    return 0;
}

int trl_ref_add(struct trl_backend *be, const struct trl_op_add *a)
{
    (void)be;
    for (int64_t i = 0; i < a->n; i++)
        ref_put(a->y_dtype, a->y, i, ref_get(a->a_dtype, a->a, i) + ref_get(a->b_dtype, a->b, i));
    return 0;
}

int trl_ref_colsum(struct trl_backend *be, const struct trl_op_colsum *a)
{
    (void)be;
    for (int64_t j = 0; j < a->cols; j++) {
        double sum = 0;
        for (int64_t r = 0; r < a->rows; r++)
            sum += ref_get(a->x_dtype, a->x, r * a->ld_x + j);
        ref_put(a->out_dtype, a->out, j, ref_get(a->out_dtype, a->out, j) + sum);
    }
    return 0;
}

int trl_ref_rows(struct trl_backend *be, const struct trl_op_rows *a)
{
    (void)be;
    size_t row = (size_t)a->cols * trl_dtype_size(a->dtype);
    for (int64_t i = 0; i < a->rows; i++) {
        size_t from = (size_t)(a->scatter ? i : a->index[i]),
               to = (size_t)(a->scatter ? a->index[i] : i);
        if (row)
            memcpy((char *)a->dst + to * row, (const char *)a->src + from * row, row);
    }
    return 0;
}

int trl_ref_sumsq(struct trl_backend *be, const struct trl_op_sumsq *a)
{
    (void)be;
    double sum = 0;
    for (int64_t i = 0; i < a->n; i++) {
        double x = ref_get(a->dtype, a->x, i);
        sum += x * x;
    }
    *a->ret = sum;
    return 0;
}
