/* SPDX-License-Identifier: Apache-2.0 */
/* Configurations that no golden model has (values of transformers in variants.json), NEFTune noise
 * and dropout. */
#include "model-test.h"

#include <jansson.h>
#include <unistd.h>

#include "base/alloc.h"

static struct trl_backend *be;

static int open_backend(void **state)
{
    struct trl_err err = {0};
    return trl_backend_open(&be, &(struct trl_backend_options){.name = "cpu"}, &err);
}
static int close_backend(void **state)
{
    trl_backend_close(be);
    return 0;
}

/* The golden model with other fields in its config.json: a temporary folder with a link to the
 * weights. */
static struct trl_model *load_edited(const char *model, json_t *edit, bool training)
{
    char dir[] = "/tmp/trl-variant-XXXXXX", from[1200], to[128], rel[128];
    struct trl_err err = {0};
    struct trl_model *m;
    assert_non_null(mkdtemp(dir));
    snprintf(rel, sizeof(rel), "golden/models/%s", model);
    const char *src = trl_test_data(rel);
    snprintf(from, sizeof(from), "%s/config.json", src);
    json_t *c = json_load_file(from, 0, NULL), *v;
    const char *key;
    assert_non_null(c);
    json_object_foreach(edit, key, v) json_is_null(v) ? json_object_del(c, key)
                                                      : json_object_set(c, key, v);
    snprintf(to, sizeof(to), "%s/config.json", dir);
    assert_int_equal(json_dump_file(c, to, 0), 0);
    json_decref(c);
    snprintf(from, sizeof(from), "%s/model.safetensors", src);
    snprintf(to, sizeof(to), "%s/model.safetensors", dir);
    assert_trl_ok(trl_file_copy(from, to, &err), &err);
    assert_trl_ok(
        trl_model_load(&m, be, &(struct trl_model_options){.path = dir, .seed = 11}, &err), &err);
    struct trl_model_capacity cap = {
        .max_tokens = 128, .max_docs = 4, .max_position = 128, .training = training};
    assert_trl_ok(trl_model_prepare(m, &cap, &err), &err);
    trl_rmtree(dir, NULL);
    return m;
}

static void variants(void **state)
{
    char path[1024];
    snprintf(path, sizeof(path), "%s/tests/model/variants.json", getenv("TRL_SOURCE_ROOT"));
    json_t *gold = json_load_file(path, 0, NULL), *c;
    assert_non_null(gold);
    const json_t *list = json_object_get(gold, "ids");
    int64_t n = (int64_t)json_array_size(list), start[2] = {0, n};
    int32_t ids[128], pos[128], targets[128];
    for (int i = 0; i < n; i++) {
        ids[i] = (int32_t)json_integer_value(json_array_get(list, (size_t)i));
        pos[i] = i;
        targets[i] = -1;
        if (i > 0)
            targets[i - 1] = ids[i];
    }
    struct trl_tokens tk = {
        .n = n, .n_docs = 1, .ids = ids, .positions = pos, .doc_start = start, .padded_length = n};
    size_t k;
    json_array_foreach(json_object_get(gold, "cases"), k, c)
    {
        struct trl_err err = {0};
        float logp[128];
        struct trl_model *m = load_edited(
            json_string_value(json_object_get(c, "model")), json_object_get(c, "config"), false);
        assert_trl_ok(trl_model_forward(m, &tk, false, &err), &err);
        assert_trl_ok(
            trl_model_head(m, &(struct trl_head_args){.targets = targets, .logp = logp}, &err),
            &err);
        for (int i = 0; i < n - 1; i++) {
            double w = json_number_value(json_array_get(json_object_get(c, "logprobs"), (size_t)i));
            if (!(fabs(logp[i] - w) < 1e-4))
                fail_msg(
                    "case %zu: log-probability %d is %g, transformers has %g", k, i, logp[i], w);
        }
        trl_model_free(m);
    }
    json_decref(gold);
}

/* Dynamic rope keeps the base of the longest sequence until a short one comes, and a resume knows
 * it. */
static void dynamic_memory(void **state)
{
    json_t *edit = json_pack("{s:n,s:f,s:i,s:{s:s,s:f}}", "rope_parameters", "rope_theta", 1e4,
        "max_position_embeddings", 16, "rope_scaling", "rope_type", "dynamic", "factor", 2.0);
    struct trl_err err = {0};
    struct trl_model *m = load_edited("tiny-llama", edit, false),
                     *other = load_edited("tiny-llama", edit, false);
    int32_t ids[128] = {0}, pos[128];
    for (int i = 0; i < 128; i++)
        pos[i] = i;
    static const int64_t length[] = {8, 40, 20, 60, 16, 15};
    static const double want[] = {16, 40, 40, 60, 60, 16};
    for (size_t i = 0; i < 6; i++) {
        struct trl_tokens tk = {.n = length[i],
            .n_docs = 1,
            .ids = ids,
            .positions = pos,
            .doc_start = (int64_t[]){0, length[i]}};
        assert_trl_ok(trl_model_forward(m, &tk, false, &err), &err);
        assert_true(m->rope_length[0] == want[i]);
        uint64_t words[TRL_MODEL_RNG_WORDS];
        trl_model_get_rng(m, words);
        trl_model_set_rng(other, words);
        assert_trl_ok(trl_model_forward(other, &tk, false, &err), &err);
        assert_memory_equal(m->buf.cos_table[0], other->buf.cos_table[0], 128 * 8 * sizeof(float));
    }
    trl_model_free(other);
    trl_model_free(m);
    json_decref(edit);
}

/* torch: manual_seed(42), zeros(3, 7, 64).uniform_(-1, 1)[2, 6, 60:] */
static void neftune(void **state)
{
    static const float want[] = {
        -0.23271584510803223f, -0.5054141283035278f, 0.14389681816101074f, 0.2647867202758789f};
    struct trl_model *m = load_edited("tiny-llama", NULL, true);
    struct trl_err err = {0};
    int32_t ids[21] = {0}, pos[21] = {0};
    int64_t h = m->cfg.hidden;
    const float *table = trl_param_at(m->params.weights, TRL_DTYPE_F32, &m->params.items[0]);
    /* full rows, and a short one in the middle: pads draw too */
    for (int64_t middle = 7; middle >= 3; middle -= 4) {
        int64_t start[] = {0, 7, 7 + middle, 14 + middle};
        struct trl_tokens tk = {.n = start[3],
            .n_docs = 3,
            .ids = ids,
            .positions = pos,
            .doc_start = start,
            .padded_length = 7};
        trl_model_set_neftune(m, sqrt(7.0 * (double)h), 42);
        assert_trl_ok(trl_model_forward(m, &tk, false, &err), &err);
        const float *x = m->buf.x[0];
        assert_trl_ok(trl_model_forward(m, &tk, true, &err), &err);
        for (int i = 0; i < 4; i++) {
            float noise = x[(tk.n - 1) * h + 60 + i] - table[60 + i];
            if (!(fabsf(noise - want[i]) < 1e-6f))
                fail_msg("noise %d is %.8f, torch has %.8f", i, noise, want[i]);
        }
    }
    /* off again: the plain table */
    trl_model_set_neftune(m, 0, 0);
    struct trl_tokens one = {.n = 1,
        .n_docs = 1,
        .ids = ids,
        .positions = pos,
        .doc_start = (int64_t[]){0, 1},
        .padded_length = 1};
    assert_trl_ok(trl_model_forward(m, &one, true, &err), &err);
    assert_memory_equal(m->buf.x[0], table, (size_t)h * sizeof(float));
    trl_model_free(m);
}

/* One loss of a small batch with what the model draws from its present state. */
static double loss_of(struct trl_model *m, bool train, bool backward)
{
    struct trl_err err = {0};
    int32_t ids[24], pos[24], targets[24];
    float logp[24];
    for (int i = 0; i < 24; i++) {
        ids[i] = 5 * i + 3;
        pos[i] = i % 12;
        targets[i] = i % 12 == 11 ? -1 : 5 * i + 8;
    }
    struct trl_tokens tk = {.n = 24,
        .n_docs = 2,
        .ids = ids,
        .positions = pos,
        .doc_start = (int64_t[]){0, 12, 24},
        .padded_length = 12};
    struct model_test_mean mean = {22};
    struct trl_head_args args = {.targets = targets,
        .logp = logp,
        .want_grad = train,
        .coef = model_test_mean_coef,
        .coef_ctx = &mean};
    assert_trl_ok(trl_model_forward(m, &tk, train, &err), &err);
    assert_trl_ok(trl_model_head(m, &args, &err), &err);
    if (backward) {
        assert_trl_ok(trl_model_zero_grads(m, &err), &err);
        assert_trl_ok(trl_model_head(m, &args, &err), &err);
        assert_trl_ok(trl_model_backward(m, NULL, NULL, &err), &err);
    }
    double loss = 0;
    for (int i = 0; i < 24; i++)
        loss -= logp[i] / 22.0;
    return loss;
}

/* Dropout: drawn again from the same state, off in evaluation, and its gradient is that of the
 * masked function. */
static void dropout(void **state)
{
    json_t *edit =
        json_pack("{s:f,s:f,s:f}", "embd_pdrop", 0.3, "resid_pdrop", 0.2, "attn_pdrop", 0.25);
    struct trl_model *m = load_edited("tiny-gpt2", edit, true),
                     *plain = load_edited("tiny-gpt2", NULL, true);
    uint64_t words[TRL_MODEL_RNG_WORDS];
    trl_model_get_rng(m, words);
    double a = loss_of(m, true, false), b = loss_of(m, true, false);
    assert_true(a != b);
    trl_model_set_rng(m, words);
    assert_true(loss_of(m, true, false) == a);
    assert_true(loss_of(m, false, false) == loss_of(plain, false, false));
    /* directional derivative along the gradient, the same masks each time */
    trl_model_set_rng(m, words);
    loss_of(m, true, true);
    double sq = 0;
    float *g = malloc((size_t)m->params.slab_elems * 4), *w = m->params.weights;
    memcpy(g, m->params.grads, (size_t)m->params.slab_elems * 4);
    for (int64_t i = 0; i < m->params.slab_elems; i++)
        sq += (double)g[i] * g[i];
    double l[2];
    const float step = 1e-3f;
    for (int k = 0; k < 2; k++) {
        struct trl_err err;
        float d = k ? -2 * step : step;
        for (int64_t i = 0; i < m->params.slab_elems; i++)
            w[i] += d * g[i];
        assert_trl_ok(trl_model_weights_changed(m, false, &err), &err);
        trl_model_set_rng(m, words);
        l[k] = loss_of(m, true, false);
    }
    double slope = (l[0] - l[1]) / (2 * (double)step);
    if (!(fabs(slope - sq) < 5e-3 * sq))
        fail_msg("slope along the gradient is %g, its square norm %g", slope, sq);
    free(g);
    trl_model_free(plain);
    trl_model_free(m);
    json_decref(edit);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(variants),
        cmocka_unit_test(dynamic_memory),
        cmocka_unit_test(neftune),
        cmocka_unit_test(dropout),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, open_backend, close_backend);
}
