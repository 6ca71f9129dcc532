/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TRL_CKPT_CKPT_H
#define TRL_CKPT_CKPT_H
/*
 * Checkpoint folders output_dir/checkpoint-N. A folder of that name is always complete: it is filled under a temporary name, every file is
 * fsynced and hashed into trl_manifest.json, then the folder is renamed. Whoever dies in between leaves only a temporary folder,
 * which the next start removes. One process writes (rank 0); others hand it their state beforehand.
 *
 *   begin -> files into trl_ckpt_dir() (trl_model_save, trl_optim_save, trl_ckpt_add_*) -> commit, or abort
 */
#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

#define TRL_CKPT_MANIFEST "trl_manifest.json"

struct trl_ckpt; /* one that is being written */

/* Removes what dead processes left in output_dir (temporary and half-deleted folders) and puts back a checkpoint that was set aside by a
 * replacement that never finished. A missing output_dir is fine. Call once at start, on rank 0. */
int trl_ckpt_clean(const char *output_dir, struct trl_err *err);

/* Creates output_dir if needed and the temporary folder. */
int trl_ckpt_begin(struct trl_ckpt **ret, const char *output_dir, int64_t step, struct trl_err *err);
const char *trl_ckpt_dir(const struct trl_ckpt *c); /* absolute or relative as output_dir was */
int trl_ckpt_add_data(struct trl_ckpt *c, const char *name, const void *data, size_t len, struct trl_err *err);
/* indent 2, sorted keys, as json.dumps */
int trl_ckpt_add_json(struct trl_ckpt *c, const char *name, const json_t *value, struct trl_err *err);
int trl_ckpt_add_copy(struct trl_ckpt *c, const char *from, const char *name, struct trl_err *err);
/* Fsync, hash, manifest, rename. An existing checkpoint-N is replaced. On success and failure alike `c` is freed; after a failure nothing
 * of it is left. ret_path (may be NULL): "output_dir/checkpoint-N", caller frees. */
int trl_ckpt_commit(struct trl_ckpt *c, int world, char **ret_path, struct trl_err *err);
void trl_ckpt_abort(struct trl_ckpt *c); /* removes the folder; NULL is fine */

/* Sizes and hashes of all files against the manifest. */
struct trl_ckpt_facts {
    int64_t step;
    int world; /* ranks of the run that wrote it */
};
int trl_ckpt_verify(const char *path, struct trl_ckpt_facts *ret, struct trl_err *err); /* ret may be NULL */

/* resume_from_checkpoint: NULL, "", "false": none. "true": the newest complete one in output_dir; broken ones are skipped with a warning that
 * says why; none at all: *ret = NULL, 0 (the caller says that it starts from the beginning). A path: that one, verified, or an error.
 * The caller frees *ret. */
int trl_ckpt_find(const char *output_dir, const char *resume, char **ret, struct trl_ckpt_facts *ret_facts,
    struct trl_err *err);

/* save_total_limit: delete the oldest checkpoints until `limit` are left (limit < 1: nothing is deleted). Never deletes `best` (path or name,
 * may be NULL) nor `newest` (the one just written; NULL: the highest number), so that with a limit of 1 and an older best two stay.
 * A folder is renamed away before its files are deleted. */
int trl_ckpt_retain(const char *output_dir, int64_t limit, const char *best, const char *newest, struct trl_err *err);

/* Read a JSON file of a checkpoint. The caller decrefs. */
int trl_ckpt_read_json(const char *dir, const char *name, json_t **ret, struct trl_err *err);

#endif
