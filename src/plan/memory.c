// SPDX-License-Identifier: Apache-2.0
// The memory map of one program: every transient lives from the instruction that writes it to the last
// that reads it; addresses are given to the largest first, each the lowest gap that is free over its
// whole life. No fragmentation at run time, because nothing is allocated then.
#include <stdlib.h>

#include "plan/plan.h"

static void touch(struct sw_program *program, sw_value v, int32_t at)
{
    const sw_value root = sw_graph_root(program->graph, v);
    const int32_t i = program->buffer_of[root];
    if (i < 0) {
        return;
    }
    struct sw_buffer *buffer = &program->buffers[i];
    if (buffer->persistent) {
        return;
    }
    buffer->first = buffer->first < at ? buffer->first : at;
    buffer->last = buffer->last > at ? buffer->last : at;
}

/* Adds a buffer for the root of v unless it has one; it is in use from `at` to `until`. */
static void ensure(struct sw_program *program, sw_value v, int32_t at, int32_t until)
{
    const struct sw_graph *g = program->graph;
    const sw_value root = sw_graph_root(g, v);
    if (program->buffer_of[root] < 0) {
        const enum sw_tier tier = (enum sw_tier)g->values[root].tier;
        program->buffer_of[root] = program->n_buffers;
        program->buffers[program->n_buffers++] = (struct sw_buffer){
            .value = root,
            .tier = tier,
            .bytes = sw_round_up(sw_value_storage_bytes(&g->values[root]), sw_tier_align(tier)),
            .first = g->values[root].role == SW_ROLE_INPUT ? 0 : at,
            .last = at,
        };
    }
    touch(program, v, at);
    touch(program, v, until);
}

static void find_lives(struct sw_program *program)
{
    const struct sw_graph *g = program->graph;
    for (int32_t i = 0; i < program->n_instrs; i++) {
        struct sw_instr *instr = &program->instrs[i];
        const struct sw_op *op = &g->ops[instr->op];
        const int32_t first = sw_program_issued(program, i);
        const int32_t last = instr->retired;
        for (int k = 0; k < op->n_in; k++) {
            ensure(program, op->in[k], first, last);
        }
        for (int k = 0; k < op->n_out; k++) {
            if (op->out[k] >= 0) {
                ensure(program, op->out[k], first, last);
            }
        }
        if (instr->kernel.workspace_bytes > 0) {
            instr->workspace = program->n_buffers;
            program->buffers[program->n_buffers++] = (struct sw_buffer){
                .value = SW_NO_VALUE,
                .bytes = sw_round_up(instr->kernel.workspace_bytes, SW_PLAN_ALIGN),
                .first = first,
                .last = last,
            };
        }
    }
    for (int32_t i = 0; i < g->n_outputs; i++) {
        touch(program, g->outputs[i].value, program->n_instrs);
    }
    for (sw_value v = 0; v < g->n_values; v++) {
        if (g->values[v].is_output) {
            touch(program, v, program->n_instrs);
        }
    }
}

struct rank {
    size_t bytes;
    int32_t first, buffer;
};

static int by_size(const void *a, const void *b)
{
    const struct rank *x = a, *y = b;
    if (x->bytes != y->bytes) {
        return x->bytes < y->bytes ? 1 : -1;
    }
    if (x->first != y->first) {
        return x->first > y->first ? 1 : -1;
    }
    return (x->buffer > y->buffer) - (x->buffer < y->buffer);
}

struct span {
    size_t begin, end;
};

static int by_begin(const void *a, const void *b)
{
    const struct span *x = a, *y = b;
    return (x->begin > y->begin) - (x->begin < y->begin);
}

/* The lowest address where `buffer` fits between those placed already that live at the same time. */
static size_t lowest_gap(const struct sw_program *program, const struct rank *placed,
                         int32_t n_placed, const struct sw_buffer *buffer, struct span *spans)
{
    int32_t n = 0;
    for (int32_t i = 0; i < n_placed; i++) {
        const struct sw_buffer *other = &program->buffers[placed[i].buffer];
        if (other->tier == buffer->tier && other->first <= buffer->last &&
            buffer->first <= other->last) {
            spans[n++] = (struct span){other->offset, other->offset + other->bytes};
        }
    }
    qsort(spans, (size_t)n, sizeof *spans, by_begin);
    size_t at = 0;
    for (int32_t i = 0; i < n; i++) {
        if (spans[i].begin >= at && spans[i].begin - at >= buffer->bytes) {
            break;
        }
        at = spans[i].end > at ? spans[i].end : at;
    }
    return at;
}

static void find_peak(struct sw_program *program)
{
    for (int32_t i = 0; i < program->n_instrs; i++) {
        size_t live = 0;
        for (int32_t b = 0; b < program->n_buffers; b++) {
            const struct sw_buffer *buffer = &program->buffers[b];
            if (!buffer->persistent && buffer->tier == SW_TIER_DEVICE && buffer->first <= i &&
                i <= buffer->last) {
                live += buffer->bytes;
            }
        }
        if (live > program->peak_live_bytes) {
            program->peak_live_bytes = live;
            program->peak_instr = i;
        }
    }
}

size_t sw_tier_align(enum sw_tier tier)
{
    return tier == SW_TIER_DISK ? SW_PLAN_DISK_ALIGN : SW_PLAN_ALIGN;
}

sw_status sw_pass_memory(struct sw_program *program)
{
    find_lives(program);
    struct rank *order = sw_alloc("plan", ((size_t)program->n_buffers + 1) * sizeof *order);
    struct span *spans = sw_alloc("plan", ((size_t)program->n_buffers + 1) * sizeof *spans);
    if (!order || !spans) {
        sw_free(order);
        sw_free(spans);
        return SW_FAIL(SW_E_NOMEM, "out of host memory for the memory map");
    }
    int32_t n = 0;
    for (int32_t i = 0; i < program->n_buffers; i++) {
        const struct sw_buffer *buffer = &program->buffers[i];
        if (!buffer->persistent) {
            order[n++] = (struct rank){buffer->bytes, buffer->first, i};
        }
    }
    qsort(order, (size_t)n, sizeof *order, by_size);
    for (int32_t i = 0; i < n; i++) {
        struct sw_buffer *buffer = &program->buffers[order[i].buffer];
        buffer->offset = lowest_gap(program, order, i, buffer, spans);
        size_t *end = buffer->tier == SW_TIER_DEVICE ? &program->transient_bytes
                                                     : &program->away_bytes[buffer->tier];
        *end = buffer->offset + buffer->bytes > *end ? buffer->offset + buffer->bytes : *end;
    }
    sw_free(order);
    sw_free(spans);
    find_peak(program);
    return SW_OK;
}
