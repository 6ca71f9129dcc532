/* SPDX-License-Identifier: Apache-2.0 */
/*
 * CSV as RFC 4180 and pandas' default reader have it: a quote counts at the start of a field only, two quotes inside a quoted
 * field are one, records end in LF, CRLF or CR, blank lines are skipped.
 */
#include "data/rows.h"

#include <string.h>

#include "base/alloc.h"

enum { AT_FIELD, IN_FIELD, IN_QUOTES, AFTER_QUOTE };

void trl_csv_scan(struct trl_csv_scan *s, const char *text, size_t len, char separator)
{
    for (; s->at < len; s->at++) {
        char c = text[s->at];
        if (s->state == IN_QUOTES) {
            s->state = c == '"' ? AFTER_QUOTE : IN_QUOTES;
        } else if (c == '"' && s->state != IN_FIELD) {
            s->state = IN_QUOTES;
        } else if (c == '\n' || c == '\r') {
            s->state = AT_FIELD;
            if (c == '\n')
                s->last = s->at + 1;
        } else {
            s->state = c == separator ? AT_FIELD : IN_FIELD;
        }
    }
}

bool trl_csv_is_null(const char *field)
{
    static const char *const names[] = {"", "#N/A", "#N/A N/A", "#NA", "-1.#IND", "-1.#QNAN", "-NaN", "-nan", "1.#IND",
        "1.#QNAN", "<NA>", "N/A", "NA", "NULL", "NaN", "None", "n/a", "nan", "null"};
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        if (strcmp(field, names[i]) == 0)
            return true;
    return false;
}

static bool csv_fail(struct trl_csv_reader *r, size_t at, const char *why)
{
    r->why = why;
    r->why_at = at;
    return false;
}

static bool end_of_record(const struct trl_csv_reader *r)
{
    return r->at == r->len || r->text[r->at] == '\n' || r->text[r->at] == '\r';
}

static void skip_line_end(struct trl_csv_reader *r)
{
    if (r->at < r->len && r->text[r->at] == '\r')
        r->at++;
    if (r->at < r->len && r->text[r->at] == '\n')
        r->at++;
}

/* pandas skips lines of nothing but blanks. */
static void skip_blank_lines(struct trl_csv_reader *r)
{
    for (;;) {
        size_t at = r->at;
        while (at < r->len && (r->text[at] == ' ' || (r->text[at] == '\t' && r->separator != '\t')))
            at++;
        if (at == r->len || (r->text[at] != '\n' && r->text[at] != '\r')) {
            if (at == r->len)
                r->at = at;
            return;
        }
        r->at = at;
        if (r->text[r->at] == '\r' && r->at + 1 < r->len && r->text[r->at + 1] == '\n')
            r->at++;
        r->at++;
    }
}

static bool read_field(struct trl_csv_reader *r)
{
    size_t open = r->at;
    bool quoted = r->at < r->len && r->text[r->at] == '"';
    if (quoted) {
        r->at++;
        for (;;) {
            const char *q = memchr(r->text + r->at, '"', r->len - r->at);
            if (!q)
                return csv_fail(r, open, "the quoted field that begins here is not closed");
            size_t n = (size_t)(q - (r->text + r->at));
            trl_str_append(&r->scratch, r->text + r->at, n);
            r->at += n + 1;
            if (r->at == r->len || r->text[r->at] != '"')
                break;
            trl_str_putc(&r->scratch, '"');
            r->at++;
        }
    }
    size_t from = r->at; /* text behind a closing quote belongs to the field, as in pandas */
    while (!end_of_record(r) && r->text[r->at] != r->separator)
        r->at++;
    trl_str_append(&r->scratch, r->text + from, r->at - from);
    return true;
}

static bool grow_fields(struct trl_csv_reader *r)
{
    void *f = r->field, *l = r->field_len, *a = r->field_at;
    bool ok = trl_grow(&f, &r->cap_field, r->n + 1, sizeof(*r->field));
    ok = trl_grow(&l, &r->cap_len, r->n + 1, sizeof(*r->field_len)) && ok;
    ok = trl_grow(&a, &r->cap_at, r->n + 1, sizeof(*r->field_at)) && ok;
    r->field = f;
    r->field_len = l;
    r->field_at = a;
    return ok;
}

bool trl_csv_read(struct trl_csv_reader *r)
{
    r->why = NULL;
    r->n = 0;
    trl_str_clear(&r->scratch);
    skip_blank_lines(r);
    if (r->at == r->len)
        return false;
    for (;;) {
        size_t begin = r->scratch.len, at = r->at;
        if (!grow_fields(r))
            return csv_fail(r, at, "out of memory");
        if (!read_field(r))
            return false;
        r->field_len[r->n] = r->scratch.len - begin;
        r->field_at[r->n] = begin;
        const char *text = trl_str_get(&r->scratch) + begin;
        size_t bad = trl_utf8_check(text, r->field_len[r->n]);
        if (bad < r->field_len[r->n])
            return csv_fail(r, at, "bytes in this field that are not UTF-8");
        r->n++;
        trl_str_putc(&r->scratch, '\0');
        if (end_of_record(r))
            break;
        r->at++; /* separator */
    }
    skip_line_end(r);
    if (r->scratch.failed)
        return csv_fail(r, r->at, "out of memory");
    for (size_t i = 0; i < r->n; i++)
        r->field[i] = r->scratch.data + r->field_at[i];
    return true;
}

void trl_csv_reader_release(struct trl_csv_reader *r)
{
    trl_str_release(&r->scratch);
    trl_free(r->field);
    trl_free(r->field_len);
    trl_free(r->field_at);
}
