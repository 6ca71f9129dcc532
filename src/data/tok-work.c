/* SPDX-License-Identifier: Apache-2.0 */
/* Texts, alignments and pieces. */
#include <string.h>

#include "base/alloc.h"
#include "data/tok-internal.h"

void *trl__tok_append(void **array, size_t *len, size_t *cap, size_t size)
{
    if (!trl_grow(array, cap, *len + 1, size))
        return NULL;
    char *p = (char *)*array + (*len)++ * size;
    return memset(p, 0, size);
}

struct tok_buf *trl__work_start(struct tok_work *w)
{
    struct tok_buf *b = &w->buf[!w->cur_buf];
    b->len = 0;
    return b;
}

static int buf_reserve(struct tok_work *w, struct tok_buf *b, size_t n, struct trl_err *err)
{
    void *p = b->data, *q = b->align;
    if (n > UINT32_MAX - b->len)
        return trl_fail(err, TRL_E_RANGE, "a normalized text longer than 4 GB");
    if (!trl_grow(&p, &b->cap, b->len + n, 1))
        return trl_fail_nomem(err, b->len + n, "a normalized text");
    b->data = p;
    if (!w->offsets)
        return 0;
    if (!trl_grow(&q, &b->align_cap, b->len + n, sizeof(*b->align)))
        return trl_fail_nomem(err, (b->len + n) * sizeof(*b->align), "token offsets");
    b->align = q;
    return 0;
}

int trl__work_put(struct tok_work *w, struct tok_buf *b, const char *p, size_t n,
    struct tok_align al, struct trl_err *err)
{
    int rc = b->cap - b->len >= n && !w->offsets ? 0 : buf_reserve(w, b, n, err);
    if (rc || n == 0)
        return rc;
    memcpy(b->data + b->len, p, n);
    if (w->offsets)
        for (size_t i = 0; i < n; i++)
            b->align[b->len + i] = al;
    b->len += n;
    return 0;
}

/* Copy bytes [begin, end) of the text with their alignments. */
int trl__work_copy(
    struct tok_work *w, struct tok_buf *b, size_t begin, size_t end, struct trl_err *err)
{
    size_t n = end - begin;
    int rc = buf_reserve(w, b, n, err);
    if (rc || n == 0)
        return rc;
    memcpy(b->data + b->len, w->text.p + begin, n);
    if (w->offsets)
        for (size_t i = 0; i < n; i++)
            b->align[b->len + i] = trl__work_align(&w->text, begin + i);
    b->len += n;
    return 0;
}

void trl__work_finish(struct tok_work *w, struct tok_buf *b)
{
    w->text = (struct tok_text){.p = b->data ? b->data : "",
        .len = b->len,
        .align = w->offsets ? b->align : NULL,
        .origin = w->text.origin};
    w->cur_buf = !w->cur_buf;
}

/* The input bytes that byte i of the text stands for. Without an alignment: the whole character
 * around byte i. */
struct tok_align trl__work_align(const struct tok_text *t, size_t i)
{
    if (t->align)
        return t->align[i];
    size_t b = i, e = i + 1;
    while (b > 0 && ((unsigned char)t->p[b] & 0xC0) == 0x80)
        b--;
    while (e < t->len && ((unsigned char)t->p[e] & 0xC0) == 0x80)
        e++;
    return (struct tok_align){t->origin + (uint32_t)b, t->origin + (uint32_t)e};
}

struct tok_spans *trl__work_start_spans(struct tok_work *w)
{
    struct tok_spans *s = &w->spans[!w->cur_spans];
    s->len = 0;
    return s;
}

/* Empty pieces vanish, as they do in the tokenizers library. */
int trl__spans_add(struct tok_spans *s, size_t b, size_t e, struct trl_err *err)
{
    if (b >= e)
        return 0;
    if (s->len == s->cap) {
        void *p = s->at;
        if (!trl_grow(&p, &s->cap, s->len + 1, sizeof(*s->at)))
            return trl_fail_nomem(err, s->len * sizeof(*s->at), "the pieces of a text");
        s->at = p;
    }
    s->at[s->len++] = (struct tok_span){(uint32_t)b, (uint32_t)e};
    return 0;
}

void trl__work_finish_spans(struct tok_work *w, struct tok_spans *s)
{
    (void)s;
    w->cur_spans = !w->cur_spans;
}

void trl__work_release(struct tok_work *w)
{
    for (int i = 0; i < 2; i++) {
        trl_free(w->buf[i].data);
        trl_free(w->buf[i].align);
        trl_free(w->spans[i].at);
    }
}

int trl__syms_add(struct tok_syms *s, int32_t id, size_t b, size_t e, struct trl_err *err)
{
    if (s->len == s->cap) {
        void *p = s->at;
        if (!trl_grow(&p, &s->cap, s->len + 1, sizeof(*s->at)))
            return trl_fail_nomem(err, s->len * sizeof(*s->at), "the tokens of a word");
        s->at = p;
    }
    s->at[s->len++] = (struct tok_sym){id, (uint32_t)b, (uint32_t)e};
    return 0;
}
