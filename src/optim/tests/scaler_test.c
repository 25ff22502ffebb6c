// SPDX-License-Identifier: Apache-2.0
// Tests loss scaling: traces of the rule, every recorded trace by the rule of the ZeRO stages, and
// recorded engines, whose one known mistake is expected.
#include "optim/optim.h"
#include "json/json.h"

#include "support/test.h"

static struct sw_json_doc *open_fixture(const char *name)
{
    char path[1024];
    struct sw_json_doc *doc;
    const char *root = getenv("SPILLWAY_FIXTURES");
    snprintf(path, sizeof path, "%s/scaler/%s", root ? root : "../shared/fixtures", name);
    return sw_json_read(path, SW_JSON_STRICT, &doc) == SW_OK ? doc : NULL;
}

/* The recorded fp16 block leaves `enabled` out. */
static struct sw_scaler scaler_of(const struct sw_json *fp16)
{
    struct sw_str text = {0};
    struct sw_config *config;
    struct sw_scaler scaler;
    const char *const sets[] = {"fp16.enabled=true"};
    sw_str_puts(&text, "{\"fp16\": ");
    sw_json_write(fp16, 0, &text);
    sw_str_puts(&text, "}");
    assert_int_equal(sw_config_parse("case", text.ptr, text.len, sets, 1, &config), SW_OK);
    sw_scaler_init(&scaler, &config->fp16);
    sw_config_close(config);
    sw_str_fini(&text);
    return scaler;
}

/* ---- traces: o = overflow, . = good step; scales after each ---- */

static void trace(double start, int64_t window, int64_t hysteresis, bool consecutive,
                  const char *steps, const double *want)
{
    struct sw_scaler s = {.scale = start,
                          .last_overflow = -1,
                          .hysteresis_left = hysteresis,
                          .dynamic = true,
                          .window = window,
                          .hysteresis = hysteresis,
                          .consecutive = consecutive,
                          .min_scale = 1};
    for (int i = 0; steps[i]; i++) {
        assert_int_equal(sw_scaler_update(&s, steps[i] == 'o'), SW_OK);
        assert_true(s.scale == want[i]);
    }
}

static void traces_of_the_rule(void **state)
{
    (void)state;
    trace(256, 2, 1, false, "......", (double[]){256, 256, 512, 512, 1024, 1024});
    trace(256, 2, 1, false, "o.....", (double[]){128, 128, 128, 256, 256, 512});
    trace(256, 2, 2, false, "ooo....", (double[]){256, 128, 64, 64, 64, 128, 128});
    trace(256, 2, 2, true, "o.oo", (double[]){256, 256, 256, 128});
    trace(256, 1000, 2, false, "o.oo", (double[]){256, 256, 128, 64});
}

static void a_changed_hysteresis_counts_down_to_one(void **state)
{
    (void)state;
    static const struct {
        int64_t saved, now, left;
    } cases[] = {{0, 2, 2}, {-3, 2, 2}, {1, 2, 1}, {2, 2, 2}, {5, 2, 2}, {2, 0, 0}, {-3, 0, -3}};
    for (size_t i = 0; i < SW_LEN(cases); i++) {
        const struct sw_fp16_config fp16 = {
            .enabled = true, .initial_scale_power = 4, .hysteresis = cases[i].now};
        struct sw_scaler s = {.scale = 64, .hysteresis_left = cases[i].saved};
        sw_scaler_resume(&s, &fp16, &s, true);
        assert_int_equal(s.hysteresis_left, cases[i].left);
        assert_true(s.scale == 64);
    }
}

static void the_minimum_is_an_error_that_names_its_key(void **state)
{
    (void)state;
    struct sw_scaler s = {.scale = 4,
                          .last_overflow = -1,
                          .hysteresis_left = 1,
                          .dynamic = true,
                          .window = 1000,
                          .hysteresis = 1,
                          .min_scale = 1};
    assert_int_equal(sw_scaler_update(&s, true), SW_OK);
    assert_int_equal(sw_scaler_update(&s, true), SW_OK);
    assert_true(s.scale == 1);
    const struct sw_scaler before = s;
    assert_int_equal(sw_scaler_update(&s, true), SW_E_CONFIG);
    assert_non_null(strstr(sw_error_message(), "fp16.min_loss_scale"));
    assert_memory_equal(&s, &before, sizeof s);
}

static void without_fp16_the_scale_is_one(void **state)
{
    (void)state;
    const struct sw_fp16_config off = {.loss_scale = 128};
    struct sw_scaler s;
    sw_scaler_init(&s, &off);
    assert_int_equal(sw_scaler_update(&s, true), SW_OK);
    assert_true(s.scale == 1);
}

/* A copy made in the middle continues identically: there is no hidden state. */
static void a_copy_continues_the_same_way(void **state)
{
    (void)state;
    struct sw_scaler s = {.scale = 1024,
                          .last_overflow = -1,
                          .hysteresis_left = 2,
                          .dynamic = true,
                          .window = 3,
                          .hysteresis = 2,
                          .min_scale = 1};
    for (int i = 0; i < 7; i++) {
        assert_int_equal(sw_scaler_update(&s, i % 3 == 0), SW_OK);
    }
    struct sw_scaler copy = s;
    for (int i = 0; i < 30; i++) {
        assert_int_equal(sw_scaler_update(&s, i % 11 == 5), SW_OK);
        assert_int_equal(sw_scaler_update(&copy, i % 11 == 5), SW_OK);
        assert_true(s.scale == copy.scale);
    }
}

/* ---- recorded traces ---- */

static bool check_trace(const struct sw_json *row)
{
    struct sw_scaler s = scaler_of(sw_json_get(row, "fp16"));
    const char *flags = sw_json_get(row, "overflow")->string;
    const struct sw_json *stops = sw_json_get(row, "zero_stops_at");
    const struct sw_json *want = sw_json_get(row, "zero")->first;
    bool right = s.scale == sw_json_get(row, "initial")->number;
    for (int64_t i = 0; flags[i] && right; i++) {
        const sw_status st = sw_scaler_update(&s, flags[i] == '1');
        if (stops && i == stops->integer) {
            return st < 0;
        }
        right = st == SW_OK && want && s.scale == want->number;
        want = want ? want->next : NULL;
    }
    return right && !stops && !want;
}

static void recorded_traces(void **state)
{
    (void)state;
    struct sw_json_doc *doc = open_fixture("scaler.json");
    assert_non_null(doc);
    int n = 0, n_wrong = 0;
    for (const struct sw_json *row = sw_json_get(sw_json_root(doc), "cases")->first; row;
         row = row->next, n++) {
        const bool right = check_trace(row);
        print_message("scaler %-40s %s\n", sw_json_get(row, "name")->string,
                      right ? "same" : "WRONG");
        n_wrong += !right;
    }
    assert_true(n > 0);
    assert_int_equal(n_wrong, 0);
    sw_json_close(doc);
}

/* ---- recorded engines: scale, rate, and what the step did to a weight ---- */

static double number(const struct sw_json *step, const char *key)
{
    return sw_json_get(step, key)->number;
}

static bool check_engine(const struct sw_json *row)
{
    static const char *const text =
        "{\"optimizer\": {\"type\": \"SGD\", \"params\": {\"lr\": 0.25}}, \"scheduler\": "
        "{\"type\": "
        "\"WarmupLR\", \"params\": {\"warmup_max_lr\": 0.25, \"warmup_num_steps\": 8, "
        "\"warmup_type\": \"linear\"}}}";
    struct sw_config *config;
    struct sw_schedule schedule;
    assert_int_equal(sw_config_parse("case", text, strlen(text), NULL, 0, &config), SW_OK);
    assert_int_equal(sw_schedule_init(&schedule, config, 1), SW_OK);
    struct sw_scaler s = scaler_of(sw_json_get(row, "fp16"));
    const struct sw_json *before = NULL;
    bool right = true;
    int64_t applied = 0;
    for (const struct sw_json *step = sw_json_get(row, "steps")->first; step;
         before = step, step = step->next) {
        const bool overflow = sw_json_get(step, "overflow")->boolean;
        const double used = s.scale, lr = sw_schedule_at(&schedule, 0, applied).lr;
        right = right && used == number(step, "scale_used") &&
                fabs(lr - number(step, "lr_used")) < 1e-12;
        right = right && sw_scaler_update(&s, overflow) == SW_OK &&
                s.scale == number(step, "scale_after");
        applied += !overflow;
        /* Rule unscale-with-the-scale-used of docs/differences.md: the recorded step is smaller by
         * used / after, ours is not. */
        const double ours = overflow ? 0 : lr / 64;
        const double recorded = overflow ? 0 : ours * used / s.scale;
        const double moved =
            before ? number(before, "master_weight_0") - number(step, "master_weight_0") : recorded;
        right = right && fabs(moved - recorded) < 1e-6;
        right = right && (s.scale > used ? recorded < ours || ours == 0 : recorded == ours);
    }
    sw_config_close(config);
    return right;
}

static void recorded_engines(void **state)
{
    (void)state;
    struct sw_json_doc *doc = open_fixture("engine.json");
    assert_non_null(doc);
    int n = 0, n_wrong = 0;
    for (const struct sw_json *row = sw_json_get(sw_json_root(doc), "cases")->first; row;
         row = row->next, n++) {
        const bool right = check_engine(row);
        print_message("scaler/engine %d %s\n", n, right ? "same" : "WRONG");
        n_wrong += !right;
    }
    assert_int_equal(n_wrong, 0);
    sw_json_close(doc);
}

static int begin(char **argv)
{
    (void)argv;
    struct sw_json_doc *doc = open_fixture("scaler.json");
    if (!doc) {
        printf("skip: no recorded traces\n");
        return TEST_EXIT_SKIPPED;
    }
    sw_json_close(doc);
    return 0;
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(traces_of_the_rule),
    cmocka_unit_test(a_changed_hysteresis_counts_down_to_one),
    cmocka_unit_test(the_minimum_is_an_error_that_names_its_key),
    cmocka_unit_test(without_fp16_the_scale_is_one),
    cmocka_unit_test(a_copy_continues_the_same_way),
    cmocka_unit_test(recorded_traces),
    cmocka_unit_test(recorded_engines),
};

const struct test_program sw_tests = {TEST_TABLE(tests), .begin = begin};
