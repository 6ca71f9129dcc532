/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>

#include "backend/ref/ref.h"
#include "base/alloc.h"

/* Element of token t, head h, rounded to the product type. */
static double at(
    const struct trl_op_attention *a, const void *x, int64_t ld, int64_t t, int64_t h, int64_t j)
{
    return ref_round(a->round, (float)ref_get(a->dtype, x, t * ld + h * a->d + j));
}

/* First key that query t of the doc starting at s0 sees. */
static int64_t first_key(const struct trl_op_attention *a, int64_t s0, int64_t t)
{
    return a->window > 0 && t - a->window + 1 > s0 ? t - a->window + 1 : s0;
}

static double score(const struct trl_op_attention *a, int64_t t, int64_t s, int64_t h)
{
    double x = 0;
    for (int64_t j = 0; j < a->d; j++)
        x += at(a, a->q, a->ld_q, t, h, j) * at(a, a->k, a->ld_k, s, h / (a->hq / a->hkv), j);
    x *= a->scale;
    return a->softcap > 0 ? a->softcap * tanh(x / a->softcap) : x;
}

/* Factor of a probability: 1 without dropout */
static double keep(const struct trl_op_attention *a, int64_t h, int64_t t, int64_t s)
{
    return a->dropout > 0 ? trl_op_attention_keep(a, h, t, s) : 1;
}

/* p[s - lo] = probabilities of query t over its keys [lo, t]; returns the log-sum-exp */
static double softmax_row(
    const struct trl_op_attention *a, int64_t lo, int64_t t, int64_t h, double *p)
{
    double max = -INFINITY, sum = 0;
    for (int64_t s = lo; s <= t; s++) {
        p[s - lo] = score(a, t, s, h);
        max = p[s - lo] > max ? p[s - lo] : max;
    }
    for (int64_t s = lo; s <= t; s++)
        sum += exp(p[s - lo] - max);
    for (int64_t s = lo; s <= t; s++)
        p[s - lo] = exp(p[s - lo] - max) / sum;
    return max + log(sum);
}

int trl_ref_attention(struct trl_backend *be, const struct trl_op_attention *a)
{
    (void)be;
    double *p = trl_malloc_array((size_t)a->n, sizeof(*p));
    if (!p)
        return TRL_E_NOMEM;
    for (int64_t doc = 0; doc < a->n_docs; doc++)
        for (int64_t t = a->doc_start[doc]; t < a->doc_start[doc + 1]; t++)
            for (int64_t h = 0; h < a->hq; h++) {
                int64_t lo = first_key(a, a->doc_start[doc], t);
                double lse = softmax_row(a, lo, t, h, p);
                if (a->lse)
                    a->lse[h * a->n + t] = (float)lse;
                for (int64_t j = 0; j < a->d; j++) {
                    double o = 0;
                    for (int64_t s = lo; s <= t; s++)
                        o += ref_round(a->round, (float)(p[s - lo] * keep(a, h, t, s))) *
                            at(a, a->v, a->ld_v, s, h / (a->hq / a->hkv), j);
                    ref_put(a->dtype, a->out, t * a->ld_out + h * a->d + j, o);
                }
            }
    trl_free(p);
    return 0;
}

/*
 * dP = keep * dO V^T, dS = P * (dP - rowsum(P * dP)) through softcap and scale, dQ = dS K, dK = dS^T Q, dV
 * = P^T dO. P, dS and dO are rounded to the product type before they are multiplied.
 */
static void backward_row(const struct trl_op_attention_bwd *b, int64_t lo, int64_t t, int64_t h,
    double *p, double *dp, double *dk, double *dv)
{
    const struct trl_op_attention *a = &b->fwd;
    int64_t kv = h / (a->hq / a->hkv), width = a->hkv * a->d;
    double delta = 0;
    softmax_row(a, lo, t, h, p);
    for (int64_t s = lo; s <= t; s++) {
        dp[s - lo] = 0;
        for (int64_t j = 0; j < a->d; j++)
            dp[s - lo] += at(a, b->d_out, a->ld_out, t, h, j) * at(a, a->v, a->ld_v, s, kv, j);
        dp[s - lo] *= keep(a, h, t, s);
        delta += p[s - lo] * dp[s - lo];
    }
    for (int64_t s = lo; s <= t; s++) {
        double ds = p[s - lo] * (dp[s - lo] - delta);
        if (a->softcap > 0) {
            double c = score(a, t, s, h) / a->softcap;
            ds *= 1 - c * c;
        }
        dp[s - lo] = ref_round(a->round, (float)ds);
        double pr = ref_round(a->round, (float)(p[s - lo] * keep(a, h, t, s)));
        for (int64_t j = 0; j < a->d; j++) {
            dk[s * width + kv * a->d + j] += a->scale * dp[s - lo] * at(a, a->q, a->ld_q, t, h, j);
            dv[s * width + kv * a->d + j] += pr * at(a, b->d_out, a->ld_out, t, h, j);
        }
    }
    for (int64_t j = 0; j < a->d; j++) {
        double dq = 0;
        for (int64_t s = lo; s <= t; s++)
            dq += a->scale * dp[s - lo] * at(a, a->k, a->ld_k, s, kv, j);
        ref_put(a->dtype, b->dq, t * b->ld_dq + h * a->d + j, dq);
    }
}

int trl_ref_attention_bwd(struct trl_backend *be, const struct trl_op_attention_bwd *b)
{
    (void)be;
    const struct trl_op_attention *a = &b->fwd;
    int64_t width = a->hkv * a->d;
    double *p = trl_malloc_array((size_t)a->n, 2 * sizeof(*p));
    double *dk = trl_calloc((size_t)(a->n * width), 2 * sizeof(*dk));
    int rc = TRL_E_NOMEM;
    if (!p || !dk)
        goto out;
    double *dv = dk + a->n * width;
    for (int64_t doc = 0; doc < a->n_docs; doc++)
        for (int64_t t = a->doc_start[doc]; t < a->doc_start[doc + 1]; t++)
            for (int64_t h = 0; h < a->hq; h++)
                backward_row(b, first_key(a, a->doc_start[doc], t), t, h, p, p + a->n, dk, dv);
    for (int64_t t = 0; t < a->n; t++)
        for (int64_t j = 0; j < width; j++) {
            ref_put(a->dtype, b->dk, t * b->ld_dk + j, dk[t * width + j]);
            ref_put(a->dtype, b->dv, t * b->ld_dv + j, dv[t * width + j]);
        }
    rc = 0;
out:
    trl_free(p);
    trl_free(dk);
    return rc;
}
