// SPDX-License-Identifier: Apache-2.0
// The front of every device: checks the caller's contract and counts; the back ends trust.
#include "device/device.h"

#include <string.h>

void sw_device_close(struct sw_device *dev)
{
    if (dev) {
        dev->ops->close(dev);
    }
}

sw_status sw_device_alloc(struct sw_device *dev, enum sw_mem kind, size_t bytes, void **out)
{
    if ((unsigned)kind >= SW_MEM_COUNT || bytes == 0 || bytes > INT64_MAX) {
        return SW_FAIL(SW_E_ARG, "device %s: cannot allocate %zu bytes of memory kind %d",
                       dev->ops->name, bytes, (int)kind);
    }
    SW_TRY(dev->ops->mem_alloc(dev, kind, bytes, out));
    dev->n_allocs++;
    dev->live_bytes[kind] += (int64_t)bytes;
    dev->peak_bytes[kind] = sw_max_i64(dev->peak_bytes[kind], dev->live_bytes[kind]);
    return SW_OK;
}

void sw_device_free(struct sw_device *dev, enum sw_mem kind, void *mem, size_t bytes)
{
    if (!mem) {
        return;
    }
    SW_ASSERT((unsigned)kind < SW_MEM_COUNT && dev->live_bytes[kind] >= (int64_t)bytes);
    dev->live_bytes[kind] -= (int64_t)bytes;
    dev->ops->mem_free(dev, kind, mem, bytes);
}

sw_status sw_device_copy(struct sw_device *dev, struct sw_stream_queue *on, void *dst,
                         const void *src, size_t bytes)
{
    if (bytes == 0) {
        return SW_OK;
    }
    if (!on || !dst || !src) {
        return SW_FAIL(SW_E_ARG, "device %s: copy of %zu bytes without %s", dev->ops->name, bytes,
                       !on    ? "a stream"
                       : !dst ? "a destination"
                              : "a source");
    }
    SW_TRY(dev->ops->copy(dev, on, dst, src, bytes));
    return SW_OK;
}

sw_status sw_device_fill(struct sw_device *dev, struct sw_stream_queue *on, void *dst, int byte,
                         size_t bytes)
{
    if (bytes == 0) {
        return SW_OK;
    }
    if (!on || !dst) {
        return SW_FAIL(SW_E_ARG, "device %s: fill of %zu bytes without %s", dev->ops->name, bytes,
                       !on ? "a stream" : "a destination");
    }
    SW_TRY(dev->ops->fill(dev, on, dst, byte, bytes));
    return SW_OK;
}

void sw_device_query(struct sw_device *dev, const struct sw_op_desc *desc,
                     struct sw_kernel_info *out)
{
    memset(out, 0, sizeof *out);
    if (desc->op && (unsigned)desc->op->kind < SW_N_OP_KINDS) {
        dev->ops->query(dev, desc, out);
    }
}

sw_status sw_device_prepare(struct sw_device *dev, const struct sw_op_desc *desc,
                            struct sw_kernel **out)
{
    if (!desc->op || (unsigned)desc->op->kind >= SW_N_OP_KINDS) {
        return SW_FAIL(SW_E_ARG, "device %s: a description without an op", dev->ops->name);
    }
    SW_TRY(dev->ops->prepare(dev, desc, out));
    return SW_OK;
}

sw_status sw_device_launch(struct sw_device *dev, struct sw_stream_queue *on,
                           struct sw_kernel *kernel, void *const *in, void *const *out,
                           void *workspace, double *scalars)
{
    if (!on || !kernel || !scalars) {
        return SW_FAIL(SW_E_ARG, "device %s: launch without %s", dev->ops->name,
                       !on       ? "a stream"
                       : !kernel ? "a kernel"
                                 : "the table of scalars");
    }
    SW_TRY(dev->ops->launch(dev, on, kernel, in, out, workspace, scalars));
    return SW_OK;
}

const char *sw_device_kernel_set(struct sw_device *dev)
{
    return dev->kernel_set;
}
