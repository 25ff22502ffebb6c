// SPDX-License-Identifier: Apache-2.0
// Declarations shared by the files of cluster.
#pragma once

#include "cluster/table.h"

/* Reads the file that device.measured names, if it does. Errors are those of sw_cluster_open. */
sw_status sw_cluster_read_measured(struct sw_cluster *cluster);
/* Reads a file. */
sw_status sw_cluster_read(const char *path, struct sw_cluster **out);
