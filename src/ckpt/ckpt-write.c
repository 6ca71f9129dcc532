/* SPDX-License-Identifier: Apache-2.0 */
/* Writing a checkpoint: temporary folder, manifest, rename. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/fileio.h"
#include "base/json.h"
#include "base/str.h"
#include "ckpt/ckpt.h"
#include "ckpt/hash.h"
#include "ckpt/names.h"

enum { MAX_DEPTH = 4 };

struct trl_ckpt {
    char *output_dir, *dir, *final;
    int64_t step;
};

static void free_ckpt(struct trl_ckpt *c)
{
    if (!c)
        return;
    trl_free(c->output_dir);
    trl_free(c->dir);
    trl_free(c->final);
    trl_free(c);
}

int trl_ckpt_begin(struct trl_ckpt **ret, const char *output_dir, int64_t step, struct trl_err *err)
{
    struct trl_ckpt *c = trl_calloc(1, sizeof(*c));
    if (!c)
        return trl_fail_nomem(err, sizeof(*c), "a checkpoint");
    c->step = step;
    c->output_dir = trl_strdup(output_dir);
    c->dir = trl__ckpt_side_path(output_dir, TRL__CKPT_TMP, step);
    c->final = trl__ckpt_path(output_dir, step);
    int rc = c->output_dir && c->dir && c->final ? 0 : trl_fail_nomem(err, strlen(output_dir), "a path");
    if (rc == 0)
        rc = trl_mkdirs(output_dir, err);
    if (rc == 0)
        rc = trl_rmtree(c->dir, err);
    if (rc == 0 && mkdir(c->dir, 0777) != 0)
        rc = trl_fail_errno(err, "cannot create", c->dir);
    if (rc != 0) {
        free_ckpt(c);
        return rc;
    }
    *ret = c;
    return 0;
}

const char *trl_ckpt_dir(const struct trl_ckpt *c)
{
    return c->dir;
}

int trl_ckpt_add_data(struct trl_ckpt *c, const char *name, const void *data, size_t len, struct trl_err *err)
{
    char *path = trl_path_join(c->dir, name);
    if (!path)
        return trl_fail_nomem(err, strlen(name), "a path");
    int rc = trl_file_write_atomic(path, data, len, err);
    trl_free(path);
    return rc;
}

int trl_ckpt_add_json(struct trl_ckpt *c, const char *name, const json_t *value, struct trl_err *err)
{
    struct trl_str s = {0};
    trl_json_put(&s, value, 2, true);
    trl_str_putc(&s, '\n');
    int rc = trl_str_check(&s, err);
    if (rc == 0)
        rc = trl_ckpt_add_data(c, name, s.data, s.len, err);
    trl_str_release(&s);
    return rc;
}

int trl_ckpt_add_copy(struct trl_ckpt *c, const char *from, const char *name, struct trl_err *err)
{
    char *path = trl_path_join(c->dir, name);
    if (!path)
        return trl_fail_nomem(err, strlen(name), "a path");
    int rc = trl_file_copy(from, path, err);
    trl_free(path);
    return rc;
}

/* One file into the manifest: {"size": n, "xxh64": "hex"} */
static int add_file(json_t *files, const char *path, const char *rel, struct trl_err *err)
{
    uint64_t size, hash;
    char hex[17];
    int rc = trl_hash_file(path, 1, &size, &hash, err);
    if (rc != 0)
        return rc;
    snprintf(hex, sizeof(hex), "%016llx", (unsigned long long)hash);
    json_t *entry = json_pack("{s:I, s:s}", "size", (json_int_t)size, "xxh64", hex);
    return json_object_set_new(files, rel, entry) == 0 ? 0 : trl_fail_nomem(err, strlen(rel), "the manifest");
}

/* Every file below dir; rel: "" or "sub/" */
static int add_folder(json_t *files, const char *dir, const char *rel, int depth, struct trl_err *err)
{
    int rc = 0;
    DIR *d = opendir(dir);
    if (!d)
        return trl_fail_errno(err, "cannot list", dir);
    while (rc == 0) {
        errno = 0;
        struct dirent *e = readdir(d);
        if (!e && errno != 0)
            rc = trl_fail_errno(err, "cannot list", dir);
        if (!e)
            break;
        if (!strcmp(e->d_name, ".") || !strcmp(e->d_name, ".."))
            continue;
        char *path = trl_path_join(dir, e->d_name), *name = trl_asprintf("%s%s", rel, e->d_name), *sub = NULL;
        if (!path || !name) {
            rc = trl_fail_nomem(err, strlen(dir), "a path");
        } else if (trl_path_is_dir(path)) {
            sub = trl_asprintf("%s/", name);
            if (!sub || depth == MAX_DEPTH)
                rc = trl_fail(err, TRL_E_FAIL, "%s: folders too deep for a checkpoint", path);
            else
                rc = add_folder(files, path, sub, depth + 1, err);
        } else {
            rc = add_file(files, path, name, err);
        }
        trl_free(path);
        trl_free(name);
        trl_free(sub);
    }
    closedir(d);
    return rc != 0 ? rc : trl_fsync_dir(dir, err);
}

static int write_manifest(struct trl_ckpt *c, int world, struct trl_err *err)
{
    json_t *files = json_object();
    json_t *doc = json_pack("{s:i, s:I, s:i, s:o}", "format", 1, "step", (json_int_t)c->step, "world", world, "files", files);
    if (!doc)
        return trl_fail_nomem(err, sizeof(*c), "the manifest");
    int rc = add_folder(files, c->dir, "", 0, err);
    if (rc == 0)
        rc = trl_ckpt_add_json(c, TRL_CKPT_MANIFEST, doc, err); /* syncs the folder, too */
    json_decref(doc);
    return rc;
}

/* dir becomes final; an older final is swapped out in one step where the file system can, else set aside first (trl_ckpt_clean
 * puts it back if we die in between). */
static int publish(struct trl_ckpt *c, struct trl_err *err)
{
    if (!trl_path_exists(c->final))
        return trl_rename(c->dir, c->final, err);
    if (renameat2(AT_FDCWD, c->dir, AT_FDCWD, c->final, RENAME_EXCHANGE) == 0) {
        int rc = trl_fsync_dir(c->output_dir, err);
        return rc != 0 ? rc : trl_rmtree(c->dir, err);
    }
    char *old = trl__ckpt_side_path(c->output_dir, TRL__CKPT_OLD, c->step);
    if (!old)
        return trl_fail_nomem(err, strlen(c->final), "a path");
    int rc = trl_rename(c->final, old, err);
    if (rc == 0) {
        rc = trl_rename(c->dir, c->final, err);
        if (rc != 0)
            trl_rename(old, c->final, NULL);
        else
            rc = trl_rmtree(old, err);
    }
    trl_free(old);
    return rc;
}

int trl_ckpt_commit(struct trl_ckpt *c, int world, char **ret_path, struct trl_err *err)
{
    int rc = write_manifest(c, world, err);
    if (rc == 0)
        rc = publish(c, err);
    if (rc != 0) {
        rc = trl_err_prefix(err, rc, "checkpoint of step %lld", (long long)c->step);
        trl_ckpt_abort(c);
        return rc;
    }
    if (ret_path) {
        *ret_path = c->final;
        c->final = NULL;
    }
    free_ckpt(c);
    return 0;
}

void trl_ckpt_abort(struct trl_ckpt *c)
{
    if (!c)
        return;
    trl_rmtree(c->dir, NULL);
    free_ckpt(c);
}
