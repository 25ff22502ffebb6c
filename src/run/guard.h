// SPDX-License-Identifier: Apache-2.0
// guard - a thread that watches over exchanges by the devices' library, which have no deadline. The
// ranks tell each other over the transport, many times a second, how far they are. If a rank is
// gone, if an exchange has not ended within the deadline, or if the library reports an error, all
// ranks name the rank, and end the library's exchanges. Then nobody waits any longer. Private to
// this folder.
#pragma once

#include "run/run.h"

struct sw_executor;
struct sw_guard;

/* Opens the group of the watching threads. Collective. */
sw_status sw_guard_open(struct sw_executor *ex, struct sw_guard **out);
/* Begins to watch, once the executor has its queues. */
sw_status sw_guard_start(struct sw_guard *guard);
/* Ends watching. failed: the executor's latest run failed, and the other ranks are told. NULL is a
 * no-op, as it is for sw_guard_close. */
void sw_guard_end(struct sw_guard *guard, bool failed);
/* Returns true if the exchanges were ended. */
bool sw_guard_close(struct sw_guard *guard);
