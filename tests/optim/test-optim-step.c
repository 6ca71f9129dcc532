/* SPDX-License-Identifier: Apache-2.0 */
/* Optimisers, norm and clipping against torch's recorded steps, on each backend. */
#include "optim-fixture.h"

#include <jansson.h>

#include "base/alloc.h"

static void put(enum trl_dtype t, void *slab, const struct trl_param *p, const json_t *values, double scale)
{
    for (int64_t i = 0; i < p->numel; i++)
        trl_dtype_store(t, trl_param_at(slab, t, p), (size_t)i,
            (float)(json_number_value(json_array_get(values, (size_t)i)) * scale));
}

static void compare(enum trl_dtype t, void *slab, const struct trl_param *p, const json_t *values, double limit,
    const char *what, size_t step)
{
    for (int64_t i = 0; i < p->numel; i++) {
        double got = trl_dtype_load(t, trl_param_at(slab, t, p), (size_t)i);
        double want = json_number_value(json_array_get(values, (size_t)i));
        if (!(fabs(got - want) <= limit * (1 + fabs(want))))
            fail_msg("%s, step %zu, %s[%lld]: %.9g, expected %.9g", what, step, p->name, (long long)i, got, want);
    }
}

static json_t *load(void)
{
    json_t *doc = json_load_file(trl_test_data("optim/reference.json"), 0, NULL);
    assert_non_null(doc);
    return doc;
}

static double number(const json_t *o, const char *key)
{
    return json_number_value(json_object_get(o, key));
}

static struct trl_optim_config config_of(const json_t *c)
{
    json_t *betas = json_object_get(c, "betas");
    return (struct trl_optim_config){.name = json_string_value(json_object_get(c, "optim")),
        .args = json_string_value(json_object_get(c, "args")), .beta1 = json_number_value(json_array_get(betas, 0)),
        .beta2 = json_number_value(json_array_get(betas, 1)), .eps = number(c, "eps"),
        .weight_decay = number(c, "weight_decay"), .max_grad_norm = number(c, "clip")};
}

/* loss_scale: gradients come multiplied by it (fp16), the result must be the same */
static void run_case(const char *backend, const json_t *c, double loss_scale)
{
    struct trl_err err;
    struct fixture f;
    struct trl_optim *o;
    struct trl_optim_config cfg = config_of(c);
    enum trl_dtype t;
    size_t k;
    json_t *s;
    char what[96];
    assert_int_equal(trl_dtype_find(json_string_value(json_object_get(c, "dtype")), &t), 0);
    snprintf(what, sizeof(what), "%s %s %s", backend, cfg.name, trl_dtype_name(t));
    open_fixture(&f, backend, t, t == TRL_DTYPE_F32);
    put(t, f.params.weights, &f.items[0], json_object_get(c, "a"), 1);
    put(t, f.params.weights, &f.items[1], json_object_get(c, "b"), 1);
    assert_trl_ok(trl_optim_new(&o, f.be, &f.params, &cfg, &err), &err);
    uint64_t calls = 0; /* after the first step: the backend's work space grows when it is first used */
    json_array_foreach(json_object_get(c, "steps"), k, s)
    {
        calls = k == 1 ? trl_alloc_calls() : calls;
        /* bfloat16: exact for AdamW and Adafactor; torch's add(alpha) rounds alpha itself, so SGD and Lion may be an ulp off */
        bool loose = t == TRL_DTYPE_BF16 && (!strcmp(cfg.name, "sgd") || !strcmp(cfg.name, "lion_32bit"));
        double norm, want = number(s, "norm"), limit = loose ? 0.008 : 2e-6;
        put(t, f.params.grads, &f.items[0], json_object_get(s, "ga"), loss_scale);
        put(t, f.params.grads, &f.items[1], json_object_get(s, "gb"), loss_scale);
        assert_trl_ok(trl_optim_grad_norm(o, 1 / loss_scale, &norm, &err), &err);
        if (fabs(norm - want) > want * 1e-6)
            fail_msg("%s: norm %.9g, expected %.9g", what, norm, want);
        assert_trl_ok(trl_optim_step(o, number(s, "lr"), trl_optim_clip_coef(o, norm) / loss_scale, &err), &err);
        compare(t, f.params.weights, &f.items[0], json_object_get(s, "a"), limit, what, k);
        compare(t, f.params.weights, &f.items[1], json_object_get(s, "b"), limit, what, k);
    }
    if (k > 1)
        assert_int_equal(trl_alloc_calls(), calls);
    assert_int_equal(trl_optim_steps(o), (int)k);
    for (int i = 0; i < VEC; i++)
        assert_true(trl_dtype_load(t, trl_param_at(f.params.weights, t, &f.items[2]), (size_t)i) == 7);
    for (size_t i = ROWS * COLS; i < 64; i++) /* the gap */
        assert_true(trl_dtype_load(t, f.params.weights, i) == 0);
    for (int64_t i = 0; f.params.copy && i < f.items[0].numel; i++)
        assert_int_equal(((uint16_t *)f.params.copy)[i], trl_f32_to_bf16(((float *)f.params.weights)[i]));
    trl_optim_free(o);
    close_fixture(&f);
}

static void test_torch(void **state)
{
    (void)state;
    json_t *doc = load(), *c;
    size_t i;
    json_array_foreach(json_object_get(doc, "optim"), i, c)
    {
        run_case("ref", c, 1);
        run_case("cpu", c, 1);
    }
    assert_int_equal(i, 12);
    json_decref(doc);
}

static void test_loss_scale(void **state)
{
    (void)state;
    json_t *doc = load(), *c;
    size_t i;
    json_array_foreach(json_object_get(doc, "optim"), i, c)
    {
        if (!strcmp(json_string_value(json_object_get(c, "dtype")), "float32"))
            run_case("ref", c, 65536);
    }
    json_decref(doc);
}

/* p = 1, lr 0.1, wd 0.01, gradients 0.5, -0.25, 0.1 */
static void test_adamw_by_hand(void **state)
{
    (void)state;
    static const float grads[] = {0.5f, -0.25f, 0.1f};
    static const double want[] = {0.899000002, 0.871467299, 0.839071476};
    struct trl_err err;
    struct fixture f;
    struct trl_optim *o;
    struct trl_optim_config cfg = {.name = "adamw_torch", .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8, .weight_decay = 0.01};
    open_fixture(&f, "ref", TRL_DTYPE_F32, false);
    float *w = f.params.weights, *g = f.params.grads;
    w[0] = 1;
    assert_trl_ok(trl_optim_new(&o, f.be, &f.params, &cfg, &err), &err);
    for (int i = 0; i < 3; i++) {
        g[0] = grads[i];
        assert_trl_ok(trl_optim_step(o, 0.1, 1, &err), &err);
        assert_true(fabs(w[0] - want[i]) < 2e-7);
    }
    assert_true(trl_optim_clip_coef(o, 100) == 1); /* off */
    trl_optim_free(o);
    close_fixture(&f);
}

/* [3, 4] at 1 -> 0.2 less a little; NaN and Inf reach the caller */
static void test_clip(void **state)
{
    (void)state;
    struct trl_err err;
    struct fixture f;
    struct trl_optim *o;
    struct trl_optim_config cfg = {.name = "sgd", .max_grad_norm = 1};
    double norm;
    open_fixture(&f, "ref", TRL_DTYPE_F32, false);
    float *w = f.params.weights, *g = f.params.grads;
    g[0] = 3;
    g[64] = 4;
    assert_trl_ok(trl_optim_new(&o, f.be, &f.params, &cfg, &err), &err);
    assert_trl_ok(trl_optim_grad_norm(o, 1, &norm, &err), &err);
    assert_true(norm == 5);
    assert_trl_ok(trl_optim_step(o, 1, trl_optim_clip_coef(o, norm), &err), &err);
    assert_true(fabs(w[0] + 0.59999988) < 1e-7 && fabs(w[64] + 0.79999984) < 1e-7);
    assert_true(trl_optim_clip_coef(o, 0.5) == 1);
    g[1] = INFINITY;
    assert_trl_ok(trl_optim_grad_norm(o, 1, &norm, &err), &err);
    assert_true(isinf(norm));
    g[1] = NAN;
    assert_trl_ok(trl_optim_grad_norm(o, 1, &norm, &err), &err);
    assert_true(isnan(norm));
    trl_optim_free(o);
    close_fixture(&f);
}

static void test_plan(void **state)
{
    (void)state;
    static const char *const optims[] = {"adamw_torch", "sgd", "lion_32bit", "adafactor"};
    static const size_t want[] = {2 * SLAB * 4, 0, SLAB * 4, (ROWS + COLS + VEC + ROWS * COLS) * 4};
    struct trl_err err;
    struct fixture f;
    open_fixture(&f, "ref", TRL_DTYPE_F32, false);
    for (size_t i = 0; i < 4; i++) {
        struct trl_optim_config cfg = {.name = optims[i], .beta1 = 0.9, .beta2 = 0.999};
        size_t bytes = 1;
        assert_trl_ok(trl_optim_plan(&cfg, &f.params, &bytes, &err), &err);
        assert_int_equal(bytes, want[i]);
    }
    close_fixture(&f);
}

static void test_refused(void **state)
{
    (void)state;
    static const struct {
        const char *name, *args, *text;
        double beta1, eps;
    } cases[] = {
        {"adam", NULL, "adamw_torch_fused", 0.9, 1e-8},
        {"rmsprop", NULL, "rmsprop", 0.9, 1e-8},
        {"adamw_bnb_8bit", NULL, "bitsandbytes", 0.9, 1e-8},
        {"galore_adamw", NULL, "low-rank", 0.9, 1e-8},
        {"sgd", "momentum", "key=value", 0.9, 1e-8},
        {"sgd", "momentum=a", "must be a number", 0.9, 1e-8},
        {"sgd", "nesterov=true", "momentum above 0", 0.9, 1e-8},
        {"sgd", "momentum=0.9,nesterov=true,dampening=0.1", "dampening 0", 0.9, 1e-8},
        {"sgd", "momentum=-1", "at least 0", 0.9, 1e-8},
        {"adamw_torch", NULL, "adam_beta1", 1.0, 1e-8},
        {"adamw_torch", NULL, "adam_epsilon", 0.9, -1},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct trl_err err = {0};
        struct trl_optim_config cfg = {.name = cases[i].name, .args = cases[i].args, .beta1 = cases[i].beta1, .beta2 = 0.999,
            .eps = cases[i].eps};
        assert_int_not_equal(trl_optim_check(&cfg, &err), 0);
        if (!strstr(err.text, cases[i].text))
            fail_msg("%s: \"%s\" lacks \"%s\"", cases[i].name, err.text, cases[i].text);
    }
}

/* every name of the option's list is known: accepted or refused, never "unknown" */
static void test_names(void **state)
{
    (void)state;
    json_t *doc = json_load_file(trl_test_data("golden/cli-defaults.json"), 0, NULL), *v;
    size_t i;
    int ok = 0;
    json_array_foreach(json_object_get(doc, "optim"), i, v)
    {
        struct trl_err err = {0};
        struct trl_optim_config cfg = {.name = json_string_value(v), .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8};
        int rc = trl_optim_check(&cfg, &err);
        assert_true(rc == 0 || rc == TRL_E_UNSUPPORTED);
        ok += rc == 0;
    }
    assert_int_equal(ok, 6);
    json_decref(doc);
}

static void test_scaler(void **state)
{
    (void)state;
    struct trl_scaler s, other;
    struct trl_err err;
    trl_scaler_init(&s, true);
    assert_true(trl_scaler_get(&s) == 65536);
    trl_scaler_update(&s, true);
    assert_true(trl_scaler_get(&s) == 32768);
    for (int i = 0; i < 1999; i++)
        trl_scaler_update(&s, false);
    assert_true(trl_scaler_get(&s) == 32768);
    json_t *st = trl_scaler_state(&s);
    trl_scaler_init(&other, true);
    assert_trl_ok(trl_scaler_set_state(&other, st, &err), &err);
    trl_scaler_update(&other, false);
    assert_true(trl_scaler_get(&other) == 65536);
    json_object_set_new(st, "scale", json_real(-1));
    assert_int_equal(trl_scaler_set_state(&other, st, &err), TRL_E_DATA);
    json_decref(st);
    trl_scaler_init(&s, false);
    trl_scaler_update(&s, true);
    assert_true(trl_scaler_get(&s) == 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_torch),
        cmocka_unit_test(test_loss_scale),
        cmocka_unit_test(test_adamw_by_hand),
        cmocka_unit_test(test_clip),
        cmocka_unit_test(test_plan),
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_names),
        cmocka_unit_test(test_scaler),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
