// SPDX-License-Identifier: Apache-2.0
// Gives every parameter, state and pack its address, once for all programs of a plan.
#include "plan/private.h"

#include <stdio.h>
#include <string.h>

static struct sw_persistent *find_item(const struct sw_plan *plan, int32_t key, const char *name)
{
    const int32_t i = sw_names_find(&plan->names, key, name);
    return i < 0 ? NULL : &plan->persistent[i];
}

const struct sw_persistent *sw_plan_find(const struct sw_plan *plan, const char *name)
{
    return find_item(plan, SW_NAME_PERSISTENT, name);
}

const struct sw_persistent *sw_plan_find_state(const struct sw_plan *plan, const char *param,
                                               enum sw_state_kind kind, int use)
{
    return find_item(plan, sw_state_key(SW_NAME_PERSISTENT, kind, use), param);
}

struct sw_persistent *sw_plan_item(const struct sw_plan *plan, const struct sw_ir *ir, sw_value v)
{
    int32_t key;
    const char *text = sw_ir_key(ir, v, SW_NAME_PERSISTENT, &key);
    return find_item(plan, key, text);
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
        return known->bytes == bytes && (known->slot_bytes > 0) == (info->two_slots != SW_SLOTS_ONE)
                   ? SW_OK
                   : SW_FAIL(SW_E_ARG, "%s: two programs of one plan disagree about it",
                             info->name);
    }
    size_t *end = &plan->persistent_bytes[SW_TIER_DISK];
    struct sw_packed *pack = &plan->packs[plan->n_packs++];
    *pack = (struct sw_packed){.name = info->name,
                               .offset = *end,
                               .bytes = bytes,
                               .slot_bytes = info->two_slots ? bytes : 0,
                               .is_late = info->two_slots == SW_SLOTS_LATE};
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
    struct sw_persistent *item = sw_plan_item(plan, ir, v);
    item->offset = pack->offset + at;
    item->slot_bytes = pack->slot_bytes;
    item->is_late = pack->is_late;
    item->packed_bytes = (next == sw_ir_storage_bytes(root) ? pack->bytes : next) - at;
}

/* Places packs first, since the address of a member depends on its pack. */
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

/* Adds the part of the tensor or expert axis to the layout of a parameter or of its state: slices
 * and tiles are of that part. Runs of 8-bit codes are counted in the part. Codes have the split
 * even if all ranks have all of them, so that a checkpoint of several parts can be read. */
static void add_part(const struct sw_ir *ir, const struct sw_plan_options *options, sw_value v,
                     struct sw_layout *layout)
{
    const struct sw_ir_value *info = &ir->values[v];
    const sw_value param = info->role == SW_ROLE_PARAM ? v : info->param;
    const bool is_code = info->role == SW_ROLE_STATE && info->dtype == SW_U8;
    const struct sw_param_part *part = param < 0 ? NULL
                                       : is_code ? sw_ir_param_split(ir, param)
                                                 : sw_ir_param_part(ir, param);
    if (!part || info->state == SW_STATE_TRUST_RATIO) {
        return;
    }
    const unsigned axis = 1U << (part->of_experts ? SW_AXIS_EXPERT : SW_AXIS_TENSOR);
    struct sw_layout cut = {.whole = part->whole,
                            .split = part->split,
                            .tensor = sw_mesh_coord(&options->mesh, axis, options->me)};
    if (sw_ir_is_of_runs(info)) {
        cut = sw_layout_per(&cut, SW_CODE_RUN);
    }
    const struct sw_shape here = sw_layout_part(&cut);
    if (!sw_shape_equal(&here, &layout->whole) && sw_state_is_sum(info->state)) {
        return; /* the sum of a tile: no checkpoint has it, and no other rank asks for it */
    }
    SW_ASSERT(sw_shape_equal(&here, &layout->whole));
    layout->whole = cut.whole;
    layout->split = cut.split;
    layout->tensor = cut.tensor;
}

/* Counts the stages, from `first` on, that have a parameter in some program. */
static int count_stages(const struct sw_plan *plan, const char *param, int first, int end)
{
    int count = 0;
    for (int stage = first; stage < end; stage++) {
        bool has = false;
        for (int i = 0; i < plan->n_programs && !has; i++) {
            has = sw_ir_is_held(plan->programs[i].ir, param, stage);
        }
        count += has;
    }
    return count;
}

/* The stages that have a copy of a parameter, or of the parameter of a state. */
static struct sw_coord copies_of(const struct sw_plan *plan, const struct sw_plan_options *options,
                                 const char *param)
{
    const struct sw_coord pipe = sw_mesh_coord(&options->mesh, 1U << SW_AXIS_PIPE, options->me);
    return (struct sw_coord){count_stages(plan, param, 0, pipe.rank),
                             count_stages(plan, param, 0, pipe.size)};
}

/* Its elements on this rank. The layout also says how the ranks that hold the same elements divide
 * them when they write the tensor together. */
static sw_status layout_of(const struct sw_plan *plan, const struct sw_ir *ir,
                           const struct sw_plan_options *options, sw_value v, struct sw_layout *out)
{
    const struct sw_ir_value *info = &ir->values[v];
    struct sw_layout layout = info->form->layout;
    if (!layout.is_sliced) {
        layout = sw_layout_of_whole(&layout.whole);
        layout.data = sw_ir_spread(ir, v);
        layout.run = sw_ir_per_run(info, sw_update_run(options->rule));
    }
    add_part(ir, options, v, &layout);
    const sw_value param = info->role == SW_ROLE_PARAM ? v : info->param;
    const struct sw_param_part *part = param < 0 ? NULL : sw_ir_param_part(ir, param);
    const bool is_cut = layout.tensor.size > 1 && !(part && part->of_experts);
    const unsigned cut = sw_zero_axes(&options->mesh) | (is_cut ? 1U << SW_AXIS_TENSOR : 0) |
                         (options->stage_blocks ? 1U << SW_AXIS_PIPE : 0);
    layout.copy = sw_mesh_coord(&options->mesh, SW_ALL_AXES & ~cut, options->me);
    if (options->stage_blocks && param >= 0) {
        const struct sw_coord stages =
            copies_of(plan, options, ir->values[sw_ir_root(ir, param)].name);
        layout.copy.rank += stages.rank * layout.copy.size;
        layout.copy.size *= stages.size;
    }
    *out = layout;
    return SW_OK;
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
    struct sw_persistent *item = sw_plan_item(plan, ir, v);
    const bool is_new = !item;
    if (item && !item->layout.is_absent) {
        return compare(item, info, packed);
    }
    struct sw_layout layout;
    SW_TRY(layout_of(plan, ir, options, v, &layout));
    item = is_new ? &plan->persistent[plan->n_persistent++] : item;
    *item = (struct sw_persistent){
        .name = info->name,
        .role = info->role,
        .dtype = info->dtype,
        .shape = info->form->shape,
        .init = info->form->init,
        .data = info->form->data,
        .param = info->param >= 0 ? ir->values[info->param].name : NULL,
        .layout = layout,
        .tier = (enum sw_tier)info->tier,
        .bytes = sw_ir_storage_bytes(info),
        .state = info->state,
        .use = info->use,
        .packed_bytes = packed ? sw_ir_storage_bytes(info) : 0, /* until it is placed */
    };
    item->slot_bytes =
        info->two_slots && item->tier != SW_TIER_DEVICE ? sw_persistent_taken(item) : 0;
    item->is_late = info->two_slots == SW_SLOTS_LATE;
    int32_t key;
    const char *text = sw_ir_key(ir, v, SW_NAME_PERSISTENT, &key);
    return is_new ? name(plan, key, text, plan->n_persistent - 1) : SW_OK;
}

/* Lists a parameter of other stages, unless a program of this one has it. It takes no bytes. */
static sw_status list_absent(struct sw_plan *plan, const struct sw_ir *ir, sw_value v)
{
    const struct sw_ir_value *info = &ir->values[v];
    const struct sw_param_part *part = sw_ir_param_part(ir, v);
    if (sw_plan_find(plan, info->name)) {
        return SW_OK;
    }
    struct sw_persistent *item = &plan->persistent[plan->n_persistent++];
    *item = (struct sw_persistent){
        .name = info->name,
        .role = SW_ROLE_PARAM,
        .dtype = info->dtype,
        .shape = info->form->shape,
        .init = info->form->init,
        .layout = sw_layout_of_whole(part ? &part->whole : &info->form->layout.whole)};
    item->layout.is_absent = true;
    return name(plan, SW_NAME_PERSISTENT, info->name, plan->n_persistent - 1);
}

/* Lists the parameters of a program, those of other stages included, or its states. */
static sw_status list_all(struct sw_plan *plan, const struct sw_plan_options *options,
                          const struct sw_ir *ir, bool params)
{
    const int32_t n_absent = params ? ir->params.n_absent : 0;
    int32_t absent = 0;
    for (sw_value v = 0; v < ir->n_values; v++) {
        for (; absent < n_absent && ir->params.absent[absent] <= v; absent++) {
            SW_TRY(list_absent(plan, ir, ir->params.absent[absent]));
        }
        if (is_persistent(ir, v) && (ir->values[v].role == SW_ROLE_PARAM) == params) {
            SW_TRY(list(plan, options, ir, v));
        }
    }
    return SW_OK;
}

/* Places small tensors, or all others, one after the other. place_packs follows. */
static void place(struct sw_plan *plan, bool small)
{
    for (int32_t i = 0; i < plan->n_persistent; i++) {
        struct sw_persistent *item = &plan->persistent[i];
        size_t *end = &plan->persistent_bytes[item->tier];
        if (is_small(item) == small && item->packed_bytes == 0) {
            item->offset = *end;
            *end += sw_persistent_taken(item) + item->slot_bytes;
        }
    }
}

sw_status sw_plan_place_persistent(struct sw_plan *plan, const struct sw_plan_options *options)
{
    /* alignment of the transients that follow */
    size_t most = 1, most_packs = 1, align = SW_PLAN_ALIGN;
    for (int i = 0; i < plan->n_programs; i++) {
        const struct sw_ir *ir = plan->programs[i].ir;
        most += (size_t)ir->params.n_absent;
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
            SW_TRY(list_all(plan, options, plan->programs[i].ir, role == 0));
        }
    }
    place(plan, false);
    place(plan, true);
    SW_TRY(place_packs(plan));
    for (int tier = 0; tier < SW_TIER_COUNT; tier++) {
        plan->persistent_bytes[tier] = sw_round_up(plan->persistent_bytes[tier],
                                                   tier == SW_TIER_DEVICE ? align : SW_PLAN_ALIGN);
    }
    memcpy(plan->tier_bytes, plan->persistent_bytes, sizeof plan->tier_bytes);
    return SW_OK;
}

/* The buffer of a parameter, a state or a pack. */
static struct sw_buffer placed_buffer(const struct sw_plan *plan, const struct sw_ir *ir,
                                      sw_value v)
{
    const struct sw_ir_value *info = &ir->values[v];
    if (info->is_pack) {
        const struct sw_packed *pack = find_pack(plan, info->name);
        return (struct sw_buffer){.tier = SW_TIER_DISK,
                                  .persistent = true,
                                  .offset = pack->offset,
                                  .bytes = pack->bytes,
                                  .slot_bytes = pack->slot_bytes,
                                  .is_late = pack->is_late};
    }
    const struct sw_persistent *item = sw_plan_item(plan, ir, v);
    return (struct sw_buffer){.tier = item->tier,
                              .persistent = true,
                              .offset = item->offset,
                              .bytes = sw_persistent_taken(item),
                              .slot_bytes = item->slot_bytes,
                              .is_late = item->is_late};
}

sw_status sw_program_place(struct sw_plan *plan, struct sw_program *program)
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
            program->buffers[program->n_buffers] = placed_buffer(plan, ir, v);
            program->buffers[program->n_buffers].value = v;
            program->buffers[program->n_buffers++].last = program->n_instrs;
        }
    }
    SW_TRY(sw_pass_memory(program));
    for (int32_t i = 0; i < program->n_buffers; i++) {
        struct sw_buffer *buffer = &program->buffers[i];
        if (!buffer->persistent) {
            buffer->offset += plan->persistent_bytes[buffer->tier];
        }
    }
    return SW_OK;
}

int32_t sw_plan_count_packed(const struct sw_plan *plan)
{
    int32_t n = 0;
    for (int32_t i = 0; i < plan->n_persistent; i++) {
        n += plan->persistent[i].packed_bytes > 0;
    }
    return n;
}
