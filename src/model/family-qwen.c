/* SPDX-License-Identifier: Apache-2.0 */
/* Qwen2, Qwen2.5 (biases on q, k, v) and Qwen3 (norms on the heads of q and k). */
#include "model/family.h"

static bool from_layer(int64_t layer, int64_t first)
{
    return layer >= first;
}

static void qwen_windows(struct trl_config_reader *r, struct trl_model_config *c)
{
    bool use = trl__cfg_bool(r, "use_sliding_window", false);
    int64_t window = trl__cfg_int(
        r, "sliding_window", json_object_get(r->root, "sliding_window") ? 0 : 4096, 1, INT32_MAX);
    int64_t first = trl__cfg_int(r, "max_window_layers", 28, 0, INT32_MAX);
    if (trl__cfg_layers(r, c, 0))
        trl__cfg_windows(r, c, use ? window : 0, from_layer, first);
}

static void qwen2_read(struct trl_config_reader *r, struct trl_model_config *c)
{
    static const struct trl_model_config def = {.vocab = 151936,
        .hidden = 4096,
        .inter = 22016,
        .layers = 32,
        .heads = 32,
        .kv_heads = 32,
        .max_positions = 32768,
        .eps = 1e-6,
        .bos_id = -1,
        .eos_id = -1,
        .pad_id = -1};
    trl__cfg_common(r, c, &def);
    trl__cfg_act(r, c, "hidden_act", "silu");
    c->gated = c->qkv_bias = true;
    trl__cfg_rope(r, c, 10000);
    qwen_windows(r, c);
}

const struct trl_family trl__family_qwen2 = {
    .model_type = "qwen2",
    .architecture = "Qwen2ForCausalLM",
    .prefix = "model.",
    .gguf_arch = "qwen2",
    .act_key = "hidden_act",
    .read = qwen2_read,
    .layout = trl__layout_llama,
};

static void qwen3_read(struct trl_config_reader *r, struct trl_model_config *c)
{
    static const struct trl_model_config def = {.vocab = 151936,
        .hidden = 4096,
        .inter = 22016,
        .layers = 32,
        .heads = 32,
        .kv_heads = 32,
        .head_dim = 128,
        .max_positions = 32768,
        .eps = 1e-6,
        .bos_id = -1,
        .eos_id = -1,
        .pad_id = -1};
    trl__cfg_common(r, c, &def);
    trl__cfg_act(r, c, "hidden_act", "silu");
    c->gated = c->qk_norm = true;
    c->qkv_bias = c->o_bias = trl__cfg_bool(r, "attention_bias", false);
    trl__cfg_rope(r, c, 10000);
    qwen_windows(r, c);
}

const struct trl_family trl__family_qwen3 = {
    .model_type = "qwen3",
    .architecture = "Qwen3ForCausalLM",
    .prefix = "model.",
    .gguf_arch = "qwen3",
    .act_key = "hidden_act",
    .read = qwen3_read,
    .layout = trl__layout_llama,
};
