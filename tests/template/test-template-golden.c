/* SPDX-License-Identifier: Apache-2.0 */
/* The chat templates of the golden tokenizers: rendered text as transformers', generation spans,
 * and one template in many threads. */
#include "base/threads.h"
#include "template-test.h"

struct golden {
    struct trl_template *t;
    json_t *special;
    int masks;
};

static void add_special(json_t *vars, const json_t *config)
{
    static const char *const names[] = {"bos_token", "eos_token", "pad_token", "unk_token"};
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        json_t *v = json_object_get(config, names[i]);
        if (json_is_object(v))
            v = json_object_get(v, "content");
        if (json_is_string(v))
            json_object_set(vars, names[i], v);
    }
}

static json_t *variables(const struct golden *g, const json_t *line)
{
    json_t *vars = json_copy(g->special);
    json_object_set(vars, "messages", json_object_get(line, "messages"));
    json_object_set(vars, "add_generation_prompt", json_object_get(line, "add_generation_prompt"));
    return vars;
}

static void check_line(void *ctx, json_t *line, int number)
{
    struct golden *g = ctx;
    json_t *vars = variables(g, line);
    struct trl_str out = {0};
    struct trl_spans spans = {0};
    struct trl_err err = {0};
    assert_trl_ok(trl_template_render(g->t, vars, &out, &spans, &err), &err);
    assert_string_equal(trl_str_get(&out), json_string_value(json_object_get(line, "rendered")));
    if (trl_template_has_generation(g->t)) {
        size_t i, n = 0;
        json_t *m;
        json_array_foreach(json_object_get(line, "messages"), i, m)
        {
            if (strcmp(json_string_value(json_object_get(m, "role")), "assistant") != 0)
                continue;
            /* the goldens' templates mark the content and <|im_end|> */
            const char *content = json_string_value(json_object_get(m, "content"));
            assert_true(n < spans.len);
            const char *p = trl_str_get(&out) + spans.begin[n];
            assert_int_equal(spans.end[n] - spans.begin[n], strlen(content) + strlen("<|im_end|>"));
            assert_memory_equal(p, content, strlen(content));
            assert_memory_equal(p + strlen(content), "<|im_end|>", strlen("<|im_end|>"));
            n++;
        }
        assert_int_equal(n, spans.len);
        g->masks += n > 0;
    }
    json_decref(vars);
    trl_str_release(&out);
    trl_spans_release(&spans);
}

static void open_golden(struct golden *g, const char *tokenizer, const char *file)
{
    char path[256];
    struct trl_err err = {0};
    json_error_t je;
    snprintf(path, sizeof(path), "golden/tokenizers/%s/tokenizer_config.json", tokenizer);
    json_t *config = json_load_file(trl_test_data(path), 0, &je);
    assert_non_null(config);
    *g = (struct golden){.special = json_object()};
    add_special(g->special, config);
    if (file) {
        char *source;
        size_t len;
        assert_trl_ok(trl_file_read(trl_test_data(file), 1 << 20, &source, &len, &err), &err);
        assert_trl_ok(trl_template_compile(&g->t, source, len, file, &err), &err);
        trl_free(source);
    } else {
        const json_t *t = json_object_get(config, "chat_template");
        assert_trl_ok(trl_template_compile(
                          &g->t, json_string_value(t), json_string_length(t), tokenizer, &err),
            &err);
    }
    json_decref(config);
}

static void close_golden(struct golden *g)
{
    trl_template_free(g->t);
    json_decref(g->special);
}

static void check_tokenizer(
    const char *tokenizer, const char *file, const char *vectors, bool masks)
{
    char path[256];
    struct golden g;
    open_golden(&g, tokenizer, file);
    snprintf(path, sizeof(path), "golden/tokenizer-vectors/%s.chat.jsonl", vectors);
    assert_true(each_line(trl_test_data(path), check_line, &g) > 0);
    assert_int_equal(g.masks > 0, masks);
    close_golden(&g);
}

static void test_gpt2(void **state)
{
    check_tokenizer("tok-gpt2", NULL, "tok-gpt2", true);
}

static void test_llama3(void **state)
{
    check_tokenizer("tok-llama3", NULL, "tok-llama3", false);
}

static void test_qwen2(void **state)
{
    check_tokenizer("tok-qwen2", NULL, "tok-qwen2", false);
}

static void test_qwen2_generation(void **state)
{
    check_tokenizer("tok-qwen2", "golden/tokenizers/chatml_generation.jinja",
        "tok-qwen2+chatml_generation", true);
}

static void test_smol(void **state)
{
    check_tokenizer("tok-smol", NULL, "tok-smol", true);
}

struct shared {
    const struct golden *g;
    const json_t *vars;
    const char *want;
    int wrong[4];
};

static void render_many(void *ctx, int thread, int n_threads)
{
    struct shared *s = ctx;
    struct trl_str out = {0};
    for (int i = 0; i < 200; i++) {
        trl_str_clear(&out);
        s->wrong[thread] += trl_template_render(s->g->t, s->vars, &out, NULL, NULL) != 0 ||
            strcmp(trl_str_get(&out), s->want) != 0;
    }
    trl_str_release(&out);
}

static void test_threads(void **state)
{
    struct golden g;
    struct trl_err err = {0};
    struct trl_pool *pool;
    struct trl_str out = {0};
    open_golden(&g, "tok-llama3", NULL);
    json_t *vars =
        json_pack("{s:[{s:s,s:s},{s:s,s:s}],s:b,s:s}", "messages", "role", "user", "content", "Hi",
            "role", "assistant", "content", "Yo", "add_generation_prompt", 1, "bos_token", "<s>");
    assert_trl_ok(trl_template_render(g.t, vars, &out, NULL, &err), &err);
    struct shared s = {.g = &g, .vars = vars, .want = trl_str_get(&out)};
    assert_trl_ok(trl_pool_new(&pool, 4, NULL, NULL, &err), &err);
    trl_pool_run(pool, render_many, &s);
    for (int i = 0; i < 4; i++)
        assert_int_equal(s.wrong[i], 0);
    trl_pool_free(pool);
    trl_str_release(&out);
    json_decref(vars);
    close_golden(&g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_gpt2),
        cmocka_unit_test(test_llama3),
        cmocka_unit_test(test_qwen2),
        cmocka_unit_test(test_qwen2_generation),
        cmocka_unit_test(test_smol),
        cmocka_unit_test(test_threads),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
