/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Files into chunks of whole rows. JSON Lines are cut where a line break stands between `}` and `{`: nowhere inside a row may
 * that be, since a string cannot hold a line break and two objects need a comma. So rows may span lines, and the cut needs no
 * parse. JSON arrays are cut at commas between their elements, CSV at record ends outside quotes.
 */
#include "data/rows.h"

#include <string.h>

#include "base/alloc.h"
#include "base/fileio.h"

enum { CHUNK_SIZE = 1 << 18 };

/* Where the scan of a JSON array stands. */
struct array_scan {
    size_t at, last; /* last: a comma between elements */
    int depth;       /* 0: between elements */
    bool in_string, escaped, closed;
};

struct trl_reader {
    const struct trl_files *files;
    size_t next;
    struct trl_stream *in;
    const char *path;
    enum trl_rows_kind kind;
    int64_t line, column; /* where the next chunk begins */
    char *carry; /* bytes behind the last cut */
    size_t carry_len, carry_cap;
    bool after_comma; /* ARRAY: an element must follow */
    struct trl_csv_header *header; /* [n_header], one a CSV file: chunks refer to it */
    size_t n_header;
    int64_t done, total;
};

void trl_chunk_release(struct trl_chunk *c)
{
    if (!c)
        return;
    trl_free(c->text);
    *c = (struct trl_chunk){0};
}

void trl_csv_header_release(struct trl_csv_header *h)
{
    for (size_t i = 0; i < h->n; i++)
        trl_free(h->name[i]);
    trl_free(h->name);
    *h = (struct trl_csv_header){0};
}

int trl_reader_open(struct trl_reader **ret, const struct trl_files *files, struct trl_err *err)
{
    struct trl_reader *r = trl_calloc(1, sizeof(*r));
    struct trl_csv_header *h = trl_calloc(files->n, sizeof(*h));
    if (!r || !h) {
        trl_free(r);
        trl_free(h);
        return trl_fail_nomem(err, sizeof(*r), "a row reader");
    }
    r->files = files;
    r->header = h;
    for (size_t i = 0; i < files->n; i++) {
        int64_t n = trl_file_size(files->path[i]);
        r->total += n > 0 ? n : 0;
    }
    *ret = r;
    return 0;
}

void trl_reader_close(struct trl_reader *r)
{
    if (!r)
        return;
    trl_stream_close(r->in);
    for (size_t i = 0; i < r->n_header; i++)
        trl_csv_header_release(&r->header[i]);
    trl_free(r->header);
    trl_free(r->carry);
    trl_free(r);
}

void trl_reader_progress(const struct trl_reader *r, int64_t *ret_done, int64_t *ret_total)
{
    *ret_done = r->done + (r->in ? trl_stream_position(r->in) : 0);
    *ret_total = r->total;
}

static bool grow(struct trl_chunk *c, size_t need)
{
    void *p = c->text;
    bool ok = trl_grow(&p, &c->cap, need, 1);
    c->text = p;
    return ok;
}

static bool is_space(char c)
{
    return c == ' ' || c == '\n' || c == '\r' || c == '\t';
}

/* Behind the last line break with `}` before and `{` after it, blanks between; 0: none. */
static size_t cut_lines(const char *text, size_t len)
{
    char after = 0;
    size_t line_end = 0;
    for (size_t i = len; i-- > 0;) {
        if (text[i] == '\n')
            line_end = i + 1;
        if (is_space(text[i]))
            continue;
        if (line_end && text[i] == '}' && after == '{')
            return line_end;
        after = text[i];
        line_end = 0;
    }
    return 0;
}

static void scan_array(struct array_scan *s, const char *text, size_t len)
{
    for (; s->at < len && !s->closed; s->at++) {
        char c = text[s->at];
        if (s->in_string) {
            if (s->escaped)
                s->escaped = false;
            else if (c == '\\')
                s->escaped = true;
            else
                s->in_string = c != '"';
        } else if (c == '"') {
            s->in_string = true;
        } else if (c == '{' || c == '[') {
            s->depth++;
        } else if (c == '}' || (c == ']' && s->depth > 0)) {
            s->depth -= s->depth > 0;
        } else if (c == ']') {
            s->closed = true;
            return;
        } else if (c == ',' && s->depth == 0) {
            s->last = s->at;
        }
    }
}

static int64_t count_lines(const char *text, size_t len)
{
    int64_t n = 0;
    for (const char *p = text, *end = text + len; (p = memchr(p, '\n', (size_t)(end - p))) != NULL; p++)
        n++;
    return n;
}

static void advance(int64_t *line, int64_t *column, const char *text, size_t len)
{
    size_t from = len;
    while (from > 0 && text[from - 1] != '\n')
        from--;
    if (from > 0)
        *column = 1;
    *line += count_lines(text, len);
    for (size_t i = from; i < len; i++)
        *column += ((unsigned char)text[i] & 0xc0) != 0x80;
}

/* A name without .gz, .zst, .zstd: how does it end? */
static const char *extension(const char *path, char buf[16])
{
    const char *base = trl_path_base(path);
    size_t n = strlen(base);
    static const char *const packed[] = {".gz", ".zst", ".zstd"};
    for (size_t i = 0; i < 3; i++)
        if (trl_ends_with(base, packed[i])) {
            n -= strlen(packed[i]);
            break;
        }
    size_t dot = n;
    while (dot > 0 && base[dot - 1] != '.')
        dot--;
    if (dot == 0 || n - dot >= 16)
        return "";
    memcpy(buf, base + dot, n - dot);
    buf[n - dot] = '\0';
    return buf;
}

static int parse_header(struct trl_csv_header *h, struct trl_csv_reader *csv, const char *path, struct trl_err *err)
{
    if (!trl_csv_read(csv))
        return csv->why ? trl_fail(err, TRL_E_PARSE, "%s:1: %s", path, csv->why) : 0;
    h->name = trl_calloc(csv->n, sizeof(*h->name));
    if (!h->name)
        return trl_fail_nomem(err, csv->n * sizeof(*h->name), "column names");
    for (size_t i = 0; i < csv->n; i++, h->n++) {
        int same = 0; /* pandas renames a repeated column: text, text.1, ... */
        for (size_t k = 0; k < i; k++)
            same += strcmp(csv->field[k], csv->field[i]) == 0;
        h->name[i] = same ? trl_asprintf("%s.%d", csv->field[i], same)
            : csv->field[i][0] ? trl_strdup(csv->field[i])
                               : trl_asprintf("Unnamed: %zu", i);
        if (!h->name[i])
            return trl_fail_nomem(err, 64, "a column name");
    }
    return 0;
}

/* The kind of a file from its name and first bytes; moves *skip behind a byte order mark, and the bracket of an array. */
static int recognise(enum trl_rows_kind *kind, char *separator, const char *path, const char *text, size_t len, size_t *skip,
    struct trl_err *err)
{
    char buf[16];
    const char *ext = extension(path, buf);
    *skip = len >= 3 && memcmp(text, "\xef\xbb\xbf", 3) == 0 ? 3 : 0;
    *separator = strcmp(ext, "tsv") == 0 ? '\t' : ',';
    if (strcmp(ext, "csv") == 0 || strcmp(ext, "tsv") == 0) {
        *kind = TRL_ROWS_CSV;
        return 0;
    }
    size_t at = *skip;
    while (at < len && is_space(text[at]))
        at++;
    bool json = strcmp(ext, "json") == 0 || strcmp(ext, "jsonl") == 0 || strcmp(ext, "ndjson") == 0;
    if (!json && at < len && text[at] != '{' && text[at] != '[')
        return trl_fail(err, TRL_E_UNSUPPORTED, "%s is neither JSON Lines, a JSON array (.jsonl .json .ndjson) nor CSV "
            "(.csv .tsv), plain or as .gz or .zst", path);
    *kind = at < len && text[at] == '[' ? TRL_ROWS_ARRAY : TRL_ROWS_LINES;
    if (*kind == TRL_ROWS_ARRAY)
        *skip = at + 1;
    return 0;
}

/* Read until c->len >= want or the file ends. */
static int read_to(struct trl_reader *r, struct trl_chunk *c, size_t want, bool *ret_end, struct trl_err *err)
{
    if (!grow(c, want))
        return trl_fail_nomem(err, want, "a part of a data file");
    *ret_end = false;
    while (c->len < want) {
        size_t n;
        int rc = trl_stream_read(r->in, c->text + c->len, want - c->len, &n, err);
        if (rc != 0)
            return rc;
        if (n == 0) {
            *ret_end = true;
            return 0;
        }
        c->len += n;
    }
    return 0;
}

static int start_csv(struct trl_reader *r, struct trl_chunk *c, char separator, bool *end, struct trl_err *err)
{
    struct trl_csv_scan scan = {0};
    for (;;) {
        trl_csv_scan(&scan, c->text, c->len, separator);
        if (scan.last > 0 || *end)
            break;
        if (c->len >= TRL_ROW_BYTES_MAX)
            return trl_fail(err, TRL_E_PARSE, "%s:1: the header is longer than %zu MiB", r->path, TRL_ROW_BYTES_MAX >> 20);
        int rc = read_to(r, c, c->len * 2 + CHUNK_SIZE, end, err);
        if (rc != 0)
            return rc;
    }
    struct trl_csv_header *h = &r->header[r->n_header++];
    struct trl_csv_reader csv = {.text = c->text, .len = c->len, .separator = separator};
    h->separator = separator;
    int rc = parse_header(h, &csv, r->path, err);
    if (rc == 0) {
        advance(&r->line, &r->column, c->text, csv.at);
        c->len -= csv.at;
        memmove(c->text, c->text + csv.at, c->len);
    }
    trl_csv_reader_release(&csv);
    return rc;
}

/* Open the next file; its first bytes come into *c. */
static int start_file(struct trl_reader *r, struct trl_chunk *c, bool *end, struct trl_err *err)
{
    r->path = r->files->path[r->next++];
    int rc = trl_stream_open(&r->in, r->path, err);
    if (rc != 0)
        return rc;
    r->line = r->column = 1;
    r->after_comma = false;
    rc = read_to(r, c, CHUNK_SIZE, end, err);
    if (rc != 0)
        return rc;
    size_t skip;
    char separator;
    rc = recognise(&r->kind, &separator, r->path, c->text, c->len, &skip, err);
    if (rc != 0)
        return rc;
    advance(&r->line, &r->column, c->text, skip);
    c->len -= skip;
    memmove(c->text, c->text + skip, c->len);
    return r->kind == TRL_ROWS_CSV ? start_csv(r, c, separator, end, err) : 0;
}

static void end_file(struct trl_reader *r)
{
    r->done += trl_stream_position(r->in);
    trl_stream_close(r->in);
    r->in = NULL;
}

static bool blank(const char *text, size_t len)
{
    for (size_t i = 0; i < len; i++)
        if (!is_space(text[i]))
            return false;
    return true;
}

/* Keep what lies behind `from` for the next chunk; the chunk ends at `cut`. */
static int split_at(struct trl_reader *r, struct trl_chunk *c, size_t cut, size_t from, struct trl_err *err)
{
    void *p = r->carry;
    r->carry_len = c->len - from;
    if (!trl_grow(&p, &r->carry_cap, r->carry_len, 1))
        return trl_fail_nomem(err, r->carry_len, "a part of a data file");
    r->carry = p;
    memcpy(r->carry, c->text + from, r->carry_len);
    advance(&r->line, &r->column, c->text, from);
    c->len = cut;
    return 0;
}

/* The array's closing bracket stands at `at`: only blanks may follow, to the end of the file. */
static int end_array(struct trl_reader *r, struct trl_chunk *c, size_t at, struct trl_err *err)
{
    size_t len = c->len;
    if (!blank(c->text + at + 1, len - at - 1))
        goto more;
    char buf[4096];
    for (size_t n = 1; n > 0;) {
        int rc = trl_stream_read(r->in, buf, sizeof(buf), &n, err);
        if (rc != 0)
            return rc;
        if (!blank(buf, n))
            goto more;
    }
    if (r->after_comma && blank(c->text, at))
        return trl_fail(err, TRL_E_PARSE, "%s:%lld: a comma before the bracket that closes the list", r->path,
            (long long)(r->line + count_lines(c->text, at)));
    c->len = at;
    end_file(r);
    return 0;
more:
    return trl_fail(err, TRL_E_PARSE, "%s:%lld: text behind the list of rows; a file holds one list, or one object a line",
        r->path, (long long)(r->line + count_lines(c->text, at)));
}

/* Fill *c with whole rows of the open file. */
static int fill_chunk(struct trl_reader *r, struct trl_chunk *c, bool end, struct trl_err *err)
{
    struct array_scan array = {0};
    struct trl_csv_scan csv = {0};
    c->path = r->path;
    c->kind = r->kind;
    c->line = r->line;
    c->column = r->column;
    c->cut_short = false;
    c->header = r->kind == TRL_ROWS_CSV ? &r->header[r->n_header - 1] : NULL;
    for (;;) {
        size_t cut = 0;
        if (!end && c->len < CHUNK_SIZE) {
            int rc = read_to(r, c, CHUNK_SIZE, &end, err);
            if (rc != 0)
                return rc;
        }
        if (r->kind == TRL_ROWS_ARRAY) {
            scan_array(&array, c->text, c->len);
            if (array.closed)
                return end_array(r, c, array.at, err);
            if (end)
                return trl_fail(err, TRL_E_PARSE, "%s:%lld: the file ends inside its list of rows", r->path,
                    (long long)(r->line + count_lines(c->text, c->len)));
            cut = array.last;
        } else if (end) {
            end_file(r);
            return 0;
        } else if (r->kind == TRL_ROWS_CSV) {
            trl_csv_scan(&csv, c->text, c->len, c->header->separator);
            cut = csv.last;
        } else {
            cut = cut_lines(c->text, c->len);
        }
        if (cut > 0) {
            r->after_comma = r->kind == TRL_ROWS_ARRAY;
            return split_at(r, c, cut, cut + (r->kind == TRL_ROWS_ARRAY), err);
        }
        if (c->len >= TRL_ROW_BYTES_MAX) {
            c->cut_short = true;
            end_file(r);
            return 0;
        }
        int rc = read_to(r, c, c->len * 2, &end, err);
        if (rc != 0)
            return rc;
    }
}

int trl_reader_next(struct trl_reader *r, struct trl_chunk *c, bool *ret_more, struct trl_err *err)
{
    *ret_more = false;
    for (;;) {
        bool end = false;
        int rc = 0;
        c->len = 0;
        if (!r->in) {
            if (r->next == r->files->n)
                return 0;
            rc = start_file(r, c, &end, err);
        } else {
            if (!grow(c, r->carry_len + CHUNK_SIZE))
                return trl_fail_nomem(err, r->carry_len + CHUNK_SIZE, "a part of a data file");
            memcpy(c->text, r->carry, r->carry_len);
            c->len = r->carry_len;
            r->carry_len = 0;
        }
        if (rc == 0)
            rc = fill_chunk(r, c, end, err);
        if (rc != 0)
            return rc;
        if (c->len == 0 || blank(c->text, c->len))
            continue;
        *ret_more = true;
        return 0;
    }
}

int trl_chunk_from_text(struct trl_chunk *c, struct trl_csv_header *header, const char *text, size_t len, const char *name,
    struct trl_err *err)
{
    size_t skip;
    char separator;
    int rc = recognise(&c->kind, &separator, name, text, len, &skip, err);
    if (rc != 0)
        return rc;
    c->line = c->column = 1;
    advance(&c->line, &c->column, text, skip);
    c->path = name;
    c->cut_short = false;
    c->header = NULL;
    if (c->kind == TRL_ROWS_CSV) {
        struct trl_csv_reader csv = {.text = text + skip, .len = len - skip, .separator = separator};
        header->separator = separator;
        rc = parse_header(header, &csv, name, err);
        c->header = header;
        advance(&c->line, &c->column, text + skip, csv.at);
        skip += csv.at;
        trl_csv_reader_release(&csv);
        if (rc != 0)
            return rc;
    }
    struct array_scan array = {0};
    if (c->kind == TRL_ROWS_ARRAY) {
        scan_array(&array, text + skip, len - skip);
        if (!array.closed || !blank(text + skip + array.at + 1, len - skip - array.at - 1))
            return trl_fail(err, TRL_E_PARSE, "%s: the list of rows is not closed, or text stands behind it", name);
        len = skip + array.at;
    }
    if (!grow(c, len - skip + 1))
        return trl_fail_nomem(err, len, "a data file");
    memcpy(c->text, text + skip, len - skip);
    c->len = len - skip;
    return 0;
}
