/* SPDX-License-Identifier: Apache-2.0 */
#include "data/prep-load.h"

#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/log.h"

enum { CHUNKS_A_THREAD = 4 };

/* A chunk on its way from the reader to the store. */
struct job {
    struct trl_chunk chunk;
    struct trl_store rows;
    struct trl_rows_count count;
    struct trl_err err;
    int rc;
};

struct round {
    struct trl_load *load;
    struct job *job; /* [n] */
    int n_jobs, n;   /* room; filled in this round */
    atomic_int next;
    struct trl_prep_thread *thread; /* [n_threads]; NULL: only count rows */
    int n_threads;
};

struct row_ctx {
    const struct trl_prep *prep;
    struct trl_prep_thread *thread;
    struct trl_store *out;
};

static int prepare_row(void *p, json_t *row, struct trl_err *err)
{
    struct row_ctx *c = p;
    return c->thread ? trl_prep_row(c->prep, c->thread, row, c->out, err) : 0;
}

/* Threads take chunks as they come; the outcome does not depend on who took which. */
static void work(void *p, int thread, int n_threads)
{
    struct round *r = p;
    (void)n_threads;
    for (int i; (i = atomic_fetch_add(&r->next, 1)) < r->n;) {
        struct job *j = &r->job[i];
        struct row_ctx c = {r->load->prep, r->thread ? &r->thread[thread] : NULL, &j->rows};
        trl_store_clear(&j->rows);
        j->err.text[0] = '\0';
        j->rc = trl_chunk_parse(&j->chunk, r->load->skip_bad, prepare_row, &c, &j->count, &j->err);
    }
}

static void round_release(struct round *r)
{
    for (int i = 0; r->job && i < r->n_jobs; i++) {
        trl_chunk_release(&r->job[i].chunk);
        trl_store_release(&r->job[i].rows);
    }
    trl_free(r->job);
    for (int i = 0; r->thread && i < r->n_threads; i++) {
        r->load->prompt_differs |= r->thread[i].prompt_differs;
        trl_prep_thread_release(&r->thread[i]);
    }
    trl_free(r->thread);
}

static int round_init(struct round *r, struct trl_load *l, bool count_only, struct trl_err *err)
{
    int n = trl_pool_size(l->pool);
    *r = (struct round){.load = l, .n_threads = n};
    r->job = trl_calloc((size_t)n * CHUNKS_A_THREAD, sizeof(*r->job));
    if (!r->job)
        return trl_fail_nomem(err, (size_t)n * CHUNKS_A_THREAD * sizeof(*r->job), "reading rows");
    r->n_jobs = n * CHUNKS_A_THREAD;
    if (count_only)
        return 0;
    r->thread = trl_calloc((size_t)n, sizeof(*r->thread));
    if (!r->thread)
        return trl_fail_nomem(err, (size_t)n * sizeof(*r->thread), "reading rows");
    int rc = 0;
    for (int i = 0; i < n && rc == 0; i++)
        rc = trl_prep_thread_init(&r->thread[i], l->prep, err);
    return rc;
}

/* On a terminal a line that renews itself, elsewhere a line every 10 seconds; nothing in the first second. */
static void show_progress(struct trl_load *l, const struct trl_reader *reader, int64_t tokens)
{
    bool terminal = isatty(STDERR_FILENO);
    double now = trl_clock_now();
    if (now - l->started < 1 || now - l->shown < (terminal ? 0.2 : 10))
        return;
    int64_t done, total;
    trl_reader_progress(reader, &done, &total);
    double share = total > 0 ? 100.0 * (double)done / (double)total : 0;
    l->shown = now;
    if (terminal) {
        fprintf(stderr, "\rreading data %3.0f %%  %lld rows, %.1f M tokens, %.1f MB/s ", share, (long long)l->rows,
            (double)tokens / 1e6, (double)done / 1e6 / (now - l->started));
        l->bar = true;
    } else {
        trl_info("reading data: %.0f %%, %lld rows, %.1f M tokens, %.1f MB/s", share, (long long)l->rows,
            (double)tokens / 1e6, (double)done / 1e6 / (now - l->started));
    }
}

static void end_progress(struct trl_load *l)
{
    if (l->bar)
        fprintf(stderr, "\r%78s\r", "");
    l->bar = false;
}

/* Results in file order; the first error wins. */
static int collect(struct round *r, int64_t limit, int64_t *rows, struct trl_store *out, struct trl_err *err)
{
    struct trl_load *l = r->load;
    for (int i = 0; i < r->n; i++) {
        struct job *j = &r->job[i];
        if (limit >= 0 && *rows >= limit)
            return 0;
        if (j->count.skipped > 0 && l->skipped == 0)
            l->first_bad = j->err;
        l->skipped += j->count.skipped;
        l->rows += j->count.rows;
        *rows += j->count.rows;
        if (j->rc != 0) {
            if (err)
                *err = j->err;
            return j->rc;
        }
        int rc = out ? trl_store_append(out, &j->rows, err) : 0;
        if (rc != 0)
            return rc;
    }
    return 0;
}

static int load(struct trl_load *l, const struct trl_files *files, int64_t limit, struct trl_store *out, int64_t *ret_rows,
    struct trl_err *err)
{
    struct round r;
    struct trl_reader *reader = NULL;
    int64_t rows = 0;
    size_t before = out ? out->n_rows : 0;
    if (l->started == 0)
        l->started = trl_clock_now();
    int rc = round_init(&r, l, !out, err);
    if (rc == 0)
        rc = trl_reader_open(&reader, files, err);
    for (bool more = true; rc == 0 && more && (limit < 0 || rows < limit);) {
        struct trl_err read_err = {0};
        int read_rc = 0;
        for (r.n = 0; r.n < r.n_jobs && more && read_rc == 0; r.n += more && read_rc == 0)
            read_rc = trl_reader_next(reader, &r.job[r.n].chunk, &more, &read_err);
        atomic_store(&r.next, 0);
        trl_pool_run(l->pool, work, &r);
        rc = collect(&r, limit, &rows, out, err); /* an error in an earlier row comes first */
        if (rc == 0 && read_rc != 0 && (limit < 0 || rows < limit)) {
            rc = read_rc;
            if (err)
                *err = read_err;
        }
        if (rc == 0)
            show_progress(l, reader, out ? (int64_t)out->n_tokens : 0);
    }
    end_progress(l);
    trl_reader_close(reader);
    round_release(&r);
    if (rc == 0 && out && limit >= 0 && out->n_rows - before > (size_t)limit)
        out->n_rows = before + (size_t)limit; /* tokens behind the last row stay unused */
    *ret_rows = rows;
    return rc;
}

int trl_load_files(struct trl_load *l, const struct trl_files *files, int64_t limit, struct trl_store *out, struct trl_err *err)
{
    int64_t rows;
    return load(l, files, limit, out, &rows, err);
}

int trl_load_count(struct trl_load *l, const struct trl_files *files, int64_t *ret, struct trl_err *err)
{
    int64_t rows = l->rows, skipped = l->skipped;
    int rc = load(l, files, -1, NULL, ret, err);
    l->rows = rows;
    l->skipped = skipped;
    return rc;
}

static int take_first(void *p, json_t *row, struct trl_err *err)
{
    (void)err;
    *(json_t **)p = json_incref(row);
    return 1;
}

int trl_load_first(struct trl_load *l, const struct trl_files *files, json_t **ret, struct trl_err *err)
{
    struct trl_reader *reader;
    struct trl_chunk chunk = {0};
    json_t *row = NULL;
    int rc = trl_reader_open(&reader, files, err);
    for (bool more = true; rc == 0 && more && !row;) {
        struct trl_rows_count count;
        rc = trl_reader_next(reader, &chunk, &more, err);
        if (rc == 0 && more)
            rc = trl_chunk_parse(&chunk, l->skip_bad, take_first, &row, &count, err);
    }
    trl_chunk_release(&chunk);
    trl_reader_close(reader);
    if (rc == 0)
        *ret = row;
    else
        json_decref(row);
    return rc;
}
