// SPDX-License-Identifier: Apache-2.0
// The mesh of an engine: ranks along axes, as the configuration divides them. All ranks together
// (the world) agree on failures, devices and algorithms. The coordinate along the data axis says
// which micro-batches and which slices a rank has; ranks that differ along other axes only have the
// same ones.
#include <limits.h>

#include "engine/private.h"

struct axis {
    const char *key;
    enum sw_axis axis;
    int64_t size;
};
enum { N_CUTS = 3 };

/* The axes that the configuration gives sizes of. */
static void list_cuts(const struct sw_engine *e, struct axis out[N_CUTS])
{
    const struct sw_parallel_config *p = &e->config->parallel;
    out[0] = (struct axis){"spillway.mesh.pipe", SW_AXIS_PIPE, p->pipe};
    out[1] = (struct axis){"spillway.mesh.tensor", SW_AXIS_TENSOR, p->tensor};
    out[2] = (struct axis){"spillway.mesh.context", SW_AXIS_CONTEXT, p->context};
}

sw_status sw_engine_check_mesh(const struct sw_engine *e)
{
    struct axis cuts[N_CUTS];
    list_cuts(e, cuts);
    for (int i = 0; i < N_CUTS && !e->any_mesh; i++) {
        if (cuts[i].size > 1) {
            return SW_FAIL(
                SW_E_UNSUP,
                "%s %lld: not built yet in this version; ranks along the data axis work, with ZeRO "
                "stage 3 and offloading for models that are too large for one rank",
                cuts[i].key, (long long)cuts[i].size);
        }
    }
    return SW_OK;
}

/* The number of ranks is not a multiple of the product of the sizes. */
static sw_status refuse_sizes(const struct sw_engine *e, int64_t cuts)
{
    const struct sw_parallel_config *p = &e->config->parallel;
    return SW_FAIL(
        SW_E_CONFIG,
        "spillway.mesh: pipe %lld x tensor %lld x context %lld do not make up %d ranks; "
        "wanted a multiple of %lld ranks, as the other ranks form the data axis, or sizes "
        "whose product divides %d",
        (long long)p->pipe, (long long)p->tensor, (long long)p->context, e->world.size,
        (long long)cuts, e->world.size);
}

sw_status sw_engine_take_mesh(struct sw_engine *e)
{
    struct axis cuts[N_CUTS];
    int size[SW_AXIS_COUNT] = {1, 1, 1, 1, 1};
    int64_t product = 1;
    SW_TRY(sw_engine_check_mesh(e));
    list_cuts(e, cuts);
    for (int i = 0; i < N_CUTS; i++) {
        if (!sw_mul_i64(product, cuts[i].size, &product) || product > INT_MAX) {
            return SW_FAIL(SW_E_CONFIG, "%s %lld: the mesh has more than %d ranks", cuts[i].key,
                           (long long)cuts[i].size, INT_MAX);
        }
        size[cuts[i].axis] = (int)cuts[i].size;
    }
    if (e->world.size % product != 0) {
        return refuse_sizes(e, product);
    }
    size[SW_AXIS_DATA] = (int)(e->world.size / product);
    SW_TRY(sw_mesh_init(&e->mesh, size, e->world.size));
    e->data = sw_mesh_coord(&e->mesh, 1U << SW_AXIS_DATA, e->world.rank);
    return SW_OK;
}

int sw_engine_batch_ranks(const struct sw_engine *e)
{
    const int64_t asked = e->options.run.batch_ranks;
    const int cuts = sw_mesh_size(&e->mesh, SW_ALL_AXES & ~(1U << SW_AXIS_DATA));
    return asked > 0 ? (int)sw_ceil_div(asked, cuts) : e->data.size;
}
