// SPDX-License-Identifier: Apache-2.0
// COST 2
// Numbers of routers in a training: they do not depend on ranks and stages, have the values that
// their definitions give where all experts are chosen alike, add up to the loss, count what a
// capacity drops and what is loaded, and reach the monitors.
#include <math.h>
#include <stdlib.h>

#include "base/base.h"
#include "spillway/train.h"
#include "support/fixtures.h"
#include "support/scratch.h"
#include "support/test.h"

enum { TOKENS = 16, LAYERS = 2, EXPERTS = 4, MICRO_BATCHES = 2, BATCH = 2 };

struct run {
    const char *out;
    int chosen; /* experts of a token; 0 = 2 */
    int tokens; /* 0 = TOKENS */
    const char *set;
    int64_t ranks;
    bool asks; /* config.json asks for the loss of routers */
};

static void train(struct run r)
{
    static const char form[] =
        "{\"model_type\": \"mixtral\", \"vocab_size\": 64, \"hidden_size\": 16, "
        "\"intermediate_size\": 24, \"num_hidden_layers\": %d, \"num_attention_heads\": 2, "
        "\"num_key_value_heads\": 2, \"num_local_experts\": %d, \"num_experts_per_tok\": %d, "
        "\"max_position_embeddings\": 64, \"tie_word_embeddings\": false, "
        "\"router_aux_loss_coef\": 0.5, \"output_router_logits\": %s}";
    char config[640], monitor[320];
    const char *data = test_at("text.txt");
    snprintf(config, sizeof config, form, LAYERS, EXPERTS, r.chosen > 0 ? r.chosen : 2,
             r.asks ? "true" : "false");
    snprintf(monitor, sizeof monitor,
             "csv_monitor={\"enabled\": true, \"output_path\": \"%s/\", \"job_name\": \"%s.csv\"}",
             test_folder(), r.out);
    test_put("config.json", config);
    const char *sets[] = {"train_micro_batch_size_per_gpu=2",
                          "spillway.micro_batches=2",
                          "optimizer={\"type\": \"AdamW\", \"params\": {\"lr\": 0.01}}",
                          "spillway.threads=1",
                          monitor,
                          r.set};
    char prom[TEST_PATH_CAP];
    snprintf(prom, sizeof prom, "%s.prom", test_at(r.out));
    const struct sw_train_options options = {.model = test_at("config.json"),
                                             .data = &data,
                                             .n_data = 1,
                                             .output = test_at(r.out),
                                             .config_text = "{}",
                                             .seq_len = r.tokens > 0 ? r.tokens : TOKENS,
                                             .steps = 2,
                                             .ranks = r.ranks,
                                             .sets = sets,
                                             .n_sets = r.set ? 6 : 5,
                                             .eval_every = 2,
                                             .metrics_file = prom,
                                             .no_export = true,
                                             .export_dtype = -1};
    struct sw_train_result result;
    bool started;
    FILE *quiet = fopen("/dev/null", "w");
    const sw_status st = sw_train(&options, quiet, &started, &result);
    fclose(quiet);
    if (st < 0) {
        fail_msg("%s: %s", r.out, sw_error_message());
    }
}

/* A number of the first step. */
static double metric(const char *out, const char *key)
{
    char path[TEST_PATH_CAP], name[64], *text;
    size_t len;
    snprintf(path, sizeof path, "%s/metrics.jsonl", test_at(out));
    snprintf(name, sizeof name, "\"%s\":", key);
    assert_int_equal(sw_file_read(path, &text, &len), SW_OK);
    const char *end = strchr(text, '\n'), *at = strstr(text, name);
    const double value = at && at < end ? strtod(at + strlen(name), NULL) : NAN;
    sw_free(text);
    return value;
}

static const char *const names[] = {
    "loss",           "router_aux_loss", "router_z_loss", "expert_least_load", "expert_most_load",
    "router_entropy", "dropped_choices", "dropped_share"};

static void same_numbers(const char *a, const char *b)
{
    for (size_t i = 0; i < SW_LEN(names); i++) {
        const double x = metric(a, names[i]), y = metric(b, names[i]);
        if (!(x == y)) {
            fail_msg("%s: %.17g of %s, %.17g of %s", names[i], x, a, y, b);
        }
    }
}

#define LOSSES "spillway={\"router_aux_loss\": 0.25, \"router_z_loss\": 0.125, \"micro_batches\": 2"

static void numbers_do_not_depend_on_ranks(void **state)
{
    (void)state;
    train((struct run){.out = "one", .set = LOSSES ", \"capacity_factor\": 1}"});
    train((struct run){.out = "two", .set = LOSSES ", \"capacity_factor\": 1}", .ranks = 2});
    train((struct run){.out = "pipe",
                       .set = LOSSES ", \"capacity_factor\": 1, \"mesh\": {\"pipe\": 2}}",
                       .ranks = 2});
    same_numbers("one", "two");
    same_numbers("one", "pipe");
}

static void losses_are_terms_of_the_loss(void **state)
{
    (void)state;
    train((struct run){.out = "with", .set = LOSSES "}"});
    train((struct run){.out = "without"});
    assert_true(isnan(metric("without", "router_aux_loss")));
    assert_true(isnan(metric("without", "router_z_loss")));
    assert_true(isnan(metric("without", "dropped_choices")));
    const double more =
        0.25 * metric("with", "router_aux_loss") + 0.125 * metric("with", "router_z_loss");
    assert_true(more > 0.25);
    assert_true(fabs(metric("with", "loss") - metric("without", "loss") - more) < 1e-5);
    assert_true(metric("with", "expert_most_load") == metric("without", "expert_most_load"));
}

/* 0 switches off the loss that config.json asks for. */
static void a_weight_of_0_is_no_loss(void **state)
{
    (void)state;
    train((struct run){.out = "asked", .asks = true});
    train((struct run){.out = "off", .asks = true, .set = "spillway.router_aux_loss=0"});
    train((struct run){.out = "plain"});
    const double asked = metric("asked", "loss"), plain = metric("plain", "loss");
    if (!(asked > plain + 0.1)) {
        fail_msg("a loss of %g with routers, %g without", asked, plain);
    }
    assert_true(metric("off", "loss") == plain);
}

static void loads_have_their_bounds(void **state)
{
    (void)state;
    train((struct run){.out = "even", .chosen = EXPERTS, .set = LOSSES "}"});
    assert_true(metric("even", "expert_least_load") == 1);
    assert_true(metric("even", "expert_most_load") == 1);
    assert_true(fabs(metric("even", "router_entropy") - 1) < 1e-6);
    assert_true(fabs(metric("even", "router_aux_loss") - EXPERTS) < 1e-5);
    train((struct run){.out = "uneven", .chosen = 1, .set = LOSSES "}"});
    const double least = metric("uneven", "expert_least_load");
    const double most = metric("uneven", "expert_most_load");
    assert_true(least >= 0 && least < 1 && most > 1 && most <= EXPERTS);
    assert_true(metric("uneven", "router_entropy") < 1);
}

/* Each expert takes half of an equal share, or all that chose it. */
static void dropped_choices_are_counted(void **state)
{
    const double choices = BATCH * TOKENS * 2 * LAYERS * MICRO_BATCHES;
    (void)state;
    train((struct run){.out = "drop", .set = LOSSES ", \"capacity_factor\": 0.5}"});
    const double dropped = metric("drop", "dropped_choices");
    assert_true(dropped >= choices / 2 && dropped < choices && dropped == floor(dropped));
    assert_true(metric("drop", "dropped_share") == dropped / choices);
}

static void monitors_have_them(void **state)
{
    (void)state;
    train((struct run){.out = "seen", .set = LOSSES ", \"capacity_factor\": 1}"});
    for (size_t i = 1; i < SW_LEN(names); i++) {
        char path[96], gauge[64];
        snprintf(path, sizeof path, "seen.csv/Train_Samples_%s.csv", names[i]);
        snprintf(gauge, sizeof gauge, "\nspillway_%s ", names[i]);
        char *csv = test_text(path), *prom = test_text("seen.prom");
        const char *row = strchr(csv, '\n');
        assert_non_null(row);
        assert_true(strtod(strchr(row, ',') + 1, NULL) == metric("seen", names[i]));
        assert_non_null(strstr(prom, gauge));
        sw_free(csv);
        sw_free(prom);
    }
}

/* Where all experts are chosen, each exchange of rows is full: two in forward and two in backward,
 * and one of offsets. */
static void the_expert_axis_counts_what_it_sends(void **state)
{
    enum { WIDTH = 16, RANKS = 2, OWN = EXPERTS / RANKS };
    const double rows = (double)BATCH * TOKENS * OWN * WIDTH * sizeof(float);
    (void)state;
    train((struct run){.out = "full",
                       .chosen = EXPERTS,
                       .set = LOSSES ", \"mesh\": {\"expert\": 2}}",
                       .ranks = RANKS});
    const double all = LAYERS * (4 * rows + (RANKS - 1) * (OWN + 2) * sizeof(int32_t));
    assert_true(metric("full", "expert_sent_bytes") == all);
    train((struct run){
        .out = "some", .chosen = 1, .set = LOSSES ", \"mesh\": {\"expert\": 2}}", .ranks = RANKS});
    const double some = metric("some", "expert_sent_bytes");
    assert_true(some > 0 && some < all / OWN);
}

/* Four tokens choose an expert each, whose matrices forward and backward load. */
static void chosen_experts_are_loaded(void **state)
{
    enum { MATRICES = 3, WIDTH = 16, INNER = 24, PHASES = 2 };
    const double one = (double)PHASES * MICRO_BATCHES * LAYERS * MATRICES * WIDTH * INNER * 4;
    (void)state;
    train((struct run){.out = "loaded",
                       .chosen = 1,
                       .tokens = 2,
                       .set = "zero_optimization={\"stage\": 3, \"offload_param\": {\"device\": "
                              "\"cpu\"}, \"stage3_param_persistence_threshold\": 0}"});
    assert_true(metric("loaded", "expert_most_bytes") == EXPERTS * one);
    const double loaded = metric("loaded", "expert_loaded_bytes");
    assert_true(loaded >= one && loaded < EXPERTS * one);
}

static int set_up(void **state)
{
    char text[2001];
    (void)state;
    for (size_t i = 0; i + 1 < sizeof text; i++) {
        text[i] = i % 7 == 6 ? '\n' : (char)('a' + (i * i + i / 7) % 13);
    }
    text[sizeof text - 1] = '\0';
    test_put("text.txt", text);
    return 0;
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(numbers_do_not_depend_on_ranks),
    cmocka_unit_test(losses_are_terms_of_the_loss),
    cmocka_unit_test(loads_have_their_bounds),
    cmocka_unit_test(dropped_choices_are_counted),
    cmocka_unit_test(monitors_have_them),
    cmocka_unit_test(the_expert_axis_counts_what_it_sends),
    cmocka_unit_test(a_weight_of_0_is_no_loss),
    cmocka_unit_test(chosen_experts_are_loaded),
};

const struct test_program sw_tests = {TEST_TABLE(tests), .setup = set_up};
