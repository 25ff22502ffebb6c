// SPDX-License-Identifier: Apache-2.0
// When computation on a device that runs by itself has come to a place, by this host's clock:
// the stream says so through a timeline, and a thread that does nothing else notes the time. The
// stream goes on at once, and so does who issues. Private to the room.
#pragma once

#include "device/device.h"

struct sw_watch;

/* At most `most` marks are under way. */
sw_status sw_watch_open(struct sw_device *dev, int64_t most, struct sw_watch **out);
/* Nothing that was queued has a mark left to pass. NULL is fine. */
void sw_watch_close(struct sw_watch *watch);
/* Behind all that was queued on `on`; marks count from 1. */
sw_status sw_watch_mark(struct sw_watch *watch, struct sw_stream_queue *on, int64_t *out_mark);
/* When it was passed; waits until it is. 0: the device failed. */
int64_t sw_watch_passed_ns(struct sw_watch *watch, int64_t mark);
