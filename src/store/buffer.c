// SPDX-License-Identifier: Apache-2.0
// Memory suited for transfers: aligned, in huge pages, locked, and registered with the store's
// io_uring. Each property is granted as far as the system allows; the buffer's info reports what it
// got.
#include "store/private.h"

#include <sys/mman.h>

enum { SMALL_ALIGN = 4096, HUGE_ALIGN = 2 << 20, HUGE_FROM = 16 << 20 };

struct sw_nvme_buffer {
    struct sw_nvme_buffer_info info;
    struct sw_nvme *store; /* store that it is registered with, at index; NULL = none */
    int index;
    bool mlocked;
};

static int take_index(struct sw_nvme *store)
{
    int index = -1;
    pthread_mutex_lock(&store->lock);
    for (int i = 0; i < MAX_BUFFERS && index < 0; i++) {
        if (!store->buffer_used[i]) {
            store->buffer_used[i] = true;
            index = i;
        }
    }
    pthread_mutex_unlock(&store->lock);
    return index;
}

static void give_index(struct sw_nvme *store, int index)
{
    pthread_mutex_lock(&store->lock);
    store->buffer_used[index] = false;
    pthread_mutex_unlock(&store->lock);
}

static void add_to(struct sw_nvme *store, sw_nvme_buffer *buffer)
{
    const struct backend_ops *ops = store->backend->ops;
    const int index = ops->add_buffer ? take_index(store) : -1;
    if (index < 0) {
        return;
    }
    if (!ops->add_buffer(store->backend, index, buffer->info.data, buffer->info.bytes)) {
        give_index(store, index);
        return;
    }
    buffer->store = store;
    buffer->index = index;
    buffer->info.registered = true;
}

sw_status sw_nvme_buffer_open(sw_nvme *store, size_t bytes, sw_nvme_buffer **out)
{
    const size_t align = bytes >= HUGE_FROM ? HUGE_ALIGN : SMALL_ALIGN;
    size_t whole;
    if (bytes == 0 || !sw_add_size(bytes, align - 1, &whole)) {
        return SW_FAIL(SW_E_ARG, "a buffer of %zu bytes", bytes);
    }
    whole = whole / align * align;
    sw_nvme_buffer *buffer = sw_alloc_zero("store", 1, sizeof *buffer);
    SW_TRY_ALLOC(buffer, "a buffer");
    buffer->info.data = sw_alloc_aligned("store", align, whole);
    if (!buffer->info.data) {
        sw_free(buffer);
        return SW_FAIL(SW_E_NOMEM, "out of host memory for a buffer of %zu bytes", whole);
    }
    buffer->info.bytes = bytes;
    buffer->info.huge_pages =
        align == HUGE_ALIGN && madvise(buffer->info.data, whole, MADV_HUGEPAGE) == 0;
    if (store) {
        add_to(store, buffer);
    }
    /* Registered memory is pinned already. Calling mlock first gave other pages in more pieces:
     * measured with ordinary pages, reads then took half as long again. */
    buffer->mlocked = !buffer->info.registered && mlock(buffer->info.data, whole) == 0;
    buffer->info.locked = buffer->info.registered || buffer->mlocked;
    *out = buffer;
    return SW_OK;
}

void sw_nvme_buffer_close(sw_nvme_buffer *buffer)
{
    if (!buffer) {
        return;
    }
    if (buffer->store) {
        buffer->store->backend->ops->drop_buffer(buffer->store->backend, buffer->index);
        give_index(buffer->store, buffer->index);
    }
    if (buffer->mlocked) {
        munlock(buffer->info.data, buffer->info.bytes);
    }
    sw_free(buffer->info.data);
    sw_free(buffer);
}

void sw_nvme_buffer_get_info(const sw_nvme_buffer *buffer, struct sw_nvme_buffer_info *out)
{
    *out = buffer->info;
}
