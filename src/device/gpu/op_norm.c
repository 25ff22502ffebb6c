// SPDX-License-Identifier: Apache-2.0
// Norms of rows, their gradients, and sums over rows. The workspace has the sums of blocks of
// SW_SUM_BLOCK rows. They are added in order: by the kernel that made them, or for very wide rows
// by a later one.
#include "device/gpu/gpu.h"

enum { THREADS = 256, SUM_THREADS = 64 };
/* Rows at least this wide take a block of threads, narrower ones a warp. */
enum { WIDTH_OF_BLOCK = 1024 };

static int team_of(const struct gpu_device *dev, int64_t width)
{
    return width >= WIDTH_OF_BLOCK ? THREADS : dev->facts.warp;
}

static struct gpu_grid grid_of_teams(int64_t n_rows, int team)
{
    return (struct gpu_grid){.x = sw_ceil_div(n_rows, THREADS / team)};
}

static bool is_f32(const struct sw_view *view)
{
    return view->shape.rank < 0 || view->dtype == SW_F32;
}

/* ---- sums ---- */

static int64_t n_blocks_of(int64_t n_rows)
{
    return sw_ceil_div(n_rows, SW_SUM_BLOCK);
}

static struct gpu_grid grid_of_columns(int64_t n_rows, int64_t width)
{
    return (struct gpu_grid){.x = n_blocks_of(n_rows) * sw_ceil_div(width, GPU_SUM_COLUMNS)};
}

static size_t sums_bytes(int64_t n_rows, int64_t width)
{
    return (size_t)(n_blocks_of(n_rows) * width) * sizeof(float);
}

sw_status sw_gpu_add_in_order(const struct gpu_call *call, const float *sums, int64_t n_blocks,
                              int64_t width, void *y, enum sw_dtype dtype)
{
    struct gpu_sum_blocks_args args = {.sums = sums,
                                       .y = y,
                                       .n_blocks = n_blocks,
                                       .width = width,
                                       .out_type = (int)sw_gpu_type_of(dtype)};
    GPU_LAUNCH(call, sum_blocks, SW_GPU_PLAIN, sw_gpu_grid_for(width, SUM_THREADS), &args);
    return SW_OK;
}

sw_status sw_gpu_add_blocks(const struct gpu_call *call, const float *sums, int64_t n_rows,
                            int64_t width, void *y, enum sw_dtype dtype)
{
    return sw_gpu_add_in_order(call, sums, n_blocks_of(n_rows), width, y, dtype);
}

/* NULL if there are not enough tickets for this width, or no rows, so that no kernel runs. */
static int *tickets_for(const struct gpu_call *call, int64_t n_rows, int64_t width)
{
    return n_rows > 0 && sw_ceil_div(width, GPU_SUM_COLUMNS) <= GPU_TICKETS ? call->tickets : NULL;
}

static struct gpu_total total_of(const struct gpu_call *call, int i_out)
{
    return (struct gpu_total){call->out[i_out], (int)sw_gpu_type_of(call->desc->out[i_out].dtype)};
}

/* Adds up the sums that no kernel has added up. */
static sw_status finish_sums(const struct gpu_call *call, const float *sums, int64_t n_rows,
                             int64_t width, int i_out)
{
    if (tickets_for(call, n_rows, width)) {
        return SW_OK;
    }
    return sw_gpu_add_blocks(call, sums, n_rows, width, call->out[i_out],
                             call->desc->out[i_out].dtype);
}

static void sum_rows_query(const struct gpu_device *dev, const struct sw_op_desc *desc,
                           struct sw_kernel_info *out)
{
    const int64_t width = gpu_elems(&desc->out[0]);
    (void)dev;
    out->supported = sw_gpu_all_floats(desc->in, 1) && sw_gpu_all_floats(desc->out, 1);
    out->workspace_bytes = width > 0 ? sums_bytes(gpu_elems(&desc->in[0]) / width, width) : 0;
}

static sw_status sum_rows(const struct gpu_call *call)
{
    const int64_t width = gpu_elems(&call->desc->out[0]);
    if (width == 0) {
        return SW_OK;
    }
    struct gpu_sum_rows_args args = {.x = call->in[0],
                                     .sums = call->workspace,
                                     .n_rows = gpu_elems(&call->desc->in[0]) / width,
                                     .width = width,
                                     .block = SW_SUM_BLOCK,
                                     .total = total_of(call, 0)};
    args.tickets = tickets_for(call, args.n_rows, width);
    if (args.n_rows > 0) {
        GPU_LAUNCH(call, sum_rows, sw_gpu_type_of(call->desc->in[0].dtype),
                   grid_of_columns(args.n_rows, width), &args);
    }
    return finish_sums(call, call->workspace, args.n_rows, width, 0);
}
const struct gpu_op sw_gpu_sum_rows = {.query = sum_rows_query, .run = sum_rows};

/* ---- norms ---- */

/* Inputs have one type, which y (after the sum, if any) shares; statistics are fp32. */
static void norm_query(const struct gpu_device *dev, const struct sw_op_desc *desc,
                       struct sw_kernel_info *out)
{
    const enum sw_op_kind kind = desc->op->kind;
    const int n_y = kind == SW_OP_ADD_LAYER_NORM || kind == SW_OP_ADD_RMS_NORM ? 2 : 1;
    (void)dev;
    out->supported = sw_gpu_all_floats(desc->in, desc->op->n_in) &&
                     sw_gpu_all_floats(desc->out, n_y) && desc->in[0].dtype == desc->out[0].dtype;
    for (int k = n_y; k < desc->op->n_out; k++) {
        out->supported = out->supported && is_f32(&desc->out[k]);
    }
}

/* Inputs: x or a, b; w; the bias of a layer norm. Outputs: the sum; y; the mean of a layer norm;
 * rstd. */
static sw_status norm(const struct gpu_call *call, bool adds, bool is_layer)
{
    const struct sw_op_desc *desc = call->desc;
    const struct sw_shape *shape = &desc->in[0].shape;
    const int i_w = adds ? 2 : 1, i_y = adds ? 1 : 0, i_rstd = i_y + (is_layer ? 2 : 1);
    const enum sw_gpu_type type = sw_gpu_type_of(desc->in[0].dtype);
    struct gpu_norm_args args = {
        .x = call->in[0],
        .b = adds ? call->in[1] : NULL,
        .w = call->in[i_w],
        .bias = is_layer ? call->in[i_w + 1] : NULL,
        .sum = adds ? call->out[0] : NULL,
        .y = call->out[i_y],
        .mean = is_layer && i_y + 1 < desc->op->n_out ? call->out[i_y + 1] : NULL,
        .rstd = i_rstd < desc->op->n_out ? call->out[i_rstd] : NULL,
        .n_rows = sw_shape_rows(shape),
        .width = sw_shape_last(shape),
        .eps = (float)desc->op->attrs.norm.eps,
        .one_plus = desc->op->attrs.norm.one_plus,
        .team = team_of(call->dev, sw_shape_last(shape)),
    };
    if (sw_shape_elems(shape) == 0) {
        return SW_OK;
    }
    const struct gpu_grid grid = grid_of_teams(args.n_rows, args.team);
    if (is_layer) {
        GPU_LAUNCH(call, layer_norm, type, grid, &args);
    } else {
        GPU_LAUNCH(call, rms_norm, type, grid, &args);
    }
    return SW_OK;
}

static sw_status layer_norm(const struct gpu_call *call)
{
    return norm(call, call->desc->op->kind == SW_OP_ADD_LAYER_NORM, true);
}
const struct gpu_op sw_gpu_layer_norm = {.query = norm_query, .run = layer_norm};

static sw_status rms_norm(const struct gpu_call *call)
{
    return norm(call, call->desc->op->kind == SW_OP_ADD_RMS_NORM, false);
}
const struct gpu_op sw_gpu_rms_norm = {.query = norm_query, .run = rms_norm};

/* ---- their gradients ---- */

/* dy, x and w have one type, which dx shares; the sums have any. */
static void norm_grad_query(const struct gpu_device *dev, const struct sw_op_desc *desc,
                            struct sw_kernel_info *out)
{
    const struct sw_shape *shape = &desc->in[0].shape;
    (void)dev;
    out->supported = sw_gpu_all_floats(desc->in, 3) &&
                     (!gpu_has_output(desc, 0) || desc->out[0].dtype == desc->in[0].dtype);
    for (int k = 3; k < desc->op->n_in; k++) {
        out->supported = out->supported && is_f32(&desc->in[k]);
    }
    for (int k = 1; k < desc->op->n_out; k++) {
        if (gpu_has_output(desc, k)) {
            out->supported = out->supported && sw_gpu_all_floats(&desc->out[k], 1);
            out->workspace_bytes += sums_bytes(sw_shape_rows(shape), sw_shape_last(shape));
        }
    }
}

static struct gpu_norm_grad_args norm_grad_args(const struct gpu_call *call, bool is_layer)
{
    const struct sw_shape *shape = &call->desc->in[0].shape;
    return (struct gpu_norm_grad_args){
        .tickets = tickets_for(call, sw_shape_rows(shape), sw_shape_last(shape)),
        .dy = call->in[0],
        .x = call->in[1],
        .w = call->in[2],
        .mean = is_layer ? call->in[3] : NULL,
        .rstd = call->in[is_layer ? 4 : 3],
        .dx = call->out[0],
        .n_rows = sw_shape_rows(shape),
        .width = sw_shape_last(shape),
        .block = SW_SUM_BLOCK,
        .one_plus = call->desc->op->attrs.norm.one_plus,
        .team = team_of(call->dev, sw_shape_last(shape)),
    };
}

/* Workspace offsets of the sums for dw (after dx), then db, if they are wanted. */
static void place_sums(const struct gpu_call *call, struct gpu_norm_grad_args *args)
{
    char *at = call->workspace;
    float **sums[] = {&args->dw, &args->db};
    struct gpu_total *totals[] = {&args->total_dw, &args->total_db};
    for (int k = 1; k < call->desc->op->n_out; k++) {
        if (call->out[k]) {
            *sums[k - 1] = (float *)(void *)at;
            *totals[k - 1] = total_of(call, k);
            at += sums_bytes(args->n_rows, args->width);
        }
    }
}

static sw_status norm_grad(const struct gpu_call *call, bool is_layer)
{
    const enum sw_gpu_type type = sw_gpu_type_of(call->desc->in[0].dtype);
    struct gpu_norm_grad_args args = norm_grad_args(call, is_layer);
    place_sums(call, &args);
    const bool any = args.n_rows > 0 && args.width > 0;
    const struct gpu_grid rows = grid_of_teams(args.n_rows, args.team);
    const struct gpu_grid columns = grid_of_columns(args.n_rows, args.width);
    if (args.dx && any && is_layer) {
        GPU_LAUNCH(call, layer_norm_dx, type, rows, &args);
    } else if (args.dx && any) {
        GPU_LAUNCH(call, rms_norm_dx, type, rows, &args);
    }
    if ((args.dw || args.db) && any && is_layer) {
        GPU_LAUNCH(call, layer_norm_dw, type, columns, &args);
    } else if (args.dw && any) {
        GPU_LAUNCH(call, rms_norm_dw, type, columns, &args);
    }
    if (args.dw) {
        SW_TRY(finish_sums(call, args.dw, args.n_rows, args.width, 1));
    }
    if (args.db) {
        SW_TRY(finish_sums(call, args.db, args.n_rows, args.width, 2));
    }
    return SW_OK;
}

static sw_status layer_norm_grad(const struct gpu_call *call)
{
    return norm_grad(call, true);
}
const struct gpu_op sw_gpu_layer_norm_grad = {.query = norm_grad_query, .run = layer_norm_grad};

static sw_status rms_norm_grad(const struct gpu_call *call)
{
    return norm_grad(call, false);
}
const struct gpu_op sw_gpu_rms_norm_grad = {.query = norm_grad_query, .run = rms_norm_grad};
