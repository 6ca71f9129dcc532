/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Pre-tokenizers cut a text into pieces. A Sequence becomes a flat list of steps; each step works
 * on the pieces of the one before. ByteLevel is up to three steps: prefix space, split by the GPT-2
 * pattern, byte map (the last is left to the model where that takes raw bytes).
 */
#include <string.h>

#include "base/alloc.h"
#include "data/tok-internal.h"

/* Contractions; letters, numbers, other with an optional space before; white space, leaving one for
 * the next word. */
static const char gpt2_pattern[] =
    "'(?:[sdmt]|ll|ve|re)| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+";

/* \w of the Rust regex crate, as trl__uc_is_word */
#define RUST_WORD \
    "\\p{L}\\p{M}\\p{Nd}\\p{Nl}\\p{Pc}\\x{200c}\\x{200d}\\x{24b6}-\\x{24e9}" \
    "\\x{1f130}-\\x{1f149}\\x{1f150}-\\x{1f169}\\x{1f170}-\\x{1f189}"

/* ---- loading ---- */

static int add_step(
    struct trl_tokenizer *t, enum tok_pre_kind kind, struct tok_pre **ret, struct trl_err *err)
{
    void *p = t->pre;
    struct tok_pre *n = trl__tok_append(&p, &t->n_pre, &t->pre_cap, sizeof(*t->pre));
    if (!n)
        return trl_fail_nomem(err, sizeof(*n), "the pre-tokenizer");
    t->pre = p;
    n->kind = kind;
    *ret = n;
    return 0;
}

static int add_regex(struct trl_tokenizer *t, const char *pattern, enum tok_behavior behavior,
    bool invert, const char *where, struct trl_err *err)
{
    struct tok_pre *s = NULL;
    int rc = add_step(t, TOK_PRE_REGEX, &s, err);
    if (rc)
        return rc;
    s->behavior = behavior;
    s->invert = invert;
    return trl__regex_compile(&s->re, pattern, strlen(pattern), where, err);
}

static int add_chars(struct trl_tokenizer *t, bool (*is)(unsigned), unsigned cp,
    enum tok_behavior behavior, struct trl_err *err)
{
    struct tok_pre *s = NULL;
    int rc = add_step(t, TOK_PRE_CHARS, &s, err);
    if (rc)
        return rc;
    s->is = is;
    s->cp = cp;
    s->behavior = behavior;
    return 0;
}

static int load_behavior(
    const json_t *v, enum tok_behavior *ret, const char *where, struct trl_err *err)
{
    static const char *const names[] = {
        "Removed", "Isolated", "MergedWithPrevious", "MergedWithNext", "Contiguous"};
    const char *name = NULL;
    size_t len;
    int rc = trl__tok_get_str(v, "behavior", true, &name, &len, where, err);
    if (rc)
        return rc;
    for (int i = 0; i < 5; i++)
        if (strcmp(name, names[i]) == 0) {
            *ret = (enum tok_behavior)i;
            return 0;
        }
    return trl_fail(err, TRL_E_DATA, "%s: unknown behavior '%.60s'", where, name);
}

static int load_byte_level(
    struct trl_tokenizer *t, const json_t *v, const char *where, struct trl_err *err)
{
    bool prefix = true, use_regex = true;
    struct tok_pre *s = NULL;
    int rc;
    if ((rc = trl__tok_get_bool(v, "add_prefix_space", &prefix, where, err)) ||
        (rc = trl__tok_get_bool(v, "use_regex", &use_regex, where, err)))
        return rc;
    if (prefix && (rc = add_step(t, TOK_PRE_PREFIX_SPACE, &s, err)))
        return rc;
    if (use_regex && (rc = add_regex(t, gpt2_pattern, TOK_ISOLATED, false, where, err)))
        return rc;
    return add_step(t, TOK_PRE_BYTE_MAP, &s, err);
}

static int load_split(
    struct trl_tokenizer *t, const json_t *v, const char *where, struct trl_err *err)
{
    struct tok_pre *s = NULL;
    int rc = add_step(t, TOK_PRE_REGEX, &s, err);
    if (rc || (rc = load_behavior(v, &s->behavior, where, err)) ||
        (rc = trl__tok_get_bool(v, "invert", &s->invert, where, err)))
        return rc;
    return trl__regex_load(&s->re, &t->arena, json_object_get(v, "pattern"), where, err);
}

static int load_metaspace(
    struct trl_tokenizer *t, const json_t *v, const char *where, struct trl_err *err)
{
    struct tok_pre *s = NULL;
    const char *repl = "\xE2\x96\x81", *scheme = NULL;
    size_t len = 3, scheme_len;
    bool prefix = true;
    int n = 0, rc = add_step(t, TOK_PRE_METASPACE, &s, err);
    if (rc)
        return rc;
    s->split = true;
    if ((rc = trl__tok_get_str(v, "replacement", false, &repl, &len, where, err)) ||
        (rc = trl__tok_get_str(v, "prepend_scheme", false, &scheme, &scheme_len, where, err)) ||
        (rc = trl__tok_get_bool(v, "add_prefix_space", &prefix, where, err)) ||
        (rc = trl__tok_get_bool(v, "split", &s->split, where, err)))
        return rc;
    if (len > 0)
        trl__uc_next(repl, &n);
    if (len == 0 || (size_t)n != len)
        return trl_fail(err, TRL_E_DATA, "%s: 'replacement' must be one character", where);
    s->content = trl_arena_strndup(&t->arena, repl, len);
    s->content_len = len;
    if (!s->content)
        return trl_fail_nomem(err, len, where);
    s->scheme = prefix ? 0 : 2; /* old files have add_prefix_space in place of a scheme */
    if (!scheme)
        return 0;
    static const char *const names[] = {"always", "first", "never"};
    for (int i = 0; i < 3; i++)
        if (strcmp(scheme, names[i]) == 0) {
            s->scheme = i;
            t->needs_align = t->needs_align || i == 1; /* "first" asks for the place in the input */
            return 0;
        }
    return trl_fail(err, TRL_E_DATA, "%s: unknown prepend_scheme '%.60s'", where, scheme);
}

static int load_simple(struct trl_tokenizer *t, const json_t *v, const char *type,
    const char *where, bool *ret_known, struct trl_err *err)
{
    enum tok_behavior behavior = TOK_ISOLATED;
    bool individual = false;
    const char *s = NULL;
    size_t len;
    int rc, n = 0;
    *ret_known = true;
    if (strcmp(type, "Digits") == 0) {
        if ((rc = trl__tok_get_bool(v, "individual_digits", &individual, where, err)))
            return rc;
        return add_chars(t, trl__uc_is_number, 0, individual ? TOK_ISOLATED : TOK_CONTIGUOUS, err);
    }
    if (strcmp(type, "WhitespaceSplit") == 0)
        return add_chars(t, trl__uc_is_space, 0, TOK_REMOVED, err);
    if (strcmp(type, "Whitespace") == 0)
        return add_regex(t, "[" RUST_WORD "]+|[^" RUST_WORD "\\s]+", TOK_REMOVED, true, where, err);
    if (strcmp(type, "Punctuation") == 0) {
        if (json_object_get(v, "behavior") && (rc = load_behavior(v, &behavior, where, err)))
            return rc;
        return add_chars(t, trl__uc_is_punct, 0, behavior, err);
    }
    if (strcmp(type, "BertPreTokenizer") == 0) {
        if ((rc = add_chars(t, trl__uc_is_space, 0, TOK_REMOVED, err)))
            return rc;
        return add_chars(t, trl__uc_is_punct, 0, TOK_ISOLATED, err);
    }
    if (strcmp(type, "CharDelimiterSplit") == 0) {
        if ((rc = trl__tok_get_str(v, "delimiter", true, &s, &len, where, err)))
            return rc;
        unsigned cp = len ? trl__uc_next(s, &n) : 0;
        if (len == 0 || (size_t)n != len)
            return trl_fail(err, TRL_E_DATA, "%s: 'delimiter' must be one character", where);
        return add_chars(t, NULL, cp, TOK_REMOVED, err);
    }
    *ret_known = false;
    return 0;
}

static int load_one(
    struct trl_tokenizer *t, const json_t *v, int depth, const char *where, struct trl_err *err)
{
    const char *type = NULL;
    size_t len, i;
    const json_t *e, *list;
    struct tok_pre *s = NULL;
    bool known;
    int rc = trl__tok_get_str(v, "type", true, &type, &len, where, err);
    if (rc)
        return rc;
    if (strcmp(type, "Sequence") == 0) {
        list = json_object_get(v, "pretokenizers");
        if (!json_is_array(list) || depth > 8)
            return trl_fail(
                err, TRL_E_DATA, "%s: a Sequence needs a list (at most 8 levels)", where);
        json_array_foreach(list, i, e) if ((rc = load_one(t, e, depth + 1, where, err))) return rc;
        return 0;
    }
    if (strcmp(type, "ByteLevel") == 0)
        return load_byte_level(t, v, where, err);
    if (strcmp(type, "Split") == 0)
        return load_split(t, v, where, err);
    if (strcmp(type, "Metaspace") == 0)
        return load_metaspace(t, v, where, err);
    if (strcmp(type, "FixedLength") == 0) {
        if ((rc = add_step(t, TOK_PRE_FIXED_LENGTH, &s, err)) ||
            (rc = trl__tok_get_int(v, "length", &s->length, where, err)))
            return rc;
        return s->length > 0 ? 0
                             : trl_fail(err, TRL_E_DATA, "%s: 'length' must be at least 1", where);
    }
    if ((rc = load_simple(t, v, type, where, &known, err)) || known)
        return rc;
    return trl_fail(err, TRL_E_UNSUPPORTED,
        "%s: type '%.60s' is not supported (ByteLevel, Split, Digits, Metaspace, Whitespace, "
        "WhitespaceSplit, Punctuation, CharDelimiterSplit, BertPreTokenizer, FixedLength and "
        "Sequence are)",
        where, type);
}

int trl__pre_load(struct trl_tokenizer *t, const json_t *v, struct trl_err *err)
{
    char where[512];
    if (!v || json_is_null(v))
        return 0;
    snprintf(where, sizeof(where), "%s: pre_tokenizer", t->origin);
    return load_one(t, v, 0, where, err);
}

/* ---- splitting ---- */

/* Matches and gaps of one piece come in one after the other; what becomes of them depends on the
 * behavior. */
struct cutter {
    struct tok_spans *out;
    size_t base;
    enum tok_behavior behavior;
    bool invert;
    size_t hold_b, hold_e; /* a span not yet added */
    bool held, prev_match;
};

static int cut_flush(struct cutter *c, struct trl_err *err)
{
    bool held = c->held;
    c->held = false;
    return held ? trl__spans_add(c->out, c->base + c->hold_b, c->base + c->hold_e, err) : 0;
}

static int cut_hold(struct cutter *c, size_t b, size_t e, struct trl_err *err)
{
    int rc = cut_flush(c, err);
    c->hold_b = b;
    c->hold_e = e;
    c->held = true;
    return rc;
}

static int cut_put(struct cutter *c, size_t b, size_t e, bool match, struct trl_err *err)
{
    bool prev = c->prev_match;
    match = match != c->invert;
    c->prev_match = match;
    switch (c->behavior) {
    case TOK_REMOVED:
        return match ? 0 : trl__spans_add(c->out, c->base + b, c->base + e, err);
    case TOK_ISOLATED:
        return trl__spans_add(c->out, c->base + b, c->base + e, err);
    case TOK_CONTIGUOUS:
        if (!c->held || prev != match)
            return cut_hold(c, b, e, err);
        break;
    case TOK_MERGED_WITH_PREVIOUS: /* a match joins the gap before it, not another match */
        if (!c->held || !match || prev)
            return cut_hold(c, b, e, err);
        break;
    case TOK_MERGED_WITH_NEXT: /* a gap joins the match before it; of several matches the last */
        if (!c->held || match || !prev)
            return cut_hold(c, b, e, err);
        break;
    }
    c->hold_e = e;
    return 0;
}

static int split_regex(const struct tok_pre *st, struct trl_tok_scratch *s, const char *p,
    size_t len, struct cutter *c, struct trl_err *err)
{
    struct tok_finder f;
    size_t b, e, last = 0;
    int rc, more;
    trl__regex_start(&f, &st->re, s, p, len);
    while ((more = trl__regex_next(&f, &b, &e, err)) > 0) {
        if ((last != b && (rc = cut_put(c, last, b, false, err))) ||
            (rc = cut_put(c, b, e, true, err)))
            return rc;
        last = e;
    }
    if (more < 0)
        return more;
    return last != len ? cut_put(c, last, len, false, err) : 0;
}

static int split_chars(
    const struct tok_pre *st, const char *p, size_t len, struct cutter *c, struct trl_err *err)
{
    size_t last = 0;
    int rc;
    for (size_t i = 0; i < len;) {
        int n;
        unsigned cp = trl__uc_next(p + i, &n);
        if (st->is ? st->is(cp) : cp == st->cp) {
            if ((last != i && (rc = cut_put(c, last, i, false, err))) ||
                (rc = cut_put(c, i, i + (size_t)n, true, err)))
                return rc;
            last = i + (size_t)n;
        }
        i += (size_t)n;
    }
    return last != len ? cut_put(c, last, len, false, err) : 0;
}

static int split_fixed(
    const struct tok_pre *st, const char *p, size_t len, struct cutter *c, struct trl_err *err)
{
    size_t last = 0, i = 0;
    while (i < len) {
        for (int64_t k = 0; k < st->length && i < len; k++) {
            int n;
            trl__uc_next(p + i, &n);
            i += (size_t)n;
        }
        int rc = cut_put(c, last, i, false, err);
        if (rc)
            return rc;
        last = i;
    }
    return 0;
}

static int apply_split(
    const struct tok_pre *st, struct trl_tok_scratch *s, struct tok_work *w, struct trl_err *err)
{
    const struct tok_spans *in = &w->spans[w->cur_spans];
    struct tok_spans *out = trl__work_start_spans(w);
    for (size_t i = 0; i < in->len; i++) {
        const char *p = w->text.p + in->at[i].b;
        size_t len = in->at[i].e - in->at[i].b;
        struct cutter c = {
            .out = out, .base = in->at[i].b, .behavior = st->behavior, .invert = st->invert};
        int rc;
        if (st->kind == TOK_PRE_REGEX)
            rc = split_regex(st, s, p, len, &c, err);
        else if (st->kind == TOK_PRE_CHARS)
            rc = split_chars(st, p, len, &c, err);
        else {
            c.behavior = TOK_ISOLATED;
            rc = split_fixed(st, p, len, &c, err);
        }
        if (!rc)
            rc = cut_flush(&c, err);
        if (rc)
            return rc;
    }
    trl__work_finish_spans(w, out);
    return 0;
}

/* ---- steps that rewrite text ---- */

static struct tok_align first_align(const struct tok_work *w, size_t i)
{
    return w->offsets ? trl__work_align(&w->text, i) : (struct tok_align){0, 0};
}

static int apply_prefix_space(struct tok_work *w, struct trl_err *err)
{
    const struct tok_spans *in = &w->spans[w->cur_spans];
    bool needed = false;
    for (size_t i = 0; i < in->len; i++)
        needed = needed || w->text.p[in->at[i].b] != ' ';
    if (!needed)
        return 0;
    struct tok_spans *out = trl__work_start_spans(w);
    struct tok_buf *b = trl__work_start(w);
    for (size_t i = 0; i < in->len; i++) {
        size_t begin = b->len;
        int rc = 0;
        if (w->text.p[in->at[i].b] != ' ')
            rc = trl__work_put(w, b, " ", 1, first_align(w, in->at[i].b), err);
        if (rc || (rc = trl__work_copy(w, b, in->at[i].b, in->at[i].e, err)) ||
            (rc = trl__spans_add(out, begin, b->len, err)))
            return rc;
    }
    trl__work_finish(w, b);
    trl__work_finish_spans(w, out);
    return 0;
}

static int apply_byte_map(struct tok_work *w, struct trl_err *err)
{
    const struct tok_spans *in = &w->spans[w->cur_spans];
    struct tok_spans *out = trl__work_start_spans(w);
    struct tok_buf *b = trl__work_start(w);
    for (size_t i = 0; i < in->len; i++) {
        size_t begin = b->len;
        int rc;
        for (size_t k = in->at[i].b; k < in->at[i].e; k++) {
            char bytes[4];
            int n = trl__uc_put(bytes, trl__byte_to_char[(unsigned char)w->text.p[k]]);
            if ((rc = trl__work_put(w, b, bytes, (size_t)n, first_align(w, k), err)))
                return rc;
        }
        if ((rc = trl__spans_add(out, begin, b->len, err)))
            return rc;
    }
    trl__work_finish(w, b);
    trl__work_finish_spans(w, out);
    return 0;
}

/* Spaces of one piece become the replacement, which then begins new pieces. */
static int metaspace_piece(const struct tok_pre *st, struct tok_work *w, struct tok_buf *b,
    struct tok_span in, struct tok_spans *out, struct trl_err *err)
{
    size_t n = st->content_len, begin = b->len;
    const char *p = w->text.p;
    bool has = p[in.b] == ' ' || (in.e - in.b >= n && memcmp(p + in.b, st->content, n) == 0);
    bool first = st->scheme == 0 || (st->scheme == 1 && trl__work_align(&w->text, in.b).b == 0);
    int rc = 0;
    if (!has && first)
        rc = trl__work_put(w, b, st->content, n, first_align(w, in.b), err);
    for (size_t i = in.b, k; !rc && i < in.e; i = k) {
        k = i + 1;
        if (p[i] == ' ') {
            rc = trl__work_put(w, b, st->content, n, first_align(w, i), err);
            continue;
        }
        while (k < in.e && p[k] != ' ')
            k++;
        rc = trl__work_copy(w, b, i, k, err);
    }
    if (rc)
        return rc;
    size_t start = begin;
    for (size_t i = begin; st->split && i + n <= b->len; i++) {
        if (memcmp(b->data + i, st->content, n) != 0)
            continue;
        if ((rc = trl__spans_add(out, start, i, err)))
            return rc;
        start = i;
        i += n - 1;
    }
    return trl__spans_add(out, start, b->len, err);
}

static int apply_metaspace(const struct tok_pre *st, struct tok_work *w, struct trl_err *err)
{
    const struct tok_spans *in = &w->spans[w->cur_spans];
    struct tok_spans *out = trl__work_start_spans(w);
    struct tok_buf *b = trl__work_start(w);
    for (size_t i = 0; i < in->len; i++) {
        int rc = metaspace_piece(st, w, b, in->at[i], out, err);
        if (rc)
            return rc;
    }
    trl__work_finish(w, b);
    trl__work_finish_spans(w, out);
    return 0;
}

/* The text is one piece at first. */
int trl__pre_apply(const struct trl_tokenizer *t, struct trl_tok_scratch *s, struct tok_work *w,
    struct trl_err *err)
{
    struct tok_spans *all = trl__work_start_spans(w);
    int rc = trl__spans_add(all, 0, w->text.len, err);
    trl__work_finish_spans(w, all);
    for (size_t i = 0; i < t->n_pre && !rc; i++) {
        const struct tok_pre *st = &t->pre[i];
        switch (st->kind) {
        case TOK_PRE_REGEX:
        case TOK_PRE_CHARS:
        case TOK_PRE_FIXED_LENGTH:
            rc = apply_split(st, s, w, err);
            break;
        case TOK_PRE_METASPACE:
            rc = apply_metaspace(st, w, err);
            break;
        case TOK_PRE_PREFIX_SPACE:
            rc = apply_prefix_space(w, err);
            break;
        case TOK_PRE_BYTE_MAP:
            rc = apply_byte_map(w, err);
            break;
        }
    }
    return rc;
}
