/* SPDX-License-Identifier: Apache-2.0 */
/* What kind of row is this? Null equals missing; columns that nobody asks for are carried and ignored. */
#include "data/prep.h"

#include <string.h>

static json_t *column(const json_t *row, const char *name)
{
    json_t *v = json_object_get(row, name);
    return v && !json_is_null(v) ? v : NULL;
}

bool trl_prep_has_completion(const json_t *row)
{
    return column(row, "prompt") && column(row, "completion");
}

static const char *type_name(const json_t *v)
{
    switch (json_typeof(v)) {
    case JSON_OBJECT:
        return "an object";
    case JSON_ARRAY:
        return "a list";
    case JSON_STRING:
        return "a string";
    case JSON_INTEGER:
    case JSON_REAL:
        return "a number";
    case JSON_TRUE:
    case JSON_FALSE:
        return "a boolean";
    default:
        return "null";
    }
}

/* {"from": ..., "value": ...} to {"role": ..., "content": ...} in one list; the values stay as they are. */
static int convert_list(json_t *list)
{
    size_t i;
    json_t *m;
    json_array_foreach (list, i, m) {
        static const char *const names[2][2] = {{"from", "role"}, {"value", "content"}};
        for (int k = 0; k < 2 && json_is_object(m); k++) {
            json_t *v = json_object_get(m, names[k][0]);
            if (v && (json_object_set(m, names[k][1], v) != 0 || json_object_del(m, names[k][0]) != 0))
                return -1;
        }
    }
    return 0;
}

/* A `conversations` column becomes `messages`, and every list of messages the role/content form. */
static int convert_conversations(json_t *row, struct trl_err *err)
{
    json_t *c = column(row, "conversations");
    if (!json_is_array(c))
        return 0;
    static const char *const lists[] = {"prompt", "completion", "messages", "conversations"};
    int bad = 0;
    for (size_t i = 0; i < sizeof(lists) / sizeof(lists[0]); i++)
        bad |= json_is_array(column(row, lists[i])) && convert_list(column(row, lists[i])) != 0;
    if (!column(row, "messages"))
        bad |= json_object_set(row, "messages", c) != 0;
    return bad ? trl_fail_nomem(err, 256, "a row") : 0;
}

static int keep_columns(const json_t *columns, json_t *row, struct trl_err *err)
{
    size_t i;
    json_t *name;
    json_t *kept = json_object();
    if (!kept)
        return trl_fail_nomem(err, 64, "a row");
    json_array_foreach ((json_t *)(uintptr_t)columns, i, name) {
        json_t *v = json_object_get(row, json_string_value(name));
        if (v && json_object_set(kept, json_string_value(name), v) != 0) {
            json_decref(kept);
            return trl_fail_nomem(err, 64, "a row");
        }
    }
    int rc = json_object_clear(row);
    rc |= json_object_update(row, kept);
    json_decref(kept);
    return rc == 0 ? 0 : trl_fail_nomem(err, 64, "a row");
}

/* A list of messages must hold at least one, each an object, the first with a role. */
static int check_messages(const json_t *list, const char *name, struct trl_err *err)
{
    size_t i;
    json_t *m;
    if (json_array_size(list) == 0)
        return trl_fail(err, TRL_E_DATA, "column '%s' is an empty list; a conversation has at least one message", name);
    json_array_foreach (list, i, m) {
        if (!json_is_object(m))
            return trl_fail(err, TRL_E_DATA, "column '%s': message %zu is %s, not an object with role and content", name,
                i + 1, type_name(m));
        json_t *role = json_object_get(m, "role");
        if (!role || json_is_null(role))
            return trl_fail(err, TRL_E_DATA, "column '%s': message %zu has no 'role'", name, i + 1);
        if (!json_is_string(role))
            return trl_fail(err, TRL_E_DATA, "column '%s': the role of message %zu is %s, not a string", name, i + 1,
                type_name(role));
    }
    return 0;
}

static int prompt_type(const json_t *row, enum trl_row_type *ret, struct trl_err *err)
{
    json_t *p = column(row, "prompt"), *c = column(row, "completion");
    if (!c && column(row, "chosen"))
        return trl_fail(err, TRL_E_UNSUPPORTED, "the row is a preference (prompt, chosen, rejected), which trains with dpo or "
            "reward; sft needs prompt and completion, so rename 'chosen' to 'completion' to train on the chosen answers");
    if (!c && column(row, "completions"))
        return trl_fail(err, TRL_E_UNSUPPORTED, "the row holds stepwise supervision (prompt, completions, labels); sft needs "
            "prompt and completion");
    if (!c)
        return trl_fail(err, TRL_E_DATA, "column 'completion' is missing: a row with only a prompt is for grpo and rloo; sft "
            "needs prompt and completion");
    if (json_is_string(p) && json_is_string(c)) {
        *ret = TRL_ROW_PROMPT;
        return 0;
    }
    if (json_is_array(p) && json_is_array(c)) {
        *ret = TRL_ROW_PROMPT_CHAT;
        int rc = check_messages(p, "prompt", err);
        return rc != 0 ? rc : check_messages(c, "completion", err);
    }
    return trl_fail(err, TRL_E_DATA, "column 'prompt' is %s and 'completion' is %s; both are strings or both are lists of messages",
        type_name(p), type_name(c));
}

static int no_type(const struct trl_prep *p, const json_t *row, struct trl_err *err)
{
    if (column(row, "chosen") || column(row, "rejected"))
        return trl_fail(err, TRL_E_UNSUPPORTED, "the row is a preference (chosen, rejected), which trains with dpo or reward; sft "
            "takes '%s', 'messages', or 'prompt' and 'completion'", p->text_field);
    if (column(row, "chosen_ids") || column(row, "rejected_ids"))
        return trl_fail(err, TRL_E_UNSUPPORTED, "the row is tokenised for the reward trainer; sft takes 'input_ids'");
    if (column(row, "completion"))
        return trl_fail(err, TRL_E_DATA, "column 'prompt' is missing beside 'completion'");
    struct trl_str names = {0};
    const char *key;
    json_t *v;
    json_object_foreach ((json_t *)(uintptr_t)row, key, v)
        if (!json_is_null(v) && names.len < 300)
            trl_str_printf(&names, "%s'%.80s'", names.len ? ", " : "", key);
    int rc = json_object_get(row, p->text_field)
        ? trl_fail(err, TRL_E_DATA, "column '%s' is null", p->text_field)
        : trl_fail(err, TRL_E_DATA, "column '%s' is missing (the row has %s); sft takes '%s' (see dataset_text_field), 'messages', "
              "'prompt' with 'completion', or 'input_ids'", p->text_field, names.len ? trl_str_get(&names) : "no columns",
              p->text_field);
    trl_str_release(&names);
    return rc;
}

int trl_prep_recognise(const struct trl_prep *p, json_t *row, enum trl_row_type *ret, struct trl_err *err)
{
    int rc = p->columns ? keep_columns(p->columns, row, err) : 0;
    if (rc != 0)
        return rc;
    if (column(row, "input_ids")) {
        *ret = TRL_ROW_TOKENS;
        return 0;
    }
    if (p->skip_prepare)
        return trl_fail(err, TRL_E_DATA, "column 'input_ids' is missing, and dataset_kwargs says skip_prepare_dataset");
    if (column(row, "image") || column(row, "images"))
        return trl_fail(err, TRL_E_UNSUPPORTED, "the row holds images; only text is trained");
    if (column(row, "labels"))
        return trl_fail(err, TRL_E_DATA, "column 'labels' without 'input_ids'; labels belong to tokenised rows, so rename the column");
    rc = convert_conversations(row, err);
    if (rc != 0)
        return rc;
    if (column(row, "prompt"))
        return prompt_type(row, ret, err);
    json_t *m = column(row, "messages"), *t = column(row, p->text_field);
    if (json_is_array(m)) {
        *ret = TRL_ROW_MESSAGES;
        return check_messages(m, "messages", err);
    }
    if (json_is_string(t)) {
        *ret = TRL_ROW_TEXT;
        return 0;
    }
    if (m)
        return trl_fail(err, TRL_E_DATA, "column 'messages' is %s, not a list of messages", type_name(m));
    if (t)
        return trl_fail(err, TRL_E_DATA, "column '%s' is %s, not a string", p->text_field, type_name(t));
    return no_type(p, row, err);
}
