// SPDX-License-Identifier: Apache-2.0
// Plans the first rank of each stage of a pipeline. The other ranks of a stage hold and send as
// much, so these stand for all ranks of a mesh.
#include "engine/private.h"

/* Opens a rank for its plan. The communicator of the rank exchanges nothing. */
static sw_status open_rank(const struct sw_engine_options *options, int rank, int ranks,
                           struct sw_plan_refusal *refusal, struct sw_lined_rank *out)
{
    struct sw_engine_options o = *options;
    const struct sw_transport none = {.rank = rank, .size = ranks};
    o.plan.only = true;
    SW_TRY(sw_comm_open(&none, &o.run.comm));
    const sw_status st = sw_engine_try(&o, refusal, &out->engine);
    if (st < 0) {
        sw_comm_close(o.run.comm, true);
        return st;
    }
    out->comm = o.run.comm;
    out->rank = rank;
    return SW_OK;
}

sw_status sw_lineup_try(const struct sw_engine_options *options, int ranks,
                        struct sw_plan_refusal *refusal, struct sw_lineup *out)
{
    struct sw_lined_rank first = {0};
    *out = (struct sw_lineup){0};
    SW_TRY(open_rank(options, 0, ranks, refusal, &first));
    const int n = sw_mesh_size(&first.engine->mesh, 1U << SW_AXIS_PIPE);
    out->stages = sw_alloc_zero("engine", (size_t)n, sizeof *out->stages);
    sw_status st = out->stages ? SW_OK : SW_FAIL(SW_E_NOMEM, "out of host memory for plans");
    if (st < 0) {
        sw_close(first.engine);
        sw_comm_close(first.comm, true);
        return st;
    }
    out->stages[out->n++] = first;
    for (int s = 1; s < n && st >= 0; s++) { /* the pipe axis varies slowest */
        st = open_rank(options, s * (ranks / n), ranks, refusal, &out->stages[s]);
        out->n += st >= 0;
    }
    if (st < 0) {
        const int failed = out->n;
        st = refusal ? st : sw_fail_prefix(st, "stage %d of %d", failed, n);
        sw_lineup_close(out);
        out->n = failed;
    }
    return st;
}

sw_status sw_lineup_open(const struct sw_engine_options *options, int ranks, struct sw_lineup *out)
{
    return sw_lineup_try(options, ranks, NULL, out);
}

void sw_lineup_close(struct sw_lineup *lineup)
{
    for (int s = 0; s < lineup->n; s++) {
        sw_close(lineup->stages[s].engine);
        sw_comm_close(lineup->stages[s].comm, false);
    }
    sw_free(lineup->stages);
    *lineup = (struct sw_lineup){0};
}
