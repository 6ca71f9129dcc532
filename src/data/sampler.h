/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TRL_DATA_SAMPLER_H
#define TRL_DATA_SAMPLER_H
/*
 * Which rows make which batch: TRL's own order. random: torch.randperm with seed (data_seed or seed) + epoch; sequential; group_by_length.
 * Batches of B rows are cut from the permutation; batch k goes to rank k mod W; the tail is completed by cycling from the start
 * (even_batches) unless drop_last. Seekable: any (epoch, micro-step, rank) is computed directly.
 * group_by_length: transformers draws from torch's global generator (seeded with `seed`, never data_seed), where every start of a
 * data loader, also one for an evaluation, takes two words; evaluation itself has a generator of its own (own_generator).
 */
#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "data/dataset.h"

enum trl_sampling { TRL_SAMPLING_RANDOM, TRL_SAMPLING_SEQUENTIAL, TRL_SAMPLING_GROUP_BY_LENGTH, TRL_SAMPLING_MAX_ };

struct trl_sampler_options {
    enum trl_sampling kind;
    uint64_t seed;
    int64_t batch_size; /* B, rows per rank and micro-step */
    int world;
    bool drop_last;
    int64_t group_window; /* group_by_length: B * gradient accumulation steps; mega-batches are min(n / (4 * it), 50) of it */
    bool own_generator;   /* group_by_length: each order is the first that a generator seeded with `seed` gives */
    int64_t (*evaluations)(const void *ctx, int64_t epoch); /* group_by_length: how many were started before this epoch; or NULL */
    const void *evaluations_ctx;
};
struct trl_sampler;
int trl_sampler_new(struct trl_sampler **ret, const struct trl_dataset *d, const struct trl_sampler_options *opt,
    struct trl_err *err);
void trl_sampler_free(struct trl_sampler *s);
int64_t trl_sampler_batches(const struct trl_sampler *s); /* micro-steps of an epoch, per rank */
int64_t trl_sampler_batch_size(const struct trl_sampler *s);
/* Rows of one micro-batch: rows[batch_size]; *ret_n may be smaller for a last batch that is not completed (one process). */
int trl_sampler_get(struct trl_sampler *s, int64_t epoch, int64_t micro_step, int rank, int64_t *rows, int64_t *ret_n,
    struct trl_err *err);

/* A collated micro-batch, without pads, ready for the model; buffers grow only when a larger batch comes (reserve first). */
struct trl_batch {
    int64_t n, n_docs, n_rows;
    int32_t *ids, *labels, *positions; /* [n]; labels unshifted, as TRL's collator leaves them (position-0 masking done) */
    int32_t *targets;                  /* [n]; shifted: the label token t predicts, or -100 */
    int64_t *doc_start;                /* [n_docs+1] for attention */
    int64_t *row_start;                /* [n_rows+1]: where each data set row begins */
    int64_t padded_len;                /* columns of TRL's padded tensor (pad_to_multiple_of included); flat: n incl. pad */
    int64_t n_items;                   /* labels after the shift that count (TRL's num_items_in_batch share) */
    int64_t n_labels;                  /* labels before the shift: that share for gpt2, whose class transformers takes for one
                                          that does not shift (its name has no "ForCausalLM") */
    int64_t n_input_tokens;            /* what TRL adds to num_tokens (attention mask sum; flat: positions incl. pad_to_multiple_of) */
    int64_t cap_tokens, cap_docs, cap_rows;
};
int trl_batch_reserve(struct trl_batch *b, int64_t tokens, int64_t docs, int64_t rows, struct trl_err *err);
int trl_batch_collate(struct trl_batch *b, const struct trl_dataset *d, const int64_t *rows, int64_t n_rows,
    int64_t pad_to_multiple_of, struct trl_err *err);
void trl_batch_release(struct trl_batch *b);
/* Upper bounds over all possible batches of n_rows rows (memory plan). */
void trl_batch_bound(const struct trl_dataset *d, int64_t n_rows, int64_t *ret_tokens, int64_t *ret_docs);

#endif
