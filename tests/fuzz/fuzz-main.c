/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Drives a fuzz target without libFuzzer: every seed as it is, cut short, and with a fixed number of mutations.
 * Deterministic, so that a failure comes back. Arguments: seed files or folders.
 */
#include <dirent.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/fileio.h"
#include "base/rng.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { MAX_SEED = 1 << 16, ROUNDS = 200 };
static const double seconds_a_seed = 2;

static void run(const uint8_t *data, size_t size)
{
    /* an exact-size heap copy, so that a sanitizer sees any read beyond the end */
    uint8_t *copy = malloc(size ? size : 1);
    if (!copy)
        exit(99);
    memcpy(copy, data, size);
    LLVMFuzzerTestOneInput(copy, size);
    free(copy);
}

static size_t mutate(uint8_t *buf, size_t size, struct trl_mt *rng)
{
    for (int edits = 1 + (int)(trl_mt_next(rng) % 4); edits > 0 && size > 0; edits--) {
        size_t at = trl_mt_next(rng) % size;
        switch (trl_mt_next(rng) % 4) {
        case 0:
            buf[at] = (uint8_t)trl_mt_next(rng);
            break;
        case 1:
            buf[at] ^= (uint8_t)(1u << trl_mt_next(rng) % 8);
            break;
        case 2: /* drop a stretch */
        {
            size_t n = 1 + trl_mt_next(rng) % (size - at);
            memmove(buf + at, buf + at + n, size - at - n);
            size -= n;
            break;
        }
        default: /* repeat a stretch over what follows */
        {
            size_t from = trl_mt_next(rng) % size, room = size - (from > at ? from : at);
            memmove(buf + at, buf + from, room < 64 ? room : 64);
        }
        }
    }
    return size;
}

static void drive(const uint8_t *seed, size_t size)
{
    static uint8_t buf[MAX_SEED];
    struct trl_mt rng;
    trl_mt_seed(&rng, size);
    if (size > MAX_SEED)
        size = MAX_SEED;
    run(seed, size);
    double start = trl_clock_now();
    for (int i = 0; i < ROUNDS && trl_clock_now() - start < seconds_a_seed; i++) {
        memcpy(buf, seed, size);
        run(buf, size * (size_t)i / ROUNDS);
        run(buf, mutate(buf, size, &rng));
    }
}

static void drive_path(const char *path)
{
    struct stat st;
    if (stat(path, &st) != 0)
        return;
    if (!S_ISDIR(st.st_mode)) {
        char *data = NULL;
        size_t len = 0;
        if (trl_file_read(path, 64 << 20, &data, &len, NULL) == 0)
            drive((const uint8_t *)data, len);
        trl_free(data);
        return;
    }
    DIR *d = opendir(path);
    for (struct dirent *e; d && (e = readdir(d)) != NULL;) {
        char *sub = e->d_name[0] == '.' ? NULL : trl_path_join(path, e->d_name);
        if (sub)
            drive_path(sub);
        trl_free(sub);
    }
    if (d)
        closedir(d);
}

int main(int argc, char **argv)
{
    drive((const uint8_t *)"", 0);
    for (int i = 1; i < argc; i++)
        drive_path(argv[i]);
    return 0;
}
