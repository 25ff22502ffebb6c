// SPDX-License-Identifier: Apache-2.0
// Chooses the device that an engine computes on, this rank's place among the ranks of its machine,
// and the memory that a plan may use.
#include <stdio.h>
#include <string.h>

#include "engine/private.h"

/* This rank's index among the ranks of its machine, and those of them that may use the same
 * processors. A plan needs one device, and its ranks may run anywhere. */
static struct sw_device_place find_place(const struct sw_engine *e, int *out_alike)
{
    struct sw_device_place place = {
        .rank = 0, .n_ranks = e->machine.hosts ? 0 : 1, .n_world = e->world.size};
    *out_alike = 0;
    for (int r = 0; e->machine.hosts && r < e->world.size; r++) {
        const struct engine_host *host = &e->machine.hosts[r],
                                 *mine = &e->machine.hosts[e->world.rank];
        if (strcmp(host->name, mine->name) == 0) {
            place.rank += r < e->world.rank;
            place.n_ranks++;
            *out_alike += host->cpus == mine->cpus;
        }
    }
    return place;
}

/* A rank shares the processors of its host with those that are bound to the same ones. */
int sw_engine_share_threads(const struct sw_engine *e)
{
    const int64_t threads = e->config->spillway.threads;
    int n_alike;
    const struct sw_device_place place = find_place(e, &n_alike);
    return threads > 0        ? (int)threads
           : e->machine.hosts ? sw_cpu_share(n_alike, place.n_ranks)
                              : sw_cpu_share(e->world.size, e->world.size);
}

/* A simulated device is for plans. What is to lie on a disk needs a cluster with disks. */
static sw_status check_simulated(const struct sw_engine *e, const struct sw_device *dev)
{
    const struct sw_zero_config *zero = &e->config->zero;
    const struct {
        const char *key;
        int device;
    } users[] = {
        {"zero_optimization.offload_param.device", (int)zero->offload_param.device},
        {"zero_optimization.offload_optimizer.device", (int)zero->offload_optimizer.device}};
    char why[320];
    if (!(dev->caps & SW_DEVICE_SIMULATED)) {
        return SW_OK;
    }
    if (!e->options.plan.only) {
        return SW_FAIL(SW_E_UNSUP, "device %s is simulated and computes nothing; it is for plans",
                       dev->what);
    }
    for (size_t i = 0; i < SW_LEN(users) && dev->disk_bytes == 0; i++) {
        if (users[i].device == SW_OFFLOAD_NVME) {
            snprintf(why, sizeof why,
                     "wanted \"none\" or \"cpu\", got \"nvme\", and there are no disks on %s",
                     dev->what);
            return sw_config_refuse_key(e->config, users[i].key, why);
        }
    }
    return SW_OK;
}

sw_status sw_engine_open_device(const struct sw_engine *e, struct sw_device **out)
{
    struct sw_device *dev = NULL;
    const struct sw_spillway_config *c = &e->config->spillway;
    const char *name = e->options.run.device ? e->options.run.device : c->device;
    int n_alike;
    const struct sw_device_place place = find_place(e, &n_alike);
    if (!e->options.run.device && c->kernels != SW_KERNELS_FAST) {
        const bool reference = c->kernels == SW_KERNELS_REFERENCE;
        if (strcmp(name, "auto") != 0 && strcmp(name, "cpu") != 0) {
            return SW_FAIL(SW_E_CONFIG,
                           "spillway.kernels: \"%s\" needs the CPU, but spillway.device is \"%s\"",
                           reference ? "reference" : "onednn", name);
        }
        name = reference ? "cpu:reference" : "cpu:onednn";
    }
    SW_TRY(sw_device_open_at(name, e->machine.threads, &place, &dev));
    const sw_status st = check_simulated(e, dev);
    if (st < 0) {
        sw_device_close(dev);
        return st;
    }
    *out = dev;
    return SW_OK;
}

sw_status sw_engine_open_host(const struct sw_engine *e, struct sw_device **out)
{
    const struct sw_config *c = e->config;
    const bool wanted = e->optimizer.trains && !(e->device->caps & SW_DEVICE_HOST_VISIBLE) &&
                        c->zero.offload_optimizer.device == SW_OFFLOAD_CPU &&
                        c->spillway.update != SW_PLACE_DEVICE;
    *out = NULL;
    return wanted ? sw_device_open("cpu", e->machine.threads, out) : SW_OK;
}

bool sw_engine_packs_rows(const struct sw_engine *e)
{
    const unsigned both = SW_DEVICE_HOST_VISIBLE | SW_DEVICE_COMM_REACHES;
    return (e->device->caps & both) == both;
}

/* A key may ask for less than a device has. It stands in the place of a cluster's size, also with
 * more than that, or with null: nothing is allocated. */
static size_t budget_of(const struct sw_engine *e, const char *key, int64_t bytes, size_t there)
{
    const size_t asked = (size_t)bytes;
    if (e->device->caps & SW_DEVICE_SIMULATED) {
        return sw_config_origin_of(e->config, key) == SW_CONFIG_DEFAULT ? there : asked;
    }
    return asked == 0 || (there > 0 && there < asked) ? there : asked;
}

void sw_engine_budgets(const struct sw_engine *e, size_t out[SW_TIER_COUNT])
{
    const struct sw_spillway_config *c = &e->config->spillway;
    const struct sw_device *dev = e->device;
    out[SW_TIER_DEVICE] =
        budget_of(e, "spillway.device_memory", c->device_memory_bytes, dev->memory_bytes);
    const size_t taken = sw_engine_library_bytes(e);
    if (out[SW_TIER_DEVICE] > 0 && taken > 0) { /* 0 = unlimited */
        out[SW_TIER_DEVICE] = out[SW_TIER_DEVICE] > taken ? out[SW_TIER_DEVICE] - taken : 1;
    }
    out[SW_TIER_HOST] = budget_of(e, "spillway.host_memory", c->host_memory_bytes, dev->host_bytes);
    out[SW_TIER_DISK] = budget_of(e, "spillway.nvme_space", c->nvme_space_bytes, dev->disk_bytes);
}
