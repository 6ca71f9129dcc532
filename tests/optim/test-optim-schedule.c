/* SPDX-License-Identifier: Apache-2.0 */
/* Learning rates against transformers: recorded sequences, and the logs of real runs. */
#include "../trl-test.h"

#include <jansson.h>

#include "optim/schedule.h"

static json_t *load(const char *rel)
{
    json_error_t e;
    json_t *v = json_load_file(trl_test_data(rel), 0, &e);
    if (!v)
        fail_msg("%s: %s", rel, e.text);
    return v;
}

static double number(const json_t *o, const char *key)
{
    return json_number_value(json_object_get(o, key));
}

static void check_close(double got, double want, const char *what, size_t i)
{
    if (!(fabs(got - want) <= 1e-15 + 1e-13 * fabs(want)))
        fail_msg("%s, entry %zu: %.17g, expected %.17g", what, i, got, want);
}

static void test_recorded(void **state)
{
    (void)state;
    struct trl_err err;
    json_t *doc = load("optim/reference.json"), *c, *v;
    size_t i, k;
    json_array_foreach(json_object_get(doc, "schedules"), i, c)
    {
        struct trl_schedule s;
        const char *name = json_string_value(json_object_get(c, "name"));
        assert_trl_ok(trl_schedule_init(&s, name, json_object_get(c, "kwargs"), number(c, "lr"),
                          (int64_t)number(c, "warmup"), (int64_t)number(c, "total"), &err), &err);
        json_array_foreach(json_object_get(c, "values"), k, v)
            check_close(trl_schedule_lr(&s, (int64_t)k), json_number_value(v), name, k);
    }
    assert_true(i > 20);
    json_decref(doc);
}

static void test_metric(void **state)
{
    (void)state;
    struct trl_err err;
    json_t *doc = load("optim/reference.json"), *c, *v;
    size_t i, k;
    json_array_foreach(json_object_get(doc, "metric"), i, c)
    {
        struct trl_schedule s, fresh;
        const char *name = json_string_value(json_object_get(c, "name"));
        json_t *values = json_object_get(c, "values");
        assert_trl_ok(trl_schedule_init(&s, name, json_object_get(c, "kwargs"), number(c, "lr"), 5, 100, &err), &err);
        fresh = s;
        assert_true(trl_schedule_is_metric_driven(&s));
        check_close(trl_schedule_lr(&s, 0), json_number_value(json_array_get(values, 0)), name, 0);
        json_array_foreach(json_object_get(c, "metrics"), k, v)
        {
            trl_schedule_metric(&s, json_number_value(v));
            check_close(trl_schedule_lr(&s, 3), json_number_value(json_array_get(values, k + 1)), name, k + 1);
            /* a checkpoint after every step */
            json_t *st = trl_schedule_state(&s);
            assert_non_null(st);
            struct trl_schedule other = fresh;
            assert_trl_ok(trl_schedule_set_state(&other, st, &err), &err);
            json_decref(st);
            s = other;
        }
    }
    assert_int_equal(i, 7);
    json_decref(doc);
}

static void check_run(const char *name)
{
    struct trl_err err;
    struct trl_schedule s;
    char path[128], line[4096];
    snprintf(path, sizeof(path), "golden/sft/%s/result.json", name);
    json_t *doc = load(path), *opt = json_object_get(json_object_get(doc, "case"), "options");
    int64_t total = (int64_t)number(opt, "max_steps"), step = 0;
    assert_trl_ok(trl_schedule_init(&s, json_string_value(json_object_get(opt, "lr_scheduler_type")),
                      json_object_get(opt, "lr_scheduler_kwargs"), 1e-3,
                      trl_schedule_warmup_steps(number(opt, "warmup_steps"), total), total, &err), &err);
    json_decref(doc);
    snprintf(path, sizeof(path), "golden/sft/%s/steps.jsonl", name);
    FILE *f = fopen(trl_test_data(path), "r");
    assert_non_null(f);
    while (fgets(line, sizeof(line), f)) {
        json_t *row = json_loads(line, 0, NULL);
        assert_non_null(row);
        if (json_object_get(row, "learning_rate")) {
            check_close(trl_schedule_lr(&s, step), number(row, "learning_rate"), name, (size_t)step);
            step++;
        }
        json_decref(row);
    }
    fclose(f);
    assert_int_equal(step, total);
}

/* learning_rate of every step of the real runs */
static void test_golden(void **state)
{
    (void)state;
    static const char *const cases[] = {"lr-constant", "lr-constant-warmup", "lr-cosine-min-lr", "lr-cosine-min-lr-rate",
        "lr-cosine-restarts", "lr-cosine-w0", "lr-cosine-w4", "lr-cosine-warmup-min-lr", "lr-inverse-sqrt",
        "lr-inverse-sqrt-timescale", "lr-linear-ratio", "lr-linear-w3", "lr-polynomial", "lr-wsd", "lr-wsd-1-sqrt"};
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
        check_run(cases[i]);
}

static void test_warmup_steps(void **state)
{
    (void)state;
    assert_int_equal(trl_schedule_warmup_steps(0, 16), 0);
    assert_int_equal(trl_schedule_warmup_steps(0.2, 16), 4);
    assert_int_equal(trl_schedule_warmup_steps(0.25, 16), 4);
    assert_int_equal(trl_schedule_warmup_steps(1, 16), 1);
    assert_int_equal(trl_schedule_warmup_steps(3.7, 16), 3);
    assert_int_equal(trl_schedule_warmup_steps(100, 16), 100);
    assert_int_equal(trl_schedule_warmup_steps(NAN, 16), 0);
}

static void test_refused(void **state)
{
    (void)state;
    static const struct {
        const char *name, *kwargs, *text;
    } cases[] = {
        {"linea", "{}", "warmup_stable_decay"},
        {"", "{}", "is unknown"},
        {"linear", "{\"power\": 2}", "allowed: none"},
        {"cosine", "{\"min_lr\": 2}", "allowed: num_cycles"},
        {"cosine", "{\"num_cycles\": \"2\"}", "must be a finite number"},
        {"cosine", "[1]", "JSON object"},
        {"polynomial", "{\"lr_end\": 1}", "must be below learning_rate"},
        {"cosine_with_min_lr", "{}", "min_lr_rate"},
        {"cosine_with_min_lr", "{\"min_lr\": 1e-4, \"min_lr_rate\": 0.1}", "not both"},
        {"cosine_with_min_lr", "{\"min_lr\": 1e-4, \"warmup_lr_rate\": 0.1}", "unknown entry \"warmup_lr_rate\""},
        {"inverse_sqrt", "{\"timescale\": 0}", "above 0"},
        {"warmup_stable_decay", "{}", "num_decay_steps is needed"},
        {"warmup_stable_decay", "{\"num_decay_steps\": 2.5}", "whole number"},
        {"warmup_stable_decay", "{\"num_decay_steps\": 2, \"decay_type\": \"sqrt\"}", "\"linear\", \"cosine\" or \"1-sqrt\""},
        {"reduce_lr_on_plateau", "{\"factor\": 1.0}", "below 1"},
        {"reduce_lr_on_plateau", "{\"max_lr\": 1.0}", "unknown entry"},
        {"reduce_lr_on_plateau", "{\"mode\": \"mid\"}", "\"min\" or \"max\""},
        {"greedy", "{\"smooth\": true, \"window_size\": 100000}", "1024"},
        {"greedy", "{\"smooth\": 1}", "true or false"},
        {"greedy", "{\"patience\": -1}", "at least 0"},
    };
    struct trl_schedule s;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct trl_err err = {0};
        json_t *kw = json_loads(cases[i].kwargs, 0, NULL);
        assert_int_not_equal(trl_schedule_init(&s, cases[i].name, kw, 1e-3, 0, 10, &err), 0);
        if (!strstr(err.text, cases[i].text))
            fail_msg("%s %s: \"%s\" lacks \"%s\"", cases[i].name, cases[i].kwargs, err.text, cases[i].text);
        json_decref(kw);
    }
    assert_int_equal(trl_schedule_init(&s, "linear", NULL, NAN, 0, 10, NULL), TRL_E_RANGE);
    /* null leaves a default */
    json_t *kw = json_loads("{\"min_lr\": null, \"min_lr_rate\": 0.5}", 0, NULL);
    assert_int_equal(trl_schedule_init(&s, "cosine_with_min_lr", kw, 1e-3, 0, 10, NULL), 0);
    json_decref(kw);
}

static void test_bad_state(void **state)
{
    (void)state;
    struct trl_schedule s;
    struct trl_err err = {0};
    static const char *const bad[] = {"{}", "{\"lr\":1,\"best\":\"x\",\"window_sum\":0}",
        "{\"lr\":1,\"best\":1,\"window_sum\":0,\"n_bad\":0.5}",
        ("{\"lr\":1,\"best\":1,\"window_sum\":0,\"n_bad\":0,\"n_good\":0,\"cooldown_left\":0,\"warmup_left\":0,"
        "\"reset_left\":0,\"epoch\":0,\"window\":[1,2,3,4,5,6]}")};
    json_t *kw = json_loads("{\"smooth\": true, \"window_size\": 5}", 0, NULL);
    assert_trl_ok(trl_schedule_init(&s, "greedy", kw, 0.1, 0, 10, &err), &err);
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        json_t *st = json_loads(bad[i], 0, NULL);
        assert_non_null(st);
        assert_int_equal(trl_schedule_set_state(&s, st, &err), TRL_E_DATA);
        json_decref(st);
    }
    assert_int_equal(trl_schedule_set_state(&s, NULL, &err), TRL_E_DATA);
    json_decref(kw);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_recorded),
        cmocka_unit_test(test_metric),
        cmocka_unit_test(test_golden),
        cmocka_unit_test(test_warmup_steps),
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_bad_state),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
