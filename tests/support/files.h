// SPDX-License-Identifier: Apache-2.0
// Paths of fixtures, temporary files and SHA-256 for tests.
#pragma once

#include "base/base.h"

/* $SPILLWAY_FIXTURES or ../shared/fixtures; NULL (and a line that says so) if the folder is
 * absent. */
const char *sw_test_fixtures(void);
/* "<fixtures>/../data/<name>", or "../shared/data/<name>" when that is absent. */
const char *sw_test_data(struct sw_str *path, const char *name);

/* Writes a file of test_folder(). Returns its path, which lives until the next call with slot. */
const char *sw_test_write(int slot, const char *name, const void *data, size_t len);
const char *sw_test_write_text(int slot, const char *name, const char *text);

/* Hexadecimal SHA-256 (FIPS 180-4) of bytes. */
void sw_test_sha256(const void *data, size_t len, char out[65]);
