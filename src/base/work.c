// SPDX-License-Identifier: Apache-2.0
// Long work tells how far it is; who shows that, and whether, is for the program to say. The
// listener is the thread's own, as the error record is: of ranks that are threads one has it.
#include "base/base.h"

static _Thread_local struct sw_work_listener listener;

struct sw_work_listener sw_work_listen(struct sw_work_listener other)
{
    const struct sw_work_listener before = listener;
    listener = other;
    return before;
}

void sw_work_at(const char *what, int64_t done, int64_t of)
{
    if (listener.fn) {
        listener.fn(listener.ctx, what, done, of);
    }
}

void sw_work_end(void)
{
    sw_work_at(NULL, 0, 0);
}
