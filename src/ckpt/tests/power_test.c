// SPDX-License-Identifier: Apache-2.0
// Loss of power. The system calls of a save are recorded (this program's own write, fsync, rename,
// .. stand in front of the C library's), then for every moment of it the states that a disk may be
// in are built and read: each must give the old checkpoint or the new one.
// The disk is as weak as POSIX allows. Contents: what was written since the last fsync of a file
// may be there, be missing (holes read as zeros), or be torn at 512 bytes, each write by itself.
// Names: what happened to a folder since its last fsync may be lost from some point on, each folder
// by itself.
#include "ckpt/tests/helpers.h"

#include <fcntl.h>
#include <stdarg.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "support/test.h"

enum { MAX_OPS = 1024, MAX_NODES = 256, SECTOR = 512, N_DRAWS = 8, MAX_FD = 256 };

/* ---- what happened: folders and files by number, names as steps of their folder ---- */

enum op_kind { OP_LINK, OP_UNLINK, OP_RENAME, OP_WRITE, OP_SYNC };
struct op {
    enum op_kind kind;
    int node;              /* file or folder that changes */
    int child;             /* LINK: what gets the name */
    char name[64], to[64]; /* LINK, UNLINK, RENAME (within one folder) */
    unsigned char *data;   /* WRITE */
    size_t offset, len;
};

static struct {
    bool on;
    char root[64];
    struct op ops[MAX_OPS];
    int n_ops;
    struct {
        bool is_folder;
    } nodes[MAX_NODES]; /* 0 is the root */
    int n_nodes;
    int fd_node[MAX_FD];
    size_t fd_offset[MAX_FD];
} trace;

static struct op *add_op(enum op_kind kind, int node)
{
    if (trace.n_ops == MAX_OPS) {
        abort();
    }
    struct op *op = &trace.ops[trace.n_ops++];
    memset(op, 0, sizeof(*op));
    op->kind = kind;
    op->node = node;
    return op;
}

/* The child of `folder` called `name` when ops[0 .. n_ops) happened; -1. */
static int find_child(int folder, const char *name)
{
    char wanted[64];
    snprintf(wanted, sizeof(wanted), "%s", name);
    for (int i = trace.n_ops - 1; i >= 0; i--) {
        const struct op *op = &trace.ops[i];
        if (op->node != folder) {
            continue;
        }
        if (op->kind == OP_RENAME && strcmp(op->to, wanted) == 0) {
            snprintf(wanted, sizeof(wanted), "%s", op->name);
        } else if ((op->kind == OP_RENAME || op->kind == OP_UNLINK) &&
                   strcmp(op->name, wanted) == 0) {
            return -1;
        } else if (op->kind == OP_LINK && strcmp(op->name, wanted) == 0) {
            return op->child;
        }
    }
    return -1;
}

/* Folder and last name of a path under the root; -1 for paths elsewhere. */
static int find_folder(const char *path, char name[64])
{
    const size_t len = strlen(trace.root);
    if (!trace.on || strncmp(path, trace.root, len) != 0 || (path[len] && path[len] != '/')) {
        return -1;
    }
    int folder = 0;
    name[0] = '\0';
    for (const char *next = path + len; *next;) {
        next += strspn(next, "/");
        const size_t n = strcspn(next, "/");
        if (n == 0) {
            break;
        }
        if (name[0]) {
            folder = find_child(folder, name);
        }
        snprintf(name, 64, "%.*s", (int)n, next);
        next += n;
    }
    return folder;
}

static int find_node(const char *path)
{
    char name[64];
    const int folder = find_folder(path, name);
    return folder < 0 || !name[0] ? folder : find_child(folder, name);
}

static void link_new(int folder, const char *name, bool is_folder)
{
    struct op *op = add_op(OP_LINK, folder);
    if (trace.n_nodes == MAX_NODES) {
        abort();
    }
    op->child = trace.n_nodes++;
    trace.nodes[op->child].is_folder = is_folder;
    snprintf(op->name, sizeof(op->name), "%s", name);
}

/* ---- in front of the C library ---- */

int open(const char *path, int flags, ...)
{
    va_list args;
    va_start(args, flags);
    const int mode = flags & O_CREAT ? va_arg(args, int) : 0;
    va_end(args);
    char name[64];
    const int folder = find_folder(path, name);
    if (folder >= 0 && flags & O_CREAT && find_node(path) < 0) {
        link_new(folder, name, false);
    }
    const int fd = (int)syscall(SYS_openat, AT_FDCWD, path, flags, mode);
    if (fd >= 0 && fd < MAX_FD) {
        trace.fd_node[fd] = find_node(path);
        trace.fd_offset[fd] = 0;
    }
    return fd;
}

ssize_t write(int fd, const void *data, size_t len)
{
    const ssize_t n = syscall(SYS_write, fd, data, len);
    if (trace.on && n > 0 && fd < MAX_FD && trace.fd_node[fd] > 0) {
        struct op *op = add_op(OP_WRITE, trace.fd_node[fd]);
        op->data = malloc((size_t)n);
        memcpy(op->data, data, (size_t)n);
        op->offset = trace.fd_offset[fd];
        op->len = (size_t)n;
        trace.fd_offset[fd] += (size_t)n;
    }
    return n;
}

int fsync(int fd)
{
    if (trace.on && fd < MAX_FD && trace.fd_node[fd] >= 0) {
        add_op(OP_SYNC, trace.fd_node[fd]);
    }
    return (int)syscall(SYS_fsync, fd);
}

int rename(const char *from, const char *to)
{
    char name[64], new_name[64];
    const int folder = find_folder(from, name), new_folder = find_folder(to, new_name);
    if (folder >= 0) {
        if (folder != new_folder) {
            abort();
        }
        struct op *op = add_op(OP_RENAME, folder);
        snprintf(op->name, sizeof(op->name), "%s", name);
        snprintf(op->to, sizeof(op->to), "%s", new_name);
    }
    return (int)syscall(SYS_renameat, AT_FDCWD, from, AT_FDCWD, to);
}

int mkdir(const char *path, mode_t mode)
{
    char name[64];
    const int folder = find_folder(path, name);
    if (folder >= 0) {
        link_new(folder, name, true);
    }
    return (int)syscall(SYS_mkdirat, AT_FDCWD, path, mode);
}

static void record_unlink(const char *path)
{
    char name[64];
    const int folder = find_folder(path, name);
    if (folder >= 0) {
        snprintf(add_op(OP_UNLINK, folder)->name, 64, "%s", name);
    }
}

int unlink(const char *path)
{
    record_unlink(path);
    return (int)syscall(SYS_unlinkat, AT_FDCWD, path, 0);
}

int rmdir(const char *path)
{
    record_unlink(path);
    return (int)syscall(SYS_unlinkat, AT_FDCWD, path, AT_REMOVEDIR);
}

/* ---- what a disk may hold ---- */

enum policy { ALL, NONE, NAMES_ONLY, DATA_ONLY, DRAWN };

struct cut {
    int end; /* power goes after ops[0 .. end) */
    enum policy policy;
    uint64_t seed;
    bool trust_sync; /* false: as if every fsync did nothing, to see that this test can fail */
};

static uint64_t draw(const struct cut *cut, uint64_t i)
{
    return sw_philox_u64(cut->seed, (uint64_t)cut->end, i);
}

/* Everything of `node` before the answer is on the disk for sure. */
static int durable_end(const struct cut *cut, int node)
{
    for (int i = cut->end; i > 0 && cut->trust_sync; i--) {
        if (trace.ops[i - 1].kind == OP_SYNC && trace.ops[i - 1].node == node) {
            return i;
        }
    }
    return 0;
}

static void build_file(const struct cut *cut, int node, const char *path)
{
    const int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0666);
    assert_true(fd >= 0);
    const int durable = durable_end(cut, node);
    for (int i = 0; i < cut->end; i++) {
        const struct op *op = &trace.ops[i];
        if (op->kind != OP_WRITE || op->node != node) {
            continue;
        }
        const uint64_t fate = draw(cut, (uint64_t)i) % 3; /* there, missing, torn */
        if (i < durable || cut->policy == ALL || cut->policy == DATA_ONLY ||
            (cut->policy == DRAWN && fate == 0)) {
            assert_int_equal(pwrite(fd, op->data, op->len, (off_t)op->offset), op->len);
        } else if (cut->policy == DRAWN && fate == 2) {
            for (size_t at = 0; at < op->len; at += SECTOR) {
                const size_t len = op->len - at < SECTOR ? op->len - at : SECTOR;
                if (draw(cut, (uint64_t)i * 65536 + at / SECTOR) % 2) {
                    assert_int_equal(pwrite(fd, op->data + at, len, (off_t)(op->offset + at)), len);
                }
            }
            if (draw(cut, (uint64_t)i + 7777777) % 2) { /* the size is there, the bytes are not */
                struct stat info;
                assert_int_equal(fstat(fd, &info), 0);
                if (info.st_size < (off_t)(op->offset + op->len)) {
                    assert_int_equal(ftruncate(fd, (off_t)(op->offset + op->len)), 0);
                }
            }
        }
    }
    close(fd);
}

struct name {
    char text[64];
    int node;
};

/* Names in a folder after a prefix of its changes. */
static int names_of(const struct cut *cut, int folder, struct name out[MAX_NODES])
{
    const int durable = durable_end(cut, folder);
    int n_pending = 0, n = 0;
    for (int i = durable; i < cut->end; i++) {
        n_pending += trace.ops[i].node == folder && trace.ops[i].kind <= OP_RENAME;
    }
    int n_kept = cut->policy == ALL || cut->policy == NAMES_ONLY ? n_pending : 0;
    if (cut->policy == DRAWN) {
        n_kept = (int)(draw(cut, (uint64_t)folder + 1000000) % (uint64_t)(n_pending + 1));
    }
    for (int i = 0; i < cut->end; i++) {
        const struct op *op = &trace.ops[i];
        if (op->node != folder || op->kind > OP_RENAME || (i >= durable && n_kept-- <= 0)) {
            continue;
        }
        int moved = op->child;
        const char *gone = op->kind == OP_RENAME ? op->to : op->name;
        for (int k = n - 1; k >= 0; k--) {
            if (op->kind == OP_RENAME && strcmp(out[k].text, op->name) == 0) {
                moved = out[k].node;
                out[k] = out[--n];
            }
        }
        for (int k = n - 1; k >= 0; k--) {
            if (strcmp(out[k].text, gone) == 0) {
                out[k] = out[--n];
            }
        }
        if (op->kind != OP_UNLINK) {
            snprintf(out[n].text, sizeof(out[n].text), "%s", gone);
            out[n++].node = moved;
        }
    }
    return n;
}

static void build_folder(const struct cut *cut, int folder, const char *path)
{
    struct name names[MAX_NODES];
    const int n = names_of(cut, folder, names);
    assert_int_equal(mkdir(path, 0777), 0);
    for (int i = 0; i < n; i++) {
        char child[256];
        snprintf(child, sizeof(child), "%.180s/%.63s", path, names[i].text);
        if (trace.nodes[names[i].node].is_folder) {
            build_folder(cut, names[i].node, child);
        } else {
            build_file(cut, names[i].node, child);
        }
    }
}

/* ---- the saves ---- */

struct scenario {
    int64_t old_step, new_step; /* old 0: there is none */
    int n_writers;
};
static const struct scenario scenarios[] = {{0, 7, 1}, {5, 7, 1}, {7, 7, 1}, {5, 7, 3}};
enum { OLD_SEED = 11, NEW_SEED = 22 };

static void forget(void)
{
    for (int i = 0; i < trace.n_ops; i++) {
        free(trace.ops[i].data);
    }
    memset(&trace, 0, sizeof(trace));
    for (int fd = 0; fd < MAX_FD; fd++) {
        trace.fd_node[fd] = -1;
    }
    trace.n_nodes = 1;
    trace.nodes[0].is_folder = true;
}

/* Records the old and the new save; *out_old_end: ops of the old one. */
static void record(const struct scenario *scenario, const char *root, int *out_old_end)
{
    char dir[128];
    forget();
    snprintf(trace.root, sizeof(trace.root), "%s/real", root);
    snprintf(dir, sizeof(dir), "%s/run", trace.root);
    assert_int_equal(mkdir(trace.root, 0777), 0);
    trace.on = true;
    if (scenario->old_step) {
        assert_int_equal(save_state(dir, scenario->old_step, OLD_SEED, 1, 1, 0.5), SW_OK);
    }
    *out_old_end = trace.n_ops;
    assert_int_equal(save_state(dir, scenario->new_step, NEW_SEED, scenario->n_writers, 1, 0.25),
                     SW_OK);
    trace.on = false;
}

/* 0: neither; 1: old; 2: new. A folder without a checkpoint is old where there was none. */
static int read_cut(const struct scenario *scenario, const struct cut *cut, const char *root)
{
    char path[128], dir[160];
    snprintf(path, sizeof(path), "%s/cut", root);
    snprintf(dir, sizeof(dir), "%s/run", path);
    build_folder(cut, 0, path);
    const int64_t step = newest_step(dir);
    int got = step == 0 && scenario->old_step == 0;
    if (step > 0) {
        struct sw_ckpt *ckpt;
        assert_int_equal(sw_ckpt_open(dir, &ckpt), SW_OK);
        const uint64_t seed = sw_ckpt_meta(ckpt)->seed;
        got = step == scenario->new_step && seed == NEW_SEED   ? 2
              : step == scenario->old_step && seed == OLD_SEED ? 1
                                                               : 0;
        sw_ckpt_close(ckpt);
    }
    if (cut->trust_sync && cut->seed % 4 == 0) { /* and the run goes on */
        assert_int_equal(save_state(dir, 9, 33, 2, 1, NAN), SW_OK);
        assert_int_equal(newest_step(dir), 9);
        assert_int_equal(count_leftovers(dir), 0);
    }
    remove_tree(path);
    return got;
}

struct result {
    int n_states, n_bad, n_old, n_new;
};

static struct result replay(const struct scenario *scenario, const char *root, int old_end,
                            bool trust_sync)
{
    struct result result = {0};
    const int step = trust_sync ? 1 : 5;
    for (int end = old_end; end <= trace.n_ops; end += step) {
        for (int i = 0; i < DRAWN + N_DRAWS; i++) {
            const struct cut cut = {.end = end,
                                    .policy = i < DRAWN ? (enum policy)i : DRAWN,
                                    .seed = (uint64_t)i,
                                    .trust_sync = trust_sync};
            const int got = read_cut(scenario, &cut, root);
            const bool bad = got == 0 || (end == trace.n_ops && got != 2);
            if (bad && trust_sync) {
                print_error("power lost after call %d of %d, policy %d, seed %d\n", end - old_end,
                            trace.n_ops - old_end, (int)cut.policy, i);
            }
            result.n_states++;
            result.n_bad += bad;
            result.n_old += got == 1;
            result.n_new += got == 2;
        }
    }
    return result;
}

/* Checks that replaying the whole recording gives the current state of the folder. */
static void assert_recorded_all(const char *root)
{
    char path[128], command[400];
    const struct cut everything = {.end = trace.n_ops, .policy = ALL, .trust_sync = true};
    snprintf(path, sizeof(path), "%s/copy", root);
    build_folder(&everything, 0, path);
    snprintf(command, sizeof(command), "diff -r '%s' '%s'", trace.root, path);
    assert_int_equal(system(command), 0);
}

static void old_or_new_after_any_loss_of_power(void **test_state)
{
    (void)test_state;
    sw_log_set_level(SW_LOG_ERROR);
    for (size_t i = 0; i < SW_LEN(scenarios); i++) {
        char root[64];
        int old_end;
        make_root(root);
        record(&scenarios[i], root, &old_end);
        assert_recorded_all(root);
        const struct result result = replay(&scenarios[i], root, old_end, true);
        print_message("scenario %d: %d calls, %d states, %d old, %d new\n", (int)i,
                      trace.n_ops - old_end, result.n_states, result.n_old, result.n_new);
        assert_int_equal(result.n_bad, 0);
        assert_true(result.n_old > 0 && result.n_new > 0);
        remove_tree(root);
    }
    forget();
}

static void without_fsync_the_replay_finds_it(void **test_state)
{
    (void)test_state;
    char root[64];
    int old_end;
    make_root(root);
    record(&scenarios[1], root, &old_end);
    const struct result result = replay(&scenarios[1], root, old_end, false);
    assert_true(result.n_bad > 0);
    remove_tree(root);
    forget();
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(old_or_new_after_any_loss_of_power),
    cmocka_unit_test(without_fsync_the_replay_finds_it),
};

const struct test_program sw_tests = {TEST_TABLE(tests)};
