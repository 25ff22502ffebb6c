// SPDX-License-Identifier: Apache-2.0
// The features that an axis of the mesh does not support. Each is a row with what works instead;
// to support one, remove its row. Plans refuse features of models and schedules themselves.
#include "engine/private.h"

struct refusal {
    enum sw_axis axis;
    bool (*asks)(const struct sw_engine *e);
    const char *what, *instead;
};

static bool keeps_gradients(const struct sw_engine *e)
{
    return e->options.train.keep_gradients;
}

static const struct refusal refusals[] = {
    {SW_AXIS_CONTEXT, keeps_gradients,
     "a rank has the gradient of its tokens only (train.keep_gradients)", "ranks along data"},
    {SW_AXIS_PIPE, keeps_gradients,
     "stages keep no gradients of one micro-batch (train.keep_gradients)", "ranks along data"},
    {SW_AXIS_TENSOR, keeps_gradients,
     "a rank has the gradient of its part of a parameter only (train.keep_gradients)",
     "ranks along data"},
};

sw_status sw_engine_check_mesh(const struct sw_engine *e)
{
    for (size_t i = 0; i < SW_LEN(refusals); i++) {
        const struct refusal *r = &refusals[i];
        const int size = sw_mesh_size(&e->mesh, 1U << r->axis);
        if (size > 1 && r->asks(e)) {
            return SW_FAIL(SW_E_UNSUP, "spillway.mesh.%s %d: %s; %s work", sw_axis_name(r->axis),
                           size, r->what, r->instead);
        }
    }
    return SW_OK;
}
