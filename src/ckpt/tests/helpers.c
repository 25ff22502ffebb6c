// SPDX-License-Identifier: Apache-2.0
// The training state of the checkpoint tests.
#include "ckpt/tests/helpers.h"

#include <dirent.h>
#include <ftw.h>
#include <unistd.h>

#include "support/test.h"

enum { N_TENSORS = 9, MAX_ELEMS = 60, MAX_BOXES = N_TENSORS * SW_BOX_MAX_OF_RANGE };

static const struct sw_ckpt_entry state[N_TENSORS] = {
    {"wte.weight", "master", SW_F32, {2, {7, 5}}},
    {"wte.weight", "exp_avg", SW_F32, {2, {7, 5}}},
    {"h.0.bias", "master", SW_F32, {1, {13}}},
    {"h.0.cube", "master", SW_F32, {3, {3, 4, 5}}},
    {"h.0.deep", "master", SW_F64, {4, {2, 3, 1, 4}}},
    {"scale", "master", SW_F32, {0, {0}}},
    {"none", "master", SW_F32, {2, {0, 3}}},
    {"h.0.half", "work", SW_BF16, {1, {9}}},
    {"count", "rows", SW_I64, {2, {3, 3}}},
};

/* Small whole numbers are exact in every dtype. */
static double value_at(uint64_t seed, const struct sw_ckpt_entry *entry, int64_t place)
{
    const uint64_t h = sw_hash_str(sw_hash_str(SW_HASH_INIT, entry->param), entry->kind);
    return (double)(sw_philox_u64(seed, h, (uint64_t)place) % 255) - 127;
}

/* Place in the whole tensor of element i of a box. */
static int64_t place_of(const struct sw_shape *shape, const struct sw_box *box, int64_t i)
{
    int64_t place = 0, stride = 1;
    for (int d = shape->rank - 1; d >= 0; d--) {
        place += (box->start[d] + i % box->dims[d]) * stride;
        i /= box->dims[d];
        stride *= shape->dims[d];
    }
    return place;
}

struct source {
    const struct sw_ckpt_tensor *tensors;
    uint64_t seed;
};

static sw_status read_source(void *ctx, int64_t i_tensor, int64_t first, int64_t n, void *dst)
{
    const struct source *source = ctx;
    const struct sw_ckpt_tensor *t = &source->tensors[i_tensor];
    const struct sw_ckpt_entry entry = {t->param, t->kind, t->dtype, t->shape};
    for (int64_t i = 0; i < n; i++) {
        sw_store_f64(t->dtype, dst, i,
                     value_at(source->seed, &entry, place_of(&t->shape, &t->box, first + i)));
    }
    return SW_OK;
}

/* Slice `rank` of n_writers of every tensor, as boxes. */
static int64_t cut(int rank, int n_writers, struct sw_ckpt_tensor out[MAX_BOXES])
{
    int64_t n = 0;
    for (int i = 0; i < N_TENSORS; i++) {
        const struct sw_ckpt_entry *e = &state[i];
        const int64_t n_elems = sw_shape_elems(&e->shape);
        const int64_t first = n_elems * rank / n_writers;
        const int64_t end = n_elems * (rank + 1) / n_writers;
        struct sw_box boxes[SW_BOX_MAX_OF_RANGE] = {sw_box_whole(&e->shape)};
        const int n_boxes =
            n_elems ? sw_box_of_range(&e->shape, first, end - first, boxes) : rank == 0;
        for (int b = 0; b < n_boxes; b++) {
            out[n++] = (struct sw_ckpt_tensor){e->param, e->kind, e->dtype, e->shape, boxes[b]};
        }
    }
    return n;
}

static sw_status save_holding(const struct sw_ckpt_lock *lock, int64_t step, uint64_t seed,
                              int n_writers, int keep_last, double val_loss)
{
    const struct sw_ckpt_save_options options = {.lock = lock, .keep_last = keep_last};
    struct sw_ckpt_tensor tensors[MAX_BOXES];
    struct source source = {tensors, seed};
    const struct sw_ckpt_meta meta = {.step = step,
                                      .applied = step - 1,
                                      .samples = 3 * step,
                                      .seed = seed,
                                      .val_loss = val_loss,
                                      .fingerprint = UINT64_C(0xfedcba9876543210),
                                      .kernel_set = "reference",
                                      .algorithms = "1x2x3: own",
                                      .scaler = {0.1, step, -1, 2}};
    if (n_writers == 1) {
        const int64_t n = cut(0, 1, tensors);
        return sw_ckpt_save(&options, &meta, tensors, n, read_source, &source);
    }
    uint64_t token;
    SW_TRY(sw_ckpt_begin(lock, step, &token));
    for (int rank = n_writers - 1; rank >= 0; rank--) {
        const int64_t n = cut(rank, n_writers, tensors);
        SW_TRY(sw_ckpt_write_part(sw_ckpt_lock_dir(lock), step, token, rank, tensors, n,
                                  read_source, &source));
    }
    SW_TRY(sw_ckpt_commit(&options, &meta, token, n_writers));
    return SW_OK;
}

sw_status save_state(const char *dir, int64_t step, uint64_t seed, int n_writers, int keep_last,
                     double val_loss)
{
    struct sw_ckpt_lock *lock;
    SW_TRY(sw_ckpt_acquire(dir, 0, &lock));
    const sw_status st = save_holding(lock, step, seed, n_writers, keep_last, val_loss);
    sw_ckpt_release(lock);
    return st;
}

/* ---- checking ---- */

static const char *check_box(struct sw_ckpt *ckpt, int64_t i_tensor, const struct sw_box *box)
{
    const uint64_t seed = sw_ckpt_meta(ckpt)->seed;
    const struct sw_ckpt_entry *e = sw_ckpt_entry(ckpt, i_tensor);
    const enum sw_dtype dtype = e->dtype == SW_BF16 ? SW_F32 : e->dtype;
    double memory[MAX_ELEMS] = {0};
    const int64_t n = sw_box_elems(e->shape.rank, box);
    if (sw_ckpt_read(ckpt, i_tensor, box, dtype, memory) < 0) {
        return sw_error_message();
    }
    for (int64_t i = 0; i < n; i++) {
        if (sw_load_f64(dtype, memory, i) != value_at(seed, e, place_of(&e->shape, box, i))) {
            return e->param;
        }
    }
    return NULL;
}

static const char *check_flat(struct sw_ckpt *ckpt, int64_t i_tensor, int64_t first, int64_t n)
{
    const struct sw_ckpt_entry *e = sw_ckpt_entry(ckpt, i_tensor);
    double memory[MAX_ELEMS] = {0};
    if (sw_ckpt_read_flat(ckpt, i_tensor, first, n, e->dtype, memory) < 0) {
        return sw_error_message();
    }
    for (int64_t i = 0; i < n; i++) {
        const double wanted = value_at(sw_ckpt_meta(ckpt)->seed, e, first + i);
        if (sw_load_f64(e->dtype, memory, i) != wanted) {
            return e->param;
        }
    }
    return NULL;
}

/* The whole, every flat range of a few, and boxes by a seeded draw. */
static const char *check_tensor(struct sw_ckpt *ckpt, const struct sw_ckpt_entry *wanted)
{
    const int64_t i = sw_ckpt_find(ckpt, wanted->param, wanted->kind);
    if (i < 0 || !sw_shape_equal(&sw_ckpt_entry(ckpt, i)->shape, &wanted->shape) ||
        sw_ckpt_entry(ckpt, i)->dtype != wanted->dtype) {
        return wanted->param;
    }
    const struct sw_box whole = sw_box_whole(&wanted->shape);
    const char *problem = check_box(ckpt, i, &whole);
    const int64_t n_elems = sw_shape_elems(&wanted->shape);
    for (int64_t n_parts = 2; n_parts <= 4 && !problem; n_parts++) {
        for (int64_t part = 0; part < n_parts && !problem; part++) {
            const int64_t first = n_elems * part / n_parts;
            problem = check_flat(ckpt, i, first, n_elems * (part + 1) / n_parts - first);
        }
    }
    for (uint64_t draw = 0; draw < 8 && !problem; draw++) {
        struct sw_box box = {0};
        for (int d = 0; d < wanted->shape.rank; d++) {
            const uint64_t u = sw_philox_u64(7, draw, (uint64_t)d);
            box.start[d] = (int64_t)(u % 1000) % (wanted->shape.dims[d] + 1);
            box.dims[d] = (int64_t)(u / 1000 % 1000) % (wanted->shape.dims[d] - box.start[d] + 1);
        }
        problem = check_box(ckpt, i, &box);
    }
    return problem;
}

const char *check_state(struct sw_ckpt *ckpt)
{
    const struct sw_ckpt_meta *meta = sw_ckpt_meta(ckpt);
    if (sw_ckpt_n_tensors(ckpt) != N_TENSORS) {
        return "the number of tensors";
    }
    if (meta->applied != meta->step - 1 || meta->samples != 3 * meta->step ||
        meta->fingerprint != UINT64_C(0xfedcba9876543210) || meta->scaler.scale != 0.1 ||
        meta->scaler.iteration != meta->step || meta->scaler.last_overflow != -1 ||
        meta->scaler.hysteresis_left != 2 || strcmp(meta->kernel_set, "reference") != 0 ||
        !meta->algorithms || strcmp(meta->algorithms, "1x2x3: own") != 0) {
        return "the meta data";
    }
    for (int i = 0; i < N_TENSORS; i++) {
        const char *problem = check_tensor(ckpt, &state[i]);
        if (problem) {
            return problem;
        }
    }
    return sw_ckpt_verify(ckpt) < 0 ? sw_error_message() : NULL;
}

int64_t newest_step(const char *dir)
{
    struct sw_ckpt *ckpt;
    const sw_status st = sw_ckpt_open(dir, &ckpt);
    if (st == SW_PENDING) {
        return 0;
    }
    const char *problem = st < 0 ? sw_error_message() : check_state(ckpt);
    const int64_t step = st < 0 || problem ? -1 : sw_ckpt_meta(ckpt)->step;
    if (problem) {
        print_error("%s: %s\n", dir, problem);
    }
    if (st == SW_OK) {
        sw_ckpt_close(ckpt);
    }
    return step;
}

/* ---- folders ---- */

void make_root(char *path)
{
    strcpy(path, access("/dev/shm", W_OK) == 0 ? "/dev/shm/spillway-ckpt-XXXXXX"
                                               : "/tmp/spillway-ckpt-XXXXXX");
    assert_non_null(mkdtemp(path));
}

static int remove_one(const char *path, const struct stat *info, int type, struct FTW *place)
{
    (void)info;
    (void)type;
    (void)place;
    return remove(path);
}

void remove_tree(const char *path)
{
    assert_int_equal(nftw(path, remove_one, 8, FTW_DEPTH | FTW_PHYS), 0);
}

int count_leftovers(const char *dir)
{
    int n = 0;
    DIR *folder = opendir(dir);
    for (struct dirent *entry; folder && (entry = readdir(folder));) {
        const char *dot = strrchr(entry->d_name, '.');
        n += dot && (strcmp(dot, ".tmp") == 0 || strcmp(dot, ".old") == 0);
    }
    if (folder) {
        closedir(folder);
    }
    return n;
}
