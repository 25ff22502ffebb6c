// SPDX-License-Identifier: Apache-2.0
// emu_stream - what a stream of the emulation is, for the stand-ins of libraries that queue work on
// it. All other work of a stream runs when it is queued, so whoever queues it first waits until the
// stream is no longer busy (the mock device does).
#pragma once

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

struct emu_graph; /* emu_graph.h */

struct emu_stream {
    /* Goes on with the work as far as is possible without waiting. Returns 0 once it is done, after
     * which `work` belongs to nobody. NULL = no work. */
    int (*poll)(void *work);
    void *work;
    /* NULL unless the stream is captured. Whoever queues work then gives it to this function, which
     * copies args, instead of running it. run: returns 0, or a code that the replay returns */
    int (*record)(struct emu_stream *stream, int (*run)(void *args), const void *args,
                  size_t bytes);
    struct emu_graph *graph; /* what is recorded */
};

#ifdef __cplusplus
}
#endif
