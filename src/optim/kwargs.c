/* SPDX-License-Identifier: Apache-2.0 */
#include "optim/kwargs.h"

#include <math.h>
#include <stdint.h>
#include <string.h>

#include "base/str.h"

static int fail_value(const struct trl__kw *k, const json_t *v, const char *owner, const char *wanted, struct trl_err *err)
{
    char *text = json_dumps(v, JSON_ENCODE_ANY | JSON_COMPACT);
    int rc = trl_fail(err, TRL_E_USAGE, "%s: \"%s\" is %.100s, but must be %s", owner, k->name, text ? text : "?", wanted);
    free(text);
    return rc;
}

static int read_choice(const struct trl__kw *k, const json_t *v, const char *owner, struct trl_err *err)
{
    struct trl_str list = {0};
    if (json_is_string(v))
        for (int i = 0; k->choices[i]; i++)
            if (!strcmp(k->choices[i], json_string_value(v))) {
                *(int *)k->target = i;
                return 0;
            }
    for (int i = 0; k->choices[i]; i++)
        trl_str_printf(&list, "%s\"%s\"", i == 0 ? "" : k->choices[i + 1] ? ", " : " or ", k->choices[i]);
    int rc = fail_value(k, v, owner, trl_str_get(&list), err);
    trl_str_release(&list);
    return rc;
}

static int read_one(const struct trl__kw *k, const json_t *v, const char *owner, struct trl_err *err)
{
    double d = json_is_number(v) ? json_number_value(v) : NAN;
    switch (k->type) {
    case TRL__KW_F64:
        if (!isfinite(d))
            return fail_value(k, v, owner, "a finite number", err);
        *(double *)k->target = d;
        break;
    case TRL__KW_I64:
        if (!(fabs(d) < 1e15) || d != floor(d))
            return fail_value(k, v, owner, "a whole number", err);
        *(int64_t *)k->target = (int64_t)d;
        break;
    case TRL__KW_BOOL:
        if (!json_is_boolean(v))
            return fail_value(k, v, owner, "true or false", err);
        *(bool *)k->target = json_is_true(v);
        break;
    case TRL__KW_CHOICE: {
        int rc = read_choice(k, v, owner, err);
        if (rc != 0)
            return rc;
        break;
    }
    }
    if (k->was_set)
        *k->was_set = true;
    return 0;
}

int trl__kwargs_read(const struct trl__kw *table, size_t n, const json_t *kwargs, const char *owner, struct trl_err *err)
{
    const char *key;
    json_t *value;
    if (!kwargs || json_is_null(kwargs))
        return 0;
    if (!json_is_object(kwargs))
        return trl_fail(err, TRL_E_USAGE, "%s must be a JSON object such as {\"name\": value}", owner);
    json_object_foreach((json_t *)kwargs, key, value)
    {
        size_t i = 0;
        while (i < n && strcmp(table[i].name, key))
            i++;
        if (i == n) {
            struct trl_str list = {0};
            for (size_t j = 0; j < n; j++)
                trl_str_printf(&list, "%s%s", j ? ", " : "", table[j].name);
            int rc = trl_fail(err, TRL_E_USAGE, "%s: unknown entry \"%.100s\"; allowed: %s", owner, key,
                n ? trl_str_get(&list) : "none");
            trl_str_release(&list);
            return rc;
        }
        if (json_is_null(value))
            continue;
        int rc = read_one(&table[i], value, owner, err);
        if (rc != 0)
            return rc;
    }
    return 0;
}
