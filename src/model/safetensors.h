/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TRL_MODEL_SAFETENSORS_H
#define TRL_MODEL_SAFETENSORS_H
/*
 * Files in the safetensors format. The reader maps a file and checks the whole header before
 * anything is handed out: sizes, types, offsets without holes or overlap, and the file's length.
 * The tensor bytes are only located. Names, shapes and data are borrowed from the object. Read-only
 * after open; usable from many threads. The writer streams: header first, then the tensors in the
 * order of the header, into a temporary file that close() syncs and renames.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/fileio.h"
#include "tensor/dtype.h"

/* X(name, bits), in the writer's order of rank (widest last) */
#define TRL_ST_DTYPES(X) \
    X(BOOL, 8) \
    X(F4, 4) \
    X(F6_E2M3, 6) \
    X(F6_E3M2, 6) \
    X(U8, 8) \
    X(I8, 8) \
    X(F8_E5M2, 8) \
    X(F8_E4M3, 8) \
    X(F8_E8M0, 8) \
    X(F8_E4M3FNUZ, 8) \
    X(F8_E5M2FNUZ, 8) \
    X(I16, 16) \
    X(U16, 16) \
    X(F16, 16) \
    X(BF16, 16) \
    X(I32, 32) \
    X(U32, 32) \
    X(F32, 32) \
    X(C64, 64) \
    X(F64, 64) \
    X(I64, 64) \
    X(U64, 64)

enum trl_st_dtype {
#define X(name, bits) TRL_ST_##name,
    TRL_ST_DTYPES(X)
#undef X
        TRL_ST_DTYPE_MAX_
};
const char *trl_st_dtype_name(enum trl_st_dtype t);
/* F32, F16 and BF16 have an element type of ours: 0, otherwise -1 */
int trl_st_dtype_native(enum trl_st_dtype t, enum trl_dtype *ret);

enum { TRL_ST_MAX_DIMS = 8 };
struct trl_st_tensor {
    char *name;
    enum trl_st_dtype dtype;
    int ndim;
    int64_t shape[TRL_ST_MAX_DIMS];
    int64_t numel;
    uint64_t begin, end; /* in the byte buffer */
};

struct trl_st_file {
    char *path;
    struct trl_map map;
    const uint8_t *data; /* the byte buffer */
    size_t data_offset; /* of the byte buffer in the file */
    size_t data_len;
    struct trl_st_tensor *items; /* in the order of the data */
    int n;
};

int trl_st_open(struct trl_st_file *f, const char *path, struct trl_err *err);
/* The same from memory that outlives the object; `path` names it in errors. */
int trl_st_open_mem(
    struct trl_st_file *f, const void *data, size_t len, const char *path, struct trl_err *err);
void trl_st_close(struct trl_st_file *f); /* also of a zeroed struct */
const struct trl_st_tensor *trl_st_find(
    const struct trl_st_file *f, const char *name); /* NULL: none */
static inline const uint8_t *trl_st_data(const struct trl_st_file *f, const struct trl_st_tensor *t)
{
    return f->data + t->begin;
}

/* What a file will hold. Data comes in pieces through `fetch`: fill `dst` with elements [first,
 * first + n) of tensor i. */
struct trl_st_item {
    const char *name;
    enum trl_dtype dtype;
    int ndim;
    int64_t shape[TRL_ST_MAX_DIMS];
    int64_t numel;
    const void *user;
};
typedef int (*trl_st_fetch)(void *ctx, const struct trl_st_item *item, int64_t first, int64_t n,
    void *dst, struct trl_err *err);
/* Atomic: temporary name, fsync, rename. `items` are put into the reference writer's order (type,
 * then name). */
int trl_st_write(const char *path, struct trl_st_item *items, int n, trl_st_fetch fetch, void *ctx,
    struct trl_err *err);

#endif
