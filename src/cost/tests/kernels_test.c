// SPDX-License-Identifier: Apache-2.0
// Costs of kernels: what shapes leave of a product's speed, measured kernels, rates of the file and
// nothing else, and what kernels of other systems compute and move besides ours.
#include <math.h>
#include <string.h>

#include "cost/private.h"
#include "support/plans.h"
#include "support/test.h"

enum { BLOCKS = 2, BATCH = 4, TOKENS = 64, WIDTH = 128, HEADS = 2, INNER = 512, VOCAB = 256 };

static const char CLUSTER[] = "dgx2-v100";

static struct sw_cluster *cluster_of(void)
{
    struct sw_cluster *c = NULL;
    assert_int_equal(sw_cluster_open(CLUSTER, &c), SW_OK);
    return c;
}

static bool near(double a, double b)
{
    return fabs(a - b) <= 1e-9 * fabs(b);
}

/* ---- a decoder whose blocks backward recomputes ---- */

static sw_value linear(struct sw_graph *g, const char *name, sw_value x, int64_t from, int64_t to)
{
    char full[64];
    sw_scope_push(g, name);
    snprintf(full, sizeof full, "%s.weight", g->scopes[g->scope].name);
    const struct sw_init init = {SW_INIT_NORMAL, 0.1};
    const sw_value weight = sw_param(g, full, SW_SHAPE(from, to), init);
    x = sw_linear(g, x, weight, SW_NO_VALUE, true);
    sw_scope_pop(g);
    return x;
}

static sw_value block(struct sw_graph *g, int i, sw_value h, bool causal)
{
    const struct sw_attention_spec spec = {.heads = HEADS,
                                           .scale = 0.125,
                                           .causal = causal,
                                           .mask = SW_NO_VALUE,
                                           .position = SW_NO_VALUE,
                                           .slopes = SW_NO_VALUE,
                                           .segments = SW_NO_VALUE,
                                           .bias = SW_NO_VALUE};
    char name[16];
    snprintf(name, sizeof name, "h.%d", i);
    sw_scope_push_block(g, name);
    const sw_value qkv = linear(g, "qkv", h, WIDTH, 3 * WIDTH);
    h = sw_add(g, h, linear(g, "out", sw_attention_packed(g, qkv, &spec), WIDTH, WIDTH));
    const sw_value up = sw_act(g, linear(g, "up", h, WIDTH, INNER), SW_ACT_GELU);
    h = sw_add(g, h, linear(g, "down", up, INNER, WIDTH));
    sw_scope_pop(g);
    return h;
}

static struct sw_plan *plan_of(bool causal)
{
    const struct sw_graph_options graph = {.dtype = SW_F16, .grad_dtype = SW_F16, .training = true};
    const struct sw_init init = {SW_INIT_NORMAL, 0.1};
    const struct sw_shape rows = SW_SHAPE(VOCAB, WIDTH), ids = SW_SHAPE(BATCH, TOKENS);
    struct sw_graph *g;
    struct sw_plan *plan = NULL;
    assert_int_equal(sw_graph_open(&graph, &g), SW_OK);
    const sw_value table = sw_param(g, "table", rows, init);
    sw_value h = sw_embedding(g, table, sw_input(g, "ids", SW_I32, ids), -1);
    for (int i = 0; i < BLOCKS; i++) {
        h = block(g, i, h, causal);
    }
    const sw_value head = sw_param(g, "head", rows, init);
    const sw_value labels = sw_input(g, "labels", SW_I32, ids);
    const sw_value loss = sw_linear_cross_entropy(g, h, head, SW_NO_VALUE, labels, 0);
    sw_output(g, "loss", loss);
    assert_int_equal(sw_graph_backward(g, loss), SW_OK);
    const struct sw_program_spec spec = {SW_PROGRAM_TRAIN, g};
    const struct sw_plan_options options = {
        .device = {test_query, NULL},
        .policy = {.micro_batches = 1, .recompute = {.every = 1}},
        .rule = &test_adam,
        .kernel_set = "test"};
    if (plan_once(&spec, 1, &options, &plan) < 0) {
        fail_msg("%s", sw_error_message());
    }
    return plan;
}

/* Seconds of each instruction, [n_instrs]. */
static double *costs_of(const struct sw_plan *plan, const struct sw_cluster *cluster,
                        const struct sw_accounting *accounting)
{
    const int32_t n = plan->programs[0].n_instrs;
    const struct sw_cost_mesh mesh = {.cluster = cluster, .ranks = 1, .accounting = accounting};
    struct sw_cost(*costs)[2] = calloc((size_t)n, sizeof *costs);
    double *seconds = calloc((size_t)n, sizeof *seconds);
    assert_true(costs && seconds);
    assert_int_equal(sw_cost_instrs(plan, &mesh, costs), SW_OK);
    for (int32_t i = 0; i < n; i++) {
        seconds[i] = costs[i][0].seconds;
        assert_true(seconds[i] == costs[i][1].seconds);
    }
    free(costs);
    return seconds;
}

static bool is_kernel(const struct sw_plan *plan, int32_t i)
{
    return plan->programs[0].instrs[i].verb == SW_VERB_KERNEL;
}

static bool is_kind(const struct sw_plan *plan, int32_t i, enum sw_op_kind kind)
{
    return is_kernel(plan, i) && sw_instr_op(&plan->programs[0], i).math.kind == kind;
}

/* ---- shapes ---- */

/* No shape is faster than large products, and twice as much of anything never leaves a smaller
 * share. */
static void efficiency_grows_to_one(void **state)
{
    (void)state;
    struct sw_cluster *c = cluster_of();
    for (double m = 1; m < 1e5; m *= 3.7) {
        for (double n = 1; n < 1e5; n *= 4.3) {
            for (double k = 1; k < 1e6; k *= 11) {
                const double share = sw_cost_efficiency(c, SW_F16, m, n, k);
                assert_true(share > 0 && share <= 1);
                assert_true(sw_cost_efficiency(c, SW_F16, 2 * m, n, k) >= share);
                assert_true(sw_cost_efficiency(c, SW_F16, m, 2 * n, k) >= share);
                assert_true(sw_cost_efficiency(c, SW_F16, m, n, 2 * k) > share);
                assert_true(sw_cost_efficiency(c, SW_F16, m, n, k) ==
                            sw_cost_efficiency(c, SW_F16, n, m, k));
            }
        }
    }
    const double large = c->device.tile.value * c->device.processors.value;
    assert_true(sw_cost_efficiency(c, SW_F16, large, large, 1e9) > 1 - 1e-6);
    sw_cluster_close(c);
}

static void tiles_and_short_sums_leave_a_share(void **state)
{
    (void)state;
    struct sw_cluster *c = cluster_of();
    const double tile = c->device.tile.value, processors = c->device.processors.value;
    /* one block on one processor; half of the processors in the last of two rounds */
    assert_true(near(sw_cost_efficiency(c, SW_F16, tile, tile, 1e30), 1 / processors));
    assert_true(near(sw_cost_efficiency(c, SW_F16, tile * processors, tile, 1e30), 1));
    assert_true(near(sw_cost_efficiency(c, SW_F16, tile * processors * 1.5, tile, 1e30), 0.75));
    /* sums are counted in bytes */
    const double k = c->device.sum.value;
    assert_true(near(sw_cost_efficiency(c, SW_F16, tile * processors, tile, k / 2), 0.5));
    assert_true(near(sw_cost_efficiency(c, SW_F32, tile * processors, tile, k / 4), 0.5));
    for (double m = 1; m < 1e6; m *= 1.7) { /* more work never takes less time */
        const double a = m / sw_cost_efficiency(c, SW_F16, m, 1000, 64);
        const double b = m * 1.3 / sw_cost_efficiency(c, SW_F16, m * 1.3, 1000, 64);
        assert_true(b >= a * (1 - 1e-12));
    }
    c->device.tile.kind = c->device.sum.kind = SW_FIGURE_ABSENT;
    assert_true(sw_cost_efficiency(c, SW_F16, 1, 1, 1) == 1);
    sw_cluster_close(c);
}

/* ---- rates and measurements ---- */

/* A device that is twice as fast in all that the file says halves each kernel: nothing else, such
 * as this machine, counts. */
static void costs_follow_from_the_file_alone(void **state)
{
    (void)state;
    struct sw_plan *plan = plan_of(true);
    struct sw_cluster *c = cluster_of();
    double *once = costs_of(plan, c, NULL);
    for (int d = 0; d < SW_CLUSTER_DTYPES; d++) {
        c->device.peak[d].value *= 2;
    }
    c->device.bandwidth.value *= 2;
    c->device.launch.value /= 2;
    double *twice = costs_of(plan, c, NULL);
    int n = 0;
    for (int32_t i = 0; i < plan->programs[0].n_instrs; i++) {
        if (is_kernel(plan, i)) {
            assert_true(once[i] > 0 && near(twice[i], once[i] / 2));
            n++;
        }
    }
    assert_true(n > 20 * BLOCKS);
    free(once);
    free(twice);
    sw_cluster_close(c);
    sw_plan_close(plan);
}

/* The shapes and the dtype of the operands that an instruction has, as a file has them. */
static struct sw_cluster_kernel measured_like(const struct sw_plan *plan, int32_t i,
                                              struct sw_shape *shapes)
{
    struct sw_op op;
    struct sw_op_desc desc;
    sw_program_describe(&plan->programs[0], i, &op, &desc);
    struct sw_cluster_kernel out = {.op = sw_op_name(desc.op), .dtype = SW_F16, .shapes = shapes};
    for (int k = 0; k < op.n_in + op.n_out; k++) {
        const struct sw_view *v = k < op.n_in ? &desc.in[k] : &desc.out[k - op.n_in];
        if (v->shape.rank >= 0) {
            shapes[out.n_shapes++] = v->shape;
        }
    }
    return out;
}

static void a_measured_kernel_takes_its_time(void **state)
{
    (void)state;
    struct sw_plan *plan = plan_of(true);
    struct sw_cluster *c = cluster_of();
    struct sw_shape shapes[SW_MAX_INPUTS + SW_MAX_OUTPUTS];
    double *before = costs_of(plan, c, NULL);
    int32_t at = 0;
    while (!is_kind(plan, at, SW_OP_ATTENTION)) {
        at++;
    }
    struct sw_cluster_kernel kernel = measured_like(plan, at, shapes);
    kernel.seconds = 0.25;
    c->device.kernels = &kernel;
    c->device.n_kernels = 1;
    double *after = costs_of(plan, c, NULL);
    int n = 0;
    for (int32_t i = 0; i < plan->programs[0].n_instrs; i++) {
        const bool is_measured = is_kind(plan, i, SW_OP_ATTENTION);
        assert_true(after[i] == (is_measured ? 0.25 : before[i]));
        n += is_measured;
    }
    assert_int_equal(n, 2 * BLOCKS); /* forward, and again in backward */
    free(after);
    kernel.dtype = SW_F32;
    after = costs_of(plan, c, NULL);
    assert_true(after[at] == before[at]);
    kernel.dtype = SW_F16;
    shapes[0].dims[1]++;
    free(after);
    after = costs_of(plan, c, NULL);
    assert_true(after[at] == before[at]);
    free(before);
    free(after);
    sw_cluster_close(c);
    sw_plan_close(plan);
}

/* ---- kernels of other systems ---- */

/* Whole blocks: backward repeats each product of forward once. */
static void all_products_of_blocks_are_repeated(void **state)
{
    (void)state;
    static const struct sw_accounting whole = {.name = "whole", .whole_blocks = true};
    struct sw_plan *plan = plan_of(true);
    struct sw_cluster *c = cluster_of();
    double *ours = costs_of(plan, c, NULL), *theirs = costs_of(plan, c, &whole);
    double forward = 0, again = 0, added = 0;
    int n = 0;
    for (int32_t i = 0; i < plan->programs[0].n_instrs; i++) {
        added += theirs[i] - ours[i];
        if (is_kind(plan, i, SW_OP_MATMUL)) {
            const bool is_forward = plan->programs[0].instrs[i].segment == SW_SEGMENT_FORWARD;
            const bool is_clone = sw_instr_op(&plan->programs[0], i).is_clone;
            forward += is_forward ? ours[i] : 0;
            again += is_clone ? ours[i] : 0;
            n += is_forward;
        }
    }
    assert_int_equal(n, 4 * BLOCKS);
    assert_true(again > 0 && again < 0.9 * forward); /* ours leaves out the last one */
    assert_true(near(again + added, forward));
    free(ours);
    free(theirs);
    sw_cluster_close(c);
    sw_plan_close(plan);
}

/* Scores of all pairs, in 16 bits, pass memory so many times; those that a causal mask hides are
 * computed, too. */
static void scores_pass_memory(void **state)
{
    (void)state;
    static const struct sw_accounting passes = {
        .name = "scores", .scores_forward = 6, .scores_backward = 9};
    struct sw_cluster *c = cluster_of();
    const double once = 2.0 * BATCH * HEADS * TOKENS * TOKENS / c->device.bandwidth.value;
    for (int causal = 0; causal <= 1; causal++) {
        struct sw_plan *plan = plan_of(causal);
        double *ours = costs_of(plan, c, NULL), *theirs = costs_of(plan, c, &passes);
        int n = 0;
        for (int32_t i = 0; i < plan->programs[0].n_instrs; i++) {
            const bool is_backward = is_kind(plan, i, SW_OP_ATTENTION_GRAD);
            const bool is_attention = is_backward || is_kind(plan, i, SW_OP_ATTENTION);
            const double wanted = (1 + causal) * ours[i] + (is_backward ? 9 : 6) * once;
            assert_true(is_attention ? near(theirs[i], wanted) : theirs[i] == ours[i]);
            n += is_attention;
        }
        assert_int_equal(n, 3 * BLOCKS);
        free(ours);
        free(theirs);
        sw_plan_close(plan);
    }
    sw_cluster_close(c);
}

/* One of the three products of vocabulary size in a loss's backward computes logits. */
static void logits_are_kept(void **state)
{
    (void)state;
    static const struct sw_accounting keeps = {.name = "logits", .keeps_logits = true};
    struct sw_plan *plan = plan_of(true);
    struct sw_cluster *c = cluster_of();
    double *ours = costs_of(plan, c, NULL), *theirs = costs_of(plan, c, &keeps);
    int n = 0;
    for (int32_t i = 0; i < plan->programs[0].n_instrs; i++) {
        const bool is_loss = is_kind(plan, i, SW_OP_LINEAR_CE_GRAD);
        assert_true(is_loss ? near(theirs[i], ours[i] * 2 / 3) : theirs[i] == ours[i]);
        n += is_loss;
    }
    assert_int_equal(n, 1);
    free(ours);
    free(theirs);
    sw_cluster_close(c);
    sw_plan_close(plan);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(efficiency_grows_to_one),
    cmocka_unit_test(tiles_and_short_sums_leave_a_share),
    cmocka_unit_test(costs_follow_from_the_file_alone),
    cmocka_unit_test(a_measured_kernel_takes_its_time),
    cmocka_unit_test(all_products_of_blocks_are_repeated),
    cmocka_unit_test(scores_pass_memory),
    cmocka_unit_test(logits_are_kept),
};

const struct test_program sw_tests = {TEST_TABLE(tests)};
