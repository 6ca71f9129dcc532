/* SPDX-License-Identifier: Apache-2.0 */
/* The YAML reader: scalars as PyYAML's safe_load resolves them
 * (tests/data/config/yaml-scalars.jsonl), structure, errors with positions. */
#include "../trl-test.h"

#include "base/alloc.h"
#include "base/fileio.h"
#include "config/yaml.h"

static const char *const kind_names[] = {
    "null", "bool", "int", "float", "str", "time", "list", "map"};

static void check_scalar(const char *text, const char *kind, const json_t *value)
{
    struct trl_yaml_scalar s;
    enum trl_yaml_kind k = trl_yaml_resolve(text, &s);
    if (strcmp(kind_names[k], kind))
        fail_msg("%s is %s instead of %s", text, kind_names[k], kind);
    if (k == TRL_YAML_BOOL && (s.i != 0) != json_is_true(value))
        fail_msg("%s: wrong value", text);
    if (k == TRL_YAML_INT) {
        char buf[64];
        snprintf(buf, sizeof(buf), "%lld", s.i);
        if (strcmp(buf, json_string_value(value)) && !s.big)
            fail_msg("%s is %s instead of %s", text, buf, json_string_value(value));
        assert_true(fabs(s.f - strtod(json_string_value(value), NULL)) <= 1e-15 * fabs(s.f));
    }
    if (k == TRL_YAML_FLOAT) {
        double want = strtod(json_string_value(value), NULL);
        if (isnan(want) ? !isnan(s.f) : s.f != want)
            fail_msg("%s is %.17g instead of %s", text, s.f, json_string_value(value));
    }
}

static void test_scalars(void **state)
{
    (void)state;
    struct trl_err err;
    char *text;
    size_t len, n = 0;
    assert_trl_ok(
        trl_file_read(trl_test_data("config/yaml-scalars.jsonl"), 1 << 20, &text, &len, &err),
        &err);
    for (char *p = text; *p;) {
        char *nl = strchr(p, '\n');
        assert_non_null(nl);
        json_t *row = json_loadb(p, (size_t)(nl - p), 0, NULL);
        assert_non_null(row);
        check_scalar(json_string_value(json_object_get(row, "text")),
            json_string_value(json_object_get(row, "kind")), json_object_get(row, "value"));
        json_decref(row);
        p = nl + 1;
        n++;
    }
    assert_true(n > 100);
    trl_free(text);
}

/* Text and what it is as JSON. */
static void test_structures(void **state)
{
    (void)state;
    static const struct {
        const char *yaml, *json;
    } cases[] = {
        {"", NULL},
        {"# only a comment\n", NULL},
        {"a: 1\nb: [x, 'y', \"z\\n\", 2.5, null, ~]\n",
            "{\"a\":1,\"b\":[\"x\",\"y\",\"z\\n\",2.5,null,null]}"},
        {"a:\n  - path: p\n    fraction: 0.5\n  - {path: q}\n",
            "{\"a\":[{\"path\":\"p\",\"fraction\":0.5},{\"path\":\"q\"}]}"},
        {"- 1\n- - 2\n", "[1,[2]]"},
        {"on: 1\n2: b\n~: c\n", "{\"on\":1,\"2\":\"b\",\"~\":\"c\"}"},
        {"a: &x {b: 1}\nc: *x\n", "{\"a\":{\"b\":1},\"c\":{\"b\":1}}"},
        {"a: &x {b: 1, c: 2}\nd: {<<: *x, c: 3}\n",
            "{\"a\":{\"b\":1,\"c\":2},\"d\":{\"b\":1,\"c\":3}}"},
        {"d: &d {k: 1}\ne: &e {k: 2, l: 3}\nf: {<<: [*d, *e]}\n",
            "{\"d\":{\"k\":1},\"e\":{\"k\":2,\"l\":3},\"f\":{\"k\":1,\"l\":3}}"},
        {"base: &b {k: 1, base: 2}\n<<: *b\n", "{\"base\":{\"k\":1,\"base\":2},\"k\":1}"},
        {"a: !!str 5\nb: !!float 5\nc: !!int '7'\nd: ! yes\n",
            "{\"a\":\"5\",\"b\":5.0,\"c\":7,\"d\":\"yes\"}"},
        {"a: |\n  x\n  y\nb: >\n  x\n  y\n", "{\"a\":\"x\\ny\\n\",\"b\":\"x y\\n\"}"},
        {"a: {min: 1e-5, n: 1e3, q: '1e-5', s: 1e, t: -2E+1}\nb: 1e-5\n",
            "{\"a\":{\"min\":1e-5,\"n\":1000.0,\"q\":\"1e-5\",\"s\":\"1e\",\"t\":-20.0},\"b\":\"1e-"
            "5\"}"},
        {"\xef\xbb\xbf"
         "a: 1\r\nb: 2\r\n",
            "{\"a\":1,\"b\":2}"},
        {"---\na: 1\n...\n", "{\"a\":1}"},
        {"{\"a\": {\"b\": [1, true]}}", "{\"a\":{\"b\":[1,true]}}"},
        {"a: 99999999999999999999\nb: [.inf]\n", "{\"a\":1e20,\"b\":[\".inf\"]}"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct trl_yaml y;
        struct trl_err err;
        json_t *want = cases[i].json ? json_loads(cases[i].json, 0, NULL) : NULL;
        assert_trl_ok(
            trl_yaml_parse(&y, cases[i].yaml, strlen(cases[i].yaml), "t.yaml", &err), &err);
        if (!(y.root == want || json_equal(y.root, want))) {
            struct trl_str s = {0};
            trl_yaml_put_json(&s, y.root);
            fail_msg("%s gives %s", cases[i].yaml, trl_str_get(&s));
        }
        json_decref(want);
        trl_yaml_release(&y);
    }
}

static void test_entries(void **state)
{
    (void)state;
    static const char text[] = "a: 1\n# x\nb:   1.0\n\nc: {d: 1}\na: 017\ne: \"1.0\"\n";
    struct trl_yaml y;
    struct trl_err err;
    assert_trl_ok(trl_yaml_parse(&y, text, strlen(text), "t.yaml", &err), &err);
    assert_int_equal(y.n_top, 4);
    const struct trl_yaml_entry *a = trl_yaml_find(&y, "a"), *b = trl_yaml_find(&y, "b"),
                                *c = trl_yaml_find(&y, "c"), *e = trl_yaml_find(&y, "e");
    assert_int_equal(a->line, 6);
    assert_int_equal(json_integer_value(a->value), 15);
    assert_string_equal(a->raw, "017");
    assert_int_equal(b->line, 3);
    assert_string_equal(b->raw, "1.0");
    assert_int_equal(b->kind, TRL_YAML_FLOAT);
    assert_int_equal(c->line, 5);
    assert_null(c->raw);
    assert_int_equal(e->kind, TRL_YAML_STR);
    assert_null(trl_yaml_find(&y, "d"));
    assert_string_equal(trl_str_get(&y.warnings),
        "t.yaml:6: the key a is given twice; the last one counts (first in line 1)\n");
    trl_yaml_release(&y);
}

/* Malformed text and the beginning of its message. */
static void test_errors(void **state)
{
    (void)state;
    static const struct {
        const char *yaml, *text;
    } cases[] = {
        {"a: 1\n\tb: 2\n", "t.yaml:2:1: a tab in the indentation; YAML wants blanks there"},
        {"a:\n  b: 1\n\t c: 2\n", "t.yaml:3:1: a tab in the indentation"},
        {"a: @x\n", "t.yaml:1:4: syntax error: found character that cannot start any token"},
        {"a: b: c\n", "t.yaml:1:5: syntax error: mapping values are not allowed in this context"},
        {"a: [1, 2\nb: 3\n",
            "t.yaml:2:2: syntax error: did not find expected ',' or ']', while parsing a flow "
            "sequence which began in line 1"},
        {"a: 'x\n",
            "t.yaml:2:1: syntax error: found unexpected end of stream, while scanning a quoted "
            "scalar which began in line 1"},
        {"a: 1\n---\nb: 2\n", "t.yaml:2:1: a second document; one is wanted"},
        {"a: *x\n", "t.yaml:1:4: no anchor has this name: *x"},
        {"a: &x [*x]\n", "t.yaml:1:8: this alias lies inside what it stands for: *x"},
        {"a: !!python/object:os.system 1\n",
            "t.yaml:1:4: the tag tag:yaml.org,2002:python/object:os.system is not supported"},
        {"a: !!int x\n", "t.yaml:1:4: \"x\" is not a int, as its tag says"},
        {"a: !!set {x}\n", "t.yaml:1:4: this tag of a map is not supported"},
        {"? [a]\n: 1\n", "t.yaml:1:3: a list or a map cannot be a key"},
        {"<<: 3\n", "t.yaml:1:1: << wants a map or a list of maps"},
        {"a: \"x\\0y\"\n", "t.yaml:1:4: a text with a NUL character"},
        {"a: \xff\n", "t.yaml:1: byte 3 is not UTF-8"},
        {"a: \x01\n", "t.yaml: byte 3: control characters are not allowed"},
        {"a: 1\n b: 2\n",
            "t.yaml:2:3: syntax error: mapping values are not allowed in this context"},
        {"a: \"\\ud800\"\n", "t.yaml:1:"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct trl_yaml y;
        struct trl_err err = {0};
        int rc = trl_yaml_parse(&y, cases[i].yaml, strlen(cases[i].yaml), "t.yaml", &err);
        if (rc != TRL_E_PARSE || strncmp(err.text, cases[i].text, strlen(cases[i].text)))
            fail_msg("%s gives %d: %s", cases[i].yaml, rc, err.text);
    }
}

static int parse_str(struct trl_str *s, struct trl_err *err)
{
    struct trl_yaml y;
    int rc = trl_yaml_parse(&y, trl_str_get(s), s->len, "t.yaml", err);
    if (!rc)
        trl_yaml_release(&y);
    trl_str_release(s);
    return rc;
}

/* Depth, aliases that grow, aliases that nest, very many keys: bounded and quick. */
static void test_limits(void **state)
{
    (void)state;
    struct trl_str s = {0};
    struct trl_err err;
    for (int i = 0; i < 100; i++)
        trl_str_putc(&s, '[');
    assert_int_equal(parse_str(&s, &err), TRL_E_PARSE);
    assert_non_null(strstr(err.text, "nested deeper than 64 levels"));

    trl_str_puts(&s, "a0: &a0 [x,x,x,x,x,x,x,x,x]\n");
    for (int i = 1; i < 12; i++)
        trl_str_printf(&s, "a%d: &a%d [*a%d,*a%d,*a%d,*a%d,*a%d,*a%d,*a%d,*a%d,*a%d]\n", i, i,
            i - 1, i - 1, i - 1, i - 1, i - 1, i - 1, i - 1, i - 1, i - 1);
    assert_int_equal(parse_str(&s, &err), TRL_E_PARSE);
    assert_non_null(strstr(err.text, "more than 100000 values, aliases counted"));

    trl_str_puts(&s, "a0: &a0 [x]\n");
    for (int i = 1; i < 200; i++)
        trl_str_printf(&s, "a%d: &a%d [*a%d]\n", i, i, i - 1);
    assert_int_equal(parse_str(&s, &err), TRL_E_PARSE);
    assert_non_null(strstr(err.text, "nested deeper than 64 levels"));

    for (int i = 0; i < 2000; i++)
        trl_str_printf(&s, "- &a%d x\n", i);
    assert_int_equal(parse_str(&s, &err), TRL_E_PARSE);
    assert_non_null(strstr(err.text, "more than 1000 anchors"));

    for (int i = 0; i < 60000; i++)
        trl_str_printf(&s, "k%d: 1\n", i);
    assert_int_equal(parse_str(&s, &err), TRL_E_PARSE);
    assert_non_null(strstr(err.text, "more than 100000 values"));

    for (size_t i = 0; i <= TRL_YAML_MAX_BYTES; i++)
        trl_str_putc(&s, '#');
    assert_int_equal(parse_str(&s, &err), TRL_E_PARSE);
    assert_non_null(strstr(err.text, "a YAML file may have 1048576"));
}

/* Every prefix of a rich document parses or fails, without harm. */
static void test_prefixes(void **state)
{
    (void)state;
    static const char text[] = "a: &x {b: [1, 'q', \"w\\u00e9\"], c: !!str 5}\nd: {<<: *x, e: |\n  "
                               "text\n  }\nf:\n- x: 1\n  y: 2\n# end\n";
    for (size_t n = 0; n <= strlen(text); n++) {
        struct trl_yaml y;
        struct trl_err err;
        if (!trl_yaml_parse(&y, text, n, "t.yaml", &err))
            trl_yaml_release(&y);
        else
            assert_int_equal(strncmp(err.text, "t.yaml:", 7), 0);
    }
}

static void test_numbers_out(void **state)
{
    (void)state;
    static const double v[] = {
        1e-5, 1e16, 0.1, 1, -0.0, 2.5e-8, 1.7976931348623157e308, 5e-324, 123456789.25};
    for (size_t i = 0; i < sizeof(v) / sizeof(v[0]); i++) {
        struct trl_str s = {0};
        struct trl_yaml_scalar r;
        trl_yaml_put_double(&s, v[i]);
        assert_int_equal(trl_yaml_resolve(trl_str_get(&s), &r), TRL_YAML_FLOAT);
        assert_true(r.f == v[i]);
        trl_str_release(&s);
    }
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_scalars),
    cmocka_unit_test(test_structures),
    cmocka_unit_test(test_entries),
    cmocka_unit_test(test_errors),
    cmocka_unit_test(test_limits),
    cmocka_unit_test(test_prefixes),
    cmocka_unit_test(test_numbers_out),
};
TRL_TEST_MAIN(tests)
