// SPDX-License-Identifier: Apache-2.0
// Where recorded cases are: below $SPILLWAY_FIXTURES, else below ../shared/fixtures (tests run in
// the source root). A test program without its folder is skipped:
//
//     static int begin(char **argv)
//     {
//         (void)argv;
//         return test_fixture_folder("gpt2", folder) ? 0 : TEST_EXIT_SKIPPED;
//     }
#pragma once

#include <stdbool.h>

enum { TEST_PATH_CAP = 1024, TEST_NAME_CAP = 256 };

/* root/sub (sub may be ""); false, with a line that says so, when there is no such folder. */
bool test_fixture_folder(const char *sub, char out[TEST_PATH_CAP]);
/* a/b into out; the test fails when it does not fit. */
void test_join(char out[TEST_PATH_CAP], const char *a, const char *b);
/* folder/name; of the last eight calls each has its own. */
const char *test_in(const char *folder, const char *name);
bool test_exists(const char *path);
/* The names in a folder that end in suffix ("" = all), hidden ones left out, sorted; how many. */
int test_list(const char *folder, const char *suffix, char (*names)[TEST_NAME_CAP], int cap);
