/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Block formats. Notation: d, m are f16 scale and minimum. In the 32-element types byte j (0..15)
 * of the nibbles holds element j in its low half and element j + 16 in its high half. Q4_0 d(q-8) |
 * Q4_1 dq+m | Q5_0 d(q-16) | Q5_1 dq+m (bit j of a u32 is bit 4 of element j) | Q8_0 dq, q signed
 * K types have 256 elements and scales of their own for groups of 32 (Q4_K, Q5_K: x = d s q - dmin
 * t, s and t six bits packed into 12 bytes) or 16 (Q6_K: x = d s (q - 32), s signed).
 */
#include "model/gguf-dequant.h"

#include <string.h>

#include "base/gguf.h"
#include "tensor/dtype.h"

static float f16_at(const uint8_t *p)
{
    return trl_f16_to_f32((uint16_t)(p[0] | p[1] << 8));
}

static uint32_t u32_at(const uint8_t *p)
{
    return (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

static void block_f32(const uint8_t *p, float *y)
{
    uint32_t u = u32_at(p);
    memcpy(y, &u, 4);
}
static void block_f16(const uint8_t *p, float *y)
{
    *y = f16_at(p);
}
static void block_bf16(const uint8_t *p, float *y)
{
    *y = trl_bf16_to_f32((uint16_t)(p[0] | p[1] << 8));
}

/* 32 elements: y = d * (q + bias) + m, q of four bits and a fifth from `high` */
static void nibbles(const uint8_t *q, uint32_t high, float d, int bias, float m, float *y)
{
    for (int j = 0; j < 16; j++) {
        int lo = (q[j] & 15) | (int)(high >> j & 1) << 4,
            hi = q[j] >> 4 | (int)(high >> (j + 16) & 1) << 4;
        y[j] = d * (float)(lo + bias) + m;
        y[j + 16] = d * (float)(hi + bias) + m;
    }
}

static void block_q4_0(const uint8_t *p, float *y)
{
    nibbles(p + 2, 0, f16_at(p), -8, 0, y);
}
static void block_q4_1(const uint8_t *p, float *y)
{
    nibbles(p + 4, 0, f16_at(p), 0, f16_at(p + 2), y);
}
static void block_q5_0(const uint8_t *p, float *y)
{
    nibbles(p + 6, u32_at(p + 2), f16_at(p), -16, 0, y);
}
static void block_q5_1(const uint8_t *p, float *y)
{
    nibbles(p + 8, u32_at(p + 4), f16_at(p), 0, f16_at(p + 2), y);
}
static void block_q8_0(const uint8_t *p, float *y)
{
    float d = f16_at(p);
    for (int j = 0; j < 32; j++)
        y[j] = d * (float)(int8_t)p[2 + j];
}

/* Scale s and minimum t of group k (0..7): the first four have six bits of bytes k and k+4; of the
 * others the low four bits are in byte k+4 and the upper two in the top of bytes k-4 and k. */
static void k_scales(const uint8_t *p, int k, float *s, float *t)
{
    if (k < 4) {
        *s = (float)(p[k] & 63);
        *t = (float)(p[k + 4] & 63);
    } else {
        *s = (float)((p[k + 4] & 15) | p[k - 4] >> 6 << 4);
        *t = (float)(p[k + 4] >> 4 | p[k] >> 6 << 4);
    }
}

/* Pairs of groups share 32 bytes: low nibbles, then high nibbles. high: NULL, or bit k of byte l
 * belongs to group k. */
static void block_k(const uint8_t *p, const uint8_t *high, const uint8_t *q, float *y)
{
    float d = f16_at(p), dmin = f16_at(p + 2);
    for (int k = 0; k < 8; k++) {
        float s, t;
        k_scales(p + 4, k, &s, &t);
        for (int l = 0; l < 32; l++) {
            int v = q[k / 2 * 32 + l] >> (k % 2 * 4) & 15;
            if (high)
                v |= (high[l] >> k & 1) << 4;
            y[k * 32 + l] = d * s * (float)v - dmin * t;
        }
    }
}

static void block_q4_k(const uint8_t *p, float *y)
{
    block_k(p, NULL, p + 16, y);
}
static void block_q5_k(const uint8_t *p, float *y)
{
    block_k(p, p + 16, p + 48, y);
}

/* Halves of 128 elements with 64 bytes of low nibbles and 32 of upper bit pairs each */
static void block_q6_k(const uint8_t *p, float *y)
{
    float d = f16_at(p + 208);
    for (int half = 0; half < 2; half++) {
        const uint8_t *ql = p + 64 * half, *qh = p + 128 + 32 * half;
        const int8_t *sc = (const int8_t *)p + 192 + 8 * half;
        for (int part = 0; part < 4; part++)
            for (int l = 0; l < 32; l++) {
                int v =
                    (ql[l + part % 2 * 32] >> (part / 2 * 4) & 15) | (qh[l] >> (2 * part) & 3) << 4;
                y[128 * half + 32 * part + l] = d * (float)sc[2 * part + l / 16] * (float)(v - 32);
            }
    }
}

static const struct {
    uint32_t type;
    int elems, bytes;
    void (*block)(const uint8_t *p, float *y);
} decoders[] = {
    {TRL_GGML_F32, 1, 4, block_f32},
    {TRL_GGML_F16, 1, 2, block_f16},
    {TRL_GGML_BF16, 1, 2, block_bf16},
    {TRL_GGML_Q8_0, 32, 34, block_q8_0},
    {TRL_GGML_Q4_0, 32, 18, block_q4_0},
    {TRL_GGML_Q4_1, 32, 20, block_q4_1},
    {TRL_GGML_Q5_0, 32, 22, block_q5_0},
    {TRL_GGML_Q5_1, 32, 24, block_q5_1},
    {TRL_GGML_Q4_K, 256, 144, block_q4_k},
    {TRL_GGML_Q5_K, 256, 176, block_q5_k},
    {TRL_GGML_Q6_K, 256, 210, block_q6_k},
};
enum { N_DECODERS = sizeof(decoders) / sizeof(decoders[0]) };

static int decoder_of(uint32_t type)
{
    for (int i = 0; i < N_DECODERS; i++)
        if (decoders[i].type == type)
            return i;
    return -1;
}

bool trl__gguf_can_dequant(uint32_t type)
{
    return decoder_of(type) >= 0;
}

const char *trl__gguf_dequant_types(void)
{
    return "F32, F16, BF16, Q8_0, Q4_0, Q4_1, Q5_0, Q5_1, Q4_K, Q5_K, Q6_K";
}

void trl__gguf_dequant(uint32_t type, const uint8_t *src, int64_t n, float *dst)
{
    int k = decoder_of(type);
    for (int64_t i = 0; k >= 0 && i < n; i += decoders[k].elems, src += decoders[k].bytes)
        decoders[k].block(src, dst + i);
}
