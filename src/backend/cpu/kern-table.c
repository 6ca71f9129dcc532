/* SPDX-License-Identifier: Apache-2.0 */
#include "backend/cpu/kern.h"
#include "backend/ref/ref.h"

const struct trl_isa_table KERN(table) = {
    .ops = {
#define X(name) .name = trl_ref_##name,
        TRL_OPS(X)
#undef X
    },
    .gemm_f32 = &KERN(gemm_f32),
    .gemm_finish = KERN(gemm_finish),
};
