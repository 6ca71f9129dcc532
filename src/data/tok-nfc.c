/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Unicode normalization forms with alignment. Each output character carries a change: 0 it replaces
 * one input character, 1 it was inserted, -n it also swallowed n more. A character made from
 * several stands for the first of them; an inserted one for the same input as the one before it.
 */
#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

#include "base/alloc.h"
#include "data/tok-internal.h"

struct nchar {
    uint32_t cp;
    int32_t change;
};

struct nchars {
    struct nchar *at;
    size_t len, cap;
};

/* Characters that no form changes and that compose with nothing before them. */
static bool is_inert(unsigned cp, bool compat)
{
    if (cp < 0x80)
        return true;
    if (compat)
        return (cp >= 0x3400 && cp <= 0x9FFF) || (cp >= 0x410 && cp <= 0x418);
    return (cp >= 0x3400 && cp <= 0x9FFF) || (cp >= 0x2010 && cp <= 0x2027) ||
        (cp >= 0x3001 && cp <= 0x3029);
}

static bool needs_work(const char *p, size_t len, enum tok_norm_kind kind)
{
    bool compose = kind == TOK_NORM_NFC, compat = kind == TOK_NORM_NFKC || kind == TOK_NORM_NFKD;
    for (size_t i = 0; i < len;) {
        int n;
        unsigned cp = trl__uc_next(p + i, &n);
        if (!is_inert(cp, compat) && !(compose && cp < 0x300) &&
            !(compose && cp >= 0x1F300 && cp < 0x1FB00))
            return true;
        i += (size_t)n;
    }
    return false;
}

static int decompose(
    struct nchars *out, const char *p, size_t len, bool compat, struct trl_err *err)
{
    utf8proc_option_t opt = UTF8PROC_DECOMPOSE | (compat ? UTF8PROC_COMPAT : 0);
    for (size_t i = 0; i < len;) {
        utf8proc_int32_t d[32];
        int n, boundary = UTF8PROC_BOUNDCLASS_START;
        unsigned cp = trl__uc_next(p + i, &n);
        utf8proc_ssize_t k = utf8proc_decompose_char((utf8proc_int32_t)cp, d, 32, opt, &boundary);
        if (k < 1 || k > 32) {
            d[0] = (utf8proc_int32_t)cp; /* unassigned: stays */
            k = 1;
        }
        void *v = out->at;
        if (!trl_grow(&v, &out->cap, out->len + (size_t)k, sizeof(*out->at)))
            return trl_fail_nomem(err, out->len * sizeof(*out->at), "a normalized text");
        out->at = v;
        for (utf8proc_ssize_t j = 0; j < k; j++)
            out->at[out->len++] = (struct nchar){(uint32_t)d[j], j > 0};
        i += (size_t)n;
    }
    return 0;
}

struct mark {
    struct nchar c;
    int ccc;
    uint32_t seq;
};

static int cmp_mark(const void *a, const void *b)
{
    const struct mark *x = a, *y = b;
    return x->ccc != y->ccc ? x->ccc - y->ccc : (x->seq > y->seq) - (x->seq < y->seq);
}

/* Canonical ordering: every run of marks by combining class, stable. */
static int reorder(struct nchars *s, struct trl_err *err)
{
    struct mark *m = NULL;
    size_t cap = 0;
    int rc = 0;
    for (size_t i = 0; i < s->len; i++) {
        size_t n = 0;
        bool sorted = true;
        int last = 0, ccc;
        for (; i + n < s->len && (ccc = trl__uc_ccc(s->at[i + n].cp)) != 0; n++) {
            sorted = sorted && ccc >= last;
            last = ccc;
        }
        if (sorted) {
            i += n;
            continue;
        }
        void *v = m;
        if (!trl_grow(&v, &cap, n, sizeof(*m))) {
            rc = trl_fail_nomem(err, n * sizeof(*m), "a normalized text");
            break;
        }
        m = v;
        for (size_t k = 0; k < n; k++)
            m[k] = (struct mark){s->at[i + k], trl__uc_ccc(s->at[i + k].cp), (uint32_t)k};
        qsort(m, n, sizeof(*m), cmp_mark);
        for (size_t k = 0; k < n; k++)
            s->at[i + k] = m[k].c;
        i += n;
    }
    trl_free(m);
    return rc;
}

static bool compose_pair(uint32_t a, uint32_t b, uint32_t *ret)
{
    if (a < 0x80 && b < 0x300)
        return false;
    utf8proc_int32_t pair[2] = {(utf8proc_int32_t)a, (utf8proc_int32_t)b};
    if (utf8proc_normalize_utf32(pair, 2, UTF8PROC_COMPOSE | UTF8PROC_STABLE) != 1)
        return false;
    *ret = (uint32_t)pair[0];
    return true;
}

/* Canonical composition, in place: `starter` is the index of the last starter in the output. */
static void compose(struct nchars *s)
{
    size_t out = 0, starter = SIZE_MAX;
    int last_ccc = -1; /* of the last mark kept behind the starter; -1: none */
    for (size_t i = 0; i < s->len; i++) {
        struct nchar c = s->at[i];
        int ccc = trl__uc_ccc(c.cp);
        uint32_t both;
        if (starter != SIZE_MAX && (last_ccc < 0 || last_ccc < ccc) &&
            compose_pair(s->at[starter].cp, c.cp, &both)) {
            s->at[starter].cp = both;
            s->at[starter].change += c.change - 1;
            continue;
        }
        if (ccc == 0) {
            starter = out;
            last_ccc = -1;
        } else if (starter != SIZE_MAX) {
            last_ccc = ccc;
        }
        s->at[out++] = c;
    }
    s->len = out;
}

/* Write the characters, moving over the old text as the changes say. */
static int write_changes(struct tok_work *w, const struct nchars *s, struct trl_err *err)
{
    struct tok_buf *b = trl__work_start(w);
    size_t pos = 0;
    for (size_t i = 0; i < s->len; i++) {
        char bytes[4];
        int change = s->at[i].change, n = trl__uc_put(bytes, s->at[i].cp);
        struct tok_align al = {w->text.origin, w->text.origin};
        if (w->offsets && change <= 0 && pos < w->text.len)
            al = trl__work_align(&w->text, pos);
        else if (w->offsets && pos > 0)
            al = trl__work_align(&w->text, pos - 1);
        for (int k = change > 0 ? 1 : change; k <= 0 && pos < w->text.len; k++) {
            int step;
            trl__uc_next(w->text.p + pos, &step);
            pos += (size_t)step;
        }
        int rc = trl__work_put(w, b, bytes, (size_t)n, al, err);
        if (rc)
            return rc;
    }
    trl__work_finish(w, b);
    return 0;
}

int trl__norm_unicode(struct tok_work *w, enum tok_norm_kind kind, struct trl_err *err)
{
    struct nchars s = {0};
    if (!needs_work(w->text.p, w->text.len, kind))
        return 0;
    int rc =
        decompose(&s, w->text.p, w->text.len, kind == TOK_NORM_NFKC || kind == TOK_NORM_NFKD, err);
    if (!rc)
        rc = reorder(&s, err);
    if (!rc && (kind == TOK_NORM_NFC || kind == TOK_NORM_NFKC))
        compose(&s);
    if (!rc)
        rc = write_changes(w, &s, err);
    trl_free(s.at);
    return rc;
}
