// SPDX-License-Identifier: Apache-2.0
// queues - what the queues of an executor did in a step or a run: rates of the disk, how much of
// the transfers was hidden behind computation, and what bound it.
#pragma once

#include "run/run.h"

struct queue_use {
    double read_gb_s, write_gb_s;   /* of the disk, while it read and wrote; 0 = it did not */
    double read_bytes, write_bytes; /* of the disk */
    /* Share of the time of disk and copies that computation did not wait for, 0 .. 1; NaN = no such
     * time. */
    double hidden;
    /* Of the thread that computes: computation, and waiting for each queue. */
    double share[SW_QUEUE_COUNT];
    enum sw_queue bound; /* the largest share */
};

/* Between two readings of the same executor. */
void sw_queue_use(const struct sw_queue_times before[SW_QUEUE_COUNT],
                  const struct sw_queue_times after[SW_QUEUE_COUNT], struct queue_use *out);

/* " disk read 1.20 write 0.85 GB/s hidden 0% bound disk": what a step's line has of it. */
void sw_queue_use_line(const struct queue_use *use, char *buf, size_t cap);
/* The same of a whole run, with bytes and shares, as a line of its own. */
void sw_queue_use_report(const struct queue_use *use, struct sw_str *out);
