/* SPDX-License-Identifier: Apache-2.0 */
/* GPT-2: learned positions, LayerNorm, plain MLP, weights stored [in, out] (Conv1D), q k v in one
 * product. */
#include <math.h>

#include "model/family.h"

static void gpt2_read(struct trl_config_reader *r, struct trl_model_config *c)
{
    c->vocab = trl__cfg_int(r, "vocab_size", 50257, 1, 1 << 24);
    c->hidden = trl__cfg_int(r, "n_embd", 768, 1, 1 << 20);
    c->layers = trl__cfg_int(r, "n_layer", 12, 1, 4096);
    c->heads = c->kv_heads = trl__cfg_int(r, "n_head", 12, 1, 4096);
    c->max_positions = trl__cfg_int(r, "n_positions", 1024, 1, INT32_MAX);
    c->inter = trl__cfg_int(r, "n_inner", 4 * c->hidden, 1, 1 << 22);
    if (c->hidden % c->heads != 0)
        trl__problem(r->p, TRL_E_DATA, "n_embd %lld is no multiple of n_head %lld",
            (long long)c->hidden, (long long)c->heads);
    c->head_dim = c->hidden / c->heads > 0 ? c->hidden / c->heads : 1;
    c->eps = trl__cfg_num(r, "layer_norm_epsilon", 1e-5, 0, 1);
    c->init_range = trl__cfg_num(r, "initializer_range", 0.02, 0, 1e3);
    c->embd_dropout = trl__cfg_num(r, "embd_pdrop", 0.1, 0, 1);
    c->resid_dropout = trl__cfg_num(r, "resid_pdrop", 0.1, 0, 1);
    c->attn_dropout = trl__cfg_num(r, "attn_pdrop", 0.1, 0, 1);
    c->tied = trl__cfg_bool(r, "tie_word_embeddings", true);
    c->bos_id = (int)trl__cfg_int(r, "bos_token_id", 50256, 0, INT32_MAX);
    c->eos_id = (int)trl__cfg_int(r, "eos_token_id", 50256, 0, INT32_MAX);
    c->pad_id = (int)trl__cfg_int(r, "pad_token_id", -1, 0, INT32_MAX);
    c->norm = TRL_NORM_LAYER;
    c->qkv_bias = c->o_bias = c->mlp_bias = c->learned_positions = c->counts_first_label = true;
    trl__cfg_act(r, c, "activation_function", "gelu_new");
    if (trl__cfg_bool(r, "add_cross_attention", false))
        trl__problem(r->p, TRL_E_UNSUPPORTED, "add_cross_attention true is not supported");
    if (!trl__cfg_is_null(r, "quantization_config"))
        trl__problem(
            r->p, TRL_E_UNSUPPORTED, "quantization_config: quantised weights are not supported");
    bool scaled = trl__cfg_bool(r, "scale_attn_weights", true);
    bool by_layer = trl__cfg_bool(r, "scale_attn_by_inverse_layer_idx", false);
    if (!trl__cfg_layers(r, c, scaled ? 0 : 1))
        return;
    for (int64_t i = 0; i < c->layers; i++) {
        c->layer[i].rope = -1;
        if (by_layer)
            c->layer[i].scale /= (double)(i + 1);
    }
}

static void add_conv1d(struct trl_layout *l, struct trl_linear *y, int layer, int64_t in,
    int64_t out, const char *name)
{
    const char *pre = l->c->family->prefix;
    y->n = 1;
    y->w[0] =
        trl__layout_add(l, TRL_PARAM_LINEAR, layer, in, out, "%sh.%d.%s.weight", pre, layer, name);
    y->b[0] = trl__layout_add(l, TRL_PARAM_BIAS, layer, out, 0, "%sh.%d.%s.bias", pre, layer, name);
}

static void add_norm(struct trl_layout *l, struct trl_norm *y, int layer, const char *name)
{
    const char *pre = l->c->family->prefix;
    y->w = trl__layout_add(
        l, TRL_PARAM_NORM, layer, l->c->hidden, 0, "%sh.%d.%s.weight", pre, layer, name);
    y->b = trl__layout_add(
        l, TRL_PARAM_BIAS, layer, l->c->hidden, 0, "%sh.%d.%s.bias", pre, layer, name);
}

static void gpt2_layout(struct trl_layout *l)
{
    const struct trl_model_config *c = l->c;
    int64_t h = c->hidden;
    const char *pre = c->family->prefix;
    l->embed = trl__layout_add(l, TRL_PARAM_EMBED, -1, c->vocab, h, "%swte.weight", pre);
    l->positions =
        trl__layout_add(l, TRL_PARAM_EMBED, -1, c->max_positions, h, "%swpe.weight", pre);
    for (int i = 0; i < c->layers && !l->failed; i++) {
        struct trl_layer *y = &l->layers[i];
        add_norm(l, &y->norm1, i, "ln_1");
        add_conv1d(l, &y->qkv, i, h, 3 * h, "attn.c_attn");
        add_conv1d(l, &y->o, i, h, h, "attn.c_proj");
        add_norm(l, &y->norm2, i, "ln_2");
        add_conv1d(l, &y->up, i, h, c->inter, "mlp.c_fc");
        add_conv1d(l, &y->down, i, c->inter, h, "mlp.c_proj");
    }
    l->final_norm.w = trl__layout_add(l, TRL_PARAM_NORM, -1, h, 0, "%sln_f.weight", pre);
    l->final_norm.b = trl__layout_add(l, TRL_PARAM_BIAS, -1, h, 0, "%sln_f.bias", pre);
    l->head = c->tied ? l->embed
                      : trl__layout_add(l, TRL_PARAM_LINEAR, -1, c->vocab, h, "lm_head.weight");
}

const struct trl_family trl__family_gpt2 = {
    .model_type = "gpt2",
    .architecture = "GPT2LMHeadModel",
    .prefix = "transformer.",
    .gguf_arch = "gpt2",
    .act_key = "activation_function",
    .conv1d = true,
    .read = gpt2_read,
    .layout = gpt2_layout,
};
