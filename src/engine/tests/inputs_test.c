// SPDX-License-Identifier: Apache-2.0
// Range checks of batches. An id or label out of range is an error that names tensor, element,
// value and range. The tests cover a hub model and a user's own forward, in every call that takes a
// batch. Nothing has run by then, and the engine continues to the same bits.
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/base.h"
#include "spillway/engine.h"
#include "support/test.h"

enum { B = 3, T = 4, V = 11, WIDTH = 5, CLASSES = 3, K = 2, ELEMS = B * (T + 1) };

static const char config[] = "{\"train_micro_batch_size_per_gpu\": 3, "
                             "\"gradient_accumulation_steps\": 2, \"optimizer\": {\"type\": "
                             "\"AdamW\", \"params\": {\"lr\": 0.01}}}";

/* One tensor holds both: T ids, followed by the label of the row. */
static sw_value forward(sw_graph *g, void *ctx, int64_t batch)
{
    (void)ctx;
    const struct sw_init init = {SW_INIT_NORMAL, 0.5};
    const sw_value rows = sw_input(g, "rows", SW_I32, (struct sw_shape){2, {batch, T + 1}});
    const sw_value table = sw_param(g, "table", (struct sw_shape){2, {V, WIDTH}}, init);
    const sw_value w = sw_param(g, "w", (struct sw_shape){2, {CLASSES, T * WIDTH}}, init);
    const sw_value b = sw_param(g, "b", (struct sw_shape){1, {CLASSES}}, init);
    const sw_value x = sw_embedding(g, table, sw_slice(g, rows, 1, 0, T), -1);
    const sw_value flat = sw_reshape(g, x, (struct sw_shape){2, {batch, T * WIDTH}});
    const sw_value label = sw_reshape(g, sw_slice(g, rows, 1, T, 1), (struct sw_shape){1, {batch}});
    return sw_cross_entropy(g, sw_linear(g, flat, w, b, false), label);
}

struct data {
    int32_t rows[K][ELEMS];
    struct sw_tensor tensors[K];
    struct sw_batch batches[K];
};

static void fill(struct data *d)
{
    for (int k = 0; k < K; k++) {
        for (int i = 0; i < ELEMS; i++) {
            d->rows[k][i] = (k + 7 * i) % (i % (T + 1) == T ? CLASSES : V);
        }
        d->tensors[k] = (struct sw_tensor){
            "rows", {.data = d->rows[k], .dtype = SW_I32, .shape = {2, {B, T + 1}}}};
        d->batches[k] = (struct sw_batch){&d->tensors[k], 1};
    }
}

static sw_engine *open_own(const char *schedule)
{
    const struct sw_engine_options options = {
        .config = {.text = config, .sets = &schedule, .n_sets = 1},
        .model.forward = forward,
        .train.wanted = true,
        .evaluate.loss = true};
    sw_engine *engine = NULL;
    if (sw_initialize(&options, &engine) < 0) {
        fail_msg("%s", sw_error_message());
    }
    return engine;
}

static const struct {
    int k, row, column;
    int32_t value;
    const char *says; /* NULL: the batch is valid */
} cases[] = {
    {0, 1, 2, V, "rows: 11 at [1, 2]; wanted 0 .. 10"},
    {1, 2, 0, -1, "rows: -1 at [2, 0]; wanted 0 .. 10"},
    {1, 0, 3, -100, "rows: -100 at [0, 3]; wanted 0 .. 10"},
    {0, 0, 1, INT32_MIN, "rows: -2147483648 at [0, 1]; wanted 0 .. 10"},
    {1, 2, T, 7, "rows: 7 at [2, 4]; wanted 0 .. 2, or -100 for none"},
    {0, 0, T, CLASSES, "rows: 3 at [0, 4]; wanted 0 .. 2, or -100 for none"},
    {0, 2, T, -99, "rows: -99 at [2, 4]; wanted 0 .. 2, or -100 for none"},
    {0, 1, T, -100, NULL},
    {1, 1, 3, 7, NULL}, /* an id may not be IGNORED */
};

static void expect(sw_status st, const char *says, const char *what)
{
    if (says ? st != SW_E_ARG || !strstr(sw_error_message(), says) : st < 0) {
        fail_msg("%s: %d \"%s\", wanted \"%s\"", what, st, st < 0 ? sw_error_message() : "",
                 says ? says : "");
    }
}

static void ids_and_labels_out_of_range_are_named(void **state)
{
    static const char *const schedules[] = {"spillway.schedule=horizontal",
                                            "spillway.schedule=vertical"};
    (void)state;
    for (size_t s = 0; s < 2; s++) {
        for (size_t i = 0; i < SW_LEN(cases); i++) {
            struct data data;
            double sum, count;
            sw_engine *engine = open_own(schedules[s]);
            fill(&data);
            data.rows[cases[i].k][cases[i].row * (T + 1) + cases[i].column] = cases[i].value;
            const struct sw_batch *batch = &data.batches[cases[i].k];
            expect(sw_evaluate(engine, batch, &sum, &count), cases[i].says, "sw_evaluate");
            expect(sw_train_batch(engine, data.batches, K, NULL), cases[i].says, "sw_train_batch");
            if (cases[i].says) {
                char which[32];
                snprintf(which, sizeof which, "micro-batch %d: ", cases[i].k);
                assert_non_null(strstr(sw_error_message(), which));
            }
            if (s == 0) {
                expect(sw_forward(engine, batch, NULL), cases[i].says, "sw_forward");
            }
            sw_close(engine);
        }
    }
}

/* Returns a hash of the weights after two steps. refused: between the steps, tries a batch whose
 * second half is invalid. */
static uint64_t train(bool refused)
{
    static const char *const names[] = {"table", "w", "b"};
    static const int64_t elems[] = {(int64_t)V * WIDTH, (int64_t)CLASSES * T * WIDTH, CLASSES};
    struct data data;
    float values[CLASSES * T * WIDTH];
    uint64_t h = SW_HASH_INIT;
    sw_engine *engine = open_own("spillway.schedule=horizontal");
    fill(&data);
    expect(sw_train_batch(engine, data.batches, K, NULL), NULL, "step 1");
    if (refused) {
        data.rows[1][3] = V;
        expect(sw_train_batch(engine, data.batches, K, NULL), "rows: 11", "refused");
        data.rows[1][3] = (1 + 7 * 3) % V;
    }
    expect(sw_train_batch(engine, data.batches, K, NULL), NULL, "step 2");
    for (int i = 0; i < 3; i++) {
        assert_true((size_t)elems[i] <= SW_LEN(values));
        assert_int_equal(sw_get_weight(engine, names[i], 0, elems[i], values), SW_OK);
        h = sw_hash(h, values, (size_t)elems[i] * sizeof *values);
    }
    sw_close(engine);
    return h;
}

static void a_refused_batch_changes_nothing(void **state)
{
    (void)state;
    assert_true(train(false) == train(true));
}

/* A hub model checks positions that the batch provides, and tensors without data. */
static void a_model_names_its_inputs(void **state)
{
    char path[] = "/tmp/spillway-inputs-XXXXXX";
    static const char model[] =
        "{\"model_type\": \"gpt2\", \"vocab_size\": 11, \"n_positions\": 8, "
        "\"n_embd\": 4, \"n_layer\": 1, \"n_head\": 1}";
    (void)state;
    const int fd = mkstemp(path);
    assert_true(fd >= 0 && write(fd, model, sizeof model - 1) == (ssize_t)(sizeof model - 1));
    close(fd);
    const struct sw_engine_options options = {.config.text = "{\"train_batch_size\": 1}",
                                              .model.path = path,
                                              .inputs.seq_len = T,
                                              .evaluate.logits = true};
    sw_engine *engine = NULL;
    assert_int_equal(sw_initialize(&options, &engine), SW_OK);
    int32_t ids[T] = {0, 10, 3, 2}, positions[T] = {0, 1, 2, 3};
    float logits[T * V];
    const struct sw_shape row = {2, {1, T}}, line = {1, {T}};
    struct sw_tensor tensors[] = {
        {"input_ids", {.data = ids, .dtype = SW_I32, .shape = row}},
        {"positions", {.data = positions, .dtype = SW_I32, .shape = line}}};
    const struct sw_batch batch = {tensors, 2};
    expect(sw_logits(engine, &batch, logits), NULL, "sw_logits");
    positions[3] = 8;
    expect(sw_logits(engine, &batch, logits), "positions: 8 at [3]; wanted 0 .. 7", "positions");
    positions[3] = 7;
    ids[1] = 11;
    expect(sw_logits(engine, &batch, logits), "input_ids: 11 at [0, 1]; wanted 0 .. 10", "ids");
    tensors[0].view.data = NULL;
    expect(sw_logits(engine, &batch, logits), "input_ids: it has no data", "no data");
    sw_close(engine);
    unlink(path);
}

/* Each call names the unmet requirement: the option of sw_initialize, the batch, or a tensor with
 * its dtype and shape. */
static void what_an_evaluation_lacks_is_named(void **state)
{
    static int32_t ids[2 * 16];
    const struct sw_view rows = {.data = ids, .dtype = SW_I32, .shape = {2, {2, 16}}};
    const struct sw_tensor some[] = {{"input_ids", rows}, {"label", rows}};
    const struct sw_tensor whole[] = {{"input_ids", rows}, {"labels", rows}};
    struct sw_engine_options options = {.config.text = "{\"train_batch_size\": 2}",
                                        .model.path = "gpt2-tiny",
                                        .inputs.seq_len = 16,
                                        .evaluate.loss = true};
    sw_engine *engine = NULL;
    double sum, count;
    (void)state;
    assert_int_equal(sw_initialize(&options, &engine), SW_OK);
    expect(sw_evaluate(engine, &(struct sw_batch){some, 2}, &sum, &count),
           "sw_evaluate: the batch has no tensor \"labels\", i32[2, 16], which the loss needs; it "
           "has input_ids, label",
           "no labels");
    expect(sw_evaluate(engine, &(struct sw_batch){whole + 1, 1}, &sum, &count),
           "sw_evaluate: the batch has no tensor \"input_ids\", i32[2, 16]; it has labels",
           "no ids");
    expect(sw_evaluate(engine, &(struct sw_batch){NULL, 0}, &sum, &count), "; it has none",
           "an empty batch");
    expect(sw_evaluate(engine, NULL, &sum, &count), "sw_evaluate: no batch is given", "no batch");
    expect(sw_logits(engine, &(struct sw_batch){whole, 2}, NULL),
           "sw_logits: the engine was opened without evaluate.logits", "no logits");
    expect(sw_evaluate(engine, &(struct sw_batch){whole, 2}, &sum, &count), NULL, "a whole batch");
    assert_true(count == 32);
    sw_close(engine);
    options.evaluate.loss = false;
    options.evaluate.logits = true;
    assert_int_equal(sw_initialize(&options, &engine), SW_OK);
    expect(sw_evaluate(engine, &(struct sw_batch){whole, 2}, &sum, &count),
           "sw_evaluate: the engine was opened without evaluate.loss", "no evaluation");
    sw_close(engine);
}

/* Options that ask for nothing, or that exclude each other, are refused by their names. */
static void options_that_fit_nothing_are_named(void **state)
{
    const struct {
        struct sw_engine_options options;
        const char *says;
    } asked[] = {
        {{.seed = 1}, "the engine has no purpose; wanted one of train, evaluate, embed and"},
        {{.model.task = "causal", .embed.wanted = true},
         "embed.wanted: the task is \"causal\", wanted \"embed\" or none"},
        {{.train.wanted = true, .generate.tokens = 8}, "generate.tokens is 8; wanted 0, or more"},
        {{.generate = {.wanted = true, .tokens = -1}}, "generate.tokens is -1; wanted 0, or more"},
    };
    (void)state;
    for (size_t i = 0; i < SW_LEN(asked); i++) {
        struct sw_engine_options o = asked[i].options;
        sw_engine *engine = NULL;
        o.config.text = "{\"train_batch_size\": 1}";
        o.model.path = "gpt2-tiny";
        o.inputs.seq_len = 16;
        o.plan.only = true;
        expect(sw_initialize(&o, &engine), asked[i].says, asked[i].says);
        assert_null(engine);
    }
}

static void expect_inputs(const sw_engine *engine, const struct sw_input_info *wanted, int n)
{
    assert_int_equal(sw_engine_n_inputs(engine), n);
    for (int i = 0; i < n; i++) {
        struct sw_input_info info;
        assert_int_equal(sw_engine_input(engine, i, &info), SW_OK);
        assert_string_equal(info.name, wanted[i].name);
        assert_int_equal(info.dtype, wanted[i].dtype);
        assert_int_equal(info.shape.rank, wanted[i].shape.rank);
        for (int d = 0; d < info.shape.rank; d++) {
            assert_int_equal(info.shape.dims[d], wanted[i].shape.dims[d]);
        }
        assert_int_equal(info.optional, wanted[i].optional);
    }
}

/* The list has the inputs of one micro-batch, whatever the schedule and whichever program takes
 * them. */
static void what_a_batch_consists_of_is_listed(void **state)
{
    static const char *const schedules[] = {"spillway.schedule=horizontal",
                                            "spillway.schedule=vertical"};
    const struct sw_input_info rows[] = {{"rows", SW_I32, {2, {B, T + 1}}, false}};
    const struct sw_input_info causal[] = {{"input_ids", SW_I32, {2, {3, 16}}, false},
                                           {"positions", SW_I32, {1, {16}}, true},
                                           {"labels", SW_I32, {2, {3, 16}}, false}};
    (void)state;
    for (size_t s = 0; s < 2; s++) {
        sw_engine *engine = open_own(schedules[s]);
        struct sw_input_info info = {0};
        expect_inputs(engine, rows, 1);
        expect(sw_engine_input(engine, 1, &info), "input 1 does not exist; a micro-batch has 1",
               "input 1");
        expect(sw_engine_input(engine, -1, &info), "input -1 does not exist", "input -1");
        sw_close(engine);
    }
    for (int trains = 0; trains < 2; trains++) {
        const struct sw_engine_options options = {.config.text = config,
                                                  .model.path = "gpt2-tiny",
                                                  .inputs.seq_len = 16,
                                                  .seed = 7,
                                                  .train.wanted = trains,
                                                  .evaluate.logits = true,
                                                  .plan.only = true};
        sw_engine *engine = NULL;
        assert_int_equal(sw_initialize(&options, &engine), SW_OK);
        assert_true(sw_engine_seed(engine) == 7);
        expect_inputs(engine, causal, trains ? 3 : 2);
        sw_close(engine);
    }
}

static const struct CMUnitTest tests[] = {cmocka_unit_test(ids_and_labels_out_of_range_are_named),
                                          cmocka_unit_test(what_a_batch_consists_of_is_listed),
                                          cmocka_unit_test(what_an_evaluation_lacks_is_named),
                                          cmocka_unit_test(a_refused_batch_changes_nothing),
                                          cmocka_unit_test(a_model_names_its_inputs),
                                          cmocka_unit_test(options_that_fit_nothing_are_named)};

const struct test_program sw_tests = {TEST_TABLE(tests)};
