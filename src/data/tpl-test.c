/* SPDX-License-Identifier: Apache-2.0 */
/* Tests: `x is name(args)`. */
#include <math.h>
#include <string.h>

#include "data/tpl-internal.h"
#include "data/tpl-unicode.h"

#define TEST(name) \
    static int name(struct tpl_render *r, const struct tpl_value *self, const struct tpl_args *a, \
        struct tpl_value *ret)

/* A test without arguments. */
static int plain(struct tpl_render *r, const struct tpl_args *a, bool value, struct tpl_value *ret)
{
    if (a->n || a->nk)
        return tpl_raise(r, "this test takes no arguments");
    *ret = tpl_bool(value);
    return 0;
}

TEST(test_defined)
{
    return plain(r, a, self->kind != TPL_UNDEF, ret);
}

TEST(test_undefined)
{
    return plain(r, a, self->kind == TPL_UNDEF, ret);
}

TEST(test_none)
{
    return plain(r, a, self->kind == TPL_NONE, ret);
}

TEST(test_boolean)
{
    return plain(r, a, self->kind == TPL_BOOL, ret);
}

TEST(test_true)
{
    return plain(r, a, self->kind == TPL_BOOL && self->u.i, ret);
}

TEST(test_false)
{
    return plain(r, a, self->kind == TPL_BOOL && !self->u.i, ret);
}

TEST(test_integer)
{
    return plain(r, a, self->kind == TPL_INT, ret);
}

TEST(test_float)
{
    return plain(r, a, self->kind == TPL_FLOAT, ret);
}

TEST(test_number)
{
    return plain(r, a, tpl_is_num(self), ret);
}

TEST(test_string)
{
    return plain(r, a, self->kind == TPL_STR, ret);
}

TEST(test_mapping)
{
    return plain(r, a, self->kind == TPL_DICT, ret);
}

TEST(test_iterable)
{
    return plain(r, a, tpl_is_iterable(self) || self->kind == TPL_LOOP, ret);
}

/* has a length and items by number */
TEST(test_sequence)
{
    bool yes = self->kind == TPL_UNDEF || self->kind == TPL_STR || self->kind == TPL_DICT ||
        self->kind == TPL_LIST || self->kind == TPL_TUPLE || self->kind == TPL_RANGE;
    return plain(r, a, yes, ret);
}

TEST(test_callable)
{
    /* an undefined value can be called (and then complains) */
    return plain(r, a,
        self->kind == TPL_FUNC || self->kind == TPL_MACRO || self->kind == TPL_UNDEF ||
            self->kind == TPL_LOOP,
        ret);
}

TEST(test_escaped)
{
    return plain(r, a, self->markup, ret);
}

TEST(test_lower)
{
    struct tpl_value s;
    int rc = tpl_to_str(r, self, &s);
    return rc != 0 ? rc : plain(r, a, tpl_case_is(s.u.str->data, s.u.str->len, false), ret);
}

TEST(test_upper)
{
    struct tpl_value s;
    int rc = tpl_to_str(r, self, &s);
    return rc != 0 ? rc : plain(r, a, tpl_case_is(s.u.str->data, s.u.str->len, true), ret);
}

static int modulo(struct tpl_render *r, const struct tpl_value *v, const struct tpl_value *by,
    int64_t want, struct tpl_value *ret)
{
    struct tpl_value m, w = tpl_int(want);
    bool eq = false;
    int rc = tpl_arith(r, TPL_T_MOD, v, by, &m);
    if (rc == 0)
        rc = tpl_equal(r, &m, &w, &eq);
    *ret = tpl_bool(eq);
    return rc;
}

TEST(test_odd)
{
    struct tpl_value two = tpl_int(2);
    int rc = plain(r, a, true, ret);
    return rc != 0 ? rc : modulo(r, self, &two, 1, ret);
}

TEST(test_even)
{
    struct tpl_value two = tpl_int(2);
    int rc = plain(r, a, true, ret);
    return rc != 0 ? rc : modulo(r, self, &two, 0, ret);
}

static int one_arg(
    struct tpl_render *r, const struct tpl_args *a, const char *name, const struct tpl_value **ret)
{
    const char *const params[] = {name, NULL};
    return tpl_bind(r, a, "this test", params, 1, ret);
}

TEST(test_divisibleby)
{
    const struct tpl_value *num;
    int rc = one_arg(r, a, "num", &num);
    return rc != 0 ? rc : modulo(r, self, num, 0, ret);
}

static int compare(struct tpl_render *r, int op, const struct tpl_value *self,
    const struct tpl_args *a, struct tpl_value *ret)
{
    const struct tpl_value *other;
    bool yes = false;
    int rc = one_arg(r, a, "b", &other);
    if (rc == 0)
        rc = tpl_compare_op(r, op, self, other, &yes);
    *ret = tpl_bool(yes);
    return rc;
}

TEST(test_eq)
{
    return compare(r, TPL_T_EQ, self, a, ret);
}

TEST(test_ne)
{
    return compare(r, TPL_T_NE, self, a, ret);
}

TEST(test_lt)
{
    return compare(r, TPL_T_LT, self, a, ret);
}

TEST(test_le)
{
    return compare(r, TPL_T_LE, self, a, ret);
}

TEST(test_gt)
{
    return compare(r, TPL_T_GT, self, a, ret);
}

TEST(test_ge)
{
    return compare(r, TPL_T_GE, self, a, ret);
}

TEST(test_in)
{
    return compare(r, TPL_T_IN, self, a, ret);
}

TEST(test_sameas)
{
    const struct tpl_value *other;
    int rc = one_arg(r, a, "other", &other);
    if (rc != 0)
        return rc;
    bool same = self->kind == other->kind;
    if (same && self->kind != TPL_NONE)
        same = self->kind == TPL_FLOAT ? self->u.f == other->u.f : self->u.i == other->u.i;
    if (self->kind == TPL_STR && other->kind == TPL_STR)
        return compare(
            r, TPL_T_EQ, self, a, ret); /* equal texts of a template are mostly one object */
    *ret = tpl_bool(same);
    return 0;
}

static int exists(struct tpl_render *r, const struct tpl_value *self,
    const struct tpl_builtin *(*find)(const char *), struct tpl_value *ret)
{
    struct tpl_value s;
    if (self->kind != TPL_STR) {
        *ret = tpl_bool(false);
        return 0;
    }
    int rc = tpl_str_new(r, self->u.str->data, self->u.str->len, &s);
    if (rc == 0)
        *ret = tpl_bool(find(s.u.str->data) != NULL);
    return rc;
}

TEST(test_filter)
{
    return exists(r, self, tpl_filter_find, ret);
}

TEST(test_test)
{
    return exists(r, self, tpl_test_find, ret);
}

const struct tpl_builtin *tpl_test_find(const char *name)
{
    static const struct tpl_builtin table[] = {
        {"defined", test_defined},
        {"undefined", test_undefined},
        {"none", test_none},
        {"boolean", test_boolean},
        {"true", test_true},
        {"false", test_false},
        {"integer", test_integer},
        {"float", test_float},
        {"number", test_number},
        {"string", test_string},
        {"mapping", test_mapping},
        {"iterable", test_iterable},
        {"sequence", test_sequence},
        {"callable", test_callable},
        {"escaped", test_escaped},
        {"lower", test_lower},
        {"upper", test_upper},
        {"odd", test_odd},
        {"even", test_even},
        {"divisibleby", test_divisibleby},
        {"eq", test_eq},
        {"==", test_eq},
        {"equalto", test_eq},
        {"ne", test_ne},
        {"!=", test_ne},
        {"lt", test_lt},
        {"<", test_lt},
        {"lessthan", test_lt},
        {"le", test_le},
        {"<=", test_le},
        {"gt", test_gt},
        {">", test_gt},
        {"greaterthan", test_gt},
        {"ge", test_ge},
        {">=", test_ge},
        {"in", test_in},
        {"sameas", test_sameas},
        {"filter", test_filter},
        {"test", test_test},
    };
    return TPL_FIND(table, name);
}
