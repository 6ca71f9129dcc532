/* SPDX-License-Identifier: Apache-2.0 */
#include "tensor/dtype.h"

#include "base/err.h"

static const struct {
    const char *st, *torch, *brief;
} names[TRL_DTYPE_MAX_] = {
    [TRL_DTYPE_F32] = {"F32", "float32", "fp32"},
    [TRL_DTYPE_BF16] = {"BF16", "bfloat16", "bf16"},
    [TRL_DTYPE_F16] = {"F16", "float16", "fp16"},
};

const char *trl_dtype_name(enum trl_dtype t)
{
    return names[t].torch;
}

const char *trl_dtype_st_name(enum trl_dtype t)
{
    return names[t].st;
}

int trl_dtype_find(const char *name, enum trl_dtype *ret)
{
    for (int t = 0; t < TRL_DTYPE_MAX_; t++) {
        const char *p = strncmp(name, "torch.", 6) == 0 ? name + 6 : name;
        if (!strcmp(p, names[t].st) || !strcmp(p, names[t].torch) || !strcmp(p, names[t].brief)) {
            *ret = (enum trl_dtype)t;
            return 0;
        }
    }
    return -1;
}

float trl_f16_to_f32(uint16_t h)
{
    uint32_t sign = (uint32_t)(h & 0x8000) << 16, exp = h >> 10 & 0x1f, man = h & 0x3ff, u;
    if (exp == 0x1f) {
        u = sign | 0x7f800000u | man << 13;
    } else if (exp) {
        u = sign | (exp + 112) << 23 | man << 13;
    } else if (man) {
        int shift = __builtin_clz(man) - 21; /* bring the leading one to bit 10 */
        u = sign | (uint32_t)(113 - shift) << 23 | (man << shift & 0x3ff) << 13;
    } else {
        u = sign;
    }
    float f;
    memcpy(&f, &u, 4);
    return f;
}

uint16_t trl_f32_to_f16(float f)
{
    uint32_t u;
    memcpy(&u, &f, 4);
    uint16_t sign = (uint16_t)(u >> 16 & 0x8000);
    u &= 0x7fffffffu;
    if (u > 0x7f800000u)
        return (uint16_t)(sign | 0x7e00);
    if (u >= 0x477ff000u) /* rounds to 65536 or more */
        return (uint16_t)(sign | 0x7c00);
    if (u < 0x38800000u) { /* below 2^-14: subnormal; add a magic number so that the FPU rounds */
        float v;
        memcpy(&v, &u, 4);
        v += 0.5f;
        uint32_t w;
        memcpy(&w, &v, 4);
        return (uint16_t)(sign | (w - 0x3f000000u));
    }
    u += 0xfffu + (u >> 13 & 1);
    return (uint16_t)(sign | (u - 0x38000000u) >> 13);
}

float trl_dtype_load(enum trl_dtype t, const void *p, size_t i)
{
    if (t == TRL_DTYPE_F32) {
        float f;
        memcpy(&f, (const char *)p + 4 * i, 4);
        return f;
    }
    uint16_t h;
    memcpy(&h, (const char *)p + 2 * i, 2);
    return t == TRL_DTYPE_BF16 ? trl_bf16_to_f32(h) : trl_f16_to_f32(h);
}

void trl_dtype_store(enum trl_dtype t, void *p, size_t i, float v)
{
    if (t == TRL_DTYPE_F32) {
        memcpy((char *)p + 4 * i, &v, 4);
        return;
    }
    uint16_t h = t == TRL_DTYPE_BF16 ? trl_f32_to_bf16(v) : trl_f32_to_f16(v);
    memcpy((char *)p + 2 * i, &h, 2);
}

void trl_dtype_convert(enum trl_dtype to, void *dst, enum trl_dtype from, const void *src, size_t n)
{
    if (to == from) {
        memcpy(dst, src, n * trl_dtype_size(to));
        return;
    }
    for (size_t i = 0; i < n; i++)
        trl_dtype_store(to, dst, i, trl_dtype_load(from, src, i));
}
