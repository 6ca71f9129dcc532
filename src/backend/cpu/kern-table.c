/* SPDX-License-Identifier: Apache-2.0 */
#include "backend/cpu/kern.h"

/* The driver of products is one for all instruction sets; it calls the kernels below. */
int KERN(gemm)(struct trl_backend *be, const struct trl_op_gemm *a)
{
    return trl_cpu_gemm(be, a);
}

const struct trl_isa_table KERN(table) = {
    .ops =
        {
#define X(name) .name = KERN(name),
            TRL_OPS(X)
#undef X
        },
    .gemm_f32 = &KERN(gemm_f32),
    .gemm_finish = KERN(gemm_finish),
};
