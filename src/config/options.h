/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TRL_CONFIG_OPTIONS_H
#define TRL_CONFIG_OPTIONS_H
/*
 * The option table as data, and values of options as text and JSON. Used inside config/ and by its
 * tests; the rest of the program reads fields of struct trl_config. The table is constant.
 */
#include "config/config.h"
#include "config/yaml.h"

/* X(name, what a value is called) */
#define TRL_OPT_KINDS(X) \
    X(BOOL, "true or false") \
    X(INT, "whole number") \
    X(FLOAT, "number") \
    X(STR, "text") \
    X(OPT_BOOL, "true, false or none") \
    X(OPT_INT, "whole number or none") \
    X(OPT_FLOAT, "number or none") \
    X(DICT, "JSON object") \
    X(LIST, "list")

enum trl_opt_kind {
#define X(name, text) TRL_OPT_##name,
    TRL_OPT_KINDS(X)
#undef X
};

/* X(name, title): order of help and docs */
#define TRL_OPT_GROUPS(X) \
    X(PROGRAM, "Program") \
    X(MODEL, "Model") \
    X(DATA, "Data") \
    X(TRAINING, "Batch, length of the run, loss") \
    X(OPTIM, "Optimiser and schedule") \
    X(PRECISION, "Precision and memory") \
    X(LOGGING, "Logging") \
    X(EVALUATION, "Evaluation") \
    X(SAVING, "Saving and resuming") \
    X(PROCESSES, "Processes") \
    X(ADAPTERS, "Adapters and quantisation") \
    X(HUB, "Hub")

enum trl_opt_group {
#define X(name, title) TRL_GROUP_##name,
    TRL_OPT_GROUPS(X)
#undef X
        TRL_GROUP_MAX_
};

enum trl_opt_status { TRL_STATUS_SUPPORTED, TRL_STATUS_NO_EFFECT, TRL_STATUS_REFUSED };

struct trl_option {
    const char *name, *def, *help;
    const char *choices; /* allowed words, blanks between; NULL: any */
    const char *withheld, *withheld_why; /* those of them that are not supported, and why */
    const char *why; /* no effect, or refused, because */
    const char *unit;
    const char *flag_word; /* STR that also takes true, which is this word, and false, which is the
                              default */
    size_t offset; /* of the field in struct trl_config */
    double min, max;
    enum trl_opt_kind kind;
    enum trl_opt_group group;
    enum trl_opt_status status;
    char origin; /* see options.def */
    bool has_min, has_max, min_open, max_open;
    bool mode; /* says what to do, not how to train: not printed */
    bool secret; /* never printed */
};

extern const struct trl_option trl_options[];
extern const size_t trl_n_options;

/* By name; hyphens count as underscores; also the other names of an option (cpu, config_file,
 * torch_dtype ...). */
const struct trl_option *trl_option_find(const char *name);
size_t trl_option_index(const struct trl_option *o);
/* What to say after "unknown": "; did you mean --X?", or what replaced an option of older versions.
 * `dashes`: "--" or "". */
void trl_option_suggest(const char *name, const char *dashes, struct trl_str *ret);
/* Nearest of a list of words, or NULL when none is near. */
const char *trl_nearest_word(const char *word, const char *(*at)(size_t i), size_t n);
bool trl_word_in(const char *words, const char *word, size_t len);
/* "true or false", "one of: a, b", "a whole number of 1 or more (rows)" */
void trl_option_allowed(const struct trl_option *o, struct trl_str *ret);

/* Set a field. `from` (arena or static) tells where the value comes from. */
int trl_option_set_text(struct trl_config *cfg, const struct trl_option *o, const char *text,
    const char *from, struct trl_err *err);
int trl_option_set_entry(struct trl_config *cfg, const struct trl_option *o,
    const struct trl_yaml_entry *e, const char *from, struct trl_err *err);
int trl_option_set_words(struct trl_config *cfg, const struct trl_option *o, char **words, size_t n,
    const char *from, struct trl_err *err);
/* All fields to the table's defaults. */
int trl_options_init(struct trl_config *cfg, struct trl_err *err);
/* Value as JSON, new reference; and as a word of YAML. */
json_t *trl_option_get(const struct trl_config *cfg, const struct trl_option *o);
void trl_option_put(const struct trl_config *cfg, const struct trl_option *o, struct trl_str *ret);

/* Parts of trl_config_parse. */
int trl__config_read_accelerate(struct trl_config *cfg, const char *name, struct trl_err *err);
int trl__config_finish(struct trl_config *cfg, struct trl_err *err);
int trl__config_check_launch(const struct trl_config *cfg, struct trl_err *err);
void trl__config_notice(struct trl_config *cfg, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));

/* docs/options.md and docs/trl-train.1 */
void trl_config_write_markdown(struct trl_str *ret);
void trl_config_write_man(struct trl_str *ret);

#endif
