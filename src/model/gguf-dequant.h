/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TRL_MODEL_GGUF_DEQUANT_H
#define TRL_MODEL_GGUF_DEQUANT_H
/* Blocks of GGUF tensors to float32. */
#include <stdbool.h>
#include <stdint.h>

/* Can trl__gguf_dequant read this type of ggml? */
bool trl__gguf_can_dequant(uint32_t type);
/* "F32, F16, ..." */
const char *trl__gguf_dequant_types(void);
/* n elements (a multiple of the type's block) from `src`, which needs no alignment. */
void trl__gguf_dequant(uint32_t type, const uint8_t *src, int64_t n, float *dst);

#endif
