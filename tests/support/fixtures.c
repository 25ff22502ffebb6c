// SPDX-License-Identifier: Apache-2.0
// Finding recorded cases. The C library only: tests of the lowest rooms use this, too.
#include "support/fixtures.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static void die(const char *what, const char *detail)
{
    fprintf(stderr, "test support: %s: %s\n", what, detail);
    exit(1);
}

void test_join(char out[TEST_PATH_CAP], const char *a, const char *b)
{
    const int len = snprintf(out, TEST_PATH_CAP, "%s%s%s", a, *b ? "/" : "", b);
    if (len < 0 || len >= TEST_PATH_CAP) {
        die("path too long", b);
    }
}

const char *test_in(const char *folder, const char *name)
{
    static char paths[8][TEST_PATH_CAP];
    static int next;
    char *path = paths[next++ % 8];
    test_join(path, folder, name);
    return path;
}

bool test_exists(const char *path)
{
    struct stat info;
    return stat(path, &info) == 0;
}

bool test_fixture_folder(const char *sub, char out[TEST_PATH_CAP])
{
    const char *root = getenv("SPILLWAY_FIXTURES");
    test_join(out, root && *root ? root : "../shared/fixtures", sub);
    if (!test_exists(out)) {
        printf("skipped: no folder %s (set SPILLWAY_FIXTURES)\n", out);
        return false;
    }
    return true;
}

static int compare_names(const void *a, const void *b)
{
    return strcmp(a, b);
}

static bool ends_in(const char *name, const char *suffix)
{
    const size_t n = strlen(name), m = strlen(suffix);
    return n >= m && strcmp(name + n - m, suffix) == 0;
}

int test_list(const char *folder, const char *suffix, char (*names)[TEST_NAME_CAP], int cap)
{
    DIR *dir = opendir(folder);
    if (!dir) {
        die("cannot list", folder);
    }
    int n = 0;
    for (struct dirent *entry; (entry = readdir(dir));) {
        if (entry->d_name[0] == '.' || !ends_in(entry->d_name, suffix)) {
            continue;
        }
        if (n == cap) {
            die("more names than expected", folder);
        }
        snprintf(names[n++], TEST_NAME_CAP, "%s", entry->d_name);
    }
    closedir(dir);
    qsort(names, (size_t)n, sizeof(names[0]), compare_names);
    return n;
}
