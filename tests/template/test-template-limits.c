/* SPDX-License-Identifier: Apache-2.0 */
/* Hostile and broken templates end in an error that names template, line and column, quickly and
 * without a crash. */
#include "template-test.h"

static void expect_error(const char *source, const char *text)
{
    struct trl_str out = {0};
    struct trl_err err = {0};
    json_t *vars = json_pack("{s:[i,i,i]}", "l", 1, 2, 3);
    trl_str_puts(&out, "kept");
    int rc = render_source(source, strlen(source), vars, &out, NULL, &err);
    if (rc == 0 || !strstr(err.text, text) || !strstr(err.text, "template under test"))
        fail_msg("%.80s: want an error with \"%s\", got %d: %.300s", source, text, rc, err.text);
    assert_string_equal(trl_str_get(&out), "kept"); /* nothing half-written */
    json_decref(vars);
    trl_str_release(&out);
}

static void test_endless(void **state)
{
    expect_error("{% macro f() %}{{ f() }}{% endmacro %}\n {{ f() }}", "deeper than 200 levels");
    expect_error("{% macro f(n) %}{% call g(n) %}{% endcall %}{% endmacro %}"
                 "{% macro g(n) %}{{ f(n) }}{{ caller() }}{% endmacro %}{{ f(1) }}",
        "deeper than");
    expect_error("{% for x in l recursive %}{{ loop(l) }}{% endfor %}", "deeper than");
    expect_error("{% for a in range(100000) %}{% for b in range(100000) %}{% endfor %}{% endfor %}",
        "loop iterations");
    expect_error("{% for a in range(100000) if false %}{% endfor %}{% for a in range(10000) %}"
                 "{% for b in range(100000) if false %}{% endfor %}{% endfor %}",
        "loop iterations");
}

static void test_large(void **state)
{
    expect_error("{{ 'a' * 1000000000 }}", "longer than 64 MB");
    expect_error("{% set ns = namespace(x='ab') %}{% for i in range(60) %}{% set ns.x = ns.x + "
                 "ns.x %}{% endfor %}",
        "longer than 64 MB");
    expect_error("{% for i in range(1000) %}{{ 'a' * 1000000 }}{% endfor %}", "64 MB");
    expect_error("{% set ns = namespace(x=[1]) %}{% for i in range(60) %}{% set ns.x = ns.x + ns.x "
                 "%}{% endfor %}",
        "memory");
    expect_error("{{ [1] * 1000000000 }}", "too long");
    expect_error("{{ '%1000000000d' % 1 }}", "width");
    expect_error("{{ 'a'.center(1000000000) }}", "longer");
    expect_error("{{ range(1000000) }}", "Range too big");
    expect_error("{{ 'a' | replace('', 'a' * 60000000) }}", "longer");
    expect_error("{% set ns = namespace(x=[]) %}{% for i in range(1000) %}{% set ns.x = [ns.x] "
                 "%}{% endfor %}"
                 "{{ ns.x }}",
        "nested deeper");
    expect_error("{% set ns = namespace(x=[]) %}{% for i in range(1000) %}{% set ns.x = [ns.x] "
                 "%}{% endfor %}"
                 "{{ ns.x | tojson }}",
        "nested deeper");
}

static void test_numbers(void **state)
{
    expect_error("{{ 9223372036854775807 + 1 }}", "64 bits");
    expect_error("{{ -9223372036854775807 - 2 }}", "64 bits");
    expect_error("{{ 2 ** 64 }}", "64 bits");
    expect_error("{{ 3037000500 * 3037000500 }}", "64 bits");
    expect_error("{{ (-9223372036854775807 - 1) // -1 }}", "64 bits");
    expect_error("{{ -(-9223372036854775807 - 1) }}", "64 bits");
    expect_error("{{ 99999999999999999999 }}", "64 bits");
    expect_error("{{ '99999999999999999999' | int }}", "64 bits");
    expect_error("{{ 1e30 | int }}", "64 bits");
}

/* begin, n times the middle, end */
static void expect_deep(const char *begin, const char *middle, int n, const char *end)
{
    struct trl_str s = {0};
    trl_str_puts(&s, begin);
    for (int i = 0; i < n; i++)
        trl_str_puts(&s, middle);
    trl_str_puts(&s, end);
    struct trl_str out = {0};
    struct trl_err err = {0};
    json_t *vars = json_object();
    int rc = render_source(trl_str_get(&s), s.len, vars, &out, NULL, &err);
    if (rc == 0 || !strstr(err.text, "line 1, column "))
        fail_msg("%s%s...: %d: %.200s", begin, middle, rc, err.text);
    json_decref(vars);
    trl_str_release(&s);
    trl_str_release(&out);
}

static void test_deep_source(void **state)
{
    expect_deep("{{ ", "(", 100000, "");
    expect_deep("{{ ", "[", 100000, "");
    expect_deep("{{ ", "{1:", 100000, "");
    expect_deep("{{ ", "-", 100000, "1 }}");
    expect_deep("{{ ", "not ", 100000, "1 }}");
    expect_deep("{{ 1", "+1", 100000, " }}");
    expect_deep("{{ 1", "**1", 100000, " }}");
    expect_deep("{{ 1", " and 1", 100000, " }}");
    expect_deep("{{ 1", "|abs", 100000, " }}");
    expect_deep("{{ x", ".a", 100000, " }}");
    expect_deep("{{ x", "()", 100000, " }}");
    expect_deep("{{ 1", " if 1 else 1", 100000, " }}");
    expect_deep("{{ 1", " if 1", 100000, " }}");
    expect_deep("", "{% if 1 %}", 100000, "");
    expect_deep("", "{% for x in [1] %}", 100000, "");
    expect_deep("{% set ", "(", 100000, "");
}

static void test_locations(void **state)
{
    expect_error("a\nb {{ 1 }}\n  {{ u.x }}", "line 3, column 7: 'u' is undefined");
    expect_error("\u00e9\u00e9{{ u.x }}", "line 1, column 7: 'u' is undefined");
    expect_error("x\n\n{% if 1 %}\n", "line 3, column 4: the block 'if' is not closed");
    expect_error("x\n{{ l['a' }}", "line 2, column");
    expect_error("{{ raise_exception('no ' + 'good') }}", "line 1, column 19: no good");
    expect_error("{% include 'x' %}", "'include' is not supported");
    expect_error("{{ '\\N{DASH}' }}", "not supported");
    expect_error("{% set x = 'abc'", "unexpected end of template");
}

static void test_bad_bytes(void **state)
{
    struct trl_template *t = NULL;
    struct trl_err err = {0};
    assert_int_equal(trl_template_compile(&t, "ab\xff", 3, "n", &err), TRL_E_PARSE);
    assert_non_null(strstr(err.text, "byte 2"));
    assert_null(t);
    /* a NUL byte is text outside tags and an error inside */
    assert_trl_ok(trl_template_compile(&t, "a\0b", 3, "n", &err), &err);
    struct trl_str out = {0};
    json_t *vars = json_object();
    assert_trl_ok(trl_template_render(t, vars, &out, NULL, &err), &err);
    assert_int_equal(out.len, 3);
    trl_template_free(t);
    t = NULL;
    assert_true(trl_template_compile(&t, "{{ 1\0 }}", 8, "n", &err) < 0);
    assert_true(trl_template_compile(&t, "{{ '\\\0' }}", 10, "n", &err) == 0);
    trl_template_free(t);
    trl_str_release(&out);
    json_decref(vars);
}

/* Every cut of a template that uses most constructs compiles or fails, and never crashes. */
static void test_cut(void **state)
{
    static const char source[] = "{%- set ns = namespace(a=[1,2], b={'k': 1.5e3}) -%}\n{#- c -#}{% "
                                 "macro m(x, y=2) %}{{ x ~ y }}{% endmacro %}"
                                 "{% for k, v in ns.b.items() if v is defined %}{{ loop.index }}{{ "
                                 "k[::-1] | upper }}{% else %}z{% endfor %}"
                                 "{% raw %}{{ }}{% endraw %}{% call m(*[1], y='q\\u00e9\\x41') "
                                 "%}{% endcall %}{{ 'a' if ns else \"b\" }}"
                                 "{% generation %}{{ -ns.a[0] ** 2 // 3 }}{% endgeneration %}{% "
                                 "set t %}x{% endset %}{{ t | tojson(indent=2) }}";
    json_t *vars = json_object();
    for (size_t n = 0; n <= strlen(source); n++) {
        struct trl_str out = {0};
        struct trl_err err = {0};
        char *copy = malloc(n ? n : 1); /* exact size, so that a read behind it is seen */
        assert_non_null(copy);
        memcpy(copy, source, n);
        int rc = render_source(copy, n, vars, &out, NULL, &err);
        assert_true(rc == 0 || err.text[0]);
        free(copy);
        trl_str_release(&out);
    }
    json_decref(vars);
}

static void test_append(void **state)
{
    struct trl_str out = {0};
    struct trl_spans spans = {0};
    struct trl_err err = {0};
    json_t *vars = json_object();
    const char *source = "ab{% generation %}cd{% endgeneration %}";
    trl_str_puts(&out, "xyz");
    assert_trl_ok(render_source(source, strlen(source), vars, &out, &spans, &err), &err);
    assert_string_equal(trl_str_get(&out), "xyzabcd");
    assert_int_equal(spans.len, 1);
    assert_int_equal(spans.begin[0], 2); /* of what this rendering appended */
    assert_int_equal(spans.end[0], 4);
    json_decref(vars);
    trl_str_release(&out);
    trl_spans_release(&spans);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_endless),
        cmocka_unit_test(test_large),
        cmocka_unit_test(test_numbers),
        cmocka_unit_test(test_deep_source),
        cmocka_unit_test(test_locations),
        cmocka_unit_test(test_bad_bytes),
        cmocka_unit_test(test_cut),
        cmocka_unit_test(test_append),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
