// SPDX-License-Identifier: Apache-2.0
// Outputs by name: what is no regular file is never replaced, streams are written front to back,
// and of temporary files only those of dead writers go.
#include "base/base.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "support/test.h"

static char root[64], target[128];

static int make_root(void **state)
{
    (void)state;
    strcpy(root, "/tmp/spillway-output-XXXXXX");
    if (!mkdtemp(root)) {
        return -1;
    }
    snprintf(target, sizeof target, "%s/file", root);
    return 0;
}

static int remove_root(void **state)
{
    (void)state;
    sw_fault_set(NULL);
    char command[128];
    snprintf(command, sizeof command, "rm -rf '%s'", root);
    return system(command);
}

static const char *in_root(const char *name)
{
    static char path[1024];
    snprintf(path, sizeof path, "%s/%s", root, name);
    return path;
}

static bool is_there(const char *name)
{
    struct stat info;
    return lstat(in_root(name), &info) == 0;
}

static int count_temps(void)
{
    int n = 0;
    DIR *dir = opendir(root);
    assert_non_null(dir);
    for (struct dirent *entry; (entry = readdir(dir));) {
        const size_t len = strlen(entry->d_name);
        n += len > 4 && strcmp(entry->d_name + len - 4, ".tmp") == 0;
    }
    closedir(dir);
    return n;
}

static void put(const char *path, const char *text)
{
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    assert_true(fputs(text, file) >= 0);
    assert_int_equal(fclose(file), 0);
}

static void expect_text(const char *path, const char *wanted)
{
    char text[256] = "";
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    text[fread(text, 1, sizeof text - 1, file)] = '\0';
    fclose(file);
    assert_string_equal(text, wanted);
}

/* ---- what is refused ---- */

static void make_link(void)
{
    put(in_root("aim"), "kept");
    assert_int_equal(symlink("aim", target), 0);
}

static void make_dangling_link(void)
{
    assert_int_equal(symlink("nothing", target), 0);
}

static void make_folder(void)
{
    assert_int_equal(mkdir(target, 0700), 0);
}

static void make_fifo(void)
{
    assert_int_equal(mkfifo(target, 0600), 0);
}

static void make_socket(void)
{
    struct sockaddr_un name = {.sun_family = AF_UNIX};
    const int fd = socket(AF_UNIX, SOCK_STREAM, 0);
    memcpy(name.sun_path, target, strlen(target) + 1);
    assert_true(fd >= 0 && bind(fd, (struct sockaddr *)&name, sizeof name) == 0);
    close(fd);
}

static void make_null(void)
{
    if (mknod(target, S_IFCHR | 0666, makedev(1, 3)) != 0) {
        skip(); /* for the superuser alone */
    }
}

static void make_zero(void)
{
    if (mknod(target, S_IFCHR | 0666, makedev(1, 5)) != 0) {
        skip();
    }
}

static void make_block(void)
{
    if (mknod(target, S_IFBLK | 0600, makedev(7, 250)) != 0) {
        skip();
    }
}

static void expect_refused(sw_status st, const char *kind)
{
    assert_int_equal(st, SW_E_IO);
    assert_non_null(strstr(sw_error_message(), target));
    assert_non_null(strstr(sw_error_message(), kind));
}

/* Every way of writing by name refuses it, and it stays what it is. */
static void refuses(void (*make)(void), const char *kind, bool or_stream)
{
    struct stat before, after;
    struct sw_output out;
    int fd;
    make();
    put(in_root("source"), "text");
    assert_int_equal(lstat(target, &before), 0);
    alarm(20); /* whoever waits for a reader waits for ever */
    expect_refused(sw_output_open(target, or_stream, &out), kind);
    expect_refused(sw_file_write_atomic(target, "new", 3), kind);
    expect_refused(sw_file_copy(in_root("source"), target), kind);
    expect_refused(sw_file_append(target, &fd), kind);
    alarm(0);
    assert_int_equal(lstat(target, &after), 0);
    assert_int_equal(before.st_ino, after.st_ino);
    assert_int_equal(before.st_mode, after.st_mode);
    assert_int_equal(count_temps(), 0);
    if (is_there("aim")) {
        expect_text(in_root("aim"), "kept");
    }
    assert_false(is_there("nothing"));
}

#define REFUSES(name, make, kind, or_stream)                                                       \
    static void name(void **state)                                                                 \
    {                                                                                              \
        (void)state;                                                                               \
        refuses(make, kind, or_stream);                                                            \
    }
REFUSES(a_link_is_refused, make_link, "symbolic link", true)
REFUSES(a_dangling_link_is_refused, make_dangling_link, "symbolic link", true)
REFUSES(a_folder_is_refused, make_folder, "a folder", true)
REFUSES(a_socket_is_refused, make_socket, "a socket", true)
REFUSES(a_block_device_is_refused, make_block, "a block device", true)
REFUSES(another_device_is_refused, make_zero, "a character device", true)
REFUSES(a_fifo_is_refused_where_a_file_is_wanted, make_fifo, "a FIFO", false)
REFUSES(the_null_device_is_refused_where_a_file_is_wanted, make_null, "a character device", false)

/* A link that appears between opening and committing stays, too. */
static void what_appears_meanwhile_stays(void **state)
{
    (void)state;
    struct sw_output out;
    assert_int_equal(sw_output_open(target, true, &out), SW_OK);
    assert_int_equal(out.kind, SW_OUTPUT_NEW);
    assert_int_equal(sw_output_begin(&out), SW_OK);
    assert_int_equal(sw_output_add(&out, "new", 3), SW_OK);
    make_link();
    expect_refused(sw_output_commit(&out, true), "symbolic link");
    sw_output_close(&out);
    expect_text(target, "kept");
    assert_int_equal(count_temps(), 0);
}

/* ---- streams ---- */

static void the_null_device_stays(void **state)
{
    (void)state;
    struct stat info;
    struct sw_output out;
    make_null();
    assert_int_equal(sw_output_open(target, true, &out), SW_OK);
    assert_int_equal(out.kind, SW_OUTPUT_STREAM);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(sw_output_put(&out, "text", 4, true), SW_OK);
    }
    sw_output_close(&out);
    assert_int_equal(sw_output_text(target, "text", 4), SW_OK);
    assert_int_equal(lstat(target, &info), 0);
    assert_true(S_ISCHR(info.st_mode) && info.st_rdev == makedev(1, 3));
    assert_int_equal(sw_output_text("/dev/null", "text", 4), SW_OK);
    assert_int_equal(lstat("/dev/null", &info), 0);
    assert_true(S_ISCHR(info.st_mode));
}

/* The reader comes late, gets each text, and its end is an error, not the end of the program. */
static void a_fifo_gets_the_texts(void **state)
{
    (void)state;
    char got[16] = "";
    struct sw_output out;
    int status = 0;
    make_fifo();
    const pid_t child = fork();
    if (child == 0) {
        usleep(30000);
        const int fd = open(target, O_RDONLY);
        size_t n = 0;
        for (ssize_t more; n < 6 && (more = read(fd, got + n, 6 - n)) > 0; n += (size_t)more) {
        }
        _exit(strcmp(got, "onetwo") != 0);
    }
    assert_int_equal(sw_output_open(target, true, &out), SW_OK);
    assert_int_equal(sw_output_put(&out, "one", 3, true), SW_OK);
    assert_int_equal(sw_output_put(&out, "two", 3, true), SW_OK);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    expect_refused(sw_output_put(&out, "more", 4, true), strerror(EPIPE));
    sw_output_close(&out);
    struct stat info;
    assert_int_equal(lstat(target, &info), 0);
    assert_true(S_ISFIFO(info.st_mode));
}

/* A file that a shell redirected to is written where it stands, and not emptied. */
static void descriptors_are_written_as_they_are_open(void **state)
{
    (void)state;
    static const char *const names[] = {"/dev/fd/%d", "/proc/self/fd/%d"};
    char path[64];
    const int fd = open(target, O_WRONLY | O_CREAT, 0600);
    assert_int_equal(write(fd, "first", 5), 5);
    for (size_t i = 0; i < SW_LEN(names); i++) {
        snprintf(path, sizeof path, names[i], fd);
        assert_int_equal(sw_output_text(path, " next", 5), SW_OK);
    }
    assert_int_equal(write(fd, " last", 5), 5);
    close(fd);
    expect_text(target, "first next next last");
    const int reads = open(target, O_RDONLY);
    snprintf(path, sizeof path, "/dev/fd/%d", reads);
    assert_int_equal(sw_output_text(path, "x", 1), SW_E_IO);
    assert_non_null(strstr(sw_error_message(), "reading only"));
    close(reads);
    assert_int_equal(sw_output_text(path, "x", 1), SW_E_IO);
    assert_non_null(strstr(sw_error_message(), path));
    assert_int_equal(sw_output_text("/dev/fd/x", "x", 1), SW_E_IO);
}

static void standard_output_is_written_in_order(void **state)
{
    (void)state;
    int status = 0;
    fflush(NULL);
    const pid_t child = fork();
    if (child == 0) {
        const int fd = open(target, O_WRONLY | O_CREAT, 0600);
        dup2(fd, 1);
        dup2(fd, 2);
        printf("before ");
        const bool good = sw_output_text("/dev/stdout", "out ", 4) == SW_OK &&
                          sw_output_text("/dev/stderr", "err ", 4) == SW_OK;
        printf("after");
        fflush(stdout);
        _exit(!good);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    expect_text(target, "before out err after");
}

/* ---- temporary files ---- */

static void what_a_killed_writer_left_goes(void **state)
{
    (void)state;
    static const char *const faults[] = {"write:1:kill", "fsync:1:kill", "rename:1:kill"};
    for (size_t i = 0; i < SW_LEN(faults); i++) {
        int status = 0;
        const pid_t child = fork();
        if (child == 0) {
            sw_fault_set(faults[i]);
            sw_file_write_atomic(target, "new", 3);
            _exit(0);
        }
        assert_int_equal(waitpid(child, &status, 0), child);
        assert_true(WIFSIGNALED(status));
        assert_int_equal(count_temps(), 1);
        assert_int_equal(sw_file_write_atomic(in_root("fil"), "x", 1), SW_OK);
        assert_int_equal(count_temps(), 1); /* of another file */
        assert_int_equal(sw_file_write_atomic(target, "next", 4), SW_OK);
        assert_int_equal(count_temps(), 0);
        expect_text(target, "next");
    }
}

static void what_a_living_writer_writes_stays(void **state)
{
    (void)state;
    struct sw_output mine;
    int ready[2], status = 0;
    char byte;
    assert_int_equal(pipe(ready), 0);
    const pid_t child = fork();
    if (child == 0) {
        struct sw_output out;
        const bool good = sw_output_open(target, true, &out) == SW_OK &&
                          sw_output_begin(&out) == SW_OK && write(ready[1], "x", 1) == 1;
        pause();
        _exit(!good);
    }
    assert_int_equal(read(ready[0], &byte, 1), 1);
    assert_int_equal(sw_output_open(target, true, &mine), SW_OK);
    assert_int_equal(sw_output_begin(&mine), SW_OK);
    assert_int_equal(count_temps(), 2);
    assert_int_equal(sw_file_write_atomic(target, "between", 7), SW_OK);
    assert_int_equal(count_temps(), 2); /* of the other process, and of this one */
    assert_int_equal(sw_output_add(&mine, "mine", 4), SW_OK);
    assert_int_equal(sw_output_commit(&mine, true), SW_OK);
    sw_output_close(&mine);
    expect_text(target, "mine");
    assert_int_equal(count_temps(), 1);
    kill(child, SIGKILL);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(sw_file_write_atomic(target, "last", 4), SW_OK);
    assert_int_equal(count_temps(), 0);
    close(ready[0]);
    close(ready[1]);
}

static void what_strangers_named_alike_stays(void **state)
{
    (void)state;
    static const char *const names[] = {"file.tmp",
                                        "file.12-0.tmp",
                                        "file.spillway-.tmp",
                                        "file.spillway-1.tmp",
                                        "file.spillway-1-.tmp",
                                        "file.spillway-1-2.tmp.old",
                                        "file.spillway-a-2.tmp",
                                        "file2.spillway-1-2.tmp",
                                        "a.file.spillway-1-2.tmp"};
    for (size_t i = 0; i < SW_LEN(names); i++) {
        put(in_root(names[i]), names[i]);
    }
    put(in_root("other"), "x");
    char other[1024];
    snprintf(other, sizeof other, "%s", in_root("other"));
    assert_int_equal(symlink("other", in_root("file.spillway-1-3.tmp")), 0);
    assert_int_equal(link(other, in_root("file.spillway-1-4.tmp")), 0);
    assert_int_equal(mkdir(in_root("file.spillway-1-5.tmp"), 0700), 0);
    assert_int_equal(mkfifo(in_root("file.spillway-1-6.tmp"), 0600), 0);
    alarm(20);
    assert_int_equal(sw_file_write_atomic(target, "text", 4), SW_OK);
    alarm(0);
    for (size_t i = 0; i < SW_LEN(names); i++) {
        expect_text(in_root(names[i]), names[i]);
    }
    for (int i = 3; i <= 6; i++) {
        char name[64];
        snprintf(name, sizeof name, "file.spillway-1-%d.tmp", i);
        assert_true(is_there(name));
    }
    expect_text(target, "text");
}

static void no_name_is_refused(void **state)
{
    (void)state;
    struct sw_output out;
    int fd;
    assert_int_equal(sw_output_open("", true, &out), SW_E_IO);
    assert_non_null(strstr(sw_error_message(), "wanted the name of a file"));
    assert_int_equal(sw_file_append("", &fd), SW_E_IO);
    assert_non_null(strstr(sw_error_message(), "wanted the name of a file"));
}

static void the_longest_name_is_written(void **state)
{
    (void)state;
    char name[256], path[400];
    memset(name, 'n', 255);
    name[255] = '\0';
    snprintf(path, sizeof path, "%s/%s", root, name);
    assert_int_equal(sw_file_write_atomic(path, "old", 3), SW_OK);
    assert_int_equal(sw_file_write_atomic(path, "new", 3), SW_OK);
    expect_text(path, "new");
    assert_int_equal(count_temps(), 0);
}

#define IN_FOLDER(f) cmocka_unit_test_setup_teardown(f, make_root, remove_root)

static const struct CMUnitTest tests[] = {
    IN_FOLDER(a_link_is_refused),
    IN_FOLDER(a_dangling_link_is_refused),
    IN_FOLDER(a_folder_is_refused),
    IN_FOLDER(a_socket_is_refused),
    IN_FOLDER(a_block_device_is_refused),
    IN_FOLDER(another_device_is_refused),
    IN_FOLDER(a_fifo_is_refused_where_a_file_is_wanted),
    IN_FOLDER(the_null_device_is_refused_where_a_file_is_wanted),
    IN_FOLDER(what_appears_meanwhile_stays),
    IN_FOLDER(the_null_device_stays),
    IN_FOLDER(a_fifo_gets_the_texts),
    IN_FOLDER(descriptors_are_written_as_they_are_open),
    IN_FOLDER(standard_output_is_written_in_order),
    IN_FOLDER(what_a_killed_writer_left_goes),
    IN_FOLDER(what_a_living_writer_writes_stays),
    IN_FOLDER(what_strangers_named_alike_stays),
    IN_FOLDER(no_name_is_refused),
    IN_FOLDER(the_longest_name_is_written),
};

const struct test_program sw_tests = {TEST_TABLE(tests)};
