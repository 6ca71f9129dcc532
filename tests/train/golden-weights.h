/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TRL_GOLDEN_WEIGHTS_H
#define TRL_GOLDEN_WEIGHTS_H
/* Sum and L2 norm of every tensor of OUT/model.safetensors against result.json's "weights". Number of differences. */
int trl_golden_compare_weights(const char *dir, const char *prefix, const char *out, double wide);
#endif
