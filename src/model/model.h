/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TRL_MODEL_MODEL_H
#define TRL_MODEL_MODEL_H
/*
 * A causal language model on one backend: parameters, forward, head, backward. It knows nothing of trainers.
 * The narrow waist: a micro-batch is a list of token rows, flattened without pads; the model answers with
 * per-token numbers; the trainer hands back the gradient of its loss with respect to those few floats.
 *
 *   trl_model_load -> trl_model_prepare (memory) -> { forward -> head -> backward }* -> trl_model_save
 */
#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "tensor/backend.h"

/* What a parameter is, for weight decay groups, initialisation and adapters. */
enum trl_param_role {
    TRL_PARAM_LINEAR,
    TRL_PARAM_EMBED,
    TRL_PARAM_NORM,
    TRL_PARAM_BIAS,
    TRL_PARAM_ROLE_MAX_
};

struct trl_param {
    char *name;          /* Hugging Face's: "model.layers.0.self_attn.q_proj.weight" */
    int64_t shape[2];    /* as stored in the file; vectors: shape[1] = 0 */
    int ndim;            /* 1 or 2 */
    int64_t numel;
    enum trl_param_role role;
    int layer;           /* -1: not in a layer */
    bool trainable;      /* frozen parameters have no gradient and no optimiser state */
    bool decay;          /* takes weight decay (no bias, no norm) */
    bool conv1d;         /* stored [in, out] (GPT-2) */
    int64_t offset;      /* elements from the start of the weight slab; grads: the same offset */
    int ready_order;     /* its gradient is complete when backward has called grad_ready with this number */
};

/* All parameters in named_parameters() order (the order of optimiser state and of norms). One slab of weights, one of
 * gradients, cut at the same offsets; every parameter starts at a multiple of 64 elements, the gaps stay 0. */
struct trl_params {
    struct trl_param *items;
    int n;
    int64_t numel;         /* sum of numel, without gaps */
    int64_t slab_elems;    /* with gaps */
    enum trl_dtype dtype;  /* of weights and gradients */
    void *weights, *grads; /* device slabs; grads NULL until prepared for training */
    enum trl_dtype copy_dtype; /* BF16/F16 with mixed precision: */
    void *copy;            /* weights rounded to copy_dtype, same offsets, or NULL. The optimiser refreshes it. */
};
/* Element `p->offset` of a slab of type `t`. */
static inline void *trl_param_at(void *slab, enum trl_dtype t, const struct trl_param *p)
{
    return (char *)slab + (size_t)p->offset * trl_dtype_size(t);
}

/* Facts about a loaded configuration that others need. */
struct trl_model_info {
    char model_type[32];
    int64_t vocab_size, hidden_size, n_layers, max_positions; /* max_positions: 0 = none */
    bool tied, learned_positions;
    bool counts_first_label; /* transformers' Trainer counts a row's first label for the loss divisor, too (GPT-2) */
    int bos_id, eos_id, pad_id;     /* of config.json / generation_config.json, -1: none (first of a list) */
    double flops_per_token;         /* forward, matmuls without attention scores: 2 * multiplying parameters */
    double flops_per_token_ctx;     /* forward, per token and visible key: 4 * heads * head_dim * layers */
};

struct trl_model;

struct trl_model_options {
    const char *path;          /* folder, .gguf file, or hub name (looked up in the HF caches) */
    const char *revision;      /* "main" */
    const char *dtype;         /* "float32", "bfloat16", "float16", "auto": type of weights */
    bool from_scratch;         /* config.json alone, initialised from `seed` */
    uint64_t seed;
    enum trl_dtype compute;    /* type that matmul inputs are rounded to: BF16 with bf16 autocast, F32 otherwise */
};
/* Reads configuration and weights. Errors list everything that is wrong (unsupported fields, missing tensors). */
int trl_model_load(struct trl_model **ret, struct trl_backend *be, const struct trl_model_options *opt,
    struct trl_err *err);
void trl_model_free(struct trl_model *m);
const struct trl_model_info *trl_model_get_info(const struct trl_model *m);
struct trl_params *trl_model_get_params(struct trl_model *m);

/* Memory for the largest micro-batch. Plan: bytes by category, nothing is allocated (works from config.json alone).
 * visit (may be NULL) sees the parameter table, which has no slabs and is gone afterwards. */
struct trl_model_capacity {
    int64_t max_tokens;     /* tokens of one micro-batch */
    int64_t max_docs;
    int64_t max_position;   /* longest row */
    bool training;          /* gradients and saved activations */
    bool checkpointing;     /* recompute layers in backward: saves only each layer's input */
};
struct trl_model_plan {
    size_t weights, copy, grads, activations, head, scratch, packed; /* bytes */
};
int trl_model_plan(const struct trl_model_options *opt, struct trl_backend *be, const struct trl_model_capacity *cap,
    struct trl_model_plan *ret, struct trl_model_info *ret_info,
    int (*visit)(void *ctx, const struct trl_params *params, struct trl_err *err), void *ctx, struct trl_err *err);
int trl_model_prepare(struct trl_model *m, const struct trl_model_capacity *cap, struct trl_err *err);

/* One micro-batch. Host pointers, borrowed until the next forward. */
struct trl_tokens {
    int64_t n, n_docs;
    const int32_t *ids;          /* [n] */
    const int32_t *positions;    /* [n], from 0 in each doc unless the data says otherwise */
    const int64_t *doc_start;    /* [n_docs + 1] */
    int64_t padded_length;       /* longest row with pads (dynamic rope only) */
};
/* Run the body; the final norm's output stays inside. train: keep what backward needs (dropout on). */
int trl_model_forward(struct trl_model *m, const struct trl_tokens *tokens, bool train, struct trl_err *err);

/* The head, chunk by chunk; logits of a step never exist as a whole. targets[n]: the label that token t predicts, < 0: none.
 * Only tokens with a target >= 0 are computed. Stats arrays have n entries (any may be NULL): entries without a target are 0.
 * For each chunk `coef` (may be NULL) gets the stats of `count` scored tokens (their indices into the micro-batch in token_index). With
 * want_grad the head's backward runs in the same pass, and coef fills d_logp/d_mean (and d_entropy), which are zeroed. */
struct trl_head_chunk {
    int64_t count;
    const int32_t *token_index; /* [count] */
    const float *logp, *entropy, *mean_logp;
    const uint8_t *hit;
    float *d_logp, *d_entropy, *d_mean; /* zeroed; fill what is wanted */
};
struct trl_head_args {
    const int32_t *targets;
    float *logp, *entropy, *mean_logp; /* host outputs */
    uint8_t *hit;
    bool want_grad, want_mean, want_entropy_grad;
    void (*coef)(void *ctx, const struct trl_head_chunk *chunk);
    void *coef_ctx;
};
int trl_model_head(struct trl_model *m, const struct trl_head_args *args, struct trl_err *err);
/* Logits of the given tokens of the last forward, float32, into host memory [n, vocab] (tests, generation). */
int trl_model_logits(struct trl_model *m, const int32_t *token_index, int64_t n, float *ret, struct trl_err *err);

/* Backward through the body after a head with want_grad; gradients are added to the slab. grad_ready(ctx, k) is called
 * when all parameters with ready_order == k are complete, k = 0, 1, 2... (head and final norm first, embedding last).
 * Tied embeddings become ready last. NULL: nobody wants to know. */
int trl_model_backward(struct trl_model *m, void (*grad_ready)(void *ctx, int order), void *ctx, struct trl_err *err);
int trl_model_n_ready(const struct trl_model *m);
int trl_model_zero_grads(struct trl_model *m, struct trl_err *err);
/* The optimiser or a load changed the weights: copies are refreshed if `copies_done` is false, packed weights dropped. */
int trl_model_weights_changed(struct trl_model *m, bool copies_done, struct trl_err *err);

/* NEFTune: uniform noise alpha/sqrt(len*hidden) on embeddings of training forwards. 0: off. */
void trl_model_set_neftune(struct trl_model *m, double alpha, uint64_t seed);
/* The noise comes from torch's global generator, of which others take words, too: leave out as many. */
void trl_model_skip_noise(struct trl_model *m, int words);
/* State of the model's own random numbers (dropout, NEFTune), saved in checkpoints: opaque words. */
enum { TRL_MODEL_RNG_WORDS = 640 };
void trl_model_get_rng(const struct trl_model *m, uint64_t ret[TRL_MODEL_RNG_WORDS]);
void trl_model_set_rng(struct trl_model *m, const uint64_t words[TRL_MODEL_RNG_WORDS]);

/* Write config.json, generation_config.json and the weights (safetensors, sharded above max_shard_size bytes) into `dir`,
 * which exists. save_dtype NULL: the training type. Each file is written atomically and fsynced. */
int trl_model_save(struct trl_model *m, const char *dir, const char *save_dtype, uint64_t max_shard_size,
    struct trl_err *err);
/* Read the weights of a folder that trl_model_save wrote into the model (resume). */
int trl_model_reload(struct trl_model *m, const char *dir, struct trl_err *err);

/* Where `path` really is: a folder with config.json or a .gguf file. Hub names are looked up in HF_HUB_CACHE, HF_HOME/hub,
 * ~/.cache/huggingface/hub; otherwise the error says what to download. Caller frees. */
int trl_model_locate(const char *path, const char *revision, char **ret, struct trl_err *err);

#endif
