// SPDX-License-Identifier: Apache-2.0
// The secret of a job. The launcher that starts the job draws it. It reaches the ranks in
// environments and in files of mode 0600. It is never in a command line, which every user of a
// machine may read.
#include "launch/private.h"

#include <string.h>

bool sw_launch_listens(const struct job *job)
{
    return !(job->options->node_rank_given && sw_launch_own_value(job->options, "SPILLWAY_LAUNCH"));
}

/* Started by hand on each of several hosts: nobody can hand a secret round. */
static bool is_by_hand(const struct job *job)
{
    return job->launcher == LAUNCH_LOCAL && job->hosts.n > 1 && sw_launch_listens(job);
}

static sw_status refuse_what_cannot_travel(const struct job *job, const char *file)
{
    if (job->launcher == LAUNCH_PDSH && !(file && *file)) {
        return SW_FAIL(
            SW_E_CONFIG,
            "--launcher pdsh: everything that pdsh passes on can be read in lists of "
            "processes, so the secret of the job must be in a file of mode 0600 at the same "
            "path on every host: wanted SPILLWAY_JOB_SECRET_FILE, its path (docs/launch.md)");
    }
    if (is_by_hand(job) && !job->secret.known) {
        return SW_FAIL(SW_E_CONFIG,
                       "--node-rank: launchers on %d hosts must be given one secret: wanted "
                       "SPILLWAY_JOB_SECRET or SPILLWAY_JOB_SECRET_FILE (docs/launch.md)",
                       job->hosts.n);
    }
    if (!sw_launch_listens(job) && !job->secret.known) {
        return SW_FAIL(SW_E_CONFIG, "SPILLWAY_LAUNCH: the launcher that started this one shares a "
                                    "secret with it: wanted SPILLWAY_JOB_SECRET_FILE");
    }
    return SW_OK;
}

sw_status sw_launch_choose_secret(struct job *job, bool draws)
{
    const char *file = sw_launch_get(&job->exports, "SPILLWAY_JOB_SECRET_FILE");
    const char *id = sw_launch_get(&job->exports, "SPILLWAY_JOB_ID");
    struct sw_job_secret fresh;
    /* pdsh's hosts can have it from the file only, so this one takes it from there, too */
    const char *text = job->launcher == LAUNCH_PDSH ? NULL : job->secret_text;
    const bool reads = draws || job->launcher == LAUNCH_PDSH;
    SW_TRY(sw_job_secret_read(text, reads ? file : NULL, id, &job->secret));
    if (!draws) {
        return job->launcher == LAUNCH_PDSH ? refuse_what_cannot_travel(job, file) : SW_OK;
    }
    SW_TRY(refuse_what_cannot_travel(job, file));
    SW_TRY(sw_job_secret_draw(&fresh));
    if (!sw_launch_listens(job) || is_by_hand(job)) {
        return SW_OK; /* the id is the one that all of them were given */
    }
    if (job->secret.known) {
        memcpy(fresh.key, job->secret.key, sizeof fresh.key);
    }
    job->secret = fresh;
    return sw_launch_set(job->arena, &job->exports, "SPILLWAY_JOB_ID", fresh.job);
}
