// SPDX-License-Identifier: Apache-2.0
// Time and bytes by queue, and the trace if one is recorded. Code that runs work of a queue, or
// makes computation wait for one, reports it here once. It may do so from any thread. Private to
// this folder.
#pragma once

#include <stdatomic.h>

#include "run/run.h"

struct sw_meter {
    struct {
        atomic_llong busy_ns, waited_ns, bytes_in, bytes_out, n_host_waits;
    } queues[SW_QUEUE_COUNT];
    struct sw_trace *trace; /* NULL = not recorded; changed only while no queue has work */
    atomic_bool profiles;   /* whether the time of each instruction is summed up */
};

/* A period in which a queue worked, or in which computation waited, from begin_ns to end_ns
 * (sw_now_ns). */
struct sw_span {
    enum sw_queue queue;
    int program;
    int32_t instr;
    int32_t last, n_launches; /* replayed as one: the last instruction; 0, 0 = not replayed */
    int64_t bytes_in,
        /* transfers: bytes to the device, and from it; collectives: received, and sent */
        bytes_out;
    int64_t begin_ns, end_ns;
};

/* Records work of the queue. */
void sw_meter_ran(struct sw_meter *meter, const struct sw_span *span);
/* Records that computation waited for the queue before instruction `instr`. Bytes are ignored. */
void sw_meter_waited(struct sw_meter *meter, const struct sw_span *span);

/* Records that the thread of a queue (for COMPUTE, the issuing thread) waits for the device. */
void sw_meter_host_waits(struct sw_meter *meter, enum sw_queue queue);

/* Begin and end of a segment on the computing thread. Time in between that was not spent waiting
 * counts as computation. */
int64_t sw_meter_begin(const struct sw_meter *meter);
void sw_meter_end(struct sw_meter *meter, int64_t begun);

/* Total time that computation has waited for a queue. */
int64_t sw_meter_waited_for(const struct sw_meter *meter, enum sw_queue queue);
void sw_meter_read(const struct sw_meter *meter, struct sw_queue_times out[SW_QUEUE_COUNT]);
