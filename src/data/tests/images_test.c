// SPDX-License-Identifier: Apache-2.0
// Folders of pictures by class: files, order, labels and the held-out part. Pictures are decoded
// only on demand, and always to the same bits.
#include "data/data.h"
#include "data/images.h"
#include "support/files.h"
#include "support/pictures.h"
#include "support/scratch.h"
#include "support/test.h"

#include <pthread.h>
#include <unistd.h>

enum { SIDE = 8, VALUES = 3 * SIDE * SIDE };

static void make_folder(const char *name)
{
    assert_int_equal(sw_mkdirs(test_at(name)), SW_OK);
}

/* Writes a picture of one colour. The colour identifies the picture. */
static void put_picture(const char *name, int which)
{
    const struct test_png png = {.width = SIDE, .height = SIDE, .depth = 8, .type = 2};
    uint8_t rows[VALUES];
    size_t len;
    for (int i = 0; i < VALUES; i++) {
        rows[i] = (uint8_t)which;
    }
    uint8_t *bytes = test_png_make(&png, rows, &len);
    assert_int_equal(sw_file_write_atomic(test_at(name), bytes, len), SW_OK);
    free(bytes);
}

static struct sw_task_data task_of(const char *const *names, int64_t n)
{
    return (struct sw_task_data){.name = "images",
                                 .n_labels = n,
                                 .label_names = names,
                                 .channels = 3,
                                 .height = SIDE,
                                 .width = SIDE};
}

static sw_status open_folder(const char *name, const char *val, const struct sw_task_data *task,
                             struct sw_dataset **out)
{
    const char *files[] = {test_at(name)}, *val_files[] = {val ? test_at(val) : NULL};
    const struct sw_dataset_options options = {.files = files,
                                               .n_files = 1,
                                               .val_files = val ? val_files : NULL,
                                               .n_val_files = val ? 1 : 0,
                                               .val_fraction = 0.1,
                                               .seq_len = 1,
                                               .seed = 7,
                                               .task = task};
    return sw_dataset_open(&options, out);
}

static void expect_refused(const char *name, const char *val, const struct sw_task_data *task,
                           const char *why)
{
    struct sw_dataset *d;
    const sw_status st = open_folder(name, val, task, &d);
    if (st >= 0 || !strstr(sw_error_message(), why)) {
        fail_msg("\"%s\" without \"%s\"", st < 0 ? sw_error_message() : "", why);
    }
}

/* Fetches n samples of a split: which picture each is, and its label. */
static void fetch(const struct sw_dataset *d, enum sw_split split, int64_t first, int n, int *which,
                  int32_t *labels)
{
    for (int i = 0; i < n; i++) {
        float pixels[VALUES];
        const struct sw_row_input inputs[] = {{"pixel_values", pixels}, {"labels", &labels[i]}};
        assert_int_equal(sw_dataset_fetch_inputs(d, split, first + i, 1, inputs, 2), SW_OK);
        which[i] = (int)lrintf((pixels[0] * 0.5F + 0.5F) * 255);
    }
}

static char logged[1024];

static void keep_line(void *ctx, enum sw_log_level level, const char *text)
{
    (void)ctx;
    (void)level;
    snprintf(logged, sizeof logged, "%s", text);
}

/* torchvision's order: classes by name, folders by path, files by name. */
static void files_are_listed_as_torchvision_does(void **state)
{
    (void)state;
    static const char *const files[] = {"order/B/1.png",     "order/B/10.JPG",  "order/B/2.png",
                                        "order/B/z.jpeg",    "order/B/a/0.png", "order/B/a b/0.png",
                                        "order/B/a/c/0.png", "order/a/0.png"};
    static const char *const others[] = {"order/a/notes.txt", "order/a/.1.png", "order/README",
                                         "order/.git/config"};
    struct sw_pictures p = {0};
    make_folder("order/B/a/c");
    make_folder("order/B/a b");
    make_folder("order/a/empty");
    make_folder("order/.git");
    for (size_t i = 0; i < SW_LEN(files); i++) {
        put_picture(files[i], 0);
    }
    for (size_t i = 0; i < SW_LEN(others); i++) {
        assert_int_equal(sw_file_write_atomic(test_at(others[i]), "x", 1), SW_OK);
    }
    logged[0] = '\0';
    sw_log_set_sink(keep_line, NULL);
    assert_int_equal(sw_pictures_add(&p, test_at("order///")), SW_OK);
    sw_log_set_sink(NULL, NULL);
    assert_non_null(strstr(logged, "order: left out, being hidden or no .png"));
    assert_non_null(strstr(logged, ": 4 in all, first "));
    assert_int_equal(p.n_classes, 2);
    assert_string_equal(p.classes[0], "B");
    assert_string_equal(p.classes[1], "a");
    assert_int_equal(p.n, SW_LEN(files));
    for (size_t i = 0; i < SW_LEN(files); i++) {
        assert_string_equal(p.places[i].path, test_at(files[i]));
        assert_int_equal(p.places[i].i_class, i == SW_LEN(files) - 1);
    }
    for (size_t i = 0; i < SW_LEN(others); i++) { /* which the end of the test leaves */
        assert_int_equal(unlink(test_at(others[i])), 0);
    }
    assert_int_equal(rmdir(test_at("order/.git")), 0);
    sw_pictures_fini(&p);
}

/* Every epoch has each picture once with its label. A tenth of each class is held out. */
static void classes_are_held_back_in_proportion(void **state)
{
    (void)state;
    enum { N_ZEBRA = 40, N_ANT = 20, N = N_ZEBRA + N_ANT, N_VAL = 6 };
    static const char *const names[] = {"zebra", "ant"}; /* the model's order is its own */
    const struct sw_task_data task = task_of(names, 2);
    struct sw_dataset *d;
    bool seen[N] = {false};
    int which[N], n_held[2] = {0};
    int32_t labels[N];
    make_folder("zoo/zebra");
    make_folder("zoo/ant");
    for (int i = 0; i < N; i++) {
        char name[64];
        snprintf(name, sizeof name, "zoo/%s/%03d.png", i < N_ZEBRA ? "zebra" : "ant", i);
        put_picture(name, i);
    }
    assert_int_equal(open_folder("zoo", NULL, &task, &d), SW_OK);
    assert_int_equal(sw_dataset_n_samples(d, SW_SPLIT_VAL), N_VAL);
    assert_int_equal(sw_dataset_n_samples(d, SW_SPLIT_TRAIN), N - N_VAL);
    fetch(d, SW_SPLIT_VAL, 0, N_VAL, which, labels);
    for (int i = 0; i < N_VAL; i++) {
        assert_int_equal(labels[i], which[i] >= N_ZEBRA);
        n_held[labels[i]]++;
        seen[which[i]] = true;
    }
    assert_int_equal(n_held[0], N_VAL * N_ZEBRA / N);
    assert_int_equal(n_held[1], N_VAL * N_ANT / N);
    fetch(d, SW_SPLIT_TRAIN, 3 * (N - N_VAL), N - N_VAL, which, labels);
    for (int i = 0; i < N - N_VAL; i++) {
        assert_int_equal(labels[i], which[i] >= N_ZEBRA);
        assert_false(seen[which[i]]);
        seen[which[i]] = true;
    }
    sw_dataset_close(d);
}

static void folders_that_do_not_fit_are_refused(void **state)
{
    (void)state;
    static const char *const names[] = {"cat", "dog"};
    static const char *const other[] = {"cat", "cow"};
    struct sw_task_data task = task_of(names, 2);
    struct sw_dataset *d;
    make_folder("pets/cat");
    make_folder("pets/dog");
    put_picture("pets/cat/1.png", 1);
    expect_refused("pets", NULL, &task, "pets/dog: no picture of this class");
    put_picture("pets/dog/1.png", 2);
    expect_refused("pets/cat/1.png", NULL, &task, "Pictures are read from a folder with a folder");
    make_folder("nothing");
    expect_refused("nothing", NULL, &task, "nothing: no folder in it");
    make_folder("half/cat");
    put_picture("half/cat/1.png", 1);
    expect_refused("pets", "half", &task, "half: no folder of the class \"dog\", which ");
    expect_refused("half", "pets", &task, "half: no folder of the class \"dog\", which ");
    assert_int_equal(open_folder("half", NULL, &task, &d), SW_OK);
    sw_dataset_close(d);
    task.label_names = other;
    expect_refused("pets", NULL, &task,
                   "the class \"dog\" is not one of the model's 2 (\"cat\", ..)");
    task.label_names = NULL;
    task.n_labels = 3;
    expect_refused("pets", NULL, &task, "2 folders of classes, and the model has 3 classes");
    task = task_of(names, 2);
    task.name = "images-regression";
    task.n_labels = 1;
    expect_refused("pets", NULL, &task, "has classes, and the task \"images-regression\" numbers");
    task = task_of(names, 2);
    assert_int_equal(sw_file_write_atomic(test_at("pets/cat/2.webp"), "x", 1), SW_OK);
    expect_refused("pets", NULL, &task, "pets/cat/2.webp: pictures are read of .png");
    assert_int_equal(unlink(test_at("pets/cat/2.webp")), 0);
    assert_int_equal(sw_file_write_atomic(test_at("pets/cat/2.png"), "no picture", 10), SW_OK);
    expect_refused("pets", NULL, &task, "pets/cat/2.png: by its first bytes it is neither");
    assert_int_equal(unlink(test_at("pets/cat/2.png")), 0);
    assert_int_equal(symlink(".", test_at("pets/cat/loop")), 0);
    expect_refused("pets", NULL, &task, "more than 32 folders within each other");
    assert_int_equal(unlink(test_at("pets/cat/loop")), 0);
}

/* A damaged picture is named when it is fetched, because opening reads only its header. */
static void pictures_are_decoded_when_they_are_asked_for(void **state)
{
    (void)state;
    enum { LARGE = 500, N = 24 };
    static const char *const names[] = {"large", "other"};
    const struct sw_task_data task = task_of(names, 2);
    struct sw_alloc_stats before, after;
    struct sw_dataset *d;
    float pixels[VALUES];
    int n_failed = 0;
    make_folder("lazy/large");
    make_folder("lazy/other");
    put_picture("lazy/other/1.png", 9);
    for (int i = 0; i < N; i++) {
        char name[64];
        snprintf(name, sizeof name, "lazy/large/%02d.png", i);
        assert_true(test_picture_write(test_at(name), LARGE, LARGE, (uint8_t[]){9, 90, 200}, 1));
    }
    assert_int_equal(truncate(test_at("lazy/large/05.png"), 1000), 0);
    sw_alloc_get_stats(&before);
    assert_int_equal(open_folder("lazy", NULL, &task, &d), SW_OK);
    sw_alloc_get_stats(&after);
    assert_true(after.live_bytes - before.live_bytes < 64 << 10);
    const struct sw_row_input input = {"pixel_values", pixels};
    for (int64_t i = 0; i < sw_dataset_n_samples(d, SW_SPLIT_TRAIN); i++) {
        if (sw_dataset_fetch_inputs(d, SW_SPLIT_TRAIN, i, 1, &input, 1) < 0) {
            assert_non_null(strstr(sw_error_message(), "lazy/large/05.png: a damaged PNG"));
            n_failed++;
        }
    }
    assert_int_equal(n_failed, 1);
    sw_alloc_get_stats(&after);
    assert_true(after.live_bytes - before.live_bytes < 64 << 10);
    sw_dataset_close(d);
    sw_alloc_get_stats(&after);
    assert_int_equal(after.live_blocks, before.live_blocks);
}

struct reader {
    const struct sw_dataset *dataset;
    int64_t first, n;
    float *pixels;
    sw_status st;
};

static void *read_some(void *ctx)
{
    struct reader *r = ctx;
    const struct sw_row_input input = {"pixel_values", r->pixels};
    r->st = sw_dataset_fetch_inputs(r->dataset, SW_SPLIT_TRAIN, r->first, r->n, &input, 1);
    return NULL;
}

/* Samples one by one, and by several threads at once, are those of one batch. */
static void samples_have_the_same_bits_however_they_are_fetched(void **state)
{
    (void)state;
    enum { N = 16, N_THREADS = 4 };
    static const char *const names[] = {"a", "b"};
    const struct sw_task_data task = task_of(names, 2);
    static float whole[N * VALUES], parts[N * VALUES];
    struct reader readers[N_THREADS];
    pthread_t threads[N_THREADS];
    struct sw_dataset *d;
    make_folder("bits/a");
    make_folder("bits/b");
    for (int i = 0; i < 10; i++) {
        char name[64];
        snprintf(name, sizeof name, "bits/%c/%d.png", 'a' + i % 2, i);
        assert_true(test_picture_write(test_at(name), (uint32_t)(11 + 3 * i), 17,
                                       (uint8_t[]){9, 90, 200}, (uint32_t)i));
    }
    assert_int_equal(open_folder("bits", NULL, &task, &d), SW_OK);
    struct reader all = {d, 0, N, whole, SW_OK};
    read_some(&all);
    assert_int_equal(all.st, SW_OK);
    for (int i = 0; i < N_THREADS; i++) {
        const int64_t n = N / N_THREADS;
        readers[i] = (struct reader){d, i * n, n, parts + i * n * VALUES, SW_OK};
        assert_int_equal(pthread_create(&threads[i], NULL, read_some, &readers[i]), 0);
    }
    for (int i = 0; i < N_THREADS; i++) {
        assert_int_equal(pthread_join(threads[i], NULL), 0);
        assert_int_equal(readers[i].st, SW_OK);
    }
    assert_memory_equal(whole, parts, sizeof whole);
    sw_dataset_close(d);
}

static void survives_lack_of_memory(void **state)
{
    (void)state;
    static const char *const names[] = {"cat", "dog"};
    const struct sw_task_data task = task_of(names, 2);
    struct sw_alloc_stats before, after;
    sw_alloc_get_stats(&before);
    for (int64_t n = 1;; n++) {
        struct sw_dataset *d;
        sw_alloc_fail_nth(n);
        const sw_status st = open_folder("pets", "pets", &task, &d);
        sw_alloc_fail_nth(0);
        if (st >= 0) {
            assert_true(n > 10);
            sw_dataset_close(d);
            break;
        }
        assert_int_equal(st, SW_E_NOMEM);
        sw_alloc_get_stats(&after);
        assert_int_equal(after.live_blocks, before.live_blocks);
    }
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(files_are_listed_as_torchvision_does),
    cmocka_unit_test(classes_are_held_back_in_proportion),
    cmocka_unit_test(folders_that_do_not_fit_are_refused),
    cmocka_unit_test(pictures_are_decoded_when_they_are_asked_for),
    cmocka_unit_test(samples_have_the_same_bits_however_they_are_fetched),
    cmocka_unit_test(survives_lack_of_memory),
};

const struct test_program sw_tests = {TEST_TABLE(tests),
                                      .left_out = SW_HAVE_PNG ? NULL : "built without libpng"};
