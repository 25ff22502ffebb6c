// SPDX-License-Identifier: Apache-2.0
// Files of torch.save. Tensors are read, in place or copied. Instructions that a pickle must not
// use are refused by name. Damage of any byte is found, or is harmless.
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "hf/hf.h"
#include "support/test.h"

/* ---- a pickle ---- */

static void put_op(struct sw_str *code, const char *ops, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        sw_str_putc(code, ops[i]);
    }
}
#define OPS(code, text) put_op(code, text, sizeof(text) - 1)

static void put_number(struct sw_str *to, uint64_t n, int bytes)
{
    for (int i = 0; i < bytes; i++) {
        sw_str_putc(to, i < 8 ? (char)(n >> (8 * i)) : 0);
    }
}

static void put_text(struct sw_str *code, const char *text)
{
    OPS(code, "X");
    put_number(code, strlen(text), 4);
    sw_str_puts(code, text);
}

static void put_int(struct sw_str *code, int64_t n)
{
    OPS(code, "J");
    put_number(code, (uint64_t)n, 4);
}

static void put_tuple(struct sw_str *code, const int64_t *items, int n)
{
    OPS(code, "(");
    for (int i = 0; i < n; i++) {
        put_int(code, items[i]);
    }
    OPS(code, "t");
}

struct view {
    const char *name, *type, *key;
    int64_t elems, first;
    int rank;
    int64_t dims[3], strides[3];
};

static void put_tensor(struct sw_str *code, const struct view *v)
{
    put_text(code, v->name);
    OPS(code, "ctorch._utils\n_rebuild_tensor_v2\n((");
    put_text(code, "storage");
    OPS(code, "ctorch\n");
    sw_str_printf(code, "%s\n", v->type);
    put_text(code, v->key);
    put_text(code, "cpu");
    put_int(code, v->elems);
    OPS(code, "tQ");
    put_int(code, v->first);
    put_tuple(code, v->dims, v->rank);
    put_tuple(code, v->strides, v->rank);
    OPS(code, "\x89"
              "ccollections\nOrderedDict\n)RtR");
}

/* ---- an archive ---- */

struct member {
    const char *name;
    const void *data;
    size_t bytes;
    uint64_t at;
};

static void put_entry(struct sw_str *zip, const struct member *m, bool large)
{
    OPS(zip, "PK\1\2\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0");
    put_number(zip, large ? 0xffffffff : m->bytes, 4);
    put_number(zip, large ? 0xffffffff : m->bytes, 4);
    put_number(zip, strlen(m->name), 2);
    put_number(zip, large ? 28 : 0, 2);
    put_number(zip, 0, 10);
    put_number(zip, large ? 0xffffffff : m->at, 4);
    sw_str_puts(zip, m->name);
    if (large) {
        put_number(zip, 1, 2);
        put_number(zip, 24, 2);
        put_number(zip, m->bytes, 8);
        put_number(zip, m->bytes, 8);
        put_number(zip, m->at, 8);
    }
}

static void put_end(struct sw_str *zip, int n, uint64_t first, bool large)
{
    const uint64_t size = zip->len - first, end = zip->len;
    if (large) {
        OPS(zip, "PK\6\6");
        put_number(zip, 44, 8);
        put_number(zip, 0, 12);
        put_number(zip, (uint64_t)n, 8);
        put_number(zip, (uint64_t)n, 8);
        put_number(zip, size, 8);
        put_number(zip, first, 8);
        OPS(zip, "PK\6\7\0\0\0\0");
        put_number(zip, end, 8);
        put_number(zip, 1, 4);
    }
    OPS(zip, "PK\5\6\0\0\0\0");
    put_number(zip, large ? 0xffff : (uint64_t)n, 2);
    put_number(zip, large ? 0xffff : (uint64_t)n, 2);
    put_number(zip, large ? 0xffffffff : size, 4);
    put_number(zip, large ? 0xffffffff : first, 4);
    put_number(zip, 0, 2);
}

static int skew; /* bytes that data begin behind a multiple of 64 */

/* large: as ZIP64 */
static void put_zip(struct sw_str *zip, struct member *members, int n, bool large)
{
    for (int i = 0; i < n; i++) {
        struct member *m = &members[i];
        m->at = zip->len;
        const size_t before = zip->len + 30 + strlen(m->name);
        OPS(zip, "PK\3\4\0\0\0\0\0\0\0\0\0\0\0\0\0\0");
        put_number(zip, m->bytes, 4);
        put_number(zip, m->bytes, 4);
        put_number(zip, strlen(m->name), 2);
        const int extra = (int)((64 - before % 64) % 64) + skew;
        put_number(zip, (uint64_t)extra, 2);
        sw_str_puts(zip, m->name);
        put_number(zip, 0, extra);
        put_op(zip, m->data, m->bytes);
    }
    const uint64_t first = zip->len;
    for (int i = 0; i < n; i++) {
        put_entry(zip, &members[i], large);
    }
    put_end(zip, n, first, large);
}

static const float floats[8] = {0, 1, 2, 3, 4, 5, 6, 7};
static const uint16_t halves[4] = {0x3f80, 0x4000, 0x4040, 0x4080};
static const int64_t longs[1] = {-7};

static void archive_of(const struct sw_str *code, struct sw_str *zip, bool large)
{
    struct member members[] = {
        {"model/data.pkl", code->ptr, code->len, 0}, {"model/byteorder", "little", 6, 0},
        {"model/data/0", floats, sizeof floats, 0},  {"model/data/1", halves, sizeof halves, 0},
        {"model/data/2", longs, sizeof longs, 0},    {"model/version", "3\n", 2, 0}};
    put_zip(zip, members, SW_LEN(members), large);
}

static const struct view views[] = {
    {"h.weight", "FloatStorage", "0", 8, 2, 2, {2, 3}, {3, 1}},
    {"turned", "FloatStorage", "0", 8, 1, 2, {3, 2}, {1, 3}},
    {"brain", "BFloat16Storage", "1", 4, 0, 1, {4}, {1}},
    {"count", "LongStorage", "2", 1, 0, 0, {0}, {0}},
    {"none", "FloatStorage", "0", 8, 0, 2, {0, 5}, {5, 1}},
};

static void archive(struct sw_str *zip, bool large)
{
    struct sw_str code = {0};
    OPS(&code, "\x80\2}q\0(");
    for (size_t i = 0; i < SW_LEN(views); i++) {
        put_tensor(&code, &views[i]);
    }
    OPS(&code, "u}(X\x09\0\0\0_metadataNub."); /* what state dicts carry with them */
    archive_of(&code, zip, large);
    sw_str_fini(&code);
}

/* ---- small files that ask for much ---- */

static void refuse_small(struct sw_str *code, const void *storage, size_t bytes, const char *why)
{
    struct sw_str zip = {0};
    struct sw_safetensors *f = NULL;
    struct sw_alloc_stats stats;
    struct member members[] = {{"m/data.pkl", code->ptr, code->len, 0},
                               {"m/data/0", storage, bytes, 0}};
    put_zip(&zip, members, SW_LEN(members), false);
    assert_int_equal(sw_pickled_parse("m.bin", zip.ptr, zip.len, &f), SW_E_FORMAT);
    if (!strstr(sw_error_message(), why)) {
        fail_msg("%s", sw_error_message());
    }
    sw_alloc_get_stats(&stats);
    assert_true(stats.peak_bytes < 64 << 20);
    sw_str_fini(&zip);
    sw_str_fini(code);
}

/* 5 GiB of names, of a file of 1 MiB. */
static void a_name_that_is_recalled_takes_no_memory(void **state)
{
    (void)state;
    enum { NAME = 1 << 20, TIMES = 5000 };
    const struct view view = {"n", "FloatStorage", "0", 8, 0, 1, {8}, {1}};
    struct sw_str code = {0};
    char *name = malloc(NAME + 1);
    memset(name, 'n', NAME);
    name[NAME] = '\0';
    OPS(&code, "\x80\2}(");
    put_tensor(&code, &view);
    OPS(&code, "q\0");
    put_text(&code, name);
    OPS(&code, "q\1h\0");
    for (int i = 0; i < TIMES; i++) {
        OPS(&code, "h\1h\0");
    }
    OPS(&code, "u.");
    refuse_small(&code, floats, sizeof floats, "the names of tensors are longer than the file");
    free(name);
}

/* 8 GiB of copies, of a file of 2 MiB. */
static void tensors_that_share_a_storage_are_not_all_copied(void **state)
{
    (void)state;
    enum { ELEMS = 1 << 19, TIMES = 4096 };
    char name[16];
    struct sw_str code = {0};
    float *storage = calloc(ELEMS, sizeof *storage);
    OPS(&code, "\x80\2}(");
    for (int i = 0; i < TIMES; i++) {
        snprintf(name, sizeof name, "n%d", i);
        put_tensor(&code, &(struct view){name, "FloatStorage", "0", ELEMS, 0, 1, {ELEMS}, {1}});
    }
    OPS(&code, "u.");
    skew = 1;
    refuse_small(&code, storage, ELEMS * sizeof *storage, "too many tensors that are not aligned");
    skew = 0;
    free(storage);
}

/* ---- reading ---- */

static void the_tensors_are_read(void **state)
{
    (void)state;
    for (int large = 0; large < 2; large++) {
        struct sw_str zip = {0};
        struct sw_safetensors *f = NULL;
        archive(&zip, large);
        if (sw_pickled_parse("m.bin", zip.ptr, zip.len, &f) < 0) {
            fail_msg("%s", sw_error_message());
        }
        assert_int_equal(sw_safetensors_count(f), SW_LEN(views));
        const struct sw_safetensor *t = sw_safetensors_find(f, "h.weight");
        assert_true(t && t->dtype == SW_F32 && t->bytes == 24 && t->shape.rank == 2);
        assert_memory_equal(t->data, floats + 2, 24);
        t = sw_safetensors_find(f, "turned"); /* in row-major order */
        const float turned[] = {1, 4, 2, 5, 3, 6};
        assert_memory_equal(t->data, turned, sizeof turned);
        t = sw_safetensors_find(f, "brain");
        assert_true(t->dtype == SW_BF16 && t->bytes == 8);
        assert_memory_equal(t->data, halves, 8);
        t = sw_safetensors_find(f, "count");
        assert_true(t->shape.rank == 0 && *(const int64_t *)t->data == -7);
        assert_int_equal(sw_safetensors_find(f, "none")->bytes, 0);
        assert_int_equal(sw_safetensor_check(t), SW_OK);
        sw_safetensors_close(f);
        sw_str_fini(&zip);
    }
}

static void refused(const char *code, size_t n, const char *part)
{
    struct sw_str text = {0}, zip = {0};
    struct sw_safetensors *f = NULL;
    put_op(&text, code, n);
    archive_of(&text, &zip, false);
    if (sw_pickled_parse("m.bin", zip.ptr, zip.len, &f) != SW_E_FORMAT ||
        strncmp(sw_error_message(), "m.bin: ", 7) != 0 || !strstr(sw_error_message(), part)) {
        fail_msg("\"%s\" lacks \"%s\"", f ? "read" : sw_error_message(), part);
    }
    sw_str_fini(&text);
    sw_str_fini(&zip);
}
#define REFUSED(code, part) refused(code, sizeof(code) - 1, part)

static void what_is_not_allowed_is_named(void **state)
{
    (void)state;
    REFUSED("\x80\2cposix\nsystem\nX\2\0\0\0ls\x85R.", "posix.system");
    REFUSED("\x80\4\x8c\x08"
            "builtins\x8c\4eval\x93.",
            "builtins.eval");
}

static void other_pickles_are_refused(void **state)
{
    (void)state;
    REFUSED("\x80\2i.", "instruction 0x69");
    REFUSED("\x80\2", "truncated");
    REFUSED("\x80\2K\1.", "no dictionary");
    REFUSED("\x80\2}X\1\0\0\0aK\1s.", "\"a\" is not a tensor");
    REFUSED("\x80\2}K\1K\1s.", "not a text");
    REFUSED("\x80\2h\7.", "never written");
    REFUSED("\x80\2R.", "stack is empty");
    REFUSED("\x80\2(u.", "no dictionary");
    REFUSED("\x80\2e.", "no mark");
    REFUSED("\x80\2ccollections\nOrderedDict\nK\1\x85R.", "OrderedDict");
    REFUSED("\x80\2K\1Q.", "does not name a storage");
}

static void tensor_refused(struct view view, const char *part)
{
    struct sw_str code = {0};
    OPS(&code, "\x80\2}");
    put_tensor(&code, &view);
    OPS(&code, "s.");
    refused(code.ptr, code.len, part);
    sw_str_fini(&code);
}

static void tensors_stay_inside_their_storages(void **state)
{
    (void)state;
    tensor_refused((struct view){"a", "FloatStorage", "9", 8, 0, 1, {8}, {1}}, "data/9 is missing");
    tensor_refused((struct view){"a", "FloatStorage", "0", 9, 0, 1, {8}, {1}}, "wanted 9 elements");
    tensor_refused((struct view){"a", "DoubleStorage", "0", 8, 0, 1, {4}, {1}}, "of F64");
    tensor_refused((struct view){"a", "FloatStorage", "0", 8, 1, 1, {8}, {1}}, "larger than");
    tensor_refused((struct view){"a", "FloatStorage", "0", 8, 0, 2, {2, 2}, {7, 1}}, "larger than");
    tensor_refused((struct view){"a", "FloatStorage", "0", 8, 0, 2, {9, 1}, {0, 1}}, "larger than");
    tensor_refused((struct view){"a", "FloatStorage", "0", 8, 0, 1, {-1}, {1}}, "arguments");
    tensor_refused((struct view){"a", "FloatStorage", "0", 8, -1, 1, {1}, {1}}, "arguments");
}

/* Any bytes: refused with the name of the file, or every tensor can be read. */
static bool is_read(const char *bytes, size_t len)
{
    struct sw_safetensors *f = NULL;
    char *exact = malloc(len + 1); /* so that a sanitizer sees its end */
    volatile unsigned char sink = 0;
    assert_non_null(exact);
    memcpy(exact, bytes, len);
    exact = realloc(exact, len > 0 ? len : 1);
    const bool good = sw_pickled_parse("m.bin", exact, len, &f) >= 0;
    if (!good) {
        assert_true(strncmp(sw_error_message(), "m.bin: ", 7) == 0);
    }
    for (int64_t i = 0; good && i < sw_safetensors_count(f); i++) {
        const struct sw_safetensor *t = sw_safetensors_at(f, i);
        for (size_t k = 0; k < t->bytes; k++) {
            sink = (unsigned char)(sink + ((const unsigned char *)t->data)[k]);
        }
    }
    sw_safetensors_close(f);
    free(exact);
    return good;
}

static void damage_is_found_or_harmless(void **state)
{
    (void)state;
    for (int large = 0; large < 2; large++) {
        struct sw_str zip = {0};
        archive(&zip, large);
        assert_true(is_read(zip.ptr, zip.len));
        for (size_t len = 0; len < zip.len; len++) {
            assert_false(is_read(zip.ptr, len)); /* truncated */
        }
        for (size_t at = 0; at < zip.len; at++) {
            static const char flips[] = {1, 0x10, (char)0x80, (char)0xff};
            for (size_t k = 0; k < SW_LEN(flips); k++) {
                zip.ptr[at] = (char)(zip.ptr[at] ^ flips[k]);
                (void)is_read(zip.ptr, zip.len);
                zip.ptr[at] = (char)(zip.ptr[at] ^ flips[k]);
            }
        }
        sw_str_fini(&zip);
    }
}

static void lack_of_memory_is_survived(void **state)
{
    (void)state;
    struct sw_str zip = {0};
    struct sw_safetensors *f = NULL;
    archive(&zip, true);
    sw_status st = SW_E_NOMEM;
    for (int64_t n = 1; st < 0; n++) {
        sw_alloc_fail_nth(n);
        st = sw_pickled_parse("m.bin", zip.ptr, zip.len, &f);
        sw_alloc_fail_nth(0);
        assert_true(st == SW_OK || st == SW_E_NOMEM);
    }
    sw_safetensors_close(f);
    sw_str_fini(&zip);
}

/* ---- folders ---- */

static void put_file(const char *folder, const char *name, const char *bytes, size_t len)
{
    char path[256];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    assert_int_equal(sw_file_write_atomic(path, bytes, len), SW_OK);
}

static void folders_without_safetensors_are_read(void **state)
{
    static const char index[] =
        "{\"weight_map\": {\"brain\": \"b-1.bin\", \"count\": \"b-1.bin\"}}";
    char folder[] = "/tmp/spillway-pickle-XXXXXX", command[64];
    struct sw_str zip = {0};
    struct sw_hf_folder *f = NULL;
    (void)state;
    assert_non_null(mkdtemp(folder));
    archive(&zip, true);
    put_file(folder, "b-1.bin", zip.ptr, zip.len);
    put_file(folder, "pytorch_model.bin.index.json", index, sizeof index - 1);
    assert_int_equal(sw_hf_folder_open(folder, &f), SW_OK);
    assert_int_equal(sw_hf_folder_count(f), 2);
    assert_memory_equal(sw_hf_folder_find(f, "brain")->data, halves, sizeof halves);
    sw_hf_folder_close(f);
    put_file(folder, "pytorch_model.bin", zip.ptr, zip.len); /* goes before the shards */
    assert_int_equal(sw_hf_folder_open(folder, &f), SW_OK);
    assert_int_equal(sw_hf_folder_count(f), SW_LEN(views));
    sw_hf_folder_close(f);
    put_file(folder, "pytorch_model.bin", zip.ptr, zip.len - 1);
    assert_int_equal(sw_hf_folder_open(folder, &f), SW_E_FORMAT);
    assert_non_null(strstr(sw_error_message(), "pytorch_model.bin: "));
    snprintf(command, sizeof command, "rm -r %s", folder);
    assert_int_equal(system(command), 0);
    sw_str_fini(&zip);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(a_name_that_is_recalled_takes_no_memory),
    cmocka_unit_test(tensors_that_share_a_storage_are_not_all_copied),
    cmocka_unit_test(the_tensors_are_read),
    cmocka_unit_test(what_is_not_allowed_is_named),
    cmocka_unit_test(other_pickles_are_refused),
    cmocka_unit_test(tensors_stay_inside_their_storages),
    cmocka_unit_test(damage_is_found_or_harmless),
    cmocka_unit_test(lack_of_memory_is_survived),
    cmocka_unit_test(folders_without_safetensors_are_read),
};

const struct test_program sw_tests = {TEST_TABLE(tests)};
