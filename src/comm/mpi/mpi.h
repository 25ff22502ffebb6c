// SPDX-License-Identifier: Apache-2.0
// Ranks that are processes of an MPI job. Private to this folder.
#pragma once

#include "comm/comm.h"
#include "comm/mpi/module/module.h"

/*
 * sw_mpi_open - starts MPI through its module.
 *
 * handle       the module's (dlopen); closed with the transport, unless that failed
 *
 * SW_E_PEER    MPI does not start
 */
sw_status sw_mpi_open(const struct sw_mpi_module *module, double deadline_s,
                      struct sw_transport *out);
