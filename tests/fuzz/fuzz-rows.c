/* SPDX-License-Identifier: Apache-2.0 */
/* Any bytes as a JSON and as a CSV file: rows or an error. Rows go on to the recogniser, tokenised ones are prepared. */
#include <stddef.h>
#include <stdint.h>

#include "data/prep.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

struct ctx {
    struct trl_prep prep;
    struct trl_prep_thread thread;
    struct trl_store rows;
};

static int use(void *p, json_t *row, struct trl_err *err)
{
    struct ctx *c = p;
    return trl_prep_row(&c->prep, &c->thread, row, &c->rows, err);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char *const names[] = {"fuzz.jsonl", "fuzz.csv"};
    for (int i = 0; i < 4; i++) {
        struct trl_err err = {0};
        struct trl_chunk chunk = {0};
        struct trl_csv_header header = {0};
        struct trl_rows_count count;
        struct ctx c = {.prep = {.text_field = "text", .vocab_size = 1000, .cut = 5, .completion_only = true,
                            .skip_prepare = i >= 2}};
        if (trl_prep_thread_init(&c.thread, &c.prep, &err) == 0 &&
            trl_chunk_from_text(&chunk, &header, (const char *)data, size, names[i % 2], &err) == 0)
            trl_chunk_parse(&chunk, i >= 2, use, &c, &count, &err);
        trl_prep_thread_release(&c.thread);
        trl_store_release(&c.rows);
        trl_csv_header_release(&header);
        trl_chunk_release(&chunk);
    }
    return 0;
}
