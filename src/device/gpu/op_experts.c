// SPDX-License-Identifier: Apache-2.0
// Mixtures of experts: routers, their statistics and losses, rows of experts and their products,
// clamped gates; and attention sinks. The grid of a product has a block for each tile that experts
// can have, whatever tokens choose: launches do not depend on routes.
#include "device/gpu/gpu.h"
#include "graph/graph.h"

enum { THREADS = 256 };

_Static_assert((int)SW_SUM_BLOCK <= (int)GPU_STATS_TOKENS, "shared memory holds a block of tokens");

static bool has_type(const struct sw_view *view, enum sw_dtype dtype)
{
    return view->shape.rank < 0 || view->dtype == dtype;
}

/* A grid of warps, of which a block has THREADS / warp. */
static struct gpu_grid grid_of_warps(const struct gpu_call *call, int64_t n, int n_threads)
{
    const int per_block = n_threads / call->dev->facts.warp;
    return (struct gpu_grid){.x = sw_max_i64(1, sw_ceil_div(n, per_block))};
}

/* ---- routers ---- */

static void router_query(const struct gpu_device *dev, const struct sw_op_desc *desc,
                         struct sw_kernel_info *out)
{
    const bool forward = desc->op->kind == SW_OP_ROUTER;
    const struct sw_view *logits = &desc->in[forward ? 0 : 1];
    const struct sw_view *weights = forward ? &desc->out[0] : &desc->in[0];
    (void)dev;
    out->supported = gpu_is_float(logits->dtype) && has_type(weights, SW_F32) &&
                     sw_shape_last(&logits->shape) <= GPU_ROUTER_EXPERTS &&
                     (forward ? desc->op->n_in < 2 || gpu_is_float(desc->in[1].dtype)
                              : desc->out[0].dtype == logits->dtype);
}

static struct gpu_router_args router_args(const struct gpu_call *call, const struct sw_view *logits)
{
    const struct sw_router_attrs *attrs = &call->desc->op->attrs.experts.router;
    return (struct gpu_router_args){.tokens = logits->shape.dims[0],
                                    .width = sw_shape_last(&logits->shape),
                                    .k = attrs->k,
                                    .groups = attrs->groups,
                                    .kept = attrs->kept,
                                    .scale = (float)attrs->scale,
                                    .sigmoid = attrs->sigmoid,
                                    .normalise = attrs->normalise};
}

/* A warp has `rows` rows of floats for its token. */
static sw_status run_router(const struct gpu_call *call, enum sw_gpu_kernel_id id,
                            enum sw_dtype dtype, int rows, struct gpu_router_args *args)
{
    enum { ROUTER_THREADS = GPU_ROUTER_WARPS * 32 };
    const size_t shared = (size_t)(ROUTER_THREADS / call->dev->facts.warp) * (size_t)rows *
                          (size_t)args->width * sizeof(float);
    return sw_gpu_run_kernel(call, id, sw_gpu_type_of(dtype),
                             grid_of_warps(call, args->tokens, ROUTER_THREADS), shared, args,
                             sizeof *args);
}

static sw_status router(const struct gpu_call *call)
{
    const struct sw_op_desc *desc = call->desc;
    struct gpu_router_args args = router_args(call, &desc->in[0]);
    args.logits = call->in[0];
    args.bias = desc->op->n_in > 1 ? call->in[1] : NULL;
    args.bias_type = args.bias ? (int)sw_gpu_type_of(desc->in[1].dtype) : 0;
    args.weights = call->out[0];
    args.experts = call->out[1];
    return run_router(call, GPU_router, desc->in[0].dtype, 3, &args);
}
const struct gpu_op sw_gpu_router = {.query = router_query, .run = router};

static sw_status router_grad(const struct gpu_call *call)
{
    const struct sw_op_desc *desc = call->desc;
    struct gpu_router_args args = router_args(call, &desc->in[1]);
    args.dweights = call->in[0];
    args.logits = call->in[1];
    args.chosen = call->in[2];
    args.dlogits = call->out[0];
    return run_router(call, GPU_router_grad, desc->in[1].dtype, 2, &args);
}
const struct gpu_op sw_gpu_router_grad = {.query = router_query, .run = router_grad};

/* ---- statistics and losses of routers ---- */

static void stats_query(const struct gpu_device *dev, const struct sw_op_desc *desc,
                        struct sw_kernel_info *out)
{
    const bool forward = desc->op->kind == SW_OP_ROUTER_STATS;
    const struct sw_view *logits = &desc->in[forward ? 0 : 1];
    (void)dev;
    out->supported = gpu_is_float(logits->dtype) &&
                     (forward ? &desc->out[0] : &desc->in[0])->dtype == SW_F32 &&
                     (forward || desc->out[0].dtype == logits->dtype);
    if (forward) {
        out->workspace_bytes = (size_t)(sw_ceil_div(logits->shape.dims[0], SW_SUM_BLOCK) *
                                        sw_router_stats(sw_shape_last(&logits->shape))) *
                               sizeof(float);
    }
}

static sw_status router_stats(const struct gpu_call *call)
{
    const struct sw_op_desc *desc = call->desc;
    const struct sw_shape *shape = &desc->in[0].shape;
    struct gpu_router_stats_args args = {
        .logits = call->in[0],
        .experts = call->in[1],
        .slots = call->in[2],
        .mask = desc->op->n_in > 3 ? call->in[3] : NULL,
        .sums = call->workspace,
        .tokens = shape->dims[0],
        .width = sw_shape_last(shape),
        .k = sw_shape_last(&desc->in[1].shape),
        .block = SW_SUM_BLOCK,
    };
    GPU_LAUNCH(call, router_stats, sw_gpu_type_of(desc->in[0].dtype),
               ((struct gpu_grid){.x = sw_ceil_div(args.tokens, SW_SUM_BLOCK)}), &args);
    return sw_gpu_add_blocks(call, args.sums, args.tokens, sw_router_stats(args.width),
                             call->out[0], SW_F32);
}
const struct gpu_op sw_gpu_router_stats = {.query = stats_query, .run = router_stats};

static sw_status router_stats_grad(const struct gpu_call *call)
{
    const struct sw_op_desc *desc = call->desc;
    const struct sw_shape *shape = &desc->in[1].shape;
    struct gpu_router_stats_args args = {
        .dstats = call->in[0],
        .logits = call->in[1],
        .mask = desc->op->n_in > 2 ? call->in[2] : NULL,
        .dlogits = call->out[0],
        .tokens = shape->dims[0],
        .width = sw_shape_last(shape),
    };
    GPU_LAUNCH(call, router_stats_grad, sw_gpu_type_of(desc->in[1].dtype),
               grid_of_warps(call, args.tokens, THREADS), &args);
    return SW_OK;
}
const struct gpu_op sw_gpu_router_stats_grad = {.query = stats_query, .run = router_stats_grad};

static void all_f32(const struct gpu_device *dev, const struct sw_op_desc *desc,
                    struct sw_kernel_info *out)
{
    (void)dev;
    out->supported = true;
    for (int k = 0; k < desc->op->n_in; k++) {
        out->supported = out->supported && has_type(&desc->in[k], SW_F32);
    }
    for (int k = 0; k < desc->op->n_out; k++) {
        out->supported = out->supported && has_type(&desc->out[k], SW_F32);
    }
}

static struct gpu_router_loss_args loss_args(const struct gpu_call *call, int i_stats)
{
    return (struct gpu_router_loss_args){
        .stats = call->in[i_stats],
        .width = (gpu_elems(&call->desc->in[i_stats]) - SW_ROUTER_MORE) / 2,
        .z = call->desc->op->attrs.experts.z,
    };
}

static sw_status router_loss(const struct gpu_call *call)
{
    struct gpu_router_loss_args args = loss_args(call, 0);
    args.sum = call->out[0];
    args.count = call->out[1];
    GPU_LAUNCH(call, router_loss, SW_GPU_PLAIN, (struct gpu_grid){.x = 1}, &args);
    return SW_OK;
}
const struct gpu_op sw_gpu_router_loss = {.query = all_f32, .run = router_loss};

static sw_status router_loss_grad(const struct gpu_call *call)
{
    struct gpu_router_loss_args args = loss_args(call, 1);
    args.dsum = call->in[0];
    args.dstats = call->out[0];
    GPU_LAUNCH(call, router_loss_grad, SW_GPU_PLAIN,
               sw_gpu_grid_for(sw_router_stats(args.width), THREADS), &args);
    return SW_OK;
}
const struct gpu_op sw_gpu_router_loss_grad = {.query = all_f32, .run = router_loss_grad};

_Static_assert(SW_LOAD_LEAST == 0 && SW_LOAD_MOST == 1 && SW_LOAD_ENTROPY == 2 &&
                   SW_LOAD_DROPPED == 3 && SW_LOADS == 4,
               "the kernel writes them in this order");

/* Offsets [parts, experts of a part + 2]; one part may be without its dimension. */
static int64_t parts_of(const struct sw_view *offsets)
{
    return offsets->shape.rank > 1 ? offsets->shape.dims[0] : 1;
}

static void loads_query(const struct gpu_device *dev, const struct sw_op_desc *desc,
                        struct sw_kernel_info *out)
{
    (void)dev;
    out->supported = has_type(&desc->out[0], SW_F32);
}

static sw_status expert_loads(const struct gpu_call *call)
{
    const struct sw_view *offsets = &call->desc->in[0];
    struct gpu_expert_loads_args args = {
        .offsets = call->in[0], .loads = call->out[0], .ranks = parts_of(offsets)};
    args.n = gpu_elems(offsets) - SW_OFFSETS_BEHIND * args.ranks;
    GPU_LAUNCH(call, expert_loads, SW_GPU_PLAIN, (struct gpu_grid){.x = 1}, &args);
    return SW_OK;
}
const struct gpu_op sw_gpu_expert_loads = {.query = loads_query, .run = expert_loads};

/* ---- rows of experts ---- */

static void rows_query(const struct gpu_device *dev, const struct sw_op_desc *desc,
                       struct sw_kernel_info *out)
{
    (void)dev;
    out->supported = true;
    out->workspace_bytes = 2 * (size_t)desc->op->attrs.experts.n * sizeof(int32_t);
}

static sw_status expert_rows(const struct gpu_call *call)
{
    const struct sw_experts_attrs *attrs = &call->desc->op->attrs.experts;
    const struct sw_shape *shape = &call->desc->in[0].shape;
    const int64_t all = sw_shape_elems(shape);
    struct gpu_expert_rows_args args = {
        .experts = call->in[0],
        .slots = call->out[0],
        .sources = call->out[1],
        .offsets = call->out[2],
        .counts = call->workspace,
        .tokens = shape->dims[0],
        .k = shape->dims[1],
        .n = attrs->n,
        .ranks = sw_max_i64(attrs->ranks, 1),
        .most = attrs->capacity > 0 ? attrs->capacity : all,
    };
    args.rows = gpu_elems(&call->desc->out[1]) / args.ranks;
    GPU_LAUNCH(call, expert_choices, SW_GPU_PLAIN, (struct gpu_grid){.x = args.n}, &args);
    GPU_LAUNCH(call, expert_rows, SW_GPU_PLAIN, (struct gpu_grid){.x = args.n + args.ranks}, &args);
    return SW_OK;
}
const struct gpu_op sw_gpu_expert_rows = {.query = rows_query, .run = expert_rows};

static void move_query(const struct gpu_device *dev, const struct sw_op_desc *desc,
                       struct sw_kernel_info *out)
{
    const bool gradient = desc->op->kind == SW_OP_FROM_EXPERTS_GRAD;
    const enum sw_dtype dtype = desc->in[0].dtype;
    const int weights = gradient ? 4 : 3;
    (void)dev;
    out->supported =
        gpu_is_float(dtype) && has_type(&desc->out[0], dtype) &&
        (!gradient || (desc->in[1].dtype == dtype && has_type(&desc->out[1], SW_F32))) &&
        (desc->op->n_in <= weights || desc->in[weights].dtype == SW_F32);
}

/* Grid of a kernel in which a thread has 16 bytes of a row. */
static struct gpu_grid grid_of_rows(int64_t rows, int64_t width, enum sw_dtype dtype)
{
    const int64_t n = 16 / (int64_t)sw_dtype_bytes(dtype);
    return sw_gpu_grid_for(rows * sw_ceil_div(width, n), THREADS);
}

static sw_status to_experts(const struct gpu_call *call)
{
    const struct sw_op_desc *desc = call->desc;
    const enum sw_dtype dtype = desc->in[0].dtype;
    struct gpu_experts_move_args args = {
        .x = call->in[0],
        .sources = call->in[2],
        .out = call->out[0],
        .rows = desc->out[0].shape.dims[0],
        .width = sw_shape_last(&desc->in[0].shape),
        .k = sw_shape_last(&desc->in[1].shape),
    };
    GPU_LAUNCH(call, to_experts, sw_gpu_type_of(dtype), grid_of_rows(args.rows, args.width, dtype),
               &args);
    return SW_OK;
}
const struct gpu_op sw_gpu_to_experts = {.query = move_query, .run = to_experts};

static sw_status from_experts(const struct gpu_call *call)
{
    const struct sw_op_desc *desc = call->desc;
    const enum sw_dtype dtype = desc->in[0].dtype;
    struct gpu_experts_move_args args = {
        .x = call->in[0],
        .slots = call->in[1],
        .weights = desc->op->n_in > 3 ? call->in[3] : NULL,
        .out = call->out[0],
        .tokens = desc->in[1].shape.dims[0],
        .width = sw_shape_last(&desc->in[0].shape),
        .k = sw_shape_last(&desc->in[1].shape),
    };
    GPU_LAUNCH(call, from_experts, sw_gpu_type_of(dtype),
               grid_of_rows(args.tokens, args.width, dtype), &args);
    return SW_OK;
}
const struct gpu_op sw_gpu_from_experts = {.query = move_query, .run = from_experts};

static sw_status from_experts_grad(const struct gpu_call *call)
{
    const struct sw_op_desc *desc = call->desc;
    const enum sw_dtype dtype = desc->in[0].dtype;
    struct gpu_experts_move_args args = {
        .x = call->in[0],
        .y = call->in[1],
        .slots = call->in[2],
        .sources = call->in[3],
        .weights = call->in[4],
        .out = call->out[0],
        .dweights = call->out[1],
        .tokens = desc->in[2].shape.dims[0],
        .rows = desc->in[1].shape.dims[0],
        .width = sw_shape_last(&desc->in[0].shape),
        .k = sw_shape_last(&desc->in[2].shape),
    };
    if (args.out) {
        GPU_LAUNCH(call, to_experts, sw_gpu_type_of(dtype),
                   grid_of_rows(args.rows, args.width, dtype), &args);
    }
    if (args.dweights) {
        GPU_LAUNCH(call, from_experts_weights, sw_gpu_type_of(dtype),
                   grid_of_warps(call, args.tokens * args.k, THREADS), &args);
    }
    return SW_OK;
}
const struct gpu_op sw_gpu_from_experts_grad = {.query = move_query, .run = from_experts_grad};

/* ---- products ---- */

/* The number of experts of w [.., rows, columns]. */
static int64_t experts_of(const struct sw_view *w)
{
    return w->shape.rank == 3 ? w->shape.dims[0] : 1;
}

static void product_query(const struct gpu_device *dev, const struct sw_op_desc *desc,
                          struct sw_kernel_info *out)
{
    const enum sw_dtype dtype = desc->in[0].dtype;
    (void)dev;
    out->supported = gpu_is_float(dtype) && desc->in[2].dtype == dtype &&
                     desc->out[0].dtype == dtype &&
                     (!desc->op->attrs.experts.has_bias || gpu_is_float(desc->in[3].dtype));
}

static int64_t tiles(int64_t n)
{
    return sw_ceil_div(n, GPU_EXPERT_TILE);
}

static sw_status expert_matmul(const struct gpu_call *call)
{
    const struct sw_op_desc *desc = call->desc;
    const struct sw_experts_attrs *attrs = &desc->op->attrs.experts;
    const enum sw_gpu_type type = sw_gpu_type_of(desc->in[0].dtype);
    const int32_t *offsets = call->in[1];
    const int64_t parts = parts_of(&desc->in[1]), stride = sw_shape_last(&desc->in[1].shape);
    const int64_t rows = sw_shape_rows(&desc->in[0].shape) / parts;
    struct gpu_expert_product_args args = {
        .offsets = offsets + attrs->expert,
        .a = call->in[0],
        .b = call->in[2],
        .bias = attrs->has_bias ? call->in[3] : NULL,
        .d = call->out[0],
        .n = experts_of(&desc->in[2]),
        .rows = rows,
        .columns = sw_shape_last(&desc->out[0].shape),
        .depth = sw_shape_last(&desc->in[0].shape),
        .stride = stride,
        .bias_type = attrs->has_bias ? (int)sw_gpu_type_of(desc->in[3].dtype) : 0,
        .out_type = (int)type,
        .tb = attrs->tb,
    };
    GPU_LAUNCH(call, expert_product, type,
               ((struct gpu_grid){(tiles(rows) + args.n) * tiles(args.columns), parts, 1}), &args);
    if (!attrs->continues) { /* the first of several products clears rows that no expert has */
        struct gpu_expert_rest_args rest = {.first = offsets + stride - SW_OFFSETS_BEHIND,
                                            .y = call->out[0],
                                            .rows = rows,
                                            .width = args.columns,
                                            .stride = stride};
        struct gpu_grid grid = sw_gpu_grid_for(rows * args.columns, THREADS);
        grid.y = parts;
        GPU_LAUNCH(call, expert_rest, type, grid, &rest);
    }
    return SW_OK;
}
const struct gpu_op sw_gpu_expert_matmul = {.query = product_query, .run = expert_matmul};

static void product_grad_query(const struct gpu_device *dev, const struct sw_op_desc *desc,
                               struct sw_kernel_info *out)
{
    (void)dev;
    out->supported = gpu_is_float(desc->in[0].dtype) && desc->in[1].dtype == desc->in[0].dtype;
    for (int k = 0; k < desc->op->n_out; k++) {
        out->supported =
            out->supported && (!gpu_has_output(desc, k) || gpu_is_float(desc->out[k].dtype));
    }
}

/* Where the part begins that a gradient is of, in a value with the rows of all parts. */
static const void *part_at(const struct gpu_call *call, int k)
{
    const struct sw_view *view = &call->desc->in[k];
    const size_t bytes = (size_t)gpu_elems(view) * sw_dtype_bytes(view->dtype);
    return (const char *)call->in[k] + bytes / (size_t)parts_of(&call->desc->in[2]) *
                                           (size_t)call->desc->op->attrs.experts.part;
}

/* The gradient of a matrix [in, out] is x' dy, that of its transpose dy' x. */
static sw_status expert_matmul_grad(const struct gpu_call *call)
{
    const struct sw_op_desc *desc = call->desc;
    const struct sw_experts_attrs *attrs = &desc->op->attrs.experts;
    const enum sw_gpu_type type = sw_gpu_type_of(desc->in[0].dtype);
    const int left = attrs->tb ? 0 : 1;
    const int32_t *offsets = (const int32_t *)part_at(call, 2) + attrs->expert;
    if (call->out[0]) {
        struct gpu_expert_product_args args = {
            .offsets = offsets,
            .a = part_at(call, left),
            .b = part_at(call, 1 - left),
            .d = call->out[0],
            .n = experts_of(&desc->out[0]),
            .rows = sw_shape_last(&desc->in[left].shape),
            .columns = sw_shape_last(&desc->in[1 - left].shape),
            .out_type = (int)sw_gpu_type_of(desc->out[0].dtype),
        };
        GPU_LAUNCH(call, expert_product_grad, type,
                   ((struct gpu_grid){.x = args.n * tiles(args.rows) * tiles(args.columns)}),
                   &args);
    }
    if (gpu_has_output(desc, 1) && call->out[1]) {
        struct gpu_expert_bias_args args = {
            .offsets = offsets,
            .dy = part_at(call, 0),
            .d = call->out[1],
            .columns = sw_shape_last(&desc->in[0].shape),
            .out_type = (int)sw_gpu_type_of(desc->out[1].dtype),
        };
        args.n = gpu_elems(&desc->out[1]) / args.columns;
        GPU_LAUNCH(call, expert_bias_grad, type,
                   ((struct gpu_grid){.x = args.n * sw_ceil_div(args.columns, GPU_EXPERT_COLUMNS)}),
                   &args);
    }
    return SW_OK;
}
const struct gpu_op sw_gpu_expert_matmul_grad = {.query = product_grad_query,
                                                 .run = expert_matmul_grad};

/* ---- clamped gates ---- */

static void gate_query(const struct gpu_device *dev, const struct sw_op_desc *desc,
                       struct sw_kernel_info *out)
{
    (void)dev;
    out->supported =
        sw_gpu_all_floats(desc->in, desc->op->n_in) && desc->out[0].dtype == desc->in[0].dtype;
}

static sw_status clamped_gate(const struct gpu_call *call)
{
    const bool forward = call->desc->op->kind == SW_OP_CLAMPED_GATE;
    const int i_x = forward ? 0 : 1;
    struct gpu_clamped_gate_args args = {
        .x = call->in[i_x],
        .dy = forward ? NULL : call->in[0],
        .out = call->out[0],
        .n = gpu_elems(&call->desc->in[i_x]) / 2,
        .alpha = (float)call->desc->op->attrs.experts.alpha,
        .limit = (float)call->desc->op->attrs.experts.limit,
    };
    return sw_gpu_run_kernel(call, forward ? GPU_clamped_gate : GPU_clamped_gate_grad,
                             sw_gpu_type_of(call->desc->in[0].dtype),
                             sw_gpu_grid_for(args.n, THREADS), 0, &args, sizeof args);
}
const struct gpu_op sw_gpu_clamped_gate = {.query = gate_query, .run = clamped_gate};

/* ---- attention sinks ---- */

static struct gpu_sink_args sink_args(const struct gpu_call *call, int i_o, int i_lse)
{
    const struct sw_shape *lse = &call->desc->in[i_lse].shape;
    return (struct gpu_sink_args){
        .o = call->in[i_o],
        .lse = call->in[i_lse],
        .batch = lse->dims[0],
        .heads = lse->dims[1],
        .tokens = lse->dims[2],
        .width = sw_shape_last(&call->desc->in[i_o].shape) / lse->dims[1],
        .block = SW_SUM_BLOCK,
    };
}

static void sink_query(const struct gpu_device *dev, const struct sw_op_desc *desc,
                       struct sw_kernel_info *out)
{
    const enum sw_dtype dtype = desc->in[0].dtype;
    (void)dev;
    out->supported = gpu_is_float(dtype) && desc->in[1].dtype == SW_F32 &&
                     desc->in[2].dtype == dtype && has_type(&desc->out[0], dtype) &&
                     has_type(&desc->out[1], SW_F32);
}

static sw_status attention_sink(const struct gpu_call *call)
{
    struct gpu_sink_args args = sink_args(call, 0, 1);
    args.sinks = call->in[2];
    args.out = call->out[0];
    args.out_lse = call->out[1];
    GPU_LAUNCH(call, attention_sink, sw_gpu_type_of(call->desc->in[0].dtype),
               grid_of_warps(call, args.batch * args.tokens * args.heads, THREADS), &args);
    return SW_OK;
}
const struct gpu_op sw_gpu_attention_sink = {.query = sink_query, .run = attention_sink};

static void sink_grad_query(const struct gpu_device *dev, const struct sw_op_desc *desc,
                            struct sw_kernel_info *out)
{
    const enum sw_dtype dtype = desc->in[0].dtype;
    const struct sw_shape *lse = &desc->in[2].shape;
    (void)dev;
    out->supported = gpu_is_float(dtype) && desc->in[1].dtype == dtype &&
                     desc->in[2].dtype == SW_F32 && desc->in[3].dtype == dtype &&
                     gpu_is_float(desc->out[0].dtype);
    out->workspace_bytes =
        (size_t)(sw_ceil_div(lse->dims[0] * lse->dims[2], SW_SUM_BLOCK) * lse->dims[1]) *
        sizeof(float);
}

static sw_status attention_sink_grad(const struct gpu_call *call)
{
    struct gpu_sink_args args = sink_args(call, 1, 2);
    const int64_t tokens = args.batch * args.tokens;
    args.d_o = call->in[0];
    args.sinks = call->in[3];
    args.sums = call->workspace;
    GPU_LAUNCH(call, attention_sink_grad, sw_gpu_type_of(call->desc->in[0].dtype),
               grid_of_warps(call, sw_ceil_div(tokens, SW_SUM_BLOCK) * args.heads, THREADS), &args);
    return sw_gpu_add_blocks(call, args.sums, tokens, args.heads, call->out[0],
                             call->desc->out[0].dtype);
}
const struct gpu_op sw_gpu_attention_sink_grad = {.query = sink_grad_query,
                                                  .run = attention_sink_grad};
