// SPDX-License-Identifier: Apache-2.0
// One start of a job, from its first process to the end of its last. Forwards signals, names the
// rank that failed first, and ends the others. Invariant: when it returns, no process that it
// started is still running.
#include "launch/private.h"

#include <errno.h>
#include <math.h>
#include <poll.h>
#include <string.h>
#include <sys/signalfd.h>
#include <unistd.h>

static const double linger_s = 10.0;  /* mpirun outlives its ranks by this before a log line */
static const double grace_s = 1.0;    /* between a broken connection and what the system says */
static const double give_up_s = 30.0; /* after SIGKILL: the system itself does not let it go */

struct watch {
    const struct job *job;
    struct monitor *monitor;
    FILE *log;
    bool *lost;          /* [hosts] */
    const char *program; /* for messages */
    struct process *processes;
    int n, n_running;
    int signals; /* a descriptor that SIGINT, SIGTERM, SIGHUP and SIGCHLD arrive at */
    int uplink;  /* of a launcher that another one started, or -1 */
    int n_asked; /* signals passed on */
    bool failed; /* someone did */
    int exit;    /* of the first that did */
    bool killed; /* by SIGKILL: whatever it says then, it did not end well */
    bool said_waiting;
    bool judged; /* `verdict` stands, but the system may still say more */
    struct verdict verdict;
    double end_at, kill_at, give_up_at; /* seconds of the clock; INFINITY: not yet */
};

void sw_launch_say(FILE *log, const char *fmt, ...)
{
    if (!log) {
        return;
    }
    va_list args;
    va_start(args, fmt);
    fputs("spillway launch: ", log);
    vfprintf(log, fmt, args);
    fputc('\n', log);
    fflush(log);
    va_end(args);
}

static void signal_all(struct watch *w, int signal_number)
{
    for (int i = 0; i < w->n; i++) {
        w->killed |= signal_number == SIGKILL && w->processes[i].running;
        sw_launch_signal(&w->processes[i], signal_number);
    }
}

static void end_all(struct watch *w)
{
    if (isinf(w->kill_at)) {
        signal_all(w, SIGTERM);
        w->kill_at = sw_now_s() + w->job->options->grace_s;
    }
    w->end_at = INFINITY;
}

/* Seconds of silence that count if the job has failed for another reason. Ranks report every
 * second, so the ranks of a lost host fall silent within a second of each other. */
static double quiet_s(double deadline_s)
{
    return deadline_s > 0 ? fmax(1.5, fmin(5.0, deadline_s - 1.5)) : 5.0;
}

/* The first one counts. Called before anything is ended: later the others fall silent, too. */
static void fail(struct watch *w, int exit)
{
    if (w->failed) {
        return;
    }
    w->failed = true;
    w->exit = exit;
    if (w->monitor) {
        sw_launch_monitor_hear(w->monitor);
        sw_launch_monitor_silent_hosts(w->monitor, quiet_s(w->job->options->deadline_s), w->lost);
    }
}

/* Who it was and how it ended; where it was if it told so. */
static void name_failure(const struct watch *w, const struct process *process)
{
    char how[128], place[128] = "";
    sw_launch_tell_status(process->status, how, sizeof how);
    if (process->rank < 0) {
        sw_launch_say(w->log, "%s (pid %d) %s", w->program, (int)process->pid, how);
        return;
    }
    if (w->monitor) {
        sw_launch_monitor_place(w->monitor, process->rank, place, sizeof place);
    }
    sw_launch_say(w->log, "rank %d (pid %d) on %s %s%s%s", process->rank, (int)process->pid,
                  w->job->hosts.items[w->job->node].name, how, *place ? " " : "", place);
}

static void reap_all(struct watch *w)
{
    for (int i = 0; i < w->n; i++) {
        struct process *process = &w->processes[i];
        if (!sw_launch_reap(process, w->failed)) {
            continue;
        }
        w->n_running--;
        if (w->judged && w->verdict.rank == process->rank) {
            w->judged = false; /* the system says what it was */
            w->end_at = INFINITY;
        }
        if (process->status != 0) {
            if (!w->failed) {
                name_failure(w, process);
            }
            fail(w, sw_launch_exit_of(process->status));
            end_all(w);
        }
    }
}

static void pass_on(struct watch *w, int signal_number)
{
    w->n_asked++;
    signal_all(w, w->n_asked > 2 ? SIGKILL : signal_number);
}

static void read_signals(struct watch *w)
{
    struct signalfd_siginfo info;
    while (read(w->signals, &info, sizeof info) == (ssize_t)sizeof info) {
        if (info.ssi_signo != SIGCHLD) {
            pass_on(w, (int)info.ssi_signo);
        }
    }
    reap_all(w);
}

/* Whoever started this launcher holds the other end. */
static void read_uplink(struct watch *w)
{
    char buffer[64];
    const ssize_t len = read(w->uplink, buffer, sizeof buffer);
    if (len == 0 || (len < 0 && errno != EAGAIN && errno != EINTR)) {
        sw_launch_say(w->log, "the launcher that started this one is gone");
        close(w->uplink);
        w->uplink = -1;
        fail(w, 1);
        end_all(w);
    }
}

/* Ranks that said goodbye may have other work to do, and mpirun waits for its agent on every host:
 * only whoever started the job knows whether that is for nothing. */
static void tell_what_lingers(struct watch *w)
{
    const double deadline_s = w->job->options->deadline_s;
    if (!w->said_waiting && w->processes[0].rank < 0 &&
        sw_launch_monitor_all_left(w->monitor,
                                   deadline_s > 0 ? fmin(deadline_s, linger_s) : linger_s)) {
        sw_launch_say(w->log,
                      "all ranks said goodbye; waiting for %s (pid %d) to end (Ctrl-C ends it)",
                      w->program, (int)w->processes[0].pid);
        w->said_waiting = true;
    }
}

/* Whether to ask the monitor: not after a failure or a verdict. */
static bool hears(const struct watch *w)
{
    return w->monitor && !w->failed && !w->judged;
}

static void judge(struct watch *w)
{
    if (!hears(w)) {
        return;
    }
    sw_launch_monitor_hear(w->monitor);
    w->judged = sw_launch_monitor_judge(w->monitor, w->job->options->deadline_s, &w->verdict);
    tell_what_lingers(w);
    if (w->judged) {
        w->end_at = sw_now_s() + (w->verdict.silent ? 0 : grace_s);
    }
}

static void keep_time(struct watch *w)
{
    const double now = sw_now_s();
    if (now >= w->end_at) {
        sw_launch_say(w->log, "%s", w->verdict.text);
        fail(w, 1);
        end_all(w);
    }
    if (now >= w->kill_at && isinf(w->give_up_at)) {
        signal_all(w, SIGKILL);
        w->give_up_at = now + give_up_s;
    }
}

static int wait_ms(const struct watch *w)
{
    const double next = fmin(fmin(w->end_at, w->kill_at), w->give_up_at) - sw_now_s();
    return next > 1.0 ? 1000 : next < 0 ? 0 : (int)ceil(1000 * next);
}

static void follow(struct watch *w)
{
    while (w->n_running > 0 && sw_now_s() < w->give_up_at) {
        struct pollfd fds[3] = {{.fd = w->signals, .events = POLLIN},
                                {.fd = w->uplink, .events = POLLIN},
                                {.fd = -1, .events = POLLIN}};
        if (hears(w)) {
            fds[2].fd = sw_launch_monitor_fd(w->monitor);
        }
        poll(fds, 3, isinf(w->give_up_at) ? wait_ms(w) : 100);
        read_signals(w);
        if (fds[1].revents) {
            read_uplink(w);
        }
        judge(w);
        keep_time(w);
    }
}

/* [n] the share of each rank of this host; NULL where none was asked for. */
static sw_status shares_of(const struct job *job, int n, cpu_set_t **out)
{
    const struct sw_launch_options *o = job->options;
    cpu_set_t *cores, *shares;
    int n_cores;
    *out = NULL;
    if (job->launcher != LAUNCH_LOCAL || (!o->bind_cores && !o->bind_core_list)) {
        return SW_OK;
    }
    SW_TRY(sw_launch_cores(job->arena, o->bind_core_list, &cores, &n_cores));
    shares = sw_arena_array(job->arena, (size_t)n, sizeof *shares);
    SW_TRY_ALLOC(shares, "the cores");
    for (int i = 0; i < n; i++) {
        SW_TRY(sw_launch_share(cores, n_cores, i, n, &shares[i]));
    }
    *out = shares;
    return SW_OK;
}

static sw_status start_all(struct watch *w, const struct commands *commands, const sigset_t *mask)
{
    cpu_set_t *shares;
    SW_TRY(shares_of(w->job, commands->n, &shares));
    for (int i = 0; i < commands->n; i++) {
        SW_TRY(sw_launch_spawn(w->job, &commands->items[i], shares ? &shares[i] : NULL, mask,
                               &w->processes[w->n]));
        w->n++;
        w->n_running++;
    }
    return SW_OK;
}

static sw_status open_uplink(struct watch *w)
{
    const char *address = sw_launch_own_value(w->job->options, "SPILLWAY_LAUNCH");
    w->uplink = -1;
    return sw_launch_listens(w->job)
               ? SW_OK
               : sw_launch_introduce(address, &w->job->secret, "node", w->job->node, &w->uplink);
}

static sw_status watch(struct watch *w, const struct commands *commands, const sigset_t *mask)
{
    w->processes = sw_arena_array(w->job->arena, (size_t)commands->n, sizeof *w->processes);
    SW_TRY_ALLOC(w->processes, "the processes");
    const sw_status st = start_all(w, commands, mask);
    if (st < 0) {
        char text[512];
        snprintf(text, sizeof text, "%s", sw_error_message());
        fail(w, 1);
        end_all(w);
        follow(w);
        return SW_FAIL(st, "%s", text);
    }
    follow(w);
    return SW_OK;
}

/* A signal that whoever started this ignores (nohup, a shell's background) stays ignored: a blocked
 * one would arrive at the descriptor all the same. */
static void hear(sigset_t *heard, int signal_number)
{
    struct sigaction now;
    if (sigaction(signal_number, NULL, &now) != 0 || now.sa_handler != SIG_IGN) {
        sigaddset(heard, signal_number);
    }
}

sw_status sw_launch_watch(const struct job *job, const struct commands *commands,
                          struct monitor *monitor, FILE *log, bool *lost, struct outcome *out)
{
    struct watch w = {.job = job,
                      .monitor = monitor,
                      .log = log,
                      .lost = lost,
                      .program = commands->items[0].words.items[0],
                      .end_at = INFINITY,
                      .kill_at = INFINITY,
                      .give_up_at = INFINITY};
    sigset_t heard, old;
    sw_status st;
    sigemptyset(&heard);
    hear(&heard, SIGINT);
    hear(&heard, SIGTERM);
    hear(&heard, SIGHUP);
    sigaddset(&heard, SIGCHLD);
    pthread_sigmask(SIG_BLOCK, &heard, &old);
    SW_TRY_OR(restore_mask, open_uplink(&w));
    w.signals = signalfd(-1, &heard, SFD_NONBLOCK | SFD_CLOEXEC);
    if (w.signals < 0) {
        st = SW_FAIL(SW_E_IO, "signals cannot be received: %s", strerror(errno));
        goto close_uplink;
    }
    st = watch(&w, commands, &old);
    read_signals(&w);
    if (w.killed && w.exit == 0) {
        w.exit = 128 + SIGKILL;
    }
    *out = (struct outcome){.started = w.n > 0, .exit = w.exit, .asked = w.n_asked > 0};
    close(w.signals);
close_uplink:
    if (w.uplink >= 0) {
        close(w.uplink);
    }
restore_mask:
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    return st;
}
