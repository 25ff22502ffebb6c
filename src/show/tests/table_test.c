// SPDX-License-Identifier: Apache-2.0
// Tests the table of a plan. Its kinds add up to the plan's bytes. Sent bytes are the formula plus
// the named parts. Later stages do not hold more. The paper's formulas are tested, too.
#include "show/show.h"

#include <string.h>

#include "show/tests/tower.h"
#include "support/test.h"

/* Bytes that this rank sends in a step, from the instructions alone. */
static int64_t sent_by_instructions(const struct sw_plan *plan, int64_t rounds)
{
    const struct sw_program *program = &plan->programs[0];
    int64_t sum = 0;
    for (int32_t i = 0; i < program->n_instrs; i++) {
        const struct sw_instr *instr = &program->instrs[i];
        const bool once = program->micro_batches > 1 || instr->last_only || instr->turn.once ||
                          instr->segment >= SW_SEGMENT_UPDATE;
        if (instr->verb >= SW_VERB_REDUCE) {
            sum += (once ? 1 : rounds) * sw_instr_sent_bytes(instr) *
                   (plan->groups[instr->exchange.group].n - 1);
        }
    }
    return sum;
}

static int64_t sent(const struct sw_plan_table *t)
{
    int64_t sum = 0;
    for (int k = 0; k < SW_SENT_COUNT; k++) {
        sum += t->sent[k].bytes;
    }
    return sum;
}

static struct sw_plan_table tabulate(struct sw_graph *g, const struct sw_plan_options *o)
{
    struct sw_plan *plan = NULL;
    struct sw_plan_table table;
    const struct sw_program_spec spec = {SW_PROGRAM_TRAIN, g};
    if (plan_once(&spec, 1, o, &plan) < 0) {
        fail_msg("%s", sw_error_message());
    }
    assert_int_equal(sw_plan_tabulate(plan, o, &table), SW_OK);
    size_t sum = 0;
    for (int k = 0; k < SW_HELD_COUNT; k++) {
        sum += table.held[k];
    }
    assert_int_equal(sum, plan->tier_bytes[SW_TIER_DEVICE]);
    assert_int_equal(sum, table.tier_bytes[SW_TIER_DEVICE]);
    assert_int_equal(sent(&table), sent_by_instructions(plan, plan->step.rounds));
    sw_plan_close(plan);
    return table;
}

static double states(const struct sw_plan_table *t)
{
    double sum = 0;
    for (int k = 0; k < SW_HELD_STATES; k++) {
        sum += (double)t->held[k];
    }
    return sum;
}

/* formula + parts = bytes for every kind except the statistics, which have no formula. */
static void check_parts(const struct sw_plan_table *t)
{
    for (int k = 0; k < SW_SENT_STATS; k++) {
        const struct sw_sent_parts *p = &t->sent[k];
        assert_true(fabs(p->formula + p->second + p->sparse + p->kept + p->padding - p->spared -
                         p->stays + p->matrices - (double)p->bytes) < 0.5);
    }
}

static void kinds_add_up_everywhere(void **state)
{
    (void)state;
    static const enum sw_dtype dtypes[] = {SW_F32, SW_BF16, SW_F16};
    for (int i = 0; i < 3; i++) {
        for (int ranks = 1; ranks <= 5; ranks++) {
            double before = INFINITY;
            for (int stage = 0; stage < 4; stage++) {
                struct sw_plan_options o = options(ranks, stage, 2 * ranks + 1);
                o.limits.persistence_elems = stage == 3 && ranks == 5 ? 40 : 0;
                const struct sw_plan_table t =
                    tabulate(tower(dtypes[i], TIED | BIAS | FROZEN, false), &o);
                check_parts(&t);
                assert_true(states(&t) <= before); /* later stages do not hold more */
                assert_true(t.padding >= 0 && t.padding < states(&t));
                assert_true((t.held[SW_HELD_KEPT] > 0) == (o.limits.persistence_elems > 0));
                assert_int_equal(t.elems - t.trained, 13 * 37);
                assert_true((ranks > 1) == (t.sent[SW_SENT_STATS].bytes > 0));
                before = states(&t);
            }
        }
    }
}

/* Every parameter has one dense stream, and forward and backward read it: there are no differences,
 * but for the first and the last weight at stage 3. */
static void sent_is_the_formula_where_it_holds(void **state)
{
    (void)state;
    const double elems = 2 * 64 * 64 + 4 * 64 * 128;
    for (int ranks = 2; ranks <= 4; ranks *= 2) {
        for (int m = 1; m <= 3; m++) {
            for (int stage = 0; stage < 4; stage++) {
                const struct sw_plan_options o = options(ranks, stage, m * ranks);
                const struct sw_plan_table t = tabulate(tower(SW_BF16, 0, true), &o);
                const double share = (double)(ranks - 1) / ranks, c = 2, w = 2;
                const double want[] = {(m * c + 4) * elems, (m * c + w) * elems,
                                       (m * c + w) * elems, m * (2 * w + c) * elems};
                double bytes = 0, formula = 0;
                for (int k = 0; k < SW_SENT_STATS; k++) {
                    bytes += (double)t.sent[k].bytes;
                    formula += t.sent[k].formula;
                }
                assert_true(formula == want[stage] * share);
                if (stage < 3) {
                    assert_true(bytes == formula);
                    assert_true((t.boundary > 0) == (stage < 2));
                    continue;
                }
                /* the input needs no gradient, so backward needs no copy of `in`; forward leaves it
                 * the copy of `out` */
                const double spared = 2 * m * w * 64 * 64 * share;
                assert_true(bytes == formula - spared);
                assert_true(t.sent[SW_SENT_BACKWARD].spared == spared);
            }
        }
    }
}

/* Weights travel once a step; gradients travel per micro-batch, as in the horizontal schedule. */
static void vertical_is_its_formula(void **state)
{
    (void)state;
    const double elems = 2 * 64 * 64 + 4 * 64 * 128;
    for (int ranks = 2; ranks <= 4; ranks *= 2) {
        for (int m = 1; m <= 3; m++) {
            for (int stage = 0; stage < 4; stage++) {
                struct sw_plan_options o = options(ranks, stage, m * ranks);
                o.policy.schedule = SW_STEP_VERTICAL;
                const struct sw_plan_table t = tabulate(tower(SW_BF16, 0, true), &o);
                const double share = (double)(ranks - 1) / ranks, c = 2, w = 2;
                const double want[] = {(m * c + 4) * elems, (m * c + w) * elems,
                                       (m * c + w) * elems, (2 * w + m * c) * elems};
                double formula = 0;
                for (int k = 0; k < SW_SENT_STATS; k++) {
                    formula += t.sent[k].formula;
                }
                assert_true(formula == want[stage] * share);
                check_parts(&t);
            }
        }
    }
    for (int ranks = 1; ranks <= 3; ranks++) { /* odd sizes, further uses, an idle rank */
        for (int stage = 0; stage < 4; stage++) {
            struct sw_plan_options o = options(ranks, stage, 2 * ranks + 1);
            o.policy.schedule = SW_STEP_VERTICAL;
            const struct sw_plan_table t = tabulate(tower(SW_F32, TIED | BIAS | FROZEN, false), &o);
            o.policy.schedule = SW_STEP_HORIZONTAL;
            const struct sw_plan_table h = tabulate(tower(SW_F32, TIED | BIAS | FROZEN, false), &o);
            check_parts(&t);
            assert_true(states(&t) == states(&h));
            assert_int_equal(t.sent[SW_SENT_GRADS].bytes, h.sent[SW_SENT_GRADS].bytes);
            assert_int_equal(3 * t.sent[SW_SENT_FORWARD].bytes, h.sent[SW_SENT_FORWARD].bytes);
            assert_int_equal(3 * t.sent[SW_SENT_BACKWARD].bytes, h.sent[SW_SENT_BACKWARD].bytes);
        }
    }
}

/* Weights that stay for all micro-batches are sent once, with their padding. */
static void what_stays_is_a_part_of_its_own(void **state)
{
    (void)state;
    for (int ranks = 2; ranks <= 3; ranks++) {
        struct sw_plan_options o = options(ranks, 3, 3 * ranks);
        o.overlap = true;
        const struct sw_plan_table without = tabulate(tower(SW_F32, TIED | BIAS, false), &o);
        o.limits.max_live_elems = o.limits.kept_elems = 1 << 14;
        o.policy.budget[SW_TIER_DEVICE] = 1 << 30;
        const struct sw_plan_table with = tabulate(tower(SW_F32, TIED | BIAS, false), &o);
        for (int k = SW_SENT_FORWARD; k <= SW_SENT_BACKWARD; k++) {
            assert_true(without.sent[k].stays == 0 && with.sent[k].stays > 0);
            assert_true((double)(without.sent[k].bytes - with.sent[k].bytes) == with.sent[k].stays);
        }
        check_parts(&with);
    }
}

static void further_uses_stand_apart(void **state)
{
    (void)state;
    const struct sw_plan_options o = options(2, 1, 2);
    const struct sw_plan_table t = tabulate(tower(SW_F32, TIED, true), &o);
    const double table = 64 * 64 * 4 / 2;
    assert_true(t.sent[SW_SENT_GRADS].sparse == table);
    assert_true(t.sent[SW_SENT_GRADS].second == 0);
    assert_int_equal(t.held[SW_HELD_SECOND], 64 * 64 * 4 / 2);
    assert_true(t.sent[SW_SENT_UPDATE].bytes == (int64_t)t.sent[SW_SENT_UPDATE].formula);
}

/* Shards of the momentum go to all ranks, in addition to the parameters. */
static void momentum_of_matrices_is_a_part_of_its_own(void **state)
{
    (void)state;
    const struct sw_update_rule muon = {
        .attrs = {.kind = SW_UPDATE_MUON, .decoupled = true, .nesterov = true, .ns_steps = 5},
        .matrix_scale = 1,
        .other_scale = 1};
    const double elems = 2 * 64 * 64 + 4 * 64 * 128;
    for (int ranks = 1; ranks <= 3; ranks++) {
        for (int stage = 0; stage < 4; stage++) {
            struct sw_plan_options o = options(ranks, stage, 2 * ranks);
            o.rule = &muon;
            const struct sw_plan_table t = tabulate(tower(SW_F32, BIAS, true), &o);
            const double share = (double)(ranks - 1) / ranks;
            if (ranks < 3) { /* shards without padding */
                assert_true(t.sent[SW_SENT_UPDATE].matrices ==
                            (stage > 0 ? 2 * elems * share : 0.0));
            }
            check_parts(&t);
        }
    }
}

/* An exchange of no parameter, or in a group that is not the data axis, is counted in bytes alone.
 * The other kinds stay as they are, or lose the exchange and its trip. */
static void other_exchanges_have_a_kind_of_their_own(void **state)
{
    (void)state;
    const struct sw_plan_options o = options(3, 3, 6);
    const enum sw_verb verbs[] = {SW_VERB_REDUCE, SW_VERB_GATHER, SW_VERB_MERGE};
    for (size_t k = 0; k < SW_LEN(verbs); k++) {
        struct sw_plan *plan = NULL;
        struct sw_plan_table before, after;
        const struct sw_program_spec spec = {SW_PROGRAM_TRAIN, tower(SW_F32, TIED | BIAS, false)};
        assert_int_equal(plan_once(&spec, 1, &o, &plan), SW_OK);
        assert_int_equal(sw_plan_tabulate(plan, &o, &before), SW_OK);
        struct sw_instr *instr = plan->programs[0].instrs;
        while (instr->verb != verbs[k]) {
            instr++;
        }
        if (verbs[k] == SW_VERB_MERGE) {
            instr->verb = SW_VERB_REDUCE; /* statistics belong to no parameter */
        } else {
            instr->exchange.group = SW_GROUP_WORLD;
        }
        const int64_t bytes = 2 * sw_instr_sent_bytes(instr) * (verbs[k] == SW_VERB_MERGE ? 1 : 2);
        assert_int_equal(sw_plan_tabulate(plan, &o, &after), SW_OK);
        assert_int_equal(before.sent[SW_SENT_OTHER].bytes, 0);
        assert_int_equal(after.sent[SW_SENT_OTHER].bytes, bytes);
        assert_int_equal(sent(&after), sent(&before));
        check_parts(&before);
        check_parts(&after);
        sw_plan_close(plan);
    }
}

static void states_are_the_papers(void **state)
{
    (void)state;
    const struct sw_paper wide = sw_paper_widths(SW_F32, &test_adam);
    const struct sw_paper bf16 = sw_paper_widths(SW_BF16, &test_adam);
    const struct sw_paper fp16 = sw_paper_widths(SW_F16, &test_adam);
    assert_true(wide.work == 4 && wide.grad == 4 && wide.states == 8);
    assert_true(bf16.work == 2 && bf16.grad == 2 && bf16.states == 12);
    assert_true(fp16.work == 2 && fp16.grad == 2 && fp16.states == 12);
    /* figure 1 of the paper: 7.5B parameters on 64 devices */
    assert_true(fabs(sw_paper_bytes(&bf16, 0, 7.5e9, 7.5e9, 64) - 120e9) < 1e6);
    assert_true(fabs(sw_paper_bytes(&bf16, 1, 7.5e9, 7.5e9, 64) - 31.4e9) < 1e8);
    assert_true(fabs(sw_paper_bytes(&bf16, 2, 7.5e9, 7.5e9, 64) - 16.6e9) < 1e8);
    assert_true(fabs(sw_paper_bytes(&bf16, 3, 7.5e9, 7.5e9, 64) - 1.9e9) < 1e8);
    for (int stage = 1; stage < 4; stage++) {
        /* without padding, our numbers are those of stages 2 and 3 */
        const struct sw_plan_options o = options(4, stage, 4);
        const struct sw_plan_table t = tabulate(tower(SW_BF16, 0, true), &o);
        const double elems = (double)t.elems;
        assert_true(states(&t) == sw_paper_bytes(&bf16, stage < 2 ? 2 : stage, elems, elems, 4));
        assert_true(t.padding == 0);
    }
}

static void own_rows_of_the_estimate(void **state)
{
    (void)state;
    struct sw_estimate e;
    struct sw_estimate_case c = {.stage = 2,
                                 .parameters = 1000003,
                                 .largest_layer = 1001,
                                 .ranks_per_node = 3,
                                 .nodes = 1,
                                 .buffer_factor = 1};
    assert_int_equal(sw_estimate(&c, &e), SW_OK);
    assert_true(e.device_bytes == 2 * 1000003 + 6 * 1000003 && e.layer_bytes == 0);
    assert_true(e.host_bytes_per_node == 12 * 1000003);
    c.offload_optimizer = true;
    assert_int_equal(sw_estimate(&c, &e), SW_OK);
    assert_true(e.device_bytes == 2 * 1000003 && e.host_bytes_per_node == 16 * 1000003);
    c.offload_param = true; /* not at stage 2 */
    assert_int_equal(sw_estimate(&c, &e), SW_E_ARG);
    c.stage = 3;
    c.zero_init = true;
    assert_int_equal(sw_estimate(&c, &e), SW_OK);
    assert_true(e.device_bytes == 4004 && e.host_bytes_per_node == 18 * 1000003);
    c.offload_optimizer = false; /* parameters are not offloaded alone */
    assert_int_equal(sw_estimate(&c, &e), SW_E_ARG);
    c.offload_param = false;
    c.stage = 1;
    assert_int_equal(sw_estimate(&c, &e), SW_E_ARG);
}

static void lack_of_memory_is_a_status(void **state)
{
    (void)state;
    struct sw_plan *plan = NULL;
    struct sw_plan_table table;
    const struct sw_plan_options o = options(2, 3, 2);
    const struct sw_program_spec spec = {SW_PROGRAM_TRAIN, tower(SW_F32, TIED, false)};
    assert_int_equal(plan_once(&spec, 1, &o, &plan), SW_OK);
    sw_status st = SW_E_NOMEM;
    for (int n = 1; st < 0; n++) { /* fails request n */
        assert_int_equal(st, SW_E_NOMEM);
        sw_alloc_fail_nth(n);
        st = sw_plan_tabulate(plan, &o, &table);
        sw_alloc_fail_nth(0);
        assert_true(n > 1 || st == SW_E_NOMEM);
    }
    sw_plan_close(plan);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(kinds_add_up_everywhere),
    cmocka_unit_test(sent_is_the_formula_where_it_holds),
    cmocka_unit_test(vertical_is_its_formula),
    cmocka_unit_test(what_stays_is_a_part_of_its_own),
    cmocka_unit_test(further_uses_stand_apart),
    cmocka_unit_test(momentum_of_matrices_is_a_part_of_its_own),
    cmocka_unit_test(other_exchanges_have_a_kind_of_their_own),
    cmocka_unit_test(states_are_the_papers),
    cmocka_unit_test(own_rows_of_the_estimate),
    cmocka_unit_test(lack_of_memory_is_a_status),
};

const struct test_program sw_tests = {TEST_TABLE(tests)};
