/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>

#include "backend/ref/ref.h"

/* What a row of logits needs for its gradient. */
struct row {
    double lse, entropy;
};

static double capped(const struct trl_op_xent *a, int64_t r, int64_t j)
{
    double x = ref_get(a->logits_dtype, a->logits, r * a->ld + j);
    return a->softcap > 0 ? a->softcap * tanh(x / a->softcap) : x;
}

/* H = lse - sum p z;  mean_logp = mean(z) - lse */
static struct row row_stats(const struct trl_op_xent *a, int64_t r)
{
    double max = -INFINITY, sum = 0, pz = 0, total = 0;
    int64_t best = 0;
    for (int64_t j = 0; j < a->vocab; j++) {
        double z = capped(a, r, j);
        if (z > max) {
            max = z;
            best = j;
        }
        total += z;
    }
    for (int64_t j = 0; j < a->vocab; j++) {
        double z = capped(a, r, j);
        sum += exp(z - max);
        pz += exp(z - max) * z;
    }
    struct row ret = {.lse = max + log(sum)};
    ret.entropy = ret.lse - pz / sum;
    int32_t target = a->targets[r];
    if (a->stats.logp)
        a->stats.logp[r] = target < 0 ? 0 : (float)(capped(a, r, target) - ret.lse);
    if (a->stats.entropy)
        a->stats.entropy[r] = (float)ret.entropy;
    if (a->stats.mean_logp)
        a->stats.mean_logp[r] = (float)(total / (double)a->vocab - ret.lse);
    if (a->stats.hit)
        a->stats.hit[r] = target >= 0 && best == target;
    return ret;
}

/* d logp/dz = 1[j=target] - p;  d mean/dz = 1/V - p;  dH/dz = -p (log p + H);  dz/dx = 1 - (z/c)^2
 */
static void row_gradient(const struct trl_op_xent *a, int64_t r)
{
    struct trl_op_xent none = *a;
    none.stats = (struct trl_xent_stats){0};
    struct row s = row_stats(&none, r);
    int32_t target = a->targets[r];
    double d_logp = a->d_logp && target >= 0 ? a->d_logp[r] : 0,
           d_mean = a->d_mean ? a->d_mean[r] : 0;
    double d_entropy = a->d_entropy ? a->d_entropy[r] : 0;
    for (int64_t j = 0; j < a->vocab; j++) {
        double z = capped(a, r, j), logp = z - s.lse, p = exp(logp);
        double g = d_logp * ((j == target) - p) + d_mean * (1 / (double)a->vocab - p) -
            d_entropy * p * (logp + s.entropy);
        if (a->softcap > 0)
            g *= 1 - z / a->softcap * (z / a->softcap);
        ref_put(a->logits_dtype, a->logits, r * a->ld + j, g);
    }
}

int trl_ref_xent(struct trl_backend *be, const struct trl_op_xent *a)
{
    (void)be;
    for (int64_t r = 0; r < a->n; r++)
        row_stats(a, r);
    if (a->coef)
        a->coef(a->coef_ctx, a->n, &a->stats);
    if (a->d_logp || a->d_mean || a->d_entropy)
        for (int64_t r = 0; r < a->n; r++)
            row_gradient(a, r);
    return 0;
}
