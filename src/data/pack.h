/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TRL_DATA_PACK_H
#define TRL_DATA_PACK_H
/*
 * Packing, equal to TRL's. Rows are taken in batches of 1000, as datasets.map() hands them over; bins never span batches.
 * bfd: best fit decreasing; longer rows are cut to `length`. bfd_split: longer rows become pieces of at most `length`.
 * wrapped: the batch as one stream, cut every `length` tokens, without document boundaries.
 */
#include <stdint.h>

#include "base/err.h"
#include "data/store.h"

enum trl_packing { TRL_PACK_BFD, TRL_PACK_BFD_SPLIT, TRL_PACK_WRAPPED, TRL_PACK_MAX_ };
enum { TRL_PACK_BATCH = 1000 };

/* order[n]: which rows of `from`, in which order; packed rows are appended to *to. consume: `from` is released afterwards, so
 * memory of packed rows may go at once. */
int trl_pack_rows(struct trl_store *to, struct trl_store *from, const int64_t *order, int64_t n, enum trl_packing strategy,
    int64_t length, bool consume, struct trl_err *err);

#endif
