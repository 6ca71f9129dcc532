/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TRL_TESTS_ROWS_HELPERS_H
#define TRL_TESTS_ROWS_HELPERS_H
/* Data sets from literals, and JSON Lines of the goldens. */
#include "../trl-test.h"

#include <jansson.h>

#include "base/alloc.h"
#include "base/fileio.h"
#include "data/rows.h"
#include "data/store.h"

#define COUNT(a) ((int64_t)(sizeof(a) / sizeof((a)[0])))

static inline void add_row(struct trl_store *s, const int32_t *ids, int64_t n)
{
    struct trl_err err = {0};
    assert_trl_ok(trl_store_add(s, ids, n, NULL, NULL, 0, &err), &err);
}
#define ADD(s, ...) add_row(s, (const int32_t[]){__VA_ARGS__}, COUNT(((const int32_t[]){__VA_ARGS__})))

/* n rows of length 1 + i % spread */
static inline struct trl_dataset *dataset_of(int64_t n, int64_t spread)
{
    struct trl_store s = {0};
    struct trl_dataset *d = NULL;
    struct trl_err err = {0};
    int32_t ids[64] = {0};
    for (int64_t i = 0; i < n; i++)
        add_row(&s, ids, 1 + i % spread);
    assert_trl_ok(trl_dataset_new(&d, &s, NULL, 0, false, &err), &err);
    return d;
}

/* Line i of a JSON Lines text; NULL at the end. *at moves on. */
static inline json_t *next_json(const char *text, size_t len, size_t *at)
{
    while (*at < len) {
        const char *line = text + *at, *end = memchr(line, '\n', len - *at);
        size_t n = end ? (size_t)(end - line) : len - *at;
        *at += n + 1;
        if (n == 0)
            continue;
        json_error_t e;
        json_t *j = json_loadb(line, n, JSON_ALLOW_NUL, &e);
        if (!j)
            fail_msg("%s", e.text);
        return j;
    }
    return NULL;
}

/* The results hold NaN as a bare word: parse them with our reader. */
static inline json_t *read_malformed_results(void)
{
    char *text;
    size_t len;
    struct trl_err err = {0};
    assert_trl_ok(trl_file_read(trl_test_data("golden/data/malformed-results.json"), 1 << 24, &text, &len, &err), &err);
    struct trl_json_reader r = {.text = text, .len = len};
    json_t *j = trl_json_read(&r);
    assert_non_null(j);
    trl_str_release(&r.scratch);
    trl_free(text);
    return j;
}

#endif
