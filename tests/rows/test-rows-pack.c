/* SPDX-License-Identifier: Apache-2.0 */
/* Packs of TRL's own unit tests, and a larger set whose packs the real pack_dataset() made. */
#include "rows-helpers.h"

#include "data/pack.h"

static struct trl_store packed(struct trl_store *from, enum trl_packing strategy, int64_t length)
{
    struct trl_store to = {0};
    struct trl_err err = {0};
    int64_t *order = trl_malloc_array(from->n_rows, sizeof(*order));
    for (size_t i = 0; i < from->n_rows; i++)
        order[i] = (int64_t)i;
    assert_trl_ok(trl_pack_rows(&to, from, order, (int64_t)from->n_rows, strategy, length, false, &err), &err);
    trl_free(order);
    return to;
}

static void check_row(const struct trl_store *s, size_t i, const int32_t *ids, int64_t n, const int32_t *docs, int64_t n_docs)
{
    assert_true(i < s->n_rows);
    assert_int_equal(s->len[i], n);
    assert_memory_equal(s->ids + s->begin[i], ids, (size_t)n * sizeof(*ids));
    assert_int_equal(s->n_docs[i], n_docs);
    if (n_docs > 0)
        assert_memory_equal(s->doc_len + s->doc_begin[i], docs, (size_t)n_docs * sizeof(*docs));
}
#define I(...) (const int32_t[]){__VA_ARGS__}, COUNT(((const int32_t[]){__VA_ARGS__}))

static void test_bfd(void **state)
{
    (void)state;
    struct trl_store s = {0}, p;
    ADD(&s, 1, 2, 3);
    ADD(&s, 4, 5, 6, 7);
    ADD(&s, 8);
    p = packed(&s, TRL_PACK_BFD, 4);
    assert_int_equal(p.n_rows, 2);
    check_row(&p, 0, I(4, 5, 6, 7), I(4));
    check_row(&p, 1, I(1, 2, 3, 8), I(3, 1));
    trl_store_release(&p);
    p = packed(&s, TRL_PACK_WRAPPED, 3);
    assert_int_equal(p.n_rows, 3);
    check_row(&p, 0, I(1, 2, 3), NULL, 0);
    check_row(&p, 1, I(4, 5, 6), NULL, 0);
    check_row(&p, 2, I(7, 8), NULL, 0);
    trl_store_release(&p);
    trl_store_release(&s);
}

static void test_long_rows(void **state)
{
    (void)state;
    struct trl_store s = {0}, p;
    ADD(&s, 1, 2, 3, 4, 5);
    ADD(&s, 6, 7);
    ADD(&s, 8, 9, 10, 11);
    ADD(&s, 12);
    p = packed(&s, TRL_PACK_BFD, 4);
    assert_int_equal(p.n_rows, 3);
    check_row(&p, 0, I(1, 2, 3, 4), I(4));
    check_row(&p, 1, I(8, 9, 10, 11), I(4));
    check_row(&p, 2, I(6, 7, 12), I(2, 1));
    trl_store_release(&p);
    p = packed(&s, TRL_PACK_BFD_SPLIT, 4);
    assert_int_equal(p.n_rows, 3);
    check_row(&p, 2, I(6, 7, 5, 12), I(2, 1, 1));
    trl_store_release(&p);
    trl_store_release(&s);
    ADD(&s, 1, 2, 3, 4, 5);
    ADD(&s, 6);
    ADD(&s, 7, 8, 9, 10);
    ADD(&s, 11, 12, 13);
    p = packed(&s, TRL_PACK_BFD_SPLIT, 5);
    assert_int_equal(p.n_rows, 3);
    check_row(&p, 0, I(1, 2, 3, 4, 5), I(5));
    check_row(&p, 1, I(7, 8, 9, 10, 6), I(4, 1));
    check_row(&p, 2, I(11, 12, 13), I(3));
    trl_store_release(&p);
    trl_store_release(&s);
    ADD(&s, 1, 2, 3, 4, 5, 6);
    ADD(&s, 7, 8, 9);
    ADD(&s, 10, 11, 12);
    ADD(&s, 13, 14, 15, 16);
    p = packed(&s, TRL_PACK_BFD_SPLIT, 4);
    assert_int_equal(p.n_rows, 5);
    check_row(&p, 0, I(1, 2, 3, 4), I(4));
    check_row(&p, 1, I(13, 14, 15, 16), I(4));
    check_row(&p, 4, I(5, 6), I(2));
    trl_store_release(&p);
    trl_store_release(&s);
}

static void test_empty_rows_and_labels(void **state)
{
    (void)state;
    struct trl_store s = {0}, p;
    struct trl_err err = {0};
    ADD(&s, 1, 2);
    add_row(&s, NULL, 0);
    assert_trl_ok(trl_store_add(&s, (int32_t[]){3, 4, 5}, 3, (int32_t[]){-100, 4, 5}, NULL, 0, &err), &err);
    add_row(&s, NULL, 0);
    assert_trl_ok(trl_store_add(&s, (int32_t[]){6}, 1, (int32_t[]){-100}, NULL, 0, &err), &err);
    assert_int_equal(s.kind, TRL_LABELS_MASK);
    assert_false(trl_store_any_label(&s, 4));
    p = packed(&s, TRL_PACK_BFD, 4);
    assert_int_equal(p.n_rows, 2);
    check_row(&p, 0, I(3, 4, 5, 6), I(3, 1));
    check_row(&p, 1, I(1, 2), I(2));
    int32_t labels[4];
    trl_store_copy_labels(&p, 0, 0, 4, labels);
    assert_memory_equal(labels, ((int32_t[]){-100, 4, 5, -100}), sizeof(labels));
    /* labels of their own */
    assert_trl_ok(trl_store_add(&s, (int32_t[]){7, 8}, 2, (int32_t[]){9, -100}, NULL, 0, &err), &err);
    assert_int_equal(s.kind, TRL_LABELS_OWN);
    trl_store_copy_labels(&s, 2, 0, 3, labels);
    assert_memory_equal(labels, ((int32_t[]){-100, 4, 5}), 12);
    trl_store_copy_labels(&s, 5, 0, 2, labels);
    assert_memory_equal(labels, ((int32_t[]){9, -100}), 8);
    assert_trl_ok(trl_store_append(&p, &s, &err), &err);
    trl_store_copy_labels(&p, 0, 0, 4, labels);
    assert_memory_equal(labels, ((int32_t[]){-100, 4, 5, -100}), sizeof(labels));
    trl_store_release(&p);
    trl_store_release(&s);
    assert_int_equal(trl_pack_rows(&p, &s, NULL, 0, TRL_PACK_BFD, 0, false, &err), TRL_E_RANGE);
}

/* 2500 rows of length (i * 37) % 90, ids i: three map batches. Sums from the real pack_dataset(). */
static void test_batches_of_1000(void **state)
{
    (void)state;
    static const struct {
        enum trl_packing strategy;
        size_t rows, docs;
        uint64_t hash;
    } want[] = {
        {TRL_PACK_BFD, 1599, 2472, 3979940466189426774ULL},
        {TRL_PACK_BFD_SPLIT, 1740, 3167, 8696179913227697520ULL},
        {TRL_PACK_WRAPPED, 1740, 0, 4187129114594374562ULL},
    };
    struct trl_store s = {0};
    int32_t ids[128];
    for (int32_t i = 0; i < 2500; i++) {
        for (int k = 0; k < 90; k++)
            ids[k] = i;
        add_row(&s, ids, i * 37 % 90);
    }
    for (size_t c = 0; c < sizeof(want) / sizeof(want[0]); c++) {
        struct trl_store p = packed(&s, want[c].strategy, 64);
        uint64_t h = 0;
        size_t docs = 0;
        for (size_t r = 0; r < p.n_rows; r++) {
            for (int32_t t = 0; t < p.len[r]; t++)
                h = h * 31 + (uint64_t)p.ids[p.begin[r] + t];
            for (int32_t t = 0; t < p.n_docs[r]; t++)
                h = h * 31 + (uint64_t)p.doc_len[p.doc_begin[r] + t];
            docs += (size_t)p.n_docs[r];
        }
        assert_int_equal(p.n_rows, want[c].rows);
        assert_int_equal(docs, want[c].docs);
        assert_true(h == want[c].hash);
        trl_store_release(&p);
    }
    trl_store_release(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bfd),
        cmocka_unit_test(test_long_rows),
        cmocka_unit_test(test_empty_rows_and_labels),
        cmocka_unit_test(test_batches_of_1000),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
