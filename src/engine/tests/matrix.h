// SPDX-License-Identifier: Apache-2.0
// All combinations of axes that change the math and axes that do not (how it is run). Each
// combination must train to the losses, norms and weights of the same math on one rank.
#pragma once

#include "support/test.h"

int matrix_set_up(void **state);

enum { MATRIX_STEPS = 50 };

/* Devices of a matrix, each compared with its reference. MATRIX_CPU: the CPU, compared with itself.
 * MATRIX_MOCK: both mock modes, with checkpoints and generation, compared with cpu:reference.
 * MATRIX_EMU: an emulated GPU, in both mock modes and plain, compared with itself. */
enum matrix_devices { MATRIX_CPU, MATRIX_MOCK, MATRIX_CPU_AND_MOCK, MATRIX_EMU };

/* Covers each pair (strength 2) or triple (3) of choices with as few combinations as possible. */
void matrix_cover(int strength, enum matrix_devices devices, int n_steps);
/* Runs all states and parameters on disk, at stage 3, without clipping: updates run within
 * backward, in pieces. */
void matrix_on_disk(enum matrix_devices devices, int n_steps);
/* Runs each family that matrix_cover leaves out, at stage 3 with tiles and everything offloaded. */
void matrix_of_families(enum matrix_devices devices, int n_steps);
/* Runs pipe 2, data 2 and tensor 2 next to tensor 2 alone, on mock or emulated devices. */
void matrix_on_mesh(enum matrix_devices devices, int n_steps);
/* Runs families with experts: each stage, placement, schedule and precision, with 1, 2 and 3
 * ranks, some along the expert axis. n_rows: 18 = all, or the first one of each family and some
 * more. */
void matrix_of_experts(enum matrix_devices devices, int n_rows, int n_steps);
/* Runs ZeRO stages on emulated GPUs whose library exchanges among the ranks: each stage with
 * 2 .. n_ranks ranks, and a pipeline of two stages. */
void matrix_by_library(int n_ranks, int n_steps);
/* Runs the first n_rows of 12 trainings on emulated GPUs that capture their launches, next to one
 * rank that does not. */
void matrix_captured(int n_rows, int n_steps);
/* Skips the test where the build has no emulated GPU. */
void matrix_skip_without_emulation(void);
/* Runs part i of n of the whole product, 0 <= i < n. */
void matrix_part(int64_t i, int64_t n);
