// SPDX-License-Identifier: Apache-2.0
// Tests swap files of several users in one folder: each has its own, none has a name while in use,
// and files of others are never touched.
#include "run/swap.h"

#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <sys/inotify.h>
#include <sys/wait.h>
#include <unistd.h>

#include "support/test.h"

enum { BYTES = 10000, N_USERS = 16 };

static char folder[64];
static int n_files(void)
{
    int n = 0;
    DIR *dir = opendir(folder);
    assert_non_null(dir);
    for (struct dirent *entry = readdir(dir); entry; entry = readdir(dir)) {
        n += entry->d_name[0] != '.';
    }
    closedir(dir);
    return n;
}

static sw_status open_swap(int rank, struct sw_swap **out)
{
    const char *const folders[] = {folder};
    struct sw_swap_options options = {.folders = folders, .n_folders = 1, .rank = rank};
    sw_nvme_options_init(&options.nvme);
    options.nvme.max_extents = 100;
    options.nvme.max_requests = 8;
    return sw_swap_open(&options, BYTES, out);
}

/* ---- concurrent users ---- */

struct user {
    pthread_t thread;
    pthread_barrier_t *together;
    unsigned char seed;
    sw_status st;
    bool right;
};

static void *use(void *ctx)
{
    struct user *user = ctx;
    unsigned char data[BYTES], back[BYTES];
    struct sw_swap *swap = NULL;
    memset(data, user->seed, sizeof data);
    pthread_barrier_wait(user->together);
    user->st = open_swap(0, &swap); /* all of them are rank 0 of this process */
    user->st = user->st < 0 ? user->st : sw_swap_write(swap, 0, data, sizeof data);
    pthread_barrier_wait(user->together);
    user->st = user->st < 0 ? user->st : sw_swap_read(swap, 0, back, sizeof back);
    user->right = user->st == SW_OK && memcmp(data, back, sizeof data) == 0;
    pthread_barrier_wait(user->together);
    sw_swap_close(swap);
    return NULL;
}

static void each_has_a_file_of_its_own(void **state)
{
    (void)state;
    struct user users[N_USERS];
    pthread_barrier_t together;
    pthread_barrier_init(&together, NULL, N_USERS);
    for (int i = 0; i < N_USERS; i++) {
        users[i] = (struct user){.together = &together, .seed = (unsigned char)(i + 1)};
        assert_int_equal(pthread_create(&users[i].thread, NULL, use, &users[i]), 0);
    }
    for (int i = 0; i < N_USERS; i++) {
        pthread_join(users[i].thread, NULL);
    }
    pthread_barrier_destroy(&together);
    for (int i = 0; i < N_USERS; i++) {
        assert_int_equal(users[i].st, SW_OK);
        assert_true(users[i].right);
    }
    assert_int_equal(n_files(), 0);
}

/* ---- killed processes, and files of others ---- */

/* The files of an open tier have no names, so a killed process leaves nothing. */
static void a_killed_user_leaves_nothing(void **state)
{
    (void)state;
    int ends[2];
    char byte;
    assert_int_equal(pipe(ends), 0);
    const pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        struct sw_swap *swap;
        unsigned char data[BYTES] = {1}, back[BYTES];
        bool fine = open_swap(3, &swap) == SW_OK &&
                    sw_swap_write(swap, 0, data, sizeof data) == SW_OK &&
                    sw_swap_read(swap, 0, back, sizeof back) == SW_OK &&
                    memcmp(data, back, sizeof data) == 0;
        fine = write(ends[1], fine ? "y" : "n", 1) == 1 && fine;
        pause();
        _exit(1);
    }
    assert_int_equal(read(ends[0], &byte, 1), 1);
    assert_int_equal(byte, 'y');
    assert_int_equal(n_files(), 0);
    kill(pid, SIGKILL);
    assert_int_equal(waitpid(pid, NULL, 0), pid);
    assert_int_equal(n_files(), 0);
    close(ends[0]);
    close(ends[1]);
}

/* The file has no name at any moment, since a process may be killed at any. */
static void a_file_never_has_a_name(void **state)
{
    (void)state;
    char event[sizeof(struct inotify_event) + NAME_MAX + 1];
    struct sw_swap *swap;
    const int probe = open(folder, O_RDWR | O_TMPFILE, 0600);
    if (probe < 0) {
        print_message("skipped: %s makes no files without a name\n", folder);
        skip();
    }
    close(probe);
    const int watch = inotify_init1(IN_NONBLOCK | IN_CLOEXEC);
    assert_true(watch >= 0 && inotify_add_watch(watch, folder, IN_CREATE | IN_DELETE) >= 0);
    assert_int_equal(open_swap(0, &swap), SW_OK);
    assert_int_equal(read(watch, event, sizeof event), -1);
    sw_swap_close(swap);
    close(watch);
}

/* Names that the process would use are taken by a file and by a link to one: both stay
 * unchanged. */
static void what_others_made_is_left_alone(void **state)
{
    (void)state;
    char host[65] = "", paths[3][320], *text;
    size_t len;
    const char *path;
    struct sw_arena names;
    int fd;
    gethostname(host, sizeof host - 1);
    for (int i = 0; i < 2; i++) {
        snprintf(paths[i], sizeof paths[i], "%s/spillway-%s-%d-rank0-%d.swap", folder, host,
                 (int)getpid(), i);
    }
    snprintf(paths[2], sizeof paths[2], "%s/precious", folder);
    assert_int_equal(sw_file_write_atomic(paths[0], "theirs", 6), SW_OK);
    assert_int_equal(sw_file_write_atomic(paths[2], "precious", 8), SW_OK);
    assert_int_equal(symlink(paths[2], paths[1]), 0);
    sw_arena_init(&names, "test");
    assert_int_equal(sw_swap_make_named(folder, 0, &names, &path, &fd), SW_OK);
    assert_non_null(strstr(path, "-2.swap"));
    sw_arena_fini(&names);
    assert_int_equal(write(fd, "x", 1), 1);
    close(fd);
    assert_int_equal(n_files(), 3);
    assert_int_equal(sw_file_read(paths[0], &text, &len), SW_OK);
    assert_string_equal(text, "theirs");
    sw_free(text);
    assert_int_equal(sw_file_read(paths[2], &text, &len), SW_OK);
    assert_string_equal(text, "precious");
    sw_free(text);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(unlink(paths[i]), 0);
    }
}

static int n_descriptors(void)
{
    int n = 0;
    DIR *dir = opendir("/proc/self/fd");
    for (struct dirent *entry = dir ? readdir(dir) : NULL; entry; entry = readdir(dir)) {
        n++;
    }
    if (dir) {
        closedir(dir);
    }
    return n;
}

static void a_folder_that_is_not_there(void **state)
{
    (void)state;
    const char *const folders[] = {folder, "/no/such/folder"};
    struct sw_swap_options options = {.folders = folders, .n_folders = 2};
    struct sw_swap *swap;
    sw_nvme_options_init(&options.nvme);
    const int before = n_descriptors();
    assert_int_equal(sw_swap_open(&options, BYTES, &swap), SW_E_IO);
    assert_non_null(strstr(sw_error_message(), "/no/such/folder"));
    options.n_folders = 1;
    assert_int_equal(sw_swap_open(&options, (size_t)1 << 60, &swap), SW_E_NOMEM);
    options.nvme.stripe_bytes = 1;
    assert_int_equal(sw_swap_open(&options, BYTES, &swap), SW_E_ARG);
    assert_int_equal(n_descriptors(), before);
    assert_int_equal(n_files(), 0);
}

static int set_up(void **state)
{
    (void)state;
    snprintf(folder, sizeof folder, "/tmp/spillway-swap-XXXXXX");
    return mkdtemp(folder) ? 0 : -1;
}

static int tear_down(void **state)
{
    (void)state;
    return rmdir(folder);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(each_has_a_file_of_its_own), cmocka_unit_test(a_killed_user_leaves_nothing),
    cmocka_unit_test(a_file_never_has_a_name),    cmocka_unit_test(what_others_made_is_left_alone),
    cmocka_unit_test(a_folder_that_is_not_there),
};

const struct test_program sw_tests = {TEST_TABLE(tests), .setup = set_up, .teardown = tear_down};
