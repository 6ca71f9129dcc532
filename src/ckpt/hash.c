/* SPDX-License-Identifier: Apache-2.0 */
#include "ckpt/hash.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"

#define P1 0x9E3779B185EBCA87u
#define P2 0xC2B2AE3D27D4EB4Fu
#define P3 0x165667B19E3779F9u
#define P4 0x85EBCA77C2B2AE63u
#define P5 0x27D4EB2F165667C5u

enum { READ_BYTES = 1 << 20 };

static uint64_t rotl(uint64_t v, int n)
{
    return v << n | v >> (64 - n);
}

static uint64_t load(const uint8_t *p, int bytes)
{
    uint64_t v = 0;
    for (int i = 0; i < bytes; i++)
        v |= (uint64_t)p[i] << (8 * i);
    return v;
}

static uint64_t mix(uint64_t acc, uint64_t lane)
{
    return rotl(acc + lane * P2, 31) * P1;
}

void trl_xxh64_init(struct trl_xxh64 *h)
{
    *h = (struct trl_xxh64){.acc = {P1 + P2, P2, 0, 0 - P1}};
}

static void stripes(struct trl_xxh64 *h, const uint8_t *p, size_t n)
{
    uint64_t a = h->acc[0], b = h->acc[1], c = h->acc[2], d = h->acc[3];
    for (; n; n--, p += 32) {
        a = mix(a, load(p, 8));
        b = mix(b, load(p + 8, 8));
        c = mix(c, load(p + 16, 8));
        d = mix(d, load(p + 24, 8));
    }
    h->acc[0] = a, h->acc[1] = b, h->acc[2] = c, h->acc[3] = d;
}

void trl_xxh64_update(struct trl_xxh64 *h, const void *data, size_t len)
{
    const uint8_t *p = data;
    h->total += len;
    if (h->rest_len > 0) {
        size_t n = 32 - h->rest_len < len ? 32 - h->rest_len : len;
        memcpy(h->rest + h->rest_len, p, n);
        h->rest_len += n;
        p += n;
        len -= n;
        if (h->rest_len < 32)
            return;
        stripes(h, h->rest, 1);
        h->rest_len = 0;
    }
    stripes(h, p, len / 32);
    h->rest_len = len % 32;
    if (h->rest_len)
        memcpy(h->rest, p + len - h->rest_len, h->rest_len);
}

uint64_t trl_xxh64_get(const struct trl_xxh64 *h)
{
    uint64_t v = P5;
    const uint8_t *p = h->rest, *end = p + h->rest_len;
    if (h->total >= 32) {
        v = rotl(h->acc[0], 1) + rotl(h->acc[1], 7) + rotl(h->acc[2], 12) + rotl(h->acc[3], 18);
        for (int i = 0; i < 4; i++)
            v = (v ^ mix(0, h->acc[i])) * P1 + P4;
    }
    v += h->total;
    for (; end - p >= 8; p += 8)
        v = rotl(v ^ mix(0, load(p, 8)), 27) * P1 + P4;
    if (end - p >= 4) {
        v = rotl(v ^ load(p, 4) * P1, 23) * P2 + P3;
        p += 4;
    }
    for (; p < end; p++)
        v = rotl(v ^ *p * P5, 11) * P1;
    v = (v ^ v >> 33) * P2;
    v = (v ^ v >> 29) * P3;
    return v ^ v >> 32;
}

int trl_hash_file(const char *path, int sync, uint64_t *ret_size, uint64_t *ret_hash, struct trl_err *err)
{
    struct trl_xxh64 h;
    int rc = 0, fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0)
        return trl_fail_errno(err, "cannot open", path);
    void *buf = trl_malloc(READ_BYTES);
    if (!buf) {
        rc = trl_fail_nomem(err, READ_BYTES, "a read buffer");
        goto out;
    }
    trl_xxh64_init(&h);
    for (;;) {
        ssize_t n = read(fd, buf, READ_BYTES);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            rc = trl_fail_errno(err, "cannot read", path);
        if (n <= 0)
            break;
        trl_xxh64_update(&h, buf, (size_t)n);
    }
    if (rc == 0 && sync && fsync(fd) != 0)
        rc = trl_fail_errno(err, "cannot sync", path);
    if (rc == 0) {
        *ret_size = h.total;
        *ret_hash = trl_xxh64_get(&h);
    }
out:
    trl_free(buf);
    close(fd);
    return rc;
}
