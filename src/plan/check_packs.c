// SPDX-License-Identifier: Apache-2.0
// Verifies the packs of a plan, which check.c does not know. A pack moves as a whole. Ops use
// members of it and nothing else. Nothing that was written to a pack is lost, or read from disk
// before it is there.
#include <stdlib.h>
#include <string.h>

#include "plan/private.h"

struct check {
    const struct sw_plan *plan;
    const struct sw_program *program;
    const struct sw_ir *ir;
    /* [n_values] index into `known` for packs, their copies, and values that lie in either; -1 =
     * none of these, as for most values of a large plan */
    int32_t *place_of;
    struct known *known;
    int32_t n_known;
};

struct copy {
    sw_value pack;    /* the pack that it is a copy of; SW_NO_VALUE = none */
    int32_t loaded;   /* instruction that loaded it; -1 = it is memory to be filled */
    int32_t at_least; /* it has what was stored before this instruction; -1 = it is empty */
};

struct on_disk {
    sw_value newer; /* the copy that was written and not stored yet; SW_NO_VALUE = none */
    int32_t stored; /* the latest instruction that stored it; -1 = none */
};

/* Linked lists of values; SW_NO_VALUE ends a list. Each pack has a list of its members, the earlier
 * ones first. Each copy has a list of its writes, the latest first. */
struct known {
    sw_value first_member, last_member; /* for a pack */
    sw_value next_member;               /* for a member */
    sw_value last_write, write_before;  /* for a copy; for a value in a copy */
    int32_t written;                    /* for a value in a copy: instruction that wrote it */
    struct copy copy;                   /* for a copy */
    struct on_disk on_disk;             /* for a pack */
};

static struct known *known(const struct check *c, sw_value v)
{
    return &c->known[c->place_of[v]];
}

static size_t byte_of(const struct sw_ir_value *info)
{
    return (size_t)info->base_offset * sw_dtype_bytes(info->dtype);
}

/* ---- places ---- */

/* A member lies where its pack has it, and shares no bytes with an earlier member. */
static sw_status check_member(const struct check *c, sw_value v)
{
    const struct sw_ir_value *info = &c->ir->values[v], *pack = &c->ir->values[info->base];
    const struct sw_buffer *buffer = &c->program->buffers[c->program->buffer_of[info->base]];
    const struct sw_persistent *item = sw_plan_item(c->plan, c->ir, v);
    const size_t at = byte_of(info), bytes = sw_ir_storage_bytes(info);
    if (!item || item->tier != SW_TIER_DISK || item->offset != buffer->offset + at ||
        item->slot_bytes != buffer->slot_bytes || at % SW_PLAN_ALIGN != 0 ||
        item->packed_bytes < bytes || at + item->packed_bytes > buffer->bytes ||
        at + bytes > sw_ir_storage_bytes(pack) || pack->role != info->role) {
        return SW_FAIL(SW_E_ARG, "plan: %s is not where %s has it, at byte %zu", info->name,
                       pack->name, at);
    }
    for (sw_value w = known(c, info->base)->first_member; w != v; w = known(c, w)->next_member) {
        const struct sw_ir_value *other = &c->ir->values[w];
        if (byte_of(other) < at + item->packed_bytes &&
            at < byte_of(other) + sw_round_up(sw_ir_storage_bytes(other), SW_PLAN_ALIGN)) {
            return SW_FAIL(SW_E_ARG, "plan: %s and %s share bytes of %s", other->name, info->name,
                           pack->name);
        }
    }
    return SW_OK;
}

/* A pack lies on the disk in whole blocks. Its slots do not overlap. */
static sw_status check_place(const struct check *c, sw_value pack)
{
    const struct sw_buffer *buffer = &c->program->buffers[c->program->buffer_of[pack]];
    const size_t end = buffer->offset + buffer->slot_bytes + buffer->bytes;
    if (buffer->tier != SW_TIER_DISK || buffer->offset % SW_PLAN_DISK_ALIGN != 0 ||
        (buffer->slot_bytes > 0 && buffer->slot_bytes < buffer->bytes) ||
        buffer->slot_bytes % SW_PLAN_DISK_ALIGN != 0 || end > c->plan->tier_bytes[SW_TIER_DISK]) {
        return SW_FAIL(SW_E_ARG, "plan: %s has no place on the disk", c->ir->values[pack].name);
    }
    return SW_OK;
}

/* ---- transfers and uses ---- */

static sw_status fail(const struct check *c, int32_t i, sw_value pack, const char *why)
{
    return SW_FAIL(SW_E_ARG, "plan: instruction %d (%s of %s) %s", i,
                   sw_ir_op_name(&c->ir->ops[c->program->instrs[i].op]), c->ir->values[pack].name,
                   why);
}

static bool is_same_part(const struct sw_ir_value *a, const struct sw_ir_value *b)
{
    return a->dtype == b->dtype && a->base_offset == b->base_offset &&
           sw_shape_equal(&a->form->shape, &b->form->shape);
}

/* True if the version of a member in `copy` is written before instruction `end`. */
static bool is_written(const struct check *c, sw_value copy, sw_value member, int32_t end)
{
    for (sw_value v = known(c, copy)->last_write; v >= 0; v = known(c, v)->write_before) {
        if (known(c, v)->written < end && is_same_part(&c->ir->values[v], &c->ir->values[member])) {
            return true;
        }
    }
    return false;
}

/* True if the copy is complete: it was loaded, or all members were written. */
static bool is_whole(const struct check *c, sw_value copy, int32_t end)
{
    const struct copy *its = &known(c, copy)->copy;
    sw_value v =
        its->loaded < 0 && its->pack >= 0 ? known(c, its->pack)->first_member : SW_NO_VALUE;
    for (; v >= 0; v = known(c, v)->next_member) {
        if (!is_written(c, copy, v, end)) {
            return false;
        }
    }
    return true;
}

/* A transfer of a pack moves all of it. A load comes after the store of everything written so far.
 * A store has a complete copy that is not older than the last one stored. */
static sw_status check_transfer(const struct check *c, int32_t i)
{
    const struct sw_ir_op *op = &c->ir->ops[c->program->instrs[i].op];
    const sw_value pack = sw_ir_root(c->ir, op->in[0]);
    const sw_value here = sw_ir_moved(op);
    const sw_value root = sw_ir_root(c->ir, here);
    if (!c->ir->values[pack].is_pack) {
        const sw_value of = c->place_of[root] < 0 ? SW_NO_VALUE : known(c, root)->copy.pack;
        return of < 0 ? SW_OK : fail(c, i, of, "moves it to another place");
    }
    struct copy *copy = &known(c, root)->copy;
    struct on_disk *there = &known(c, pack)->on_disk;
    if ((op->in[0] != pack && !sw_ir_is_renewed(c->ir, op->in[0])) || op->first != 0 ||
        c->ir->values[here].base_offset != 0 ||
        (op->move == SW_MOVE_LOAD && (sw_ir_moves_rows(op) || here != root)) ||
        sw_transfer_bytes(c->ir, op) != sw_ir_storage_bytes(&c->ir->values[pack])) {
        return fail(c, i, pack, "does not move all of it");
    }
    if (op->move == SW_MOVE_LOAD) {
        *copy = (struct copy){pack, i, i};
        return there->newer < 0 ? SW_OK : fail(c, i, pack, "comes before what was written");
    }
    if (copy->pack != pack || copy->at_least < there->stored || !is_whole(c, root, i)) {
        return fail(c, i, pack, "stores what is older, or not all of it");
    }
    *there = (struct on_disk){SW_NO_VALUE, i};
    copy->at_least = i;
    return SW_OK;
}

/* True if v is a member of the pack, or a version of one. */
static bool is_member(const struct check *c, sw_value pack, sw_value v)
{
    const struct sw_ir_value *info = &c->ir->values[v];
    for (sw_value w = known(c, pack)->first_member; w >= 0; w = known(c, w)->next_member) {
        const struct sw_ir_value *member = &c->ir->values[w];
        if (is_same_part(member, info)) {
            return info->param < 0 || info->param == w || info->param == member->param;
        }
    }
    return false;
}

/* True if instruction i may run although the one that loaded its operand did not: in a step that is
 * skipped, in a backward that is not the last, or in a forward that is not the first. */
static bool may_run_without(const struct check *c, int32_t i, const struct copy *copy)
{
    const struct sw_ir_op *op = &c->ir->ops[c->program->instrs[i].op];
    const struct sw_ir_op *load =
        copy->loaded < 0 ? op : &c->ir->ops[c->program->instrs[copy->loaded].op];
    return (load->unless_skipped && !op->unless_skipped) ||
           (load->in_backward && !op->in_backward) ||
           (load->chunk.in_forward && !op->chunk.in_forward);
}

/* Checks operand v of instruction i, which may lie in a copy of a pack. It must be a member. The
 * copy must be loaded whenever i runs, and no other copy may have unstored writes. */
static sw_status check_use(const struct check *c, int32_t i, sw_value v, bool written)
{
    const sw_value root = sw_ir_root(c->ir, v);
    if (c->ir->values[root].is_pack) {
        return fail(c, i, root, "uses what lies on the disk");
    }
    struct copy *copy = &known(c, root)->copy;
    const sw_value pack = copy->pack;
    if (pack < 0) {
        return SW_OK;
    }
    if (!is_member(c, pack, v)) {
        return fail(c, i, pack, "uses what is no member of it");
    }
    if (may_run_without(c, i, copy)) {
        return fail(c, i, pack, "may run where it is not loaded");
    }
    struct on_disk *there = &known(c, pack)->on_disk;
    if (there->newer >= 0 && there->newer != root) {
        return fail(c, i, pack, "uses another copy than the one that was written");
    }
    if (written) {
        there->newer = root;
        copy->at_least = copy->at_least < 0 ? i : copy->at_least;
    }
    return SW_OK;
}

/* Checks uses. A parameter that the update overwrites completely is not read, so it may still be
 * missing. */
static sw_status check_uses(const struct check *c, int32_t i)
{
    const struct sw_ir_op *op = &c->ir->ops[c->program->instrs[i].op];
    for (int k = 0; k < op->n_in; k++) {
        const sw_value root = sw_ir_root(c->ir, op->in[k]);
        if (c->place_of[root] < 0) {
            continue;
        }
        const struct copy *copy = &known(c, root)->copy;
        const bool writes_whole =
            sw_ir_has(op, SW_TRAIT_ELEMENTS) && k == 0 && c->ir->values[op->in[k]].dtype == SW_F16;
        SW_TRY(check_use(c, i, op->in[k], false));
        if (copy->pack >= 0 && copy->loaded < 0 && !writes_whole) {
            return fail(c, i, copy->pack, "reads what was not loaded");
        }
    }
    for (int k = 0; k < op->n_out; k++) {
        if (op->out[k] >= 0 && c->place_of[sw_ir_root(c->ir, op->out[k])] >= 0) {
            SW_TRY(check_use(c, i, op->out[k], true));
        }
    }
    return SW_OK;
}

/* Follows the instructions and checks transfers and uses. At the end nothing may be unstored. */
static sw_status check_moves(const struct check *c)
{
    const struct sw_program *program = c->program;
    for (int32_t i = 0; i < program->n_instrs; i++) {
        const bool moves = sw_ir_is_transfer(&c->ir->ops[program->instrs[i].op]);
        SW_TRY(moves ? check_transfer(c, i) : check_uses(c, i));
    }
    for (sw_value v = 0; v < c->ir->n_values; v++) {
        if (c->ir->values[v].is_pack && known(c, v)->on_disk.newer >= 0) {
            return SW_FAIL(SW_E_ARG, "plan: what is written to %s is never stored",
                           c->ir->values[v].name);
        }
    }
    return SW_OK;
}

struct at { /* a buffer on disk; pack: SW_NO_VALUE = not in a pack */
    size_t offset, end;
    int32_t buffer;
    sw_value pack;
};

static int by_offset(const void *a, const void *b)
{
    const struct at *x = a, *y = b;
    return x->offset != y->offset ? (x->offset > y->offset) - (x->offset < y->offset)
                                  : (x->buffer > y->buffer) - (x->buffer < y->buffer);
}

/* Checks the buffers on disk in the order of their addresses: no buffer begins inside a pack, and
 * no pack inside another buffer. */
static sw_status check_apart(const struct check *c)
{
    const struct sw_program *program = c->program;
    struct at *all = sw_alloc("plan", ((size_t)program->n_buffers + 1) * sizeof *all);
    /* the pack and the buffer with the largest end so far */
    const struct at *pack = NULL, *last = NULL;
    int32_t n = 0;
    sw_status st = SW_OK;
    SW_TRY_ALLOC(all, "checking the plan");
    for (int32_t b = 0; b < program->n_buffers; b++) {
        const struct sw_buffer *buffer = &program->buffers[b];
        const bool is_pack = buffer->value >= 0 && c->ir->values[buffer->value].is_pack;
        if (buffer->tier == SW_TIER_DISK) {
            all[n++] =
                (struct at){buffer->offset, buffer->offset + buffer->slot_bytes + buffer->bytes, b,
                            is_pack ? buffer->value : SW_NO_VALUE};
        }
    }
    qsort(all, (size_t)n, sizeof *all, by_offset);
    for (int32_t i = 0; i < n && st >= 0; i++) {
        const struct at *now = &all[i], *before = now->pack >= 0 ? last : pack;
        if (before && now->offset < before->end && now->end > before->offset) {
            const bool first = now->pack < 0;
            st = SW_FAIL(SW_E_ARG, "plan: %s and buffer %d share bytes of the disk",
                         c->ir->values[first ? before->pack : now->pack].name,
                         first ? now->buffer : before->buffer);
        }
        last = !last || now->end > last->end ? now : last;
        pack = now->pack >= 0 && (!pack || now->end > pack->end) ? now : pack;
    }
    sw_free(all);
    return st;
}

/* Gives v an entry in `known`. */
static void know(struct check *c, sw_value v)
{
    if (c->place_of[v] < 0) {
        c->place_of[v] = c->n_known++;
    }
}

/* The copy on the device that a transfer of a pack moves; SW_NO_VALUE for all other ops. */
static sw_value copy_of(const struct check *c, const struct sw_ir_op *op)
{
    const bool moves = sw_ir_is_transfer(op);
    return moves && c->ir->values[sw_ir_root(c->ir, op->in[0])].is_pack
               ? sw_ir_root(c->ir, sw_ir_moved(op))
               : SW_NO_VALUE;
}

/* Lists packs and copies, then the values in them. */
static void list_known(struct check *c)
{
    const struct sw_ir *ir = c->ir;
    memset(c->place_of, 0xff, (size_t)ir->n_values * sizeof *c->place_of);
    for (int32_t i = 0; i < c->program->n_instrs; i++) {
        const sw_value copy = copy_of(c, &ir->ops[c->program->instrs[i].op]);
        if (copy >= 0) {
            know(c, copy);
        }
    }
    for (sw_value v = 0; v < ir->n_values; v++) {
        if (ir->values[v].is_pack) {
            know(c, v);
        }
    }
    for (sw_value v = 0; v < ir->n_values; v++) {
        if (ir->values[v].base >= 0 && c->place_of[ir->values[v].base] >= 0) {
            know(c, v);
        }
    }
}

/* Builds the list of members of each pack. */
static void list_members(const struct check *c)
{
    for (sw_value v = 0; v < c->ir->n_values; v++) {
        const sw_value pack = c->ir->values[v].base;
        if (!sw_ir_is_packed(c->ir, v)) {
            continue;
        }
        struct known *its = known(c, pack);
        *(its->first_member < 0 ? &its->first_member : &known(c, its->last_member)->next_member) =
            v;
        its->last_member = v;
    }
}

/* Builds the list of writes of each copy, and sets the pack of each copy that is stored. A copy
 * that is filled without a load has no other link to its pack. */
static void list_writes(const struct check *c)
{
    for (int32_t i = 0; i < c->program->n_instrs; i++) {
        const struct sw_ir_op *op = &c->ir->ops[c->program->instrs[i].op];
        const sw_value copy = op->move == SW_MOVE_STORE ? copy_of(c, op) : SW_NO_VALUE;
        if (copy >= 0) { /* the pack that it is stored to, if it is not loaded */
            known(c, copy)->copy.pack = sw_ir_root(c->ir, op->in[0]);
        }
        for (int k = 0; k < op->n_out; k++) {
            const sw_value v = op->out[k], root = v < 0 ? SW_NO_VALUE : c->ir->values[v].base;
            if (root >= 0 && c->place_of[root] >= 0) {
                known(c, v)->write_before = known(c, root)->last_write;
                known(c, root)->last_write = v;
                known(c, v)->written = i;
            }
        }
    }
}

static sw_status check_packs(const struct check *c)
{
    list_members(c);
    list_writes(c);
    for (sw_value v = 0; v < c->ir->n_values; v++) {
        SW_TRY(c->ir->values[v].is_pack ? check_place(c, v) : SW_OK);
    }
    SW_TRY(check_apart(c));
    for (sw_value v = 0; v < c->ir->n_values; v++) {
        SW_TRY(sw_ir_is_packed(c->ir, v) ? check_member(c, v) : SW_OK);
    }
    return check_moves(c);
}

sw_status sw_plan_check_packs(const struct sw_plan *plan, const struct sw_program *program)
{
    struct check c = {.plan = plan, .program = program, .ir = program->ir};
    const size_t n = (size_t)c.ir->n_values;
    bool any = false;
    for (sw_value v = 0; v < c.ir->n_values && !any; v++) {
        any = c.ir->values[v].is_pack;
    }
    if (!any) {
        return SW_OK;
    }
    c.place_of = sw_alloc("plan", n * sizeof *c.place_of);
    SW_TRY_ALLOC(c.place_of, "checking the plan");
    list_known(&c);
    sw_status st = SW_OK;
    c.known = sw_alloc("plan", (size_t)c.n_known * sizeof *c.known);
    if (!c.known) {
        st = SW_FAIL(SW_E_NOMEM, "out of host memory for checking the plan");
    }
    for (int32_t i = 0; i < c.n_known && st >= 0; i++) {
        c.known[i] = (struct known){SW_NO_VALUE,
                                    SW_NO_VALUE,
                                    SW_NO_VALUE,
                                    SW_NO_VALUE,
                                    SW_NO_VALUE,
                                    -1,
                                    .copy = {SW_NO_VALUE, -1, -1},
                                    .on_disk = {SW_NO_VALUE, -1}};
    }
    st = st < 0 ? st : check_packs(&c);
    sw_free(c.place_of);
    sw_free(c.known);
    return st;
}
