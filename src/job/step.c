// SPDX-License-Identifier: Apache-2.0
// What a step was on all ranks: one exchange a step carries the wish to stop and the numbers that
// each rank has of its own, and everybody takes the largest of each.
#include "job/private.h"

void sw_job_count_phases(const struct sw_phase_times *before, const struct sw_phase_times *after,
                         int64_t numbers[SW_JOB_NUMBERS])
{
    int64_t ns[SW_SEGMENT_COUNT];
    for (int s = 0; s < SW_SEGMENT_COUNT; s++) {
        ns[s] = after->ns[s] - before->ns[s];
    }
    numbers[SW_JOB_FORWARD_NS] = ns[SW_SEGMENT_FORWARD];
    numbers[SW_JOB_BACKWARD_NS] = ns[SW_SEGMENT_BACKWARD];
    numbers[SW_JOB_REDUCE_NS] = after->reduce_ns - before->reduce_ns;
    numbers[SW_JOB_UPDATE_NS] = ns[SW_SEGMENT_UPDATE] + ns[SW_SEGMENT_COMMIT];
}

sw_status sw_job_share(sw_comm *comm, int ranks, int64_t *all, int64_t numbers[SW_JOB_NUMBERS])
{
    if (ranks == 1) {
        return SW_OK;
    }
    SW_TRY(sw_comm_all_gather(comm, numbers, all, SW_JOB_NUMBERS * sizeof *numbers,
                              "the end of a step"));
    for (int r = 0; r < ranks; r++) {
        for (int i = 0; i < SW_JOB_NUMBERS; i++) {
            numbers[i] = sw_max_i64(numbers[i], all[r * SW_JOB_NUMBERS + i]);
        }
    }
    return SW_OK;
}
