// SPDX-License-Identifier: Apache-2.0
// COST 3
// Training on folders of pictures, one per class. It learns, with the same bits on any number of
// ranks and after a resume. The model takes the folders' classes. Changed pictures and other
// classes are detected.
#include <math.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/base.h"
#include "json/json.h"
#include "spillway/data.h"
#include "spillway/train.h"
#include "support/fixtures.h"
#include "support/pictures.h"
#include "support/scratch.h"
#include "support/test.h"

/* Writes n pictures of a class, near one colour, in several sizes. */
static void put_class(const char *name, const uint8_t colour[3], int n)
{
    assert_int_equal(sw_mkdirs(test_at(name)), SW_OK);
    for (int i = 0; i < n; i++) {
        char path[160];
        snprintf(path, sizeof path, "%s/%02d.png", test_at(name), i);
        assert_true(test_picture_write(path, (uint32_t)(9 + i % 7), (uint32_t)(12 + i % 5), colour,
                                       (uint32_t)i));
    }
}

static const uint8_t red[3] = {200, 60, 60}, green[3] = {60, 200, 60}, blue[3] = {60, 60, 200};

static int make_folder(void **state)
{
    (void)state;
    test_put("vit.json", "{\"model_type\": \"vit\", \"architectures\": "
                         "[\"ViTForImageClassification\"], \"image_size\": 8, \"patch_size\": 4, "
                         "\"hidden_size\": 16, \"num_hidden_layers\": 1, "
                         "\"num_attention_heads\": 2, \"intermediate_size\": 32}");
    put_class("pictures/red", red, 20);
    put_class("pictures/green", green, 20);
    put_class("pictures/blue", blue, 20);
    return 0;
}

enum { N_SETS = 3 };

static const char *const *sets_of(int64_t ranks)
{
    static const char *const sets[2][N_SETS] = {
        {"train_micro_batch_size_per_gpu=6", "gradient_accumulation_steps=2",
         "optimizer={\"type\": \"AdamW\", \"params\": {\"lr\": 0.01}}"},
        {"train_micro_batch_size_per_gpu=6", "gradient_accumulation_steps=1",
         "optimizer={\"type\": \"AdamW\", \"params\": {\"lr\": 0.01}}"}};
    return sets[ranks == 2];
}

static sw_status train(const char *model, const char *data, const char *out,
                       struct sw_train_options o, struct sw_train_result *result)
{
    bool started;
    const char *files = test_at(data);
    FILE *quiet = fopen("/dev/null", "w");
    o.model = test_at(model);
    o.data = &files;
    o.n_data = 1;
    o.output = test_at(out);
    o.export_dtype = -1;
    o.quiet = true;
    o.sets = sets_of(o.ranks);
    o.n_sets = N_SETS;
    const sw_status st = sw_train(&o, quiet, &started, result);
    fclose(quiet);
    return st;
}

static void must_train(const char *model, const char *data, const char *out,
                       struct sw_train_options o, struct sw_train_result *result)
{
    if (train(model, data, out, o, result) < 0) {
        fail_msg("%s", sw_error_message());
    }
}

static void refuse(const char *model, const char *data, const char *out, struct sw_train_options o,
                   const char *why)
{
    struct sw_train_result result;
    const sw_status st = train(model, data, out, o, &result);
    if (st >= 0 || !strstr(sw_error_message(), why)) {
        fail_msg("\"%s\" without \"%s\"", st < 0 ? sw_error_message() : "", why);
    }
}

static void same_file(const char *a, const char *b)
{
    test_same_file(test_at(a), test_at(b));
}

/* Checks the classes in a model's config.json, in order. */
static void expect_classes(const char *model, const char *const *names, int n)
{
    struct sw_json_doc *doc;
    char path[160];
    snprintf(path, sizeof path, "%s/config.json", test_at(model));
    assert_int_equal(sw_json_read(path, SW_JSON_STRICT, &doc), SW_OK);
    const struct sw_json *list = sw_json_get(sw_json_root(doc), "id2label");
    assert_int_equal(list->n_children, n);
    for (int i = 0; i < n; i++) {
        snprintf(path, sizeof path, "%d", i);
        assert_string_equal(sw_json_get(list, path)->string, names[i]);
    }
    sw_json_close(doc);
}

static sw_status eval(const char *model, const char *data, double *accuracy)
{
    char *text = NULL;
    size_t len = 0;
    bool started;
    const char *files = test_at(data);
    FILE *out = open_memstream(&text, &len);
    const struct sw_eval_options o = {
        .model = test_at(model), .data = &files, .n_data = 1, .batch = 4, .json = true};
    const sw_status st = sw_eval(&o, out, &started);
    fclose(out);
    const char *found = st < 0 ? NULL : strstr(text, "\"accuracy\":");
    *accuracy = found ? strtod(found + 11, NULL) : NAN;
    free(text);
    return st;
}

static void a_model_learns_classes_of_pictures(void **state)
{
    (void)state;
    static const char *const names[] = {"blue", "green", "red"};
    struct sw_train_result one, two;
    double accuracy;
    struct sw_train_options o = {.steps = 20, .eval_every = 10};
    must_train("vit.json", "pictures", "one", o, &one);
    o.ranks = 2;
    must_train("vit.json", "pictures/", "two", o, &two);
    assert_true(one.loss < 0.3 && one.loss == two.loss && one.val_loss == two.val_loss);
    same_file("one/model/model.safetensors", "two/model/model.safetensors");
    expect_classes("one/model", names, 3);
    assert_int_equal(eval("one/model", "pictures", &accuracy), SW_OK);
    assert_true(accuracy == 1);
}

/* Evaluation accepts a subset of the model's classes and keeps the model's order. It refuses a
 * class that the model lacks. */
static void eval_goes_by_the_names_of_classes(void **state)
{
    (void)state;
    double accuracy;
    put_class("two-of/green", green, 5);
    put_class("two-of/red", red, 5);
    assert_int_equal(eval("one/model", "two-of", &accuracy), SW_OK);
    assert_true(accuracy == 1);
    put_class("others/red", red, 2);
    put_class("others/pink", red, 2);
    assert_int_equal(eval("one/model", "others", &accuracy), SW_E_FORMAT);
    assert_non_null(strstr(sw_error_message(), "others/pink: the class \"pink\" is not one of the "
                                               "model's 3 (\"blue\", ..)"));
}

/* Training on other classes keeps the trunk and makes a new head with the folder's classes. */
static void other_classes_make_a_new_head(void **state)
{
    (void)state;
    static const char *const names[] = {"pink", "red"};
    struct sw_train_result result;
    double accuracy;
    test_put("one/model/preprocessor_config.json",
             "{\"image_processor_type\": \"ViTImageProcessor\", \"size\": {\"height\": 8, "
             "\"width\": 8}, \"resample\": 3}");
    must_train("one/model", "others", "new", (struct sw_train_options){.steps = 1}, &result);
    expect_classes("new/model", names, 2);
    same_file("one/model/preprocessor_config.json", "new/model/preprocessor_config.json");
    assert_int_equal(eval("new/model", "others", &accuracy), SW_OK);
    must_train("one/model", "two-of", "same", (struct sw_train_options){.steps = 1}, &result);
    expect_classes("same/model", (const char *const[]){"blue", "green", "red"}, 3);
}

/* A folder with only the trunk, as published for fine-tuning, gets a new head. */
static void a_trunk_gets_a_head(void **state)
{
    (void)state;
    struct sw_train_result result;
    size_t len;
    char *config;
    assert_int_equal(sw_file_read(test_at("one/model/config.json"), &config, &len), SW_OK);
    char *name = strstr(config, "ViTForImageClassification");
    assert_non_null(name);
    memcpy(name, "ViTModel\"                 ", 26); /* including the closing quote */
    assert_int_equal(sw_mkdirs(test_at("trunk")), SW_OK);
    test_put("trunk/config.json", config);
    sw_free(config);
    assert_int_equal(
        sw_file_copy(test_at("one/model/model.safetensors"), test_at("trunk/model.safetensors")),
        SW_OK);
    must_train("trunk", "others", "headed", (struct sw_train_options){.steps = 1}, &result);
    expect_classes("headed/model", (const char *const[]){"pink", "red"}, 2);
}

static void a_run_goes_on_with_the_same_pictures_alone(void **state)
{
    (void)state;
    struct sw_train_result whole, half, rest;
    size_t len;
    char *bytes;
    const char *picture = "pictures/green/07.png";
    must_train("vit.json", "pictures", "whole", (struct sw_train_options){.steps = 6}, &whole);
    must_train("vit.json", "pictures", "half", (struct sw_train_options){.steps = 3}, &half);
    struct sw_train_options o = {.steps = 6, .resume = true};
    assert_int_equal(sw_file_read(test_at(picture), &bytes, &len), SW_OK);
    bytes[len] = 'x'; /* replaces the NUL that follows: same pixels, another file */
    assert_int_equal(sw_file_write_atomic(test_at(picture), bytes, len + 1), SW_OK);
    refuse("vit.json", "pictures", "half", o, "it was trained on other data: data green (");
    assert_int_equal(sw_file_write_atomic(test_at(picture), bytes, len), SW_OK);
    o.ranks = 2;
    must_train("vit.json", "pictures", "half", o, &rest);
    assert_true(whole.loss == rest.loss);
    same_file("whole/model/model.safetensors", "half/model/model.safetensors");
    assert_int_equal(sw_file_write_atomic(test_at(picture), bytes, len / 2), SW_OK); /* truncated */
    refuse("vit.json", "pictures", "cut", (struct sw_train_options){.steps = 20},
           "pictures/green/07.png: a damaged PNG: the file is cut short");
    assert_int_equal(sw_file_write_atomic(test_at(picture), bytes, 12), SW_OK);
    refuse("vit.json", "pictures", "head", (struct sw_train_options){.steps = 20},
           "pictures/green/07.png: it ends at byte 12, within its header");
    assert_int_equal(sw_file_write_atomic(test_at(picture), bytes, len), SW_OK);
    sw_free(bytes);
}

static void one_class_is_refused(void **state)
{
    (void)state;
    put_class("single/red", red, 3);
    refuse("vit.json", "single", "never", (struct sw_train_options){.steps = 1},
           "single: all labels are the class red; wanted two or more");
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(a_model_learns_classes_of_pictures),
    cmocka_unit_test(eval_goes_by_the_names_of_classes),
    cmocka_unit_test(other_classes_make_a_new_head),
    cmocka_unit_test(a_trunk_gets_a_head),
    cmocka_unit_test(a_run_goes_on_with_the_same_pictures_alone),
    cmocka_unit_test(one_class_is_refused),
};

const struct test_program sw_tests = {TEST_TABLE(tests), .setup = make_folder,
                                      .left_out = SW_HAVE_PNG ? NULL : "built without libpng"};
