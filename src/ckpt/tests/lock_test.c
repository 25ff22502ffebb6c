// SPDX-License-Identifier: Apache-2.0
// One holder at a time: the second is refused with host and process of the first, a successor waits
// for it, a process that ends lets go, and what is in the folder is removed by nobody while its
// holder lives.
#include "ckpt/tests/helpers.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "support/test.h"

static char root[64], other[128];
static int flock_error; /* what the file system answers, instead of locking; 0: it locks */

/* In front of the C library's: file systems without locks are rare where tests run. */
int flock(int fd, int operation)
{
    if (flock_error) {
        errno = flock_error;
        return -1;
    }
    return (int)syscall(SYS_flock, fd, operation);
}

static int setup(void **test_state)
{
    (void)test_state;
    make_root(root);
    snprintf(other, sizeof(other), "%s/checkpoint-4.0123456789abcdef.tmp", root);
    return 0;
}

static int teardown(void **test_state)
{
    (void)test_state;
    sw_log_set_sink(NULL, NULL);
    sw_log_set_level(SW_LOG_WARN);
    remove_tree(root);
    return 0;
}

/* A process that holds the folder until it is killed, or for so many ms. */
static pid_t start_holder(const char *dir, int ms)
{
    int ready[2];
    char byte = 0;
    assert_int_equal(pipe(ready), 0);
    const pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        struct sw_ckpt_lock *lock;
        byte = sw_ckpt_acquire(dir, 0, &lock) == SW_OK ? 'h' : 'f';
        if (write(ready[1], &byte, 1) != 1) {
            _exit(3);
        }
        for (int i = 0; ms == 0 || i < ms; i++) {
            nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
        }
        _exit(0); /* nothing is given back by hand */
    }
    close(ready[1]);
    assert_int_equal(read(ready[0], &byte, 1), 1);
    close(ready[0]);
    assert_int_equal(byte, 'h');
    return pid;
}

static void end(pid_t pid, int signal)
{
    int status;
    if (signal) {
        kill(pid, signal);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
}

static void the_second_is_refused_with_host_and_process_of_the_first(void **test_state)
{
    (void)test_state;
    struct sw_ckpt_lock *lock;
    char host[256] = "", wanted[64];
    gethostname(host, sizeof(host) - 1);
    const pid_t holder = start_holder(root, 0);
    assert_int_equal(sw_ckpt_acquire(root, 0, &lock), SW_E_ARG);
    snprintf(wanted, sizeof(wanted), "process %ld on host ", (long)holder);
    assert_non_null(strstr(sw_error_message(), wanted));
    assert_non_null(strstr(sw_error_message(), host));
    assert_non_null(strstr(sw_error_message(), root));
    assert_int_equal(save_state(root, 1, 1, 1, 0, NAN), SW_E_ARG);
    assert_int_equal(newest_step(root), 0);
    end(holder, SIGKILL); /* whoever is gone holds nothing, however he went */
    assert_int_equal(sw_ckpt_acquire(root, 0, &lock), SW_OK);
    sw_ckpt_release(lock);
}

static void two_of_one_process_exclude_each_other(void **test_state)
{
    (void)test_state;
    struct sw_ckpt_lock *lock;
    assert_int_equal(sw_ckpt_acquire(root, 0, &lock), SW_OK);
    assert_int_equal(save_state(root, 1, 1, 1, 0, NAN), SW_E_ARG);
    sw_ckpt_release(lock);
    assert_int_equal(save_state(root, 1, 1, 1, 0, NAN), SW_OK);
    assert_int_equal(newest_step(root), 1);
}

static void a_successor_waits_for_a_holder_that_ends(void **test_state)
{
    (void)test_state;
    struct sw_ckpt_lock *lock;
    sw_log_set_level(SW_LOG_ERROR);
    const pid_t holder = start_holder(root, 400);
    assert_int_equal(sw_ckpt_acquire(root, 60, &lock), SW_OK);
    sw_ckpt_release(lock);
    end(holder, 0);
}

static void programs_that_are_started_do_not_inherit_it(void **test_state)
{
    (void)test_state;
    struct sw_ckpt_lock *lock;
    assert_int_equal(sw_ckpt_acquire(root, 0, &lock), SW_OK);
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        execlp("sleep", "sleep", "60", (char *)NULL);
        _exit(98);
    }
    sw_ckpt_release(lock);
    assert_int_equal(sw_ckpt_acquire(root, 30, &lock), SW_OK); /* once `sleep` runs */
    sw_ckpt_release(lock);
    end(child, SIGKILL);
}

static void a_file_system_without_locks_is_named(void **test_state)
{
    (void)test_state;
    static const int answers[] = {ENOLCK, ENOSYS, EOPNOTSUPP};
    struct sw_ckpt_lock *lock;
    for (size_t i = 0; i < SW_LEN(answers); i++) {
        flock_error = answers[i];
        assert_int_equal(sw_ckpt_acquire(root, 0, &lock), SW_E_UNSUP);
        flock_error = 0;
        assert_non_null(strstr(sw_error_message(), "has no locks"));
        assert_non_null(strstr(sw_error_message(), root));
        if (strncmp(root, "/dev/shm", 8) == 0) {
            assert_non_null(strstr(sw_error_message(), "(tmpfs)"));
        }
    }
}

static void what_the_lock_file_holds_reaches_no_terminal(void **test_state)
{
    (void)test_state;
    static const char evil[] = "\033]0;evil\007 12\n";
    struct sw_ckpt_lock *lock;
    char path[128];
    snprintf(path, sizeof(path), "%s/.lock", root);
    const int fd = open(path, O_RDWR | O_CREAT, 0666);
    assert_int_equal(write(fd, evil, sizeof(evil) - 1), sizeof(evil) - 1);
    assert_int_equal(flock(fd, LOCK_EX), 0);
    assert_int_equal(sw_ckpt_acquire(root, 0, &lock), SW_E_ARG);
    assert_null(strchr(sw_error_message(), '\033'));
    assert_non_null(strstr(sw_error_message(), "another process"));
    close(fd);
    /* Nor is a name that somebody else put there followed. */
    char target[128];
    snprintf(target, sizeof(target), "%s/precious", root);
    assert_int_equal(sw_file_write_atomic(target, "keep", 4), SW_OK);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(symlink(target, path), 0);
    assert_int_equal(sw_ckpt_acquire(root, 0, &lock), SW_E_IO);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(mkfifo(path, 0666), 0);
    assert_int_equal(sw_ckpt_acquire(root, 0, &lock), SW_E_IO);
    struct stat info;
    assert_int_equal(stat(target, &info), 0);
    assert_int_equal(info.st_size, 4);
}

/* ---- what others have in the folder ---- */

static sw_status nothing(void *ctx, int64_t i_tensor, int64_t first, int64_t n, void *dst)
{
    (void)ctx, (void)i_tensor, (void)first;
    memset(dst, 0, (size_t)n);
    return SW_OK;
}

/* A save that a rank of a killed job is still writing to, beside one of its successor at the same
 * step. */
static void a_slow_rank_of_a_dead_job_reaches_no_checkpoint_of_another(void **test_state)
{
    (void)test_state;
    const struct sw_shape shape = {1, {5}};
    const struct sw_ckpt_tensor tensor = {"w", "master", SW_U8, shape, sw_box_whole(&shape)};
    struct sw_ckpt_lock *lock;
    uint64_t token;
    sw_log_set_level(SW_LOG_ERROR);
    assert_int_equal(sw_ckpt_acquire(root, 0, &lock), SW_OK);
    assert_int_equal(sw_ckpt_begin(lock, 7, &token), SW_OK);
    sw_ckpt_release(lock); /* its rank 0 is gone */
    assert_int_equal(save_state(root, 7, 2, 2, 0, NAN), SW_OK);
    assert_int_equal(count_leftovers(root), 0);
    assert_int_equal(sw_ckpt_write_part(root, 7, token, 1, &tensor, 1, nothing, NULL), SW_E_IO);
    assert_int_equal(newest_step(root), 7);
}

static void two_saves_never_share_a_folder(void **test_state)
{
    (void)test_state;
    struct sw_ckpt_lock *lock;
    uint64_t first, second;
    sw_log_set_level(SW_LOG_ERROR);
    assert_int_equal(sw_ckpt_acquire(root, 0, &lock), SW_OK);
    assert_int_equal(sw_ckpt_begin(lock, 4, &first), SW_OK);
    assert_int_equal(sw_ckpt_begin(lock, 4, &second), SW_OK);
    assert_true(first != second);
    sw_ckpt_drop(lock, 4, first); /* not the other one's */
    assert_int_equal(count_leftovers(root), 1);
    sw_ckpt_drop(lock, 4, second);
    assert_int_equal(count_leftovers(root), 0);
    sw_ckpt_release(lock);
}

static void nothing_of_a_living_holder_is_removed(void **test_state)
{
    (void)test_state;
    const pid_t holder = start_holder(root, 0);
    assert_int_equal(mkdir(other, 0777), 0);
    assert_int_equal(save_state(root, 5, 1, 1, 0, NAN), SW_E_ARG);
    assert_int_equal(access(other, F_OK), 0);
    end(holder, SIGKILL);
    sw_log_set_level(SW_LOG_ERROR);
    assert_int_equal(save_state(root, 5, 1, 1, 0, NAN), SW_OK);
    assert_int_not_equal(access(other, F_OK), 0);
    assert_int_equal(newest_step(root), 5);
}

/* Only what a save makes is removed by one. */
static void names_of_others_stay(void **test_state)
{
    (void)test_state;
    static const char *const names[] = {"checkpoint-x.tmp", "checkpoint-1.01234567.tmp",
                                        "checkpoint-1.old.tmp", "mine.tmp", "checkpoint-01.tmp"};
    static const char *const ours[] = {"checkpoint-2.tmp", "checkpoint-2.00000000000000ff.tmp"};
    char path[128];
    sw_log_set_level(SW_LOG_ERROR);
    for (size_t i = 0; i < SW_LEN(names); i++) {
        snprintf(path, sizeof(path), "%s/%s", root, names[i]);
        assert_int_equal(mkdir(path, 0777), 0);
    }
    for (size_t i = 0; i < SW_LEN(ours); i++) {
        snprintf(path, sizeof(path), "%s/%s", root, ours[i]);
        assert_int_equal(mkdir(path, 0777), 0);
    }
    assert_int_equal(save_state(root, 5, 1, 1, 0, NAN), SW_OK);
    assert_int_equal(count_leftovers(root), SW_LEN(names));
}

#define CASE(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

static const struct CMUnitTest tests[] = {
    CASE(the_second_is_refused_with_host_and_process_of_the_first),
    CASE(two_of_one_process_exclude_each_other),
    CASE(a_successor_waits_for_a_holder_that_ends),
    CASE(programs_that_are_started_do_not_inherit_it),
    CASE(a_file_system_without_locks_is_named),
    CASE(what_the_lock_file_holds_reaches_no_terminal),
    CASE(a_slow_rank_of_a_dead_job_reaches_no_checkpoint_of_another),
    CASE(two_saves_never_share_a_folder),
    CASE(nothing_of_a_living_holder_is_removed),
    CASE(names_of_others_stay),
};

const struct test_program sw_tests = {TEST_TABLE(tests)};
