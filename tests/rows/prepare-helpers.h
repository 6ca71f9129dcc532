/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TRL_TESTS_PREPARE_HELPERS_H
#define TRL_TESTS_PREPARE_HELPERS_H
/* A run's data from options, as the trainer opens it. */
#include "rows-helpers.h"

#include "base/threads.h"
#include "config/config.h"
#include "data/dataset.h"

struct prepared {
    struct trl_config cfg;
    struct trl_tokenizer *tok;
    struct trl_template *tpl;
    struct trl_pool *pool;
    struct trl_dataset *train, *eval;
    struct trl_err err;
    int rc;
};

static inline void prepared_release(struct prepared *p)
{
    trl_dataset_free(p->train);
    trl_dataset_free(p->eval);
    trl_template_free(p->tpl);
    trl_tokenizer_free(p->tok);
    trl_pool_free(p->pool);
    trl_config_release(&p->cfg);
}

/* "key=value" arguments; argv[0..n) live until release. */
static inline void prepare_with(struct prepared *p, const char *model, char **argv, int n, int threads, int64_t vocab,
    int64_t positions)
{
    char dir[512];
    *p = (struct prepared){0};
    p->rc = trl_config_parse(&p->cfg, "sft", n, argv, &p->err);
    if (p->rc != 0)
        return; /* the option table refuses it already */
    snprintf(dir, sizeof(dir), "golden/models/%s", model);
    assert_trl_ok(trl_tokenizer_open(&p->tok, trl_test_data(dir), &p->err), &p->err);
    if (p->cfg.eos_token)
        assert_trl_ok(trl_tokenizer_set_special(p->tok, TRL_TOKEN_EOS, p->cfg.eos_token, &p->err), &p->err);
    if (p->cfg.chat_template_path) {
        char *text;
        size_t len;
        assert_trl_ok(trl_file_read(p->cfg.chat_template_path, 1 << 20, &text, &len, &p->err), &p->err);
        assert_trl_ok(trl_template_compile(&p->tpl, text, len, p->cfg.chat_template_path, &p->err), &p->err);
        trl_free(text);
    } else if (trl_tokenizer_chat_template(p->tok, NULL)) {
        const char *text = trl_tokenizer_chat_template(p->tok, NULL);
        assert_trl_ok(trl_template_compile(&p->tpl, text, strlen(text), "chat template", &p->err), &p->err);
    }
    if (threads > 1)
        assert_trl_ok(trl_pool_new(&p->pool, threads, NULL, NULL, &p->err), &p->err);
    struct trl_sft_prepare ask = {.cfg = &p->cfg, .tok = p->tok, .tpl = p->tpl, .pool = p->pool, .vocab_size = vocab,
        .max_positions = positions};
    p->rc = trl_dataset_open_sft(&p->train, &p->eval, &ask, &p->err);
}

#define PREPARE(p, model, ...)                                                                     \
    do {                                                                                           \
        const char *args_[] = {"--model_name_or_path", "none", "--use_cpu", __VA_ARGS__};          \
        prepare_with(p, model, (char **)(uintptr_t)args_, (int)COUNT(args_), 2, 0, 0);             \
    } while (0)

#endif
