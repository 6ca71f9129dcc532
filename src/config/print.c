/* SPDX-License-Identifier: Apache-2.0 */
/* Everything that is written from the option table: --print_config, --help, docs/options.md, the
 * man page. */
#include <string.h>

#include "config/options.h"

static const char *const group_titles[] = {
#define X(name, title) title,
    TRL_OPT_GROUPS(X)
#undef X
};

static const char *origin_name(char origin)
{
    switch (origin) {
    case 'T':
        return "TrainingArguments";
    case 'S':
        return "SFTConfig";
    case 'A':
        return "ScriptArguments";
    case 'M':
        return "ModelConfig";
    case 'D':
        return "DatasetMixtureConfig";
    case 'L':
        return "accelerate launch";
    default:
        return "trl-train";
    }
}

/* its line becomes a comment, without the value */
static bool is_secret_given(const struct trl_config *cfg, const struct trl_option *o)
{
    if (!o->secret)
        return false;
    json_t *v = trl_option_get(cfg, o);
    bool given = v && !json_is_null(v);
    json_decref(v);
    return given;
}

void trl_config_print(const struct trl_config *cfg, struct trl_str *ret)
{
    trl_str_printf(
        ret, "# trl-train %s --config THIS_FILE repeats this configuration\n", cfg->trainer);
    for (int g = 0; g < TRL_GROUP_MAX_; g++) {
        trl_str_printf(ret, "\n# %s\n", group_titles[g]);
        for (size_t i = 0; i < trl_n_options; i++) {
            const struct trl_option *o = &trl_options[i];
            if (o->group != (enum trl_opt_group)g || o->mode || o->status == TRL_STATUS_REFUSED ||
                !strcmp(o->name, "accelerate_config"))
                continue;
            trl_str_printf(ret, "%s%s: ", is_secret_given(cfg, o) ? "# " : "", o->name);
            trl_option_put(cfg, o, ret);
            trl_str_printf(ret, "  # %s\n", trl_config_source(cfg, o->name));
        }
    }
}

json_t *trl_config_to_json(const struct trl_config *cfg)
{
    json_t *obj = json_object();
    for (size_t i = 0; i < trl_n_options && obj; i++) {
        const struct trl_option *o = &trl_options[i];
        if (o->mode || o->secret)
            continue;
        json_t *v = trl_option_get(cfg, o), *copy = json_deep_copy(v);
        json_decref(v);
        if (json_object_set_new(obj, o->name, copy)) {
            json_decref(obj);
            obj = NULL;
        }
    }
    return obj;
}

/* Text broken at blanks into lines of `width`, each indented. */
static void put_wrapped(struct trl_str *s, const char *text, int indent, int width)
{
    int at = 0;
    while (*text) {
        int n = (int)strcspn(text, " ");
        if (at && at + 1 + n > width) {
            trl_str_putc(s, '\n');
            at = 0;
        }
        trl_str_printf(s, "%*s%.*s", at ? 1 : indent, "", n, text);
        at += n + (at ? 1 : indent);
        text += n + (text[n] == ' ');
    }
    trl_str_putc(s, '\n');
}

static const char *value_word(const struct trl_option *o)
{
    static const char *const words[] = {
        "", "N", "X", "TEXT", "true|false", "N", "X", "JSON", "WORD..."};
    return words[o->kind];
}

static const char *default_word(const struct trl_option *o)
{
    return o->def ? (*o->def ? o->def : "empty") : "none";
}

static void put_status(const struct trl_option *o, struct trl_str *s)
{
    if (o->status == TRL_STATUS_NO_EFFECT)
        trl_str_printf(s, "No effect here: %s.", o->why);
    else if (o->status == TRL_STATUS_REFUSED)
        trl_str_printf(s, "Not supported: %s.", o->why);
    else if (o->withheld)
        trl_str_printf(s, "Not supported: %s; %s.", o->withheld, o->withheld_why);
}

static void put_short(const struct trl_option *o, struct trl_str *s)
{
    struct trl_str t = {0};
    bool plain = o->kind == TRL_OPT_BOOL && !strcmp(o->def, "false");
    trl_str_printf(s, "  --%s%s%s", o->name, *value_word(o) ? " " : "", value_word(o));
    if (o->kind == TRL_OPT_BOOL && !plain)
        trl_str_printf(s, ", --no_%s", o->name);
    trl_str_printf(
        s, "%s%s%s\n", plain ? "" : "  [", plain ? "" : default_word(o), plain ? "" : "]");
    put_wrapped(&t, o->help, 6, 94);
    if (o->choices && strlen(o->choices) < 160) {
        struct trl_str c = {0};
        trl_str_puts(&c, "Values: ");
        trl_option_allowed(o, &c);
        trl_str_putc(&c, '.');
        put_wrapped(&t, trl_str_get(&c), 6, 94);
        trl_str_release(&c);
    }
    trl_str_puts(s, trl_str_get(&t));
    trl_str_release(&t);
}

/* All options that can be used, group by group; the others are named at the end. */
static void help_all(const char *trainer, struct trl_str *ret)
{
    trl_str_printf(ret,
        "Usage: trl-train %s [--config run.yaml] [options]\n\n"
        "Trains a language model on rows of text. Needed: --model_name_or_path and "
        "--dataset_name.\n"
        "Options are TRL's; they may be written --name value or --name=value, with - for _, "
        "switches\n"
        "as --name, --name false or --no_name, and without dashes as keys of a run file. Defaults "
        "are\n"
        "in [brackets]. --help NAME tells all about one option.\n",
        trainer);
    for (int g = 0; g < TRL_GROUP_MAX_; g++) {
        bool any = false;
        for (size_t i = 0; i < trl_n_options; i++) {
            const struct trl_option *o = &trl_options[i];
            if (o->group != (enum trl_opt_group)g || o->status != TRL_STATUS_SUPPORTED)
                continue;
            if (!any)
                trl_str_printf(ret, "\n%s\n", group_titles[g]);
            any = true;
            put_short(o, ret);
        }
    }
    for (int status = TRL_STATUS_NO_EFFECT; status <= TRL_STATUS_REFUSED; status++) {
        struct trl_str s = {0};
        trl_str_printf(ret, "\n%s\n",
            status == TRL_STATUS_NO_EFFECT ? "Accepted, without effect (--help NAME says why)"
                                           : "Not supported (--help NAME says why)");
        for (size_t i = 0; i < trl_n_options; i++)
            if ((int)trl_options[i].status == status)
                trl_str_printf(&s, "%s%s", s.len ? " " : "", trl_options[i].name);
        put_wrapped(ret, trl_str_get(&s), 6, 94);
        trl_str_release(&s);
    }
}

static void help_one(const struct trl_option *o, struct trl_str *ret)
{
    struct trl_str s = {0};
    trl_str_printf(ret, "--%s%s%s\n", o->name, *value_word(o) ? " " : "", value_word(o));
    put_wrapped(ret, o->help, 2, 94);
    trl_option_allowed(o, &s);
    trl_str_printf(ret, "\n  Default: %s\n", default_word(o));
    trl_str_puts(ret, "  Values:\n");
    put_wrapped(ret, trl_str_get(&s), 6, 94);
    trl_str_printf(ret, "  From:    %s\n", origin_name(o->origin));
    trl_str_clear(&s);
    put_status(o, &s);
    if (s.len) {
        trl_str_putc(ret, '\n');
        put_wrapped(ret, trl_str_get(&s), 2, 94);
    }
    trl_str_release(&s);
}

int trl_config_help(const char *trainer, const char *name, struct trl_str *ret, struct trl_err *err)
{
    if (!name) {
        help_all(trainer, ret);
        return trl_str_check(ret, err);
    }
    const struct trl_option *o = trl_option_find(trl_starts_with(name, "--") ? name + 2 : name);
    if (!o) {
        struct trl_str s = {0};
        trl_option_suggest(name, "--", &s);
        int rc = trl_fail(err, TRL_E_USAGE, "--help: unknown option --%s%s", name, trl_str_get(&s));
        trl_str_release(&s);
        return rc;
    }
    help_one(o, ret);
    return trl_str_check(ret, err);
}

/* Cells of a Markdown table: '|' escaped. */
static void put_cell(struct trl_str *s, const char *text)
{
    for (; *text; text++) {
        if (*text == '|')
            trl_str_putc(s, '\\');
        trl_str_putc(s, *text);
    }
}

static void put_row(const struct trl_option *o, struct trl_str *ret)
{
    static const char *const status[] = {"yes", "no effect", "refused"};
    struct trl_str s = {0};
    trl_option_allowed(o, &s);
    trl_str_printf(ret, "| `%s` | ", o->name);
    put_cell(ret, trl_str_get(&s));
    trl_str_printf(
        ret, " | %s | %s | %s | ", default_word(o), status[o->status], origin_name(o->origin));
    put_cell(ret, o->help);
    trl_str_clear(&s);
    put_status(o, &s);
    if (s.len)
        trl_str_putc(ret, ' ');
    put_cell(ret, trl_str_get(&s));
    trl_str_puts(ret, " |\n");
    trl_str_release(&s);
}

void trl_config_write_markdown(struct trl_str *ret)
{
    trl_str_puts(ret,
        "# Options of `trl-train sft`\n\n"
        "Written by `trl-gen-options` from `src/config/options.def`; do not edit.\n\n"
        "Every option may stand on the command line (`--name value`, `--name=value`, `-` for `_`; "
        "switches also as `--name`,\n"
        "`--name false`, `--no_name`; dictionaries as JSON) or in a run file (`--config run.yaml`: "
        "flat keys, and `env:` with environment\n"
        "variables that are set first). The command line wins over the run file, the run file over "
        "the accelerate file\n"
        "(`--accelerate_config`), that over the default. An option that is given twice: the last "
        "one counts. `--print_config` shows every\n"
        "value and where it came from.\n\n"
        "Other names: `--cpu` is `--use_cpu`, `--config_file` is `--accelerate_config`, "
        "`--num_cpu_threads_per_process` is `--num_threads`,\n"
        "`--torch_dtype` is `--dtype`.\n\n"
        "Status: *yes* is supported; *no effect* is accepted and mentioned once when it differs "
        "from the default; *refused* stops the\n"
        "program, naming the option, unless it has its default.\n\n"
        "Precision: `fp16` if it is on; else bfloat16 if `bf16` is on, which it is unless it or "
        "`fp16` is set; else what\n"
        "`mixed_precision` says. That is TRL's order: `mixed_precision: no` in an accelerate file "
        "does not turn bfloat16 off,\n"
        "`bf16: false` does.\n");
    for (int g = 0; g < TRL_GROUP_MAX_; g++) {
        trl_str_printf(ret,
            "\n## %s\n\n| option | values | default | status | from | meaning |\n| --- | --- | --- "
            "| --- | --- | --- |\n",
            group_titles[g]);
        for (size_t i = 0; i < trl_n_options; i++)
            if (trl_options[i].group == (enum trl_opt_group)g)
                put_row(&trl_options[i], ret);
    }
}

/* roff: '\' and '-' escaped, no line begins with a control character */
static void put_roff(struct trl_str *s, const char *text)
{
    if (*text == '.' || *text == '\'')
        trl_str_puts(s, "\\&");
    for (; *text; text++) {
        if (*text == '\\')
            trl_str_puts(s, "\\e");
        else if (*text == '-')
            trl_str_puts(s, "\\-");
        else if (*text != '`')
            trl_str_putc(s, *text);
    }
}

static void put_man_option(const struct trl_option *o, struct trl_str *ret)
{
    struct trl_str s = {0};
    trl_str_puts(ret, ".TP\n.BR \\-\\-");
    put_roff(ret, o->name);
    if (*value_word(o))
        trl_str_printf(ret, " \" %s\"", value_word(o));
    trl_str_puts(ret, "\n");
    put_roff(ret, o->help);
    trl_str_puts(ret, "\nValues: ");
    trl_option_allowed(o, &s);
    put_roff(ret, trl_str_get(&s));
    trl_str_puts(ret, ". Default: ");
    put_roff(ret, default_word(o));
    trl_str_puts(ret, ".\n");
    trl_str_clear(&s);
    put_status(o, &s);
    if (s.len) {
        put_roff(ret, trl_str_get(&s));
        trl_str_putc(ret, '\n');
    }
    trl_str_release(&s);
}

void trl_config_write_man(struct trl_str *ret)
{
    trl_str_puts(ret,
        ".\\\" Written by trl-gen-options from src/config/options.def; do not edit.\n"
        ".TH TRL\\-TRAIN 1 \"\" \"trl-slurm\" \"User Commands\"\n"
        ".SH NAME\ntrl\\-train \\- fine\\-tune a language model\n"
        ".SH SYNOPSIS\n.B trl\\-train sft\n.RI [ options ]\n"
        ".SH DESCRIPTION\n"
        "Fine\\-tunes a model in Hugging Face layout, or a GGUF file, on rows of text as TRL's\n.B "
        "trl sft\ndoes, on CPUs, in one process or several.\n"
        ".PP\nEvery option may stand on the command line, as \\-\\-name value or \\-\\-name=value, "
        "or in a run file as a flat YAML key. Hyphens count as\n"
        "underscores. The command line wins over the run file, the run file over the accelerate "
        "file, that over the default; of an option\n"
        "that is given twice the last one counts.\n"
        ".PP\nExit status: 0 done, 1 failed, 2 wrong usage or input, 3 stopped with a checkpoint.\n"
        ".SH OPTIONS\n.TP\n.BR \\-\\-help \" [NAME]\"\nAll options, or all about one.\n");
    for (int g = 0; g < TRL_GROUP_MAX_; g++) {
        trl_str_puts(ret, ".SS ");
        put_roff(ret, group_titles[g]);
        trl_str_putc(ret, '\n');
        for (size_t i = 0; i < trl_n_options; i++)
            if (trl_options[i].group == (enum trl_opt_group)g)
                put_man_option(&trl_options[i], ret);
    }
    trl_str_puts(ret,
        ".SH FILES\n.TP\n.I PREFIX/share/trl\\-slurm/configs\nInstalled accelerate files and a "
        "sample run file.\n"
        ".SH ENVIRONMENT\n.TP\n.B TRL_CONFIG_DIR\nFolder that is searched first for the names that "
        "\\-\\-accelerate_config takes.\n");
}
