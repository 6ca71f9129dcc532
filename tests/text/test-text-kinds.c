/* SPDX-License-Identifier: Apache-2.0 */
/* All kinds of models, normalizers, pre-tokenizers and decoders against results of the real library
 * (tests/data/tokenizers/make.py). */
#include "text-vectors.h"

static struct trl_tokenizer *open_file(const char *name)
{
    struct trl_tokenizer *t = NULL;
    struct trl_err err = {0};
    char rel[256], *json = NULL;
    size_t len;
    snprintf(rel, sizeof(rel), "tokenizers/%s.json", name);
    assert_trl_ok(trl_file_read(trl_test_data(rel), 1u << 30, &json, &len, &err), &err);
    assert_trl_ok(trl_tokenizer_open_json(&t, json, len, NULL, 0, name, &err), &err);
    trl_free(json);
    return t;
}

static void test_models(void **state)
{
    static const char *const names[] = {"llama2", "gemma", "metaspace-first", "metaspace-always",
        "unigram", "unigram-bytes", "wordpiece", "wordlevel", "clip", "bpe-prefix"};
    (void)state;
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        char rel[256];
        struct trl_tokenizer *t = open_file(names[i]);
        snprintf(rel, sizeof(rel), "tokenizers/%s.jsonl", names[i]);
        assert_true(check_vectors(t, trl_test_data(rel)) > 40);
        trl_tokenizer_free(t);
    }
}

/* Parts exchanged in one byte-level tokenizer: every split behavior, pattern features, normal
 * forms. */
static void test_variants(void **state)
{
    struct trl_err err = {0};
    char *data = NULL, *next;
    size_t len;
    int line = 0;
    (void)state;
    assert_trl_ok(
        trl_file_read(trl_test_data("tokenizers/variants.jsonl"), 1u << 30, &data, &len, &err),
        &err);
    for (char *p = data; *p; p = next) {
        char *nl = strchr(p, '\n');
        next = nl ? nl + 1 : p + strlen(p);
        json_t *c = json_loadb(p, (size_t)((nl ? nl : next) - p), JSON_ALLOW_NUL, NULL);
        json_t *base = json_load_file(
            trl_test_data("golden/tokenizers/tok-gpt2/tokenizer.json"), JSON_ALLOW_NUL, NULL);
        json_t *row;
        size_t i;
        assert_non_null(c);
        assert_non_null(base);
        json_object_update(base, json_object_get(c, "set"));
        char *text = json_dumps(base, JSON_COMPACT), name[64];
        struct trl_tokenizer *t = NULL;
        struct trl_tok_scratch *s = NULL;
        snprintf(name, sizeof(name), "variant %d", ++line);
        assert_trl_ok(trl_tokenizer_open_json(&t, text, strlen(text), NULL, 0, name, &err), &err);
        assert_trl_ok(trl_tok_scratch_new(&s, t, &err), &err);
        json_array_foreach(json_object_get(c, "rows"), i, row) check_row(t, s, name, (int)i, row);
        trl_tok_scratch_free(s);
        trl_tokenizer_free(t);
        free(text);
        json_decref(base);
        json_decref(c);
    }
    assert_true(line > 20);
    trl_free(data);
}

static void check_gguf(const char *gguf, const char *vectors)
{
    struct trl_tokenizer *t = NULL;
    struct trl_err err = {0};
    assert_trl_ok(trl_tokenizer_open(&t, trl_test_data(gguf), &err), &err);
    assert_true(check_vectors(t, trl_test_data(vectors)) > 40);
    trl_tokenizer_free(t);
}

static void test_gguf(void **state)
{
    (void)state;
    check_gguf("tokenizers/smol.gguf", "golden/tokenizer-vectors/tok-smol.jsonl");
    check_gguf("tokenizers/llama2.gguf", "tokenizers/llama2-gguf.jsonl");
}

/* The first token of a word that is longer than the cache keeps, and a long word without spaces: no
 * quadratic step. */
static void test_long(void **state)
{
    struct trl_tokenizer *t = open_file("llama2");
    struct trl_tok_scratch *s = NULL;
    struct trl_err err = {0};
    struct trl_ids ids = {0};
    struct trl_str text = {0}, back = {0};
    (void)state;
    for (int i = 0; i < 200000; i++)
        trl_str_puts(&text, i % 7 ? "ab" : "the");
    assert_trl_ok(trl_tok_scratch_new(&s, t, &err), &err);
    assert_trl_ok(trl_tokenizer_encode(t, s, text.data, text.len, 0, &ids, &err), &err);
    assert_trl_ok(trl_tokenizer_decode(t, ids.ids, ids.len, true, &back, &err), &err);
    assert_int_equal(back.len, text.len);
    assert_memory_equal(back.data, text.data, text.len);
    trl_str_release(&text);
    trl_str_release(&back);
    trl_ids_release(&ids);
    trl_tok_scratch_free(s);
    trl_tokenizer_free(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_models),
        cmocka_unit_test(test_variants),
        cmocka_unit_test(test_gguf),
        cmocka_unit_test(test_long),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
