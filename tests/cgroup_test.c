// SPDX-License-Identifier: Apache-2.0
// TIMEOUT 1200
// COST 20
// A plan's budget holds from outside: spillway train with a budget of exactly its plan's bytes goes
// through in a memory cgroup of the budget and 64 MiB, without swap, with everything in memory, on
// the host and on disk. A group that is smaller than the budget ends the run, so the limit is real.
// Skipped, with the reason, where no such group can be had.
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/base.h"
#include "support/scratch.h"
#include "support/test.h"

enum { MIB = 1 << 20, BESIDE = 64 * MIB };

static char *log_text; /* of the last run */

static int run(const char *command)
{
    char line[4096], path[96];
    size_t len;
    snprintf(path, sizeof path, "%s/log", test_folder());
    snprintf(line, sizeof line, "{ %s; } > %s 2>&1", command, path);
    const int status = system(line);
    sw_free(log_text);
    log_text = NULL;
    assert_int_equal(sw_file_read(path, &log_text, &len), SW_OK);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

/* The number behind the last `key` of the log. */
static int64_t number_behind(const char *key)
{
    int64_t n = -1;
    for (const char *at = strstr(log_text, key); at; at = strstr(at + 1, key)) {
        n = atoll(at + strlen(key));
    }
    if (n < 0) {
        fail_msg("\"%s\" is not in: %s", key, log_text);
    }
    return n;
}

static const char common[] = "--model %s/config.json --deepspeed %s/ds.json --seq-len 128 %s";

/* Trains in a group; the status. */
static int train_in(int64_t group_bytes, int64_t device, int64_t host, const char *more)
{
    char options[1024], command[3072];
    snprintf(options, sizeof options, common, test_folder(), test_folder(), more);
    snprintf(command, sizeof command,
             "rm -rf %s/out; sh tests/support/cgroup.sh spillway-test-%d %lld %s train %s --data "
             "%s/text.txt --steps 3 --save-every 2 --output %s/out --quiet --device-memory %lld "
             "--host-memory %lld",
             test_folder(), (int)getpid(), (long long)group_bytes, test_spillway(), options,
             test_folder(), test_folder(), (long long)device, (long long)host);
    return run(command);
}

static void plan(const char *more, int64_t *device, int64_t *host)
{
    char options[1024], command[2048];
    snprintf(options, sizeof options, common, test_folder(), test_folder(), more);
    snprintf(command, sizeof command, "%s plan --summary %s", test_spillway(), options);
    assert_int_equal(run(command), 0);
    *device = number_behind("device  peak ");
    *host = number_behind("host    peak ");
}

static void fits(const char *name, const char *more)
{
    int64_t device, host;
    plan(more, &device, &host);
    /* The cache of what the run reads and writes counts as well, as far as there is room: what the
     * processes themselves have is what is left when there is none. */
    const int64_t beside =
        host > 0 ? host : device; /* of no use where nothing is offloaded to it */
    const int status = train_in(device + host + BESIDE, device, beside, more);
    if (status != 0) {
        fail_msg("%s: status %d in a group of %lld bytes: %s", name, status,
                 (long long)(device + host + BESIDE), log_text);
    }
    struct rusage usage;
    getrusage(RUSAGE_CHILDREN, &usage);
    print_message(
        "%s: plan %.1f MiB, group %.1f MiB, charged at most %.1f MiB with the page cache; the "
        "largest process so far %.1f MiB\n",
        name, (double)(device + host) / MIB, (double)(device + host + BESIDE) / MIB,
        (double)number_behind("cgroup.sh: ") / MIB, (double)usage.ru_maxrss / 1024);
}

static void budgets_hold_from_outside(void **state)
{
    (void)state;
    char disk[512];
    snprintf(disk, sizeof disk,
             "--set zero_optimization.stage=3 "
             "--set zero_optimization.offload_optimizer.device=nvme "
             "--set zero_optimization.offload_optimizer.nvme_path=%s "
             "--set zero_optimization.offload_param.device=nvme "
             "--set zero_optimization.offload_param.nvme_path=%s",
             test_folder(), test_folder());
    fits("on disk", disk); /* the smallest first: the processes' peaks are those of all so far */
    fits("on the host", "--set zero_optimization.stage=3 "
                        "--set zero_optimization.offload_optimizer.device=cpu "
                        "--set zero_optimization.offload_param.device=cpu");
    fits("in memory", "");
    fits("in fp16", "--set bf16.enabled=false --set fp16.enabled=true");
}

static void a_smaller_group_ends_the_run(void **state)
{
    (void)state;
    int64_t device, host;
    plan("", &device, &host);
    assert_int_equal(train_in(device - 32 * MIB, device, device, ""), 128 + 9);
}

static void an_impossible_budget_is_refused_at_once(void **state)
{
    (void)state;
    int64_t device, host;
    plan("", &device, &host);
    /* In a group in which the run itself would not even begin. */
    assert_int_equal(train_in(BESIDE, device / 10, device, ""), 2);
    assert_int_equal(number_behind("largest: ") > 0, true);
    const int64_t missing = device - device / 10;
    char want[64];
    snprintf(want, sizeof want, "%lld bytes", (long long)missing);
    if (!strstr(log_text, want) || !strstr(log_text, "are missing")) {
        fail_msg("wanted %s: %s", want, log_text);
    }
}

static int set_up(void **state)
{
    (void)state;
    test_put("config.json", "{\"model_type\":\"gpt2\",\"vocab_size\":2000,\"n_positions\":128,"
                            "\"n_embd\":512,\"n_layer\":4,\"n_head\":8}");
    test_put("ds.json", "{\"train_micro_batch_size_per_gpu\": 2, \"bf16\": {\"enabled\": true}, "
                        "\"optimizer\": {\"type\": \"AdamW\", \"params\": {\"lr\": 0.001}}, "
                        "\"spillway\": {\"threads\": 2}}");
    test_put_lines("text.txt", 4000);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    sw_free(log_text);
    return 0;
}

static int begin(char **argv)
{
    (void)argv;
#ifdef TEST_SANITIZED
    fprintf(stderr, "a sanitizer's memory is not the program's: skipped\n");
    return TEST_EXIT_SKIPPED;
#endif
    if (!test_spillway()) {
        return 1;
    }
    char command[256];
    snprintf(command, sizeof command, "sh tests/support/cgroup.sh spillway-test-%d %d true",
             (int)getpid(), 64 * MIB);
    if (run(command) != 0) {
        fprintf(stderr, "%s", log_text);
        tear_down(NULL);
        return TEST_EXIT_SKIPPED;
    }
    return 0;
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(budgets_hold_from_outside),
    cmocka_unit_test(a_smaller_group_ends_the_run),
    cmocka_unit_test(an_impossible_budget_is_refused_at_once),
};

const struct test_program sw_tests = {TEST_TABLE(tests), .setup = set_up, .teardown = tear_down,
                                      .begin = begin};
