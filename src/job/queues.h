// SPDX-License-Identifier: Apache-2.0
// queues - what the queues of an executor did in a step or a run: rates of the disk, how much of
// the transfers was hidden behind computation, and what bound it.
#pragma once

#include "run/run.h"

struct queue_use {
    double read_gb_s, write_gb_s;   /* of the disks, while they read and wrote; 0 = none did */
    double read_bytes, write_bytes; /* of the disks */
    /* Share of the time of disk and copies that computation did not wait for, 0 .. 1; NaN = no such
     * time. */
    double hidden;
    /* Of the threads that compute: computation, and waiting for each queue. */
    double share[SW_QUEUE_COUNT];
    enum sw_queue bound; /* the largest share */
};

/* Of all queues of one rank. */
struct queue_record {
    struct sw_queue_times of[SW_QUEUE_COUNT];
};
/* `record`, a reading of before, becomes what was done from then until `now`. */
void sw_queue_record_end(struct queue_record *record,
                         const struct sw_queue_times now[SW_QUEUE_COUNT]);
void sw_queue_record_add(struct queue_record *sum, const struct queue_record *more);

/* Of so many ranks together: their times and bytes are added up, and the rates of their disks. */
void sw_queue_use(const struct queue_record *ranks, int n_ranks, struct queue_use *out);

/* " disk read 1.20 write 0.85 GB/s hidden 0% bound disk": what a step's line has of it. */
void sw_queue_use_line(const struct queue_use *use, char *buf, size_t cap);
/* The same of a whole run, with bytes and shares, as a line of its own. */
void sw_queue_use_report(const struct queue_use *use, struct sw_str *out);
