// SPDX-License-Identifier: Apache-2.0
// Metrics against recordings of other programs, or against values computed by hand.
#include "data/metrics.h"

#include <math.h>

#include "json/json.h"
#include "support/files.h"
#include "support/test.h"

enum { MOST = 1024 };

static struct sw_json_doc *recorded(void)
{
    struct sw_json_doc *doc = NULL;
    struct sw_str path = {0};
    const char *root = sw_test_fixtures();
    if (root) {
        sw_str_printf(&path, "%s/metrics/metrics.json", root);
        if (sw_json_read(path.ptr, SW_JSON_STRICT, &doc) < 0) {
            print_message("skipped: %s\n", sw_error_message());
        }
    }
    sw_str_fini(&path);
    if (!doc) {
        skip();
    }
    return doc;
}

static void near(double found, const struct sw_json *of, const char *key)
{
    const struct sw_json *wanted = sw_json_get(of, key);
    if (wanted && wanted->type == SW_JSON_NULL) {
        assert_true(isnan(found));
    } else if (wanted) {
        const double scale = fmax(1, fabs(wanted->number));
        if (!(fabs(found - wanted->number) <= 1e-9 * scale)) {
            const struct sw_json *name = sw_json_get(of, "name");
            fail_msg("%s: %s is %.17g, wanted %.17g", name ? name->string : "", key, found,
                     wanted->number);
        }
    }
}

static int numbers(const struct sw_json *row, const char *key, double out[MOST])
{
    int n = 0;
    for (const struct sw_json *v = sw_json_get(row, key)->first; v; v = v->next) {
        assert_true(n < MOST);
        out[n++] = v->number;
    }
    return n;
}

static void classes_are_counted_as_recorded(void **state)
{
    (void)state;
    static double predicted[MOST], wanted[MOST];
    struct sw_json_doc *doc = recorded();
    for (const struct sw_json *row = sw_json_get(sw_json_root(doc), "classes")->first; row;
         row = row->next) {
        struct sw_confusion confusion;
        const int n = numbers(row, "predictions", predicted);
        assert_int_equal(numbers(row, "labels", wanted), n);
        assert_int_equal(sw_confusion_init(&confusion, 8), SW_OK);
        for (int i = 0; i < n; i++) {
            sw_confusion_add(&confusion, (int32_t)predicted[i], (int32_t)wanted[i]);
        }
        near(sw_confusion_accuracy(&confusion), row, "accuracy");
        near(sw_confusion_macro_f1(&confusion), row, "macro_f1");
        near(sw_confusion_matthews(&confusion), row, "matthews");
        near(sw_confusion_f1(&confusion, 1), row, "f1");
        sw_confusion_fini(&confusion);
    }
    sw_json_close(doc);
}

static void numbers_are_correlated_as_recorded(void **state)
{
    (void)state;
    static double predicted[MOST], wanted[MOST];
    struct sw_json_doc *doc = recorded();
    for (const struct sw_json *row = sw_json_get(sw_json_root(doc), "values")->first; row;
         row = row->next) {
        struct sw_moments moments = {0};
        const int n = numbers(row, "predictions", predicted);
        assert_int_equal(numbers(row, "labels", wanted), n);
        for (int i = 0; i < n; i++) {
            sw_moments_add(&moments, predicted[i], wanted[i]);
        }
        near(sw_moments_pearson(&moments), row, "pearson");
        near(sw_moments_mse(&moments), row, "mse");
    }
    for (const struct sw_json *row = sw_json_get(sw_json_root(doc), "perplexity")->first; row;
         row = row->next) {
        double sum = 0, count = 0;
        const int n = numbers(row, "loss_sums", predicted);
        numbers(row, "counts", wanted);
        for (int i = 0; i < n; i++) {
            sum += predicted[i];
            count += wanted[i];
        }
        near(sw_perplexity(sum, count), row, "perplexity");
    }
    sw_json_close(doc);
}

/* Values that differ in their last digits alone are as correlated as their differences. */
static void a_large_offset_does_not_blur_a_correlation(void **state)
{
    (void)state;
    struct sw_moments moments = {0};
    const double values[] = {1, 4, 2, 9, 5};
    for (int i = 0; i < 5; i++) {
        sw_moments_add(&moments, 0x1p30 + values[i] * 0x1p-20, i);
    }
    assert_true(fabs(sw_moments_pearson(&moments) - 13 / sqrt(38.8 * 10)) < 1e-14);
}

static struct sw_answer_text text_of(const struct sw_json *string)
{
    return (struct sw_answer_text){string->string, string->string_len};
}

static void answers_are_compared_as_recorded(void **state)
{
    (void)state;
    struct sw_json_doc *doc = recorded();
    struct sw_answer_scores all = {0};
    if (!SW_HAVE_UTF8PROC) {
        sw_json_close(doc);
        skip();
    }
    for (const struct sw_json *row = sw_json_get(sw_json_root(doc), "answers")->first; row;
         row = row->next) {
        struct sw_answer_text wanted[8];
        struct sw_answer_scores one = {0};
        struct sw_str normalised = {0};
        int n = 0;
        const struct sw_answer_text predicted = text_of(sw_json_get(row, "prediction"));
        for (const struct sw_json *a = sw_json_get(row, "answers")->first; a; a = a->next) {
            wanted[n++] = text_of(a);
        }
        assert_int_equal(sw_answer_normalise(predicted.text, predicted.len, &normalised), SW_OK);
        assert_string_equal(sw_str_text(&normalised), sw_json_get(row, "normalised")->string);
        assert_int_equal(sw_answer_scores_add(&one, predicted, wanted, n), SW_OK);
        assert_int_equal(sw_answer_scores_add(&all, predicted, wanted, n), SW_OK);
        near(one.exact, row, "exact");
        near(one.f1, row, "f1");
        sw_str_fini(&normalised);
    }
    const struct sw_json *total = sw_json_get(sw_json_root(doc), "answers_total");
    near(100 * all.exact / (double)all.n, total, "exact");
    near(100 * all.f1 / (double)all.n, total, "f1");
    sw_json_close(doc);
}

/* A capital sigma after any cased letter is final, whether that letter has a mapping or not. */
static void a_final_sigma_stands_behind_cased_letters(void **state)
{
    (void)state;
    static const struct {
        const char *text, *normalised;
    } of[] = {{"\xEF\xAC\x81\xCE\xA3", "\xEF\xAC\x81\xCF\x82"},             /* fi as one letter */
              {"\xC2\xAA\xCE\xA3", "\xC2\xAA\xCF\x82"},                     /* ordinal a */
              {"\xF0\x9D\x90\x80\xCE\xA3", "\xF0\x9D\x90\x80\xCF\x82"},     /* bold A */
              {"\xF0\x9F\x84\xB0\xCE\xA3 b", "\xF0\x9F\x84\xB0\xCF\x82 b"}, /* squared A */
              {"\xE4\xB8\xAD\xCE\xA3", "\xE4\xB8\xAD\xCF\x83"}};            /* no case */
    for (size_t i = 0; i < SW_LEN(of) && SW_HAVE_UTF8PROC; i++) {
        struct sw_str out = {0};
        assert_int_equal(sw_answer_normalise(of[i].text, strlen(of[i].text), &out), SW_OK);
        assert_string_equal(sw_str_text(&out), of[i].normalised);
        sw_str_fini(&out);
    }
}

static int tags(const struct sw_json *row, const char **out)
{
    int n = 0;
    for (const struct sw_json *tag = row->first; tag; tag = tag->next) {
        assert_true(n < MOST);
        out[n++] = tag->string;
    }
    return n;
}

static void near_score(struct sw_span_score score, const struct sw_json *row)
{
    near(score.precision, row, "precision");
    near(score.recall, row, "recall");
    near(score.f1, row, "f1");
}

static void entities_are_counted_as_recorded(void **state)
{
    (void)state;
    static const char *predicted[MOST], *wanted[MOST];
    struct sw_json_doc *doc = recorded();
    for (const struct sw_json *row = sw_json_get(sw_json_root(doc), "entities")->first; row;
         row = row->next) {
        struct sw_entities entities = {0};
        const struct sw_json *labels = sw_json_get(row, "labels")->first;
        for (const struct sw_json *p = sw_json_get(row, "predictions")->first; p;
             p = p->next, labels = labels->next) {
            const int n = tags(p, predicted);
            assert_int_equal(tags(labels, wanted), n);
            assert_int_equal(sw_entities_add(&entities, predicted, wanted, n), SW_OK);
        }
        near_score(sw_entities_score(&entities), row);
        near(sw_entities_accuracy(&entities), row, "accuracy");
        const struct sw_json *types = sw_json_get(row, "types");
        assert_int_equal(entities.n_types, types->n_children);
        for (int i = 0; i < entities.n_types; i++) {
            const struct sw_json *type = sw_json_get(types, entities.types[i].name);
            assert_non_null(type);
            near_score(sw_entity_type_score(&entities.types[i]), type);
            assert_int_equal(entities.types[i].n_wanted, sw_json_get(type, "number")->integer);
        }
        sw_entities_fini(&entities);
    }
    sw_json_close(doc);
}

static void count_rows(const char *const *predicted, const char *const *wanted, int n,
                       const int64_t counts[3])
{
    struct sw_entities entities = {0};
    assert_int_equal(sw_entities_add(&entities, predicted, wanted, n), SW_OK);
    assert_int_equal(entities.n_types, 1);
    assert_int_equal(entities.types[0].n_predicted, counts[0]);
    assert_int_equal(entities.types[0].n_wanted, counts[1]);
    assert_int_equal(entities.types[0].n_both, counts[2]);
    sw_entities_fini(&entities);
}

/* Schemes with ends (E) and entities of one tag (S), counted as seqeval 1.2 does. */
static void ends_and_single_tags_are_of_entities(void **state)
{
    (void)state;
    const char *const single[] = {"S-X", "S-X", "O", "B-X", "I-X", "E-X", "E-X"};
    const char *const inside[] = {"I-X", "I-X", "O", "B-X", "E-X", "I-X", "E-X"};
    const char *const last[] = {"B-X", "L-X", "U-X", "O", "S-X", "E-X", "O"};
    const char *const bare[] = {"B", "I", "O", "S", "I", "E", "X"};
    count_rows(single, single, 7, (const int64_t[]){4, 4, 4});
    count_rows(inside, single, 7, (const int64_t[]){3, 4, 0});
    count_rows(last, single, 7, (const int64_t[]){3, 4, 0});
    count_rows(bare, bare, 7, (const int64_t[]){3, 3, 3});
}

/* Marks of no scheme, without a type: as seqeval 1.2 counts them, which goes through all rows as
 * one list. Predicted are _ at 0 to 0 and 0 to 2, A at 3; wanted _ at 1 to 1 and 1 to 2, A at 3. */
static void marks_of_no_scheme_go_on_with_the_last_entity(void **state)
{
    (void)state;
    const char *const predicted[] = {"B", "O"}, *const wanted[] = {"O", "B"};
    const char *const both[] = {"X", "B-A"};
    struct sw_entities entities = {0};
    assert_int_equal(sw_entities_add(&entities, predicted, wanted, 2), SW_OK);
    assert_int_equal(sw_entities_add(&entities, both, both, 2), SW_OK);
    assert_int_equal(entities.n_types, 2);
    for (int i = 0; i < 2; i++) {
        const struct sw_entity_type *type = &entities.types[i];
        const bool untyped = strcmp(type->name, "_") == 0;
        assert_int_equal(type->n_predicted, untyped ? 2 : 1);
        assert_int_equal(type->n_wanted, untyped ? 2 : 1);
        assert_int_equal(type->n_both, untyped ? 0 : 1);
    }
    sw_entities_fini(&entities);
}

static void labels_of_a_row_are_right_together_or_not(void **state)
{
    (void)state;
    const bool a[] = {true, false, true}, b[] = {true, true, true}, none[] = {false, false, false};
    struct sw_label_bits bits = {0};
    assert_true(isnan(sw_label_bits_f1(&bits)) && isnan(sw_label_bits_accuracy(&bits)));
    sw_label_bits_add(&bits, a, b, 3);
    sw_label_bits_add(&bits, none, none, 3);
    assert_true(sw_label_bits_accuracy(&bits) == 0.5);
    assert_true(fabs(sw_label_bits_f1(&bits) - 2.0 * 2 / (2 + 3)) < 1e-15);
}

static void nothing_has_no_metric(void **state)
{
    (void)state;
    struct sw_confusion confusion;
    const struct sw_moments moments = {0};
    const struct sw_entities entities = {0};
    assert_int_equal(sw_confusion_init(&confusion, 3), SW_OK);
    assert_true(isnan(sw_confusion_accuracy(&confusion)));
    assert_true(isnan(sw_confusion_macro_f1(&confusion)));
    assert_true(isnan(sw_confusion_matthews(&confusion)));
    assert_true(isnan(sw_moments_pearson(&moments)) && isnan(sw_perplexity(0, 0)));
    assert_true(isnan(sw_entities_accuracy(&entities)));
    sw_confusion_fini(&confusion);
}

/* Naive methods would take 8 TiB (pairs of classes), 2^33 comparisons (linear search of types), or
 * 2^33 letters (a scan back from each sigma). */
static void many_classes_types_and_letters_cost_little(void **state)
{
    (void)state;
    enum { N = 1 << 17, N_CLASSES = 1 << 20 };
    struct sw_confusion confusion;
    assert_int_equal(sw_confusion_init(&confusion, N_CLASSES), SW_OK);
    sw_confusion_add(&confusion, N_CLASSES - 1, N_CLASSES - 1);
    sw_confusion_add(&confusion, 7, N_CLASSES - 1);
    assert_true(sw_confusion_accuracy(&confusion) == 0.5);
    assert_true(fabs(sw_confusion_f1(&confusion, N_CLASSES - 1) - 2.0 / 3) < 1e-15);
    sw_confusion_fini(&confusion);

    struct sw_entities entities = {0};
    char(*text)[16] = calloc(N, sizeof *text);
    const char **tags = calloc(N, sizeof *tags);
    for (int i = 0; i < N; i++) {
        snprintf(text[i], sizeof text[i], "B-%d", i);
        tags[i] = text[i];
    }
    assert_int_equal(sw_entities_add(&entities, tags, tags, N), SW_OK);
    assert_int_equal(entities.n_types, N);
    assert_true(sw_entities_score(&entities).f1 == 1);
    sw_entities_fini(&entities);
    free(tags);
    free(text);

    struct sw_str sigmas = {0}, normal = {0};
    for (int i = 0; i < N; i++) {
        sw_str_puts(&sigmas, "\xCE\xA3");
    }
    if (SW_HAVE_UTF8PROC) {
        assert_int_equal(sw_answer_normalise(sigmas.ptr, sigmas.len, &normal), SW_OK);
        assert_int_equal(normal.len, sigmas.len);
        assert_string_equal(normal.ptr + normal.len - 4, "\xCF\x83\xCF\x82");
    }
    sw_str_fini(&sigmas);
    sw_str_fini(&normal);
}

/* A request that fails leaves counts that can be closed. */
static void lack_of_memory_is_said(void **state)
{
    (void)state;
    const char *const row[] = {"B-PER", "I-PER", "B-LOC"};
    const struct sw_answer_text the_end = {"the end", 7};
    for (int64_t nth = 1; nth <= 3; nth++) {
        struct sw_entities entities = {0};
        struct sw_answer_scores scores = {0};
        sw_alloc_fail_nth(nth);
        assert_int_equal(sw_entities_add(&entities, row, row, 3), SW_E_NOMEM);
        sw_alloc_fail_nth(nth);
        assert_int_equal(sw_answer_scores_add(&scores, the_end, &the_end, 1), SW_E_NOMEM);
        assert_int_equal(scores.n, 0);
        sw_alloc_fail_nth(0);
        sw_entities_fini(&entities);
    }
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(classes_are_counted_as_recorded),
    cmocka_unit_test(numbers_are_correlated_as_recorded),
    cmocka_unit_test(a_large_offset_does_not_blur_a_correlation),
    cmocka_unit_test(answers_are_compared_as_recorded),
    cmocka_unit_test(a_final_sigma_stands_behind_cased_letters),
    cmocka_unit_test(entities_are_counted_as_recorded),
    cmocka_unit_test(ends_and_single_tags_are_of_entities),
    cmocka_unit_test(marks_of_no_scheme_go_on_with_the_last_entity),
    cmocka_unit_test(labels_of_a_row_are_right_together_or_not),
    cmocka_unit_test(nothing_has_no_metric),
    cmocka_unit_test(many_classes_types_and_letters_cost_little),
    cmocka_unit_test(lack_of_memory_is_said),
};

const struct test_program sw_tests = {TEST_TABLE(tests)};
