/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bf16 inner kernel on AMX tiles: 32 x 32 sums in four tiles, per 32 steps of k two tiles of A, two
 * of B. A tile of A is 16 rows of 32 bf16; a tile of B is 16 pairs of k by 16 columns, a pair (k,
 * k+1) being one 32-bit word. A panel is [k/32][2 tiles][16][64 bytes]. Reading the source along i
 * gives words in B's order, along k in A's order; a 16 x 16 transpose of words turns one into the
 * other. The tiles treat denormals as 0.
 */
#include <immintrin.h>

#include "backend/cpu/cpu.h"

#define INLINE static inline __attribute__((always_inline))

enum { EDGE = 32, STEP = 32, TILE = 1024, WORDS = 16 };

struct tile_config {
    uint8_t palette, start_row, reserved[14];
    uint16_t bytes_per_row[16];
    uint8_t rows[16];
} __attribute__((packed, aligned(64)));

/* Eight tiles of 16 rows by 64 bytes. In memory, because compilers tell the instruction's asm about
 * 8 bytes only. */
static const struct tile_config config = {
    .palette = 1,
    .bytes_per_row = {64, 64, 64, 64, 64, 64, 64, 64},
    .rows = {16, 16, 16, 16, 16, 16, 16, 16},
};

static void begin(void)
{
    _tile_loadconfig(&config);
}

static void end(void)
{
    _tile_release();
}

INLINE void transpose_words(__m512i w[16])
{
    __m512i t[16];
    for (int i = 0; i < 16; i += 2) {
        t[i] = _mm512_unpacklo_epi32(w[i], w[i + 1]);
        t[i + 1] = _mm512_unpackhi_epi32(w[i], w[i + 1]);
    }
    for (int i = 0; i < 16; i += 4)
        for (int j = 0; j < 2; j++) {
            w[i + 2 * j] = _mm512_unpacklo_epi64(t[i + j], t[i + 2 + j]);
            w[i + 2 * j + 1] = _mm512_unpackhi_epi64(t[i + j], t[i + 2 + j]);
        }
    for (int i = 0; i < 4; i++) {
        t[i] = _mm512_shuffle_i32x4(w[i], w[4 + i], 0x88);
        t[4 + i] = _mm512_shuffle_i32x4(w[i], w[4 + i], 0xdd);
        t[8 + i] = _mm512_shuffle_i32x4(w[8 + i], w[12 + i], 0x88);
        t[12 + i] = _mm512_shuffle_i32x4(w[8 + i], w[12 + i], 0xdd);
    }
    for (int i = 0; i < 4; i++) {
        w[i] = _mm512_shuffle_i32x4(t[i], t[8 + i], 0x88);
        w[8 + i] = _mm512_shuffle_i32x4(t[i], t[8 + i], 0xdd);
        w[4 + i] = _mm512_shuffle_i32x4(t[4 + i], t[12 + i], 0x88);
        w[12 + i] = _mm512_shuffle_i32x4(t[4 + i], t[12 + i], 0xdd);
    }
}

/* the low n bits */
INLINE uint32_t low_bits(int64_t n)
{
    return n >= 32 ? 0xffffffffu : n <= 0 ? 0 : (1u << n) - 1;
}

/* n <= 16 elements of row-major storage, as bf16, missing ones 0 */
INLINE __m256i load16(const struct trl_pack_src *s, int64_t at, int64_t n)
{
    __mmask16 m = (__mmask16)low_bits(n > 16 ? 16 : n);
    if (s->dtype == TRL_DTYPE_F32)
        return (__m256i)_mm512_cvtneps_pbh(_mm512_maskz_loadu_ps(m, (const float *)s->p + at));
    __m256i h = _mm256_maskz_loadu_epi16(m, (const uint16_t *)s->p + at);
    return s->dtype == TRL_DTYPE_BF16 ? h : (__m256i)_mm512_cvtneps_pbh(_mm512_cvtph_ps(h));
}

/* row i, k .. k+31 */
INLINE __m512i load_along_k(const struct trl_pack_src *s, int64_t i, int64_t k, int64_t n)
{
    int64_t at = i * s->ld + k;
    if (s->dtype == TRL_DTYPE_BF16)
        return _mm512_maskz_loadu_epi16(low_bits(n), (const uint16_t *)s->p + at);
    return _mm512_inserti64x4(_mm512_castsi256_si512(load16(s, at, n)),
        n > 16 ? load16(s, at + 16, n - 16) : _mm256_setzero_si256(), 1);
}

/* words (k, k+1) of rows i .. i+15 */
INLINE __m512i load_pairs(const struct trl_pack_src *s, int64_t i, int64_t n, int64_t k, int64_t nk)
{
    __m512i lo = _mm512_cvtepu16_epi32(load16(s, k * s->ld + i, n));
    if (nk < 2)
        return lo;
    __m512i hi = _mm512_cvtepu16_epi32(load16(s, (k + 1) * s->ld + i, n));
    return _mm512_or_si512(lo, _mm512_slli_epi32(hi, 16));
}

/* One tile: rows i0 .. i0+15 (n of them exist), 32 steps of k (nk exist). rows_first: A's order. */
INLINE void pack_tile(void *dst, const struct trl_pack_src *s, int64_t i0, int64_t n, int64_t k0,
    int64_t nk, bool rows_first)
{
    __m512i w[WORDS];
    if (s->k_contig)
        for (int i = 0; i < WORDS; i++)
            w[i] = i < n ? load_along_k(s, i0 + i, k0, nk) : _mm512_setzero_si512();
    else
        for (int p = 0; p < WORDS; p++)
            w[p] = 2 * p < nk && n > 0 ? load_pairs(s, i0, n, k0 + 2 * p, nk - 2 * p)
                                       : _mm512_setzero_si512();
    if (s->k_contig != rows_first)
        transpose_words(w);
    for (int i = 0; i < WORDS; i++)
        _mm512_store_si512((char *)dst + 64 * i, w[i]);
}

INLINE void pack(char *dst, size_t stride, const struct trl_pack_src *s, int64_t i0, int64_t rows,
    int64_t k0, int64_t k, bool rows_first)
{
    for (int64_t i = 0; i < rows; i += EDGE, dst += stride) {
        char *at = dst;
        for (int64_t p = 0; p < k; p += STEP)
            for (int half = 0; half < 2; half++, at += TILE)
                pack_tile(
                    at, s, i0 + i + 16 * half, rows - i - 16 * half, k0 + p, k - p, rows_first);
    }
}

static void pack_a(void *dst, size_t stride, const struct trl_pack_src *src, int64_t i0,
    int64_t rows, int64_t k0, int64_t k)
{
    pack(dst, stride, src, i0, rows, k0, k, true);
}

static void pack_b(void *dst, size_t stride, const struct trl_pack_src *src, int64_t i0,
    int64_t rows, int64_t k0, int64_t k)
{
    pack(dst, stride, src, i0, rows, k0, k, false);
}

static void micro(int64_t k, const void *a, const void *b, float *c, int64_t ldc, bool load)
{
    const char *pa = a, *pb = b;
    size_t stride = (size_t)ldc * sizeof(float);
    if (load) {
        _tile_loadd(0, c, stride);
        _tile_loadd(1, c + 16, stride);
        _tile_loadd(2, c + 16 * ldc, stride);
        _tile_loadd(3, c + 16 * ldc + 16, stride);
    } else {
        _tile_zero(0);
        _tile_zero(1);
        _tile_zero(2);
        _tile_zero(3);
    }
    /* A panel of A passes through once for each panel of B, which should stay in the first-level cache. */
    for (int64_t p = 0; p < k; p += STEP, pa += 2 * TILE, pb += 2 * TILE) {
        _tile_stream_loadd(4, pa, 64);
        _tile_loadd(6, pb, 64);
        _tile_dpbf16ps(0, 4, 6);
        _tile_loadd(7, pb + TILE, 64);
        _tile_dpbf16ps(1, 4, 7);
        _tile_stream_loadd(5, pa + TILE, 64);
        _tile_dpbf16ps(2, 5, 6);
        _tile_dpbf16ps(3, 5, 7);
    }
    _tile_stored(0, c, stride);
    _tile_stored(1, c + 16, stride);
    _tile_stored(2, c + 16 * ldc, stride);
    _tile_stored(3, c + 16 * ldc + 16, stride);
}

const struct trl_gemm_kern trl_amx_gemm_kern = {
    .name = "bf16 32x32 AMX tiles",
    .mr = EDGE,
    .nr = EDGE,
    .k_step = STEP,
    .elem = 2,
    .k_block = 640,
    .pack_a = pack_a,
    .pack_b = pack_b,
    .micro = micro,
    .begin = begin,
    .end = end,
};
