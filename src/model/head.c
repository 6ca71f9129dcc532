/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The language-model head, a chunk of tokens at a time: logits = hidden W^T, per-token numbers, and
 * with want_grad the gradients of hidden and W at once, so that no more than one chunk of logits
 * ever exists. As torch's autocast does, logits are stored in the type of matrix products and
 * everything after that is float32.
 */
#include <math.h>
#include <string.h>

#include "base/alloc.h"
#include "model/internal.h"

/* Host side of one chunk, and the indices of all scored tokens. */
struct trl_head_host {
    int32_t *rows, *targets; /* [max_tokens]: scored tokens and their labels, in order */
    float *logp, *entropy, *mean_logp, *d_logp, *d_entropy, *d_mean; /* [chunk] */
    uint8_t *hit;
    char *logits; /* act [vocab]: one row for trl_model_logits */
    size_t logits_size;
};

int trl__head_host_new(struct trl_model *m, struct trl_err *err)
{
    struct trl_head_host *h = trl_calloc(1, sizeof(*h));
    if (!h)
        return trl_fail_nomem(err, sizeof(*h), "the head");
    m->host = h;
    size_t n = (size_t)m->cap.max_tokens, c = (size_t)m->buf.head_chunk;
    h->logits_size = (size_t)m->cfg.vocab * trl_dtype_size(m->types.act);
    h->rows = trl_calloc(n, sizeof(int32_t));
    h->targets = trl_calloc(n, sizeof(int32_t));
    float *f = trl_calloc(c * 6, sizeof(float));
    h->logp = f;
    h->hit = trl_calloc(c, 1);
    h->logits = trl_calloc(1, h->logits_size);
    if (!h->rows || !h->targets || !f || !h->hit || !h->logits)
        return trl_fail_nomem(err, n * 8 + c * 25 + h->logits_size, "the head");
    h->entropy = f + c;
    h->mean_logp = f + 2 * c;
    h->d_logp = f + 3 * c;
    h->d_entropy = f + 4 * c;
    h->d_mean = f + 5 * c;
    return 0;
}

void trl__head_host_free(struct trl_model *m)
{
    if (!m->host)
        return;
    trl_free(m->host->rows);
    trl_free(m->host->targets);
    trl_free(m->host->logp);
    trl_free(m->host->hit);
    trl_free(m->host->logits);
    trl_free(m->host);
    m->host = NULL;
}

static void op_rows(
    struct trl_model *m, enum trl_dtype t, const void *src, void *dst, int64_t n, bool scatter)
{
    if (m->rc == 0)
        m->rc = m->be->ops.rows(m->be,
            &(struct trl_op_rows){.rows = n,
                .cols = m->cfg.hidden,
                .index = m->buf.rows,
                .src = src,
                .dst = dst,
                .scatter = scatter,
                .dtype = t});
}

static void *row_at(const struct trl_model *m, void *p, enum trl_dtype t, int64_t row)
{
    return (char *)p + (size_t)(row * m->cfg.hidden) * trl_dtype_size(t);
}

/* Hidden states of the chunk's tokens: in place when they stand side by side, gathered otherwise.
 */
static const void *chunk_hidden(
    struct trl_model *m, const int32_t *rows, int64_t n, bool *ret_dense)
{
    *ret_dense = rows[n - 1] - rows[0] == n - 1;
    if (*ret_dense)
        return row_at(m, m->buf.norm, m->types.act, rows[0]);
    if (m->rc == 0)
        m->rc = m->be->copy_in(m->be, m->buf.rows, rows, (size_t)n * sizeof(int32_t));
    op_rows(m, m->types.act, m->buf.norm, m->buf.h_rows, n, false);
    return m->buf.h_rows;
}

static void chunk_logits(struct trl_model *m, const void *hidden, int64_t n)
{
    struct trl_op_gemm a = {.m = n,
        .n = m->cfg.vocab,
        .k = m->cfg.hidden,
        .trans_b = true,
        .a = hidden,
        .c = m->buf.logits,
        .lda = m->cfg.hidden,
        .ldb = m->cfg.hidden,
        .ldc = m->cfg.vocab,
        .a_dtype = m->types.act,
        .c_dtype = m->types.act,
        .round = m->types.act,
        .alpha = 1,
        .b_is_weight = true};
    a.b = trl__weight(m, m->lay.head, &a.b_dtype);
    if (m->rc == 0)
        m->rc = m->be->ops.gemm(m->be, &a);
}

/* logits now hold dL/dlogits: dhidden = dlogits W, dW += dlogits^T hidden */
static void chunk_backward(
    struct trl_model *m, const void *hidden, const int32_t *rows, int64_t n, bool dense)
{
    int64_t h = m->cfg.hidden, v = m->cfg.vocab;
    enum trl_dtype act = m->types.act, res = m->types.res;
    const struct trl_param *p = trl__param(m, m->lay.head);
    void *d_hidden = dense ? row_at(m, m->buf.t, res, rows[0]) : m->buf.dh_rows;
    struct trl_op_gemm a = {.m = n,
        .n = h,
        .k = v,
        .a = m->buf.logits,
        .c = d_hidden,
        .lda = v,
        .ldb = h,
        .ldc = h,
        .a_dtype = act,
        .c_dtype = res,
        .round = act,
        .alpha = 1,
        .b_is_weight = true};
    a.b = trl__weight(m, m->lay.head, &a.b_dtype);
    if (m->rc == 0)
        m->rc = m->be->ops.gemm(m->be, &a);
    if (!dense)
        op_rows(m, res, m->buf.dh_rows, m->buf.t, n, true);
    if (!p->trainable || m->rc)
        return;
    struct trl_op_gemm b = {.m = v,
        .n = h,
        .k = n,
        .trans_a = true,
        .a = m->buf.logits,
        .b = hidden,
        .c = trl_param_at(m->params.grads, m->params.dtype, p),
        .lda = v,
        .ldb = h,
        .ldc = h,
        .a_dtype = act,
        .b_dtype = act,
        .c_dtype = m->params.dtype,
        .round = act,
        .alpha = 1,
        .beta = 1};
    m->rc = m->be->ops.gemm(m->be, &b);
}

struct coef_ctx {
    struct trl_model *m;
    const struct trl_head_args *args;
    const int32_t *rows;
};

/* Stats to the host, the trainer's coefficients back to the device. */
static void on_stats(void *pv, int64_t n, const struct trl_xent_stats *stats)
{
    struct coef_ctx *x = pv;
    struct trl_model *m = x->m;
    struct trl_head_host *h = m->host;
    size_t bytes = (size_t)n * sizeof(float);
    int rc = m->be->copy_out(m->be, h->logp, stats->logp, bytes);
    rc = rc ? rc : m->be->copy_out(m->be, h->entropy, stats->entropy, bytes);
    rc = rc ? rc : m->be->copy_out(m->be, h->mean_logp, stats->mean_logp, bytes);
    rc = rc ? rc : m->be->copy_out(m->be, h->hit, stats->hit, (size_t)n);
    memset(h->d_logp, 0, bytes);
    memset(h->d_entropy, 0, bytes);
    memset(h->d_mean, 0, bytes);
    struct trl_head_chunk chunk = {.count = n,
        .token_index = x->rows,
        .logp = h->logp,
        .entropy = h->entropy,
        .mean_logp = h->mean_logp,
        .hit = h->hit,
        .d_logp = h->d_logp,
        .d_entropy = x->args->want_entropy_grad ? h->d_entropy : NULL,
        .d_mean = x->args->want_mean ? h->d_mean : NULL};
    if (rc == 0)
        x->args->coef(x->args->coef_ctx, &chunk);
    rc = rc ? rc : m->be->copy_in(m->be, m->buf.d_logp, h->d_logp, bytes);
    rc = rc ? rc : m->be->copy_in(m->be, m->buf.d_entropy, h->d_entropy, bytes);
    rc = rc ? rc : m->be->copy_in(m->be, m->buf.d_mean, h->d_mean, bytes);
    if (m->rc == 0)
        m->rc = rc;
}

static void chunk_xent(struct trl_model *m, const struct trl_head_args *args, const int32_t *rows,
    const int32_t *targets, int64_t n)
{
    struct trl_buffers *b = &m->buf;
    struct coef_ctx ctx = {m, args, rows};
    struct trl_op_xent a = {.n = n,
        .vocab = m->cfg.vocab,
        .ld = m->cfg.vocab,
        .logits = b->logits,
        .targets = b->targets,
        .stats = {b->logp, b->entropy, b->mean_logp, b->hit},
        .softcap = (float)m->cfg.final_softcap,
        .logits_dtype = m->types.act};
    if (!args->mean_logp && !args->want_mean)
        a.stats.mean_logp = NULL;
    if (args->coef) {
        a.coef = on_stats;
        a.coef_ctx = &ctx;
        a.stats.mean_logp = b->mean_logp;
    }
    if (args->want_grad) {
        a.d_logp = b->d_logp;
        a.d_entropy = args->want_entropy_grad ? b->d_entropy : NULL;
        a.d_mean = args->want_mean ? b->d_mean : NULL;
    }
    if (m->rc == 0)
        m->rc = m->be->copy_in(m->be, b->targets, targets, (size_t)n * sizeof(int32_t));
    if (m->rc == 0) {
        int rc = m->be->ops.xent(m->be, &a);
        m->rc = m->rc ? m->rc : rc;
    }
}

/* Per-token numbers of the chunk into the caller's arrays. */
static void chunk_results(
    struct trl_model *m, const struct trl_head_args *args, const int32_t *rows, int64_t n)
{
    struct trl_head_host *h = m->host;
    const struct {
        float *out, *host;
        const float *dev;
    } f[] = {{args->logp, h->logp, m->buf.logp}, {args->entropy, h->entropy, m->buf.entropy},
        {args->mean_logp, h->mean_logp, m->buf.mean_logp}};
    for (size_t k = 0; k < sizeof(f) / sizeof(f[0]) && m->rc == 0; k++) {
        if (!f[k].out)
            continue;
        m->rc = m->be->copy_out(m->be, f[k].host, f[k].dev, (size_t)n * sizeof(float));
        for (int64_t i = 0; i < n; i++)
            f[k].out[rows[i]] = f[k].host[i];
    }
    if (args->hit && m->rc == 0) {
        m->rc = m->be->copy_out(m->be, h->hit, m->buf.hit, (size_t)n);
        for (int64_t i = 0; i < n; i++)
            args->hit[rows[i]] = h->hit[i];
    }
}

static int64_t scored_tokens(struct trl_model *m, const int32_t *targets, struct trl_err *err)
{
    int64_t n = 0;
    for (int64_t i = 0; i < m->n; i++) {
        if (targets[i] >= m->cfg.vocab)
            return trl_fail(err, TRL_E_RANGE,
                "label %d at index %lld is outside the vocabulary of %lld", targets[i],
                (long long)i, (long long)m->cfg.vocab);
        if (targets[i] < 0)
            continue;
        m->host->rows[n] = (int32_t)i;
        m->host->targets[n++] = targets[i];
    }
    return n;
}

static void clear_outputs(const struct trl_model *m, const struct trl_head_args *args)
{
    size_t bytes = (size_t)m->n * sizeof(float);
    if (args->logp)
        memset(args->logp, 0, bytes);
    if (args->entropy)
        memset(args->entropy, 0, bytes);
    if (args->mean_logp)
        memset(args->mean_logp, 0, bytes);
    if (args->hit)
        memset(args->hit, 0, (size_t)m->n);
}

int trl_model_head(struct trl_model *m, const struct trl_head_args *args, struct trl_err *err)
{
    if (!m->has_hidden)
        return trl_fail(err, TRL_E_USAGE, "the head needs a forward pass before it");
    if (args->want_grad && (!m->trains || !args->coef))
        return trl_fail(
            err, TRL_E_USAGE, "gradients of the head need a training forward and coefficients");
    int64_t total = scored_tokens(m, args->targets, err);
    if (total < 0)
        return (int)total;
    clear_outputs(m, args);
    m->rc = 0;
    if (args->want_grad && total < m->n)
        m->rc = m->be->fill_zero(
            m->be, m->buf.t, (size_t)(m->n * m->cfg.hidden) * trl_dtype_size(m->types.res));
    for (int64_t first = 0; first < total && m->rc == 0; first += m->buf.head_chunk) {
        int64_t n = total - first < m->buf.head_chunk ? total - first : m->buf.head_chunk;
        const int32_t *rows = m->host->rows + first;
        bool dense;
        const void *hidden = chunk_hidden(m, rows, n, &dense);
        chunk_logits(m, hidden, n);
        chunk_xent(m, args, rows, m->host->targets + first, n);
        chunk_results(m, args, rows, n);
        if (args->want_grad)
            chunk_backward(m, hidden, rows, n, dense);
    }
    m->has_d_hidden = args->want_grad && m->rc == 0;
    return trl__model_status(m, err, "the head");
}

/* One row of logits to the host, capped, as float32. */
static void copy_logits(struct trl_model *m, int64_t row, float *ret)
{
    struct trl_head_host *h = m->host;
    int64_t v = m->cfg.vocab;
    float cap = (float)m->cfg.final_softcap;
    m->rc = m->be->copy_out(
        m->be, h->logits, (char *)m->buf.logits + (size_t)row * h->logits_size, h->logits_size);
    trl_dtype_convert(TRL_DTYPE_F32, ret, m->types.act, h->logits, (size_t)v);
    for (int64_t i = 0; cap > 0 && i < v; i++)
        ret[i] = cap * tanhf(ret[i] / cap);
}

int trl_model_logits(
    struct trl_model *m, const int32_t *token_index, int64_t n, float *ret, struct trl_err *err)
{
    if (!m->has_hidden)
        return trl_fail(err, TRL_E_USAGE, "logits need a forward pass before them");
    for (int64_t i = 0; i < n; i++)
        if (token_index[i] < 0 || token_index[i] >= m->n)
            return trl_fail(err, TRL_E_RANGE, "logits of token %d; the micro-batch has %lld",
                token_index[i], (long long)m->n);
    m->rc = 0;
    for (int64_t first = 0; first < n && m->rc == 0; first += m->buf.head_chunk) {
        int64_t k = n - first < m->buf.head_chunk ? n - first : m->buf.head_chunk;
        m->rc =
            m->be->copy_in(m->be, m->buf.rows, token_index + first, (size_t)k * sizeof(int32_t));
        op_rows(m, m->types.act, m->buf.norm, m->buf.h_rows, k, false);
        chunk_logits(m, m->buf.h_rows, k);
        for (int64_t i = 0; i < k && m->rc == 0; i++)
            copy_logits(m, i, ret + (first + i) * m->cfg.vocab);
    }
    return trl__model_status(m, err, "the logits");
}
