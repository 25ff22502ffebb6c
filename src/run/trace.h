// SPDX-License-Identifier: Apache-2.0
// Reports of the meter to a trace. Private to this folder; the public functions are in run.h.
#pragma once

#include "run/meter.h"

/* Thread-safe; trace NULL is a no-op. */
void sw_trace_ran(struct sw_trace *trace, const struct sw_span *span);
void sw_trace_waited(struct sw_trace *trace, const struct sw_span *span);
