// SPDX-License-Identifier: Apache-2.0
// memory - the mock's address space. Device memory has two addresses: the one that is handed out
// lies in pages without any permission, so that a host access faults, and a system call with it
// fails; kernels and copies use the other. Host memory has one. The caller locks. Fresh and
// released memory holds 0xff bytes, NaN in every float dtype.
#pragma once

#include "device/device.h"

struct mock_block {
    struct mock_block *next;
    enum sw_mem kind;
    char *address; /* as handed out */
    char *storage; /* where the bytes are; == address for host memory */
    size_t bytes;
    bool released; /* poisoned, but mapped until nothing queued can touch it */
};

struct mock_memory {
    struct mock_block *blocks;
};

sw_status sw_mock_memory_alloc(struct mock_memory *memory, enum sw_mem kind, size_t bytes,
                               void **out);
void sw_mock_memory_release(struct mock_memory *memory, void *address);
/* Unmaps what was released; call when no work is queued. */
void sw_mock_memory_reap(struct mock_memory *memory);
void sw_mock_memory_fini(struct mock_memory *memory);

/* The storage of `bytes` bytes at an address that was handed out (offsets into a block are fine).
 * SW_E_ARG when they are not inside one live block, and for host memory where device_only. */
sw_status sw_mock_memory_resolve(const struct mock_memory *memory, const void *address,
                                 size_t bytes, bool device_only, void **out);
