/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TRL_BACKEND_CPU_KERN_ATTENTION_H
#define TRL_BACKEND_CPU_KERN_ATTENTION_H
/*
 * What the two directions of attention share. Everything is kept transposed: a tile holds
 * scores[key][query] for NR queries, so that softmax works on whole vectors of queries and a tile
 * of probabilities is already laid out as the right factor (B panel) of the next product. Queries
 * come in tiles of nr (the kernel's panel width), keys in blocks of BLOCK.
 */
#include "backend/cpu/kern.h"

enum {
    ATT_BLOCK = 192 /* keys; a multiple of every kernel's mr, nr and k_step */,
    ATT_MAX_NR = 64
};
#define ATT_MASKED (-1e30f)

struct att {
    const struct trl_op_attention *a;
    const struct trl_gemm_kern *kern;
    int mr, nr;
    int64_t d_m, d_k; /* head size padded to mr and to k_step */
    int64_t t_max, t_pad; /* longest doc; padded to whole blocks */
    enum trl_dtype round; /* rounding that packing does not do by itself (no bf16 kernel): of tiles
                             used in place */
    size_t rows_panel; /* bytes of an A panel over the head size */
    size_t work_per_thread;
    char *work;
};

static inline void att_init(struct att *x, struct trl_backend *be, const struct trl_op_attention *a)
{
    struct trl_cpu_impl *impl = trl_cpu_impl(be);
    bool tiles = impl->gemm_bf16 && a->round == TRL_DTYPE_BF16;
    *x = (struct att){.a = a, .kern = tiles ? impl->gemm_bf16 : impl->table->gemm_f32};
    x->round = tiles ? TRL_DTYPE_F32 : a->round;
    x->mr = x->kern->mr;
    x->nr = x->kern->nr;
    x->d_m = trl_round_up(a->d, x->mr);
    x->d_k = trl_round_up(a->d, x->kern->k_step);
    for (int64_t i = 0; i < a->n_docs; i++)
        if (a->doc_start[i + 1] - a->doc_start[i] > x->t_max)
            x->t_max = a->doc_start[i + 1] - a->doc_start[i];
    x->t_pad = trl_round_up(x->t_max, ATT_BLOCK);
    x->rows_panel = (size_t)(x->mr * x->d_k * x->kern->elem);
}

/* Head h of a [N, heads, d] array as rows of tokens (k = features) or, with by_token false, rows of
 * features (k = tokens). */
static inline struct trl_pack_src att_src(
    const struct att *x, const void *p, int64_t ld, int64_t h, bool by_token)
{
    return (struct trl_pack_src){
        (const char *)p + (size_t)(h * x->a->d) * trl_dtype_size(x->a->dtype), ld, x->a->dtype,
        x->a->round, by_token};
}

/* A panels [tokens][d] of tokens t0 .. t0+n */
static inline void att_pack_tokens(
    const struct att *x, char *dst, const struct trl_pack_src *s, int64_t t0, int64_t n)
{
    x->kern->pack_a(dst, x->rows_panel, s, t0, n, 0, x->a->d);
}
/* A panels [d][tokens], one group for each block of keys, all groups of the size of a full one */
static inline size_t att_block_bytes(const struct att *x)
{
    return (size_t)(x->d_m * ATT_BLOCK * x->kern->elem);
}
static inline size_t att_features_step(const struct att *x, int64_t n)
{
    return (size_t)(x->mr * trl_round_up(n, x->kern->k_step) * x->kern->elem);
}
static inline void att_pack_features(
    const struct att *x, char *dst, const struct trl_pack_src *s, int64_t t0, int64_t n)
{
    for (int64_t k0 = 0; k0 < n; k0 += ATT_BLOCK, dst += att_block_bytes(x)) {
        int64_t nk = trl_min64(ATT_BLOCK, n - k0);
        x->kern->pack_a(dst, att_features_step(x, nk), s, 0, x->a->d, t0 + k0, nk);
    }
}

/* c[panels*mr][nr] (+)= A panels * one B panel */
static inline void att_product(const struct att *x, int64_t k, const char *a, int64_t panels,
    size_t step, const void *b, float *c, int64_t ldc, bool load)
{
    k = trl_round_up(k, x->kern->k_step);
    for (int64_t i = 0; i < panels; i++)
        x->kern->micro(k, a + (size_t)i * step, b, c + i * x->mr * ldc, ldc, load);
}

/* A tile [k][nr] of floats as B panel: in place, or rounded into buf for the tile kernel. */
static inline const void *att_tile_as_b(
    const struct att *x, const float *tile, int64_t k, void *buf)
{
    if (x->kern->elem == 4)
        return tile;
    struct trl_pack_src s = {tile, x->nr, TRL_DTYPE_F32, x->a->round, false};
    x->kern->pack_b(buf, 0, &s, 0, x->nr, 0, k);
    return buf;
}

/* Does [k0, k0+nk) x [q0, q0+nq) hold pairs that the causal mask or the window hides? */
static inline bool att_needs_mask(
    const struct trl_op_attention *a, int64_t k0, int64_t nk, int64_t q0, int64_t nq)
{
    return k0 + nk - 1 > q0 || (a->window > 0 && k0 <= q0 + nq - 1 - a->window);
}
static inline int64_t att_first_key(const struct trl_op_attention *a, int64_t s0, int64_t t)
{
    return a->window > 0 && t - a->window + 1 > s0 ? t - a->window + 1 : s0;
}

/* scores of key `key` for the VW queries from q on: scaled, capped, hidden ones ATT_MASKED */
INLINE vf att_score(const struct trl_op_attention *a, vf x, int64_t key, int64_t q, bool mask)
{
    x *= v_set(a->scale);
    if (a->softcap > 0)
        x = v_set(a->softcap) * v_tanh(x * v_set(1 / a->softcap));
    if (mask) {
        static const float lanes[16] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
        vf dist = v_loadf(lanes) + v_set((float)(q - key)); /* visible: 0 <= dist < window */
        vf hidden = v_set(ATT_MASKED);
        x = v_if_gt(dist, v_set(-0.5f), x, hidden);
        if (a->window > 0)
            x = v_if_gt(v_set((float)a->window - 0.5f), dist, x, hidden);
    }
    return x;
}

/* Dropout's factors of key `key` for the VW queries from q on; not worth vectors: few models use it */
static inline vf att_keep(const struct trl_op_attention *a, int64_t h, int64_t key, int64_t q)
{
    float f[VW];
    for (int i = 0; i < VW; i++)
        f[i] = trl_op_attention_keep(a, h, q + i, key);
    return v_loadf(f);
}

/* Contiguous shares of about equal cost: does an item whose cost spans [before, before + cost)
 * belong to this thread? */
static inline bool att_mine(double before, double cost, double total, int thread, int n_threads)
{
    double at = (before + cost / 2) / total * n_threads;
    int owner = at >= n_threads ? n_threads - 1 : (int)at;
    return owner == thread;
}
/* Pairs of a doc's queries [q, q+n) (relative) with the keys they see, plus the cost of a query
 * itself */
static inline double att_cost(const struct trl_op_attention *a, int64_t q, int64_t n)
{
    double w = a->window > 0 ? (double)a->window : INFINITY, mean = (double)q + 0.5 * (double)n;
    return (double)n * ((mean < w ? mean : w) + 32);
}

#endif
