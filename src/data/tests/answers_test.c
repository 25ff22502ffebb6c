// SPDX-License-Identifier: Apache-2.0
// Windows, answer positions and the best answer match recordings.
#include "data/answers.h"

#include <math.h>
#include <string.h>

#include "json/json.h"
#include "support/files.h"
#include "support/test.h"
#include "text/text.h"
#include "token/token.h"

enum { MOST = 1024, MOST_WINDOWS = 16 };

static struct sw_json_doc *recorded;
static struct sw_tokenizer *bert;

static int open_recorded(void **state)
{
    (void)state;
    struct sw_str path = {0};
    const char *root = sw_test_fixtures();
    if (root) {
        sw_str_printf(&path, "%s/bert/squad_windows.json", root);
        if (sw_json_read(path.ptr, SW_JSON_STRICT, &recorded) < 0 ||
            sw_tokenizer_open(sw_test_data(&path, "tokenizers/bert-base-uncased"), NULL, &bert) <
                0) {
            print_message("skipped: %s\n", sw_error_message());
        }
    }
    sw_str_fini(&path);
    return 0;
}

static int close_recorded(void **state)
{
    (void)state;
    sw_json_close(recorded);
    sw_tokenizer_close(bert);
    return 0;
}

struct tokens {
    struct sw_ids question, ids, begins, ends;
    struct sw_context context;
    int64_t room, stride, n_windows;
};

static void tokens_of(const struct sw_json *row, struct tokens *t)
{
    *t = (struct tokens){0};
    const struct sw_json *question = sw_json_get(row, "question");
    const struct sw_json *context = sw_json_get(row, "context");
    assert_int_equal(bert->ops->encode(bert, question->string, question->string_len, &t->question),
                     SW_OK);
    assert_int_equal(bert->ops->special->encode_offsets(bert, context->string, context->string_len,
                                                        &t->ids, &t->begins, &t->ends),
                     SW_OK);
    assert_int_equal(t->begins.len, t->ids.len);
    assert_int_equal(t->ends.len, t->ids.len);
    t->context = (struct sw_context){t->begins.ptr, t->ends.ptr, t->ids.len};
    t->room = sw_json_get(row, "max_length")->integer - t->question.len - 3;
    t->stride = sw_json_get(row, "stride")->integer;
    t->n_windows = sw_window_count(t->ids.len, t->room, t->stride);
}

static void tokens_fini(struct tokens *t)
{
    sw_ids_fini(&t->question);
    sw_ids_fini(&t->ids);
    sw_ids_fini(&t->begins);
    sw_ids_fini(&t->ends);
}

/* [CLS] question [SEP] context [SEP]. */
static void same_window(const struct tokens *t, int64_t first, int64_t n,
                        const struct sw_json *window)
{
    const struct sw_json *id = sw_json_get(window, "ids")->first;
    const struct sw_json *place = sw_json_get(window, "offsets")->first;
    for (int64_t i = 0; i < t->question.len + n + 3; i++, id = id->next, place = place->next) {
        const int64_t k = i - t->question.len - 2;
        const int32_t wanted = i == 0                               ? 101
                               : i <= t->question.len               ? t->question.ptr[i - 1]
                               : i == t->question.len + 1 || k == n ? 102
                                                                    : t->ids.ptr[first + k];
        assert_int_equal(id->integer, wanted);
        assert_int_equal(place->type == SW_JSON_NULL, k < 0 || k == n);
        if (k >= 0 && k < n) {
            assert_int_equal(t->begins.ptr[first + k], place->first->integer);
            assert_int_equal(t->ends.ptr[first + k], place->last->integer);
        }
    }
}

static void windows_and_labels_are_the_recorded_ones(void **state)
{
    (void)state;
    if (!bert || !SW_HAVE_UTF8PROC) {
        skip();
    }
    for (const struct sw_json *row = sw_json_get(sw_json_root(recorded), "cases")->first; row;
         row = row->next) {
        struct tokens t;
        const struct sw_json *windows = sw_json_get(row, "windows"), *w = windows->first;
        const struct sw_json *answer = sw_json_get(row, "answer");
        tokens_of(row, &t);
        assert_int_equal(t.n_windows, windows->n_children);
        for (int64_t i = 0; i < t.n_windows; i++, w = w->next) {
            int64_t first, n, a = 0, b = 0;
            bool there = false;
            sw_window_at(t.ids.len, t.room, t.stride, i, &first, &n);
            same_window(&t, first, n, w);
            if (answer && answer->type == SW_JSON_OBJECT) {
                const struct sw_json *text = sw_json_get(answer, "text");
                const int64_t begin = sw_json_get(answer, "start")->integer;
                const int64_t end = begin + sw_utf8_count(text->string, text->string_len);
                there = sw_answer_find(&t.context, first, n, (int32_t)begin, (int32_t)end, &a, &b);
            }
            const int64_t at = t.question.len + 2 - first;
            assert_int_equal(there ? at + a : 0, sw_json_get(w, "start")->integer);
            assert_int_equal(there ? at + b : 0, sw_json_get(w, "end")->integer);
        }
        tokens_fini(&t);
    }
}

static int64_t floats(const struct sw_json *list, float *out)
{
    int64_t n = 0;
    for (const struct sw_json *v = list->first; v; v = v->next) {
        assert_true(n < MOST);
        out[n++] = (float)v->number;
    }
    return n;
}

/* The characters [begin, end) of a text. */
static struct sw_str cut(const struct sw_json *text, int32_t begin, int32_t end)
{
    struct sw_str out = {0};
    size_t pos = 0;
    for (int32_t i = 0; i < end; i++) {
        const size_t at = pos;
        sw_utf8_step(text->string, text->string_len, &pos);
        if (i >= begin) {
            sw_str_append(&out, text->string + at, pos - at);
        }
    }
    return out;
}

static void same_best(const struct sw_json *row, const struct sw_answer_best *best,
                      const struct sw_json *wanted)
{
    const struct sw_json *list = sw_json_get(wanted, "n_best"), *one = list->first;
    const struct sw_json *context = sw_json_get(row, "context");
    assert_int_equal(best->n, list->n_children);
    for (int i = 0; i < best->n; i++, one = one->next) {
        struct sw_str text = cut(context, best->of[i].begin, best->of[i].end);
        assert_string_equal(sw_str_text(&text), one->first->string);
        assert_true(best->of[i].start == (float)one->first->next->number);
        assert_true(best->of[i].last == (float)one->first->next->next->number);
        assert_true(fabs(best->of[i].probability - one->last->number) <=
                    1e-5 * one->last->number + 1e-12);
        if (i == best->chosen) {
            assert_string_equal(sw_str_text(&text), sw_json_get(wanted, "text")->string);
        }
        sw_str_fini(&text);
    }
    assert_true(best->chosen >= 0);
}

static void the_best_answers_are_the_recorded_ones(void **state)
{
    (void)state;
    static float starts[MOST_WINDOWS][MOST], ends[MOST_WINDOWS][MOST];
    int n_cases = 0;
    if (!bert || !SW_HAVE_UTF8PROC) {
        skip();
    }
    const struct sw_json *root = sw_json_root(recorded);
    for (const struct sw_json *row = sw_json_get(root, "cases")->first; row; row = row->next) {
        struct tokens t;
        struct sw_window_scores windows[MOST_WINDOWS];
        const struct sw_json *s = sw_json_get(row, "start_logits");
        const struct sw_json *best = sw_json_get(row, "best");
        if (!s) {
            continue;
        }
        tokens_of(row, &t);
        const struct sw_json *e = sw_json_get(row, "end_logits")->first;
        s = s->first;
        for (int i = 0; i < t.n_windows; i++, s = s->next, e = e->next) {
            int64_t first, n;
            sw_window_at(t.ids.len, t.room, t.stride, i, &first, &n);
            windows[i] = (struct sw_window_scores){
                starts[i], ends[i], floats(s, starts[i]), t.question.len + 2, first, n};
            assert_int_equal(floats(e, ends[i]), windows[i].n_row);
        }
        struct sw_answer_rules rules = {.n_best = (int)sw_json_get(root, "n_best")->integer,
                                        .longest = sw_json_get(root, "longest_answer")->integer,
                                        .null_margin = sw_json_get(root, "null_threshold")->number};
        struct sw_answer_best found;
        sw_answer_choose(&t.context, windows, t.n_windows, &rules, &found);
        same_best(row, &found, best);
        rules.may_be_none = true;
        sw_answer_choose(&t.context, windows, t.n_windows, &rules, &found);
        const struct sw_json *none = sw_json_get(best, "or_none");
        same_best(row, &found, none);
        assert_true(fabs(found.null_excess - sw_json_get(none, "score_difference")->number) < 1e-5);
        tokens_fini(&t);
        n_cases++;
    }
    assert_true(n_cases > 0);
}

static void neighbours_share_the_stride_and_the_last_window_reaches_the_end(void **state)
{
    (void)state;
    for (int64_t n = 0; n < 60; n++) {
        const int64_t count = sw_window_count(n, 10, 4);
        int64_t first, len, end = 0;
        for (int64_t i = 0; i < count; i++) {
            sw_window_at(n, 10, 4, i, &first, &len);
            assert_int_equal(first, i == 0 ? 0 : end - 4);
            assert_true(i + 1 < count ? len == 10 && first + len < n : first + len == n);
            end = first + len;
        }
    }
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(windows_and_labels_are_the_recorded_ones),
    cmocka_unit_test(the_best_answers_are_the_recorded_ones),
    cmocka_unit_test(neighbours_share_the_stride_and_the_last_window_reaches_the_end),
};

const struct test_program sw_tests = {TEST_TABLE(tests), .setup = open_recorded,
                                      .teardown = close_recorded};
