/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TRL_DATA_TOK_INTERNAL_H
#define TRL_DATA_TOK_INTERNAL_H
/*
 * What the parts of the tokenizer share. An input text goes: added tokens (on the raw text) ->
 * normalizer -> added tokens (on the normalized text) -> pre-tokenizer (pieces) -> model (ids) ->
 * post-processor. Where a step rewrites text and offsets are wanted, an alignment says for each new
 * byte which bytes of the input it stands for.
 */
#define PCRE2_CODE_UNIT_WIDTH 8
#include <jansson.h>
#include <pcre2.h>

#include "base/arena.h"
#include "data/tok-json.h"
#include "data/tok-unicode.h"
#include "data/tok-vocab.h"
#include "data/tokenizer.h"

/* ---- text and pieces ---- */

struct tok_align {
    uint32_t b, e; /* input bytes [b, e): whole characters */
};

/* A text under work: `p` may be the input itself (align NULL: byte i is the input's byte origin +
 * i). */
struct tok_text {
    const char *p;
    size_t len;
    const struct tok_align *align; /* [len] */
    uint32_t origin;
};

struct tok_buf {
    char *data;
    struct tok_align *align; /* [len] when offsets are tracked */
    size_t len, cap, align_cap;
};

struct tok_span {
    uint32_t b, e;
};

struct tok_spans {
    struct tok_span *at;
    size_t len, cap;
};

/* One text and its pieces, rewritten in place: the two buffers take turns. */
struct tok_work {
    struct tok_text text;
    struct tok_buf buf[2];
    struct tok_spans spans[2];
    int cur_buf, cur_spans;
    bool offsets;
};

/* An output token of the model: bytes [b, e) of its piece. */
struct tok_sym {
    int32_t id;
    uint32_t b, e;
};

struct tok_syms {
    struct tok_sym *at;
    size_t len, cap;
};

/* ---- patterns ---- */

struct tok_regex {
    pcre2_code *code; /* NULL: a literal */
    const char *literal;
    size_t literal_len;
};

int trl__regex_compile(
    struct tok_regex *r, const char *pattern, size_t len, const char *where, struct trl_err *err);
/* A {"String": ..} or {"Regex": ..} object; a plain string is a literal. */
int trl__regex_load(struct tok_regex *r, struct trl_arena *a, const json_t *v, const char *where,
    struct trl_err *err);
void trl__regex_release(struct tok_regex *r);

struct trl_tok_scratch;
/* Walks over the matches in p[0, len). next: 1 a match, 0 the end, <0 an error. */
struct tok_finder {
    const struct tok_regex *r;
    struct trl_tok_scratch *s;
    const char *p;
    size_t len, pos, last_end;
    bool had_match;
};
void trl__regex_start(struct tok_finder *f, const struct tok_regex *r, struct trl_tok_scratch *s,
    const char *p, size_t len);
int trl__regex_next(struct tok_finder *f, size_t *ret_b, size_t *ret_e, struct trl_err *err);

/* ---- normalizers and pre-tokenizers: flat lists of steps ---- */

enum tok_norm_kind {
    TOK_NORM_NFC,
    TOK_NORM_NFD,
    TOK_NORM_NFKC,
    TOK_NORM_NFKD,
    TOK_NORM_LOWERCASE,
    TOK_NORM_STRIP,
    TOK_NORM_STRIP_ACCENTS,
    TOK_NORM_PREPEND,
    TOK_NORM_REPLACE,
    TOK_NORM_BYTE_LEVEL,
};

struct tok_norm {
    enum tok_norm_kind kind;
    struct tok_regex re;
    const char *content;
    size_t content_len;
    bool left, right;
};

enum tok_behavior {
    TOK_REMOVED,
    TOK_ISOLATED,
    TOK_MERGED_WITH_PREVIOUS,
    TOK_MERGED_WITH_NEXT,
    TOK_CONTIGUOUS,
};

enum tok_pre_kind {
    TOK_PRE_REGEX,
    TOK_PRE_CHARS,
    TOK_PRE_METASPACE,
    TOK_PRE_PREFIX_SPACE,
    TOK_PRE_BYTE_MAP,
    TOK_PRE_FIXED_LENGTH,
};

struct tok_pre {
    enum tok_pre_kind kind;
    enum tok_behavior behavior;
    bool invert;
    struct tok_regex re;
    bool (*is)(unsigned cp); /* TOK_PRE_CHARS; NULL: the character `cp` */
    unsigned cp;
    const char *content; /* Metaspace: the replacement */
    size_t content_len;
    int scheme; /* Metaspace: 0 always, 1 first, 2 never */
    bool split;
    int64_t length;
};

int trl__norm_load(struct trl_tokenizer *t, const json_t *v, struct trl_err *err);
int trl__norm_apply(const struct trl_tokenizer *t, struct trl_tok_scratch *s, struct tok_work *w,
    struct trl_err *err);
int trl__norm_unicode(struct tok_work *w, enum tok_norm_kind kind, struct trl_err *err);
int trl__pre_load(struct trl_tokenizer *t, const json_t *v, struct trl_err *err);
int trl__pre_apply(const struct trl_tokenizer *t, struct trl_tok_scratch *s, struct tok_work *w,
    struct trl_err *err);

/* Text rewriting. start: the other buffer, emptied. put: bytes that stand for al. finish: the
 * buffer becomes the text. */
struct tok_buf *trl__work_start(struct tok_work *w);
int trl__work_put(struct tok_work *w, struct tok_buf *b, const char *p, size_t n,
    struct tok_align al, struct trl_err *err);
int trl__work_copy(
    struct tok_work *w, struct tok_buf *b, size_t begin, size_t end, struct trl_err *err);
void trl__work_finish(struct tok_work *w, struct tok_buf *b);
struct tok_align trl__work_align(const struct tok_text *t, size_t i);
struct tok_spans *trl__work_start_spans(struct tok_work *w);
int trl__spans_add(struct tok_spans *s, size_t b, size_t e, struct trl_err *err);
void trl__work_finish_spans(struct tok_work *w, struct tok_spans *s);
void trl__work_release(struct tok_work *w);

/* ---- models ---- */

enum tok_model_kind { TOK_BPE, TOK_UNIGRAM, TOK_WORDLEVEL, TOK_WORDPIECE };

struct tok_trie_slot {
    uint64_t key; /* (node << 8 | byte) + 1; 0: empty */
    uint32_t node;
};

struct tok_model {
    enum tok_model_kind kind;
    /* BPE */
    struct tok_merges merges;
    const char *prefix, *suffix; /* continuing_subword_prefix, end_of_word_suffix; NULL: none */
    size_t prefix_len, suffix_len;
    bool byte_fallback, fuse_unk, ignore_merges;
    bool raw; /* words are raw bytes; byte_id says which token a byte is */
    int32_t byte_id[256]; /* raw: the mapped character; else the token <0xHH>; -1: none */
    bool all_bytes; /* byte fallback: all 256 exist */
    int32_t unk_id; /* -1: none */
    bool has_unk_token; /* named, but maybe not in the vocabulary */
    int32_t char_id[128]; /* ids of ASCII characters, -1: none */
    struct tok_vocab raw_words; /* raw and ignore_merges: tokens as raw bytes */
    /* Unigram */
    double *score; /* [max_id + 1] */
    double unk_score;
    struct tok_trie_slot *trie;
    uint64_t trie_mask;
    uint32_t trie_nodes;
    uint32_t trie_cap;
    int32_t *trie_id; /* [trie_nodes]; -1: no token ends here */
    /* WordPiece */
    int64_t max_chars;
};

int trl__model_load(struct trl_tokenizer *t, const struct tok_json *j, struct trl_err *err);
int trl__bpe_load(
    struct trl_tokenizer *t, const struct tok_json *j, const json_t *m, struct trl_err *err);
int trl__bpe_prepare_raw(struct trl_tokenizer *t, struct trl_err *err);
int trl__unigram_load(
    struct trl_tokenizer *t, const struct tok_json *j, const json_t *m, struct trl_err *err);
void trl__model_release(struct tok_model *m);
/* Ids of one piece, appended to s->syms. *ret_plain: each token's bytes follow the one before, and
 * all bytes are covered. */
int trl__model_word(const struct trl_tokenizer *t, struct trl_tok_scratch *s, const char *w,
    size_t len, bool *ret_plain, struct trl_err *err);
int trl__bpe_word(const struct trl_tokenizer *t, struct trl_tok_scratch *s, const char *w,
    size_t len, bool *ret_plain, struct trl_err *err);
int trl__unigram_word(const struct trl_tokenizer *t, struct trl_tok_scratch *s, const char *w,
    size_t len, bool *ret_plain, struct trl_err *err);
int trl__syms_add(struct tok_syms *s, int32_t id, size_t b, size_t e, struct trl_err *err);

/* ---- added tokens ---- */

struct tok_added {
    const char *content;
    uint32_t len;
    int32_t id;
    bool single_word, lstrip, rstrip, normalized, special;
    const char *form; /* what it decodes to: of a normalized token, the normalized content */
    uint32_t form_len;
    bool skip; /* left out when special tokens are not wanted: the form is a special token's content
                */
};

/* Sorted patterns; a search narrows the range byte by byte. */
struct tok_pattern {
    const char *s;
    uint32_t len;
    uint32_t added; /* index */
};

struct tok_matcher {
    struct tok_pattern *at;
    size_t len;
    bool first[256]; /* may a pattern begin with this byte? */
};

int trl__added_load(struct trl_tokenizer *t, const json_t *list, struct trl_err *err);
/* Add one unless its content is there; gives the id of the token. */
int trl__added_add(struct trl_tokenizer *t, const struct tok_added *a, struct trl_err *err);
const struct tok_added *trl__added_find(
    const struct trl_tokenizer *t, const char *content, size_t len);
int trl__added_prepare(
    struct trl_tokenizer *t, struct trl_err *err); /* builds the matchers; after the last add */
/* Parts of p[0, len): added >= 0 where a token is (with swallowed white space), else -1. */
struct tok_part {
    uint32_t b, e;
    int32_t added;
};
struct tok_parts {
    struct tok_part *at;
    size_t len, cap;
};
int trl__added_split(const struct trl_tokenizer *t, const struct tok_matcher *m, const char *p,
    size_t len, struct tok_parts *out, struct trl_err *err);

/* ---- post-processor and decoder ---- */

struct tok_post {
    int32_t *before, *after; /* ids that a template puts around the sequence */
    size_t n_before, n_after;
    bool trim; /* ByteLevel trim_offsets: offsets without the white space */
    bool trim_prefix_space; /* ... but for the one that add_prefix_space made */
};
int trl__post_load(struct trl_tokenizer *t, const json_t *v, struct trl_err *err);
int trl__post_template(
    struct trl_tokenizer *t, int32_t bos, int32_t eos, struct trl_err *err); /* -1: none */

enum tok_dec_kind {
    TOK_DEC_BYTE_LEVEL,
    TOK_DEC_REPLACE,
    TOK_DEC_BYTE_FALLBACK,
    TOK_DEC_FUSE,
    TOK_DEC_STRIP,
    TOK_DEC_METASPACE,
    TOK_DEC_WORDPIECE,
    TOK_DEC_BPE,
    TOK_DEC_CTC,
};

struct tok_dec {
    enum tok_dec_kind kind;
    struct tok_regex re;
    const char
        *content; /* Replace, Metaspace, WordPiece prefix, BPE suffix, CTC pad, Strip character */
    size_t content_len;
    const char *delimiter; /* CTC */
    size_t delimiter_len;
    int64_t start, stop; /* Strip */
    bool prepended; /* Metaspace: not "never" */
    bool cleanup; /* WordPiece, CTC */
};
int trl__dec_load(struct trl_tokenizer *t, const json_t *v, struct trl_err *err);

/* ---- the tokenizer ---- */

struct tok_file_template {
    const char *name;
    const char *text;
};

struct trl_tokenizer {
    struct trl_arena arena;
    const char *origin;
    struct tok_vocab vocab; /* of the model */
    struct tok_model model;
    struct tok_norm *norm;
    size_t n_norm, norm_cap;
    struct tok_pre *pre;
    size_t n_pre, pre_cap;
    bool needs_align; /* ids depend on alignments */
    struct tok_post post;
    struct tok_dec *dec;
    size_t n_dec, dec_cap;
    bool has_decoder;
    struct tok_added *added;
    size_t n_added, added_cap;
    struct tok_vocab added_ids; /* content -> index in added */
    int32_t *added_by_id; /* [added_by_id_len] index or -1 */
    size_t added_by_id_len;
    struct tok_matcher raw_match, norm_match;
    /* tokenizer_config.json */
    char *special[TRL_TOKEN_MAX_];
    bool special_changed[TRL_TOKEN_MAX_];
    struct tok_special_name {
        const char *name, *token;
    } * special_names;
    size_t n_special_names, special_names_cap;
    struct tok_file_template *templates;
    size_t n_templates, templates_cap;
    /* for saving */
    const char *folder; /* NULL: from texts */
    char *json_text, *config_text; /* NULL: in the folder */
    size_t json_len, config_len;
};

/* One thread's working memory. */
enum { TOK_CACHE_SLOTS = 32768, TOK_CACHE_KEY = 24, TOK_CACHE_SYMS = 8 };

struct tok_cache_slot {
    uint32_t hash;
    uint8_t key_len, n; /* key_len 0: empty */
    uint8_t len[TOK_CACHE_SYMS];
    char key[TOK_CACHE_KEY];
    int32_t id[TOK_CACHE_SYMS];
};

struct bpe_symbol {
    int32_t id; /* -1: merged away */
    int32_t prev, next;
    uint32_t len;
};

struct bpe_candidate {
    uint32_t rank;
    int32_t pos, id;
};

struct unigram_node {
    double score;
    int32_t start, id; /* start -1: not reached */
};

struct trl_tok_scratch {
    const struct trl_tokenizer *t;
    pcre2_match_data *match;
    pcre2_match_context *match_ctx;
    pcre2_jit_stack *jit_stack;
    struct tok_work norm, pre;
    struct tok_parts parts[2];
    struct tok_syms syms;
    struct bpe_symbol *symbol;
    size_t symbol_cap;
    struct bpe_candidate *heap;
    size_t heap_len, heap_cap;
    struct unigram_node *node;
    size_t node_cap;
    struct trl_str text; /* a word with prefix or suffix, byte-mapped text */
    struct tok_cache_slot *cache;
};

int trl__tok_open_parsed(struct trl_tokenizer *t, const char *json, size_t json_len,
    const char *config, size_t config_len, struct trl_err *err);
struct trl_tokenizer *trl__tok_new(const char *origin, struct trl_err *err);
int trl__config_load(struct trl_tokenizer *t, const char *text, size_t len, struct trl_err *err);
int trl__config_load_map(
    struct trl_tokenizer *t, const char *text, size_t len, struct trl_err *err);
int trl__config_add_template(
    struct trl_tokenizer *t, const char *name, const char *text, size_t len, struct trl_err *err);
int trl__config_templates(struct trl_tokenizer *t, const char *folder, struct trl_err *err);
int trl__tok_from_gguf(struct trl_tokenizer *t, const char *path, struct trl_err *err);
struct trl_gguf;
int trl__tok_from_gguf_reader(
    struct trl_tokenizer *t, const struct trl_gguf *g, struct trl_err *err);
/* Grow an array for one more element; zeroes the new one. Returns it, or NULL. */
void *trl__tok_append(void **array, size_t *len, size_t *cap, size_t size);

#endif
