// SPDX-License-Identifier: Apache-2.0
// Time and bytes by queue, and the trace where one is taken: whoever runs work of a queue, or lets
// computation wait for one, says so here, once, from any thread. Private to the room.
#pragma once

#include <stdatomic.h>

#include "run/run.h"

struct sw_meter {
    struct {
        atomic_llong busy_ns, waited_ns, bytes_in, bytes_out, n_host_waits;
    } queues[SW_QUEUE_COUNT];
    struct sw_trace *trace; /* NULL = none; changed only while no queue has work */
    atomic_bool profiles;   /* what each instruction takes is added up */
};

/* What a queue did, or why computation stood still, from begin_ns to end_ns (sw_now_ns). */
struct sw_span {
    enum sw_queue queue;
    int program;
    int32_t instr;
    int64_t bytes_in,
        bytes_out; /* transfers: to the device, from it; collectives: received, sent */
    int64_t begin_ns, end_ns;
};

/* The queue ran this. */
void sw_meter_ran(struct sw_meter *meter, const struct sw_span *span);
/* Computation stood still for the queue, in front of instruction `instr`. Bytes are not read. */
void sw_meter_waited(struct sw_meter *meter, const struct sw_span *span);

/* The thread of a queue, of COMPUTE the one that issues, waits for the device. */
void sw_meter_host_waits(struct sw_meter *meter, enum sw_queue queue);

/* Around a segment, on the thread that computes: what of it was no waiting is computation. */
int64_t sw_meter_begin(const struct sw_meter *meter);
void sw_meter_end(struct sw_meter *meter, int64_t begun);

/* How long computation stood still for a queue so far. */
int64_t sw_meter_waited_for(const struct sw_meter *meter, enum sw_queue queue);
void sw_meter_read(const struct sw_meter *meter, struct sw_queue_times out[SW_QUEUE_COUNT]);
