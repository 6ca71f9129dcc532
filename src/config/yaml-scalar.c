/* SPDX-License-Identifier: Apache-2.0 */
#include "config/yaml.h"

#include <ctype.h>
#include <limits.h>
#include <math.h>
#include <string.h>

/* The patterns below are YAML 1.1's resolver as PyYAML has it; each scanner returns false when the
 * text is not of its kind. */

static bool is_one_of(const char *s, const char *const *words)
{
    for (; *words; words++)
        if (!strcmp(s, *words))
            return true;
    return false;
}

static bool scan_bool(const char *s, long long *ret)
{
    static const char *const yes[] = {
        "yes", "Yes", "YES", "true", "True", "TRUE", "on", "On", "ON", NULL};
    static const char *const no[] = {
        "no", "No", "NO", "false", "False", "FALSE", "off", "Off", "OFF", NULL};
    *ret = is_one_of(s, yes);
    return *ret || is_one_of(s, no);
}

static bool scan_null(const char *s)
{
    static const char *const words[] = {"", "~", "null", "Null", "NULL", NULL};
    return is_one_of(s, words);
}

static int digit_value(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    if (c >= 'a' && c <= 'f')
        return c - 'a' + 10;
    return c >= 'A' && c <= 'F' ? c - 'A' + 10 : 99;
}

struct sum {
    unsigned long long u;
    double f;
    bool big;
};

static void sum_add(struct sum *s, unsigned base, unsigned digit)
{
    s->f = s->f * base + digit;
    if (s->u > (ULLONG_MAX - digit) / base)
        s->big = true;
    else
        s->u = s->u * base + digit;
}

/* Digits of `base` and '_', to the end; at least one digit. */
static bool sum_digits(const char *s, unsigned base, struct sum *ret)
{
    bool any = false;
    for (; *s; s++) {
        if (*s == '_')
            continue;
        if (digit_value(*s) >= (int)base)
            return false;
        sum_add(ret, base, (unsigned)digit_value(*s));
        any = true;
    }
    return any;
}

/* d+(:[0-5]?d)+ up to `end`; the parts weigh 60 */
static bool sum_sixty(const char *s, const char *end, struct sum *ret)
{
    struct sum part = {0};
    int n_parts = 0, n_digits = 0;
    for (; s <= end; s++) {
        if (s < end && *s == '_' && !n_parts)
            continue;
        if (s < end && *s >= '0' && *s <= '9') {
            sum_add(&part, 10, (unsigned)(*s - '0'));
            n_digits++;
            continue;
        }
        if ((s < end && *s != ':') || !n_digits || (n_parts && (n_digits > 2 || part.f > 59)))
            return false;
        ret->f = ret->f * 60 + part.f;
        if (part.big || ret->big || ret->u > (ULLONG_MAX - part.u) / 60)
            ret->big = true;
        else
            ret->u = ret->u * 60 + part.u;
        part = (struct sum){0};
        n_digits = 0;
        n_parts++;
    }
    return n_parts > 1;
}

/* Number text without '_' through the strict reader. */
static bool read_float(const char *s, double *ret)
{
    char buf[512];
    size_t n = 0;
    for (; *s; s++) {
        if (*s == '_')
            continue;
        if (n + 1 >= sizeof(buf))
            return false;
        buf[n++] = *s;
    }
    buf[n] = 0;
    return trl_parse_f64(buf, ret);
}

static bool scan_int(const char *s, struct trl_yaml_scalar *ret)
{
    bool neg = *s == '-';
    const char *p = s + (*s == '-' || *s == '+');
    struct sum sum = {0};
    bool ok;
    if (p[0] == '0' && p[1] == 'b')
        ok = sum_digits(p + 2, 2, &sum);
    else if (p[0] == '0' && p[1] == 'x')
        ok = sum_digits(p + 2, 16, &sum);
    else if (p[0] == '0')
        ok = sum_digits(p, 8, &sum);
    else if (p[0] >= '1' && p[0] <= '9')
        ok = strchr(p, ':') ? sum_sixty(p, p + strlen(p), &sum) : sum_digits(p, 10, &sum);
    else
        ok = false;
    if (!ok)
        return false;
    ret->f = neg ? -sum.f : sum.f;
    ret->big = sum.big || sum.u > (unsigned long long)LLONG_MAX + neg;
    if (ret->big && *p != '0' && !strchr(p, ':'))
        read_float(s, &ret->f); /* rounded once */
    if (ret->big)
        ret->i = neg ? LLONG_MIN : LLONG_MAX;
    else
        ret->i = neg ? (long long)(0ULL - sum.u) : (long long)sum.u;
    return true;
}

static const char *skip_digits(const char *p)
{
    while ((*p >= '0' && *p <= '9') || *p == '_')
        p++;
    return p;
}

static bool scan_float(const char *s, double *ret)
{
    static const char *const inf[] = {".inf", ".Inf", ".INF", NULL},
                             *const nan_[] = {".nan", ".NaN", ".NAN", NULL};
    bool sign = *s == '-' || *s == '+';
    const char *p = s + sign;
    if (is_one_of(p, inf)) {
        *ret = *s == '-' ? -INFINITY : INFINITY;
        return true;
    }
    if (is_one_of(s, nan_)) {
        *ret = NAN;
        return true;
    }
    if (!(*p >= '0' && *p <= '9') && !(*p == '.' && !sign && p[1] >= '0' && p[1] <= '9'))
        return false;
    const char *dot = skip_digits(p);
    if (*dot == ':') {
        const char *end = strchr(dot, '.');
        struct sum sum = {0};
        double frac = 0;
        if (!end || *skip_digits(end + 1) || !sum_sixty(p, end, &sum))
            return false;
        if (end[strspn(end + 1, "_") + 1] && !read_float(end, &frac))
            return false;
        *ret = *s == '-' ? -(sum.f + frac) : sum.f + frac;
        return true;
    }
    if (*dot != '.')
        return false;
    const char *e = skip_digits(dot + 1);
    if (*e) { /* an exponent needs its sign */
        if ((*e != 'e' && *e != 'E') || (e[1] != '-' && e[1] != '+') ||
            !isdigit((unsigned char)e[2]))
            return false;
        for (const char *q = e + 2; *q; q++)
            if (!isdigit((unsigned char)*q))
                return false;
    }
    return read_float(s, ret);
}

/* n digits (min..max), then *p is behind them */
static bool take_digits(const char **p, int min, int max)
{
    int n = 0;
    while (n < max && isdigit((unsigned char)**p)) {
        (*p)++;
        n++;
    }
    return n >= min;
}

static bool take_char(const char **p, char c)
{
    if (**p != c)
        return false;
    (*p)++;
    return true;
}

/* yyyy-mm-dd, or yyyy-m-d, T or blanks, h:mm:ss[.f][zone] */
static bool scan_time(const char *s)
{
    const char *p = s;
    if (!take_digits(&p, 4, 4) || !take_char(&p, '-'))
        return false;
    const char *month = p;
    if (!take_digits(&p, 1, 2) || !take_char(&p, '-'))
        return false;
    bool two = p - month == 3;
    const char *day = p;
    if (!take_digits(&p, 1, 2))
        return false;
    if (!*p)
        return two && p - day == 2;
    if (*p == 'T' || *p == 't')
        p++;
    else if (*p == ' ' || *p == '\t')
        p += strspn(p, " \t");
    else
        return false;
    if (!take_digits(&p, 1, 2) || !take_char(&p, ':') || !take_digits(&p, 2, 2) ||
        !take_char(&p, ':') || !take_digits(&p, 2, 2))
        return false;
    if (take_char(&p, '.'))
        take_digits(&p, 0, 1 << 20);
    if (!*p)
        return true;
    p += strspn(p, " \t");
    if (take_char(&p, 'Z'))
        return !*p;
    if (*p != '-' && *p != '+')
        return false;
    p++;
    return take_digits(&p, 1, 2) && (!*p || (take_char(&p, ':') && take_digits(&p, 2, 2) && !*p));
}

enum trl_yaml_kind trl_yaml_resolve(const char *text, struct trl_yaml_scalar *ret)
{
    *ret = (struct trl_yaml_scalar){0};
    if (scan_null(text))
        return TRL_YAML_NULL;
    if (scan_bool(text, &ret->i))
        return TRL_YAML_BOOL;
    if (scan_int(text, ret))
        return TRL_YAML_INT;
    if (scan_float(text, &ret->f))
        return TRL_YAML_FLOAT;
    return scan_time(text) ? TRL_YAML_TIME : TRL_YAML_STR;
}

void trl_yaml_put_double(struct trl_str *s, double v)
{
    struct trl_str t = {0};
    trl_str_put_double(&t, v);
    const char *text = trl_str_get(&t), *e = strchr(text, 'e');
    if (e && !memchr(text, '.', (size_t)(e - text))) {
        trl_str_append(s, text, (size_t)(e - text));
        trl_str_puts(s, ".0");
        trl_str_puts(s, e);
    } else {
        trl_str_puts(s, text);
    }
    s->failed |= t.failed;
    trl_str_release(&t);
}

void trl_yaml_put_json(struct trl_str *s, const json_t *v)
{
    const char *key;
    json_t *item;
    size_t i;
    switch (v ? json_typeof(v) : JSON_NULL) {
    case JSON_OBJECT:
        trl_str_putc(s, '{');
        i = 0;
        json_object_foreach((json_t *)v, key, item)
        {
            if (i++)
                trl_str_puts(s, ", ");
            trl_str_put_json(s, key, strlen(key));
            trl_str_puts(s, ": ");
            trl_yaml_put_json(s, item);
        }
        trl_str_putc(s, '}');
        break;
    case JSON_ARRAY:
        trl_str_putc(s, '[');
        json_array_foreach(v, i, item)
        {
            if (i)
                trl_str_puts(s, ", ");
            trl_yaml_put_json(s, item);
        }
        trl_str_putc(s, ']');
        break;
    case JSON_STRING:
        trl_str_put_json(s, json_string_value(v), json_string_length(v));
        break;
    case JSON_INTEGER:
        trl_str_printf(s, "%lld", (long long)json_integer_value(v));
        break;
    case JSON_REAL:
        trl_yaml_put_double(s, json_real_value(v));
        break;
    case JSON_TRUE:
        trl_str_puts(s, "true");
        break;
    case JSON_FALSE:
        trl_str_puts(s, "false");
        break;
    case JSON_NULL:
        trl_str_puts(s, "null");
        break;
    }
}
