/* SPDX-License-Identifier: Apache-2.0 */
/* Text to ids: the pipeline, the word cache, offsets. */
#include <string.h>

#include "base/alloc.h"
#include "data/tok-internal.h"

int trl_tok_scratch_new(
    struct trl_tok_scratch **ret, const struct trl_tokenizer *t, struct trl_err *err)
{
    struct trl_tok_scratch *s = trl_calloc(1, sizeof(*s));
    if (!s)
        return trl_fail_nomem(err, sizeof(*s), "a tokenizer's working memory");
    s->t = t;
    s->match = pcre2_match_data_create(32, NULL);
    s->match_ctx = pcre2_match_context_create(NULL);
    s->jit_stack = pcre2_jit_stack_create(64 * 1024, 16 * 1024 * 1024, NULL);
    s->cache = trl_calloc(TOK_CACHE_SLOTS, sizeof(*s->cache));
    if (!s->match || !s->match_ctx || !s->cache) {
        trl_tok_scratch_free(s);
        return trl_fail_nomem(
            err, TOK_CACHE_SLOTS * sizeof(*s->cache), "a tokenizer's working memory");
    }
    if (s->jit_stack)
        pcre2_jit_stack_assign(s->match_ctx, NULL, s->jit_stack);
    *ret = s;
    return 0;
}

void trl_tok_scratch_free(struct trl_tok_scratch *s)
{
    if (!s)
        return;
    pcre2_match_data_free(s->match);
    pcre2_match_context_free(s->match_ctx);
    pcre2_jit_stack_free(s->jit_stack);
    trl__work_release(&s->norm);
    trl__work_release(&s->pre);
    trl_free(s->parts[0].at);
    trl_free(s->parts[1].at);
    trl_free(s->syms.at);
    trl_free(s->symbol);
    trl_free(s->heap);
    trl_free(s->node);
    trl_str_release(&s->text);
    trl_free(s->cache);
    trl_free(s);
}

void trl_ids_release(struct trl_ids *ids)
{
    trl_free(ids->ids);
    trl_free(ids->begin);
    trl_free(ids->end);
    *ids = (struct trl_ids){0};
}

/* ---- output ---- */

/* Room for n more; the offset arrays exist once offsets were asked for. */
static int out_reserve(struct trl_ids *o, size_t n, bool offsets, struct trl_err *err)
{
    bool make = offsets && !o->begin;
    size_t cap = o->cap, cap_b = make ? 0 : o->cap, cap_e = cap_b, need = o->len + n;
    void *p = o->ids, *b = o->begin, *e = o->end;
    if (o->cap >= need && !make)
        return 0;
    if (!trl_grow(&p, &cap, need, sizeof(int32_t)))
        return trl_fail_nomem(err, need * sizeof(int32_t), "token ids");
    o->ids = p;
    if (offsets || o->begin) {
        bool ok = trl_grow(&b, &cap_b, cap, sizeof(uint32_t));
        o->begin = b;
        ok = ok && trl_grow(&e, &cap_e, cap, sizeof(uint32_t));
        o->end = e;
        if (!ok)
            return trl_fail_nomem(err, cap * sizeof(uint32_t), "token offsets");
        if (make) {
            memset(o->begin, 0, o->len * sizeof(uint32_t));
            memset(o->end, 0, o->len * sizeof(uint32_t));
        }
    }
    o->cap = cap;
    return 0;
}

static int out_add(
    struct trl_ids *o, int32_t id, uint32_t b, uint32_t e, bool offsets, struct trl_err *err)
{
    int rc = out_reserve(o, 1, offsets, err);
    if (rc)
        return rc;
    o->ids[o->len] = id;
    if (o->begin) {
        o->begin[o->len] = b;
        o->end[o->len] = e;
    }
    o->len++;
    return 0;
}

/* ---- offsets ---- */

struct run {
    const struct trl_tokenizer *t;
    struct trl_tok_scratch *s;
    const char *text;
    size_t len;
    struct trl_ids *out;
    size_t first; /* where this text's tokens begin in `out` */
    bool offsets;
};

/* Space characters at the ends of a token: the byte map's space, or white space. */
static void count_spaces(const char *p, size_t len, uint32_t *ret_lead, uint32_t *ret_trail)
{
    uint32_t lead = 0, trail = 0;
    size_t i = 0;
    int n;
    while (i < len) {
        unsigned cp = trl__uc_next(p + i, &n);
        if (cp != 0x120 && !trl__uc_is_space(cp))
            break;
        lead++;
        i += (size_t)n;
    }
    for (i = len; i > 0; i -= (size_t)n) {
        unsigned cp = trl__uc_prev(p, p + i, &n);
        if (cp != 0x120 && !trl__uc_is_space(cp))
            break;
        trail++;
    }
    *ret_lead = lead;
    *ret_trail = trail;
}

/* ByteLevel's trim_offsets, in whole characters. A single leading space of the first token counts
 * as the one that add_prefix_space made. */
static void trim(const struct run *r, const char *token, size_t len, uint32_t *b, uint32_t *e)
{
    uint32_t lead, trail, p = *e;
    int n;
    count_spaces(token, len, &lead, &trail);
    if (lead == 1 && r->t->post.trim_prefix_space && (r->out->len == r->first || *b == 0))
        lead = 0;
    for (; lead > 0 && *b < *e; lead--) {
        trl__uc_next(r->text + *b, &n);
        *b += (uint32_t)n;
    }
    for (; trail > 0 && p > 0; trail--) {
        trl__uc_prev(r->text, r->text + p, &n);
        p -= (uint32_t)n;
    }
    if (trail == 0)
        *e = p > *b ? p : *b;
}

/* One token of the model at bytes [sym.b, sym.e) of the piece that begins at `base`. */
static int emit_sym(struct run *r, const struct tok_sym *y, size_t base, struct trl_err *err)
{
    uint32_t b = 0, e = 0;
    if (r->offsets) {
        const struct tok_text *x = &r->s->pre.text;
        b = y->b;
        e = y->e;
        if (y->b < y->e && base + y->e <= x->len) {
            b = trl__work_align(x, base + y->b).b;
            e = trl__work_align(x, base + y->e - 1).e;
        }
        const struct tok_entry *v = trl__vocab_get(&r->t->vocab, y->id);
        if (r->t->post.trim && v)
            trim(r, v->s, v->len, &b, &e);
    }
    return out_add(r->out, y->id, b, e, r->offsets, err);
}

/* ---- words ---- */

static uint32_t cache_hash(const char *w, size_t len)
{
    return (uint32_t)trl__tok_hash(w, len);
}

static bool cache_hit(const struct tok_cache_slot *c, uint32_t hash, const char *w, size_t len)
{
    return c->hash == hash && c->key_len == len && memcmp(c->key, w, len) == 0;
}

static void cache_store(struct tok_cache_slot *c, uint32_t hash, const char *w, size_t len,
    const struct tok_sym *at, size_t n)
{
    c->hash = hash;
    c->key_len = (uint8_t)len;
    c->n = (uint8_t)n;
    memcpy(c->key, w, len);
    for (size_t i = 0; i < n; i++) {
        c->id[i] = at[i].id;
        c->len[i] = (uint8_t)(at[i].e - at[i].b);
    }
}

static int emit_cached(
    struct run *r, const struct tok_cache_slot *c, size_t base, struct trl_err *err)
{
    uint32_t pos = 0;
    int rc = out_reserve(r->out, c->n, r->offsets, err);
    for (size_t i = 0; i < c->n && !rc; i++) {
        struct tok_sym y = {c->id[i], pos, pos + c->len[i]};
        pos = y.e;
        rc = emit_sym(r, &y, base, err);
    }
    return rc;
}

static int run_word(struct run *r, size_t b, size_t e, struct trl_err *err)
{
    struct trl_tok_scratch *s = r->s;
    const char *w = s->pre.text.p + b;
    size_t len = e - b;
    struct tok_cache_slot *c = NULL;
    uint32_t hash = 0;
    bool plain = true;
    if (len <= TOK_CACHE_KEY) {
        hash = cache_hash(w, len);
        c = &s->cache[hash % TOK_CACHE_SLOTS];
        if (cache_hit(c, hash, w, len))
            return emit_cached(r, c, b, err);
    }
    s->syms.len = 0;
    int rc = trl__model_word(r->t, s, w, len, &plain, err);
    if (rc)
        return rc;
    if (c && plain && s->syms.len <= TOK_CACHE_SYMS)
        cache_store(c, hash, w, len, s->syms.at, s->syms.len);
    for (size_t i = 0; i < s->syms.len && !rc; i++)
        rc = emit_sym(r, &s->syms.at[i], b, err);
    return rc;
}

/* ---- parts ---- */

/* A match of an added token at [b, e) of `x`. */
static int emit_added(struct run *r, const struct tok_added *a, const struct tok_text *x, size_t b,
    size_t e, struct trl_err *err)
{
    uint32_t ob = 0, oe = 0;
    if (r->offsets && b < e) {
        ob = trl__work_align(x, b).b;
        oe = trl__work_align(x, e - 1).e;
        if (r->t->post.trim)
            trim(r, x->p + b, e - b, &ob, &oe);
    }
    return out_add(r->out, a->id, ob, oe, r->offsets, err);
}

/* Bytes [b, e) of the normalized text: pieces, then ids. */
static int run_normalized(
    struct run *r, const struct tok_text *x, size_t b, size_t e, struct trl_err *err)
{
    struct tok_work *w = &r->s->pre;
    w->text = (struct tok_text){.p = x->p + b,
        .len = e - b,
        .align = x->align ? x->align + b : NULL,
        .origin = x->origin + (uint32_t)(x->align ? 0 : b)};
    int rc = trl__pre_apply(r->t, r->s, w, err);
    for (size_t i = 0; i < w->spans[w->cur_spans].len && !rc; i++)
        rc = run_word(r, w->spans[w->cur_spans].at[i].b, w->spans[w->cur_spans].at[i].e, err);
    return rc;
}

/* Bytes [b, e) of the input, free of raw added tokens. */
static int run_raw(struct run *r, size_t b, size_t e, struct trl_err *err)
{
    const struct trl_tokenizer *t = r->t;
    struct tok_work *w = &r->s->norm;
    struct tok_parts *parts = &r->s->parts[1];
    w->text = (struct tok_text){.p = r->text + b, .len = e - b, .origin = (uint32_t)b};
    int rc = trl__norm_apply(t, r->s, w, err);
    if (rc)
        return rc;
    if (t->norm_match.len == 0)
        return run_normalized(r, &w->text, 0, w->text.len, err);
    rc = trl__added_split(t, &t->norm_match, w->text.p, w->text.len, parts, err);
    for (size_t i = 0; i < parts->len && !rc; i++) {
        const struct tok_part *p = &parts->at[i];
        rc = p->added >= 0 ? emit_added(r, &t->added[p->added], &w->text, p->b, p->e, err)
                           : run_normalized(r, &w->text, p->b, p->e, err);
    }
    return rc;
}

static int run_text(struct run *r, struct trl_err *err)
{
    const struct trl_tokenizer *t = r->t;
    struct tok_parts *parts = &r->s->parts[0];
    struct tok_text x = {.p = r->text, .len = r->len};
    int rc = trl__added_split(t, &t->raw_match, r->text, r->len, parts, err);
    for (size_t i = 0; i < parts->len && !rc; i++) {
        const struct tok_part *p = &parts->at[i];
        rc = p->added >= 0 ? emit_added(r, &t->added[p->added], &x, p->b, p->e, err)
                           : run_raw(r, p->b, p->e, err);
    }
    return rc;
}

int trl_tokenizer_encode(const struct trl_tokenizer *t, struct trl_tok_scratch *s, const char *text,
    size_t len, unsigned flags, struct trl_ids *out, struct trl_err *err)
{
    bool offsets = flags & TRL_TOK_OFFSETS, special = flags & TRL_TOK_ADD_SPECIAL;
    size_t start = out->len;
    int rc = 0;
    if (len > UINT32_MAX / 2)
        return trl_fail(err, TRL_E_RANGE,
            "a text of %zu bytes is too long for the tokenizer (at most 2 GB)", len);
    size_t bad = trl_utf8_check(text, len);
    if (bad != len)
        return trl_fail(err, TRL_E_DATA, "the text is not valid UTF-8 at byte %zu", bad);
    s->norm.offsets = s->pre.offsets = offsets || t->needs_align;
    for (size_t i = 0; special && i < t->post.n_before && !rc; i++)
        rc = out_add(out, t->post.before[i], 0, 0, offsets, err);
    struct run r = {.t = t,
        .s = s,
        .text = text,
        .len = len,
        .out = out,
        .first = out->len,
        .offsets = offsets};
    if (!rc)
        rc = run_text(&r, err);
    for (size_t i = 0; special && i < t->post.n_after && !rc; i++)
        rc = out_add(out, t->post.after[i], 0, 0, offsets, err);
    if (rc)
        out->len = start;
    return rc;
}
