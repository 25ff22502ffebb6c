// SPDX-License-Identifier: Apache-2.0
// Tests schedules: closed forms at points computed by hand, every recorded run of DeepSpeed's
// schedulers, and every block that it refuses.
#include "optim/optim.h"
#include "json/json.h"

#include "support/test.h"

static struct sw_json_doc *open_fixture(const char *name)
{
    char path[1024];
    struct sw_json_doc *doc;
    const char *root = getenv("SPILLWAY_FIXTURES");
    snprintf(path, sizeof path, "%s/schedules/%s", root ? root : "../shared/fixtures", name);
    return sw_json_read(path, SW_JSON_STRICT, &doc) == SW_OK ? doc : NULL;
}

static sw_status open_text(const char *text, struct sw_config **out)
{
    return sw_config_parse("case", text, strlen(text), NULL, 0, out);
}

#define ADAM "\"optimizer\": {\"type\": \"Adam\", \"params\": {\"lr\": 0.002}}"

/* ---- check values ---- */

static void expect_rates(const char *text, int64_t first, const double *want, int n)
{
    struct sw_config *config;
    struct sw_schedule schedule;
    assert_int_equal(open_text(text, &config), SW_OK);
    assert_int_equal(sw_schedule_init(&schedule, config, 1), SW_OK);
    for (int i = 0; i < n; i++) {
        assert_float_equal(sw_schedule_at(&schedule, 0, first + i).lr, want[i], 1e-6);
    }
    sw_config_close(config);
}

static void warmup_values(void **state)
{
    (void)state;
    const double log_rates[] = {0, 0, .0004307, .0006826, .0008614, .001, .001};
    const double linear[] = {0, 0, .0002, .0004, .0006, .0008, .001, .001};
    expect_rates("{" ADAM ", \"scheduler\": {\"type\": \"WarmupLR\", \"params\": "
                 "{\"warmup_max_lr\": 1e-3, \"warmup_num_steps\": 5}}}",
                 0, log_rates, SW_LEN(log_rates));
    expect_rates(
        "{" ADAM ", \"scheduler\": {\"type\": \"WarmupLR\", \"params\": "
        "{\"warmup_max_lr\": 1e-3, \"warmup_num_steps\": 5, \"warmup_type\": \"linear\"}}}",
        0, linear, SW_LEN(linear));
}

static void adafactor_chooses_its_rate(void **state)
{
    (void)state;
    static const struct {
        const char *params;
        int64_t step;
        double want;
    } rows[] = {{"", 0, 1e-2},
                {"", 9999, 1e-2},
                {"", 39999, 5e-3}, /* 1 / sqrt(t) */
                {"\"warmup_init\": true", 0, 1e-6},
                {"\"warmup_init\": true", 2, 3e-6},
                {"\"warmup_init\": true", 39999, 5e-3},
                {"\"relative_step\": false, \"lr\": 0.3", 7, 0.3}};
    for (size_t i = 0; i < SW_LEN(rows); i++) {
        struct sw_config *config;
        struct sw_schedule schedule;
        char text[128];
        snprintf(text, sizeof text, "{\"optimizer\": {\"type\": \"Adafactor\", \"params\": {%s}}}",
                 rows[i].params);
        assert_int_equal(open_text(text, &config), SW_OK);
        assert_int_equal(sw_schedule_init(&schedule, config, 1), SW_OK);
        assert_float_equal(sw_schedule_at(&schedule, 0, rows[i].step).lr, rows[i].want, 1e-15);
        sw_config_close(config);
    }
}

static void cycle_values(void **state)
{
    (void)state;
    const double want[] = {.2, .3, .4, .5, .4, .3, .2, .1, .08, .066667, .057143, .05};
    expect_rates("{" ADAM ", \"scheduler\": {\"type\": \"OneCycle\", \"params\": "
                 "{\"cycle_min_lr\": 0.1, \"cycle_max_lr\": 0.5, \"cycle_first_step_size\": 4, "
                 "\"decay_lr_rate\": 0.5, \"decay_step_size\": 2}}}",
                 1, want, SW_LEN(want));
}

static void no_scheduler_is_constant(void **state)
{
    (void)state;
    const double want[] = {.002, .002, .002};
    expect_rates("{" ADAM "}", 0, want, SW_LEN(want));
    expect_rates("{" ADAM "}", INT64_C(1) << 40, want, SW_LEN(want));
}

/* Rate of the update after k others, in a schedule of transformers' Trainer. */
static double trainer_rate(const char *type, int warmup, int64_t k)
{
    struct sw_config *config;
    struct sw_schedule schedule;
    char text[256], total[32] = "";
    if (strcmp(type, "linear") == 0 || strcmp(type, "cosine") == 0) {
        snprintf(total, sizeof total, "\"total_num_steps\": 30, ");
    }
    snprintf(text, sizeof text,
             "{" ADAM ", \"scheduler\": {\"type\": \"%s\", \"params\": {%s%s %d}}}", type, total,
             "\"warmup_num_steps\":", warmup);
    assert_int_equal(open_text(text, &config), SW_OK);
    assert_int_equal(sw_schedule_init(&schedule, config, 1), SW_OK);
    const double lr = sw_schedule_at(&schedule, 0, k).lr;
    sw_config_close(config);
    return lr;
}

/* transformers counts from 0: the factor of the first update of a warm-up of w steps is 0 / w. */
static void schedules_of_the_trainer(void **state)
{
    (void)state;
    static const char *const types[] = {"linear", "cosine", "constant_with_warmup", "inverse_sqrt"};
    static const int warmups[] = {0, 1, 2, 7};
    for (size_t t = 0; t < SW_LEN(types); t++) {
        for (size_t w = 0; w < SW_LEN(warmups); w++) {
            const int n = warmups[w];
            for (int k = 0; k < n; k++) {
                assert_true(trainer_rate(types[t], n, k) == .002 * ((double)k / n));
            }
            assert_true(trainer_rate(types[t], n, n) == .002);
            assert_true(trainer_rate("linear", n, n + 5) == .002 * ((25.0 - n) / (30.0 - n)));
            assert_true(trainer_rate("constant_with_warmup", n, n + 999) == .002);
            assert_float_equal(trainer_rate("cosine", n, n + 3) + trainer_rate("cosine", n, 27),
                               .002, 1e-15); /* symmetric about its middle */
        }
    }
    assert_true(trainer_rate("linear", 7, 30) == 0 && trainer_rate("linear", 7, 31) == 0);
    assert_float_equal(trainer_rate("cosine", 7, 30), 0, 1e-18);
    assert_true(trainer_rate("inverse_sqrt", 4, 16) == .001);
    assert_float_equal(trainer_rate("inverse_sqrt", 0, 30000), .001, 1e-15); /* of 10000 steps */
    const double constant[] = {.002, .002, .002};
    expect_rates("{" ADAM ", \"scheduler\": {\"type\": \"constant\"}}", 0, constant,
                 SW_LEN(constant));
}

static void an_optimizer_is_needed(void **state)
{
    (void)state;
    struct sw_config *config;
    struct sw_schedule schedule;
    assert_int_equal(open_text("{\"scheduler\": {\"type\": \"WarmupLR\"}}", &config), SW_OK);
    assert_int_equal(sw_schedule_init(&schedule, config, 1), SW_E_CONFIG);
    assert_non_null(strstr(sw_error_message(), "optimizer.type"));
    sw_config_close(config);
}

/* ---- recorded runs ---- */

static double tolerance; /* relative, from schedules.json */

static bool near(double a, double b)
{
    return fabs(a - b) <= tolerance * fmax(fabs(a), fabs(b));
}

/* A number for one group, or a list with one number per group. */
static double of_group(const struct sw_json *value, int i_group)
{
    const struct sw_json *item = value;
    if (value->type == SW_JSON_ARRAY) {
        item = value->first;
        for (int i = 0; i < i_group; i++) {
            item = item->next;
        }
    }
    return item->number;
}

static int check_group(const struct sw_json *row, const struct sw_schedule *s, int i_group)
{
    int n_wrong = 0, k = 0;
    for (const struct sw_json *want = sw_json_get(row, "lr_used")->first; want;
         want = want->next, k++) {
        const double lr = sw_schedule_at(s, i_group, k).lr;
        if (!near(of_group(want, i_group), lr)) {
            print_error("  step %d group %d: lr %.17g, recorded %.17g\n", k, i_group, lr,
                        of_group(want, i_group));
            n_wrong++;
        }
    }
    k = 1; /* the rate after step k - 1 is that of step k */
    for (const struct sw_json *want = sw_json_get(row, "lr_after")->first; want;
         want = want->next, k++) {
        n_wrong += !near(of_group(want, i_group), sw_schedule_at(s, i_group, k).lr);
    }
    const struct sw_json *before = sw_json_get(row, "lr_before_training");
    n_wrong += !near(of_group(before, i_group), sw_schedule_at(s, i_group, 0).lr);
    return n_wrong;
}

static int check_betas(const struct sw_json *row, const struct sw_schedule *s)
{
    const struct sw_json *betas = sw_json_get(row, "betas_used");
    int n_wrong = 0, k = 0;
    for (const struct sw_json *want = betas ? betas->first : NULL; want; want = want->next, k++) {
        if (want->type == SW_JSON_NULL) { /* SGD */
            n_wrong += s->has_betas;
            continue;
        }
        for (int g = 0; g < s->n_groups; g++) {
            const struct sw_json *pair = want;
            if (want->first->type == SW_JSON_ARRAY) {
                pair = want->first;
                for (int i = 0; i < g; i++) {
                    pair = pair->next;
                }
            }
            const struct sw_rates rates = sw_schedule_at(s, g, k);
            if (!near(pair->first->number, rates.beta1) || !near(pair->last->number, rates.beta2)) {
                print_error("  step %d group %d: betas %.17g %.17g, recorded %.17g %.17g\n", k, g,
                            rates.beta1, rates.beta2, pair->first->number, pair->last->number);
                n_wrong++;
            }
        }
    }
    return n_wrong;
}

static struct sw_config *config_of(const struct sw_json *row, bool with_optimizer)
{
    struct sw_str text = {0};
    struct sw_config *config = NULL;
    sw_str_puts(&text, "{\"optimizer\": ");
    if (with_optimizer) {
        sw_json_write(sw_json_get(row, "optimizer"), 0, &text);
    } else {
        sw_str_puts(&text, "{\"type\": \"Adam\", \"params\": {\"lr\": 0.002}}");
    }
    const struct sw_json *scheduler = sw_json_get(row, "scheduler");
    if (scheduler->type == SW_JSON_OBJECT) {
        sw_str_puts(&text, ", \"scheduler\": ");
        sw_json_write(scheduler, 0, &text);
    }
    sw_str_puts(&text, "}");
    sw_config_parse("case", text.ptr, text.len, NULL, 0, &config);
    sw_str_fini(&text);
    return config;
}

/* An empty list is not the default. */
static void an_empty_list_is_refused(void **state)
{
    static const char *const blocks[] = {
        "\"OneCycle\", \"params\": {\"cycle_min_lr\": [], \"cycle_max_lr\": [0.1]}",
        "\"OneCycle\", \"params\": {\"cycle_min_lr\": 0.1, \"cycle_max_lr\": 0.2, "
        "\"cycle_max_mom\": []}",
        "\"LRRangeTest\", \"params\": {\"lr_range_test_min_lr\": []}",
        "\"WarmupLR\", \"params\": {\"warmup_max_lr\": []}"};
    (void)state;
    for (size_t i = 0; i < SW_LEN(blocks); i++) {
        char text[256];
        struct sw_config *config;
        struct sw_schedule schedule;
        snprintf(text, sizeof text, "{" ADAM ", \"scheduler\": {\"type\": %s}}", blocks[i]);
        assert_int_equal(open_text(text, &config), SW_OK);
        assert_int_equal(sw_schedule_init(&schedule, config, 1), SW_E_CONFIG);
        assert_non_null(strstr(sw_error_message(), "0 values, 1 groups"));
        sw_config_close(config);
    }
}

/* Rule torch-schedules of docs/differences.md: the name is known, and refused with the name. */
static int check_refused_by_name(const struct sw_config *config)
{
    struct sw_schedule schedule;
    int n_wrong = sw_schedule_init(&schedule, config, 1) != SW_E_UNSUP;
    n_wrong += strstr(sw_error_message(), config->scheduler.name) == NULL;
    n_wrong += sw_config_check_built(config) != SW_E_UNSUP;
    n_wrong += strstr(sw_error_message(), "scheduler.type") == NULL;
    return n_wrong;
}

static int check_case(const struct sw_json *row)
{
    struct sw_config *config = config_of(row, true);
    if (!config) {
        print_error("  %s\n", sw_error_message());
        return 1;
    }
    struct sw_schedule schedule;
    const int n_groups = (int)sw_json_get(row, "parameter_groups")->integer;
    int n_wrong = 0;
    if (config->scheduler.type == SW_SCHEDULER_OTHER) {
        n_wrong = check_refused_by_name(config);
    } else if (sw_schedule_init(&schedule, config, n_groups) < 0) {
        print_error("  %s\n", sw_error_message());
        n_wrong = 1;
    } else {
        for (int g = 0; g < n_groups; g++) {
            n_wrong += check_group(row, &schedule, g);
        }
        n_wrong += check_betas(row, &schedule);
    }
    sw_config_close(config);
    return n_wrong;
}

static void recorded_schedules(void **state)
{
    (void)state;
    struct sw_json_doc *doc = open_fixture("schedules.json");
    assert_non_null(doc);
    const struct sw_json *root = sw_json_root(doc);
    tolerance = sw_json_path(root, "tolerance.rel")->number;
    int n = 0, n_wrong = 0;
    for (const struct sw_json *row = sw_json_get(root, "cases")->first; row; row = row->next, n++) {
        const int wrong = check_case(row);
        print_message("schedules %-44s %s\n", sw_json_get(row, "name")->string,
                      wrong ? "WRONG" : "same");
        n_wrong += wrong != 0;
    }
    assert_true(n > 0);
    assert_int_equal(n_wrong, 0);
    sw_json_close(doc);
}

/* Recorded refusals hold. Exception: whole numbers with a decimal point, which a file reads as
 * integers. */
static void recorded_refusals(void **state)
{
    (void)state;
    struct sw_json_doc *doc = open_fixture("errors.json");
    assert_non_null(doc);
    int n_wrong = 0;
    for (const struct sw_json *row = sw_json_get(sw_json_root(doc), "cases")->first; row;
         row = row->next) {
        const char *why = sw_json_get(row, "error")->string;
        struct sw_schedule schedule;
        struct sw_config *config = config_of(row, false);
        const bool refused = !config || sw_schedule_init(&schedule, config, 1) < 0;
        /* "auto" is filled in here: rule auto-is-filled of docs/differences.md */
        const bool passes = strstr(why, "passes") || strstr(why, "\"auto\" is not replaced");
        const bool wrong = refused == passes;
        print_message("schedules/errors %-60s %s\n", why, wrong ? "WRONG" : "same");
        n_wrong += wrong;
        sw_config_close(config);
    }
    assert_int_equal(n_wrong, 0);
    sw_json_close(doc);
}

static int begin(char **argv)
{
    (void)argv;
    struct sw_json_doc *doc = open_fixture("schedules.json");
    if (!doc) {
        printf("skip: no recorded schedules\n");
        return TEST_EXIT_SKIPPED;
    }
    sw_json_close(doc);
    return 0;
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(warmup_values),
    cmocka_unit_test(adafactor_chooses_its_rate),
    cmocka_unit_test(cycle_values),
    cmocka_unit_test(no_scheduler_is_constant),
    cmocka_unit_test(schedules_of_the_trainer),
    cmocka_unit_test(an_optimizer_is_needed),
    cmocka_unit_test(recorded_schedules),
    cmocka_unit_test(an_empty_list_is_refused),
    cmocka_unit_test(recorded_refusals),
};

const struct test_program sw_tests = {TEST_TABLE(tests), .begin = begin};
