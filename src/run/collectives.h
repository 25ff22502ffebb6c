// SPDX-License-Identifier: Apache-2.0
// Collectives of a plan. The device determines how bytes travel, and does the arithmetic. Private
// to this folder.
#pragma once

#include "run/meter.h"
#include "run/staging.h"

/* A collective, prepared when the plan is loaded. */
struct sw_collective_call {
    const struct sw_instr *instr;
    struct sw_route route;             /* of its group; SEND and RECV: of the two ranks */
    const struct sw_operand *operands; /* [instr->n_in] */
    void *at[4];                       /* addresses of the operands */
    void *workspace;
    /* in_order: bytes beyond those of the plan of exchanges that are queued and have not passed */
    atomic_llong more_sent, more_received;
};

/* A batch of collectives that travel together, or a single one. */
struct sw_comm_job {
    int i_program;
    const struct sw_plan *plan; /* its step tells which ranks have a micro-batch in this round */
    struct sw_meter *meter;
    /* stage of their queue: the device, and the stream for its work */
    const struct sw_stage *stage;
    const struct sw_collective_call *calls; /* [n] borrowed until the job is done */
    int32_t instr, n;                       /* instructions instr .. instr + n - 1 */
    int64_t round;                          /* of the phase */
    int64_t *ns;                            /* the duration is added to it; NULL = not measured */
};

/* ---- sparse.c: exchanges of rows. idle: this rank has no micro-batch in this round ---- */

enum { SW_ROWS_RANKS = 64 }; /* number of ranks whose rows are added at a time */

/* Exchanges the numbers of rows, using the gradient's memory and the workspace. */
struct sw_comm_item sw_sparse_count(const struct sw_collective_call *call, int ranks, bool idle);
/* Largest number of rows, which all ranks agree on; at least 1. */
int64_t sw_sparse_most(const struct sw_collective_call *call, int ranks);
/* Packs a slice for each rank, in the gradient's memory: `most` as int64, indices int32 [most], and
 * rows [most, row_elems]. Unused indices are -1. */
void sw_sparse_pack(const struct sw_collective_call *call, int ranks, bool idle, int64_t most);
/* Adds the slices in the workspace to this rank's shard, in rank order. Only the first n_active
 * ranks have a micro-batch in this round. fresh: the shard is overwritten, not added to. */
void sw_sparse_add(const struct sw_collective_call *call, int rank, int n_active, bool fresh);

/* ---- activations.c ---- */

/* Runs an exchange of an activation. items: scratch, [2]; more: the bytes that it sends and
 * receives beyond those of the plan are added; below 0 if rows are counted */
sw_status sw_activation_run(const struct sw_stage *stage, const struct sw_collective_call *call,
                            struct sw_comm_item *items, struct sw_instr_traffic *more);

/* Runs the batch, or queues it if its stage is in_order. The message of a failure begins with the
 * instruction. items: scratch, [2 job->n]; more: see sw_collectives_ran */
sw_status sw_collectives_run(const struct sw_comm_job *job, struct sw_comm_item *items,
                             struct sw_instr_traffic *more);
/* Counts the time and bytes of a batch that has run. more: bytes beyond those of whole slices,
 * since rows travel */
void sw_collectives_ran(const struct sw_comm_job *job, const struct sw_instr_traffic *more,
                        int64_t begin_ns, int64_t end_ns);
/* Puts the instruction in front of the present message. */
sw_status sw_collectives_blame(const struct sw_comm_job *job, sw_status st);
