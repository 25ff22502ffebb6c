// SPDX-License-Identifier: Apache-2.0
// Trains a preset on one batch of random tokens, and counts the bytes that the process reads and
// writes. Prints disk bytes per parameter and step (/proc/self/io) next to those of the plan. The
// count runs from the end of the first step to the end of the last.
//
//     bench_disk_bytes --model gpt2-xl --config ds.json [--seq-len 64] [--steps 20]
//                      [--set KEY=VALUE]..
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "base/base.h"
#include "spillway/engine.h"

enum { MOST_SETS = 16 };

struct run {
    const char *model, *config, *sets[MOST_SETS];
    int n_sets;
    int64_t tokens, steps;
};

static bool parse(int argc, char **argv, struct run *run)
{
    for (int i = 1; i + 1 < argc; i += 2) {
        const char *value = argv[i + 1];
        if (strcmp(argv[i], "--model") == 0) {
            run->model = value;
        } else if (strcmp(argv[i], "--config") == 0) {
            run->config = value;
        } else if (strcmp(argv[i], "--seq-len") == 0) {
            run->tokens = atoll(value);
        } else if (strcmp(argv[i], "--steps") == 0) {
            run->steps = atoll(value);
        } else if (strcmp(argv[i], "--set") == 0 && run->n_sets < MOST_SETS) {
            run->sets[run->n_sets++] = value;
        } else {
            return false;
        }
    }
    return argc % 2 == 1 && run->config && run->tokens > 0 && run->steps > 1;
}

struct moved {
    double read, written;
};

static bool read_io(struct moved *out)
{
    FILE *file = fopen("/proc/self/io", "r");
    char line[128];
    int found = 0;
    while (file && fgets(line, sizeof line, file)) {
        found += sscanf(line, "read_bytes: %lf", &out->read) == 1;
        found += sscanf(line, "write_bytes: %lf", &out->written) == 1;
    }
    if (file) {
        fclose(file);
    }
    return found == 2;
}

static sw_status train(sw_engine *e, const struct run *run, const struct sw_batch *batches)
{
    const double params = (double)sw_engine_parameters(e), begin = sw_now_s();
    struct moved first = {0}, last = {0};
    struct sw_step_report report;
    double loss = 0, begun = 0;
    for (int64_t i = 0; i < run->steps; i++) {
        const double now = sw_now_s();
        SW_TRY(sw_train_batch(e, batches, sw_engine_local_micro_batches(e), &report));
        printf("step %lld loss %.4f norm %.3f %.2f s\n", (long long)report.step, report.loss,
               report.grad_norm, sw_now_s() - now);
        fflush(stdout);
        if (!read_io(i == 0 ? &first : &last)) {
            return SW_FAIL(SW_E_IO, "/proc/self/io cannot be read");
        }
        loss = i == 0 ? report.loss : loss;
        begun = i == 0 ? sw_now_s() : begun;
    }
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    const double share = params * (double)(run->steps - 1);
    printf(
        "{\"model\":\"%s\",\"parameters\":%.0f,\"steps\":%lld,\"first_loss\":%.4f,\"last_loss\":"
        "%.4f,\"step_s\":%.3f,\"read_bytes\":%.3f,\"written_bytes\":%.3f,\"bytes_by_parameter_and_"
        "step\":%.3f,\"device_bytes\":%lld,\"host_bytes\":%lld,\"disk_bytes\":%lld,"
        "\"peak_rss_bytes\":%lld,\"total_s\":%.1f}\n",
        run->model, params, (long long)run->steps, loss, report.loss,
        (sw_now_s() - begun) / (double)(run->steps - 1), (last.read - first.read) / share,
        (last.written - first.written) / share,
        (last.read - first.read + last.written - first.written) / share,
        (long long)sw_engine_tier_bytes(e, 0), (long long)sw_engine_tier_bytes(e, 1),
        (long long)sw_engine_tier_bytes(e, 2), (long long)usage.ru_maxrss * 1024,
        sw_now_s() - begin);
    return SW_OK;
}

static sw_status bench(const struct run *run)
{
    const struct sw_engine_options options = {
        .config = {.path = run->config, .sets = run->sets, .n_sets = run->n_sets},
        .model.path = run->model,
        .inputs.seq_len = run->tokens,
        .train = {.wanted = true, .no_dropout = true},
    };
    sw_engine *e = NULL;
    const double begin = sw_now_s();
    SW_TRY(sw_initialize(&options, &e));
    printf("opened in %.1f s\n", sw_now_s() - begin);
    fflush(stdout);
    const int64_t rows = sw_engine_micro_batch_size(e), n = rows * run->tokens;
    const int64_t k = sw_engine_local_micro_batches(e);
    int32_t *ids = malloc((size_t)n * sizeof *ids), *labels = malloc((size_t)n * sizeof *labels);
    struct sw_batch *batches = malloc((size_t)k * sizeof *batches);
    const struct sw_shape shape = {2, {rows, run->tokens}};
    const struct sw_tensor tensors[] = {
        {"input_ids", {.data = ids, .dtype = SW_I32, .shape = shape}},
        {"labels", {.data = labels, .dtype = SW_I32, .shape = shape}}};
    sw_status st = SW_FAIL(SW_E_NOMEM, "out of host memory");
    if (ids && labels && batches) {
        for (int64_t i = 0; i < n; i++) {
            ids[i] = (int32_t)(sw_philox_u64(1, 1, (uint64_t)i) % (uint64_t)sw_engine_vocab(e));
            labels[i] = (int32_t)(sw_philox_u64(1, 2, (uint64_t)i) % (uint64_t)sw_engine_vocab(e));
        }
        for (int64_t i = 0; i < k; i++) {
            batches[i] = (struct sw_batch){tensors, 2};
        }
        st = train(e, run, batches);
    }
    free(ids);
    free(labels);
    free(batches);
    sw_close(e);
    return st;
}

int main(int argc, char **argv)
{
    struct run run = {.model = "gpt2", .tokens = 64, .steps = 20};
    if (!parse(argc, argv, &run)) {
        fprintf(stderr, "usage: bench_disk_bytes --config ds.json [--model PRESET] [--seq-len T] "
                        "[--steps N] [--set KEY=VALUE]..\n");
        return 2;
    }
    if (bench(&run) < 0) {
        fprintf(stderr, "bench_disk_bytes: %s\n", sw_error_message());
        return 1;
    }
    return 0;
}
