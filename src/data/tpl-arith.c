/* SPDX-License-Identifier: Apache-2.0 */
/* + - * / // % ** with Python's rules: true division gives a float, // and % round towards minus
 * infinity. Integers have 64 bits here: where Python would go on with a longer one, this is an
 * error. */
#include <math.h>
#include <string.h>

#include "data/tpl-internal.h"

static const char *op_text(int op)
{
    return op == TPL_T_POW ? "** or pow()" : tpl_token_name((enum tpl_token_kind)op);
}

static int too_long(struct tpl_render *r)
{
    return tpl_raise(r, "the result is an integer of more than 64 bits");
}

static int type_error(
    struct tpl_render *r, int op, const struct tpl_value *a, const struct tpl_value *b)
{
    if (op == TPL_T_ADD && (a->kind == TPL_STR || a->kind == TPL_LIST || a->kind == TPL_TUPLE))
        return tpl_raise(r, "can only concatenate %s (not \"%s\") to %s", tpl_type_name(a),
            tpl_type_name(b), tpl_type_name(a));
    if (op == TPL_T_MUL && (a->kind == TPL_STR || a->kind == TPL_LIST || a->kind == TPL_TUPLE))
        return tpl_raise(r, "can't multiply sequence by non-int of type '%s'", tpl_type_name(b));
    return tpl_raise(r, "unsupported operand type(s) for %s: '%s' and '%s'", op_text(op),
        tpl_type_name(a), tpl_type_name(b));
}

static int int_pow(struct tpl_render *r, int64_t base, int64_t e, struct tpl_value *ret)
{
    if (e < 0) {
        if (base == 0)
            return tpl_raise(r, "0.0 cannot be raised to a negative power");
        *ret = tpl_float(pow((double)base, (double)e));
        return 0;
    }
    int64_t v = 1;
    for (;;) {
        if ((e & 1) && __builtin_mul_overflow(v, base, &v))
            return too_long(r);
        e >>= 1;
        if (e == 0)
            break;
        if (__builtin_mul_overflow(base, base, &base))
            return too_long(r);
    }
    *ret = tpl_int(v);
    return 0;
}

static int int_arith(struct tpl_render *r, int op, int64_t x, int64_t y, struct tpl_value *ret)
{
    int64_t v;
    switch (op) {
    case TPL_T_ADD:
        if (__builtin_add_overflow(x, y, &v))
            return too_long(r);
        break;
    case TPL_T_SUB:
        if (__builtin_sub_overflow(x, y, &v))
            return too_long(r);
        break;
    case TPL_T_MUL:
        if (__builtin_mul_overflow(x, y, &v))
            return too_long(r);
        break;
    case TPL_T_DIV:
        if (y == 0)
            return tpl_raise(r, "division by zero");
        *ret = tpl_float((double)((long double)x / (long double)y));
        return 0;
    case TPL_T_FLOORDIV:
    case TPL_T_MOD:
        if (y == 0)
            return tpl_raise(r, "integer division or modulo by zero");
        if (y == -1) { /* INT64_MIN / -1 traps */
            if (op == TPL_T_MOD)
                v = 0;
            else if (__builtin_sub_overflow((int64_t)0, x, &v))
                return too_long(r);
            break;
        }
        v = op == TPL_T_FLOORDIV ? x / y : x % y;
        if (x % y != 0 && (x % y < 0) != (y < 0))
            v += op == TPL_T_FLOORDIV ? -1 : y;
        break;
    default:
        return int_pow(r, x, y, ret);
    }
    *ret = tpl_int(v);
    return 0;
}

static int float_arith(struct tpl_render *r, int op, double x, double y, struct tpl_value *ret)
{
    double v;
    switch (op) {
    case TPL_T_ADD:
        v = x + y;
        break;
    case TPL_T_SUB:
        v = x - y;
        break;
    case TPL_T_MUL:
        v = x * y;
        break;
    case TPL_T_DIV:
        if (y == 0)
            return tpl_raise(r, "division by zero");
        v = x / y;
        break;
    case TPL_T_FLOORDIV:
    case TPL_T_MOD: {
        if (y == 0)
            return tpl_raise(r, "division by zero");
        double m = fmod(x, y);
        if (m != 0 && (m < 0) != (y < 0))
            m += y;
        else if (m == 0)
            m = copysign(0, y);
        if (op == TPL_T_MOD) {
            v = m;
        } else {
            double q = (x - m) / y, fl = floor(q);
            v = q == 0 ? copysign(0, x / y) : q - fl > 0.5 ? fl + 1 : fl;
        }
        break;
    }
    default:
        if (x == 0 && y < 0)
            return tpl_raise(r, "0.0 cannot be raised to a negative power");
        if (x < 0 && y != floor(y))
            return tpl_raise(
                r, "a negative number to a fractional power is complex: not supported");
        v = pow(x, y);
        if (isinf(v) && !isinf(x) && !isinf(y))
            return tpl_raise(r, "(34, 'Numerical result out of range')");
        break;
    }
    *ret = tpl_float(v);
    return 0;
}

static int repeat(
    struct tpl_render *r, const struct tpl_value *v, int64_t times, struct tpl_value *ret)
{
    int rc;
    if (times < 0)
        times = 0;
    if (v->kind == TPL_STR) {
        size_t len = v->u.str->len;
        if (len && (uint64_t)times > TPL_MAX_OUTPUT / len)
            return tpl_raise(r, "a string becomes longer than %zu MB", TPL_MAX_OUTPUT >> 20);
        char *p = tpl_alloc(r, len * (size_t)times + 1);
        if (!p)
            return TRL_E_DATA;
        for (int64_t i = 0; len && i < times; i++)
            memcpy(p + (size_t)i * len, v->u.str->data, len);
        rc = tpl_str_wrap(r, p, len ? len * (size_t)times : 0, ret);
        ret->markup = v->markup;
        return rc;
    }
    if ((rc = tpl_seq_load(r, v->u.seq)) != 0)
        return rc;
    size_t len = v->u.seq->len;
    if (len && (uint64_t)times > TPL_MAX_MEMORY / sizeof(struct tpl_value) / len)
        return tpl_raise(r, "a list becomes too long");
    if ((rc = tpl_seq_new(r, v->kind, len ? len * (size_t)times : 0, ret)) != 0)
        return rc;
    for (int64_t i = 0; len && i < times; i++)
        memcpy(
            ret->u.seq->items + (size_t)i * len, v->u.seq->items, len * sizeof(struct tpl_value));
    return 0;
}

static int concat(struct tpl_render *r, const struct tpl_value *a, const struct tpl_value *b,
    struct tpl_value *ret)
{
    int rc;
    if (a->kind == TPL_STR) {
        if (!a->markup && !b->markup)
            return tpl_str_concat(r, a, b, ret);
        struct tpl_value x, y;
        if ((rc = tpl_escaped(r, a, &x)) == 0 && (rc = tpl_escaped(r, b, &y)) == 0 &&
            (rc = tpl_str_concat(r, &x, &y, ret)) == 0)
            ret->markup = true;
        return rc;
    }
    if ((rc = tpl_seq_load(r, a->u.seq)) != 0 || (rc = tpl_seq_load(r, b->u.seq)) != 0)
        return rc;
    size_t n = a->u.seq->len, m = b->u.seq->len;
    if ((rc = tpl_seq_new(r, a->kind, n + m, ret)) != 0)
        return rc;
    if (n)
        memcpy(ret->u.seq->items, a->u.seq->items, n * sizeof(struct tpl_value));
    if (m)
        memcpy(ret->u.seq->items + n, b->u.seq->items, m * sizeof(struct tpl_value));
    return 0;
}

static bool repeatable(const struct tpl_value *v)
{
    return v->kind == TPL_STR || v->kind == TPL_LIST || v->kind == TPL_TUPLE;
}

int tpl_arith(struct tpl_render *r, int op, const struct tpl_value *a, const struct tpl_value *b,
    struct tpl_value *ret)
{
    if (op == TPL_T_MOD && a->kind == TPL_STR)
        return tpl_format_percent(r, a, b, NULL, ret);
    if (a->kind == TPL_UNDEF)
        return tpl_use_undef(r, a);
    if (b->kind == TPL_UNDEF)
        return tpl_use_undef(r, b);
    if (tpl_is_num(a) && tpl_is_num(b)) {
        if (a->kind == TPL_FLOAT || b->kind == TPL_FLOAT)
            return float_arith(r, op, tpl_num(a), tpl_num(b), ret);
        return int_arith(r, op, a->u.i, b->u.i, ret);
    }
    if (op == TPL_T_ADD && a->kind == b->kind && repeatable(a))
        return concat(r, a, b, ret);
    if (op == TPL_T_MUL && repeatable(a) && tpl_is_int(b))
        return repeat(r, a, b->u.i, ret);
    if (op == TPL_T_MUL && repeatable(b) && tpl_is_int(a))
        return repeat(r, b, a->u.i, ret);
    return type_error(r, op, a, b);
}

int tpl_negate(
    struct tpl_render *r, const struct tpl_value *a, bool negative, struct tpl_value *ret)
{
    if (a->kind == TPL_UNDEF)
        return tpl_use_undef(r, a);
    if (!tpl_is_num(a))
        return tpl_raise(
            r, "bad operand type for unary %c: '%s'", negative ? '-' : '+', tpl_type_name(a));
    if (a->kind == TPL_FLOAT) {
        *ret = tpl_float(negative ? -a->u.f : a->u.f);
        return 0;
    }
    int64_t v = a->u.i;
    if (negative && __builtin_sub_overflow((int64_t)0, v, &v))
        return too_long(r);
    *ret = tpl_int(v);
    return 0;
}
