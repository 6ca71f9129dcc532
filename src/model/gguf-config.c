/* SPDX-License-Identifier: Apache-2.0 */
/* config.json and generation_config.json written anew from the metadata of a GGUF file. */
#include <math.h>
#include <string.h>

#include "base/alloc.h"
#include "base/gguf.h"
#include "model/family.h"
#include "model/gguf-dequant.h"
#include "model/internal.h"

/* Reads ARCH.key values; the first error stays. */
struct meta {
    const struct trl_gguf *g;
    const char *arch;
    int rc;
    struct trl_err *err;
};

static const char *full_key(const struct meta *m, const char *key, char buf[128])
{
    snprintf(buf, 128, "%s.%s", m->arch, key);
    return buf;
}

static bool has(const struct meta *m, const char *key)
{
    char buf[128];
    return trl_gguf_has(m->g, full_key(m, key, buf));
}

static int64_t get_int(struct meta *m, const char *key, int64_t def, bool needed)
{
    char buf[128];
    int64_t v = def;
    full_key(m, key, buf);
    if (m->rc == 0 && needed && !trl_gguf_has(m->g, buf))
        m->rc =
            trl_fail(m->err, TRL_E_DATA, "%s: metadata %s is missing", trl_gguf_origin(m->g), buf);
    if (m->rc == 0)
        m->rc = trl_gguf_get_int(m->g, buf, &v, m->err);
    return v;
}

static double get_float(struct meta *m, const char *key, double def)
{
    char buf[128];
    double v = def;
    if (m->rc == 0)
        m->rc = trl_gguf_get_float(m->g, full_key(m, key, buf), &v, m->err);
    if (m->rc == 0 && !isfinite(v))
        m->rc = trl_fail(m->err, TRL_E_DATA, "%s: metadata %s is no finite number",
            trl_gguf_origin(m->g), buf);
    if (m->rc)
        return def;
    /* stored as float32: the shortest decimal that gives the same float32 is what the author wrote
     */
    for (int digits = 1; digits < 9; digits++) {
        snprintf(buf, sizeof(buf), "%.*g", digits, v);
        double back;
        if (trl_parse_f64(buf, &back) && (float)back == (float)v)
            return back;
    }
    return v;
}

/* Takes v, also when it fails; v NULL: there was no memory for it. */
static void put(struct meta *m, json_t *j, const char *key, json_t *v)
{
    if (json_object_set_new(j, key, v) != 0 && m->rc == 0)
        m->rc = trl_fail_nomem(m->err, 64, "a configuration");
}

static void put_int(struct meta *m, json_t *j, const char *key, int64_t v)
{
    put(m, j, key, json_integer(v));
}

static void put_float(struct meta *m, json_t *j, const char *key, double v)
{
    put(m, j, key, json_real(v));
}

/* The factors of rope_freqs.weight are those of the llama3 rule with the constants that all Llama 3
 * models share. */
static int llama3_scaling(struct meta *m, json_t *j, int64_t head_dim, double theta)
{
    const struct trl_gguf_tensor *t = trl_gguf_find_tensor(m->g, "rope_freqs.weight");
    if (!t || m->rc)
        return m->rc;
    int64_t n = head_dim / 2;
    if (t->type != TRL_GGML_F32 || (int64_t)t->n_elems != n || n < 1 || n > 2048)
        return trl_fail(m->err, TRL_E_DATA,
            "%s: rope_freqs.weight is no F32 vector of head_dim/2 = %lld", trl_gguf_origin(m->g),
            (long long)n);
    float f[2048];
    trl__gguf_dequant(t->type, t->data, n, f);
    struct trl_rope_config r = {.kind = TRL_ROPE_LLAMA3,
        .theta = theta,
        .factor = f[n - 1],
        .low_freq_factor = 1,
        .high_freq_factor = 4,
        .original_max = 8192};
    for (int64_t i = 0; i < n; i++) {
        double inv = pow(theta, -2.0 * (double)i / (double)head_dim), wavelen = 2 * M_PI / inv,
               want = 1;
        double s = ((double)r.original_max / wavelen - r.low_freq_factor) /
            (r.high_freq_factor - r.low_freq_factor);
        if (s < 1)
            want = s <= 0 ? r.factor : 1 / ((1 - s) / r.factor + s);
        if (!(fabs(f[i] - want) <= 1e-3 * want))
            return trl_fail(m->err, TRL_E_UNSUPPORTED,
                "%s: rope_freqs.weight follows no known rope scaling", trl_gguf_origin(m->g));
    }
    put(m, j, "rope_scaling",
        json_pack("{sssfsfsfsi}", "rope_type", "llama3", "factor", r.factor, "low_freq_factor", 1.0,
            "high_freq_factor", 4.0, "original_max_position_embeddings", 8192));
    return 0;
}

static void put_scaling(struct meta *m, json_t *j)
{
    const char *type = NULL;
    size_t len = 0;
    char buf[128];
    if (m->rc == 0)
        m->rc = trl_gguf_get_str(m->g, full_key(m, "rope.scaling.type", buf), &type, &len, m->err);
    if (m->rc || !type || (len == 4 && memcmp(type, "none", 4) == 0))
        return;
    char name[32] = "?"; /* what is longer, or no UTF-8, is no name of a scaling */
    if (len < sizeof(name) && trl_utf8_check(type, len) == len)
        snprintf(name, sizeof(name), "%.*s", (int)len, type);
    json_t *s = json_object();
    put(m, s, "rope_type", json_string(name));
    put_float(m, s, "factor", get_float(m, "rope.scaling.factor", 1));
    if (has(m, "rope.scaling.original_context_length"))
        put_int(m, s, "original_max_position_embeddings",
            get_int(m, "rope.scaling.original_context_length", 0, false));
    put(m, j, "rope_scaling", s);
}

static void put_gpt2(struct meta *m, json_t *j)
{
    put_int(m, j, "n_positions", get_int(m, "context_length", 1024, true));
    put_int(m, j, "n_embd", get_int(m, "embedding_length", 0, true));
    put_int(m, j, "n_layer", get_int(m, "block_count", 0, true));
    put_int(m, j, "n_head", get_int(m, "attention.head_count", 0, true));
    put_int(m, j, "n_inner", get_int(m, "feed_forward_length", 0, true));
    put_float(m, j, "layer_norm_epsilon", get_float(m, "attention.layer_norm_epsilon", 1e-5));
    put(m, j, "activation_function", json_string("gelu_new"));
    /* the file does not say; training without dropout is what can be done with certainty */
    static const char *const drops[] = {"embd_pdrop", "resid_pdrop", "attn_pdrop"};
    for (int i = 0; i < 3; i++)
        put_float(m, j, drops[i], 0);
}

/* Gemma's score scale is in no metadata: head_dim, except in the largest models, where it is
 * hidden/heads. */
static void put_gemma(
    struct meta *m, json_t *j, int64_t hidden, int64_t heads, int64_t head_dim, int64_t layers)
{
    bool v2 = strcmp(m->arch, "gemma2") == 0;
    bool largest = layers == (v2 ? 46 : 62);
    put_int(m, j, "query_pre_attn_scalar", largest && heads > 0 ? hidden / heads : head_dim);
    put_int(m, j, "sliding_window", get_int(m, "attention.sliding_window", v2 ? 4096 : 1024, false));
    if (v2) {
        put_float(m, j, "attn_logit_softcapping", get_float(m, "attn_logit_softcapping", 50));
        put_float(m, j, "final_logit_softcapping", get_float(m, "final_logit_softcapping", 30));
    } else {
        put_float(m, j, "rope_local_base_freq", 10000);
        put_int(m, j, "sliding_window_pattern", 6);
    }
}

static void put_llama(struct meta *m, json_t *j, const struct trl_family *f)
{
    int64_t hidden = get_int(m, "embedding_length", 0, true),
            heads = get_int(m, "attention.head_count", 0, true);
    int64_t layers = get_int(m, "block_count", 0, true);
    int64_t head_dim = get_int(m, "attention.key_length", heads > 0 ? hidden / heads : 0, false);
    bool gemma = f->gguf_norm_plus1;
    double theta =
        get_float(m, "rope.freq_base", gemma && strcmp(m->arch, "gemma3") == 0 ? 1e6 : 10000);
    put_int(m, j, "hidden_size", hidden);
    put_int(m, j, "intermediate_size", get_int(m, "feed_forward_length", 0, true));
    put_int(m, j, "num_hidden_layers", layers);
    put_int(m, j, "num_attention_heads", heads);
    put_int(m, j, "num_key_value_heads", get_int(m, "attention.head_count_kv", heads, false));
    put_int(m, j, "head_dim", head_dim);
    put_int(m, j, "max_position_embeddings", get_int(m, "context_length", 2048, true));
    put_float(m, j, "rms_norm_eps", get_float(m, "attention.layer_norm_rms_epsilon", 1e-6));
    put_float(m, j, "rope_theta", theta);
    put(m, j, f->act_key, json_string(gemma ? "gelu_pytorch_tanh" : "silu"));
    put_scaling(m, j);
    if (strcmp(m->arch, "llama") == 0) {
        bool bias = trl_gguf_find_tensor(m->g, "blk.0.attn_q.bias");
        put(m, j, "attention_bias", json_boolean(bias));
        put(m, j, "mlp_bias", json_false());
        if (m->rc == 0)
            m->rc = llama3_scaling(m, j, head_dim, theta);
    }
    if (gemma)
        put_gemma(m, j, hidden, heads, head_dim, layers);
}

static json_t *token_ids(struct meta *m)
{
    static const char *const keys[][2] = {{"tokenizer.ggml.bos_token_id", "bos_token_id"},
        {"tokenizer.ggml.eos_token_id", "eos_token_id"},
        {"tokenizer.ggml.padding_token_id", "pad_token_id"}};
    json_t *j = json_object();
    for (int i = 0; i < 3; i++) {
        int64_t v = -1;
        if (m->rc == 0)
            m->rc = trl_gguf_get_int(m->g, keys[i][0], &v, m->err);
        if (v >= 0)
            put_int(m, j, keys[i][1], v);
    }
    return j;
}

static int find_family(
    const struct trl_gguf *g, char arch[64], const struct trl_family **ret, struct trl_err *err)
{
    const char *s = NULL;
    size_t len = 0;
    int64_t splits = 1;
    int rc = trl_gguf_get_str(g, "general.architecture", &s, &len, err);
    if (rc == 0)
        rc = trl_gguf_get_int(g, "split.count", &splits, err);
    if (rc)
        return rc;
    if (splits > 1)
        return trl_fail(err, TRL_E_UNSUPPORTED,
            "%s: one of %lld parts of a model; join them first (llama-gguf-split "
            "--merge)",
            trl_gguf_origin(g), (long long)splits);
    snprintf(arch, 64, "%.*s", s ? (int)(len < 60 ? len : 60) : 0, s ? s : "");
    *ret = trl__family_find_gguf(arch);
    return *ret ? 0
                : trl_fail(err, TRL_E_UNSUPPORTED,
                      "%s: general.architecture \"%s\" is not supported (llama, qwen2, "
                      "qwen3, gpt2, gemma2, gemma3 are)",
                      trl_gguf_origin(g), arch);
}

static int build(struct trl_model_config *c, const struct trl_gguf *g, struct trl_err *err)
{
    char arch[64];
    const struct trl_family *f;
    int rc = find_family(g, arch, &f, err);
    if (rc)
        return rc;
    struct meta m = {g, arch, 0, err};
    const struct trl_gguf_tensor *embed = trl_gguf_find_tensor(g, "token_embd.weight");
    if (!embed || embed->n_dims != 2)
        return trl_fail(err, TRL_E_DATA, "%s: tensor token_embd.weight is missing or no matrix",
            trl_gguf_origin(g));
    json_t *j =
        json_pack("{sss[s]}", "model_type", f->model_type, "architectures", f->architecture);
    json_t *ids = token_ids(&m);
    put_int(&m, j, "vocab_size", embed->dims[1] > INT64_MAX ? -1 : (int64_t)embed->dims[1]);
    put(&m, j, "tie_word_embeddings", json_boolean(!trl_gguf_find_tensor(g, "output.weight")));
    if (f->conv1d)
        put_gpt2(&m, j);
    else
        put_llama(&m, j, f);
    if (m.rc == 0 && (!ids || json_object_update(j, ids) != 0))
        m.rc = trl_fail_nomem(err, 64, "a configuration");
    rc = m.rc ? m.rc : trl__config_from_json(c, j, trl_gguf_origin(g), err);
    if (rc == 0)
        trl__config_set_generation(c, ids);
    json_decref(ids);
    json_decref(j);
    return rc;
}

int trl__gguf_config(struct trl_model_config *c, const char *path, struct trl_err *err)
{
    *c = (struct trl_model_config){0};
    struct trl_gguf *g = NULL;
    int rc = trl_gguf_open(&g, path, err);
    if (rc == 0)
        rc = build(c, g, err);
    trl_gguf_close(g);
    return rc;
}
