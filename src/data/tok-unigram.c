/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Unigram: the pieces with the largest sum of log-probabilities. best[e] is the best way to cover
 * bytes [0, e); candidates come in order of start, then length, and only a strictly better one
 * replaces. A character that no one-character piece covers may be unk, at the smallest score
 * minus 10.
 */
#include <math.h>
#include <string.h>

#include "base/alloc.h"
#include "data/tok-internal.h"

#define UNK_PENALTY 10.0

static uint32_t trie_next(const struct tok_model *m, uint32_t node, unsigned char c)
{
    uint64_t key = ((uint64_t)node << 8 | c) + 1;
    for (uint64_t i = trl__merges_hash(key) & m->trie_mask; m->trie[i].key;
         i = (i + 1) & m->trie_mask)
        if (m->trie[i].key == key)
            return m->trie[i].node;
    return 0;
}

/* `bytes`: the length of all pieces together, an upper bound of the nodes. */
static int trie_reserve(struct tok_model *m, size_t bytes, struct trl_err *err)
{
    size_t size = 16;
    while (size < 2 * bytes)
        size *= 2;
    if (bytes >= UINT32_MAX / 4)
        return trl_fail(err, TRL_E_DATA, "a Unigram vocabulary of %zu bytes is too large", bytes);
    m->trie = trl_calloc(size, sizeof(*m->trie));
    m->trie_id = trl_malloc_array(bytes + 1, sizeof(*m->trie_id));
    if (!m->trie || !m->trie_id)
        return trl_fail_nomem(err, size * sizeof(*m->trie), "the vocabulary");
    m->trie_mask = size - 1;
    m->trie_id[0] = -1;
    m->trie_nodes = 1;
    return 0;
}

static void trie_add(struct tok_model *m, const char *s, size_t len, int32_t id)
{
    uint32_t node = 0;
    for (size_t i = 0; i < len; i++) {
        uint32_t next = trie_next(m, node, (unsigned char)s[i]);
        if (next == 0) {
            uint64_t key = ((uint64_t)node << 8 | (unsigned char)s[i]) + 1;
            uint64_t k = trl__merges_hash(key) & m->trie_mask;
            while (m->trie[k].key)
                k = (k + 1) & m->trie_mask;
            next = m->trie_nodes++;
            m->trie[k] = (struct tok_trie_slot){.key = key, .node = next};
            m->trie_id[next] = -1;
        }
        node = next;
    }
    m->trie_id[node] = id;
}

/* [[piece, log-probability], ...]; the id is the index. A piece given twice is refused. */
static int load_pieces(struct trl_tokenizer *t, const struct tok_json *j, double **ret_score,
    size_t *ret_bytes, struct trl_err *err)
{
    struct tok_scan sc;
    const char *s;
    size_t n, cap = 0;
    int64_t id = 0;
    double score;
    int rc;
    trl__tok_scan_init(&sc, j, j->vocab, j->vocab_len);
    if ((rc = trl__tok_scan_expect(&sc, '[', "\"vocab\" of a Unigram model", err)))
        goto out;
    do {
        if ((rc = trl__tok_scan_expect(&sc, '[', "a piece [text, score]", err)) ||
            (rc = trl__tok_scan_str(&sc, &s, &n, err)) ||
            (rc = trl__vocab_add(&t->vocab, s, n, id, t->origin, err)) ||
            (rc = trl__tok_scan_expect(&sc, ',', "a piece [text, score]", err)) ||
            (rc = trl__tok_scan_num(&sc, &score, err)) ||
            (rc = trl__tok_scan_expect(&sc, ']', "a piece [text, score]", err)))
            goto out;
        void *p = *ret_score;
        if (!trl_grow(&p, &cap, (size_t)id + 1, sizeof(double))) {
            rc = trl_fail_nomem(err, cap * sizeof(double), "the vocabulary");
            goto out;
        }
        *ret_score = p;
        (*ret_score)[id++] = score;
        *ret_bytes += n;
    } while (trl__tok_scan_is(&sc, ','));
    rc = trl__tok_scan_expect(&sc, ']', "\"vocab\" of a Unigram model", err);
out:
    trl__tok_scan_release(&sc);
    return rc;
}

int trl__unigram_load(
    struct trl_tokenizer *t, const struct tok_json *j, const json_t *m, struct trl_err *err)
{
    struct tok_model *u = &t->model;
    char where[512];
    int64_t unk = -1;
    size_t bytes = 0;
    double least = INFINITY;
    int rc;
    snprintf(where, sizeof(where), "%s: model", t->origin);
    if ((rc = load_pieces(t, j, &u->score, &bytes, err)) ||
        (rc = trl__tok_get_int(m, "unk_id", &unk, where, err)) ||
        (rc = trl__tok_get_bool(m, "byte_fallback", &u->byte_fallback, where, err)))
        return rc;
    if (unk > t->vocab.max_id)
        return trl_fail(err, TRL_E_DATA, "%s: 'unk_id' %lld is not in the vocabulary of %d pieces",
            where, (long long)unk, t->vocab.max_id + 1);
    u->unk_id = unk < 0 ? -1 : (int32_t)unk;
    if ((rc = trie_reserve(u, bytes + 1, err)))
        return rc;
    u->all_bytes = true;
    for (int32_t id = 0; id <= t->vocab.max_id; id++) {
        trie_add(u, t->vocab.by_id[id].s, t->vocab.by_id[id].len, id);
        least = u->score[id] < least ? u->score[id] : least;
    }
    u->trie_id[0] = -1;
    u->unk_score = least - UNK_PENALTY;
    for (unsigned i = 0; i < 256; i++) {
        char name[8];
        snprintf(name, sizeof(name), "<0x%02X>", i);
        u->byte_id[i] = trl__vocab_find(&t->vocab, name, 6);
    }
    return 0;
}

static void relax(struct unigram_node *n, double score, size_t start, int32_t id)
{
    if (n->start < 0 || score > n->score)
        *n = (struct unigram_node){.score = score, .start = (int32_t)start, .id = id};
}

/* Tokens of [b, e), which is one piece or a fused run of unk. */
static int emit(const struct trl_tokenizer *t, struct trl_tok_scratch *s, const char *w, size_t b,
    size_t e, bool *plain, struct trl_err *err)
{
    const struct tok_model *m = &t->model;
    int32_t id = trl__vocab_find(&t->vocab, w + b, e - b);
    bool all = id < 0 && m->byte_fallback;
    int rc = 0;
    for (size_t i = b; i < e && all; i++)
        all = m->byte_id[(unsigned char)w[i]] >= 0;
    if (all) { /* every byte token stands for the whole run */
        *plain = false;
        for (size_t i = b; i < e && !rc; i++)
            rc = trl__syms_add(&s->syms, m->byte_id[(unsigned char)w[i]], b, e, err);
        return rc;
    }
    if (id < 0)
        id = m->unk_id;
    if (id < 0)
        return trl_fail(err, TRL_E_DATA,
            "%s: the text holds '%.*s', which no piece covers, and the model has no unk_id",
            t->origin, (int)(e - b < 40 ? e - b : 40), w + b);
    return trl__syms_add(&s->syms, id, b, e, err);
}

int trl__unigram_word(const struct trl_tokenizer *t, struct trl_tok_scratch *s, const char *w,
    size_t len, bool *ret_plain, struct trl_err *err)
{
    const struct tok_model *m = &t->model;
    void *p = s->node;
    if (len > INT32_MAX / 2)
        return trl_fail(err, TRL_E_RANGE, "a word of %zu bytes is too long for the tokenizer", len);
    if (!trl_grow(&p, &s->node_cap, len + 1, sizeof(*s->node)))
        return trl_fail_nomem(err, (len + 1) * sizeof(*s->node), "a word");
    struct unigram_node *best = s->node = p;
    for (size_t i = 0; i <= len; i++)
        best[i] = (struct unigram_node){.start = -1};
    for (size_t b = 0; b < len;) {
        int n;
        bool single = false;
        trl__uc_next(w + b, &n);
        uint32_t node = 0;
        for (size_t e = b; e < len && (node = trie_next(m, node, (unsigned char)w[e])) != 0;) {
            e++;
            if (m->trie_id[node] < 0)
                continue;
            relax(&best[e], best[b].score + m->score[m->trie_id[node]], b, m->trie_id[node]);
            single = single || e - b == (size_t)n;
        }
        if (!single)
            relax(&best[b + (size_t)n], best[b].score + m->unk_score, b, m->unk_id);
        b += (size_t)n;
    }
    /* walk back, then turn the chain around: node[start].start becomes the end of the piece that
     * begins there */
    size_t e = len;
    int32_t id;
    int rc = 0;
    *ret_plain = true;
    size_t stop = len;
    int32_t carry_start = (int32_t)len, carry_id = -2;
    while (e > 0) {
        size_t start = (size_t)best[e].start;
        id = best[e].id;
        best[e].start = carry_start;
        best[e].id = carry_id;
        carry_start = (int32_t)e;
        carry_id = id;
        e = start;
    }
    best[0].start = carry_start;
    best[0].id = carry_id;
    for (size_t b = 0; b < len && !rc; b = stop) {
        id = best[b].id;
        stop = (size_t)best[b].start;
        while (id == m->unk_id && stop < len && best[stop].id == m->unk_id)
            stop = (size_t)best[stop].start; /* unk pieces in a row are one */
        rc = emit(t, s, w, b, stop, ret_plain, err);
    }
    return rc;
}
