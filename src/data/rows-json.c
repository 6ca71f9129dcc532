/* SPDX-License-Identifier: Apache-2.0 */
/*
 * JSON as pyarrow reads it, into jansson values: NaN and infinities are accepted (and become null, which equals missing), integers
 * that do not fit into 64 bits become floats, a key given twice is refused, as are lone surrogates, ill-formed UTF-8 and
 * control characters inside strings.
 */
#include "data/rows.h"

#include <string.h>

enum { DEPTH_MAX = 512 };

static json_t *read_value(struct trl_json_reader *r, int depth);

static void *fail_at(struct trl_json_reader *r, size_t at, const char *why)
{
    r->why = why;
    r->why_at = at;
    return NULL;
}

void trl_json_skip_space(struct trl_json_reader *r)
{
    while (r->at < r->len && (r->text[r->at] == ' ' || r->text[r->at] == '\n' || r->text[r->at] == '\r' || r->text[r->at] == '\t'))
        r->at++;
}

static int hex4(const struct trl_json_reader *r, size_t at)
{
    if (r->len - at < 4)
        return -1;
    int v = 0;
    for (int i = 0; i < 4; i++) {
        unsigned char c = (unsigned char)r->text[at + (size_t)i];
        int d = c >= '0' && c <= '9' ? c - '0' : (c | 32) >= 'a' && (c | 32) <= 'f' ? (c | 32) - 'a' + 10 : -1;
        if (d < 0)
            return -1;
        v = v * 16 + d;
    }
    return v;
}

/* \uXXXX behind the backslash at `at`; a pair of surrogates makes one character. */
static bool read_unicode(struct trl_json_reader *r, size_t at)
{
    int cp = hex4(r, at + 2);
    r->at = at + 6;
    if (cp < 0)
        return fail_at(r, at, "\\u needs four hexadecimal digits");
    if (cp >= 0xdc00 && cp <= 0xdfff)
        return fail_at(r, at, "a low surrogate (\\udc00 to \\udfff) without the high one before it");
    if (cp >= 0xd800 && cp <= 0xdbff) {
        int low = r->len - r->at >= 6 && r->text[r->at] == '\\' && r->text[r->at + 1] == 'u' ? hex4(r, r->at + 2) : -1;
        if (low < 0xdc00 || low > 0xdfff)
            return fail_at(r, at, "a high surrogate (\\ud800 to \\udbff) without the low one behind it");
        cp = 0x10000 + ((cp - 0xd800) << 10) + (low - 0xdc00);
        r->at += 6;
    }
    trl_str_put_utf8(&r->scratch, (unsigned)cp);
    return true;
}

static bool read_escape(struct trl_json_reader *r)
{
    static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
    size_t at = r->at;
    if (r->len - at < 2)
        return fail_at(r, at, "the string is not closed");
    char c = r->text[at + 1];
    if (c == 'u')
        return read_unicode(r, at);
    const char *p = c ? strchr(from, c) : NULL;
    if (!p)
        return fail_at(r, at, "an escape that JSON does not have (allowed: \\\" \\\\ \\/ \\b \\f \\n \\r \\t \\uXXXX)");
    trl_str_putc(&r->scratch, to[p - from]);
    r->at += 2;
    return true;
}

/* A string from its opening quote into scratch. */
static bool read_string(struct trl_json_reader *r)
{
    size_t open = r->at++;
    trl_str_clear(&r->scratch);
    for (;;) {
        size_t from = r->at;
        while (r->at < r->len && r->text[r->at] != '"' && r->text[r->at] != '\\' && (unsigned char)r->text[r->at] >= 0x20)
            r->at++;
        size_t n = r->at - from, bad = trl_utf8_check(r->text + from, n);
        if (bad < n)
            return fail_at(r, from + bad, "bytes that are not UTF-8");
        trl_str_append(&r->scratch, r->text + from, n);
        if (r->at == r->len)
            return fail_at(r, open, "the string that begins here is not closed");
        if (r->text[r->at] == '"')
            break;
        if ((unsigned char)r->text[r->at] < 0x20)
            return fail_at(r, r->at,
                r->text[r->at] == '\n' ? "the line ends inside a string (a line break is written \\n)"
                                       : "a control character inside a string (it is written \\u00XX)");
        if (!read_escape(r))
            return false;
    }
    r->at++;
    if (r->scratch.failed)
        return fail_at(r, open, "out of memory");
    return true;
}

static json_t *read_object(struct trl_json_reader *r, int depth)
{
    json_t *obj = json_object();
    size_t open = r->at++;
    trl_json_skip_space(r);
    if (r->at < r->len && r->text[r->at] == '}') {
        r->at++;
        return obj ? obj : fail_at(r, open, "out of memory");
    }
    while (obj) {
        trl_json_skip_space(r);
        size_t key_at = r->at;
        if (r->at == r->len) {
            fail_at(r, open, "the object that begins here is not closed");
            break;
        }
        if (r->text[r->at] != '"') {
            fail_at(r, r->at, r->text[r->at] == '}' ? "a comma before the closing brace" : "expected a key in double quotes");
            break;
        }
        if (!read_string(r))
            break;
        if (memchr(trl_str_get(&r->scratch), 0, r->scratch.len)) {
            fail_at(r, key_at, "a key with a NUL character");
            break;
        }
        if (json_object_get(obj, trl_str_get(&r->scratch))) {
            fail_at(r, key_at, "the same key twice in one object");
            break;
        }
        char small[128], *key = small;
        if (r->scratch.len >= sizeof(small))
            key = trl_str_take(&r->scratch);
        else
            memcpy(small, trl_str_get(&r->scratch), r->scratch.len + 1);
        trl_json_skip_space(r);
        json_t *value = NULL;
        if (!key)
            fail_at(r, key_at, "out of memory");
        else if (r->at == r->len || r->text[r->at] != ':')
            fail_at(r, r->at, "expected a colon behind the key");
        else {
            r->at++;
            value = read_value(r, depth + 1);
        }
        int set = value ? json_object_set_new_nocheck(obj, key, value) : -1;
        if (value && set != 0)
            fail_at(r, key_at, "out of memory");
        if (key != small) {
            struct trl_str old = {.data = key};
            trl_str_release(&old);
        }
        if (set != 0)
            break;
        trl_json_skip_space(r);
        if (r->at < r->len && r->text[r->at] == '}') {
            r->at++;
            return obj;
        }
        if (r->at == r->len) {
            fail_at(r, open, "the object that begins here is not closed");
            break;
        }
        if (r->text[r->at] != ',') {
            fail_at(r, r->at, "expected a comma or a closing brace");
            break;
        }
        r->at++;
    }
    json_decref(obj);
    return r->why ? NULL : fail_at(r, open, "out of memory");
}

static json_t *read_array(struct trl_json_reader *r, int depth)
{
    json_t *list = json_array();
    size_t open = r->at++;
    trl_json_skip_space(r);
    if (r->at < r->len && r->text[r->at] == ']') {
        r->at++;
        return list ? list : fail_at(r, open, "out of memory");
    }
    while (list) {
        trl_json_skip_space(r);
        if (r->at < r->len && r->text[r->at] == ']') {
            fail_at(r, r->at, "a comma before the closing bracket");
            break;
        }
        json_t *value = read_value(r, depth + 1);
        if (!value)
            break;
        if (json_array_append_new(list, value) != 0)
            break;
        trl_json_skip_space(r);
        if (r->at < r->len && r->text[r->at] == ']') {
            r->at++;
            return list;
        }
        if (r->at == r->len) {
            fail_at(r, open, "the list that begins here is not closed");
            break;
        }
        if (r->text[r->at] != ',') {
            fail_at(r, r->at, "expected a comma or a closing bracket");
            break;
        }
        r->at++;
    }
    json_decref(list);
    return r->why ? NULL : fail_at(r, open, "out of memory");
}

static size_t digits(const struct trl_json_reader *r, size_t at)
{
    size_t n = 0;
    while (at + n < r->len && r->text[at + n] >= '0' && r->text[at + n] <= '9')
        n++;
    return n;
}

static bool word(struct trl_json_reader *r, const char *w)
{
    size_t n = strlen(w);
    if (r->len - r->at < n || memcmp(r->text + r->at, w, n) != 0)
        return false;
    r->at += n;
    return true;
}

static json_t *read_number(struct trl_json_reader *r)
{
    size_t from = r->at, at = from;
    bool integer = true;
    if (r->text[at] == '-')
        at++;
    if (at < r->len && (r->text[at] == 'I' || r->text[at] == 'N')) {
        r->at = at;
        if (word(r, "Infinity") || word(r, "Inf") || word(r, "NaN"))
            return json_null();
        return fail_at(r, from, "expected a value");
    }
    size_t n = digits(r, at);
    if (n == 0)
        return fail_at(r, from, "a minus sign without a number");
    if (n > 1 && r->text[at] == '0')
        return fail_at(r, from, "a number with leading zeros");
    at += n;
    if (at < r->len && r->text[at] == '.') {
        n = digits(r, at + 1);
        if (n == 0)
            return fail_at(r, from, "a number that ends in a point");
        at += 1 + n;
        integer = false;
    }
    if (at < r->len && (r->text[at] | 32) == 'e') {
        size_t e = at + 1;
        if (e < r->len && (r->text[e] == '+' || r->text[e] == '-'))
            e++;
        n = digits(r, e);
        if (n == 0)
            return fail_at(r, from, "a number with an empty exponent");
        at = e + n;
        integer = false;
    }
    r->at = at;
    trl_str_clear(&r->scratch);
    trl_str_append(&r->scratch, r->text + from, at - from);
    long long i;
    double d;
    if (integer && trl_parse_i64(trl_str_get(&r->scratch), &i)) {
        json_t *v = json_integer(i);
        return v ? v : fail_at(r, from, "out of memory");
    }
    if (!trl_parse_f64(trl_str_get(&r->scratch), &d))
        return fail_at(r, from, "a number beyond the range of a double");
    json_t *v = json_real(d);
    return v ? v : fail_at(r, from, "a number beyond the range of a double");
}

static json_t *read_value(struct trl_json_reader *r, int depth)
{
    trl_json_skip_space(r);
    if (r->at == r->len)
        return fail_at(r, r->at, "the text ends where a value is expected");
    if (depth > DEPTH_MAX)
        return fail_at(r, r->at, "nested deeper than 512 levels");
    char c = r->text[r->at];
    size_t at = r->at;
    json_t *v = NULL;
    if (c == '{')
        return read_object(r, depth);
    if (c == '[')
        return read_array(r, depth);
    if (c == '"') {
        if (!read_string(r))
            return NULL;
        v = json_stringn_nocheck(trl_str_get(&r->scratch), r->scratch.len);
        return v ? v : fail_at(r, at, "out of memory");
    }
    if (c == '-' || (c >= '0' && c <= '9'))
        return read_number(r);
    if (word(r, "true"))
        return json_true();
    if (word(r, "false"))
        return json_false();
    if (word(r, "null") || word(r, "NaN") || word(r, "Infinity") || word(r, "Inf"))
        return json_null();
    return fail_at(r, at, "expected a value");
}

json_t *trl_json_read(struct trl_json_reader *r)
{
    r->why = NULL;
    return read_value(r, 0);
}
