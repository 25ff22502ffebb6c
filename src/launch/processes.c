// SPDX-License-Identifier: Apache-2.0
// Starting and ending processes. Each leads a group of its own: a signal to the group reaches what
// the program started itself, and a signal from the terminal reaches the launcher alone, which
// passes it on.
#include "launch/private.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

static sw_status merged_environment(const struct job *job, const struct command *command,
                                    struct words *out)
{
    const char *const *at =
        job->options->environment ? job->options->environment : (const char *const *)environ;
    for (; *at; at++) {
        SW_TRY(sw_launch_add(job->arena, out, *at));
    }
    for (int i = 0; i < command->added.n; i++) {
        const char *each = command->added.items[i], *equals = strchr(each, '=');
        char *name = sw_arena_strndup(job->arena, each, (size_t)(equals - each));
        SW_TRY_ALLOC(name, "the environment");
        SW_TRY(sw_launch_set(job->arena, out, name, equals + 1));
    }
    return out->n > 0 ? SW_OK : sw_launch_add(job->arena, out, "SPILLWAY=");
}

/* The work of a child between fork and exec. */
struct child {
    char **words, **environment;
    const cpu_set_t *cores; /* NULL = where this thread may run */
    const sigset_t *mask;
    bool hides_terminal; /* a group of its own may not read a terminal: it would be stopped */
    int dies_of;         /* the signal that ends it when this process is gone */
    pid_t parent;
    int errors; /* the end of a pipe that exec closes */
};

/* Only calls that are safe after fork. The kernel sends the signal when the parent ends; a parent
 * that ended before prctl is found by its number. */
static int become(const struct child *c)
{
    if (setpgid(0, 0) != 0 || prctl(PR_SET_PDEATHSIG, c->dies_of) != 0) {
        return errno;
    }
    if (getppid() != c->parent) {
        return ECHILD;
    }
    if (c->cores && sched_setaffinity(0, sizeof *c->cores, c->cores) != 0) {
        return errno;
    }
    if (c->hides_terminal) {
        const int null = open("/dev/null", O_RDONLY);
        if (null < 0 || dup2(null, STDIN_FILENO) < 0) {
            return errno;
        }
        close(null);
    }
    if (sigprocmask(SIG_SETMASK, c->mask, NULL) != 0) {
        return errno;
    }
    execvpe(c->words[0], c->words, c->environment);
    return errno;
}

/* 0 or an errno, of the child, too. */
static int spawn(struct child *c, pid_t *out)
{
    int ends[2], bad = 0;
    if (pipe2(ends, O_CLOEXEC) != 0) {
        return errno;
    }
    c->parent = getpid();
    c->errors = ends[1];
    const pid_t pid = fork();
    if (pid == 0) {
        bad = become(c);
        const ssize_t n = write(c->errors, &bad, sizeof bad);
        _exit(n == (ssize_t)sizeof bad ? 127 : 126);
    }
    bad = pid < 0 ? errno : 0;
    close(ends[1]);
    if (pid > 0) {
        setpgid(pid, pid); /* the child does the same: whoever comes first */
        ssize_t n;
        do {
            n = read(ends[0], &bad, sizeof bad);
        } while (n < 0 && errno == EINTR);
        bad = n == (ssize_t)sizeof bad ? bad : 0;
        if (bad) {
            waitpid(pid, NULL, 0);
        }
        *out = pid;
    }
    close(ends[0]);
    return bad;
}

sw_status sw_launch_spawn(const struct job *job, const struct command *command,
                          const cpu_set_t *cores, const sigset_t *mask, struct process *out)
{
    struct words environment = {0};
    pid_t pid = 0;
    SW_TRY(merged_environment(job, command, &environment));
    struct child child = {
        .words = command->words.items,
        .environment = environment.items,
        .cores = cores,
        .mask = mask,
        .hides_terminal = isatty(STDIN_FILENO),
        /* A rank may wait for another one that ended; mpirun, srun and pdsh end their ranks. */
        .dies_of = command->rank >= 0 ? SIGKILL : SIGTERM,
    };
    const int bad = spawn(&child, &pid);
    if (bad) {
        return SW_FAIL(SW_E_IO, "%s cannot be started%s: %s", command->words.items[0],
                       cores ? " on its cores (--bind-cores)" : "", strerror(bad));
    }
    *out = (struct process){.pid = pid, .rank = command->rank, .running = true};
    return SW_OK;
}

void sw_launch_signal(const struct process *process, int signal_number)
{
    if (process->running) {
        kill(-process->pid, signal_number);
        if (signal_number == SIGTERM) {
            kill(-process->pid, SIGCONT); /* a stopped process would not see it */
        }
    }
}

bool sw_launch_reap(struct process *process, bool sweep)
{
    siginfo_t info = {0};
    if (!process->running ||
        waitid(P_PID, (id_t)process->pid, &info, WEXITED | WNOHANG | WNOWAIT) != 0 ||
        info.si_pid == 0) {
        return false;
    }
    const bool failed = info.si_code != CLD_EXITED || info.si_status != 0;
    if (sweep || failed) {
        kill(-process->pid, SIGKILL); /* before the number can belong to another group */
    }
    process->running = waitpid(process->pid, &process->status, 0) != process->pid;
    return !process->running;
}

int sw_launch_exit_of(int status)
{
    return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

void sw_launch_tell_status(int status, char *out, size_t cap)
{
    const int code = WEXITSTATUS(status);
    if (WIFSIGNALED(status)) {
        snprintf(out, cap, "was ended by signal %d (%s)", WTERMSIG(status),
                 strsignal(WTERMSIG(status)));
    } else if (code > 128 && code - 128 < NSIG) {
        snprintf(out, cap, "ended with status %d, which means signal %d (%s)", code, code - 128,
                 strsignal(code - 128));
    } else {
        snprintf(out, cap, "ended with status %d", code);
    }
}
