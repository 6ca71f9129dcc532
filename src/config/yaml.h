/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TRL_CONFIG_YAML_H
#define TRL_CONFIG_YAML_H
/*
 * A YAML file as JSON, with the position of each top-level key. Plain scalars mean what PyYAML's
 * safe_load makes of them (YAML 1.1: `yes` is true, `017` is 15, `12:30` is 750, `1e-5` is a
 * string), because TRL's and accelerate's users write for that. Limits: TRL_YAML_MAX_BYTES, 64
 * levels, 100000 nodes counted through aliases. Every error names file, line and column.
 */
#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

#include "base/arena.h"
#include "base/err.h"
#include "base/str.h"

#define TRL_YAML_MAX_BYTES ((size_t)1 << 20)

/* TIME: a date or a time stamp; its JSON value is the text. A float that JSON has not (.inf, .nan)
 * is its text too. */
enum trl_yaml_kind {
    TRL_YAML_NULL,
    TRL_YAML_BOOL,
    TRL_YAML_INT,
    TRL_YAML_FLOAT,
    TRL_YAML_STR,
    TRL_YAML_TIME,
    TRL_YAML_LIST,
    TRL_YAML_MAP,
    TRL_YAML_MAX_
};

struct trl_yaml_entry {
    const char *key;
    json_t *value; /* borrowed from root */
    const char *raw; /* a scalar as it was written (quotes resolved); NULL for lists and maps */
    enum trl_yaml_kind kind;
    size_t line; /* of the key, from 1; 0: not known */
};

/* A zeroed struct is empty. All pointers live until trl_yaml_release. */
struct trl_yaml {
    const char *name; /* as in messages */
    json_t *root; /* NULL: an empty document */
    struct trl_yaml_entry *top; /* the entries when root is a map; the last of equal keys only */
    size_t n_top;
    struct trl_str warnings; /* lines: keys that were given twice */
    struct trl_arena arena;
};

/* Files whose name ends in .json are read as JSON. */
int trl_yaml_read(struct trl_yaml *y, const char *path, struct trl_err *err);
int trl_yaml_parse(
    struct trl_yaml *y, const char *text, size_t len, const char *name, struct trl_err *err);
void trl_yaml_release(struct trl_yaml *y);
const struct trl_yaml_entry *trl_yaml_find(
    const struct trl_yaml *y, const char *key); /* NULL: none */

/* What a plain scalar means, and its value: i for BOOL and INT, f for INT and FLOAT (an INT beyond
 * 64 bits has i saturated, f its size). */
struct trl_yaml_scalar {
    long long i;
    double f;
    bool big;
};
enum trl_yaml_kind trl_yaml_resolve(const char *text, struct trl_yaml_scalar *ret);

/* Append a double so that YAML 1.1 and JSON both read a number back. Not for inf and nan. */
void trl_yaml_put_double(struct trl_str *s, double v);
/* Append a JSON value in YAML's flow form. */
void trl_yaml_put_json(struct trl_str *s, const json_t *v);

#endif
