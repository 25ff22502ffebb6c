// SPDX-License-Identifier: Apache-2.0
// Fibers, one for each thread of a block. A fiber runs until it waits at a barrier or ends. Then
// the next runnable fiber of its warp runs, and the next warp if there is none. This keeps few
// stacks in use, so they stay in cache. A fiber waits for a given turn of a barrier, so that
// reusing a barrier never mixes its turns.
#include "device/gpu/module/emu.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#if !defined(__x86_64__)
#include <ucontext.h>
#endif

#if defined(__SANITIZE_ADDRESS__)
#define EMU_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define EMU_ASAN 1
#endif
#endif
#ifdef EMU_ASAN
#include <sanitizer/common_interface_defs.h>
#endif

enum { MAX_THREADS = 1024, MAX_WARPS = MAX_THREADS / SW_WARP, POISON = 0xff };
static const size_t STATIC_SHARED = 64 << 10; /* more than any architecture gives a block */
#ifdef EMU_ASAN
enum { STACK_BYTES = 256 << 10 };
#else
enum { STACK_BYTES = 64 << 10 };
#endif

/* Not a power of two, or the ends of all stacks would share a few cache lines. */
enum { STACK_STEP = STACK_BYTES + 9 * 64 };

struct barrier {
    uint64_t turn; /* number of times it was passed */
    int n_waiting;
};

struct warp {
    struct barrier barrier;
    struct emu_slot slots[2][SW_WARP]; /* alternate: fast lanes may write the next */
};

struct fiber {
    struct emu_thread thread;
    bool ended;
    int stack;                /* -1 = not started */
    const struct barrier *at; /* NULL = runnable */
    uint64_t until;           /* the turn of `at` that it waits for */
    size_t shared;            /* bytes of static shared memory requested so far */
    uint64_t n_exchanges;
#if defined(__x86_64__)
    void *sp;
#else
    ucontext_t context;
#endif
    void *fake_stack; /* for the address sanitizer */
};

static struct {
    const struct emu_launch *launch;
    struct fiber fibers[MAX_THREADS];
    struct warp warps[MAX_WARPS];
    struct barrier block;
    char *stacks, *shared, *dynamic;
    int spare[MAX_THREADS], n_spare; /* free stacks, last used first */
    size_t static_used;              /* most that a thread of this launch requested */
    struct fiber *running;
#if defined(__x86_64__)
    void *sp; /* the scheduler's stack pointer */
#else
    ucontext_t context;
#endif
    void *fake_stack;
    const void *stack_bottom; /* stack of the launching thread */
    size_t stack_bytes;
} emu;

struct emu_thread *emu_now;

/* ---- switching ---- */

#if defined(__x86_64__)
/* Saves the callee-saved registers on this stack, stores its pointer in *from and continues on the
 * other stack. */
extern "C" void emu_switch(void **from, void *to);
__asm__(".text\n"
        ".p2align 4\n"
        ".local emu_switch\n"
        ".type emu_switch,@function\n"
        "emu_switch:\n"
        "    pushq %rbp\n"
        "    pushq %rbx\n"
        "    pushq %r12\n"
        "    pushq %r13\n"
        "    pushq %r14\n"
        "    pushq %r15\n"
        "    movq %rsp, (%rdi)\n"
        "    movq %rsi, %rsp\n"
        "    popq %r15\n"
        "    popq %r14\n"
        "    popq %r13\n"
        "    popq %r12\n"
        "    popq %rbx\n"
        "    popq %rbp\n"
        "    ret\n"
        ".size emu_switch,.-emu_switch\n");
#endif

static char *stack_of(const struct fiber *fiber)
{
    return emu.stacks + (size_t)fiber->stack * STACK_STEP;
}

/* Switches back to the scheduler; `ends`: for good. */
static void give_way(bool ends)
{
    struct fiber *fiber = emu.running;
#ifdef EMU_ASAN
    __sanitizer_start_switch_fiber(ends ? NULL : &fiber->fake_stack, emu.stack_bottom,
                                   emu.stack_bytes);
#else
    (void)ends;
#endif
#if defined(__x86_64__)
    emu_switch(&fiber->sp, emu.sp);
#else
    swapcontext(&fiber->context, &emu.context);
#endif
#ifdef EMU_ASAN
    __sanitizer_finish_switch_fiber(fiber->fake_stack, NULL, NULL);
#endif
}

static void fiber_main(void)
{
#ifdef EMU_ASAN
    __sanitizer_finish_switch_fiber(NULL, &emu.stack_bottom, &emu.stack_bytes);
#endif
    emu.launch->call(emu.launch->args);
    emu.running->ended = true;
    give_way(true);
    abort(); /* an ended fiber is never resumed */
}

static void prepare(struct fiber *fiber)
{
    char *top = stack_of(fiber) + STACK_BYTES;
#if defined(__x86_64__)
    void **sp = (void **)(void *)top;
    *--sp = NULL;                 /* return address of fiber_main; aligns the stack */
    *--sp = (void *)fiber_main;   /* `ret` of emu_switch */
    for (int i = 0; i < 6; i++) { /* the callee-saved registers */
        *--sp = NULL;
    }
    fiber->sp = sp;
#else
    getcontext(&fiber->context);
    fiber->context.uc_stack.ss_sp = top - STACK_BYTES;
    fiber->context.uc_stack.ss_size = STACK_BYTES;
    fiber->context.uc_link = NULL;
    makecontext(&fiber->context, fiber_main, 0);
#endif
}

/* Switches from the scheduler into a fiber. */
static void resume(struct fiber *fiber)
{
    if (fiber->stack < 0) {
        fiber->stack = emu.spare[--emu.n_spare];
        prepare(fiber);
    }
    emu.running = fiber;
    emu_now = &fiber->thread;
#ifdef EMU_ASAN
    __sanitizer_start_switch_fiber(&emu.fake_stack, stack_of(fiber), STACK_BYTES);
#endif
#if defined(__x86_64__)
    emu_switch(&emu.sp, fiber->sp);
#else
    swapcontext(&emu.context, &fiber->context);
#endif
#ifdef EMU_ASAN
    __sanitizer_finish_switch_fiber(emu.fake_stack, NULL, NULL);
#endif
    if (fiber->ended) {
        emu.spare[emu.n_spare++] = fiber->stack;
    }
}

/* ---- waiting ---- */

static void wait_at(struct barrier *barrier, int n_threads)
{
    struct fiber *fiber = emu.running;
    if (++barrier->n_waiting == n_threads) {
        barrier->n_waiting = 0;
        barrier->turn++;
        return; /* the last thread goes on and releases the others */
    }
    fiber->at = barrier;
    fiber->until = barrier->turn + 1;
    give_way(false);
    fiber->at = NULL;
}

void emu_sync_block(void)
{
    wait_at(&emu.block, emu.launch->n_threads);
}

static struct warp *warp_of(const struct fiber *fiber)
{
    return &emu.warps[fiber->thread.thread / SW_WARP];
}

void emu_sync_warp(void)
{
    wait_at(&warp_of(emu.running)->barrier, SW_WARP);
}

struct emu_lanes emu_bring(const void *mine, size_t bytes)
{
    struct fiber *fiber = emu.running;
    struct warp *warp = warp_of(fiber);
    struct emu_slot *slots = warp->slots[fiber->n_exchanges++ % 2];
    if (bytes > EMU_SLOT_BYTES) {
        fprintf(stderr, "emu: %s exchanges %zu bytes a lane, more than %d\n", emu.launch->name,
                bytes, EMU_SLOT_BYTES);
        abort();
    }
    memcpy(slots[fiber->thread.thread % SW_WARP].bytes, mine, bytes);
    wait_at(&warp->barrier, SW_WARP);
    return {slots};
}

/* ---- shared memory ---- */

void *emu_shared(size_t bytes)
{
    struct fiber *fiber = emu.running;
    const size_t at = (fiber->shared + 15) / 16 * 16;
    fiber->shared = at + bytes;
    if (fiber->shared > STATIC_SHARED) {
        fprintf(stderr, "emu: %s wants %zu bytes of shared memory, more than %zu\n",
                emu.launch->name, fiber->shared, STATIC_SHARED);
        abort();
    }
    if (fiber->shared > emu.static_used) {
        emu.static_used = fiber->shared;
    }
    return emu.shared + at;
}

char *emu_dynamic_shared(void)
{
    return emu.dynamic;
}

/* ---- a launch ---- */

static void complain(const struct emu_launch *launch)
{
    fprintf(stderr,
            "emu: %s: these threads of block %lld wait for others that have ended:", launch->name,
            (long long)emu.fibers[0].thread.block[0]);
    for (int t = 0; t < launch->n_threads; t++) {
        if (!emu.fibers[t].ended) {
            fprintf(stderr, " %d", t);
        }
    }
    fprintf(stderr, "\n");
    abort();
}

static bool may_run(const struct fiber *fiber)
{
    return !fiber->ended && (!fiber->at || fiber->at->turn >= fiber->until);
}

/* Runs a warp as far as it gets by itself. Returns how often one of its threads ran; *left: number
 * of the block's threads that have not ended. */
static int run_warp(const struct emu_launch *launch, int warp, int *left)
{
    int n_run = 0;
    for (int before = -1; n_run != before;) {
        before = n_run;
        for (int i = 0; i < SW_WARP; i++) {
            const int lane = launch->reversed ? SW_WARP - 1 - i : i;
            struct fiber *fiber = &emu.fibers[warp * SW_WARP + lane];
            if (may_run(fiber)) {
                resume(fiber);
                n_run++;
                *left -= fiber->ended;
            }
        }
    }
    return n_run;
}

static void run_block(const struct emu_launch *launch, const int64_t block[3])
{
    const int n = launch->n_threads;
    memset(emu.shared, POISON, emu.static_used);
    if (launch->shared > 0) {
        memset(emu.dynamic, POISON, launch->shared);
    }
    emu.block = {};
    for (int w = 0; w < n / SW_WARP; w++) {
        emu.warps[w].barrier = {};
    }
    for (int t = 0; t < n; t++) {
        struct fiber *fiber = &emu.fibers[t];
        fiber->thread = {t,
                         n,
                         {block[0], block[1], block[2]},
                         {launch->grid[0], launch->grid[1], launch->grid[2]}};
        fiber->ended = false;
        fiber->stack = -1;
        fiber->at = NULL;
        fiber->shared = 0;
        fiber->n_exchanges = 0;
    }
    for (int left = n; left > 0;) {
        int n_run = 0;
        for (int w = 0; w < n / SW_WARP; w++) {
            n_run += run_warp(launch, launch->reversed ? n / SW_WARP - 1 - w : w, &left);
        }
        if (n_run == 0) {
            complain(launch);
        }
    }
}

void emu_run(const struct emu_launch *launch)
{
    if (launch->n_threads < 1 || launch->n_threads > MAX_THREADS ||
        launch->n_threads % SW_WARP != 0) {
        fprintf(stderr, "emu: %s: a block of %d threads is no whole number of warps of %d\n",
                launch->name, launch->n_threads, SW_WARP);
        abort();
    }
    if (!emu.stacks) {
        void *stacks = mmap(NULL, (size_t)MAX_THREADS * STACK_STEP, PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        emu.shared = (char *)aligned_alloc(64, STATIC_SHARED);
        if (stacks == MAP_FAILED || !emu.shared) {
            fprintf(stderr, "emu: no memory for the threads of a block\n");
            abort();
        }
        emu.stacks = (char *)stacks;
        emu.static_used = STATIC_SHARED;
        for (int i = MAX_THREADS - 1; i >= 0; i--) {
            emu.spare[emu.n_spare++] = i;
        }
    }
    /* Allocated at exact size, so that the address sanitizer finds overruns. */
    emu.dynamic = launch->shared ? (char *)malloc(launch->shared) : NULL;
    emu.launch = launch;
    const int64_t n_blocks = launch->grid[0] * launch->grid[1] * launch->grid[2];
    for (int64_t i = 0; i < n_blocks; i++) {
        const int64_t at = launch->reversed ? n_blocks - 1 - i : i;
        const int64_t block[3] = {at % launch->grid[0], at / launch->grid[0] % launch->grid[1],
                                  at / launch->grid[0] / launch->grid[1]};
        if (i == 1) { /* the first block shows how much is used */
            emu.static_used = 0;
            for (int t = 0; t < launch->n_threads; t++) {
                emu.static_used =
                    emu.fibers[t].shared > emu.static_used ? emu.fibers[t].shared : emu.static_used;
            }
        }
        run_block(launch, block);
    }
    emu.static_used = STATIC_SHARED;
    emu.running = NULL;
    emu_now = NULL;
    free(emu.dynamic);
    emu.dynamic = NULL;
}
