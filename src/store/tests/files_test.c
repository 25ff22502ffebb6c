// SPDX-License-Identifier: Apache-2.0
// A store and its files: named refusals, space, locks, reopening, striping, checksums, memory.
#include "store/tests/helpers.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

enum { BYTES = 100001 };

static sw_nvme *open_one(const char *name, int n_paths, int64_t bytes,
                         const struct sw_nvme_options *options)
{
    sw_nvme *store;
    test_fine(sw_nvme_open(test_paths(name, n_paths), n_paths, bytes, options, &store));
    return store;
}

static void pattern(unsigned char *memory, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++) {
        memory[i] = (unsigned char)(i * 13 + i / 251);
    }
}

static void refused_by_name(void **state)
{
    (void)state;
    static const struct {
        struct sw_nvme_options options;
        const char *word;
    } wrong[] = {
        {{.block_bytes = -1}, "block_bytes"},
        {{.queue_depth = 5000}, "queue_depth"},
        {{.queue_depth = 4000, .intra_op_parallelism = 2}, "queue_depth"},
        {{.intra_op_parallelism = 65}, "intra_op_parallelism"},
        {{.stripe_bytes = 1000}, "stripe_bytes"},
        {{.checksum_bytes = 5000}, "checksum_bytes"},
        {{.read_only = true}, "read_only"},
    };
    sw_nvme *store;
    for (size_t i = 0; i < SW_LEN(wrong); i++) {
        assert_int_equal(sw_nvme_open(test_paths("wrong", 1), 1, 4096, &wrong[i].options, &store),
                         SW_E_ARG);
        test_message_has(wrong[i].word, NULL);
    }
    assert_int_equal(sw_nvme_open(test_paths("wrong", 1), 0, 4096, NULL, &store), SW_E_ARG);
    assert_int_equal(sw_nvme_open(test_paths("wrong", 1), 1, 0, NULL, &store), SW_E_ARG);
    const char *nowhere = "/no/such/folder/file";
    assert_int_equal(sw_nvme_open(&nowhere, 1, 4096, NULL, &store), SW_E_IO);
    test_message_has(nowhere, "No such file", NULL);
    assert_int_not_equal(access(test_paths("wrong", 1)[0], F_OK), 0);
}

static void requests_that_break_the_contract(void **state)
{
    (void)state;
    unsigned char data[4096] = {0};
    const struct sw_nvme_segment segment = {data, sizeof data}, null = {NULL, 1};
    struct sw_nvme_options options;
    sw_nvme_ticket ticket, other;
    sw_nvme_options_init(&options);
    const struct sw_nvme_fault late = {
        .action = SW_NVME_FAULT_DELAY, .at = 2, .count = -1, .delay_s = 1e6};
    options.fault = &late;
    options.max_requests = 2;
    options.max_extents = 2;
    sw_nvme *store = open_one("contract", 1, BYTES, &options);
    test_fine(sw_nvme_write(store, 0, data, sizeof data));
    assert_int_equal(sw_nvme_write(store, BYTES, data, 1), SW_E_ARG);
    assert_int_equal(sw_nvme_write(store, -1, data, 1), SW_E_ARG);
    assert_int_equal(sw_nvme_read(store, INT64_MAX, data, 2), SW_E_ARG);
    assert_int_equal(sw_nvme_begin_write(store, 0, &null, 1, &ticket), SW_E_ARG);
    assert_int_equal(sw_nvme_read(store, 4000, data, 200), SW_E_ARG);
    test_message_has("bytes 4096 to 4200 were never written", NULL);
    test_fine(sw_nvme_begin_write(store, 8192, &segment, 1, &ticket));
    assert_int_equal(sw_nvme_begin_read(store, 8200, &segment, 1, &other), SW_E_ARG);
    test_message_has("in flight", "8192", NULL);
    assert_int_equal(sw_nvme_begin_write(store, 8000, &segment, 1, &other), SW_E_ARG);
    test_fine(sw_nvme_begin_read(store, 0, &segment, 1, &other));
    sw_nvme_ticket third;
    assert_int_equal(sw_nvme_begin_read(store, 0, &segment, 1, &third), SW_E_NOMEM);
    test_message_has("all 2 tickets are taken", NULL);
    assert_int_equal(sw_nvme_begin_write(store, 30000, &segment, 1, &third), SW_E_NOMEM);
    test_message_has("max_extents", NULL);
    assert_int_equal(sw_nvme_wait(store, ticket + 1000, 0), SW_E_ARG);
    assert_int_equal(sw_nvme_poll(store, -5), SW_E_ARG);
    sw_nvme_close(store);
}

static void as_many_ranges_as_max_extents(void **state)
{
    (void)state;
    const char data[100] = {0};
    struct sw_nvme_options options;
    sw_nvme_options_init(&options);
    for (options.max_extents = 1; options.max_extents <= 3; options.max_extents++) {
        sw_nvme *store = open_one("ranges", 1, BYTES, &options);
        for (int i = 0; i < options.max_extents; i++) {
            test_fine(sw_nvme_write(store, 1000 * i, data, sizeof data));
        }
        assert_int_equal(sw_nvme_write(store, 50000, data, 1), SW_E_NOMEM);
        test_message_has("max_extents", NULL);
        /* these add none */
        test_fine(sw_nvme_write(store, 0, data, sizeof data));
        test_fine(sw_nvme_write(store, 100, data, 1));
        test_fine(sw_nvme_write(store, 50, data, sizeof data));
        test_fine(sw_nvme_write(store, 50000, data, 0));
        sw_nvme_close(store);
        test_fine(sw_nvme_remove(test_paths("ranges", 1), 1));
    }
}

static void nothing_to_move_is_fine(void **state)
{
    (void)state;
    sw_nvme_ticket ticket;
    char byte = 0;
    sw_nvme *store = open_one("empty", 1, 4096, NULL);
    test_fine(sw_nvme_begin_write(store, 4096, NULL, 0, &ticket));
    test_fine(sw_nvme_wait(store, ticket, 0));
    test_fine(sw_nvme_read(store, 7, &byte, 0));
    test_fine(sw_nvme_wait_all(store, 0));
    sw_nvme_close(store);
    sw_nvme_close(NULL);
    sw_nvme_buffer_close(NULL);
}

static void space_is_asked_for_first(void **state)
{
    (void)state;
    struct statvfs fs;
    sw_nvme *store;
    assert_int_equal(statvfs(test_folder(), &fs), 0);
    const int64_t more = (int64_t)(fs.f_bavail * fs.f_frsize) + (INT64_C(1) << 30);
    assert_int_equal(sw_nvme_open(test_paths("large", 2), 2, more, NULL, &store), SW_E_NOMEM);
    test_message_has("large-0", "needed", "free", "missing", NULL);
    assert_int_not_equal(access(test_paths("large", 2)[1], F_OK), 0);
    test_fine(sw_fault_set("preallocate:1:enospc"));
    assert_int_equal(sw_nvme_open(test_paths("large", 2), 2, BYTES, NULL, &store), SW_E_NOMEM);
    test_message_has("no space for", "No space left", NULL);
    test_fine(sw_fault_set(NULL));
    assert_int_not_equal(access(test_paths("large", 2)[0], F_OK), 0);
    struct sw_nvme_info info;
    struct stat file;
    store = open_one("small", 1, BYTES, NULL);
    sw_nvme_get_info(store, &info);
    assert_int_equal(stat(test_paths("small", 1)[0], &file), 0);
    assert_true(file.st_size >= BYTES);
    assert_true(!info.preallocated || file.st_blocks * 512 >= BYTES);
    sw_nvme_close(store);
}

static int64_t size_of(const char *path)
{
    struct stat info;
    return stat(path, &info) == 0 ? (int64_t)info.st_size : -1;
}

/* An existing file is opened only if the caller declares it as his. Otherwise no byte of it
 * changes. */
static void a_file_that_we_did_not_make(void **state)
{
    (void)state;
    struct sw_nvme_options options;
    sw_nvme *store;
    char link[200], byte = 1;
    struct stat info;
    sw_nvme_options_init(&options);
    const char *path = test_paths("theirs", 1)[0], *to = link;
    snprintf(link, sizeof link, "%s.link", path);
    test_fine(sw_file_write_atomic(path, "eight by", 8));
    assert_int_equal(symlink(path, link), 0);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(sw_nvme_open(i ? &to : &path, 1, BYTES, &options, &store), SW_E_IO);
        test_message_has("theirs-0", "exists", NULL);
        assert_int_equal(size_of(path), 8);
    }
    assert_int_equal(unlink(link), 0);
    /* opening a dangling link creates no file */
    assert_int_equal(symlink("/no/such/place", link), 0);
    assert_int_equal(sw_nvme_open(&to, 1, BYTES, &options, &store), SW_E_IO);
    assert_int_equal(unlink(link), 0);
    assert_int_equal(mkfifo(link, 0600), 0);
    options.reopen = options.read_only = true;
    alarm(20); /* opening a FIFO would block for ever */
    assert_int_equal(sw_nvme_open(&to, 1, BYTES, &options, &store), SW_E_IO);
    alarm(0);
    options.reopen = options.read_only = false;
    assert_int_equal(unlink(link), 0);
    assert_int_equal(unlink(path), 0);
    for (int i = 0; i < 2; i++) { /* checksum granules are larger than the first guess */
        options.preallocate = i == 1;
        options.checksum_bytes = 16384;
        test_fine(sw_nvme_open(&path, 1, BYTES, &options, &store));
        assert_int_equal(stat(path, &info), 0);
        assert_int_equal(info.st_mode & 0777, 0600);
        assert_true(info.st_size >= BYTES);
        /* this byte was never written */
        assert_int_equal(sw_nvme_read(store, 0, &byte, 1), SW_E_ARG);
        test_fine(sw_nvme_write(store, BYTES - 1, &byte, 1));
        test_fine(sw_nvme_read(store, BYTES - 1, &byte, 1));
        sw_nvme_close(store);
        test_fine(sw_nvme_remove(&path, 1));
    }
}

static int make_file(const char *path)
{
    const int fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    assert_true(fd >= 0);
    return fd;
}

/* The caller's own files, without names. There is no side file, even with checksums, because it
 * would have no name. */
static void files_that_are_open_already(void **state)
{
    (void)state;
    static unsigned char data[BYTES], back[BYTES];
    struct sw_nvme_options options;
    sw_nvme *store;
    const char *const *paths = test_paths("nameless", 2);
    char side[200];
    pattern(data, sizeof data);
    snprintf(side, sizeof side, "%s.sums", paths[0]);
    sw_nvme_options_init(&options);
    for (int i = 0; i < 2; i++) {
        const int fds[2] = {make_file(paths[0]), make_file(paths[1])};
        options.fds = fds;
        options.checksum_bytes = i * 4096;
        test_fine(sw_file_write_atomic(side, "theirs", 6));
        assert_int_equal(unlink(paths[0]) + unlink(paths[1]), 0);
        test_fine(sw_nvme_open(paths, 2, BYTES, &options, &store));
        test_fine(sw_nvme_write(store, 1, data, BYTES - 1));
        test_fine(sw_nvme_flush(store));
        test_fine(sw_nvme_read(store, 1, back, BYTES - 1));
        assert_memory_equal(back, data, BYTES - 1);
        sw_nvme_close(store);
        assert_int_equal(size_of(paths[0]), -1);
        assert_int_equal(size_of(paths[1]), -1);
        assert_int_equal(size_of(side), 6);
        assert_int_equal(fcntl(fds[0], F_GETFD), -1); /* closed with the store */
    }
    int fd = make_file(paths[0]);
    options.fds = &fd;
    options.checksum_bytes = 0;
    assert_int_equal(write(fd, "held", 4), 4);
    assert_int_equal(sw_nvme_open(paths, 1, BYTES, &options, &store), SW_E_ARG);
    test_message_has("nameless-0", "4 bytes", NULL);
    assert_int_equal(fcntl(fd, F_GETFD), -1);
    assert_int_equal(size_of(paths[0]), 4);
    assert_int_equal(unlink(paths[0]), 0);
    fd = make_file(paths[0]);
    options.reopen = true;
    assert_int_equal(sw_nvme_open(paths, 1, BYTES, &options, &store), SW_E_ARG);
    assert_int_equal(fcntl(fd, F_GETFD), -1);
    enum { TOO_MANY = 257 };
    int fds[TOO_MANY];
    for (int i = 0; i < TOO_MANY; i++) {
        fds[i] = fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 0);
        assert_true(fds[i] >= 0);
    }
    options.fds = fds;
    assert_int_equal(sw_nvme_open(paths, TOO_MANY, BYTES, &options, &store), SW_E_ARG);
    assert_int_equal(fcntl(fds[0], F_GETFD), -1);
    assert_int_equal(fcntl(fds[TOO_MANY - 1], F_GETFD), -1);
}

static void one_user_at_a_time(void **state)
{
    (void)state;
    struct sw_nvme_options options;
    sw_nvme *other;
    char byte = 3;
    sw_nvme_options_init(&options);
    sw_nvme *store = open_one("locked", 1, 4096, NULL);
    test_fine(sw_nvme_write(store, 9, &byte, 1));
    options.reopen = true;
    assert_int_equal(sw_nvme_open(test_paths("locked", 1), 1, 4096, &options, &other), SW_E_IO);
    test_message_has("locked-0", "another store", NULL);
    test_fine(sw_nvme_read(store, 9, &byte, 1));
    assert_int_equal(byte, 3);
    sw_nvme_close(store);
    options.reopen = options.read_only = true;
    store = open_one("locked", 1, 0, &options);
    other = open_one("locked", 1, 0, &options);
    test_fine(sw_nvme_read(other, 9, &byte, 1));
    assert_int_equal(sw_nvme_write(other, 9, &byte, 1), SW_E_ARG);
    test_message_has("for reading", NULL);
    sw_nvme_close(store);
    sw_nvme_close(other);
}

/* A file of odd length from another program, read with O_DIRECT. */
static void a_file_of_others(void **state)
{
    (void)state;
    static unsigned char data[BYTES], back[BYTES + 64];
    struct sw_nvme_options options;
    pattern(data, sizeof data);
    const char *path = test_paths("foreign", 1)[0];
    test_fine(sw_file_write_atomic(path, data, BYTES));
    sw_nvme_options_init(&options);
    options.reopen = options.read_only = true;
    sw_nvme *store = open_one("foreign", 1, 0, &options);
    test_fine(sw_nvme_read(store, 0, back, BYTES));
    assert_memory_equal(data, back, BYTES);
    test_fine(sw_nvme_read(store, BYTES - 1, back, 1));
    assert_int_equal(back[0], data[BYTES - 1]);
    sw_nvme_close(store);
    options.read_only = false;
    store = open_one("foreign", 1, BYTES + 50, &options);
    assert_int_equal(sw_nvme_read(store, BYTES, back, 1), SW_E_ARG);
    test_fine(sw_nvme_write(store, BYTES - 2, data, 50));
    test_fine(sw_nvme_read(store, 0, back, BYTES + 48));
    assert_memory_equal(data, back, BYTES - 2);
    assert_memory_equal(data, back + BYTES - 2, 2);
    sw_nvme_close(store);
}

static void stripes_lie_where_they_should(void **state)
{
    (void)state;
    static unsigned char data[BYTES], one[BYTES];
    struct sw_nvme_options options;
    sw_nvme_options_init(&options);
    options.stripe_bytes = 8192;
    pattern(data, sizeof data);
    sw_nvme *store = open_one("stripe", 3, BYTES, &options);
    test_fine(sw_nvme_write(store, 0, data, BYTES));
    test_fine(sw_nvme_flush(store));
    sw_nvme_close(store);
    for (int64_t at = 0; at < BYTES; at += 8192) {
        const int64_t stripe = at / 8192, len = sw_min_i64(8192, BYTES - at);
        const int fd = open(test_paths("stripe", 3)[stripe % 3], O_RDONLY);
        assert_int_equal(pread(fd, one, (size_t)len, stripe / 3 * 8192), len);
        assert_memory_equal(one, data + at, len);
        close(fd);
    }
    options.reopen = true;
    store = open_one("stripe", 3, BYTES, &options);
    test_fine(sw_nvme_read(store, 0, one, BYTES));
    assert_memory_equal(one, data, BYTES);
    sw_nvme_close(store);
    assert_int_equal(sw_nvme_open(test_paths("stripe", 3), 3, 4 * (int64_t)BYTES, &options, &store),
                     SW_E_FORMAT);
    test_fine(sw_nvme_remove(test_paths("stripe", 3), 3));
    assert_int_not_equal(access(test_paths("stripe", 3)[2], F_OK), 0);
}

/* ---- checksums ---- */

static void flip(const char *path, int64_t at)
{
    unsigned char byte;
    const int fd = open(path, O_RDWR);
    assert_int_equal(pread(fd, &byte, 1, at), 1);
    byte ^= 4;
    assert_int_equal(pwrite(fd, &byte, 1, at), 1);
    assert_int_equal(fsync(fd), 0);
    close(fd);
}

static void a_changed_byte_is_found(void **state)
{
    (void)state;
    static unsigned char data[BYTES];
    struct sw_nvme_options options;
    int64_t bytes;
    sw_nvme_options_init(&options);
    options.checksum_bytes = 4096;
    pattern(data, sizeof data);
    sw_nvme *store = open_one("sums", 1, BYTES, &options);
    test_fine(sw_nvme_write(store, 5, data, BYTES - 10));
    sw_nvme_close(store);
    options.reopen = true;
    store = open_one("sums", 1, BYTES, &options);
    test_fine(sw_nvme_verify(store, &bytes));
    assert_int_equal(bytes, BYTES - 10);
    assert_int_equal(sw_nvme_read(store, 0, data, 6), SW_E_ARG); /* written ranges survive */
    flip(test_paths("sums", 1)[0], 3 * 4096 + 77);
    assert_int_equal(sw_nvme_verify(store, &bytes), SW_E_FORMAT);
    test_message_has("sums-0", "block 3", NULL);
    assert_int_equal(sw_nvme_read(store, 4 * 4096 - 1, data, 1), SW_E_FORMAT);
    test_fine(sw_nvme_read(store, 4 * 4096, data, 1));
    /* A write next to corrupted bytes does not give them a new checksum. */
    assert_int_equal(sw_nvme_write(store, 3 * 4096, data, 1), SW_E_FORMAT);
    test_fine(sw_nvme_write(store, 3 * 4096, data, 4096));
    test_fine(sw_nvme_read(store, 3 * 4096, data, 4096));
    sw_nvme_close(store);
}

static void the_side_file_is_right_or_missing(void **state)
{
    (void)state;
    static unsigned char data[BYTES];
    struct sw_nvme_options options;
    char side[200];
    sw_nvme_options_init(&options);
    options.checksum_bytes = 8192;
    sw_nvme *store = open_one("side", 1, BYTES, &options), *other;
    snprintf(side, sizeof side, "%s.sums", test_paths("side", 1)[0]);
    test_fine(sw_nvme_write(store, 0, data, BYTES));
    test_fine(sw_nvme_flush(store));
    assert_int_equal(access(side, F_OK), 0);
    test_fine(sw_nvme_write(store, 3, data, 1));
    assert_int_not_equal(access(side, F_OK), 0);
    sw_nvme_close(store);
    options.reopen = true;
    options.checksum_bytes = 4096;
    assert_int_equal(sw_nvme_open(test_paths("side", 1), 1, BYTES, &options, &other), SW_E_FORMAT);
    test_message_has(side, "8192", "4096", NULL);
    options.checksum_bytes = 8192;
    flip(side, 60);
    assert_int_equal(sw_nvme_open(test_paths("side", 1), 1, BYTES, &options, &other), SW_E_FORMAT);
    test_message_has(side, "damaged", NULL);
    unlink(side);
    assert_int_equal(sw_nvme_open(test_paths("side", 1), 1, BYTES, &options, &other), SW_E_FORMAT);
    test_message_has(side, "missing", NULL);
}

/* The file keeps its length: what a longer one had after it would count as written. */
static void a_refused_reopening_changes_nothing(void **state)
{
    (void)state;
    enum { LARGER = 1 << 23 };
    static unsigned char data[BYTES];
    struct sw_nvme_options options;
    char path[200], side[210];
    sw_nvme_options_init(&options);
    options.checksum_bytes = 4096;
    sw_nvme *store = open_one("grow", 1, BYTES, &options);
    snprintf(path, sizeof path, "%s", test_paths("grow", 1)[0]);
    snprintf(side, sizeof side, "%s.sums", path);
    test_fine(sw_nvme_write(store, 0, data, BYTES));
    sw_nvme_close(store);
    const int64_t before = size_of(path), side_before = size_of(side);
    options.reopen = true;
    assert_int_equal(sw_nvme_open(test_paths("grow", 1), 1, LARGER, &options, &store), SW_E_FORMAT);
    test_message_has(side, "100001 bytes", "wanted 8388608", NULL);
    assert_int_equal(size_of(path), before);
    assert_int_equal(size_of(side), side_before);
    options.checksum_bytes = 0;
    options.backend = SW_NVME_BACKEND_URING;
    test_fine(sw_fault_set("io_uring:1:eio"));
    assert_int_equal(sw_nvme_open(test_paths("grow", 1), 1, LARGER, &options, &store), SW_E_UNSUP);
    test_fine(sw_fault_set(NULL));
    assert_int_equal(size_of(path), before);
    assert_int_equal(size_of(side), side_before);
    options.backend = SW_NVME_BACKEND_AUTO;
    store = open_one("grow", 1, LARGER, &options);
    assert_int_equal(sw_nvme_read(store, LARGER / 2, data, 1), SW_E_ARG);
    sw_nvme_close(store);
    assert_int_equal(size_of(path), LARGER);
}

static void a_failed_flush_says_so(void **state)
{
    (void)state;
    char byte = 0;
    sw_nvme *store = open_one("flush", 1, 4096, NULL);
    test_fine(sw_nvme_write(store, 0, &byte, 1));
    test_fine(sw_fault_set("fsync:1:eio"));
    assert_int_equal(sw_nvme_flush(store), SW_E_IO);
    test_message_has("flush-0", "Input/output error", NULL);
    test_fine(sw_fault_set(NULL));
    test_fine(sw_nvme_flush(store));
    sw_nvme_close(store);
}

/* ---- memory ---- */

static void buffers_are_aligned_and_work(void **state)
{
    (void)state;
    static const size_t sizes[] = {1, 5000, 17 << 20};
    sw_nvme *store = open_one("buffer", 1, 20 << 20, NULL);
    for (size_t i = 0; i < SW_LEN(sizes); i++) {
        sw_nvme_buffer *buffer, *alone;
        struct sw_nvme_buffer_info info;
        test_fine(sw_nvme_buffer_open(store, sizes[i], &buffer));
        test_fine(sw_nvme_buffer_open(NULL, sizes[i], &alone));
        sw_nvme_buffer_get_info(alone, &info);
        assert_false(info.registered);
        sw_nvme_buffer_get_info(buffer, &info);
        assert_int_equal(info.bytes, sizes[i]);
        assert_int_equal((uintptr_t)info.data % 4096, 0);
        pattern(info.data, info.bytes);
        unsigned char *copy = sw_alloc("test", info.bytes);
        memcpy(copy, info.data, info.bytes);
        test_fine(sw_nvme_write(store, 4096, info.data, info.bytes));
        memset(info.data, 0, info.bytes);
        test_fine(sw_nvme_read(store, 4096, info.data, info.bytes));
        assert_memory_equal(copy, info.data, info.bytes);
        sw_free(copy);
        sw_nvme_buffer_close(buffer);
        sw_nvme_buffer_close(alone);
    }
    sw_nvme_buffer *none;
    assert_int_equal(sw_nvme_buffer_open(store, 0, &none), SW_E_ARG);
    sw_nvme_close(store);
}

static void only_whole_granules_reach_the_disk(void **state)
{
    (void)state;
    struct sw_nvme_counters c;
    struct sw_nvme_info info;
    sw_nvme_buffer *buffer;
    struct sw_nvme_buffer_info memory;
    sw_nvme *store = open_one("counted", 1, 1 << 20, NULL);
    sw_nvme_get_info(store, &info);
    if (!info.direct) {
        sw_nvme_close(store);
        skip();
    }
    const int64_t g = info.granule_bytes;
    test_fine(sw_nvme_buffer_open(store, 1 << 20, &buffer));
    sw_nvme_buffer_get_info(buffer, &memory);
    test_fine(sw_nvme_write(store, 0, memory.data, 1 << 20));
    sw_nvme_get_counters(store, &c);
    assert_int_equal(c.disk_write_bytes, 1 << 20);
    assert_int_equal(c.disk_read_bytes + c.n_bounced + c.n_edges, 0);
    test_fine(sw_nvme_write(store, g - 3, memory.data, (size_t)(2 * g + 6)));
    sw_nvme_get_counters(store, &c);
    assert_int_equal(c.n_edges, 2);
    assert_int_equal(c.disk_read_bytes, 2 * g);
    assert_int_equal(c.disk_write_bytes, (1 << 20) + 4 * g);
    assert_int_equal(c.write_bytes, (1 << 20) + 2 * g + 6);
    sw_nvme_buffer_close(buffer);
    sw_nvme_close(store);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(refused_by_name),
    cmocka_unit_test(requests_that_break_the_contract),
    cmocka_unit_test(as_many_ranges_as_max_extents),
    cmocka_unit_test(nothing_to_move_is_fine),
    cmocka_unit_test(space_is_asked_for_first),
    cmocka_unit_test(a_file_that_we_did_not_make),
    cmocka_unit_test(files_that_are_open_already),
    cmocka_unit_test(one_user_at_a_time),
    cmocka_unit_test(a_file_of_others),
    cmocka_unit_test(stripes_lie_where_they_should),
    cmocka_unit_test(a_changed_byte_is_found),
    cmocka_unit_test(the_side_file_is_right_or_missing),
    cmocka_unit_test(a_refused_reopening_changes_nothing),
    cmocka_unit_test(a_failed_flush_says_so),
    cmocka_unit_test(buffers_are_aligned_and_work),
    cmocka_unit_test(only_whole_granules_reach_the_disk),
};

const struct test_program sw_tests = {TEST_TABLE(tests)};
