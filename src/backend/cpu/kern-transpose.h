/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TRL_BACKEND_CPU_KERN_TRANSPOSE_H
#define TRL_BACKEND_CPU_KERN_TRANSPOSE_H
/* d[c][r] = s[r][c] in squares that fit the vector registers. */
#include "backend/cpu/simd.h"

#if TRL_KERN_LEVEL == 2
INLINE void transpose_square16(float *d, int64_t ldd, const float *s, int64_t lds)
{
    __m512 r[16], t[16];
    for (int i = 0; i < 16; i++)
        r[i] = _mm512_loadu_ps(s + i * lds);
    for (int i = 0; i < 16; i += 2) {
        t[i] = _mm512_unpacklo_ps(r[i], r[i + 1]);
        t[i + 1] = _mm512_unpackhi_ps(r[i], r[i + 1]);
    }
    for (int i = 0; i < 16; i += 4)
        for (int j = 0; j < 2; j++) {
            __m512d a = _mm512_castps_pd(t[i + j]), b = _mm512_castps_pd(t[i + 2 + j]);
            r[i + 2 * j] = _mm512_castpd_ps(_mm512_unpacklo_pd(a, b));
            r[i + 2 * j + 1] = _mm512_castpd_ps(_mm512_unpackhi_pd(a, b));
        }
    for (int i = 0; i < 4; i++) {
        t[i] = _mm512_shuffle_f32x4(r[i], r[4 + i], 0x88);
        t[4 + i] = _mm512_shuffle_f32x4(r[i], r[4 + i], 0xdd);
        t[8 + i] = _mm512_shuffle_f32x4(r[8 + i], r[12 + i], 0x88);
        t[12 + i] = _mm512_shuffle_f32x4(r[8 + i], r[12 + i], 0xdd);
    }
    for (int i = 0; i < 4; i++) {
        _mm512_storeu_ps(d + i * ldd, _mm512_shuffle_f32x4(t[i], t[8 + i], 0x88));
        _mm512_storeu_ps(d + (8 + i) * ldd, _mm512_shuffle_f32x4(t[i], t[8 + i], 0xdd));
        _mm512_storeu_ps(d + (4 + i) * ldd, _mm512_shuffle_f32x4(t[4 + i], t[12 + i], 0x88));
        _mm512_storeu_ps(d + (12 + i) * ldd, _mm512_shuffle_f32x4(t[4 + i], t[12 + i], 0xdd));
    }
}
#endif
#if TRL_KERN_LEVEL >= 1
INLINE void transpose_square8(float *d, int64_t ldd, const float *s, int64_t lds)
{
    __m256 r[8], t[8];
    for (int i = 0; i < 8; i++)
        r[i] = _mm256_loadu_ps(s + i * lds);
    for (int i = 0; i < 8; i += 2) {
        t[i] = _mm256_unpacklo_ps(r[i], r[i + 1]);
        t[i + 1] = _mm256_unpackhi_ps(r[i], r[i + 1]);
    }
    for (int i = 0; i < 8; i += 4) {
        r[i] = _mm256_shuffle_ps(t[i], t[i + 2], 0x44);
        r[i + 1] = _mm256_shuffle_ps(t[i], t[i + 2], 0xee);
        r[i + 2] = _mm256_shuffle_ps(t[i + 1], t[i + 3], 0x44);
        r[i + 3] = _mm256_shuffle_ps(t[i + 1], t[i + 3], 0xee);
    }
    for (int i = 0; i < 4; i++) {
        _mm256_storeu_ps(d + i * ldd, _mm256_permute2f128_ps(r[i], r[i + 4], 0x20));
        _mm256_storeu_ps(d + (i + 4) * ldd, _mm256_permute2f128_ps(r[i], r[i + 4], 0x31));
    }
}
#endif

INLINE void transpose_square4(float *d, int64_t ldd, const float *s, int64_t lds)
{
    for (int i = 0; i < 4; i++)
        for (int j = 0; j < 4; j++)
            d[j * ldd + i] = s[i * lds + j];
}

static inline void kern_transpose(
    float *d, int64_t ldd, const float *s, int64_t lds, int64_t rows, int64_t cols)
{
    int64_t r = 0;
#if TRL_KERN_LEVEL == 2
    for (; r + 16 <= rows; r += 16) {
        int64_t c = 0;
        for (; c + 16 <= cols; c += 16)
            transpose_square16(d + c * ldd + r, ldd, s + r * lds + c, lds);
        for (; c < cols; c++)
            for (int64_t i = r; i < r + 16; i++)
                d[c * ldd + i] = s[i * lds + c];
    }
#endif
#if TRL_KERN_LEVEL >= 1
    for (; r + 8 <= rows; r += 8) {
        int64_t c = 0;
        for (; c + 8 <= cols; c += 8)
            transpose_square8(d + c * ldd + r, ldd, s + r * lds + c, lds);
        for (; c < cols; c++)
            for (int64_t i = r; i < r + 8; i++)
                d[c * ldd + i] = s[i * lds + c];
    }
#endif
    for (; r + 4 <= rows; r += 4) {
        int64_t c = 0;
        for (; c + 4 <= cols; c += 4)
            transpose_square4(d + c * ldd + r, ldd, s + r * lds + c, lds);
        for (; c < cols; c++)
            for (int64_t i = r; i < r + 4; i++)
                d[c * ldd + i] = s[i * lds + c];
    }
    for (; r < rows; r++)
        for (int64_t c = 0; c < cols; c++)
            d[c * ldd + r] = s[r * lds + c];
}

#endif
