// SPDX-License-Identifier: Apache-2.0
// Whole files and fault points: contents, names in messages, and for every system call that changes
// the disk, that its failure leaves the old file and nothing else.
#include "base/base.h"

#include <errno.h>
#include <dirent.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "support/test.h"

static char root[64];
static char target[128];

static int make_root(void **state)
{
    (void)state;
    strcpy(root, "/tmp/spillway-file-XXXXXX");
    if (!mkdtemp(root)) {
        return -1;
    }
    snprintf(target, sizeof(target), "%s/file", root);
    return 0;
}

static int remove_root(void **state)
{
    (void)state;
    sw_fault_set(NULL);
    char command[128];
    snprintf(command, sizeof(command), "rm -rf '%s'", root);
    return system(command);
}

static int count_entries(void)
{
    int n = 0;
    DIR *dir = opendir(root);
    assert_non_null(dir);
    for (struct dirent *entry; (entry = readdir(dir));) {
        n += entry->d_name[0] != '.';
    }
    closedir(dir);
    return n;
}

static void assert_contents(const char *wanted)
{
    char *text;
    size_t len;
    assert_int_equal(sw_file_read(target, &text, &len), SW_OK);
    assert_int_equal(len, strlen(wanted));
    assert_string_equal(text, wanted);
    sw_free(text);
}

static void write_then_read(void **state)
{
    (void)state;
    assert_int_equal(sw_file_write_atomic(target, "old", 3), SW_OK);
    assert_contents("old");
    assert_int_equal(sw_file_write_atomic(target, "", 0), SW_OK);
    assert_contents("");
    assert_int_equal(count_entries(), 1);
}

static void relative_names(void **state)
{
    (void)state;
    char before[4096];
    assert_non_null(getcwd(before, sizeof(before)));
    assert_int_equal(chdir(root), 0);
    const sw_status st = sw_file_write_atomic("file", "here", 4);
    assert_int_equal(chdir(before), 0);
    assert_int_equal(st, SW_OK);
    assert_contents("here");
}

static void errors_name_the_path(void **state)
{
    (void)state;
    char *text = NULL;
    size_t len = 0;
    assert_int_equal(sw_file_read(target, &text, &len), SW_E_IO);
    assert_non_null(strstr(sw_error_message(), target));
    assert_non_null(strstr(sw_error_message(), "No such file"));
    assert_int_equal(sw_file_read(root, &text, &len), SW_E_IO);
    assert_non_null(strstr(sw_error_message(), "folder"));
    assert_int_equal(sw_file_read("/dev/null", &text, &len), SW_E_IO);
    assert_null(text);
    char nowhere[160];
    snprintf(nowhere, sizeof(nowhere), "%s/none/file", root);
    assert_int_equal(sw_file_write_atomic(nowhere, "x", 1), SW_E_IO);
    assert_non_null(strstr(sw_error_message(), nowhere));
    assert_int_equal(sw_file_write_atomic(target, "x", 1), SW_OK);
    sw_alloc_fail_nth(1);
    assert_int_equal(sw_file_read(target, &text, &len), SW_E_NOMEM);
    assert_null(text);
}

static void a_pointer_of_git_lfs_is_refused_by_name(void **state)
{
    static const char pointer[] =
        "version https://git-lfs.github.com/spec/v1\n"
        "oid sha256:4d7a214614ab2935c943f9e0ff69d22eadbb8f32b1258daaa5e2\n"
        "size 12345\n";
    static const char text[] = "version https://example.org/spec/v1 of something that is longer\n";
    char *read = NULL;
    size_t len = 0;
    (void)state;
    assert_int_equal(sw_file_write_atomic(target, pointer, sizeof pointer - 1), SW_OK);
    assert_int_equal(sw_file_read(target, &read, &len), SW_E_FORMAT);
    assert_non_null(strstr(sw_error_message(), target));
    assert_non_null(strstr(sw_error_message(), "git lfs pull"));
    assert_int_equal(sw_file_write_atomic(target, text, sizeof text - 1), SW_OK);
    assert_int_equal(sw_file_read(target, &read, &len), SW_OK);
    sw_free(read);
}

static void what_is_no_file_is_refused_at_once(void **state)
{
    (void)state;
    char *text = NULL;
    size_t len = 0;
    assert_int_equal(mkfifo(target, 0600), 0);
    alarm(20); /* who waits for a writer waits for ever */
    assert_int_equal(sw_file_read(target, &text, &len), SW_E_IO);
    assert_non_null(strstr(sw_error_message(), target));
    assert_non_null(strstr(sw_error_message(), "not a regular file"));
    assert_int_equal(sw_file_read("/dev/zero", &text, &len), SW_E_IO);
    char to[160];
    snprintf(to, sizeof(to), "%s/to", root);
    assert_int_equal(sw_file_copy(target, to), SW_E_IO);
    assert_int_equal(sw_file_copy(root, to), SW_E_IO);
    alarm(0);
    assert_int_equal(count_entries(), 1);
    unlink(target);
}

static void a_file_that_becomes_shorter_is_an_error(void **state)
{
    (void)state;
    char bytes[8];
    int fd;
    size_t len;
    assert_int_equal(sw_file_write_atomic(target, "12345678", 8), SW_OK);
    assert_int_equal(sw_file_open(target, &fd, &len), SW_OK);
    assert_int_equal(len, 8);
    assert_int_equal(sw_file_read_at(fd, target, bytes, 4, 4), SW_OK);
    assert_memory_equal(bytes, "5678", 4);
    assert_int_equal(truncate(target, 6), 0);
    assert_int_equal(sw_file_read_at(fd, target, bytes, 4, 4), SW_E_IO);
    assert_non_null(strstr(sw_error_message(), target));
    assert_non_null(strstr(sw_error_message(), "shorter"));
    close(fd);
}

static void copies_are_whole_or_not_there(void **state)
{
    (void)state;
    enum { LEN = 600001 };
    char *bytes = malloc(LEN), to[160];
    assert_non_null(bytes);
    for (size_t i = 0; i < LEN; i++) {
        bytes[i] = (char)(i % 251);
    }
    snprintf(to, sizeof(to), "%s/to", root);
    assert_int_equal(sw_file_write_atomic(to, bytes, LEN), SW_OK);
    struct sw_alloc_stats before, after;
    sw_alloc_get_stats(&before);
    assert_int_equal(sw_file_copy(to, target), SW_OK);
    sw_alloc_get_stats(&after);
    assert_true(after.peak_bytes - before.live_bytes < LEN); /* not read whole */
    char *text;
    size_t len;
    assert_int_equal(sw_file_read(target, &text, &len), SW_OK);
    assert_int_equal(len, LEN);
    assert_memory_equal(text, bytes, LEN);
    sw_free(text);
    assert_int_equal(sw_file_write_atomic(target, "old", 3), SW_OK);
    for (int n = 1; n <= 3; n++) { /* each of its blocks */
        char spec[32];
        snprintf(spec, sizeof(spec), "write:%d:enospc", n);
        assert_int_equal(sw_fault_set(spec), SW_OK);
        assert_int_equal(sw_file_copy(to, target), SW_E_IO);
        assert_int_equal(sw_fault_set(NULL), SW_OK);
        assert_contents("old");
        assert_int_equal(count_entries(), 2);
    }
    free(bytes);
}

static void folders(void **state)
{
    (void)state;
    char deep[160], under_file[200];
    snprintf(deep, sizeof(deep), "%s/a/b//c/", root);
    assert_int_equal(sw_mkdirs(deep), SW_OK);
    assert_int_equal(sw_mkdirs(deep), SW_OK);
    assert_true(sw_is_folder(deep));
    assert_false(sw_is_folder(target)); /* it is not there yet */
    assert_int_equal(sw_file_write_atomic(target, "x", 1), SW_OK);
    assert_false(sw_is_folder(target));
    snprintf(under_file, sizeof(under_file), "%s/link", root);
    assert_int_equal(symlink("a/b", under_file), 0);
    assert_true(sw_is_folder(under_file));
    assert_int_equal(unlink(under_file), 0);
    snprintf(under_file, sizeof(under_file), "%s/sub", target);
    assert_int_equal(sw_mkdirs(under_file), SW_E_IO);
    assert_non_null(strstr(sw_error_message(), target));
    assert_int_equal(sw_mkdirs(target), SW_E_IO);
    assert_int_equal(sw_mkdirs(""), SW_E_ARG);
}

static void each_failing_call_leaves_the_old_file(void **state)
{
    (void)state;
    static const struct {
        const char *fault, *message;
    } rows[] = {{"create:1:enospc", "No space left"},
                {"write:1:enospc", "No space left"},
                {"write:1:eio", "Input/output"},
                {"fsync:1:eio", "Input/output"},
                {"rename:1:eio", "Input/output"}};
    for (size_t i = 0; i < SW_LEN(rows); i++) {
        assert_int_equal(sw_file_write_atomic(target, "old", 3), SW_OK);
        assert_int_equal(sw_fault_set(rows[i].fault), SW_OK);
        assert_int_equal(sw_file_write_atomic(target, "new text", 8), SW_E_IO);
        assert_non_null(strstr(sw_error_message(), rows[i].message));
        assert_non_null(strstr(sw_error_message(), target));
        assert_int_equal(sw_fault_set(NULL), SW_OK);
        assert_contents("old");
        assert_int_equal(count_entries(), 1);
    }
}

static void short_writes_are_continued(void **state)
{
    (void)state;
    assert_int_equal(sw_fault_set("write:1:short,write:2:short"), SW_OK);
    assert_int_equal(sw_file_write_atomic(target, "all of it", 9), SW_OK);
    assert_contents("all of it");
}

static void killed_between_any_two_calls(void **state)
{
    (void)state;
    static const char *const faults[] = {"create:1:kill", "write:1:kill", "fsync:1:kill",
                                         "rename:1:kill", "fsync:2:kill"};
    for (size_t i = 0; i < SW_LEN(faults); i++) {
        assert_int_equal(sw_file_write_atomic(target, "old", 3), SW_OK);
        const pid_t child = fork();
        if (child == 0) {
            sw_fault_set(faults[i]);
            sw_file_write_atomic(target, "new", 3);
            _exit(0);
        }
        int status = 0;
        assert_int_equal(waitpid(child, &status, 0), child);
        assert_true(WIFSIGNALED(status) && WTERMSIG(status) == 9);
        assert_contents(i < 4 ? "old" : "new");
    }
}

static void fault_specifications(void **state)
{
    (void)state;
    static const char *const bad[] = {"x",
                                      "x:1",
                                      ":1:eio",
                                      "x:0:eio",
                                      "x:-1:eio",
                                      "x:eio",
                                      "x:1:later",
                                      "x:1:eio,y:2",
                                      "x:1:",
                                      "x:1eio",
                                      "x:99999999999999999999:eio"};
    assert_int_equal(sw_fault_set("a:3:eio,b:1:short"), SW_OK);
    for (size_t i = 0; i < SW_LEN(bad); i++) {
        assert_int_equal(sw_fault_set(bad[i]), SW_E_ARG);
        assert_non_null(strstr(sw_error_message(), "fault \""));
    }
    /* The faults set before remain: the third pass through `a` fails once. */
    assert_int_equal(sw_fault_point("a"), SW_FAULT_NONE);
    assert_int_equal(sw_fault_point("b"), SW_FAULT_SHORT);
    assert_int_equal(sw_fault_point("b"), SW_FAULT_NONE);
    assert_int_equal(sw_fault_point("a"), SW_FAULT_NONE);
    assert_int_equal(sw_fault_point("a"), SW_FAULT_EIO);
    assert_int_equal(sw_fault_point("a"), SW_FAULT_NONE);
    assert_int_equal(sw_fault_set(NULL), SW_OK);
    assert_int_equal(sw_fault_set("a:1:enospc"), SW_OK);
    assert_int_equal(sw_fault_point("a"), SW_FAULT_ENOSPC);
    assert_int_equal(sw_fault_set("a:1:enospc"), SW_OK);
    assert_int_equal(sw_fault_set(NULL), SW_OK);
    assert_int_equal(sw_fault_point("a"), SW_FAULT_NONE);
}

static void a_fault_is_an_errno_or_fewer_bytes(void **state)
{
    (void)state;
    size_t len = 9;
    assert_int_equal(sw_fault_set("a:1:eio,a:2:enospc,a:3:short,a:4:short"), SW_OK);
    assert_true(sw_fault_fails("a", &len) && errno == EIO);
    assert_true(sw_fault_fails("a", NULL) && errno == ENOSPC);
    assert_int_equal(len, 9);
    assert_false(sw_fault_fails("a", &len));
    assert_int_equal(len, 5);
    assert_false(sw_fault_fails("a", NULL));
    assert_false(sw_fault_fails("a", &len));
    assert_int_equal(len, 5);
    assert_int_equal(sw_fault_set(NULL), SW_OK);
}

static void the_folder_of_a_path(void **state)
{
    (void)state;
    static const char *const cases[][2] = {
        {"name", "."}, {"/name", "/"}, {"a/name", "a"}, {"/a/b/name", "/a/b"}, {"a/", "a"}};
    char folder[16];
    for (size_t i = 0; i < SW_LEN(cases); i++) {
        assert_true(sw_folder_of(cases[i][0], folder, sizeof folder));
        assert_string_equal(folder, cases[i][1]);
    }
    assert_true(sw_folder_of("abc/name", folder, 4));
    assert_false(sw_folder_of("abcd/name", folder, 4));
}

#define IN_FOLDER(f) cmocka_unit_test_setup_teardown(f, make_root, remove_root)

static const struct CMUnitTest tests[] = {
    IN_FOLDER(the_folder_of_a_path),
    IN_FOLDER(write_then_read),
    IN_FOLDER(relative_names),
    IN_FOLDER(errors_name_the_path),
    IN_FOLDER(a_pointer_of_git_lfs_is_refused_by_name),
    IN_FOLDER(what_is_no_file_is_refused_at_once),
    IN_FOLDER(a_file_that_becomes_shorter_is_an_error),
    IN_FOLDER(copies_are_whole_or_not_there),
    IN_FOLDER(folders),
    IN_FOLDER(each_failing_call_leaves_the_old_file),
    IN_FOLDER(short_writes_are_continued),
    IN_FOLDER(killed_between_any_two_calls),
    IN_FOLDER(fault_specifications),
    IN_FOLDER(a_fault_is_an_errno_or_fewer_bytes),
};

const struct test_program sw_tests = {TEST_TABLE(tests)};
