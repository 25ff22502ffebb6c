// SPDX-License-Identifier: Apache-2.0
// The live line never exceeds the terminal's width: one that wrapped could not be written over.
#include "engine/progress.h"

#include <stdlib.h>
#include <sys/ioctl.h>
#include <unistd.h>

enum { BAR_CELLS = 10, DEFAULT_COLUMNS = 80 };

static int columns_of(FILE *out)
{
    struct winsize size;
    const bool known = ioctl(fileno(out), TIOCGWINSZ, &size) == 0 && size.ws_col > 0;
    return known ? size.ws_col : DEFAULT_COLUMNS;
}

struct progress sw_progress_start(FILE *out)
{
    return (struct progress){.out = out, .terminal = isatty(fileno(out)) && !getenv("NO_COLOR")};
}

void sw_progress_step(struct progress *progress, const char *text, double done, bool lasting)
{
    FILE *out = progress->out;
    if (lasting || !progress->terminal) {
        fprintf(out, "%s%s\n", progress->terminal ? "\r\033[K" : "", text);
        progress->open = false;
    } else {
        const int cells = (int)(BAR_CELLS * done);
        const int room = columns_of(out) - BAR_CELLS - 4; /* the last column stays empty */
        fprintf(out, "\r\033[K[%.*s%*s] %.*s", cells, "##########", BAR_CELLS - cells, "",
                room > 0 ? room : 0, text);
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
