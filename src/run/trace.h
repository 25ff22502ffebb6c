// SPDX-License-Identifier: Apache-2.0
// What the meter tells a trace. Private to the room; what others do with one is in run.h.
#pragma once

#include "run/meter.h"

/* From any thread; trace NULL is fine. */
void sw_trace_ran(struct sw_trace *trace, const struct sw_span *span);
void sw_trace_waited(struct sw_trace *trace, const struct sw_span *span);
