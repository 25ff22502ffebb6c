// SPDX-License-Identifier: Apache-2.0
// A device of a cluster that is not there. It answers a planner by the code with which the GPU back
// end decides, without module and driver, and has the cluster's memory. It never launches: nothing
// can be allocated, and no stream opened. The CPU's decisions depend on its instruction set, so a
// cluster of CPUs is planned by the CPU itself, on a machine that has that set.
#include <stdio.h>
#include <string.h>

#include "cluster/cluster.h"
#include "device/gpu/blas.h"
#include "device/gpu/open.h"

static struct gpu_device *gpu_of(struct sw_device *dev)
{
    return SW_CONTAINER(dev, struct gpu_device, super);
}

static sw_status refuse(struct sw_device *super)
{
    return SW_FAIL(SW_E_UNSUP, "device %s is simulated and computes nothing; it is for plans",
                   gpu_of(super)->what);
}

static sw_status mem_alloc(struct sw_device *super, enum sw_mem kind, size_t bytes, void **out)
{
    (void)kind, (void)bytes, (void)out;
    return refuse(super);
}

static sw_status stream_open(struct sw_device *super, struct sw_stream_queue **out)
{
    (void)out;
    return refuse(super);
}

static sw_status timeline_open(struct sw_device *super, struct sw_timeline **out)
{
    (void)out;
    return refuse(super);
}

static sw_status prepare(struct sw_device *super, const struct sw_op_desc *desc,
                         struct sw_kernel **out)
{
    (void)desc, (void)out;
    return refuse(super);
}

static void query(struct sw_device *super, const struct sw_op_desc *desc,
                  struct sw_kernel_info *out)
{
    sw_gpu_query(gpu_of(super), desc, out);
}

static void close_device(struct sw_device *super)
{
    struct gpu_device *dev = gpu_of(super);
    sw_gpu_products_close(dev->products);
    sw_free(dev);
}

/* The other slots need memory, a stream, a timeline or a kernel, and there are none. */
static const struct sw_device_ops sim_ops = {.name = "sim",
                                             .close = close_device,
                                             .mem_alloc = mem_alloc,
                                             .stream_open = stream_open,
                                             .timeline_open = timeline_open,
                                             .query = query,
                                             .prepare = prepare};

/* Decisions read a module's name only. */
static const struct sw_gpu_module modules[] = {{.backend = "cuda"}, {.backend = "hip"}};

/* AMD's gfx9 has 64 lanes a warp; later ones and NVIDIA's have 32. */
static int warp_of(const struct sw_cluster *c)
{
    return strcmp(c->device.backend, "hip") == 0 && strncmp(c->device.arch, "gfx9", 4) == 0 ? 64
                                                                                            : 32;
}

/* Ranks fill one node after the other, and share its host. */
static void find_memory(const struct sw_cluster *c, const struct sw_device_place *place,
                        struct sw_device *dev)
{
    const int64_t world = sw_max_i64(1, place->n_world);
    const double ranks = (double)sw_min_i64(world, (int64_t)c->node.devices.value);
    dev->host_bytes = (size_t)(c->host.memory.value / ranks);
    dev->disk_bytes = (size_t)(sw_cluster_disk_space(c) / ranks);
}

static void describe(const struct sw_cluster *c, struct gpu_device *dev)
{
    char text[32];
    snprintf(dev->facts.name, sizeof dev->facts.name, "%s", c->device.name);
    snprintf(dev->facts.arch, sizeof dev->facts.arch, "%s", c->device.arch);
    dev->facts.n_processors = (int)c->device.processors.value;
    dev->facts.warp = warp_of(c);
    snprintf(dev->what, sizeof dev->what, "sim:%s, %s (%s), %s", c->name, c->device.name,
             c->device.arch, sw_format_bytes(text, sizeof text, c->device.memory.value));
}

static sw_status open_sim(const struct sw_cluster *c, const struct sw_device_place *place,
                          struct sw_device **out)
{
    struct gpu_device *dev = sw_alloc_zero("device", 1, sizeof *dev);
    SW_TRY_ALLOC(dev, "a device");
    dev->module = &modules[strcmp(c->device.backend, "hip") == 0];
    dev->super.ops = &sim_ops;
    dev->super.caps = SW_DEVICE_SIMULATED;
    dev->super.staging_bytes = GPU_STAGING_BYTES;
    dev->super.kernel_set = dev->kernel_set;
    dev->super.what = dev->what;
    describe(c, dev);
    dev->super.ccl_bytes = sw_gpu_ccl_bytes(dev);
    dev->super.memory_bytes = sw_gpu_usable((size_t)c->device.memory.value);
    find_memory(c, place, &dev->super);
    const sw_status st = sw_gpu_products_assume(dev, &dev->products);
    if (st < 0) {
        sw_free(dev);
        return st;
    }
    snprintf(dev->kernel_set, sizeof dev->kernel_set, "sim %s %s processors:%d products:%s",
             dev->module->backend, dev->facts.arch, dev->facts.n_processors,
             sw_gpu_products_name(dev->products));
    *out = &dev->super;
    return SW_OK;
}

static sw_status open_cpu(const struct sw_cluster *c, const struct sw_device_place *place,
                          struct sw_device **out)
{
    const struct sw_cpu_options options = {.n_threads = 1, .max_isa = c->device.arch};
    char set[32];
    struct sw_device *dev = NULL;
    SW_TRY(sw_device_open_cpu(&options, &dev));
    const int n = snprintf(set, sizeof set, "cpu %s ", c->device.arch);
    if (strncmp(sw_device_kernel_set(dev), set, (size_t)n) != 0) {
        const sw_status st = SW_FAIL(SW_E_UNSUP,
                                     "device sim:%s is a CPU with %s, and plans for it need one; "
                                     "this one has the kernels \"%s\"",
                                     c->name, c->device.arch, sw_device_kernel_set(dev));
        sw_device_close(dev);
        return st;
    }
    dev->caps |= SW_DEVICE_SIMULATED;
    dev->memory_bytes = (size_t)c->device.memory.value;
    dev->what = "the simulated CPU of a cluster";
    find_memory(c, place, dev);
    *out = dev;
    return SW_OK;
}

/* Measured kernels are those of operations that there are. */
static sw_status check_kernels(const struct sw_cluster *c)
{
    const char *names[SW_N_OP_KINDS];
    for (int k = 0; k < SW_N_OP_KINDS; k++) {
        names[k] = sw_op_name(&(struct sw_op){.kind = (enum sw_op_kind)k});
    }
    for (int i = 0; i < c->device.n_kernels; i++) {
        const struct sw_cluster_kernel *kernel = &c->device.kernels[i];
        int k = 0;
        while (k < SW_N_OP_KINDS && strcmp(names[k], kernel->op) != 0) {
            k++;
        }
        if (k == SW_N_OP_KINDS) {
            const char *nearest = sw_nearest(kernel->op, names, SW_N_OP_KINDS);
            return SW_FAIL(SW_E_CONFIG, "%s:%d: kernels.op: no operation is named \"%.60s\"%s",
                           c->device.measured, kernel->line, kernel->op, sw_hint(nearest).text);
        }
    }
    return SW_OK;
}

sw_status sw_gpu_open_sim(const char *cluster, const struct sw_device_place *place,
                          struct sw_device **out)
{
    struct sw_cluster *c = NULL;
    SW_TRY(sw_cluster_open(cluster, &c));
    const bool is_cpu = strcmp(c->device.backend, "cpu") == 0;
    sw_status st = check_kernels(c);
    st = st < 0 ? st : (is_cpu ? open_cpu : open_sim)(c, place, out);
    sw_cluster_close(c);
    return st;
}
