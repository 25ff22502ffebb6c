// SPDX-License-Identifier: Apache-2.0
// Writes the attributes of a kernel as JSON: those that are not 0. A plan that is read has their
// hash.
#include <stdio.h>
#include <string.h>

#include "show/private.h"

static const char *const acts[SW_ACT_COUNT] = {
    "",        "gelu",  "gelu_tanh", "relu",       "silu",      "tanh", "sigmoid", "quick_gelu",
    "gelu_10", "relu6", "relu2",     "leaky_relu", "hardswish", "mish", "laplace"};
static const char *const rules[] = {"adam",        "sgd",     "lamb", "adagrad",  "lion",
                                    "sparse_adam", "rmsprop", "muon", "adafactor"};

static const char *const preferences[] = {"sigmoid", "ipo", "orpo", "kto", "reward"};

enum type {
    TYPE_BOOL,
    TYPE_INT,
    TYPE_I64,
    TYPE_REAL,
    TYPE_ACT,
    TYPE_RULE,
    TYPE_PREFERENCE,
    TYPE_QUANTIZED,
    TYPE_DTYPE
};

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
    ATTR(SW_ATTRS_EMBEDDING, embedding.whole, TYPE_I64),
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
    ATTR(SW_ATTRS_DROPOUT, dropout.part, TYPE_I64),
    ATTR(SW_ATTRS_DROPOUT, dropout.whole, TYPE_I64),
    ATTR(SW_ATTRS_DROPOUT, dropout.first, TYPE_I64),
    ATTR(SW_ATTRS_DROPOUT, dropout.sample, TYPE_I64),
    ATTR(SW_ATTRS_ATTENTION, attention.packed, TYPE_BOOL),
    ATTR(SW_ATTRS_ATTENTION, attention.causal, TYPE_BOOL),
    ATTR(SW_ATTRS_ATTENTION, attention.has_mask, TYPE_BOOL),
    ATTR(SW_ATTRS_ATTENTION, attention.has_position, TYPE_BOOL),
    ATTR(SW_ATTRS_ATTENTION, attention.heads, TYPE_I64),
    ATTR(SW_ATTRS_ATTENTION, attention.kv_heads, TYPE_I64),
    ATTR(SW_ATTRS_ATTENTION, attention.first_head, TYPE_I64),
    ATTR(SW_ATTRS_ATTENTION, attention.window, TYPE_I64),
    ATTR(SW_ATTRS_ATTENTION, attention.scale, TYPE_REAL),
    ATTR(SW_ATTRS_ATTENTION, attention.dropout, TYPE_REAL),
    ATTR(SW_ATTRS_ATTENTION, attention.cap, TYPE_REAL),
    ATTR(SW_ATTRS_ATTENTION, attention.has_slopes, TYPE_BOOL),
    ATTR(SW_ATTRS_ATTENTION, attention.bf16_slopes, TYPE_BOOL),
    ATTR(SW_ATTRS_ATTENTION, attention.has_segments, TYPE_BOOL),
    ATTR(SW_ATTRS_ATTENTION, attention.has_bias, TYPE_BOOL),
    ATTR(SW_ATTRS_LAST_INDEX, last_index.padding_id, TYPE_I64),
    ATTR(SW_ATTRS_LAST_INDEX, last_index.is_value, TYPE_BOOL),
    ATTR(SW_ATTRS_SLICE, slice.dim, TYPE_INT),
    ATTR(SW_ATTRS_SLICE, slice.start, TYPE_I64),
    ATTR(SW_ATTRS_LINEAR_CE, linear_ce.chunk, TYPE_I64),
    ATTR(SW_ATTRS_LINEAR_CE, linear_ce.cap, TYPE_REAL),
    ATTR(SW_ATTRS_LINEAR_CE, linear_ce.has_bias, TYPE_BOOL),
    ATTR(SW_ATTRS_LINEAR_CE, linear_ce.by_row, TYPE_BOOL),
    ATTR(SW_ATTRS_LINEAR_CE, linear_ce.whole, TYPE_I64),
    ATTR(SW_ATTRS_LINEAR_CE, linear_ce.tile.first, TYPE_I64),
    ATTR(SW_ATTRS_LINEAR_CE, linear_ce.tile.continues, TYPE_BOOL),
    ATTR(SW_ATTRS_LINEAR_CE, linear_ce.tile.partial, TYPE_BOOL),
    ATTR(SW_ATTRS_LINEAR_CE, linear_ce.mean_weight, TYPE_REAL),
    ATTR(SW_ATTRS_LOSS_MEAN, loss_mean.weight, TYPE_REAL),
    ATTR(SW_ATTRS_STATS, stats.clip, TYPE_REAL),
    ATTR(SW_ATTRS_STATS, stats.overflow_skips, TYPE_BOOL),
    ATTR(SW_ATTRS_STATS, stats.continues, TYPE_BOOL),
    ATTR(SW_ATTRS_STATS, stats.counted, TYPE_I64),
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
    ATTR(SW_ATTRS_UPDATE, update.n_shared, TYPE_I64),
    ATTR(SW_ATTRS_ROTARY, rotary.interleaved, TYPE_BOOL),
    ATTR(SW_ATTRS_ROTARY, rotary.inverse, TYPE_BOOL),
    ATTR(SW_ATTRS_WEIGHT, weight.factor, TYPE_REAL),
    ATTR(SW_ATTRS_WEIGHT, weight.in_out, TYPE_BOOL),
    ATTR(SW_ATTRS_WEIGHT, weight.form.kind, TYPE_QUANTIZED),
    ATTR(SW_ATTRS_WEIGHT, weight.form.is_nested, TYPE_BOOL),
    ATTR(SW_ATTRS_WEIGHT, weight.form.dtype, TYPE_DTYPE),
    ATTR(SW_ATTRS_QUANTIZED_MATMUL, matmul.tb, TYPE_BOOL),
    ATTR(SW_ATTRS_QUANTIZED_MATMUL, matmul.has_bias, TYPE_BOOL),
    ATTR(SW_ATTRS_QUANTIZED_MATMUL, matmul.act, TYPE_ACT),
    ATTR(SW_ATTRS_QUANTIZED_MATMUL, weight.form.kind, TYPE_QUANTIZED),
    ATTR(SW_ATTRS_QUANTIZED_MATMUL, weight.form.is_nested, TYPE_BOOL),
    ATTR(SW_ATTRS_QUANTIZED_MATMUL, weight.form.dtype, TYPE_DTYPE),
    ATTR(SW_ATTRS_EXPERTS, experts.router.k, TYPE_I64),
    ATTR(SW_ATTRS_EXPERTS, experts.router.sigmoid, TYPE_BOOL),
    ATTR(SW_ATTRS_EXPERTS, experts.router.normalise, TYPE_BOOL),
    ATTR(SW_ATTRS_EXPERTS, experts.router.scale, TYPE_REAL),
    ATTR(SW_ATTRS_EXPERTS, experts.router.groups, TYPE_I64),
    ATTR(SW_ATTRS_EXPERTS, experts.router.kept, TYPE_I64),
    ATTR(SW_ATTRS_EXPERTS, experts.alpha, TYPE_REAL),
    ATTR(SW_ATTRS_EXPERTS, experts.limit, TYPE_REAL),
    ATTR(SW_ATTRS_EXPERTS, experts.n, TYPE_I64),
    ATTR(SW_ATTRS_EXPERTS, experts.capacity, TYPE_I64),
    ATTR(SW_ATTRS_EXPERTS, experts.expert, TYPE_I64),
    ATTR(SW_ATTRS_EXPERTS, experts.ranks, TYPE_I64),
    ATTR(SW_ATTRS_EXPERTS, experts.part, TYPE_I64),
    ATTR(SW_ATTRS_EXPERTS, experts.tb, TYPE_BOOL),
    ATTR(SW_ATTRS_EXPERTS, experts.has_bias, TYPE_BOOL),
    ATTR(SW_ATTRS_EXPERTS, experts.continues, TYPE_BOOL),
    ATTR(SW_ATTRS_EXPERTS, experts.z, TYPE_BOOL),
    ATTR(SW_ATTRS_POSITIONS, positions.offset, TYPE_I64),
    ATTR(SW_ATTRS_POSITIONS, positions.counted, TYPE_BOOL),
    ATTR(SW_ATTRS_INTEGERS, integers.value, TYPE_I64),
    ATTR(SW_ATTRS_INTEGERS, integers.pad, TYPE_I64),
    ATTR(SW_ATTRS_CROSS_ENTROPY, cross_entropy.smoothing, TYPE_REAL),
    ATTR(SW_ATTRS_CROSS_ENTROPY, cross_entropy.ignores_beyond, TYPE_BOOL),
    ATTR(SW_ATTRS_CROSS_ENTROPY, cross_entropy.partial, TYPE_BOOL),
    ATTR(SW_ATTRS_CROSS_ENTROPY, cross_entropy.whole, TYPE_I64),
    ATTR(SW_ATTRS_CROSS_ENTROPY, cross_entropy.first, TYPE_I64),
    ATTR(SW_ATTRS_ELEMENT_LOSS, element_loss.binary, TYPE_BOOL),
    ATTR(SW_ATTRS_PREFERENCE, preference.kind, TYPE_PREFERENCE),
    ATTR(SW_ATTRS_PREFERENCE, preference.beta, TYPE_REAL),
    ATTR(SW_ATTRS_PREFERENCE, preference.smoothing, TYPE_REAL),
    ATTR(SW_ATTRS_PREFERENCE, preference.desirable, TYPE_REAL),
    ATTR(SW_ATTRS_PREFERENCE, preference.undesirable, TYPE_REAL),
    ATTR(SW_ATTRS_PREFERENCE, preference.mean, TYPE_BOOL),
    ATTR(SW_ATTRS_PREFERENCE, preference.has_reference, TYPE_BOOL),
    ATTR(SW_ATTRS_PREFERENCE, preference.has_kinds, TYPE_BOOL),
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
static void write_attr(const struct attr *attr, const void *at, struct sw_str *out)
{
    const char *key = strrchr(attr->path, '.') + 1;
    switch (attr->type) {
    case TYPE_BOOL:
        sw_put_flag(out, key, *(const bool *)at);
        break;
    case TYPE_INT:
        sw_put_count(out, key, *(const int *)at);
        break;
    case TYPE_I64:
        sw_put_count(out, key, *(const int64_t *)at);
        break;
    case TYPE_REAL:
        if (*(const double *)at != 0) {
            sw_put_key(out, key);
            sw_str_putc(out, ' ');
            sw_json_write_f64(*(const double *)at, out);
        }
        break;
    case TYPE_ACT:
        sw_put_text(out, key, acts[*(const enum sw_act *)at]);
        break;
    case TYPE_RULE:
        sw_put_text(out, key, rules[*(const enum sw_update_kind *)at]);
        break;
    case TYPE_PREFERENCE:
        sw_put_text(out, key, preferences[*(const enum sw_preference_kind *)at]);
        break;
    case TYPE_QUANTIZED:
        sw_put_text(out, key, sw_quantized_name(*(const enum sw_quantized_kind *)at));
        break;
    case TYPE_DTYPE:
        sw_put_text(out, key, sw_dtype_name(*(const enum sw_dtype *)at));
        break;
    }
}

/* Writes the source of its random numbers, which is the same for an op and its gradient. */
static void write_draws(const struct sw_instr_op *op, struct sw_str *out)
{
    char text[24];
    if (op->attrs == SW_ATTRS_DROPOUT ||
        (op->attrs == SW_ATTRS_ATTENTION && op->math.attrs.attention.dropout > 0)) {
        snprintf(text, sizeof text, "%016llx", (unsigned long long)op->math.path);
        sw_put_text(out, "draws", text);
    }
}

void sw_write_attributes(const struct sw_instr_op *op, struct sw_str *out)
{
    sw_str_putc(out, '{');
    for (size_t i = 0; i < SW_LEN(attrs); i++) {
        if (attrs[i].kind == op->attrs) {
            write_attr(&attrs[i], (const char *)&op->math.attrs + attrs[i].at, out);
        }
    }
    write_draws(op, out);
    sw_put_object_end(out);
}
