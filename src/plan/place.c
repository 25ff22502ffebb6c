// SPDX-License-Identifier: Apache-2.0
// Placement of values in tiers (ZeRO-Offload, Ren et al. 2021; ZeRO-Infinity, Rajbhandari et al.
// 2021). Optimizer states, sums of gradients and, at stage 3, parameters may lie in host memory or
// on disk. So may values that one segment keeps for a later one.
//
// An offloaded value is loaded into device memory before the first op of a block, or of an update,
// that uses it. That op and later ones use the copy. A result is stored at once. Because of
// liveness, the device holds the parameters of one block, and the states of one tensor, at a time.
// An update with long states loads them in pieces.
//
// Small tensors on disk lie in packs (pack.c), which are loaded and stored as a whole, once for all
// ops that use their members. No operand changes its value, so training stays bit-identical.
#include <string.h>

#include "plan/private.h"

enum { HAS_TO_STAY = -1 };

struct pass {
    struct sw_ir *ir;
    const struct sw_ir *first;
    const struct sw_plan_options *options;
    sw_value *here; /* [n_values] its current copy on the device; SW_NO_VALUE = not loaded */
    int64_t *place; /* [n_values] place where it was loaded, see sw_ir_block_segment */
    int32_t *when;  /* [n_values] and n_before at that point */
    /* [n_values] the offloaded value that it is a loaded, written or stored version of;
     * SW_NO_VALUE = none */
    sw_value *home;
    int32_t *
        /* [n_ops + 1] number of forward and backward ops before an op, not counting sums and
         * updates */
        n_before;
    int32_t i_op, n_ops; /* op being rewritten; number of ops */
    sw_value *stored;    /* [n_values] its version after its stores, which has no reader */
    /* [n_values] the offloaded copy of a transient; SW_NO_VALUE = it stays on the device */
    sw_value *offloaded;
    int *read_in; /* [n_values] the latest segment in which a transient is read; see find_readers */
    int32_t *update_of; /* [n_values] for parameters, the first op of the update; -1 = none */
    struct sw_op_order order;
    int32_t n_values;
    /* by pack: number of members, and where the ops that touch it start in touch_ops; NULL if there
     * are no packs */
    int32_t *n_members, *touches_of; /* [n_values + 2] */
    int32_t *touch_ops;
    int64_t states_left; /* bytes of optimizer states that may still leave the device */
    enum sw_tier grads_tier;
    size_t host_left; /* bytes of host memory that can cache tensors of the disk */
    int64_t host_param_elems_left;
};

/* ---- tiers ---- */

static bool is_sum_state(const struct sw_ir_value *value)
{
    return value->state == SW_STATE_SUM || value->state == SW_STATE_FURTHER_SUM;
}

/* Parameters that stay whole on each rank because of the threshold stay on the device, too. */
bool sw_param_leaves(const struct sw_ir *ir, const struct sw_plan_options *options, sw_value param)
{
    const struct sw_ir_value *info = &ir->values[param];
    return sw_ir_data(ir)->n > 1
               ? sw_ir_is_slice(info)
               : info->form->elems > options->limits.persistence_elems && !info->is_viewed;
}

static size_t bytes_of(const struct sw_ir_value *info)
{
    return sw_round_up(sw_ir_storage_bytes(info), SW_PLAN_ALIGN);
}

/* A value with two slots takes two places. */
static size_t places_of(const struct sw_ir_value *info)
{
    return bytes_of(info) * (info->two_slots ? 2 : 1);
}

/* Host memory is a cache of the disk: tensors that fit stay there. */
static enum sw_tier cached(struct pass *p, enum sw_tier tier, const struct sw_ir_value *info)
{
    const size_t bytes = places_of(info);
    if (tier != SW_TIER_DISK || bytes > p->host_left) {
        return tier;
    }
    p->host_left -= bytes;
    return SW_TIER_HOST;
}

static enum sw_tier tier_of(struct pass *p, sw_value v)
{
    const struct sw_ir_value *info = &p->ir->values[v];
    const size_t bytes = bytes_of(info);
    if (info->base >= 0) {
        return SW_TIER_DEVICE;
    }
    const sw_value known = p->first && info->role == SW_ROLE_PARAM
                               ? sw_ir_find(p->first, SW_ROLE_PARAM, info->name)
                               : SW_NO_VALUE;
    if (known >= 0) {
        return (enum sw_tier)p->first->values[known].tier;
    }
    if (info->state == SW_STATE_OPTIMIZER) {
        const bool in_tiles = info->param >= 0 && p->ir->values[info->param].is_tiled;
        if (p->states_left < (int64_t)bytes && !in_tiles) {
            return SW_TIER_DEVICE;
        }
        p->states_left -= (int64_t)bytes;
        return cached(p, p->options->policy.states_tier, info);
    }
    if (is_sum_state(info)) {
        return p->grads_tier;
    }
    if (info->role != SW_ROLE_PARAM || info->producer >= 0 ||
        !sw_param_leaves(p->ir, p->options, v)) {
        return SW_TIER_DEVICE;
    }
    const int64_t elems = info->form->elems;
    if (p->options->policy.params_tier != SW_TIER_DISK || elems > p->host_param_elems_left) {
        return p->options->policy.params_tier;
    }
    p->host_param_elems_left -= elems;
    return cached(p, p->options->policy.params_tier, info);
}

/* True if op i reads the gradient of a tile later than right after its producer. In that case other
 * tiles need the memory in between. */
static bool reads_late(const struct pass *p, int32_t i, sw_value v)
{
    const struct sw_ir_value *info = &p->ir->values[v];
    return info->role == SW_ROLE_GRAD && info->param >= 0 && sw_ir_is_part(p->ir, info->param) &&
           p->n_before[i] > p->n_before[info->producer + 1];
}

/* The tier where a transient waits for a later segment. Outputs stay on the device. */
static enum sw_tier waits_on(const struct pass *p, sw_value v)
{
    enum { SMALL = 256 }; /* transfers of fewer bytes are not worthwhile */
    const struct sw_ir_value *info = &p->ir->values[v];
    if (p->grads_tier == SW_TIER_DEVICE && p->options->policy.activations_tier == SW_TIER_DEVICE) {
        return SW_TIER_DEVICE;
    }
    if (info->base >= 0 || info->producer < 0 || info->is_output || info->form->padded_elems > 0 ||
        (info->role != SW_ROLE_TRANSIENT && info->role != SW_ROLE_GRAD) ||
        sw_ir_bytes(info) < SMALL || !info->form->contiguous) {
        return SW_TIER_DEVICE;
    }
    return p->read_in[v] == SW_SEGMENT_UPDATE     ? p->grads_tier
           : p->read_in[v] == SW_SEGMENT_BACKWARD ? p->options->policy.activations_tier
                                                  : SW_TIER_DEVICE;
}

/* Finds the segment of the last read. A value stays on the device if other values lie in it, or if
 * a later segment reads it as a different form. */
static void find_readers(struct pass *p)
{
    const struct sw_ir *ir = p->ir;
    for (int32_t i = 0; i < ir->n_ops; i++) {
        const struct sw_ir_op *op = &ir->ops[i];
        for (int k = 0; k < op->n_in; k++) {
            const sw_value v = op->in[k];
            const int32_t producer = v < 0 ? -1 : ir->values[v].producer;
            if (producer < 0 || p->read_in[v] == HAS_TO_STAY) {
                continue;
            }
            const bool later = sw_op_segment(op) > sw_op_segment(&ir->ops[producer]);
            const bool view = sw_ir_has(op, SW_TRAIT_VIEW);
            if (later && (view || sw_ir_is_collective(op))) {
                p->read_in[v] = HAS_TO_STAY;
            } else if (!view && reads_late(p, i, v)) {
                p->read_in[v] = SW_SEGMENT_UPDATE;
            } else if (later) {
                p->read_in[v] = (int)sw_op_segment(op);
            }
        }
    }
    for (sw_value v = 0; v < p->n_values; v++) {
        if (ir->values[v].base >= 0) {
            p->read_in[ir->values[v].base] = HAS_TO_STAY;
        }
    }
}

/* Makes the offloaded copy of v in its tier; it becomes v's version there once it is stored. */
static bool make_offloaded(struct pass *p, sw_value v, enum sw_tier tier)
{
    const struct sw_ir_value info = p->ir->values[v];
    const sw_value home = sw_ir_new_value(p->ir, info.role, info.dtype, info.form->shape);
    const sw_value version = sw_ir_new_value(p->ir, info.role, info.dtype, info.form->shape);
    if (home < 0 || version < 0) {
        return false;
    }
    p->ir->values[home].tier = (int)tier;
    p->ir->values[home].param = info.param;
    p->ir->values[version].base = home;
    p->ir->values[version].param = info.param;
    p->offloaded[v] = version;
    return true;
}

/* Bytes that wait in host memory for a later segment. */
static size_t waiting_in_host(const struct pass *p)
{
    size_t sum = 0;
    for (sw_value v = 0; v < p->n_values; v++) {
        const struct sw_ir_value *info = &p->ir->values[v];
        const bool is_sum = is_sum_state(info) && info->base < 0;
        if (is_sum ? p->grads_tier == SW_TIER_HOST : waits_on(p, v) == SW_TIER_HOST) {
            sum += bytes_of(info);
        }
    }
    return sum;
}

/* Chooses the tier of all values. Returns the bytes of host memory that they take, including second
 * slots. */
static size_t choose_with(struct pass *p, size_t host_left, int64_t states)
{
    const double share = p->options->policy.states_share;
    size_t in_host = 0;
    p->states_left = share > 0 && share < 1 ? (int64_t)(share * (double)states) : states;
    p->host_left = host_left;
    p->host_param_elems_left = p->options->limits.host_param_elems;
    for (sw_value v = 0; v < p->n_values; v++) {
        struct sw_ir_value *info = &p->ir->values[v];
        info->tier = (int)tier_of(p, v);
        in_host += info->tier == SW_TIER_HOST && !is_sum_state(info) ? places_of(info) : 0;
    }
    return in_host;
}

/* First places what must be in host memory, then caches tensors of the disk in the rest. */
static void choose_tiers(struct pass *p)
{
    const struct sw_ir *ir = p->ir;
    const size_t budget = p->options->policy.budget[SW_TIER_HOST];
    int64_t states = 0;
    for (sw_value v = 0; v < p->n_values; v++) {
        const struct sw_ir_value *info = &ir->values[v];
        states += info->state == SW_STATE_OPTIMIZER && info->base < 0 ? (int64_t)bytes_of(info) : 0;
    }
    const size_t has_to = choose_with(p, 0, states);
    if (budget == 0) {
        return; /* no cache */
    }
    size_t waiting = waiting_in_host(p);
    if (has_to + waiting > budget && p->options->policy.states_tier == SW_TIER_DISK) {
        p->grads_tier = SW_TIER_DISK;
        waiting = waiting_in_host(p);
    }
    choose_with(p, budget > has_to + waiting ? budget - has_to - waiting : 0, states);
}

static bool make_all_offloaded(struct pass *p)
{
    for (sw_value v = 0; v < p->n_values; v++) {
        const enum sw_tier tier = waits_on(p, v);
        if (tier != SW_TIER_DEVICE && !make_offloaded(p, v, tier)) {
            return false;
        }
    }
    return true;
}

static bool choose_places(struct pass *p)
{
    choose_tiers(p);
    if (!sw_pack_small(p->ir, p->first, p->options)) {
        return false;
    }
    p->n_values = p->ir->n_values;
    return make_all_offloaded(p);
}

/* ---- transfers ---- */

/* An op with one output, in the phase and scope of another op. */
static struct sw_ir_op beside(enum sw_op_kind kind, const struct sw_ir_op *of)
{
    struct sw_ir_op op = {.detail = &sw_ir_no_detail,
                          .kind = kind,
                          .phase = of->phase,
                          .scope = of->scope,
                          .n_out = 1,
                          .unless_skipped = of->unless_skipped,
                          .in_backward = of->in_backward};
    for (int k = 0; k < SW_MAX_OUTPUTS; k++) {
        op.out[k] = SW_NO_VALUE;
    }
    return op;
}

static struct sw_ir_op transfer(enum sw_move move, const struct sw_ir_op *of)
{
    struct sw_ir_op op = beside(SW_N_OP_KINDS, of);
    op.move = move;
    return op;
}

/* The offloaded value that v is a version of; SW_NO_VALUE if v is on the device. */
static sw_value home_of(const struct pass *p, sw_value v)
{
    const sw_value root = v < 0 || v >= p->n_values ? SW_NO_VALUE : sw_ir_root(p->ir, v);
    return root >= 0 && p->ir->values[root].tier != SW_TIER_DEVICE ? root : SW_NO_VALUE;
}

/* A copy that a block loads stays for all ops of the block. Exception: the sum of a tile leaves, to
 * make room for those of other tiles. */
static bool is_still_here(const struct pass *p, const struct sw_ir_op *op, sw_value what)
{
    const struct sw_ir_value *info = &p->ir->values[what];
    const bool is_sum = is_sum_state(info) && info->param >= 0 && sw_ir_is_part(p->ir, info->param);
    return p->here[what] >= 0 && p->place[what] == sw_ir_block_segment(p->ir, op) &&
           (!is_sum || p->when[what] == p->n_before[p->i_op]);
}

/* The same for operand k of op; also covers transients of an earlier segment. */
static sw_value offloaded_root(const struct pass *p, const struct sw_ir_op *op, int k)
{
    const sw_value v = op->in[k];
    if (v >= 0 && v < p->n_values && p->offloaded[v] >= 0 &&
        (sw_op_segment(op) > sw_op_segment(&p->ir->ops[p->ir->values[v].producer]) ||
         reads_late(p, p->i_op, v))) {
        return v;
    }
    const sw_value home = v < 0 || v >= p->n_values ? SW_NO_VALUE : p->home[v];
    return home >= 0 ? home : home_of(p, v);
}

/* Loads elements from `first` on, as many as `shape` has. SW_NO_VALUE when out of memory. */
static sw_value load_part(struct pass *p, const struct sw_ir_op *reader, sw_value what,
                          int64_t first, struct sw_shape shape)
{
    const struct sw_ir_value info = p->ir->values[what];
    const sw_value here = sw_ir_new_value(p->ir, SW_ROLE_TRANSIENT, info.dtype, shape);
    if (here < 0) {
        return SW_NO_VALUE;
    }
    p->ir->values[here].needs_grad = info.needs_grad;
    p->ir->values[here].param = info.role == SW_ROLE_PARAM && !info.is_pack ? what : info.param;
    struct sw_ir_op op = transfer(SW_MOVE_LOAD, reader);
    op.first = first;
    op.n_in = 1;
    op.in[0] = p->offloaded[what] >= 0 ? p->offloaded[what] : what;
    op.out[0] = here;
    return sw_op_order_add(&p->order, &op) ? here : SW_NO_VALUE;
}

static bool load(struct pass *p, const struct sw_ir_op *reader, sw_value what)
{
    p->here[what] = load_part(p, reader, what, 0, p->ir->values[what].form->shape);
    p->place[what] = sw_ir_block_segment(p->ir, reader);
    p->when[what] = p->n_before[p->i_op];
    return p->here[what] >= 0;
}

/* Allocates device memory without a load, for a value that is fully written before it is read. An
 * example is an fp16 working copy that is made from its master. */
static bool make_room(struct pass *p, const struct sw_ir_op *writer, sw_value what)
{
    const struct sw_ir_value info = p->ir->values[what];
    p->here[what] = sw_ir_new_value(p->ir, SW_ROLE_TRANSIENT, info.dtype, info.form->shape);
    p->place[what] = sw_ir_block_segment(p->ir, writer);
    p->when[what] = p->n_before[p->i_op];
    if (p->here[what] >= 0 && !info.is_pack) {
        p->ir->values[p->here[what]].param = what;
    }
    return p->here[what] >= 0;
}

/* `version`: the version of `home` after the store. */
static bool store_as(struct pass *p, const struct sw_ir_op *writer, sw_value home, int64_t first,
                     sw_value here, sw_value version)
{
    struct sw_ir_op op = transfer(SW_MOVE_STORE, writer);
    op.first = first;
    op.n_in = 2;
    op.in[0] = home;
    op.in[1] = here;
    op.out[0] = version;
    return sw_op_order_add(&p->order, &op);
}

/* `here` is a version of the copy that was loaded from element `first` on. */
static bool store(struct pass *p, const struct sw_ir_op *writer, sw_value state, int64_t first,
                  sw_value here)
{
    const struct sw_ir_value info = p->ir->values[state];
    if (p->stored[state] < 0) {
        const sw_value version = sw_ir_new_value(p->ir, info.role, info.dtype, info.form->shape);
        if (version < 0) {
            return false;
        }
        p->ir->values[version].base = state;
        p->ir->values[version].param = info.param;
        p->stored[state] = version;
    }
    return store_as(p, writer, state, first, here, p->stored[state]);
}

/* True if an fp16 copy is made from its master instead of being loaded. It is needed just before
 * its update, which loads the master anyway; that saves 2 bytes per element. This requires that
 * every backward of it ends in an update. Small ones are excluded: their masters come with other
 * states. */
static bool comes_from_master(const struct pass *p, const struct sw_ir_op *op, sw_value what)
{
    const struct sw_ir_value *info = &p->ir->values[what];
    const int32_t update = p->update_of[what];
    const sw_value master = update >= 0 ? home_of(p, p->ir->ops[update].in[1]) : SW_NO_VALUE;
    return info->dtype == SW_F16 && info->two_slots && master >= 0 &&
           sw_has_one_round(p->options) && !p->ir->values[master].is_pack &&
           p->ir->ops[update].in_backward && sw_op_segment(op) == SW_SEGMENT_BACKWARD &&
           sw_ir_block_segment(p->ir, op) == sw_ir_block_segment(p->ir, &p->ir->ops[update]);
}

static bool load_from_master(struct pass *p, const struct sw_ir_op *reader, sw_value what)
{
    const sw_value master = home_of(p, p->ir->ops[p->update_of[what]].in[1]);
    if (!load(p, reader, master) || !make_room(p, reader, what)) {
        return false;
    }
    struct sw_ir_op op = beside(SW_OP_CAST, reader);
    op.n_in = 1;
    op.in[0] = p->here[master];
    op.out[0] = p->here[what];
    /* a rank without a micro-batch makes its copy for the other ranks, too */
    op.in_backward = true;
    return sw_op_order_add(&p->order, &op);
}

/* Offset of an operand in the offloaded tensor. */
static int64_t part_first(const struct pass *p, sw_value v)
{
    return sw_ir_is_part(p->ir, v) ? p->ir->values[v].base_offset : 0;
}

/* A view of a part of the copy on the device; `version`: the current version of the whole. */
static sw_value view_part(struct pass *p, const struct sw_ir_op *reader, sw_value version,
                          int64_t first, enum sw_dtype dtype, struct sw_shape shape)
{
    struct sw_ir *ir = p->ir;
    const sw_value root = sw_ir_root(ir, version);
    const sw_value v = sw_ir_new_value(ir, SW_ROLE_TRANSIENT, dtype, shape);
    if (v < 0) {
        return SW_NO_VALUE;
    }
    ir->values[v].base = root;
    ir->values[v].base_offset = first;
    ir->values[v].param = ir->values[root].param;
    struct sw_ir_op op = beside(SW_OP_VIEW, reader);
    struct sw_op math = sw_ir_math(&op);
    math.attrs.view.kind = SW_VIEW_SLICE;
    math.attrs.view.start = first;
    sw_ir_take_math(ir, &op, &math);
    op.n_in = 1;
    op.in[0] = version;
    op.out[0] = v;
    return sw_op_order_add(&p->order, &op) ? v : SW_NO_VALUE;
}

/* ---- packs ---- */

/* A view of member v, or of a version of it, in a pack that is on the device. */
static sw_value view_member(struct pass *p, const struct sw_ir_op *reader, sw_value pack,
                            sw_value v)
{
    const struct sw_ir_value info = p->ir->values[v];
    const sw_value member =
        view_part(p, reader, p->here[pack], info.base_offset, info.dtype, info.form->shape);
    if (member >= 0) {
        p->ir->values[member].needs_grad = info.needs_grad;
        p->ir->values[member].param = info.role == SW_ROLE_PARAM ? v : info.param;
    }
    return member;
}

static bool lies_in(const struct pass *p, sw_value v, sw_value pack)
{
    return v >= 0 && v < p->n_values && (p->home[v] == pack || home_of(p, v) == pack);
}

/* How an op touches a pack that stays on the device during the ops of one place. */
struct touch {
    /* updates: writes a whole parameter without reading it */
    bool other_place, reads, updates, writes;
};

static struct touch touch_of(const struct pass *p, const struct sw_ir_op *op, sw_value pack,
                             int64_t place)
{
    struct touch touch = {0};
    for (int k = 0; k < op->n_in; k++) {
        const bool updates = sw_ir_has(op, SW_TRAIT_ELEMENTS) && k == 0;
        if (lies_in(p, op->in[k], pack)) {
            touch.reads |= !updates;
            touch.updates |= updates;
        }
    }
    for (int k = 0; k < op->n_out; k++) {
        touch.writes |= lies_in(p, op->out[k], pack);
    }
    touch.other_place =
        (touch.reads || touch.updates || touch.writes) && sw_ir_block_segment(p->ir, op) != place;
    return touch;
}

/* The pack that operand k of op lies in; SW_NO_VALUE = none. Only before ops are rewritten. */
static sw_value pack_of(const struct pass *p, const struct sw_ir_op *op, int k)
{
    const sw_value v = k < op->n_in ? op->in[k] : op->out[k - op->n_in];
    const sw_value home = home_of(p, v);
    return home >= 0 && p->ir->values[home].is_pack ? home : SW_NO_VALUE;
}

/* True for the first operand of op in a pack, so that the op is listed once. */
static bool is_first_touch(const struct pass *p, const struct sw_ir_op *op, int k, sw_value pack)
{
    for (int j = 0; j < k; j++) {
        if (pack_of(p, op, j) == pack) {
            return false;
        }
    }
    return pack >= 0;
}

/* false = out of memory */
static bool list_packs(struct pass *p)
{
    const struct sw_ir *ir = p->ir;
    const size_t n = (size_t)p->n_values + 2;
    p->n_members = sw_alloc_zero("plan", n, sizeof *p->n_members);
    p->touches_of = sw_alloc_zero("plan", n, sizeof *p->touches_of);
    if (!p->n_members || !p->touches_of) {
        return false;
    }
    for (sw_value v = 0; v < p->n_values; v++) {
        if (sw_ir_is_packed(ir, v)) {
            p->n_members[ir->values[v].base]++;
        }
    }
    for (int pass = 0; pass < 2; pass++) { /* first pass counts, second pass lists */
        for (int32_t i = 0; i < p->n_ops; i++) {
            const struct sw_ir_op *op = &ir->ops[i];
            for (int k = 0; k < op->n_in + op->n_out; k++) {
                const sw_value pack = pack_of(p, op, k);
                if (!is_first_touch(p, op, k, pack)) {
                    continue;
                }
                if (pass == 0) {
                    p->touches_of[pack + 1]++;
                } else {
                    p->touch_ops[p->touches_of[pack]++] = i;
                }
            }
        }
        for (sw_value v = 0; pass == 0 && v <= p->n_values; v++) {
            p->touches_of[v + 1] += p->touches_of[v];
        }
        if (pass == 0) {
            const size_t all = (size_t)p->touches_of[p->n_values + 1];
            p->touch_ops = sw_alloc("plan", (all + 1) * sizeof *p->touch_ops);
            if (!p->touch_ops) {
                return false;
            }
        }
    }
    return true; /* here touches_of[v] is the end of its ops */
}

/* Index in touch_ops of the first op at or after `from` that touches the pack; *end: end of the
 * pack's ops. */
static int32_t first_touch(const struct pass *p, sw_value pack, int32_t from, int32_t *end)
{
    int32_t low = pack > 0 ? p->touches_of[pack - 1] : 0, high = p->touches_of[pack];
    *end = high;
    while (low < high) {
        const int32_t middle = low + (high - low) / 2;
        if (p->touch_ops[middle] < from) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

/* True if a member is written after the present op, before the pack leaves the device. */
static bool is_written_later(const struct pass *p, const struct sw_ir_op *op, sw_value pack)
{
    const int64_t place = sw_ir_block_segment(p->ir, op);
    int32_t end;
    for (int32_t i = first_touch(p, pack, p->i_op + 1, &end); i < end; i++) {
        const struct touch touch = touch_of(p, &p->ir->ops[p->touch_ops[i]], pack, place);
        if (touch.other_place || touch.writes) {
            return !touch.other_place;
        }
    }
    return false;
}

/* True if every member is written before it is read, from the present op on. */
static bool is_written_whole(const struct pass *p, const struct sw_ir_op *op, sw_value pack)
{
    const int64_t place = sw_ir_block_segment(p->ir, op);
    int32_t n_written = 0, end;
    for (int32_t i = first_touch(p, pack, p->i_op, &end); i < end; i++) {
        const struct touch touch = touch_of(p, &p->ir->ops[p->touch_ops[i]], pack, place);
        if (touch.other_place || touch.reads) {
            break;
        }
        n_written += touch.updates;
    }
    return n_written == p->n_members[pack];
}

/* Stores the whole pack once for all that the ops of a place have written. */
static bool store_pack(struct pass *p, const struct sw_ir_op *writer, sw_value pack)
{
    if (is_written_later(p, writer, pack)) {
        return true;
    }
    const struct sw_ir_value info = p->ir->values[pack];
    const sw_value all = view_part(p, writer, p->here[pack], 0, info.dtype, info.form->shape);
    return all >= 0 && store(p, writer, pack, 0, all);
}

/* ---- operands ---- */

/* The first term of a sum over micro-batches overwrites the old contents. */
static bool begins_sum(const struct pass *p, const struct sw_ir_op *op, int k)
{
    return sw_ir_has(op, SW_TRAIT_SUM) && k == 0 &&
           (op->whole_step || (op->micro == 0 && sw_has_one_round(p->options)));
}

/* True if the op overwrites operand k completely: it begins a sum, or is an update that makes an
 * fp16 copy from its master. */
static bool is_all_written(const struct pass *p, const struct sw_ir_op *op, int k, sw_value what)
{
    if (begins_sum(p, op, k)) {
        return true;
    }
    return sw_ir_has(op, SW_TRAIT_ELEMENTS) && k == 0 && p->ir->values[op->in[k]].dtype == SW_F16 &&
           (!p->ir->values[what].is_pack || is_written_whole(p, op, what));
}

/* Replaces operand k by its copy on the device, loading it if needed. A tile is loaded for one
 * op. */
static bool fetch(struct pass *p, struct sw_ir_op *op, int k)
{
    const sw_value what = offloaded_root(p, op, k), v = op->in[k];
    if (what < 0) {
        return true;
    }
    if (sw_ir_is_part(p->ir, v)) {
        op->in[k] = p->here[v] =
            load_part(p, op, what, part_first(p, v), p->ir->values[v].form->shape);
        if (op->in[k] >= 0 && p->ir->values[what].role == SW_ROLE_PARAM) {
            p->ir->values[op->in[k]].param = v;
        }
        return op->in[k] >= 0;
    }
    const bool loaded = is_still_here(p, op, what);
    if (!loaded && !(is_all_written(p, op, k, what)   ? make_room(p, op, what)
                     : comes_from_master(p, op, what) ? load_from_master(p, op, what)
                                                      : load(p, op, what))) {
        return false;
    }
    op->in[k] = p->ir->values[what].is_pack ? view_member(p, op, what, v) : p->here[what];
    return op->in[k] >= 0;
}

/* Output v becomes the current version of the loaded copy, or of a member of a loaded pack. */
static void commit_on(struct pass *p, sw_value v, sw_value here)
{
    struct sw_ir_value *info = &p->ir->values[v];
    const sw_value home = home_of(p, v);
    if (!sw_ir_is_part(p->ir, v)) {
        p->home[v] = home;
        p->here[home] = v;
    }
    info->base = sw_ir_root(p->ir, here);
    info->base_offset = p->ir->values[home].is_pack ? info->base_offset : 0;
    info->role = SW_ROLE_TRANSIENT;
}

/* ---- updates in pieces ---- */

/* A new version of `of`, in the same bytes. */
static sw_value new_version(struct pass *p, sw_value of)
{
    const struct sw_ir_value info = p->ir->values[of];
    const sw_value v = sw_ir_new_like(p->ir, info.role, info.dtype, info.form);
    if (v >= 0) {
        struct sw_ir_value *copy = &p->ir->values[v];
        copy->base = info.base >= 0 ? info.base : of;
        copy->base_offset = info.base_offset;
        copy->param = info.param;
    }
    return v;
}

/* A dense stream is split into the same pieces as the states; the rows of a sparse stream are
 * not. */
static bool comes_in_pieces(const struct pass *p, const struct sw_ir_op *op, int k)
{
    const bool index = p->ir->values[op->in[k]].dtype == SW_I32;
    const bool sparse = k + 1 < op->n_in && p->ir->values[op->in[k + 1]].dtype == SW_I32;
    const sw_value what = offloaded_root(p, op, k);
    return !index && !sparse && what >= 0 && !is_still_here(p, op, what);
}

/* Elements [first, first + n) of a state that is loaded as a whole; `version`: its current
 * version. */
static sw_value view_piece(struct pass *p, const struct sw_ir_op *reader, sw_value version,
                           int64_t first, int64_t n)
{
    return view_part(p, reader, version, first, p->ir->values[version].dtype, SW_SHAPE(n));
}

/* Offset, in the offloaded tensor, of the chunk that starts at update element `first`. */
static int64_t piece_first(const struct pass *p, sw_value v, int64_t first)
{
    return part_first(p, v) + sw_ir_per_run(&p->ir->values[v], first);
}

/* Elements per piece of an update; whole runs if states are 8-bit codes. */
static int64_t piece_elems(const struct pass *p)
{
    const int64_t most = p->options->policy.update_elems;
    const int64_t run = p->options->rule->moments == SW_MOMENTS_8BIT ? SW_CODE_RUN : 1;
    return sw_max_i64(most / run * run, run);
}

/* Elements [first, first + n) of an update; in a loop, the first of its pieces. */
struct piece {
    int64_t first, n;
    int32_t loop; /* 0 = it runs once */
};

/* Number of leading elements of an update whose pieces differ only in their offset, so that they
 * can run as a loop. Excluded are kernels that depend on the element index: stochastic rounding,
 * row lookups, padding that is left out. Each piece must consist of whole disk blocks. */
static int64_t alike_elems(const struct pass *p, const struct sw_ir_op *op)
{
    bool alike = p->options->rule->moments != SW_MOMENTS_BF16;
    for (int k = 0; k < op->n_in; k++) {
        const struct sw_ir_value *value = &p->ir->values[op->in[k]];
        const int64_t elems = sw_ir_per_run(value, piece_elems(p));
        alike = alike && value->dtype != SW_I32 &&
                elems * (int64_t)sw_dtype_bytes(value->dtype) % SW_PLAN_DISK_ALIGN == 0;
    }
    const int64_t n = p->ir->values[op->in[1]].form->elems;
    return !alike                                         ? 0
           : p->options->rule->moments == SW_MOMENTS_8BIT ? op->detail->attrs.update.n_elems
                                                          : n;
}

/* Makes the piece that starts at element `first` of an update of n elements. If many alike pieces
 * follow, up to element `alike`, it is a loop over them. Nothing is stored when a loop begins, and
 * nothing is loaded when it ends; so a few pieces are better on their own. false = out of memory */
static bool piece_at(struct pass *p, int64_t first, int64_t n, int64_t alike, struct piece *out)
{
    enum { LEAST = 64 };
    const int64_t elems = piece_elems(p), pieces = (alike - first) / elems;
    *out = (struct piece){first, sw_min_i64(elems, n - first), 0};
    if (pieces >= LEAST) {
        out->loop = sw_ir_new_loop(p->ir, (int32_t)sw_min_i64(pieces, INT32_MAX));
        return out->loop > 0;
    }
    return true;
}

static int64_t end_of(const struct pass *p, const struct piece *piece)
{
    return piece->first + piece->n * (piece->loop > 0 ? p->ir->loops[piece->loop - 1] : 1);
}

/* Puts the op that was added last into the piece's loop. */
static void note_loop(struct pass *p, const struct piece *piece)
{
    p->order.ops[p->order.n - 1].loop = piece->loop;
}

/* Loads the piece of operand k. */
static sw_value load_piece(struct pass *p, const struct sw_ir_op *whole, int k,
                           const struct piece *piece)
{
    const sw_value v = whole->in[k];
    const struct sw_shape shape = SW_SHAPE(sw_ir_per_run(&p->ir->values[v], piece->n));
    const sw_value here =
        load_part(p, whole, offloaded_root(p, whole, k), piece_first(p, v, piece->first), shape);
    if (here >= 0) {
        p->ir->values[here].takes_turns = piece->loop > 0;
        note_loop(p, piece);
    }
    return here;
}

/* Updates one piece. The states of a piece are loaded and stored, while the parameter stays. A tile
 * (param: SW_NO_VALUE) is loaded and stored with them. out: version of the parameter after the
 * update. master: version of the master if it is on the device, else SW_NO_VALUE. */
static bool update_piece(struct pass *p, const struct sw_ir_op *whole, const struct piece *piece,
                         sw_value param, sw_value out, sw_value *master)
{
    struct sw_ir_op op = *whole;
    const int n_states = op.detail->attrs.update.rule.n_states, first_moved = param >= 0;
    op.first = piece->first;
    op.loop = piece->loop;
    op.in[0] = param;
    op.out[0] = out;
    for (int k = first_moved; k < op.n_in; k++) {
        if (k > n_states && !comes_in_pieces(p, whole, k)) {
            continue;
        }
        op.in[k] = k == 1 && *master >= 0 ? view_piece(p, whole, *master, piece->first, piece->n)
                                          : load_piece(p, whole, k, piece);
        if (op.in[k] >= 0 && k <= n_states) {
            op.out[k] = new_version(p, op.in[k]);
        }
        if (op.in[k] < 0 || (k <= n_states && op.out[k] < 0)) {
            return false;
        }
    }
    if (!sw_op_order_add(&p->order, &op)) {
        return false;
    }
    *master = *master >= 0 ? op.out[1] : *master;
    for (int k = first_moved; k <= n_states; k++) {
        if (!store(p, whole, home_of(p, whole->in[k]), piece_first(p, whole->in[k], piece->first),
                   op.out[k])) {
            return false;
        }
        note_loop(p, piece);
    }
    return true;
}

static bool goes_in_pieces(const struct pass *p, const struct sw_ir_op *op)
{
    if (!sw_ir_has(op, SW_TRAIT_ELEMENTS) || op->detail->attrs.update.rule.n_states == 0) {
        return false;
    }
    for (int k = 1; k <= op->detail->attrs.update.rule.n_states; k++) {
        if (home_of(p, op->in[k]) < 0) {
            return false;
        }
    }
    return p->options->policy.update_elems > 0 &&
           p->ir->values[op->in[1]].form->elems > p->options->policy.update_elems;
}

/* Updates a tile in pieces. Afterwards no op gets the whole parameter as an operand. */
static bool update_tile(struct pass *p, struct sw_ir_op *op, int64_t n)
{
    p->ir->values[op->out[0]].producer = -1;
    const int64_t alike = alike_elems(p, op);
    struct piece piece;
    for (int64_t first = 0; first < n; first = end_of(p, &piece)) {
        sw_value none = SW_NO_VALUE;
        if (!piece_at(p, first, n, alike, &piece) ||
            !update_piece(p, op, &piece, SW_NO_VALUE, SW_NO_VALUE, &none)) {
            return false;
        }
    }
    return true;
}

static bool update_in_pieces(struct pass *p, struct sw_ir_op *op)
{
    const sw_value state = home_of(p, op->out[0]);
    const int64_t n = p->ir->values[op->in[1]].form->elems;
    for (int k = 1 + op->detail->attrs.update.rule.n_states; k < op->n_in; k++) {
        if (!comes_in_pieces(p, op, k) && !fetch(p, op, k)) {
            return false;
        }
    }
    if (sw_ir_is_part(p->ir, op->in[0])) {
        return update_tile(p, op, n);
    }
    if (!fetch(p, op, 0)) {
        return false;
    }
    if (state >= 0) {
        commit_on(p, op->out[0], op->in[0]);
    }
    const sw_value first_state = home_of(p, op->in[1]);
    const bool here =
        p->here[first_state] >= 0 && p->place[first_state] == sw_ir_block_segment(p->ir, op);
    sw_value param = op->in[0], master = here ? p->here[first_state] : SW_NO_VALUE;
    const int64_t alike = master < 0 ? alike_elems(p, op) : 0;
    struct piece piece;
    for (int64_t first = 0; first < n; first = end_of(p, &piece)) {
        const bool good = piece_at(p, first, n, alike, &piece);
        const sw_value out = end_of(p, &piece) == n ? op->out[0] : new_version(p, param);
        if (!good || out < 0 || !update_piece(p, op, &piece, param, out, &master)) {
            return false;
        }
        param = out;
    }
    return state < 0 || store(p, op, state, 0, param);
}

/* ---- updates on the host ---- */

/* The offloaded value that operand k lies in; SW_NO_VALUE = it is on the device. */
static sw_value home_of_operand(const struct pass *p, const struct sw_ir_op *op, int k)
{
    const sw_value what = offloaded_root(p, op, k);
    return what < 0 ? SW_NO_VALUE
                    : sw_ir_root(p->ir, p->offloaded[what] >= 0 ? p->offloaded[what] : what);
}

/* True if operand k lies in host memory as a whole, and in no pack. */
static bool is_in_host(const struct pass *p, const struct sw_ir_op *op, int k)
{
    const sw_value home = home_of_operand(p, op, k);
    const struct sw_ir_value *info = home >= 0 ? &p->ir->values[home] : NULL;
    return info && info->tier == SW_TIER_HOST && !info->is_pack && !info->two_slots;
}

/* True if the update may run on the host in place: its states lie in host memory, and nothing of it
 * is on disk. */
static bool runs_on_host(const struct pass *p, const struct sw_ir_op *op)
{
    if (!p->options->policy.host_updates || !p->options->host.query ||
        !sw_ir_has(op, SW_TRAIT_ELEMENTS) || !sw_ir_has(op, SW_TRAIT_STATES) ||
        op->detail->attrs.update.rule.n_states == 0) {
        return false;
    }
    for (int k = 0; k < op->n_in; k++) {
        const bool state = k >= 1 && k <= op->detail->attrs.update.rule.n_states;
        const bool elsewhere = offloaded_root(p, op, k) >= 0;
        if (sw_ir_is_part(p->ir, op->in[k]) || ((elsewhere || state) && !is_in_host(p, op, k)) ||
            p->ir->values[sw_ir_root(p->ir, op->in[k])].two_slots) {
            return false;
        }
    }
    return true;
}

/* A new version of a value in host memory. */
static sw_value version_of(struct pass *p, sw_value home)
{
    const struct sw_ir_value info = p->ir->values[home];
    const sw_value v = sw_ir_new_like(p->ir, info.role, info.dtype, info.form);
    if (v >= 0) {
        p->ir->values[v].base = home;
        p->ir->values[v].param = info.param;
    }
    return v;
}

/* Allocates host memory for v; SW_NO_VALUE when out of memory. */
static sw_value room_in_host(struct pass *p, sw_value v)
{
    const struct sw_ir_value info = p->ir->values[v];
    const sw_value home = sw_ir_new_value(p->ir, SW_ROLE_TRANSIENT, info.dtype, info.form->shape);
    if (home >= 0) {
        p->ir->values[home].tier = SW_TIER_HOST;
        p->ir->values[home].host_computes = true;
        p->ir->values[home].param = info.param >= 0 ? info.param : sw_ir_root(p->ir, v);
    }
    return home;
}

/* Operand k in host memory: the value itself, or a copy of the one on the device. */
static sw_value operand_in_host(struct pass *p, const struct sw_ir_op *op, int k)
{
    const sw_value what = offloaded_root(p, op, k);
    if (what >= 0) {
        const sw_value home = home_of_operand(p, op, k);
        p->ir->values[home].host_computes = true;
        return p->offloaded[what] >= 0 ? p->offloaded[what]
               : p->stored[home] >= 0  ? p->stored[home]
                                       : home;
    }
    const sw_value home = room_in_host(p, op->in[k]);
    if (home < 0 || is_all_written(p, op, k, sw_ir_root(p->ir, op->in[k]))) {
        return home;
    }
    const sw_value version = version_of(p, home);
    return version >= 0 && store_as(p, op, home, 0, op->in[k], version) ? version : SW_NO_VALUE;
}

/* ZeRO-Offload: gradients are copied to the host, where the states are, and the parameter is copied
 * back. */
static bool update_on_host(struct pass *p, struct sw_ir_op *op)
{
    struct sw_ir_op host = *op;
    const sw_value param = offloaded_root(p, op, 0), out = op->out[0];
    host.on_host = true;
    for (int k = 0; k < op->n_in; k++) {
        host.in[k] = operand_in_host(p, op, k);
        if (host.in[k] < 0) {
            return false;
        }
    }
    if (param >= 0) { /* the loaded copy is out of date */
        p->here[sw_ir_root(p->ir, param)] = SW_NO_VALUE;
        return sw_op_order_add(&p->order, &host);
    }
    host.out[0] = version_of(p, sw_ir_root(p->ir, host.in[0]));
    struct sw_ir_op back = transfer(SW_MOVE_LOAD, op);
    back.n_in = 1;
    back.in[0] = host.out[0];
    back.out[0] = out;
    return host.out[0] >= 0 && sw_op_order_add(&p->order, &host) &&
           sw_op_order_add(&p->order, &back);
}

/* ---- the pass ---- */

/* True for a lookup in an offloaded table that is not loaded for another reason: only its rows are
 * loaded. */
static bool reads_rows(const struct pass *p, const struct sw_ir_op *op)
{
    const sw_value table = sw_ir_has(op, SW_TRAIT_LOOKUP) ? home_of(p, op->in[0]) : SW_NO_VALUE;
    return table >= 0 && table == op->in[0] && !is_still_here(p, op, table);
}

static void become_rows(struct sw_ir_op *op)
{
    struct sw_ir_op rows = transfer(SW_MOVE_LOAD, op);
    rows.n_in = 2;
    rows.in[0] = op->in[0];
    rows.in[1] = op->in[1];
    rows.out[0] = op->out[0];
    *op = rows;
}

/* The loaded copy of the operand that op overwrites with `out`. */
static sw_value loaded_for(const struct pass *p, const struct sw_ir_op *op, sw_value out,
                           sw_value home)
{
    for (int k = 0; sw_ir_is_part(p->ir, out) && k < op->n_in; k++) {
        if (home_of(p, op->in[k]) == home && part_first(p, op->in[k]) == part_first(p, out)) {
            return p->here[op->in[k]];
        }
    }
    return p->here[home];
}

/* Stores output k, or its pack if it is the last output in it. written: [by output] the offloaded
 * values */
static bool store_written(struct pass *p, const struct sw_ir_op *op, int k, const sw_value *written,
                          int64_t first)
{
    if (!p->ir->values[written[k]].is_pack) {
        return store(p, op, written[k], first, op->out[k]);
    }
    for (int later = k + 1; later < op->n_out; later++) {
        if (written[later] == written[k]) {
            return true;
        }
    }
    return store_pack(p, op, written[k]);
}

static bool rewrite(struct pass *p, struct sw_ir_op *op)
{
    if (runs_on_host(p, op)) {
        return update_on_host(p, op);
    }
    if (goes_in_pieces(p, op)) {
        return update_in_pieces(p, op);
    }
    const bool rows = reads_rows(p, op);
    if (rows) {
        become_rows(op);
    }
    const struct sw_ir_op before = *op;
    for (int k = rows; k < op->n_in; k++) {
        if (!fetch(p, op, k)) {
            return false;
        }
    }
    sw_value written[SW_MAX_OUTPUTS];
    int64_t at[SW_MAX_OUTPUTS];
    for (int k = 0; k < op->n_out; k++) {
        const sw_value out = op->out[k];
        written[k] = home_of(p, out);
        at[k] = written[k] >= 0 ? part_first(p, out) : 0;
        if (written[k] >= 0) {
            commit_on(p, out, loaded_for(p, &before, out, written[k]));
        }
    }
    if (!sw_op_order_add(&p->order, op)) {
        return false;
    }
    for (int k = 0; k < op->n_out; k++) {
        const sw_value out = op->out[k], offloaded = out < 0 ? SW_NO_VALUE : p->offloaded[out];
        if ((written[k] >= 0 && !store_written(p, op, k, written, at[k])) ||
            (offloaded >= 0 && !store_as(p, op, sw_ir_root(p->ir, offloaded), 0, out, offloaded))) {
            return false;
        }
    }
    return true;
}

/* n: number of values, including packs */
static bool open_tables(struct pass *p, size_t n)
{
    p->here = sw_alloc("plan", n * sizeof *p->here);
    p->place = sw_alloc("plan", n * sizeof *p->place);
    p->stored = sw_alloc("plan", n * sizeof *p->stored);
    p->offloaded = sw_alloc("plan", n * sizeof *p->offloaded);
    p->home = sw_alloc("plan", n * sizeof *p->home);
    p->when = sw_alloc("plan", n * sizeof *p->when);
    p->n_before = sw_alloc_zero("plan", (size_t)p->n_ops + 1, sizeof *p->n_before);
    p->update_of = sw_alloc("plan", n * sizeof *p->update_of);
    p->read_in = sw_alloc("plan", n * sizeof *p->read_in);
    const bool good = sw_op_order_open(&p->order, p->ir) >= 0 && p->here && p->place && p->stored &&
                      p->offloaded && p->home && p->when && p->n_before && p->update_of &&
                      p->read_in;
    for (size_t v = 0; good && v < n; v++) {
        p->here[v] = p->stored[v] = p->offloaded[v] = p->home[v] = SW_NO_VALUE;
        p->update_of[v] = -1;
        p->read_in[v] = SW_SEGMENT_FORWARD;
    }
    return good;
}

static void close_tables(struct pass *p)
{
    sw_op_order_close(&p->order);
    sw_free(p->here);
    sw_free(p->place);
    sw_free(p->stored);
    sw_free(p->offloaded);
    sw_free(p->update_of);
    sw_free(p->read_in);
    sw_free(p->home);
    sw_free(p->when);
    sw_free(p->n_before);
    sw_free(p->n_members);
    sw_free(p->touches_of);
    sw_free(p->touch_ops);
}

static void note_ops(struct pass *p)
{
    for (int32_t i = 0; i < p->n_ops; i++) {
        const struct sw_ir_op *op = &p->ir->ops[i];
        const bool is_plain = op->phase != SW_PHASE_UPDATE && !sw_ir_has(op, SW_TRAIT_SUM);
        p->n_before[i + 1] = p->n_before[i] + is_plain;
        if (sw_ir_has(op, SW_TRAIT_STATES) && op->detail->attrs.update.rule.n_states > 0) {
            p->update_of[sw_ir_root(p->ir, op->in[0])] = i;
        }
    }
}

static bool rewrite_all(struct pass *p)
{
    for (int32_t i = 0; i < p->n_ops; i++) {
        struct sw_ir_op op = p->ir->ops[i];
        p->i_op = i;
        if (!rewrite(p, &op)) {
            return false;
        }
    }
    return true;
}

sw_status sw_pass_place(struct sw_ir *ir, const struct sw_ir *first,
                        const struct sw_plan_options *options)
{
    if (options->policy.states_tier == SW_TIER_DEVICE &&
        options->policy.params_tier == SW_TIER_DEVICE &&
        options->policy.grads_tier == SW_TIER_DEVICE &&
        options->policy.activations_tier == SW_TIER_DEVICE) {
        return SW_OK;
    }
    struct pass p = {.ir = ir,
                     .first = first,
                     .options = options,
                     .grads_tier = options->policy.grads_tier,
                     .n_ops = ir->n_ops,
                     .n_values = ir->n_values};
    bool good = open_tables(&p, (size_t)ir->n_values * 2); /* a pack has at least two members */
    if (good) {
        note_ops(&p);
        find_readers(&p);
        good = choose_places(&p) && list_packs(&p) && rewrite_all(&p);
    }
    if (good) {
        sw_op_order_install(&p.order, ir);
    }
    close_tables(&p);
    return good ? sw_ir_status(ir) : SW_FAIL(SW_E_NOMEM, "out of host memory for the plan");
}

struct sw_transfers sw_plan_transfers(const struct sw_plan *plan, int64_t rounds)
{
    const struct sw_program *program = &plan->programs[0];
    const struct sw_ir *ir = program->ir;
    struct sw_transfers sum = {0};
    for (int32_t i = 0; i < program->n_instrs; i++) {
        const struct sw_ir_op *op = &ir->ops[program->instrs[i].op];
        const bool once = op->phase == SW_PHASE_UPDATE || program->micro_batches > 1;
        const int64_t times = once ? 1 : rounds;
        if (sw_ir_is_transfer(op)) {
            const struct sw_ir_value *home = &ir->values[sw_ir_root(ir, op->in[0])];
            (op->move == SW_MOVE_LOAD ? sum.in : sum.out)[home->tier] +=
                times * (int64_t)sw_transfer_bytes(ir, op);
        }
    }
    return sum;
}
