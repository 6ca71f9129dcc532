/* SPDX-License-Identifier: Apache-2.0 */
/* Any bytes as a chat template: compiled, and rendered with a conversation that has tools. Limits
 * of the engine keep each run short; sources of more than 16 KB are cut. */
#include <stddef.h>
#include <stdint.h>

#include "base/alloc.h"
#include "data/template.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static json_t *variables(void)
{
    static const char text[] =
        "{\"messages\":[{\"role\":\"system\",\"content\":\"Be "
        "brief.\"},{\"role\":\"user\",\"content\":\"H\\u00e9!\"},"
        "{\"role\":\"assistant\",\"content\":\"<think>a</"
        "think>b\",\"tool_calls\":[{\"function\":{\"name\":\"f\","
        "\"arguments\":{\"x\":1,\"y\":[1.5,null,true]}}}]},{\"role\":\"tool\",\"content\":\"6\"}],"
        "\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"f\",\"parameters\":{}}}],\"bos_"
        "token\":\"<s>\","
        "\"eos_token\":\"</s>\",\"add_generation_prompt\":true}";
    return json_loads(text, 0, NULL);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static json_t *vars;
    struct trl_template *t = NULL;
    struct trl_err err = {0};
    struct trl_str out = {0};
    struct trl_spans spans = {0};
    if (!vars && !(vars = variables()))
        return 0;
    if (trl_template_compile(&t, (const char *)data, size < 16384 ? size : 16384, "fuzz", &err) ==
            0 &&
        trl_template_render(t, vars, &out, &spans, &err) == 0) {
        for (size_t i = 0; i < spans.len; i++) {
            if (spans.begin[i] > spans.end[i] || spans.end[i] > out.len)
                __builtin_trap();
        }
        if (trl_utf8_check(trl_str_get(&out), out.len) != out.len)
            __builtin_trap();
    }
    trl_template_free(t);
    trl_str_release(&out);
    trl_spans_release(&spans);
    return 0;
}
