/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TRL_DATA_TPL_KNOWN_H
#define TRL_DATA_TPL_KNOWN_H
/*
 * Published chat templates and our templates for training. Most published templates do not mark
 * what the assistant says; with assistant_only_loss TRL then swaps a template that it knows
 * (compared character by character) for a variant with
 * {% generation %} markers, and refuses any other. Here the same: the variants are our own texts,
 * templates/chat/ in the share folder. That folder is TRL_SHARE_DIR (environment), or near the
 * program (an installation anywhere, the source tree), or where it was installed.
 */
#include "base/err.h"

/* The file name of the variant for exactly this template text, or NULL. */
const char *trl_template_training_variant(const char *source);
/* The path of a file in templates/chat/; caller frees with trl_free. */
int trl_template_find_shared(char **ret_path, const char *file, struct trl_err *err);
/* For a template without markers: the text of its variant (caller frees with trl_free), or an error
 * that says what to do. */
int trl_template_training_source(char **ret_source, const char *source, struct trl_err *err);

#endif
