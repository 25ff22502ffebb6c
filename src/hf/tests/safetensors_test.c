// SPDX-License-Identifier: Apache-2.0
// One safetensors file: every refusal of the reader by its name, what the writer makes, and that
// failing to write leaves the old file.

#include "support/fixtures.h"
#include "support/scratch.h"
#include "support/test.h"

#include <dirent.h>
#include <sys/stat.h>
#include <unistd.h>

#include "hf/hf.h"

static int count_files(void)
{
    char names[16][TEST_NAME_CAP];
    return test_list(test_folder(), "", names, 16);
}

/* ---- reading: bytes and the kind of error, NULL for a file that is fine ---- */

static void put_file(struct sw_str *out, const char *header, size_t n_data)
{
    const uint64_t n = strlen(header);
    for (int i = 0; i < 8; i++) {
        sw_str_putc(out, (char)(n >> (8 * i)));
    }
    sw_str_puts(out, header);
    for (size_t i = 0; i < n_data; i++) {
        sw_str_putc(out, '\0');
    }
}

static void expect_bytes(const char *bytes, size_t len, const char *kind)
{
    struct sw_safetensors *file = NULL;
    const sw_status st = sw_safetensors_parse("x.safetensors", bytes, len, &file);
    if (!kind) {
        if (st < 0) {
            fail_msg("%s", sw_error_message());
        }
        sw_safetensors_close(file);
        return;
    }
    char start[80];
    snprintf(start, sizeof(start), "x.safetensors: %s: ", kind);
    if (st != SW_E_FORMAT || strncmp(sw_error_message(), start, strlen(start)) != 0) {
        fail_msg("expected %s, got %d: %s", kind, (int)st, sw_error_message());
    }
}

static void expect(const char *header, size_t n_data, const char *kind)
{
    struct sw_str bytes = {0};
    put_file(&bytes, header, n_data);
    expect_bytes(bytes.ptr, bytes.len, kind);
    sw_str_fini(&bytes);
}

#define T(dtype, shape, begin, end)                                                                \
    "{\"dtype\":\"" dtype "\",\"shape\":" shape ",\"data_offsets\":[" begin "," end "]}"
static const char one[] = "{\"test\":" T("I32", "[2,2]", "0", "16") "}";

static void test_reference_bytes(void **state)
{
    (void)state;
    assert_int_equal(strlen(one), 60);
    expect(one, 16, NULL);
    expect(one, 16 + 34, "MetadataIncompleteBuffer");
    expect(one, 14, "MetadataIncompleteBuffer");
    expect("{\"test\":" T("I32", "[2,18446744073709551614]", "0", "16") "}", 16,
           "ValidationOverflow");
    expect_bytes("\x3c\0\0\0\0\xff\xff\xff", 8, "HeaderTooLarge");
    expect_bytes("\1\0\0\0\0\0\0\0\xff", 9, "InvalidHeader");
    expect_bytes("\1\0\0\0\0\0\0\0{", 9, "InvalidHeaderDeserialization");
    expect_bytes("", 0, "HeaderTooSmall");
    expect_bytes("\1\0\0\0\0\0\0", 7, "HeaderTooSmall");
    expect_bytes("\x3c\0\0\0\0\0\0\0", 8, "InvalidHeaderLength");
    struct sw_str header = {0};
    for (int i = 0; i < 10; i++) {
        sw_str_printf(&header, "%c\"test_%d\":" T("I32", "[2,2]", "0", "16"), i ? ',' : '{', i);
    }
    sw_str_putc(&header, '}');
    expect(header.ptr, 16, "InvalidOffset");
    sw_str_fini(&header);
}

static void test_header_limit(void **state)
{
    (void)state;
    const uint64_t n = 100000001;
    char bytes[9] = {0};
    memcpy(bytes, &n, 8);
    expect_bytes(bytes, 9, "HeaderTooLarge");
    bytes[0]--; /* allowed, but not there */
    expect_bytes(bytes, 9, "InvalidHeaderLength");
}

static void test_headers(void **state)
{
    (void)state;
    static const struct {
        const char *header;
        size_t n_data;
        const char *kind;
    } cases[] = {
        {"{}", 0, NULL},
        {" \t\r\n{} \n", 0, NULL},
        {"{\"__metadata__\":{\"a\":\"b\"}}", 0, NULL},
        {"{\"s\":" T("F32", "[]", "0", "4") "}", 4, NULL},
        {"{\"e\":" T("F32", "[0,7]", "0", "0") "}", 0, NULL},
        {"{\"e\":" T("F32", "[0,18446744073709551615]", "0", "0") "}", 0, NULL},
        {"{\"q\":" T("F4", "[2]", "0", "1") "}", 1, NULL},
        {"{\"r\":" T("U8", "[1,1,1,1,1,1,1,2]", "0", "2") "}", 2, NULL},
        {"{\"a\":" T("U8", "[1]", "0", "1") ",\"z\":" T("U8", "[0]", "0", "0") "}", 1, NULL},
        {"{\"a\":" T("U8", "[1]", "1", "2") ",\"b\":" T("U8", "[1]", "0", "1") "}", 2, NULL},
        {"", 0, "InvalidHeaderDeserialization"},
        {"[]", 0, "InvalidHeaderDeserialization"},
        {"{} {}", 0, "InvalidHeaderDeserialization"},
        {"{\"a\":5}", 0, "InvalidHeaderDeserialization"},
        {"{\"__metadata__\":{\"a\":1}}", 0, "InvalidHeaderDeserialization"},
        {"{\"__metadata__\":\"a\"}", 0, "InvalidHeaderDeserialization"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1]}}", 4, "InvalidHeaderDeserialization"},
        {"{\"a\":{\"shape\":[1],\"data_offsets\":[0,4]}}", 4, "InvalidHeaderDeserialization"},
        {"{\"a\":{\"dtype\":\"F32\",\"data_offsets\":[0,4]}}", 4, "InvalidHeaderDeserialization"},
        {"{\"a\":" T("f32", "[1]", "0", "4") "}", 4, "InvalidHeaderDeserialization"},
        {"{\"a\":" T("F32", "[-1]", "0", "4") "}", 4, "InvalidHeaderDeserialization"},
        {"{\"a\":" T("F32", "[1.0]", "0", "4") "}", 4, "InvalidHeaderDeserialization"},
        {"{\"a\":" T("F32", "[18446744073709551616]", "0", "4") "}", 4,
         "InvalidHeaderDeserialization"},
        {"{\"a\":" T("F32", "[1]", "0", "4,4") "}", 4, "InvalidHeaderDeserialization"},
        {"{\"a\":" T("F32", "[1]", "0", "4") ",\"a\":" T("F32", "[1]", "0", "4") "}", 4,
         "InvalidHeaderDeserialization"},
        {"{\"a\":{\"dtype\":\"F32\",\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}", 4,
         "InvalidHeaderDeserialization"},
        {"{\"__metadata__\":{\"a\":\"b\",\"c\":\"d\",\"a\":\"e\"}}", 0,
         "InvalidHeaderDeserialization"},
        {"{\"__metadata__\":{},\"__metadata__\":{}}", 0, "InvalidHeaderDeserialization"},
        {"{\"a\":" T("F32", "[[1]]", "0", "4") "}", 4, "InvalidHeaderDeserialization"},
        {"{\"a\":" T("F32", "[1]", "{}", "4") "}", 4, "InvalidHeaderDeserialization"},
        {"{\"a\\u0000b\":" T("F32", "[1]", "0", "4") "}", 4, "InvalidHeaderDeserialization"},
        {"{\"a\":" T("F32", "[1]", "4", "8") "}", 8, "InvalidOffset"},
        {"{\"a\":" T("U8", "[1]", "0", "1") ",\"b\":" T("U8", "[1]", "2", "3") "}", 3,
         "InvalidOffset"},
        {"{\"a\":" T("U8", "[2]", "0", "2") ",\"b\":" T("U8", "[2]", "1", "3") "}", 3,
         "InvalidOffset"},
        {"{\"a\":" T("U8", "[2]", "0", "2") ",\"b\":" T("U8", "[2]", "2", "1") "}", 3,
         "InvalidOffset"},
        {"{\"a\":" T("F64", "[4611686018427387904]", "0", "8") "}", 8, "ValidationOverflow"},
        {"{\"a\":" T("F6_E2M3", "[1]", "0", "1") "}", 1, "MisalignedSlice"},
        {"{\"a\":" T("F32", "[2]", "0", "4") "}", 4, "TensorInvalidInfo"},
        {"{\"a\":" T("F32", "[0]", "0", "4") "}", 4, "TensorInvalidInfo"},
        {"{}", 1, "MetadataIncompleteBuffer"},
    };
    for (size_t i = 0; i < SW_LEN(cases); i++) {
        expect(cases[i].header, cases[i].n_data, cases[i].kind);
    }
}

static void test_every_prefix_fails(void **state)
{
    (void)state;
    struct sw_str bytes = {0};
    put_file(&bytes, one, 16);
    for (size_t len = 0; len < bytes.len; len++) {
        char *copy = malloc(len ? len : 1); /* so that a sanitizer sees a read behind it */
        memcpy(copy, bytes.ptr, len);
        struct sw_safetensors *file = NULL;
        assert_int_equal(sw_safetensors_parse("p", copy, len, &file), SW_E_FORMAT);
        free(copy);
    }
    sw_str_fini(&bytes);
}

static void test_lookup(void **state)
{
    (void)state;
    /* a header of odd length: the data is not aligned, what is lent is */
    const char *header = "{\"f\":" T("F32", "[1]", "1", "5") ",\"u\":" T(
        "U8", "[1]", "0", "1") ",\"q\":" T("F8_E4M3", "[1]", "5", "6") "}";
    struct sw_str bytes = {0};
    put_file(&bytes, header, 0);
    const float value = 1.5f;
    sw_str_append(&bytes, "\7", 1);
    sw_str_append(&bytes, (const char *)&value, 4);
    sw_str_append(&bytes, "\1", 1);
    struct sw_safetensors *file = NULL;
    assert_int_equal(sw_safetensors_parse("l", bytes.ptr, bytes.len, &file), SW_OK);
    assert_int_equal(sw_safetensors_count(file), 3);
    assert_string_equal(sw_safetensors_at(file, 0)->name, "u");
    const struct sw_safetensor *f = sw_safetensors_find(file, "f");
    assert_int_equal((uintptr_t)f->data % 4, 0);
    assert_true(*(const float *)f->data == value);
    assert_int_equal(f->dtype, SW_F32);
    assert_int_equal(f->shape.rank, 1);
    assert_int_equal(sw_safetensors_find(file, "q")->dtype, SW_DTYPE_COUNT);
    assert_string_equal(sw_safetensors_find(file, "q")->dtype_name, "F8_E4M3");
    assert_null(sw_safetensors_find(file, "absent"));
    assert_null(sw_safetensors_metadata(file, "format"));
    sw_safetensors_close(file);
    sw_str_fini(&bytes);
}

/* ---- writing ---- */

static void path_of(char out[TEST_PATH_CAP], const char *name)
{
    test_join(out, test_folder(), name);
}

static void test_order_and_header(void **state)
{
    (void)state;
    char path[TEST_PATH_CAP];
    path_of(path, "order.safetensors");
    const struct sw_safetensor_spec specs[] = {{"b", SW_F32, SW_SHAPE(1)},
                                               {"a\"", SW_F32, SW_SHAPE(2)},
                                               {"c", SW_U8, SW_SHAPE(3)},
                                               {"d", SW_I64, {0}},
                                               {"e", SW_BF16, SW_SHAPE(0, 5)}};
    static const char data[16] = "0123456789abcdef";
    struct sw_safetensors_writer *w = NULL;
    assert_int_equal(sw_safetensors_create(path, specs, SW_LEN(specs), NULL, &w), SW_OK);
    assert_int_equal(sw_safetensors_commit(w), SW_E_ARG); /* nothing is written yet */
    assert_int_equal(sw_safetensors_write(w, 0, 0, data, 4), SW_OK);
    assert_int_equal(sw_safetensors_write(w, 1, 4, data + 4, 4), SW_OK);
    assert_int_equal(sw_safetensors_write(w, 1, 0, data, 4), SW_OK);
    assert_int_equal(sw_safetensors_write(w, 2, 0, data, 3), SW_OK);
    assert_int_equal(sw_safetensors_write(w, 2, 1, data, 3), SW_E_ARG);
    assert_int_equal(sw_safetensors_write(w, 5, 0, data, 1), SW_E_ARG);
    assert_int_equal(sw_safetensors_write(w, 3, 0, data, 8), SW_OK);
    assert_false(test_exists(path));
    assert_int_equal(sw_safetensors_commit(w), SW_OK);
    sw_safetensors_writer_close(w);

    static const char expected[] =
        "{\"__metadata__\":{\"format\":\"pt\"},"
        "\"d\":" T("I64", "[]", "0", "8") ",\"a\\\"\":" T("F32", "[2]", "8", "16") ",\"b\":" T(
            "F32", "[1]", "16", "20") ",\"e\":" T("BF16", "[0,5]", "20",
                                                  "20") ",\"c\":" T("U8", "[3]", "20", "23") "}";
    char *bytes = NULL;
    size_t len = 0;
    assert_int_equal(sw_file_read(path, &bytes, &len), SW_OK);
    const size_t n = sw_round_up(strlen(expected), 8);
    assert_int_equal((unsigned char)bytes[0] | (unsigned char)bytes[1] << 8, n);
    assert_memory_equal(bytes + 8, expected, strlen(expected));
    assert_int_equal(len, 8 + n + 23);
    assert_memory_equal(bytes + 8 + n,
                        "0123456701234567"
                        "0123"
                        "012",
                        23);
    sw_free(bytes);
    assert_int_equal(count_files(), 1);
    unlink(path);
}

static void test_options(void **state)
{
    (void)state;
    char path[TEST_PATH_CAP];
    path_of(path, "options.safetensors");
    const char *const metadata[][2] = {{"step", "7"}, {"quote", "\"\n"}};
    const struct sw_safetensors_options options = {
        .page_aligned = true, .metadata = metadata, .n_metadata = 2};
    const struct sw_safetensor_spec spec = {"x", SW_F32, SW_SHAPE(1)};
    struct sw_safetensors_writer *w = NULL;
    assert_int_equal(sw_safetensors_create(path, &spec, 1, &options, &w), SW_OK);
    assert_int_equal(sw_safetensors_write(w, 0, 0, "abcd", 4), SW_OK);
    assert_int_equal(sw_safetensors_commit(w), SW_OK);
    sw_safetensors_writer_close(w);
    char *bytes = NULL;
    size_t len = 0;
    assert_int_equal(sw_file_read(path, &bytes, &len), SW_OK);
    assert_int_equal(len, 4096 + 4);
    sw_free(bytes);
    struct sw_safetensors *file = NULL;
    assert_int_equal(sw_safetensors_open(path, &file), SW_OK);
    assert_string_equal(sw_safetensors_metadata(file, "step"), "7");
    assert_string_equal(sw_safetensors_metadata(file, "quote"), "\"\n");
    assert_memory_equal(sw_safetensors_at(file, 0)->data, "abcd", 4);
    sw_safetensors_close(file);
    unlink(path);
}

static void test_refused_specs(void **state)
{
    (void)state;
    char path[TEST_PATH_CAP];
    path_of(path, "refused.safetensors");
    const struct sw_safetensor_spec specs[][2] = {
        {{"a", SW_F32, SW_SHAPE(1)}, {"a", SW_F64, SW_SHAPE(1)}},
        {{"a", SW_F32, SW_SHAPE(1)}, {"__metadata__", SW_F32, SW_SHAPE(1)}},
        {{"a", SW_F32, SW_SHAPE(1)}, {"\xff", SW_F32, SW_SHAPE(1)}},
        {{"a", SW_F32, SW_SHAPE(1)}, {"b", SW_F32, SW_SHAPE(-1)}},
        {{"a", SW_F32, SW_SHAPE(1)}, {"b", SW_DTYPE_COUNT, SW_SHAPE(1)}},
    };
    for (size_t i = 0; i < SW_LEN(specs); i++) {
        struct sw_safetensors_writer *w = NULL;
        assert_int_equal(sw_safetensors_create(path, specs[i], 2, NULL, &w), SW_E_ARG);
    }
    assert_int_equal(count_files(), 0);
}

static sw_status write_value(const char *path, float value)
{
    const struct sw_safetensor_spec spec = {"x", SW_F32, SW_SHAPE(1)};
    struct sw_safetensors_writer *w = NULL;
    sw_status st = sw_safetensors_create(path, &spec, 1, NULL, &w);
    if (st == SW_OK) {
        st = sw_safetensors_write(w, 0, 0, &value, sizeof(value));
    }
    if (st == SW_OK) {
        st = sw_safetensors_commit(w);
    }
    sw_safetensors_writer_close(w);
    return st;
}

static float read_value(const char *path)
{
    struct sw_safetensors *file = NULL;
    if (sw_safetensors_open(path, &file) < 0) {
        fail_msg("%s", sw_error_message());
    }
    const float value = *(const float *)sw_safetensors_find(file, "x")->data;
    sw_safetensors_close(file);
    return value;
}

/* Fails pass 1, 2, .. of each point: an error, the old or (after the rename) the new file whole,
 * and no temporary file left. */
static void test_failing_writes(void **state)
{
    (void)state;
    static const char *const points[] = {"hf.write", "fsync", "rename"};
    static const char *const actions[] = {"eio", "enospc"};
    char path[TEST_PATH_CAP];
    path_of(path, "faults.safetensors");
    int n_failed = 0;
    for (size_t p = 0; p < SW_LEN(points); p++) {
        for (size_t a = 0; a < SW_LEN(actions); a++) {
            for (int n = 1;; n++) {
                assert_int_equal(write_value(path, 1.0f), SW_OK);
                char spec[64];
                snprintf(spec, sizeof(spec), "%s:%d:%s", points[p], n, actions[a]);
                assert_int_equal(sw_fault_set(spec), SW_OK);
                const sw_status st = write_value(path, 2.0f);
                sw_fault_set(NULL);
                assert_int_equal(count_files(), 1);
                if (st == SW_OK) {
                    assert_true(read_value(path) == 2.0f);
                    break;
                }
                n_failed++;
                assert_int_equal(st, SW_E_IO);
                assert_non_null(strstr(sw_error_message(), test_folder()));
                const float value = read_value(path);
                assert_true(value == 1.0f || (n == 2 && strcmp(points[p], "fsync") == 0));
            }
        }
    }
    assert_true(n_failed >= 10);
    assert_int_equal(sw_fault_set("hf.write:2:short"), SW_OK);
    assert_int_equal(write_value(path, 3.0f), SW_OK);
    sw_fault_set(NULL);
    assert_true(read_value(path) == 3.0f);
    unlink(path);
}

static void test_no_memory(void **state)
{
    (void)state;
    char path[TEST_PATH_CAP];
    path_of(path, "memory.safetensors");
    assert_int_equal(write_value(path, 1.0f), SW_OK);
    struct sw_alloc_stats before, after;
    sw_alloc_get_stats(&before);
    bool done = false;
    for (int n = 1; !done; n++) {
        struct sw_safetensors *file = NULL;
        sw_alloc_fail_nth(n);
        sw_status st = sw_safetensors_open(path, &file);
        sw_alloc_fail_nth(0);
        done = st == SW_OK;
        assert_true(done || st == SW_E_NOMEM);
        sw_safetensors_close(file);
        sw_alloc_get_stats(&after);
        assert_int_equal(after.live_blocks, before.live_blocks);
    }
    done = false;
    for (int n = 1; !done; n++) {
        sw_alloc_fail_nth(n);
        const sw_status st = write_value(path, 2.0f);
        sw_alloc_fail_nth(0);
        done = st == SW_OK;
        assert_true(done || st == SW_E_NOMEM);
        assert_true(read_value(path) == (done ? 2.0f : 1.0f));
        sw_alloc_get_stats(&after);
        assert_int_equal(after.live_blocks, before.live_blocks);
    }
    unlink(path);
}

/* A large header made of a repeated item. */
enum { HEADER_MOST = 4 }; /* most memory, in multiples of the header's bytes */
struct large_header {
    long bytes;
    const char *begin, *item, *end;
    bool numbered; /* the item wants a number, in a name */
    int64_t n_tensors;
};

/* With stdio, whose memory is not counted. Returns the items. */
static int64_t write_large(const char *path, const struct large_header *kind)
{
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    fwrite("\0\0\0\0\0\0\0\0", 1, 8, file);
    fputs(kind->begin, file);
    int64_t n = 0;
    for (long at = 0; at < kind->bytes; n++) {
        const char *comma = n > 0 && kind->item[0] != 'x' ? "," : "";
        at += kind->numbered
                  ? fprintf(file, "%s\"%llx\"%s", comma, (unsigned long long)n, kind->item)
                  : fprintf(file, "%s%s", comma, kind->item);
    }
    fputs(kind->end, file);
    const uint64_t bytes = (uint64_t)ftell(file) - 8;
    rewind(file);
    fwrite(&bytes, 1, 8, file); /* the machines of these tests are little-endian */
    assert_int_equal(fclose(file), 0);
    return n;
}

/* Read without a tree: no header costs more than a few times its bytes, whatever it holds. */
static void test_memory_of_a_header(void **state)
{
    (void)state;
    static const struct large_header kinds[] = {
        {20000000, "{", ":" T("U8", "[0]", "0", "0"), "}", true, -1},
        {20000000, "{\"__metadata__\":{", ":\"\"", "}}", true, 0},
        {2000000, "{\"a\":{\"dtype\":\"U8\",\"shape\":[", "0", "],\"data_offsets\":[0,0]}}", false,
         1},
        {2000000, "{\"a\":{\"x\":[", "{}",
         "],\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[0,0]}}", false, 1},
        {2000000, "{\"", "x", "\":" T("U8", "[0]", "0", "0") "}", false, 1},
    };
    struct sw_alloc_stats before, after;
    sw_alloc_get_stats(&before);
    for (size_t k = SW_LEN(kinds);
         k-- > 0;) { /* the peak is that of all before: small ones first */
        char path[TEST_PATH_CAP];
        path_of(path, "large.safetensors");
        const int64_t n = write_large(path, &kinds[k]);
        struct sw_safetensors *file = NULL;
        if (sw_safetensors_open(path, &file) < 0) {
            fail_msg("case %zu: %s", k, sw_error_message());
        }
        assert_int_equal(sw_safetensors_count(file),
                         kinds[k].n_tensors < 0 ? n : kinds[k].n_tensors);
        sw_alloc_get_stats(&after);
        const int64_t took = after.peak_bytes - before.live_bytes;
        if (took > (HEADER_MOST - 1) * kinds[k].bytes) { /* and the header itself, mapped */
            fail_msg("case %zu: a header of %ld bytes took %lld", k, kinds[k].bytes,
                     (long long)took);
        }
        sw_safetensors_close(file);
        unlink(path);
    }
}

static void test_file_that_becomes_shorter(void **state)
{
    (void)state;
    char path[TEST_PATH_CAP];
    path_of(path, "shrinks.safetensors");
    assert_int_equal(write_value(path, 1.0f), SW_OK);
    struct sw_safetensors *file = NULL;
    assert_int_equal(sw_safetensors_open(path, &file), SW_OK);
    const struct sw_safetensor *tensor = sw_safetensors_at(file, 0);
    assert_int_equal(sw_safetensor_check(tensor), SW_OK);
    assert_int_equal(truncate(path, 10), 0);
    assert_int_equal(sw_safetensor_check(tensor), SW_E_IO);
    assert_non_null(strstr(sw_error_message(), "shrinks.safetensors became shorter"));
    sw_safetensors_close(file);
    unlink(path);
}

/* Bytes of tensors that the file aligns, and of one that it does not, after their release. */
static void test_released_pages_are_read_again(void **state)
{
    (void)state;
    enum { ELEMS = 5000 }; /* several pages */
    static const char *const names[] = {"a", "b"};
    const struct sw_safetensor_spec specs[] = {{names[0], SW_F32, SW_SHAPE(ELEMS)},
                                               {names[1], SW_F32, SW_SHAPE(ELEMS)}};
    char path[TEST_PATH_CAP];
    struct sw_safetensors_writer *writer = NULL;
    struct sw_safetensors *file = NULL;
    float *values = sw_alloc("test", ELEMS * sizeof *values);
    path_of(path, "released.safetensors");
    assert_int_equal(sw_safetensors_create(path, specs, 2, NULL, &writer), SW_OK);
    for (int i = 0; i < ELEMS; i++) {
        values[i] = (float)i;
    }
    for (int64_t k = 0; k < 2; k++) {
        assert_int_equal(sw_safetensors_write(writer, k, 0, values, ELEMS * sizeof *values), SW_OK);
    }
    assert_int_equal(sw_safetensors_commit(writer), SW_OK);
    sw_safetensors_writer_close(writer);
    assert_int_equal(sw_safetensors_open(path, &file), SW_OK);
    for (int64_t k = 0; k < 2; k++) {
        const struct sw_safetensor *tensor = sw_safetensors_at(file, k);
        for (size_t at = 0; at < tensor->bytes; at += 4000) {
            sw_safetensor_release(tensor, at,
                                  at + 4000 < tensor->bytes ? 4000 : tensor->bytes - at);
        }
        assert_memory_equal(tensor->data, values, tensor->bytes);
    }
    sw_safetensors_close(file);
    /* a file in memory is the caller's, and keeps its bytes */
    char *text;
    size_t len;
    assert_int_equal(sw_file_read(path, &text, &len), SW_OK);
    assert_int_equal(sw_safetensors_parse("memory", text, len, &file), SW_OK);
    const struct sw_safetensor *tensor = sw_safetensors_at(file, 1);
    sw_safetensor_release(tensor, 0, tensor->bytes);
    assert_memory_equal(tensor->data, values, tensor->bytes);
    sw_safetensors_close(file);
    sw_free(text);
    sw_free(values);
    unlink(path);
}

static void test_not_a_file(void **state)
{
    (void)state;
    struct sw_safetensors *file = NULL;
    assert_int_equal(sw_safetensors_open(test_folder(), &file), SW_E_IO);
    assert_int_equal(sw_safetensors_open("/nonexistent/x", &file), SW_E_IO);
    char path[TEST_PATH_CAP];
    path_of(path, "short.safetensors");
    assert_int_equal(mkfifo(path, 0600), 0);
    alarm(20); /* who waits for a writer waits for ever */
    assert_int_equal(sw_safetensors_open(path, &file), SW_E_IO);
    alarm(0);
    unlink(path);
    assert_int_equal(sw_file_write_atomic(path, "abc", 3), SW_OK);
    assert_int_equal(sw_safetensors_open(path, &file), SW_E_FORMAT);
    assert_int_equal(sw_file_write_atomic(path, "", 0), SW_OK);
    assert_int_equal(sw_safetensors_open(path, &file), SW_E_FORMAT);
    assert_non_null(strstr(sw_error_message(), "HeaderTooSmall"));
    unlink(path);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_reference_bytes),
    cmocka_unit_test(test_header_limit),
    cmocka_unit_test(test_headers),
    cmocka_unit_test(test_every_prefix_fails),
    cmocka_unit_test(test_lookup),
    cmocka_unit_test(test_order_and_header),
    cmocka_unit_test(test_options),
    cmocka_unit_test(test_refused_specs),
    cmocka_unit_test(test_failing_writes),
    cmocka_unit_test(test_no_memory),
    cmocka_unit_test(test_memory_of_a_header),
    cmocka_unit_test(test_file_that_becomes_shorter),
    cmocka_unit_test(test_released_pages_are_read_again),
    cmocka_unit_test(test_not_a_file),
};

const struct test_program sw_tests = {TEST_TABLE(tests)};
