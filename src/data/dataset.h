/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TRL_DATA_DATASET_H
#define TRL_DATA_DATASET_H
/*
 * From files to token rows: read -> recognise -> tokenise -> labels -> truncate -> pack. The result is one read-only block that
 * ranks of a node share. Row order, labels and packs equal TRL's.
 */
#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "base/threads.h"
#include "config/config.h"
#include "data/template.h"
#include "data/tokenizer.h"

enum { TRL_IGNORE_LABEL = -100 }; /* a label that is not in the loss */

/* One prepared row (a packed row holds several documents). */
struct trl_row {
    const int32_t *ids;     /* [len] */
    const int32_t *doc_len; /* [n_docs] lengths, sum = len; NULL when the row is one document */
    int64_t len, n_docs;
};

struct trl_dataset;
/* Everything preparation needs besides the files. Tokenizer and template are borrowed until the call returns. */
struct trl_sft_prepare {
    const struct trl_config *cfg;
    const struct trl_tokenizer *tok;
    const struct trl_template *tpl; /* NULL: none */
    struct trl_pool *pool;
    int64_t vocab_size, max_positions; /* of the model: ids and lengths are checked; 0 = unchecked */
};
/* Reads dataset_name / datasets and prepares the split. *ret_eval: the test split, only if cfg asks for evaluation (NULL otherwise). */
int trl_dataset_open_sft(struct trl_dataset **ret_train, struct trl_dataset **ret_eval, const struct trl_sft_prepare *prep,
    struct trl_err *err);
void trl_dataset_free(struct trl_dataset *d);
int64_t trl_dataset_n_rows(const struct trl_dataset *d);
void trl_dataset_get_row(const struct trl_dataset *d, int64_t i, struct trl_row *ret);
/* ret[len]: labels, -100: not in the loss; NOT shifted; position-0 masking of packed docs not yet done. Labels that equal the
 * ids are not stored, masks take one bit a token: hence a copy. */
void trl_dataset_copy_labels(const struct trl_dataset *d, int64_t i, int32_t *ret);
int64_t trl_dataset_n_tokens(const struct trl_dataset *d);
int64_t trl_dataset_max_len(const struct trl_dataset *d);
/* True: collate padding-free (bfd packing or padding_free): one row without attention mask; labels at position 0 of a doc are -100. */
bool trl_dataset_is_flat(const struct trl_dataset *d);
/* Share between processes of a node: the block as one byte string to broadcast or to place in shared memory, and its reading. */
int trl_dataset_export(const struct trl_dataset *d, const char *path, struct trl_err *err); /* a file (in /dev/shm) */
int trl_dataset_import(struct trl_dataset **ret, const char *path, struct trl_err *err);    /* maps it read-only */

#endif
