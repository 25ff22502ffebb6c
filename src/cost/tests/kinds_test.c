// SPDX-License-Identifier: Apache-2.0
// Ranks that do the same are walked as one: the times are those of a walk of all ranks, each with
// the plan that it makes for itself.
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cost/private.h"
#include "support/plans.h"
#include "support/test.h"
#include "support/towers.h"

enum { MOST_RANKS = 16, MOST_STAGES = 8, BLOCKS = 8 };

struct test_mesh {
    int pipe, data, micro_batches;
    bool offloads; /* states are on the disk, and gradients on the host */
    enum sw_step_schedule schedule;
};

static struct sw_plan *plan_of(const struct test_mesh *m, int me)
{
    int bounds[MOST_STAGES + 1];
    struct sw_plan *plan = NULL;
    const struct test_tower tower = {
        .graph = {.dtype = SW_F32, .grad_dtype = SW_F32, .training = true},
        .blocks = BLOCKS,
        .batch = 4,
        .tokens = 16,
        .vocab = 8,
        .width = 64,
        .inner = 256,
        .std = 0.1};
    const struct sw_program_spec spec = {SW_PROGRAM_TRAIN, test_tower(&tower)};
    const struct sw_plan_options options = {
        .device = {test_query, NULL},
        .policy = {.micro_batches = m->micro_batches,
                   .schedule = m->schedule,
                   .chunks = 1,
                   .states_tier = m->offloads ? SW_TIER_DISK : SW_TIER_DEVICE,
                   .grads_tier = m->offloads ? SW_TIER_HOST : SW_TIER_DEVICE,
                   .transfer_bytes = 1 << 16,
                   .prefetch_elems = 1 << 14,
                   .stage = m->data > 1 ? 2 : 0},
        .limits = {.reduce_bucket_elems = 1 << 14, .allgather_bucket_elems = 1 << 14},
        .overlap = true,
        .clip = 1,
        .rule = &test_adam,
        .kernel_set = "test",
        .mesh.size = {[SW_AXIS_PIPE] = m->pipe, [SW_AXIS_DATA] = m->data},
        .me = me,
        .stage_blocks = bounds};
    sw_partition_uniform(BLOCKS, m->pipe, bounds);
    if (plan_once(&spec, 1, &options, &plan) < 0) {
        fail_msg("%s", sw_error_message());
    }
    return plan;
}

/* Devices per node, and per switch and adapter. */
struct shape {
    int devices, per_switch, per_nic;
};

/* A cluster of V100 with slow devices and links, so that kernels, copies, the disk and exchanges
 * each take a part of a step. */
static struct sw_cluster *cluster_of(const struct shape *shape)
{
    struct sw_cluster *c = NULL;
    assert_int_equal(sw_cluster_open("dgx2-v100", &c), SW_OK);
    c->node.devices.value = shape->devices;
    c->node.devices_per_switch.value = shape->per_switch;
    c->node.devices_per_nic.value = shape->per_nic;
    for (int d = 0; d < SW_CLUSTER_DTYPES; d++) {
        c->device.peak[d].value /= 500;
    }
    for (int i = 0; i < c->n_links; i++) {
        c->links[i].rate.value /= c->links[i].joint == SW_JOINT_NODES ? 20 : 50;
    }
    c->disks[0].read.value = c->disks[0].write.value = 1e9;
    return c;
}

/* Each rank is a kind of its own, and has its own plan. out: [ranks] */
static double walk_all(struct sw_plan *const *plans, int n, const struct test_mesh *m,
                       const struct sw_cost_mesh *mesh, struct sw_clock_rank *out)
{
    struct sw_cost_kinds kinds;
    struct sw_clock_rank stages[MOST_STAGES];
    double seconds = 0;
    for (int s = 0; s < m->pipe; s++) {
        stages[s] = (struct sw_clock_rank){.plan = plans[s * m->data]};
    }
    for (int r = 0; r < n; r++) {
        out[r] = (struct sw_clock_rank){.plan = plans[r]};
    }
    assert_int_equal(sw_cost_open_kinds(stages, m->pipe, true, mesh, &kinds), SW_OK);
    assert_int_equal(kinds.n, n);
    if (sw_cost_walk(out, &kinds, mesh, &seconds) < 0) {
        fail_msg("%s", sw_error_message());
    }
    sw_cost_close_kinds(&kinds);
    return seconds;
}

/* One rank of each kind, with plans made from those of the stages. Returns the number of kinds. */
static int walk_some(struct sw_plan *const *plans, const struct test_mesh *m,
                     const struct sw_cost_mesh *mesh, struct sw_clock_rank *stages, double *seconds)
{
    struct sw_cost_kinds kinds;
    for (int s = 0; s < m->pipe; s++) {
        stages[s] = (struct sw_clock_rank){.plan = plans[s * m->data]};
    }
    assert_int_equal(sw_cost_open_kinds(stages, m->pipe, false, mesh, &kinds), SW_OK);
    assert_false(kinds.is_rough);
    const int n = kinds.n;
    sw_cost_close_kinds(&kinds);
    if (sw_cost_stages(stages, m->pipe, mesh, seconds) < 0) {
        fail_msg("%s", sw_error_message());
    }
    return n;
}

/* ---- tests ---- */

static void one_rank_of_each_kind_stands_for_all(void **state)
{
    (void)state;
    static const struct test_mesh meshes[] = {
        {1, 4, 4, true, SW_STEP_HORIZONTAL},   {1, 6, 9, true, SW_STEP_HORIZONTAL},
        {1, 16, 20, true, SW_STEP_HORIZONTAL}, {2, 3, 12, false, SW_STEP_1F1B},
        {4, 4, 18, false, SW_STEP_1F1B},       {3, 2, 7, false, SW_STEP_GPIPE},
        {8, 2, 16, false, SW_STEP_1F1B}};
    static const struct shape shapes[] = {{16, 4, 2}, {4, 2, 2}, {4, 4, 1}, {3, 3, 2}, {1, 1, 1}};
    int n_merged = 0, n_split = 0;
    for (size_t i = 0; i < SW_LEN(meshes); i++) {
        const struct test_mesh *m = &meshes[i];
        const int n = m->pipe * m->data;
        struct sw_plan *plans[MOST_RANKS];
        for (int r = 0; r < n; r++) {
            plans[r] = plan_of(m, r);
        }
        for (size_t k = 0; k < SW_LEN(shapes); k++) {
            struct sw_clock_rank all[MOST_RANKS], stages[MOST_STAGES];
            struct sw_cluster *c = cluster_of(&shapes[k]);
            const struct sw_cost_mesh mesh = {.cluster = c, .ranks = n};
            double some = 0;
            const double each = walk_all(plans, n, m, &mesh, all);
            const int kinds = walk_some(plans, m, &mesh, stages, &some);
            if (!(fabs(each - some) < 1e-9)) {
                fail_msg("mesh %zu, shape %zu: %.12f s by %d kinds, %.12f by all ranks", i, k, some,
                         kinds, each);
            }
            for (int s = 0; s < m->pipe; s++) {
                assert_true(fabs(stages[s].seconds - all[s * m->data].seconds) < 1e-9);
            }
            n_merged += kinds < n;
            n_split += kinds > m->pipe;
            sw_cluster_close(c);
        }
        for (int r = 0; r < n; r++) {
            sw_plan_close(plans[r]);
        }
    }
    assert_true(n_merged > 10 && n_split > 10);
}

/* Without sharing, a step would be shorter: the same ranks on a node of their own. */
static void ranks_of_a_node_slow_each_other(void **state)
{
    (void)state;
    static const struct test_mesh m = {1, 4, 4, true, SW_STEP_HORIZONTAL};
    static const struct shape shapes[] = {{1, 1, 1}, {2, 2, 2}, {4, 4, 4}};
    struct sw_clock_rank rank = {.plan = NULL};
    struct sw_plan *plan = plan_of(&m, 0);
    double before = 0;
    for (size_t k = 0; k < SW_LEN(shapes); k++) {
        struct sw_cluster *c = cluster_of(&shapes[k]);
        const struct sw_cost_mesh mesh = {.cluster = c, .ranks = 4};
        double seconds;
        for (int i = 0; i < c->n_links; i++) { /* exchanges take no time */
            c->links[i].rate.value *= c->links[i].joint == SW_JOINT_HOST ? 1 : 1e6;
            c->links[i].latency.value = 0;
        }
        rank.plan = plan;
        assert_int_equal(sw_cost_stages(&rank, 1, &mesh, &seconds), SW_OK);
        assert_true(seconds > 1.002 * before);
        before = seconds;
        sw_cluster_close(c);
    }
    sw_plan_close(plan);
}

/* Too many kinds: where ranks are does not count, but idle ones are told apart. */
static void irregular_places_are_rough(void **state)
{
    (void)state;
    enum { RANKS = 1024 };
    struct sw_cluster *c = cluster_of(&(struct shape){7, 3, 2});
    struct sw_mesh axes;
    static int ranks[4][RANKS];
    const int sizes[SW_AXIS_COUNT] = {[SW_AXIS_PIPE] = 2,
                                      [SW_AXIS_EXPERT] = 1,
                                      [SW_AXIS_DATA] = RANKS / 4,
                                      [SW_AXIS_CONTEXT] = 1,
                                      [SW_AXIS_TENSOR] = 2};
    assert_int_equal(sw_mesh_init(&axes, sizes, RANKS), SW_OK);
    const struct sw_group groups[] = {sw_mesh_group(&axes, SW_ALL_AXES, 0, ranks[0]),
                                      sw_mesh_group(&axes, 1U << SW_AXIS_DATA, 0, ranks[1]),
                                      sw_mesh_group(&axes, 1U << SW_AXIS_PIPE, 0, ranks[2]),
                                      sw_mesh_group(&axes, 1U << SW_AXIS_TENSOR, 0, ranks[3])};
    const struct sw_plan plan = {.groups = (struct sw_group *)(uintptr_t)groups,
                                 .n_groups = 4,
                                 .step = {.ranks = RANKS / 4, .micro_batches = RANKS - 1}};
    const struct sw_clock_rank stages[2] = {{.plan = &plan}, {.plan = &plan}};
    const struct sw_cost_mesh mesh = {.cluster = c, .ranks = RANKS};
    struct sw_cost_kinds kinds;
    assert_int_equal(sw_cost_open_kinds(stages, 2, false, &mesh, &kinds), SW_OK);
    assert_true(kinds.is_rough);
    assert_int_equal(kinds.n, 4);
    assert_int_equal(kinds.of[RANKS / 2 - 1], 1);
    assert_int_equal(kinds.first[1], RANKS / 2 - 2);
    sw_cost_close_kinds(&kinds);
    sw_cluster_close(c);
}

static void survives_lack_of_memory(void **state)
{
    (void)state;
    static const struct test_mesh m = {2, 3, 7, false, SW_STEP_1F1B};
    struct sw_plan *plans[2] = {plan_of(&m, 0), plan_of(&m, 3)};
    struct sw_cluster *c = cluster_of(&(struct shape){4, 2, 2});
    const struct sw_cost_mesh mesh = {.cluster = c, .ranks = 6};
    struct sw_alloc_stats before, after;
    sw_status st = SW_E_NOMEM;
    sw_alloc_get_stats(&before);
    for (int64_t nth = 1; st < 0; nth++) {
        struct sw_clock_report reports[2] = {{.seconds = 0}, {.seconds = 0}};
        struct sw_clock_rank stages[2] = {{.plan = plans[0], .report = &reports[0]},
                                          {.plan = plans[1], .report = &reports[1]}};
        double seconds;
        sw_alloc_fail_nth(nth);
        st = sw_cost_stages(stages, 2, &mesh, &seconds);
        sw_alloc_fail_nth(0);
        assert_true(st >= 0 || st == SW_E_NOMEM);
        assert_true(nth < 400);
        for (int s = 0; s < 2 && st >= 0; s++) {
            sw_free(reports[s].instrs);
        }
    }
    sw_alloc_get_stats(&after);
    assert_int_equal(after.live_blocks, before.live_blocks);
    sw_plan_close(plans[0]);
    sw_plan_close(plans[1]);
    sw_cluster_close(c);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(one_rank_of_each_kind_stands_for_all),
    cmocka_unit_test(ranks_of_a_node_slow_each_other),
    cmocka_unit_test(irregular_places_are_rough),
    cmocka_unit_test(survives_lack_of_memory),
};

const struct test_program sw_tests = {TEST_TABLE(tests)};
