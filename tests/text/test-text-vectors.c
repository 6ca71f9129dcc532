/* SPDX-License-Identifier: Apache-2.0 */
/* Every recorded result of the real tokenizers: ids, decoded text, offsets, chats. */
#include "text-vectors.h"

static void check_folder(const char *name)
{
    struct trl_tokenizer *t = NULL;
    struct trl_err err = {0};
    char rel[256];
    snprintf(rel, sizeof(rel), "golden/tokenizers/%s", name);
    assert_trl_ok(trl_tokenizer_open(&t, trl_test_data(rel), &err), &err);
    snprintf(rel, sizeof(rel), "golden/tokenizer-vectors/%s.jsonl", name);
    assert_true(check_vectors(t, trl_test_data(rel)) > 100);
    trl_tokenizer_free(t);
}

static void test_gpt2(void **state)
{
    (void)state;
    check_folder("tok-gpt2");
}

static void test_llama3(void **state)
{
    (void)state;
    check_folder("tok-llama3");
}

static void test_qwen2(void **state)
{
    (void)state;
    check_folder("tok-qwen2");
}

static void test_smol(void **state)
{
    (void)state;
    check_folder("tok-smol");
}

/* Rendered chats hold special tokens in the text, and no BOS is added to them. */
static void check_chats(const struct trl_tokenizer *t, const char *file)
{
    char *data = NULL, *next;
    char rel[256];
    size_t len;
    struct trl_err err = {0};
    struct trl_tok_scratch *s = NULL;
    snprintf(rel, sizeof(rel), "golden/tokenizer-vectors/%s.chat.jsonl", file);
    assert_trl_ok(trl_tok_scratch_new(&s, t, &err), &err);
    assert_trl_ok(trl_file_read(trl_test_data(rel), 1u << 30, &data, &len, &err), &err);
    int line = 0;
    for (char *p = data; *p; p = next) {
        struct trl_ids ids = {0};
        char *nl = strchr(p, '\n');
        next = nl ? nl + 1 : p + strlen(p);
        json_t *row = json_loadb(p, (size_t)((nl ? nl : next) - p), JSON_ALLOW_NUL, NULL);
        const json_t *text = json_object_get(row, "rendered");
        line++;
        assert_non_null(row);
        if (json_is_string(text)) {
            assert_trl_ok(trl_tokenizer_encode(t, s, json_string_value(text),
                              json_string_length(text), 0, &ids, &err),
                &err);
            check_ids(
                file, line, "ids", json_string_value(text), json_object_get(row, "ids"), &ids);
        }
        trl_ids_release(&ids);
        json_decref(row);
    }
    assert_true(line > 10);
    trl_free(data);
    trl_tok_scratch_free(s);
}

static void test_chats(void **state)
{
    static const char *const names[][2] = {{"tok-gpt2", "tok-gpt2"}, {"tok-llama3", "tok-llama3"},
        {"tok-qwen2", "tok-qwen2"}, {"tok-qwen2", "tok-qwen2+chatml_generation"},
        {"tok-smol", "tok-smol"}};
    (void)state;
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        struct trl_tokenizer *t = NULL;
        struct trl_err err = {0};
        char rel[256];
        snprintf(rel, sizeof(rel), "golden/tokenizers/%s", names[i][0]);
        assert_trl_ok(trl_tokenizer_open(&t, trl_test_data(rel), &err), &err);
        check_chats(t, names[i][1]);
        trl_tokenizer_free(t);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_gpt2),
        cmocka_unit_test(test_llama3),
        cmocka_unit_test(test_qwen2),
        cmocka_unit_test(test_smol),
        cmocka_unit_test(test_chats),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
