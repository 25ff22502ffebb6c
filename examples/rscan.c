// SPDX-License-Identifier: Apache-2.0
// A recurrent network that detects which of four words is hidden in a row of random letters. An
// LSTM reads each row in both directions. LAMB with bounds on its trust ratio updates the
// parameters under a one-cycle schedule. Gradients of the letter table are sparse. It is trained on
// two ranks and on one, at different ZeRO stages; the weights must agree bit for bit.
//
//     cc rscan.c $(pkg-config --cflags --libs spillway)
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "spillway/comm.h"
#include "spillway/engine.h"

enum { BATCH = 16, STEPS = 160, TOKENS = 12, LEAST = 6, LETTERS = 26, PAD = LETTERS, WORDS = 4 };
enum { WIDTH = 16, HIDDEN = 16, MICRO_BATCHES = 2, TABLE = (LETTERS + 1) * WIDTH };

/* ---- data, computed from the row's number ---- */

static uint32_t draw(uint32_t *state)
{
    *state = *state * 1664525u + 1013904223u;
    return *state >> 8;
}

static void make_row(uint32_t number, int32_t *ids, int32_t *label)
{
    static const char words[WORDS][4] = {"cat", "dog", "emu", "fox"};
    uint32_t state = number * 2654435761u + 12345u;
    draw(&state);
    const int length = LEAST + (int)(draw(&state) % (TOKENS - LEAST + 1));
    const int at = (int)(draw(&state) % (uint32_t)(length - 2));
    *label = (int32_t)(draw(&state) % WORDS);
    for (int i = 0; i < TOKENS; i++) {
        ids[i] = i < length ? (int32_t)(draw(&state) % LETTERS) : PAD;
    }
    for (int i = 0; i < 3; i++) {
        ids[at + i] = words[*label][i] - 'a';
    }
}

struct rows {
    int32_t ids[BATCH][TOKENS], labels[BATCH];
    struct sw_tensor tensors[2];
    struct sw_batch batch;
};

static void fill(struct rows *rows, uint32_t first)
{
    for (uint32_t b = 0; b < BATCH; b++) {
        make_row(first + b, rows->ids[b], &rows->labels[b]);
    }
    rows->tensors[0] = (struct sw_tensor){
        "ids", {.data = rows->ids, .dtype = SW_I32, .shape = {2, {BATCH, TOKENS}}}};
    rows->tensors[1] = (struct sw_tensor){
        "labels", {.data = rows->labels, .dtype = SW_I32, .shape = {1, {BATCH}}}};
    rows->batch = (struct sw_batch){rows->tensors, 2};
}

/* ---- the network ---- */

static sw_value uniform(sw_graph *g, const char *layer, const char *name, int64_t rows,
                        int64_t columns)
{
    char full[48];
    const struct sw_init init = {SW_INIT_UNIFORM, 0.2};
    const struct sw_shape matrix = {2, {rows, columns}}, vector = {1, {rows}};
    snprintf(full, sizeof full, "%s.%s", layer, name);
    return sw_param(g, full, columns > 0 ? matrix : vector, init);
}

static sw_value read_rows(sw_graph *g, const char *layer, sw_value x, sw_value mask, bool reverse)
{
    const struct sw_lstm_spec spec = {.w_ih = uniform(g, layer, "weight_ih", 4 * HIDDEN, WIDTH),
                                      .w_hh = uniform(g, layer, "weight_hh", 4 * HIDDEN, HIDDEN),
                                      .b_ih = uniform(g, layer, "bias_ih", 4 * HIDDEN, 0),
                                      .b_hh = uniform(g, layer, "bias_hh", 4 * HIDDEN, 0),
                                      .mask = mask,
                                      .reverse = reverse};
    sw_scope_push(g, layer);
    const sw_value h = sw_lstm(g, x, &spec);
    sw_scope_pop(g);
    return h;
}

static sw_value forward(sw_graph *g, void *ctx, int64_t batch)
{
    const struct sw_shape rows = {2, {batch, TOKENS}}, labels = {1, {batch}};
    const struct sw_shape table = {2, {LETTERS + 1, WIDTH}};
    (void)ctx;
    const sw_value ids = sw_input(g, "ids", SW_I32, rows);
    const sw_value mask = sw_not_equal(g, ids, PAD);
    const sw_value letters =
        sw_param(g, "letters.weight", table, (struct sw_init){SW_INIT_NORMAL, 0.5});
    const sw_value x = sw_embedding(g, letters, ids, PAD);
    const sw_value both[2] = {read_rows(g, "forward", x, mask, false),
                              read_rows(g, "backward", x, mask, true)};
    const sw_value row = sw_masked_mean(g, sw_concat(g, both, 2, 2), mask);
    const sw_value logits = sw_linear(g, row, uniform(g, "head", "weight", WORDS, 2 * HIDDEN),
                                      uniform(g, "head", "bias", WORDS, 0), false);
    sw_output(g, "logits", logits);
    return sw_cross_entropy(g, logits, sw_input(g, "labels", SW_I32, labels));
}

/* ---- training ---- */

struct result {
    int stage;
    double loss, accuracy;
    float letters[TABLE];
};

static const char config[] =
    "{\"train_micro_batch_size_per_gpu\": 16, \"train_batch_size\": 32, \"sparse_gradients\": true,"
    " \"optimizer\": {\"type\": \"Lamb\", \"params\": {\"lr\": 0.02, \"max_coeff\": 1.0,"
    " \"min_coeff\": 0.05}},"
    " \"scheduler\": {\"type\": \"OneCycle\", \"params\": {\"cycle_min_lr\": 0.005,"
    " \"cycle_max_lr\": 0.05, \"cycle_first_step_size\": 80, \"decay_step_size\": 40,"
    " \"decay_lr_rate\": 0.5, \"cycle_min_mom\": 0.85, \"cycle_max_mom\": 0.95}},"
    " \"spillway\": {\"threads\": 1}}";

/* Measures the accuracy on rows that training never saw. */
static sw_status measure(sw_engine *engine, struct rows *rows, double *accuracy)
{
    enum { BATCHES = 8, HELD_OUT = 1 << 30 };
    float logits[BATCH][WORDS];
    int right = 0;
    for (uint32_t i = 0; i < BATCHES; i++) {
        fill(rows, HELD_OUT + i * BATCH);
        const sw_status st = sw_logits(engine, &rows->batch, &logits[0][0]);
        if (st < 0) {
            return st;
        }
        for (int b = 0; b < BATCH; b++) {
            int best = 0;
            for (int w = 1; w < WORDS; w++) {
                best = logits[b][w] > logits[b][best] ? w : best;
            }
            right += best == rows->labels[b];
        }
    }
    *accuracy = (double)right / (BATCHES * BATCH);
    return SW_OK;
}

/* Trains on one rank. comm NULL: there is only one rank. */
static sw_status train(void *ctx, sw_comm *comm)
{
    struct result *result = ctx;
    const uint32_t rank = comm ? (uint32_t)sw_comm_rank(comm) : 0;
    const uint32_t ranks = comm ? (uint32_t)sw_comm_size(comm) : 1;
    char stage[48];
    snprintf(stage, sizeof stage, "zero_optimization.stage=%d", result->stage);
    const char *const sets[] = {stage};
    const struct sw_engine_options options = {
        .config = {.text = config, .sets = sets, .n_sets = 1},
        .model.forward = forward,
        .run.comm = comm,
        .seed = 1,
        .train.wanted = true,
        .evaluate.logits = true,
    };
    struct rows rows[MICRO_BATCHES];
    struct sw_batch batches[MICRO_BATCHES];
    struct sw_step_report report = {0};
    sw_engine *engine = NULL;
    double accuracy = 0;
    sw_status st = sw_initialize(&options, &engine);
    for (uint32_t step = 0; st >= 0 && step < STEPS; step++) {
        const uint32_t local = (uint32_t)sw_engine_local_micro_batches(engine);
        for (uint32_t i = 0; i < local; i++) {
            fill(&rows[i], (step * MICRO_BATCHES + i * ranks + rank) * BATCH);
            batches[i] = rows[i].batch;
        }
        st = sw_train_batch(engine, batches, local, &report);
        if (st >= 0 && rank == 0 && (step + 1) % 40 == 0) {
            printf("%u ranks, stage %d, step %u: loss %.4f, rate %.4f\n", ranks, result->stage,
                   step + 1, report.loss, report.lr);
        }
    }
    st = st < 0 ? st : measure(engine, &rows[0], &accuracy);
    if (st >= 0 && rank == 0) {
        result->loss = report.loss;
        result->accuracy = accuracy;
        st = sw_get_weight(engine, "letters.weight", 0, TABLE, result->letters);
    } else if (st >= 0) { /* all ranks read together */
        static float others[TABLE];
        st = sw_get_weight(engine, "letters.weight", 0, TABLE, others);
    }
    sw_close(engine);
    return st;
}

int main(void)
{
    static struct result one = {.stage = 0}, two = {.stage = 2};
    if (train(&one, NULL) < 0 || sw_threads_run(2, 60, train, &two) < 0) {
        fprintf(stderr, "rscan: %s\n", sw_error_message());
        return EXIT_FAILURE;
    }
    const bool equal =
        one.loss == two.loss && memcmp(one.letters, two.letters, sizeof one.letters) == 0;
    printf("accuracy %.3f; one rank and two agree bit for bit: %s\n", two.accuracy,
           equal ? "yes" : "no");
    return equal && two.accuracy > 0.9 ? EXIT_SUCCESS : EXIT_FAILURE;
}
