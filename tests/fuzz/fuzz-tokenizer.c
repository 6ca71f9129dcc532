/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Any bytes as tokenizer.json, or as a GGUF file with a tokenizer inside. What opens then encodes
 * and decodes a few texts, and the input itself. The ids, with offsets, must be in range.
 */
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "base/gguf.h"
#include "data/tok-internal.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void encode(
    const struct trl_tokenizer *t, struct trl_tok_scratch *s, const char *text, size_t len)
{
    struct trl_ids ids = {0};
    struct trl_str out = {0};
    struct trl_err err;
    if (trl_tokenizer_encode(t, s, text, len, TRL_TOK_ADD_SPECIAL | TRL_TOK_OFFSETS, &ids, &err) ==
        0) {
        for (size_t i = 0; i < ids.len; i++)
            if (ids.end[i] > len)
                __builtin_trap();
        trl_tokenizer_decode(t, ids.ids, ids.len, true, &out, &err);
    }
    trl_ids_release(&ids);
    trl_str_release(&out);
}

static void use(const struct trl_tokenizer *t, const char *data, size_t size)
{
    static const char *const texts[] = {"", " a  b\n\n12 don't",
        "<|im_start|>h\xC3\xA9llo\xE2\x96\x81 e\xCC\x81 <s> \xF0\x9F\x98\x80",
        "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa thethethethethe"};
    struct trl_tok_scratch *s;
    if (trl_tok_scratch_new(&s, t, NULL))
        return;
    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++)
        encode(t, s, texts[i], strlen(texts[i]));
    encode(t, s, data, size < 2000 ? size : 2000);
    trl_tok_scratch_free(s);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct trl_tokenizer *t = NULL;
    struct trl_gguf *g;
    struct trl_err err;
    const char *text = (const char *)data;
    if (size >= 4 && memcmp(data, "GGUF", 4) == 0) {
        if (trl_gguf_open_mem(&g, data, size, "fuzz.gguf", &err))
            return 0;
        t = trl__tok_new("fuzz.gguf", &err);
        if (t && trl__tok_from_gguf_reader(t, g, &err) == 0)
            use(t, text, size);
        trl_tokenizer_free(t);
        trl_gguf_close(g);
        return 0;
    }
    /* the same bytes as the config file, too */
    if (trl_tokenizer_open_json(&t,
            "{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0},\"merges\":[]}}", 52, text, size,
            "fuzz", &err) == 0)
        trl_tokenizer_free(t);
    if (trl_tokenizer_open_json(&t, text, size, NULL, 0, "fuzz", &err) == 0) {
        use(t, text, size);
        trl_tokenizer_free(t);
    }
    return 0;
}
