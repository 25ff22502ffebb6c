// SPDX-License-Identifier: Apache-2.0
// The order of an epoch without a list: a permutation computed one number at a time.
#pragma once

#include <stdint.h>

/* Where i (0 .. n-1) goes in the permutation of n numbers that belongs to (seed, epoch). */
int64_t sw_shuffle(uint64_t seed, int64_t epoch, int64_t n, int64_t i);
