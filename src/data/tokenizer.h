/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TRL_DATA_TOKENIZER_H
#define TRL_DATA_TOKENIZER_H
/*
 * Tokenizers of the Hugging Face `tokenizers` library (tokenizer.json), and of GGUF files. Read-only after open and
 * usable from many threads at once; each thread brings its own trl_tok_scratch (word cache, PCRE2 match data).
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/str.h"

struct trl_tokenizer;

/* path: a model folder (tokenizer.json, tokenizer_config.json, chat_template.jinja ...) or a .gguf file. */
int trl_tokenizer_open(struct trl_tokenizer **ret, const char *path, struct trl_err *err);
/* The same from texts; config may be NULL. `origin` names the source in errors. */
int trl_tokenizer_open_json(struct trl_tokenizer **ret, const char *json, size_t json_len, const char *config,
    size_t config_len, const char *origin, struct trl_err *err);
void trl_tokenizer_free(struct trl_tokenizer *t);

struct trl_tok_scratch;
int trl_tok_scratch_new(struct trl_tok_scratch **ret, const struct trl_tokenizer *t, struct trl_err *err);
void trl_tok_scratch_free(struct trl_tok_scratch *s);

struct trl_ids {
    int32_t *ids;      /* [len] */
    uint32_t *begin, *end; /* [len] byte offsets into the input text, when offsets were asked for */
    size_t len, cap;
};
void trl_ids_release(struct trl_ids *ids);

enum {
    TRL_TOK_ADD_SPECIAL = 1, /* run the post-processor's template (BOS ...) */
    TRL_TOK_OFFSETS = 2,
};
/* Appends to *out. `text` must be valid UTF-8 (checked). */
int trl_tokenizer_encode(const struct trl_tokenizer *t, struct trl_tok_scratch *s, const char *text, size_t len,
    unsigned flags, struct trl_ids *out, struct trl_err *err);
int trl_tokenizer_decode(const struct trl_tokenizer *t, const int32_t *ids, size_t n, bool skip_special,
    struct trl_str *out, struct trl_err *err);

int64_t trl_tokenizer_vocab_size(const struct trl_tokenizer *t); /* largest id + 1 */
int trl_tokenizer_find(const struct trl_tokenizer *t, const char *token); /* id or -1; exact token content */
const char *trl_tokenizer_token(const struct trl_tokenizer *t, int id);   /* content as in the vocabulary, or NULL */
bool trl_tokenizer_is_special(const struct trl_tokenizer *t, int id);

enum trl_special { TRL_TOKEN_BOS, TRL_TOKEN_EOS, TRL_TOKEN_PAD, TRL_TOKEN_UNK, TRL_TOKEN_MAX_ };
/* From tokenizer_config.json; -1 / NULL when not set. */
int trl_tokenizer_special_id(const struct trl_tokenizer *t, enum trl_special which);
const char *trl_tokenizer_special(const struct trl_tokenizer *t, enum trl_special which);
/* eos_token / pad_token options: the token must exist. */
int trl_tokenizer_set_special(struct trl_tokenizer *t, enum trl_special which, const char *token, struct trl_err *err);
/* Every special token of tokenizer_config.json by its name ("bos_token", "image_token"...) for templates:
 * fn(ctx, name, content). */
void trl_tokenizer_each_special(const struct trl_tokenizer *t, void (*fn)(void *ctx, const char *name, const char *token),
    void *ctx);

/* The chat template (chat_template.jinja wins over tokenizer_config.json; name NULL = "default"), or NULL. Borrowed. */
const char *trl_tokenizer_chat_template(const struct trl_tokenizer *t, const char *name);
/* Write the tokenizer files into `dir`: files of a folder are copied unchanged (the chat template goes to chat_template.jinja,
 * replaced when `chat_template` is given); from a GGUF they are written anew. */
int trl_tokenizer_save(const struct trl_tokenizer *t, const char *dir, const char *chat_template, struct trl_err *err);

#endif
