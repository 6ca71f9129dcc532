/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TRL_COMM_REDUCE_H
#define TRL_COMM_REDUCE_H
/* Element-wise reduction of several equally long arrays in a fixed order. Float types accumulate in
 * float32, F64 in double. */
#include <stddef.h>

#include "comm/comm.h"

/* Element types on the wire: those of tensors, and double. */
enum trl__wire { TRL__WIRE_F32, TRL__WIRE_BF16, TRL__WIRE_F16, TRL__WIRE_F64 };

static inline size_t trl__wire_size(enum trl__wire t)
{
    return t == TRL__WIRE_F64 ? 8 : t == TRL__WIRE_F32 ? 4 : 2;
}
enum trl__wire trl__wire_of(enum trl_dtype t);

/*
 * dst[i] = round(scale * ((src[0][i] op src[1][i]) op src[2][i] ...)), n_src >= 1, of type `to`;
 * sources are of type `from`. dst may be one of the sources. F64 goes with F64 only. NaN wins in
 * MAX and MIN.
 */
void trl__reduce(enum trl__wire to, void *dst, enum trl__wire from, const void *const *src,
    int n_src, size_t n, enum trl_comm_op op, float scale);

#endif
