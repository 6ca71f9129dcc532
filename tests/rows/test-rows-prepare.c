/* SPDX-License-Identifier: Apache-2.0 */
/* Small sets of rows as the real TRL prepared them (tests/data/rows/prepare.json), and what it does not say: errors, skipping,
 * threads, limits of the model, splits by test_split_size, --show_batches. */
#include "prepare-helpers.h"

#include <unistd.h>

#include "data/sampler.h"
#include "data/show-batches.h"

static char g_root[64];

static int setup(void **state)
{
    (void)state;
    strcpy(g_root, "/tmp/trl-prepare-XXXXXX");
    return mkdtemp(g_root) ? 0 : -1;
}

static int teardown(void **state)
{
    (void)state;
    struct trl_err err;
    return trl_rmtree(g_root, &err);
}

static const char *path_of(const char *set, const char *name)
{
    static char path[4][512];
    static int next;
    char *p = path[next++ % 4];
    snprintf(p, sizeof(path[0]), "%s/%s%s%s", g_root, set, *name ? "/" : "", name);
    return p;
}

static void write_text(const char *set, const char *name, const char *text, size_t len)
{
    struct trl_err err = {0};
    char dir[512];
    snprintf(dir, sizeof(dir), "%s", path_of(set, name));
    *strrchr(dir, '/') = '\0';
    assert_trl_ok(trl_mkdirs(dir, &err), &err);
    FILE *f = fopen(path_of(set, name), "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(text, 1, len, f), len);
    fclose(f);
}

static void write_rows(const char *set, const char *name, const json_t *rows)
{
    struct trl_str s = {0};
    size_t i;
    json_t *r;
    json_array_foreach (rows, i, r) {
        char *line = json_dumps(r, 0);
        trl_str_printf(&s, "%s\n", line);
        free(line);
    }
    write_text(set, name, trl_str_get(&s), s.len);
    trl_str_release(&s);
}

static void same_list(const char *name, const char *what, size_t row, const json_t *want, const int32_t *got, int64_t n)
{
    if ((int64_t)json_array_size(want) != n)
        fail_msg("%s: %s of row %zu: %lld entries, not %zu", name, what, row, (long long)n, json_array_size(want));
    for (int64_t i = 0; i < n; i++)
        if (json_integer_value(json_array_get(want, (size_t)i)) != got[i])
            fail_msg("%s: %s of row %zu differ at %lld: %d", name, what, row, (long long)i, got[i]);
}

static void same_rows(const char *name, const struct trl_dataset *d, const json_t *want)
{
    if (!json_is_array(want)) {
        assert_null(d);
        return;
    }
    assert_non_null(d);
    if ((size_t)trl_dataset_n_rows(d) != json_array_size(want))
        fail_msg("%s: %lld rows, not %zu", name, (long long)trl_dataset_n_rows(d), json_array_size(want));
    size_t i;
    json_t *w;
    json_array_foreach (want, i, w) {
        struct trl_row r;
        int32_t labels[256];
        trl_dataset_get_row(d, (int64_t)i, &r);
        assert_true(r.len <= 256);
        trl_dataset_copy_labels(d, (int64_t)i, labels);
        same_list(name, "ids", i, json_array_get(w, 0), r.ids, r.len);
        same_list(name, "labels", i, json_array_get(w, 1), labels, r.len);
        if (json_array_size(w) > 2)
            same_list(name, "seq_lengths", i, json_array_get(w, 2), r.doc_len, r.n_docs);
    }
}

/* Paths in a mixture are relative to the set's folder. */
static void absolute_paths(const char *set, json_t *datasets)
{
    size_t i;
    json_t *d;
    json_array_foreach (datasets, i, d) {
        static const char *const keys[] = {"path", "data_files"};
        for (int k = 0; k < 2; k++) {
            const char *v = json_string_value(json_object_get(d, keys[k]));
            if (v && strcmp(v, "json") != 0)
                json_object_set_new(d, keys[k], json_string(path_of(set, v)));
        }
    }
}

static void check_case(json_t *c)
{
    const char *name = json_string_value(json_object_get(c, "name")), *key;
    char *argv[32];
    int argc = 0;
    json_t *v;
    json_object_foreach (json_object_get(c, "files"), key, v)
        write_rows(name, key, v);
    json_t *options = json_object_get(c, "options");
    absolute_paths(name, json_object_get(options, "datasets"));
    argv[argc++] = trl_strdup("--model_name_or_path=none");
    argv[argc++] = trl_strdup("--use_cpu=true");
    if (!json_object_get(options, "datasets"))
        argv[argc++] = trl_asprintf("--dataset_name=%s", path_of(name, ""));
    json_object_foreach (options, key, v) {
        char *text = json_is_string(v) ? strdup(json_string_value(v)) : json_is_null(v) ? strdup("None") : json_dumps(v, JSON_ENCODE_ANY);
        argv[argc++] = trl_asprintf("--%s=%s", key, text);
        free(text);
    }
    struct prepared p;
    prepare_with(&p, json_string_value(json_object_get(c, "model")), argv, argc, 2, 0, 0);
    bool ok = !json_object_get(c, "error");
    if ((p.rc == 0) != ok)
        fail_msg("%s: rc %d %s", name, p.rc, p.err.text);
    if (ok) {
        same_rows(name, p.train, json_object_get(c, "train"));
        same_rows(name, p.eval, json_object_get(c, "eval"));
    } else if (strlen(p.err.text) < 20) {
        fail_msg("%s: %s", name, p.err.text);
    }
    prepared_release(&p);
    for (int i = 0; i < argc; i++)
        trl_free(argv[i]);
}

static void test_as_trl(void **state)
{
    (void)state;
    json_error_t e;
    json_t *all = json_load_file(trl_test_data("rows/prepare.json"), 0, &e), *c;
    size_t i;
    assert_non_null(all);
    json_array_foreach (all, i, c)
        if (!json_object_get(json_object_get(c, "options"), "dataset_kwargs")) /* the option table refuses it */
            check_case(c);
    assert_true(i > 50);
    json_decref(all);
}

#define WRITE(set, name, text) write_text(set, name, text, sizeof(text) - 1)

static void expect(struct prepared *p, int code, const char *a, const char *b)
{
    if (p->rc != code || !strstr(p->err.text, a) || !strstr(p->err.text, b))
        fail_msg("got %d %s; wanted %d with '%s' and '%s'", p->rc, p->err.text, code, a, b);
    prepared_release(p);
}

static void test_errors(void **state)
{
    (void)state;
    static const struct {
        const char *rows;
        int code;
        const char *a, *b;
    } cases[] = {
        {"{\"text\": \"a\"}\n{\"text\": null}\n", TRL_E_DATA, "x.jsonl:2:", "'text' is null"},
        {"{\"text\": 5}\n", TRL_E_DATA, "x.jsonl:1:", "is a number, not a string"},
        {"{\"txt\": \"a\"}\n", TRL_E_DATA, "'text' is missing (the row has 'txt')", "dataset_text_field"},
        {"{\"chosen\": \"a\", \"rejected\": \"b\"}\n", TRL_E_UNSUPPORTED, "preference", "dpo"},
        {"{\"prompt\": \"a\", \"chosen\": \"a\", \"rejected\": \"b\"}\n", TRL_E_UNSUPPORTED, "preference", "dpo"},
        {"{\"prompt\": \"a\"}\n", TRL_E_DATA, "'completion' is missing", "grpo"},
        {"{\"prompt\": \"a\", \"completions\": [\"b\"], \"labels\": [true]}\n", TRL_E_DATA, "'labels'", "input_ids"},
        {"{\"prompt\": \"a\", \"completions\": [\"b\"]}\n", TRL_E_UNSUPPORTED, "stepwise", "completion"},
        {"{\"completion\": \"a\"}\n", TRL_E_DATA, "'prompt' is missing", ""},
        {"{\"prompt\": \"a\", \"completion\": [{\"role\": \"assistant\", \"content\": \"b\"}]}\n", TRL_E_DATA, "a string", "a list"},
        {"{\"chosen_ids\": [1]}\n", TRL_E_UNSUPPORTED, "reward", ""},
        {"{\"text\": \"a\", \"image\": \"x.png\"}\n", TRL_E_UNSUPPORTED, "images", ""},
        {"{\"messages\": []}\n", TRL_E_DATA, "empty list", "messages"},
        {"{\"messages\": [3]}\n", TRL_E_DATA, "message 1", "a number"},
        {"{\"messages\": [{\"content\": \"a\"}]}\n", TRL_E_DATA, "no 'role'", ""},
        {"{\"messages\": [{\"role\": 1, \"content\": \"a\"}]}\n", TRL_E_DATA, "role of message 1", "a number"},
        {"{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}], \"tools\": \"[1\"}\n", TRL_E_DATA, "'tools'", "JSON"},
        {"{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}], \"tools\": {}}\n", TRL_E_DATA, "'tools'", "list"},
        {"{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}], \"chat_template_kwargs\": 1}\n", TRL_E_DATA, "chat_template_kwargs", "object"},
        {"{\"input_ids\": [1, -2]}\n", TRL_E_DATA, "'input_ids': entry 1", "whole number"},
        {"{\"input_ids\": [1, 2.5]}\n", TRL_E_DATA, "entry 1", ""},
        {"{\"input_ids\": \"1 2\"}\n", TRL_E_DATA, "not a list", ""},
        {"{\"input_ids\": [1, 2], \"labels\": [1]}\n", TRL_E_DATA, "'labels' has 1 entries, 'input_ids' 2", ""},
        {"{\"input_ids\": [1, 2], \"assistant_masks\": [1]}\n", TRL_E_DATA, "'assistant_masks' has 1", ""},
        {"{\"input_ids\": [1, 2], \"labels\": [1, -7]}\n", TRL_E_RANGE, "label 1", "-7"},
        {"", TRL_E_DATA, "no rows", "x.jsonl"},
        {"\n\n", TRL_E_DATA, "no rows", ""},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct prepared p;
        write_text("bad", "x.jsonl", cases[i].rows, strlen(cases[i].rows));
        PREPARE(&p, "tiny-qwen3", "--dataset_name", path_of("bad", "x.jsonl"));
        expect(&p, cases[i].code, cases[i].a, cases[i].b);
    }
}

static void test_bad_options(void **state)
{
    (void)state;
    struct prepared p;
    WRITE("opt", "train.jsonl", "{\"text\": \"a b c\"}\n{\"text\": \"d\"}\n{\"text\": \"e\"}\n");
    const char *folder = path_of("opt", "");
    PREPARE(&p, "tiny-qwen2", "--dataset_name=/nonexistent");
    expect(&p, TRL_E_NOENT, "/nonexistent", "no such");
    PREPARE(&p, "tiny-qwen2", "--dataset_name", folder, "--dataset_train_split=dev");
    expect(&p, TRL_E_NOENT, "'dev'", "'train'");
    PREPARE(&p, "tiny-qwen2", "--dataset_name", folder, "--eval_strategy=steps");
    expect(&p, TRL_E_NOENT, "no evaluation rows", "test_split_size");
    PREPARE(&p, "tiny-qwen2", "--dataset_name", folder, "--eval_strategy=steps", "--test_split_size=3");
    expect(&p, TRL_E_RANGE, "test_split_size 3 of 3 rows", "");
    PREPARE(&p, "tiny-qwen2", "--datasets=[{\"path\": \"/nonexistent\"}]");
    expect(&p, TRL_E_NOENT, "datasets", "/nonexistent");
    PREPARE(&p, "tiny-qwen2", "--dataset_name", folder, "--assistant_only_loss");
    expect(&p, TRL_E_USAGE, "assistant_only_loss", "conversations");
    WRITE("chat", "train.jsonl", "{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}]}\n");
    PREPARE(&p, "tiny-gemma2", "--dataset_name", path_of("chat", ""), "--assistant_only_loss");
    assert_int_equal(p.rc, TRL_E_USAGE);
    prepared_release(&p);
}

/* No assistant token in a row: the real trainer raises. */
static void test_assistant_only(void **state)
{
    (void)state;
    struct prepared p;
    WRITE("only", "train.jsonl", "{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}]}\n");
    PREPARE(&p, "tiny-smollm", "--dataset_name", path_of("only", ""), "--assistant_only_loss");
    expect(&p, TRL_E_DATA, "train.jsonl:1:", "no token of the row");
    WRITE("only", "train.jsonl", "{\"prompt\": [{\"role\": \"user\", \"content\": \"a\"}], \"completion\": [{\"role\": \"assistant\", "
                                 "\"content\": \"b c\"}]}\n");
    PREPARE(&p, "tiny-smollm", "--dataset_name", path_of("only", ""), "--assistant_only_loss", "--completion_only_loss=false");
    assert_int_equal(p.rc, 0);
    int32_t labels[64];
    struct trl_row r;
    trl_dataset_get_row(p.train, 0, &r);
    trl_dataset_copy_labels(p.train, 0, labels);
    assert_int_equal(labels[0], -100);
    int64_t n = 0;
    for (int64_t i = 0; i < r.len; i++)
        n += labels[i] != -100;
    assert_true(n >= 2 && n < 8);
    prepared_release(&p);
}

static void test_limits_of_the_model(void **state)
{
    (void)state;
    struct prepared p;
    WRITE("limit", "x.jsonl", "{\"input_ids\": [1, 2, 3, 4]}\n{\"input_ids\": [5, 6, 7]}\n");
    char *argv[] = {"--model_name_or_path=none", "--use_cpu=true", trl_asprintf("--dataset_name=%s", path_of("limit", "x.jsonl")),
        "--packing=true"};
    prepare_with(&p, "tiny-gpt2", argv, 3, 1, 7, 0);
    expect(&p, TRL_E_RANGE, "x.jsonl:2:", "id 7");
    prepare_with(&p, "tiny-gpt2", argv, 3, 1, 8, 3);
    expect(&p, TRL_E_RANGE, "training row 0 has 4 tokens", "3 learned positions");
    prepare_with(&p, "tiny-gpt2", argv, 3, 1, 8, 4);
    assert_int_equal(p.rc, 0);
    prepared_release(&p);
    prepare_with(&p, "tiny-gpt2", argv, 4, 1, 8, 4); /* packed: each document counts by itself */
    assert_int_equal(p.rc, 0);
    assert_int_equal(trl_dataset_n_rows(p.train), 1);
    prepared_release(&p);
    trl_free(argv[2]);
}

static void test_skip_bad_rows(void **state)
{
    (void)state;
    struct prepared p;
    WRITE("skip", "train.jsonl", "{\"text\": \"a\"}\n{\"text\": 3}\n{bad\n{\"text\": \"b\"}\n{\"messages\": []}\n");
    PREPARE(&p, "tiny-qwen3", "--dataset_name", path_of("skip", ""), "--skip_bad_rows");
    assert_int_equal(p.rc, 0);
    assert_int_equal(trl_dataset_n_rows(p.train), 2);
    prepared_release(&p);
    WRITE("skip", "train.jsonl", "{\"text\": 3}\n{bad\n");
    PREPARE(&p, "tiny-qwen3", "--dataset_name", path_of("skip", ""), "--skip_bad_rows");
    expect(&p, TRL_E_DATA, "all 2 rows are bad", "train.jsonl:1:");
}

/* test_split_size of a mixture and of a single file: the permutation's head is the test split. */
static void test_split(void **state)
{
    (void)state;
    struct trl_str s = {0};
    struct prepared p;
    for (int i = 0; i < 10; i++)
        trl_str_printf(&s, "{\"input_ids\": [%d, 1]}\n", i);
    write_text("split", "x.jsonl", s.data, s.len);
    trl_str_release(&s);
    /* numpy.random.default_rng(42).permutation(10) */
    static const int32_t order[10] = {5, 6, 0, 7, 3, 2, 4, 9, 1, 8};
    char *mixture = trl_asprintf("--datasets=[{\"path\": \"%s\"}]", path_of("split", "x.jsonl"));
    for (int form = 0; form < 2; form++) {
        if (form == 0)
            PREPARE(&p, "tiny-qwen2", mixture, "--test_split_size=0.25", "--eval_strategy=steps");
        else
            PREPARE(&p, "tiny-qwen2", "--dataset_name", path_of("split", "x.jsonl"), "--test_split_size=3", "--eval_strategy=steps");
        assert_trl_ok(p.rc, &p.err);
        assert_int_equal(trl_dataset_n_rows(p.eval), 3);
        assert_int_equal(trl_dataset_n_rows(p.train), 7);
        for (int64_t i = 0; i < 10; i++) {
            struct trl_row r;
            trl_dataset_get_row(i < 3 ? p.eval : p.train, i < 3 ? i : i - 3, &r);
            assert_int_equal(r.ids[0], order[i]);
        }
        prepared_release(&p);
    }
    PREPARE(&p, "tiny-qwen2", mixture, "--test_split_size=0.25"); /* TRL splits a mixture always */
    assert_int_equal(trl_dataset_n_rows(p.train), 7);
    assert_null(p.eval);
    prepared_release(&p);
    trl_free(mixture);
}

/* Many chunks: one thread and four give the same rows. */
static void test_threads(void **state)
{
    (void)state;
    struct trl_str s = {0};
    for (int i = 0; i < 30000; i++)
        trl_str_printf(&s, "{\"prompt\": \"number %d \", \"completion\": \"is %d and %d\"}\n", i, i * 7, i % 13);
    write_text("threads", "x.jsonl", s.data, s.len);
    trl_str_release(&s);
    struct prepared p[2];
    char *argv[] = {"--model_name_or_path=none", "--use_cpu=true", trl_asprintf("--dataset_name=%s", path_of("threads", "x.jsonl"))};
    prepare_with(&p[0], "tiny-qwen2", argv, 3, 1, 0, 0);
    prepare_with(&p[1], "tiny-qwen2", argv, 3, 4, 0, 0);
    assert_trl_ok(p[0].rc, &p[0].err);
    assert_int_equal(trl_dataset_n_rows(p[0].train), 30000);
    assert_int_equal(trl_dataset_n_tokens(p[0].train), trl_dataset_n_tokens(p[1].train));
    for (int64_t i = 0; i < 30000; i++) {
        struct trl_row a, b;
        int32_t la[64], lb[64];
        trl_dataset_get_row(p[0].train, i, &a);
        trl_dataset_get_row(p[1].train, i, &b);
        assert_int_equal(a.len, b.len);
        assert_memory_equal(a.ids, b.ids, (size_t)a.len * 4);
        trl_dataset_copy_labels(p[0].train, i, la);
        trl_dataset_copy_labels(p[1].train, i, lb);
        assert_memory_equal(la, lb, (size_t)a.len * 4);
    }
    prepared_release(&p[0]);
    prepared_release(&p[1]);
    trl_free(argv[2]);
}

static char *show(struct prepared *p, struct trl_sampler *s, bool json, int world)
{
    char *text = NULL;
    size_t len = 0;
    FILE *f = open_memstream(&text, &len);
    struct trl_show_batches o = {.data = p->train, .sampler = s, .tok = p->tok, .n = 1, .world = world, .json = json,
        .pad_to_multiple_of = 4};
    assert_trl_ok(trl_show_batches(f, &o, &p->err), &p->err);
    fclose(f);
    return text;
}

static void test_show_batches(void **state)
{
    (void)state;
    struct prepared p;
    struct trl_sampler *s;
    WRITE("show", "x.jsonl", "{\"input_ids\": [5, 6, 7, 8, 9], \"labels\": [-100, -100, 7, 8, 9]}\n{\"input_ids\": [10, 11], \"labels\": [10, 11]}\n");
    PREPARE(&p, "tiny-qwen2", "--dataset_name", path_of("show", "x.jsonl"));
    assert_trl_ok(p.rc, &p.err);
    struct trl_sampler_options o = {.kind = TRL_SAMPLING_SEQUENTIAL, .batch_size = 2, .world = 1};
    assert_trl_ok(trl_sampler_new(&s, p.train, &o, &p.err), &p.err);
    char *json = show(&p, s, true, 1), *plain = show(&p, s, false, 1);
    json_t *j = json_loads(json, 0, NULL);
    int pad = trl_tokenizer_special_id(p.tok, TRL_TOKEN_PAD);
    json_t *want = json_pack("{s:i, s:i, s:[[i,i,i,i,i,i,i,i],[i,i,i,i,i,i,i,i]], s:[[i,i,i,i,i,i,i,i],[i,i,i,i,i,i,i,i]],"
                             "s:[[i,i,i,i,i,i,i,i],[i,i,i,i,i,i,i,i]], s:[[i,i,i,i,i,i,i,i],[i,i,i,i,i,i,i,i]]}",
        "rank", 0, "batch", 0, "input_ids", 5, 6, 7, 8, 9, pad, pad, pad, 10, 11, pad, pad, pad, pad, pad, pad, "labels", -100, -100,
        7, 8, 9, -100, -100, -100, 10, 11, -100, -100, -100, -100, -100, -100, "position_ids", 0, 1, 2, 3, 4, 5, 6, 7, 0, 1, 2, 3, 4,
        5, 6, 7, "attention_mask", 1, 1, 1, 1, 1, 0, 0, 0, 1, 1, 0, 0, 0, 0, 0, 0);
    assert_true(json_equal(j, want));
    assert_non_null(strstr(plain, "batch 0, rank 0: 2 rows, 7 tokens in 2 documents, padded to 8 columns; 4 tokens in the loss"));
    assert_non_null(strstr(plain, "\xe2\x9f\xa6"));
    json_decref(j);
    json_decref(want);
    free(json);
    free(plain);
    trl_sampler_free(s);
    prepared_release(&p);
    PREPARE(&p, "tiny-qwen2", "--dataset_name", path_of("show", "x.jsonl"), "--padding_free", "--max_length=None");
    assert_trl_ok(p.rc, &p.err);
    o.world = 2;
    o.batch_size = 1;
    assert_trl_ok(trl_sampler_new(&s, p.train, &o, &p.err), &p.err);
    json = show(&p, s, true, 2);
    plain = show(&p, s, false, 2);
    assert_non_null(strstr(json, "\"rank\": 1"));
    assert_null(strstr(json, "attention_mask"));
    assert_non_null(strstr(plain, "one row of 4 columns"));
    free(json);
    free(plain);
    trl_sampler_free(s);
    prepared_release(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_as_trl),
        cmocka_unit_test(test_errors),
        cmocka_unit_test(test_bad_options),
        cmocka_unit_test(test_assistant_only),
        cmocka_unit_test(test_limits_of_the_model),
        cmocka_unit_test(test_skip_bad_rows),
        cmocka_unit_test(test_split),
        cmocka_unit_test(test_threads),
        cmocka_unit_test(test_show_batches),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, setup, teardown);
}
