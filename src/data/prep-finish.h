/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TRL_DATA_PREP_FINISH_H
#define TRL_DATA_PREP_FINISH_H
/* From tokenised rows to the data set: drop what has no label left, shuffle, pack, shuffle again, check lengths. */
#include "data/pack.h"
#include "data/store.h"

struct trl_finish {
    bool packing;
    enum trl_packing strategy;
    int64_t max_length; /* 0: none */
    bool keep_end;
    bool shuffle;
    uint64_t seed;
    bool flat;             /* how batches are collated */
    bool keep_all;         /* skip_prepare_dataset: neither cut, drop, pack nor shuffle */
    int64_t max_positions; /* 0: unchecked */
    const char *what;      /* "training" or "evaluation", for errors */
};

/* Rows order[n] of *s (NULL: all). take: the store's arrays go into the data set, else they are copied. */
int trl_finish_rows(struct trl_dataset **ret, struct trl_store *s, const int64_t *order, int64_t n, bool take,
    const struct trl_finish *f, struct trl_err *err);

#endif
