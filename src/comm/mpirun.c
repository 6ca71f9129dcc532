/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
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

/* ---- the launcher's process ---- */

static volatile sig_atomic_t g_child, g_asked;

/* mpirun answers SIGTERM and SIGINT by killing its ranks within a second. SIGUSR1 it hands to them, and they end with a
 * checkpoint. Who asks twice means it. */
static void pass_on(int sig)
{
    (void)sig;
    int saved = errno;
    if (g_child > 0)
        kill((pid_t)g_child, g_asked ? SIGTERM : SIGUSR1);
    g_asked = 1;
    errno = saved;
}

static const int passed[] = {SIGTERM, SIGINT, SIGUSR1, SIGHUP};
enum { N_PASSED = sizeof(passed) / sizeof(passed[0]) };

/* The child: a group of its own, so that the terminal's Ctrl-C reaches us alone; it dies with us. */
static void __attribute__((noreturn)) become(char **v, pid_t parent, const sigset_t *mask, int report)
{
    int null = open("/dev/null", O_RDONLY);
    if (null >= 0)
        dup2(null, 0); /* a group in the background may not read the terminal */
    setpgid(0, 0);
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    if (getppid() != parent)
        _exit(1);
    sigprocmask(SIG_SETMASK, mask, NULL);
    execv(v[0], v);
    int e = errno;
    ssize_t n = write(report, &e, sizeof(e));
    (void)n;
    _exit(127);
}

/* Start v, hand on signals, wait. *ret_code: its exit code. */
static int run_and_wait(char **v, int *ret_code, struct trl_err *err)
{
    sigset_t block, old;
    int report[2], status = 0, e = 0;
    if (pipe2(report, O_CLOEXEC) != 0)
        return trl_fail_errno(err, "cannot start", v[0]);
    sigemptyset(&block);
    for (int i = 0; i < N_PASSED; i++)
        sigaddset(&block, passed[i]);
    sigprocmask(SIG_BLOCK, &block, &old);
    g_asked = 0;
    pid_t self = getpid(), pid = fork();
    if (pid == 0)
        become(v, self, &old, report[1]);
    close(report[1]);
    if (pid > 0) {
        struct sigaction sa = {.sa_handler = pass_on, .sa_flags = SA_RESTART};
        g_child = pid;
        for (int i = 0; i < N_PASSED; i++)
            sigaction(passed[i], &sa, NULL);
    } else {
        e = errno;
    }
    sigprocmask(SIG_SETMASK, &old, NULL);
    if (pid > 0) {
        if (read(report[0], &e, sizeof(e)) < (ssize_t)sizeof(e))
            e = 0;
        while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
            ;
        g_child = 0;
    }
    close(report[0]);
    errno = e;
    if (e)
        return trl_fail_errno(err, "cannot start", v[0]);
    *ret_code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    return 0;
}

int trl_comm_run_mpirun(int n, char **argv, int *ret_code, struct trl_err *err)
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
    /* a slip of the finger must not bring a login node down; 16 a core is far beyond what is of use */
    long cores = sysconf(_SC_NPROCESSORS_ONLN), most = cores > 0 ? 16 * cores : 16;
    if (n < 1 || n > most)
        return trl_fail(err, TRL_E_RANGE,
            "num_processes: %d processes cannot be started on this machine; 1 to %ld are allowed with its %ld cores", n, most, cores);
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
    int rc = run_and_wait(v, ret_code, err);
    unsetenv(guard);
    trl_free(v);
    return rc;
}
