/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TRL_MODEL_LAYOUT_H
#define TRL_MODEL_LAYOUT_H
/*
 * From a configuration to the parameter table and to the blocks that point into it. Families name
 * the tensors in named_parameters() order; offsets in the slab follow that order, except that the
 * biases of a joined product come behind its weights.
 */
#include "model/config.h"
#include "model/model.h"

/* One or more Linear layers on the same input whose outputs stand side by side in a row (q k v;
 * gate up). Joined: their weights follow one another in the slab without gaps, so that one matrix
 * product does all. Indices into the table. */
struct trl_linear {
    int n;
    int w[3], b[3]; /* b -1: no bias */
    int64_t in, out[3], total;
    bool joined;
};

struct trl_norm {
    int w, b; /* -1: none */
};

struct trl_layer {
    struct trl_linear qkv, o, up, down; /* up: gate and up, or fc */
    struct trl_norm norm1, norm2; /* before attention, before MLP */
    struct trl_norm post1, post2; /* after them (Gemma), w -1: none */
    struct trl_norm q_norm, k_norm; /* w -1: none */
};

/* What a family fills. */
struct trl_layout {
    const struct trl_model_config *c;
    struct trl_params *params;
    struct trl_layer *layers;
    int embed, positions, head; /* head: equal to embed when tied; positions -1: none */
    struct trl_norm final_norm;
    int cap;
    bool failed; /* out of memory */
};

/* Build table and blocks. Release with trl__layout_release (params included). */
int trl__layout_build(struct trl_layout *l, const struct trl_model_config *c,
    struct trl_params *params, struct trl_err *err);
void trl__layout_release(struct trl_layout *l);

/* ---- for families ---- */
/* Append a parameter; name from a format. Returns its index, -1 when out of memory. */
int trl__layout_add(struct trl_layout *l, enum trl_param_role role, int layer, int64_t d0,
    int64_t d1, const char *fmt, ...) __attribute__((format(printf, 6, 7)));

#endif
