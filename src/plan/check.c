// SPDX-License-Identifier: Apache-2.0
// Verifies a finished plan against its graph, trusting nothing of how it was made.
#include <stdlib.h>
#include <string.h>

#include "plan/plan.h"

struct check {
    const struct sw_plan *plan;
    const struct sw_program *program;
    int32_t *written; /* [n_values] instruction that wrote the value, -1 = not yet; leaves: 0 */
    sw_value *newest; /* [n_values] by root: the version its bytes hold now */
};

static const char *value_name(const struct sw_graph *g, sw_value v)
{
    return g->values[v].name ? g->values[v].name : "a transient";
}

/* The version of its storage that v is a view of. */
static sw_value version_of(const struct sw_graph *g, sw_value v)
{
    while (g->values[v].producer >= 0 && g->ops[g->values[v].producer].kind == SW_OP_VIEW) {
        v = g->ops[g->values[v].producer].in[0];
    }
    return v;
}

static sw_status check_read(const struct check *c, int32_t i, sw_value v)
{
    const struct sw_graph *g = c->program->graph;
    const sw_value version = version_of(g, v);
    const sw_value root = sw_graph_root(g, version);
    const bool leaf = g->values[version].producer < 0;
    if (!leaf && c->written[version] < 0) {
        return SW_FAIL(SW_E_ARG, "plan: instruction %d (%s) reads %%%d before it is written", i,
                       sw_op_name(&g->ops[c->program->instrs[i].op]), version);
    }
    if (c->newest[root] != version) {
        return SW_FAIL(SW_E_ARG, "plan: instruction %d (%s) reads %s after it was overwritten", i,
                       sw_op_name(&g->ops[c->program->instrs[i].op]), value_name(g, version));
    }
    const struct sw_buffer *buffer = &c->program->buffers[c->program->buffer_of[root]];
    if (!buffer->persistent && (i < buffer->first || i > buffer->last)) {
        return SW_FAIL(SW_E_ARG, "plan: instruction %d reads %%%d outside of its buffer's life", i,
                       version);
    }
    return SW_OK;
}

static sw_status check_order(struct check *c)
{
    const struct sw_program *program = c->program;
    const struct sw_graph *g = program->graph;
    for (sw_value v = 0; v < g->n_values; v++) {
        c->written[v] = -1;
        c->newest[v] = v;
    }
    for (int32_t i = 0; i < program->n_instrs; i++) {
        const struct sw_op *op = &g->ops[program->instrs[i].op];
        for (int k = 0; k < op->n_in; k++) {
            SW_TRY(check_read(c, i, op->in[k]));
        }
        for (int k = 0; k < op->n_out; k++) {
            if (op->out[k] < 0) {
                continue;
            }
            c->written[op->out[k]] = i;
            c->newest[sw_graph_root(g, op->out[k])] = op->out[k];
        }
        if (i > 0 && program->instrs[i].segment < program->instrs[i - 1].segment) {
            return SW_FAIL(SW_E_ARG, "plan: instruction %d goes back to an earlier segment", i);
        }
        for (int w = 0; w < 2; w++) {
            if (program->instrs[i].waits[w] >= i) {
                return SW_FAIL(SW_E_ARG, "plan: instruction %d waits for a later one", i);
            }
        }
    }
    return SW_OK;
}

static sw_status check_held(const struct check *c, int32_t i, int32_t b, int32_t first,
                            int32_t last)
{
    const struct sw_buffer *buffer = &c->program->buffers[b];
    if (!buffer->persistent && (buffer->first > first || buffer->last < last)) {
        return SW_FAIL(SW_E_ARG,
                       "plan: instruction %d is under way from %d to %d, its buffer lives from %d "
                       "to %d",
                       i, first, last, buffer->first, buffer->last);
    }
    return SW_OK;
}

/* Collectives are under way until somebody waits: nobody may read what they write, or write what they
 * read, before that. */
static sw_status check_overlap(const struct check *c, int32_t *touched, int32_t *arrived)
{
    const struct sw_program *program = c->program;
    const struct sw_graph *g = program->graph;
    int32_t done = -1;
    for (int32_t i = 0, segment = -1; i < program->n_instrs; i++) {
        const struct sw_instr *instr = &program->instrs[i];
        const struct sw_op *op = &g->ops[instr->op];
        if ((int32_t)instr->segment != segment) { /* a segment ends with all of them complete */
            segment = (int32_t)instr->segment;
            done = i - 1;
        }
        done = instr->waits[0] > done ? instr->waits[0] : done;
        done = instr->blocking ? i : done; /* it waits for all before it */
        const int32_t first = sw_program_issued(program, i), last = sw_program_retired(program, i);
        for (int k = 0; k < op->n_in + op->n_out; k++) {
            const sw_value v = k < op->n_in ? op->in[k] : op->out[k - op->n_in];
            const sw_value root = v < 0 ? SW_NO_VALUE : sw_graph_root(g, v);
            if (root < 0) {
                continue;
            }
            SW_TRY(check_held(c, i, program->buffer_of[root], first, last));
            const int32_t other = k < op->n_in ? arrived[root] : touched[root];
            if (instr->queue != SW_QUEUE_COMM && other > done) {
                return SW_FAIL(SW_E_ARG,
                               "plan: instruction %d (%s) does not wait for instruction %d (%s), "
                               "which is under way with %s",
                               i, sw_op_name(op), other,
                               sw_op_name(&g->ops[program->instrs[other].op]), value_name(g, root));
            }
            if (instr->queue == SW_QUEUE_COMM && !instr->blocking) {
                touched[root] = i;
                arrived[root] = k < op->n_in ? arrived[root] : i;
            }
        }
        if (instr->workspace >= 0) {
            SW_TRY(check_held(c, i, instr->workspace, first, last));
        }
    }
    return SW_OK;
}

static sw_status check_sizes(const struct check *c, const struct sw_plan_options *options)
{
    const struct sw_program *program = c->program;
    const struct sw_graph *g = program->graph;
    for (int32_t b = 0; b < program->n_buffers; b++) {
        const struct sw_buffer *buffer = &program->buffers[b];
        if (buffer->value < 0) {
            continue;
        }
        const size_t need = sw_value_storage_bytes(&g->values[buffer->value]);
        if (buffer->bytes < need) {
            return SW_FAIL(SW_E_ARG, "plan: %s (%%%d) has %zu bytes and needs %zu",
                           value_name(g, buffer->value), buffer->value, buffer->bytes, need);
        }
        if (buffer->persistent && buffer->tier == SW_TIER_DEVICE &&
            buffer->offset + need > c->plan->persistent_bytes) {
            return SW_FAIL(SW_E_ARG, "plan: %s lies outside of the persistent part",
                           value_name(g, buffer->value));
        }
    }
    for (int32_t i = 0; i < program->n_instrs; i++) {
        const struct sw_instr *instr = &program->instrs[i];
        struct sw_op_desc desc;
        struct sw_kernel_info kernel = {0};
        if (sw_op_is_transfer(g->ops[instr->op].kind)) {
            kernel.workspace_bytes = 0;
        } else if (sw_op_is_collective(g->ops[instr->op].kind)) {
            kernel.workspace_bytes = sw_collective_workspace(g, &g->ops[instr->op], options->ranks);
        } else {
            sw_graph_describe(g, &g->ops[instr->op], &desc);
            options->query(options->query_ctx, &desc, &kernel);
        }
        const size_t have = instr->workspace >= 0 ? program->buffers[instr->workspace].bytes : 0;
        if (have < kernel.workspace_bytes) {
            return SW_FAIL(SW_E_ARG,
                           "plan: instruction %d (%s) has %zu bytes of workspace and needs %zu", i,
                           sw_op_name(&g->ops[instr->op]), have, kernel.workspace_bytes);
        }
    }
    return SW_OK;
}

/* What stays lives at all times. */
struct life {
    int32_t first, last, buffer;
};

static int by_first(const void *a, const void *b)
{
    const struct life *x = a, *y = b;
    return x->first != y->first ? (x->first > y->first) - (x->first < y->first)
                                : (x->buffer > y->buffer) - (x->buffer < y->buffer);
}

static sw_status check_tier(const struct check *c, int32_t i)
{
    const struct sw_buffer *a = &c->program->buffers[i];
    const size_t tier = c->plan->tier_bytes[a->tier], budget = c->plan->tier_budget[a->tier];
    if (a->offset + a->bytes > tier || (budget > 0 && a->offset + a->bytes > budget)) {
        return SW_FAIL(SW_E_ARG, "plan: buffer %d ends at %zu, beyond the %zu bytes of its tier", i,
                       a->offset + a->bytes, budget > 0 && budget < tier ? budget : tier);
    }
    return SW_OK;
}

static bool share_bytes(const struct sw_buffer *a, const struct sw_buffer *b)
{
    return a->tier == b->tier && a->bytes > 0 && b->bytes > 0 && a->offset < b->offset + b->bytes &&
           b->offset < a->offset + a->bytes;
}

/* Each buffer beside those that are alive when its life begins. */
static sw_status check_lives(const struct check *c, const struct life *lives, struct life *alive)
{
    const struct sw_buffer *buffers = c->program->buffers;
    int32_t n_alive = 0;
    for (int32_t i = 0; i < c->program->n_buffers; i++) {
        int32_t n = 0;
        for (int32_t k = 0; k < n_alive; k++) {
            if (alive[k].last < lives[i].first) {
                continue;
            }
            if (share_bytes(&buffers[alive[k].buffer], &buffers[lives[i].buffer])) {
                return SW_FAIL(SW_E_ARG, "plan: buffers %d and %d live at once in the same bytes",
                               alive[k].buffer, lives[i].buffer);
            }
            alive[n++] = alive[k];
        }
        alive[n] = lives[i];
        n_alive = n + 1;
    }
    return SW_OK;
}

static sw_status check_places(const struct check *c)
{
    const struct sw_program *program = c->program;
    const size_t n = (size_t)program->n_buffers;
    struct life *lives = sw_alloc("plan", (2 * n + 1) * sizeof *lives);
    SW_TRY_ALLOC(lives, "checking the plan");
    sw_status st = SW_OK;
    for (int32_t i = 0; i < program->n_buffers; i++) {
        const struct sw_buffer *buffer = &program->buffers[i];
        lives[i] = buffer->persistent ? (struct life){INT32_MIN, INT32_MAX, i}
                                      : (struct life){buffer->first, buffer->last, i};
        SW_TRY_OR(done, check_tier(c, i));
    }
    qsort(lives, n, sizeof *lives, by_first);
    SW_TRY_OR(done, check_lives(c, lives, lives + n));
done:
    sw_free(lives);
    return st;
}

sw_status sw_plan_check(const struct sw_plan *plan, const struct sw_plan_options *options)
{
    for (int p = 0; p < plan->n_programs; p++) {
        struct check c = {.plan = plan, .program = &plan->programs[p]};
        const size_t n = (size_t)c.program->graph->n_values + 1;
        c.written = sw_alloc("plan", n * sizeof *c.written);
        c.newest = sw_alloc("plan", n * sizeof *c.newest);
        sw_status st = SW_OK;
        if (!c.written || !c.newest) {
            st = SW_FAIL(SW_E_NOMEM, "out of host memory for checking the plan");
        }
        if (st == SW_OK) {
            st = check_order(&c);
        }
        for (size_t v = 0; st == SW_OK && v < n; v++) {
            c.written[v] = c.newest[v] = -1; /* used again */
        }
        if (st == SW_OK) {
            st = check_overlap(&c, c.written, c.newest);
        }
        if (st == SW_OK) {
            st = check_sizes(&c, options);
        }
        if (st == SW_OK) {
            st = check_places(&c);
        }
        sw_free(c.written);
        sw_free(c.newest);
        SW_TRY(st);
    }
    return SW_OK;
}
