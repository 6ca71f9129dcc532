/* SPDX-License-Identifier: Apache-2.0 */
/* Decoders: each rewrites a list of token texts; at the end the list is joined. */
#include <string.h>

#include "base/alloc.h"
#include "data/tok-internal.h"

/* ---- loading ---- */

static int add_step(
    struct trl_tokenizer *t, enum tok_dec_kind kind, struct tok_dec **ret, struct trl_err *err)
{
    void *p = t->dec;
    struct tok_dec *n = trl__tok_append(&p, &t->n_dec, &t->dec_cap, sizeof(*t->dec));
    if (!n)
        return trl_fail_nomem(err, sizeof(*n), "the decoder");
    t->dec = p;
    n->kind = kind;
    *ret = n;
    return 0;
}

static int take_str(struct trl_tokenizer *t, const json_t *v, const char *key, const char *fallback,
    const char **ret, size_t *ret_len, const char *where, struct trl_err *err)
{
    const char *s = fallback;
    size_t n = strlen(fallback);
    int rc = trl__tok_get_str(v, key, false, &s, &n, where, err);
    if (rc)
        return rc;
    *ret = trl_arena_strndup(&t->arena, s, n);
    *ret_len = n;
    return *ret ? 0 : trl_fail_nomem(err, n, where);
}

static int load_options(struct trl_tokenizer *t, struct tok_dec *d, const json_t *v,
    const char *where, struct trl_err *err)
{
    const char *scheme = NULL;
    size_t len;
    bool prefix = true;
    int rc;
    d->cleanup = true;
    switch (d->kind) {
    case TOK_DEC_REPLACE:
        if ((rc = trl__regex_load(&d->re, &t->arena, json_object_get(v, "pattern"), where, err)))
            return rc;
        return take_str(t, v, "content", "", &d->content, &d->content_len, where, err);
    case TOK_DEC_STRIP:
        if ((rc = trl__tok_get_int(v, "start", &d->start, where, err)) ||
            (rc = trl__tok_get_int(v, "stop", &d->stop, where, err)))
            return rc;
        return take_str(t, v, "content", " ", &d->content, &d->content_len, where, err);
    case TOK_DEC_METASPACE:
        if ((rc = trl__tok_get_str(v, "prepend_scheme", false, &scheme, &len, where, err)) ||
            (rc = trl__tok_get_bool(v, "add_prefix_space", &prefix, where, err)))
            return rc;
        d->prepended = scheme ? strcmp(scheme, "never") != 0 : prefix;
        return take_str(
            t, v, "replacement", "\xE2\x96\x81", &d->content, &d->content_len, where, err);
    case TOK_DEC_WORDPIECE:
        if ((rc = trl__tok_get_bool(v, "cleanup", &d->cleanup, where, err)))
            return rc;
        return take_str(t, v, "prefix", "##", &d->content, &d->content_len, where, err);
    case TOK_DEC_BPE:
        return take_str(t, v, "suffix", "</w>", &d->content, &d->content_len, where, err);
    case TOK_DEC_CTC:
        if ((rc = trl__tok_get_bool(v, "cleanup", &d->cleanup, where, err)) ||
            (rc = take_str(
                 t, v, "word_delimiter_token", "|", &d->delimiter, &d->delimiter_len, where, err)))
            return rc;
        return take_str(t, v, "pad_token", "<pad>", &d->content, &d->content_len, where, err);
    default:
        return 0;
    }
}

static int load_one(
    struct trl_tokenizer *t, const json_t *v, int depth, const char *where, struct trl_err *err)
{
    static const struct {
        const char *name;
        enum tok_dec_kind kind;
    } kinds[] = {{"ByteLevel", TOK_DEC_BYTE_LEVEL}, {"Replace", TOK_DEC_REPLACE},
        {"ByteFallback", TOK_DEC_BYTE_FALLBACK}, {"Fuse", TOK_DEC_FUSE}, {"Strip", TOK_DEC_STRIP},
        {"Metaspace", TOK_DEC_METASPACE}, {"WordPiece", TOK_DEC_WORDPIECE},
        {"BPEDecoder", TOK_DEC_BPE}, {"CTC", TOK_DEC_CTC}};
    const char *type = NULL;
    size_t len, i;
    const json_t *e, *list;
    struct tok_dec *d = NULL;
    int rc = trl__tok_get_str(v, "type", true, &type, &len, where, err);
    if (rc)
        return rc;
    if (strcmp(type, "Sequence") == 0) {
        list = json_object_get(v, "decoders");
        if (!json_is_array(list) || depth > 8)
            return trl_fail(
                err, TRL_E_DATA, "%s: a Sequence needs a list (at most 8 levels)", where);
        json_array_foreach(list, i, e) if ((rc = load_one(t, e, depth + 1, where, err))) return rc;
        return 0;
    }
    for (i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++)
        if (strcmp(type, kinds[i].name) == 0)
            return (rc = add_step(t, kinds[i].kind, &d, err)) ? rc
                                                              : load_options(t, d, v, where, err);
    return trl_fail(err, TRL_E_UNSUPPORTED, "%s: type '%.60s' is not known", where, type);
}

int trl__dec_load(struct trl_tokenizer *t, const json_t *v, struct trl_err *err)
{
    char where[512];
    if (!v || json_is_null(v))
        return 0;
    snprintf(where, sizeof(where), "%s: decoder", t->origin);
    t->has_decoder = true;
    return load_one(t, v, 0, where, err);
}

/* ---- the list of texts ---- */

struct piece {
    size_t b, e; /* in `text` */
};

/* Pieces may overlap in `text` after a step; each step writes a new list at the end of a new
 * buffer. */
struct list {
    struct trl_str text;
    struct piece *at;
    size_t len, cap;
};

static int list_add(struct list *l, const char *p, size_t n, struct trl_err *err)
{
    if (l->len == l->cap) {
        void *v = l->at;
        if (!trl_grow(&v, &l->cap, l->len + 1, sizeof(*l->at)))
            return trl_fail_nomem(err, l->len * sizeof(*l->at), "a decoded text");
        l->at = v;
    }
    l->at[l->len++] = (struct piece){l->text.len, l->text.len + n};
    trl_str_append(&l->text, p, n);
    return 0;
}

static void list_release(struct list *l)
{
    trl_str_release(&l->text);
    trl_free(l->at);
    *l = (struct list){0};
}

static const char *list_get(const struct list *l, size_t i, size_t *ret_n)
{
    *ret_n = l->at[i].e - l->at[i].b;
    return trl_str_get(&l->text) + l->at[i].b;
}

/* ---- steps ---- */

/* How many bytes of an ill-formed sequence belong together (the maximal subpart): one U+FFFD stands
 * for them. */
static size_t bad_length(const unsigned char *p, size_t left)
{
    unsigned char lo = 0x80, hi = 0xBF;
    size_t need = p[0] >= 0xC2 && p[0] <= 0xDF ? 1
        : p[0] >= 0xE0 && p[0] <= 0xEF         ? 2
        : p[0] >= 0xF0 && p[0] <= 0xF4         ? 3
                                               : 0;
    if (p[0] == 0xE0)
        lo = 0xA0;
    if (p[0] == 0xED)
        hi = 0x9F;
    if (p[0] == 0xF0)
        lo = 0x90;
    if (p[0] == 0xF4)
        hi = 0x8F;
    size_t n = 1;
    for (; n <= need && n < left && p[n] >= lo && p[n] <= hi; n++) {
        lo = 0x80;
        hi = 0xBF;
    }
    return n;
}

static void append_lossy(struct trl_str *out, const char *p, size_t len)
{
    for (size_t i = 0; i < len;) {
        size_t good = trl_utf8_check(p + i, len - i);
        trl_str_append(out, p + i, good);
        i += good;
        if (i < len) {
            trl_str_puts(out, "\xEF\xBF\xBD");
            i += bad_length((const unsigned char *)p + i, len - i);
        }
    }
}

static int step_byte_level(const struct list *in, struct list *out, struct trl_err *err)
{
    struct trl_str raw = {0}, text = {0};
    for (size_t i = 0; i < in->len; i++) {
        size_t n, mark = raw.len;
        const char *p = list_get(in, i, &n);
        int k, c = 0;
        for (size_t j = 0; j < n && c >= 0; j += (size_t)k) {
            c = trl__char_to_byte(trl__uc_next(p + j, &k));
            if (c >= 0)
                trl_str_putc(&raw, (char)c);
        }
        if (c < 0) { /* not from the byte alphabet: as it is */
            raw.len = mark;
            trl_str_append(&raw, p, n);
        }
    }
    append_lossy(&text, trl_str_get(&raw), raw.len);
    int rc = trl_str_check(&raw, err);
    if (!rc)
        rc = trl_str_check(&text, err);
    if (!rc)
        rc = list_add(out, trl_str_get(&text), text.len, err);
    trl_str_release(&raw);
    trl_str_release(&text);
    return rc;
}

static int byte_token(const char *p, size_t n)
{
    int v = 0;
    if (n != 6 || memcmp(p, "<0x", 3) != 0 || p[5] != '>')
        return -1;
    for (int i = 3; i < 5; i++) {
        int c = (unsigned char)p[i];
        int d = c >= '0' && c <= '9' ? c - '0'
            : c >= 'a' && c <= 'f'   ? c - 'a' + 10
            : c >= 'A' && c <= 'F'   ? c - 'A' + 10
                                     : -1;
        if (d < 0)
            return -1;
        v = v * 16 + d;
    }
    return v;
}

static int flush_bytes(struct trl_str *bytes, struct list *out, struct trl_err *err)
{
    int rc = trl_str_check(bytes, err);
    if (rc || bytes->len == 0)
        return rc;
    if (trl_utf8_check(bytes->data, bytes->len) == bytes->len) {
        rc = list_add(out, bytes->data, bytes->len, err);
    } else {
        for (size_t i = 0; i < bytes->len && !rc; i++)
            rc = list_add(out, "\xEF\xBF\xBD", 3, err);
    }
    trl_str_clear(bytes);
    return rc;
}

static int step_byte_fallback(const struct list *in, struct list *out, struct trl_err *err)
{
    struct trl_str bytes = {0};
    int rc = 0;
    for (size_t i = 0; i < in->len && !rc; i++) {
        size_t n;
        const char *p = list_get(in, i, &n);
        int v = byte_token(p, n);
        if (v >= 0) {
            trl_str_putc(&bytes, (char)v);
            continue;
        }
        if (!(rc = flush_bytes(&bytes, out, err)))
            rc = list_add(out, p, n, err);
    }
    if (!rc)
        rc = flush_bytes(&bytes, out, err);
    trl_str_release(&bytes);
    return rc;
}

static int step_replace(const struct tok_dec *d, struct trl_tok_scratch *s, const struct list *in,
    struct list *out, struct trl_err *err)
{
    struct trl_str text = {0};
    int rc = 0;
    for (size_t i = 0; i < in->len && !rc; i++) {
        size_t n, b, e, copied = 0;
        const char *p = list_get(in, i, &n);
        struct tok_finder f;
        trl_str_clear(&text);
        trl__regex_start(&f, &d->re, s, p, n);
        while ((rc = trl__regex_next(&f, &b, &e, err)) > 0) {
            trl_str_append(&text, p + copied, b - copied);
            trl_str_append(&text, d->content, d->content_len);
            copied = e;
        }
        trl_str_append(&text, p + copied, n - copied);
        if (!rc && !(rc = trl_str_check(&text, err)))
            rc = list_add(out, trl_str_get(&text), text.len, err);
    }
    trl_str_release(&text);
    return rc;
}

/* Up to `start` of the character at the front and `stop` at the back of each text. */
static int step_strip(
    const struct tok_dec *d, const struct list *in, struct list *out, struct trl_err *err)
{
    int rc = 0;
    size_t k = d->content_len;
    for (size_t i = 0; i < in->len && !rc; i++) {
        size_t n;
        const char *p = list_get(in, i, &n);
        for (int64_t j = 0; j < d->start && k && n >= k && memcmp(p, d->content, k) == 0; j++) {
            p += k;
            n -= k;
        }
        for (int64_t j = 0; j < d->stop && k && n >= k && memcmp(p + n - k, d->content, k) == 0;
             j++)
            n -= k;
        rc = list_add(out, p, n, err);
    }
    return rc;
}

static int step_metaspace(
    const struct tok_dec *d, const struct list *in, struct list *out, struct trl_err *err)
{
    struct trl_str text = {0};
    size_t k = d->content_len;
    int rc = 0;
    for (size_t i = 0; i < in->len && !rc; i++) {
        size_t n;
        const char *p = list_get(in, i, &n);
        trl_str_clear(&text);
        bool leading = i == 0 && d->prepended;
        for (size_t j = 0; j < n;) {
            if (k && n - j >= k && memcmp(p + j, d->content, k) == 0) {
                if (!leading)
                    trl_str_putc(&text, ' ');
                j += k;
            } else {
                leading = false;
                trl_str_putc(&text, p[j++]);
            }
        }
        if (!(rc = trl_str_check(&text, err)))
            rc = list_add(out, trl_str_get(&text), text.len, err);
    }
    trl_str_release(&text);
    return rc;
}

static void replace_all(struct trl_str *s, const char *from, const char *to)
{
    struct trl_str out = {0};
    size_t n = strlen(from), i = 0;
    while (i < s->len) {
        if (s->len - i >= n && memcmp(s->data + i, from, n) == 0) {
            trl_str_puts(&out, to);
            i += n;
        } else {
            trl_str_putc(&out, s->data[i++]);
        }
    }
    s->failed = s->failed || out.failed;
    trl_str_clear(s);
    trl_str_append(s, trl_str_get(&out), out.len);
    trl_str_release(&out);
}

/* English punctuation and contractions lose the space before them. */
static void clean_up(struct trl_str *s)
{
    static const char *const table[][2] = {{" .", "."}, {" ?", "?"}, {" !", "!"}, {" ,", ","},
        {" ' ", "'"}, {" n't", "n't"}, {" 'm", "'m"}, {" do not", " don't"}, {" 's", "'s"},
        {" 've", "'ve"}, {" 're", "'re"}};
    for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++)
        replace_all(s, table[i][0], table[i][1]);
}

static int step_wordpiece(
    const struct tok_dec *d, const struct list *in, struct list *out, struct trl_err *err)
{
    struct trl_str text = {0};
    int rc = 0;
    for (size_t i = 0; i < in->len && !rc; i++) {
        size_t n;
        const char *p = list_get(in, i, &n);
        bool joined = n >= d->content_len && memcmp(p, d->content, d->content_len) == 0;
        trl_str_clear(&text);
        if (i > 0 && !joined)
            trl_str_putc(&text, ' ');
        size_t skip = i > 0 && joined ? d->content_len : 0;
        trl_str_append(&text, p + skip, n - skip);
        if (d->cleanup)
            clean_up(&text);
        if (!(rc = trl_str_check(&text, err)))
            rc = list_add(out, trl_str_get(&text), text.len, err);
    }
    trl_str_release(&text);
    return rc;
}

/* The suffix becomes a space, in the last token nothing. */
static int step_bpe(
    const struct tok_dec *d, const struct list *in, struct list *out, struct trl_err *err)
{
    struct trl_str text = {0};
    int rc = 0;
    for (size_t i = 0; i < in->len && !rc; i++) {
        size_t n, k = d->content_len;
        const char *p = list_get(in, i, &n);
        trl_str_clear(&text);
        for (size_t j = 0; j < n;) {
            if (k && n - j >= k && memcmp(p + j, d->content, k) == 0) {
                if (i + 1 < in->len)
                    trl_str_putc(&text, ' ');
                j += k;
            } else {
                trl_str_putc(&text, p[j++]);
            }
        }
        if (!(rc = trl_str_check(&text, err)))
            rc = list_add(out, trl_str_get(&text), text.len, err);
    }
    trl_str_release(&text);
    return rc;
}

/* Equal neighbours are one; the pad vanishes; the word delimiter is a space. */
static int step_ctc(
    const struct tok_dec *d, const struct list *in, struct list *out, struct trl_err *err)
{
    struct trl_str text = {0};
    int rc = 0;
    for (size_t i = 0; i < in->len && !rc; i++) {
        size_t n, m = 0;
        const char *q = i ? list_get(in, i - 1, &m) : NULL, *p = list_get(in, i, &n);
        if (i && n == m && memcmp(p, q, n) == 0)
            continue;
        trl_str_clear(&text);
        trl_str_append(&text, p, n);
        if (d->content_len)
            replace_all(&text, d->content, "");
        if (d->cleanup) {
            clean_up(&text);
            if (d->delimiter_len)
                replace_all(&text, d->delimiter, " ");
        }
        if (!(rc = trl_str_check(&text, err)) && text.len)
            rc = list_add(out, trl_str_get(&text), text.len, err);
    }
    trl_str_release(&text);
    return rc;
}

static int step(const struct tok_dec *d, struct trl_tok_scratch *s, const struct list *in,
    struct list *out, struct trl_err *err)
{
    switch (d->kind) {
    case TOK_DEC_BYTE_LEVEL:
        return step_byte_level(in, out, err);
    case TOK_DEC_REPLACE:
        return step_replace(d, s, in, out, err);
    case TOK_DEC_BYTE_FALLBACK:
        return step_byte_fallback(in, out, err);
    case TOK_DEC_FUSE:
        return list_add(out, trl_str_get(&in->text), in->text.len, err);
    case TOK_DEC_STRIP:
        return step_strip(d, in, out, err);
    case TOK_DEC_METASPACE:
        return step_metaspace(d, in, out, err);
    case TOK_DEC_WORDPIECE:
        return step_wordpiece(d, in, out, err);
    case TOK_DEC_BPE:
        return step_bpe(d, in, out, err);
    case TOK_DEC_CTC:
        return step_ctc(d, in, out, err);
    }
    trl_bug("decoder kind %d", d->kind);
}

/* ---- ids to text ---- */

static int collect(const struct trl_tokenizer *t, const int32_t *ids, size_t n, bool skip_special,
    struct list *l, struct trl_err *err)
{
    for (size_t i = 0; i < n; i++) {
        int32_t a =
            ids[i] >= 0 && (size_t)ids[i] < t->added_by_id_len ? t->added_by_id[ids[i]] : -1;
        const struct tok_entry *e = trl__vocab_get(&t->vocab, ids[i]);
        int rc = 0;
        if (a >= 0 && !(skip_special && t->added[a].skip))
            rc = list_add(l, t->added[a].form, t->added[a].form_len, err);
        else if (a < 0 && e)
            rc = list_add(l, e->s, e->len, err);
        if (rc)
            return rc;
    }
    return trl_str_check(&l->text, err);
}

int trl_tokenizer_decode(const struct trl_tokenizer *t, const int32_t *ids, size_t n,
    bool skip_special, struct trl_str *out, struct trl_err *err)
{
    struct list a = {0}, b = {0};
    struct trl_tok_scratch *s = NULL;
    bool regex = false;
    int rc = collect(t, ids, n, skip_special, &a, err);
    for (size_t i = 0; i < t->n_dec; i++)
        regex = regex || t->dec[i].re.code;
    if (!rc && regex)
        rc = trl_tok_scratch_new(&s, t, err);
    for (size_t i = 0; i < t->n_dec && !rc; i++) {
        if ((rc = step(&t->dec[i], s, &a, &b, err)) || (rc = trl_str_check(&b.text, err)))
            break;
        list_release(&a);
        a = b;
        b = (struct list){0};
    }
    for (size_t i = 0; i < a.len && !rc; i++) {
        size_t len;
        const char *p = list_get(&a, i, &len);
        if (i > 0 && !t->has_decoder)
            trl_str_putc(out, ' ');
        trl_str_append(out, p, len);
    }
    list_release(&a);
    list_release(&b);
    trl_tok_scratch_free(s);
    return rc ? rc : trl_str_check(out, err);
}
