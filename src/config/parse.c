/* SPDX-License-Identifier: Apache-2.0 */
/* Command line, run file and accelerate file into one configuration: default < accelerate file <
 * run file < command line. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/fileio.h"
#include "base/log.h"
#include "config/options.h"

/* One option of the command line. Its words are argv[first .. first + n), or `text` (--name=text,
 * flags). */
struct given {
    const struct trl_option *o;
    const char *text, *from;
    int first, n;
};

struct line {
    struct trl_config *cfg;
    int argc;
    char **argv;
    struct given *given;
    size_t n, cap;
    struct trl_err *err;
};

void trl__config_notice(struct trl_config *cfg, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    char text[1024];
    vsnprintf(text, sizeof(text), fmt, ap);
    va_end(ap);
    trl_str_puts(&cfg->notices, text);
    trl_str_putc(&cfg->notices, '\n');
}

static bool is_option_word(const char *s)
{
    return s[0] == '-' && s[1] == '-' && s[2];
}

static bool is_bool_kind(const struct trl_option *o)
{
    return o->kind == TRL_OPT_BOOL || o->kind == TRL_OPT_OPT_BOOL;
}

static bool is_refused(const struct trl_option *o)
{
    return o->status == TRL_STATUS_REFUSED;
}

static int fail_unknown(const char *name, struct trl_err *err)
{
    struct trl_str s = {0};
    trl_option_suggest(name, "--", &s);
    int rc = trl_fail(err, TRL_E_USAGE, "unknown option --%s%s", name, trl_str_get(&s));
    trl_str_release(&s);
    return rc;
}

static int add_given(struct line *l, const struct trl_option *o, const char *text, int first, int n)
{
    void *g = l->given;
    const char *from = trl_arena_printf(&l->cfg->arena, "--%s on the command line", o->name);
    if (!from || !trl_grow(&g, &l->cap, l->n + 1, sizeof(*l->given)))
        return trl_fail_nomem(l->err, sizeof(*l->given), "the command line");
    l->given = g;
    l->given[l->n++] = (struct given){o, text, from, first, n};
    return 0;
}

/* How many words behind argv[i] belong to the option there. */
static int count_words(const struct line *l, const struct trl_option *o, int i)
{
    int n = 0;
    while (i + 1 + n < l->argc && !is_option_word(l->argv[i + 1 + n]) &&
        (o->kind == TRL_OPT_LIST || n < 1))
        n++;
    return n;
}

static int scan_option(struct line *l, int *i)
{
    const char *word = l->argv[*i] + 2, *eq = strchr(word, '=');
    const char *name = eq ? trl_arena_strndup(&l->cfg->arena, word, (size_t)(eq - word)) : word;
    if (!name)
        return trl_fail_nomem(l->err, strlen(word), "the command line");
    const struct trl_option *o = trl_option_find(name);
    if (!o && !strncmp(name, "no", 2) && (name[2] == '_' || name[2] == '-')) {
        o = trl_option_find(name + 3);
        if (o && is_bool_kind(o))
            return eq ? trl_fail(l->err, TRL_E_USAGE, "--%s takes no value; write --%s=%s", name,
                            o->name, eq + 1)
                      : add_given(l, o, "false", 0, 0);
        o = NULL;
    }
    if (!o)
        return fail_unknown(name, l->err);
    if (eq)
        return add_given(l, o, eq + 1, 0, 0);
    int n = count_words(l, o, *i), at = *i + 1;
    *i += n;
    if (!n && (is_bool_kind(o) || o->flag_word))
        return add_given(l, o, "true", 0, 0);
    if (!n && is_refused(o))
        return trl_fail(l->err, TRL_E_UNSUPPORTED,
            "%s is not supported: %s (--%s on the command line)", o->name, o->why, o->name);
    if (!n) {
        struct trl_str s = {0};
        trl_option_allowed(o, &s);
        int rc = trl_fail(l->err, TRL_E_USAGE, "--%s wants a value: %s", o->name, trl_str_get(&s));
        trl_str_release(&s);
        return rc;
    }
    int rc = add_given(l, o, NULL, at, n);
    if (!rc && o == trl_option_find("show_batches") && *i + 1 < l->argc &&
        !strcmp(l->argv[*i + 1], "json")) {
        l->cfg->show_batches_json = true;
        (*i)++;
    }
    return rc;
}

static int scan_line(struct line *l)
{
    for (int i = 0; i < l->argc; i++) {
        const char *w = l->argv[i];
        if (!strcmp(w, "-h") || !strcmp(w, "--help") || trl_starts_with(w, "--help=")) {
            l->cfg->help = true;
            if (trl_starts_with(w, "--help="))
                l->cfg->help_name = w + 7;
            else if (i + 1 < l->argc)
                l->cfg->help_name = l->argv[i + 1] + (is_option_word(l->argv[i + 1]) ? 2 : 0);
            return 0;
        }
        if (!is_option_word(w))
            return trl_fail(l->err, TRL_E_USAGE,
                "unexpected word \"%s\" on the command line; options begin with --", w);
        int rc = scan_option(l, &i);
        if (rc)
            return rc;
    }
    return 0;
}

/* A refused option may be given with its default. What it cannot even read is refused all the same,
 * by name. */
static int refuse_unreadable(
    const struct trl_option *o, int rc, const char *from, struct trl_err *err)
{
    return rc && rc != TRL_E_NOMEM && is_refused(o)
        ? trl_fail(err, TRL_E_UNSUPPORTED, "%s is not supported: %s (%s)", o->name, o->why, from)
        : rc;
}

static int apply_line(struct line *l)
{
    for (size_t i = 0; i < l->n; i++) {
        const struct given *g = &l->given[i];
        int rc;
        if (g->text)
            rc = trl_option_set_text(l->cfg, g->o, g->text, g->from, l->err);
        else if (g->o->kind == TRL_OPT_LIST)
            rc = trl_option_set_words(
                l->cfg, g->o, l->argv + g->first, (size_t)g->n, g->from, l->err);
        else
            rc = trl_option_set_text(l->cfg, g->o, l->argv[g->first], g->from, l->err);
        rc = refuse_unreadable(g->o, rc, g->from, l->err);
        if (rc)
            return rc;
        l->cfg->source[trl_option_index(g->o)] = g->from;
    }
    return 0;
}

/* Python's str() of a scalar, for the environment. */
static const char *env_text(struct trl_config *cfg, const json_t *v)
{
    switch (json_typeof(v)) {
    case JSON_STRING:
        return json_string_value(v);
    case JSON_TRUE:
        return "True";
    case JSON_FALSE:
        return "False";
    case JSON_NULL:
        return "None";
    case JSON_INTEGER:
        return trl_arena_printf(&cfg->arena, "%lld", (long long)json_integer_value(v));
    case JSON_REAL: {
        struct trl_str s = {0};
        trl_str_put_double(&s, json_real_value(v));
        const char *text = trl_arena_strdup(&cfg->arena, trl_str_get(&s));
        trl_str_release(&s);
        return text;
    }
    default:
        return NULL;
    }
}

static int export_env(struct trl_config *cfg, const struct trl_yaml *y, struct trl_err *err)
{
    const struct trl_yaml_entry *e = trl_yaml_find(y, "env");
    const char *key;
    json_t *v;
    if (!e || e->kind == TRL_YAML_NULL)
        return 0;
    if (e->kind != TRL_YAML_MAP)
        return trl_fail(
            err, TRL_E_USAGE, "%s:%zu: env wants a map of environment variables", y->name, e->line);
    json_object_foreach(e->value, key, v)
    {
        const char *text = env_text(cfg, v);
        if (!text)
            return trl_fail(err, TRL_E_USAGE,
                "%s:%zu: env: the value of %s is a list or a map; wanted: text", y->name, e->line,
                key);
        if (setenv(key, text, 1))
            return trl_fail(err, TRL_E_USAGE,
                "%s:%zu: env: \"%s\" cannot be an environment variable: %s", y->name, e->line, key,
                strerror(errno));
    }
    return 0;
}

static int apply_run_entry(struct trl_config *cfg, const struct trl_yaml *y,
    const struct trl_yaml_entry *e, struct trl_err *err)
{
    if (!strcmp(e->key, "env"))
        return 0;
    const struct trl_option *o = trl_option_find(e->key);
    const char *from = trl_arena_printf(&cfg->arena, "%s:%zu", y->name, e->line);
    if (!from)
        return trl_fail_nomem(err, 0, "a source");
    if (!o) {
        struct trl_str s = {0};
        trl_option_suggest(e->key, "", &s);
        int rc =
            trl_fail(err, TRL_E_USAGE, "%s: unknown key %.100s%s", from, e->key, trl_str_get(&s));
        trl_str_release(&s);
        return rc;
    }
    if (!strcmp(o->name, "config"))
        return trl_fail(err, TRL_E_USAGE, "%s: a run file cannot name another run file", from);
    int rc = refuse_unreadable(o, trl_option_set_entry(cfg, o, e, from, err), from, err);
    if (!rc)
        cfg->source[trl_option_index(o)] = from;
    return rc;
}

static int apply_run_file(struct trl_config *cfg, const struct trl_yaml *y, struct trl_err *err)
{
    for (size_t i = 0; i < y->n_top; i++) {
        int rc = apply_run_entry(cfg, y, &y->top[i], err);
        if (rc)
            return rc;
    }
    return 0;
}

static int read_run_file(
    struct trl_config *cfg, struct trl_yaml *y, const char *path, struct trl_err *err)
{
    int rc = trl_yaml_read(y, path, err);
    if (rc)
        return trl_err_prefix(err, rc, "--config");
    if (y->root && !json_is_object(y->root))
        return trl_fail(err, TRL_E_USAGE,
            "%s: the run file is not a map; wanted: lines like `learning_rate: 0.00002`", y->name);
    trl_str_puts(&cfg->warnings, trl_str_get(&y->warnings));
    return export_env(cfg, y, err);
}

/* The last value that the command line gives to an option, or NULL. */
static const char *given_text(const struct line *l, const char *name)
{
    const char *text = NULL;
    for (size_t i = 0; i < l->n; i++)
        if (!strcmp(l->given[i].o->name, name))
            text = l->given[i].text ? l->given[i].text : l->argv[l->given[i].first];
    return text;
}

static int apply_all(struct line *l)
{
    struct trl_config *cfg = l->cfg;
    struct trl_yaml y = {0};
    const char *run = given_text(l, "config"), *accelerate = given_text(l, "accelerate_config");
    int rc = run ? read_run_file(cfg, &y, run, l->err) : 0;
    for (size_t i = 0; i < y.n_top && !accelerate && !rc; i++) {
        const struct trl_option *o = trl_option_find(y.top[i].key);
        if (o && !strcmp(o->name, "accelerate_config") && y.top[i].kind == TRL_YAML_STR)
            accelerate = y.top[i].raw;
    }
    if (!rc && accelerate)
        rc = trl__config_read_accelerate(cfg, accelerate, l->err);
    rc = rc ? rc : apply_run_file(cfg, &y, l->err);
    rc = rc ? rc : apply_line(l);
    trl_yaml_release(&y);
    return rc;
}

/* Compare with the defaults: everything that is refused in one message, what has no effect as
 * notices. */
static int check_status(struct trl_config *cfg, struct trl_err *err)
{
    struct trl_config plain = {0};
    struct trl_str refused = {0};
    size_t n = 0;
    int rc = trl_options_init(&plain, err);
    for (size_t i = 0; i < trl_n_options && !rc; i++) {
        const struct trl_option *o = &trl_options[i];
        if (o->status == TRL_STATUS_SUPPORTED || !cfg->source[i])
            continue;
        json_t *a = trl_option_get(cfg, o), *b = trl_option_get(&plain, o);
        if (!json_equal(a, b)) {
            if (is_refused(o))
                trl_str_printf(&refused, "%s%s is not supported: %s (%s)", n++ ? "; " : "", o->name,
                    o->why, cfg->source[i]);
            else
                trl__config_notice(
                    cfg, "%s has no effect here: %s (%s)", o->name, o->why, cfg->source[i]);
        }
        json_decref(a);
        json_decref(b);
    }
    if (n && !rc)
        rc = trl_fail(err, TRL_E_UNSUPPORTED, "%s", trl_str_get(&refused));
    trl_str_release(&refused);
    trl_config_release(&plain);
    return rc;
}

int trl_config_parse(
    struct trl_config *cfg, const char *trainer, int argc, char **argv, struct trl_err *err)
{
    *cfg = (struct trl_config){0};
    if (strcmp(trainer, "sft"))
        return trl_fail(err, TRL_E_USAGE, "unknown trainer \"%s\"; wanted: sft", trainer);
    struct line l = {.cfg = cfg, .argc = argc, .argv = argv, .err = err};
    cfg->source = trl_calloc(trl_n_options, sizeof(*cfg->source));
    int rc =
        cfg->source ? trl_options_init(cfg, err) : trl_fail_nomem(err, trl_n_options, "options");
    cfg->trainer = "sft";
    rc = rc ? rc : scan_line(&l);
    if (!rc && !cfg->help) {
        rc = apply_all(&l);
        rc = rc ? rc : check_status(cfg, err);
        rc = rc ? rc : trl__config_finish(cfg, err);
        rc = rc ? rc : trl__config_check_launch(cfg, err);
        rc = rc ? rc : trl_str_check(&cfg->notices, err);
        rc = rc ? rc : trl_str_check(&cfg->warnings, err);
    }
    trl_free(l.given);
    if (rc)
        trl_config_release(cfg);
    return rc;
}

void trl_config_release(struct trl_config *cfg)
{
    if (!cfg)
        return;
    for (size_t i = 0; i < trl_n_options; i++)
        if (trl_options[i].kind == TRL_OPT_DICT || trl_options[i].kind == TRL_OPT_LIST)
            json_decref(*(json_t **)((char *)cfg + trl_options[i].offset));
    trl_free(cfg->source);
    trl_str_release(&cfg->notices);
    trl_str_release(&cfg->warnings);
    trl_arena_release(&cfg->arena);
    *cfg = (struct trl_config){0};
}

const char *trl_config_source(const struct trl_config *cfg, const char *name)
{
    const struct trl_option *o = trl_option_find(name);
    if (!o)
        return NULL;
    const char *s = cfg->source ? cfg->source[trl_option_index(o)] : NULL;
    return s ? s : "default";
}

bool trl_config_is_given(const struct trl_config *cfg, const char *name)
{
    const struct trl_option *o = trl_option_find(name);
    return o && cfg->source && cfg->source[trl_option_index(o)];
}

static void log_lines(enum trl_log_level level, const struct trl_str *lines)
{
    const char *p = trl_str_get(lines);
    while (*p) {
        int n = (int)strcspn(p, "\n");
        trl_log(level, "%.*s", n, p);
        p += n + (p[n] == '\n');
    }
}

static enum trl_log_level level_of(const char *word)
{
    if (!strcmp(word, "detail") || !strcmp(word, "debug"))
        return TRL_LOG_DEBUG;
    if (!strcmp(word, "warning"))
        return TRL_LOG_WARN;
    return strcmp(word, "error") && strcmp(word, "critical") ? TRL_LOG_INFO : TRL_LOG_ERROR;
}

void trl_config_log_notices(const struct trl_config *cfg)
{
    trl_log_set_level(level_of(cfg->log_level));
    log_lines(TRL_LOG_WARN, &cfg->warnings);
    log_lines(TRL_LOG_INFO, &cfg->notices);
}
