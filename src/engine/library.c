// SPDX-License-Identifier: Apache-2.0
// Decides who exchanges among the devices of the ranks: the vendor's library (NCCL, RCCL), or
// transports of the host, which go through its memory. All ranks decide alike. What a library would
// hang in is found here: ranks with other devices, other versions, or one device for several ranks.
#include <stdio.h>
#include <string.h>

#include "engine/private.h"

/* The facts that ranks compare. */
struct standing {
    int32_t has_library, named; /* named: the user chose this device by its number */
    char vendor[16];            /* "cuda", "hip", "emu"; of another device, its name */
    char library[32];           /* with its version; "" = none */
    char device[96];            /* with the host; "" = ranks may share it */
    char address[64];           /* of its device on the bus of its host; "" = not known */
    char why[256];              /* why there is no library */
};

/* True for the emulations of GPUs, on which "auto" does not mean a library. */
static bool is_emulated(const struct sw_engine *e)
{
    return strcmp(e->device->ops->name, "mock") == 0;
}

static bool is_wanted(const struct sw_engine *e)
{
    const int wish = e->config->spillway.comm;
    return wish == SW_COMM_BY_LIBRARY || (wish == SW_COMM_BY_AUTO && !is_emulated(e));
}

static void name_device(const struct sw_engine *e, const struct sw_ccl_facts *facts,
                        struct standing *out)
{
    const char *host = e->machine.hosts ? e->machine.hosts[e->world.rank].name : "";
    if (facts->device[0]) {
        snprintf(out->device, sizeof out->device, "%.60s%s%.32s", host, *host ? ", " : "",
                 facts->device);
    }
}

static struct standing look(struct sw_engine *e)
{
    const char *name = e->options.run.device ? e->options.run.device : e->config->spillway.device;
    const size_t vendor = strcspn(sw_device_kernel_set(e->device), " ");
    const char *number = strchr(name, ':');
    struct sw_ccl_facts facts = {.device = ""};
    struct standing s = {.has_library = e->device->ccl && is_wanted(e),
                         .named = number && number[1] >= '0' && number[1] <= '9'};
    snprintf(s.vendor, sizeof s.vendor, "%.*s", (int)(vendor < 15 ? vendor : 15),
             sw_device_kernel_set(e->device));
    if (!s.has_library) {
        snprintf(s.why, sizeof s.why, "device %.200s has none", name);
    } else if (e->device->ccl->facts(e->device, &facts) < 0) {
        s.has_library = 0;
        snprintf(s.why, sizeof s.why, "%.250s", sw_error_message());
    } else {
        snprintf(s.library, sizeof s.library, "%s", facts.name);
    }
    name_device(e, &facts, &s);
    snprintf(s.address, sizeof s.address, "%s", e->device->address ? e->device->address : "");
    return s;
}

static sw_status refuse(const struct sw_engine *e, const char *why)
{
    return SW_FAIL(SW_E_CONFIG, "spillway.comm \"%s\": %s; \"host\" exchanges through host memory",
                   e->config->spillway.comm == SW_COMM_BY_LIBRARY ? "library" : "auto", why);
}

/* A rank that differs from the first one. */
static sw_status compare(const struct sw_engine *e, const struct standing *all, int r)
{
    char why[640];
    const struct standing *a = &all[0], *b = &all[r];
    if (a->has_library != b->has_library) {
        const int lacks = a->has_library ? r : 0;
        snprintf(why, sizeof why, "rank %d has %s, but rank %d has no library: %s", r - lacks,
                 all[r - lacks].library, lacks, all[lacks].why);
    } else if (strcmp(a->vendor, b->vendor) != 0) {
        snprintf(why, sizeof why, "rank 0 has a device of %s, rank %d one of %s", a->vendor, r,
                 b->vendor);
    } else if (strcmp(a->library, b->library) != 0) {
        snprintf(why, sizeof why, "rank 0 has %s, rank %d has %s; wanted the same version",
                 a->library, r, b->library);
    } else {
        return SW_OK;
    }
    return refuse(e, why);
}

/* Two ranks with the same device, or false. */
static bool find_shared(const struct standing *all, int n, int *a, int *b)
{
    for (*a = 0; *a < n; (*a)++) {
        for (*b = *a + 1; *b < n; (*b)++) {
            if (all[*a].device[0] && strcmp(all[*a].device, all[*b].device) == 0) {
                return true;
            }
        }
    }
    return false;
}

/* Refuses several ranks on one GPU, unless the user chose it by its number. *shared: they are. */
static sw_status check_shared(const struct sw_engine *e, const struct standing *all, bool *shared)
{
    char why[384];
    int a, b;
    *shared = find_shared(all, e->world.size, &a, &b);
    if (!*shared || (e->config->spillway.comm == SW_COMM_BY_AUTO && all[a].named && all[b].named)) {
        return SW_OK;
    }
    snprintf(why, sizeof why, "ranks %d and %d share a GPU (%s)%s%s, wanted one for each rank", a,
             b, all[a].device, all[a].library[0] ? " for " : "", all[a].library);
    return refuse(e, why);
}

static sw_status decide(struct sw_engine *e, const struct standing *all)
{
    bool any = false, shared;
    for (int r = 0; r < e->world.size; r++) {
        any = any || all[r].has_library;
    }
    if (!any && e->config->spillway.comm == SW_COMM_BY_LIBRARY) {
        return refuse(e, all[0].why);
    }
    for (int r = 1; r < e->world.size && any; r++) {
        SW_TRY(compare(e, all, r));
    }
    SW_TRY(check_shared(e, all, &shared));
    if (!any && !shared && e->world.rank == 0 && e->device->ccl && is_wanted(e)) {
        sw_log(SW_LOG_WARN, "ranks exchange through host memory: %s", all[0].why);
    }
    e->agreed.uses_library = any && !shared;
    return SW_OK;
}

/* Leaves this rank its part of the memory of a device that other ranks use, too. Ranks may see only
 * some of their machine's GPUs each, so that only the addresses tell. */
static void share_memory(struct sw_engine *e, const struct standing *all)
{
    const struct engine_host *hosts = e->machine.hosts;
    const int mine = e->world.rank;
    int n = 0, first = mine;
    for (int r = 0; r < e->world.size; r++) {
        if (r == mine || (all[r].address[0] && strcmp(all[r].address, all[mine].address) == 0 &&
                          (!hosts || strcmp(hosts[r].name, hosts[mine].name) == 0))) {
            first = n++ == 0 ? r : first;
        }
    }
    if (n > 1 && first == mine) {
        sw_log(SW_LOG_WARN, "%d ranks share a GPU (%s, %s), and each has its part of the memory", n,
               e->device->what, e->device->address);
    }
    sw_device_share(e->device, n);
}

sw_status sw_engine_choose_library(struct sw_engine *e)
{
    if (e->world.size == 1) {
        return SW_OK;
    }
    const struct standing mine = look(e);
    if (e->options.plan.only) { /* the other ranks are not asked */
        const bool is_there = e->device->caps & SW_DEVICE_SIMULATED
                                  ? e->device->ccl_bytes > 0 && is_wanted(e)
                                  : mine.has_library != 0;
        e->agreed.uses_library = is_there;
        return SW_OK;
    }
    struct standing *all = sw_alloc_zero("engine", (size_t)e->world.size, sizeof *all);
    SW_TRY_ALLOC(all, "the libraries of ranks");
    sw_status st = sw_comm_all_gather(e->options.run.comm, &mine, all, sizeof mine,
                                      "the devices of all ranks");
    st = st < 0 ? st : decide(e, all);
    if (st >= 0) {
        share_memory(e, all);
    }
    sw_free(all);
    if (st >= 0 && e->config->spillway.library_sums && !e->agreed.uses_library) {
        return SW_FAIL(SW_E_CONFIG, "spillway.library_sums: no library exchanges here: %s",
                       mine.why[0] ? mine.why : "spillway.comm \"host\"");
    }
    return st;
}

/* A communicator for each group that exchanges, and for pairs of ranks along pipe. */
static size_t n_communicators(const struct sw_engine *e)
{
    enum { OF_PIPE = 8 }; /* to and from two neighbours, forward and backward */
    size_t n = 2;         /* the world, and the data axis */
    for (int a = 0; a < SW_AXIS_COUNT; a++) {
        const bool is_there = sw_mesh_size(&e->mesh, 1U << a) > 1;
        n += !is_there ? 0 : a == SW_AXIS_PIPE ? OF_PIPE : 1;
    }
    return n;
}

size_t sw_engine_library_bytes(const struct sw_engine *e)
{
    return e->agreed.uses_library ? n_communicators(e) * e->device->ccl_bytes : 0;
}
