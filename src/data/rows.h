/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TRL_DATA_ROWS_H
#define TRL_DATA_ROWS_H
/*
 * Rows out of files: which files (as the `datasets` library would choose them), their bytes (plain, gzip, zstd), cut into chunks
 * of whole rows in one thread, parsed in many. A row is a JSON object; CSV rows become objects of strings and nulls.
 * What `datasets` accepts is accepted and what it refuses is refused. Errors name file, line, column and the reason.
 */
#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/str.h"

/* --- which files (rows-files.c) --- */
struct trl_files {
    char **path;
    size_t n, cap;
};
struct trl_files_spec {
    const char *path;         /* a file, a folder, a glob, or "json"/"csv" together with data_files */
    const char *data_dir;     /* NULL: none */
    const json_t *data_files; /* NULL, a string, a list of strings, or an object split -> string or list */
    const char *split;
    const char *option;       /* for errors: "dataset_name" */
};
/* TRL_E_NOENT when there is no such split; the text lists those there are. */
int trl_files_find(struct trl_files *ret, const struct trl_files_spec *spec, struct trl_err *err);
void trl_files_release(struct trl_files *f);

/* --- bytes of one file (rows-stream.c) --- */
struct trl_stream;
int trl_stream_open(struct trl_stream **ret, const char *path, struct trl_err *err);
void trl_stream_close(struct trl_stream *s);
/* *ret_n is 0 only at the end. */
int trl_stream_read(struct trl_stream *s, char *buf, size_t n, size_t *ret_n, struct trl_err *err);
int64_t trl_stream_position(const struct trl_stream *s); /* bytes taken from the file */

/* --- chunks of whole rows (rows-chunk.c) --- */
enum trl_rows_kind { TRL_ROWS_LINES, TRL_ROWS_ARRAY, TRL_ROWS_CSV, TRL_ROWS_MAX_ };
/* A longer row is an error. */
#define TRL_ROW_BYTES_MAX ((size_t)256 << 20)

struct trl_csv_header {
    char **name; /* [n] */
    size_t n;
    char separator;
};
struct trl_chunk {
    char *text; /* [len], not terminated */
    size_t len, cap;
    const char *path; /* borrowed from the reader */
    int64_t line, column; /* of the first byte, from 1 */
    enum trl_rows_kind kind;
    bool cut_short;   /* the row at the end is longer than TRL_ROW_BYTES_MAX */
    const struct trl_csv_header *header; /* CSV; borrowed from the reader */
};
void trl_chunk_release(struct trl_chunk *c);

struct trl_reader;
int trl_reader_open(struct trl_reader **ret, const struct trl_files *files, struct trl_err *err); /* files are borrowed */
void trl_reader_close(struct trl_reader *r);
/* The next chunk into *c (its memory is used again); *ret_more is false when there is none. */
int trl_reader_next(struct trl_reader *r, struct trl_chunk *c, bool *ret_more, struct trl_err *err);
/* Bytes read from files so far, and bytes of all files. */
void trl_reader_progress(const struct trl_reader *r, int64_t *ret_done, int64_t *ret_total);
/* Parse one file's text from memory (tests, fuzzing): the whole text is one chunk. header is filled for CSV. */
int trl_chunk_from_text(struct trl_chunk *c, struct trl_csv_header *header, const char *text, size_t len, const char *name,
    struct trl_err *err);
void trl_csv_header_release(struct trl_csv_header *h);

/* Called for each row; a TRL_E_DATA result makes it a bad row, 1 stops the parse, other results end it. The row may be changed. */
typedef int trl_row_fn(void *ctx, json_t *row, struct trl_err *err);
struct trl_rows_count {
    int64_t rows, skipped;
    bool stopped;
};
/* skip_bad: bad rows are counted, the first one's text is left in err (with return value 0). Thread-safe. */
int trl_chunk_parse(const struct trl_chunk *c, bool skip_bad, trl_row_fn *fn, void *ctx, struct trl_rows_count *count,
    struct trl_err *err);

/* --- parsers (rows-json.c, rows-csv.c) --- */
struct trl_json_reader {
    const char *text;
    size_t len, at;
    const char *why; /* reason of a failure and where */
    size_t why_at;
    struct trl_str scratch;
};
/* One value at `at`, leading space skipped. NULL: see why. */
json_t *trl_json_read(struct trl_json_reader *r);
void trl_json_skip_space(struct trl_json_reader *r);

struct trl_csv_reader {
    const char *text;
    size_t len, at;
    char separator;
    const char *why;
    size_t why_at;
    char **field; /* [n] borrowed: point into scratch; NULL terminated strings */
    size_t *field_len;
    size_t n, cap_field, cap_len, cap_at;
    size_t *field_at;
    struct trl_str scratch;
};
/* One record, blank lines skipped. False: at the end (why NULL) or malformed. */
bool trl_csv_read(struct trl_csv_reader *r);
void trl_csv_reader_release(struct trl_csv_reader *r);
bool trl_csv_is_null(const char *field); /* what pandas reads as missing */

/* End of the last whole record in text[0..len), 0: none; *state carries the scan over growing text. */
struct trl_csv_scan {
    size_t at, last;
    int state;
};
void trl_csv_scan(struct trl_csv_scan *s, const char *text, size_t len, char separator);

#endif
