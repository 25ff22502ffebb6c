// SPDX-License-Identifier: Apache-2.0
// The trace of a training job is one file with the requested steps of every rank, even of a rank
// without a micro-batch. Tracing does not change the loss. A window that the run does not reach is
// refused by name.
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "json/json.h"
#include "spillway/train.h"
#include "support/scratch.h"
#include "support/test.h"

static char text_path[128], trace_path[128];

struct asked {
    int64_t ranks, steps;
    const char *micro_batches; /* K */
    const char *first, *last;  /* NULL = the default */
    bool resume, no_trace;
};

static sw_status train(const struct asked *asked, const char *output, double *loss)
{
    char sets[8][256];
    const char *items[8];
    int n = 0;
    char path[256];
    struct sw_train_result result;
    bool started = false;
    snprintf(path, sizeof path, "%s/%s", test_folder(), output);
    snprintf(sets[n++], sizeof *sets, "train_micro_batch_size_per_gpu=2");
    snprintf(sets[n++], sizeof *sets, "spillway.micro_batches=%s", asked->micro_batches);
    snprintf(sets[n++], sizeof *sets, "zero_optimization.stage=3");
    snprintf(sets[n++], sizeof *sets, "spillway.threads=1");
    if (!asked->no_trace) {
        snprintf(sets[n++], sizeof *sets, "spillway.trace=%s", trace_path);
    }
    if (asked->first) {
        snprintf(sets[n++], sizeof *sets, "spillway.trace_first=%s", asked->first);
    }
    if (asked->last) {
        snprintf(sets[n++], sizeof *sets, "spillway.trace_last=%s", asked->last);
    }
    for (int i = 0; i < n; i++) {
        items[i] = sets[i];
    }
    const char *data = text_path;
    char config[128];
    snprintf(config, sizeof config, "%s/ds.json", test_folder());
    const struct sw_train_options options = {.model = "gpt2-tiny",
                                             .data = &data,
                                             .n_data = 1,
                                             .config_path = config,
                                             .sets = items,
                                             .n_sets = n,
                                             .output = path,
                                             .steps = asked->steps,
                                             .seq_len = 8,
                                             .ranks = asked->ranks,
                                             .resume = asked->resume,
                                             .export_dtype = -1,
                                             .no_export = true,
                                             .quiet = true};
    FILE *out = fopen("/dev/null", "w");
    assert_non_null(out);
    const sw_status st = sw_train(&options, out, &started, &result);
    fclose(out);
    *loss = st < 0 ? NAN : result.loss;
    return st;
}

/* Reads the steps of each rank as digits: steps 2 and 3 of rank 1 become 23 in steps[1]. */
static void read_steps(int64_t steps[4], int64_t slices[4])
{
    struct sw_json_doc *doc = NULL;
    memset(steps, 0, 4 * sizeof *steps);
    memset(slices, 0, 4 * sizeof *slices);
    if (sw_json_read(trace_path, SW_JSON_STRICT, &doc) < 0) {
        fail_msg("%s", sw_error_message());
    }
    const struct sw_json *events = sw_json_get(sw_json_root(doc), "traceEvents");
    assert_non_null(events);
    for (const struct sw_json *e = events->first; e; e = e->next) {
        const int64_t rank = sw_json_get(e, "pid")->integer;
        const struct sw_json *category = sw_json_get(e, "cat");
        assert_in_range(rank, 0, 3);
        if (category && strcmp(category->string, "step") == 0) {
            steps[rank] = steps[rank] * 10 + atoi(sw_json_get(e, "name")->string + 5);
        }
        slices[rank] += category != NULL;
    }
    sw_json_close(doc);
}

static void all_ranks_are_in_one_file(void **state)
{
    (void)state;
    static const struct {
        struct asked asked;
        int64_t steps;
    } cases[] = {
        {{1, 6, "2", NULL, NULL, false, false}, 234},
        {{1, 1, "2", NULL, NULL, false, false}, 1},
        {{1, 4, "2", "4", NULL, false, false}, 4},
        {{1, 5, "1", NULL, "4", false, false}, 234},
        {{2, 4, "3", "1", "2", false, false}, 12},
        {{3, 3, "1", "2", "9", false, false}, 23}, /* two ranks have no micro-batch */
    };
    for (size_t i = 0; i < SW_LEN(cases); i++) {
        struct asked plain = cases[i].asked;
        char name[32];
        int64_t steps[4], slices[4];
        double loss = NAN, without = NAN;
        snprintf(name, sizeof name, "with%zu", i);
        if (train(&cases[i].asked, name, &loss) < 0) {
            fail_msg("%s", sw_error_message());
        }
        read_steps(steps, slices);
        plain.no_trace = true;
        plain.first = plain.last = NULL;
        snprintf(name, sizeof name, "without%zu", i);
        assert_int_equal(train(&plain, name, &without), SW_OK);
        assert_memory_equal(&loss, &without, sizeof loss);
        for (int r = 0; r < 4; r++) {
            assert_int_equal(steps[r], r < cases[i].asked.ranks ? cases[i].steps : 0);
            assert_int_equal(slices[r] > 10, r < cases[i].asked.ranks);
        }
    }
}

static void what_a_run_does_not_reach_is_refused(void **state)
{
    (void)state;
    const struct asked late = {1, 3, "1", "4", "5", false, false};
    const struct asked before = {1, 6, "1", "2", "3", true, false};
    const struct asked after = {1, 8, "1", NULL, NULL, true, false};
    double loss;
    int64_t steps[4], slices[4];
    unlink(trace_path);
    assert_int_equal(train(&late, "late", &loss), SW_E_CONFIG);
    assert_non_null(strstr(sw_error_message(), "steps 4 to 5"));
    assert_int_not_equal(access(trace_path, F_OK), 0);
    assert_int_equal(sw_file_write_atomic(trace_path, "older", 5), SW_OK);
    assert_int_equal(train(&late, "late", &loss), SW_E_CONFIG);
    char *text = NULL;
    size_t length = 0;
    assert_int_equal(sw_file_read(trace_path, &text, &length),
                     SW_OK); /* a refused run keeps the old file */
    assert_true(length == 5 && memcmp(text, "older", 5) == 0);
    sw_free(text);
    assert_int_equal(train(&(struct asked){1, 4, "1", NULL, NULL, false, true}, "goes_on", &loss),
                     SW_OK);
    assert_int_equal(train(&before, "goes_on", &loss), SW_E_CONFIG);
    assert_non_null(strstr(sw_error_message(), "steps 5 to 6"));
    if (train(&after, "goes_on", &loss) < 0) {
        fail_msg("%s", sw_error_message());
    }
    read_steps(steps, slices);
    assert_int_equal(steps[0], 678);
}

static int set_up(void **state)
{
    (void)state;
    snprintf(text_path, sizeof text_path, "%s/text.txt", test_folder());
    snprintf(trace_path, sizeof trace_path, "%s/trace.json", test_folder());
    struct sw_str text = {0};
    for (int i = 0; i < 500; i++) {
        sw_str_printf(&text, "word%d ", i % 13);
    }
    const sw_status st = sw_file_write_atomic(text_path, text.ptr, text.len);
    sw_str_fini(&text);
    char path[128];
    static const char config[] =
        "{\"optimizer\": {\"type\": \"AdamW\", \"params\": {\"lr\": 0.001}}}";
    snprintf(path, sizeof path, "%s/ds.json", test_folder());
    return st < 0 || sw_file_write_atomic(path, config, strlen(config)) < 0 ? -1 : 0;
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(all_ranks_are_in_one_file),
    cmocka_unit_test(what_a_run_does_not_reach_is_refused),
};

const struct test_program sw_tests = {TEST_TABLE(tests), .setup = set_up};
