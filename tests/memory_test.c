// SPDX-License-Identifier: Apache-2.0
// COST 14
// The plan predicts the memory of a training. Anonymous resident memory stays within the plan, plus
// a baseline measured on a model of one layer, plus 32 MiB. Allocations of libraries are counted by
// wrapping malloc, and bounded. Nothing is allocated after the first step.
#include <malloc.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/base.h"
#include "spillway/engine.h"
#include "support/test.h"

#if !defined(TEST_SANITIZED) && defined(__GLIBC__)
#define COUNTS 1
/* glibc's allocator, which our malloc and its relatives wrap. */
extern void *__libc_malloc(size_t bytes);
extern void *__libc_calloc(size_t count, size_t bytes);
extern void *__libc_realloc(void *mem, size_t bytes);
extern void *__libc_memalign(size_t align, size_t bytes);
extern void __libc_free(void *mem);

static _Atomic int64_t live_bytes, peak_bytes;

static void *note(void *mem)
{
    if (mem) {
        const int64_t now = atomic_fetch_add(&live_bytes, (int64_t)malloc_usable_size(mem)) +
                            (int64_t)malloc_usable_size(mem);
        int64_t peak = atomic_load(&peak_bytes);
        while (now > peak && !atomic_compare_exchange_weak(&peak_bytes, &peak, now)) {
        }
    }
    return mem;
}

static void forget(void *mem)
{
    if (mem) {
        atomic_fetch_sub(&live_bytes, (int64_t)malloc_usable_size(mem));
    }
}

void *malloc(size_t bytes)
{
    return note(__libc_malloc(bytes));
}

void *calloc(size_t count, size_t bytes)
{
    return note(__libc_calloc(count, bytes));
}

void *realloc(void *mem, size_t bytes)
{
    forget(mem);
    return note(__libc_realloc(mem, bytes));
}

void *memalign(size_t align, size_t bytes)
{
    return note(__libc_memalign(align, bytes));
}

void *aligned_alloc(size_t align, size_t bytes)
{
    return memalign(align, bytes);
}

int posix_memalign(void **out, size_t align, size_t bytes)
{
    void *mem = memalign(align, bytes);
    *out = mem ? mem : *out;
    return mem ? 0 : 12;
}

void free(void *mem)
{
    forget(mem);
    __libc_free(mem);
}
#endif

static int64_t anonymous_bytes(void)
{
    char line[256];
    long long kib = 0;
    FILE *file = fopen("/proc/self/status", "r");
    while (file && fgets(line, sizeof line, file)) {
        if (sscanf(line, "RssAnon: %lld kB", &kib) == 1) {
            break;
        }
    }
    if (file) {
        fclose(file);
    }
    return kib * 1024;
}

struct measured {
    int64_t plan, anonymous, libraries, allocations;
};

/* Trains some steps of a GPT-2 of this size; runs in a child, so that each begins with fresh
 * memory. */
static void train(const char *precision, int layers, int width, struct measured *out)
{
    char model[512], config[512], path[] = "/tmp/spillway-memory-XXXXXX.json";
    const int fd = mkstemps(path, 5);
    snprintf(model, sizeof model,
             "{\"model_type\":\"gpt2\",\"vocab_size\":2000,\"n_positions\":128,\"n_embd\":%d,"
             "\"n_layer\":%d,\"n_head\":4}",
             width, layers);
    snprintf(config, sizeof config,
             "{\"train_micro_batch_size_per_gpu\": 4, %s \"optimizer\": {\"type\": \"AdamW\", "
             "\"params\": {\"lr\": 0.001}}}",
             precision);
    if (fd < 0 || write(fd, model, strlen(model)) != (ssize_t)strlen(model)) {
        _exit(3);
    }
    const struct sw_engine_options options = {
        .config.text = config, .model.path = path, .seed = 1, .train.wanted = true};
    static int32_t ids[4 * 128], labels[4 * 128];
    const struct sw_shape shape = {2, {4, 128}};
    const struct sw_tensor tensors[] = {
        {"input_ids", {.data = ids, .dtype = SW_I32, .shape = shape}},
        {"labels", {.data = labels, .dtype = SW_I32, .shape = shape}}};
    const struct sw_batch batch = {tensors, 2};
    sw_engine *engine = NULL;
    sw_status st = sw_initialize(&options, &engine);
    unlink(path);
    int64_t after_first = 0;
    for (int i = 0; st >= 0 && i < 4; i++) {
        for (int k = 0; k < 4 * 128; k++) {
            ids[k] = labels[k] = (k * 7 + i) % 2000;
        }
        st = sw_train_batch(engine, &batch, 1, NULL);
        after_first = i == 0 ? sw_engine_allocations(engine) : after_first;
    }
    if (st < 0) {
        fprintf(stderr, "%s\n", sw_error_message());
        _exit(2);
    }
    struct sw_alloc_stats ours;
    sw_alloc_get_stats(&ours);
    out->plan = sw_engine_tier_bytes(engine, 0);
    out->anonymous = anonymous_bytes();
    out->allocations = sw_engine_allocations(engine) - after_first;
#ifdef COUNTS
    out->libraries = atomic_load(&peak_bytes) - ours.peak_bytes;
#endif
    sw_close(engine);
}

static struct measured measure(const char *precision, int layers, int width)
{
    struct measured m = {0};
    int ends[2], status = 0;
    assert_int_equal(pipe(ends), 0);
    const pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        train(precision, layers, width, &m);
        _exit(write(ends[1], &m, sizeof m) == sizeof m ? 0 : 4);
    }
    close(ends[1]);
    assert_int_equal(read(ends[0], &m, sizeof m), sizeof m);
    close(ends[0]);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
    return m;
}

static void memory_is_the_plan(void **state)
{
    (void)state;
    static const char *const precisions[] = {"", "\"bf16\": {\"enabled\": true},",
                                             "\"fp16\": {\"enabled\": true},"};
    for (size_t p = 0; p < SW_LEN(precisions); p++) {
        const struct measured small = measure(precisions[p], 1, 32);
        const struct measured large = measure(precisions[p], 12, 256);
        const int64_t baseline = small.anonymous - small.plan;
        print_message("plan %.1f MiB, anonymous %.1f MiB, baseline %.1f MiB, libraries %.1f MiB\n",
                      (double)large.plan / 0x1p20, (double)large.anonymous / 0x1p20,
                      (double)baseline / 0x1p20, (double)large.libraries / 0x1p20);
        assert_true(large.plan > INT64_C(64) << 20); /* large enough to tell */
#ifndef TEST_SANITIZED
        const int64_t allowed = large.plan + (baseline > 0 ? baseline : 0) + (INT64_C(32) << 20);
        assert_true(large.anonymous <= allowed);
#endif
        assert_true(large.libraries <= INT64_C(32) << 20);
        assert_int_equal(large.allocations, 0);
    }
}

static const struct CMUnitTest tests[] = {cmocka_unit_test(memory_is_the_plan)};

const struct test_program sw_tests = {TEST_TABLE(tests)};
