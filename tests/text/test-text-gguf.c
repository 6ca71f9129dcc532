/* SPDX-License-Identifier: Apache-2.0 */
/* The GGUF container: values of every type, the tensor table, and everything a broken file can lie
 * about. */
#include "../trl-test.h"

#include "base/alloc.h"
#include "base/gguf.h"

/* ---- a small writer ---- */

struct buf {
    uint8_t data[4096];
    size_t len;
};

static void put(struct buf *b, const void *p, size_t n)
{
    assert_true(b->len + n <= sizeof(b->data));
    memcpy(b->data + b->len, p, n);
    b->len += n;
}

static void put_uint(struct buf *b, uint64_t v, int n)
{
    for (int i = 0; i < n; i++) {
        uint8_t byte = (uint8_t)(v >> (8 * i));
        put(b, &byte, 1);
    }
}

static void put_str(struct buf *b, const char *s)
{
    put_uint(b, strlen(s), 8);
    put(b, s, strlen(s));
}

static void put_head(struct buf *b, uint32_t version, uint64_t tensors, uint64_t pairs)
{
    put(b, "GGUF", 4);
    put_uint(b, version, 4);
    put_uint(b, tensors, 8);
    put_uint(b, pairs, 8);
}

static void put_key(struct buf *b, const char *key, uint32_t type)
{
    put_str(b, key);
    put_uint(b, type, 4);
}

static void put_tensor(
    struct buf *b, const char *name, uint32_t type, uint64_t d0, uint64_t d1, uint64_t offset)
{
    put_str(b, name);
    put_uint(b, 2, 4);
    put_uint(b, d0, 8);
    put_uint(b, d1, 8);
    put_uint(b, type, 4);
    put_uint(b, offset, 8);
}

static void put_pad(struct buf *b, size_t alignment)
{
    while (b->len % alignment)
        put_uint(b, 0, 1);
}

/* Open a copy of exactly b->len bytes, so that a read behind the end is seen by the sanitizer. */
static int open_buf(const struct buf *b, struct trl_gguf **g, uint8_t **copy, struct trl_err *err)
{
    *copy = trl_malloc(b->len);
    memcpy(*copy, b->data, b->len);
    return trl_gguf_open_mem(g, *copy, b->len, "test.gguf", err);
}

static void write_sample(struct buf *b)
{
    float f = 1e-5f;
    double d = -2.5;
    put_head(b, 3, 2, 9);
    put_key(b, "a.u8", TRL_GGUF_U8), put_uint(b, 200, 1);
    put_key(b, "a.i16", TRL_GGUF_I16), put_uint(b, 0xFFFE, 2);
    put_key(b, "a.u64", TRL_GGUF_U64), put_uint(b, UINT64_MAX, 8);
    put_key(b, "a.f32", TRL_GGUF_F32), put(b, &f, 4);
    put_key(b, "a.f64", TRL_GGUF_F64), put(b, &d, 8);
    put_key(b, "a.yes", TRL_GGUF_BOOL), put_uint(b, 1, 1);
    put_key(b, "a.name", TRL_GGUF_STRING), put_str(b, "tiny");
    put_key(b, "a.words", TRL_GGUF_ARRAY), put_uint(b, TRL_GGUF_STRING, 4), put_uint(b, 3, 8);
    put_str(b, "x"), put_str(b, ""), put_str(b, "yz");
    put_key(b, "a.nums", TRL_GGUF_ARRAY), put_uint(b, TRL_GGUF_I32, 4), put_uint(b, 2, 8);
    put_uint(b, 7, 4), put_uint(b, 0xFFFFFFFF, 4);
    put_tensor(b, "w", TRL_GGML_F32, 4, 2, 0);
    put_tensor(b, "q", TRL_GGML_Q8_0, 32, 2, 32);
    put_pad(b, 32);
    for (int i = 0; i < 32 + 68; i++)
        put_uint(b, (uint64_t)i, 1);
}

static void test_values(void **state)
{
    struct buf b = {.len = 0};
    struct trl_gguf *g;
    struct trl_err err = {0};
    uint8_t *copy;
    (void)state;
    write_sample(&b);
    assert_trl_ok(open_buf(&b, &g, &copy, &err), &err);
    assert_int_equal(trl_gguf_n_keys(g), 9);

    int64_t i = -1;
    double d = 0;
    bool yes = false;
    const char *s = NULL;
    size_t n = 0;
    assert_int_equal(trl_gguf_get_int(g, "a.u8", &i, &err), 0);
    assert_int_equal(i, 200);
    assert_int_equal(trl_gguf_get_int(g, "a.i16", &i, &err), 0);
    assert_int_equal(i, -2);
    assert_int_equal(trl_gguf_get_int(g, "absent", &i, &err), 0);
    assert_int_equal(i, -2);
    assert_int_equal(trl_gguf_get_int(g, "a.u64", &i, &err), TRL_E_DATA); /* above int64 */
    assert_non_null(strstr(err.text, "a.u64"));
    assert_int_equal(trl_gguf_get_int(g, "a.name", &i, &err), TRL_E_DATA);
    assert_int_equal(trl_gguf_get_float(g, "a.f32", &d, &err), 0);
    assert_float_equal(d, 1e-5, 1e-11);
    assert_int_equal(trl_gguf_get_float(g, "a.f64", &d, &err), 0);
    assert_float_equal(d, -2.5, 0);
    assert_int_equal(trl_gguf_get_bool(g, "a.yes", &yes, &err), 0);
    assert_true(yes);
    assert_int_equal(trl_gguf_get_str(g, "a.name", &s, &n, &err), 0);
    assert_int_equal(n, 4);
    assert_memory_equal(s, "tiny", 4);

    struct trl_gguf_array a;
    assert_int_equal(trl_gguf_get_strings(g, "a.words", &a, &err), 0);
    assert_int_equal(a.left, 3);
    assert_true(trl_gguf_array_next_str(&a, &s, &n) && n == 1 && *s == 'x');
    assert_true(trl_gguf_array_next_str(&a, &s, &n) && n == 0);
    assert_true(trl_gguf_array_next_str(&a, &s, &n) && n == 2 && s[1] == 'z');
    assert_false(trl_gguf_array_next_str(&a, &s, &n));
    assert_int_equal(trl_gguf_get_numbers(g, "a.nums", &a, &err), 0);
    assert_true(trl_gguf_array_next_num(&a, &d) && d == 7);
    assert_true(trl_gguf_array_next_num(&a, &d) && d == -1);
    assert_false(trl_gguf_array_next_num(&a, &d));
    assert_int_equal(trl_gguf_get_numbers(g, "a.words", &a, &err), TRL_E_DATA);

    const struct trl_gguf_tensor *t = trl_gguf_find_tensor(g, "q");
    assert_non_null(t);
    assert_ptr_equal(t, trl_gguf_tensor(g, 1));
    assert_int_equal(t->n_bytes, 68);
    assert_int_equal(t->data[0], 32);
    assert_int_equal(trl_gguf_find_tensor(g, "w")->n_elems, 8);
    assert_null(trl_gguf_find_tensor(g, "nothing"));
    trl_gguf_close(g);
    trl_free(copy);
}

/* Cut at every length and flip every byte: an error or a reader that works, never a bad access. */
static void test_every_cut_and_flip(void **state)
{
    struct buf b = {.len = 0};
    struct trl_gguf *g;
    uint8_t *copy;
    (void)state;
    write_sample(&b);
    size_t full = b.len;
    for (size_t len = 0; len < full; len++) {
        struct trl_err err = {0};
        b.len = len;
        assert_true(open_buf(&b, &g, &copy, &err) < 0);
        assert_true(err.text[0]);
        trl_free(copy);
    }
    b.len = full;
    for (size_t i = 0; i < full; i++) {
        for (int bit = 0; bit < 8; bit++) {
            struct trl_err err = {0};
            struct trl_gguf_array a;
            const char *s;
            size_t n;
            b.data[i] ^= (uint8_t)(1 << bit);
            if (open_buf(&b, &g, &copy, &err) == 0) {
                if (trl_gguf_get_strings(g, "a.words", &a, &err) == 0)
                    while (trl_gguf_array_next_str(&a, &s, &n))
                        if (n)
                            assert_true((uint8_t *)s >= copy && (uint8_t *)s + n <= copy + full);
                trl_gguf_close(g);
            }
            trl_free(copy);
            b.data[i] ^= (uint8_t)(1 << bit);
        }
    }
}

static void expect_error(const struct buf *b, int code, const char *part)
{
    struct trl_err err = {0};
    struct trl_gguf *g;
    uint8_t *copy;
    assert_int_equal(open_buf(b, &g, &copy, &err), code);
    if (!strstr(err.text, part))
        fail_msg("'%s' does not mention '%s'", err.text, part);
    trl_free(copy);
}

static void test_lies(void **state)
{
    struct buf b;
    (void)state;
    b.len = 0, put_head(&b, 1, 0, 0);
    expect_error(&b, TRL_E_UNSUPPORTED, "version 1");
    b.len = 0, put_head(&b, 0x03000000, 0, 0);
    expect_error(&b, TRL_E_UNSUPPORTED, "big-endian");
    b.len = 0, put_head(&b, 3, UINT64_MAX, 0);
    expect_error(&b, TRL_E_DATA, "more than the file can hold");
    b.len = 0, put_head(&b, 3, 0, UINT64_MAX / 2);
    expect_error(&b, TRL_E_DATA, "more than the file can hold");

    b.len = 0, put_head(&b, 3, 0, 1);
    put_key(&b, "k", TRL_GGUF_ARRAY), put_uint(&b, TRL_GGUF_U32, 4),
        put_uint(&b, UINT64_MAX / 4 + 2, 8);
    expect_error(&b, TRL_E_DATA, "ends inside k");
    b.len = 0, put_head(&b, 3, 0, 1);
    put_key(&b, "k", TRL_GGUF_ARRAY);
    for (int i = 0; i < 8; i++)
        put_uint(&b, TRL_GGUF_ARRAY, 4), put_uint(&b, 1, 8);
    expect_error(&b, TRL_E_DATA, "nested");
    b.len = 0, put_head(&b, 3, 0, 2);
    put_key(&b, "k", TRL_GGUF_U8), put_uint(&b, 1, 1);
    put_key(&b, "k", TRL_GGUF_U8), put_uint(&b, 1, 1);
    put_uint(&b, 0, 8);
    expect_error(&b, TRL_E_DATA, "twice");

    b.len = 0, put_head(&b, 3, 1, 0);
    put_tensor(&b, "w", TRL_GGML_F32, UINT64_MAX / 2, 4, 0);
    expect_error(&b, TRL_E_DATA, "larger than any file");
    b.len = 0, put_head(&b, 3, 1, 0);
    put_tensor(&b, "w", TRL_GGML_F32, 4, 4, 0);
    expect_error(&b, TRL_E_DATA, "needs 64 bytes");
    b.len = 0, put_head(&b, 3, 1, 0);
    put_tensor(&b, "w", TRL_GGML_Q4_0, 33, 1, 0);
    expect_error(&b, TRL_E_DATA, "not a multiple of 32");
    b.len = 0, put_head(&b, 3, 1, 0);
    put_tensor(&b, "w", TRL_GGML_F32, 1, 1, 3);
    expect_error(&b, TRL_E_DATA, "not a multiple of");
    b.len = 0, put_head(&b, 3, 1, 0);
    put_tensor(&b, "w", TRL_GGML_F32, 1, 1, UINT64_MAX - 31);
    expect_error(&b, TRL_E_DATA, "behind the end");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_values),
        cmocka_unit_test(test_every_cut_and_flip),
        cmocka_unit_test(test_lies),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
