/* SPDX-License-Identifier: Apache-2.0 */
/* trl-gen-options md|man: writes docs/options.md or docs/trl-train.1 to standard output. Used while
 * building only. */
#include <stdio.h>
#include <string.h>

#include "config/options.h"

int main(int argc, char **argv)
{
    struct trl_str s = {0};
    if (argc == 2 && !strcmp(argv[1], "md")) {
        trl_config_write_markdown(&s);
    } else if (argc == 2 && !strcmp(argv[1], "man")) {
        trl_config_write_man(&s);
    } else {
        fputs("usage: trl-gen-options md|man\n", stderr);
        return 2;
    }
    int bad = s.failed || fwrite(trl_str_get(&s), 1, s.len, stdout) != s.len || fflush(stdout);
    trl_str_release(&s);
    return bad ? 1 : 0;
}
