// SPDX-License-Identifier: Apache-2.0
// TIMEOUT 300
// COST 40
// Two and four hosts, which are network namespaces, under Open MPI's mpirun started by `spillway
// launch`: they train the bits of one process; a host that is cut off or dies is named, and the job
// goes on with those that are left, to the same bits. Skipped where namespaces or mpirun cannot be
// had.
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/base.h"
#include "support/processes.h"
#include "support/scratch.h"
#include "support/test.h"

static char build[448], name[16];
static const char secret[] = "0d1c2b3a495867768594a3b2c1d0effe";

static void fail_with_log(const char *what)
{
    fail_msg("%s: %s", what, test_text("log"));
}

/* The arguments of the training, which K and seed fix. */
static void training(char *out, size_t cap, const char *output, const char *more)
{
    snprintf(out, cap,
             "%s/spillway train --model %s/config.json --data %s/text.txt --deepspeed %s/ds.json "
             "--seq-len 12 --quiet --steps 150 --output %s/%s %s",
             build, test_folder(), test_folder(), test_folder(), test_folder(), output, more);
}

/* `hosts` of one slot each. The launcher's and the ranks' lines go to the file `log`. */
static pid_t start(int hosts, const char *output, const char *launch_more)
{
    char text[1024] = "", train[2048], command[4096];
    for (int i = 1; i <= hosts; i++) {
        char line[32];
        snprintf(line, sizeof line, "10.99.0.%d slots=1\n", i);
        strcat(text, line);
    }
    test_put("hostfile", text);
    /* two hosts make K = 4 by themselves, and keep it when one is lost */
    training(train, sizeof train, output,
             hosts == 2 ? "--resume-if-any --save-every 5 --keep-last 2 --deadline 30"
                        : "--save-every 5 --deadline 20 --set spillway.micro_batches=4");
    snprintf(command, sizeof command,
             "exec sh tests/support/hosts.sh in %s %s/spillway launch --hostfile %s/hostfile "
             "--launcher openmpi --agent %s/agent --deadline 8 --grace 2 %s "
             "--launcher-args '--allow-run-as-root --mca btl tcp,self' -- %s > %s/log 2>&1",
             name, build, test_folder(), test_folder(), launch_more, train, test_folder());
    const pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        setenv("SPILLWAY_JOB_SECRET", secret, 1);
        execl("/bin/sh", "sh", "-c", command, (char *)NULL);
        _exit(98);
    }
    return pid;
}

static void assert_same_model(const char *output)
{
    if (test_system("cmp %s/one/model/model.safetensors %s/%s/model/model.safetensors",
                    test_folder(), test_folder(), output) != 0) {
        fail_with_log("another model than that of one process");
    }
}

static void wait_for_checkpoint(const char *output)
{
    for (int i = 0; i < 1200; i++) {
        if (test_system("test -e %s/%s/latest", test_folder(), output) == 0) {
            return;
        }
        nanosleep(&(struct timespec){0, 50000000}, NULL);
    }
    fail_with_log("no checkpoint within a minute");
}

static void hosts_train(int n)
{
    if (test_exit_of(start(n, "many", "")) != 0) {
        fail_with_log("hosts train");
    }
    assert_same_model("many");
    test_remove(test_at("many"));
}

static void two_and_four_hosts_train(void **state)
{
    (void)state;
    hosts_train(2);
    hosts_train(4);
}

/* The secret is neither in the commands that the agents got so far nor in the process lists at that
 * time. */
static void the_secret_is_in_no_list_of_processes(void **state)
{
    (void)state;
    assert_int_equal(test_system("grep -qaF spillway %s/words", test_folder()), 0);
    assert_int_equal(test_system("grep -qaF SPILLWAY_JOB_ID %s/words", test_folder()), 0);
    assert_int_equal(test_system("grep -qaF %s %s/words", secret, test_folder()), 1);
}

/* i: host 1 has rank 0, host 2 has rank 1 */
static void lose_a_host(const char *action, int i, const char *said)
{
    char rank[16], host[32];
    snprintf(rank, sizeof rank, "rank %d (pid ", i - 1);
    snprintf(host, sizeof host, "on 10.99.0.%d ", i);
    const pid_t job = start(2, "lost", "--restarts 1 --elastic");
    wait_for_checkpoint("lost");
    assert_int_equal(test_system("sh tests/support/hosts.sh %s %s %d", action, name, i), 0);
    if (test_exit_of(job) != 0) {
        fail_with_log(action);
    }
    char *log = test_text("log");
    const char *line = strstr(log, rank);
    if (!line || !memmem(line, strcspn(line, "\n"), host, strlen(host)) || !strstr(log, said) ||
        !strstr(log, "restart 1 of 1") || !strstr(log, "resumed at step")) {
        fail_with_log(action);
    }
    sw_free(log);
    assert_same_model("lost");
    test_remove(test_at("lost"));
}

static void a_host_that_dies_is_named(void **state)
{
    (void)state;
    lose_a_host("kill", 2, "is gone: its connection broke");
}

static void a_host_that_is_cut_off_is_named_and_left_out(void **state)
{
    (void)state;
    lose_a_host("cut", 2, "host 10.99.0.2 is lost");
}

/* Rank 0 there holds the folder of the checkpoints until its own deadline. */
static void the_host_of_rank_0_may_be_cut_off(void **state)
{
    (void)state;
    test_system("sh tests/support/hosts.sh down %s", name);
    assert_int_equal(test_system("sh tests/support/hosts.sh up %s 2", name), 0);
    lose_a_host("cut", 1, "host 10.99.0.1 is lost");
}

/* Without a launcher's restart: whoever is left names the host and ends. */
static void those_who_are_left_end_within_the_deadline(void **state)
{
    (void)state;
    assert_int_equal(
        test_system("sh tests/support/hosts.sh down %s; sh tests/support/hosts.sh up %s 4", name,
                    name),
        0);
    const pid_t job = start(4, "ended", "");
    wait_for_checkpoint("ended");
    assert_int_equal(test_system("sh tests/support/hosts.sh cut %s 3", name), 0);
    const double begin = sw_now_s();
    assert_int_not_equal(test_exit_of(job), 0);
    char *log = test_text("log");
    if (!strstr(log, "on 10.99.0.3 has been silent") || sw_now_s() - begin > 60) {
        fail_with_log("four hosts, one cut off");
    }
    sw_free(log);
}

static int set_up(void **state)
{
    (void)state;
    char agent[512], train[2048];
    char *here = getcwd(NULL, 0);
    snprintf(agent, sizeof agent,
             "#!/bin/sh\n(echo \"$*\"; cat /proc/[0-9]*/cmdline) >> %s/words 2> /dev/null\n"
             "exec sh %s/tests/support/hosts.sh agent %s \"$@\"\n",
             test_folder(), here, name);
    free(here);
    test_put("agent", agent);
    test_put(
        "config.json",
        "{\"model_type\":\"gpt2\",\"vocab_size\":40,\"n_positions\":16,\"n_embd\":24,\"n_layer\":2,"
        "\"n_head\":3,\"embd_pdrop\":0.1,\"attn_pdrop\":0.1,\"resid_pdrop\":0.1}");
    test_put("ds.json",
             "{\"train_micro_batch_size_per_gpu\": 2, \"gradient_clipping\": 1.0, "
             "\"optimizer\": {\"type\": \"AdamW\", \"params\": {\"lr\": 0.01}}, "
             "\"zero_optimization\": {\"stage\": 3, \"stage3_param_persistence_threshold\": 100}, "
             "\"gradient_accumulation_steps\": 2, \"spillway\": {\"threads\": 1}}");
    test_put_lines("text.txt", 400);
    training(train, sizeof train, "one", "--set spillway.micro_batches=4");
    return test_system("chmod +x %s/agent && %s > %s/log 2>&1", test_folder(), train,
                       test_folder());
}

static int tear_down(void **state)
{
    (void)state;
    return test_system("sh tests/support/hosts.sh down %s", name);
}

static int begin(char **argv)
{
    (void)argv;
    setenv("ASAN_OPTIONS", "detect_leaks=0", 1); /* Open MPI leaves some of its own */
    const char *where = getenv("SPILLWAY_BUILD_DIR");
    snprintf(build, sizeof build, "%s", where ? where : "build");
    snprintf(name, sizeof name, "sw%dh", (int)getpid() % 100000);
    if (test_system("command -v mpirun.openmpi > /dev/null && test -r %s/spillway_openmpi.so",
                    build) != 0 ||
        test_system("sh tests/support/hosts.sh up %s 4", name) != 0) {
        printf("no mpirun of Open MPI, or no network namespaces: not tested\n");
        return TEST_EXIT_SKIPPED;
    }
    return 0;
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(two_and_four_hosts_train),
    cmocka_unit_test(the_secret_is_in_no_list_of_processes),
    cmocka_unit_test(a_host_that_dies_is_named),
    cmocka_unit_test(a_host_that_is_cut_off_is_named_and_left_out),
    cmocka_unit_test(the_host_of_rank_0_may_be_cut_off),
    cmocka_unit_test(those_who_are_left_end_within_the_deadline),
};

const struct test_program sw_tests = {TEST_TABLE(tests), .setup = set_up, .teardown = tear_down,
                                      .begin = begin};
