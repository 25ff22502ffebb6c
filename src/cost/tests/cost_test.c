// SPDX-License-Identifier: Apache-2.0
// Costs on a cluster, computed by hand for single instructions of each kind.
#include <math.h>
#include <string.h>

#include "cost/cost.h"
#include "support/test.h"

enum { MOST_RANKS = 64 };

/* A program of one instruction, in a world of some ranks. */
struct hand {
    struct sw_cluster *cluster;
    struct sw_instr instr;
    struct sw_program program;
    struct sw_group group;
    int ranks[MOST_RANKS];
    struct sw_plan plan;
    struct sw_cost_mesh mesh;
};

static void open_hand(struct hand *h, const char *name, int ranks)
{
    memset(h, 0, sizeof *h);
    assert_int_equal(sw_cluster_open(name, &h->cluster), SW_OK);
    for (int i = 0; i < ranks; i++) {
        h->ranks[i] = i;
    }
    h->group = (struct sw_group){.axes = SW_ALL_AXES, .n = ranks, .ranks = h->ranks};
    h->program.instrs = &h->instr;
    h->program.n_instrs = 1;
    h->plan.programs = &h->program;
    h->plan.n_programs = 1;
    h->plan.groups = &h->group;
    h->plan.n_groups = 1;
    h->mesh = (struct sw_cost_mesh){.cluster = h->cluster, .ranks = ranks};
}

static struct sw_cost cost_of(struct hand *h, enum sw_verb verb, enum sw_queue queue, int64_t bytes)
{
    struct sw_cost costs[1][2];
    h->instr = (struct sw_instr){
        .verb = verb, .queue = queue, .bytes = bytes, .exchange.batch = verb >= SW_VERB_REDUCE};
    assert_int_equal(sw_cost_instrs(&h->plan, &h->mesh, costs), SW_OK);
    assert_true(costs[0][0].seconds == costs[0][1].seconds);
    return costs[0][0];
}

/* Seconds until it is complete. */
static double exchange_of(struct hand *h, int64_t bytes)
{
    const struct sw_cost cost = cost_of(h, SW_VERB_GATHER, SW_QUEUE_COMM, bytes);
    return cost.seconds + cost.latency;
}

static bool near(double a, double b)
{
    return fabs(a - b) <= 1e-9 * fabs(b);
}

/* 12 GB/s to the host alone; four devices of a switch share as much. */
static void copies_share_the_switch(void **state)
{
    (void)state;
    static const struct {
        int ranks;
        double rate;
    } cases[] = {{1, 12e9}, {2, 6e9}, {4, 3e9}, {16, 3e9}, {32, 3e9}};
    for (size_t i = 0; i < SW_LEN(cases); i++) {
        struct hand h;
        open_hand(&h, "dgx2-v100", cases[i].ranks);
        const struct sw_cost in = cost_of(&h, SW_VERB_COPY_IN, SW_QUEUE_H2D, 1 << 30);
        const struct sw_cost out = cost_of(&h, SW_VERB_COPY_OUT, SW_QUEUE_D2H, 1 << 30);
        assert_true(near(in.seconds, 0x1p30 / cases[i].rate));
        assert_true(near(in.latency, 5.7e-6));
        assert_true(in.seconds == out.seconds);
        assert_true(near(sw_cost_host_rate(&h.mesh), cases[i].rate));
        sw_cluster_close(h.cluster);
    }
}

/* 25 GB/s a node, which the host's links of one rank do not carry. */
static void disks_are_shared_by_the_node(void **state)
{
    (void)state;
    struct hand h;
    open_hand(&h, "dgx2-v100", 16);
    assert_true(
        near(cost_of(&h, SW_VERB_READ, SW_QUEUE_READ, 1 << 30).seconds, 0x1p30 * 16 / 25e9));
    sw_cluster_close(h.cluster);
    open_hand(&h, "dgx2-v100", 1);
    assert_true(near(cost_of(&h, SW_VERB_READ, SW_QUEUE_READ, 1 << 30).seconds, 0x1p30 / 12e9));
    sw_cluster_close(h.cluster);
    open_hand(&h, "mi100-node", 8);
    const double wrote = cost_of(&h, SW_VERB_WRITE, SW_QUEUE_WRITE, 1 << 30).seconds;
    assert_true(near(wrote, 0x1p30 * 8 / (4 * 3.2e9)));
    for (int drives = 8; drives <= 64; drives *= 2) { /* more drives are never slower */
        h.cluster->disks[0].count.value = drives;
        assert_true(cost_of(&h, SW_VERB_WRITE, SW_QUEUE_WRITE, 1 << 30).seconds <= wrote);
    }
    sw_cluster_close(h.cluster);
}

/* Seconds of an exchange whose sent bytes are those of sw_instr_traffic. */
static void exchanges_pass_the_links_between_members(void **state)
{
    (void)state;
    static const int sizes[] = {1, 2, 16, 32, 64};
    for (size_t i = 0; i < SW_LEN(sizes); i++) {
        struct hand h;
        open_hand(&h, "dgx2-v100", sizes[i]);
        const double seconds = exchange_of(&h, 1 << 26);
        const struct sw_instr_traffic t = sw_instr_traffic(&h.instr, sizes[i], 0);
        const double bytes = (double)(t.sent > t.received ? t.sent : t.received);
        const double others = sizes[i] - 1, far = sizes[i] > 16 ? sizes[i] - 16 : 0;
        double wanted = sizes[i] == 1 ? 0 : bytes * (others - far) / others / 150e9 + 3.4e-6;
        if (far > 0) { /* two devices of each adapter of 12.5 GB/s */
            wanted = bytes * far / others / 6.25e9 + 14e-6;
        }
        assert_true(fabs(seconds - wanted) <= 1e-9 * wanted);
        assert_int_equal(bytes > 0, sizes[i] > 1);
        sw_cluster_close(h.cluster);
    }
}

static void a_share_that_is_reached_counts(void **state)
{
    (void)state;
    struct hand h;
    open_hand(&h, "h100-node", 8);
    const double before = exchange_of(&h, 1 << 28) - 3.4e-6;
    h.cluster->links[1].reached = (struct sw_figure){.value = 0.5, .kind = SW_FIGURE_FITTED};
    const double after = exchange_of(&h, 1 << 28) - 3.4e-6;
    assert_true(near(after, 2 * before));
    h.cluster->links[1].duplex = false;
    assert_true(near(exchange_of(&h, 1 << 28) - 3.4e-6, 4 * before));
    sw_cluster_close(h.cluster);
}

/* A ring enters a node once, over all of its adapters. */
static void a_ring_uses_all_adapters_of_a_node(void **state)
{
    (void)state;
    static const struct sw_accounting rings = {.name = "rings", .rings = true};
    struct hand h;
    open_hand(&h, "dgx2-v100", 64);
    h.mesh.accounting = &rings;
    const double ring = exchange_of(&h, 1 << 26);
    const double bytes = 63.0 * (1 << 26), node = 8 * 12.5e9;
    assert_true(near(ring, bytes / node + 3 * 14e-6));
    h.mesh.accounting = NULL;
    const double direct = exchange_of(&h, 1 << 26);
    assert_true(direct > 10 * ring);
    sw_cluster_close(h.cluster);
    open_hand(&h, "dgx2-v100", 16); /* within a node both move the same */
    const double inside = exchange_of(&h, 1 << 26);
    h.mesh.accounting = &rings;
    const double around = exchange_of(&h, 1 << 26);
    assert_true(near(around - 15 * 3.4e-6, inside - 3.4e-6));
    sw_cluster_close(h.cluster);
}

/* A message passes the links to its peer only. */
static void a_message_goes_to_its_peer(void **state)
{
    (void)state;
    struct hand h;
    struct sw_cost costs[1][2];
    open_hand(&h, "dgx2-v100", 32);
    for (int peer = 1; peer < 32; peer += 15) {
        h.instr = (struct sw_instr){.verb = SW_VERB_SEND,
                                    .queue = SW_QUEUE_SENT,
                                    .bytes = 1 << 28,
                                    .exchange = {.batch = 1, .peer = peer}};
        assert_int_equal(sw_cost_instrs(&h.plan, &h.mesh, costs), SW_OK);
        const double wanted = peer < 16 ? 0x1p28 / 150e9 + 3.4e-6 : 0x1p28 / 6.25e9 + 14e-6;
        assert_true(near(costs[0][0].seconds + costs[0][0].latency, wanted));
    }
    sw_cluster_close(h.cluster);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(copies_share_the_switch),
    cmocka_unit_test(disks_are_shared_by_the_node),
    cmocka_unit_test(exchanges_pass_the_links_between_members),
    cmocka_unit_test(a_share_that_is_reached_counts),
    cmocka_unit_test(a_ring_uses_all_adapters_of_a_node),
    cmocka_unit_test(a_message_goes_to_its_peer),
};

const struct test_program sw_tests = {TEST_TABLE(tests)};
