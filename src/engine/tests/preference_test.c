// SPDX-License-Identifier: Apache-2.0
// COST 2
// Losses of preferences against recorded cases, which were computed in float64 from the published
// formulas. Everything is read from a case: settings, rows, log-probabilities, losses, gradients
// and tolerances.
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "engine/private.h"
#include "hf/hf.h"
#include "support/fixtures.h"
#include "support/test.h"

enum { MOST_ROWS = 64, MOST = 1 << 14, MOST_CASES = 64 };

static char folder[TEST_PATH_CAP];

static int begin(char **argv)
{
    (void)argv;
    return test_fixture_folder("preference", folder) ? 0 : TEST_EXIT_SKIPPED;
}

/* Rows of a batch: the two rows of a sample one after the other. */
struct rows {
    int64_t n, tokens;
    int32_t ids[MOST], labels[MOST], mask[MOST], kinds[MOST_ROWS];
    float reference[MOST_ROWS];
};

static const int64_t *recorded(const struct sw_safetensors *data, const char *part,
                               const char *name, struct sw_shape *shape)
{
    char full[96];
    snprintf(full, sizeof full, "%s.%s", part, name);
    const struct sw_safetensor *t = sw_safetensors_find(data, full);
    assert_non_null(t);
    assert_string_equal(t->dtype_name, "I64");
    *shape = t->shape;
    return t->data;
}

/* Adds a recorded row. Its labels name the token itself, ours the next one. */
static void add_row(struct rows *rows, const struct sw_safetensors *data, const char *part,
                    int64_t i, int32_t kind)
{
    struct sw_shape shape;
    const int64_t *ids = recorded(data, part, "input_ids", &shape);
    const int64_t *mask = recorded(data, part, "attention_mask", &shape);
    const int64_t *labels = recorded(data, part, "labels", &shape);
    const int64_t width = shape.dims[1], to = rows->n * rows->tokens, from = i * width;
    assert_true(to + rows->tokens <= MOST && rows->n < MOST_ROWS);
    for (int64_t t = 0; t < rows->tokens; t++) {
        rows->ids[to + t] = t < width ? (int32_t)ids[from + t] : 0;
        rows->mask[to + t] = t < width ? (int32_t)mask[from + t] : 0;
        rows->labels[to + t] = t + 1 < width ? (int32_t)labels[from + t + 1] : -100;
    }
    rows->kinds[rows->n++] = kind;
}

static int64_t n_rows(const struct sw_safetensors *data, const char *part, int64_t *tokens)
{
    struct sw_shape shape;
    recorded(data, part, "input_ids", &shape);
    *tokens = sw_max_i64(*tokens, shape.dims[1]);
    return shape.dims[0];
}

/* Pairs, or all chosen and rejected responses, each with the example of the shift. */
static void take_rows(struct rows *rows, const struct sw_safetensors *data, bool unpaired)
{
    rows->n = rows->tokens = 0;
    const int64_t n = n_rows(data, "chosen", &rows->tokens);
    n_rows(data, "rejected", &rows->tokens);
    n_rows(data, "kl", &rows->tokens);
    for (int64_t i = 0; i < (unpaired ? 2 * n : n); i++) {
        const bool good = i < n;
        add_row(rows, data, good ? "chosen" : "rejected", i % n, good);
        add_row(rows, data, unpaired ? "kl" : "rejected", unpaired ? i : i % n, 2);
    }
}

struct case_ {
    struct sw_json_doc *doc;
    const struct sw_json *root;
    const char *kind, *task;
    char config[512];
};

static double number(const struct sw_json *top, const char *path)
{
    const struct sw_json *v = sw_json_path(top, path);
    assert_true(v && (v->type == SW_JSON_FLOAT || v->type == SW_JSON_INT));
    return v->number;
}

static double number_or(const struct sw_json *top, const char *path, double otherwise)
{
    return sw_json_path(top, path) ? number(top, path) : otherwise;
}

static double item(const struct sw_json *top, const char *path, int64_t i)
{
    const struct sw_json *v = sw_json_path(top, path);
    assert_true(v && v->type == SW_JSON_ARRAY && i < v->n_children);
    for (v = v->first; i > 0; i--) {
        v = v->next;
    }
    return v->number;
}

static void open_case(const char *name, struct case_ *c)
{
    assert_int_equal(sw_json_read(test_in(folder, name), SW_JSON_STRICT, &c->doc), SW_OK);
    c->root = sw_json_root(c->doc);
    c->kind = sw_json_path(c->root, "settings.kind")->string;
    c->task = strcmp(c->kind, "ipo") == 0 ? "dpo" : c->kind;
    const struct sw_json *sums = sw_json_path(c->root, "settings.log_probs");
    snprintf(c->config, sizeof c->config,
             "{\"train_micro_batch_size_per_gpu\": %%d, \"optimizer\": {\"type\": \"SGD\", "
             "\"params\": {\"lr\": 0}}, \"spillway\": {\"label_smoothing\": %.17g, "
             "\"preference\": {\"loss_type\": \"%s\", \"beta\": %.17g, \"log_probs\": \"%s\", "
             "\"desirable_weight\": %.17g, \"undesirable_weight\": %.17g}}}",
             number_or(c->root, "settings.label_smoothing", 0),
             strcmp(c->kind, "ipo") == 0 ? "ipo" : "sigmoid",
             strcmp(c->kind, "orpo") == 0 ? number(c->root, "settings.lambda")
                                          : number(c->root, "settings.beta"),
             sums ? sums->string : "sum", number_or(c->root, "settings.desirable_weight", 1),
             number_or(c->root, "settings.undesirable_weight", 1));
}

static sw_engine *open_engine(const struct case_ *c, const char *model, const struct rows *rows,
                              int samples, bool trains)
{
    char text[512];
    sw_engine *e = NULL;
    snprintf(text, sizeof text, c->config, samples);
    const struct sw_engine_options options = {
        .config.text = text,
        .model = {.path = test_in(folder, model), .task = c->task},
        .inputs = {.seq_len = rows->tokens, .mask = true},
        .train = {.wanted = trains, .keep_gradients = trains},
        .evaluate.loss = true};
    assert_int_equal(sw_initialize(&options, &e), SW_OK);
    return e;
}

/* Samples first .. first + n - 1. */
static struct sw_batch batch_of(struct rows *rows, int64_t first, int64_t n,
                                struct sw_tensor tensors[5])
{
    const struct sw_shape tokens = SW_SHAPE(2 * n, rows->tokens), each = SW_SHAPE(2 * n);
    const int64_t at = 2 * first * rows->tokens;
    const struct sw_tensor all[5] = {
        {"input_ids", {.dtype = SW_I32, .shape = tokens, .data = rows->ids + at}},
        {"attention_mask", {.dtype = SW_I32, .shape = tokens, .data = rows->mask + at}},
        {"labels", {.dtype = SW_I32, .shape = tokens, .data = rows->labels + at}},
        {SW_TASK_REFERENCE, {.dtype = SW_F32, .shape = each, .data = rows->reference + 2 * first}},
        {"kinds", {.dtype = SW_I32, .shape = each, .data = rows->kinds + 2 * first}}};
    memcpy(tensors, all, sizeof all);
    return (struct sw_batch){tensors, 5};
}

/* The log-probabilities of all rows by a model, compared with recorded ones. */
static void check_log_probs(const struct case_ *c, const char *model, const char *of,
                            struct rows *rows, float *out)
{
    const int64_t samples = rows->n / 2,
                  pairs = sw_json_path(c->root, "log_probs.policy_chosen")->n_children;
    double sums[SW_ENGINE_MAX_SUMS];
    struct sw_tensor tensors[5];
    const struct sw_batch batch = batch_of(rows, 0, samples, tensors);
    sw_engine *e = open_engine(c, model, rows, (int)samples, false);
    assert_int_equal(sw_engine_evaluate(e, &batch, sums), SW_OK);
    assert_int_equal(sw_engine_evaluated(e, "log_probs", out), SW_OK);
    for (int64_t r = 0; r < rows->n; r++) {
        char path[96];
        const bool shift = samples > pairs && r % 2 == 1;
        const bool chosen = samples > pairs ? r / 2 < pairs : r % 2 == 0;
        const int64_t i = shift ? r / 2 : r / 2 % pairs;
        snprintf(path, sizeof path, "log_probs.%s_%s", of,
                 shift    ? "kl"
                 : chosen ? "chosen"
                          : "rejected");
        const double wanted = item(c->root, path, i);
        if (!(fabs((double)out[r] - wanted) <= number(c->root, "tolerance.log_prob_abs"))) {
            fail_msg("%s: row %lld: %.9g, wanted %.9g", path, (long long)r, (double)out[r], wanted);
        }
    }
    sw_close(e);
}

static void check_loss(const struct case_ *c, const char *what, double got, double wanted)
{
    if (!(fabs(got - wanted) <= number(c->root, "tolerance.loss_rel") * fabs(wanted))) {
        fail_msg("%s: %.9g, wanted %.9g", what, got, wanted);
    }
}

/* The loss of each pair alone. KTO's depend on the others. */
static void check_pairs(const struct case_ *c, struct rows *rows)
{
    struct sw_tensor tensors[5];
    sw_engine *e = open_engine(c, "policy", rows, 1, false);
    for (int64_t i = 0; i < rows->n / 2; i++) {
        double sums[SW_ENGINE_MAX_SUMS];
        const struct sw_batch batch = batch_of(rows, i, 1, tensors);
        assert_int_equal(sw_engine_evaluate(e, &batch, sums), SW_OK);
        assert_true(sums[1] == 1);
        check_loss(c, "loss of a pair", sums[0], item(c->root, "losses", i));
    }
    sw_close(e);
}

static void check_gradients(const struct case_ *c, const char *name, sw_engine *e)
{
    struct sw_safetensors *file = NULL;
    char path[TEST_PATH_CAP];
    double top = 0;
    snprintf(path, sizeof path, "%.*s.safetensors", (int)(strlen(name) - 5), name);
    assert_int_equal(sw_safetensors_open(test_in(folder, path), &file), SW_OK);
    for (int pass = 0; pass < 2; pass++) {
        for (int64_t i = 0; i < sw_safetensors_count(file); i++) {
            const struct sw_safetensor *t = sw_safetensors_at(file, i);
            const int64_t n = sw_shape_elems(&t->shape);
            const float *wanted = t->data;
            double most = 0, apart = 0;
            float *got = malloc((size_t)n * sizeof *got);
            assert_int_equal(sw_gradient(e, t->name + strlen("grad."), got), SW_OK);
            for (int64_t k = 0; k < n; k++) {
                most = fmax(most, fabs((double)wanted[k]));
                apart = fmax(apart, fabs((double)wanted[k] - (double)got[k]));
            }
            free(got);
            top = fmax(top, most);
            if (pass == 1 &&
                !(apart <= number(c->root, "tolerance.grad_rel_to_max") * fmax(most, 1e-3 * top))) {
                fail_msg("%s: apart by %g of at most %g", t->name, apart, most);
            }
        }
    }
    sw_safetensors_close(file);
}

static void check_case(const char *name)
{
    static struct rows rows;
    struct case_ c;
    struct sw_safetensors *data = NULL;
    float policy[MOST_ROWS];
    double loss;
    open_case(name, &c);
    const bool unpaired = strcmp(c.kind, "kto") == 0;
    assert_int_equal(sw_safetensors_open(test_in(folder, "data.safetensors"), &data), SW_OK);
    take_rows(&rows, data, unpaired);
    memset(rows.reference, 0, sizeof rows.reference);
    check_log_probs(&c, "policy", "policy", &rows, policy);
    if (sw_json_path(c.root, "log_probs.reference_chosen")) {
        check_log_probs(&c, "reference_model", "reference", &rows, rows.reference);
    }
    if (!unpaired) {
        check_pairs(&c, &rows);
    }
    struct sw_tensor tensors[5];
    const struct sw_batch batch = batch_of(&rows, 0, rows.n / 2, tensors);
    sw_engine *e = open_engine(&c, "policy", &rows, (int)(rows.n / 2), true);
    assert_int_equal(sw_forward(e, &batch, &loss), SW_OK);
    assert_int_equal(sw_backward(e), SW_OK);
    check_loss(&c, name, loss, number(c.root, "loss"));
    check_gradients(&c, name, e);
    sw_close(e);
    sw_safetensors_close(data);
    sw_json_close(c.doc);
}

static void recorded_losses_are_ours(void **state)
{
    static char names[MOST_CASES][TEST_NAME_CAP];
    (void)state;
    const int n = test_list(folder, ".json", names, MOST_CASES);
    assert_true(n > 0);
    for (int i = 0; i < n; i++) {
        check_case(names[i]);
    }
}

static const struct CMUnitTest tests[] = {cmocka_unit_test(recorded_losses_are_ours)};

const struct test_program sw_tests = {.begin = begin, TEST_TABLE(tests)};
