/* SPDX-License-Identifier: Apache-2.0 */
/* Llama 2 and 3 with all rope scalings, SmolLM2, TinyLlama; Mistral. */
#include "model/family.h"

void trl__layout_llama(struct trl_layout *l)
{
    const struct trl_model_config *c = l->c;
    int64_t h = c->hidden, q = c->heads * c->head_dim, kv = c->kv_heads * c->head_dim;
    const char *pre = c->family->prefix;
    l->embed = trl__layout_add(l, TRL_PARAM_EMBED, -1, c->vocab, h, "%sembed_tokens.weight", pre);
    for (int i = 0; i < c->layers && !l->failed; i++) {
        struct trl_layer *y = &l->layers[i];
        static const char *const qkv_name[] = {"q_proj", "k_proj", "v_proj"};
        static const char *const up_name[] = {"gate_proj", "up_proj"};
        y->qkv.n = 3;
        for (int k = 0; k < 3; k++) {
            int64_t out = k == 0 ? q : kv;
            y->qkv.w[k] = trl__layout_add(l, TRL_PARAM_LINEAR, i, out, h,
                "%slayers.%d.self_attn.%s.weight", pre, i, qkv_name[k]);
            if (c->qkv_bias)
                y->qkv.b[k] = trl__layout_add(l, TRL_PARAM_BIAS, i, out, 0,
                    "%slayers.%d.self_attn.%s.bias", pre, i, qkv_name[k]);
        }
        y->o.n = 1;
        y->o.w[0] = trl__layout_add(
            l, TRL_PARAM_LINEAR, i, h, q, "%slayers.%d.self_attn.o_proj.weight", pre, i);
        if (c->o_bias)
            y->o.b[0] = trl__layout_add(
                l, TRL_PARAM_BIAS, i, h, 0, "%slayers.%d.self_attn.o_proj.bias", pre, i);
        if (c->qk_norm) {
            y->q_norm.w = trl__layout_add(l, TRL_PARAM_NORM, i, c->head_dim, 0,
                "%slayers.%d.self_attn.q_norm.weight", pre, i);
            y->k_norm.w = trl__layout_add(l, TRL_PARAM_NORM, i, c->head_dim, 0,
                "%slayers.%d.self_attn.k_norm.weight", pre, i);
        }
        y->up.n = 2;
        for (int k = 0; k < 2; k++) {
            y->up.w[k] = trl__layout_add(l, TRL_PARAM_LINEAR, i, c->inter, h,
                "%slayers.%d.mlp.%s.weight", pre, i, up_name[k]);
            if (c->mlp_bias)
                y->up.b[k] = trl__layout_add(l, TRL_PARAM_BIAS, i, c->inter, 0,
                    "%slayers.%d.mlp.%s.bias", pre, i, up_name[k]);
        }
        y->down.n = 1;
        y->down.w[0] = trl__layout_add(
            l, TRL_PARAM_LINEAR, i, h, c->inter, "%slayers.%d.mlp.down_proj.weight", pre, i);
        if (c->mlp_bias)
            y->down.b[0] = trl__layout_add(
                l, TRL_PARAM_BIAS, i, h, 0, "%slayers.%d.mlp.down_proj.bias", pre, i);
        y->norm1.w = trl__layout_add(
            l, TRL_PARAM_NORM, i, h, 0, "%slayers.%d.input_layernorm.weight", pre, i);
        int post = trl__layout_add(
            l, TRL_PARAM_NORM, i, h, 0, "%slayers.%d.post_attention_layernorm.weight", pre, i);
        if (!c->post_norms) {
            y->norm2.w = post;
            continue;
        }
        y->post1.w = post;
        y->norm2.w = trl__layout_add(
            l, TRL_PARAM_NORM, i, h, 0, "%slayers.%d.pre_feedforward_layernorm.weight", pre, i);
        y->post2.w = trl__layout_add(
            l, TRL_PARAM_NORM, i, h, 0, "%slayers.%d.post_feedforward_layernorm.weight", pre, i);
    }
    l->final_norm.w = trl__layout_add(l, TRL_PARAM_NORM, -1, h, 0, "%snorm.weight", pre);
    l->head = c->tied ? l->embed
                      : trl__layout_add(l, TRL_PARAM_LINEAR, -1, c->vocab, h, "lm_head.weight");
}

static void llama_read(struct trl_config_reader *r, struct trl_model_config *c)
{
    static const struct trl_model_config def = {.vocab = 32000,
        .hidden = 4096,
        .inter = 11008,
        .layers = 32,
        .heads = 32,
        .max_positions = 2048,
        .eps = 1e-6,
        .bos_id = 1,
        .eos_id = 2,
        .pad_id = -1};
    trl__cfg_common(r, c, &def);
    trl__cfg_act(r, c, "hidden_act", "silu");
    c->gated = true;
    c->qkv_bias = c->o_bias = trl__cfg_bool(r, "attention_bias", false);
    c->mlp_bias = trl__cfg_bool(r, "mlp_bias", false);
    trl__cfg_rope(r, c, 10000);
    trl__cfg_layers(r, c, 0);
}

const struct trl_family trl__family_llama = {
    .model_type = "llama",
    .architecture = "LlamaForCausalLM",
    .prefix = "model.",
    .gguf_arch = "llama",
    .act_key = "hidden_act",
    .gguf_permuted = true,
    .read = llama_read,
    .layout = trl__layout_llama,
};

static void mistral_read(struct trl_config_reader *r, struct trl_model_config *c)
{
    static const struct trl_model_config def = {.vocab = 32000,
        .hidden = 4096,
        .inter = 14336,
        .layers = 32,
        .heads = 32,
        .kv_heads = 8,
        .max_positions = 131072,
        .eps = 1e-6,
        .bos_id = 1,
        .eos_id = 2,
        .pad_id = -1};
    trl__cfg_common(r, c, &def);
    trl__cfg_act(r, c, "hidden_act", "silu");
    c->gated = true;
    trl__cfg_rope(r, c, 10000);
    /* absent means 4096, null means no window */
    int64_t window = json_is_null(json_object_get(r->root, "sliding_window"))
        ? 0
        : trl__cfg_int(r, "sliding_window", 4096, 1, INT32_MAX);
    if (trl__cfg_layers(r, c, 0))
        for (int64_t i = 0; i < c->layers; i++)
            c->layer[i].window = window;
}

const struct trl_family trl__family_mistral = {
    .model_type = "mistral",
    .architecture = "MistralForCausalLM",
    .prefix = "model.",
    .act_key = "hidden_act",
    .read = mistral_read,
    .layout = trl__layout_llama,
};
