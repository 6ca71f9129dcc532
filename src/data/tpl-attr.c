/* SPDX-License-Identifier: Apache-2.0 */
/* x.name, x[key], slices. A dot looks for an attribute (method) first and an item then, brackets
 * the other way round; what does not exist is undefined, not an error. Methods that change their
 * object, and names with "_" in front, are unsafe. */
#include <stdio.h>
#include <string.h>

#include "data/tpl-internal.h"

int tpl_slice_resolve(struct tpl_render *r, const struct tpl_slice *s, int64_t len,
    int64_t *ret_first, int64_t *ret_step, int64_t *ret_count)
{
    int64_t v[3] = {0, 0, 1};
    bool given[3];
    for (int i = 0; i < 3; i++) {
        const struct tpl_value *p = &s->part[i];
        given[i] = p->kind != TPL_NONE;
        if (!given[i])
            continue;
        if (!tpl_is_int(p))
            return tpl_raise(
                r, "slice indices must be integers or None or have an __index__ method");
        v[i] = p->u.i;
    }
    if (v[2] == 0)
        return tpl_raise(r, "slice step cannot be zero");
    int64_t step = v[2] < -INT64_MAX ? -INT64_MAX : v[2];
    int64_t low = step < 0 ? -1 : 0, high = step < 0 ? len - 1 : len;
    for (int i = 0; i < 2; i++) {
        if (!given[i]) {
            v[i] = (i == 0) == (step < 0) ? high : low;
            continue;
        }
        if (v[i] < 0)
            v[i] = v[i] + len < low ? low : v[i] + len;
        else if (v[i] > high)
            v[i] = high;
    }
    *ret_first = v[0];
    *ret_step = step;
    *ret_count = 0;
    if (step > 0 && v[0] < v[1])
        *ret_count = (v[1] - v[0] - 1) / step + 1;
    else if (step < 0 && v[0] > v[1])
        *ret_count = (v[0] - v[1] - 1) / -step + 1;
    return 0;
}

/* Byte offset of code point `at` (0..count). */
static size_t cp_offset(const struct tpl_str *s, size_t from, int64_t n)
{
    while (n > 0 && from < s->len) {
        from++;
        while (from < s->len && ((unsigned char)s->data[from] & 0xC0) == 0x80)
            from++;
        n--;
    }
    return from;
}

static int slice_str(struct tpl_render *r, const struct tpl_str *s, const struct tpl_slice *sl,
    struct tpl_value *ret)
{
    int64_t first, step, count, len = (int64_t)tpl_utf8_count(s->data, s->len);
    int rc = tpl_charge(r, s->len / 4);
    if (rc == 0)
        rc = tpl_slice_resolve(r, sl, len, &first, &step, &count);
    if (rc != 0)
        return rc;
    if (count == 0)
        return tpl_str_wrap(r, "", 0, ret);
    if (step == 1) {
        size_t begin = cp_offset(s, 0, first), end = cp_offset(s, begin, count);
        return tpl_str_wrap(r, s->data + begin, end - begin, ret);
    }
    struct tpl_value whole = {.kind = TPL_STR, .u.str = (struct tpl_str *)(uintptr_t)s};
    const struct tpl_value *c;
    size_t n;
    if ((rc = tpl_items(r, &whole, &c, &n)) != 0)
        return rc;
    struct trl_str out = {0};
    for (int64_t i = 0; i < count; i++) {
        const struct tpl_str *one = c[first + i * step].u.str;
        trl_str_append(&out, one->data, one->len);
    }
    return tpl_str_take_buf(r, &out, ret);
}

static int slice_seq(struct tpl_render *r, const struct tpl_value *v, const struct tpl_slice *sl,
    struct tpl_value *ret)
{
    int64_t first, step, count;
    int rc = tpl_seq_load(r, v->u.seq);
    if (rc == 0)
        rc = tpl_slice_resolve(r, sl, (int64_t)v->u.seq->len, &first, &step, &count);
    if (rc == 0)
        rc = tpl_seq_new(r, v->kind, (size_t)count, ret);
    for (int64_t i = 0; rc == 0 && i < count; i++)
        ret->u.seq->items[i] = v->u.seq->items[first + i * step];
    if (rc == 0 && v->kind == TPL_RANGE) {
        ret->u.seq->step = v->u.seq->step * step;
        ret->u.seq->start = v->u.seq->start + v->u.seq->step * first;
        ret->u.seq->stop = ret->u.seq->start + ret->u.seq->step * count;
    }
    return rc;
}

static bool subscriptable(const struct tpl_value *v)
{
    return v->kind == TPL_LIST || v->kind == TPL_TUPLE || v->kind == TPL_RANGE;
}

/* The item, or *found false. */
static int find_item(struct tpl_render *r, const struct tpl_value *v, const struct tpl_value *key,
    bool *found, struct tpl_value *ret)
{
    int rc;
    *found = false;
    if (v->kind == TPL_DICT) {
        const struct tpl_value *p = NULL;
        /* an unhashable key is a TypeError, which means undefined here */
        if (key->kind == TPL_LIST || key->kind == TPL_DICT || key->kind == TPL_SLICE)
            return 0;
        rc = tpl_dict_find(r, v->u.dict, key, &p);
        if (p) {
            *found = true;
            *ret = *p;
        }
        return rc;
    }
    if (key->kind == TPL_SLICE && (v->kind == TPL_STR || subscriptable(v))) {
        *found = true;
        return v->kind == TPL_STR ? slice_str(r, v->u.str, key->u.slice, ret)
                                  : slice_seq(r, v, key->u.slice, ret);
    }
    if (!tpl_is_int(key))
        return 0;
    if (subscriptable(v)) {
        if ((rc = tpl_seq_load(r, v->u.seq)) != 0)
            return rc;
        int64_t i = key->u.i, n = (int64_t)v->u.seq->len;
        if (i < 0)
            i += n;
        if (i >= 0 && i < n) {
            *found = true;
            *ret = v->u.seq->items[i];
        }
        return 0;
    }
    if (v->kind == TPL_STR) {
        struct tpl_value none = tpl_none(), one = tpl_int(1);
        int64_t i = key->u.i, n;
        if ((rc = tpl_len(r, v, &n)) != 0)
            return rc;
        if (i < 0)
            i += n;
        if (i < 0 || i >= n)
            return 0;
        struct tpl_slice sl = {{tpl_int(i), tpl_int(i + 1), one}};
        (void)none;
        *found = true;
        return slice_str(r, v->u.str, &sl, ret);
    }
    return 0;
}

static int find_attr(struct tpl_render *r, const struct tpl_value *v, const char *name, bool *found,
    struct tpl_value *ret)
{
    static const char *const unsafe_dict[] = {
        "clear", "pop", "popitem", "setdefault", "update", NULL};
    static const char *const unsafe_list[] = {
        "append", "clear", "extend", "insert", "pop", "remove", "reverse", "sort", NULL};
    const struct tpl_builtin *b = NULL;
    const char *const *unsafe = NULL;
    *found = false;
    switch (v->kind) {
    case TPL_STR:
        b = tpl_method_find_str(name);
        break;
    case TPL_DICT:
        b = tpl_method_find_dict(name);
        unsafe = unsafe_dict;
        break;
    case TPL_LIST:
        unsafe = unsafe_list;
        b = tpl_method_find_seq(name);
        break;
    case TPL_TUPLE:
    case TPL_RANGE:
        b = tpl_method_find_seq(name);
        break;
    case TPL_LOOP:
        return tpl_loop_getattr(r, v->u.loop, name, found, ret);
    case TPL_MACRO:
        if (strcmp(name, "name") == 0) {
            *found = true;
            return tpl_str_wrap(r, v->u.macro->def->text, strlen(v->u.macro->def->text), ret);
        }
        break;
    case TPL_NAMESPACE: {
        struct tpl_value key;
        const struct tpl_value *p = NULL;
        int rc = tpl_str_wrap(r, name, strlen(name), &key);
        if (rc == 0)
            rc = tpl_dict_find(r, v->u.dict, &key, &p);
        if (rc == 0 && p) {
            *found = true;
            *ret = *p;
        }
        return rc;
    }
    default:
        break;
    }
    if (b) {
        struct tpl_func *f = tpl_alloc(r, sizeof(*f));
        if (!f)
            return TRL_E_DATA;
        f->builtin = b;
        f->self = *v;
        *found = true;
        *ret = (struct tpl_value){.kind = TPL_FUNC, .u.func = f};
        return 0;
    }
    for (; unsafe && *unsafe; unsafe++) {
        if (strcmp(*unsafe, name) == 0) {
            *found = true;
            return tpl_undef_new(r, ret, "access to attribute '%s' of '%s' object is unsafe.", name,
                tpl_type_name(v));
        }
    }
    return 0;
}

static int missing(struct tpl_render *r, const struct tpl_value *v, const struct tpl_value *key,
    struct tpl_value *ret)
{
    char owner[64];
    if (v->kind == TPL_NONE)
        snprintf(owner, sizeof(owner), "None");
    else
        snprintf(owner, sizeof(owner), "%s object", tpl_type_name(v));
    if (key->kind == TPL_STR)
        return tpl_undef_new(r, ret, "'%s' has no attribute '%.*s'", owner,
            (int)(key->u.str->len < 200 ? key->u.str->len : 200), key->u.str->data);
    struct trl_str text = {0};
    int rc = key->kind == TPL_SLICE ? 0 : tpl_repr(r, key, &text);
    if (rc == 0)
        rc = tpl_undef_new(r, ret, "%s has no element %.200s", owner, trl_str_get(&text));
    trl_str_release(&text);
    return rc;
}

int tpl_getattr(
    struct tpl_render *r, const struct tpl_value *v, const char *name, struct tpl_value *ret)
{
    bool found;
    struct tpl_value key;
    if (v->kind == TPL_UNDEF)
        return tpl_use_undef(r, v);
    int rc = find_attr(r, v, name, &found, ret);
    if (rc != 0 || found)
        return rc;
    if ((rc = tpl_str_wrap(r, name, strlen(name), &key)) != 0)
        return rc;
    rc = find_item(r, v, &key, &found, ret);
    return rc != 0 || found ? rc : missing(r, v, &key, ret);
}

int tpl_getitem(struct tpl_render *r, const struct tpl_value *v, const struct tpl_value *key,
    struct tpl_value *ret)
{
    bool found;
    if (v->kind == TPL_UNDEF)
        return tpl_use_undef(r, v);
    int rc = find_item(r, v, key, &found, ret);
    if (rc != 0 || found)
        return rc;
    if (key->kind == TPL_SLICE && v->kind == TPL_DICT)
        return tpl_raise(r, "unhashable type: 'slice'");
    if (key->kind == TPL_SLICE)
        return tpl_raise(r, "'%s' object is not subscriptable", tpl_type_name(v));
    if (key->kind == TPL_STR) {
        if (!memchr(key->u.str->data, '\0', key->u.str->len)) {
            struct tpl_value name; /* NUL-terminated */
            if ((rc = tpl_str_new(r, key->u.str->data, key->u.str->len, &name)) != 0)
                return rc;
            rc = find_attr(r, v, name.u.str->data, &found, ret);
        }
        if (rc != 0 || found)
            return rc;
    }
    return missing(r, v, key, ret);
}
