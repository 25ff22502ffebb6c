// SPDX-License-Identifier: Apache-2.0
// What the tests of the room share: a folder of their own, small random numbers, stores in all
// variants.
#pragma once

#include "store/store.h"
#include "support/test.h"

/* A temporary folder; test_clean removes it and what is in it. */
extern char test_folder[64];
int test_make_folder(void **state);
int test_clean(void **state);

struct test_random {
    uint64_t seed, i;
};
/* 0 .. n-1 */
int64_t test_below(struct test_random *random, int64_t n);

/* One way to open a store of the tests. */
struct test_variant {
    enum sw_nvme_backend backend;
    enum sw_nvme_direct direct;
    int n_paths;
    int64_t block_bytes, checksum_bytes, lanes, queue_depth;
    bool single_submit, batches;
};
void test_variant_options(const struct test_variant *variant, struct sw_nvme_options *out);
/* Paths FOLDER/NAME-0 .. ; all of `n` live until the next call. */
const char *const *test_paths(const char *name, int n);
/* sw_nvme_open on these paths; what an earlier test left there is removed, but to be reopened. */
sw_status test_open(const char *name, int n, int64_t bytes, const struct sw_nvme_options *options,
                    sw_nvme **out);
/* Both, for tests that run over both: io_uring only where this machine has it. */
int test_backends(enum sw_nvme_backend out[2]);
/* SW_OK, or fails with the message. */
void test_fine(sw_status st);
/* The message of the last error has all of these words (NULL ends them). */
void test_message_has(const char *first, ...);
