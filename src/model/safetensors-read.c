/* SPDX-License-Identifier: Apache-2.0 */
#include "model/safetensors.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/str.h"

enum { ST_MAX_HEADER = 100000000 };

static const struct {
    const char *name;
    unsigned bits;
} st_dtypes[] = {
#define X(name, bits) {#name, bits},
    TRL_ST_DTYPES(X)
#undef X
};

const char *trl_st_dtype_name(enum trl_st_dtype t)
{
    return (unsigned)t < TRL_ST_DTYPE_MAX_ ? st_dtypes[t].name : "?";
}

int trl_st_dtype_native(enum trl_st_dtype t, enum trl_dtype *ret)
{
    if (t != TRL_ST_F32 && t != TRL_ST_F16 && t != TRL_ST_BF16)
        return -1;
    *ret = t == TRL_ST_F32 ? TRL_DTYPE_F32 : t == TRL_ST_F16 ? TRL_DTYPE_F16 : TRL_DTYPE_BF16;
    return 0;
}

static int read_u64(const json_t *j, uint64_t *ret)
{
    if (!json_is_integer(j) || json_integer_value(j) < 0)
        return -1;
    *ret = (uint64_t)json_integer_value(j);
    return 0;
}

/* shape -> ndim, shape, numel; -1: not a list of sizes, or too large */
static int read_shape(const json_t *j, struct trl_st_tensor *t)
{
    if (!json_is_array(j) || json_array_size(j) > TRL_ST_MAX_DIMS)
        return -1;
    t->ndim = (int)json_array_size(j);
    t->numel = 1;
    for (int i = 0; i < t->ndim; i++) {
        uint64_t v;
        if (read_u64(json_array_get(j, (size_t)i), &v) != 0 || v > INT64_MAX)
            return -1;
        t->shape[i] = (int64_t)v;
        if (__builtin_mul_overflow(t->numel, t->shape[i], &t->numel))
            return -1;
    }
    return 0;
}

static int read_entry(
    struct trl_st_file *f, struct trl_st_tensor *t, const json_t *e, struct trl_err *err)
{
    const char *dtype = json_string_value(json_object_get(e, "dtype"));
    if (!json_is_object(e) || !dtype)
        return trl_fail(
            err, TRL_E_PARSE, "%s: tensor %s: the header entry has no dtype", f->path, t->name);
    if (json_object_size(e) != 3)
        return trl_fail(err, TRL_E_PARSE,
            "%s: tensor %s: the header entry has %zu fields; dtype, shape, data_offsets are "
            "allowed",
            f->path, t->name, json_object_size(e));
    int k = 0;
    while (k < TRL_ST_DTYPE_MAX_ && strcmp(st_dtypes[k].name, dtype) != 0)
        k++;
    if (k == TRL_ST_DTYPE_MAX_)
        return trl_fail(
            err, TRL_E_PARSE, "%s: tensor %s: unknown dtype \"%.40s\"", f->path, t->name, dtype);
    t->dtype = (enum trl_st_dtype)k;
    if (read_shape(json_object_get(e, "shape"), t) != 0)
        return trl_fail(err, TRL_E_PARSE,
            "%s: tensor %s: bad shape (a list of at most %d sizes is allowed)", f->path, t->name,
            TRL_ST_MAX_DIMS);
    const json_t *off = json_object_get(e, "data_offsets");
    if (!json_is_array(off) || json_array_size(off) != 2 ||
        read_u64(json_array_get(off, 0), &t->begin) != 0 ||
        read_u64(json_array_get(off, 1), &t->end) != 0)
        return trl_fail(err, TRL_E_PARSE, "%s: tensor %s: data_offsets is not a pair of sizes",
            f->path, t->name);
    uint64_t bits;
    if (__builtin_mul_overflow((uint64_t)t->numel, (uint64_t)st_dtypes[k].bits, &bits) ||
        bits % 8 != 0)
        return trl_fail(err, TRL_E_PARSE,
            "%s: tensor %s: the size of its shape is not a number of bytes", f->path, t->name);
    if (t->begin > t->end || t->end - t->begin != bits / 8)
        return trl_fail(err, TRL_E_PARSE,
            "%s: tensor %s: data_offsets [%llu, %llu] do not hold the %llu bytes of its shape",
            f->path, t->name, (unsigned long long)t->begin, (unsigned long long)t->end,
            (unsigned long long)(bits / 8));
    return 0;
}

static int read_metadata(struct trl_st_file *f, json_t *m, struct trl_err *err)
{
    const char *key;
    json_t *v;
    if (!json_is_object(m))
        return trl_fail(err, TRL_E_PARSE, "%s: __metadata__ is not an object", f->path);
    json_object_foreach(m, key, v) if (!json_is_string(v)) return trl_fail(
        err, TRL_E_PARSE, "%s: __metadata__.%s is not a string", f->path, key);
    return 0;
}

static int by_offset(const void *pa, const void *pb)
{
    const struct trl_st_tensor *a = pa, *b = pb;
    if (a->begin != b->begin)
        return a->begin < b->begin ? -1 : 1;
    if (a->end != b->end)
        return a->end < b->end ? -1 : 1;
    return strcmp(a->name, b->name);
}

/* Tensors must tile the byte buffer: no hole, no overlap, nothing behind the last one. */
static int check_tiling(struct trl_st_file *f, struct trl_err *err)
{
    qsort(f->items, (size_t)f->n, sizeof(f->items[0]), by_offset);
    uint64_t at = 0;
    for (int i = 0; i < f->n; i++) {
        const struct trl_st_tensor *t = &f->items[i];
        if (t->begin != at)
            return trl_fail(err, TRL_E_PARSE,
                "%s: tensor %s begins at byte %llu, %s byte %llu where %s ends", f->path, t->name,
                (unsigned long long)t->begin, t->begin < at ? "before" : "behind",
                (unsigned long long)at, i > 0 ? f->items[i - 1].name : "the header");
        at = t->end;
        if (at > f->data_len)
            return trl_fail(err, TRL_E_PARSE,
                "%s: tensor %s ends at byte %llu, the file holds %zu (is it truncated?)", f->path,
                t->name, (unsigned long long)at, f->data_len);
    }
    if (at != f->data_len)
        return trl_fail(err, TRL_E_PARSE, "%s: %llu bytes follow the last tensor", f->path,
            (unsigned long long)(f->data_len - at));
    return 0;
}

static int read_header(struct trl_st_file *f, json_t *root, struct trl_err *err)
{
    const char *key;
    json_t *v;
    if (!json_is_object(root))
        return trl_fail(err, TRL_E_PARSE, "%s: the header is not an object", f->path);
    f->items = trl_calloc(json_object_size(root) + 1, sizeof(f->items[0]));
    if (!f->items)
        return trl_fail_nomem(
            err, json_object_size(root) * sizeof(f->items[0]), "a table of tensors");
    int rc = 0;
    json_object_foreach(root, key, v)
    {
        if (strcmp(key, "__metadata__") == 0) {
            rc = read_metadata(f, v, err);
        } else {
            struct trl_st_tensor *t = &f->items[f->n++];
            t->name = trl_strdup(key);
            rc = t->name ? read_entry(f, t, v, err)
                         : trl_fail_nomem(err, strlen(key), "a tensor name");
        }
        if (rc)
            return rc;
    }
    return check_tiling(f, err);
}

static int parse(struct trl_st_file *f, const uint8_t *p, size_t len, struct trl_err *err)
{
    if (len < 8)
        return trl_fail(err, TRL_E_PARSE,
            "%s: not a safetensors file: %zu bytes, a header has 8 at least", f->path, len);
    uint64_t n = 0;
    for (int i = 7; i >= 0; i--)
        n = n << 8 | p[i];
    if (n > ST_MAX_HEADER)
        return trl_fail(err, TRL_E_PARSE,
            "%s: not a safetensors file: header of %llu bytes (at most %d)", f->path,
            (unsigned long long)n, ST_MAX_HEADER);
    if (n > len - 8)
        return trl_fail(err, TRL_E_PARSE,
            "%s: the header of %llu bytes goes beyond the file's %zu (is it truncated?)", f->path,
            (unsigned long long)n, len);
    if (n == 0 || p[8] != '{')
        return trl_fail(err, TRL_E_PARSE,
            "%s: not a safetensors file: the header does not begin with {", f->path);
    f->data_offset = 8 + (size_t)n;
    f->data = p + f->data_offset;
    f->data_len = len - f->data_offset;
    json_error_t je;
    json_t *root = json_loadb((const char *)p + 8, (size_t)n, JSON_REJECT_DUPLICATES, &je);
    if (!root)
        return trl_fail(err, TRL_E_PARSE, "%s: the header is not valid JSON: byte %d: %s", f->path,
            je.position, je.text);
    int rc = read_header(f, root, err);
    json_decref(root);
    return rc;
}

int trl_st_open_mem(
    struct trl_st_file *f, const void *data, size_t len, const char *path, struct trl_err *err)
{
    *f = (struct trl_st_file){0};
    f->path = trl_strdup(path);
    int rc = f->path ? parse(f, data, len, err) : trl_fail_nomem(err, strlen(path), "a path");
    if (rc)
        trl_st_close(f);
    return rc;
}

int trl_st_open(struct trl_st_file *f, const char *path, struct trl_err *err)
{
    *f = (struct trl_st_file){0};
    struct trl_map map;
    int rc = trl_map_open(&map, path, err);
    if (rc)
        return rc;
    rc = trl_st_open_mem(f, map.data, map.len, path, err);
    if (rc)
        trl_map_close(&map);
    else
        f->map = map;
    return rc;
}

void trl_st_close(struct trl_st_file *f)
{
    for (int i = 0; i < f->n; i++)
        trl_free(f->items[i].name);
    trl_free(f->items);
    trl_free(f->path);
    trl_map_close(&f->map);
    *f = (struct trl_st_file){0};
}

const struct trl_st_tensor *trl_st_find(const struct trl_st_file *f, const char *name)
{
    for (int i = 0; i < f->n; i++)
        if (strcmp(f->items[i].name, name) == 0)
            return &f->items[i];
    return NULL;
}
