/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TRL_TENSOR_OPS_H
#define TRL_TENSOR_OPS_H
/*
 * The op table: all device arithmetic of the project, one function pointer an op, each with one argument
 * struct. Implementations: backend/ref (defines correct: scalar, double accumulators), backend/cpu (fast).
 *
 * Layout: tokens are flattened, without pads: a micro-batch is N rows of features, row-major, `ld` = elements
 * between rows where given, otherwise rows are dense. Sequences ("docs") are ranges of tokens
 * doc_start[0..n_docs] (doc_start[n_docs] = N); attention never crosses them.
 * Pointers are device pointers; arithmetic is float32 inside whatever the storage type is, stored with one
 * rounding. "+=" outputs accumulate, "=" outputs are overwritten. In-place use is allowed where said.
 * Ops return 0 or TRL_E_NOMEM / TRL_E_UNSUPPORTED; arguments are the caller's responsibility (trl_bug on nonsense).
 * All ops are bitwise repeatable for equal inputs and an equal number of threads.
 */
#include <stdbool.h>
#include <stdint.h>

#include "base/rng.h"
#include "tensor/dtype.h"

/* C[m,n] = alpha * op(A)[m,k] op(B)[k,n] + beta * C (+ bias[n]); op(X) = X or X^T as stored (row-major).
 * `round`: A and B are rounded to this type before they are multiplied (F32: not at all); sums in float32. This
 * is what autocast does; it is exact when they already are stored in that type. */
struct trl_op_gemm {
    int64_t m, n, k;
    bool trans_a, trans_b; /* trans_b: B is stored [n,k], the Linear layout */
    const void *a, *b, *bias; /* bias NULL or [n] of bias_dtype */
    void *c;
    int64_t lda, ldb, ldc;
    enum trl_dtype a_dtype, b_dtype, c_dtype, bias_dtype;
    enum trl_dtype round;
    float alpha, beta; /* beta 0: C is not read */
    bool b_is_weight;  /* B stays the same until weights_changed(): packed copies may be cached by its address */
};

/* out[N,H] = scale * table[ids[t]] */
struct trl_op_embed {
    int64_t n, h, vocab;
    const int32_t *ids;
    const void *table; /* [vocab, H] */
    void *out;
    float scale;
    enum trl_dtype table_dtype, out_dtype;
};
/* d_table[ids[t]] += scale * d_out[t], in order of t */
struct trl_op_embed_bwd {
    int64_t n, h, vocab;
    const int32_t *ids;
    const void *d_out;
    void *d_table;
    float scale;
    enum trl_dtype table_dtype, out_dtype;
};

/* y = x / sqrt(mean(x^2) + eps) * (offset + w); rstd[rows] kept for backward. offset 1: Gemma.
 * cast_first: the normalised value is rounded to y's type before the product (Llama family). */
struct trl_op_rmsnorm {
    int64_t rows, cols, ld_x, ld_y;
    const void *x, *w;
    void *y;
    float *rstd; /* NULL: not wanted */
    float eps, offset;
    bool cast_first;
    enum trl_dtype x_dtype, w_dtype, y_dtype;
};
/* dx (= or += by accumulate_dx), dw += ; dw NULL: frozen */
struct trl_op_rmsnorm_bwd {
    int64_t rows, cols, ld_x, ld_dy, ld_dx;
    const void *x, *w, *dy;
    const float *rstd;
    void *dx, *dw;
    float offset;
    bool accumulate_dx;
    enum trl_dtype x_dtype, w_dtype, dy_dtype, dx_dtype; /* dw has w_dtype */
};

/* y = (x - mean) / sqrt(var + eps) * w + b, biased variance */
struct trl_op_layernorm {
    int64_t rows, cols;
    const void *x, *w, *b;
    void *y;
    float *mean, *rstd;
    float eps;
    enum trl_dtype x_dtype, w_dtype, y_dtype;
};
struct trl_op_layernorm_bwd {
    int64_t rows, cols;
    const void *x, *w, *dy;
    const float *mean, *rstd;
    void *dx, *dw, *db; /* dw, db += (NULL: frozen) */
    bool accumulate_dx;
    enum trl_dtype x_dtype, w_dtype, dy_dtype, dx_dtype;
};

/* Rotate-half rope on `heads` heads of size d, in place allowed (y == x). cos/sin are [max_pos, d/2] float32 tables
 * (already scaled); row = positions[t]. inverse: the transpose (the backward of the forward). */
struct trl_op_rope {
    int64_t n, heads, d, ld_x, ld_y;
    const void *x;
    void *y;
    const float *cos_table, *sin_table;
    const int32_t *positions;
    bool inverse;
    enum trl_dtype dtype;
};

/* Causal self-attention inside each doc. Query t of a doc sees keys s <= t with s > t - window (window 0: all).
 * score = softcap(scale * q.k), softcap c: c*tanh(s/c) (0: none). GQA: query head h uses kv head h/(hq/hkv).
 * out[N, hq*d]; lse[hq, N] = log-sum-exp of the scores of a query, kept for backward.
 * round as in gemm: q, k, v and the probabilities are rounded to it before the products. */
struct trl_op_attention {
    int64_t n, n_docs, hq, hkv, d;
    const int64_t *doc_start;
    const void *q, *k, *v; /* [N, heads, d] with row strides ld_q, ld_k, ld_v */
    void *out;
    float *lse;
    int64_t ld_q, ld_k, ld_v, ld_out;
    float scale, softcap;
    int64_t window;
    enum trl_dtype dtype, round;
    float dropout;         /* probability that a probability is dropped, see trl_op_attention_keep */
    uint64_t dropout_seed; /* the same in backward */
};
/* Factor of the probability of query t of head h for key s, applied after softmax: 0 or
 * 1/(1-dropout). Drawn again by whoever needs it. */
static inline float trl_op_attention_keep(
    const struct trl_op_attention *a, int64_t h, int64_t t, int64_t s)
{
    uint64_t i = ((uint64_t)h * (uint64_t)a->n + (uint64_t)t) * (uint64_t)a->n + (uint64_t)s;
    float u = (float)(trl_hash_rng(a->dropout_seed, i) >> 40) * 0x1p-24f;
    return u < a->dropout ? 0 : 1 / (1 - a->dropout);
}
struct trl_op_attention_bwd {
    struct trl_op_attention fwd; /* the forward's arguments, out and lse filled */
    const void *d_out;           /* dtype as out, stride ld_out */
    void *dq, *dk, *dv;          /* = ; dtype as q, strides ld_dq.. */
    int64_t ld_dq, ld_dk, ld_dv;
};

enum trl_act { TRL_ACT_SILU, TRL_ACT_GELU_TANH, TRL_ACT_GELU, TRL_ACT_RELU, TRL_ACT_MAX_ };
/* gated: y = act(gate) * up; plain (up NULL): y = act(gate). Rows with strides. y may be gate or up. */
struct trl_op_act {
    int64_t rows, cols, ld_gate, ld_up, ld_y;
    const void *gate, *up;
    void *y;
    enum trl_act act;
    enum trl_dtype dtype;
};
/* d_gate =, d_up = ; in place allowed: d_gate == gate, d_up == up */
struct trl_op_act_bwd {
    int64_t rows, cols, ld_gate, ld_up, ld_dy, ld_d_gate, ld_d_up;
    const void *gate, *up, *dy;
    void *d_gate, *d_up;
    enum trl_act act;
    enum trl_dtype dtype;
};

/* y = alpha * x + beta * y over n elements (beta 0: y not read; so it is also cast, copy, scale) */
struct trl_op_axpby {
    int64_t n;
    const void *x;
    void *y;
    float alpha, beta;
    enum trl_dtype x_dtype, y_dtype;
};
/* y = a + b, rounded once to y's type (the residual add); y may be a or b */
struct trl_op_add {
    int64_t n;
    const void *a, *b;
    void *y;
    enum trl_dtype a_dtype, b_dtype, y_dtype;
};
/* out[cols] += sum over rows of x (bias gradients) */
struct trl_op_colsum {
    int64_t rows, cols, ld_x;
    const void *x;
    void *out;
    enum trl_dtype x_dtype, out_dtype;
};
/* gather: dst[i] = src[index[i]]; scatter: dst[index[i]] = src[i] (indices distinct), rows of `cols` elements */
struct trl_op_rows {
    int64_t rows, cols;
    const int32_t *index;
    const void *src;
    void *dst;
    bool scatter;
    enum trl_dtype dtype;
};

/* Per-token numbers of the distribution softmax(softcap(logits)). NULL members are not wanted. */
struct trl_xent_stats {
    float *logp;      /* log p(target); 0 where target < 0 */
    float *entropy;   /* -sum p log p */
    float *mean_logp; /* mean over the vocabulary of log p (label smoothing) */
    uint8_t *hit;     /* arg-max == target (lowest index among equals) */
};
/* One chunk of the head: logits [n, vocab]. If d_logp is given, logits are REPLACED by the gradient with respect to the
 * raw logits (before softcap) of  sum_t d_logp[t] logp[t] + d_entropy[t] H[t] + d_mean[t] mean_logp[t],
 * stored as logits_dtype. Rows with target < 0 get a zero gradient unless only d_entropy/d_mean refer to them. */
struct trl_op_xent {
    int64_t n, vocab, ld;
    void *logits;
    const int32_t *targets;
    struct trl_xent_stats stats;
    /* called after the stats of all n rows are known and before the gradient is made: fill the coefficients. NULL: use
     * d_logp.. as they are (all NULL: no gradient) */
    void (*coef)(void *ctx, int64_t n, const struct trl_xent_stats *stats);
    void *coef_ctx;
    const float *d_logp, *d_entropy, *d_mean;
    float softcap;
    enum trl_dtype logits_dtype;
};

/* sum of squares of n elements, in a fixed order, returned in double; *ret */
struct trl_op_sumsq {
    int64_t n;
    const void *x;
    double *ret;
    enum trl_dtype dtype;
};

/* torch.optim.AdamW: p *= 1 - lr*wd; m,v EMA of g*grad_scale; p -= lr/(1-b1^t) * m / (sqrt(v)/sqrt(1-b2^t) + eps).
 * Types of p, g, m, v may be 16 bits wide. fused: computed in float32, each stored with one rounding (torch's fused
 * kernel); plain: every step of torch's single-tensor loop rounds to the type of what it writes. In float32 both agree.
 * g * grad_scale is rounded to g's type. p_copy: NULL or a copy of p rounded to copy_dtype (mixed precision).
 * Hyperparameters are doubles because torch derives 1 - beta etc. in double. (Same remarks for the other optimisers; they
 * follow their plain loops.) */
struct trl_op_adamw {
    int64_t n;
    void *p, *m, *v, *p_copy;
    const void *g;
    double lr, beta1, beta2, eps, weight_decay, grad_scale;
    double bias1, bias2; /* 1 - beta^t */
    bool fused;
    enum trl_dtype p_dtype, g_dtype, state_dtype, copy_dtype;
};
/* torch.optim.SGD: g += wd*p; buf = momentum*buf + (1-dampening)*g (first step: buf = g); p -= lr*(nesterov ? g+mu*buf : buf) */
struct trl_op_sgd {
    int64_t n;
    void *p, *buf, *p_copy; /* buf NULL: no momentum */
    const void *g;
    double lr, momentum, dampening, weight_decay, grad_scale;
    bool nesterov, first;
    enum trl_dtype p_dtype, g_dtype, state_dtype, copy_dtype;
};
/* Lion: p *= 1-lr*wd; p -= lr*sign(b1*m + (1-b1)*g); m = b2*m + (1-b2)*g */
struct trl_op_lion {
    int64_t n;
    void *p, *m, *p_copy;
    const void *g;
    double lr, beta1, beta2, weight_decay, grad_scale;
    enum trl_dtype p_dtype, g_dtype, state_dtype, copy_dtype;
};
/* transformers' Adafactor on one tensor seen as [rows, cols] (rows 1: a vector, unfactored: row_sq NULL, sq = second
 * moment [n]). relative steps off or on is decided by the caller through lr (already scaled) and the flags here. */
struct trl_op_adafactor {
    int64_t batch, rows, cols; /* leading dims beyond two are a batch */
    void *p, *p_copy;
    const void *g;
    float *row_sq, *col_sq, *sq, *m; /* m NULL: no first moment (beta1 None) */
    float *scratch;                  /* [batch*rows*cols] float */
    double lr, eps1, clip_threshold, beta2t, beta1, weight_decay, grad_scale;
    enum trl_dtype p_dtype, g_dtype, copy_dtype;
};

#define TRL_OPS(X)                                                                                 \
    X(gemm)                                                                                        \
    X(embed)                                                                                       \
    X(embed_bwd)                                                                                   \
    X(rmsnorm)                                                                                     \
    X(rmsnorm_bwd)                                                                                 \
    X(layernorm)                                                                                   \
    X(layernorm_bwd)                                                                               \
    X(rope)                                                                                        \
    X(attention)                                                                                   \
    X(attention_bwd)                                                                               \
    X(act)                                                                                         \
    X(act_bwd)                                                                                     \
    X(axpby)                                                                                       \
    X(add)                                                                                         \
    X(colsum)                                                                                      \
    X(rows)                                                                                        \
    X(xent)                                                                                        \
    X(sumsq)                                                                                       \
    X(adamw)                                                                                       \
    X(sgd)                                                                                         \
    X(lion)                                                                                        \
    X(adafactor)

struct trl_backend;
struct trl_ops {
#define X(name) int (*name)(struct trl_backend *be, const struct trl_op_##name *a);
    TRL_OPS(X)
#undef X
};

#endif
