// SPDX-License-Identifier: Apache-2.0
// Tokens per second of a whole training step of GPT-2 (124M), or of another preset or config.json
// such as bench/llama-153m. The result is also given as a fraction of the matrix peak measured in
// the same run. 15 % of masked tokens have a label; images are 3 x 224 x 224. On a GPU the peak is
// the throughput of a large product of its library. After the timed steps one more step measures
// the time of each operation; it waits for the device after every kernel.
//
//     bench_train_gpt2 [--batch 4] [--seq-len 64] [--dtype f32|bf16|f16] [--steps 5] [--threads 2]
//                      [--model gpt2] [--device cpu] [--micro-batches 1] [--product 4096]
//                      [--set KEY=VALUE]..
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "device/device.h"
#include "engine/engine.h"
#include "spillway/look.h"

enum { MOST_SETS = 16 };

struct run {
    int64_t batch, tokens, steps, threads, micro_batches, product;
    const char *dtype, *model, *device;
    const char *sets[MOST_SETS];
    int n_sets;
};

static bool parse(int argc, char **argv, struct run *run)
{
    for (int i = 1; i + 1 < argc; i += 2) {
        const char *value = argv[i + 1];
        if (strcmp(argv[i], "--batch") == 0) {
            run->batch = atoll(value);
        } else if (strcmp(argv[i], "--seq-len") == 0) {
            run->tokens = atoll(value);
        } else if (strcmp(argv[i], "--steps") == 0) {
            run->steps = atoll(value);
        } else if (strcmp(argv[i], "--threads") == 0) {
            run->threads = atoll(value);
        } else if (strcmp(argv[i], "--dtype") == 0) {
            run->dtype = value;
        } else if (strcmp(argv[i], "--model") == 0) {
            run->model = value;
        } else if (strcmp(argv[i], "--device") == 0) {
            run->device = value;
        } else if (strcmp(argv[i], "--micro-batches") == 0) {
            run->micro_batches = atoll(value);
        } else if (strcmp(argv[i], "--product") == 0) {
            run->product = atoll(value);
        } else if (strcmp(argv[i], "--set") == 0 && run->n_sets < MOST_SETS) {
            run->sets[run->n_sets++] = value;
        } else {
            return false;
        }
    }
    return argc % 2 == 1 && run->batch > 0 && run->tokens > 0 && run->steps > 0 &&
           run->micro_batches > 0 && run->product > 0;
}

/* True if the model's path names this family: "vit" models get images, "bert" models masked
 * tokens. */
static bool is_of(const struct run *run, const char *family)
{
    return strstr(run->model, family) != NULL;
}

/* Rows of tokens with one label per token, or images with one label each. */
struct examples {
    int32_t *ids, *labels;
    float *pixels;
    struct sw_tensor tensors[2];
};

enum { IMAGE = 224, COLOURS = 3, LABELLED = 15 /* percent */, UNLABELLED = -100 };

static struct examples examples_of(const struct run *run, int64_t vocab)
{
    const int64_t n = run->batch * run->tokens, n_pixels = run->batch * COLOURS * IMAGE * IMAGE;
    const bool images = is_of(run, "vit"), masked = is_of(run, "bert");
    struct examples e = {.ids = malloc((size_t)n * sizeof *e.ids),
                         .labels = malloc((size_t)n * sizeof *e.labels),
                         .pixels = malloc(images ? (size_t)n_pixels * sizeof *e.pixels : 1)};
    for (int64_t i = 0; i < n; i++) {
        const bool counts = !masked || sw_philox_u64(1, 3, (uint64_t)i) % 100 < LABELLED;
        e.ids[i] = (int32_t)(sw_philox_u64(1, 1, (uint64_t)i) % (uint64_t)vocab);
        e.labels[i] = (int32_t)(sw_philox_u64(1, 2, (uint64_t)i) % (uint64_t)vocab);
        e.labels[i] = images ? e.labels[i] % 2 : counts ? e.labels[i] : UNLABELLED;
    }
    for (int64_t i = 0; images && i < n_pixels; i++) {
        e.pixels[i] = (float)sw_philox_normal(1, 4, (uint64_t)i);
    }
    const struct sw_shape rows = {2, {run->batch, run->tokens}}, one = {1, {run->batch}};
    const struct sw_shape image = {4, {run->batch, COLOURS, IMAGE, IMAGE}};
    e.tensors[0] = (struct sw_tensor){"input_ids", {.data = e.ids, .dtype = SW_I32, .shape = rows}};
    if (images) {
        e.tensors[0] =
            (struct sw_tensor){"pixel_values", {.data = e.pixels, .dtype = SW_F32, .shape = image}};
    }
    e.tensors[1] = (struct sw_tensor){
        "labels", {.data = e.labels, .dtype = SW_I32, .shape = images ? one : rows}};
    return e;
}

static int by_value(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Measures the CPU's matrix peak in registers on all threads together, and that of our products. */
static sw_status measure_peak(const struct run *run, double *peak, double *product)
{
    const struct sw_cpu_options options = {.n_threads = (int)run->threads};
    struct sw_device *dev = NULL;
    struct sw_cpu_report report;
    SW_TRY(sw_device_open_cpu(&options, &dev));
    const sw_status st = sw_device_cpu_report(dev, &report);
    const int i = strcmp(run->dtype, "f32") == 0 ? 0 : strcmp(run->dtype, "bf16") == 0 ? 1 : 2;
    *peak = report.peak[i].register_gflops * report.n_threads;
    *product = report.peak[i].product_gflops;
    printf("{\"cpu\":\"%s\",\"isa\":\"%s\",\"threads\":%d,\"path\":\"%s\",\"peak_gflops\":%.1f,"
           "\"product_gflops\":%.1f}\n",
           report.cpu, report.isa, report.n_threads, report.peak[i].path, *peak, *product);
    sw_device_close(dev);
    return st;
}

enum { OPERANDS = 3, PRODUCTS = 20 };

/* Random operands: zeros switch fewer transistors, and make a GPU faster. */
static sw_status fill_randomly(struct sw_device *dev, struct sw_stream_queue *on, void *at,
                               enum sw_dtype dtype, int64_t n_elems)
{
    const size_t bytes = (size_t)n_elems * sw_dtype_bytes(dtype);
    void *values = NULL;
    SW_TRY(sw_device_alloc(dev, SW_MEM_HOST, bytes, &values));
    for (int64_t i = 0; i < n_elems; i++) {
        sw_store_f64(dtype, values, i,
                     (double)(sw_philox_u64(1, 5, (uint64_t)i) % 2000001) / 1e6 - 1);
    }
    sw_status st = sw_device_copy(dev, on, at, values, bytes);
    st = st < 0 ? st : dev->ops->stream_wait(dev, on);
    sw_device_free(dev, SW_MEM_HOST, values, bytes);
    return st;
}

/* Times products of n x n x n, repeated PRODUCTS times. */
static sw_status time_products(struct sw_device *dev, struct sw_stream_queue *on, int64_t n,
                               const struct sw_op_desc *desc, double *seconds)
{
    const size_t bytes = (size_t)(n * n) * sw_dtype_bytes(desc->in[0].dtype);
    void *at[OPERANDS] = {NULL}, *workspace = NULL, *scalars = NULL;
    const size_t table = SW_SCALAR_COUNT * sizeof(double);
    struct sw_kernel *kernel = NULL;
    struct sw_kernel_info info;
    sw_device_query(dev, desc, &info);
    sw_status st = sw_device_prepare(dev, desc, &kernel);
    for (int i = 0; i < OPERANDS && st >= 0; i++) {
        st = sw_device_alloc(dev, SW_MEM_DEVICE, bytes, &at[i]);
        st = st < 0 ? st : fill_randomly(dev, on, at[i], desc->in[0].dtype, n * n);
    }
    st = st < 0 ? st : sw_device_alloc(dev, SW_MEM_DEVICE, info.workspace_bytes + 64, &workspace);
    st = st < 0 ? st : sw_device_alloc(dev, SW_MEM_DEVICE, table, &scalars);
    st = st < 0 ? st : sw_device_fill(dev, on, scalars, 0, table);
    double begin = 0;
    for (int i = -2; i < PRODUCTS && st >= 0; i++) {
        if (i == 0) {
            st = dev->ops->stream_wait(dev, on);
            begin = sw_now_s();
        }
        st = st < 0 ? st : sw_device_launch(dev, on, kernel, at, at + 2, workspace, scalars);
    }
    st = st < 0 ? st : dev->ops->stream_wait(dev, on);
    *seconds = (sw_now_s() - begin) / PRODUCTS;
    for (int i = 0; i < OPERANDS; i++) {
        sw_device_free(dev, SW_MEM_DEVICE, at[i], bytes);
    }
    sw_device_free(dev, SW_MEM_DEVICE, workspace, info.workspace_bytes + 64);
    sw_device_free(dev, SW_MEM_DEVICE, scalars, table);
    if (kernel) {
        dev->ops->release(dev, kernel);
    }
    return st;
}

/* On a GPU the peak in registers cannot be measured, so the product is the peak. */
static sw_status measure_products(const struct run *run, double *product)
{
    const int64_t n = run->product;
    const enum sw_dtype dtype = strcmp(run->dtype, "f32") == 0    ? SW_F32
                                : strcmp(run->dtype, "bf16") == 0 ? SW_BF16
                                                                  : SW_F16;
    const struct sw_op op = {.kind = SW_OP_MATMUL, .n_in = 2, .n_out = 1, .attrs.matmul.tb = true};
    struct sw_op_desc desc = {.op = &op};
    struct sw_view *const views[OPERANDS] = {&desc.in[0], &desc.in[1], &desc.out[0]};
    struct sw_device *dev = NULL;
    struct sw_stream_queue *on = NULL;
    double seconds = 1;
    for (int i = 0; i < OPERANDS; i++) {
        views[i]->dtype = dtype;
        views[i]->shape = SW_SHAPE(n, n);
        sw_shape_row_major(&views[i]->shape, views[i]->strides);
    }
    SW_TRY(sw_device_open(run->device, 0, &dev));
    sw_status st = dev->ops->stream_open(dev, &on);
    if (st >= 0) {
        st = time_products(dev, on, n, &desc, &seconds);
        dev->ops->stream_close(dev, on);
    }
    *product = 2 * (double)n * (double)n * (double)n / seconds / 1e9;
    printf("{\"device\":\"%s\",\"kernels\":\"%s\",\"product_n\":%lld,\"product_gflops\":%.1f}\n",
           dev->what, sw_device_kernel_set(dev), (long long)n, *product);
    sw_device_close(dev);
    return st;
}

static sw_status open_engine(const struct run *run, sw_engine **out)
{
    char config[512];
    snprintf(config, sizeof config,
             "{\"train_micro_batch_size_per_gpu\": %lld, \"gradient_accumulation_steps\": %lld, "
             "\"gradient_clipping\": 1.0, \"optimizer\": "
             "{\"type\": \"AdamW\", \"params\": {\"lr\": 0.0001}}, \"bf16\": {\"enabled\": %s}, "
             "\"fp16\": {\"enabled\": %s}, \"spillway\": {\"threads\": %lld}}",
             (long long)run->batch, (long long)run->micro_batches,
             strcmp(run->dtype, "bf16") == 0 ? "true" : "false",
             strcmp(run->dtype, "f16") == 0 ? "true" : "false", (long long)run->threads);
    const struct sw_engine_options options = {
        .config = {.text = config, .sets = run->sets, .n_sets = run->n_sets},
        .model.path = run->model,
        .inputs.seq_len = run->tokens,
        .run = {.device = run->device, .profile = true},
        .train = {.wanted = true, .no_dropout = true},
    };
    return sw_initialize(&options, out);
}

struct times {
    double *seconds; /* of each step, in ascending order */
    double loss;
    double disk_bytes; /* disk reads and writes of a step */
};

/* Runs the steps, then one more with the time of each operation. The very first step touches all
 * memory. */
static sw_status make_steps(const struct run *run, sw_engine *e, const struct examples *examples,
                            struct times *out)
{
    struct sw_executor *executor = sw_engine_facts(e).executor;
    struct sw_batch *batches = malloc((size_t)run->micro_batches * sizeof *batches);
    sw_status st = SW_OK;
    for (int64_t i = 0; i < run->micro_batches; i++) {
        batches[i] = (struct sw_batch){examples->tensors, 2};
    }
    for (int64_t i = -1; i <= run->steps && st >= 0; i++) {
        struct sw_step_report report;
        sw_executor_measure(executor, i == run->steps);
        const double begin = sw_now_s();
        st = sw_train_batch(e, batches, (int)run->micro_batches, &report);
        if (i >= 0 && i < run->steps) {
            out->seconds[i] = sw_now_s() - begin;
            out->loss = report.loss;
        }
    }
    struct sw_transfers transferred;
    sw_executor_transferred(executor, &transferred);
    out->disk_bytes = (double)(transferred.in[SW_TIER_DISK] + transferred.out[SW_TIER_DISK]) /
                      (double)(run->steps + 2);
    free(batches);
    qsort(out->seconds, (size_t)run->steps, sizeof *out->seconds, by_value);
    return st;
}

static sw_status print_times(const struct run *run, const sw_engine *e, const struct times *times,
                             double peak, double product)
{
    struct rusage usage;
    char *text = NULL;
    getrusage(RUSAGE_SELF, &usage);
    const double median = times->seconds[run->steps / 2];
    const double gflops = sw_engine_step_flops(e) / 1e9;
    const int64_t tokens = run->batch * run->tokens * run->micro_batches;
    printf("{\"model\":\"%s\",\"dtype\":\"%s\",\"batch\":%lld,\"tokens\":%lld,"
           "\"tokens_per_step\":%lld,\"step_s\":%.4f,"
           "\"min_s\":%.4f,\"max_s\":%.4f,\"tokens_per_s\":%.1f,\"gflop_per_step\":%.1f,"
           "\"of_peak\":%.3f,\"of_product\":%.3f,\"disk_gb_per_s\":%.3f,\"plan_bytes\":%lld,"
           "\"peak_rss_bytes\":%lld,\"loss\":%.4f}\n",
           run->model, run->dtype, (long long)run->batch, (long long)run->tokens, (long long)tokens,
           median, times->seconds[0], times->seconds[run->steps - 1], (double)tokens / median,
           gflops, gflops / median / peak, gflops / median / product,
           times->disk_bytes / median / 1e9, (long long)sw_engine_tier_bytes(e, 0),
           (long long)usage.ru_maxrss * 1024, times->loss);
    SW_TRY(sw_profile_text(e, &text));
    fputs(text, stdout);
    sw_text_free(text);
    return SW_OK;
}

static sw_status bench(const struct run *run)
{
    sw_engine *engine = NULL;
    double peak = 0, product = 0;
    if (strcmp(run->device, "cpu") == 0) {
        SW_TRY(measure_peak(run, &peak, &product));
    } else {
        SW_TRY(measure_products(run, &product));
        peak = product;
    }
    SW_TRY(open_engine(run, &engine));
    const int64_t vocab = sw_engine_vocab(engine) > 0 ? sw_engine_vocab(engine) : 2;
    struct examples examples = examples_of(run, vocab);
    struct times times = {.seconds = malloc((size_t)run->steps * sizeof *times.seconds)};
    sw_status st = make_steps(run, engine, &examples, &times);
    st = st < 0 ? st : print_times(run, engine, &times, peak, product);
    free(examples.ids);
    free(examples.labels);
    free(examples.pixels);
    free(times.seconds);
    sw_close(engine);
    return st;
}

int main(int argc, char **argv)
{
    struct run run = {.batch = 4,
                      .tokens = 64,
                      .steps = 5,
                      .threads = 2,
                      .micro_batches = 1,
                      .product = 4096,
                      .dtype = "f32",
                      .model = "gpt2",
                      .device = "cpu"};
    if (!parse(argc, argv, &run)) {
        fprintf(stderr, "usage: bench_train_gpt2 [--batch B] [--seq-len T] [--dtype f32|bf16|f16] "
                        "[--steps N] [--threads N] [--model PRESET|CONFIG.JSON] [--device D] "
                        "[--micro-batches K] [--product N] [--set KEY=VALUE]..\n");
        return 2;
    }
    if (bench(&run) < 0) {
        fprintf(stderr, "bench_train_gpt2: %s\n", sw_error_message());
        return 1;
    }
    return 0;
}
