// SPDX-License-Identifier: Apache-2.0
// What one rank's plan says about the other ranks of its stage: their groups, and the micro-batches
// that they have.
#include <string.h>

#include "plan/query.h"

struct sw_mesh sw_plan_mesh(const struct sw_plan *plan)
{
    struct sw_mesh mesh = {{0}};
    for (int g = SW_GROUP_DATA; g < plan->n_groups; g++) {
        const struct sw_group *group = &plan->groups[g];
        for (int axis = 0; axis < SW_AXIS_COUNT; axis++) {
            if (group->axes == 1U << axis && group->of == 0) {
                mesh.size[axis] = group->n;
            }
        }
    }
    /* the group of data has the axis of context, too; the rest of the world is along data */
    mesh.size[SW_AXIS_DATA] = 0;
    mesh.size[SW_AXIS_DATA] = plan->groups[SW_GROUP_WORLD].n / sw_mesh_ranks(&mesh);
    return mesh;
}

struct sw_group sw_plan_group_of_rank(const struct sw_plan *plan, const struct sw_mesh *mesh,
                                      int group, int rank, int *ranks)
{
    const struct sw_group *like = &plan->groups[group];
    return like->of > 0 ? sw_mesh_some(mesh, SW_AXIS_TENSOR, like->n, rank, ranks)
                        : sw_mesh_group(mesh, like->axes, rank, ranks);
}

int64_t sw_plan_rounds_of_rank(const struct sw_plan *plan, const struct sw_mesh *mesh, int rank)
{
    const struct sw_coord at = sw_mesh_coord(mesh, SW_BATCH_AXES, rank);
    const struct sw_step *step = &plan->step;
    return step->ranks > 0 ? (step->micro_batches - at.rank + step->ranks - 1) / step->ranks : 0;
}

/* Leaves out the micro-batches of a phase that the rank lacks. */
static void cut_phases(struct sw_step *step, int64_t rounds)
{
    for (int32_t i = 0; i < step->n_phases; i++) {
        struct sw_step_phase *phase = &step->phases[i];
        const int64_t left = sw_max_i64(0, rounds - phase->round);
        phase->n_micro = (int)sw_min_i64(phase->n_micro, left);
    }
}

static sw_status fill(const struct sw_plan *plan, int rank, struct sw_plan *out)
{
    const struct sw_mesh mesh = sw_plan_mesh(plan);
    const size_t n_phases = (size_t)plan->step.n_phases + (size_t)plan->step.n_settling;
    size_t n_members = 0;
    for (int g = 0; g < plan->n_groups; g++) {
        n_members += (size_t)plan->groups[g].n;
    }
    out->groups = sw_alloc_zero("plan", (size_t)plan->n_groups, sizeof *out->groups);
    SW_TRY_ALLOC(out->groups, "the plan of a rank");
    out->members = sw_alloc("plan", n_members * sizeof *out->members);
    SW_TRY_ALLOC(out->members, "the plan of a rank");
    out->step.phases = sw_alloc("plan", (n_phases + 1) * sizeof *out->step.phases);
    SW_TRY_ALLOC(out->step.phases, "the plan of a rank");
    int *members = out->members;
    for (int g = 0; g < plan->n_groups; g++) {
        out->groups[g] = sw_plan_group_of_rank(plan, &mesh, g, rank, members);
        members += out->groups[g].n;
    }
    if (n_phases > 0) {
        memcpy(out->step.phases, plan->step.phases, n_phases * sizeof *out->step.phases);
        cut_phases(&out->step, sw_plan_rounds_of_rank(plan, &mesh, rank));
    }
    return SW_OK;
}

sw_status sw_plan_open_like(const struct sw_plan *plan, int rank, struct sw_plan **out)
{
    struct sw_plan *like = sw_alloc("plan", sizeof *like);
    SW_TRY_ALLOC(like, "the plan of a rank");
    *like = *plan;
    like->groups = NULL;
    like->members = NULL;
    like->step.phases = NULL;
    const sw_status st = fill(plan, rank, like);
    if (st < 0) {
        sw_plan_close_like(like);
        return st;
    }
    *out = like;
    return SW_OK;
}

void sw_plan_close_like(struct sw_plan *plan)
{
    if (plan) {
        sw_free(plan->groups);
        sw_free(plan->members);
        sw_free(plan->step.phases);
    }
    sw_free(plan);
}
