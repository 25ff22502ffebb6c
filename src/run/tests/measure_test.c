// SPDX-License-Identifier: Apache-2.0
// Tests the measurements of a prediction. Every kernel that the plan uses is measured, also on a
// device whose memory the host cannot reach. Equal kernels have one cost. Nothing is left over.
#include "run/run.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "run/measure.h"
#include "support/plans.h"
#include "support/test.h"

static void query(void *ctx, const struct sw_op_desc *desc, struct sw_kernel_info *out)
{
    sw_device_query(ctx, desc, out);
}

static enum sw_dtype dtype_of_plans = SW_BF16;

/* Two equal blocks, a table with a row-sparse gradient, attention, and offloaded states. host:
 * updates states in host memory; NULL = the device does */
static struct sw_plan *plan_on(struct sw_device *dev, struct sw_device *host, enum sw_tier states,
                               struct sw_mesh mesh)
{
    static const int bounds[] = {0, 1, 2};
    static const char *const names[] = {"a", "b"};
    const struct sw_graph_options options = {
        .dtype = dtype_of_plans, .grad_dtype = dtype_of_plans, .training = true, .loss_chunk = 5};
    const struct sw_init init = {SW_INIT_NORMAL, 0.3};
    struct sw_graph *g = NULL;
    struct sw_plan *plan = NULL;
    assert_int_equal(sw_graph_open(&options, &g), SW_OK);
    const sw_value table = sw_param(g, "table", SW_SHAPE(11, 6), init);
    sw_value h = sw_embedding(g, table, sw_input(g, "ids", SW_I32, SW_SHAPE(2, 3)), -1);
    for (int i = 0; i < 2; i++) {
        sw_scope_push_block(g, names[i]);
        const sw_value qkv =
            sw_linear(g, h, sw_param(g, names[i], SW_SHAPE(6, 18), init), SW_NO_VALUE, true);
        const struct sw_attention_spec spec = {.heads = 2,
                                               .scale = 0.5,
                                               .causal = true,
                                               .dropout = 0.2,
                                               .mask = -1,
                                               .position = -1,
                                               .slopes = -1,
                                               .segments = -1,
                                               .bias = SW_NO_VALUE};
        h = sw_add(g, h, sw_attention_packed(g, qkv, &spec));
        sw_scope_pop(g);
    }
    const sw_value loss = sw_linear_cross_entropy(g, h, table, SW_NO_VALUE,
                                                  sw_input(g, "labels", SW_I32, SW_SHAPE(2, 3)), 0);
    sw_output(g, "loss", loss);
    assert_int_equal(sw_graph_backward(g, loss), SW_OK);
    const struct sw_plan_options plan_options = {.device = {query, dev},
                                                 .host = {host ? query : NULL, host},
                                                 .policy.host_updates = host != NULL,
                                                 .policy.micro_batches = 2,
                                                 .mesh = mesh,
                                                 .stage_blocks =
                                                     mesh.size[SW_AXIS_PIPE] > 1 ? bounds : NULL,
                                                 .clip = 0.5,
                                                 .rule = &test_adam,
                                                 .policy.stage = 3,
                                                 .policy.states_tier = states,
                                                 .policy.grads_tier = SW_TIER_HOST,
                                                 .policy.update_elems = 32,
                                                 .policy.transfer_bytes = 4096,
                                                 .staging_bytes = dev->staging_bytes};
    const struct sw_program_spec spec = {SW_PROGRAM_TRAIN, g};
    if (plan_once(&spec, 1, &plan_options, &plan) < 0) {
        fail_msg("%s", sw_error_message());
    }
    return plan;
}

static struct sw_plan *plan_of_ranks(struct sw_device *dev, struct sw_device *host,
                                     enum sw_tier states, int ranks)
{
    return plan_on(dev, host, states, sw_mesh_of_data(ranks));
}

static struct sw_plan *plan_of(struct sw_device *dev, struct sw_device *host, enum sw_tier states)
{
    return plan_of_ranks(dev, host, states, 1);
}

static void measure(const struct sw_plan *plan, struct sw_device *dev, struct sw_device *host,
                    const char *folder, struct sw_speeds *speeds)
{
    struct sw_swap_options swap = {.folders = &folder, .n_folders = 1};
    sw_nvme_options_init(&swap.nvme);
    const struct sw_measure_options options = {
        .devices = &dev, .hosts = &host, .n_devices = 1, .ranks = 1, .swap = &swap};
    if (sw_speeds_measure(plan, &options, speeds) < 0) {
        fail_msg("%s", sw_error_message());
    }
}

static bool is(const struct sw_instr *instr, const char *name, const char *tensor)
{
    return strcmp(instr->about->name, name) == 0 && instr->about->tensor &&
           strcmp(instr->about->tensor, tensor) == 0;
}

static void every_kernel_is_measured_once(void **state)
{
    (void)state;
    static const char *const names[] = {"cpu", "mock"};
    for (size_t d = 0; d < SW_LEN(names); d++) {
        struct sw_device *dev = NULL;
        assert_int_equal(sw_device_open(names[d], 2, &dev), SW_OK);
        struct sw_plan *plan = plan_of(dev, NULL, SW_TIER_HOST);
        struct sw_speeds speeds = {0};
        struct sw_cost a = {0}, b = {0};
        measure(plan, dev, NULL, ".", &speeds);
        const struct sw_program *program = &plan->programs[0];
        for (int32_t i = 0; i < program->n_instrs; i++) {
            const bool kernel = program->instrs[i].verb == SW_VERB_KERNEL;
            assert_int_equal(speeds.kernels[i][0].seconds > 0, kernel);
            assert_int_equal(speeds.kernels[i][1].seconds > 0, kernel);
            a = is(&program->instrs[i], "matmul", "a") ? speeds.kernels[i][0] : a;
            b = is(&program->instrs[i], "matmul", "b") ? speeds.kernels[i][0] : b;
        }
        assert_true(a.seconds > 0 && a.seconds == b.seconds);
        for (int c = SW_CURVE_COPY_IN; c <= SW_CURVE_COPY_OUT; c++) {
            const struct sw_rate_curve *curve = &speeds.curves[c];
            for (int k = 0; k < curve->n; k++) { /* a larger transfer is not faster */
                assert_true(curve->at[k].cost.seconds > 0);
                assert_true(k == 0 || (curve->at[k].bytes > curve->at[k - 1].bytes &&
                                       curve->at[k].cost.seconds >= curve->at[k - 1].cost.seconds));
            }
            assert_int_equal(curve->n, SW_CURVE_POINTS);
        }
        assert_int_equal(speeds.curves[SW_CURVE_READ].n, 0); /* there is no such work */
        assert_int_equal(speeds.curves[SW_CURVE_GATHER].n, 0);
        assert_int_equal(dev->live_bytes[SW_MEM_DEVICE] + dev->live_bytes[SW_MEM_HOST], 0);
        sw_speeds_close(&speeds);
        sw_plan_close(plan);
        sw_device_close(dev);
    }
}

/* ---- kernels that write NaN ---- */

enum { MOST_KERNELS = 127 };

struct spoiled { /* a prepared kernel, with its operands */
    const struct sw_kernel *kernel;
    struct sw_view operands[SW_MAX_INPUTS + SW_MAX_OUTPUTS];
    int n_in, n_out;
};

static const struct sw_device_ops *real;
static struct spoiled spoiled[MOST_KERNELS];
static int n_prepared, n_launches, n_nan;
static bool spoils;

static sw_status prepare(struct sw_device *dev, const struct sw_op_desc *desc,
                         struct sw_kernel **out)
{
    assert_true(n_prepared < MOST_KERNELS);
    struct spoiled *s = &spoiled[n_prepared++];
    const sw_status st = real->prepare(dev, desc, out);
    *s = (struct spoiled){.kernel = *out, .n_in = desc->op->n_in, .n_out = desc->op->n_out};
    for (int k = 0; k < s->n_in; k++) {
        s->operands[k] = desc->in[k];
    }
    for (int k = 0; k < s->n_out; k++) {
        s->operands[s->n_in + k] = desc->out[k];
    }
    return st;
}

static int64_t floats_of(const struct sw_view *view)
{
    return sw_dtype_is_float(view->dtype) ? sw_shape_elems(&view->shape) : 0;
}

/* Looks for NaN in its inputs; if it spoils, leaves NaN in its outputs. */
static sw_status launch(struct sw_device *dev, struct sw_stream_queue *on, struct sw_kernel *kernel,
                        void *const *in, void *const *out, void *workspace, double *scalars)
{
    const struct spoiled *s = NULL;
    for (int k = 0; k < n_prepared; k++) { /* the last one: memory is reused */
        s = spoiled[k].kernel == kernel ? &spoiled[k] : s;
    }
    n_launches++;
    for (int k = 0; k < s->n_in; k++) {
        for (int64_t i = 0; in[k] && i < floats_of(&s->operands[k]); i++) {
            const enum sw_dtype dtype = s->operands[k].dtype;
            float value;
            sw_convert(SW_F32, &value, dtype, (const char *)in[k] + i * sw_dtype_bytes(dtype), 1);
            n_nan += isnan(value);
        }
    }
    const sw_status st = real->launch(dev, on, kernel, in, out, workspace, scalars);
    for (int k = 0; k < s->n_out; k++) {
        const struct sw_view *view = &s->operands[s->n_in + k];
        if (spoils && out[k]) {
            memset(out[k], 0xff, (size_t)floats_of(view) * sw_dtype_bytes(view->dtype));
        }
    }
    return st;
}

/* No kernel meets NaN. In bf16, kernels that follow each other make none; in f16, what each of them
 * has written is overwritten. */
static void kernels_meet_ordinary_numbers(void **state)
{
    (void)state;
    for (int half = 0; half < 2; half++) {
        struct sw_device *dev = NULL;
        struct sw_speeds speeds = {
            .given.work = {[SW_LOAD_COPIES_IN] = 1e9, [SW_LOAD_COPIES_OUT] = 1e9}};
        assert_int_equal(sw_device_open("cpu", 1, &dev), SW_OK);
        dtype_of_plans = half ? SW_F16 : SW_BF16;
        struct sw_plan *plan = plan_of(dev, NULL, SW_TIER_HOST);
        struct sw_device_ops ops = *dev->ops;
        real = dev->ops;
        ops.prepare = prepare;
        ops.launch = launch;
        dev->ops = &ops;
        n_prepared = n_launches = n_nan = 0;
        spoils = half;
        measure(plan, dev, NULL, ".", &speeds);
        dev->ops = real;
        assert_true(n_launches > n_prepared);
        assert_int_equal(n_nan, 0);
        sw_speeds_close(&speeds);
        sw_plan_close(plan);
        sw_device_close(dev);
    }
    dtype_of_plans = SW_BF16;
}

/* ---- ranks of unequal speed ---- */

static const double delay_s = 0.001;

static sw_status launch_late(struct sw_device *dev, struct sw_stream_queue *on,
                             struct sw_kernel *kernel, void *const *in, void *const *out,
                             void *workspace, double *scalars)
{
    const struct timespec delay = {0, (long)(delay_s * 1e9)};
    nanosleep(&delay, NULL);
    return real->launch(dev, on, kernel, in, out, workspace, scalars);
}

static double long_delay_s;

static sw_status launch_slowly(struct sw_device *dev, struct sw_stream_queue *on,
                               struct sw_kernel *kernel, void *const *in, void *const *out,
                               void *workspace, double *scalars)
{
    const struct timespec delay = {0, (long)(long_delay_s * 1e9)};
    n_launches++;
    nanosleep(&delay, NULL);
    return real->launch(dev, on, kernel, in, out, workspace, scalars);
}

/* If a step takes more than 2 s, not all of its kernels run in each pass. */
static void a_long_step_is_not_run_as_a_whole(void **state)
{
    (void)state;
    struct sw_device *dev = NULL;
    struct sw_speeds speeds = {
        .given.work = {[SW_LOAD_COPIES_IN] = 1e9, [SW_LOAD_COPIES_OUT] = 1e9}};
    assert_int_equal(sw_device_open("cpu", 1, &dev), SW_OK);
    struct sw_plan *plan = plan_of(dev, NULL, SW_TIER_HOST);
    const struct sw_program *program = &plan->programs[0];
    struct sw_device_ops ops = *dev->ops;
    int n_kernels = 0;
    for (int32_t i = 0; i < program->n_instrs; i++) {
        n_kernels += program->instrs[i].verb == SW_VERB_KERNEL;
    }
    long_delay_s = 1.1 / n_kernels; /* two micro-steps take more than 2 s */
    real = dev->ops;
    ops.launch = launch_slowly;
    dev->ops = &ops;
    n_launches = 0;
    measure(plan, dev, NULL, ".", &speeds);
    dev->ops = real;
    for (int32_t i = 0; i < program->n_instrs; i++) {
        const bool kernel = program->instrs[i].verb == SW_VERB_KERNEL;
        for (int later = 0; later < 2 && kernel; later++) {
            assert_true(speeds.kernels[i][later].seconds >= long_delay_s);
        }
    }
    assert_in_range(n_launches, n_kernels, 3 * 2 * n_kernels - 1);
    sw_speeds_close(&speeds);
    sw_plan_close(plan);
    sw_device_close(dev);
}

struct two { /* of both ranks */
    const struct sw_plan *plan;
    struct sw_device *devs[2];
    struct sw_cost (*costs[2])[2];
};

/* Measures the products only. */
static sw_status measure_products(void *ctx, sw_comm *comm)
{
    const struct two *two = ctx;
    const int rank = sw_comm_rank(comm);
    const struct sw_machine_rates given = {.work = {[SW_LOAD_OTHER] = 1}};
    return sw_measure_kernels(two->plan, SW_QUEUE_COMPUTE, two->devs[rank], comm, &given,
                              two->costs[rank]);
}

/* The second of two ranks is slow. Returns the least time that was measured for a product on any
 * rank; both have the same. */
static double least_product(int ranks)
{
    struct two two = {.plan = NULL};
    double least = 1e9;
    for (int r = 0; r < 2; r++) {
        assert_int_equal(sw_device_open("cpu", 1, &two.devs[r]), SW_OK);
    }
    struct sw_plan *plan = plan_of_ranks(two.devs[0], NULL, SW_TIER_HOST, ranks);
    const struct sw_program *program = &plan->programs[0];
    two.plan = plan;
    for (int r = 0; r < 2; r++) {
        two.costs[r] = sw_alloc_zero("test", (size_t)program->n_instrs, sizeof *two.costs[r]);
        assert_non_null(two.costs[r]);
    }
    struct sw_device_ops ops = *two.devs[1]->ops;
    real = two.devs[1]->ops;
    ops.launch = launch_late;
    two.devs[1]->ops = &ops;
    assert_int_equal(sw_threads_run(2, 60, measure_products, &two), SW_OK);
    two.devs[1]->ops = real;
    for (int32_t i = 0; i < program->n_instrs; i++) {
        const double seconds = two.costs[0][i][0].seconds;
        assert_true(seconds == two.costs[1][i][0].seconds);
        least = seconds > 0 && seconds < least ? seconds : least;
    }
    sw_plan_close(plan);
    for (int r = 0; r < 2; r++) {
        sw_free(two.costs[r]);
        sw_device_close(two.devs[r]);
    }
    return least;
}

/* Ranks that exchange gradients wait for the slowest. Without exchanges the mean counts. */
static void the_slowest_rank_counts(void **state)
{
    (void)state;
    const double meeting = least_product(2), alone = least_product(1);
    assert_true(meeting >= delay_s && meeting < 1e9);
    assert_true(alone >= delay_s / 2 && alone < 1e9);
}

/* The factor for two ranks with four spans each. */
static double slower(const double *first, const double *second, const size_t *until)
{
    double seconds[2][4];
    memcpy(seconds[0], first, sizeof seconds[0]);
    memcpy(seconds[1], second, sizeof seconds[1]);
    return sw_slowest_over_mean(seconds[0], until, 4, 2);
}

/* Ranks that are slow in turns wait for each other if they meet often, and not if they meet
 * rarely, or need of others only what these have done a while ago. */
static void the_slowest_may_change(void **state)
{
    (void)state;
    const double odd[4] = {1, 3, 1, 3}, even[4] = {3, 1, 3, 1}, one[4] = {1, 1, 1, 1},
                 three[4] = {3, 3, 3, 3}, late[4] = {1, 1, 1, 5};
    const size_t each[4] = {1, 2, 3, 4}, rarely[4] = {0, 2, 0, 4}, ago[4] = {0, 1, 2, 3};
    assert_true(slower(odd, even, each) == 1.5);
    assert_true(slower(odd, even, rarely) == 1);
    assert_true(slower(odd, even, ago) == 1);
    assert_true(slower(one, three, each) == 1.5);
    assert_true(slower(one, three, ago) == 1.5);
    assert_true(slower(late, three, each) == 14.0 / 10);
    assert_true(slower(late, three, ago) == 12.0 / 10);
    assert_true(sw_slowest_over_mean(NULL, NULL, 0, 2) == 1);
}

/* Both sides of a message are measured if the plan has messages. */
static void messages_are_measured(void **state)
{
    (void)state;
    struct sw_device *devs[2] = {NULL, NULL};
    for (int r = 0; r < 2; r++) {
        assert_int_equal(sw_device_open("cpu", 1, &devs[r]), SW_OK);
    }
    struct sw_plan *plan =
        plan_on(devs[0], NULL, SW_TIER_DEVICE, (struct sw_mesh){.size = {[SW_AXIS_PIPE] = 2}});
    const struct sw_measure_options options = {.devices = devs, .n_devices = 2, .ranks = 2};
    struct sw_speeds speeds = {.given.work = {0}};
    assert_int_equal(sw_speeds_measure(plan, &options, &speeds), SW_OK);
    for (int c = SW_CURVE_SEND; c <= SW_CURVE_RECEIVE; c++) {
        const struct sw_rate_curve *curve = &speeds.curves[c];
        assert_int_equal(curve->n, SW_CURVE_POINTS);
        for (int k = 0; k < curve->n; k++) {
            assert_true(curve->at[k].cost.seconds > 0 && curve->at[k].cost.cores >= 0);
            assert_true(k == 0 || curve->at[k].cost.seconds >= curve->at[k - 1].cost.seconds);
        }
    }
    sw_speeds_close(&speeds);
    sw_plan_close(plan);
    sw_device_close(devs[0]);
    sw_device_close(devs[1]);
}

/* Processors update in their own memory, beside a device whose memory they cannot reach. */
static void updates_on_the_host_are_measured(void **state)
{
    (void)state;
    struct sw_device *dev = NULL, *host = NULL;
    struct sw_clock_report report;
    bool unknown[SW_LOAD_COUNT];
    assert_int_equal(sw_device_open("mock", 1, &dev), SW_OK);
    assert_int_equal(sw_device_open("cpu", 1, &host), SW_OK);
    struct sw_plan *plan = plan_of(dev, host, SW_TIER_HOST);
    struct sw_speeds speeds = {0};
    measure(plan, dev, host, ".", &speeds);
    const struct sw_program *program = &plan->programs[0];
    int n = 0;
    for (int32_t i = 0; i < program->n_instrs; i++) {
        const bool on_host = program->instrs[i].queue == SW_QUEUE_HOST;
        n += on_host;
        assert_true(!on_host || speeds.kernels[i][0].seconds > 0);
    }
    assert_true(n > 0);
    assert_int_equal(sw_speeds_step(plan, &speeds, unknown, &report), SW_OK);
    assert_false(unknown[SW_LOAD_HOST]);
    assert_true(report.alone[SW_QUEUE_HOST] > 0);
    sw_free(report.instrs);
    sw_speeds_close(&speeds);
    /* Given rates have priority, and nothing is left over. */
    speeds = (struct sw_speeds){.given.work = {[SW_LOAD_HOST] = 1e9}};
    measure(plan, dev, NULL, ".", &speeds);
    for (int32_t i = 0; i < program->n_instrs; i++) {
        assert_true(program->instrs[i].queue != SW_QUEUE_HOST || speeds.kernels[i][0].seconds == 0);
    }
    sw_speeds_close(&speeds);
    assert_int_equal(host->live_bytes[SW_MEM_DEVICE] + host->live_bytes[SW_MEM_HOST], 0);
    sw_plan_close(plan);
    sw_device_close(host);
    sw_device_close(dev);
}

/* How long copies delay kernels is measured with the copies. */
static void kernels_run_beside_copies(void **state)
{
    (void)state;
    struct sw_device *dev = NULL;
    assert_int_equal(sw_device_open("cpu", 2, &dev), SW_OK);
    struct sw_plan *plan = plan_of(dev, NULL, SW_TIER_HOST);
    struct sw_speeds speeds = {0};
    measure(plan, dev, NULL, ".", &speeds);
    assert_true(isfinite(speeds.yield) && speeds.yield >= 0);
    sw_speeds_close(&speeds);
    speeds =
        (struct sw_speeds){.given.work = {[SW_LOAD_COPIES_IN] = 1e9, [SW_LOAD_COPIES_OUT] = 1e9}};
    measure(plan, dev, NULL, ".", &speeds);
    assert_float_equal(speeds.yield, 0, 0);
    sw_speeds_close(&speeds);
    assert_int_equal(dev->live_bytes[SW_MEM_DEVICE] + dev->live_bytes[SW_MEM_HOST], 0);
    sw_plan_close(plan);
    sw_device_close(dev);
}

/* A disk file may be shorter than the transfers that are tried. */
static void what_is_given_is_not_measured(void **state)
{
    (void)state;
    char folder[] = "/tmp/spillway-measure-XXXXXX";
    struct sw_device *dev = NULL;
    struct sw_clock_report report;
    bool unknown[SW_LOAD_COUNT];
    assert_non_null(mkdtemp(folder));
    assert_int_equal(sw_device_open("cpu", 1, &dev), SW_OK);
    struct sw_plan *plan = plan_of(dev, NULL, SW_TIER_DISK);
    struct sw_speeds speeds = {.given.work = {[SW_LOAD_PRODUCTS_BF16] = 1e9,
                                              [SW_LOAD_OTHER] = 1e9,
                                              [SW_LOAD_COPIES_IN] = 1e9,
                                              [SW_LOAD_COPIES_OUT] = 1e9}};
    measure(plan, dev, NULL, folder, &speeds);
    for (int32_t i = 0; i < plan->programs[0].n_instrs; i++) {
        assert_true(speeds.kernels[i][0].seconds == 0);
    }
    assert_int_equal(speeds.curves[SW_CURVE_COPY_IN].n, 0);
    assert_true(speeds.curves[SW_CURVE_READ].n > 0 && speeds.curves[SW_CURVE_WRITE].n > 0);
    assert_int_equal(sw_speeds_step(plan, &speeds, unknown, &report), SW_OK);
    for (int k = 0; k < SW_LOAD_COUNT; k++) {
        assert_false(unknown[k]);
    }
    assert_true(report.alone[SW_QUEUE_READ] > 0 && report.alone[SW_QUEUE_WRITE] > 0);
    sw_free(report.instrs);
    sw_speeds_close(&speeds);
    sw_plan_close(plan);
    sw_device_close(dev);
    assert_int_equal(rmdir(folder), 0);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(every_kernel_is_measured_once),
    cmocka_unit_test(kernels_meet_ordinary_numbers),
    cmocka_unit_test(the_slowest_rank_counts),
    cmocka_unit_test(the_slowest_may_change),
    cmocka_unit_test(a_long_step_is_not_run_as_a_whole),
    cmocka_unit_test(messages_are_measured),
    cmocka_unit_test(updates_on_the_host_are_measured),
    cmocka_unit_test(kernels_run_beside_copies),
    cmocka_unit_test(what_is_given_is_not_measured),
};

const struct test_program sw_tests = {TEST_TABLE(tests)};
