/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <string.h>

#include "base/alloc.h"
#include "model/internal.h"

/* Between wavelengths original/high and original/low: blend of the kept and the divided frequency.
 */
static double llama3_frequency(const struct trl_rope_config *r, double inv)
{
    double wavelen = 2 * M_PI / inv, o = (double)r->original_max;
    if (wavelen < o / r->high_freq_factor)
        return inv;
    if (wavelen > o / r->low_freq_factor)
        return inv / r->factor;
    double s = (o / wavelen - r->low_freq_factor) / (r->high_freq_factor - r->low_freq_factor);
    return (1 - s) * inv / r->factor + s * inv;
}

/* The dimension that turns n times over the original length. */
static double yarn_dim(const struct trl_rope_config *r, double d, double n)
{
    return d * log((double)r->original_max / (n * 2 * M_PI)) / (2 * log(r->theta));
}

static void yarn_range(const struct trl_rope_config *r, double d, double *low, double *high)
{
    *low = yarn_dim(r, d, r->beta_fast);
    *high = yarn_dim(r, d, r->beta_slow);
    if (r->truncate) {
        *low = floor(*low);
        *high = ceil(*high);
    }
    *low = fmax(*low, 0);
    *high = fmin(*high, d - 1);
    if (*low == *high)
        *high += 0.001;
}

void trl__rope_frequencies(const struct trl_rope_config *r, int64_t head_dim, int64_t max_positions,
    double length, double *inv_freq, double *ret_scale)
{
    double d = (double)head_dim, theta = r->theta, low = 0, high = 1;
    *ret_scale = r->kind == TRL_ROPE_YARN ? r->attention_factor : 1;
    if (r->kind == TRL_ROPE_DYNAMIC && length > (double)max_positions && head_dim > 2)
        theta *= pow(r->factor * length / (double)max_positions - (r->factor - 1), d / (d - 2));
    if (r->kind == TRL_ROPE_YARN)
        yarn_range(r, d, &low, &high);
    for (int64_t i = 0; i < head_dim / 2; i++) {
        double inv = pow(theta, -2.0 * (double)i / d);
        if (r->kind == TRL_ROPE_LINEAR)
            inv /= r->factor;
        else if (r->kind == TRL_ROPE_LLAMA3)
            inv = llama3_frequency(r, inv);
        else if (r->kind == TRL_ROPE_YARN) {
            double ramp = fmin(fmax(((double)i - low) / (high - low), 0), 1);
            inv = inv / r->factor * ramp + inv * (1 - ramp);
        }
        inv_freq[i] = inv;
    }
}

/* One row of the tables. Angles are float32 products, as transformers has them; with 16-bit weights
 * cos and sin are rounded to that type. */
static void table_row(const struct trl_model *m, const double *inv, double scale, int64_t pos,
    float *cosv, float *sinv)
{
    for (int64_t i = 0; i < m->cfg.head_dim / 2; i++) {
        float angle = (float)pos * (float)inv[i];
        float c = (float)(cos((double)angle) * scale), s = (float)(sin((double)angle) * scale);
        uint16_t h[2];
        if (m->types.res != TRL_DTYPE_F32) {
            trl_dtype_store(m->types.res, h, 0, c);
            trl_dtype_store(m->types.res, h, 1, s);
            c = trl_dtype_load(m->types.res, h, 0);
            s = trl_dtype_load(m->types.res, h, 1);
        }
        cosv[i] = c;
        sinv[i] = s;
    }
}

/* transformers keeps the largest length seen until a sequence fits the original one again. */
static double dynamic_length(const struct trl_model *m, double old, double length)
{
    double max = (double)m->cfg.max_positions;
    double want = length > old ? length : length < max && old > max ? max : old;
    return want > max ? want : max;
}

static int make_table(struct trl_model *m, int i, struct trl_err *err)
{
    double inv[2048], scale;
    float cosv[2048], sinv[2048];
    int64_t half = m->cfg.head_dim / 2;
    size_t row = (size_t)half * sizeof(float);
    trl__rope_frequencies(
        &m->cfg.ropes[i], m->cfg.head_dim, m->cfg.max_positions, m->rope_length[i], inv, &scale);
    for (int64_t p = 0; p < m->cap.max_position; p++) {
        table_row(m, inv, scale, p, cosv, sinv);
        if (m->be->copy_in(m->be, m->buf.cos_table[i] + p * half, cosv, row) != 0 ||
            m->be->copy_in(m->be, m->buf.sin_table[i] + p * half, sinv, row) != 0)
            return trl_fail(err, TRL_E_FAIL, "cannot copy the rotary tables to the device");
    }
    return 0;
}

int trl__rope_tables(struct trl_model *m, double length, struct trl_err *err)
{
    int rc = 0;
    for (int i = 0; i < m->cfg.n_ropes && rc == 0; i++) {
        double old = m->rope_length[i];
        if (m->cfg.ropes[i].kind == TRL_ROPE_DYNAMIC)
            m->rope_length[i] = dynamic_length(m, old, length);
        if (m->rope_stale || m->rope_length[i] != old)
            rc = make_table(m, i, err);
    }
    m->rope_stale = m->rope_stale && rc != 0;
    return rc;
}
