/* SPDX-License-Identifier: Apache-2.0 */
#include "config/options.h"

#include <ctype.h>
#include <string.h>

#include "base/alloc.h"

#define CHOICES(x) .choices = x
#define WITHHELD(x, reason) .withheld = x, .withheld_why = reason
#define WHY(x) .why = x
#define UNIT(x) .unit = x
#define AT_LEAST(x) .has_min = true, .min = x
#define ABOVE(x) .has_min = true, .min_open = true, .min = x
#define BETWEEN(a, b) .has_min = true, .min = a, .has_max = true, .max = b
#define BELOW(a, b) .has_min = true, .min = a, .has_max = true, .max_open = true, .max = b
#define FLAG(x) .flag_word = x
#define MODE .mode = true
#define SECRET .secret = true

const struct trl_option trl_options[] = {
#define OPT(origin_, name_, kind_, def_, group_, status_, help_, ...) \
    {.name = #name_, \
        .def = def_, \
        .help = help_, \
        .offset = offsetof(struct trl_config, name_), \
        .kind = TRL_OPT_##kind_, \
        .group = TRL_GROUP_##group_, \
        .status = TRL_STATUS_##status_, \
        .origin = #origin_[0], \
        __VA_ARGS__},
#include "config/options.def"
#undef OPT
};
const size_t trl_n_options = sizeof(trl_options) / sizeof(trl_options[0]);

/* Other names of options. */
static const struct {
    const char *alias, *name;
} aliases[] = {
    {"cpu", "use_cpu"},
    {"config_file", "accelerate_config"},
    {"num_cpu_threads_per_process", "num_threads"},
    {"torch_dtype", "dtype"},
};

/* Options of older versions of TRL and transformers, and what came instead. */
static const struct {
    const char *name, *instead;
} renamed[] = {
    {"max_seq_length", "it is called max_length now"},
    {"warmup_ratio", "warmup_steps takes a share below 1"},
    {"evaluation_strategy", "it is called eval_strategy now"},
    {"no_cuda", "it is called use_cpu now"},
    {"per_gpu_train_batch_size", "it is called per_device_train_batch_size now"},
    {"per_gpu_eval_batch_size", "it is called per_device_eval_batch_size now"},
    {"group_by_length", "it is train_sampling_strategy=group_by_length now"},
    {"logging_dir",
        "event files go to output_dir/runs; TensorBoard's TENSORBOARD_LOGGING_DIR is read"},
    {"overwrite_output_dir",
        "output_dir may always exist; its checkpoints stay unless save_total_limit removes them"},
    {"half_precision_backend", "bf16 and fp16 choose the precision"},
    {"tokenizer_name_or_path", "the tokenizer is read from the model's folder"},
    {"dataset_batch_size", "rows are not prepared in batches"},
    {"num_of_sequences", "packs are made of all rows"},
    {"chars_per_token", "packs are made of all rows"},
    {"use_liger", "it is called use_liger_kernel now"},
    {"push_to_hub_model_id", "it is called hub_model_id now"},
    {"save_safetensors", "weights are always saved as safetensors"},
    {"jit_mode_eval", "nothing is interpreted here"},
    {"past_index", "it was removed from transformers"},
    {"mp_parameters", "it was removed from transformers"},
    {"fp16_backend", "bf16 and fp16 choose the precision"},
    {"fp16_opt_level", "bf16 and fp16 choose the precision"},
    {"tp_size", "only data parallelism is supported yet"},
    {"nproc_per_node", "use num_processes, or start it with mpirun -n N"},
};

static bool same_name(const char *a, const char *name)
{
    for (; *a && *name; a++, name++)
        if (*a != (*name == '-' ? '_' : *name))
            return false;
    return *a == *name;
}

const struct trl_option *trl_option_find(const char *name)
{
    for (size_t i = 0; i < trl_n_options; i++)
        if (same_name(trl_options[i].name, name))
            return &trl_options[i];
    for (size_t i = 0; i < sizeof(aliases) / sizeof(aliases[0]); i++)
        if (same_name(aliases[i].alias, name))
            return trl_option_find(aliases[i].name);
    return NULL;
}

size_t trl_option_index(const struct trl_option *o)
{
    return (size_t)(o - trl_options);
}

/* Edits between two short words (insert, delete, replace, swap neighbours); anything over 63
 * letters is far. */
static size_t distance(const char *a, const char *b)
{
    size_t n = strlen(a), m = strlen(b), d[3][64];
    if (n > 63 || m > 63)
        return 64;
    for (size_t j = 0; j <= m; j++)
        d[0][j] = j;
    for (size_t i = 1; i <= n; i++) {
        size_t *cur = d[i % 3], *prev = d[(i - 1) % 3], *before = d[(i + 1) % 3];
        cur[0] = i;
        for (size_t j = 1; j <= m; j++) {
            size_t best = prev[j - 1] + (a[i - 1] != b[j - 1]);
            best = prev[j] + 1 < best ? prev[j] + 1 : best;
            best = cur[j - 1] + 1 < best ? cur[j - 1] + 1 : best;
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] &&
                before[j - 2] + 1 < best)
                best = before[j - 2] + 1;
            cur[j] = best;
        }
    }
    return d[n % 3][m];
}

const char *trl_nearest_word(const char *word, const char *(*at)(size_t i), size_t n)
{
    const char *best = NULL;
    size_t len = strlen(word), limit = len < 6 ? 2 : 2 + len / 5;
    for (size_t i = 0; i < n; i++) {
        size_t d = distance(word, at(i));
        if (d < limit + (best == NULL)) {
            limit = d;
            best = at(i);
        }
    }
    /* a beginning that fits is as good as a typing error */
    for (size_t i = 0; !best && len >= 4 && i < n; i++)
        if (trl_starts_with(at(i), word))
            best = at(i);
    return best;
}

static const char *option_name(size_t i)
{
    return i < trl_n_options ? trl_options[i].name : aliases[i - trl_n_options].alias;
}

void trl_option_suggest(const char *name, const char *dashes, struct trl_str *ret)
{
    char buf[128];
    size_t n = 0;
    for (; name[n] && n < sizeof(buf) - 1; n++)
        buf[n] = (char)(name[n] == '-' ? '_' : tolower((unsigned char)name[n]));
    buf[n] = 0;
    for (size_t i = 0; i < sizeof(renamed) / sizeof(renamed[0]); i++)
        if (!strcmp(renamed[i].name, buf)) {
            trl_str_printf(ret, ": %s", renamed[i].instead);
            return;
        }
    const char *near =
        trl_nearest_word(buf, option_name, trl_n_options + sizeof(aliases) / sizeof(aliases[0]));
    if (near)
        trl_str_printf(ret, "; did you mean %s%s?", dashes, near);
    else
        trl_str_puts(ret, "; trl-train sft --help lists all options");
}

bool trl_word_in(const char *words, const char *word, size_t len)
{
    for (const char *p = words; p && *p;) {
        size_t n = strcspn(p, " ");
        if (n == len && !memcmp(p, word, len))
            return true;
        p += n + (p[n] == ' ');
    }
    return false;
}

static void put_choices(const struct trl_option *o, struct trl_str *ret)
{
    const char *sep = "";
    for (const char *p = o->choices; *p;) {
        size_t n = strcspn(p, " ");
        if (!trl_word_in(o->withheld, p, n)) {
            trl_str_puts(ret, sep);
            trl_str_append(ret, p, n);
            sep = ", ";
        }
        p += n + (p[n] == ' ');
    }
}

static void put_number(struct trl_str *s, double v)
{
    if (v == (double)(long long)v)
        trl_str_printf(s, "%lld", (long long)v);
    else
        trl_str_put_double(s, v);
}

void trl_option_allowed(const struct trl_option *o, struct trl_str *ret)
{
    static const char *const names[] = {
#define X(name, text) text,
        TRL_OPT_KINDS(X)
#undef X
    };
    if (o->choices) {
        trl_str_puts(ret, o->kind == TRL_OPT_LIST ? "any of: " : "one of: ");
        put_choices(o, ret);
        return;
    }
    trl_str_puts(ret, names[o->kind]);
    if (o->has_min && o->has_max) {
        trl_str_puts(ret, " from ");
        put_number(ret, o->min);
        trl_str_puts(ret, o->max_open ? " to below " : " to ");
        put_number(ret, o->max);
    } else if (o->has_min) {
        trl_str_puts(ret, o->min_open ? " above " : ", at least ");
        put_number(ret, o->min);
    }
    if (o->unit)
        trl_str_printf(ret, " (%s)", o->unit);
}
