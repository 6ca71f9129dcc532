/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Cross-entropy of one chunk of logits, row by row: a row of 50,000 floats stays in the
 * second-level cache between its passes (maximum, sum of exponentials, gradient). Sums over the
 * vocabulary are float32 inside pieces and double between.
 */
#include "backend/cpu/kern.h"

enum { PIECE = 1024 };

struct job {
    const struct trl_op_xent *a;
    /* [n], for the gradient: log-sum-exp = max + log_sum, apart because their sum would lose digits
     */
    float *max, *log_sum, *entropy;
    bool want_entropy, gradient;
};

INLINE vf capped(const struct trl_op_xent *a, vf x)
{
    if (a->softcap > 0)
        x = v_set(a->softcap) * v_tanh(x * v_set(1 / a->softcap));
    return x;
}

/* lanes from n on replaced by `fill` */
INLINE vf fill_tail(vf v, int64_t n, float fill)
{
    if (n >= VW)
        return v;
    float x[VW];
    v_storef(x, v);
    for (int64_t i = n; i < VW; i++)
        x[i] = fill;
    return v_loadf(x);
}

INLINE float row_max(const struct trl_op_xent *a, const void *x, enum trl_dtype t)
{
    vf m0 = v_set(-INFINITY), m1 = m0;
    int64_t j = 0;
    for (; j + 2 * VW <= a->vocab; j += 2 * VW) {
        m0 = v_max(m0, v_load(t, x, j));
        m1 = v_max(m1, v_load(t, x, j + VW));
    }
    for (; j < a->vocab; j += VW)
        m0 = v_max(m0, fill_tail(v_load_n(t, x, j, a->vocab - j), a->vocab - j, -INFINITY));
    return v_maxlane(v_max(m0, m1));
}

struct sums {
    double e, ez, z; /* sum of exp(z - max), exp(z - max) (z - max), z */
};

INLINE void add_piece(const struct trl_op_xent *a, const void *x, int64_t j, int64_t end, vf max,
    bool want_ez, bool want_z, struct sums *s, enum trl_dtype t)
{
    vf e0 = v_zero(), e1 = v_zero(), ez = v_zero(), sz = v_zero();
    for (; j + 2 * VW <= end; j += 2 * VW) {
        vf za = capped(a, v_load(t, x, j)), zb = capped(a, v_load(t, x, j + VW));
        vf da = za - max, db = zb - max, ea = v_exp(da), eb = v_exp(db);
        e0 += ea;
        e1 += eb;
        if (want_ez)
            ez = v_fma(eb, db, v_fma(ea, da, ez));
        if (want_z)
            sz += za + zb;
    }
    for (; j < end; j += VW) {
        vf z = capped(a, v_load_n(t, x, j, end - j)), e = fill_tail(v_exp(z - max), end - j, 0);
        e0 += e;
        if (want_ez)
            ez = v_fma(e, z - max, ez);
        if (want_z)
            sz += z; /* missing lanes are capped(0) = 0 */
    }
    s->e += (double)v_sum(e0 + e1);
    if (want_ez)
        s->ez += (double)v_sum(ez);
    if (want_z)
        s->z += (double)v_sum(sz);
}

/* Is the target the first of the largest logits? */
static bool is_hit(const struct trl_op_xent *a, const void *x, int32_t target, float max)
{
    if (target < 0 || trl_dtype_load(a->logits_dtype, x, (size_t)target) != max)
        return false;
    for (int32_t j = 0; j < target; j++)
        if (trl_dtype_load(a->logits_dtype, x, (size_t)j) == max)
            return false;
    return true;
}

INLINE void row_stats(const struct job *job, int64_t r, const void *x, enum trl_dtype t)
{
    const struct trl_op_xent *a = job->a;
    int32_t target = a->targets[r];
    struct sums s = {0};
    float raw_max = row_max(a, x, t), first[VW];
    vf max = capped(a, v_set(raw_max));
    for (int64_t j = 0; j < a->vocab; j += PIECE)
        add_piece(a, x, j, trl_min64(j + PIECE, a->vocab), max, job->want_entropy,
            a->stats.mean_logp != NULL, &s, t);
    v_storef(first, max);
    double lse = (double)first[0] + log(s.e);
    job->max[r] = first[0];
    job->log_sum[r] = (float)log(s.e);
    job->entropy[r] = job->want_entropy ? (float)(log(s.e) - s.ez / s.e) : 0;
    if (a->stats.logp) {
        float z = 0;
        if (target >= 0) {
            v_storef(first, capped(a, v_set(trl_dtype_load(t, x, (size_t)target))));
            z = first[0];
        }
        a->stats.logp[r] = target >= 0 ? (float)((double)z - lse) : 0;
    }
    if (a->stats.entropy)
        a->stats.entropy[r] = job->entropy[r];
    if (a->stats.mean_logp)
        a->stats.mean_logp[r] = (float)(s.z / (double)a->vocab - lse);
    if (a->stats.hit)
        a->stats.hit[r] = is_hit(a, x, target, raw_max);
}

/* g = -p (d_logp + d_mean + d_entropy (log p + H)) + d_mean / V, times the cap's slope 1 - (z/c)^2
 */
INLINE vf gradient(const struct trl_op_xent *a, vf x, vf max, vf log_sum, vf both, vf d_entropy,
    vf entropy, vf even)
{
    vf z = capped(a, x), logp = z - max - log_sum;
    vf g = even - v_exp(logp) * v_fma(d_entropy, logp + entropy, both);
    if (a->softcap > 0) {
        vf r = z * v_set(1 / a->softcap);
        g *= 1.0f - r * r;
    }
    return g;
}

INLINE void row_gradient(const struct job *job, int64_t r, void *x, enum trl_dtype t)
{
    const struct trl_op_xent *a = job->a;
    int32_t target = a->targets[r];
    float d_logp = a->d_logp && target >= 0 ? a->d_logp[r] : 0,
          d_mean = a->d_mean ? a->d_mean[r] : 0;
    float d_ent = a->d_entropy ? a->d_entropy[r] : 0, lane[VW], slope = 1;
    if (d_logp == 0 && d_mean == 0 && d_ent == 0) {
        memset(x, 0, (size_t)a->vocab * trl_dtype_size(t));
        return;
    }
    vf max = v_set(job->max[r]), ls = v_set(job->log_sum[r]), both = v_set(d_logp + d_mean),
       de = v_set(d_ent), h = v_set(job->entropy[r]);
    vf even = v_set(d_mean / (float)a->vocab);
    float at_target = 0;
    if (target >= 0) {
        vf xt = v_set(trl_dtype_load(t, x, (size_t)target));
        if (a->softcap > 0) {
            v_storef(lane, capped(a, xt) * v_set(1 / a->softcap));
            slope = 1 - lane[0] * lane[0];
        }
        v_storef(lane, gradient(a, xt, max, ls, both, de, h, even));
        at_target = lane[0] + d_logp * slope;
    }
    int64_t j = 0;
    for (; j + VW <= a->vocab; j += VW)
        v_store(t, x, j, gradient(a, v_load(t, x, j), max, ls, both, de, h, even));
    if (j < a->vocab)
        v_store_n(t, x, j, a->vocab - j,
            gradient(a, v_load_n(t, x, j, a->vocab - j), max, ls, both, de, h, even));
    if (target >= 0)
        trl_dtype_store(t, x, (size_t)target, at_target);
}

static void *row_of(const struct trl_op_xent *a, int64_t r)
{
    return (char *)a->logits + (size_t)(r * a->ld) * trl_dtype_size(a->logits_dtype);
}

static void stats_rows(void *ctx, int64_t begin, int64_t end, int thread)
{
    (void)thread;
    const struct job *job = ctx;
    for (int64_t r = begin; r < end; r++) {
        void *x = row_of(job->a, r);
        BY_TYPE(job->a->logits_dtype, row_stats(job, r, x, T));
        if (job->gradient && !job->a->coef)
            BY_TYPE(job->a->logits_dtype, row_gradient(job, r, x, T));
    }
}

static void gradient_rows(void *ctx, int64_t begin, int64_t end, int thread)
{
    (void)thread;
    const struct job *job = ctx;
    for (int64_t r = begin; r < end; r++) {
        void *x = row_of(job->a, r);
        BY_TYPE(job->a->logits_dtype, row_gradient(job, r, x, T));
    }
}

int KERN(xent)(struct trl_backend *be, const struct trl_op_xent *a)
{
    struct job job = {.a = a,
        .want_entropy = a->stats.entropy || a->d_entropy,
        .gradient = a->d_logp || a->d_mean || a->d_entropy};
    if (a->n > 0) {
        job.max = trl_cpu_work(be, (size_t)a->n * 3 * sizeof(float));
        if (!job.max)
            return TRL_E_NOMEM;
        job.log_sum = job.max + a->n;
        job.entropy = job.log_sum + a->n;
    }
    trl_parallel_for(be->pool, a->n, 1, stats_rows, &job);
    if (a->coef) {
        a->coef(a->coef_ctx, a->n, &a->stats);
        if (job.gradient)
            trl_parallel_for(be->pool, a->n, 1, gradient_rows, &job);
    }
    return 0;
}
