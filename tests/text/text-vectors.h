/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TRL_TEXT_VECTORS_H
#define TRL_TEXT_VECTORS_H
/*
 * Check a tokenizer against a file of recorded results, one JSON object a line: text, ids (with
 * special tokens), ids_no_special, and of the latter decoded, decoded_skip_special, offsets (in
 * characters).
 */
#include "../trl-test.h"

#include <jansson.h>

#include "base/fileio.h"
#include "base/alloc.h"
#include "data/tokenizer.h"

static inline void check_ids(const char *file, int line, const char *what, const char *text,
    const json_t *want, const struct trl_ids *got)
{
    bool same = json_array_size(want) == got->len;
    for (size_t i = 0; same && i < got->len; i++)
        same = json_integer_value(json_array_get(want, i)) == got->ids[i];
    if (same)
        return;
    struct trl_str s = {0};
    for (size_t i = 0; i < got->len; i++)
        trl_str_printf(&s, " %d", got->ids[i]);
    char *w = json_dumps(want, JSON_COMPACT);
    fail_msg("%s:%d: %s of '%s': want %s, got%s", file, line, what, text, w, trl_str_get(&s));
}

static inline void check_decoded(const struct trl_tokenizer *t, const char *file, int line,
    const json_t *row, const char *key, const struct trl_ids *ids, bool skip)
{
    struct trl_str s = {0};
    struct trl_err err = {0};
    const json_t *want = json_object_get(row, key);
    assert_trl_ok(trl_tokenizer_decode(t, ids->ids, ids->len, skip, &s, &err), &err);
    if (s.len != json_string_length(want) ||
        memcmp(trl_str_get(&s), json_string_value(want), s.len) != 0)
        fail_msg("%s:%d: %s: want '%s', got '%s'", file, line, key, json_string_value(want),
            trl_str_get(&s));
    trl_str_release(&s);
}

/* characters of text before byte n */
static inline int char_index(const char *text, uint32_t n)
{
    int c = 0;
    for (uint32_t i = 0; i < n; i++)
        c += ((unsigned char)text[i] & 0xC0) != 0x80;
    return c;
}

static inline void check_offsets(
    const char *file, int line, const char *text, const json_t *want, const struct trl_ids *got)
{
    for (size_t i = 0; i < json_array_size(want); i++) {
        const json_t *o = json_array_get(want, i);
        int b = (int)json_integer_value(json_array_get(o, 0)),
            e = (int)json_integer_value(json_array_get(o, 1));
        int gb = char_index(text, got->begin[i]), ge = char_index(text, got->end[i]);
        if (b != gb || e != ge)
            fail_msg("%s:%d: offsets of token %zu of '%s': want %d..%d, got %d..%d", file, line, i,
                text, b, e, gb, ge);
    }
}

static inline void check_row(const struct trl_tokenizer *t, struct trl_tok_scratch *s,
    const char *file, int line, const json_t *row)
{
    const char *text = json_string_value(json_object_get(row, "text"));
    size_t len = json_string_length(json_object_get(row, "text"));
    const json_t *want;
    struct trl_ids ids = {0}, plain = {0}, off = {0};
    struct trl_err err = {0};
    assert_trl_ok(trl_tokenizer_encode(t, s, text, len, TRL_TOK_ADD_SPECIAL, &ids, &err), &err);
    if ((want = json_object_get(row, "ids")))
        check_ids(file, line, "ids", text, want, &ids);
    assert_trl_ok(trl_tokenizer_encode(t, s, text, len, 0, &plain, &err), &err);
    if ((want = json_object_get(row, "ids_no_special")))
        check_ids(file, line, "ids_no_special", text, want, &plain);
    if (json_object_get(row, "decoded"))
        check_decoded(t, file, line, row, "decoded", &plain, false);
    if (json_object_get(row, "decoded_skip_special"))
        check_decoded(t, file, line, row, "decoded_skip_special", &plain, true);
    assert_trl_ok(trl_tokenizer_encode(t, s, text, len, TRL_TOK_OFFSETS, &off, &err), &err);
    assert_int_equal(off.len, plain.len); /* offsets change nothing else */
    assert_memory_equal(off.ids ? off.ids : (int32_t *)"", plain.ids ? plain.ids : (int32_t *)"",
        plain.len * sizeof(int32_t));
    if ((want = json_object_get(row, "offsets"))) {
        assert_int_equal(json_array_size(want), off.len);
        check_offsets(file, line, text, want, &off);
    }
    trl_ids_release(&ids);
    trl_ids_release(&plain);
    trl_ids_release(&off);
}

static inline int check_vectors(const struct trl_tokenizer *t, const char *path)
{
    struct trl_tok_scratch *s = NULL;
    struct trl_err err = {0};
    char *data = NULL, *next;
    size_t len;
    int line = 0;
    assert_trl_ok(trl_tok_scratch_new(&s, t, &err), &err);
    assert_trl_ok(trl_file_read(path, 1u << 30, &data, &len, &err), &err);
    for (char *p = data; *p; p = next) {
        char *nl = strchr(p, '\n');
        next = nl ? nl + 1 : p + strlen(p);
        json_error_t je;
        json_t *row = json_loadb(p, (size_t)((nl ? nl : next) - p), JSON_ALLOW_NUL, &je);
        line++;
        if (!row)
            fail_msg("%s:%d: %s", path, line, je.text);
        check_row(t, s, trl_path_base(path), line, row);
        json_decref(row);
    }
    trl_free(data);
    trl_tok_scratch_free(s);
    return line;
}

#endif
