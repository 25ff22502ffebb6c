// SPDX-License-Identifier: Apache-2.0
// Updates of small tensors on a GPU: neighbours take one launch, give the bits that each has alone,
// and let nothing pass that touches the same bytes.
#include <stdlib.h>
#include <string.h>

#include "device/gpu/gpu.h"
#include "device/gpu/module/module.h"
#include "device/gpu/open.h"
#include "device/tests/op_cases.h"
#include "support/test.h"

/* Launches of each kernel; tests run on one thread. */
static int n_launched[GPU_N_KERNELS];
static int (*launch_of_module)(int device, void *stream, const struct sw_gpu_kernel *kernel,
                               enum sw_gpu_type type, const struct sw_gpu_launch *launch);

static int count_launch(int device, void *stream, const struct sw_gpu_kernel *kernel,
                        enum sw_gpu_type type, const struct sw_gpu_launch *launch)
{
    n_launched[kernel->id]++;
    return launch_of_module(device, stream, kernel, type, launch);
}

static struct sw_gpu_module counting;

static struct sw_device *open_counting(const char *name)
{
    struct sw_device *dev = NULL;
    if (sw_gpu_open(name, 0, 1, &dev) < 0) {
        print_message("skipped: %s\n", sw_error_message());
        exit(77);
    }
    struct gpu_device *gpu = SW_CONTAINER(dev, struct gpu_device, super);
    counting = *gpu->module;
    launch_of_module = counting.launch;
    counting.launch = count_launch;
    gpu->module = &counting;
    return dev;
}

static void run_alone(struct sw_device *dev, const struct op_case *cases, int n,
                      struct op_case *results)
{
    for (int k = 0; k < n; k++) {
        assert_int_equal(case_run(dev, &cases[k], &results[k]), SW_OK);
    }
    memset(n_launched, 0, sizeof n_launched);
}

static void check_and_free(struct op_case *cases, struct op_case *want, struct op_case *got, int n)
{
    for (int k = 0; k < n; k++) {
        for (int i = 0; i < cases[k].op.n_out; i++) {
            if (!case_same_bits(&got[k], &want[k], i)) {
                fail_msg("%s: output %d has other bits among neighbours", cases[k].name, i);
            }
        }
        case_fini(&got[k]);
        case_fini(&want[k]);
        case_fini(&cases[k]);
    }
}

/* Of the variants of UPDATE, rules with dense streams; skipped, too, where fp16 copies are written
 * all the same. */
static void neighbours_take_one_launch_and_keep_their_bits(void **state)
{
    enum { N = 50 };
    static const enum sw_dtype dtypes[] = {SW_F32, SW_BF16, SW_F16};
    static const char *const emus[] = {"emu32", "emu64"};
    static struct op_case cases[N], want[N], got[N];
    (void)state;
    for (size_t t = 0; t < 2 * SW_LEN(emus) * SW_LEN(dtypes); t++) {
        struct sw_device *dev = open_counting(emus[t % 2]);
        for (int k = 0; k < N; k++) {
            assert_true(op_cases[SW_OP_UPDATE](&cases[k], dtypes[t / 4], 0));
            cases[k].shift = 8 * (k % 5);
            cases[k].scalars[SW_SCALAR_SKIP] = t / 2 % 2;
        }
        run_alone(dev, cases, N, want);
        assert_int_equal(case_run_many(dev, cases, N, got), SW_OK);
        assert_int_equal(n_launched[GPU_update], 0);
        assert_int_equal(n_launched[GPU_update_many], (N + GPU_UPDATE_MANY - 1) / GPU_UPDATE_MANY);
        check_and_free(cases, want, got, N);
        sw_device_close(dev);
    }
}

/* Another rule begins another launch; what is no small dense update goes by itself, and need not
 * wait. */
static void other_updates_go_by_themselves(void **state)
{
    static const int variants[] = {0, 0, 2, 0, 4, 4, 1};
    enum { N = SW_LEN(variants) };
    struct sw_device *dev = open_counting("emu32");
    static struct op_case cases[N], want[N], got[N];
    (void)state;
    for (int k = 0; k < N; k++) {
        assert_true(op_cases[SW_OP_UPDATE](&cases[k], SW_BF16, variants[k]));
        memcpy(cases[k].scalars, cases[0].scalars, sizeof cases[k].scalars);
    }
    run_alone(dev, cases, N, want);
    assert_int_equal(case_run_many(dev, cases, N, got), SW_OK);
    assert_int_equal(n_launched[GPU_update], 2);      /* row-sparse streams */
    assert_int_equal(n_launched[GPU_update_many], 2); /* of three, of two */
    check_and_free(cases, want, got, N);
    sw_device_close(dev);
}

/* p = p - lr g, twice on the same bytes: the second sees what the first wrote. */
static void updates_of_the_same_bytes_follow_each_other(void **state)
{
    enum { N = 5, ROOM = 1024 };
    struct sw_device *dev = open_counting("emu32");
    struct sw_stream_queue *on;
    struct sw_kernel *kernel;
    struct op_case c;
    void *mem;
    float param[N] = {1, 2, 3, 4, 5};
    const float g[N] = {1, 1, 2, 2, 4};
    double scalars[SW_SCALAR_COUNT] = {[SW_SCALAR_LR] = 0.5,
                                       [SW_SCALAR_STEP] = 2,
                                       [SW_SCALAR_GRAD_FACTOR] = 1,
                                       [SW_SCALAR_CLIP] = 1};
    (void)state;
    case_init(&c, SW_OP_UPDATE, "p - lr g");
    c.op.attrs.update.rule.kind = SW_UPDATE_SGD;
    const int p = case_in(&c, SW_F32, SW_SHAPE(N), 0, 1);
    case_in(&c, SW_F32, SW_SHAPE(N), 0, 1);
    case_out_in_place(&c, p);
    const struct sw_op_desc desc = {
        .op = &c.op, .in = {c.in[0].view, c.in[1].view}, .out = {c.in[0].view}};
    assert_int_equal(sw_device_alloc(dev, SW_MEM_DEVICE, 4 * ROOM, &mem), SW_OK);
    assert_int_equal(dev->ops->stream_open(dev, &on), SW_OK);
    char *at = mem;
    assert_int_equal(case_to_device(dev, on, at, param, sizeof param), SW_OK);
    assert_int_equal(case_to_device(dev, on, at + ROOM, g, sizeof g), SW_OK);
    assert_int_equal(case_to_device(dev, on, at + 2 * ROOM, scalars, sizeof scalars), SW_OK);
    assert_int_equal(sw_device_prepare(dev, &desc, &kernel), SW_OK);
    memset(n_launched, 0, sizeof n_launched);
    void *in[2] = {at, at + ROOM};
    for (int k = 0; k < 2; k++) {
        assert_int_equal(
            sw_device_launch(dev, on, kernel, in, in, NULL, (double *)(void *)(at + 2 * ROOM)),
            SW_OK);
    }
    assert_int_equal(n_launched[GPU_update_many], 1); /* the second stands in line */
    assert_int_equal(case_to_host(dev, on, param, at, sizeof param), SW_OK);
    assert_int_equal(n_launched[GPU_update_many], 2);
    for (int i = 0; i < N; i++) {
        assert_true(param[i] == (float)(i + 1) - g[i]);
    }
    dev->ops->release(dev, kernel);
    dev->ops->stream_close(dev, on);
    sw_device_free(dev, SW_MEM_DEVICE, mem, 4 * ROOM);
    case_fini(&c);
    sw_device_close(dev);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(neighbours_take_one_launch_and_keep_their_bits),
        cmocka_unit_test(other_updates_go_by_themselves),
        cmocka_unit_test(updates_of_the_same_bytes_follow_each_other),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
