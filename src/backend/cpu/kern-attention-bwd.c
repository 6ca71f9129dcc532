/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Attention backward. With P = exp(z - lse), dP = dO V^T (times dropout's factors, as P in dV is),
 * dz = P (dP - delta), delta = rowsum(dO *
 * O), dS = dz through softcap:  dQ = scale dS K,  dK = scale dS^T Q,  dV = P^T dO. All tiles are
 * [key][query]; dQ, dK, dV are summed transposed, [d][token]. An item is a head of a doc, or a kv
 * head with its group when there are enough of those; the choice depends on sizes only, so the
 * order of sums does not depend on the number of threads.
 */
#include <math.h>

#include "backend/cpu/kern-attention.h"
#include "backend/cpu/kern-transpose.h"

enum { ENOUGH_ITEMS = 16 };

struct bwd {
    char *k, *v, *kt; /* keys, values [tokens][d]; keys [d][tokens] */
    char *q, *g, *qt, *gt; /* this tile's q and dO: B panels [d][nr]; A panels [d][queries] */
    char *b; /* B panel made from a tile */
    float *p, *ds; /* [ATT_BLOCK][nr] */
    float *dq; /* [d_m][nr] */
    float *lse, *delta; /* [nr] */
    float *rows; /* [ATT_BLOCK or nr][d] */
    int64_t doc, kv;
};

struct bwd_job {
    struct att x;
    const struct trl_op_attention_bwd *b;
    bool by_group;
    int64_t per_item; /* heads an item works through */
    float *dk, *dv; /* sums [set][d_m][ld]; a set is a query head, or (by group) a thread */
    int64_t ld; /* tokens; room for a tile behind each doc, because whole tiles are added */
    size_t set; /* floats of a set */
};

static size_t bwd_layout(const struct att *x, struct bwd *f, char *base)
{
    size_t at = 0, nr = (size_t)x->nr, elem = (size_t)x->kern->elem;
    size_t q_pad = (size_t)trl_round_up(x->nr, x->kern->k_step);
#define TAKE(field, bytes) \
    do { \
        if (f) \
            f->field = (void *)(base + at); \
        at += ((size_t)(bytes) + 63) & ~(size_t)63; \
    } while (0)
    TAKE(k, (size_t)(x->t_pad * x->d_k) * elem);
    TAKE(v, (size_t)(x->t_pad * x->d_k) * elem);
    TAKE(kt, (size_t)(x->t_pad * x->d_m) * elem);
    TAKE(q, (size_t)x->d_k * nr * elem);
    TAKE(g, (size_t)x->d_k * nr * elem);
    TAKE(qt, (size_t)x->d_m * q_pad * elem);
    TAKE(gt, (size_t)x->d_m * q_pad * elem);
    TAKE(b, (ATT_BLOCK > q_pad ? ATT_BLOCK : q_pad) * nr * elem);
    TAKE(p, ATT_BLOCK * nr * 4);
    TAKE(ds, ATT_BLOCK * nr * 4);
    TAKE(dq, (size_t)x->d_m * nr * 4);
    TAKE(lse, nr * 4);
    TAKE(delta, nr * 4);
    TAKE(rows, ATT_BLOCK * (size_t)x->a->d * 4);
#undef TAKE
    return at;
}

/* p: scores -> probabilities; ds: dP -> dS (without scale) */
INLINE void softmax_bwd(const struct att *x, struct bwd *f, int64_t h, int64_t k0, int64_t nk,
    int64_t q0, bool mask)
{
    const struct trl_op_attention *a = x->a;
    for (int64_t i = 0; i < nk; i++)
        for (int c = 0; c < x->nr; c += VW) {
            float *ps = f->p + i * x->nr + c, *pd = f->ds + i * x->nr + c;
            vf z = att_score(a, v_loadf(ps), k0 + i, q0 + c, mask);
            vf p = v_exp(z - v_loadf(f->lse + c));
            vf dp = v_loadf(pd), kept = p;
            if (a->dropout > 0) {
                vf keep = att_keep(a, h, k0 + i, q0 + c);
                dp *= keep;
                kept *= keep;
            }
            vf d = p * (dp - v_loadf(f->delta + c));
            if (a->softcap > 0) {
                vf r = z * v_set(1 / a->softcap);
                vf slope = 1.0f - r * r;
                d *= mask ? v_if_gt(z, v_set(0.5f * ATT_MASKED), slope, v_zero()) : slope;
            }
            v_storef(ps, v_round(x->round, kept));
            v_storef(pd, v_round(x->round, d));
        }
}

/* sum[d][keys k0..] += A(features of the tile's queries) * B(tile as [query][key]) */
static void add_key_gradient(const struct att *x, struct bwd *f, const char *features,
    const float *tile, int64_t nk, int64_t nq, float *sum, int64_t ld)
{
    struct trl_pack_src s = {tile, x->nr, TRL_DTYPE_F32, x->a->round, true};
    size_t step = att_features_step(x, nq);
    for (int64_t i = 0; i < nk; i += x->nr) {
        x->kern->pack_b(f->b, 0, &s, i, trl_min64(x->nr, nk - i), 0, nq);
        att_product(x, nq, features, x->d_m / x->mr, step, f->b, sum + i, ld, true);
    }
}

/* This tile's q and dO in all the layouts; lse and delta of its queries. */
static void load_tile(const struct bwd_job *j, struct bwd *f, int64_t h, int64_t q0, int64_t nq)
{
    const struct att *x = &j->x;
    const struct trl_op_attention *a = x->a;
    struct trl_pack_src q = att_src(x, a->q, a->ld_q, h, true),
                        g = att_src(x, j->b->d_out, a->ld_out, h, true);
    x->kern->pack_b(f->q, 0, &q, q0, nq, 0, a->d);
    x->kern->pack_b(f->g, 0, &g, q0, nq, 0, a->d);
    q.k_contig = g.k_contig = false;
    x->kern->pack_a(f->qt, att_features_step(x, nq), &q, 0, a->d, q0, nq);
    x->kern->pack_a(f->gt, att_features_step(x, nq), &g, 0, a->d, q0, nq);
    for (int64_t t = 0; t < x->nr; t++) {
        /* columns behind the doc's end: probability exp(0 - inf) = 0 */
        f->lse[t] = t < nq ? a->lse[h * a->n + q0 + t] : INFINITY;
        f->delta[t] = 0;
        if (t >= nq)
            continue;
        vf sum = v_zero();
        for (int64_t c = 0; c < a->d; c += VW)
            sum = v_fma(
                v_round(a->round,
                    v_load_n(a->dtype, j->b->d_out, (q0 + t) * a->ld_out + h * a->d + c, a->d - c)),
                v_load_n(a->dtype, a->out, (q0 + t) * a->ld_out + h * a->d + c, a->d - c), sum);
        f->delta[t] = v_sum(sum);
    }
}

/* ret[tokens][d] (type, stride) = scale * sum[d][tokens] */
static void store_transposed(const struct att *x, struct bwd *f, void *ret, int64_t ld_ret,
    int64_t h, int64_t t0, int64_t n, const float *sum, int64_t ld, float scale)
{
    int64_t d = x->a->d;
    for (int64_t i = 0; i < n; i += ATT_BLOCK) {
        int64_t m = trl_min64(ATT_BLOCK, n - i);
        kern_transpose(f->rows, d, sum + i, ld, d, m);
        for (int64_t t = 0; t < m; t++)
            for (int64_t c = 0; c < d; c += VW)
                v_store_n(x->a->dtype, ret, (t0 + i + t) * ld_ret + h * d + c, d - c,
                    v_load_n(TRL_DTYPE_F32, f->rows, t * d + c, d - c) * v_set(scale));
    }
}

static void bwd_tile(const struct bwd_job *j, struct bwd *f, int64_t s0, int64_t s1, int64_t h,
    int64_t q0, float *dk, float *dv)
{
    const struct att *x = &j->x;
    const struct trl_op_attention *a = x->a;
    int64_t nq = trl_min64(x->nr, s1 - q0);
    bool first = true;
    load_tile(j, f, h, q0, nq);
    for (int64_t b = (att_first_key(a, s0, q0) - s0) / ATT_BLOCK; s0 + b * ATT_BLOCK < q0 + nq;
         b++, first = false) {
        int64_t k0 = s0 + b * ATT_BLOCK, nk = trl_min64(ATT_BLOCK, q0 + nq - k0),
                have = trl_min64(ATT_BLOCK, s1 - k0);
        int64_t panels = (nk + x->mr - 1) / x->mr;
        size_t at = (size_t)(b * ATT_BLOCK / x->mr) * x->rows_panel;
        att_product(x, x->d_k, f->k + at, panels, x->rows_panel, f->q, f->p, x->nr, false);
        att_product(x, x->d_k, f->v + at, panels, x->rows_panel, f->g, f->ds, x->nr, false);
        if (att_needs_mask(a, k0, nk, q0, nq))
            softmax_bwd(x, f, h, k0, nk, q0, true);
        else
            softmax_bwd(x, f, h, k0, nk, q0, false);
        add_key_gradient(x, f, f->gt, f->p, nk, nq, dv + b * ATT_BLOCK, j->ld);
        add_key_gradient(x, f, f->qt, f->ds, nk, nq, dk + b * ATT_BLOCK, j->ld);
        att_product(x, nk, f->kt + (size_t)b * att_block_bytes(x), x->d_m / x->mr,
            att_features_step(x, have), att_tile_as_b(x, f->ds, nk, f->b), f->dq, x->nr, !first);
    }
    store_transposed(x, f, j->b->dq, j->b->ld_dq, h, q0, nq, f->dq, x->nr, a->scale);
}

static void load_doc(const struct att *x, struct bwd *f, int64_t s0, int64_t s1, int64_t kv)
{
    struct trl_pack_src k = att_src(x, x->a->k, x->a->ld_k, kv, true),
                        v = att_src(x, x->a->v, x->a->ld_v, kv, true);
    att_pack_tokens(x, f->k, &k, s0, s1 - s0);
    att_pack_tokens(x, f->v, &v, s0, s1 - s0);
    k.k_contig = false;
    att_pack_features(x, f->kt, &k, s0, s1 - s0);
    f->doc = s1;
    f->kv = kv;
}

static void bwd_item(const struct bwd_job *j, struct bwd *f, int64_t doc, int64_t head, int thread)
{
    const struct att *x = &j->x;
    int64_t group = x->a->hq / x->a->hkv, h0 = j->by_group ? head * group : head, kv = h0 / group;
    int64_t s0 = x->a->doc_start[doc], s1 = x->a->doc_start[doc + 1];
    size_t set = j->by_group ? (size_t)thread : (size_t)head;
    int64_t column = j->by_group ? 0 : s0 + doc * ATT_MAX_NR;
    float *dk = j->dk + set * j->set + column, *dv = j->dv + set * j->set + column;
    if (f->doc != s1 || f->kv != kv)
        load_doc(x, f, s0, s1, kv);
    for (int64_t i = 0; i < x->d_m; i++) {
        memset(dk + i * j->ld, 0, (size_t)(s1 - s0) * sizeof(float));
        memset(dv + i * j->ld, 0, (size_t)(s1 - s0) * sizeof(float));
    }
    for (int64_t h = h0; h < h0 + j->per_item; h++)
        for (int64_t q0 = s0; q0 < s1; q0 += x->nr)
            bwd_tile(j, f, s0, s1, h, q0, dk, dv);
    if (j->by_group) {
        store_transposed(x, f, j->b->dk, j->b->ld_dk, kv, s0, s1 - s0, dk, j->ld, x->a->scale);
        store_transposed(x, f, j->b->dv, j->b->ld_dv, kv, s0, s1 - s0, dv, j->ld, 1);
    }
}

static void bwd_thread(void *ctx, int thread, int n_threads)
{
    const struct bwd_job *j = ctx;
    const struct att *x = &j->x;
    const struct trl_op_attention *a = x->a;
    int64_t heads = j->by_group ? a->hkv : a->hq;
    struct bwd f;
    bwd_layout(x, &f, x->work + (size_t)thread * x->work_per_thread);
    f.doc = f.kv = -1;
    double total = 0, before = 0;
    for (int64_t doc = 0; doc < a->n_docs; doc++)
        total += att_cost(a, 0, a->doc_start[doc + 1] - a->doc_start[doc]) * (double)heads;
    if (x->kern->begin)
        x->kern->begin();
    for (int64_t doc = 0; doc < a->n_docs; doc++) {
        int64_t s0 = a->doc_start[doc], s1 = a->doc_start[doc + 1];
        for (int64_t h = 0; h < heads; h++) {
            double cost = att_cost(a, 0, s1 - s0);
            if (s1 > s0 && att_mine(before, cost, total, thread, n_threads))
                bwd_item(j, &f, doc, h, thread);
            before += cost;
        }
    }
    if (x->kern->end)
        x->kern->end();
}

/* by head: dk, dv of a kv head are the sums of its group's, in order; tokens [t0, t1) of a doc */
static void add_group(const struct bwd_job *j, struct bwd *f, int64_t doc, int64_t t0, int64_t t1)
{
    const struct att *x = &j->x;
    int64_t group = x->a->hq / x->a->hkv, n = t1 - t0;
    for (int64_t kv = 0; kv < x->a->hkv; kv++) {
        size_t at = (size_t)(kv * group) * j->set + (size_t)(t0 + doc * ATT_MAX_NR);
        float *dk = j->dk + at, *dv = j->dv + at;
        for (int64_t g = 1; g < group; g++) {
            const float *more_k = dk + (size_t)g * j->set, *more_v = dv + (size_t)g * j->set;
            for (int64_t i = 0; i < x->a->d; i++)
                for (int64_t t = i * j->ld; t < i * j->ld + n; t++) {
                    dk[t] += more_k[t];
                    dv[t] += more_v[t];
                }
        }
        store_transposed(x, f, j->b->dk, j->b->ld_dk, kv, t0, n, dk, j->ld, x->a->scale);
        store_transposed(x, f, j->b->dv, j->b->ld_dv, kv, t0, n, dv, j->ld, 1);
    }
}

static void add_groups(void *ctx, int64_t begin, int64_t end, int thread)
{
    const struct bwd_job *j = ctx;
    const struct att *x = &j->x;
    struct bwd f;
    bwd_layout(x, &f, x->work + (size_t)thread * x->work_per_thread);
    for (int64_t doc = 0; doc < x->a->n_docs; doc++) {
        int64_t t0 = x->a->doc_start[doc], t1 = x->a->doc_start[doc + 1];
        t0 = t0 > begin ? t0 : begin;
        t1 = t1 < end ? t1 : end;
        if (t0 < t1)
            add_group(j, &f, doc, t0, t1);
    }
}

int KERN(attention_bwd)(struct trl_backend *be, const struct trl_op_attention_bwd *b)
{
    const struct trl_op_attention *a = &b->fwd;
    struct bwd_job j = {.b = b, .by_group = a->n_docs * a->hkv >= ENOUGH_ITEMS || a->hq == a->hkv};
    size_t threads = (size_t)trl_pool_size(be->pool);
    att_init(&j.x, be, a);
    if (j.x.t_max == 0)
        return 0;
    j.per_item = j.by_group ? a->hq / a->hkv : 1;
    j.ld = j.by_group ? j.x.t_pad + ATT_MAX_NR : a->n + a->n_docs * ATT_MAX_NR;
    j.set = (size_t)(j.x.d_m * j.ld);
    size_t sets = j.by_group ? threads : (size_t)a->hq;
    j.x.work_per_thread = bwd_layout(&j.x, NULL, NULL);
    j.x.work = trl_cpu_work(be, j.x.work_per_thread * threads + 2 * sets * j.set * sizeof(float));
    if (!j.x.work)
        return TRL_E_NOMEM;
    j.dk = (float *)(void *)(j.x.work + j.x.work_per_thread * threads);
    j.dv = j.dk + sets * j.set;
    trl_pool_run(be->pool, bwd_thread, &j);
    if (!j.by_group)
        trl_parallel_for(be->pool, a->n, 64, add_groups, &j);
    return 0;
}
