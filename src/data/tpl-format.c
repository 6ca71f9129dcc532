/* SPDX-License-Identifier: Apache-2.0 */
/* "..." % values, and str.format. */
#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "data/tpl-internal.h"

/* What stands between the start of a field and its type letter. */
struct spec {
    char fill[5];
    char align; /* < > = ^ or 0 */
    char sign; /* + - space or 0 */
    bool alt, zero, comma;
    int64_t width, precision; /* -1: none */
    char type;
};

enum { MAX_WIDTH = 1 << 20, MAX_PRECISION = 400 };

static int read_number(const char *s, size_t len, size_t *p, int64_t *ret)
{
    int64_t v = 0;
    size_t begin = *p;
    while (*p < len && isdigit((unsigned char)s[*p]) && v <= MAX_WIDTH)
        v = v * 10 + (s[(*p)++] - '0');
    *ret = v;
    return *p > begin;
}

static int check_spec(struct tpl_render *r, const struct spec *f)
{
    if (f->width > MAX_WIDTH)
        return tpl_raise(r, "a width of more than %d in a format", MAX_WIDTH);
    if (f->precision > MAX_PRECISION && f->type != 's')
        return tpl_raise(r, "a precision of more than %d in a format", MAX_PRECISION);
    return 0;
}

/* Pad a finished text; `prefix` bytes (sign) stay in front of zeros. */
static void put_padded(
    struct trl_str *out, const struct spec *f, const char *s, size_t len, size_t prefix, char align)
{
    int64_t n = (int64_t)tpl_utf8_count(s, len), room = f->width > n ? f->width - n : 0;
    if (f->align)
        align = f->align;
    const char *fill = f->fill[0] ? f->fill : " ";
    int64_t left = align == '>' ? room : align == '^' ? room / 2 : 0;
    if (align == '=') {
        trl_str_append(out, s, prefix);
        s += prefix;
        len -= prefix;
        left = room;
    }
    for (int64_t i = 0; i < left; i++)
        trl_str_puts(out, fill);
    trl_str_append(out, s, len);
    for (int64_t i = left; i < room; i++)
        trl_str_puts(out, fill);
}

static int put_int(struct tpl_render *r, struct trl_str *out, const struct spec *f, int64_t v)
{
    char digits[80], text[200];
    uint64_t u = v < 0 ? 0 - (uint64_t)v : (uint64_t)v;
    const char *prefix = "";
    size_t n = 0;
    switch (f->type) {
    case 'x':
    case 'X':
        snprintf(digits, sizeof(digits), f->type == 'x' ? "%llx" : "%llX", (unsigned long long)u);
        prefix = f->alt ? (f->type == 'x' ? "0x" : "0X") : "";
        break;
    case 'o':
        snprintf(digits, sizeof(digits), "%llo", (unsigned long long)u);
        prefix = f->alt ? "0o" : "";
        break;
    case 'b':
        for (int bit = 63; bit >= 0; bit--) {
            if (n || bit == 0 || (u >> bit & 1))
                digits[n++] = (char)('0' + (u >> bit & 1));
        }
        digits[n] = '\0';
        prefix = f->alt ? "0b" : "";
        break;
    case 'c': {
        struct trl_str one = {0};
        if (v < 0 || v > 0x10FFFF || (v >= 0xD800 && v <= 0xDFFF))
            return tpl_raise(r, "%%c arg not in range(0x110000)");
        trl_str_put_utf8(&one, (unsigned)v);
        put_padded(out, f, trl_str_get(&one), one.len, 0, '>');
        trl_str_release(&one);
        return 0;
    }
    default:
        snprintf(digits, sizeof(digits), "%llu", (unsigned long long)u);
        if (f->comma) {
            char with[80];
            size_t len = strlen(digits), k = 0;
            for (size_t i = 0; i < len; i++) {
                if (i && (len - i) % 3 == 0)
                    with[k++] = ',';
                with[k++] = digits[i];
            }
            with[k] = '\0';
            memcpy(digits, with, k + 1);
        }
        break;
    }
    const char *sign = v < 0 ? "-" : f->sign == '+' ? "+" : f->sign == ' ' ? " " : "";
    int len = snprintf(text, sizeof(text), "%s%s%s", sign, prefix, digits);
    put_padded(out, f, text, (size_t)len, strlen(sign) + strlen(prefix), '>');
    return 0;
}

static int put_float(struct tpl_render *r, struct trl_str *out, const struct spec *f, double v)
{
    char text[800], format[8] = "%.*f";
    int64_t precision = f->precision < 0 ? 6 : f->precision;
    if (f->comma)
        return tpl_raise(r, "',' is not supported in the format of a float");
    format[3] = f->type == '%' ? 'f' : f->type == 'F' ? 'f' : f->type;
    double abs = fabs(f->type == '%' ? v * 100 : v);
    int len;
    if (isnan(v) || isinf(v)) {
        len = snprintf(text, sizeof(text), "%s", isnan(v) ? "nan" : "inf");
    } else {
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
        len = snprintf(text, sizeof(text), format, (int)precision, abs);
#pragma GCC diagnostic pop
    }
    if (len < 0 || (size_t)len >= sizeof(text))
        return tpl_raise(r, "a number is too long in a format");
    struct trl_str s = {0};
    if (signbit(v) && !isnan(v))
        trl_str_putc(&s, '-');
    else if (f->sign == '+' || f->sign == ' ')
        trl_str_putc(&s, f->sign);
    size_t prefix = s.len;
    trl_str_append(&s, text, (size_t)len);
    if (f->type == '%')
        trl_str_putc(&s, '%');
    put_padded(out, f, trl_str_get(&s), s.len, prefix, '>');
    trl_str_release(&s);
    return 0;
}

static void put_str(
    struct trl_str *out, const struct spec *f, const char *s, size_t len, char align)
{
    if (f->precision >= 0) {
        size_t p = 0;
        for (int64_t i = 0; i < f->precision && p < len; i++) {
            p++;
            while (p < len && ((unsigned char)s[p] & 0xC0) == 0x80)
                p++;
        }
        len = p;
    }
    put_padded(out, f, s, len, 0, align);
}

/* ---- % ---- */

struct percent {
    struct tpl_render *r;
    const struct tpl_value *args; /* what stands right of % */
    const struct tpl_value *items;
    size_t n, used;
};

static int next_arg(struct percent *c, const struct tpl_value **ret)
{
    if (c->used >= c->n)
        return tpl_raise(c->r, "not enough arguments for format string");
    *ret = &c->items[c->used++];
    return 0;
}

static int put_percent(
    struct percent *c, const struct spec *f, const struct tpl_value *v, struct trl_str *out)
{
    struct tpl_render *r = c->r;
    struct trl_str s = {0};
    int rc;
    switch (f->type) {
    case 's':
    case 'r':
        rc = f->type == 's' ? tpl_print(r, v, &s) : tpl_repr(r, v, &s);
        if (rc == 0)
            put_str(out, f, trl_str_get(&s), s.len, '>');
        trl_str_release(&s);
        return rc;
    case 'c':
        if (v->kind == TPL_STR && tpl_utf8_count(v->u.str->data, v->u.str->len) == 1) {
            put_str(out, f, v->u.str->data, v->u.str->len, '>');
            return 0;
        }
        if (!tpl_is_int(v))
            return tpl_raise(r, "%%c requires int or char");
        return put_int(r, out, f, v->u.i);
    case 'd':
    case 'i':
    case 'u':
    case 'x':
    case 'X':
    case 'o':
        if (!tpl_is_num(v) || (v->kind == TPL_FLOAT && strchr("xXo", f->type)))
            return tpl_raise(
                r, "%%%c format: a real number is required, not %s", f->type, tpl_type_name(v));
        if (v->kind == TPL_FLOAT && !(fabs(v->u.f) < 9.2e18))
            return tpl_raise(r, "cannot convert this float to a 64-bit integer");
        return put_int(r, out, f, v->kind == TPL_FLOAT ? (int64_t)v->u.f : v->u.i);
    case 'f':
    case 'F':
    case 'e':
    case 'E':
    case 'g':
    case 'G':
        if (!tpl_is_num(v))
            return tpl_raise(r, "must be real number, not %s", tpl_type_name(v));
        return put_float(r, out, f, tpl_num(v));
    default:
        return tpl_raise(r, "unsupported format character '%c'",
            isprint((unsigned char)f->type) ? f->type : '?');
    }
}

/* One field from behind its '%'. */
static int percent_field(
    struct percent *c, const char *s, size_t len, size_t *p, struct trl_str *out)
{
    struct spec f = {.precision = -1};
    const struct tpl_value *v = NULL;
    int rc = 0;
    if (*p < len && s[*p] == '(') {
        size_t begin = ++*p;
        while (*p < len && s[*p] != ')')
            ++*p;
        if (*p >= len)
            return tpl_raise(c->r, "incomplete format key");
        struct tpl_value key;
        if (c->args->kind != TPL_DICT)
            return tpl_raise(c->r, "format requires a mapping");
        if ((rc = tpl_str_wrap(c->r, s + begin, *p - begin, &key)) != 0 ||
            (rc = tpl_dict_find(c->r, c->args->u.dict, &key, &v)) != 0)
            return rc;
        if (!v)
            return tpl_raise(c->r, "'%.*s'", (int)(*p - begin), s + begin);
        c->used = c->n;
        ++*p;
    }
    for (; *p < len && s[*p] && strchr("-+ 0#", s[*p]); ++*p) {
        switch (s[*p]) {
        case '-':
            f.align = '<';
            break;
        case '0':
            f.zero = true;
            break;
        case '#':
            f.alt = true;
            break;
        default:
            f.sign = f.sign == '+' ? '+' : s[*p];
        }
    }
    if (*p < len && s[*p] == '*') {
        ++*p;
        if ((rc = next_arg(c, &v)) != 0 ||
            (rc = tpl_want_int(c->r, v, "* of a format", &f.width)) != 0)
            return rc;
        v = NULL;
        if (f.width < 0) {
            f.align = '<';
            f.width = f.width < -MAX_WIDTH ? MAX_WIDTH + 1 : -f.width;
        }
    } else {
        read_number(s, len, p, &f.width);
    }
    if (*p < len && s[*p] == '.') {
        ++*p;
        read_number(s, len, p, &f.precision);
    }
    while (*p < len && s[*p] && strchr("hlL", s[*p]))
        ++*p;
    if (*p >= len)
        return tpl_raise(c->r, "incomplete format");
    f.type = s[(*p)++];
    if (f.type == '%') {
        trl_str_putc(out, '%');
        return 0;
    }
    if (f.zero && f.align != '<' && !strchr("src", f.type)) {
        f.fill[0] = '0';
        f.align = '=';
    }
    if (!v)
        rc = next_arg(c, &v);
    if (rc == 0)
        rc = check_spec(c->r, &f);
    return rc != 0 ? rc : put_percent(c, &f, v, out);
}

int tpl_format_percent(struct tpl_render *r, const struct tpl_value *fmt,
    const struct tpl_value *args, const struct tpl_value *kwargs, struct tpl_value *ret)
{
    const struct tpl_str *s = fmt->u.str;
    struct percent c = {.r = r, .args = kwargs ? kwargs : args, .items = args, .n = 1};
    struct trl_str out = {0};
    int rc = 0;
    if (args->kind == TPL_TUPLE) {
        c.items = args->u.seq->items;
        c.n = args->u.seq->len;
    }
    for (size_t p = 0; p < s->len && rc == 0 && out.len <= TPL_MAX_OUTPUT;) {
        if (s->data[p] == '%') {
            p++;
            rc = percent_field(&c, s->data, s->len, &p, &out);
        } else {
            trl_str_putc(&out, s->data[p++]);
        }
    }
    /* whatever can be indexed might be a mapping: Python lets it pass unused */
    bool indexed = c.args->kind == TPL_DICT || c.args->kind == TPL_LIST ||
        c.args->kind == TPL_RANGE || c.args->kind == TPL_UNDEF;
    if (rc == 0 && c.used < c.n && !indexed)
        rc = tpl_raise(r, "not all arguments converted during string formatting");
    if (rc == 0)
        return tpl_str_take_buf(r, &out, ret);
    trl_str_release(&out);
    return rc;
}

/* ---- str.format ---- */

static int parse_spec(struct tpl_render *r, const char *s, size_t len, struct spec *f)
{
    size_t p = 0;
    unsigned cp;
    int n = trl_utf8_decode(s, len, &cp);
    if (n > 0 && (size_t)n < len && strchr("<>=^", s[n]) && s[n]) {
        memcpy(f->fill, s, (size_t)n);
        f->align = s[n];
        p = (size_t)n + 1;
    } else if (len && s[0] && strchr("<>=^", s[0])) {
        f->align = s[p++];
    }
    if (p < len && s[p] && strchr("+- ", s[p]))
        f->sign = s[p++];
    if (p < len && s[p] == '#') {
        f->alt = true;
        p++;
    }
    if (p < len && s[p] == '0') {
        f->zero = true;
        p++;
    }
    read_number(s, len, &p, &f->width);
    if (p < len && s[p] == ',') {
        f->comma = true;
        p++;
    }
    if (p < len && s[p] == '.') {
        p++;
        if (!read_number(s, len, &p, &f->precision))
            return tpl_raise(r, "Format specifier missing precision");
    }
    if (p < len)
        f->type = s[p++];
    if (p < len)
        return tpl_raise(r, "Invalid format specifier '%.*s'", (int)(len < 80 ? len : 80), s);
    if (f->zero && !f->align)
        f->align = '=';
    if (f->zero && !f->fill[0])
        f->fill[0] = '0';
    return 0;
}

static int put_formatted(
    struct tpl_render *r, const struct tpl_value *v, const char *s, size_t len, struct trl_str *out)
{
    struct spec f = {.precision = -1};
    if (len == 0)
        return tpl_print(r, v, out);
    int rc = parse_spec(r, s, len, &f);
    if (rc == 0)
        rc = check_spec(r, &f);
    if (rc != 0)
        return rc;
    if (v->kind == TPL_STR) {
        if (f.type && f.type != 's')
            return tpl_raise(r, "Unknown format code '%c' for object of type 'str'", f.type);
        if (f.align == '=')
            return tpl_raise(r, "'=' alignment not allowed in string format specifier");
        put_str(out, &f, v->u.str->data, v->u.str->len, '<');
        return 0;
    }
    if (v->kind == TPL_FLOAT || (tpl_is_int(v) && f.type && strchr("eEfFgG%", f.type))) {
        if (f.type && strchr("eEfFgG%", f.type))
            return put_float(r, out, &f, tpl_num(v));
        if (f.type || f.precision >= 0)
            return tpl_raise(
                r, "the format '%.*s' is not supported for a float", (int)(len < 80 ? len : 80), s);
        struct trl_str text = {0};
        trl_str_put_double(&text, v->u.f);
        put_padded(out, &f, trl_str_get(&text), text.len, signbit(v->u.f) ? 1 : 0, '>');
        trl_str_release(&text);
        return 0;
    }
    if (v->kind == TPL_INT || (v->kind == TPL_BOOL && f.type)) {
        if (f.type && !strchr("bcdoxXn", f.type))
            return tpl_raise(r, "Unknown format code '%c' for object of type 'int'", f.type);
        if (f.precision >= 0)
            return tpl_raise(r, "Precision not allowed in integer format specifier");
        return put_int(r, out, &f, v->u.i);
    }
    return tpl_raise(r, "unsupported format string passed to %s.__format__", tpl_type_name(v));
}

/* The value of "name", "0", "", with .attr and [item] behind. */
static int format_value(struct tpl_render *r, const char *s, size_t len, const struct tpl_args *a,
    size_t *next, struct tpl_value *ret)
{
    size_t p = 0, begin;
    while (p < len && s[p] != '.' && s[p] != '[')
        p++;
    int64_t i = -1;
    size_t q = 0;
    if (p == 0)
        i = (int64_t)(*next)++;
    else if (!read_number(s, p, &q, &i) || q != p)
        i = -1;
    if (i >= 0) {
        if ((uint64_t)i >= a->n)
            return tpl_raise(
                r, "Replacement index %lld out of range for positional args tuple", (long long)i);
        *ret = a->v[i];
    } else {
        size_t k = 0;
        while (k < a->nk && !(strlen(a->knames[k]) == p && memcmp(a->knames[k], s, p) == 0))
            k++;
        if (k == a->nk)
            return tpl_raise(r, "'%.*s'", (int)(p < 80 ? p : 80), s);
        *ret = a->kv[k];
    }
    while (p < len) {
        struct tpl_value key, v = *ret;
        int rc;
        if (s[p++] == '.') {
            for (begin = p; p < len && s[p] != '.' && s[p] != '[';)
                p++;
            if ((rc = tpl_str_new(r, s + begin, p - begin, &key)) == 0)
                rc = tpl_getattr(r, &v, key.u.str->data, ret);
        } else {
            for (begin = p; p < len && s[p] != ']';)
                p++;
            if (p >= len)
                return tpl_raise(r, "expected '}' before end of string");
            q = begin;
            if (read_number(s, p, &q, &i) && q == p) {
                key = tpl_int(i);
                rc = 0;
            } else {
                rc = tpl_str_new(r, s + begin, p - begin, &key);
            }
            p++;
            if (rc == 0)
                rc = tpl_getitem(r, &v, &key, ret);
        }
        if (rc != 0)
            return rc;
    }
    return 0;
}

/* One field from behind its '{'. */
static int format_field(struct tpl_render *r, const struct tpl_str *s, size_t *p,
    const struct tpl_args *a, size_t *next, struct trl_str *out)
{
    size_t begin = *p, end = begin, name_end;
    while (end < s->len && s->data[end] != '}' && s->data[end] != '{')
        end++;
    if (end >= s->len)
        return tpl_raise(r, "expected '}' before end of string");
    if (s->data[end] == '{')
        return tpl_raise(r, "fields inside fields of str.format are not supported");
    *p = end + 1;
    for (name_end = begin; name_end < end && s->data[name_end] != ':' && s->data[name_end] != '!';)
        name_end++;
    struct tpl_value v;
    int rc = format_value(r, s->data + begin, name_end - begin, a, next, &v);
    if (rc == 0 && name_end < end && s->data[name_end] == '!') {
        char conv = name_end + 1 < end ? s->data[name_end + 1] : 0;
        struct trl_str text = {0};
        if (conv != 'r' && conv != 's')
            return tpl_raise(r, "only !r and !s are supported in str.format");
        rc = conv == 'r' ? tpl_repr(r, &v, &text) : tpl_print(r, &v, &text);
        if (rc == 0)
            rc = tpl_str_take_buf(r, &text, &v);
        trl_str_release(&text);
        name_end += 2;
    }
    size_t spec = name_end < end && s->data[name_end] == ':' ? name_end + 1 : end;
    return rc != 0 ? rc : put_formatted(r, &v, s->data + spec, end - spec, out);
}

int tpl_method_str_format(struct tpl_render *r, const struct tpl_value *self,
    const struct tpl_args *a, struct tpl_value *ret)
{
    const struct tpl_str *s = self->u.str;
    struct trl_str out = {0};
    size_t next = 0;
    int rc = 0;
    for (size_t p = 0; p < s->len && rc == 0 && out.len <= TPL_MAX_OUTPUT;) {
        char c = s->data[p++];
        bool twice = p < s->len && s->data[p] == c;
        if ((c == '{' || c == '}') && twice) {
            trl_str_putc(&out, c);
            p++;
        } else if (c == '{') {
            rc = format_field(r, s, &p, a, &next, &out);
        } else if (c == '}') {
            rc = tpl_raise(r, "Single '}' encountered in format string");
        } else {
            trl_str_putc(&out, c);
        }
    }
    if (rc == 0)
        return tpl_str_take_buf(r, &out, ret);
    trl_str_release(&out);
    return rc;
}
