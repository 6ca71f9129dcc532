/* SPDX-License-Identifier: Apache-2.0 */
/* Files that the real `datasets` accepts or refuses, compression, CSV, chunk borders, skip_bad_rows. */
#include "rows-helpers.h"

#include <unistd.h>
#include <zlib.h>
#ifdef TRL_HAVE_ZSTD
#include <zstd.h>
#endif

#include "data/rows.h"

struct all {
    json_t *rows;
    bool skip;
    int64_t skipped, chunks;
};

static int keep(void *ctx, json_t *row, struct trl_err *err)
{
    struct all *a = ctx;
    (void)err;
    return json_array_append(a->rows, row);
}

static int read_path(const char *path, struct all *a, struct trl_err *err)
{
    struct trl_files files = {0};
    struct trl_reader *r = NULL;
    struct trl_chunk c = {0};
    a->rows = json_array();
    int rc = trl_files_find(&files, &(struct trl_files_spec){.path = path, .split = "train", .option = "dataset_name"}, err);
    if (rc == 0)
        rc = trl_reader_open(&r, &files, err);
    for (bool more = true; rc == 0 && more;) {
        rc = trl_reader_next(r, &c, &more, err);
        if (rc != 0 || !more)
            break;
        struct trl_rows_count n;
        rc = trl_chunk_parse(&c, a->skip, keep, a, &n, err);
        a->skipped += n.skipped;
        a->chunks++;
    }
    trl_chunk_release(&c);
    trl_reader_close(r);
    trl_files_release(&files);
    return rc;
}

static char *temporary(const char *suffix)
{
    static char path[64];
    snprintf(path, sizeof(path), "/tmp/trl-rows-XXXXXX%s", suffix);
    close(mkstemps(path, (int)strlen(suffix)));
    return path;
}

static char *file_of(const char *suffix, const char *text, size_t len)
{
    char *path = temporary(suffix);
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(text, 1, len, f), len);
    fclose(f);
    return path;
}

/* expect.h: null equals missing */
static void same_row(const json_t *got, const json_t *want, const char *file)
{
    const char *key;
    json_t *v;
    json_object_foreach ((json_t *)(uintptr_t)want, key, v) {
        const json_t *g = json_object_get(got, key);
        if (json_is_real(v) && isnan(json_real_value(v)))
            continue;
        if (json_is_null(v)) {
            assert_true(!g || json_is_null(g));
        } else if (json_is_real(v)) {
            if (!json_is_null(g) && fabs(json_number_value(g) - json_real_value(v)) > 1e-9 * fabs(json_real_value(v)))
                fail_msg("%s: %s", file, key);
        } else if (!json_equal(g, v)) {
            fail_msg("%s: %s is %s, not %s", file, key, json_dumps(g, JSON_ENCODE_ANY), json_dumps(v, JSON_ENCODE_ANY));
        }
    }
}

static void test_malformed_files(void **state)
{
    (void)state;
    json_t *results = read_malformed_results(), *c;
    size_t i, k;
    json_array_foreach (results, i, c) {
        const char *file = json_string_value(json_object_get(c, "file"));
        json_t *load = json_object_get(c, "load"), *want;
        char rel[256];
        struct all a = {0};
        struct trl_err err = {0};
        snprintf(rel, sizeof(rel), "golden/data/malformed/%s", file);
        int rc = read_path(trl_test_data(rel), &a, &err);
        bool ok = rc == 0 && json_array_size(a.rows) > 0; /* no rows at all: refused by the caller */
        if (ok != json_is_true(json_object_get(load, "ok")))
            fail_msg("%s: rc %d, %zu rows: %s", file, rc, json_array_size(a.rows), err.text);
        if (ok) {
            assert_int_equal(json_array_size(a.rows), json_integer_value(json_object_get(load, "rows")));
            json_array_foreach (json_object_get(load, "first_rows"), k, want)
                same_row(json_array_get(a.rows, k), want, file);
        } else if (rc != 0) {
            assert_non_null(strstr(err.text, file));
        }
        json_decref(a.rows);
    }
    json_decref(results);
}

static void expect_error(const char *suffix, const char *text, size_t len, int code, const char *where, const char *why)
{
    struct all a = {0};
    struct trl_err err = {0};
    char *path = file_of(suffix, text, len);
    int rc = read_path(path, &a, &err);
    unlink(path);
    if (rc != code || !strstr(err.text, where) || !strstr(err.text, why))
        fail_msg("%s: got %d %s, wanted %d %s %s", text, rc, err.text, code, where, why);
    json_decref(a.rows);
}
#define EXPECT(suffix, text, code, where, why) expect_error(suffix, text, sizeof(text) - 1, code, where, why)

static void test_error_places(void **state)
{
    (void)state;
    EXPECT(".jsonl", "{\"text\": \"a\"}\n{\"text\": \"b\",}\n", TRL_E_PARSE, ".jsonl:2:14:", "comma before");
    EXPECT(".jsonl", "{\"text\": \"\xc3\xa4\xff\"}\n", TRL_E_PARSE, ".jsonl:1:12:", "not UTF-8");
    EXPECT(".jsonl", "{\"a\": 1}\n\n{\"a\": \"x}\n{\"a\": 2}\n", TRL_E_PARSE, ".jsonl:3:10:", "line ends inside a string");
    EXPECT(".jsonl", "{\"a\": 1, \"a\": 2}", TRL_E_PARSE, ".jsonl:1:10:", "same key twice");
    EXPECT(".jsonl", "{\"a\": \"\\ud83d\"}", TRL_E_PARSE, ".jsonl:1:8:", "surrogate");
    EXPECT(".jsonl", "{\"a\": \"\\x\"}", TRL_E_PARSE, ".jsonl:1:8:", "escape");
    EXPECT(".jsonl", "{\"a\": 01}", TRL_E_PARSE, ":1:7:", "leading zeros");
    EXPECT(".jsonl", "{\"a\": 1e999}", TRL_E_PARSE, ":1:7:", "range");
    EXPECT(".jsonl", "{\"a\": tru}", TRL_E_PARSE, ":1:7:", "expected a value");
    EXPECT(".jsonl", "{\"a\": [1, 2}", TRL_E_PARSE, ":1:12:", "closing bracket");
    EXPECT(".jsonl", "{\"a\": 1", TRL_E_PARSE, ":1:1:", "not closed");
    EXPECT(".jsonl", "{'a': 1}", TRL_E_PARSE, ":1:2:", "double quotes");
    EXPECT(".jsonl", "{\"text\": \"a\"}\n42\n", TRL_E_DATA, ".jsonl:2:", "a number");
    EXPECT(".json", "[{\"a\": 1},]", TRL_E_PARSE, ":1:", "comma before");
    EXPECT(".json", "[{\"a\": 1}", TRL_E_PARSE, ":1:", "ends inside");
    EXPECT(".json", "[{\"a\": 1}] x", TRL_E_PARSE, ":1:", "text behind");
    EXPECT(".json", "[1, 2]", TRL_E_DATA, ":1:", "a number");
    EXPECT(".csv", "a,b\n1,2\n1,2,3\n", TRL_E_DATA, ".csv:3:", "3 fields");
    EXPECT(".csv", "a,b\n1,\"2\n", TRL_E_PARSE, ".csv:2:3:", "not closed");
    EXPECT(".bin", "\x01\x02\x03", TRL_E_UNSUPPORTED, ".bin", "neither");
    EXPECT(".parquet", "PAR1abcdPAR1", TRL_E_UNSUPPORTED, "Parquet", "read_parquet");
    EXPECT(".jsonl.bz2", "BZh91AY", TRL_E_UNSUPPORTED, "bzip2", "bunzip2");
    EXPECT(".jsonl.gz", "\x1f\x8b\x08\x00garbage....", TRL_E_PARSE, "damaged", ".gz");
    char deep[4096];
    size_t n = (size_t)snprintf(deep, sizeof(deep), "{\"a\": ");
    memset(deep + n, '[', 2000);
    expect_error(".jsonl", deep, n + 2000, TRL_E_PARSE, ":1:", "nested deeper");
}

static void test_skip_bad_rows(void **state)
{
    (void)state;
    static const char text[] = "{\"text\": \"a\"}\n{\"text\": \"b\",}\n{\"text\": \"c\"}\n{\"text\": \"d}\n[1]\n{\"text\": \"e\"}\n";
    struct all a = {.skip = true};
    struct trl_err err = {0};
    char *path = file_of(".jsonl", text, sizeof(text) - 1);
    assert_trl_ok(read_path(path, &a, &err), &err);
    assert_int_equal(json_array_size(a.rows), 3);
    assert_int_equal(a.skipped, 3);
    assert_non_null(strstr(err.text, ":2:14:")); /* the first one's text */
    unlink(path);
    json_decref(a.rows);
}

static void test_forms_of_json(void **state)
{
    (void)state;
    static const char *const texts[] = {
        "{\"text\":\"a\"}{\"text\":\"b\"}",
        "\n\n{\n  \"text\": \"a\"\n}\n\n{\n\"text\"\n:\"b\"}\n\n",
        "[{\"text\":\"a\"} , {\"text\":\"b\"}]\n",
        " [\"a\", \"b\"]",
        "\xef\xbb\xbf{\"text\":\"a\"}\r\n{\"text\":\"b\"}\r\n",
    };
    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
        struct all a = {0};
        struct trl_err err = {0};
        char *path = file_of(".json", texts[i], strlen(texts[i]));
        assert_trl_ok(read_path(path, &a, &err), &err);
        assert_int_equal(json_array_size(a.rows), 2);
        assert_string_equal(json_string_value(json_object_get(json_array_get(a.rows, 1), "text")), "b");
        unlink(path);
        json_decref(a.rows);
    }
    struct all a = {0};
    struct trl_err err = {0};
    char *path = file_of(".json", "[]", 2);
    assert_trl_ok(read_path(path, &a, &err), &err);
    assert_int_equal(json_array_size(a.rows), 0);
    unlink(path);
    json_decref(a.rows);
}

static void test_csv(void **state)
{
    (void)state;
    static const char text[] = "\xef\xbb\xbftext,n,text\r\n\"a, \"\"q\"\"\nline\",1,x\r\n\r\n  \r\nplain \"quote\",NA\r\n,2,\"\"";
    struct all a = {0};
    struct trl_err err = {0};
    char *path = file_of(".csv", text, sizeof(text) - 1);
    assert_trl_ok(read_path(path, &a, &err), &err);
    assert_int_equal(json_array_size(a.rows), 3);
    json_t *r = json_array_get(a.rows, 0);
    assert_string_equal(json_string_value(json_object_get(r, "text")), "a, \"q\"\nline");
    assert_string_equal(json_string_value(json_object_get(r, "text.1")), "x");
    r = json_array_get(a.rows, 1);
    assert_string_equal(json_string_value(json_object_get(r, "text")), "plain \"quote\"");
    assert_true(json_is_null(json_object_get(r, "n")));
    assert_true(json_is_null(json_object_get(r, "text.1")));
    assert_true(json_is_null(json_object_get(json_array_get(a.rows, 2), "text")));
    unlink(path);
    json_decref(a.rows);
}

/* 60000 rows, some of 600 KB: many chunks, in JSON Lines, an array, CSV, gzip in two members and zstd; all give the same rows. */
static struct trl_str many_rows(int form)
{
    struct trl_str s = {0};
    static char filler[600001];
    memset(filler, 'f', sizeof(filler) - 1);
    if (form == 2)
        trl_str_puts(&s, "text,i\n");
    if (form == 1)
        trl_str_puts(&s, "[");
    for (int i = 0; i < 60000; i++) {
        int fill = i % 20000 == 777 ? 600000 : 10;
        if (form == 2)
            trl_str_printf(&s, "\"row, %d\n%.*s\",%d\n", i, fill, filler, i);
        else
            trl_str_printf(&s, "%s{\"text\": \"row, %d\\n%.*s\", \"i\": \"%d\", \"x\": [{\"a\": \"]}\"}, {}]}%s",
                form == 1 && i ? ", " : "", i, fill, filler, i, form == 1 ? "" : "\n");
    }
    if (form == 1)
        trl_str_puts(&s, "]");
    assert_false(s.failed);
    return s;
}

static void check_many(const char *path)
{
    struct all a = {0};
    struct trl_err err = {0};
    assert_trl_ok(read_path(path, &a, &err), &err);
    assert_int_equal(json_array_size(a.rows), 60000);
    assert_true(a.chunks > 5);
    for (int i = 0; i < 60000; i++) {
        json_t *r = json_array_get(a.rows, (size_t)i);
        assert_int_equal(atoi(json_string_value(json_object_get(r, "i"))), i);
        assert_int_equal(json_string_length(json_object_get(r, "text")) > 600000, i % 20000 == 777);
    }
    json_decref(a.rows);
}

static void gzip_file(const char *path, const struct trl_str *s)
{
    size_t half = s->len / 2;
    for (int part = 0; part < 2; part++) {
        gzFile f = gzopen(path, part ? "ab1" : "wb1");
        assert_int_equal(gzwrite(f, s->data + (part ? half : 0), (unsigned)(part ? s->len - half : half)), part ? s->len - half : half);
        gzclose(f);
    }
}

static void test_chunks(void **state)
{
    (void)state;
    static const char *const suffix[] = {".jsonl", ".json", ".csv"};
    for (int form = 0; form < 3; form++) {
        struct trl_str s = many_rows(form);
        char *path = file_of(suffix[form], s.data, s.len);
        check_many(path);
        unlink(path);
        if (form == 0) {
            path = temporary(".jsonl.gz");
            gzip_file(path, &s);
            check_many(path);
            assert_int_equal(truncate(path, trl_file_size(path) - 20), 0);
            struct all a = {0};
            struct trl_err err = {0};
            assert_int_equal(read_path(path, &a, &err), TRL_E_PARSE);
            assert_non_null(strstr(err.text, "ends too early"));
            json_decref(a.rows);
            unlink(path);
#ifdef TRL_HAVE_ZSTD
            size_t cap = ZSTD_compressBound(s.len);
            char *z = trl_malloc(cap);
            size_t n = ZSTD_compress(z, cap, s.data, s.len, 1);
            path = file_of(".jsonl.zst", z, n);
            check_many(path);
            unlink(path);
            path = file_of(".jsonl.zst", z, n - 10);
            a = (struct all){0};
            assert_int_equal(read_path(path, &a, &err), TRL_E_PARSE);
            json_decref(a.rows);
            unlink(path);
            trl_free(z);
#endif
        }
        trl_str_release(&s);
    }
}

/* A line of 300 MB, from 300 KB of gzip. */
static void test_long_line(void **state)
{
    (void)state;
    static char part[1 << 20];
    memset(part, 'x', sizeof(part));
    char *path = temporary(".jsonl.gz");
    gzFile f = gzopen(path, "wb1");
    assert_int_equal(gzputs(f, "{\"text\": \"ok\"}\n{\"text\": \""), 25);
    for (int i = 0; i < 300; i++)
        assert_int_equal(gzwrite(f, part, sizeof(part)), sizeof(part));
    gzclose(f);
    struct all a = {0};
    struct trl_err err = {0};
    assert_int_equal(read_path(path, &a, &err), TRL_E_PARSE);
    assert_non_null(strstr(err.text, ".gz:2: a row of more than 256 MiB"));
    assert_int_equal(json_array_size(a.rows), 1);
    json_decref(a.rows);
    unlink(path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_malformed_files),
        cmocka_unit_test(test_error_places),
        cmocka_unit_test(test_skip_bad_rows),
        cmocka_unit_test(test_forms_of_json),
        cmocka_unit_test(test_csv),
        cmocka_unit_test(test_chunks),
        cmocka_unit_test(test_long_line),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
