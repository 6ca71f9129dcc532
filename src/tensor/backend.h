/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TRL_TENSOR_BACKEND_H
#define TRL_TENSOR_BACKEND_H
/*
 * A backend: device memory, the op table, and facts about itself. Implementations register in backend/registry.c;
 * nothing above includes their headers. One backend object belongs to one rank and is used by one thread at a time
 * (it owns its thread team).
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/threads.h"
#include "tensor/ops.h"

struct trl_backend {
    const char *name; /* "cpu", "ref" */
    struct trl_ops ops;
    struct trl_pool *pool; /* borrowed from trl_backend_open's options; NULL: one thread */

    /* memory: zeroed; NULL when short. On the CPU these are slabs. */
    void *(*mem_alloc)(struct trl_backend *be, size_t size);
    void (*mem_free)(struct trl_backend *be, void *p, size_t size);
    int (*copy_in)(struct trl_backend *be, void *dev, const void *host, size_t size);
    int (*copy_out)(struct trl_backend *be, void *host, const void *dev, size_t size);
    int (*fill_zero)(struct trl_backend *be, void *dev, size_t size);
    int (*sync)(struct trl_backend *be);

    /* Weights were changed (optimiser step, load): packed copies are stale. */
    void (*weights_changed)(struct trl_backend *be);
    /* Bytes this backend will allocate by itself at most for gemms of this shape with b_is_weight (plan). */
    size_t (*weight_pack_bytes)(struct trl_backend *be, const struct trl_op_gemm *a);
    /* "amx kernels; matrix products: float32 by f32 8x48 zmm, bfloat16 by ...": what really runs, for logs and tests */
    const char *(*describe)(struct trl_backend *be);
    void (*close)(struct trl_backend *be);
    void *impl;
};

struct trl_backend_options {
    const char *name;      /* NULL: the best one; "ref"; "cpu" */
    const char *isa;       /* NULL: the best; "baseline", "avx2", "avx512", "amx": an upper limit */
    struct trl_pool *pool; /* borrowed */
};
/* Errors list the backends that are built in and why others are not. */
int trl_backend_open(struct trl_backend **ret, const struct trl_backend_options *opt, struct trl_err *err);
void trl_backend_close(struct trl_backend *be);

/* Measured once on demand: GFLOP/s of a large square gemm with this rounding type (the "matmul peak"). */
double trl_backend_gemm_peak(struct trl_backend *be, enum trl_dtype round, double seconds);

#endif
