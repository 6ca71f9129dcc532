/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TRL_BASE_GGUF_H
#define TRL_BASE_GGUF_H
/*
 * The container of GGUF files, versions 2 and 3, little-endian: key-value metadata and the table of
 * tensors. Everything is checked at open (lengths, counts, offsets, duplicate names), so that what
 * the calls below hand out lies inside the mapping. The tensor bytes are only located, never
 * touched. Read-only after open; usable from many threads.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

/* X(name, value, bytes of one element; 0: variable) */
#define TRL_GGUF_VALUES(X) \
    X(U8, 0, 1) \
    X(I8, 1, 1) \
    X(U16, 2, 2) \
    X(I16, 3, 2) \
    X(U32, 4, 4) \
    X(I32, 5, 4) \
    X(F32, 6, 4) \
    X(BOOL, 7, 1) \
    X(STRING, 8, 0) \
    X(ARRAY, 9, 0) \
    X(U64, 10, 8) \
    X(I64, 11, 8) \
    X(F64, 12, 8)

enum trl_gguf_value {
#define X(name, value, bytes) TRL_GGUF_##name = (value),
    TRL_GGUF_VALUES(X)
#undef X
        TRL_GGUF_VALUE_MAX_
};

/* Tensor element types (ggml's numbers). X(name, value, elements of a block, bytes of a block) */
#define TRL_GGML_TYPES(X) \
    X(F32, 0, 1, 4) \
    X(F16, 1, 1, 2) \
    X(Q4_0, 2, 32, 18) \
    X(Q4_1, 3, 32, 20) \
    X(Q5_0, 6, 32, 22) \
    X(Q5_1, 7, 32, 24) \
    X(Q8_0, 8, 32, 34) \
    X(Q8_1, 9, 32, 36) \
    X(Q2_K, 10, 256, 84) \
    X(Q3_K, 11, 256, 110) \
    X(Q4_K, 12, 256, 144) \
    X(Q5_K, 13, 256, 176) \
    X(Q6_K, 14, 256, 210) \
    X(Q8_K, 15, 256, 292) \
    X(I8, 24, 1, 1) \
    X(I16, 25, 1, 2) \
    X(I32, 26, 1, 4) \
    X(I64, 27, 1, 8) \
    X(F64, 28, 1, 8) \
    X(BF16, 30, 1, 2)

enum trl_ggml_type {
#define X(name, value, elems, bytes) TRL_GGML_##name = (value),
    TRL_GGML_TYPES(X)
#undef X
};

/* Name and block of a type; false (name "type N" is the caller's to write) for a type that is not
 * in the table. */
bool trl_ggml_type_info(
    uint32_t type, const char **ret_name, unsigned *ret_elems, unsigned *ret_bytes);

struct trl_gguf_tensor {
    const char *name;
    uint32_t n_dims;
    uint64_t dims[4]; /* dims[0] is the fastest axis; 1 beyond n_dims */
    uint32_t type; /* ggml's number, also one that is not in the table */
    uint64_t offset; /* in the data section */
    uint64_t n_elems;
    uint64_t n_bytes; /* 0 when the type is not in the table */
    const uint8_t *data; /* n_bytes inside the mapping */
};

struct trl_gguf;
int trl_gguf_open(struct trl_gguf **ret, const char *path, struct trl_err *err);
/* The same from memory that outlives the object. `origin` names the source in errors. */
int trl_gguf_open_mem(
    struct trl_gguf **ret, const void *data, size_t len, const char *origin, struct trl_err *err);
void trl_gguf_close(struct trl_gguf *g);
const char *trl_gguf_origin(const struct trl_gguf *g);

/* Does this file begin with the magic word "GGUF"? */
bool trl_gguf_is_file(const char *path);

bool trl_gguf_has(const struct trl_gguf *g, const char *key);
/* Optional values: *ret keeps what the caller put there when the key is absent. Any integer type
 * (or a bool) is read as an integer, any number as a float; another type, or a value out of the
 * range of int64, is an error that names the key. */
int trl_gguf_get_int(const struct trl_gguf *g, const char *key, int64_t *ret, struct trl_err *err);
int trl_gguf_get_float(const struct trl_gguf *g, const char *key, double *ret, struct trl_err *err);
int trl_gguf_get_bool(const struct trl_gguf *g, const char *key, bool *ret, struct trl_err *err);
/* Not NUL-terminated. */
int trl_gguf_get_str(const struct trl_gguf *g, const char *key, const char **ret, size_t *ret_len,
    struct trl_err *err);

/* Walk an array: `left` elements remain. An absent key gives left 0. The element kind is checked by
 * open: trl_gguf_array_next_str for strings, _next_num for numbers. False at the end. */
struct trl_gguf_array {
    const uint8_t *p;
    uint64_t left;
    uint32_t type; /* enum trl_gguf_value of the elements */
};
int trl_gguf_get_strings(
    const struct trl_gguf *g, const char *key, struct trl_gguf_array *ret, struct trl_err *err);
int trl_gguf_get_numbers(
    const struct trl_gguf *g, const char *key, struct trl_gguf_array *ret, struct trl_err *err);
bool trl_gguf_array_next_str(struct trl_gguf_array *a, const char **ret, size_t *ret_len);
bool trl_gguf_array_next_num(struct trl_gguf_array *a, double *ret);

/* All keys in file order, for listings. */
int64_t trl_gguf_n_keys(const struct trl_gguf *g);
const char *trl_gguf_key(const struct trl_gguf *g, int64_t i, uint32_t *ret_type);

int64_t trl_gguf_n_tensors(const struct trl_gguf *g);
const struct trl_gguf_tensor *trl_gguf_tensor(
    const struct trl_gguf *g, int64_t i); /* in file order */
const struct trl_gguf_tensor *trl_gguf_find_tensor(
    const struct trl_gguf *g, const char *name); /* NULL: none */

#endif
