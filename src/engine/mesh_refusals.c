// SPDX-License-Identifier: Apache-2.0
// The features that an axis of the mesh does not support. Plans refuse features of models and
// schedules themselves.
#include "engine/private.h"

sw_status sw_engine_check_mesh(const struct sw_engine *e)
{
    static const struct {
        enum sw_axis axis;
        const char *why; /* it keeps no gradients */
    } refusals[] = {
        {SW_AXIS_CONTEXT, "a rank has the gradient of its tokens only"},
        {SW_AXIS_PIPE, "stages keep no gradients of one micro-batch"},
        {SW_AXIS_TENSOR, "a rank has the gradient of its part of a parameter only"},
    };
    for (size_t i = 0; i < SW_LEN(refusals) && e->options.train.keep_gradients; i++) {
        const int size = sw_mesh_size(&e->mesh, 1U << refusals[i].axis);
        if (size > 1) {
            return SW_FAIL(SW_E_UNSUP,
                           "spillway.mesh.%s %d: %s (train.keep_gradients); ranks along data work",
                           sw_axis_name(refusals[i].axis), size, refusals[i].why);
        }
    }
    return SW_OK;
}
