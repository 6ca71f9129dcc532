/* SPDX-License-Identifier: Apache-2.0 */
#include "comm/reduce.h"

#include <stdint.h>
#include <string.h>

/* Accumulated at a time: stays in the first-level cache. */
enum { BLOCK = 1024 };

enum trl__wire trl__wire_of(enum trl_dtype t)
{
    return t == TRL_DTYPE_BF16 ? TRL__WIRE_BF16
        : t == TRL_DTYPE_F16   ? TRL__WIRE_F16
                               : TRL__WIRE_F32;
}

static void load_f32(float *restrict dst, enum trl__wire from, const void *src, size_t n)
{
    const uint16_t *h = src;
    switch (from) {
    case TRL__WIRE_BF16:
        for (size_t i = 0; i < n; i++)
            dst[i] = trl_bf16_to_f32(h[i]);
        break;
    case TRL__WIRE_F16:
        for (size_t i = 0; i < n; i++)
            dst[i] = trl_f16_to_f32(h[i]);
        break;
    default:
        memcpy(dst, src, n * sizeof(float));
    }
}

static void store_f32(enum trl__wire to, void *dst, const float *restrict src, size_t n)
{
    uint16_t *h = dst;
    switch (to) {
    case TRL__WIRE_BF16:
        for (size_t i = 0; i < n; i++)
            h[i] = trl_f32_to_bf16(src[i]);
        break;
    case TRL__WIRE_F16:
        for (size_t i = 0; i < n; i++)
            h[i] = trl_f32_to_f16(src[i]);
        break;
    default:
        memcpy(dst, src, n * sizeof(float));
    }
}

static void accumulate_f32(
    float *restrict acc, const float *restrict x, size_t n, enum trl_comm_op op)
{
    if (op == TRL_COMM_SUM)
        for (size_t i = 0; i < n; i++)
            acc[i] += x[i];
    else if (op == TRL_COMM_MAX)
        for (size_t i = 0; i < n; i++)
            acc[i] = x[i] > acc[i] || x[i] != x[i] ? x[i] : acc[i];
    else
        for (size_t i = 0; i < n; i++)
            acc[i] = x[i] < acc[i] || x[i] != x[i] ? x[i] : acc[i];
}

static void accumulate_f64(
    double *restrict acc, const double *restrict x, size_t n, enum trl_comm_op op)
{
    if (op == TRL_COMM_SUM)
        for (size_t i = 0; i < n; i++)
            acc[i] += x[i];
    else if (op == TRL_COMM_MAX)
        for (size_t i = 0; i < n; i++)
            acc[i] = x[i] > acc[i] || x[i] != x[i] ? x[i] : acc[i];
    else
        for (size_t i = 0; i < n; i++)
            acc[i] = x[i] < acc[i] || x[i] != x[i] ? x[i] : acc[i];
}

static void reduce_f64(
    double *dst, const void *const *src, int n_src, size_t n, enum trl_comm_op op)
{
    double acc[BLOCK];
    for (size_t at = 0; at < n; at += BLOCK) {
        size_t len = n - at < BLOCK ? n - at : BLOCK;
        memcpy(acc, (const double *)src[0] + at, len * sizeof(double));
        for (int s = 1; s < n_src; s++)
            accumulate_f64(acc, (const double *)src[s] + at, len, op);
        memcpy(dst + at, acc, len * sizeof(double));
    }
}

/* The case that moves gradients of one node: no detour over a block. a or b may be dst. */
static void add_two(float *dst, const float *a, const float *b, size_t n, float scale)
{
    if (scale == 1.0f)
        for (size_t i = 0; i < n; i++)
            dst[i] = a[i] + b[i];
    else
        for (size_t i = 0; i < n; i++)
            dst[i] = (a[i] + b[i]) * scale;
}

void trl__reduce(enum trl__wire to, void *dst, enum trl__wire from, const void *const *src,
    int n_src, size_t n, enum trl_comm_op op, float scale)
{
    if (from == TRL__WIRE_F64) {
        reduce_f64(dst, src, n_src, n, op);
        return;
    }
    if (n_src == 2 && op == TRL_COMM_SUM && from == TRL__WIRE_F32 && to == TRL__WIRE_F32) {
        add_two(dst, src[0], src[1], n, scale);
        return;
    }
    float acc[BLOCK], x[BLOCK];
    size_t from_size = trl__wire_size(from), to_size = trl__wire_size(to);
    for (size_t at = 0; at < n; at += BLOCK) {
        size_t len = n - at < BLOCK ? n - at : BLOCK;
        load_f32(acc, from, (const char *)src[0] + at * from_size, len);
        for (int s = 1; s < n_src; s++) {
            const void *p = (const char *)src[s] + at * from_size;
            if (from != TRL__WIRE_F32) {
                load_f32(x, from, p, len);
                p = x;
            }
            accumulate_f32(acc, p, len, op);
        }
        if (scale != 1.0f)
            for (size_t i = 0; i < len; i++)
                acc[i] *= scale;
        store_f32(to, (char *)dst + at * to_size, acc, len);
    }
}
