/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TRL_BACKEND_CPU_KERN_H
#define TRL_BACKEND_CPU_KERN_H
/* Included by the sources that are compiled once per instruction set. */
#include "backend/cpu/cpu.h"
#include "backend/cpu/simd.h"

extern const struct trl_gemm_kern KERN(gemm_f32);
void KERN(gemm_finish)(
    const struct trl_gemm_out *o, int64_t rows, int64_t cols, const float *acc, int64_t ld_acc);

#define X(name) int KERN(name)(struct trl_backend * be, const struct trl_op_##name *a);
TRL_OPS(X)
#undef X

#endif
