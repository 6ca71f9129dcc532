/* SPDX-License-Identifier: Apache-2.0 */
#include "data/sampler.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"

static int resize(void **p, int64_t n, size_t elem, struct trl_err *err)
{
    void *q = trl_realloc(*p, trl_size_mul((size_t)n, elem));
    if (!q)
        return trl_fail_nomem(err, trl_size_mul((size_t)n, elem), "a batch");
    *p = q;
    return 0;
}

int trl_batch_reserve(struct trl_batch *b, int64_t tokens, int64_t docs, int64_t rows, struct trl_err *err)
{
    int rc = 0;
    if (tokens > b->cap_tokens) {
        int32_t **lists[] = {&b->ids, &b->labels, &b->positions, &b->targets};
        for (size_t i = 0; i < 4 && rc == 0; i++)
            rc = resize((void **)lists[i], tokens, sizeof(int32_t), err);
        if (rc != 0)
            return rc;
        b->cap_tokens = tokens;
    }
    if (docs > b->cap_docs || !b->doc_start) {
        rc = resize((void **)&b->doc_start, docs + 1, sizeof(int64_t), err);
        if (rc != 0)
            return rc;
        b->cap_docs = docs;
    }
    if (rows > b->cap_rows || !b->row_start) {
        rc = resize((void **)&b->row_start, rows + 1, sizeof(int64_t), err);
        if (rc != 0)
            return rc;
        b->cap_rows = rows;
    }
    return 0;
}

void trl_batch_release(struct trl_batch *b)
{
    if (!b)
        return;
    trl_free(b->ids);
    trl_free(b->labels);
    trl_free(b->positions);
    trl_free(b->targets);
    trl_free(b->doc_start);
    trl_free(b->row_start);
    *b = (struct trl_batch){0};
}

/* One document: positions from 0; in a flat batch its first label is not in the loss. */
static void add_doc(struct trl_batch *b, int64_t begin, int64_t len, bool flat)
{
    if (len == 0)
        return;
    for (int64_t t = 0; t < len; t++)
        b->positions[begin + t] = (int32_t)t;
    if (flat)
        b->labels[begin] = TRL_IGNORE_LABEL;
    b->doc_start[b->n_docs++] = begin;
}

static void add_row(struct trl_batch *b, const struct trl_dataset *d, int64_t row, bool flat)
{
    struct trl_row r;
    trl_dataset_get_row(d, row, &r);
    int64_t at = b->n;
    b->row_start[b->n_rows++] = at;
    if (r.len > 0)
        memcpy(b->ids + at, r.ids, (size_t)r.len * sizeof(*b->ids));
    trl_dataset_copy_labels(d, row, b->labels + at);
    if (flat && r.doc_len) {
        for (int64_t k = 0, begin = at; k < r.n_docs; begin += r.doc_len[k], k++)
            add_doc(b, begin, r.doc_len[k], true);
    } else {
        add_doc(b, at, r.len, flat);
    }
    /* shift inside the row; in a flat batch the next document's first label is masked, so nothing crosses */
    for (int64_t t = 0; t < r.len; t++)
        b->targets[at + t] = t + 1 < r.len ? b->labels[at + t + 1] : TRL_IGNORE_LABEL;
    for (int64_t t = 0; t < r.len; t++) {
        b->n_labels += b->labels[at + t] != TRL_IGNORE_LABEL;
        b->n_items += t > 0 && b->labels[at + t] != TRL_IGNORE_LABEL;
    }
    b->n += r.len;
}

static int64_t round_up(int64_t n, int64_t multiple)
{
    return multiple > 1 ? (n + multiple - 1) / multiple * multiple : n;
}

int trl_batch_collate(struct trl_batch *b, const struct trl_dataset *d, const int64_t *rows, int64_t n_rows,
    int64_t pad_to_multiple_of, struct trl_err *err)
{
    int64_t tokens = 0, docs = 0, longest = 0;
    for (int64_t i = 0; i < n_rows; i++) {
        struct trl_row r;
        if (rows[i] < 0 || rows[i] >= trl_dataset_n_rows(d))
            return trl_fail(err, TRL_E_RANGE, "row %lld of a data set of %lld rows", (long long)rows[i],
                (long long)trl_dataset_n_rows(d));
        trl_dataset_get_row(d, rows[i], &r);
        tokens += r.len;
        docs += r.n_docs;
        longest = r.len > longest ? r.len : longest;
    }
    int rc = trl_batch_reserve(b, tokens, docs, n_rows, err);
    if (rc != 0)
        return rc;
    bool flat = trl_dataset_is_flat(d);
    b->n = b->n_docs = b->n_rows = b->n_items = b->n_labels = 0;
    for (int64_t i = 0; i < n_rows; i++)
        add_row(b, d, rows[i], flat);
    b->doc_start[b->n_docs] = b->n;
    b->row_start[b->n_rows] = b->n;
    b->padded_len = round_up(flat ? tokens : longest, pad_to_multiple_of);
    b->n_input_tokens = flat ? b->padded_len : tokens;
    return 0;
}

static int descending(const void *pa, const void *pb)
{
    int64_t a = *(const int64_t *)pa, b = *(const int64_t *)pb;
    return a > b ? -1 : a < b;
}

void trl_batch_bound(const struct trl_dataset *d, int64_t n_rows, int64_t *ret_tokens, int64_t *ret_docs)
{
    int64_t n = trl_dataset_n_rows(d), max_docs = 1, tokens = 0;
    int64_t *len = trl_malloc_array((size_t)n, sizeof(*len));
    for (int64_t i = 0; i < n; i++) {
        struct trl_row r;
        trl_dataset_get_row(d, i, &r);
        max_docs = r.n_docs > max_docs ? r.n_docs : max_docs;
        if (len)
            len[i] = r.len;
    }
    if (len) {
        qsort(len, (size_t)n, sizeof(*len), descending);
        for (int64_t i = 0; i < n_rows && n > 0; i++)
            tokens += len[i % n]; /* a batch larger than the data set repeats rows */
    } else {
        tokens = n_rows * trl_dataset_max_len(d);
    }
    trl_free(len);
    *ret_tokens = tokens;
    *ret_docs = n_rows * (trl_dataset_is_flat(d) ? max_docs : 1);
}
