/* SPDX-License-Identifier: Apache-2.0 */
/* Filters that order, join and regroup sequences. */
#include <string.h>

#include "data/tpl-internal.h"
#include "data/tpl-path.h"
#include "data/tpl-unicode.h"

#define FILTER(name) \
    static int name(struct tpl_render *r, const struct tpl_value *self, const struct tpl_args *a, \
        struct tpl_value *ret)

/* Letters compare without case unless asked for. */
static int fold(struct tpl_render *r, struct tpl_value *v)
{
    if (v->kind != TPL_STR)
        return 0;
    struct trl_str out = {0};
    tpl_case_convert(&out, v->u.str->data, v->u.str->len, TPL_CASE_LOWER);
    return tpl_str_take_buf(r, &out, v);
}

/* Keys of v[n] by attribute (NULL: the values), folded. A list of attributes "a,b" gives lists. */
static int make_keys(struct tpl_render *r, const struct tpl_value *v, size_t n,
    const struct tpl_value *attr, bool cased, struct tpl_value **ret)
{
    struct tpl_value *keys = tpl_alloc_array(r, n ? n : 1, sizeof(*keys));
    int rc = keys ? 0 : TRL_E_DATA;
    for (size_t i = 0; i < n && rc == 0; i++) {
        rc = tpl_path_get(r, &v[i], attr, NULL, &keys[i]);
        if (rc == 0 && !cased)
            rc = fold(r, &keys[i]);
    }
    *ret = keys;
    return rc;
}

FILTER(filter_sort)
{
    static const char *const params[] = {"reverse", "case_sensitive", "attribute", NULL};
    const struct tpl_value *slot[3], *v;
    struct tpl_value *keys;
    bool reverse = false, cased = false;
    size_t n;
    int rc = tpl_bind(r, a, "sort", params, 0, slot);
    if (rc == 0 && slot[0])
        rc = tpl_truth(r, slot[0], &reverse);
    if (rc == 0 && slot[1])
        rc = tpl_truth(r, slot[1], &cased);
    if (rc == 0)
        rc = tpl_items(r, self, &v, &n);
    if (rc == 0)
        rc = tpl_seq_new(r, TPL_LIST, n, ret);
    if (rc != 0)
        return rc;
    if (n)
        memcpy(ret->u.seq->items, v, n * sizeof(*v));
    if (slot[2] && slot[2]->kind == TPL_STR &&
        memchr(slot[2]->u.str->data, ',', slot[2]->u.str->len)) {
        /* the last attribute first: the sort is stable */
        const char *s = slot[2]->u.str->data;
        size_t end = slot[2]->u.str->len;
        for (;;) {
            const char *comma = end ? memrchr(s, ',', end) : NULL;
            size_t begin = comma ? (size_t)(comma - s) + 1 : 0;
            struct tpl_value part;
            if ((rc = tpl_str_wrap(r, s + begin, end - begin, &part)) != 0 ||
                (rc = make_keys(r, ret->u.seq->items, n, &part, cased, &keys)) != 0 ||
                (rc = tpl_sort(r, ret->u.seq->items, keys, n, reverse)) != 0 || !comma)
                return rc;
            end = begin - 1;
        }
    }
    rc = make_keys(r, v, n, slot[2], cased, &keys);
    return rc != 0 ? rc : tpl_sort(r, ret->u.seq->items, keys, n, reverse);
}

FILTER(filter_dictsort)
{
    static const char *const params[] = {"case_sensitive", "by", "reverse", NULL};
    const struct tpl_value *slot[3];
    struct tpl_value *keys;
    struct tpl_args none = {0};
    bool reverse = false, cased = false;
    int rc = tpl_bind(r, a, "dictsort", params, 0, slot);
    if (rc == 0 && slot[0])
        rc = tpl_truth(r, slot[0], &cased);
    if (rc == 0 && slot[2])
        rc = tpl_truth(r, slot[2], &reverse);
    if (rc != 0)
        return rc;
    int64_t by = !slot[1] || tpl_str_is(slot[1], "key") ? 0 : tpl_str_is(slot[1], "value") ? 1 : -1;
    if (by < 0)
        return tpl_raise(r, "You can only sort by either \"key\" or \"value\"");
    if (self->kind == TPL_UNDEF)
        return tpl_use_undef(r, self);
    if (self->kind != TPL_DICT)
        return tpl_raise(r, "'%s' object has no attribute 'items'", tpl_type_name(self));
    struct tpl_value at = tpl_int(by);
    rc = tpl_method_find_dict("items")->fn(r, self, &none, ret);
    if (rc != 0)
        return rc;
    ret->kind = TPL_LIST;
    rc = make_keys(r, ret->u.seq->items, ret->u.seq->len, &at, cased, &keys);
    return rc != 0 ? rc : tpl_sort(r, ret->u.seq->items, keys, ret->u.seq->len, reverse);
}

FILTER(filter_unique)
{
    static const char *const params[] = {"case_sensitive", "attribute", NULL};
    const struct tpl_value *slot[2], *v, *seen;
    struct tpl_value *keys, set;
    bool cased = false;
    size_t n, k = 0;
    int rc = tpl_bind(r, a, "unique", params, 0, slot);
    if (rc == 0 && slot[0])
        rc = tpl_truth(r, slot[0], &cased);
    if (rc == 0)
        rc = tpl_items(r, self, &v, &n);
    if (rc == 0)
        rc = make_keys(r, v, n, slot[1], cased, &keys);
    if (rc == 0)
        rc = tpl_seq_new(r, TPL_GEN, n, ret);
    if (rc == 0)
        rc = tpl_dict_new(r, TPL_DICT, n, &set);
    for (size_t i = 0; rc == 0 && i < n; i++) {
        if ((rc = tpl_hashable(r, &keys[i])) != 0 ||
            (rc = tpl_dict_find(r, set.u.dict, &keys[i], &seen)) != 0)
            break;
        if (seen)
            continue;
        rc = tpl_dict_set(r, set.u.dict, &keys[i], &keys[i]);
        ret->u.seq->items[k++] = v[i];
    }
    if (rc == 0)
        ret->u.seq->len = k;
    return rc;
}

static int extreme(struct tpl_render *r, const struct tpl_value *self, const struct tpl_args *a,
    bool max, struct tpl_value *ret)
{
    static const char *const params[] = {"case_sensitive", "attribute", NULL};
    const struct tpl_value *slot[2], *v;
    struct tpl_value *keys;
    bool cased = false;
    size_t n, best = 0;
    int rc = tpl_bind(r, a, max ? "max" : "min", params, 0, slot);
    if (rc == 0 && slot[0])
        rc = tpl_truth(r, slot[0], &cased);
    if (rc == 0)
        rc = tpl_items(r, self, &v, &n);
    if (rc == 0 && n == 0)
        return tpl_undef_new(r, ret, "No aggregated item, sequence was empty.");
    if (rc == 0)
        rc = make_keys(r, v, n, slot[1], cased, &keys);
    for (size_t i = 1; rc == 0 && i < n; i++) {
        int c;
        rc = tpl_less(r, &keys[i], &keys[best], max ? ">" : "<", &c);
        if (rc == 0 && c == (max ? 1 : -1))
            best = i;
    }
    if (rc == 0)
        *ret = v[best];
    return rc;
}

FILTER(filter_min)
{
    return extreme(r, self, a, false, ret);
}

FILTER(filter_max)
{
    return extreme(r, self, a, true, ret);
}

FILTER(filter_sum)
{
    static const char *const params[] = {"attribute", "start", NULL};
    const struct tpl_value *slot[2], *v;
    struct tpl_value item, sum = tpl_int(0);
    size_t n;
    int rc = tpl_bind(r, a, "sum", params, 0, slot);
    if (rc == 0)
        rc = tpl_items(r, self, &v, &n);
    if (rc == 0 && slot[1])
        sum = *slot[1];
    if (rc == 0 && sum.kind == TPL_STR)
        return tpl_raise(r, "sum() can't sum strings [use ''.join(seq) instead]");
    for (size_t i = 0; rc == 0 && i < n; i++) {
        rc = tpl_path_get(r, &v[i], slot[0], NULL, &item);
        if (rc == 0)
            rc = tpl_arith(r, TPL_T_ADD, &sum, &item, &sum);
    }
    *ret = sum;
    return rc;
}

FILTER(filter_join)
{
    static const char *const params[] = {"d", "attribute", NULL};
    const struct tpl_value *slot[2], *v;
    struct tpl_value sep, item;
    struct trl_str out = {0};
    size_t n;
    int rc = tpl_bind(r, a, "join", params, 0, slot);
    if (rc == 0 && slot[0])
        rc = tpl_to_str(r, slot[0], &sep);
    else if (rc == 0)
        rc = tpl_str_wrap(r, "", 0, &sep);
    if (rc == 0)
        rc = tpl_items(r, self, &v, &n);
    for (size_t i = 0; rc == 0 && i < n; i++) {
        if (i)
            trl_str_append(&out, sep.u.str->data, sep.u.str->len);
        rc = tpl_path_get(r, &v[i], slot[1], NULL, &item);
        if (rc == 0)
            rc = tpl_print(r, &item, &out);
        if (rc == 0 && out.len > TPL_MAX_OUTPUT)
            break;
    }
    if (rc == 0)
        return tpl_str_take_buf(r, &out, ret);
    trl_str_release(&out);
    return rc;
}

FILTER(filter_reverse)
{
    const struct tpl_value *v;
    size_t n;
    int rc = a->n || a->nk ? tpl_raise(r, "this filter takes no arguments") : 0;
    if (rc == 0)
        rc = tpl_items(r, self, &v, &n);
    if (rc != 0)
        return rc;
    if (self->kind == TPL_STR) {
        struct trl_str out = {0};
        for (size_t i = n; i-- > 0;)
            trl_str_append(&out, v[i].u.str->data, v[i].u.str->len);
        return tpl_str_take_buf(r, &out, ret);
    }
    rc = tpl_seq_new(r, TPL_GEN, n, ret);
    for (size_t i = 0; rc == 0 && i < n; i++)
        ret->u.seq->items[i] = v[n - 1 - i];
    return rc;
}

/* A list of v[n] and `extra` times `fill`. */
static int make_list(struct tpl_render *r, const struct tpl_value *v, size_t n, size_t extra,
    const struct tpl_value *fill, struct tpl_value *ret)
{
    int rc = tpl_seq_new(r, TPL_LIST, n + extra, ret);
    if (rc == 0 && n)
        memcpy(ret->u.seq->items, v, n * sizeof(*v));
    for (size_t i = 0; rc == 0 && i < extra; i++)
        ret->u.seq->items[n + i] = *fill;
    return rc;
}

FILTER(filter_batch)
{
    static const char *const params[] = {"linecount", "fill_with", NULL};
    const struct tpl_value *slot[2], *v;
    int64_t count;
    size_t n;
    int rc = tpl_bind(r, a, "batch", params, 1, slot);
    if (rc == 0)
        rc = tpl_want_int(r, slot[0], "linecount", &count);
    if (rc == 0)
        rc = tpl_items(r, self, &v, &n);
    if (rc == 0 && (count < 1 || count > (1 << 24)))
        return tpl_raise(r, "batch(%lld): from 1 to %d", (long long)count, 1 << 24);
    bool fill = rc == 0 && slot[1] && slot[1]->kind != TPL_NONE;
    size_t size = (size_t)count, rows = rc == 0 ? (n + size - 1) / size : 0;
    if (rc == 0)
        rc = tpl_seq_new(r, TPL_GEN, rows, ret);
    for (size_t i = 0; rc == 0 && i < rows; i++) {
        size_t left = n - i * size, take = left < size ? left : size;
        rc = make_list(
            r, v + i * size, take, fill ? size - take : 0, slot[1], &ret->u.seq->items[i]);
    }
    return rc;
}

FILTER(filter_slice)
{
    static const char *const params[] = {"slices", "fill_with", NULL};
    const struct tpl_value *slot[2], *v;
    int64_t count;
    size_t n;
    int rc = tpl_bind(r, a, "slice", params, 1, slot);
    if (rc == 0)
        rc = tpl_want_int(r, slot[0], "slices", &count);
    if (rc == 0)
        rc = tpl_items(r, self, &v, &n);
    if (rc == 0 && (count < 1 || count > TPL_MAX_RANGE))
        return tpl_raise(r, "slice(%lld): from 1 to %d", (long long)count, TPL_MAX_RANGE);
    if (rc == 0)
        rc = tpl_seq_new(r, TPL_GEN, (size_t)count, ret);
    if (rc != 0)
        return rc;
    bool fill = slot[1] && slot[1]->kind != TPL_NONE;
    size_t each = n / (size_t)count, more = n % (size_t)count, at = 0;
    for (size_t i = 0; rc == 0 && i < (size_t)count; i++) {
        size_t take = each + (i < more);
        rc = make_list(
            r, v + at, take, fill && i >= more && more ? 1 : 0, slot[1], &ret->u.seq->items[i]);
        at += take;
    }
    return rc;
}

FILTER(filter_groupby)
{
    static const char *const params[] = {"attribute", "default", "case_sensitive", NULL};
    const struct tpl_value *slot[3], *v;
    struct tpl_value *items, *keys;
    bool cased = false;
    size_t n, groups = 0;
    int rc = tpl_bind(r, a, "groupby", params, 1, slot);
    if (rc == 0 && slot[2])
        rc = tpl_truth(r, slot[2], &cased);
    if (rc == 0)
        rc = tpl_items(r, self, &v, &n);
    if (rc != 0)
        return rc;
    items = tpl_alloc_array(r, n ? n : 1, sizeof(*items));
    keys = items ? tpl_alloc_array(r, n ? n : 1, sizeof(*keys)) : NULL;
    if (!keys)
        return TRL_E_DATA;
    for (size_t i = 0; i < n && rc == 0; i++) {
        items[i] = v[i];
        rc = tpl_path_get(r, &v[i], slot[0], slot[1], &keys[i]);
        if (rc == 0 && !cased)
            rc = fold(r, &keys[i]);
    }
    if (rc == 0)
        rc = tpl_sort(r, items, keys, n, false);
    if (rc == 0)
        rc = tpl_seq_new(r, TPL_LIST, n, ret);
    for (size_t i = 0; i < n && rc == 0;) {
        size_t j = i + 1;
        bool eq = true;
        while (j < n && (rc = tpl_equal(r, &keys[i], &keys[j], &eq)) == 0 && eq)
            j++;
        struct tpl_value *pair = &ret->u.seq->items[groups++];
        if (rc == 0)
            rc = tpl_seq_new(r, TPL_TUPLE, 2, pair);
        if (rc == 0) /* the name of a group is its first element's own, not folded */
            rc = tpl_path_get(r, &items[i], slot[0], slot[1], &pair->u.seq->items[0]);
        if (rc == 0)
            rc = make_list(r, items + i, j - i, 0, NULL, &pair->u.seq->items[1]);
        i = j;
    }
    if (rc == 0)
        ret->u.seq->len = groups;
    return rc;
}

const struct tpl_builtin *tpl_filter_find_seq(const char *name)
{
    static const struct tpl_builtin table[] = {
        {"sort", filter_sort},
        {"dictsort", filter_dictsort},
        {"unique", filter_unique},
        {"min", filter_min},
        {"max", filter_max},
        {"sum", filter_sum},
        {"join", filter_join},
        {"reverse", filter_reverse},
        {"batch", filter_batch},
        {"slice", filter_slice},
        {"groupby", filter_groupby},
    };
    return TPL_FIND(table, name);
}
