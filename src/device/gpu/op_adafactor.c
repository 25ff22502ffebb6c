// SPDX-License-Identifier: Apache-2.0
// Adafactor in three ops (cpu/ref_adafactor.inc has the formulas), with the CPU's bits: sums over
// rows and columns, the new means, the step.
#include "device/gpu/op_update.h"

/* Most blocks of a launch; each adds its words to the common ones. */
enum { PART = GPU_UPDATE_PART, MOST_BLOCKS = 512 };

static const struct sw_update_op_attrs *attrs_of(const struct gpu_call *call)
{
    return &call->desc->op->attrs.update;
}

static bool has_lines(const struct gpu_call *call)
{
    return attrs_of(call)->matrices > 0;
}

/* n_made: inputs between states and streams, which the ops before have made. */
static struct gpu_adafactor part_of(const struct gpu_call *call, int n_made)
{
    const struct sw_update_op_attrs *of = attrs_of(call);
    const bool lines = has_lines(call);
    return (struct gpu_adafactor){
        .streams = sw_gpu_streams_of(call, 1 + of->rule.n_states + n_made, false),
        .grad_factor = call->scalars + SW_SCALAR_GRAD_FACTOR,
        .clip = call->scalars + SW_SCALAR_CLIP,
        .origin = lines ? of->origin : 0,
        .n = of->n_elems,
        .rows = lines ? of->rows : 1,
        .columns = lines ? of->columns : sw_max_i64(1, of->n_elems),
        .n_rows = lines ? of->matrices * of->rows : 1};
}

/* Only the parameter and its master: the other states are not per-element moments. */
static struct gpu_param param_of(const struct gpu_call *call)
{
    return (struct gpu_param){.param = call->in[0],
                              .master = call->desc->in[0].dtype != SW_F32 ? call->in[1] : NULL};
}

/* The last states, which hold the means of lines. */
static struct gpu_adafactor_lines lines_of(const struct gpu_call *call)
{
    const struct sw_update_op_attrs *of = attrs_of(call);
    const int last = of->rule.n_states;
    if (!has_lines(call)) {
        return (struct gpu_adafactor_lines){.n_rows = 0};
    }
    return (struct gpu_adafactor_lines){.rows = call->in[last - 1],
                                        .columns = call->in[last],
                                        .n_rows = of->matrices * of->rows,
                                        .n_columns = of->matrices * of->columns,
                                        .n_kept_rows = gpu_elems(&call->desc->in[last - 1]),
                                        .n_kept_columns = gpu_elems(&call->desc->in[last]),
                                        .slice = of->slice};
}

static struct gpu_grid grid_of_lines(const struct gpu_adafactor_lines *of)
{
    const int64_t blocks = sw_ceil_div(of->n_rows + of->n_columns, GPU_ADAFACTOR_LINES);
    return (struct gpu_grid){.x = sw_max_i64(1, blocks)};
}

/* ---- ADAFACTOR_SUMS: param, states.., streams.. -> words ---- */

static sw_status add_rows(const struct gpu_call *call, int64_t *words)
{
    const struct gpu_adafactor of = part_of(call, 0);
    const int warp = call->dev->facts.warp, warps = GPU_UPDATE_THREADS / warp;
    /* a row may begin inside a run */
    const int64_t runs = (of.columns + GPU_RUN - 2) / GPU_RUN + 1;
    struct gpu_adafactor_rows_args args = {
        .of = of,
        .param = param_of(call),
        .words = words,
        .lines = has_lines(call) ? words + GPU_STATS_WORDS : NULL,
        .first_row = of.origin / of.columns,
        .n_chunks = sw_ceil_div(runs, warp * GPU_ADAFACTOR_RUNS)};
    if (of.n == 0) {
        return SW_OK;
    }
    args.n_here = (of.origin + of.n - 1) / of.columns + 1 - args.first_row;
    const int64_t blocks = sw_ceil_div(args.n_here * args.n_chunks, warps);
    GPU_LAUNCH(call, adafactor_rows, sw_gpu_type_of(call->desc->in[0].dtype),
               (struct gpu_grid){.x = sw_min_i64(blocks, MOST_BLOCKS)}, &args);
    return SW_OK;
}

/* Takes the rows of one matrix on this rank, or all rows of several. */
static sw_status add_columns(const struct gpu_call *call, int64_t *lines)
{
    const struct gpu_adafactor of = part_of(call, 0);
    struct gpu_adafactor_columns_args args = {
        .of = of, .lines = lines, .first_matrix = of.origin / (of.rows * of.columns)};
    if (of.n == 0) {
        return SW_OK;
    }
    const int64_t last = of.origin + of.n - 1, last_matrix = last / (of.rows * of.columns);
    args.n_here = of.rows;
    if (last_matrix == args.first_matrix) {
        args.first_row = of.origin / of.columns - args.first_matrix * of.rows;
        args.n_here = last / of.columns + 1 - of.origin / of.columns;
    }
    args.n_items = (last_matrix + 1 - args.first_matrix) *
                   sw_ceil_div(args.n_here, GPU_ADAFACTOR_ROWS) * of.columns;
    GPU_LAUNCH(call, adafactor_columns, SW_GPU_PLAIN,
               sw_gpu_grid_for(args.n_items, GPU_UPDATE_THREADS), &args);
    return SW_OK;
}

static sw_status sums(const struct gpu_call *call)
{
    int64_t *words = call->out[0];
    struct gpu_adafactor_settle_args settle = {.words = words, .of = lines_of(call)};
    SW_TRY(sw_gpu_reset_words(call, words, gpu_elems(&call->desc->out[0])));
    SW_TRY(add_rows(call, words));
    if (has_lines(call)) {
        SW_TRY(add_columns(call, words + GPU_STATS_WORDS + settle.of.n_rows * (int)GPU_LINE_WORDS));
    }
    GPU_LAUNCH(call, adafactor_settle, SW_GPU_PLAIN, grid_of_lines(&settle.of), &settle);
    return SW_OK;
}
const struct gpu_op sw_gpu_adafactor_sums = {.query = sw_gpu_rule_query, .run = sums};

/* ---- ADAFACTOR_MOMENTS: param, states.., words, streams.. -> squares.., u^2 [, factors] ---- */

static sw_status make_factors(const struct gpu_call *call, float *factors)
{
    const struct sw_update_op_attrs *of = attrs_of(call);
    struct gpu_adafactor_means_args means = {.words = call->in[1 + of->rule.n_states],
                                             .of = lines_of(call),
                                             .factors = factors,
                                             .kept = call->scalars + SW_SCALAR_SQUARES_KEPT,
                                             .eps = of->rule.eps,
                                             .row_elems = of->columns,
                                             .column_elems = of->rows};
    struct gpu_adafactor_factors_args args = {
        .factors = factors, .matrices = of->matrices, .rows = of->rows};
    GPU_LAUNCH(call, adafactor_means, SW_GPU_PLAIN, grid_of_lines(&means.of), &means);
    GPU_LAUNCH(call, adafactor_factors, SW_GPU_PLAIN,
               (struct gpu_grid){.x = sw_min_i64(of->matrices, MOST_BLOCKS)}, &args);
    return SW_OK;
}

static sw_status moments(const struct gpu_call *call)
{
    const int last = attrs_of(call)->rule.n_states;
    struct gpu_adafactor_moments_args args = {.of = part_of(call, 1),
                                              .kept = call->scalars + SW_SCALAR_SQUARES_KEPT,
                                              .eps = attrs_of(call)->rule.eps};
    if (has_lines(call)) {
        SW_TRY(make_factors(call, call->out[3]));
        args.factors = call->out[3];
        args.norm = call->out[2];
    } else {
        args.square = call->in[last];
        args.norm = call->out[1];
    }
    SW_TRY(sw_gpu_reset_words(call, args.norm, GPU_STATS_WORDS));
    GPU_LAUNCH(call, adafactor_moments, SW_GPU_PLAIN, sw_gpu_update_grid(args.of.n, 2 * GPU_RUN),
               &args);
    return SW_OK;
}
const struct gpu_op sw_gpu_adafactor_moments = {.query = sw_gpu_rule_query, .run = moments};

/* ---- ADAFACTOR_APPLY: param, states.., words, u^2 [, factors], streams.. ---- */

static sw_status apply(const struct gpu_call *call)
{
    const struct sw_update_op_attrs *of = attrs_of(call);
    const int last = of->rule.n_states, n_squares = has_lines(call) ? 2 : 1;
    struct gpu_adafactor_apply_args args = {.of = part_of(call, has_lines(call) ? 3 : 2),
                                            .param = param_of(call),
                                            .rule = sw_gpu_rule_of(call),
                                            .rates = sw_gpu_rates_of(call),
                                            .factors = has_lines(call) ? call->in[last + 3] : NULL,
                                            .square = has_lines(call) ? NULL : call->in[last],
                                            .mean = of->rule.beta1 != 0 ? call->in[last - n_squares]
                                                                        : NULL,
                                            .words = call->in[last + 1],
                                            .norm = call->in[last + 2],
                                            .least_scale = of->rule.least_scale,
                                            .clip_threshold = of->rule.clip_threshold,
                                            .whole = of->whole,
                                            .scale_parameter = of->rule.scale_parameter};
    GPU_LAUNCH(call, adafactor_apply, sw_gpu_type_of(call->desc->in[0].dtype),
               sw_gpu_update_grid(args.of.n, PART), &args);
    return SW_OK;
}
const struct gpu_op sw_gpu_adafactor_apply = {.query = sw_gpu_rule_query, .run = apply};
