/* SPDX-License-Identifier: Apache-2.0 */
/* The accelerate file: processes, machines, precision. What asks for hardware or sharding that is
 * not here is refused by name. */
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/fileio.h"
#include "config/options.h"

/* Top-level keys that accelerate knows. OPTION: the option of the same name takes the value. */
enum key_use {
    KEY_OPTION,
    KEY_IGNORED,
    KEY_HERE,
    KEY_PRECISION_OFF,
    KEY_REFUSED_MAP,
    KEY_SAGEMAKER
};
static const struct {
    const char *name;
    enum key_use use;
} keys[] = {
    {"base_job_name", KEY_SAGEMAKER},
    {"command_file", KEY_IGNORED},
    {"commands", KEY_IGNORED},
    {"compute_environment", KEY_HERE},
    {"debug", KEY_IGNORED},
    {"deepspeed_config", KEY_REFUSED_MAP},
    {"distributed_type", KEY_HERE},
    {"downcast_bf16", KEY_IGNORED},
    {"dynamo_backend", KEY_IGNORED},
    {"dynamo_config", KEY_IGNORED},
    {"ec2_instance_type", KEY_SAGEMAKER},
    {"enable_cpu_affinity", KEY_IGNORED},
    {"fp16", KEY_HERE},
    {"fp8_config", KEY_REFUSED_MAP},
    {"fsdp_config", KEY_REFUSED_MAP},
    {"gpu_ids", KEY_IGNORED},
    {"iam_role_name", KEY_SAGEMAKER},
    {"image_uri", KEY_SAGEMAKER},
    {"machine_rank", KEY_OPTION},
    {"main_process_ip", KEY_OPTION},
    {"main_process_port", KEY_OPTION},
    {"main_training_function", KEY_IGNORED},
    {"megatron_lm_config", KEY_REFUSED_MAP},
    {"mixed_precision", KEY_PRECISION_OFF},
    {"mpirun_config", KEY_IGNORED},
    {"num_machines", KEY_OPTION},
    {"num_processes", KEY_HERE},
    {"parallelism_config", KEY_REFUSED_MAP},
    {"profile", KEY_SAGEMAKER},
    {"py_version", KEY_SAGEMAKER},
    {"pytorch_version", KEY_SAGEMAKER},
    {"rdzv_backend", KEY_IGNORED},
    {"region", KEY_SAGEMAKER},
    {"same_network", KEY_IGNORED},
    {"sagemaker_inputs_file", KEY_SAGEMAKER},
    {"sagemaker_metrics_file", KEY_SAGEMAKER},
    {"additional_args", KEY_SAGEMAKER},
    {"tpu_cluster", KEY_IGNORED},
    {"tpu_env", KEY_IGNORED},
    {"tpu_name", KEY_IGNORED},
    {"tpu_use_cluster", KEY_IGNORED},
    {"tpu_use_sudo", KEY_IGNORED},
    {"tpu_vm", KEY_IGNORED},
    {"tpu_zone", KEY_IGNORED},
    {"transformers_version", KEY_SAGEMAKER},
    {"use_cpu", KEY_OPTION},
};
#define N_KEYS (sizeof(keys) / sizeof(keys[0]))

static const char *key_name(size_t i)
{
    return keys[i].name;
}

/* A file DIR/configs/NAME.yaml or DIR/NAME.yaml, arena memory; NULL: none */
static const char *try_dir(
    struct trl_config *cfg, const char *dir, const char *sub, const char *name)
{
    const char *ext = trl_ends_with(name, ".yaml") || trl_ends_with(name, ".yml") ? "" : ".yaml";
    const char *path = trl_arena_printf(&cfg->arena, "%s%s/%s%s", dir, sub, name, ext);
    return path && trl_path_exists(path) && !trl_path_is_dir(path) ? path : NULL;
}

/* Installed profiles: TRL_CONFIG_DIR, beside the program (PREFIX/share, or the source tree around a
 * build folder), or where meson was told to install. */
static const char *find_profile(struct trl_config *cfg, const char *name)
{
    const char *dir = getenv("TRL_CONFIG_DIR"),
               *found = dir && *dir ? try_dir(cfg, dir, "", name) : NULL;
    char exe[PATH_MAX];
    ssize_t n = readlink("/proc/self/exe", exe, sizeof(exe) - 1);
    if (found || strchr(name, '/'))
        return found;
    exe[n > 0 ? n : 0] = 0;
    for (int up = 0; up < 6 && !found; up++) {
        char *slash = strrchr(exe, '/');
        if (!slash)
            break;
        *slash = 0;
        found = try_dir(cfg, exe, "/share/trl-slurm/configs", name);
        found = found ? found : try_dir(cfg, exe, "/configs", name);
    }
    return found ? found : try_dir(cfg, TRL_CONFIGS_DIR, "", name);
}

static int find_file(
    struct trl_config *cfg, const char *name, const char **ret, struct trl_err *err)
{
    if (trl_path_exists(name) && !trl_path_is_dir(name)) {
        *ret = trl_arena_strdup(&cfg->arena, name);
        return *ret ? 0 : trl_fail_nomem(err, strlen(name), "a file name");
    }
    *ret = find_profile(cfg, name);
    if (*ret)
        return 0;
    return trl_fail(err, TRL_E_NOENT,
        "accelerate_config: there is no file \"%s\" and no installed profile of that name; "
        "installed are "
        "single_gpu, multi_gpu and multi_cpu in %s",
        name, TRL_CONFIGS_DIR);
}

static int fail_at(const struct trl_yaml *y, const struct trl_yaml_entry *e, int code,
    const char *text, struct trl_err *err)
{
    return trl_fail(err, code, "%s:%zu: %s: %s", y->name, e->line, e->key, text);
}

static int set(struct trl_config *cfg, const struct trl_yaml *y, const struct trl_yaml_entry *e,
    const char *name, const char *text, struct trl_err *err)
{
    const struct trl_option *o = trl_option_find(name);
    const char *from = trl_arena_printf(&cfg->arena, "%s:%zu", y->name, e->line);
    if (!from)
        return trl_fail_nomem(err, 0, "a source");
    int rc = text ? trl_option_set_text(cfg, o, text, from, err)
                  : trl_option_set_entry(cfg, o, e, from, err);
    if (!rc)
        cfg->source[trl_option_index(o)] = from;
    return rc;
}

/* A plain `no` or `NO` is false in YAML 1.1; accelerate means the word. */
static const char *word_of(const struct trl_yaml_entry *e, const char *off)
{
    return e->kind == TRL_YAML_BOOL && json_is_false(e->value) ? off : e->raw;
}

static bool is_set(const struct trl_yaml *y, const char *key)
{
    const struct trl_yaml_entry *e = trl_yaml_find(y, key);
    return e && e->kind != TRL_YAML_NULL;
}

static int check_type(struct trl_config *cfg, const struct trl_yaml *y,
    const struct trl_yaml_entry *e, struct trl_err *err)
{
    static const char types[] = "NO MULTI_CPU MULTI_GPU MULTI_NPU MULTI_MLU MULTI_SDAA MULTI_MUSA "
                                "MULTI_XPU MULTI_HPU MULTI_NEURON "
                                "DEEPSPEED FSDP XLA TPU MEGATRON_LM";
    const char *type = word_of(e, "NO");
    if (!type || !trl_word_in(types, type, strlen(type)))
        return trl_fail(err, TRL_E_USAGE,
            "%s:%zu: distributed_type: \"%s\" is not known; wanted: one of %s", y->name, e->line,
            type ? type : "a list or a map", types);
    if (!strcmp(type, "DEEPSPEED") || !strcmp(type, "FSDP") || !strcmp(type, "MEGATRON_LM"))
        return trl_fail(err, TRL_E_UNSUPPORTED,
            "%s:%zu: distributed_type: %s is not supported: sharding comes later; MULTI_CPU trains "
            "with whole copies",
            y->name, e->line, type);
    if (!strcmp(type, "XLA") || !strcmp(type, "TPU"))
        return fail_at(y, e, TRL_E_UNSUPPORTED, "TPUs are not supported", err);
    bool gpu = trl_starts_with(type, "MULTI_") && strcmp(type, "MULTI_CPU");
    if (gpu || (!strcmp(type, "NO") && is_set(y, "gpu_ids")))
        cfg->accelerate_gpu_type = trl_arena_strdup(&cfg->arena, type);
    return 0;
}

/* Sections of sharding and 8-bit settings may be there when they ask for nothing. */
static int check_map(const struct trl_yaml *y, const struct trl_yaml_entry *e, struct trl_err *err)
{
    const char *key;
    json_t *v;
    if (e->kind == TRL_YAML_NULL)
        return 0;
    if (e->kind != TRL_YAML_MAP)
        return fail_at(y, e, TRL_E_USAGE, "wanted: a map", err);
    json_object_foreach(e->value, key, v)
    {
        if (!strcmp(e->key, "parallelism_config") &&
            (!trl_ends_with(key, "_size") || json_integer_value(v) == 1))
            continue;
        return trl_fail(err, TRL_E_UNSUPPORTED,
            "%s:%zu: %s (with %s) is not supported: only data parallelism with whole copies is",
            y->name, e->line, e->key, key);
    }
    return 0;
}

static int apply_here(struct trl_config *cfg, const struct trl_yaml *y,
    const struct trl_yaml_entry *e, struct trl_err *err)
{
    if (!strcmp(e->key, "distributed_type"))
        return check_type(cfg, y, e, err);
    if (!strcmp(e->key, "fp16"))
        return e->kind == TRL_YAML_BOOL && json_is_true(e->value) && !is_set(y, "mixed_precision")
            ? set(cfg, y, e, "mixed_precision", "fp16", err)
            : 0;
    if (!strcmp(e->key, "num_processes")) { /* counts only when something is distributed */
        const struct trl_yaml_entry *type = trl_yaml_find(y, "distributed_type");
        const char *word = type ? word_of(type, "NO") : NULL;
        return word && !strcmp(word, "NO") ? 0 : set(cfg, y, e, e->key, NULL, err);
    }
    if (e->raw && !strcmp(e->raw, "LOCAL_MACHINE"))
        return 0;
    return fail_at(y, e, TRL_E_UNSUPPORTED, "only LOCAL_MACHINE is supported", err);
}

static int apply_key(struct trl_config *cfg, const struct trl_yaml *y,
    const struct trl_yaml_entry *e, struct trl_err *err)
{
    size_t i = 0;
    while (i < N_KEYS && strcmp(keys[i].name, e->key))
        i++;
    if (i == N_KEYS) {
        const char *near = trl_nearest_word(e->key, key_name, N_KEYS);
        return trl_fail(err, TRL_E_USAGE, "%s:%zu: unknown key %.100s in an accelerate file%s%s%s",
            y->name, e->line, e->key, near ? "; did you mean " : "", near ? near : "",
            near ? "?" : "");
    }
    if (e->kind == TRL_YAML_NULL)
        return 0;
    switch (keys[i].use) {
    case KEY_OPTION:
        return set(cfg, y, e, e->key, NULL, err);
    case KEY_PRECISION_OFF:
        if (!e->raw)
            return fail_at(y, e, TRL_E_USAGE, "wanted: no, fp16 or bf16", err);
        return set(cfg, y, e, e->key, word_of(e, "no"), err);
    case KEY_REFUSED_MAP:
        return check_map(y, e, err);
    case KEY_SAGEMAKER:
        return fail_at(y, e, TRL_E_UNSUPPORTED,
            "SageMaker is not supported; wanted: an accelerate file with compute_environment: "
            "LOCAL_MACHINE",
            err);
    case KEY_HERE:
        return apply_here(cfg, y, e, err);
    case KEY_IGNORED:
        break;
    }
    return 0;
}

int trl__config_read_accelerate(struct trl_config *cfg, const char *name, struct trl_err *err)
{
    struct trl_yaml y = {0};
    const char *path;
    int rc = find_file(cfg, name, &path, err);
    if (rc)
        return rc;
    rc = trl_yaml_read(&y, path, err);
    if (rc)
        return trl_err_prefix(err, rc, "accelerate_config");
    if (!json_is_object(y.root))
        rc = trl_fail(err, TRL_E_USAGE,
            "%s: the accelerate file is not a map; wanted: lines like `distributed_type: "
            "MULTI_CPU`",
            path);
    else if (!is_set(&y, "distributed_type"))
        rc = trl_fail(err, TRL_E_USAGE,
            "%s: distributed_type is missing; wanted: MULTI_CPU, or 'NO' for one process", path);
    trl_str_puts(&cfg->warnings, trl_str_get(&y.warnings));
    for (size_t i = 0; i < y.n_top && !rc; i++)
        rc = apply_key(cfg, &y, &y.top[i], err);
    trl_yaml_release(&y);
    cfg->accelerate_path = path;
    return rc;
}
