// SPDX-License-Identifier: Apache-2.0
// plan - from the graph of a training step to a flat, printable list of instructions with an
// address for every byte. Pure: no rank is talked to and no byte moves here.
//
// `fuse` makes of the graph another one, after which the arithmetic is settled and the math
// fingerprint taken. From there on passes rewrite a list of the plan's own (ir.h): tile, recompute,
// vertical, shard, update, place; then instructions, whose order and addresses schedule, overlap,
// prefetch, waits and memory choose. check verifies what they have made, and `lower` says in the
// instructions all that running wants to know. All programs of one plan share one arena: parameters
// and states have fixed places by name, transients of all programs overlay each other.
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
    SW_QUEUE_HOST, /* kernels of the host's processors, on what lies in host memory */
    SW_QUEUE_COUNT
};
const char *sw_queue_name(enum sw_queue queue);

/* Segments run in this order within a step: forward and backward once a micro-batch, update once;
 * then, where updates are written to a second slot, what they changed of the device's memory. Up
 * to there a step may be given up. */
enum sw_segment {
    SW_SEGMENT_FORWARD,
    SW_SEGMENT_BACKWARD,
    SW_SEGMENT_UPDATE,
    SW_SEGMENT_COMMIT,
    SW_SEGMENT_COUNT
};
const char *sw_segment_name(enum sw_segment segment);

enum sw_program_kind { SW_PROGRAM_TRAIN, SW_PROGRAM_EVAL, SW_PROGRAM_LOGITS, SW_PROGRAM_DECODE };

/* Storage of one root value, or of an op's workspace. */
struct sw_buffer {
    sw_value value; /* of the plan's own list; SW_NO_VALUE: a workspace */
    enum sw_tier tier : 8;
    bool persistent;
    size_t offset, bytes; /* in the tier's arena, with what rounds them up */
    uint32_t align;       /* transients: of the offset and of the bytes */
    int32_t first, last;  /* instructions during which it is in use; persistent: all */
    size_t slot_bytes;    /* see struct sw_persistent */
};
/* What comes from the disk, or goes there, lies as the disk wants its memory, and is as long. What
 * parameters and states take is rounded up to less where they are small, which on many ranks most
 * slices are; these lie behind the others. */
enum { SW_PLAN_ALIGN = 64, SW_PLAN_DISK_ALIGN = 4096 };
size_t sw_tier_align(enum sw_tier tier);
enum { SW_PLAN_SMALL = 4096, SW_PLAN_SMALL_ALIGN = 16 };

/* An operand's bytes move on by one of these. Steps are those whose update counts: a step reads at
 * its index, and writes at the next one. */
enum sw_ring_index { SW_RING_STEP, SW_RING_PIECE, SW_RING_MICRO, SW_RING_COUNT };
const char *sw_ring_name(enum sw_ring_index by);
enum { SW_PLAN_SLOTS = 2 }; /* of the ring by steps */
struct sw_ring {
    size_t stride;   /* bytes from an index to the next; 0 = no ring */
    int32_t modulus; /* this many indices on is the same place; 0 = none is */
    enum sw_ring_index by;
};
enum { SW_OPERAND_RINGS = 2 };

/* Bytes of an arena: element 0 of a tensor lies at the first of them. */
struct sw_operand {
    size_t offset;         /* in the arena of the tier, at index 0 of its rings */
    size_t bytes;          /* up to the last element */
    size_t room;           /* with padding behind it, which is zeros when it travels */
    enum sw_tier tier : 8; /* SW_TIER_COUNT: there is none, an optional output that nobody wants */
    struct sw_ring ring[SW_OPERAND_RINGS];
};
/* Bytes from `offset` to the place that the operand has at these indices. */
static inline size_t sw_operand_shift(const struct sw_operand *operand,
                                      const int64_t index[SW_RING_COUNT])
{
    size_t shift = 0;
    for (int k = 0; k < SW_OPERAND_RINGS; k++) {
        const struct sw_ring *ring = &operand->ring[k];
        const int64_t i = index[ring->by];
        shift += ring->stride * (size_t)(ring->modulus > 0 ? i % ring->modulus : i);
    }
    return shift;
}

/* What an instruction does, and its operands in their order. */
enum sw_verb {
    /* of the device, or on HOST of the host; see sw_program_describe: inputs, then outputs */
    SW_VERB_KERNEL,
    SW_VERB_COPY_IN,  /* host -> device: there, here; with indices: there, here, i32 rows of it */
    SW_VERB_COPY_OUT, /* device -> host: there, here */
    SW_VERB_READ,     /* disk -> device, as COPY_IN */
    SW_VERB_WRITE,    /* device -> disk: there, here */
    /* sum, gradient: the owner of a slice adds up all ranks', in rank order, onto its sum */
    SW_VERB_REDUCE,
    SW_VERB_GATHER, /* slice, whole: the slices of all ranks */
    SW_VERB_MERGE   /* words: those of all ranks added up */
};

/* What many instructions have alike: words for messages, and the kernel. */
struct sw_instr_about {
    const char *name;  /* "matmul", "load", .. */
    const char *where; /* what a message calls its place: scope or tensor; never empty */
    const char *scope; /* "" outside of all scopes */
    /* the parameter that it is about, or what it moves; NULL = none in particular */
    const char *tensor;
    struct sw_kernel_info kernel;
};

struct sw_instr {
    int32_t op; /* in the plan's own list: no business of who runs it */
    enum sw_queue queue : 8;
    enum sw_segment segment : 8;
    bool blocking : 1; /* exchanges: complete before the next instruction */
    /* Kernels: not run where the scalar SKIP is set, which is known by then; what moves bytes of a
     * skipped update moves what was there. */
    bool unless_skipped : 1;
    bool last_only : 1; /* left out unless this micro-step is the last of its step */
    /* REDUCE: of all ranks, whether they have a micro-batch now or not; the first begins the sum */
    bool whole_step : 1;
    /* By queue, the latest instruction that must be complete before this one starts, -1 = none. Of
     * its own queue: before it is issued, so that no more than so many are under way. */
    int32_t waits[SW_QUEUE_COUNT];
    /* the instruction from which on the computing thread knows it to be complete */
    int32_t retired;
    /* exchanges: how many, from this one on, travel together; 0 = with an earlier one */
    int32_t batch;
    int group;    /* exchanges: who takes part, of the plan's groups */
    int32_t loop; /* of the program's, from 1; 0 = it runs once */
    /* In a loop: of the same one, what must be done with a piece before this one begins with that
     * of so many turns on; -1 = nothing */
    int32_t again;
    /* How many instructions are issued before it, were each piece of a loop done before the next
     * begins. */
    int64_t order;
    int32_t workspace; /* buffer, -1 = none */
    const struct sw_instr_about *about;
    /* ---- lower.c: all else that running it takes ---- */
    enum sw_verb verb : 8;
    enum sw_dtype dtype : 8; /* exchanges: of what travels */
    int8_t n_in, n_out;      /* KERNEL: of its operands; else n_in is how many there are */
    int32_t operands;        /* where they begin in the program's */
    /* Which of the micro-batches of the phase that runs it: 0 but where the program holds several;
     * -1: it is of the step as a whole. Its scalars are of that row; a kernel is left out where
     * this rank does not have that micro-batch. */
    int micro;
    /* Each time. Transfers: that count as moved; exchanges: of a rank's slice that travel */
    int64_t bytes;
    int64_t flops;
    /* REDUCE: of a row-sparse gradient its rows travel, at most so many to a rank, of so many
     * elements each; operands 2 and 3 are they and their index. 0 = its slices do */
    int32_t rows, row_elems;
};
/* Bytes of an exchange that a rank sends to each of the others, at most. */
int64_t sw_instr_sent_bytes(const struct sw_instr *instr);
/* Bytes of so many rows: how many there are (8 bytes), their index, they. */
int64_t sw_instr_rows_bytes(int64_t rows, int64_t row_elems, enum sw_dtype dtype);

/* An input that each micro-batch brings, or an output that can be read. */
struct sw_port {
    const char *name;
    int micro; /* of which micro-batch */
    enum sw_dtype dtype;
    struct sw_shape shape; /* row-major */
    struct sw_operand at;  /* tier SW_TIER_COUNT: an input that this program does not read */
    /* Inputs of a training whose device the host does not reach: where they wait in host memory, a
     * place for each micro-step. Tier SW_TIER_COUNT: nowhere. */
    struct sw_operand slot;
};

/* Neighbouring instructions - loads, a kernel, stores - that are issued once for each piece of an
 * update. A piece is loaded while those before it are computed and stored; in memory they take
 * turns. */
struct sw_loop {
    int32_t first, n; /* instructions */
    int32_t pieces;
};

struct sw_ir;
struct sw_scheduled;

/* What backward makes again with inexpensive ops, and forward does not keep for it. */
struct sw_remade {
    int32_t n; /* values */
    size_t bytes;
};

/* Blocks of which backward computes again what it reads: the first ones. */
struct sw_recomputed {
    int64_t blocks, of; /* 0: none; blocks of the model */
};

struct sw_program {
    enum sw_program_kind kind;
    struct sw_ir *ir;        /* the plan's own list that it comes from; owned */
    int micro_batches;       /* that one run of it computes: 1, or all of a rank (vertical) */
    struct sw_instr *instrs; /* [n_instrs] */
    int64_t *least_tiles;    /* [n_least] see sw_least_tiles; NULL where nobody asks */
    int32_t n_least;         /* values, before passes added theirs */
    /* [n_instrs] before anything runs ahead; NULL in a finished plan */
    struct sw_scheduled *scheduled;
    struct sw_loop *loops;       /* [n_loops] */
    int32_t turns;               /* pieces that have a place at once, in every loop; at least 1 */
    struct sw_operand *operands; /* [n_operands] */
    struct sw_port *inputs, *outputs; /* [n_inputs], [n_outputs] */
    struct sw_buffer *buffers;        /* [n_buffers] */
    int32_t *buffer_of; /* [values of ir] buffer of the root value, -1 = never stored */
    int32_t n_instrs, n_loops, n_buffers, n_operands, n_inputs, n_outputs;
    int32_t segment_first[SW_SEGMENT_COUNT + 1];
    size_t transient_bytes; /* of the device: highest address used beyond the persistent part */
    size_t offloaded_bytes[SW_TIER_COUNT]; /* of the other tiers: likewise */
    int32_t peak_instr;                    /* where the sum of live bytes is largest */
    size_t peak_live_bytes;                /* transients alive there */
    struct sw_recomputed recomputed;
    struct sw_remade remade; /* of each micro-batch */
    int64_t flops;
};

/* NULL = the program has none of that name. micro: of that micro-batch. */
const struct sw_port *sw_program_input(const struct sw_program *program, const char *name,
                                       int micro);
const struct sw_port *sw_program_output(const struct sw_program *program, const char *name,
                                        int micro);
size_t sw_port_bytes(const struct sw_port *port);
/* How often an instruction is issued where its phase runs once: for each piece of its loop. */
int32_t sw_instr_pieces(const struct sw_program *program, const struct sw_instr *instr);
/* Pieces of a loop whose loads are issued before the kernel of a piece is. */
int32_t sw_loop_ahead(const struct sw_program *program);
/* Queue that an instruction runs on: what blocks runs on the computing thread. */
enum sw_queue sw_instr_queue(const struct sw_instr *instr);
/* What kernel instruction i computes, for the device to prepare it: types and strides of its
 * operands; out->op is `op`. */
void sw_program_describe(const struct sw_program *program, int32_t i, struct sw_op *op,
                         struct sw_op_desc *out);

/* What a state is. */
enum sw_state_kind {
    SW_STATE_OTHER,     /* of the graph (caches), or of a step as a whole (statistics, ratios) */
    SW_STATE_OPTIMIZER, /* moments, masters, rests of masters */
    SW_STATE_SUM, /* of the gradients of a parameter's first use, over micro-batches or ranks */
    SW_STATE_FURTHER_SUM, /* likewise, of a further use, or a sum that has been reduced */
    SW_STATE_CONSTANT     /* of the graph, which says its values: nobody writes it */
};

/* A parameter or state: one place for all programs. */
struct sw_persistent {
    const char *name; /* of the list of a program */
    enum sw_role role;
    enum sw_dtype dtype;
    struct sw_shape shape;
    struct sw_init init;
    const void *data;        /* of a constant its bytes, of the list of a program; else NULL */
    const char *param;       /* states of a parameter: its name, else NULL */
    struct sw_layout layout; /* which elements of the whole tensor `shape` is */
    enum sw_tier tier;
    size_t offset, bytes; /* in the tier's arena */
    /* from its first slot to its second, which takes turns with it; 0 = one slot */
    size_t slot_bytes;
    enum sw_state_kind state; /* STATE */
    size_t packed_bytes; /* what it takes of its pack, up to the next one; 0 = a place of its own */
};

/* Small tensors of the disk that are loaded and stored together: one place for all programs. */
struct sw_packed {
    const char *name;                 /* of the list of a program */
    size_t offset, bytes, slot_bytes; /* of the disk; see struct sw_persistent */
};

/* A parameter that ops use by tiles of so many rows; the last one may have less. */
struct sw_tiled {
    const char *name;
    int64_t n_tiles, rows;
    size_t bytes; /* of a tile */
};

/* ---- step.c: the optimizer step of this rank as a whole ---- */

enum sw_step_action {
    SW_STEP_RUN, /* the instructions of a segment */
    /* all ranks learn the losses of all micro-batches: the scalars of the update depend on them */
    SW_STEP_LOSSES,
    /* all ranks learn whether any of them met a fault; if so, the step is rolled back */
    SW_STEP_AGREE,
    /* what was written to second slots counts from here on, unless the step is skipped */
    SW_STEP_COMMIT
};
const char *sw_step_action_name(enum sw_step_action action);

struct sw_step_phase {
    enum sw_step_action action;
    /* RUN: */
    int program;
    enum sw_segment segment;
    int64_t round; /* which of this rank's micro-batches is the first of .. */
    int n_micro;   /* .. so many; 0: this rank has none, and does only what the others wait for */
    bool is_last;  /* of the last micro-step: instructions that are `last_only` run, too */
    /* what is issued behind it starts after all that was issued; else transfers may go on beside
     * the next phase */
    bool drains;
    /* the host waits for that: it hears of failures up to here, and of what kernels wrote among the
     * scalars. LOSSES does so in any case. */
    bool joins;
};

struct sw_step {
    struct sw_step_phase *phases;
    int32_t n_phases;
    /* a failure in one of the first n_safe phases leaves all that counts as it was */
    int32_t n_safe;
    int ranks;
    int64_t rounds, micro_batches; /* micro-steps; micro-batches of all ranks */
    /* a disk that fails is kept for AGREE: until then the other ranks get what they wait for */
    bool holds_faults;
};
/* Ranks that have a micro-batch in this round: the first so many. */
int sw_step_active(const struct sw_step *step, int64_t round);
/* A line for each phase. */
void sw_step_print(const struct sw_step *step, struct sw_str *out);

struct sw_plan {
    struct sw_program *programs;
    int n_programs;
    struct sw_group *groups; /* [n_groups] see SW_GROUP_WORLD */
    int *members;            /* of the groups */
    int n_groups;
    struct sw_persistent *persistent;
    int32_t n_persistent;
    struct sw_packed *packs;
    int32_t n_packs;
    struct sw_tiled *tiled;
    int32_t n_tiled;
    struct sw_names names;                      /* of the three lists; see sw_plan_find */
    size_t persistent_bytes;                    /* of the device's tier */
    size_t persistent_offloaded[SW_TIER_COUNT]; /* of the others */
    size_t staging_bytes;                       /* of host memory, see struct sw_plan_options */
    /* Behind it, for each micro-step of a step: inputs on their way to a device that the host does
     * not reach; 0 = none. */
    size_t input_bytes;
    size_t tier_bytes[SW_TIER_COUNT];  /* what running this plan takes */
    size_t tier_budget[SW_TIER_COUNT]; /* 0 = no budget */
    uint64_t fingerprint;              /* of the first TRAIN program, else of the first */
    int64_t prefetch_elems;    /* what the budget left of the option; -1 = not even the overlap */
    size_t transfer_bytes;     /* likewise */
    bool boundary_in_backward; /* norms, or updates too, run within the last backward of a step */
    bool updates_in_backward;  /* updates do */
    bool two_slots;            /* see struct sw_policy */
    struct sw_step step;       /* of the first program, where that trains; else without phases */
};

/* Why a budget is too small. */
struct sw_plan_refusal {
    enum sw_tier tier;
    size_t missing, needed; /* in it */
    size_t beside; /* bytes that one slot in that tier would spare at most; SIZE_MAX = unknown */
    size_t states, params, transients; /* bytes of the device */
    int64_t n_instrs;                  /* of all programs: how much work planning is */
    bool whatever_the_tiles;           /* too small for the smallest tiles of all parameters, too */
};

typedef void (*sw_plan_query_fn)(void *ctx, const struct sw_op_desc *desc,
                                 struct sw_kernel_info *out);

/* A table of kernels. */
struct sw_plan_kernels {
    sw_plan_query_fn query;
    void *ctx;
};

enum sw_reduces {
    SW_REDUCES_ROWS = 1, /* rows of row-sparse gradients travel where that is shorter */
    SW_REDUCES_SUMS = 2  /* stages 0, 1: sum over micro-batches first, over ranks at the end */
};

/* The few choices of which plan it is: what is asked for, or what a search tries. */
struct sw_policy {
    int64_t micro_batch, micro_batches; /* B; K, of a step of all ranks */
    struct sw_recompute recompute;
    bool vertical;            /* the schedule: all micro-batches of a block before the next block */
    int stage;                /* ZeRO 0..3 */
    enum sw_tier states_tier; /* of optimizer states */
    enum sw_tier params_tier; /* of parameters, at stage 3 */
    enum sw_tier grads_tier;  /* of gradients that wait for the update, and of their sums */
    enum sw_tier activations_tier; /* of what backward reads of the forward */
    /* of the optimizer states go to their tier, the rest stays here; 0 = all */
    double states_share;
    bool host_updates;            /* states in host memory are updated there, see `host` */
    size_t budget[SW_TIER_COUNT]; /* shares of what memory there is; 0 = no budget */
    /* parameters above this that are offloaded are used by tiles; 0 = none */
    size_t tile_bytes;
    /* states that are offloaded are updated so many elements at a time; 0 = a tensor */
    int64_t update_elems;
    /* What an update writes goes beside what it read, and counts once all of it is there: a step
     * that fails on the way has changed nothing. For sw_may_take_two_slots. */
    bool two_slots;
    /* Most bytes that are loaded ahead of their first reader, and most that stores have under way.
     * 0: a load stands in front of its reader, and a store waits for the one before it. */
    size_t transfer_bytes;
    int64_t prefetch_elems; /* gathered ahead of their first reader, where that overlaps */
};
/* One line. */
void sw_policy_print(const struct sw_policy *policy, struct sw_str *out);

/* Of elements, as the configuration gives them. */
struct sw_plan_limits {
    int64_t persistence_elems;      /* stage 3: parameters up to this stay whole on each rank, .. */
    int64_t persistence_total;      /* .. while so many elements are not used up */
    int64_t max_live_elems;         /* never more are gathered ahead */
    int64_t reduce_bucket_elems;    /* most elements of gradients that travel together */
    int64_t allgather_bucket_elems; /* of updated parameters */
    /* What would go to the disk stays in host memory as long as it has a budget with room, of
     * parameters so many elements at most. */
    int64_t host_param_elems;
};

/* The plan's groups of ranks; an exchange names one by its index. */
enum { SW_GROUP_WORLD, SW_GROUP_DATA, SW_GROUP_COUNT };

/* What is given - device, model and training - and what is chosen for it. */
struct sw_plan_options {
    /* host: with the same bits; with `host_updates` they update, in place, states that lie in host
     * memory (ZeRO-Offload). query NULL: the device updates all. */
    struct sw_plan_kernels device, host;
    const char *kernel_set; /* part of the fingerprint */
    /* Of host memory, at its beginning: what does not reach the device passes through it (struct
     * sw_device). Above 0, the inputs of a step lie in host memory, too. */
    size_t staging_bytes;
    struct sw_mesh mesh;               /* of ranks */
    int me;                            /* this rank, of the mesh */
    unsigned reduces;                  /* enum sw_reduces */
    bool overlap;                      /* collectives run beside computation */
    bool fp16;                         /* overflow is looked for, and skips the update */
    double clip;                       /* 0 = none */
    const struct sw_update_rule *rule; /* NULL: programs of this plan have no update */
    bool keep_gradients;               /* streams stay readable after backward */
    bool keep_cheap; /* what backward reads is kept, also where an inexpensive op makes it again */
    uint64_t extra_fingerprint; /* what else may change a bit: seed, batch, .. */
    struct sw_plan_limits limits;
    struct sw_policy policy;
    struct sw_plan_refusal *refusal; /* filled in with SW_E_NOMEM of a budget; NULL = nobody asks */
    /* Budgets that are known to be enough, where one of them is above what this plan takes, for the
     * message of a refusal; 0 = unknown. */
    size_t enough[SW_TIER_COUNT];
};

/* Ranks that divide the micro-batches of a step among them. */
static inline int sw_data_ranks(const struct sw_plan_options *options)
{
    return sw_mesh_size(&options->mesh, 1U << SW_AXIS_DATA);
}

/* Which graph becomes which program. Backward must have been appended to TRAIN graphs. */
struct sw_program_spec {
    enum sw_program_kind kind;
    const struct sw_graph *graph; /* borrowed for the call; it may be planned again */
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

/* Verifies a finished plan: inputs written before they are read and not overwritten while in use,
 * what is loaded was stored, no two live buffers overlap, sizes as the graph and the kernels ask,
 * budgets kept at every instruction. What it leaves to whoever writes a pass: that operands which a
 * pass puts in the place of others have their shapes. */
sw_status sw_plan_check(const struct sw_plan *plan, const struct sw_plan_options *options);
const struct sw_persistent *sw_plan_find(const struct sw_plan *plan, const char *name);
/* Bytes that it takes of its tier. */
size_t sw_persistent_taken(const struct sw_persistent *item);

/* Instructions, bytes per tier, FLOPs, the peak with its largest values. */
void sw_plan_print(const struct sw_plan *plan, bool instructions, struct sw_str *out);
/* One object; with instructions, all that running the plan takes. docs/train.md has the members. */
void sw_plan_print_json(const struct sw_plan *plan, bool instructions, struct sw_str *out);

/* Bytes of a tier for second slots. */
size_t sw_plan_second_places(const struct sw_plan *plan, enum sw_tier tier);

/* The program whose transients take most of a tier. */
const struct sw_program *sw_plan_largest_program(const struct sw_plan *plan, enum sw_tier tier);
/* The `most` largest values that are alive at the peak of a program, as one line. */
void sw_plan_largest(const struct sw_program *program, int most, struct sw_str *out);

/* Bytes that the first program moves between tiers in an optimizer step with `rounds`
 * micro-steps. */
struct sw_transfers {
    int64_t in[SW_TIER_COUNT], out[SW_TIER_COUNT]; /* from a tier to the device, and back */
};
struct sw_transfers sw_plan_transfers(const struct sw_plan *plan, int64_t rounds);

/* All that an update writes can be written beside what was, or kept until it is settled; some of it
 * is on the disk. */
bool sw_may_take_two_slots(const struct sw_plan_options *options);

#include "plan/report.h"
#include "plan/search.h"
