// SPDX-License-Identifier: Apache-2.0
// GATED_ACT and GATED_ACT_GRAD. The items are runs of elements.
#include "device/cpu/fast.h"

enum { RUN_ELEMS = 8192 };

struct gate_job {
    const struct cpu_vector *vector;
    struct cpu_gate gate;
    int64_t n;
};

static void gate_query(const struct cpu_device *dev, const struct sw_op_desc *desc,
                       struct sw_kernel_info *out)
{
    out->supported = sw_cpu_are_alike(desc, desc->op->n_out);
    out->path = sw_cpu_vector_for(dev->isa)->name;
}

static void gate_item(void *ctx, int64_t i_item, int i_worker)
{
    const struct gate_job *job = ctx;
    const int64_t first = i_item * RUN_ELEMS;
    (void)i_worker;
    job->vector->gate(&job->gate, first, sw_min_i64(RUN_ELEMS, job->n - first));
}

static void gate_run(const struct cpu_call *call)
{
    const struct sw_op_desc *desc = call->desc;
    struct gate_job job = {.vector = call->prepared,
                           .n = sw_shape_elems(&desc->in[0].shape),
                           .gate = {.dtype = desc->in[0].dtype, .act = desc->op->attrs.act.act}};
    if (desc->op->kind == SW_OP_GATED_ACT) {
        job.gate.gate = call->in[0];
        job.gate.up = call->in[1];
        job.gate.y = call->out[0];
    } else {
        job.gate.dy = call->in[0];
        job.gate.gate = call->in[1];
        job.gate.up = call->in[2];
        job.gate.dgate = cpu_has_output(desc, 0) ? call->out[0] : NULL;
        job.gate.dup = cpu_has_output(desc, 1) ? call->out[1] : NULL;
    }
    sw_pool_run(call->pool, sw_ceil_div(job.n, RUN_ELEMS), gate_item, &job);
}

const struct cpu_kernel sw_cpu_gate = {.name = "fast",
                                       .query = gate_query,
                                       .prepare = sw_cpu_prepare_vector,
                                       .release = sw_cpu_release_nothing,
                                       .run = gate_run};
