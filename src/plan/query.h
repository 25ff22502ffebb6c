// SPDX-License-Identifier: Apache-2.0
// query - what a finished plan's lists say about its instructions, values and buffers, for rooms
// that describe plans or predict them. They see no list. Part of the public interface of plan.
#pragma once

#include "plan/plan.h"

/* ---- exchanges ---- */

/* True for an exchange of the rows of experts, with row_elems elements each. Operands 2 and 3 are
 * the offsets (struct sw_routes) of those that it sends and gets. Others do not travel, and become
 * 0. */
static inline bool sw_instr_is_counted(const struct sw_instr *instr)
{
    return instr->verb == SW_VERB_ALL_TO_ALL && instr->exchange.row_elems > 0;
}
/* The parts of an exchange's workspace, as offsets: n slices that have arrived, n slices that are
 * sent, and the fp32 sums of one slice. Parts that it does not need have no bytes. */
struct sw_exchange_areas {
    size_t arrived, packed, sums, bytes;
};
struct sw_exchange_areas sw_instr_areas(const struct sw_instr *instr, int n);

/* ---- memory and bytes of a plan ---- */

/* Divides the staging memory among the queues, as sw_plan_open does. */
void sw_plan_share_staging(struct sw_plan *plan);
/* Bytes that it takes in its tier. */
size_t sw_persistent_taken(const struct sw_persistent *item);
/* Bytes that second slots take in a tier. */
size_t sw_plan_second_places(const struct sw_plan *plan, enum sw_tier tier);

/* The program whose transients take most of a tier. */
const struct sw_program *sw_plan_largest_program(const struct sw_plan *plan, enum sw_tier tier);
/* Prints the `most` largest values that are alive at the peak of a program, in one line. */
void sw_plan_largest(const struct sw_program *program, int most, struct sw_str *out);

/* Bytes that the first program moves between tiers in an optimizer step with `rounds`
 * micro-steps. */
struct sw_transfers {
    int64_t in[SW_TIER_COUNT], out[SW_TIER_COUNT]; /* from a tier to the device, and back */
    /* counted at run time: loads that wait for the router, of experts with rows, and of others */
    int64_t chosen[SW_TIER_COUNT], unchosen[SW_TIER_COUNT];
};
struct sw_transfers sw_plan_transfers(const struct sw_plan *plan, int64_t rounds);
/* Bytes that this rank sends to the other members of a group in an optimizer step. Of rows of
 * gradients it counts the most. */
int64_t sw_plan_group_bytes(const struct sw_plan *plan, int group);

/* ---- rank.c: what a plan says about other ranks of its stage ---- */

/* The mesh of a plan's groups. */
struct sw_mesh sw_plan_mesh(const struct sw_plan *plan);
/* A group of the plan as it is for another rank. mesh: the plan's; ranks: [members], filled and
 * borrowed */
struct sw_group sw_plan_group_of_rank(const struct sw_plan *plan, const struct sw_mesh *mesh,
                                      int group, int rank, int *ranks);
/* Micro-batches that a rank has in a step. */
int64_t sw_plan_rounds_of_rank(const struct sw_plan *plan, const struct sw_mesh *mesh, int rank);
/*
 * sw_plan_open_like - makes the plan of another rank of the same stage, for a walk: its groups and
 * phases. All else is borrowed from `plan`, which is one of a rank that has a micro-batch in each
 * micro-step. Ranks of a stage have the same instructions.
 *
 * out   the caller's: sw_plan_close_like
 */
sw_status sw_plan_open_like(const struct sw_plan *plan, int rank, struct sw_plan **out);
void sw_plan_close_like(struct sw_plan *plan); /* NULL is allowed */

/* ---- query.c: instructions, values and buffers ---- */

/* The op that an instruction runs. Its operands are values of the program's list. */
struct sw_instr_op {
    struct sw_op math; /* of a move, `kind` and `attrs` are meaningless */
    /* the member of math.attrs that the op has; of a move, SW_ATTRS_NONE */
    enum sw_attrs_kind attrs;
    int micro;     /* its micro-batch in the program */
    bool is_clone; /* backward computes again what forward computed */
};
struct sw_instr_op sw_instr_op(const struct sw_program *program, int32_t i);

struct sw_value_facts {
    const char *name; /* of a parameter, state or input; NULL if an op made the value */
    enum sw_role role;
    enum sw_dtype dtype;
    int micro;           /* its micro-batch in the program */
    int64_t whole_elems; /* of the tensor that it is a slice of; else its own */
    size_t bytes;        /* of its elements */
};
struct sw_value_facts sw_program_value(const struct sw_program *program, sw_value v);
/* Number of values of the program's list; they are numbered from 0. */
int32_t sw_program_n_values(const struct sw_program *program);
/* Address of element 0 of v in the arena of its tier. v must have a buffer. */
size_t sw_program_address(const struct sw_program *program, sw_value v);

/* The parameters of a program, tiles for tiled ones, in the order of their first use. */
const sw_value *sw_program_params(const struct sw_program *program, int32_t *out_n);
/* The gradient streams of a program: one for each use of a parameter that is trained. */
int32_t sw_program_n_streams(const struct sw_program *program);
sw_value sw_program_stream_param(const struct sw_program *program, int32_t i);

/* Contents of an exchange of a training program. */
struct sw_exchanged {
    sw_value param;     /* the parameter, or the tile, that travels; SW_NO_VALUE = none */
    int64_t elems;      /* of a member's slice */
    bool is_row_sparse; /* REDUCE: a gradient that is zero but for some rows */
};
struct sw_exchanged sw_instr_exchanged(const struct sw_program *program, int32_t i);

/* Contents of a buffer that is not persistent. */
enum sw_buffer_use {
    SW_USE_ACTIVATION,
    SW_USE_GRADIENT,  /* also a gradient on its way to the owners of its slices */
    SW_USE_GATHERED,  /* a tensor whose slices were gathered */
    SW_USE_LOADED,    /* a parameter, an optimizer state or a pack from another tier */
    SW_USE_ARRIVING,  /* slices from other ranks */
    SW_USE_WORKSPACE, /* of a kernel */
    SW_USE_COUNT
};
/* out: [n_buffers], meaningless for persistent ones. SW_E_NOMEM */
sw_status sw_program_uses(const struct sw_program *program, enum sw_buffer_use *out);

/* Number of parameters and states in packs. */
int32_t sw_plan_count_packed(const struct sw_plan *plan);

/* ---- load.c: the work of an instruction ---- */

enum sw_load {
    /* floating-point operations of matrix products and attention, by dtype of the factors */
    SW_LOAD_PRODUCTS_F32,
    SW_LOAD_PRODUCTS_BF16,
    SW_LOAD_PRODUCTS_F16,
    SW_LOAD_OTHER,     /* bytes that all other computation reads and writes */
    SW_LOAD_COPIES_IN, /* bytes copied between host and device */
    SW_LOAD_COPIES_OUT,
    SW_LOAD_DISK_READ, /* bytes read from and written to disk */
    SW_LOAD_DISK_WRITTEN,
    SW_LOAD_SENT, /* bytes sent to other ranks */
    SW_LOAD_HOST, /* bytes that kernels of the host read and write */
    SW_LOAD_COUNT
};
const char *sw_load_name(enum sw_load kind);
/* The kind and amount of work of running instruction i once. Exchanges of a batch are counted one
 * by one. */
enum sw_load sw_instr_load(const struct sw_plan *plan, const struct sw_program *program, int32_t i,
                           double *out_work);
/* Number of ops of all programs: a measure of the work of planning. */
int64_t sw_plan_count_ops(const struct sw_plan *plan);

/* ---- consequences of options ---- */

/* True if an update may use two slots: all that it writes can go to a second slot or be kept until
 * the step is settled. Some of it must be on disk. */
bool sw_may_take_two_slots(const struct sw_plan_options *options);
/* True with "reduce": "boundary" and more than one micro-batch per rank. Otherwise the sum is in
 * the canonical order. */
bool sw_sums_before_reducing(const struct sw_plan_options *options);
