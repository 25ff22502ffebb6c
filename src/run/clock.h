// SPDX-License-Identifier: Apache-2.0
// clock - computes the time of a plan's step without running it. The walk that drives the executor
// drives simulated clocks here, one per queue. The cost of every instruction when it runs alone is
// given; concurrency and waits come from the plan. Part of the public interface of run.
#pragma once

#include "plan/plan.h"

/* Cost of an instruction when nothing else runs. */
struct sw_cost {
    /* time during which its queue (for disk queues, the disk) can do nothing else */
    double seconds;
    double latency; /* transfers: further time until it is complete; the disk is free meanwhile */
    double cores; /* processors that it occupies during `seconds`; 0 = none that others could use */
};

struct sw_pace {
    /* [n_instrs] of the plan's first program: [0] in the first micro-step of a step, [1] in later
     * ones. The first exchange of a batch has the cost of all. */
    const struct sw_cost (*costs)[2];
    double meeting; /* seconds of communication between ranks between phases */
    double cores;   /* processors of this rank; 0 = unlimited */
    /* Share of their full rate that reads and writes each have while both run. 1/2 = they share one
     * disk; 1 = they are independent. */
    double disk_share;
};

struct sw_clock_instr {
    int64_t runs;  /* in a step */
    double alone;  /* sum over the runs, each on its own */
    double charge; /* seconds that computation ran it, or waited for it */
};

struct sw_clock_report {
    double seconds; /* time of a step */
    /* Time that computation ran, and time that it waited for each queue. The sum is the whole
     * step. */
    double part[SW_QUEUE_COUNT];
    double alone[SW_QUEUE_COUNT]; /* work of each queue on its own */
    double least, most;  /* bounds: everything hidden behind the longest queue; nothing hidden */
    enum sw_queue bound; /* queue with the largest part */
    int32_t longest;     /* the instruction of that queue with the largest charge; -1 = none */
    struct sw_clock_instr *instrs; /* [n_instrs] of the first program; release with sw_free */
};

/*
 * sw_clock_step - walks an optimizer step of the plan's first program, or its forward if it does
 * not
 * train. The same plan and pace give the same report. Instructions begin as in the executor.
 * Processors are shared as by the system: if threads want more than there are, each gets an equal
 * share.
 */
sw_status sw_clock_step(const struct sw_plan *plan, const struct sw_pace *pace,
                        struct sw_clock_report *out);
