/* SPDX-License-Identifier: Apache-2.0 */
#include "data/store.h"

#include <limits.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/alloc.h"

void trl_store_release(struct trl_store *s)
{
    if (!s)
        return;
    trl_free(s->ids);
    trl_free(s->mask);
    trl_free(s->labels);
    trl_free(s->begin);
    trl_free(s->len);
    trl_free(s->doc_begin);
    trl_free(s->n_docs);
    trl_free(s->doc_len);
    *s = (struct trl_store){0};
}

void trl_store_clear(struct trl_store *s)
{
    s->n_tokens = s->n_rows = s->n_doc_len = 0;
    s->kind = TRL_LABELS_SAME;
}

static bool grow_i32(int32_t **p, size_t *cap, size_t need)
{
    void *q = *p;
    bool ok = trl_grow(&q, cap, need, sizeof(**p));
    *p = q;
    return ok;
}

static bool grow_i64(int64_t **p, size_t *cap, size_t need)
{
    void *q = *p;
    bool ok = trl_grow(&q, cap, need, sizeof(**p));
    *p = q;
    return ok;
}

static bool grow_mask(struct trl_store *s, size_t tokens)
{
    void *q = s->mask;
    bool ok = trl_grow(&q, &s->cap_mask, (tokens + 7) / 8 + 8, 1);
    s->mask = q;
    return ok;
}

static bool mask_get(const uint8_t *mask, size_t t)
{
    return mask[t >> 3] >> (t & 7) & 1;
}

static void mask_put(uint8_t *mask, size_t t, bool on)
{
    uint8_t bit = (uint8_t)(1u << (t & 7));
    mask[t >> 3] = (uint8_t)(on ? mask[t >> 3] | bit : mask[t >> 3] & ~bit);
}

/* Room for n more tokens, one more row and n_docs more documents. */
static int reserve(struct trl_store *s, int64_t n, int64_t n_docs, int64_t rows, struct trl_err *err)
{
    size_t tokens = s->n_tokens + (size_t)n, r = s->n_rows + (size_t)rows;
    if (!grow_i32(&s->ids, &s->cap_ids, tokens) || !grow_i64(&s->begin, &s->cap_begin, r) ||
        !grow_i32(&s->len, &s->cap_len, r) || !grow_i64(&s->doc_begin, &s->cap_doc_begin, r) ||
        !grow_i32(&s->n_docs, &s->cap_n_docs, r) ||
        !grow_i32(&s->doc_len, &s->cap_doc_len, s->n_doc_len + (size_t)n_docs) ||
        (s->kind == TRL_LABELS_MASK && !grow_mask(s, tokens)) ||
        (s->kind == TRL_LABELS_OWN && !grow_i32(&s->labels, &s->cap_labels, tokens)))
        return trl_fail_nomem(err, tokens * sizeof(int32_t), "token rows");
    return 0;
}

/* Store labels in a more general way from here on; tokens so far keep theirs. Room for n more tokens. */
static int widen(struct trl_store *s, enum trl_label_kind kind, int64_t n, struct trl_err *err)
{
    if (kind <= s->kind)
        return 0;
    size_t tokens = s->n_tokens + (size_t)n;
    if (kind == TRL_LABELS_MASK) {
        if (!grow_mask(s, tokens))
            return trl_fail_nomem(err, tokens / 8, "the loss mask");
        memset(s->mask, 0xff, (s->n_tokens + 7) / 8);
    } else {
        if (!grow_i32(&s->labels, &s->cap_labels, tokens))
            return trl_fail_nomem(err, tokens * sizeof(int32_t), "labels");
        for (size_t t = 0; t < s->n_tokens; t++)
            s->labels[t] =
                s->kind == TRL_LABELS_SAME || mask_get(s->mask, t) ? s->ids[t] : TRL_IGNORE_LABEL;
    }
    s->kind = kind;
    return 0;
}

static enum trl_label_kind kind_of(const int32_t *ids, const int32_t *labels, int64_t n)
{
    enum trl_label_kind kind = TRL_LABELS_SAME;
    for (int64_t t = 0; labels && t < n; t++) {
        if (labels[t] == ids[t])
            continue;
        if (labels[t] != TRL_IGNORE_LABEL)
            return TRL_LABELS_OWN;
        kind = TRL_LABELS_MASK;
    }
    return kind;
}

/* Tokens behind the last one; the row is recorded by end_row(). */
static void put_tokens(struct trl_store *s, const int32_t *ids, const int32_t *labels, int64_t n)
{
    if (n > 0)
        memcpy(s->ids + s->n_tokens, ids, (size_t)n * sizeof(*ids));
    const int32_t *l = labels ? labels : ids;
    if (s->kind == TRL_LABELS_MASK) {
        for (int64_t t = 0; t < n; t++)
            mask_put(s->mask, s->n_tokens + (size_t)t, l[t] != TRL_IGNORE_LABEL);
    } else if (s->kind == TRL_LABELS_OWN && n > 0) {
        memcpy(s->labels + s->n_tokens, l, (size_t)n * sizeof(*l));
    }
    s->n_tokens += (size_t)n;
}

static void end_row(struct trl_store *s, int64_t len, const int32_t *doc_len, int64_t n_docs)
{
    s->begin[s->n_rows] = (int64_t)s->n_tokens - len;
    s->len[s->n_rows] = (int32_t)len;
    s->doc_begin[s->n_rows] = (int64_t)s->n_doc_len;
    s->n_docs[s->n_rows] = (int32_t)n_docs;
    for (int64_t i = 0; i < n_docs; i++)
        s->doc_len[s->n_doc_len++] = doc_len[i];
    s->n_rows++;
}

int trl_store_add(struct trl_store *s, const int32_t *ids, int64_t n, const int32_t *labels, const int32_t *doc_len,
    int64_t n_docs, struct trl_err *err)
{
    if (n < 0 || n > INT32_MAX)
        return trl_fail(err, TRL_E_RANGE, "a row of %lld tokens: at most %d are allowed", (long long)n, INT32_MAX);
    if (!doc_len)
        n_docs = 0;
    int rc = reserve(s, n, n_docs, 1, err);
    if (rc == 0)
        rc = widen(s, kind_of(ids, labels, n), n, err);
    if (rc != 0)
        return rc;
    put_tokens(s, ids, labels, n);
    end_row(s, n, doc_len, n_docs);
    return 0;
}

void trl_store_copy_labels(const struct trl_store *s, int64_t row, int64_t offset, int64_t n, int32_t *ret)
{
    size_t first = (size_t)(s->begin[row] + offset);
    if (s->kind == TRL_LABELS_MASK) {
        for (int64_t t = 0; t < n; t++)
            ret[t] = mask_get(s->mask, first + (size_t)t) ? s->ids[first + (size_t)t] : TRL_IGNORE_LABEL;
    } else if (n > 0) {
        memcpy(ret, (s->kind == TRL_LABELS_OWN ? s->labels : s->ids) + first, (size_t)n * sizeof(*ret));
    }
}

bool trl_store_any_label(const struct trl_store *s, int64_t row)
{
    for (int64_t t = s->begin[row], end = t + s->len[row]; t < end; t++)
        if (s->kind == TRL_LABELS_SAME || (s->kind == TRL_LABELS_MASK && mask_get(s->mask, (size_t)t)) ||
            (s->kind == TRL_LABELS_OWN && s->labels[t] != TRL_IGNORE_LABEL))
            return true;
    return false;
}

/* Append tokens [first, first+n) of `from` (its whole array, not a row). Room is there. */
static void put_from(struct trl_store *s, const struct trl_store *from, size_t first, size_t n)
{
    if (n == 0)
        return;
    memcpy(s->ids + s->n_tokens, from->ids + first, n * sizeof(*s->ids));
    for (size_t t = 0; s->kind == TRL_LABELS_MASK && t < n; t++)
        mask_put(s->mask, s->n_tokens + t, from->kind == TRL_LABELS_SAME || mask_get(from->mask, first + t));
    for (size_t t = 0; s->kind == TRL_LABELS_OWN && t < n; t++) {
        if (from->kind == TRL_LABELS_OWN)
            s->labels[s->n_tokens + t] = from->labels[first + t];
        else
            s->labels[s->n_tokens + t] = from->kind == TRL_LABELS_SAME || mask_get(from->mask, first + t)
                ? from->ids[first + t]
                : TRL_IGNORE_LABEL;
    }
    s->n_tokens += n;
}

int trl_store_append(struct trl_store *s, const struct trl_store *from, struct trl_err *err)
{
    int rc = reserve(s, (int64_t)from->n_tokens, (int64_t)from->n_doc_len, (int64_t)from->n_rows, err);
    if (rc == 0)
        rc = widen(s, from->kind, (int64_t)from->n_tokens, err);
    if (rc != 0)
        return rc;
    int64_t token0 = (int64_t)s->n_tokens, doc0 = (int64_t)s->n_doc_len;
    put_from(s, from, 0, from->n_tokens);
    for (size_t i = 0; i < from->n_rows; i++) {
        s->begin[s->n_rows + i] = from->begin[i] + token0;
        s->len[s->n_rows + i] = from->len[i];
        s->doc_begin[s->n_rows + i] = from->doc_begin[i] + doc0;
        s->n_docs[s->n_rows + i] = from->n_docs[i];
    }
    for (size_t i = 0; i < from->n_doc_len; i++)
        s->doc_len[s->n_doc_len + i] = from->doc_len[i];
    s->n_rows += from->n_rows;
    s->n_doc_len += from->n_doc_len;
    return 0;
}

int trl_store_add_joined(struct trl_store *s, const struct trl_store *from, const struct trl_piece *pieces, size_t n,
    bool with_docs, struct trl_err *err)
{
    int64_t total = 0;
    for (size_t i = 0; i < n; i++)
        total += pieces[i].len;
    if (total > INT32_MAX)
        return trl_fail(err, TRL_E_RANGE, "a packed row of %lld tokens: at most %d are allowed", (long long)total,
            INT32_MAX);
    int rc = reserve(s, total, with_docs ? (int64_t)n : 0, 1, err);
    if (rc == 0)
        rc = widen(s, from->kind, total, err);
    if (rc != 0)
        return rc;
    int64_t doc0 = (int64_t)s->n_doc_len;
    for (size_t i = 0; i < n; i++) {
        put_from(s, from, (size_t)(from->begin[pieces[i].row] + pieces[i].offset), (size_t)pieces[i].len);
        if (with_docs)
            s->doc_len[s->n_doc_len++] = (int32_t)pieces[i].len;
    }
    end_row(s, total, NULL, 0);
    s->doc_begin[s->n_rows - 1] = doc0;
    s->n_docs[s->n_rows - 1] = with_docs ? (int32_t)n : 0;
    return 0;
}

static void forget(void *array, size_t bytes)
{
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), begin = ((uintptr_t)array + page - 1) / page * page;
    uintptr_t end = ((uintptr_t)array + bytes) / page * page;
    if (array && end > begin)
        madvise((void *)begin, end - begin, MADV_DONTNEED); /* whole pages inside the array; a failure costs memory only */
}

void trl_store_forget(struct trl_store *s, int64_t token)
{
    forget(s->ids, (size_t)token * sizeof(*s->ids));
    if (s->kind == TRL_LABELS_OWN)
        forget(s->labels, (size_t)token * sizeof(*s->labels));
}

static void *shrink(void *p, size_t *cap, size_t need, size_t elem)
{
    void *q = p && need < *cap ? trl_realloc(p, need * elem) : NULL;
    if (!q)
        return p;
    *cap = need;
    return q;
}

void trl_store_shrink(struct trl_store *s)
{
    s->ids = shrink(s->ids, &s->cap_ids, s->n_tokens, sizeof(*s->ids));
    s->mask = shrink(s->mask, &s->cap_mask, s->kind == TRL_LABELS_MASK ? (s->n_tokens + 7) / 8 : 0, 1);
    s->labels = shrink(s->labels, &s->cap_labels, s->kind == TRL_LABELS_OWN ? s->n_tokens : 0, sizeof(*s->labels));
    s->begin = shrink(s->begin, &s->cap_begin, s->n_rows, sizeof(*s->begin));
    s->len = shrink(s->len, &s->cap_len, s->n_rows, sizeof(*s->len));
    s->doc_begin = shrink(s->doc_begin, &s->cap_doc_begin, s->n_rows, sizeof(*s->doc_begin));
    s->n_docs = shrink(s->n_docs, &s->cap_n_docs, s->n_rows, sizeof(*s->n_docs));
    s->doc_len = shrink(s->doc_len, &s->cap_doc_len, s->n_doc_len, sizeof(*s->doc_len));
}
