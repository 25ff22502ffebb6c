// SPDX-License-Identifier: Apache-2.0
// What event files and CSV files share.
#pragma once

#include "monitor/monitor.h"

/* Calls `then` for each file of the place's folder whose name is wanted, up to the first failure.
 * what: "CSV files", for messages. SW_E_IO names the folder. */
sw_status sw_monitor_each(const struct sw_monitor_place *place, const char *what,
                          bool (*wanted)(const char *name),
                          sw_status (*then)(const char *path,
                                            const struct sw_monitor_place *place));
