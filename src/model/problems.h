/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TRL_MODEL_PROBLEMS_H
#define TRL_MODEL_PROBLEMS_H
/*
 * A list of complaints about one input, so that a user learns all of them at once. A zeroed struct
 * is empty.
 */
#include "base/str.h"

enum { TRL_PROBLEMS_SHOWN = 24 };
struct trl_problems {
    struct trl_str text; /* "a; b; c" */
    int n, code; /* code: of the first problem */
};
void trl__problem(struct trl_problems *p, int code, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
/* 0 when there is none; otherwise one error "`what`: a; b; ..." Releases the list. */
int trl__problems_end(struct trl_problems *p, struct trl_err *err, const char *what);

#endif
