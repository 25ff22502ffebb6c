// SPDX-License-Identifier: Apache-2.0
// files - a folder of a test's own in /tmp, with the config.json of the model that it trains.
#pragma once

#include <stddef.h>

/* "/tmp/spillway-<name>-.." into folder [cap]; json: of its config.json. Not 0: it cannot be
 * made. */
int test_make_folder(const char *name, const char *json, char *folder, size_t cap);
/* With all that is in it. */
int test_remove_folder(const char *folder);
