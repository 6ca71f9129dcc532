/* SPDX-License-Identifier: Apache-2.0 */
/* The data of a run: dataset_name or the mixture in datasets, split into training and evaluation, prepared for SFT. */
#include <math.h>
#include <string.h>

#include "base/alloc.h"
#include "base/log.h"
#include "base/rng.h"
#include "data/dataset.h"
#include "data/prep-finish.h"
#include "data/prep-load.h"

struct source {
    struct trl_files files;
    const json_t *columns;
    double fraction; /* < 0: not given */
    int64_t limit;   /* rows to take; < 0: all */
};

struct open {
    const struct trl_sft_prepare *ask;
    const struct trl_config *cfg;
    struct trl_prep prep;
    struct trl_load load;
    struct source *source;
    size_t n_sources;
    bool mixture, want_eval;
    bool split;             /* cut the evaluation rows off the training rows */
    struct trl_files eval_files; /* n = 0: none */
};

static void open_release(struct open *o)
{
    for (size_t i = 0; o->source && i < o->n_sources; i++)
        trl_files_release(&o->source[i].files);
    trl_free(o->source);
    trl_files_release(&o->eval_files);
}

/* --- sources --- */

static const char *text_of(const json_t *obj, const char *key)
{
    return json_string_value(json_object_get(obj, key));
}

static int check_entry(const json_t *e, size_t i, struct trl_err *err)
{
    static const char *const known[] = {"path", "name", "data_dir", "data_files", "split", "columns", "fraction"};
    static const char *const texts[] = {"path", "name", "data_dir", "split"};
    const char *key;
    json_t *v;
    if (!json_is_object(e))
        return trl_fail(err, TRL_E_USAGE, "datasets: entry %zu is not a mapping with `path`", i + 1);
    json_object_foreach ((json_t *)(uintptr_t)e, key, v) {
        bool found = false;
        for (size_t k = 0; k < sizeof(known) / sizeof(known[0]); k++)
            found |= strcmp(key, known[k]) == 0;
        if (!found)
            return trl_fail(err, TRL_E_USAGE, "datasets: entry %zu has an unknown key '%s'; known are path, name, data_dir, "
                "data_files, split, columns, fraction", i + 1, key);
        for (size_t k = 0; k < sizeof(texts) / sizeof(texts[0]); k++)
            if (strcmp(key, texts[k]) == 0 && !json_is_null(v) && !json_is_string(v))
                return trl_fail(err, TRL_E_USAGE, "datasets: `%s` of entry %zu must be a text", key, i + 1);
    }
    if (!text_of(e, "path"))
        return trl_fail(err, TRL_E_USAGE, "datasets: entry %zu has no `path`", i + 1);
    if (text_of(e, "name") && strcmp(text_of(e, "name"), "default") != 0)
        return trl_fail(err, TRL_E_UNSUPPORTED, "datasets: `name: %s` of entry %zu: local files have no named configurations; use "
            "data_files or data_dir", text_of(e, "name"), i + 1);
    size_t k;
    json_t *columns = json_object_get(e, "columns"), *c;
    if (columns && !json_is_null(columns) && !json_is_array(columns))
        return trl_fail(err, TRL_E_USAGE, "datasets: `columns` of entry %zu must be a list of names", i + 1);
    json_array_foreach (columns, k, c)
        if (!json_is_string(c))
            return trl_fail(err, TRL_E_USAGE, "datasets: `columns` of entry %zu must be a list of names", i + 1);
    return 0;
}

static int add_entry(struct open *o, struct source *s, const json_t *e, size_t i, struct trl_err *err)
{
    int rc = check_entry(e, i, err);
    if (rc != 0)
        return rc;
    const json_t *columns = json_object_get(e, "columns"), *fraction = json_object_get(e, "fraction");
    s->columns = json_is_array(columns) ? columns : NULL;
    s->fraction = -1;
    if (fraction && !json_is_null(fraction)) {
        if (!json_is_number(fraction) || !(json_number_value(fraction) >= 0) || !isfinite(json_number_value(fraction)))
            return trl_fail(err, TRL_E_RANGE, "datasets: `fraction` of entry %zu must be a number of at least 0", i + 1);
        s->fraction = json_number_value(fraction);
    }
    (void)o;
    return trl_files_find(&s->files, &(struct trl_files_spec){.path = text_of(e, "path"), .data_dir = text_of(e, "data_dir"),
        .data_files = json_object_get(e, "data_files"), .split = text_of(e, "split") ? text_of(e, "split") : "train",
        .option = "datasets: path"}, err);
}

/* TRL: shares are normalised; the mixture is as large as can be without taking more of a data set than it has. */
static int apply_fractions(struct open *o, struct trl_err *err)
{
    size_t given = 0;
    double sum = 0, total = INFINITY;
    for (size_t i = 0; i < o->n_sources; i++) {
        given += o->source[i].fraction >= 0;
        sum += o->source[i].fraction;
    }
    if (given == 0)
        return 0;
    if (given != o->n_sources)
        return trl_fail(err, TRL_E_USAGE, "datasets: `fraction` must be given for all entries or for none (%zu of %zu have it)",
            given, o->n_sources);
    if (!(sum > 0) || !isfinite(sum))
        return trl_fail(err, TRL_E_USAGE, "datasets: the fractions add up to %g", sum);
    for (size_t i = 0; i < o->n_sources; i++) {
        struct source *s = &o->source[i];
        int rc = trl_load_count(&o->load, &s->files, &s->limit, err);
        if (rc != 0)
            return rc;
        if (s->fraction > 0)
            total = fmin(total, (double)s->limit / (s->fraction / sum));
    }
    for (size_t i = 0; i < o->n_sources; i++)
        o->source[i].limit = (int64_t)rint(o->source[i].fraction / sum * total); /* half to even, as Python's round() */
    return 0;
}

static int find_sources(struct open *o, struct trl_err *err)
{
    const struct trl_config *cfg = o->cfg;
    o->mixture = json_array_size(cfg->datasets) > 0;
    o->n_sources = o->mixture ? json_array_size(cfg->datasets) : 1;
    o->source = trl_calloc(o->n_sources, sizeof(*o->source));
    if (!o->source)
        return trl_fail_nomem(err, o->n_sources * sizeof(*o->source), "data sources");
    for (size_t i = 0; i < o->n_sources; i++) {
        o->source[i].limit = -1;
        o->source[i].fraction = -1;
    }
    if (!o->mixture)
        return cfg->dataset_name
            ? trl_files_find(&o->source[0].files, &(struct trl_files_spec){.path = cfg->dataset_name,
                  .split = cfg->dataset_train_split, .option = "dataset_name"}, err)
            : trl_fail(err, TRL_E_USAGE, "no data: give dataset_name (a file, a folder or a glob) or datasets");
    if (cfg->dataset_name)
        trl_warn("both datasets and dataset_name are given; dataset_name is ignored");
    if (strcmp(cfg->dataset_train_split, "train") != 0)
        return trl_fail(err, TRL_E_USAGE, "dataset_train_split '%s': a mixture (datasets) has the split 'train', and 'test' with "
            "test_split_size", cfg->dataset_train_split);
    int rc = 0;
    for (size_t i = 0; i < o->n_sources && rc == 0; i++)
        rc = add_entry(o, &o->source[i], json_array_get(cfg->datasets, i), i, err);
    return rc;
}

/* Where evaluation rows come from. TRL splits mixtures only, and then always; we also split a dataset_name that has no test
 * files, where TRL would stop. */
static int find_eval(struct open *o, struct trl_err *err)
{
    const struct trl_config *cfg = o->cfg;
    o->want_eval = strcmp(cfg->eval_strategy, "no") != 0;
    o->split = o->mixture && cfg->test_split_size.set;
    if (!o->want_eval)
        return 0;
    if (o->mixture) {
        if (!o->split)
            return trl_fail(err, TRL_E_USAGE, "eval_strategy is '%s', but a mixture has no evaluation rows; give test_split_size",
                cfg->eval_strategy);
        if (strcmp(cfg->dataset_test_split, "test") != 0)
            return trl_fail(err, TRL_E_USAGE, "dataset_test_split '%s': test_split_size makes the split 'test'", cfg->dataset_test_split);
        return 0;
    }
    struct trl_err why = {0};
    int rc = trl_files_find(&o->eval_files, &(struct trl_files_spec){.path = cfg->dataset_name,
        .split = cfg->dataset_test_split, .option = "dataset_name"}, &why);
    if (rc == TRL_E_NOENT && cfg->test_split_size.set) {
        o->split = true;
        return 0;
    }
    if (rc == 0 && cfg->test_split_size.set)
        trl_warn("test_split_size is ignored: %s has a split '%s'", cfg->dataset_name, cfg->dataset_test_split);
    if (rc != 0)
        return trl_fail(err, rc, "eval_strategy is '%s', but there are no evaluation rows: %s; add a file test.jsonl in the folder, or "
            "give test_split_size", cfg->eval_strategy, why.text);
    return 0;
}

/* --- settings --- */

static bool is_conversation(const json_t *row)
{
    static const char *const names[] = {"prompt", "completion", "messages", "conversations"};
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        const json_t *m = json_array_get(json_object_get(row, names[i]), 0);
        if (json_object_get(m, "role") || (i == 3 && json_object_get(m, "from")))
            return true;
    }
    return false;
}

/* What TRL decides from the first training row. */
static int look_at_first_row(struct open *o, struct trl_err *err)
{
    const struct trl_config *cfg = o->cfg;
    json_t *row = NULL;
    int rc = 0;
    for (size_t i = 0; i < o->n_sources && rc == 0 && !row; i++)
        if (o->source[i].limit != 0)
            rc = trl_load_first(&o->load, &o->source[i].files, &row, err);
    if (rc != 0)
        return rc;
    if (!row)
        return trl_fail(err, TRL_E_DATA, "%s: no rows in it", o->mixture ? "datasets" : cfg->dataset_name);
    o->prep.completion_only = cfg->completion_only_loss.set ? cfg->completion_only_loss.value : trl_prep_has_completion(row);
    if (o->prep.assistant_only && !is_conversation(row))
        rc = trl_fail(err, TRL_E_USAGE, "assistant_only_loss needs conversations (messages, or prompt and completion as messages); "
            "the first row has none");
    else if (o->prep.assistant_only && (!o->prep.tpl || !trl_template_has_generation(o->prep.tpl)))
        rc = trl_fail(err, TRL_E_USAGE, "assistant_only_loss needs a chat template that marks the assistant's text with "
            "{%% generation %%}; give chat_template_path");
    json_decref(row);
    return rc;
}

static int set_up(struct open *o, struct trl_err *err)
{
    const struct trl_config *cfg = o->cfg;
    const json_t *skip = json_object_get(cfg->dataset_kwargs, "skip_prepare_dataset");
    bool eval_packing = cfg->eval_packing.set ? cfg->eval_packing.value : cfg->packing;
    o->prep = (struct trl_prep){
        .tok = o->ask->tok,
        .tpl = o->ask->tpl,
        .text_field = cfg->dataset_text_field,
        .eos = o->ask->tok ? trl_tokenizer_special(o->ask->tok, TRL_TOKEN_EOS) : NULL,
        .assistant_only = cfg->assistant_only_loss,
        .skip_prepare = json_is_true(skip),
        .keep_end = strcmp(cfg->truncation_mode, "keep_end") == 0,
        .vocab_size = o->ask->vocab_size,
        .template_kwargs = cfg->chat_template_kwargs,
    };
    /* cut rows early where nobody needs their rest */
    if (cfg->max_length.set && !o->prep.skip_prepare && !cfg->packing && !eval_packing)
        o->prep.cut = cfg->max_length.value;
    o->load = (struct trl_load){.prep = &o->prep, .pool = o->ask->pool, .skip_bad = cfg->skip_bad_rows};
    if ((cfg->packing || eval_packing) && !cfg->max_length.set)
        return trl_fail(err, TRL_E_USAGE, "packing needs max_length, the length of a pack");
    if (cfg->padding_free && !cfg->packing && cfg->max_length.set && !o->prep.skip_prepare)
        return trl_fail(err, TRL_E_USAGE, "padding_free without packing does not cut rows: set max_length to None, or packing to true");
    return 0;
}

static struct trl_finish finish_of(const struct open *o, bool eval)
{
    const struct trl_config *cfg = o->cfg;
    static const char *const names[] = {"bfd", "bfd_split", "wrapped"};
    struct trl_finish f = {
        .packing = eval && cfg->eval_packing.set ? cfg->eval_packing.value : cfg->packing,
        .max_length = cfg->max_length.set ? cfg->max_length.value : 0,
        .keep_end = o->prep.keep_end,
        .shuffle = cfg->shuffle_dataset,
        .seed = (uint64_t)cfg->seed,
        .flat = cfg->padding_free || (cfg->packing && strcmp(cfg->packing_strategy, "wrapped") != 0),
        .keep_all = o->prep.skip_prepare,
        .max_positions = o->ask->max_positions,
        .what = eval ? "evaluation" : "training",
    };
    for (int i = 0; i < TRL_PACK_MAX_; i++)
        if (strcmp(cfg->packing_strategy, names[i]) == 0)
            f.strategy = (enum trl_packing)i;
    return f;
}

/* --- rows --- */

static int load_training(struct open *o, struct trl_store *s, struct trl_err *err)
{
    int rc = 0;
    for (size_t i = 0; i < o->n_sources && rc == 0; i++) {
        o->prep.columns = o->source[i].columns;
        rc = trl_load_files(&o->load, &o->source[i].files, o->source[i].limit, s, err);
    }
    o->prep.columns = NULL;
    return rc;
}

static int report_skipped(struct open *o, size_t good, struct trl_err *err)
{
    if (o->load.skipped == 0)
        return 0;
    if (good == 0)
        return trl_fail(err, TRL_E_DATA, "all %lld rows are bad; the first: %s", (long long)o->load.skipped, o->load.first_bad.text);
    trl_warn("skip_bad_rows: left out %lld of %lld rows; the first: %s", (long long)o->load.skipped,
        (long long)(o->load.skipped + o->load.rows), o->load.first_bad.text);
    o->load.skipped = 0;
    return 0;
}

/* datasets' train_test_split: the permutation's head is the test split, the rest the training split. TRL does not seed it; we
 * use `seed`. */
static int split_rows(const struct open *o, int64_t n, int64_t **ret_order, int64_t *ret_test, struct trl_err *err)
{
    double size = o->cfg->test_split_size.value;
    double test = size < 1 ? ceil(size * (double)n) : size;
    if (!(size > 0) || (size >= 1 && size != floor(size)) || test >= (double)n)
        return trl_fail(err, TRL_E_RANGE, "test_split_size %g of %lld rows: it must be a share between 0 and 1, or a whole number of "
            "rows below %lld", size, (long long)n, (long long)n);
    int64_t *order = trl_malloc_array((size_t)n, sizeof(*order));
    if (!order)
        return trl_fail_nomem(err, (size_t)n * sizeof(*order), "the order of rows");
    struct trl_pcg64 g;
    trl_pcg64_seed(&g, (uint64_t)o->cfg->seed);
    trl_pcg64_permutation(&g, order, n);
    *ret_order = order;
    *ret_test = (int64_t)test;
    return 0;
}

static int finish_split(struct open *o, struct trl_store *s, struct trl_dataset **train, struct trl_dataset **eval,
    struct trl_err *err)
{
    int64_t *order = NULL, n = (int64_t)s->n_rows, test = 0;
    int rc = split_rows(o, n, &order, &test, err);
    if (rc != 0)
        return rc;
    struct trl_finish f = finish_of(o, true);
    if (o->want_eval)
        rc = trl_finish_rows(eval, s, order, test, false, &f, err);
    f = finish_of(o, false);
    if (rc == 0)
        rc = trl_finish_rows(train, s, order + test, n - test, true, &f, err);
    trl_free(order);
    return rc;
}

static int finish_eval(struct open *o, struct trl_dataset **eval, struct trl_err *err)
{
    struct trl_store s = {0};
    struct trl_finish f = finish_of(o, true);
    int rc = trl_load_files(&o->load, &o->eval_files, -1, &s, err);
    if (rc == 0)
        rc = report_skipped(o, s.n_rows, err);
    if (rc == 0)
        rc = trl_finish_rows(eval, &s, NULL, 0, true, &f, err);
    trl_store_release(&s);
    return rc;
}

int trl_dataset_open_sft(struct trl_dataset **ret_train, struct trl_dataset **ret_eval, const struct trl_sft_prepare *prep,
    struct trl_err *err)
{
    struct open o = {.ask = prep, .cfg = prep->cfg};
    struct trl_store s = {0};
    struct trl_dataset *train = NULL, *eval = NULL;
    int rc = set_up(&o, err);
    if (rc == 0)
        rc = find_sources(&o, err);
    if (rc == 0)
        rc = find_eval(&o, err);
    if (rc == 0)
        rc = apply_fractions(&o, err);
    if (rc == 0)
        rc = look_at_first_row(&o, err);
    if (rc == 0)
        rc = load_training(&o, &s, err);
    if (rc == 0)
        rc = report_skipped(&o, s.n_rows, err);
    if (rc == 0 && o.split) {
        rc = finish_split(&o, &s, &train, &eval, err);
    } else if (rc == 0) {
        struct trl_finish f = finish_of(&o, false);
        rc = trl_finish_rows(&train, &s, NULL, 0, true, &f, err);
    }
    trl_store_release(&s);
    if (rc == 0 && o.eval_files.n > 0)
        rc = finish_eval(&o, &eval, err);
    if (rc == 0 && o.load.prompt_differs)
        trl_warn("some prompts do not end where their tokens meet those of the completion (tokens merge across the border, or the chat "
            "template renders the prompt alone differently): the completion begins where the two differ");
    open_release(&o);
    if (rc != 0) {
        trl_dataset_free(train);
        trl_dataset_free(eval);
        return rc;
    }
    *ret_train = train;
    *ret_eval = eval;
    return 0;
}
