// SPDX-License-Identifier: Apache-2.0
// memory - the mock's address space. Device memory has two addresses. The one handed out is in
// pages without any permission, so that a host access faults and a system call with it fails.
// Kernels and copies use the other. Host memory has one address. The caller locks. Fresh and
// released memory holds 0xff bytes, NaN in every float dtype.
#pragma once

#include "device/device.h"

struct mock_block {
    struct mock_block *next;
    enum sw_mem kind;
    char *address; /* the address handed out */
    char *storage; /* its bytes; == address for host memory */
    size_t bytes;
    bool released; /* poisoned, but mapped until no queued work can touch it */
};

struct mock_memory {
    struct mock_block *blocks;
};

sw_status sw_mock_memory_alloc(struct mock_memory *memory, enum sw_mem kind, size_t bytes,
                               void **out);
void sw_mock_memory_release(struct mock_memory *memory, void *address);
/* Unmaps released memory; call it when no work is queued. */
void sw_mock_memory_reap(struct mock_memory *memory);
void sw_mock_memory_fini(struct mock_memory *memory);

/* Finds the storage of `bytes` bytes at an address that was handed out; offsets into a block are
 * fine. SW_E_ARG if they are not inside one live block, or are host memory and device_only is
 * set. */
sw_status sw_mock_memory_resolve(const struct mock_memory *memory, const void *address,
                                 size_t bytes, bool device_only, void **out);
