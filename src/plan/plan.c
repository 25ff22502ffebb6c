// SPDX-License-Identifier: Apache-2.0
// Builds a plan: runs the passes in order, gives every parameter and state its place, and enforces
// the budgets.
#include "plan/private.h"

#include <stdio.h>
#include <string.h>

const char *sw_tier_name(enum sw_tier tier)
{
    static const char *const names[SW_TIER_COUNT] = {"device", "host", "disk"};
    return names[tier];
}

const char *sw_ring_name(enum sw_ring_index by)
{
    static const char *const names[SW_RING_COUNT] = {"step", "piece", "micro"};
    return names[by];
}

const char *sw_queue_name(enum sw_queue queue)
{
    static const char *const names[] = {"compute", "comm", "h2d", "d2h", "read", "write", "host"};
    return names[queue];
}

const struct sw_persistent *sw_plan_find(const struct sw_plan *plan, const char *name)
{
    const int32_t i = sw_names_find(&plan->names, SW_NAME_PERSISTENT, name);
    return i < 0 ? NULL : &plan->persistent[i];
}

static bool is_small(const struct sw_persistent *item)
{
    return item->tier != SW_TIER_DISK && item->bytes < SW_PLAN_SMALL;
}

size_t sw_persistent_taken(const struct sw_persistent *item)
{
    return item->packed_bytes > 0
               ? item->packed_bytes
               : sw_round_up(item->bytes,
                             is_small(item) ? SW_PLAN_SMALL_ALIGN : sw_tier_align(item->tier));
}

size_t sw_program_address(const struct sw_program *program, sw_value v)
{
    const struct sw_ir_value *info = &program->ir->values[v];
    const int32_t buffer = program->buffer_of[sw_ir_root(program->ir, v)];
    SW_ASSERT(buffer >= 0);
    return program->buffers[buffer].offset +
           (size_t)info->base_offset * sw_dtype_bytes(info->dtype);
}

/* True if it has a place of its own. */
static bool is_placed(const struct sw_ir_value *info)
{
    return info->producer < 0 && info->base < 0 &&
           (info->role == SW_ROLE_PARAM || info->role == SW_ROLE_STATE);
}

static bool is_persistent(const struct sw_ir *ir, sw_value v)
{
    return (is_placed(&ir->values[v]) && !ir->values[v].is_pack) || sw_ir_is_packed(ir, v);
}

static const struct sw_packed *find_pack(const struct sw_plan *plan, const char *name)
{
    const int32_t i = sw_names_find(&plan->names, SW_NAME_PACK, name);
    return i < 0 ? NULL : &plan->packs[i];
}

static sw_status name(struct sw_plan *plan, int32_t kind, const char *text, int32_t i)
{
    return sw_names_add(&plan->names, kind, text, i)
               ? SW_OK
               : SW_FAIL(SW_E_NOMEM, "out of host memory for the plan");
}

/* Packs lie on disk after the tensors that have a place of their own. A pack is placed once for all
 * programs that know its name. */
static sw_status place_pack(struct sw_plan *plan, const struct sw_ir_value *info)
{
    const size_t bytes = sw_round_up(sw_ir_storage_bytes(info), SW_PLAN_DISK_ALIGN);
    const struct sw_packed *known = find_pack(plan, info->name);
    if (known) {
        return known->bytes == bytes && (known->slot_bytes > 0) == info->two_slots
                   ? SW_OK
                   : SW_FAIL(SW_E_ARG, "%s: two programs of one plan disagree about it",
                             info->name);
    }
    size_t *end = &plan->tier_bytes[SW_TIER_DISK];
    struct sw_packed *pack = &plan->packs[plan->n_packs++];
    *pack = (struct sw_packed){.name = info->name,
                               .offset = *end,
                               .bytes = bytes,
                               .slot_bytes = info->two_slots ? bytes : 0};
    *end += pack->bytes + pack->slot_bytes;
    return name(plan, SW_NAME_PACK, info->name, plan->n_packs - 1);
}

/* A member lies inside its pack. The last member also takes the rounding of the pack. */
static void place_member(struct sw_plan *plan, const struct sw_ir *ir, sw_value v)
{
    const struct sw_ir_value *info = &ir->values[v], *root = &ir->values[info->base];
    const struct sw_packed *pack = find_pack(plan, root->name);
    const size_t at = (size_t)info->base_offset * sw_dtype_bytes(info->dtype);
    const size_t next = at + sw_round_up(sw_ir_storage_bytes(info), SW_PLAN_ALIGN);
    struct sw_persistent *item =
        &plan->persistent[sw_names_find(&plan->names, SW_NAME_PERSISTENT, info->name)];
    item->offset = pack->offset + at;
    item->slot_bytes = pack->slot_bytes;
    item->packed_bytes = (next == sw_ir_storage_bytes(root) ? pack->bytes : next) - at;
}

static sw_status place_packs(struct sw_plan *plan)
{
    for (int pass = 0; pass < 2; pass++) {
        for (int i = 0; i < plan->n_programs; i++) {
            const struct sw_ir *ir = plan->programs[i].ir;
            for (sw_value v = 0; v < ir->n_values; v++) {
                if (pass == 0 && ir->values[v].is_pack) {
                    SW_TRY(place_pack(plan, &ir->values[v]));
                } else if (pass == 1 && sw_ir_is_packed(ir, v)) {
                    place_member(plan, ir, v);
                }
            }
        }
    }
    return SW_OK;
}

/* Elements per tile if the tensor is sharded tile by tile, else 0. */
static int64_t tile_elems(const struct sw_plan *plan, const struct sw_ir *ir,
                          const struct sw_ir_value *info)
{
    const struct sw_ir_value *param = info->param >= 0 ? &ir->values[info->param] : info;
    if (!param->is_tiled || !sw_ir_is_slice(info)) {
        return 0;
    }
    const int32_t i = sw_names_find(&plan->names, SW_NAME_TILED, param->name);
    return plan->tiled[i].rows * param->form->whole.dims[1];
}

/* Checks that a tensor which another program has listed is the same there. */
static sw_status compare(const struct sw_persistent *known, const struct sw_ir_value *info,
                         bool packed)
{
    const bool same_values =
        (known->data == NULL) == (info->form->data == NULL) &&
        (!known->data || memcmp(known->data, info->form->data, known->bytes) == 0);
    const char *what =
        known->dtype != info->dtype || !sw_shape_equal(&known->shape, &info->form->shape) ? "shape"
        : !same_values                                                                    ? "values"
        : (known->packed_bytes > 0) != packed                                             ? "place"
                                                                                          : NULL;
    return !what ? SW_OK
                 : SW_FAIL(SW_E_ARG, "%s: two programs of one plan disagree about its %s",
                           info->name, what);
}

/* Lists v, once for all programs that know its name. */
static sw_status list(struct sw_plan *plan, const struct sw_plan_options *options,
                      const struct sw_ir *ir, sw_value v)
{
    const struct sw_ir_value *info = &ir->values[v];
    const bool packed = sw_ir_is_packed(ir, v);
    const struct sw_persistent *known = sw_plan_find(plan, info->name);
    if (known) {
        return compare(known, info, packed);
    }
    struct sw_persistent *item = &plan->persistent[plan->n_persistent++];
    *item = (struct sw_persistent){
        .name = info->name,
        .role = info->role,
        .dtype = info->dtype,
        .shape = info->form->shape,
        .init = info->form->init,
        .data = info->form->data,
        .param = info->param >= 0 ? ir->values[info->param].name : NULL,
        .layout = {.whole = sw_ir_is_slice(info) ? info->form->whole : info->form->shape,
                   .data = {sw_ir_data(ir)->me, sw_ir_data(ir)->n},
                   .is_sliced = sw_ir_is_slice(info),
                   .tile_elems = sw_ir_per_run(info, tile_elems(plan, ir, info)),
                   .run = sw_ir_per_run(info, sw_update_run(options->rule))},
        .tier = (enum sw_tier)info->tier,
        .bytes = sw_ir_storage_bytes(info),
        .state = info->state,
        .packed_bytes = packed ? sw_ir_storage_bytes(info) : 0, /* until it is placed */
    };
    item->slot_bytes =
        info->two_slots && item->tier != SW_TIER_DEVICE ? sw_persistent_taken(item) : 0;
    return name(plan, SW_NAME_PERSISTENT, info->name, plan->n_persistent - 1);
}

static void place(struct sw_plan *plan, bool small)
{
    for (int32_t i = 0; i < plan->n_persistent; i++) {
        struct sw_persistent *item = &plan->persistent[i];
        size_t *end =
            item->tier == SW_TIER_DEVICE ? &plan->persistent_bytes : &plan->tier_bytes[item->tier];
        if (is_small(item) == small && item->packed_bytes == 0) {
            item->offset = *end;
            *end += sw_persistent_taken(item) + item->slot_bytes;
        }
    }
}

/* Runs once, since the order of instructions does not matter here. */
static sw_status place_persistent(struct sw_plan *plan, const struct sw_plan_options *options)
{
    /* alignment of the transients that follow */
    size_t most = 1, most_packs = 1, align = SW_PLAN_ALIGN;
    for (int i = 0; i < plan->n_programs; i++) {
        const struct sw_ir *ir = plan->programs[i].ir;
        for (sw_value v = 0; v < ir->n_values; v++) {
            most += is_persistent(ir, v);
            most_packs += ir->values[v].is_pack;
            align = ir->values[v].tier == SW_TIER_DISK ? SW_PLAN_DISK_ALIGN : align;
        }
    }
    plan->persistent = sw_alloc_zero("plan", most, sizeof *plan->persistent);
    SW_TRY_ALLOC(plan->persistent, "the plan");
    plan->packs = sw_alloc_zero("plan", most_packs, sizeof *plan->packs);
    SW_TRY_ALLOC(plan->packs, "the plan");
    /* Parameters come first, so that the part which all programs of this model share stays
     * together. */
    for (int role = 0; role < 2; role++) {
        for (int i = 0; i < plan->n_programs; i++) {
            const struct sw_ir *ir = plan->programs[i].ir;
            for (sw_value v = 0; v < ir->n_values; v++) {
                const bool is_param = ir->values[v].role == SW_ROLE_PARAM;
                if (is_persistent(ir, v) && is_param == (role == 0)) {
                    SW_TRY(list(plan, options, ir, v));
                }
            }
        }
    }
    place(plan, false);
    place(plan, true);
    SW_TRY(place_packs(plan));
    plan->persistent_bytes = sw_round_up(plan->persistent_bytes, align);
    for (int t = 0; t < SW_TIER_COUNT; t++) {
        plan->tier_bytes[t] = sw_round_up(plan->tier_bytes[t], SW_PLAN_ALIGN);
    }
    memcpy(plan->persistent_offloaded, plan->tier_bytes, sizeof plan->persistent_offloaded);
    return SW_OK;
}

static size_t persistent_end(const struct sw_plan *plan, enum sw_tier tier)
{
    return tier == SW_TIER_DEVICE ? plan->persistent_bytes : plan->persistent_offloaded[tier];
}

/* The buffer of a parameter, a state or a pack. */
static struct sw_buffer placed_buffer(const struct sw_plan *plan, const struct sw_ir_value *info)
{
    if (info->is_pack) {
        const struct sw_packed *pack = find_pack(plan, info->name);
        return (struct sw_buffer){.tier = SW_TIER_DISK,
                                  .persistent = true,
                                  .offset = pack->offset,
                                  .bytes = pack->bytes,
                                  .slot_bytes = pack->slot_bytes};
    }
    const struct sw_persistent *item = sw_plan_find(plan, info->name);
    return (struct sw_buffer){.tier = item->tier,
                              .persistent = true,
                              .offset = item->offset,
                              .bytes = sw_persistent_taken(item),
                              .slot_bytes = item->slot_bytes};
}

static sw_status finish_program(struct sw_plan *plan, struct sw_program *program)
{
    const struct sw_ir *ir = program->ir;
    const size_t most = (size_t)ir->n_values + (size_t)program->n_instrs + 1;
    program->buffers = sw_alloc_zero("plan", most, sizeof *program->buffers);
    program->buffer_of = sw_alloc("plan", ((size_t)ir->n_values + 1) * sizeof *program->buffer_of);
    SW_TRY_ALLOC(program->buffers, "the plan");
    SW_TRY_ALLOC(program->buffer_of, "the plan");
    for (sw_value v = 0; v < ir->n_values; v++) {
        program->buffer_of[v] = -1;
        if (is_placed(&ir->values[v])) {
            program->buffer_of[v] = program->n_buffers;
            program->buffers[program->n_buffers] = placed_buffer(plan, &ir->values[v]);
            program->buffers[program->n_buffers].value = v;
            program->buffers[program->n_buffers++].last = program->n_instrs;
        }
    }
    SW_TRY(sw_pass_memory(program));
    for (int32_t i = 0; i < program->n_buffers; i++) {
        struct sw_buffer *buffer = &program->buffers[i];
        if (!buffer->persistent) {
            buffer->offset += persistent_end(plan, buffer->tier);
        }
    }
    return SW_OK;
}

/* ---- budgets ---- */

static void describe_buffer(const struct sw_program *program, const struct sw_buffer *buffer,
                            struct sw_str *out)
{
    const struct sw_ir *ir = program->ir;
    char bytes[32], shape[96];
    sw_format_bytes(bytes, sizeof bytes, (double)buffer->bytes);
    if (buffer->value < 0) {
        const struct sw_ir_op *op = &ir->ops[program->instrs[buffer->first].op];
        sw_str_printf(out, "%s workspace of %s in %s", bytes, sw_ir_op_name(op),
                      sw_ir_where(ir, op));
        return;
    }
    const struct sw_ir_value *info = &ir->values[buffer->value];
    const char *role = info->role == SW_ROLE_GRAD ? " gradient" : "";
    sw_shape_format(&info->form->shape, shape, sizeof shape);
    if (info->name) {
        sw_str_printf(out, "%s %s", bytes, info->name);
    } else if (info->producer >= 0) {
        const struct sw_ir_op *op = &ir->ops[info->producer];
        sw_str_printf(out, "%s %s%s%s of %s in %s", bytes, sw_dtype_name(info->dtype), shape, role,
                      sw_ir_op_name(op), sw_ir_where(ir, op));
    } else { /* a partial sum, or an offloaded value */
        const char *of = info->param >= 0 ? ir->values[info->param].name : NULL;
        sw_str_printf(out, "%s %s%s%s%s%s", bytes, sw_dtype_name(info->dtype), shape, role,
                      of ? " of " : "", of ? of : "");
    }
}

/* The next largest device buffer, after `last`, that is in use at the peak; -1 = none. */
static int32_t next_largest(const struct sw_program *program, int32_t last)
{
    const size_t below = last < 0 ? SIZE_MAX : program->buffers[last].bytes;
    int32_t best = -1;
    for (int32_t i = 0; i < program->n_buffers; i++) {
        const struct sw_buffer *buffer = &program->buffers[i];
        const bool live = buffer->persistent || (buffer->first <= program->peak_instr &&
                                                 program->peak_instr <= buffer->last);
        const bool after = buffer->bytes < below || (buffer->bytes == below && i > last);
        if (buffer->tier == SW_TIER_DEVICE && live && after &&
            (best < 0 || buffer->bytes > program->buffers[best].bytes)) {
            best = i;
        }
    }
    return best;
}

/* True if the largest buffer is the workspace of a kernel, which has a part for each thread. */
static bool largest_is_workspace(const struct sw_program *program)
{
    const int32_t largest = next_largest(program, -1);
    return largest >= 0 && program->buffers[largest].value < 0;
}

void sw_plan_largest(const struct sw_program *program, int most, struct sw_str *out)
{
    int32_t last = -1;
    for (int n = 0; n < most; n++) {
        last = next_largest(program, last);
        if (last < 0) {
            return;
        }
        sw_str_puts(out, n ? ", " : "");
        describe_buffer(program, &program->buffers[last], out);
    }
}

static size_t transients_in(const struct sw_program *program, enum sw_tier tier)
{
    return tier == SW_TIER_DEVICE ? program->transient_bytes : program->offloaded_bytes[tier];
}

const struct sw_program *sw_plan_largest_program(const struct sw_plan *plan, enum sw_tier tier)
{
    const struct sw_program *largest = &plan->programs[0];
    for (int i = 1; i < plan->n_programs; i++) {
        if (transients_in(&plan->programs[i], tier) > transients_in(largest, tier)) {
            largest = &plan->programs[i];
        }
    }
    return largest;
}

/* Prints the `most` largest values that are permanently in a tier, or wait there in program
 * `waiting`. */
static void largest_in(const struct sw_plan *plan, const struct sw_program *waiting,
                       enum sw_tier tier, int most, struct sw_str *out)
{
    const int32_t n_items = plan->n_persistent, n = n_items + waiting->n_buffers;
    size_t below = SIZE_MAX;
    int32_t last = -1;
    for (int k = 0; k < most; k++) {
        size_t best_bytes = 0;
        int32_t best = -1;
        for (int32_t i = 0; i < n; i++) {
            const struct sw_persistent *item = i < n_items ? &plan->persistent[i] : NULL;
            const struct sw_buffer *buffer = item ? NULL : &waiting->buffers[i - n_items];
            const size_t bytes = item ? item->bytes : buffer->bytes;
            if (item ? item->tier != tier : buffer->tier != tier || buffer->persistent) {
                continue;
            }
            if ((bytes < below || (bytes == below && i > last)) && bytes > best_bytes) {
                best = i;
                best_bytes = bytes;
            }
        }
        if (best < 0) {
            return;
        }
        sw_str_puts(out, k ? ", " : "");
        if (best < n_items) {
            char text[32];
            sw_str_printf(out, "%s %s", sw_format_bytes(text, sizeof text, (double)best_bytes),
                          plan->persistent[best].name);
        } else {
            describe_buffer(waiting, &waiting->buffers[best - n_items], out);
        }
        below = best_bytes;
        last = best;
    }
}

/* Bytes of a buffer if its parameter used the smallest tiles; 0 = tiles do not change it. */
static size_t bytes_in_tiles(const struct sw_program *program, int32_t b)
{
    const struct sw_buffer *buffer = &program->buffers[b];
    const struct sw_ir_value *info = buffer->value < 0 ? NULL : &program->ir->values[buffer->value];
    const bool known = info && info->param >= 0 && info->param < program->n_least;
    const int64_t least = known ? program->least_tiles[info->param] : 0;
    const size_t bytes = least > 0 ? (size_t)least * sw_dtype_bytes(info->dtype) : 0;
    return buffer->persistent || buffer->tier != SW_TIER_DEVICE ? 0
           : bytes < buffer->bytes                              ? bytes
                                                                : buffer->bytes;
}

/* Bytes of the operands of an instruction that tiles change. Such a tile is on the device for one
 * op only. */
static size_t operands_in_tiles(const struct sw_program *program, int32_t i)
{
    const struct sw_ir_op *op = &program->ir->ops[program->instrs[i].op];
    int32_t seen[SW_MAX_INPUTS + SW_MAX_OUTPUTS];
    size_t sum = 0;
    int n = 0;
    for (int k = 0; k < op->n_in + op->n_out; k++) {
        const sw_value v = k < op->n_in ? op->in[k] : op->out[k - op->n_in];
        const int32_t b = v < 0 ? -1 : program->buffer_of[sw_ir_root(program->ir, v)];
        bool known = b < 0;
        for (int j = 0; j < n && !known; j++) {
            known = seen[j] == b;
        }
        if (!known) {
            seen[n++] = b;
            sum += bytes_in_tiles(program, b);
        }
    }
    return sum;
}

/* True if the first program exceeds the budget with tiles of any size, because of an op and what is
 * live beside it. */
static bool exceeds_in_tiles(const struct sw_plan *plan, size_t budget)
{
    const struct sw_program *program = &plan->programs[0];
    const size_t n = (size_t)program->n_instrs + 2;
    int64_t *change = program->least_tiles ? sw_alloc_zero("plan", n, sizeof *change) : NULL;
    int64_t live = (int64_t)plan->persistent_bytes;
    bool exceeds = false;
    for (int32_t b = 0; change && b < program->n_buffers; b++) {
        const struct sw_buffer *buffer = &program->buffers[b];
        if (!buffer->persistent && buffer->tier == SW_TIER_DEVICE &&
            bytes_in_tiles(program, b) == 0) {
            change[buffer->first] += (int64_t)buffer->bytes;
            change[buffer->last + 1] -= (int64_t)buffer->bytes;
        }
    }
    for (int32_t i = 0; change && i < program->n_instrs; i++) {
        live += change[i];
        exceeds = exceeds || live + (int64_t)operands_in_tiles(program, i) > (int64_t)budget;
    }
    sw_free(change);
    return exceeds;
}

static unsigned helps_outside(const struct sw_plan *plan, const struct sw_plan_options *options,
                              enum sw_tier tier)
{
    const bool tensors = options->policy.states_tier >= tier || options->policy.params_tier >= tier;
    const bool activations = options->policy.activations_tier == tier;
    return (tensors ? SW_HELP_OFFLOAD_LESS : 0) |
           (tensors && activations ? SW_HELP_CHECKPOINT_LESS : 0) |
           (!tensors && activations ? SW_HELP_NO_CHECKPOINTING : 0) |
           (plan->two_slots && tier == SW_TIER_DISK ? SW_HELP_ONE_SLOT : 0);
}

/* Bytes needed in a tier. A plan with exactly that budget may need more, since a larger budget is a
 * larger cache, and gives other tiles. */
static size_t needed_in(const struct sw_plan *plan, const struct sw_plan_options *options,
                        enum sw_tier tier)
{
    const size_t enough = options->enough[tier];
    return plan->tier_bytes[tier] > enough ? plan->tier_bytes[tier] : enough;
}

/* Prints the tiers that exceed their budgets once this one has what it needs. */
static void print_needs_beside(const struct sw_plan *plan, const struct sw_plan_options *options,
                               enum sw_tier tier, struct sw_str *out)
{
    for (int t = 0; t < SW_TIER_COUNT; t++) {
        const size_t have = plan->tier_budget[t], need = options->enough[t];
        if (t != (int)tier && have > 0 && need > have) {
            char text[2][32];
            sw_str_printf(out, "; then %s memory needs %zu bytes (%s) and the budget is %zu (%s)",
                          sw_tier_name((enum sw_tier)t), need,
                          sw_format_bytes(text[0], sizeof text[0], (double)need), have,
                          sw_format_bytes(text[1], sizeof text[1], (double)have));
        }
    }
}

static sw_status over_outer_budget(const struct sw_plan *plan,
                                   const struct sw_plan_options *options, enum sw_tier tier)
{
    const size_t need = needed_in(plan, options, tier), have = plan->tier_budget[tier];
    char text[3][32];
    struct sw_str largest = {0}, helps = {0}, beside = {0};
    print_needs_beside(plan, options, tier, &beside);
    largest_in(plan, sw_plan_largest_program(plan, tier), tier, 4, &largest);
    sw_config_print_helps(helps_outside(plan, options, tier), &helps);
    const sw_status st = SW_FAIL(
        SW_E_NOMEM,
        "does not fit: %s memory needs %zu bytes (%s) for what is offloaded and the budget is %zu "
        "(%s): %zu bytes (%s) are missing%s; largest: %s; what would help: %s",
        sw_tier_name(tier), need, sw_format_bytes(text[0], sizeof text[0], (double)need), have,
        sw_format_bytes(text[1], sizeof text[1], (double)have), need - have,
        sw_format_bytes(text[2], sizeof text[2], (double)(need - have)), sw_str_text(&beside),
        sw_str_text(&largest), sw_str_text(&helps));
    sw_str_fini(&beside);
    sw_str_fini(&largest);
    sw_str_fini(&helps);
    return st;
}

/* Advice for a budget of the device. */
static unsigned helps_inside(const struct sw_plan *plan, const struct sw_plan_options *options,
                             const struct sw_program *program, const struct sw_ir_op *op)
{
    const size_t budget = plan->tier_budget[SW_TIER_DEVICE];
    const struct sw_recomputed *again = &program->recomputed;
    return (options->policy.recompute.every == 0 ? SW_HELP_RECOMPUTE : 0) |
           (again->blocks > 0 && again->blocks < again->of ? SW_HELP_RECOMPUTE_MORE : 0) |
           (program->micro_batches > 1 ? SW_HELP_HORIZONTAL : 0) |
           (options->rule && options->policy.states_tier == SW_TIER_DEVICE ? SW_HELP_OFFLOAD_STATES
                                                                           : 0) |
           (plan->n_tiled > 0 ? SW_HELP_SMALLER_TILES
            : options->keep_gradients || exceeds_in_tiles(plan, budget)
                ? 0
                : (options->policy.params_tier == SW_TIER_DEVICE ? SW_HELP_OFFLOAD_TILES
                                                                 : SW_HELP_TILES)) |
           (op->phase == SW_PHASE_UPDATE && options->policy.states_tier != SW_TIER_DEVICE
                ? SW_HELP_SUB_GROUP
                : 0) |
           (largest_is_workspace(program) ? SW_HELP_THREADS : 0) |
           (sw_ir_attrs(op) == SW_ATTRS_LINEAR_CE ? SW_HELP_LOSS_CHUNK : 0) | SW_HELP_SMALLER_BATCH;
}

static sw_status over_budget(const struct sw_plan *plan, const struct sw_plan_options *options,
                             enum sw_tier tier)
{
    if (tier != SW_TIER_DEVICE) {
        return over_outer_budget(plan, options, tier);
    }
    const struct sw_program *program = sw_plan_largest_program(plan, tier);
    const size_t needed = needed_in(plan, options, tier), budget = plan->tier_budget[tier];
    char need[32], have[32], missing[32], fixed[32], live[32];
    struct sw_str largest = {0}, helps = {0}, beside = {0};
    const struct sw_ir_op *op = &program->ir->ops[program->instrs[program->peak_instr].op];
    sw_plan_largest(program, 4, &largest);
    print_needs_beside(plan, options, tier, &beside);
    sw_config_print_helps(helps_inside(plan, options, program, op), &helps);
    sw_format_bytes(need, sizeof need, (double)needed);
    sw_format_bytes(have, sizeof have, (double)budget);
    sw_format_bytes(missing, sizeof missing, (double)(needed - budget));
    sw_format_bytes(fixed, sizeof fixed, (double)plan->persistent_bytes);
    sw_format_bytes(live, sizeof live, (double)program->transient_bytes);
    const sw_status st =
        SW_FAIL(SW_E_NOMEM,
                "does not fit: %s memory needs %zu bytes (%s) and the budget is %zu (%s): %zu "
                "bytes (%s) are "
                "missing%s; parameters and states hold %s, transients %s at instruction %d (%s in "
                "%s); largest: %s; what would help: %s%s",
                sw_tier_name(tier), needed, need, budget, have, needed - budget, missing,
                sw_str_text(&beside), fixed, live, program->peak_instr, sw_ir_op_name(op),
                sw_ir_where(program->ir, op), sw_str_text(&largest), sw_str_text(&helps),
                plan->persistent_bytes > budget &&
                        (options->policy.states_tier != SW_TIER_DEVICE || !options->rule)
                    ? " (not enough alone: parameters and states by themselves exceed the budget)"
                    : "");
    sw_str_fini(&beside);
    sw_str_fini(&largest);
    sw_str_fini(&helps);
    return st;
}

/* ---- open, close ---- */

/* Frees everything except the graph and the scheduled order. */
static void clear_program(struct sw_program *program)
{
    sw_free(program->instrs);
    sw_free(program->loops);
    sw_free(program->operands);
    sw_free(program->inputs);
    sw_free(program->outputs);
    sw_free(program->buffers);
    sw_free(program->buffer_of);
    *program = (struct sw_program){
        .kind = program->kind,
        .ir = program->ir,
        .micro_batches = program->micro_batches,
        .scheduled = program->scheduled,
        .least_tiles = program->least_tiles,
        .n_least = program->n_least,
        .n_instrs = program->n_instrs,
        .flops = program->flops,
        .recomputed = program->recomputed,
        .remade = program->remade,
    };
}

static uint64_t hash_moments(const struct sw_update_rule *rule, uint64_t h)
{
    if (rule->moments == SW_MOMENTS_8BIT) {
        h = sw_hash_str(h, "moments 8bit");
        return sw_hash(h, &rule->min_8bit_elems, sizeof rule->min_8bit_elems);
    }
    return rule->moments == SW_MOMENTS_BF16 ? sw_hash_str(h, "moments bf16") : h;
}

static uint64_t fingerprint(const struct sw_graph *g, const struct sw_plan_options *options)
{
    uint64_t h = sw_graph_fingerprint(g, SW_HASH_INIT);
    h = sw_hash_str(h, options->kernel_set ? options->kernel_set : "");
    h = sw_hash(h, &options->policy.micro_batches, sizeof options->policy.micro_batches);
    h = sw_hash(h, &options->clip, sizeof options->clip);
    const int64_t fp16 = options->fp16;
    h = sw_hash(h, &fp16, sizeof fp16);
    if (options->rule) {
        const struct sw_update_attrs *a = &options->rule->attrs;
        const int64_t whole[] = {a->kind,     a->decoupled, a->bias_correction,
                                 a->nesterov, a->maximize,  options->rule->decay_1d};
        const double real[] = {a->eps, a->weight_decay, a->dampening, options->rule->momentum};
        h = sw_hash(h, whole, sizeof whole);
        h = sw_hash(h, real, sizeof real);
        if (a->kind == SW_UPDATE_LAMB) {
            const double lamb[] = {a->eps_inside_sqrt, a->min_coeff, a->max_coeff};
            h = sw_hash(h, lamb, sizeof lamb);
        }
        if (a->kind == SW_UPDATE_ADAGRAD) {
            const double adagrad[] = {a->lr_decay, a->initial};
            h = sw_hash(h, adagrad, sizeof adagrad);
        }
        if (a->kind == SW_UPDATE_RMSPROP) {
            h = sw_hash(h, &a->beta2, sizeof a->beta2);
        }
        if (a->kind == SW_UPDATE_MUON) {
            const double muon[] = {a->ns_steps, options->rule->matrix_scale,
                                   options->rule->other_scale};
            h = sw_hash(h, muon, sizeof muon);
        }
        if (a->kind == SW_UPDATE_ADAFACTOR) {
            const double adafactor[] = {a->least_scale, a->clip_threshold, a->decay_rate,
                                        a->scale_parameter};
            h = sw_hash(h, adafactor, sizeof adafactor);
        }
        h = sw_update_groups_hash(options->rule->groups, h);
        h = hash_moments(options->rule, h);
    }
    return sw_hash(h, &options->extra_fingerprint, sizeof options->extra_fingerprint);
}

/* Orders transfers beside computation, and computes the waits. */
static sw_status order_beside(struct sw_program *program, const struct sw_plan_options *options)
{
    struct sw_cells cells;
    SW_TRY(sw_cells_open(&cells, program->ir));
    sw_status st = sw_pass_prefetch(program, &cells, options);
    st = st < 0 ? st : sw_pass_loops(program, options);
    st = st < 0 ? st : sw_pass_waits(program, &cells, options);
    sw_cells_close(&cells);
    return st;
}

/* Computes order and addresses for one prefetch distance. It can be called again. */
static sw_status finish(struct sw_plan *plan, const struct sw_plan_options *options)
{
    size_t transient = 0;
    for (int i = 0; i < plan->n_programs; i++) {
        struct sw_program *program = &plan->programs[i];
        clear_program(program);
        SW_TRY(sw_program_begin(program));
        SW_TRY(sw_pass_overlap(program, options));
        SW_TRY(order_beside(program, options));
    }
    size_t offloaded[SW_TIER_COUNT] = {0};
    for (int i = 0; i < plan->n_programs; i++) {
        const struct sw_program *program = &plan->programs[i];
        SW_TRY(finish_program(plan, &plan->programs[i]));
        transient = program->transient_bytes > transient ? program->transient_bytes : transient;
        for (int t = 0; t < SW_TIER_COUNT; t++) {
            offloaded[t] = program->offloaded_bytes[t] > offloaded[t] ? program->offloaded_bytes[t]
                                                                      : offloaded[t];
        }
    }
    plan->tier_bytes[SW_TIER_DEVICE] = plan->persistent_bytes + transient;
    for (int t = SW_TIER_HOST; t < SW_TIER_COUNT; t++) {
        plan->tier_bytes[t] = plan->persistent_offloaded[t] + offloaded[t];
    }
    plan->prefetch_elems = options->overlap ? options->policy.prefetch_elems : -1;
    plan->transfer_bytes = options->policy.transfer_bytes;
    return SW_OK;
}

static bool is_over_budget(const struct sw_plan *plan, const struct sw_plan_options *options)
{
    for (int t = 0; t < SW_TIER_COUNT; t++) {
        if (options->policy.budget[t] > 0 && plan->tier_bytes[t] > options->policy.budget[t]) {
            return true;
        }
    }
    return false;
}

/* Limits transfers to the bytes that move; then to a half of that, or to a quarter if much memory
 * is missing. */
static size_t fewer_transfers(const struct sw_plan *plan, const struct sw_plan_options *options,
                              size_t now)
{
    enum { LEAST = 1 << 18 };
    size_t over = 0;
    for (int t = 0; t < SW_TIER_DISK; t++) {
        const size_t need = plan->tier_bytes[t], have = options->policy.budget[t];
        over = have > 0 && need > have && need - have > over ? need - have : over;
    }
    size_t moved = 0;
    for (int i = 0; i < plan->n_programs; i++) {
        const struct sw_ir *ir = plan->programs[i].ir;
        size_t sum = 0;
        for (int32_t k = 0; k < ir->n_ops; k++) {
            sum += sw_ir_is_transfer(&ir->ops[k]) ? sw_transfer_bytes(ir, &ir->ops[k]) : 0;
        }
        moved = sum > moved ? sum : moved;
    }
    const size_t most = now < moved ? now : moved;
    return most < LEAST ? 0 : over < most / 2 ? most / 2 : most / 4;
}

/* Prefetches as much as the budget allows. If it allows none, collectives block. If that does not
 * fit either, the plan is refused at once. */
static sw_status finish_within_budget(struct sw_plan *plan, const struct sw_plan_options *options)
{
    struct sw_plan_options o = *options;
    o.overlap = options->overlap && plan->groups[SW_GROUP_DATA].n > 1;
    SW_TRY(finish(plan, &o));
    if (!is_over_budget(plan, options)) {
        return SW_OK;
    }
    struct sw_plan_options least = o;
    least.overlap = false;
    least.policy.prefetch_elems = 0;
    least.policy.transfer_bytes = 0;
    least.limits.reduce_bucket_elems = 1; /* each gradient travels on its own */
    SW_TRY(finish(plan, &least));
    if (is_over_budget(plan, options)) {
        return SW_OK;
    }
    do {
        if (!o.overlap && o.policy.transfer_bytes == 0) {
            return finish(plan, &least);
        }
        o.overlap = o.overlap && o.policy.prefetch_elems > 0;
        o.policy.prefetch_elems =
            o.policy.prefetch_elems >= 1 << 16 ? o.policy.prefetch_elems / 4 : 0;
        o.policy.transfer_bytes = fewer_transfers(plan, options, o.policy.transfer_bytes);
        SW_TRY(finish(plan, &o));
    } while (is_over_budget(plan, options));
    return SW_OK;
}

/* Bytes of the copies of tensors on the device, which exist until the step is settled. */
static size_t copies(const struct sw_plan *plan)
{
    const struct sw_ir *ir = plan->programs[0].ir;
    size_t sum = 0;
    for (int32_t i = 0; i < ir->n_ops; i++) {
        if (ir->ops[i].commits) {
            sum += sw_round_up(sw_ir_bytes(&ir->values[ir->ops[i].in[0]]), SW_PLAN_DISK_ALIGN);
        }
    }
    return sum;
}

/* Describes the memory of the device that a change of policy could free. */
static void describe_device(const struct sw_plan *plan, struct sw_plan_refusal *out)
{
    for (int32_t i = 0; i < plan->n_persistent; i++) {
        const struct sw_persistent *item = &plan->persistent[i];
        if (item->tier == SW_TIER_DEVICE) {
            *(item->role == SW_ROLE_PARAM ? &out->params : &out->states) +=
                sw_persistent_taken(item);
        }
    }
    for (int i = 0; i < plan->n_programs; i++) {
        out->n_instrs += plan->programs[i].ir->n_ops;
    }
    out->transients = plan->tier_bytes[SW_TIER_DEVICE] - plan->persistent_bytes;
}

static sw_status refuse(const struct sw_plan *plan, const struct sw_plan_options *options,
                        enum sw_tier tier)
{
    const bool later =
        options->fp16 && options->clip == 0; /* with one slot, other gradients wait */
    if (options->refusal) {
        *options->refusal = (struct sw_plan_refusal){
            .tier = tier,
            .missing = plan->tier_bytes[tier] - plan->tier_budget[tier],
            .needed = plan->tier_bytes[tier],
            .beside = later                    ? SIZE_MAX
                      : tier == SW_TIER_DEVICE ? copies(plan)
                                               : sw_plan_second_places(plan, tier),
            .whatever_the_tiles =
                tier == SW_TIER_DEVICE && exceeds_in_tiles(plan, plan->tier_budget[tier]),
        };
        describe_device(plan, options->refusal);
    }
    return over_budget(plan, options, tier);
}

/* Refuses a host or a disk without room for the persistent values, before instructions are
 * ordered. */
static sw_status check_outer_budgets(struct sw_plan *plan, const struct sw_plan_options *options)
{
    if (options->policy.budget[SW_TIER_HOST] == 0 && options->policy.budget[SW_TIER_DISK] == 0) {
        return SW_OK;
    }
    plan->tier_bytes[SW_TIER_DEVICE] = plan->persistent_bytes;
    for (int t = SW_TIER_HOST; t < SW_TIER_COUNT; t++) {
        if (options->policy.budget[t] > 0 && plan->tier_bytes[t] > options->policy.budget[t]) {
            return refuse(plan, options, (enum sw_tier)t);
        }
    }
    return SW_OK;
}

/* Runs the pass on the graph, then makes the list that all other passes work on. */
static sw_status take_graph(struct sw_plan *plan, int i, const struct sw_graph *g,
                            const struct sw_plan_options *options)
{
    struct sw_graph *fused = NULL;
    SW_TRY(sw_pass_fuse(g, options, &fused));
    if (i == 0) {
        plan->fingerprint = fingerprint(fused, options);
    }
    const sw_status st = sw_ir_open(fused, &plan->programs[i].ir);
    sw_graph_close(fused);
    SW_TRY(st);
    plan->programs[i].ir->groups = plan->groups;
    return SW_OK;
}

/* Reserves host memory if some transfers cannot reach the device's memory directly: a staging area,
 * and the inputs of every micro-batch of this rank, so that no step waits for a copy. */
static void reserve_staging(struct sw_plan *plan, const struct sw_plan_options *options)
{
    const struct sw_program *program = &plan->programs[0];
    const int ranks = plan->groups[SW_GROUP_DATA].n;
    plan->staging_bytes = plan->tier_bytes[SW_TIER_HOST] = options->staging_bytes;
    if (options->staging_bytes == 0 || program->kind != SW_PROGRAM_TRAIN) {
        return;
    }
    for (sw_value v = 0; v < program->ir->n_values; v++) {
        const struct sw_ir_value *info = &program->ir->values[v];
        plan->input_bytes += info->role == SW_ROLE_INPUT && info->base < 0
                                 ? sw_round_up(sw_ir_bytes(info), SW_PLAN_ALIGN)
                                 : 0;
    }
    const size_t all =
        plan->input_bytes * (size_t)sw_ceil_div(options->policy.micro_batches, ranks);
    plan->tier_bytes[SW_TIER_HOST] += sw_round_up(all, SW_PLAN_DISK_ALIGN);
}

/* Orders the instructions of all programs within the budget. */
static sw_status put_in_order(struct sw_plan *plan, const struct sw_plan_options *options)
{
    for (int i = 0; i < plan->n_programs; i++) { /* once for all prefetch distances */
        SW_TRY(sw_pass_schedule(&plan->programs[i], options));
    }
    const sw_status st = finish_within_budget(plan, options);
    for (int i = 0; i < plan->n_programs; i++) {
        sw_free(plan->programs[i].scheduled);
        plan->programs[i].scheduled = NULL;
    }
    return st;
}

static sw_status run_passes(struct sw_plan *plan, const struct sw_plan_options *options)
{
    memcpy(plan->tier_budget, options->policy.budget, sizeof plan->tier_budget);
    reserve_staging(plan, options);
    if (options->refusal && options->policy.tile_bytes == 0 && plan->groups[SW_GROUP_DATA].n == 1 &&
        options->policy.budget[SW_TIER_DEVICE] > 0) {
        plan->programs[0].n_least = plan->programs[0].ir->n_values;
        plan->programs[0].least_tiles = sw_least_tiles(plan->programs[0].ir, options);
        SW_TRY_ALLOC(plan->programs[0].least_tiles, "the plan");
    }
    SW_TRY(sw_pass_tile(plan, options));
    sw_choose_whole(plan, options);
    for (int i = 0; i < plan->n_programs; i++) {
        struct sw_program *program = &plan->programs[i];
        if (program->kind == SW_PROGRAM_TRAIN) {
            SW_TRY(
                sw_pass_recompute(program->ir, &options->policy.recompute, &program->recomputed));
            SW_TRY(sw_pass_remake(program->ir, options, &program->remade));
            program->micro_batches = sw_vertical_micro_batches(options);
            SW_TRY(sw_pass_vertical(program->ir, program->micro_batches));
        }
        SW_TRY(sw_pass_shard(program->ir, options));
        if (program->kind == SW_PROGRAM_TRAIN) {
            SW_TRY(sw_pass_update(program->ir, options));
        }
        SW_TRY(sw_pass_place(program->ir, i > 0 ? plan->programs[0].ir : NULL, options));
    }
    plan->two_slots = options->policy.two_slots;
    const bool trains = plan->programs[0].kind == SW_PROGRAM_TRAIN;
    plan->boundary_in_backward = trains && sw_norms_in_backward(options);
    plan->updates_in_backward = trains && sw_updates_in_backward(options);
    SW_TRY(place_persistent(plan, options));
    SW_TRY(check_outer_budgets(plan, options));
    SW_TRY(put_in_order(plan, options));
    for (int t = 0; t < SW_TIER_COUNT; t++) {
        if (options->policy.budget[t] > 0 && plan->tier_bytes[t] > options->policy.budget[t]) {
            return refuse(plan, options, (enum sw_tier)t);
        }
    }
    /* before the rest, since it needs more memory than what is made after it */
    SW_TRY(sw_plan_check(plan, options));
    for (int i = 0; i < plan->n_programs; i++) {
        SW_TRY(sw_pass_lower(plan, &plan->programs[i]));
    }
    return sw_plan_make_step(plan, options);
}

static sw_status open_groups(struct sw_plan *plan, const struct sw_plan_options *options)
{
    static const unsigned axes[SW_GROUP_COUNT] = {
        [SW_GROUP_WORLD] = SW_ALL_AXES,
        [SW_GROUP_DATA] = 1U << SW_AXIS_DATA,
    };
    const struct sw_mesh *mesh = &options->mesh;
    size_t n = 0;
    for (int g = 0; g < SW_GROUP_COUNT; g++) {
        n += (size_t)sw_mesh_size(mesh, axes[g]);
    }
    plan->groups = sw_alloc_zero("plan", SW_GROUP_COUNT, sizeof *plan->groups);
    SW_TRY_ALLOC(plan->groups, "the plan");
    plan->members = sw_alloc("plan", n * sizeof *plan->members);
    SW_TRY_ALLOC(plan->members, "the plan");
    int *at = plan->members;
    for (int g = 0; g < SW_GROUP_COUNT; g++) {
        plan->groups[g] = sw_mesh_group(mesh, axes[g], options->me, at);
        at += plan->groups[g].n;
    }
    plan->n_groups = SW_GROUP_COUNT;
    return SW_OK;
}

sw_status sw_plan_open(const struct sw_program_spec *specs, int n_specs,
                       const struct sw_plan_options *options, struct sw_plan **out)
{
    SW_ASSERT(n_specs > 0);
    struct sw_plan *plan = sw_alloc_zero("plan", 1, sizeof *plan);
    struct sw_program *programs = sw_alloc_zero("plan", (size_t)n_specs, sizeof *programs);
    if (!plan || !programs) {
        sw_free(plan);
        sw_free(programs);
        return SW_FAIL(SW_E_NOMEM, "out of host memory for the plan");
    }
    plan->programs = programs;
    plan->n_programs = n_specs;
    for (int i = 0; i < n_specs; i++) {
        programs[i].kind = specs[i].kind;
        programs[i].micro_batches = 1;
    }
    sw_status st = open_groups(plan, options);
    for (int i = 0; i < n_specs && st >= 0; i++) {
        st = take_graph(plan, i, specs[i].graph, options);
    }
    st = st < 0 ? st : run_passes(plan, options);
    if (st < 0) {
        sw_plan_close(plan);
        return st;
    }
    *out = plan;
    return SW_OK;
}

void sw_plan_close(struct sw_plan *plan)
{
    if (!plan) {
        return;
    }
    for (int i = 0; i < plan->n_programs; i++) {
        sw_free(plan->programs[i].scheduled);
        sw_free(plan->programs[i].least_tiles);
        clear_program(&plan->programs[i]);
        sw_ir_close(plan->programs[i].ir);
    }
    sw_free(plan->programs);
    sw_free(plan->groups);
    sw_free(plan->members);
    sw_free(plan->persistent);
    sw_free(plan->packs);
    sw_free(plan->tiled);
    sw_free(plan->step.phases);
    sw_names_close(&plan->names);
    sw_free(plan);
}
