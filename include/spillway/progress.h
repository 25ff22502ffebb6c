// SPDX-License-Identifier: Apache-2.0
// What long work is at - reading weights, planning, creating swap files, tokenising, exporting -
// as one live line on a terminal, for programs that want to show it.
#pragma once

#include <stdio.h>

#include "spillway/status.h"

#ifdef __cplusplus
extern "C" {
#endif

struct sw_work_bar;

/*
 * sw_work_show - show the work of this thread on `out` until sw_work_hide: a line that comes when
 * something takes longer than half a second, and goes when it is done.
 *
 * Returns NULL where `out` is no terminal that it could be written to and taken back from (TERM
 * dumb, mpirun), or there are no resources: then nothing is shown.
 */
SW_API struct sw_work_bar *sw_work_show(FILE *out);
SW_API void sw_work_hide(struct sw_work_bar *bar); /* NULL is fine */
/* Takes the line away, so that other output begins on a line of its own. */
SW_API void sw_work_clear(void);

#ifdef __cplusplus
}
#endif
