/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TRL_DATA_SHOW_BATCHES_H
#define TRL_DATA_SHOW_BATCHES_H
/* --show_batches: the first micro-batches of all ranks, as the model would see them. */
#include <stdio.h>

#include "data/sampler.h"
#include "data/tokenizer.h"

struct trl_show_batches {
    const struct trl_dataset *data;
    struct trl_sampler *sampler;
    const struct trl_tokenizer *tok; /* NULL: no text, pads are 0 */
    int64_t n;                       /* micro-steps; at most one epoch */
    int world;
    bool json; /* a line a batch, the tensors that TRL makes: padded, with attention_mask or, in flat batches, without */
    int64_t pad_to_multiple_of;
};
int trl_show_batches(FILE *out, const struct trl_show_batches *o, struct trl_err *err);

#endif
