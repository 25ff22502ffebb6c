// SPDX-License-Identifier: Apache-2.0
// Looks kernels up among those that were measured.
#include "cost/private.h"

static void add(const struct sw_view *view, struct sw_shape *shapes, struct sw_cluster_kernel *like,
                bool *has_dtype)
{
    if (view->shape.rank < 0) {
        return;
    }
    shapes[like->n_shapes++] = view->shape;
    if (!*has_dtype && sw_dtype_is_float(view->dtype)) {
        like->dtype = view->dtype;
        *has_dtype = true;
    }
}

double sw_cost_measured(const struct sw_cluster *cluster, const struct sw_program *program,
                        int32_t i)
{
    struct sw_shape shapes[SW_MAX_INPUTS + SW_MAX_OUTPUTS];
    struct sw_cluster_kernel like = {.shapes = shapes};
    struct sw_op op;
    struct sw_op_desc desc;
    bool has_dtype = false;
    if (cluster->device.n_kernels == 0) {
        return 0;
    }
    sw_program_describe(program, i, &op, &desc);
    like.op = sw_op_name(desc.op);
    for (int k = 0; k < desc.op->n_in; k++) {
        add(&desc.in[k], shapes, &like, &has_dtype);
    }
    for (int k = 0; k < desc.op->n_out; k++) {
        add(&desc.out[k], shapes, &like, &has_dtype);
    }
    return sw_cluster_kernel_seconds(cluster, &like);
}
