/* SPDX-License-Identifier: Apache-2.0 */
#include "model/safetensors.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/str.h"

enum { ST_CHUNK_ELEMS = 1 << 20 };

static int dtype_rank(enum trl_dtype t)
{
    return t == TRL_DTYPE_F32 ? 2 : t == TRL_DTYPE_BF16 ? 1 : 0;
}

static int by_rank_and_name(const void *pa, const void *pb)
{
    const struct trl_st_item *a = pa, *b = pb;
    int d = dtype_rank(b->dtype) - dtype_rank(a->dtype);
    return d ? d : strcmp(a->name, b->name);
}

/* u64 length, JSON, padded with spaces to a multiple of 8 */
static int make_header(
    struct trl_str *s, const struct trl_st_item *items, int n, struct trl_err *err)
{
    uint64_t at = 0;
    trl_str_append(s, "\0\0\0\0\0\0\0\0", 8);
    trl_str_puts(s, "{\"__metadata__\":{\"format\":\"pt\"}");
    for (int i = 0; i < n; i++) {
        const struct trl_st_item *t = &items[i];
        trl_str_putc(s, ',');
        trl_str_put_json(s, t->name, strlen(t->name));
        trl_str_printf(s, ":{\"dtype\":\"%s\",\"shape\":[", trl_dtype_st_name(t->dtype));
        for (int d = 0; d < t->ndim; d++)
            trl_str_printf(s, "%s%lld", d ? "," : "", (long long)t->shape[d]);
        uint64_t end = at + (uint64_t)t->numel * trl_dtype_size(t->dtype);
        trl_str_printf(
            s, "],\"data_offsets\":[%llu,%llu]}", (unsigned long long)at, (unsigned long long)end);
        at = end;
    }
    trl_str_putc(s, '}');
    while (!s->failed && s->len % 8 != 0)
        trl_str_putc(s, ' ');
    int rc = trl_str_check(s, err);
    if (rc)
        return rc;
    uint64_t len = s->len - 8;
    for (int i = 0; i < 8; i++)
        s->data[i] = (char)(len >> (8 * i) & 0xff);
    return 0;
}

static int write_tensor(int fd, const struct trl_st_item *t, trl_st_fetch fetch, void *ctx,
    void *buf, const char *path, struct trl_err *err)
{
    int rc = 0;
    for (int64_t first = 0; first < t->numel && rc == 0; first += ST_CHUNK_ELEMS) {
        int64_t n = t->numel - first < ST_CHUNK_ELEMS ? t->numel - first : ST_CHUNK_ELEMS;
        rc = fetch(ctx, t, first, n, buf, err);
        if (rc == 0)
            rc = trl_write_all(fd, buf, (size_t)n * trl_dtype_size(t->dtype), path, err);
    }
    return rc;
}

int trl_st_write(const char *path, struct trl_st_item *items, int n, trl_st_fetch fetch, void *ctx,
    struct trl_err *err)
{
    struct trl_str header = {0};
    void *buf = NULL;
    int fd = -1, rc;
    char *tmp = trl_asprintf("%s.tmp-%ld", path, (long)getpid());
    if (!tmp)
        return trl_fail_nomem(err, strlen(path), "a path");
    qsort(items, (size_t)n, sizeof(items[0]), by_rank_and_name);
    rc = make_header(&header, items, n, err);
    if (rc)
        goto out;
    buf = trl_malloc((size_t)ST_CHUNK_ELEMS * 4);
    if (!buf) {
        rc = trl_fail_nomem(err, (size_t)ST_CHUNK_ELEMS * 4, "a write buffer");
        goto out;
    }
    fd = open(tmp, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (fd < 0) {
        rc = trl_fail_errno(err, "cannot create", tmp);
        goto out;
    }
    rc = trl_write_all(fd, header.data, header.len, path, err);
    for (int i = 0; i < n && rc == 0; i++)
        rc = write_tensor(fd, &items[i], fetch, ctx, buf, path, err);
    if (rc == 0 && fsync(fd) != 0)
        rc = trl_fail_errno(err, "cannot sync", path);
    if (close(fd) != 0 && rc == 0)
        rc = trl_fail_errno(err, "cannot close", path);
    if (rc == 0)
        rc = trl_rename(tmp, path, err);
    if (rc != 0)
        unlink(tmp);
out:
    trl_free(buf);
    trl_str_release(&header);
    trl_free(tmp);
    return rc;
}
