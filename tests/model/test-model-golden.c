/* SPDX-License-Identifier: Apache-2.0 */
/* Logits, log-probabilities, loss and gradients of every family against what transformers computed.
 */
#include "model-test.h"

#include <jansson.h>

static const char *backend_name = "ref";
static const double LIMIT = 1e-4; /* relative to the tensor's largest value */

static void check(const char *model, const char *what, double rel, double limit)
{
    if (!(rel <= limit))
        fail_msg("%s on %s: %s is off by %.3g (limit %.3g)", model, backend_name, what, rel, limit);
}

static void check_logits(struct model_test *t, const char *model, const char *prefix)
{
    struct trl_err err = {0};
    struct model_test_batch b;
    char name[128];
    int64_t v = t->m->cfg.vocab, n;
    model_test_batch_open(&b, t, prefix);
    assert_trl_ok(trl_model_forward(t->m, &b.tk, false, &err), &err);
    float *logits = malloc((size_t)(b.tk.n * v) * sizeof(float));
    int32_t *all = malloc((size_t)b.tk.n * sizeof(int32_t));
    for (int64_t i = 0; i < b.tk.n; i++)
        all[i] = (int32_t)i;
    assert_trl_ok(trl_model_logits(t->m, all, b.tk.n, logits, &err), &err);
    snprintf(name, sizeof(name), "%s.logits", prefix);
    float *want = model_test_tensor(t, name, &n, NULL),
          *packed = malloc((size_t)(b.tk.n * v) * sizeof(float));
    for (int64_t i = 0; i < b.tk.n; i++)
        memcpy(packed + i * v, want + b.cell[i] * v, (size_t)v * sizeof(float));
    check(model, name, model_test_rel(logits, packed, b.tk.n * v), LIMIT);
    snprintf(name, sizeof(name), "%s.logprobs", prefix);
    float *logprobs = model_test_tensor(t, name, &n, NULL);
    if (logprobs) {
        float *logp = malloc((size_t)b.tk.n * sizeof(float));
        struct trl_head_args args = {.targets = b.targets, .logp = logp};
        assert_trl_ok(trl_model_head(t->m, &args, &err), &err);
        check(model, name, model_test_rel(logp, logprobs, n), LIMIT);
        free(logp);
    }
    free(logprobs);
    free(want);
    free(packed);
    free(all);
    free(logits);
    model_test_batch_close(&b);
}

/* sum, l2 and absmax of every gradient, full values of some */
static void check_grads(struct model_test *t, const char *model, const json_t *stats)
{
    const char *key;
    json_t *s;
    int k = 0;
    assert_int_equal(json_object_size(stats), t->m->params.n);
    json_object_foreach((json_t *)stats, key, s)
    {
        const struct trl_param *p = &t->m->params.items[k++];
        char what[256], name[256];
        assert_string_equal(p->name, key); /* named_parameters() order */
        const float *g = trl_param_at(t->m->params.grads, TRL_DTYPE_F32, p);
        double sum = 0, sq = 0, absmax = 0;
        for (int64_t i = 0; i < p->numel; i++) {
            sum += g[i];
            sq += (double)g[i] * g[i];
            absmax = fmax(absmax, fabs((double)g[i]));
        }
        double l2 = json_number_value(json_object_get(s, "l2"));
        snprintf(what, sizeof(what), "gradient of %s", key);
        /* a sum of n values cancels: its scale is that of the terms */
        double scale = l2 * sqrt((double)p->numel) + 1e-7;
        check(model, what, fabs(sum - json_number_value(json_object_get(s, "sum"))) / scale, LIMIT);
        check(model, what, fabs(sqrt(sq) - l2) / (l2 + 1e-7), LIMIT);
        double am = json_number_value(json_object_get(s, "absmax"));
        check(model, what, fabs(absmax - am) / (am + 1e-7), LIMIT);
        snprintf(name, sizeof(name), "grad.%s", key);
        float *want = model_test_tensor(t, name, NULL, NULL);
        if (want)
            check(model, name, model_test_rel(g, want, p->numel), LIMIT);
        free(want);
    }
}

static json_t *load_json(const char *model)
{
    char path[256];
    json_error_t je;
    snprintf(path, sizeof(path), "golden/model-goldens/%s.json", model);
    json_t *j = json_load_file(trl_test_data(path), 0, &je);
    if (!j)
        fail_msg("%s: %s", path, je.text);
    return j;
}

static void check_model(const char *model)
{
    struct model_test t;
    struct model_test_batch b;
    static const char *const prefixes[] = {"seq_a", "seq_b", "seq_c", "batch_right", "batch_left"};
    model_test_open(&t, backend_name, model, NULL, TRL_DTYPE_F32, true, false);
    for (int i = 0; i < 5; i++)
        check_logits(&t, model, prefixes[i]);
    json_t *j = load_json(model);
    model_test_batch_open(&b, &t, "batch_right");
    double loss = model_test_step(&t, &b), want = json_number_value(json_object_get(j, "loss"));
    check(model, "loss", fabs(loss - want) / want, 2e-6);
    check_grads(&t, model, json_object_get(j, "grad_stats"));
    model_test_batch_close(&b);
    json_decref(j);
    model_test_close(&t);
}

static void all_models(void **state)
{
    backend_name = *state;
    for (int i = 0; model_test_names[i]; i++)
        check_model(model_test_names[i]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        {"families on ref", all_models, NULL, NULL, "ref"},
        {"families on cpu", all_models, NULL, NULL, "cpu"},
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
