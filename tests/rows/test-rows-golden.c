/* SPDX-License-Identifier: Apache-2.0 */
/* Every SFT golden: prepared rows, batches with their tensors, and the loss's divisor, as the real TRL made them. */
#include "prepare-helpers.h"

#include <dirent.h>
#include <unistd.h>

#include "data/sampler.h"

/* Options that shape data; the others are of no interest here. */
static const char *const DATA_OPTIONS[] = {"max_length", "packing", "packing_strategy", "padding_free", "pad_to_multiple_of",
    "completion_only_loss", "assistant_only_loss", "shuffle_dataset", "eos_token", "seed", "data_seed",
    "train_sampling_strategy", "dataloader_drop_last", "per_device_train_batch_size", "gradient_accumulation_steps",
    "eval_strategy", "eval_steps", "chat_template_path", "average_tokens_across_devices"};

struct golden {
    const char *name;
    json_t *result;
    struct prepared p;
    char *argv[64];
    int argc;
    char folder[64]; /* links to training and evaluation rows */
};

static json_t *case_of(const struct golden *g, const char *key)
{
    return json_object_get(json_object_get(g->result, "case"), key);
}

static json_t *read_json(const char *path)
{
    json_error_t e;
    json_t *j = json_load_file(path, 0, &e);
    if (!j)
        fail_msg("%s: %s", path, e.text);
    return j;
}

static void arg(struct golden *g, char *text)
{
    assert_non_null(text);
    assert_true(g->argc < 64);
    g->argv[g->argc++] = text;
}

static void option_args(struct golden *g)
{
    json_t *options = case_of(g, "options");
    for (size_t i = 0; i < sizeof(DATA_OPTIONS) / sizeof(DATA_OPTIONS[0]); i++) {
        json_t *v = json_object_get(options, DATA_OPTIONS[i]);
        if (!v)
            continue;
        char rel[256];
        char *text = json_is_string(v) ? trl_strdup(json_string_value(v)) : json_dumps(v, JSON_ENCODE_ANY);
        if (strcmp(DATA_OPTIONS[i], "chat_template_path") == 0) {
            snprintf(rel, sizeof(rel), "golden/%s", text);
            trl_free(text);
            text = trl_strdup(trl_test_data(rel));
        }
        arg(g, trl_asprintf("--%s=%s", DATA_OPTIONS[i], json_is_null(v) ? "None" : text));
        free(text);
    }
}

static void link_rows(const struct golden *g, const char *file, const char *name)
{
    char rel[256], to[128];
    snprintf(rel, sizeof(rel), "golden/data/%s", file);
    snprintf(to, sizeof(to), "%s/%s", g->folder, name);
    char *from = realpath(trl_test_data(rel), NULL);
    assert_non_null(from);
    assert_int_equal(symlink(from, to), 0);
    free(from);
}

static void golden_open(struct golden *g, const char *name)
{
    char rel[256];
    *g = (struct golden){.name = name};
    snprintf(rel, sizeof(rel), "golden/sft/%s/result.json", name);
    g->result = read_json(trl_test_data(rel));
    strcpy(g->folder, "/tmp/trl-golden-XXXXXX");
    assert_non_null(mkdtemp(g->folder));
    link_rows(g, json_string_value(case_of(g, "data")), "train.jsonl");
    if (case_of(g, "eval_data"))
        link_rows(g, json_string_value(case_of(g, "eval_data")), "test.jsonl");
    arg(g, trl_strdup("--model_name_or_path=none"));
    arg(g, trl_strdup("--use_cpu=true"));
    arg(g, trl_strdup("--bf16=false"));
    if (!json_object_get(case_of(g, "options"), "per_device_train_batch_size"))
        arg(g, trl_strdup("--per_device_train_batch_size=4"));
    arg(g, trl_asprintf("--dataset_name=%s", g->folder));
    option_args(g);
    prepare_with(&g->p, json_string_value(case_of(g, "model")), g->argv, g->argc, 2, 0, 0);
    if (g->p.rc != 0)
        fail_msg("%s: %s", name, g->p.err.text);
}

static void golden_close(struct golden *g)
{
    struct trl_err err;
    prepared_release(&g->p);
    json_decref(g->result);
    for (int i = 0; i < g->argc; i++)
        trl_free(g->argv[i]);
    trl_rmtree(g->folder, &err);
}

static void check_list(const struct golden *g, const char *what, int64_t line, const json_t *want, const int32_t *got, int64_t n)
{
    if ((int64_t)json_array_size(want) != n)
        fail_msg("%s: %s of row %lld: %lld entries, not %zu", g->name, what, (long long)line, (long long)n, json_array_size(want));
    for (int64_t i = 0; i < n; i++)
        if (json_integer_value(json_array_get(want, (size_t)i)) != got[i])
            fail_msg("%s: %s of row %lld at %lld: %d, not %lld", g->name, what, (long long)line, (long long)i, got[i],
                (long long)json_integer_value(json_array_get(want, (size_t)i)));
}

static char *read_lines(const struct golden *g, const char *file, size_t *len)
{
    char rel[256], *text;
    struct trl_err err = {0};
    snprintf(rel, sizeof(rel), "golden/sft/%s/%s", g->name, file);
    assert_trl_ok(trl_file_read(trl_test_data(rel), 1 << 26, &text, len, &err), &err);
    return text;
}

static void check_prepared(const struct golden *g)
{
    size_t len, at = 0;
    char *text = read_lines(g, "prepared.jsonl", &len);
    int64_t i = 0;
    for (json_t *j; (j = next_json(text, len, &at)) != NULL; json_decref(j), i++) {
        struct trl_row r;
        assert_true(i < trl_dataset_n_rows(g->p.train));
        trl_dataset_get_row(g->p.train, i, &r);
        int32_t *labels = trl_malloc_array((size_t)r.len, sizeof(*labels));
        trl_dataset_copy_labels(g->p.train, i, labels);
        check_list(g, "ids", i, json_object_get(j, "input_ids"), r.ids, r.len);
        check_list(g, "labels", i, json_object_get(j, "labels"), labels, r.len);
        if (json_object_get(j, "seq_lengths"))
            check_list(g, "seq_lengths", i, json_object_get(j, "seq_lengths"), r.doc_len, r.n_docs);
        trl_free(labels);
    }
    assert_true(i > 0);
    trl_free(text);
}

/* One row of TRL's padded tensors against ours. */
static void check_padded(const struct golden *g, const char *what, const json_t *tensor, size_t row, const int32_t *got, int64_t n,
    int64_t width, int32_t pad)
{
    const json_t *want = json_array_get(tensor, row);
    if ((int64_t)json_array_size(want) != width)
        fail_msg("%s: %s: %lld columns, not %zu", g->name, what, (long long)width, json_array_size(want));
    for (int64_t i = 0; i < width; i++) {
        int64_t w = json_integer_value(json_array_get(want, (size_t)i)), h = i < n ? got[i] : pad;
        if (w != h)
            fail_msg("%s: %s, row %zu, column %lld: %lld, not %lld", g->name, what, row, (long long)i, (long long)h, (long long)w);
    }
}

static void check_batch(const struct golden *g, const struct trl_batch *b, const json_t *want)
{
    bool flat = trl_dataset_is_flat(g->p.train);
    int pad = trl_tokenizer_special_id(g->p.tok, TRL_TOKEN_PAD);
    if (pad < 0)
        pad = trl_tokenizer_special_id(g->p.tok, TRL_TOKEN_EOS);
    json_t *ids = json_object_get(want, "input_ids"), *labels = json_object_get(want, "labels");
    assert_int_equal(json_array_size(ids), flat ? 1 : b->n_rows);
    for (int64_t r = 0; r < (flat ? 1 : b->n_rows); r++) {
        int64_t begin = flat ? 0 : b->row_start[r], n = (flat ? b->n : b->row_start[r + 1]) - begin;
        check_padded(g, "input_ids", ids, (size_t)r, b->ids + begin, n, b->padded_len, pad);
        check_padded(g, "labels", labels, (size_t)r, b->labels + begin, n, b->padded_len, -100);
        if (flat) {
            check_padded(g, "position_ids", json_object_get(want, "position_ids"), 0, b->positions, n, b->padded_len, 0);
            assert_null(json_object_get(want, "attention_mask"));
        } else {
            const json_t *mask = json_array_get(json_object_get(want, "attention_mask"), (size_t)r);
            for (int64_t i = 0; i < b->padded_len; i++)
                assert_int_equal(json_integer_value(json_array_get(mask, (size_t)i)), i < n);
        }
    }
}

static struct trl_sampler *sampler_of(const struct golden *g, int world)
{
    const struct trl_config *c = &g->p.cfg;
    struct trl_sampler *s = NULL;
    struct trl_err err = {0};
    struct trl_sampler_options o = {
        .kind = strcmp(c->train_sampling_strategy, "sequential") == 0 ? TRL_SAMPLING_SEQUENTIAL
            : strcmp(c->train_sampling_strategy, "random") == 0       ? TRL_SAMPLING_RANDOM
                                                                      : TRL_SAMPLING_GROUP_BY_LENGTH,
        .seed = (uint64_t)(c->data_seed.set ? c->data_seed.value : c->seed),
        .batch_size = c->per_device_train_batch_size,
        .world = world,
        .drop_last = c->dataloader_drop_last,
        .group_window = c->per_device_train_batch_size * c->gradient_accumulation_steps,
    };
    assert_trl_ok(trl_sampler_new(&s, g->p.train, &o, &err), &err);
    return s;
}

static int64_t pad_multiple(const struct trl_config *c)
{
    return c->pad_to_multiple_of.set ? c->pad_to_multiple_of.value : 0;
}

/* The micro-batches of one rank in order: (epoch, step) of each, then the batches and the divisors as recorded. */
static void check_batches(const struct golden *g, struct trl_sampler *s, int world)
{
    size_t len, at = 0;
    char *text = read_lines(g, "batches.jsonl", &len);
    struct trl_batch b = {0};
    struct trl_err err = {0};
    int64_t seen[8] = {0}, rows[64], n;
    int count = 0;
    for (json_t *j; (j = next_json(text, len, &at)) != NULL; json_decref(j), count++) {
        int rank = (int)json_integer_value(json_object_get(j, "rank"));
        int64_t k = seen[rank]++, per = trl_sampler_batches(s);
        assert_true(rank < world);
        assert_trl_ok(trl_sampler_get(s, k / per, k % per, rank, rows, &n, &err), &err);
        assert_trl_ok(trl_batch_collate(&b, g->p.train, rows, n, pad_multiple(&g->p.cfg), &err), &err);
        check_batch(g, &b, j);
    }
    assert_true(count > 0);
    trl_batch_release(&b);
    trl_free(text);
}

/* Σ n_items of the window that holds micro-step k, over ranks unless the mean is local. */
static int64_t window_items(const struct golden *g, struct trl_sampler *s, int world, int rank, int64_t k, struct trl_batch *b)
{
    struct trl_err err = {0};
    int64_t per = trl_sampler_batches(s), ga = g->p.cfg.gradient_accumulation_steps, rows[64], n, sum = 0;
    int64_t epoch = k / per, first = k % per / ga * ga, end = first + ga < per ? first + ga : per;
    bool all = g->p.cfg.average_tokens_across_devices;
    bool gpt2 = strcmp(json_string_value(case_of(g, "model")), "tiny-gpt2") == 0;
    for (int r = all ? 0 : rank; r < (all ? world : rank + 1); r++)
        for (int64_t m = first; m < end; m++) {
            assert_trl_ok(trl_sampler_get(s, epoch, m, r, rows, &n, &err), &err);
            assert_trl_ok(trl_batch_collate(b, g->p.train, rows, n, pad_multiple(&g->p.cfg), &err), &err);
            sum += gpt2 ? b->n_labels : b->n_items;
        }
    return sum;
}

static void check_divisors(const struct golden *g, struct trl_sampler *s, int world)
{
    size_t len, at = 0;
    char *text = read_lines(g, "micro.jsonl", &len);
    struct trl_batch b = {0};
    int64_t seen[8] = {0};
    for (json_t *j; (j = next_json(text, len, &at)) != NULL; json_decref(j)) {
        int rank = (int)json_integer_value(json_object_get(j, "rank"));
        int64_t k = seen[rank]++, got = window_items(g, s, world, rank, k, &b);
        if ((double)got != json_number_value(json_object_get(j, "num_items_in_batch")))
            fail_msg("%s: micro-step %lld of rank %d: divisor %lld, not %g", g->name, (long long)k, rank, (long long)got,
                json_number_value(json_object_get(j, "num_items_in_batch")));
    }
    trl_batch_release(&b);
    trl_free(text);
}

/* num_tokens after each logged step of a run of one process */
static void check_token_counts(const struct golden *g, struct trl_sampler *s)
{
    size_t len, at = 0;
    char *text = read_lines(g, "steps.jsonl", &len);
    struct trl_batch b = {0};
    struct trl_err err = {0};
    int64_t per = trl_sampler_batches(s), ga = g->p.cfg.gradient_accumulation_steps, k = 0, step = 0, tokens = 0, rows[64], n;
    for (json_t *j; (j = next_json(text, len, &at)) != NULL; json_decref(j)) {
        if (!json_object_get(j, "num_tokens"))
            continue;
        for (; step < json_integer_value(json_object_get(j, "step")); step++)
            for (int64_t m = 0; m < ga; m++) {
                assert_trl_ok(trl_sampler_get(s, k / per, k % per, 0, rows, &n, &err), &err);
                assert_trl_ok(trl_batch_collate(&b, g->p.train, rows, n, pad_multiple(&g->p.cfg), &err), &err);
                tokens += b.n_input_tokens;
                if (++k % per == 0)
                    break;
            }
        if ((double)tokens != json_number_value(json_object_get(j, "num_tokens")))
            fail_msg("%s: step %lld: %lld tokens, not %g", g->name, (long long)step, (long long)tokens,
                json_number_value(json_object_get(j, "num_tokens")));
    }
    trl_batch_release(&b);
    trl_free(text);
}

static void check_case(const char *name)
{
    struct golden g;
    golden_open(&g, name);
    int world = case_of(&g, "ranks") ? (int)json_integer_value(case_of(&g, "ranks")) : 1;
    struct trl_sampler *s = sampler_of(&g, world);
    check_prepared(&g);
    check_batches(&g, s, world);
    check_divisors(&g, s, world);
    if (world == 1)
        check_token_counts(&g, s);
    trl_sampler_free(s);
    golden_close(&g);
}

static void test_sft_goldens(void **state)
{
    (void)state;
    DIR *d = opendir(trl_test_data("golden/sft"));
    assert_non_null(d);
    int n = 0;
    for (struct dirent *e; (e = readdir(d)) != NULL;) {
        if (e->d_name[0] == '.')
            continue;
        check_case(e->d_name);
        n++;
    }
    closedir(d);
    assert_true(n >= 70);
}

/* What TRL did with the malformed files that load. */
static void test_malformed_files(void **state)
{
    (void)state;
    size_t i, k;
    json_t *all = read_malformed_results(), *c, *want;
    json_array_foreach (all, i, c) {
        const char *file = json_string_value(json_object_get(c, "file"));
        json_t *trainer = json_object_get(c, "trainer");
        if (trainer && strcmp(json_string_value(json_object_get(trainer, "name")), "SFT") != 0)
            continue;
        char path[1024];
        snprintf(path, sizeof(path), "%s/%s", trl_test_data("golden/data/malformed"), file);
        struct prepared p;
        PREPARE(&p, "tiny-qwen2", "--dataset_name", path);
        if ((p.rc == 0) != json_is_true(json_object_get(trainer, "ok")))
            fail_msg("%s: rc %d: %s", file, p.rc, p.err.text);
        if (p.rc != 0)
            assert_true(strlen(p.err.text) > 20);
        json_array_foreach (json_object_get(trainer, "prepared"), k, want) {
            struct golden g = {.name = file};
            struct trl_row r;
            trl_dataset_get_row(p.train, (int64_t)k, &r);
            check_list(&g, "ids", (int64_t)k, json_object_get(want, "input_ids"), r.ids, r.len);
        }
        prepared_release(&p);
    }
    json_decref(all);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sft_goldens),
        cmocka_unit_test(test_malformed_files),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
