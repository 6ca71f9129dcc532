/* SPDX-License-Identifier: Apache-2.0 */
/* Values of a rendering: making them, reading JSON lazily, dicts. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "data/tpl-internal.h"

int tpl_raise_code(struct tpl_render *r, int code, const char *fmt, ...)
{
    char text[1024];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof(text), fmt, ap);
    va_end(ap);
    uint32_t line = r->at ? r->at->line : 1, col = r->at ? r->at->col : 1;
    return tpl_fail_at(r->t, r->err, code, line, col, "%s", text);
}

int tpl_raise(struct tpl_render *r, const char *fmt, ...)
{
    char text[1024];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof(text), fmt, ap);
    va_end(ap);
    return tpl_raise_code(r, TRL_E_DATA, "%s", text);
}

void *tpl_alloc(struct tpl_render *r, size_t size)
{
    if (size > TPL_MAX_MEMORY || r->memory + size > TPL_MAX_MEMORY) {
        tpl_raise(r, "the template needs more than %zu MB of memory", TPL_MAX_MEMORY >> 20);
        return NULL;
    }
    void *p = trl_arena_alloc(&r->arena, size);
    if (!p) {
        tpl_raise_code(r, TRL_E_NOMEM, "out of memory");
        return NULL;
    }
    r->memory += size;
    return p;
}

void *tpl_alloc_array(struct tpl_render *r, size_t n, size_t size)
{
    return tpl_alloc(r, n > TPL_MAX_MEMORY / (size ? size : 1) ? TPL_MAX_MEMORY + 1 : n * size);
}

int tpl_charge(struct tpl_render *r, uint64_t work)
{
    r->work += work;
    if (r->work > TPL_MAX_WORK)
        return tpl_raise(r, "the template does too much work (more than %llu steps)",
            (unsigned long long)TPL_MAX_WORK);
    return 0;
}

struct tpl_value tpl_none(void)
{
    return (struct tpl_value){.kind = TPL_NONE};
}

struct tpl_value tpl_bool(bool b)
{
    return (struct tpl_value){.kind = TPL_BOOL, .u.i = b};
}

struct tpl_value tpl_int(int64_t i)
{
    return (struct tpl_value){.kind = TPL_INT, .u.i = i};
}

struct tpl_value tpl_float(double f)
{
    return (struct tpl_value){.kind = TPL_FLOAT, .u.f = f};
}

int tpl_str_wrap(struct tpl_render *r, const char *data, size_t len, struct tpl_value *ret)
{
    struct tpl_str *s = tpl_alloc(r, sizeof(*s));
    if (!s)
        return TRL_E_DATA;
    s->data = data;
    s->len = len;
    *ret = (struct tpl_value){.kind = TPL_STR, .u.str = s};
    return 0;
}

static int check_len(struct tpl_render *r, size_t len)
{
    if (len > TPL_MAX_OUTPUT)
        return tpl_raise(r, "a string becomes longer than %zu MB", TPL_MAX_OUTPUT >> 20);
    return 0;
}

int tpl_str_new(struct tpl_render *r, const char *data, size_t len, struct tpl_value *ret)
{
    int rc = check_len(r, len);
    if (rc != 0)
        return rc;
    char *p = tpl_alloc(r, len + 1);
    if (!p)
        return TRL_E_DATA;
    if (len)
        memcpy(p, data, len);
    return tpl_str_wrap(r, p, len, ret);
}

int tpl_str_take_buf(struct tpl_render *r, struct trl_str *s, struct tpl_value *ret)
{
    int rc = s->failed ? tpl_raise_code(r, TRL_E_NOMEM, "out of memory")
                       : tpl_str_new(r, s->data, s->len, ret);
    trl_str_release(s);
    return rc;
}

/* a + b. Longer texts get a buffer with room, so that building a text piece by piece copies each
 * byte a few times only. */
int tpl_str_concat(struct tpl_render *r, const struct tpl_value *a, const struct tpl_value *b,
    struct tpl_value *ret)
{
    const struct tpl_str *x = a->u.str, *y = b->u.str;
    size_t len = x->len + y->len;
    int rc = check_len(r, len);
    if (rc != 0)
        return rc;
    struct tpl_buf *buf = x->buf;
    if (buf && x->data + x->len == buf->data + buf->used && buf->cap - buf->used >= y->len) {
        if (y->len)
            memcpy(buf->data + buf->used, y->data, y->len);
        buf->used += y->len;
        rc = tpl_str_wrap(r, x->data, len, ret);
        if (rc == 0)
            ret->u.str->buf = buf;
        return rc;
    }
    size_t cap = len < 256 ? len : 2 * len;
    char *p = tpl_alloc(r, cap + 1);
    if (!p)
        return TRL_E_DATA;
    if (x->len)
        memcpy(p, x->data, x->len);
    if (y->len)
        memcpy(p + x->len, y->data, y->len);
    rc = tpl_str_wrap(r, p, len, ret);
    if (rc == 0 && cap > len) {
        buf = tpl_alloc(r, sizeof(*buf));
        if (!buf)
            return TRL_E_DATA;
        *buf = (struct tpl_buf){.used = len, .cap = cap, .data = p};
        ret->u.str->buf = buf;
    }
    return rc;
}

int tpl_seq_new(struct tpl_render *r, enum tpl_kind kind, size_t n, struct tpl_value *ret)
{
    struct tpl_seq *s = tpl_alloc(r, sizeof(*s));
    if (!s)
        return TRL_E_DATA;
    s->items = tpl_alloc_array(r, n ? n : 1, sizeof(struct tpl_value));
    if (!s->items)
        return TRL_E_DATA;
    s->len = n;
    *ret = (struct tpl_value){.kind = kind, .u.seq = s};
    return 0;
}

int tpl_undef_new(struct tpl_render *r, struct tpl_value *ret, const char *fmt, ...)
{
    char text[512];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof(text), fmt, ap);
    va_end(ap);
    size_t n = strlen(text);
    struct tpl_undef *u = tpl_alloc(r, sizeof(*u));
    char *copy = u ? tpl_alloc(r, n + 1) : NULL;
    if (!copy)
        return TRL_E_DATA;
    memcpy(copy, text, n + 1);
    u->text = copy;
    *ret = (struct tpl_value){.kind = TPL_UNDEF, .u.undef = u};
    return 0;
}

int tpl_from_json(struct tpl_render *r, const json_t *j, struct tpl_value *ret)
{
    switch (json_typeof(j)) {
    case JSON_OBJECT: {
        struct tpl_dict *d = tpl_alloc(r, sizeof(*d));
        if (!d)
            return TRL_E_DATA;
        d->src = j;
        d->len = json_object_size(j);
        *ret = (struct tpl_value){.kind = TPL_DICT, .u.dict = d};
        return 0;
    }
    case JSON_ARRAY: {
        struct tpl_seq *s = tpl_alloc(r, sizeof(*s));
        if (!s)
            return TRL_E_DATA;
        s->src = j;
        s->len = json_array_size(j);
        *ret = (struct tpl_value){.kind = TPL_LIST, .u.seq = s};
        return 0;
    }
    case JSON_STRING:
        return tpl_str_wrap(r, json_string_value(j), json_string_length(j), ret);
    case JSON_INTEGER:
        *ret = tpl_int(json_integer_value(j));
        return 0;
    case JSON_REAL:
        *ret = tpl_float(json_real_value(j));
        return 0;
    case JSON_TRUE:
    case JSON_FALSE:
        *ret = tpl_bool(json_is_true(j));
        return 0;
    case JSON_NULL:
    default:
        *ret = tpl_none();
        return 0;
    }
}

int tpl_seq_load(struct tpl_render *r, struct tpl_seq *s)
{
    if (!s->src)
        return 0;
    struct tpl_value *items = tpl_alloc_array(r, s->len ? s->len : 1, sizeof(*items));
    if (!items)
        return TRL_E_DATA;
    for (size_t i = 0; i < s->len; i++) {
        int rc = tpl_from_json(r, json_array_get(s->src, i), &items[i]);
        if (rc != 0)
            return rc;
    }
    s->items = items;
    s->src = NULL;
    return 0;
}

/* ---- dicts ---- */

enum { INDEX_FROM = 16 }; /* entries from which a dict has a hash table */

static uint64_t hash_bytes(const char *s, size_t n)
{
    uint64_t h = 1469598103934665603u;
    for (size_t i = 0; i < n; i++)
        h = (h ^ (unsigned char)s[i]) * 1099511628211u;
    return h ^ h >> 29;
}

/* Equal values have equal hashes; unlike ones only mostly differ. */
static uint64_t hash_value(const struct tpl_value *v)
{
    if (v->kind == TPL_STR)
        return hash_bytes(v->u.str->data, v->u.str->len);
    if (tpl_is_num(v)) {
        double d = tpl_num(v);
        if (d == 0)
            d = 0; /* -0.0 equals 0 */
        return hash_bytes((const char *)&d, sizeof(d));
    }
    return v->kind;
}

int tpl_hashable(struct tpl_render *r, const struct tpl_value *v)
{
    if (v->kind == TPL_TUPLE) {
        for (size_t i = 0; i < v->u.seq->len; i++) {
            int rc = tpl_hashable(r, &v->u.seq->items[i]);
            if (rc != 0)
                return rc;
        }
        return 0;
    }
    if (v->kind == TPL_LIST || v->kind == TPL_DICT || v->kind == TPL_SLICE ||
        v->kind == TPL_DICT_KEYS || v->kind == TPL_DICT_ITEMS)
        return tpl_raise(r, "unhashable type: '%s'", tpl_type_name(v));
    return 0;
}

int tpl_dict_new(struct tpl_render *r, enum tpl_kind kind, size_t reserve, struct tpl_value *ret)
{
    struct tpl_dict *d = tpl_alloc(r, sizeof(*d));
    if (!d)
        return TRL_E_DATA;
    d->cap = reserve ? reserve : 4;
    d->keys = tpl_alloc_array(r, d->cap, sizeof(struct tpl_value));
    d->vals = d->keys ? tpl_alloc_array(r, d->cap, sizeof(struct tpl_value)) : NULL;
    if (!d->vals)
        return TRL_E_DATA;
    *ret = (struct tpl_value){.kind = kind, .u.dict = d};
    return 0;
}

static int build_index(struct tpl_render *r, struct tpl_dict *d)
{
    size_t size = 64;
    while (size < 4 * d->cap)
        size *= 2;
    d->index = tpl_alloc_array(r, size, sizeof(uint32_t));
    if (!d->index)
        return TRL_E_DATA;
    d->index_size = size;
    for (size_t i = 0; i < d->len; i++) {
        size_t h = hash_value(&d->keys[i]) & (size - 1);
        while (d->index[h])
            h = (h + 1) & (size - 1);
        d->index[h] = (uint32_t)i + 1;
    }
    return 0;
}

static int find_at(
    struct tpl_render *r, struct tpl_dict *d, const struct tpl_value *key, int64_t *ret)
{
    bool eq = false;
    int rc;
    *ret = -1;
    if (d->index) {
        for (size_t h = hash_value(key) & (d->index_size - 1); d->index[h];
             h = (h + 1) & (d->index_size - 1)) {
            if ((rc = tpl_charge(r, 1)) != 0 ||
                (rc = tpl_equal(r, key, &d->keys[d->index[h] - 1], &eq)) != 0)
                return rc;
            if (eq) {
                *ret = d->index[h] - 1;
                return 0;
            }
        }
        return 0;
    }
    for (size_t i = 0; i < d->len; i++) {
        if ((rc = tpl_equal(r, key, &d->keys[i], &eq)) != 0)
            return rc;
        if (eq) {
            *ret = (int64_t)i;
            return 0;
        }
    }
    return 0;
}

int tpl_dict_load(struct tpl_render *r, struct tpl_dict *d)
{
    if (!d->src)
        return 0;
    size_t n = json_object_size(d->src), i = 0;
    d->cap = n ? n : 1;
    d->keys = tpl_alloc_array(r, d->cap, sizeof(struct tpl_value));
    d->vals = d->keys ? tpl_alloc_array(r, d->cap, sizeof(struct tpl_value)) : NULL;
    if (!d->vals)
        return TRL_E_DATA;
    /* jansson's iterator takes a non-const object but does not change it. */
    json_t *src = (json_t *)(uintptr_t)d->src;
    for (void *it = json_object_iter(src); it && i < n; it = json_object_iter_next(src, it), i++) {
        int rc = tpl_str_wrap(
            r, json_object_iter_key(it), strlen(json_object_iter_key(it)), &d->keys[i]);
        if (rc == 0)
            rc = tpl_from_json(r, json_object_iter_value(it), &d->vals[i]);
        if (rc != 0)
            return rc;
    }
    d->len = i;
    d->src = NULL;
    return d->len >= INDEX_FROM ? build_index(r, d) : 0;
}

int tpl_dict_find(struct tpl_render *r, struct tpl_dict *d, const struct tpl_value *key,
    const struct tpl_value **ret)
{
    int64_t at = -1;
    int rc = tpl_dict_load(r, d);
    if (rc == 0)
        rc = find_at(r, d, key, &at);
    *ret = rc == 0 && at >= 0 ? &d->vals[at] : NULL;
    return rc;
}

int tpl_dict_set(struct tpl_render *r, struct tpl_dict *d, const struct tpl_value *key,
    const struct tpl_value *val)
{
    int64_t at = -1;
    int rc = tpl_dict_load(r, d);
    if (rc == 0)
        rc = tpl_hashable(r, key);
    if (rc == 0)
        rc = find_at(r, d, key, &at);
    if (rc != 0)
        return rc;
    if (at >= 0) {
        d->vals[at] = *val;
        return 0;
    }
    if (d->len == d->cap) {
        size_t cap = 2 * d->cap;
        struct tpl_value *keys = tpl_alloc_array(r, cap, sizeof(*keys));
        struct tpl_value *vals = keys ? tpl_alloc_array(r, cap, sizeof(*vals)) : NULL;
        if (!vals)
            return TRL_E_DATA;
        memcpy(keys, d->keys, d->len * sizeof(*keys));
        memcpy(vals, d->vals, d->len * sizeof(*vals));
        d->keys = keys;
        d->vals = vals;
        d->cap = cap;
        if (cap >= INDEX_FROM && (rc = build_index(r, d)) != 0)
            return rc;
    }
    d->keys[d->len] = *key;
    d->vals[d->len] = *val;
    d->len++;
    if (d->index) {
        size_t h = hash_value(key) & (d->index_size - 1);
        while (d->index[h])
            h = (h + 1) & (d->index_size - 1);
        d->index[h] = (uint32_t)d->len;
    }
    return 0;
}

/* ---- small questions ---- */

bool tpl_is_seq(const struct tpl_value *v)
{
    return v->kind >= TPL_LIST && v->kind <= TPL_DICT_ITEMS;
}

bool tpl_is_int(const struct tpl_value *v)
{
    return v->kind == TPL_BOOL || v->kind == TPL_INT;
}

bool tpl_is_num(const struct tpl_value *v)
{
    return tpl_is_int(v) || v->kind == TPL_FLOAT;
}

double tpl_num(const struct tpl_value *v)
{
    return v->kind == TPL_FLOAT ? v->u.f : (double)v->u.i;
}

const char *tpl_type_name(const struct tpl_value *v)
{
    static const char *const names[] = {
        [TPL_UNDEF] = "Undefined",
        [TPL_NONE] = "NoneType",
        [TPL_BOOL] = "bool",
        [TPL_INT] = "int",
        [TPL_FLOAT] = "float",
        [TPL_STR] = "str",
        [TPL_LIST] = "list",
        [TPL_TUPLE] = "tuple",
        [TPL_RANGE] = "range",
        [TPL_GEN] = "generator",
        [TPL_DICT_KEYS] = "dict_keys",
        [TPL_DICT_VALUES] = "dict_values",
        [TPL_DICT_ITEMS] = "dict_items",
        [TPL_DICT] = "dict",
        [TPL_NAMESPACE] = "Namespace",
        [TPL_MACRO] = "Macro",
        [TPL_FUNC] = "function",
        [TPL_LOOP] = "LoopContext",
        [TPL_SLICE] = "slice",
    };
    return names[v->kind];
}

size_t tpl_utf8_count(const char *s, size_t len)
{
    size_t n = 0;
    for (size_t i = 0; i < len; i++)
        n += ((unsigned char)s[i] & 0xC0) != 0x80;
    return n;
}

bool tpl_is_space(unsigned cp)
{
    return (cp >= 9 && cp <= 13) || (cp >= 28 && cp <= 32) || cp == 0x85 || cp == 0xA0 ||
        cp == 0x1680 || (cp >= 0x2000 && cp <= 0x200A) || cp == 0x2028 || cp == 0x2029 ||
        cp == 0x202F || cp == 0x205F || cp == 0x3000;
}

bool tpl_str_is(const struct tpl_value *v, const char *text)
{
    return v->kind == TPL_STR && v->u.str->len == strlen(text) &&
        memcmp(v->u.str->data, text, v->u.str->len) == 0;
}
