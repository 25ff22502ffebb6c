// SPDX-License-Identifier: Apache-2.0
// Temporary folders for tests, with unique names; they are removed with their contents.
#include "engine/tests/files.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"

int test_make_folder(const char *name, const char *json, char *folder, size_t cap)
{
    char path[128];
    snprintf(folder, cap, "/tmp/spillway-%s-XXXXXX", name);
    if (!mkdtemp(folder)) {
        return -1;
    }
    snprintf(path, sizeof path, "%s/config.json", folder);
    return sw_file_write_atomic(path, json, strlen(json)) < 0;
}

int test_remove_folder(const char *folder)
{
    char command[128];
    snprintf(command, sizeof command, "rm -rf %s", folder);
    return system(command);
}
