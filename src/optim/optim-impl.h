/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TRL_OPTIM_OPTIM_IMPL_H
#define TRL_OPTIM_OPTIM_IMPL_H
/* What optim.c, optim-names.c and optim-state.c share. */
#include "optim/optim.h"

/* An optimiser's settings, resolved from name and optim_args. */
struct trl__optim_rule {
    enum trl_optim_kind kind;
    bool fused;                 /* AdamW: rounding of the fused kernel (16-bit weights only) */
    double momentum, dampening; /* SGD */
    bool nesterov;
    int n_slabs;                     /* state tensors of a parameter's own shape */
    const char *slab_names[2];       /* "exp_avg", "exp_avg_sq" */
};
int trl__optim_resolve(const struct trl_optim_config *cfg, struct trl__optim_rule *ret, struct trl_err *err);

/* A contiguous part of the slabs that one op call may cover: neighbours of one weight-decay group. */
struct trl__optim_run {
    int64_t offset, n; /* elements */
    bool decay;
};

struct trl_optim {
    struct trl_backend *be;
    struct trl_params *params;
    struct trl_optim_config cfg;
    struct trl__optim_rule rule;
    int64_t step;
    /* AdamW, SGD, Lion: [0] momentum, [1] second moment, with the offsets and type of the weights */
    void *slabs[2];
    size_t slab_bytes;
    struct trl__optim_run *runs;
    int n_runs;
    /* Adafactor: one float32 block; each parameter's rows, columns (or whole, for vectors) at factor_offset */
    float *factors, *scratch;
    size_t factor_bytes, scratch_bytes;
    int64_t *factor_offset; /* [params->n], -1: frozen */
};

#endif
