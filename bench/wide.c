// SPDX-License-Identifier: Apache-2.0
// The widest layer that trains on a device of fixed memory: one layer h -> 4h -> h in bf16 with
// AdamW, its parameters and states offloaded. Its largest matrix and that matrix's gradient take 16
// h^2 bytes (ZeRO-Infinity, section 3). With T tiles they take 16 h^2 / T, so the widest layer
// grows with the root of T.
//
//     bench_wide [--budget-mib 1024] [--step 512]      plans alone: the widest layer by 1, 2, 4, 8
//                                                      and 16 tiles
//     bench_wide --width 65536 [--ranks 4]             plans alone: device memory of one rank at
//                                                      that width, by tiles, and the time of one
//                                                      plan
//     bench_wide --run 4096 [--budget-mib 48] [--steps 2] [--whole 1]
//                                                      trains one, in tiles chosen for the budget
//
// --whole 1 also trains it without a budget and without tiles, and says whether losses and weights
// are the same.
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/engine.h"

enum { VOCAB = 64, BATCH = 1, TOKENS = 16, MOST_TILES = 16 };
/* A matrix is updated in four times as many pieces as it has tiles at most. */
enum { UPDATES = 64 };

struct layer {
    int64_t width;
    int ranks; /* plans alone: number of ranks; 0 = one rank without a communicator */
};

static sw_value forward(sw_graph *g, void *ctx, int64_t batch)
{
    const struct layer *layer = ctx;
    const int64_t h = layer->width;
    const struct sw_init init = {SW_INIT_NORMAL, 0.01};
    const sw_value table = sw_param(g, "table", SW_SHAPE(VOCAB, h), init);
    const sw_value ids = sw_input(g, "input_ids", SW_I32, SW_SHAPE(batch, TOKENS));
    sw_value x = sw_embedding(g, table, ids, -1);
    sw_scope_push_block(g, "layer");
    const sw_value up = sw_param(g, "up.weight", SW_SHAPE(h, 4 * h), init);
    const sw_value down = sw_param(g, "down.weight", SW_SHAPE(4 * h, h), init);
    sw_value y = sw_act(g, sw_linear(g, x, up, SW_NO_VALUE, true), SW_ACT_GELU_TANH);
    x = sw_add(g, x, sw_linear(g, y, down, SW_NO_VALUE, true));
    sw_scope_pop(g);
    const sw_value labels = sw_input(g, "labels", SW_I32, SW_SHAPE(batch, TOKENS));
    return sw_linear_cross_entropy(g, x, table, SW_NO_VALUE, labels, 0);
}

/* tile_bytes 0: chosen for the budget. budget 0: no budget. Prefetching is limited to a few pieces,
 * because the benchmark measures the least memory. */
static sw_status open_engine(struct layer *layer, int64_t budget, int64_t tile_bytes,
                             bool plan_only, sw_engine **out)
{
    char config[1024];
    snprintf(config, sizeof config,
             "{\"train_micro_batch_size_per_gpu\": %d, \"bf16\": {\"enabled\": true}, "
             "\"optimizer\": {\"type\": \"AdamW\", \"params\": {\"lr\": 0.0001}}, "
             "\"zero_optimization\": {\"stage\": 3, \"sub_group_size\": %lld, "
             "\"offload_optimizer\": {\"device\": \"cpu\"}, \"offload_param\": {\"device\": "
             "\"cpu\"}}, \"spillway\": {\"device_memory\": %lld, \"tile_bytes\": %lld, "
             "\"transfer_bytes\": "
             "67108864}}",
             BATCH, (long long)(layer->width * layer->width / UPDATES), (long long)budget,
             (long long)tile_bytes);
    struct sw_engine_options options = {.config.text = config,
                                        .model = {.forward = forward, .forward_ctx = layer},
                                        .seed = 1,
                                        .train.wanted = true,
                                        .plan.only = plan_only};
    if (layer->ranks > 1) {
        SW_TRY(sw_comm_open(&(struct sw_transport){.size = layer->ranks}, &options.run.comm));
    }
    const sw_status st = sw_initialize(&options, out);
    if (st < 0 && options.run.comm) {
        sw_comm_close(options.run.comm, true);
    }
    return st;
}

/* Bytes of one tile if a matrix has `tiles` tiles. */
static int64_t tile_bytes(int64_t width, int64_t tiles)
{
    return 8 * width * width / tiles;
}

static bool fits(int64_t width, int ranks, int64_t budget, int64_t tiles)
{
    struct layer layer = {width, ranks};
    sw_engine *e = NULL;
    if (open_engine(&layer, budget, tile_bytes(width, tiles), true, &e) < 0) {
        return false;
    }
    sw_comm *comm = sw_engine_facts(e).comm;
    sw_close(e);
    if (comm) {
        sw_comm_close(comm, false);
    }
    return true;
}

static int64_t widest(int64_t budget, int64_t tiles, int64_t step)
{
    int64_t low = 0, high = 1;
    while (fits(high * step, 0, budget, tiles)) {
        low = high;
        high *= 2;
    }
    while (high - low > 1) {
        const int64_t middle = (low + high) / 2;
        *(fits(middle * step, 0, budget, tiles) ? &low : &high) = middle;
    }
    return low * step;
}

static void print_widths(int64_t budget, int64_t step)
{
    int64_t one = 0;
    for (int64_t tiles = 1; tiles <= MOST_TILES; tiles *= 2) {
        const int64_t width = widest(budget, tiles, step);
        one = tiles == 1 ? width : one;
        printf("{\"budget_bytes\":%lld,\"tiles\":%lld,\"widest\":%lld,\"ratio\":%.3f,"
               "\"formula_ratio\":%.3f,\"formula_bytes\":%lld}\n",
               (long long)budget, (long long)tiles, (long long)width,
               (double)width / (double)(one > 0 ? one : 1), sqrt((double)tiles),
               (long long)(2 * tile_bytes(width, tiles)));
        fflush(stdout);
    }
}

/* The smallest budget of a plan, to within 3 % of `about`. */
static int64_t least_budget(int64_t width, int ranks, int64_t tiles, int64_t about)
{
    int64_t low = about / 2, high = about + about / 4;
    while (!fits(width, ranks, high, tiles)) {
        low = high;
        high *= 2;
    }
    while (high - low > about / 32) {
        const int64_t middle = low + (high - low) / 2;
        *(fits(width, ranks, middle, tiles) ? &high : &low) = middle;
    }
    return high;
}

static void print_bytes(int64_t width, int ranks)
{
    for (int64_t tiles = 1; tiles <= MOST_TILES; tiles *= 2) {
        const int64_t formula = 2 * tile_bytes(width, tiles);
        const int64_t bytes = least_budget(width, ranks, tiles, formula);
        const double begin = sw_now_s();
        fits(width, ranks, bytes, tiles);
        printf("{\"width\":%lld,\"ranks\":%d,\"tiles\":%lld,\"device_bytes\":%lld,"
               "\"formula_bytes\":%lld,\"of_formula\":%.3f,\"plan_s\":%.3f}\n",
               (long long)width, ranks > 1 ? ranks : 1, (long long)tiles, (long long)bytes,
               (long long)formula, (double)bytes / (double)formula, sw_now_s() - begin);
        fflush(stdout);
    }
}

/* ---- training ---- */

static sw_status hash_weights(sw_engine *e, uint64_t *out)
{
    enum { PIECE = 1 << 16 };
    static float piece[PIECE];
    *out = SW_HASH_INIT;
    for (int32_t i = 0; i < sw_engine_n_tensors(e); i++) {
        const char *name;
        struct sw_shape shape;
        SW_TRY(sw_engine_tensor(e, i, &name, &shape));
        const int64_t elems = sw_shape_elems(&shape);
        for (int64_t at = 0; at < elems; at += PIECE) {
            const int64_t n = sw_min_i64(PIECE, elems - at);
            SW_TRY(sw_get_weight(e, name, at, n, piece));
            *out = sw_hash(*out, piece, (size_t)n * sizeof *piece);
        }
    }
    return SW_OK;
}

struct outcome {
    double loss, seconds;
    int64_t device_bytes, tiles;
    uint64_t weights;
};

static sw_status train(int64_t width, int64_t budget, int64_t tile, int64_t steps,
                       struct outcome *out)
{
    struct layer layer = {width, 0};
    int32_t ids[BATCH * TOKENS], labels[BATCH * TOKENS];
    const struct sw_shape shape = SW_SHAPE(BATCH, TOKENS);
    const struct sw_tensor tensors[] = {
        {"input_ids", {.data = ids, .dtype = SW_I32, .shape = shape}},
        {"labels", {.data = labels, .dtype = SW_I32, .shape = shape}}};
    const struct sw_batch batch = {tensors, 2};
    sw_engine *e = NULL;
    SW_TRY(open_engine(&layer, budget, tile, false, &e));
    for (int i = 0; i < BATCH * TOKENS; i++) {
        ids[i] = (int32_t)(sw_philox_u64(1, 1, (uint64_t)i) % VOCAB);
        labels[i] = (int32_t)(sw_philox_u64(1, 2, (uint64_t)i) % VOCAB);
    }
    *out = (struct outcome){.device_bytes = sw_engine_tier_bytes(e, SW_TIER_DEVICE), .tiles = 1};
    const struct sw_plan *plan = sw_engine_facts(e).plan;
    for (int32_t i = 0; i < plan->n_tiled; i++) {
        out->tiles = sw_max_i64(out->tiles, plan->tiled[i].n_tiles);
    }
    sw_status st = SW_OK;
    const double begin = sw_now_s();
    for (int64_t i = 0; i < steps && st >= 0; i++) {
        struct sw_step_report report;
        st = sw_train_batch(e, &batch, 1, &report);
        out->loss = report.loss;
    }
    out->seconds = (sw_now_s() - begin) / (double)steps;
    st = st < 0 ? st : hash_weights(e, &out->weights);
    sw_close(e);
    return st;
}

static void print_outcome(int64_t width, int64_t budget, const struct outcome *o)
{
    printf("{\"width\":%lld,\"budget_bytes\":%lld,\"matrix_bytes\":%lld,\"tiles\":%lld,"
           "\"device_bytes\":%lld,\"step_s\":%.3f,\"loss\":%.6f,\"weights\":\"%016llx\"}\n",
           (long long)width, (long long)budget, (long long)(8 * width * width), (long long)o->tiles,
           (long long)o->device_bytes, o->seconds, o->loss, (unsigned long long)o->weights);
    fflush(stdout);
}

static sw_status run(int64_t width, int64_t budget, int64_t steps, bool whole)
{
    struct outcome tiled, one;
    SW_TRY(train(width, budget, 0, steps, &tiled));
    print_outcome(width, budget, &tiled);
    if (whole) {
        SW_TRY(train(width, 0, 0, steps, &one));
        print_outcome(width, 0, &one);
        printf("{\"same_bits\":%s}\n",
               memcmp(&tiled.loss, &one.loss, sizeof one.loss) == 0 && tiled.weights == one.weights
                   ? "true"
                   : "false");
    }
    return SW_OK;
}

int main(int argc, char **argv)
{
    int64_t budget = 0, step = 512, width = 0, ranks = 1, run_width = 0, steps = 2, whole = 0;
    const struct {
        const char *name;
        int64_t *value;
    } flags[] = {{"--budget-mib", &budget}, {"--step", &step},     {"--width", &width},
                 {"--ranks", &ranks},       {"--run", &run_width}, {"--steps", &steps},
                 {"--whole", &whole}};
    bool good = argc % 2 == 1;
    for (int i = 1; i + 1 < argc && good; i += 2) {
        good = false;
        for (size_t k = 0; k < SW_LEN(flags); k++) {
            if (strcmp(argv[i], flags[k].name) == 0) {
                *flags[k].value = atoll(argv[i + 1]);
                good = true;
            }
        }
    }
    if (!good || step < 1 || steps < 1 || budget < 0 || ranks < 1 || ranks > INT_MAX) {
        fprintf(stderr, "usage: see the head of bench/wide.c\n");
        return 2;
    }
    budget = (budget > 0 ? budget : run_width > 0 ? 48 : 1024) << 20;
    sw_status st = SW_OK;
    if (run_width > 0) {
        st = run(run_width, budget, steps, whole != 0);
    } else if (width > 0) {
        print_bytes(width, (int)ranks);
    } else {
        print_widths(budget, step);
    }
    if (st < 0) {
        fprintf(stderr, "%s\n", sw_error_message());
    }
    return st < 0;
}
