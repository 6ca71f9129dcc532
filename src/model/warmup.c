/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Backends make room for their own work at the first product of a size. So that no later step with
 * longer rows has to, one layer runs once at full capacity on zeros. A window of one key makes
 * attention cheap: its memory depends on lengths only.
 */
#include "base/alloc.h"
#include "model/internal.h"

/* n_docs rows that fill the micro-batch: the first as long as rows get, the others share the rest
 */
static void fill_docs(const struct trl_model *m, int64_t n_docs, int64_t *start)
{
    int64_t n = m->cap.max_tokens, longest = n < m->cap.max_position ? n : m->cap.max_position;
    start[0] = 0;
    for (int64_t d = 1; d <= n_docs; d++)
        start[d] = n_docs == 1 ? n : longest + (n - longest) * (d - 1) / (n_docs - 1);
}

static void run_layer(struct trl_model *m, int64_t n_docs, const int64_t *start)
{
    struct trl_saved *s = &m->buf.saved[0];
    m->n_docs = n_docs;
    if (m->rc == 0)
        m->rc =
            m->be->copy_in(m->be, m->buf.doc_start, start, (size_t)(n_docs + 1) * sizeof(start[0]));
    trl__layer_forward(m, 0, s, m->buf.x[0], m->buf.x[0], false);
    if (m->cap.training && m->rc == 0)
        m->rc = m->be->fill_zero(
            m->be, m->buf.d_x, (size_t)(m->n * m->cfg.hidden) * trl_dtype_size(m->types.res));
    if (m->cap.training)
        trl__layer_backward(m, 0, s, m->buf.x[0]);
}

static void no_coef(void *ctx, const struct trl_head_chunk *chunk)
{
}

/* One full chunk of the head; coefficients of 0 leave the gradients as they are. */
static int run_head(struct trl_model *m, struct trl_err *err)
{
    int32_t *targets = trl_calloc((size_t)m->buf.head_chunk, sizeof(targets[0]));
    if (!targets)
        return trl_fail_nomem(err, (size_t)m->buf.head_chunk * sizeof(targets[0]), "labels");
    m->n = m->buf.head_chunk;
    m->has_hidden = true;
    m->trains = m->cap.training;
    struct trl_head_args args = {.targets = targets, .want_grad = m->cap.training, .coef = no_coef};
    int rc = trl_model_head(m, &args, err);
    m->has_hidden = m->has_d_hidden = m->trains = false;
    trl_free(targets);
    return rc;
}

int trl__warm_up(struct trl_model *m, struct trl_err *err)
{
    /* up to this many rows work is split by query heads, with more by key-value heads */
    int64_t many = m->cap.max_docs < m->cap.max_tokens ? m->cap.max_docs : m->cap.max_tokens;
    int64_t few = m->cfg.kv_heads < 16 ? 15 / m->cfg.kv_heads : 1, window = m->cfg.layer[0].window;
    few = few < many ? few : many;
    int64_t *start = trl_malloc_array((size_t)many + 1, sizeof(start[0]));
    if (!start)
        return trl_fail_nomem(err, (size_t)(many + 1) * sizeof(start[0]), "a table of rows");
    m->rc = 0;
    m->n = m->cap.max_tokens;
    m->trains = false;
    m->cfg.layer[0].window = 1;
    fill_docs(m, few, start);
    run_layer(m, few, start);
    if (many > few) {
        fill_docs(m, many, start);
        run_layer(m, many, start);
    }
    m->cfg.layer[0].window = window;
    trl_free(start);
    int rc = trl__model_status(m, err, "preparing the model");
    if (rc == 0)
        rc = run_head(m, err);
    m->n = m->n_docs = 0;
    return rc ? rc : trl_model_zero_grads(m, err);
}
