/* SPDX-License-Identifier: Apache-2.0 */
/* map, select, reject, selectattr, rejectattr. Their result is a generator: it can be walked once.
 */
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "data/tpl-internal.h"
#include "data/tpl-path.h"

#define FILTER(name) \
    static int name(struct tpl_render *r, const struct tpl_value *self, const struct tpl_args *a, \
        struct tpl_value *ret)

/* One step of a path: digits are an index. */
static int path_key(struct tpl_render *r, const char *s, size_t len, struct tpl_value *ret)
{
    bool digits = len > 0 && len < 18;
    int64_t v = 0;
    for (size_t i = 0; i < len && digits; i++) {
        digits = isdigit((unsigned char)s[i]);
        v = v * 10 + (s[i] - '0');
    }
    if (digits) {
        *ret = tpl_int(v);
        return 0;
    }
    return tpl_str_wrap(r, s, len, ret);
}

int tpl_path_get(struct tpl_render *r, const struct tpl_value *v, const struct tpl_value *attr,
    const struct tpl_value *fallback, struct tpl_value *ret)
{
    struct tpl_value at = *v, key;
    *ret = at;
    if (!attr || attr->kind == TPL_NONE)
        return 0;
    if (fallback && fallback->kind == TPL_NONE)
        fallback = NULL;
    int rc = 0;
    if (attr->kind == TPL_STR) {
        const char *s = attr->u.str->data;
        size_t len = attr->u.str->len, begin = 0;
        for (size_t i = 0; i <= len && rc == 0; i++) {
            if (i < len && s[i] != '.')
                continue;
            rc = path_key(r, s + begin, i - begin, &key);
            if (rc == 0)
                rc = tpl_getitem(r, &at, &key, ret);
            if (rc == 0 && ret->kind == TPL_UNDEF && fallback)
                *ret = *fallback;
            at = *ret;
            begin = i + 1;
        }
        return rc;
    }
    rc = tpl_getitem(r, &at, attr, ret);
    if (rc == 0 && ret->kind == TPL_UNDEF && fallback)
        *ret = *fallback;
    return rc;
}

/* The filter or test whose name is an argument. */
static int find_named(
    struct tpl_render *r, const struct tpl_value *v, bool test, const struct tpl_builtin **ret)
{
    const struct tpl_str *s;
    struct tpl_value name;
    int rc = tpl_want_str(r, v, test ? "the name of a test" : "the name of a filter", &s);
    if (rc == 0)
        rc = tpl_str_new(r, s->data, s->len, &name); /* NUL-terminated */
    if (rc != 0)
        return rc;
    *ret = test ? tpl_test_find(name.u.str->data) : tpl_filter_find(name.u.str->data);
    if (!*ret)
        return tpl_raise(r, "No %s named '%.100s'.", test ? "test" : "filter", name.u.str->data);
    return 0;
}

static int select_if(struct tpl_render *r, const struct tpl_value *self, const struct tpl_args *a,
    bool by_attr, bool want, struct tpl_value *ret)
{
    const struct tpl_value *v, *attr = NULL;
    const struct tpl_builtin *test = NULL;
    struct tpl_args args = *a;
    size_t n, k = 0;
    bool any;
    int rc = tpl_truth(r, self, &any);
    if (rc != 0 || !any)
        return rc != 0 ? rc : tpl_seq_new(r, TPL_GEN, 0, ret);
    if (by_attr) {
        if (a->n == 0)
            return tpl_raise(r, "Missing parameter for attribute name");
        attr = &a->v[0];
        args.v++;
        args.n--;
    }
    if (args.n) {
        if ((rc = find_named(r, &args.v[0], true, &test)) != 0)
            return rc;
        args.v++;
        args.n--;
    }
    if ((rc = tpl_items(r, self, &v, &n)) != 0 || (rc = tpl_seq_new(r, TPL_GEN, n, ret)) != 0)
        return rc;
    for (size_t i = 0; i < n && rc == 0; i++) {
        struct tpl_value x, yes;
        bool hit = false;
        rc = tpl_path_get(r, &v[i], attr, NULL, &x);
        if (rc == 0 && test)
            rc = test->fn(r, &x, &args, &yes);
        if (rc == 0)
            rc = tpl_truth(r, test ? &yes : &x, &hit);
        if (rc == 0 && hit == want)
            ret->u.seq->items[k++] = v[i];
    }
    ret->u.seq->len = k;
    return rc;
}

FILTER(filter_select)
{
    return select_if(r, self, a, false, true, ret);
}

FILTER(filter_reject)
{
    return select_if(r, self, a, false, false, ret);
}

FILTER(filter_selectattr)
{
    return select_if(r, self, a, true, true, ret);
}

FILTER(filter_rejectattr)
{
    return select_if(r, self, a, true, false, ret);
}

FILTER(filter_map)
{
    static const char *const params[] = {"attribute", "default", NULL};
    const struct tpl_value *v, *slot[2] = {NULL, NULL};
    const struct tpl_builtin *filter = NULL;
    struct tpl_args args = *a;
    size_t n;
    bool any;
    int rc = tpl_truth(r, self, &any);
    if (rc != 0 || !any)
        return rc != 0 ? rc : tpl_seq_new(r, TPL_GEN, 0, ret);
    if (a->n == 0) {
        if ((rc = tpl_bind(r, a, "map", params, 0, slot)) != 0)
            return rc;
        if (!slot[0])
            return tpl_raise(r, "map requires a filter argument");
    } else {
        if ((rc = find_named(r, &a->v[0], false, &filter)) != 0)
            return rc;
        args.v++;
        args.n--;
    }
    if ((rc = tpl_items(r, self, &v, &n)) != 0 || (rc = tpl_seq_new(r, TPL_GEN, n, ret)) != 0)
        return rc;
    if ((rc = tpl_enter(r, r->at, false)) != 0) /* map('map', ...) */
        return rc;
    for (size_t i = 0; i < n && rc == 0; i++) {
        struct tpl_value *out = &ret->u.seq->items[i];
        rc = filter ? filter->fn(r, &v[i], &args, out)
                    : tpl_path_get(r, &v[i], slot[0], slot[1], out);
    }
    tpl_leave(r, false);
    return rc;
}

const struct tpl_builtin *tpl_filter_find_select(const char *name)
{
    static const struct tpl_builtin table[] = {
        {"map", filter_map},
        {"select", filter_select},
        {"reject", filter_reject},
        {"selectattr", filter_selectattr},
        {"rejectattr", filter_rejectattr},
    };
    return TPL_FIND(table, name);
}
