// SPDX-License-Identifier: Apache-2.0
// The order of an epoch: a permutation computed one number at a time, without a list.
#pragma once

#include <stdint.h>

/* The image of i (0 .. n-1) in the permutation of n numbers for (seed, epoch). */
int64_t sw_shuffle(uint64_t seed, int64_t epoch, int64_t n, int64_t i);
