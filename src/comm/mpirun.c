/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/str.h"
#include "comm/comm.h"

/* Set in what we start: a program that finds it and still is no rank must not start mpirun again,
 * and again. */
static const char guard[] = "TRL_STARTED_BY_MPIRUN";

enum mpi_kind { KIND_OPEN_MPI, KIND_HYDRA };

static bool find_program(const char *name, char *ret, size_t size)
{
    const char *path = getenv("PATH");
    for (const char *p = path ? path : "/usr/local/bin:/usr/bin:/bin"; *p;) {
        size_t len = strcspn(p, ":");
        int n = snprintf(ret, size, "%.*s/%s", (int)len, len ? p : ".", name);
        if (n > 0 && (size_t)n < size && access(ret, X_OK) == 0)
            return true;
        p += len + (p[len] == ':');
    }
    return false;
}

/* Its first words: "mpirun (Open MPI) 4.1.4" or "HYDRA build details:". */
static enum mpi_kind ask_kind(const char *mpirun)
{
    struct trl_str cmd = {0};
    enum mpi_kind kind = KIND_OPEN_MPI;
    trl_str_putc(&cmd, '\'');
    for (const char *p = mpirun; *p; p++)
        if (*p == '\'')
            trl_str_puts(&cmd, "'\\''");
        else
            trl_str_putc(&cmd, *p);
    trl_str_puts(&cmd, "' --version 2>/dev/null");
    FILE *f = cmd.failed ? NULL : popen(cmd.data, "r");
    char text[512];
    size_t n = f ? fread(text, 1, sizeof(text) - 1, f) : 0;
    text[n] = '\0';
    if (f)
        pclose(f);
    trl_str_release(&cmd);
    if (strstr(text, "HYDRA") || strstr(text, "Intel(R) MPI") || strstr(text, "MPICH"))
        kind = KIND_HYDRA;
    return kind;
}

int trl_comm_exec_mpirun(int n, char **argv, struct trl_err *err)
{
    static const char *const names[] = {
        "mpirun", "mpiexec", "mpirun.openmpi", "mpiexec.hydra", "mpirun.mpich"};
    char mpirun[PATH_MAX] = "", self[PATH_MAX], count[16];
#ifndef TRL_HAVE_MPI
    return trl_fail(err, TRL_E_UNSUPPORTED,
        "%d processes were asked for, but this program was built without MPI: install Open MPI or "
        "MPICH with its headers and build again "
        "(meson setup -Dmpi=enabled)",
        n);
#endif
    if (n < 1)
        return trl_fail(err, TRL_E_RANGE, "cannot start %d processes", n);
    if (getenv(guard))
        return trl_fail(err, TRL_E_COMM,
            "mpirun started this program for %d processes, but left no rank in its environment: is "
            "the mpirun in PATH the one of the MPI "
            "this program was built with?",
            n);
    ssize_t len = readlink("/proc/self/exe", self, sizeof(self) - 1);
    if (len <= 0)
        return trl_fail_errno(err, "cannot find this program,", "/proc/self/exe");
    self[len] = '\0';
    bool found = false;
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]) && !found; i++)
        found = find_program(names[i], mpirun, sizeof(mpirun));
    if (!found)
        return trl_fail(err, TRL_E_NOENT,
            "%d processes need mpirun, which is not in PATH: install it (openmpi-bin) or load the "
            "MPI module",
            n);
    enum mpi_kind kind = ask_kind(mpirun);
    size_t n_args = 0;
    while (argv[n_args])
        n_args++;
    char **v = trl_malloc_array(n_args + 12, sizeof(*v));
    if (!v)
        return trl_fail_nomem(err, n_args * sizeof(*v), "the command line of mpirun");
    size_t at = 0;
    snprintf(count, sizeof(count), "%d", n);
    v[at++] = mpirun;
    if (kind == KIND_OPEN_MPI) {
        if (geteuid() == 0)
            v[at++] = (char *)"--allow-run-as-root";
        v[at++] = (char *)"--map-by"; /* both in Open MPI 4 and 5 */
        v[at++] = (char *)"slot:OVERSUBSCRIBE";
        v[at++] = (char *)"--bind-to";
        v[at++] = (char *)"none"; /* ranks bind their threads themselves */
    } else {
        /* Hydra kills all at once when one dies; the watch ends them too, and says why */
        v[at++] = (char *)"-disable-auto-cleanup";
    }
    v[at++] = (char *)"-n";
    v[at++] = count;
    v[at++] = self;
    for (size_t i = 1; i < n_args; i++)
        v[at++] = argv[i];
    v[at] = NULL;
    setenv(guard, "1", 1);
    fflush(NULL);
    execv(mpirun, v);
    int rc = trl_fail_errno(err, "cannot start", mpirun);
    unsetenv(guard);
    trl_free(v);
    return rc;
}
