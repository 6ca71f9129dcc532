/* SPDX-License-Identifier: Apache-2.0 */
#include "gguf-writer.h"

#include "model-test.h"

#include "base/gguf.h"
#include "model/family.h"

static void put(FILE *f, const void *p, size_t n)
{
    assert_int_equal(fwrite(p, 1, n, f), n);
}
static void put32(FILE *f, uint32_t v)
{
    put(f, &v, 4);
}
static void put64(FILE *f, uint64_t v)
{
    put(f, &v, 8);
}
static void put_str(FILE *f, const char *s)
{
    put64(f, strlen(s));
    put(f, s, strlen(s));
}

struct writer {
    FILE *f;
    const char *arch;
    uint64_t n; /* keys so far */
    bool counting; /* nothing is written, keys are counted */
};

static bool key(struct writer *w, const char *name, uint32_t type)
{
    char full[128];
    w->n++;
    if (w->counting)
        return false;
    bool own = strchr(name, '/') != NULL;
    snprintf(full, sizeof(full), own ? "%s%s" : "%s.%s", own ? "" : w->arch, own ? name + 1 : name);
    put_str(w->f, full);
    put32(w->f, type);
    return true;
}
static void key_u32(struct writer *w, const char *name, int64_t v)
{
    if (key(w, name, TRL_GGUF_U32))
        put32(w->f, (uint32_t)v);
}
static void key_f32(struct writer *w, const char *name, double v)
{
    float x = (float)v;
    if (key(w, name, TRL_GGUF_F32))
        put(w->f, &x, 4);
}
static void key_str(struct writer *w, const char *name, const char *v)
{
    if (key(w, name, TRL_GGUF_STRING))
        put_str(w->f, v);
}

static void keys(struct writer *w, const struct trl_model_config *c)
{
    key_str(w, "/general.architecture", w->arch);
    key_u32(w, "context_length", c->max_positions);
    key_u32(w, "embedding_length", c->hidden);
    key_u32(w, "block_count", c->layers);
    key_u32(w, "feed_forward_length", c->inter);
    key_u32(w, "attention.head_count", c->heads);
    if (c->bos_id >= 0)
        key_u32(w, "/tokenizer.ggml.bos_token_id", c->bos_id);
    key_u32(w, "/tokenizer.ggml.eos_token_id", c->eos_id);
    if (c->family->conv1d) {
        key_f32(w, "attention.layer_norm_epsilon", c->eps);
        return;
    }
    key_u32(w, "attention.head_count_kv", c->kv_heads);
    key_u32(w, "attention.key_length", c->head_dim);
    key_f32(w, "attention.layer_norm_rms_epsilon", c->eps);
    key_f32(w, "rope.freq_base", c->ropes[0].theta);
    if (c->norm == TRL_NORM_RMS_PLUS1)
        key_u32(w, "attention.sliding_window", 16);
    if (c->final_softcap > 0) {
        key_f32(w, "attn_logit_softcapping", c->attn_softcap);
        key_f32(w, "final_logit_softcapping", c->final_softcap);
    }
}

static const char *const llama_parts[][2] = {{"self_attn.q_proj", "attn_q"},
    {"self_attn.k_proj", "attn_k"}, {"self_attn.v_proj", "attn_v"},
    {"self_attn.o_proj", "attn_output"}, {"self_attn.q_norm", "attn_q_norm"},
    {"self_attn.k_norm", "attn_k_norm"}, {"mlp.gate_proj", "ffn_gate"}, {"mlp.up_proj", "ffn_up"},
    {"mlp.down_proj", "ffn_down"}, {"input_layernorm", "attn_norm"},
    {"pre_feedforward_layernorm", "ffn_norm"}, {"post_feedforward_layernorm", "post_ffw_norm"},
    {"ln_1", "attn_norm"}, {"ln_2", "ffn_norm"}, {"attn.c_attn", "attn_qkv"},
    {"attn.c_proj", "attn_output"}, {"mlp.c_fc", "ffn_up"}, {"mlp.c_proj", "ffn_down"}};

static void gguf_name(const struct trl_model *m, const struct trl_param *p, char *ret, size_t size)
{
    static const char *const top[][2] = {{"model.embed_tokens.", "token_embd."},
        {"transformer.wte.", "token_embd."}, {"transformer.wpe.", "position_embd."},
        {"model.norm.", "output_norm."}, {"transformer.ln_f.", "output_norm."},
        {"lm_head.", "output."}};
    const char *suffix = strrchr(p->name, '.');
    for (size_t i = 0; i < sizeof(top) / sizeof(top[0]); i++)
        if (trl_starts_with(p->name, top[i][0])) {
            snprintf(ret, size, "%s%s", top[i][1], suffix + 1);
            return;
        }
    char part[64];
    const char *at =
        p->name + (m->cfg.family->conv1d ? strlen("transformer.h.") : strlen("model.layers."));
    at = strchr(at, '.') + 1;
    snprintf(part, sizeof(part), "%.*s", (int)(suffix - at), at);
    const char *to = strcmp(part, "post_attention_layernorm") ? NULL
        : m->cfg.post_norms                                   ? "post_attention_norm"
                                                              : "ffn_norm";
    for (size_t i = 0; i < sizeof(llama_parts) / sizeof(llama_parts[0]); i++)
        if (strcmp(part, llama_parts[i][0]) == 0)
            to = llama_parts[i][1];
    assert_non_null(to);
    snprintf(ret, size, "blk.%d.%s%s", p->layer, to, suffix);
}

/* Rows as the file has them: interleaved q and k for llama, transposed Conv1D, norms + 1 for Gemma.
 */
static void layout_values(const struct trl_model *m, const struct trl_param *p, float *dst)
{
    const float *src = trl_param_at(m->params.weights, TRL_DTYPE_F32, p);
    const struct trl_family *f = m->cfg.family;
    int64_t rows = p->shape[0], cols = p->ndim == 2 ? p->shape[1] : 1, hd = m->cfg.head_dim;
    bool qk = f->gguf_permuted && (strstr(p->name, "q_proj") || strstr(p->name, "k_proj"));
    for (int64_t r = 0; r < rows; r++)
        for (int64_t c = 0; c < cols; c++) {
            int64_t at = p->conv1d ? c * rows + r : r * cols + c;
            if (qk) /* half s, pair i -> 2i + s */
                at = (r - r % hd + 2 * (r % hd % (hd / 2)) + r % hd / (hd / 2)) * cols + c;
            dst[at] =
                src[r * cols + c] + (f->gguf_norm_plus1 && p->role == TRL_PARAM_NORM ? 1.0f : 0.0f);
        }
}

static bool is_q8(const struct trl_param *p, bool q8)
{
    return q8 && p->ndim == 2 && (p->conv1d ? p->shape[0] : p->shape[1]) % 32 == 0;
}

static uint64_t data_size(const struct trl_param *p, bool q8)
{
    uint64_t n = (uint64_t)p->numel, size = is_q8(p, q8) ? n / 32 * 34 : n * 4;
    return (size + 31) / 32 * 32;
}

static void put_q8(FILE *f, const float *x, int64_t n)
{
    for (int64_t i = 0; i < n; i += 32) {
        float max = 0;
        for (int j = 0; j < 32; j++)
            max = fmaxf(max, fabsf(x[i + j]));
        uint16_t d = trl_f32_to_f16(max / 127);
        float scale = trl_f16_to_f32(d);
        put(f, &d, 2);
        for (int j = 0; j < 32; j++) {
            int8_t q = (int8_t)lrintf(scale > 0 ? x[i + j] / scale : 0);
            put(f, &q, 1);
        }
    }
}

static void put_data(FILE *f, const struct trl_model *m, const struct trl_param *p, bool q8)
{
    static const char zeros[32];
    float *x = malloc((size_t)p->numel * 4);
    long begin = ftell(f);
    layout_values(m, p, x);
    if (is_q8(p, q8))
        put_q8(f, x, p->numel);
    else
        put(f, x, (size_t)p->numel * 4);
    put(f, zeros, (size_t)(begin + (long)data_size(p, q8) - ftell(f)));
    free(x);
}

void gguf_write_model(const struct trl_model *m, const char *arch, const char *path, bool q8)
{
    struct writer w = {.f = fopen(path, "wb"), .arch = arch, .counting = true};
    assert_non_null(w.f);
    keys(&w, &m->cfg);
    put(w.f, "GGUF", 4);
    put32(w.f, 3);
    put64(w.f, (uint64_t)m->params.n);
    put64(w.f, w.n);
    w.counting = false;
    keys(&w, &m->cfg);
    uint64_t offset = 0;
    for (int i = 0; i < m->params.n; i++) {
        const struct trl_param *p = &m->params.items[i];
        char name[256];
        gguf_name(m, p, name, sizeof(name));
        put_str(w.f, name);
        put32(w.f, (uint32_t)p->ndim);
        for (int d = p->ndim - 1; d >= 0; d--)
            put64(w.f, (uint64_t)p->shape[p->conv1d ? p->ndim - 1 - d : d]);
        put32(w.f, is_q8(p, q8) ? TRL_GGML_Q8_0 : TRL_GGML_F32);
        put64(w.f, offset);
        offset += data_size(p, q8);
    }
    while (ftell(w.f) % 32 != 0)
        put(w.f, "", 1);
    for (int i = 0; i < m->params.n; i++)
        put_data(w.f, m, &m->params.items[i], q8);
    fclose(w.f);
}
