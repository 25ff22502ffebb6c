// SPDX-License-Identifier: Apache-2.0
// emu - the runtime for kernels compiled by the host compiler: the threads of a block are fibers
// that meet at barriers and exchanges. One block runs at a time. The launch chooses one of two
// thread orders, and no kernel may depend on it. Shared memory starts as 0xff bytes, which are NaN
// in every float type. If some thread never reaches a barrier of its block or warp, the program
// ends with the kernel's name: a GPU would hang, or worse.
#pragma once

#include <stddef.h>
#include <stdint.h>

#ifndef SW_WARP
#error "the build says how many lanes a warp has: -DSW_WARP=32 or 64"
#endif

struct emu_thread {
    int thread, n_threads; /* within its block */
    int64_t block[3], grid[3];
};
/* The running thread; changes whenever one waits. */
extern struct emu_thread *emu_now;

/* Static shared memory of the block: all of its threads get the same bytes, if they ask for the
 * same in the same order. */
void *emu_shared(size_t bytes);
char *emu_dynamic_shared(void);
void emu_sync_block(void);
void emu_sync_warp(void);

/* ---- exchanges between the lanes of a warp ---- */

enum { EMU_SLOT_BYTES = 128 };
struct emu_slot {
    alignas(16) unsigned char bytes[EMU_SLOT_BYTES];
};
/* The values that all lanes of the warp brought. */
struct emu_lanes {
    const struct emu_slot *slots;
    void read(int lane, void *out, size_t bytes) const
    {
        __builtin_memcpy(out, slots[lane].bytes, bytes);
    }
};
/* Publishes `mine` and waits until all lanes have. The result is valid until this lane's exchange
 * after the next. */
struct emu_lanes emu_bring(const void *mine, size_t bytes);

/* ---- launching (module.cc) ---- */

struct emu_launch {
    const char *name;
    void (*call)(const void *args); /* runs the kernel for the current thread */
    const void *args;
    int n_threads;
    int64_t grid[3];
    size_t shared;
    bool reversed; /* threads and blocks run from last to first */
};
/* Returns when all blocks have run. Not reentrant: the caller holds a lock. */
void emu_run(const struct emu_launch *launch);
