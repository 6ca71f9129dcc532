/* SPDX-License-Identifier: Apache-2.0 */
/* A chunk into rows. */
#include "data/rows.h"

#include <string.h>

#include "base/alloc.h"

struct parse {
    const struct trl_chunk *chunk;
    bool skip_bad;
    trl_row_fn *fn;
    void *ctx;
    struct trl_rows_count *count;
    struct trl_err *err;
    size_t line_at; /* text before it was counted */
    int64_t line;
};

/* The line of a place at or behind the last one asked for. */
static int64_t line_of(struct parse *p, size_t at)
{
    const char *text = p->chunk->text;
    for (const char *nl; p->line_at < at && (nl = memchr(text + p->line_at, '\n', at - p->line_at)) != NULL;) {
        p->line++;
        p->line_at = (size_t)(nl - text) + 1;
    }
    p->line_at = at > p->line_at ? at : p->line_at;
    return p->line;
}

/* Characters from the start of the line, from 1. */
static int64_t column_of(const struct trl_chunk *c, size_t at)
{
    size_t from = at;
    while (from > 0 && c->text[from - 1] != '\n')
        from--;
    int64_t n = from == 0 ? c->column : 1;
    for (size_t i = from; i < at; i++)
        n += ((unsigned char)c->text[i] & 0xc0) != 0x80;
    return n;
}

/* A syntax error at `at`. */
static int syntax(struct parse *p, size_t at, const char *why)
{
    struct parse q = *p;
    q.line_at = 0;
    q.line = p->chunk->line;
    return trl_fail(p->err, TRL_E_PARSE, "%s:%lld:%lld: %s", p->chunk->path, (long long)line_of(&q, at),
        (long long)column_of(p->chunk, at), why);
}

/* A bad row: counted or final. Text of the first one stays in err. */
static int bad_row(struct parse *p, int rc)
{
    if (!p->skip_bad || (rc != TRL_E_DATA && rc != TRL_E_PARSE))
        return rc;
    p->count->skipped++;
    return 0;
}

static int give_row(struct parse *p, json_t *row, size_t at)
{
    struct trl_err mine = {0}, *err = p->skip_bad && p->count->skipped > 0 ? &mine : p->err;
    int rc = p->fn(p->ctx, row, err);
    if (rc == 0) {
        p->count->rows++;
    } else if (rc > 0) {
        p->count->rows++;
        p->count->stopped = true;
    } else {
        rc = trl_err_prefix(err, rc, "%s:%lld", p->chunk->path, (long long)line_of(p, at));
        rc = bad_row(p, rc);
        if (rc != 0 && err == &mine)
            *p->err = mine;
    }
    return rc;
}

static int give_json(struct parse *p, json_t *row, size_t at)
{
    int rc = 0;
    if (json_is_string(row) && p->chunk->kind == TRL_ROWS_ARRAY) {
        json_t *text = json_pack("{s:O}", "text", row); /* a list of strings is a list of texts */
        rc = text ? give_row(p, text, at) : trl_fail_nomem(p->err, 64, "a row");
        json_decref(text);
    } else if (!json_is_object(row)) {
        static const char *const names[] = {"an object", "a list", "a string", "a number", "a number", "true", "false", "null"};
        struct trl_err mine = {0}, *err = p->skip_bad && p->count->skipped > 0 ? &mine : p->err;
        rc = bad_row(p, trl_fail(err, TRL_E_DATA, "%s:%lld: a row is an object like {\"text\": \"...\"}, not %s",
            p->chunk->path, (long long)line_of(p, at), names[json_typeof(row)]));
    } else {
        rc = give_row(p, row, at);
    }
    return rc;
}

/* Behind the line in which a bad row began. */
static size_t next_line(const struct trl_chunk *c, size_t at)
{
    const char *nl = memchr(c->text + at, '\n', c->len - at);
    return nl ? (size_t)(nl - c->text) + 1 : c->len;
}

static int bad_syntax(struct parse *p, struct trl_json_reader *r, size_t at)
{
    const struct trl_chunk *c = p->chunk;
    if (c->cut_short && r->at >= c->len)
        return trl_fail(p->err, TRL_E_PARSE, "%s:%lld: a row of more than %zu MiB", c->path, (long long)line_of(p, at),
            TRL_ROW_BYTES_MAX >> 20);
    struct trl_err mine = {0}, *keep = p->err;
    if (p->skip_bad && p->count->skipped > 0)
        p->err = &mine;
    int rc = syntax(p, r->why_at, r->why);
    p->err = keep;
    if (c->kind == TRL_ROWS_ARRAY || c->cut_short)
        return rc;
    r->at = next_line(c, at);
    return bad_row(p, rc);
}

/* A comma between two rows of a list. */
static int between(struct parse *p, struct trl_json_reader *r)
{
    trl_json_skip_space(r);
    if (r->at == r->len)
        return 0;
    if (r->text[r->at] != ',')
        return syntax(p, r->at, "expected a comma or the closing bracket of the list of rows");
    r->at++;
    trl_json_skip_space(r);
    return r->at == r->len ? syntax(p, r->at, "a comma before the bracket that closes the list") : 0;
}

static int parse_json(struct parse *p)
{
    const struct trl_chunk *c = p->chunk;
    struct trl_json_reader r = {.text = c->text, .len = c->len};
    int rc = 0;
    for (trl_json_skip_space(&r); r.at < r.len && rc == 0; trl_json_skip_space(&r)) {
        size_t at = r.at;
        json_t *row = trl_json_read(&r);
        if (!row) {
            rc = bad_syntax(p, &r, at);
            continue;
        }
        if (c->cut_short && r.at == r.len)
            rc = trl_fail(p->err, TRL_E_PARSE, "%s:%lld: a row of more than %zu MiB", c->path,
                (long long)line_of(p, at), TRL_ROW_BYTES_MAX >> 20);
        else
            rc = give_json(p, row, at);
        json_decref(row);
        if (rc == 0 && c->kind == TRL_ROWS_ARRAY)
            rc = between(p, &r);
    }
    trl_str_release(&r.scratch);
    return rc;
}

static json_t *csv_row(const struct trl_csv_header *h, const struct trl_csv_reader *r)
{
    json_t *row = json_object();
    for (size_t i = 0; row && i < h->n; i++) {
        bool null = i >= r->n || trl_csv_is_null(r->field[i]);
        json_t *v = null ? json_null() : json_stringn_nocheck(r->field[i], r->field_len[i]);
        if (!v || json_object_set_new_nocheck(row, h->name[i], v) != 0) {
            json_decref(row);
            return NULL;
        }
    }
    return row;
}

static int parse_csv(struct parse *p)
{
    const struct trl_chunk *c = p->chunk;
    struct trl_csv_reader r = {.text = c->text, .len = c->len, .separator = c->header->separator};
    int rc = 0;
    for (;;) {
        size_t at = r.at;
        if (rc != 0 || !trl_csv_read(&r))
            break;
        if (r.n > c->header->n) {
            struct trl_err mine = {0}, *err = p->skip_bad && p->count->skipped > 0 ? &mine : p->err;
            rc = bad_row(p, trl_fail(err, TRL_E_DATA, "%s:%lld: %zu fields, but the header names %zu columns", c->path,
                (long long)line_of(p, at), r.n, c->header->n));
            continue;
        }
        json_t *row = csv_row(c->header, &r);
        rc = row ? give_row(p, row, at) : trl_fail_nomem(p->err, 64, "a row");
        json_decref(row);
    }
    if (rc == 0 && r.why)
        rc = syntax(p, r.why_at, c->cut_short ? "a row longer than 256 MiB, or a quote that is not closed" : r.why);
    trl_csv_reader_release(&r);
    return rc;
}

int trl_chunk_parse(const struct trl_chunk *c, bool skip_bad, trl_row_fn *fn, void *ctx, struct trl_rows_count *count,
    struct trl_err *err)
{
    struct trl_err local = {0};
    struct parse p = {.chunk = c, .skip_bad = skip_bad, .fn = fn, .ctx = ctx, .count = count, .err = err ? err : &local,
        .line = c->line};
    *count = (struct trl_rows_count){0};
    int rc = c->kind == TRL_ROWS_CSV ? parse_csv(&p) : parse_json(&p);
    return rc > 0 ? 0 : rc;
}
