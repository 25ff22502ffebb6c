// SPDX-License-Identifier: Apache-2.0
// Predictions through the engine. Seconds are work divided by the given rates; rates that were not
// given are measured. Measuring leaves nothing on the disk.
#include <dirent.h>
#include <math.h>
#include <string.h>
#include <unistd.h>

#include "json/json.h"
#include "spillway/engine.h"
#include "spillway/look.h"
#include "support/scratch.h"
#include "support/test.h"

static char *ask_text(const struct sw_predict_options *wanted)
{
    static const char config[] =
        "{\"train_micro_batch_size_per_gpu\": 1, \"optimizer\": {\"type\": \"AdamW\", \"params\": "
        "{\"lr\": 0.001}}, \"zero_optimization\": {\"stage\": 3, \"offload_optimizer\": "
        "{\"device\": \"nvme\"}}}";
    char set[128], *text = NULL;
    const char *sets[] = {set};
    snprintf(set, sizeof set, "zero_optimization.offload_optimizer.nvme_path=%s", test_folder());
    const struct sw_engine_options options = {.config = {.text = config, .sets = sets, .n_sets = 1},
                                              .model.path = "gpt2-tiny",
                                              .inputs.seq_len = 8,
                                              .train.wanted = true};
    if (sw_plan_predict_text(&options, wanted, &text) < 0) {
        fail_msg("%s", sw_error_message());
    }
    return text;
}

/* Parses the text and frees it. */
static struct sw_json_doc *parse(char *text)
{
    struct sw_json_doc *doc = NULL;
    if (sw_json_parse("prediction", text, strlen(text), SW_JSON_STRICT, &doc) < 0) {
        fail_msg("%s", sw_error_message());
    }
    sw_text_free(text);
    return doc;
}

static struct sw_json_doc *ask(const struct sw_predict_options *wanted)
{
    return parse(ask_text(wanted));
}

static double at(struct sw_json_doc *doc, const char *path)
{
    const struct sw_json *value = sw_json_path(sw_json_root(doc), path);
    assert_non_null(value);
    return value->type == SW_JSON_NULL ? NAN : value->number;
}

static void given_rates_are_taken(void **state)
{
    (void)state;
    static const char *const rates[] = {"f32=2", "copy=4", "disk_read=0.5", "disk_write=0.25",
                                        "comm=0.125"};
    for (int ranks = 1; ranks <= 2; ranks++) {
        const struct sw_predict_options wanted = {
            .rates = rates, .n_rates = 5, .ranks = ranks, .json = true};
        struct sw_json_doc *doc = ask(&wanted);
        const double f32 = at(doc, "parts.products_f32.work") / 2e9;
        const double other = at(doc, "parts.other.work") / 4e9;
        const double read = at(doc, "parts.disk_read.work") / 0.5e9;
        const double written = at(doc, "parts.disk_written.work") / 0.25e9;
        const double copied =
            (at(doc, "parts.copies_in.work") + at(doc, "parts.copies_out.work")) / 4e9;
        const double sent = at(doc, "parts.sent.work") / 0.125e9;
        assert_true(f32 > 0 && other > 0 && read > 0);
        assert_int_equal(sent > 0, ranks > 1);
        assert_true(fabs(at(doc, "seconds.compute") - (f32 + other)) < 1e-12);
        assert_true(fabs(at(doc, "seconds.read") - read) < 1e-12);
        assert_true(fabs(at(doc, "seconds.write") - written) < 1e-12);
        assert_true(fabs(at(doc, "seconds.comm") - sent) < 1e-12);
        const double sum = f32 + other + copied + read + written + sent;
        assert_true(fabs(at(doc, "sum_seconds") - sum) < 1e-12);
        assert_true(at(doc, "least_seconds") <= at(doc, "sum_seconds"));
        assert_true(at(doc, "least_seconds") >= at(doc, "seconds.write"));
        assert_false(sw_json_get(sw_json_root(doc), "unknown")->boolean);
        sw_json_close(doc);
    }
}

/* Each exchange and each meeting takes the latency besides. */
static void a_latency_counts_exchanges(void **state)
{
    (void)state;
    static const char *const rates[] = {"comm=0.125", "comm_latency=1000"};
    double seconds[2];
    for (int n = 1; n <= 2; n++) {
        const struct sw_predict_options wanted = {
            .rates = rates, .n_rates = n, .ranks = 2, .json = true};
        struct sw_json_doc *doc = ask(&wanted);
        seconds[n - 1] = at(doc, "seconds.comm");
        sw_json_close(doc);
    }
    const double times = (seconds[1] - seconds[0]) / 1e-3;
    assert_true(times > 2.5 && fabs(times - round(times)) < 1e-6);
}

/* Exchanges of four ranks by the rates of hosts, in seconds. */
static double exchange_seconds(const char *const *rates, int n_rates, int64_t tensor)
{
    char set[64], *text = NULL;
    const char *sets[] = {set};
    const struct sw_predict_options wanted = {
        .rates = rates, .n_rates = n_rates, .ranks = 4, .json = true};
    snprintf(set, sizeof set, "spillway.mesh.tensor=%lld", (long long)tensor);
    const struct sw_engine_options options = {
        .config = {.text = "{\"train_micro_batch_size_per_gpu\": 1, \"optimizer\": {\"type\": "
                           "\"AdamW\"}}",
                   .sets = sets,
                   .n_sets = 1},
        .model.path = "gpt2-tiny",
        .inputs.seq_len = 8,
        .train.wanted = true};
    if (sw_plan_predict_text(&options, &wanted, &text) < 0) {
        fail_msg("%s", sw_error_message());
    }
    struct sw_json_doc *doc = parse(text);
    const double seconds = at(doc, "seconds.comm") + at(doc, "seconds.tensor");
    sw_json_close(doc);
    return seconds;
}

/* Groups whose ranks share a host take the rate `node`, others take `net`. */
static void exchanges_take_the_rate_of_their_hosts(void **state)
{
    (void)state;
    static const char *const comm[] = {"comm=2"};
    static const char *const hosts[] = {"node=2", "net=0.5", "node_ranks=4"};
    static const char *const two[] = {"node=2", "net=0.5", "node_ranks=2"};
    static const char *const fast[] = {"node=1e9", "net=0.5", "node_ranks=2"};
    static const char *const only_net[] = {"comm=2", "net=0.5", "node_ranks=2"};
    const double all = exchange_seconds(comm, 1, 1);
    assert_true(all > 0);
    assert_true(exchange_seconds(hosts, 2, 1) == all); /* one host has all ranks */
    assert_true(exchange_seconds(hosts, 3, 1) == all);
    assert_true(fabs(exchange_seconds(two, 3, 1) - 4 * all) < 1e-9 * all);
    /* ranks 0 and 1 are neighbours along tensor and share a host; ranks 0 and 2 do not */
    const double cut = exchange_seconds(comm, 1, 2), data = exchange_seconds(fast, 3, 2);
    assert_true(fabs(exchange_seconds(two, 3, 2) - (cut - data / 4 + data)) < 1e-6 * cut);
    assert_true(exchange_seconds(only_net, 3, 2) == exchange_seconds(two, 3, 2));
}

/* The step of a pipeline is that of all stages: at least the work of the slowest one, and each is
 * idle while it fills and drains. */
static void stages_are_walked_together(void **state)
{
    (void)state;
    static const char *const rates[] = {"f32=2", "copy=4", "comm=0.5"};
    static const struct sw_predict_options wanted = {
        .rates = rates, .n_rates = 3, .ranks = 2, .json = true};
    double seconds[2], share = 0;
    test_put("untied.json", "{\"model_type\":\"gpt2\",\"vocab_size\":64,\"n_positions\":16,"
                            "\"n_embd\":32,\"n_layer\":4,\"n_head\":4,"
                            "\"tie_word_embeddings\":false}");
    for (int pipe = 1; pipe <= 2; pipe++) {
        char config[256], *text = NULL;
        snprintf(config, sizeof config,
                 "{\"train_micro_batch_size_per_gpu\": 1, \"optimizer\": {\"type\": \"AdamW\"}, "
                 "\"spillway\": {\"micro_batches\": 4, \"mesh\": {\"pipe\": %d}}}",
                 pipe);
        const struct sw_engine_options options = {.config.text = config,
                                                  .model.path = test_at("untied.json"),
                                                  .inputs.seq_len = 8,
                                                  .train.wanted = true};
        assert_int_equal(sw_plan_predict_text(&options, &wanted, &text), SW_OK);
        struct sw_json_doc *doc = parse(text);
        const struct sw_json *stages = sw_json_get(sw_json_root(doc), "stages");
        assert_int_equal(stages->n_children, pipe);
        seconds[pipe - 1] = at(doc, "step_seconds");
        for (const struct sw_json *stage = stages->first; stage; stage = stage->next) {
            const double idle = sw_json_get(stage, "idle_share")->number;
            assert_true(sw_json_get(stage, "seconds")->number <= seconds[pipe - 1]);
            assert_true(sw_json_get(stage, "busy_seconds")->number < seconds[pipe - 1]);
            share = fmax(share, pipe > 1 ? idle : 0);
            assert_true(pipe > 1 ? idle > 0 : idle < 0.5);
        }
        sw_json_close(doc);
    }
    assert_true(share > 1.0 / 5); /* (S - 1) / (M + S - 1), and the messages */
    unlink(test_at("untied.json"));
}

static void assert_empty(const char *path)
{
    DIR *dir = opendir(path);
    assert_non_null(dir);
    for (const struct dirent *entry = readdir(dir); entry; entry = readdir(dir)) {
        assert_true(entry->d_name[0] == '.');
    }
    closedir(dir);
}

static void measured_are_the_others(void **state)
{
    (void)state;
    static const char *const parts[] = {"products_f32", "other",        "copies_in", "copies_out",
                                        "disk_read",    "disk_written", "sent"};
    static const char *const rates[] = {"f32=2"};
    const struct sw_predict_options wanted = {
        .rates = rates, .n_rates = 1, .measure = true, .ranks = 2, .json = true};
    struct sw_json_doc *doc = ask(&wanted);
    double least = 0;
    assert_true(at(doc, "parts.products_f32.rate") == 2e9);
    for (size_t i = 0; i < SW_LEN(parts); i++) {
        char path[64];
        snprintf(path, sizeof path, "parts.%s.rate", parts[i]);
        assert_true(at(doc, path) > 0);
        snprintf(path, sizeof path, "parts.%s.measured", parts[i]);
        assert_int_equal(sw_json_path(sw_json_root(doc), path)->boolean, i > 0);
        snprintf(path, sizeof path, "parts.%s.seconds", parts[i]);
        least = fmax(least, at(doc, path));
    }
    assert_true(at(doc, "step_seconds") > 0 && least > 0);
    assert_false(sw_json_get(sw_json_root(doc), "unknown")->boolean);
    sw_json_close(doc);
    assert_empty(test_folder());
}

/* Each rank's own processors update states, next to a device whose memory they cannot reach. */
static void updates_on_the_host_are_measured(void **state)
{
    (void)state;
    static const char config[] =
        "{\"train_micro_batch_size_per_gpu\": 1, \"optimizer\": {\"type\": \"AdamW\", \"params\": "
        "{\"lr\": 0.001}}, \"gradient_clipping\": 0, \"zero_optimization\": {\"stage\": 2, "
        "\"offload_optimizer\": {\"device\": \"cpu\"}}, \"spillway\": {\"update\": \"host\"}}";
    static const char *const rates[] = {"f32=2", "copy=4", "comm=0.125"};
    const struct sw_engine_options options = {.config.text = config,
                                              .model = {.path = "gpt2-tiny", .vocab_size = 67},
                                              .inputs.seq_len = 8,
                                              .run.device = "mock",
                                              .train.wanted = true};
    for (int ranks = 1; ranks <= 2; ranks++) {
        const struct sw_predict_options wanted = {
            .rates = rates, .n_rates = 3, .measure = true, .ranks = ranks, .json = true};
        char *text = NULL;
        if (sw_plan_predict_text(&options, &wanted, &text) < 0) {
            fail_msg("%s", sw_error_message());
        }
        struct sw_json_doc *doc = parse(text);
        assert_true(at(doc, "parts.host.work") > 0 && at(doc, "parts.host.rate") > 0);
        assert_true(sw_json_path(sw_json_root(doc), "parts.host.measured")->boolean);
        assert_true(at(doc, "seconds.host") > 0);
        assert_false(sw_json_get(sw_json_root(doc), "unknown")->boolean);
        sw_json_close(doc);
    }
}

/* The number of threads in a process is limited; with more ranks, exchanges have no known rate. */
static void of_too_many_ranks_exchanges_are_unknown(void **state)
{
    (void)state;
    static const char *const rates[] = {"f32=2", "copy=4", "disk_read=0.5", "disk_write=0.25"};
    const struct sw_predict_options wanted = {
        .rates = rates, .n_rates = 4, .measure = true, .ranks = 65, .json = true};
    struct sw_json_doc *doc = ask(&wanted);
    assert_true(isnan(at(doc, "parts.sent.rate")) && isnan(at(doc, "parts.sent.seconds")));
    assert_true(sw_json_get(sw_json_root(doc), "unknown")->boolean);
    assert_true(at(doc, "seconds.comm") == 0 && at(doc, "step_seconds") > 0);
    sw_json_close(doc);
}

/* Finds the number after `words`. */
static double number_behind(const char *text, const char *words)
{
    const char *found = strstr(text, words);
    assert_non_null(found);
    return strtod(found + strlen(words), NULL);
}

/* "node_ranks" alone says where ranks are, and nothing about time. */
static void without_a_rate_the_time_is_unknown(void **state)
{
    static const char *const rates[] = {"node_ranks=3"};
    (void)state;
    struct sw_predict_options wanted = {.rates = rates, .n_rates = 1};
    char *text = ask_text(&wanted);
    assert_non_null(strstr(text, "the time of a step is unknown"));
    assert_null(strstr(text, "0.000000 s"));
    sw_text_free(text);
    wanted.json = true;
    struct sw_json_doc *doc = ask(&wanted);
    assert_true(isnan(at(doc, "step_seconds")));
    sw_json_close(doc);
}

static void text_and_json_say_the_same(void **state)
{
    (void)state;
    static const char *const rates[] = {"f32=2", "copy=4", "disk_read=0.05", "disk_write=0.025",
                                        "comm=0.125"};
    for (int ranks = 1; ranks <= 2; ranks++) {
        struct sw_predict_options wanted = {.rates = rates, .n_rates = 5, .ranks = ranks};
        char *text = ask_text(&wanted), words[64];
        wanted.json = true;
        struct sw_json_doc *doc = ask(&wanted);
        const struct sw_json *root = sw_json_root(doc);
        const double step = at(doc, "step_seconds");
        const char *bound = sw_json_get(root, "bound")->string;
        assert_true(fabs(number_behind(text, "a step takes ") - step) < 1e-6);
        assert_true(fabs(number_behind(text, "it would take ") - at(doc, "least_seconds")) < 1e-6);
        assert_true(at(doc, "least_seconds") <= step && step <= at(doc, "sum_seconds"));
        snprintf(words, sizeof words, "%s bounds it, most of all instruction ", bound);
        const struct sw_json *longest = sw_json_get(root, "bound_instruction");
        assert_true(number_behind(text, words) == at(doc, "bound_instruction.number"));
        assert_non_null(strstr(text, sw_json_get(longest, "of")->string));
        double sum = 0; /* the parts of the step add up to it */
        const struct sw_json *parts = sw_json_get(root, "of_step");
        for (const struct sw_json *part = parts->first; part; part = part->next) {
            sum += part->number;
        }
        assert_true(fabs(sum - step) < 1e-9);
        snprintf(words, sizeof words, "of_step.%s", bound);
        assert_true(at(doc, words) > 0);
        sw_json_close(doc);
        sw_text_free(text);
    }
}

/* Checks transfers of one rank of several, at the stage that offloads and at stages that cannot. */
static void stages_say_what_they_move(void **state)
{
    (void)state;
    char set[128], *text = NULL;
    const char *sets[] = {"zero_optimization.stage=3",
                          "zero_optimization.offload_optimizer.device=nvme", set};
    struct sw_json_doc *doc = NULL;
    snprintf(set, sizeof set, "zero_optimization.offload_optimizer.nvme_path=%s", test_folder());
    const struct sw_engine_options options = {
        .config = {.text = "{\"train_batch_size\": 2, \"optimizer\": {\"type\": \"AdamW\", "
                           "\"params\": {\"lr\": 0.001}}}",
                   .sets = sets,
                   .n_sets = 3},
        .model.path = "gpt2-tiny",
        .inputs.seq_len = 8,
        .train.wanted = true,
    };
    if (sw_plan_stages_text(&options, 2, true, &text) < 0 ||
        sw_json_parse("stages", text, strlen(text), SW_JSON_STRICT, &doc) < 0) {
        fail_msg("%s", sw_error_message());
    }
    const struct sw_json *stages = sw_json_get(sw_json_root(doc), "stages");
    for (const struct sw_json *s = stages->first; s; s = s->next) {
        const int64_t held = sw_json_get(s, "disk_bytes")->integer;
        const int64_t written = sw_json_get(s, "moved_to_disk")->integer;
        assert_int_equal(written > 0, sw_json_get(s, "stage")->integer == 3);
        assert_int_equal(sw_json_get(s, "moved_from_disk")->integer, written);
        assert_true(written <= held); /* held is rounded up to whole sectors */
        /* gradients wait on the host for the norm */
        assert_int_equal(sw_json_get(s, "moved_to_host")->integer > 0, written > 0);
    }
    sw_json_close(doc);
    sw_text_free(text);
}

static double step_flops(int accumulation)
{
    char config[256];
    snprintf(config, sizeof config,
             "{\"train_micro_batch_size_per_gpu\": 1, \"gradient_accumulation_steps\": %d, "
             "\"optimizer\": {\"type\": \"AdamW\", \"params\": {\"lr\": 0.001}}}",
             accumulation);
    const struct sw_engine_options options = {.config.text = config,
                                              .model.path = "gpt2-tiny",
                                              .inputs.seq_len = 8,
                                              .train.wanted = true,
                                              .plan.only = true};
    sw_engine *e = NULL;
    if (sw_initialize(&options, &e) < 0) {
        fail_msg("%s", sw_error_message());
    }
    const double flops = sw_engine_step_flops(e);
    /* 12 operations per element, and the norm */
    assert_true(flops >= 12.0 * (double)sw_engine_parameters(e));
    sw_close(e);
    return flops;
}

static void a_step_updates_once_whatever_its_micro_batches(void **state)
{
    (void)state;
    const double three = step_flops(3), four = step_flops(4), five = step_flops(5);
    assert_true(five - four == four - three);
    const double update = three - 3 * (four - three);
    const double one = step_flops(1); /* one micro-batch needs no sums over micro-batches */
    assert_true(update > 0 && update < one);
}

static int tear_down(void **state)
{
    (void)state;
    return rmdir(test_folder());
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(given_rates_are_taken),
    cmocka_unit_test(a_latency_counts_exchanges),
    cmocka_unit_test(exchanges_take_the_rate_of_their_hosts),
    cmocka_unit_test(stages_are_walked_together),
    cmocka_unit_test(measured_are_the_others),
    cmocka_unit_test(updates_on_the_host_are_measured),
    cmocka_unit_test(of_too_many_ranks_exchanges_are_unknown),
    cmocka_unit_test(without_a_rate_the_time_is_unknown),
    cmocka_unit_test(text_and_json_say_the_same),
    cmocka_unit_test(stages_say_what_they_move),
    cmocka_unit_test(a_step_updates_once_whatever_its_micro_batches),
};

const struct test_program sw_tests = {TEST_TABLE(tests), .teardown = tear_down};
