/* SPDX-License-Identifier: Apache-2.0 */
#include "rows-helpers.h"

#include "data/sampler.h"

static struct trl_sampler *sampler_of(const struct trl_dataset *d, struct trl_sampler_options o)
{
    struct trl_sampler *s = NULL;
    struct trl_err err = {0};
    assert_trl_ok(trl_sampler_new(&s, d, &o, &err), &err);
    return s;
}

/* Every batch of two epochs as the real data loader made them. */
static void test_data_order(void **state)
{
    (void)state;
    char *text;
    size_t len, at = 0;
    struct trl_err err = {0};
    assert_trl_ok(trl_file_read(trl_test_data("golden/data-order.jsonl"), 1 << 24, &text, &len, &err), &err);
    int cases = 0;
    for (json_t *c; (c = next_json(text, len, &at)) != NULL; json_decref(c), cases++) {
        struct trl_dataset *d = dataset_of(json_integer_value(json_object_get(c, "rows")), 5);
        json_t *seed = json_object_get(c, "data_seed");
        if (json_is_null(seed))
            seed = json_object_get(c, "seed");
        int64_t batch = json_integer_value(json_object_get(c, "batch"));
        struct trl_sampler *s = sampler_of(d, (struct trl_sampler_options){
            .seed = (uint64_t)json_integer_value(seed), .batch_size = batch, .world = 1});
        int64_t *rows = trl_malloc_array((size_t)batch, sizeof(*rows)), n;
        size_t e, k, i;
        json_t *epoch, *b, *v;
        json_array_foreach (json_object_get(c, "epochs"), e, epoch) {
            assert_int_equal(trl_sampler_batches(s), json_array_size(epoch));
            json_array_foreach (epoch, k, b) {
                assert_trl_ok(trl_sampler_get(s, (int64_t)e, (int64_t)k, 0, rows, &n, &err), &err);
                assert_int_equal(n, json_array_size(b));
                json_array_foreach (b, i, v)
                    assert_int_equal(rows[i], json_integer_value(v));
            }
        }
        trl_free(rows);
        trl_sampler_free(s);
        trl_dataset_free(d);
    }
    assert_true(cases > 5);
    trl_free(text);
}

/* accelerate's BatchSamplerShard(BatchSampler(range(n), 4, False), W, r): values from the real class. */
static void test_shards(void **state)
{
    (void)state;
    static const struct {
        int64_t n;
        int world;
        bool drop;
        int64_t steps;
        int64_t last[3][4]; /* the last batch of each rank */
    } cases[] = {
        {10, 2, false, 2, {{8, 9, 0, 1}, {2, 3, 4, 5}}},
        {12, 2, false, 2, {{8, 9, 10, 11}, {0, 1, 2, 3}}},
        {9, 3, false, 1, {{0, 1, 2, 3}, {4, 5, 6, 7}, {8, 0, 1, 2}}},
        {3, 2, false, 1, {{0, 1, 2, 0}, {1, 2, 0, 1}}},
        {15, 2, true, 1, {{0, 1, 2, 3}, {4, 5, 6, 7}}},
        {13, 3, false, 2, {{12, 0, 1, 2}, {3, 4, 5, 6}, {7, 8, 9, 10}}},
    };
    struct trl_err err = {0};
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct trl_dataset *d = dataset_of(cases[i].n, 3);
        struct trl_sampler *s = sampler_of(d, (struct trl_sampler_options){.kind = TRL_SAMPLING_SEQUENTIAL,
            .batch_size = 4, .world = cases[i].world, .drop_last = cases[i].drop});
        assert_int_equal(trl_sampler_batches(s), cases[i].steps);
        for (int r = 0; r < cases[i].world; r++) {
            int64_t rows[4], n;
            assert_trl_ok(trl_sampler_get(s, 0, cases[i].steps - 1, r, rows, &n, &err), &err);
            assert_int_equal(n, 4);
            for (int k = 0; k < 4; k++)
                assert_int_equal(rows[k], cases[i].last[r][k]);
        }
        trl_sampler_free(s);
        trl_dataset_free(d);
    }
}

/* LengthGroupedSampler(8, lengths = 1 + i % 5, 40 rows) after torch.manual_seed(7) and one data loader start per epoch */
static void test_group_by_length(void **state)
{
    (void)state;
    static const int64_t want[2][8] = {{9, 39, 34, 18, 28, 2, 1, 30}, {39, 28, 18, 2, 27, 37, 7, 6}};
    struct trl_err err = {0};
    struct trl_dataset *d = dataset_of(40, 5);
    struct trl_sampler *s = sampler_of(d, (struct trl_sampler_options){
        .kind = TRL_SAMPLING_GROUP_BY_LENGTH, .seed = 7, .batch_size = 8, .world = 1, .group_window = 8});
    for (int e = 1; e >= 0; e--) {
        int64_t rows[8], n;
        assert_trl_ok(trl_sampler_get(s, e, 0, 0, rows, &n, &err), &err);
        for (int k = 0; k < 8; k++)
            assert_int_equal(rows[k], want[e][k]);
    }
    trl_sampler_free(s);
    trl_dataset_free(d);
}

static void test_bad_options(void **state)
{
    (void)state;
    struct trl_err err = {0};
    struct trl_sampler *s = NULL;
    struct trl_dataset *d = dataset_of(5, 2), *none = dataset_of(0, 1);
    struct trl_sampler_options o = {.batch_size = 0, .world = 1};
    assert_int_equal(trl_sampler_new(&s, d, &o, &err), TRL_E_RANGE);
    o = (struct trl_sampler_options){.batch_size = 8, .world = 1, .drop_last = true};
    assert_int_equal(trl_sampler_new(&s, d, &o, &err), TRL_E_DATA);
    assert_non_null(strstr(err.text, "5 rows"));
    assert_int_equal(trl_sampler_new(&s, none, &(struct trl_sampler_options){.batch_size = 1, .world = 1}, &err), TRL_E_DATA);
    o = (struct trl_sampler_options){.batch_size = 2, .world = 1};
    assert_trl_ok(trl_sampler_new(&s, d, &o, &err), &err);
    int64_t rows[2], n;
    assert_int_equal(trl_sampler_get(s, 0, 3, 0, rows, &n, &err), TRL_E_RANGE);
    trl_sampler_free(s);
    trl_dataset_free(d);
    trl_dataset_free(none);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_data_order),
        cmocka_unit_test(test_shards),
        cmocka_unit_test(test_group_by_length),
        cmocka_unit_test(test_bad_options),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
