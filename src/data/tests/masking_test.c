// SPDX-License-Identifier: Apache-2.0
// Masks and spans: shares of many draws, the recorded spans, and that no draw depends on another.
#include "data/masking.h"

#include <string.h>

#include "json/json.h"
#include "support/files.h"
#include "support/test.h"

enum { MOST = 512 };

static int ids_of(const struct sw_json *row, const char *key, int32_t *out)
{
    int n = 0;
    for (const struct sw_json *v = sw_json_get(row, key)->first; v; v = v->next) {
        assert_true(n < MOST);
        out[n++] = (int32_t)v->integer;
    }
    return n;
}

static void spans_are_the_recorded_ones(void **state)
{
    (void)state;
    struct sw_json_doc *doc = NULL;
    struct sw_str path = {0};
    const char *root = sw_test_fixtures();
    if (root) {
        sw_str_printf(&path, "%s/t5/spans.json", root);
        if (sw_json_read(path.ptr, SW_JSON_STRICT, &doc) < 0) {
            print_message("skipped: %s\n", sw_error_message());
        }
    }
    sw_str_fini(&path);
    if (!doc) {
        skip();
    }
    for (const struct sw_json *row = sw_json_get(sw_json_root(doc), "cases")->first; row;
         row = row->next) {
        int32_t ids[MOST], mask[MOST], inputs[2 * MOST], labels[2 * MOST], wanted[MOST];
        const int n = ids_of(row, "ids", ids);
        assert_int_equal(ids_of(row, "mask", mask), n);
        struct sw_span_writer writer = {
            .first_sentinel = (int32_t)sw_json_get(row, "first_sentinel")->integer,
            .n_sentinels = (int32_t)sw_json_get(row, "sentinels")->integer,
            .eos = (int32_t)sw_json_get(row, "eos")->integer,
            .inputs = inputs,
            .labels = labels,
            .last = -1};
        sw_status st = SW_OK;
        for (int i = 0; i < n && st >= 0; i++) {
            st = sw_span_put(&writer, ids[i], mask[i]);
        }
        if (sw_json_get(row, "error")) {
            assert_int_equal(st, SW_E_CONFIG);
            continue;
        }
        assert_int_equal(st, SW_OK);
        sw_span_end(&writer);
        assert_int_equal(ids_of(row, "encoder", wanted), writer.n_inputs);
        assert_memory_equal(inputs, wanted, (size_t)writer.n_inputs * sizeof *wanted);
        assert_int_equal(ids_of(row, "decoder", wanted), writer.n_labels);
        assert_memory_equal(labels, wanted, (size_t)writer.n_labels * sizeof *wanted);
    }
    sw_json_close(doc);
}

/* A corrupted text can be reassembled. Its lengths and hidden tokens match the plan. */
static void spans_cover_what_was_planned(void **state)
{
    (void)state;
    for (int64_t n = 1; n < 300; n += n < 40 ? 1 : 37) {
        const struct sw_span_plan plan = sw_span_plan_of(n);
        int32_t ids[MOST], inputs[MOST], labels[MOST];
        for (int64_t i = 0; i < n; i++) {
            ids[i] = (int32_t)(1000 + i);
        }
        for (int64_t sample = 0; sample < 20; sample++) {
            const struct sw_draw draw = {.seed = 3, .sample = sample};
            struct sw_span_writer w = {.first_sentinel = 99,
                                       .n_sentinels = 90,
                                       .eos = 1,
                                       .inputs = inputs,
                                       .labels = labels,
                                       .last = -1};
            assert_int_equal(sw_span_corrupt(&draw, ids, n, &w), SW_OK);
            assert_int_equal(w.n_inputs, plan.n_inputs);
            assert_int_equal(w.n_labels, plan.n_labels);
            assert_int_equal(w.n_masked, plan.n_spans);
            int64_t seen = 0;
            bool met[MOST] = {false};
            for (int64_t i = 0; i < w.n_inputs + w.n_labels; i++) {
                const int32_t id = i < w.n_inputs ? inputs[i] : labels[i - w.n_inputs];
                if (id >= 1000) {
                    assert_false(met[id - 1000]);
                    met[id - 1000] = true;
                    seen++;
                }
            }
            assert_int_equal(seen, n);
            assert_int_equal(inputs[0], 1000); /* the first span is kept */
        }
    }
    assert_int_equal(sw_span_plan_of(568).n_inputs, 512); /* as T5 was trained: 568 -> 512, 114 */
    assert_int_equal(sw_span_plan_of(568).n_labels, 114);
    assert_int_equal(sw_span_most(512, 114), 568);
    assert_int_equal(sw_span_most(512, 1000), 568);
    assert_true(sw_span_most(512, 60) < 568 &&
                sw_span_plan_of(sw_span_most(512, 60)).n_labels <= 60);
    assert_int_equal(sw_span_most(1, 1), 0);
}

/* A composition is drawn evenly: each of the spans is as long as the others on average, and each
 * length that is possible comes up. */
static void spans_are_alike(void **state)
{
    (void)state;
    enum { N = 60, SAMPLES = 6000, SPANS = 3, MASKED = 9 };
    int lengths[SPANS] = {0}, of_first[MASKED] = {0};
    int32_t ids[N], inputs[2 * N], labels[2 * N];
    for (int i = 0; i < N; i++) {
        ids[i] = 1000 + i;
    }
    for (int64_t sample = 0; sample < SAMPLES; sample++) {
        const struct sw_draw draw = {.seed = 1, .sample = sample};
        struct sw_span_writer w = {.first_sentinel = 99,
                                   .n_sentinels = 90,
                                   .inputs = inputs,
                                   .labels = labels,
                                   .last = -1};
        int span = -1, first = 0;
        assert_int_equal(sw_span_corrupt(&draw, ids, N, &w), SW_OK);
        for (int64_t i = 0; i + 1 < w.n_labels; i++) {
            span += labels[i] < 1000;
            lengths[span] += labels[i] >= 1000;
            first += span == 0 && labels[i] >= 1000;
        }
        of_first[first]++;
    }
    for (int i = 0; i < SPANS; i++) {
        assert_in_range(lengths[i], SAMPLES * 29 / 10, SAMPLES * 31 / 10);
    }
    for (int n = 1; n <= MASKED - SPANS + 1; n++) { /* of 28 ways 8 - n begin with n */
        assert_in_range(of_first[n], SAMPLES * (8 - n) / 28 * 8 / 10,
                        SAMPLES * (8 - n) / 28 * 12 / 10);
    }
}

static void masks_have_their_shares(void **state)
{
    (void)state;
    enum { N = 100, SAMPLES = 1000, MASK = 7, IDS = 5000 };
    int asked = 0, masked = 0, kept = 0;
    for (int64_t sample = 0; sample < SAMPLES; sample++) {
        int32_t ids[N], labels[N];
        for (int i = 0; i < N; i++) {
            ids[i] = 100 + i;
            labels[i] = i % 10 == 0 ? SW_IGNORED_LABEL : ids[i];
        }
        const struct sw_draw draw = {.seed = 9, .sample = sample};
        sw_mask_tokens(&draw, MASK, IDS, N, ids, labels);
        for (int i = 0; i < N; i++) {
            const bool is_asked = labels[i] != SW_IGNORED_LABEL;
            assert_true(!is_asked || (labels[i] == 100 + i && i % 10 != 0));
            assert_true(is_asked || ids[i] == 100 + i);
            assert_in_range(ids[i], 0, IDS - 1);
            asked += is_asked;
            masked += is_asked && ids[i] == MASK;
            kept += is_asked && ids[i] == labels[i];
        }
    }
    assert_in_range(asked, 90000 * 145 / 1000, 90000 * 155 / 1000);
    assert_in_range(masked, asked * 78 / 100, asked * 82 / 100);
    assert_in_range(kept, asked * 9 / 100, asked * 11 / 100);
}

/* The same sample has the same draws; another one, another split, another seed has others. */
static void draws_are_of_seed_split_and_sample(void **state)
{
    (void)state;
    const struct sw_draw of[] = {{1, 5, SW_SPLIT_TRAIN},
                                 {1, 6, SW_SPLIT_TRAIN},
                                 {1, 5, SW_SPLIT_VAL},
                                 {2, 5, SW_SPLIT_TRAIN}};
    for (int i = 0; i < 4; i++) {
        for (int k = 0; k < 4; k++) {
            for (int use = 0; use <= SW_DRAW_PAIR; use++) {
                const bool same = sw_draw_at(&of[i], SW_DRAW_MASK, 3) ==
                                  sw_draw_at(&of[k], (enum sw_draw_use)use, 3);
                assert_int_equal(same, i == k && use == SW_DRAW_MASK);
            }
        }
    }
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(spans_are_the_recorded_ones),
    cmocka_unit_test(spans_cover_what_was_planned),
    cmocka_unit_test(spans_are_alike),
    cmocka_unit_test(masks_have_their_shares),
    cmocka_unit_test(draws_are_of_seed_split_and_sample),
};

const struct test_program sw_tests = {TEST_TABLE(tests)};
