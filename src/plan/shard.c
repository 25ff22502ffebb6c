// SPDX-License-Identifier: Apache-2.0
// ZeRO stage 3 as a pass (Rajbhandari et al. 2020). Every parameter is one flat tensor, padded and
// cut into equal shards, one per rank. Shards are gathered before an op reads the parameter. The
// gathered copy is freed after its last reader, since it is an ordinary transient. Readers in one
// block of one phase share a gather, also with those of the next such place (sw_places_reach).
// Model code is not involved: tied tables, parameters of another scope and frozen ones are ordinary
// uses. Each tile of a tiled parameter is sharded and gathered separately, so no rank ever has the
// whole parameter.
#include "plan/private.h"
#include "plan/technique.h"

struct current { /* the gathered copy of a parameter, which readers may share */
    sw_value whole;
    int64_t place; /* of its last reader */
};

struct pass {
    struct sw_ir *ir;
    const struct sw_plan_options *options;
    struct current *current; /* [n_values] by parameter */
    struct sw_places places;
    struct sw_op_order order;
};

/* Turns a tile into this rank's shard of it. The shards of a parameter's tiles are adjacent. tile:
 * its whole layout, sharded */
static void cut_tile(struct sw_ir *ir, sw_value tile, const struct sw_layout *shard)
{
    const sw_value param = ir->values[tile].base;
    if (!sw_ir_is_slice(&ir->values[param])) {
        struct sw_layout all = sw_ir_shard_of(ir, param, shard->run);
        all.tile_elems = ir->values[tile].form->elems;
        sw_ir_set_layout(ir, param, &all);
    }
    const struct sw_layout *all = &ir->values[param].form->layout;
    ir->values[tile].base_offset =
        ir->values[tile].base_offset / all->tile_elems * sw_layout_tile_shard(all);
    sw_ir_set_layout(ir, tile, shard);
}

/* Adds a gathered copy of `param` for op; SW_NO_VALUE when out of memory. */
static sw_value gather(struct pass *p, sw_value param, const struct sw_ir_op *reader)
{
    struct sw_ir *ir = p->ir;
    const struct sw_ir_value info = ir->values[param];
    const sw_value whole =
        sw_ir_new_value(ir, SW_ROLE_TRANSIENT, info.dtype, info.form->layout.whole);
    if (whole < 0) {
        return SW_NO_VALUE;
    }
    const struct sw_layout gathered = sw_layout_gathered(&info.form->layout);
    sw_ir_set_layout(ir, whole, &gathered);
    ir->values[whole].needs_grad = info.needs_grad;
    struct sw_ir_op op = sw_ir_move_beside(SW_MOVE_GATHER, reader);
    op.exchange.group = (int8_t)sw_ir_spread_group(ir, param);
    op.n_in = 1;
    op.in[0] = param;
    op.out[0] = whole;
    return sw_op_order_add(&p->order, &op) ? whole : SW_NO_VALUE;
}

/* Replaces each sharded parameter by a gathered copy. */
static bool rewrite(struct pass *p, struct sw_ir_op *op)
{
    const int64_t place = sw_ir_block_segment(p->ir, op);
    for (int k = 0; k < op->n_in; k++) {
        const sw_value v = op->in[k];
        if (p->ir->values[v].role != SW_ROLE_PARAM || !sw_ir_is_slice(&p->ir->values[v])) {
            continue;
        }
        struct current *now = &p->current[v];
        sw_places_enter(&p->places, place);
        /* the copy of a tile serves one op */
        if (!sw_places_reach(&p->places, now->place) || sw_ir_is_part(p->ir, v)) {
            now->whole = gather(p, v, op);
            if (now->whole < 0) {
                return false;
            }
        }
        now->place = place;
        op->in[k] = now->whole;
    }
    return sw_op_order_add(&p->order, op);
}

/* Parameter k of program n as in the first earlier program that has it. NULL = none has it, or it
 * is a tile. */
static struct sw_ir_value *find_before(struct sw_plan *plan, int n, int32_t k)
{
    const struct sw_ir *own = plan->programs[n].ir;
    for (int i = 0; i < n && !sw_ir_is_part(own, own->params.at[k]); i++) {
        struct sw_ir *ir = plan->programs[i].ir;
        const sw_value v = sw_ir_find(ir, SW_ROLE_PARAM, own->values[own->params.at[k]].name);
        if (v >= 0) {
            return &ir->values[v];
        }
    }
    return NULL;
}

/* The first program that has a parameter decides for later ones. */
static void choose_in(struct sw_plan *plan, int i, const struct sw_plan_options *options,
                      int64_t *left)
{
    struct sw_ir *ir = plan->programs[i].ir;
    for (int32_t k = 0; k < ir->params.n; k++) {
        struct sw_ir_value *param = &ir->values[ir->params.at[k]];
        struct sw_ir_value *known = find_before(plan, i, k);
        if (known) {
            known->param_facts.is_viewed |= param->param_facts.is_viewed;
            param->param_facts.stays_whole = known->param_facts.stays_whole;
        } else if (!sw_ir_is_part(ir, ir->params.at[k]) &&
                   param->form->elems <= options->limits.persistence_elems &&
                   param->form->elems <= *left) {
            param->param_facts.stays_whole = true;
            *left -= param->form->elems;
        }
    }
}

void sw_choose_whole(struct sw_plan *plan, const struct sw_plan_options *options)
{
    int64_t left = options->limits.persistence_total;
    for (int i = 0; i < plan->n_programs; i++) {
        choose_in(plan, i, options, &left);
    }
    for (int i = 1; i < plan->n_programs; i++) { /* a view in one program counts for all of them */
        const struct sw_ir *ir = plan->programs[i].ir;
        for (int32_t k = 0; k < ir->params.n; k++) {
            struct sw_ir_value *param = &ir->values[ir->params.at[k]];
            const struct sw_ir_value *known = find_before(plan, i, k);
            param->param_facts.is_viewed =
                known ? known->param_facts.is_viewed : param->param_facts.is_viewed;
        }
    }
}

/* Shards the parameters that do not stay whole. false = there are none */
static bool cut_params(struct sw_ir *ir, const struct sw_plan_options *options)
{
    bool any = false;
    for (int32_t i = 0; i < ir->params.n; i++) {
        const sw_value param = ir->params.at[i];
        const struct sw_ir_value *info = &ir->values[param];
        const struct sw_layout shard = sw_ir_shard_of(ir, param, sw_update_run(options->rule));
        const struct sw_layout whole = sw_layout_gathered(&shard);
        const bool tile = sw_ir_is_part(ir, param);
        const bool stays = options->policy.stage < 3 || info->param_facts.stays_whole ||
                           info->param_facts.is_viewed;
        if (sw_ir_spread(ir, param).size <= 1) {
            continue; /* no other rank has it */
        }
        if (tile) {
            cut_tile(ir, param, &shard);
        } else {
            sw_ir_set_layout(ir, param, stays ? &whole : &shard);
        }
        any = any || tile || !stays;
    }
    return any;
}

sw_status sw_pass_shard(struct sw_ir *ir, const struct sw_plan_options *options)
{
    if (sw_ir_data(ir)->n <= 1 || !cut_params(ir, options)) {
        return SW_OK;
    }
    struct pass p = {.ir = ir, .options = options, .places = sw_places_of(options)};
    const int32_t n_ops = ir->n_ops, n_values = ir->n_values;
    p.current = sw_alloc("plan", (size_t)n_values * sizeof *p.current);
    bool good = sw_op_order_open(&p.order, ir) >= 0 && p.current;
    for (sw_value v = 0; good && v < n_values; v++) {
        p.current[v] = (struct current){SW_NO_VALUE, -1};
    }
    for (int32_t i = 0; good && i < n_ops; i++) {
        struct sw_ir_op op = ir->ops[i];
        good = rewrite(&p, &op);
    }
    if (good) {
        sw_op_order_install(&p.order, ir);
    }
    sw_op_order_close(&p.order);
    sw_free(p.current);
    return good ? sw_ir_status(ir) : SW_FAIL(SW_E_NOMEM, "out of host memory for the plan");
}

/* ---- the technique ---- */

static sw_status run(struct sw_plan *plan, const struct sw_plan_options *options)
{
    sw_choose_whole(plan, options);
    for (int i = 0; i < plan->n_programs; i++) {
        SW_TRY(sw_pass_shard(plan->programs[i].ir, options));
    }
    return SW_OK;
}

static void settings(const struct sw_policy *before, const struct sw_policy *after,
                     struct sw_str *out)
{
    if (after->stage != before->stage) {
        sw_str_printf(out, "zero_optimization.stage %d\n", after->stage);
    }
}

const struct sw_technique sw_technique_shard = {
    .keys = "zero_optimization.stage",
    .run = run,
    .settings = settings,
};
