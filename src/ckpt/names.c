/* SPDX-License-Identifier: Apache-2.0 */
#include "ckpt/names.h"

#include <dirent.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/fileio.h"
#include "base/str.h"
#include "ckpt/ckpt.h"

enum { ORPHAN_AGE_S = 24 * 3600 };

static const char *const kinds[TRL__CKPT_KIND_MAX_] = {".tmp-", ".old-", ".del-"};

static void get_host(char host[256])
{
    host[255] = '\0';
    if (gethostname(host, 255) != 0)
        memcpy(host, "localhost", 10);
    for (char *p = host; *p; p++)
        if (*p == '/')
            *p = '_';
}

char *trl__ckpt_path(const char *output_dir, int64_t step)
{
    return trl_asprintf("%s/checkpoint-%lld", output_dir, (long long)step);
}

char *trl__ckpt_side_path(const char *output_dir, enum trl__ckpt_kind kind, int64_t step)
{
    char host[256];
    get_host(host);
    return trl_asprintf("%s/%scheckpoint-%lld-%s-%ld", output_dir, kinds[kind], (long long)step, host, (long)getpid());
}

/* digits at p as a number; NULL: none or too many */
static const char *digits(const char *p, int64_t *ret)
{
    int64_t v = 0;
    int n = 0;
    for (; *p >= '0' && *p <= '9' && n < 18; p++, n++)
        v = v * 10 + (*p - '0');
    *ret = v;
    return n > 0 ? p : NULL;
}

static const char *after_prefix(const char *name, int64_t *ret_step)
{
    static const char prefix[] = "checkpoint-";
    return trl_starts_with(name, prefix) ? digits(name + sizeof(prefix) - 1, ret_step) : NULL;
}

int64_t trl__ckpt_step_of(const char *name)
{
    int64_t step;
    const char *end = after_prefix(name, &step);
    return end && !*end ? step : -1;
}

static bool is_old(const char *output_dir, const char *name)
{
    struct stat st;
    char *path = trl_path_join(output_dir, name);
    bool old = path && stat(path, &st) == 0 && time(NULL) - st.st_mtime > ORPHAN_AGE_S;
    trl_free(path);
    return old;
}

bool trl__ckpt_parse_side(const char *output_dir, const char *name, enum trl__ckpt_kind *ret_kind, int64_t *ret_step,
    bool *ret_orphan)
{
    char host[256];
    int64_t pid;
    int k = 0;
    while (k < TRL__CKPT_KIND_MAX_ && !trl_starts_with(name, kinds[k]))
        k++;
    if (k == TRL__CKPT_KIND_MAX_)
        return false;
    const char *at = after_prefix(name + strlen(kinds[k]), ret_step);
    const char *dash = at && *at == '-' ? strrchr(at + 1, '-') : NULL;
    const char *end = dash ? digits(dash + 1, &pid) : NULL;
    if (!end || *end)
        return false;
    *ret_kind = (enum trl__ckpt_kind)k;
    get_host(host);
    size_t host_len = (size_t)(dash - at - 1);
    if (strlen(host) == host_len && !memcmp(host, at + 1, host_len))
        /* our own number at start-up was a former process's (containers begin to count anew) */
        *ret_orphan = pid == getpid() || pid <= 0 || pid != (pid_t)pid || (kill((pid_t)pid, 0) != 0 && errno == ESRCH);
    else
        *ret_orphan = is_old(output_dir, name);
    return true;
}

static double mtime_of(const char *dir)
{
    struct stat st;
    char *path = trl_path_join(dir, TRL_CKPT_MANIFEST);
    bool ok = path && (stat(path, &st) == 0 || stat(dir, &st) == 0);
    trl_free(path);
    return ok ? (double)st.st_mtim.tv_sec + 1e-9 * (double)st.st_mtim.tv_nsec : 0;
}

static int by_step(const void *a, const void *b)
{
    int64_t x = ((const struct trl__ckpt_entry *)a)->step, y = ((const struct trl__ckpt_entry *)b)->step;
    return x < y ? -1 : x > y;
}

int trl__ckpt_list(const char *output_dir, struct trl__ckpt_entry **ret, size_t *ret_n, struct trl_err *err)
{
    struct trl__ckpt_entry *list = NULL;
    size_t n = 0, cap = 0;
    int rc = 0;
    DIR *d = opendir(output_dir);
    if (!d && errno != ENOENT)
        return trl_fail_errno(err, "cannot list", output_dir);
    for (struct dirent *e; d && rc == 0 && (e = readdir(d));) {
        int64_t step = trl__ckpt_step_of(e->d_name);
        char *path = step >= 0 ? trl_path_join(output_dir, e->d_name) : NULL;
        if (step >= 0 && !path) {
            rc = trl_fail_nomem(err, strlen(output_dir), "a path");
        } else if (path && trl_path_is_dir(path)) {
            if (trl_grow((void **)&list, &cap, n + 1, sizeof(*list)))
                list[n++] = (struct trl__ckpt_entry){step, mtime_of(path)};
            else
                rc = trl_fail_nomem(err, (n + 1) * sizeof(*list), "the list of checkpoints");
        }
        trl_free(path);
    }
    if (d)
        closedir(d);
    if (rc != 0) {
        trl_free(list);
        return rc;
    }
    if (n)
        qsort(list, n, sizeof(*list), by_step);
    *ret = list;
    *ret_n = n;
    return 0;
}

int trl__ckpt_delete(const char *output_dir, int64_t step, struct trl_err *err)
{
    char *path = trl__ckpt_path(output_dir, step), *away = trl__ckpt_side_path(output_dir, TRL__CKPT_DEL, step);
    int rc = path && away ? 0 : trl_fail_nomem(err, strlen(output_dir), "a path");
    if (rc == 0)
        rc = trl_rmtree(away, err);
    if (rc == 0)
        rc = trl_rename(path, away, err);
    if (rc == 0)
        rc = trl_rmtree(away, err);
    trl_free(path);
    trl_free(away);
    return rc;
}
