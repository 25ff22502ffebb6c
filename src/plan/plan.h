// SPDX-License-Identifier: Apache-2.0
// plan - from the graph of a training step to a flat, printable list of instructions with an address
// for every byte. Pure: no rank is talked to and no byte moves here.
//
// Passes, in order: fuse (after it the arithmetic is settled and the math fingerprint taken), tile,
// recompute, vertical, shard, update, place, schedule, overlap, memory; check verifies every finished plan. All programs of one plan
// share one arena: parameters and states have fixed places by name, transients of all programs overlay
// each other.
#pragma once

#include "config/config.h"
#include "graph/graph.h"
#include "layout/layout.h"
#include "optim/optim.h"

enum sw_tier { SW_TIER_DEVICE, SW_TIER_HOST, SW_TIER_DISK, SW_TIER_COUNT };
const char *sw_tier_name(enum sw_tier tier);

enum sw_queue {
    SW_QUEUE_COMPUTE,
    SW_QUEUE_COMM,
    SW_QUEUE_H2D, /* from host memory to the device */
    SW_QUEUE_D2H,
    SW_QUEUE_READ, /* from disk to the device */
    SW_QUEUE_WRITE,
    SW_QUEUE_COUNT
};
const char *sw_queue_name(enum sw_queue queue);

/* Segments run in this order within a step: forward and backward once a micro-batch, update once; then, where updates
 * are written to a second place, what they changed of the device's memory. Up to there a step may be given up. */
enum sw_segment {
    SW_SEGMENT_FORWARD,
    SW_SEGMENT_BACKWARD,
    SW_SEGMENT_UPDATE,
    SW_SEGMENT_SETTLE,
    SW_SEGMENT_COUNT
};
const char *sw_segment_name(enum sw_segment segment);

enum sw_program_kind { SW_PROGRAM_TRAIN, SW_PROGRAM_EVAL, SW_PROGRAM_LOGITS, SW_PROGRAM_DECODE };

/* Storage of one root value, or of an op's workspace. */
struct sw_buffer {
    sw_value value; /* SW_NO_VALUE: a workspace */
    enum sw_tier tier;
    bool persistent;
    size_t offset, bytes; /* in the tier's arena, with what rounds them up */
    size_t align;         /* transients: of the offset and of the bytes */
    int32_t first, last;  /* instructions during which it is in use; persistent: all */
    size_t slot_bytes;    /* see struct sw_persistent */
};
/* What comes from the disk, or goes there, lies as the disk wants its memory, and is as long.
 * What parameters and states take is rounded up to less where they are small, which on many ranks most slices
 * are; these lie behind the others. */
enum { SW_PLAN_ALIGN = 64, SW_PLAN_DISK_ALIGN = 4096 };
size_t sw_tier_align(enum sw_tier tier);
enum { SW_PLAN_SMALL = 4096, SW_PLAN_SMALL_ALIGN = 16 };

struct sw_instr {
    int32_t op; /* in the program's graph */
    enum sw_queue queue;
    enum sw_segment segment;
    /* By queue, the latest instruction that must be complete before this one starts, -1 = none. Of its own queue:
     * before it is issued, so that no more than so many are under way. */
    int32_t waits[SW_QUEUE_COUNT];
    int32_t
        retired; /* the instruction from which on the computing thread knows it to be complete */
    int32_t
        group; /* collectives: how many, from this one on, travel together; 0 = with an earlier one */
    bool blocking;       /* collectives: complete before the next instruction */
    bool unless_skipped; /* left out where the scalar SKIP is set, which is known by then */
    bool last_only;      /* left out unless this micro-step is the last of its step */
    int32_t workspace;   /* buffer, -1 = none */
    struct sw_kernel_info kernel;
};

struct sw_program {
    enum sw_program_kind kind;
    struct sw_graph *graph;     /* owned */
    int micro_batches;          /* that one run of it computes: 1, or all of a rank (vertical) */
    struct sw_instr *instrs;    /* [n_instrs] */
    int64_t *least_tiles;       /* [n_least] see sw_least_tiles; NULL where nobody asks */
    int32_t n_least;            /* values, before passes added theirs */
    struct sw_instr *scheduled; /* [n_instrs] before anything runs ahead; NULL in a finished plan */
    struct sw_buffer *buffers;  /* [n_buffers] */
    int32_t *buffer_of;         /* [graph->n_values] buffer of the root value, -1 = never stored */
    int32_t n_instrs, n_buffers;
    int32_t segment_first[SW_SEGMENT_COUNT + 1];
    size_t transient_bytes; /* of the device: highest address used beyond the persistent part */
    size_t away_bytes[SW_TIER_COUNT]; /* of the other tiers: likewise */
    int32_t peak_instr;               /* where the sum of live bytes is largest */
    size_t peak_live_bytes;           /* transients alive there */
    int64_t flops;
};

/* A parameter or state: one place for all programs. */
struct sw_persistent {
    const char *name; /* borrowed from a graph */
    enum sw_role role;
    enum sw_dtype dtype;
    struct sw_shape shape;
    struct sw_init init;
    const char *param;       /* states of a parameter: its name, else NULL */
    struct sw_layout layout; /* which elements of the whole tensor `shape` is */
    enum sw_tier tier;
    size_t offset, bytes; /* in the tier's arena */
    size_t
        slot_bytes; /* from its first place to its second, which takes turns with it; 0 = one place */
    bool is_gradient_sum;
    size_t packed_bytes; /* what it takes of its pack, up to the next one; 0 = a place of its own */
};

/* Small tensors of the disk that are loaded and stored together: one place for all programs. */
struct sw_packed {
    const char *name;                 /* borrowed from a graph */
    size_t offset, bytes, slot_bytes; /* of the disk; see struct sw_persistent */
};

/* A parameter that ops use by tiles of so many rows; the last one may have less. */
struct sw_tiled {
    const char *name;
    int64_t n_tiles, rows;
    size_t bytes; /* of a tile */
};

struct sw_plan {
    struct sw_program *programs;
    int n_programs;
    struct sw_persistent *persistent;
    int32_t n_persistent;
    struct sw_packed *packs;
    int32_t n_packs;
    struct sw_tiled *tiled;
    int32_t n_tiled;
    size_t persistent_bytes;               /* of the device's tier */
    size_t persistent_away[SW_TIER_COUNT]; /* of the others */
    size_t staging_bytes;                  /* of host memory, see struct sw_plan_options */
    size_t tier_bytes[SW_TIER_COUNT];      /* what running this plan takes */
    size_t tier_budget[SW_TIER_COUNT];     /* 0 = no budget */
    uint64_t fingerprint;                  /* of the first TRAIN program, else of the first */
    int64_t prefetch_elems;    /* what the budget left of the option; -1 = not even the overlap */
    size_t transfer_bytes;     /* likewise */
    bool boundary_in_backward; /* norms, or updates too, run within the last backward of a step */
    bool updates_in_backward;  /* updates do */
    bool two_places;           /* see struct sw_plan_options */
};

/* Why a budget is too small. */
struct sw_plan_refusal {
    enum sw_tier tier;
    size_t missing;
    size_t beside; /* bytes that one place in that tier would spare at most; SIZE_MAX = unknown */
    size_t states, params, transients; /* bytes of the device */
    int64_t n_instrs;                  /* of all programs: how much work planning is */
    bool whatever_the_tiles;           /* too small for the smallest tiles of all parameters, too */
};

typedef void (*sw_plan_query_fn)(void *ctx, const struct sw_op_desc *desc,
                                 struct sw_kernel_info *out);

struct sw_plan_options {
    sw_plan_query_fn query; /* the device's kernel table */
    void *query_ctx;
    const char *kernel_set;            /* part of the fingerprint */
    int64_t micro_batches;             /* K of one optimizer step */
    bool vertical;                     /* all micro-batches of a block before the next block */
    bool fp16;                         /* overflow is looked for, and skips the update */
    double clip;                       /* 0 = none */
    const struct sw_update_rule *rule; /* NULL: programs of this plan have no update */
    int64_t recompute_every; /* 0 = keep everything, n = keep the inputs of every n-th block */
    bool keep_gradients;     /* streams stay readable after backward */
    int64_t
        update_elems; /* states that lie elsewhere are updated so many elements at a time; 0 = a tensor */
    size_t tile_bytes; /* parameters above this that lie elsewhere are used by tiles; 0 = none */
    size_t transfer_bytes; /* loaded ahead of their first reader, and on their way back, at most */
    /* Of host memory, at its beginning: what does not reach the device passes through it (struct
     * sw_device). */
    size_t staging_bytes;
    int ranks, rank; /* data-parallel; 0 and 1 = alone */
    int stage;       /* ZeRO 0..3 */
    bool boundary;   /* stages 0, 1: sum over micro-batches first, over ranks at the end */
    int64_t persistence_elems;     /* stage 3: parameters up to this stay whole on each rank, .. */
    int64_t persistence_total;     /* .. while so many elements are not used up */
    enum sw_tier states_tier;      /* of optimizer states */
    enum sw_tier params_tier;      /* of parameters, at stage 3 */
    enum sw_tier grads_tier;       /* of gradients that wait for the update, and of their sums */
    enum sw_tier activations_tier; /* of what backward reads of the forward */
    double
        states_share; /* of the optimizer states go to their tier, the rest stays here; 0 = all */
    /* What an update writes goes beside what it read, and counts once all of it is there: a step that fails on the way
     * has changed nothing. For sw_may_take_two_places. */
    bool two_places;
    struct sw_plan_refusal *refusal; /* filled in with SW_E_NOMEM of a budget; NULL = nobody asks */
    /* What would go to the disk stays in host memory as long as it has a budget with room, of parameters so many
     * elements at most. */
    int64_t host_param_elems;
    bool overlap;                   /* collectives run beside computation */
    int64_t prefetch_elems;         /* gathered ahead of their first reader .. */
    int64_t max_live_elems;         /* .. and never more than these */
    int64_t reduce_bucket_elems;    /* most elements of gradients that travel together */
    int64_t allgather_bucket_elems; /* of updated parameters */
    size_t budget[SW_TIER_COUNT];   /* 0 = none */
    uint64_t extra_fingerprint;     /* what else may change a bit: seed, batch, .. */
};

/* Which graph becomes which program. Backward must have been appended to TRAIN graphs. */
struct sw_program_spec {
    enum sw_program_kind kind;
    struct sw_graph *graph; /* taken, also on failure */
};

/*
 * sw_plan_open - run all passes, place every byte, verify.
 *
 * SW_E_NOMEM   a budget is smaller than the peak: the message has the missing bytes, the largest
 *              values at the peak instruction, and what would help
 * SW_E_UNSUP   no kernel for an op on this device
 */
sw_status sw_plan_open(const struct sw_program_spec *specs, int n_specs,
                       const struct sw_plan_options *options, struct sw_plan **out);
void sw_plan_close(struct sw_plan *plan);

/* Verifies a finished plan: inputs written before they are read and not overwritten while in use, no
 * two live buffers overlap, sizes as the graph and the kernels ask, budgets kept at every instruction. */
sw_status sw_plan_check(const struct sw_plan *plan, const struct sw_plan_options *options);
/* What has two places is written once by a step, all of it, and not read behind that. */
sw_status sw_plan_check_places(const struct sw_program *program);

/* Of its packs alone: part of the above. */
sw_status sw_plan_check_packs(const struct sw_plan *plan, const struct sw_program *program);

/* Device address of element 0 of v, relative to the arena. */
size_t sw_program_address(const struct sw_program *program, sw_value v);
const struct sw_persistent *sw_plan_find(const struct sw_plan *plan, const char *name);
/* Bytes that it takes of its tier. */
size_t sw_persistent_taken(const struct sw_persistent *item);

/* Instructions, bytes per tier, FLOPs, the peak with its largest values. */
void sw_plan_print(const struct sw_plan *plan, bool instructions, struct sw_str *out);
void sw_plan_print_json(const struct sw_plan *plan, struct sw_str *out);

/* Bytes of a tier for second places. */
size_t sw_plan_second_places(const struct sw_plan *plan, enum sw_tier tier);

/* The program whose transients take most of a tier. */
const struct sw_program *sw_plan_largest_program(const struct sw_plan *plan, enum sw_tier tier);
/* The `most` largest values that are alive at the peak of a program, as one line. */
void sw_plan_largest(const struct sw_program *program, int most, struct sw_str *out);

/* ---- passes; each is a pure function on its graph, tested alone ---- */

/* The ops of a graph in a new order, with those that a pass inserts. */
struct sw_op_order {
    struct sw_op *ops;
    int32_t n, cap;
};
sw_status sw_op_order_open(struct sw_op_order *order, const struct sw_graph *g);
void sw_op_order_close(struct sw_op_order *order);
bool sw_op_order_add(struct sw_op_order *order, const struct sw_op *op); /* false: out of memory */
/* Takes the list over into g, and tells values who produces them now. */
void sw_op_order_install(struct sw_op_order *order, struct sw_graph *g);

void sw_pass_fuse(struct sw_graph *g, const struct sw_plan_options *options);
/* Parameters by tiles, the same in all programs: plan->tiled says which. */
sw_status sw_pass_tile(struct sw_plan *plan, const struct sw_plan_options *options);
/* [n_values] elements of the smallest tile of each parameter that may be used by tiles, else 0; owned by the caller, NULL =
 * out of memory. Before parameters are placed. */
int64_t *sw_least_tiles(const struct sw_graph *g, const struct sw_plan_options *options);
/* A value inside a parameter or a state of which ops see parts alone. */
bool sw_value_is_part(const struct sw_graph *g, sw_value v);
sw_status sw_pass_recompute(struct sw_graph *g, int64_t every);
/* Forward and backward run once a step. */
bool sw_has_one_round(const struct sw_plan_options *options);
/* Micro-batches of a training program: all of a rank's under the vertical schedule, else one. */
int sw_vertical_micro_batches(const struct sw_plan_options *options);
/* Forward and backward of all of them, place by place (see sw_shard_place); nothing to do for one. */
sw_status sw_pass_vertical(struct sw_graph *g, int micro_batches);
/* Cuts parameters into slices (stage 3) and gathers them before use; at every stage gives them the
 * padding that equal slices need. Nothing to do for one rank. */
sw_status sw_pass_shard(struct sw_graph *g, const struct sw_plan_options *options);
sw_status sw_pass_update(struct sw_graph *g, const struct sw_plan_options *options);
size_t sw_collective_workspace(const struct sw_graph *g, const struct sw_op *op, int ranks);
/* "boundary", and more than one micro-batch on a rank: else it is the canonical sum. */
bool sw_sums_before_reducing(const struct sw_plan_options *options);
/* Ops with the same number share gathers: those of one block, or of one scope outside of blocks, in one
 * phase. */
int64_t sw_shard_place(const struct sw_graph *g, const struct sw_op *op);
/* Puts optimizer states and parameters into their tiers, and transfers around the ops that touch them. After the
 * update. first: the graph of the plan's first program, which has chosen for all; NULL = this is it. */
sw_status sw_pass_place(struct sw_graph *g, const struct sw_graph *first,
                        const struct sw_plan_options *options);
/* Small parameters and states of the disk become parts of packs, as in `first` where there is one. Once tiers are
 * chosen. false: out of memory */
bool sw_pack_small(struct sw_graph *g, const struct sw_graph *first,
                   const struct sw_plan_options *options);
/* A parameter or a state that lies in a pack. */
bool sw_value_is_packed(const struct sw_graph *g, sw_value v);
/* Bytes that the first program moves between tiers in an optimizer step with `rounds` micro-steps. */
struct sw_transfers {
    int64_t in[SW_TIER_COUNT], out[SW_TIER_COUNT]; /* from a tier to the device, and back */
};
struct sw_transfers sw_plan_transfers(const struct sw_plan *plan, int64_t rounds);
/* A view keeps its parameter where it is: whole, and on the device. */
bool sw_param_has_view(const struct sw_graph *g, sw_value param);
/* The update of a block runs within its last backward; the norm of its gradients does. */
bool sw_updates_in_backward(const struct sw_plan_options *options);
bool sw_norms_in_backward(const struct sw_plan_options *options);
/* All that an update writes can be written beside what was, or kept until it is settled; some of it is on the disk. */
bool sw_may_take_two_places(const struct sw_plan_options *options);
/* Where parameters leave the device, this one does: it is cut, or larger than what persists. */
bool sw_param_leaves(const struct sw_graph *g, const struct sw_plan_options *options,
                     sw_value param);
/* When collectives start, and which travel together. After the schedule. */
sw_status sw_pass_overlap(struct sw_program *program, const struct sw_plan_options *options);
/* When transfers start. After the overlap of collectives. */
sw_status sw_pass_prefetch(struct sw_program *program, const struct sw_plan_options *options);
/* Who waits for whom. After all that orders instructions. */
sw_status sw_pass_waits(struct sw_program *program, const struct sw_plan_options *options);
/* The instruction with which instruction i is issued: the first of its group. From there to its `retired`
 * its operands are in use. */
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
/* The transfers between a tier and the device up to this instruction are complete for all that is issued now. */
int32_t sw_clocks_known(const struct sw_clocks *clocks, int tier);
/* Instruction i is issued, with its waits. */
void sw_clocks_step(struct sw_clocks *clocks, int32_t i);
/* Queue that an instruction runs on: what blocks runs on the computing thread. */
enum sw_queue sw_instr_queue(const struct sw_instr *instr);

/* Elements of its home that a LOAD or a STORE moves: [*out_first, *out_first + the result). */
int64_t sw_transfer_elems(const struct sw_graph *g, const struct sw_op *op, int64_t *out_first);
size_t sw_transfer_bytes(const struct sw_graph *g, const struct sw_op *op);
/* Likewise, up to a whole block of the disk where the tensor ends: its place there, and what lies here, go so far. */
size_t sw_transfer_disk_bytes(const struct sw_graph *g, const struct sw_op *op);
/* They move some of the same bytes. */
bool sw_transfers_overlap(const struct sw_graph *g, const struct sw_op *a, const struct sw_op *b);
sw_status sw_pass_schedule(struct sw_program *program, const struct sw_plan_options *options);
/* In which an op runs unless it is moved ahead. */
enum sw_segment sw_op_segment(const struct sw_op *op);
/* Where segments begin, from what each instruction says. */
void sw_program_find_segments(struct sw_program *program);
/* Places the transients; persistent values must have been placed. */
sw_status sw_pass_memory(struct sw_program *program);

/* ---- estimate.c: without a graph ---- */

/* What DeepSpeed's memory estimators are asked: ZeRO stage 2 or 3 on nodes x ranks_per_node devices. */
struct sw_estimate_case {
    int stage;
    int64_t parameters;
    int64_t largest_layer; /* parameters; stage 3 */
    int64_t ranks_per_node, nodes;
    double buffer_factor; /* of what the host holds */
    bool offload_optimizer;
    bool offload_param; /* stage 3, and only with offload_optimizer */
    bool zero_init;     /* stage 3: no rank ever makes the whole model */
};
struct sw_estimate {
    int64_t host_bytes_per_node, device_bytes; /* rounded down, as there */
    int64_t layer_bytes; /* stage 3: the largest layer, part of device_bytes */
};
sw_status sw_estimate(const struct sw_estimate_case *c, struct sw_estimate *out);

/* The ZeRO paper's bytes of model states on one of `ranks` ranks (Rajbhandari et al. 2020, section 3): a
 * parameter takes work bytes for its copy, grad for its gradient, states for its optimizer. */
struct sw_paper {
    double work, grad, states;
};
struct sw_paper sw_paper_widths(enum sw_dtype dtype, const struct sw_update_rule *rule);
double sw_paper_bytes(const struct sw_paper *paper, int stage, double elems, double trained,
                      double ranks);

/* ---- table.c: what a finished plan takes and sends on this rank, by kind ---- */

/* Bytes of the device's arena; together they are all of it. */
enum sw_held {
    SW_HELD_PARAMS, /* model states, as the paper counts them .. */
    SW_HELD_GRADS,  /* sums over micro-batches, one for each parameter */
    SW_HELD_OPTIMIZER,
    SW_HELD_KEPT,        /* buffers that stay: what stage 3 keeps whole beyond a slice, .. */
    SW_HELD_SECOND,      /* .. sums of the further uses of a parameter, .. */
    SW_HELD_OTHER,       /* .. statistics and caches */
    SW_HELD_GATHERED,    /* alive at the peak: whole copies of slices, .. */
    SW_HELD_LOADED,      /* .. what lies elsewhere and is used here, .. */
    SW_HELD_GRADS_NOW,   /* .. gradients that have not left yet, .. */
    SW_HELD_ACTIVATIONS, /* .. activations, their gradients and inputs, .. */
    SW_HELD_WIRE,        /* .. what arrives from other ranks, .. */
    SW_HELD_WORKSPACE,   /* .. workspace of kernels */
    SW_HELD_GAPS,        /* addresses between them that nothing uses then */
    SW_HELD_COUNT,
    SW_HELD_STATES = SW_HELD_OPTIMIZER + 1 /* kinds before this one are model states */
};
const char *sw_held_name(enum sw_held kind);

/* Bytes that one rank sends in one optimizer step. */
enum sw_sent {
    SW_SENT_GRADS,    /* slices of gradients to their owners */
    SW_SENT_FORWARD,  /* slices of parameters, gathered for forward, .. */
    SW_SENT_BACKWARD, /* .. for backward, .. */
    SW_SENT_UPDATE,   /* .. after the update; stage 0: slices of the sums, before it */
    SW_SENT_STATS,    /* norms and overflow flags */
    SW_SENT_COUNT
};
const char *sw_sent_name(enum sw_sent kind);

struct sw_sent_parts {
    int64_t bytes;
    double formula;        /* architecture 5a, with (R-1)/R; what follows is the difference */
    double second, sparse; /* more than once: further dense uses, further sparse ones */
    double kept;           /* stage 3: parameters that stay whole travel after the update */
    double spared;         /* parameters that do not travel: kept whole, frozen, not read */
    double padding;
};

struct sw_plan_table {
    int64_t elems, trained; /* of all parameters, of those with a gradient */
    size_t held[SW_HELD_COUNT];
    double padding; /* bytes of the model states that equal slices of whole blocks cost */
    size_t tier_bytes[SW_TIER_COUNT];
    struct sw_sent_parts sent[SW_SENT_COUNT];
    double boundary; /* all of 5a with "reduce": "boundary"; 0 where that is refused */
};

/* Of a plan whose first program trains; the options are those that it was made with. */
sw_status sw_plan_tabulate(const struct sw_plan *plan, const struct sw_plan_options *options,
                           struct sw_plan_table *out);

/* ---- predict.c: how long a step would take ---- */

enum sw_load {
    SW_LOAD_PRODUCTS_F32, /* floating-point operations of matrix products and attention, by dtype of the factors, .. */
    SW_LOAD_PRODUCTS_BF16,
    SW_LOAD_PRODUCTS_F16,
    SW_LOAD_OTHER,     /* .. bytes that all other computation reads and writes, .. */
    SW_LOAD_COPIES_IN, /* .. and copies between host and device, read and written, .. */
    SW_LOAD_COPIES_OUT,
    SW_LOAD_DISK_READ, /* .. and the disk, .. */
    SW_LOAD_DISK_WRITTEN,
    SW_LOAD_SENT, /* .. and bytes to other ranks */
    SW_LOAD_COUNT
};
const char *sw_load_name(enum sw_load kind);
enum sw_queue sw_load_queue(enum sw_load kind);
/* Of an optimizer step of the first program with `rounds` micro-steps; SW_LOAD_SENT stays 0: see
 * sw_plan_tabulate. */
void sw_plan_loads(const struct sw_plan *plan, int64_t rounds, double out[SW_LOAD_COUNT]);

struct sw_prediction {
    double part[SW_LOAD_COUNT];     /* seconds; NaN = there is work and no rate */
    double seconds[SW_QUEUE_COUNT]; /* of the parts that are known */
    enum sw_queue bound;            /* the queue with most */
    double least, most;             /* all others hidden behind it; nothing hidden */
    bool unknown;                   /* a part is missing */
};
/* rates: a second; 0 = unknown */
void sw_predict(const double loads[SW_LOAD_COUNT], const double rates[SW_LOAD_COUNT],
                struct sw_prediction *out);
