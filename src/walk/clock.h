// SPDX-License-Identifier: Apache-2.0
// clock - computes the time of a plan's step without running it. The walk that drives the executor
// drives simulated clocks here, one per queue. The cost of every instruction when it runs alone is
// given; concurrency and waits come from the plan. Part of the public
// interface of walk.
#pragma once

#include "plan/plan.h"

/* Cost of an instruction when nothing else runs. */
struct sw_cost {
    /* time during which its queue (for disk queues, the disk) can do nothing else */
    double seconds;
    double latency; /* transfers: further time until it is complete; the disk is free meanwhile */
    double cores; /* processors that it occupies during `seconds`; 0 = none that others could use */
    double bandwidth; /* share of the rank's memory bandwidth that it takes during `seconds` */
    int32_t
        way; /* 1 + the index of its way, in struct sw_pace; 0 = it uses nothing that is shared */
};

/* Uses of things that ranks share, such as links and disks. The caller numbers their kinds from 0;
 * `share` is the part of one's rate that an instruction uses at full speed. */
enum { SW_WAY_USES = 8 };
struct sw_way {
    struct sw_use {
        int kind;
        double share;
    } uses[SW_WAY_USES];
    int n;
};

/* A shared thing, as a rank has it. */
struct sw_shared {
    int id; /* equal for all ranks that share it; from 0 */
    int n;  /* ranks that use it as this one does, which are walked as one */
};

struct sw_pace {
    /* [n_instrs] of the plan's first program: [0] in the first micro-step of a step, [1] in later
     * ones. The first exchange of a batch has the cost of all. */
    const struct sw_cost (*costs)[2];
    /* By queue, a factor on these seconds and latencies; 0 = 1. Ranks of unequal speed can so share
     * their costs. */
    double slower[SW_QUEUE_COUNT];
    /* [n_phases] of the plan's step, a factor on the seconds of kernels in each phase; NULL = 1. A
     * machine's speed may change within a step. */
    const double *phases;
    double meeting; /* seconds of communication between ranks between phases */
    double cores;   /* processors of this rank; 0 = unlimited */
    /* Share of their full rate that reads and writes have while both run. 1/2 each = they share one
     * disk; 1 = they are independent. */
    struct sw_disk_share {
        double reads, writes;
    } disk_share;
    /* Share of these rates that they keep while computation runs a kernel, or copies run; 0 = 1 */
    struct sw_disk_share disk_beside;
    /* Seconds until the thread of a queue that had nothing to do begins a job, and until
     * computation goes on after a wait. */
    double wake;
    double issue; /* seconds that computation takes to hand a job to another queue */
    /* A queue that had nothing to do begins a job that occupies a processor. A kernel that runs
     * then is delayed by this share of the job's time: the queue's thread interrupts one of the
     * kernel's, and the others wait for that one. */
    double yield;
    const struct sw_way *ways; /* of the costs; NULL = no cost has one */
};

/* The part of its speed that a kernel keeps while it shares the processors and memory of a pace
 * with a job. */
double sw_clock_share(const struct sw_pace *pace, const struct sw_cost *kernel,
                      const struct sw_cost *job);

struct sw_clock_instr {
    int64_t runs;  /* in a step */
    double alone;  /* sum over the runs, each on its own */
    double charge; /* seconds that computation ran it, or waited for it */
};

/* Forward and backward of all micro-batches: when computation begins the first of them and ends the
 * last one, and how long it runs in between. */
struct sw_clock_passes {
    double begin, end, busy;
};

struct sw_clock_report {
    double seconds; /* time of a step */
    struct sw_clock_passes passes;
    /* Time that computation ran, and time that it waited for each queue. The sum is the whole
     * step. */
    double part[SW_QUEUE_COUNT];
    /* work of each queue on its own, while the ranks that are walked as one do the same */
    double alone[SW_QUEUE_COUNT];
    double least, most;  /* bounds: everything hidden behind the longest queue; nothing hidden */
    enum sw_queue bound; /* queue with the largest part */
    int32_t longest;     /* the instruction of that queue with the largest charge; -1 = none */
    int64_t folded;      /* micro-batches of a pipeline that were not walked, see sw_clock_ranks */
    struct sw_clock_instr *instrs; /* [n_instrs] of the first program; release with sw_free */
};

/*
 * sw_clock_step - walks an optimizer step of the plan's first program, or its forward if it does
 * not train. The other ranks of its groups are taken to be like this one. The same plan and pace
 * give the same report. Instructions begin as in the executor. Processors are shared as by the
 * system: if threads want more than there are, each gets an equal share. So is the bandwidth of
 * memory among queues.
 */
sw_status sw_clock_step(const struct sw_plan *plan, const struct sw_pace *pace,
                        struct sw_clock_report *out);

/* An instruction that ran: when its queue began and ended to work on it. */
struct sw_clock_span {
    double begin, end;
    int32_t instr; /* of the first program; the first one of a batch */
    const struct sw_step_phase *phase;
};

/* A rank of a coupled step. */
struct sw_clock_rank {
    const struct sw_plan *plan;     /* borrowed; ranks of the same shape may share one */
    const struct sw_pace *pace;     /* borrowed; ranks may share one */
    const struct sw_shared *shared; /* [kinds of things] borrowed; NULL = it shares nothing */
    struct sw_clock_report *report; /* out; NULL = not wanted */
    /* Called for each instruction that took time, at its end; NULL = not wanted. The spans of a
     * queue come in order. */
    void (*ran)(void *ctx, const struct sw_clock_span *span);
    void *ctx;
    double seconds; /* out: when the rank has finished the step */
    /* out: share of the time from the first forward to the last backward of all ranks in which this
     * one computes nothing */
    double idle;
};

/*
 * sw_clock_ranks - walks the step of all n ranks of the plans' world, in one thread.
 *
 * An exchange starts when all members of its group have arrived at it, and takes as long as for the
 * slowest of them. So do the meetings of all ranks between phases. With equal paces each rank takes
 * exactly as long as sw_clock_step says. n = 1 is that function.
 *
 * What several ranks share is divided fairly among those that use it at the time: each gets as much
 * of its rate, or all that it can use. Ranks that share something pass the time together.
 *
 * Micro-batches of a pipeline that pass exactly as those before are not walked. Their time and work
 * are added, so that results are the same but for rounding. All are walked if `ran` is wanted, or
 * a pace has `phases`.
 *
 * SW_E_ARG     a group has a rank outside of the world, or ranks wait for each other forever
 */
sw_status sw_clock_ranks(struct sw_clock_rank *ranks, int n);

/*
 * sw_clock_stages - walks the step of a pipeline by one rank of each of its n stages. These have
 * the same place along the other axes of the mesh. All ranks of a stage are taken to be like the
 * one that is given, so that exchanges within a stage do not wait. The step takes as long as the
 * slowest stage.
 *
 * SW_E_ARG     two stages have the same rank, or stages wait for each other forever
 */
sw_status sw_clock_stages(struct sw_clock_rank *stages, int n);
/*
 * sw_clock_kinds - walks the step of a world by one rank of each of n kinds. All ranks of a kind do
 * the same at the same time: they have peers of the same kinds in each group, and share things with
 * equally many ranks of each kind.
 *
 * kind_of   [ranks of the world] index in `kinds`
 */
sw_status sw_clock_kinds(struct sw_clock_rank *kinds, int n, const int *kind_of);

/* A source of the costs of stages, or of kinds of ranks. */
struct sw_prices {
    /* Fills the costs of the first program of rank i, [n_instrs] all 0; returns its pace. */
    struct sw_pace (*fill)(void *ctx, int i, const struct sw_plan *plan,
                           struct sw_cost (*costs)[2]);
    void *ctx;
};
/* sw_clock_kinds at these prices; kind_of NULL: sw_clock_stages. seconds: of the step; 0 after a
 * failure */
sw_status sw_clock_priced(struct sw_clock_rank *ranks, int n, const int *kind_of,
                          const struct sw_prices *prices, double *seconds);
