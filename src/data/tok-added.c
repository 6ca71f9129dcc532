/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Added tokens: found in the text before the model sees it, leftmost first, the longest at a place.
 * Patterns are kept sorted; a search narrows a range of them byte by byte, so a text with many '<'
 * costs little even with hundreds of <...> tokens.
 */
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "data/tok-internal.h"

const struct tok_added *trl__added_find(
    const struct trl_tokenizer *t, const char *content, size_t len)
{
    int32_t i = trl__vocab_find(&t->added_ids, content, len);
    return i < 0 ? NULL : &t->added[i];
}

/* The id of the model's vocabulary when it has the content; else the next free one, as the
 * tokenizers library counts. */
static int32_t next_id(const struct trl_tokenizer *t, const struct tok_added *a)
{
    int32_t id = trl__vocab_find(&t->vocab, a->content, a->len), max = -1;
    if (id >= 0)
        return id;
    for (size_t i = 0; i < t->n_added; i++)
        max = t->added[i].id > max ? t->added[i].id : max;
    return max >= t->vocab.count ? max + 1 : t->vocab.count;
}

int trl__added_add(struct trl_tokenizer *t, const struct tok_added *a, struct trl_err *err)
{
    if (a->len == 0 || trl__added_find(t, a->content, a->len))
        return 0;
    void *p = t->added;
    struct tok_added *n = trl__tok_append(&p, &t->n_added, &t->added_cap, sizeof(*t->added));
    if (!n)
        return trl_fail_nomem(err, sizeof(*n), "the added tokens");
    t->added = p;
    t->n_added--; /* not counted yet by next_id */
    *n = *a;
    n->id = next_id(t, a);
    t->n_added++;
    n->content = trl_arena_strndup(&t->arena, a->content, a->len);
    if (!n->content)
        return trl_fail_nomem(err, a->len, "an added token");
    if (n->id >= TOK_ID_MAX)
        return trl_fail(err, TRL_E_DATA, "%s: too many added tokens", t->origin);
    return trl__vocab_add(
        &t->added_ids, n->content, n->len, (int64_t)t->n_added - 1, t->origin, err);
}

int trl__added_load(struct trl_tokenizer *t, const json_t *list, struct trl_err *err)
{
    char where[512];
    size_t i;
    const json_t *v;
    int rc;
    if (!list || json_is_null(list))
        return 0;
    if (!json_is_array(list))
        return trl_fail(err, TRL_E_DATA, "%s: 'added_tokens' must be a list", t->origin);
    json_array_foreach(list, i, v)
    {
        struct tok_added a = {0};
        size_t len = 0;
        int64_t id = -1;
        snprintf(where, sizeof(where), "%s: added_tokens[%zu]", t->origin, i);
        if ((rc = trl__tok_get_str(v, "content", true, &a.content, &len, where, err)) ||
            (rc = trl__tok_get_int(v, "id", &id, where, err)) ||
            (rc = trl__tok_get_bool(v, "single_word", &a.single_word, where, err)) ||
            (rc = trl__tok_get_bool(v, "lstrip", &a.lstrip, where, err)) ||
            (rc = trl__tok_get_bool(v, "rstrip", &a.rstrip, where, err)) ||
            (rc = trl__tok_get_bool(v, "special", &a.special, where, err)))
            return rc;
        a.normalized = !a.special;
        if ((rc = trl__tok_get_bool(v, "normalized", &a.normalized, where, err)))
            return rc;
        if (len > 65535 || id >= TOK_ID_MAX || (id < 0 && json_object_get(v, "id")))
            return trl_fail(err, TRL_E_DATA,
                "%s: token '%.80s' has id %lld and %zu bytes; ids run from 0 to %d, tokens to "
                "65535 bytes",
                where, a.content, (long long)id, len, TOK_ID_MAX - 1);
        a.len = (uint32_t)len;
        if ((rc = trl__added_add(t, &a, err)))
            return rc;
    }
    return 0;
}

/* ---- matching ---- */

static int cmp_pattern(const void *a, const void *b)
{
    const struct tok_pattern *x = a, *y = b;
    int c = memcmp(x->s, y->s, x->len < y->len ? x->len : y->len);
    if (c == 0)
        c = (x->len > y->len) - (x->len < y->len);
    return c ? c : (x->added > y->added) - (x->added < y->added);
}

static int add_pattern(struct tok_matcher *m, size_t *cap, const char *s, size_t len, size_t added,
    struct trl_err *err)
{
    void *p = m->at;
    if (len == 0)
        return 0;
    struct tok_pattern *n = trl__tok_append(&p, &m->len, cap, sizeof(*m->at));
    if (!n)
        return trl_fail_nomem(err, sizeof(*n), "the added tokens");
    m->at = p;
    *n = (struct tok_pattern){.s = s, .len = (uint32_t)len, .added = (uint32_t)added};
    m->first[(unsigned char)s[0]] = true;
    return 0;
}

/* Normalized tokens are looked for in their normalized form. */
static int normalized_form(struct trl_tokenizer *t, struct trl_tok_scratch *s,
    const struct tok_added *a, const char **ret, size_t *ret_len, struct trl_err *err)
{
    struct tok_work *w = &s->norm;
    w->offsets = false;
    w->text = (struct tok_text){.p = a->content, .len = a->len};
    int rc = trl__norm_apply(t, s, w, err);
    if (rc)
        return rc;
    *ret = trl_arena_strndup(&t->arena, w->text.p, w->text.len);
    *ret_len = w->text.len;
    return *ret ? 0 : trl_fail_nomem(err, w->text.len, "an added token");
}

int trl__added_prepare(struct trl_tokenizer *t, struct trl_err *err)
{
    struct trl_tok_scratch *s = NULL;
    size_t cap[2] = {0, 0};
    int32_t max = t->vocab.max_id;
    int rc = trl_tok_scratch_new(&s, t, err);
    for (size_t i = 0; i < t->n_added && !rc; i++) {
        struct tok_added *a = &t->added[i];
        size_t len = a->len;
        max = a->id > max ? a->id : max;
        a->form = a->content;
        if (a->normalized)
            rc = normalized_form(t, s, a, &a->form, &len, err);
        a->form_len = (uint32_t)len;
        if (!rc)
            rc = add_pattern(a->normalized ? &t->norm_match : &t->raw_match, &cap[a->normalized],
                a->form, len, i, err);
        const struct tok_added *same = rc ? NULL : trl__added_find(t, a->form, a->form_len);
        a->skip = same && same->special;
    }
    trl_tok_scratch_free(s);
    if (rc)
        return rc;
    if (t->raw_match.len > 1)
        qsort(t->raw_match.at, t->raw_match.len, sizeof(struct tok_pattern), cmp_pattern);
    if (t->norm_match.len > 1)
        qsort(t->norm_match.at, t->norm_match.len, sizeof(struct tok_pattern), cmp_pattern);
    t->added_by_id_len = (size_t)(max + 1);
    t->added_by_id = trl_malloc_array(t->added_by_id_len, sizeof(*t->added_by_id));
    if (!t->added_by_id)
        return trl_fail_nomem(
            err, t->added_by_id_len * sizeof(*t->added_by_id), "the added tokens");
    memset(t->added_by_id, 0xFF, t->added_by_id_len * sizeof(*t->added_by_id));
    for (size_t i = 0; i < t->n_added; i++)
        t->added_by_id[t->added[i].id] = (int32_t)i;
    return 0;
}

/* The longest pattern that begins at p; NULL: none. [lo, hi) are the patterns that agree with the
 * first d bytes. */
static const struct tok_pattern *longest_at(const struct tok_matcher *m, const char *p, size_t left)
{
    const struct tok_pattern *hit = NULL;
    size_t lo = 0, hi = m->len;
    for (size_t d = 0; d < left && lo < hi; d++) {
        unsigned char c = (unsigned char)p[d];
        size_t a = lo, b = hi;
        while (a < b) { /* first pattern longer than d whose byte d is at least c */
            size_t mid = (a + b) / 2;
            if (m->at[mid].len <= d || (unsigned char)m->at[mid].s[d] < c)
                a = mid + 1;
            else
                b = mid;
        }
        lo = a;
        b = hi;
        while (a < b) {
            size_t mid = (a + b) / 2;
            if ((unsigned char)m->at[mid].s[d] <= c)
                a = mid + 1;
            else
                b = mid;
        }
        hi = a;
        if (lo < hi && m->at[lo].len == d + 1)
            hit = &m->at[lo];
    }
    return hit;
}

static int add_part(struct tok_parts *o, size_t b, size_t e, int32_t added, struct trl_err *err)
{
    if (o->len == o->cap) {
        void *p = o->at;
        if (!trl_grow(&p, &o->cap, o->len + 1, sizeof(*o->at)))
            return trl_fail_nomem(err, o->len * sizeof(*o->at), "the parts of a text");
        o->at = p;
    }
    o->at[o->len++] = (struct tok_part){(uint32_t)b, (uint32_t)e, added};
    return 0;
}

static bool alone(const char *p, size_t len, size_t b, size_t e)
{
    int n;
    if (b > 0 && trl__uc_is_word(trl__uc_prev(p, p + b, &n)))
        return false;
    return e == len || !trl__uc_is_word(trl__uc_next(p + e, &n));
}

/* Widen a match over the white space around it; not over what an earlier match took. */
static void widen(
    const struct tok_added *a, const char *p, size_t len, size_t taken, size_t *b, size_t *e)
{
    int n;
    if (a->lstrip) {
        size_t from = *b;
        while (from > 0 && trl__uc_is_space(trl__uc_prev(p, p + from, &n)))
            from -= (size_t)n;
        *b = from > taken ? from : taken;
    }
    while (a->rstrip && *e < len && trl__uc_is_space(trl__uc_next(p + *e, &n)))
        *e += (size_t)n;
}

int trl__added_split(const struct trl_tokenizer *t, const struct tok_matcher *m, const char *p,
    size_t len, struct tok_parts *out, struct trl_err *err)
{
    size_t taken = 0, i = 0;
    int rc;
    out->len = 0;
    while (m->len > 0 && i < len) {
        const struct tok_pattern *hit = NULL;
        while (i < len && !(m->first[(unsigned char)p[i]] && (hit = longest_at(m, p + i, len - i))))
            i++;
        if (!hit)
            break;
        const struct tok_added *a = &t->added[hit->added];
        size_t b = i, e = i + hit->len;
        i = e;
        if (a->single_word && !alone(p, len, b, e))
            continue;
        widen(a, p, len, taken, &b, &e);
        if ((taken < b && (rc = add_part(out, taken, b, -1, err))) ||
            (rc = add_part(out, b, e, (int32_t)hit->added, err)))
            return rc;
        taken = e;
    }
    return taken < len ? add_part(out, taken, len, -1, err) : 0;
}
