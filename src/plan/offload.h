// SPDX-License-Identifier: Apache-2.0
// offload - shared by the files of the pass that puts values into tiers (tiers.c, loads.c, pack.c,
// fetch.c, pieces.c, host_update.c; offload.c is the pass).
#pragma once

#include "plan/private.h"

/* State of the pass. Arrays have room for the values that the pass adds, unless said otherwise. */
struct sw_offload {
    struct sw_ir *ir;
    const struct sw_ir *first; /* list of the plan's first program; NULL = `ir` is it */
    const struct sw_plan_options *options;
    size_t reserved; /* bytes of host memory that no tensor gets, such as staging memory */
    int32_t n_ops, n_values;
    int32_t i_op; /* op being rewritten */
    struct sw_op_order order;
    struct sw_places places;
    /* [n_values] by offloaded value: its current copy on the device, SW_NO_VALUE = not loaded; the
     * block segment in which it was loaded, or for a weight read last; and n_before at that point.
     * By tile: its latest copy; the block segment in which an update has left it for the next
     * reader, -1 = none has */
    sw_value *here;
    int64_t *loaded_in;
    int32_t *when;
    sw_value *stored; /* [n_values] its version after its stores, which has no reader */
    /* [n_values] the offloaded value that it is a loaded, written or stored version of;
     * SW_NO_VALUE = none */
    sw_value *home;
    /* [n_values] the offloaded copy of a transient; SW_NO_VALUE = it stays on the device */
    sw_value *offloaded;
    int *read_in; /* [n_values] the latest segment in which a transient is read; see tiers.c */
    int32_t *update_of; /* [n_values] for parameters, the first op of the update; -1 = none */
    /* [n_ops + 1] number of forward and backward ops before an op, not counting sums and updates */
    int32_t *n_before;
    struct sw_offload_packs {
        /* [n_values + 2] by pack: number of members; end of the ops that touch it, in touch_ops.
         * NULL if there are no packs */
        int32_t *n_members, *touches_of;
        int32_t *touch_ops;
    } packs;
    struct sw_offload_left {
        int64_t states; /* bytes of optimizer states that may still leave the device */
        size_t host;    /* bytes of host memory that can cache tensors of the disk */
        int64_t host_param_elems;
        enum sw_tier grads_tier;
    } left;
};

/* ---- offload.c ---- */

/* True for a lookup in an offloaded table that is not loaded for another reason: only its rows are
 * loaded. Of a table that ranks have parts of, all is loaded, as indices name rows of others. */
bool sw_offload_reads_rows(const struct sw_offload *p, const struct sw_ir_op *op);

/* ---- tiers.c ---- */

/* True if op i reads the gradient of a tile later than right after its producer. In that case other
 * tiles need the memory in between. */
bool sw_offload_reads_late(const struct sw_offload *p, int32_t i, sw_value v);
/* Chooses the tier of all values, packs small ones, and makes the offloaded copies of transients.
 * false = out of memory */
bool sw_offload_choose_tiers(struct sw_offload *p);

/* ---- loads.c ---- */

/* The offloaded value that v is a version of; SW_NO_VALUE if v is on the device. */
sw_value sw_offload_home(const struct sw_offload *p, sw_value v);
/* True if `what` is on the device. A copy that a block loads stays for all ops of the block.
 * Exception: the sum of a tile leaves, to
 * make room for those of other tiles. */
bool sw_offload_is_here(const struct sw_offload *p, const struct sw_ir_op *op, sw_value what);
/* The offloaded value of operand k of op; also covers transients of an earlier segment. */
sw_value sw_offload_root(const struct sw_offload *p, const struct sw_ir_op *op, int k);
/* Returns the value that a load of `what` reads: the offloaded copy of a transient; the version
 * that this step has stored, if the update runs within forward; else `what`. */
sw_value sw_offload_current(const struct sw_offload *p, const struct sw_ir_op *reader,
                            sw_value what);
/* Loads elements from `first` on, as many as `shape` has. SW_NO_VALUE when out of memory. */
sw_value sw_offload_load_part(struct sw_offload *p, const struct sw_ir_op *reader, sw_value what,
                              int64_t first, struct sw_shape shape);
bool sw_offload_load(struct sw_offload *p, const struct sw_ir_op *reader, sw_value what);
/* Allocates device memory without a load, for a value that is fully written before it is read. An
 * example is an fp16 working copy that is made from its master. */
bool sw_offload_make_room(struct sw_offload *p, const struct sw_ir_op *writer, sw_value what);
/* `version`: the version of `home` after the store. */
bool sw_offload_store_as(struct sw_offload *p, const struct sw_ir_op *writer, sw_value home,
                         int64_t first, sw_value here, sw_value version);
/* `here` is a version of the copy that was loaded from element `first` on. */
bool sw_offload_store(struct sw_offload *p, const struct sw_ir_op *writer, sw_value state,
                      int64_t first, sw_value here);
/* First element of operand v in the offloaded tensor. 0 unless v is a part of it (sw_ir_is_part).
 * Not base_offset: for a member of a pack, that counts from the start of the pack. */
int64_t sw_offload_part_first(const struct sw_offload *p, sw_value v);
/* A view of a part of the copy on the device; `version`: the current version of the whole. */
sw_value sw_offload_view(struct sw_offload *p, const struct sw_ir_op *reader, sw_value version,
                         int64_t first, enum sw_dtype dtype, struct sw_shape shape);
/* A new version of `of`, in the same bytes. */
sw_value sw_offload_version(struct sw_offload *p, sw_value of);

/* ---- pack.c ---- */

/* A view of member v, or of a version of it, in a pack that is on the device. */
sw_value sw_offload_view_member(struct sw_offload *p, const struct sw_ir_op *reader, sw_value pack,
                                sw_value v);
/* Counts the members of packs, and lists the ops that touch each. false = out of memory */
bool sw_offload_list_packs(struct sw_offload *p);
/* True if every member is written before it is read, from the present op on. */
bool sw_offload_writes_pack(const struct sw_offload *p, const struct sw_ir_op *op, sw_value pack);
/* Stores the whole pack once for all that the ops of a place have written. */
bool sw_offload_store_pack(struct sw_offload *p, const struct sw_ir_op *writer, sw_value pack);

/* ---- fetch.c ---- */

/* True if the op overwrites operand k completely: it begins a sum, or is an update that makes an
 * fp16 copy from its master. */
bool sw_offload_overwrites(const struct sw_offload *p, const struct sw_ir_op *op, int k,
                           sw_value what);
/* Replaces operand k by its copy on the device, loading it if needed. A tile is loaded for one
 * op. */
bool sw_offload_fetch(struct sw_offload *p, struct sw_ir_op *op, int k);
/* Output v becomes the current version of the loaded copy, or of a member of a loaded pack. */
void sw_offload_commit(struct sw_offload *p, sw_value v, sw_value here);

/* ---- pieces.c ---- */

/* True if the states of the update are offloaded, and longer than a piece. */
bool sw_offload_goes_in_pieces(const struct sw_offload *p, const struct sw_ir_op *op);
bool sw_offload_update_in_pieces(struct sw_offload *p, struct sw_ir_op *op);

/* ---- host_update.c ---- */

/* True if the update may run on the host in place: its states lie in host memory, and nothing of it
 * is on disk. */
bool sw_offload_runs_on_host(const struct sw_offload *p, const struct sw_ir_op *op);
/* ZeRO-Offload: gradients are copied to the host, where the states are, and the parameter is copied
 * back. */
bool sw_offload_update_on_host(struct sw_offload *p, struct sw_ir_op *op);
