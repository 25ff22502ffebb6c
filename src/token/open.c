// SPDX-License-Identifier: Apache-2.0
// Detects the kind of tokenizer by the file names in a folder, or by a file's name and first byte.
#include "token/tokenizer.h"

#include <string.h>
#include <unistd.h>

/* Files that identify a kind; the first match wins. Two names: both files are required. */
enum { KIND_MARIAN, KIND_JSON, KIND_PAIR, KIND_CHARS, KIND_WORDS, KIND_PIECES };

static const struct {
    const char *name, *second;
    int kind;
} layouts[] = {
    {"source.spm", "target.spm", KIND_MARIAN}, /* a tokenizer.json knows one of the languages */
    {"tokenizer.json", NULL, KIND_JSON},
    {"vocab.json", "merges.txt", KIND_PAIR},
    {"encoder.json", "vocab.bpe", KIND_PAIR},
    {"chars.json", NULL, KIND_CHARS},
    {"vocab.txt", NULL, KIND_WORDS},
    {"tokenizer.model", NULL, KIND_PIECES},
    {"spiece.model", NULL, KIND_PIECES},
    {"spm.model", NULL, KIND_PIECES},
    {"sentencepiece.bpe.model", NULL, KIND_PIECES},
};

/* Optional files beside any kind of tokenizer. */
static const char *const companions[] = {"tokenizer_config.json", "special_tokens_map.json",
                                         "added_tokens.json", "chat_template.jinja"};

bool sw_tokenizer_knows_file(const char *name)
{
    for (size_t i = 0; i < SW_LEN(layouts); i++) {
        if (strcmp(name, layouts[i].name) == 0) {
            return true;
        }
    }
    return false;
}

static void remove_file(const char *folder, const char *name, struct sw_str *path)
{
    sw_str_clear(path);
    sw_str_printf(path, "%s/%s", folder, name);
    if (!path->failed && !sw_fault_fails("unlink", NULL)) {
        unlink(path->ptr); /* a missing file is fine */
    }
}

void sw_tokenizer_remove(const char *folder)
{
    struct sw_str path = {0};
    for (size_t i = 0; i < SW_LEN(layouts); i++) {
        remove_file(folder, layouts[i].name, &path);
        if (layouts[i].second) {
            remove_file(folder, layouts[i].second, &path);
        }
    }
    for (size_t i = 0; i < SW_LEN(companions); i++) {
        remove_file(folder, companions[i], &path);
    }
    sw_str_fini(&path);
}

sw_status sw_tokenizer_folder_of(const char *path, struct sw_str *out)
{
    const char *slash = strrchr(path, '/');
    sw_str_clear(out);
    if (slash) {
        sw_str_append(out, path, slash == path ? 1 : (size_t)(slash - path));
    } else {
        sw_str_putc(out, '.');
    }
    return out->failed ? SW_FAIL(SW_E_NOMEM, "out of host memory for a path") : SW_OK;
}

struct paths {
    struct sw_str folder, first, second;
};

static sw_status open_layout(size_t i, const struct paths *paths,
                             const struct sw_tokenizer_options *options, struct sw_tokenizer **out)
{
    switch (layouts[i].kind) {
    case KIND_MARIAN:
        return sw_tokenizer_open_marian(paths->folder.ptr, out);
    case KIND_JSON:
        return sw_tokenizer_open_json(paths->first.ptr, options, out);
    case KIND_PAIR:
        return sw_tokenizer_open_vocab_merges(paths->first.ptr, paths->second.ptr, options, out);
    case KIND_CHARS:
        return sw_tokenizer_open_chars_json(paths->first.ptr, out);
    case KIND_WORDS:
        return sw_tokenizer_open_vocab_txt(paths->first.ptr, out);
    default:
        return sw_tokenizer_open_sentencepiece(paths->first.ptr, out);
    }
}

/* Sets the paths of layout i in paths->folder; *out false if its files are not there. */
static sw_status look_for(size_t i, struct paths *paths, bool *out)
{
    const char *folder = sw_str_text(&paths->folder);
    sw_str_clear(&paths->first);
    sw_str_clear(&paths->second);
    sw_str_printf(&paths->first, "%s/%s", folder, layouts[i].name);
    sw_str_printf(&paths->second, "%s/%s", folder,
                  layouts[i].second ? layouts[i].second : layouts[i].name);
    if (paths->first.failed || paths->second.failed) {
        return SW_FAIL(SW_E_NOMEM, "out of host memory for a path");
    }
    *out = access(paths->first.ptr, F_OK) == 0 && access(paths->second.ptr, F_OK) == 0;
    return SW_OK;
}

/* The folder of an ONNX file, whose tokenizer is beside it; "" = path is no such file. */
static sw_status folder_of_onnx(const char *path, struct sw_str *out)
{
    const char *ending = strrchr(path, '.');
    return ending && strcmp(ending, ".onnx") == 0 && !sw_is_folder(path)
               ? sw_tokenizer_folder_of(path, out)
               : SW_OK;
}

/* One file of a pair is enough: opening reports the missing one. */
static bool is_in_folder(const char *folder)
{
    struct sw_str path = {0};
    bool there = false;
    for (size_t i = 0; i < 2 * SW_LEN(layouts) && !there; ++i) {
        const char *name = i % 2 ? layouts[i / 2].second : layouts[i / 2].name;
        sw_str_clear(&path);
        sw_str_printf(&path, "%s/%s", folder, name ? name : layouts[i / 2].name);
        there = path.failed || access(path.ptr, F_OK) == 0; /* opening fails, too */
    }
    sw_str_fini(&path);
    return there;
}

bool sw_tokenizer_is_there(const char *folder)
{
    struct sw_str beside = {0};
    const bool found = folder_of_onnx(folder, &beside) >= 0 && beside.len > 0;
    const bool there = is_in_folder(found ? sw_str_text(&beside) : folder);
    sw_str_fini(&beside);
    return there;
}

/* Whether the folder has a file of this name, or memory for its path is missing. */
static bool has_file(struct paths *paths, const char *name)
{
    sw_str_clear(&paths->first);
    sw_str_printf(&paths->first, "%s/%s", sw_str_text(&paths->folder), name);
    return paths->first.failed || access(paths->first.ptr, F_OK) == 0;
}

static sw_status open_folder(struct paths *paths, const struct sw_tokenizer_options *options,
                             struct sw_tokenizer **out)
{
    const char *folder = sw_str_text(&paths->folder);
    for (size_t i = 0; i < SW_LEN(layouts); ++i) {
        bool there;
        SW_TRY(look_for(i, paths, &there));
        if (there) {
            return open_layout(i, paths, options, out);
        }
    }
    if (has_file(paths, "source.spm") || has_file(paths, "target.spm")) {
        return sw_tokenizer_open_marian(folder, out); /* reports the missing one */
    }
    if (has_file(paths, "tokenizer")) {
        return SW_FAIL(SW_E_IO, "%s is a run, its tokenizer is %s", folder,
                       sw_str_text(&paths->first));
    }
    return SW_FAIL(SW_E_IO,
                   "%s: no tokenizer there: wanted tokenizer.json, or vocab.json and "
                   "merges.txt, or encoder.json and vocab.bpe, or vocab.txt, or tokenizer.model, "
                   "or source.spm, target.spm and vocab.json, or chars.json",
                   folder);
}

/* Opens a file of any other name. The extension tells SentencePiece, a JSON list is characters, all
 * else must be a tokenizer.json. */
static sw_status open_unnamed(const char *path, const struct sw_tokenizer_options *options,
                              struct sw_tokenizer **out)
{
    char *data;
    size_t len;
    const char *ending = strrchr(path, '.');
    if (ending && strcmp(ending, ".model") == 0) {
        return sw_tokenizer_open_sentencepiece(path, out);
    }
    SW_TRY(sw_file_read(path, &data, &len));
    const bool list = data[strspn(data, " \t\r\n")] == '[';
    sw_free(data);
    return list ? sw_tokenizer_open_chars_json(path, out)
                : sw_tokenizer_open_json(path, options, out);
}

/* One file of a pair implies the other. */
static sw_status open_file(const char *path, struct paths *paths,
                           const struct sw_tokenizer_options *options, struct sw_tokenizer **out)
{
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
    size_t i = 0;
    bool there;
    while (i < SW_LEN(layouts) && strcmp(name, layouts[i].name) != 0 &&
           (!layouts[i].second || strcmp(name, layouts[i].second) != 0)) {
        i++;
    }
    if (i == SW_LEN(layouts) || access(path, F_OK) != 0) {
        return open_unnamed(path, options, out);
    }
    SW_TRY(look_for(i, paths, &there));
    if (!there) {
        return SW_FAIL(SW_E_IO, "%s: needs both %s and %s in its folder", path, layouts[i].name,
                       layouts[i].second);
    }
    return open_layout(i, paths, options, out);
}

static sw_status set_folder(const char *path, bool is_folder, struct sw_str *out)
{
    if (!is_folder) {
        return sw_tokenizer_folder_of(path, out);
    }
    sw_str_puts(out, path);
    return out->failed ? SW_FAIL(SW_E_NOMEM, "out of host memory for a path") : SW_OK;
}

static sw_status open_path(const char *path, const struct sw_tokenizer_options *options,
                           struct sw_tokenizer **out)
{
    static const struct sw_tokenizer_options as_file = {0};
    struct paths paths = {0};
    options = options ? options : &as_file;
    struct sw_tokenizer *self = NULL;
    const bool folder = sw_is_folder(path);
    sw_status st = set_folder(path, folder, &paths.folder);
    st = st < 0   ? st
         : folder ? open_folder(&paths, options, &self)
                  : open_file(path, &paths, options, &self);
    st = st < 0 ? st : sw_tokenizer_read_types(self, paths.folder.ptr);
    st = st < 0 ? st : sw_tokenizer_read_languages(self, paths.folder.ptr);
    st = st < 0 ? st : sw_tokenizer_keep_class(self);
    sw_str_fini(&paths.folder);
    sw_str_fini(&paths.first);
    sw_str_fini(&paths.second);
    if (st < 0) {
        sw_tokenizer_close(self);
        return sw_frame_at(__FILE__, __LINE__, st);
    }
    if (options->no_bos) {
        sw_tokenizer_drop_bos(self);
    }
    *out = self;
    return SW_OK;
}

sw_status sw_tokenizer_open(const char *path, const struct sw_tokenizer_options *options,
                            struct sw_tokenizer **out)
{
    struct sw_str beside = {0};
    sw_status st = folder_of_onnx(path, &beside);
    st = st < 0 ? st : open_path(beside.len > 0 ? sw_str_text(&beside) : path, options, out);
    sw_str_fini(&beside);
    return st;
}
