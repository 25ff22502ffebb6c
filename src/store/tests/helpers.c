// SPDX-License-Identifier: Apache-2.0
// Helpers for the room's tests; see helpers.h.
#include "store/tests/helpers.h"

#include <unistd.h>

int64_t test_below(struct test_random *random, int64_t n)
{
    return (int64_t)(sw_philox_u64(random->seed, 1, random->i++) % (uint64_t)n);
}

void test_variant_options(const struct test_variant *variant, struct sw_nvme_options *out)
{
    sw_nvme_options_init(out);
    out->backend = variant->backend;
    out->direct = variant->direct;
    out->block_bytes = variant->block_bytes;
    out->checksum_bytes = variant->checksum_bytes;
    out->intra_op_parallelism = variant->lanes;
    out->queue_depth = variant->queue_depth;
    out->single_submit = variant->single_submit;
    out->overlap_events = !variant->batches;
    out->stripe_bytes = 16384;
    out->bounce_bytes = 65536;
    out->max_requests = 16;
    out->deadline_s = 100;
}

const char *const *test_paths(const char *name, int n)
{
    static char paths[8][160];
    static const char *pointers[8];
    for (int i = 0; i < n; i++) {
        snprintf(paths[i], sizeof paths[i], "%s/%s-%d", test_folder(), name, i);
        pointers[i] = paths[i];
    }
    return pointers;
}

sw_status test_open(const char *name, int n, int64_t bytes, const struct sw_nvme_options *options,
                    sw_nvme **out)
{
    if (!options || !options->reopen) {
        test_fine(sw_nvme_remove(test_paths(name, n), n));
    }
    return sw_nvme_open(test_paths(name, n), n, bytes, options, out);
}

int test_backends(enum sw_nvme_backend out[2])
{
    struct sw_nvme_options options;
    sw_nvme *store;
    sw_nvme_options_init(&options);
    options.backend = SW_NVME_BACKEND_URING;
    out[0] = SW_NVME_BACKEND_THREADS;
    out[1] = SW_NVME_BACKEND_URING;
    if (test_open("probe", 1, 4096, &options, &store) != SW_OK) {
        print_message("without io_uring: %s\n", sw_error_message());
        return 1;
    }
    sw_nvme_close(store);
    return 2;
}

void test_fine(sw_status st)
{
    if (st != SW_OK) {
        print_error("%s\n", sw_error_message());
    }
    assert_int_equal(st, SW_OK);
}

void test_message_has(const char *first, ...)
{
    va_list words;
    va_start(words, first);
    for (const char *word = first; word; word = va_arg(words, const char *)) {
        if (!strstr(sw_error_message(), word)) {
            print_error("\"%s\" has no \"%s\"\n", sw_error_message(), word);
            fail();
        }
    }
    va_end(words);
}
