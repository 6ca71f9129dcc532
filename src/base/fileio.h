/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TRL_BASE_FILEIO_H
#define TRL_BASE_FILEIO_H
/*
 * Checked file access. Whatever matters is written to a temporary name beside the target, fsynced and renamed:
 * a reader sees the old file or the whole new one. Error texts name the path.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

/* Whole file into memory, NUL added behind. Caller frees *ret_data (trl_free). Fails above `max` bytes. */
int trl_file_read(const char *path, size_t max, char **ret_data, size_t *ret_len, struct trl_err *err);
/* temporary name + fsync + rename + fsync of the folder */
int trl_file_write_atomic(const char *path, const void *data, size_t len, struct trl_err *err);
int trl_file_copy(const char *from, const char *to, struct trl_err *err); /* atomic as above */

bool trl_path_exists(const char *path);
bool trl_path_is_dir(const char *path);
int64_t trl_file_size(const char *path); /* -1: none */
int trl_mkdirs(const char *path, struct trl_err *err);
int trl_rmtree(const char *path, struct trl_err *err); /* a missing path is fine; links are not followed */
/* Files `dir`/PREFIX<uid>-<pid>-* of this user whose process has ended (a job that was killed before it could take the name
 * away) are removed, failures ignored. */
void trl_remove_leftovers(const char *dir, const char *prefix);
int trl_fsync_dir(const char *path, struct trl_err *err);
/* rename + fsync of the parent folder */
int trl_rename(const char *from, const char *to, struct trl_err *err);
/* "a/b": caller frees with trl_free; NULL when out of memory */
char *trl_path_join(const char *dir, const char *name);
const char *trl_path_base(const char *path); /* the part behind the last '/' */

/* Write all of it to an open descriptor (short writes and EINTR handled). */
int trl_write_all(int fd, const void *data, size_t len, const char *path, struct trl_err *err);

/* A read-only mapping. Truncating the file underneath is the only way to SIGBUS; sizes are checked at open. */
struct trl_map {
    const uint8_t *data; /* NULL when len is 0 */
    size_t len;
};
int trl_map_open(struct trl_map *m, const char *path, struct trl_err *err);
void trl_map_close(struct trl_map *m);
/* The bytes will not be needed again: give the pages back. */
void trl_map_drop(const struct trl_map *m, size_t offset, size_t len);

#endif
