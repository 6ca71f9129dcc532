/* SPDX-License-Identifier: Apache-2.0 */
/*
 * float32 inner kernel: MR x (3 vectors) sums live in registers; per step of k three loads of B, MR
 * broadcasts of A, 3*MR multiply-adds. Panels are [k][width]. 16-bit factors are widened (after
 * rounding) when they are packed.
 */
#include "backend/cpu/kern-transpose.h"
#include "backend/cpu/kern.h"

enum { MR = VW == 16 ? 8 : 4, NV = 3, NR = NV * VW };

static void round_floats(float *x, int n, enum trl_dtype round)
{
    uint16_t h;
    for (int i = 0; i < n; i++) {
        trl_dtype_store(round, &h, 0, x[i]);
        x[i] = trl_dtype_load(round, &h, 0);
    }
}

/* [k][width] from rows of k elements */
INLINE void pack_transposed(float *dst, int width, const struct trl_pack_src *s, int64_t i0,
    int64_t rows, int64_t k0, int64_t k, enum trl_dtype t, enum trl_dtype round)
{
    enum { PIECE = 64 };
    float lines[NR * PIECE] __attribute__((aligned(64)));
    for (int64_t p = 0; p < k; p += PIECE) {
        int64_t np = trl_min64(PIECE, k - p);
        const float *from = (const float *)s->p + i0 * s->ld + k0 + p;
        int64_t ld = s->ld;
        if (t != TRL_DTYPE_F32 || round != TRL_DTYPE_F32) {
            for (int64_t i = 0; i < rows; i++)
                for (int64_t q = 0; q < np; q += VW)
                    v_storef(lines + i * PIECE + q,
                        v_round(round, v_load_n(t, s->p, (i0 + i) * s->ld + k0 + p + q, np - q)));
            from = lines;
            ld = PIECE;
        }
        kern_transpose(dst + p * width, width, from, ld, rows, np);
        if (rows < width)
            for (int64_t q = 0; q < np; q++)
                for (int64_t i = rows; i < width; i++)
                    dst[(p + q) * width + i] = 0;
    }
}

/* One line of k: `rows` elements from `at` on into panels of `width`, `step` floats apart. */
INLINE void pack_line(float *dst, size_t step, int width, const struct trl_pack_src *s, int64_t at,
    int64_t rows, enum trl_dtype t, enum trl_dtype round)
{
    int64_t i = 0;
    for (; i + width <= rows; i += width, dst += step) {
        if (width < VW && t == TRL_DTYPE_F32)
            memcpy(dst, (const float *)s->p + at + i, (size_t)width * sizeof(float));
        else if (width < VW)
            for (int j = 0; j < width; j++)
                dst[j] = trl_dtype_load(t, s->p, (size_t)(at + i + j));
        else
            for (int j = 0; j < width; j += VW)
                v_storef(dst + j, v_round(round, v_load(t, s->p, at + i + j)));
        if (width < VW && round != TRL_DTYPE_F32)
            round_floats(dst, width, round);
    }
    if (i < rows) {
        for (int j = 0; j < width; j++)
            dst[j] = i + j < rows ? trl_dtype_load(t, s->p, (size_t)(at + i + j)) : 0;
        if (round != TRL_DTYPE_F32)
            round_floats(dst, width, round);
    }
}

INLINE void pack_straight(float *dst, size_t step, int width, const struct trl_pack_src *s,
    int64_t i0, int64_t rows, int64_t k0, int64_t k, enum trl_dtype t, enum trl_dtype round)
{
    for (int64_t p = 0; p < k; p++)
        pack_line(dst + p * width, step, width, s, (k0 + p) * s->ld + i0, rows, t, round);
}

INLINE void pack(float *dst, size_t step, int width, const struct trl_pack_src *s, int64_t i0,
    int64_t rows, int64_t k0, int64_t k)
{
    enum trl_dtype round =
        s->round == s->dtype ? TRL_DTYPE_F32 : s->round; /* already of that type */
    bool plain = s->dtype == TRL_DTYPE_F32 && round == TRL_DTYPE_F32;
    if (!s->k_contig && plain)
        pack_straight(dst, step, width, s, i0, rows, k0, k, TRL_DTYPE_F32, TRL_DTYPE_F32);
    else if (!s->k_contig)
        pack_straight(dst, step, width, s, i0, rows, k0, k, s->dtype, round);
    else
        for (int64_t i = 0; i < rows; i += width, dst += step)
            if (plain)
                pack_transposed(dst, width, s, i0 + i, trl_min64(width, rows - i), k0, k,
                    TRL_DTYPE_F32, TRL_DTYPE_F32);
            else
                pack_transposed(
                    dst, width, s, i0 + i, trl_min64(width, rows - i), k0, k, s->dtype, round);
}

static void pack_a(void *dst, size_t stride, const struct trl_pack_src *src, int64_t i0,
    int64_t rows, int64_t k0, int64_t k)
{
    pack(dst, stride / sizeof(float), MR, src, i0, rows, k0, k);
}

static void pack_b(void *dst, size_t stride, const struct trl_pack_src *src, int64_t i0,
    int64_t rows, int64_t k0, int64_t k)
{
    pack(dst, stride / sizeof(float), NR, src, i0, rows, k0, k);
}

static void micro(int64_t k, const void *a, const void *b, float *c, int64_t ldc, bool load)
{
    const float *pa = a, *pb = b;
    vf acc[MR][NV];
#pragma GCC unroll 8
    for (int i = 0; i < MR; i++)
#pragma GCC unroll 3
        for (int j = 0; j < NV; j++)
            acc[i][j] = load ? v_loadf(c + i * ldc + j * VW) : v_zero();
    for (int64_t p = 0; p < k; p++) {
        vf b0 = v_loadf(pb), b1 = v_loadf(pb + VW), b2 = v_loadf(pb + 2 * VW);
#pragma GCC unroll 8
        for (int i = 0; i < MR; i++) {
            vf x = v_set(pa[i]);
            acc[i][0] = v_fma(x, b0, acc[i][0]);
            acc[i][1] = v_fma(x, b1, acc[i][1]);
            acc[i][2] = v_fma(x, b2, acc[i][2]);
        }
        pa += MR;
        pb += NR;
    }
#pragma GCC unroll 8
    for (int i = 0; i < MR; i++)
#pragma GCC unroll 3
        for (int j = 0; j < NV; j++)
            v_storef(c + i * ldc + j * VW, acc[i][j]);
}

const struct trl_gemm_kern KERN(gemm_f32) = {
    .name = VW == 16 ? "f32 8x48 zmm"
        : VW == 8    ? "f32 4x24 ymm"
                     : "f32 4x12 vectors",
    .mr = MR,
    .nr = NR,
    .k_step = 1,
    .elem = 4,
    .k_block = 1024,
    .pack_a = pack_a,
    .pack_b = pack_b,
    .micro = micro,
};

INLINE void finish_tile(const struct trl_gemm_out *o, int64_t rows, int64_t cols, const float *acc,
    int64_t ld_acc, enum trl_dtype t)
{
    vf alpha = v_set(o->alpha), beta = v_set(o->beta);
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < cols; j += VW) {
            int64_t n = trl_min64(VW, cols - j), at = i * o->ldc + j;
            vf v = v_loadf(acc + i * ld_acc + j) * alpha;
            if (o->beta != 0)
                v = v_fma(beta, v_load_n(t, o->c, at, n), v);
            if (o->bias)
                v += v_load_n(o->bias_dtype, o->bias, o->bias_at + j, n);
            v_store_n(t, o->c, at, n, v);
        }
}

void KERN(gemm_finish)(
    const struct trl_gemm_out *o, int64_t rows, int64_t cols, const float *acc, int64_t ld_acc)
{
    if (o->c_dtype == TRL_DTYPE_F32)
        finish_tile(o, rows, cols, acc, ld_acc, TRL_DTYPE_F32);
    else if (o->c_dtype == TRL_DTYPE_BF16)
        finish_tile(o, rows, cols, acc, ld_acc, TRL_DTYPE_BF16);
    else
        finish_tile(o, rows, cols, acc, ld_acc, TRL_DTYPE_F16);
}
