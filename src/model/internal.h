/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TRL_MODEL_INTERNAL_H
#define TRL_MODEL_INTERNAL_H
/*
 * The model object, shared by the files of this folder only.
 *
 * Types: `w` weights and gradients; `res` the residual stream and its gradient (= w, as in torch);
 * `act` outputs of matrix products and what they are rounded to (= compute with mixed precision,
 * else w). Where act differs from w, a slab of weights rounded to act stands beside the weights.
 *
 * N = tokens of the micro-batch, H hidden, I intermediate, Q = (heads + 2 kv_heads) head_dim, O =
 * heads head_dim.
 */
#include "base/rng.h"
#include "model/config.h"
#include "model/layout.h"
#include "model/model.h"

struct trl_types {
    enum trl_dtype w, res, act;
};

/* What one layer's backward needs from its forward. With checkpointing there is one of it,
 * refilled. */
struct trl_saved {
    void *qkv; /* act [N, Q]: q and k after rope, or before their norms when the model has these */
    void *attn; /* act [N, O] */
    float *lse; /* [heads, N] */
    void *mid; /* res [N, H]: residual stream between attention and MLP */
    void
        *up; /* act [N, 2 I] or [N, I]: gate | up, before the activation; backward works in place */
    void *o_out, *down_out; /* act [N, H]: inputs of the post norms, NULL without these */
    float *stat1, *stat2; /* [N] 1/rms of the norms, or [2, N] mean and 1/deviation */
    float *stat_post1, *stat_post2;
    float *stat_qk; /* [heads + kv_heads, N] */
};

/* All memory of a micro-batch: one slab cut by trl__buffers_cut, which also is the plan. */
struct trl_buffers {
    struct trl_saved *saved; /* [n_saved] */
    int64_t n_saved;
    void **x; /* res [N, H] each: x[l] goes into layer l; [n_x] */
    int64_t n_x;
    void *norm; /* act [N, H]: output of a norm; after the last one the hidden states */
    void *t; /* res-sized [N, H]: branch output, its gradient; gradient of the hidden states */
    void *w1, *w2; /* act [N, max(I, O, Q)] */
    void *qk, *d_qk; /* act [N, (heads + kv_heads) d], models with q/k norms */
    void *d_x; /* res [N, H]: gradient of the residual stream */
    float *stat_final;
    int32_t *ids, *positions, *rows; /* device [N] */
    int64_t *doc_start; /* device [docs + 1] */
    float *cos_table[TRL_MODEL_MAX_ROPES],
        *sin_table[TRL_MODEL_MAX_ROPES]; /* [max_position, d/2] */
    /* the head: C = head_chunk tokens */
    int64_t head_chunk;
    void *logits; /* act [C, V] */
    void *h_rows; /* act [C, H] */
    void *dh_rows; /* res [C, H] */
    int32_t *targets; /* device [C] */
    float *logp, *entropy, *mean_logp, *d_logp, *d_entropy, *d_mean; /* device [C] */
    uint8_t *hit;
    size_t bytes_activations, bytes_head, bytes_scratch; /* of which */
};

struct trl_head_host; /* head.c */

struct trl_model {
    struct trl_backend *be;
    struct trl_model_config cfg;
    struct trl_layout lay;
    struct trl_params params;
    struct trl_model_info info;
    struct trl_types types;
    int rc; /* first failed op; later ops do nothing */

    bool prepared;
    struct trl_model_capacity cap;
    struct trl_buffers buf;
    void *slab; /* device */
    size_t slab_size, grads_size, weights_size, copy_size;
    double rope_length[TRL_MODEL_MAX_ROPES]; /* dynamic rope: length the tables were made for */
    bool rope_stale; /* the tables must be made anew */
    struct trl_head_host *host;

    /* state of the last forward */
    int64_t n, n_docs;
    bool has_hidden, trains, has_d_hidden;

    double neftune_alpha;
    struct trl_mt mt; /* NEFTune draws as torch does */
    uint64_t drop_seed, drop_step; /* dropout: counter-based */
    float *noise; /* host [2, noise_elems], at least H */
    int64_t noise_elems;
};

static inline const struct trl_param *trl__param(const struct trl_model *m, int index)
{
    return &m->params.items[index];
}

/* ---- memory (buffers.c) ---- */
/* Assign pointers below `base` (NULL: sizes only). Returns the bytes needed. `b->saved` and `b->x`
 * must be there. */
size_t trl__buffers_cut(struct trl_buffers *b, const struct trl_model_config *c,
    const struct trl_types *types, const struct trl_model_capacity *cap, void *base);
int trl__buffers_new(struct trl_buffers *b, const struct trl_model_config *c,
    const struct trl_model_capacity *cap, struct trl_err *err);
void trl__buffers_free(struct trl_buffers *b);

/* ---- rope.c ---- */
/* inv_freq[d/2] and the factor of cos and sin; length: of the sequence (dynamic only). */
void trl__rope_frequencies(const struct trl_rope_config *r, int64_t head_dim, int64_t max_positions,
    double length, double *inv_freq, double *ret_scale);
/* Fill the device tables for positions [0, cap.max_position). */
int trl__rope_tables(struct trl_model *m, double length, struct trl_err *err);

/* ---- ops.c: thin helpers; all keep the first failure in m->rc ---- */
void trl__linear_forward(struct trl_model *m, const struct trl_linear *y, const void *x, void *out);
/* dW += dy^T x, db += sum dy, dx = dy W (dx NULL: not wanted) */
void trl__linear_backward(
    struct trl_model *m, const struct trl_linear *y, const void *dy, const void *x, void *dx);
void trl__norm_forward(struct trl_model *m, const struct trl_norm *w, const void *x,
    enum trl_dtype x_dtype, void *y, float *stat);
/* dx = or += ; dy has dy_dtype */
void trl__norm_backward(struct trl_model *m, const struct trl_norm *w, const void *x,
    enum trl_dtype x_dtype, const void *dy, enum trl_dtype dy_dtype, const float *stat, void *dx,
    bool accumulate);
void trl__cast(
    struct trl_model *m, enum trl_dtype to, void *y, enum trl_dtype from, const void *x, int64_t n);
void trl__add_residual(struct trl_model *m, const void *x, const void *branch, void *y);
/* Matrix products with a weight, as forward and backward run them with n rows: for the plan. Calls
 * fn for each. */
void trl__each_weight_gemm(const struct trl_layout *l, const struct trl_types *types, int64_t n,
    int64_t head_rows, bool training, void (*fn)(void *ctx, const struct trl_op_gemm *a),
    void *ctx);
const void *trl__weight(const struct trl_model *m, int index, enum trl_dtype *ret_dtype);

/* ---- blocks ---- */
/* One layer; x_out may be x_in. recompute: only what backward reads is made again. */
void trl__layer_forward(struct trl_model *m, int layer, struct trl_saved *s, const void *x_in,
    void *x_out, bool recompute);
/* d_x: gradient of the layer's output, becomes that of its input. */
void trl__layer_backward(struct trl_model *m, int layer, struct trl_saved *s, const void *x_in);
void trl__attention_forward(struct trl_model *m, int layer, struct trl_saved *s, const void *x_in);
void trl__attention_backward(struct trl_model *m, int layer, struct trl_saved *s, const void *x_in);
/* The gradient of a branch's output as act: d_x through the post norm, or rounded (and masked), or
 * itself. */
enum trl_drop_site {
    TRL_DROP_EMBED,
    TRL_DROP_ATTN,
    TRL_DROP_ATTN_OUT,
    TRL_DROP_MLP_OUT,
    TRL_DROP_SITES_
};
const void *trl__branch_grad(struct trl_model *m, int layer, const struct trl_norm *post,
    const void *out, const float *stat, enum trl_drop_site site);
void trl__mlp_forward(
    struct trl_model *m, int layer, struct trl_saved *s, void *x_out, bool recompute);
void trl__mlp_backward(struct trl_model *m, int layer, struct trl_saved *s);

/* ---- warmup.c ---- */
int trl__warm_up(struct trl_model *m, struct trl_err *err);

/* ---- noise.c ---- */
/* x[i] *= mask(i)/(1-p), the same mask for the same step, site and layer */
void trl__dropout(struct trl_model *m, enum trl_drop_site site, int layer, void *x,
    enum trl_dtype dtype, double p);
uint64_t trl__drop_seed(const struct trl_model *m, enum trl_drop_site site, int layer);
void trl__neftune_add(struct trl_model *m, const struct trl_tokens *tk, void *x);

/* ---- head.c ---- */
int trl__head_host_new(struct trl_model *m, struct trl_err *err);
void trl__head_host_free(struct trl_model *m);

/* ---- weights ---- */
int trl__weights_load_folder(struct trl_model *m, const char *dir, struct trl_err *err);
int trl__weights_load_gguf(struct trl_model *m, const char *path, struct trl_err *err);
int trl__weights_init(struct trl_model *m, uint64_t seed, struct trl_err *err);
/* config.json of a GGUF file */
int trl__gguf_config(struct trl_model_config *c, const char *path, struct trl_err *err);

/* m->rc as an error of `what` */
int trl__model_status(struct trl_model *m, struct trl_err *err, const char *what);

#endif
