/* SPDX-License-Identifier: Apache-2.0 */
/* The body of the model, both ways: embeddings, layers, last norm. */
#include <math.h>

#include "model/internal.h"

void trl__layer_forward(struct trl_model *m, int layer, struct trl_saved *s, const void *x_in,
    void *x_out, bool recompute)
{
    trl__attention_forward(m, layer, s, x_in);
    trl__mlp_forward(m, layer, s, x_out, recompute);
}

void trl__layer_backward(struct trl_model *m, int layer, struct trl_saved *s, const void *x_in)
{
    trl__mlp_backward(m, layer, s);
    trl__attention_backward(m, layer, s, x_in);
}

static int check_tokens(const struct trl_model *m, const struct trl_tokens *tk, struct trl_err *err)
{
    if (!m->prepared)
        return trl_fail(err, TRL_E_USAGE, "the model was not prepared for a forward pass");
    if (tk->n < 0 || tk->n > m->cap.max_tokens || tk->n_docs < 0 || tk->n_docs > m->cap.max_docs)
        return trl_fail(err, TRL_E_RANGE,
            "a micro-batch of %lld tokens in %lld rows; prepared for %lld and %lld",
            (long long)tk->n, (long long)tk->n_docs, (long long)m->cap.max_tokens,
            (long long)m->cap.max_docs);
    int64_t limit = m->cap.max_position;
    if (m->cfg.learned_positions && m->cfg.max_positions < limit)
        limit = m->cfg.max_positions;
    for (int64_t i = 0; i < tk->n; i++) {
        if (tk->ids[i] < 0 || tk->ids[i] >= m->cfg.vocab)
            return trl_fail(err, TRL_E_RANGE,
                "token id %d at index %lld is outside the vocabulary of %lld", tk->ids[i],
                (long long)i, (long long)m->cfg.vocab);
        if (tk->positions[i] < 0 || tk->positions[i] >= limit)
            return trl_fail(err, TRL_E_RANGE,
                "position %d at index %lld is outside the model's %lld%s", tk->positions[i],
                (long long)i, (long long)limit,
                m->cfg.learned_positions ? " learned positions" : "");
    }
    for (int64_t d = 0; d < tk->n_docs; d++)
        if (tk->doc_start[d + 1] < tk->doc_start[d])
            return trl_fail(err, TRL_E_RANGE,
                "row %lld of the micro-batch begins at %lld and ends at %lld", (long long)d,
                (long long)tk->doc_start[d], (long long)tk->doc_start[d + 1]);
    if (tk->doc_start[0] != 0 || tk->doc_start[tk->n_docs] != tk->n)
        return trl_fail(err, TRL_E_RANGE,
            "the rows of the micro-batch cover [%lld, %lld) of %lld tokens",
            (long long)tk->doc_start[0], (long long)tk->doc_start[tk->n_docs], (long long)tk->n);
    return 0;
}

static void upload(struct trl_model *m, void *dev, const void *host, size_t size)
{
    if (m->rc == 0 && size > 0)
        m->rc = m->be->copy_in(m->be, dev, host, size);
}

/* Gemma multiplies by sqrt(hidden) rounded to the type of the weights. */
static float embed_scale(const struct trl_model *m)
{
    uint16_t h[1];
    float f = (float)m->cfg.embed_scale;
    if (m->types.w == TRL_DTYPE_F32)
        return f;
    trl_dtype_store(m->types.w, h, 0, f);
    return trl_dtype_load(m->types.w, h, 0);
}

static void embed(struct trl_model *m, const struct trl_tokens *tk, void *x)
{
    const struct trl_model_config *c = &m->cfg;
    int64_t n = m->n * c->hidden;
    bool noise = m->trains && m->neftune_alpha > 0;
    float scale = embed_scale(m);
    bool scale_later = noise && !c->noise_after_scale && scale != 1;
    struct trl_op_embed a = {.n = m->n,
        .h = c->hidden,
        .vocab = c->vocab,
        .ids = m->buf.ids,
        .table = trl_param_at(m->params.weights, m->params.dtype, trl__param(m, m->lay.embed)),
        .out = x,
        .scale = scale_later ? 1 : scale,
        .table_dtype = m->params.dtype,
        .out_dtype = m->types.res};
    if (m->rc == 0)
        m->rc = m->be->ops.embed(m->be, &a);
    if (noise)
        trl__neftune_add(m, tk, x);
    if (scale_later && m->rc == 0)
        m->rc = m->be->ops.axpby(m->be,
            &(struct trl_op_axpby){.n = n,
                .x = x,
                .y = x,
                .alpha = scale,
                .x_dtype = m->types.res,
                .y_dtype = m->types.res});
    if (c->learned_positions) {
        a = (struct trl_op_embed){.n = m->n,
            .h = c->hidden,
            .vocab = c->max_positions,
            .ids = m->buf.positions,
            .table =
                trl_param_at(m->params.weights, m->params.dtype, trl__param(m, m->lay.positions)),
            .out = m->buf.w1,
            .scale = 1,
            .table_dtype = m->params.dtype,
            .out_dtype = m->types.res};
        if (m->rc == 0)
            m->rc = m->be->ops.embed(m->be, &a);
        if (m->rc == 0)
            m->rc = m->be->ops.add(m->be,
                &(struct trl_op_add){.n = n,
                    .a = x,
                    .b = m->buf.w1,
                    .y = x,
                    .a_dtype = m->types.res,
                    .b_dtype = m->types.res,
                    .y_dtype = m->types.res});
    }
    if (m->trains && c->embd_dropout > 0)
        trl__dropout(m, TRL_DROP_EMBED, 0, x, m->types.res, c->embd_dropout);
}

int trl_model_forward(
    struct trl_model *m, const struct trl_tokens *tk, bool train, struct trl_err *err)
{
    int rc = check_tokens(m, tk, err);
    if (rc)
        return rc;
    if (train && !m->cap.training)
        return trl_fail(err, TRL_E_USAGE, "the model was prepared without training");
    double length = (double)tk->padded_length;
    for (int64_t i = 0; i < tk->n; i++)
        length = tk->positions[i] + 1 > length ? tk->positions[i] + 1 : length;
    rc = trl__rope_tables(m, length, err);
    if (rc)
        return rc;
    m->rc = 0;
    m->n = tk->n;
    m->n_docs = tk->n_docs;
    m->trains = train;
    m->has_d_hidden = false;
    m->drop_step += train;
    if (m->n > 0) {
        upload(m, m->buf.ids, tk->ids, (size_t)tk->n * 4);
        upload(m, m->buf.positions, tk->positions, (size_t)tk->n * 4);
        upload(m, m->buf.doc_start, tk->doc_start, (size_t)(tk->n_docs + 1) * 8);
        embed(m, tk, m->buf.x[0]);
        void *x = m->buf.x[0];
        for (int l = 0; l < m->cfg.layers && m->rc == 0; l++) {
            struct trl_saved *s = &m->buf.saved[train && !m->cap.checkpointing ? l : 0];
            void *out = train ? m->buf.x[l + 1] : x;
            trl__layer_forward(m, l, s, x, out, false);
            x = out;
        }
        trl__norm_forward(m, &m->lay.final_norm, x, m->types.res, m->buf.norm, m->buf.stat_final);
    }
    m->has_hidden = m->rc == 0;
    return trl__model_status(m, err, "the forward pass");
}

static void embed_backward(struct trl_model *m)
{
    const struct trl_model_config *c = &m->cfg;
    const struct trl_param *tok = trl__param(m, m->lay.embed);
    if (c->embd_dropout > 0)
        trl__dropout(m, TRL_DROP_EMBED, 0, m->buf.d_x, m->types.res, c->embd_dropout);
    struct trl_op_embed_bwd a = {.n = m->n,
        .h = c->hidden,
        .vocab = c->vocab,
        .ids = m->buf.ids,
        .d_out = m->buf.d_x,
        .d_table = trl_param_at(m->params.grads, m->params.dtype, tok),
        .scale = embed_scale(m),
        .table_dtype = m->params.dtype,
        .out_dtype = m->types.res};
    if (m->rc == 0 && tok->trainable)
        m->rc = m->be->ops.embed_bwd(m->be, &a);
    if (!c->learned_positions || !trl__param(m, m->lay.positions)->trainable || m->rc)
        return;
    a.vocab = c->max_positions;
    a.ids = m->buf.positions;
    a.scale = 1;
    a.d_table = trl_param_at(m->params.grads, m->params.dtype, trl__param(m, m->lay.positions));
    m->rc = m->be->ops.embed_bwd(m->be, &a);
}

static void report(
    struct trl_model *m, void (*grad_ready)(void *ctx, int order), void *ctx, int order)
{
    if (m->rc == 0 && grad_ready)
        grad_ready(ctx, order);
}

int trl_model_backward(
    struct trl_model *m, void (*grad_ready)(void *ctx, int order), void *ctx, struct trl_err *err)
{
    if (!m->has_d_hidden || !m->trains)
        return trl_fail(
            err, TRL_E_USAGE, "backward without a training forward and a head with gradients");
    int layers = (int)m->cfg.layers;
    m->rc = 0;
    /* `norm` and `t` are scratch from here on */
    m->has_hidden = m->has_d_hidden = false;
    if (m->n > 0)
        trl__norm_backward(m, &m->lay.final_norm, m->buf.x[layers], m->types.res, m->buf.t,
            m->types.res, m->buf.stat_final, m->buf.d_x, false);
    report(m, grad_ready, ctx, 0);
    for (int l = layers - 1; l >= 0 && m->rc == 0; l--) {
        struct trl_saved *s = &m->buf.saved[m->cap.checkpointing ? 0 : l];
        if (m->n > 0) {
            if (m->cap.checkpointing)
                trl__layer_forward(m, l, s, m->buf.x[l], m->buf.x[l + 1], true);
            trl__layer_backward(m, l, s, m->buf.x[l]);
        }
        report(m, grad_ready, ctx, layers - l);
    }
    if (m->n > 0)
        embed_backward(m);
    report(m, grad_ready, ctx, layers + 1);
    return trl__model_status(m, err, "the backward pass");
}
