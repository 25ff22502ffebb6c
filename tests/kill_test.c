// SPDX-License-Identifier: Apache-2.0
// TIMEOUT 1800
// COST 30
// SLOW SPILLWAY_KILLS=200
// A training that is killed at random moments, at writes, fsyncs and renames of its saves, or
// stopped by a signal, and resumed on another number of ranks at another ZeRO stage, ends with the
// bytes of the run of one rank that was never stopped, and its metrics, CSV and event files hold
// each step once.
// The same on meshes: each run draws its sizes along pipe and data, and its schedule, beside one or
// two ranks along tensor.
// The same with parameters and states on disk: killed runs leave swap files, which the next one
// names and never touches. SPILLWAY_KILLS=200 runs that many random kills of each,
// SPILLWAY_FAULTS=all meets every place of a save.
#include <dirent.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/base.h"
#include "support/events.h"
#include "support/scratch.h"
#include "support/test.h"

enum { STEPS = 36, SAVE_EVERY = 4 };

static const char *program;
static char steps_text[16], save_text[16];
static char *want; /* model.safetensors of the run that was never stopped */
static size_t want_len;
static int n_started;  /* the first runs on one rank, those after it on others */
static double whole_s; /* how long it took */
static bool on_disk;   /* parameters and states */
static int tensor;     /* ranks along this axis of a mesh whose other axes are drawn; 0 = no mesh */

static void pause_s(double seconds)
{
    struct timespec t = {(time_t)seconds, (long)((seconds - (double)(time_t)seconds) * 1e9)};
    while (nanosleep(&t, &t) != 0 && errno == EINTR) {
    }
}

/* Draws the ranks along pipe and data, and the schedule. Returns the number of ranks. */
static int draw_mesh(uint64_t draw, char *text, size_t size)
{
    static const char *const schedules[] = {"1f1b", "gpipe", "zero-bubble", "1f1b"};
    const int pipe = (int)(draw % 2) + 1, data = (int)(draw / 2 % 2) + 1;
    snprintf(text, size,
             "spillway={\"threads\": 1, \"micro_batches\": 3, \"schedule\": \"%s\", "
             "\"mesh\": {\"pipe\": %d, \"tensor\": %d}}",
             pipe > 1 ? schedules[draw / 4 % 4] : "horizontal", pipe, tensor);
    return pipe * data * tensor;
}

/* Starts the training in `output`; fault may be NULL. */
static pid_t start(const char *output, const char *fault)
{
    static const char *const disk[] = {"zero_optimization.offload_optimizer.device=nvme",
                                       "zero_optimization.offload_param.device=nvme"};
    char ranks[16], stage[48], paths[2][192], csv[384], events[384],
        mesh[192] = "spillway.threads=1";
    const uint64_t draw = n_started++ == 0 ? 0 : sw_philox_u64(11, 3, (uint64_t)n_started);
    snprintf(ranks, sizeof ranks, "%d",
             tensor > 0 ? draw_mesh(draw / 32, mesh, sizeof mesh) : (int)(draw % 3) + 1);
    snprintf(stage, sizeof stage, "zero_optimization.stage=%d", on_disk ? 3 : (int)(draw / 8 % 4));
    const pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        snprintf(paths[0], sizeof paths[0], "zero_optimization.offload_optimizer.nvme_path=%s",
                 test_at("disk"));
        snprintf(paths[1], sizeof paths[1], "zero_optimization.offload_param.nvme_path=%s",
                 test_at("disk"));
        snprintf(csv, sizeof csv,
                 "csv_monitor={\"enabled\": true, \"output_path\": \"%s\", \"job_name\": "
                 "\"monitor\"}",
                 output);
        snprintf(events, sizeof events, "tensorboard%s", strchr(csv, '='));
        if (fault) {
            setenv("SPILLWAY_FAULT", fault, 1);
        }
        if (!freopen(test_at("log"), "a", stdout) || !freopen(test_at("log"), "a", stderr)) {
            _exit(99);
        }
        execl(program, program, "train", "--model",
              test_at(tensor > 0 ? "mesh.json" : "config.json"), "--data", test_at("text.txt"),
              "--deepspeed", test_at("ds.json"), "--steps", steps_text, "--seq-len", "12",
              "--output", output, "--save-every", save_text, "--keep-last", "2", "--resume-if-any",
              "--quiet", "--ranks", ranks, "--set", csv, "--set", events, "--set", stage, "--set",
              mesh, on_disk ? "--set" : (char *)NULL, disk[0], "--set", disk[1], "--set", paths[0],
              "--set", paths[1], (char *)NULL);
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

/* A point of the loss for each step, and no other. */
static void assert_each_point_once(const char *output)
{
    char path[320], *csv = NULL;
    size_t len = 0;
    static struct read_points points;
    snprintf(path, sizeof path, "%s/monitor/Train_Samples_train_loss.csv", output);
    assert_int_equal(sw_file_read(path, &csv, &len), SW_OK);
    const char *row = strchr(csv, '\n') + 1;
    const long long each = atoll(row);
    for (int i = 1; i <= STEPS; i++) {
        assert_int_equal(atoll(row), i * each);
        row = strchr(row, '\n') + 1;
    }
    assert_int_equal(*row, '\0');
    sw_free(csv);
    snprintf(path, sizeof path, "%s/monitor", output);
    read_folder(path, &points);
    int n = 0;
    for (int i = 0; i < points.n; i++) {
        if (strcmp(points.tag[i], "Train/Samples/train_loss") == 0) {
            assert_int_equal(points.x[i], ++n * each);
        }
    }
    assert_int_equal(n, STEPS);
}

static void assert_same_end(const char *output)
{
    char path[320];
    char *have = NULL, *metrics = NULL;
    size_t len = 0;
    snprintf(path, sizeof path, "%s/model/model.safetensors", output);
    if (sw_file_read(path, &have, &len) < 0) {
        fail_msg("%s", sw_error_message());
    }
    assert_int_equal(len, want_len);
    assert_memory_equal(have, want, len);
    snprintf(path, sizeof path, "%s/metrics.jsonl", output);
    assert_int_equal(sw_file_read(path, &metrics, &len), SW_OK);
    long long step = 0, lines = 0;
    for (char *line = metrics; *line; line = strchr(line, '\n') + 1) {
        assert_int_equal(sscanf(line, "{\"step\":%lld", &step), 1);
        assert_int_equal(step, ++lines);
    }
    assert_int_equal(lines, STEPS);
    sw_free(have);
    sw_free(metrics);
    assert_each_point_once(output);
}

static void run_to_the_end(const char *output)
{
    const int status = finish(start(output, NULL));
    if (status != 0) {
        const char *log = test_text("log");
        const size_t len = strlen(log);
        fail_msg("status %d: %s", status, log + (len > 600 ? len - 600 : 0));
    }
    assert_same_end(output);
}

/* Starts a run and kills it after some seconds. Returns whether it was still running. */
static bool start_and_kill(const char *output, double seconds)
{
    const pid_t pid = start(output, NULL);
    pause_s(seconds);
    kill(pid, SIGKILL);
    return WIFSIGNALED(finish(pid));
}

static int n_kills(int few)
{
    const char *text = getenv("SPILLWAY_KILLS");
    return text ? atoi(text) : few;
}

static double random_share(int i)
{
    return (double)(sw_philox_u64(7, 1, (uint64_t)i) >> 11) * 0x1p-53;
}

/* A run that ended before the kill must be correct, and begins again, so that kills hit every part
 * of a run. */
static void killed_at_random_moments(void **state)
{
    (void)state;
    const char *output = test_at("killed");
    const int kills = n_kills(8);
    int i = 0, hit = 0;
    for (; hit < kills && i < 20 * kills; i++) {
        if (start_and_kill(output, random_share(i) * 0.7 * whole_s)) {
            hit++;
        } else {
            run_to_the_end(output);
            test_remove(output);
        }
    }
    run_to_the_end(output);
    print_message("%d of %d runs were killed\n", hit, i);
    assert_int_equal(hit, kills);
}

/* ---- on disk ---- */

/* Files in the folder of the disk tier: they have no names, so a run leaves none, however it
 * ends. */
static int count_swap_files(void)
{
    int n = 0;
    DIR *dir = opendir(test_at("disk"));
    assert_non_null(dir);
    for (struct dirent *entry = readdir(dir); entry; entry = readdir(dir)) {
        n += strstr(entry->d_name, ".swap") != NULL;
    }
    closedir(dir);
    return n;
}

static void killed_on_disk(void **state)
{
    (void)state;
    char output[128];
    const int kills = n_kills(4);
    int i = 0, hit = 0;
    snprintf(output, sizeof output, "%s/disk.killed", test_folder());
    on_disk = true;
    const double begin = sw_now_s();
    run_to_the_end(output); /* the bits of the run in memory */
    const double disk_s = sw_now_s() - begin;
    assert_int_equal(count_swap_files(), 0);
    test_remove(output);
    for (; hit < kills && i < 20 * kills; i++) {
        const bool killed = start_and_kill(output, random_share(1000 + i) * 0.7 * disk_s);
        hit += killed;
        assert_int_equal(count_swap_files(), 0);
        if (!killed) {
            run_to_the_end(output);
            test_remove(output);
        }
    }
    run_to_the_end(output);
    print_message("%d of %d runs were killed\n", hit, i);
    assert_int_equal(hit, kills);
    test_remove(output);
    on_disk = false;
}

static void two_runs_share_a_folder(void **state)
{
    (void)state;
    char left[128], outputs[2][128];
    for (int i = 0; i < 2; i++) {
        snprintf(outputs[i], sizeof outputs[i], "%s/shares.%d", test_folder(), i);
    }
    snprintf(left, sizeof left, "%s/disk/spillway-elsewhere-1-rank0-0.swap", test_folder());
    on_disk = true;
    assert_int_equal(sw_file_write_atomic(left, "left", 4), SW_OK);
    for (int i = 0; i < 2; i++) { /* the second time one of them is killed beside the other */
        const pid_t one = start(outputs[0], NULL), two = start(outputs[1], NULL);
        if (i == 1) {
            pause_s(whole_s / 3);
            kill(two, SIGKILL);
        }
        assert_int_equal(finish(one), 0);
        const int status = finish(two);
        assert_true(i == 1 || status == 0);
        run_to_the_end(outputs[1]);
        assert_same_end(outputs[0]);
        test_remove(outputs[0]);
        test_remove(outputs[1]);
    }
    char *text = NULL;
    size_t len;
    assert_int_equal(sw_file_read(left, &text, &len), SW_OK);
    assert_int_equal(len, 4);
    sw_free(text);
    assert_int_equal(unlink(left), 0);
    assert_int_equal(count_swap_files(), 0);
    on_disk = false;
}

/* ---- meshes ---- */

/* Trains once without a stop, on one rank of each axis that is drawn. Its end is the wanted one. */
static void want_end_of(const char *output)
{
    char path[320];
    const double begin = sw_now_s();
    n_started = 0;
    assert_int_equal(finish(start(output, NULL)), 0);
    whole_s = sw_now_s() - begin;
    sw_free(want);
    snprintf(path, sizeof path, "%s/model/model.safetensors", output);
    assert_int_equal(sw_file_read(path, &want, &want_len), SW_OK);
}

/* Kills runs at random moments. Each begins on a mesh of its own, from the checkpoint of the last
 * one if it came to have any. */
static void kill_meshes(int first, int kills)
{
    char output[128];
    int i = 0, hit = 0, kept = 0;
    snprintf(output, sizeof output, "%s/meshes", test_folder());
    for (; hit < kills && i < 20 * kills; i++) {
        if (start_and_kill(output, random_share(first + i) * 0.9 * whole_s)) {
            hit++;
            kept += access(test_at("meshes/latest"), F_OK) == 0;
        } else {
            run_to_the_end(output);
            test_remove(output);
        }
    }
    run_to_the_end(output);
    test_remove(output);
    print_message("tensor %d: %d of %d runs were killed, %d with a checkpoint\n", tensor, hit, i,
                  kept);
    assert_int_equal(hit, kills);
    assert_true(kept > 0 || kills < 10);
}

/* The pipe and data axes change no bit, also beside slices. */
static void killed_and_resumed_on_other_meshes(void **state)
{
    (void)state;
    const int kills = n_kills(2);
    char *const end_of_one = want;
    const size_t len_of_one = want_len;
    const double seconds_of_one = whole_s;
    want = NULL;
    for (tensor = 1; tensor <= 2; tensor++) {
        char output[128];
        snprintf(output, sizeof output, "%s/slices.%d", test_folder(), tensor);
        want_end_of(output);
        kill_meshes(2000 * tensor, (kills + tensor - 1) / 2);
    }
    tensor = 0;
    sw_free(want);
    want = end_of_one;
    want_len = len_of_one;
    whole_s = seconds_of_one;
}

/* ---- places of a save ---- */

static void killed_inside_a_save(void **state)
{
    (void)state;
    static const char *const names[] = {"mkdir",  "write",  "fsync",    "rename",
                                        "unlink", "create", "hf.write", "hf.fsync"};
    const bool all = getenv("SPILLWAY_FAULTS") != NULL;
    for (size_t i = 0; i < SW_LEN(names); i++) {
        for (int n = 1; n < 1000; n = all ? n + 1 : n * 5 + 2) {
            char fault[64], output[128];
            snprintf(fault, sizeof fault, "%s:%d:kill", names[i], n);
            snprintf(output, sizeof output, "%s/fault", test_folder());
            const int status = finish(start(output, fault));
            run_to_the_end(output);
            test_remove(output);
            if (!WIFSIGNALED(status)) {
                assert_int_equal(status, 0); /* there is no n-th one */
                break;
            }
        }
    }
}

static int take_one_step(void **state)
{
    (void)state;
    snprintf(steps_text, sizeof steps_text, "1");
    return 0;
}

static int take_all_steps(void **state)
{
    (void)state;
    snprintf(steps_text, sizeof steps_text, "%d", STEPS);
    return 0;
}

/* Kills runs before every system call that changes the disk, until they have their files, among
 * them the marker of the model's folder. */
static void killed_before_the_first_step(void **state)
{
    (void)state;
    static const char *const names[] = {"mkdir", "create", "write", "fsync", "rename"};
    for (size_t i = 0; i < SW_LEN(names); i++) {
        for (int n = 1;; n++) {
            char fault[64];
            const char *output = test_at("begins");
            snprintf(fault, sizeof fault, "%s:%d:kill", names[i], n);
            const int status = finish(start(output, fault));
            const bool begun = access(test_at("begins/tokenizer/chars.json"), F_OK) == 0;
            if (finish(start(output, NULL)) != 0) {
                fail_msg("a run killed at %s is not resumed: see its lines in %s", fault,
                         test_at("log"));
            }
            test_remove(output);
            if (begun || !WIFSIGNALED(status)) {
                assert_true(begun && n > 1);
                break;
            }
        }
    }
}

static void failing_disk_is_reported_and_survived(void **state)
{
    (void)state;
    static const char *const faults[] = {"write:30:eio", "fsync:9:eio", "rename:5:eio",
                                         "write:45:enospc"};
    for (size_t i = 0; i < SW_LEN(faults); i++) {
        char output[128];
        snprintf(output, sizeof output, "%s/failing", test_folder());
        const int status = finish(start(output, faults[i]));
        assert_true(WIFEXITED(status));
        assert_true(WEXITSTATUS(status) == 1 ||
                    WEXITSTATUS(status) == 0); /* 0: past the last one */
        run_to_the_end(output);
        test_remove(output);
    }
}

/* Waits until `output` holds a first step, or the run is over. */
static void wait_for_a_step(const char *output, pid_t pid)
{
    char path[320];
    siginfo_t info = {.si_pid = 0};
    snprintf(path, sizeof path, "%s/metrics.jsonl", output);
    for (struct stat st; info.si_pid == 0 && (stat(path, &st) != 0 || st.st_size == 0);) {
        pause_s(0.001);
        assert_int_equal(waitid(P_PID, (id_t)pid, &info, WEXITED | WNOHANG | WNOWAIT), 0);
    }
}

static void stopped_by_a_signal(void **state)
{
    (void)state;
    static const int signals[] = {SIGINT, SIGTERM};
    for (size_t i = 0; i < SW_LEN(signals); i++) {
        char output[128];
        snprintf(output, sizeof output, "%s/stopped.%zu", test_folder(), i);
        const pid_t pid = start(output, NULL);
        wait_for_a_step(output, pid);
        kill(pid, signals[i]);
        assert_int_equal(finish(pid), 0); /* it ended by itself, with a checkpoint */
        run_to_the_end(output);
    }
}

static void stopped_before_the_first_step(void **state)
{
    (void)state;
    static const int signals[] = {SIGINT, SIGTERM};
    for (int i = 0; i < 6; i++) {
        const int number = signals[i % 2];
        char output[128];
        snprintf(output, sizeof output, "%s/early.%d", test_folder(), i);
        const pid_t pid = start(output, NULL);
        pause_s(0.02 * i * whole_s);
        kill(pid, number);
        const int status = finish(pid);
        if (WIFEXITED(status)) { /* 0: it was faster, and stepped */
            assert_true(WEXITSTATUS(status) == 0 || WEXITSTATUS(status) == 128 + number);
        } else { /* before it listened */
            assert_int_equal(WTERMSIG(status), number);
        }
        run_to_the_end(output);
    }
}

static int set_up(void **state)
{
    take_all_steps(state);
    snprintf(save_text, sizeof save_text, "%d", SAVE_EVERY);
    program = test_spillway();
    if (!program || mkdir(test_at("disk"), 0777) != 0) {
        return -1;
    }
    test_put(
        "config.json",
        "{\"model_type\":\"gpt2\",\"vocab_size\":40,\"n_positions\":16,\"n_embd\":24,\"n_layer\":2,"
        "\"n_head\":3,\"embd_pdrop\":0.1,\"attn_pdrop\":0.1,\"resid_pdrop\":0.1}");
    test_put("mesh.json",
             "{\"model_type\":\"gpt2\",\"vocab_size\":40,\"n_positions\":16,\"n_embd\":16,"
             "\"n_layer\":2,\"n_head\":2,\"embd_pdrop\":0.1,\"attn_pdrop\":0.1,"
             "\"resid_pdrop\":0.1}");
    test_put(
        "ds.json",
        "{\"train_micro_batch_size_per_gpu\": 2, \"bf16\": "
        "{\"enabled\": true}, \"optimizer\": {\"type\": \"AdamW\", \"params\": {\"lr\": 0.01}}, "
        "\"scheduler\": {\"type\": \"WarmupLR\", \"params\": {\"warmup_num_steps\": 20}}, "
        "\"zero_optimization\": {\"stage3_param_persistence_threshold\": 100}, "
        "\"spillway\": {\"threads\": 1, \"micro_batches\": 3}}");
    test_put_lines("text.txt", 400);
    const double begin = sw_now_s();
    if (finish(start(test_at("never"), NULL)) != 0) {
        return -1;
    }
    whole_s = sw_now_s() - begin;
    return sw_file_read(test_at("never/model/model.safetensors"), &want, &want_len) < 0;
}

static int tear_down(void **state)
{
    (void)state;
    sw_free(want);
    return 0;
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(killed_at_random_moments),
    cmocka_unit_test(killed_on_disk),
    cmocka_unit_test(killed_and_resumed_on_other_meshes),
    cmocka_unit_test(two_runs_share_a_folder),
    cmocka_unit_test_setup_teardown(killed_before_the_first_step, take_one_step, take_all_steps),
    cmocka_unit_test(killed_inside_a_save),
    cmocka_unit_test(failing_disk_is_reported_and_survived),
    cmocka_unit_test(stopped_by_a_signal),
    cmocka_unit_test(stopped_before_the_first_step),
};

const struct test_program sw_tests = {TEST_TABLE(tests), .setup = set_up, .teardown = tear_down};
