/* SPDX-License-Identifier: Apache-2.0 */
#include "model-test.h"

#include <jansson.h>

const char *const model_test_names[] = {"tiny-llama", "tiny-llama3", "tiny-smollm", "tiny-mistral",
    "tiny-qwen2", "tiny-qwen3", "tiny-gpt2", "tiny-gemma2", "tiny-gemma3", NULL};

void model_test_open(struct model_test *t, const char *backend, const char *name, const char *dtype,
    enum trl_dtype compute, bool training, bool checkpointing)
{
    struct trl_err err = {0};
    char path[512];
    *t = (struct model_test){0};
    assert_trl_ok(
        trl_backend_open(&t->be, &(struct trl_backend_options){.name = backend}, &err), &err);
    snprintf(path, sizeof(path), "golden/models/%s", name);
    struct trl_model_options o = {.path = trl_test_data(path), .dtype = dtype, .compute = compute};
    assert_trl_ok(trl_model_load(&t->m, t->be, &o, &err), &err);
    struct trl_model_capacity cap = {.max_tokens = 160,
        .max_docs = 8,
        .max_position = 160,
        .training = training,
        .checkpointing = checkpointing};
    assert_trl_ok(trl_model_prepare(t->m, &cap, &err), &err);
    snprintf(path, sizeof(path), "golden/model-goldens/%s.safetensors", name);
    assert_trl_ok(trl_st_open(&t->gold, trl_test_data(path), &err), &err);
}

void model_test_close(struct model_test *t)
{
    trl_st_close(&t->gold);
    trl_model_free(t->m);
    trl_backend_close(t->be);
}

float *model_test_tensor(
    const struct model_test *t, const char *name, int64_t *ret_n, int64_t shape[4])
{
    const struct trl_st_tensor *s = trl_st_find(&t->gold, name);
    if (!s)
        return NULL;
    float *f = malloc(((size_t)s->numel + 1) * sizeof(float));
    const uint8_t *data = trl_st_data(&t->gold, s);
    enum trl_dtype type;
    for (int64_t i = 0; i < s->numel; i++) {
        int64_t v;
        if (trl_st_dtype_native(s->dtype, &type) == 0) {
            trl_dtype_convert(
                TRL_DTYPE_F32, &f[i], type, data + (size_t)i * trl_dtype_size(type), 1);
        } else {
            memcpy(&v, data + 8 * i, 8);
            f[i] = (float)v;
        }
    }
    if (ret_n)
        *ret_n = s->numel;
    for (int i = 0; shape && i < s->ndim && i < 4; i++)
        shape[i] = s->shape[i];
    return f;
}

void model_test_batch_open(
    struct model_test_batch *b, const struct model_test *t, const char *prefix)
{
    char name[128];
    int64_t n, shape[4];
    snprintf(name, sizeof(name), "%s.input_ids", prefix);
    float *ids = model_test_tensor(t, name, &n, shape);
    assert_non_null(ids);
    snprintf(name, sizeof(name), "%s.attention_mask", prefix);
    float *mask = model_test_tensor(t, name, NULL, NULL);
    snprintf(name, sizeof(name), "%s.position_ids", prefix);
    float *pos = model_test_tensor(t, name, NULL, NULL);
    *b = (struct model_test_batch){.rows = shape[0], .cols = shape[1]};
    b->ids = calloc((size_t)n, 4);
    b->positions = calloc((size_t)n, 4);
    b->targets = calloc((size_t)n, 4);
    b->cell = calloc((size_t)n, 4);
    b->doc_start = calloc((size_t)b->rows + 1, 8);
    int64_t k = 0;
    for (int64_t r = 0; r < b->rows; r++) {
        for (int64_t c = 0; c < b->cols; c++) {
            int64_t i = r * b->cols + c;
            if (mask && mask[i] == 0)
                continue;
            b->ids[k] = (int32_t)ids[i];
            b->positions[k] = pos ? (int32_t)pos[i] : (int32_t)c;
            b->targets[k] = -1;
            if (k > b->doc_start[r])
                b->targets[k - 1] = b->ids[k];
            b->cell[k++] = (int32_t)i;
        }
        b->doc_start[r + 1] = k;
    }
    b->tk = (struct trl_tokens){.n = k,
        .n_docs = b->rows,
        .ids = b->ids,
        .positions = b->positions,
        .doc_start = b->doc_start,
        .padded_length = b->cols};
    free(ids);
    free(mask);
    free(pos);
}

void model_test_batch_close(struct model_test_batch *b)
{
    free(b->ids);
    free(b->positions);
    free(b->targets);
    free(b->cell);
    free(b->doc_start);
}

void model_test_mean_coef(void *ctx, const struct trl_head_chunk *chunk)
{
    const struct model_test_mean *x = ctx;
    for (int64_t i = 0; i < chunk->count; i++)
        chunk->d_logp[i] = (float)(-1 / x->n);
}

double model_test_step(struct model_test *t, const struct model_test_batch *b)
{
    struct trl_err err = {0};
    float *logp = calloc((size_t)b->tk.n, sizeof(float));
    struct model_test_mean mean = {0};
    for (int64_t i = 0; i < b->tk.n; i++)
        mean.n += b->targets[i] >= 0;
    assert_trl_ok(trl_model_zero_grads(t->m, &err), &err);
    assert_trl_ok(trl_model_forward(t->m, &b->tk, true, &err), &err);
    struct trl_head_args args = {.targets = b->targets,
        .logp = logp,
        .want_grad = true,
        .coef = model_test_mean_coef,
        .coef_ctx = &mean};
    assert_trl_ok(trl_model_head(t->m, &args, &err), &err);
    assert_trl_ok(trl_model_backward(t->m, NULL, NULL, &err), &err);
    double loss = 0;
    for (int64_t i = 0; i < b->tk.n; i++)
        loss -= logp[i];
    free(logp);
    return loss / mean.n;
}

double model_test_rel(const float *a, const float *b, int64_t n)
{
    double worst = 0, scale = 1e-30;
    for (int64_t i = 0; i < n; i++) {
        double d = fabs((double)a[i] - b[i]);
        worst = d > worst || isnan(d) ? d : worst;
        scale = fabs((double)b[i]) > scale ? fabs((double)b[i]) : scale;
    }
    return worst / scale;
}
