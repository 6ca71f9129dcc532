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

#define TRL_TEST_MAIN(tests)                                                                       \
    int main(void)                                                                                 \
    {                                                                                              \
        cmocka_set_message_output(CM_OUTPUT_TAP);                                                  \
        return cmocka_run_group_tests(tests, NULL, NULL);                                          \
    }

#endif
