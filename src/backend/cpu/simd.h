/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TRL_BACKEND_CPU_SIMD_H
#define TRL_BACKEND_CPU_SIMD_H
/*
 * One vector type of VW floats for kernel sources that are compiled once per instruction set;
 * arithmetic uses the compilers' vector operators, this file adds what they lack. TRL_KERN_LEVEL: 0
 * plain (4 lanes on any machine), 1 AVX2, 2 AVX-512. TRL_KERN: the name's prefix, so that KERN(add)
 * is trl_avx512_add. min/max return the second operand when one is NaN, as the instructions do;
 * constants go first.
 */
#include <math.h>
#include <stdint.h>
#include <string.h>

#include "tensor/dtype.h"

#define KERN__(isa, name) trl_##isa##_##name
#define KERN_(isa, name) KERN__(isa, name)
#define KERN(name) KERN_(TRL_KERN, name)
#define INLINE static inline __attribute__((always_inline, unused))

#if TRL_KERN_LEVEL == 2
#include <immintrin.h>
enum { VW = 16 };
typedef __m512 vf;
#elif TRL_KERN_LEVEL == 1
#include <immintrin.h>
enum { VW = 8 };
typedef __m256 vf;
#else
enum { VW = 4 };
typedef float vf __attribute__((vector_size(16)));
#endif
typedef int32_t vi __attribute__((vector_size(4 * VW)));

INLINE vf v_set(float x)
{
#if TRL_KERN_LEVEL == 2
    return _mm512_set1_ps(x);
#elif TRL_KERN_LEVEL == 1
    return _mm256_set1_ps(x);
#else
    return (vf){x, x, x, x};
#endif
}
INLINE vf v_zero(void)
{
    return v_set(0);
}
INLINE vf v_loadf(const float *p)
{
    vf v;
    memcpy(&v, p, sizeof(v));
    return v;
}
INLINE void v_storef(float *p, vf v)
{
    memcpy(p, &v, sizeof(v));
}
/* a*b + c; fused where the machine can */
INLINE vf v_fma(vf a, vf b, vf c)
{
#if TRL_KERN_LEVEL == 2
    return _mm512_fmadd_ps(a, b, c);
#elif TRL_KERN_LEVEL == 1
    return _mm256_fmadd_ps(a, b, c);
#else
    return a * b + c;
#endif
}
/* a > b ? x : y */
INLINE vf v_if_gt(vf a, vf b, vf x, vf y)
{
#if TRL_KERN_LEVEL == 2
    return _mm512_mask_blend_ps(_mm512_cmp_ps_mask(a, b, _CMP_GT_OQ), y, x);
#elif TRL_KERN_LEVEL == 1
    return _mm256_blendv_ps(y, x, _mm256_cmp_ps(a, b, _CMP_GT_OQ));
#else
    vi m = (vi)(a > b);
    return (vf)((m & (vi)x) | (~m & (vi)y));
#endif
}
INLINE vf v_max(vf a, vf b)
{
#if TRL_KERN_LEVEL == 2
    return _mm512_max_ps(a, b);
#elif TRL_KERN_LEVEL == 1
    return _mm256_max_ps(a, b);
#else
    return v_if_gt(a, b, a, b);
#endif
}
INLINE vf v_min(vf a, vf b)
{
#if TRL_KERN_LEVEL == 2
    return _mm512_min_ps(a, b);
#elif TRL_KERN_LEVEL == 1
    return _mm256_min_ps(a, b);
#else
    return v_if_gt(b, a, a, b);
#endif
}
INLINE vf v_sqrt(vf a)
{
#if TRL_KERN_LEVEL == 2
    return _mm512_sqrt_ps(a);
#elif TRL_KERN_LEVEL == 1
    return _mm256_sqrt_ps(a);
#else
    return (vf){sqrtf(a[0]), sqrtf(a[1]), sqrtf(a[2]), sqrtf(a[3])};
#endif
}
INLINE vf v_abs(vf a)
{
    return (vf)((vi)a & 0x7fffffff);
}
/* Lanes added pairwise: a fixed order. */
INLINE float v_sum(vf v)
{
    float x[VW];
    v_storef(x, v);
    for (int n = VW / 2; n > 0; n /= 2)
        for (int i = 0; i < n; i++)
            x[i] += x[i + n];
    return x[0];
}
INLINE float v_maxlane(vf v)
{
    float x[VW], m;
    v_storef(x, v);
    m = x[0];
    for (int i = 1; i < VW; i++)
        m = m > x[i] ? m : x[i];
    return m;
}

/* ---- elements of any type ---- */

INLINE vf v_from_bf16(const uint16_t *p)
{
#if TRL_KERN_LEVEL == 2
    return _mm512_castsi512_ps(
        _mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_loadu_si256((const void *)p)), 16));
#elif TRL_KERN_LEVEL == 1
    return _mm256_castsi256_ps(
        _mm256_slli_epi32(_mm256_cvtepu16_epi32(_mm_loadu_si128((const void *)p)), 16));
#else
    return (vf){
        trl_bf16_to_f32(p[0]), trl_bf16_to_f32(p[1]), trl_bf16_to_f32(p[2]), trl_bf16_to_f32(p[3])};
#endif
}
INLINE void v_to_bf16(uint16_t *p, vf v)
{
#if TRL_KERN_LEVEL == 2
    __m512i u = _mm512_castps_si512(v),
            odd = _mm512_and_si512(_mm512_srli_epi32(u, 16), _mm512_set1_epi32(1));
    __m512i r = _mm512_srli_epi32(
        _mm512_add_epi32(u, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff))), 16);
    __mmask16 nan = _mm512_cmp_ps_mask(v, v, _CMP_UNORD_Q);
    r = _mm512_mask_or_epi32(r, nan, _mm512_srli_epi32(u, 16), _mm512_set1_epi32(0x40));
    _mm256_storeu_si256((void *)p, _mm512_cvtepi32_epi16(r));
#elif TRL_KERN_LEVEL == 1
    __m256i u = _mm256_castps_si256(v),
            odd = _mm256_and_si256(_mm256_srli_epi32(u, 16), _mm256_set1_epi32(1));
    __m256i r = _mm256_srli_epi32(
        _mm256_add_epi32(u, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff))), 16);
    __m256i quiet = _mm256_or_si256(_mm256_srli_epi32(u, 16), _mm256_set1_epi32(0x40));
    r = _mm256_blendv_epi8(r, quiet, _mm256_castps_si256(_mm256_cmp_ps(v, v, _CMP_UNORD_Q)));
    r = _mm256_permute4x64_epi64(_mm256_packus_epi32(r, r), 0x08);
    _mm_storeu_si128((void *)p, _mm256_castsi256_si128(r));
#else
    for (int i = 0; i < VW; i++)
        p[i] = trl_f32_to_bf16(v[i]);
#endif
}
INLINE vf v_from_f16(const uint16_t *p)
{
#if TRL_KERN_LEVEL == 2
    return _mm512_cvtph_ps(_mm256_loadu_si256((const void *)p));
#elif TRL_KERN_LEVEL == 1
    return _mm256_cvtph_ps(_mm_loadu_si128((const void *)p));
#else
    return (vf){
        trl_f16_to_f32(p[0]), trl_f16_to_f32(p[1]), trl_f16_to_f32(p[2]), trl_f16_to_f32(p[3])};
#endif
}
INLINE void v_to_f16(uint16_t *p, vf v)
{
#if TRL_KERN_LEVEL == 2
    _mm256_storeu_si256(
        (void *)p, _mm512_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
#elif TRL_KERN_LEVEL == 1
    _mm_storeu_si128((void *)p, _mm256_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
#else
    for (int i = 0; i < VW; i++)
        p[i] = trl_f32_to_f16(v[i]);
#endif
}

/* VW elements of type t, starting with element i of p */
INLINE vf v_load(enum trl_dtype t, const void *p, int64_t i)
{
    if (t == TRL_DTYPE_F32)
        return v_loadf((const float *)p + i);
    if (t == TRL_DTYPE_BF16)
        return v_from_bf16((const uint16_t *)p + i);
    return v_from_f16((const uint16_t *)p + i);
}
INLINE void v_store(enum trl_dtype t, void *p, int64_t i, vf v)
{
    if (t == TRL_DTYPE_F32)
        v_storef((float *)p + i, v);
    else if (t == TRL_DTYPE_BF16)
        v_to_bf16((uint16_t *)p + i, v);
    else
        v_to_f16((uint16_t *)p + i, v);
}
/* n <= VW elements; missing lanes are 0 */
INLINE vf v_load_n(enum trl_dtype t, const void *p, int64_t i, int64_t n)
{
    if (n >= VW)
        return v_load(t, p, i);
    char buf[4 * VW] __attribute__((aligned(64))) = {0};
    memcpy(buf, (const char *)p + (size_t)i * trl_dtype_size(t), (size_t)n * trl_dtype_size(t));
    return v_load(t, buf, 0);
}
INLINE void v_store_n(enum trl_dtype t, void *p, int64_t i, int64_t n, vf v)
{
    if (n >= VW) {
        v_store(t, p, i, v);
        return;
    }
    char buf[4 * VW] __attribute__((aligned(64)));
    v_store(t, buf, 0, v);
    memcpy((char *)p + (size_t)i * trl_dtype_size(t), buf, (size_t)n * trl_dtype_size(t));
}
typedef uint32_t vu __attribute__((vector_size(4 * VW)));
INLINE vf v_round_bf16(vf v)
{
    vu u = (vu)v, r = u + 0x7fffu + ((u >> 16) & 1u), nan = (vu)(v != v);
    return (vf)(((~nan & r) | (nan & (u | 0x400000u))) & 0xffff0000u);
}
/* v rounded to type t */
INLINE vf v_round(enum trl_dtype t, vf v)
{
    if (t == TRL_DTYPE_F32)
        return v;
    if (t == TRL_DTYPE_BF16)
        return v_round_bf16(v);
    uint16_t buf[VW] __attribute__((aligned(32)));
    v_to_f16(buf, v);
    return v_from_f16(buf);
}

/* Calls an inlined body with the type as a constant. */
#define BY_TYPE(t, body) \
    do { \
        if ((t) == TRL_DTYPE_F32) { \
            const enum trl_dtype T = TRL_DTYPE_F32; \
            body; \
        } else if ((t) == TRL_DTYPE_BF16) { \
            const enum trl_dtype T = TRL_DTYPE_BF16; \
            body; \
        } else { \
            const enum trl_dtype T = TRL_DTYPE_F16; \
            body; \
        } \
    } while (0)

/* ---- functions ---- */

/* exp, about 1 ulp; 0 below -87, inf above 88.7. 2^n by the exponent bits, r = x - n ln 2,
 * polynomial of Cephes. */
INLINE vf v_exp(vf x)
{
    const vf magic = v_set(12582912.0f); /* 1.5 * 2^23: adding it rounds to an integer */
    x = v_min(v_set(88.8f), v_max(v_set(-87.3f), x));
    vf t = v_fma(x, v_set(1.44269504f), magic), n = t - magic;
    vf r = v_fma(n, v_set(-0.693359375f), x);
    r = v_fma(n, v_set(2.12194440e-4f), r);
    vf p = v_set(1.9875691500e-4f);
    p = v_fma(p, r, v_set(1.3981999507e-3f));
    p = v_fma(p, r, v_set(8.3334519073e-3f));
    p = v_fma(p, r, v_set(4.1665795894e-2f));
    p = v_fma(p, r, v_set(1.6666665459e-1f));
    p = v_fma(p, r, v_set(5.0000001201e-1f));
    p = v_fma(p, r * r, r) + 1.0f;
    /* 2^(n-1), doubled afterwards, so that n = 128 fits; n = -126 becomes 0 */
    vi e = ((vi)t - (vi)magic + 126) << 23;
    return p * (vf)e * 2.0f;
}
/* tanh, about 2 ulp */
INLINE vf v_tanh(vf x)
{
    vf z = x * x, a = v_abs(x);
    vf p = v_set(-5.70498872745e-3f);
    p = v_fma(p, z, v_set(2.06390887954e-2f));
    p = v_fma(p, z, v_set(-5.37397155531e-2f));
    p = v_fma(p, z, v_set(1.33314422036e-1f));
    p = v_fma(p, z, v_set(-3.33332819422e-1f));
    vf small = v_fma(p * z, x, x);
    vf big = 1.0f - 2.0f / (v_exp(a + a) + 1.0f);
    big = (vf)((vi)big | ((vi)x & (vi)v_set(-0.0f)));
    return v_if_gt(a, v_set(0.625f), big, small);
}
INLINE vf v_sigmoid(vf x)
{
    return 1.0f / (1.0f + v_exp(-x));
}

#endif
