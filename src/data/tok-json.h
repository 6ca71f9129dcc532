/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TRL_DATA_TOK_JSON_H
#define TRL_DATA_TOK_JSON_H
/*
 * Reading tokenizer.json. Its vocabulary and merges make up nearly all of the file (10 to 30 MB),
 * and a tree of a million small nodes is slow to build, so the text is split first: the two large
 * values are scanned in place, the rest goes to jansson with null in their place.
 */
#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/str.h"

struct tok_json {
    json_t *rest; /* the document, model.vocab and model.merges replaced by null; owned */
    const char *vocab; /* the value's text, or NULL when there is none or it is null */
    const char *merges;
    size_t vocab_len, merges_len;
    const char *begin; /* the whole text, for positions in errors */
    const char *origin;
};
int trl__tok_json_split(
    struct tok_json *j, const char *json, size_t len, const char *origin, struct trl_err *err);
void trl__tok_json_release(struct tok_json *j);

/* A strict reading position inside JSON text. */
struct tok_scan {
    const char *begin, *p, *end;
    const char *origin;
    struct trl_str buf; /* the last string with escapes */
};
void trl__tok_scan_init(struct tok_scan *s, const struct tok_json *j, const char *text, size_t len);
void trl__tok_scan_release(struct tok_scan *s);
/* Skip white space, then: is `c` next? Consumes it when it is. */
bool trl__tok_scan_is(struct tok_scan *s, char c);
int trl__tok_scan_expect(struct tok_scan *s, char c, const char *where, struct trl_err *err);
/* A string; valid until the next call. */
int trl__tok_scan_str(struct tok_scan *s, const char **ret, size_t *ret_len, struct trl_err *err);
int trl__tok_scan_int(struct tok_scan *s, int64_t *ret, struct trl_err *err);
int trl__tok_scan_num(struct tok_scan *s, double *ret, struct trl_err *err);
int trl__tok_scan_fail(const struct tok_scan *s, struct trl_err *err, const char *what);
int trl__tok_scan_end(struct tok_scan *s, struct trl_err *err);

/* Typed members of a JSON object; `where` names the object in errors ("tokenizer.json:
 * pre_tokenizer"). A missing or null member leaves *ret as it is, unless `need`. */
int trl__tok_get_bool(
    const json_t *o, const char *key, bool *ret, const char *where, struct trl_err *err);
int trl__tok_get_int(
    const json_t *o, const char *key, int64_t *ret, const char *where, struct trl_err *err);
int trl__tok_get_str(const json_t *o, const char *key, bool need, const char **ret, size_t *ret_len,
    const char *where, struct trl_err *err);

#endif
