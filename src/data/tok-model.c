/* SPDX-License-Identifier: Apache-2.0 */
/* The model part of tokenizer.json: which kind, its vocabulary; WordLevel and WordPiece as a whole.
 */
#include <string.h>

#include "base/alloc.h"
#include "data/tok-internal.h"

/* {token: id, ...} */
static int load_vocab(struct trl_tokenizer *t, const struct tok_json *j, struct trl_err *err)
{
    struct tok_scan sc;
    const char *s;
    size_t n;
    int64_t id;
    int rc;
    trl__tok_scan_init(&sc, j, j->vocab, j->vocab_len);
    if ((rc = trl__tok_scan_expect(&sc, '{', "\"vocab\"", err)) || trl__tok_scan_is(&sc, '}'))
        goto out;
    do {
        if ((rc = trl__tok_scan_str(&sc, &s, &n, err)) ||
            (rc = trl__tok_scan_expect(&sc, ':', "\"vocab\"", err)) ||
            (rc = trl__tok_scan_int(&sc, &id, err)) ||
            (rc = trl__vocab_add(&t->vocab, s, n, id, t->origin, err)))
            goto out;
    } while (trl__tok_scan_is(&sc, ','));
    if (!(rc = trl__tok_scan_expect(&sc, '}', "\"vocab\"", err)))
        rc = trl__tok_scan_end(&sc, err);
out:
    trl__tok_scan_release(&sc);
    return rc;
}

/* Old files have no type: a Unigram vocabulary is a list, only BPE has merges, WordPiece has a
 * prefix. */
static const char *guess_type(const struct tok_json *j, const json_t *m)
{
    if (j->vocab && j->vocab[0] == '[')
        return "Unigram";
    if (j->merges)
        return "BPE";
    return json_object_get(m, "continuing_subword_prefix") ? "WordPiece" : "WordLevel";
}

static int load_words(struct trl_tokenizer *t, const json_t *m, struct trl_err *err)
{
    struct tok_model *w = &t->model;
    char where[512];
    const char *s = "[UNK]", *prefix = "##";
    size_t n = 5, prefix_len = 2;
    int rc;
    snprintf(where, sizeof(where), "%s: model", t->origin);
    w->max_chars = 100;
    if ((rc = trl__tok_get_str(m, "unk_token", false, &s, &n, where, err)) ||
        (rc = trl__tok_get_str(
             m, "continuing_subword_prefix", false, &prefix, &prefix_len, where, err)) ||
        (rc = trl__tok_get_int(m, "max_input_chars_per_word", &w->max_chars, where, err)))
        return rc;
    w->unk_id = trl__vocab_find(&t->vocab, s, n);
    w->prefix = trl_arena_strndup(&t->arena, prefix, prefix_len);
    w->prefix_len = prefix_len;
    return w->prefix ? 0 : trl_fail_nomem(err, prefix_len, where);
}

int trl__model_load(struct trl_tokenizer *t, const struct tok_json *j, struct trl_err *err)
{
    static const char *const names[] = {"BPE", "Unigram", "WordLevel", "WordPiece"};
    const json_t *m = json_object_get(j->rest, "model");
    const char *type = NULL;
    size_t n;
    int rc, kind = 0;
    if (!json_is_object(m))
        return trl_fail(err, TRL_E_DATA, "%s: no object 'model'", t->origin);
    if ((rc = trl__tok_get_str(m, "type", false, &type, &n, t->origin, err)))
        return rc;
    if (!type)
        type = guess_type(j, m);
    while (kind < 4 && strcmp(type, names[kind]) != 0)
        kind++;
    if (kind == 4)
        return trl_fail(err, TRL_E_UNSUPPORTED,
            "%s: a model of type '%.60s'; BPE, Unigram, WordLevel and WordPiece are known",
            t->origin, type);
    if (!j->vocab)
        return trl_fail(err, TRL_E_DATA, "%s: the model has no 'vocab'", t->origin);
    t->model.kind = (enum tok_model_kind)kind;
    if (kind == TOK_UNIGRAM)
        return trl__unigram_load(t, j, m, err);
    if ((rc = load_vocab(t, j, err)))
        return rc;
    return kind == TOK_BPE ? trl__bpe_load(t, j, m, err) : load_words(t, m, err);
}

void trl__model_release(struct tok_model *m)
{
    trl__merges_release(&m->merges);
    trl__vocab_release(&m->raw_words);
    trl_free(m->score);
    trl_free(m->trie);
    trl_free(m->trie_id);
}

static int add_unk(
    const struct trl_tokenizer *t, struct trl_tok_scratch *s, size_t len, struct trl_err *err)
{
    if (t->model.unk_id < 0)
        return trl_fail(err, TRL_E_DATA,
            "%s: a word is not in the vocabulary, and neither is the unknown token", t->origin);
    return trl__syms_add(&s->syms, t->model.unk_id, 0, len, err);
}

static int wordlevel_word(const struct trl_tokenizer *t, struct trl_tok_scratch *s, const char *w,
    size_t len, struct trl_err *err)
{
    int32_t id = trl__vocab_find(&t->vocab, w, len);
    return id < 0 ? add_unk(t, s, len, err) : trl__syms_add(&s->syms, id, 0, len, err);
}

/* Longest piece first, then the longest continuation, and so on; a rest that has none makes the
 * whole word unknown. */
static int wordpiece_word(const struct trl_tokenizer *t, struct trl_tok_scratch *s, const char *w,
    size_t len, struct trl_err *err)
{
    const struct tok_model *m = &t->model;
    size_t first = s->syms.len;
    int64_t chars = 0;
    for (size_t i = 0; i < len; i++)
        chars += ((unsigned char)w[i] & 0xC0) != 0x80;
    if (chars > m->max_chars)
        return add_unk(t, s, len, err);
    for (size_t b = 0; b < len;) {
        int32_t id = -1;
        size_t e = len;
        while (e > b && id < 0) {
            trl_str_clear(&s->text);
            if (b > 0)
                trl_str_append(&s->text, m->prefix, m->prefix_len);
            trl_str_append(&s->text, w + b, e - b);
            int n, rc = trl_str_check(&s->text, err);
            if (rc)
                return rc;
            id = trl__vocab_find(&t->vocab, s->text.data, s->text.len);
            if (id >= 0)
                break;
            trl__uc_prev(w + b, w + e, &n);
            e -= (size_t)n;
        }
        if (id < 0) {
            s->syms.len = first;
            return add_unk(t, s, len, err);
        }
        int rc = trl__syms_add(&s->syms, id, b, e, err);
        if (rc)
            return rc;
        b = e;
    }
    return 0;
}

int trl__model_word(const struct trl_tokenizer *t, struct trl_tok_scratch *s, const char *w,
    size_t len, bool *ret_plain, struct trl_err *err)
{
    *ret_plain = true;
    switch (t->model.kind) {
    case TOK_BPE:
        return trl__bpe_word(t, s, w, len, ret_plain, err);
    case TOK_UNIGRAM:
        return trl__unigram_word(t, s, w, len, ret_plain, err);
    case TOK_WORDLEVEL:
        return wordlevel_word(t, s, w, len, err);
    case TOK_WORDPIECE:
        return wordpiece_word(t, s, w, len, err);
    }
    trl_bug("model kind %d", t->model.kind);
}
