// SPDX-License-Identifier: Apache-2.0
// The loss over a vocabulary and its gradient at once. LINEAR_CE does not keep its logits, so that
// LINEAR_CE_GRAD computes them again. The gradient needs the loss scale and the number of targets,
// which are known in forward. So both ops become one in forward, if the device has a kernel that
// keeps the logits of some rows at a time. Its bits are those of the two ops.
//
// That kernel has a larger workspace. The pass leaves the loss alone if the plan might grow by more
// than 2 %, or if the device has a budget. The gradients are in memory until backward begins, so it
// also leaves a loss alone if forward of other micro-batches or stages runs in between.
#include <string.h>

#include "plan/private.h"
#include "plan/technique.h"

/* The ops that become one, as indices; -1 = there are none. */
struct loss {
    int32_t forward, seed, mean, backward;
};

static int32_t producer_of(const struct sw_ir *ir, sw_value v, enum sw_op_kind kind)
{
    const int32_t i = v < 0 ? -1 : ir->values[v].producer;
    return i >= 0 && sw_ir_is(&ir->ops[i], kind) ? i : -1;
}

/* Number of operands that read v. */
static int uses_of(const struct sw_ir *ir, sw_value v)
{
    int n = ir->values[v].is_output;
    for (int32_t i = 0; i < ir->n_ops; i++) {
        for (int k = 0; k < ir->ops[i].n_in; k++) {
            n += ir->ops[i].in[k] == v;
        }
    }
    return n;
}

/* Finds the loss whose gradient op i is. */
static bool find_loss(const struct sw_ir *ir, int32_t i, struct loss *out)
{
    const struct sw_ir_op *backward = &ir->ops[i];
    if (!sw_ir_is(backward, SW_OP_LINEAR_CE_GRAD)) {
        return false;
    }
    *out = (struct loss){.backward = i,
                         .forward = producer_of(ir, backward->in[4], SW_OP_LINEAR_CE),
                         .mean = producer_of(ir, backward->in[0], SW_OP_LOSS_MEAN_GRAD)};
    if (out->forward < 0 || out->mean < 0) {
        return false;
    }
    const struct sw_ir_op *forward = &ir->ops[out->forward], *mean = &ir->ops[out->mean];
    out->seed = producer_of(ir, mean->in[0], SW_OP_SEED);
    const bool has_bias = backward->detail->attrs.linear_ce.has_bias;
    return out->seed >= 0 && mean->in[1] == forward->out[1] && backward->in[1] == forward->in[0] &&
           backward->in[2] == forward->in[1] && backward->in[3] == forward->in[2] &&
           (!has_bias || backward->in[5] == forward->in[3]) && uses_of(ir, forward->out[2]) == 1 &&
           uses_of(ir, mean->out[0]) == 1;
}

/* Makes the op that replaces the loss. *found: the device has a kernel for it. workspace: of that
 * kernel, and of the one of the gradient */
static sw_status join(struct sw_ir *ir, const struct sw_plan_options *options,
                      const struct loss *loss, struct sw_ir_op *out, size_t workspace[2],
                      bool *found)
{
    const struct sw_ir_op *forward = &ir->ops[loss->forward], *backward = &ir->ops[loss->backward];
    const struct sw_plan_kernels kernels = options->device;
    struct sw_op math = {.kind = SW_OP_LINEAR_CE_AT_ONCE,
                         .n_in = forward->n_in + 1,
                         .n_out = backward->n_out + 2,
                         .attrs = forward->detail->attrs};
    struct sw_op_desc desc;
    *found = true;
    math.attrs.linear_ce.mean_weight = ir->ops[loss->mean].detail->attrs.loss_mean.weight;
    *out = *forward;
    sw_ir_take_math(ir, out, &math);
    SW_TRY(sw_ir_status(ir));
    out->in[0] = ir->ops[loss->seed].out[0];
    memcpy(&out->in[1], forward->in, (size_t)forward->n_in * sizeof *out->in);
    for (int k = 2; k < SW_MAX_OUTPUTS; k++) {
        out->out[k] = k < out->n_out ? backward->out[k - 2] : SW_NO_VALUE;
    }
    for (int i = 0; i < 2; i++) {
        struct sw_kernel_info info = {0};
        sw_ir_describe(ir, i == 0 ? out : backward, &math, &desc);
        kernels.query(kernels.ctx, &desc, &info);
        if (info.no_memory) {
            return SW_FAIL(SW_E_NOMEM, "out of host memory for a kernel of the loss");
        }
        workspace[i] = info.workspace_bytes;
        *found = *found && info.supported;
    }
    return SW_OK;
}

/* ---- memory ---- */

/* alive: [n_ops + 2] becomes the bytes of the values that are needed while an op runs. */
static bool find_alive(const struct sw_ir *ir, const struct sw_plan_options *options,
                       int64_t *alive)
{
    const bool waits = sw_has_one_round(options) && !sw_updates_in_backward(options);
    int32_t *first = sw_alloc("plan", ((size_t)ir->n_values + 1) * sizeof *first);
    int32_t *last = sw_alloc_zero("plan", (size_t)ir->n_values + 1, sizeof *last);
    for (sw_value v = 0; first && last && v < ir->n_values; v++) {
        first[v] = ir->n_ops;
    }
    for (int32_t i = 0; first && last && i < ir->n_ops; i++) {
        const struct sw_ir_op *op = &ir->ops[i];
        for (int k = 0; k < op->n_in + op->n_out; k++) {
            const sw_value v = k < op->n_in ? op->in[k] : op->out[k - op->n_in];
            const sw_value root = v < 0 ? v : sw_ir_root(ir, v);
            if (root >= 0) {
                first[root] = i < first[root] ? i : first[root];
                last[root] = ir->values[v].is_output ? ir->n_ops : i > last[root] ? i : last[root];
            }
        }
    }
    for (int32_t i = 0; first && last && i < ir->n_streams && waits; i++) {
        last[sw_ir_root(ir, ir->streams[i].grad)] = ir->n_ops;
    }
    for (sw_value v = 0; first && last && v < ir->n_values; v++) {
        const struct sw_ir_value *value = &ir->values[v];
        if (value->base < 0 && first[v] < ir->n_ops && value->role != SW_ROLE_PARAM &&
            value->role != SW_ROLE_STATE) {
            alive[first[v]] += (int64_t)sw_ir_storage_bytes(value);
            alive[last[v] + 1] -= (int64_t)sw_ir_storage_bytes(value);
        }
    }
    for (int32_t i = 0; i <= ir->n_ops; i++) {
        alive[i + 1] += alive[i];
    }
    const bool good = first && last;
    sw_free(first);
    sw_free(last);
    return good;
}

/* A plan has its parameters, at least as many bytes of states, and the values of its fullest op. Of
 * this sum the workspace may take a sixty-fourth more. */
static bool has_room(const struct sw_ir *ir, const int64_t *alive, const struct loss *loss,
                     const size_t workspace[2])
{
    int64_t parameters = 0, most = 0;
    for (sw_value v = 0; v < ir->n_values; v++) {
        const struct sw_ir_value *value = &ir->values[v];
        parameters += value->role == SW_ROLE_PARAM && value->base < 0
                          ? (int64_t)sw_ir_storage_bytes(value)
                          : 0;
    }
    for (int32_t i = 0; i <= ir->n_ops; i++) {
        most = sw_max_i64(most, alive[i]);
    }
    const int64_t at_loss = alive[loss->backward];
    most = sw_max_i64(most, at_loss + (int64_t)workspace[1]);
    return at_loss + (int64_t)workspace[0] <= most + (2 * parameters + most) / 64;
}

/* ---- the pass ---- */

static bool replace(struct sw_ir *ir, const struct loss *loss, const struct sw_ir_op *both)
{
    struct sw_op_order order;
    bool good = sw_op_order_open(&order, ir) >= 0;
    for (int32_t i = 0; good && i < ir->n_ops; i++) {
        if (i == loss->forward) {
            struct sw_ir_op seed = ir->ops[loss->seed];
            seed.phase = both->phase;
            good = sw_op_order_add(&order, &seed) && sw_op_order_add(&order, both);
        } else if (i != loss->seed && i != loss->mean && i != loss->backward) {
            good = sw_op_order_add(&order, &ir->ops[i]);
        }
    }
    if (good) {
        sw_op_order_install(&order, ir);
    }
    sw_op_order_close(&order);
    return good;
}

sw_status sw_pass_loss(struct sw_ir *ir, const struct sw_plan_options *options)
{
    struct loss loss;
    struct sw_ir_op both;
    size_t workspace[2];
    bool found = false;
    int32_t i = 0;
    while (i < ir->n_ops && !find_loss(ir, i, &loss)) {
        i++;
    }
    if (i == ir->n_ops) {
        return SW_OK;
    }
    SW_TRY(join(ir, options, &loss, &both, workspace, &found));
    if (!found) {
        return SW_OK;
    }
    int64_t *alive = sw_alloc_zero("plan", (size_t)ir->n_ops + 2, sizeof *alive);
    const bool good = alive && find_alive(ir, options, alive) &&
                      (!has_room(ir, alive, &loss, workspace) || replace(ir, &loss, &both));
    sw_free(alive);
    return good ? SW_OK : SW_FAIL(SW_E_NOMEM, "out of host memory for the plan");
}

/* ---- the technique ---- */

/* True if one rank has everything on the device, and backward follows forward at once. */
static bool is_wanted(const struct sw_plan_options *options)
{
    const struct sw_policy *p = &options->policy;
    return sw_mesh_ranks(&options->mesh) == 1 && !options->stage_blocks &&
           sw_program_micro_batches(options) == 1 && p->budget[SW_TIER_DEVICE] == 0 &&
           p->tile_bytes == 0 && p->states_tier == SW_TIER_DEVICE &&
           p->params_tier == SW_TIER_DEVICE && p->grads_tier == SW_TIER_DEVICE &&
           p->activations_tier == SW_TIER_DEVICE;
}

static sw_status run(struct sw_plan *plan, const struct sw_plan_options *options)
{
    for (int i = 0; i < plan->n_programs && is_wanted(options); i++) {
        if (plan->programs[i].kind == SW_PROGRAM_TRAIN) {
            SW_TRY(sw_pass_loss(plan->programs[i].ir, options));
        }
    }
    return SW_OK;
}

const struct sw_technique sw_technique_loss = {.keys = "", .run = run};
