// SPDX-License-Identifier: Apache-2.0
// No line exceeds the terminal's width: a live one that wrapped could not be written over.
#include "job/progress.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "spillway/comm.h"

enum { BAR_CELLS = 10, DEFAULT_COLUMNS = 80 };

static int columns_of(FILE *out)
{
    struct winsize size;
    const bool known = ioctl(fileno(out), TIOCGWINSZ, &size) == 0 && size.ws_col > 0;
    return known ? size.ws_col : DEFAULT_COLUMNS;
}

struct progress sw_progress_start(FILE *out, bool bar)
{
    const bool terminal = isatty(fileno(out));
    return (struct progress){.out = out,
                             .terminal = terminal,
                             .live =
                                 bar || (terminal && !getenv("NO_COLOR") && !sw_world_is_mpi())};
}

/* The fields that fit into so many columns; of the first one what does. */
static void print_fields(FILE *out, const char *text, int columns)
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
}

void sw_progress_step(struct progress *progress, const char *text, double done, bool lasting)
{
    FILE *out = progress->out;
    const int columns = progress->terminal || progress->live ? columns_of(out) : INT_MAX;
    if (lasting || !progress->live) {
        fputs(progress->live ? "\r\033[K" : "", out);
        print_fields(out, text, columns);
        fputc('\n', out);
        progress->open = false;
    } else {
        const int cells = (int)(BAR_CELLS * done);
        fprintf(out, "\r\033[K[%.*s%*s] ", cells, "##########", BAR_CELLS - cells, "");
        print_fields(out, text, columns - BAR_CELLS - 4); /* the last column stays empty */
        progress->open = true;
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
