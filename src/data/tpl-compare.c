/* SPDX-License-Identifier: Apache-2.0 */
/* Truth, equality, order, length, membership and iteration of values, as in Python. */
#include <string.h>

#include "data/tpl-internal.h"

int tpl_use_undef(struct tpl_render *r, const struct tpl_value *v)
{
    return tpl_raise(r, "%s", v->u.undef->text);
}

int tpl_truth(struct tpl_render *r, const struct tpl_value *v, bool *ret)
{
    switch (v->kind) {
    case TPL_UNDEF:
    case TPL_NONE:
        *ret = false;
        return 0;
    case TPL_BOOL:
    case TPL_INT:
        *ret = v->u.i != 0;
        return 0;
    case TPL_FLOAT:
        *ret = v->u.f != 0;
        return 0;
    case TPL_STR:
        *ret = v->u.str->len != 0;
        return 0;
    case TPL_LIST:
    case TPL_TUPLE:
    case TPL_RANGE:
    case TPL_DICT_KEYS:
    case TPL_DICT_VALUES:
    case TPL_DICT_ITEMS:
        *ret = v->u.seq->len != 0;
        return 0;
    case TPL_DICT:
        *ret = v->u.dict->len != 0;
        return 0;
    default:
        (void)r;
        *ret = true;
        return 0;
    }
}

static int equal_at(struct tpl_render *r, const struct tpl_value *a, const struct tpl_value *b,
    int depth, bool *ret);

static int equal_seq(
    struct tpl_render *r, struct tpl_seq *a, struct tpl_seq *b, int depth, bool *ret)
{
    int rc = a == b ? 0 : tpl_seq_load(r, a);
    *ret = a == b;
    if (rc == 0 && a != b)
        rc = tpl_seq_load(r, b);
    if (rc != 0 || a == b || a->len != b->len)
        return rc;
    *ret = true;
    for (size_t i = 0; i < a->len && *ret && rc == 0; i++)
        rc = equal_at(r, &a->items[i], &b->items[i], depth, ret);
    return rc;
}

static int equal_dict(
    struct tpl_render *r, struct tpl_dict *a, struct tpl_dict *b, int depth, bool *ret)
{
    int rc = tpl_dict_load(r, a);
    *ret = a == b;
    if (rc != 0 || a == b)
        return rc;
    if ((rc = tpl_dict_load(r, b)) != 0 || a->len != b->len)
        return rc;
    for (size_t i = 0; i < a->len; i++) {
        const struct tpl_value *other;
        bool eq = false;
        rc = tpl_dict_find(r, b, &a->keys[i], &other);
        if (rc == 0 && other)
            rc = equal_at(r, &a->vals[i], other, depth, &eq);
        if (rc != 0 || !eq)
            return rc;
    }
    *ret = true;
    return 0;
}

static int equal_at(struct tpl_render *r, const struct tpl_value *a, const struct tpl_value *b,
    int depth, bool *ret)
{
    *ret = false;
    if (depth > TPL_MAX_VALUE_DEPTH)
        return tpl_raise(r, "values nested deeper than %d levels", TPL_MAX_VALUE_DEPTH);
    int rc = tpl_charge(r, 1);
    if (rc != 0)
        return rc;
    if (tpl_is_num(a) && tpl_is_num(b)) {
        if (a->kind == TPL_FLOAT || b->kind == TPL_FLOAT) {
            /* long double holds every 64-bit integer exactly */
            long double x = a->kind == TPL_FLOAT ? (long double)a->u.f : (long double)a->u.i;
            long double y = b->kind == TPL_FLOAT ? (long double)b->u.f : (long double)b->u.i;
            *ret = x == y;
        } else {
            *ret = a->u.i == b->u.i;
        }
        return 0;
    }
    if (a->kind != b->kind)
        return 0;
    switch (a->kind) {
    case TPL_UNDEF:
    case TPL_NONE:
        *ret = true;
        return 0;
    case TPL_STR:
        *ret = a->u.str->len == b->u.str->len &&
            (a->u.str->len == 0 || memcmp(a->u.str->data, b->u.str->data, a->u.str->len) == 0);
        return tpl_charge(r, a->u.str->len / 16);
    case TPL_LIST:
    case TPL_TUPLE:
    case TPL_RANGE:
    case TPL_DICT_KEYS:
    case TPL_DICT_ITEMS:
        return equal_seq(r, a->u.seq, b->u.seq, depth + 1, ret);
    case TPL_DICT:
        return equal_dict(r, a->u.dict, b->u.dict, depth + 1, ret);
    case TPL_FUNC:
        *ret = a->u.func == b->u.func;
        return 0;
    default:
        *ret = a->u.seq == b->u.seq; /* identity */
        return 0;
    }
}

int tpl_equal(struct tpl_render *r, const struct tpl_value *a, const struct tpl_value *b, bool *ret)
{
    return equal_at(r, a, b, 0, ret);
}

/* *ret < 0, 0, > 0; TPL_UNORDERED for NaN */
enum { UNORDERED = 2 };

static int order(struct tpl_render *r, const struct tpl_value *a, const struct tpl_value *b,
    const char *op, int depth, int *ret)
{
    int rc = tpl_charge(r, 1);
    if (rc != 0)
        return rc;
    if (depth > TPL_MAX_VALUE_DEPTH)
        return tpl_raise(r, "values nested deeper than %d levels", TPL_MAX_VALUE_DEPTH);
    if (a->kind == TPL_UNDEF)
        return tpl_use_undef(r, a);
    if (b->kind == TPL_UNDEF)
        return tpl_use_undef(r, b);
    if (tpl_is_num(a) && tpl_is_num(b)) {
        long double x = a->kind == TPL_FLOAT ? (long double)a->u.f : (long double)a->u.i;
        long double y = b->kind == TPL_FLOAT ? (long double)b->u.f : (long double)b->u.i;
        *ret = x < y ? -1 : x > y ? 1 : x == y ? 0 : UNORDERED;
        return 0;
    }
    if (a->kind == TPL_STR && b->kind == TPL_STR) {
        size_t n = a->u.str->len < b->u.str->len ? a->u.str->len : b->u.str->len;
        int c =
            n ? memcmp(a->u.str->data, b->u.str->data, n) : 0; /* UTF-8 order is code point order */
        *ret = c ? (c < 0 ? -1 : 1)
                 : (a->u.str->len > b->u.str->len) - (a->u.str->len < b->u.str->len);
        return tpl_charge(r, n / 16);
    }
    if (a->kind == b->kind && (a->kind == TPL_LIST || a->kind == TPL_TUPLE)) {
        struct tpl_seq *x = a->u.seq, *y = b->u.seq;
        if ((rc = tpl_seq_load(r, x)) != 0 || (rc = tpl_seq_load(r, y)) != 0)
            return rc;
        for (size_t i = 0; i < x->len && i < y->len; i++) {
            bool eq;
            if ((rc = tpl_equal(r, &x->items[i], &y->items[i], &eq)) != 0)
                return rc;
            if (!eq)
                return order(r, &x->items[i], &y->items[i], op, depth + 1, ret);
        }
        *ret = (x->len > y->len) - (x->len < y->len);
        return 0;
    }
    return tpl_raise(r, "'%s' not supported between instances of '%s' and '%s'", op,
        tpl_type_name(a), tpl_type_name(b));
}

int tpl_less(struct tpl_render *r, const struct tpl_value *a, const struct tpl_value *b,
    const char *op, int *ret)
{
    return order(r, a, b, op, 0, ret);
}

int tpl_compare_op(
    struct tpl_render *r, int op, const struct tpl_value *a, const struct tpl_value *b, bool *ret)
{
    static const char *const names[] = {"<", "<=", ">", ">="};
    int c = 0, rc;
    switch (op) {
    case TPL_T_EQ:
        return tpl_equal(r, a, b, ret);
    case TPL_T_NE:
        rc = tpl_equal(r, a, b, ret);
        *ret = !*ret;
        return rc;
    case TPL_T_IN:
        return tpl_contains(r, a, b, ret);
    case TPL_T_NOT_IN:
        rc = tpl_contains(r, a, b, ret);
        *ret = !*ret;
        return rc;
    default:
        rc = order(r, a, b, names[op - TPL_T_LT], 0, &c);
        *ret = c != UNORDERED &&
            (op == TPL_T_LT          ? c < 0
                    : op == TPL_T_LE ? c <= 0
                    : op == TPL_T_GT ? c > 0
                                     : c >= 0);
        return rc;
    }
}

int tpl_contains(
    struct tpl_render *r, const struct tpl_value *item, const struct tpl_value *in, bool *ret)
{
    *ret = false;
    if (in->kind == TPL_STR) {
        if (item->kind != TPL_STR) {
            if (item->kind == TPL_UNDEF)
                return tpl_raise(r, "'in <string>' requires string as left operand, not Undefined");
            return tpl_raise(
                r, "'in <string>' requires string as left operand, not %s", tpl_type_name(item));
        }
        const struct tpl_str *a = item->u.str, *b = in->u.str;
        *ret = a->len == 0 || (b->len && memmem(b->data, b->len, a->data, a->len) != NULL);
        return tpl_charge(r, b->len / 8);
    }
    if (in->kind == TPL_DICT) {
        const struct tpl_value *found;
        int rc = tpl_hashable(r, item);
        if (rc == 0)
            rc = tpl_dict_find(r, in->u.dict, item, &found);
        *ret = rc == 0 && found;
        return rc;
    }
    if (!tpl_is_iterable(in))
        return tpl_raise(r, "argument of type '%s' is not iterable", tpl_type_name(in));
    const struct tpl_value *v;
    size_t n;
    int rc = tpl_items(r, in, &v, &n);
    for (size_t i = 0; i < n && rc == 0 && !*ret; i++)
        rc = tpl_equal(r, item, &v[i], ret);
    return rc;
}

int tpl_len(struct tpl_render *r, const struct tpl_value *v, int64_t *ret)
{
    switch (v->kind) {
    case TPL_UNDEF:
        *ret = 0;
        return 0;
    case TPL_STR:
        *ret = (int64_t)tpl_utf8_count(v->u.str->data, v->u.str->len);
        return tpl_charge(r, v->u.str->len / 8);
    case TPL_LIST:
    case TPL_TUPLE:
    case TPL_RANGE:
    case TPL_DICT_KEYS:
    case TPL_DICT_VALUES:
    case TPL_DICT_ITEMS:
        *ret = (int64_t)v->u.seq->len;
        return 0;
    case TPL_DICT:
        *ret = (int64_t)v->u.dict->len;
        return 0;
    default:
        return tpl_raise(r, "object of type '%s' has no len()", tpl_type_name(v));
    }
}

bool tpl_is_iterable(const struct tpl_value *v)
{
    return v->kind == TPL_UNDEF || v->kind == TPL_STR || tpl_is_seq(v) || v->kind == TPL_DICT;
}

int tpl_items(
    struct tpl_render *r, const struct tpl_value *v, const struct tpl_value **ret, size_t *ret_n)
{
    int rc = 0;
    *ret = NULL;
    *ret_n = 0;
    if (v->kind == TPL_UNDEF)
        return 0;
    if (v->kind == TPL_DICT) {
        rc = tpl_dict_load(r, v->u.dict);
        *ret = v->u.dict->keys;
        *ret_n = rc == 0 ? v->u.dict->len : 0;
        return rc;
    }
    if (tpl_is_seq(v)) {
        rc = tpl_seq_load(r, v->u.seq);
        *ret = v->u.seq->items;
        *ret_n = rc == 0 ? v->u.seq->len : 0;
        if (v->kind == TPL_GEN)
            v->u.seq->len = 0; /* used up */
        return rc != 0 ? rc : tpl_charge(r, *ret_n);
    }
    if (v->kind != TPL_STR)
        return tpl_raise(r, "'%s' object is not iterable", tpl_type_name(v));
    size_t n = tpl_utf8_count(v->u.str->data, v->u.str->len), at = 0;
    struct tpl_value *chars = tpl_alloc_array(r, n ? n : 1, sizeof(*chars));
    if (!chars)
        return TRL_E_DATA;
    for (size_t i = 0; i < n; i++) {
        unsigned cp;
        int len = trl_utf8_decode(v->u.str->data + at, v->u.str->len - at, &cp);
        len = len > 0 ? len : 1;
        if ((rc = tpl_str_wrap(r, v->u.str->data + at, (size_t)len, &chars[i])) != 0)
            return rc;
        at += (size_t)len;
    }
    *ret = chars;
    *ret_n = n;
    return 0;
}

/* Merge sort, stable. */
int tpl_sort(
    struct tpl_render *r, struct tpl_value *v, struct tpl_value *keys, size_t n, bool reverse)
{
    if (n < 2)
        return 0;
    size_t half = n / 2;
    int rc = tpl_sort(r, v, keys, half, reverse);
    if (rc == 0)
        rc = tpl_sort(r, v + half, keys + half, n - half, reverse);
    struct tpl_value *tv = rc == 0 ? tpl_alloc_array(r, n, sizeof(*tv)) : NULL;
    struct tpl_value *tk = tv ? tpl_alloc_array(r, n, sizeof(*tk)) : NULL;
    if (!tk)
        return rc != 0 ? rc : TRL_E_DATA;
    size_t i = 0, j = half, k = 0;
    while (i < half && j < n) {
        int c;
        if ((rc = tpl_less(r, &keys[j], &keys[i], "<", &c)) != 0)
            return rc;
        bool right = reverse ? c == 1 : c < 0;
        tv[k] = right ? v[j] : v[i];
        tk[k++] = right ? keys[j++] : keys[i++];
    }
    for (; i < half; i++) {
        tv[k] = v[i];
        tk[k++] = keys[i];
    }
    for (; j < n; j++) {
        tv[k] = v[j];
        tk[k++] = keys[j];
    }
    memcpy(v, tv, n * sizeof(*v));
    memcpy(keys, tk, n * sizeof(*keys));
    return 0;
}
