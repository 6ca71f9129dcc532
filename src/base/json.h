/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TRL_BASE_JSON_H
#define TRL_BASE_JSON_H
/*
 * JSON text as Python's json.dumps writes it: floats as repr ("1e-05", "1.0"), non-finite floats as NaN, Infinity, -Infinity.
 * jansson cannot hold a non-finite number, so in a tree they are the strings "NaN", "Infinity", "-Infinity" (trl_json_real makes
 * them); trl_json_put writes exactly these three strings bare, and trl_json_parse turns the bare words into them.
 */
#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

#include "base/err.h"
#include "base/str.h"

enum { TRL_JSON_MAX_DEPTH = 64 }; /* deeper trees are written as null */

/* Append `v`. indent 0: one line, "key": value, separators ", " and ": "; else as json.dumps(indent=...). */
void trl_json_put(struct trl_str *s, const json_t *v, int indent, bool sort_keys);
/* A number node for any double. NULL: out of memory. */
json_t *trl_json_real(double v);
/* The double of a real, an integer or one of the three strings; false for anything else. */
bool trl_json_number(const json_t *v, double *ret);
/* Parse text in which NaN, Infinity and -Infinity may stand where a value may; integers of more than 64 bits become reals.
 * `what` names it in errors. */
int trl_json_parse(const char *text, size_t len, const char *what, json_t **ret, struct trl_err *err);

#endif
