// SPDX-License-Identifier: Apache-2.0
// Arena: a list of zeroed chunks, the newest first. Chunks double up to a limit, so that a small
// object costs little and a large one few requests.
#include "base/base.h"

#include <stdio.h>
#include <string.h>

enum { BLOCK_ALIGN = 16, FIRST_CHUNK = 4096, LARGEST_CHUNK = 1 << 20 };

struct sw_arena_chunk {
    struct sw_arena_chunk *next;
    size_t used, cap; /* bytes of mem */
    _Alignas(BLOCK_ALIGN) unsigned char mem[];
};

void sw_arena_init(struct sw_arena *arena, const char *tag)
{
    *arena = (struct sw_arena){.tag = tag};
}

void sw_arena_fini(struct sw_arena *arena)
{
    struct sw_arena_chunk *chunk = arena->head;
    while (chunk) {
        struct sw_arena_chunk *next = chunk->next;
        sw_free(chunk);
        chunk = next;
    }
    arena->head = NULL;
}

void sw_arena_clear(struct sw_arena *arena)
{
    struct sw_arena_chunk *kept = NULL, *next;
    for (struct sw_arena_chunk *chunk = arena->head; chunk; chunk = next) {
        next = chunk->next;
        if (!kept && chunk->cap <= FIRST_CHUNK) {
            kept = chunk;
            memset(kept->mem, 0, kept->used);
            kept->used = 0;
            kept->next = NULL;
        } else {
            sw_free(chunk);
        }
    }
    arena->head = kept;
}

static struct sw_arena_chunk *chunk_open(const char *tag, size_t cap)
{
    size_t bytes;
    if (!sw_add_size(sizeof(struct sw_arena_chunk), cap, &bytes)) {
        return NULL;
    }
    struct sw_arena_chunk *chunk = sw_alloc_zero(tag, 1, bytes);
    if (chunk) {
        chunk->cap = cap;
    }
    return chunk;
}

/* A chunk with room for `bytes`. One block larger than a usual chunk gets its own after the head,
 * whose free space stays in use. */
static struct sw_arena_chunk *chunk_for(struct sw_arena *arena, size_t bytes)
{
    struct sw_arena_chunk *head = arena->head;
    if (head && head->cap - head->used >= bytes) {
        return head;
    }
    size_t usual = head ? head->cap * 2 : FIRST_CHUNK;
    usual = usual < LARGEST_CHUNK ? usual : LARGEST_CHUNK;
    struct sw_arena_chunk *chunk = chunk_open(arena->tag, bytes > usual ? bytes : usual);
    if (!chunk) {
        return NULL;
    }
    if (head && bytes > usual) {
        chunk->next = head->next;
        head->next = chunk;
    } else {
        chunk->next = head;
        arena->head = chunk;
    }
    return chunk;
}

void *sw_arena_alloc(struct sw_arena *arena, size_t bytes)
{
    size_t padded;
    if (!sw_add_size(bytes, BLOCK_ALIGN - 1, &padded)) {
        return NULL;
    }
    padded = padded / BLOCK_ALIGN * BLOCK_ALIGN;
    padded = padded ? padded : BLOCK_ALIGN; /* distinct pointers, also for nothing */
    struct sw_arena_chunk *chunk = chunk_for(arena, padded);
    if (!chunk) {
        return NULL;
    }
    void *mem = chunk->mem + chunk->used;
    chunk->used += padded;
    return mem;
}

void *sw_arena_array(struct sw_arena *arena, size_t count, size_t bytes)
{
    size_t total;
    return sw_mul_size(count, bytes, &total) ? sw_arena_alloc(arena, total) : NULL;
}

char *sw_arena_strndup(struct sw_arena *arena, const char *text, size_t len)
{
    char *copy = len < SIZE_MAX ? sw_arena_alloc(arena, len + 1) : NULL;
    return copy && len ? memcpy(copy, text, len) : copy; /* the block was zeroed: NUL is there */
}

char *sw_arena_strdup(struct sw_arena *arena, const char *text)
{
    return sw_arena_strndup(arena, text, strlen(text));
}

char *sw_arena_printf(struct sw_arena *arena, const char *fmt, ...)
{
    va_list args, again;
    va_start(args, fmt);
    va_copy(again, args);
    const int len = vsnprintf(NULL, 0, fmt, args);
    va_end(args);
    char *text = len < 0 ? NULL : sw_arena_alloc(arena, (size_t)len + 1);
    if (text) {
        vsnprintf(text, (size_t)len + 1, fmt, again);
    }
    va_end(again);
    return text;
}
