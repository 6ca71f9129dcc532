/* SPDX-License-Identifier: Apache-2.0 */
#include "metrics/events.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/fileio.h"

/* ---- framing ---- */

uint32_t trl_crc32c(const void *data, size_t len)
{
    /* reflected Castagnoli polynomial, four bits at a time: records are small */
    static const uint32_t table[16] = {0x00000000, 0x105ec76f, 0x20bd8ede, 0x30e349b1, 0x417b1dbc, 0x5125dad3, 0x61c69362,
        0x7198540d, 0x82f63b78, 0x92a8fc17, 0xa24bb5a6, 0xb21572c9, 0xc38d26c4, 0xd3d3e1ab, 0xe330a81a, 0xf36e6f75};
    const uint8_t *p = data;
    uint32_t c = 0xffffffff;
    for (size_t i = 0; i < len; i++) {
        c ^= p[i];
        c = c >> 4 ^ table[c & 15];
        c = c >> 4 ^ table[c & 15];
    }
    return ~c;
}

static void put_le(struct trl_str *s, uint64_t v, int bytes)
{
    for (int i = 0; i < bytes; i++)
        trl_str_putc(s, (char)(v >> (8 * i) & 0xff));
}

static uint32_t masked_crc(const void *data, size_t len)
{
    uint32_t c = trl_crc32c(data, len);
    return (c >> 15 | c << 17) + 0xa282ead8u;
}

static void put_record(struct trl_str *s, const struct trl_str *event)
{
    uint8_t head[8];
    if (event->failed) {
        s->failed = true;
        return;
    }
    for (int i = 0; i < 8; i++)
        head[i] = (uint8_t)((uint64_t)event->len >> (8 * i));
    trl_str_append(s, (const char *)head, 8);
    put_le(s, masked_crc(head, 8), 4);
    trl_str_append(s, event->data, event->len);
    put_le(s, masked_crc(event->data, event->len), 4);
}

/* ---- protobuf ---- */

enum { VARINT = 0, FIXED64 = 1, BYTES = 2, FIXED32 = 5 };

static void put_varint(struct trl_str *s, uint64_t v)
{
    while (v >= 0x80) {
        trl_str_putc(s, (char)(v | 0x80));
        v >>= 7;
    }
    trl_str_putc(s, (char)v);
}

static void put_key(struct trl_str *s, int field, int type)
{
    put_varint(s, (uint64_t)(field << 3 | type));
}

static void put_bytes(struct trl_str *s, int field, const void *data, size_t len)
{
    put_key(s, field, BYTES);
    put_varint(s, len);
    trl_str_append(s, data ? data : "", len);
}

/* a message as a field; `m` is released */
static void put_message(struct trl_str *s, int field, struct trl_str *m)
{
    put_bytes(s, field, m->data, m->len);
    s->failed |= m->failed;
    trl_str_release(m);
}

static void put_wall_time(struct trl_str *s, double t)
{
    uint64_t u;
    memcpy(&u, &t, 8);
    put_key(s, 1, FIXED64);
    put_le(s, u, 8);
}

static void finish_record(struct trl_str *s, struct trl_str *event)
{
    put_record(s, event);
    trl_str_release(event);
}

void trl_events_put_version(struct trl_str *s, double wall_time)
{
    struct trl_str event = {0};
    put_wall_time(&event, wall_time);
    put_bytes(&event, 3, "brain.Event:2", 13);
    finish_record(s, &event);
}

/* Event{wall_time, step, summary{value}}; step 0 is proto3's default and left out. `value` is released. */
static void put_summary(struct trl_str *s, struct trl_str *value, int64_t step, double wall_time)
{
    struct trl_str event = {0}, summary = {0};
    put_wall_time(&event, wall_time);
    if (step != 0) {
        put_key(&event, 2, VARINT);
        put_varint(&event, (uint64_t)step);
    }
    put_message(&summary, 1, value);
    put_message(&event, 5, &summary);
    finish_record(s, &event);
}

void trl_events_put_scalar(struct trl_str *s, const char *tag, float v, int64_t step, double wall_time)
{
    struct trl_str value = {0};
    uint32_t u;
    memcpy(&u, &v, 4);
    put_bytes(&value, 1, tag, strlen(tag));
    put_key(&value, 2, FIXED32);
    put_le(&value, u, 4);
    put_summary(s, &value, step, wall_time);
}

void trl_events_put_text(struct trl_str *s, const char *tag, const char *text, int64_t step, double wall_time)
{
    struct trl_str value = {0}, tensor = {0}, shape = {0}, dim = {0}, meta = {0}, plugin = {0}, name = {0};
    trl_str_printf(&name, "%s/text_summary", tag);
    put_bytes(&value, 1, name.data, name.len);
    trl_str_release(&name);
    put_key(&tensor, 1, VARINT); /* dtype string */
    put_varint(&tensor, 7);
    put_key(&dim, 1, VARINT); /* shape [1] */
    put_varint(&dim, 1);
    put_message(&shape, 2, &dim);
    put_message(&tensor, 2, &shape);
    put_bytes(&tensor, 8, text, strlen(text));
    put_message(&value, 8, &tensor);
    put_bytes(&plugin, 1, "text", 4);
    put_message(&meta, 1, &plugin);
    put_message(&value, 9, &meta);
    put_summary(s, &value, step, wall_time);
}

/* ---- the file ---- */

struct trl_events {
    int fd;
    char *path;
    struct trl_str buf;
};

int trl_events_open(struct trl_events **ret, const char *dir, struct trl_err *err)
{
    static atomic_int counter;
    char host[256] = "localhost";
    int rc = trl_mkdirs(dir, err);
    if (rc != 0)
        return rc;
    gethostname(host, sizeof(host) - 1);
    struct trl_events *e = trl_calloc(1, sizeof(*e));
    char *path = trl_asprintf("%s/events.out.tfevents.%010lld.%s.%ld.%d", dir, (long long)trl_clock_wall(), host,
        (long)getpid(), atomic_fetch_add(&counter, 1));
    if (!e || !path) {
        trl_free(e);
        trl_free(path);
        return trl_fail_nomem(err, sizeof(*e), "an event writer");
    }
    e->path = path;
    e->fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
    if (e->fd < 0) {
        rc = trl_fail_errno(err, "cannot create", path);
        trl_events_close(e);
        return rc;
    }
    trl_events_put_version(&e->buf, trl_clock_wall());
    rc = trl_events_flush(e, err);
    if (rc != 0)
        trl_events_close(e);
    else
        *ret = e;
    return rc;
}

int trl_events_scalar(struct trl_events *e, const char *tag, double value, int64_t step, struct trl_err *err)
{
    trl_events_put_scalar(&e->buf, tag, (float)value, step, trl_clock_wall());
    return trl_str_check(&e->buf, err);
}

int trl_events_text(struct trl_events *e, const char *tag, const char *text, int64_t step, struct trl_err *err)
{
    trl_events_put_text(&e->buf, tag, text, step, trl_clock_wall());
    return trl_str_check(&e->buf, err);
}

int trl_events_flush(struct trl_events *e, struct trl_err *err)
{
    int rc = trl_str_check(&e->buf, err);
    if (rc == 0 && e->buf.len > 0)
        rc = trl_write_all(e->fd, e->buf.data, e->buf.len, e->path, err);
    trl_str_clear(&e->buf);
    return rc;
}

void trl_events_close(struct trl_events *e)
{
    if (!e)
        return;
    if (e->fd >= 0) {
        trl_events_flush(e, NULL);
        close(e->fd);
    }
    trl_str_release(&e->buf);
    trl_free(e->path);
    trl_free(e);
}
