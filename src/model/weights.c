/* SPDX-License-Identifier: Apache-2.0 */
/* Weights from a folder of safetensors files into the slab: matched by name, checked as a whole,
 * then streamed. */
#include <math.h>
#include <string.h>

#include "base/alloc.h"
#include "model/family.h"
#include "model/safetensors.h"
#include "model/weights.h"

enum { CHUNK_ELEMS = 1 << 20, INDEX_MAX_BYTES = 64 << 20, MAX_SHARDS = 10000 };

/* ---- names ---- */

static const char *without(const char *name, const char *prefix)
{
    return prefix[0] && trl_starts_with(name, prefix) ? name + strlen(prefix) : NULL;
}

/* Files differ in what they put in front of the same tensor. */
static const char *bare_name(const char *name)
{
    static const char *const prefixes[] = {"model.language_model.", "language_model.model.",
        "language_model.", "model.", "transformer."};
    for (size_t i = 0; i < sizeof(prefixes) / sizeof(prefixes[0]); i++) {
        const char *rest = without(name, prefixes[i]);
        if (rest)
            return rest;
    }
    return name;
}

/* Buffers that are no parameters, parts of a multimodal model, and the second copy of a tied head.
 */
static bool is_ignored(const struct trl_model *m, const char *bare)
{
    return trl_ends_with(bare, "rotary_emb.inv_freq") ||
        (m->cfg.family->conv1d &&
            (trl_ends_with(bare, ".attn.bias") || trl_ends_with(bare, ".attn.masked_bias"))) ||
        trl_starts_with(bare, "vision_tower.") || trl_starts_with(bare, "multi_modal_projector.") ||
        (m->cfg.tied && strcmp(bare, "lm_head.weight") == 0);
}

int trl__weights_find(const struct trl_model *m, const char *name)
{
    const char *bare = bare_name(name);
    if (is_ignored(m, bare))
        return TRL_WEIGHT_IGNORED;
    const char *prefix = m->cfg.family->prefix;
    for (int i = 0; i < m->params.n; i++) {
        const char *own = without(m->params.items[i].name, prefix);
        if (strcmp(own ? own : m->params.items[i].name, bare) == 0)
            return i;
    }
    return TRL_WEIGHT_UNKNOWN;
}

static void shape_text(char *buf, size_t size, const int64_t *shape, int ndim)
{
    size_t at = (size_t)snprintf(buf, size, "[");
    for (int i = 0; i < ndim && at < size; i++)
        at += (size_t)snprintf(buf + at, size - at, "%s%lld", i ? ", " : "", (long long)shape[i]);
    if (at < size)
        snprintf(buf + at, size - at, "]");
}

bool trl__weights_shape_fits(const struct trl_param *p, const int64_t *shape, int ndim,
    const char *origin, const char *name, struct trl_problems *problems)
{
    bool same = ndim == p->ndim;
    for (int i = 0; same && i < ndim; i++)
        same = shape[i] == p->shape[i];
    if (!same) {
        char have[128], want[64];
        shape_text(have, sizeof(have), shape, ndim);
        shape_text(want, sizeof(want), p->shape, p->ndim);
        trl__problem(problems, TRL_E_DATA, "%s: tensor %s has shape %s, config.json asks for %s",
            origin, name, have, want);
    }
    return same;
}

void trl__weights_missing(
    const struct trl_model *m, const bool *found, struct trl_problems *problems)
{
    for (int i = 0; i < m->params.n; i++)
        if (!found[i])
            trl__problem(problems, TRL_E_DATA, "tensor %s is missing", m->params.items[i].name);
}

/* ---- data ---- */

static int64_t find_nan(enum trl_dtype t, const void *src, int64_t n)
{
    const uint16_t *h = src;
    const unsigned char *b = src;
    /* blocks without a NaN are passed at memory speed */
    for (int64_t first = 0; first < n; first += 4096) {
        int64_t end = first + 4096 < n ? first + 4096 : n;
        int bad = 0;
        for (int64_t i = first; i < end; i++) {
            uint32_t u,
                limit = t == TRL_DTYPE_F32 ? 0x7f800000u
                : t == TRL_DTYPE_BF16      ? 0x7f80u
                                           : 0x7c00u;
            if (t == TRL_DTYPE_F32) {
                memcpy(&u, b + 4 * i, 4);
                u &= 0x7fffffffu;
            } else {
                uint16_t v;
                memcpy(&v, h + i, 2);
                u = v & 0x7fffu;
            }
            bad |= u > limit;
        }
        for (int64_t i = first; bad && i < end; i++)
            if (isnan(trl_dtype_load(t, src, (size_t)i)))
                return i;
    }
    return -1;
}

int trl__weights_put(struct trl_model *m, const struct trl_param *p, int64_t first, int64_t n,
    const void *src, enum trl_dtype t, void *staging, const char *origin, const char *name,
    struct trl_err *err)
{
    int64_t nan = find_nan(t, src, n);
    if (nan >= 0)
        return trl_fail(err, TRL_E_DATA, "%s: tensor %s: element %lld is NaN", origin, name,
            (long long)(first + nan));
    size_t size = trl_dtype_size(m->params.dtype);
    char *dst = (char *)trl_param_at(m->params.weights, m->params.dtype, p) + (size_t)first * size;
    if (t != m->params.dtype) {
        trl_dtype_convert(m->params.dtype, staging, t, src, (size_t)n);
        src = staging;
    }
    if (m->be->copy_in(m->be, dst, src, (size_t)n * size) != 0)
        return trl_fail(err, TRL_E_FAIL, "cannot copy tensor %s to the device", name);
    return 0;
}

static int stream_tensor(struct trl_model *m, const struct trl_param *p,
    const struct trl_st_file *f, const struct trl_st_tensor *t, void *buf, struct trl_err *err)
{
    enum trl_dtype type;
    trl_st_dtype_native(t->dtype, &type);
    size_t size = trl_dtype_size(type);
    int rc = 0;
    char *aligned = buf, *staging = aligned + CHUNK_ELEMS * 4;
    for (int64_t first = 0; first < t->numel && rc == 0; first += CHUNK_ELEMS) {
        int64_t n = t->numel - first < CHUNK_ELEMS ? t->numel - first : CHUNK_ELEMS;
        const uint8_t *src = trl_st_data(f, t) + (size_t)first * size;
        const void *from = src;
        if ((uintptr_t)src % size != 0) { /* old files do not align their data */
            memcpy(aligned, src, (size_t)n * size);
            from = aligned;
        }
        rc = trl__weights_put(m, p, first, n, from, type, staging, f->path, t->name, err);
        trl_map_drop(&f->map, f->data_offset + t->begin + (size_t)first * size, (size_t)n * size);
    }
    return rc;
}

/* ---- files ---- */

struct shards {
    struct trl_st_file *files;
    int n;
};

static void shards_close(struct shards *s)
{
    for (int i = 0; i < s->n; i++)
        trl_st_close(&s->files[i]);
    trl_free(s->files);
    *s = (struct shards){0};
}

static int shards_add(struct shards *s, const char *dir, const char *name, struct trl_err *err)
{
    struct trl_st_file *files = trl_realloc(s->files, (size_t)(s->n + 1) * sizeof(files[0]));
    char *path = trl_path_join(dir, name);
    int rc = !files || !path ? trl_fail_nomem(err, strlen(name), "a list of files") : 0;
    if (files)
        s->files = files;
    if (rc == 0)
        rc = trl_st_open(&s->files[s->n], path, err);
    if (rc == 0)
        s->n++;
    trl_free(path);
    return rc;
}

static bool shards_has(const struct shards *s, const char *name)
{
    for (int i = 0; i < s->n; i++)
        if (strcmp(trl_path_base(s->files[i].path), name) == 0)
            return true;
    return false;
}

/* Every shard that the index names must be there, and hold the tensors that the index puts into it.
 */
static int shards_from_index(
    struct shards *s, const char *dir, const char *path, struct trl_err *err)
{
    char *text;
    size_t len;
    int rc = trl_file_read(path, INDEX_MAX_BYTES, &text, &len, err);
    if (rc)
        return rc;
    json_error_t je;
    json_t *root = json_loadb(text, len, JSON_REJECT_DUPLICATES, &je),
           *map = json_object_get(root, "weight_map"), *v;
    trl_free(text);
    struct trl_problems problems = {0};
    json_t *failed = json_object(); /* a shard that cannot be opened is one problem, not one a tensor */
    const char *key;
    if (!root)
        rc = trl_fail(err, TRL_E_PARSE, "%s:%d:%d: %s", path, je.line, je.column, je.text);
    else if (!json_is_object(map) || json_object_size(map) == 0)
        rc = trl_fail(err, TRL_E_PARSE, "%s: weight_map is missing or empty", path);
    if (rc == 0)
        json_object_foreach(map, key, v)
        {
            const char *file = json_string_value(v);
            struct trl_err one;
            if (!file || strchr(file, '/') || s->n >= MAX_SHARDS)
                trl__problem(&problems, TRL_E_PARSE,
                    "weight_map puts %s into \"%s\", no file name beside the index", key,
                    file ? file : "?");
            else if (!shards_has(s, file) && !json_object_get(failed, file) &&
                shards_add(s, dir, file, &one) != 0) {
                trl__problem(&problems, one.code, "shard %s: %s", file, one.text);
                json_object_set_new(failed, file, json_true());
            }
            if (problems.n >= TRL_PROBLEMS_SHOWN)
                break;
        }
    if (rc == 0 && problems.n == 0)
        json_object_foreach(map, key,
            v) for (int i = 0; i < s->n;
                    i++) if (strcmp(trl_path_base(s->files[i].path), json_string_value(v)) == 0 &&
            !trl_st_find(&s->files[i], key)) trl__problem(&problems, TRL_E_DATA,
            "tensor %s is not in %s", key, json_string_value(v));
    json_decref(failed);
    json_decref(root);
    int rc2 = trl__problems_end(&problems, err, path);
    return rc ? rc : rc2;
}

static int shards_open(struct shards *s, const char *dir, struct trl_err *err)
{
    char *index = trl_path_join(dir, "model.safetensors.index.json"),
         *one = trl_path_join(dir, "model.safetensors");
    char *bin = trl_path_join(dir, "pytorch_model.bin");
    int rc;
    if (!index || !one || !bin)
        rc = trl_fail_nomem(err, strlen(dir), "a path");
    else if (trl_path_exists(one))
        rc = shards_add(s, dir, "model.safetensors", err);
    else if (trl_path_exists(index))
        rc = shards_from_index(s, dir, index, err);
    else if (trl_path_exists(bin))
        rc = trl_fail(err, TRL_E_UNSUPPORTED,
            "%s: weights in pickle format (pytorch_model.bin) are not read; convert them "
            "to safetensors",
            dir);
    else
        rc = trl_fail(err, TRL_E_NOENT,
            "%s: no weights: neither model.safetensors nor model.safetensors.index.json", dir);
    trl_free(index);
    trl_free(one);
    trl_free(bin);
    return rc;
}

/* param -> tensor. Complaints about all of them. */
struct match {
    const struct trl_st_file *file;
    const struct trl_st_tensor *tensor;
};

static void match_file(const struct trl_model *m, const struct trl_st_file *f,
    struct match *matches, bool *found, struct trl_problems *problems)
{
    for (int i = 0; i < f->n; i++) {
        const struct trl_st_tensor *t = &f->items[i];
        enum trl_dtype type;
        int k = trl__weights_find(m, t->name);
        if (k == TRL_WEIGHT_IGNORED)
            continue;
        if (k == TRL_WEIGHT_UNKNOWN) {
            trl__problem(problems, TRL_E_DATA, "%s: tensor %s is none of a %s model", f->path,
                t->name, m->cfg.family->model_type);
            continue;
        }
        if (found[k])
            trl__problem(problems, TRL_E_DATA, "%s: tensor %s is there twice", f->path, t->name);
        else if (trl_st_dtype_native(t->dtype, &type) != 0)
            trl__problem(problems, TRL_E_UNSUPPORTED,
                "%s: tensor %s has type %s (F32, F16, BF16 are supported)", f->path, t->name,
                trl_st_dtype_name(t->dtype));
        else if (trl__weights_shape_fits(
                     trl__param(m, k), t->shape, t->ndim, f->path, t->name, problems))
            matches[k] = (struct match){f, t};
        found[k] = true;
    }
}

int trl__weights_load_folder(struct trl_model *m, const char *dir, struct trl_err *err)
{
    struct shards s = {0};
    struct trl_problems problems = {0};
    struct match *matches = trl_calloc((size_t)m->params.n, sizeof(matches[0]));
    bool *found = trl_calloc((size_t)m->params.n, sizeof(found[0]));
    void *buf = trl_malloc((size_t)CHUNK_ELEMS * 8);
    int rc = !matches || !found || !buf
        ? trl_fail_nomem(err, (size_t)CHUNK_ELEMS * 8, "loading weights")
        : 0;
    if (rc == 0)
        rc = shards_open(&s, dir, err);
    if (rc == 0) {
        for (int i = 0; i < s.n; i++)
            match_file(m, &s.files[i], matches, found, &problems);
        trl__weights_missing(m, found, &problems);
        rc = trl__problems_end(&problems, err, dir);
    }
    for (int i = 0; i < m->params.n && rc == 0; i++)
        rc = stream_tensor(m, &m->params.items[i], matches[i].file, matches[i].tensor, buf, err);
    shards_close(&s);
    trl_free(buf);
    trl_free(found);
    trl_free(matches);
    return rc;
}

int trl__weights_file_dtype(const char *dir, enum trl_dtype *ret, struct trl_err *err)
{
    struct shards s = {0};
    int rc = shards_open(&s, dir, err);
    *ret = TRL_DTYPE_F32;
    for (int i = 0; rc == 0 && s.n > 0 && i < s.files[0].n; i++)
        if (trl_st_dtype_native(s.files[0].items[i].dtype, ret) == 0)
            break;
    shards_close(&s);
    return rc;
}
