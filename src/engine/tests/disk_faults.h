// SPDX-License-Identifier: Apache-2.0
// A small training with everything on disk, of which one transfer fails.
#pragma once

#include "support/test.h"

/* Transfers 1, 1 + stride, 1 + 2 stride .. of each rank are met by each kind of fault. device: by
 * name, NULL = the CPU, whose bits are those of a run without faults. */
void disk_faults_meet(int ranks, const char *device, int stride);

int disk_faults_set_up(void **state);
int disk_faults_tear_down(void **state);
