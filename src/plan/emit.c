// SPDX-License-Identifier: Apache-2.0
// An update rule as ops of the list: the states of a parameter, and the op that updates it. LAMB
// needs two ops, with the norms of the whole tensor between them. Muon needs the whole matrix, and
// Adafactor sums over it twice. The kernels do the arithmetic; learning rates come from the scalar
// table.
#include <string.h>

#include "plan/private.h"

/* Appends the streams to the inputs of an op that has n_in already. Returns the new number; -1 =
 * too many. */
static int add_streams(struct sw_ir *ir, const char *name, const sw_value *streams, int n_streams,
                       sw_value in[SW_MAX_INPUTS], int n_in)
{
    for (int i = 0; i < n_streams; i++) {
        const sw_value index = ir->values[streams[i]].sparse_index;
        if (n_in + 2 > SW_MAX_INPUTS) {
            sw_ir_fail(ir, SW_E_UNSUP, "%s: more than %d uses of one parameter", name, i);
            return -1;
        }
        in[n_in++] = streams[i];
        if (index >= 0) {
            in[n_in++] = index;
        }
    }
    return n_in;
}

static int32_t add_predicated(struct sw_ir *ir, enum sw_op_kind kind, const sw_value *in, int n_in,
                              const struct sw_ir_detail *detail)
{
    const int32_t op = sw_ir_add_detailed(ir, kind, in, n_in, detail);
    if (op >= 0) {
        ir->ops[op].unless_skipped = true;
    }
    return op;
}

/* ---- LAMB ---- */

/* in: target, states, streams */
static int32_t emit_moments(struct sw_ir *ir, const struct sw_ir_detail *detail, const sw_value *in,
                            int n_in)
{
    const int n_states = detail->attrs.update.rule.n_states;
    const int32_t op = add_predicated(ir, SW_OP_LAMB_MOMENTS, in, n_in, detail);
    for (int i = n_states - 1; i <= n_states; i++) {
        sw_ir_add_out_in_place(ir, op, in[i]);
    }
    sw_ir_add_out(ir, op, SW_I64, SW_SHAPE(SW_LAMB_WORDS));
    return ir->failure.status < 0 ? -1 : op;
}

/* Adds the exact sums over shards, so every rank has the same sum as a single rank would. */
static sw_value merge_sums(struct sw_ir *ir, int group, sw_value sums)
{
    if (ir->failure.status < 0) {
        return sums;
    }
    const int32_t merge = sw_ir_add_exchange(ir, SW_MOVE_MERGE, group, &sums, 1);
    if (merge >= 0) {
        ir->ops[merge].unless_skipped = true;
    }
    return sw_ir_add_out_in_place(ir, merge, sums);
}

/* The same, if the target of the update is a shard. */
static sw_value merge_shards(struct sw_ir *ir, sw_value target, sw_value sums)
{
    const bool is_slice = ir->failure.status >= 0 && sw_ir_is_slice(&ir->values[target]);
    return is_slice ? merge_sums(ir, sw_ir_spread_group(ir, target), sums) : sums;
}

sw_value sw_emit_lamb_merge(struct sw_ir *ir, int32_t moments, sw_value norms)
{
    if (ir->failure.status < 0) {
        return norms;
    }
    const struct sw_ir_op *op = &ir->ops[moments];
    const struct sw_param_part *part = sw_ir_param_part(ir, op->detail->update.param);
    norms = merge_shards(ir, op->in[0], norms);
    /* If several ranks hold a part, both norms count it as often, and their ratio stays. */
    return !part              ? norms
           : part->of_experts ? merge_sums(ir, ir->params.experts, norms)
                              : merge_sums(ir, ir->params.group, norms);
}

static sw_value trust_ratio(struct sw_ir *ir, sw_value param)
{
    const enum sw_dtype dtype = ir->values[param].dtype == SW_F64 ? SW_F64 : SW_F32;
    return sw_ir_param_state(ir, param, SW_STATE_TRUST_RATIO, 0, dtype, SW_SHAPE(1));
}

/* in: target, states, norms, ratio. Returns the op; its first output is the target, its last the
 * ratio. */
static int32_t emit_apply(struct sw_ir *ir, const struct sw_ir_detail *detail, const sw_value *in)
{
    const int n_states = detail->attrs.update.rule.n_states;
    const int32_t apply = add_predicated(ir, SW_OP_LAMB_APPLY, in, n_states + 3, detail);
    sw_ir_add_out_in_place(ir, apply, in[0]);
    for (int i = 1; i < n_states - 1; i++) {
        sw_ir_add_out_in_place(ir, apply, in[i]); /* the master, or its remainder */
    }
    sw_ir_add_out_in_place(ir, apply, in[n_states + 2]);
    return ir->failure.status < 0 ? -1 : apply;
}

/* in: target, states, streams */
static sw_value emit_lamb(struct sw_ir *ir, const struct sw_ir_detail *detail, sw_value *in,
                          int n_in)
{
    const int n_states = detail->attrs.update.rule.n_states;
    const int32_t moments = emit_moments(ir, detail, in, n_in);
    if (moments < 0) {
        return SW_NO_VALUE;
    }
    in[n_states - 1] = ir->ops[moments].out[0];
    in[n_states] = ir->ops[moments].out[1];
    in[n_states + 1] = sw_emit_lamb_merge(ir, moments, ir->ops[moments].out[2]);
    in[n_states + 2] = trust_ratio(ir, ir->values[in[1]].param);
    const int32_t apply = emit_apply(ir, detail, in);
    return apply < 0 ? SW_NO_VALUE : ir->ops[apply].out[0];
}

sw_value sw_emit_lamb_norms(struct sw_ir *ir, int32_t moments, sw_value before)
{
    if (ir->failure.status < 0 || before < 0) {
        return ir->failure.status < 0 ? SW_NO_VALUE : ir->ops[moments].out[2];
    }
    const sw_value in[2] = {before, ir->ops[moments].out[2]};
    return sw_ir_add_out_in_place(
        ir, add_predicated(ir, SW_OP_LAMB_ADD_NORMS, in, 2, &sw_ir_no_detail), before);
}

sw_value sw_emit_lamb_step(struct sw_ir *ir, int32_t moments, sw_value norms, sw_value ratio)
{
    if (ir->failure.status < 0) {
        return SW_NO_VALUE;
    }
    const struct sw_ir_op first = ir->ops[moments];
    const int n_states = first.detail->attrs.update.rule.n_states;
    sw_value in[SW_MAX_INPUTS];
    for (int i = 0; i <= n_states; i++) {
        in[i] = first.in[i];
    }
    in[n_states + 1] = norms;
    in[n_states + 2] = ratio >= 0 ? ratio : trust_ratio(ir, sw_ir_root(ir, first.in[0]));
    const int32_t apply = emit_apply(ir, first.detail, in);
    return apply < 0 ? SW_NO_VALUE : ir->ops[apply].out[ir->ops[apply].n_out - 1];
}

/* ---- Muon ---- */

/* Gathers the result of each rank's shard on all ranks, as bf16. So every rank makes the same
 * matrix orthogonal as a single rank would. */
static sw_value gather_matrix(struct sw_ir *ir, sw_value target, sw_value part)
{
    if (ir->failure.status < 0 || !sw_ir_is_slice(&ir->values[target])) {
        return part;
    }
    const struct sw_layout own = ir->values[target].form->layout;
    const struct sw_layout gathered = sw_layout_gathered(&own);
    sw_ir_set_layout(ir, part, &own);
    const int32_t op =
        sw_ir_add_exchange(ir, SW_MOVE_GATHER, sw_ir_spread_group(ir, target), &part, 1);
    const sw_value whole = sw_ir_add_out(ir, op, SW_BF16, gathered.whole);
    if (whole >= 0) {
        sw_ir_set_layout(ir, whole, &gathered);
    }
    return whole;
}

/* in: target, states, streams */
static sw_value emit_muon(struct sw_ir *ir, const struct sw_ir_detail *detail, sw_value *in,
                          int n_in)
{
    const struct sw_shape shape = ir->values[in[0]].form->shape;
    const int n_states = detail->attrs.update.rule.n_states;
    const int32_t moments = add_predicated(ir, SW_OP_MUON_MOMENTS, in, n_in, detail);
    sw_ir_add_out_in_place(ir, moments, in[n_states]);
    const sw_value part = sw_ir_add_out(ir, moments, SW_BF16, shape);
    in[n_states] = gather_matrix(ir, in[0], part);
    const int32_t apply = add_predicated(ir, SW_OP_MUON_APPLY, in, n_states + 1, detail);
    for (int i = 0; i < n_states; i++) {
        sw_ir_add_out_in_place(ir, apply, in[i]);
    }
    return apply < 0 ? SW_NO_VALUE : ir->ops[apply].out[0];
}

/* ---- Adafactor ---- */

/* Inserts the results of earlier ops into an op's inputs, after the states and before the streams.
 * Returns the new number of inputs; -1 = too many. */
static int insert(struct sw_ir *ir, sw_value *in, int n_in, int at, const sw_value *made,
                  int n_made)
{
    if (n_in + n_made > SW_MAX_INPUTS) {
        sw_ir_fail(ir, SW_E_UNSUP, "%s: more uses of one parameter than Adafactor takes",
                   ir->values[sw_ir_root(ir, in[0])].name);
        return -1;
    }
    memmove(&in[at + n_made], &in[at], (size_t)(n_in - at) * sizeof *in);
    memcpy(&in[at], made, (size_t)n_made * sizeof *in);
    return n_in + n_made;
}

/* in: target, states, streams */
static sw_value emit_adafactor(struct sw_ir *ir, const struct sw_ir_detail *detail, sw_value *in,
                               int n_in)
{
    const struct sw_update_op_attrs of = sw_ir_update_attrs(ir, detail);
    const int at = 1 + of.rule.n_states;
    enum { WORDS, NORM, FACTORS, N_MADE };
    sw_value made[N_MADE];
    const int n_squares = of.matrices > 0 ? 2 : 1;
    const int n_made = of.matrices > 0 ? N_MADE : FACTORS;
    const int64_t n_lines = of.matrices * (of.rows + of.columns);

    const int32_t sums = add_predicated(ir, SW_OP_ADAFACTOR_SUMS, in, n_in, detail);
    made[WORDS] = merge_shards(
        ir, in[0],
        sw_ir_add_out(ir, sums, SW_I64, SW_SHAPE(SW_STATS_WORDS + n_lines * SW_LINE_WORDS)));

    sw_value of_moments[SW_MAX_INPUTS];
    memcpy(of_moments, in, (size_t)n_in * sizeof *in);
    const int n_of_moments = insert(ir, of_moments, n_in, at, made, 1);
    const int32_t moments = n_of_moments < 0 ? -1
                                             : add_predicated(ir, SW_OP_ADAFACTOR_MOMENTS,
                                                              of_moments, n_of_moments, detail);
    for (int i = at - n_squares; i < at; i++) {
        in[i] = sw_ir_add_out_in_place(ir, moments, in[i]);
    }
    made[NORM] =
        merge_shards(ir, in[0], sw_ir_add_out(ir, moments, SW_I64, SW_SHAPE(SW_STATS_WORDS)));
    if (n_made == N_MADE) {
        const bool is_wide = ir->failure.status >= 0 && ir->values[in[at - 1]].dtype == SW_F64;
        made[FACTORS] = sw_ir_add_out(ir, moments, is_wide ? SW_F64 : SW_F32, SW_SHAPE(n_lines));
    }

    n_in = ir->failure.status < 0 ? -1 : insert(ir, in, n_in, at, made, n_made);
    const int32_t apply =
        n_in < 0 ? -1 : add_predicated(ir, SW_OP_ADAFACTOR_APPLY, in, n_in, detail);
    for (int i = 0; i < at - n_squares; i++) {
        sw_ir_add_out_in_place(ir, apply, in[i]);
    }
    return apply < 0 ? SW_NO_VALUE : ir->ops[apply].out[0];
}

/* ---- all rules ---- */

/* in: target, states, streams */
static sw_value emit_elements(struct sw_ir *ir, const struct sw_ir_detail *detail, sw_value *in,
                              int n_in)
{
    const int32_t op = add_predicated(ir, SW_OP_UPDATE, in, n_in, detail);
    for (int i = 0; i <= detail->attrs.update.rule.n_states; i++) {
        sw_ir_add_out_in_place(ir, op, in[i]);
    }
    return op < 0 ? SW_NO_VALUE : ir->ops[op].out[0];
}

/* Layout of a state for a tensor or shard with layout `of`. It has an element for each element, for
 * each run, or for each row or column of the matrices. */
static struct sw_layout layout_of_state(const struct sw_layout *of, enum sw_state_kind kind)
{
    const enum sw_state_extent extent = sw_state_infos[kind].of;
    struct sw_layout out = *of;
    out.is_padded = false;
    if (extent == SW_STATE_OF_RUNS) {
        return sw_layout_per(&out, SW_CODE_RUN);
    }
    if (extent != SW_STATE_OF_ELEMENTS) {
        struct sw_shape *lines = &out.whole;
        if (extent == SW_STATE_OF_COLUMNS) {
            lines->dims[lines->rank - 2] = lines->dims[lines->rank - 1];
        }
        lines->rank--;
        out.run = SW_SQUARES_RUN;
    }
    return out;
}

/* The part of a state that belongs to a tile of the parameter. */
static sw_value tile_of_state(struct sw_ir *ir, sw_value state, const struct sw_ir_value *tile)
{
    const sw_value v = state < 0 ? SW_NO_VALUE : sw_ir_copy_value(ir, state);
    if (v >= 0) {
        const struct sw_layout *of = &tile->form->layout;
        const struct sw_layout layout =
            sw_ir_is_of_runs(&ir->values[v]) ? sw_layout_per(of, SW_CODE_RUN) : *of;
        sw_ir_reshape(ir, v, layout.whole);
        sw_ir_set_layout(ir, v, &layout);
        ir->values[v].base = state;
        ir->values[v].base_offset = sw_ir_per_run(&ir->values[v], tile->base_offset);
    }
    return v;
}

/* True if the parameter, or the one that it is a tile of, has a row-sparse gradient. */
static bool is_looked_up(const struct sw_ir *ir, sw_value param)
{
    for (int32_t i = 0; i < ir->n_streams; i++) {
        const struct sw_ir_stream *stream = &ir->streams[i];
        if (sw_ir_root(ir, stream->param) == sw_ir_root(ir, param) && stream->grad >= 0 &&
            ir->values[stream->grad].sparse_index >= 0) {
            return true;
        }
    }
    return false;
}

/* The rule for a parameter, as its group has it. */
static struct sw_update_attrs rule_of(const struct sw_ir *ir, const struct sw_update_rule *rule,
                                      sw_value param, const struct sw_update_rule *its,
                                      int n_states)
{
    const struct sw_ir_value *info = &ir->values[param];
    struct sw_update_attrs out = its->attrs;
    const enum sw_update_kind dense = sw_update_facts(out.kind)->dense;
    out.n_states = n_states;
    out.kind = is_looked_up(ir, param) ? out.kind : dense;
    if (info->form->layout.whole.rank <= 1 && !rule->decay_1d) {
        out.weight_decay = 0;
    }
    sw_update_groups_apply(rule->groups, info->name, &out);
    return out;
}

/* Fails if runs of 8-bit codes have both what a rank has alone and what it shares: their scales,
 * and so the shared values, would differ by rank. */
static void check_runs(struct sw_ir *ir, sw_value param, const struct sw_update_state *states,
                       int n_states)
{
    const int last = ir->params.is_cut ? ir->groups[ir->params.group].n - 1 : 0;
    const int64_t counted = sw_ir_counted(ir, param, last);
    for (int i = 0; i < n_states && counted < INT64_MAX && counted % SW_CODE_RUN != 0; i++) {
        if (states[i].dtype == SW_U8) {
            sw_ir_fail(ir, SW_E_UNSUP,
                       "spillway.mesh.tensor %d: %s has 8-bit moments, and key heads that ranks "
                       "share; wanted a multiple of %d elements before them, got %lld",
                       last + 1, ir->values[param].name, SW_CODE_RUN, (long long)counted);
            return;
        }
    }
}

/* Lists target, states and streams as inputs of an update, and makes its detail. Returns the number
 * of inputs, or -1 after a failure. */
static int list_inputs(struct sw_ir *ir, const struct sw_plan_options *options, sw_value param,
                       sw_value target, const sw_value *streams, int n_streams,
                       const struct sw_ir_detail **detail, sw_value in[SW_MAX_INPUTS])
{
    const struct sw_update_rule *rule = options->rule;
    if (ir->failure.status < 0) {
        return -1;
    }
    param = sw_ir_root(ir, param);
    const struct sw_ir_value info = ir->values[param];
    const struct sw_ir_value slice = ir->values[target];
    const bool is_tile = info.param_facts.is_tiled;
    const struct sw_param_part *part = sw_ir_param_part(ir, param);
    const struct sw_shape all = part ? part->whole : info.form->layout.whole;
    struct sw_update_state states[SW_UPDATE_MAX_STATES];
    const struct sw_update_rule its = sw_update_rule_of(rule, info.name, all.rank);
    const int n_states = sw_update_states(&its, info.dtype, &all, states);
    check_runs(ir, param, states, n_states);
    struct sw_ir_detail made = {.update = {param, target, rule->moments}};
    made.attrs.update.rule = rule_of(ir, rule, param, &its, n_states);
    if (rule->moments == SW_MOMENTS_BF16) {
        made.attrs.update.draw = sw_hash_str(sw_hash_str(SW_HASH_INIT, "moments/"), info.name);
    }
    *detail = sw_ir_keep_detail(ir, &made);
    int n_in = 0;
    in[n_in++] = target;
    for (int i = 0; i < n_states; i++) {
        const struct sw_layout layout =
            layout_of_state(is_tile ? &info.form->layout : &slice.form->layout, states[i].kind);
        const struct sw_shape shape =
            layout.is_sliced ? SW_SHAPE(sw_layout_elems(&layout)) : layout.whole;
        const sw_value state =
            sw_ir_param_state(ir, param, states[i].kind, 0, states[i].dtype, shape);
        if (state >= 0) {
            sw_ir_set_layout(ir, state, &layout);
        }
        in[n_in++] = is_tile ? tile_of_state(ir, state, &slice) : state;
    }
    return add_streams(ir, info.name, streams, n_streams, in, n_in);
}

int32_t sw_emit_lamb_moments(struct sw_ir *ir, const struct sw_plan_options *options, sw_value tile,
                             const sw_value *streams, int n_streams)
{
    const struct sw_ir_detail *detail;
    sw_value in[SW_MAX_INPUTS];
    const int n_in = list_inputs(ir, options, tile, tile, streams, n_streams, &detail, in);
    return n_in < 0 || !detail ? -1 : emit_moments(ir, detail, in, n_in);
}

sw_value sw_emit_update(struct sw_ir *ir, const struct sw_plan_options *options, sw_value param,
                        sw_value target, const sw_value *streams, int n_streams)
{
    static sw_value (*const emit[SW_REACH_COUNT])(
        struct sw_ir * ir, const struct sw_ir_detail *detail, sw_value *in, int n_in) = {
        [SW_REACH_ELEMENT] = emit_elements,
        [SW_REACH_NORMS] = emit_lamb,
        [SW_REACH_MATRIX] = emit_muon,
        [SW_REACH_LINES] = emit_adafactor,
    };
    const struct sw_ir_detail *detail;
    sw_value in[SW_MAX_INPUTS];
    const int n_in = list_inputs(ir, options, param, target, streams, n_streams, &detail, in);
    if (n_in < 0 || !detail) {
        return SW_NO_VALUE;
    }
    const enum sw_update_kind kind = detail->attrs.update.rule.kind;
    return emit[sw_update_facts(kind)->reach](ir, detail, in, n_in);
}
