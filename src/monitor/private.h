// SPDX-License-Identifier: Apache-2.0
// Event files and CSV files share these.
#pragma once

#include "monitor/monitor.h"

/* Calls `then` for each regular file in the folder whose name is wanted, up to the first failure.
 * what: "CSV files", for messages. SW_E_IO names the folder. */
sw_status sw_monitor_each(const struct sw_monitor_place *place, const char *what,
                          bool (*wanted)(const char *name),
                          sw_status (*then)(const char *path,
                                            const struct sw_monitor_place *place));
/* Shortens a file of a run before to `bytes`. */
sw_status sw_monitor_cut(const char *path, size_t bytes);
