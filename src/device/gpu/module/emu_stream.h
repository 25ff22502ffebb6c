// SPDX-License-Identifier: Apache-2.0
// emu_stream - what a stream of the emulation is, for the stand-ins of libraries that queue work on
// it. All other work of a stream runs when it is queued, so whoever queues it first waits until the
// stream is no longer busy (the mock device does).
#pragma once

#ifdef __cplusplus
extern "C" {
#endif

struct emu_stream {
    /* Goes on with the work as far as is possible without waiting. Returns 0 once it is done, after
     * which `work` belongs to nobody. NULL = no work. */
    int (*poll)(void *work);
    void *work;
};

#ifdef __cplusplus
}
#endif
