// SPDX-License-Identifier: Apache-2.0
// Tests which values backward recomputes instead of keeping them: plans of small graphs with and
// without the pass.
#include "plan/private.h"

#include "support/plans.h"
#include "support/test.h"

enum { TOKENS = 16, WIDTH = 8, INNER = 32, LAYERS = 3 };

static void query(void *ctx, const struct sw_op_desc *desc, struct sw_kernel_info *out)
{
    (void)ctx;
    (void)desc;
    *out = (struct sw_kernel_info){.supported = true, .path = "imagined"};
}

static struct sw_plan_options options(void)
{
    return (struct sw_plan_options){.device = {query, NULL},
                                    .policy = {.micro_batches = 1},
                                    .clip = 1,
                                    .rule = &test_adam,
                                    .kernel_set = "test"};
}

struct model {
    enum sw_dtype dtype;
    bool gated, drops; /* in the MLP */
};

static sw_value vector(struct sw_graph *g, const char *what, int i, int64_t n)
{
    char name[32];
    snprintf(name, sizeof name, "%s.%d", what, i);
    return sw_param(g, name, SW_SHAPE(n), (struct sw_init){SW_INIT_NORMAL, 1});
}

static sw_value matrix(struct sw_graph *g, const char *what, int i, int64_t rows, int64_t columns)
{
    char name[32];
    snprintf(name, sizeof name, "%s.%d", what, i);
    return sw_param(g, name, SW_SHAPE(rows, columns), (struct sw_init){SW_INIT_NORMAL, 0.1});
}

/* Norm, MLP, residual, LAYERS times, then a head. */
static struct sw_graph *graph_of(const struct model *m)
{
    const struct sw_graph_options with = {
        .dtype = m->dtype, .grad_dtype = m->dtype, .training = true};
    struct sw_graph *g;
    assert_int_equal(sw_graph_open(&with, &g), SW_OK);
    const sw_value table = matrix(g, "table", 0, 19, WIDTH);
    sw_value h = sw_embedding(g, table, sw_input(g, "ids", SW_I32, SW_SHAPE(1, TOKENS)), -1);
    for (int i = 0; i < LAYERS; i++) {
        char name[32];
        snprintf(name, sizeof name, "h.%d", i);
        sw_scope_push_block(g, name);
        sw_value x =
            sw_layer_norm(g, h, vector(g, "w", i, WIDTH), vector(g, "bias", i, WIDTH), 1e-5);
        const sw_value up =
            sw_linear(g, x, matrix(g, "up", i, WIDTH, INNER), vector(g, "up_bias", i, INNER), true);
        if (m->gated) {
            const sw_value gate = matrix(g, "gate", i, WIDTH, INNER);
            x = sw_gated_act(g, sw_linear(g, x, gate, SW_NO_VALUE, true), up, SW_ACT_SILU);
        } else {
            x = sw_act(g, up, SW_ACT_GELU);
        }
        x = m->drops ? sw_dropout(g, x, 0.1) : x;
        x = sw_linear(g, x, matrix(g, "down", i, INNER, WIDTH), SW_NO_VALUE, true);
        h = sw_add(g, h, x);
        sw_scope_pop(g);
    }
    h = sw_layer_norm(g, h, vector(g, "last_w", 0, WIDTH), vector(g, "last_bias", 0, WIDTH), 1e-5);
    const sw_value labels = sw_input(g, "labels", SW_I32, SW_SHAPE(1, TOKENS));
    const sw_value loss = sw_linear_cross_entropy(g, h, table, SW_NO_VALUE, labels, 0);
    sw_output(g, "loss", loss);
    assert_int_equal(sw_graph_backward(g, loss), SW_OK);
    return g;
}

static struct sw_plan *plan_of(const struct model *m, const struct sw_plan_options *o)
{
    struct sw_plan *plan = NULL;
    const struct sw_program_spec spec = {SW_PROGRAM_TRAIN, graph_of(m)};
    if (plan_once(&spec, 1, o, &plan) < 0) {
        fail_msg("%s", sw_error_message());
    }
    return plan;
}

static const struct sw_ir_op *op_of(const struct sw_program *program, int32_t i)
{
    return &program->ir->ops[program->instrs[i].op];
}

static int count_clones(const struct sw_program *program, enum sw_op_kind kind)
{
    int n = 0;
    for (int32_t i = 0; i < program->n_instrs; i++) {
        n += op_of(program, i)->is_clone && sw_ir_is(op_of(program, i), kind);
    }
    return n;
}

static int count_moves(const struct sw_program *program)
{
    int n = 0;
    for (int32_t i = 0; i < program->n_instrs; i++) {
        n += op_of(program, i)->move != SW_MOVE_NONE;
    }
    return n;
}

/* Every clone is placed before an instruction that reads it, or before another clone. */
static void assert_clones_stand_before_readers(const struct sw_program *program)
{
    for (int32_t i = 0; i + 1 < program->n_instrs; i++) {
        const struct sw_ir_op *next = op_of(program, i + 1);
        bool reads = next->is_clone;
        for (int k = 0; k < next->n_in; k++) {
            reads |= next->in[k] == op_of(program, i)->out[0];
        }
        assert_true(!op_of(program, i)->is_clone || reads);
    }
}

static const struct model models[] = {{SW_F32, false, false}, {SW_F32, true, false},
                                      {SW_F32, false, true},  {SW_BF16, true, false},
                                      {SW_BF16, true, true},  {SW_F64, false, false}};

static void it_saves_bytes_and_keeps_the_fingerprint(void **state)
{
    (void)state;
    for (size_t i = 0; i < SW_LEN(models); i++) {
        struct sw_plan_options o = options();
        struct sw_plan *less = plan_of(&models[i], &o);
        o.keep_cheap = true;
        struct sw_plan *all = plan_of(&models[i], &o);
        assert_int_equal(all->programs[0].remade.n, 0);
        assert_true(less->programs[0].remade.n >= 2 * LAYERS);
        assert_true(less->programs[0].n_instrs > all->programs[0].n_instrs);
        assert_true(less->programs[0].peak.bytes[SW_TIER_DEVICE] <
                    all->programs[0].peak.bytes[SW_TIER_DEVICE]);
        assert_true(less->programs[0].flops > all->programs[0].flops);
        assert_true(less->fingerprint == all->fingerprint);
        assert_clones_stand_before_readers(&less->programs[0]);
        sw_plan_close(less);
        sw_plan_close(all);
    }
}

/* The loss reads the final norm, and its gradient follows at once. */
static void what_no_product_lies_between_is_kept(void **state)
{
    (void)state;
    const struct sw_plan_options o = options();
    struct sw_plan *plan = plan_of(&models[0], &o);
    assert_int_equal(count_clones(&plan->programs[0], SW_OP_LAYER_NORM), LAYERS);
    assert_int_equal(count_clones(&plan->programs[0], SW_OP_ACT), LAYERS);
    assert_int_equal(plan->programs[0].remade.n, 2 * LAYERS);
    sw_plan_close(plan);
}

/* The product rounds what backward reads, while the activation got the unrounded value. */
static void in_16_bits_a_joined_activation_is_kept(void **state)
{
    (void)state;
    const struct sw_plan_options o = options();
    for (enum sw_dtype dtype = SW_BF16; dtype <= SW_F16; dtype++) {
        const struct model m = {.dtype = dtype};
        struct sw_plan *plan = plan_of(&m, &o);
        assert_int_equal(count_clones(&plan->programs[0], SW_OP_ACT), 0);
        assert_int_equal(count_clones(&plan->programs[0], SW_OP_LAYER_NORM), LAYERS);
        sw_plan_close(plan);
    }
}

/* The dropout's input is not kept either: its activation is recomputed. */
static void an_op_may_run_for_another_one(void **state)
{
    (void)state;
    const struct sw_plan_options o = options();
    struct sw_plan *plan = plan_of(&models[2], &o);
    const struct sw_program *program = &plan->programs[0];
    int in_line = 0;
    for (int32_t i = 0; i + 1 < program->n_instrs; i++) {
        const struct sw_ir_op *act = op_of(program, i), *drop = op_of(program, i + 1);
        in_line += act->is_clone && sw_ir_is(act, SW_OP_ACT) && drop->is_clone &&
                   sw_ir_is(drop, SW_OP_DROPOUT) && drop->in[0] == act->out[0];
    }
    assert_int_equal(in_line, LAYERS);
    sw_plan_close(plan);
}

/* The clones of a group count as its forward. Backward begins with the last block of the group,
 * whose activation it reads at once. */
static void a_block_that_runs_again_keeps_as_little(void **state)
{
    (void)state;
    for (int every = 1; every <= LAYERS; every++) {
        struct sw_plan_options o = options();
        o.policy.recompute.every = every;
        struct sw_plan *less = plan_of(&models[0], &o);
        o.keep_cheap = true;
        struct sw_plan *all = plan_of(&models[0], &o);
        const int n_groups = (LAYERS + every - 1) / every;
        assert_int_equal(count_clones(&less->programs[0], SW_OP_ACT), LAYERS - n_groups);
        assert_int_equal(count_clones(&less->programs[0], SW_OP_LAYER_NORM), 2 * LAYERS);
        assert_true(less->programs[0].peak.bytes[SW_TIER_DEVICE] <
                    all->programs[0].peak.bytes[SW_TIER_DEVICE]);
        sw_plan_close(less);
        sw_plan_close(all);
    }
}

/* No gradient reads the norm's bias. A parameter that is on the device anyway may be read again. */
static void nothing_is_gathered_or_loaded_for_it(void **state)
{
    (void)state;
    for (int way = 0; way < 4; way++) {
        struct sw_plan_options o = options();
        o.policy.stage = 3;
        o.mesh = sw_mesh_of_data(way % 2 == 0 ? 2 : 1);
        o.policy.params_tier = way % 2 == 0 ? SW_TIER_DEVICE : SW_TIER_HOST;
        o.limits.persistence_elems = way < 2 ? 0 : WIDTH;
        o.limits.persistence_total = INT64_MAX;
        struct sw_plan *less = plan_of(&models[0], &o);
        o.keep_cheap = true;
        struct sw_plan *all = plan_of(&models[0], &o);
        assert_int_equal(count_clones(&less->programs[0], SW_OP_LAYER_NORM), way < 2 ? 0 : LAYERS);
        assert_int_equal(count_clones(&less->programs[0], SW_OP_ACT), LAYERS);
        assert_int_equal(count_moves(&less->programs[0]), count_moves(&all->programs[0]));
        sw_plan_close(less);
        sw_plan_close(all);
    }
}

/* An input is live while something reads it. If backward read it, too, it would have to be kept. */
static void an_input_is_not_kept_for_it(void **state)
{
    (void)state;
    const struct sw_graph_options with = {.dtype = SW_F32, .grad_dtype = SW_F32, .training = true};
    const struct sw_plan_options o = options();
    struct sw_graph *g;
    assert_int_equal(sw_graph_open(&with, &g), SW_OK);
    const sw_value x = sw_input(g, "x", SW_F32, SW_SHAPE(TOKENS, WIDTH));
    const sw_value w = matrix(g, "w", 0, 2 * WIDTH, WIDTH);
    const sw_value both = sw_concat(g, (const sw_value[]){sw_scale(g, x, 2), x}, 2, 1);
    const sw_value h = sw_linear(g, both, w, SW_NO_VALUE, true);
    const sw_value labels = sw_input(g, "labels", SW_I32, SW_SHAPE(TOKENS));
    const sw_value loss = sw_cross_entropy(g, sw_act(g, h, SW_ACT_TANH), labels);
    assert_int_equal(sw_graph_backward(g, loss), SW_OK);
    const struct sw_program_spec spec = {SW_PROGRAM_TRAIN, g};
    struct sw_plan *plan = NULL;
    assert_int_equal(plan_once(&spec, 1, &o, &plan), SW_OK);
    assert_int_equal(count_clones(&plan->programs[0], SW_OP_SCALE), 0);
    sw_plan_close(plan);
}

static void micro_batches_of_a_block_make_their_own(void **state)
{
    (void)state;
    struct sw_plan_options o = options();
    o.policy.schedule = SW_STEP_VERTICAL;
    o.policy.micro_batches = 3;
    struct sw_plan *plan = plan_of(&models[1], &o);
    assert_int_equal(count_clones(&plan->programs[0], SW_OP_GATED_ACT), 3 * LAYERS);
    assert_clones_stand_before_readers(&plan->programs[0]);
    sw_plan_close(plan);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(it_saves_bytes_and_keeps_the_fingerprint),
    cmocka_unit_test(what_no_product_lies_between_is_kept),
    cmocka_unit_test(in_16_bits_a_joined_activation_is_kept),
    cmocka_unit_test(an_op_may_run_for_another_one),
    cmocka_unit_test(a_block_that_runs_again_keeps_as_little),
    cmocka_unit_test(nothing_is_gathered_or_loaded_for_it),
    cmocka_unit_test(an_input_is_not_kept_for_it),
    cmocka_unit_test(micro_batches_of_a_block_make_their_own),
};

const struct test_program sw_tests = {TEST_TABLE(tests)};
