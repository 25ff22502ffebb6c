// SPDX-License-Identifier: Apache-2.0
// A load gives what was saved: odd shapes, one to five writers, other boxes than were written.
// Damage is named. Retention keeps and deletes the right checkpoints.
#include "ckpt/private.h"
#include "ckpt/tests/helpers.h"
#include "hf/hf.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "support/test.h"

static char root[64];

static int setup(void **test_state)
{
    (void)test_state;
    make_root(root);
    return 0;
}

static struct sw_ckpt_lock *held;

/* The folder, until the end of the test. */
static const struct sw_ckpt_lock *hold(void)
{
    assert_int_equal(sw_ckpt_acquire(root, 0, &held), SW_OK);
    return held;
}

static int teardown(void **test_state)
{
    (void)test_state;
    sw_ckpt_release(held);
    held = NULL;
    sw_log_set_level(SW_LOG_WARN);
    remove_tree(root);
    return 0;
}

static const char *in_root(const char *name)
{
    static char path[2][256];
    static int i;
    i = !i;
    snprintf(path[i], sizeof(path[i]), "%s/%s", root, name);
    return path[i];
}

/* ---- boxes ---- */

/* Every range of a shape: its boxes, one after the other, name exactly its elements in order. */
static void check_ranges(const struct sw_shape *shape)
{
    const int64_t n_all = sw_shape_elems(shape);
    for (int64_t first = 0; first <= n_all; first++) {
        for (int64_t n = 0; n <= n_all - first; n++) {
            struct sw_box boxes[SW_BOX_MAX_OF_RANGE];
            const int n_boxes = sw_box_of_range(shape, first, n, boxes);
            assert_true(n_boxes <= SW_BOX_MAX_OF_RANGE);
            int64_t next = first;
            for (int b = 0; b < n_boxes; b++) {
                const int64_t n_elems = sw_box_elems(shape->rank, &boxes[b]);
                for (int64_t i = 0; i < n_elems; i++) {
                    int64_t place = 0, stride = 1, rest = i;
                    for (int d = shape->rank - 1; d >= 0; d--) {
                        place += (boxes[b].start[d] + rest % boxes[b].dims[d]) * stride;
                        rest /= boxes[b].dims[d];
                        stride *= shape->dims[d];
                    }
                    assert_int_equal(place, next);
                    next++;
                }
            }
            assert_int_equal(next, first + n);
        }
    }
}

static void ranges_become_boxes(void **test_state)
{
    (void)test_state;
    check_ranges(&(struct sw_shape){0});
    check_ranges(&(struct sw_shape){1, {7}});
    check_ranges(&(struct sw_shape){2, {5, 1}});
    check_ranges(&(struct sw_shape){2, {4, 3}});
    check_ranges(&(struct sw_shape){3, {3, 4, 5}});
    check_ranges(&(struct sw_shape){5, {2, 1, 3, 1, 4}});
    check_ranges(&(struct sw_shape){2, {0, 3}});
}

/* ---- identity ---- */

static void any_number_of_writers(void **test_state)
{
    (void)test_state;
    for (int n_writers = 1; n_writers <= 5; n_writers++) {
        assert_int_equal(save_state(root, n_writers, (uint64_t)n_writers, n_writers, 0, 0.5),
                         SW_OK);
        assert_int_equal(newest_step(root), n_writers);
    }
}

/* More than one piece, so that the pieces of a save and the window of a load both end in the
 * middle. */
enum { BIG_ROWS = 1003, BIG_COLUMNS = 307 };

static sw_status count_up(void *ctx, int64_t i_tensor, int64_t first, int64_t n, void *dst)
{
    (void)ctx;
    (void)i_tensor;
    assert_true(n * (int64_t)sizeof(float) <= SW_CKPT_PIECE_BYTES);
    for (int64_t i = 0; i < n; i++) {
        ((float *)dst)[i] = (float)(first + i);
    }
    return SW_OK;
}

static void large_tensors_in_pieces(void **test_state)
{
    (void)test_state;
    const struct sw_shape shape = {2, {BIG_ROWS, BIG_COLUMNS}};
    const struct sw_ckpt_tensor tensor = {"big", "master", SW_F32, shape, sw_box_whole(&shape)};
    const struct sw_ckpt_save_options options = {.lock = hold()};
    const struct sw_ckpt_meta meta = {.step = 1, .val_loss = NAN, .scaler.scale = 1};
    assert_int_equal(sw_ckpt_save(&options, &meta, &tensor, 1, count_up, NULL), SW_OK);
    struct sw_ckpt *ckpt;
    assert_int_equal(sw_ckpt_open(root, &ckpt), SW_OK);
    const int64_t n_all = sw_shape_elems(&shape);
    float *whole = malloc((size_t)n_all * sizeof(float));
    assert_int_equal(sw_ckpt_read(ckpt, 0, NULL, SW_F32, whole), SW_OK);
    for (int64_t i = 0; i < n_all; i++) {
        assert_true(whole[i] == (float)i);
    }
    const struct sw_box columns = {{2, 100}, {BIG_ROWS - 2, 3}};
    assert_int_equal(sw_ckpt_read(ckpt, 0, &columns, SW_F32, whole), SW_OK);
    for (int64_t i = 0; i < 3 * (BIG_ROWS - 2); i++) {
        assert_true(whole[i] == (float)((2 + i / 3) * BIG_COLUMNS + 100 + i % 3));
    }
    free(whole);
    assert_int_equal(sw_ckpt_verify(ckpt), SW_OK);
    sw_ckpt_close(ckpt);
}

static void reading_what_is_not_there(void **test_state)
{
    (void)test_state;
    assert_int_equal(save_state(root, 1, 1, 2, 0, NAN), SW_OK);
    struct sw_ckpt *ckpt;
    assert_int_equal(sw_ckpt_open(root, &ckpt), SW_OK);
    float out[64];
    assert_int_equal(sw_ckpt_find(ckpt, "wte.weight", "momentum"), -1);
    const int64_t i = sw_ckpt_find(ckpt, "wte.weight", "master");
    assert_true(i >= 0);
    assert_int_equal(sw_ckpt_read_flat(ckpt, i, 30, 6, SW_F32, out), SW_E_ARG);
    assert_int_equal(sw_ckpt_read(ckpt, i, &(struct sw_box){{0, 0}, {7, 6}}, SW_F32, out),
                     SW_E_ARG);
    assert_non_null(strstr(sw_error_message(), "[0:7,0:6]"));
    assert_int_equal(sw_ckpt_read(ckpt, i, NULL, SW_I32, out), SW_E_ARG);
    assert_int_equal(sw_ckpt_read(ckpt, -1, NULL, SW_F32, out), SW_E_ARG);
    sw_ckpt_close(ckpt);
    assert_int_equal(sw_ckpt_open(in_root("nowhere"), &ckpt), SW_PENDING);
    assert_int_equal(sw_ckpt_open(in_root("checkpoint-77"), &ckpt), SW_E_IO);
}

static void gaps_and_overlaps_are_refused(void **test_state)
{
    (void)test_state;
    const struct sw_shape shape = {2, {4, 3}};
    struct sw_ckpt_tensor two[] = {{"w", "master", SW_F32, shape, {{0, 0}, {2, 3}}},
                                   {"w", "master", SW_F32, shape, {{3, 0}, {1, 3}}}};
    const struct sw_ckpt_save_options options = {.lock = hold()};
    const struct sw_ckpt_meta meta = {.step = 1, .val_loss = NAN, .scaler.scale = 1};
    assert_int_equal(sw_ckpt_save(&options, &meta, two, 2, count_up, NULL), SW_E_FORMAT);
    assert_non_null(strstr(sw_error_message(), "9 of its 12"));
    two[1].box = (struct sw_box){{1, 1}, {3, 2}};
    assert_int_equal(sw_ckpt_save(&options, &meta, two, 2, count_up, NULL), SW_E_FORMAT);
    assert_non_null(strstr(sw_error_message(), "[1:2,1:3]"));
    two[1].box = (struct sw_box){{2, 0}, {3, 3}};
    assert_int_equal(sw_ckpt_save(&options, &meta, two, 2, count_up, NULL), SW_E_ARG);
    assert_int_equal(newest_step(root), 0);
    assert_int_equal(count_leftovers(root), 0);
}

static void check_cover(struct ckpt_stored *tensor, sw_status wanted, const char *named)
{
    const sw_status st = sw_ckpt_check_cover("there", tensor);
    if (st != wanted || (st < 0 && !strstr(sw_error_message(), named))) {
        fail_msg("%d: %s", st, st < 0 ? sw_error_message() : "covered");
    }
}

/* A row of boxes that all begin at the same place of the first axis: pair by pair these would be
 * 2^37 comparisons. */
static void many_boxes_are_checked_one_by_one(void **test_state)
{
    (void)test_state;
    enum { N = 1 << 19 };
    struct ckpt_stored tensor = {.entry = {"w", "master", SW_F32, {3, {2, N, 3}}}, .n_pieces = N};
    tensor.pieces = calloc(N, sizeof(*tensor.pieces));
    for (int64_t i = 0; i < N; i++) {
        tensor.pieces[i].box = (struct sw_box){{0, N - 1 - i, 0}, {2, 1, 3}};
    }
    check_cover(&tensor, SW_OK, "");
    tensor.n_pieces--;
    check_cover(&tensor, SW_E_FORMAT, "there: w (master) has 3145722 of its 3145728 elements");
    tensor.n_pieces++;
    tensor.pieces[N - 1].box.start[1] = tensor.pieces[N - 2].box.start[1];
    check_cover(&tensor, SW_E_FORMAT, "there: w (master)"); /* the rest names the overlap */
    free(tensor.pieces);
}

/* Boxes from random cuts of three axes cover the tensor, in any order. With a box moved, missing or
 * duplicated they do not. */
static void boxes_of_any_cut_cover_a_tensor(void **test_state)
{
    (void)test_state;
    for (uint64_t draw = 0; draw < 200; draw++) {
        struct ckpt_piece pieces[65];
        struct ckpt_stored tensor = {.entry = {"w", "m", SW_F32, {3, {9, 8, 7}}}, .pieces = pieces};
        pieces[0].box = sw_box_whole(&tensor.entry.shape);
        tensor.n_pieces = 1;
        for (uint64_t i = 0; i < 40; i++) { /* a box becomes two */
            const uint64_t u = sw_philox_u64(7, draw, i);
            struct sw_box *box = &pieces[u % (uint64_t)tensor.n_pieces].box;
            const int axis = (int)(u >> 32) % 3;
            if (box->dims[axis] > 1) {
                struct sw_box *rest = &pieces[tensor.n_pieces++].box;
                const int64_t at = 1 + (int64_t)(u >> 40) % (box->dims[axis] - 1);
                *rest = *box;
                rest->start[axis] += at;
                rest->dims[axis] -= at;
                box->dims[axis] = at;
            }
        }
        check_cover(&tensor, SW_OK, "");
        pieces[tensor.n_pieces] = pieces[draw % (uint64_t)tensor.n_pieces];
        tensor.n_pieces++;
        check_cover(&tensor, SW_E_FORMAT, "is stored twice at");
        tensor.n_pieces -= 2;
        check_cover(&tensor, SW_E_FORMAT, "");
    }
}

/* Checks the files as another reader sees them: every rule of the format holds, and keys name their
 * boxes. */
static void data_files_are_safetensors(void **test_state)
{
    (void)test_state;
    struct sw_safetensors *file;
    assert_int_equal(save_state(root, 1, 1, 1, 0, NAN), SW_OK);
    assert_int_equal(sw_safetensors_open(in_root("checkpoint-1/part-00000.safetensors"), &file),
                     SW_OK);
    const struct sw_safetensor *whole = sw_safetensors_find(file, "exp_avg/wte.weight");
    assert_non_null(whole);
    assert_true(whole->shape.rank == 2 && whole->shape.dims[0] == 7 && whole->shape.dims[1] == 5);
    struct sw_ckpt *ckpt;
    float values[35];
    assert_int_equal(sw_ckpt_open(root, &ckpt), SW_OK);
    assert_int_equal(sw_ckpt_n_tensors(ckpt), sw_safetensors_count(file));
    const int64_t i = sw_ckpt_find(ckpt, "wte.weight", "exp_avg");
    assert_int_equal(sw_ckpt_read(ckpt, i, NULL, SW_F32, values), SW_OK);
    assert_memory_equal(values, whole->data, sizeof(values));
    sw_ckpt_close(ckpt);
    sw_safetensors_close(file);
    assert_int_equal(save_state(root, 2, 1, 3, 0, NAN), SW_OK);
    assert_int_equal(sw_safetensors_open(in_root("checkpoint-2/part-00000.safetensors"), &file),
                     SW_OK);
    assert_non_null(sw_safetensors_find(file, "exp_avg/wte.weight[0:2,0:5]"));
    sw_safetensors_close(file);
}

/* ---- damage ---- */

static void flip_byte(const char *path, off_t at)
{
    const int fd = open(path, O_RDWR);
    unsigned char byte;
    assert_true(fd >= 0);
    assert_int_equal(pread(fd, &byte, 1, at), 1);
    byte ^= 1;
    assert_int_equal(pwrite(fd, &byte, 1, at), 1);
    close(fd);
}

static void a_changed_byte_is_found(void **test_state)
{
    (void)test_state;
    const char *data = "checkpoint-1/part-00001.safetensors";
    assert_int_equal(save_state(root, 1, 1, 3, 0, NAN), SW_OK);
    struct stat info;
    assert_int_equal(stat(in_root(data), &info), 0);
    for (off_t at = 0; at < info.st_size; at += 37) {
        struct sw_ckpt *ckpt;
        flip_byte(in_root(data), at);
        assert_int_equal(sw_ckpt_open(root, &ckpt), SW_OK);
        assert_int_equal(sw_ckpt_verify(ckpt), SW_E_FORMAT);
        assert_non_null(strstr(sw_error_message(), "part-00001.safetensors"));
        sw_ckpt_close(ckpt);
        flip_byte(in_root(data), at);
    }
    assert_int_equal(newest_step(root), 1);
}

static void expect_refused(const char *what, const char *hint)
{
    struct sw_ckpt *ckpt;
    assert_int_equal(sw_ckpt_open(root, &ckpt), SW_E_FORMAT);
    if (!strstr(sw_error_message(), what) || !strstr(sw_error_message(), hint)) {
        fail_msg("%s; wanted \"%s\" and \"%s\"", sw_error_message(), what, hint);
    }
}

/* Every byte, flipped; every length, cut off: never a crash, never taken for whole. */
static void a_damaged_manifest_is_refused_by_name(void **test_state)
{
    (void)test_state;
    const char *manifest = "checkpoint-2/manifest.json";
    assert_int_equal(save_state(root, 1, 1, 1, 0, NAN), SW_OK);
    assert_int_equal(save_state(root, 2, 2, 2, 0, NAN), SW_OK);
    sw_log_set_level(SW_LOG_ERROR);
    struct stat info;
    assert_int_equal(stat(in_root(manifest), &info), 0);
    for (off_t at = 0; at < info.st_size; at += 101) {
        flip_byte(in_root(manifest), at);
        expect_refused("checkpoint-2 is damaged", "the one before is");
        flip_byte(in_root(manifest), at);
    }
    assert_int_equal(newest_step(root), 2);
    for (off_t len = info.st_size - 1; len > 0; len -= 103) {
        assert_int_equal(truncate(in_root(manifest), len), 0);
        expect_refused("checkpoint-2 is damaged", "checkpoint-1");
    }
    struct sw_ckpt *ckpt;
    assert_int_equal(sw_ckpt_open(in_root("checkpoint-2"), &ckpt), SW_E_FORMAT);
    assert_non_null(strstr(sw_error_message(), "checkpoint-2/manifest.json"));
}

static void a_short_file_is_refused_by_name(void **test_state)
{
    (void)test_state;
    assert_int_equal(save_state(root, 1, 1, 1, 0, NAN), SW_OK);
    assert_int_equal(save_state(root, 2, 2, 2, 0, NAN), SW_OK);
    assert_int_equal(truncate(in_root("checkpoint-2/part-00001.safetensors"), 100), 0);
    expect_refused("part-00001.safetensors has 100 bytes", "checkpoint-1");
    assert_int_equal(truncate(in_root("checkpoint-1/part-00000.safetensors"), 100), 0);
    expect_refused("checkpoint-2 is damaged", "there is no other");
}

static char logged[512];

static void keep_line(void *ctx, enum sw_log_level level, const char *text)
{
    (void)ctx;
    (void)level;
    snprintf(logged, sizeof(logged), "%s", text);
}

static void an_old_damaged_checkpoint_is_only_named(void **test_state)
{
    (void)test_state;
    assert_int_equal(save_state(root, 1, 1, 1, 0, NAN), SW_OK);
    assert_int_equal(save_state(root, 2, 2, 2, 0, NAN), SW_OK);
    assert_int_equal(truncate(in_root("checkpoint-1/part-00000.safetensors"), 100), 0);
    sw_log_set_sink(keep_line, NULL);
    const int64_t step = newest_step(root);
    sw_log_set_sink(NULL, NULL);
    assert_int_equal(step, 2);
    assert_non_null(strstr(logged, "checkpoint-1 is damaged: "));
    assert_non_null(strstr(logged, "part-00000.safetensors has 100 bytes"));
}

static void what_is_set_aside_is_no_checkpoint(void **test_state)
{
    (void)test_state;
    struct sw_str name = {0};
    for (int i = 0; i < 2; i++) { /* the second time the name is taken */
        assert_int_equal(save_state(root, 1, 1, 1, 0, NAN), SW_OK);
        assert_int_equal(save_state(root, 2, 2, 2, 0, NAN), SW_OK);
        assert_int_equal(sw_ckpt_set_aside(in_root("checkpoint-2"), &name), SW_OK);
        assert_int_equal(newest_step(root), 1);
        assert_int_equal(access(sw_str_text(&name), F_OK), 0);
    }
    assert_non_null(strstr(sw_str_text(&name), "checkpoint-2.set-aside-2"));
    assert_int_equal(access(in_root("checkpoint-2.set-aside"), F_OK), 0);
    sw_str_fini(&name);
}

/* The text of a manifest with `from` replaced by `to` and a check that fits. */
static void edit_manifest(const char *path, const char *from, const char *to)
{
    char *text, tail[32];
    size_t len;
    assert_int_equal(sw_file_read(path, &text, &len), SW_OK);
    char *at = strstr(text, from);
    assert_non_null(at);
    const char *check = strstr(text, ",\"check\":\"");
    struct sw_str edited = {0};
    sw_str_append(&edited, text, (size_t)(at - text));
    sw_str_puts(&edited, to);
    at += strlen(from);
    sw_str_append(&edited, at, (size_t)(check - at));
    snprintf(tail, sizeof(tail), ",\"check\":\"%08x\"}\n", sw_crc32c(0, edited.ptr, edited.len));
    sw_str_puts(&edited, tail);
    assert_int_equal(sw_file_write_atomic(path, edited.ptr, edited.len), SW_OK);
    sw_str_fini(&edited);
    sw_free(text);
}

/* A manifest that a stranger wrote, with a check that fits. */
static void numbers_have_bounds_and_members_their_types(void **test_state)
{
    (void)test_state;
    static const struct {
        const char *from, *to, *says;
    } cases[] = {
        {"\"step\":2", "\"step\":9007199254740993", "\"step\""},
        {"\"step\":2", "\"step\":-1", "\"step\""},
        {"\"serial\":1", "\"serial\":9223372036854775807", "\"serial\""},
        {"\"applied\":1", "\"applied\":3", "\"applied\" is 3, wanted 0 .. 2"},
        {"\"samples\":6", "\"samples\":9223372036854775807", "\"samples\""},
        {"\"samples\":6", "\"samples\":1e3", "\"samples\""},
        {"\"samples\":6,", "", "\"samples\" is missing"},
        {"\"seed\":\"00000000000000", "\"seed\":\"-0000000000000", "\"seed\""},
        {"\"seed\":\"0000", "\"seed\":\"", "\"seed\""},
        {"\"fingerprint\":\"fe", "\"fingerprint\":\"0x", "\"fingerprint\""},
        {"\"val_loss\":null", "\"val_loss\":\"low\"", "\"val_loss\""},
        {"\"scale\":0.1", "\"scale\":0", "\"scale\" is 0"},
        {"\"scale\":0.1", "\"scale\":-4", "\"scale\" is -4"},
        {"\"iteration\":2", "\"iteration\":-2", "\"iteration\""},
        {"\"last_overflow\":-1", "\"last_overflow\":-9223372036854775808", "\"last_overflow\""},
        {"\"last_overflow\":-1", "\"last_overflow\":3", "\"last_overflow\""},
        {"\"hysteresis_left\":2", "\"hysteresis_left\":-9223372036854775807",
         "\"hysteresis_left\""},
        {"\"config\":{}", "\"config\":[1]", "\"config\" is an array, wanted an object"},
        {"\"config\":{}", "\"config\":\"x\"", "\"config\" is a string"},
        {"\"config\":{}", "\"config\":{},\"data\":7", "\"data\" is an integer"},
        {"\"writers\":1", "\"writers\":0", "\"writers\""},
        {"\"writers\":1", "\"writers\":4294967297", "\"writers\""},
        {"\"total_bytes\":", "\"total_bytes\":1", "\"total_bytes\""},
        {"\"files\":[",
         "\"files\":[{\"name\":\"part-00000.safetensors\",\"bytes\":0,\"digest\":\"\"},",
         "the file \"part-00000.safetensors\" is named twice"},
    };
    const char *manifest = "checkpoint-2/manifest.json";
    struct sw_ckpt *ckpt;
    sw_log_set_level(SW_LOG_ERROR);
    for (size_t i = 0; i < SW_LEN(cases); i++) {
        assert_int_equal(save_state(root, 2, 2, 1, 0, NAN), SW_OK);
        edit_manifest(in_root(manifest), cases[i].from, cases[i].to);
        const sw_status st = sw_ckpt_open(in_root("checkpoint-2"), &ckpt);
        if (st != SW_E_FORMAT || !strstr(sw_error_message(), cases[i].says) ||
            !strstr(sw_error_message(), manifest)) {
            fail_msg("%s: status %d, %s", cases[i].to, st, sw_error_message());
        }
        remove_tree(in_root("checkpoint-2"));
    }
}

static void only_canonical_names_are_checkpoints(void **test_state)
{
    (void)test_state;
    static const char *const names[] = {"checkpoint-0007",
                                        "checkpoint-07",
                                        "checkpoint-+7",
                                        "checkpoint-7x",
                                        "checkpoint-9007199254740993",
                                        "checkpoint-99999999999999999999"};
    assert_int_equal(save_state(root, 3, 5, 1, 0, NAN), SW_OK);
    assert_int_equal(save_state(root, 7, 7, 1, 0, NAN), SW_OK);
    for (size_t i = 0; i < SW_LEN(names); i++) {
        assert_int_equal(rename(in_root("checkpoint-7"), in_root(names[i])), 0);
        struct sw_ckpt_list list;
        assert_int_equal(sw_ckpt_list(root, &list), SW_OK);
        assert_int_equal(list.n_items, 1);
        assert_string_equal(list.items[0].name, "checkpoint-3");
        sw_ckpt_list_fini(&list);
        assert_int_equal(rename(in_root(names[i]), in_root("checkpoint-7")), 0);
    }
    assert_int_equal(newest_step(root), 7);
}

/* A data file of another kind would keep a reader waiting for ever. */
static void a_data_file_that_is_none_is_refused(void **test_state)
{
    (void)test_state;
    struct sw_ckpt *ckpt;
    const char *data = "checkpoint-1/part-00000.safetensors";
    assert_int_equal(save_state(root, 1, 1, 1, 0, NAN), SW_OK);
    assert_int_equal(unlink(in_root(data)), 0);
    assert_int_equal(mkfifo(in_root(data), 0666), 0);
    assert_int_equal(sw_ckpt_open(in_root("checkpoint-1"), &ckpt), SW_E_FORMAT);
    assert_non_null(strstr(sw_error_message(), "is not a regular file"));
}

static void what_is_newer_is_refused(void **test_state)
{
    (void)test_state;
    const char *manifest = "checkpoint-2/manifest.json";
    struct sw_ckpt *ckpt;
    assert_int_equal(save_state(root, 1, 1, 1, 0, NAN), SW_OK);
    assert_int_equal(save_state(root, 2, 2, 1, 0, NAN), SW_OK);
    edit_manifest(in_root(manifest), "\"requires\":[\"boxes\"]",
                  "\"requires\":[\"boxes\",\"warp\"]");
    assert_int_equal(sw_ckpt_open(root, &ckpt), SW_E_UNSUP);
    assert_non_null(strstr(sw_error_message(), "warp"));
    assert_non_null(strstr(sw_error_message(), "checkpoint-2"));
    edit_manifest(in_root(manifest), ",\"warp\"", "");
    assert_int_equal(newest_step(root), 2);
    edit_manifest(in_root(manifest), "\"version\":1", "\"version\":2");
    assert_int_equal(sw_ckpt_open(root, &ckpt), SW_E_UNSUP);
    assert_non_null(strstr(sw_error_message(), "version 2"));
    edit_manifest(in_root(manifest), "\"version\":2", "\"version\":1");
    edit_manifest(in_root(manifest), "part-00000.safetensors", "../../etc/x");
    assert_int_equal(sw_ckpt_open(in_root("checkpoint-2"), &ckpt), SW_E_FORMAT);
    /* A newer program's checkpoint is never deleted by this one. */
    edit_manifest(in_root(manifest), "../../etc/x", "part-00000.safetensors");
    edit_manifest(in_root(manifest), "\"version\":1", "\"version\":2");
    assert_int_equal(save_state(root, 3, 3, 1, 1, NAN), SW_OK);
    assert_int_equal(newest_step(root), 3);
    assert_int_equal(access(in_root(manifest), F_OK), 0);
    assert_int_not_equal(access(in_root("checkpoint-1"), F_OK), 0);
}

/* ---- beside others ---- */

static void files_are_verified_by_one_rank_each(void **test_state)
{
    (void)test_state;
    enum { RANKS = 2, PARTS = 5 };
    assert_int_equal(save_state(root, 1, 1, PARTS, 0, NAN), SW_OK);
    for (int damaged = 0; damaged < PARTS; damaged++) {
        char name[64];
        struct sw_ckpt *ckpt;
        snprintf(name, sizeof(name), "checkpoint-1/part-%05d.safetensors", damaged);
        flip_byte(in_root(name), 300);
        assert_int_equal(sw_ckpt_open(root, &ckpt), SW_OK);
        for (int rank = 0; rank < RANKS; rank++) {
            struct sw_ckpt_verification *v;
            assert_int_equal(sw_ckpt_verify_begin(ckpt, rank, RANKS, &v), SW_OK);
            const sw_status st = sw_ckpt_verify_wait(v, false);
            assert_int_equal(st, damaged % RANKS == rank ? SW_E_FORMAT : SW_OK);
            assert_true(st == SW_OK || strstr(sw_error_message(), name));
        }
        sw_ckpt_close(ckpt);
        flip_byte(in_root(name), 300);
    }
}

/* An open checkpoint stays readable even if a job saves the same step again and deletes the old
 * one. */
static void an_open_checkpoint_is_never_two(void **test_state)
{
    (void)test_state;
    struct sw_ckpt *ckpt;
    assert_int_equal(save_state(root, 1, 1, 2, 0, NAN), SW_OK);
    assert_int_equal(sw_ckpt_open(root, &ckpt), SW_OK);
    assert_int_equal(rename(in_root("checkpoint-1"), in_root("kept")), 0);
    assert_int_equal(save_state(root, 1, 2, 2, 0, NAN), SW_OK);
    assert_null(check_state(ckpt)); /* opens its files only now */
    sw_ckpt_close(ckpt);
    assert_int_equal(sw_ckpt_open(root, &ckpt), SW_OK);
    assert_int_equal(save_state(root, 1, 3, 2, 0, NAN), SW_OK);
    const char *problem = check_state(ckpt); /* its files are gone: nothing else is read for them */
    assert_non_null(problem);
    assert_non_null(strstr(problem, "cannot read"));
    sw_ckpt_close(ckpt);
}

static void ranks_can_tell_checkpoints_apart(void **test_state)
{
    (void)test_state;
    struct sw_ckpt *a, *b;
    assert_int_equal(save_state(in_root("a"), 3, 1, 2, 0, NAN), SW_OK);
    assert_int_equal(save_state(in_root("b"), 3, 2, 2, 0, NAN), SW_OK);
    assert_int_equal(save_state(in_root("b"), 4, 1, 2, 0, NAN), SW_OK);
    assert_int_equal(sw_ckpt_open(in_root("a"), &a), SW_OK);
    assert_string_equal(sw_ckpt_name(a), "checkpoint-3");
    assert_int_equal(sw_ckpt_open_named(in_root("b"), sw_ckpt_name(a), &b), SW_OK);
    struct sw_ckpt_identity x = sw_ckpt_identity(a), y = sw_ckpt_identity(b);
    assert_true(x.serial == y.serial && x.step == y.step && x.samples == y.samples);
    assert_true(x.manifest != y.manifest);
    sw_ckpt_close(b);
    assert_int_equal(sw_ckpt_open_named(in_root("a/latest"), sw_ckpt_name(a), &b), SW_OK);
    y = sw_ckpt_identity(b);
    assert_true(x.manifest == y.manifest);
    sw_ckpt_close(b);
    assert_int_equal(sw_ckpt_open_named(in_root("b/checkpoint-4"), sw_ckpt_name(a), &b), SW_OK);
    assert_string_equal(sw_ckpt_name(b), "checkpoint-4");
    sw_ckpt_close(a);
    sw_ckpt_close(b);
}

/* ---- which one ---- */

static void markers_are_not_believed(void **test_state)
{
    (void)test_state;
    char *text;
    size_t len;
    assert_int_equal(save_state(root, 10, 1, 1, 0, NAN), SW_OK);
    assert_int_equal(save_state(root, 20, 2, 1, 0, NAN), SW_OK);
    assert_int_equal(sw_file_read(in_root("latest"), &text, &len), SW_OK);
    assert_string_equal(text, "checkpoint-20\n");
    sw_free(text);
    assert_int_equal(sw_file_write_atomic(in_root("latest"), "checkpoint-10\n", 14), SW_OK);
    assert_int_equal(newest_step(root), 20);
    assert_int_equal(unlink(in_root("latest")), 0);
    assert_int_equal(newest_step(root), 20);
    assert_int_equal(newest_step(in_root("latest")), 20);
    assert_int_equal(newest_step(in_root("checkpoint-10/")), 10);
    /* Gone back to step 10 and on from there: the newest is what was saved last, not the highest
     * step. */
    assert_int_equal(save_state(root, 15, 3, 1, 0, NAN), SW_OK);
    assert_int_equal(newest_step(root), 15);
}

/* Longer than any name may be, and deeper than a function should call itself. */
static void leftovers_may_be_deep(void **test_state)
{
    (void)test_state;
    enum { DEPTH = 2000 };
    static const char *const inside[] = {"manifest.json", "a-folder-of-a-dead-job"};
    assert_int_equal(mkdir(in_root("checkpoint-5.tmp"), 0777), 0);
    for (size_t i = 0; i < SW_LEN(inside); i++) {
        int fd = open(in_root("checkpoint-5.tmp"), O_RDONLY | O_DIRECTORY);
        for (int depth = 0; depth < DEPTH; depth++) {
            assert_int_equal(mkdirat(fd, inside[i], 0777), 0);
            const int next = openat(fd, inside[i], O_RDONLY | O_DIRECTORY);
            const int file = openat(fd, "file", O_WRONLY | O_CREAT, 0666);
            assert_true(next >= 0 && file >= 0);
            close(file);
            close(fd);
            fd = next;
        }
        close(fd);
    }
    assert_int_equal(count_leftovers(root), 1);
    assert_int_equal(save_state(root, 7, 1, 1, 0, NAN), SW_OK);
    assert_int_equal(count_leftovers(root), 0);
    assert_int_equal(newest_step(root), 7);
}

static bool is_there(int64_t step)
{
    char name[64];
    snprintf(name, sizeof(name), "checkpoint-%lld", (long long)step);
    return access(in_root(name), F_OK) == 0;
}

static void the_last_and_the_best_stay(void **test_state)
{
    (void)test_state;
    static const double losses[] = {3.0, 1.25, 2.0, NAN, 1.5, 1.0, 4.0, 5.0, 6.0};
    static const int64_t best[] = {1, 2, 2, 2, 2, 6, 6, 6, 6};
    for (int64_t step = 1; step <= (int64_t)SW_LEN(losses); step++) {
        assert_int_equal(save_state(root, step, (uint64_t)step, 1, 2, losses[step - 1]), SW_OK);
        assert_int_equal(newest_step(root), step);
        assert_int_equal(newest_step(in_root("best")), best[step - 1]);
        for (int64_t other = 1; other <= step; other++) {
            assert_true(is_there(other) == (other > step - 2 || other == best[step - 1]));
        }
    }
    assert_int_equal(count_leftovers(root), 0);
}

static void listed_newest_first(void **test_state)
{
    (void)test_state;
    struct sw_ckpt_list list;
    assert_int_equal(sw_ckpt_list(in_root("nowhere"), &list), SW_OK);
    assert_int_equal(list.n_items, 0);
    sw_ckpt_list_fini(&list);
    assert_int_equal(save_state(root, 9, 1, 3, 0, 0.75), SW_OK);
    assert_int_equal(save_state(root, 10, 2, 1, 0, NAN), SW_OK);
    assert_int_equal(mkdir(in_root("checkpoint-11"), 0777), 0);
    assert_int_equal(mkdir(in_root("checkpoint-x"), 0777), 0);
    assert_int_equal(sw_ckpt_list(root, &list), SW_OK);
    assert_int_equal(list.n_items, 3);
    assert_int_equal(list.items[0].step, 10);
    assert_true(isnan(list.items[0].val_loss));
    assert_string_equal(list.items[1].name, "checkpoint-9");
    assert_true(list.items[1].complete && list.items[1].val_loss == 0.75);
    assert_int_equal(list.items[1].n_writers, 3);
    assert_true(list.items[1].fingerprint == UINT64_C(0xfedcba9876543210));
    assert_true(list.items[1].bytes > 0);
    assert_false(list.items[2].complete);
    assert_non_null(strstr(list.items[2].problem, "manifest.json"));
    sw_ckpt_list_fini(&list);
}

static void differences_are_counted(void **test_state)
{
    (void)test_state;
    struct sw_ckpt *a, *b;
    struct sw_ckpt_diff diff;
    assert_int_equal(save_state(root, 1, 5, 3, 0, NAN), SW_OK);
    assert_int_equal(save_state(root, 2, 5, 2, 0, NAN), SW_OK);
    assert_int_equal(save_state(root, 3, 6, 1, 0, NAN), SW_OK);
    assert_int_equal(sw_ckpt_open(in_root("checkpoint-1"), &a), SW_OK);
    assert_int_equal(sw_ckpt_open(in_root("checkpoint-2"), &b), SW_OK);
    assert_int_equal(sw_ckpt_diff(a, b, &diff), SW_OK);
    assert_int_equal(diff.n_items, sw_ckpt_n_tensors(a));
    for (int64_t i = 0; i < diff.n_items; i++) {
        assert_true(diff.items[i].relation == SW_CKPT_BOTH && diff.items[i].n_different == 0);
    }
    sw_ckpt_diff_fini(&diff);
    sw_ckpt_close(b);
    assert_int_equal(sw_ckpt_open(in_root("checkpoint-3"), &b), SW_OK);
    assert_int_equal(sw_ckpt_diff(a, b, &diff), SW_OK);
    for (int64_t i = 0; i < diff.n_items; i++) {
        const struct sw_ckpt_difference *row = &diff.items[i];
        float x[64], y[64];
        if (row->entry.dtype != SW_F32) {
            continue;
        }
        const int64_t n = sw_shape_elems(&row->entry.shape);
        int64_t n_different = 0;
        double max_abs = 0;
        assert_int_equal(sw_ckpt_read(a, i, NULL, SW_F32, x), SW_OK);
        assert_int_equal(sw_ckpt_read(b, i, NULL, SW_F32, y), SW_OK);
        for (int64_t k = 0; k < n; k++) {
            n_different += x[k] != y[k];
            max_abs = fmax(max_abs, fabs((double)x[k] - y[k]));
        }
        assert_int_equal(row->n_different, n_different);
        assert_true(row->max_abs == max_abs);
    }
    sw_ckpt_diff_fini(&diff);
    sw_ckpt_close(a);
    sw_ckpt_close(b);
}

static void configuration_and_extremes_come_back(void **test_state)
{
    (void)test_state;
    struct sw_json_doc *doc;
    assert_int_equal(sw_json_new("test", &doc), SW_OK);
    sw_json_put_f64(doc, sw_json_root(doc), "lr", 3e-4);
    const struct sw_shape shape = {1, {2}};
    const struct sw_ckpt_tensor tensor = {"odd \"name\" \xc3\xa9", "master", SW_F32, shape,
                                          sw_box_whole(&shape)};
    const struct sw_ckpt_save_options options = {.lock = hold()};
    const struct sw_ckpt_meta meta = {.step = 1,
                                      .samples = INT64_C(1) << 53,
                                      .seed = UINT64_MAX,
                                      .val_loss = 3,
                                      .config = sw_json_root(doc),
                                      .scaler.scale = 0x1p-1022};
    assert_int_equal(sw_ckpt_save(&options, &meta, &tensor, 1, count_up, NULL), SW_OK);
    sw_json_close(doc);
    struct sw_ckpt *ckpt;
    assert_int_equal(sw_ckpt_open(root, &ckpt), SW_OK);
    const struct sw_ckpt_meta *back = sw_ckpt_meta(ckpt);
    assert_true(back->samples == INT64_C(1) << 53 && back->seed == UINT64_MAX &&
                back->val_loss == 3);
    assert_true(back->scaler.scale == 0x1p-1022);
    assert_true(sw_json_get(back->config, "lr")->number == 3e-4);
    assert_int_equal(sw_ckpt_find(ckpt, tensor.param, "master"), 0);
    sw_ckpt_close(ckpt);
}

#define CASE(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

static const struct CMUnitTest tests[] = {
    CASE(ranges_become_boxes),
    CASE(any_number_of_writers),
    CASE(large_tensors_in_pieces),
    CASE(reading_what_is_not_there),
    CASE(gaps_and_overlaps_are_refused),
    CASE(many_boxes_are_checked_one_by_one),
    CASE(boxes_of_any_cut_cover_a_tensor),
    CASE(data_files_are_safetensors),
    CASE(a_changed_byte_is_found),
    CASE(a_damaged_manifest_is_refused_by_name),
    CASE(a_short_file_is_refused_by_name),
    CASE(an_old_damaged_checkpoint_is_only_named),
    CASE(what_is_set_aside_is_no_checkpoint),
    CASE(numbers_have_bounds_and_members_their_types),
    CASE(only_canonical_names_are_checkpoints),
    CASE(a_data_file_that_is_none_is_refused),
    CASE(what_is_newer_is_refused),
    CASE(files_are_verified_by_one_rank_each),
    CASE(an_open_checkpoint_is_never_two),
    CASE(ranks_can_tell_checkpoints_apart),
    CASE(markers_are_not_believed),
    CASE(leftovers_may_be_deep),
    CASE(the_last_and_the_best_stay),
    CASE(listed_newest_first),
    CASE(differences_are_counted),
    CASE(configuration_and_extremes_come_back),
};

const struct test_program sw_tests = {TEST_TABLE(tests)};
