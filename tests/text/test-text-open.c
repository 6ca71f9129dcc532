/* SPDX-License-Identifier: Apache-2.0 */
/* Opening, configuration, saving; and what a broken tokenizer.json is told. */
#include "text-vectors.h"

#include <unistd.h>

/* ---- broken files ---- */

static void expect(const char *json, int code, const char *part)
{
    struct trl_tokenizer *t = NULL;
    struct trl_err err = {0};
    int rc = trl_tokenizer_open_json(&t, json, strlen(json), NULL, 0, "x/tokenizer.json", &err);
    if (rc == 0)
        fail_msg("accepted: %s", json);
    if (rc != code || !strstr(err.text, part) || !strstr(err.text, "x/tokenizer.json"))
        fail_msg("%s: got %d '%s', wanted %d '%s'", json, rc, err.text, code, part);
}

#define BPE(vocab, merges) \
    "{\"model\":{\"type\":\"BPE\",\"vocab\":{" vocab "},\"merges\":[" merges "]}}"
#define WITH(part) "{" part ",\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0},\"merges\":[]}}"

static void test_broken_text(void **state)
{
    (void)state;
    expect("", TRL_E_PARSE, "'{' expected");
    expect("[]", TRL_E_PARSE, "'{' expected");
    expect(
        "{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0},\"merges\":[]}", TRL_E_PARSE, "expected");
    expect("{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0", TRL_E_PARSE, "ends inside a value");
    expect("{\"model\":{}} x", TRL_E_PARSE, "unexpected text");
    expect("{\"model\":\"\xFF\"}", TRL_E_PARSE, "UTF-8");
    expect("{}", TRL_E_DATA, "no object 'model'");
    expect("{\"model\":null}", TRL_E_DATA, "no object 'model'");
    expect("{\"model\":{\"type\":\"BPE\"}}", TRL_E_DATA, "no 'vocab'");
    expect("{\"model\":{\"type\":\"BPE\",\"vocab\":null,\"merges\":[]}}", TRL_E_DATA, "no 'vocab'");
    expect("{\"model\":{\"type\":\"Magic\",\"vocab\":{}}}", TRL_E_UNSUPPORTED, "Magic");
    expect("{\"model\":{\"type\":7,\"vocab\":{}}}", TRL_E_DATA, "'type' must be a string");
    expect("{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0},\"merges\":[],\"merges\":[]}}",
        TRL_E_PARSE, "duplicate");
    expect(BPE("\"a\\q\":0", ""), TRL_E_PARSE, "escape");
    expect(BPE("\"\\ud800\":0", ""), TRL_E_PARSE, "surrogate");
    expect(BPE("\"a\nb\":0", ""), TRL_E_PARSE, "control character");
    char deep[4096] = "{\"x\":";
    memset(deep + 5, '[', 4000);
    expect(deep, TRL_E_PARSE, "deep");
}

static void test_broken_vocabulary(void **state)
{
    (void)state;
    expect(BPE("\"a\":0,\"b\":0", ""), TRL_E_DATA, "same id 0");
    expect(BPE("\"a\":0,\"a\":1", ""), TRL_E_DATA, "occurs twice");
    expect(BPE("\"a\":-1", ""), TRL_E_PARSE, "integer");
    expect(BPE("\"a\":1.5", ""), TRL_E_PARSE, "integer");
    expect(BPE("\"a\":99999999999", ""), TRL_E_DATA, "99999999999");
    expect(BPE("\"a\":9999999999999999999999", ""), TRL_E_PARSE, "integer");
    expect(BPE("\"a\":\"0\"", ""), TRL_E_PARSE, "integer");
    expect("{\"model\":{\"type\":\"BPE\",\"vocab\":[[\"a\",0]],\"merges\":[]}}", TRL_E_PARSE,
        "'{' expected");
    expect("{\"model\":{\"type\":\"Unigram\",\"vocab\":{\"a\":0}}}", TRL_E_PARSE, "'[' expected");
    expect("{\"model\":{\"type\":\"Unigram\",\"vocab\":[[\"a\",\"x\"]]}}", TRL_E_PARSE, "number");
    expect("{\"model\":{\"type\":\"Unigram\",\"vocab\":[[\"a\",0.0]],\"unk_id\":1}}", TRL_E_DATA,
        "unk_id");
}

static void test_broken_merges(void **state)
{
    (void)state;
    expect(BPE("\"a\":0,\"b\":1,\"ab\":2", "\"ab\""), TRL_E_PARSE, "broken merge");
    expect(BPE("\"a\":0,\"b\":1,\"ab\":2", "\"a b c\""), TRL_E_PARSE, "broken merge");
    expect(BPE("\"a\":0,\"b\":1", "\"a b\""), TRL_E_PARSE, "'ab' is not in the vocabulary");
    expect(BPE("\"a\":0,\"ab\":1", "[\"a\",\"b\"]"), TRL_E_PARSE, "'b' is not in the vocabulary");
    expect(BPE("\"a\":0,\"b\":1,\"ab\":2", "[\"a\"]"), TRL_E_PARSE, "',' expected");
    expect(BPE("\"a\":0,\"b\":1,\"ab\":2", "7"), TRL_E_PARSE, "string expected");
    expect("{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0},\"merges\":[],\"dropout\":0.1}}",
        TRL_E_UNSUPPORTED, "dropout");
}

static void test_broken_parts(void **state)
{
    (void)state;
    expect(WITH("\"normalizer\":{\"type\":\"Precompiled\"}"), TRL_E_UNSUPPORTED,
        "normalizer: type 'Precompiled'");
    expect(WITH("\"normalizer\":{}"), TRL_E_DATA, "'type' must be a string, not missing");
    expect(
        WITH(
            "\"normalizer\":{\"type\":\"Replace\",\"pattern\":{\"Regex\":\"(\"},\"content\":\"\"}"),
        TRL_E_DATA, "pattern '('");
    expect(
        WITH(
            "\"normalizer\":{\"type\":\"Replace\",\"pattern\":{\"String\":\"\"},\"content\":\"\"}"),
        TRL_E_DATA, "empty pattern");
    expect(WITH("\"pre_tokenizer\":{\"type\":\"UnicodeScripts\"}"), TRL_E_UNSUPPORTED,
        "UnicodeScripts");
    expect(WITH("\"pre_tokenizer\":{\"type\":\"Split\",\"pattern\":{\"String\":\"x\"},\"behavior\":"
                "\"Odd\"}"),
        TRL_E_DATA, "Odd");
    expect(WITH("\"pre_tokenizer\":{\"type\":\"Split\",\"pattern\":{\"Regex\":\"[a&&b]\"},"
                "\"behavior\":\"Isolated\"}"),
        TRL_E_UNSUPPORTED, "intersection");
    expect(WITH("\"pre_tokenizer\":{\"type\":\"Split\",\"pattern\":{\"Regex\":\"[a\"},\"behavior\":"
                "\"Isolated\"}"),
        TRL_E_UNSUPPORTED, "class without ]");
    expect(WITH("\"pre_tokenizer\":{\"type\":\"Metaspace\",\"replacement\":\"ab\"}"), TRL_E_DATA,
        "one character");
    expect(WITH("\"post_processor\":{\"type\":\"Odd\"}"), TRL_E_UNSUPPORTED, "Odd");
    expect(WITH("\"post_processor\":{\"type\":\"TemplateProcessing\",\"single\":[{\"SpecialToken\":"
                "{\"id\":\"q\"}}]}"),
        TRL_E_DATA, "'q'");
    expect(WITH("\"post_processor\":{\"type\":\"TemplateProcessing\",\"single\":[]}"),
        TRL_E_UNSUPPORTED, "sequence A");
    expect(WITH("\"decoder\":{\"type\":\"Odd\"}"), TRL_E_UNSUPPORTED, "Odd");
    expect(WITH("\"added_tokens\":{}"), TRL_E_DATA, "added_tokens");
    expect(WITH("\"added_tokens\":[{\"id\":1}]"), TRL_E_DATA, "content");
    expect(WITH("\"added_tokens\":[{\"id\":99999999,\"content\":\"x\"}]"), TRL_E_DATA, "99999999");
    expect(WITH("\"added_tokens\":[{\"id\":1,\"content\":\"x\",\"special\":\"yes\"}]"), TRL_E_DATA,
        "special");
    expect(WITH("\"pre_tokenizer\":7"), TRL_E_DATA, "pre_tokenizer");
}

static void test_broken_input(void **state)
{
    struct trl_tokenizer *t = NULL;
    struct trl_tok_scratch *s = NULL;
    struct trl_ids ids = {0};
    struct trl_err err = {0};
    (void)state;
    assert_trl_ok(trl_tokenizer_open(&t, trl_test_data("golden/tokenizers/tok-smol"), &err), &err);
    assert_trl_ok(trl_tok_scratch_new(&s, t, &err), &err);
    assert_int_equal(trl_tokenizer_encode(t, s, "ab\xFFz", 4, 0, &ids, &err), TRL_E_DATA);
    assert_non_null(strstr(err.text, "byte 2"));
    assert_int_equal(ids.len, 0);
    static const int32_t odd[] = {-1, 100000, INT32_MAX, INT32_MIN};
    struct trl_str out = {0};
    assert_trl_ok(
        trl_tokenizer_decode(t, odd, 4, false, &out, &err), &err); /* unknown ids are nothing */
    assert_int_equal(out.len, 0);
    trl_str_release(&out);
    trl_ids_release(&ids);
    trl_tok_scratch_free(s);
    trl_tokenizer_free(t);

    assert_int_equal(trl_tokenizer_open(&t, "/no/such/place", &err), TRL_E_NOENT);
    assert_int_equal(trl_tokenizer_open(&t, trl_test_data("golden/data"), &err), TRL_E_NOENT);
    assert_non_null(strstr(err.text, "no tokenizer.json"));
    assert_int_equal(
        trl_tokenizer_open(&t, trl_test_data("golden/data-order.jsonl"), &err), TRL_E_USAGE);
}

/* ---- configuration ---- */

static struct trl_tokenizer *open_llama(const char *config)
{
    struct trl_tokenizer *t = NULL;
    struct trl_err err = {0};
    char *json;
    size_t len;
    assert_trl_ok(
        trl_file_read(trl_test_data("tokenizers/llama2.json"), 1 << 20, &json, &len, &err), &err);
    assert_trl_ok(
        trl_tokenizer_open_json(&t, json, len, config, config ? strlen(config) : 0, "llama2", &err),
        &err);
    trl_free(json);
    return t;
}

static void check_ends(const char *config, int32_t first, int32_t last)
{
    struct trl_tokenizer *t = open_llama(config);
    struct trl_tok_scratch *s = NULL;
    struct trl_ids ids = {0};
    struct trl_err err = {0};
    assert_trl_ok(trl_tok_scratch_new(&s, t, &err), &err);
    assert_trl_ok(trl_tokenizer_encode(t, s, "the", 3, TRL_TOK_ADD_SPECIAL, &ids, &err), &err);
    assert_true(ids.len > 0);
    assert_true((ids.ids[0] == 1) == (first == 1));
    assert_true((ids.ids[ids.len - 1] == 2) == (last == 2));
    trl_ids_release(&ids);
    trl_tok_scratch_free(s);
    trl_tokenizer_free(t);
}

static void test_bos_eos(void **state)
{
    (void)state;
    check_ends(NULL, 1, 0); /* tokenizer.json has the template */
    check_ends("{\"bos_token\":\"<s>\",\"eos_token\":\"</s>\"}", 1, 0);
    check_ends("{\"bos_token\":\"<s>\",\"eos_token\":\"</"
               "s>\",\"add_bos_token\":true,\"add_eos_token\":true}",
        1, 2);
    check_ends("{\"bos_token\":\"<s>\",\"eos_token\":\"</"
               "s>\",\"add_bos_token\":false,\"add_eos_token\":true}",
        0, 2);
    check_ends("{\"bos_token\":\"<s>\",\"add_bos_token\":false}", 0, 0);
}

static void count(void *ctx, const char *name, const char *token)
{
    int *n = ctx;
    (void)token;
    *n += strcmp(name, "image_token") == 0 ? 10 : 1;
}

static void test_config(void **state)
{
    static const char config[] = "{\"bos_token\":{\"__type\":\"AddedToken\",\"content\":\"<s>\","
                                 "\"lstrip\":false},\"eos_token\":\"<end>\",\"pad_token\":null,"
                                 "\"extra_special_tokens\":{\"image_token\":\"<image>\"},"
                                 "\"additional_special_tokens\":[\"<more>\"],"
                                 "\"chat_template\":[{\"name\":\"default\",\"template\":\"D\"},{"
                                 "\"name\":\"tool_use\",\"template\":\"T\"}]}";
    struct trl_tokenizer *t = open_llama(config);
    struct trl_err err = {0};
    int n = 0;
    (void)state;
    int eos = trl_tokenizer_special_id(t, TRL_TOKEN_EOS), image = trl_tokenizer_find(t, "<image>");
    assert_int_equal(trl_tokenizer_special_id(t, TRL_TOKEN_BOS), 1);
    assert_true(eos > 500); /* not in tokenizer.json: added behind, in order */
    assert_int_equal(image, eos + 1);
    assert_int_equal(trl_tokenizer_find(t, "<more>"), eos + 2);
    assert_int_equal(trl_tokenizer_vocab_size(t), eos + 3);
    assert_true(trl_tokenizer_is_special(t, eos));
    assert_false(trl_tokenizer_is_special(t, 300));
    assert_int_equal(trl_tokenizer_special_id(t, TRL_TOKEN_PAD), -1);
    assert_null(trl_tokenizer_special(t, TRL_TOKEN_UNK));
    assert_string_equal(trl_tokenizer_token(t, image), "<image>");
    assert_null(trl_tokenizer_token(t, 1 << 20));
    assert_string_equal(trl_tokenizer_chat_template(t, NULL), "D");
    assert_string_equal(trl_tokenizer_chat_template(t, "tool_use"), "T");
    assert_null(trl_tokenizer_chat_template(t, "rag"));
    trl_tokenizer_each_special(t, count, &n);
    assert_int_equal(n, 12);
    assert_int_equal(trl_tokenizer_set_special(t, TRL_TOKEN_PAD, "<nope>", &err), TRL_E_USAGE);
    assert_non_null(strstr(err.text, "<nope>"));
    assert_trl_ok(trl_tokenizer_set_special(t, TRL_TOKEN_PAD, "<end>", &err), &err);
    assert_int_equal(trl_tokenizer_special_id(t, TRL_TOKEN_PAD), eos);
    trl_tokenizer_free(t);

    char *json;
    size_t len;
    assert_trl_ok(
        trl_file_read(trl_test_data("tokenizers/llama2.json"), 1 << 20, &json, &len, &err), &err);
    assert_int_equal(
        trl_tokenizer_open_json(&t, json, len, "{\"eos_token\":7}", 15, "llama2", &err),
        TRL_E_DATA);
    assert_non_null(strstr(err.text, "eos_token"));
    assert_int_equal(trl_tokenizer_open_json(&t, json, len, "{", 1, "llama2", &err), TRL_E_PARSE);
    assert_non_null(strstr(err.text, "tokenizer_config.json"));
    trl_free(json);
}

/* ---- saving ---- */

static char dir[64];

static int make_dir(void **state)
{
    (void)state;
    snprintf(dir, sizeof(dir), "/tmp/trl-test-tok-XXXXXX");
    return mkdtemp(dir) ? 0 : -1;
}

static int remove_dir(void **state)
{
    (void)state;
    return trl_rmtree(dir, NULL);
}

static bool has(const char *file)
{
    char *path = trl_path_join(dir, file);
    bool is = trl_path_exists(path);
    trl_free(path);
    return is;
}

static void check_same(const char *file, const char *source)
{
    char *path = trl_path_join(dir, file), *a, *b;
    size_t n, m;
    struct trl_err err = {0};
    assert_trl_ok(trl_file_read(path, 1 << 24, &a, &n, &err), &err);
    assert_trl_ok(trl_file_read(trl_test_data(source), 1 << 24, &b, &m, &err), &err);
    assert_int_equal(n, m);
    assert_memory_equal(a, b, n);
    trl_free(a);
    trl_free(b);
    trl_free(path);
}

static void test_save_folder(void **state)
{
    struct trl_tokenizer *t = NULL, *again = NULL;
    struct trl_err err = {0};
    (void)state;
    assert_trl_ok(trl_tokenizer_open(&t, trl_test_data("golden/tokenizers/tok-smol"), &err), &err);
    assert_trl_ok(trl_tokenizer_save(t, dir, NULL, &err), &err);
    check_same("tokenizer.json", "golden/tokenizers/tok-smol/tokenizer.json");
    check_same("tokenizer_config.json", "golden/tokenizers/tok-smol/tokenizer_config.json");
    assert_false(has("chat_template.jinja")); /* it stays inside tokenizer_config.json */
    assert_trl_ok(trl_tokenizer_save(t, dir, "{{ 1 }}", &err), &err);
    assert_true(has("chat_template.jinja"));

    assert_trl_ok(trl_tokenizer_set_special(t, TRL_TOKEN_EOS, "<|endoftext|>", &err), &err);
    assert_trl_ok(trl_tokenizer_save(t, dir, NULL, &err), &err);
    assert_trl_ok(trl_tokenizer_open(&again, dir, &err), &err);
    assert_string_equal(trl_tokenizer_special(again, TRL_TOKEN_EOS), "<|endoftext|>");
    assert_string_equal(trl_tokenizer_special(again, TRL_TOKEN_BOS), "<|im_start|>");
    assert_string_equal(trl_tokenizer_chat_template(again, NULL),
        "{{ 1 }}"); /* the file wins over tokenizer_config.json */
    assert_trl_ok(trl_tokenizer_save(again, dir, NULL, &err), &err); /* onto itself */
    assert_true(
        check_vectors(again, trl_test_data("golden/tokenizer-vectors/tok-smol.jsonl")) > 100);
    trl_tokenizer_free(again);
    trl_tokenizer_free(t);
}

/* transformers writes "no limit" as int(1e30), beyond 64 bits. */
static void test_save_no_limit(void **state)
{
    static const char config[] = "{\n  \"eos_token\": \"<|im_end|>\",\n"
                                 "  \"model_max_length\": 1000000000000000019884624838656\n}\n";
    struct trl_tokenizer *t = NULL, *again = NULL;
    struct trl_err err = {0};
    char *text;
    (void)state;
    assert_trl_ok(trl_tokenizer_open(&t, trl_test_data("golden/tokenizers/tok-smol"), &err), &err);
    assert_trl_ok(trl_tokenizer_save(t, dir, NULL, &err), &err);
    trl_tokenizer_free(t);
    char *path = trl_path_join(dir, "tokenizer_config.json");
    assert_trl_ok(trl_file_write_atomic(path, config, strlen(config), &err), &err);
    assert_trl_ok(trl_tokenizer_open(&again, dir, &err), &err);
    assert_string_equal(trl_tokenizer_special(again, TRL_TOKEN_EOS), "<|im_end|>");
    assert_trl_ok(trl_tokenizer_set_special(again, TRL_TOKEN_EOS, "<|endoftext|>", &err), &err);
    assert_trl_ok(trl_tokenizer_save(again, dir, NULL, &err), &err);
    assert_trl_ok(trl_file_read(path, 1 << 20, &text, NULL, &err), &err);
    assert_non_null(strstr(text, "\"model_max_length\": 1000000000000000019884624838656\n"));
    assert_non_null(strstr(text, "\"eos_token\": \"<|endoftext|>\""));
    trl_free(text);
    trl_free(path);
    trl_tokenizer_free(again);
}

static void test_save_gguf(void **state)
{
    struct trl_tokenizer *t = NULL, *again = NULL;
    struct trl_err err = {0};
    (void)state;
    assert_trl_ok(trl_tokenizer_open(&t, trl_test_data("tokenizers/smol.gguf"), &err), &err);
    assert_trl_ok(trl_tokenizer_save(t, dir, NULL, &err), &err);
    trl_tokenizer_free(t);
    assert_trl_ok(trl_tokenizer_open(&again, dir, &err), &err);
    assert_true(
        check_vectors(again, trl_test_data("golden/tokenizer-vectors/tok-smol.jsonl")) > 100);
    assert_string_equal(trl_tokenizer_chat_template(again, NULL), "{{ messages[0].content }}");
    assert_int_equal(trl_tokenizer_special_id(again, TRL_TOKEN_PAD), 2);
    trl_tokenizer_free(again);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_broken_text),
        cmocka_unit_test(test_broken_vocabulary),
        cmocka_unit_test(test_broken_merges),
        cmocka_unit_test(test_broken_parts),
        cmocka_unit_test(test_broken_input),
        cmocka_unit_test(test_bos_eos),
        cmocka_unit_test(test_config),
        cmocka_unit_test_setup_teardown(test_save_folder, make_dir, remove_dir),
        cmocka_unit_test_setup_teardown(test_save_no_limit, make_dir, remove_dir),
        cmocka_unit_test_setup_teardown(test_save_gguf, make_dir, remove_dir),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
