/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TRL_BACKEND_REF_REF_H
#define TRL_BACKEND_REF_REF_H
/* The reference ops: one plain loop each, scalar, sums in double, no threads. They define what is
 * correct. */
#include "tensor/backend.h"

#define X(name) int trl_ref_##name(struct trl_backend *be, const struct trl_op_##name *a);
TRL_OPS(X)
#undef X

static inline double ref_get(enum trl_dtype t, const void *p, int64_t i)
{
    return trl_dtype_load(t, p, (size_t)i);
}
static inline void ref_put(enum trl_dtype t, void *p, int64_t i, double v)
{
    trl_dtype_store(t, p, (size_t)i, (float)v);
}
/* v rounded to type t */
static inline float ref_round(enum trl_dtype t, float v)
{
    return t == TRL_DTYPE_BF16 ? trl_bf16_to_f32(trl_f32_to_bf16(v))
        : t == TRL_DTYPE_F16   ? trl_f16_to_f32(trl_f32_to_f16(v))
                               : v;
}
/* act(x) and its derivative */
double trl_ref_act_value(enum trl_act act, double x);
double trl_ref_act_slope(enum trl_act act, double x);

#endif
