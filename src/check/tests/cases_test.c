// SPDX-License-Identifier: Apache-2.0
// TIMEOUT 1200
// COST 20
// `check` passes every case of our own and every recorded case of supported features. It refuses
// unsupported optimizers. It fails on a corrupted recording: a wrong value, a NaN, a tensor of
// another size, an unknown tensor.
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/base.h"
#include "hf/hf.h"
#include "spillway/check.h"
#include "support/fixtures.h"
#include "support/test.h"

static const char own[] = "tests/cases";
static char spoiled[64]; /* a copy of a case */
enum { MAX_CASES = 128 };

/* Runs a case. Shows its output if the verdict is not the expected one. */
static sw_status run_with(const char *path, const struct sw_check_options *options, int *out_failed,
                          char **out_text)
{
    char *text = NULL;
    size_t len = 0;
    FILE *out = open_memstream(&text, &len);
    assert_non_null(out);
    const sw_status st = sw_check_case(path, options, out, out_failed);
    fclose(out);
    *out_text = text; /* allocated by the C library */
    return st;
}

static sw_status run(const char *path, int *out_failed, char **out_text)
{
    static const struct sw_check_options options;
    return run_with(path, &options, out_failed, out_text);
}

static bool passes_with(const char *path, const struct sw_check_options *options)
{
    char *text = NULL;
    int failed = 0;
    const sw_status st = run_with(path, options, &failed, &text);
    if (st < 0 || failed > 0) {
        printf("%s%s\n", text, st < 0 ? sw_error_message() : "");
    }
    free(text);
    return st == SW_OK && failed == 0;
}

static bool passes(const char *path)
{
    static const struct sw_check_options options;
    return passes_with(path, &options);
}

static int check_folder(const char *folder)
{
    static char names[MAX_CASES][TEST_NAME_CAP];
    const int n = test_list(folder, "", names, MAX_CASES);
    int n_cases = 0, n_wrong = 0;
    for (int i = 0; i < n; i++) {
        char path[TEST_PATH_CAP], recording[TEST_PATH_CAP];
        test_join(path, folder, names[i]);
        test_join(recording, path, "reference.safetensors");
        if (test_exists(recording)) {
            const bool passed = passes(path);
            printf("%s: %s\n", path, passed ? "passed" : "FAILED");
            n_wrong += !passed;
            n_cases++;
        }
    }
    assert_int_equal(n_wrong, 0);
    return n_cases;
}

static void own_cases_pass(void **state)
{
    (void)state;
    assert_int_equal(check_folder(own), 28);
}

/* Graphs of ONNX files by both exporters of PyTorch, also on two ranks with everything on disk in
 * tiles. */
static void graphs_of_onnx_files_pass(void **state)
{
    static const char *const sets[] = {
        "zero_optimization={\"stage\": 3, \"offload_param\": {\"device\": \"nvme\", \"nvme_path\": "
        "\"/tmp\"}, \"offload_optimizer\": {\"device\": \"nvme\", \"nvme_path\": \"/tmp\"}}",
        "spillway.tile_bytes=256"};
    const struct sw_check_options spread = {.ranks = 2, .sets = sets, .n_sets = 2};
    (void)state;
    assert_int_equal(check_folder("tests/cases/onnx"), 2);
    assert_true(passes_with("tests/cases/onnx/gpt2", &spread));
}

static void no_options_mean_as_recorded(void **state)
{
    (void)state;
    int failed = 1;
    assert_int_equal(sw_check_case("tests/cases/gpt2_tied", NULL, stdout, &failed), SW_OK);
    assert_int_equal(failed, 0);
}

static void recorded_models_pass(void **state)
{
#ifdef TEST_SANITIZED /* long trainings; gpt2 has short ones */
    static const char *const areas[] = {"gpt2"};
#else
    static const char *const areas[] = {"gpt2", "bert", "roberta", "distilbert", "deberta-v2",
                                        "bart", "t5",   "vision",  "rnn",        "train"};
#endif
    char folder[TEST_PATH_CAP];
    (void)state;
    for (size_t i = 0; i < SW_LEN(areas); i++) {
        if (!test_fixture_folder(areas[i], folder)) {
            skip();
        }
        assert_true(check_folder(folder) > 0);
    }
}

/* If blocks are updated in backward, the rates must be those of the current step. Rows are loaded
 * for ids that are not tokens, and for tiles of tables that the encoder's program lacks. */
static void recorded_models_pass_far_away(void **state)
{
    static const char *const sets[] = {
        "zero_optimization.stage=3", "zero_optimization.stage3_param_persistence_threshold=20",
        "zero_optimization.offload_optimizer={\"device\": \"nvme\", \"nvme_path\": \"/tmp\"}",
        "zero_optimization.offload_param={\"device\": \"nvme\", \"nvme_path\": \"/tmp\"}",
        "spillway.tile_bytes=2048"};
    static const char *const names[] = {"gpt2/train10", "rnn/bi_lstm", "bart/generate",
                                        "t5/generate"};
    const struct sw_check_options options = {.sets = sets, .n_sets = SW_LEN(sets)};
    (void)state;
    for (size_t i = 0; i < SW_LEN(names); i++) {
        char path[TEST_PATH_CAP];
        if (!test_fixture_folder(names[i], path)) {
            skip();
        }
        assert_true(passes_with(path, &options));
    }
}

/* PEFT's recordings on supported models. */
static void recorded_adapters_pass(void **state)
{
    static const char *const names[] = {"gpt2_conv1d",   "llama_gqa",        "qwen2_rslora",
                                        "llama_lm_head", "llama_embed_tied", "bert_classify"};
    char folder[TEST_PATH_CAP], path[TEST_PATH_CAP];
    (void)state;
    if (!test_fixture_folder("lora", folder)) {
        skip();
    }
    for (size_t i = 0; i < SW_LEN(names); i++) {
        test_join(path, folder, names[i]);
        assert_true(passes(path));
    }
}

/* Recorded on two ranks with four micro-batches each. On three ranks one rank is idle in the last
 * round. */
static void recorded_ranks_pass_vertically(void **state)
{
    static const char *const sets[] = {"spillway.schedule=vertical"};
    const struct sw_check_options options = {.ranks = 3, .sets = sets, .n_sets = 1};
    char folder[TEST_PATH_CAP], path[TEST_PATH_CAP];
    (void)state;
    if (!test_fixture_folder("zero", folder)) {
        skip();
    }
    test_join(path, folder, "w2_acc4_bf16");
    assert_true(passes_with(path, &options));
}

static void own_optimizers_pass(void **state)
{
    char folder[TEST_PATH_CAP];
    (void)state;
    test_join(folder, own, "optimizers");
    assert_int_equal(check_folder(folder), 5);
    test_join(folder, own, "optimizers_8bit");
    assert_int_equal(check_folder(folder), 2);
}

/* True if the optimizer in the trace's reference.json is supported. */
static bool is_built(const char *path)
{
    static const char *const built[] = {"Adam", "AdamW", "SGD", "Lamb", "Adagrad", "Lion", "Muon"};
    char file[TEST_PATH_CAP];
    struct sw_json_doc *doc = NULL;
    bool found = false;
    test_join(file, path, "reference.json");
    assert_int_equal(sw_json_read(file, SW_JSON_STRICT, &doc), SW_OK);
    const struct sw_json *type = sw_json_path(sw_json_root(doc), "optimizer.type");
    assert_non_null(type);
    for (size_t i = 0; i < SW_LEN(built); i++) {
        found |= strcmp(type->string, built[i]) == 0;
    }
    sw_json_close(doc);
    return found;
}

static void recorded_optimizers_pass_or_are_refused_by_name(void **state)
{
    static char names[MAX_CASES][TEST_NAME_CAP];
    char folder[TEST_PATH_CAP];
    (void)state;
    if (!test_fixture_folder("optimizers", folder)) {
        skip();
    }
    const int n = test_list(folder, "", names, MAX_CASES);
    int n_passed = 0;
    for (int i = 0; i < n; i++) {
        char path[TEST_PATH_CAP], recording[TEST_PATH_CAP];
        test_join(path, folder, names[i]);
        test_join(recording, path, "reference.safetensors");
        if (!test_exists(recording)) {
            continue;
        }
        printf("%s\n", path);
        if (is_built(path)) {
            assert_true(passes(path));
            n_passed++;
        } else {
            char *text = NULL;
            int failed = 0;
            assert_true(run(path, &failed, &text) < 0);
            assert_non_null(strstr(sw_error_message(), "optimizer.type"));
            free(text);
        }
    }
    assert_true(n_passed > 0);
}

/* ---- corrupted recordings ---- */

enum how { AS_IT_WAS, VALUE, NOT_A_NUMBER, SHORTER, ONE_MORE, EMPTY };

static void copy_to(const char *from, const char *to, const char *name)
{
    char source[TEST_PATH_CAP], path[TEST_PATH_CAP], *data = NULL;
    size_t len = 0;
    test_join(source, from, name);
    test_join(path, to, name);
    assert_int_equal(sw_file_read(source, &data, &len), SW_OK);
    assert_int_equal(sw_file_write_atomic(path, data, len), SW_OK);
    sw_free(data);
}

/* Copies a file of gpt2_tied next to the corrupted recording. */
static void copy_file(const char *name)
{
    char from[TEST_PATH_CAP];
    test_join(from, own, "gpt2_tied");
    copy_to(from, spoiled, name);
}

static void write_tensor(struct sw_safetensors_writer *writer, int64_t i,
                         const struct sw_safetensor *from, size_t bytes, enum how how)
{
    char *data = sw_alloc("test", bytes + 8);
    assert_non_null(data);
    memcpy(data, from->data, bytes);
    const size_t last = bytes - sw_dtype_bytes(from->dtype);
    if (how == VALUE || how == NOT_A_NUMBER) {
        const double value = sw_load_f64(from->dtype, data + last, 0);
        const double spoilt = how == VALUE ? value + 0.01 + 0.01 * value : NAN;
        sw_convert(from->dtype, data + last, SW_F64, &spoilt, 1);
    }
    assert_int_equal(sw_safetensors_write(writer, i, 0, data, bytes), SW_OK);
    sw_free(data);
}

/* Writes gpt2_tied's recording with `name` corrupted. */
static void spoil(const char *name, enum how how)
{
    struct sw_safetensors *file = NULL;
    struct sw_safetensor_spec specs[256];
    struct sw_safetensors_writer *writer = NULL;
    char from[TEST_PATH_CAP], to[TEST_PATH_CAP];
    snprintf(from, sizeof from, "%s/gpt2_tied/reference.safetensors", own);
    test_join(to, spoiled, "reference.safetensors");
    assert_int_equal(sw_safetensors_open(from, &file), SW_OK);
    const int64_t n = sw_safetensors_count(file);
    bool found = how == AS_IT_WAS;
    assert_true(n < (int64_t)SW_LEN(specs));
    for (int64_t i = 0; i < n; i++) {
        const struct sw_safetensor *tensor = sw_safetensors_at(file, i);
        specs[i] = (struct sw_safetensor_spec){tensor->name, tensor->dtype, tensor->shape};
        if (strcmp(tensor->name, name) == 0 && how != AS_IT_WAS) {
            found = true;
            specs[i].shape.dims[0] -= how == SHORTER;
            specs[i].shape.dims[0] *= how != EMPTY;
            specs[i].name = how == ONE_MORE ? "output.surprise" : tensor->name;
        }
    }
    assert_true(found);
    const struct sw_safetensors_options options = {0};
    assert_int_equal(sw_safetensors_create(to, specs, n, &options, &writer), SW_OK);
    for (int64_t i = 0; i < n; i++) {
        const struct sw_safetensor *tensor = sw_safetensors_at(file, i);
        const bool this_one = strcmp(tensor->name, name) == 0;
        const size_t bytes =
            (size_t)sw_shape_elems(&specs[i].shape) * sw_dtype_bytes(tensor->dtype);
        write_tensor(writer, i, tensor, bytes, this_one ? how : AS_IT_WAS);
    }
    assert_int_equal(sw_safetensors_commit(writer), SW_OK);
    sw_safetensors_writer_close(writer);
    sw_safetensors_close(file);
}

static void a_spoiled_recording_fails(void **state)
{
    static const struct {
        const char *name;
        enum how how;
    } cases[] = {
        {"output.logits", VALUE},
        {"output.logits", NOT_A_NUMBER},
        {"output.logits", SHORTER},
        {"output.loss", VALUE},
        {"output.loss", NOT_A_NUMBER},
        {"output.hidden.1", VALUE},
        {"output.hidden.2", NOT_A_NUMBER},
        {"output.hidden.2", ONE_MORE},
        {"grad.transformer.wte.weight", VALUE},
        {"grad.transformer.h.1.ln_2.bias", NOT_A_NUMBER},
        {"grad.transformer.h.1.ln_2.bias", SHORTER},
        {"train.loss", VALUE},
        {"train.loss", NOT_A_NUMBER},
        {"train.loss", SHORTER},
        {"train.grad_norm", VALUE},
        {"train.grad_norm", NOT_A_NUMBER},
        {"train.lr", VALUE},
        {"train.lr", NOT_A_NUMBER},
        {"after.transformer.ln_f.weight", VALUE},
        {"after.transformer.ln_f.weight", NOT_A_NUMBER},
        {"after.transformer.wte.weight", SHORTER},
    };
    (void)state;
    spoil("", AS_IT_WAS);
    assert_true(passes(spoiled));
    for (size_t i = 0; i < SW_LEN(cases); i++) {
        char *text = NULL;
        int failed = 0;
        spoil(cases[i].name, cases[i].how);
        printf("%s, spoiled in way %d\n", cases[i].name, (int)cases[i].how);
        assert_int_equal(run(spoiled, &failed, &text), SW_OK);
        assert_true(failed > 0);
        assert_non_null(strstr(text, "FAIL"));
        free(text);
    }
}

/* Copies the recording in `from`, with a wrong last value of "after_*.NAME" that one mask hides. */
static void mask_last(const char *from, const char *to, const char *name)
{
    struct sw_safetensors *file = NULL;
    struct sw_safetensor_spec specs[256];
    struct sw_safetensors_writer *writer = NULL;
    const struct sw_safetensors_options options = {0};
    char mask_name[128];
    snprintf(mask_name, sizeof mask_name, "after_mask.%s", name);
    assert_int_equal(sw_safetensors_open(from, &file), SW_OK);
    const int64_t n = sw_safetensors_count(file);
    assert_true(n + 1 < (int64_t)SW_LEN(specs));
    bool hidden[256] = {0};
    for (int64_t i = 0; i < n; i++) {
        const struct sw_safetensor *tensor = sw_safetensors_at(file, i);
        const char *dot = strchr(tensor->name, '.');
        hidden[i] = strncmp(tensor->name, "after_", 6) == 0 && dot && strcmp(dot + 1, name) == 0;
        specs[i] = (struct sw_safetensor_spec){tensor->name, tensor->dtype, tensor->shape};
        specs[n] =
            hidden[i] ? (struct sw_safetensor_spec){mask_name, SW_U8, tensor->shape} : specs[n];
    }
    assert_int_equal(sw_safetensors_create(to, specs, n + 1, &options, &writer), SW_OK);
    for (int64_t i = 0; i < n; i++) {
        const struct sw_safetensor *tensor = sw_safetensors_at(file, i);
        write_tensor(writer, i, tensor, tensor->bytes, hidden[i] ? VALUE : AS_IT_WAS);
    }
    unsigned char mask[256];
    const int64_t n_mask = sw_shape_elems(&specs[n].shape);
    assert_in_range(n_mask, 1, sizeof mask);
    memset(mask, 1, (size_t)n_mask);
    mask[n_mask - 1] = 0;
    assert_int_equal(sw_safetensors_write(writer, n, 0, mask, (size_t)n_mask), SW_OK);
    assert_int_equal(sw_safetensors_commit(writer), SW_OK);
    sw_safetensors_writer_close(writer);
    sw_safetensors_close(file);
}

/* A case of two trainings: a mask without a training's name applies to both. */
static void one_mask_is_for_all_runs(void **state)
{
    static const char *const files[] = {"config.json", "model.safetensors", "reference.json"};
    char from[TEST_PATH_CAP], to[TEST_PATH_CAP], source[TEST_PATH_CAP], path[TEST_PATH_CAP];
    (void)state;
    if (!test_fixture_folder("rnn/bi_lstm", from)) {
        skip();
    }
    test_join(to, spoiled, "masked");
    assert_int_equal(sw_mkdirs(to), SW_OK);
    for (size_t i = 0; i < SW_LEN(files); i++) {
        copy_to(from, to, files[i]);
    }
    test_join(source, from, "reference.safetensors");
    test_join(path, to, "reference.safetensors");
    mask_last(source, path, "classifier.bias");
    const bool passed = passes(to);
    assert_int_equal(unlink(path), 0);
    for (size_t i = 0; i < SW_LEN(files); i++) {
        test_join(path, to, files[i]);
        assert_int_equal(unlink(path), 0);
    }
    assert_int_equal(rmdir(to), 0);
    assert_true(passed);
}

/* Batches that are too small to run are refused by name. */
static void a_short_batch_is_refused(void **state)
{
    static const char *const names[] = {"input.labels", "train.labels"};
    (void)state;
    for (size_t i = 0; i < SW_LEN(names); i++) {
        char *text = NULL;
        int failed = 0;
        spoil(names[i], SHORTER);
        assert_true(run(spoiled, &failed, &text) < 0);
        assert_non_null(strstr(sw_error_message(), names[i]));
        free(text);
    }
}

static void refused(const char *word)
{
    char *text = NULL;
    int failed = 0;
    assert_true(run(spoiled, &failed, &text) < 0);
    if (!strstr(sw_error_message(), word)) {
        fail_msg("\"%s\" lacks \"%s\"", sw_error_message(), word);
    }
    free(text);
}

static void an_empty_tensor_is_refused(void **state)
{
    static const char *const names[] = {"input.input_ids", "output.logits", "train.loss"};
    (void)state;
    for (size_t i = 0; i < SW_LEN(names); i++) {
        spoil(names[i], EMPTY);
        refused(names[i]);
        assert_non_null(strstr(sw_error_message(), "is empty"));
    }
}

/* Writes a file into the copy. */
static void put(const char *name, const char *text)
{
    char path[TEST_PATH_CAP];
    test_join(path, spoiled, name);
    assert_int_equal(sw_file_write_atomic(path, text, strlen(text)), SW_OK);
}

static void keys_of_another_type_are_refused(void **state)
{
    static const char *const texts[][2] = {
        {"{\"lr_used\": 0.1}", "lr_used is not a list of numbers"},
        {"{\"lr_used\": [0.1, \"0.1\"]}", "lr_used is not"},
        {"{\"optimizer\": \"Adam\"}", "optimizer is not an object"},
        {"{\"zero_gradients\": [1]}", "zero_gradients is not a list of strings"},
        {"{\"train\": {\"betas\": 0.9}}", "train.betas is not"},
        {"{\"train\": {\"betas\": [0.9]}}", "train.betas has 1 numbers, wanted 2"},
        {"{\"train\": {\"betas\": [0.9, true]}}", "train.betas is not"},
        {"{\"train\": {\"lr\": \"1e-3\"}}", "train.lr is not a number"},
        {"{\"train\": {\"clip\": false}}", "train.clip is not a number"},
        {"{\"train\": {\"optimizer\": 5}}", "train.optimizer is not a string"},
        {"{\"train\": {\"schedule\": {\"kind\": []}}}", "train.schedule.kind is not"},
        {"{\"data\": {\"text\": 1}}", "data.text is not a string"},
        {"{\"tolerance\": 1e-5}", "tolerance is not an object"},
        {"{\"tolerance\": {\n\"loss_rel\": \"1e-6\"}}",
         "reference.json:2: tolerance.loss_rel is not"},
    };
    (void)state;
    spoil("", AS_IT_WAS);
    for (size_t i = 0; i < SW_LEN(texts); i++) {
        put("reference.json", texts[i][0]);
        refused(texts[i][1]);
    }
    copy_file("reference.json");
    assert_true(passes(spoiled));
}

/* A class recorded with other inputs is refused by name, not row by row. */
static void another_class_is_refused(void **state)
{
    const struct sw_safetensor_spec spec = {"input.pixel_values", SW_F32, SW_SHAPE(1)};
    const struct sw_safetensors_options options = {0};
    struct sw_safetensors_writer *writer = NULL;
    const float value = 1;
    char path[TEST_PATH_CAP];
    (void)state;
    test_join(path, spoiled, "reference.safetensors");
    assert_int_equal(sw_safetensors_create(path, &spec, 1, &options, &writer), SW_OK);
    assert_int_equal(sw_safetensors_write(writer, 0, 0, &value, sizeof value), SW_OK);
    assert_int_equal(sw_safetensors_commit(writer), SW_OK);
    sw_safetensors_writer_close(writer);
    refused("neither input.input_ids nor train.input_ids");
    put("config.json", "{\"model_type\": \"clip\"}");
    refused("model_type \"clip\"");
    copy_file("config.json");
}

static int make_copy(void **state)
{
    static const char *const names[] = {"config.json", "model.safetensors", "reference.json"};
    (void)state;
    snprintf(spoiled, sizeof spoiled, "/tmp/sw_check_%ld", (long)getpid());
    if (mkdir(spoiled, 0700) != 0) {
        return -1;
    }
    for (size_t i = 0; i < SW_LEN(names); i++) {
        copy_file(names[i]);
    }
    return 0;
}

static int remove_copy(void **state)
{
    static const char *const names[] = {"config.json", "model.safetensors", "reference.json",
                                        "reference.safetensors"};
    (void)state;
    for (size_t i = 0; i < SW_LEN(names); i++) {
        char path[TEST_PATH_CAP];
        test_join(path, spoiled, names[i]);
        unlink(path);
    }
    return rmdir(spoiled);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(own_cases_pass),
    cmocka_unit_test(graphs_of_onnx_files_pass),
    cmocka_unit_test(no_options_mean_as_recorded),
    cmocka_unit_test(recorded_models_pass),
    cmocka_unit_test(recorded_models_pass_far_away),
    cmocka_unit_test(recorded_adapters_pass),
    cmocka_unit_test(recorded_ranks_pass_vertically),
    cmocka_unit_test(own_optimizers_pass),
    cmocka_unit_test(recorded_optimizers_pass_or_are_refused_by_name),
    cmocka_unit_test(a_spoiled_recording_fails),
    cmocka_unit_test(one_mask_is_for_all_runs),
    cmocka_unit_test(a_short_batch_is_refused),
    cmocka_unit_test(an_empty_tensor_is_refused),
    cmocka_unit_test(keys_of_another_type_are_refused),
    cmocka_unit_test(another_class_is_refused),
};

const struct test_program sw_tests = {TEST_TABLE(tests), .setup = make_copy,
                                      .teardown = remove_copy};
