// SPDX-License-Identifier: Apache-2.0
// The folder of a test program. Children that it forks share the folder and leave it to the parent.
#include "support/scratch.h"

#include <errno.h>
#include <ftw.h>
#include <limits.h>
#include <pthread.h>
#include <unistd.h>

#include "base/base.h"
#include "support/fixtures.h"
#include "support/test.h"

struct path {
    struct path *next;
    char text[];
};

static pthread_once_t once = PTHREAD_ONCE_INIT;
static char folder[] = "/tmp/spillway-test-XXXXXX";
static pid_t owner;

static int remove_one(const char *path, const struct stat *info, int type, struct FTW *place)
{
    (void)info;
    (void)type;
    (void)place;
    return remove(path);
}

static bool remove_all(const char *path)
{
    return nftw(path, remove_one, 16, FTW_DEPTH | FTW_PHYS) == 0 || errno == ENOENT;
}

void test_remove(const char *path)
{
    if (!remove_all(path)) {
        fail_msg("cannot remove %s: %s", path, strerror(errno));
    }
}

static void remove_folder(void)
{
    if (getpid() == owner && !remove_all(folder)) {
        fprintf(stderr, "cannot remove %s: %s\n", folder, strerror(errno));
    }
}

static void make_folder(void)
{
    if (!mkdtemp(folder)) {
        fprintf(stderr, "cannot make the folder %s: %s\n", folder, strerror(errno));
        exit(1);
    }
    owner = getpid();
    atexit(remove_folder);
}

const char *test_folder(void)
{
    pthread_once(&once, make_folder);
    return folder;
}

const char *test_at(const char *name)
{
    static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
    static struct path *paths;
    char text[TEST_PATH_CAP];
    test_join(text, test_folder(), name);
    pthread_mutex_lock(&mutex);
    struct path *path = paths;
    while (path && strcmp(path->text, text) != 0) {
        path = path->next;
    }
    if (!path) {
        path = malloc(sizeof *path + strlen(text) + 1);
        if (!path) {
            abort();
        }
        strcpy(path->text, text);
        path->next = paths;
        paths = path;
    }
    pthread_mutex_unlock(&mutex);
    return path->text;
}

void test_put(const char *name, const char *text)
{
    char path[TEST_PATH_CAP];
    test_join(path, test_folder(), name);
    if (sw_file_write_atomic(path, text, strlen(text)) < 0) {
        fail_msg("%s", sw_error_message());
    }
}

void test_put_lines(const char *name, int n)
{
    struct sw_str text = {0};
    for (int i = 0; i < n; i++) {
        sw_str_printf(&text, "line %d of a small text, and then another; ", i * i % 97);
    }
    test_put(name, sw_str_text(&text));
    sw_str_fini(&text);
}

char *test_text(const char *name)
{
    char path[TEST_PATH_CAP], *text = NULL;
    size_t len;
    test_join(path, test_folder(), name);
    if (sw_file_read(path, &text, &len) < 0) {
        fail_msg("%s", sw_error_message());
    }
    return text;
}

void test_same_file(const char *a, const char *b)
{
    const char *const paths[2] = {a, b};
    char *bytes[2] = {NULL};
    size_t len[2];
    for (int i = 0; i < 2; i++) {
        if (sw_file_read(paths[i], &bytes[i], &len[i]) < 0) {
            fail_msg("%s", sw_error_message());
        }
    }
    if (len[0] != len[1] || memcmp(bytes[0], bytes[1], len[0]) != 0) {
        fail_msg("%s and %s differ", a, b);
    }
    sw_free(bytes[0]);
    sw_free(bytes[1]);
}

const char *test_spillway(void)
{
    static char program[PATH_MAX];
    const char *build = getenv("SPILLWAY_BUILD_DIR");
    char path[TEST_PATH_CAP];
    test_join(path, build ? build : "build", "spillway");
    if (!realpath(path, program) || access(program, X_OK) != 0) {
        fprintf(stderr, "no program %s\n", path);
        return NULL;
    }
    return program;
}
