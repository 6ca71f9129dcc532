/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TRL_BASE_STR_H
#define TRL_BASE_STR_H
/*
 * A growing byte string. A zeroed struct is an empty string. `data` is always NUL-terminated once anything was
 * appended (NULL before). Appends after a failed allocation do nothing and leave `failed` set: check it once at
 * the end with trl_str_check().
 */
#include <stdbool.h>
#include <stddef.h>

#include "base/err.h"

struct trl_str {
    char *data;
    size_t len, cap;
    bool failed;
};

void trl_str_append(struct trl_str *s, const char *data, size_t len);
void trl_str_puts(struct trl_str *s, const char *text);
void trl_str_putc(struct trl_str *s, char c);
void trl_str_printf(struct trl_str *s, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void trl_str_clear(struct trl_str *s);         /* length 0, memory kept */
void trl_str_release(struct trl_str *s);       /* frees; the string is empty and usable again */
const char *trl_str_get(const struct trl_str *s); /* never NULL; borrowed until the next append */
char *trl_str_take(struct trl_str *s);         /* caller frees with trl_free; NULL when out of memory */
int trl_str_check(const struct trl_str *s, struct trl_err *err);

/* Append `cp` as UTF-8. */
void trl_str_put_utf8(struct trl_str *s, unsigned cp);
/* Append `text` as a JSON string with quotes; non-ASCII stays as it is. */
void trl_str_put_json(struct trl_str *s, const char *text, size_t len);

/* Length of the well-formed UTF-8 character at p (1..4) and its code point, or 0 if ill-formed. */
int trl_utf8_decode(const char *p, size_t len, unsigned *ret_cp);
/* Offset of the first ill-formed byte, or `len` when all is well. */
size_t trl_utf8_check(const char *p, size_t len);

bool trl_starts_with(const char *s, const char *prefix);
bool trl_ends_with(const char *s, const char *suffix);

/* Whole-text numbers; false when anything is left over or the range is passed. Locale-independent. */
bool trl_parse_i64(const char *s, long long *ret);
bool trl_parse_f64(const char *s, double *ret);
/* Shortest text that reads back as the same double, in Python's repr format ("1e-05", "0.1", "1.0"). */
void trl_str_put_double(struct trl_str *s, double v);

#endif
