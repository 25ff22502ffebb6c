// SPDX-License-Identifier: Apache-2.0
// Random configurations: a model of any family with data of its task, options that determine its
// results, and a way to run it that must not change them. Variant i of a seed is the same on every
// machine.
#pragma once

#include <stdbool.h>
#include <stdint.h>

struct test_draw {
    uint64_t seed, variant, n;
};

struct test_variant {
    char model[1024];               /* config.json */
    char math[1024], own_math[512]; /* members of ds_config.json; of its block "spillway" */
    char flags[640];                /* of train and plan, words with a space between them */
    const char *device;
};

struct test_way {
    char zero[1024], other[256], own[512]; /* members, as above */
    int64_t ranks, resumed_ranks;
    int64_t kill_ms; /* -1: never */
    bool has_device_memory;
};

/* Writes the data, tokenizers and templates that variants name into a folder that is there. */
void test_write_variant_files(const char *folder);
/* Names of files lie in that folder. */
void test_draw_variant(struct test_draw *d, const char *folder, struct test_variant *out);
/* peak: bytes of the device that the plain run takes. */
void test_draw_way(struct test_draw *d, const struct test_variant *v, const char *folder,
                   int64_t peak, struct test_way *out);
