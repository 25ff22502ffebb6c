// SPDX-License-Identifier: Apache-2.0
// The groups of ranks of a plan. All ranks list the same groups in the same order, so that an index
// means the same to all of them.
#include "plan/private.h"

unsigned sw_zero_axes(const struct sw_mesh *mesh)
{
    static const unsigned more[] = {1U << SW_AXIS_EXPERT, 1U << SW_AXIS_CONTEXT};
    unsigned axes = 1U << SW_AXIS_DATA;
    for (size_t i = 0; i < SW_LEN(more); i++) {
        axes |= sw_mesh_size(mesh, more[i]) > 1 ? more[i] : 0;
    }
    return axes;
}

unsigned sw_local_axes(const struct sw_mesh *mesh)
{
    return sw_zero_axes(mesh) & ~(1U << SW_AXIS_EXPERT);
}

struct list {
    const struct sw_mesh *mesh;
    int me;
    struct sw_group *groups; /* NULL = count only */
    int *members;
    int n_groups;
    size_t n_members;
};

static void add(struct list *list, const struct sw_group *group)
{
    if (list->groups) {
        list->groups[list->n_groups] = *group;
    }
    list->n_groups++;
    list->n_members += (size_t)group->n;
}

/* All ranks along these axes. */
static void add_axes(struct list *list, unsigned axes)
{
    const struct sw_group room = {.n = sw_mesh_size(list->mesh, axes)};
    const struct sw_group group =
        list->groups ? sw_mesh_group(list->mesh, axes, list->me, list->members + list->n_members)
                     : room;
    add(list, &group);
}

/* True if n ranks of the tensor axis hold the same elements of some parameter. */
static bool is_shared(const struct sw_program_spec *specs, int n_specs, int ranks, int n)
{
    for (int i = 0; i < n_specs; i++) {
        const struct sw_graph *g = specs[i].graph;
        for (int32_t k = 0; k < g->n_parts; k++) {
            if (g->parts[k].of_experts) {
                continue;
            }
            const struct sw_layout layout = {
                .whole = g->parts[k].whole, .split = g->parts[k].split, .tensor.size = ranks};
            if (sw_layout_shares(&layout, n)) {
                return true;
            }
        }
    }
    return false;
}

/* The ranks that share a part, by their number. */
static void add_sharing(struct list *list, const struct sw_program_spec *specs, int n_specs)
{
    const int ranks = sw_mesh_size(list->mesh, 1U << SW_AXIS_TENSOR);
    for (int n = 2; n < ranks; n++) {
        if (ranks % n == 0 && is_shared(specs, n_specs, ranks, n)) {
            const struct sw_group room = {.n = n};
            const struct sw_group group =
                list->groups ? sw_mesh_some(list->mesh, SW_AXIS_TENSOR, n, list->me,
                                            list->members + list->n_members)
                             : room;
            add(list, &group);
        }
    }
}

static void list_groups(struct list *list, const struct sw_program_spec *specs, int n_specs)
{
    list->n_groups = 0;
    list->n_members = 0;
    add_axes(list, SW_ALL_AXES);              /* SW_GROUP_WORLD */
    add_axes(list, sw_zero_axes(list->mesh)); /* SW_GROUP_DATA */
    for (int axis = 0; axis < SW_AXIS_COUNT; axis++) {
        /* the data axis: ranks that have the same experts, if SW_GROUP_DATA has others, too */
        const unsigned axes = axis == SW_AXIS_DATA ? sw_local_axes(list->mesh) : 1U << axis;
        const bool is_listed = axis == SW_AXIS_DATA && axes == sw_zero_axes(list->mesh);
        if (!is_listed && sw_mesh_size(list->mesh, axes) > 1) {
            add_axes(list, axes);
        }
    }
    add_sharing(list, specs, n_specs);
}

sw_status sw_plan_open_groups(struct sw_plan *plan, const struct sw_program_spec *specs,
                              int n_specs, const struct sw_plan_options *options)
{
    struct list list = {.mesh = &options->mesh, .me = options->me};
    list_groups(&list, specs, n_specs);
    plan->groups = sw_alloc_zero("plan", (size_t)list.n_groups, sizeof *plan->groups);
    SW_TRY_ALLOC(plan->groups, "the plan");
    plan->members = sw_alloc("plan", list.n_members * sizeof *plan->members);
    SW_TRY_ALLOC(plan->members, "the plan");
    list.groups = plan->groups;
    list.members = plan->members;
    list_groups(&list, specs, n_specs);
    plan->n_groups = list.n_groups;
    return SW_OK;
}

int sw_plan_group(const struct sw_plan *plan, unsigned axes)
{
    int g = 0;
    while (g < plan->n_groups && (plan->groups[g].axes != axes || plan->groups[g].of > 0)) {
        g++;
    }
    return g < plan->n_groups ? g : -1;
}

int sw_plan_group_of(const struct sw_plan *plan, enum sw_axis axis, int n, int me)
{
    int g = 0;
    while (g < plan->n_groups && (plan->groups[g].axes != 1U << axis || plan->groups[g].n != n ||
                                  plan->groups[g].me != me)) {
        g++;
    }
    return g < plan->n_groups ? g : -1;
}
