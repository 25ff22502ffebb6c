// SPDX-License-Identifier: Apache-2.0
// COST 31
// Starting, watching and starting again, with real processes of this machine. The test program is
// also the program that is launched: with a word behind its name it plays that part. mpirun and the
// agent are small scripts, so that no MPI is needed.
#include "launch/private.h"

#include "support/test.h"

#include <arpa/inet.h>
#include <errno.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static char folder[64], self[1024];

static const char *in_folder(const char *name)
{
    static char path[4][1200];
    static int turn;
    turn = (turn + 1) % 4;
    snprintf(path[turn], sizeof path[turn], "%s/%s", folder, name);
    return path[turn];
}

static void write_file(const char *name, const char *text, mode_t mode)
{
    FILE *file = fopen(in_folder(name), "w");
    assert_non_null(file);
    fputs(text, file);
    fclose(file);
    assert_int_equal(chmod(in_folder(name), mode), 0);
}

static char *read_text(const char *name)
{
    static char text[16384];
    FILE *file = fopen(in_folder(name), "r");
    text[0] = '\0';
    if (file) {
        text[fread(text, 1, sizeof text - 1, file)] = '\0';
        fclose(file);
    }
    return text;
}

/* ---- the parts that the launched program plays ---- */

static int rank_of_environment(void)
{
    const char *rank = getenv("RANK");
    return rank ? atoi(rank) : 0;
}

static int part_bound(void)
{
    cpu_set_t set;
    char name[32], text[CPU_SETSIZE + 2] = "";
    sched_getaffinity(0, sizeof set, &set);
    for (int i = 0; i < CPU_SETSIZE; i++) {
        text[i] = CPU_ISSET(i, &set) ? '1' : '0';
    }
    snprintf(name, sizeof name, "bound-%d", rank_of_environment());
    write_file(name, text, 0644);
    return 0;
}

static bool secret_of_environment(struct sw_job_secret *out)
{
    return sw_job_secret_read(getenv("SPILLWAY_JOB_SECRET"), getenv("SPILLWAY_JOB_SECRET_FILE"),
                              getenv("SPILLWAY_JOB_ID"), out) >= 0;
}

/* Rank 1 of those who say who they are, and break off. */
static int part_broken(void)
{
    struct sw_job_secret secret;
    const char *line = "at 1 7 reduce\n";
    int fd;
    if (rank_of_environment() == 1) {
        if (!secret_of_environment(&secret) ||
            sw_launch_introduce(getenv("SPILLWAY_LAUNCH"), &secret, "hello", 1, &fd) < 0 ||
            send(fd, line, strlen(line), MSG_NOSIGNAL) < 0) {
            return 9;
        }
        usleep(300000);
        close(fd);
    }
    sleep(60);
    return 0;
}

/* One byte at a time up to the end of the line, which is left out. */
static void read_line(int fd, char line[SW_LAUNCH_LINE_CAP])
{
    size_t n = 0;
    while (n < SW_LAUNCH_LINE_CAP - 1 && recv(fd, line + n, 1, 0) == 1 && line[n] != '\n') {
        n++;
    }
    line[n] = '\0';
}

/* The rank of the environment, on a host "a.cluster", breaks off. */
static int part_elsewhere(void)
{
    struct sw_job_secret secret;
    const uint8_t nonce[SW_NONCE_BYTES] = {3};
    char hello[SW_LAUNCH_LINE_CAP], line[SW_LAUNCH_LINE_CAP], out[SW_LAUNCH_LINE_CAP];
    char text[2 * SW_LAUNCH_LINE_CAP];
    int fd;
    if (!secret_of_environment(&secret) || sw_launch_connect(getenv("SPILLWAY_LAUNCH"), &fd) < 0) {
        return 9;
    }
    sw_launch_report_hello("hello", rank_of_environment(), "a.cluster", 1, nonce, hello);
    snprintf(text, sizeof text, "%s\n", hello);
    (void)!send(fd, text, strlen(text), MSG_NOSIGNAL);
    read_line(fd, line);
    if (!sw_launch_report_answer(&secret, hello, nonce, line, out)) {
        return 8;
    }
    snprintf(text, sizeof text, "%s\n", out);
    (void)!send(fd, text, strlen(text), MSG_NOSIGNAL);
    usleep(300000);
    close(fd);
    sleep(60);
    return 0;
}

/* Says words to the launcher; 0 when it hangs up on them. */
static int tell_launcher(const char *words)
{
    char text[1024];
    ssize_t n;
    int fd;
    if (sw_launch_connect(getenv("SPILLWAY_LAUNCH"), &fd) < 0 ||
        send(fd, words, strlen(words), MSG_NOSIGNAL) < 0) {
        return 9;
    }
    while ((n = recv(fd, text, sizeof text, 0)) > 0) {
    }
    close(fd);
    return n == 0 || errno == ECONNRESET ? 0 : 8;
}

/* Nobody of this job, in several ways; the one rank says nothing itself. */
static int part_stranger(void)
{
    static const char nonce[] = "00000000000000000000000000000000";
    struct sw_job_secret other;
    char words[512];
    int fd;
    int bad = tell_launcher("GET / HTTP/1.1\n");
    bad = bad ? bad : tell_launcher("at 0 9 \033[2J\nbye 0 0\n");
    bad = bad ? bad : tell_launcher("hello 0 here 5\nbye 0 0\n");
    snprintf(words, sizeof words, "hello 0 h\033[2Jere 5 %s\nproof %s%s\nbye 0 0\n", nonce, nonce,
             nonce);
    bad = bad ? bad : tell_launcher(words);
    sw_job_secret_draw(&other);
    const bool fooled =
        sw_launch_introduce(getenv("SPILLWAY_LAUNCH"), &other, "hello", 0, &fd) != SW_E_PEER;
    return bad ? bad : fooled ? 7 : 0;
}

static _Noreturn void flood(void)
{
    for (;;) {
        int fds[50], n = 0;
        while (n < 50 && sw_launch_connect(getenv("SPILLWAY_LAUNCH"), &fds[n]) >= 0) {
            (void)!send(fds[n], "x", 1, MSG_NOSIGNAL);
            n++;
        }
        while (n > 0) {
            close(fds[--n]);
        }
    }
}

/* Strangers come without end, and rank 1 dies. */
static int part_flooded(const char *part)
{
    struct sw_launch_link *link = NULL;
    const int rank = rank_of_environment();
    if (rank > 1) {
        flood();
    }
    usleep(200000);
    if (sw_launch_link_open(rank, &link) < 0 || !link) {
        return 9;
    }
    write_file(rank == 0 ? "flooded-0" : "flooded-1", "", 0644);
    sleep(1);
    if (rank == 1 && strcmp(part, "flooded") == 0) {
        raise(SIGKILL);
    }
    sleep(60);
    return 0;
}

/* More connections than the launcher has descriptors; then a rank reports. */
static int part_crowd(void)
{
    enum { MANY = 120 };
    struct sw_launch_link *link = NULL;
    int fds[MANY];
    for (int i = 0; i < MANY; i++) {
        if (sw_launch_connect(getenv("SPILLWAY_LAUNCH"), &fds[i]) < 0) {
            return 9;
        }
    }
    sleep(1);
    for (int i = 0; i < MANY; i++) {
        close(fds[i]);
    }
    if (sw_launch_link_open(0, &link) < 0 || !link) {
        return 8;
    }
    sw_launch_link_close(link, 0);
    return 0;
}

/* Trains, as it were, twice. */
static int part_twice(void)
{
    for (int i = 0; i < 2; i++) {
        struct sw_launch_link *link = NULL;
        if (sw_launch_link_open(rank_of_environment(), &link) < 0 || !link) {
            return 9;
        }
        sleep(1);
        sw_launch_link_close(link, 0);
    }
    return 0;
}

/* Hears the launcher's end of the line from inside. */
static int part_link(const char *part)
{
    struct sw_launch_link *link = NULL;
    const int rank = rank_of_environment();
    if (sw_launch_link_open(rank, &link) < 0 || !link) {
        return 9;
    }
    sw_launch_link_at(link, 12, "all gather");
    if (strcmp(part, "stop") == 0 && rank == 1) {
        sleep(2);
        raise(SIGSTOP);
    }
    if (strcmp(part, "stop") == 0) {
        sleep(60);
    }
    if (strcmp(part, "die") == 0 && rank == 1) {
        sleep(2);
        raise(SIGKILL);
    }
    if (strcmp(part, "die") == 0 || strcmp(part, "hold") == 0) {
        sleep(60);
    }
    sleep(1);
    sw_launch_link_close(link, 0);
    return 0;
}

static int play(const char *part)
{
    snprintf(folder, sizeof folder, "%s", getenv("TEST_FOLDER"));
    return strcmp(part, "bound") == 0         ? part_bound()
           : strcmp(part, "broken") == 0      ? part_broken()
           : strcmp(part, "elsewhere") == 0   ? part_elsewhere()
           : strcmp(part, "stranger") == 0    ? part_stranger()
           : strncmp(part, "flooded", 7) == 0 ? part_flooded(part)
           : strcmp(part, "crowd") == 0       ? part_crowd()
           : strcmp(part, "twice") == 0       ? part_twice()
                                              : part_link(part);
}

/* ---- the tests ---- */

struct result {
    sw_status st;
    bool started;
    int exit;
    char log[8192];
};

static struct result run(struct sw_launch_options *o, int64_t n_ranks)
{
    struct result result = {.exit = -1};
    FILE *log = tmpfile();
    assert_non_null(log);
    o->num_ranks = n_ranks;
    o->hostfile = o->hostfile ? o->hostfile : in_folder("local");
    result.st = sw_launch_run(o, log, &result.started, &result.exit);
    rewind(log);
    result.log[fread(result.log, 1, sizeof result.log - 1, log)] = '\0';
    fclose(log);
    return result;
}

static struct sw_launch_options shell(const char **words, const char *script)
{
    words[0] = "sh", words[1] = "-c", words[2] = script;
    return (struct sw_launch_options){
        .program = words, .n_program = 3, .grace_s = 0.5, .deadline_s = 60};
}

static struct sw_launch_options plays(const char **words, const char *part)
{
    words[0] = self, words[1] = part;
    return (struct sw_launch_options){
        .program = words, .n_program = 2, .grace_s = 0.5, .deadline_s = 60};
}

static void expect_says(const struct result *result, const char *text)
{
    if (!strstr(result->log, text)) {
        fail_msg("wanted \"%s\" in: %s", text, result->log);
    }
}

static void test_ranks_are_told(void **state)
{
    (void)state;
    const char *words[3];
    struct sw_launch_options o =
        shell(words, "echo $RANK $LOCAL_RANK $WORLD_SIZE $LOCAL_SIZE $MASTER_ADDR $MASTER_PORT "
                     "$EXTRA $SPILLWAY_MPI > $TEST_FOLDER/told-$RANK");
    const char *exports[] = {"EXTRA=a b"};
    o.exports = exports;
    o.n_exports = 1;
    const struct result result = run(&o, 3);
    assert_int_equal(result.st, SW_OK);
    assert_int_equal(result.exit, 0);
    assert_string_equal(result.log, "");
    int port = 0;
    char wanted[64];
    assert_int_equal(sscanf(read_text("told-0"), "0 0 3 3 127.0.0.1 %d a b off\n", &port), 1);
    assert_in_range(port, 1024, 65535);
    snprintf(wanted, sizeof wanted, "2 2 3 3 127.0.0.1 %d a b off\n", port);
    assert_string_equal(read_text("told-2"), wanted);
    o.master_port = 31999;
    assert_int_equal(run(&o, 3).exit, 0);
    assert_string_equal(read_text("told-0"), "0 0 3 3 127.0.0.1 31999 a b off\n");
}

/* Has the process ended? What nobody waited for yet counts. */
static bool has_ended(pid_t pid)
{
    char path[64], line[256] = "";
    snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    FILE *file = fopen(path, "r");
    if (!file) {
        return true;
    }
    const bool read = fgets(line, sizeof line, file) != NULL;
    fclose(file);
    const char *end = strrchr(line, ')');
    return !read || !end || end[2] == 'Z';
}

static pid_t pid_of(int rank)
{
    char name[32], path[512];
    int pid = 0;
    snprintf(name, sizeof name, "pid-%d", rank);
    snprintf(path, sizeof path, "%s/%s", folder, name);
    for (int i = 0; i < 3000 && pid == 0; i++) {
        FILE *file = fopen(path, "r");
        if (!file || fscanf(file, "%d\n", &pid) != 1) {
            pid = 0;
            usleep(10000);
        }
        if (file) {
            fclose(file);
        }
    }
    assert_true(pid > 0);
    return pid;
}

/* Nobody tells them: a rank that waits for another one would wait for its deadline. */
static void ranks_end_when_the_launcher_is_gone(void **state)
{
    (void)state;
    const char *words[3];
    struct sw_launch_options o = shell(words, "echo $$ > $TEST_FOLDER/pid-$RANK; exec sleep 600");
    const pid_t launcher = fork();
    if (launcher == 0) {
        run(&o, 2);
        _exit(0);
    }
    const pid_t ranks[] = {pid_of(0), pid_of(1)};
    assert_false(has_ended(ranks[0]) || has_ended(ranks[1]));
    kill(launcher, SIGKILL);
    waitpid(launcher, NULL, 0);
    for (int i = 0; i < 3000 && !(has_ended(ranks[0]) && has_ended(ranks[1])); i++) {
        usleep(10000);
    }
    assert_true(has_ended(ranks[0]) && has_ended(ranks[1]));
}

/* Each holds its port for as long as it runs. */
static void jobs_of_this_machine_take_free_ports(void **state)
{
    (void)state;
    const char *words[3];
    int ports[2];
    struct sw_launch_options o =
        shell(words, "echo $MASTER_PORT > $TEST_FOLDER/port-$WORLD_SIZE; "
                     "while ! test -f $TEST_FOLDER/port-1 || ! test -f $TEST_FOLDER/port-2; do "
                     "sleep 0.05; done");
    const pid_t other = fork();
    if (other == 0) {
        _exit(run(&o, 1).exit);
    }
    int status;
    assert_int_equal(run(&o, 2).exit, 0);
    waitpid(other, &status, 0);
    assert_int_equal(status, 0);
    assert_int_equal(sscanf(read_text("port-1"), "%d", &ports[0]), 1);
    assert_int_equal(sscanf(read_text("port-2"), "%d", &ports[1]), 1);
    assert_int_not_equal(ports[0], ports[1]);
}

static void test_first_failure_is_named(void **state)
{
    (void)state;
    const char *words[3];
    struct sw_launch_options o = shell(words, "test $RANK = 1 && exit 7; sleep 60");
    const struct result result = run(&o, 3);
    assert_int_equal(result.st, SW_OK);
    assert_int_equal(result.exit, 7);
    expect_says(&result, "rank 1 (pid ");
    expect_says(&result, ") on localhost ended with status 7");
}

static void test_signals_are_told(void **state)
{
    (void)state;
    const char *words[3];
    struct sw_launch_options o = shell(words, "test $RANK = 1 && kill -9 $$; sleep 60");
    struct result result = run(&o, 2);
    assert_int_equal(result.exit, 128 + SIGKILL);
    expect_says(&result, "was ended by signal 9 (Killed)");
    o = shell(words, "exit 143");
    result = run(&o, 1);
    assert_int_equal(result.exit, 143);
    expect_says(&result, "which means signal 15");
}

/* Who does not listen to SIGTERM, or is stopped, and what it started, is killed. */
static void test_the_rest_is_ended(void **state)
{
    (void)state;
    const char *words[3];
    struct sw_launch_options o = shell(
        words, "case $RANK in 0) trap '' TERM; (while :; do sleep 0.1; touch $TEST_FOLDER/deaf; "
               "done) & while :; do sleep 0.1; done;; 1) kill -STOP $$;; esac; sleep 0.5; exit 3");
    const struct result result = run(&o, 3);
    assert_int_equal(result.exit, 3);
    usleep(300000); /* what was under way when the signal came */
    unlink(in_folder("deaf"));
    usleep(500000);
    assert_int_not_equal(access(in_folder("deaf"), F_OK), 0);
}

/* Processes that a failing rank leaves are ended, also if it was the first or the only one. */
static void test_what_failed_is_swept(void **state)
{
    (void)state;
    const char *words[3];
    struct sw_launch_options o =
        shell(words, "sleep 600 & echo $! > $TEST_FOLDER/pid-$RANK; exit 3");
    unlink(in_folder("pid-0"));
    assert_int_equal(run(&o, 1).exit, 3);
    const pid_t left = pid_of(0);
    for (int i = 0; i < 500 && !has_ended(left); i++) {
        usleep(10000);
    }
    assert_true(has_ended(left));
    unlink(in_folder("pid-0"));
}

static void test_nothing_to_start(void **state)
{
    (void)state;
    const char *words[3] = {"no-such-program-here"};
    struct sw_launch_options o = {.program = words, .n_program = 1};
    const struct result result = run(&o, 2);
    assert_int_equal(result.st, SW_E_IO);
    assert_false(result.started);
    assert_non_null(strstr(sw_error_message(), "no-such-program-here cannot be started"));
}

static void test_restarts(void **state)
{
    (void)state;
    const char *words[3];
    const char *script = "echo x >> $TEST_FOLDER/starts; test $(wc -l < $TEST_FOLDER/starts) = 3";
    struct sw_launch_options o = shell(words, script);
    o.restarts = 5;
    struct result result = run(&o, 1);
    assert_int_equal(result.exit, 0);
    expect_says(&result, "restart 2 of 5");
    assert_string_equal(read_text("starts"), "x\nx\nx\n");
    unlink(in_folder("starts"));
    o.restarts = 1;
    result = run(&o, 1);
    assert_int_equal(result.exit, 1);
    assert_string_equal(read_text("starts"), "x\nx\n");
    unlink(in_folder("starts"));
    o = shell(words, "echo x >> $TEST_FOLDER/starts; exit 2"); /* refused: it would be again */
    o.restarts = 5;
    result = run(&o, 1);
    assert_int_equal(result.exit, 2);
    assert_string_equal(read_text("starts"), "x\n");
    unlink(in_folder("starts"));
}

static void wait_for(const char *name)
{
    for (int i = 0; i < 500 && access(in_folder(name), F_OK) != 0; i++) {
        usleep(20000);
    }
    assert_int_equal(access(in_folder(name), F_OK), 0);
}

static void test_signals_are_passed_on(void **state)
{
    (void)state;
    const char *words[3];
    struct sw_launch_options o = shell(
        words, "trap 'touch $TEST_FOLDER/got-$RANK; exit 5' TERM; touch $TEST_FOLDER/up-$RANK; "
               "while :; do sleep 0.1; done");
    o.restarts = 3;
    o.grace_s = 20;
    fflush(NULL);
    const pid_t pid = fork();
    if (pid == 0) {
        const struct result result = run(&o, 2);
        _exit(strstr(result.log, "restart") ? 99 : result.exit);
    }
    int status;
    wait_for("up-0");
    wait_for("up-1");
    kill(pid, SIGTERM);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(sw_launch_exit_of(status), 5);
    wait_for("got-0");
    wait_for("got-1");
}

/* As under nohup: the hang-up is not meant for it, and costs no restart. */
static void test_ignored_signals_stay_ignored(void **state)
{
    (void)state;
    const char *words[3];
    struct sw_launch_options o =
        shell(words, "echo x >> $TEST_FOLDER/hung; test $(wc -l < $TEST_FOLDER/hung) = 2 && exit; "
                     "touch $TEST_FOLDER/up-7; while ! test -e $TEST_FOLDER/go; do sleep 0.05; "
                     "done; exit 4");
    o.restarts = 1;
    fflush(NULL);
    const pid_t pid = fork();
    if (pid == 0) {
        signal(SIGHUP, SIG_IGN);
        const struct result result = run(&o, 1);
        _exit(strstr(result.log, "restart 1 of 1") ? result.exit : 99);
    }
    int status;
    wait_for("up-7");
    kill(pid, SIGHUP);
    usleep(200000);
    write_file("go", "", 0644);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(sw_launch_exit_of(status), 0);
}

static void test_link(void **state)
{
    (void)state;
    const char *words[3];
    struct sw_launch_options o = plays(words, "good");
    struct result result = run(&o, 2);
    assert_int_equal(result.exit, 0);
    assert_string_equal(result.log, "");
    o = plays(words, "twice");
    result = run(&o, 2);
    assert_int_equal(result.exit, 0);
    assert_string_equal(result.log, "");
}

static void strangers_judge_nobody(void **state)
{
    (void)state;
    const char *words[3];
    struct sw_launch_options o = plays(words, "stranger");
    const struct result result = run(&o, 1);
    assert_int_equal(result.exit, 0);
    assert_string_equal(result.log,
                        "spillway launch: turned away a connection from 127.0.0.1 that "
                        "claimed to be rank 0: it does not prove the secret of this job\n");
}

static void a_flood_hides_no_dead_rank(void **state)
{
    (void)state;
    const char *words[3];
    struct sw_launch_options o = plays(words, "flooded");
    const struct result result = run(&o, 6);
    assert_int_equal(result.exit, 128 + SIGKILL);
    expect_says(&result, "was ended by signal 9 (Killed)");
    unlink(in_folder("flooded-0"));
    unlink(in_folder("flooded-1"));
}

static void test_silent_rank(void **state)
{
    (void)state;
    const char *words[3];
    struct sw_launch_options o = plays(words, "stop");
    o.deadline_s = 2.5;
    const struct result result = run(&o, 2);
    assert_int_equal(result.exit, 1);
    expect_says(&result, "rank 1 (pid ");
    expect_says(&result, "silent for");
    expect_says(&result, "last heard at step 12, all_gather");
}

static void test_broken_line(void **state)
{
    (void)state;
    const char *words[3];
    struct sw_launch_options o = plays(words, "broken");
    struct result result = run(&o, 2);
    assert_int_equal(result.exit, 1);
    expect_says(&result,
                "on localhost is gone: its connection broke; last heard at step 7, reduce");
    /* Where the system knows more, it is heard. */
    o = plays(words, "die");
    result = run(&o, 2);
    assert_int_equal(result.exit, 128 + SIGKILL);
    expect_says(&result, "was ended by signal 9 (Killed) at step 12, all_gather");
    assert_null(strstr(result.log, "is gone"));
}

static void test_binding(void **state)
{
    (void)state;
    const char *words[3];
    struct sw_launch_options o = plays(words, "bound");
    cpu_set_t *cores;
    int n_cores;
    struct sw_arena arena;
    sw_arena_init(&arena, "test");
    assert_int_equal(sw_launch_cores(&arena, NULL, &cores, &n_cores), SW_OK);
    sw_arena_fini(&arena);
    o.bind_cores = true;
    struct result result = run(&o, n_cores + 1);
    assert_int_equal(result.st, SW_E_CONFIG);
    assert_false(result.started);
    result = run(&o, n_cores);
    assert_int_equal(result.exit, 0);
    char first[CPU_SETSIZE + 2];
    snprintf(first, sizeof first, "%s", read_text("bound-0"));
    char name[32];
    snprintf(name, sizeof name, "bound-%d", n_cores - 1);
    const char *last = read_text(name);
    for (int i = 0; n_cores > 1 && first[i]; i++) {
        assert_true(first[i] == '0' || last[i] == '0');
    }
}

static void test_shares(void **state)
{
    (void)state;
    cpu_set_t cores[7], share;
    int n = 0;
    for (int i = 0; i < 7; i++) {
        CPU_ZERO(&cores[i]);
        CPU_SET(2 * i, &cores[i]);
        CPU_SET(2 * i + 1, &cores[i]);
    }
    for (int i = 0; i < 3; i++) {
        assert_int_equal(sw_launch_share(cores, 7, i, 3, &share), SW_OK);
        assert_true(CPU_COUNT(&share) == 4 || CPU_COUNT(&share) == 6);
        n += CPU_COUNT(&share);
    }
    assert_int_equal(n, 14); /* all, each once */
    assert_int_equal(sw_launch_share(cores, 7, 0, 8, &share), SW_E_CONFIG);
}

static const char some_secret[] = "00112233445566778899aabbccddeeff";

/* The first lines of a launcher to the launcher of a host. */
static void greet_host(int fd)
{
    struct reporter reporter = {.step = -1};
    struct sw_job_secret secret;
    const uint8_t nonce[SW_NONCE_BYTES] = {7};
    assert_int_equal(sw_job_secret_read(some_secret, NULL, "night", &secret), SW_OK);
    while (reporter.stage != REPORT_PROVEN) {
        char line[SW_LAUNCH_LINE_CAP], reply[SW_LAUNCH_LINE_CAP];
        size_t n = 0;
        do {
            assert_int_equal(recv(fd, line + n, 1, 0), 1);
        } while (line[n++] != '\n');
        line[n - 1] = '\0';
        const enum heard heard = sw_launch_report_take(&reporter, &secret, line, nonce, reply);
        assert_true(heard == HEARD_SENSE || heard == HEARD_PROOF);
        assert_int_equal(send(fd, reply, strlen(reply), MSG_NOSIGNAL), strlen(reply));
    }
    assert_true(reporter.is_node && reporter.number == 1);
}

/* The launcher of one host, which another one started, ends its ranks when that one is gone. */
static void test_launcher_of_a_host(void **state)
{
    (void)state;
    struct sockaddr_in own = {.sin_family = AF_INET};
    socklen_t len = sizeof own;
    char address[64];
    const int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    own.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    assert_int_equal(bind(listener, (struct sockaddr *)&own, sizeof own), 0);
    assert_int_equal(listen(listener, 4), 0);
    assert_int_equal(getsockname(listener, (struct sockaddr *)&own, &len), 0);
    snprintf(address, sizeof address, "127.0.0.1:%d", ntohs(own.sin_port));
    const char *words[3];
    struct sw_launch_options o =
        shell(words, "echo $RANK $LOCAL_RANK $WORLD_SIZE > $TEST_FOLDER/host-$RANK; sleep 60");
    o.world = "a:0,1/b:0";
    o.node_rank_given = true;
    o.node_rank = 1;
    fflush(NULL);
    const pid_t pid = fork();
    if (pid == 0) {
        setenv("SPILLWAY_JOB_SECRET", some_secret, 1);
        setenv("SPILLWAY_JOB_ID", "night", 1);
        setenv("SPILLWAY_LAUNCH", address, 1);
        bool started;
        int exit_status = 99;
        const sw_status st = sw_launch_run(&o, NULL, &started, &exit_status);
        _exit(st < 0 ? 98 : exit_status);
    }
    const int line = accept(listener, NULL, NULL);
    assert_true(line >= 0);
    greet_host(line);
    wait_for("host-2");
    close(line);
    close(listener);
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(sw_launch_exit_of(status), 1);
    assert_string_equal(read_text("host-2"), "2 0 3\n");
}

/* mpirun fails the first time: host b does not answer the agent, and host c fell silent. */
static void test_elastic(void **state)
{
    (void)state;
    char path[4096], *old = strdup(getenv("PATH"));
    const char *words[3];
    struct sw_launch_options o = plays(words, "good");
    write_file("mpirun",
               "#!/bin/sh\nprintf '%s\\n' \"$*\" | sed 's/ --bind.*//' >> $TEST_FOLDER/calls\n"
               "test $(wc -l < $TEST_FOLDER/calls) = 1 || exit 0\n"
               "while [ $# -gt 0 ]; do case $1 in SPILLWAY_*=*) export \"$1\";; esac; "
               "last=$1; prog=${prev:-}; prev=$1; shift; done\n"
               "RANK=1 \"$prog\" stop & sleep 9; exit 1\n",
               0755);
    write_file("agent", "#!/bin/sh\necho $1 $2 >> $TEST_FOLDER/asked\ntest $1 != b\n", 0755);
    write_file("hosts", "c slots=2\nb slots=1\na slots=1\n", 0644);
    snprintf(path, sizeof path, "%s:%s", folder, old);
    setenv("PATH", path, 1);
    o.hostfile = in_folder("hosts");
    o.agent = in_folder("agent");
    o.link_addr = "127.0.0.1";
    o.restarts = 2;
    o.elastic = true;
    o.deadline_s = 4;
    const struct result result = run(&o, -1);
    setenv("PATH", old, 1);
    free(old);
    assert_int_equal(result.st, SW_OK);
    assert_int_equal(result.exit, 0);
    expect_says(&result, "on c has been silent");
    expect_says(&result, "host c is lost");
    expect_says(&result, "host b is lost");
    expect_says(&result, "restart 1 of 2, 1 ranks on 1 host");
    assert_string_equal(read_text("calls"), "-n 4 --host c:2,b:1,a:1\n-n 1 --host a:1\n");
}

/* Starts `spillway launch` on a process of its own, with a mpirun that is this script behind what
 * sets the variables that it is given. */
static pid_t start_behind(const char *script, struct sw_launch_options *o, const char *log)
{
    char path[4096], text[2048];
    snprintf(text, sizeof text,
             "#!/bin/sh\nprintf '%%s\\n' \"$*\" > $TEST_FOLDER/words; env > $TEST_FOLDER/env\n"
             "while [ $# -gt 0 ]; do case $1 in SPILLWAY_*=*) export \"$1\";; esac; "
             "prog=${prev:-}; prev=$1; shift; done\n%s\n",
             script);
    write_file("mpirun", text, 0755);
    snprintf(path, sizeof path, "%s:%s", folder, getenv("PATH"));
    fflush(NULL);
    const pid_t pid = fork();
    if (pid == 0) {
        setenv("PATH", path, 1);
        const struct result result = run(o, 1);
        write_file(log, result.log, 0644);
        _exit(result.st < 0 ? 98 : result.exit);
    }
    return pid;
}

/* By the order of the hostfile it would be on host c. */
static void a_rank_is_where_it_says(void **state)
{
    (void)state;
    char path[4096], *old = strdup(getenv("PATH"));
    const char *words[3];
    struct sw_launch_options o = plays(words, "elsewhere");
    write_file("srun",
               "#!/bin/sh\nwhile [ $# -gt 1 ]; do shift; prog=${1:-}; case $1 in /*) break;; "
               "esac; done\nRANK=0 \"$prog\" elsewhere\n",
               0755);
    write_file("far", "c slots=1\na slots=1\n", 0644);
    snprintf(path, sizeof path, "%s:%s", folder, old);
    setenv("PATH", path, 1);
    o.hostfile = in_folder("far");
    o.launcher = "slurm";
    o.link_addr = "127.0.0.1";
    const struct result result = run(&o, -1);
    setenv("PATH", old, 1);
    free(old);
    assert_int_equal(result.exit, 1);
    expect_says(&result, "rank 0 (pid 1) on a is gone");
}

static int exit_of(pid_t pid)
{
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    return sw_launch_exit_of(status);
}

/* The ranks said goodbye, and the program has more to do. */
static void a_job_that_works_is_not_ended(void **state)
{
    (void)state;
    const char *words[3];
    struct sw_launch_options o = plays(words, "good");
    o.launcher = "openmpi";
    o.deadline_s = 1;
    const pid_t pid =
        start_behind("RANK=0 \"$prog\" good; sleep 4; touch $TEST_FOLDER/worked", &o, "log");
    assert_int_equal(exit_of(pid), 0);
    assert_int_equal(access(in_folder("worked"), F_OK), 0);
    const char *log = read_text("log");
    if (!strstr(log, "all ranks said goodbye; waiting for mpirun (pid ") ||
        strchr(log, '\n') != strrchr(log, '\n')) {
        fail_msg("said: %s", log);
    }
}

/* A program that SIGKILL ended has failed, whatever its ranks reported before. */
static void a_job_that_was_killed_does_not_end_with_0(void **state)
{
    (void)state;
    const char *words[3];
    struct sw_launch_options o = plays(words, "good");
    o.launcher = "openmpi";
    o.deadline_s = 1;
    const pid_t pid =
        start_behind("trap '' TERM; RANK=0 \"$prog\" good; touch $TEST_FOLDER/deaf-on; "
                     "while :; do sleep 0.1; done",
                     &o, "log");
    wait_for("deaf-on");
    for (int i = 0; i < 3; i++) {
        kill(pid, SIGTERM);
        usleep(200000);
    }
    assert_int_equal(exit_of(pid), 128 + SIGKILL);
}

/* It is in the environment of mpirun, which passes it on, and in no word of the command. */
static void the_secret_is_in_no_command(void **state)
{
    (void)state;
    const char *words[3];
    struct sw_launch_options o = plays(words, "good");
    o.launcher = "openmpi";
    assert_int_equal(exit_of(start_behind("RANK=0 \"$prog\" good", &o, "log")), 0);
    const char *line = strstr(read_text("env"), "\nSPILLWAY_JOB_SECRET=");
    assert_non_null(line);
    char drawn[33];
    snprintf(drawn, sizeof drawn, "%.32s", strchr(line, '=') + 1);
    assert_int_equal(strspn(drawn, "0123456789abcdef"), 32);
    const char *command = read_text("words");
    assert_non_null(strstr(command, "-x SPILLWAY_JOB_SECRET "));
    assert_null(strstr(command, drawn));
    /* the one of the environment is taken, and printed no more than one that was drawn */
    setenv("SPILLWAY_JOB_SECRET", some_secret, 1);
    const int exit_status = exit_of(start_behind("RANK=0 \"$prog\" good", &o, "log"));
    unsetenv("SPILLWAY_JOB_SECRET");
    assert_int_equal(exit_status, 0);
    assert_non_null(strstr(read_text("env"), some_secret));
    assert_null(strstr(read_text("words"), some_secret));
    assert_null(strstr(read_text("log"), some_secret));
}

static void ctrl_c_is_heard_in_a_flood(void **state)
{
    (void)state;
    const char *words[3];
    struct sw_launch_options o = plays(words, "flooded for long");
    fflush(NULL);
    const pid_t pid = fork();
    if (pid == 0) {
        const struct result result = run(&o, 6);
        _exit(result.exit);
    }
    wait_for("flooded-0");
    wait_for("flooded-1");
    kill(pid, SIGINT);
    assert_int_equal(exit_of(pid), 128 + SIGINT);
}

static void a_launcher_without_descriptors_waits_says_so_and_goes_on(void **state)
{
    (void)state;
    const char *words[3];
    struct sw_launch_options o = plays(words, "crowd");
    fflush(NULL);
    const pid_t pid = fork();
    if (pid == 0) {
        const struct rlimit few = {60, 1000};
        setrlimit(RLIMIT_NOFILE, &few);
        const char *script = "ulimit -n 1000; exec \"$0\" crowd";
        const char *more[] = {"sh", "-c", script, self};
        o.program = more;
        o.n_program = 4;
        const struct result result = run(&o, 1);
        write_file("log", result.log, 0644);
        _exit(result.exit);
    }
    assert_int_equal(exit_of(pid), 0);
    if (!strstr(read_text("log"), "connections cannot be accepted for now: Too many open files")) {
        fail_msg("said: %s", read_text("log"));
    }
}

static int make_folder(void **state)
{
    (void)state;
    snprintf(folder, sizeof folder, "/tmp/spillway-run-XXXXXX");
    if (!mkdtemp(folder)) {
        return -1;
    }
    setenv("TEST_FOLDER", folder, 1);
    unsetenv("SPILLWAY_LAUNCH");
    write_file("local", "localhost slots=1\n", 0644);
    return 0;
}

static int drop_folder(void **state)
{
    (void)state;
    char command[128];
    snprintf(command, sizeof command, "rm -rf '%s'", folder);
    return system(command);
}

static int begin(char **argv)
{
    if (argv[1] && getenv("TEST_FOLDER")) { /* started by a test */
        exit(play(argv[1]));
    }
    signal(SIGINT, SIG_DFL); /* ignored in what a script starts behind itself */
    return readlink("/proc/self/exe", self, sizeof self - 1) > 0 ? 0 : TEST_EXIT_SKIPPED;
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_ranks_are_told),
    cmocka_unit_test(ranks_end_when_the_launcher_is_gone),
    cmocka_unit_test(jobs_of_this_machine_take_free_ports),
    cmocka_unit_test(test_first_failure_is_named),
    cmocka_unit_test(test_signals_are_told),
    cmocka_unit_test(test_the_rest_is_ended),
    cmocka_unit_test(test_what_failed_is_swept),
    cmocka_unit_test(test_nothing_to_start),
    cmocka_unit_test(test_restarts),
    cmocka_unit_test(test_signals_are_passed_on),
    cmocka_unit_test(test_ignored_signals_stay_ignored),
    cmocka_unit_test(test_link),
    cmocka_unit_test(test_silent_rank),
    cmocka_unit_test(test_broken_line),
    cmocka_unit_test(test_binding),
    cmocka_unit_test(test_shares),
    cmocka_unit_test(test_launcher_of_a_host),
    cmocka_unit_test(test_elastic),
    cmocka_unit_test(a_rank_is_where_it_says),
    cmocka_unit_test(strangers_judge_nobody),
    cmocka_unit_test(a_flood_hides_no_dead_rank),
    cmocka_unit_test(ctrl_c_is_heard_in_a_flood),
    cmocka_unit_test(a_launcher_without_descriptors_waits_says_so_and_goes_on),
    cmocka_unit_test(a_job_that_works_is_not_ended),
    cmocka_unit_test(a_job_that_was_killed_does_not_end_with_0),
    cmocka_unit_test(the_secret_is_in_no_command),
};

const struct test_program sw_tests = {TEST_TABLE(tests), .setup = make_folder,
                                      .teardown = drop_folder, .begin = begin};
