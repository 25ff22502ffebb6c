// SPDX-License-Identifier: Apache-2.0
// Collectives of a plan. Bytes travel as the device allows; what is computed with them, it
// computes. Private to the room.
#pragma once

#include "run/meter.h"
#include "run/staging.h"

/* One, fixed when the plan is loaded. */
struct sw_collective_call {
    const struct sw_instr *instr;
    const struct sw_operand *operands; /* [instr->n_in] */
    void *at[4];                       /* where they lie */
    void *workspace;
};

/* A batch of collectives of a program, which travel together; or a single one. */
struct sw_comm_job {
    int i_program;
    struct sw_meter *meter;
    const struct sw_stage *stage; /* of their queue: the device, and the queue of its work */
    const struct sw_collective_call *calls; /* [n] borrowed until it is done */
    int32_t instr, n;                       /* instructions instr .. instr + n - 1 */
    const struct sw_step *step;             /* says which ranks have a micro-batch of this round */
    int64_t round;                          /* of the phase */
    int64_t *ns;                            /* adds how long it took; NULL = not asked */
};

/* What the batch sends to the other ranks, and receives of them. */
int64_t sw_collectives_bytes(const struct sw_comm_job *job, int ranks);

/* ---- sparse.c: exchanges of rows; idle: this rank has no micro-batch of this round ---- */

enum { SW_ROWS_RANKS = 64 }; /* whose rows are added at a time */

/* The exchange of how many there are, in the room of the gradient and in the workspace, .. */
struct sw_comm_item sw_sparse_count(const struct sw_collective_call *call, int ranks, bool idle);
/* .. what all agree on then, at least 1; packing, and adding in rank order. */
int64_t sw_sparse_most(const struct sw_collective_call *call, int ranks);
void sw_sparse_pack(const struct sw_collective_call *call, int ranks, bool idle, int64_t most);
void sw_sparse_add(const struct sw_collective_call *call, int rank, int n_active, bool fresh);

/* items: scratch, [2 job->n]. A failure has the instruction in front of its message. */
sw_status sw_collectives_run(sw_comm *comm, const struct sw_comm_job *job,
                             struct sw_comm_item *items);
