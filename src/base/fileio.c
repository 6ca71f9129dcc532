/* SPDX-License-Identifier: Apache-2.0 */
#include "base/fileio.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/alloc.h"

static int open_retry(const char *path, int flags, mode_t mode)
{
    int fd;
    do
        fd = open(path, flags | O_CLOEXEC, mode);
    while (fd < 0 && errno == EINTR);
    return fd;
}

int trl_write_all(int fd, const void *data, size_t len, const char *path, struct trl_err *err)
{
    const char *p = data;
    while (len > 0) {
        ssize_t n = write(fd, p, len < (1u << 30) ? len : (1u << 30));
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return trl_fail_errno(err, "cannot write", path);
        p += n;
        len -= (size_t)n;
    }
    return 0;
}

/* Reads from files whose size stat() does not know (pipes, /proc) too. */
int trl_file_read(const char *path, size_t max, char **ret_data, size_t *ret_len, struct trl_err *err)
{
    int fd = open_retry(path, O_RDONLY, 0);
    if (fd < 0)
        return trl_fail_errno(err, "cannot open", path);
    char *data = NULL;
    size_t len = 0, cap = 0;
    int rc = 0;
    struct stat st;
    if (fstat(fd, &st) == 0 && S_ISDIR(st.st_mode)) {
        rc = trl_fail(err, TRL_E_IO, "cannot read %s: it is a folder", path);
        goto out;
    }
    for (;;) {
        void *p = data;
        if (!trl_grow(&p, &cap, len + 65536 + 1, 1)) {
            rc = trl_fail_nomem(err, len + 65536, path);
            goto out;
        }
        data = p;
        ssize_t n = read(fd, data + len, cap - len - 1);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0) {
            rc = trl_fail_errno(err, "cannot read", path);
            goto out;
        }
        if (n == 0)
            break;
        len += (size_t)n;
        if (len > max) {
            rc = trl_fail(err, TRL_E_RANGE, "%s is larger than the limit of %zu bytes", path, max);
            goto out;
        }
    }
    data[len] = '\0';
    *ret_data = data;
    if (ret_len)
        *ret_len = len;
    data = NULL;
out:
    trl_free(data);
    close(fd);
    return rc;
}

const char *trl_path_base(const char *path)
{
    const char *p = strrchr(path, '/');
    return p ? p + 1 : path;
}

char *trl_path_join(const char *dir, const char *name)
{
    size_t n = strlen(dir);
    if (n == 0)
        return trl_strdup(name);
    return trl_asprintf(dir[n - 1] == '/' ? "%s%s" : "%s/%s", dir, name);
}

static char *parent_dir(const char *path)
{
    const char *p = strrchr(path, '/');
    if (!p)
        return trl_strdup(".");
    return p == path ? trl_strdup("/") : trl_strndup(path, (size_t)(p - path));
}

int trl_fsync_dir(const char *path, struct trl_err *err)
{
    int fd = open_retry(path, O_RDONLY | O_DIRECTORY, 0);
    if (fd < 0)
        return trl_fail_errno(err, "cannot open folder", path);
    /* EINVAL: the file system has no such notion, so there is nothing to wait for */
    int rc = fsync(fd) != 0 && errno != EINVAL ? trl_fail_errno(err, "cannot sync folder", path) : 0;
    close(fd);
    return rc;
}

int trl_rename(const char *from, const char *to, struct trl_err *err)
{
    if (rename(from, to) != 0)
        return trl_fail_errno(err, "cannot rename to", to);
    char *dir = parent_dir(to);
    if (!dir)
        return trl_fail_nomem(err, strlen(to), "a path");
    int rc = trl_fsync_dir(dir, err);
    trl_free(dir);
    return rc;
}

int trl_file_write_atomic(const char *path, const void *data, size_t len, struct trl_err *err)
{
    char *tmp = trl_asprintf("%s.tmp-%ld", path, (long)getpid());
    if (!tmp)
        return trl_fail_nomem(err, strlen(path), "a path");
    int rc;
    int fd = open_retry(tmp, O_WRONLY | O_CREAT | O_TRUNC, 0666);
    if (fd < 0) {
        rc = trl_fail_errno(err, "cannot create", tmp);
        goto out;
    }
    rc = trl_write_all(fd, data, len, path, err);
    if (rc == 0 && fsync(fd) != 0)
        rc = trl_fail_errno(err, "cannot sync", path);
    if (close(fd) != 0 && rc == 0)
        rc = trl_fail_errno(err, "cannot close", path);
    if (rc == 0)
        rc = trl_rename(tmp, path, err);
    if (rc != 0)
        unlink(tmp);
out:
    trl_free(tmp);
    return rc;
}

int trl_file_copy(const char *from, const char *to, struct trl_err *err)
{
    struct trl_map m;
    int rc = trl_map_open(&m, from, err);
    if (rc)
        return rc;
    rc = trl_file_write_atomic(to, m.data ? (const void *)m.data : "", m.len, err);
    trl_map_close(&m);
    return rc;
}

bool trl_path_exists(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0;
}

bool trl_path_is_dir(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

int64_t trl_file_size(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0 ? (int64_t)st.st_size : -1;
}

int trl_mkdirs(const char *path, struct trl_err *err)
{
    char *copy = trl_strdup(path);
    if (!copy)
        return trl_fail_nomem(err, strlen(path), "a path");
    int rc = 0;
    for (char *p = copy + 1; rc == 0; p++) {
        char c = *p;
        if (c != '/' && c != '\0')
            continue;
        *p = '\0';
        if (mkdir(copy, 0777) != 0 && errno != EEXIST)
            rc = trl_fail_errno(err, "cannot create folder", copy);
        *p = c;
        if (c == '\0')
            break;
    }
    trl_free(copy);
    if (rc == 0 && !trl_path_is_dir(path))
        rc = trl_fail(err, TRL_E_IO, "cannot create folder %s: a file of that name is there", path);
    return rc;
}

static int rmtree_at(int parent, const char *name, const char *shown, struct trl_err *err)
{
    if (unlinkat(parent, name, 0) == 0 || errno == ENOENT)
        return 0;
    if (errno != EISDIR && errno != EPERM)
        return trl_fail_errno(err, "cannot remove", shown);
    int fd = openat(parent, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    DIR *d = fd < 0 ? NULL : fdopendir(fd);
    if (!d) {
        if (fd >= 0)
            close(fd);
        return trl_fail_errno(err, "cannot open folder", shown);
    }
    int rc = 0;
    struct dirent *e;
    while (rc == 0 && (e = readdir(d)) != NULL)
        if (strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0)
            rc = rmtree_at(dirfd(d), e->d_name, shown, err);
    closedir(d);
    if (rc == 0 && unlinkat(parent, name, AT_REMOVEDIR) != 0)
        rc = trl_fail_errno(err, "cannot remove folder", shown);
    return rc;
}

int trl_rmtree(const char *path, struct trl_err *err)
{
    return rmtree_at(AT_FDCWD, path, path, err);
}

void trl_remove_leftovers(const char *dir, const char *prefix)
{
    enum { YOUNG_S = 60 }; /* pids of another container mean nothing here: what is in use now is young */
    DIR *d = opendir(dir);
    struct dirent *e;
    size_t len = strlen(prefix);
    while (d && (e = readdir(d)) != NULL) {
        unsigned uid;
        int pid;
        struct stat st;
        if (strncmp(e->d_name, prefix, len) != 0 || sscanf(e->d_name + len, "%u-%d-", &uid, &pid) != 2 || uid != getuid() ||
            pid <= 0)
            continue;
        if (kill(pid, 0) != 0 && errno == ESRCH && fstatat(dirfd(d), e->d_name, &st, AT_SYMLINK_NOFOLLOW) == 0 &&
            S_ISREG(st.st_mode) && st.st_uid == getuid() && time(NULL) - st.st_mtime > YOUNG_S)
            unlinkat(dirfd(d), e->d_name, 0);
    }
    if (d)
        closedir(d);
}

int trl_map_open(struct trl_map *m, const char *path, struct trl_err *err)
{
    *m = (struct trl_map){0};
    int fd = open_retry(path, O_RDONLY, 0);
    if (fd < 0)
        return trl_fail_errno(err, "cannot open", path);
    int rc = 0;
    struct stat st;
    if (fstat(fd, &st) != 0) {
        rc = trl_fail_errno(err, "cannot stat", path);
    } else if (!S_ISREG(st.st_mode)) {
        rc = trl_fail(err, TRL_E_IO, "cannot map %s: not a plain file", path);
    } else if (st.st_size > 0) {
        void *p = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
        if (p == MAP_FAILED) {
            rc = trl_fail_errno(err, "cannot map", path);
        } else {
            m->data = p;
            m->len = (size_t)st.st_size;
        }
    }
    close(fd);
    return rc;
}

void trl_map_close(struct trl_map *m)
{
    if (m->data)
        munmap((void *)(uintptr_t)m->data, m->len);
    *m = (struct trl_map){0};
}

void trl_map_drop(const struct trl_map *m, size_t offset, size_t len)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    size_t first = (offset + page - 1) / page * page, last = (offset + len) / page * page;
    if (m->data && last > first && last <= m->len)
        madvise((void *)(uintptr_t)(m->data + first), last - first, MADV_DONTNEED);
}
