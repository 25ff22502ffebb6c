// SPDX-License-Identifier: Apache-2.0
// A file in memory without reading it: pages come when they are touched and cost no memory of ours.
#pragma once

#include "base/base.h"

/* All zero: nothing mapped. */
struct sw_map {
    const char *data; /* [len] */
    size_t len;
};

/* A regular file, also an empty one. */
sw_status sw_map_open(const char *path, struct sw_map *out);
void sw_map_close(struct sw_map *map);
