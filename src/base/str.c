/* SPDX-License-Identifier: Apache-2.0 */
#include "base/str.h"

#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"

static bool reserve(struct trl_str *s, size_t more)
{
    if (s->failed)
        return false;
    if (more > SIZE_MAX - s->len - 1) {
        s->failed = true;
        return false;
    }
    void *p = s->data;
    if (!trl_grow(&p, &s->cap, s->len + more + 1, 1)) {
        s->failed = true;
        return false;
    }
    s->data = p;
    return true;
}

void trl_str_append(struct trl_str *s, const char *data, size_t len)
{
    if (!reserve(s, len))
        return;
    if (len)
        memcpy(s->data + s->len, data, len);
    s->len += len;
    s->data[s->len] = '\0';
}

void trl_str_puts(struct trl_str *s, const char *text)
{
    trl_str_append(s, text, strlen(text));
}

void trl_str_putc(struct trl_str *s, char c)
{
    trl_str_append(s, &c, 1);
}

void trl_str_printf(struct trl_str *s, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    int n = vsnprintf(NULL, 0, fmt, ap);
    va_end(ap);
    if (n < 0) {
        s->failed = true;
        return;
    }
    if (!reserve(s, (size_t)n))
        return;
    va_start(ap, fmt);
    vsnprintf(s->data + s->len, (size_t)n + 1, fmt, ap);
    va_end(ap);
    s->len += (size_t)n;
}

void trl_str_clear(struct trl_str *s)
{
    s->len = 0;
    if (s->data)
        s->data[0] = '\0';
}

void trl_str_release(struct trl_str *s)
{
    trl_free(s->data);
    *s = (struct trl_str){0};
}

const char *trl_str_get(const struct trl_str *s)
{
    return s->data ? s->data : "";
}

char *trl_str_take(struct trl_str *s)
{
    trl_str_append(s, "", 0);
    if (s->failed) {
        trl_str_release(s);
        return NULL;
    }
    char *p = s->data;
    *s = (struct trl_str){0};
    return p;
}

int trl_str_check(const struct trl_str *s, struct trl_err *err)
{
    return s->failed ? trl_fail_nomem(err, s->len, "a text") : 0;
}

void trl_str_put_utf8(struct trl_str *s, unsigned cp)
{
    char b[4];
    size_t n;
    if (cp < 0x80) {
        b[0] = (char)cp;
        n = 1;
    } else if (cp < 0x800) {
        b[0] = (char)(0xC0 | cp >> 6);
        b[1] = (char)(0x80 | (cp & 0x3F));
        n = 2;
    } else if (cp < 0x10000) {
        b[0] = (char)(0xE0 | cp >> 12);
        b[1] = (char)(0x80 | (cp >> 6 & 0x3F));
        b[2] = (char)(0x80 | (cp & 0x3F));
        n = 3;
    } else {
        b[0] = (char)(0xF0 | cp >> 18);
        b[1] = (char)(0x80 | (cp >> 12 & 0x3F));
        b[2] = (char)(0x80 | (cp >> 6 & 0x3F));
        b[3] = (char)(0x80 | (cp & 0x3F));
        n = 4;
    }
    trl_str_append(s, b, n);
}

void trl_str_put_json(struct trl_str *s, const char *text, size_t len)
{
    trl_str_putc(s, '"');
    for (size_t i = 0; i < len; i++) {
        unsigned char c = (unsigned char)text[i];
        switch (c) {
        case '"':
            trl_str_puts(s, "\\\"");
            break;
        case '\\':
            trl_str_puts(s, "\\\\");
            break;
        case '\n':
            trl_str_puts(s, "\\n");
            break;
        case '\r':
            trl_str_puts(s, "\\r");
            break;
        case '\t':
            trl_str_puts(s, "\\t");
            break;
        default:
            if (c < 0x20)
                trl_str_printf(s, "\\u%04x", c);
            else
                trl_str_putc(s, (char)c);
        }
    }
    trl_str_putc(s, '"');
}

int trl_utf8_decode(const char *p, size_t len, unsigned *ret_cp)
{
    const unsigned char *u = (const unsigned char *)p;
    if (len == 0)
        return 0;
    if (u[0] < 0x80) {
        *ret_cp = u[0];
        return 1;
    }
    int n = u[0] >= 0xF0 ? 4 : u[0] >= 0xE0 ? 3 : 2;
    if (u[0] < 0xC2 || u[0] > 0xF4 || len < (size_t)n)
        return 0;
    unsigned cp = u[0] & (0xFFu >> (n + 1));
    for (int i = 1; i < n; i++) {
        if ((u[i] & 0xC0) != 0x80)
            return 0;
        cp = cp << 6 | (u[i] & 0x3F);
    }
    static const unsigned least[] = {0, 0, 0x80, 0x800, 0x10000};
    if (cp < least[n] || cp > 0x10FFFF || (cp >= 0xD800 && cp <= 0xDFFF))
        return 0;
    *ret_cp = cp;
    return n;
}

size_t trl_utf8_check(const char *p, size_t len)
{
    size_t i = 0;
    while (i < len) {
        if ((unsigned char)p[i] < 0x80) {
            i++;
            continue;
        }
        unsigned cp;
        int n = trl_utf8_decode(p + i, len - i, &cp);
        if (n == 0)
            return i;
        i += (size_t)n;
    }
    return len;
}

bool trl_starts_with(const char *s, const char *prefix)
{
    return strncmp(s, prefix, strlen(prefix)) == 0;
}

bool trl_ends_with(const char *s, const char *suffix)
{
    size_t n = strlen(s), m = strlen(suffix);
    return n >= m && memcmp(s + n - m, suffix, m) == 0;
}

bool trl_parse_i64(const char *s, long long *ret)
{
    char *end;
    if (!*s || *s == ' ' || (*s >= '\t' && *s <= '\r'))
        return false;
    errno = 0;
    long long v = strtoll(s, &end, 10);
    if (errno || *end)
        return false;
    *ret = v;
    return true;
}

bool trl_parse_f64(const char *s, double *ret)
{
    char *end;
    if (!*s || *s == ' ' || (*s >= '\t' && *s <= '\r'))
        return false;
    errno = 0;
    double v = strtod(s, &end);
    if (end == s || *end || (errno == ERANGE && isinf(v)))
        return false;
    *ret = v;
    return true;
}

void trl_str_put_double(struct trl_str *s, double v)
{
    if (isnan(v)) {
        trl_str_puts(s, "nan");
        return;
    }
    if (isinf(v)) {
        trl_str_puts(s, v < 0 ? "-inf" : "inf");
        return;
    }
    char b[40];
    int digits = 1;
    for (; digits <= 17; digits++) {
        snprintf(b, sizeof(b), "%.*e", digits - 1, v);
        if (strtod(b, NULL) == v)
            break;
    }
    int exp10 = (int)strtol(strchr(b, 'e') + 1, NULL, 10);
    if (exp10 < -4 || exp10 >= 16) {
        /* d.ddde-05: Python writes no ".0" in front of the exponent */
        trl_str_puts(s, b);
        return;
    }
    int decimals = digits - 1 - exp10;
    trl_str_printf(s, "%.*f", decimals > 1 ? decimals : 1, v);
}
