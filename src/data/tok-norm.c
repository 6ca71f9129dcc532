/* SPDX-License-Identifier: Apache-2.0 */
/* Normalizers: text in, text out, with alignment. */
#include <string.h>

#include "base/alloc.h"
#include "data/tok-internal.h"

/* ---- loading ---- */

static int add_step(
    struct trl_tokenizer *t, enum tok_norm_kind kind, struct tok_norm **ret, struct trl_err *err)
{
    void *p = t->norm;
    struct tok_norm *n = trl__tok_append(&p, &t->n_norm, &t->norm_cap, sizeof(*t->norm));
    if (!n)
        return trl_fail_nomem(err, sizeof(*n), "the normalizer");
    t->norm = p;
    n->kind = kind;
    *ret = n;
    return 0;
}

static int copy_str(struct trl_tokenizer *t, const json_t *v, const char *key, const char **ret,
    size_t *ret_len, const char *where, struct trl_err *err)
{
    const char *s = NULL;
    int rc = trl__tok_get_str(v, key, true, &s, ret_len, where, err);
    if (rc)
        return rc;
    *ret = trl_arena_strndup(&t->arena, s, *ret_len);
    return *ret ? 0 : trl_fail_nomem(err, *ret_len, where);
}

static int load_one(
    struct trl_tokenizer *t, const json_t *v, int depth, const char *where, struct trl_err *err);

static int load_sequence(
    struct trl_tokenizer *t, const json_t *list, int depth, const char *where, struct trl_err *err)
{
    size_t i;
    const json_t *v;
    if (!json_is_array(list) || depth > 8)
        return trl_fail(err, TRL_E_DATA, "%s: a Sequence needs a list (at most 8 levels)", where);
    json_array_foreach(list, i, v)
    {
        int rc = load_one(t, v, depth + 1, where, err);
        if (rc)
            return rc;
    }
    return 0;
}

static const struct {
    const char *name;
    enum tok_norm_kind kind;
} kinds[] = {
    {"NFC", TOK_NORM_NFC},
    {"NFD", TOK_NORM_NFD},
    {"NFKC", TOK_NORM_NFKC},
    {"NFKD", TOK_NORM_NFKD},
    {"Lowercase", TOK_NORM_LOWERCASE},
    {"Strip", TOK_NORM_STRIP},
    {"StripAccents", TOK_NORM_STRIP_ACCENTS},
    {"Prepend", TOK_NORM_PREPEND},
    {"Replace", TOK_NORM_REPLACE},
    {"ByteLevel", TOK_NORM_BYTE_LEVEL},
};

static int load_one(
    struct trl_tokenizer *t, const json_t *v, int depth, const char *where, struct trl_err *err)
{
    const char *type = NULL;
    size_t len;
    struct tok_norm *n = NULL;
    int rc = trl__tok_get_str(v, "type", true, &type, &len, where, err);
    if (rc)
        return rc;
    if (strcmp(type, "Sequence") == 0)
        return load_sequence(t, json_object_get(v, "normalizers"), depth, where, err);
    for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
        if (strcmp(type, kinds[i].name) != 0)
            continue;
        if ((rc = add_step(t, kinds[i].kind, &n, err)))
            return rc;
        n->left = n->right = true;
        if (n->kind == TOK_NORM_STRIP &&
            ((rc = trl__tok_get_bool(v, "strip_left", &n->left, where, err)) ||
                (rc = trl__tok_get_bool(v, "strip_right", &n->right, where, err))))
            return rc;
        if (n->kind == TOK_NORM_PREPEND)
            return copy_str(t, v, "prepend", &n->content, &n->content_len, where, err);
        if (n->kind != TOK_NORM_REPLACE)
            return 0;
        if ((rc = trl__regex_load(&n->re, &t->arena, json_object_get(v, "pattern"), where, err)))
            return rc;
        return copy_str(t, v, "content", &n->content, &n->content_len, where, err);
    }
    return trl_fail(err, TRL_E_UNSUPPORTED,
        "%s: type '%.60s' is not supported (NFC, NFD, NFKC, NFKD, Lowercase, Strip, "
        "StripAccents, Prepend, Replace, ByteLevel and Sequence are)",
        where, type);
}

int trl__norm_load(struct trl_tokenizer *t, const json_t *v, struct trl_err *err)
{
    char where[512];
    if (!v || json_is_null(v))
        return 0;
    snprintf(where, sizeof(where), "%s: normalizer", t->origin);
    return load_one(t, v, 0, where, err);
}

/* ---- running ---- */

static int lowercase(struct tok_work *w, struct trl_err *err)
{
    struct tok_buf *b = trl__work_start(w);
    for (size_t i = 0; i < w->text.len;) {
        char bytes[8];
        int n, m;
        unsigned cp = trl__uc_next(w->text.p + i, &n);
        struct tok_align al = w->offsets ? trl__work_align(&w->text, i) : (struct tok_align){0, 0};
        if (cp ==
            0x130) { /* the one letter whose lower case has two characters: i and a dot above */
            bytes[0] = 'i';
            m = 1 + trl__uc_put(bytes + 1, 0x307);
        } else {
            m = trl__uc_put(bytes, trl__uc_lower(cp));
        }
        int rc = trl__work_put(w, b, bytes, (size_t)m, al, err);
        if (rc)
            return rc;
        i += (size_t)n;
    }
    trl__work_finish(w, b);
    return 0;
}

/* Keep [begin, end) of the text, without the marks when asked. */
static int keep(struct tok_work *w, size_t begin, size_t end, bool drop_marks, struct trl_err *err)
{
    struct tok_buf *b = trl__work_start(w);
    int rc = 0;
    if (!drop_marks)
        rc = trl__work_copy(w, b, begin, end, err);
    for (size_t i = begin; drop_marks && !rc && i < end;) {
        int n;
        unsigned cp = trl__uc_next(w->text.p + i, &n);
        if (!trl__uc_is_mark(cp))
            rc = trl__work_copy(w, b, i, i + (size_t)n, err);
        i += (size_t)n;
    }
    if (!rc)
        trl__work_finish(w, b);
    return rc;
}

static int strip(struct tok_work *w, const struct tok_norm *n, struct trl_err *err)
{
    size_t b = 0, e = w->text.len;
    int k;
    while (n->left && b < e && trl__uc_is_space(trl__uc_next(w->text.p + b, &k)))
        b += (size_t)k;
    while (n->right && e > b && trl__uc_is_space(trl__uc_prev(w->text.p + b, w->text.p + e, &k)))
        e -= (size_t)k;
    return b == 0 && e == w->text.len ? 0 : keep(w, b, e, false, err);
}

static int prepend(struct tok_work *w, const char *s, size_t n, struct trl_err *err)
{
    if (w->text.len == 0)
        return 0;
    struct tok_buf *b = trl__work_start(w);
    struct tok_align al = w->offsets ? trl__work_align(&w->text, 0) : (struct tok_align){0, 0};
    int rc = trl__work_put(w, b, s, n, al, err);
    if (!rc)
        rc = trl__work_copy(w, b, 0, w->text.len, err);
    if (!rc)
        trl__work_finish(w, b);
    return rc;
}

/* What replaces a match stands for the last character of the match. */
static int replace(
    struct tok_work *w, const struct tok_norm *n, struct trl_tok_scratch *s, struct trl_err *err)
{
    struct tok_finder f;
    size_t mb, me, copied = 0;
    trl__regex_start(&f, &n->re, s, w->text.p, w->text.len);
    int rc = trl__regex_next(&f, &mb, &me, err);
    if (rc <= 0)
        return rc;
    struct tok_buf *b = trl__work_start(w);
    do {
        struct tok_align al = {w->text.origin, w->text.origin};
        if (w->offsets && me > 0)
            al = trl__work_align(&w->text, me - 1);
        if ((rc = trl__work_copy(w, b, copied, mb, err)) ||
            (rc = trl__work_put(w, b, n->content, n->content_len, al, err)))
            return rc;
        copied = me;
    } while ((rc = trl__regex_next(&f, &mb, &me, err)) > 0);
    if (!rc)
        rc = trl__work_copy(w, b, copied, w->text.len, err);
    if (!rc)
        trl__work_finish(w, b);
    return rc;
}

static int byte_level(struct tok_work *w, struct trl_err *err)
{
    struct tok_buf *b = trl__work_start(w);
    for (size_t i = 0; i < w->text.len; i++) {
        char bytes[4];
        int n = trl__uc_put(bytes, trl__byte_to_char[(unsigned char)w->text.p[i]]);
        struct tok_align al = w->offsets ? trl__work_align(&w->text, i) : (struct tok_align){0, 0};
        int rc = trl__work_put(w, b, bytes, (size_t)n, al, err);
        if (rc)
            return rc;
    }
    trl__work_finish(w, b);
    return 0;
}

static int apply_one(
    const struct tok_norm *n, struct trl_tok_scratch *s, struct tok_work *w, struct trl_err *err)
{
    switch (n->kind) {
    case TOK_NORM_NFC:
    case TOK_NORM_NFD:
    case TOK_NORM_NFKC:
    case TOK_NORM_NFKD:
        return trl__norm_unicode(w, n->kind, err);
    case TOK_NORM_LOWERCASE:
        return lowercase(w, err);
    case TOK_NORM_STRIP:
        return strip(w, n, err);
    case TOK_NORM_STRIP_ACCENTS:
        return keep(w, 0, w->text.len, true, err);
    case TOK_NORM_PREPEND:
        return prepend(w, n->content, n->content_len, err);
    case TOK_NORM_REPLACE:
        return replace(w, n, s, err);
    case TOK_NORM_BYTE_LEVEL:
        return byte_level(w, err);
    }
    trl_bug("normalizer kind %d", n->kind);
}

int trl__norm_apply(const struct trl_tokenizer *t, struct trl_tok_scratch *s, struct tok_work *w,
    struct trl_err *err)
{
    for (size_t i = 0; i < t->n_norm; i++) {
        int rc = apply_one(&t->norm[i], s, w, err);
        if (rc)
            return rc;
    }
    return 0;
}
