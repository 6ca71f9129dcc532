/* SPDX-License-Identifier: Apache-2.0 */
/* Methods that take texts apart and join them; methods of lists, tuples and dicts. */
#include <string.h>

#include "data/tpl-internal.h"

#define METHOD(name) \
    static int name(struct tpl_render *r, const struct tpl_value *self, const struct tpl_args *a, \
        struct tpl_value *ret)

/* A list that grows. */
struct list {
    struct tpl_value *v;
    size_t n, cap;
};

static int add_value(struct tpl_render *r, struct list *l, const struct tpl_value *v)
{
    if (l->n == l->cap) {
        size_t cap = l->cap ? 2 * l->cap : 8;
        struct tpl_value *p = tpl_alloc_array(r, cap, sizeof(*p));
        if (!p)
            return TRL_E_DATA;
        if (l->n)
            memcpy(p, l->v, l->n * sizeof(*p));
        l->v = p;
        l->cap = cap;
    }
    l->v[l->n++] = *v;
    return 0;
}

static int add_text(struct tpl_render *r, struct list *l, const char *s, size_t len)
{
    struct tpl_value v;
    int rc = tpl_str_wrap(r, s, len, &v);
    return rc != 0 ? rc : add_value(r, l, &v);
}

static int finish(struct tpl_render *r, const struct list *l, struct tpl_value *ret)
{
    int rc = tpl_seq_new(r, TPL_LIST, l->n, ret);
    if (rc == 0 && l->n)
        memcpy(ret->u.seq->items, l->v, l->n * sizeof(struct tpl_value));
    return rc;
}

static void reverse(struct list *l)
{
    for (size_t i = 0; i < l->n / 2; i++) {
        struct tpl_value v = l->v[i];
        l->v[i] = l->v[l->n - 1 - i];
        l->v[l->n - 1 - i] = v;
    }
}

/* Size of the white-space character at s, 0: none. */
static size_t space(const char *s, size_t len)
{
    unsigned cp;
    int n = trl_utf8_decode(s, len, &cp);
    return n > 0 && tpl_is_space(cp) ? (size_t)n : 0;
}

/* Begin of the character that ends at `end`. */
static size_t before(const char *s, size_t end)
{
    size_t p = end - 1;
    while (p > 0 && ((unsigned char)s[p] & 0xC0) == 0x80)
        p--;
    return p;
}

static int split_space(struct tpl_render *r, const struct tpl_str *s, int64_t max, struct list *l)
{
    size_t p = 0, n;
    for (;;) {
        while (p < s->len && (n = space(s->data + p, s->len - p)) > 0)
            p += n;
        if (p >= s->len)
            return 0;
        size_t begin = p;
        if (max >= 0 && (int64_t)l->n >= max) /* the rest as it is */
            return add_text(r, l, s->data + begin, s->len - begin);
        while (p < s->len && !space(s->data + p, s->len - p))
            p++;
        int rc = add_text(r, l, s->data + begin, p - begin);
        if (rc != 0)
            return rc;
    }
}

static int rsplit_space(struct tpl_render *r, const struct tpl_str *s, int64_t max, struct list *l)
{
    size_t end = s->len;
    int rc = 0;
    while (rc == 0) {
        while (end > 0 && space(s->data + before(s->data, end), end - before(s->data, end)))
            end = before(s->data, end);
        if (end == 0)
            break;
        size_t begin = end;
        if (max >= 0 && (int64_t)l->n >= max) {
            rc = add_text(r, l, s->data, end);
            break;
        }
        while (
            begin > 0 && !space(s->data + before(s->data, begin), begin - before(s->data, begin)))
            begin = before(s->data, begin);
        rc = add_text(r, l, s->data + begin, end - begin);
        end = begin;
    }
    reverse(l);
    return rc;
}

static int split_sep(struct tpl_render *r, const struct tpl_str *s, const struct tpl_str *sep,
    int64_t max, struct list *l)
{
    size_t p = 0;
    int rc = 0;
    while (rc == 0 && (max < 0 || (int64_t)l->n < max)) {
        const char *hit =
            s->len - p < sep->len ? NULL : memmem(s->data + p, s->len - p, sep->data, sep->len);
        if (!hit)
            break;
        size_t at = (size_t)(hit - s->data);
        rc = add_text(r, l, s->data + p, at - p);
        p = at + sep->len;
    }
    return rc != 0 ? rc : add_text(r, l, s->data + p, s->len - p);
}

static int rsplit_sep(struct tpl_render *r, const struct tpl_str *s, const struct tpl_str *sep,
    int64_t max, struct list *l)
{
    size_t end = s->len;
    int rc = 0;
    for (size_t p = end; rc == 0 && (max < 0 || (int64_t)l->n < max) && p >= sep->len;) {
        if (memcmp(s->data + p - sep->len, sep->data, sep->len) != 0) {
            p--;
            continue;
        }
        rc = add_text(r, l, s->data + p, end - p);
        end = p - sep->len;
        p = end;
    }
    if (rc == 0)
        rc = add_text(r, l, s->data, end);
    reverse(l);
    return rc;
}

static int split(struct tpl_render *r, const struct tpl_value *self, const struct tpl_args *a,
    bool right, struct tpl_value *ret)
{
    static const char *const params[] = {"sep", "maxsplit", NULL};
    const struct tpl_value *slot[2];
    const struct tpl_str *s = self->u.str, *sep = NULL;
    struct list l = {0};
    int64_t max = -1;
    int rc = tpl_bind(r, a, "split()", params, 0, slot);
    if (rc == 0 && slot[0] && slot[0]->kind != TPL_NONE)
        rc = tpl_want_str(r, slot[0], "the separator of split()", &sep);
    if (rc == 0 && slot[1])
        rc = tpl_want_int(r, slot[1], "maxsplit", &max);
    if (rc == 0)
        rc = tpl_charge(r, s->len);
    if (rc != 0)
        return rc;
    if (sep && sep->len == 0)
        return tpl_raise(r, "empty separator");
    if (!sep)
        rc = right ? rsplit_space(r, s, max, &l) : split_space(r, s, max, &l);
    else
        rc = right ? rsplit_sep(r, s, sep, max, &l) : split_sep(r, s, sep, max, &l);
    return rc != 0 ? rc : finish(r, &l, ret);
}

METHOD(str_split)
{
    return split(r, self, a, false, ret);
}

METHOD(str_rsplit)
{
    return split(r, self, a, true, ret);
}

/* Length of the line end at s (\r\n counts as one), 0: none. */
static size_t line_end(const char *s, size_t len)
{
    unsigned cp;
    int n = trl_utf8_decode(s, len, &cp);
    if (n <= 0)
        return 0;
    if (cp == '\r' && len > 1 && s[1] == '\n')
        return 2;
    bool hit = (cp >= 10 && cp <= 13) || (cp >= 28 && cp <= 30) || cp == 0x85 || cp == 0x2028 ||
        cp == 0x2029;
    return hit ? (size_t)n : 0;
}

METHOD(str_splitlines)
{
    static const char *const params[] = {"keepends", NULL};
    const struct tpl_value *slot[1];
    const struct tpl_str *s = self->u.str;
    struct list l = {0};
    bool keep = false;
    int rc = tpl_bind(r, a, "splitlines()", params, 0, slot);
    if (rc == 0 && slot[0])
        rc = tpl_truth(r, slot[0], &keep);
    if (rc == 0)
        rc = tpl_charge(r, s->len);
    size_t begin = 0;
    for (size_t p = 0; p < s->len && rc == 0;) {
        size_t n = line_end(s->data + p, s->len - p);
        if (n == 0) {
            p++;
            continue;
        }
        rc = add_text(r, &l, s->data + begin, p - begin + (keep ? n : 0));
        p += n;
        begin = p;
    }
    if (rc == 0 && begin < s->len)
        rc = add_text(r, &l, s->data + begin, s->len - begin);
    return rc != 0 ? rc : finish(r, &l, ret);
}

static int partition(struct tpl_render *r, const struct tpl_value *self, const struct tpl_args *a,
    bool right, struct tpl_value *ret)
{
    static const char *const params[] = {"sep", NULL};
    const struct tpl_value *slot[1];
    const struct tpl_str *s = self->u.str, *sep;
    struct list l = {0};
    int rc = tpl_bind(r, a, "partition()", params, 1, slot);
    if (rc == 0)
        rc = tpl_want_str(r, slot[0], "the separator of partition()", &sep);
    if (rc != 0)
        return rc;
    if (sep->len == 0)
        return tpl_raise(r, "empty separator");
    rc = right ? rsplit_sep(r, s, sep, 1, &l) : split_sep(r, s, sep, 1, &l);
    if (rc == 0)
        rc = tpl_seq_new(r, TPL_TUPLE, 3, ret);
    if (rc != 0)
        return rc;
    struct tpl_value *v = ret->u.seq->items, empty;
    if ((rc = tpl_str_wrap(r, "", 0, &empty)) != 0)
        return rc;
    if (l.n == 2) {
        v[0] = l.v[0];
        v[1] = *slot[0];
        v[2] = l.v[1];
    } else {
        v[0] = right ? empty : *self;
        v[1] = empty;
        v[2] = right ? *self : empty;
    }
    return 0;
}

METHOD(str_partition)
{
    return partition(r, self, a, false, ret);
}

METHOD(str_rpartition)
{
    return partition(r, self, a, true, ret);
}

METHOD(str_join)
{
    static const char *const params[] = {"iterable", NULL};
    const struct tpl_value *slot[1], *v;
    size_t n;
    int rc = tpl_bind(r, a, "join()", params, 1, slot);
    if (rc == 0 && !tpl_is_iterable(slot[0]))
        return tpl_raise(r, "can only join an iterable");
    if (rc == 0)
        rc = tpl_items(r, slot[0], &v, &n);
    struct trl_str out = {0};
    for (size_t i = 0; rc == 0 && i < n && out.len <= TPL_MAX_OUTPUT; i++) {
        if (v[i].kind != TPL_STR) {
            rc = tpl_raise(
                r, "sequence item %zu: expected str instance, %s found", i, tpl_type_name(&v[i]));
            break;
        }
        if (i)
            trl_str_append(&out, self->u.str->data, self->u.str->len);
        trl_str_append(&out, v[i].u.str->data, v[i].u.str->len);
    }
    if (rc == 0)
        return tpl_str_take_buf(r, &out, ret);
    trl_str_release(&out);
    return rc;
}

const struct tpl_builtin *tpl_method_find_split(const char *name)
{
    static const struct tpl_builtin table[] = {
        {"split", str_split},
        {"rsplit", str_rsplit},
        {"splitlines", str_splitlines},
        {"partition", str_partition},
        {"rpartition", str_rpartition},
        {"join", str_join},
    };
    return TPL_FIND(table, name);
}

/* ---- lists, tuples, ranges ---- */

METHOD(seq_index)
{
    static const char *const params[] = {"value", NULL};
    const struct tpl_value *slot[1], *v;
    size_t n;
    int rc = tpl_bind(r, a, "index()", params, 1, slot);
    if (rc == 0)
        rc = tpl_items(r, self, &v, &n);
    for (size_t i = 0; rc == 0 && i < n; i++) {
        bool eq;
        if ((rc = tpl_equal(r, &v[i], slot[0], &eq)) == 0 && eq) {
            *ret = tpl_int((int64_t)i);
            return 0;
        }
    }
    return rc != 0
        ? rc
        : tpl_raise(r, "the value given to index() is not in the %s", tpl_type_name(self));
}

METHOD(seq_count)
{
    static const char *const params[] = {"value", NULL};
    const struct tpl_value *slot[1], *v;
    size_t n;
    int64_t hits = 0;
    int rc = tpl_bind(r, a, "count()", params, 1, slot);
    if (rc == 0)
        rc = tpl_items(r, self, &v, &n);
    for (size_t i = 0; rc == 0 && i < n; i++) {
        bool eq = false;
        rc = tpl_equal(r, &v[i], slot[0], &eq);
        hits += eq;
    }
    *ret = tpl_int(hits);
    return rc;
}

METHOD(seq_copy)
{
    int rc = tpl_seq_load(r, self->u.seq);
    *ret = *self; /* values do not change, so one will do */
    return rc != 0 || !(a->n || a->nk) ? rc : tpl_raise(r, "copy() takes no arguments");
}

const struct tpl_builtin *tpl_method_find_seq(const char *name)
{
    static const struct tpl_builtin table[] = {
        {"index", seq_index}, {"count", seq_count}, {"copy", seq_copy}};
    return TPL_FIND(table, name);
}

/* ---- dicts ---- */

METHOD(dict_get)
{
    static const char *const params[] = {"key", "default", NULL};
    const struct tpl_value *slot[2], *p = NULL;
    int rc = tpl_bind(r, a, "get()", params, 1, slot);
    if (rc == 0)
        rc = tpl_hashable(r, slot[0]);
    if (rc == 0)
        rc = tpl_dict_find(r, self->u.dict, slot[0], &p);
    *ret = p ? *p : rc == 0 && slot[1] ? *slot[1] : tpl_none();
    return rc;
}

static int view(struct tpl_render *r, const struct tpl_value *self, const struct tpl_args *a,
    enum tpl_kind kind, struct tpl_value *ret)
{
    struct tpl_dict *d = self->u.dict;
    if (a->n || a->nk)
        return tpl_raise(r, "keys(), values() and items() take no arguments");
    int rc = tpl_dict_load(r, d);
    if (rc == 0)
        rc = tpl_seq_new(r, kind, d->len, ret);
    for (size_t i = 0; rc == 0 && i < d->len; i++) {
        struct tpl_value *v = &ret->u.seq->items[i];
        if (kind == TPL_DICT_ITEMS) {
            rc = tpl_seq_new(r, TPL_TUPLE, 2, v);
            if (rc == 0) {
                v->u.seq->items[0] = d->keys[i];
                v->u.seq->items[1] = d->vals[i];
            }
        } else {
            *v = kind == TPL_DICT_KEYS ? d->keys[i] : d->vals[i];
        }
    }
    return rc;
}

METHOD(dict_keys)
{
    return view(r, self, a, TPL_DICT_KEYS, ret);
}

METHOD(dict_values)
{
    return view(r, self, a, TPL_DICT_VALUES, ret);
}

METHOD(dict_items)
{
    return view(r, self, a, TPL_DICT_ITEMS, ret);
}

METHOD(dict_copy)
{
    *ret = *self;
    return a->n || a->nk ? tpl_raise(r, "copy() takes no arguments") : 0;
}

const struct tpl_builtin *tpl_method_find_dict(const char *name)
{
    static const struct tpl_builtin table[] = {
        {"get", dict_get},
        {"keys", dict_keys},
        {"values", dict_values},
        {"items", dict_items},
        {"copy", dict_copy},
    };
    return TPL_FIND(table, name);
}
