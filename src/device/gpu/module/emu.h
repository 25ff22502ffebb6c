// SPDX-License-Identifier: Apache-2.0
// emu - what kernels that were compiled by the host compiler run on: the threads of a block are
// fibers that meet at barriers and exchanges. One block at a time; which thread goes first is the
// launch's business (two orders), and no kernel may depend on it. Shared memory begins as 0xff
// bytes, no number in any float type. A barrier that some thread of a block or a warp never reaches
// ends the program with the kernel's name: a GPU would hang, or worse.
#pragma once

#include <stddef.h>
#include <stdint.h>

#ifndef SW_WARP
#error "the build says how many lanes a warp has: -DSW_WARP=32 or 64"
#endif

struct emu_thread {
    int thread, n_threads; /* in its block */
    int64_t block[3], grid[3];
};
/* The thread that runs; changes whenever one waits. */
extern struct emu_thread *emu_now;

/* Static shared memory of the block: the same bytes for all of its threads, which ask for the same
 * in the same order. */
void *emu_shared(size_t bytes);
char *emu_dynamic_shared(void);
void emu_sync_block(void);
void emu_sync_warp(void);

/* ---- exchanges between the lanes of a warp ---- */

enum { EMU_SLOT_BYTES = 128 };
struct emu_slot {
    alignas(16) unsigned char bytes[EMU_SLOT_BYTES];
};
/* What all lanes of the warp brought. */
struct emu_lanes {
    const struct emu_slot *slots;
    void read(int lane, void *out, size_t bytes) const
    {
        __builtin_memcpy(out, slots[lane].bytes, bytes);
    }
};
/* Leaves `mine` for the others and waits until all lanes have; what is returned holds until this
 * lane's exchange after the next. */
struct emu_lanes emu_bring(const void *mine, size_t bytes);

/* ---- launching (module.cc) ---- */

struct emu_launch {
    const char *name;
    void (*call)(const void *args); /* the kernel, for the thread that runs */
    const void *args;
    int n_threads;
    int64_t grid[3];
    size_t shared;
    bool reversed; /* threads and blocks from the last to the first */
};
/* Returns when all blocks have run. One at a time: the caller locks. */
void emu_run(const struct emu_launch *launch);
