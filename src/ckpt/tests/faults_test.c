// SPDX-License-Identifier: Apache-2.0
// Saves that end early: killed at, or failing in, every write, fsync, rename, unlink and mkdir, one
// after the other, until a save passes untouched. What is read afterwards is the old state or the
// new one, and the next save works and clears up. Full disks: a real one where the tests run as
// root.
#include "ckpt/tests/helpers.h"

#include <signal.h>
#include <sys/mount.h>
#include <sys/wait.h>
#include <unistd.h>

#include "support/test.h"

enum { SAVED = 0, FAILED = 1, UNTOUCHED = 2, BAD_MESSAGE = 3 }; /* exit codes of the child */

struct scenario {
    const char *name;
    int64_t old_step, new_step; /* old 0: there is none */
    int n_writers;
};
static const struct scenario scenarios[] = {
    {"first save", 0, 7, 1},
    {"next save", 5, 7, 1},
    {"same step again", 7, 7, 1},
    {"three writers", 5, 7, 3},
};
static const char *const points[] = {"mkdir", "write", "fsync", "rename", "unlink"};

enum { OLD_SEED = 11, NEW_SEED = 22 };

/* Runs in the child: never returns. */
static void save_with_fault(const struct scenario *scenario, const char *root, const char *dir,
                            const char *point, const char *action, int n)
{
    char spec[64];
    sw_log_set_level(SW_LOG_ERROR);
    snprintf(spec, sizeof(spec), "%s:%d:%s", point, n, action);
    sw_fault_set(spec);
    const sw_status st = save_state(dir, scenario->new_step, NEW_SEED, scenario->n_writers, 1, NAN);
    if (st < 0) {
        const char *text = sw_error_message();
        _exit(st == SW_E_IO && strstr(text, root) && !strchr(text, '\n') ? FAILED : BAD_MESSAGE);
    }
    for (int i = 0; i < 1000; i++) {
        if (sw_fault_point(point) != SW_FAULT_NONE) {
            _exit(UNTOUCHED);
        }
    }
    _exit(SAVED);
}

static uint64_t newest_seed(const char *dir)
{
    struct sw_ckpt *ckpt;
    if (sw_ckpt_open(dir, &ckpt) != SW_OK) {
        return 0;
    }
    const uint64_t seed = sw_ckpt_meta(ckpt)->seed;
    sw_ckpt_close(ckpt);
    return seed;
}

/* One save with one fault, from a fresh start. False when the save met no fault. */
static bool run_one(const struct scenario *scenario, const char *point, const char *action, int n)
{
    char root[64], dir[128];
    make_root(root);
    snprintf(dir, sizeof(dir), "%s/run/checkpoints", root);
    if (scenario->old_step) {
        assert_int_equal(save_state(dir, scenario->old_step, OLD_SEED, 1, 1, NAN), SW_OK);
    }
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        save_with_fault(scenario, root, dir, point, action, n);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    const bool killed = WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL;
    const int code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
    const int64_t step = newest_step(dir);
    const uint64_t seed = newest_seed(dir);
    const bool is_new = step == scenario->new_step && seed == NEW_SEED;
    const bool is_old =
        scenario->old_step ? step == scenario->old_step && seed == OLD_SEED : step == 0;
    const bool saved = code == SAVED || code == UNTOUCHED;
    if ((!killed && !saved && code != FAILED) || !(is_new || (is_old && !saved))) {
        fail_msg("%s, %s:%d:%s: child %s %d, step %lld", scenario->name, point, n, action,
                 killed ? "killed" : "exit", code, (long long)step);
    }
    /* Life goes on: the next save works, and nothing of the broken one is left. */
    sw_log_set_level(SW_LOG_ERROR);
    assert_int_equal(save_state(dir, 9, 33, 1, 1, NAN), SW_OK);
    sw_log_set_level(SW_LOG_WARN);
    assert_int_equal(newest_step(dir), 9);
    assert_int_equal(count_leftovers(dir), 0);
    remove_tree(root);
    return code != UNTOUCHED;
}

static void run_scenario(const struct scenario *scenario)
{
    int n_faults = 0;
    for (size_t i_point = 0; i_point < SW_LEN(points); i_point++) {
        int n = 1;
        while (run_one(scenario, points[i_point], "eio", n)) {
            n++;
        }
        for (int i = 1; i < n; i++) {
            run_one(scenario, points[i_point], "kill", i);
            run_one(scenario, points[i_point], "enospc", i);
        }
        n_faults += n - 1;
    }
    print_message("%s: %d calls that change the disk\n", scenario->name, n_faults);
    assert_true(n_faults >= 15);
}

static void first_save(void **test_state)
{
    (void)test_state;
    run_scenario(&scenarios[0]);
}

static void next_save(void **test_state)
{
    (void)test_state;
    run_scenario(&scenarios[1]);
}

static void same_step_again(void **test_state)
{
    (void)test_state;
    run_scenario(&scenarios[2]);
}

static void three_writers(void **test_state)
{
    (void)test_state;
    run_scenario(&scenarios[3]);
}

static void short_writes_are_continued(void **test_state)
{
    (void)test_state;
    char root[64];
    make_root(root);
    assert_int_equal(sw_fault_set("write:1:short,write:2:short,write:5:short"), SW_OK);
    assert_int_equal(save_state(root, 3, 1, 1, 0, NAN), SW_OK);
    assert_int_equal(sw_fault_set(NULL), SW_OK);
    assert_int_equal(newest_step(root), 3);
    remove_tree(root);
}

static void every_failed_allocation_is_a_status(void **test_state)
{
    (void)test_state;
    char root[64];
    make_root(root);
    struct sw_alloc_stats before, after;
    sw_log_set_level(SW_LOG_ERROR);
    assert_int_equal(save_state(root, 1, 1, 1, 1, NAN), SW_OK);
    sw_alloc_get_stats(&before);
    sw_status st = SW_E_NOMEM;
    int n = 1;
    for (; st == SW_E_NOMEM; n++) {
        sw_alloc_fail_nth(n);
        st = save_state(root, 2, 2, 1, 1, NAN);
        sw_alloc_fail_nth(0);
        assert_true(st == SW_OK || st == SW_E_NOMEM);
        assert_true(newest_step(root) >= 1);
    }
    assert_true(n > 10);
    assert_int_equal(newest_step(root), 2);
    st = SW_E_NOMEM;
    for (n = 1; st == SW_E_NOMEM; n++) {
        struct sw_ckpt *ckpt;
        sw_alloc_fail_nth(n);
        st = sw_ckpt_open(root, &ckpt);
        sw_alloc_fail_nth(0);
        if (st == SW_OK) {
            sw_ckpt_close(ckpt);
        }
    }
    assert_int_equal(st, SW_OK);
    sw_alloc_get_stats(&after);
    assert_int_equal(after.live_blocks, before.live_blocks);
    sw_log_set_level(SW_LOG_WARN);
    remove_tree(root);
}

/* ---- what fails once the checkpoint has its name ---- */

static void a_marker_that_cannot_be_written_fails_the_save(void **test_state)
{
    (void)test_state;
    static const char *const markers[] = {"latest", "best"};
    for (size_t i = 0; i < SW_LEN(markers); i++) {
        char root[64], in_the_way[160];
        make_root(root);
        assert_int_equal(save_state(root, 1, OLD_SEED, 1, 1, NAN), SW_OK);
        snprintf(in_the_way, sizeof(in_the_way), "%s/%s", root, markers[i]);
        unlink(in_the_way);
        snprintf(in_the_way, sizeof(in_the_way), "%s/%s/full", root, markers[i]);
        assert_int_equal(sw_mkdirs(in_the_way), SW_OK); /* no file takes the name of a folder */
        assert_int_equal(save_state(root, 2, NEW_SEED, 1, 1, 0.5), SW_E_IO);
        snprintf(in_the_way, sizeof(in_the_way), "%s/%s", root, markers[i]);
        assert_non_null(strstr(sw_error_message(), in_the_way));
        assert_non_null(strstr(sw_error_message(), "checkpoint-2 is saved, but"));
        assert_int_equal(newest_step(root), 2);
        remove_tree(root);
    }
}

struct heard {
    int n;
    char text[1024];
};

static void hear(void *ctx, enum sw_log_level level, const char *text)
{
    struct heard *heard = ctx;
    heard->n += level <= SW_LOG_WARN;
    snprintf(heard->text, sizeof(heard->text), "%s", text);
}

/* Every unlink of a save fails once: where the save goes on, somebody has said what was not
 * removed. */
static void a_clean_up_that_fails_is_named(void **test_state)
{
    (void)test_state;
    int n_named = 0;
    for (int n = 1; n < 100; n++) {
        char root[64], spec[32];
        struct heard heard = {0};
        make_root(root);
        assert_int_equal(save_state(root, 1, OLD_SEED, 1, 1, NAN), SW_OK);
        snprintf(spec, sizeof(spec), "unlink:%d:eio", n);
        sw_log_set_sink(hear, &heard);
        sw_fault_set(spec);
        const sw_status st = save_state(root, 2, NEW_SEED, 2, 1, NAN);
        const bool untouched = n > 1 && heard.n == 0 && st == SW_OK;
        sw_fault_set(NULL);
        sw_log_set_sink(NULL, NULL);
        if (st == SW_OK && !untouched) {
            assert_non_null(strstr(heard.text, "checkpoint-1 for now"));
            assert_int_equal(newest_step(root), 2);
            n_named++;
        }
        if (untouched) { /* the fault lies behind the last one: all is gone */
            assert_int_equal(count_leftovers(root), 0);
        }
        remove_tree(root);
        if (untouched) {
            break;
        }
    }
    assert_true(n_named >= 3); /* manifest, data, folder */
}

/* A save was killed when the old checkpoint had lost its name, and the disk then fails for a while:
 * a manifest that is a loop of links is there and cannot be read. */
static void what_cannot_be_read_for_now_is_not_removed(void **test_state)
{
    (void)test_state;
    char root[64], whole[96], retired[96], manifest[128], aside[128];
    struct heard heard = {0};
    make_root(root);
    snprintf(whole, sizeof(whole), "%s/checkpoint-1", root);
    snprintf(retired, sizeof(retired), "%s/checkpoint-1.old", root);
    snprintf(manifest, sizeof(manifest), "%s/manifest.json", retired);
    snprintf(aside, sizeof(aside), "%s/manifest", root);
    assert_int_equal(save_state(root, 1, OLD_SEED, 1, 0, NAN), SW_OK);
    assert_int_equal(rename(whole, retired), 0);
    assert_int_equal(rename(manifest, aside), 0);
    assert_int_equal(symlink("manifest.json", manifest), 0);
    sw_log_set_sink(hear, &heard);
    assert_int_equal(save_state(root, 2, NEW_SEED, 1, 0, NAN), SW_OK);
    sw_log_set_sink(NULL, NULL);
    assert_non_null(strstr(heard.text, "checkpoint-1.old is left for now: "));
    assert_int_equal(newest_step(root), 2);
    assert_int_equal(rename(aside, manifest), 0);
    sw_log_set_level(SW_LOG_ERROR);
    assert_int_equal(save_state(root, 3, NEW_SEED, 1, 0, NAN), SW_OK);
    sw_log_set_level(SW_LOG_WARN);
    assert_int_equal(newest_step(whole), 1);
    remove_tree(root);
}

/* Disks of growing size: the first save that does not fit leaves the old checkpoint, until one
 * fits. */
static void full_disk(void **test_state)
{
    (void)test_state;
    char root[64];
    make_root(root);
    bool fitted = false;
    int n_full = 0;
    for (int kib = 4; kib <= 128 && !fitted; kib += 4) {
        char size[32];
        snprintf(size, sizeof(size), "size=%dk", kib);
        if (mount("spillway", root, "tmpfs", 0, size) != 0) {
            remove_tree(root);
            skip();
        }
        sw_status old = save_state(root, 1, OLD_SEED, 1, 1, NAN);
        sw_status st = old == SW_OK ? save_state(root, 2, NEW_SEED, 3, 1, NAN) : SW_E_IO;
        if (st < 0) {
            assert_int_equal(st, SW_E_IO);
            assert_non_null(strstr(sw_error_message(), "No space left"));
            assert_non_null(strstr(sw_error_message(), root));
            n_full++;
        }
        const int64_t step = newest_step(root);
        fitted = st == SW_OK;
        umount(root);
        assert_true(fitted         ? step == 2
                    : old == SW_OK ? step == 1 || step == 2
                                   : step == 0 || step == 1);
    }
    remove_tree(root);
    assert_true(fitted);
    assert_true(n_full > 0);
    print_message("%d disks were too small\n", n_full);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(first_save),
    cmocka_unit_test(next_save),
    cmocka_unit_test(same_step_again),
    cmocka_unit_test(three_writers),
    cmocka_unit_test(short_writes_are_continued),
    cmocka_unit_test(every_failed_allocation_is_a_status),
    cmocka_unit_test(a_marker_that_cannot_be_written_fails_the_save),
    cmocka_unit_test(a_clean_up_that_fails_is_named),
    cmocka_unit_test(what_cannot_be_read_for_now_is_not_removed),
    cmocka_unit_test(full_disk),
};

const struct test_program sw_tests = {TEST_TABLE(tests)};
