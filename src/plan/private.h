// SPDX-License-Identifier: Apache-2.0
// Shared by the files of this folder: passes, and queries that several of them use.
#pragma once

#include "plan/ir.h"
#include "plan/pipe.h"
#include "plan/plan.h"

/* Kinds of names in the plan's table of names. */
enum { SW_NAME_PERSISTENT, SW_NAME_PACK, SW_NAME_TILED };
/* The plan's entry for parameter or state v of a list; NULL = it has none. */
struct sw_persistent *sw_plan_item(const struct sw_plan *plan, const struct sw_ir *ir, sw_value v);

/* ---- cells.c: which transfers move the same bytes ---- */
struct sw_cell_range {
    int32_t first, end;
};
struct sw_cells {
    struct sw_cell_range *of; /* [n_ops] for transfers, the cells that they move */
    int32_t n;
};
sw_status sw_cells_open(struct sw_cells *cells, const struct sw_ir *ir);
void sw_cells_close(struct sw_cells *cells);

/* ---- passes. Each is a pure function of its list or its program. `run_passes` (open.c) fixes
 * their order. Tests plan a small graph with and without a pass, and compare the plans. ---- */

/* Fuses neighbouring kernels in a new graph, *out, which must be closed before `g`. */
sw_status sw_pass_fuse(const struct sw_graph *g, const struct sw_plan_options *options,
                       struct sw_graph **out);

struct sw_stage_cut {
    const int *bounds; /* [stages * chunks + 1] first block of each part, and their number */
    int chunks;        /* parts of each stage */
    const struct sw_blocks *blocks; /* of all programs */
    int group;                      /* index of the group of the ranks along the pipe axis */
    /* chunks run one by one, and outputs stay where they are made; else forward is one phase, and
     * all stages get the outputs */
    bool trains;
    bool has_weights; /* training: gradients of weights are a segment of their own */
};
/* Keeps the ops of this rank's stage, with messages to and from others. */
sw_status sw_pass_stage(struct sw_ir *ir, const struct sw_stage_cut *cut);
/* Splits parameters into tiles, the same in all programs; plan->tiled lists them. */
sw_status sw_pass_tile(struct sw_plan *plan, const struct sw_plan_options *options);
/* [n_values] elements of the smallest tile of each parameter that may be tiled, else 0. Call it
 * before parameters are placed. The caller owns the result; NULL = out of memory. */
/* True if this policy lets parameters be cut into tiles. */
bool sw_may_tile(const struct sw_plan_options *options);
/* Finds the tiles that a list allows, before it is cut into stages: [n_values] for parameters, a
 * tile may have any multiple of so many rows; 0 = it cannot be tiled. So all stages cut a parameter
 * that several of them have in the same way. NULL = out of memory */
int64_t *sw_tile_rows(const struct sw_ir *ir, const struct sw_plan_options *options);
int64_t *sw_least_tiles(const struct sw_ir *ir, const struct sw_plan_options *options);
/* Backward recomputes what it reads of the blocks that `how` selects. *out: the blocks */
sw_status sw_pass_recompute(struct sw_ir *ir, const struct sw_recompute *how,
                            struct sw_recomputed *out);
/* Makes a loss over a vocabulary one op with its gradient, if the device has a kernel for it. */
sw_status sw_pass_loss(struct sw_ir *ir, const struct sw_plan_options *options);
/* Drops activations that backward can recompute with an inexpensive op from values that it reads
 * anyway. *out: their number */
sw_status sw_pass_remake(struct sw_ir *ir, const struct sw_plan_options *options,
                         struct sw_remade *out);
/* True if forward and backward run once per step. */
bool sw_has_one_round(const struct sw_plan_options *options);
/* Micro-batches of a training program: one, or all of a rank's if the schedule runs them at
 * once. */
int sw_program_micro_batches(const struct sw_plan_options *options);
/* Replicates forward and backward for all micro-batches, in the order of the schedule. A no-op for
 * one micro-batch. */
sw_status sw_pass_order(struct sw_ir *ir, enum sw_step_schedule schedule, int micro_batches);

/* ---- order.c: schedules ---- */

/* A program as a schedule sees it. A stretch is a run of neighbouring ops in one block of one
 * phase. Stretches are numbered in the order of one micro-batch: first those of forward, then those
 * of backward. */
struct sw_order {
    int32_t stretches, forward; /* number of all, and of those in forward */
    int micro_batches;
};
/* A micro-batch runs one stretch. */
struct sw_turn {
    int32_t stretch;
    int micro;
};
/* A schedule is a permutation of the turns of all stretches and micro-batches, in which the
 * stretches of each micro-batch ascend. If it runs at once, turns of forward come first: a step
 * runs all of a program's forward before its backward. */
struct sw_schedule_info {
    bool at_once; /* one run of a program computes all micro-batches of a rank */
    /* turn i of stretches * micro_batches; pure */
    struct sw_turn (*turn)(const struct sw_order *order, int64_t i);
    /* Schedules of a pipeline: the order of a stage's runs of forward and backward, in which
     * several micro-batches may be in flight; else NULL */
    const struct sw_pipe_schedule *pipe;
};
const struct sw_schedule_info *sw_schedule_info(enum sw_step_schedule schedule);
/* Number of chunks of the model that this rank's stage has. */
int sw_stage_chunks(const struct sw_plan_options *options);
/* See sw_pipe_late; 0 = the schedule is not one of a pipeline. */
int sw_stage_late(const struct sw_plan_options *options);
/* Lists the phases of this rank's stage, if the schedule is one of a pipeline. The caller frees
 * them. *n: their number; 0 = another schedule */
sw_status sw_stage_phases(const struct sw_plan_options *options, struct sw_pipe_phase **out,
                          int64_t *n);

/* ---- passes after the order ---- */

/* Chooses the parameters that stay whole on every rank, the same in all programs. These are the
 * parameters that a program reads through a view, and small ones within the threshold for their
 * sum. */
void sw_choose_whole(struct sw_plan *plan, const struct sw_plan_options *options);
/* Shards parameters (stage 3) and gathers them before use. At every stage it adds the padding that
 * equal shards need. A no-op for one rank. */
sw_status sw_pass_shard(struct sw_ir *ir, const struct sw_plan_options *options);
sw_status sw_pass_update(struct sw_ir *ir, const struct sw_plan_options *options);
/* Keys by which instructions ascend in a program: one for each chunk of each segment. */
static inline int sw_range_key(enum sw_segment segment, int chunk)
{
    const int most = 1 << SW_CHUNK_BITS;
    return segment == SW_SEGMENT_FORWARD ? chunk : (int)segment * 2 * most - chunk;
}
static inline int sw_instr_key(const struct sw_instr *instr)
{
    return sw_range_key(instr->segment, (int)instr->chunk);
}
/* A key for the position of an op in the step, unrelated to addresses. Ops have the same key if
 * they are in one segment and in one block (outside of blocks: in one scope). They share what is
 * gathered or loaded for them. Blocks are counted by their scopes. */
int64_t sw_ir_block_segment(const struct sw_ir *ir, const struct sw_ir_op *op);

/* A copy that is gathered or loaded serves the ops of its place, and of the next place that reads
 * weights. So backward begins with those with which forward ended, and layers that share weights
 * bring them once. */
struct sw_places {
    int64_t now, before; /* the latest two places that read weights; -1 = none */
    bool alone;          /* a copy serves one place: phases of a pipeline come in another order */
};
struct sw_places sw_places_of(const struct sw_plan_options *options);
/* The op at `place` reads a weight. */
void sw_places_enter(struct sw_places *places, int64_t place);
/* True if a copy whose last reader was at `place` serves the present one. */
bool sw_places_reach(const struct sw_places *places, int64_t place);
bool sw_ir_is_in_block(const struct sw_ir *ir, const struct sw_ir_op *op);
/* Puts states, parameters, gradients and activations into their tiers, and adds transfers around
 * the ops that use them. It runs after the update pass. It chooses the tier of every value; a pass
 * that wants another tier must set it afterwards. first: list of the plan's first program, whose
 * choices are reused; NULL = this is the first program. reserved: bytes of host memory that no
 * tensor gets */
sw_status sw_pass_offload(struct sw_ir *ir, const struct sw_ir *first,
                          const struct sw_plan_options *options, size_t reserved);
/* Packs small parameters and states on disk, as in `first` if given. Call it once tiers are chosen.
 * false = out of memory */
bool sw_pack_small(struct sw_ir *ir, const struct sw_ir *first,
                   const struct sw_plan_options *options);
/* Whether the update of a block, or the norm of its gradients, runs within its last backward. */
bool sw_updates_in_backward(const struct sw_plan_options *options);
/* Whether parameters that leave the device could be updated within the next forward. why: the
 * reason if not; NULL = not wanted */
bool sw_may_update_late(const struct sw_plan_options *options, const char **why);
/* Whether they are. */
bool sw_updates_in_forward(const struct sw_plan_options *options);
bool sw_norms_in_backward(const struct sw_plan_options *options);
/* True if this parameter leaves the device when parameters are offloaded: it is sharded, or larger
 * than the persistence threshold. A parameter with a view stays whole and on the device. */
bool sw_param_leaves(const struct sw_ir *ir, const struct sw_plan_options *options, sw_value param);
/* Gives parameters, states and packs their addresses. It runs once, since the order of instructions
 * does not matter to them. */
sw_status sw_plan_place_persistent(struct sw_plan *plan, const struct sw_plan_options *options);
/* Makes the buffers of a program, and places its transients after the persistent part. */
sw_status sw_program_place(struct sw_plan *plan, struct sw_program *program);
/* Marks gathers and loads of weights that run in the first micro-batch of a step only. It runs
 * after the schedule. */
sw_status sw_pass_keep(struct sw_program *program, const struct sw_plan_options *options);
/* Chooses when collectives start and which travel together. */
sw_status sw_pass_overlap(struct sw_program *program, const struct sw_cells *cells,
                          const struct sw_plan_options *options);
/* Chooses when transfers start. It runs after the overlap of collectives. */
sw_status sw_pass_prefetch(struct sw_program *program, const struct sw_cells *cells,
                           const struct sw_plan_options *options);
/* Finds the instructions that run once per piece of an update, and how many pieces have a place. It
 * runs after all passes that order instructions. */
sw_status sw_pass_loops(struct sw_program *program, const struct sw_plan_options *options);
/* Computes the waits. It runs after the loops. */
sw_status sw_pass_waits(struct sw_program *program, const struct sw_cells *cells,
                        const struct sw_plan_options *options);
/* The instruction with which instruction i is issued: the first of its batch. Its operands are in
 * use from there to its `retired`. */
int32_t sw_program_issued(const struct sw_program *program, int32_t i);
/* True if the program is run in the phases of a pipeline's stage. */
bool sw_program_is_stage(const struct sw_program *program, const struct sw_plan_options *options);

/* Number of reads for the next step that prefetching has added; 0 before it. */
int32_t sw_program_for_next(const struct sw_program *program);

/* ---- lag.c: stores of an update within forward that wait ---- */
struct sw_lag {
    const struct sw_program *program;
    bool *may;     /* [n_instrs] it may wait */
    int32_t *held; /* [n_instrs] those that wait, in their order: held[first] .. held[n - 1] */
    int32_t first, n;
    int32_t *reads; /* [n_values] by root, the end of `held` after the latest that reads it */
    size_t bytes;   /* of those that wait */
};
/* is_stage: see sw_program_is_stage */
sw_status sw_lag_open(struct sw_lag *lag, const struct sw_program *program,
                      const struct sw_cells *cells, bool is_stage);
void sw_lag_close(struct sw_lag *lag);
/* Lets instruction i wait if it may; false = it may not. */
bool sw_lag_hold(struct sw_lag *lag, int32_t i);
/* The store that has waited longest; it is issued now. */
int32_t sw_lag_next(struct sw_lag *lag);
/* True if all stores that wait must come before instruction i, the next one. */
bool sw_lag_ends(const struct sw_lag *lag, int32_t i);

/* ---- clocks.c: what is known to be complete at each queue, from the waits alone ---- */
struct sw_clocks {
    const struct sw_program *program;
    /* [n_instrs] the instructions that are complete when instruction i is */
    int32_t (*done)[SW_QUEUE_COUNT];
    int32_t now[SW_QUEUE_COUNT]
               [SW_QUEUE_COUNT]; /* the instructions that the next one of a queue finds complete */
    int32_t issued[SW_QUEUE_COUNT]; /* last one issued, by queue */
};
sw_status sw_clocks_open(struct sw_clocks *clocks, const struct sw_program *program);
void sw_clocks_close(struct sw_clocks *clocks);
/* The instructions that instruction i would find complete if it waited for `waits`. */
void sw_clocks_find(const struct sw_clocks *clocks, int32_t i, const int32_t waits[SW_QUEUE_COUNT],
                    int32_t out[SW_QUEUE_COUNT]);
/* Issues instruction i with its waits. */
void sw_clocks_step(struct sw_clocks *clocks, int32_t i);
/* Everything up to instruction i is complete: a phase ends with it. */
void sw_clocks_settle(struct sw_clocks *clocks, int32_t i);
/* True if a phase of a pipeline ends with instruction i. It leaves nothing in flight but messages,
 * and these touch memory that the next phase does not (memory.c); so waits are found by phase. */
bool sw_program_settles(const struct sw_program *program, bool is_stage, int32_t i);

/* ---- touches.c: the latest readers and writers of a root, by queue; -1 = none ---- */
struct sw_touch {
    int32_t read[SW_QUEUE_COUNT], wrote[SW_QUEUE_COUNT];
};
struct sw_touches {
    const struct sw_ir *ir;
    int32_t *place_of; /* [n_values] index into `at`; -1 = v is not a root */
    struct sw_touch *at;
};
sw_status sw_touches_open(struct sw_touches *touches, const struct sw_ir *ir);
void sw_touches_close(struct sw_touches *touches);
/* The touches of the root of v. */
static inline struct sw_touch *sw_touch_of(const struct sw_touches *touches, sw_value v)
{
    return &touches->at[touches->place_of[sw_ir_root(touches->ir, v)]];
}

/* ---- shelf.c: allocator for values with a lifetime ---- */
struct sw_shelf {
    struct sw_arena arena;
    struct sw_shelf_node *nodes;          /* [2 n_leaves] */
    struct sw_shelf_leaf *leaves;         /* [n_leaves] */
    int32_t n_leaves;                     /* 0 = closed */
    void *free_runs[32], *free_lives[32]; /* recycled blocks, see shelf.c; by log2 of capacity */
};
/* Opens a shelf for lifetimes within instructions 0 .. n_instrs. */
sw_status sw_shelf_open(struct sw_shelf *shelf, int32_t n_instrs);
void sw_shelf_close(struct sw_shelf *shelf);
/* Takes the lowest multiple of `align` at which `bytes` bytes are free from `first` to `last`. */
sw_status sw_shelf_put(struct sw_shelf *shelf, int32_t first, int32_t last, size_t bytes,
                       size_t align, size_t *out);

/* ---- move.c: sizes and queues of moves ---- */

/* Sets the verb, the bytes and the fields of an exchange. */
void sw_exchange_describe(const struct sw_ir *ir, const struct sw_ir_op *op, struct sw_instr *out);
/* Turns the exchanges of a graph into moves among the groups of the plan. SW_E_UNSUP: an exchange
 * among ranks that are no group. */
sw_status sw_ir_take_exchanges(struct sw_ir *ir, const struct sw_plan *plan);

/* ---- groups.c ---- */
/* The axes of the ranks that have the same experts: those of SW_GROUP_DATA but the expert axis. */
unsigned sw_local_axes(const struct sw_mesh *mesh);
sw_status sw_plan_open_groups(struct sw_plan *plan, const struct sw_program_spec *specs,
                              int n_specs, const struct sw_plan_options *options);
/* Index of the group of n ranks along an axis in which this rank is number `me`; -1 = none. */
int sw_plan_group_of(const struct sw_plan *plan, enum sw_axis axis, int n, int me);
/* SW_E_ARG: the group, the dimensions or the peer do not fit the operands. */
sw_status sw_exchange_check(const struct sw_ir *ir, const struct sw_ir_op *op);
enum sw_dtype sw_exchange_dtype(const struct sw_ir *ir, const struct sw_ir_op *op);
/* Bytes of one member's slice, in the dtype that travels. */
int64_t sw_exchange_slice_bytes(const struct sw_ir *ir, const struct sw_ir_op *op);
/* Bytes of the message that goes to a member. */
int64_t sw_exchange_bytes(const struct sw_ir *ir, const struct sw_ir_op *op);
/* Bytes of workspace, see struct sw_exchange_areas. */
size_t sw_exchange_workspace(const struct sw_ir *ir, const struct sw_ir_op *op);
enum sw_queue sw_move_queue(const struct sw_ir *ir, const struct sw_ir_op *op);
/* Number of elements of the offloaded tensor that a LOAD or a STORE moves, starting at
 * *out_first. */
int64_t sw_transfer_elems(const struct sw_ir *ir, const struct sw_ir_op *op, int64_t *out_first);
size_t sw_transfer_bytes(const struct sw_ir *ir, const struct sw_ir_op *op);
/* The same bytes, rounded up to a whole block of the disk at the end of the tensor. Both the place
 * on disk and the one in memory have that room. */
size_t sw_transfer_disk_bytes(const struct sw_ir *ir, const struct sw_ir_op *op);
struct sw_range { /* in elements */
    int64_t first, end;
};
struct sw_range sw_transfer_range(const struct sw_ir *ir, const struct sw_ir_op *op);

/* An op in program->scheduled, the order in which ops run. */
struct sw_scheduled {
    const struct sw_instr_about *about;
    int32_t op;
};
sw_status sw_pass_schedule(struct sw_program *program, const struct sw_plan_options *options);
/* Makes the instructions in scheduled order, each on its queue and without waits. */
sw_status sw_program_begin(struct sw_program *program);
/* The table that contains the kernel of the op. */
struct sw_plan_kernels sw_kernels_of(const struct sw_plan_options *options,
                                     const struct sw_ir_op *op);
/* The segment in which an op runs unless it is moved ahead. */
enum sw_segment sw_op_segment(const struct sw_ir_op *op);
/* Sets segment_first from the segments of the instructions, which must ascend. */
void sw_program_find_segments(struct sw_program *program);
/* Places the transients. Persistent values must have been placed. */
sw_status sw_pass_memory(struct sw_program *program);
/* Stores in each instruction all that running it needs, from the list and the buffers; makes the
 * ports of the program. */
sw_status sw_pass_lower(struct sw_plan *plan, struct sw_program *program);
/* Finds what each write to disk follows. */
sw_status sw_pass_hazards(struct sw_program *program);

/* Makes plan->step once the programs are finished. */
sw_status sw_plan_make_step(struct sw_plan *plan, const struct sw_plan_options *options);

/* Checks that buffers lie inside their tiers, and do not overlap while they are live. */
sw_status sw_plan_check_lives(const struct sw_plan *plan, const struct sw_program *program);
/* Checks the program of a pipeline's stage: what is in flight or in use across phases has memory of
 * its own, and as many slots as their order needs. Receives are first in their phase. */
sw_status sw_plan_check_phases(const struct sw_program *program,
                               const struct sw_plan_options *options);
/* Checks that what runs in the first micro-step of a step only brings weights that stay, in memory
 * of their own. one_round: a step has no other one */
sw_status sw_plan_check_kept(const struct sw_program *program, bool one_round);
/* Checks that a loop is loads, a kernel and stores of one piece each, and that a turn has room for
 * a piece. */
sw_status sw_plan_check_loops(const struct sw_program *program);
/* Checks that a tensor with two slots is written completely and once per step, and not read
 * afterwards. */
sw_status sw_plan_check_places(const struct sw_program *program, const struct sw_cells *cells);
/* The part of sw_plan_check that is about the packs of a program. */
sw_status sw_plan_check_packs(const struct sw_plan *plan, const struct sw_program *program);
/* The op at the peak of the device's memory. */
const struct sw_ir_op *sw_program_peak(const struct sw_program *program);

/* ---- budget.c ---- */

/* True if the largest buffer at the peak is the workspace of a kernel. */
bool sw_plan_largest_is_workspace(const struct sw_program *program);

/* Fails with SW_E_NOMEM: this tier exceeds its budget. Fills options->refusal. */
sw_status sw_plan_refuse(const struct sw_plan *plan, const struct sw_plan_options *options,
                         enum sw_tier tier);
/* Refuses a host or a disk without room for the persistent values, before instructions are
 * ordered. */
sw_status sw_plan_check_outer_budgets(struct sw_plan *plan, const struct sw_plan_options *options);

/* fused: the graph after sw_pass_fuse */
uint64_t sw_plan_fingerprint(const struct sw_graph *fused, const struct sw_plan_options *options);

/* ---- uses.c ---- */

/* Facts about all parameters, found in one pass over streams and ops. */
struct sw_uses {
    int32_t *first_stream; /* [n_values] first stream of a parameter; -1 = none */
    int32_t *next_stream;  /* [n_streams] next stream of the same parameter */
    /* [n_values] last op that reads a parameter or root; -1 = none */
    int32_t *last_reader;
    /* [n_values] first op of forward that reads it, and first of the adjacent ops in that place */
    int32_t *first_reader, *first_in_place;
    /* [n_ops] last of the adjacent ops in one place, see sw_ir_block_segment */
    int32_t *end_of_place;
};
/* false = out of memory; the caller closes it in any case */
bool sw_uses_open(const struct sw_ir *ir, struct sw_uses *out);
void sw_uses_close(struct sw_uses *uses);
/* The last op of the backward that makes a gradient of the parameter, or reads the parameter. It
 * extends to the end of its block, so that a block's updates are neighbours. Exception: the
 * gradient of a tile does not wait for that of the next tile. */
int32_t sw_uses_ready(const struct sw_ir *ir, const struct sw_uses *uses, sw_value param);

/* ---- late_update.c ---- */

/* The parameters seen so far that leave the device, in elements: all of them, and those that the
 * next forward updates. */
struct sw_late_share {
    double all, in;
    sw_value latest; /* the latest one; at first SW_NO_VALUE */
    bool is_in;      /* the next forward updates it */
};
/* The op of forward before which the next step updates a parameter that leaves the device; -1 =
 * this step does. Updates of a block are neighbours. Exception: a tile is updated just before it is
 * read. If only a share of the parameters is updated there, it is spread evenly over the model. */
int32_t sw_late_place(const struct sw_ir *ir, const struct sw_plan_options *options,
                      const struct sw_uses *known, struct sw_late_share *share, sw_value param);
/* Keeps the gradient of the only micro-batch, as it is, for the update within the next forward.
 * use: which use of the parameter. Returns the state that has it. */
sw_value sw_keep_gradient(struct sw_ir *ir, const struct sw_plan_options *options, sw_value param,
                          int use, const struct sw_ir_stream *stream);
/* Gives a sum two slots: a step makes one while the update that is due may still need the other.
 * SW_NO_VALUE is a no-op. */
void sw_sum_alternates(struct sw_ir *ir, sw_value sum);

/* ---- early.c: updates within the backward ---- */

/* Ops at the end of the list that sum the gradients of a parameter and update it, and the op of the
 * backward after which the update may run. */
struct sw_late_ops {
    int32_t ready;
    int32_t sum_first, sum_end;
    int32_t update_first, update_end;
    /* ops of an update within the next forward, and the op of forward that follows them */
    int32_t forward_first, forward_end, before;
};
/* Moves the ops from n_before on: sums after their terms, updates after their `ready` op, or before
 * the op `before` of the next forward. Ops that
 * belong to no entry of `late` stay last. If entries overlap, an op belongs to the first. */
sw_status sw_move_into_backward(struct sw_ir *ir, const struct sw_late_ops *late, int n_late,
                                int32_t n_before);

/* ---- emit.c: updates ---- */

/* Adds the states of `param` and the ops that update it. streams
 * [n_streams] are the gradients; row-sparse ones are passed with their index. `target` is the
 * updated tensor: the parameter itself, or the shard that this rank owns; the states have its
 * shape. LAMB leaves its last ratio, after clamping, in the state TRUST_RATIO.
 * Returns the updated target. */
sw_value sw_emit_update(struct sw_ir *ir, const struct sw_plan_options *options, sw_value param,
                        sw_value target, const sw_value *streams, int n_streams);

/* LAMB of a tiled parameter: the moments of each tile, then the sum of their norms, then the step
 * of each tile. A tile and its states are offloaded and loaded twice. The second op therefore reads
 * them by the names that they had before the first. */
/* Returns the op that computes the tile's moments, or -1 after a failure. */
int32_t sw_emit_lamb_moments(struct sw_ir *ir, const struct sw_plan_options *options, sw_value tile,
                             const sw_value *streams, int n_streams);
/* Adds the tile's norms to those of earlier tiles, `before` (SW_NO_VALUE: there are none). */
sw_value sw_emit_lamb_norms(struct sw_ir *ir, int32_t moments, sw_value before);
/* Merges the norms of the whole parameter. Call it after the last tile. */
sw_value sw_emit_lamb_merge(struct sw_ir *ir, int32_t moments, sw_value norms);
/* Returns the next version of the trust ratio; pass SW_NO_VALUE as `ratio` for the first tile. */
sw_value sw_emit_lamb_step(struct sw_ir *ir, int32_t moments, sw_value norms, sw_value ratio);
