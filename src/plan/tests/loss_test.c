// SPDX-License-Identifier: Apache-2.0
// Tests when the loss over a vocabulary and its gradient become one op, and what the list is then.
#include "plan/private.h"

#include "support/plans.h"
#include "support/test.h"

enum { TOKENS = 16, WIDTH = 8, VOCAB = 40 };

/* A device that may lack the kernel, or whose kernel needs so much workspace. */
struct kernels {
    bool lacks;
    size_t workspace_bytes;
};

static void query(void *ctx, const struct sw_op_desc *desc, struct sw_kernel_info *out)
{
    const struct kernels *k = ctx;
    const bool is_both = desc->op->kind == SW_OP_LINEAR_CE_AT_ONCE;
    *out = (struct sw_kernel_info){.supported = !is_both || !k->lacks,
                                   .workspace_bytes = is_both ? k->workspace_bytes : 0,
                                   .path = "imagined"};
}

static struct sw_plan_options options(struct kernels *k)
{
    return (struct sw_plan_options){.device = {query, k},
                                    .policy = {.micro_batches = 1},
                                    .clip = 1,
                                    .rule = &test_adam,
                                    .kernel_set = "test"};
}

/* An embedding, a linear layer, and a loss over the vocabulary. */
static struct sw_graph *graph_of(bool has_bias)
{
    const struct sw_graph_options with = {.dtype = SW_F32, .grad_dtype = SW_F32, .training = true};
    const struct sw_init init = {SW_INIT_NORMAL, 0.1};
    struct sw_graph *g = NULL;
    assert_int_equal(sw_graph_open(&with, &g), SW_OK);
    const sw_value table = sw_param(g, "table", SW_SHAPE(VOCAB, WIDTH), init);
    const sw_value ids = sw_input(g, "ids", SW_I32, SW_SHAPE(1, TOKENS));
    const sw_value labels = sw_input(g, "labels", SW_I32, SW_SHAPE(1, TOKENS));
    const sw_value bias = has_bias ? sw_param(g, "bias", SW_SHAPE(VOCAB), init) : SW_NO_VALUE;
    sw_value h = sw_embedding(g, table, ids, -1);
    h = sw_linear(g, h, sw_param(g, "w", SW_SHAPE(WIDTH, WIDTH), init), SW_NO_VALUE, true);
    const sw_value loss = sw_linear_cross_entropy(g, h, table, bias, labels, 0);
    sw_output(g, "loss", loss);
    assert_int_equal(sw_graph_backward(g, loss), SW_OK);
    return g;
}

static struct sw_plan *plan_of(const struct sw_plan_options *o, bool has_bias)
{
    struct sw_plan *plan = NULL;
    const struct sw_program_spec spec = {SW_PROGRAM_TRAIN, graph_of(has_bias)};
    if (plan_once(&spec, 1, o, &plan) < 0) {
        fail_msg("%s", sw_error_message());
    }
    return plan;
}

/* Number of instructions of a kind in a segment. */
static int count(const struct sw_plan *plan, enum sw_op_kind kind, enum sw_segment segment)
{
    const struct sw_program *p = &plan->programs[0];
    int n = 0;
    for (int32_t i = 0; i < p->n_instrs; i++) {
        n += p->instrs[i].segment == segment && sw_ir_is(&p->ir->ops[p->instrs[i].op], kind);
    }
    return n;
}

static bool is_joined(const struct sw_plan *plan)
{
    return count(plan, SW_OP_LINEAR_CE_AT_ONCE, SW_SEGMENT_FORWARD) == 1;
}

static void loss_and_gradient_are_one_op_of_forward(void **state)
{
    (void)state;
    struct kernels has = {.lacks = false}, lacks = {.lacks = true};
    const struct sw_plan_options with = options(&has), without = options(&lacks);
    for (int has_bias = 0; has_bias < 2; has_bias++) {
        struct sw_plan *joined = plan_of(&with, has_bias), *apart = plan_of(&without, has_bias);
        assert_true(is_joined(joined));
        assert_int_equal(count(joined, SW_OP_SEED, SW_SEGMENT_FORWARD), 1);
        assert_int_equal(count(joined, SW_OP_LOSS_MEAN, SW_SEGMENT_FORWARD), 1);
        assert_int_equal(count(joined, SW_OP_LINEAR_CE, SW_SEGMENT_FORWARD), 0);
        assert_int_equal(count(joined, SW_OP_LINEAR_CE_GRAD, SW_SEGMENT_BACKWARD), 0);
        assert_int_equal(count(joined, SW_OP_LOSS_MEAN_GRAD, SW_SEGMENT_BACKWARD), 0);
        assert_false(is_joined(apart));
        assert_int_equal(count(apart, SW_OP_LINEAR_CE, SW_SEGMENT_FORWARD), 1);
        assert_int_equal(count(apart, SW_OP_LINEAR_CE_GRAD, SW_SEGMENT_BACKWARD), 1);
        assert_true(joined->fingerprint == apart->fingerprint);
        assert_int_equal(apart->programs[0].flops - joined->programs[0].flops,
                         2 * TOKENS * WIDTH * VOCAB + 1); /* logits; the mean's gradient */
        sw_plan_close(joined);
        sw_plan_close(apart);
    }
}

static void assert_apart(const struct sw_plan_options *o)
{
    struct sw_plan *plan = plan_of(o, false);
    assert_false(is_joined(plan));
    sw_plan_close(plan);
}

/* With several micro-batches in turn, each has its own forward just before its backward. */
static void it_depends_on_what_the_plan_keeps(void **state)
{
    (void)state;
    struct kernels has = {.lacks = false};
    const struct sw_plan_options plain = options(&has);
    struct sw_plan_options o = plain;
    o.policy.micro_batches = 3;
    struct sw_plan *plan = plan_of(&o, false);
    assert_true(is_joined(plan));
    sw_plan_close(plan);
    o.policy.schedule = SW_STEP_VERTICAL;
    assert_apart(&o);
    o = plain;
    o.policy.budget[SW_TIER_DEVICE] = 1 << 30;
    assert_apart(&o);
    o = plain;
    o.policy.states_tier = SW_TIER_HOST;
    assert_apart(&o);
    o.policy.grads_tier = SW_TIER_HOST;
    assert_apart(&o);
}

/* The largest workspace with which it is used makes the plan at most 2 % larger. */
static void a_plan_hardly_grows(void **state)
{
    (void)state;
    struct kernels k = {.lacks = true};
    const struct sw_plan_options o = options(&k);
    struct sw_plan *plan = plan_of(&o, false);
    const size_t apart = plan->tier_bytes[SW_TIER_DEVICE];
    int n_joined = 0, n = 0;
    sw_plan_close(plan);
    k.lacks = false;
    for (; k.workspace_bytes < 2 * apart; k.workspace_bytes += 256, n++) {
        plan = plan_of(&o, false);
        n_joined += is_joined(plan);
        assert_true(!is_joined(plan) || plan->tier_bytes[SW_TIER_DEVICE] <= apart + apart / 50);
        sw_plan_close(plan);
    }
    assert_in_range(n_joined, 1, n - 1);
}

static void survives_lack_of_memory(void **state)
{
    (void)state;
    struct kernels has = {.lacks = false};
    const struct sw_plan_options o = options(&has);
    struct sw_alloc_stats before, after;
    sw_alloc_get_stats(&before);
    for (int n = 1;; n++) {
        struct sw_plan *plan = NULL;
        const struct sw_program_spec spec = {SW_PROGRAM_TRAIN, graph_of(true)};
        sw_alloc_fail_nth(n);
        const sw_status st = plan_once(&spec, 1, &o, &plan);
        sw_alloc_fail_nth(0);
        if (st == SW_OK) {
            assert_true(is_joined(plan));
            sw_plan_close(plan);
            break;
        }
        assert_int_equal(st, SW_E_NOMEM);
    }
    sw_alloc_get_stats(&after);
    assert_int_equal(after.live_blocks, before.live_blocks);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(loss_and_gradient_are_one_op_of_forward),
    cmocka_unit_test(it_depends_on_what_the_plan_keeps),
    cmocka_unit_test(a_plan_hardly_grows),
    cmocka_unit_test(survives_lack_of_memory),
};

const struct test_program sw_tests = {TEST_TABLE(tests)};
