// SPDX-License-Identifier: Apache-2.0
// Copies that are timed, between host memory and a device.
#include <string.h>

#include "run/measure.h"

enum { BYTES = 64 << 20 };

sw_status sw_copier_open(struct sw_device *dev, struct sw_copier *out)
{
    void *host = NULL, *device = NULL;
    *out = (struct sw_copier){.dev = dev};
    SW_TRY(dev->ops->stream_open(dev, &out->on));
    SW_TRY(sw_device_alloc(dev, SW_MEM_HOST, BYTES, &host));
    out->host = host;
    SW_TRY(sw_device_alloc(dev, SW_MEM_DEVICE, BYTES, &device));
    out->device = device;
    memset(host, 1, BYTES);
    SW_TRY(sw_device_copy(dev, out->on, device, host, BYTES));
    return dev->ops->stream_wait(dev, out->on);
}

void sw_copier_close(struct sw_copier *c)
{
    sw_device_free(c->dev, SW_MEM_HOST, c->host, BYTES);
    sw_device_free(c->dev, SW_MEM_DEVICE, c->device, BYTES);
    if (c->on) {
        c->dev->ops->stream_close(c->dev, c->on);
    }
}

sw_status sw_copier_copy(struct sw_copier *c, bool in, size_t bytes)
{
    c->at = c->at + 2 * bytes > BYTES ? 0 : c->at + bytes;
    SW_TRY(sw_device_copy(c->dev, c->on, (in ? c->device : c->host) + c->at,
                          (in ? c->host : c->device) + c->at, bytes));
    return c->dev->ops->stream_wait(c->dev, c->on);
}
