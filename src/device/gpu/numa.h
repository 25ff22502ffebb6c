// SPDX-License-Identifier: Apache-2.0
// numa - the NUMA node of a GPU, and host memory on it.
#pragma once

#include <stdbool.h>
#include <stddef.h>

enum { GPU_NODE_UNKNOWN = -1, GPU_MOST_NODES = 1024 };

/* The NUMA node (the system's number) that is next to the device at a PCI address ("0000:21:00.0"),
 * by hwloc. GPU_NODE_UNKNOWN: the machine has one node (`why` is empty), or `why` says what is
 * missing. */
int sw_gpu_node_of(const char *bus, char *why, size_t cap);

/* The memory policy of a thread. */
struct gpu_node_policy {
    int mode;
    unsigned long nodes[GPU_MOST_NODES / (8 * sizeof(unsigned long))];
    bool is_set; /* something is to be put back */
};

/* From here on, the thread's new memory comes from the node as long as that has some. False: the
 * system does not allow it, and nothing has changed; errno says why. */
bool sw_gpu_prefer_node(int node, struct gpu_node_policy *before);
void sw_gpu_put_back_policy(const struct gpu_node_policy *before);
