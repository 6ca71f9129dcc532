/* SPDX-License-Identifier: Apache-2.0 */
#include "../trl-test.h"
#include "base/str.h"
#include "tensor/dtype.h"

static void test_double(void **state)
{
    (void)state;
    static const struct {
        double v;
        const char *want;
    } cases[] = {{1, "1.0"}, {0.1, "0.1"}, {1e-5, "1e-05"}, {1e16, "1e+16"}, {0.0001, "0.0001"}, {2e-5, "2e-05"},
        {123456789.25, "123456789.25"}, {-0.0, "-0.0"}, {0.3333333333333333, "0.3333333333333333"}, {1e15, "1000000000000000.0"}};
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct trl_str s = {0};
        trl_str_put_double(&s, cases[i].v);
        assert_string_equal(trl_str_get(&s), cases[i].want);
        trl_str_release(&s);
    }
}

static void test_utf8(void **state)
{
    (void)state;
    assert_int_equal(trl_utf8_check("a\xc3\xa9\xf0\x9f\x98\x80", 7), 7);
    assert_int_equal(trl_utf8_check("a\xc0\x80", 3), 1);
    assert_int_equal(trl_utf8_check("ab\xed\xa0\x80", 5), 2);
    assert_int_equal(trl_utf8_check("ab\xf4\x90\x80\x80", 6), 2);
    assert_int_equal(trl_utf8_check("ab\xe2\x82", 4), 2);
}

static void test_err_cut(void **state)
{
    (void)state;
    struct trl_err e;
    char big[4000];
    memset(big, 'x', sizeof(big));
    big[sizeof(big) - 1] = 0;
    assert_int_equal(trl_fail(&e, TRL_E_DATA, "%s", big), TRL_E_DATA);
    assert_int_equal(strlen(e.text), sizeof(e.text) - 1);
    trl_err_prefix(&e, TRL_E_DATA, "file %d", 7);
    assert_true(strncmp(e.text, "file 7: xxx", 11) == 0);
    assert_int_equal(trl_status_exit(TRL_E_USAGE), 2);
    assert_int_equal(trl_status_exit(TRL_E_STOPPED), 3);
}

static void test_f16_all(void **state)
{
    (void)state;
    for (unsigned h = 0; h < 65536; h++) {
        float f = trl_f16_to_f32((uint16_t)h);
        if (isnan(f))
            assert_true(isnan(trl_f16_to_f32(trl_f32_to_f16(f))));
        else
            assert_int_equal(trl_f32_to_f16(f), h);
    }
    assert_int_equal(trl_f32_to_f16(65520.0f), 0x7c00);
    assert_int_equal(trl_f32_to_f16(65519.0f), 0x7bff);
    assert_int_equal(trl_f32_to_f16(1.0f + 0x1p-11f), 0x3c00);
    assert_int_equal(trl_f32_to_bf16(1.00390625f), 0x3f80);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_double),
    cmocka_unit_test(test_utf8),
    cmocka_unit_test(test_err_cut),
    cmocka_unit_test(test_f16_all),
};
TRL_TEST_MAIN(tests)
