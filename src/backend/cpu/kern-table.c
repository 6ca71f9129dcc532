/* SPDX-License-Identifier: Apache-2.0 */
#include "backend/cpu/kern.h"

const struct trl_isa_table KERN(table) = {
    .ops = {
        .attention = KERN(attention),
        .attention_bwd = KERN(attention_bwd),
    },
    .gemm_f32 = &KERN(gemm_f32),
    .gemm_finish = KERN(gemm_finish),
};
