/* SPDX-License-Identifier: Apache-2.0 */
#include "../trl-test.h"
#include "base/rng.h"

static void test_mt_permutation(void **state)
{
    (void)state;
    static const struct {
        uint64_t seed;
        int n;
        int64_t want[16];
    } cases[] = {
        {42, 10, {2, 6, 1, 8, 4, 5, 0, 9, 3, 7}},
        {43, 10, {8, 4, 9, 0, 5, 1, 6, 7, 2, 3}},
        {42, 16, {6, 3, 0, 7, 10, 15, 2, 12, 14, 9, 8, 5, 4, 13, 11, 1}},
        {0, 8, {4, 0, 7, 3, 2, 5, 1, 6}},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct trl_mt g;
        int64_t got[16];
        trl_mt_seed(&g, cases[i].seed);
        trl_mt_permutation(&g, got, cases[i].n);
        for (int k = 0; k < cases[i].n; k++)
            assert_int_equal(got[k], cases[i].want[k]);
    }
    struct trl_mt g;
    trl_mt_seed(&g, 42);
    assert_int_equal(trl_mt_next(&g), 1608637542u);
}

static void test_numpy_permutation(void **state)
{
    (void)state;
    /* numpy.random.default_rng(42).permutation(10), default_rng(0).permutation(7) */
    static const int64_t want[10] = {5, 6, 0, 7, 3, 2, 4, 9, 1, 8};
    struct trl_pcg64 g;
    int64_t got[10];
    trl_pcg64_seed(&g, 42);
    trl_pcg64_permutation(&g, got, 10);
    for (int k = 0; k < 10; k++)
        assert_int_equal(got[k], want[k]);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_mt_permutation),
    cmocka_unit_test(test_numpy_permutation),
};
TRL_TEST_MAIN(tests)
