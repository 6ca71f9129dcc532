/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TRL_TESTS_MODEL_TEST_H
#define TRL_TESTS_MODEL_TEST_H
/* A golden model with its backend, golden tensors as float arrays, and micro-batches from padded id
 * matrices. */
#include "../trl-test.h"

#include "model/internal.h"
#include "model/safetensors.h"

extern const char *const model_test_names[]; /* float32 golden models, NULL at the end */

struct model_test {
    struct trl_backend *be;
    struct trl_model *m;
    struct trl_st_file gold;
};
/* compute and dtype as in trl_model_options; dtype NULL: float32 */
void model_test_open(struct model_test *t, const char *backend, const char *name, const char *dtype,
    enum trl_dtype compute, bool training, bool checkpointing);
void model_test_close(struct model_test *t);

/* A tensor of the golden file as float; caller frees with free(). NULL when absent. */
float *model_test_tensor(
    const struct model_test *t, const char *name, int64_t *ret_n, int64_t shape[4]);

/* Rows of a padded batch, pads left out. Indices of its tokens in the padded matrix are in `cell`.
 */
struct model_test_batch {
    struct trl_tokens tk;
    int32_t *ids, *positions, *targets, *cell;
    int64_t *doc_start;
    int64_t rows, cols;
};
/* prefix "batch_right" (with mask and positions) or "seq_a" (without) */
void model_test_batch_open(
    struct model_test_batch *b, const struct model_test *t, const char *prefix);
void model_test_batch_close(struct model_test_batch *b);

/* coef of a mean over `n` tokens: d_logp = -1/n */
struct model_test_mean {
    double n;
};
void model_test_mean_coef(void *ctx, const struct trl_head_chunk *chunk);
/* loss = mean NLL of the batch; runs forward, head, backward into zeroed gradients */
double model_test_step(struct model_test *t, const struct model_test_batch *b);

/* largest |a-b| over the largest |b| */
double model_test_rel(const float *a, const float *b, int64_t n);

#endif
