// SPDX-License-Identifier: Apache-2.0
// clock - how long a step of a plan takes, without running it: the walk that drives the executor
// drives clocks here, one for each queue. What every instruction takes when it runs alone is given;
// what runs beside what, and who waits for whom, is the plan's. Part of run's door.
#pragma once

#include "plan/plan.h"

/* What an instruction takes while nothing else runs. */
struct sw_cost {
    double seconds; /* that its queue has for nothing else; for the disk's, that the disk has */
    double latency; /* of transfers: until it is complete behind that; the disk goes on meanwhile */
    double cores;   /* processors that it keeps busy during `seconds`; 0 = none that others want */
};

struct sw_pace {
    /* [n_instrs] of the plan's first program: in the first micro-step of a step, in later ones.
     * Exchanges that travel together: all of it with the first. */
    const struct sw_cost (*costs)[2];
    double meeting; /* seconds of what ranks say to each other between phases */
    double cores;   /* that this rank has; 0 = as many as anybody wants */
    /* Of the rate that reads have alone, and writes, what both have while both are at work: 1/2,
     * one disk is shared; 1, neither notices the other. */
    double disk_share;
};

struct sw_clock_instr {
    int64_t runs;  /* in a step */
    double alone;  /* seconds of them, each by itself */
    double charge; /* seconds that computation ran it, or waited for it */
};

struct sw_clock_report {
    double seconds; /* of a step */
    /* Together they are all of it: that computation ran, and that it stood still for each queue. */
    double part[SW_QUEUE_COUNT];
    double alone[SW_QUEUE_COUNT];  /* of the work of each queue, by itself */
    double least, most;            /* all others hidden behind the longest queue; nothing hidden */
    enum sw_queue bound;           /* the largest part */
    int32_t longest;               /* the instruction of that queue with the largest charge; -1 */
    struct sw_clock_instr *instrs; /* [n_instrs] of the first program; the caller's: sw_free */
};

/*
 * sw_clock_step - walks an optimizer step of the plan's first program, or, where that does not
 * train, its forward. The same plan and pace give the same report. Instructions are begun as the
 * executor begins them; processors are shared as the system shares them, each thread getting the
 * same where there are fewer than all of them want.
 */
sw_status sw_clock_step(const struct sw_plan *plan, const struct sw_pace *pace,
                        struct sw_clock_report *out);
