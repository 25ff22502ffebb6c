// SPDX-License-Identifier: Apache-2.0
// Runs of small models on ranks of the tensor axis, as threads, and comparisons of two runs.
#pragma once

#include "engine/private.h"

enum {
    SLICED_BATCH = 2,
    SLICED_TOKENS = 8,
    SLICED_WORDS = 19, /* no number of ranks divides it */
    SLICED_MICRO_BATCHES = 3,
    SLICED_STEPS = 6,
    SLICED_ELEMS = 1 << 20
};

/* A run and its results. */
struct sliced {
    const char *model;
    int data, tensor, stage;
    bool idle;                    /* trains no step */
    const char *optimizer, *more; /* NULL: AdamW; further keys of the block "spillway" */
    const char *params;           /* NULL, or: further keys of the optimizer */
    const char *top, *zero;       /* further keys, and those of zero_optimization */
    const char *load, *save;
    /* NULL, or: changes the options; runs on each rank after the training */
    void (*ask)(struct sw_engine_options *options);
    sw_status (*after)(struct sliced *job, sw_engine *e);
    int pipe; /* stages; 0 counts as 1 */
    /* results */
    double losses[SLICED_STEPS], norms[SLICED_STEPS];
    float *weights;  /* [SLICED_ELEMS] of all ranks together */
    int64_t n_cut;   /* elements that rank 0 lacks */
    int32_t n_tiled; /* parameters that it uses in tiles */
};

/* Configurations of models in the test's folder. */
struct sliced_models {
    char odd[96];    /* gpt2: heads and inner width divide by 4 ranks, the vocabulary does not */
    char shared[96]; /* qwen3: 4 ranks share 2 key heads */
    char packed[96]; /* phi3: the same, and q, k and v are packed */
    char groups[96]; /* falcon: the same, and each key head is packed with its queries */
    char single[96]; /* falcon: all ranks share the key head that is packed with the queries */
};
extern struct sliced_models sliced_models;
int sliced_set_up(void **state);

/* The weights are for sliced_clear. */
sw_status sliced_try(struct sliced *job);
/* The same; fails the test if the run fails. */
void sliced_run(struct sliced *job);
void sliced_clear(struct sliced *job);
/* Equal losses, norms and weights, bit for bit. */
void sliced_assert_same(const struct sliced *a, const struct sliced *b);
/* Losses of all steps within a relative tolerance, and norms within ten times as much. */
void sliced_assert_near(const struct sliced *a, const struct sliced *b, double tolerance);
