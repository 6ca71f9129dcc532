/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "hw/bind.h"

static bool read_line(const char *dir, const char *name, char *ret, size_t size)
{
    char path[4096];
    int n = snprintf(path, sizeof(path), "%s/%s", dir, name);
    FILE *f = n > 0 && (size_t)n < sizeof(path) ? fopen(path, "r") : NULL;
    if (!f)
        return false;
    bool ok = fgets(ret, (int)size, f) != NULL;
    fclose(f);
    return ok;
}

static double smaller(double a, double b)
{
    return a <= 0 ? b : b <= 0 ? a : a < b ? a : b;
}

/* Version 2: "max 100000" or "200000 100000"; version 1: two files, -1 for none. */
static double quota_of(const char *dir)
{
    char text[128], period[128], *rest;
    if (read_line(dir, "cpu.max", text, sizeof(text))) {
        double q = strtod(text, &rest), p = strtod(rest, NULL);
        return q > 0 && p > 0 ? q / p : 0;
    }
    if (read_line(dir, "cpu.cfs_quota_us", text, sizeof(text)) &&
        read_line(dir, "cpu.cfs_period_us", period, sizeof(period))) {
        double q = strtod(text, NULL), p = strtod(period, NULL);
        return q > 0 && p > 0 ? q / p : 0;
    }
    return 0;
}

/* The group and all above it, up to the mount: the smallest counts. Inside a container the path may
 * be one of the outside. */
static double quota_up(const char *mount, const char *group)
{
    char dir[4096];
    double least = 0;
    size_t root = strlen(mount);
    int n = snprintf(dir, sizeof(dir), "%s%s", mount, group);
    if (n < 0 || (size_t)n >= sizeof(dir))
        return 0;
    for (;;) {
        least = smaller(least, quota_of(dir));
        char *slash = strrchr(dir, '/');
        if (!slash || (size_t)(slash - dir) < root)
            return least;
        *slash = '\0';
    }
}

double trl_hw_cpu_quota_in(const char *proc_file, const char *root)
{
    char line[4096], mount[4096];
    double least = 0;
    FILE *f = fopen(proc_file, "r");
    while (f && fgets(line, sizeof(line), f)) {
        line[strcspn(line, "\n")] = '\0';
        char *controllers = strchr(line, ':'),
             *group = controllers ? strchr(controllers + 1, ':') : NULL;
        if (!group)
            continue;
        *group++ = '\0';
        controllers++;
        if (*controllers == '\0') {
            least = smaller(least, quota_up(root, group));
        } else if (strcmp(controllers, "cpu") == 0 || strstr(controllers, "cpu,") == controllers ||
            strstr(controllers, ",cpu,") ||
            (strlen(controllers) > 4 &&
                strcmp(controllers + strlen(controllers) - 4, ",cpu") == 0)) {
            int n = snprintf(mount, sizeof(mount), "%s/cpu", root);
            if (n > 0 && (size_t)n < sizeof(mount))
                least = smaller(least, quota_up(mount, group));
        }
    }
    if (f)
        fclose(f);
    return least;
}

double trl_hw_cpu_quota(void)
{
    return trl_hw_cpu_quota_in("/proc/self/cgroup", "/sys/fs/cgroup");
}
