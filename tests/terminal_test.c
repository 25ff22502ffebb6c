// SPDX-License-Identifier: Apache-2.0
// COST 6
// Output on a terminal, through a pseudo-terminal of 30, 80 and 200 columns:
//   - one live line with a bar, which never wraps and drops the fields that do not fit;
//   - colours, unless NO_COLOR is set;
//   - one line per step on a terminal that cannot erase lines;
//   - a window that becomes narrower between two steps;
//   - a refusal in several lines, which is one line elsewhere;
//   - a rate in images for image tasks.
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/base.h"
#include "support/scratch.h"
#include "support/test.h"

static const char *program;

struct seen {
    struct sw_str text; /* all that it wrote to the terminal */
    int status;
    bool ended; /* it was told to stop */
};

struct terminal {
    /* later: columns from the 6th live line of a step on; after 6 more it is told to stop. 0 = the
     * same, to its end. */
    int columns, later;
    const char *term, *no_color;
};

static int count_of(const char *text, const char *word)
{
    int n = 0;
    for (const char *found = text; (found = strstr(found, word)); found++) {
        n++;
    }
    return n;
}

/* Live lines of steps; others are of work that takes long, as planning on a busy machine. */
static int lines_of(const char *text)
{
    return count_of(text, "] step ");
}

static void set_columns(int fd, int columns)
{
    const struct winsize size = {.ws_row = 24, .ws_col = (unsigned short)columns};
    assert_int_equal(ioctl(fd, TIOCSWINSZ, &size), 0);
}

static pid_t start(const char *slave, const struct terminal *terminal, const char *const *words)
{
    const char *argv[32] = {program};
    const pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        for (int i = 0; words[i]; i++) {
            argv[i + 1] = words[i];
        }
        setsid();
        const int fd = open(slave, O_RDWR);
        dup2(fd, 0);
        dup2(fd, 1);
        dup2(fd, 2);
        setenv("TERM", terminal->term ? terminal->term : "xterm", 1);
        unsetenv("NO_COLOR");
        if (terminal->no_color) {
            setenv("NO_COLOR", terminal->no_color, 1);
        }
        execv(program, (char *const *)(uintptr_t)argv);
        _exit(98);
    }
    return pid;
}

static void take(int master, struct seen *out)
{
    char piece[4096];
    for (ssize_t n; (n = read(master, piece, sizeof piece)) > 0;) {
        sw_str_append(&out->text, piece, (size_t)n);
    }
}

/* Makes the window narrower when there are lines to see it by, then ends the program. */
static void disturb(const struct terminal *terminal, int master, pid_t pid, struct seen *out)
{
    static const char mark[] = "\nRESIZED\n";
    const char *text = sw_str_text(&out->text), *behind = strstr(text, mark);
    if (!behind && lines_of(text) >= 6) {
        set_columns(master, terminal->later);
        sw_str_puts(&out->text, mark);
    } else if (behind && !out->ended && lines_of(behind) >= 6) {
        out->ended = kill(pid, SIGINT) == 0; /* a second one would end it at once */
    }
}

static void run(const struct terminal *terminal, const char *const *words, struct seen *out)
{
    const int master = posix_openpt(O_RDWR | O_NOCTTY);
    *out = (struct seen){0};
    assert_true(master >= 0 && grantpt(master) == 0 && unlockpt(master) == 0);
    set_columns(master, terminal->columns);
    char slave[64];
    snprintf(slave, sizeof slave, "%s", ptsname(master));
    const int held = open(slave, O_RDWR | O_NOCTTY); /* it does not hang up before we have read */
    const pid_t pid = start(slave, terminal, words);
    fcntl(master, F_SETFL, O_NONBLOCK);
    while (waitpid(pid, &out->status, WNOHANG) != pid) {
        take(master, out);
        if (terminal->later) {
            disturb(terminal, master, pid, out);
        }
        usleep(2000);
    }
    close(held);
    fcntl(master, F_SETFL, 0); /* what the kernel has not passed on yet comes before the hang-up */
    take(master, out);
    close(master);
    assert_false(out->text.failed);
    if (WIFSIGNALED(out->status)) {
        fail_msg("it ended by signal %d: %s", WTERMSIG(out->status), sw_str_text(&out->text));
    }
    out->status = WEXITSTATUS(out->status);
}

/* Columns that the longest line takes; what is written over counts as lines, escapes take none. */
static int widest(const char *text)
{
    int most = 0, now = 0;
    for (const char *c = text; *c; c++) {
        if (*c == '\033' && c[1] == '[') {
            c += 2;
            while (*c && !(*c >= '@' && *c <= '~')) {
                c++;
            }
        } else {
            now = *c == '\r' || *c == '\n' ? 0 : now + 1;
            most = now > most ? now : most;
        }
    }
    return most;
}

/* From the first live line of a step on. */
static const char *steps_of(const struct seen *seen)
{
    const char *text = sw_str_text(&seen->text), *found = strstr(text, "] step ");
    while (found && found > text && *found != '\r') {
        found--;
    }
    if (!found) {
        fail_msg("no live line: %s", text);
    }
    return found;
}

#define TRAIN                                                                                      \
    "train", "--model", "gpt2-tiny", "--data", text_path, "--deepspeed", config_path, "--seq-len", \
        "8", "--no-export", "--output"

static void a_live_line_fits_every_width(void **state)
{
    (void)state;
    static const int widths[] = {30, 80, 200};
    char text_path[256], config_path[256];
    snprintf(text_path, sizeof text_path, "%s", test_at("text.txt"));
    snprintf(config_path, sizeof config_path, "%s", test_at("ds.json"));
    for (int i = 0; i < 3; i++) {
        char output[32], path[256];
        struct seen seen;
        snprintf(output, sizeof output, "w%d", widths[i]);
        snprintf(path, sizeof path, "%s", test_at(output));
        const char *const words[] = {TRAIN, path, "--steps", "12", "--eval-every", "6", NULL};
        run(&(struct terminal){.columns = widths[i]}, words, &seen);
        assert_int_equal(seen.status, 0);
        const char *steps = steps_of(&seen);
        const char *end = strstr(steps, "12 steps in");
        assert_non_null(end);
        char *only = strndup(steps, (size_t)(end - steps));
        assert_true(widest(only) <= widths[i]);
        assert_int_equal(strstr(only, " norm ") != NULL, widths[i] >= 80);
        assert_int_equal(strstr(only, " tok/s device ") != NULL, widths[i] == 200);
        assert_non_null(strstr(only, "\033[32m"));
        assert_non_null(strstr(only, "step 6/12"));
        /* lines that stay are those of validations alone */
        assert_int_equal(count_of(only, "\n"), 2);
        free(only);
        sw_str_fini(&seen.text);
    }
}

static void colours_and_the_bar_can_be_left_out(void **state)
{
    (void)state;
    char text_path[256], config_path[256], path[256];
    struct seen seen;
    snprintf(text_path, sizeof text_path, "%s", test_at("text.txt"));
    snprintf(config_path, sizeof config_path, "%s", test_at("ds.json"));
    snprintf(path, sizeof path, "%s", test_at("plain"));
    const char *const first[] = {TRAIN, path, "--steps", "4", NULL};
    run(&(struct terminal){.columns = 80, .no_color = "1"}, first, &seen);
    assert_int_equal(seen.status, 0);
    assert_null(strstr(steps_of(&seen), "\033[32m"));
    sw_str_fini(&seen.text);

    snprintf(path, sizeof path, "%s", test_at("dumb"));
    const char *const second[] = {TRAIN, path, "--steps", "5", "--log-every", "2", NULL};
    run(&(struct terminal){.columns = 80, .term = "dumb"}, second, &seen);
    assert_int_equal(seen.status, 0);
    assert_null(strchr(sw_str_text(&seen.text), '\033'));
    assert_int_equal(count_of(sw_str_text(&seen.text), "\nstep "), 3); /* 2, 4, and the last */
    sw_str_fini(&seen.text);
}

static void a_window_may_become_narrower(void **state)
{
    (void)state;
    char text_path[256], config_path[256], path[256];
    struct seen seen;
    snprintf(text_path, sizeof text_path, "%s", test_at("text.txt"));
    snprintf(config_path, sizeof config_path, "%s", test_at("ds.json"));
    snprintf(path, sizeof path, "%s", test_at("narrow"));
    const char *const words[] = {TRAIN, path, "--steps", "1000000", NULL};
    run(&(struct terminal){.columns = 120, .later = 40}, words, &seen);
    assert_int_equal(seen.status, 0);
    const char *behind = strstr(sw_str_text(&seen.text), "RESIZED\n");
    assert_non_null(behind);
    /* a line that was on its way is of the old width */
    behind = strstr(behind, "\n\r\033[K[");
    assert_non_null(behind);
    const char *end = strstr(behind, "stopped at step");
    assert_non_null(end);
    char *only = strndup(behind, (size_t)(end - behind));
    assert_true(widest(only) <= 40);
    free(only);
    sw_str_fini(&seen.text);
}

/* CIFAR-10's binary records: a label, and 3072 bytes. */
static void images_are_counted_as_images(void **state)
{
    (void)state;
    enum { RECORDS = 16, BYTES = 3073 };
    static unsigned char records[RECORDS * BYTES];
    char *metrics = NULL;
    size_t len = 0;
    struct seen seen;
    for (size_t i = 0; i < sizeof records; i++) {
        records[i] = (unsigned char)(i % BYTES == 0 ? i / BYTES % 10 : i * i % 251);
    }
    assert_int_equal(sw_file_write_atomic(test_at("data_batch_1.bin"), records, sizeof records),
                     SW_OK);
    const char *const words[] = {"train",
                                 "--task",
                                 "images",
                                 "--model",
                                 "cifar-net",
                                 "--data",
                                 test_at("data_batch_1.bin"),
                                 "--deepspeed",
                                 test_at("ds.json"),
                                 "--steps",
                                 "2",
                                 "--no-export",
                                 "--output",
                                 test_at("images"),
                                 NULL};
    run(&(struct terminal){.columns = 200, .term = "dumb"}, words, &seen);
    const char *text = sw_str_text(&seen.text);
    if (seen.status != 0) {
        fail_msg("%s", text);
    }
    assert_non_null(strstr(text, "batch 1 x 2 images; 16 training samples"));
    assert_int_equal(count_of(text, " images/s"), 3); /* two steps, and the end */
    assert_null(strstr(text, "tok/s"));
    assert_int_equal(sw_file_read(test_at("images/metrics.jsonl"), &metrics, &len), SW_OK);
    assert_int_equal(count_of(metrics, "\"images_per_s\":"), 2);
    assert_null(strstr(metrics, "tokens_per_s"));
    sw_free(metrics);
    sw_str_fini(&seen.text);
}

static void a_refusal_is_laid_out_on_a_terminal(void **state)
{
    (void)state;
    char command[1024];
    struct seen seen;
    const char *const words[] = {"plan", "--model", "gpt2", "--device-memory", "1G", NULL};
    for (int columns = 50; columns <= 80; columns += 30) { /* the longest key has 42 letters */
        run(&(struct terminal){.columns = columns}, words, &seen);
        assert_int_equal(seen.status, 2);
        const char *text = strstr(sw_str_text(&seen.text), "spillway plan: does not fit: device");
        assert_non_null(text);
        assert_true(widest(text) <= columns);
        assert_non_null(strstr(text, "\n  largest:\r\n    "));
        assert_non_null(strstr(text, " MiB  "));
        assert_non_null(strstr(text, "\n  what would help:\r\n    - spillway.recompute"));
        assert_true(count_of(text, "\n    - ") >= 2);
        sw_str_fini(&seen.text);
    }
    char *line = NULL;
    size_t len = 0;
    snprintf(command, sizeof command, "%s plan --model gpt2 --device-memory 1G 2>%s", program,
             test_at("err"));
    assert_int_not_equal(system(command), 0);
    assert_int_equal(sw_file_read(test_at("err"), &line, &len), SW_OK);
    assert_ptr_equal(strchr(line, '\n'), line + len - 1);
    assert_non_null(strstr(line, "; largest: "));
    sw_free(line);
}

static int begin(char **argv)
{
    (void)argv;
    program = test_spillway();
    return program ? 0 : TEST_EXIT_SKIPPED;
}

static int set_up(void **state)
{
    static const char ds[] =
        "{\"train_micro_batch_size_per_gpu\": 2, \"spillway\": {\"threads\": 1}, "
        "\"optimizer\": {\"type\": \"AdamW\", \"params\": {\"lr\": 0.001}}}";
    char text[4001];
    (void)state;
    for (size_t i = 0; i + 1 < sizeof text; i++) {
        text[i] = i % 7 == 6 ? '\n' : (char)('a' + (i * i + i / 7) % 13);
    }
    text[sizeof text - 1] = '\0';
    test_put("text.txt", text);
    test_put("ds.json", ds);
    return 0;
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(a_live_line_fits_every_width),
    cmocka_unit_test(colours_and_the_bar_can_be_left_out),
    cmocka_unit_test(a_window_may_become_narrower),
    cmocka_unit_test(images_are_counted_as_images),
    cmocka_unit_test(a_refusal_is_laid_out_on_a_terminal),
};

const struct test_program sw_tests = {TEST_TABLE(tests), .setup = set_up, .begin = begin};
