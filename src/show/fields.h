// SPDX-License-Identifier: Apache-2.0
// fields - the members of a plan in JSON, a row for each. dump.c writes them, dumped.c reads them
// into records, diff.c compares these. A new row appears in all three. Private to this folder;
// docs/train.md explains the members.
#pragma once

#include "show/private.h"

/* A list has a row X(key, type, presence, compare, value) for each member of an object, in the
 * order in which it is written.
 *
 * key       name of the JSON member and of the record's field
 * type      one of enum sw_field_type, without its prefix
 * presence  NEEDED: a plan without the member is refused; MAY: it may be left out
 * compare   one of enum sw_compare, without its prefix
 * value     an expression for dump.c, in terms of the parameters of the function that writes the
 *           object. ANY, OBJECT and LIST: a call that writes the value, or nothing to leave out the
 *           member */
enum sw_field_type {
    SW_FIELD_TEXT,   /* left out if NULL or empty. Record: the number of the word */
    SW_FIELD_COUNT,  /* an integer that is left out if it is 0 */
    SW_FIELD_NUMBER, /* an integer that is left out if it is negative */
    SW_FIELD_INDEX,  /* the number of an instruction, or negative: left out. Record: plus 1 */
    SW_FIELD_FLAG,   /* left out if false */
    SW_FIELD_ANY,    /* any value. Record: its hash */
    SW_FIELD_OBJECT, /* an object with a list of its own. Record: struct sw_dumped_<key> */
    SW_FIELD_LIST    /* a list of objects. Record: which records of sw_dumped.lists */
};

/* How a member counts when two plans are compared. If several members of an instruction or tensor
 * differ, the last one of this list counts. */
enum sw_compare {
    SW_COMPARE_NOT, /* it follows from others, or differs without a cause */
    /* instructions, tensors, programs: only those with equal keys are compared at all */
    SW_COMPARE_KEY,
    SW_COMPARE_PLACE,  /* another address alone */
    SW_COMPARE_WAITS,  /* an instruction starts under other conditions */
    SW_COMPARE_TARGET, /* the same, of an INDEX: it counts which instruction that is */
    SW_COMPARE_WORK,   /* other sizes, types or kernels */
    SW_COMPARE_TIER,   /* another tier */
    SW_COMPARE_ROW,    /* plans and programs: a row of numbers */
    SW_COMPARE_FIRST,  /* plans: such a row, which comes first and is always shown */
    SW_COMPARE_OTHER   /* plans and programs: its name alone */
};

/* ---- an operand ---- */

/* operand: a struct sw_operand; view: its type and shape, NULL = of no kernel */
#define SW_OPERAND_FIELDS(X)                                                                       \
    X(tier, TEXT, NEEDED, TIER, sw_tier_name(operand->tier))                                       \
    X(offset, NUMBER, NEEDED, PLACE, operand->offset)                                              \
    X(bytes, NUMBER, NEEDED, WORK, operand->bytes)                                                 \
    X(room, COUNT, MAY, WORK, operand->room == operand->bytes ? 0 : operand->room)                 \
    X(rings, ANY, MAY, PLACE, write_rings(operand, out))                                           \
    X(dtype, TEXT, MAY, WORK, view ? sw_dtype_name(view->dtype) : NULL)                            \
    X(shape, ANY, MAY, WORK, write_shape(view ? &view->shape : NULL, out))                         \
    X(strides, ANY, MAY, WORK, write_strides(view, out))

/* ---- an instruction ---- */

#define SW_WAITS_FIELDS(X)                                                                         \
    X(compute, INDEX, MAY, TARGET, instr->waits[SW_QUEUE_COMPUTE])                                 \
    X(comm, INDEX, MAY, TARGET, instr->waits[SW_QUEUE_COMM])                                       \
    X(h2d, INDEX, MAY, TARGET, instr->waits[SW_QUEUE_H2D])                                         \
    X(d2h, INDEX, MAY, TARGET, instr->waits[SW_QUEUE_D2H])                                         \
    X(read, INDEX, MAY, TARGET, instr->waits[SW_QUEUE_READ])                                       \
    X(write, INDEX, MAY, TARGET, instr->waits[SW_QUEUE_WRITE])                                     \
    X(host, INDEX, MAY, TARGET, instr->waits[SW_QUEUE_HOST])                                       \
    X(tensor, INDEX, MAY, TARGET, instr->waits[SW_QUEUE_TENSOR])                                   \
    X(sent, INDEX, MAY, TARGET, instr->waits[SW_QUEUE_SENT])                                       \
    X(received, INDEX, MAY, TARGET, instr->waits[SW_QUEUE_RECEIVED])                               \
    X(sent_back, INDEX, MAY, TARGET, instr->waits[SW_QUEUE_SENT_BACK])                             \
    X(received_back, INDEX, MAY, TARGET, instr->waits[SW_QUEUE_RECEIVED_BACK])

#define SW_WORKSPACE_FIELDS(X)                                                                     \
    X(offset, NUMBER, NEEDED, PLACE, buffer->offset)                                               \
    X(bytes, NUMBER, NEEDED, WORK, buffer->bytes)

/* program, i, instr: the instruction; op: its struct sw_instr_op; sent: its exchange, NULL = it is
 * none */
#define SW_INSTR_FIELDS(X)                                                                         \
    X(verb, TEXT, NEEDED, TIER, sw_verb_name(instr->verb))                                         \
    X(number, NUMBER, NEEDED, NOT, i)                                                              \
    X(name, TEXT, NEEDED, KEY, instr->about->name)                                                 \
    X(queue, TEXT, NEEDED, WAITS, sw_queue_name(instr->queue))                                     \
    X(segment, TEXT, NEEDED, WAITS, sw_segment_name(instr->segment))                               \
    X(stage_chunk, COUNT, MAY, WAITS, instr->chunk)                                                \
    X(phase, TEXT, MAY, KEY, other_phase(instr, op))                                               \
    X(scope, TEXT, MAY, KEY, instr->about->scope)                                                  \
    X(tensor, TEXT, MAY, KEY, instr->about->tensor)                                                \
    X(micro_batch, COUNT, MAY, KEY, instr->micro < 0 ? 0 : instr->micro)                           \
    X(of_step, FLAG, MAY, WORK, instr->micro < 0)                                                  \
    X(recomputed, FLAG, MAY, KEY, op->is_clone)                                                    \
    X(waits, OBJECT, MAY, NOT, write_waits(instr, out))                                            \
    X(retired, INDEX, MAY, TARGET, instr->retired)                                                 \
    X(loop, COUNT, MAY, NOT, instr->turn.loop)                                                     \
    X(pieces, COUNT, MAY, WORK, instr->turn.loop > 0 ? sw_instr_pieces(program, instr) : 0)        \
    X(again, INDEX, MAY, TARGET, instr->turn.again)                                                \
    X(follows, INDEX, MAY, TARGET, instr->follows)                                                 \
    X(group, NUMBER, MAY, WAITS, sent ? sent->group : -1)                                          \
    X(batch, NUMBER, MAY, WAITS, sent ? sent->batch : -1)                                          \
    X(dtype, TEXT, MAY, WORK, sent ? sw_dtype_name(sent->dtype) : NULL)                            \
    X(rows, COUNT, MAY, WAITS, sent ? sent->rows : 0)                                              \
    X(counted, FLAG, MAY, WAITS, sw_instr_is_counted(instr))                                       \
    X(blocking, FLAG, MAY, WAITS, instr->exchange.blocking)                                        \
    X(whole_step, FLAG, MAY, WAITS, instr->exchange.whole_step)                                    \
    X(continues, FLAG, MAY, WAITS, instr->exchange.continues)                                      \
    X(peer, NUMBER, MAY, WORK, instr->verb >= SW_VERB_BROADCAST ? instr->exchange.peer : -1)       \
    X(runs_sent, COUNT, MAY, WORK, above_1(instr->exchange.runs[0]))                               \
    X(runs_received, COUNT, MAY, WORK, above_1(instr->exchange.runs[1]))                           \
    X(predicate, TEXT, MAY, WAITS, predicate_of(instr))                                            \
    X(last_only, FLAG, MAY, WAITS, instr->last_only)                                               \
    X(first_only, FLAG, MAY, WAITS, instr->turn.first_only)                                        \
    X(once, FLAG, MAY, WAITS, instr->turn.once)                                                    \
    X(from_last, FLAG, MAY, WAITS, instr->turn.from_last)                                          \
    X(for_next, FLAG, MAY, WAITS, instr->turn.for_next)                                            \
    X(if_chosen, COUNT, MAY, WAITS, instr->turn.chosen.n)                                          \
    X(kernel, TEXT, MAY, WORK, instr->about->kernel.path)                                          \
    X(attributes, ANY, MAY, WORK, sw_write_attributes(op, out))                                    \
    X(flops, COUNT, MAY, WORK, instr->flops)                                                       \
    X(bytes, COUNT, MAY, WORK, instr->bytes)                                                       \
    X(workspace, OBJECT, MAY, NOT, write_workspace(program, instr, out))                           \
    X(n_out, COUNT, MAY, WORK, instr->verb == SW_VERB_KERNEL ? instr->n_out : 0)                   \
    X(operands, LIST, NEEDED, NOT, write_operands(program, i, out))

/* ---- a program ---- */

/* full: with instructions */
#define SW_PROGRAM_FIELDS(X)                                                                       \
    X(kind, TEXT, NEEDED, KEY, sw_program_kind_name(program->kind))                                \
    X(instructions, NUMBER, NEEDED, ROW, program->n_instrs)                                        \
    X(micro_batches, NUMBER, NEEDED, ROW, program->micro_batches)                                  \
    X(flops, NUMBER, NEEDED, ROW, program->flops)                                                  \
    X(recomputed_blocks, NUMBER, MAY, ROW, program->recomputed.blocks)                             \
    X(transient_bytes, NUMBER, NEEDED, ROW, program->peak.bytes[SW_TIER_DEVICE])                   \
    X(peak_live_bytes, NUMBER, NEEDED, ROW, program->peak.live_bytes)                              \
    X(kept_bytes, COUNT, MAY, ROW, program->peak.kept_bytes)                                       \
    X(peak_instruction, NUMBER, NEEDED, ROW, program->peak.instr)                                  \
    X(inputs, ANY, MAY, OTHER, write_inputs(full ? program : NULL, out))                           \
    X(outputs, ANY, MAY, OTHER, write_outputs(full ? program : NULL, out))                         \
    X(turns, COUNT, MAY, ROW, full && program->n_loops > 0 ? program->turns : 0)                   \
    X(ahead, NUMBER, MAY, ROW, full && program->n_loops > 0 ? sw_loop_ahead(program) : -1)         \
    X(instruction_list, LIST, NEEDED, NOT, write_instrs(full ? program : NULL, out))

/* ---- a parameter or state ---- */

/* plan; item: a struct sw_persistent; slice, part: its layout, NULL = the ranks of the data
 * axis, or of the tensor axis, have the same of it */
#define SW_TENSOR_FIELDS(X)                                                                        \
    X(name, TEXT, NEEDED, KEY, item->name)                                                         \
    X(role, TEXT, NEEDED, WORK, item->role == SW_ROLE_PARAM ? "parameter" : "state")               \
    X(kind, TEXT, MAY, WORK, item->role == SW_ROLE_PARAM ? NULL : word_of_state(item))             \
    X(parameter, TEXT, MAY, WORK, item->param)                                                     \
    X(dtype, TEXT, MAY, WORK, sw_dtype_name(item->dtype))                                          \
    X(shape, ANY, MAY, WORK, write_shape(&item->shape, out))                                       \
    X(whole, ANY, MAY, WORK, write_shape(slice || part ? &item->layout.whole : NULL, out))         \
    X(part, NUMBER, MAY, WORK, part ? part->tensor.rank : -1)                                      \
    X(parts, COUNT, MAY, WORK, part ? part->tensor.size : 0)                                       \
    X(slice, NUMBER, MAY, WORK, slice ? slice->data.rank : -1)                                     \
    X(slices, COUNT, MAY, WORK, slice ? slice->data.size : 0)                                      \
    X(tile_elements, COUNT, MAY, WORK, slice ? slice->tile_elems : 0)                              \
    X(tier, TEXT, NEEDED, TIER, sw_tier_name(item->tier))                                          \
    X(offset, NUMBER, NEEDED, PLACE, item->offset)                                                 \
    X(bytes, NUMBER, NEEDED, WORK, item->bytes)                                                    \
    X(room, NUMBER, MAY, WORK, sw_persistent_taken(item))                                          \
    X(slot_bytes, COUNT, MAY, PLACE, item->slot_bytes)                                             \
    X(pack, TEXT, MAY, PLACE, item->packed_bytes > 0 ? pack_at(plan, item->offset) : NULL)

/* ---- a plan ---- */

/* moved: a struct sw_moved */
#define SW_MOVED_FIELDS(X)                                                                         \
    X(from_host, NUMBER, NEEDED, ROW, moved->bytes.in[SW_TIER_HOST])                               \
    X(to_host, NUMBER, NEEDED, ROW, moved->bytes.out[SW_TIER_HOST])                                \
    X(from_disk, NUMBER, NEEDED, ROW, moved->bytes.in[SW_TIER_DISK])                               \
    X(to_disk, NUMBER, NEEDED, ROW, moved->bytes.out[SW_TIER_DISK])                                \
    X(disk_written_a_parameter, ANY, MAY, NOT, sw_json_write_f64(moved->written_each, out))        \
    X(disk_tb_in_1000_steps, ANY, MAY, NOT, sw_json_write_f64(moved->tb_in_1000_steps, out))

/* plan; full: with instructions; fingerprint: in hexadecimal; roles, tiles: sums over lists of the
 * plan. Other rooms write `chosen` and `prediction`. */
#define SW_PLAN_FIELDS(X)                                                                          \
    X(fingerprint, TEXT, NEEDED, KEY, fingerprint)                                                 \
    X(parameter_bytes, NUMBER, NEEDED, ROW, roles.params)                                          \
    X(state_bytes, NUMBER, NEEDED, ROW, roles.states)                                              \
    X(gradient_bytes, NUMBER, NEEDED, ROW, roles.gradients)                                        \
    X(persistent_bytes, NUMBER, NEEDED, ROW, plan->persistent_bytes[SW_TIER_DEVICE])               \
    X(device_bytes, NUMBER, NEEDED, FIRST, plan->tier_bytes[SW_TIER_DEVICE])                       \
    X(host_bytes, NUMBER, NEEDED, FIRST, plan->tier_bytes[SW_TIER_HOST])                           \
    X(disk_bytes, NUMBER, NEEDED, FIRST, plan->tier_bytes[SW_TIER_DISK])                           \
    X(disk_slots, NUMBER, NEEDED, ROW, plan->update.two_slots ? 2 : 1)                             \
    X(tiled_parameters, NUMBER, NEEDED, ROW, plan->n_tiled)                                        \
    X(tiles, NUMBER, NEEDED, ROW, tiles.n)                                                         \
    X(largest_tile_bytes, NUMBER, NEEDED, ROW, tiles.largest)                                      \
    X(packs, NUMBER, NEEDED, ROW, plan->n_packs)                                                   \
    X(packed_tensors, NUMBER, NEEDED, ROW, sw_plan_count_packed(plan))                             \
    X(programs, LIST, NEEDED, NOT, write_programs(plan, full, out))                                \
    X(groups, ANY, MAY, OTHER, write_groups(full ? plan : NULL, out))                              \
    X(step, ANY, MAY, OTHER, write_step(full ? &plan->step : NULL, out))                           \
    X(persistent, LIST, NEEDED, NOT, write_tensors(full ? plan : NULL, out))                       \
    X(pack_list, ANY, MAY, OTHER, write_packs(full ? plan : NULL, out))                            \
    X(tile_list, ANY, MAY, OTHER, write_tiles(full ? plan : NULL, out))                            \
    X(staging_bytes, NUMBER, MAY, ROW, full ? (int64_t)plan->staging.bytes : -1)                   \
    X(staging, ANY, MAY, OTHER, write_staging(full ? plan : NULL, out))                            \
    X(input_bytes, NUMBER, MAY, ROW, full ? (int64_t)plan->staging.input_bytes : -1)               \
    X(device_budget, COUNT, MAY, ROW, full ? plan->tier_budget[SW_TIER_DEVICE] : 0)                \
    X(host_budget, COUNT, MAY, ROW, full ? plan->tier_budget[SW_TIER_HOST] : 0)                    \
    X(disk_budget, COUNT, MAY, ROW, full ? plan->tier_budget[SW_TIER_DISK] : 0)                    \
    X(micro_steps, COUNT, MAY, ROW, plan->step.rounds)                                             \
    X(moved_in_a_step, OBJECT, MAY, NOT, write_moved(plan, out))                                   \
    X(chosen, ANY, MAY, OTHER, (void)out)                                                          \
    X(prediction, ANY, MAY, NOT, (void)out)

/* ---- records ---- */

/* The field of a record for a row. Absent members are 0. */
#define SW_RECORD(key, type, presence, compare, ...) SW_RECORD_##type(key)
#define SW_RECORD_TEXT(key) int64_t key;
#define SW_RECORD_COUNT(key) int64_t key;
#define SW_RECORD_NUMBER(key) int64_t key;
#define SW_RECORD_INDEX(key) int64_t key;
#define SW_RECORD_FLAG(key) int64_t key;
#define SW_RECORD_ANY(key) uint64_t key;
#define SW_RECORD_OBJECT(key) struct sw_dumped_##key key;
#define SW_RECORD_LIST(key) struct sw_dumped_span key;

/* A range of one of the lists of a plan. */
struct sw_dumped_span {
    int64_t first, n;
};
struct sw_dumped_waits {
    SW_WAITS_FIELDS(SW_RECORD)
};
struct sw_dumped_workspace {
    SW_WORKSPACE_FIELDS(SW_RECORD)
};
struct sw_dumped_moved_in_a_step {
    SW_MOVED_FIELDS(SW_RECORD)
};

/* rest: a hash of all members that have no row */
struct sw_dumped_operand {
    uint64_t rest;
    SW_OPERAND_FIELDS(SW_RECORD)
};
struct sw_dumped_instr {
    uint64_t rest;
    SW_INSTR_FIELDS(SW_RECORD)
};
struct sw_dumped_program {
    uint64_t rest;
    SW_PROGRAM_FIELDS(SW_RECORD)
};
struct sw_dumped_tensor {
    uint64_t rest;
    SW_TENSOR_FIELDS(SW_RECORD)
};
struct sw_dumped_plan {
    uint64_t rest;
    SW_PLAN_FIELDS(SW_RECORD)
};

enum sw_dumped_lists {
    SW_DUMPED_PROGRAMS,
    SW_DUMPED_INSTRS, /* of all programs */
    SW_DUMPED_OPERANDS,
    SW_DUMPED_TENSORS,
    SW_DUMPED_LISTS
};

/* ---- the lists as tables ---- */

struct sw_fields;
struct sw_field {
    const char *key;
    enum sw_field_type type;
    bool needed;
    enum sw_compare compare;
    size_t at;                      /* offset in the record */
    const struct sw_fields *fields; /* OBJECT, LIST: those of the object, or of each element */
};
/* A list as a table. */
struct sw_fields {
    const struct sw_field *at; /* [n] */
    int n;
    size_t bytes;              /* size of the record */
    enum sw_dumped_lists list; /* elements of a LIST: the list that has their records */
    bool may_be_null;          /* elements of a LIST */
};
/* Named after the member whose value has these fields. */
extern const struct sw_fields sw_fields_of_plan, sw_fields_of_programs,
    sw_fields_of_instruction_list, sw_fields_of_operands, sw_fields_of_persistent;
