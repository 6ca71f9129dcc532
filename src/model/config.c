/* SPDX-License-Identifier: Apache-2.0 */
#include "model/config.h"

#include <math.h>
#include <string.h>

#include "base/alloc.h"
#include "base/fileio.h"
#include "base/json.h"
#include "model/family.h"

enum {
    CONFIG_MAX_BYTES = 16 << 20,
    HEAD_DIM_MAX = 4096, /* arrays of half as many stand on the stack where rotary tables are made */
};

/* ---- fields ---- */

bool trl__cfg_is_null(struct trl_config_reader *r, const char *key)
{
    const json_t *j = json_object_get(r->root, key);
    return !j || json_is_null(j);
}

/* The value as JSON text, cut short, for messages. */
static const char *shown(const json_t *j, char buf[64])
{
    char *s = json_dumps(j, JSON_ENCODE_ANY | JSON_COMPACT);
    snprintf(buf, 64, "%.60s", s ? s : "?");
    free(s);
    return buf;
}

int64_t trl__cfg_int(
    struct trl_config_reader *r, const char *key, int64_t def, int64_t min, int64_t max)
{
    const json_t *j = json_object_get(r->root, key);
    char buf[64];
    if (!j || json_is_null(j))
        return def;
    double v = json_number_value(j);
    if (!json_is_number(j) || v != floor(v) || !(v >= (double)min && v <= (double)max)) {
        trl__problem(r->p, TRL_E_RANGE, "%s is %s, a whole number from %lld to %lld is allowed",
            key, shown(j, buf), (long long)min, (long long)max);
        return def;
    }
    return (int64_t)v;
}

double trl__cfg_num(
    struct trl_config_reader *r, const char *key, double def, double min, double max)
{
    const json_t *j = json_object_get(r->root, key);
    char buf[64];
    if (!j || json_is_null(j))
        return def;
    double v = json_number_value(j);
    if (!json_is_number(j) || !(v >= min && v <= max)) {
        trl__problem(r->p, TRL_E_RANGE, "%s is %s, a number from %g to %g is allowed", key,
            shown(j, buf), min, max);
        return def;
    }
    return v;
}

bool trl__cfg_bool(struct trl_config_reader *r, const char *key, bool def)
{
    const json_t *j = json_object_get(r->root, key);
    char buf[64];
    if (!j || json_is_null(j))
        return def;
    if (!json_is_boolean(j)) {
        trl__problem(r->p, TRL_E_RANGE, "%s is %s, true or false is allowed", key, shown(j, buf));
        return def;
    }
    return json_is_true(j);
}

const char *trl__cfg_str(struct trl_config_reader *r, const char *key, const char *def)
{
    const json_t *j = json_object_get(r->root, key);
    char buf[64];
    if (!j || json_is_null(j))
        return def;
    if (!json_is_string(j)) {
        trl__problem(r->p, TRL_E_RANGE, "%s is %s, a text is allowed", key, shown(j, buf));
        return def;
    }
    return json_string_value(j);
}

/* An id, a list of ids (the first counts), or null. */
static int token_id(const json_t *j, int def)
{
    if (json_is_array(j))
        j = json_array_get(j, 0);
    if (!json_is_integer(j))
        return j && !json_is_null(j) ? -1 : def;
    json_int_t v = json_integer_value(j);
    return v >= 0 && v <= INT32_MAX ? (int)v : -1;
}

static int token_field(const json_t *root, const char *key, int def)
{
    const json_t *j = json_object_get(root, key);
    return j ? token_id(j, -1) : def;
}

/* ---- shared groups of fields ---- */

/* Whatever changes the arithmetic in a way that this program does not have. */
static void refuse_unsupported(struct trl_config_reader *r)
{
    static const char *const objects[] = {"quantization_config", "compression_config"};
    for (size_t i = 0; i < sizeof(objects) / sizeof(objects[0]); i++)
        if (!trl__cfg_is_null(r, objects[i]))
            trl__problem(r->p, TRL_E_UNSUPPORTED,
                "%s: quantised weights are not supported, take the float model", objects[i]);
    static const char *const flags[] = {
        "use_bidirectional_attention", "add_cross_attention", "is_encoder_decoder"};
    for (size_t i = 0; i < sizeof(flags) / sizeof(flags[0]); i++)
        if (json_is_true(json_object_get(r->root, flags[i])))
            trl__problem(r->p, TRL_E_UNSUPPORTED, "%s true is not supported", flags[i]);
    if (trl__cfg_num(r, "partial_rotary_factor", 1, 0, 1) != 1)
        trl__problem(
            r->p, TRL_E_UNSUPPORTED, "partial_rotary_factor other than 1 is not supported");
}

void trl__cfg_common(
    struct trl_config_reader *r, struct trl_model_config *c, const struct trl_model_config *def)
{
    c->vocab = trl__cfg_int(r, "vocab_size", def->vocab, 1, 1 << 24);
    c->hidden = trl__cfg_int(r, "hidden_size", def->hidden, 1, 1 << 20);
    c->inter = trl__cfg_int(r, "intermediate_size", def->inter, 1, 1 << 22);
    c->layers = trl__cfg_int(r, "num_hidden_layers", def->layers, 1, 4096);
    c->heads = trl__cfg_int(r, "num_attention_heads", def->heads, 1, 4096);
    c->kv_heads =
        trl__cfg_int(r, "num_key_value_heads", def->kv_heads ? def->kv_heads : c->heads, 1, 4096);
    if (json_object_get(r->root, "num_key_value_heads") &&
        trl__cfg_is_null(r, "num_key_value_heads"))
        c->kv_heads = c->heads;
    c->max_positions = trl__cfg_int(r, "max_position_embeddings", def->max_positions, 1, INT32_MAX);
    c->head_dim =
        trl__cfg_int(r, "head_dim", def->head_dim ? def->head_dim : c->hidden / c->heads, 1,
            HEAD_DIM_MAX);
    if (trl__cfg_is_null(r, "head_dim") && !def->head_dim && c->hidden % c->heads != 0)
        trl__problem(r->p, TRL_E_DATA,
            "hidden_size %lld is no multiple of num_attention_heads %lld", (long long)c->hidden,
            (long long)c->heads);
    if (c->heads % c->kv_heads != 0)
        trl__problem(r->p, TRL_E_DATA,
            "num_attention_heads %lld is no multiple of num_key_value_heads %lld",
            (long long)c->heads, (long long)c->kv_heads);
    if (c->head_dim % 2 != 0)
        trl__problem(r->p, TRL_E_DATA, "head_dim %lld is odd, rotary positions need pairs",
            (long long)c->head_dim);
    c->eps = trl__cfg_num(r, "rms_norm_eps", def->eps, 0, 1);
    c->init_range = trl__cfg_num(r, "initializer_range", 0.02, 0, 1e3);
    c->attn_dropout = trl__cfg_num(r, "attention_dropout", 0, 0, 1);
    c->tied = trl__cfg_bool(r, "tie_word_embeddings", def->tied);
    c->bos_id = token_field(r->root, "bos_token_id", def->bos_id);
    c->eos_id = token_field(r->root, "eos_token_id", def->eos_id);
    c->pad_id = token_field(r->root, "pad_token_id", def->pad_id);
    c->norm = TRL_NORM_RMS;
    refuse_unsupported(r);
}

void trl__cfg_act(
    struct trl_config_reader *r, struct trl_model_config *c, const char *key, const char *def)
{
    static const struct {
        const char *name;
        enum trl_act act;
    } acts[] = {{"silu", TRL_ACT_SILU}, {"swish", TRL_ACT_SILU}, {"gelu", TRL_ACT_GELU},
        {"relu", TRL_ACT_RELU}, {"gelu_new", TRL_ACT_GELU_TANH},
        {"gelu_pytorch_tanh", TRL_ACT_GELU_TANH}};
    const char *name = trl__cfg_str(r, key, def);
    for (size_t i = 0; i < sizeof(acts) / sizeof(acts[0]); i++)
        if (strcmp(acts[i].name, name) == 0) {
            c->act = acts[i].act;
            return;
        }
    trl__problem(r->p, TRL_E_UNSUPPORTED,
        "%s \"%.40s\" is not supported (silu, swish, gelu, gelu_new, gelu_pytorch_tanh, relu are)",
        key, name);
}

bool trl__cfg_layers(struct trl_config_reader *r, struct trl_model_config *c, double scale)
{
    c->layer = trl_calloc((size_t)c->layers, sizeof(c->layer[0]));
    if (!c->layer) {
        trl__problem(r->p, TRL_E_NOMEM, "out of memory for %lld layers", (long long)c->layers);
        return false;
    }
    for (int64_t i = 0; i < c->layers; i++)
        c->layer[i].scale = scale > 0 ? scale : 1 / sqrt((double)c->head_dim);
    return true;
}

void trl__cfg_windows(struct trl_config_reader *r, struct trl_model_config *c, int64_t window,
    bool (*slides)(int64_t layer, int64_t arg), int64_t arg)
{
    const json_t *types = json_object_get(r->root, "layer_types");
    if (types && !json_is_null(types) &&
        (!json_is_array(types) || json_array_size(types) != (size_t)c->layers)) {
        trl__problem(r->p, TRL_E_DATA, "layer_types is no list of num_hidden_layers = %lld entries",
            (long long)c->layers);
        return;
    }
    for (int64_t i = 0; i < c->layers; i++) {
        bool s = slides(i, arg);
        if (json_is_array(types)) {
            const char *t = json_string_value(json_array_get(types, (size_t)i));
            s = t && strcmp(t, "sliding_attention") == 0;
            if (!t || (!s && strcmp(t, "full_attention") != 0)) {
                trl__problem(r->p, TRL_E_UNSUPPORTED,
                    "layer_types[%lld] is \"%.40s\" (full_attention and sliding_attention are "
                    "supported)",
                    (long long)i, t ? t : "?");
                return;
            }
        }
        c->layer[i].window = s ? window : 0;
    }
}

/* ---- whole files ---- */

/* Gemma 3 of the multimodal kind keeps its language model in text_config. Returns a new reference.
 */
static json_t *text_part(json_t *root)
{
    const char *type = json_string_value(json_object_get(root, "model_type"));
    json_t *text = json_object_get(root, "text_config");
    if (!type || strcmp(type, "gemma3") != 0 || !json_is_object(text))
        return json_incref(root);
    json_t *j = json_deep_copy(text);
    int bad = j ? 0 : -1;
    static const char *const carried[] = {"dtype", "torch_dtype", "bos_token_id", "eos_token_id",
        "pad_token_id", "tie_word_embeddings", "initializer_range", "quantization_config"};
    for (size_t i = 0; j && i < sizeof(carried) / sizeof(carried[0]); i++) {
        json_t *v = json_object_get(root, carried[i]);
        if (v && !json_object_get(j, carried[i]))
            bad |= json_object_set(j, carried[i], v);
    }
    bad |= json_object_set_new(j, "model_type", json_string("gemma3_text"));
    bad |= json_object_set_new(j, "architectures", json_pack("[s]", "Gemma3ForCausalLM"));
    if (bad) {
        json_decref(j);
        return NULL;
    }
    return j;
}

static void read_dtype(struct trl_config_reader *r, struct trl_model_config *c)
{
    const char *t = trl__cfg_str(r, trl__cfg_is_null(r, "dtype") ? "torch_dtype" : "dtype", "");
    if (trl_starts_with(t, "torch."))
        t += 6;
    snprintf(c->dtype, sizeof(c->dtype), "%s", t);
}

int trl__config_from_json(
    struct trl_model_config *c, json_t *root, const char *origin, struct trl_err *err)
{
    *c = (struct trl_model_config){
        .embed_scale = 1, .pad_id = -1, .bos_id = -1, .eos_id = -1, .pad_row = -1};
    struct trl_problems p = {0};
    if (!json_is_object(root))
        return trl_fail(err, TRL_E_PARSE, "%s: not a JSON object", origin);
    c->json = text_part(root);
    if (!c->json)
        return trl_fail_nomem(err, 0, "a configuration");
    struct trl_config_reader r = {c->json, &p};
    const char *type = trl__cfg_str(&r, "model_type", "");
    c->family = trl__family_find(type);
    if (!c->family) {
        struct trl_str names = {0};
        trl__family_names(&names);
        trl__problem(&p, TRL_E_UNSUPPORTED, "model_type \"%.40s\" is not supported (%s are)", type,
            trl_str_get(&names));
        trl_str_release(&names);
    } else {
        c->family->read(&r, c);
        read_dtype(&r, c);
        if (c->head_dim > HEAD_DIM_MAX) /* hidden/heads, where the file does not give it */
            trl__problem(&p, TRL_E_RANGE, "heads of %lld elements; at most %d are possible",
                (long long)c->head_dim, HEAD_DIM_MAX);
        if (c->pad_id >= c->vocab)
            trl__problem(&p, TRL_E_DATA, "pad_token_id %d is beyond vocab_size %lld", c->pad_id,
                (long long)c->vocab);
        c->pad_row = c->pad_id;
    }
    int rc = trl__problems_end(&p, err, origin);
    if (rc)
        trl__config_release(c);
    return rc;
}

int trl__config_parse(struct trl_model_config *c, const char *text, size_t len, const char *origin,
    struct trl_err *err)
{
    *c = (struct trl_model_config){0};
    json_t *root = NULL;
    int rc = trl_json_parse(text, len, origin, &root, err);
    if (rc)
        return rc;
    rc = trl__config_from_json(c, root, origin, err);
    json_decref(root);
    return rc;
}

void trl__config_set_generation(struct trl_model_config *c, json_t *g)
{
    json_decref(c->generation);
    c->generation = json_incref(g);
    c->bos_id = token_field(g, "bos_token_id", c->bos_id);
    c->eos_id = token_field(g, "eos_token_id", c->eos_id);
    c->pad_id = token_field(g, "pad_token_id", c->pad_id);
}

static int read_generation(struct trl_model_config *c, const char *dir, struct trl_err *err)
{
    char *path = trl_path_join(dir, "generation_config.json"), *text = NULL;
    size_t len = 0;
    int rc = 0;
    if (!path)
        return trl_fail_nomem(err, strlen(dir), "a path");
    if (trl_path_exists(path)) {
        rc = trl_file_read(path, CONFIG_MAX_BYTES, &text, &len, err);
        json_t *g = NULL;
        if (rc == 0)
            rc = trl_json_parse(text, len, path, &g, err);
        if (rc == 0 && !json_is_object(g))
            rc = trl_fail(err, TRL_E_PARSE, "%s: not a JSON object", path);
        if (rc == 0)
            trl__config_set_generation(c, g);
        json_decref(g);
    }
    trl_free(text);
    trl_free(path);
    return rc;
}

int trl__config_read(struct trl_model_config *c, const char *dir, struct trl_err *err)
{
    *c = (struct trl_model_config){0};
    char *text = NULL, *path = trl_path_join(dir, "config.json");
    size_t len = 0;
    if (!path)
        return trl_fail_nomem(err, strlen(dir), "a path");
    int rc = trl_file_read(path, CONFIG_MAX_BYTES, &text, &len, err);
    if (rc == 0)
        rc = trl__config_parse(c, text, len, path, err);
    if (rc == 0) {
        rc = read_generation(c, dir, err);
        if (rc)
            trl__config_release(c);
    }
    trl_free(text);
    trl_free(path);
    return rc;
}

void trl__config_release(struct trl_model_config *c)
{
    trl_free(c->layer);
    json_decref(c->json);
    json_decref(c->generation);
    *c = (struct trl_model_config){0};
}
