// SPDX-License-Identifier: Apache-2.0
// COST 6
// Exports the weights of an intact checkpoint, and refuses one that the disk changed. An export
// that was killed at any point is repeated in its folder. A folder that no export made is refused.
#include <dirent.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/base.h"
#include "spillway/checkpoint.h"
#include "spillway/train.h"
#include "support/fixtures.h"
#include "support/scratch.h"
#include "support/test.h"

static FILE *quiet; /* takes the lines of exports */

/* Trains one step. set: NULL = none. */
static sw_status train(const char *model, const char *set, const char *output, bool no_export)
{
    struct sw_train_result result;
    bool started;
    const char *file = test_at("text.txt");
    const struct sw_train_options o = {.model = model,
                                       .data = &file,
                                       .n_data = 1,
                                       .sets = &set,
                                       .n_sets = set != NULL,
                                       .output = output,
                                       .steps = 1,
                                       .seq_len = 8,
                                       .eval_every = 1,
                                       .eval_batches = 1,
                                       .quiet = true,
                                       .no_export = no_export,
                                       .export_dtype = -1};
    return sw_train(&o, stdout, &started, &result);
}

/* Makes a run without an export, a model, and a run of adapters for it. */
static int make_runs(void **state)
{
    (void)state;
    test_put("text.txt", "abcdefgh hgfedcba abcdefgh\nabcdefgh hgfedcba abcdefgh\n");
    test_put("config.json", "{\"model_type\":\"gpt2\",\"vocab_size\":16,\"n_positions\":8,"
                            "\"n_embd\":8,\"n_layer\":1,\"n_head\":2}");
    const bool made =
        train("gpt2-tiny", NULL, test_at("run"), true) >= 0 &&
        train(test_at("config.json"), NULL, test_at("base"), false) >= 0 &&
        train(test_at("base/model"), "spillway.lora={\"r\":2,\"target_modules\":\"all-linear\"}",
              test_at("lora"), true) >= 0;
    quiet = fopen("/dev/null", "w");
    return made && quiet ? 0 : -1;
}

static int close_quiet(void **state)
{
    (void)state;
    return fclose(quiet);
}

/* Flips a bit in the last number of the file. */
static void damage(const char *path)
{
    char last;
    FILE *file = fopen(path, "r+b");
    assert_non_null(file);
    assert_int_equal(fseek(file, -1, SEEK_END), 0);
    assert_int_equal(fread(&last, 1, 1, file), 1);
    last ^= 1;
    assert_int_equal(fseek(file, -1, SEEK_END), 0);
    assert_int_equal(fwrite(&last, 1, 1, file), 1);
    fclose(file);
}

static void what_is_damaged_is_not_exported(void **state)
{
    (void)state;
    const char *part = test_at("run/checkpoint-1/part-00000.safetensors");
    struct sw_checkpoint_export_options o = {
        .path = test_at("run"), .folder = test_at("whole"), .dtype = -1};
    assert_int_equal(sw_checkpoint_export(&o, stdout), SW_OK);
    damage(part);
    o.folder = test_at("broken");
    assert_int_equal(sw_checkpoint_export(&o, stdout), SW_E_FORMAT);
    assert_non_null(strstr(sw_error_message(), "part-00000.safetensors is damaged: "));
    assert_int_equal(access(o.folder, F_OK), -1);
}

/* ---- killed exports ---- */

/* Compares every file of folder `a` with the one of folder `b`. Returns the number of files. */
static int compare_files(const char *a, const char *b)
{
    int n = 0;
    DIR *dir = opendir(a);
    assert_non_null(dir);
    for (const struct dirent *entry; (entry = readdir(dir));) {
        char paths[2][512], *texts[2];
        size_t lens[2];
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0) {
            continue;
        }
        for (int i = 0; i < 2; i++) {
            snprintf(paths[i], sizeof paths[i], "%s/%s", i == 0 ? a : b, entry->d_name);
            if (sw_file_read(paths[i], &texts[i], &lens[i]) < 0) {
                fail_msg("%s", sw_error_message());
            }
        }
        assert_int_equal(lens[0], lens[1]);
        assert_memory_equal(texts[0], texts[1], lens[0]);
        sw_free(texts[0]);
        sw_free(texts[1]);
        n++;
    }
    closedir(dir);
    return n;
}

/* Exports in a child that dies at the n-th pass through the fault point. false: it passed the point
 * fewer times and ended well. */
static bool dies_at(const char *point, int n, const struct sw_checkpoint_export_options *o)
{
    char fault[64];
    int status = 0;
    snprintf(fault, sizeof fault, "%s:%d:kill", point, n);
    const pid_t child = fork();
    if (child == 0) {
        _exit(sw_fault_set(fault) < 0 || sw_checkpoint_export(o, quiet) < 0);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFSIGNALED(status) || (WIFEXITED(status) && WEXITSTATUS(status) == 0));
    return WIFSIGNALED(status);
}

/* Kills the export before each of its system calls that change the disk, first in a new folder. The
 * next export must give the files of `whole`, and no others. */
static void killed_at_every_point(struct sw_checkpoint_export_options *o, const char *whole)
{
    static const char *const points[] = {"mkdir",  "create",   "write",  "fsync",
                                         "rename", "hf.fsync", "unlink", "hf.write"};
    o->folder = whole;
    assert_int_equal(sw_checkpoint_export(o, quiet), SW_OK);
    o->folder = test_at("again");
    for (size_t i = 0; i < SW_LEN(points); i++) {
        const bool tensors = strcmp(points[i], "hf.write") == 0; /* all into one temporary file */
        for (int n = 1; (!tensors || n < 3) && dies_at(points[i], n, o); n++) {
            if (sw_checkpoint_export(o, quiet) < 0) {
                fail_msg("%s:%d: %s", points[i], n, sw_error_message());
            }
            assert_int_equal(compare_files(o->folder, whole), compare_files(whole, o->folder));
            test_remove(o->folder);
        }
        test_remove(o->folder);
    }
}

static void a_killed_export_is_repeated(void **state)
{
    (void)state;
    struct sw_checkpoint_export_options o = {
        .path = test_at("base"), .best = true, .dtype = -1, .tokenizer = test_at("base/model")};
    killed_at_every_point(&o, test_at("whole model"));
}

static void a_killed_export_of_adapters_is_repeated(void **state)
{
    (void)state;
    struct sw_checkpoint_export_options o = {.path = test_at("lora"), .dtype = -1};
    killed_at_every_point(&o, test_at("whole adapter"));
}

static void a_killed_merge_is_repeated(void **state)
{
    (void)state;
    struct sw_checkpoint_export_options o = {
        .path = test_at("lora"), .merge = true, .model = test_at("base/model"), .dtype = -1};
    killed_at_every_point(&o, test_at("whole merge"));
}

static void export_folder(const char *path, const char *folder, bool merge)
{
    const struct sw_checkpoint_export_options o = {
        .path = test_at(path), .folder = test_at(folder), .dtype = -1, .merge = merge};
    if (sw_checkpoint_export(&o, quiet) < 0) {
        fail_msg("%s", sw_error_message());
    }
}

/* Readers would add adapters to a model that they lie beside. */
static void adapters_and_a_model_are_not_in_one_folder(void **state)
{
    (void)state;
    export_folder("lora", "merged", true);
    export_folder("lora", "both", false);
    export_folder("lora", "both", true); /* the model replaces the adapters */
    assert_int_equal(compare_files(test_at("both"), test_at("merged")),
                     compare_files(test_at("merged"), test_at("both")));
    const struct sw_checkpoint_export_options o = {
        .path = test_at("lora"), .folder = test_at("both"), .dtype = -1};
    assert_int_equal(sw_checkpoint_export(&o, quiet), SW_E_ARG);
    assert_non_null(strstr(sw_error_message(), "has weights of a model; name another folder"));
    assert_int_equal(compare_files(test_at("both"), test_at("merged")),
                     compare_files(test_at("merged"), test_at("both")));
}

/* The temporary file of a marker makes a folder ours only if nothing else is there. */
static void a_folder_of_others_is_refused(void **state)
{
    (void)state;
    static const char temp[] = ".spillway-export.spillway-1-0.tmp";
    static const struct {
        const char *files[2];
        bool refused;
    } cases[] = {{{temp, ".spillway-export.spillway-22-3.tmp"}, false},
                 {{temp, "model.safetensors"}, true},
                 {{temp, "notes"}, true},
                 {{"model.safetensors.spillway-1-0.tmp"}, true},
                 {{".spillway-export.spillway-x-0.tmp"}, true},
                 {{".spillway-exports"}, true}};
    const struct sw_checkpoint_export_options o = {
        .path = test_at("base"), .folder = test_at("theirs"), .dtype = -1};
    for (size_t i = 0; i < SW_LEN(cases); i++) {
        char path[128];
        int n = 0;
        assert_int_equal(mkdir(o.folder, 0777), 0);
        for (; n < 2 && cases[i].files[n]; n++) {
            snprintf(path, sizeof path, "theirs/%s", cases[i].files[n]);
            test_put(path, "theirs");
        }
        assert_int_equal(sw_checkpoint_export(&o, quiet), cases[i].refused ? SW_E_ARG : SW_OK);
        if (cases[i].refused) {
            assert_non_null(strstr(sw_error_message(), "is not an export of spillway"));
            assert_int_equal(compare_files(o.folder, o.folder), n);
            for (int k = 0; k < n; k++) {
                snprintf(path, sizeof path, "theirs/%s", cases[i].files[k]);
                char *text = test_text(path);
                assert_string_equal(text, "theirs");
                sw_free(text);
            }
        }
        test_remove(o.folder);
    }
}

/* ---- ONNX ---- */

static const char *export_onnx(const char *path, const char *folder)
{
    const struct sw_onnx_options o = {
        .path = test_at(path), .folder = test_at(folder), .dtype = -1};
    if (sw_export_onnx(&o, quiet) < 0) {
        fail_msg("%s", sw_error_message());
    }
    return o.folder;
}

static void onnx_files_are_the_same_from_a_run_and_from_its_folder(void **state)
{
    (void)state;
    export_folder("base", "onnx_model", false);
    export_onnx("base", "onnx_run");
    export_onnx("onnx_model", "onnx_folder");
    test_same_file(test_at("onnx_run/model.onnx"), test_at("onnx_folder/model.onnx"));
    test_same_file(test_at("onnx_run/config.json"), test_at("onnx_folder/config.json"));
}

static void onnx_files_of_adapters_are_those_of_the_merged_model(void **state)
{
    (void)state;
    export_folder("lora", "onnx_merged", true);
    export_folder("lora", "onnx_adapter", false);
    export_onnx("lora", "onnx_lora");
    export_onnx("onnx_merged", "onnx_of_merged");
    export_onnx("onnx_adapter", "onnx_of_adapter");
    test_same_file(test_at("onnx_lora/model.onnx"), test_at("onnx_of_merged/model.onnx"));
    test_same_file(test_at("onnx_lora/model.onnx"), test_at("onnx_of_adapter/model.onnx"));
}

static void onnx_files_beside_weights_are_refused(void **state)
{
    (void)state;
    const struct sw_onnx_options o = {
        .path = test_at("base"), .folder = test_at("onnx_model"), .dtype = -1};
    export_folder("base", "onnx_model", false);
    assert_int_equal(sw_export_onnx(&o, quiet), SW_E_ARG);
    assert_non_null(strstr(sw_error_message(), "has weights of a model; name another folder"));
    export_onnx("base", "onnx_first");
    export_folder("base", "onnx_first", false); /* weights replace the file */
    assert_int_equal(access(test_at("onnx_first/model.onnx"), F_OK), -1);
}

/* Puts a python3 in front of PATH that keeps the case and ends with a status. */
static void put_python(int status)
{
    char text[600], path[600];
    snprintf(text, sizeof text, "#!/bin/sh\ncp \"$3\" %s\nexit %d\n", test_at("kept.safetensors"),
             status);
    sw_mkdirs(test_at("python"));
    test_put("python/python3", text);
    assert_int_equal(chmod(test_at("python/python3"), 0755), 0);
    snprintf(path, sizeof path, "%s:/usr/bin:/bin", test_at("python"));
    setenv("PATH", path, 1);
}

static void an_export_is_verified_where_there_is_onnx_runtime(void **state)
{
    (void)state;
    enum { AGREES = 0, DIFFERS = 1, FAILS = 2, NO_PACKAGE = 77 };
    static const int statuses[] = {AGREES, DIFFERS, FAILS, NO_PACKAGE};
    char *old = sw_strdup("test", getenv("PATH"));
    for (size_t i = 0; i < SW_LEN(statuses); i++) {
        const struct sw_onnx_options o = {
            .path = test_at("base"), .folder = test_at("verified"), .dtype = -1, .verify = true};
        test_remove(test_at("kept.safetensors"));
        put_python(statuses[i]);
        const bool fails = statuses[i] == DIFFERS || statuses[i] == FAILS;
        assert_int_equal(sw_export_onnx(&o, quiet), fails ? SW_E_PEER : SW_OK);
        assert_true(!fails || strstr(sw_error_message(), statuses[i] == DIFFERS
                                                             ? "ONNX Runtime does not agree with"
                                                             : "ONNX Runtime did not run"));
        assert_int_equal(access(test_at("kept.safetensors"), F_OK), 0);
        assert_int_equal(access(test_at("verified/.verify.safetensors"), F_OK), -1);
    }
    setenv("PATH", test_at("nothing"), 1);
    const struct sw_onnx_options o = {
        .path = test_at("base"), .folder = test_at("verified"), .dtype = -1, .verify = true};
    assert_int_equal(sw_export_onnx(&o, quiet), SW_OK);
    setenv("PATH", old, 1);
    sw_free(old);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(what_is_damaged_is_not_exported),
    cmocka_unit_test(a_killed_export_is_repeated),
    cmocka_unit_test(a_killed_export_of_adapters_is_repeated),
    cmocka_unit_test(a_killed_merge_is_repeated),
    cmocka_unit_test(adapters_and_a_model_are_not_in_one_folder),
    cmocka_unit_test(a_folder_of_others_is_refused),
    cmocka_unit_test(onnx_files_are_the_same_from_a_run_and_from_its_folder),
    cmocka_unit_test(onnx_files_of_adapters_are_those_of_the_merged_model),
    cmocka_unit_test(onnx_files_beside_weights_are_refused),
    cmocka_unit_test(an_export_is_verified_where_there_is_onnx_runtime),
};

const struct test_program sw_tests = {TEST_TABLE(tests), .setup = make_runs,
                                      .teardown = close_quiet};
