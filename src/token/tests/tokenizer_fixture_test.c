// SPDX-License-Identifier: Apache-2.0
// Every folder of fixtures/tokenizers: the tokenizer.json beside the recorded ids, and the
// vocabulary files that its reference.json names, give those ids and texts, one by one and over
// whole files. Files above 512 KiB are read with SPILLWAY_FILES=all alone.
// TIMEOUT 1200
// SLOW SPILLWAY_FILES=all
#include "token/token.h"

#include "json/json.h"
#include "support/files.h"
#include "support/test.h"
#include "text/text.h"

#include <dirent.h>
#include <stdlib.h>
#include <unistd.h>

static const char *root;

/* ---- one recorded line ---- */

struct counts {
    int64_t n_lines, n_wrong;
};

static void report(struct counts *counts, const char *file, int64_t i_line, const char *what)
{
    if (counts->n_wrong++ < 5) {
        print_error("%s:%lld: %s differs\n", file, (long long)i_line, what);
    }
}

static bool same_ids(const struct sw_ids *ids, const struct sw_json *wanted)
{
    const struct sw_json *id = wanted->first;
    for (int64_t i = 0; i < ids->len && id; ++i, id = id->next) {
        if (id->integer != ids->ptr[i]) {
            return false;
        }
    }
    return ids->len == wanted->n_children;
}

static bool same_text(struct sw_tokenizer *tokenizer, const struct sw_ids *ids, bool plain,
                      const struct sw_json *wanted)
{
    char *text;
    size_t len;
    assert_int_equal(sw_tokenizer_decode(tokenizer, ids->ptr, ids->len, plain, &text, &len), SW_OK);
    const bool same = len == wanted->string_len && memcmp(text, wanted->string, len) == 0;
    sw_text_free(text);
    return same;
}

/* A third of the ids, or a few less so that they end with a whole character, as a prompt does. */
static int64_t prompt_of(const struct sw_tokenizer *tokenizer, const struct sw_ids *ids)
{
    bool whole = false;
    int64_t n = ids->len / 3;
    for (; n > 0 && !whole; n -= !whole) {
        struct sw_str text = {0};
        assert_int_equal(sw_tokenizer_decode_str(tokenizer, ids->ptr, n, true, &text), SW_OK);
        whole = text.len < 3 || memcmp(text.ptr + text.len - 3, "\xEF\xBF\xBD", 3) != 0;
        sw_str_fini(&text);
    }
    return n;
}

/* Written id by id behind the first `cut` of them it is the same text, and each piece is whole
 * characters: what stands there once stays. */
static bool same_pieces(struct sw_tokenizer *tokenizer, const struct sw_ids *ids)
{
    struct sw_str whole = {0};
    char *written = NULL;
    size_t len = 0;
    bool same = true;
    const int64_t cut = prompt_of(tokenizer, ids);
    FILE *to = open_memstream(&written, &len);
    struct sw_text_writer writer = {tokenizer, to, ids->ptr, cut, 0};
    for (int64_t n = 1; n <= ids->len - cut; n++) {
        same = same && sw_text_write(&writer, ids->ptr + cut, n, n == ids->len - cut) == SW_OK &&
               sw_utf8_check("written", written, len) == SW_OK;
    }
    fclose(to);
    assert_int_equal(sw_tokenizer_decode_behind(tokenizer, ids->ptr, cut, ids->ptr + cut,
                                                ids->len - cut, &whole),
                     SW_OK);
    same = same && len == whole.len && memcmp(written, sw_str_text(&whole), len) == 0;
    free(written);
    sw_str_fini(&whole);
    return same;
}

static void check_row(struct sw_tokenizer *tokenizer, const char *file, int64_t i_line,
                      const struct sw_json *row, struct counts *counts)
{
    struct sw_ids ids = {0}, types = {0};
    const struct sw_json *text = sw_json_get(row, "text"), *pair = sw_json_get(row, "pair");
    const struct sw_json *decoded = sw_json_get(row, "decoded");
    const struct sw_json *plain = sw_json_get(row, "decoded_plain");
    const struct sw_json *type_ids = sw_json_get(row, "token_type_ids");
    const sw_status st =
        text ? sw_tokenizer_encode(tokenizer, text->string, text->string_len, true, &ids)
             : sw_tokenizer_encode_pair(tokenizer, pair->first->string, pair->first->string_len,
                                        pair->last->string, pair->last->string_len, true, &ids,
                                        &types);
    counts->n_lines++;
    if (st < 0 || !same_ids(&ids, sw_json_get(row, "ids"))) {
        report(counts, file, i_line, st < 0 ? sw_error_message() : "ids");
    }
    if (ids.len < 64 && !same_pieces(tokenizer, &ids)) {
        report(counts, file, i_line, "what is written in pieces");
    }
    if (type_ids && !same_ids(&types, type_ids)) {
        report(counts, file, i_line, "token_type_ids");
    }
    if (!same_text(tokenizer, &ids, false, decoded)) {
        report(counts, file, i_line, "decoded");
    }
    if (!same_text(tokenizer, &ids, true, plain ? plain : decoded)) {
        report(counts, file, i_line, "decoded_plain");
    }
    sw_ids_fini(&ids);
    sw_ids_fini(&types);
}

static void check_lines(struct sw_tokenizer *tokenizer, const char *file)
{
    struct counts counts = {0};
    char *data;
    size_t len;
    int64_t i_line = 1;
    assert_int_equal(sw_file_read(file, &data, &len), SW_OK);
    for (size_t at = 0; at < len; ++i_line) {
        const char *end = memchr(data + at, '\n', len - at);
        const size_t n = end ? (size_t)(end - (data + at)) : len - at;
        struct sw_json_doc *doc;
        if (n > 0) {
            assert_int_equal(sw_json_parse(file, data + at, n, SW_JSON_STRICT, &doc), SW_OK);
            check_row(tokenizer, file, i_line, sw_json_root(doc), &counts);
            sw_json_close(doc);
        }
        at += n + 1;
    }
    sw_free(data);
    print_message("  %s: %lld rows, %lld wrong\n", file, (long long)counts.n_lines,
                  (long long)counts.n_wrong);
    assert_true(counts.n_lines > 0);
    assert_int_equal(counts.n_wrong, 0);
}

/* ---- whole files ---- */

static void digest(const struct sw_ids *ids, char out[65])
{
    unsigned char *bytes = sw_alloc("test", (size_t)ids->len * 4 + 1);
    for (int64_t i = 0; i < ids->len; ++i) {
        for (int k = 0; k < 4; ++k) {
            bytes[4 * i + k] = (unsigned char)((uint32_t)ids->ptr[i] >> 8 * k);
        }
    }
    sw_test_sha256(bytes, (size_t)ids->len * 4, out);
    sw_free(bytes);
}

static void check_digest(const char *what, const struct sw_ids *ids, const struct sw_json *row,
                         const char *count_key, const char *digest_key)
{
    char hex[65];
    const struct sw_json *count = sw_json_get(row, count_key);
    if (!count) {
        return;
    }
    digest(ids, hex);
    print_message("  %s, %s: %lld tokens\n", sw_json_get(row, "file")->string, what,
                  (long long)ids->len);
    assert_int_equal(ids->len, count->integer);
    assert_string_equal(hex, sw_json_get(row, digest_key)->string);
}

static void encode_lines(struct sw_tokenizer *tokenizer, const char *text, size_t len, int64_t step,
                         struct sw_ids *ids)
{
    int64_t i_line = 0;
    for (size_t at = 0; at < len; ++i_line) {
        const char *end = memchr(text + at, '\n', len - at);
        const size_t n = end ? (size_t)(end - (text + at)) : len - at;
        if (i_line % step == 0) {
            assert_int_equal(sw_tokenizer_encode(tokenizer, text + at, n, false, ids), SW_OK);
        }
        at += n + 1;
    }
}

static void check_files(struct sw_tokenizer *tokenizer, const char *path)
{
    enum { MOST_BYTES = 512 << 10 };
    struct sw_json_doc *doc;
    struct sw_str file = {0}, name = {0};
    struct sw_ids ids = {0};
    assert_int_equal(sw_json_read(path, SW_JSON_STRICT, &doc), SW_OK);
    const int64_t step = sw_json_get(sw_json_root(doc), "line_step")->integer;
    const struct sw_json *row = sw_json_get(sw_json_root(doc), "files")->first;
    for (; row; row = row->next) {
        char *text;
        size_t len;
        sw_str_clear(&name);
        sw_str_printf(&name, "text/%s", sw_json_get(row, "file")->string);
        assert_int_equal(sw_file_read(sw_test_data(&file, name.ptr), &text, &len), SW_OK);
        if (len > MOST_BYTES && !getenv("SPILLWAY_FILES")) {
            sw_free(text);
            continue;
        }
        sw_ids_clear(&ids);
        encode_lines(tokenizer, text, len, step, &ids);
        check_digest("by lines", &ids, row, "line_count", "line_sha256");
        sw_ids_clear(&ids);
        if (sw_json_get(row, "whole_count")) {
            assert_int_equal(sw_tokenizer_encode(tokenizer, text, len, false, &ids), SW_OK);
        }
        check_digest("whole", &ids, row, "whole_count", "whole_sha256");
        sw_free(text);
    }
    sw_json_close(doc);
    sw_ids_fini(&ids);
    sw_str_fini(&file);
    sw_str_fini(&name);
}

/* ---- one folder ---- */

static bool exists(struct sw_str *path, const char *folder, const char *name)
{
    sw_str_clear(path);
    sw_str_printf(path, "%s/%s", folder, name);
    return access(path->ptr, R_OK) == 0;
}

/* Files of ids that a tokenizer.json gives, and those that a vocabulary file does. */
enum { BY_JSON = 1, BY_BYTES = 2, BY_MODEL = 4, BY_WORDS = 8 };
static const struct {
    const char *name;
    int by;
    struct sw_tokenizer_options options;
} files[] = {
    {"ids.jsonl", BY_JSON | BY_BYTES | BY_WORDS, {SW_PREFIX_AS_FILE}},
    {"pairs.jsonl", BY_JSON | BY_BYTES | BY_WORDS, {SW_PREFIX_AS_FILE}},
    {"ids_prefix_space.jsonl", BY_JSON | BY_BYTES, {.prefix_space = SW_PREFIX_ON}},
    {"tokenizer_json.jsonl", BY_JSON, {SW_PREFIX_AS_FILE}},
    {"transformers.jsonl", BY_JSON, {SW_PREFIX_AS_FILE}},
    {"sentencepiece.jsonl", BY_MODEL, {SW_PREFIX_AS_FILE}},
    {"files.json", BY_JSON | BY_BYTES | BY_MODEL | BY_WORDS, {SW_PREFIX_AS_FILE}},
};

/* ids of files.json were made by the vocabulary file itself where there are ids of it. */
static int how(const char *folder)
{
    struct sw_str path = {0};
    const bool model = exists(&path, folder, "sentencepiece.jsonl");
    sw_str_fini(&path);
    return model ? BY_MODEL : BY_JSON;
}

/* Every file of ids in the folder against one tokenizer. */
static void check_tokenizer(const char *tokenizer_path, const char *folder, int by)
{
    struct sw_str path = {0};
    int n = 0;
    for (size_t i = 0; i < SW_LEN(files); ++i) {
        struct sw_tokenizer *tokenizer;
        if (!(files[i].by & by) || !exists(&path, folder, files[i].name) ||
            (strcmp(files[i].name, "files.json") == 0 && by == BY_JSON && how(folder) != by)) {
            continue;
        }
        if (sw_tokenizer_open(tokenizer_path, &files[i].options, &tokenizer) < 0) {
            fail_msg("%s: %s", tokenizer_path, sw_error_message());
        }
        if (strcmp(files[i].name, "files.json") == 0) {
            check_files(tokenizer, path.ptr);
        } else {
            check_lines(tokenizer, path.ptr);
        }
        sw_tokenizer_close(tokenizer);
        n++;
    }
    sw_str_fini(&path);
    assert_true(n > 0);
}

static void check_tokenizer_json(const char *path, const char *folder)
{
    struct sw_tokenizer *tokenizer;
    print_message("%s\n", path);
    if (strstr(path, "truncating")) { /* its ids are those of batches */
        assert_int_equal(sw_tokenizer_open(path, NULL, &tokenizer), SW_OK);
        sw_tokenizer_close(tokenizer);
        return;
    }
    check_tokenizer(path, folder, BY_JSON);
}

/* The vocabulary files that reference.json names. */
static void check_named_files(const char *folder)
{
    struct sw_str path = {0}, data = {0};
    struct sw_json_doc *doc;
    assert_true(exists(&path, folder, "reference.json"));
    assert_int_equal(sw_json_read(path.ptr, SW_JSON_STRICT, &doc), SW_OK);
    const struct sw_json *named = sw_json_get(sw_json_root(doc), "files");
    if (named && named->first) {
        const char *name = sw_test_data(&data, named->first->string);
        print_message("%s with %s\n", folder, name);
        check_tokenizer(name, folder,
                        strstr(name, "vocab.json")  ? BY_BYTES
                        : strstr(name, "vocab.txt") ? BY_WORDS
                                                    : BY_MODEL);
    }
    sw_json_close(doc);
    sw_str_fini(&path);
    sw_str_fini(&data);
}

/* BERT's vocab.txt under each setting that its class knows: `variants` of reference.json, one file
 * of ids each. */
static void check_variants(const char *folder)
{
    struct sw_str path = {0}, data = {0}, settings = {0};
    struct sw_json_doc *doc;
    char *vocab;
    size_t len;
    assert_true(exists(&path, folder, "reference.json"));
    assert_int_equal(sw_json_read(path.ptr, SW_JSON_STRICT, &doc), SW_OK);
    const struct sw_json *variants = sw_json_get(sw_json_root(doc), "variants");
    const struct sw_json *named = sw_json_get(sw_json_root(doc), "files");
    for (const struct sw_json *v = variants ? variants->first : NULL; v; v = v->next) {
        struct sw_tokenizer *tokenizer;
        sw_str_clear(&settings);
        sw_json_write(v, 0, &settings);
        sw_test_write(1, "tokenizer_config.json", settings.ptr, settings.len);
        const char *file = sw_test_data(&data, named->first->string);
        assert_int_equal(sw_file_read(file, &vocab, &len), SW_OK);
        const char *copy = sw_test_write(0, "vocab.txt", vocab, len);
        assert_int_equal(sw_tokenizer_open(copy, NULL, &tokenizer), SW_OK);
        sw_str_clear(&path);
        sw_str_printf(&path, "%s/%s.jsonl", folder, v->key);
        check_lines(tokenizer, path.ptr);
        sw_tokenizer_close(tokenizer);
        sw_free(vocab);
    }
    sw_json_close(doc);
    sw_str_fini(&path);
    sw_str_fini(&data);
    sw_str_fini(&settings);
}

/* The newer form of a folder: its tokenizer.json with the recorded pre-tokenizer and no
 * normalizer. */
static void check_metaspace(const char *folder)
{
    struct sw_str path = {0}, text = {0};
    struct sw_json_doc *doc, *reference;
    struct sw_tokenizer *tokenizer;
    if (!exists(&path, folder, "metaspace.jsonl") || !exists(&path, folder, "tokenizer.json")) {
        sw_str_fini(&path);
        return;
    }
    assert_int_equal(sw_json_read(path.ptr, SW_JSON_STRICT, &doc), SW_OK);
    assert_true(exists(&path, folder, "reference.json"));
    assert_int_equal(sw_json_read(path.ptr, SW_JSON_STRICT, &reference), SW_OK);
    sw_str_puts(&text, "{");
    for (const struct sw_json *m = sw_json_root(doc)->first; m; m = m->next) {
        const bool pre = strcmp(m->key, "pre_tokenizer") == 0;
        sw_str_printf(&text, "%s\"%s\":", m == sw_json_root(doc)->first ? "" : ",", m->key);
        if (strcmp(m->key, "normalizer") == 0) {
            sw_str_puts(&text, "null");
        } else {
            sw_json_write(pre ? sw_json_get(sw_json_root(reference), "metaspace_pre_tokenizer") : m,
                          0, &text);
        }
    }
    sw_str_puts(&text, "}");
    assert_int_equal(
        sw_tokenizer_open(sw_test_write(0, "metaspace.json", text.ptr, text.len), NULL, &tokenizer),
        SW_OK);
    exists(&path, folder, "metaspace.jsonl");
    check_lines(tokenizer, path.ptr);
    sw_tokenizer_close(tokenizer);
    sw_json_close(doc);
    sw_json_close(reference);
    sw_str_fini(&path);
    sw_str_fini(&text);
}

static void check_folder(const char *folder)
{
    struct sw_str path = {0};
    DIR *dir = opendir(folder);
    for (struct dirent *entry = dir ? readdir(dir) : NULL; entry; entry = readdir(dir)) {
        if (strncmp(entry->d_name, "tokenizer", 9) == 0 && strstr(entry->d_name, ".json") &&
            !strstr(entry->d_name, ".jsonl")) {
            assert_true(exists(&path, folder, entry->d_name));
            check_tokenizer_json(path.ptr, folder);
        }
    }
    if (dir) {
        closedir(dir);
        check_named_files(folder);
        check_variants(folder);
        check_metaspace(folder);
    }
    sw_str_fini(&path);
}

static void every_recorded_tokenizer(void **state)
{
    (void)state;
    struct sw_str path = {0};
    int n_folders = 0;
    sw_str_printf(&path, "%s/tokenizers", root);
    DIR *dir = opendir(path.ptr);
    for (struct dirent *entry = dir ? readdir(dir) : NULL; entry; entry = readdir(dir)) {
        if (entry->d_type == DT_DIR && entry->d_name[0] != '.') {
            sw_str_clear(&path);
            sw_str_printf(&path, "%s/tokenizers/%s", root, entry->d_name);
            check_folder(path.ptr);
            n_folders++;
        }
    }
    assert_true(n_folders > 0);
    closedir(dir);
    sw_str_fini(&path);
}

static int begin(char **argv)
{
    (void)argv;
    root = sw_test_fixtures();
    return root ? 0 : TEST_EXIT_SKIPPED;
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(every_recorded_tokenizer),
};

const struct test_program sw_tests = {
    TEST_TABLE(tests), .begin = begin,
    .left_out = SW_HAVE_PCRE2 && SW_HAVE_UTF8PROC ? NULL : "built without PCRE2 or utf8proc"};
