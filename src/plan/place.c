// SPDX-License-Identifier: Apache-2.0
// Where values lie (ZeRO-Offload, Ren et al. 2021; ZeRO-Infinity, Rajbhandari et al. 2021): optimizer states, and at
// stage 3 parameters, in host memory or on disk. Before the first op of a block, or of an update, that touches one, it is loaded into
// bytes of the device, which that op and those behind it use instead; what an op has written is stored
// at once. Liveness does the rest: the device holds the parameters of a block, and the states of a tensor, at a
// time. No operand changes its value, so no bit of the training does.
#include "plan/plan.h"

struct pass {
    struct sw_graph *g;
    const struct sw_plan_options *options;
    sw_value *here; /* [n_values] what stands for it on the device; SW_NO_VALUE = not loaded */
    int64_t *place; /* [n_values] where it was loaded: see sw_shard_place */
    struct sw_op_order order;
    int32_t n_values;
};

static struct sw_op transfer(enum sw_op_kind kind, const struct sw_op *of)
{
    struct sw_op op = {.kind = kind,
                       .phase = of->phase,
                       .scope = of->scope,
                       .n_out = 1,
                       .unless_skipped = of->unless_skipped};
    for (int k = 0; k < SW_OP_MAX_OUT; k++) {
        op.out[k] = SW_NO_VALUE;
    }
    return op;
}

/* What lies elsewhere and v is a version of; SW_NO_VALUE when v lies here. */
static sw_value home_of(const struct pass *p, sw_value v)
{
    const sw_value root = v < 0 || v >= p->n_values ? SW_NO_VALUE : sw_graph_root(p->g, v);
    return root >= 0 && p->g->values[root].tier != SW_TIER_DEVICE ? root : SW_NO_VALUE;
}

static bool load(struct pass *p, const struct sw_op *reader, sw_value state)
{
    const struct sw_value_info info = p->g->values[state];
    const sw_value here = sw_graph_new_value(p->g, SW_ROLE_TRANSIENT, info.dtype, info.shape);
    if (here >= 0) {
        p->g->values[here].needs_grad = info.needs_grad;
        p->g->values[here].param = info.role == SW_ROLE_PARAM ? state : info.param;
    }
    struct sw_op op = transfer(SW_OP_LOAD, reader);
    op.n_in = 1;
    op.in[0] = state;
    op.out[0] = here;
    p->here[state] = here;
    p->place[state] = sw_shard_place(p->g, reader);
    return here >= 0 && sw_op_order_add(&p->order, &op);
}

/* `here` is a version of the loaded bytes. */
static bool store(struct pass *p, const struct sw_op *writer, sw_value state, sw_value here)
{
    const struct sw_value_info info = p->g->values[state];
    const sw_value version = sw_graph_new_value(p->g, info.role, info.dtype, info.shape);
    struct sw_op op = transfer(SW_OP_STORE, writer);
    if (version < 0) {
        return false;
    }
    p->g->values[version].base = state;
    p->g->values[version].param = info.param;
    op.n_in = 2;
    op.in[0] = state;
    op.in[1] = here;
    op.out[0] = version;
    return sw_op_order_add(&p->order, &op);
}

static bool rewrite(struct pass *p, struct sw_op *op)
{
    for (int k = 0; k < op->n_in; k++) {
        const sw_value state = home_of(p, op->in[k]);
        if (state < 0) {
            continue;
        }
        const bool loaded = p->here[state] >= 0 && p->place[state] == sw_shard_place(p->g, op);
        if (!loaded && !load(p, op, state)) {
            return false;
        }
        /* a later version of the state is the op's output, whose base moves below */
        op->in[k] = op->in[k] == state ? p->here[state] : op->in[k];
    }
    sw_value written[SW_OP_MAX_OUT];
    for (int k = 0; k < op->n_out; k++) {
        written[k] = home_of(p, op->out[k]);
        if (written[k] >= 0) {
            p->g->values[op->out[k]].base = p->here[written[k]];
            p->g->values[op->out[k]].role = SW_ROLE_TRANSIENT;
        }
    }
    if (!sw_op_order_add(&p->order, op)) {
        return false;
    }
    for (int k = 0; k < op->n_out; k++) {
        if (written[k] >= 0 && !store(p, op, written[k], op->out[k])) {
            return false;
        }
    }
    return true;
}

/* Parameters that the threshold keeps whole on each rank stay here, too. */
static bool is_cut_or_large(const struct pass *p, sw_value v)
{
    const struct sw_value_info *info = &p->g->values[v];
    return p->options->ranks > 1 ? sw_value_is_slice(info)
                                 : sw_shape_elems(&info->shape) > p->options->persistence_elems &&
                                       !sw_param_has_view(p->g, v);
}

static enum sw_tier tier_of(const struct pass *p, sw_value v)
{
    const struct sw_value_info *info = &p->g->values[v];
    if (info->base >= 0) {
        return SW_TIER_DEVICE;
    }
    if (info->is_optimizer_state) {
        return p->options->states_tier;
    }
    return info->role == SW_ROLE_PARAM && info->producer < 0 && is_cut_or_large(p, v)
               ? p->options->params_tier
               : SW_TIER_DEVICE;
}

sw_status sw_pass_place(struct sw_graph *g, const struct sw_plan_options *options)
{
    if (options->states_tier == SW_TIER_DEVICE && options->params_tier == SW_TIER_DEVICE) {
        return SW_OK;
    }
    struct pass p = {.g = g, .options = options, .n_values = g->n_values};
    const int32_t n_ops = g->n_ops;
    p.here = sw_alloc("plan", ((size_t)g->n_values + 1) * sizeof *p.here);
    p.place = sw_alloc("plan", ((size_t)g->n_values + 1) * sizeof *p.place);
    bool good = sw_op_order_open(&p.order, g) >= 0 && p.here && p.place;
    for (sw_value v = 0; good && v < p.n_values; v++) {
        p.here[v] = SW_NO_VALUE;
        g->values[v].tier = (int)tier_of(&p, v);
    }
    for (int32_t i = 0; good && i < n_ops; i++) {
        struct sw_op op = g->ops[i];
        good = op.removed || rewrite(&p, &op);
    }
    if (good) {
        sw_op_order_install(&p.order, g);
    }
    sw_op_order_close(&p.order);
    sw_free(p.here);
    sw_free(p.place);
    return good ? sw_graph_status(g) : SW_FAIL(SW_E_NOMEM, "out of host memory for the plan");
}

struct sw_transfers sw_plan_transfers(const struct sw_plan *plan, int64_t rounds)
{
    const struct sw_program *program = &plan->programs[0];
    const struct sw_graph *g = program->graph;
    struct sw_transfers sum = {0};
    for (int32_t i = 0; i < program->n_instrs; i++) {
        const struct sw_op *op = &g->ops[program->instrs[i].op];
        const bool once = op->phase == SW_PHASE_UPDATE || program->micro_batches > 1;
        const int64_t times = once ? 1 : rounds;
        if (sw_op_is_transfer(op->kind)) {
            const struct sw_value_info *home = &g->values[sw_graph_root(g, op->in[0])];
            (op->kind == SW_OP_LOAD ? sum.in : sum.out)[home->tier] +=
                times * (int64_t)sw_value_bytes(home);
        }
    }
    return sum;
}
