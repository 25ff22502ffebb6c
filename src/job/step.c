// SPDX-License-Identifier: Apache-2.0
// Combines a step's results over all ranks in one exchange per step. It carries the wish to stop,
// each rank's numbers, of which all take the maximum, and the queue times, which are summed.
#include "job/private.h"

void sw_job_count_phases(const struct sw_phase_times *before, const struct sw_phase_times *after,
                         int64_t numbers[SW_JOB_NUMBERS])
{
    int64_t ns[SW_SEGMENT_COUNT];
    for (int s = 0; s < SW_SEGMENT_COUNT; s++) {
        ns[s] = after->ns[s] - before->ns[s];
    }
    numbers[SW_JOB_FORWARD_NS] = ns[SW_SEGMENT_FORWARD];
    numbers[SW_JOB_BACKWARD_NS] = ns[SW_SEGMENT_BACKWARD] + ns[SW_SEGMENT_WEIGHTS];
    numbers[SW_JOB_REDUCE_NS] = after->reduce_ns - before->reduce_ns;
    numbers[SW_JOB_UPDATE_NS] = ns[SW_SEGMENT_UPDATE] + ns[SW_SEGMENT_COMMIT];
}

sw_status sw_job_shared_open(int ranks, struct sw_job_shared *out)
{
    out->n = ranks;
    out->said = sw_alloc_zero("train", (size_t)ranks, sizeof *out->said);
    out->now = sw_alloc_zero("train", (size_t)ranks, sizeof *out->now);
    out->ran = sw_alloc_zero("train", (size_t)ranks, sizeof *out->ran);
    SW_TRY_ALLOC(out->said && out->now && out->ran ? out : NULL, "the reports of steps");
    return SW_OK;
}

void sw_job_shared_close(struct sw_job_shared *shared)
{
    sw_free(shared->said);
    sw_free(shared->now);
    sw_free(shared->ran);
    *shared = (struct sw_job_shared){0};
}

sw_status sw_job_share(sw_comm *comm, struct sw_job_shared *shared, struct sw_job_step *step)
{
    if (shared->n == 1) {
        shared->said[0] = step->mine;
    } else {
        SW_TRY(sw_comm_all_gather(comm, &step->mine, shared->said, sizeof step->mine,
                                  "the end of a step"));
    }
    for (int r = 0; r < shared->n; r++) {
        const struct sw_job_said *said = &shared->said[r];
        shared->now[r] = said->queues;
        sw_queue_record_add(&shared->ran[r], &said->queues);
        for (int i = 0; i < SW_JOB_NUMBERS; i++) {
            step->most[i] = r > 0 ? sw_max_i64(step->most[i], said->numbers[i]) : said->numbers[i];
        }
    }
    sw_queue_use(shared->now, shared->n, &step->use);
    return SW_OK;
}

sw_status sw_job_share_stop(sw_comm *comm, struct sw_job_shared *shared, bool mine, bool *stopped)
{
    struct sw_job_said said = {.numbers[SW_JOB_STOP] = mine};
    if (shared->n == 1) {
        shared->said[0] = said;
    } else {
        SW_TRY(sw_comm_all_gather(comm, &said, shared->said, sizeof said,
                                  "the decision after a step"));
    }
    for (int r = 0; r < shared->n; r++) {
        *stopped = *stopped || shared->said[r].numbers[SW_JOB_STOP] != 0;
    }
    return SW_OK;
}
