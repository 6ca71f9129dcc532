/* SPDX-License-Identifier: Apache-2.0 */
/* Weights of a GGUF file into the slab: renamed, dequantised, and laid out as Hugging Face has
 * them. */
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/gguf.h"
#include "model/family.h"
#include "model/gguf-dequant.h"
#include "model/weights.h"

/* ---- names ---- */

struct rename {
    const char *gguf, *hf;
};
static const struct rename llama_names[] = {{"attn_norm", "input_layernorm"},
    {"attn_q", "self_attn.q_proj"}, {"attn_k", "self_attn.k_proj"}, {"attn_v", "self_attn.v_proj"},
    {"attn_output", "self_attn.o_proj"}, {"attn_q_norm", "self_attn.q_norm"},
    {"attn_k_norm", "self_attn.k_norm"}, {"ffn_gate", "mlp.gate_proj"}, {"ffn_up", "mlp.up_proj"},
    {"ffn_down", "mlp.down_proj"}, {"post_attention_norm", "post_attention_layernorm"},
    {"post_ffw_norm", "post_feedforward_layernorm"}, {NULL, NULL}};
static const struct rename gpt2_names[] = {{"attn_norm", "ln_1"}, {"attn_qkv", "attn.c_attn"},
    {"attn_output", "attn.c_proj"}, {"ffn_norm", "ln_2"}, {"ffn_up", "mlp.c_fc"},
    {"ffn_down", "mlp.c_proj"}, {NULL, NULL}};
static const struct rename llama_top[] = {{"token_embd", "model.embed_tokens"},
    {"output_norm", "model.norm"}, {"output", "lm_head"}, {NULL, NULL}};
static const struct rename gpt2_top[] = {{"token_embd", "transformer.wte"},
    {"position_embd", "transformer.wpe"}, {"output_norm", "transformer.ln_f"},
    {"output", "lm_head"}, {NULL, NULL}};

static const char *renamed(const struct rename *table, const char *name, size_t len)
{
    for (; table->gguf; table++)
        if (strlen(table->gguf) == len && memcmp(table->gguf, name, len) == 0)
            return table->hf;
    return NULL;
}

/* "blk.3.attn_q.weight" -> "model.layers.3.self_attn.q_proj.weight"; false: unknown */
static bool hf_name(const struct trl_model *m, const char *name, char *ret, size_t size)
{
    bool gpt2 = m->cfg.family->conv1d;
    const char *dot = strrchr(name, '.');
    if (!dot)
        return false;
    if (!trl_starts_with(name, "blk.")) {
        const char *hf = renamed(gpt2 ? gpt2_top : llama_top, name, (size_t)(dot - name));
        return hf && snprintf(ret, size, "%s%s", hf, dot) < (int)size;
    }
    const char *number = name + 4, *part = strchr(number, '.');
    if (!part || part >= dot)
        return false;
    part++;
    size_t len = (size_t)(dot - part);
    const char *hf = renamed(gpt2 ? gpt2_names : llama_names, part, len);
    if (!gpt2 && len == 8 && memcmp(part, "ffn_norm", 8) == 0)
        hf = m->cfg.post_norms ? "pre_feedforward_layernorm" : "post_attention_layernorm";
    return hf &&
        snprintf(ret, size, gpt2 ? "transformer.h.%.*s.%s%s" : "model.layers.%.*s.%s%s",
            (int)(part - 1 - number), number, hf, dot) < (int)size;
}

/* ---- data ---- */

struct decode {
    const struct trl_gguf_tensor *t;
    int64_t first_row, row_elems, row_bytes, head_dim; /* head_dim 0: rows stay where they are */
    float *dst;
    float shift;
};

/* Interleaved rotary pairs back to halves: row 2i + s of a head comes to s * hd/2 + i. */
static int64_t unpermuted(int64_t row, int64_t hd)
{
    int64_t in_head = row % hd;
    return row - in_head + in_head % 2 * (hd / 2) + in_head / 2;
}

static void decode_rows(void *pv, int64_t begin, int64_t end, int thread)
{
    const struct decode *d = pv;
    for (int64_t r = begin; r < end; r++) {
        float *dst = d->dst + (d->head_dim ? unpermuted(r, d->head_dim) : r) * d->row_elems;
        trl__gguf_dequant(
            d->t->type, d->t->data + (d->first_row + r) * d->row_bytes, d->row_elems, dst);
        for (int64_t i = 0; d->shift != 0 && i < d->row_elems; i++)
            dst[i] += d->shift;
    }
}

static void transpose(const float *src, int64_t rows, int64_t cols, float *dst)
{
    for (int64_t r = 0; r < rows; r++)
        for (int64_t c = 0; c < cols; c++)
            dst[c * rows + r] = src[r * cols + c];
}

static bool is_qk(const char *name)
{
    return trl_ends_with(name, "q_proj.weight") || trl_ends_with(name, "k_proj.weight") ||
        trl_ends_with(name, "q_proj.bias") || trl_ends_with(name, "k_proj.bias");
}

static int stream_tensor(struct trl_model *m, const struct trl_param *p,
    const struct trl_gguf_tensor *t, const char *origin, struct trl_err *err)
{
    struct decode d = {.t = t};
    bool permuted = m->cfg.family->gguf_permuted && is_qk(p->name);
    int64_t hd = m->cfg.head_dim, rows = p->ndim == 2 ? p->numel / (int64_t)t->dims[0] : 1;
    d.row_elems = (int64_t)t->dims[0];
    d.row_bytes = (int64_t)t->n_bytes / rows;
    if (permuted && p->ndim == 1) { /* a bias: each element is a row */
        rows = p->numel;
        d.row_bytes = (int64_t)t->n_bytes / rows;
        d.row_elems = 1;
    }
    d.head_dim = permuted ? hd : 0;
    d.shift = m->cfg.family->gguf_norm_plus1 && p->role == TRL_PARAM_NORM ? -1.0f : 0.0f;
    int64_t step = p->conv1d ? rows : (1 << 20) / d.row_elems / hd * hd;
    step = step < hd ? hd : step;
    step = step > rows ? rows : step;
    size_t bytes = trl_size_mul((size_t)(step * d.row_elems), 4);
    d.dst = trl_malloc(trl_size_mul(bytes, 2));
    if (!d.dst)
        return trl_fail_nomem(err, bytes, p->name);
    float *other = d.dst + step * d.row_elems;
    int rc = 0;
    for (int64_t first = 0; first < rows && rc == 0; first += step) {
        int64_t n = rows - first < step ? rows - first : step;
        d.first_row = first;
        trl_parallel_for(m->be->pool, n, permuted ? hd : 1, decode_rows, &d);
        if (p->conv1d) {
            transpose(d.dst, rows, d.row_elems, other);
            rc = trl__weights_put(
                m, p, 0, p->numel, other, TRL_DTYPE_F32, d.dst, origin, t->name, err);
        } else {
            rc = trl__weights_put(m, p, first * d.row_elems, n * d.row_elems, d.dst, TRL_DTYPE_F32,
                other, origin, t->name, err);
        }
    }
    trl_free(d.dst);
    return rc;
}

/* ---- the file ---- */

/* dims run the other way; Conv1D weights are stored transposed */
static bool check_tensor(const struct trl_param *p, const struct trl_gguf_tensor *t,
    const char *origin, struct trl_problems *problems)
{
    int64_t shape[4];
    int ndim = (int)t->n_dims;
    for (int i = 0; i < ndim && i < 4; i++)
        shape[i] = (int64_t)t->dims[p->conv1d ? i : ndim - 1 - i];
    const char *type = "?";
    unsigned elems = 1, bytes;
    if (!trl__gguf_can_dequant(t->type)) {
        if (trl_ggml_type_info(t->type, &type, &elems, &bytes))
            trl__problem(problems, TRL_E_UNSUPPORTED, "tensor %s has type %s (%s are supported)",
                t->name, type, trl__gguf_dequant_types());
        else
            trl__problem(
                problems, TRL_E_UNSUPPORTED, "tensor %s has the unknown type %u", t->name, t->type);
        return false;
    }
    trl_ggml_type_info(t->type, &type, &elems, &bytes);
    if (p->ndim == 1 && elems != 1) { /* biases may be taken apart element by element */
        trl__problem(problems, TRL_E_UNSUPPORTED,
            "tensor %s is a vector of type %s (vectors are F32, F16 or BF16)", t->name, type);
        return false;
    }
    return trl__weights_shape_fits(p, shape, ndim, origin, t->name, problems);
}

static void match_tensors(const struct trl_model *m, const struct trl_gguf *g,
    const struct trl_gguf_tensor **matches, bool *found, struct trl_problems *problems)
{
    for (int64_t i = 0; i < trl_gguf_n_tensors(g); i++) {
        const struct trl_gguf_tensor *t = trl_gguf_tensor(g, i);
        char name[256];
        if (strcmp(t->name, "rope_freqs.weight") == 0) /* gguf-config.c has read it */
            continue;
        int k = hf_name(m, t->name, name, sizeof(name)) ? trl__weights_find(m, name)
                                                        : TRL_WEIGHT_UNKNOWN;
        if (k == TRL_WEIGHT_UNKNOWN)
            trl__problem(problems, TRL_E_DATA, "tensor %s is none of a %s model", t->name,
                m->cfg.family->model_type);
        if (k < 0)
            continue;
        if (found[k])
            trl__problem(problems, TRL_E_DATA, "tensor %s is there twice", t->name);
        else if (check_tensor(trl__param(m, k), t, trl_gguf_origin(g), problems))
            matches[k] = t;
        found[k] = true;
    }
    trl__weights_missing(m, found, problems);
}

int trl__weights_load_gguf(struct trl_model *m, const char *path, struct trl_err *err)
{
    struct trl_gguf *g = NULL;
    struct trl_problems problems = {0};
    int rc = trl_gguf_open(&g, path, err);
    if (rc)
        return rc;
    const struct trl_gguf_tensor **matches = trl_calloc((size_t)m->params.n, sizeof(matches[0]));
    bool *found = trl_calloc((size_t)m->params.n, sizeof(found[0]));
    if (!matches || !found) {
        rc = trl_fail_nomem(err, (size_t)m->params.n * 9, "loading weights");
        goto out;
    }
    match_tensors(m, g, matches, found, &problems);
    rc = trl__problems_end(&problems, err, path);
    for (int i = 0; i < m->params.n && rc == 0; i++)
        rc = stream_tensor(m, &m->params.items[i], matches[i], path, err);
out:
    trl_free(found);
    trl_free(matches);
    trl_gguf_close(g);
    return rc;
}
