/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TRL_MODEL_CONFIG_H
#define TRL_MODEL_CONFIG_H
/*
 * What config.json says, in one struct that the blocks understand. A family fills it (family.h);
 * layers differ only through `struct trl_layer_config`. All sizes are checked here: products of
 * them do not overflow later.
 */
#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "model/problems.h"
#include "tensor/ops.h"

enum trl_norm_kind {
    TRL_NORM_RMS, /* n * w, n rounded to the activation type first (Llama) */
    TRL_NORM_RMS_PLUS1, /* n * (1 + w) (Gemma) */
    TRL_NORM_LAYER, /* (n * w) + b (GPT-2) */
};

/* X(name, config.json's spelling) */
#define TRL_ROPES(X) \
    X(DEFAULT, "default") \
    X(LINEAR, "linear") \
    X(DYNAMIC, "dynamic") \
    X(LLAMA3, "llama3") \
    X(YARN, "yarn")

enum trl_rope_kind {
#define X(name, text) TRL_ROPE_##name,
    TRL_ROPES(X)
#undef X
        TRL_ROPE_MAX_
};

struct trl_rope_config {
    enum trl_rope_kind kind;
    double theta, factor;
    double low_freq_factor, high_freq_factor; /* llama3 */
    double beta_fast, beta_slow; /* yarn */
    double attention_factor; /* yarn: multiplies cos and sin */
    bool truncate; /* yarn */
    int64_t
        original_max; /* llama3, yarn: length the model was trained for; dynamic: max_positions */
};

enum { TRL_MODEL_MAX_ROPES = 2 };

struct trl_layer_config {
    int64_t window; /* 0: full attention */
    int rope; /* index into `ropes`; -1: none */
    double scale; /* of the scores */
};

struct trl_family;
struct trl_model_config {
    const struct trl_family *family;
    int64_t vocab, hidden, inter, layers, heads, kv_heads, head_dim, max_positions;
    double eps, init_range, embed_scale; /* embed_scale 1: none */
    bool noise_after_scale; /* NEFTune acts on the scaled embeddings (Gemma 3) or before scaling
                               (Gemma 2) */
    double attn_softcap, final_softcap; /* 0: none */
    enum trl_norm_kind norm;
    enum trl_act act;
    bool gated, qkv_bias, o_bias, mlp_bias, qk_norm, post_norms, learned_positions, tied;
    bool counts_first_label; /* trl_model_info */
    double embd_dropout, resid_dropout, attn_dropout;
    struct trl_rope_config ropes[TRL_MODEL_MAX_ROPES];
    int n_ropes;
    struct trl_layer_config *layer; /* [layers] */
    int bos_id, eos_id, pad_id; /* -1: none */
    int64_t
        pad_row; /* pad_token_id of config.json itself, -1: none: its embedding row starts as 0 */
    char dtype[16]; /* what the file says, "" when it does not */
    json_t *json; /* what is written when the model is saved */
    json_t *generation; /* generation_config.json, NULL when there is none */
};

/* `dir`/config.json and, when there, `dir`/generation_config.json. One error lists everything that
 * is wrong. */
int trl__config_read(struct trl_model_config *c, const char *dir, struct trl_err *err);
/* From text (fuzzing, tests) or JSON (GGUF); `origin` names it in errors. Takes no reference to
 * root. */
int trl__config_parse(struct trl_model_config *c, const char *text, size_t len, const char *origin,
    struct trl_err *err);
int trl__config_from_json(
    struct trl_model_config *c, json_t *root, const char *origin, struct trl_err *err);
/* bos, eos, pad of a generation config win over config.json's. Takes a reference. */
void trl__config_set_generation(struct trl_model_config *c, json_t *generation);
void trl__config_release(struct trl_model_config *c);

/* ---- for families: reading fields; complaints go to `p` ---- */
struct trl_config_reader {
    const json_t *root;
    struct trl_problems *p;
};
/* Absent or null: the default. */
int64_t trl__cfg_int(
    struct trl_config_reader *r, const char *key, int64_t def, int64_t min, int64_t max);
double trl__cfg_num(
    struct trl_config_reader *r, const char *key, double def, double min, double max);
bool trl__cfg_bool(struct trl_config_reader *r, const char *key, bool def);
const char *trl__cfg_str(struct trl_config_reader *r, const char *key, const char *def);
bool trl__cfg_is_null(struct trl_config_reader *r, const char *key); /* absent or null */
/* Fields that every family has under the same names. */
void trl__cfg_common(
    struct trl_config_reader *r, struct trl_model_config *c, const struct trl_model_config *def);
void trl__cfg_act(
    struct trl_config_reader *r, struct trl_model_config *c, const char *key, const char *def);
/* Rope of the whole model, either style, into ropes[0]. */
void trl__cfg_rope(struct trl_config_reader *r, struct trl_model_config *c, double default_theta);
/* One rope from an object (`scaling`, may be NULL) and theta. `where` names the object. */
void trl__cfg_rope_object(struct trl_config_reader *r, struct trl_model_config *c,
    struct trl_rope_config *ret, const json_t *scaling, double theta, const char *where);
/* Allocates `layer`: all full attention, rope 0, scale head_dim^-0.5. False when that failed. */
bool trl__cfg_layers(struct trl_config_reader *r, struct trl_model_config *c, double scale);
/* layer_types when there; otherwise pattern(i) says whether a layer slides. window 0: nothing
 * slides. */
void trl__cfg_windows(struct trl_config_reader *r, struct trl_model_config *c, int64_t window,
    bool (*slides)(int64_t layer, int64_t arg), int64_t arg);

#endif
