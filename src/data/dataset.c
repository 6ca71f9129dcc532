/* SPDX-License-Identifier: Apache-2.0 */
/* A finished data set: rows in memory of our own, or in a file that ranks of a node map. */
#include "data/dataset.h"

#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/fileio.h"
#include "data/store.h"

struct trl_dataset {
    struct trl_store s; /* arrays of a mapped data set point into the map */
    struct trl_map map;
    int64_t max_len;
    bool flat, mapped;
};

/* The file: this header, then the arrays in the order of array_list(), each at a multiple of 64 bytes. */
struct block_header {
    char magic[8];
    uint32_t version, byte_order;
    uint64_t n_rows, n_tokens, n_doc_len, kind, flat, total;
};
static const char MAGIC[8] = "TRLROWS";
enum { VERSION = 1, ARRAYS = 8, ALIGN = 64 };
static const uint32_t BYTE_ORDER_MARK = 0x01020304;

static int64_t longest(const struct trl_store *s)
{
    int64_t n = 0;
    for (size_t i = 0; i < s->n_rows; i++)
        n = s->len[i] > n ? s->len[i] : n;
    return n;
}

/* Reorder the per-row arrays: row i becomes the old row order[i]. */
static int reorder(struct trl_store *s, const int64_t *order, int64_t n, struct trl_err *err)
{
    struct trl_store t = {0};
    t.begin = trl_malloc_array((size_t)n, sizeof(*t.begin));
    t.len = trl_malloc_array((size_t)n, sizeof(*t.len));
    t.doc_begin = trl_malloc_array((size_t)n, sizeof(*t.doc_begin));
    t.n_docs = trl_malloc_array((size_t)n, sizeof(*t.n_docs));
    if (!t.begin || !t.len || !t.doc_begin || !t.n_docs) {
        trl_store_release(&t);
        return trl_fail_nomem(err, (size_t)n * 24, "the order of rows");
    }
    for (int64_t i = 0; i < n; i++) {
        t.begin[i] = s->begin[order[i]];
        t.len[i] = s->len[order[i]];
        t.doc_begin[i] = s->doc_begin[order[i]];
        t.n_docs[i] = s->n_docs[order[i]];
    }
    trl_free(s->begin);
    trl_free(s->len);
    trl_free(s->doc_begin);
    trl_free(s->n_docs);
    s->begin = t.begin;
    s->len = t.len;
    s->doc_begin = t.doc_begin;
    s->n_docs = t.n_docs;
    s->n_rows = s->cap_begin = s->cap_len = s->cap_doc_begin = s->cap_n_docs = (size_t)n;
    return 0;
}

int trl_dataset_new(struct trl_dataset **ret, struct trl_store *s, const int64_t *order, int64_t n, bool flat,
    struct trl_err *err)
{
    struct trl_dataset *d = trl_calloc(1, sizeof(*d));
    if (!d)
        return trl_fail_nomem(err, sizeof(*d), "a data set");
    if (order) {
        int rc = reorder(s, order, n, err);
        if (rc != 0) {
            trl_free(d);
            return rc;
        }
    }
    trl_store_shrink(s);
    d->s = *s;
    *s = (struct trl_store){0};
    d->flat = flat;
    d->max_len = longest(&d->s);
    *ret = d;
    return 0;
}

void trl_dataset_free(struct trl_dataset *d)
{
    if (!d)
        return;
    if (d->mapped)
        trl_map_close(&d->map);
    else
        trl_store_release(&d->s);
    trl_free(d);
}

int64_t trl_dataset_n_rows(const struct trl_dataset *d)
{
    return (int64_t)d->s.n_rows;
}

int64_t trl_dataset_n_tokens(const struct trl_dataset *d)
{
    int64_t n = 0; /* tokens of dropped rows may still lie in the arrays */
    for (size_t i = 0; i < d->s.n_rows; i++)
        n += d->s.len[i];
    return n;
}

int64_t trl_dataset_max_len(const struct trl_dataset *d)
{
    return d->max_len;
}

bool trl_dataset_is_flat(const struct trl_dataset *d)
{
    return d->flat;
}

void trl_dataset_get_row(const struct trl_dataset *d, int64_t i, struct trl_row *ret)
{
    const struct trl_store *s = &d->s;
    ret->ids = s->ids + s->begin[i];
    ret->len = s->len[i];
    ret->n_docs = s->n_docs[i] ? s->n_docs[i] : 1;
    ret->doc_len = s->n_docs[i] ? s->doc_len + s->doc_begin[i] : NULL;
}

void trl_dataset_copy_labels(const struct trl_dataset *d, int64_t i, int32_t *ret)
{
    trl_store_copy_labels(&d->s, i, 0, d->s.len[i], ret);
}

struct array {
    void **data;
    uint64_t bytes;
};

/* Arrays of the file in their order; sizes follow from the counts. */
static void array_list(struct trl_store *s, struct array a[ARRAYS])
{
    uint64_t rows = s->n_rows, tokens = s->n_tokens;
    a[0] = (struct array){(void **)&s->begin, rows * 8};
    a[1] = (struct array){(void **)&s->doc_begin, rows * 8};
    a[2] = (struct array){(void **)&s->len, rows * 4};
    a[3] = (struct array){(void **)&s->n_docs, rows * 4};
    a[4] = (struct array){(void **)&s->doc_len, (uint64_t)s->n_doc_len * 4};
    a[5] = (struct array){(void **)&s->ids, tokens * 4};
    a[6] = (struct array){(void **)&s->mask, s->kind == TRL_LABELS_MASK ? (tokens + 7) / 8 : 0};
    a[7] = (struct array){(void **)&s->labels, s->kind == TRL_LABELS_OWN ? tokens * 4 : 0};
}

static uint64_t aligned(uint64_t n)
{
    return (n + ALIGN - 1) / ALIGN * ALIGN;
}

int trl_dataset_export(const struct trl_dataset *d, const char *path, struct trl_err *err)
{
    static const char zeros[ALIGN];
    struct trl_store s = d->s;
    struct array a[ARRAYS];
    array_list(&s, a);
    struct block_header h = {.version = VERSION, .byte_order = BYTE_ORDER_MARK, .n_rows = s.n_rows,
        .n_tokens = s.n_tokens, .n_doc_len = s.n_doc_len, .kind = s.kind, .flat = d->flat};
    memcpy(h.magic, MAGIC, sizeof(h.magic));
    h.total = aligned(sizeof(h));
    for (int i = 0; i < ARRAYS; i++)
        h.total += aligned(a[i].bytes);
    char *tmp = trl_asprintf("%s.tmp", path);
    if (!tmp)
        return trl_fail_nomem(err, strlen(path), "a path");
    int rc = 0;
    /* the folder is everybody's: never write into a file that is there already */
    unlink(tmp);
    int fd = open(tmp, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0) {
        rc = trl_fail_errno(err, "cannot write", tmp);
        goto out;
    }
    rc = trl_write_all(fd, &h, sizeof(h), tmp, err);
    if (rc == 0)
        rc = trl_write_all(fd, zeros, aligned(sizeof(h)) - sizeof(h), tmp, err);
    for (int i = 0; i < ARRAYS && rc == 0; i++) {
        rc = trl_write_all(fd, *a[i].data, a[i].bytes, tmp, err);
        if (rc == 0)
            rc = trl_write_all(fd, zeros, aligned(a[i].bytes) - a[i].bytes, tmp, err);
    }
    if (close(fd) != 0 && rc == 0)
        rc = trl_fail_errno(err, "cannot write", tmp);
    /* no fsync: the block lives in memory and dies with the job */
    if (rc == 0 && rename(tmp, path) != 0)
        rc = trl_fail_errno(err, "cannot rename", tmp);
    if (rc != 0)
        unlink(tmp);
out:
    trl_free(tmp);
    return rc;
}

/* Every row and document must lie inside the arrays: later reads are unchecked. */
static bool rows_fit(const struct trl_store *s)
{
    for (size_t i = 0; i < s->n_rows; i++) {
        uint64_t begin = (uint64_t)s->begin[i], docs = (uint64_t)s->doc_begin[i];
        if (s->len[i] < 0 || s->n_docs[i] < 0 || begin > s->n_tokens || (uint64_t)s->len[i] > s->n_tokens - begin ||
            docs > s->n_doc_len || (uint64_t)s->n_docs[i] > s->n_doc_len - docs)
            return false;
        int64_t sum = 0;
        for (int32_t k = 0; k < s->n_docs[i]; k++) {
            if (s->doc_len[docs + (uint64_t)k] < 0)
                return false;
            sum += s->doc_len[docs + (uint64_t)k];
        }
        if (s->n_docs[i] > 0 && sum != s->len[i])
            return false;
    }
    return true;
}

static bool header_fits(const struct block_header *h, uint64_t size)
{
    return memcmp(h->magic, MAGIC, sizeof(h->magic)) == 0 && h->version == VERSION &&
        h->byte_order == BYTE_ORDER_MARK && h->kind < TRL_LABELS_MAX_ && h->flat <= 1 && h->total == size &&
        h->n_rows <= size / 24 && h->n_tokens <= size / 4 && h->n_doc_len <= size / 4;
}

int trl_dataset_import(struct trl_dataset **ret, const char *path, struct trl_err *err)
{
    struct trl_dataset *d = trl_calloc(1, sizeof(*d));
    if (!d)
        return trl_fail_nomem(err, sizeof(*d), "a data set");
    int rc = trl_map_open(&d->map, path, err);
    if (rc != 0) {
        trl_free(d);
        return rc;
    }
    d->mapped = true;
    struct block_header h = {0};
    bool ok = d->map.len >= sizeof(h);
    if (ok)
        memcpy(&h, d->map.data, sizeof(h));
    ok = ok && header_fits(&h, d->map.len);
    if (ok) {
        d->s.n_rows = h.n_rows;
        d->s.n_tokens = h.n_tokens;
        d->s.n_doc_len = h.n_doc_len;
        d->s.kind = (enum trl_label_kind)h.kind;
        d->flat = h.flat;
        struct array a[ARRAYS];
        array_list(&d->s, a);
        uint64_t at = aligned(sizeof(h));
        for (int i = 0; i < ARRAYS && ok; i++) {
            ok = at <= d->map.len && aligned(a[i].bytes) <= d->map.len - at;
            *a[i].data = ok ? (void *)(uintptr_t)(d->map.data + at) : NULL;
            at += aligned(a[i].bytes);
        }
        ok = ok && at == d->map.len && rows_fit(&d->s);
    }
    if (!ok) {
        trl_dataset_free(d);
        return trl_fail(err, TRL_E_PARSE, "%s is not a block of prepared rows, or it is damaged", path);
    }
    d->max_len = longest(&d->s);
    *ret = d;
    return 0;
}
