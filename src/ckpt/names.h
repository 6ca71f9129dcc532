/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TRL_CKPT_NAMES_H
#define TRL_CKPT_NAMES_H
/* Folder names inside output_dir. Complete: checkpoint-N. In the making, set aside, being deleted: ".KIND-checkpoint-N-HOST-PID". */
#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"

enum trl__ckpt_kind { TRL__CKPT_TMP, TRL__CKPT_OLD, TRL__CKPT_DEL, TRL__CKPT_KIND_MAX_ };

/* "output_dir/checkpoint-N"; caller frees; NULL: out of memory */
char *trl__ckpt_path(const char *output_dir, int64_t step);
/* "output_dir/.tmp-checkpoint-N-HOST-PID" of this process */
char *trl__ckpt_side_path(const char *output_dir, enum trl__ckpt_kind kind, int64_t step);
/* N of "checkpoint-N" (nothing else around it), -1: another name */
int64_t trl__ckpt_step_of(const char *name);
/* Parse a side name. orphan: its process is gone (this host), or it belongs to another host and has not changed for a day. */
bool trl__ckpt_parse_side(const char *output_dir, const char *name, enum trl__ckpt_kind *ret_kind, int64_t *ret_step,
    bool *ret_orphan);

struct trl__ckpt_entry {
    int64_t step;
    double mtime; /* of the manifest, else of the folder */
};
/* All checkpoint-N folders, by step. A missing output_dir: none. Caller frees. */
int trl__ckpt_list(const char *output_dir, struct trl__ckpt_entry **ret, size_t *ret_n, struct trl_err *err);
/* Move away, then delete. */
int trl__ckpt_delete(const char *output_dir, int64_t step, struct trl_err *err);

#endif
