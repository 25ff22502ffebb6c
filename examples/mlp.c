// SPDX-License-Identifier: Apache-2.0
// A user's own model: a small classifier separates two spirals. Its forward uses the public header
// only. It is trained twice from the same start, by sw_train_batch and by sw_forward, sw_backward,
// sw_step; the weights must agree bit for bit.
//
//     cc mlp.c $(pkg-config --cflags --libs spillway) -lm
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "spillway/engine.h"

enum { BATCH = 32, MICRO_BATCHES = 4, HIDDEN = 48, CLASSES = 2, STEPS = 300 };

static sw_value forward(sw_graph *g, void *ctx, int64_t batch)
{
    (void)ctx;
    const struct sw_shape points = {2, {batch, 2}}, labels = {1, {batch}};
    const struct sw_init zero = {SW_INIT_ZERO, 0};
    sw_value x = sw_input(g, "points", SW_F32, points);
    int64_t width = 2;
    for (int layer = 0; layer < 3; layer++) {
        char name[32];
        const int64_t out = layer < 2 ? HIDDEN : CLASSES;
        const struct sw_init init = {SW_INIT_NORMAL, sqrt(2.0 / (double)width)};
        const struct sw_shape weight = {2, {out, width}}, bias = {1, {out}};
        snprintf(name, sizeof name, "layer.%d", layer);
        sw_scope_push(g, name);
        snprintf(name, sizeof name, "layer.%d.weight", layer);
        const sw_value w = sw_param(g, name, weight, init);
        snprintf(name, sizeof name, "layer.%d.bias", layer);
        x = sw_linear(g, x, w, sw_param(g, name, bias, zero), false);
        if (layer < 2) {
            x = sw_act(g, x, SW_ACT_TANH);
        }
        sw_scope_pop(g);
        width = out;
    }
    return sw_cross_entropy(g, x, sw_input(g, "labels", SW_I32, labels));
}

/* Point i of an endless, seeded stream. */
static void draw(uint32_t i, float *xy, int32_t *label)
{
    uint32_t h = i * 2654435761u;
    h = (h ^ h >> 15) * 2246822519u;
    h ^= h >> 13;
    const double t = 0.3 + 3.0 * (double)(h >> 8) / (double)(1 << 24);
    *label = (int32_t)(i & 1);
    const double angle = 2.2 * t + (*label ? 3.14159265358979 : 0);
    xy[0] = (float)(t * cos(angle));
    xy[1] = (float)(t * sin(angle));
}

struct data {
    float points[MICRO_BATCHES][BATCH][2];
    int32_t labels[MICRO_BATCHES][BATCH];
    struct sw_tensor tensors[MICRO_BATCHES][2];
    struct sw_batch batches[MICRO_BATCHES];
};

static void fill(struct data *data, uint32_t first)
{
    for (int k = 0; k < MICRO_BATCHES; k++) {
        for (int b = 0; b < BATCH; b++) {
            draw(first + (uint32_t)(k * BATCH + b), data->points[k][b], &data->labels[k][b]);
        }
        data->tensors[k][0] = (struct sw_tensor){
            "points", {.data = data->points[k], .dtype = SW_F32, .shape = {2, {BATCH, 2}}}};
        data->tensors[k][1] = (struct sw_tensor){
            "labels", {.data = data->labels[k], .dtype = SW_I32, .shape = {1, {BATCH}}}};
        data->batches[k] = (struct sw_batch){data->tensors[k], 2};
    }
}

/* Trains from the start. whole: by sw_train_batch, else by its three parts. */
static sw_engine *train(bool whole, struct data *data, double *loss)
{
    const struct sw_engine_options options = {
        .config.text =
            "{\"train_micro_batch_size_per_gpu\": 32, \"gradient_accumulation_steps\": 4,"
            " \"optimizer\": {\"type\": \"AdamW\", \"params\": {\"lr\": 0.01}}}",
        .model.forward = forward,
        .seed = 1,
        .train.wanted = true,
    };
    sw_engine *engine = NULL;
    struct sw_step_report report;
    sw_status st = sw_initialize(&options, &engine);
    for (uint32_t step = 0; st >= 0 && step < STEPS; step++) {
        fill(data, step * BATCH * MICRO_BATCHES);
        if (whole) {
            st = sw_train_batch(engine, data->batches, MICRO_BATCHES, &report);
        }
        for (int k = 0; !whole && st >= 0 && k < MICRO_BATCHES; k++) {
            st = sw_forward(engine, &data->batches[k], NULL);
            st = st < 0 ? st : sw_backward(engine);
        }
        if (!whole && st >= 0) {
            st = sw_step(engine, &report);
        }
        if (st >= 0 && whole && (step + 1) % 100 == 0) {
            printf("step %u loss %.4f\n", step + 1, report.loss);
        }
        *loss = st >= 0 ? report.loss : *loss;
    }
    if (st < 0) {
        fprintf(stderr, "mlp: %s\n", sw_error_message());
        sw_close(engine);
        return NULL;
    }
    return engine;
}

int main(void)
{
    static struct data data;
    static float a[HIDDEN * HIDDEN], b[HIDDEN * HIDDEN];
    double loss = 0, loss_parts = 0;
    sw_engine *whole = train(true, &data, &loss);
    sw_engine *parts = train(false, &data, &loss_parts);
    int status = whole && parts && loss < 0.1 ? EXIT_SUCCESS : EXIT_FAILURE;
    if (status == EXIT_SUCCESS) {
        const bool read = sw_get_weight(whole, "layer.1.weight", 0, HIDDEN * HIDDEN, a) >= 0 &&
                          sw_get_weight(parts, "layer.1.weight", 0, HIDDEN * HIDDEN, b) >= 0;
        const bool equal = read && memcmp(a, b, sizeof a) == 0 && loss == loss_parts;
        printf("both ways agree bit for bit: %s\n", equal ? "yes" : "no");
        status = equal ? EXIT_SUCCESS : EXIT_FAILURE;
    }
    sw_close(whole);
    sw_close(parts);
    return status;
}
