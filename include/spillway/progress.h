// SPDX-License-Identifier: Apache-2.0
// Progress of long work (reading weights, planning, creating swap files, tokenizing, exporting) as
// one live line on a terminal, for programs that want to show it.
#pragma once

#include <stdio.h>

#include "spillway/status.h"

#ifdef __cplusplus
extern "C" {
#endif

struct sw_work_bar;

/*
 * sw_work_show - show the progress of this thread's work on `out` until sw_work_hide. A line
 * appears if something takes longer than half a second, and disappears when it is done.
 *
 * Returns NULL, and shows nothing, if `out` is not a terminal whose lines can be erased (TERM dumb,
 * mpirun), or if resources are exhausted.
 */
SW_API struct sw_work_bar *sw_work_show(FILE *out);
SW_API void sw_work_hide(struct sw_work_bar *bar); /* NULL is a no-op */
/* Erases the progress line, so that other output begins on a new line. */
SW_API void sw_work_clear(void);

#ifdef __cplusplus
}
#endif
