// SPDX-License-Identifier: Apache-2.0
// Tests the clock of coupled ranks. Random steps of kernels and exchanges of several groups are
// compared with a direct computation; ranks of equal pace with a rank alone.
#include <math.h>
#include <string.h>

#include "support/test.h"
#include "walk/walk.h"

enum { MOST = 40, RANKS = 4, GROUPS = 3 };

/* Groups of four ranks in a square: all, those of a row, those of a column. */
static const int members[GROUPS][RANKS][RANKS] = {
    {{0, 1, 2, 3}, {0, 1, 2, 3}, {0, 1, 2, 3}, {0, 1, 2, 3}},
    {{0, 1}, {0, 1}, {2, 3}, {2, 3}},
    {{0, 2}, {1, 3}, {0, 2}, {1, 3}},
};
static const int sizes[GROUPS] = {4, 2, 2};

/* A step whose instructions all ranks share. */
struct world {
    struct sw_instr instrs[MOST];
    struct sw_program program;
    struct sw_step_phase phases[3];
    struct sw_cost costs[RANKS][MOST][2];
    struct sw_group groups[RANKS][GROUPS];
    struct sw_plan plans[RANKS];
    struct sw_pace paces[RANKS];
    struct sw_clock_rank ranks[RANKS];
};

static const struct sw_instr_about a_test = {.name = "a test", .where = "a test"};

static void open_world(struct world *w)
{
    memset(w, 0, sizeof *w);
    w->program = (struct sw_program){.instrs = w->instrs, .micro_batches = 1};
    w->phases[0] = (struct sw_step_phase){.action = SW_STEP_RUN, .n_micro = 1, .drains = true};
    w->phases[1] = (struct sw_step_phase){.action = SW_STEP_LOSSES};
    w->phases[2] = w->phases[0];
    for (int r = 0; r < RANKS; r++) {
        for (int g = 0; g < GROUPS; g++) {
            w->groups[r][g] = (struct sw_group){.n = sizes[g], .ranks = members[g][r]};
        }
        w->plans[r] = (struct sw_plan){
            .programs = &w->program,
            .n_programs = 1,
            .groups = w->groups[r],
            .n_groups = GROUPS,
            .step = {.phases = w->phases, .n_phases = 3, .ranks = RANKS, .rounds = 1}};
        w->paces[r] = (struct sw_pace){.costs = (const struct sw_cost(*)[2])w->costs[r],
                                       .disk_share = {0.5, 0.5}};
        w->ranks[r] = (struct sw_clock_rank){.plan = &w->plans[r], .pace = &w->paces[r]};
    }
}

static struct sw_instr *add(struct world *w, enum sw_verb verb, enum sw_queue queue)
{
    struct sw_instr *instr = &w->instrs[w->program.n_instrs];
    *instr = (struct sw_instr){.queue = queue,
                               .verb = verb,
                               .turn.order = w->program.n_instrs++,
                               .exchange.batch = sw_queue_exchanges(queue),
                               .follows = -1,
                               .about = &a_test};
    for (int q = 0; q < SW_QUEUE_COUNT; q++) {
        instr->waits[q] = -1;
    }
    for (int s = 1; s <= SW_SEGMENT_COUNT; s++) {
        w->program.segment_first[s] = w->program.n_instrs;
    }
    return instr;
}

static uint64_t draw(uint64_t seed, int i, uint64_t below)
{
    return sw_philox_u64(seed, 7, (uint64_t)i) % below;
}

/* Draws kernels and exchanges, those among a row of ranks on a queue of their own. Kernels may wait
 * for any earlier exchange. Costs are whole seconds, whose sums are exact; equal: the same on all
 * ranks. */
static void draw_step(struct world *w, uint64_t seed, bool equal)
{
    enum { MOST_S = 50 };
    const int n = 2 + (int)draw(seed, 0, MOST - 2);
    int32_t exchanges[MOST], n_exchanges = 0;
    for (int i = 0; i < n; i++) {
        const bool exchange = draw(seed, 10 * i + 1, 2) == 0;
        const int group = (int)draw(seed, 10 * i + 2, GROUPS);
        struct sw_instr *instr = add(w, exchange ? SW_VERB_GATHER : SW_VERB_KERNEL,
                                     !exchange    ? SW_QUEUE_COMPUTE
                                     : group == 1 ? SW_QUEUE_TENSOR
                                                  : SW_QUEUE_COMM);
        if (exchange) {
            instr->exchange.group = group;
            instr->exchange.blocking = draw(seed, 10 * i + 3, 4) == 0;
            exchanges[n_exchanges++] = i;
        } else if (n_exchanges > 0 && draw(seed, 10 * i + 4, 2) == 0) {
            const int32_t other = exchanges[draw(seed, 10 * i + 5, (uint64_t)n_exchanges)];
            instr->waits[w->instrs[other].queue] = other;
        }
        for (int r = 0; r < RANKS; r++) {
            const int which = 1000 + 100 * i + (equal ? 0 : r);
            w->costs[r][i][0].seconds = w->costs[r][i][1].seconds =
                (double)draw(seed, which, MOST_S);
        }
    }
    for (int r = 0; r < RANKS; r++) {
        w->paces[r].meeting = (double)draw(seed, 900 + (equal ? 0 : r), MOST_S);
    }
}

/* ---- the same by hand ---- */

struct hand {
    double computes[RANKS];              /* when computation is free */
    double sends[SW_QUEUE_COUNT][RANKS]; /* when a queue of exchanges is */
    double ends[MOST][RANKS];            /* of an exchange */
};

static double latest(const double *of, const int *ranks, int n)
{
    double most = 0;
    for (int k = 0; k < n; k++) {
        most = fmax(most, of[ranks[k]]);
    }
    return most;
}

/* All members begin when the last one has issued it and has its queue free. The slowest decides. */
static void exchange_by_hand(const struct world *w, struct hand *h, int i)
{
    const int g = w->instrs[i].exchange.group;
    double arrives[RANKS], costs[RANKS], *sends = h->sends[w->instrs[i].queue];
    for (int r = 0; r < RANKS; r++) {
        arrives[r] = fmax(h->computes[r], sends[r]);
        costs[r] = w->costs[r][i][0].seconds;
    }
    for (int r = 0; r < RANKS; r++) {
        h->ends[i][r] =
            latest(arrives, members[g][r], sizes[g]) + latest(costs, members[g][r], sizes[g]);
    }
    for (int r = 0; r < RANKS; r++) {
        sends[r] = h->ends[i][r];
        h->computes[r] = w->instrs[i].exchange.blocking ? h->ends[i][r] : h->computes[r];
    }
}

static void run_by_hand(const struct world *w, struct hand *h)
{
    for (int i = 0; i < w->program.n_instrs; i++) {
        const int32_t other = (int32_t)sw_max_i64(w->instrs[i].waits[SW_QUEUE_COMM],
                                                  w->instrs[i].waits[SW_QUEUE_TENSOR]);
        if (sw_instr_exchanges(&w->instrs[i])) {
            exchange_by_hand(w, h, i);
            continue;
        }
        for (int r = 0; r < RANKS; r++) {
            const double from = other < 0 ? 0 : h->ends[other][r];
            h->computes[r] = fmax(h->computes[r], from) + w->costs[r][i][0].seconds;
        }
    }
    for (int r = 0; r < RANKS; r++) { /* the phase drains */
        h->computes[r] =
            fmax(h->computes[r], fmax(h->sends[SW_QUEUE_COMM][r], h->sends[SW_QUEUE_TENSOR][r]));
    }
}

static void step_by_hand(const struct world *w, double out[RANKS])
{
    struct hand h = {.computes = {0}};
    double meetings[RANKS];
    run_by_hand(w, &h);
    for (int r = 0; r < RANKS; r++) {
        meetings[r] = w->paces[r].meeting;
    }
    const double met =
        latest(h.computes, members[0][0], RANKS) + latest(meetings, members[0][0], RANKS);
    for (int r = 0; r < RANKS; r++) {
        h.computes[r] = met;
    }
    run_by_hand(w, &h);
    memcpy(out, h.computes, sizeof h.computes);
}

/* ---- tests ---- */

static void walk_world(struct world *w)
{
    if (sw_clock_ranks(w->ranks, RANKS) < 0) {
        fail_msg("%s", sw_error_message());
    }
}

static void the_slowest_rank_decides_each_exchange(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 300; seed++) {
        struct world w;
        double hand[RANKS];
        open_world(&w);
        draw_step(&w, seed, false);
        walk_world(&w);
        step_by_hand(&w, hand);
        for (int r = 0; r < RANKS; r++) {
            assert_true(fabs(w.ranks[r].seconds - hand[r]) < 1e-9 * hand[r] + 1e-12);
        }
    }
}

/* Whole costs divided by a number give sums that are rounded; equality is exact all the same. */
static void equal_ranks_take_as_long_as_one_alone(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 100; seed++) {
        struct world w;
        struct sw_clock_report alone, report = {.seconds = 0};
        open_world(&w);
        draw_step(&w, seed, true);
        for (int r = 0; r < RANKS; r++) {
            for (int q = 0; q < SW_QUEUE_COUNT; q++) {
                w.paces[r].slower[q] = 1.0 / (3 + q);
            }
        }
        w.ranks[2].report = &report;
        walk_world(&w);
        assert_int_equal(sw_clock_step(&w.plans[1], &w.paces[1], &alone), SW_OK);
        for (int r = 0; r < RANKS; r++) {
            assert_true(w.ranks[r].seconds == alone.seconds);
        }
        assert_memory_equal(report.part, alone.part, sizeof report.part);
        assert_memory_equal(report.instrs, alone.instrs,
                            (size_t)w.program.n_instrs * sizeof *alone.instrs);
        sw_free(report.instrs);
        sw_free(alone.instrs);
    }
}

/* The others wait for it at every exchange, in computation and in exchanges. */
static void one_slow_rank_slows_all(void **state)
{
    (void)state;
    struct world w;
    struct sw_clock_report report;
    open_world(&w);
    for (int i = 0; i < 6; i++) {
        struct sw_instr *instr = add(&w, i % 2 ? SW_VERB_GATHER : SW_VERB_KERNEL,
                                     i % 2 ? SW_QUEUE_COMM : SW_QUEUE_COMPUTE);
        instr->exchange.blocking = i % 2;
        for (int r = 0; r < RANKS; r++) {
            w.costs[r][i][0].seconds = w.costs[r][i][1].seconds = i % 2 ? 1 : 10;
        }
    }
    w.ranks[0].report = &report;
    w.paces[3].slower[SW_QUEUE_COMPUTE] = 2;
    walk_world(&w);
    for (int r = 0; r < RANKS; r++) {
        assert_true(w.ranks[r].seconds == 2 * 3 * (20 + 1));
    }
    assert_true(report.part[SW_QUEUE_COMPUTE] == 2 * 3 * 10);
    assert_true(report.part[SW_QUEUE_COMM] == 2 * 3 * 11);
    assert_true(report.alone[SW_QUEUE_COMM] == 2 * 3 * 1);
    sw_free(report.instrs);
}

static void ranks_that_never_meet_are_refused(void **state)
{
    (void)state;
    struct world w;
    open_world(&w);
    add(&w, SW_VERB_GATHER, SW_QUEUE_COMM)->exchange.blocking = true;
    struct sw_step_phase none = {.action = SW_STEP_COMMIT};
    w.plans[2].step = (struct sw_step){.phases = &none, .n_phases = 1, .ranks = RANKS};
    assert_int_equal(sw_clock_ranks(w.ranks, RANKS), SW_E_ARG);
    assert_string_equal(sw_error_message(),
                        "3 of 4 ranks wait for others that never come: rank 0 at instruction 0 (a "
                        "test in a test), rank 1 at instruction 0 (a test in a test), rank 3 at "
                        "instruction 0 (a test in a test)");
    assert_int_equal(sw_clock_ranks(w.ranks, 3), SW_E_ARG);
    assert_string_equal(sw_error_message(), "rank 0 is in a group with rank 3 of a world of 3");
}

/* ---- queues side by side ---- */

/* A program of one rank: `n` instructions, each without waits. */
struct own {
    struct sw_instr instrs[6];
    struct sw_cost costs[6][2];
    struct sw_program program;
};

static struct sw_instr *add_own(struct own *o, enum sw_verb verb, enum sw_queue queue, int group,
                                double seconds)
{
    struct sw_instr *instr = &o->instrs[o->program.n_instrs];
    o->costs[o->program.n_instrs][0].seconds = o->costs[o->program.n_instrs][1].seconds = seconds;
    *instr = (struct sw_instr){.queue = queue,
                               .verb = verb,
                               .turn.order = o->program.n_instrs++,
                               .exchange = {.batch = sw_queue_exchanges(queue), .group = group},
                               .follows = -1,
                               .about = &a_test};
    memset(instr->waits, 0xff, sizeof instr->waits);
    for (int s = 1; s <= SW_SEGMENT_COUNT; s++) {
        o->program.segment_first[s] = o->program.n_instrs;
    }
    return instr;
}

/* Ranks with programs of their own; one phase. */
static void open_own(struct world *w, struct own own[RANKS])
{
    open_world(w);
    memset(own, 0, RANKS * sizeof *own);
    for (int r = 0; r < RANKS; r++) {
        own[r].program = (struct sw_program){.instrs = own[r].instrs, .micro_batches = 1};
        w->plans[r].programs = &own[r].program;
        w->plans[r].step.n_phases = 1;
        w->paces[r].costs = (const struct sw_cost(*)[2])own[r].costs;
    }
}

/* Rank 0 comes to the exchange of its row late and to that of its column early; rank 1 waits in the
 * row while its column goes on; and so on. One queue would deadlock. */
static void opposite_orders_on_two_queues_pass(void **state)
{
    (void)state;
    struct world w;
    static struct own own[RANKS];
    open_own(&w, own);
    for (int r = 0; r < RANKS; r++) {
        const bool column_first = r == 0 || r == 3;
        for (int k = 0; k < 2; k++) {
            const bool column = (k == 0) == column_first;
            add_own(&own[r], SW_VERB_GATHER, column ? SW_QUEUE_COMM : SW_QUEUE_TENSOR,
                    column ? 2 : 1, column ? 3 : 5);
            add_own(&own[r], SW_VERB_KERNEL, SW_QUEUE_COMPUTE, 0, 10);
        }
    }
    walk_world(&w);
    for (int r = 0; r < RANKS; r++) { /* the second exchanges begin at 10, the kernels end at 20 */
        assert_true(w.ranks[r].seconds == 20);
    }
    for (int r = 0; r < RANKS; r++) {
        for (int i = 0; i < 4; i++) {
            own[r].instrs[i].queue =
                sw_instr_exchanges(&own[r].instrs[i]) ? SW_QUEUE_COMM : SW_QUEUE_COMPUTE;
        }
    }
    assert_int_equal(sw_clock_ranks(w.ranks, RANKS), SW_E_ARG);
    assert_string_equal(sw_error_message(),
                        "4 of 4 ranks wait for others that never come: rank 0 at instruction 0 (a "
                        "test in a test), rank 1 at instruction 0 (a test in a test), rank 2 at "
                        "instruction 0 (a test in a test), rank 3 at instruction 0 (a test in a "
                        "test)");
}

/* A message starts when both sides are there, and takes as long as the slower one. */
static void a_message_couples_both_sides(void **state)
{
    (void)state;
    struct world w;
    static struct own own[RANKS];
    struct sw_clock_report report = {.seconds = 0};
    open_own(&w, own);
    /* 0 -> 1 -> 2 -> 3 by members of the world: each waits for its message before it computes */
    for (int r = 0; r < RANKS; r++) {
        if (r > 0) {
            add_own(&own[r], SW_VERB_RECV, SW_QUEUE_RECEIVED, 0, 1)->exchange.peer = r - 1;
        }
        add_own(&own[r], SW_VERB_KERNEL, SW_QUEUE_COMPUTE, 0, 10)->waits[SW_QUEUE_RECEIVED] =
            r > 0 ? 0 : -1;
        if (r < RANKS - 1) {
            add_own(&own[r], SW_VERB_SEND, SW_QUEUE_SENT, 0, 2)->exchange.peer = r + 1;
        }
    }
    w.ranks[1].report = &report;
    walk_world(&w);
    for (int r = 0; r < RANKS; r++) { /* a rank ends when its message has left */
        assert_true(w.ranks[r].seconds == 12 * (r + 1) - (r == RANKS - 1 ? 2 : 0));
    }
    assert_true(report.part[SW_QUEUE_RECEIVED] == 12 && report.part[SW_QUEUE_SENT] == 2);
    sw_free(report.instrs);

    own[1].instrs[0].bytes = 8;
    assert_int_equal(sw_clock_ranks(w.ranks, RANKS), SW_E_ARG);
    assert_non_null(strstr(sw_error_message(), "moves 8 bytes"));
}

/* Two ranks that each receive before they send wait for each other, although others go on. */
static void a_deadlock_names_ranks_and_instructions(void **state)
{
    (void)state;
    struct world w;
    static struct own own[RANKS];
    open_own(&w, own);
    for (int r = 0; r < RANKS; r++) {
        add_own(&own[r], SW_VERB_KERNEL, SW_QUEUE_COMPUTE, 0, 10);
        add_own(&own[r], SW_VERB_RECV, SW_QUEUE_RECEIVED, 0, 1)->exchange.peer = r ^ 1;
        struct sw_instr *send = add_own(&own[r], SW_VERB_SEND, SW_QUEUE_SENT, 0, 1);
        send->exchange.peer = r ^ 1;
        send->waits[SW_QUEUE_RECEIVED] = r < 2 ? 1 : -1;
    }
    assert_int_equal(sw_clock_ranks(w.ranks, RANKS), SW_E_ARG);
    assert_string_equal(sw_error_message(),
                        "2 of 4 ranks wait for others that never come: rank 0 at instruction 1 (a "
                        "test in a test), rank 1 at instruction 1 (a test in a test)");
    own[1].instrs[2].waits[SW_QUEUE_RECEIVED] = -1; /* one of them sends first */
    walk_world(&w);
    for (int r = 0; r < RANKS; r++) {
        assert_true(w.ranks[r].seconds == (r < 2 ? 12 : 11));
    }
}

/* ---- what ranks share ---- */

/* All of link 0; a third of link 0 and all of link 1. */
static const struct sw_way ways[] = {{.uses = {{0, 1.0}}, .n = 1},
                                     {.uses = {{0, 1.0 / 3}, {1, 1.0}}, .n = 2}};

static void put_way(struct own *o, int32_t way)
{
    o->costs[o->program.n_instrs - 1][0].way = o->costs[o->program.n_instrs - 1][1].way = way;
}

/* Ranks 0 and 1 copy over one link for 10 s each, rank 1 from 4 s on. Rank 2 has the link for
 * itself, and rank 3 stands for five ranks that share it. */
static void a_link_is_shared_while_it_is_used(void **state)
{
    (void)state;
    static const struct sw_shared shared[RANKS][1] = {{{0, 1}}, {{0, 1}}, {{1, 1}}, {{2, 5}}};
    static const double wanted[RANKS] = {16, 20, 10, 50};
    struct world w;
    static struct own own[RANKS];
    struct sw_clock_report report;
    open_own(&w, own);
    for (int r = 0; r < RANKS; r++) {
        add_own(&own[r], SW_VERB_KERNEL, SW_QUEUE_COMPUTE, 0, r == 1 ? 4 : 0);
        add_own(&own[r], SW_VERB_COPY_IN, SW_QUEUE_H2D, 0, 10);
        put_way(&own[r], 1);
        w.paces[r].ways = ways;
        w.ranks[r].shared = shared[r];
    }
    w.ranks[3].report = &report;
    walk_world(&w);
    for (int r = 0; r < RANKS; r++) {
        assert_true(fabs(w.ranks[r].seconds - wanted[r]) < 1e-9);
    }
    assert_true(report.alone[SW_QUEUE_H2D] == 50); /* while all five copy */
    sw_free(report.instrs);
}

/* A copy that wants a third of a link gets it; the other one gets the rest. Queues of one rank
 * share as those of several do. */
static void who_wants_less_than_its_share_gets_it(void **state)
{
    (void)state;
    static const struct sw_shared shared[2] = {{0, 1}, {1, 1}};
    for (int ranks = 1; ranks <= 2; ranks++) {
        struct world w;
        static struct own own[RANKS];
        open_own(&w, own);
        for (int k = 0; k < 2; k++) {
            struct own *o = &own[ranks > 1 ? k : 0];
            add_own(o, k ? SW_VERB_COPY_OUT : SW_VERB_COPY_IN, k ? SW_QUEUE_D2H : SW_QUEUE_H2D, 0,
                    k ? 9 : 6);
            put_way(o, 1 + k);
        }
        for (int r = 0; r < RANKS; r++) {
            w.paces[r].ways = ways;
            w.ranks[r].shared = shared;
        }
        walk_world(&w); /* 6 s of all of it take 9 at two thirds */
        assert_true(fabs(w.ranks[0].seconds - 9) < 1e-9);
        assert_true(fabs(w.ranks[1].seconds - (ranks > 1 ? 9 : 0)) < 1e-9);
    }
}

static void survives_lack_of_memory(void **state)
{
    (void)state;
    struct world w;
    struct sw_alloc_stats before, after;
    sw_status st = SW_E_NOMEM;
    open_world(&w);
    draw_step(&w, 5, false);
    sw_alloc_get_stats(&before);
    for (int64_t nth = 1; st < 0; nth++) {
        struct sw_clock_report report = {.instrs = NULL};
        w.ranks[1].report = &report;
        sw_alloc_fail_nth(nth);
        st = sw_clock_ranks(w.ranks, RANKS);
        sw_alloc_fail_nth(0);
        assert_true(st >= 0 || st == SW_E_NOMEM);
        assert_true(nth < 100);
        sw_free(report.instrs);
    }
    sw_alloc_get_stats(&after);
    assert_int_equal(after.live_blocks, before.live_blocks);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(the_slowest_rank_decides_each_exchange),
    cmocka_unit_test(equal_ranks_take_as_long_as_one_alone),
    cmocka_unit_test(one_slow_rank_slows_all),
    cmocka_unit_test(ranks_that_never_meet_are_refused),
    cmocka_unit_test(opposite_orders_on_two_queues_pass),
    cmocka_unit_test(a_message_couples_both_sides),
    cmocka_unit_test(a_deadlock_names_ranks_and_instructions),
    cmocka_unit_test(a_link_is_shared_while_it_is_used),
    cmocka_unit_test(who_wants_less_than_its_share_gets_it),
    cmocka_unit_test(survives_lack_of_memory),
};

const struct test_program sw_tests = {TEST_TABLE(tests)};
