// SPDX-License-Identifier: Apache-2.0
// Small tensors on a GPU: sums, updates, statistics, steps of LAMB. Neighbours take one launch, and
// each has the bits that it has alone. An op that touches the same bytes launches them first. Sums
// over rows also take one launch.
#include <stdlib.h>
#include <string.h>

#include "device/gpu/gpu.h"
#include "device/gpu/module/module.h"
#include "device/gpu/open.h"
#include "device/tests/op_cases.h"
#include "support/test.h"

/* Number of launches of each kernel; tests run on one thread. */
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
    if (sw_gpu_open(name, 0, &dev) < 0) {
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

/* Takes the variants of UPDATE with dense streams; also skipped ones, which still write fp16
 * copies. */
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

/* Gradients of any type share a launch, also if some continue a sum; a row-sparse one takes its
 * own. */
static void sums_take_one_launch_and_keep_their_bits(void **state)
{
    enum { N = GPU_ACCUMULATE_MANY + 8, SPARSE = 5 };
    static const enum sw_dtype dtypes[] = {SW_F32, SW_BF16, SW_F16};
    static const char *const emus[] = {"emu32", "emu64"};
    static struct op_case cases[N], want[N], got[N];
    (void)state;
    for (int t = 0; t < 8; t++) {
        struct sw_device *dev = open_counting(emus[t % 2]);
        for (int k = 0; k < N; k++) {
            const int variant = k == SPARSE ? 2 : k % 4 == 3 ? 4 : 0;
            assert_true(op_cases[SW_OP_ACCUMULATE](&cases[k], dtypes[k % 3], variant));
            cases[k].shift = 8 * (k % 5);
            cases[k].scalars[SW_SCALAR_FIRST] = t / 2 % 2;
            cases[k].scalars[SW_SCALAR_SKIP] = t / 4;
            cases[k].is_predicated = true;
        }
        run_alone(dev, cases, N, want);
        assert_int_equal(case_run_many(dev, cases, N, got), SW_OK);
        assert_int_equal(n_launched[GPU_accumulate], 0);
        assert_int_equal(n_launched[GPU_accumulate_many], 2);
        assert_int_equal(n_launched[GPU_accumulate_rows], 1);
        check_and_free(cases, want, got, N);
        sw_device_close(dev);
    }
}

/* Sums in sequence on one stream must each find the tickets reset: several blocks of rows and
 * columns, with a skipped sum among them. Rows too wide for the tickets take a second kernel. */
static void sums_over_rows_take_one_launch(void **state)
{
    enum { N = 12, WIDE = 5 };
    static struct op_case cases[N], want[N], got[N];
    (void)state;
    for (int t = 0; t < 4; t++) {
        struct sw_device *dev = open_counting(t % 2 ? "emu64" : "emu32");
        for (int k = 0; k < N; k++) {
            const int64_t rows = 1 + 97 * k,
                          width = k == WIDE ? GPU_TICKETS * GPU_SUM_COLUMNS + 1 : 300 - 25 * k;
            case_init(&cases[k], SW_OP_SUM_ROWS, "sum over %d rows", (int)rows);
            case_in(&cases[k], SW_BF16, SW_SHAPE(k == WIDE ? 3 : rows, width), -1, 1);
            case_out(&cases[k], k % 2 ? SW_F32 : SW_BF16, SW_SHAPE(width));
            cases[k].is_predicated = true;
            cases[k].scalars[SW_SCALAR_SKIP] = t / 2;
        }
        run_alone(dev, cases, N, want);
        assert_int_equal(case_run_many(dev, cases, N, got), SW_OK);
        assert_int_equal(n_launched[GPU_sum_rows], N);
        assert_int_equal(n_launched[GPU_sum_blocks], 1);
        check_and_free(cases, want, got, N);
        sw_device_close(dev);
    }
}

/* Another rule starts another launch. An update that is not small and dense takes its own, and need
 * not wait. */
static void other_updates_go_by_themselves(void **state)
{
    enum { CODED = 21 };
    static const int variants[] = {0, 0, 2, CODED, 0, 4, 4, 1};
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
    assert_int_equal(n_launched[GPU_update], 2); /* row-sparse streams */
    assert_int_equal(n_launched[GPU_update_coded], 1);
    assert_int_equal(n_launched[GPU_update_many], 2); /* one with three updates, one with two */
    check_and_free(cases, want, got, N);
    sw_device_close(dev);
}

/* p = p - lr g, twice on the same bytes: the second update sees the result of the first. */
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
    assert_int_equal(n_launched[GPU_update_many], 1); /* the second one is still in its line */
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

/* ---- hand-made ops on one memory ---- */

/* Slots of one memory: parameters with their masters, moments, squares, gradients; then words. */
enum { SLOT = 80 << 10, N_PARAMS = 4, N_MOMENTS = 3, N_GRADS = 3 };
enum {
    MASTERS = N_PARAMS,
    MOMENTS = 2 * N_PARAMS,
    SQUARES = MOMENTS + N_MOMENTS,
    GRADS = SQUARES + N_MOMENTS,
    WORDS = GRADS + N_GRADS,
    N_SLOTS
};
/* words per place, and the places */
enum { PLACE = 1024, NORMS = 0, STATS = 2, RATIOS = 4, SCALARS = 8, SCALES = 10 };

struct hand {
    struct op_case c;
    struct sw_kernel *kernel;
    void *in[SW_MAX_INPUTS], *out[SW_MAX_OUTPUTS];
};

struct stage {
    struct sw_device *dev;
    char *mem, *before;
    struct hand hands[64];
    int n;
    enum sw_dtype dtype; /* dtype of parameters */
};

static char *slot(const struct stage *s, int i)
{
    return s->mem + (size_t)i * SLOT;
}

static char *place(const struct stage *s, int i)
{
    return slot(s, WORDS) + (size_t)i * PLACE;
}

static struct hand *hand_begin(struct stage *s, enum sw_op_kind kind)
{
    struct hand *h = &s->hands[s->n++];
    memset(h, 0, sizeof *h);
    case_init(&h->c, kind, "%d", s->n);
    return h;
}

static int hand_in(struct hand *h, enum sw_dtype dtype, int64_t n, void *at)
{
    const int i = case_in(&h->c, dtype, SW_SHAPE(n), 0, 1);
    h->in[i] = at;
    return i;
}

static void hand_in_place(struct hand *h, int i_in)
{
    case_out_in_place(&h->c, i_in);
    h->out[h->c.op.n_out - 1] = h->in[i_in];
}

static void hand_end(struct stage *s, struct hand *h)
{
    struct sw_op_desc desc = {.op = &h->c.op};
    for (int i = 0; i < h->c.op.n_in; i++) {
        desc.in[i] = h->c.in[i].view;
    }
    for (int i = 0; i < h->c.op.n_out; i++) {
        desc.out[i] = h->c.out[i].view;
    }
    assert_int_equal(sw_device_prepare(s->dev, &desc, &h->kernel), SW_OK);
}

/* Operands of an op: its slots and number of elements. */
struct about {
    int64_t n;
    int param, moments, grad, norms, ratio, stats;
};

/* Adds the parameter, master and moments; also the gradient if it is read. */
static void hand_param(struct stage *s, struct hand *h, const struct about *a,
                       enum sw_update_kind kind)
{
    const bool has_master = s->dtype != SW_F32;
    h->c.op.attrs.update.rule = (struct sw_update_attrs){.kind = kind,
                                                         .bias_correction = true,
                                                         .eps = 1e-6,
                                                         .weight_decay = 0.1,
                                                         .max_coeff = 10,
                                                         .n_states = 2 + has_master};
    h->c.op.attrs.update.n_elems = a->n;
    hand_in(h, s->dtype, a->n, slot(s, a->param));
    if (has_master) {
        hand_in(h, s->dtype == SW_BF16 ? SW_I16 : SW_F32, a->n, slot(s, MASTERS + a->param));
    }
    hand_in(h, SW_F32, a->n, slot(s, MOMENTS + a->moments));
    hand_in(h, SW_F32, a->n, slot(s, SQUARES + a->moments));
}

/* Adds the gradient; all operands before it are written in place. */
static void end_update(struct stage *s, struct hand *h, const struct about *a)
{
    hand_in(h, SW_F32, a->n, slot(s, a->grad));
    for (int i = 0; i <= h->c.op.attrs.update.rule.n_states; i++) {
        hand_in_place(h, i);
    }
    hand_end(s, h);
}

static void add_update(struct stage *s, const struct about *a)
{
    struct hand *h = hand_begin(s, SW_OP_UPDATE);
    hand_param(s, h, a, SW_UPDATE_ADAM);
    end_update(s, h, a);
}

/* The same with 8-bit moments. */
static void add_update_coded(struct stage *s, const struct about *a)
{
    struct hand *h = hand_begin(s, SW_OP_UPDATE);
    const bool has_master = s->dtype != SW_F32;
    h->c.op.attrs.update.rule = (struct sw_update_attrs){
        .kind = SW_UPDATE_ADAM, .bias_correction = true, .eps = 1e-6, .n_states = 4 + has_master};
    h->c.op.attrs.update.n_elems = a->n;
    hand_in(h, s->dtype, a->n, slot(s, a->param));
    if (has_master) {
        hand_in(h, s->dtype == SW_BF16 ? SW_I16 : SW_F32, a->n, slot(s, MASTERS + a->param));
    }
    hand_in(h, SW_U8, a->n, slot(s, MOMENTS + a->moments));
    hand_in(h, SW_U8, a->n, slot(s, SQUARES + a->moments));
    for (int k = 0; k < 2; k++) {
        hand_in(h, SW_F32, sw_ceil_div(a->n, SW_CODE_RUN), place(s, SCALES + 2 * a->moments + k));
    }
    end_update(s, h, a);
}

/* Adds an accumulation into a slot that other ops also use; gradients have the parameters' type. */
static void add_sum(struct stage *s, const struct about *a)
{
    struct hand *h = hand_begin(s, SW_OP_ACCUMULATE);
    hand_in_place(h, hand_in(h, SW_F32, a->n, slot(s, a->stats ? a->grad : MOMENTS + a->moments)));
    hand_in(h, s->dtype, a->n, slot(s, a->param));
    hand_end(s, h);
}

static void add_stats(struct stage *s, const struct about *a)
{
    struct hand *h = hand_begin(s, SW_OP_GRAD_STATS);
    hand_in_place(h, hand_in(h, SW_I64, SW_STATS_WORDS, place(s, STATS + a->stats)));
    hand_in(h, SW_F32, a->n, slot(s, a->grad));
    hand_end(s, h);
}

static void add_moments(struct stage *s, const struct about *a)
{
    struct hand *h = hand_begin(s, SW_OP_LAMB_MOMENTS);
    hand_param(s, h, a, SW_UPDATE_LAMB);
    const int n_states = h->c.op.attrs.update.rule.n_states;
    hand_in(h, SW_F32, a->n, slot(s, a->grad));
    hand_in_place(h, n_states - 1);
    hand_in_place(h, n_states);
    case_out(&h->c, SW_I64, SW_SHAPE(SW_LAMB_WORDS));
    h->out[2] = place(s, NORMS + a->norms);
    hand_end(s, h);
}

static void add_apply(struct stage *s, const struct about *a)
{
    struct hand *h = hand_begin(s, SW_OP_LAMB_APPLY);
    hand_param(s, h, a, SW_UPDATE_LAMB);
    const bool has_master = s->dtype != SW_F32;
    hand_in(h, SW_I64, SW_LAMB_WORDS, place(s, NORMS + a->norms));
    const int ratio = hand_in(h, SW_F32, 1, place(s, RATIOS + a->ratio));
    for (int i = 0; i <= has_master; i++) {
        hand_in_place(h, i);
    }
    hand_in_place(h, ratio);
    hand_end(s, h);
}

/* Fills a slot: signed numbers, squares from 0 to 1, arbitrary low halves. */
static void fill_slot(const struct stage *s, int k)
{
    const bool is_low = k >= MASTERS && k < MOMENTS && s->dtype == SW_BF16;
    const bool is_square = k >= SQUARES && k < GRADS;
    const enum sw_dtype type = k < MASTERS ? s->dtype : is_low ? SW_I16 : SW_F32;
    for (int64_t i = 0; i < SLOT / (int64_t)sw_dtype_bytes(type); i++) {
        const int draw = (int)(sw_philox_u64(3, (uint64_t)k, (uint64_t)i) % 2001) - 1000;
        const double x = draw / 1000.0;
        sw_store_f64(type, s->before + (size_t)k * SLOT, i, is_low ? draw : is_square ? x * x : x);
    }
}

static void open_stage(struct stage *s, const char *name, enum sw_dtype dtype)
{
    void *mem;
    memset(s, 0, sizeof *s);
    s->dev = open_counting(name);
    s->dtype = dtype;
    assert_int_equal(sw_device_alloc(s->dev, SW_MEM_DEVICE, N_SLOTS * SLOT, &mem), SW_OK);
    s->mem = mem;
    s->before = calloc(N_SLOTS, SLOT);
    assert_non_null(s->before);
    for (int k = 0; k < WORDS; k++) {
        fill_slot(s, k);
    }
    double *scalars = (double *)(void *)(s->before + WORDS * SLOT + SCALARS * PLACE);
    scalars[SW_SCALAR_LR] = 0.01;
    scalars[SW_SCALAR_STEP] = 2;
    scalars[SW_SCALAR_BETA1] = 0.9;
    scalars[SW_SCALAR_BETA2] = 0.99;
    scalars[SW_SCALAR_GRAD_FACTOR] = scalars[SW_SCALAR_CLIP] = 1;
    sw_scalars_complete(scalars);
}

static void close_stage(struct stage *s)
{
    for (int k = 0; k < s->n; k++) {
        s->dev->ops->release(s->dev, s->hands[k].kernel);
        case_fini(&s->hands[k].c);
    }
    sw_device_free(s->dev, SW_MEM_DEVICE, s->mem, N_SLOTS * SLOT);
    free(s->before);
    sw_device_close(s->dev);
}

/* Runs all ops and returns the memory afterwards. alone: waits for the stream after each op, so
 * that no ops are batched. */
static char *play(struct stage *s, bool alone)
{
    enum { BYTES = N_SLOTS * SLOT };
    struct sw_stream_queue *on;
    char *after = malloc(BYTES);
    memset(n_launched, 0, sizeof n_launched);
    assert_int_equal(s->dev->ops->stream_open(s->dev, &on), SW_OK);
    assert_int_equal(case_to_device(s->dev, on, s->mem, s->before, BYTES), SW_OK);
    for (int k = 0; k < s->n; k++) {
        const struct hand *h = &s->hands[k];
        assert_int_equal(sw_device_launch(s->dev, on, h->kernel, h->in, h->out, NULL,
                                          (double *)(void *)place(s, SCALARS)),
                         SW_OK);
        if (alone) {
            assert_int_equal(s->dev->ops->stream_wait(s->dev, on), SW_OK);
        }
    }
    assert_int_equal(case_to_host(s->dev, on, after, s->mem, BYTES), SW_OK);
    s->dev->ops->stream_close(s->dev, on);
    return after;
}

static void check_like_alone(struct stage *s, const char *what)
{
    char *want = play(s, true), *got = play(s, false);
    for (size_t i = 0; i < (size_t)N_SLOTS * SLOT; i++) {
        if (want[i] != got[i]) {
            fail_msg("%s: byte %zu of slot %zu is another one", what, i % SLOT, i / SLOT);
        }
    }
    free(want);
    free(got);
}

/* Statistics of neighbours, which are added to the same words. */
static void statistics_take_one_launch(void **state)
{
    static struct stage s;
    (void)state;
    open_stage(&s, "emu32", SW_F32);
    for (int k = 0; k < 60; k++) {
        add_stats(&s, &(struct about){.n = 1 + 37 * k % 3000, .grad = GRADS + k % N_GRADS});
    }
    check_like_alone(&s, "statistics");
    assert_int_equal(n_launched[GPU_grad_stats_many], 1);
    assert_int_equal(n_launched[GPU_grad_stats], 0);
    close_stage(&s);
}

/* Moments and steps of small tensors take one launch, even if all norms are at one address and
 * large tensors come between them. */
static void steps_of_lamb_take_one_launch(void **state)
{
    static const enum sw_dtype dtypes[] = {SW_F32, SW_BF16, SW_F16};
    static struct stage s;
    (void)state;
    for (size_t t = 0; t < 2 * SW_LEN(dtypes); t++) {
        open_stage(&s, t % 2 ? "emu64" : "emu32", dtypes[t / 2]);
        for (int k = 0; k < N_MOMENTS; k++) {
            const struct about a = {.n = k == 1 ? 17000 : 3000 - 900 * k,
                                    .param = k,
                                    .moments = k,
                                    .grad = GRADS,
                                    .ratio = k};
            add_moments(&s, &a);
            add_apply(&s, &a);
        }
        check_like_alone(&s, "LAMB");
        assert_int_equal(n_launched[GPU_lamb_many], 1);
        assert_int_equal(n_launched[GPU_lamb_moments], 1);
        assert_int_equal(n_launched[GPU_lamb_apply], 1);
        close_stage(&s);
    }
}

static int draw(uint64_t trial, int *i, int n)
{
    return (int)(sw_philox_u64(4, trial, (uint64_t)(*i)++) % (uint64_t)n);
}

/* Adds any op, or moments and their step, on slots that other ops may have, too. */
static void add_any(struct stage *s, uint64_t trial, int *i)
{
    static const int64_t sizes[] = {5, 300, 2049, 17000};
    struct about a = {.n = sizes[draw(trial, i, SW_LEN(sizes))],
                      .param = draw(trial, i, N_PARAMS),
                      .moments = draw(trial, i, N_MOMENTS),
                      .grad = GRADS + draw(trial, i, N_GRADS),
                      .norms = draw(trial, i, 2),
                      .ratio = draw(trial, i, 3),
                      .stats = draw(trial, i, 2)};
    const int kind = draw(trial, i, 11);
    if (kind > 8) {
        add_sum(s, &a);
        return;
    }
    if (s->dtype == SW_F32 && draw(trial, i, 4) == 0) {
        a.grad = (a.param + 1) % N_PARAMS; /* left by an update */
    }
    if (kind < 2) {
        add_update(s, &a);
    } else if (kind < 4) {
        add_stats(s, &a);
    } else if (kind < 7) {
        add_moments(s, &a);
    }
    if (kind > 4 && kind < 8) {
        add_apply(s, &a);
    } else if (kind == 8) {
        add_update_coded(s, &a);
    }
}

/* The result does not depend on which ops are batched together. */
static void any_order_gives_the_bits_of_one_after_the_other(void **state)
{
    enum { TRIALS = 24, OPS = 40 };
    static const enum sw_dtype dtypes[] = {SW_F32, SW_BF16, SW_F16};
    static struct stage s;
    int n_many = 0;
    (void)state;
    for (int trial = 0; trial < TRIALS; trial++) {
        char what[32];
        int i = 0;
        open_stage(&s, "emu32", dtypes[trial % (int)SW_LEN(dtypes)]);
        while (s.n < OPS) {
            add_any(&s, (uint64_t)trial, &i);
        }
        snprintf(what, sizeof what, "trial %d", trial);
        check_like_alone(&s, what);
        n_many += n_launched[GPU_accumulate_many] + n_launched[GPU_update_many] +
                  n_launched[GPU_grad_stats_many] + n_launched[GPU_lamb_many];
        close_stage(&s);
    }
    assert_in_range(n_many, 1, TRIALS * OPS * 3 / 5);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(neighbours_take_one_launch_and_keep_their_bits),
    cmocka_unit_test(sums_take_one_launch_and_keep_their_bits),
    cmocka_unit_test(sums_over_rows_take_one_launch),
    cmocka_unit_test(other_updates_go_by_themselves),
    cmocka_unit_test(updates_of_the_same_bytes_follow_each_other),
    cmocka_unit_test(statistics_take_one_launch),
    cmocka_unit_test(steps_of_lamb_take_one_launch),
    cmocka_unit_test(any_order_gives_the_bits_of_one_after_the_other),
};

const struct test_program sw_tests = {TEST_TABLE(tests)};
