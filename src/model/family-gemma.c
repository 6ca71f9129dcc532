/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Gemma 2 and the text part of Gemma 3: norms scaled by 1 + w, four a layer, scaled embeddings,
 * windows on part of the layers. Gemma 2 caps scores and logits; Gemma 3 normalises q and k and has
 * a rope of its own for window layers.
 */
#include <math.h>
#include <string.h>

#include "model/family.h"

static void gemma_read(
    struct trl_config_reader *r, struct trl_model_config *c, const struct trl_model_config *def)
{
    trl__cfg_common(r, c, def);
    /* files before hidden_activation existed say hidden_act "gelu" and mean the tanh form */
    trl__cfg_act(r, c, "hidden_activation", "gelu_pytorch_tanh");
    c->gated = c->post_norms = true;
    c->norm = TRL_NORM_RMS_PLUS1;
    c->embed_scale = sqrt((double)c->hidden);
    c->qkv_bias = c->o_bias = trl__cfg_bool(r, "attention_bias", false);
}

static bool even_layer(int64_t layer, int64_t arg)
{
    return layer % 2 == 0;
}

static void gemma2_read(struct trl_config_reader *r, struct trl_model_config *c)
{
    static const struct trl_model_config def = {.vocab = 256000,
        .hidden = 2304,
        .inter = 9216,
        .layers = 26,
        .heads = 8,
        .kv_heads = 4,
        .head_dim = 256,
        .max_positions = 8192,
        .eps = 1e-6,
        .tied = true,
        .bos_id = 2,
        .eos_id = 1,
        .pad_id = 0};
    gemma_read(r, c, &def);
    bool given = json_object_get(r->root, "attn_logit_softcapping");
    c->attn_softcap = trl__cfg_num(r, "attn_logit_softcapping", given ? 0 : 50, 1e-3, 1e6);
    given = json_object_get(r->root, "final_logit_softcapping");
    c->final_softcap = trl__cfg_num(r, "final_logit_softcapping", given ? 0 : 30, 1e-3, 1e6);
    double scalar = trl__cfg_num(r, "query_pre_attn_scalar", 256, 1e-3, 1e6);
    trl__cfg_rope(r, c, 10000);
    int64_t window = trl__cfg_int(
        r, "sliding_window", json_object_get(r->root, "sliding_window") ? 0 : 4096, 1, INT32_MAX);
    if (trl__cfg_layers(r, c, 1 / sqrt(scalar)))
        trl__cfg_windows(r, c, window, even_layer, 0);
}

const struct trl_family trl__family_gemma2 = {
    .model_type = "gemma2",
    .architecture = "Gemma2ForCausalLM",
    .prefix = "model.",
    .gguf_arch = "gemma2",
    .gguf_norm_plus1 = true,
    .act_key = "hidden_activation",
    .read = gemma2_read,
    .layout = trl__layout_llama,
};

static bool but_every_nth(int64_t layer, int64_t n)
{
    return (layer + 1) % n != 0;
}

/* ropes[0]: full layers, ropes[1]: window layers (never scaled in the older style) */
static void gemma3_ropes(struct trl_config_reader *r, struct trl_model_config *c)
{
    const json_t *o = json_object_get(r->root, "rope_parameters");
    const json_t *full = json_object_get(o, "full_attention"),
                 *local = json_object_get(o, "sliding_attention");
    double theta = trl__cfg_num(r, "rope_theta", 1e6, 1e-3, 1e15);
    double local_theta = trl__cfg_num(r, "rope_local_base_freq", 1e4, 1e-3, 1e15);
    if (full || local) {
        trl__cfg_rope_object(r, c, &c->ropes[0], full, theta, "rope_parameters.full_attention");
        trl__cfg_rope_object(
            r, c, &c->ropes[1], local, local_theta, "rope_parameters.sliding_attention");
    } else {
        trl__cfg_rope(r, c, theta);
        trl__cfg_rope_object(r, c, &c->ropes[1], NULL, local_theta, "");
    }
    c->n_ropes = 2;
}

static void gemma3_read(struct trl_config_reader *r, struct trl_model_config *c)
{
    static const struct trl_model_config def = {.vocab = 262208,
        .hidden = 2304,
        .inter = 9216,
        .layers = 26,
        .heads = 8,
        .kv_heads = 4,
        .head_dim = 256,
        .max_positions = 131072,
        .eps = 1e-6,
        .tied = true,
        .bos_id = 2,
        .eos_id = 1,
        .pad_id = 0};
    gemma_read(r, c, &def);
    c->qk_norm = c->noise_after_scale = true;
    c->attn_softcap = trl__cfg_num(r, "attn_logit_softcapping", 0, 1e-3, 1e6);
    c->final_softcap = trl__cfg_num(r, "final_logit_softcapping", 0, 1e-3, 1e6);
    double scalar = trl__cfg_num(r, "query_pre_attn_scalar", 256, 1e-3, 1e6);
    gemma3_ropes(r, c);
    int64_t window = trl__cfg_int(
        r, "sliding_window", json_object_get(r->root, "sliding_window") ? 0 : 4096, 1, INT32_MAX);
    int64_t pattern = trl__cfg_int(r, "sliding_window_pattern",
        trl__cfg_int(r, "_sliding_window_pattern", 6, 1, INT32_MAX), 1, INT32_MAX);
    if (!trl__cfg_layers(r, c, 1 / sqrt(scalar)))
        return;
    trl__cfg_windows(r, c, 1, but_every_nth, pattern);
    for (int64_t i = 0; i < c->layers; i++) {
        c->layer[i].rope =
            c->layer[i].window ? 1 : 0; /* by kind of layer, also when no window is set */
        c->layer[i].window = c->layer[i].window ? window : 0;
    }
}

const struct trl_family trl__family_gemma3 = {
    .model_type = "gemma3_text",
    .architecture = "Gemma3ForCausalLM",
    .prefix = "model.",
    .gguf_arch = "gemma3",
    .gguf_norm_plus1 = true,
    .act_key = "hidden_activation",
    .read = gemma3_read,
    .layout = trl__layout_llama,
};
