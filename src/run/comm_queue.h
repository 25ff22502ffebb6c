// SPDX-License-Identifier: Apache-2.0
// The queue of collectives: one thread that runs groups in the order in which they were issued, beside the
// thread that computes. Private to the room.
#pragma once

#include "run/collectives.h"

struct sw_comm_queue;

/* most_calls: of a group; most_jobs: under way at a time. Nothing is allocated after opening. */
sw_status sw_comm_queue_open(sw_comm *comm, int32_t most_calls, int32_t most_jobs,
                             struct sw_comm_queue **out);
void sw_comm_queue_close(struct sw_comm_queue *queue);
/* Starts it when those before are done. Errors come from a wait. */
void sw_comm_queue_issue(struct sw_comm_queue *queue, const struct sw_comm_job *job);
/* Who waits, for the meter. */
struct sw_waiter {
    struct sw_meter *meter;
    int i_program;
    int32_t instr;
};
/* Until instruction `instr` is done; INT32_MAX = all that was issued. SW_E_PEER and others: the first that
 * failed, and none of those behind it ran. */
sw_status sw_comm_queue_wait(struct sw_comm_queue *queue, int32_t instr,
                             const struct sw_waiter *waiter);
/* After an error elsewhere: what has not begun never does, and what has is waited for, so that the
 * communicator and the arena are the caller's again. The message of that error stays. */
void sw_comm_queue_stop(struct sw_comm_queue *queue);
/* Nanoseconds that groups took, and that sw_comm_queue_wait had to wait for them, since opening. */
void sw_comm_queue_times(const struct sw_comm_queue *queue, int64_t *out_busy_ns,
                         int64_t *out_waited_ns);
