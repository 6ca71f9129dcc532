/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TRL_CONFIG_CONFIG_H
#define TRL_CONFIG_CONFIG_H
/*
 * The configuration of a run: one typed struct filled from the command line, a run file and an
 * accelerate file. Every option of options.def is a field of the same name: BOOL bool, INT int64_t,
 * FLOAT double, STR const char * (NULL: None), OPT_* struct trl_opt_*, DICT and LIST json_t *
 * (NULL: None). Strings and JSON belong to the struct and live until trl_config_release. After
 * trl_config_parse all values are checked, and derived as TRL's own __post_init__ derives them.
 * Read-only after that, so threads may share it.
 */
#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/err.h"
#include "base/str.h"
#include "config/config-types.h"

#define TRL_FIELD_BOOL bool
#define TRL_FIELD_INT int64_t
#define TRL_FIELD_FLOAT double
#define TRL_FIELD_STR const char *
#define TRL_FIELD_OPT_BOOL struct trl_opt_bool
#define TRL_FIELD_OPT_INT struct trl_opt_int
#define TRL_FIELD_OPT_FLOAT struct trl_opt_float
#define TRL_FIELD_DICT json_t *
#define TRL_FIELD_LIST json_t *

struct trl_config {
#define OPT(origin, name, kind, def, group, status, help, ...) TRL_FIELD_##kind name;
#include "config/options.def"
#undef OPT

    const char *trainer; /* "sft" */
    /* what to do instead of training; print_config, plan and show_batches are options */
    bool help; /* --help: print trl_config_help(help_name) and exit 0 */
    const char *help_name; /* --help NAME; NULL: all */
    bool show_batches_json;

    /* worked out from the options */
    int64_t max_shard_bytes;
    bool flat; /* batches are joined without pads: padding_free, or packing with bfd or bfd_split */
    const char *accelerate_path; /* of the accelerate file that was read; NULL: none */
    const char *accelerate_gpu_type; /* its distributed_type when it asks for GPUs (overridden by
                                        use_cpu) */

    /* private */
    struct trl_arena arena;
    const char **source; /* [number of options] NULL: default */
    struct trl_str notices, warnings; /* lines for trl_config_log_notices */
};

/* argv: what follows the trainer's word. On failure cfg is released. --help stops reading: only
 * `help` is valid then. */
int trl_config_parse(
    struct trl_config *cfg, const char *trainer, int argc, char **argv, struct trl_err *err);
void trl_config_release(struct trl_config *cfg); /* zeroed structs are fine */

/* Where an option's value came from: "default", "--NAME on the command line", "run.yaml:12". NULL:
 * no such option. */
const char *trl_config_source(const struct trl_config *cfg, const char *name);
bool trl_config_is_given(const struct trl_config *cfg, const char *name);

/* What training cannot do without: model_name_or_path and dataset_name or datasets. */
int trl_config_require(const struct trl_config *cfg, struct trl_err *err);

/* Set the log's level from log_level, and say which given options have no effect and what was
 * adjusted. After trl_log_init. */
void trl_config_log_notices(const struct trl_config *cfg);

/* --print_config: a YAML run file, each value with its source as a comment. */
void trl_config_print(const struct trl_config *cfg, struct trl_str *ret);
/* --help (name NULL) or --help NAME. TRL_E_USAGE with the nearest name when there is no such
 * option. */
int trl_config_help(
    const char *trainer, const char *name, struct trl_str *ret, struct trl_err *err);

/* Values of all options as a JSON object (training arguments in a checkpoint). New reference; NULL
 * when out of memory. */
json_t *trl_config_to_json(const struct trl_config *cfg);

/* "5GB", "200MiB", "1000": bytes. 0 or TRL_E_USAGE. */
int trl_config_parse_size(const char *text, int64_t *ret, struct trl_err *err);

#endif
