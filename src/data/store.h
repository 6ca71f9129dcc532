/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TRL_DATA_STORE_H
#define TRL_DATA_STORE_H
/*
 * Rows of tokens in contiguous arrays: what preparation fills and a data set is made of. Labels cost nothing where they equal
 * the ids, one bit a token where they are a mask, four bytes where rows bring their own. A zeroed struct is empty.
 * Not shared between threads while it grows.
 */
#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "data/dataset.h"

enum trl_label_kind { TRL_LABELS_SAME, TRL_LABELS_MASK, TRL_LABELS_OWN, TRL_LABELS_MAX_ };

struct trl_store {
    int32_t *ids;       /* [n_tokens] */
    uint8_t *mask;      /* [(n_tokens+7)/8] bit t: token t is in the loss; only TRL_LABELS_MASK */
    int32_t *labels;    /* [n_tokens]; only TRL_LABELS_OWN */
    int64_t *begin;     /* [n_rows] first token of a row */
    int32_t *len;       /* [n_rows] */
    int64_t *doc_begin; /* [n_rows] first entry in doc_len */
    int32_t *n_docs;    /* [n_rows] 0: the row is one document */
    int32_t *doc_len;   /* [n_doc_len] */
    size_t n_tokens, n_rows, n_doc_len;
    enum trl_label_kind kind;
    size_t cap_ids, cap_mask, cap_labels, cap_begin, cap_len, cap_doc_begin, cap_n_docs, cap_doc_len;
};

/* A piece of a row. */
struct trl_piece {
    int64_t row, offset, len;
};

void trl_store_release(struct trl_store *s);
void trl_store_clear(struct trl_store *s); /* no rows, memory kept */
/* labels NULL: the ids. doc_len NULL: one document. */
int trl_store_add(struct trl_store *s, const int32_t *ids, int64_t n, const int32_t *labels, const int32_t *doc_len,
    int64_t n_docs, struct trl_err *err);
/* All rows of `from` behind those of `s`. */
int trl_store_append(struct trl_store *s, const struct trl_store *from, struct trl_err *err);
/* One row joined from pieces of rows of `from`; with_docs: each piece is a document. */
int trl_store_add_joined(struct trl_store *s, const struct trl_store *from, const struct trl_piece *pieces, size_t n,
    bool with_docs, struct trl_err *err);
void trl_store_copy_labels(const struct trl_store *s, int64_t row, int64_t offset, int64_t n, int32_t *ret);
bool trl_store_any_label(const struct trl_store *s, int64_t row); /* is anything of this row in the loss? */
/* Tokens before this one will not be read again: give their memory back to the system. Only for arrays that are freed next. */
void trl_store_forget(struct trl_store *s, int64_t token);
void trl_store_shrink(struct trl_store *s);                       /* give back spare memory */

/* The data set takes the store's arrays (the store is empty afterwards). order[n]: its rows, in this order. */
int trl_dataset_new(struct trl_dataset **ret, struct trl_store *s, const int64_t *order, int64_t n, bool flat,
    struct trl_err *err);

#endif
