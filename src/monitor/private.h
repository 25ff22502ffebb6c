// SPDX-License-Identifier: Apache-2.0
// Helpers shared by event files and CSV files.
#pragma once

#include "monitor/monitor.h"

/* Calls `then` for each regular file in the folder that is wanted by name, up to the first failure.
 * what: "CSV files", for messages. SW_E_IO names the folder. */
sw_status sw_monitor_each(const struct sw_monitor_place *place, const char *what,
                          bool (*wanted)(const char *name, const struct sw_monitor_place *place),
                          sw_status (*then)(const char *path,
                                            const struct sw_monitor_place *place));
/* Truncates a file of an earlier run to `bytes`. */
sw_status sw_monitor_cut(const char *path, size_t bytes);
