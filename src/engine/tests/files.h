// SPDX-License-Identifier: Apache-2.0
// Temporary folders in /tmp for tests, with the config.json of the model that a test trains.
#pragma once

#include <stddef.h>

/* Creates "/tmp/spillway-<name>-.." and writes its path to folder [cap]; json: contents of
 * config.json. Returns nonzero on failure. */
int test_make_folder(const char *name, const char *json, char *folder, size_t cap);
/* Removes the folder with its contents. */
int test_remove_folder(const char *folder);
