/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TRL_TENSOR_DTYPE_H
#define TRL_TENSOR_DTYPE_H
/* Element types and conversions. Rounding is to nearest even; NaN stays NaN. */
#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* X(name, bytes, safetensors name, torch name) */
#define TRL_DTYPES(X)                                                                              \
    X(F32, 4, "F32", "float32")                                                                    \
    X(BF16, 2, "BF16", "bfloat16")                                                                 \
    X(F16, 2, "F16", "float16")

enum trl_dtype {
#define X(name, bytes, st, torch) TRL_DTYPE_##name,
    TRL_DTYPES(X)
#undef X
    TRL_DTYPE_MAX_
};

static inline size_t trl_dtype_size(enum trl_dtype t)
{
    return t == TRL_DTYPE_F32 ? 4 : 2;
}
const char *trl_dtype_name(enum trl_dtype t);                 /* torch's: "float32" */
const char *trl_dtype_st_name(enum trl_dtype t);              /* safetensors': "F32" */
int trl_dtype_find(const char *name, enum trl_dtype *ret);    /* either spelling, also fp32/bf16/...; 0 or -1 */

static inline float trl_bf16_to_f32(uint16_t h)
{
    uint32_t u = (uint32_t)h << 16;
    float f;
    memcpy(&f, &u, 4);
    return f;
}
static inline uint16_t trl_f32_to_bf16(float f)
{
    uint32_t u;
    memcpy(&u, &f, 4);
    if ((u & 0x7fffffffu) > 0x7f800000u)
        return (uint16_t)(u >> 16 | 0x40);
    return (uint16_t)((u + 0x7fffu + (u >> 16 & 1)) >> 16);
}
float trl_f16_to_f32(uint16_t h);
uint16_t trl_f32_to_f16(float f);

/* Scalar access by type (reference code, tests, tools). i counts elements. */
float trl_dtype_load(enum trl_dtype t, const void *p, size_t i);
void trl_dtype_store(enum trl_dtype t, void *p, size_t i, float v);
void trl_dtype_convert(enum trl_dtype to, void *dst, enum trl_dtype from, const void *src, size_t n);

#endif
