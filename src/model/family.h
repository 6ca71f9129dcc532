/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TRL_MODEL_FAMILY_H
#define TRL_MODEL_FAMILY_H
/*
 * A family = how config.json is read, and what the tensors are called. To add one: a file
 * family-NAME.c with an entry, listed in families.c; blocks need a change only when the arithmetic
 * is new.
 */
#include "model/config.h"
#include "model/layout.h"

struct trl_family {
    const char *model_type; /* of config.json */
    const char *architecture; /* the class that loads it in transformers */
    const char *prefix; /* of every tensor but the head: "model." */
    const char *gguf_arch; /* general.architecture of GGUF files, NULL: none */
    const char *act_key; /* "hidden_act" */
    bool gguf_permuted; /* q and k rows of GGUF files are interleaved (model-formats: llama only) */
    bool gguf_norm_plus1; /* GGUF norm weights hold 1 + w */
    bool conv1d; /* linear weights are stored [in, out] */
    void (*read)(struct trl_config_reader *r, struct trl_model_config *c);
    void (*layout)(struct trl_layout *l);
};

const struct trl_family *trl__family_find(const char *model_type);
const struct trl_family *trl__family_find_gguf(const char *arch);
/* "llama, mistral, ..." */
void trl__family_names(struct trl_str *s);

extern const struct trl_family trl__family_llama, trl__family_mistral, trl__family_qwen2,
    trl__family_qwen3, trl__family_gpt2, trl__family_gemma2, trl__family_gemma3;

/* Tensor names of the Llama shape (with biases, q/k norms and four norms a layer where the
 * configuration has them). */
void trl__layout_llama(struct trl_layout *l);

#endif
