// SPDX-License-Identifier: Apache-2.0
// Host memory next to a GPU. The vendors' calls that pin memory take it from where the calling
// thread's policy says. Their pages cannot move later, so the policy is changed around the call.
#include "device/gpu/numa.h"

#include <errno.h>
#include <linux/mempolicy.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#if SW_HAVE_HWLOC
#include <hwloc.h>

/* The topology, with PCI devices if they are asked for. Other kinds of devices would load plugins
 * that start the vendors' run times. */
static bool read_topology(bool with_pci, hwloc_topology_t *out)
{
    if (hwloc_topology_init(out) != 0) {
        return false;
    }
    if ((!with_pci || hwloc_topology_set_type_filter(*out, HWLOC_OBJ_PCI_DEVICE,
                                                     HWLOC_TYPE_FILTER_KEEP_IMPORTANT) == 0) &&
        hwloc_topology_load(*out) == 0) {
        return true;
    }
    hwloc_topology_destroy(*out);
    return false;
}

static int node_in(hwloc_topology_t topology, const char *bus, char *why, size_t cap)
{
    const hwloc_obj_t device = hwloc_get_pcidev_by_busidstring(topology, bus);
    const hwloc_obj_t near = device ? hwloc_get_non_io_ancestor_obj(topology, device) : NULL;
    if (!near || !near->nodeset || hwloc_bitmap_weight(near->nodeset) != 1) {
        snprintf(why, cap, "the topology of this machine does not tell the NUMA node of %s", bus);
        return GPU_NODE_UNKNOWN;
    }
    return hwloc_bitmap_first(near->nodeset);
}

int sw_gpu_node_of(const char *bus, char *why, size_t cap)
{
    hwloc_topology_t topology;
    int node = GPU_NODE_UNKNOWN;
    snprintf(why, cap, "hwloc cannot read the topology of this machine");
    /* PCI devices only where there is a choice: libpciaccess never frees their names */
    if (!read_topology(false, &topology)) {
        return node;
    }
    const bool has_nodes = hwloc_get_nbobjs_by_type(topology, HWLOC_OBJ_NUMANODE) > 1;
    hwloc_topology_destroy(topology);
    if (!has_nodes) {
        *why = '\0';
        return node;
    }
    if (read_topology(true, &topology)) {
        node = node_in(topology, bus, why, cap);
        hwloc_topology_destroy(topology);
    }
    return node;
}
#else
int sw_gpu_node_of(const char *bus, char *why, size_t cap)
{
    (void)bus;
    snprintf(why, cap, "this build has no hwloc (apt-get install libhwloc-dev)");
    return GPU_NODE_UNKNOWN;
}
#endif

bool sw_gpu_prefer_node(int node, struct gpu_node_policy *before)
{
    enum { BITS = 8 * sizeof(unsigned long) };
    unsigned long nodes[GPU_MOST_NODES / BITS] = {0};
    before->is_set = false;
    if (node < 0 || node >= GPU_MOST_NODES) {
        errno = EINVAL;
        return false;
    }
    nodes[node / BITS] = 1UL << node % BITS;
    if (syscall(SYS_get_mempolicy, &before->mode, before->nodes, GPU_MOST_NODES, NULL, 0) != 0 ||
        syscall(SYS_set_mempolicy, MPOL_PREFERRED, nodes, GPU_MOST_NODES) != 0) {
        return false;
    }
    before->is_set = true;
    return true;
}

void sw_gpu_put_back_policy(const struct gpu_node_policy *before)
{
    if (before->is_set) {
        const bool has_nodes = before->mode != MPOL_DEFAULT && before->mode != MPOL_LOCAL;
        (void)!syscall(SYS_set_mempolicy, before->mode, has_nodes ? before->nodes : NULL,
                       has_nodes ? GPU_MOST_NODES : 0);
    }
}
