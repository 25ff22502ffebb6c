// SPDX-License-Identifier: Apache-2.0
// Declarations shared by the files of cluster.
#pragma once

#include "cluster/table.h"

/* Reads a file. */
sw_status sw_cluster_read(const char *path, struct sw_cluster **out);
