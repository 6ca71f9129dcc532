/* SPDX-License-Identifier: Apache-2.0 */
#include "data/tpl-unicode.h"

#include <utf8proc.h>

#include "data/tpl-internal.h"

static utf8proc_category_t category(unsigned cp)
{
    return utf8proc_category((utf8proc_int32_t)cp);
}

bool tpl_is_cased(unsigned cp)
{
    if (cp < 0x80)
        return (cp | 32) >= 'a' && (cp | 32) <= 'z';
    utf8proc_category_t c = category(cp);
    return c == UTF8PROC_CATEGORY_LU || c == UTF8PROC_CATEGORY_LL || c == UTF8PROC_CATEGORY_LT;
}

void tpl_case_put(struct trl_str *out, unsigned cp, enum tpl_case how)
{
    /* the characters whose other case is more than one character; the frequent ones */
    static const struct {
        unsigned cp;
        const char *upper, *title;
    } special[] = {
        {0xDF, "SS", "Ss"},
        {0x149, "\u02bcN", "\u02bcN"},
        {0xFB00, "FF", "Ff"},
        {0xFB01, "FI", "Fi"},
        {0xFB02, "FL", "Fl"},
        {0xFB03, "FFI", "Ffi"},
        {0xFB04, "FFL", "Ffl"},
        {0xFB05, "ST", "St"},
        {0xFB06, "ST", "St"},
        {0x587, "\u0535\u0552", "\u0535\u0582"},
    };
    if (cp < 0x80) {
        bool letter = tpl_is_cased(cp);
        trl_str_putc(out, (char)(!letter ? cp : how == TPL_CASE_LOWER ? cp | 32 : cp & ~32u));
        return;
    }
    if (how == TPL_CASE_LOWER) {
        if (cp == 0x130)
            trl_str_puts(out, "i\xcc\x87");
        else
            trl_str_put_utf8(out, (unsigned)utf8proc_tolower((utf8proc_int32_t)cp));
        return;
    }
    for (size_t i = 0; i < sizeof(special) / sizeof(special[0]); i++) {
        if (special[i].cp == cp) {
            trl_str_puts(out, how == TPL_CASE_TITLE ? special[i].title : special[i].upper);
            return;
        }
    }
    utf8proc_int32_t c = (utf8proc_int32_t)cp;
    trl_str_put_utf8(
        out, (unsigned)(how == TPL_CASE_TITLE ? utf8proc_totitle(c) : utf8proc_toupper(c)));
}

/* A capital sigma is a final one behind a letter that no letter follows. */
static bool final_sigma(const char *s, size_t len, size_t at, bool prev_cased)
{
    unsigned cp;
    if (!prev_cased)
        return false;
    for (size_t i = at + 2; i < len;) {
        int n = trl_utf8_decode(s + i, len - i, &cp);
        if (n <= 0)
            return true;
        utf8proc_category_t c = category(cp);
        if (c == UTF8PROC_CATEGORY_MN || cp == '\'' || cp == 0x2019 || cp == 0xAD || cp == '.' ||
            cp == ':')
            i += (size_t)n; /* ignorable between letters */
        else
            return !tpl_is_cased(cp);
    }
    return true;
}

void tpl_case_convert(struct trl_str *out, const char *s, size_t len, enum tpl_case how)
{
    bool prev_cased = false;
    for (size_t i = 0; i < len;) {
        unsigned cp = (unsigned char)s[i];
        int n = trl_utf8_decode(s + i, len - i, &cp);
        if (n <= 0)
            n = 1;
        enum tpl_case one = how;
        if (how == TPL_CASE_TITLE)
            one = prev_cased ? TPL_CASE_LOWER : TPL_CASE_TITLE;
        else if (how == TPL_CASE_CAPITALIZE)
            one = i ? TPL_CASE_LOWER : TPL_CASE_TITLE;
        else if (how == TPL_CASE_SWAP)
            one = category(cp) == UTF8PROC_CATEGORY_LU ? TPL_CASE_LOWER
                : category(cp) == UTF8PROC_CATEGORY_LL ? TPL_CASE_UPPER
                                                       : TPL_CASE_SWAP;
        if (one == TPL_CASE_SWAP)
            trl_str_append(out, s + i, (size_t)n);
        else if (cp == 0x3A3 && one == TPL_CASE_LOWER && final_sigma(s, len, i, prev_cased))
            trl_str_put_utf8(out, 0x3C2);
        else
            tpl_case_put(out, cp, one);
        prev_cased = tpl_is_cased(cp);
        i += (size_t)n;
    }
}

bool tpl_case_is(const char *s, size_t len, bool upper)
{
    bool any = false;
    for (size_t i = 0; i < len;) {
        unsigned cp = (unsigned char)s[i];
        int n = trl_utf8_decode(s + i, len - i, &cp);
        utf8proc_category_t c = category(cp);
        if (c == UTF8PROC_CATEGORY_LT || c == (upper ? UTF8PROC_CATEGORY_LL : UTF8PROC_CATEGORY_LU))
            return false;
        any |= c == (upper ? UTF8PROC_CATEGORY_LU : UTF8PROC_CATEGORY_LL);
        i += n > 0 ? (size_t)n : 1;
    }
    return any;
}

bool tpl_class_is(unsigned cp, enum tpl_class c)
{
    utf8proc_category_t k = category(cp);
    bool alpha = k >= UTF8PROC_CATEGORY_LU && k <= UTF8PROC_CATEGORY_LO;
    bool decimal = k == UTF8PROC_CATEGORY_ND;
    /* superscripts count as digits */
    bool digit = decimal || cp == 0xB2 || cp == 0xB3 || cp == 0xB9 ||
        (cp >= 0x2070 && cp <= 0x2089 && cp != 0x2071 && !(cp > 0x2079 && cp < 0x2080)) ||
        (cp >= 0x2460 && cp <= 0x2468);
    bool numeric = digit || k == UTF8PROC_CATEGORY_NL || k == UTF8PROC_CATEGORY_NO;
    switch (c) {
    case TPL_CLASS_ALPHA:
        return alpha;
    case TPL_CLASS_ALNUM:
        return alpha || numeric;
    case TPL_CLASS_DIGIT:
        return digit;
    case TPL_CLASS_DECIMAL:
        return decimal;
    case TPL_CLASS_NUMERIC:
        return numeric;
    case TPL_CLASS_SPACE:
        return tpl_is_space(cp);
    case TPL_CLASS_ASCII:
    default:
        return cp < 0x80;
    }
}
