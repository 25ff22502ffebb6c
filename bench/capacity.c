// SPDX-License-Identifier: Apache-2.0
// The largest model that trains in a given device memory: with nothing offloaded, with everything
// possible in host memory, and with everything on a disk. For each way, planning alone finds the
// most layers of a GPT-2 that fit the budgets. The result is printed next to the estimate by bytes
// per parameter. Then that model runs some steps under these budgets, and one more layer must be
// refused.
//
//     bench_capacity [--path .] [--device-memory 64MiB] [--host-memory 256MiB] [--nvme-space 1GiB]
//                    [--width 256] [--vocab 2048] [--seq-len 128] [--most-layers 2000] [--steps 3]
//                    [--device cpu]
//
// --steps 0 only plans; then the budgets may be those of another machine.
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "engine/engine.h"

struct args {
    const char *path, *device, *memory[SW_TIER_COUNT];
    int64_t width, vocab, tokens, most, steps;
    char model[64];
};

static bool parse(int argc, char **argv, struct args *args)
{
    const struct {
        const char *name;
        const char **text;
        int64_t *number;
    } options[] = {
        {"--path", &args->path, NULL},
        {"--device", &args->device, NULL},
        {"--device-memory", &args->memory[SW_TIER_DEVICE], NULL},
        {"--host-memory", &args->memory[SW_TIER_HOST], NULL},
        {"--nvme-space", &args->memory[SW_TIER_DISK], NULL},
        {"--width", NULL, &args->width},
        {"--vocab", NULL, &args->vocab},
        {"--seq-len", NULL, &args->tokens},
        {"--most-layers", NULL, &args->most},
        {"--steps", NULL, &args->steps},
    };
    for (int i = 1; i + 1 < argc; i += 2) {
        size_t k = 0;
        while (k < SW_LEN(options) && strcmp(argv[i], options[k].name) != 0) {
            k++;
        }
        if (k == SW_LEN(options)) {
            return false;
        }
        if (options[k].text) {
            *options[k].text = argv[i + 1];
        } else {
            *options[k].number = atoll(argv[i + 1]);
        }
    }
    return argc % 2 == 1 && args->width >= 64 && args->width % 64 == 0 && args->vocab > 0 &&
           args->tokens > 0 && args->most > 0 && args->steps >= 0;
}

/* The location of weights and states decides which budget is full first. bytes: its use per
 * parameter, for a bf16 weight, the lower half of its master, and two moments. On the device a
 * gradient is added, because the update follows the whole backward. */
static const struct rung {
    const char *name, *device;
    enum sw_tier tier;
    double bytes;
} rungs[] = {{"nothing", "none", SW_TIER_DEVICE, 14},
             {"to the host", "cpu", SW_TIER_HOST, 12},
             {"to the disk", "nvme", SW_TIER_DISK, 12}};

static sw_status write_model(const struct args *args, int64_t layers)
{
    char text[512];
    snprintf(text, sizeof text,
             "{\"model_type\":\"gpt2\",\"architectures\":[\"GPT2LMHeadModel\"],\"vocab_size\":%lld,"
             "\"n_positions\":%lld,\"n_embd\":%lld,\"n_layer\":%lld,\"n_head\":%lld}",
             (long long)args->vocab, (long long)args->tokens, (long long)args->width,
             (long long)layers, (long long)args->width / 64);
    return sw_file_write_atomic(args->model, text, strlen(text));
}

static sw_status open_rung(const struct args *args, const struct rung *rung, int64_t layers,
                           bool plan_only, sw_engine **out)
{
    char config[2048];
    SW_TRY(write_model(args, layers));
    snprintf(
        config, sizeof config,
        "{\"train_micro_batch_size_per_gpu\": 1, \"bf16\": {\"enabled\": true}, \"optimizer\": "
        "{\"type\": \"AdamW\", \"params\": {\"lr\": 0.0001}}, \"zero_optimization\": "
        "{\"stage\": 3, \"offload_optimizer\": {\"device\": \"%s\", \"nvme_path\": \"%s\"}, "
        "\"offload_param\": {\"device\": \"%s\", \"nvme_path\": \"%s\"}}, \"spillway\": "
        "{\"recompute\": \"blocks\", \"device_memory\": \"%s\", \"host_memory\": \"%s\", "
        "\"nvme_space\": \"%s\"}}",
        rung->device, args->path, rung->device, args->path, args->memory[SW_TIER_DEVICE],
        args->memory[SW_TIER_HOST], args->memory[SW_TIER_DISK]);
    const struct sw_engine_options options = {
        .config.text = config,
        .model.path = args->model,
        .inputs.seq_len = args->tokens,
        .run.device = args->device,
        .train = {.wanted = true, .no_dropout = true},
        .plan.only = plan_only,
    };
    return sw_initialize(&options, out);
}

/* *out: `layers` layers fit. Any other refusal is an error. */
static sw_status fits(const struct args *args, const struct rung *rung, int64_t layers, bool *out)
{
    sw_engine *e = NULL;
    const sw_status st = open_rung(args, rung, layers, true, &e);
    sw_close(e);
    *out = st >= 0;
    return st == SW_E_NOMEM ? SW_OK : st;
}

static sw_status most_layers(const struct args *args, const struct rung *rung, int64_t *out)
{
    int64_t good = 0, bad = 1;
    bool fit = true;
    for (; fit && bad <= args->most; bad = fit ? bad * 2 : bad) {
        SW_TRY(fits(args, rung, bad, &fit));
        good = fit ? bad : good;
    }
    bad = sw_min_i64(bad, args->most + 1);
    while (bad - good > 1) {
        const int64_t middle = good + (bad - good) / 2;
        SW_TRY(fits(args, rung, middle, &fit));
        *(fit ? &good : &bad) = middle;
    }
    *out = good;
    return SW_OK;
}

static sw_status run_steps(const struct args *args, const struct rung *rung, int64_t layers)
{
    sw_engine *e = NULL;
    SW_TRY(open_rung(args, rung, layers, false, &e));
    const struct sw_shape shape = {2, {1, args->tokens}};
    int32_t *ids = sw_alloc("bench", (size_t)args->tokens * sizeof *ids);
    sw_status st = ids ? SW_OK : SW_FAIL(SW_E_NOMEM, "out of host memory for a batch");
    for (int64_t i = 0; st >= 0 && i < args->tokens; i++) {
        ids[i] = (int32_t)(sw_philox_u64(1, 0, (uint64_t)i) % (uint64_t)args->vocab);
    }
    const struct sw_tensor tensors[] = {
        {"input_ids", {.data = ids, .dtype = SW_I32, .shape = shape}},
        {"labels", {.data = ids, .dtype = SW_I32, .shape = shape}}};
    const struct sw_batch batch = {tensors, 2};
    printf("  ");
    for (int64_t i = 0; st >= 0 && i < args->steps; i++) {
        struct sw_step_report report;
        const double begin = sw_now_s();
        st = sw_train_batch(e, &batch, 1, &report);
        if (st >= 0) {
            printf(" step %lld: loss %.3f, %.0f ms;", (long long)i + 1, report.loss,
                   (sw_now_s() - begin) * 1e3);
        }
    }
    putchar('\n');
    sw_free(ids);
    sw_close(e);
    return st;
}

static sw_status climb(const struct args *args, const struct rung *rung)
{
    int64_t layers = 0;
    sw_engine *e = NULL;
    SW_TRY(most_layers(args, rung, &layers));
    if (layers == 0) {
        printf("%-12s not even one layer\n", rung->name);
        return SW_OK;
    }
    SW_TRY(open_rung(args, rung, layers, true, &e));
    const struct sw_engine_facts facts = sw_engine_facts(e);
    const double budgets[SW_TIER_COUNT] = {(double)facts.config->spillway.device_memory_bytes,
                                           (double)facts.config->spillway.host_memory_bytes,
                                           (double)facts.config->spillway.nvme_space_bytes};
    const double params = (double)sw_engine_parameters(e) / 1e6;
    /* the cache of the disk */
    const double host = rung->tier == SW_TIER_DISK ? budgets[SW_TIER_HOST] : 0;
    const double formula = (budgets[rung->tier] + host) / rung->bytes / 1e6;
    const size_t *use = facts.plan->tier_bytes;
    printf("%-12s %6lld%s %12.2f %12.2f %6.2f %10.1f %10.1f %10.1f\n", rung->name,
           (long long)layers, layers == args->most ? "+" : " ", params, formula, params / formula,
           (double)use[SW_TIER_DEVICE] / 0x1p20, (double)use[SW_TIER_HOST] / 0x1p20,
           (double)use[SW_TIER_DISK] / 0x1p20);
    sw_close(e);
    return args->steps > 0 ? run_steps(args, rung, layers) : SW_OK;
}

static sw_status bench(struct args *args)
{
    snprintf(args->model, sizeof args->model, "/tmp/bench-capacity-XXXXXX");
    const int fd = mkstemp(args->model);
    if (fd < 0) {
        return SW_FAIL(SW_E_IO, "no file in /tmp");
    }
    close(fd);
    printf("device %s, host %s, disk %s; GPT-2 of width %lld, vocabulary %lld, bf16, AdamW, blocks "
           "recomputed, 1 x %lld tokens\n%-12s %7s %12s %12s %6s %10s %10s %10s\n",
           args->memory[SW_TIER_DEVICE], args->memory[SW_TIER_HOST], args->memory[SW_TIER_DISK],
           (long long)args->width, (long long)args->vocab, (long long)args->tokens, "offloaded",
           "layers", "parameters M", "by formula M", "share", "device MiB", "host MiB", "disk MiB");
    sw_status st = SW_OK;
    for (size_t i = 0; st >= 0 && i < SW_LEN(rungs); i++) {
        st = climb(args, &rungs[i]);
        fflush(stdout);
    }
    unlink(args->model);
    return st;
}

int main(int argc, char **argv)
{
    struct args args = {.path = ".",
                        .device = "cpu",
                        .memory = {"64MiB", "256MiB", "1GiB"},
                        .width = 256,
                        .vocab = 2048,
                        .tokens = 128,
                        .most = 2000,
                        .steps = 3};
    if (!parse(argc, argv, &args)) {
        fprintf(stderr,
                "usage: bench_capacity [--path FOLDER] [--device-memory BYTES] [--host-memory "
                "BYTES] [--nvme-space BYTES] [--width N] [--vocab N] [--seq-len N] "
                "[--most-layers N] [--steps N] [--device D]\n");
        return 2;
    }
    const sw_status st = bench(&args);
    if (st < 0) {
        fprintf(stderr, "bench_capacity: %s\n", sw_error_message());
    }
    return st < 0;
}
