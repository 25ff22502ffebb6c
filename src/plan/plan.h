// SPDX-License-Identifier: Apache-2.0
// plan - turns the graph of a training step into a flat, printable list of instructions with an
// address for every byte. It is pure: it talks to no rank and moves no byte.
//
// `fuse` makes a new graph; from then on the arithmetic is settled, and the math fingerprint is
// taken. Later passes rewrite the plan's own list (ir.h): tile, recompute, order, shard, update,
// place. Then schedule, overlap, prefetch, waits and memory choose the order and the addresses of
// the instructions. `check` verifies the result, and `lower` stores in each instruction all that
// running it needs. All programs of one plan share one arena. Parameters and states have fixed
// places by name; transients of all programs overlay each other.
#pragma once

#include "config/config.h"
#include "graph/graph.h"
#include "layout/layout.h"
#include "optim/optim.h"

enum sw_tier { SW_TIER_DEVICE, SW_TIER_HOST, SW_TIER_DISK, SW_TIER_COUNT };
const char *sw_tier_name(enum sw_tier tier);
/* The tier that a device of the configuration names. */
enum sw_tier sw_tier_of(enum sw_offload_device device);

enum sw_queue {
    SW_QUEUE_COMPUTE,
    SW_QUEUE_COMM, /* exchanges of groups along the data axis, or the pipe axis, or all axes */
    SW_QUEUE_H2D,  /* host memory to the device */
    SW_QUEUE_D2H,
    SW_QUEUE_READ, /* disk to device */
    SW_QUEUE_WRITE,
    SW_QUEUE_HOST,   /* kernels that the host's processors run on host memory */
    SW_QUEUE_TENSOR, /* exchanges of groups along the tensor, context and expert axes only */
    /* SEND and RECV have a queue each, and so have those of backward. In a pipeline each queue has
     * one neighbour, and its messages have the same order on both sides. */
    SW_QUEUE_SENT,
    SW_QUEUE_RECEIVED,
    SW_QUEUE_SENT_BACK,
    SW_QUEUE_RECEIVED_BACK,
    SW_QUEUE_COUNT
};
const char *sw_queue_name(enum sw_queue queue);
/* True if the queue has exchanges among ranks. */
static inline bool sw_queue_exchanges(enum sw_queue queue)
{
    return queue == SW_QUEUE_COMM || queue > SW_QUEUE_HOST;
}
static inline bool sw_queue_sends(enum sw_queue queue)
{
    return queue == SW_QUEUE_SENT || queue == SW_QUEUE_SENT_BACK;
}
static inline bool sw_queue_receives(enum sw_queue queue)
{
    return queue == SW_QUEUE_RECEIVED || queue == SW_QUEUE_RECEIVED_BACK;
}

/* Segments run in this order within a step: the first three once per micro-batch, update once. A
 * stage of a pipeline may have several chunks of the model; then forward, backward and weights have
 * a range of instructions for each. If updates are written to a second slot, COMMIT then copies
 * what they changed in device memory. A step can be abandoned until COMMIT starts. */
enum sw_segment {
    SW_SEGMENT_FORWARD,
    SW_SEGMENT_BACKWARD,
    SW_SEGMENT_WEIGHTS, /* gradients of weights that the schedule puts off; else it is empty */
    SW_SEGMENT_UPDATE,
    SW_SEGMENT_COMMIT,
    SW_SEGMENT_COUNT
};
const char *sw_segment_name(enum sw_segment segment);

enum sw_program_kind { SW_PROGRAM_TRAIN, SW_PROGRAM_EVAL, SW_PROGRAM_LOGITS, SW_PROGRAM_DECODE };
const char *sw_program_kind_name(enum sw_program_kind kind);

/* Storage of one root value, or of an op's workspace. */
struct sw_buffer {
    sw_value value; /* in the plan's own list; SW_NO_VALUE = a workspace */
    enum sw_tier tier : 8;
    bool persistent;
    size_t offset, bytes; /* in the tier's arena; bytes includes the rounding */
    uint32_t align;       /* transients: alignment of the offset and of the bytes */
    int32_t first, last;  /* instructions during which it is in use; all of them if persistent */
    size_t slot_bytes;    /* see struct sw_persistent */
    bool is_late;         /* see struct sw_persistent */
    /* transients: `bytes` has a slot of this size for each micro-batch in flight; 0 = no slots */
    size_t micro_bytes;
};
/* Data that the disk reads or writes has the alignment that the disk wants, in address and in
 * length. Small parameters and states are rounded up to SW_PLAN_SMALL_ALIGN only, and lie after the
 * others. On many ranks most shards are small. */
enum { SW_PLAN_ALIGN = 64, SW_PLAN_DISK_ALIGN = 4096 };
size_t sw_tier_align(enum sw_tier tier);
enum { SW_PLAN_SMALL = 4096, SW_PLAN_SMALL_ALIGN = 16 };

/* An operand's bytes move on by one of these. Steps are those whose update counts: a step reads at
 * its index, and writes at the next one. */
enum sw_ring_index {
    SW_RING_STEP,
    SW_RING_PIECE,
    SW_RING_MICRO,
    /* as STEP, of what is updated within the next forward; after the first forward reads are as
     * NEWEST */
    SW_RING_LATE,
    SW_RING_NEWEST, /* LATE + 1 if an update is due, which the first forward runs; else LATE */
    /* gradients that an update within the next forward reads: those of the step before, and those
     * that this step makes */
    SW_RING_KEPT,
    SW_RING_MADE,
    SW_RING_COUNT
};
const char *sw_ring_name(enum sw_ring_index by);
enum { SW_PLAN_SLOTS = 2 }; /* slots of the ring by steps */
struct sw_ring {
    size_t stride;   /* bytes from an index to the next; 0 = no ring */
    int32_t modulus; /* number of places before the ring wraps around; 0 = it never does */
    enum sw_ring_index by;
};
enum { SW_OPERAND_RINGS = 2 };

/* A range of an arena. Element 0 of a tensor is at its first byte. */
struct sw_operand {
    size_t offset;         /* in the tier's arena, at index 0 of its rings */
    size_t bytes;          /* up to the last element */
    size_t room;           /* with the padding after it, which is zero when it travels */
    enum sw_tier tier : 8; /* SW_TIER_COUNT = absent: an optional output that nobody reads */
    struct sw_ring ring[SW_OPERAND_RINGS];
};
/* Bytes from `offset` to the place of the operand at these indices. */
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

/* The kind of an instruction, and its operands in order. */
enum sw_verb {
    /* runs on the device, or on the host for queue HOST; operands are inputs, then outputs (see
     * sw_program_describe) */
    SW_VERB_KERNEL,
    /* host -> device: source, target; a row-sparse copy has the i32 row indices as third operand */
    SW_VERB_COPY_IN,
    SW_VERB_COPY_OUT, /* device -> host: target, source */
    SW_VERB_READ,     /* disk -> device, operands as for COPY_IN */
    SW_VERB_WRITE,    /* device -> disk: target, source */
    /* sum, gradient: the owner of a shard adds the gradients of all ranks, in rank order, to its
     * sum */
    SW_VERB_REDUCE,
    SW_VERB_GATHER, /* shard, whole: collects the shards of all ranks */
    SW_VERB_MERGE,  /* words: sums them over all ranks */
    /* The verbs below are for activations. Operands are an input and an output. Sums are made in
     * rank order in fp32, and rounded once to the type that travels. */
    SW_VERB_ALL_GATHER,     /* slice, whole: the slices of all members, side by side */
    SW_VERB_REDUCE_SCATTER, /* whole, slice: this member's slice of the sum over all members */
    SW_VERB_ALL_TO_ALL,     /* member r gets slice r of each member, side by side */
    SW_VERB_ALL_REDUCE,     /* whole, whole: the sum over all members */
    SW_VERB_BROADCAST,      /* one operand: those of the others become that of the peer */
    SW_VERB_SEND,           /* one operand, to the peer */
    SW_VERB_RECV,           /* one operand, from the peer */
    SW_VERB_COUNT
};
const char *sw_verb_name(enum sw_verb verb); /* such as "copy_in", as in a dump */

/* Fields that many instructions have in common: words for messages, and the kernel. */
struct sw_instr_about {
    const char *name;  /* such as "matmul" or "load" */
    const char *where; /* place named in messages: scope or tensor; never empty */
    const char *scope; /* "" outside of all scopes */
    /* the parameter that it works on, or the tensor that it moves; NULL = none in particular */
    const char *tensor;
    struct sw_kernel_info kernel;
};

/* Fields of an exchange among ranks. */
struct sw_instr_exchange {
    int group; /* participants, as an index into the plan's groups */
    /* number of exchanges that travel together, starting with this one; 0 = it travels with an
     * earlier one */
    int32_t batch;
    bool blocking; /* complete before the next instruction */
    /* REDUCE: adds the gradients of all ranks, even those without a micro-batch in this round; the
     * first one starts the sum */
    bool whole_step;
    /* REDUCE: adds also in the first micro-batch of a step, whose sum an earlier one has begun */
    bool continues;
    /* ALL_REDUCE: the operands do not divide into equal slices, so they pass through a workspace
     * with padding after them */
    bool is_padded;
    enum sw_dtype dtype : 8; /* type of the elements that travel */
    /* SEND, RECV: the other rank; BROADCAST: the rank that has the data; as an index within the
     * group */
    int32_t peer;
    /* Contiguous runs that a slice consists of: [0] where it is sent from, [1] where it arrives. 1
     * unless the exchange is along an inner dimension. */
    int32_t runs[2];
    /* REDUCE: at most this many rows of a row-sparse gradient travel to a rank, with row_elems
     * elements each. Operands 2 and 3 are the rows and their index. 0 = its shards travel
     * instead. ALL_TO_ALL: see sw_instr_is_counted. */
    int32_t rows, row_elems;
};

/* Position of an instruction in a step, in a loop, and in the order of issue. */
struct sw_instr_turn {
    /* COPY_IN, READ: operand 2 are offsets of rows (struct sw_routes), for `of` experts each. It is
     * left out if experts first .. first + n - 1 have no rows. n 0 = it always runs */
    struct {
        int32_t first, n, of;
    } chosen;
    /* of the update of the step before: runs only in the first forward, if that update is due */
    bool first_only;
    bool once;      /* runs only in the first micro-step: what it brings stays for all of them */
    bool for_next;  /* a read of forward once more, in the last backward: for the next step */
    bool from_last; /* the read in forward; left out if the step before has done it */
    int32_t loop;   /* index into the program's loops, from 1; 0 = it runs once */
    /* The instruction of the same loop that must be done with a piece before this one starts the
     * piece `turns` later; -1 = none */
    int32_t again;
    /* number of instructions issued before it, if each piece of a loop came before the next one */
    int64_t order;
};

/* Bits of the number of a chunk. */
enum { SW_CHUNK_BITS = 12 };

struct sw_instr {
    int32_t op; /* in the plan's own list; the executor does not use it */
    enum sw_queue queue : 8;
    enum sw_segment segment : 8;
    /* Kernels do not run if the scalar SKIP is set, which is known by then. A transfer of a skipped
     * update moves the old bytes. */
    bool unless_skipped : 1;
    bool last_only : 1; /* runs only in the last micro-step of a step */
    unsigned chunk
        : SW_CHUNK_BITS; /* chunk of a pipeline's stage; 0 = the first one, or the only */
    /* By queue, the latest instruction that must be complete before this one starts; -1 = no wait.
     * For its own queue: before this one is issued, which limits how many are in flight. */
    int32_t waits[SW_QUEUE_COUNT];
    int32_t retired; /* from this instruction on, the computing thread knows that it is complete */
    struct sw_instr_exchange exchange;
    struct sw_instr_turn turn;
    /* Writes to disk: the latest earlier write to some of the same bytes, which must be done before
     * this one begins; -1 = none */
    int32_t follows;
    int32_t workspace; /* index of a buffer; -1 = none. for_next: second life of what it fills */
    const struct sw_instr_about *about;
    /* ---- lower.c: all else that running the instruction needs ---- */
    enum sw_verb verb : 8;
    /* KERNEL: numbers of inputs and outputs; else n_in is the number of operands */
    int8_t n_in, n_out;
    int32_t operands; /* index of the first one in the program's operands */
    /* The micro-batch, counted within the phase. 0 unless the program holds several; -1 = the
     * instruction belongs to the step as a whole. It selects the row of scalars. A kernel does not
     * run if this rank lacks that micro-batch. */
    int micro;
    /* Bytes per execution: for transfers those moved, for exchanges those of one rank's shard that
     * travel. */
    int64_t bytes;
    int64_t flops;
};
static inline bool sw_instr_exchanges(const struct sw_instr *instr)
{
    return sw_queue_exchanges(instr->queue);
}
/* True for an exchange that travels in the batch of an earlier one. */
static inline bool sw_instr_is_inside(const struct sw_instr *instr)
{
    return sw_instr_exchanges(instr) && instr->exchange.batch == 0;
}
/* Bytes of the message that an exchange sends to a member. Rows: the most. */
int64_t sw_instr_sent_bytes(const struct sw_instr *instr);
/* Bytes that an exchange sends to other ranks, and gets from them, in a group of n members of which
 * this rank is number `me`. Rows: the most. */
struct sw_instr_traffic {
    int64_t sent, received;
};
struct sw_instr_traffic sw_instr_traffic(const struct sw_instr *instr, int n, int me);
/* Bytes of a message with so many rows: their number (8 bytes), their index and the rows. */
int64_t sw_instr_rows_bytes(int64_t rows, int64_t row_elems, enum sw_dtype dtype);

/* An input of each micro-batch, or an output that can be read. */
struct sw_port {
    const char *name;
    const char *param; /* kept gradients: name of the parameter, else NULL */
    enum sw_state_kind kind;
    int use;
    int micro; /* micro-batch that it belongs to */
    enum sw_dtype dtype;
    struct sw_shape shape; /* row-major */
    struct sw_operand at;  /* tier SW_TIER_COUNT = this program does not read the input */
    /* Where inputs wait in host memory if the host cannot reach the device's memory: one place per
     * micro-step. Training programs only; tier SW_TIER_COUNT = no such place. */
    struct sw_operand slot;
};

/* Consecutive instructions (loads, a kernel, stores) that are issued once per piece of an update. A
 * piece is loaded while earlier pieces are computed and stored. Pieces take turns in memory. */
struct sw_loop {
    int32_t first, n; /* instructions */
    int32_t pieces;
};

struct sw_ir;
struct sw_scheduled;
struct sw_pipe_phase;

/* Values that backward recomputes with inexpensive ops instead of keeping them from forward. */
struct sw_remade {
    int32_t n; /* values */
    size_t bytes;
};

/* The first `blocks` blocks of the model, for which backward recomputes what it reads. */
struct sw_recomputed {
    int64_t blocks, of; /* 0 = no recomputation; number of blocks in the model */
};

/* Data that planning needs between its passes. All fields are 0 in a finished plan. */
struct sw_program_draft {
    int64_t *least_tiles;         /* [n_least] see sw_least_tiles; NULL if not requested */
    int64_t *tile_rows;           /* see sw_tile_rows; NULL if nothing is cut into tiles */
    int32_t n_least;              /* number of values before passes added theirs */
    struct sw_pipe_phase *phases; /* [n_phases] of this stage of a pipeline; NULL = there is none */
    int64_t n_phases;
    int late;                       /* see sw_pipe_late */
    struct sw_scheduled *scheduled; /* [n_instrs] order before any prefetching */
};
struct sw_program_ports {
    struct sw_port *inputs, *outputs; /* [n_inputs], [n_outputs] */
    int32_t n_inputs, n_outputs;
};
/* Memory of the transients of a program. */
struct sw_program_peak {
    size_t bytes[SW_TIER_COUNT]; /* by tier, the highest address beyond the persistent part */
    int32_t instr;     /* instruction at which the sum of live bytes on the device is largest */
    size_t live_bytes; /* transients alive there */
    size_t kept_bytes; /* weights that stay gathered or loaded for all micro-batches of a step */
};

struct sw_program {
    enum sw_program_kind kind;
    struct sw_ir *ir;  /* the list that the program comes from; owned */
    int micro_batches; /* micro-batches that one run computes: 1, or all of a rank (vertical) */
    struct sw_instr *instrs; /* [n_instrs] */
    struct sw_program_draft draft;
    struct sw_loop *loops;       /* [n_loops] */
    int32_t turns;               /* pieces of a loop that are in memory at once; at least 1 */
    struct sw_operand *operands; /* [n_operands] */
    struct sw_program_ports ports;
    struct sw_buffer *buffers; /* [n_buffers] */
    int32_t *buffer_of;        /* [values of ir] buffer of the root value; -1 = never stored */
    int32_t n_instrs, n_loops, n_buffers, n_operands;
    int32_t segment_first[SW_SEGMENT_COUNT + 1];
    struct sw_program_peak peak;
    struct sw_recomputed recomputed;
    struct sw_remade remade; /* per micro-batch */
    int64_t flops;
};

/* micro: index of the micro-batch. NULL = the program has no port of that name. */
const struct sw_port *sw_program_input(const struct sw_program *program, const char *name,
                                       int micro);
const struct sw_port *sw_program_output(const struct sw_program *program, const char *name,
                                        int micro);
/* The gradient of a use of a parameter, or the index of its rows; NULL = it is not kept. */
const struct sw_port *sw_program_gradient(const struct sw_program *program, const char *param,
                                          enum sw_state_kind kind, int use);
size_t sw_port_bytes(const struct sw_port *port);
/* The instructions first .. end - 1 of a chunk in a segment. Chunks ascend in forward, and descend
 * in backward and weights. */
struct sw_instr_range {
    int32_t first, end;
};
struct sw_instr_range sw_program_range(const struct sw_program *program, enum sw_segment segment,
                                       int chunk);
/* How often an instruction is issued when its phase runs once: once per piece of its loop. */
int32_t sw_instr_pieces(const struct sw_program *program, const struct sw_instr *instr);
/* Number of pieces whose loads are issued before the kernel of a piece. */
int32_t sw_loop_ahead(const struct sw_program *program);
/* Queue that an instruction runs on. Blocking instructions run on the computing thread. */
enum sw_queue sw_instr_queue(const struct sw_instr *instr);
/* Describes the kernel of instruction i, so that the device can prepare it: types and strides of
 * the operands. out->op is `op`. */
void sw_program_describe(const struct sw_program *program, int32_t i, struct sw_op *op,
                         struct sw_op_desc *out);

/* A parameter or state, which has one place for all programs. */
struct sw_persistent {
    const char *name; /* in the list of a program */
    enum sw_role role;
    enum sw_dtype dtype;
    struct sw_shape shape;
    struct sw_init init;
    const void *data;        /* constants: its bytes, in the list of a program; else NULL */
    const char *param;       /* states of a parameter: name of the parameter, else NULL */
    struct sw_layout layout; /* the elements of the whole tensor that `shape` covers */
    enum sw_tier tier;
    size_t offset, bytes; /* in the tier's arena */
    /* distance from its first slot to its second; the two alternate. 0 = one slot */
    size_t slot_bytes;
    bool is_late;             /* with two slots: it is updated within the next forward */
    enum sw_state_kind state; /* for role STATE */
    int use;                  /* sums: which use of the parameter */
    /* bytes that it occupies in its pack, up to the next tensor; 0 = not packed */
    size_t packed_bytes;
};

/* Small tensors on disk that are loaded and stored together. A pack has one place for all
 * programs. */
struct sw_packed {
    const char *name;                 /* in the list of a program */
    size_t offset, bytes, slot_bytes; /* on disk; see struct sw_persistent */
    bool is_late;
};

/* A parameter that ops use in tiles of `rows` rows; the last tile may be shorter. */
struct sw_tiled {
    const char *name;
    int64_t n_tiles, rows;
    size_t bytes; /* per tile */
};

/* ---- step.c: the optimizer step of this rank ---- */

enum sw_step_action {
    SW_STEP_RUN, /* run the instructions of a segment, of one chunk */
    /* begin the receives of a phase of a pipeline; RUN of that phase leaves them out */
    SW_STEP_RECEIVE,
    /* exchange the losses of all micro-batches between ranks: scalars of the update depend on
     * them */
    SW_STEP_LOSSES,
    /* agree among ranks whether any of them met a fault; if so, roll the step back */
    SW_STEP_AGREE,
    /* from here on the second slots are current, unless the step is skipped */
    SW_STEP_COMMIT
};
const char *sw_step_action_name(enum sw_step_action action);

struct sw_step_phase {
    enum sw_step_action action;
    /* fields of RUN and RECEIVE */
    int program;
    enum sw_segment segment;
    int chunk;     /* chunk of this stage of a pipeline */
    int64_t round; /* first micro-batch of the phase, among this rank's */
    /* number of micro-batches; 0 = this rank has none, and does only what the others wait for */
    int n_micro;
    bool is_last; /* the last micro-step, in which `last_only` instructions run, too */
    /* RUN: the first forward, in which `first_only` instructions run; COMMIT: of these alone */
    bool is_first;
    bool finds; /* RUN: the step before has done the reads that are `from_last` */
    /* the next phase starts after all of this one; else transfers may overlap with it */
    bool drains;
    /* Number of the phase among those of a stage, from 1; 0 = it is not one of a pipeline. What a
     * phase receives may arrive while the phase before it runs. */
    int32_t turn;
    int32_t sent; /* what the phases up to this turn send has left when this one starts; 0 = none */
    /* with `drains`, and of LOSSES: messages of a pipeline may be in flight after it */
    bool runs_on;
    /* The host waits for the phase. It learns of failures up to here, and of the scalars that
     * kernels wrote. LOSSES always waits. */
    bool joins;
};

struct sw_step {
    struct sw_step_phase *phases;
    int32_t n_phases;
    /* a failure in one of the first n_safe phases leaves the state of training unchanged */
    int32_t n_safe;
    /* Phases after the last one of the step, which run an update within the next forward without
     * that forward. */
    int32_t n_settling;
    int ranks;    /* that divide the micro-batches */
    int per_rank; /* members of SW_GROUP_DATA for each of them: the ranks along context */
    /* micro-steps per step; micro-batches per step, over all ranks */
    int64_t rounds, micro_batches;
    /* a disk error is held back until AGREE, so that the other ranks still get what they wait
     * for */
    bool holds_faults;
};
/* Number of members of SW_GROUP_DATA that have a micro-batch in this round, or tokens of one; these
 * are the first ones. */
int sw_step_active(const struct sw_step *step, int64_t round);

/* Host memory at the start of its arena, see struct sw_plan_options. */
struct sw_plan_staging {
    size_t bytes;
    struct sw_operand share[SW_QUEUE_COUNT]; /* each queue's part; tier SW_TIER_COUNT = none */
    /* Memory after the staging area, per micro-step: inputs on their way to a device whose memory
     * the host cannot reach. 0 = none. */
    size_t input_bytes;
};
/* How far instructions run ahead, after fitting the budget. */
struct sw_plan_ahead {
    int64_t prefetch_elems; /* -1 = not even overlap fits */
    size_t transfer_bytes;
};
/* Where updates run and write. */
struct sw_plan_update {
    /* gradient norms, and possibly updates, run within the last backward of a step */
    bool norms_in_backward;
    bool in_backward; /* updates run there, too */
    bool two_slots;   /* see struct sw_policy */
    bool in_forward;  /* updates of what is offloaded run within the next forward */
};

struct sw_plan {
    struct sw_program *programs;
    int n_programs;
    struct sw_group *groups; /* [n_groups] see SW_GROUP_WORLD */
    int *members;            /* [sum of the groups' sizes] their members */
    int n_groups;
    struct sw_persistent *persistent;
    int32_t n_persistent;
    struct sw_packed *packs;
    int32_t n_packs;
    struct sw_tiled *tiled;
    int32_t n_tiled;
    struct sw_names names; /* names of the three lists above; see sw_plan_find */
    size_t persistent_bytes[SW_TIER_COUNT];
    struct sw_plan_staging staging;
    size_t tier_bytes[SW_TIER_COUNT];  /* memory that running this plan takes */
    size_t tier_budget[SW_TIER_COUNT]; /* 0 = no budget */
    /* fingerprint of the first TRAIN program, or of the first program if none trains */
    uint64_t fingerprint;
    struct sw_plan_ahead ahead;
    struct sw_plan_update update;
    struct sw_step step; /* step of the first program if it trains; else it has no phases */
};

/* Why a budget is too small. */
struct sw_plan_refusal {
    enum sw_tier tier;
    size_t missing, needed; /* in that tier */
    /* most bytes that one slot instead of two would save in that tier; SIZE_MAX = unknown */
    size_t beside;
    size_t states, params, transients; /* bytes on the device */
    int64_t n_instrs; /* sum over all programs: a measure of the work of planning */
    /* the budget is too small even with the smallest tiles of all parameters */
    bool whatever_the_tiles;
};

typedef void (*sw_plan_query_fn)(void *ctx, const struct sw_op_desc *desc,
                                 struct sw_kernel_info *out);

/* A table of kernels. */
struct sw_plan_kernels {
    sw_plan_query_fn query;
    void *ctx;
};

enum sw_reduces {
    SW_REDUCES_ROWS = 1, /* reduce the rows of row-sparse gradients if that is shorter */
    SW_REDUCES_SUMS = 2  /* stages 0, 1: sum over micro-batches first, and over ranks at the end */
};

/* The main choices of a plan: what the user asks for, or what a search tries. */
struct sw_policy {
    int64_t micro_batch, micro_batches; /* batch size; micro-batches per step, over all ranks */
    struct sw_recompute recompute;
    enum sw_step_schedule schedule;
    int chunks;               /* chunks of blocks on each stage of a pipeline; 0 = one */
    int stage;                /* ZeRO stage, 0..3 */
    enum sw_tier states_tier; /* tier of optimizer states */
    enum sw_tier params_tier; /* tier of parameters, at stage 3 */
    enum sw_tier grads_tier;  /* tier of gradients that wait for the update, and of their sums */
    enum sw_tier activations_tier; /* tier of activations that backward reads */
    /* share of the optimizer states in states_tier, the rest stays on the device; 0 = all */
    double states_share;
    bool host_updates;            /* update states in host memory there, see `host` */
    size_t budget[SW_TIER_COUNT]; /* 0 = no budget */
    /* offloaded parameters larger than this are used in tiles; 0 = never */
    size_t tile_bytes;
    /* elements of an offloaded state that are updated at a time; 0 = a whole tensor */
    int64_t update_elems;
    /* Updates write to a second slot, which becomes current once all of it is written. A step that
     * fails before that has changed nothing. Requires sw_may_take_two_slots. */
    bool two_slots;
    /* Under clipping, parameters that leave the device are updated within the next forward, if
     * nothing prevents it (sw_technique_late_update). */
    enum sw_clipped_update clipped_update;
    double late_share; /* of those, in elements, spread evenly over the model; 0 = all of them */
    /* Most bytes in flight, for prefetched loads and for stores each. 0 = a load is issued just
     * before its reader, and a store waits for the previous one. */
    size_t transfer_bytes;
    /* elements gathered ahead of their first reader, if collectives overlap */
    int64_t prefetch_elems;
};
const char *sw_schedule_name(enum sw_step_schedule schedule);
/* True if one run of a program computes all micro-batches of a rank. */
bool sw_schedule_is_at_once(enum sw_step_schedule schedule);

/* Limits in elements, as the configuration gives them. */
struct sw_plan_limits {
    int64_t persistence_elems; /* stage 3: parameters up to this size stay whole on each rank */
    int64_t persistence_total; /* limit for the sum of those parameters */
    int64_t max_live_elems;    /* most elements that are gathered ahead */
    int64_t kept_elems; /* most elements that stay gathered from one micro-batch to the next */
    int64_t reduce_bucket_elems;    /* most gradient elements that travel together */
    int64_t allgather_bucket_elems; /* most elements of updated parameters that travel together */
    /* Tensors destined for the disk stay in host memory as long as its budget has room; of
     * parameters at most this many elements. */
    int64_t host_param_elems;
};

/* The plan's groups of ranks. An exchange names its group by index. These two are always there: all
 * ranks; those along expert, data and context, which have the same parameters, add gradients and
 * divide them by ZeRO. Then come those of them that have the same experts, a group for each other
 * axis with more than one rank, and the groups of ranks that share a part of a parameter. */
enum { SW_GROUP_WORLD, SW_GROUP_DATA, SW_GROUP_COUNT };
/* Index of the group of all ranks along exactly these axes, bits 1 << enum sw_axis; -1 = there is
 * none. */
int sw_plan_group(const struct sw_plan *plan, unsigned axes);
/* The queue of an exchange of forward, by the axes of its group and its verb. */
enum sw_queue sw_exchange_queue(unsigned axes, enum sw_verb verb);

/* Facts for the fingerprint. */
struct sw_plan_math {
    uint64_t extra; /* hash of all else that may change a bit, such as seed and batch */
    const struct sw_graph *same; /* borrowed; the first one without the expert axis; NULL = it */
};

/* The inputs of planning: device, model and training, and the choices made for them. */
struct sw_plan_options {
    /* The host's kernels compute the same bits as the device's. With `host_updates` they update
     * states in host memory in place (ZeRO-Offload). query NULL = the device does all updates. */
    struct sw_plan_kernels device, host;
    const char *kernel_set; /* part of the fingerprint */
    /* Start of host memory that is reserved for staging: transfers that cannot reach the device
     * directly pass through it (struct sw_device). If it is above 0, the inputs of a step lie in
     * host memory, too. */
    size_t staging_bytes;
    struct sw_mesh mesh; /* mesh of the ranks */
    int me;              /* this rank in the mesh */
    /* [stages * chunks + 1] the first block of each part of the model, and the number of blocks.
     * Part c * stages + s is chunk c of stage s. NULL = every rank has the whole model */
    const int *stage_blocks;
    unsigned reduces;                  /* a set of enum sw_reduces */
    bool overlap;                      /* collectives overlap computation */
    bool fp16;                         /* check for overflow, and skip the update if there is one */
    double clip;                       /* 0 = no clipping */
    const struct sw_update_rule *rule; /* NULL = programs of this plan have no update */
    bool keep_gradients;               /* gradient streams stay readable after backward */
    /* keep activations for backward even if an inexpensive op could recompute them */
    bool keep_cheap;
    /* gather what ranks have parts of again for backward, instead of keeping it */
    bool gathers_again;
    struct sw_plan_math math;
    struct sw_plan_limits limits;
    struct sw_policy policy;
    struct sw_plan_refusal *refusal; /* details of a refusal with SW_E_NOMEM; NULL = not wanted */
    /* Budgets that are known to suffice, for the message of a refusal. They matter when one of them
     * exceeds what this plan takes. 0 = unknown. */
    size_t enough[SW_TIER_COUNT];
};

/* Number of ranks that divide the micro-batches of a step among them. */
static inline int sw_data_ranks(const struct sw_plan_options *options)
{
    return sw_mesh_size(&options->mesh, SW_BATCH_AXES);
}
/* The axes of SW_GROUP_DATA, and the number of its ranks. */
unsigned sw_zero_axes(const struct sw_mesh *mesh);
static inline int sw_zero_ranks(const struct sw_plan_options *options)
{
    return sw_mesh_size(&options->mesh, sw_zero_axes(&options->mesh));
}

/* A graph and the kind of program made from it. TRAIN graphs must have their backward appended. */
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

/* Verifies a finished plan: inputs are written before they are read and not overwritten while in
 * use, loads follow their stores, and live buffers do not overlap. Sizes match the graph and the
 * kernels, and budgets hold at every instruction. Not checked: the shapes of operands that a pass
 * substitutes for others. */
sw_status sw_plan_check(const struct sw_plan *plan, const struct sw_plan_options *options);
/* Finds a parameter, or a state that belongs to no parameter; NULL = not in the plan. */
const struct sw_persistent *sw_plan_find(const struct sw_plan *plan, const char *name);
/* Finds a state of a parameter; use: for sums, else 0. */
const struct sw_persistent *sw_plan_find_state(const struct sw_plan *plan, const char *param,
                                               enum sw_state_kind kind, int use);

#include "plan/pipe.h"
#include "plan/query.h"
#include "plan/technique.h"
