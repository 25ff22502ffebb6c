// SPDX-License-Identifier: Apache-2.0
// Starting and ending processes. Each leads a group of its own: a signal to the group reaches what
// the program started itself, and a signal from the terminal reaches the launcher alone, which
// passes it on.
#include "launch/private.h"

#include <errno.h>
#include <fcntl.h>
#include <spawn.h>
#include <string.h>
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

struct attributes {
    posix_spawnattr_t attr;
    posix_spawn_file_actions_t files;
};

/* 0 or an errno. A group of its own may not read a terminal: it would be stopped. */
static int set_attributes(struct attributes *to, const sigset_t *mask)
{
    int bad = posix_spawnattr_setflags(&to->attr, POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGMASK);
    bad = bad ? bad : posix_spawnattr_setpgroup(&to->attr, 0);
    bad = bad ? bad : posix_spawnattr_setsigmask(&to->attr, mask);
    if (!bad && isatty(STDIN_FILENO)) {
        bad = posix_spawn_file_actions_addopen(&to->files, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    }
    return bad;
}

static int spawn(char **words, char **environment, const sigset_t *mask, pid_t *out)
{
    struct attributes attributes;
    int bad = posix_spawnattr_init(&attributes.attr);
    if (bad) {
        return bad;
    }
    bad = posix_spawn_file_actions_init(&attributes.files);
    if (!bad) {
        bad = set_attributes(&attributes, mask);
        bad = bad ? bad
                  : posix_spawnp(out, words[0], &attributes.files, &attributes.attr, words,
                                 environment);
        posix_spawn_file_actions_destroy(&attributes.files);
    }
    posix_spawnattr_destroy(&attributes.attr);
    return bad;
}

sw_status sw_launch_spawn(const struct job *job, const struct command *command,
                          const cpu_set_t *cores, const sigset_t *mask, struct process *out)
{
    struct words environment = {0};
    cpu_set_t own;
    pid_t pid = 0;
    SW_TRY(merged_environment(job, command, &environment));
    /* The child inherits where this thread may run. */
    const bool bound = cores && sched_getaffinity(0, sizeof own, &own) == 0;
    if (cores && (!bound || sched_setaffinity(0, sizeof *cores, cores) != 0)) {
        return SW_FAIL(SW_E_IO, "--bind-cores: rank %d cannot be bound: %s", command->rank,
                       strerror(errno));
    }
    const int bad = spawn(command->words.items, environment.items, mask, &pid);
    if (bound) {
        sched_setaffinity(0, sizeof own, &own);
    }
    if (bad) {
        return SW_FAIL(SW_E_IO, "%s cannot be started: %s", command->words.items[0], strerror(bad));
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
    if (sweep) {
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
        snprintf(out, cap, "ended with status %d, which tells signal %d (%s)", code, code - 128,
                 strsignal(code - 128));
    } else {
        snprintf(out, cap, "ended with status %d", code);
    }
}
