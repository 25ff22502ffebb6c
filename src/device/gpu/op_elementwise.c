// SPDX-License-Identifier: Apache-2.0
// Ops whose output elements depend only on the input elements at the same position.
#include "device/gpu/gpu.h"
#include "device/gpu/module/args_act.h"

#define SAME_NUMBER(name)                                                                          \
    _Static_assert((int)SW_GPU_ACT_##name == SW_ACT_##name,                                        \
                   "kernels number activations as the graph does");
SW_GPU_ACTS(SAME_NUMBER)

enum { THREADS = 256, PACK = 4 }; /* least elements per thread */

/* All inputs have one float type, all outputs have one. */
static void query(const struct gpu_device *dev, const struct sw_op_desc *desc,
                  struct sw_kernel_info *out)
{
    (void)dev;
    out->supported = sw_gpu_all_floats(desc->in, desc->op->n_in) &&
                     sw_gpu_all_floats(desc->out, desc->op->n_out) &&
                     (desc->op->kind != SW_OP_DROPOUT || desc->in[0].dtype == desc->out[0].dtype);
}

static struct gpu_map_args map_args(const struct gpu_call *call)
{
    const struct sw_op_desc *desc = call->desc;
    struct gpu_map_args args = {.n = gpu_elems(&desc->in[0])};
    for (int k = 0; k < desc->op->n_in; k++) {
        args.in[k] = call->in[k];
    }
    for (int k = 0; k < desc->op->n_out; k++) {
        args.out[k] = call->out[k];
        if (args.out[k]) {
            args.out_type = (int)sw_gpu_type_of(desc->out[k].dtype);
        }
    }
    return args;
}

static sw_status map(const struct gpu_call *call, enum sw_gpu_kernel_id id,
                     struct gpu_map_args *args)
{
    return sw_gpu_run_kernel(call, id, sw_gpu_type_of(call->desc->in[0].dtype),
                             sw_gpu_grid_for(sw_ceil_div(args->n, PACK), THREADS), 0, args,
                             sizeof *args);
}

static sw_status add(const struct gpu_call *call)
{
    struct gpu_map_args args = map_args(call);
    args.n_b = gpu_elems(&call->desc->in[1]);
    return map(call, GPU_add, &args);
}
const struct gpu_op sw_gpu_add = {.query = query, .run = add};

static sw_status scale(const struct gpu_call *call)
{
    struct gpu_map_args args = map_args(call);
    args.factor = (float)call->desc->op->attrs.scale.factor;
    return map(call, GPU_scale, &args);
}
const struct gpu_op sw_gpu_scale = {.query = query, .run = scale};

static sw_status cast(const struct gpu_call *call)
{
    struct gpu_map_args args = map_args(call);
    return map(call, GPU_cast, &args);
}
const struct gpu_op sw_gpu_cast = {.query = query, .run = cast};

static sw_status mul(const struct gpu_call *call)
{
    struct gpu_map_args args = map_args(call);
    args.n_b = gpu_elems(&call->desc->in[1]);
    return map(call, GPU_mul, &args);
}
const struct gpu_op sw_gpu_mul = {.query = query, .run = mul};

static sw_status activation(const struct gpu_call *call)
{
    struct gpu_map_args args = map_args(call);
    args.act = (int)call->desc->op->attrs.act.act;
    switch (call->desc->op->kind) {
    case SW_OP_ACT:
        return map(call, GPU_act, &args);
    case SW_OP_ACT_GRAD:
        return map(call, GPU_act_grad, &args);
    case SW_OP_GATED_ACT:
        return map(call, GPU_gated_act, &args);
    default:
        return map(call, GPU_gated_act_grad, &args);
    }
}
const struct gpu_op sw_gpu_activation = {.query = query, .run = activation};

/* A part consists of whole draws, each of four elements. */
static void query_dropout(const struct gpu_device *dev, const struct sw_op_desc *desc,
                          struct sw_kernel_info *out)
{
    const struct sw_dropout_attrs *attrs = &desc->op->attrs.dropout;
    const struct sw_dropout_cut *outer = &attrs->outer;
    const int64_t all = attrs->part | attrs->whole | attrs->first | attrs->sample | outer->part |
                        outer->whole | outer->first;
    query(dev, desc, out);
    out->supported &= all % 4 == 0;
}

static sw_status dropout(const struct gpu_call *call)
{
    const struct sw_view *x = &call->desc->in[0];
    const struct sw_dropout_attrs *attrs = &call->desc->op->attrs.dropout;
    const int64_t elems = gpu_elems(x), first_dim = x->shape.rank > 0 ? x->shape.dims[0] : 1;
    if (elems == 0) {
        return SW_OK;
    }
    const bool is_part = attrs->part > 0;
    const int64_t n = is_part ? sw_min_i64(attrs->part, attrs->sample) : elems / first_dim;
    const int64_t batch = is_part ? sw_dropout_batch(attrs, elems) : first_dim;
    struct gpu_dropout_args args = {.x = call->in[0],
                                    .y = call->out[0],
                                    .n = n,
                                    .runs = elems / n,
                                    .part = attrs->part,
                                    .whole = attrs->whole,
                                    .first = attrs->first,
                                    .sample = attrs->sample,
                                    .outer_part = attrs->outer.part,
                                    .outer_whole = attrs->outer.whole,
                                    .outer_first = attrs->outer.first,
                                    .factor = (float)(1 / (1 - attrs->p)),
                                    .draw = sw_gpu_draw_args(call, attrs->p, batch)};
    GPU_LAUNCH(call, dropout, sw_gpu_type_of(x->dtype),
               sw_gpu_grid_for(sw_ceil_div(n, PACK) * args.runs, THREADS), &args);
    return SW_OK;
}
const struct gpu_op sw_gpu_dropout = {.query = query_dropout, .run = dropout};
