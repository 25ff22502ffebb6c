// SPDX-License-Identifier: Apache-2.0
// Shares of the cores. The rank in slot i of n gets the i-th of n shares. With hwloc, all threads
// of a core stay together. Without it, each CPU of the affinity mask counts as a core.
#include "launch/private.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#if SW_HAVE_HWLOC
#include <hwloc.h>

/* The core's processors that this process may use; empty when there are none. */
static void core_set(hwloc_obj_t core, const cpu_set_t *allowed, cpu_set_t *out)
{
    unsigned i;
    CPU_ZERO(out);
    hwloc_bitmap_foreach_begin(i, core->cpuset)
    {
        if (i < CPU_SETSIZE && CPU_ISSET(i, allowed)) {
            CPU_SET(i, out);
        }
    }
    hwloc_bitmap_foreach_end();
}

/* 0 when the topology cannot be read. */
static int cores_by_topology(const cpu_set_t *allowed, cpu_set_t *out)
{
    hwloc_topology_t topology;
    int n = 0;
    if (hwloc_topology_init(&topology) != 0) {
        return 0;
    }
    if (hwloc_topology_load(topology) == 0) {
        const int all = hwloc_get_nbobjs_by_type(topology, HWLOC_OBJ_CORE);
        for (int i = 0; i < all && n < CPU_SETSIZE; i++) {
            core_set(hwloc_get_obj_by_type(topology, HWLOC_OBJ_CORE, (unsigned)i), allowed,
                     &out[n]);
            n += CPU_COUNT(&out[n]) > 0;
        }
    }
    hwloc_topology_destroy(topology);
    return n;
}
#else
static int cores_by_topology(const cpu_set_t *allowed, cpu_set_t *out)
{
    (void)allowed, (void)out;
    return 0;
}
#endif

static int one_each(const cpu_set_t *allowed, cpu_set_t *out)
{
    int n = 0;
    for (int i = 0; i < CPU_SETSIZE; i++) {
        if (CPU_ISSET(i, allowed)) {
            CPU_ZERO(&out[n]);
            CPU_SET(i, &out[n]);
            n++;
        }
    }
    return n;
}

/* "0-3,8" */
static sw_status read_list(const char *list, const cpu_set_t *allowed, cpu_set_t *out)
{
    CPU_ZERO(out);
    for (const char *at = list;; at++) {
        char *end;
        const long first = strtol(at, &end, 10);
        long last = first;
        const bool good = end > at && *at >= '0' && *at <= '9';
        if (good && *end == '-') {
            at = end + 1;
            last = strtol(at, &end, 10);
        }
        if (!good || end == at || last < first || last >= CPU_SETSIZE || (*end && *end != ',')) {
            return SW_FAIL(SW_E_CONFIG, "--bind-core-list: wanted numbers like 0-3,8, got \"%s\"",
                           list);
        }
        for (long i = first; i <= last; i++) {
            if (!CPU_ISSET((size_t)i, allowed)) {
                return SW_FAIL(SW_E_CONFIG,
                               "--bind-core-list: processor %ld is not available to this process",
                               i);
            }
            CPU_SET((size_t)i, out);
        }
        if (!*end) {
            return SW_OK;
        }
        at = end;
    }
}

sw_status sw_launch_cores(struct sw_arena *arena, const char *list, cpu_set_t **out, int *out_n)
{
    cpu_set_t allowed, listed;
    if (sched_getaffinity(0, sizeof allowed, &allowed) != 0) {
        return SW_FAIL(SW_E_IO, "cannot list the processors of this machine: %s", strerror(errno));
    }
    cpu_set_t *sets = sw_arena_array(arena, CPU_SETSIZE, sizeof *sets);
    SW_TRY_ALLOC(sets, "the cores");
    int n = 0;
    if (list) {
        SW_TRY(read_list(list, &allowed, &listed));
        n = one_each(&listed, sets);
    } else {
        n = cores_by_topology(&allowed, sets);
    }
    if (n == 0) {
        n = one_each(&allowed, sets);
    }
    *out = sets;
    *out_n = n;
    return SW_OK;
}

sw_status sw_launch_share(const cpu_set_t *cores, int n_cores, int i_slot, int n_slots,
                          cpu_set_t *out)
{
    if (n_slots > n_cores) {
        return SW_FAIL(SW_E_CONFIG, "--bind-cores: wanted a core for each of %d ranks, got %d",
                       n_slots, n_cores);
    }
    const int64_t first = (int64_t)n_cores * i_slot / n_slots;
    const int64_t last = (int64_t)n_cores * (i_slot + 1) / n_slots;
    CPU_ZERO(out);
    for (int64_t i = first; i < last; i++) {
        CPU_OR(out, out, &cores[i]);
    }
    return SW_OK;
}
