/* SPDX-License-Identifier: Apache-2.0 */
/* Attention forward: for each tile of queries of a head, blocks of keys with a running softmax. */
#include <math.h>

#include "backend/cpu/kern-attention.h"
#include "backend/cpu/kern-transpose.h"

/* One thread's work memory. */
struct fwd {
    char *k, *v; /* packed keys [tokens][d] and values [d][tokens] of one kv head of one doc */
    char *q, *p; /* B panels: queries [d][nr]; probabilities (tile kernel only) */
    float *s, *o; /* scores [ATT_BLOCK][nr]; output [d_m][nr] */
    float *max, *sum; /* [nr] */
    float *rows; /* [nr][d]: the output turned back */
    int64_t doc, kv; /* what k and v hold */
};

static size_t fwd_layout(const struct att *x, struct fwd *f, char *base)
{
    size_t at = 0;
    size_t nr = (size_t)x->nr, elem = (size_t)x->kern->elem;
#define TAKE(field, bytes) \
    do { \
        if (f) \
            f->field = (void *)(base + at); \
        at += ((size_t)(bytes) + 63) & ~(size_t)63; \
    } while (0)
    TAKE(k, (size_t)(x->t_pad * x->d_k) * elem);
    TAKE(v, (size_t)(x->t_pad * x->d_m) * elem);
    TAKE(q, (size_t)x->d_k * nr * elem);
    TAKE(p, ATT_BLOCK * nr * elem);
    TAKE(s, ATT_BLOCK * nr * 4);
    TAKE(o, (size_t)x->d_m * nr * 4);
    TAKE(max, nr * 4);
    TAKE(sum, nr * 4);
    TAKE(rows, (size_t)x->a->d * nr * 4);
#undef TAKE
    return at;
}

/* Turn a block of scores into exp(score - max), keep max and sum, shrink the output so far. */
INLINE void softmax_block(const struct att *x, struct fwd *f, int64_t h, int64_t k0, int64_t nk,
    int64_t q0, bool mask, bool first)
{
    for (int c = 0; c < x->nr; c += VW) {
        vf old = v_loadf(f->max + c), max = old, sum = v_zero();
        for (int64_t i = 0; i < nk; i++) {
            vf z = att_score(x->a, v_loadf(f->s + i * x->nr + c), k0 + i, q0 + c, mask);
            v_storef(f->s + i * x->nr + c, z);
            max = v_max(max, z);
        }
        for (int64_t i = 0; i < nk; i++) {
            vf p = v_exp(v_loadf(f->s + i * x->nr + c) - max);
            sum += p;
            if (x->a->dropout > 0)
                p *= att_keep(x->a, h, k0 + i, q0 + c);
            v_storef(f->s + i * x->nr + c, v_round(x->round, p));
        }
        vf shrink = v_exp(old - max);
        v_storef(f->max + c, max);
        v_storef(f->sum + c, v_fma(v_loadf(f->sum + c), shrink, sum));
        if (!first)
            for (int64_t j = 0; j < x->a->d; j++)
                v_storef(f->o + j * x->nr + c, v_loadf(f->o + j * x->nr + c) * shrink);
    }
}

static void store_tile(const struct att *x, struct fwd *f, int64_t h, int64_t q0, int64_t nq)
{
    const struct trl_op_attention *a = x->a;
    kern_transpose(f->rows, a->d, f->o, x->nr, a->d, nq);
    for (int64_t t = 0; t < nq; t++) {
        vf inv = v_set(1 / f->sum[t]);
        for (int64_t j = 0; j < a->d; j += VW)
            v_store_n(a->dtype, a->out, (q0 + t) * a->ld_out + h * a->d + j, a->d - j,
                v_load_n(TRL_DTYPE_F32, f->rows, t * a->d + j, a->d - j) * inv);
        if (a->lse)
            a->lse[h * a->n + q0 + t] = f->max[t] + logf(f->sum[t]);
    }
}

static void fwd_tile(
    const struct att *x, struct fwd *f, int64_t s0, int64_t h, int64_t q0, int64_t nq)
{
    const struct trl_op_attention *a = x->a;
    struct trl_pack_src q = att_src(x, a->q, a->ld_q, h, true);
    x->kern->pack_b(f->q, 0, &q, q0, nq, 0, a->d);
    for (int c = 0; c < x->nr; c++) {
        f->max[c] = ATT_MASKED;
        f->sum[c] = 0;
    }
    bool first = true;
    for (int64_t b = (att_first_key(a, s0, q0) - s0) / ATT_BLOCK; s0 + b * ATT_BLOCK < q0 + nq;
         b++, first = false) {
        int64_t k0 = s0 + b * ATT_BLOCK, nk = trl_min64(ATT_BLOCK, q0 + nq - k0);
        int64_t have = trl_min64(ATT_BLOCK, f->doc - k0); /* keys of this block that were packed */
        att_product(x, x->d_k, f->k + (size_t)(b * ATT_BLOCK / x->mr) * x->rows_panel,
            (nk + x->mr - 1) / x->mr, x->rows_panel, f->q, f->s, x->nr, false);
        if (att_needs_mask(a, k0, nk, q0, nq))
            softmax_block(x, f, h, k0, nk, q0, true, first);
        else
            softmax_block(x, f, h, k0, nk, q0, false, first);
        att_product(x, nk, f->v + (size_t)b * att_block_bytes(x), x->d_m / x->mr,
            att_features_step(x, have), att_tile_as_b(x, f->s, nk, f->p), f->o, x->nr, !first);
    }
    store_tile(x, f, h, q0, nq);
}

static void load_doc(const struct att *x, struct fwd *f, int64_t s0, int64_t s1, int64_t kv)
{
    struct trl_pack_src k = att_src(x, x->a->k, x->a->ld_k, kv, true),
                        v = att_src(x, x->a->v, x->a->ld_v, kv, false);
    att_pack_tokens(x, f->k, &k, s0, s1 - s0);
    att_pack_features(x, f->v, &v, s0, s1 - s0);
    f->doc = s1;
    f->kv = kv;
}

/* Items: (doc, kv head, tile of queries, query head of the group), in this order. */
static void fwd_thread(void *ctx, int thread, int n_threads)
{
    const struct att *x = ctx;
    const struct trl_op_attention *a = x->a;
    int64_t group = a->hq / a->hkv;
    struct fwd f;
    fwd_layout(x, &f, x->work + (size_t)thread * x->work_per_thread);
    f.doc = f.kv = -1;
    double total = 0, before = 0;
    for (int64_t doc = 0; doc < a->n_docs; doc++)
        total += att_cost(a, 0, a->doc_start[doc + 1] - a->doc_start[doc]) * (double)a->hq;
    if (x->kern->begin)
        x->kern->begin();
    for (int64_t doc = 0; doc < a->n_docs; doc++) {
        int64_t s0 = a->doc_start[doc], s1 = a->doc_start[doc + 1];
        for (int64_t kv = 0; kv < a->hkv; kv++)
            for (int64_t q0 = s0; q0 < s1; q0 += x->nr)
                for (int64_t h = kv * group; h < (kv + 1) * group; h++) {
                    int64_t nq = trl_min64(x->nr, s1 - q0);
                    double cost = att_cost(a, q0 - s0, nq);
                    if (att_mine(before, cost, total, thread, n_threads)) {
                        if (f.doc != s1 || f.kv != kv)
                            load_doc(x, &f, s0, s1, kv);
                        fwd_tile(x, &f, s0, h, q0, nq);
                    }
                    before += cost;
                }
    }
    if (x->kern->end)
        x->kern->end();
}

int KERN(attention)(struct trl_backend *be, const struct trl_op_attention *a)
{
    struct att x;
    att_init(&x, be, a);
    if (x.t_max == 0)
        return 0;
    x.work_per_thread = fwd_layout(&x, NULL, NULL);
    x.work = trl_cpu_work(be, x.work_per_thread * (size_t)trl_pool_size(be->pool));
    if (!x.work)
        return TRL_E_NOMEM;
    trl_pool_run(be->pool, fwd_thread, &x);
    return 0;
}
