// SPDX-License-Identifier: Apache-2.0
// TIMEOUT 300
// COST 12
// Ranks that are processes of each MPI that the build found. At every stage they give the bytes of
// a run of one process. Checkpoints resume on another number of ranks, and failures are named.
// Skipped, with a line, if mpirun or the module is missing. Tests that do not depend on MPI also
// run over TCP.
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/base.h"
#include "json/json.h"
#include "support/processes.h"
#include "support/scratch.h"
#include "support/test.h"

static const struct mpi {
    const char *name, *module, *run;
} mpis[] = {
    {"Open MPI", "spillway_openmpi.so", "mpirun.openmpi --allow-run-as-root --oversubscribe"},
    {"MPICH", "spillway_mpich.so", "mpirun.mpich"},
};

/* Processes of `spillway launch`, which needs no MPI. */
static const struct mpi over_tcp = {.name = "TCP"};

static char build[448];
static const struct mpi *mpi; /* of the present test */

/* names  globs in the folder, apart by blanks */
static void remove_all(const char *names)
{
    char command[256];
    snprintf(command, sizeof command, "cd %s && rm -rf %s", test_folder(), names);
    assert_int_equal(system(command), 0);
}

static bool is_here(const struct mpi *m)
{
    char command[768];
    snprintf(command, sizeof command, "test -r %s/%s && command -v %.*s > /dev/null", build,
             m->module, (int)strcspn(m->run, " "), m->run);
    return system(command) == 0;
}

/* `ranks` 0: without mpirun. What it prints goes to the file `log`. */
static pid_t start(int ranks, const char *more)
{
    char command[2048], launcher[576] = "";
    if (ranks > 0 && !mpi->module) {
        snprintf(launcher, sizeof launcher, "%s/spillway launch --num-ranks %d --", build, ranks);
    } else if (ranks > 0) {
        snprintf(launcher, sizeof launcher, "%s -n %d", mpi->run, ranks);
    }
    snprintf(command, sizeof command,
             "exec %s %s/spillway train --model %s --data %s --deepspeed %s --seq-len 12 --quiet "
             "%s %s > %s 2>&1",
             launcher, build,
             test_at(strstr(more, "--trace") || strstr(more, "tensor") ? "wide.json"
                     : strstr(more, "pipe=3")                          ? "deep.json"
                                                                       : "config.json"),
             test_at("text.txt"), test_at("ds.json"),
             strstr(more, "--deadline") ? "" : "--deadline 60", more, test_at("log"));
    const pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        execl("/bin/sh", "sh", "-c", command, (char *)NULL);
        _exit(98);
    }
    return pid;
}

static void run(int ranks, const char *more)
{
    const int status = test_exit_of(start(ranks, more));
    if (status != 0) {
        fail_msg("%s, %d ranks, %s: status %d: %s", mpi->name, ranks, more, status,
                 test_text("log"));
    }
}

static void assert_same_model(const char *a, const char *b)
{
    char path[2][128], *bytes[2];
    size_t len[2];
    snprintf(path[0], sizeof path[0], "%s/model/model.safetensors", test_at(a));
    snprintf(path[1], sizeof path[1], "%s/model/model.safetensors", test_at(b));
    for (int i = 0; i < 2; i++) {
        if (sw_file_read(path[i], &bytes[i], &len[i]) < 0) {
            fail_msg("%s", sw_error_message());
        }
    }
    assert_int_equal(len[0], len[1]);
    if (memcmp(bytes[0], bytes[1], len[0]) != 0) {
        fail_msg("%s: %s and %s differ", mpi->name, a, b);
    }
    sw_free(bytes[0]);
    sw_free(bytes[1]);
}

static void for_each_mpi(void (*test)(void))
{
    int n = 0;
    for (size_t i = 0; i < SW_LEN(mpis); i++) {
        mpi = &mpis[i];
        if (is_here(mpi)) {
            test();
            n++;
        }
    }
    if (n == 0) {
        skip();
    }
}

static void same_bytes(void)
{
    static const int ranks[] = {2, 3, 2, 4};
    char more[256], name[16];
    snprintf(more, sizeof more, "--steps 12 --output %s", test_at("one"));
    run(0, more);
    for (int stage = 0; stage < 4; stage++) {
        snprintf(name, sizeof name, "many%d", stage);
        snprintf(more, sizeof more, "--steps 12 --set zero_optimization.stage=%d --output %s",
                 stage, test_at(name));
        run(ranks[stage], more);
        assert_same_model("one", name);
    }
    /* six steps on 3 processes at stage 3, then 12 in all on 2 at stage 1 */
    snprintf(more, sizeof more, "--steps 6 --set zero_optimization.stage=3 --output %s",
             test_at("resumed"));
    run(3, more);
    snprintf(more, sizeof more, "--steps 12 --resume --set zero_optimization.stage=1 --output %s",
             test_at("resumed"));
    run(2, more);
    assert_same_model("one", "resumed");
    remove_all("one many? resumed");
}

static void processes_give_the_bytes_of_one(void **state)
{
    (void)state;
    for_each_mpi(same_bytes);
}

/* Samples are drawn from logits that the last stage sends, so they are texts of equal weights. */
static void assert_same_samples(const char *a, const char *b)
{
    char path[2][64];
    snprintf(path[0], sizeof path[0], "%s/samples.jsonl", a);
    snprintf(path[1], sizeof path[1], "%s/samples.jsonl", b);
    char *text[2] = {test_text(path[0]), test_text(path[1])};
    assert_true(strlen(text[0]) > 0);
    assert_string_equal(text[0], text[1]);
    sw_free(text[0]);
    sw_free(text[1]);
}

/* Two stages with a tied table, of one process each or of two. */
static void same_bytes_of_stages(void)
{
    static const char every[] = "--eval-every 3 --sample-every 3";
    char more[384];
    snprintf(more, sizeof more, "--steps 6 %s --output %s", every, test_at("one"));
    run(0, more);
    for (int ranks = 2; ranks <= 4; ranks += 2) {
        snprintf(
            more, sizeof more,
            "--steps 6 %s --set spillway.mesh.pipe=2 --set zero_optimization.stage=%d --output %s",
            every, ranks == 4 ? 3 : 0, test_at("many"));
        run(ranks, more);
        assert_same_model("one", "many");
        assert_same_samples("one", "many");
        remove_all("many");
    }
    /* three steps of stages, then six in all without */
    snprintf(more, sizeof more, "--steps 3 %s --set spillway.mesh.pipe=2 --output %s", every,
             test_at("many"));
    run(2, more);
    snprintf(more, sizeof more, "--steps 6 --resume %s --output %s", every, test_at("many"));
    run(0, more);
    assert_same_model("one", "many");
    remove_all("one many");
}

static void stages_give_the_bytes_of_one(void **state)
{
    (void)state;
    for_each_mpi(same_bytes_of_stages);
}

/* Along all axes at once: the bits are those of the slices alone. */
static void same_bytes_of_slices(void)
{
    char more[384];
    snprintf(more, sizeof more, "--steps 2 --set spillway.mesh.tensor=2 --output %s",
             test_at("one"));
    run(2, more);
    snprintf(more, sizeof more,
             "--steps 2 --set spillway.mesh.pipe=2 --set spillway.mesh.tensor=2 "
             "--set zero_optimization.stage=3 --output %s",
             test_at("many"));
    run(8, more);
    assert_same_model("one", "many");
    remove_all("one many");
}

static void eight_processes_give_the_bytes_of_two(void **state)
{
    (void)state;
    for_each_mpi(same_bytes_of_slices);
}

static void stages_give_the_bytes_of_one_over_tcp(void **state)
{
    (void)state;
    mpi = &over_tcp;
    same_bytes_of_stages();
}

/* Overflows are agreed on, and the trust ratios are of whole tensors. */
static void same_bytes_of_lamb(void)
{
    static const char sets[] = "--set optimizer.type=Lamb --set bf16.enabled=false "
                               "--set fp16.enabled=true --set fp16.initial_scale_power=19";
    char more[384];
    snprintf(more, sizeof more, "--steps 8 %s --output %s", sets, test_at("one"));
    run(0, more);
    for (int stage = 1; stage < 4; stage += 2) {
        snprintf(more, sizeof more, "--steps 8 %s --set zero_optimization.stage=%d --output %s",
                 sets, stage, test_at("many"));
        run(stage == 1 ? 2 : 3, more);
        assert_same_model("one", "many");
        remove_all("many");
    }
    remove_all("one");
}

static void lamb_in_fp16_gives_the_bytes_of_one(void **state)
{
    (void)state;
    for_each_mpi(same_bytes_of_lamb);
}

/* Bytes that gradients sent, summed over the steps and ranks of a trace. */
static int64_t reduced_bytes(const char *name)
{
    char *text = test_text(name);
    struct sw_json_doc *doc = NULL;
    int64_t sum = 0;
    assert_int_equal(sw_json_parse(name, text, strlen(text), SW_JSON_STRICT, &doc), SW_OK);
    const struct sw_json *events = sw_json_get(sw_json_root(doc), "traceEvents");
    assert_non_null(events);
    for (const struct sw_json *event = events->first; event; event = event->next) {
        const struct sw_json *bytes = sw_json_path(event, "args.bytes");
        const struct sw_json *of = sw_json_get(event, "name");
        if (bytes && of && strstr(of->string, "reduce")) {
            sum += (int64_t)bytes->number;
        }
    }
    sw_json_close(doc);
    sw_free(text);
    assert_true(sum > 0);
    return sum;
}

/* Gradients of the rows that a step looks up in a large table, at stages with whole parameters and
 * with sharded ones. */
static void same_bytes_by_rows(void)
{
    for (int stage = 2; stage < 4; stage++) {
        static const char *const names[] = {"dense", "rows"};
        int64_t sent[2];
        for (int sparse = 0; sparse < 2; sparse++) {
            char more[768];
            snprintf(more, sizeof more,
                     "--steps 4 --set sparse_gradients=%s "
                     "--set zero_optimization.stage=%d --trace %s.json --trace-steps 2:3 "
                     "--output %s",
                     sparse ? "true" : "false", stage, test_at(names[sparse]),
                     test_at(names[sparse]));
            run(2, more);
            sent[sparse] = reduced_bytes(sparse ? "rows.json" : "dense.json");
        }
        assert_same_model("dense", "rows");
        if (sent[1] > sent[0] * 3 / 4) {
            fail_msg("%s, stage %d: %lld bytes by rows, %lld by slices", mpi->name, stage,
                     (long long)sent[1], (long long)sent[0]);
        }
        remove_all("dense rows dense.json rows.json");
    }
}

static void rows_of_look_ups_give_the_bytes_of_slices(void **state)
{
    (void)state;
    for_each_mpi(same_bytes_by_rows);
}

static void rows_of_look_ups_give_the_bytes_of_slices_over_tcp(void **state)
{
    (void)state;
    mpi = &over_tcp;
    same_bytes_by_rows();
}

static void pause_ms(long ms)
{
    const struct timespec t = {ms / 1000, ms % 1000 * 1000000};
    nanosleep(&t, NULL);
}

/* The process of rank `rank`, by its environment; 0 = none. */
static pid_t find_rank(int rank)
{
    char command[1024], text[64] = "";
    snprintf(command, sizeof command,
             "for p in $(pgrep -f '^%s/spillway train'); do tr '\\0' '\\n' < /proc/$p/environ 2> "
             "/dev/null | grep -qxE '(OMPI_COMM_WORLD_RANK|PMI_RANK)=%d' && echo $p && break; done",
             build, rank);
    FILE *pipe = popen(command, "r");
    assert_non_null(pipe);
    const bool found = fgets(text, sizeof text, pipe) != NULL;
    pclose(pipe);
    return found ? (pid_t)atoi(text) : 0;
}

/* Waits until the run has written metrics of a step or two. */
static void wait_for_steps(const char *output)
{
    char path[320];
    snprintf(path, sizeof path, "%s/metrics.jsonl", output);
    for (int i = 0; i < 600; i++) {
        char *text = NULL;
        size_t len = 0;
        if (sw_file_read(path, &text, &len) >= 0) {
            sw_free(text);
            if (len > 0) {
                return;
            }
        }
        pause_ms(50);
    }
    fail_msg("%s: no step within 30 s: %s", mpi->name, test_text("log"));
}

/* The first stage waits for the second one, which waits for the third, which has stopped. */
static void stopped_rank(void)
{
    char more[256];
    snprintf(more, sizeof more,
             "--steps 1000000 --deadline 6 --no-export --set spillway.mesh.pipe=3 --output %s",
             test_at("hang"));
    const pid_t job = start(3, more);
    wait_for_steps(test_at("hang"));
    const pid_t rank = find_rank(2);
    assert_true(rank > 0);
    kill(rank, SIGSTOP);
    assert_int_not_equal(test_exit_of(job), 0);
    kill(rank, SIGKILL); /* where the launcher has not done it yet */
    char *log = test_text("log");
    /* each that speaks names rank 2; on a machine with much else to do the launcher may end one
     * before it spoke */
    int n_named = 0;
    for (int r = 0; r < 2; r++) {
        char name[32];
        snprintf(name, sizeof name, "rank %d of 3: ", r);
        const char *line = strstr(log, name);
        if (line && !memmem(line, strcspn(line, "\n"), "pipe_02 (", 9)) {
            fail_msg("%s: rank %d does not name the last stage: %s", mpi->name, r, log);
        }
        n_named += line != NULL;
    }
    if (n_named == 0) {
        fail_msg("%s: nobody names rank 2: %s", mpi->name, log);
    }
    sw_free(log);
    remove_all("hang");
}

static void a_rank_that_hangs_is_named(void **state)
{
    (void)state;
    for_each_mpi(stopped_rank);
}

static void signalled(void)
{
    char more[256];
    snprintf(more, sizeof more, "--steps 1000000 --no-export --output %s", test_at("told"));
    const pid_t job = start(2, more);
    wait_for_steps(test_at("told"));
    const pid_t rank = find_rank(1);
    assert_true(rank > 0);
    kill(rank, SIGTERM); /* Slurm tells all; one is enough */
    assert_int_equal(test_exit_of(job), 0);
    char command[1024];
    snprintf(command, sizeof command, "%s/spillway checkpoint verify %s > %s 2>&1", build,
             test_at("told"), test_at("log"));
    if (system(command) != 0) {
        fail_msg("%s: %s", mpi->name, test_text("log"));
    }
    remove_all("told");
}

static void told_to_end_they_agree_and_save(void **state)
{
    (void)state;
    for_each_mpi(signalled);
}

static void other_math(void)
{
    char more[640];
    snprintf(more, sizeof more,
             "--steps 5 --output %s : -n 1 %s/spillway train --model %s --data %s --deepspeed %s "
             "--seq-len 12 --quiet --steps 5 --seed 77 --output %s",
             test_at("other"), build, test_at("config.json"), test_at("text.txt"),
             test_at("ds.json"), test_at("other"));
    assert_int_not_equal(test_exit_of(start(1, more)), 0);
    char *log = test_text("log");
    if (!strstr(log, "has different keys in its configuration from rank")) {
        fail_msg("%s: %s", mpi->name, log);
    }
    sw_free(log);
    snprintf(more, sizeof more, "--steps 5 --ranks 3 --output %s", test_at("other"));
    assert_int_not_equal(test_exit_of(start(2, more)), 0);
    log = test_text("log");
    if (!strstr(log, "--ranks 3: 2 processes were started")) {
        fail_msg("%s: %s", mpi->name, log);
    }
    sw_free(log);
}

static void ranks_that_differ_refuse(void **state)
{
    (void)state;
    for_each_mpi(other_math);
}

/* Variables of mpirun or srun without those that connect the ranks. Each rank would train alone,
 * into the same folder. */
static void alone(void)
{
    const char *name = mpi == &mpis[0] ? "OMPI_COMM_WORLD_SIZE" : "PMI_SIZE";
    char more[256];
    snprintf(more, sizeof more, "--steps 1 --output %s", test_at("alone"));
    setenv(name, "2", 1);
    const int status = test_exit_of(start(0, more));
    unsetenv(name);
    char *text = test_text("log");
    if (status != 2 || !strstr(text, "finds this one alone")) {
        fail_msg("%s: status %d: %s", mpi->name, status, text);
    }
    sw_free(text);
}

static void one_of_several_does_not_train_alone(void **state)
{
    (void)state;
    for_each_mpi(alone);
}

static int set_up(void **state)
{
    (void)state;
    test_put(
        "config.json",
        "{\"model_type\":\"gpt2\",\"vocab_size\":40,\"n_positions\":16,\"n_embd\":24,\"n_layer\":2,"
        "\"n_head\":3,\"embd_pdrop\":0.1,\"attn_pdrop\":0.1,\"resid_pdrop\":0.1}");
    test_put("wide.json",
             "{\"model_type\":\"gpt2\",\"vocab_size\":4000,\"n_positions\":16,\"n_embd\":16,"
             "\"n_layer\":2,\"n_head\":2,\"tie_word_embeddings\":false}");
    test_put("deep.json",
             "{\"model_type\":\"gpt2\",\"vocab_size\":40,\"n_positions\":16,\"n_embd\":24,"
             "\"n_layer\":3,\"n_head\":3,\"tie_word_embeddings\":false}");
    test_put("ds.json", "{\"train_micro_batch_size_per_gpu\": 2, \"bf16\": {\"enabled\": true}, "
                        "\"gradient_clipping\": 1.0, "
                        "\"optimizer\": {\"type\": \"AdamW\", \"params\": {\"lr\": 0.01}}, "
                        "\"zero_optimization\": {\"stage3_param_persistence_threshold\": 100}, "
                        "\"spillway\": {\"threads\": 1, \"micro_batches\": 4}}");
    test_put_lines("text.txt", 400);
    return 0;
}

static int begin(char **argv)
{
    (void)argv;
    setenv("ASAN_OPTIONS", "detect_leaks=0", 1); /* Open MPI leaves some of its own */
    const char *where = getenv("SPILLWAY_BUILD_DIR");
    snprintf(build, sizeof build, "%s", where ? where : "build");
    for (size_t i = 0; i < SW_LEN(mpis); i++) {
        printf("%s: %s\n", mpis[i].name,
               is_here(&mpis[i]) ? "tested" : "no mpirun, or no module: not tested");
    }
    return 0;
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(rows_of_look_ups_give_the_bytes_of_slices_over_tcp),
    cmocka_unit_test(stages_give_the_bytes_of_one),
    cmocka_unit_test(eight_processes_give_the_bytes_of_two),
    cmocka_unit_test(stages_give_the_bytes_of_one_over_tcp),
    cmocka_unit_test(rows_of_look_ups_give_the_bytes_of_slices),
    cmocka_unit_test(processes_give_the_bytes_of_one),
    cmocka_unit_test(lamb_in_fp16_gives_the_bytes_of_one),
    cmocka_unit_test(a_rank_that_hangs_is_named),
    cmocka_unit_test(told_to_end_they_agree_and_save),
    cmocka_unit_test(ranks_that_differ_refuse),
    cmocka_unit_test(one_of_several_does_not_train_alone),
};

const struct test_program sw_tests = {TEST_TABLE(tests), .setup = set_up, .begin = begin};
