/* SPDX-License-Identifier: Apache-2.0 */
/* x + down(act(gate) * up), or x + down(act(fc)): the MLP half of a layer and its gradient. */
#include "model/internal.h"

static void *at(const struct trl_model *m, const void *p, int64_t elems)
{
    return (char *)(uintptr_t)p + (size_t)elems * trl_dtype_size(m->types.act);
}

/* w1 [N, I] = act(gate) * up */
static void activation(struct trl_model *m, const struct trl_saved *s)
{
    int64_t i = m->cfg.inter, ld = m->cfg.gated ? 2 * i : i;
    if (m->rc == 0)
        m->rc = m->be->ops.act(m->be,
            &(struct trl_op_act){.rows = m->n,
                .cols = i,
                .ld_gate = ld,
                .ld_up = ld,
                .ld_y = i,
                .gate = s->up,
                .up = m->cfg.gated ? at(m, s->up, i) : NULL,
                .y = m->buf.w1,
                .act = m->cfg.act,
                .dtype = m->types.act});
}

void trl__mlp_forward(
    struct trl_model *m, int layer, struct trl_saved *s, void *x_out, bool recompute)
{
    const struct trl_layer *y = &m->lay.layers[layer];
    trl__norm_forward(m, &y->norm2, s->mid, m->types.res, m->buf.norm, s->stat2);
    trl__linear_forward(m, &y->up, m->buf.norm, s->up);
    if (recompute && !s->down_out)
        return;
    activation(m, s);
    void *out = s->down_out ? s->down_out : m->buf.t;
    trl__linear_forward(m, &y->down, m->buf.w1, out);
    if (s->down_out)
        trl__norm_forward(m, &y->post2, s->down_out, m->types.act, m->buf.t, s->stat_post2);
    if (recompute)
        return;
    if (m->trains && m->cfg.resid_dropout > 0)
        trl__dropout(m, TRL_DROP_MLP_OUT, layer, m->buf.t, m->types.act, m->cfg.resid_dropout);
    trl__add_residual(m, s->mid, m->buf.t, x_out);
}

void trl__mlp_backward(struct trl_model *m, int layer, struct trl_saved *s)
{
    const struct trl_layer *y = &m->lay.layers[layer];
    int64_t i = m->cfg.inter, ld = m->cfg.gated ? 2 * i : i;
    void *up = m->cfg.gated ? at(m, s->up, i) : NULL;
    const void *dy =
        trl__branch_grad(m, layer, &y->post2, s->down_out, s->stat_post2, TRL_DROP_MLP_OUT);
    activation(m, s);
    trl__linear_backward(m, &y->down, dy, m->buf.w1, m->buf.w2);
    if (m->rc == 0)
        m->rc = m->be->ops.act_bwd(m->be,
            &(struct trl_op_act_bwd){.rows = m->n,
                .cols = i,
                .ld_gate = ld,
                .ld_up = ld,
                .ld_dy = i,
                .ld_d_gate = ld,
                .ld_d_up = ld,
                .gate = s->up,
                .up = up,
                .dy = m->buf.w2,
                .d_gate = s->up,
                .d_up = up,
                .act = m->cfg.act,
                .dtype = m->types.act});
    trl__norm_forward(m, &y->norm2, s->mid, m->types.res, m->buf.norm, s->stat2);
    trl__linear_backward(m, &y->up, s->up, m->buf.norm, m->buf.t);
    trl__norm_backward(
        m, &y->norm2, s->mid, m->types.res, m->buf.t, m->types.act, s->stat2, m->buf.d_x, true);
}
