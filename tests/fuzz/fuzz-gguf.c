/* SPDX-License-Identifier: Apache-2.0 */
/* Any bytes as a GGUF file: the container, every key read as every type, every tensor looked up. */
#include <stddef.h>
#include <stdint.h>

#include "base/gguf.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void read_key(const struct trl_gguf *g, const char *key)
{
    struct trl_err err;
    struct trl_gguf_array a;
    int64_t i;
    double d;
    bool b;
    const char *s;
    size_t n, sum = 0;
    trl_gguf_get_int(g, key, &i, &err);
    trl_gguf_get_float(g, key, &d, &err);
    trl_gguf_get_bool(g, key, &b, &err);
    if (trl_gguf_get_str(g, key, &s, &n, &err) == 0 && n)
        sum += (unsigned char)s[0] + (unsigned char)s[n - 1];
    if (trl_gguf_get_strings(g, key, &a, &err) == 0)
        while (trl_gguf_array_next_str(&a, &s, &n))
            sum += n ? (unsigned char)s[n - 1] : 0;
    if (trl_gguf_get_numbers(g, key, &a, &err) == 0)
        while (trl_gguf_array_next_num(&a, &d))
            sum++;
    (void)*(volatile size_t *)&sum;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct trl_gguf *g;
    struct trl_err err;
    if (trl_gguf_open_mem(&g, data, size, "fuzz.gguf", &err))
        return 0;
    for (int64_t i = 0; i < trl_gguf_n_keys(g); i++)
        read_key(g, trl_gguf_key(g, i, NULL));
    for (int64_t i = 0; i < trl_gguf_n_tensors(g); i++) {
        const struct trl_gguf_tensor *t = trl_gguf_tensor(g, i);
        volatile uint8_t byte = 0;
        if (trl_gguf_find_tensor(g, t->name) != t)
            __builtin_trap();
        if (t->n_bytes)
            byte = (uint8_t)(t->data[0] + t->data[t->n_bytes - 1]);
        (void)byte;
    }
    trl_gguf_close(g);
    return 0;
}
