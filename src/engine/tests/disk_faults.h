// SPDX-License-Identifier: Apache-2.0
// A small training run with everything on disk, in which one transfer fails.
#pragma once

#include "support/test.h"

/* Applies each kind of fault to transfers 1, 1 + stride, 1 + 2 stride .. of each rank. device: by
 * name; NULL = the CPU, whose bits are the reference. */
void disk_faults_meet(int ranks, const char *device, int stride);

int disk_faults_set_up(void **state);
