// SPDX-License-Identifier: Apache-2.0
// The product of everything that may change a bit (the math) and everything that may not (how it is
// run): each combination trains to the losses, norms and weights of the same math run by one rank.
#pragma once

#include "support/test.h"

int matrix_set_up(void **state);
int matrix_tear_down(void **state);

enum { MATRIX_STEPS = 50 };

/* The CPU with its kernels beside itself; the mock, whose memory the host cannot reach, in both
 * modes beside cpu:reference, with checkpoints and generation; or all of these; the emulation of a
 * GPU, in both modes of the mock and without one, beside itself. */
enum matrix_devices { MATRIX_CPU, MATRIX_MOCK, MATRIX_CPU_AND_MOCK, MATRIX_EMU };

/* As few combinations as it takes for each pair (strength 2) or triple (3) of choices to be among
 * them. */
void matrix_cover(int strength, enum matrix_devices devices, int n_steps);
/* All states and parameters on disk at stage 3 and no clipping: updates run within backward, in
 * pieces. */
void matrix_on_disk(enum matrix_devices devices, int n_steps);
/* Part i of n of the whole product, 0 <= i < n. */
void matrix_part(int64_t i, int64_t n);
