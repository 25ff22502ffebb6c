// SPDX-License-Identifier: Apache-2.0
// The estimate of a run's remaining time, with made-up clocks: only the last minute counts. Also
// the bar of long work, on a pseudo-terminal: it appears when work takes long, shows the position,
// and is erased at the end. Without a terminal nothing is shown.
#include "job/progress.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "base/base.h"
#include "spillway/progress.h"
#include "support/test.h"

static void nothing_is_known_before_a_step(void **state)
{
    (void)state;
    struct pace pace = {0};
    sw_pace_mark(&pace, 100, 0);
    assert_true(sw_pace_left(&pace, 107, 0, 50) == 0);
}

static void the_first_steps_count_from_the_beginning(void **state)
{
    (void)state;
    struct pace pace = {0};
    sw_pace_mark(&pace, 100, 7);
    sw_pace_mark(&pace, 100.5, 8); /* a second mark within a second is ignored */
    sw_pace_mark(&pace, 102, 9);
    assert_true(sw_pace_left(&pace, 102, 9, 10) == 10);
    assert_true(sw_pace_left(&pace, 102, 9, 0) == 0);
}

/* After an hour at a step a second come steps of ten seconds. A minute later only those count. */
static void the_last_minute_counts(void **state)
{
    (void)state;
    struct pace pace = {0};
    double now = 0;
    int64_t step = 0;
    sw_pace_mark(&pace, now, step);
    for (; step < 3600; step++) {
        now += 1;
        sw_pace_mark(&pace, now, step + 1);
    }
    assert_true(fabs(sw_pace_left(&pace, now, step, 100) - 100) < 1e-9);
    for (int i = 0; i < 6; i++) {
        now += 10;
        sw_pace_mark(&pace, now, ++step);
    }
    assert_true(fabs(sw_pace_left(&pace, now, step, 100) - 1000) < 1e-9);
}

/* If a step takes longer than a minute, the estimate uses the last two marks. */
static void a_step_may_take_minutes(void **state)
{
    (void)state;
    struct pace pace = {0};
    for (int64_t step = 0; step < 5; step++) {
        sw_pace_mark(&pace, 300.0 * (double)step, step);
    }
    assert_true(fabs(sw_pace_left(&pace, 1200, 4, 3) - 900) < 1e-9);
}

static void times_are_words(void **state)
{
    (void)state;
    char text[32];
    const struct {
        double seconds;
        const char *words;
    } cases[] = {{0, "0:00"}, {59.4, "0:59"}, {61, "1:01"}, {3600, "1:00:00"}, {-5, "0:00"}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        sw_format_eta(cases[i].seconds, text, sizeof text);
        assert_string_equal(text, cases[i].words);
    }
}

/* ---- the bar of long work ---- */

struct screen {
    int master;
    FILE *out;
    char text[4096];
    size_t len;
};

static void open_screen(struct screen *s, int columns)
{
    const struct winsize size = {.ws_row = 24, .ws_col = (unsigned short)columns};
    *s = (struct screen){.master = posix_openpt(O_RDWR | O_NOCTTY)};
    assert_true(s->master >= 0 && grantpt(s->master) == 0 && unlockpt(s->master) == 0);
    assert_int_equal(ioctl(s->master, TIOCSWINSZ, &size), 0);
    s->out = fopen(ptsname(s->master), "w");
    assert_non_null(s->out);
    fcntl(s->master, F_SETFL, O_NONBLOCK);
}

static void look(struct screen *s)
{
    ssize_t n;
    while ((n = read(s->master, s->text + s->len, sizeof s->text - 1 - s->len)) > 0) {
        s->len += (size_t)n;
    }
    s->text[s->len] = '\0';
}

/* Waits until the bar has written `text`. */
static void expect(struct screen *s, const char *text)
{
    for (int i = 0; i < 3000; i++) {
        look(s);
        if (strstr(s->text, text)) {
            return;
        }
        usleep(10000);
    }
    fail_msg("no \"%s\" in \"%s\"", text, s->text);
}

static void long_work_has_a_bar_that_goes_away(void **state)
{
    (void)state;
    struct screen s;
    open_screen(&s, 60);
    setenv("TERM", "xterm", 1);
    setenv("NO_COLOR", "1", 1);
    struct sw_work_bar *bar = sw_work_show(s.out);
    assert_non_null(bar);
    sw_work_at("reading weights", 3, 4);
    expect(&s, "\r\033[K[#######   ] reading weights 75% eta 0:");
    sw_work_at("planning", 0, 0);
    expect(&s, "\r\033[K[          ] planning 0:0");
    sw_work_end();
    look(&s);
    assert_string_equal(s.text + s.len - 4, "\r\033[K");
    s.len = 0;
    for (int i = 0; i < 100; i++) { /* short work is not shown */
        sw_work_at("planning", i, 100);
    }
    sw_work_end();
    look(&s);
    assert_int_equal(s.len, 0);
    sw_work_hide(bar);
    sw_work_at("reading weights", 1, 4); /* no listener is set */
    look(&s);
    assert_int_equal(s.len, 0);
    fclose(s.out);
    close(s.master);
}

static void a_bar_fits_a_narrow_terminal(void **state)
{
    (void)state;
    struct screen s;
    open_screen(&s, 30);
    struct sw_work_bar *bar = sw_work_show(s.out);
    assert_non_null(bar);
    sw_work_at("creating swap files", 1, 4);
    expect(&s, "] creating swap fi");
    sw_work_end();
    look(&s);
    assert_null(strstr(s.text, "creating swap files 2"));
    sw_work_hide(bar);
    fclose(s.out);
    close(s.master);
}

static void without_a_terminal_nothing_is_shown(void **state)
{
    (void)state;
    struct screen s;
    FILE *file = tmpfile();
    assert_non_null(file);
    assert_null(sw_work_show(file));
    fclose(file);
    open_screen(&s, 80);
    setenv("TERM", "dumb", 1);
    assert_null(sw_work_show(s.out));
    fclose(s.out);
    close(s.master);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(nothing_is_known_before_a_step),
    cmocka_unit_test(the_first_steps_count_from_the_beginning),
    cmocka_unit_test(the_last_minute_counts),
    cmocka_unit_test(a_step_may_take_minutes),
    cmocka_unit_test(times_are_words),
    cmocka_unit_test(long_work_has_a_bar_that_goes_away),
    cmocka_unit_test(a_bar_fits_a_narrow_terminal),
    cmocka_unit_test(without_a_terminal_nothing_is_shown),
};

const struct test_program sw_tests = {TEST_TABLE(tests)};
