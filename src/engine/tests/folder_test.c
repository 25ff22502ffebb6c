// SPDX-License-Identifier: Apache-2.0
// Models survive reading and writing a folder: each tensor is written with the same bytes, name and
// dtype. The tests cover all recorded models of all families.
#include <string.h>

#include "engine/private.h"
#include "support/fixtures.h"
#include "support/test.h"

enum { MOST = 64 };

static char out[] = "/tmp/spillway-folder-XXXXXX";

static const struct sw_safetensor *find(const struct sw_hf_folder *folder,
                                        const struct sw_safetensor *tensor)
{
    return sw_hf_folder_find(folder, tensor->name);
}

static bool is_same(const struct sw_safetensor *a, const struct sw_safetensor *b)
{
    return b && a->dtype == b->dtype && sw_shape_equal(&a->shape, &b->shape) &&
           memcmp(a->data, b->data, a->bytes) == 0;
}

/* True if the recording says that the model's class does not use the tensor. */
static bool is_unused(const char *from, const char *name)
{
    struct sw_json_doc *doc = NULL;
    char path[TEST_PATH_CAP];
    bool found = false;
    test_join(path, from, "reference.json");
    assert_int_equal(sw_json_read(path, SW_JSON_STRICT, &doc), SW_OK);
    const struct sw_json *list = sw_json_get(sw_json_root(doc), "unused_tensors");
    for (const struct sw_json *i = list ? list->first : NULL; i; i = i->next) {
        found |= strcmp(i->string, name) == 0;
    }
    sw_json_close(doc);
    return found;
}

/* Checks that every used tensor is written, and no other. */
static int compare(const sw_engine *e, const char *from)
{
    struct sw_hf_folder *old = NULL, *made = NULL;
    int n_same = 0;
    assert_int_equal(sw_hf_folder_open(from, &old), SW_OK);
    assert_int_equal(sw_hf_folder_open(out, &made), SW_OK);
    for (int64_t i = 0; i < sw_hf_folder_count(old); i++) {
        const struct sw_safetensor *tensor = sw_hf_folder_at(old, i);
        if (e->weights.model->ops->ignores(e->weights.model, tensor->name) ||
            is_unused(from, tensor->name)) {
            assert_null(find(made, tensor));
        } else if (!is_same(tensor, find(made, tensor))) {
            fail_msg("%s: %s is not what it was", from, tensor->name);
        } else {
            n_same++;
        }
    }
    for (int64_t i = 0; i < sw_hf_folder_count(made); i++) {
        assert_non_null(find(old, sw_hf_folder_at(made, i)));
    }
    sw_hf_folder_close(old);
    sw_hf_folder_close(made);
    return n_same;
}

static void copy(const char *from)
{
    char command[256];
    sw_engine *e = NULL;
    snprintf(command, sizeof command, "rm -rf %s/*", out);
    assert_int_equal(system(command), 0);
    const struct sw_task *task;
    assert_int_equal(sw_weights_find_task(from, NULL, 0, &task), SW_OK);
    const struct sw_engine_options options = {
        .config.text = "{\"train_micro_batch_size_per_gpu\": 1}",
        .model.path = from,
        .inputs.seq_len = task->rows == SW_ROWS_IMAGES ? 0 : 4,
        .train.wanted = true,
    };
    if (sw_initialize(&options, &e) < 0) {
        fail_msg("%s: %s", from, sw_error_message());
    }
    assert_int_equal(sw_export(e, out, SW_DTYPE_COUNT), SW_OK);
    assert_true(compare(e, from) > 0);
    sw_close(e);
}

static int copy_all(const char *area)
{
    static char names[MOST][TEST_NAME_CAP];
    const int n = test_list(area, "", names, MOST);
    int n_copied = 0;
    for (int i = 0; i < n; i++) {
        char path[TEST_PATH_CAP], config[TEST_PATH_CAP];
        test_join(path, area, names[i]);
        test_join(config, path, "config.json");
        if (test_exists(config)) {
            copy(path);
            n_copied++;
        }
    }
    return n_copied;
}

static void our_models_come_out_as_they_went_in(void **state)
{
    (void)state;
    assert_true(copy_all("tests/cases") >= 5);
}

static void recorded_models_come_out_as_they_went_in(void **state)
{
    static const char *const areas[] = {
        "gpt2",       "llama",    "mistral",    "qwen2", "qwen3",      "gemma2",      "gemma3_text",
        "gpt_neox",   "opt",      "phi",        "phi3",  "bloom",      "smollm3",     "olmo2",
        "granite",    "stablelm", "starcoder2", "bert",  "roberta",    "xlm-roberta", "distilbert",
        "deberta-v2", "electra",  "albert",     "mpnet", "modernbert", "bart",        "mbart",
        "t5",         "mt5",      "vision",     "deit",  "dinov2",     "rnn"};
    char folder[TEST_PATH_CAP];
    (void)state;
    for (size_t i = 0; i < SW_LEN(areas); i++) {
        if (!test_fixture_folder(areas[i], folder)) {
            skip();
        }
        assert_true(copy_all(folder) > 0);
    }
}

/* ---- heads that config.json does not mention ---- */

static sw_engine *open_t5(const char *model)
{
    sw_engine *e = NULL;
    const struct sw_engine_options options = {.config.text =
                                                  "{\"train_micro_batch_size_per_gpu\": 1}",
                                              .model.path = model,
                                              .inputs.seq_len = 4,
                                              .train.wanted = true};
    if (sw_initialize(&options, &e) < 0) {
        fail_msg("%s: %s", model, sw_error_message());
    }
    return e;
}

static void write_t5(const char *file, bool tied)
{
    char text[512];
    snprintf(
        text, sizeof text,
        "{\"model_type\": \"t5\", \"vocab_size\": 11, \"d_model\": 8, \"d_kv\": 4, \"d_ff\": 8, "
        "\"num_layers\": 1, \"num_heads\": 2, \"tie_word_embeddings\": %s}",
        tied ? "true" : "false");
    assert_int_equal(sw_file_write_atomic(file, text, strlen(text)), SW_OK);
}

/* T5 1.0 has one table and a scale; 1.1 has two tables and no scale. The folder here has the tables
 * of one and the configuration of the other. The files decide the number of tables, and the
 * configuration decides the scale, as in transformers. */
static void tables_are_those_of_the_folder(void **state)
{
    char command[256], config[TEST_PATH_CAP], start[TEST_PATH_CAP];
    (void)state;
    test_join(config, out, "config.json");
    test_join(start, out, "t5.json");
    for (int tied = 0; tied < 2; tied++) {
        snprintf(command, sizeof command, "rm -rf %s/*", out);
        assert_int_equal(system(command), 0);
        write_t5(start, tied);
        sw_engine *e = open_t5(start);
        assert_int_equal(sw_export(e, out, SW_DTYPE_COUNT), SW_OK);
        assert_int_equal(e->weights.model->scales_head, tied);
        sw_close(e);
        write_t5(config, !tied);
        e = open_t5(out);
        assert_int_equal(e->weights.model->tied, tied);
        assert_int_equal(e->weights.model->scales_head, !tied);
        sw_close(e);
    }
}

static int set_up(void **state)
{
    (void)state;
    return mkdtemp(out) ? 0 : 1;
}

static int tear_down(void **state)
{
    char command[256];
    (void)state;
    snprintf(command, sizeof command, "rm -rf %s", out);
    return system(command);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(our_models_come_out_as_they_went_in),
    cmocka_unit_test(recorded_models_come_out_as_they_went_in),
    cmocka_unit_test(tables_are_those_of_the_folder),
};

const struct test_program sw_tests = {TEST_TABLE(tests), .setup = set_up, .teardown = tear_down};
