/* SPDX-License-Identifier: Apache-2.0 */
/* Some hundred small templates, written and random, against what transformers' own environment
 * (jinja2 3.1.6) makes of them: text, generation spans, and that errors are errors (with its text,
 * where ours is meant to be the same). */
#include "template-test.h"

struct state {
    json_t *vars;
    int failures;
};

static void check_spans(
    struct state *s, const char *source, const json_t *want, const struct trl_spans *got)
{
    bool same = json_array_size(want) == got->len;
    for (size_t i = 0; same && i < got->len; i++) {
        const json_t *pair = json_array_get(want, i);
        same = (size_t)json_integer_value(json_array_get(pair, 0)) == got->begin[i] &&
            (size_t)json_integer_value(json_array_get(pair, 1)) == got->end[i];
    }
    if (!same) {
        print_error("spans of %s differ\n", source);
        s->failures++;
    }
}

static void check_line(void *ctx, json_t *line, int number)
{
    struct state *s = ctx;
    if (number == 1) {
        s->vars = json_incref(json_object_get(line, "vars"));
        assert_non_null(s->vars);
        return;
    }
    const json_t *t = json_object_get(line, "t"), *out = json_object_get(line, "out");
    const char *error = json_string_value(json_object_get(line, "error"));
    struct trl_str got = {0};
    struct trl_spans spans = {0};
    struct trl_err err = {0};
    int rc =
        render_source(json_string_value(t), json_string_length(t), s->vars, &got, &spans, &err);
    if (out &&
        (rc != 0 || got.len != json_string_length(out) ||
            memcmp(trl_str_get(&got), json_string_value(out), got.len) != 0)) {
        print_error("line %d: %s\n  want: %s\n  got:  %s\n", number, json_string_value(t),
            json_string_value(out), rc != 0 ? err.text : trl_str_get(&got));
        s->failures++;
    } else if (!out &&
        (rc == 0 || !strstr(err.text, error) || !strstr(err.text, ", line ") ||
            !strstr(err.text, "template under test"))) {
        print_error("line %d: %s\n  want error: %s\n  got: %s\n", number, json_string_value(t),
            error, rc != 0 ? err.text : trl_str_get(&got));
        s->failures++;
    } else if (out) {
        check_spans(s, json_string_value(t), json_object_get(line, "spans"), &spans);
    }
    trl_str_release(&got);
    trl_spans_release(&spans);
}

static void test_vectors(void **state)
{
    struct state s = {0};
    int n = each_line(trl_test_data("template/vectors.jsonl"), check_line, &s);
    json_decref(s.vars);
    assert_true(n > 600);
    assert_int_equal(s.failures, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_vectors)};
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
