/* SPDX-License-Identifier: Apache-2.0 */
#include "data/show-batches.h"

#include <errno.h>
#include <string.h>

#include "base/alloc.h"

/* Around text that counts in the loss. */
static const char LOSS_BEGIN[] = "\xe2\x9f\xa6", LOSS_END[] = "\xe2\x9f\xa7"; /* U+27E6, U+27E7 */

static int32_t pad_id(const struct trl_show_batches *o)
{
    int id = o->tok ? trl_tokenizer_special_id(o->tok, TRL_TOKEN_PAD) : 0;
    if (id < 0)
        id = trl_tokenizer_special_id(o->tok, TRL_TOKEN_EOS);
    return id < 0 ? 0 : id;
}

/* n numbers, then `pad` until `width` */
static void put_numbers(struct trl_str *s, const int32_t *v, int64_t n, int64_t width, int32_t pad)
{
    trl_str_putc(s, '[');
    for (int64_t i = 0; i < width; i++)
        trl_str_printf(s, "%s%d", i ? ", " : "", i < n ? v[i] : pad);
    trl_str_putc(s, ']');
}

/* 1 for tokens, 0 for pads; or 0, 1, 2 ... over the whole width */
static void put_range(struct trl_str *s, int64_t n, int64_t width, bool mask)
{
    trl_str_putc(s, '[');
    for (int64_t i = 0; i < width; i++)
        trl_str_printf(s, "%s%lld", i ? ", " : "", mask ? (long long)(i < n) : (long long)i);
    trl_str_putc(s, ']');
}

/* One tensor: the rows of the batch, or all tokens as one row in a flat batch. */
static void put_tensor(struct trl_str *s, const struct trl_batch *b, bool flat, const char *name, const int32_t *v, int32_t pad)
{
    trl_str_printf(s, ", \"%s\": [", name);
    int64_t rows = flat ? 1 : b->n_rows;
    for (int64_t i = 0; i < rows; i++) {
        int64_t begin = flat ? 0 : b->row_start[i], end = flat ? b->n : b->row_start[i + 1];
        trl_str_puts(s, i ? ", " : "");
        put_numbers(s, v + begin, end - begin, b->padded_len, pad);
    }
    trl_str_putc(s, ']');
}

static void put_padded(struct trl_str *s, const struct trl_batch *b, const char *name, bool mask)
{
    trl_str_printf(s, ", \"%s\": [", name);
    for (int64_t i = 0; i < b->n_rows; i++) {
        trl_str_puts(s, i ? ", " : "");
        put_range(s, b->row_start[i + 1] - b->row_start[i], b->padded_len, mask);
    }
    trl_str_putc(s, ']');
}

static void put_json(struct trl_str *s, const struct trl_show_batches *o, const struct trl_batch *b, int64_t step, int rank)
{
    bool flat = trl_dataset_is_flat(o->data);
    trl_str_printf(s, "{\"rank\": %d, \"batch\": %lld", rank, (long long)step);
    put_tensor(s, b, flat, "input_ids", b->ids, pad_id(o));
    put_tensor(s, b, flat, "labels", b->labels, TRL_IGNORE_LABEL);
    if (flat) {
        put_tensor(s, b, true, "position_ids", b->positions, 0);
    } else {
        put_padded(s, b, "position_ids", false);
        put_padded(s, b, "attention_mask", true);
    }
    trl_str_puts(s, "}\n");
}

/* The document's text; runs of tokens that the loss counts stand in brackets. A row's first token is never predicted. */
static int put_text(struct trl_str *s, const struct trl_show_batches *o, const struct trl_batch *b, int64_t begin, int64_t end,
    int64_t row_begin, struct trl_err *err)
{
    struct trl_str text = {0};
    int rc = 0;
    for (int64_t t = begin; t < end && rc == 0;) {
        bool counts = t > row_begin && b->labels[t] != TRL_IGNORE_LABEL;
        int64_t to = t + 1;
        while (to < end && (to > row_begin && b->labels[to] != TRL_IGNORE_LABEL) == counts)
            to++;
        trl_str_puts(&text, counts ? LOSS_BEGIN : "");
        rc = trl_tokenizer_decode(o->tok, b->ids + t, (size_t)(to - t), false, &text, err);
        trl_str_puts(&text, counts ? LOSS_END : "");
        t = to;
    }
    trl_str_puts(s, "    text:      ");
    trl_str_put_json(s, trl_str_get(&text), text.len);
    trl_str_putc(s, '\n');
    trl_str_release(&text);
    return rc;
}

static int put_row(struct trl_str *s, const struct trl_show_batches *o, const struct trl_batch *b, int64_t i, int64_t data_row,
    int64_t *doc, struct trl_err *err)
{
    int64_t begin = b->row_start[i], end = b->row_start[i + 1];
    trl_str_printf(s, "  row %lld of the data: %lld tokens\n    ids:       ", (long long)data_row, (long long)(end - begin));
    put_numbers(s, b->ids + begin, end - begin, end - begin, 0);
    trl_str_puts(s, "\n    labels:    ");
    put_numbers(s, b->labels + begin, end - begin, end - begin, 0);
    trl_str_puts(s, "\n    positions: ");
    put_numbers(s, b->positions + begin, end - begin, end - begin, 0);
    trl_str_putc(s, '\n');
    int rc = 0;
    for (; o->tok && rc == 0 && *doc < b->n_docs && b->doc_start[*doc] < end; ++*doc)
        rc = put_text(s, o, b, b->doc_start[*doc], b->doc_start[*doc + 1], begin, err);
    return rc;
}

static int put_plain(struct trl_str *s, const struct trl_show_batches *o, const struct trl_batch *b, int64_t step, int rank,
    const int64_t *rows, struct trl_err *err)
{
    trl_str_printf(s, "batch %lld, rank %d: %lld rows, %lld tokens in %lld documents, %s %lld columns; %lld tokens in the loss\n",
        (long long)step, rank, (long long)b->n_rows, (long long)b->n, (long long)b->n_docs,
        trl_dataset_is_flat(o->data) ? "one row of" : "padded to", (long long)b->padded_len, (long long)b->n_items);
    int rc = 0;
    int64_t doc = 0;
    for (int64_t i = 0; i < b->n_rows && rc == 0; i++)
        rc = put_row(s, o, b, i, rows[i], &doc, err);
    return rc;
}

int trl_show_batches(FILE *out, const struct trl_show_batches *o, struct trl_err *err)
{
    struct trl_batch b = {0};
    struct trl_str s = {0};
    int64_t *rows = trl_malloc_array((size_t)trl_sampler_batch_size(o->sampler), sizeof(*rows));
    int rc = rows ? 0 : trl_fail_nomem(err, (size_t)trl_sampler_batch_size(o->sampler) * sizeof(*rows), "a batch");
    int64_t steps = trl_sampler_batches(o->sampler) < o->n ? trl_sampler_batches(o->sampler) : o->n;
    if (!o->json && rc == 0 && o->tok)
        fprintf(out, "text between %s and %s counts in the loss\n", LOSS_BEGIN, LOSS_END);
    for (int64_t step = 0; step < steps && rc == 0; step++)
        for (int rank = 0; rank < o->world && rc == 0; rank++) {
            int64_t n;
            rc = trl_sampler_get(o->sampler, 0, step, rank, rows, &n, err);
            if (rc == 0)
                rc = trl_batch_collate(&b, o->data, rows, n, o->pad_to_multiple_of, err);
            trl_str_clear(&s);
            if (rc == 0 && o->json)
                put_json(&s, o, &b, step, rank);
            else if (rc == 0)
                rc = put_plain(&s, o, &b, step, rank, rows, err);
            if (rc == 0)
                rc = trl_str_check(&s, err);
            if (rc == 0 && fwrite(trl_str_get(&s), 1, s.len, out) != s.len)
                rc = trl_fail(err, TRL_E_IO, "cannot write the batches: %s", strerror(errno));
        }
    if (rc == 0 && fflush(out) != 0)
        rc = trl_fail(err, TRL_E_IO, "cannot write the batches: %s", strerror(errno));
    trl_free(rows);
    trl_str_release(&s);
    trl_batch_release(&b);
    return rc;
}
