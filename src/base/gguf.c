/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Layout: "GGUF", u32 version, u64 tensors, u64 pairs; pairs (string key, u32 type, value); tensor
 * infos (string name, u32 n_dims, u64 dims[], u32 type, u64 offset); padding to general.alignment;
 * data. A string is u64 length + bytes.
 */
#include "base/gguf.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/arena.h"
#include "base/fileio.h"

enum {
    ARRAY_DEPTH_MAX = 4,
    DIMS_MAX = 4,
    NAME_LEN_MAX = 65535,
    ALIGNMENT_DEFAULT = 32,
};

struct kv {
    const char *key;
    uint32_t type;
    const uint8_t *data; /* the value; of an array: its element type */
};

struct trl_gguf {
    struct trl_map map; /* data NULL when opened from memory */
    struct trl_arena arena;
    const char *origin;
    struct kv *kv;
    struct trl_gguf_tensor *tensor;
    uint64_t n_kv, n_tensor;
    struct kv **kv_by_name;
    struct trl_gguf_tensor **tensor_by_name;
};

/* A reading position. Each read checks what is left and fails with the name of the thing that was
 * cut off. */
struct cursor {
    const uint8_t *begin, *p, *end;
    const char *origin;
};

static const uint8_t value_bytes[TRL_GGUF_VALUE_MAX_] = {
#define X(name, value, bytes) [value] = (bytes),
    TRL_GGUF_VALUES(X)
#undef X
};

static const char *const value_names[TRL_GGUF_VALUE_MAX_] = {
#define X(name, value, bytes) [value] = #name,
    TRL_GGUF_VALUES(X)
#undef X
};

bool trl_ggml_type_info(
    uint32_t type, const char **ret_name, unsigned *ret_elems, unsigned *ret_bytes)
{
    static const struct {
        uint32_t type;
        const char *name;
        unsigned elems, bytes;
    } table[] = {
#define X(name, value, elems, bytes) {value, #name, elems, bytes},
        TRL_GGML_TYPES(X)
#undef X
    };
    for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++) {
        if (table[i].type != type)
            continue;
        if (ret_name)
            *ret_name = table[i].name;
        if (ret_elems)
            *ret_elems = table[i].elems;
        if (ret_bytes)
            *ret_bytes = table[i].bytes;
        return true;
    }
    return false;
}

static uint64_t load_le(const uint8_t *p, unsigned n)
{
    uint64_t v = 0;
    for (unsigned i = 0; i < n; i++)
        v |= (uint64_t)p[i] << (8 * i);
    return v;
}

static int fail_cut(const struct cursor *c, const char *what, struct trl_err *err)
{
    return trl_fail(err, TRL_E_DATA,
        "%s: the file ends inside %s at byte %zu (GGUF file cut short?)", c->origin, what,
        (size_t)(c->p - c->begin));
}

static int read_uint(
    struct cursor *c, unsigned n, uint64_t *ret, const char *what, struct trl_err *err)
{
    if ((size_t)(c->end - c->p) < n)
        return fail_cut(c, what, err);
    *ret = load_le(c->p, n);
    c->p += n;
    return 0;
}

static int read_str(
    struct cursor *c, const char **ret, uint64_t *ret_len, const char *what, struct trl_err *err)
{
    uint64_t len = 0;
    int rc = read_uint(c, 8, &len, what, err);
    if (rc)
        return rc;
    if (len > (uint64_t)(c->end - c->p))
        return fail_cut(c, what, err);
    *ret = (const char *)c->p;
    *ret_len = len;
    c->p += len;
    return 0;
}

/* A key or a tensor name: bounded, without NUL, copied so that it is NUL-terminated. */
static int read_name(
    struct trl_gguf *g, struct cursor *c, const char **ret, const char *what, struct trl_err *err)
{
    const char *s = NULL;
    uint64_t len = 0;
    int rc = read_str(c, &s, &len, what, err);
    if (rc)
        return rc;
    if (len == 0 || len > NAME_LEN_MAX || memchr(s, 0, len))
        return trl_fail(err, TRL_E_DATA,
            "%s: %s at byte %zu is empty, longer than %d bytes, or holds a NUL", g->origin, what,
            (size_t)((const uint8_t *)s - c->begin), NAME_LEN_MAX);
    *ret = trl_arena_strndup(&g->arena, s, len);
    return *ret ? 0 : trl_fail_nomem(err, len, what);
}

static int skip_value(
    struct cursor *c, uint32_t type, int depth, const char *key, struct trl_err *err);

static int skip_array(struct cursor *c, int depth, const char *key, struct trl_err *err)
{
    uint64_t elem = 0, count = 0;
    int rc;
    if ((rc = read_uint(c, 4, &elem, "an array", err)) ||
        (rc = read_uint(c, 8, &count, "an array", err)))
        return rc;
    if (elem >= TRL_GGUF_VALUE_MAX_)
        return trl_fail(err, TRL_E_DATA, "%s: key '%s': unknown array element type %" PRIu64,
            c->origin, key, elem);
    if (value_bytes[elem]) {
        if (count > (uint64_t)(c->end - c->p) / value_bytes[elem])
            return fail_cut(c, key, err);
        c->p += count * value_bytes[elem];
        return 0;
    }
    if (depth >= ARRAY_DEPTH_MAX)
        return trl_fail(err, TRL_E_DATA, "%s: key '%s': arrays nested deeper than %d", c->origin,
            key, ARRAY_DEPTH_MAX);
    for (uint64_t i = 0; i < count; i++)
        if ((rc = skip_value(c, (uint32_t)elem, depth + 1, key, err)))
            return rc;
    return 0;
}

static int skip_value(
    struct cursor *c, uint32_t type, int depth, const char *key, struct trl_err *err)
{
    const char *s = NULL;
    uint64_t len = 0;
    if (type == TRL_GGUF_STRING)
        return read_str(c, &s, &len, key, err);
    if (type == TRL_GGUF_ARRAY)
        return skip_array(c, depth, key, err);
    if (type >= TRL_GGUF_VALUE_MAX_)
        return trl_fail(
            err, TRL_E_DATA, "%s: key '%s': unknown value type %" PRIu32, c->origin, key, type);
    return read_uint(c, value_bytes[type], &len, key, err);
}

static int cmp_kv(const void *a, const void *b)
{
    return strcmp((*(struct kv *const *)a)->key, (*(struct kv *const *)b)->key);
}

static int cmp_tensor(const void *a, const void *b)
{
    return strcmp(
        (*(struct trl_gguf_tensor *const *)a)->name, (*(struct trl_gguf_tensor *const *)b)->name);
}

static int read_pairs(struct trl_gguf *g, struct cursor *c, struct trl_err *err)
{
    int rc;
    g->kv = trl_arena_array(&g->arena, g->n_kv, sizeof(*g->kv));
    g->kv_by_name = trl_arena_array(&g->arena, g->n_kv, sizeof(*g->kv_by_name));
    if (!g->kv || !g->kv_by_name)
        return trl_fail_nomem(err, g->n_kv * sizeof(*g->kv), "the GGUF keys");
    for (uint64_t i = 0; i < g->n_kv; i++) {
        struct kv *kv = &g->kv[i];
        uint64_t type = 0;
        if ((rc = read_name(g, c, &kv->key, "a key", err)) ||
            (rc = read_uint(c, 4, &type, kv->key, err)))
            return rc;
        kv->type = (uint32_t)type;
        kv->data = c->p;
        if ((rc = skip_value(c, kv->type, 0, kv->key, err)))
            return rc;
        g->kv_by_name[i] = kv;
    }
    qsort(g->kv_by_name, g->n_kv, sizeof(*g->kv_by_name), cmp_kv);
    for (uint64_t i = 1; i < g->n_kv; i++)
        if (strcmp(g->kv_by_name[i - 1]->key, g->kv_by_name[i]->key) == 0)
            return trl_fail(
                err, TRL_E_DATA, "%s: key '%s' occurs twice", g->origin, g->kv_by_name[i]->key);
    return 0;
}

static int read_tensor(
    struct trl_gguf *g, struct cursor *c, struct trl_gguf_tensor *t, struct trl_err *err)
{
    uint64_t v = 0;
    int rc;
    if ((rc = read_name(g, c, &t->name, "a tensor name", err)) ||
        (rc = read_uint(c, 4, &v, t->name, err)))
        return rc;
    if (v > DIMS_MAX)
        return trl_fail(err, TRL_E_DATA, "%s: tensor '%s' has %" PRIu64 " dimensions (at most %d)",
            g->origin, t->name, v, DIMS_MAX);
    t->n_dims = (uint32_t)v;
    t->n_elems = 1;
    for (uint32_t i = 0; i < DIMS_MAX; i++) {
        t->dims[i] = 1;
        if (i < t->n_dims && (rc = read_uint(c, 8, &t->dims[i], t->name, err)))
            return rc;
        if (t->dims[i] > INT64_MAX / 16 ||
            __builtin_mul_overflow(t->n_elems, t->dims[i], &t->n_elems) ||
            t->n_elems > INT64_MAX / 16)
            return trl_fail(err, TRL_E_DATA, "%s: the shape of tensor '%s' is larger than any file",
                g->origin, t->name);
    }
    if ((rc = read_uint(c, 4, &v, t->name, err)))
        return rc;
    t->type = (uint32_t)v;
    return read_uint(c, 8, &t->offset, t->name, err);
}

/* Where the bytes of a tensor lie, once the start of the data section is known. */
static int locate_tensor(struct trl_gguf *g, struct trl_gguf_tensor *t, const uint8_t *data,
    uint64_t data_len, uint64_t alignment, struct trl_err *err)
{
    const char *name;
    unsigned elems, bytes;
    if (t->offset % alignment)
        return trl_fail(err, TRL_E_DATA,
            "%s: offset %" PRIu64 " of tensor '%s' is not a multiple of %" PRIu64, g->origin,
            t->offset, t->name, alignment);
    if (t->offset > data_len)
        return trl_fail(err, TRL_E_DATA, "%s: tensor '%s' begins behind the end of the file",
            g->origin, t->name);
    t->data = data + t->offset;
    if (!trl_ggml_type_info(t->type, &name, &elems, &bytes))
        return 0;
    if (t->dims[0] % elems)
        return trl_fail(err, TRL_E_DATA,
            "%s: rows of tensor '%s' have %" PRIu64 " elements, not a multiple of %u as %s needs",
            g->origin, t->name, t->dims[0], elems, name);
    t->n_bytes = t->n_elems / elems * bytes; /* no overflow: n_elems < 2^59, bytes / elems <= 8 */
    if (t->n_bytes > data_len - t->offset)
        return trl_fail(err, TRL_E_DATA,
            "%s: tensor '%s' needs %" PRIu64 " bytes at offset %" PRIu64
            ", but the data section has %" PRIu64 " (file cut short?)",
            g->origin, t->name, t->n_bytes, t->offset, data_len);
    return 0;
}

static int read_tensors(struct trl_gguf *g, struct cursor *c, struct trl_err *err)
{
    int64_t alignment = ALIGNMENT_DEFAULT;
    int rc;
    g->tensor = trl_arena_array(&g->arena, g->n_tensor, sizeof(*g->tensor));
    g->tensor_by_name = trl_arena_array(&g->arena, g->n_tensor, sizeof(*g->tensor_by_name));
    if (!g->tensor || !g->tensor_by_name)
        return trl_fail_nomem(err, g->n_tensor * sizeof(*g->tensor), "the GGUF tensor table");
    for (uint64_t i = 0; i < g->n_tensor; i++) {
        if ((rc = read_tensor(g, c, &g->tensor[i], err)))
            return rc;
        g->tensor_by_name[i] = &g->tensor[i];
    }
    qsort(g->tensor_by_name, g->n_tensor, sizeof(*g->tensor_by_name), cmp_tensor);
    for (uint64_t i = 1; i < g->n_tensor; i++)
        if (cmp_tensor(&g->tensor_by_name[i - 1], &g->tensor_by_name[i]) == 0)
            return trl_fail(err, TRL_E_DATA, "%s: tensor '%s' occurs twice", g->origin,
                g->tensor_by_name[i]->name);

    if ((rc = trl_gguf_get_int(g, "general.alignment", &alignment, err)))
        return rc;
    if (alignment < 1 || alignment > 1 << 20 || (alignment & (alignment - 1)))
        return trl_fail(err, TRL_E_DATA,
            "%s: general.alignment is %" PRId64 ", not a power of two up to 2^20", g->origin,
            alignment);
    size_t total = (size_t)(c->end - c->begin), start = (size_t)(c->p - c->begin);
    start = (start + (size_t)alignment - 1) & ~((size_t)alignment - 1);
    if (start > total)
        start = total; /* a file of metadata alone may end without padding */
    for (uint64_t i = 0; i < g->n_tensor; i++)
        if ((rc = locate_tensor(
                 g, &g->tensor[i], c->begin + start, total - start, (uint64_t)alignment, err)))
            return rc;
    return 0;
}

static int read_all(struct trl_gguf *g, struct cursor *c, struct trl_err *err)
{
    uint64_t version = 0;
    int rc;
    if (c->end - c->p < 4 || memcmp(c->p, "GGUF", 4) != 0)
        return trl_fail(
            err, TRL_E_DATA, "%s: not a GGUF file (it does not begin with 'GGUF')", g->origin);
    c->p += 4;
    if ((rc = read_uint(c, 4, &version, "the header", err)))
        return rc;
    if (version == 0x02000000 || version == 0x03000000)
        return trl_fail(err, TRL_E_UNSUPPORTED,
            "%s: a big-endian GGUF file; only little-endian ones are read", g->origin);
    if (version != 2 && version != 3)
        return trl_fail(err, TRL_E_UNSUPPORTED,
            "%s: GGUF version %" PRIu64 "; versions 2 and 3 are read", g->origin, version);
    if ((rc = read_uint(c, 8, &g->n_tensor, "the header", err)) ||
        (rc = read_uint(c, 8, &g->n_kv, "the header", err)))
        return rc;
    /* the smallest pair has 14 bytes, the smallest tensor info 25: a lying count must not make us
     * allocate */
    uint64_t left = (uint64_t)(c->end - c->p);
    if (g->n_kv > left / 14 || g->n_tensor > left / 25)
        return trl_fail(err, TRL_E_DATA,
            "%s: the header announces %" PRIu64 " keys and %" PRIu64
            " tensors, more than the file can hold",
            g->origin, g->n_kv, g->n_tensor);
    if ((rc = read_pairs(g, c, err)))
        return rc;
    return read_tensors(g, c, err);
}

static int open_common(
    struct trl_gguf *g, const void *data, size_t len, const char *origin, struct trl_err *err)
{
    static const uint8_t nothing[1];
    struct cursor c = {.begin = data ? data : nothing};
    c.p = c.begin;
    c.end = c.begin + len;
    g->origin = c.origin = trl_arena_strdup(&g->arena, origin);
    if (!g->origin)
        return trl_fail_nomem(err, strlen(origin), "a file name");
    return read_all(g, &c, err);
}

int trl_gguf_open_mem(
    struct trl_gguf **ret, const void *data, size_t len, const char *origin, struct trl_err *err)
{
    struct trl_gguf *g = trl_calloc(1, sizeof(*g));
    if (!g)
        return trl_fail_nomem(err, sizeof(*g), "a GGUF reader");
    int rc = open_common(g, data, len, origin, err);
    if (rc) {
        trl_gguf_close(g);
        return rc;
    }
    *ret = g;
    return 0;
}

int trl_gguf_open(struct trl_gguf **ret, const char *path, struct trl_err *err)
{
    struct trl_gguf *g = trl_calloc(1, sizeof(*g));
    if (!g)
        return trl_fail_nomem(err, sizeof(*g), "a GGUF reader");
    int rc = trl_map_open(&g->map, path, err);
    if (!rc)
        rc = open_common(g, g->map.data, g->map.len, path, err);
    if (rc) {
        trl_gguf_close(g);
        return rc;
    }
    *ret = g;
    return 0;
}

void trl_gguf_close(struct trl_gguf *g)
{
    if (!g)
        return;
    trl_map_close(&g->map);
    trl_arena_release(&g->arena);
    trl_free(g);
}

const char *trl_gguf_origin(const struct trl_gguf *g)
{
    return g->origin;
}

bool trl_gguf_is_file(const char *path)
{
    struct trl_map m = {0};
    if (trl_path_is_dir(path) || trl_map_open(&m, path, NULL) != 0)
        return false;
    bool is = m.len >= 4 && memcmp(m.data, "GGUF", 4) == 0;
    trl_map_close(&m);
    return is;
}

static const struct kv *find_kv(const struct trl_gguf *g, const char *key)
{
    struct kv probe = {.key = key}, *pp = &probe;
    if (g->n_kv == 0)
        return NULL;
    struct kv **hit = bsearch(&pp, g->kv_by_name, g->n_kv, sizeof(*g->kv_by_name), cmp_kv);
    return hit ? *hit : NULL;
}

bool trl_gguf_has(const struct trl_gguf *g, const char *key)
{
    return find_kv(g, key) != NULL;
}

static int fail_type(
    const struct trl_gguf *g, const struct kv *kv, const char *want, struct trl_err *err)
{
    return trl_fail(err, TRL_E_DATA, "%s: key '%s' has a value of type %s, not %s", g->origin,
        kv->key, value_names[kv->type], want);
}

static bool is_signed(uint32_t type)
{
    return type == TRL_GGUF_I8 || type == TRL_GGUF_I16 || type == TRL_GGUF_I32 ||
        type == TRL_GGUF_I64;
}

/* Integers of any size; false for other types and for u64 above int64. */
static bool value_int(uint32_t type, const uint8_t *p, int64_t *ret)
{
    if (type == TRL_GGUF_F32 || type == TRL_GGUF_F64 || value_bytes[type] == 0)
        return false;
    unsigned bits = 8u * value_bytes[type];
    uint64_t v = load_le(p, value_bytes[type]);
    if (is_signed(type) && bits < 64 && (v >> (bits - 1) & 1))
        v |= ~UINT64_C(0) << bits;
    if (!is_signed(type) && v > INT64_MAX)
        return false;
    memcpy(ret, &v, sizeof(v));
    return true;
}

static double value_num(uint32_t type, const uint8_t *p)
{
    int64_t i = 0;
    if (type == TRL_GGUF_F32) {
        uint32_t bits = (uint32_t)load_le(p, 4);
        float f;
        memcpy(&f, &bits, sizeof(f));
        return f;
    }
    if (type == TRL_GGUF_F64) {
        uint64_t bits = load_le(p, 8);
        double d;
        memcpy(&d, &bits, sizeof(d));
        return d;
    }
    if (value_int(type, p, &i))
        return (double)i;
    return (double)load_le(p, value_bytes[type]);
}

int trl_gguf_get_int(const struct trl_gguf *g, const char *key, int64_t *ret, struct trl_err *err)
{
    const struct kv *kv = find_kv(g, key);
    if (!kv)
        return 0;
    return value_int(kv->type, kv->data, ret) ? 0 : fail_type(g, kv, "an integer", err);
}

int trl_gguf_get_float(const struct trl_gguf *g, const char *key, double *ret, struct trl_err *err)
{
    const struct kv *kv = find_kv(g, key);
    if (!kv)
        return 0;
    if (value_bytes[kv->type] == 0)
        return fail_type(g, kv, "a number", err);
    *ret = value_num(kv->type, kv->data);
    return 0;
}

int trl_gguf_get_bool(const struct trl_gguf *g, const char *key, bool *ret, struct trl_err *err)
{
    const struct kv *kv = find_kv(g, key);
    if (!kv)
        return 0;
    if (kv->type != TRL_GGUF_BOOL)
        return fail_type(g, kv, "a bool", err);
    *ret = kv->data[0] != 0;
    return 0;
}

int trl_gguf_get_str(const struct trl_gguf *g, const char *key, const char **ret, size_t *ret_len,
    struct trl_err *err)
{
    const struct kv *kv = find_kv(g, key);
    if (!kv)
        return 0;
    if (kv->type != TRL_GGUF_STRING)
        return fail_type(g, kv, "a string", err);
    *ret = (const char *)kv->data + 8;
    *ret_len = load_le(kv->data, 8);
    return 0;
}

static int get_array(const struct trl_gguf *g, const char *key, bool strings,
    struct trl_gguf_array *ret, struct trl_err *err)
{
    const struct kv *kv = find_kv(g, key);
    *ret = (struct trl_gguf_array){0};
    if (!kv)
        return 0;
    const char *want = strings ? "an array of strings" : "an array of numbers";
    if (kv->type != TRL_GGUF_ARRAY)
        return fail_type(g, kv, want, err);
    uint32_t elem = (uint32_t)load_le(kv->data, 4);
    if (strings ? elem != TRL_GGUF_STRING : value_bytes[elem] == 0)
        return trl_fail(err, TRL_E_DATA, "%s: key '%s' is an array of %s, not %s", g->origin, key,
            value_names[elem], want);
    ret->type = elem;
    ret->left = load_le(kv->data + 4, 8);
    ret->p = kv->data + 12;
    return 0;
}

int trl_gguf_get_strings(
    const struct trl_gguf *g, const char *key, struct trl_gguf_array *ret, struct trl_err *err)
{
    return get_array(g, key, true, ret, err);
}

int trl_gguf_get_numbers(
    const struct trl_gguf *g, const char *key, struct trl_gguf_array *ret, struct trl_err *err)
{
    return get_array(g, key, false, ret, err);
}

bool trl_gguf_array_next_str(struct trl_gguf_array *a, const char **ret, size_t *ret_len)
{
    if (a->left == 0)
        return false;
    *ret_len = load_le(a->p, 8);
    *ret = (const char *)a->p + 8;
    a->p += 8 + *ret_len;
    a->left--;
    return true;
}

bool trl_gguf_array_next_num(struct trl_gguf_array *a, double *ret)
{
    if (a->left == 0)
        return false;
    *ret = value_num(a->type, a->p);
    a->p += value_bytes[a->type];
    a->left--;
    return true;
}

int64_t trl_gguf_n_keys(const struct trl_gguf *g)
{
    return (int64_t)g->n_kv;
}

const char *trl_gguf_key(const struct trl_gguf *g, int64_t i, uint32_t *ret_type)
{
    if (i < 0 || (uint64_t)i >= g->n_kv)
        return NULL;
    if (ret_type)
        *ret_type = g->kv[i].type;
    return g->kv[i].key;
}

int64_t trl_gguf_n_tensors(const struct trl_gguf *g)
{
    return (int64_t)g->n_tensor;
}

const struct trl_gguf_tensor *trl_gguf_tensor(const struct trl_gguf *g, int64_t i)
{
    return i < 0 || (uint64_t)i >= g->n_tensor ? NULL : &g->tensor[i];
}

const struct trl_gguf_tensor *trl_gguf_find_tensor(const struct trl_gguf *g, const char *name)
{
    struct trl_gguf_tensor probe = {.name = name}, *pp = &probe;
    if (g->n_tensor == 0)
        return NULL;
    struct trl_gguf_tensor **hit =
        bsearch(&pp, g->tensor_by_name, g->n_tensor, sizeof(*g->tensor_by_name), cmp_tensor);
    return hit ? *hit : NULL;
}
