// SPDX-License-Identifier: Apache-2.0
// TIMEOUT 300
// COST 10
// Two trainings in one folder: the second is refused with host and process of the first, and
// changes nothing; a restart waits for a predecessor that ends; whichever of two is killed, the
// other goes on, to the bytes of a run that was alone.
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/base.h"
#include "support/scratch.h"
#include "support/test.h"

static const char *program;
static char *want; /* model.safetensors of the run that was alone */
static size_t want_len;

static void pause_ms(long ms)
{
    nanosleep(&(struct timespec){ms / 1000, ms % 1000 * 1000000}, NULL);
}

/* Starts a training. Standard error goes to the file `err`. */
static pid_t start(const char *output, const char *ranks, bool resume, const char *err)
{
    const pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        if (!freopen(test_at("out"), "a", stdout) || !freopen(test_at(err), "w", stderr)) {
            _exit(99);
        }
        execl(program, program, "train", "--model", test_at("config.json"), "--data",
              test_at("text.txt"), "--deepspeed", test_at("ds.json"), "--steps", "60", "--seq-len",
              "12", "--output", output, "--save-every", "3", "--keep-last", "2", "--quiet",
              "--ranks", ranks, resume ? "--resume-if-any" : (char *)NULL, (char *)NULL);
        _exit(98);
    }
    return pid;
}

static int finish(pid_t pid)
{
    int status = 0;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    return status;
}

static void assert_exit(int status, int wanted, const char *err)
{
    char *text = NULL;
    size_t len;
    if (!WIFEXITED(status) || WEXITSTATUS(status) != wanted) {
        assert_int_equal(sw_file_read(test_at(err), &text, &len), SW_OK);
        fail_msg("status %d, wanted %d: %s", status, wanted, text);
    }
}

static void assert_says(const char *err, const char *wanted)
{
    char *text = NULL;
    size_t len;
    assert_int_equal(sw_file_read(test_at(err), &text, &len), SW_OK);
    if (!strstr(text, wanted)) {
        fail_msg("\"%s\", wanted \"%s\"", text, wanted);
    }
    sw_free(text);
}

static void assert_same_end(const char *output)
{
    char path[320];
    char *have = NULL;
    size_t len = 0;
    snprintf(path, sizeof path, "%s/model/model.safetensors", output);
    if (sw_file_read(path, &have, &len) < 0) {
        fail_msg("%s", sw_error_message());
    }
    assert_int_equal(len, want_len);
    assert_memory_equal(have, want, len);
    sw_free(have);
}

/* Waits until the job saves or has ended. */
static void wait_for_a_checkpoint(const char *output)
{
    char path[320];
    snprintf(path, sizeof path, "%s/latest", output);
    for (int i = 0; i < 20000 && access(path, F_OK) != 0; i++) {
        pause_ms(1);
    }
    assert_int_equal(access(path, F_OK), 0);
}

static void a_second_job_is_refused_and_changes_nothing(void **state)
{
    (void)state;
    static const char *const ranks[] = {"1", "2"};
    char wanted[64], host[256] = "";
    gethostname(host, sizeof host - 1);
    for (size_t i = 0; i < SW_LEN(ranks); i++) {
        char output[128];
        snprintf(output, sizeof output, "%s/second", test_folder());
        const pid_t first = start(output, "1", false, "first.err");
        wait_for_a_checkpoint(output);
        kill(first, SIGSTOP); /* it is there, however long the others take */
        for (int n = 0; n < 2; n++) {
            const pid_t second = start(output, ranks[i], false, "second.err");
            assert_exit(finish(second), 2, "second.err");
            snprintf(wanted, sizeof wanted, "is in use by process %ld on host ", (long)first);
            assert_says("second.err", wanted);
            assert_says("second.err", host);
            assert_says("second.err", output);
        }
        kill(first, SIGCONT);
        assert_exit(finish(first), 0, "first.err");
        assert_same_end(output);
        assert_exit(finish(start(output, ranks[i], false, "second.err")), 2, "second.err");
        assert_says("second.err", "has checkpoints of a run (checkpoint-60)");
        test_remove(output);
    }
}

/* SIGTERM is what a scheduler sends; the job that it starts instead comes while the first still
 * saves. */
static void a_restart_waits_for_its_predecessor(void **state)
{
    (void)state;
    char output[128];
    snprintf(output, sizeof output, "%s/restart", test_folder());
    const pid_t first = start(output, "2", false, "first.err");
    wait_for_a_checkpoint(output);
    kill(first, SIGTERM);
    kill(first, SIGSTOP);
    const pid_t second = start(output, "1", true, "second.err");
    pause_ms(400);
    kill(first, SIGCONT);
    assert_exit(finish(first), 0, "first.err");
    assert_exit(finish(second), 0, "second.err");
    assert_same_end(output);
    test_remove(output);
}

/* Two concurrent restarts: one of them trains. If it is killed, the other continues from there. */
static void whichever_is_killed_the_other_goes_on(void **state)
{
    (void)state;
    for (int i = 0; i < 4; i++) {
        char output[128];
        snprintf(output, sizeof output, "%s/killed", test_folder());
        pid_t jobs[2];
        static const char *const errs[] = {"first.err", "second.err"};
        jobs[0] = start(output, "2", true, errs[0]);
        jobs[1] = start(output, "1", true, errs[1]);
        wait_for_a_checkpoint(output);
        pause_ms((long)(sw_philox_u64(5, 2, (uint64_t)i) % 60));
        kill(jobs[i % 2], SIGKILL);
        finish(jobs[i % 2]);
        assert_exit(finish(jobs[1 - i % 2]), 0, errs[1 - i % 2]);
        assert_same_end(output);
        test_remove(output);
    }
}

/* The newest checkpoint comes from the list of checkpoints, not from a marker, which may be missing
 * or stale. */
static void the_checkpoints_themselves_are_asked_for(void **state)
{
    (void)state;
    char output[128];
    snprintf(output, sizeof output, "%s/marker", test_folder());
    char path[320];
    assert_int_equal(mkdir(output, 0777), 0);
    snprintf(path, sizeof path, "%s/latest", output);
    assert_int_equal(sw_file_write_atomic(path, "checkpoint-0004\n", 16), SW_OK);
    snprintf(path, sizeof path, "%s/checkpoint-0004", output); /* the name of no checkpoint */
    assert_int_equal(mkdir(path, 0777), 0);
    assert_exit(finish(start(output, "1", false, "first.err")), 0, "first.err");
    assert_same_end(output);
    snprintf(path, sizeof path, "%s/latest", output);
    assert_int_equal(unlink(path), 0);
    assert_exit(finish(start(output, "1", false, "first.err")), 2, "first.err");
    assert_says("first.err", "--resume continues it");
    test_remove(output);
}

static int set_up(void **state)
{
    (void)state;
    program = test_spillway();
    if (!program) {
        return -1;
    }
    test_put("config.json", "{\"model_type\":\"gpt2\",\"vocab_size\":40,\"n_positions\":16,"
                            "\"n_embd\":24,\"n_layer\":2,\"n_head\":3}");
    test_put(
        "ds.json",
        "{\"train_micro_batch_size_per_gpu\": 2, \"bf16\": {\"enabled\": true}, \"optimizer\": "
        "{\"type\": \"AdamW\", \"params\": {\"lr\": 0.01}}, \"zero_optimization\": {\"stage\": 2}, "
        "\"spillway\": {\"threads\": 1, \"micro_batches\": 2}}");
    test_put_lines("text.txt", 400);
    assert_exit(finish(start(test_at("alone"), "1", false, "first.err")), 0, "first.err");
    return sw_file_read(test_at("alone/model/model.safetensors"), &want, &want_len) < 0;
}

static int tear_down(void **state)
{
    (void)state;
    sw_free(want);
    return 0;
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(a_second_job_is_refused_and_changes_nothing),
    cmocka_unit_test(a_restart_waits_for_its_predecessor),
    cmocka_unit_test(whichever_is_killed_the_other_goes_on),
    cmocka_unit_test(the_checkpoints_themselves_are_asked_for),
};

const struct test_program sw_tests = {TEST_TABLE(tests), .setup = set_up, .teardown = tear_down};
