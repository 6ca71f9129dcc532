/* SPDX-License-Identifier: Apache-2.0 */
/* safetensors both ways, hostile headers, GGUF blocks. */
#include "model-test.h"

#include <jansson.h>
#include <unistd.h>

#include "base/alloc.h"
#include "model/gguf-dequant.h"

/* A file image: u64 length of `header`, header, `data` bytes of 0. */
static uint8_t *image(const char *header, size_t data, size_t *ret_len)
{
    size_t n = strlen(header);
    *ret_len = 8 + n + data;
    uint8_t *p = calloc(1, *ret_len + 1);
    for (int i = 0; i < 8; i++)
        p[i] = (uint8_t)(n >> (8 * i));
    memcpy(p + 8, header, n);
    return p;
}

static const struct {
    const char *header;
    size_t data;
    const char *text; /* part of the message; NULL: fine */
} cases[] = {
    {"{}", 0, NULL},
    {"{\"__metadata__\":{\"format\":\"pt\"}}   ", 0, NULL},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}}", 8, NULL},
    {"{\"a\":{\"shape\":[],\"dtype\":\"BF16\",\"data_offsets\":[0,2]},\"b\":{\"dtype\":\"F32\","
     "\"shape\":[0,9],\"data_offsets\":"
     "[2,2]}}",
        2, NULL},
    {"[]", 0, "does not begin with {"},
    {"{\"a\":1}", 0, "no dtype"},
    {"{\"a\":{\"dtype\":\"F33\",\"shape\":[2],\"data_offsets\":[0,8]}}", 8,
        "unknown dtype \"F33\""},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}}", 9,
        "1 bytes follow the last tensor"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}}", 7, "truncated"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,4]}}", 4,
        "do not hold the 8 bytes"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[8,4]}}", 8, "do not hold"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]},\"b\":{\"dtype\":\"F32\","
     "\"shape\":[1],\"data_offsets\":[0,4]}}",
        4, "begins at byte 0, before byte 4"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]},\"b\":{\"dtype\":\"F32\","
     "\"shape\":[1],\"data_offsets\":[8,12]}}",
        12, "behind byte 4"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]},\"a\":{\"dtype\":\"F32\","
     "\"shape\":[1],\"data_offsets\":[4,8]}}",
        8, "duplicate"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[4294967296,4294967296],\"data_offsets\":[0,8]}}", 8,
        "bad shape"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[-1],\"data_offsets\":[0,8]}}", 8, "bad shape"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1.5],\"data_offsets\":[0,8]}}", 8, "bad shape"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[4611686018427387905],\"data_offsets\":[0,4]}}", 4,
        "not a number of bytes"},
    {"{\"a\":{\"dtype\":\"F4\",\"shape\":[3],\"data_offsets\":[0,2]}}", 2, "not a number of bytes"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1,1,1,1,1,1,1,1,1],\"data_offsets\":[0,4]}}", 4,
        "bad shape"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0]}}", 4, "not a pair"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,-4]}}", 4, "not a pair"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4],\"x\":1}}", 4, "4 fields"},
    {"{\"__metadata__\":{\"format\":1}}", 0, "__metadata__.format is not a string"},
    {"{\"__metadata__\":[]}", 0, "__metadata__ is not an object"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}", 4, "not valid JSON"},
    {"{\"\xff\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}", 4, "not valid JSON"},
    {"{}x", 0, "not valid JSON"},
};

static void hostile_headers(void **state)
{
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        size_t len;
        struct trl_st_file f;
        struct trl_err err = {0};
        uint8_t *p = image(cases[i].header, cases[i].data, &len);
        int rc = trl_st_open_mem(&f, p, len, "mem", &err);
        if (!cases[i].text && rc != 0)
            fail_msg("case %zu: %s", i, err.text);
        if (cases[i].text && (rc == 0 || !strstr(err.text, cases[i].text)))
            fail_msg("case %zu: %d, \"%s\" does not say \"%s\"", i, rc, err.text, cases[i].text);
        trl_st_close(&f);
        free(p);
    }
}

static void lengths(void **state)
{
    struct trl_st_file f;
    struct trl_err err = {0};
    uint8_t big[16] = {0, 0, 0, 0, 0, 0, 0, 1}, beyond[16] = {100};
    assert_int_equal(trl_st_open_mem(&f, "abc", 3, "mem", &err), TRL_E_PARSE);
    assert_int_equal(trl_st_open_mem(&f, big, 16, "mem", &err), TRL_E_PARSE);
    assert_non_null(strstr(err.text, "at most 100000000"));
    assert_int_equal(trl_st_open_mem(&f, beyond, 16, "mem", &err), TRL_E_PARSE);
    assert_non_null(strstr(err.text, "truncated"));
    assert_int_equal(trl_st_open(&f, "/nonexistent/x.safetensors", &err), TRL_E_NOENT);
    /* every prefix of a good file is refused */
    size_t len;
    uint8_t *p = image("{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}}", 8, &len);
    for (size_t n = 0; n < len; n++)
        assert_int_not_equal(trl_st_open_mem(&f, p, n, "mem", &err), 0);
    free(p);
}

static int fetch_index(void *ctx, const struct trl_st_item *t, int64_t first, int64_t n, void *dst,
    struct trl_err *err)
{
    for (int64_t i = 0; i < n; i++)
        trl_dtype_store(t->dtype, dst, (size_t)i, (float)(first + i));
    return 0;
}

/* The worked example of the format notes: 142 bytes of JSON, padded to 144; then a tensor over
 * several pieces. */
static void writer(void **state)
{
    char dir[] = "/tmp/trl-st-XXXXXX";
    assert_non_null(mkdtemp(dir));
    char *path = trl_path_join(dir, "x.safetensors"), *text;
    struct trl_err err = {0};
    struct trl_st_item items[] = {
        {.name = "a", .dtype = TRL_DTYPE_BF16, .ndim = 2, .shape = {1, 2}, .numel = 2},
        {.name = "b", .dtype = TRL_DTYPE_F32, .ndim = 1, .shape = {2}, .numel = 2},
    };
    size_t len;
    assert_trl_ok(trl_st_write(path, items, 2, fetch_index, NULL, &err), &err);
    assert_trl_ok(trl_file_read(path, 1000, &text, &len, &err), &err);
    static const char want[] =
        "{\"__metadata__\":{\"format\":\"pt\"},\"b\":{\"dtype\":\"F32\",\"shape\":[2],\"data_"
        "offsets\":[0,8]},"
        "\"a\":{\"dtype\":\"BF16\",\"shape\":[1,2],\"data_offsets\":[8,12]}}  ";
    assert_int_equal(len, 164);
    assert_memory_equal(text, "\x90\0\0\0\0\0\0\0", 8);
    assert_memory_equal(text + 8, want, 144);
    trl_free(text);
    struct trl_st_item big = {
        .name = "big", .dtype = TRL_DTYPE_F32, .ndim = 1, .shape = {2500000}, .numel = 2500000};
    assert_trl_ok(trl_st_write(path, &big, 1, fetch_index, NULL, &err), &err);
    struct trl_st_file f;
    assert_trl_ok(trl_st_open(&f, path, &err), &err);
    const float *v = (const float *)(const void *)trl_st_data(&f, &f.items[0]);
    for (int64_t i = 0; i < big.numel; i += 9973)
        assert_true(v[i] == (float)i);
    trl_st_close(&f);
    assert_int_equal(trl_st_write("/nonexistent/x", &big, 1, fetch_index, NULL, &err), TRL_E_NOENT);
    trl_free(path);
    trl_rmtree(dir, NULL);
}

/* /dev/full takes the place of a full disk: the error names it and nothing is left behind. */
static void full_disk(void **state)
{
    char dir[] = "/tmp/trl-st-XXXXXX";
    assert_non_null(mkdtemp(dir));
    struct trl_err err = {0};
    char *path = trl_path_join(dir, "x"), *tmp = trl_asprintf("%s/x.tmp-%ld", dir, (long)getpid());
    assert_int_equal(symlink("/dev/full", tmp), 0);
    struct trl_st_item big = {
        .name = "big", .dtype = TRL_DTYPE_F32, .ndim = 1, .shape = {2500}, .numel = 2500};
    assert_int_equal(trl_st_write(path, &big, 1, fetch_index, NULL, &err), TRL_E_IO);
    assert_non_null(strstr(err.text, "No space left"));
    assert_false(trl_path_exists(path));
    assert_false(trl_path_exists(tmp));
    trl_free(tmp);
    trl_free(path);
    trl_rmtree(dir, NULL);
}

static uint8_t *unhex(const char *s, size_t *ret_len)
{
    size_t n = strlen(s) / 2;
    uint8_t *p = malloc(n + 1);
    for (size_t i = 0; i < n; i++) {
        unsigned v;
        sscanf(s + 2 * i, "%2x", &v);
        p[i] = (uint8_t)v;
    }
    *ret_len = n;
    return p;
}

/* Values of the gguf package for random blocks */
static void dequant(void **state)
{
    char path[1024];
    snprintf(path, sizeof(path), "%s/tests/model/gguf-vectors.json", getenv("TRL_SOURCE_ROOT"));
    json_t *list = json_load_file(path, 0, NULL), *v;
    size_t i;
    assert_int_equal(json_array_size(list), 10);
    json_array_foreach(list, i, v)
    {
        size_t n_bytes, n;
        uint8_t *bytes = unhex(json_string_value(json_object_get(v, "bytes")), &n_bytes);
        uint8_t *values = unhex(json_string_value(json_object_get(v, "values")), &n);
        uint32_t type = (uint32_t)json_integer_value(json_object_get(v, "type"));
        float *got = malloc(n);
        n /= 4;
        assert_true(trl__gguf_can_dequant(type));
        trl__gguf_dequant(type, bytes, (int64_t)n, got);
        double rel = model_test_rel(got, (const float *)(void *)values, (int64_t)n);
        if (!(rel < 1e-6))
            fail_msg("%s is off by %g", json_string_value(json_object_get(v, "name")), rel);
        free(got);
        free(values);
        free(bytes);
    }
    json_decref(list);
    assert_false(trl__gguf_can_dequant(10));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(hostile_headers),
        cmocka_unit_test(lengths),
        cmocka_unit_test(writer),
        cmocka_unit_test(full_disk),
        cmocka_unit_test(dequant),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
