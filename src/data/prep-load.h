/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TRL_DATA_PREP_LOAD_H
#define TRL_DATA_PREP_LOAD_H
/* Files into a store of prepared rows: one thread reads, all parse and tokenise, the result is in file order. */
#include "base/threads.h"
#include "data/prep.h"

struct trl_load {
    const struct trl_prep *prep;
    struct trl_pool *pool;
    bool skip_bad;
    int64_t rows, skipped;    /* so far */
    struct trl_err first_bad; /* text of the first skipped row */
    bool prompt_differs;
    double started, shown;    /* seconds: the progress line */
    bool bar;                 /* a line on the terminal is to be wiped */
};

/* Rows of these files behind those in *out; at most `limit` (negative: all). */
int trl_load_files(struct trl_load *l, const struct trl_files *files, int64_t limit, struct trl_store *out, struct trl_err *err);
/* How many rows do the files hold? They are parsed, not tokenised. */
int trl_load_count(struct trl_load *l, const struct trl_files *files, int64_t *ret, struct trl_err *err);
/* The first good row of the files, new reference; NULL: there is none. */
int trl_load_first(struct trl_load *l, const struct trl_files *files, json_t **ret, struct trl_err *err);

#endif
