/* SPDX-License-Identifier: Apache-2.0 */
/* What follows from the options together: derived values and forbidden combinations, as TRL's and
 * transformers' configurations have. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "config/options.h"

#define FROM(name) trl_config_source(cfg, name)

static bool is(const char *s, const char *word)
{
    return s && !strcmp(s, word);
}

/* "~" and "~/x" with HOME. */
static int expand_home(struct trl_config *cfg, const char **path, struct trl_err *err)
{
    const char *home = getenv("HOME");
    if (!*path || **path != '~' || !home || ((*path)[1] && (*path)[1] != '/'))
        return 0;
    *path = trl_arena_printf(&cfg->arena, "%s%s", home, *path + 1);
    return *path ? 0 : trl_fail_nomem(err, 0, "a path");
}

static int finish_paths(struct trl_config *cfg, struct trl_err *err)
{
    const char **paths[] = {&cfg->output_dir, &cfg->model_name_or_path, &cfg->dataset_name,
        &cfg->chat_template_path, &cfg->resume_from_checkpoint};
    if (!cfg->output_dir)
        cfg->output_dir = "trainer_output";
    if (!*cfg->output_dir)
        return trl_fail(err, TRL_E_USAGE, "output_dir: the text is empty (%s); wanted: a folder",
            FROM("output_dir"));
    if (is(cfg->resume_from_checkpoint, "false") || is(cfg->resume_from_checkpoint, "False"))
        cfg->resume_from_checkpoint = NULL;
    else if (is(cfg->resume_from_checkpoint, "True"))
        cfg->resume_from_checkpoint = "true";
    int rc = 0;
    for (size_t i = 0; i < sizeof(paths) / sizeof(paths[0]); i++)
        rc = rc ? rc : expand_home(cfg, paths[i], err);
    return rc;
}

static int finish_checkpointing(struct trl_config *cfg)
{
    if (!cfg->activation_checkpointing.set)
        cfg->activation_checkpointing = (struct trl_opt_bool){true, cfg->gradient_checkpointing};
    cfg->gradient_checkpointing = cfg->activation_checkpointing.value;
    if (!cfg->activation_checkpointing_kwargs)
        cfg->activation_checkpointing_kwargs = json_incref(cfg->gradient_checkpointing_kwargs);
    json_decref(cfg->gradient_checkpointing_kwargs);
    cfg->gradient_checkpointing_kwargs = json_incref(cfg->activation_checkpointing_kwargs);
    return 0;
}

/* Steps of 1 or more are whole; below 1 they are a share of the run. */
static int check_steps(const struct trl_config *cfg, const char *strategy, const char *name,
    double v, struct trl_err *err)
{
    if (is(strategy, "steps") && v > 1 && v != floor(v))
        return trl_fail(err, TRL_E_RANGE,
            "%s: %g is not possible (%s); wanted: a whole number, or a share of all steps below 1",
            name, v, FROM(name));
    return 0;
}

static int finish_intervals(struct trl_config *cfg, struct trl_err *err)
{
    if (is(cfg->logging_strategy, "steps") && cfg->logging_steps == 0)
        return trl_fail(err, TRL_E_RANGE,
            "logging_steps: 0 is not possible with logging_strategy steps (%s); wanted: 1 or more, "
            "a share below 1, or "
            "logging_strategy no",
            FROM("logging_steps"));
    if (is(cfg->eval_strategy, "steps") && (!cfg->eval_steps.set || cfg->eval_steps.value == 0)) {
        if (cfg->logging_steps <= 0)
            return trl_fail(err, TRL_E_USAGE,
                "eval_strategy steps wants eval_steps or logging_steps (%s)",
                FROM("eval_strategy"));
        cfg->eval_steps = (struct trl_opt_float){true, cfg->logging_steps};
    }
    int rc = check_steps(cfg, cfg->logging_strategy, "logging_steps", cfg->logging_steps, err);
    rc = rc ? rc : check_steps(cfg, cfg->eval_strategy, "eval_steps", cfg->eval_steps.value, err);
    return rc ? rc : check_steps(cfg, cfg->save_strategy, "save_steps", cfg->save_steps, err);
}

static int finish_best(struct trl_config *cfg, struct trl_err *err)
{
    bool by_metric =
        is(cfg->lr_scheduler_type, "reduce_lr_on_plateau") || is(cfg->lr_scheduler_type, "greedy");
    if (by_metric && is(cfg->eval_strategy, "no"))
        return trl_fail(err, TRL_E_USAGE,
            "lr_scheduler_type: %s follows the evaluation (%s), and eval_strategy is no; wanted: "
            "eval_strategy steps or epoch",
            cfg->lr_scheduler_type, FROM("lr_scheduler_type"));
    if (is(cfg->save_strategy, "best") && !cfg->metric_for_best_model &&
        !cfg->load_best_model_at_end)
        return trl_fail(err, TRL_E_USAGE, "save_strategy: best wants metric_for_best_model (%s)",
            FROM("save_strategy"));
    if (is(cfg->save_strategy, "best") && is(cfg->eval_strategy, "no"))
        return trl_fail(err, TRL_E_USAGE,
            "save_strategy: best follows the evaluation (%s), and eval_strategy is no; wanted: "
            "eval_strategy steps or epoch",
            FROM("save_strategy"));
    if ((cfg->load_best_model_at_end || by_metric) && !cfg->metric_for_best_model)
        cfg->metric_for_best_model = "loss";
    if (!cfg->greater_is_better.set && cfg->metric_for_best_model)
        cfg->greater_is_better =
            (struct trl_opt_bool){true, !trl_ends_with(cfg->metric_for_best_model, "loss")};
    if (!cfg->load_best_model_at_end || is(cfg->save_strategy, "best"))
        return 0;
    if (strcmp(cfg->eval_strategy, cfg->save_strategy))
        return trl_fail(err, TRL_E_USAGE,
            "load_best_model_at_end wants equal eval_strategy and save_strategy, or save_strategy "
            "best; eval_strategy is %s "
            "(%s), save_strategy is %s (%s)",
            cfg->eval_strategy, FROM("eval_strategy"), cfg->save_strategy, FROM("save_strategy"));
    if (!is(cfg->eval_strategy, "steps"))
        return 0;
    double e = cfg->eval_steps.value, s = cfg->save_steps;
    bool both_share = e < 1 && s < 1,
         multiple = both_share ? fmod(s * 1e6, e * 1e6) == 0 : e >= 1 && s >= 1 && fmod(s, e) == 0;
    if (!multiple)
        return trl_fail(err, TRL_E_USAGE,
            "load_best_model_at_end wants save_steps to be a multiple of eval_steps (both whole, "
            "or both shares); save_steps is "
            "%g (%s), eval_steps is %g (%s)",
            s, FROM("save_steps"), e, FROM("eval_steps"));
    return 0;
}

/* Precision: fp16, else bf16 (on unless fp16 is), else what accelerate's mixed_precision says. */
static int finish_precision(struct trl_config *cfg, struct trl_err *err)
{
    if (!cfg->bf16.set)
        cfg->bf16 = (struct trl_opt_bool){true, !cfg->fp16};
    if (cfg->fp16 && cfg->bf16.value)
        return trl_fail(err, TRL_E_USAGE, "fp16 and bf16 are both on (%s; %s); wanted: at most one",
            FROM("fp16"), FROM("bf16"));
    if (cfg->fp16_full_eval && cfg->bf16_full_eval)
        return trl_fail(err, TRL_E_USAGE,
            "fp16_full_eval and bf16_full_eval are both on (%s; %s); wanted: at most one",
            FROM("fp16_full_eval"), FROM("bf16_full_eval"));
    const char *now = cfg->fp16 ? "fp16" : cfg->bf16.value ? "bf16" : "no";
    if (cfg->mixed_precision && strcmp(now, "no") && strcmp(now, cfg->mixed_precision))
        trl__config_notice(cfg,
            "mixed_precision %s (%s) has no effect: %s is on, which counts more, as in TRL; --bf16 "
            "false turns it off",
            cfg->mixed_precision, FROM("mixed_precision"), now);
    else if (is(cfg->mixed_precision, "bf16"))
        cfg->bf16.value = true;
    else if (is(cfg->mixed_precision, "fp16"))
        cfg->fp16 = true;
    return 0;
}

static int finish_packing(struct trl_config *cfg, struct trl_err *err)
{
    bool bfd = !is(cfg->packing_strategy, "wrapped");
    if (!cfg->eval_packing.set)
        cfg->eval_packing = (struct trl_opt_bool){true, cfg->packing};
    if ((cfg->packing || cfg->eval_packing.value) && !cfg->max_length.set)
        return trl_fail(err, TRL_E_USAGE, "packing wants a max_length, and it is none (%s)",
            FROM("max_length"));
    if (cfg->padding_free && !cfg->packing && cfg->max_length.set)
        return trl_fail(err, TRL_E_USAGE,
            "padding_free without packing does not hold max_length, which is %lld (%s); wanted: "
            "packing true, or max_length none",
            (long long)cfg->max_length.value, FROM("max_length"));
    if (cfg->padding_free && cfg->packing && !bfd)
        trl__config_notice(cfg,
            "padding_free with packing_strategy wrapped: packs have no borders there, so rows see "
            "each other; bfd keeps them apart");
    if (is(cfg->truncation_mode, "keep_end"))
        trl__config_notice(cfg, "truncation_mode keep_end is deprecated in TRL");
    if (is(cfg->loss_type, "chunked_nll")) {
        trl__config_notice(
            cfg, "loss_type chunked_nll is an old name of nll (%s)", FROM("loss_type"));
        cfg->loss_type = "nll";
    }
    cfg->flat = cfg->padding_free || (cfg->packing && bfd);
    return 0;
}

static int finish_report(struct trl_config *cfg, struct trl_err *err)
{
    json_t *list = json_array();
    size_t i;
    json_t *v;
    int rc = list ? 0 : trl_fail_nomem(err, 0, "report_to");
    json_array_foreach(cfg->report_to, i, v)
    {
        const char *s = json_string_value(v);
        if ((is(s, "none") || is(s, "all")) && json_array_size(cfg->report_to) > 1)
            rc = trl_fail(err, TRL_E_USAGE,
                "report_to: %s stands beside other names (%s); wanted: it alone", s,
                FROM("report_to"));
        if (!is(s, "none") && !rc && json_array_append_new(list, json_string("tensorboard")))
            rc = trl_fail_nomem(err, 0, "report_to");
    }
    json_decref(cfg->report_to);
    cfg->report_to = list;
    return rc;
}

/* Give an option the value that a key of model_init_kwargs has. */
static int take_model_key(
    struct trl_config *cfg, const char *key, const json_t *v, struct trl_err *err)
{
    const char *from = FROM("model_init_kwargs"), *s = json_string_value(v);
    const struct trl_option *o = trl_option_find(is(key, "revision") ? "model_revision" : key);
    if (is(key, "low_cpu_mem_usage") || is(key, "device_map") || is(key, "use_safetensors") ||
        is(key, "use_cache") || is(key, "use_kernels") || is(key, "trust_remote_code") ||
        json_is_null(v))
        return 0;
    if (!is(key, "dtype") && !is(key, "torch_dtype") && !is(key, "attn_implementation") &&
        !is(key, "revision"))
        return trl_fail(err, TRL_E_UNSUPPORTED,
            "model_init_kwargs: the key %s is not supported (%s); known are dtype, "
            "attn_implementation, revision and "
            "trust_remote_code",
            key, from);
    if (!s)
        return trl_fail(err, TRL_E_USAGE, "model_init_kwargs: %s is not a text (%s)", key, from);
    if (trl_starts_with(s, "torch."))
        s += 6;
    int rc = trl_option_set_text(cfg, o, s, from, err);
    if (!rc)
        cfg->source[trl_option_index(o)] = from;
    return rc;
}

static int finish_model(struct trl_config *cfg, struct trl_err *err)
{
    const char *key;
    json_t *v;
    int rc = 0;
    json_object_foreach(cfg->model_init_kwargs, key, v)
    {
        rc = rc ? rc : take_model_key(cfg, key, v, err);
    }
    if (!rc && !cfg->dtype)
        cfg->dtype = "float32";
    if (!rc && cfg->fp16 && is(cfg->dtype, "float16"))
        rc = trl_fail(err, TRL_E_USAGE,
            "fp16 (%s) with dtype float16 (%s): gradients in float16 cannot be unscaled; wanted: "
            "dtype float32",
            FROM("fp16"), FROM("dtype"));
    return rc ? rc : trl_config_parse_size(cfg->max_shard_size, &cfg->max_shard_bytes, err);
}

/* Dictionaries with a few known keys; for each the values that are what happens anyway. */
static int check_accelerator(const struct trl_config *cfg, struct trl_err *err)
{
    const char *key;
    json_t *v;
    json_object_foreach(cfg->accelerator_config, key, v)
    {
        bool fine;
        if (is(key, "even_batches") || is(key, "use_seedable_sampler"))
            fine = json_is_true(v);
        else if (is(key, "split_batches"))
            fine = json_is_false(v);
        else if (is(key, "dispatch_batches") || is(key, "use_configured_state") ||
            is(key, "gradient_accumulation_kwargs"))
            fine = json_is_null(v) || json_is_false(v);
        else if (is(key, "non_blocking") || is(key, "data_seed"))
            fine = true;
        else
            return trl_fail(err, TRL_E_USAGE,
                "accelerator_config: unknown key %s (%s); known are even_batches, split_batches, "
                "dispatch_batches, "
                "use_seedable_sampler, non_blocking",
                key, FROM("accelerator_config"));
        if (!fine)
            return trl_fail(err, TRL_E_UNSUPPORTED,
                "accelerator_config: only the default of %s is supported (%s)", key,
                FROM("accelerator_config"));
    }
    return 0;
}

static int check_dataset_kwargs(const struct trl_config *cfg, struct trl_err *err)
{
    const char *key;
    json_t *v;
    json_object_foreach(cfg->dataset_kwargs, key, v)
    {
        if (!is(key, "skip_prepare_dataset"))
            return trl_fail(err, TRL_E_USAGE,
                "dataset_kwargs: unknown key %s (%s); known is skip_prepare_dataset", key,
                FROM("dataset_kwargs"));
        if (!json_is_false(v))
            return trl_fail(err, TRL_E_UNSUPPORTED,
                "dataset_kwargs: skip_prepare_dataset is not supported (%s): tokenised rows are "
                "recognised by themselves",
                FROM("dataset_kwargs"));
    }
    return 0;
}

static bool is_str_list(const json_t *v)
{
    size_t i;
    json_t *s;
    json_array_foreach(v, i, s)
    {
        if (!json_is_string(s))
            return false;
    }
    return json_is_array(v);
}

static bool is_str_map(const json_t *v)
{
    const char *key;
    json_t *s;
    json_object_foreach((json_t *)v, key, s)
    {
        if (!json_is_string(s) && !is_str_list(s))
            return false;
    }
    return json_is_object(v);
}

/* One entry of `datasets`. *ret_fraction: it has one. */
static int check_mixture_entry(const struct trl_config *cfg, size_t i, const json_t *d,
    bool *ret_fraction, struct trl_err *err)
{
    const char *key, *from = FROM("datasets");
    json_t *v;
    if (!json_is_object(d) || !json_is_string(json_object_get(d, "path")))
        return trl_fail(err, TRL_E_USAGE,
            "datasets: entry %zu has no path (%s); wanted: a map like {path: FILE, split: train, "
            "fraction: 0.5}",
            i + 1, from);
    json_object_foreach((json_t *)d, key, v)
    {
        bool fine = json_is_null(v), known = true;
        if (is(key, "path") || is(key, "split") || is(key, "data_dir"))
            fine |= json_is_string(v);
        else if (is(key, "data_files"))
            fine |= json_is_string(v) || is_str_list(v) || is_str_map(v);
        else if (is(key, "columns"))
            fine |= is_str_list(v);
        else if (is(key, "fraction"))
            fine |= json_is_number(v) && json_number_value(v) > 0;
        else
            known = is(key, "name");
        if (!known)
            return trl_fail(err, TRL_E_USAGE,
                "datasets: entry %zu has the unknown key %s (%s); known are path, data_dir, "
                "data_files, split, columns, fraction",
                i + 1, key, from);
        if (!fine)
            return trl_fail(err, TRL_E_USAGE,
                "datasets: entry %zu: the value of %s is not possible (%s); wanted: %s", i + 1, key,
                from,
                is(key, "fraction")      ? "a number above 0"
                    : is(key, "columns") ? "a list of names"
                    : is(key, "name")    ? "none, as local files have no named "
                                           "configurations"
                                         : "text");
    }
    v = json_object_get(d, "fraction");
    *ret_fraction = json_is_number(v);
    return 0;
}

static int check_mixture(const struct trl_config *cfg, struct trl_err *err)
{
    size_t i, with = 0;
    json_t *d;
    json_array_foreach(cfg->datasets, i, d)
    {
        bool fraction = false;
        int rc = check_mixture_entry(cfg, i, d, &fraction, err);
        if (rc)
            return rc;
        with += fraction;
    }
    if (with && with != json_array_size(cfg->datasets))
        return trl_fail(err, TRL_E_USAGE,
            "datasets: %zu of %zu entries have a fraction (%s); wanted: all or none", with,
            json_array_size(cfg->datasets), FROM("datasets"));
    return 0;
}

/* `split` of a mixture's entry is train unless it is given. */
static int default_splits(const struct trl_config *cfg, struct trl_err *err)
{
    size_t i;
    json_t *d;
    json_array_foreach(cfg->datasets, i, d)
    {
        if (!json_is_string(json_object_get(d, "split")) &&
            json_object_set_new(d, "split", json_string("train")))
            return trl_fail_nomem(err, 0, "datasets");
    }
    return 0;
}

static int finish_data(struct trl_config *cfg, struct trl_err *err)
{
    int rc = check_mixture(cfg, err);
    rc = rc ? rc : default_splits(cfg, err);
    rc = rc ? rc : check_dataset_kwargs(cfg, err);
    rc = rc ? rc : check_accelerator(cfg, err);
    if (!rc && cfg->dataset_name && json_array_size(cfg->datasets))
        trl__config_notice(
            cfg, "dataset_name has no effect: datasets is given too, which counts more");
    if (!rc && cfg->test_split_size.set && cfg->test_split_size.value > 1 &&
        cfg->test_split_size.value != floor(cfg->test_split_size.value))
        rc = trl_fail(err, TRL_E_RANGE,
            "test_split_size: %g is not possible (%s); wanted: a whole number of rows, or a share "
            "below 1",
            cfg->test_split_size.value, FROM("test_split_size"));
    return rc;
}

static int finish_processes(struct trl_config *cfg, struct trl_err *err)
{
    if (cfg->accelerate_gpu_type && !cfg->use_cpu)
        return trl_fail(err, TRL_E_UNSUPPORTED,
            "%s asks for GPUs (distributed_type: %s), and this program trains on CPUs here; add "
            "`--use_cpu true --num_processes 2` to train with 2 processes (or another number) on CPUs",
            cfg->accelerate_path, cfg->accelerate_gpu_type);
    cfg->use_cpu = true;
    if (cfg->machine_rank >= cfg->num_machines)
        return trl_fail(err, TRL_E_RANGE,
            "machine_rank: %lld is out of range (%s); wanted: below num_machines, which is %lld",
            (long long)cfg->machine_rank, FROM("machine_rank"), (long long)cfg->num_machines);
    if (cfg->num_processes.set && cfg->num_processes.value % cfg->num_machines)
        return trl_fail(err, TRL_E_RANGE,
            "num_processes: %lld (%s) cannot be divided evenly among num_machines, which is %lld "
            "(%s)",
            (long long)cfg->num_processes.value, FROM("num_processes"),
            (long long)cfg->num_machines, FROM("num_machines"));
    if (cfg->save_on_each_node && cfg->num_machines > 1)
        return trl_fail(err, TRL_E_UNSUPPORTED,
            "save_on_each_node is not supported with several machines (%s): rank 0 writes, to a "
            "folder that all of them see",
            FROM("save_on_each_node"));
    return 0;
}

int trl__config_finish(struct trl_config *cfg, struct trl_err *err)
{
    int rc = finish_paths(cfg, err);
    rc = rc ? rc : finish_checkpointing(cfg);
    rc = rc ? rc : finish_intervals(cfg, err);
    rc = rc ? rc : finish_best(cfg, err);
    rc = rc ? rc : finish_precision(cfg, err);
    rc = rc ? rc : finish_packing(cfg, err);
    rc = rc ? rc : finish_report(cfg, err);
    rc = rc ? rc : finish_model(cfg, err);
    rc = rc ? rc : finish_data(cfg, err);
    return rc ? rc : finish_processes(cfg, err);
}

int trl_config_require(const struct trl_config *cfg, struct trl_err *err)
{
    if (!cfg->model_name_or_path)
        return trl_fail(err, TRL_E_USAGE,
            "model_name_or_path is missing; wanted: --model_name_or_path FOLDER, or the key in a "
            "run file");
    if (!cfg->dataset_name && !json_array_size(cfg->datasets))
        return trl_fail(err, TRL_E_USAGE,
            "dataset_name is missing; wanted: --dataset_name FILE or FOLDER, or datasets in a run "
            "file");
    return 0;
}

int trl_config_parse_size(const char *text, int64_t *ret, struct trl_err *err)
{
    static const struct {
        const char *name;
        double factor;
    } units[] = {{"", 1}, {"B", 1}, {"KB", 1e3}, {"MB", 1e6}, {"GB", 1e9}, {"TB", 1e12},
        {"KIB", 1024}, {"MIB", 1048576}, {"GIB", 1073741824}, {"TIB", 1099511627776.0}};
    char number[32], unit[8];
    double v;
    size_t n = strspn(text, "0123456789."), m = 0;
    const char *p = text + n + strspn(text + n, " ");
    for (; p[m] && m < sizeof(unit) - 1; m++)
        unit[m] = (char)(p[m] >= 'a' && p[m] <= 'z' ? p[m] - 32 : p[m]);
    unit[m] = 0;
    if (n && n < sizeof(number) && !p[m]) {
        memcpy(number, text, n);
        number[n] = 0;
        for (size_t i = 0; i < sizeof(units) / sizeof(units[0]); i++)
            if (!strcmp(unit, units[i].name) && trl_parse_f64(number, &v) &&
                v * units[i].factor >= 1 && v * units[i].factor < 9e18) {
                *ret = (int64_t)(v * units[i].factor);
                return 0;
            }
    }
    return trl_fail(err, TRL_E_USAGE,
        "max_shard_size: \"%.100s\" is not a size; wanted: a number with a unit, as 5GB or 500MiB",
        text);
}
