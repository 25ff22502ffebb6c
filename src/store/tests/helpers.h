// SPDX-License-Identifier: Apache-2.0
// Helpers for the room's tests: a temporary folder, small random numbers, and stores in all
// variants.
#pragma once

#include "store/store.h"
#include "support/scratch.h"
#include "support/test.h"

struct test_random {
    uint64_t seed, i;
};
/* A random number in 0 .. n-1. */
int64_t test_below(struct test_random *random, int64_t n);

/* One variant of opening a store. */
struct test_variant {
    enum sw_nvme_backend backend;
    enum sw_nvme_direct direct;
    int n_paths;
    int64_t block_bytes, checksum_bytes, lanes, queue_depth;
    bool single_submit, batches;
};
void test_variant_options(const struct test_variant *variant, struct sw_nvme_options *out);
/* Returns the paths FOLDER/NAME-0 ..; they are valid until the next call. */
const char *const *test_paths(const char *name, int n);
/* Calls sw_nvme_open on these paths. Removes files of an earlier test first, unless the store is
 * reopened. */
sw_status test_open(const char *name, int n, int64_t bytes, const struct sw_nvme_options *options,
                    sw_nvme **out);
/* Lists the backends for tests that run over both. io_uring is included only if this machine
 * supports it. */
int test_backends(enum sw_nvme_backend out[2]);
/* Fails the test with the error message unless st is SW_OK. */
void test_fine(sw_status st);
/* Asserts that the last error message contains all of these words (NULL ends them). */
void test_message_has(const char *first, ...);
