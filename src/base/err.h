/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TRL_BASE_ERR_H
#define TRL_BASE_ERR_H
/*
 * Errors. A fallible function returns 0 or a negative TRL_E_* and takes `struct trl_err *err` last.
 * The one that detects the problem writes the text: what is wrong, which value, where it came from,
 * what is allowed. Callers may put context in front (trl_err_prefix), never replace the text.
 * `err` may be NULL (the caller wants the status only). Library code never logs errors, never exits.
 */
#include <stdarg.h>
#include <stddef.h>

/* X(name, value, exit code of a program that ends with it, short name) */
#define TRL_ERRORS(X)                                                                              \
    X(FAIL, 1, 1, "failed")                                                                        \
    X(NOMEM, 2, 1, "out of memory")                                                                \
    X(IO, 3, 1, "input/output error")                                                              \
    X(NOENT, 4, 2, "not found")                                                                    \
    X(USAGE, 5, 2, "usage error")                                                                  \
    X(RANGE, 6, 2, "value out of range")                                                           \
    X(PARSE, 7, 2, "malformed input")                                                              \
    X(DATA, 8, 2, "bad data")                                                                      \
    X(UNSUPPORTED, 9, 2, "not supported")                                                          \
    X(NUMERIC, 10, 1, "numeric failure")                                                           \
    X(COMM, 11, 1, "communication failure")                                                        \
    X(STOPPED, 12, 3, "stopped with a checkpoint")

enum trl_status {
    TRL_OK = 0,
#define X(name, value, exit_code, text) TRL_E_##name = -(value),
    TRL_ERRORS(X)
#undef X
};

struct trl_err {
    int code; /* 0 or TRL_E_* */
    char text[2048];
};

/* Write the text, return `code`: `return trl_fail(err, TRL_E_RANGE, "...")`. Long texts are cut at a whole
 * UTF-8 character and end in "...". */
int trl_fail(struct trl_err *err, int code, const char *fmt, ...)
    __attribute__((format(printf, 3, 4), cold));
int trl_vfail(struct trl_err *err, int code, const char *fmt, va_list ap)
    __attribute__((format(printf, 3, 0), cold));
/* Out of memory while asking for `size` bytes for `what`. Returns TRL_E_NOMEM. */
int trl_fail_nomem(struct trl_err *err, size_t size, const char *what) __attribute__((cold));
/* "`what` `path`: strerror(errno)". Returns TRL_E_NOENT for ENOENT, else TRL_E_IO. */
int trl_fail_errno(struct trl_err *err, const char *what, const char *path) __attribute__((cold));
/* Put "prefix: " in front of the text; returns err's code (or `code` when err is NULL). */
int trl_err_prefix(struct trl_err *err, int code, const char *fmt, ...)
    __attribute__((format(printf, 3, 4), cold));

const char *trl_status_name(int code); /* "out of memory"; never NULL */
int trl_status_exit(int code);         /* process exit code: 0, 1, 2 or 3 */

/* A state that only a bug in this program can reach: prints where and aborts. */
#define trl_bug(...) trl__bug(__FILE__, __LINE__, __VA_ARGS__)
void trl__bug(const char *file, int line, const char *fmt, ...)
    __attribute__((format(printf, 3, 4), noreturn, cold));

#endif
