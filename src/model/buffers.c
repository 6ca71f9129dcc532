/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "base/alloc.h"
#include "model/internal.h"

enum { CUT_ALIGN = 256 };

struct cut {
    char *base;
    size_t used;
};

/* A sum that is too large for size_t stays at a size that no allocator grants. */
static void *take(struct cut *c, int64_t rows, int64_t cols, size_t elem)
{
    static const size_t most = SIZE_MAX / CUT_ALIGN * CUT_ALIGN - CUT_ALIGN;
    size_t at = c->used, bytes = trl_size_mul(trl_size_mul((size_t)rows, (size_t)cols), elem);
    c->used =
        bytes > most - at ? most : (at + bytes + CUT_ALIGN - 1) / CUT_ALIGN * CUT_ALIGN;
    return c->base ? c->base + at : NULL;
}

static int64_t max64(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

/* Tokens of one chunk of the head: about 32 M logits, between 64 and 512 tokens. */
static int64_t head_chunk(const struct trl_model_config *c, int64_t max_tokens)
{
    int64_t n = ((int64_t)1 << 25) / c->vocab / 32 * 32;
    n = n > 512 ? 512 : n < 64 ? 64 : n;
    return n < max_tokens ? n : max_tokens;
}

static void cut_saved(struct cut *k, struct trl_saved *s, const struct trl_model_config *c,
    const struct trl_types *t, int64_t n)
{
    size_t act = trl_dtype_size(t->act), res = trl_dtype_size(t->res);
    int64_t stats = c->norm == TRL_NORM_LAYER ? 2 : 1;
    s->qkv = take(k, n, (c->heads + 2 * c->kv_heads) * c->head_dim, act);
    s->attn = take(k, n, c->heads * c->head_dim, act);
    s->lse = take(k, n, c->heads, 4);
    s->mid = take(k, n, c->hidden, res);
    s->up = take(k, n, c->gated ? 2 * c->inter : c->inter, act);
    s->o_out = c->post_norms ? take(k, n, c->hidden, act) : NULL;
    s->down_out = c->post_norms ? take(k, n, c->hidden, act) : NULL;
    s->stat1 = take(k, n, stats, 4);
    s->stat2 = take(k, n, stats, 4);
    s->stat_post1 = c->post_norms ? take(k, n, stats, 4) : NULL;
    s->stat_post2 = c->post_norms ? take(k, n, stats, 4) : NULL;
    s->stat_qk = c->qk_norm ? take(k, n, c->heads + c->kv_heads, 4) : NULL;
}

static void cut_head(struct cut *k, struct trl_buffers *b, const struct trl_model_config *c,
    const struct trl_types *t, const struct trl_model_capacity *cap)
{
    int64_t n = b->head_chunk = head_chunk(c, cap->max_tokens);
    b->logits = take(k, n, c->vocab, trl_dtype_size(t->act));
    b->h_rows = take(k, n, c->hidden, trl_dtype_size(t->act));
    b->dh_rows = cap->training ? take(k, n, c->hidden, trl_dtype_size(t->res)) : NULL;
    b->targets = take(k, n, 1, 4);
    float **arrays[] = {
        &b->logp, &b->entropy, &b->mean_logp, &b->d_logp, &b->d_entropy, &b->d_mean};
    for (size_t i = 0; i < sizeof(arrays) / sizeof(arrays[0]); i++)
        *arrays[i] = take(k, n, 1, 4);
    b->hit = take(k, n, 1, 1);
}

static void cut_scratch(struct cut *k, struct trl_buffers *b, const struct trl_model_config *c,
    const struct trl_types *t, const struct trl_model_capacity *cap)
{
    int64_t n = cap->max_tokens, qk = (c->heads + c->kv_heads) * c->head_dim;
    int64_t wide = max64(c->inter, (c->heads + 2 * c->kv_heads) * c->head_dim);
    size_t act = trl_dtype_size(t->act), res = trl_dtype_size(t->res);
    b->norm = take(k, n, c->hidden, act);
    b->t = take(k, n, c->hidden, res);
    /* learned positions pass through w1 as res [N, H] */
    b->w1 = take(k, n, max64(wide * (int64_t)act, c->hidden * (int64_t)res), 1);
    b->w2 = cap->training ? take(k, n, wide, act) : NULL;
    b->qk = c->qk_norm ? take(k, n, qk, act) : NULL;
    b->d_qk = c->qk_norm && cap->training ? take(k, n, qk, act) : NULL;
    b->d_x = cap->training ? take(k, n, c->hidden, res) : NULL;
    b->ids = take(k, n, 1, 4);
    b->positions = take(k, n, 1, 4);
    b->rows = take(k, n, 1, 4);
    b->doc_start = take(k, cap->max_docs + 1, 1, 8);
    for (int i = 0; i < c->n_ropes; i++) {
        b->cos_table[i] = take(k, cap->max_position, c->head_dim / 2, 4);
        b->sin_table[i] = take(k, cap->max_position, c->head_dim / 2, 4);
    }
}

size_t trl__buffers_cut(struct trl_buffers *b, const struct trl_model_config *c,
    const struct trl_types *types, const struct trl_model_capacity *cap, void *base)
{
    struct cut k = {base, 0};
    for (int64_t i = 0; i < b->n_x; i++)
        b->x[i] = take(&k, cap->max_tokens, c->hidden, trl_dtype_size(types->res));
    for (int64_t i = 0; i < b->n_saved; i++)
        cut_saved(&k, &b->saved[i], c, types, cap->max_tokens);
    b->stat_final = take(&k, cap->max_tokens, c->norm == TRL_NORM_LAYER ? 2 : 1, 4);
    b->bytes_activations = k.used;
    cut_head(&k, b, c, types, cap);
    b->bytes_head = k.used - b->bytes_activations;
    cut_scratch(&k, b, c, types, cap);
    b->bytes_scratch = k.used - b->bytes_activations - b->bytes_head;
    return k.used;
}

int trl__buffers_new(struct trl_buffers *b, const struct trl_model_config *c,
    const struct trl_model_capacity *cap, struct trl_err *err)
{
    *b = (struct trl_buffers){0};
    b->n_saved = cap->training && !cap->checkpointing ? c->layers : 1;
    b->n_x = cap->training ? c->layers + 1 : 1;
    b->saved = trl_calloc((size_t)b->n_saved, sizeof(b->saved[0]));
    b->x = trl_calloc((size_t)b->n_x, sizeof(b->x[0]));
    if (b->saved && b->x)
        return 0;
    trl__buffers_free(b);
    return trl_fail_nomem(err, (size_t)c->layers * sizeof(b->saved[0]), "a table of activations");
}

void trl__buffers_free(struct trl_buffers *b)
{
    trl_free(b->saved);
    trl_free(b->x);
    *b = (struct trl_buffers){0};
}
