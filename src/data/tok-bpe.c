/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Byte-pair encoding. A word is a doubly linked list of symbols; a heap holds the merges that are
 * possible now, lowest rank first and leftmost among equals. A candidate is stale when its left
 * symbol is gone or its pair became another one.
 */
#include <string.h>

#include "base/alloc.h"
#include "data/tok-internal.h"

/* ---- loading ---- */

/* Where the text of one merge was written: as "left right" or as [left, right]. */
static int scan_merge(struct tok_scan *sc, struct trl_str *left, struct trl_str *right,
    bool *ret_skip, struct trl_err *err)
{
    const char *s;
    size_t n;
    int rc;
    trl_str_clear(left);
    trl_str_clear(right);
    *ret_skip = false;
    if (trl__tok_scan_is(sc, '[')) {
        if ((rc = trl__tok_scan_str(sc, &s, &n, err)))
            return rc;
        trl_str_append(left, s, n);
        if ((rc = trl__tok_scan_expect(sc, ',', "a merge [left, right]", err)) ||
            (rc = trl__tok_scan_str(sc, &s, &n, err)))
            return rc;
        trl_str_append(right, s, n);
        return trl__tok_scan_expect(sc, ']', "a merge [left, right]", err);
    }
    if ((rc = trl__tok_scan_str(sc, &s, &n, err)))
        return rc;
    *ret_skip = n >= 8 && memcmp(s, "#version", 8) == 0;
    const char *space = memchr(s, ' ', n);
    if (*ret_skip)
        return 0;
    if (!space || memchr(space + 1, ' ', n - (size_t)(space + 1 - s)))
        return trl__tok_scan_fail(sc, err, "a broken merge: not two tokens with one space between");
    trl_str_append(left, s, (size_t)(space - s));
    trl_str_append(right, space + 1, n - (size_t)(space + 1 - s));
    return 0;
}

static int add_merge(struct trl_tokenizer *t, struct tok_scan *sc, const struct trl_str *left,
    const struct trl_str *right, uint32_t rank, struct trl_str *both, struct trl_err *err)
{
    struct tok_model *m = &t->model;
    size_t skip = m->prefix_len < right->len ? m->prefix_len : right->len;
    int32_t l = trl__vocab_find(&t->vocab, trl_str_get(left), left->len);
    int32_t r = trl__vocab_find(&t->vocab, trl_str_get(right), right->len);
    trl_str_clear(both);
    trl_str_append(both, trl_str_get(left), left->len);
    trl_str_append(both, trl_str_get(right) + skip, right->len - skip);
    if (both->failed)
        return trl_str_check(both, err);
    int32_t id = trl__vocab_find(&t->vocab, trl_str_get(both), both->len);
    if (l >= 0 && r >= 0 && id >= 0) {
        if (m->merges.count * 2 > m->merges.mask)
            return trl__tok_scan_fail(
                sc, err, "merges of both forms, \"left right\" and [left, right]");
        trl__merges_add(&m->merges, l, r, rank, id);
        return 0;
    }
    char text[400];
    const struct trl_str *bad = l < 0 ? left : r < 0 ? right : both;
    snprintf(text, sizeof(text),
        "a broken merge: number %u joins '%.80s' and '%.80s', but '%.160s' is not in the "
        "vocabulary",
        rank, trl_str_get(left), trl_str_get(right), trl_str_get(bad));
    return trl__tok_scan_fail(sc, err, text);
}

/* An upper bound of the number of merges, from the commas: one a merge, and one inside each pair.
 */
static size_t count_merges(const struct tok_json *j)
{
    size_t n = 1;
    for (const char *p = j->merges; p < j->merges + j->merges_len; p++)
        n += *p == ',';
    size_t i = 1;
    while (i < j->merges_len && strchr(" \n\r\t", j->merges[i]))
        i++;
    return i < j->merges_len && j->merges[i] == '[' ? n / 2 + 1
                                                    : n; /* a mixture fails in add_merge */
}

static int load_merges(struct trl_tokenizer *t, const struct tok_json *j, struct trl_err *err)
{
    struct tok_scan sc;
    struct trl_str left = {0}, right = {0}, both = {0};
    uint32_t rank = 0;
    bool skip;
    int rc = trl__merges_reserve(&t->model.merges, j->merges ? count_merges(j) : 0, err);
    trl__tok_scan_init(&sc, j, j->merges ? j->merges : "[]", j->merges ? j->merges_len : 2);
    if (rc || (rc = trl__tok_scan_expect(&sc, '[', "\"merges\"", err)))
        goto out;
    if (trl__tok_scan_is(&sc, ']'))
        goto out;
    do {
        if ((rc = scan_merge(&sc, &left, &right, &skip, err)))
            goto out;
        if (skip)
            continue;
        if ((rc = trl_str_check(&left, err)) || (rc = trl_str_check(&right, err)) ||
            (rc = add_merge(t, &sc, &left, &right, rank++, &both, err)))
            goto out;
    } while (trl__tok_scan_is(&sc, ','));
    rc = trl__tok_scan_expect(&sc, ']', "\"merges\"", err);
out:
    trl_str_release(&left);
    trl_str_release(&right);
    trl_str_release(&both);
    trl__tok_scan_release(&sc);
    return rc;
}

static int load_affix(struct trl_tokenizer *t, const json_t *m, const char *key, const char **ret,
    size_t *ret_len, const char *where, struct trl_err *err)
{
    const char *s = NULL;
    size_t n = 0;
    int rc = trl__tok_get_str(m, key, false, &s, &n, where, err);
    if (rc || n == 0)
        return rc;
    *ret = trl_arena_strndup(&t->arena, s, n);
    *ret_len = n;
    return *ret ? 0 : trl_fail_nomem(err, n, where);
}

static void find_bytes(struct trl_tokenizer *t)
{
    struct tok_model *m = &t->model;
    m->all_bytes = true;
    for (unsigned i = 0; i < 256; i++) {
        char name[8];
        snprintf(name, sizeof(name), "<0x%02X>", i);
        m->byte_id[i] = trl__vocab_find(&t->vocab, name, 6);
        m->all_bytes = m->all_bytes && m->byte_id[i] >= 0;
    }
}

int trl__bpe_load(
    struct trl_tokenizer *t, const struct tok_json *j, const json_t *m, struct trl_err *err)
{
    char where[512];
    const char *unk = NULL;
    size_t unk_len = 0;
    struct tok_model *b = &t->model;
    int rc;
    snprintf(where, sizeof(where), "%s: model", t->origin);
    const json_t *dropout = json_object_get(m, "dropout");
    if (dropout && !json_is_null(dropout) && json_number_value(dropout) != 0.0)
        return trl_fail(err, TRL_E_UNSUPPORTED,
            "%s: 'dropout' makes the ids random, which is not supported; set it to null", where);
    if ((rc = trl__tok_get_bool(m, "fuse_unk", &b->fuse_unk, where, err)) ||
        (rc = trl__tok_get_bool(m, "byte_fallback", &b->byte_fallback, where, err)) ||
        (rc = trl__tok_get_bool(m, "ignore_merges", &b->ignore_merges, where, err)) ||
        (rc = load_affix(
             t, m, "continuing_subword_prefix", &b->prefix, &b->prefix_len, where, err)) ||
        (rc = load_affix(t, m, "end_of_word_suffix", &b->suffix, &b->suffix_len, where, err)) ||
        (rc = trl__tok_get_str(m, "unk_token", false, &unk, &unk_len, where, err)))
        return rc;
    b->has_unk_token = unk != NULL;
    b->unk_id = unk ? trl__vocab_find(&t->vocab, unk, unk_len) : -1;
    find_bytes(t);
    for (int i = 0; i < 128; i++) {
        char c = (char)i;
        b->char_id[i] = trl__vocab_find(&t->vocab, &c, 1);
    }
    return load_merges(t, j, err);
}

/* Let the model take raw bytes: which token is the mapped character of each byte, and the tokens as
 * bytes for ignore_merges. */
int trl__bpe_prepare_raw(struct trl_tokenizer *t, struct trl_err *err)
{
    struct tok_model *b = &t->model;
    struct trl_str raw = {0};
    int rc = 0;
    b->raw = true;
    for (unsigned i = 0; i < 256; i++) {
        char bytes[4];
        int n = trl__uc_put(bytes, trl__byte_to_char[i]);
        b->byte_id[i] = trl__vocab_find(&t->vocab, bytes, (size_t)n);
    }
    for (int32_t id = 0; b->ignore_merges && id <= t->vocab.max_id && !rc; id++) {
        const struct tok_entry *e = trl__vocab_get(&t->vocab, id);
        int n, c = 0;
        trl_str_clear(&raw);
        for (uint32_t i = 0; e && i < e->len && c >= 0; i += (uint32_t)n) {
            c = trl__char_to_byte(trl__uc_next(e->s + i, &n));
            if (c >= 0)
                trl_str_putc(&raw, (char)c);
        }
        if (e && c >= 0 && raw.len && !(rc = trl_str_check(&raw, err)))
            rc = trl__vocab_add(&b->raw_words, raw.data, raw.len, id, t->origin, err);
    }
    trl_str_release(&raw);
    return rc;
}

/* ---- symbols of a word ---- */

struct builder {
    const struct trl_tokenizer *t;
    struct trl_tok_scratch *s;
    size_t n;
    bool unk_pending, dropped;
    uint32_t unk_len;
};

static void add_symbol(struct builder *b, int32_t id, uint32_t len)
{
    int32_t i = (int32_t)b->n++;
    b->s->symbol[i] = (struct bpe_symbol){.id = id, .prev = i - 1, .next = i + 1, .len = len};
}

static void flush_unk(struct builder *b)
{
    if (b->unk_pending)
        add_symbol(b, b->t->model.unk_id, b->unk_len);
    b->unk_pending = false;
}

/* A character that is no token: byte tokens, or unk, or nothing. Byte tokens do not wait for a
 * pending unk (as in the tokenizers library, where the unk then comes after them). */
static int add_unknown(
    struct builder *b, const char *p, size_t n, uint32_t len, struct trl_err *err)
{
    const struct tok_model *m = &b->t->model;
    if (m->byte_fallback && !m->raw) {
        bool all = true;
        for (size_t i = 0; i < n && all; i++)
            all = m->byte_id[(unsigned char)p[i]] >= 0;
        for (size_t i = 0; i < n && all; i++)
            add_symbol(b, m->byte_id[(unsigned char)p[i]], 1);
        if (all)
            return 0;
    }
    if (!m->has_unk_token) {
        b->dropped = true;
        return 0;
    }
    if (m->unk_id < 0)
        return trl_fail(err, TRL_E_DATA,
            "%s: a character is not in the vocabulary, and neither is unk_token", b->t->origin);
    if (b->unk_pending && m->fuse_unk) {
        b->unk_len += len;
        return 0;
    }
    flush_unk(b);
    b->unk_pending = true;
    b->unk_len = len;
    return 0;
}

/* Raw words: one symbol a byte. mapped: lengths count bytes of the mapped characters. */
static int build_raw(struct builder *b, const char *w, size_t len, bool mapped, struct trl_err *err)
{
    for (size_t i = 0; i < len; i++) {
        unsigned char c = (unsigned char)w[i];
        int32_t id = b->t->model.byte_id[c];
        uint32_t n = mapped && trl__byte_to_char[c] >= 0x80 ? 2 : 1;
        if (id >= 0) {
            flush_unk(b);
            add_symbol(b, id, n);
            continue;
        }
        int rc = add_unknown(b, w + i, 1, n, err);
        if (rc)
            return rc;
    }
    flush_unk(b);
    return 0;
}

static int build_chars(struct builder *b, const char *w, size_t len, struct trl_err *err)
{
    const struct tok_model *m = &b->t->model;
    struct trl_str *buf = &b->s->text;
    for (size_t i = 0; i < len;) {
        int n, rc;
        trl__uc_next(w + i, &n);
        const char *p = w + i;
        size_t plen = (size_t)n;
        bool prefix = m->prefix && i > 0, suffix = m->suffix && i + plen == len;
        if (prefix || suffix) {
            trl_str_clear(buf);
            if (prefix)
                trl_str_append(buf, m->prefix, m->prefix_len);
            trl_str_append(buf, w + i, plen);
            if (suffix)
                trl_str_append(buf, m->suffix, m->suffix_len);
            if ((rc = trl_str_check(buf, err)))
                return rc;
            p = buf->data;
            plen = buf->len;
        }
        int32_t id = plen == 1 ? m->char_id[*p & 0x7F] : trl__vocab_find(&b->t->vocab, p, plen);
        if (id >= 0) {
            flush_unk(b);
            add_symbol(b, id, (uint32_t)n);
        } else if ((rc = add_unknown(b, p, plen, (uint32_t)n, err))) {
            return rc;
        }
        i += (size_t)n;
    }
    flush_unk(b);
    return 0;
}

/* ---- merging ---- */

static bool before(const struct bpe_candidate *a, const struct bpe_candidate *b)
{
    return a->rank != b->rank ? a->rank < b->rank : a->pos < b->pos;
}

static void heap_push(struct trl_tok_scratch *s, struct bpe_candidate c)
{
    size_t i = s->heap_len++;
    while (i > 0 && before(&c, &s->heap[(i - 1) / 2])) {
        s->heap[i] = s->heap[(i - 1) / 2];
        i = (i - 1) / 2;
    }
    s->heap[i] = c;
}

static struct bpe_candidate heap_pop(struct trl_tok_scratch *s)
{
    struct bpe_candidate top = s->heap[0], last = s->heap[--s->heap_len];
    size_t i = 0, k;
    while ((k = 2 * i + 1) < s->heap_len) {
        if (k + 1 < s->heap_len && before(&s->heap[k + 1], &s->heap[k]))
            k++;
        if (!before(&s->heap[k], &last))
            break;
        s->heap[i] = s->heap[k];
        i = k;
    }
    s->heap[i] = last;
    return top;
}

static void push_pair(
    const struct tok_merges *m, struct trl_tok_scratch *s, int32_t left, int32_t right)
{
    const struct tok_merge *hit = trl__merges_find(m, s->symbol[left].id, s->symbol[right].id);
    if (hit)
        heap_push(s, (struct bpe_candidate){.rank = hit->rank, .pos = left, .id = hit->id});
}

/* Short words: look for the best pair each time, no heap. The ranks of the pairs are kept. */
static size_t merge_short(const struct tok_merges *m, struct trl_tok_scratch *s, size_t n)
{
    const struct tok_merge *pair[16];
    struct bpe_symbol *y = s->symbol;
    for (size_t i = 0; i + 1 < n; i++)
        pair[i] = trl__merges_find(m, y[i].id, y[i + 1].id);
    for (;;) {
        size_t best = n;
        for (size_t i = 0; i + 1 < n; i++)
            if (pair[i] && (best == n || pair[i]->rank < pair[best]->rank))
                best = i;
        if (best == n)
            return n;
        y[best].id = pair[best]->id;
        y[best].len += y[best + 1].len;
        for (size_t i = best + 1; i + 1 < n; i++) {
            y[i] = y[i + 1];
            pair[i] = i + 2 < n ? pair[i + 1] : NULL;
        }
        n--;
        if (best > 0)
            pair[best - 1] = trl__merges_find(m, y[best - 1].id, y[best].id);
        pair[best] = best + 1 < n ? trl__merges_find(m, y[best].id, y[best + 1].id) : NULL;
    }
}

static void merge_long(const struct tok_merges *m, struct trl_tok_scratch *s, size_t n)
{
    struct bpe_symbol *y = s->symbol;
    s->heap_len = 0;
    y[n - 1].next = -1;
    for (size_t i = 0; i + 1 < n; i++)
        push_pair(m, s, (int32_t)i, (int32_t)i + 1);
    while (s->heap_len > 0) {
        struct bpe_candidate c = heap_pop(s);
        int32_t right = y[c.pos].next;
        if (y[c.pos].id < 0 || right < 0)
            continue;
        const struct tok_merge *now = trl__merges_find(m, y[c.pos].id, y[right].id);
        if (!now || now->id != c.id)
            continue;
        y[c.pos].id = c.id;
        y[c.pos].len += y[right].len;
        y[c.pos].next = y[right].next;
        y[right].id = -1;
        if (y[c.pos].next >= 0) {
            y[y[c.pos].next].prev = c.pos;
            push_pair(m, s, c.pos, y[c.pos].next);
        }
        if (y[c.pos].prev >= 0)
            push_pair(m, s, y[c.pos].prev, c.pos);
    }
}

/* Room for `len` symbols (one a byte, prefix and suffix bytes included) and for every candidate
 * there can be: n - 1 pairs at first, and two for each of at most n - 1 merges. */
static int reserve(struct trl_tok_scratch *s, size_t len, struct trl_err *err)
{
    void *p = s->symbol, *q = s->heap;
    if (len > INT32_MAX / 8)
        return trl_fail(err, TRL_E_RANGE, "a word of %zu bytes is too long for the tokenizer", len);
    if (!trl_grow(&p, &s->symbol_cap, len, sizeof(*s->symbol)))
        return trl_fail_nomem(err, len * sizeof(*s->symbol), "a word");
    s->symbol = p;
    if (!trl_grow(&q, &s->heap_cap, 3 * len, sizeof(*s->heap)))
        return trl_fail_nomem(err, 3 * len * sizeof(*s->heap), "a word");
    s->heap = q;
    return 0;
}

/* Offsets counted in mapped characters (2 bytes for most) back to raw bytes. */
static void unmap_offsets(struct tok_sym *at, size_t n, const char *w, size_t len)
{
    for (size_t k = 0; k < n; k++) {
        size_t pos = 0, b = len, e = len;
        for (size_t i = 0; i < len; i++) {
            size_t next = pos + (trl__byte_to_char[(unsigned char)w[i]] >= 0x80 ? 2 : 1);
            if (at[k].b >= pos && at[k].b < next)
                b = i;
            if (at[k].e > pos && at[k].e <= next)
                e = i + 1;
            pos = next;
        }
        at[k].b = (uint32_t)b;
        at[k].e = (uint32_t)e;
    }
}

int trl__bpe_word(const struct trl_tokenizer *t, struct trl_tok_scratch *s, const char *w,
    size_t len, bool *ret_plain, struct trl_err *err)
{
    const struct tok_model *m = &t->model;
    struct builder b = {.t = t, .s = s};
    size_t first = s->syms.len, pos = 0;
    bool mapped = m->raw && s->pre.offsets;
    int rc;
    *ret_plain = true;
    if (m->ignore_merges) {
        int32_t id = trl__vocab_find(m->raw ? &m->raw_words : &t->vocab, w, len);
        if (id >= 0)
            return trl__syms_add(&s->syms, id, 0, len, err);
    }
    size_t extra = m->prefix_len > m->suffix_len ? m->prefix_len : m->suffix_len;
    if ((rc = reserve(s, len * (1 + 2 * extra) + 1, err)))
        return rc;
    if ((rc = m->raw ? build_raw(&b, w, len, false, err) : build_chars(&b, w, len, err)))
        return rc;
    if (b.dropped && mapped) {
        b = (struct builder){.t = t, .s = s, .dropped = true};
        if ((rc = build_raw(&b, w, len, true, err)))
            return rc;
    }
    if (b.n == 0) {
        *ret_plain = !b.dropped;
        return 0;
    }
    if (b.n <= 16) {
        size_t n = merge_short(&m->merges, s, b.n);
        for (size_t i = 0; i < n && !rc; pos += s->symbol[i++].len)
            rc = trl__syms_add(&s->syms, s->symbol[i].id, pos, pos + s->symbol[i].len, err);
    } else {
        merge_long(&m->merges, s, b.n);
        for (int32_t i = 0; i >= 0 && !rc; pos += s->symbol[i].len, i = s->symbol[i].next)
            rc = trl__syms_add(&s->syms, s->symbol[i].id, pos, pos + s->symbol[i].len, err);
    }
    *ret_plain = pos == len && !b.dropped;
    if (b.dropped && mapped && !rc)
        unmap_offsets(s->syms.at + first, s->syms.len - first, w, len);
    return rc;
}
