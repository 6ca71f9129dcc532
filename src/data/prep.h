/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TRL_DATA_PREP_H
#define TRL_DATA_PREP_H
/*
 * One row into ids and labels, as SFTTrainer does it: recognise the type, add EOS to plain text, render conversations, find
 * where the completion begins, mask, cut. Read-only settings are shared by threads; each thread has a trl_prep_thread.
 */
#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "data/rows.h"
#include "data/store.h"
#include "data/template.h"
#include "data/tokenizer.h"

enum trl_row_type {
    TRL_ROW_TEXT,
    TRL_ROW_MESSAGES,
    TRL_ROW_PROMPT,      /* prompt-completion of strings */
    TRL_ROW_PROMPT_CHAT, /* prompt-completion of messages */
    TRL_ROW_TOKENS,
    TRL_ROW_MAX_
};

struct trl_prep {
    const struct trl_tokenizer *tok;
    const struct trl_template *tpl; /* NULL: none */
    const char *text_field;
    const char *eos; /* NULL: the tokenizer has none */
    bool completion_only;
    bool assistant_only;
    bool skip_prepare; /* rows are taken as they are */
    int64_t cut;       /* rows are cut to this length; 0: not */
    bool keep_end;     /* cut at the start instead */
    int64_t vocab_size; /* 0: ids are not checked */
    const json_t *template_kwargs; /* for all rows; NULL: none */
    const json_t *columns;         /* only these columns of a row count; NULL: all */
};

struct trl_ints {
    int32_t *v;
    size_t n, cap;
};

struct trl_prep_thread {
    struct trl_tok_scratch *scratch;
    json_t *special; /* special tokens by name: variables of every template */
    json_t *kwargs;  /* a copy of template_kwargs: jansson's counts are not for sharing */
    struct trl_str text;
    struct trl_spans spans;
    struct trl_ids a, b;     /* of texts */
    struct trl_ints ids, other; /* of tokenised rows */
    int32_t *labels;
    size_t cap_labels;
    bool prompt_differs; /* some prompt was no prefix of its prompt+completion: said once */
};
int trl_prep_thread_init(struct trl_prep_thread *t, const struct trl_prep *p, struct trl_err *err);
void trl_prep_thread_release(struct trl_prep_thread *t);

/* The type of a row; TRL_E_DATA when a column is missing or wrong, TRL_E_UNSUPPORTED for other trainers' data. Messages in
 * from/value form become role/content, in the row. */
int trl_prep_recognise(const struct trl_prep *p, json_t *row, enum trl_row_type *ret, struct trl_err *err);
/* Does the row make completion_only_loss true when the option is not given? */
bool trl_prep_has_completion(const json_t *row);
/* Append the row to *out. The row may be changed. */
int trl_prep_row(const struct trl_prep *p, struct trl_prep_thread *t, json_t *row, struct trl_store *out, struct trl_err *err);

#endif
