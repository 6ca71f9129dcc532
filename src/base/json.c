/* SPDX-License-Identifier: Apache-2.0 */
#include "base/json.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"

static const char *const words[] = {"NaN", "Infinity", "-Infinity"};

static bool is_word(const char *text)
{
    for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++)
        if (!strcmp(text, words[i]))
            return true;
    return false;
}

json_t *trl_json_real(double v)
{
    if (isnan(v))
        return json_string("NaN");
    if (isinf(v))
        return json_string(v > 0 ? "Infinity" : "-Infinity");
    return json_real(v);
}

bool trl_json_number(const json_t *v, double *ret)
{
    if (json_is_number(v))
        *ret = json_number_value(v);
    else if (json_is_string(v) && is_word(json_string_value(v)))
        *ret = json_string_value(v)[0] == 'N' ? NAN : json_string_value(v)[0] == '-' ? -INFINITY : INFINITY;
    else
        return false;
    return true;
}

struct out {
    struct trl_str *s;
    int indent;
    bool sort;
};

static void put(const struct out *o, const json_t *v, int depth);

static void put_break(const struct out *o, int depth)
{
    if (o->indent > 0) {
        trl_str_putc(o->s, '\n');
        for (int i = 0; i < depth * o->indent; i++)
            trl_str_putc(o->s, ' ');
    }
}

static void put_array(const struct out *o, const json_t *v, int depth)
{
    size_t n = json_array_size(v);
    trl_str_putc(o->s, '[');
    for (size_t i = 0; i < n; i++) {
        if (i)
            trl_str_puts(o->s, o->indent > 0 ? "," : ", ");
        put_break(o, depth + 1);
        put(o, json_array_get(v, i), depth + 1);
    }
    if (n)
        put_break(o, depth);
    trl_str_putc(o->s, ']');
}

static void put_member(const struct out *o, bool first, const char *key, const json_t *value, int depth)
{
    if (!first)
        trl_str_puts(o->s, o->indent > 0 ? "," : ", ");
    put_break(o, depth + 1);
    trl_str_put_json(o->s, key, strlen(key));
    trl_str_puts(o->s, ": ");
    put(o, value, depth + 1);
}

static int by_text(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static void put_sorted(const struct out *o, json_t *v, size_t n, int depth)
{
    const char **keys = trl_malloc_array(n, sizeof(*keys));
    if (!keys) {
        o->s->failed = true;
        return;
    }
    const char *key;
    json_t *value;
    size_t k = 0;
    json_object_foreach(v, key, value) keys[k++] = key;
    qsort(keys, k, sizeof(*keys), by_text);
    for (size_t i = 0; i < k; i++)
        put_member(o, i == 0, keys[i], json_object_get(v, keys[i]), depth);
    trl_free(keys);
}

static void put_object(const struct out *o, json_t *v, int depth)
{
    size_t n = json_object_size(v);
    trl_str_putc(o->s, '{');
    if (o->sort) {
        put_sorted(o, v, n, depth);
    } else {
        const char *key;
        json_t *value;
        bool first = true;
        json_object_foreach(v, key, value)
        {
            put_member(o, first, key, value, depth);
            first = false;
        }
    }
    if (n)
        put_break(o, depth);
    trl_str_putc(o->s, '}');
}

static void put(const struct out *o, const json_t *v, int depth)
{
    if (depth > TRL_JSON_MAX_DEPTH) {
        trl_str_puts(o->s, "null");
        return;
    }
    switch (v ? json_typeof(v) : JSON_NULL) {
    case JSON_OBJECT:
        put_object(o, (json_t *)v, depth);
        break;
    case JSON_ARRAY:
        put_array(o, v, depth);
        break;
    case JSON_STRING:
        if (is_word(json_string_value(v)))
            trl_str_puts(o->s, json_string_value(v));
        else
            trl_str_put_json(o->s, json_string_value(v), json_string_length(v));
        break;
    case JSON_INTEGER:
        trl_str_printf(o->s, "%" JSON_INTEGER_FORMAT, json_integer_value(v));
        break;
    case JSON_REAL:
        trl_str_put_double(o->s, json_real_value(v));
        break;
    case JSON_TRUE:
    case JSON_FALSE:
        trl_str_puts(o->s, json_is_true(v) ? "true" : "false");
        break;
    default:
        trl_str_puts(o->s, "null");
    }
}

void trl_json_put(struct trl_str *s, const json_t *v, int indent, bool sort_keys)
{
    struct out o = {s, indent, sort_keys};
    put(&o, v, 0);
}

/* Length of the bare word at p, 0: none. Inside a number or name ("1NaN") it stays for the parser to complain about. */
static size_t word_at(const char *p, const char *end)
{
    for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++) {
        size_t n = strlen(words[i]);
        if ((size_t)(end - p) >= n && !memcmp(p, words[i], n))
            return n;
    }
    return 0;
}

/* Length of the integer at p when it needs more than 64 bits, else 0: Python writes such, jansson refuses them. */
static size_t big_integer_at(const char *p, const char *end)
{
    size_t n = 0;
    while ((size_t)(end - p) > n && p[n] >= '0' && p[n] <= '9')
        n++;
    bool more = (size_t)(end - p) > n && (p[n] == '.' || p[n] == 'e' || p[n] == 'E');
    char text[20];
    long long v;
    if (n < 19 || more)
        return 0;
    snprintf(text, sizeof(text), "%.19s", p);
    return n == 19 && trl_parse_i64(text, &v) ? 0 : n;
}

/* Python's bare words become strings, integers beyond 64 bits reals. */
static void quote_words(struct trl_str *s, const char *text, size_t len)
{
    const char *p = text, *end = text + len, *from = text;
    bool in_string = false;
    while (p < end) {
        size_t n;
        if (in_string && *p == '\\' && end - p > 1) {
            p += 2;
            continue;
        }
        if (*p == '"')
            in_string = !in_string;
        if (!in_string && *p >= '0' && *p <= '9') {
            bool whole = p == text || !strchr("0123456789.eE+", p[-1]);
            if (whole && (n = big_integer_at(p, end)) > 0) {
                trl_str_append(s, from, (size_t)(p + n - from));
                trl_str_puts(s, ".0");
                p += n;
                from = p;
                continue;
            }
        }
        if (!in_string && (*p == 'N' || *p == 'I' || *p == '-') && (n = word_at(p, end)) > 0) {
            trl_str_append(s, from, (size_t)(p - from));
            trl_str_putc(s, '"');
            trl_str_append(s, p, n);
            trl_str_putc(s, '"');
            p += n;
            from = p;
            continue;
        }
        p++;
    }
    trl_str_append(s, from, (size_t)(end - from));
}

int trl_json_parse(const char *text, size_t len, const char *what, json_t **ret, struct trl_err *err)
{
    struct trl_str s = {0};
    json_error_t e;
    quote_words(&s, text, len);
    int rc = trl_str_check(&s, err);
    if (rc == 0) {
        json_t *v = json_loadb(trl_str_get(&s), s.len, 0, &e);
        if (v)
            *ret = v;
        else
            rc = trl_fail(err, TRL_E_PARSE, "%s:%d:%d: %s", what, e.line, e.column, e.text);
    }
    trl_str_release(&s);
    return rc;
}
