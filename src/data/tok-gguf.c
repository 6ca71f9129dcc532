/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The tokenizer inside a GGUF file, written as the tokenizer.json and tokenizer_config.json that
 * say the same, and loaded from these. "gpt2" is byte-level BPE with a split pattern named by
 * tokenizer.ggml.pre; "llama" is sentencepiece BPE, whose merges follow from the scores.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/gguf.h"
#include "data/tok-internal.h"

enum { TYPE_NORMAL = 1, TYPE_UNKNOWN, TYPE_CONTROL, TYPE_USER, TYPE_UNUSED, TYPE_BYTE };

struct token {
    const char *s;
    size_t len;
    double score;
    int type;
};

struct source {
    const struct trl_gguf *g;
    const char *origin;
    struct token *token;
    size_t n;
    int64_t bos, eos, unk, pad; /* -1: none */
    bool add_bos, add_eos, add_space;
};

/* ---- split patterns by name ---- */

#define CONTRACTIONS "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
#define TAIL "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
#define LLAMA3 CONTRACTIONS "|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}" TAIL
#define QWEN2 CONTRACTIONS "|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}" TAIL
#define DEEPSEEK3 \
    "[!\"#$%&'()*+,\\-./" \
    ":;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\\r\\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+|" \
    " ?[\\p{P}\\p{S}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"

static const struct pre {
    const char *name;
    const char *split[3]; /* regexes of Split steps; none: the GPT-2 pattern of ByteLevel */
    bool digits, ignore_merges, add_bos;
} pres[] = {
    {"gpt-2", {NULL}, false, false, false},
    {"default", {NULL}, false, false, false},
    {"smollm", {NULL}, true, false, false},
    {"starcoder", {NULL}, true, false, false},
    {"refact", {NULL}, true, false, false},
    {"command-r", {NULL}, true, false, false},
    {"llama-bpe", {LLAMA3}, false, true, true},
    {"llama3", {LLAMA3}, false, true, true},
    {"llama-v3", {LLAMA3}, false, true, true},
    {"smaug-bpe", {LLAMA3}, false, false, false},
    {"qwen2", {QWEN2}, false, false, false},
    {"deepseek-r1-qwen", {QWEN2}, false, false, false},
    {"stablelm2", {QWEN2}, false, false, false},
    {"deepseek-v3",
        {"\\p{N}{1,3}",
            "[\xE4\xB8\x80-\xE9\xBE\xA5\xE3\x81\x80-\xE3\x82\x9F\xE3\x82\xA0-\xE3\x83\xBF]+",
            DEEPSEEK3},
        false, false, false},
};

static int find_pre(const struct source *s, const struct pre **ret, struct trl_err *err)
{
    const char *name = "default";
    size_t len = 7;
    int rc = trl_gguf_get_str(s->g, "tokenizer.ggml.pre", &name, &len, err);
    if (rc)
        return rc;
    for (size_t i = 0; i < sizeof(pres) / sizeof(pres[0]); i++)
        if (strlen(pres[i].name) == len && memcmp(pres[i].name, name, len) == 0) {
            *ret = &pres[i];
            return 0;
        }
    return trl_fail(err, TRL_E_UNSUPPORTED,
        "%s: tokenizer.ggml.pre '%.*s' is not supported (gpt-2, smollm, starcoder, refact, "
        "command-r, "
        "llama-bpe, smaug-bpe, qwen2, deepseek-r1-qwen, deepseek-v3 and stablelm2 are); use the "
        "model's own folder with tokenizer.json",
        s->origin, (int)(len < 60 ? len : 60), name);
}

/* ---- reading ---- */

static int read_id(const struct source *s, const char *key, int64_t *ret, struct trl_err *err)
{
    *ret = -1;
    int rc = trl_gguf_get_int(s->g, key, ret, err);
    if (rc)
        return rc;
    if (*ret == UINT32_MAX) /* "none", as some writers put it */
        *ret = -1;
    if (*ret < -1 || *ret >= (int64_t)s->n)
        return trl_fail(err, TRL_E_DATA, "%s: %s is %lld, but there are %zu tokens", s->origin, key,
            (long long)*ret, s->n);
    return 0;
}

static int read_tokens(struct source *s, struct trl_err *err)
{
    struct trl_gguf_array a, types, scores;
    double v;
    int rc;
    if ((rc = trl_gguf_get_strings(s->g, "tokenizer.ggml.tokens", &a, err)) ||
        (rc = trl_gguf_get_numbers(s->g, "tokenizer.ggml.token_type", &types, err)) ||
        (rc = trl_gguf_get_numbers(s->g, "tokenizer.ggml.scores", &scores, err)))
        return rc;
    if (a.left == 0 || a.left >= TOK_ID_MAX)
        return trl_fail(err, TRL_E_DATA,
            "%s: tokenizer.ggml.tokens holds %llu tokens; 1 to %d are possible", s->origin,
            (unsigned long long)a.left, TOK_ID_MAX - 1);
    if ((types.left && types.left != a.left) || (scores.left && scores.left != a.left))
        return trl_fail(err, TRL_E_DATA,
            "%s: tokenizer.ggml.tokens, .token_type and .scores differ in length", s->origin);
    s->n = a.left;
    s->token = trl_calloc(s->n, sizeof(*s->token));
    if (!s->token)
        return trl_fail_nomem(err, s->n * sizeof(*s->token), "the tokens");
    for (size_t i = 0; trl_gguf_array_next_str(&a, &s->token[i].s, &s->token[i].len); i++) {
        struct token *t = &s->token[i];
        t->type = trl_gguf_array_next_num(&types, &v) && v >= 1 && v <= 6 ? (int)v : TYPE_NORMAL;
        t->score = trl_gguf_array_next_num(&scores, &v) ? v : 0;
        if (!isfinite(t->score))
            return trl_fail(
                err, TRL_E_DATA, "%s: the score of token %zu is no finite number", s->origin, i);
        if (trl_utf8_check(t->s, t->len) != t->len || t->len > 65535)
            return trl_fail(err, TRL_E_DATA,
                "%s: token %zu is not valid UTF-8, or longer than 65535 bytes", s->origin, i);
    }
    if ((rc = read_id(s, "tokenizer.ggml.bos_token_id", &s->bos, err)) ||
        (rc = read_id(s, "tokenizer.ggml.eos_token_id", &s->eos, err)) ||
        (rc = read_id(s, "tokenizer.ggml.unknown_token_id", &s->unk, err)))
        return rc;
    return read_id(s, "tokenizer.ggml.padding_token_id", &s->pad, err);
}

static int read_flags(struct source *s, struct trl_err *err)
{
    int rc;
    if ((rc = trl_gguf_get_bool(s->g, "tokenizer.ggml.add_bos_token", &s->add_bos, err)) ||
        (rc = trl_gguf_get_bool(s->g, "tokenizer.ggml.add_eos_token", &s->add_eos, err)))
        return rc;
    return trl_gguf_get_bool(s->g, "tokenizer.ggml.add_space_prefix", &s->add_space, err);
}

/* ---- writing tokenizer.json ---- */

static void put_token(struct trl_str *o, const struct source *s, size_t i)
{
    trl_str_put_json(o, s->token[i].s, s->token[i].len);
}

/* Control tokens are special; user-defined ones are found in the text but are part of it. */
static void put_added(struct trl_str *o, const struct source *s, bool unknown_too)
{
    bool first = true;
    trl_str_puts(o, "\"added_tokens\":[");
    for (size_t i = 0; i < s->n; i++) {
        int type = s->token[i].type;
        bool special = type == TYPE_CONTROL || (type == TYPE_UNKNOWN && unknown_too);
        if ((!special && type != TYPE_USER) || s->token[i].len == 0)
            continue;
        trl_str_printf(o, "%s{\"id\":%zu,\"content\":", first ? "" : ",", i);
        put_token(o, s, i);
        trl_str_printf(o,
            ",\"single_word\":false,\"lstrip\":false,\"rstrip\":false,\"normalized\":false,"
            "\"special\":%s}",
            special ? "true" : "false");
        first = false;
    }
    trl_str_puts(o, "]");
}

static void put_post(struct trl_str *o, const struct source *s)
{
    bool bos = s->add_bos && s->bos >= 0, eos = s->add_eos && s->eos >= 0;
    trl_str_puts(o, "\"post_processor\":");
    if (!bos && !eos) {
        trl_str_puts(o, "null");
        return;
    }
    trl_str_puts(o, "{\"type\":\"TemplateProcessing\"");
    for (int pair = 0; pair < 2; pair++) {
        trl_str_puts(o, pair ? ",\"pair\":[" : ",\"single\":[");
        for (int k = 0; k <= pair; k++) {
            trl_str_puts(o, k ? "," : "");
            if (bos) {
                trl_str_puts(o, "{\"SpecialToken\":{\"id\":");
                put_token(o, s, (size_t)s->bos);
                trl_str_printf(o, ",\"type_id\":%d}},", k);
            }
            trl_str_printf(o, "{\"Sequence\":{\"id\":\"%c\",\"type_id\":%d}}", 'A' + k, k);
            if (eos) {
                trl_str_puts(o, ",{\"SpecialToken\":{\"id\":");
                put_token(o, s, (size_t)s->eos);
                trl_str_printf(o, ",\"type_id\":%d}}", k);
            }
        }
        trl_str_puts(o, "]");
    }
    trl_str_puts(o, ",\"special_tokens\":{");
    for (int k = 0; k < 2; k++) {
        int64_t id = k ? s->eos : s->bos;
        if (!(k ? eos && !(bos && s->eos == s->bos) : bos))
            continue;
        trl_str_puts(o, k && bos ? "," : "");
        put_token(o, s, (size_t)id);
        trl_str_puts(o, ":{\"id\":");
        put_token(o, s, (size_t)id);
        trl_str_printf(o, ",\"ids\":[%lld],\"tokens\":[", (long long)id);
        put_token(o, s, (size_t)id);
        trl_str_puts(o, "]}");
    }
    trl_str_puts(o, "}}");
}

static void put_vocab(struct trl_str *o, const struct source *s)
{
    trl_str_puts(o, "\"vocab\":{");
    for (size_t i = 0; i < s->n; i++) {
        trl_str_puts(o, i ? "," : "");
        put_token(o, s, i);
        trl_str_printf(o, ":%zu", i);
    }
    trl_str_puts(o, "}");
}

static void put_pre(struct trl_str *o, const struct pre *p)
{
    trl_str_puts(o, "\"pre_tokenizer\":{\"type\":\"Sequence\",\"pretokenizers\":[");
    if (p->digits)
        trl_str_puts(o, "{\"type\":\"Digits\",\"individual_digits\":true},");
    for (int i = 0; i < 3 && p->split[i]; i++) {
        trl_str_puts(o, "{\"type\":\"Split\",\"pattern\":{\"Regex\":");
        trl_str_put_json(o, p->split[i], strlen(p->split[i]));
        trl_str_puts(o, "},\"behavior\":\"Isolated\",\"invert\":false},");
    }
    trl_str_printf(o,
        "{\"type\":\"ByteLevel\",\"add_prefix_space\":false,\"trim_offsets\":true,\"use_regex\":%s}"
        "]}",
        p->split[0] ? "false" : "true");
}

static const char head[] = "{\"version\":\"1.0\",\"truncation\":null,\"padding\":null,";
static const char byte_decoder[] = "\"decoder\":{\"type\":\"ByteLevel\",\"add_prefix_space\":true,"
                                   "\"trim_offsets\":true,\"use_regex\":true}";

static int write_gpt2(struct source *s, struct trl_str *o, struct trl_err *err)
{
    const struct pre *p = NULL;
    struct trl_gguf_array a;
    const char *m;
    size_t n;
    bool first = true;
    int rc = find_pre(s, &p, err);
    if (rc)
        return rc;
    s->add_bos = p->add_bos;
    if ((rc = read_flags(s, err)) ||
        (rc = trl_gguf_get_strings(s->g, "tokenizer.ggml.merges", &a, err)))
        return rc;
    if (a.left == 0)
        return trl_fail(err, TRL_E_DATA, "%s: no tokenizer.ggml.merges", s->origin);
    trl_str_puts(o, head);
    put_added(o, s, false);
    trl_str_puts(o, ",\"normalizer\":");
    trl_str_puts(
        o, p->split[0] && strcmp(p->split[0], QWEN2) == 0 ? "{\"type\":\"NFC\"}," : "null,");
    put_pre(o, p);
    trl_str_puts(o, ",");
    put_post(o, s);
    trl_str_printf(o,
        ",%s,\"model\":{\"type\":\"BPE\",\"dropout\":null,\"unk_token\":null,\"continuing_subword_"
        "prefix\":null,"
        "\"end_of_word_suffix\":null,\"fuse_unk\":false,\"byte_fallback\":false,\"ignore_merges\":%"
        "s,",
        byte_decoder, p->ignore_merges ? "true" : "false");
    put_vocab(o, s);
    trl_str_puts(o, ",\"merges\":[");
    while (trl_gguf_array_next_str(&a, &m, &n)) {
        const char *space = n > 2 ? memchr(m + 1, ' ', n - 2) : NULL;
        if (!space || trl_utf8_check(m, n) != n)
            return trl_fail(err, TRL_E_DATA,
                "%s: tokenizer.ggml.merges: '%.*s' is not two tokens with a space between",
                s->origin, (int)(n < 80 ? n : 80), m);
        trl_str_puts(o, first ? "[" : ",[");
        trl_str_put_json(o, m, (size_t)(space - m));
        trl_str_puts(o, ",");
        trl_str_put_json(o, space + 1, n - (size_t)(space + 1 - m));
        trl_str_puts(o, "]");
        first = false;
    }
    trl_str_puts(o, "]}}");
    return 0;
}

/* ---- sentencepiece: merges from scores ---- */

struct pair {
    uint32_t token, left, right;
};

struct pairs {
    struct pair *at;
    size_t len, cap;
    const struct source *s;
};

/* Best score first; inside one token, the parts of best score first; else file order. */
static int cmp_pair(const void *a, const void *b, void *ctx)
{
    const struct pair *x = a, *y = b;
    const struct token *t = ((const struct source *)ctx)->token;
    if (t[x->token].score != t[y->token].score)
        return t[x->token].score < t[y->token].score ? 1 : -1;
    if (x->token != y->token)
        return x->token < y->token ? -1 : 1;
    if (t[x->left].score != t[y->left].score)
        return t[x->left].score < t[y->left].score ? 1 : -1;
    if (t[x->right].score != t[y->right].score)
        return t[x->right].score < t[y->right].score ? 1 : -1;
    return (t[x->left].len > t[y->left].len) - (t[x->left].len < t[y->left].len);
}

static int find_pairs(struct pairs *p, struct trl_err *err)
{
    const struct source *s = p->s;
    struct tok_vocab v = {.max_id = -1};
    int rc = 0;
    for (size_t i = 0; i < s->n && !rc; i++)
        rc = trl__vocab_add(&v, s->token[i].s, s->token[i].len, (int64_t)i, s->origin, err);
    for (size_t i = 0; i < s->n && !rc; i++) {
        const struct token *t = &s->token[i];
        int n;
        for (size_t k = 0; t->len < 256 && k < t->len && !rc; k += (size_t)n) {
            trl__uc_next(t->s + k, &n);
            int32_t l = k ? trl__vocab_find(&v, t->s, k) : -1,
                    r = l < 0 ? -1 : trl__vocab_find(&v, t->s + k, t->len - k);
            if (r < 0)
                continue;
            void *q = p->at;
            struct pair *add = trl__tok_append(&q, &p->len, &p->cap, sizeof(*p->at));
            p->at = q;
            if (!add)
                rc = trl_fail_nomem(err, p->len * sizeof(*p->at), "the merges");
            else
                *add = (struct pair){(uint32_t)i, (uint32_t)l, (uint32_t)r};
        }
    }
    trl__vocab_release(&v);
    if (!rc && p->len)
        qsort_r(p->at, p->len, sizeof(*p->at), cmp_pair, (void *)s);
    return rc;
}

static int write_llama(struct source *s, struct trl_str *o, struct trl_err *err)
{
    struct pairs p = {.s = s};
    s->add_bos = s->add_space = true;
    int rc = read_flags(s, err);
    if (rc || (rc = find_pairs(&p, err)))
        goto out;
    trl_str_puts(o, head);
    put_added(o, s, true);
    trl_str_puts(o,
        s->add_space ? ",\"normalizer\":{\"type\":\"Sequence\",\"normalizers\":[{\"type\":"
                       "\"Prepend\",\"prepend\":\"\xE2\x96\x81\"},"
                       "{\"type\":\"Replace\",\"pattern\":{\"String\":\" "
                       "\"},\"content\":\"\xE2\x96\x81\"}]},"
                     : ",\"normalizer\":{\"type\":\"Replace\",\"pattern\":{\"String\":\" "
                       "\"},\"content\":\"\xE2\x96\x81\"},");
    trl_str_puts(o, "\"pre_tokenizer\":null,");
    put_post(o, s);
    trl_str_printf(o,
        ",\"decoder\":{\"type\":\"Sequence\",\"decoders\":[{\"type\":\"Replace\",\"pattern\":{"
        "\"String\":\"\xE2\x96\x81\"},"
        "\"content\":\" "
        "\"},{\"type\":\"ByteFallback\"},{\"type\":\"Fuse\"}%s]},\"model\":{\"type\":\"BPE\","
        "\"dropout\":null,"
        "\"unk_token\":",
        s->add_space ? ",{\"type\":\"Strip\",\"content\":\" \",\"start\":1,\"stop\":0}" : "");
    if (s->unk >= 0)
        put_token(o, s, (size_t)s->unk);
    else
        trl_str_puts(o, "null");
    trl_str_puts(o,
        ",\"continuing_subword_prefix\":null,\"end_of_word_suffix\":null,\"fuse_unk\":true,\"byte_"
        "fallback\":true,"
        "\"ignore_merges\":false,");
    put_vocab(o, s);
    trl_str_puts(o, ",\"merges\":[");
    for (size_t i = 0; i < p.len; i++) {
        trl_str_puts(o, i ? ",[" : "[");
        put_token(o, s, p.at[i].left);
        trl_str_puts(o, ",");
        put_token(o, s, p.at[i].right);
        trl_str_puts(o, "]");
    }
    trl_str_puts(o, "]}}");
out:
    trl_free(p.at);
    return rc;
}

/* ---- tokenizer_config.json ---- */

static void put_special(struct trl_str *o, const struct source *s, const char *key, int64_t id)
{
    if (id < 0)
        return;
    trl_str_printf(o, ",\n  \"%s\": ", key);
    put_token(o, s, (size_t)id);
}

static int write_config(const struct source *s, struct trl_str *o, struct trl_err *err)
{
    const char *arch = NULL;
    size_t n = 0;
    int64_t context = 0;
    char key[256];
    int rc = trl_gguf_get_str(s->g, "general.architecture", &arch, &n, err);
    if (rc)
        return rc;
    if (arch && n < 200 && !memchr(arch, 0, n)) {
        snprintf(key, sizeof(key), "%.*s.context_length", (int)n, arch);
        if ((rc = trl_gguf_get_int(s->g, key, &context, err)))
            return rc;
    }
    trl_str_puts(o, "{\n  \"add_prefix_space\": false");
    put_special(o, s, "bos_token", s->bos);
    trl_str_puts(o, ",\n  \"clean_up_tokenization_spaces\": false");
    put_special(o, s, "eos_token", s->eos);
    if (context > 0)
        trl_str_printf(o, ",\n  \"model_max_length\": %lld", (long long)context);
    put_special(o, s, "pad_token", s->pad);
    trl_str_puts(o, ",\n  \"tokenizer_class\": \"PreTrainedTokenizerFast\"");
    put_special(o, s, "unk_token", s->unk);
    trl_str_puts(o, "\n}\n");
    return 0;
}

/* tokenizer.chat_template, and tokenizer.chat_template.NAME for the names in
 * tokenizer.chat_templates */
static int load_templates(struct trl_tokenizer *t, const struct trl_gguf *g, struct trl_err *err)
{
    struct trl_gguf_array names;
    const char *text = NULL, *name;
    size_t len = 0, n;
    char key[160], copy[64];
    int rc = trl_gguf_get_str(g, "tokenizer.chat_template", &text, &len, err);
    if (rc || (text && (rc = trl__config_add_template(t, "default", text, len, err))) ||
        (trl_gguf_has(g, "tokenizer.chat_templates") &&
            (rc = trl_gguf_get_strings(g, "tokenizer.chat_templates", &names, err))))
        return rc;
    if (!trl_gguf_has(g, "tokenizer.chat_templates"))
        return 0;
    while (trl_gguf_array_next_str(&names, &name, &n)) {
        if (n == 0 || n >= sizeof(copy) || memchr(name, '/', n) || memchr(name, 0, n))
            continue;
        snprintf(copy, sizeof(copy), "%.*s", (int)n, name);
        snprintf(key, sizeof(key), "tokenizer.chat_template.%s", copy);
        text = NULL;
        if ((rc = trl_gguf_get_str(g, key, &text, &len, err)) ||
            (text && (rc = trl__config_add_template(t, copy, text, len, err))))
            return rc;
    }
    return 0;
}

static int convert(struct trl_tokenizer *t, struct source *s, struct trl_err *err)
{
    struct trl_str json = {0}, config = {0};
    const char *model = NULL;
    size_t n = 0;
    int rc;
    if ((rc = trl_gguf_get_str(s->g, "tokenizer.ggml.model", &model, &n, err)))
        return rc;
    if (!model)
        return trl_fail(err, TRL_E_DATA,
            "%s: the GGUF file has no tokenizer (no key tokenizer.ggml.model)", s->origin);
    bool gpt2 = n == 4 && memcmp(model, "gpt2", 4) == 0,
         llama = n == 5 && memcmp(model, "llama", 5) == 0;
    if (!gpt2 && !llama)
        return trl_fail(err, TRL_E_UNSUPPORTED,
            "%s: tokenizer.ggml.model '%.*s' is not supported (gpt2 and llama are); use the "
            "model's own "
            "folder with tokenizer.json",
            s->origin, (int)(n < 60 ? n : 60), model);
    if ((rc = read_tokens(s, err)) ||
        (rc = gpt2 ? write_gpt2(s, &json, err) : write_llama(s, &json, err)) ||
        (rc = write_config(s, &config, err)) || (rc = trl_str_check(&json, err)) ||
        (rc = trl_str_check(&config, err)) || (rc = load_templates(t, s->g, err)) ||
        (rc = trl__tok_open_parsed(t, json.data, json.len, config.data, config.len, err)))
        goto out;
    t->json_len = json.len;
    t->config_len = config.len;
    t->json_text = trl_str_take(&json);
    t->config_text = trl_str_take(&config);
    if (!t->json_text || !t->config_text)
        rc = trl_fail_nomem(err, t->json_len, "the tokenizer");
out:
    trl_str_release(&json);
    trl_str_release(&config);
    return rc;
}

int trl__tok_from_gguf_reader(
    struct trl_tokenizer *t, const struct trl_gguf *g, struct trl_err *err)
{
    struct source s = {.g = g, .origin = trl_gguf_origin(g)};
    int rc = convert(t, &s, err);
    trl_free(s.token);
    return rc;
}

int trl__tok_from_gguf(struct trl_tokenizer *t, const char *path, struct trl_err *err)
{
    struct trl_gguf *g = NULL;
    int rc = trl_gguf_open(&g, path, err);
    if (!rc)
        rc = trl__tok_from_gguf_reader(t, g, err);
    trl_gguf_close(g);
    return rc;
}
