/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TRL_DATA_TOK_UNICODE_H
#define TRL_DATA_TOK_UNICODE_H
/* Character classes as the Rust standard library, its regex crate and the tokenizers library define
 * them. */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

bool trl__uc_is_space(unsigned cp); /* White_Space */
bool trl__uc_is_number(unsigned cp); /* Nd, Nl, No */
bool trl__uc_is_mark(unsigned cp); /* Mn, Mc, Me */
bool trl__uc_is_word(unsigned cp); /* \w: Alphabetic, marks, Nd, Pc, joiners */
bool trl__uc_is_punct(unsigned cp); /* ASCII punctuation and symbols, or category P */
int trl__uc_ccc(unsigned cp); /* canonical combining class */
unsigned trl__uc_lower(unsigned cp); /* the one-character lower case form */

/* Character at p (well-formed UTF-8): its code point; *ret_len its bytes. */
unsigned trl__uc_next(const char *p, int *ret_len);
/* Character that ends at p (begin < p). */
unsigned trl__uc_prev(const char *begin, const char *p, int *ret_len);
int trl__uc_put(char *dst, unsigned cp); /* writes 1..4 bytes, returns how many */

/* The byte <-> printable character map of byte-level tokenizers. */
extern const uint16_t trl__byte_to_char[256];
int trl__char_to_byte(unsigned cp); /* -1: not in the map */

#endif
