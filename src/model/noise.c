/* SPDX-License-Identifier: Apache-2.0 */
/* NEFTune noise and dropout. Both are made so that backward, or a resumed run, sees the same
 * numbers. */
#include <math.h>

#include "model/internal.h"

void trl_model_set_neftune(struct trl_model *m, double alpha, uint64_t seed)
{
    m->neftune_alpha = alpha > 0 ? alpha : 0;
    trl_mt_seed(&m->mt, seed);
}

void trl_model_skip_noise(struct trl_model *m, int words)
{
    for (int i = 0; i < words; i++)
        trl_mt_next(&m->mt);
}

/* One padded row of torch's noise tensor [rows, L, H]: drawn in order, also for pads, which are not
 * here. */
static void noise_row(
    struct trl_model *m, int64_t begin, int64_t end, int64_t length, float magnitude, char *x)
{
    int64_t h = m->cfg.hidden;
    size_t row = (size_t)h * trl_dtype_size(m->types.res);
    for (int64_t t = 0; t < length && m->rc == 0; t++) {
        for (int64_t i = 0; i < h; i++)
            m->noise[i] = trl_mt_uniform(&m->mt) * (magnitude - -magnitude) + -magnitude;
        if (begin + t >= end)
            continue;
        /* the noise tensor has the type of the embeddings */
        trl_dtype_convert(
            m->types.res, m->noise + m->noise_elems, TRL_DTYPE_F32, m->noise, (size_t)h);
        m->rc = m->be->copy_in(m->be, m->buf.t, m->noise + m->noise_elems, row);
        void *at = x + (size_t)(begin + t) * row;
        if (m->rc == 0)
            m->rc = m->be->ops.add(m->be,
                &(struct trl_op_add){.n = h,
                    .a = at,
                    .b = m->buf.t,
                    .y = at,
                    .a_dtype = m->types.res,
                    .b_dtype = m->types.res,
                    .y_dtype = m->types.res});
    }
}

void trl__neftune_add(struct trl_model *m, const struct trl_tokens *tk, void *x)
{
    /* padding-free batches are one row that holds all documents */
    bool one_row = tk->padded_length >= tk->n;
    int64_t length = tk->padded_length;
    for (int64_t d = 0; d < tk->n_docs && !one_row; d++)
        if (tk->doc_start[d + 1] - tk->doc_start[d] > length)
            length = tk->doc_start[d + 1] - tk->doc_start[d];
    float magnitude = (float)(m->neftune_alpha / sqrt((double)length * (double)m->cfg.hidden));
    if (one_row)
        noise_row(m, 0, tk->n, length, magnitude, x);
    for (int64_t d = 0; d < tk->n_docs && !one_row; d++)
        noise_row(m, tk->doc_start[d], tk->doc_start[d + 1], length, magnitude, x);
}

void trl_model_get_rng(const struct trl_model *m, uint64_t ret[TRL_MODEL_RNG_WORDS])
{
    for (int i = 0; i < TRL_MODEL_RNG_WORDS; i++)
        ret[i] = i < 624 ? m->mt.state[i] : 0;
    ret[624] = (uint64_t)m->mt.index;
    ret[625] = m->drop_seed;
    ret[626] = m->drop_step;
    for (int i = 0; i < TRL_MODEL_MAX_ROPES; i++)
        ret[627 + i] = (uint64_t)m->rope_length[i];
}

void trl_model_set_rng(struct trl_model *m, const uint64_t words[TRL_MODEL_RNG_WORDS])
{
    for (int i = 0; i < 624; i++)
        m->mt.state[i] = (uint32_t)words[i];
    m->mt.index = words[624] <= 624 ? (int)words[624] : 624;
    m->drop_seed = words[625];
    m->drop_step = words[626];
    /* dynamic rope remembers the longest sequence; the tables follow at the next forward */
    for (int i = 0; i < TRL_MODEL_MAX_ROPES; i++)
        m->rope_length[i] = (double)words[627 + i];
    m->rope_stale = true;
}

/* ---- dropout ---- */

struct drop {
    float *x;
    uint64_t seed;
    int64_t first;
    float p, keep_scale;
};

static void drop_part(void *pv, int64_t begin, int64_t end, int thread)
{
    const struct drop *d = pv;
    for (int64_t i = begin; i < end; i++) {
        float u = (float)(trl_hash_rng(d->seed, (uint64_t)(d->first + i)) >> 40) * 0x1p-24f;
        d->x[i] = u < d->p ? 0 : d->x[i] * d->keep_scale;
    }
}

uint64_t trl__drop_seed(const struct trl_model *m, enum trl_drop_site site, int layer)
{
    uint64_t stream = (uint64_t)layer * TRL_DROP_SITES_ + (uint64_t)site;
    return trl_hash_rng(trl_hash_rng(m->drop_seed, m->drop_step), stream);
}

void trl__dropout(struct trl_model *m, enum trl_drop_site site, int layer, void *x,
    enum trl_dtype dtype, double p)
{
    int64_t n = m->n * m->cfg.hidden;
    size_t size = trl_dtype_size(dtype);
    struct drop d = {.x = m->noise,
        .seed = trl__drop_seed(m, site, layer),
        .p = (float)p,
        .keep_scale = p < 1 ? (float)(1 / (1 - p)) : 0};
    for (d.first = 0; d.first < n && m->rc == 0; d.first += m->noise_elems) {
        int64_t k = n - d.first < m->noise_elems ? n - d.first : m->noise_elems;
        char *at = (char *)x + (size_t)d.first * size;
        m->rc = m->be->copy_out(m->be, m->noise + m->noise_elems, at, (size_t)k * size);
        trl_dtype_convert(TRL_DTYPE_F32, m->noise, dtype, m->noise + m->noise_elems, (size_t)k);
        trl_parallel_for(m->be->pool, k, 4096, drop_part, &d);
        trl_dtype_convert(dtype, m->noise + m->noise_elems, TRL_DTYPE_F32, m->noise, (size_t)k);
        if (m->rc == 0)
            m->rc = m->be->copy_in(m->be, at, m->noise + m->noise_elems, (size_t)k * size);
    }
}
