/* SPDX-License-Identifier: Apache-2.0 */
/* Weights of a fresh model: normal(0, initializer_range), norms at identity, biases and the padding
 * row 0. */
#include <math.h>
#include <string.h>

#include "base/alloc.h"
#include "model/family.h"
#include "model/weights.h"

/* Element i of parameter k: Box-Muller on two counter-based words, so that no order or split
 * matters. */
static float normal(uint64_t seed, uint64_t k, uint64_t i)
{
    uint64_t stream = trl_hash_rng(seed, k);
    double u1 = ((double)(trl_hash_rng(stream, 2 * i) >> 11) + 1) * 0x1p-53;
    double u2 = (double)(trl_hash_rng(stream, 2 * i + 1) >> 11) * 0x1p-53;
    return (float)(sqrt(-2 * log(u1)) * cos(2 * M_PI * u2));
}

struct init {
    const struct trl_model *m;
    const struct trl_param *p;
    int index;
    uint64_t seed;
    double std, constant;
    int64_t first;
    float *buf;
};

static void fill(void *pv, int64_t begin, int64_t end, int thread)
{
    const struct init *x = pv;
    bool pad = x->index == x->m->lay.embed && x->m->cfg.pad_row >= 0;
    int64_t h = x->m->cfg.hidden, pad_begin = x->m->cfg.pad_row * h;
    for (int64_t i = begin; i < end; i++) {
        int64_t e = x->first + i;
        bool zero = pad && e >= pad_begin && e < pad_begin + h;
        x->buf[i] = zero ? 0
            : x->std > 0 ? (float)(x->std * normal(x->seed, (uint64_t)x->index, (uint64_t)e))
                         : (float)x->constant;
    }
}

int trl__weights_init(struct trl_model *m, uint64_t seed, struct trl_err *err)
{
    enum { CHUNK = 1 << 20 };
    float *buf = trl_malloc((size_t)CHUNK * 8);
    int rc = buf ? 0 : trl_fail_nomem(err, (size_t)CHUNK * 8, "initialising weights");
    for (int k = 0; k < m->params.n && rc == 0; k++) {
        const struct trl_param *p = &m->params.items[k];
        struct init x = {m, p, k, seed, 0, 0, 0, buf};
        if (p->role == TRL_PARAM_LINEAR || p->role == TRL_PARAM_EMBED)
            x.std = m->cfg.init_range;
        else if (p->role == TRL_PARAM_NORM)
            x.constant = m->cfg.norm == TRL_NORM_RMS_PLUS1 ? 0 : 1;
        /* GPT-2 divides by the root of the number of branches that add to the residual stream */
        if (m->cfg.family->conv1d && trl_ends_with(p->name, "c_proj.weight"))
            x.std /= sqrt(2.0 * (double)m->cfg.layers);
        for (int64_t first = 0; first < p->numel && rc == 0; first += CHUNK) {
            int64_t n = p->numel - first < CHUNK ? p->numel - first : CHUNK;
            x.first = first;
            trl_parallel_for(m->be->pool, n, 4096, fill, &x);
            rc = trl__weights_put(
                m, p, first, n, buf, TRL_DTYPE_F32, buf + CHUNK, "initialisation", p->name, err);
        }
    }
    trl_free(buf);
    return rc;
}
