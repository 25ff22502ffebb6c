// SPDX-License-Identifier: Apache-2.0
// The two entries: print the command of a job, or run it.
#include "launch/private.h"

#include <string.h>

sw_status sw_launch_text(const struct sw_launch_options *options, char **out)
{
    struct sw_arena arena;
    struct job job;
    struct commands commands;
    struct sw_str text = {0};
    sw_status st;
    sw_arena_init(&arena, "launch");
    SW_TRY_OR(free_arena, sw_launch_job_init(options, &arena, NULL, &job));
    SW_TRY_OR(free_arena, sw_launch_commands(&job, &commands));
    sw_launch_commands_write(&commands, &text);
    char *copy = text.failed ? NULL : sw_strdup("launch", sw_str_text(&text));
    if (copy) {
        *out = copy;
    } else {
        st = SW_FAIL(SW_E_NOMEM, "out of host memory for a command");
    }
free_arena:
    sw_str_fini(&text);
    sw_arena_fini(&arena);
    return st;
}

sw_status sw_launch_run(const struct sw_launch_options *options, FILE *log, bool *out_started,
                        int *out_exit)
{
    (void)options, (void)log, (void)out_exit;
    *out_started = false;
    return SW_FAIL(SW_E_UNSUP, "not built");
}
