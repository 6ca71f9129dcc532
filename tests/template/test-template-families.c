/* SPDX-License-Identifier: Apache-2.0 */
/* Our templates in share/templates/chat against what the families' published templates, and TRL's
 * training variants, render: text and generation spans. And how a variant is found. */
#include "data/tpl-known.h"

#include "template-test.h"

static char share_dir[2048];

struct state {
    int failures;
    char file[64]; /* compiled now */
    struct trl_template *t;
};

static void open_file(struct state *s, const char *file)
{
    struct trl_err err = {0};
    char *path, *source;
    size_t len;
    if (strcmp(s->file, file) == 0)
        return;
    trl_template_free(s->t);
    s->t = NULL;
    snprintf(s->file, sizeof(s->file), "%s", file);
    assert_trl_ok(trl_template_find_shared(&path, file, &err), &err);
    assert_trl_ok(trl_file_read(path, 1 << 20, &source, &len, &err), &err);
    assert_trl_ok(trl_template_compile(&s->t, source, len, file, &err), &err);
    assert_true(trl_template_has_generation(s->t));
    trl_free(source);
    trl_free(path);
}

static bool same_spans(const json_t *want, const struct trl_spans *got)
{
    bool same = json_array_size(want) == got->len;
    for (size_t i = 0; same && i < got->len; i++) {
        const json_t *pair = json_array_get(want, i);
        same = (size_t)json_integer_value(json_array_get(pair, 0)) == got->begin[i] &&
            (size_t)json_integer_value(json_array_get(pair, 1)) == got->end[i];
    }
    return same;
}

static void check_line(void *ctx, json_t *line, int number)
{
    struct state *s = ctx;
    struct trl_str out = {0};
    struct trl_spans spans = {0};
    struct trl_err err = {0};
    const json_t *want = json_object_get(line, "out"), *want_spans = json_object_get(line, "spans");
    open_file(s, json_string_value(json_object_get(line, "file")));
    int rc = trl_template_render(s->t, json_object_get(line, "vars"), &out, &spans, &err);
    bool ok = want ? rc == 0 && strcmp(trl_str_get(&out), json_string_value(want)) == 0 : rc != 0;
    if (ok && want_spans)
        ok = same_spans(want_spans, &spans);
    if (!ok) {
        print_error("line %d, %s:\n  want %s\n  got  %s\n", number, s->file,
            want ? json_string_value(want) : "an error", rc ? err.text : trl_str_get(&out));
        s->failures++;
    }
    trl_str_release(&out);
    trl_spans_release(&spans);
}

static void test_families(void **state)
{
    struct state s = {0};
    setenv("TRL_SHARE_DIR", share_dir, 1);
    assert_true(each_line(trl_test_data("template/families.jsonl"), check_line, &s) > 150);
    assert_int_equal(s.failures, 0);
    trl_template_free(s.t);
}

static void test_unknown(void **state)
{
    struct trl_err err = {0};
    char *source = NULL;
    assert_null(trl_template_training_variant(""));
    assert_null(trl_template_training_variant("{{ messages }}"));
    assert_int_equal(trl_template_training_source(&source, "{{ messages }}", &err), TRL_E_USAGE);
    assert_non_null(strstr(err.text, "not training-compatible"));
    assert_non_null(strstr(err.text, "chat_template_path"));
    assert_null(source);
}

static void test_find(void **state)
{
    struct trl_err err = {0};
    char *path = NULL;
    setenv("TRL_SHARE_DIR", share_dir, 1);
    assert_trl_ok(trl_template_find_shared(&path, "llama3.jinja", &err), &err);
    assert_true(trl_starts_with(path, share_dir));
    trl_free(path);
    path = NULL;
    assert_int_equal(trl_template_find_shared(&path, "none.jinja", &err), TRL_E_NOENT);
    assert_non_null(strstr(err.text, "none.jinja"));
    assert_int_equal(trl_template_find_shared(&path, "../x", &err), TRL_E_USAGE);
    assert_int_equal(trl_template_find_shared(&path, "", &err), TRL_E_USAGE);
    unsetenv("TRL_SHARE_DIR");
    assert_int_equal(trl_template_find_shared(&path, "none.jinja", &err), TRL_E_NOENT);
    assert_null(path);
}

int main(void)
{
    const char *root = getenv("TRL_SOURCE_ROOT");
    snprintf(share_dir, sizeof(share_dir), "%s/share", root ? root : ".");
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_families),
        cmocka_unit_test(test_unknown),
        cmocka_unit_test(test_find),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
