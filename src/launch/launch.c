// SPDX-License-Identifier: Apache-2.0
// The two entries: print the command of a job, or run it, and run it again where that was asked
// for.
#include "launch/private.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

sw_status sw_launch_text(const struct sw_launch_options *options, char **out)
{
    struct sw_arena arena;
    struct job job;
    struct commands commands;
    struct sw_str text = {0};
    sw_status st;
    sw_arena_init(&arena, "launch");
    SW_TRY_OR(free_arena, sw_launch_job_init(options, &arena, NULL, &job));
    SW_TRY_OR(free_arena, sw_launch_choose_secret(&job, false));
    job.secret = (struct sw_job_secret){0}; /* what is printed holds none */
    SW_TRY_OR(free_arena, sw_launch_commands(&job, &commands));
    sw_launch_commands_write(&commands, &text);
    char *copy = text.failed ? NULL : sw_strdup("launch", sw_str_text(&text));
    if (copy) {
        *out = copy;
    } else {
        st = SW_FAIL(SW_E_NOMEM, "out of host memory for a command");
    }
free_arena:
    sw_str_fini(&text);
    sw_arena_fini(&arena);
    return st;
}

enum {
    REFUSED = 2
}; /* exit status of a program that refused to start, so that a restart is useless */

struct run {
    const struct sw_launch_options *options;
    FILE *log;
    struct sw_arena arena;
    struct job job;
    struct outcome outcome; /* of the last start */
    bool started;           /* ever */
    int first_ranks;        /* of the first start */
    bool *lost;             /* [job.hosts.n] */
    int port;               /* a socket that holds job.master_port, -1 = none */
};

/* A job on this machine alone takes a free port, so that two of them do not meet. The socket stays
 * bound and never listens: nobody else is given the port, and rank 0 can listen there, because both
 * allow the reuse of the address. */
static sw_status reserve_port(struct run *r)
{
    struct sockaddr_in address = {.sin_family = AF_INET};
    socklen_t len = sizeof address;
    const int on = 1;
    if (r->job.master_port != 0) {
        return SW_OK;
    }
    r->port = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (r->port < 0 || setsockopt(r->port, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) != 0 ||
        bind(r->port, (struct sockaddr *)&address, len) != 0 ||
        getsockname(r->port, (struct sockaddr *)&address, &len) != 0) {
        return SW_FAIL(SW_E_IO,
                       "no free port for the ranks of this machine: %s; --master-port "
                       "names one",
                       strerror(errno));
    }
    r->job.master_port = ntohs(address.sin_port);
    return SW_OK;
}

/* One start. The launcher of a host, which another one started, leaves listening to that one. */
static sw_status run_once(struct run *r)
{
    struct monitor *monitor = NULL;
    struct commands commands;
    const char *address;
    sw_status st = SW_OK;
    r->outcome = (struct outcome){0};
    SW_TRY(sw_launch_choose_secret(&r->job, true));
    if (sw_launch_listens(&r->job)) {
        SW_TRY(sw_launch_monitor_open(&r->job, r->log, &monitor, &address));
        SW_TRY_OR(close_monitor,
                  sw_launch_set(&r->arena, &r->job.exports, "SPILLWAY_LAUNCH", address));
    }
    if (r->options->elastic) {
        const char *ranks = sw_arena_printf(&r->arena, "%d", r->first_ranks);
        SW_TRY_OR(close_monitor,
                  ranks ? sw_launch_set(&r->arena, &r->job.exports, "SPILLWAY_BATCH_RANKS", ranks)
                        : SW_FAIL(SW_E_NOMEM, "out of host memory"));
    }
    SW_TRY_OR(close_monitor, sw_launch_commands(&r->job, &commands));
    st = sw_launch_watch(&r->job, &commands, monitor, r->log, r->lost, &r->outcome);
    r->started |= r->outcome.started;
    SW_TRY_OR(close_monitor, st);
close_monitor:
    sw_launch_monitor_close(monitor);
    return st;
}

/* Leaves out the hosts that were lost; ranks are numbered anew. */
static sw_status shrink(struct run *r)
{
    struct hosts left = {0};
    SW_TRY(sw_launch_probe(&r->job, r->lost));
    left.items = sw_arena_array(&r->arena, (size_t)r->job.hosts.n, sizeof *left.items);
    SW_TRY_ALLOC(left.items, "the hosts");
    for (int i = 0; i < r->job.hosts.n; i++) {
        const char *name = r->job.hosts.items[i].name;
        if (r->lost[i] && !sw_launch_is_here(name)) {
            sw_launch_say(r->log, "host %s is lost", name);
        } else {
            left.items[left.n++] = r->job.hosts.items[i];
        }
    }
    if (left.n == 0) {
        return SW_FAIL(SW_E_PEER, "none of %d hosts is left", r->job.hosts.n);
    }
    struct job before = r->job;
    before.hosts = left;
    SW_TRY(sw_launch_job_init(r->options, &r->arena, &before, &r->job));
    r->job.master_port = before.master_port;
    return SW_OK;
}

static sw_status run_all(struct run *r)
{
    for (int64_t i = 0;; i++) {
        r->lost = sw_arena_array(&r->arena, (size_t)r->job.hosts.n, sizeof *r->lost);
        SW_TRY_ALLOC(r->lost, "the hosts");
        SW_TRY(run_once(r));
        const int exit = r->outcome.exit;
        if (exit == 0 || exit == REFUSED || r->outcome.asked || i == r->options->restarts) {
            return SW_OK;
        }
        if (r->options->elastic) {
            SW_TRY(shrink(r));
        }
        const char *number = sw_arena_printf(&r->arena, "%lld", (long long)i + 1);
        SW_TRY_ALLOC(number, "a restart");
        SW_TRY(sw_launch_set(&r->arena, &r->job.exports, "SPILLWAY_RESTART", number));
        sw_launch_say(r->log, "restart %lld of %lld, %d ranks on %d host%s", (long long)i + 1,
                      (long long)r->options->restarts, r->job.n_ranks, r->job.hosts.n,
                      r->job.hosts.n == 1 ? "" : "s");
    }
}

sw_status sw_launch_run(const struct sw_launch_options *options, FILE *log, bool *out_started,
                        int *out_exit)
{
    struct run r = {.options = options, .log = log, .port = -1};
    sw_status st;
    *out_started = false;
    sw_arena_init(&r.arena, "launch");
    SW_TRY_OR(free_arena, sw_launch_job_init(options, &r.arena, NULL, &r.job));
    r.first_ranks = r.job.n_ranks;
    st = reserve_port(&r);
    st = st < 0 ? st : run_all(&r);
    *out_started = r.started;
    if (st >= 0) {
        *out_exit = r.outcome.exit;
    }
    if (r.port >= 0) {
        close(r.port);
    }
free_arena:
    sw_arena_fini(&r.arena);
    return st;
}
