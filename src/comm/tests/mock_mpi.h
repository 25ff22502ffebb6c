// SPDX-License-Identifier: Apache-2.0
// A module of MPI for tests, in place of a library: its ranks are threads of one process.
#pragma once

#include "comm/mpi/mpi.h"

/* Makes the calling thread a rank. The module's calls are for that thread only. */
const struct sw_mpi_module *test_mpi_enter(int rank, int size);
/* The rank makes no more calls. With the last one, messages that nobody has received are freed. */
void test_mpi_leave(void);
