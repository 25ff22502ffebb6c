// SPDX-License-Identifier: Apache-2.0
// Counted allocation. Every block carries a header directly in front of what the caller sees:
//
//     base .. padding .. [struct header][ the caller's bytes ... ]
//                                       ^ aligned as asked
//
// so a block of any alignment is freed by one function and its size is known without a table. The
// counters are relaxed atomics: they are exact sums, and order nothing.
//
// Large blocks are asked for in huge pages, of which the system lends what it has: a table of
// hundreds of megabytes, as planning a large model has several, is else met 4 KiB at a time, each
// of which the kernel stops for.
#include "base/base.h"

#include <limits.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

struct header {
    void *base;      /* block of the C library */
    size_t bytes;    /* requested bytes */
    size_t align;    /* power of two */
    const char *tag; /* the owner, for a debugger or a core dump */
};

enum { MIN_ALIGN = _Alignof(max_align_t) };
_Static_assert(sizeof(struct header) % MIN_ALIGN == 0, "the header keeps the alignment of malloc");

static struct {
    _Atomic int64_t live_bytes, live_blocks, peak_bytes, n_calls;
    _Atomic int64_t fail_in; /* requests until the one that fails; 0 = never */
} counters;

static struct header *header_of(void *mem)
{
    return (struct header *)mem - 1;
}

/* The distance from base to the caller's bytes: whole multiples of the alignment. */
static size_t front_bytes(size_t align)
{
    return sw_round_up(sizeof(struct header), align);
}

static bool request_fails(void)
{
    int64_t left = atomic_load_explicit(&counters.fail_in, memory_order_relaxed);
    while (left > 0 &&
           !atomic_compare_exchange_weak_explicit(&counters.fail_in, &left, left - 1,
                                                  memory_order_relaxed, memory_order_relaxed)) {
    }
    return left == 1;
}

static void count(int64_t d_bytes, int64_t d_blocks)
{
    const int64_t live =
        atomic_fetch_add_explicit(&counters.live_bytes, d_bytes, memory_order_relaxed) + d_bytes;
    atomic_fetch_add_explicit(&counters.live_blocks, d_blocks, memory_order_relaxed);
    int64_t peak = atomic_load_explicit(&counters.peak_bytes, memory_order_relaxed);
    while (live > peak &&
           !atomic_compare_exchange_weak_explicit(&counters.peak_bytes, &peak, live,
                                                  memory_order_relaxed, memory_order_relaxed)) {
    }
}

static void count_call(void)
{
    atomic_fetch_add_explicit(&counters.n_calls, 1, memory_order_relaxed);
}

enum { LARGE = 1 << 22 }; /* with a huge page in it, wherever it begins */

/* All pages that the block lies in: what is no longer one mapping is copied where it grows. A
 * refusal costs nothing. */
static void ask_for_huge_pages(void *base, size_t bytes)
{
#if defined(MADV_HUGEPAGE)
    if (bytes > LARGE) {
        const size_t page = (size_t)sysconf(_SC_PAGESIZE), before = (uintptr_t)base % page;
        madvise((char *)base - before, sw_round_up(before + bytes, page), MADV_HUGEPAGE);
    }
#else
    (void)base;
    (void)bytes;
#endif
}

/* zero: fresh pages of the system are zero already, and calloc knows which they are. */
static void *acquire(const char *tag, size_t align, size_t bytes, bool zero)
{
    SW_ASSERT(align != 0 && (align & (align - 1)) == 0);
    align = align < MIN_ALIGN ? MIN_ALIGN : align;
    const size_t front = front_bytes(align);
    size_t total;
    if (!sw_add_size(front, bytes, &total) || total > PTRDIFF_MAX || request_fails()) {
        return NULL;
    }
    void *base = NULL;
    if (align > MIN_ALIGN) {
        if (posix_memalign(&base, align, total) != 0) {
            return NULL;
        }
        if (zero) {
            memset(base, 0, total);
        }
    } else {
        base = zero ? calloc(1, total) : malloc(total);
        if (!base) {
            return NULL;
        }
    }
    ask_for_huge_pages(base, total);
    void *mem = (char *)base + front;
    *header_of(mem) = (struct header){.base = base, .bytes = bytes, .align = align, .tag = tag};
    count((int64_t)bytes, 1);
    count_call();
    return mem;
}

void *sw_alloc(const char *tag, size_t bytes)
{
    return acquire(tag, MIN_ALIGN, bytes, false);
}

void *sw_alloc_zero(const char *tag, size_t count_elems, size_t bytes)
{
    size_t total;
    return sw_mul_size(count_elems, bytes, &total) ? acquire(tag, MIN_ALIGN, total, true) : NULL;
}

void *sw_alloc_aligned(const char *tag, size_t align, size_t bytes)
{
    return acquire(tag, align, bytes, false);
}

/* realloc of the C library keeps only malloc's own alignment, so wider blocks move. */
static void *move_block(const char *tag, void *mem, size_t bytes)
{
    const struct header *old = header_of(mem);
    void *moved = acquire(tag, old->align, bytes, false);
    if (moved) {
        memcpy(moved, mem, bytes < old->bytes ? bytes : old->bytes);
        sw_free(mem);
    }
    return moved;
}

void *sw_realloc(const char *tag, void *mem, size_t bytes)
{
    if (!mem) {
        return sw_alloc(tag, bytes);
    }
    struct header *old = header_of(mem);
    if (old->align > MIN_ALIGN) {
        return move_block(tag, mem, bytes);
    }
    const size_t front = front_bytes(MIN_ALIGN), old_bytes = old->bytes;
    size_t total;
    if (!sw_add_size(front, bytes, &total) || total > PTRDIFF_MAX || request_fails()) {
        return NULL;
    }
    char *base = realloc(old->base, total);
    if (!base) {
        return NULL;
    }
    ask_for_huge_pages(base, total);
    void *moved = base + front;
    *header_of(moved) =
        (struct header){.base = base, .bytes = bytes, .align = MIN_ALIGN, .tag = tag};
    count((int64_t)bytes - (int64_t)old_bytes, 0);
    count_call();
    return moved;
}

char *sw_strdup(const char *tag, const char *text)
{
    const size_t bytes = strlen(text) + 1;
    char *copy = sw_alloc(tag, bytes);
    return copy ? memcpy(copy, text, bytes) : NULL;
}

void sw_free(void *mem)
{
    if (mem) {
        const struct header *head = header_of(mem);
        count(-(int64_t)head->bytes, -1);
        free(head->base);
    }
}

void sw_alloc_get_stats(struct sw_alloc_stats *out)
{
    out->live_bytes = atomic_load_explicit(&counters.live_bytes, memory_order_relaxed);
    out->live_blocks = atomic_load_explicit(&counters.live_blocks, memory_order_relaxed);
    out->peak_bytes = atomic_load_explicit(&counters.peak_bytes, memory_order_relaxed);
    out->n_calls = atomic_load_explicit(&counters.n_calls, memory_order_relaxed);
}

void sw_alloc_fail_nth(int64_t n)
{
    atomic_store_explicit(&counters.fail_in, n, memory_order_relaxed);
}
