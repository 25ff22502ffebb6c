// SPDX-License-Identifier: Apache-2.0
// Weights of tokens. The loss is the sum of weighted losses of single tokens over the sum of their
// weights. Equal weights are none; a row of weight 2 trains as the row twice. Ranks and stages of
// ZeRO change no bit; ranks along tensor, context and pipe follow one rank.
#include <math.h>
#include <string.h>

#include "engine/private.h"
#include "engine/tests/owned.h"
#include "support/test.h"

enum { T = 8, V = 67, MOST_ROWS = 4, MOST_WEIGHTS = 1 << 20 };
#define CLOSE 2e-6

struct rows {
    int32_t ids[MOST_ROWS * T], labels[MOST_ROWS * T];
    float weights[MOST_ROWS * T];
    struct sw_tensor tensors[3];
    struct sw_batch batch;
};

static void make(struct rows *r, int64_t n, bool weighted)
{
    const struct sw_shape shape = SW_SHAPE(n, T);
    for (int64_t i = 0; i < n * T; i++) {
        r->ids[i] = (int32_t)((i * 31 + i / T * 7) % V);
        r->labels[i] = i % T == 2 ? -100 : (int32_t)((i * 17 + 5) % V);
        r->weights[i] = 1;
    }
    const struct sw_tensor tensors[3] = {
        {"input_ids", {.dtype = SW_I32, .shape = shape, .data = r->ids}},
        {"labels", {.dtype = SW_I32, .shape = shape, .data = r->labels}},
        {SW_TASK_WEIGHTS, {.dtype = SW_F32, .shape = shape, .data = r->weights}}};
    memcpy(r->tensors, tensors, sizeof tensors);
    r->batch = (struct sw_batch){r->tensors, weighted ? 3 : 2};
}

static sw_engine *open_engine(sw_comm *comm, int rows, int n_micro, bool weighted)
{
    char text[512];
    sw_engine *e = NULL;
    snprintf(text, sizeof text,
             "{\"train_micro_batch_size_per_gpu\": %d, \"optimizer\": {\"type\": \"SGD\", "
             "\"params\": {\"lr\": 0.5}}, \"gradient_clipping\": 0, \"spillway\": "
             "{\"micro_batches\": %d, \"loss\": \"tokens\", \"token_weights\": %s}}",
             rows, n_micro, weighted ? "true" : "false");
    const struct sw_engine_options options = {.config.text = text,
                                              .model = {.path = "gpt2-tiny", .vocab_size = V},
                                              .inputs.seq_len = T,
                                              .run.comm = comm,
                                              .seed = 3,
                                              .train = {.wanted = true, .no_dropout = true},
                                              .evaluate.loss = true};
    if (sw_initialize(&options, &e) < 0) {
        fail_msg("%s", sw_error_message());
    }
    return e;
}

static void within(double tolerance, const char *what, double got, double wanted)
{
    if (!(fabs(got - wanted) <= tolerance * fabs(wanted))) {
        fail_msg("%s: %.9g, wanted %.9g", what, got, wanted);
    }
}

static void a_loss_is_the_weighted_mean_over_tokens(void **state)
{
    static struct rows rows, one;
    double sum = 0, count = 0, all_sum, all_count;
    (void)state;
    sw_engine *plain = open_engine(NULL, 1, 1, false), *weighted = open_engine(NULL, 1, 1, true);
    make(&rows, 1, true);
    for (int t = 0; t < T; t++) {
        double token_sum, token_count;
        make(&one, 1, false);
        for (int i = 0; i < T; i++) {
            one.labels[i] = i == t ? rows.labels[t] : -100;
        }
        rows.weights[t] = (float)t / 4;
        assert_int_equal(sw_evaluate(plain, &one.batch, &token_sum, &token_count), SW_OK);
        sum += rows.weights[t] * token_sum;
        count += rows.weights[t] * token_count;
    }
    assert_int_equal(sw_evaluate(weighted, &rows.batch, &all_sum, &all_count), SW_OK);
    within(CLOSE, "sum", all_sum, sum);
    within(CLOSE, "count", all_count, count);
    sw_close(plain);
    sw_close(weighted);
}

/* Trains two steps, and closes the engine. Returns the loss of the second one. */
static double train(sw_engine *e, struct rows *micro, int n_micro, float *weights)
{
    struct sw_batch batches[2];
    struct sw_step_report report;
    for (int i = 0; i < n_micro; i++) {
        batches[i] = micro[i].batch;
    }
    for (int step = 0; step < 2; step++) {
        if (sw_train_batch(e, batches, n_micro, &report) < 0) {
            fail_msg("%s", sw_error_message());
        }
    }
    assert_int_equal(test_owned_weights(e, weights, MOST_WEIGHTS), SW_OK);
    sw_close(e);
    return report.loss;
}

static float here[MOST_WEIGHTS], there[MOST_WEIGHTS];

static void same_weights(double rel)
{
    for (int i = 0; i < MOST_WEIGHTS; i++) {
        if (!(fabs((double)here[i] - (double)there[i]) <= rel)) {
            fail_msg("weight %d: %.9g, wanted %.9g", i, (double)here[i], (double)there[i]);
        }
    }
}

static void equal_weights_are_none(void **state)
{
    static struct rows a[2], b[2];
    (void)state;
    for (int k = 0; k < 2; k++) {
        make(&a[k], 1, false);
        make(&b[k], 1, true);
        a[k].labels[k] = b[k].labels[k] = k ? -100 : 3; /* micro-batches count differently */
        for (int i = 0; i < T; i++) {
            b[k].weights[i] = 0.5f;
        }
    }
    const double plain = train(open_engine(NULL, 1, 2, false), a, 2, here);
    within(CLOSE, "loss", train(open_engine(NULL, 1, 2, true), b, 2, there), plain);
    same_weights(1e-6);
}

static void a_row_of_weight_2_is_the_row_twice(void **state)
{
    static struct rows twice, weighted;
    (void)state;
    make(&weighted, 2, true);
    make(&twice, 3, false);
    memcpy(twice.ids + 2 * T, twice.ids, T * sizeof *twice.ids);
    memcpy(twice.labels + 2 * T, twice.labels, T * sizeof *twice.labels);
    for (int i = 0; i < T; i++) {
        weighted.weights[i] = 2;
    }
    const double plain = train(open_engine(NULL, 3, 1, false), &twice, 1, here);
    within(CLOSE, "loss", train(open_engine(NULL, 2, 1, true), &weighted, 1, there), plain);
    same_weights(1e-6);
}

/* A batch may omit its weights: they are 1. Weights that the loss would not read are refused. */
static void omitted_weights_are_1(void **state)
{
    static struct rows with, without;
    double sums[3], counts[3];
    (void)state;
    sw_engine *plain = open_engine(NULL, 2, 1, false), *weighted = open_engine(NULL, 2, 1, true);
    make(&with, 2, true);
    make(&without, 2, false);
    assert_int_equal(sw_evaluate(weighted, &with.batch, &sums[0], &counts[0]), SW_OK);
    assert_int_equal(sw_evaluate(weighted, &without.batch, &sums[1], &counts[1]), SW_OK);
    assert_int_equal(sw_evaluate(plain, &without.batch, &sums[2], &counts[2]), SW_OK);
    assert_true(sums[1] == sums[0] && counts[1] == counts[0] && counts[2] == counts[0]);
    within(CLOSE, "sum", sums[1], sums[2]);
    assert_int_equal(sw_evaluate(plain, &with.batch, &sums[2], &counts[2]), SW_E_ARG);
    assert_non_null(strstr(sw_error_message(), "spillway.token_weights"));
    sw_close(plain);
    sw_close(weighted);
}

/* Rows whose weights are all 0 count nothing, as rows of ignored labels. */
static void rows_of_weight_0_count_nothing(void **state)
{
    static struct rows blank, zero;
    double sum, count;
    (void)state;
    sw_engine *e = open_engine(NULL, 2, 1, true);
    make(&zero, 2, true);
    memset(zero.weights, 0, sizeof zero.weights);
    assert_int_equal(sw_evaluate(e, &zero.batch, &sum, &count), SW_OK);
    assert_true(sum == 0 && count == 0);
    sw_close(e);
    for (int k = 0; k < 2; k++) { /* beside a row that counts */
        struct rows *rows = k ? &zero : &blank;
        make(rows, 2, true);
        for (int i = 0; i < T; i++) {
            rows->weights[i] = k ? 0 : 3;
            rows->labels[i] = k ? rows->labels[i] : -100;
        }
    }
    const double ignored = train(open_engine(NULL, 2, 1, true), &blank, 1, here);
    within(CLOSE, "loss", train(open_engine(NULL, 2, 1, true), &zero, 1, there), ignored);
    same_weights(1e-6);
}

/* ---- meshes ---- */

enum { K = 4, STEPS = 2 };

struct job {
    const char *mesh; /* JSON; "" = one rank */
    int ranks, stage;
    bool packed;
    /* results */
    double losses[STEPS], norms[STEPS], sum, count;
};

/* Documents begin at token 5 of each row, too. */
static void make_micro(struct rows *r, int k, int32_t *segments, int32_t *positions)
{
    make(r, 2, true);
    for (int i = 0; i < 2 * T; i++) {
        r->ids[i] = (r->ids[i] + k * 3) % V;
        r->weights[i] = (float)((i * 5 + k) % 7) / 4;
        r->labels[i] = r->weights[i] > 0 ? r->labels[i] : -100;
        segments[i] = i % T / 5 + 1;
        positions[i] = i % T % 5;
    }
}

static sw_status train_mesh(void *ctx, sw_comm *comm)
{
    struct job *job = ctx;
    struct rows micro[K];
    struct sw_tensor tensors[K][5];
    struct sw_batch batches[K];
    int32_t segments[2 * T], positions[2 * T];
    char text[640];
    sw_engine *e = NULL;
    int n = 0;
    double sum, count;
    snprintf(
        text, sizeof text,
        "{\"train_micro_batch_size_per_gpu\": 2, \"zero_optimization\": {\"stage\": %d}, "
        "\"optimizer\": {\"type\": \"AdamW\", \"params\": {\"lr\": 0.01}}, \"spillway\": "
        "{\"micro_batches\": %d, \"threads\": 1, \"loss\": \"tokens\", \"token_weights\": true, "
        "\"packing\": %s, \"mesh\": {%s}}}",
        job->stage, K, job->packed ? "true" : "false", job->mesh);
    const struct sw_engine_options options = {.config.text = text,
                                              .model = {.path = "gpt2-tiny", .vocab_size = V},
                                              .inputs.seq_len = T,
                                              .run = {.comm = comm, .verify = true},
                                              .seed = 3,
                                              .train = {.wanted = true, .no_dropout = true},
                                              .evaluate.loss = true};
    SW_TRY(sw_initialize(&options, &e));
    for (int k = e->data.rank; k < K; k += e->data.size, n++) {
        const struct sw_shape shape = SW_SHAPE(2, T);
        make_micro(&micro[n], k, segments, positions);
        memcpy(tensors[n], micro[n].tensors, sizeof micro[n].tensors);
        tensors[n][3] = (struct sw_tensor){"segments", {segments, SW_I32, shape, {0}}};
        tensors[n][4] = (struct sw_tensor){"positions", {positions, SW_I32, shape, {0}}};
        batches[n] = (struct sw_batch){tensors[n], job->packed ? 5 : 3};
    }
    sw_status st = SW_OK;
    for (int i = 0; st >= 0 && i < STEPS; i++) {
        struct sw_step_report report;
        st = sw_train_batch(e, batches, n, &report);
        if (st >= 0 && e->world.rank == 0) {
            job->losses[i] = report.loss;
            job->norms[i] = report.grad_norm;
        }
    }
    st = st < 0 ? st : sw_evaluate(e, &batches[0], &sum, &count);
    if (st >= 0 && e->world.rank == 0) {
        job->sum = sum;
        job->count = count;
    }
    sw_close(e);
    return st;
}

static struct job run(struct job job)
{
    if (sw_threads_run(job.ranks, 60, train_mesh, &job) < 0) {
        fail_msg("{%s} at stage %d: %s", job.mesh, job.stage, sw_error_message());
    }
    return job;
}

static void follows(const struct job *a, const struct job *b, double tolerance)
{
    for (int i = 0; i < STEPS; i++) {
        if (!(fabs(a->losses[i] - b->losses[i]) <= tolerance * b->losses[i] &&
              fabs(a->norms[i] - b->norms[i]) <= 10 * tolerance * b->norms[i])) {
            fail_msg("{%s} at stage %d, step %d: loss %.17g and norm %.17g, wanted %.17g and %.17g",
                     a->mesh, a->stage, i, a->losses[i], a->norms[i], b->losses[i], b->norms[i]);
        }
    }
}

static void meshes_follow_one_rank(void **state)
{
    static const char *const near_ones[] = {"\"tensor\": 2", "\"context\": 2", "\"pipe\": 2"};
    (void)state;
    for (int packed = 0; packed < 2; packed++) {
        const struct job one = run((struct job){.mesh = "", .ranks = 1, .packed = packed});
        const struct job halves =
            run((struct job){.mesh = "", .ranks = 2, .stage = packed ? 3 : 0, .packed = packed});
        follows(&halves, &one, 0);
        for (size_t i = packed; i < (packed ? 2 : SW_LEN(near_ones)); i++) {
            const struct job two =
                run((struct job){.mesh = near_ones[i], .ranks = 2, .packed = packed});
            follows(&two, &one, 1e-5);
            within(1e-4, "evaluated sum", two.sum, one.sum);
            within(0, "evaluated count", two.count, one.count);
        }
    }
}

static void refused(const char *model, const char *keys, const char *wanted)
{
    char text[160];
    sw_engine *e = NULL;
    snprintf(text, sizeof text,
             "{\"train_micro_batch_size_per_gpu\": 1, \"spillway\": {\"token_weights\": true%s}}",
             keys);
    const struct sw_engine_options options = {
        .config.text = text, .model.path = model, .inputs.seq_len = T, .evaluate.loss = true};
    assert_true(sw_initialize(&options, &e) < 0);
    assert_non_null(strstr(sw_error_message(), wanted));
}

static void other_losses_are_refused(void **state)
{
    (void)state;
    refused("gpt2-tiny", ", \"label_smoothing\": 0.1",
            "is not built beside spillway.token_weights");
    refused("t5-tiny", "", "the task \"seq2seq\" has no weights of tokens");
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(a_loss_is_the_weighted_mean_over_tokens),
    cmocka_unit_test(equal_weights_are_none),
    cmocka_unit_test(a_row_of_weight_2_is_the_row_twice),
    cmocka_unit_test(omitted_weights_are_1),
    cmocka_unit_test(rows_of_weight_0_count_nothing),
    cmocka_unit_test(meshes_follow_one_rank),
    cmocka_unit_test(other_losses_are_refused),
};

const struct test_program sw_tests = {TEST_TABLE(tests)};
