/* SPDX-License-Identifier: Apache-2.0 */
#include "data/tok-json.h"

#include <stdlib.h>
#include <string.h>

enum { DEPTH_MAX = 64 };

static void skip_space(struct tok_scan *s)
{
    while (s->p < s->end && (*s->p == ' ' || *s->p == '\n' || *s->p == '\t' || *s->p == '\r'))
        s->p++;
}

int trl__tok_scan_fail(const struct tok_scan *s, struct trl_err *err, const char *what)
{
    int line = 1;
    const char *bol = s->begin;
    for (const char *p = s->begin; p < s->p; p++)
        if (*p == '\n') {
            line++;
            bol = p + 1;
        }
    return trl_fail(
        err, TRL_E_PARSE, "%s:%d:%zu: %s", s->origin, line, (size_t)(s->p - bol) + 1, what);
}

void trl__tok_scan_init(struct tok_scan *s, const struct tok_json *j, const char *text, size_t len)
{
    *s = (struct tok_scan){.begin = j->begin, .p = text, .end = text + len, .origin = j->origin};
}

void trl__tok_scan_release(struct tok_scan *s)
{
    trl_str_release(&s->buf);
}

bool trl__tok_scan_is(struct tok_scan *s, char c)
{
    skip_space(s);
    if (s->p >= s->end || *s->p != c)
        return false;
    s->p++;
    return true;
}

int trl__tok_scan_expect(struct tok_scan *s, char c, const char *where, struct trl_err *err)
{
    char text[96];
    if (trl__tok_scan_is(s, c))
        return 0;
    snprintf(text, sizeof(text), "'%c' expected in %s", c, where);
    return trl__tok_scan_fail(s, err, text);
}

static int hex4(const char *p)
{
    int v = 0;
    for (int i = 0; i < 4; i++) {
        char c = p[i];
        int d = c >= '0' && c <= '9' ? c - '0'
            : c >= 'a' && c <= 'f'   ? c - 'a' + 10
            : c >= 'A' && c <= 'F'   ? c - 'A' + 10
                                     : -1;
        if (d < 0)
            return -1;
        v = v * 16 + d;
    }
    return v;
}

/* Behind "\u": four digits, and for a high surrogate the low one. Appends the character. */
static int scan_unicode(struct tok_scan *s, struct trl_err *err)
{
    int hi = s->end - s->p >= 4 ? hex4(s->p) : -1;
    if (hi < 0)
        return trl__tok_scan_fail(s, err, "four hexadecimal digits expected behind \\u");
    s->p += 4;
    unsigned cp = (unsigned)hi;
    if (hi >= 0xD800 && hi < 0xE000) {
        int lo = s->end - s->p >= 6 && s->p[0] == '\\' && s->p[1] == 'u' ? hex4(s->p + 2) : -1;
        if (hi >= 0xDC00 || lo < 0xDC00 || lo >= 0xE000)
            return trl__tok_scan_fail(s, err, "a lone surrogate in a \\u escape");
        s->p += 6;
        cp = 0x10000u + ((unsigned)(hi - 0xD800) << 10) + (unsigned)(lo - 0xDC00);
    }
    trl_str_put_utf8(&s->buf, cp);
    return 0;
}

static int scan_escape(struct tok_scan *s, struct trl_err *err)
{
    static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
    s->p++;
    if (s->p >= s->end)
        return trl__tok_scan_fail(s, err, "the text ends inside a string");
    char c = *s->p++;
    if (c == 'u')
        return scan_unicode(s, err);
    const char *hit = c ? strchr(from, c) : NULL;
    if (!hit) {
        s->p--;
        return trl__tok_scan_fail(s, err, "unknown escape in a string");
    }
    trl_str_putc(&s->buf, to[hit - from]);
    return 0;
}

int trl__tok_scan_str(struct tok_scan *s, const char **ret, size_t *ret_len, struct trl_err *err)
{
    skip_space(s);
    if (s->p >= s->end || *s->p != '"')
        return trl__tok_scan_fail(s, err, "a string expected");
    const char *start = ++s->p;
    bool escaped = false;
    for (;;) {
        const char *run = s->p;
        while (s->p < s->end && *s->p != '"' && *s->p != '\\' && (unsigned char)*s->p >= 0x20)
            s->p++;
        if (s->p >= s->end)
            return trl__tok_scan_fail(s, err, "the text ends inside a string");
        if ((unsigned char)*s->p < 0x20)
            return trl__tok_scan_fail(s, err, "a control character inside a string");
        if (*s->p == '"' && !escaped) {
            *ret = start;
            *ret_len = (size_t)(s->p - start);
            s->p++;
            return 0;
        }
        if (!escaped)
            trl_str_clear(&s->buf);
        escaped = true;
        trl_str_append(&s->buf, run, (size_t)(s->p - run));
        if (*s->p == '"')
            break;
        int rc = scan_escape(s, err);
        if (rc)
            return rc;
    }
    s->p++;
    *ret = trl_str_get(&s->buf);
    *ret_len = s->buf.len;
    return trl_str_check(&s->buf, err);
}

int trl__tok_scan_num(struct tok_scan *s, double *ret, struct trl_err *err)
{
    char text[64];
    size_t n = 0;
    skip_space(s);
    while (s->p + n < s->end && n < sizeof(text) - 1 && memchr("0123456789+-.eE", s->p[n], 15)) {
        text[n] = s->p[n];
        n++;
    }
    text[n] = '\0';
    if (n == 0 || !(text[0] == '-' || (text[0] >= '0' && text[0] <= '9')) ||
        !trl_parse_f64(text, ret))
        return trl__tok_scan_fail(s, err, "a number expected");
    s->p += n;
    return 0;
}

int trl__tok_scan_int(struct tok_scan *s, int64_t *ret, struct trl_err *err)
{
    skip_space(s);
    const char *p = s->p;
    int64_t v = 0;
    while (p < s->end && *p >= '0' && *p <= '9' && p - s->p < 18)
        v = v * 10 + (*p++ - '0');
    bool more = p < s->end && *p && memchr("0123456789+-.eE", *p, 15);
    if (p == s->p || more)
        return trl__tok_scan_fail(s, err, "an integer of at least 0 expected");
    s->p = p;
    *ret = v;
    return 0;
}

int trl__tok_scan_end(struct tok_scan *s, struct trl_err *err)
{
    skip_space(s);
    return s->p == s->end ? 0 : trl__tok_scan_fail(s, err, "unexpected text behind the value");
}

/* Skip a string without decoding it. */
static int skip_str(struct tok_scan *s, struct trl_err *err)
{
    s->p++;
    while (s->p < s->end && *s->p != '"')
        s->p += *s->p == '\\' ? 2 : 1;
    if (s->p >= s->end) {
        s->p = s->end;
        return trl__tok_scan_fail(s, err, "the text ends inside a string");
    }
    s->p++;
    return 0;
}

/* Skip a value: brackets are matched, contents are looked at later by who reads them. */
static int skip_value(struct tok_scan *s, struct trl_err *err)
{
    int depth = 0;
    skip_space(s);
    do {
        if (s->p >= s->end)
            return trl__tok_scan_fail(s, err, "the text ends inside a value");
        char c = *s->p;
        if (c == '"') {
            int rc = skip_str(s, err);
            if (rc)
                return rc;
            continue;
        }
        if (depth == 0 && (c == ',' || c == '}' || c == ']'))
            return 0; /* an empty value: its reader complains */
        if (c == '{' || c == '[') {
            if (++depth > DEPTH_MAX)
                return trl__tok_scan_fail(s, err, "nested too deeply");
        } else if (c == '}' || c == ']') {
            depth--;
        } else if (depth == 0) { /* a bare word or number */
            while (s->p < s->end && !memchr(",}] \n\t\r", *s->p, 7))
                s->p++;
            return 0;
        }
        s->p++;
    } while (depth > 0);
    return 0;
}

/* Walk the members of the object at s->p; calls on_member with s->p at the value. on_member must
 * move over it. */
static int walk_object(struct tok_scan *s,
    int (*on_member)(
        struct tok_scan *, const char *key, size_t key_len, void *ctx, struct trl_err *err),
    void *ctx, const char *where, struct trl_err *err)
{
    int rc = trl__tok_scan_expect(s, '{', where, err);
    if (rc || trl__tok_scan_is(s, '}'))
        return rc;
    do {
        const char *key;
        size_t len;
        if ((rc = trl__tok_scan_str(s, &key, &len, err)) ||
            (rc = trl__tok_scan_expect(s, ':', where, err)))
            return rc;
        skip_space(s);
        if ((rc = on_member(s, key, len, ctx, err)))
            return rc;
    } while (trl__tok_scan_is(s, ','));
    return trl__tok_scan_expect(s, '}', where, err);
}

struct split {
    struct tok_json *j;
    struct trl_str rest;
    const char *copied; /* text up to here is in `rest` */
};

/* Take a large value out: `rest` gets everything before it, and null. */
static int cut_value(
    struct tok_scan *s, struct split *sp, const char **ret, size_t *ret_len, struct trl_err *err)
{
    const char *start = s->p;
    int rc = skip_value(s, err);
    if (rc)
        return rc;
    if (*start != '{' && *start != '[')
        return 0; /* null, or an error that the reader of the rest reports */
    *ret = start;
    *ret_len = (size_t)(s->p - start);
    trl_str_append(&sp->rest, sp->copied, (size_t)(start - sp->copied));
    trl_str_puts(&sp->rest, "null");
    sp->copied = s->p;
    return 0;
}

static int on_model_member(
    struct tok_scan *s, const char *key, size_t len, void *ctx, struct trl_err *err)
{
    struct split *sp = ctx;
    if (len == 5 && memcmp(key, "vocab", 5) == 0)
        return cut_value(s, sp, &sp->j->vocab, &sp->j->vocab_len, err);
    if (len == 6 && memcmp(key, "merges", 6) == 0)
        return cut_value(s, sp, &sp->j->merges, &sp->j->merges_len, err);
    return skip_value(s, err);
}

static int on_top_member(
    struct tok_scan *s, const char *key, size_t len, void *ctx, struct trl_err *err)
{
    if (len == 5 && memcmp(key, "model", 5) == 0 && s->p < s->end && *s->p == '{')
        return walk_object(s, on_model_member, ctx, "\"model\"", err);
    return skip_value(s, err);
}

int trl__tok_json_split(
    struct tok_json *j, const char *json, size_t len, const char *origin, struct trl_err *err)
{
    *j = (struct tok_json){.begin = json, .origin = origin};
    struct tok_scan s;
    struct split sp = {.j = j, .copied = json};
    trl__tok_scan_init(&s, j, json, len);
    size_t bad = trl_utf8_check(json, len);
    int rc;
    if (bad != len) {
        s.p = json + bad;
        rc = trl__tok_scan_fail(&s, err, "ill-formed UTF-8");
        goto out;
    }
    if ((rc = walk_object(&s, on_top_member, &sp, "tokenizer.json", err)) ||
        (rc = trl__tok_scan_end(&s, err)))
        goto out;
    trl_str_append(&sp.rest, sp.copied, (size_t)(json + len - sp.copied));
    if ((rc = trl_str_check(&sp.rest, err)))
        goto out;
    json_error_t je;
    j->rest = json_loadb(
        trl_str_get(&sp.rest), sp.rest.len, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, &je);
    if (!j->rest)
        rc = trl_fail(err, TRL_E_PARSE, "%s: %s", origin, je.text);
out:
    trl_str_release(&sp.rest);
    trl__tok_scan_release(&s);
    return rc;
}

void trl__tok_json_release(struct tok_json *j)
{
    json_decref(j->rest);
    j->rest = NULL;
}

static int fail_member(
    struct trl_err *err, const char *where, const char *key, const char *want, const json_t *got)
{
    static const char *const names[] = {
        "an object", "an array", "a string", "an integer", "a number", "true", "false", "null"};
    return trl_fail(err, TRL_E_DATA, "%s: '%s' must be %s, not %s", where, key, want,
        got ? names[json_typeof(got)] : "missing");
}

int trl__tok_get_bool(
    const json_t *o, const char *key, bool *ret, const char *where, struct trl_err *err)
{
    const json_t *v = json_object_get(o, key);
    if (!v || json_is_null(v))
        return 0;
    if (!json_is_boolean(v))
        return fail_member(err, where, key, "true or false", v);
    *ret = json_is_true(v);
    return 0;
}

int trl__tok_get_int(
    const json_t *o, const char *key, int64_t *ret, const char *where, struct trl_err *err)
{
    const json_t *v = json_object_get(o, key);
    if (!v || json_is_null(v))
        return 0;
    if (!json_is_integer(v))
        return fail_member(err, where, key, "an integer", v);
    *ret = json_integer_value(v);
    return 0;
}

int trl__tok_get_str(const json_t *o, const char *key, bool need, const char **ret, size_t *ret_len,
    const char *where, struct trl_err *err)
{
    const json_t *v = json_object_get(o, key);
    if ((!v || json_is_null(v)) && !need)
        return 0;
    if (!json_is_string(v))
        return fail_member(err, where, key, "a string", v);
    *ret = json_string_value(v);
    *ret_len = json_string_length(v);
    return 0;
}
