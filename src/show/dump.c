// SPDX-License-Identifier: Apache-2.0
// Writes a whole plan as JSON: parameters, states, ports, and what running each instruction needs,
// as lower.c stored it. The format is described in docs/train.md, "The plan for programs"; dumped.c
// reads it. Members without content are left out.
#include <stdio.h>
#include <string.h>

#include "show/private.h"

/* ---- members, each preceded by a comma ---- */

static void put_int(struct sw_str *out, const char *key, int64_t value)
{
    char text[96];
    const int len = snprintf(text, sizeof text, ",\"%s\":%lld", key, (long long)value);
    sw_str_append(out, text, (size_t)len);
}

/* Writes the member unless the value is 0. */
static void put_some(struct sw_str *out, const char *key, int64_t value)
{
    if (value != 0) {
        put_int(out, key, value);
    }
}

/* Writes the member unless the text is empty. */
static void put_text(struct sw_str *out, const char *key, const char *text)
{
    if (!text || !*text) {
        return;
    }
    sw_str_puts(out, ",\"");
    sw_str_puts(out, key);
    sw_str_puts(out, "\":");
    sw_json_write_string(text, strlen(text), out);
}

static void put_true(struct sw_str *out, const char *key, bool value)
{
    if (value) {
        sw_str_puts(out, ",\"");
        sw_str_puts(out, key);
        sw_str_puts(out, "\":true");
    }
}

static void put_dims(struct sw_str *out, const char *key, int n, const int64_t *dims)
{
    char text[32];
    sw_str_puts(out, ",\"");
    sw_str_puts(out, key);
    sw_str_puts(out, "\":[");
    for (int d = 0; d < n; d++) {
        const int len = snprintf(text, sizeof text, "%s%lld", d ? "," : "", (long long)dims[d]);
        sw_str_append(out, text, (size_t)len);
    }
    sw_str_putc(out, ']');
}

/* Begins a list or an object, whose first member has no comma. */
static void put_open(struct sw_str *out, const char *key, char bracket)
{
    sw_str_puts(out, ",\"");
    sw_str_puts(out, key);
    sw_str_puts(out, "\":");
    sw_str_putc(out, bracket);
}

/* Ends a list whose elements each end with a comma. */
static void close_list(struct sw_str *out)
{
    if (!out->failed && out->ptr[out->len - 1] == ',') {
        out->len--;
    }
    sw_str_putc(out, ']');
}

/* Begins an object with its first member, which is always present. */
static void begin(struct sw_str *out, const char *key, const char *text)
{
    sw_str_puts(out, "{\"");
    sw_str_puts(out, key);
    sw_str_puts(out, "\":");
    sw_json_write_string(text, strlen(text), out);
}

/* ---- operands ---- */

/* Begins the object of an operand with its place. The caller ends it. */
static void dump_place(const struct sw_operand *operand, struct sw_str *out)
{
    begin(out, "tier", sw_tier_name(operand->tier));
    put_int(out, "offset", (int64_t)operand->offset);
    put_int(out, "bytes", (int64_t)operand->bytes);
    put_some(out, "room", operand->room == operand->bytes ? 0 : (int64_t)operand->room);
    bool any = false;
    for (int k = 0; k < SW_OPERAND_RINGS; k++) {
        const struct sw_ring *ring = &operand->ring[k];
        if (ring->stride > 0) {
            sw_str_puts(out, any ? "," : ",\"rings\":[");
            begin(out, "by", sw_ring_name(ring->by));
            put_int(out, "stride", (int64_t)ring->stride);
            put_some(out, "modulus", ring->modulus);
            sw_str_puts(out, "}");
            any = true;
        }
    }
    sw_str_puts(out, any ? "]" : "");
}

/* Adds dtype and shape, and the strides unless they are row-major. */
static void dump_view(const struct sw_view *view, struct sw_str *out)
{
    int64_t dense[SW_MAX_RANK];
    const size_t bytes = (size_t)view->shape.rank * sizeof *dense;
    sw_shape_row_major(&view->shape, dense);
    put_text(out, "dtype", sw_dtype_name(view->dtype));
    put_dims(out, "shape", view->shape.rank, view->shape.dims);
    if (memcmp(view->strides, dense, bytes) != 0) {
        put_dims(out, "strides", view->shape.rank, view->strides);
    }
}

/* Writes the operands, null for absent ones. Those of kernels also have a shape. */
static void dump_operands(const struct sw_program *program, int32_t i, struct sw_str *out)
{
    const struct sw_instr *instr = &program->instrs[i];
    const struct sw_operand *operands = &program->operands[instr->operands];
    struct sw_op math;
    struct sw_op_desc desc;
    if (instr->verb == SW_VERB_KERNEL) {
        sw_program_describe(program, i, &math, &desc);
        put_some(out, "n_out", instr->n_out);
    }
    put_open(out, "operands", '[');
    for (int k = 0; k < instr->n_in + instr->n_out; k++) {
        if (operands[k].tier == SW_TIER_COUNT) {
            sw_str_puts(out, "null,");
            continue;
        }
        dump_place(&operands[k], out);
        if (instr->verb == SW_VERB_KERNEL) {
            dump_view(k < instr->n_in ? &desc.in[k] : &desc.out[k - instr->n_in], out);
        }
        sw_str_puts(out, "},");
    }
    close_list(out);
}

/* ---- attributes of kernels ---- */

static const char *const acts[SW_ACT_COUNT] = {
    "",        "gelu",  "gelu_tanh", "relu",       "silu",      "tanh", "sigmoid", "quick_gelu",
    "gelu_10", "relu6", "relu2",     "leaky_relu", "hardswish", "mish", "laplace"};
static const char *const rules[] = {"adam",        "sgd",     "lamb", "adagrad",  "lion",
                                    "sparse_adam", "rmsprop", "muon", "adafactor"};

enum type { TYPE_BOOL, TYPE_INT, TYPE_I64, TYPE_REAL, TYPE_ACT, TYPE_RULE };

#define ATTR(kind, path, type)                                                                     \
    {                                                                                              \
        kind, #path, type, offsetof(struct sw_attrs, path)                                         \
    }

/* The JSON key is the part after the last dot of the path. */
static const struct attr {
    enum sw_attrs_kind kind;
    const char *path;
    enum type type;
    size_t at;
} attrs[] = {
    ATTR(SW_ATTRS_EMBEDDING, embedding.padding_id, TYPE_I64),
    ATTR(SW_ATTRS_EMBEDDING, embedding.tile.first, TYPE_I64),
    ATTR(SW_ATTRS_EMBEDDING, embedding.tile.continues, TYPE_BOOL),
    ATTR(SW_ATTRS_EMBEDDING, embedding.tile.partial, TYPE_BOOL),
    ATTR(SW_ATTRS_MATMUL, matmul.ta, TYPE_BOOL),
    ATTR(SW_ATTRS_MATMUL, matmul.tb, TYPE_BOOL),
    ATTR(SW_ATTRS_MATMUL, matmul.has_bias, TYPE_BOOL),
    ATTR(SW_ATTRS_MATMUL, matmul.act, TYPE_ACT),
    ATTR(SW_ATTRS_MATMUL, matmul.piece, TYPE_I64),
    ATTR(SW_ATTRS_MATMUL, matmul.tile.first, TYPE_I64),
    ATTR(SW_ATTRS_MATMUL, matmul.tile.continues, TYPE_BOOL),
    ATTR(SW_ATTRS_MATMUL, matmul.tile.partial, TYPE_BOOL),
    ATTR(SW_ATTRS_SCALE, scale.factor, TYPE_REAL),
    ATTR(SW_ATTRS_ACT, act.act, TYPE_ACT),
    ATTR(SW_ATTRS_NORM, norm.eps, TYPE_REAL),
    ATTR(SW_ATTRS_NORM, norm.one_plus, TYPE_BOOL),
    ATTR(SW_ATTRS_DROPOUT, dropout.p, TYPE_REAL),
    ATTR(SW_ATTRS_ATTENTION, attention.packed, TYPE_BOOL),
    ATTR(SW_ATTRS_ATTENTION, attention.causal, TYPE_BOOL),
    ATTR(SW_ATTRS_ATTENTION, attention.has_mask, TYPE_BOOL),
    ATTR(SW_ATTRS_ATTENTION, attention.has_position, TYPE_BOOL),
    ATTR(SW_ATTRS_ATTENTION, attention.heads, TYPE_I64),
    ATTR(SW_ATTRS_ATTENTION, attention.kv_heads, TYPE_I64),
    ATTR(SW_ATTRS_ATTENTION, attention.window, TYPE_I64),
    ATTR(SW_ATTRS_ATTENTION, attention.scale, TYPE_REAL),
    ATTR(SW_ATTRS_ATTENTION, attention.dropout, TYPE_REAL),
    ATTR(SW_ATTRS_ATTENTION, attention.cap, TYPE_REAL),
    ATTR(SW_ATTRS_ATTENTION, attention.has_slopes, TYPE_BOOL),
    ATTR(SW_ATTRS_ATTENTION, attention.has_segments, TYPE_BOOL),
    ATTR(SW_ATTRS_ATTENTION, attention.has_bias, TYPE_BOOL),
    ATTR(SW_ATTRS_LAST_INDEX, last_index.padding_id, TYPE_I64),
    ATTR(SW_ATTRS_LAST_INDEX, last_index.is_value, TYPE_BOOL),
    ATTR(SW_ATTRS_SLICE, slice.dim, TYPE_INT),
    ATTR(SW_ATTRS_SLICE, slice.start, TYPE_I64),
    ATTR(SW_ATTRS_LINEAR_CE, linear_ce.chunk, TYPE_I64),
    ATTR(SW_ATTRS_LINEAR_CE, linear_ce.cap, TYPE_REAL),
    ATTR(SW_ATTRS_LINEAR_CE, linear_ce.has_bias, TYPE_BOOL),
    ATTR(SW_ATTRS_LINEAR_CE, linear_ce.tile.first, TYPE_I64),
    ATTR(SW_ATTRS_LINEAR_CE, linear_ce.tile.continues, TYPE_BOOL),
    ATTR(SW_ATTRS_LINEAR_CE, linear_ce.tile.partial, TYPE_BOOL),
    ATTR(SW_ATTRS_LOSS_MEAN, loss_mean.weight, TYPE_REAL),
    ATTR(SW_ATTRS_STATS, stats.clip, TYPE_REAL),
    ATTR(SW_ATTRS_STATS, stats.overflow_skips, TYPE_BOOL),
    ATTR(SW_ATTRS_SELECT_INDEX, select_index.first, TYPE_I64),
    ATTR(SW_ATTRS_SELECT_INDEX, select_index.n, TYPE_I64),
    ATTR(SW_ATTRS_UPDATE, update.rule.kind, TYPE_RULE),
    ATTR(SW_ATTRS_UPDATE, update.rule.decoupled, TYPE_BOOL),
    ATTR(SW_ATTRS_UPDATE, update.rule.bias_correction, TYPE_BOOL),
    ATTR(SW_ATTRS_UPDATE, update.rule.nesterov, TYPE_BOOL),
    ATTR(SW_ATTRS_UPDATE, update.rule.maximize, TYPE_BOOL),
    ATTR(SW_ATTRS_UPDATE, update.rule.eps, TYPE_REAL),
    ATTR(SW_ATTRS_UPDATE, update.rule.weight_decay, TYPE_REAL),
    ATTR(SW_ATTRS_UPDATE, update.rule.dampening, TYPE_REAL),
    ATTR(SW_ATTRS_UPDATE, update.rule.n_states, TYPE_INT),
    ATTR(SW_ATTRS_UPDATE, update.rule.ns_steps, TYPE_INT),
    ATTR(SW_ATTRS_UPDATE, update.rule.eps_inside_sqrt, TYPE_BOOL),
    ATTR(SW_ATTRS_UPDATE, update.rule.min_coeff, TYPE_REAL),
    ATTR(SW_ATTRS_UPDATE, update.rule.max_coeff, TYPE_REAL),
    ATTR(SW_ATTRS_UPDATE, update.rule.lr_decay, TYPE_REAL),
    ATTR(SW_ATTRS_UPDATE, update.rule.initial, TYPE_REAL),
    ATTR(SW_ATTRS_UPDATE, update.rule.is_scaled, TYPE_BOOL),
    ATTR(SW_ATTRS_UPDATE, update.rule.lr_scale, TYPE_REAL),
    ATTR(SW_ATTRS_UPDATE, update.rule.has_betas, TYPE_BOOL),
    ATTR(SW_ATTRS_UPDATE, update.rule.beta1, TYPE_REAL),
    ATTR(SW_ATTRS_UPDATE, update.rule.beta2, TYPE_REAL),
    ATTR(SW_ATTRS_UPDATE, update.rule.least_scale, TYPE_REAL),
    ATTR(SW_ATTRS_UPDATE, update.rule.decay_rate, TYPE_REAL),
    ATTR(SW_ATTRS_UPDATE, update.rule.clip_threshold, TYPE_REAL),
    ATTR(SW_ATTRS_UPDATE, update.rule.scale_parameter, TYPE_BOOL),
    ATTR(SW_ATTRS_UPDATE, update.whole, TYPE_I64),
    ATTR(SW_ATTRS_UPDATE, update.matrices, TYPE_I64),
    ATTR(SW_ATTRS_UPDATE, update.rows, TYPE_I64),
    ATTR(SW_ATTRS_UPDATE, update.columns, TYPE_I64),
    ATTR(SW_ATTRS_UPDATE, update.slice, TYPE_I64),
    ATTR(SW_ATTRS_UPDATE, update.first, TYPE_I64),
    ATTR(SW_ATTRS_UPDATE, update.origin, TYPE_I64),
    ATTR(SW_ATTRS_UPDATE, update.n_elems, TYPE_I64),
    ATTR(SW_ATTRS_ROTARY, rotary.interleaved, TYPE_BOOL),
    ATTR(SW_ATTRS_ROTARY, rotary.inverse, TYPE_BOOL),
    ATTR(SW_ATTRS_POSITIONS, positions.offset, TYPE_I64),
    ATTR(SW_ATTRS_POSITIONS, positions.counted, TYPE_BOOL),
    ATTR(SW_ATTRS_INTEGERS, integers.value, TYPE_I64),
    ATTR(SW_ATTRS_INTEGERS, integers.pad, TYPE_I64),
    ATTR(SW_ATTRS_CROSS_ENTROPY, cross_entropy.smoothing, TYPE_REAL),
    ATTR(SW_ATTRS_CROSS_ENTROPY, cross_entropy.ignores_beyond, TYPE_BOOL),
    ATTR(SW_ATTRS_ELEMENT_LOSS, element_loss.binary, TYPE_BOOL),
    ATTR(SW_ATTRS_RELATIVE, relative.queries, TYPE_I64),
    ATTR(SW_ATTRS_RELATIVE, relative.keys, TYPE_I64),
    ATTR(SW_ATTRS_RELATIVE, relative.origin, TYPE_I64),
    ATTR(SW_ATTRS_RELATIVE, relative.by_key, TYPE_BOOL),
    ATTR(SW_ATTRS_RELATIVE, relative.scale, TYPE_REAL),
    ATTR(SW_ATTRS_WINDOW, window.kernel[0], TYPE_I64),
    ATTR(SW_ATTRS_WINDOW, window.kernel[1], TYPE_I64),
    ATTR(SW_ATTRS_WINDOW, window.stride[0], TYPE_I64),
    ATTR(SW_ATTRS_WINDOW, window.stride[1], TYPE_I64),
    ATTR(SW_ATTRS_WINDOW, window.padding[0], TYPE_I64),
    ATTR(SW_ATTRS_WINDOW, window.padding[1], TYPE_I64),
    ATTR(SW_ATTRS_WINDOW, window.mean, TYPE_BOOL),
    ATTR(SW_ATTRS_LSTM, lstm.reverse, TYPE_BOOL),
    ATTR(SW_ATTRS_LSTM, lstm.has_mask, TYPE_BOOL),
};

/* Writes an attribute unless it is 0. Its key is the last part of its path. */
static void dump_attr(const struct attr *attr, const void *at, struct sw_str *out)
{
    const char *key = strrchr(attr->path, '.') + 1;
    switch (attr->type) {
    case TYPE_BOOL:
        put_true(out, key, *(const bool *)at);
        break;
    case TYPE_INT:
        put_some(out, key, *(const int *)at);
        break;
    case TYPE_I64:
        put_some(out, key, *(const int64_t *)at);
        break;
    case TYPE_REAL:
        if (*(const double *)at != 0) {
            put_open(out, key, ' ');
            sw_json_write_f64(*(const double *)at, out);
        }
        break;
    case TYPE_ACT:
        put_text(out, key, acts[*(const enum sw_act *)at]);
        break;
    case TYPE_RULE:
        put_text(out, key, rules[*(const enum sw_update_kind *)at]);
        break;
    }
}

/* Writes the source of its random numbers, which is the same for an op and its gradient. */
static void dump_draws(const struct sw_instr_op *op, struct sw_str *out)
{
    if (op->attrs == SW_ATTRS_DROPOUT ||
        (op->attrs == SW_ATTRS_ATTENTION && op->math.attrs.attention.dropout > 0)) {
        sw_str_printf(out, ",\"draws\":\"%016llx\"", (unsigned long long)op->math.path);
    }
}

/* Writes the attributes of the op's kind that are not 0. Without any, there is no member. */
static void dump_attrs(const struct sw_instr_op *op, struct sw_str *out)
{
    const size_t before = out->len;
    put_open(out, "attributes", '{');
    const size_t begin = out->len;
    for (size_t i = 0; i < SW_LEN(attrs); i++) {
        if (attrs[i].kind == op->attrs) {
            dump_attr(&attrs[i], (const char *)&op->math.attrs + attrs[i].at, out);
        }
    }
    dump_draws(op, out);
    if (out->failed || out->len == begin) {
        out->len = before; /* no attributes: remove the key */
        return;
    }
    memmove(out->ptr + begin, out->ptr + begin + 1, out->len - begin); /* removes the first comma */
    out->len--;
    sw_str_putc(out, '}');
}

/* ---- instructions ---- */

static void dump_waits(const struct sw_instr *instr, struct sw_str *out)
{
    bool any = false;
    for (int q = 0; q < SW_QUEUE_COUNT; q++) {
        if (instr->waits[q] >= 0) {
            sw_str_printf(out, "%s\"%s\":%d", any ? "," : ",\"waits\":{",
                          sw_queue_name((enum sw_queue)q), instr->waits[q]);
            any = true;
        }
    }
    sw_str_puts(out, any ? "}" : "");
}

/* Writes when it runs: after which instructions, and in which micro-batches and steps. */
static void dump_conditions(const struct sw_program *program, int32_t i, struct sw_str *out)
{
    const struct sw_instr *instr = &program->instrs[i];
    dump_waits(instr, out);
    put_int(out, "retired", instr->retired);
    if (instr->turn.loop > 0) {
        put_int(out, "loop", instr->turn.loop);
        put_int(out, "pieces", sw_instr_pieces(program, instr));
    }
    if (instr->turn.again >= 0) {
        put_int(out, "again", instr->turn.again);
    }
    if (instr->follows >= 0) {
        put_int(out, "follows", instr->follows);
    }
    if (sw_instr_exchanges(instr)) {
        put_int(out, "group", instr->exchange.group);
        put_int(out, "batch", instr->exchange.batch);
        put_text(out, "dtype", sw_dtype_name(instr->exchange.dtype));
        put_some(out, "rows", instr->exchange.rows);
    }
    put_true(out, "blocking", instr->exchange.blocking);
    put_true(out, "whole_step", instr->exchange.whole_step);
    if (instr->verb >= SW_VERB_BROADCAST) {
        put_int(out, "peer", instr->exchange.peer);
    }
    put_some(out, "runs_sent", instr->exchange.runs[0] > 1 ? instr->exchange.runs[0] : 0);
    put_some(out, "runs_received", instr->exchange.runs[1] > 1 ? instr->exchange.runs[1] : 0);
    put_text(out, "predicate",
             instr->verb == SW_VERB_KERNEL && instr->unless_skipped ? "skip" : NULL);
    put_true(out, "last_only", instr->last_only);
}

static void dump_instr(const struct sw_program *program, int32_t i, struct sw_str *out)
{
    const struct sw_instr *instr = &program->instrs[i];
    const struct sw_instr_op op = sw_instr_op(program, i);
    begin(out, "verb", sw_verb_name(instr->verb));
    put_int(out, "number", i);
    put_text(out, "name", instr->about->name);
    put_text(out, "queue", sw_queue_name(instr->queue));
    put_text(out, "segment", sw_segment_name(instr->segment));
    if ((int)op.math.phase != (int)instr->segment) {
        put_text(out, "phase", sw_segment_name((enum sw_segment)op.math.phase));
    }
    put_text(out, "scope", instr->about->scope);
    put_text(out, "tensor", instr->about->tensor);
    put_some(out, "micro_batch", instr->micro < 0 ? 0 : instr->micro);
    put_true(out, "of_step", instr->micro < 0);
    put_true(out, "recomputed", op.is_clone);
    dump_conditions(program, i, out);
    put_text(out, "kernel", instr->about->kernel.path);
    dump_attrs(&op, out);
    put_some(out, "flops", instr->flops);
    put_some(out, "bytes", instr->bytes);
    if (instr->workspace >= 0) {
        const struct sw_buffer *buffer = &program->buffers[instr->workspace];
        sw_str_printf(out, ",\"workspace\":{\"offset\":%zu,\"bytes\":%zu}", buffer->offset,
                      buffer->bytes);
    }
    dump_operands(program, i, out);
    sw_str_putc(out, '}');
}

/* ---- programs ---- */

static void dump_ports(const char *key, const struct sw_port *ports, int32_t n, struct sw_str *out)
{
    put_open(out, key, '[');
    for (int32_t i = 0; i < n; i++) {
        begin(out, "name", ports[i].name);
        put_some(out, "micro_batch", ports[i].micro);
        put_text(out, "dtype", sw_dtype_name(ports[i].dtype));
        put_dims(out, "shape", ports[i].shape.rank, ports[i].shape.dims);
        if (ports[i].at.tier != SW_TIER_COUNT) {
            sw_str_puts(out, ",\"at\":");
            dump_place(&ports[i].at, out);
            sw_str_putc(out, '}');
        }
        if (ports[i].slot.tier != SW_TIER_COUNT) {
            sw_str_puts(out, ",\"slot\":");
            dump_place(&ports[i].slot, out);
            sw_str_putc(out, '}');
        }
        sw_str_puts(out, "},");
    }
    close_list(out);
}

void sw_program_dump(const struct sw_program *program, struct sw_str *out)
{
    dump_ports("inputs", program->ports.inputs, program->ports.n_inputs, out);
    dump_ports("outputs", program->ports.outputs, program->ports.n_outputs, out);
    if (program->n_loops > 0) {
        put_int(out, "turns", program->turns);
        put_int(out, "ahead", sw_loop_ahead(program));
    }
    put_open(out, "instruction_list", '[');
    for (int32_t i = 0; i < program->n_instrs; i++) {
        dump_instr(program, i, out);
        sw_str_putc(out, ',');
    }
    close_list(out);
}

/* ---- shared by all programs ---- */

/* The pack that contains a byte of the disk. Packs are adjacent. */
static const char *pack_at(const struct sw_plan *plan, size_t offset)
{
    int32_t low = 0, high = plan->n_packs;
    while (high - low > 1) {
        const int32_t middle = low + (high - low) / 2;
        *(plan->packs[middle].offset <= offset ? &low : &high) = middle;
    }
    return plan->packs[low].name;
}

static const char *word_of_state(const struct sw_persistent *item)
{
    return sw_state_is_optimizer(item->state)              ? "optimizer"
           : item->state == SW_STATE_SUM && item->use == 0 ? "sum"
           : sw_state_is_sum(item->state)                  ? "further_sum"
           : item->state == SW_STATE_CONSTANT              ? "constant"
                                                           : "other";
}

static void dump_persistent(const struct sw_plan *plan, int32_t i, struct sw_str *out)
{
    const struct sw_persistent *item = &plan->persistent[i];
    const struct sw_layout *layout = &item->layout;
    begin(out, "name", item->name);
    put_text(out, "role", item->role == SW_ROLE_PARAM ? "parameter" : "state");
    put_text(out, "kind", item->role == SW_ROLE_PARAM ? NULL : word_of_state(item));
    put_text(out, "parameter", item->param);
    put_text(out, "dtype", sw_dtype_name(item->dtype));
    put_dims(out, "shape", item->shape.rank, item->shape.dims);
    if (layout->is_sliced) {
        put_dims(out, "whole", layout->whole.rank, layout->whole.dims);
        put_int(out, "slice", layout->data.rank);
        put_int(out, "slices", layout->data.size);
        put_some(out, "tile_elements", layout->tile_elems);
    }
    put_text(out, "tier", sw_tier_name(item->tier));
    put_int(out, "offset", (int64_t)item->offset);
    put_int(out, "bytes", (int64_t)item->bytes);
    put_int(out, "room", (int64_t)sw_persistent_taken(item));
    put_some(out, "slot_bytes", (int64_t)item->slot_bytes);
    put_text(out, "pack", item->packed_bytes > 0 ? pack_at(plan, item->offset) : NULL);
    sw_str_puts(out, "},");
}

static void dump_step(const struct sw_step *step, struct sw_str *out)
{
    put_open(out, "step", '[');
    for (int32_t i = 0; i < step->n_phases; i++) {
        const struct sw_step_phase *phase = &step->phases[i];
        const bool runs = phase->action == SW_STEP_RUN;
        begin(out, "action", sw_step_action_name(phase->action));
        if (runs) {
            put_text(out, "segment", sw_segment_name(phase->segment));
            put_int(out, "round", phase->round);
            put_int(out, "micro_batches", phase->n_micro);
        }
        put_true(out, "last", runs && phase->is_last);
        put_true(out, "drains", runs && phase->drains);
        put_true(out, "joins", runs && phase->joins);
        put_true(out, "rolls_back", i < step->n_safe);
        sw_str_puts(out, "},");
    }
    close_list(out);
}

static void dump_staging(const struct sw_plan *plan, struct sw_str *out)
{
    put_open(out, "staging", '[');
    for (int q = 0; q < SW_QUEUE_COUNT; q++) {
        if (plan->staging.share[q].tier != SW_TIER_COUNT) {
            begin(out, "queue", sw_queue_name((enum sw_queue)q));
            put_int(out, "offset", (int64_t)plan->staging.share[q].offset);
            put_int(out, "bytes", (int64_t)plan->staging.share[q].bytes);
            sw_str_puts(out, "},");
        }
    }
    close_list(out);
}

static void dump_groups(const struct sw_plan *plan, struct sw_str *out)
{
    put_open(out, "groups", '[');
    for (int g = 0; g < plan->n_groups; g++) {
        const struct sw_group *group = &plan->groups[g];
        char name[64];
        begin(out, "name", sw_group_format(group, name, sizeof name));
        put_int(out, "ranks", group->n);
        put_int(out, "rank", group->me);
        sw_str_puts(out, "},");
    }
    close_list(out);
}

void sw_plan_dump(const struct sw_plan *plan, struct sw_str *out)
{
    dump_groups(plan, out);
    dump_step(&plan->step, out);
    put_open(out, "persistent", '[');
    for (int32_t i = 0; i < plan->n_persistent; i++) {
        dump_persistent(plan, i, out);
    }
    close_list(out);
    put_open(out, "pack_list", '[');
    for (int32_t i = 0; i < plan->n_packs; i++) {
        begin(out, "name", plan->packs[i].name);
        put_int(out, "offset", (int64_t)plan->packs[i].offset);
        put_int(out, "bytes", (int64_t)plan->packs[i].bytes);
        put_some(out, "slot_bytes", (int64_t)plan->packs[i].slot_bytes);
        sw_str_puts(out, "},");
    }
    close_list(out);
    put_open(out, "tile_list", '[');
    for (int32_t i = 0; i < plan->n_tiled; i++) {
        begin(out, "name", plan->tiled[i].name);
        put_int(out, "tiles", plan->tiled[i].n_tiles);
        put_int(out, "rows", plan->tiled[i].rows);
        put_int(out, "bytes", (int64_t)plan->tiled[i].bytes);
        sw_str_puts(out, "},");
    }
    close_list(out);
    put_int(out, "staging_bytes", (int64_t)plan->staging.bytes);
    dump_staging(plan, out);
    put_int(out, "input_bytes", (int64_t)plan->staging.input_bytes);
    for (int t = 0; t < SW_TIER_COUNT; t++) {
        char key[32];
        snprintf(key, sizeof key, "%s_budget", sw_tier_name((enum sw_tier)t));
        put_some(out, key, (int64_t)plan->tier_budget[t]);
    }
}
