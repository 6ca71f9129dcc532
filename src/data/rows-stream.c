/* SPDX-License-Identifier: Apache-2.0 */
/* Bytes of a data file. Compression is recognised by its first bytes, not by the name. */
#include "data/rows.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include <zlib.h>
#ifdef TRL_HAVE_ZSTD
#include <zstd.h>
#endif

#include "base/alloc.h"

enum { IN_SIZE = 1 << 17 };
enum coding { CODING_PLAIN, CODING_GZIP, CODING_ZSTD };

struct trl_stream {
    int fd;
    char *path;
    enum coding coding;
    int64_t position;
    bool in_end;  /* nothing more in the file */
    bool in_part; /* inside a compressed frame */
    z_stream z;
    bool z_ready;
#ifdef TRL_HAVE_ZSTD
    ZSTD_DStream *zs;
#endif
    size_t in_at, in_len;
    unsigned char in[IN_SIZE];
};

static int fill(struct trl_stream *s, struct trl_err *err)
{
    if (s->in_at > 0)
        memmove(s->in, s->in + s->in_at, s->in_len - s->in_at);
    s->in_len -= s->in_at;
    s->in_at = 0;
    while (s->in_len < IN_SIZE && !s->in_end) {
        ssize_t n = read(s->fd, s->in + s->in_len, IN_SIZE - s->in_len);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return trl_fail_errno(err, "cannot read", s->path);
        s->in_end = n == 0;
        s->in_len += (size_t)n;
        s->position += n;
    }
    return 0;
}

static bool starts(const struct trl_stream *s, const char *magic, size_t n)
{
    return s->in_len >= n && memcmp(s->in, magic, n) == 0;
}

static int refuse_columnar(const struct trl_stream *s, const char *what, struct trl_err *err)
{
    return trl_fail(err, TRL_E_UNSUPPORTED,
        "%s is %s, which is not read; convert it with: python3 -c 'import sys, pandas; "
        "pandas.read_%s(sys.argv[1]).to_json(sys.argv[2], orient=\"records\", lines=True, force_ascii=False)' %s rows.jsonl",
        s->path, what, strcmp(what, "Parquet") == 0 ? "parquet" : "feather", s->path);
}

static int recognise(struct trl_stream *s, struct trl_err *err)
{
    if (starts(s, "\x1f\x8b", 2)) {
        s->coding = CODING_GZIP;
        if (inflateInit2(&s->z, 15 + 16) != Z_OK)
            return trl_fail_nomem(err, 1 << 16, "zlib");
        s->z_ready = true;
        return 0;
    }
    if (starts(s, "\x28\xb5\x2f\xfd", 4)) {
        s->coding = CODING_ZSTD;
#ifdef TRL_HAVE_ZSTD
        s->zs = ZSTD_createDStream();
        return s->zs ? 0 : trl_fail_nomem(err, 1 << 17, "zstd");
#else
        return trl_fail(err, TRL_E_UNSUPPORTED, "%s is compressed with zstd, and this program was built without it; unpack it with: "
            "zstd -d %s", s->path, s->path);
#endif
    }
    if (starts(s, "PAR1", 4))
        return refuse_columnar(s, "Parquet", err);
    if (starts(s, "ARROW1", 6))
        return refuse_columnar(s, "Arrow", err);
    static const struct {
        const char *magic, *name, *command;
        size_t n;
    } packed[] = {
        {"BZh", "bzip2", "bunzip2", 3},
        {"\xfd"
         "7zXZ",
            "xz", "unxz", 5},
        {"PK\3\4", "zip", "unzip", 4},
    };
    for (size_t i = 0; i < sizeof(packed) / sizeof(packed[0]); i++)
        if (starts(s, packed[i].magic, packed[i].n))
            return trl_fail(err, TRL_E_UNSUPPORTED,
                "%s is compressed with %s; gzip and zstd are read, so unpack it first with: %s %s", s->path,
                packed[i].name, packed[i].command, s->path);
    return 0;
}

int trl_stream_open(struct trl_stream **ret, const char *path, struct trl_err *err)
{
    struct trl_stream *s = trl_calloc(1, sizeof(*s));
    char *copy = trl_strdup(path);
    if (!s || !copy) {
        trl_free(s);
        trl_free(copy);
        return trl_fail_nomem(err, sizeof(*s), "a file");
    }
    s->path = copy;
    s->fd = open(path, O_RDONLY | O_CLOEXEC);
    int rc = s->fd < 0 ? trl_fail_errno(err, "cannot open", path) : fill(s, err);
    if (rc == 0)
        rc = recognise(s, err);
    if (rc != 0) {
        trl_stream_close(s);
        return rc;
    }
    *ret = s;
    return 0;
}

void trl_stream_close(struct trl_stream *s)
{
    if (!s)
        return;
    if (s->z_ready)
        inflateEnd(&s->z);
#ifdef TRL_HAVE_ZSTD
    ZSTD_freeDStream(s->zs);
#endif
    if (s->fd >= 0)
        close(s->fd);
    trl_free(s->path);
    trl_free(s);
}

int64_t trl_stream_position(const struct trl_stream *s)
{
    return s->position - (int64_t)(s->in_len - s->in_at);
}

static int damaged(const struct trl_stream *s, const char *how, struct trl_err *err)
{
    return trl_fail(err, TRL_E_PARSE, "%s: compressed data is damaged before byte %lld: %s", s->path,
        (long long)trl_stream_position(s), how);
}

/* One step of inflate; a file may hold several gzip members. */
static int step_gzip(struct trl_stream *s, char *buf, size_t n, size_t *ret_n, struct trl_err *err)
{
    if (!s->in_part) {
        if (s->in_at == s->in_len)
            return 0;
        inflateReset(&s->z);
        s->in_part = true;
    }
    s->z.next_in = s->in + s->in_at;
    s->z.avail_in = (unsigned)(s->in_len - s->in_at);
    s->z.next_out = (unsigned char *)buf;
    s->z.avail_out = n < (1u << 30) ? (unsigned)n : 1u << 30;
    unsigned before = s->z.avail_out;
    int z = inflate(&s->z, Z_NO_FLUSH);
    s->in_at = s->in_len - s->z.avail_in;
    *ret_n = before - s->z.avail_out;
    if (z == Z_STREAM_END)
        s->in_part = false;
    else if (z != Z_OK && z != Z_BUF_ERROR)
        return damaged(s, s->z.msg ? s->z.msg : "inflate failed", err);
    return 0;
}

static int step_zstd(struct trl_stream *s, char *buf, size_t n, size_t *ret_n, struct trl_err *err)
{
#ifdef TRL_HAVE_ZSTD
    ZSTD_inBuffer in = {s->in + s->in_at, s->in_len - s->in_at, 0};
    ZSTD_outBuffer out = {buf, n, 0};
    size_t z = ZSTD_decompressStream(s->zs, &out, &in);
    if (ZSTD_isError(z))
        return damaged(s, ZSTD_getErrorName(z), err);
    if (in.pos > 0 || out.pos > 0)
        s->in_part = z != 0;
    s->in_at += in.pos;
    *ret_n = out.pos;
    return 0;
#else
    (void)buf;
    (void)n;
    (void)ret_n;
    return damaged(s, "built without zstd", err);
#endif
}

int trl_stream_read(struct trl_stream *s, char *buf, size_t n, size_t *ret_n, struct trl_err *err)
{
    *ret_n = 0;
    if (n == 0)
        return 0;
    for (;;) {
        int rc = s->in_at == s->in_len && !s->in_end ? fill(s, err) : 0;
        if (rc != 0)
            return rc;
        if (s->coding == CODING_PLAIN) {
            size_t m = s->in_len - s->in_at < n ? s->in_len - s->in_at : n;
            memcpy(buf, s->in + s->in_at, m);
            s->in_at += m;
            *ret_n = m;
            return 0;
        }
        size_t before = s->in_at;
        rc = s->coding == CODING_GZIP ? step_gzip(s, buf, n, ret_n, err) : step_zstd(s, buf, n, ret_n, err);
        if (rc != 0 || *ret_n > 0)
            return rc;
        bool stuck = s->in_at == before;
        if (s->in_at == s->in_len && s->in_end && (stuck || !s->in_part)) {
            return s->in_part ? trl_fail(err, TRL_E_PARSE, "%s: the compressed file ends too early", s->path) : 0;
        }
        if (stuck && s->in_at < s->in_len)
            return damaged(s, "no progress", err);
    }
}
