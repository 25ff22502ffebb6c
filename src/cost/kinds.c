// SPDX-License-Identifier: Apache-2.0
// Which ranks of a mesh do the same at the same time. At first, a kind is the ranks of a stage that
// have equally many micro-batches. Then kinds are split until all ranks of one have peers of the
// same kinds in each group, equally near, and share links, disks and hosts with equally many ranks
// of each kind. One rank of each kind then stands for all.
#include "cost/private.h"

struct split {
    const struct sw_clock_rank *stages;
    const struct sw_cost_mesh *mesh;
    struct sw_mesh axes;
    struct sw_cost_kinds *kinds;
    int n_stages;
    int *members;   /* [ranks] of a group */
    uint64_t *mark; /* [ranks] what tells a rank from others of its kind */
};

static int stage_of(const struct split *s, int rank)
{
    return (int)((int64_t)rank * s->n_stages / s->kinds->n_ranks);
}

static uint64_t mix(uint64_t a, uint64_t b)
{
    return sw_philox_u64(a, 0, b);
}

/* Ranks of the node of `rank` that share a thing with it which so many devices share. */
static int first_sharer(const struct split *s, int rank, int64_t sharers, int *end)
{
    const int devices = (int)s->mesh->cluster->node.devices.value;
    const int node = rank / devices * devices, at = rank - node;
    const int each = (int)sw_max_i64(1, sharers), first = node + at / each * each;
    *end = (int)sw_min_i64(sw_min_i64(first + each, node + devices), s->kinds->n_ranks);
    return first;
}

/* The kinds of the ranks with which a rank shares something. */
static uint64_t mark_sharers(const struct split *s, int rank)
{
    uint64_t mark = 0;
    for (int k = SW_SHARER_SWITCH; k <= SW_SHARER_NODE; k++) {
        int end;
        const int64_t n = sw_cluster_sharers(s->mesh->cluster, (enum sw_sharer)k);
        uint64_t sum = 0;
        for (int i = first_sharer(s, rank, n, &end); i < end; i++) {
            sum += mix((uint64_t)k, (uint64_t)s->kinds->of[i]);
        }
        mark = mix(mark, sum);
    }
    return mark;
}

/* The kinds of its peers in each group. All have the same world. */
static uint64_t mark_peers(const struct split *s, int rank)
{
    const struct sw_plan *plan = s->stages[stage_of(s, rank)].plan;
    const int64_t home = sw_cost_node_of(s->mesh, rank);
    uint64_t mark = 0;
    for (int g = SW_GROUP_WORLD + 1; g < plan->n_groups; g++) {
        const struct sw_group group = sw_plan_group_of_rank(plan, &s->axes, g, rank, s->members);
        uint64_t sum = 0;
        for (int i = 0; i < group.n; i++) {
            const bool near = sw_cost_node_of(s->mesh, group.ranks[i]) == home;
            sum += mix(near, (uint64_t)s->kinds->of[group.ranks[i]]);
        }
        mark = mix(mark, sum);
    }
    return mark;
}

/* Gives ranks with equal marks one kind, numbered by their first ranks. false: there are more than
 * `most` */
static bool number_kinds(const struct split *s, int most)
{
    struct sw_cost_kinds *kinds = s->kinds;
    kinds->n = 0;
    for (int i = 0; i < kinds->n_ranks; i++) {
        int k = 0;
        while (k < kinds->n && s->mark[kinds->first[k]] != s->mark[i]) {
            k++;
        }
        if (k == most) {
            return false;
        }
        if (k == kinds->n) {
            kinds->first[kinds->n++] = i;
        }
        kinds->of[i] = k;
    }
    return true;
}

/* Marks ranks by their stages and micro-batches. */
static void mark_all(const struct split *s)
{
    for (int i = 0; i < s->kinds->n_ranks; i++) {
        const int stage = stage_of(s, i);
        const struct sw_plan *plan = s->stages[stage].plan;
        s->mark[i] = mix((uint64_t)stage, (uint64_t)sw_plan_rounds_of_rank(plan, &s->axes, i));
    }
}

/* Splits kinds until each has equal ranks. false: there would be too many */
static bool split_kinds(const struct split *s)
{
    struct sw_cost_kinds *kinds = s->kinds;
    const int most = 4 * s->n_stages + 16;
    int before = 0;
    bool few = true;
    while (few && before < kinds->n) {
        before = kinds->n;
        for (int i = 0; i < kinds->n_ranks; i++) {
            s->mark[i] = mix(mix((uint64_t)kinds->of[i], mark_sharers(s, i)), mark_peers(s, i));
        }
        few = number_kinds(s, most);
    }
    return few;
}

static void find_kinds(const struct split *s, bool each)
{
    struct sw_cost_kinds *kinds = s->kinds;
    for (int i = 0; i < kinds->n_ranks && each; i++) {
        kinds->of[i] = kinds->first[i] = i;
    }
    kinds->n = kinds->n_ranks;
    if (!each) {
        mark_all(s);
        number_kinds(s, kinds->n_ranks);
        kinds->is_rough = !split_kinds(s);
        if (kinds->is_rough) {
            mark_all(s);
            number_kinds(s, kinds->n_ranks);
        }
    }
}

/* Finds what the first rank of a kind shares. If kinds are rough, it is taken to share with ranks
 * like itself. */
static void find_shared(const struct split *s, int kind, struct sw_shared *out)
{
    const struct sw_cost_kinds *kinds = s->kinds;
    for (int t = 0; t < sw_cost_n_things(s->mesh->cluster); t++) {
        int end, n = 0, least = kind;
        const int64_t sharers = sw_cost_sharers(s->mesh->cluster, t);
        for (int i = first_sharer(s, kinds->first[kind], sharers, &end); i < end; i++) {
            n += kinds->of[i] == kind || kinds->is_rough;
            least = kinds->of[i] < least && !kinds->is_rough ? kinds->of[i] : least;
        }
        out[t] = (struct sw_shared){t * kinds->n + least, n};
    }
}

sw_status sw_cost_open_kinds(const struct sw_clock_rank *stages, int n, bool each,
                             const struct sw_cost_mesh *mesh, struct sw_cost_kinds *out)
{
    struct sw_cost_kinds kinds = {.n_ranks = stages[0].plan->groups[SW_GROUP_WORLD].n};
    const size_t ranks = (size_t)kinds.n_ranks;
    struct split s = {.stages = stages,
                      .mesh = mesh,
                      .axes = sw_plan_mesh(stages[0].plan),
                      .kinds = &kinds,
                      .n_stages = n,
                      .members = sw_alloc("cost", ranks * sizeof *s.members),
                      .mark = sw_alloc("cost", ranks * sizeof *s.mark)};
    kinds.of = sw_alloc("cost", ranks * sizeof *kinds.of);
    kinds.first = sw_alloc("cost", ranks * sizeof *kinds.first);
    bool good = s.members && s.mark && kinds.of && kinds.first;
    if (good) {
        find_kinds(&s, each);
        const size_t things = (size_t)sw_cost_n_things(mesh->cluster);
        kinds.shared = sw_alloc("cost", (size_t)kinds.n * things * sizeof *kinds.shared);
        for (int k = 0; k < kinds.n && kinds.shared; k++) {
            find_shared(&s, k, &kinds.shared[(size_t)k * things]);
        }
        good = kinds.shared != NULL;
    }
    sw_free(s.members);
    sw_free(s.mark);
    if (!good) {
        sw_cost_close_kinds(&kinds);
        return SW_FAIL(SW_E_NOMEM, "out of host memory for the ranks of a step");
    }
    *out = kinds;
    return SW_OK;
}

void sw_cost_close_kinds(struct sw_cost_kinds *kinds)
{
    sw_free(kinds->of);
    sw_free(kinds->first);
    sw_free(kinds->shared);
}
