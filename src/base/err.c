/* SPDX-License-Identifier: Apache-2.0 */
#include "base/err.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Cut at a character boundary: a message in a log or a JSON file must stay valid UTF-8. */
static void cut_text(char *text, size_t size)
{
    size_t n = size - 4;
    while (n > 0 && ((unsigned char)text[n] & 0xC0) == 0x80)
        n--;
    memcpy(text + n, "...", 4);
}

int trl_vfail(struct trl_err *err, int code, const char *fmt, va_list ap)
{
    if (!err)
        return code;
    err->code = code;
    int n = vsnprintf(err->text, sizeof(err->text), fmt, ap);
    if (n >= (int)sizeof(err->text))
        cut_text(err->text, sizeof(err->text));
    return code;
}

int trl_fail(struct trl_err *err, int code, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    trl_vfail(err, code, fmt, ap);
    va_end(ap);
    return code;
}

int trl_fail_nomem(struct trl_err *err, size_t size, const char *what)
{
    return trl_fail(err, TRL_E_NOMEM, "out of memory: %zu bytes for %s", size, what);
}

int trl_fail_errno(struct trl_err *err, const char *what, const char *path)
{
    int saved = errno;
    return trl_fail(err, saved == ENOENT ? TRL_E_NOENT : TRL_E_IO, "%s %s: %s", what, path,
        strerror(saved));
}

int trl_err_prefix(struct trl_err *err, int code, const char *fmt, ...)
{
    if (!err)
        return code;
    char old[sizeof(err->text)];
    memcpy(old, err->text, sizeof(old));
    old[sizeof(old) - 1] = '\0';
    va_list ap;
    va_start(ap, fmt);
    int n = vsnprintf(err->text, sizeof(err->text), fmt, ap);
    va_end(ap);
    size_t used = n < 0 ? 0 : (size_t)n < sizeof(err->text) ? (size_t)n : sizeof(err->text) - 1;
    int m = snprintf(err->text + used, sizeof(err->text) - used, ": %s", old);
    if (m >= 0 && used + (size_t)m >= sizeof(err->text))
        cut_text(err->text, sizeof(err->text));
    return err->code ? err->code : code;
}

const char *trl_status_name(int code)
{
    switch (code) {
#define X(name, value, exit_code, text)                                                            \
    case TRL_E_##name:                                                                             \
        return text;
        TRL_ERRORS(X)
#undef X
    case TRL_OK:
        return "ok";
    default:
        return "unknown status";
    }
}

int trl_status_exit(int code)
{
    switch (code) {
#define X(name, value, exit_code, text)                                                            \
    case TRL_E_##name:                                                                             \
        return exit_code;
        TRL_ERRORS(X)
#undef X
    case TRL_OK:
        return 0;
    default:
        return 1;
    }
}

void trl__bug(const char *file, int line, const char *fmt, ...)
{
    va_list ap;
    fprintf(stderr, "trl: bug at %s:%d: ", file, line);
    va_start(ap, fmt);
    vfprintf(stderr, fmt, ap);
    va_end(ap);
    fputc('\n', stderr);
    abort();
}
