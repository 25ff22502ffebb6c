// SPDX-License-Identifier: Apache-2.0
// Queue statistics of a step or a run: disk rates, the share of transfers hidden behind
// computation, and what bound it.
#pragma once

#include "run/run.h"

struct queue_use {
    double read_gb_s, write_gb_s;   /* rates of the disks while busy; 0 = idle */
    double read_bytes, write_bytes; /* bytes moved by the disks */
    /* Share of disk and copy time that computation did not wait for, 0 .. 1. NaN: there was no such
     * time. */
    double hidden;
    /* Shares of the computing threads' time: computation, and waiting for each queue. */
    double share[SW_QUEUE_COUNT];
    enum sw_queue bound; /* the queue with the largest share */
};

/* Times of all queues of one rank. */
struct queue_record {
    struct sw_queue_times of[SW_QUEUE_COUNT];
};
/* Turns `record`, an earlier reading, into the difference from it to `now`. */
void sw_queue_record_end(struct queue_record *record,
                         const struct sw_queue_times now[SW_QUEUE_COUNT]);
void sw_queue_record_add(struct queue_record *sum, const struct queue_record *more);

/* Combines n_ranks ranks: times, bytes and disk rates are summed. */
void sw_queue_use(const struct queue_record *ranks, int n_ranks, struct queue_use *out);

/* Writes the part of a step's line: " disk read 1.20 write 0.85 GB/s hidden 0% bound disk". */
void sw_queue_use_line(const struct queue_use *use, char *buf, size_t cap);
/* Writes the report of a whole run, with bytes and shares, as a line of its own. */
void sw_queue_use_report(const struct queue_use *use, struct sw_str *out);
