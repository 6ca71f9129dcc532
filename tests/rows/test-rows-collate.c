/* SPDX-License-Identifier: Apache-2.0 */
/* The collator's cases of TRL's own unit tests, and the shared block. */
#include "rows-helpers.h"

#include <unistd.h>

#include "data/sampler.h"

static struct trl_dataset *make(struct trl_store *s, bool flat)
{
    struct trl_dataset *d = NULL;
    struct trl_err err = {0};
    assert_trl_ok(trl_dataset_new(&d, s, NULL, 0, flat, &err), &err);
    return d;
}

static void same(const int32_t *got, const int32_t *want, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        assert_int_equal(got[i], want[i]);
}
#define SAME(got, ...) same(got, (const int32_t[]){__VA_ARGS__}, COUNT(((const int32_t[]){__VA_ARGS__})))

static void test_padded(void **state)
{
    (void)state;
    struct trl_err err = {0};
    struct trl_store s = {0};
    ADD(&s, 1, 2, 3);
    ADD(&s, 4, 5);
    struct trl_dataset *d = make(&s, false);
    struct trl_batch b = {0};
    assert_trl_ok(trl_batch_collate(&b, d, (int64_t[]){0, 1}, 2, 0, &err), &err);
    assert_int_equal(b.n, 5);
    SAME(b.ids, 1, 2, 3, 4, 5);
    SAME(b.labels, 1, 2, 3, 4, 5);
    SAME(b.positions, 0, 1, 2, 0, 1);
    SAME(b.targets, 2, 3, -100, 5, -100);
    assert_int_equal(b.padded_len, 3);
    assert_int_equal(b.n_items, 3);
    assert_int_equal(b.n_labels, 5);
    assert_int_equal(b.n_input_tokens, 5);
    assert_int_equal(b.n_docs, 2);
    assert_int_equal(b.doc_start[1], 3);
    assert_int_equal(b.row_start[2], 5);
    assert_trl_ok(trl_batch_collate(&b, d, (int64_t[]){1, 0}, 2, 4, &err), &err);
    assert_int_equal(b.padded_len, 4);
    SAME(b.ids, 4, 5, 1, 2, 3);
    int64_t tokens, docs;
    trl_batch_bound(d, 1, &tokens, &docs);
    assert_int_equal(tokens, 3);
    trl_batch_bound(d, 3, &tokens, &docs);
    assert_int_equal(tokens, 8);
    assert_int_equal(docs, 3);
    assert_int_equal(trl_batch_collate(&b, d, (int64_t[]){2}, 1, 0, &err), TRL_E_RANGE);
    trl_batch_release(&b);
    trl_dataset_free(d);
}

static void test_padding_free(void **state)
{
    (void)state;
    struct trl_err err = {0};
    struct trl_store s = {0};
    ADD(&s, 1, 2, 3);
    ADD(&s, 4, 5);
    struct trl_dataset *d = make(&s, true);
    struct trl_batch b = {0};
    assert_trl_ok(trl_batch_collate(&b, d, (int64_t[]){0, 1}, 2, 4, &err), &err);
    SAME(b.positions, 0, 1, 2, 0, 1);
    SAME(b.labels, -100, 2, 3, -100, 5);
    SAME(b.targets, 2, 3, -100, 5, -100);
    assert_int_equal(b.padded_len, 8);
    assert_int_equal(b.n_input_tokens, 8);
    assert_int_equal(b.n_items, 3);
    trl_batch_release(&b);
    trl_dataset_free(d);
}

static struct trl_dataset *packed_rows(void)
{
    struct trl_err err = {0};
    struct trl_store s = {0};
    assert_trl_ok(trl_store_add(&s, (int32_t[]){1, 2, 3, 4, 5, 6}, 6, NULL, (int32_t[]){3, 3}, 2, &err), &err);
    assert_trl_ok(trl_store_add(&s, (int32_t[]){7, 8, 9, 10, 11}, 5, NULL, (int32_t[]){4, 1}, 2, &err), &err);
    return make(&s, true);
}

static void test_packed(void **state)
{
    (void)state;
    struct trl_err err = {0};
    struct trl_dataset *d = packed_rows();
    struct trl_batch b = {0};
    assert_trl_ok(trl_batch_collate(&b, d, (int64_t[]){0, 1}, 2, 0, &err), &err);
    SAME(b.positions, 0, 1, 2, 0, 1, 2, 0, 1, 2, 3, 0);
    SAME(b.labels, -100, 2, 3, -100, 5, 6, -100, 8, 9, 10, -100);
    assert_int_equal(b.n_docs, 4);
    assert_int_equal(b.n_rows, 2);
    assert_int_equal(b.doc_start[4], 11);
    assert_int_equal(b.n_items, 7);
    int64_t tokens, docs;
    trl_batch_bound(d, 2, &tokens, &docs);
    assert_int_equal(tokens, 11);
    assert_int_equal(docs, 4);
    trl_batch_release(&b);
    trl_dataset_free(d);
}

/* A second collate of no larger a batch allocates nothing. */
static void test_no_allocation(void **state)
{
    (void)state;
    struct trl_err err = {0};
    struct trl_dataset *d = packed_rows();
    struct trl_batch b = {0};
    assert_trl_ok(trl_batch_reserve(&b, 11, 4, 2, &err), &err);
    uint64_t calls = trl_alloc_calls();
    assert_trl_ok(trl_batch_collate(&b, d, (int64_t[]){1, 0}, 2, 0, &err), &err);
    assert_trl_ok(trl_batch_collate(&b, d, (int64_t[]){1}, 1, 0, &err), &err);
    assert_int_equal(trl_alloc_calls(), calls);
    trl_batch_release(&b);
    trl_dataset_free(d);
}

static void flip(const char *path, long at)
{
    FILE *f = fopen(path, "r+b");
    assert_non_null(f);
    fseek(f, at, SEEK_SET);
    int c = fgetc(f);
    fseek(f, at, SEEK_SET);
    fputc(c ^ 0x55, f);
    fclose(f);
}

static void test_shared_block(void **state)
{
    (void)state;
    struct trl_err err = {0};
    struct trl_store s = {0};
    assert_trl_ok(trl_store_add(&s, (int32_t[]){1, 2, 3}, 3, (int32_t[]){-100, 2, -100}, (int32_t[]){2, 1}, 2, &err), &err);
    ADD(&s, 4, 5);
    ADD(&s, 6);
    struct trl_dataset *d = NULL, *m = NULL;
    int64_t order[] = {2, 0};
    assert_trl_ok(trl_dataset_new(&d, &s, order, 2, true, &err), &err);
    assert_int_equal(trl_dataset_n_rows(d), 2);
    assert_int_equal(trl_dataset_n_tokens(d), 4);
    char path[] = "/tmp/trl-test-block-XXXXXX";
    close(mkstemp(path));
    assert_trl_ok(trl_dataset_export(d, path, &err), &err);
    assert_trl_ok(trl_dataset_import(&m, path, &err), &err);
    assert_true(trl_dataset_is_flat(m));
    assert_int_equal(trl_dataset_max_len(m), 3);
    for (int64_t i = 0; i < 2; i++) {
        struct trl_row a, b;
        int32_t la[3], lb[3];
        trl_dataset_get_row(d, i, &a);
        trl_dataset_get_row(m, i, &b);
        assert_int_equal(a.len, b.len);
        assert_int_equal(a.n_docs, b.n_docs);
        assert_memory_equal(a.ids, b.ids, (size_t)a.len * 4);
        trl_dataset_copy_labels(d, i, la);
        trl_dataset_copy_labels(m, i, lb);
        assert_memory_equal(la, lb, (size_t)a.len * 4);
    }
    trl_dataset_free(m);
    /* damage: magic, row count, the first row's begin, a cut file */
    long places[] = {0, 16, 70};
    for (size_t i = 0; i < 3; i++) {
        flip(path, places[i]);
        assert_int_equal(trl_dataset_import(&m, path, &err), TRL_E_PARSE);
        assert_non_null(strstr(err.text, path));
        flip(path, places[i]);
    }
    assert_int_equal(truncate(path, 200), 0);
    assert_int_equal(trl_dataset_import(&m, path, &err), TRL_E_PARSE);
    assert_int_equal(truncate(path, 0), 0);
    assert_int_equal(trl_dataset_import(&m, path, &err), TRL_E_PARSE);
    unlink(path);
    assert_int_equal(trl_dataset_import(&m, path, &err), TRL_E_NOENT);
    assert_true(trl_dataset_export(d, "/nonexistent/folder/block", &err) < 0);
    trl_dataset_free(d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_padded),
        cmocka_unit_test(test_padding_free),
        cmocka_unit_test(test_packed),
        cmocka_unit_test(test_no_allocation),
        cmocka_unit_test(test_shared_block),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
