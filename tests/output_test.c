// SPDX-License-Identifier: Apache-2.0
// Where the program cannot write it ends with status 1 and a line that says so, from every command.
// It replaces regular files only. It ends at once, with nothing half written, when it is told to
// while it sets up.
#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/base.h"
#include "support/fixtures.h"
#include "support/scratch.h"
#include "support/test.h"

static const char *program;

static void put_text(const char *name, const char *text, size_t len)
{
    char path[TEST_PATH_CAP];
    test_join(path, test_folder(), name);
    assert_int_equal(sw_file_write_atomic(path, text, len), SW_OK);
}

/* Runs a line of the shell in the folder, with $S the program; standard error into err. */
static int shell(const char *line, char *err, size_t cap)
{
    char command[4096], path[TEST_PATH_CAP], *text = NULL;
    size_t len;
    snprintf(command, sizeof command, "cd %s && S=%s && export S && { %s ; } 2>err.txt </dev/null",
             test_folder(), program, line);
    const int status = system(command);
    test_join(path, test_folder(), "err.txt");
    assert_int_equal(sw_file_read(path, &text, &len), SW_OK);
    snprintf(err, cap, "%s", text);
    sw_free(text);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

static void expect(const char *line, int status, const char *says)
{
    char err[4096];
    const int found = shell(line, err, sizeof err);
    if (found != status || !strstr(err, says)) {
        fail_msg("%s: status %d, wanted %d; \"%s\", wanted \"%s\"", line, found, status, err, says);
    }
}

#define TINY "train --model gpt2-tiny --seq-len 8 --data text.txt --quiet "

static void standard_output_is_full(void **state)
{
    (void)state;
    static const char *const commands[] = {
        "train", "generate", "eval",   "launch",   "plan",       "estimate",
        "check", "embed",    "config", "tokenize", "checkpoint", "export",
        "io",    "doctor",   "models", "report",   "compare",    "completion"};
    static const char *const lines[] = {
        "--help",
        "--version",
        "help --man train",
        "completion bash",
        "plan --model gpt2-tiny",
        "plan --model gpt2-tiny --json",
        "estimate --model gpt2-tiny",
        "config config.json",
        "config --docs",
        TINY "--steps 2 --output full",
        "generate --model run/model --prompt word --tokens 2",
        "eval --model run/model --data text.txt",
        "checkpoint ls run",
        "checkpoint verify run/checkpoint-1",
        "checkpoint diff run/checkpoint-1 run/checkpoint-1",
        "export run --output exported",
        "io verify --path . --size 1M",
        "report run",
    };
    char line[512];
    put_text("config.json", "{\"train_batch_size\": 4}", 23);
    expect("$S " TINY "--steps 1 --output run >out.txt", 0, "");
    for (size_t i = 0; i < SW_LEN(commands); i++) {
        snprintf(line, sizeof line, "$S %s --help >/dev/full", commands[i]);
        expect(line, 1, "cannot write to standard output");
    }
    for (size_t i = 0; i < SW_LEN(lines); i++) {
        snprintf(line, sizeof line, "$S %s >/dev/full", lines[i]);
        expect(line, 1, "cannot write to standard output");
    }
    expect("echo word | $S tokenize --tokenizer run/tokenizer >/dev/full", 1, "No space left");
    expect("$S plan --model nowhere >/dev/full", 2, "nowhere"); /* refused stays refused */
}

static void the_disk_is_full(void **state)
{
    (void)state;
    static const char *const lines[] = {
        "SPILLWAY_FAULT=write:1:enospc $S " TINY "--steps 1 --output f1",
        "SPILLWAY_FAULT=write:2:enospc $S " TINY "--steps 1 --output f2",
        "SPILLWAY_FAULT=hf.write:1:enospc $S " TINY "--steps 1 --output f3",
        "SPILLWAY_FAULT=hf.write:1:enospc $S export run --output f4",
    };
    char line[512];
    for (size_t i = 0; i < SW_LEN(lines); i++) {
        snprintf(line, sizeof line, "%s >out.txt", lines[i]);
        expect(line, 1, "No space left");
        expect(
            "test -z \"$(find . -name '*.tmp')\" || { echo a temporary file is left >&2; false; }",
            0, "");
    }
}

/* The real thing, where an ordinary user may mount: a disk of 400 KiB. */
static void a_small_disk_is_full(void **state)
{
    (void)state;
    char err[4096];
    if (shell("unshare -rm true", err, sizeof err) != 0) {
        skip();
    }
    expect("mkdir -p small && unshare -rm sh -c 'mount -t tmpfs -o size=400k none small && $S " TINY
           "--steps 1 --output small/run >out.txt'",
           1, "No space left");
    expect("unshare -rm sh -c 'mount -t tmpfs -o size=400k none small && $S export run --output "
           "small/run >out.txt'",
           1, "No space left");
    expect("unshare -rm sh -c 'mount -t tmpfs -o size=96k none small && $S config --docs "
           ">small/out.txt'",
           0, "");
    expect("unshare -rm sh -c 'mount -t tmpfs -o size=8k none small && $S config --docs "
           ">small/out.txt'",
           1, "cannot write to standard output");
}

/* ---- what has the name of an output ---- */

static void put_line(char *line, size_t cap, const char *command, const char *name)
{
    snprintf(line, cap, command, name);
    strncat(line, " >out.txt", cap - strlen(line) - 1);
}

/* Every command that takes a name for its output. */
static const char *const writers[] = {
    "rm -rf named; $S " TINY "--steps 2 --output named --metrics-file %s",
    "rm -rf named; $S " TINY "--steps 2 --output named --trace %s",
    "$S report run --output %s",
};

static void outputs_replace_no_link_folder_or_socket(void **state)
{
    (void)state;
    char line[512];
    expect("ln -s text.txt linked && ln -s nowhere dangling && mkdir folder", 0, "");
    for (size_t i = 0; i < SW_LEN(writers); i++) {
        put_line(line, sizeof line, writers[i], "linked");
        expect(line, 2, "cannot write linked: it is a symbolic link");
        put_line(line, sizeof line, writers[i], "dangling");
        expect(line, 2, "cannot write dangling: it is a symbolic link");
        put_line(line, sizeof line, writers[i], "folder");
        expect(line, 2, "cannot write folder: it is a folder");
    }
    expect("test -L linked && test -L dangling && test -d folder && ! test -e nowhere", 0, "");
    /* The files of a run have names of their own. */
    expect("mkdir -p own && ln -s ../text.txt own/run.json && $S " TINY
           "--steps 1 --output own >out.txt",
           1, "own/run.json: it is a symbolic link");
    expect("test -L own/run.json && grep -q word1 text.txt", 0, "");
}

static void outputs_are_written_to_streams(void **state)
{
    (void)state;
    char line[512], err[4096];
    for (size_t i = 0; i < SW_LEN(writers); i++) {
        snprintf(line, sizeof line, "rm -f fifo got; mkfifo fifo; cat fifo >got & ");
        snprintf(line + strlen(line), sizeof line - strlen(line), writers[i], "fifo");
        strncat(line, " >out.txt; s=$?; wait; test -p fifo && test -s got && exit $s",
                sizeof line - strlen(line) - 1);
        expect(line, 0, "");
        put_line(line, sizeof line, writers[i], "/dev/stderr");
        expect(line, 0, i == 0 ? "spillway_step 0" : i == 1 ? "traceEvents" : "<html");
    }
    static const char *const names[] = {"/dev/stdout", "/dev/fd/1", "/proc/self/fd/1"};
    for (size_t i = 0; i < SW_LEN(names); i++) {
        snprintf(line, sizeof line,
                 "$S report run --output %s >page && ! grep -q '^report:' page && "
                 "grep -q '</html>' page",
                 names[i]);
        expect(line, 0, "");
    }
    if (shell("mknod null c 1 3", err, sizeof err) != 0) {
        skip(); /* devices are made by the superuser */
    }
    for (size_t i = 0; i < SW_LEN(writers); i++) {
        put_line(line, sizeof line, writers[i], "null");
        expect(line, 0, "");
        expect("test -c null", 0, "");
    }
}

static void a_killed_command_leaves_nothing_for_long(void **state)
{
    (void)state;
    char err[4096];
    shell("SPILLWAY_FAULT=rename:1:kill $S report run --output page.html", err, sizeof err);
    expect("test -n \"$(find . -name 'page.html.*')\" && echo x >page.html.1-2.tmp", 0, "");
    expect("$S report run --output page.html >out.txt && test \"$(echo page.html*)\" = "
           "'page.html page.html.1-2.tmp' && rm page.html.1-2.tmp",
           0, "");
}

/* ---- told to stop while it sets up ---- */

/* Whether the process has a handler for SIGTERM. */
static bool catches(pid_t pid)
{
    char path[64], line[256];
    unsigned long long mask = 0;
    snprintf(path, sizeof path, "/proc/%d/status", (int)pid);
    FILE *file = fopen(path, "r");
    while (file && fgets(line, sizeof line, file)) {
        sscanf(line, "SigCgt: %llx", &mask);
    }
    if (file) {
        fclose(file);
    }
    return mask >> (SIGTERM - 1) & 1;
}

static void stopped_while_it_sets_up(void **state)
{
    (void)state;
    enum { LETTERS = 30000000 };
    char *text = malloc(LETTERS), output[TEST_PATH_CAP], data[TEST_PATH_CAP], err[TEST_PATH_CAP];
    assert_non_null(text);
    memset(text, 'a', LETTERS);
    put_text("long.txt", text, LETTERS);
    free(text);
    test_join(output, test_folder(), "stopped");
    test_join(data, test_folder(), "long.txt");
    test_join(err, test_folder(), "err.txt");
    const pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        const int fd = open(err, O_WRONLY | O_CREAT | O_TRUNC, 0600),
                  null = open("/dev/null", O_WRONLY);
        dup2(fd, 2);
        dup2(null, 1);
        execl(program, program, "train", "--model", "gpt2-tiny", "--data", data, "--steps", "1000",
              "--output", output, (char *)NULL);
        _exit(127);
    }
    while (!catches(pid)) {
        nanosleep(&(struct timespec){0, 1000000}, NULL);
    }
    assert_int_equal(kill(pid, SIGTERM), 0);
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    char *said = NULL;
    size_t len;
    assert_int_equal(sw_file_read(err, &said, &len), SW_OK);
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 128 + SIGTERM) {
        fail_msg("status %x: %s", (unsigned)status, said);
    }
    assert_string_equal(said, "spillway train: stopped before the first step\n");
    sw_free(said);
    assert_false(test_exists(output)); /* nothing was begun */
}

static int set_up(void **state)
{
    (void)state;
    program = test_spillway();
    if (!program) {
        return -1;
    }
    struct sw_str text = {0};
    for (int i = 0; i < 500; i++) {
        sw_str_printf(&text, "word%d ", i % 13);
    }
    put_text("text.txt", sw_str_text(&text), text.len);
    sw_str_fini(&text);
    return 0;
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(standard_output_is_full),
    cmocka_unit_test(the_disk_is_full),
    cmocka_unit_test(a_small_disk_is_full),
    cmocka_unit_test(outputs_replace_no_link_folder_or_socket),
    cmocka_unit_test(outputs_are_written_to_streams),
    cmocka_unit_test(a_killed_command_leaves_nothing_for_long),
    cmocka_unit_test(stopped_while_it_sets_up),
};

const struct test_program sw_tests = {TEST_TABLE(tests), .setup = set_up};
