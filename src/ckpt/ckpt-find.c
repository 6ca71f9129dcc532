/* SPDX-License-Identifier: Apache-2.0 */
/* Reading side: check, find, delete, clean up. */
#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/alloc.h"
#include "base/fileio.h"
#include "base/json.h"
#include "base/log.h"
#include "base/str.h"
#include "ckpt/ckpt.h"
#include "ckpt/hash.h"
#include "ckpt/names.h"

enum { JSON_MAX_BYTES = 1 << 30 };

int trl_ckpt_read_json(const char *dir, const char *name, json_t **ret, struct trl_err *err)
{
    char *path = trl_path_join(dir, name), *text = NULL;
    size_t len = 0;
    if (!path)
        return trl_fail_nomem(err, strlen(name), "a path");
    int rc = trl_file_read(path, JSON_MAX_BYTES, &text, &len, err);
    if (rc == 0)
        rc = trl_json_parse(text, len, path, ret, err);
    trl_free(text);
    trl_free(path);
    return rc;
}

/* A manifest may only speak of files inside its folder. */
static bool is_inside(const char *name)
{
    if (!*name || *name == '/')
        return false;
    for (const char *p = name; p; p = strchr(p, '/')) {
        p += *p == '/';
        if (!strcmp(p, "..") || trl_starts_with(p, "../"))
            return false;
    }
    return true;
}

static int check_file(const char *dir, const char *name, const json_t *entry, struct trl_err *err)
{
    const json_t *size = json_object_get(entry, "size"), *hash = json_object_get(entry, "xxh64");
    uint64_t got_size, got_hash;
    char hex[17];
    if (!is_inside(name) || !json_is_integer(size) || !json_is_string(hash))
        return trl_fail(err, TRL_E_DATA, "%s: %s has a malformed entry for \"%.200s\"", dir, TRL_CKPT_MANIFEST, name);
    char *path = trl_path_join(dir, name);
    if (!path)
        return trl_fail_nomem(err, strlen(name), "a path");
    int rc = 0;
    int64_t on_disk = trl_file_size(path);
    if (on_disk < 0)
        rc = trl_fail(err, TRL_E_DATA, "%s is missing", path);
    else if (on_disk != json_integer_value(size))
        rc = trl_fail(err, TRL_E_DATA, "%s has %lld bytes, but had %lld when it was written", path, (long long)on_disk,
            (long long)json_integer_value(size));
    if (rc == 0)
        rc = trl_hash_file(path, 0, &got_size, &got_hash, err);
    if (rc == 0) {
        snprintf(hex, sizeof(hex), "%016" PRIx64, got_hash);
        if (strcmp(hex, json_string_value(hash)))
            rc = trl_fail(err, TRL_E_DATA, "%s is damaged: its hash is %s, but was %.32s when it was written", path, hex,
                json_string_value(hash));
    }
    trl_free(path);
    return rc;
}

static int read_manifest(const char *path, json_t **ret, struct trl_err *err)
{
    char *file = trl_path_join(path, TRL_CKPT_MANIFEST);
    bool has = file && trl_path_exists(file);
    trl_free(file);
    if (!trl_path_exists(path))
        return trl_fail(err, TRL_E_NOENT, "checkpoint %s does not exist", path);
    if (!has)
        return trl_fail(err, TRL_E_DATA, "%s has no %s: not a checkpoint that this program finished", path, TRL_CKPT_MANIFEST);
    return trl_ckpt_read_json(path, TRL_CKPT_MANIFEST, ret, err);
}

int trl_ckpt_verify(const char *path, struct trl_ckpt_facts *ret, struct trl_err *err)
{
    json_t *doc = NULL, *entry;
    const char *name;
    int rc = read_manifest(path, &doc, err);
    if (rc != 0)
        return rc;
    const json_t *step = json_object_get(doc, "step"), *world = json_object_get(doc, "world");
    json_t *files = json_object_get(doc, "files");
    if (json_integer_value(json_object_get(doc, "format")) != 1)
        rc = trl_fail(err, TRL_E_UNSUPPORTED, "%s/%s: \"format\" is not 1; written by a newer version?", path,
            TRL_CKPT_MANIFEST);
    else if (!json_is_integer(step) || !json_is_integer(world) || json_integer_value(step) < 0 ||
        json_integer_value(world) < 1 || json_integer_value(world) > INT32_MAX || !json_is_object(files))
        rc = trl_fail(err, TRL_E_DATA, "%s/%s: \"step\", \"world\" or \"files\" is missing or malformed", path,
            TRL_CKPT_MANIFEST);
    if (rc == 0)
        json_object_foreach(files, name, entry)
        {
            rc = check_file(path, name, entry, err);
            if (rc != 0)
                break;
        }
    if (rc == 0 && ret)
        *ret = (struct trl_ckpt_facts){json_integer_value(step), (int)json_integer_value(world)};
    json_decref(doc);
    return rc;
}

static int find_newest(const char *output_dir, char **ret, struct trl_ckpt_facts *ret_facts, struct trl_err *err)
{
    struct trl__ckpt_entry *list = NULL;
    size_t n = 0;
    int rc = trl__ckpt_list(output_dir, &list, &n, err);
    *ret = NULL;
    for (size_t i = n; rc == 0 && i-- > 0 && !*ret;) {
        struct trl_err why = {0};
        char *path = trl__ckpt_path(output_dir, list[i].step);
        if (!path) {
            rc = trl_fail_nomem(err, strlen(output_dir), "a path");
        } else if (trl_ckpt_verify(path, ret_facts, &why) == 0) {
            *ret = path;
        } else {
            trl_warn("%s is skipped: %s", path, why.text);
            trl_free(path);
        }
    }
    trl_free(list);
    return rc;
}

int trl_ckpt_find(const char *output_dir, const char *resume, char **ret, struct trl_ckpt_facts *ret_facts,
    struct trl_err *err)
{
    if (!resume || !*resume || !strcasecmp(resume, "false")) {
        *ret = NULL;
        return 0;
    }
    if (!strcasecmp(resume, "true"))
        return find_newest(output_dir, ret, ret_facts, err);
    int rc = trl_ckpt_verify(resume, ret_facts, err);
    if (rc != 0)
        return trl_err_prefix(err, rc, "resume_from_checkpoint");
    *ret = trl_strdup(resume);
    return *ret ? 0 : trl_fail_nomem(err, strlen(resume), "a path");
}

/* step of "…/checkpoint-N" or "…/checkpoint-N/", -1: none */
static int64_t step_of_path(const char *path)
{
    if (!path)
        return -1;
    size_t len = strlen(path);
    while (len > 1 && path[len - 1] == '/')
        len--;
    char *copy = trl_strndup(path, len);
    int64_t step = copy ? trl__ckpt_step_of(trl_path_base(copy)) : -1;
    trl_free(copy);
    return step;
}

static int by_mtime(const void *a, const void *b)
{
    const struct trl__ckpt_entry *x = a, *y = b;
    if (x->mtime != y->mtime)
        return x->mtime < y->mtime ? -1 : 1;
    return x->step < y->step ? -1 : x->step > y->step;
}

int trl_ckpt_retain(const char *output_dir, int64_t limit, const char *best, const char *newest, struct trl_err *err)
{
    struct trl__ckpt_entry *list = NULL;
    size_t n = 0;
    if (limit < 1)
        return 0;
    int rc = trl__ckpt_list(output_dir, &list, &n, err);
    if (rc != 0 || n == 0)
        return rc;
    int64_t best_step = step_of_path(best), newest_step = newest ? step_of_path(newest) : list[n - 1].step;
    /* as transformers: by time, so that what an earlier run left in the folder goes first; by number when all are equally old */
    double first = list[0].mtime, last = first;
    for (size_t i = 1; i < n; i++) {
        first = list[i].mtime < first ? list[i].mtime : first;
        last = list[i].mtime > last ? list[i].mtime : last;
    }
    if (last - first >= 1)
        qsort(list, n, sizeof(*list), by_mtime);
    int64_t left = (int64_t)n;
    for (size_t i = 0; i < n && left > limit && rc == 0; i++) {
        if (list[i].step == best_step || list[i].step == newest_step)
            continue;
        rc = trl__ckpt_delete(output_dir, list[i].step, err);
        left--;
    }
    trl_free(list);
    return rc;
}

static int clean_one(const char *output_dir, const char *name, enum trl__ckpt_kind kind, int64_t step, struct trl_err *err)
{
    char *path = trl_path_join(output_dir, name), *final = trl__ckpt_path(output_dir, step);
    int rc;
    if (!path || !final)
        rc = trl_fail_nomem(err, strlen(output_dir), "a path");
    else if (kind == TRL__CKPT_OLD && !trl_path_exists(final))
        rc = trl_rename(path, final, err);
    else
        rc = trl_rmtree(path, err);
    trl_free(path);
    trl_free(final);
    return rc;
}

int trl_ckpt_clean(const char *output_dir, struct trl_err *err)
{
    int rc = 0;
    DIR *d = opendir(output_dir);
    if (!d)
        return errno == ENOENT ? 0 : trl_fail_errno(err, "cannot list", output_dir);
    for (struct dirent *e; rc == 0 && (e = readdir(d));) {
        enum trl__ckpt_kind kind;
        int64_t step;
        bool orphan;
        if (trl__ckpt_parse_side(output_dir, e->d_name, &kind, &step, &orphan) && orphan)
            rc = clean_one(output_dir, e->d_name, kind, step, err);
    }
    closedir(d);
    return rc;
}
