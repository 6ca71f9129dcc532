/* SPDX-License-Identifier: Apache-2.0 */
/* config.json, generation_config.json and weights, as transformers lays them out. */
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/json.h"
#include "model/family.h"
#include "model/safetensors.h"
#include "model/weights.h"

/* Elements [first, first + n) of a parameter in the type of the file. */
static int fetch(void *ctx, const struct trl_st_item *t, int64_t first, int64_t n, void *dst,
    struct trl_err *err)
{
    struct trl_model *m = ctx;
    const struct trl_param *p = t->user;
    size_t size = trl_dtype_size(m->params.dtype);
    const char *src =
        (char *)trl_param_at(m->params.weights, m->params.dtype, p) + (size_t)first * size;
    enum { PART = 1 << 15 };
    float part[PART];
    if (t->dtype == m->params.dtype) {
        if (m->be->copy_out(m->be, dst, src, (size_t)n * size) != 0)
            return trl_fail(err, TRL_E_FAIL, "cannot copy tensor %s from the device", t->name);
        return 0;
    }
    for (int64_t i = 0; i < n; i += PART) {
        int64_t k = n - i < PART ? n - i : PART;
        if (m->be->copy_out(m->be, part, src + (size_t)i * size, (size_t)k * size) != 0)
            return trl_fail(err, TRL_E_FAIL, "cannot copy tensor %s from the device", t->name);
        trl_dtype_convert(t->dtype, (char *)dst + (size_t)i * trl_dtype_size(t->dtype),
            m->params.dtype, part, (size_t)k);
    }
    return 0;
}

static struct trl_st_item item_of(const struct trl_param *p, enum trl_dtype t)
{
    return (struct trl_st_item){.name = p->name,
        .dtype = t,
        .ndim = p->ndim,
        .shape = {p->shape[0], p->shape[1]},
        .numel = p->numel,
        .user = p};
}

/* Which shard each parameter goes into: filled in order up to the limit; a larger tensor is alone.
 * Returns their number. */
static int assign_shards(const struct trl_params *p, enum trl_dtype t, uint64_t limit, int *shard)
{
    int n = 0;
    uint64_t used = 0;
    for (int i = 0; i < p->n; i++) {
        uint64_t size = (uint64_t)p->items[i].numel * trl_dtype_size(t);
        if (i > 0 && used + size > limit) {
            n++;
            used = 0;
        }
        shard[i] = n;
        used += size;
    }
    return n + 1;
}

static int write_shard(struct trl_model *m, const char *path, const int *shard, int k,
    enum trl_dtype t, struct trl_st_item *items, struct trl_err *err)
{
    int n = 0;
    for (int i = 0; i < m->params.n; i++)
        if (shard[i] == k)
            items[n++] = item_of(&m->params.items[i], t);
    return trl_st_write(path, items, n, fetch, m, err);
}

static void shard_name(char buf[64], int k, int n)
{
    if (n == 1)
        snprintf(buf, 64, "model.safetensors");
    else
        snprintf(buf, 64, "model-%05d-of-%05d.safetensors", k + 1, n);
}

static int write_json(const char *dir, const char *name, json_t *j, struct trl_err *err)
{
    struct trl_str s = {0};
    char *path = trl_path_join(dir, name);
    if (!path)
        return trl_fail_nomem(err, strlen(dir), "a path");
    trl_json_put(&s, j, 2, true);
    trl_str_putc(&s, '\n');
    int rc = trl_str_check(&s, err);
    if (rc == 0)
        rc = trl_file_write_atomic(path, trl_str_get(&s), s.len, err);
    trl_str_release(&s);
    trl_free(path);
    return rc;
}

static int write_index(struct trl_model *m, const char *dir, const int *shard, int n,
    enum trl_dtype t, struct trl_err *err)
{
    json_t *map = json_object();
    int bad = 0;
    for (int i = 0; i < m->params.n; i++) {
        char name[64];
        shard_name(name, shard[i], n);
        bad |= json_object_set_new(map, m->params.items[i].name, json_string(name));
    }
    json_t *root = json_pack("{s{sIsI}so}", "metadata", "total_parameters",
        (json_int_t)m->params.numel, "total_size",
        (json_int_t)(m->params.numel * (int64_t)trl_dtype_size(t)), "weight_map", map);
    int rc = root && !bad ? write_json(dir, "model.safetensors.index.json", root, err)
                          : trl_fail_nomem(err, 0, "the index of the shards");
    json_decref(root);
    return rc;
}

/* An index, or a whole file, that an earlier save left would win over what was just written. */
static int remove_stale(const char *dir, const char *name, struct trl_err *err)
{
    char *path = trl_path_join(dir, name);
    if (!path)
        return trl_fail_nomem(err, strlen(dir), "a path");
    int rc =
        trl_path_exists(path) && unlink(path) != 0 ? trl_fail_errno(err, "cannot remove", path) : 0;
    trl_free(path);
    return rc;
}

static int write_weights(
    struct trl_model *m, const char *dir, enum trl_dtype t, uint64_t limit, struct trl_err *err)
{
    int *shard = trl_calloc((size_t)m->params.n, sizeof(shard[0]));
    struct trl_st_item *items = trl_calloc((size_t)m->params.n, sizeof(items[0]));
    int rc = shard && items
        ? 0
        : trl_fail_nomem(err, (size_t)m->params.n * sizeof(items[0]), "saving weights");
    int n = rc == 0 ? assign_shards(&m->params, t, limit ? limit : UINT64_MAX, shard) : 0;
    for (int k = 0; k < n && rc == 0; k++) {
        char name[64];
        shard_name(name, k, n);
        char *path = trl_path_join(dir, name);
        rc = path ? write_shard(m, path, shard, k, t, items, err)
                  : trl_fail_nomem(err, strlen(dir), "a path");
        trl_free(path);
    }
    if (rc == 0 && n > 1)
        rc = write_index(m, dir, shard, n, t, err);
    if (rc == 0)
        rc = remove_stale(dir, n > 1 ? "model.safetensors" : "model.safetensors.index.json", err);
    trl_free(items);
    trl_free(shard);
    return rc;
}

/* The source's fields, with the type of the saved weights under its new name. */
static json_t *saved_config(const struct trl_model *m, enum trl_dtype t)
{
    json_t *j = json_deep_copy(m->cfg.json);
    if (!j)
        return NULL;
    json_object_del(j, "torch_dtype");
    json_object_del(j, "_name_or_path");
    if (json_object_set_new(j, "dtype", json_string(trl_dtype_name(t))) != 0 ||
        json_object_set_new(j, "architectures", json_pack("[s]", m->cfg.family->architecture)) !=
            0) {
        json_decref(j);
        return NULL;
    }
    return j;
}

int trl_model_save(struct trl_model *m, const char *dir, const char *save_dtype,
    uint64_t max_shard_size, struct trl_err *err)
{
    enum trl_dtype t = m->params.dtype;
    if (save_dtype && trl_dtype_find(save_dtype, &t) != 0)
        return trl_fail(err, TRL_E_USAGE,
            "save_dtype %s is unknown (float32, bfloat16, float16 are allowed)", save_dtype);
    json_t *config = saved_config(m, t);
    int rc = config ? write_json(dir, "config.json", config, err)
                    : trl_fail_nomem(err, 0, "config.json");
    json_decref(config);
    if (rc == 0 && m->cfg.generation)
        rc = write_json(dir, "generation_config.json", m->cfg.generation, err);
    return rc ? rc : write_weights(m, dir, t, max_shard_size, err);
}
