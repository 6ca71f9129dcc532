/* SPDX-License-Identifier: Apache-2.0 */
#include "../trl-test.h"
#include "base/alloc.h"
#include "base/threads.h"

static void mark(void *ctx, int64_t begin, int64_t end, int thread)
{
    (void)thread;
    unsigned char *seen = ctx;
    for (int64_t i = begin; i < end; i++)
        seen[i]++;
}

static void test_cover(void **state)
{
    (void)state;
    struct trl_err err;
    static unsigned char seen[1000];
    for (int n = 1; n <= 5; n++) {
        struct trl_pool *p = NULL;
        assert_trl_ok(trl_pool_new(&p, n, NULL, NULL, &err), &err);
        uint64_t before = trl_alloc_calls();
        for (int round = 0; round < 200; round++)
            for (int64_t len = 0; len < 40; len += 7) {
                memset(seen, 0, sizeof(seen));
                trl_parallel_for(p, len, 1 + round % 9, mark, seen);
                for (int64_t i = 0; i < 1000; i++)
                    assert_int_equal(seen[i], i < len ? 1 : 0);
            }
        assert_int_equal(trl_alloc_calls(), before);
        trl_pool_free(p);
    }
}

static const struct CMUnitTest tests[] = {cmocka_unit_test(test_cover)};
TRL_TEST_MAIN(tests)
