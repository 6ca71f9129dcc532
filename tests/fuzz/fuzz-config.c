/* SPDX-License-Identifier: Apache-2.0 */
/* Any bytes as config.json: refused with a text, or a configuration whose table of parameters and
 * memory can be counted. */
#include <stdlib.h>
#include <string.h>

#include "model/internal.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void lay_out(const struct trl_model_config *c)
{
    struct trl_params params;
    struct trl_layout lay;
    struct trl_buffers buf;
    struct trl_types types = {TRL_DTYPE_F32, TRL_DTYPE_F32, TRL_DTYPE_BF16};
    struct trl_model_capacity cap = {
        .max_tokens = 64, .max_docs = 2, .max_position = 32, .training = true};
    if (trl__layout_build(&lay, c, &params, NULL) != 0)
        return;
    for (int i = 0; i < params.n; i++)
        if (params.items[i].numel < 1 || params.items[i].offset < 0 ||
            params.items[i].offset + params.items[i].numel > params.slab_elems)
            abort();
    if (trl__buffers_new(&buf, c, &cap, NULL) == 0) {
        if (trl__buffers_cut(&buf, c, &types, &cap, NULL) == 0)
            abort();
        trl__buffers_free(&buf);
    }
    trl__layout_release(&lay);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct trl_model_config c;
    struct trl_err err = {0};
    if (trl__config_parse(&c, (const char *)data, size, "input", &err) != 0) {
        if (!err.text[0])
            abort();
        return 0;
    }
    lay_out(&c);
    double inv[2048], scale;
    for (int i = 0; i < c.n_ropes; i++)
        trl__rope_frequencies(&c.ropes[i], c.head_dim, c.max_positions, 4096, inv, &scale);
    trl__config_release(&c);
    return 0;
}
