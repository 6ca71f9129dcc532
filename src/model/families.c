/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "model/family.h"

static const struct trl_family *const families[] = {
    &trl__family_llama,
    &trl__family_mistral,
    &trl__family_qwen2,
    &trl__family_qwen3,
    &trl__family_gpt2,
    &trl__family_gemma2,
    &trl__family_gemma3,
};
enum { N_FAMILIES = sizeof(families) / sizeof(families[0]) };

const struct trl_family *trl__family_find(const char *model_type)
{
    for (int i = 0; i < N_FAMILIES; i++)
        if (strcmp(families[i]->model_type, model_type) == 0)
            return families[i];
    return NULL;
}

const struct trl_family *trl__family_find_gguf(const char *arch)
{
    for (int i = 0; i < N_FAMILIES; i++)
        if (families[i]->gguf_arch && strcmp(families[i]->gguf_arch, arch) == 0)
            return families[i];
    return NULL;
}

void trl__family_names(struct trl_str *s)
{
    for (int i = 0; i < N_FAMILIES; i++)
        trl_str_printf(s, "%s%s", i ? ", " : "", families[i]->model_type);
}
