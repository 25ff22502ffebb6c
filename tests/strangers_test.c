// SPDX-License-Identifier: Apache-2.0
// TIMEOUT 300
// Strangers at a training of two ranks over TCP. They try to join as rank 1 without a secret, and
// with another secret. They open hundreds of silent connections, or send without end. The training
// has the bits of one process. Also a job by pdsh, whose hosts read the secret from a file.
#include <arpa/inet.h>
#include <errno.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/base.h"
#include "support/processes.h"
#include "support/scratch.h"
#include "support/test.h"

static char build[448];

static const char secret[] = "6a0b1c2d3e4f5061728394a5b6c7d8e9";

static void fail_with_log(const char *what, const char *log)
{
    char path[256], *text = NULL;
    size_t len;
    snprintf(path, sizeof path, "%s/%s", test_folder(), log);
    if (sw_file_read(path, &text, &len) < 0) {
        fail_msg("%s: %s", what, sw_error_message());
    }
    fail_msg("%s: %s", what, text);
}

static bool says(const char *log, const char *text)
{
    return test_system("grep -qF -- '%s' %s/%s", text, test_folder(), log) == 0;
}

/* The command of a rank or of all, and where it writes. */
static void training(char *out, size_t cap, const char *output, const char *more)
{
    snprintf(out, cap,
             "%s/spillway train --model %s/config.json --data %s/text.txt --deepspeed %s/ds.json "
             "--seq-len 12 --quiet --steps 20 --deadline 60 --output %s/%s %s",
             build, test_folder(), test_folder(), test_folder(), test_folder(), output, more);
}

static pid_t start_rank(int rank, int port, const char *key, const char *output)
{
    char train[2048], text[16];
    training(train, sizeof train, output, "");
    fflush(NULL);
    const pid_t pid = fork();
    if (pid == 0) {
        char command[4096];
        snprintf(text, sizeof text, "%d", port);
        setenv("RANK", rank ? "1" : "0", 1);
        setenv("WORLD_SIZE", "2", 1);
        setenv("MASTER_ADDR", "127.0.0.1", 1);
        setenv("MASTER_PORT", text, 1);
        key ? setenv("SPILLWAY_JOB_SECRET", key, 1) : unsetenv("SPILLWAY_JOB_SECRET");
        snprintf(command, sizeof command, "exec %s > %s/%s.%d 2>&1", train, test_folder(), output,
                 rank);
        execl("/bin/sh", "sh", "-c", command, (char *)NULL);
        _exit(98);
    }
    return pid;
}

/* Sends the hello of versions without secrets; the connection must be closed. */
static void join_without_a_word(int port)
{
    const struct {
        uint32_t magic;
        int32_t rank, size;
        uint32_t port;
        char host[64];
    } hello = {0x53574331, 1, 2, 7, "stranger"};
    char byte;
    const int fd = test_knock(port);
    assert_int_equal(send(fd, &hello, sizeof hello, MSG_NOSIGNAL), sizeof hello);
    const ssize_t n = recv(fd, &byte, 1, 0);
    assert_true(n == 0 || (n < 0 && errno == ECONNRESET));
    close(fd);
}

static pid_t start_flood(int port)
{
    fflush(NULL);
    const pid_t pid = fork();
    while (pid == 0) {
        int fds[50];
        for (int i = 0; i < 50; i++) {
            fds[i] = test_knock(port);
            (void)!send(fds[i], "x", 1, MSG_NOSIGNAL);
        }
        for (int i = 0; i < 50; i++) {
            close(fds[i]);
        }
    }
    return pid;
}

static void assert_same_model(const char *output)
{
    if (test_system("cmp %s/one/model/model.safetensors %s/%s/model/model.safetensors",
                    test_folder(), test_folder(), output) != 0) {
        fail_msg("%s: another model than that of one process", output);
    }
}

static void strangers_do_not_take_part(void **state)
{
    (void)state;
    enum { SILENT = 300 };
    int silent[SILENT];
    const int port = test_free_port();
    const pid_t first = start_rank(0, port, secret, "two");
    join_without_a_word(port);
    const pid_t other = start_rank(1, port, "00000000000000000000000000000000", "other");
    if (test_exit_of(other) != 2 || !says("other.1", "does not prove the secret of this job")) {
        fail_with_log("another secret", "other.1");
    }
    const pid_t none = start_rank(1, port, NULL, "none");
    if (test_exit_of(none) != 2 || !says("none.1", "(none is set here)")) {
        fail_with_log("no secret", "none.1");
    }
    for (int i = 0; i < SILENT; i++) {
        silent[i] = test_knock(port);
    }
    const pid_t flood = start_flood(port);
    const pid_t second = start_rank(1, port, secret, "two");
    const int exit_second = test_exit_of(second), exit_first = test_exit_of(first);
    kill(flood, SIGKILL);
    waitpid(flood, NULL, 0);
    for (int i = 0; i < SILENT; i++) {
        close(silent[i]);
    }
    if (exit_first != 0 || exit_second != 0) {
        fail_with_log("rank 0", "two.0");
    }
    assert_same_model("two");
}

/* Two ranks without a secret: on loopback, and that is said. */
static void ranks_without_a_secret_stay_on_loopback_and_say_so(void **state)
{
    (void)state;
    const int port = test_free_port();
    const pid_t first = start_rank(0, port, NULL, "bare");
    const pid_t second = start_rank(1, port, NULL, "bare");
    const int exit_first = test_exit_of(first), exit_second = test_exit_of(second);
    if (exit_first || exit_second || !says("bare.0", "ranks meet on loopback only")) {
        fail_with_log("rank 0", "bare.0");
    }
    assert_same_model("bare");
    char train[2048];
    training(train, sizeof train, "far", "");
    const int status =
        test_system("RANK=1 WORLD_SIZE=2 MASTER_ADDR=203.0.113.7 MASTER_PORT=%d %s > %s/far.1 2>&1",
                    port, train, test_folder());
    if (status != 2 || !says("far.1", "meet on the loopback of one machine only")) {
        fail_with_log("far away", "far.1");
    }
}

/* pdsh that has each host's part done by a shell of this machine. */
static void pdsh_takes_the_secret_from_a_file(void **state)
{
    (void)state;
    char train[2048], path[256];
    training(train, sizeof train, "behind", "");
    test_put("pdsh", "#!/bin/sh\nprintf '%s\\n' \"$*\" > $TEST_FOLDER/words\n"
                     "for last; do :; done\n"
                     "echo \"$last\" | sed 's/%n/0/; s/%%/%/g' > $TEST_FOLDER/0.sh\n"
                     "echo \"$last\" | sed 's/%n/1/; s/%%/%/g' > $TEST_FOLDER/1.sh\n"
                     "env -u SPILLWAY_JOB_SECRET sh $TEST_FOLDER/0.sh & first=$!\n"
                     "env -u SPILLWAY_JOB_SECRET sh $TEST_FOLDER/1.sh && wait $first\n");
    test_put("hosts", "127.0.0.1 slots=1\nlocalhost slots=1\n");
    test_put("secret", secret);
    snprintf(path, sizeof path, "%s/secret", test_folder());
    assert_int_equal(chmod(path, 0600), 0);
    const char *launch =
        "chmod +x %s/pdsh; TEST_FOLDER=%s PATH=%s:$PATH %s %s/spillway launch --hostfile "
        "%s/hosts --launcher pdsh --master-port %d -- %s > %s/pdsh.log 2>&1";
    char file[320];
    int status = test_system(launch, test_folder(), test_folder(), test_folder(), "SPILLWAY_X=1",
                             build, test_folder(), test_free_port(), train, test_folder());
    if (status != 2 || !says("pdsh.log", "wanted SPILLWAY_JOB_SECRET_FILE")) {
        fail_with_log("no file", "pdsh.log");
    }
    snprintf(file, sizeof file, "SPILLWAY_JOB_SECRET_FILE=%s", path);
    status = test_system(launch, test_folder(), test_folder(), test_folder(), file, build,
                         test_folder(), test_free_port(), train, test_folder());
    if (status != 0) {
        fail_with_log("pdsh", "pdsh.log");
    }
    assert_false(says("words", secret));
    assert_true(says("words", file));
    assert_same_model("behind");
    assert_int_equal(chmod(path, 0644), 0);
    status = test_system(launch, test_folder(), test_folder(), test_folder(), file, build,
                         test_folder(), test_free_port(), train, test_folder());
    if (status != 2 || !says("pdsh.log", "others may read")) {
        fail_with_log("a file that others may read", "pdsh.log");
    }
}

static int set_up(void **state)
{
    (void)state;
    char train[2048];
    test_put(
        "config.json",
        "{\"model_type\":\"gpt2\",\"vocab_size\":40,\"n_positions\":16,\"n_embd\":24,\"n_layer\":2,"
        "\"n_head\":3}");
    test_put("ds.json",
             "{\"train_micro_batch_size_per_gpu\": 2, \"optimizer\": {\"type\": \"AdamW\", "
             "\"params\": {\"lr\": 0.01}}, \"zero_optimization\": {\"stage\": 3}, "
             "\"spillway\": {\"threads\": 1, \"micro_batches\": 4}}");
    test_put_lines("text.txt", 400);
    training(train, sizeof train, "one", "");
    return test_system("%s > %s/log 2>&1", train, test_folder());
}

static int begin(char **argv)
{
    (void)argv;
    const char *where = getenv("SPILLWAY_BUILD_DIR");
    struct rlimit files;
    snprintf(build, sizeof build, "%s", where ? where : "build");
    if (getrlimit(RLIMIT_NOFILE, &files) == 0 && files.rlim_cur < 500) {
        files.rlim_cur = files.rlim_max < 500 ? files.rlim_max : 500;
        setrlimit(RLIMIT_NOFILE, &files);
    }
    unsetenv("SPILLWAY_JOB_SECRET");
    unsetenv("SPILLWAY_JOB_SECRET_FILE");
    return 0;
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(strangers_do_not_take_part),
    cmocka_unit_test(ranks_without_a_secret_stay_on_loopback_and_say_so),
    cmocka_unit_test(pdsh_takes_the_secret_from_a_file),
};

const struct test_program sw_tests = {TEST_TABLE(tests), .setup = set_up, .begin = begin};
