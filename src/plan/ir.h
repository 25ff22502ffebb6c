// SPDX-License-Identifier: Apache-2.0
// ir - the plan's intermediate representation (its "list"), which every pass after `fuse` reads and
// rewrites. It starts as the values and ops of a graph. Passes add what a graph does not know:
// where a value lies, how it is sharded, and the ops that move bytes between tiers and ranks. The
// list is private to this folder; lower.c turns a finished list into instructions.
#pragma once

#include "plan/plan.h"

/* Properties that many values share. Each form is stored once and is immutable (form.c), which
 * keeps values small: a large model has millions. */
struct sw_ir_form {
    struct sw_shape shape;
    int64_t strides[SW_MAX_RANK]; /* in elements */
    bool contiguous;
    struct sw_init init; /* for PARAM */
    const void *data;    /* constant STATE: its elements, in the arena of names; else NULL */
    /* The elements of a whole tensor that the value has. Elements beyond the end of the whole are
     * padding: they start as zeros and nobody reads them. layout.whole is the shape unless the
     * value is sharded. A tile is a whole of its own. */
    struct sw_layout layout;
    int64_t elems; /* elements of the shape */
};

/* The set of a list's forms: an open-addressing hash table, at most half full. */
struct sw_ir_forms {
    const struct sw_ir_form **at; /* [cap], in the arena of names; NULL = free */
    int32_t n, cap;
};

/* Facts about a parameter. */
struct sw_ir_param_facts {
    bool is_tiled;    /* ops see tiles of whole rows, and never the whole parameter */
    bool is_viewed;   /* it is the input of a view */
    bool stays_whole; /* it is not sharded, see sw_choose_whole */
    /* see struct sw_value_info; of SW_GROUP_DATA, ranks along data and context have a local one */
    bool is_local, is_elsewhere;
};

/* Slots of a tensor; LATE: two, and it is updated within the next forward. */
enum sw_slots { SW_SLOTS_ONE, SW_SLOTS_TWO, SW_SLOTS_LATE };

/* A value of the graph or of a pass (see struct sw_value_info), and where it lies. */
struct sw_ir_value {
    const struct sw_ir_form *form;
    const char *name;
    int64_t base_offset;
    int32_t producer;
    sw_value base;
    sw_value sparse_index;
    sw_value param;
    int micro; /* see struct sw_ir_op; 0 for values that micro-batches share */
    enum sw_dtype dtype : 8;
    enum sw_role role : 8;
    /* ---- placement ---- */
    enum sw_state_kind state : 8; /* for STATE */
    uint8_t use;                  /* sums: which use of the parameter */
    /* Kernels of the device only see values on the device. */
    enum sw_tier tier : 8;
    bool host_computes; /* host memory: a kernel of the host reads or writes it in place */
    /* PARAM, STATE: a step writes the second slot, so that the step can be undone */
    enum sw_slots two_slots : 8;
    bool is_pack; /* PARAM, STATE: storage that several of them share */
    struct sw_ir_param_facts param_facts;
    bool takes_turns; /* piece of an update in a loop: there is room for several pieces */
    bool needs_grad;
    bool is_output;
};

/* Kind of an op in the list: computed by a kernel, or moving bytes. */
enum sw_move {
    SW_MOVE_NONE, /* computed by a kernel, see `kind` */
    /* x in another tier -> its elements from `first` on, on the device. With ids i32: those rows of
     * x. With offsets i32 of rows, see sw_ir_waits_for_router. If x is transient, it is the version
     * that its store made; otherwise the store has no reader and is removed. */
    SW_MOVE_LOAD,
    /* s in another tier (in place), x -> s; x is written from element `first` of s on */
    SW_MOVE_STORE,
    /* acc f32 [S] (in place), g -> acc. The owner of shard r of g adds the ranks' shards in rank
     * order. If the scalar FIRST is set, or with whole_step, the first shard replaces acc.
     * whole_step: ranks without a micro-batch take part, too */
    SW_MOVE_REDUCE,
    SW_MOVE_GATHER, /* shard [S] of each rank -> whole */
    SW_MOVE_MERGE,  /* stats (in place), summed over ranks */
    /* These move activations among the members of a group. Slices are cut along a dimension, equal
     * parts of it in rank order. */
    SW_MOVE_ALL_GATHER,     /* x -> the members' x, joined along `dim` */
    SW_MOVE_REDUCE_SCATTER, /* x -> this member's slice of the sum of the members' x, along `dim` */
    SW_MOVE_ALL_TO_ALL,     /* x, cut along `dim` -> the slices from all members, joined along
                             * `to_dim`. With offsets i32 [n, W] of the rows that each member gets,
                             * and of those that it sends: these rows; others become 0 */
    SW_MOVE_ALL_REDUCE,     /* x -> the sum of the members' x */
    SW_MOVE_BROADCAST,      /* x (in place): becomes the x of member `peer` */
    SW_MOVE_SEND,           /* x -> nothing; member `peer` has a RECV for it */
    SW_MOVE_RECV,           /* nothing -> x of member `peer` */
    SW_N_MOVES
};

/* ---- move.c: one row for each move ---- */

/* An output of the op, or an input. Unless an input is only read, output `index` is its next
 * version. */
struct sw_move_operand {
    int8_t index;
    bool is_output;
    enum sw_access access : 8;
};
enum { SW_MOVE_OPERANDS = 4 };
/* To whom an exchange sends messages of one slice. */
enum sw_route {
    SW_ROUTE_NONE,
    SW_ROUTE_ALL,   /* each member to each other one */
    SW_ROUTE_TWICE, /* the same, and then the sums */
    SW_ROUTE_ROOT,  /* the peer to all others */
    SW_ROUTE_TO_PEER,
    SW_ROUTE_FROM_PEER,
};
struct sw_move_info {
    const char *name;
    enum sw_verb verb[2];   /* verb of its instruction; [1]: if operand 0 is on disk */
    enum sw_queue queue[2]; /* transfers; see sw_exchange_queue for exchanges */
    int n_in;               /* number of inputs, without the optional ones */
    /* Operands of its instruction, in this order. The optional ones come last and are all present
     * or all absent; they are the rows of a row-sparse move, or count rows. */
    int n_operands, n_optional;
    struct sw_move_operand operands[SW_MOVE_OPERANDS];
    /* ---- exchanges ---- */
    enum sw_route route;
    int wire;        /* the operand whose dtype travels */
    int slice;       /* the operand that is one member's slice */
    bool is_divided; /* that operand is the slices of all members */
    bool collects;   /* the slices of all members arrive in a workspace */
    bool adds;       /* they are added to an output in the type that travels */
    bool has_dims;   /* they are cut and joined along dimensions, see struct sw_ir_op */
};
const struct sw_move_info *sw_move_info(enum sw_move move);

/* The elements that an update applies to: the layout of `target` has them. */
struct sw_ir_update {
    sw_value param;  /* root of target; its layout has all tiles */
    sw_value target; /* the parameter, or its shard or tile */
    enum sw_moments moments;
};

/* Arguments of a kernel besides its operands. Immutable, since copies of an op share it. */
struct sw_ir_detail {
    struct sw_attrs attrs; /* of an update the rule only, see sw_ir_update_attrs */
    const struct sw_user_op *user;
    uint64_t path;
    struct sw_ir_update update;
};

/* Where an op of forward or backward runs in a stage of a pipeline. */
struct sw_ir_chunk {
    int16_t number;
    bool of_weights; /* backward: in the segment WEIGHTS */
    bool in_forward; /* part of the update of the step before, and runs within the first forward */
};

/* Fields of an exchange. */
struct sw_ir_exchange {
    int16_t peer;       /* with one member: its index within the group */
    int8_t group;       /* participants, as an index into the plan's groups */
    int8_t dim, to_dim; /* dimensions of slices, see enum sw_move */
    bool continues;     /* REDUCE: adds also in the first micro-batch of a step */
};

/* An op of the graph (see struct sw_op; sw_ir_math converts), or a move. */
struct sw_ir_op {
    const struct sw_ir_detail *detail;
    /* LOAD, STORE: first element in the offloaded tensor. Piece of an update: its first element,
     * since pieces share their detail */
    int64_t first;
    sw_value in[SW_MAX_INPUTS];
    sw_value out[SW_MAX_OUTPUTS];
    int32_t scope;
    int micro;    /* index of the micro-batch in the program; 0 if it holds one only */
    int32_t loop; /* runs once per piece of this loop, see sw_ir_new_loop; 0 = in no loop */
    enum sw_op_kind kind : 8;
    enum sw_phase phase : 8;
    enum sw_move move : 8; /* `kind` is meaningless unless this is NONE */
    int8_t n_in;
    struct sw_ir_exchange exchange;
    int8_t n_out;
    bool whole_step : 1;     /* for REDUCE */
    bool unless_skipped : 1; /* predicated: does not run if the scalar SKIP is set */
    bool in_backward : 1;    /* part of the update, but runs within the step's last backward */
    bool commits : 1;        /* part of the update that runs after all of it that may fail */
    bool is_clone : 1;       /* made by recomputation */
    bool on_host : 1;        /* kernel of the host; all its operands lie in host memory */
    struct sw_ir_chunk chunk;
};

struct sw_ir_output {
    const char *name;
    sw_value value;
    sw_value param; /* gradients that are kept: their parameter; else SW_NO_VALUE */
    enum sw_state_kind kind : 8;
    uint8_t use;
};

struct sw_ir_stream {
    sw_value param, grad;
    int micro;      /* above 0: continues the use of the previous stream */
    bool continues; /* the same within a micro-step: the gradient of another rank's micro-batch */
    int from;       /* 1 + the stage of a pipeline that computes the gradient; 0 = this one */
};

/* The first failure of an addition. */
struct sw_ir_failure {
    sw_status status;
    char *message; /* in the arena of names */
};
struct sw_ir_outputs {
    struct sw_ir_output *at; /* [cap] */
    int32_t n, cap;
};
/* A stage of a pipeline whose ops read a parameter. */
struct sw_ir_holder {
    sw_value param;
    int stage;
};
struct sw_ir_params {
    sw_value *at;     /* [n] in order of first use */
    sw_value *absent; /* [n_absent] the same of those that only other stages of a pipeline have */
    int32_t n, n_absent;
    /* those of which this rank has a part only (sw_graph_part), and the group of the ranks that
     * have the others */
    struct sw_param_part *parts; /* [n_splits]; the last ones cut nothing here */
    int32_t n_parts, n_splits, group;
    bool is_cut;     /* some part is of the tensor axis */
    int32_t experts; /* the group along the expert axis; -1 = none */
    /* the parameters of all stages by param and stage, and the group of the stages */
    struct sw_ir_holder *holders; /* [n_holders] */
    int32_t n_holders, pipe;
    int32_t local; /* the group of the ranks that have the same experts; -1 = this one alone */
};
struct sw_ir_loops {
    int32_t *pieces; /* [cap] number of pieces of each loop */
    int32_t n, cap;
};
struct sw_ir_room { /* allocated values and ops */
    int32_t values, ops;
};
/* Attributes of ops and values that are added from now on. */
struct sw_ir_next {
    enum sw_phase phase;
    int micro;
    struct sw_ir_chunk chunk;
};

struct sw_ir {
    struct sw_arena names;
    struct sw_ir_failure failure;
    enum sw_dtype dtype;
    struct sw_ir_forms forms;
    struct sw_ir_value *values;
    struct sw_ir_op *ops; /* in an order in which they can run */
    struct sw_scope *scopes;
    struct sw_ir_stream *streams;
    struct sw_ir_outputs outputs;
    struct sw_ir_params params;
    struct sw_ir_loops loops;
    struct sw_names leaves; /* values with a name and no producer, by role */
    int32_t n_values, n_ops, n_scopes, n_streams;
    struct sw_ir_room room;
    const struct sw_group *groups; /* groups of the plan; borrowed */
    const char **where;            /* [n_ops] see sw_ir_note_where; NULL = not computed */
    struct sw_ir_next next;
};

/*
 * sw_ir_open - makes a list from the values and ops of a graph.
 *
 * graph   borrowed for the call; names are copied
 */
sw_status sw_ir_open(const struct sw_graph *graph, struct sw_ir **out);
void sw_ir_close(struct sw_ir *ir); /* NULL is a no-op */
/* The first failure of an addition, or SW_OK. After a failure, additions are no-ops. */
sw_status sw_ir_status(const struct sw_ir *ir);
void sw_ir_fail(struct sw_ir *ir, sw_status code, const char *fmt, ...) SW_PRINTF(3, 4);

/* How the tensor or the expert axis cuts a parameter, or the one that it is a tile of; NULL = each
 * of its ranks has all of it. */
const struct sw_param_part *sw_ir_param_part(const struct sw_ir *ir, sw_value param);
/* The same, also if it would cut the parameter on more ranks than there are here. */
const struct sw_param_part *sw_ir_param_split(const struct sw_ir *ir, sw_value param);
/* Number of elements of a parameter's part, its first ones, that `rank` of the tensor axis counts
 * in sums over all ranks; INT64_MAX = all. Of ranks that hold the same, the first counts. */
int64_t sw_ir_counted(const struct sw_ir *ir, sw_value param, int rank);
/* Place in the part of a parameter of the first element of v, a shard of it or of its tile. */
int64_t sw_ir_origin(const struct sw_ir *ir, sw_value param, sw_value v);

/* ---- copies.c: parameters that several stages of a pipeline have ---- */

/* Lists the parameters that ops of each stage read. op_part: [n_ops] part of the model, which stage
 * part % stages has; negative = not counted */
sw_status sw_ir_list_holders(struct sw_ir *ir, const int *op_part, int stages);
/* Lists the parameters that only other ranks of the expert axis have as absent. Without stages. */
sw_status sw_ir_drop_elsewhere(struct sw_ir *ir);
/* The stages that have a parameter, or the one that it is a tile of, ascending; *out_n is 0 without
 * a pipeline. */
const struct sw_ir_holder *sw_ir_holders(const struct sw_ir *ir, sw_value param, int *out_n);
/* True if the stage has the parameter, which this one may not have. */
bool sw_ir_is_held(const struct sw_ir *ir, const char *param, int stage);
/* True if other stages have a copy of it. */
bool sw_ir_is_shared(const struct sw_ir *ir, sw_value param);
/* Adds a SEND to a stage, or a RECV from it, whose output the caller adds. sent: for SEND. Returns
 * the op, or -1 after a failure. */
int32_t sw_ir_add_message(struct sw_ir *ir, enum sw_move move, int stage, sw_value sent);

/* ---- values ---- */

/* Lets the ops and values that are added next belong to the backward of a micro-batch, in the
 * segment in which v is made. */
void sw_ir_go_to_maker(struct sw_ir *ir, sw_value v, int micro);
/* Adds a value without a name or a producer. */
sw_value sw_ir_new_value(struct sw_ir *ir, enum sw_role role, enum sw_dtype dtype,
                         struct sw_shape shape);
/* Adds such a value with a form that a value of the list has. */
sw_value sw_ir_new_like(struct sw_ir *ir, enum sw_role role, enum sw_dtype dtype,
                        const struct sw_ir_form *form);
/* Adds a value like v, with the same placement. */
sw_value sw_ir_copy_value(struct sw_ir *ir, sw_value v);
/* Adds a persistent tensor that belongs to no parameter. The same name yields the same value. */
sw_value sw_ir_state(struct sw_ir *ir, const char *name, enum sw_dtype dtype,
                     struct sw_shape shape);
/* Adds a persistent tensor of a parameter; use: for sums, else 0. The same parameter, kind and use
 * yield the same value. */
sw_value sw_ir_param_state(struct sw_ir *ir, sw_value param, enum sw_state_kind kind, int use,
                           enum sw_dtype dtype, struct sw_shape shape);
/* Names v (the name is copied). If it has no producer, sw_ir_find finds it by that name. */
bool sw_ir_name_value(struct sw_ir *ir, sw_value v, const char *name);
sw_value sw_ir_find(const struct sw_ir *ir, enum sw_role role, const char *name);
/* Finds the parameter or state that v is in the list `other`; SW_NO_VALUE = not there. */
sw_value sw_ir_find_same(const struct sw_ir *other, const struct sw_ir *ir, sw_value v);
/* Returns the text and the key that identify v in a table of names: its name and `base`, or for a
 * state of a parameter that parameter's name and a key made from `base`, kind and use. */
const char *sw_ir_key(const struct sw_ir *ir, sw_value v, int32_t base, int32_t *key);
static inline int32_t sw_state_key(int32_t base, enum sw_state_kind kind, int use)
{
    return base | (int32_t)kind << 8 | use << 16;
}
void sw_ir_output(struct sw_ir *ir, const char *name, sw_value v);
/* Makes v an output of a parameter: the gradient of a use, or its index. */
void sw_ir_param_output(struct sw_ir *ir, sw_value param, enum sw_state_kind kind, int use,
                        sw_value v);
/* The output of a micro-batch, if the list holds several; SW_NO_VALUE = not found. */
sw_value sw_ir_find_output(const struct sw_ir *ir, const char *name, int micro);
/* The value whose storage v lies in; v itself unless it is a view or a later version. */
static inline sw_value sw_ir_root(const struct sw_ir *ir, sw_value v)
{
    return ir->values[v].base >= 0 ? ir->values[v].base : v;
}
/* The version of its storage that v is a view of, through chains of views; else v itself. */
sw_value sw_ir_version(const struct sw_ir *ir, sw_value v);
static inline bool sw_ir_is_of_runs(const struct sw_ir_value *value)
{
    return sw_state_infos[value->state].of == SW_STATE_OF_RUNS;
}
/* Number of elements of a state whose parameter has `elems` elements. */
static inline int64_t sw_ir_per_run(const struct sw_ir_value *value, int64_t elems)
{
    return sw_ir_is_of_runs(value) ? sw_ceil_div(elems, SW_CODE_RUN) : elems;
}
size_t sw_ir_bytes(const struct sw_ir_value *value); /* bytes of its elements, without strides */
size_t sw_ir_storage_bytes(const struct sw_ir_value *value); /* with padding */
static inline bool sw_ir_is_slice(const struct sw_ir_value *value)
{
    return value->form->layout.is_sliced;
}
/* True if ops see only parts of v: it is part of a tiled parameter, or of a state of one. */
bool sw_ir_is_part(const struct sw_ir *ir, sw_value v);
/* True for a parameter or a state that lies in a pack. */
bool sw_ir_is_packed(const struct sw_ir *ir, sw_value v);

/* The group of ranks that tensors are sharded over. */
static inline const struct sw_group *sw_ir_data(const struct sw_ir *ir)
{
    return &ir->groups[SW_GROUP_DATA];
}
/* The group over which a parameter is sharded, or that of a state, a tile or a copy; -1 = no other
 * rank has it. */
int32_t sw_ir_spread_group(const struct sw_ir *ir, sw_value v);
/* This rank in it. */
struct sw_coord sw_ir_spread(const struct sw_ir *ir, sw_value v);
/* This rank's shard of v; the layout of v itself if v is a shard. run: see struct sw_layout */
struct sw_layout sw_ir_shard_of(const struct sw_ir *ir, sw_value v, int64_t run);

/* ---- form.c: properties that values share ---- */

/* The form of the list that equals `like`. `elems` is ignored, and so is layout.whole unless the
 * layout is sharded. NULL = out of memory, and the
 * list has failed. */
const struct sw_ir_form *sw_ir_form(struct sw_ir *ir, const struct sw_ir_form *like);
/* The form of a row-major tensor that is not sharded. */
const struct sw_ir_form *sw_ir_plain_form(struct sw_ir *ir, struct sw_shape shape);
/* Changes the form of v. If memory runs out, v keeps its form and the list has failed. */
void sw_ir_set_form(struct sw_ir *ir, sw_value v, const struct sw_ir_form *like);
void sw_ir_reshape(struct sw_ir *ir, sw_value v, struct sw_shape shape); /* sets the strides, too */
/* Changes which elements v has. The shape follows if the layout is sharded. */
void sw_ir_set_layout(struct sw_ir *ir, sw_value v, const struct sw_layout *layout);

/* ---- ops ---- */

/* Appends an op and returns its index, or -1 after a failure; outputs are added separately. The op
 * gets the current phase and micro-batch of `ir` and no scope. To put it elsewhere, set its scope
 * and add a copy to a struct sw_op_order. Adding an op may move `ops`, and adding a value may move
 * `values`; copy what is needed before. */
int32_t sw_ir_add_op(struct sw_ir *ir, enum sw_op_kind kind, const sw_value *in, int n_in,
                     const struct sw_attrs *attrs);
int32_t sw_ir_add_move(struct sw_ir *ir, enum sw_move move, const sw_value *in, int n_in);
/* Appends an exchange among the members of one of the plan's groups. */
int32_t sw_ir_add_exchange(struct sw_ir *ir, enum sw_move move, int group, const sw_value *in,
                           int n_in);
/* Appends an op that has this detail, which the list owns (sw_ir_keep_detail). */
int32_t sw_ir_add_detailed(struct sw_ir *ir, enum sw_op_kind kind, const sw_value *in, int n_in,
                           const struct sw_ir_detail *detail);
/* Copies a detail to the memory of the list. NULL: the list has failed. */
const struct sw_ir_detail *sw_ir_keep_detail(struct sw_ir *ir, const struct sw_ir_detail *like);
/* The detail of ops without attributes, such as most moves. */
extern const struct sw_ir_detail sw_ir_no_detail;
/* sw_ir_math converts an op for the table of kinds and for kernels. sw_ir_take_math makes `op`
 * compute what `math` says; operands, phase and scope stay. */
struct sw_op sw_ir_math(const struct sw_ir *ir, const struct sw_ir_op *op);
void sw_ir_take_math(struct sw_ir *ir, struct sw_ir_op *op, const struct sw_op *math);
/* Derives the attributes of an update from the layout of its target. Its ops share them, but for
 * the first element of a piece. */
struct sw_update_op_attrs sw_ir_update_attrs(const struct sw_ir *ir,
                                             const struct sw_ir_detail *detail);
sw_value sw_ir_add_out(struct sw_ir *ir, int32_t i_op, enum sw_dtype dtype, struct sw_shape shape);
/* Adds an output that lives in the storage of `of` (a root value). */
sw_value sw_ir_add_out_in_place(struct sw_ir *ir, int32_t i_op, sw_value of);

/* Tests the traits of its kind. REDUCE counts as a sum. */
static inline bool sw_ir_has(const struct sw_ir_op *op, unsigned traits)
{
    return op->move == SW_MOVE_NONE ? sw_kind_has(op->kind, traits)
                                    : op->move == SW_MOVE_REDUCE && (traits & SW_TRAIT_SUM);
}
static inline bool sw_ir_is(const struct sw_ir_op *op, enum sw_op_kind kind)
{
    return op->move == SW_MOVE_NONE && op->kind == kind;
}
static inline bool sw_ir_is_on_disk(const struct sw_ir *ir, sw_value v)
{
    return ir->values[sw_ir_root(ir, v)].tier == SW_TIER_DISK;
}
/* True if v is the version of a tensor with two slots that this step has stored, within its
 * forward. Loads of it read the slot that was written. */
static inline bool sw_ir_is_renewed(const struct sw_ir *ir, sw_value v)
{
    const struct sw_ir_value *root = &ir->values[sw_ir_root(ir, v)];
    return ir->values[v].producer >= 0 && root->two_slots == SW_SLOTS_LATE &&
           !sw_state_is_sum(root->state);
}
/* True for moves between tiers. The executor does them, not a kernel. */
static inline bool sw_ir_is_transfer(const struct sw_ir_op *op)
{
    return op->move == SW_MOVE_LOAD || op->move == SW_MOVE_STORE;
}
/* First operand that dependency tracking looks at. Disjoint ranges of an offloaded tensor may be in
 * flight together; they are tracked per cell (cells.c). Exception: host kernels use the tensor. */
static inline int sw_ir_first_touched(const struct sw_ir *ir, const struct sw_ir_op *op)
{
    return sw_ir_is_transfer(op) && !ir->values[sw_ir_root(ir, op->in[0])].host_computes;
}
/* True if dependency tracking by touches covers the outputs of the op. */
static inline bool sw_ir_touches_outputs(const struct sw_ir *ir, const struct sw_ir_op *op)
{
    return op->move != SW_MOVE_STORE || ir->values[sw_ir_root(ir, op->in[0])].host_computes;
}
/* True for moves among all ranks of a group. The executor does them, not a kernel. */
static inline bool sw_ir_is_collective(const struct sw_ir_op *op)
{
    return op->move >= SW_MOVE_REDUCE;
}
/* The value on the device that a transfer moves. */
sw_value sw_ir_moved(const struct sw_ir_op *op);
/* True for a move of rows, by the optional operands. */
bool sw_ir_moves_rows(const struct sw_ir_op *op);
/* True for a load that is left out if the offsets of rows, its operand 1, have no row of the
 * experts attrs.experts.expert, attrs.experts.n of them (chosen.c). */
static inline bool sw_ir_waits_for_router(const struct sw_ir_op *op)
{
    return op->move == SW_MOVE_LOAD && op->n_in > 1 && op->detail->attrs.experts.n > 0;
}
/* Lists the operands of the instruction that a move becomes; returns their number. */
int sw_move_operands(const struct sw_ir_op *op, sw_value out[SW_MOVE_OPERANDS]);
/* SW_E_ARG: the op has other inputs or outputs than the row of its move. */
sw_status sw_move_check(const struct sw_ir *ir, const struct sw_ir_op *op);
/* Opens a loop: consecutive ops (loads, one kernel, stores) that run once per piece of an update.
 * The ops describe the first piece. With each piece, a transfer moves the next elements, as many as
 * its operand on the device has. A kernel operand that is longer than a piece advances in the same
 * way. Returns the number of the loop, or 0 when out of memory. */
int32_t sw_ir_new_loop(struct sw_ir *ir, int32_t pieces);
static inline int64_t sw_ir_pieces(const struct sw_ir *ir, const struct sw_ir_op *op)
{
    return op->loop > 0 ? ir->loops.pieces[op->loop - 1] : 1;
}
/* Bytes from a piece to the piece of the next turn, for a value that takes turns. */
size_t sw_ir_turn_bytes(const struct sw_ir_value *value);
/* The member of `attrs` that the op has; an op and its gradient have the same one. */
enum sw_attrs_kind sw_ir_attrs(const struct sw_ir_op *op);
const char *sw_ir_op_name(const struct sw_ir_op *op);
/* The place of an op as messages name it: its scope, else the scope of its operand, the parameter,
 * or the phase. Never empty. */
const char *sw_ir_where(const struct sw_ir *ir, const struct sw_ir_op *op);
/* Computes the places of all ops at once when the list is complete, since a chain of updates is
 * long. false = out of memory */
bool sw_ir_note_where(struct sw_ir *ir);
void sw_ir_forget_where(struct sw_ir *ir);
/* Describes the op with the types of its operands, for kernels and the table of kinds. Only for ops
 * that kernels compute; out->op is `math`. For an op in a loop, this and the functions below count
 * one piece. */
void sw_ir_describe(const struct sw_ir *ir, const struct sw_ir_op *op, struct sw_op *math,
                    struct sw_op_desc *out);
/* See sw_op_flops and sw_op_bytes. Moves compute nothing. */
int64_t sw_ir_flops(const struct sw_ir *ir, const struct sw_ir_op *op);
double sw_ir_op_bytes(const struct sw_ir *ir, const struct sw_ir_op *op);

/* ---- replacing the ops of a list ---- */

/* A pass opens an order and adds to it all ops that stay, rewritten or not, with its own among
 * them. Then it installs the order. Ops are copied: `ir->ops` is the old list until then. Ops that
 * were added only to the old list are dropped, and their outputs must not be read any more. */
struct sw_op_order {
    struct sw_ir_op *ops;
    int32_t n, cap;
};
sw_status sw_op_order_open(struct sw_op_order *order, const struct sw_ir *ir);
void sw_op_order_close(struct sw_op_order *order);
/* A kernel or a move with one output, which the caller sets. Phase, scope and predicates are those
 * of `of`. */
struct sw_ir_op sw_ir_beside(enum sw_op_kind kind, const struct sw_ir_op *of);
struct sw_ir_op sw_ir_move_beside(enum sw_move move, const struct sw_ir_op *of);
/* false = out of memory */
bool sw_op_order_add(struct sw_op_order *order, const struct sw_ir_op *op);
/* The order becomes the list of `ir`; the producers of values are updated. */
void sw_op_order_install(struct sw_op_order *order, struct sw_ir *ir);
