// SPDX-License-Identifier: Apache-2.0
// Tests the work of instructions: that of a small plan is counted by hand.
#include "plan/private.h"
#include "support/plans.h"
#include "support/test.h"

enum { WIDTH = 64, VOCAB = 11, TOKENS = 6, ROUNDS = 3 };

static void query(void *ctx, const struct sw_op_desc *desc, struct sw_kernel_info *out)
{
    (void)ctx;
    (void)desc;
    *out = (struct sw_kernel_info){.supported = true, .path = "none"};
}

/* pieces: elements of a piece of an update, 0 = all */
static struct sw_plan *plan_scheduled(enum sw_dtype dtype, enum sw_tier states, enum sw_tier params,
                                      int64_t pieces, bool vertical)
{
    const struct sw_graph_options options = {.dtype = dtype, .grad_dtype = dtype, .loss_chunk = 5};
    const struct sw_init init = {SW_INIT_NORMAL, 0.3};
    struct sw_graph *g = NULL;
    struct sw_plan *plan = NULL;
    assert_int_equal(sw_graph_open(&options, &g), SW_OK);
    const sw_value table = sw_param(g, "table", SW_SHAPE(VOCAB, WIDTH), init);
    sw_value h = sw_embedding(g, table, sw_input(g, "ids", SW_I32, SW_SHAPE(2, 3)), -1);
    h = sw_linear(g, h, sw_param(g, "w", SW_SHAPE(WIDTH, WIDTH), init), SW_NO_VALUE, true);
    const sw_value loss = sw_linear_cross_entropy(g, h, table, SW_NO_VALUE,
                                                  sw_input(g, "labels", SW_I32, SW_SHAPE(2, 3)), 0);
    sw_output(g, "loss", loss);
    assert_int_equal(sw_graph_backward(g, loss), SW_OK);
    const struct sw_plan_options plan_options = {.device = {query, NULL},
                                                 .policy.micro_batches = ROUNDS,
                                                 .rule = &test_adam,
                                                 .policy.stage = 3,
                                                 .policy.states_tier = states,
                                                 .policy.params_tier = params,
                                                 .policy.update_elems = pieces,
                                                 .policy.schedule = vertical ? SW_STEP_VERTICAL
                                                                             : SW_STEP_HORIZONTAL};
    const struct sw_program_spec spec = {SW_PROGRAM_TRAIN, g};
    if (plan_once(&spec, 1, &plan_options, &plan) < 0) {
        fail_msg("%s", sw_error_message());
    }
    return plan;
}

static struct sw_plan *plan_with(enum sw_dtype dtype, enum sw_tier states, enum sw_tier params,
                                 int64_t pieces)
{
    return plan_scheduled(dtype, states, params, pieces, false);
}

static struct sw_plan *plan_of(enum sw_dtype dtype, enum sw_tier states, enum sw_tier params)
{
    return plan_with(dtype, states, params, 0);
}

/* The work of a step with `rounds` micro-steps. */
static void sum_loads(const struct sw_plan *plan, int64_t rounds, double out[SW_LOAD_COUNT])
{
    const struct sw_program *program = &plan->programs[0];
    for (int k = 0; k < SW_LOAD_COUNT; k++) {
        out[k] = 0;
    }
    for (int32_t i = 0; i < program->n_instrs; i++) {
        const struct sw_instr *instr = &program->instrs[i];
        const bool once =
            instr->segment >= SW_SEGMENT_UPDATE || instr->last_only || program->micro_batches > 1;
        double work = 0;
        const enum sw_load kind = sw_instr_load(plan, program, i, &work);
        out[kind] += work * (double)sw_instr_pieces(program, instr) * (once ? 1 : (double)rounds);
    }
}

static int count_updates(const struct sw_plan *plan)
{
    const struct sw_program *program = &plan->programs[0];
    int n = 0;
    for (int32_t i = 0; i < program->n_instrs; i++) {
        n += program->ir->ops[program->instrs[i].op].kind == SW_OP_UPDATE;
    }
    return n;
}

/* Every piece gets the whole parameter and the whole row-sparse gradient. */
static void an_update_in_pieces_counts_once(void **state)
{
    (void)state;
    static const enum sw_dtype dtypes[] = {SW_F32, SW_BF16, SW_F16};
    static const enum sw_tier tiers[] = {SW_TIER_DEVICE, SW_TIER_HOST, SW_TIER_DISK};
    for (size_t i = 0; i < SW_LEN(dtypes) * SW_LEN(tiers); i++) {
        const enum sw_dtype dtype = dtypes[i % SW_LEN(dtypes)];
        const enum sw_tier params = tiers[i / SW_LEN(dtypes)];
        double loads[2][SW_LOAD_COUNT];
        struct sw_plan *whole = plan_with(dtype, SW_TIER_DISK, params, 0);
        struct sw_plan *pieces = plan_with(dtype, SW_TIER_DISK, params, 90);
        assert_int_equal(count_updates(whole), 2);
        assert_int_equal(count_updates(pieces), /* both are longer than 90 */
                         sw_ceil_div(WIDTH * WIDTH, 90) + sw_ceil_div(VOCAB * WIDTH, 90));
        sum_loads(whole, ROUNDS, loads[0]);
        sum_loads(pieces, ROUNDS, loads[1]);
        assert_memory_equal(loads[0], loads[1], sizeof loads[0]);
        assert_int_equal(whole->programs[0].flops, pieces->programs[0].flops);
        sw_plan_close(whole);
        sw_plan_close(pieces);
    }
}

/* The program then has all micro-batches of a rank. */
static void a_vertical_step_has_the_same_products(void **state)
{
    (void)state;
    double loads[2][SW_LOAD_COUNT];
    for (int i = 0; i < 2; i++) {
        struct sw_plan *plan = plan_scheduled(SW_F32, SW_TIER_DISK, SW_TIER_HOST, 0, i == 1);
        assert_int_equal(plan->programs[0].micro_batches, i == 1 ? ROUNDS : 1);
        sum_loads(plan, ROUNDS, loads[i]);
        sw_plan_close(plan);
    }
    assert_true(loads[0][SW_LOAD_PRODUCTS_F32] > 0);
    assert_true(loads[1][SW_LOAD_PRODUCTS_F32] == loads[0][SW_LOAD_PRODUCTS_F32]);
    assert_true(loads[1][SW_LOAD_OTHER] < 1.5 * loads[0][SW_LOAD_OTHER]);
}

static void work_is_what_a_hand_counts(void **state)
{
    (void)state;
    /* forward and two gradients of the linear; the loss, its logits again, and two gradients */
    const double products =
        3.0 * 2 * TOKENS * WIDTH * WIDTH + (1 + 3) * 2.0 * TOKENS * WIDTH * VOCAB;
    const double elems = WIDTH * WIDTH + VOCAB * WIDTH;
    double loads[SW_LOAD_COUNT];
    struct sw_plan *plan = plan_of(SW_F32, SW_TIER_DISK, SW_TIER_HOST);
    sum_loads(plan, ROUNDS, loads);
    assert_true(loads[SW_LOAD_PRODUCTS_F32] == ROUNDS * products);
    assert_true(loads[SW_LOAD_PRODUCTS_BF16] == 0 && loads[SW_LOAD_PRODUCTS_F16] == 0);
    assert_true(loads[SW_LOAD_OTHER] > 5 * 4 * elems); /* the update alone touches this much */
    /* two moments, read and written once a step */
    assert_true(loads[SW_LOAD_DISK_READ] == 2 * 4 * elems);
    assert_true(loads[SW_LOAD_DISK_WRITTEN] == 2 * 4 * elems);
    assert_true(loads[SW_LOAD_COPIES_OUT] == 2 * 4 * elems); /* parameters, read and written */
    assert_true(loads[SW_LOAD_COPIES_IN] > loads[SW_LOAD_COPIES_OUT]);
    assert_true(loads[SW_LOAD_SENT] == 0);
    const double other = loads[SW_LOAD_OTHER];
    sum_loads(plan, 2 * ROUNDS, loads); /* the update counts once */
    assert_true(loads[SW_LOAD_PRODUCTS_F32] == 2 * ROUNDS * products);
    assert_true(loads[SW_LOAD_OTHER] > other && loads[SW_LOAD_OTHER] < 2 * other);
    assert_true(loads[SW_LOAD_DISK_READ] == 2 * 4 * elems);
    sw_plan_close(plan);
    plan = plan_of(SW_BF16, SW_TIER_DEVICE, SW_TIER_DEVICE);
    sum_loads(plan, ROUNDS, loads);
    /* loss and gradient are one op (loss.c) */
    const double logits = 2.0 * TOKENS * WIDTH * VOCAB;
    assert_true(loads[SW_LOAD_PRODUCTS_BF16] == ROUNDS * (products - logits));
    assert_true(loads[SW_LOAD_PRODUCTS_F32] == 0);
    for (int k = SW_LOAD_COPIES_IN; k < SW_LOAD_COUNT; k++) {
        assert_true(loads[k] == 0);
    }
    sw_plan_close(plan);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(a_vertical_step_has_the_same_products),
    cmocka_unit_test(work_is_what_a_hand_counts),
    cmocka_unit_test(an_update_in_pieces_counts_once),
};

const struct test_program sw_tests = {TEST_TABLE(tests)};
