/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TRL_TEST_H
#define TRL_TEST_H
/* cmocka with TAP output, a skip that states its reason, and paths of test data. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/err.h"

#define trl_test_skip(...)                                                                         \
    do {                                                                                           \
        fprintf(stderr, "skip: " __VA_ARGS__);                                                     \
        fputc('\n', stderr);                                                                       \
        skip();                                                                                    \
    } while (0)

/* fail with the library's own message */
#define assert_trl_ok(call, err)                                                                   \
    do {                                                                                           \
        int trl_rc_ = (call);                                                                      \
        if (trl_rc_ != 0)                                                                          \
            fail_msg("%s: %d: %s", #call, trl_rc_, (err)->text);                                   \
    } while (0)

/* path below tests/data; a small ring of static buffers */
static inline const char *trl_test_data(const char *rel)
{
    static char buf[4][1024];
    static int next;
    const char *root = getenv("TRL_TEST_DATA");
    char *p = buf[next++ % 4];
    snprintf(p, sizeof(buf[0]), "%s/%s", root ? root : "tests/data", rel);
    return p;
}

/* cmocka writes "not ok 3 # SKIP name", which by the TAP rules is a failure: write "ok 3 # SKIP name".
 * stdout is such a stream then: tests redirect descriptor 1 (dup2), not the stream (freopen). */
static inline ssize_t trl_test_write(void *cookie, const char *buf, size_t len)
{
    (void)cookie;
    const char *end = memchr(buf, '\n', len);
    size_t line = end ? (size_t)(end - buf) : len, cut = 0;
    if (line > 7 && memcmp(buf, "not ok ", 7) == 0 && memmem(buf, line, "# SKIP", 6))
        cut = 4;
    for (size_t at = cut; at < len;) {
        ssize_t n = write(STDOUT_FILENO, buf + at, len - at);
        if (n <= 0)
            return 0;
        at += (size_t)n;
    }
    return (ssize_t)len;
}
static inline void trl_test_output(void)
{
    FILE *f = fopencookie(NULL, "w", (cookie_io_functions_t){.write = trl_test_write});
    if (f) {
        setvbuf(f, NULL, _IOLBF, BUFSIZ);
        stdout = f;
    }
    cmocka_set_message_output(CM_OUTPUT_TAP);
}
/* for tests that have a main of their own */
#define cmocka_set_message_output(format) trl_test_output()

#define TRL_TEST_MAIN(tests)                                                                       \
    int main(void)                                                                                 \
    {                                                                                              \
        trl_test_output();                                                                         \
        return cmocka_run_group_tests(tests, NULL, NULL);                                          \
    }

#endif
