// SPDX-License-Identifier: Apache-2.0
// What the files of the room share: passes, and questions that several ask.
#pragma once

#include "plan/ir.h"
#include "plan/plan.h"

/* Kinds in the table of a plan's names. */
enum { SW_NAME_PERSISTENT, SW_NAME_PACK, SW_NAME_TILED };

/* ---- cells.c: which transfers move the same bytes ---- */
struct sw_cell_range {
    int32_t first, end;
};
struct sw_cells {
    struct sw_cell_range *of; /* [n_ops] of transfers: the cells that they move */
    int32_t n;
};
sw_status sw_cells_open(struct sw_cells *cells, const struct sw_ir *ir);
void sw_cells_close(struct sw_cells *cells);

/* ---- passes; each is a pure function on its list, or its program. Their order is `run_passes`
 * (plan.c). Tests plan a small graph with a pass and without it, and compare the plans. ---- */

/* Joins what kernels do in one sweep, in a graph of its own: *out, to be closed before `g`. */
sw_status sw_pass_fuse(const struct sw_graph *g, const struct sw_plan_options *options,
                       struct sw_graph **out);

/* Parameters by tiles, the same in all programs: plan->tiled says which. */
sw_status sw_pass_tile(struct sw_plan *plan, const struct sw_plan_options *options);
/* [n_values] elements of the smallest tile of each parameter that may be used by tiles, else 0;
 * owned by the caller, NULL = out of memory. Before parameters are placed. */
int64_t *sw_least_tiles(const struct sw_ir *ir, const struct sw_plan_options *options);
/* What backward reads of the blocks that `how` names is computed again. *out: which they are. */
sw_status sw_pass_recompute(struct sw_ir *ir, const struct sw_recompute *how,
                            struct sw_recomputed *out);
/* Values that are inexpensive to make again, of what backward reads anyway, are not kept. *out: how
 * many. */
sw_status sw_pass_remake(struct sw_ir *ir, const struct sw_plan_options *options,
                         struct sw_remade *out);
/* Forward and backward run once a step. */
bool sw_has_one_round(const struct sw_plan_options *options);
/* Micro-batches of a training program: all of a rank's under the vertical schedule, else one. */
int sw_vertical_micro_batches(const struct sw_plan_options *options);
/* Forward and backward of all of them, place by place (see sw_ir_block_segment); nothing to do for
 * one. */
sw_status sw_pass_vertical(struct sw_ir *ir, int micro_batches);
/* Which parameters stay whole on every rank, the same in all programs: those that a program looks
 * at by a view, and small ones while the threshold for all of them allows. */
void sw_choose_whole(struct sw_plan *plan, const struct sw_plan_options *options);
/* Cuts parameters into slices (stage 3) and gathers them before use; at every stage gives them the
 * padding that equal slices need. Nothing to do for one rank. */
sw_status sw_pass_shard(struct sw_ir *ir, const struct sw_plan_options *options);
sw_status sw_pass_update(struct sw_ir *ir, const struct sw_plan_options *options);
/* "boundary", and more than one micro-batch on a rank: else it is the canonical sum. */
bool sw_sums_before_reducing(const struct sw_plan_options *options);
/* Where in a step an op stands, not where bytes lie: ops with the same number are of one block, or
 * of one scope outside of blocks, and of one segment. They share what is gathered or loaded for
 * them. The number says nothing else; blocks are counted by their scopes. */
int64_t sw_ir_block_segment(const struct sw_ir *ir, const struct sw_ir_op *op);
/* Puts states, parameters, gradients and activations into their tiers, and transfers around the ops
 * that touch them. After the update. It chooses the tier of every value: what another pass puts
 * elsewhere is put there behind this one. first: that of the plan's first program, which has chosen
 * for all that it has; NULL = this is it. */
sw_status sw_pass_place(struct sw_ir *ir, const struct sw_ir *first,
                        const struct sw_plan_options *options);
/* Small parameters and states of the disk become parts of packs, as in `first` where there is one.
 * Once tiers are chosen. false: out of memory */
bool sw_pack_small(struct sw_ir *ir, const struct sw_ir *first,
                   const struct sw_plan_options *options);
/* The update of a block runs within its last backward; the norm of its gradients does. */
bool sw_updates_in_backward(const struct sw_plan_options *options);
bool sw_norms_in_backward(const struct sw_plan_options *options);
/* Where parameters leave the device, this one does: it is cut, or larger than what persists. A view
 * keeps its parameter where it is: whole, and on the device. */
bool sw_param_leaves(const struct sw_ir *ir, const struct sw_plan_options *options, sw_value param);
/* When collectives start, and which travel together. After the schedule. */
sw_status sw_pass_overlap(struct sw_program *program, const struct sw_plan_options *options);
/* When transfers start. After the overlap of collectives. */
sw_status sw_pass_prefetch(struct sw_program *program, const struct sw_cells *cells,
                           const struct sw_plan_options *options);
/* Which instructions run once for each piece of an update, and how many pieces have a place. After
 * all that orders instructions. */
sw_status sw_pass_loops(struct sw_program *program, const struct sw_plan_options *options);
/* Who waits for whom. After the loops. */
sw_status sw_pass_waits(struct sw_program *program, const struct sw_cells *cells,
                        const struct sw_plan_options *options);
/* The instruction with which instruction i is issued: the first of its batch. From there to its
 * `retired` its operands are in use. */
int32_t sw_program_issued(const struct sw_program *program, int32_t i);

/* ---- clocks.c: what is known to be complete where, by the waits alone ---- */
struct sw_clocks {
    const struct sw_program *program;
    int32_t (*done)[SW_QUEUE_COUNT]; /* [n_instrs] what is complete when instruction i is */
    int32_t now[SW_QUEUE_COUNT]
               [SW_QUEUE_COUNT];    /* what the next instruction of a queue finds complete */
    int32_t issued[SW_QUEUE_COUNT]; /* the last one */
};
sw_status sw_clocks_open(struct sw_clocks *clocks, const struct sw_program *program);
void sw_clocks_close(struct sw_clocks *clocks);
/* What instruction i would find complete if it waited for `waits`. */
void sw_clocks_find(const struct sw_clocks *clocks, int32_t i, const int32_t waits[SW_QUEUE_COUNT],
                    int32_t out[SW_QUEUE_COUNT]);
/* Instruction i is issued, with its waits. */
void sw_clocks_step(struct sw_clocks *clocks, int32_t i);

/* ---- touches.c: the latest instructions of each queue that read or write a root; -1 = none
 * ---- */
struct sw_touch {
    int32_t read[SW_QUEUE_COUNT], wrote[SW_QUEUE_COUNT];
};
struct sw_touches {
    const struct sw_ir *ir;
    int32_t *place_of; /* [n_values] of roots; -1 = v is none */
    struct sw_touch *at;
};
sw_status sw_touches_open(struct sw_touches *touches, const struct sw_ir *ir);
void sw_touches_close(struct sw_touches *touches);
/* Of the root of v. */
static inline struct sw_touch *sw_touch_of(const struct sw_touches *touches, sw_value v)
{
    return &touches->at[touches->place_of[sw_ir_root(touches->ir, v)]];
}

/* ---- shelf.c: places for what lives a while ---- */
struct sw_shelf {
    struct sw_arena arena;
    struct sw_shelf_node *nodes;          /* [2 n_leaves] */
    struct sw_shelf_leaf *leaves;         /* [n_leaves] */
    int32_t n_leaves;                     /* 0 = closed */
    void *free_runs[32], *free_lives[32]; /* by room */
};
/* For lives within instructions 0 .. n_instrs. */
sw_status sw_shelf_open(struct sw_shelf *shelf, int32_t n_instrs);
void sw_shelf_close(struct sw_shelf *shelf);
/* The lowest multiple of `align` where so many bytes are free from `first` to `last`; then they are
 * taken. */
sw_status sw_shelf_put(struct sw_shelf *shelf, int32_t first, int32_t last, size_t bytes,
                       size_t align, size_t *out);

/* ---- move.c: what moves take ---- */

/* Sets how many rows of a row-sparse gradient travel to a rank at most, and how long they are;
 * nothing where its slices travel. */
void sw_exchange_rows(const struct sw_ir *ir, const struct sw_ir_op *op, struct sw_instr *out);
enum sw_dtype sw_exchange_dtype(const struct sw_ir *ir, const struct sw_ir_op *op);
/* Bytes of one member's slice, in the dtype that travels. */
int64_t sw_exchange_slice_bytes(const struct sw_ir *ir, const struct sw_ir_op *op);
/* Bytes of it that go to each of the other ranks. */
int64_t sw_exchange_bytes(const struct sw_ir *ir, const struct sw_ir_op *op);
/* Bytes for the slices that arrive. */
size_t sw_exchange_workspace(const struct sw_ir *ir, const struct sw_ir_op *op);
enum sw_queue sw_move_queue(const struct sw_ir *ir, const struct sw_ir_op *op);
/* Elements of its home that a LOAD or a STORE moves: [*out_first, *out_first + the result). */
int64_t sw_transfer_elems(const struct sw_ir *ir, const struct sw_ir_op *op, int64_t *out_first);
size_t sw_transfer_bytes(const struct sw_ir *ir, const struct sw_ir_op *op);
/* Likewise, up to a whole block of the disk where the tensor ends: its place there, and what lies
 * here, go so far. */
size_t sw_transfer_disk_bytes(const struct sw_ir *ir, const struct sw_ir_op *op);
struct sw_range { /* of elements */
    int64_t first, end;
};
struct sw_range sw_transfer_range(const struct sw_ir *ir, const struct sw_ir_op *op);

/* The ops that run in their order, as program->scheduled. */
struct sw_scheduled {
    const struct sw_instr_about *about;
    int32_t op;
};
sw_status sw_pass_schedule(struct sw_program *program, const struct sw_plan_options *options);
/* Instructions in the order that was scheduled: each on its queue, waiting for nobody. */
sw_status sw_program_begin(struct sw_program *program);
/* In which an op runs unless it is moved ahead. */
/* The table that has its kernel. */
struct sw_plan_kernels sw_kernels_of(const struct sw_plan_options *options,
                                     const struct sw_ir_op *op);
enum sw_segment sw_op_segment(const struct sw_ir_op *op);
/* Where segments begin, from what each instruction says. */
void sw_program_find_segments(struct sw_program *program);
/* Places the transients; persistent values must have been placed. */
sw_status sw_pass_memory(struct sw_program *program);
/* All that running an instruction takes, from the list and the buffers; and the ports of the
 * program. */
sw_status sw_pass_lower(const struct sw_plan *plan, struct sw_program *program);

/* plan->step, once programs are finished. */
sw_status sw_plan_make_step(struct sw_plan *plan, const struct sw_plan_options *options);

/* Buffers lie inside their tiers, and apart while they live. */
sw_status sw_plan_check_lives(const struct sw_plan *plan, const struct sw_program *program);
/* Loops are loads, a kernel and stores of one piece each, and a turn has room for a piece. */
sw_status sw_plan_check_loops(const struct sw_program *program);
/* What has two slots is written once by a step, all of it, and not read behind that. */
sw_status sw_plan_check_places(const struct sw_program *program, const struct sw_cells *cells);
/* Of its packs alone: part of sw_plan_check. */
sw_status sw_plan_check_packs(const struct sw_plan *plan, const struct sw_program *program);
/* Address of element 0 of v in its tier's arena. */
size_t sw_program_address(const struct sw_program *program, sw_value v);

/* ---- dump.c: members of a JSON object, each with a comma before it ---- */

/* Ports and instructions. */
void sw_program_dump(const struct sw_program *program, struct sw_str *out);
/* What all programs share. */
void sw_plan_dump(const struct sw_plan *plan, struct sw_str *out);

/* ---- emit.c: updates ---- */

/* Adds the states of `param` (named "<kind>/<parameter>") and the ops that update it, fed by the
 * gradient streams [n_streams] (row-sparse ones are passed with their index). LAMB leaves its last
 * ratio, after the bounds, in the state "trust_ratio/<parameter>" [1]. `target` is what is updated:
 * the parameter itself, or the slice of it that this rank owns; the states have its shape. Returns
 * the updated target. */
sw_value sw_emit_update(struct sw_ir *ir, const struct sw_plan_options *options, sw_value param,
                        sw_value target, const sw_value *streams, int n_streams);

/* LAMB of a parameter in tiles: the moments of each, the norms of all of them added up, then the
 * step of each. A tile and its states are offloaded and come twice; so the second op reads them by
 * the names that they had before the first. */
/* Returns the op of the tile's moments, -1 after a failure. */
int32_t sw_emit_lamb_moments(struct sw_ir *ir, const struct sw_plan_options *options, sw_value tile,
                             const sw_value *streams, int n_streams);
/* The norms that it makes, and those of tiles before it where there are any (else SW_NO_VALUE). */
sw_value sw_emit_lamb_norms(struct sw_ir *ir, int32_t moments, sw_value before);
/* After the last tile: of the whole parameter. */
sw_value sw_emit_lamb_merge(struct sw_ir *ir, int32_t moments, sw_value norms);
/* Returns what the trust ratio is called behind it; SW_NO_VALUE for `ratio`: it begins. */
sw_value sw_emit_lamb_step(struct sw_ir *ir, int32_t moments, sw_value norms, sw_value ratio);
