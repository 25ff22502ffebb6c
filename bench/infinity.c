// SPDX-License-Identifier: Apache-2.0
// Training from a disk (ZeRO-Infinity). Compares the throughput of the optimizer's update with
// fio's on the same disk. Also measures how well a step overlaps computation and transfers that
// take equally long.
//
//     bench_infinity [--path .] [--rounds 5] [--steps 10] [--layers 24] [--width 512]
//         [--vocab 2048] [--dtype bf16] [--params nvme|cpu|none] [--block 1048576] [--depth 32]
//         [--threads 0] [--tokens 0] [--ahead 536870912] [--only optimizer|step]
//         [--clip 0|1] [--update end|next_forward] [--device BYTES --host BYTES]
//         [--recompute none|blocks]
//
// First part: bytes per second read and written by the update of a step. The step is clipped, so
// that the update is a separate part of it. fio's mixed reading and writing runs in turns with it,
// on a file of that size in the same folder, with the same blocks and depth; the best of its three
// ways counts.
// Second part: steps of one plan in turns: without transfers (computation alone), without kernels
// (transfers alone), and as it is. The model without offloading runs next to them. --tokens 0
// chooses the micro-batch for which the first two take equally long. --ahead is
// spillway.transfer_bytes. Forward is a third of the computation and moves 2 of the 26 bytes of a
// parameter, unless gradients are clipped (--clip 1) and the next forward updates (--update, which
// is spillway.clipped_update). To keep the disk equally busy in each third of a step, another 6.7
// bytes are read during forward for backward. They wait in memory: 500 MiB for the default model.
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "engine/engine.h"
#include "spillway/nvme.h"

enum { MAX_ROUNDS = 1000, SEQUENCES = 2, LEAST_TOKENS = 16, MOST_TOKENS = 4096 };
#define GB 1e9

struct args {
    const char *path, *dtype, *params, *only, *update, *recompute;
    int64_t rounds, steps, layers, width, vocab, block, depth, threads, tokens, ahead, clip, device,
        host;
    char model[64];
};

static bool parse(int argc, char **argv, struct args *args)
{
    const struct {
        const char *name;
        const char **text;
        int64_t *number;
    } options[] = {
        {"--path", &args->path, NULL},           {"--dtype", &args->dtype, NULL},
        {"--params", &args->params, NULL},       {"--only", &args->only, NULL},
        {"--rounds", NULL, &args->rounds},       {"--steps", NULL, &args->steps},
        {"--layers", NULL, &args->layers},       {"--width", NULL, &args->width},
        {"--vocab", NULL, &args->vocab},         {"--block", NULL, &args->block},
        {"--depth", NULL, &args->depth},         {"--threads", NULL, &args->threads},
        {"--tokens", NULL, &args->tokens},       {"--ahead", NULL, &args->ahead},
        {"--clip", NULL, &args->clip},           {"--device", NULL, &args->device},
        {"--host", NULL, &args->host},           {"--update", &args->update, NULL},
        {"--recompute", &args->recompute, NULL},
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
    return argc % 2 == 1 && args->rounds > 0 && args->rounds <= MAX_ROUNDS && args->steps > 0 &&
           args->layers > 0 && args->width >= 64 && args->width % 64 == 0 && args->vocab > 0 &&
           args->block > 0 && args->depth > 0 && args->tokens >= 0 && args->tokens <= MOST_TOKENS &&
           args->ahead >= 0;
}

static int by_value(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(const double *values, int64_t n)
{
    double sorted[MAX_ROUNDS];
    memcpy(sorted, values, (size_t)n * sizeof *values);
    qsort(sorted, (size_t)n, sizeof *sorted, by_value);
    return n % 2 ? sorted[n / 2] : (sorted[n / 2 - 1] + sorted[n / 2]) / 2;
}

/* ---- engines ---- */

enum way { COMPUTE, TRANSFERS, BOTH, IN_MEMORY, WAYS };

/* update: if gradients are clipped, when the update runs (spillway.clipped_update); NULL = they are
 * not clipped */
static sw_status open_way(const struct args *args, enum way way, int64_t tokens, const char *update,
                          sw_engine **out)
{
    char config[2048], offload[1024] = "", budgets[128] = "";
    if (way != IN_MEMORY) {
        snprintf(offload, sizeof offload,
                 ", \"offload_optimizer\": {\"device\": \"nvme\", \"nvme_path\": \"%s\"}, "
                 "\"offload_param\": {\"device\": \"%s\", \"nvme_path\": \"%s\"}",
                 args->path, args->params, args->path);
    }
    if (way != IN_MEMORY && args->device > 0 && args->host > 0) {
        snprintf(budgets, sizeof budgets, ", \"device_memory\": %lld, \"host_memory\": %lld",
                 (long long)args->device, (long long)args->host);
    }
    snprintf(
        config, sizeof config,
        "{\"train_micro_batch_size_per_gpu\": %d, \"gradient_clipping\": %d, \"bf16\": "
        "{\"enabled\": %s}, \"optimizer\": {\"type\": \"AdamW\", \"params\": {\"lr\": "
        "0.0001}}, \"zero_optimization\": {\"stage\": 3%s}, \"aio\": {\"block_size\": %lld, "
        "\"queue_depth\": %lld}, \"spillway\": {\"threads\": %lld, \"transfer_bytes\": %lld%s, "
        "\"clipped_update\": \"%s\", \"recompute\": \"%s\"}}",
        SEQUENCES, update != NULL, strcmp(args->dtype, "bf16") == 0 ? "true" : "false", offload,
        (long long)args->block, (long long)args->depth, (long long)args->threads,
        (long long)args->ahead, budgets, update && way != IN_MEMORY ? update : "end",
        way != IN_MEMORY ? args->recompute : "none");
    const struct sw_engine_options options = {.config.text = config,
                                              .model.path = args->model,
                                              .inputs.seq_len = tokens,
                                              .train = {.wanted = true, .no_dropout = true}};
    sw_engine *e;
    SW_TRY(sw_initialize(&options, &e));
    if (way == TRANSFERS || way == COMPUTE) {
        const sw_status st = sw_engine_replace_executor(
            e, (struct sw_executor_options){.no_kernels = way == TRANSFERS,
                                            .no_transfers = way == COMPUTE});
        if (st < 0) {
            sw_close(e);
            return st;
        }
    }
    *out = e;
    return SW_OK;
}

static const char *update_of(const struct args *args)
{
    return args->clip ? args->update : NULL;
}

static double disk_bytes(const sw_engine *e)
{
    struct sw_transfers sum;
    sw_executor_transferred(sw_engine_facts(e).executor, &sum);
    return (double)(sum.in[SW_TIER_DISK] + sum.out[SW_TIER_DISK]);
}

struct update { /* the last part of a step */
    double seconds, bytes;
};

static sw_status step(sw_engine *e, struct update *out)
{
    struct sw_step_report report;
    const struct sw_shape shape = {2, {sw_engine_micro_batch_size(e), sw_engine_seq_len(e)}};
    const int64_t n = sw_shape_elems(&shape);
    int32_t *ids = sw_alloc("bench", (size_t)n * sizeof *ids);
    SW_TRY_ALLOC(ids, "a batch");
    for (int64_t i = 0; i < n; i++) {
        ids[i] = (int32_t)(sw_philox_u64(1, 0, (uint64_t)i) % (uint64_t)sw_engine_vocab(e));
    }
    const struct sw_tensor tensors[] = {
        {"input_ids", {.data = ids, .dtype = SW_I32, .shape = shape}},
        {"labels", {.data = ids, .dtype = SW_I32, .shape = shape}}};
    const struct sw_batch batch = {tensors, 2};
    sw_status st = sw_forward(e, &batch, NULL);
    st = st < 0 ? st : sw_backward(e);
    const double begin = sw_now_s(), before = disk_bytes(e);
    st = st < 0 ? st : sw_step(e, &report);
    *out = (struct update){sw_now_s() - begin, disk_bytes(e) - before};
    sw_free(ids);
    return st;
}

/* Mean seconds of n steps. */
static sw_status time_steps(sw_engine *e, int64_t n, double *out)
{
    struct update update;
    const double begin = sw_now_s();
    for (int64_t i = 0; i < n; i++) {
        SW_TRY(step(e, &update));
    }
    *out = (sw_now_s() - begin) / (double)n;
    return SW_OK;
}

/* ---- the optimizer's update ---- */

static const char *const fio_ways[] = {"--ioengine=libaio", "--ioengine=io_uring",
                                       "--ioengine=io_uring --fixedbufs --registerfiles"};
enum { FIO_WAYS = 3 };

/* Field i (from 0) of a line with fields separated by semicolons. */
static double field(const char *line, int i)
{
    for (; line && i > 0; i--) {
        line = strchr(line, ';');
        line = line ? line + 1 : NULL;
    }
    return line ? atof(line) : 0;
}

/* Reads and writes in equal parts; the total is twice the file's size. */
static sw_status time_fio(const struct args *args, const char *file, int64_t bytes, int way,
                          double *out_rate)
{
    /* fields of terse format 3 */
    enum { READ_KIB = 5, READ_MS = 8, WRITE_KIB = 46, WRITE_MS = 49 };
    char command[1536], line[8192] = "";
    snprintf(command, sizeof command,
             "GLIBC_TUNABLES=glibc.malloc.hugetlb=1 fio --name=bench --filename='%s' --size=%lld "
             "--loops=2 --bs=%lld --iodepth=%lld --direct=1 --rw=rw %s --output-format=terse "
             "--terse-version=3",
             file, (long long)sw_round_up((size_t)bytes, (size_t)args->block),
             (long long)args->block, (long long)args->depth, fio_ways[way]);
    FILE *pipe = popen(command, "r");
    const bool got = pipe && fgets(line, sizeof line, pipe);
    const int status = pipe ? pclose(pipe) : -1;
    const double ms = fmax(field(line, READ_MS), field(line, WRITE_MS));
    if (!got || status != 0 || ms <= 0) {
        return SW_FAIL(SW_E_IO, "fio failed: %s", command);
    }
    *out_rate = (field(line, READ_KIB) + field(line, WRITE_KIB)) * 1024 / (ms / 1e3) / GB;
    return SW_OK;
}

/* The update first, then fio's ways. */
static double rates[1 + FIO_WAYS][MAX_ROUNDS];

static sw_status optimizer_rounds(const struct args *args, sw_engine *e, const char *file,
                                  int n_turns)
{
    const int64_t bytes = sw_engine_tier_bytes(e, SW_TIER_DISK);
    /* the first round lays out the files and touches memory */
    for (int64_t round = -1; round < args->rounds; round++) {
        for (int turn = 0; turn < n_turns; turn++) {
            const int way = (int)((turn + round + 1) % n_turns);
            double *rate = &rates[way][round < 0 ? 0 : round];
            struct update update;
            if (way > 0) {
                SW_TRY(time_fio(args, file, bytes, way - 1, rate));
                continue;
            }
            SW_TRY(step(e, &update));
            *rate = update.bytes / update.seconds / GB;
        }
    }
    return SW_OK;
}

static void print_optimizer(const struct args *args, const sw_engine *e, int n_turns)
{
    double best = 0;
    printf("\nthe optimizer's part: %.1f MiB on disk\n%-42s %8s %8s %8s  GB/s\n",
           (double)sw_engine_tier_bytes(e, SW_TIER_DISK) / 0x1p20, "", "least", "median", "most");
    for (int way = 0; way < n_turns; way++) {
        qsort(rates[way], (size_t)args->rounds, sizeof *rates[way], by_value);
        const double middle = median(rates[way], args->rounds);
        best = way > 0 && middle > best ? middle : best;
        printf("%-42s %8.3f %8.3f %8.3f\n", way > 0 ? fio_ways[way - 1] : "update", rates[way][0],
               middle, rates[way][args->rounds - 1]);
    }
    if (best > 0) {
        printf("update over the best of fio's: %.3f\n", median(rates[0], args->rounds) / best);
    }
}

static sw_status bench_optimizer(const struct args *args)
{
    const bool fio = system("fio --version >/dev/null 2>&1") == 0;
    const int n_turns = fio ? 1 + FIO_WAYS : 1;
    char file[512];
    sw_engine *e = NULL;
    snprintf(file, sizeof file, "%s/spillway-bench-infinity-%d.tmp", args->path, (int)getpid());
    SW_TRY(open_way(args, BOTH, LEAST_TOKENS, "end", &e));
    const sw_status st = optimizer_rounds(args, e, file, n_turns);
    if (st >= 0) {
        print_optimizer(args, e, n_turns);
    }
    sw_close(e);
    unlink(file);
    return st;
}

/* ---- steps ---- */

/* Measures in turns the seconds of a step: transfers, computation with few tokens, and with
 * many. */
enum { FEW = 32, MANY = 256, CASES = 3, TRIES = 7 };

static sw_status try_cases(sw_engine **engines, double out[CASES])
{
    double tries[CASES][TRIES];
    for (int i = -1; i < TRIES; i++) { /* the first step touches all memory */
        for (int k = 0; k < CASES; k++) {
            SW_TRY(time_steps(engines[k], 1, &tries[k][i < 0 ? 0 : i]));
        }
    }
    for (int k = 0; k < CASES; k++) {
        out[k] = median(tries[k], TRIES);
    }
    return SW_OK;
}

/* Models the time of computation as a + b tokens. */
static sw_status choose_tokens(const struct args *args, int64_t *out)
{
    sw_engine *engines[CASES] = {NULL};
    double t[CASES];
    sw_status st = open_way(args, TRANSFERS, FEW, update_of(args), &engines[0]);
    st = st < 0 ? st : open_way(args, COMPUTE, FEW, update_of(args), &engines[1]);
    st = st < 0 ? st : open_way(args, COMPUTE, MANY, update_of(args), &engines[2]);
    st = st < 0 ? st : try_cases(engines, t);
    for (int k = 0; k < CASES; k++) {
        sw_close(engines[k]);
    }
    SW_TRY(st);
    const double tokens = FEW + (t[0] - t[1]) / (t[2] - t[1]) * (MANY - FEW);
    if (!(tokens >= LEAST_TOKENS && tokens <= MOST_TOKENS)) {
        return SW_FAIL(SW_E_ARG,
                       "transfers take %.0f ms, computation %.0f ms with %d tokens a sequence and "
                       "%.0f ms with %d: no micro-batch makes them equal",
                       t[0] * 1e3, t[1] * 1e3, FEW, t[2] * 1e3, MANY);
    }
    *out = (int64_t)tokens / 4 * 4;
    return SW_OK;
}

static double seconds[WAYS][MAX_ROUNDS], processor[WAYS][MAX_ROUNDS], hidden[MAX_ROUNDS];

/* CPU seconds of this process. CPU time that transfers use is lost to computation. */
static double processor_s(void)
{
    struct rusage use;
    getrusage(RUSAGE_SELF, &use);
    return (double)(use.ru_utime.tv_sec + use.ru_stime.tv_sec) +
           (double)(use.ru_utime.tv_usec + use.ru_stime.tv_usec) / 1e6;
}

/* Share of disk and copy time that was hidden, between two readings. */
static double share_hidden(const struct sw_queue_times *before, const struct sw_queue_times *after)
{
    double busy = 0, waited = 0;
    for (int q = SW_QUEUE_H2D; q < SW_QUEUE_COUNT; q++) {
        busy += (double)(after[q].busy_ns - before[q].busy_ns);
        waited += (double)(after[q].waited_ns - before[q].waited_ns);
    }
    return 1 - waited / busy;
}

static sw_status step_rounds(const struct args *args, sw_engine **engines)
{
    struct sw_queue_times before[SW_QUEUE_COUNT], after[SW_QUEUE_COUNT];
    double warm;
    for (int way = 0; way < WAYS; way++) {
        SW_TRY(time_steps(engines[way], 2, &warm));
    }
    for (int64_t round = 0; round < args->rounds; round++) {
        for (int turn = 0; turn < WAYS; turn++) {
            const int way = (int)((turn + round) % WAYS);
            sw_executor_queue_times(sw_engine_facts(engines[way]).executor, before);
            const double used = processor_s();
            SW_TRY(time_steps(engines[way], args->steps, &seconds[way][round]));
            processor[way][round] = (processor_s() - used) / (double)args->steps;
            sw_executor_queue_times(sw_engine_facts(engines[way]).executor, after);
            hidden[round] = way == BOTH ? share_hidden(before, after) : hidden[round];
        }
    }
    return SW_OK;
}

static void print_steps(const struct args *args, sw_engine **engines, int64_t tokens)
{
    static const char *const names[WAYS] = {"computation alone", "transfers alone", "both",
                                            "nothing offloaded"};
    double ratios[MAX_ROUNDS];
    const struct sw_transfers moves = sw_plan_transfers(sw_engine_facts(engines[BOTH]).plan, 1);
    printf("\na step: micro-batch of %d x %lld tokens; %.1f MiB read, %.1f MiB written; device "
           "%.1f MiB, everything in memory %.1f MiB\n",
           SEQUENCES, (long long)tokens, (double)moves.in[SW_TIER_DISK] / 0x1p20,
           (double)moves.out[SW_TIER_DISK] / 0x1p20,
           (double)sw_engine_tier_bytes(engines[BOTH], SW_TIER_DEVICE) / 0x1p20,
           (double)sw_engine_tier_bytes(engines[IN_MEMORY], SW_TIER_DEVICE) / 0x1p20);
    for (int64_t i = 0; i < args->rounds; i++) {
        ratios[i] = seconds[BOTH][i] / fmax(seconds[COMPUTE][i], seconds[TRANSFERS][i]);
        printf("round %-3lld ms %8.1f %8.1f %8.1f %8.1f ratio %.3f\n", (long long)i,
               seconds[COMPUTE][i] * 1e3, seconds[TRANSFERS][i] * 1e3, seconds[BOTH][i] * 1e3,
               seconds[IN_MEMORY][i] * 1e3, ratios[i]);
    }
    for (int way = 0; way < WAYS; way++) {
        printf("%-18s %8.1f ms, %8.1f ms of processors; median of %lld times the mean of %lld "
               "steps\n",
               names[way], median(seconds[way], args->rounds) * 1e3,
               median(processor[way], args->rounds) * 1e3, (long long)args->rounds,
               (long long)args->steps);
    }
    printf("hidden %.0f %% of transfers; %lld steps over %lld times the larger: %.3f (of the "
           "medians: %.3f)\n",
           100 * median(hidden, args->rounds), (long long)args->steps, (long long)args->steps,
           median(ratios, args->rounds),
           median(seconds[BOTH], args->rounds) / fmax(median(seconds[COMPUTE], args->rounds),
                                                      median(seconds[TRANSFERS], args->rounds)));
}

static sw_status bench_steps(const struct args *args)
{
    sw_engine *engines[WAYS] = {NULL};
    int64_t tokens = args->tokens;
    sw_status st = tokens > 0 ? SW_OK : choose_tokens(args, &tokens);
    for (int way = 0; st >= 0 && way < WAYS; way++) {
        st = open_way(args, (enum way)way, tokens, update_of(args), &engines[way]);
    }
    st = st < 0 ? st : step_rounds(args, engines);
    if (st >= 0) {
        print_steps(args, engines, tokens);
    }
    for (int way = 0; way < WAYS; way++) {
        sw_close(engines[way]);
    }
    return st;
}

/* ---- main ---- */

static sw_status write_model(struct args *args)
{
    char text[512];
    snprintf(text, sizeof text,
             "{\"model_type\":\"gpt2\",\"architectures\":[\"GPT2LMHeadModel\"],\"vocab_size\":%lld,"
             "\"n_positions\":%d,\"n_embd\":%lld,\"n_layer\":%lld,\"n_head\":%lld}",
             (long long)args->vocab, MOST_TOKENS, (long long)args->width, (long long)args->layers,
             (long long)args->width / 64);
    snprintf(args->model, sizeof args->model, "/tmp/bench-infinity-XXXXXX");
    const int fd = mkstemp(args->model);
    if (fd < 0) {
        return SW_FAIL(SW_E_IO, "no file in /tmp");
    }
    close(fd);
    return sw_file_write_atomic(args->model, text, strlen(text));
}

/* Prints the machine, and the model with its largest tensor. */
static sw_status print_model(const struct args *args)
{
    struct sw_cpu_report report;
    double load = 0;
    int64_t largest = 0, all = 0;
    sw_engine *e = NULL;
    char config[] = "{\"train_micro_batch_size_per_gpu\": 1}";
    const struct sw_engine_options options = {.config.text = config,
                                              .model.path = args->model,
                                              .inputs.seq_len = LEAST_TOKENS,
                                              .train.wanted = true,
                                              .plan.only = true};
    SW_TRY(sw_initialize(&options, &e));
    const sw_status st = sw_device_cpu_report(sw_engine_facts(e).device, &report);
    for (int32_t i = 0; i < sw_engine_n_tensors(e); i++) {
        const int64_t n = sw_shape_elems(&sw_engine_weights(e)->params.items[i].work->shape);
        largest = n > largest ? n : largest;
        all += n;
    }
    if (st >= 0 && getloadavg(&load, 1) == 1) {
        printf("%s, %s, %d processors, load %.1f\n%s: GPT-2 of %lld layers, width %lld, vocabulary "
               "%lld: %.1fM parameters, the largest tensor %.1f %% of them; parameters: %s; blocks "
               "of %lld, depth %lld\n",
               report.cpu, report.isa, sw_cpu_count(), load, args->dtype, (long long)args->layers,
               (long long)args->width, (long long)args->vocab, (double)all / 1e6,
               100 * (double)largest / (double)all, args->params, (long long)args->block,
               (long long)args->depth);
    }
    sw_close(e);
    return st;
}

static sw_status bench(struct args *args)
{
    SW_TRY(write_model(args));
    sw_status st = print_model(args);
    if (st >= 0 && strcmp(args->only, "step") != 0) {
        st = bench_optimizer(args);
        fflush(stdout);
    }
    if (st >= 0 && strcmp(args->only, "optimizer") != 0) {
        st = bench_steps(args);
    }
    unlink(args->model);
    return st;
}

int main(int argc, char **argv)
{
    struct args args = {.path = ".",
                        .dtype = "bf16",
                        .params = "nvme",
                        .only = "",
                        .update = "end",
                        .recompute = "none",
                        .rounds = 5,
                        .steps = 10,
                        .layers = 24,
                        .width = 512,
                        .vocab = 2048,
                        .block = 1 << 20,
                        .depth = 32,
                        .ahead = 1 << 29};
    if (!parse(argc, argv, &args)) {
        fprintf(stderr,
                "usage: bench_infinity [--path FOLDER] [--rounds N] [--steps N] [--layers N] "
                "[--width N] [--vocab N] [--dtype bf16|f32] [--params nvme|cpu|none] [--block "
                "BYTES] [--depth N] [--threads N] [--tokens N] [--ahead BYTES] [--only "
                "optimizer|step] [--clip 0|1] [--update end|next_forward] [--device BYTES "
                "--host BYTES] [--recompute none|blocks]\n");
        return 2;
    }
    const sw_status st = bench(&args);
    if (st < 0) {
        fprintf(stderr, "bench_infinity: %s\n", sw_error_message());
    }
    return st < 0;
}
