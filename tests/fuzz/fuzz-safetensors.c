/* SPDX-License-Identifier: Apache-2.0 */
/* Any bytes as a safetensors file: refused with a text, or every tensor lies inside the input. */
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "model/safetensors.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct trl_st_file f;
    struct trl_err err = {0};
    if (trl_st_open_mem(&f, data, size, "input", &err) != 0) {
        if (!err.text[0])
            abort();
        return 0;
    }
    unsigned sum = 0;
    for (int i = 0; i < f.n; i++) {
        const struct trl_st_tensor *t = &f.items[i];
        const uint8_t *p = trl_st_data(&f, t);
        if (trl_st_find(&f, t->name) == NULL)
            abort();
        for (uint64_t k = t->begin; k < t->end; k++)
            sum += p[k - t->begin];
    }
    trl_st_close(&f);
    static volatile unsigned sink;
    sink = sum;
    (void)sink;
    return 0;
}
