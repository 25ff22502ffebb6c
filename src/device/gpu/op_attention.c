// SPDX-License-Identifier: Apache-2.0
// ATTENTION and ATTENTION_GRAD: the layout of each head's rows, and the kernel with room for them.
// Workspace: positions of keys and segments of groups of keys, if they are needed. Backward also
// has the sum of do o for each query, and each sample's gradient of a bias if it is summed.
#include "device/gpu/gpu.h"

struct shape {
    int64_t batch, heads, kv_heads, n_queries, n_keys, width;
};

/* first: index of the input q, or qkv. */
static struct shape shape_of(const struct sw_op_desc *desc, int first)
{
    const struct sw_attention_attrs *attrs = &desc->op->attrs.attention;
    const struct sw_shape *q = &desc->in[first].shape;
    return (struct shape){
        .batch = q->dims[0],
        .heads = attrs->heads,
        .kv_heads = attrs->kv_heads > 0 ? attrs->kv_heads : attrs->heads,
        .n_queries = q->dims[1],
        .n_keys = desc->in[first + (attrs->packed ? 0 : 1)].shape.dims[1],
        .width = sw_attention_width(attrs, q),
    };
}

/* Offsets in the workspace; SIZE_MAX = not needed. */
struct places {
    size_t places, bounds, delta, dbias, bytes;
};

static size_t reserve(struct places *p, bool wanted, int64_t n)
{
    const size_t at = p->bytes;
    p->bytes += wanted ? sw_round_up((size_t)n * sizeof(int32_t), 64) : 0;
    return wanted ? at : SIZE_MAX;
}

/* The output for the bias gradient; NULL if the op has none or it is not wanted. */
static const struct sw_view *bias_gradient(const struct sw_op_desc *desc)
{
    const struct sw_attention_attrs *attrs = &desc->op->attrs.attention;
    const int k = sw_attention_bias_output(attrs);
    return attrs->has_bias && gpu_has_output(desc, k) ? &desc->out[k] : NULL;
}

static struct places places_of(const struct sw_op_desc *desc, int first)
{
    const struct sw_attention_attrs *attrs = &desc->op->attrs.attention;
    const struct shape s = shape_of(desc, first);
    const int64_t n_groups = sw_ceil_div(s.n_keys, GPU_ATTENTION_GROUP);
    struct places p = {0};
    p.places = reserve(&p, attrs->has_mask && attrs->has_slopes, s.batch * s.n_keys);
    p.bounds = reserve(&p, attrs->has_segments, s.batch * n_groups * 2);
    p.delta = reserve(&p, first > 0, s.batch * s.heads * s.n_queries);
    p.dbias =
        reserve(&p, first > 0 && bias_gradient(desc), s.batch * s.heads * s.n_queries * s.n_keys);
    return p;
}

static void *at_place(const struct gpu_call *call, size_t at)
{
    return at == SIZE_MAX ? NULL : (char *)call->workspace + at;
}

/* Index of the kernel for heads of up to 64, 128, 256 elements; -1: wider heads. */
static int class_of(int64_t width)
{
    return width <= 64 ? 0 : width <= 128 ? 1 : width <= 256 ? 2 : -1;
}

static void query_from(const struct sw_op_desc *desc, int first, struct sw_kernel_info *out)
{
    const struct sw_attention_attrs *attrs = &desc->op->attrs.attention;
    const enum sw_dtype dtype = desc->in[first].dtype;
    for (int i = 0; i < (attrs->packed ? 1 : 3); i++) {
        if (desc->in[first + i].dtype != dtype) {
            return;
        }
    }
    const struct shape s = shape_of(desc, first);
    if (attrs->has_bias && (desc->in[sw_attention_bias_input(attrs, first)].dtype != SW_F32 ||
                            s.n_queries * s.n_keys > INT32_MAX)) {
        return;
    }
    out->supported =
        class_of(s.width) >= 0 && s.n_queries < GPU_ATTENTION_MAX && s.n_keys < GPU_ATTENTION_MAX;
    out->workspace_bytes = places_of(desc, first).bytes;
}

static void attention_query(const struct gpu_device *dev, const struct sw_op_desc *desc,
                            struct sw_kernel_info *out)
{
    (void)dev;
    query_from(desc, 0, out);
}

static void attention_grad_query(const struct gpu_device *dev, const struct sw_op_desc *desc,
                                 struct sw_kernel_info *out)
{
    (void)dev;
    query_from(desc, 3, out);
}

/* ---- layout of heads ---- */

/* first: number of the tensor's heads before these. */
static struct gpu_heads heads_of(const struct sw_view *view, const void *data, int64_t first,
                                 int64_t width)
{
    const int last = view->shape.rank - 1;
    const int64_t bytes = (int64_t)sw_dtype_bytes(view->dtype);
    struct gpu_heads x = {.x = NULL};
    if (!data) {
        return x;
    }
    x.batch = view->strides[0];
    x.token = view->strides[1];
    x.element = view->strides[last];
    x.head = last == 3 ? view->strides[2] : width * x.element;
    x.x = (const char *)data + first * x.head * bytes;
    x.aligned = x.element == 1 && (uintptr_t)x.x % 16 == 0 && x.batch * bytes % 16 == 0 &&
                x.token * bytes % 16 == 0 && x.head * bytes % 16 == 0 && width * bytes % 16 == 0;
    return x;
}

/* views, data: q, k, v or qkv, or their gradients. */
static void place_heads(const struct sw_attention_attrs *attrs, const struct shape *s,
                        const struct sw_view *views, void *const *data, struct gpu_heads *q,
                        struct gpu_heads *k, struct gpu_heads *v)
{
    const int i_k = attrs->packed ? 0 : 1, i_v = attrs->packed ? 0 : 2;
    const int64_t before_k = attrs->packed ? s->heads : 0;
    const int64_t before_v = attrs->packed ? s->heads + s->kv_heads : 0;
    *q = heads_of(&views[0], data[0], 0, s->width);
    *k = heads_of(&views[i_k], data[i_k], before_k, s->width);
    *v = heads_of(&views[i_v], data[i_v], before_v, s->width);
}

static struct gpu_attention_args args_of(const struct gpu_call *call, int first)
{
    const struct sw_attention_attrs *attrs = &call->desc->op->attrs.attention;
    const struct shape s = shape_of(call->desc, first);
    const struct places p = places_of(call->desc, first);
    struct gpu_attention_args args = {
        .places = at_place(call, p.places),
        .bounds = at_place(call, p.bounds),
        .delta = at_place(call, p.delta),
        .batch = (int)s.batch,
        .heads = (int)s.heads,
        .kv_heads = (int)s.kv_heads,
        .n_queries = (int)s.n_queries,
        .n_keys = (int)s.n_keys,
        .window = (int)sw_min_i64(attrs->window, GPU_ATTENTION_MAX),
        .width = (int)s.width,
        .causal = attrs->causal,
        .has_dropout = attrs->dropout > 0,
        .first_head = (int)attrs->first_head,
        .bf16_slopes = attrs->bf16_slopes,
        .scale = (float)attrs->scale,
        .cap = (float)attrs->cap,
        .keep_scale = (float)(1 / (1 - attrs->dropout)),
        .draw = sw_gpu_draw_args(call, attrs->dropout, s.batch),
    };
    int i = first + (attrs->packed ? 1 : 3);
    place_heads(attrs, &s, call->desc->in + first, call->in + first, &args.q, &args.k, &args.v);
    args.mask = attrs->has_mask ? call->in[i++] : NULL;
    args.position = attrs->has_position ? call->in[i++] : NULL;
    args.slopes = attrs->has_slopes ? call->in[i++] : NULL;
    args.segments = attrs->has_segments ? call->in[i++] : NULL;
    args.bias = attrs->has_bias ? call->in[i] : NULL;
    args.bias_batch =
        attrs->has_bias && call->desc->in[i].shape.rank == 4 ? s.heads * s.n_queries * s.n_keys : 0;
    args.dbias = at_place(call, p.dbias);
    return args;
}

/* ---- launching ---- */

static sw_status run_places(const struct gpu_call *call, struct gpu_attention_args *args)
{
    if (args->places || args->bounds) {
        GPU_LAUNCH(call, attention_places, SW_GPU_PLAIN, ((struct gpu_grid){.x = args->batch}),
                   args);
    }
    return SW_OK;
}

static sw_status attention(const struct gpu_call *call)
{
    static const struct {
        enum sw_gpu_kernel_id id;
        size_t shared[2]; /* elements of 2 and of 4 bytes */
    } kernels[] = {
        {GPU_attention_64, {GPU_ATTENTION_SHARED(64, 2), GPU_ATTENTION_SHARED(64, 4)}},
        {GPU_attention_128, {GPU_ATTENTION_SHARED(128, 2), GPU_ATTENTION_SHARED(128, 4)}},
        {GPU_attention_256, {GPU_ATTENTION_SHARED(256, 2), GPU_ATTENTION_SHARED(256, 4)}},
    };
    const enum sw_dtype dtype = call->desc->in[0].dtype;
    struct gpu_attention_args args = args_of(call, 0);
    const int class = class_of(args.width);
    const int64_t rows =
        GPU_ATTENTION_GROUP * (args.n_queries <= GPU_ATTENTION_GROUP ? 1 : GPU_ATTENTION_WARPS);
    args.o = heads_of(&call->desc->out[0], call->out[0], 0, args.width);
    args.lse = call->out[1];
    SW_TRY(run_places(call, &args));
    const struct gpu_grid grid = {.x = sw_ceil_div(args.n_queries, rows) * args.heads * args.batch};
    return sw_gpu_run_kernel(call, kernels[class].id, sw_gpu_type_of(dtype), grid,
                             kernels[class].shared[dtype == SW_F32], &args, sizeof args);
}
const struct gpu_op sw_gpu_attention = {.query = attention_query, .run = attention};

/* Zeroes dbias: pairs that no query sees have no gradient. */
static sw_status clear_dbias(const struct gpu_call *call, const struct gpu_attention_args *args)
{
    const int64_t n = (int64_t)args->batch * args->heads * args->n_queries * args->n_keys;
    return sw_gpu_clear(call, NULL, args->dbias, n);
}

/* Sums dbias over the samples that share the bias. */
static sw_status finish_dbias(const struct gpu_call *call, const struct gpu_attention_args *args)
{
    const struct sw_view *dbias = bias_gradient(call->desc);
    const int64_t n = (int64_t)args->heads * args->n_queries * args->n_keys;
    void *y = call->out[sw_attention_bias_output(&call->desc->op->attrs.attention)];
    const bool shared = args->bias_batch == 0;
    return sw_gpu_add_in_order(call, args->dbias, shared ? args->batch : 1,
                               shared ? n : n * args->batch, y, dbias->dtype);
}

static sw_status attention_grad(const struct gpu_call *call)
{
    static const struct {
        enum sw_gpu_kernel_id keys, queries;
        int rows, slices;
        size_t shared[2];
    } kernels[] = {
#define ROW(D)                                                                                     \
    {                                                                                              \
        GPU_attention_keys_##D, GPU_attention_queries_##D,                                         \
            GPU_ATTENTION_GROUP *GPU_ATTENTION_GRAD_WARPS(D), (D) / GPU_ATTENTION_GRAD_COLS(D),    \
        {                                                                                          \
            GPU_ATTENTION_GRAD_SHARED(D, 2), GPU_ATTENTION_GRAD_SHARED(D, 4)                       \
        }                                                                                          \
    }
        ROW(64), ROW(128), ROW(256)};
#undef ROW
    const enum sw_dtype dtype = call->desc->in[3].dtype;
    const enum sw_gpu_type type = sw_gpu_type_of(dtype);
    struct gpu_attention_args args = args_of(call, 3);
    const struct shape s = shape_of(call->desc, 3);
    const int class = class_of(args.width);
    const size_t shared = kernels[class].shared[dtype == SW_F32];
    args.d_o = heads_of(&call->desc->in[0], call->in[0], 0, args.width);
    args.o = heads_of(&call->desc->in[1], call->in[1], 0, args.width);
    args.lse = call->in[2];
    place_heads(&call->desc->op->attrs.attention, &s, call->desc->out, call->out, &args.dq,
                &args.dk, &args.dv);
    SW_TRY(run_places(call, &args));
    const int64_t n_rows = s.batch * s.heads * s.n_queries;
    GPU_LAUNCH(call, attention_delta, type, sw_gpu_grid_for(n_rows, 32), &args);
    if (args.dk.x || args.dv.x) {
        const int64_t tiles = sw_ceil_div(args.n_keys, kernels[class].rows);
        const struct gpu_grid grid = {.x = tiles * args.kv_heads * args.batch *
                                           kernels[class].slices};
        SW_TRY(
            sw_gpu_run_kernel(call, kernels[class].keys, type, grid, shared, &args, sizeof args));
    }
    if (args.dbias) {
        SW_TRY(clear_dbias(call, &args));
    }
    if (args.dq.x || args.dbias) {
        const int64_t tiles = sw_ceil_div(args.n_queries, kernels[class].rows);
        const struct gpu_grid grid = {.x = tiles * args.heads * args.batch * kernels[class].slices};
        SW_TRY(sw_gpu_run_kernel(call, kernels[class].queries, type, grid, shared, &args,
                                 sizeof args));
    }
    return args.dbias ? finish_dbias(call, &args) : SW_OK;
}
const struct gpu_op sw_gpu_attention_grad = {.query = attention_grad_query, .run = attention_grad};
