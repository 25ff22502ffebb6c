// SPDX-License-Identifier: Apache-2.0
// Swap files of several users in one folder: each has its own, they are gone in the end, and a file that somebody
// was killed with is named, once it is sure that nobody uses it.
#include "run/swap.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "support/test.h"

enum { BYTES = 10000, N_USERS = 16 };

static char folder[64];
static struct sw_str lines; /* of the log */

static void keep_line(void *ctx, enum sw_log_level level, const char *text)
{
    (void)ctx;
    (void)level;
    sw_str_printf(&lines, "%s\n", text);
}

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

/* ---- users at once ---- */

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
    user->st = open_swap(0, &swap); /* all of them rank 0 of this process */
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

/* ---- leftovers ---- */

/* Whether opening a swap names the file, which it leaves alone; the file is removed then. */
static bool is_named(const char *name)
{
    struct sw_swap *swap;
    char path[320];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    sw_str_fini(&lines);
    lines = (struct sw_str){0};
    sw_log_set_sink(keep_line, NULL);
    assert_int_equal(open_swap(0, &swap), SW_OK);
    sw_swap_close(swap);
    sw_log_set_sink(NULL, NULL);
    assert_int_equal(access(path, F_OK), 0);
    assert_int_equal(unlink(path), 0);
    return strstr(sw_str_text(&lines), path) != NULL;
}

static int make(const char *name, int age_s)
{
    char path[320];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    const int fd = open(path, O_RDWR | O_CREAT | O_EXCL, 0666);
    const struct timespec times[2] = {{time(NULL) - age_s, 0}, {time(NULL) - age_s, 0}};
    assert_true(fd >= 0);
    assert_int_equal(futimens(fd, times), 0);
    return fd;
}

static pid_t gone_process(void)
{
    const pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        _exit(0);
    }
    assert_int_equal(waitpid(pid, NULL, 0), pid);
    return pid;
}

static void leftovers_are_named(void **state)
{
    (void)state;
    char host[65] = "", name[200];
    const int gone = (int)gone_process(), own = (int)getpid();
    gethostname(host, sizeof host - 1);
    const struct {
        const char *format, *host;
        int pid, age_s;
        bool locked, named;
    } files[] = {
        {"spillway-%s-%d-rank0-0.swap", host, gone, 0, false, true},
        {"spillway-%s-%d-rank12-3.swap", host, gone, 0, false, true},
        {"spillway-%s-%d-rank0-0.swap", host, gone, 0, true, false}, /* of another container */
        {"spillway-%s-%d-rank0-7.swap", host, own, 0, false, false}, /* about to be locked */
        {"spillway-%s-%d-rank0-7.swap", host, own, 3600, true, false},
        {"spillway-%s-%d-rank0-7.swap", host, own, 3600, false, true}, /* the number is anew */
        {"spillway-%s-%d-rank0-0.swap", "elsewhere", gone, 3600, false, false},
        {"spillway-%s-%d-rank0-0.swap.txt", host, gone, 3600, false, false},
        {"spillway-%s-%d-notes.swap", host, gone, 3600, false, false},
    };
    for (size_t i = 0; i < SW_LEN(files); i++) {
        snprintf(name, sizeof name, files[i].format, files[i].host, files[i].pid);
        const int fd = make(name, files[i].age_s);
        if (files[i].locked) {
            assert_int_equal(flock(fd, LOCK_EX | LOCK_NB), 0);
        }
        if (is_named(name) != files[i].named) {
            fail_msg("%s (%zu): wanted %s", name, i, files[i].named ? "named" : "not named");
        }
        close(fd);
    }
}

/* The file of a process that is killed while it has it open. */
static void a_killed_user_is_named(void **state)
{
    (void)state;
    int ends[2];
    char byte;
    assert_int_equal(pipe(ends), 0);
    const pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        struct sw_swap *swap;
        const bool opened = open_swap(3, &swap) == SW_OK;
        if (write(ends[1], "x", 1) == 1 && opened) {
            pause();
        }
        _exit(1);
    }
    assert_int_equal(read(ends[0], &byte, 1), 1);
    assert_int_equal(n_files(), 1);
    kill(pid, SIGKILL);
    assert_int_equal(waitpid(pid, NULL, 0), pid);
    char host[65] = "", name[200];
    gethostname(host, sizeof host - 1);
    snprintf(name, sizeof name, "spillway-%s-%d-rank3-0.swap", host, (int)pid);
    /* the kernel may take a moment to let go of the locks of an io_uring */
    for (int i = 0; i < 200; i++) {
        char path[320];
        snprintf(path, sizeof path, "%s/%s", folder, name);
        const int fd = open(path, O_RDONLY);
        assert_true(fd >= 0);
        const bool is_free = flock(fd, LOCK_SH | LOCK_NB) == 0;
        close(fd);
        if (is_free) {
            break;
        }
        nanosleep(&(struct timespec){0, 50000000}, NULL);
    }
    assert_true(is_named(name));
    close(ends[0]);
    close(ends[1]);
}

static void a_folder_that_is_not_there(void **state)
{
    (void)state;
    const char *const folders[] = {folder, "/no/such/folder"};
    struct sw_swap_options options = {.folders = folders, .n_folders = 2};
    struct sw_swap *swap;
    sw_nvme_options_init(&options.nvme);
    assert_int_equal(sw_swap_open(&options, BYTES, &swap), SW_E_IO);
    assert_non_null(strstr(sw_error_message(), "/no/such/folder"));
    options.n_folders = 1;
    assert_int_equal(sw_swap_open(&options, (size_t)1 << 60, &swap), SW_E_NOMEM);
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
    sw_str_fini(&lines);
    return rmdir(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_has_a_file_of_its_own),
        cmocka_unit_test(leftovers_are_named),
        cmocka_unit_test(a_killed_user_is_named),
        cmocka_unit_test(a_folder_that_is_not_there),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
