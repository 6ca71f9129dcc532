/* SPDX-License-Identifier: Apache-2.0 */
/* x + o(attention(rope(norm(q)), rope(norm(k)), v)): the attention half of a layer and its
 * gradient. */
#include "model/internal.h"

static int64_t qkv_width(const struct trl_model *m)
{
    return (m->cfg.heads + 2 * m->cfg.kv_heads) * m->cfg.head_dim;
}

static void *at(const struct trl_model *m, const void *p, int64_t elems)
{
    return (char *)(uintptr_t)p + (size_t)elems * trl_dtype_size(m->types.act);
}

/* The q and k heads side by side, in place */
static void rope(struct trl_model *m, int layer, void *x, int64_t ld, bool inverse)
{
    int k = m->cfg.layer[layer].rope;
    if (k < 0 || m->rc)
        return;
    m->rc = m->be->ops.rope(m->be,
        &(struct trl_op_rope){.n = m->n,
            .heads = m->cfg.heads + m->cfg.kv_heads,
            .d = m->cfg.head_dim,
            .ld_x = ld,
            .ld_y = ld,
            .x = x,
            .y = x,
            .cos_table = m->buf.cos_table[k],
            .sin_table = m->buf.sin_table[k],
            .positions = m->buf.positions,
            .inverse = inverse,
            .dtype = m->types.act});
}

static void head_norm_weights(struct trl_model *m, int layer, int64_t head, void **w, void **dw)
{
    const struct trl_layer *y = &m->lay.layers[layer];
    const struct trl_param *p = trl__param(m, head < m->cfg.heads ? y->q_norm.w : y->k_norm.w);
    *w = trl_param_at(m->params.weights, m->params.dtype, p);
    *dw =
        m->params.grads && p->trainable ? trl_param_at(m->params.grads, m->params.dtype, p) : NULL;
}

/* Norms over head_dim, head by head: raw [N, Q] -> qk [N, (heads + kv_heads) d] */
static void head_norms_forward(
    struct trl_model *m, int layer, const void *raw, void *qk, float *stat)
{
    int64_t d = m->cfg.head_dim, n_heads = m->cfg.heads + m->cfg.kv_heads;
    bool plus1 = m->cfg.norm == TRL_NORM_RMS_PLUS1;
    for (int64_t h = 0; h < n_heads && m->rc == 0; h++) {
        void *w, *dw;
        head_norm_weights(m, layer, h, &w, &dw);
        m->rc = m->be->ops.rmsnorm(m->be,
            &(struct trl_op_rmsnorm){.rows = m->n,
                .cols = d,
                .ld_x = qkv_width(m),
                .ld_y = n_heads * d,
                .x = at(m, raw, h * d),
                .w = w,
                .y = at(m, qk, h * d),
                .rstd = stat + h * m->n,
                .eps = (float)m->cfg.eps,
                .offset = plus1,
                .cast_first = !plus1,
                .x_dtype = m->types.act,
                .w_dtype = m->params.dtype,
                .y_dtype = m->types.act});
    }
}

/* dy [N, (heads + kv_heads) d] -> the q and k columns of d_raw [N, Q] */
static void head_norms_backward(
    struct trl_model *m, int layer, const void *raw, const float *stat, const void *dy, void *d_raw)
{
    int64_t d = m->cfg.head_dim, n_heads = m->cfg.heads + m->cfg.kv_heads, ld = qkv_width(m);
    for (int64_t h = 0; h < n_heads && m->rc == 0; h++) {
        void *w, *dw;
        head_norm_weights(m, layer, h, &w, &dw);
        m->rc = m->be->ops.rmsnorm_bwd(m->be,
            &(struct trl_op_rmsnorm_bwd){.rows = m->n,
                .cols = d,
                .ld_x = ld,
                .ld_dy = n_heads * d,
                .ld_dx = ld,
                .x = at(m, raw, h * d),
                .w = w,
                .dy = at(m, dy, h * d),
                .rstd = stat + h * m->n,
                .dx = at(m, d_raw, h * d),
                .dw = dw,
                .offset = m->cfg.norm == TRL_NORM_RMS_PLUS1,
                .x_dtype = m->types.act,
                .w_dtype = m->params.dtype,
                .dy_dtype = m->types.act,
                .dx_dtype = m->types.act});
    }
}

/* Where q, k, v of this layer are: q and k in their own buffer when they are normalised. */
static struct trl_op_attention attention_args(
    struct trl_model *m, int layer, const struct trl_saved *s)
{
    const struct trl_model_config *c = &m->cfg;
    int64_t q = c->heads * c->head_dim, kv = c->kv_heads * c->head_dim, ld = qkv_width(m);
    const void *qk = c->qk_norm ? m->buf.qk : s->qkv;
    int64_t ld_qk = c->qk_norm ? q + kv : ld;
    return (struct trl_op_attention){.n = m->n,
        .n_docs = m->n_docs,
        .hq = c->heads,
        .hkv = c->kv_heads,
        .d = c->head_dim,
        .doc_start = m->buf.doc_start,
        .q = qk,
        .k = at(m, qk, q),
        .v = at(m, s->qkv, q + kv),
        .out = s->attn,
        .lse = s->lse,
        .ld_q = ld_qk,
        .ld_k = ld_qk,
        .ld_v = ld,
        .ld_out = q,
        .scale = (float)c->layer[layer].scale,
        .softcap = (float)c->attn_softcap,
        .window = c->layer[layer].window,
        .dtype = m->types.act,
        .round = m->types.act,
        .dropout = m->trains ? (float)c->attn_dropout : 0,
        .dropout_seed = trl__drop_seed(m, TRL_DROP_ATTN, layer)};
}

/* q and k as attention reads them. */
static void make_qk(struct trl_model *m, int layer, struct trl_saved *s)
{
    int64_t qk = (m->cfg.heads + m->cfg.kv_heads) * m->cfg.head_dim;
    if (m->cfg.qk_norm) {
        head_norms_forward(m, layer, s->qkv, m->buf.qk, s->stat_qk);
        rope(m, layer, m->buf.qk, qk, false);
    } else {
        rope(m, layer, s->qkv, qkv_width(m), false);
    }
}

void trl__attention_forward(struct trl_model *m, int layer, struct trl_saved *s, const void *x_in)
{
    const struct trl_layer *y = &m->lay.layers[layer];
    trl__norm_forward(m, &y->norm1, x_in, m->types.res, m->buf.norm, s->stat1);
    trl__linear_forward(m, &y->qkv, m->buf.norm, s->qkv);
    make_qk(m, layer, s);
    struct trl_op_attention a = attention_args(m, layer, s);
    if (m->rc == 0)
        m->rc = m->be->ops.attention(m->be, &a);
    void *out = s->o_out ? s->o_out : m->buf.t;
    trl__linear_forward(m, &y->o, s->attn, out);
    if (s->o_out)
        trl__norm_forward(m, &y->post1, s->o_out, m->types.act, m->buf.t, s->stat_post1);
    if (m->trains && m->cfg.resid_dropout > 0)
        trl__dropout(m, TRL_DROP_ATTN_OUT, layer, m->buf.t, m->types.act, m->cfg.resid_dropout);
    trl__add_residual(m, x_in, m->buf.t, s->mid);
}

const void *trl__branch_grad(struct trl_model *m, int layer, const struct trl_norm *post,
    const void *out, const float *stat, enum trl_drop_site site)
{
    int64_t n = m->n * m->cfg.hidden;
    if (post->w >= 0) {
        trl__norm_backward(
            m, post, out, m->types.act, m->buf.d_x, m->types.res, stat, m->buf.t, false);
        return m->buf.t;
    }
    bool drops = m->cfg.resid_dropout > 0;
    if (m->types.act == m->types.res && !drops)
        return m->buf.d_x;
    trl__cast(m, m->types.act, m->buf.t, m->types.res, m->buf.d_x, n);
    if (drops)
        trl__dropout(m, site, layer, m->buf.t, m->types.act, m->cfg.resid_dropout);
    return m->buf.t;
}

void trl__attention_backward(struct trl_model *m, int layer, struct trl_saved *s, const void *x_in)
{
    const struct trl_layer *y = &m->lay.layers[layer];
    const struct trl_model_config *c = &m->cfg;
    int64_t q = c->heads * c->head_dim, kv = c->kv_heads * c->head_dim, ld = qkv_width(m);
    void *d_attn = m->buf.w1, *d_qkv = m->buf.w2;
    const void *dy =
        trl__branch_grad(m, layer, &y->post1, s->o_out, s->stat_post1, TRL_DROP_ATTN_OUT);
    trl__linear_backward(m, &y->o, dy, s->attn, d_attn);
    /* q and k with norms were not kept in their final form */
    if (c->qk_norm)
        make_qk(m, layer, s);
    void *d_qk = c->qk_norm ? m->buf.d_qk : d_qkv;
    int64_t ld_qk = c->qk_norm ? q + kv : ld;
    struct trl_op_attention_bwd a = {.fwd = attention_args(m, layer, s),
        .d_out = d_attn,
        .dq = d_qk,
        .dk = at(m, d_qk, q),
        .dv = at(m, d_qkv, q + kv),
        .ld_dq = ld_qk,
        .ld_dk = ld_qk,
        .ld_dv = ld};
    if (m->rc == 0)
        m->rc = m->be->ops.attention_bwd(m->be, &a);
    rope(m, layer, d_qk, ld_qk, true);
    if (c->qk_norm)
        head_norms_backward(m, layer, s->qkv, s->stat_qk, d_qk, d_qkv);
    trl__norm_forward(m, &y->norm1, x_in, m->types.res, m->buf.norm, s->stat1);
    trl__linear_backward(m, &y->qkv, d_qkv, m->buf.norm, m->buf.t);
    trl__norm_backward(
        m, &y->norm1, x_in, m->types.res, m->buf.t, m->types.act, s->stat1, m->buf.d_x, true);
}
