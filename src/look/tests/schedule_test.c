// SPDX-License-Identifier: Apache-2.0
// The picture of a step: every stage has each micro-batch forward and then backward, messages go to
// neighbours and arrive before they are needed.
#include <string.h>
#include <unistd.h>

#include "json/json.h"
#include "spillway/look.h"
#include "support/scratch.h"
#include "support/test.h"

enum { STAGES = 3, K = 4 };

static int write_model(void **state)
{
    (void)state;
    test_put("model.json",
             "{\"model_type\":\"gpt2\",\"vocab_size\":64,\"n_positions\":16,"
             "\"n_embd\":32,\"n_layer\":4,\"n_head\":4,\"tie_word_embeddings\":false}");
    return 0;
}

static sw_status draw_on(int ranks, const char *schedule, const char *svg, bool json, char **out)
{
    static const char *const rates[] = {"f32=2", "copy=4", "comm=1"};
    char config[256];
    const struct sw_predict_options wanted = {
        .rates = rates, .n_rates = 3, .ranks = ranks, .json = json};
    snprintf(
        config, sizeof config,
        "{\"train_micro_batch_size_per_gpu\": 1, \"optimizer\": {\"type\": \"AdamW\"}, "
        "\"spillway\": {\"micro_batches\": %d, \"schedule\": \"%s\", \"mesh\": {\"pipe\": %d}}}",
        K, schedule, ranks);
    const struct sw_engine_options options = {.config.text = config,
                                              .model.path = test_at("model.json"),
                                              .inputs.seq_len = 8,
                                              .train.wanted = true};
    return sw_plan_schedule_text(&options, &wanted, svg, out);
}

static sw_status draw(const char *schedule, const char *svg, bool json, char **out)
{
    return draw_on(STAGES, schedule, svg, json, out);
}

static void draw_well(const char *schedule, const char *svg, bool json, char **out)
{
    if (draw(schedule, svg, json, out) < 0) {
        fail_msg("%s", sw_error_message());
    }
}

static double number(const struct sw_json *of, const char *key)
{
    const struct sw_json *value = sw_json_get(of, key);
    assert_non_null(value);
    return value->number;
}

/* Times of the passes of a stage by micro-batch: forward, backward. */
struct times {
    double begin[2][K], end[2][K], busy, first, last;
};

static void read_stage(const struct sw_json *stage, struct times *out)
{
    bool seen[2][K] = {{false}};
    double before = 0;
    *out = (struct times){.busy = 0};
    for (const struct sw_json *p = sw_json_get(stage, "phases")->first; p; p = p->next) {
        const char *segment = sw_json_get(p, "segment")->string;
        const int back = strcmp(segment, "backward") == 0;
        assert_true(number(p, "begin") >= before);
        before = number(p, "end");
        if (!back && strcmp(segment, "forward") != 0) {
            continue;
        }
        const int k = (int)number(p, "micro_batch");
        assert_true(k >= 0 && k < K && !seen[back][k]);
        seen[back][k] = true;
        out->begin[back][k] = number(p, "begin");
        out->end[back][k] = number(p, "end");
        out->busy += number(p, "busy");
        out->last = number(p, "end");
    }
    out->first = out->begin[0][0];
    for (int k = 0; k < K; k++) {
        assert_true(seen[0][k] && seen[1][k] && out->end[0][k] <= out->begin[1][k]);
        assert_true(k == 0 || out->begin[1][k - 1] < out->begin[1][k]);
    }
}

/* A message of forward goes to the next stage and one of backward to the previous one, between the
 * passes that make and read it. */
static void check_messages(const struct sw_json *stage, int s, const struct times all[STAGES])
{
    int n[2] = {0, 0};
    for (const struct sw_json *m = sw_json_get(stage, "messages")->first; m; m = m->next) {
        const int to = (int)number(m, "to"), back = to < s;
        assert_true(to == (back ? s - 1 : s + 1));
        const int k = n[back]++;
        assert_true(number(m, "bytes") > 0);
        assert_true(number(m, "begin") >= all[s].begin[back][k]);
        assert_true(number(m, "end") <= all[to].end[back][k]);
    }
    assert_int_equal(n[0], s < STAGES - 1 ? K : 0);
    assert_int_equal(n[1], s > 0 ? K : 0);
}

static void micro_batches_pass_through_all_stages(void **state)
{
    (void)state;
    static const char *const schedules[] = {"1f1b", "gpipe"};
    for (size_t i = 0; i < SW_LEN(schedules); i++) {
        char *text = NULL;
        struct sw_json_doc *doc = NULL;
        struct times all[STAGES];
        double first = 1e9, last = 0;
        int s = 0;
        draw_well(schedules[i], NULL, true, &text);
        assert_int_equal(sw_json_parse("schedule", text, strlen(text), SW_JSON_STRICT, &doc),
                         SW_OK);
        const struct sw_json *stages = sw_json_get(sw_json_root(doc), "stages");
        assert_int_equal(stages->n_children, STAGES);
        for (const struct sw_json *stage = stages->first; stage; stage = stage->next, s++) {
            read_stage(stage, &all[s]);
            first = all[s].first < first ? all[s].first : first;
            last = all[s].last > last ? all[s].last : last;
            assert_int_equal((int)number(stage, "rank"), s);
        }
        s = 0;
        for (const struct sw_json *stage = stages->first; stage; stage = stage->next, s++) {
            const double idle = 1 - all[s].busy / (last - first);
            check_messages(stage, s, all);
            assert_true(number(stage, "idle_share") > idle - 1e-9);
            assert_true(number(stage, "idle_share") < idle + 1e-9);
        }
        assert_true(number(sw_json_root(doc), "step_seconds") >= last);
        sw_json_close(doc);
        sw_text_free(text);
    }
}

static void one_rank_has_a_line_and_a_lane(void **state)
{
    (void)state;
    char *text = NULL;
    assert_int_equal(draw_on(1, "horizontal", NULL, false, &text), SW_OK);
    assert_non_null(strstr(text, ", horizontal, 4 micro-batches on a rank\nstage 0  |"));
    assert_null(strstr(text, "mesh"));
    sw_text_free(text);
}

static void the_text_has_a_lane_for_each_stage(void **state)
{
    (void)state;
    char *text = NULL;
    draw_well("gpipe", NULL, false, &text);
    assert_non_null(strstr(text, ", gpipe, 4 micro-batches on a rank; mesh: pipe 3\n"));
    for (int s = 0; s < STAGES; s++) {
        char name[24];
        snprintf(name, sizeof name, "\nstage %-3d|", s);
        const char *lane = strstr(text, name), *signs = "0123abcd=";
        assert_non_null(lane);
        lane += strlen(name);
        for (const char *sign = signs; *sign; sign++) { /* before the end of the lane */
            assert_true(strcspn(lane, (char[]){*sign, '\0'}) < strcspn(lane, "|"));
        }
    }
    sw_text_free(text);
}

static void a_picture_is_written(void **state)
{
    (void)state;
    const char *path = test_at("step.svg");
    char *text = NULL, *svg = NULL;
    size_t len = 0;
    int n = 0;
    draw_well("1f1b", path, false, &text);
    assert_non_null(strstr(text, "step.svg"));
    sw_text_free(text);
    assert_int_equal(sw_file_read(path, &svg, &len), SW_OK);
    assert_int_equal(strncmp(svg, "<svg ", 5), 0);
    for (const char *at = svg; (at = strstr(at, ">idle ")); at++, n++) {
    }
    assert_int_equal(n, STAGES);
    assert_non_null(strstr(svg, "<path class=\"m\" d=\"M"));
    sw_free(svg);
    unlink(path);
    assert_true(draw("1f1b", "/nowhere/step.svg", false, &text) < 0);
    assert_non_null(strstr(sw_error_message(), "/nowhere"));
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(micro_batches_pass_through_all_stages),
    cmocka_unit_test(the_text_has_a_lane_for_each_stage),
    cmocka_unit_test(one_rank_has_a_line_and_a_lane),
    cmocka_unit_test(a_picture_is_written),
};
const struct test_program sw_tests = {TEST_TABLE(tests), .setup = write_model};
