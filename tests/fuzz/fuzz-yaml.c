/* SPDX-License-Identifier: Apache-2.0 */
/* Any bytes as a run file: the YAML reader, then every key that is an option into its field, and
 * what was read printed again. */
#include <stddef.h>
#include <stdint.h>

#include "base/alloc.h"
#include "config/options.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void apply(const struct trl_yaml *y)
{
    struct trl_config cfg = {0};
    struct trl_err err;
    struct trl_str s = {0};
    if (!trl_options_init(&cfg, &err))
        for (size_t i = 0; i < y->n_top; i++) {
            const struct trl_option *o = trl_option_find(y->top[i].key);
            if (!o)
                trl_option_suggest(y->top[i].key, "", &s);
            else if (!trl_option_set_entry(&cfg, o, &y->top[i], "fuzz", &err))
                trl_option_put(&cfg, o, &s);
            trl_str_clear(&s);
        }
    trl_str_release(&s);
    trl_config_release(&cfg);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct trl_yaml y;
    struct trl_err err;
    if (trl_yaml_parse(&y, (const char *)data, size, "fuzz.yaml", &err))
        return 0;
    apply(&y);
    trl_yaml_release(&y);
    return 0;
}
