// SPDX-License-Identifier: Apache-2.0
// Chooses the tier of every value, and where transients wait that a later segment reads. Host
// memory is a cache of the disk. Values that must be in host memory come first, and tensors of the
// disk get the rest of its budget.
#include "plan/offload.h"
#include "plan/technique.h"

enum { HAS_TO_STAY = -1 };

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
static enum sw_tier cached(struct sw_offload *p, enum sw_tier tier, const struct sw_ir_value *info)
{
    const size_t bytes = places_of(info);
    if (tier != SW_TIER_DISK || bytes > p->left.host) {
        return tier;
    }
    p->left.host -= bytes;
    return SW_TIER_HOST;
}

/* Chooses the tier of v, and counts its bytes against the limits in p->left. Parameters have the
 * tier that they have in the plan's first program. */
static enum sw_tier tier_of(struct sw_offload *p, sw_value v)
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
    if (sw_state_is_optimizer(info->state)) {
        const bool in_tiles = info->param >= 0 && p->ir->values[info->param].param_facts.is_tiled;
        if (p->left.states < (int64_t)bytes && !in_tiles) {
            return SW_TIER_DEVICE;
        }
        p->left.states -= (int64_t)bytes;
        return cached(p, p->options->policy.states_tier, info);
    }
    if (sw_state_is_sum(info->state)) {
        return p->left.grads_tier;
    }
    if (info->role != SW_ROLE_PARAM || info->producer >= 0 ||
        !sw_param_leaves(p->ir, p->options, v)) {
        return SW_TIER_DEVICE;
    }
    const int64_t elems = info->form->elems;
    if (p->options->policy.params_tier != SW_TIER_DISK || elems > p->left.host_param_elems) {
        return p->options->policy.params_tier;
    }
    p->left.host_param_elems -= elems;
    return cached(p, p->options->policy.params_tier, info);
}

bool sw_offload_reads_late(const struct sw_offload *p, int32_t i, sw_value v)
{
    const struct sw_ir_value *info = &p->ir->values[v];
    return info->role == SW_ROLE_GRAD && info->param >= 0 && sw_ir_is_part(p->ir, info->param) &&
           p->n_before[i] > p->n_before[info->producer + 1];
}

/* The tier where a transient waits for a later segment. Outputs stay on the device. */
static enum sw_tier waits_on(const struct sw_offload *p, sw_value v)
{
    enum { SMALL = 256 }; /* transfers of fewer bytes are not worthwhile */
    const struct sw_ir_value *info = &p->ir->values[v];
    if (p->left.grads_tier == SW_TIER_DEVICE &&
        p->options->policy.activations_tier == SW_TIER_DEVICE) {
        return SW_TIER_DEVICE;
    }
    if (info->base >= 0 || info->producer < 0 || info->is_output || info->form->layout.is_padded ||
        (info->role != SW_ROLE_TRANSIENT && info->role != SW_ROLE_GRAD) ||
        sw_ir_bytes(info) < SMALL || !info->form->contiguous) {
        return SW_TIER_DEVICE;
    }
    return p->read_in[v] == SW_SEGMENT_UPDATE     ? p->left.grads_tier
           : p->read_in[v] == SW_SEGMENT_BACKWARD ? p->options->policy.activations_tier
                                                  : SW_TIER_DEVICE;
}

/* Finds the segment of the last read. A value stays on the device if other values lie in it, or if
 * a later segment reads it as a different form. */
static void find_readers(struct sw_offload *p)
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
            } else if (!view && sw_offload_reads_late(p, i, v)) {
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
static bool make_offloaded(struct sw_offload *p, sw_value v, enum sw_tier tier)
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
static size_t waiting_in_host(const struct sw_offload *p)
{
    size_t sum = 0;
    for (sw_value v = 0; v < p->n_values; v++) {
        const struct sw_ir_value *info = &p->ir->values[v];
        const bool is_sum = sw_state_is_sum(info->state) && info->base < 0;
        if (is_sum ? p->left.grads_tier == SW_TIER_HOST : waits_on(p, v) == SW_TIER_HOST) {
            sum += is_sum ? places_of(info) : bytes_of(info);
        }
    }
    return sum;
}

/* Chooses the tier of all values. Returns the bytes of host memory that they take, including second
 * slots. */
static size_t choose_with(struct sw_offload *p, size_t host_left, int64_t states)
{
    const double share = p->options->policy.states_share;
    size_t in_host = 0;
    p->left.states = share > 0 && share < 1 ? (int64_t)(share * (double)states) : states;
    p->left.host = host_left;
    p->left.host_param_elems = p->options->limits.host_param_elems;
    for (sw_value v = 0; v < p->n_values; v++) {
        struct sw_ir_value *info = &p->ir->values[v];
        info->tier = (int)tier_of(p, v);
        in_host +=
            info->tier == SW_TIER_HOST && !sw_state_is_sum(info->state) ? places_of(info) : 0;
    }
    return in_host;
}

/* First places what must be in host memory, then caches tensors of the disk in the rest. */
static void choose_tiers(struct sw_offload *p)
{
    const struct sw_ir *ir = p->ir;
    const size_t all = p->options->policy.budget[SW_TIER_HOST];
    const size_t budget = all > p->reserved ? all - p->reserved : 0;
    int64_t states = 0;
    for (sw_value v = 0; v < p->n_values; v++) {
        const struct sw_ir_value *info = &ir->values[v];
        states +=
            sw_state_is_optimizer(info->state) && info->base < 0 ? (int64_t)bytes_of(info) : 0;
    }
    const size_t has_to = choose_with(p, 0, states);
    if (all == 0) {
        return; /* no cache */
    }
    size_t waiting = waiting_in_host(p);
    if (has_to + waiting > budget && p->options->policy.states_tier == SW_TIER_DISK) {
        p->left.grads_tier = SW_TIER_DISK;
        waiting = waiting_in_host(p);
    }
    choose_with(p, budget > has_to + waiting ? budget - has_to - waiting : 0, states);
}

static bool make_all_offloaded(struct sw_offload *p)
{
    for (sw_value v = 0; v < p->n_values; v++) {
        const enum sw_tier tier = waits_on(p, v);
        if (tier != SW_TIER_DEVICE && !make_offloaded(p, v, tier)) {
            return false;
        }
    }
    return true;
}

bool sw_offload_choose_tiers(struct sw_offload *p)
{
    find_readers(p);
    choose_tiers(p);
    if (!sw_pack_small(p->ir, p->first, p->options)) {
        return false;
    }
    p->n_values = p->ir->n_values;
    return make_all_offloaded(p);
}

/* ---- the techniques ---- */

/* One pass moves values of all kinds. */
static sw_status run(struct sw_plan *plan, const struct sw_plan_options *options)
{
    for (int i = 0; i < plan->n_programs; i++) {
        SW_TRY(sw_pass_offload(plan->programs[i].ir, i > 0 ? plan->programs[0].ir : NULL, options,
                               plan->persistent_bytes[SW_TIER_HOST]));
    }
    return SW_OK;
}

/* The tier of a level of the search: 0 is the host, the nearest to the device. */
static enum sw_tier tier_at(int level)
{
    return level == 0 ? SW_TIER_HOST : SW_TIER_DISK;
}

static void print_device(const char *key, enum sw_tier tier, struct sw_str *out)
{
    sw_str_printf(out, "zero_optimization.%s.device \"%s\"%s\n", key,
                  tier == SW_TIER_DISK ? "nvme" : "cpu",
                  tier == SW_TIER_DISK ? " with its nvme_path" : "");
}

/* Something is offloaded to the tier, or beyond it. */
static bool reaches(const struct sw_shortage *s, enum sw_tier tier)
{
    return s->options->policy.states_tier >= tier || s->options->policy.params_tier >= tier;
}

/* ---- optimizer states ---- */

static int stage_of_states(const struct sw_policy *policy)
{
    return policy->states_tier == SW_TIER_DISK ? 3 : policy->states_tier == SW_TIER_HOST ? 1 : 0;
}

static bool cheaper_states(const struct sw_facts *facts, struct sw_policy *p, int level)
{
    if (!facts->options->rule || p->states_tier >= tier_at(level) || p->states_share <= 0) {
        return false;
    }
    p->states_tier = tier_at(level);
    return true;
}

static size_t spares_states(const struct sw_plan_refusal *refusal)
{
    return refusal->states;
}

static void settings_of_states(const struct sw_policy *before, const struct sw_policy *after,
                               struct sw_str *out)
{
    if (after->states_tier != before->states_tier) {
        print_device("offload_optimizer", after->states_tier, out);
    }
}

static void advise_states(const struct sw_shortage *s, struct sw_str *out)
{
    if (s->tier != SW_TIER_DEVICE) {
        if (reaches(s, s->tier)) {
            sw_advise(out, ", ",
                      "more ranks, or less zero_optimization.offload_optimizer and offload_param");
        }
    } else if (s->options->rule && s->options->policy.states_tier == SW_TIER_DEVICE) {
        sw_advise(out, ", ", "zero_optimization.offload_optimizer.device \"cpu\"");
    }
}

const struct sw_technique sw_technique_offload_states = {
    .keys = "zero_optimization.offload_optimizer",
    .stage = stage_of_states,
    .run = run,
    .cheaper = cheaper_states,
    .spares = spares_states,
    .settings = settings_of_states,
    .advise = advise_states,
};

/* ---- gradients go where the states are ---- */

const struct sw_technique sw_technique_offload_grads = {
    .keys = "zero_optimization.offload_optimizer",
};

/* ---- parameters ---- */

static int stage_of_params(const struct sw_policy *policy)
{
    return policy->params_tier != SW_TIER_DEVICE ? 3 : 0;
}

static bool cheaper_params(const struct sw_facts *facts, struct sw_policy *p, int level)
{
    (void)facts;
    if (p->params_tier >= tier_at(level)) {
        return false;
    }
    p->params_tier = tier_at(level);
    return true;
}

static size_t spares_params(const struct sw_plan_refusal *refusal)
{
    return refusal->params;
}

static void settings_of_params(const struct sw_policy *before, const struct sw_policy *after,
                               struct sw_str *out)
{
    if (after->params_tier != before->params_tier) {
        print_device("offload_param", after->params_tier, out);
    }
}

const struct sw_technique sw_technique_offload_params = {
    .keys = "zero_optimization.offload_param",
    .stage = stage_of_params,
    .cheaper = cheaper_params,
    .spares = spares_params,
    .settings = settings_of_params,
};

/* ---- activations ---- */

static void advise_activations(const struct sw_shortage *s, struct sw_str *out)
{
    if (s->tier == SW_TIER_DEVICE || s->options->policy.activations_tier != s->tier) {
        return;
    }
    if (reaches(s, s->tier)) {
        sw_advise(out, ", or ", "less activation_checkpointing.cpu_checkpointing");
    } else {
        sw_advise(out, ", ",
                  "no activation_checkpointing.cpu_checkpointing, or a smaller "
                  "train_micro_batch_size_per_gpu or --seq-len");
    }
}

const struct sw_technique sw_technique_offload_activations = {
    .keys = "activation_checkpointing.cpu_checkpointing",
    .advise = advise_activations,
};
