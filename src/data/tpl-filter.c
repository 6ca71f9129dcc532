/* SPDX-License-Identifier: Apache-2.0 */
/* Filters on single values, and the search for a filter by name. */
#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "data/tpl-internal.h"

#define FILTER(name) \
    static int name(struct tpl_render *r, const struct tpl_value *self, const struct tpl_args *a, \
        struct tpl_value *ret)

static int no_args(struct tpl_render *r, const struct tpl_args *a)
{
    return a->n || a->nk ? tpl_raise(r, "this filter takes no arguments") : 0;
}

FILTER(filter_default)
{
    static const char *const params[] = {"default_value", "boolean", NULL};
    const struct tpl_value *slot[2];
    bool boolean = false, yes = true;
    int rc = tpl_bind(r, a, "default", params, 0, slot);
    if (rc == 0 && slot[1])
        rc = tpl_truth(r, slot[1], &boolean);
    if (rc == 0 && boolean)
        rc = tpl_truth(r, self, &yes);
    if (rc != 0)
        return rc;
    if (self->kind != TPL_UNDEF && yes)
        *ret = *self;
    else if (slot[0])
        *ret = *slot[0];
    else
        rc = tpl_str_wrap(r, "", 0, ret);
    return rc;
}

FILTER(filter_length)
{
    int64_t n = 0;
    int rc = no_args(r, a);
    if (rc == 0)
        rc = tpl_len(r, self, &n);
    *ret = tpl_int(n);
    return rc;
}

FILTER(filter_string)
{
    int rc = no_args(r, a);
    return rc != 0 ? rc : tpl_to_str(r, self, ret);
}

FILTER(filter_safe)
{
    int rc = filter_string(r, self, a, ret);
    if (rc == 0)
        ret->markup = true;
    return rc;
}

FILTER(filter_escape)
{
    int rc = no_args(r, a);
    return rc != 0 ? rc : tpl_escaped(r, self, ret);
}

FILTER(filter_forceescape)
{
    struct tpl_value s;
    int rc = filter_string(r, self, a, &s);
    s.markup = false;
    return rc != 0 ? rc : tpl_escaped(r, &s, ret);
}

/* A number's text without blanks around and single underscores between digits; false: no such text.
 */
static bool clean_number(const struct tpl_str *s, char *buf, size_t size)
{
    size_t begin = 0, end = s->len, n = 0;
    while (begin < end && isspace((unsigned char)s->data[begin]))
        begin++;
    while (end > begin && isspace((unsigned char)s->data[end - 1]))
        end--;
    for (size_t i = begin; i < end; i++) {
        char c = s->data[i];
        if (c == '_') {
            if (i == begin || i + 1 == end || !isalnum((unsigned char)s->data[i - 1]) ||
                !isalnum((unsigned char)s->data[i + 1]))
                return false;
            continue;
        }
        if (n + 1 >= size || c == '\0' || isspace((unsigned char)c))
            return false;
        buf[n++] = c;
    }
    buf[n] = '\0';
    return n > 0;
}

static bool parse_float(const struct tpl_str *s, double *ret)
{
    char buf[512], *end;
    if (!clean_number(s, buf, sizeof(buf)) || strpbrk(buf, "xXpP("))
        return false;
    *ret = strtod(buf, &end);
    return *end == '\0';
}

/* 1: *ret is set; 0: no integer; else an error */
static int parse_int(struct tpl_render *r, const struct tpl_str *s, int64_t base, int64_t *ret)
{
    char buf[512], *end;
    if (!clean_number(s, buf, sizeof(buf)))
        return 0;
    char *p = buf;
    bool neg = *p == '-';
    if (*p == '-' || *p == '+')
        p++;
    int64_t named = p[0] != '0'      ? 0
        : p[1] == 'x' || p[1] == 'X' ? 16
        : p[1] == 'o' || p[1] == 'O' ? 8
        : p[1] == 'b' || p[1] == 'B' ? 2
                                     : 0;
    if (named && (base == named || base == 0))
        p += 2;
    if (base == 0)
        base = named ? named : 10;
    if (base < 2 || base > 36 || !isalnum((unsigned char)*p))
        return 0;
    errno = 0;
    unsigned long long u = strtoull(p, &end, (int)base);
    if (*end)
        return 0;
    if (errno || u > (unsigned long long)INT64_MAX + neg)
        return tpl_raise(r, "the integer '%.40s' has more than 64 bits", buf);
    *ret = neg ? (int64_t)(0 - u) : (int64_t)u;
    return 1;
}

/* int(f): 1, 0 when it is NaN, or an error */
static int float_to_int(struct tpl_render *r, double f, int64_t *ret)
{
    if (isnan(f))
        return 0;
    if (isinf(f))
        return tpl_raise(r, "cannot convert float infinity to integer");
    if (!(f >= -9223372036854775808.0 && f < 9223372036854775808.0))
        return tpl_raise(r, "the number %g has more than 64 bits as an integer", f);
    *ret = (int64_t)f;
    return 1;
}

FILTER(filter_int)
{
    static const char *const params[] = {"default", "base", NULL};
    const struct tpl_value *slot[2];
    int64_t base = 10, v = 0;
    double f;
    int rc = tpl_bind(r, a, "int", params, 0, slot), hit = 0;
    if (rc == 0 && slot[1])
        rc = tpl_want_int(r, slot[1], "the base", &base);
    if (rc != 0)
        return rc;
    if (self->kind == TPL_UNDEF)
        return tpl_use_undef(r, self);
    if (tpl_is_int(self)) {
        v = self->u.i;
        hit = 1;
    } else if (self->kind == TPL_FLOAT) {
        hit = float_to_int(r, self->u.f, &v);
    } else if (self->kind == TPL_STR) {
        hit = parse_int(r, self->u.str, base, &v);
        if (hit == 0 && parse_float(self->u.str, &f) && isfinite(f))
            hit = float_to_int(r, f, &v);
    }
    if (hit < 0)
        return hit;
    *ret = hit ? tpl_int(v) : slot[0] ? *slot[0] : tpl_int(0);
    return 0;
}

FILTER(filter_float)
{
    static const char *const params[] = {"default", NULL};
    const struct tpl_value *slot[1];
    double f;
    int rc = tpl_bind(r, a, "float", params, 0, slot);
    if (rc != 0)
        return rc;
    if (self->kind == TPL_UNDEF)
        return tpl_use_undef(r, self);
    if (tpl_is_num(self))
        *ret = tpl_float(tpl_num(self));
    else if (self->kind == TPL_STR && parse_float(self->u.str, &f))
        *ret = tpl_float(f);
    else
        *ret = slot[0] ? *slot[0] : tpl_float(0);
    return 0;
}

FILTER(filter_abs)
{
    int rc = no_args(r, a);
    if (rc != 0)
        return rc;
    if (self->kind == TPL_UNDEF)
        return tpl_use_undef(r, self);
    if (!tpl_is_num(self))
        return tpl_raise(r, "bad operand type for abs(): '%s'", tpl_type_name(self));
    if (self->kind == TPL_FLOAT) {
        *ret = tpl_float(fabs(self->u.f));
        return 0;
    }
    return tpl_negate(r, self, self->u.i < 0, ret);
}

static int round_common(
    struct tpl_render *r, const struct tpl_value *v, int64_t precision, struct tpl_value *ret)
{
    char buf[700];
    if (tpl_is_int(v)) {
        if (precision >= 0) {
            *ret = tpl_int(v->u.i);
            return 0;
        }
        if (precision < -18) {
            *ret = tpl_int(0);
            return 0;
        }
        int64_t unit = 1;
        for (int64_t i = 0; i < -precision; i++)
            unit *= 10;
        int64_t down = v->u.i % unit, half = unit / 2;
        if (down < 0)
            down += unit;
        __int128 q = (__int128)v->u.i - down;
        if (down > half || (down == half && q / unit % 2 != 0))
            q += unit;
        if (q > INT64_MAX || q < INT64_MIN)
            return tpl_raise(r, "the result is an integer of more than 64 bits");
        *ret = tpl_int((int64_t)q);
        return 0;
    }
    double f = v->u.f;
    if (isfinite(f) && precision >= 0 && precision < 320) {
        snprintf(
            buf, sizeof(buf), "%.*f", (int)precision, f); /* rounds the exact value, half to even */
        f = strtod(buf, NULL);
    } else if (isfinite(f) && precision < 0) {
        double unit = pow(10, (double)-precision);
        f = isinf(unit) ? copysign(0, f) : nearbyint(f / unit) * unit;
    }
    *ret = tpl_float(f);
    return 0;
}

FILTER(filter_round)
{
    static const char *const params[] = {"precision", "method", NULL};
    const struct tpl_value *slot[2];
    int64_t precision = 0;
    int rc = tpl_bind(r, a, "round", params, 0, slot);
    if (rc == 0 && slot[0])
        rc = tpl_want_int(r, slot[0], "the precision", &precision);
    if (rc != 0)
        return rc;
    if (self->kind == TPL_UNDEF)
        return tpl_use_undef(r, self);
    if (!tpl_is_num(self))
        return tpl_raise(r, "type %s doesn't define __round__ method", tpl_type_name(self));
    if (!slot[1] || tpl_str_is(slot[1], "common"))
        return round_common(r, self, precision, ret);
    bool up = tpl_str_is(slot[1], "ceil");
    if (!up && !tpl_str_is(slot[1], "floor"))
        return tpl_raise(r, "method must be common, ceil or floor");
    double unit = pow(10, (double)precision), v = tpl_num(self) * unit;
    *ret = tpl_float((up ? ceil(v) : floor(v)) / unit);
    return 0;
}

FILTER(filter_list)
{
    const struct tpl_value *v;
    size_t n;
    int rc = no_args(r, a);
    if (rc == 0)
        rc = tpl_items(r, self, &v, &n);
    if (rc == 0)
        rc = tpl_seq_new(r, TPL_LIST, n, ret);
    if (rc == 0 && n)
        memcpy(ret->u.seq->items, v, n * sizeof(*v));
    return rc;
}

FILTER(filter_first)
{
    const struct tpl_value *v;
    size_t n;
    int rc = no_args(r, a);
    if (rc == 0)
        rc = tpl_items(r, self, &v, &n);
    if (rc == 0 && n == 0)
        return tpl_undef_new(r, ret, "No first item, sequence was empty.");
    if (rc == 0)
        *ret = v[0];
    return rc;
}

FILTER(filter_last)
{
    const struct tpl_value *v;
    size_t n;
    int rc = no_args(r, a);
    if (rc == 0 && self->kind == TPL_GEN)
        return tpl_raise(r, "'generator' object is not reversible");
    if (rc == 0)
        rc = tpl_items(r, self, &v, &n);
    if (rc == 0 && n == 0)
        return tpl_undef_new(r, ret, "No last item, sequence was empty.");
    if (rc == 0)
        *ret = v[n - 1];
    return rc;
}

FILTER(filter_items)
{
    int rc = no_args(r, a);
    if (rc != 0)
        return rc;
    if (self->kind == TPL_UNDEF)
        return tpl_seq_new(r, TPL_GEN, 0, ret);
    if (self->kind != TPL_DICT)
        return tpl_raise(r, "Can only get item pairs from a mapping.");
    rc = tpl_method_find_dict("items")->fn(r, self, a, ret);
    if (rc == 0)
        ret->kind = TPL_GEN;
    return rc;
}

/* x|format(args): the % operator */
FILTER(filter_format)
{
    struct tpl_value s, args, kwargs;
    int rc = tpl_to_str(r, self, &s);
    if (rc == 0 && a->n && a->nk)
        return tpl_raise(r, "can't handle positional and keyword arguments at the same time");
    if (rc == 0)
        rc = tpl_seq_new(r, TPL_TUPLE, a->n, &args);
    if (rc != 0)
        return rc;
    if (a->n)
        memcpy(args.u.seq->items, a->v, a->n * sizeof(*a->v));
    if (!a->nk)
        return tpl_format_percent(r, &s, &args, NULL, ret);
    rc = tpl_dict_new(r, TPL_DICT, a->nk, &kwargs);
    for (size_t k = 0; k < a->nk && rc == 0; k++) {
        struct tpl_value key;
        rc = tpl_str_wrap(r, a->knames[k], strlen(a->knames[k]), &key);
        if (rc == 0)
            rc = tpl_dict_set(r, kwargs.u.dict, &key, &a->kv[k]);
    }
    return rc != 0 ? rc : tpl_format_percent(r, &s, &args, &kwargs, ret);
}

const struct tpl_builtin *tpl_filter_find(const char *name)
{
    static const struct tpl_builtin table[] = {
        {"default", filter_default},
        {"d", filter_default},
        {"length", filter_length},
        {"count", filter_length},
        {"string", filter_string},
        {"safe", filter_safe},
        {"escape", filter_escape},
        {"e", filter_escape},
        {"forceescape", filter_forceescape},
        {"tojson", tpl_filter_tojson},
        {"int", filter_int},
        {"float", filter_float},
        {"abs", filter_abs},
        {"round", filter_round},
        {"list", filter_list},
        {"first", filter_first},
        {"last", filter_last},
        {"items", filter_items},
        {"format", filter_format},
    };
    const struct tpl_builtin *b = TPL_FIND(table, name);
    if (!b)
        b = tpl_filter_find_text(name);
    if (!b)
        b = tpl_filter_find_seq(name);
    return b ? b : tpl_filter_find_select(name);
}
