/* SPDX-License-Identifier: Apache-2.0 */
/* Global functions, and how functions take their arguments. */
#include <string.h>
#include <time.h>

#include "data/tpl-internal.h"

const struct tpl_builtin *tpl_builtin_in(
    const struct tpl_builtin *table, size_t n, const char *name)
{
    for (size_t i = 0; i < n; i++) {
        if (strcmp(table[i].name, name) == 0)
            return &table[i];
    }
    return NULL;
}

int tpl_bind(struct tpl_render *r, const struct tpl_args *a, const char *what,
    const char *const *params, size_t n_required, const struct tpl_value **slot)
{
    size_t n = 0;
    for (; params[n]; n++)
        slot[n] = n < a->n ? &a->v[n] : NULL;
    if (a->n > n)
        return tpl_raise(
            r, "%s takes at most %zu argument%s (%zu given)", what, n, n == 1 ? "" : "s", a->n);
    for (size_t k = 0; k < a->nk; k++) {
        size_t i = 0;
        while (i < n && strcmp(params[i], a->knames[k]) != 0)
            i++;
        if (i == n)
            return tpl_raise(r, "%s got an unexpected keyword argument '%s'", what, a->knames[k]);
        if (slot[i])
            return tpl_raise(r, "%s got multiple values for argument '%s'", what, a->knames[k]);
        slot[i] = &a->kv[k];
    }
    for (size_t i = 0; i < n_required; i++) {
        if (!slot[i])
            return tpl_raise(r, "%s misses the argument '%s'", what, params[i]);
    }
    return 0;
}

int tpl_want_int(struct tpl_render *r, const struct tpl_value *v, const char *what, int64_t *ret)
{
    if (v->kind == TPL_UNDEF)
        return tpl_use_undef(r, v);
    if (!tpl_is_int(v))
        return tpl_raise(r, "%s must be an integer, not '%s'", what, tpl_type_name(v));
    *ret = v->u.i;
    return 0;
}

int tpl_want_str(
    struct tpl_render *r, const struct tpl_value *v, const char *what, const struct tpl_str **ret)
{
    if (v->kind == TPL_UNDEF)
        return tpl_use_undef(r, v);
    if (v->kind != TPL_STR)
        return tpl_raise(r, "%s must be a string, not '%s'", what, tpl_type_name(v));
    *ret = v->u.str;
    return 0;
}

static int fn_range(struct tpl_render *r, const struct tpl_value *self, const struct tpl_args *a,
    struct tpl_value *ret)
{
    int64_t v[3] = {0, 0, 1};
    if (a->n < 1 || a->n > 3 || a->nk)
        return tpl_raise(r, "range() takes one to three arguments");
    for (size_t i = 0; i < a->n; i++) {
        int rc = tpl_want_int(r, &a->v[i], "an argument of range()", &v[a->n == 1 ? 1 : i]);
        if (rc != 0)
            return rc;
    }
    if (v[2] == 0)
        return tpl_raise(r, "range() arg 3 must not be zero");
    __int128 span = v[2] > 0 ? (__int128)v[1] - v[0] : (__int128)v[0] - v[1];
    __int128 step = v[2] > 0 ? (__int128)v[2] : -(__int128)v[2];
    __int128 n = span > 0 ? (span + step - 1) / step : 0;
    if (n > TPL_MAX_RANGE)
        return tpl_raise(r, "Range too big. The sandbox blocks ranges larger than MAX_RANGE (%d).",
            TPL_MAX_RANGE);
    int rc = tpl_seq_new(r, TPL_RANGE, (size_t)n, ret);
    if (rc != 0)
        return rc;
    ret->u.seq->start = v[0];
    ret->u.seq->stop = v[1];
    ret->u.seq->step = v[2];
    for (int64_t i = 0; i < (int64_t)n; i++)
        ret->u.seq->items[i] = tpl_int(v[0] + i * v[2]);
    return 0;
}

/* dict(mapping or pairs, **more) and namespace() */
static int make_dict(struct tpl_render *r, enum tpl_kind kind, const char *what,
    const struct tpl_args *a, struct tpl_value *ret)
{
    int rc = tpl_dict_new(r, kind, a->nk, ret);
    if (rc == 0 && a->n > 1)
        return tpl_raise(r, "%s expected at most 1 argument, got %zu", what, a->n);
    if (rc == 0 && a->n == 1) {
        const struct tpl_value *v, *pair;
        size_t n, m;
        if ((rc = tpl_items(r, &a->v[0], &v, &n)) != 0)
            return rc;
        for (size_t i = 0; i < n && rc == 0; i++) {
            if (a->v[0].kind == TPL_DICT) {
                rc = tpl_dict_set(r, ret->u.dict, &v[i], &a->v[0].u.dict->vals[i]);
                continue;
            }
            if ((rc = tpl_items(r, &v[i], &pair, &m)) != 0)
                return rc;
            if (m != 2)
                return tpl_raise(r,
                    "dictionary update sequence element #%zu has length %zu; 2 is required", i, m);
            rc = tpl_dict_set(r, ret->u.dict, &pair[0], &pair[1]);
        }
    }
    for (size_t k = 0; k < a->nk && rc == 0; k++) {
        struct tpl_value key;
        rc = tpl_str_wrap(r, a->knames[k], strlen(a->knames[k]), &key);
        if (rc == 0)
            rc = tpl_dict_set(r, ret->u.dict, &key, &a->kv[k]);
    }
    return rc;
}

static int fn_dict(struct tpl_render *r, const struct tpl_value *self, const struct tpl_args *a,
    struct tpl_value *ret)
{
    return make_dict(r, TPL_DICT, "dict", a, ret);
}

static int fn_namespace(struct tpl_render *r, const struct tpl_value *self,
    const struct tpl_args *a, struct tpl_value *ret)
{
    int rc = make_dict(r, TPL_NAMESPACE, "namespace", a, ret);
    for (size_t i = 0; rc == 0 && i < ret->u.dict->len; i++) {
        const struct tpl_value *k = &ret->u.dict->keys[i];
        if (k->kind == TPL_STR && k->u.str->len && k->u.str->data[0] == '_')
            rc = tpl_raise(r,
                "Chat templates cannot store underscore-prefixed attributes on a namespace, but "
                "got '%.*s'. "
                "Please rename the attribute.",
                (int)(k->u.str->len < 100 ? k->u.str->len : 100), k->u.str->data);
    }
    return rc;
}

static int fn_raise(struct tpl_render *r, const struct tpl_value *self, const struct tpl_args *a,
    struct tpl_value *ret)
{
    static const char *const params[] = {"message", NULL};
    const struct tpl_value *slot[1];
    struct tpl_value s;
    int rc = tpl_bind(r, a, "raise_exception()", params, 1, slot);
    if (rc == 0)
        rc = tpl_to_str(r, slot[0], &s);
    if (rc != 0)
        return rc;
    return tpl_raise(r, "%.*s", (int)(s.u.str->len < 900 ? s.u.str->len : 900), s.u.str->data);
}

static int fn_strftime(struct tpl_render *r, const struct tpl_value *self, const struct tpl_args *a,
    struct tpl_value *ret)
{
    static const char *const params[] = {"format", NULL};
    const struct tpl_value *slot[1];
    const struct tpl_str *s;
    char format[256], text[1024];
    struct tm tm;
    int rc = tpl_bind(r, a, "strftime_now()", params, 1, slot);
    if (rc == 0)
        rc = tpl_want_str(r, slot[0], "the format of strftime_now()", &s);
    if (rc != 0)
        return rc;
    if (s->len + 2 > sizeof(format))
        return tpl_raise(
            r, "the format of strftime_now() is longer than %zu bytes", sizeof(format) - 2);
    memcpy(format, s->data, s->len);
    /* one more character, so that an empty result differs from a failure */
    format[s->len] = '|';
    format[s->len + 1] = '\0';
    time_t now = time(NULL);
    if (!localtime_r(&now, &tm))
        return tpl_raise(r, "the local time is not known");
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
    size_t n = strftime(text, sizeof(text), format, &tm);
#pragma GCC diagnostic pop
    if (n == 0 || trl_utf8_check(text, n) != n)
        return tpl_raise(r, "strftime_now('%.200s') has no usable result", format);
    return tpl_str_new(r, text, n - 1, ret);
}

const struct tpl_builtin *tpl_func_find(const char *name)
{
    static const struct tpl_builtin table[] = {
        {"dict", fn_dict},
        {"namespace", fn_namespace},
        {"raise_exception", fn_raise},
        {"range", fn_range},
        {"strftime_now", fn_strftime},
    };
    return TPL_FIND(table, name);
}
