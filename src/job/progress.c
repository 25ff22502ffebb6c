// SPDX-License-Identifier: Apache-2.0
// No line exceeds the terminal's width, because a live line that wrapped could not be overwritten.
// If the terminal became narrower, the line has already wrapped, so the next one begins below it.
// NO_COLOR turns colours off. A terminal that cannot return to the start of a line (TERM=dumb) has
// no live line.
#include "job/progress.h"

#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "base/base.h"
#include "spillway/comm.h"

enum { BAR_CELLS = 10, WIDE_BAR_CELLS = 20, WIDE_COLUMNS = 120, DEFAULT_COLUMNS = 80 };
static const double SHOW_EVERY_S = 0.05; /* faster updates are not visible */

static int columns_of(FILE *out)
{
    struct winsize size;
    const bool known = ioctl(fileno(out), TIOCGWINSZ, &size) == 0 && size.ws_col > 0;
    return known ? size.ws_col : DEFAULT_COLUMNS;
}

static bool has_word(const char *name)
{
    const char *text = getenv(name);
    return text && *text;
}

struct progress sw_progress_start(FILE *out, bool bar)
{
    const char *term = getenv("TERM");
    const bool terminal = isatty(fileno(out)), dumb = term && strcmp(term, "dumb") == 0;
    return (struct progress){.out = out,
                             .terminal = terminal,
                             .live = bar || (terminal && !dumb && !sw_world_is_mpi()),
                             .coloured = terminal && !dumb && !has_word("NO_COLOR")};
}

/* Prints the fields that fit into `columns`, and cuts the first one if it does not fit. Returns the
 * columns used. */
static int print_fields(FILE *out, const char *text, int columns)
{
    int n = (int)strlen(text);
    if (n > columns) {
        for (n = columns; n > 0 && text[n] != '\t';) {
            n--;
        }
        n = n > 0 ? n : columns > 0 ? columns : 0;
    }
    for (int i = 0; i < n; i++) {
        fputc(text[i] == '\t' ? ' ' : text[i], out);
    }
    return n;
}

static void print_bar(const struct progress *progress, int cells, double done)
{
    const int full = (int)(cells * fmin(fmax(done, 0), 1));
    const char *begin = progress->coloured ? "\033[32m" : "";
    fprintf(progress->out, "[%s%.*s%s%*s] ", begin, full, "####################",
            progress->coloured ? "\033[0m" : "", cells - full, "");
}

static void show(struct progress *progress, const char *text, double done)
{
    const int columns = columns_of(progress->out);
    const int cells = columns < WIDE_COLUMNS ? BAR_CELLS : WIDE_BAR_CELLS;
    if (progress->open && columns < progress->width) {
        fputc('\n', progress->out);
    }
    fputs("\r\033[K", progress->out);
    print_bar(progress, cells, done);
    /* the last column stays empty */
    progress->width = cells + 3 + print_fields(progress->out, text, columns - cells - 4);
    progress->open = true;
    progress->shown_at = sw_now_s();
}

void sw_progress_step(struct progress *progress, const char *text, double done,
                      enum progress_line line)
{
    FILE *out = progress->out;
    const int columns = progress->terminal || progress->live ? columns_of(out) : INT_MAX;
    if (line == LINE_STAYS) {
        sw_progress_clear(progress);
        print_fields(out, text, columns);
        fputc('\n', out);
    } else if (progress->live &&
               (!progress->open || sw_now_s() - progress->shown_at >= SHOW_EVERY_S)) {
        show(progress, text, done);
    }
    fflush(out);
}

void sw_progress_end(struct progress *progress)
{
    if (progress->open) {
        fputc('\n', progress->out);
        progress->open = false;
    }
}

void sw_progress_clear(struct progress *progress)
{
    if (progress->open) {
        fputs(columns_of(progress->out) < progress->width ? "\n" : "\r\033[K", progress->out);
        fflush(progress->out);
        progress->open = false;
    }
}

/* ---- pace ---- */

void sw_pace_mark(struct pace *pace, double now_s, int64_t step)
{
    const int last = (pace->first + pace->n - 1) % PACE_MARKS;
    if (pace->n > 0 && now_s - pace->marks[last].at_s < 1) {
        return;
    }
    if (pace->n == PACE_MARKS) {
        pace->first = (pace->first + 1) % PACE_MARKS;
        pace->n--;
    }
    const int at = (pace->first + pace->n++) % PACE_MARKS;
    pace->marks[at].at_s = now_s;
    pace->marks[at].step = step;
}

double sw_pace_left(const struct pace *pace, double now_s, int64_t step, int64_t n_steps)
{
    double from_s = now_s;
    int64_t from = step;
    for (int i = pace->n - 1; i >= 0; i--) { /* back to a mark that is a minute old */
        const int at = (pace->first + i) % PACE_MARKS;
        from_s = pace->marks[at].at_s;
        from = pace->marks[at].step;
        if (now_s - from_s >= PACE_SECONDS && from < step) {
            break;
        }
    }
    return step > from ? (now_s - from_s) / (double)(step - from) * (double)n_steps : 0;
}

void sw_format_eta(double seconds, char *buf, size_t cap)
{
    const long s = seconds > 0 && seconds < 1e9 ? (long)(seconds + 0.5) : 0;
    if (s >= 3600) {
        snprintf(buf, cap, "%ld:%02ld:%02ld", s / 3600, s / 60 % 60, s % 60);
    } else {
        snprintf(buf, cap, "%ld:%02ld", s / 60, s % 60);
    }
}
