// SPDX-License-Identifier: Apache-2.0
// ir - the plan's own list (its intermediate representation), which every pass after `fuse` reads
// and rewrites. It begins as the values and ops of a graph. Passes add what a graph knows nothing
// of: where a value lies and how it is spread, and the ops that no device has a kernel for, which
// move bytes between tiers and ranks. Private to the room; lower.c turns a finished list into
// instructions.
#pragma once

#include "plan/plan.h"

/* What many values have alike. Each is held once and never changed (form.c), so that a value is
 * small: of a large model there are millions. */
struct sw_ir_form {
    struct sw_shape shape;
    int64_t strides[SW_MAX_RANK]; /* elements */
    bool contiguous;
    struct sw_init init; /* PARAM */
    const void *data;    /* STATE: of a constant, its elements, in the arena of names; else NULL */
    /* Slice of a flattened tensor that one rank owns: elements [first, first + shape[0]) of
     * `whole`; what lies beyond its end is padding: it begins as zeros, and nobody reads it.
     * whole.rank = -1 where nothing is cut. */
    struct sw_shape whole;
    int64_t first;
    int64_t tile_first;   /* of a tile of a parameter: its first element in all of it */
    int64_t padded_elems; /* storage beyond the shape, so that equal slices can travel; 0 = none */
    int64_t elems;        /* of the shape */
};

/* The forms of a list: open addressing, never more than half full. */
struct sw_ir_forms {
    const struct sw_ir_form **at; /* [cap], in the arena of names; NULL = free */
    int32_t n, cap;
};

/* A value of the graph or of a pass (see struct sw_value_info), and where it lies. */
struct sw_ir_value {
    const struct sw_ir_form *form;
    const char *name;
    int64_t base_offset;
    int32_t producer;
    sw_value base;
    sw_value sparse_index;
    sw_value param;
    int micro; /* see struct sw_ir_op; shared by all: 0 */
    enum sw_dtype dtype : 8;
    enum sw_role role : 8;
    /* ---- placement ---- */
    enum sw_state_kind state : 8; /* STATE */
    /* Kernels of the device never see what lies elsewhere. */
    enum sw_tier tier : 8;
    bool host_computes; /* in host memory: a kernel of the host reads or writes it there */
    bool two_slots;     /* PARAM, STATE: a step writes it beside what it read, and may be undone */
    bool is_tiled;      /* PARAM: ops see values inside it, whole rows, and never all of it */
    bool is_pack;       /* PARAM, STATE: bytes in which several of them lie */
    bool is_viewed;     /* the input of a view */
    bool stays_whole;   /* PARAM: no rank has a slice of it, see sw_choose_whole */
    bool of_runs;       /* STATE: one element for each SW_CODE_RUN of the parameter's */
    bool takes_turns;   /* a piece of an update in a loop: there is room for several of them */
    bool needs_grad;
    bool is_output;
};

/* What an op of the list is: a kernel's, or one that moves bytes. */
enum sw_move {
    SW_MOVE_NONE, /* an op of the graph's kinds */
    /* x in another tier -> its elements first, first + 1, .. here; with ids i32: its rows of these.
     * Of a transient x is the version that its store made, else nobody reads that store, and it is
     * left out. */
    SW_MOVE_LOAD,
    SW_MOVE_STORE, /* s in another tier (in place), x -> s, from element first of s on */
    /* acc f32 [S] (in place), g -> acc: the owner of slice r of g adds the ranks' slices in rank
     * order; where the scalar FIRST is set, or whole_step, the first one is taken as it is;
     * whole_step: also from ranks that have no micro-batch now */
    SW_MOVE_REDUCE,
    SW_MOVE_GATHER, /* slice [S] of each rank -> whole */
    SW_MOVE_MERGE,  /* stats (in place), added up over ranks */
    SW_N_MOVES
};

/* ---- move.c: one row for each move ---- */

/* An output of the op; or an input, of which output `index` is the next version unless it is only
 * read. */
struct sw_move_operand {
    int8_t index;
    bool is_output;
    enum sw_access access : 8;
};
enum { SW_MOVE_OPERANDS = 4 };
struct sw_move_info {
    const char *name;
    enum sw_verb verb[2]; /* of its instruction; [1]: operand 0 is on disk */
    enum sw_queue queue[2];
    int n_in; /* inputs, without the optional ones */
    /* What its instruction has, in this order. The optional ones come last, all or none of them:
     * the rows that a row-sparse move is about. */
    int n_operands, n_optional;
    struct sw_move_operand operands[SW_MOVE_OPERANDS];
    int wire;      /* exchanges: the input whose dtype travels */
    bool collects; /* exchanges: the slices of all members arrive in a workspace */
};
const struct sw_move_info *sw_move_info(enum sw_move move);

/* What a kernel is told beside its operands. Never changed: ops that are copies share it. */
struct sw_ir_detail {
    struct sw_attrs attrs;
    const struct sw_user_op *user;
    uint64_t path;
};

/* An op of the graph (see struct sw_op; sw_ir_math makes one of it), or a move. */
struct sw_ir_op {
    const struct sw_ir_detail *detail;
    /* LOAD, STORE: element of what is offloaded; of an update in pieces, which share their detail:
     * what sw_ir_math adds to attrs.update.first */
    int64_t first;
    sw_value in[SW_MAX_INPUTS];
    sw_value out[SW_MAX_OUTPUTS];
    int32_t scope;
    int micro;    /* vertical schedule: of which of this rank's micro-batches; else 0 */
    int32_t loop; /* done once for each piece of it, see sw_ir_new_loop; 0 = it is in none */
    enum sw_op_kind kind : 8;
    enum sw_phase phase : 8;
    enum sw_move move : 8; /* `kind` means nothing unless this is NONE */
    int8_t group;          /* exchanges: who takes part, of the plan's groups */
    int8_t n_in, n_out;
    bool whole_step : 1;     /* REDUCE */
    bool unless_skipped : 1; /* predicated: not run where the scalar SKIP is set */
    bool in_backward : 1;    /* of the update, and runs within the step's last backward */
    bool commits : 1;        /* of the update, and runs behind all of it that may fail */
    bool is_clone : 1;       /* made by recomputation */
    bool on_host : 1;        /* a kernel of the host, all of whose operands lie there */
};

struct sw_ir_stream {
    sw_value param, grad;
    int micro; /* above 0: continues the use of the stream before */
};

struct sw_ir {
    struct sw_arena names;
    sw_status status;
    char *error; /* message of the first failure (arena) */
    enum sw_dtype dtype;
    struct sw_ir_forms forms;
    struct sw_ir_value *values;
    struct sw_ir_op *ops; /* in an order in which they may run */
    struct sw_scope *scopes;
    struct sw_ir_stream *streams;
    struct sw_named *outputs;
    sw_value *params;       /* in order of first use */
    int32_t *loops;         /* [n_loops] pieces of each */
    struct sw_names leaves; /* by role: what has a name and no producer */
    int32_t n_values, n_ops, n_scopes, n_streams, n_outputs, n_params, n_loops;
    int32_t cap_values, cap_ops, cap_outputs, cap_loops;
    const struct sw_group *groups; /* of the plan; borrowed */
    const char **where;            /* [n_ops] see sw_ir_note_where; NULL = not noted */
    /* of what is added now */
    enum sw_phase phase;
    int micro;
};

/*
 * sw_ir_open - the values and ops of a graph as a list of the plan's own.
 *
 * graph   borrowed for the call; names are copied
 */
sw_status sw_ir_open(const struct sw_graph *graph, struct sw_ir **out);
void sw_ir_close(struct sw_ir *ir); /* NULL is fine */
/* The first failure of what was added, or SW_OK: until then adding does nothing any more. */
sw_status sw_ir_status(const struct sw_ir *ir);
void sw_ir_fail(struct sw_ir *ir, sw_status code, const char *fmt, ...) SW_PRINTF(3, 4);

/* ---- values ---- */

/* Without a name or a producer. */
sw_value sw_ir_new_value(struct sw_ir *ir, enum sw_role role, enum sw_dtype dtype,
                         struct sw_shape shape);
/* Likewise, of a form that a value of the list has. */
sw_value sw_ir_new_like(struct sw_ir *ir, enum sw_role role, enum sw_dtype dtype,
                        const struct sw_ir_form *form);
/* Another value like v, also in where it lies. */
sw_value sw_ir_copy_value(struct sw_ir *ir, sw_value v);
/* A persistent tensor, by name; param may be SW_NO_VALUE. The same name again is the same value. */
sw_value sw_ir_state(struct sw_ir *ir, const char *name, enum sw_dtype dtype, struct sw_shape shape,
                     sw_value param);
/* v has this name from now on (copied), and is found by it where it has no producer. */
bool sw_ir_name_value(struct sw_ir *ir, sw_value v, const char *name);
sw_value sw_ir_find(const struct sw_ir *ir, enum sw_role role, const char *name);
void sw_ir_output(struct sw_ir *ir, const char *name, sw_value v);
/* Of a micro-batch, where the list holds several; SW_NO_VALUE = there is none. */
sw_value sw_ir_find_output(const struct sw_ir *ir, const char *name, int micro);
/* The value whose storage v lies in (v itself for most). */
static inline sw_value sw_ir_root(const struct sw_ir *ir, sw_value v)
{
    return ir->values[v].base >= 0 ? ir->values[v].base : v;
}
/* The version of its storage that v is a view of. */
sw_value sw_ir_version(const struct sw_ir *ir, sw_value v);
/* Elements of it, where its parameter has so many. */
static inline int64_t sw_ir_per_run(const struct sw_ir_value *value, int64_t elems)
{
    return value->of_runs ? sw_ceil_div(elems, SW_CODE_RUN) : elems;
}
size_t sw_ir_bytes(const struct sw_ir_value *value);         /* of its elements, without strides */
size_t sw_ir_storage_bytes(const struct sw_ir_value *value); /* with padding */
static inline bool sw_ir_is_slice(const struct sw_ir_value *value)
{
    return value->form->whole.rank >= 0;
}
/* Of which ops see parts alone: it lies inside a parameter in tiles, or in a state of one. */
bool sw_ir_is_part(const struct sw_ir *ir, sw_value v);
/* A parameter or a state that lies in a pack. */
bool sw_ir_is_packed(const struct sw_ir *ir, sw_value v);

/* The ranks over which slices are spread. */
static inline const struct sw_group *sw_ir_data(const struct sw_ir *ir)
{
    return &ir->groups[SW_GROUP_DATA];
}

/* ---- form.c: what values have alike ---- */

/* The one form of the list that equals `like` (whose `elems` nobody reads); NULL: the list has
 * failed. */
const struct sw_ir_form *sw_ir_form(struct sw_ir *ir, const struct sw_ir_form *like);
/* Row-major, whole. */
const struct sw_ir_form *sw_ir_plain_form(struct sw_ir *ir, struct sw_shape shape);
/* v keeps its form where there is no memory for another; then the list has failed. */
void sw_ir_set_form(struct sw_ir *ir, sw_value v, const struct sw_ir_form *like);
void sw_ir_reshape(struct sw_ir *ir, sw_value v, struct sw_shape shape); /* with its strides */
void sw_ir_pad(struct sw_ir *ir, sw_value v, int64_t padded_elems);
void sw_ir_be_slice(struct sw_ir *ir, sw_value v, struct sw_shape whole, int64_t first);

/* ---- ops ---- */

/* Its index, -1 after a failure; outputs are added behind it. It comes last in the list, in the
 * phase and micro-batch that `ir` says and outside of all scopes: who wants it elsewhere sets its
 * scope, and puts a copy where it belongs with a struct sw_op_order. Adding an op moves `ops`,
 * adding a value moves `values`: what is read of them before is copied. */
int32_t sw_ir_add_op(struct sw_ir *ir, enum sw_op_kind kind, const sw_value *in, int n_in,
                     const struct sw_attrs *attrs);
int32_t sw_ir_add_move(struct sw_ir *ir, enum sw_move move, const sw_value *in, int n_in);
/* Likewise, among the members of one of the plan's groups. */
int32_t sw_ir_add_exchange(struct sw_ir *ir, enum sw_move move, int group, const sw_value *in,
                           int n_in);
/* What has no attributes, as most moves. */
extern const struct sw_ir_detail sw_ir_no_detail;
/* The op as the table of kinds and kernels are shown it; and an op that is to be as `math` says,
 * but for its operands, phase and scope. */
struct sw_op sw_ir_math(const struct sw_ir_op *op);
void sw_ir_take_math(struct sw_ir *ir, struct sw_ir_op *op, const struct sw_op *math);
sw_value sw_ir_add_out(struct sw_ir *ir, int32_t i_op, enum sw_dtype dtype, struct sw_shape shape);
/* An output that lives in the storage of `of` (whole). */
sw_value sw_ir_add_out_in_place(struct sw_ir *ir, int32_t i_op, sw_value of);

/* Traits of its kind; a reduction is a sum like one of a kernel. */
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
/* Between tiers, by the executor and no kernel. */
static inline bool sw_ir_is_transfer(const struct sw_ir_op *op)
{
    return op->move == SW_MOVE_LOAD || op->move == SW_MOVE_STORE;
}
/* The first operand whose bytes waits go by. Of a transfer ranges of what it moves from or to are
 * under way side by side, and are known by their cells, unless kernels of the host work on it. */
static inline int sw_ir_first_touched(const struct sw_ir *ir, const struct sw_ir_op *op)
{
    return sw_ir_is_transfer(op) && !ir->values[sw_ir_root(ir, op->in[0])].host_computes;
}
/* Does an order by touches know its outputs? */
static inline bool sw_ir_touches_outputs(const struct sw_ir *ir, const struct sw_ir_op *op)
{
    return op->move != SW_MOVE_STORE || ir->values[sw_ir_root(ir, op->in[0])].host_computes;
}
/* On all ranks together, by the executor and no kernel. */
static inline bool sw_ir_is_collective(const struct sw_ir_op *op)
{
    return op->move >= SW_MOVE_REDUCE;
}
/* What a transfer moves, where it is on the device. */
sw_value sw_ir_moved(const struct sw_ir_op *op);
/* A move of chosen rows: its optional operands are there. */
bool sw_ir_moves_rows(const struct sw_ir_op *op);
/* The operands of the instruction that a move becomes; returns how many. */
int sw_move_operands(const struct sw_ir_op *op, sw_value out[SW_MOVE_OPERANDS]);
/* SW_E_ARG: the op has other inputs or outputs than its row says. */
sw_status sw_move_check(const struct sw_ir *ir, const struct sw_ir_op *op);
/* A loop: neighbouring ops - loads, one kernel, stores - that are done once for each piece of an
 * update. What they say is of the first piece. A transfer moves as many elements with each as its
 * end here has, the next ones every time; of an operand of the kernel that is longer than a piece
 * the next elements are meant, too. Returns its number, 0 when out of memory. */
int32_t sw_ir_new_loop(struct sw_ir *ir, int32_t pieces);
static inline int64_t sw_ir_pieces(const struct sw_ir *ir, const struct sw_ir_op *op)
{
    return op->loop > 0 ? ir->loops[op->loop - 1] : 1;
}
/* Bytes from a piece to that of the next turn, of a value that takes turns. */
size_t sw_ir_turn_bytes(const struct sw_ir_value *value);
/* Which member of `attrs` it has; an op and its gradient have the same one. */
enum sw_attrs_kind sw_ir_attrs(const struct sw_ir_op *op);
const char *sw_ir_op_name(const struct sw_ir_op *op);
/* What a message calls the place of an op: its scope; outside of all scopes that of what it works
 * on, or the parameter, or the phase. Never empty. */
const char *sw_ir_where(const struct sw_ir *ir, const struct sw_ir_op *op);
/* Finds the places of all ops at once, when the list is complete: a chain of updates is long.
 * false: out of memory */
bool sw_ir_note_where(struct sw_ir *ir);
void sw_ir_forget_where(struct sw_ir *ir);
/* The op with the types of its operands, for kernels and the table of kinds; out->op is `math`. Of
 * the kernels' ops alone. In a loop, of one piece, as all that follows. */
void sw_ir_describe(const struct sw_ir *ir, const struct sw_ir_op *op, struct sw_op *math,
                    struct sw_op_desc *out);
/* See sw_op_flops, sw_op_bytes; moves compute nothing. */
int64_t sw_ir_flops(const struct sw_ir *ir, const struct sw_ir_op *op);
double sw_ir_op_bytes(const struct sw_ir *ir, const struct sw_ir_op *op);

/* ---- the ops in a new order, with those that a pass inserts ---- */

/* A pass opens an order, adds to it all ops that are to stay, as they are or rewritten, with its
 * own between them, and installs it. Ops are copied: `ir->ops` is the old list until then, and what
 * was added to that alone is gone behind it; its outputs may not be read any more. */
struct sw_op_order {
    struct sw_ir_op *ops;
    int32_t n, cap;
};
sw_status sw_op_order_open(struct sw_op_order *order, const struct sw_ir *ir);
void sw_op_order_close(struct sw_op_order *order);
bool sw_op_order_add(struct sw_op_order *order, const struct sw_ir_op *op); /* false: no memory */
/* The order becomes the list of `ir`, and values are told who produces them now. */
void sw_op_order_install(struct sw_op_order *order, struct sw_ir *ir);
