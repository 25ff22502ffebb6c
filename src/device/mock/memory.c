// SPDX-License-Identifier: Apache-2.0
// The mock's memory blocks, and the translation of addresses to their storage.
#include "device/mock/memory.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>

enum { POISON = 0xff };

static void *map(size_t bytes, int protection)
{
    void *mem = mmap(NULL, bytes, protection, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return mem == MAP_FAILED ? NULL : mem;
}

static void destroy(struct mock_block *block)
{
    if (block->storage) {
        munmap(block->storage, block->bytes);
    }
    if (block->address && block->address != block->storage) {
        munmap(block->address, block->bytes);
    }
    sw_free(block);
}

sw_status sw_mock_memory_alloc(struct mock_memory *memory, enum sw_mem kind, size_t bytes,
                               void **out)
{
    struct mock_block *block = sw_alloc_zero("device", 1, sizeof *block);
    SW_TRY_ALLOC(block, "a block of mock memory");
    block->kind = kind;
    block->bytes = bytes;
    block->storage = map(bytes, PROT_READ | PROT_WRITE);
    block->address = kind == SW_MEM_DEVICE ? map(bytes, PROT_NONE) : block->storage;
    if (!block->storage || !block->address) {
        const int error = errno;
        destroy(block);
        return SW_FAIL(SW_E_NOMEM, "device mock: the system has no %zu bytes (%s)", bytes,
                       strerror(error));
    }
    memset(block->storage, POISON, bytes);
    block->next = memory->blocks;
    memory->blocks = block;
    *out = block->address;
    return SW_OK;
}

static struct mock_block *block_with(const struct mock_memory *memory, const void *address)
{
    const uintptr_t at = (uintptr_t)address;
    for (struct mock_block *block = memory->blocks; block; block = block->next) {
        if (at >= (uintptr_t)block->address && at - (uintptr_t)block->address < block->bytes) {
            return block;
        }
    }
    return NULL;
}

void sw_mock_memory_release(struct mock_memory *memory, void *address)
{
    struct mock_block *block = block_with(memory, address);
    SW_ASSERT(block && block->address == address && !block->released);
    memset(block->storage, POISON, block->bytes);
    block->released = true;
}

void sw_mock_memory_reap(struct mock_memory *memory)
{
    for (struct mock_block **at = &memory->blocks; *at;) {
        struct mock_block *block = *at;
        if (block->released) {
            *at = block->next;
            destroy(block);
        } else {
            at = &block->next;
        }
    }
}

void sw_mock_memory_fini(struct mock_memory *memory)
{
    while (memory->blocks) {
        struct mock_block *block = memory->blocks;
        memory->blocks = block->next;
        destroy(block);
    }
}

sw_status sw_mock_memory_resolve(const struct mock_memory *memory, const void *address,
                                 size_t bytes, bool device_only, void **out)
{
    const struct mock_block *block = block_with(memory, address);
    if (!block || (device_only && block->kind != SW_MEM_DEVICE)) {
        return SW_FAIL(SW_E_ARG, "device mock: %p is no %s", address,
                       device_only ? "device memory" : "memory that it gave, of device or host");
    }
    const size_t offset = (size_t)((const char *)address - block->address);
    if (block->released || bytes > block->bytes - offset) {
        return SW_FAIL(SW_E_ARG, "device mock: %zu bytes at offset %zu of a%s block of %zu bytes",
                       bytes, offset, block->released ? " released" : "", block->bytes);
    }
    *out = block->storage + offset;
    return SW_OK;
}
