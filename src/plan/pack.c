// SPDX-License-Identifier: Apache-2.0
// Small tensors on disk travel together. A disk takes about as long for 3 KiB as for 64. A block
// has, beside its matrices, a dozen tensors of a few KiB (biases, norms), each with two or three
// states. Tensors that are read in one block, and updated at one place, become members of a pack. A
// pack is a value with one place on disk, in which each member has an offset. Packs are loaded and
// stored as a whole, and ops see views of them.
#include <stdio.h>
#include <string.h>

#include "plan/offload.h"
#include "plan/technique.h"

enum {
    /* bytes; from this size on, the time of a transfer is proportional to its bytes */
    SMALL = 64 << 10,
    MOST = 16 * SMALL,   /* bytes of a pack, which is on the device as a whole */
    NOWHERE = -1,        /* not used in any place */
    SEVERAL_PLACES = -2, /* used in several places */
};

/* Members of a pack have the same key, so that one load and one store serve all of them. */
struct key {
    /* places of the parameter's readers, and of the op that writes the member */
    int64_t readers, updated;
    enum sw_role role;
    enum sw_slots two_slots;
};

struct pack {
    struct key key;
    size_t bytes;
    int32_t n_members;
    int32_t before; /* the previous one with the same hash; -1 = none */
    sw_value home;  /* SW_NO_VALUE = not needed, since it has only one member */
};

struct packing {
    struct sw_ir *ir;
    const struct sw_plan_options *options;
    sw_value n_values; /* number of values without packs */
    int64_t *readers;  /* [n_values] by parameter */
    int64_t *updated;  /* [n_values] by root */
    int32_t *pack_of;  /* [n_values] -1 = none */
    sw_value *homes;   /* [n_values] the pack in the plan's first program; SW_NO_VALUE = none */
    size_t *at;        /* [n_values] offset in its pack */
    struct pack *packs;
    int32_t n_packs;
    int32_t latest[1024]; /* by hash of its key, the latest pack; -1 = none */
};

static int32_t *latest_of(struct packing *p, const struct key *key)
{
    const uint64_t words[] = {(uint64_t)key->readers, (uint64_t)key->updated,
                              (uint64_t)key->role * 4 + (uint64_t)key->two_slots};
    return &p->latest[sw_hash(SW_HASH_INIT, words, sizeof words) % SW_LEN(p->latest)];
}

/* Records a place for v; several different ones become SEVERAL_PLACES. */
static void meet(int64_t *places, sw_value v, int64_t place)
{
    places[v] = places[v] == NOWHERE || places[v] == place ? place : SEVERAL_PLACES;
}

/* Lookups load the rows of a table as they are, without the rest of it. */
static void note_op(const struct packing *p, const struct sw_ir_op *op)
{
    const int64_t place = sw_ir_block_segment(p->ir, op);
    for (int k = 0; k < op->n_in && op->phase != SW_PHASE_UPDATE; k++) {
        const sw_value root = sw_ir_root(p->ir, op->in[k]);
        meet(p->readers, root,
             sw_ir_has(op, SW_TRAIT_LOOKUP) ? SEVERAL_PLACES : place / SW_SEGMENT_COUNT);
    }
    for (int k = 0; k < op->n_out; k++) {
        if (op->out[k] >= 0) {
            meet(p->updated, sw_ir_root(p->ir, op->out[k]), place);
        }
    }
}

/* Tensors that are updated in pieces are also loaded in pieces, and so are the scales of 8-bit
 * codes. */
static bool is_small(const struct packing *p, sw_value v)
{
    const struct sw_ir_value *info = &p->ir->values[v];
    const sw_value param = info->role == SW_ROLE_PARAM ? v : info->param;
    const int64_t most = p->options->policy.update_elems;
    const bool known =
        info->role == SW_ROLE_PARAM ? p->readers[v] >= 0 : sw_state_is_optimizer(info->state);
    return info->tier == SW_TIER_DISK && info->base < 0 && info->producer < 0 && known &&
           param >= 0 && !p->ir->values[param].param_facts.is_tiled &&
           sw_ir_storage_bytes(info) < SMALL &&
           (most == 0 || info->form->elems * (sw_ir_is_of_runs(info) ? SW_CODE_RUN : 1) <= most);
}

/* Adds v to the latest pack with its key, or to a new one if there is none or no room. */
static void join(struct packing *p, sw_value v)
{
    const struct sw_ir_value *info = &p->ir->values[v];
    const sw_value param = info->role == SW_ROLE_PARAM ? v : info->param;
    const struct key key = {p->readers[param], p->updated[v], info->role, info->two_slots};
    const size_t bytes = sw_round_up(sw_ir_storage_bytes(info), SW_PLAN_ALIGN);
    int32_t *latest = latest_of(p, &key);
    int32_t i = *latest; /* only the latest pack with this key can have room */
    while (i >= 0 &&
           (p->packs[i].key.readers != key.readers || p->packs[i].key.updated != key.updated ||
            p->packs[i].key.role != key.role || p->packs[i].key.two_slots != key.two_slots)) {
        i = p->packs[i].before;
    }
    if (i < 0 || p->packs[i].bytes + bytes > MOST) {
        i = p->n_packs++;
        p->packs[i] = (struct pack){.key = key, .home = SW_NO_VALUE, .before = *latest};
        *latest = i;
    }
    p->pack_of[v] = i;
    p->at[v] = p->packs[i].bytes;
    p->packs[i].bytes += bytes;
    p->packs[i].n_members++;
}

/* Adds the storage of a pack: a named tensor of bytes on disk. */
static sw_value add_pack(struct sw_ir *ir, const char *name, enum sw_role role, int64_t bytes,
                         enum sw_slots two_slots)
{
    const sw_value home = sw_ir_new_value(ir, role, SW_U8, SW_SHAPE(bytes));
    if (home < 0 || !sw_ir_name_value(ir, home, name)) {
        return SW_NO_VALUE;
    }
    struct sw_ir_value *info = &ir->values[home];
    info->tier = SW_TIER_DISK;
    info->is_pack = true;
    info->two_slots = two_slots;
    return home;
}

/* Packs are numbered, since a block may have several of a kind. */
static bool make_homes(struct packing *p)
{
    for (int32_t i = 0; i < p->n_packs; i++) {
        struct pack *pack = &p->packs[i];
        if (pack->n_members < 2) {
            continue;
        }
        char name[512];
        const int64_t place = pack->key.readers, n_scopes = p->ir->n_scopes;
        const char *scope =
            place < 0 ? "" : p->ir->scopes[place < n_scopes ? place : place - n_scopes].name;
        snprintf(name, sizeof name, "pack.%d/%s%s%s", i, scope, *scope ? "." : "",
                 pack->key.role == SW_ROLE_PARAM ? "parameters" : "states");
        pack->home =
            add_pack(p->ir, name, pack->key.role, (int64_t)pack->bytes, pack->key.two_slots);
        if (pack->home < 0) {
            return false;
        }
    }
    return true;
}

/* Places a member and its versions. */
static void place_in_pack(struct sw_ir *ir, sw_value v, sw_value home, size_t at)
{
    struct sw_ir_value *info = &ir->values[v];
    info->base = home;
    info->base_offset += (int64_t)(at / sw_dtype_bytes(info->dtype));
}

/* Places members and their versions in their packs. A pack without a home has a single member,
 * which stays where it is. */
static void place_members(const struct packing *p)
{
    for (sw_value v = 0; v < p->n_values; v++) {
        const sw_value root = sw_ir_root(p->ir, v);
        const int32_t i = root < p->n_values ? p->pack_of[root] : -1;
        if (i >= 0 && p->packs[i].home >= 0) {
            place_in_pack(p->ir, v, p->packs[i].home, p->at[root]);
        }
    }
}

/* Forms packs of small tensors. false = out of memory */
static bool form(struct packing *p)
{
    const size_t n = (size_t)p->n_values + 1;
    p->readers = sw_alloc("plan", n * sizeof *p->readers);
    p->updated = sw_alloc("plan", n * sizeof *p->updated);
    p->pack_of = sw_alloc("plan", n * sizeof *p->pack_of);
    p->at = sw_alloc("plan", n * sizeof *p->at);
    p->packs = sw_alloc("plan", n * sizeof *p->packs);
    if (!p->readers || !p->updated || !p->pack_of || !p->at || !p->packs) {
        return false;
    }
    for (sw_value v = 0; v < p->n_values; v++) {
        p->readers[v] = p->updated[v] = NOWHERE;
        p->pack_of[v] = -1;
    }
    memset(p->latest, 0xff, sizeof p->latest);
    for (int32_t i = 0; i < p->ir->n_ops; i++) {
        note_op(p, &p->ir->ops[i]);
    }
    for (sw_value v = 0; v < p->n_values; v++) {
        if (is_small(p, v)) {
            join(p, v);
        }
    }
    if (!make_homes(p)) {
        return false;
    }
    place_members(p);
    return true;
}

/* Copies the packs of the plan's first program. */
static bool follow(struct packing *p, const struct sw_ir *first)
{
    struct sw_ir *ir = p->ir;
    const size_t n = (size_t)p->n_values + 1;
    p->homes = sw_alloc("plan", n * sizeof *p->homes);
    p->at = sw_alloc("plan", n * sizeof *p->at);
    if (!p->homes || !p->at) {
        return false;
    }
    memset(p->homes, 0xff, n * sizeof *p->homes); /* the bytes of SW_NO_VALUE */
    for (sw_value v = 0; v < p->n_values; v++) {
        const struct sw_ir_value info = ir->values[v];
        const bool lies_there = info.tier == SW_TIER_DISK && info.base < 0 && info.producer < 0;
        const sw_value known = lies_there ? sw_ir_find_same(first, ir, v) : -1;
        if (known < 0 || !sw_ir_is_packed(first, known)) {
            continue;
        }
        const struct sw_ir_value *pack = &first->values[first->values[known].base];
        sw_value home = sw_ir_find(ir, pack->role, pack->name);
        if (home < 0) {
            home = add_pack(ir, pack->name, pack->role, pack->form->elems, pack->two_slots);
        }
        if (home < 0) {
            return false;
        }
        p->homes[v] = home;
        p->at[v] = (size_t)first->values[known].base_offset * sw_dtype_bytes(info.dtype);
    }
    for (sw_value v = 0; v < p->n_values; v++) {
        const sw_value root = sw_ir_root(ir, v);
        const sw_value home = root < p->n_values ? p->homes[root] : SW_NO_VALUE;
        if (home >= 0) {
            place_in_pack(ir, v, home, p->at[root]);
        }
    }
    return true;
}

bool sw_pack_small(struct sw_ir *ir, const struct sw_ir *first,
                   const struct sw_plan_options *options)
{
    struct packing p = {.ir = ir, .options = options, .n_values = ir->n_values};
    const bool good = first ? follow(&p, first) : form(&p);
    sw_free(p.readers);
    sw_free(p.updated);
    sw_free(p.pack_of);
    sw_free(p.homes);
    sw_free(p.at);
    sw_free(p.packs);
    return good;
}

/* ---- packs on the device ---- */

sw_value sw_offload_view_member(struct sw_offload *p, const struct sw_ir_op *reader, sw_value pack,
                                sw_value v)
{
    const struct sw_ir_value info = p->ir->values[v];
    const sw_value member =
        sw_offload_view(p, reader, p->here[pack], info.base_offset, info.dtype, info.form->shape);
    if (member >= 0) {
        p->ir->values[member].needs_grad = info.needs_grad;
        p->ir->values[member].param = info.role == SW_ROLE_PARAM ? v : info.param;
    }
    return member;
}

static bool lies_in(const struct sw_offload *p, sw_value v, sw_value pack)
{
    return v >= 0 && v < p->n_values && (p->home[v] == pack || sw_offload_home(p, v) == pack);
}

/* How an op touches a pack that stays on the device during the ops of one place. */
struct touch {
    /* updates: writes a whole parameter without reading it */
    bool other_place, reads, updates, writes;
};

/* How an op touches a pack. place: where the pack stays on the device */
static struct touch touch_of(const struct sw_offload *p, const struct sw_ir_op *op, sw_value pack,
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
static sw_value pack_of(const struct sw_offload *p, const struct sw_ir_op *op, int k)
{
    const sw_value v = k < op->n_in ? op->in[k] : op->out[k - op->n_in];
    const sw_value home = sw_offload_home(p, v);
    return home >= 0 && p->ir->values[home].is_pack ? home : SW_NO_VALUE;
}

/* True for the first operand of op in a pack, so that the op is listed once. */
static bool is_first_touch(const struct sw_offload *p, const struct sw_ir_op *op, int k,
                           sw_value pack)
{
    for (int j = 0; j < k; j++) {
        if (pack_of(p, op, j) == pack) {
            return false;
        }
    }
    return pack >= 0;
}

bool sw_offload_list_packs(struct sw_offload *p)
{
    const struct sw_ir *ir = p->ir;
    const size_t n = (size_t)p->n_values + 2;
    p->packs.n_members = sw_alloc_zero("plan", n, sizeof *p->packs.n_members);
    p->packs.touches_of = sw_alloc_zero("plan", n, sizeof *p->packs.touches_of);
    if (!p->packs.n_members || !p->packs.touches_of) {
        return false;
    }
    for (sw_value v = 0; v < p->n_values; v++) {
        if (sw_ir_is_packed(ir, v)) {
            p->packs.n_members[ir->values[v].base]++;
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
                    p->packs.touches_of[pack + 1]++;
                } else {
                    p->packs.touch_ops[p->packs.touches_of[pack]++] = i;
                }
            }
        }
        for (sw_value v = 0; pass == 0 && v <= p->n_values; v++) {
            p->packs.touches_of[v + 1] += p->packs.touches_of[v];
        }
        if (pass == 0) {
            const size_t all = (size_t)p->packs.touches_of[p->n_values + 1];
            p->packs.touch_ops = sw_alloc("plan", (all + 1) * sizeof *p->packs.touch_ops);
            if (!p->packs.touch_ops) {
                return false;
            }
        }
    }
    return true; /* here touches_of[v] is the end of its ops */
}

/* Index in touch_ops of the first op at or after `from` that touches the pack; *end: end of the
 * pack's ops. */
static int32_t first_touch(const struct sw_offload *p, sw_value pack, int32_t from, int32_t *end)
{
    int32_t low = pack > 0 ? p->packs.touches_of[pack - 1] : 0, high = p->packs.touches_of[pack];
    *end = high;
    while (low < high) {
        const int32_t middle = low + (high - low) / 2;
        if (p->packs.touch_ops[middle] < from) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

/* True if a member is written after the present op, before the pack leaves the device. */
static bool is_written_later(const struct sw_offload *p, const struct sw_ir_op *op, sw_value pack)
{
    const int64_t place = sw_ir_block_segment(p->ir, op);
    int32_t end;
    for (int32_t i = first_touch(p, pack, p->i_op + 1, &end); i < end; i++) {
        const struct touch touch = touch_of(p, &p->ir->ops[p->packs.touch_ops[i]], pack, place);
        if (touch.other_place || touch.writes) {
            return !touch.other_place;
        }
    }
    return false;
}

bool sw_offload_writes_pack(const struct sw_offload *p, const struct sw_ir_op *op, sw_value pack)
{
    const int64_t place = sw_ir_block_segment(p->ir, op);
    int32_t n_written = 0, end;
    for (int32_t i = first_touch(p, pack, p->i_op, &end); i < end; i++) {
        const struct touch touch = touch_of(p, &p->ir->ops[p->packs.touch_ops[i]], pack, place);
        if (touch.other_place || touch.reads) {
            break;
        }
        n_written += touch.updates;
    }
    return n_written == p->packs.n_members[pack];
}

bool sw_offload_store_pack(struct sw_offload *p, const struct sw_ir_op *writer, sw_value pack)
{
    if (is_written_later(p, writer, pack)) {
        return true;
    }
    const struct sw_ir_value info = p->ir->values[pack];
    const sw_value all = sw_offload_view(p, writer, p->here[pack], 0, info.dtype, info.form->shape);
    return all >= 0 && sw_offload_store(p, writer, pack, 0, all);
}

/* ---- the technique ---- */

static void describe(const struct sw_plan *plan, const struct sw_program *program,
                     struct sw_str *out)
{
    if (!program && plan->n_packs > 0) {
        sw_str_printf(out, "%d small tensors are on the disk in %d packs\n",
                      sw_plan_count_packed(plan), plan->n_packs);
    }
}

const struct sw_technique sw_technique_pack = {
    .keys = "",
    .describe = describe,
};
