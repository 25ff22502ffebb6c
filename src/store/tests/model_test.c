// SPDX-License-Identifier: Apache-2.0
// TIMEOUT 300
// Compares a store with a plain array of bytes: random offsets, lengths, scatter lists and
// alignments, several requests in flight, and adjacent ranges down to the byte. Covers every kind
// of store. Bytes never written must be refused; all others must be the last ones written.
#include "store/tests/helpers.h"

#include <pthread.h>

enum { BYTES = 300007, MOST_FLIGHTS = 6, MOST_SEGMENTS = 40, STEPS = 250 };

struct model {
    unsigned char bytes[BYTES];
    bool written[BYTES];
};

struct flight {
    bool active, write;
    sw_nvme_ticket ticket;
    int64_t offset, bytes;
    unsigned char *memory; /* holds the segments, with gaps between them */
    struct sw_nvme_segment segments[MOST_SEGMENTS];
    int n_segments;
};

struct world {
    struct model model;
    struct flight flights[MOST_FLIGHTS];
    struct test_random random;
    sw_nvme *store;
    int n_refused, n_checked;
};

/* Rows of 448, 449 and 7 floats, single bytes, blocks, and lengths between them. */
static int64_t some_length(struct test_random *random)
{
    static const int64_t lengths[] = {448 * 4, 449 * 4, 7 * 4, 1,    512,   4096,  4095,
                                      4097,    8192,    16384, 3000, 65536, 70001, 100000};
    return test_below(random, 3) ? lengths[test_below(random, SW_LEN(lengths))]
                                 : 1 + test_below(random, 20000);
}

static int64_t some_offset(struct test_random *random, int64_t length)
{
    static const int64_t rows[] = {448 * 4, 449 * 4, 7 * 4, 4096, 512, 16384};
    const int64_t most = BYTES - length + 1;
    const int64_t row = rows[test_below(random, SW_LEN(rows))];
    return test_below(random, 3) ? test_below(random, most) : test_below(random, most) / row * row;
}

/* Cuts memory for `bytes` bytes into segments: some empty, some aligned, some not. */
static void cut(struct test_random *random, struct flight *f)
{
    static const int64_t gaps[] = {0, 0, 1, 3, 4, 60, 512};
    unsigned char *at = f->memory + gaps[test_below(random, SW_LEN(gaps))];
    int64_t left = f->bytes;
    f->n_segments = 0;
    while (left > 0) {
        int64_t len = test_below(random, 4) ? left : 1 + test_below(random, left);
        len = test_below(random, 8) == 0 ? 4096 : len;
        len = test_below(random, 10) == 0 ? 0 : len;
        len = len < left && f->n_segments < MOST_SEGMENTS - 1 ? len : left;
        f->segments[f->n_segments++] = (struct sw_nvme_segment){at, (size_t)len};
        at += len + gaps[test_below(random, SW_LEN(gaps))];
        left -= len;
    }
}

static bool free_of_others(const struct world *w, int64_t offset, int64_t bytes)
{
    for (int i = 0; i < MOST_FLIGHTS; i++) {
        const struct flight *f = &w->flights[i];
        if (f->active && f->offset < offset + bytes && offset < f->offset + f->bytes) {
            return false;
        }
    }
    return true;
}

static bool all_written(const struct model *m, int64_t offset, int64_t bytes)
{
    return memchr(m->written + offset, 0, (size_t)bytes) == NULL;
}

static void start_write(struct world *w, struct flight *f)
{
    unsigned char *to = w->model.bytes + f->offset;
    for (int i = 0; i < f->n_segments; i++) {
        unsigned char *at = f->segments[i].data;
        for (size_t k = 0; k < f->segments[i].bytes; k++) {
            at[k] = (unsigned char)test_below(&w->random, 256);
        }
        memcpy(to, at, f->segments[i].bytes);
        to += f->segments[i].bytes;
    }
    test_fine(sw_nvme_begin_write(w->store, f->offset, f->segments, f->n_segments, &f->ticket));
    memset(w->model.written + f->offset, true, (size_t)f->bytes);
    f->active = true;
}

static void start_read(struct world *w, struct flight *f)
{
    const sw_status st =
        sw_nvme_begin_read(w->store, f->offset, f->segments, f->n_segments, &f->ticket);
    if (all_written(&w->model, f->offset, f->bytes)) {
        test_fine(st);
        f->active = true;
    } else {
        assert_int_equal(st, SW_E_ARG);
        test_message_has("never written", NULL);
        w->n_refused++;
    }
}

static void end(struct world *w, struct flight *f)
{
    const unsigned char *want = w->model.bytes + f->offset;
    sw_status st = SW_PENDING;
    while (test_below(&w->random, 2) && st == SW_PENDING) {
        st = sw_nvme_poll(w->store, f->ticket);
    }
    st = st == SW_PENDING ? sw_nvme_wait(w->store, f->ticket, 0) : st;
    test_fine(st);
    assert_false(sw_nvme_in_flight(w->store, f->ticket));
    for (int i = 0; i < f->n_segments && !f->write; i++) {
        assert_memory_equal(f->segments[i].data, want, f->segments[i].bytes);
        want += f->segments[i].bytes;
    }
    w->n_checked += !f->write;
    f->active = false;
}

static void step(struct world *w)
{
    struct flight *f = &w->flights[test_below(&w->random, MOST_FLIGHTS)];
    if (f->active) {
        end(w, f);
        return;
    }
    f->bytes = some_length(&w->random);
    f->offset = some_offset(&w->random, f->bytes);
    /* Often starts directly after a neighbour in flight. */
    const struct flight *other = &w->flights[test_below(&w->random, MOST_FLIGHTS)];
    if (other->active && test_below(&w->random, 2) &&
        other->offset + other->bytes + f->bytes <= BYTES) {
        f->offset = other->offset + other->bytes;
    }
    if (!free_of_others(w, f->offset, f->bytes)) {
        return;
    }
    f->write = test_below(&w->random, 2);
    cut(&w->random, f);
    if (f->write) {
        start_write(w, f);
    } else {
        start_read(w, f);
    }
}

/* Checks all bytes, and the bytes around unwritten ranges. */
static void check_everything(struct world *w, unsigned char *memory)
{
    for (int64_t at = 0, run; at < BYTES; at += run) {
        const bool *change =
            memchr(w->model.written + at, !w->model.written[at], (size_t)(BYTES - at));
        run = change ? change - (w->model.written + at) : BYTES - at;
        const sw_status st = sw_nvme_read(w->store, at, memory, (size_t)run);
        assert_int_equal(st, w->model.written[at] ? SW_OK : SW_E_ARG);
        if (st == SW_OK) {
            assert_memory_equal(memory, w->model.bytes + at, run);
        }
    }
}

static void run_variant(const struct test_variant *v, uint64_t seed)
{
    struct world *w = sw_alloc_zero("test", 1, sizeof *w);
    struct sw_nvme_options options;
    struct sw_alloc_stats before, after;
    test_variant_options(v, &options);
    w->random.seed = seed;
    test_fine(test_open("model", v->n_paths, BYTES, &options, &w->store));
    const size_t room = 200000 + MOST_SEGMENTS * 600;
    for (int i = 0; i < MOST_FLIGHTS; i++) {
        w->flights[i].memory = sw_alloc_aligned("test", 4096, room);
    }
    unsigned char *all = sw_alloc("test", BYTES);
    sw_alloc_get_stats(&before);
    for (int i = 0; i < STEPS; i++) {
        step(w);
    }
    for (int i = 0; i < MOST_FLIGHTS; i++) {
        if (w->flights[i].active) {
            end(w, &w->flights[i]);
        }
    }
    check_everything(w, all);
    sw_alloc_get_stats(&after);
    assert_int_equal(after.n_calls, before.n_calls);
    assert_true(w->n_refused > 0 && w->n_checked > 0);
    if (v->checksum_bytes) {
        test_fine(sw_nvme_flush(w->store));
        sw_nvme_close(w->store);
        options.reopen = true;
        test_fine(test_open("model", v->n_paths, BYTES, &options, &w->store));
        test_fine(sw_nvme_verify(w->store, NULL));
        check_everything(w, all);
    }
    sw_nvme_close(w->store);
    for (int i = 0; i < MOST_FLIGHTS; i++) {
        sw_free(w->flights[i].memory);
    }
    sw_free(all);
    sw_free(w);
}

static void as_an_array(void **state)
{
    (void)state;
    static const struct test_variant variants[] = {
        {.direct = SW_NVME_DIRECT_AUTO, .n_paths = 1, .block_bytes = 65536},
        {.direct = SW_NVME_DIRECT_OFF, .n_paths = 1, .block_bytes = 65536},
        {.direct = SW_NVME_DIRECT_AUTO, .n_paths = 3, .block_bytes = 8192, .lanes = 3},
        {.direct = SW_NVME_DIRECT_OFF, .n_paths = 3, .block_bytes = 10000, .lanes = 2},
        {.direct = SW_NVME_DIRECT_AUTO,
         .n_paths = 1,
         .block_bytes = 1 << 20,
         .checksum_bytes = 4096},
        {.direct = SW_NVME_DIRECT_AUTO,
         .n_paths = 2,
         .block_bytes = 16384,
         .checksum_bytes = 16384},
        {.direct = SW_NVME_DIRECT_OFF,
         .n_paths = 1,
         .block_bytes = 16384,
         .checksum_bytes = 8192,
         .lanes = 4},
        {.direct = SW_NVME_DIRECT_AUTO,
         .n_paths = 1,
         .block_bytes = 4096,
         .queue_depth = 1,
         .single_submit = true},
        {.direct = SW_NVME_DIRECT_AUTO, .n_paths = 2, .block_bytes = 4096, .batches = true},
        {.direct = SW_NVME_DIRECT_AUTO,
         .n_paths = 1,
         .block_bytes = 4096,
         .queue_depth = 40,
         .lanes = 8},
    };
    enum sw_nvme_backend backends[2];
    const int n_backends = test_backends(backends);
    for (int b = 0; b < n_backends; b++) {
        for (size_t i = 0; i < SW_LEN(variants); i++) {
            struct test_variant v = variants[i];
            v.backend = backends[b];
            run_variant(&v, 100 * (uint64_t)b + i);
        }
    }
}

/* ---- threads that write adjacent rows ---- */

enum { ROWS = 400, THREADS = 4 };

struct writer {
    pthread_t thread;
    sw_nvme *store;
    int i_thread;
    int64_t row_bytes;
    int n_errors;
};

static void *write_rows(void *ctx)
{
    struct writer *w = ctx;
    unsigned char row[449 * 4], back[449 * 4];
    for (int64_t i = w->i_thread; i < ROWS; i += THREADS) {
        memset(row, (int)(i * 7 + 1), (size_t)w->row_bytes);
        w->n_errors +=
            sw_nvme_write(w->store, i * w->row_bytes, row, (size_t)w->row_bytes) != SW_OK;
        w->n_errors +=
            sw_nvme_read(w->store, i * w->row_bytes, back, (size_t)w->row_bytes) != SW_OK;
        w->n_errors += memcmp(row, back, (size_t)w->row_bytes) != 0;
    }
    return NULL;
}

static void run_neighbours(enum sw_nvme_backend backend, int64_t floats, int64_t checksum_bytes)
{
    struct writer writers[THREADS];
    const struct test_variant v = {
        .backend = backend, .n_paths = 2, .block_bytes = 8192, .checksum_bytes = checksum_bytes};
    struct sw_nvme_options options;
    sw_nvme *store;
    unsigned char row[449 * 4];
    const int64_t row_bytes = floats * 4;
    test_variant_options(&v, &options);
    test_fine(test_open("rows", 2, ROWS * row_bytes, &options, &store));
    for (int i = 0; i < THREADS; i++) {
        writers[i] = (struct writer){.store = store, .i_thread = i, .row_bytes = row_bytes};
        assert_int_equal(pthread_create(&writers[i].thread, NULL, write_rows, &writers[i]), 0);
    }
    for (int i = 0; i < THREADS; i++) {
        pthread_join(writers[i].thread, NULL);
        assert_int_equal(writers[i].n_errors, 0);
    }
    for (int64_t i = 0; i < ROWS; i++) {
        test_fine(sw_nvme_read(store, i * row_bytes, row, (size_t)row_bytes));
        for (int64_t k = 0; k < row_bytes; k++) {
            assert_int_equal(row[k], (unsigned char)(i * 7 + 1));
        }
    }
    sw_nvme_close(store);
}

static void neighbours_keep_their_bytes(void **state)
{
    (void)state;
    static const int64_t floats[] = {448, 449, 7};
    enum sw_nvme_backend backends[2];
    const int n_backends = test_backends(backends);
    for (int b = 0; b < n_backends; b++) {
        for (size_t i = 0; i < SW_LEN(floats); i++) {
            run_neighbours(backends[b], floats[i], 0);
            run_neighbours(backends[b], floats[i], 4096);
        }
    }
}

/* ---- a thread that starts requests and ends ---- */

static void *begin_and_end(void *ctx)
{
    struct writer *w = ctx;
    static unsigned char memory[THREADS][1 << 20];
    static struct sw_nvme_segment segments[THREADS];
    sw_nvme_ticket ticket;
    memset(memory[w->i_thread], w->i_thread + 1, sizeof *memory);
    segments[w->i_thread] = (struct sw_nvme_segment){memory[w->i_thread], sizeof *memory};
    w->n_errors = sw_nvme_begin_write(w->store, (int64_t)w->i_thread << 20, &segments[w->i_thread],
                                      1, &ticket) != SW_OK;
    return NULL;
}

static void requests_outlive_their_thread(void **state)
{
    (void)state;
    enum sw_nvme_backend backends[2];
    const int n_runs = 2 * test_backends(backends);
    static unsigned char back[1 << 20];
    for (int run = 0; run < n_runs; run++) {
        struct writer writers[THREADS];
        const struct test_variant v = {.backend = backends[run / 2],
                                       .direct = run % 2 ? SW_NVME_DIRECT_OFF : SW_NVME_DIRECT_AUTO,
                                       .n_paths = 1,
                                       .queue_depth = 64,
                                       .block_bytes = 16384};
        struct sw_nvme_options options;
        sw_nvme *store;
        test_variant_options(&v, &options);
        test_fine(test_open("ends", 1, THREADS << 20, &options, &store));
        for (int i = 0; i < THREADS; i++) {
            writers[i] = (struct writer){.store = store, .i_thread = i};
            assert_int_equal(pthread_create(&writers[i].thread, NULL, begin_and_end, &writers[i]),
                             0);
        }
        for (int i = 0; i < THREADS; i++) {
            pthread_join(writers[i].thread, NULL);
            assert_int_equal(writers[i].n_errors, 0);
        }
        test_fine(sw_nvme_wait_all(store, 0));
        for (int i = 0; i < THREADS; i++) {
            test_fine(sw_nvme_read(store, (int64_t)i << 20, back, sizeof back));
            assert_int_equal(back[0], i + 1);
            assert_memory_equal(back, back + 1, sizeof back - 1);
        }
        sw_nvme_close(store);
    }
}

static const struct CMUnitTest tests[] = {cmocka_unit_test(as_an_array),
                                          cmocka_unit_test(neighbours_keep_their_bytes),
                                          cmocka_unit_test(requests_outlive_their_thread)};

const struct test_program sw_tests = {TEST_TABLE(tests)};
