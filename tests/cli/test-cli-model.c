/* SPDX-License-Identifier: Apache-2.0 */
/* Model folders that lie: headers of safetensors, shards, NaN, config against tensors, tokenizers. */
#include "cli-run.h"

#include "base/alloc.h"
#include "base/json.h"
#include "base/str.h"

/* ---- safetensors ---- */

struct weights {
    json_t *header;
    char *body;
    size_t len;
    const char *names[64];
    size_t n;
};

static void open_weights(struct weights *w, const char *path)
{
    size_t len;
    char *data = cli_read(path, &len);
    uint64_t head;
    struct trl_err err;
    memcpy(&head, data, 8);
    *w = (struct weights){.len = len - 8 - head};
    assert_trl_ok(trl_json_parse(data + 8, head, path, &w->header, &err), &err);
    w->body = trl_malloc_array(w->len, 1);
    memcpy(w->body, data + 8 + head, w->len);
    trl_free(data);
    const char *key;
    json_t *v;
    json_object_foreach(w->header, key, v)
    {
        if (strcmp(key, "__metadata__") && w->n < 64)
            w->names[w->n++] = key;
    }
    assert_true(w->n > 4);
}

static json_t *tensor(const struct weights *w, size_t i)
{
    return json_object_get(w->header, w->names[i]);
}

static void set_pair(json_t *v, const char *key, int64_t a, int64_t b)
{
    json_object_set_new(v, key, json_pack("[I,I]", (json_int_t)a, (json_int_t)b));
}

static int64_t begin_of(const json_t *v)
{
    return json_integer_value(json_array_get(json_object_get(v, "data_offsets"), 0));
}
static int64_t end_of(const json_t *v)
{
    return json_integer_value(json_array_get(json_object_get(v, "data_offsets"), 1));
}

/* The file: `head` as length (0: the true one), the header cut at `cut` bytes (0: whole), the body without `less` bytes. */
static void write_weights(struct weights *w, const char *path, uint64_t head, size_t cut, size_t less)
{
    struct trl_str s = {0}, h = {0};
    trl_json_put(&h, w->header, 0, false);
    uint64_t n = head ? head : h.len;
    trl_str_append(&s, (const char *)&n, 8);
    trl_str_append(&s, h.data, cut ? cut : h.len);
    if (!cut)
        trl_str_append(&s, w->body, w->len - less);
    cli_write(path, s.data, s.len);
    trl_str_release(&s);
    trl_str_release(&h);
    json_decref(w->header);
    trl_free(w->body);
}

enum lie { TRUNCATED_HEAD, TRUNCATED_BODY, HUGE_HEAD, NEGATIVE_HEAD, OVERLAP, SHAPE, HUGE_SHAPE, NEGATIVE_SHAPE, BEYOND, DTYPE, INTEGERS,
    GAP, GONE, A_NAN };

static void spoil(const char *path, enum lie lie)
{
    struct weights w;
    open_weights(&w, path);
    json_t *a = tensor(&w, 0), *b = tensor(&w, 1);
    uint64_t head = 0;
    size_t cut = 0, less = 0;
    switch (lie) {
    case TRUNCATED_HEAD:
        head = cut = 500;
        head += 500;
        break;
    case TRUNCATED_BODY:
        less = 100;
        break;
    case HUGE_HEAD:
        head = 1ull << 60;
        break;
    case NEGATIVE_HEAD:
        head = UINT64_MAX;
        break;
    case OVERLAP:
        set_pair(b, "data_offsets", begin_of(b) - 16, end_of(b) - 16);
        break;
    case SHAPE:
        set_pair(a, "shape", 769, 64);
        break;
    case HUGE_SHAPE:
        set_pair(a, "shape", INT64_MAX / 2, INT64_MAX / 2);
        break;
    case NEGATIVE_SHAPE:
        set_pair(a, "shape", -768, -64);
        break;
    case BEYOND:
        set_pair(tensor(&w, w.n - 1), "data_offsets", begin_of(tensor(&w, w.n - 1)), (int64_t)w.len + 512);
        break;
    case DTYPE:
        json_object_set_new(a, "dtype", json_string("Q9"));
        break;
    case INTEGERS:
        json_object_set_new(a, "dtype", json_string("I32"));
        break;
    case GAP:
        json_object_del(w.header, w.names[3]);
        break;
    case GONE: /* the last tensor, with its bytes */
        less = (size_t)(end_of(tensor(&w, w.n - 1)) - begin_of(tensor(&w, w.n - 1)));
        json_object_del(w.header, w.names[w.n - 1]);
        break;
    case A_NAN: {
        float nan = NAN;
        memcpy(w.body + begin_of(tensor(&w, 2)) + 8, &nan, 4);
        break;
    }
    }
    write_weights(&w, path, head, cut, less);
}

static void test_safetensors(void **state)
{
    (void)state;
    static const struct {
        enum lie lie;
        const char *words[2];
    } cases[] = {
        {TRUNCATED_HEAD, {"goes beyond the file's", "truncated"}},
        {TRUNCATED_BODY, {"the file holds", "truncated"}},
        {HUGE_HEAD, {"not a safetensors file", "at most 100000000"}},
        {NEGATIVE_HEAD, {"not a safetensors file", "at most 100000000"}},
        {OVERLAP, {"model.embed_tokens.weight begins at byte", "where lm_head.weight ends"}},
        {SHAPE, {"lm_head.weight", "do not hold"}},
        {HUGE_SHAPE, {"lm_head.weight", "bad shape"}},
        {NEGATIVE_SHAPE, {"lm_head.weight", "bad shape"}},
        {BEYOND, {"tensor ", "do not hold"}},
        {DTYPE, {"lm_head.weight", "unknown dtype \"Q9\""}},
        {INTEGERS, {"lm_head.weight has type I32", "F32, F16, BF16"}},
        {GAP, {"begins at byte", "behind byte"}},
        {GONE, {"model.norm.weight is missing", ""}},
        {A_NAN, {"element 2 is NaN", ""}},
    };
    const char *dir = cli_path("model"), *path = cli_path("model/model.safetensors");
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        cli_copy_dir(cli_model("tiny-llama"), dir);
        spoil(path, cases[i].lie);
        struct cli_line l;
        cli_begin(&l, dir, cli_rows("lm_short.jsonl"));
        cli_expect(&l, 2, dir, cases[i].words[0], cases[i].words[1], NULL);
        assert_false(cli_exists(cli_path("out")));
    }
}

static void test_bytes(void **state)
{
    (void)state;
    static const struct {
        const char *bytes;
        size_t len;
        const char *why;
    } cases[] = {
        {"", 0, "0 bytes"},
        {"\x05\0\0", 3, "3 bytes"},
        {"\x04\0\0\0\0\0\0\0abcd", 12, "does not begin with {"},
        {"\x02\0\0\0\0\0\0\0{}", 10, "is missing"},
        {"\x08\0\0\0\0\0\0\0{\"a\": 1}", 16, "tensor a"},
        {"\x06\0\0\0\0\0\0\0{\"a\": ", 14, "model.safetensors"},
    };
    const char *dir = cli_path("model"), *path = cli_path("model/model.safetensors");
    cli_copy_dir(cli_model("tiny-llama"), dir);
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        cli_write(path, cases[i].bytes, cases[i].len);
        struct cli_line l;
        cli_begin(&l, dir, cli_rows("lm_short.jsonl"));
        cli_expect(&l, 2, dir, cases[i].why, NULL);
    }
}

static void test_shards(void **state)
{
    (void)state;
    const char *dir = cli_path("model");
    struct cli_line l;
    cli_copy_dir(cli_model("tiny-llama-sharded"), dir);
    unlink(cli_path("model/model-00002-of-00002.safetensors"));
    cli_begin(&l, dir, cli_rows("lm_short.jsonl"));
    cli_expect(&l, 2, "model.safetensors.index.json", "shard model-00002-of-00002.safetensors", "No such file", NULL);
    cli_copy_dir(cli_model("tiny-llama-sharded"), dir);
    json_t *index = cli_read_json(cli_path("model/model.safetensors.index.json"));
    json_t *map = json_object_get(index, "weight_map");
    json_object_set_new(map, "model.norm.weight", json_string("../../etc/passwd"));
    char *text = json_dumps(index, 0);
    cli_write_text(cli_path("model/model.safetensors.index.json"), text);
    free(text);
    json_decref(index);
    cli_begin(&l, dir, cli_rows("lm_short.jsonl"));
    cli_expect(&l, 2, "model.safetensors.index.json", "../../etc/passwd", NULL);
}

/* ---- JSON files of a folder ---- */

/* Set (or, with value "", remove) a key of a JSON file; path "a.b.c" goes into objects. */
static void change(const char *file, const char *path, const char *value)
{
    json_t *root = cli_read_json(file), *at = root;
    char name[128];
    for (const char *dot; (dot = strchr(path, '.')) != NULL; path = dot + 1) {
        snprintf(name, sizeof(name), "%.*s", (int)(dot - path), path);
        at = json_is_array(at) ? json_array_get(at, (size_t)strtoul(name, NULL, 10)) : json_object_get(at, name);
        assert_non_null(at);
    }
    if (!*value) {
        assert_int_equal(json_object_del(at, path), 0);
    } else {
        json_error_t e;
        json_t *v = json_loads(value, JSON_DECODE_ANY, &e);
        assert_non_null(v);
        if (json_is_array(at))
            json_array_set_new(at, (size_t)strtoul(path, NULL, 10), v);
        else
            json_object_set_new(at, path, v);
    }
    char *text = json_dumps(root, JSON_INDENT(1));
    cli_write_text(file, text);
    free(text);
    json_decref(root);
}

struct change_case {
    const char *path, *value;
    const char *words[3];
};

static void test_config(void **state)
{
    (void)state;
    static const struct change_case cases[] = {
        {"hidden_size", "32", {"problems", "has shape [768, 64], config.json asks for [768, 32]", "model.layers.0"}},
        {"num_hidden_layers", "3", {"9 problems", "model.layers.2.self_attn.q_proj.weight is missing", ""}},
        {"num_hidden_layers", "1", {"9 problems", "model.layers.1", "is none of a llama model"}},
        {"vocab_size", "512", {"2 problems", "[768, 64]", "[512, 64]"}},
        {"vocab_size", "-1", {"config.json: vocab_size is -1", "from 1 to", ""}},
        {"vocab_size", "1000000000000000000", {"config.json: vocab_size is 1000000000000000000", "from 1 to", ""}},
        {"hidden_size", "\"big\"", {"config.json: hidden_size is \"big\"", "whole number", ""}},
        {"num_attention_heads", "0", {"config.json: num_attention_heads is 0", "from 1 to", ""}},
        {"num_key_value_heads", "3", {"config.json", "num_key_value_heads", ""}},
        {"model_type", "\"mamba\"", {"config.json: model_type \"mamba\"", "not supported", "llama, mistral"}},
        {"hidden_act", "\"foo\"", {"config.json: hidden_act \"foo\"", "not supported", "silu"}},
        {"rope_parameters.rope_type", "\"odd\"", {"config.json", "odd", "not supported"}},
    };
    const char *dir = cli_path("model");
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        cli_copy_dir(cli_model("tiny-llama"), dir);
        change(cli_path("model/config.json"), cases[i].path, cases[i].value);
        struct cli_line l;
        cli_begin(&l, dir, cli_rows("lm_short.jsonl"));
        cli_expect(&l, 2, dir, cases[i].words[0], cases[i].words[1], cases[i].words[2], NULL);
        assert_false(cli_exists(cli_path("out")));
    }
    struct cli_line l;
    cli_write_text(cli_path("model/config.json"), "{\"model_type\": \"llama\",}");
    cli_begin(&l, dir, cli_rows("lm_short.jsonl"));
    cli_expect(&l, 2, "config.json", NULL);
    unlink(cli_path("model/config.json"));
    cli_begin(&l, dir, cli_rows("lm_short.jsonl"));
    cli_expect(&l, 2, dir, "no config.json", NULL);
    cli_begin(&l, "someone/no-such-model", cli_rows("lm_short.jsonl"));
    cli_expect(&l, 2, "someone/no-such-model", "download", NULL);
}

static void test_tokenizer(void **state)
{
    (void)state;
    static const struct change_case cases[] = {
        {"model.type", "\"Magic\"", {"a model of type 'Magic'", "BPE, Unigram", ""}},
        {"model.merges.3", "\"abc\"", {"a broken merge", "not two tokens", ""}},
        {"model.merges.3", "[\"qqqqq\", \"zzzzz\"]", {"a broken merge", "'qqqqq' is not in the vocabulary", ""}},
        {"model.merges.3", "[\"a\"]", {"merge [left, right]", "", ""}},
        {"model.vocab.a", "-5", {"integer of at least 0", "", ""}},
        {"pre_tokenizer", "{\"type\": \"Nope\"}", {"pre_tokenizer: type 'Nope' is not supported", "ByteLevel", ""}},
        {"pre_tokenizer", "{\"type\": \"Split\", \"pattern\": {\"Regex\": \"((((\"}, \"behavior\": \"Isolated\", \"invert\": false}",
            {"pattern '((((' is refused", "parenthes", ""}},
        {"model", "", {"no object 'model'", "", ""}},
        {"normalizer", "{\"type\": \"Odd\"}", {"normalizer", "'Odd'", ""}},
        {"post_processor", "{\"type\": \"Odd\"}", {"post_processor", "'Odd'", ""}},
    };
    const char *dir = cli_path("model"), *file = cli_path("model/tokenizer.json");
    struct cli_line l;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        cli_copy_dir(cli_model("tiny-qwen2"), dir);
        change(file, cases[i].path, cases[i].value);
        cli_begin(&l, dir, cli_rows("lm_short.jsonl"));
        cli_expect(&l, 2, file, cases[i].words[0], cases[i].words[1], cases[i].words[2], NULL);
        assert_false(cli_exists(cli_path("out")));
    }
    cli_write_text(file, "{\"model\": ");
    cli_begin(&l, dir, cli_rows("lm_short.jsonl"));
    cli_expect(&l, 2, file, "ends inside a value", NULL);
    unlink(file);
    cli_begin(&l, dir, cli_rows("lm_short.jsonl"));
    cli_expect(&l, 2, dir, "no tokenizer.json", NULL);
}

/* A token behind the last row of the embedding: a row that holds it is refused, a tokenizer that only knows it is not (Gemma 3 has one). */
static void test_vocabulary(void **state)
{
    (void)state;
    const char *dir = cli_path("model"), *file = cli_path("model/tokenizer.json"), *rows = cli_path("rows.jsonl");
    cli_copy_dir(cli_model("tiny-qwen2"), dir);
    json_t *root = cli_read_json(file);
    json_array_append_new(json_object_get(root, "added_tokens"),
        json_pack("{s:i, s:s, s:b, s:b, s:b, s:b, s:b}", "id", 720, "content", "<|far|>", "special", 1, "single_word", 0, "lstrip", 0,
            "rstrip", 0, "normalized", 0));
    char *text = json_dumps(root, 0);
    cli_write_text(file, text);
    free(text);
    json_decref(root);
    struct cli_line l;
    cli_begin(&l, dir, cli_rows("lm_short.jsonl"));
    cli_expect(&l, 0, "warning", "knows 721 ids", "720", NULL);
    cli_write_text(rows, "{\"text\": \"a\"}\n{\"text\": \"b <|far|>\"}\n");
    cli_begin(&l, dir, rows);
    cli_expect(&l, 2, "rows.jsonl:2", "id 720", "vocabulary has 720", NULL);
    assert_false(cli_exists(cli_path("out")));
}

/* Learned positions end; rotary ones do not, and TRL trains beyond them. */
static void test_positions(void **state)
{
    (void)state;
    const char *rows = cli_path("long.jsonl");
    FILE *f = fopen(rows, "w");
    fputs("{\"text\": \"", f);
    for (int i = 0; i < 400; i++)
        fputs("ab cd ", f);
    fputs("\"}\n", f);
    fclose(f);
    struct cli_line l;
    cli_begin(&l, cli_model("tiny-gpt2"), rows);
    cli_add(&l, "--max_length", "4096", NULL);
    cli_expect(&l, 2, "256 learned positions", "max_length to 256", NULL);
    assert_false(cli_exists(cli_path("out")));
    cli_begin(&l, cli_model("tiny-gpt2"), rows);
    cli_add(&l, "--max_length", "256", NULL);
    cli_expect(&l, 0, NULL);
    cli_begin(&l, cli_model("tiny-qwen2"), rows);
    cli_add(&l, "--max_length", "4096", "--max_steps", "1", NULL);
    cli_expect(&l, 0, "warning", "512", NULL);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_safetensors),
    cmocka_unit_test(test_bytes),
    cmocka_unit_test(test_shards),
    cmocka_unit_test(test_config),
    cmocka_unit_test(test_tokenizer),
    cmocka_unit_test(test_vocabulary),
    cmocka_unit_test(test_positions),
};
CLI_TEST_MAIN(tests)
