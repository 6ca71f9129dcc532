/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TRL_TESTS_MODEL_GGUF_WRITER_H
#define TRL_TESTS_MODEL_GGUF_WRITER_H
/* Writes a loaded model as a GGUF file (F32 and Q8_0), the way llama.cpp's converter lays it out.
 */
#include "model/internal.h"

/* q8: matrices of width a multiple of 32 become Q8_0. Fails the test when it cannot. */
void gguf_write_model(const struct trl_model *m, const char *arch, const char *path, bool q8);

#endif
