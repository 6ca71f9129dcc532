/* SPDX-License-Identifier: Apache-2.0 */
#include "data/tok-unicode.h"

#include <utf8proc.h>

unsigned trl__uc_next(const char *p, int *ret_len)
{
    const unsigned char *u = (const unsigned char *)p;
    if (u[0] < 0x80) {
        *ret_len = 1;
        return u[0];
    }
    if (u[0] < 0xE0) {
        *ret_len = 2;
        return (u[0] & 0x1Fu) << 6 | (u[1] & 0x3Fu);
    }
    if (u[0] < 0xF0) {
        *ret_len = 3;
        return (u[0] & 0x0Fu) << 12 | (u[1] & 0x3Fu) << 6 | (u[2] & 0x3Fu);
    }
    *ret_len = 4;
    return (u[0] & 0x07u) << 18 | (u[1] & 0x3Fu) << 12 | (u[2] & 0x3Fu) << 6 | (u[3] & 0x3Fu);
}

unsigned trl__uc_prev(const char *begin, const char *p, int *ret_len)
{
    const char *q = p - 1;
    while (q > begin && ((unsigned char)*q & 0xC0) == 0x80)
        q--;
    return trl__uc_next(q, ret_len);
}

int trl__uc_put(char *dst, unsigned cp)
{
    return (int)utf8proc_encode_char((utf8proc_int32_t)cp, (utf8proc_uint8_t *)dst);
}

bool trl__uc_is_space(unsigned cp)
{
    if (cp < 0x80)
        return cp == ' ' || (cp >= 9 && cp <= 13);
    return cp == 0x85 || cp == 0xA0 || cp == 0x1680 || (cp >= 0x2000 && cp <= 0x200A) ||
        cp == 0x2028 || cp == 0x2029 || cp == 0x202F || cp == 0x205F || cp == 0x3000;
}

static utf8proc_category_t category(unsigned cp)
{
    return utf8proc_category((utf8proc_int32_t)cp);
}

bool trl__uc_is_number(unsigned cp)
{
    if (cp < 0x80)
        return cp >= '0' && cp <= '9';
    utf8proc_category_t c = category(cp);
    return c == UTF8PROC_CATEGORY_ND || c == UTF8PROC_CATEGORY_NL || c == UTF8PROC_CATEGORY_NO;
}

bool trl__uc_is_mark(unsigned cp)
{
    if (cp < 0x300)
        return false;
    utf8proc_category_t c = category(cp);
    return c == UTF8PROC_CATEGORY_MN || c == UTF8PROC_CATEGORY_MC || c == UTF8PROC_CATEGORY_ME;
}

bool trl__uc_is_word(unsigned cp)
{
    if (cp < 0x80)
        return (cp >= '0' && cp <= '9') || (cp >= 'a' && cp <= 'z') || (cp >= 'A' && cp <= 'Z') ||
            cp == '_';
    /* the symbols that are Alphabetic: circled and squared letters */
    if ((cp >= 0x24B6 && cp <= 0x24E9) || (cp >= 0x1F130 && cp <= 0x1F149) ||
        (cp >= 0x1F150 && cp <= 0x1F169) || (cp >= 0x1F170 && cp <= 0x1F189) || cp == 0x200C ||
        cp == 0x200D)
        return true;
    switch (category(cp)) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LL:
    case UTF8PROC_CATEGORY_LT:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_LO:
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_MC:
    case UTF8PROC_CATEGORY_ME:
    case UTF8PROC_CATEGORY_ND:
    case UTF8PROC_CATEGORY_NL:
    case UTF8PROC_CATEGORY_PC:
        return true;
    default:
        return false;
    }
}

bool trl__uc_is_punct(unsigned cp)
{
    if (cp < 0x80)
        return (cp >= 33 && cp <= 47) || (cp >= 58 && cp <= 64) || (cp >= 91 && cp <= 96) ||
            (cp >= 123 && cp <= 126);
    utf8proc_category_t c = category(cp);
    return c >= UTF8PROC_CATEGORY_PC && c <= UTF8PROC_CATEGORY_PO;
}

int trl__uc_ccc(unsigned cp)
{
    return cp < 0x300 ? 0 : utf8proc_get_property((utf8proc_int32_t)cp)->combining_class;
}

unsigned trl__uc_lower(unsigned cp)
{
    return (unsigned)utf8proc_tolower((utf8proc_int32_t)cp);
}

/* 0x21..0x7E, 0xA1..0xAC and 0xAE..0xFF stand for themselves; the other 68 bytes become U+0100,
 * U+0101 ... in order. */
#define R(first) \
    (first), (first) + 1, (first) + 2, (first) + 3, (first) + 4, (first) + 5, (first) + 6, \
        (first) + 7
const uint16_t trl__byte_to_char[256] = {
    R(0x100),
    R(0x108),
    R(0x110),
    R(0x118), /* 00..1F */
    0x120,
    0x21,
    0x22,
    0x23,
    0x24,
    0x25,
    0x26,
    0x27,
    R(0x28),
    R(0x30),
    R(0x38), /* 20..3F */
    R(0x40),
    R(0x48),
    R(0x50),
    R(0x58),
    R(0x60),
    R(0x68),
    R(0x70),
    0x78,
    0x79,
    0x7A,
    0x7B,
    0x7C,
    0x7D,
    0x7E,
    0x121, /* 40..7F */
    R(0x122),
    R(0x12A),
    R(0x132),
    R(0x13A), /* 80..9F */
    0x142,
    0xA1,
    0xA2,
    0xA3,
    0xA4,
    0xA5,
    0xA6,
    0xA7,
    0xA8,
    0xA9,
    0xAA,
    0xAB,
    0xAC,
    0x143,
    0xAE,
    0xAF,
    R(0xB0),
    R(0xB8),
    R(0xC0),
    R(0xC8),
    R(0xD0),
    R(0xD8),
    R(0xE0),
    R(0xE8),
    R(0xF0),
    R(0xF8),
};
#undef R

int trl__char_to_byte(unsigned cp)
{
    if (cp < 0x100)
        return cp <= 0x20 || (cp >= 0x7F && cp <= 0xA0) || cp == 0xAD ? -1 : (int)cp;
    if (cp <= 0x120)
        return (int)cp - 0x100;
    if (cp <= 0x142)
        return (int)cp - 0x121 + 0x7F;
    return cp == 0x143 ? 0xAD : -1;
}
