// SPDX-License-Identifier: Apache-2.0
// Times at which an asynchronous device reaches given points, by the host's clock. The stream
// signals through a timeline, and a dedicated thread notes the time. Neither the stream nor the
// issuing thread is delayed. Private to this folder.
#pragma once

#include "device/device.h"

struct sw_watch;

/* `most`: largest number of marks in flight */
sw_status sw_watch_open(struct sw_device *dev, int64_t most, struct sw_watch **out);
/* All marks must have been passed. NULL is a no-op. */
void sw_watch_close(struct sw_watch *watch);
/* Sets a mark after all work queued on `on`; marks count from 1. */
sw_status sw_watch_mark(struct sw_watch *watch, struct sw_stream_queue *on, int64_t *out_mark);
/* The time at which the mark was passed; waits for it. 0 = the device failed. */
int64_t sw_watch_passed_ns(struct sw_watch *watch, int64_t mark);
