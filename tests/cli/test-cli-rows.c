/* SPDX-License-Identifier: Apache-2.0 */
/* Rows: what the real `datasets` and SFTTrainer take is taken, what they refuse is refused with file, line, column and reason. */
#include "cli-run.h"

#include <fcntl.h>

#include "base/alloc.h"

struct malformed {
    const char *file;
    const char *where, *why; /* NULL: it trains */
};
static const struct malformed table[] = {
    {"array_file.json", NULL, NULL},
    {"bad_json_line4.jsonl", ":4:28: ", "ends inside a string"},
    {"big_integer.jsonl", NULL, NULL},
    {"blank_lines_between.jsonl", NULL, NULL},
    {"bom.jsonl", NULL, NULL},
    {"crlf.jsonl", NULL, NULL},
    {"duplicate_key.jsonl", ":1:19: ", "same key twice"},
    {"empty.jsonl", ": ", "no rows"},
    {"invalid_utf8_line2.jsonl", ":2:15: ", "not UTF-8"},
    {"list_instead_of_object.jsonl", ":1: ", "behind the list"},
    {"lone_surrogate_escape.jsonl", ":2:16: ", "surrogate"},
    {"messages_empty.jsonl", ":1: ", "empty list"},
    {"messages_no_assistant.jsonl", NULL, NULL},
    {"messages_no_role.jsonl", ":1: ", "no 'role'"},
    {"messages_null_content.jsonl", ":1: ", "line 4, column 3: 'dict object' has no attribute 'content'"},
    {"messages_string.jsonl", ":1: ", "is a string, not a list of messages"},
    {"messages_unknown_role.jsonl", NULL, NULL},
    {"missing_column.jsonl", ":3: ", "column 'text' is missing (the row has 'txt')"},
    {"mixed_types.jsonl", ":2: ", "a number, not a string"},
    {"nan_value.jsonl", NULL, NULL},
    {"no_final_newline.jsonl", NULL, NULL},
    {"nul_escape.jsonl", NULL, NULL},
    {"null_value.jsonl", ":2: ", "column 'text' is null"},
    {"only_newlines.jsonl", ": ", "no rows"},
    {"pc_missing_completion.jsonl", ":1: ", "column 'completion' is missing"},
    {"pc_mixed_kinds.jsonl", ":1: ", "'prompt' is a list and 'completion' is a string"},
    {"pref_identical.jsonl", ":1: ", "preference"},
    {"pref_missing_rejected.jsonl", ":1: ", "preference"},
    {"prompt_only_missing.jsonl", ":1: ", "column 'text' is missing (the row has 'question')"},
    {"scalar_line.jsonl", ":2: ", "not a number"},
    {"trailing_comma_line2.jsonl", ":2:24: ", "comma before the closing brace"},
    {"two_objects_one_line.jsonl", NULL, NULL},
    {"unpaired_label_null.jsonl", NULL, NULL}, /* the label is KTO's: SFT does not look at it */
    {"unpaired_label_string.jsonl", NULL, NULL},
    {"wrong_column_everywhere.jsonl", ":1: ", "column 'text' is missing (the row has 'body')"},
    {"wrong_type_number.jsonl", ":1: ", "a number, not a string"},
};
enum { N_TABLE = sizeof(table) / sizeof(table[0]) };

static const struct malformed *find(const char *file)
{
    for (int i = 0; i < N_TABLE; i++)
        if (strcmp(table[i].file, file) == 0)
            return &table[i];
    fail_msg("%s has no line in the table", file);
    return NULL;
}

static bool is_sft(const json_t *trainer)
{
    const char *name = json_string_value(json_object_get(trainer, "name"));
    return name && strcmp(name, "SFT") == 0;
}

static void test_malformed(void **state)
{
    (void)state;
    /* jansson has no NaN, and takes a NUL only on request */
    char *text = cli_read(cli_rows("malformed-results.json"), NULL);
    for (char *p = text; (p = strstr(p, ": NaN")) != NULL;)
        memcpy(p, ": 0  ", 5);
    json_error_t e;
    json_t *results = json_loads(text, JSON_ALLOW_NUL, &e);
    if (!results)
        fail_msg("%d: %s", e.line, e.text);
    trl_free(text);
    assert_int_equal(json_array_size(results), N_TABLE);
    size_t i;
    json_t *v;
    json_array_foreach(results, i, v)
    {
        const char *file = json_string_value(json_object_get(v, "file"));
        const struct malformed *m = find(file);
        const json_t *load = json_object_get(v, "load"), *trainer = json_object_get(v, "trainer");
        bool loads = json_is_true(json_object_get(load, "ok")), sft = is_sft(trainer);
        /* the table says what the real one did, where it was tried with SFT */
        if (!loads || sft)
            assert_int_equal(m->why == NULL, loads && json_is_true(json_object_get(trainer, "ok")));
        char name[128], where[192];
        snprintf(name, sizeof(name), "malformed/%s", file);
        snprintf(where, sizeof(where), "%s%s", file, m->where ? m->where : "");
        struct cli_line l;
        cli_begin(&l, cli_model("tiny-qwen2"), cli_rows(name));
        if (m->why) {
            cli_expect(&l, 2, where, m->why, NULL);
            assert_false(cli_exists(cli_path("out")));
        } else {
            cli_expect(&l, 0, NULL);
            assert_true(cli_exists(cli_path("out/model.safetensors")));
        }
    }
    json_decref(results);
}

struct text_case {
    const char *name, *text;
    int code;
    const char *where, *why;
};
static const struct text_case texts[] = {
    {"escape.jsonl", "{\"text\": \"a\"}\n{\"text\": \"a\\q\"}\n", 2, ":2:12: ", "an escape that JSON does not have"},
    {"hex.jsonl", "{\"text\": \"\\u12G4\"}\n", 2, ":1:11: ", "four hexadecimal digits"},
    {"open.jsonl", "{\"text\": \"a\"}\n{\"text\": \"a", 2, ":2:10: ", "not closed"},
    {"open-object.jsonl", "{\"text\": \"a\"\n", 2, ":1:1: ", "not closed"},
    {"bom-inside.jsonl", "{\"text\": \"a\"}\n\xef\xbb\xbf{\"text\": \"b\"}\n", 2, ":2:1: ", "expected a value"},
    {"overlong.jsonl", "{\"text\": \"\xc0\x80\"}\n", 2, ":1:11: ", "not UTF-8"},
    {"tab.jsonl", "{\"text\": \"a\tb\"}\n", 2, ":1:12: ", "control character"},
    {"utf16.jsonl", "\xff\xfe{", 2, ":1:1: ", "expected a value"},
    {"crlf.jsonl", "\xef\xbb\xbf{\"text\": \"a b c\"}\r\n\r\n{\"text\": \"d\"}", 0, NULL, NULL},
    {"ids.jsonl", "{\"input_ids\": [1, 2, 3]}\n{\"input_ids\": [1, 2, -1]}\n", 2, ":2: ", "entry 2 is not a whole number"},
    {"large.jsonl", "{\"input_ids\": [1, 2, 99999]}\n", 2, ":1: ", "id 99999, but the model's vocabulary has 720"},
    {"rows.txt", "hello\n", 2, "", "neither JSON Lines"},
    {"rows.parquet", "PAR1xxxxPAR1", 2, "", "convert it with"},
    {"rows.jsonl.gz", "\x1f\x8bxx", 2, "", "damaged"},
};

static void test_texts(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
        const struct text_case *t = &texts[i];
        const char *path = cli_path("%s", t->name);
        char where[128];
        cli_write_text(path, t->text);
        snprintf(where, sizeof(where), "%s%s", t->name, t->where ? t->where : "");
        struct cli_line l;
        cli_begin(&l, cli_model("tiny-qwen2"), path);
        if (t->code)
            cli_expect(&l, t->code, t->where ? where : t->name, t->why, NULL);
        else
            cli_expect(&l, 0, NULL);
    }
}

/* before + n times middle + after, as one file */
static const char *write_long(const char *name, const char *before, const char *middle, size_t n, const char *after)
{
    const char *path = cli_path("%s", name);
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fputs(before, f);
    for (size_t i = 0; i < n; i++)
        fputs(middle, f);
    fputs(after, f);
    assert_int_equal(fclose(f), 0);
    return path;
}

static void test_long(void **state)
{
    (void)state;
    struct cli_line l;
    cli_begin(&l, cli_model("tiny-qwen2"), write_long("deep.jsonl", "{\"text\": \"a\", \"x\": ", "[", 200000, ""));
    cli_expect(&l, 2, "deep.jsonl:1:", "nested deeper than 512 levels", NULL);
    cli_begin(&l, cli_model("tiny-qwen2"), write_long("deep.jsonl", "{\"text\": \"a\", \"x\": ", "{\"a\":", 200000, ""));
    cli_expect(&l, 2, "deep.jsonl:1:", "nested deeper than 512 levels", NULL);
    /* 100 MB of blanks in one line, and a row behind it */
    char blanks[1001];
    memset(blanks, ' ', 1000);
    blanks[1000] = '\0';
    cli_begin(&l, cli_model("tiny-qwen2"), write_long("wide.jsonl", "{\"text\": \"a\", ", blanks, 100000, "\"x\": 1}\n{\"text\": \"b\"}\n"));
    cli_expect(&l, 0, NULL);
    unlink(cli_path("wide.jsonl"));
    /* 2 MB of text in one row */
    cli_begin(&l, cli_model("tiny-qwen2"), write_long("wide.jsonl", "{\"text\": \"", "ab cd ", 350000, "\"}\n"));
    cli_add(&l, "--max_length", "32", NULL);
    cli_expect(&l, 0, NULL);
    /* a hole of 100 MB */
    const char *path = write_long("hole.jsonl", "{\"text\": \"", "", 0, "");
    assert_int_equal(truncate(path, 100 << 20), 0);
    cli_begin(&l, cli_model("tiny-qwen2"), path);
    cli_expect(&l, 2, "hole.jsonl:1:11: ", "control character", NULL);
}

static void test_nothing_left(void **state)
{
    (void)state;
    struct cli_line l;
    const char *path = cli_path("cut.jsonl");
    cli_write_text(path, "{\"prompt\": \"a prompt that goes on and on and on\", \"completion\": \" b\"}\n");
    cli_begin(&l, cli_model("tiny-qwen2"), path);
    cli_add(&l, "--max_length", "4", NULL);
    cli_expect(&l, 2, "none of the 1 rows", "max_length 4", NULL);
    cli_write_text(path, "{\"input_ids\": []}\n");
    cli_begin(&l, cli_model("tiny-qwen2"), path);
    cli_expect(&l, 2, "none of the 1 rows", NULL);
    cli_write_text(path, "{\"text\": \"a\"}\n");
    cli_begin(&l, cli_model("tiny-qwen2"), path);
    cli_add(&l, "--dataloader_drop_last", "true", "--per_device_train_batch_size", "4", NULL);
    cli_expect(&l, 2, "1 rows", "dataloader_drop_last", NULL);
    cli_begin(&l, cli_model("tiny-qwen2"), cli_path("none.jsonl"));
    cli_expect(&l, 2, "none.jsonl", "no such file", NULL);
    cli_begin(&l, cli_model("tiny-qwen2"), path);
    cli_add(&l, "--dataset_train_split", "nope", NULL);
    cli_expect(&l, 2, "no split 'nope'", "'train'", NULL);
    cli_begin(&l, cli_model("tiny-qwen2"), path);
    cli_add(&l, "--eval_strategy", "steps", NULL);
    cli_expect(&l, 2, "eval_strategy", "no split 'test'", NULL);
    assert_false(cli_exists(cli_path("out")));
}

static void test_skip_bad_rows(void **state)
{
    (void)state;
    struct cli_line l;
    cli_begin(&l, cli_model("tiny-qwen2"), cli_rows("malformed/missing_column.jsonl"));
    cli_add(&l, "--skip_bad_rows", "true", NULL);
    cli_expect(&l, 0, "missing_column.jsonl:3", "skip", NULL);
}

struct template_case {
    const char *text, *where, *why;
};
static const struct template_case templates[] = {
    {"{% for i in range(1000000000) %}x{% endfor %}", "line 1, column 18", "Range too big"},
    {"{% for i in range(100000) %}{% for j in range(100000) %}{% endfor %}{% endfor %}", "line 1, column 32", "loop iterations"},
    {"a\n{% macro m(x) %}{{ m(x) }}{% endmacro %}{{ m(1) }}", "line 2, column 21", "deeper than"},
    {"{{ messages[0].content", "line 1, column 23", "unexpected end of template"},
    {"{% if %}", "line 1, column 7", "expected an expression"},
    {"{{ raise_exception('roles must take turns') }}", "line 1", "roles must take turns"},
    {"{{ 'a' * 100000000000 }}", "line 1, column 8", "longer than"},
    {"{% include 'x' %}", "line 1, column 4", "'include' is not supported"},
};

static void test_templates(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(templates) / sizeof(templates[0]); i++) {
        const char *path = cli_path("chat.jinja");
        cli_write_text(path, templates[i].text);
        struct cli_line l;
        cli_begin(&l, cli_model("tiny-qwen2"), cli_rows("messages.jsonl"));
        cli_add(&l, "--chat_template_path", path, NULL);
        cli_expect(&l, 2, path, templates[i].where, templates[i].why, NULL);
        assert_false(cli_exists(cli_path("out")));
    }
    struct cli_line l;
    cli_begin(&l, cli_model("tiny-qwen2"), cli_rows("messages.jsonl"));
    cli_add(&l, "--chat_template_path", cli_path("none.jinja"), NULL);
    cli_expect(&l, 2, "chat_template_path", "none.jinja", NULL);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_malformed),
    cmocka_unit_test(test_texts),
    cmocka_unit_test(test_long),
    cmocka_unit_test(test_nothing_left),
    cmocka_unit_test(test_skip_bad_rows),
    cmocka_unit_test(test_templates),
};
CLI_TEST_MAIN(tests)
