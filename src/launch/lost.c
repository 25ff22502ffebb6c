// SPDX-License-Identifier: Apache-2.0
// Finds the hosts that can still be reached: the job's agent (ssh) runs `true` on all hosts
// concurrently.
#include "launch/private.h"

#include <poll.h>
#include <string.h>

static const double patience_s = 15.0;

/* "ssh" with what keeps it from asking, or the user's own agent. */
static sw_status build(const struct job *job, const char *host, struct command *out)
{
    const struct sw_launch_options *o = job->options;
    char port[32];
    *out = (struct command){.rank = -1};
    if (o->agent) {
        SW_TRY(sw_launch_split(job->arena, "--agent", o->agent, &out->words));
    } else {
        SW_TRY(sw_launch_split(job->arena, "ssh", "ssh -n -o BatchMode=yes -o ConnectTimeout=10",
                               &out->words));
    }
    if (!o->agent && o->ssh_port) {
        snprintf(port, sizeof port, "%lld", (long long)o->ssh_port);
        SW_TRY(sw_launch_add(job->arena, &out->words, "-p"));
        SW_TRY(sw_launch_add(job->arena, &out->words, port));
    }
    SW_TRY(sw_launch_add(job->arena, &out->words, host));
    return sw_launch_add(job->arena, &out->words, "true");
}

/* How many still run. */
static int wait_once(struct process *all, int n)
{
    int n_running = 0;
    for (int i = 0; i < n; i++) {
        sw_launch_reap(&all[i], true);
        n_running += all[i].running;
    }
    return n_running;
}

sw_status sw_launch_probe(const struct job *job, bool *lost)
{
    const int n = job->hosts.n;
    struct process *all = sw_arena_array(job->arena, (size_t)n, sizeof *all);
    sigset_t mask;
    sigemptyset(&mask);
    SW_TRY_ALLOC(all, "the hosts");
    if (job->launcher == LAUNCH_LOCAL || job->launcher == LAUNCH_SLURM) {
        return SW_OK; /* nobody to ask: srun's hosts are the scheduler's */
    }
    for (int i = 0; i < n; i++) {
        struct command command;
        if (!lost[i] && !sw_launch_is_here(job->hosts.items[i].name)) {
            SW_TRY(build(job, job->hosts.items[i].name, &command));
            lost[i] = sw_launch_spawn(job, &command, NULL, &mask, &all[i]) < 0;
        }
    }
    const double until = sw_now_s() + patience_s;
    while (wait_once(all, n) > 0 && sw_now_s() < until) {
        poll(NULL, 0, 20);
    }
    for (int i = 0; i < n; i++) {
        if (all[i].running) {
            sw_launch_signal(&all[i], SIGKILL);
            lost[i] = true;
        } else if (all[i].pid > 0) {
            lost[i] = all[i].status != 0;
        }
    }
    while (wait_once(all, n) > 0) {
        poll(NULL, 0, 20);
    }
    return SW_OK;
}
