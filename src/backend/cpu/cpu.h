/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TRL_BACKEND_CPU_CPU_H
#define TRL_BACKEND_CPU_CPU_H
/*
 * The fast CPU backend. Kernels are compiled per instruction set into one op table each; matrix
 * products go through panels: both factors are copied (and rounded) into the layout that the inner
 * kernel reads.
 */
#include <stddef.h>
#include <stdint.h>

#include "hw/cpu.h"
#include "tensor/backend.h"

/* One factor of a product, seen as rows i of k elements: element (i, k) is p[i*ld + k] (k_contig)
 * or p[k*ld + i]. */
struct trl_pack_src {
    const void *p;
    int64_t ld;
    enum trl_dtype dtype, round;
    bool k_contig;
};

/*
 * An inner kernel: C[mr, nr] (+)= A panel * B panel, sums in float32. A panel holds mr rows (nr
 * columns for B) of a block of K, zero-padded to the full width and to a multiple of k_step.
 */
struct trl_gemm_kern {
    const char *name;
    int mr, nr, k_step, elem; /* elem: bytes of a packed element */
    int64_t k_block; /* longest block of K that caches well */
    /* rows i0 .. i0+rows of the factor; panel p (of mr or nr rows) goes to dst + p*stride */
    void (*pack_a)(void *dst, size_t stride, const struct trl_pack_src *src, int64_t i0,
        int64_t rows, int64_t k0, int64_t k);
    void (*pack_b)(void *dst, size_t stride, const struct trl_pack_src *src, int64_t i0,
        int64_t rows, int64_t k0, int64_t k);
    /* k is padded; c has row stride ldc (floats); load: start from c instead of 0 */
    void (*micro)(int64_t k, const void *a, const void *b, float *c, int64_t ldc, bool load);
    void (*begin)(void),
        (*end)(void); /* around micro() in each thread (tile set-up); NULL: nothing to do */
};

/* c (type, stride ldc) = alpha * acc + beta * c + bias, for a tile of rows x cols */
struct trl_gemm_out {
    void *c;
    const void *bias; /* NULL or already at the tile's first column's element `bias_at` */
    int64_t ldc, bias_at;
    enum trl_dtype c_dtype, bias_dtype;
    float alpha, beta;
};

struct trl_isa_table {
    struct trl_ops ops;
    const struct trl_gemm_kern *gemm_f32;
    void (*gemm_finish)(
        const struct trl_gemm_out *o, int64_t rows, int64_t cols, const float *acc, int64_t ld_acc);
};
extern const struct trl_isa_table trl_baseline_table;
#ifdef TRL_HAVE_X86_KERNELS
extern const struct trl_isa_table trl_avx2_table, trl_avx512_table;
#endif
#ifdef TRL_HAVE_AMX
extern const struct trl_gemm_kern trl_amx_gemm_kern;
#endif

struct trl_packed_weight {
    const void *b;
    int64_t n, k, ldb;
    bool trans_b, fresh;
    const struct trl_gemm_kern *kern;
    enum trl_dtype dtype, round;
    void *data;
    size_t size;
};
enum { TRL_MAX_PACKED = 8 };

struct trl_cpu_impl {
    enum trl_isa isa;
    const struct trl_isa_table *table;
    const struct trl_gemm_kern *gemm_bf16; /* NULL: bf16 factors are widened for gemm_f32 */
    void *work;
    size_t work_size;
    struct trl_packed_weight packed[TRL_MAX_PACKED];
    int n_packed;
    char describe[256];
};

static inline struct trl_cpu_impl *trl_cpu_impl(struct trl_backend *be)
{
    return be->impl;
}
/* At least `size` bytes, 64-byte aligned, contents undefined; valid until the next call. NULL: out
 * of memory. */
void *trl_cpu_work(struct trl_backend *be, size_t size);

int trl_cpu_gemm(struct trl_backend *be, const struct trl_op_gemm *a);
size_t trl_cpu_weight_pack_bytes(struct trl_backend *be, const struct trl_op_gemm *a);
void trl_cpu_weights_changed(struct trl_backend *be);
void trl_cpu_free_packed(struct trl_backend *be);

static inline int64_t trl_round_up(int64_t n, int64_t to)
{
    return (n + to - 1) / to * to;
}
static inline int64_t trl_min64(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

#endif
