// SPDX-License-Identifier: Apache-2.0
// Model folders: the recorded ones read and written again byte by byte, shards and their index,
// damage, and what is carried over beside the weights.

#include "support/fixtures.h"
#include "support/scratch.h"
#include "support/test.h"

#include <dirent.h>
#include <unistd.h>

#include "hf/hf.h"

enum { MAX_TENSORS = 256 };

static char fixtures[TEST_PATH_CAP];

static void clear_folder(void)
{
    DIR *dir = opendir(test_folder());
    const struct dirent *entry;
    while (dir && (entry = readdir(dir)) != NULL) {
        unlinkat(dirfd(dir), entry->d_name, 0);
    }
    if (dir) {
        closedir(dir);
    }
}

static bool has(const char *name)
{
    char path[TEST_PATH_CAP];
    test_join(path, test_folder(), name);
    return test_exists(path);
}

static void expect_same_file(const char *a, const char *b)
{
    char *x = NULL, *y = NULL;
    size_t x_len = 0, y_len = 0;
    if (sw_file_read(a, &x, &x_len) < 0 || sw_file_read(b, &y, &y_len) < 0) {
        fail_msg("%s", sw_error_message());
    }
    if (x_len != y_len || memcmp(x, y, x_len) != 0) {
        fail_msg("%s and %s differ", a, b);
    }
    sw_free(x);
    sw_free(y);
}

/* ---- recorded folders ---- */

/* A file of the reference writer, read and written again, is the same file. */
static void rewrite(const char *path)
{
    struct sw_safetensors *file = NULL;
    if (sw_safetensors_open(path, &file) < 0) {
        fail_msg("%s", sw_error_message());
    }
    const int64_t n = sw_safetensors_count(file);
    struct sw_safetensor_spec *specs = calloc((size_t)n + 1, sizeof(*specs));
    for (int64_t i = 0; i < n; i++) { /* backwards: the order is the writer's business */
        const struct sw_safetensor *t = sw_safetensors_at(file, n - 1 - i);
        specs[i] = (struct sw_safetensor_spec){t->name, t->dtype, t->shape};
    }
    char copy[TEST_PATH_CAP];
    test_join(copy, test_folder(), "copy.safetensors");
    struct sw_safetensors_writer *w = NULL;
    assert_int_equal(sw_safetensors_create(copy, specs, n, NULL, &w), SW_OK);
    for (int64_t i = 0; i < n; i++) {
        const struct sw_safetensor *t = sw_safetensors_at(file, n - 1 - i);
        const size_t half = t->bytes / 2;
        assert_int_equal(
            sw_safetensors_write(w, i, half, (const char *)t->data + half, t->bytes - half), SW_OK);
        assert_int_equal(sw_safetensors_write(w, i, 0, t->data, half), SW_OK);
    }
    assert_int_equal(sw_safetensors_commit(w), SW_OK);
    sw_safetensors_writer_close(w);
    const bool marked = sw_safetensors_metadata(file, "format") != NULL;
    sw_safetensors_close(file);
    free(specs);
    if (marked) {
        expect_same_file(path, copy);
    }
}

static void test_rewrite_recorded(void **state)
{
    (void)state;
    char cases[64][TEST_NAME_CAP];
    const int n = test_list(fixtures, "", cases, 64);
    assert_true(n > 0);
    for (int i = 0; i < n; i++) {
        char path[TEST_PATH_CAP], file[TEST_PATH_CAP];
        test_join(path, fixtures, cases[i]);
        char names[16][TEST_NAME_CAP];
        const int n_files = test_list(path, ".safetensors", names, 16);
        for (int f = 0; f < n_files; f++) {
            test_join(file, path, names[f]);
            rewrite(file);
        }
    }
    clear_folder();
}

static void test_open_recorded(void **state)
{
    (void)state;
    char cases[64][TEST_NAME_CAP];
    const int n = test_list(fixtures, "", cases, 64);
    for (int i = 0; i < n; i++) {
        char path[TEST_PATH_CAP];
        test_join(path, fixtures, cases[i]);
        struct sw_hf_folder *f = NULL;
        struct sw_json_doc *config = NULL;
        if (sw_hf_folder_open(path, &f) < 0 || sw_hf_read_config(path, &config) < 0) {
            fail_msg("%s: %s", cases[i], sw_error_message());
        }
        assert_string_equal(sw_json_get(sw_json_root(config), "model_type")->string, "gpt2");
        assert_true(sw_hf_folder_count(f) > 0);
        for (int64_t t = 0; t < sw_hf_folder_count(f); t++) {
            const struct sw_safetensor *tensor = sw_hf_folder_at(f, t);
            assert_ptr_equal(sw_hf_folder_find(f, tensor->name), tensor);
        }
        assert_null(sw_hf_folder_find(f, "absent"));
        sw_json_close(config);
        sw_hf_folder_close(f);
    }
}

/* ---- shards ---- */

/* Writes the tensors of f, in order of name, in shards; returns the status of the commit. */
static sw_status write_shards(const struct sw_hf_folder *f, int64_t max_shard_bytes)
{
    struct sw_safetensor_spec specs[MAX_TENSORS];
    const int64_t n = sw_hf_folder_count(f);
    assert_true(n <= MAX_TENSORS);
    for (int64_t i = 0; i < n; i++) {
        const struct sw_safetensor *t = sw_hf_folder_at(f, i);
        specs[i] = (struct sw_safetensor_spec){t->name, t->dtype, t->shape};
    }
    struct sw_hf_folder_writer *w = NULL;
    sw_status st = sw_hf_folder_create(test_folder(), specs, n, max_shard_bytes, &w);
    for (int64_t i = 0; i < n && st == SW_OK; i++) {
        const struct sw_safetensor *t = sw_hf_folder_at(f, i);
        st = sw_hf_folder_write(w, i, 0, t->data, t->bytes);
    }
    if (st == SW_OK) {
        st = sw_hf_folder_commit(w);
    }
    sw_hf_folder_writer_close(w);
    return st;
}

static void expect_same_tensors(const struct sw_hf_folder *want)
{
    struct sw_hf_folder *got = NULL;
    if (sw_hf_folder_open(test_folder(), &got) < 0) {
        fail_msg("%s", sw_error_message());
    }
    assert_int_equal(sw_hf_folder_count(got), sw_hf_folder_count(want));
    for (int64_t i = 0; i < sw_hf_folder_count(want); i++) {
        const struct sw_safetensor *a = sw_hf_folder_at(got, i), *b = sw_hf_folder_at(want, i);
        assert_string_equal(a->name, b->name);
        assert_int_equal(a->dtype, b->dtype);
        assert_true(sw_shape_equal(&a->shape, &b->shape));
        assert_int_equal(a->bytes, b->bytes);
        assert_memory_equal(a->data, b->data, a->bytes);
    }
    sw_hf_folder_close(got);
}

static struct sw_hf_folder *open_case(const char *name)
{
    char path[TEST_PATH_CAP];
    test_join(path, fixtures, name);
    if (!test_exists(path)) {
        skip();
    }
    struct sw_hf_folder *f = NULL;
    if (sw_hf_folder_open(path, &f) < 0) {
        fail_msg("%s", sw_error_message());
    }
    return f;
}

/* Any size of shard holds the same tensors, and going from one to another leaves nothing stale. */
static void test_shard_sizes(void **state)
{
    (void)state;
    static const int64_t sizes[] = {1, 60000, 0, 20000, INT64_MAX, 60000};
    struct sw_hf_folder *f = open_case("sharded");
    for (size_t i = 0; i < SW_LEN(sizes); i++) {
        if (write_shards(f, sizes[i]) < 0) {
            fail_msg("%s", sw_error_message());
        }
        expect_same_tensors(f);
        const bool single = sizes[i] == 0 || sizes[i] == INT64_MAX;
        assert_int_equal(has("model.safetensors"), single);
        assert_int_equal(has("model.safetensors.index.json"), !single);
        char names[MAX_TENSORS][TEST_NAME_CAP];
        const int n = test_list(test_folder(), "", names, MAX_TENSORS);
        assert_true(single ? n == 1 : n >= 2);
        assert_true(sizes[i] != 1 || n == sw_hf_folder_count(f) + 1);
    }
    sw_hf_folder_close(f);
    clear_folder();
}

/* The recorded index is what we write for the same shards. */
static void test_index_text(void **state)
{
    (void)state;
    struct sw_hf_folder *f = open_case("sharded");
    assert_int_equal(write_shards(f, 60000), SW_OK);
    char path[TEST_PATH_CAP], recorded[TEST_PATH_CAP];
    test_join(path, test_folder(), "model.safetensors.index.json");
    test_join(recorded, fixtures, "sharded/model.safetensors.index.json");
    struct sw_json_doc *ours = NULL, *theirs = NULL;
    assert_int_equal(sw_json_read(path, SW_JSON_STRICT, &ours), SW_OK);
    assert_int_equal(sw_json_read(recorded, SW_JSON_STRICT, &theirs), SW_OK);
    struct sw_str a = {0}, b = {0};
    sw_json_write(sw_json_get(sw_json_root(ours), "metadata"), 0, &a);
    sw_json_write(sw_json_get(sw_json_root(theirs), "metadata"), 0, &b);
    assert_string_equal(sw_str_text(&a), sw_str_text(&b));
    const struct sw_json *x = sw_json_get(sw_json_root(ours), "weight_map")->first;
    const struct sw_json *y = sw_json_get(sw_json_root(theirs), "weight_map")->first;
    for (; x && y; x = x->next, y = y->next) {
        assert_string_equal(x->key, y->key);
    }
    assert_ptr_equal(x, y);
    sw_str_fini(&a);
    sw_str_fini(&b);
    sw_json_close(ours);
    sw_json_close(theirs);
    sw_hf_folder_close(f);
    clear_folder();
}

static void expect_refused(const char *index, sw_status want, const char *part)
{
    test_put("model.safetensors.index.json", index);
    struct sw_hf_folder *f = NULL;
    const sw_status st = sw_hf_folder_open(test_folder(), &f);
    if (st != want || !strstr(sw_error_message(), part)) {
        fail_msg("%s: %d, %s", index, (int)st, st < 0 ? sw_error_message() : "read");
    }
}

static void test_damaged_index(void **state)
{
    (void)state;
    struct sw_hf_folder *f = NULL;
    assert_int_equal(sw_hf_folder_open(test_folder(), &f), SW_E_IO);
    test_put("pytorch_model.bin", "");
    assert_int_equal(sw_hf_folder_open(test_folder(), &f), SW_E_FORMAT);
    assert_non_null(strstr(sw_error_message(), "pytorch_model.bin: not an archive"));
    test_put("s.safetensors", "");
    expect_refused("{}", SW_E_FORMAT, "weight_map");
    expect_refused("{\"weight_map\":[]}", SW_E_FORMAT, "weight_map");
    expect_refused("{\"weight_map\":{\"a\":\"../s.safetensors\"}}", SW_E_FORMAT, "plain");
    expect_refused("{\"weight_map\":{\"a\":\"/s.safetensors\"}}", SW_E_FORMAT, "plain");
    expect_refused("{\"weight_map\":{\"a\":\"..\"}}", SW_E_FORMAT, "plain");
    expect_refused("{\"weight_map\":{\"a\":\"\"}}", SW_E_FORMAT, "plain");
    expect_refused("{\"weight_map\":{\"a\":3}}", SW_E_FORMAT, "plain");
    expect_refused("{\"weight_map\":{\"a\":\"s.safetensors\"}}", SW_E_FORMAT, "HeaderTooSmall");
    expect_refused("{\"weight_map\":{\"a\":\"absent.safetensors\"}}", SW_E_IO, "absent");
    expect_refused("{\"weight_map\":{\"a\":\"s\",\"a\":\"s\"}}", SW_E_FORMAT, "duplicate");
    clear_folder();
}

static void count_warnings(void *ctx, enum sw_log_level level, const char *text)
{
    (void)text;
    *(int *)ctx += level == SW_LOG_WARN;
}

static void test_unmapped_and_missing(void **state)
{
    (void)state;
    const struct sw_safetensor_spec specs[] = {{"a", SW_U8, SW_SHAPE(1)},
                                               {"b", SW_U8, SW_SHAPE(1)}};
    char path[TEST_PATH_CAP];
    test_join(path, test_folder(), "s.safetensors");
    struct sw_safetensors_writer *w = NULL;
    assert_int_equal(sw_safetensors_create(path, specs, 2, NULL, &w), SW_OK);
    assert_int_equal(sw_safetensors_write(w, 0, 0, "x", 1), SW_OK);
    assert_int_equal(sw_safetensors_write(w, 1, 0, "y", 1), SW_OK);
    assert_int_equal(sw_safetensors_commit(w), SW_OK);
    sw_safetensors_writer_close(w);

    int n_warnings = 0;
    test_put("model.safetensors.index.json", "{\"weight_map\":{\"b\":\"s.safetensors\"}}");
    sw_log_set_sink(count_warnings, &n_warnings);
    struct sw_hf_folder *f = NULL;
    const sw_status st = sw_hf_folder_open(test_folder(), &f);
    sw_log_set_sink(NULL, NULL);
    assert_int_equal(st, SW_OK);
    assert_int_equal(n_warnings, 1);
    assert_int_equal(sw_hf_folder_count(f), 1);
    assert_null(sw_hf_folder_find(f, "a"));
    sw_hf_folder_close(f);
    expect_refused("{\"weight_map\":{\"c\":\"s.safetensors\"}}", SW_E_FORMAT, "\"c\" is not in");
    clear_folder();
}

/* An old folder survives every failing write of a new one with other shard names. */
static void test_failing_folder(void **state)
{
    (void)state;
    static const char *const points[] = {"hf.write", "hf.fsync", "write", "fsync", "rename"};
    struct sw_hf_folder *f = open_case("sharded");
    int n_failed = 0;
    for (size_t p = 0; p < SW_LEN(points); p++) {
        for (int n = 1;; n++) {
            clear_folder();
            assert_int_equal(write_shards(f, 0), SW_OK);
            char spec[64];
            snprintf(spec, sizeof(spec), "%s:%d:eio", points[p], n);
            sw_fault_set(spec);
            const sw_status st = write_shards(f, 100000);
            sw_fault_set(NULL);
            expect_same_tensors(f);
            if (st == SW_OK) {
                break;
            }
            assert_int_equal(st, SW_E_IO);
            n_failed++;
        }
    }
    assert_true(n_failed > 10);
    sw_hf_folder_close(f);
    clear_folder();
}

/* ---- beside the weights ---- */

static void test_sidecars(void **state)
{
    (void)state;
    char source[] = "/tmp/spillway-source-XXXXXX";
    assert_non_null(mkdtemp(source));
    static const char *const names[] = {"config.json",        "tokenizer.json",
                                        "vocab.json",         "merges.txt",
                                        "README.md",          "model.safetensors",
                                        "pytorch_model.bin",  ".gitattributes",
                                        "spiece.model",       "model.safetensors.index.json",
                                        "64.tflite",          "rust_model.ot",
                                        "adapter_config.json"};
    char path[TEST_PATH_CAP];
    for (size_t i = 0; i < SW_LEN(names); i++) {
        test_join(path, source, names[i]);
        assert_int_equal(sw_file_write_atomic(path, names[i], strlen(names[i])), SW_OK);
    }
    test_put("config.json", "mine");
    if (sw_hf_copy_sidecars(source, test_folder()) < 0) {
        fail_msg("%s", sw_error_message());
    }
    static const bool copied[] = {true,  true, true,  true,  false, false, false,
                                  false, true, false, false, false, false};
    for (size_t i = 0; i < SW_LEN(names); i++) {
        assert_int_equal(has(names[i]), copied[i]);
    }
    char *text = NULL;
    size_t len = 0;
    test_join(path, test_folder(), "config.json");
    assert_int_equal(sw_file_read(path, &text, &len), SW_OK);
    assert_string_equal(text, "mine");
    sw_free(text);
    test_join(path, test_folder(), "merges.txt");
    assert_int_equal(sw_file_read(path, &text, &len), SW_OK);
    assert_string_equal(text, "merges.txt");
    sw_free(text);
    assert_int_equal(sw_hf_copy_sidecars(test_folder(), test_folder()), SW_OK);
    assert_int_equal(sw_hf_copy_sidecars("/nonexistent", test_folder()), SW_E_IO);
    for (size_t i = 0; i < SW_LEN(names); i++) {
        test_join(path, source, names[i]);
        unlink(path);
    }
    rmdir(source);
    clear_folder();
}

static void put_at(const char *root, const char *name, const char *text)
{
    char path[TEST_PATH_CAP];
    test_join(path, root, name);
    assert_int_equal(sw_file_write_atomic(path, text, strlen(text)), SW_OK);
}

/* A clone without Git LFS has what is read, but not every file that lies beside it. */
static void test_pointers_of_lfs_are_not_copied(void **state)
{
    (void)state;
    char source[] = "/tmp/spillway-pointers-XXXXXX";
    int warnings = 0;
    assert_non_null(mkdtemp(source));
    put_at(source, "unread.model",
           "version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 1\n");
    put_at(source, "vocab.json", "{}");
    sw_log_set_sink(count_warnings, &warnings);
    assert_int_equal(sw_hf_copy_sidecars(source, test_folder()), SW_OK);
    sw_log_set_sink(NULL, NULL);
    assert_int_equal(warnings, 1);
    assert_true(has("vocab.json"));
    assert_false(has("unread.model"));
    test_remove(source);
    clear_folder();
}

/* The subfolders that modules.json names are copied with their weights, others and paths that lead
 * out of the folder are not. */
static void test_modules_are_copied(void **state)
{
    (void)state;
    char source[] = "/tmp/spillway-modules-XXXXXX", command[TEST_PATH_CAP * 2];
    assert_non_null(mkdtemp(source));
    snprintf(command, sizeof command,
             "cd %s && mkdir -p 1_Pooling/deep 2_Dense onnx && ln -s .. 4_Link", source);
    assert_int_equal(system(command), 0);
    put_at(source, "modules.json",
           "[{\"path\": \"\"}, {\"path\": \"1_Pooling\"}, {\"path\": \"2_Dense\"}, "
           "{\"path\": \"3_Normalize\", \"type\": \"a.Normalize\"}, {\"path\": \"..\"}, "
           "{\"path\": \"onnx/../onnx\"}, {\"path\": \"1_Pooling/deep\"}, {\"path\": \"/tmp\"}, "
           "{\"path\": \"4_Link\"}, 7]");
    put_at(source, "1_Pooling/config.json", "pooling");
    put_at(source, "2_Dense/model.safetensors", "dense");
    put_at(source, "2_Dense/.token", "hidden");
    put_at(source, "onnx/model.onnx", "graph");
    int warnings = 0;
    sw_log_set_sink(count_warnings, &warnings);
    assert_int_equal(sw_hf_copy_sidecars(source, test_folder()), SW_OK);
    sw_log_set_sink(NULL, NULL);
    assert_int_equal(warnings, 5);
    assert_false(has("4_Link"));
    assert_false(has("2_Dense/.token"));
    assert_false(has("1_Pooling/deep"));
    assert_true(has("modules.json"));
    assert_true(has("1_Pooling/config.json"));
    assert_true(has("2_Dense/model.safetensors"));
    assert_false(has("onnx"));
    assert_false(has("3_Normalize"));
    assert_int_equal(sw_hf_save_pooling(test_folder(), 48, true), SW_OK);
    struct sw_json_doc *doc = NULL;
    char path[TEST_PATH_CAP];
    test_join(path, test_folder(), "1_Pooling/config.json");
    assert_int_equal(sw_json_read(path, SW_JSON_STRICT, &doc), SW_OK);
    assert_int_equal(sw_json_get(sw_json_root(doc), "word_embedding_dimension")->integer, 48);
    assert_true(sw_json_get(sw_json_root(doc), "pooling_mode_cls_token")->boolean);
    sw_json_close(doc);
    test_join(path, test_folder(), "modules.json");
    assert_int_equal(sw_json_read(path, SW_JSON_STRICT, &doc), SW_OK);
    const struct sw_json *last = sw_json_root(doc)->first->next->next; /* the base normalizes */
    assert_string_equal(sw_json_get(last, "path")->string, "2_Normalize");
    assert_null(last->next);
    sw_json_close(doc);
    put_at(source, "modules.json", "no list"); /* an export does not fail for it */
    assert_int_equal(sw_hf_copy_sidecars(source, test_folder()), SW_OK);
    assert_int_equal(sw_hf_save_pooling(test_folder(), 48, true), SW_OK);
    snprintf(command, sizeof command, "cd %s && rm -r %s 1_Pooling 2_Dense", test_folder(), source);
    assert_int_equal(system(command), 0);
    clear_folder();
}

static void expect_base_name(const char *root, const char *sub, const char *wanted)
{
    char path[TEST_PATH_CAP], name[64];
    test_join(path, root, sub);
    assert_int_equal(sw_mkdirs(path), SW_OK);
    sw_hf_base_name(path, name, sizeof name);
    assert_string_equal(name, wanted);
}

static void test_sidecars_of_the_hub_cache(void **state)
{
    (void)state;
    char root[] = "/tmp/spillway-hub-XXXXXX", command[4 * TEST_PATH_CAP];
    assert_non_null(mkdtemp(root));
    snprintf(
        command, sizeof(command),
        "cd %s && mkdir -p hub/models--a--b/blobs hub/models--a--b/snapshots/1 hub/other plain "
        "&& echo blob > hub/models--a--b/blobs/0123 && echo secret > hub/other/secret "
        "&& cd hub/models--a--b/snapshots/1 && ln -s ../../blobs/0123 merges.txt "
        "&& ln -s ../../../other/secret vocab.json && ln -s %s/hub/other/secret NOTICE.md "
        "&& echo mine > real.txt && ln -s real.txt alias.txt && cd %s/plain "
        "&& ln -s ../hub/models--a--b/blobs/0123 merges.txt && mkfifo generation.json "
        "&& echo mine > real.txt",
        root, root, root);
    assert_int_equal(system(command), 0);
    char source[TEST_PATH_CAP];
    test_join(source, root, "hub/models--a--b/snapshots/1");
    int n_warnings = 0;
    expect_base_name(root, "hub/models--a--b/snapshots/1", "a/b");
    expect_base_name(root, "snapshots/models--c--d--e/snapshots/2", "c/d--e");
    expect_base_name(root, "snapshots/models--f/snapshots/3", "f");
    expect_base_name(root, "snapshots/models--f", "models--f");
    sw_log_set_sink(count_warnings, &n_warnings);
    alarm(20);
    assert_int_equal(sw_hf_copy_sidecars(source, test_folder()), SW_OK);
    assert_int_equal(n_warnings, 2);
    assert_true(has("merges.txt"));
    assert_true(has("real.txt"));
    assert_true(has("alias.txt"));
    assert_false(has("vocab.json"));
    assert_false(has("NOTICE.md"));
    clear_folder();
    expect_base_name(root, "plain", "plain");
    test_join(source, root, "plain"); /* its neighbours are no cache of this model */
    assert_int_equal(sw_hf_copy_sidecars(source, test_folder()), SW_OK);
    assert_int_equal(n_warnings, 3);
    alarm(0);
    sw_log_set_sink(NULL, NULL);
    assert_true(has("real.txt"));
    assert_false(has("merges.txt"));
    assert_false(has("generation.json"));
    snprintf(command, sizeof(command), "rm -rf %s", root);
    assert_int_equal(system(command), 0);
    clear_folder();
}

static int begin(char **argv)
{
    (void)argv;
    return test_fixture_folder("gpt2", fixtures) ? 0 : TEST_EXIT_SKIPPED;
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_rewrite_recorded),
    cmocka_unit_test(test_open_recorded),
    cmocka_unit_test(test_shard_sizes),
    cmocka_unit_test(test_index_text),
    cmocka_unit_test(test_damaged_index),
    cmocka_unit_test(test_unmapped_and_missing),
    cmocka_unit_test(test_failing_folder),
    cmocka_unit_test(test_sidecars),
    cmocka_unit_test(test_modules_are_copied),
    cmocka_unit_test(test_sidecars_of_the_hub_cache),
    cmocka_unit_test(test_pointers_of_lfs_are_not_copied),
};

const struct test_program sw_tests = {TEST_TABLE(tests), .begin = begin};
