// SPDX-License-Identifier: Apache-2.0
// The graph of one of several ranks that compute a forward together: one walk over the ops. On the
// tensor axis, an op whose parameter or input is cut works on parts, if it can
// (graph/part_tensor.c). On the context axis, values that come from ids are cut along the tokens
// (graph/part_tokens.c). Everything else is whole.
// Invariant: all ranks get the same ops, so their exchanges meet.
#include <string.h>

#include "graph/part.h"

static void take(struct sw_part_pass *p, const struct sw_op *op)
{
    struct sw_op_desc desc;
    sw_graph_describe(p->g, op, &desc);
    p->out->scope = op->scope;
    if (p->ranks.tokens) {
        sw_part_take_tokens(p, op, &desc);
    } else {
        sw_part_take_tensor(p, op, &desc);
    }
}

/* The same scopes, so that the numbers of scopes, and names in messages, stay. */
static void copy_scopes(struct sw_part_pass *p)
{
    for (int32_t i = 1; i < p->g->n_scopes; i++) {
        const struct sw_scope *scope = &p->g->scopes[i];
        const size_t parent = strlen(p->g->scopes[scope->parent].name);
        const char *name = scope->name + parent + (parent > 0);
        p->out->scope = scope->parent;
        if (scope->is_block) {
            sw_scope_push_block(p->out, name);
        } else {
            sw_scope_push(p->out, name);
        }
    }
}

static void copy_outputs(struct sw_part_pass *p)
{
    const struct sw_spread whole = sw_spread_of(SW_SPREAD_WHOLE);
    for (int32_t i = 0; i < p->g->n_outputs; i++) {
        const struct sw_named *output = &p->g->outputs[i];
        if (!sw_part_can(p, output->value, &whole)) {
            sw_graph_fail(p->out, SW_E_UNSUP, "output %s: ranks have parts of several groups of it",
                          output->name);
        }
        /* row-major: what is gathered without its padding is a view */
        sw_output(p->out, output->name,
                  sw_graph_dense(p->out, sw_part_in(p, output->value, &whole)));
    }
}

static void copy_adapted(struct sw_part_pass *p)
{
    for (int32_t i = 0; i < p->g->adapted.n; i++) {
        const struct sw_adapted *of = &p->g->adapted.items[i];
        struct sw_adapted layer = *of;
        layer.weight = sw_graph_find(p->out, SW_ROLE_PARAM, sw_part_info(p, of->weight)->name);
        layer.a = sw_graph_find(p->out, SW_ROLE_PARAM, sw_part_info(p, of->a)->name);
        layer.b = sw_graph_find(p->out, SW_ROLE_PARAM, sw_part_info(p, of->b)->name);
        sw_graph_note_adapted(p->out, &layer);
    }
}

static sw_status open_out(struct sw_part_pass *p)
{
    const struct sw_graph *g = p->g;
    const struct sw_graph_options options = {.dtype = g->dtype,
                                             .grad_dtype = g->grad_dtype,
                                             .training = g->training,
                                             .token_mean = g->token_mean,
                                             .loss_chunk = g->loss_chunk,
                                             .frozen = g->frozen,
                                             .n_frozen = g->n_frozen,
                                             .adapter = g->adapted.by,
                                             .quantizer = g->quantizer};
    p->forms = sw_alloc_zero("graph", (size_t)sw_max_i64(g->n_values, 1), sizeof *p->forms);
    SW_TRY_ALLOC(p->forms, "the graph of a rank");
    return sw_graph_open(&options, &p->out);
}

sw_status sw_graph_part(const struct sw_graph *g, const struct sw_ranks *ranks, sw_value loss,
                        struct sw_graph **out, sw_value *out_loss)
{
    struct sw_part_pass p = {.g = g, .ranks = *ranks};
    SW_TRY(sw_graph_status(g));
    if (ranks->n <= 1) {
        SW_TRY(sw_graph_copy(g, out));
        *out_loss = loss;
        return SW_OK;
    }
    sw_status st = open_out(&p);
    if (st < 0) {
        sw_free(p.forms);
        return st;
    }
    copy_scopes(&p);
    sw_part_leaves(&p);
    for (int32_t i = 0; i < g->n_ops && p.out->status >= 0; i++) {
        take(&p, &g->ops[i]);
    }
    p.out->scope = 0;
    copy_outputs(&p);
    copy_adapted(&p);
    const struct sw_spread whole = sw_spread_of(SW_SPREAD_WHOLE);
    const sw_value at = loss < 0 ? SW_NO_VALUE : sw_part_in(&p, loss, &whole);
    p.out->scope = 0;
    sw_free(p.forms);
    st = sw_graph_status(p.out);
    if (st < 0) {
        sw_graph_close(p.out);
        return st;
    }
    *out = p.out;
    *out_loss = at;
    return SW_OK;
}
