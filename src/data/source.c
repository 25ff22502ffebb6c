// SPDX-License-Identifier: Apache-2.0
// Data files: globs, kinds, plain text, JSON lines.
#include "data/source.h"

#include "data/data.h"
#include "data/map.h"
#include "json/json.h"

#include <glob.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

/* ---- which files ---- */

static sw_status add_path(struct sw_file_list *list, const char *path)
{
    char **paths = sw_realloc("data files", list->paths, (size_t)(list->n + 1) * sizeof(*paths));
    SW_TRY_ALLOC(paths, "the list of data files");
    list->paths = paths;
    paths[list->n] = sw_strdup("data files", path);
    SW_TRY_ALLOC(paths[list->n], "the list of data files");
    list->n++;
    return SW_OK;
}

static sw_status add_pattern(struct sw_file_list *list, const char *pattern)
{
    sw_status st = SW_OK;
    glob_t found;
    if (access(pattern, F_OK) == 0) { /* a name with brackets in it is still a name */
        return add_path(list, pattern);
    }
    if (glob(pattern, 0, NULL, &found) != 0) {
        return SW_FAIL(SW_E_IO, "%s: no such data file", pattern);
    }
    for (size_t i = 0; i < found.gl_pathc && st >= 0; ++i) {
        st = add_path(list, found.gl_pathv[i]);
    }
    globfree(&found);
    return st;
}

sw_status sw_file_list_init(struct sw_file_list *list, const char *const *patterns, int n_patterns)
{
    sw_status st = SW_OK;
    *list = (struct sw_file_list){0};
    for (int i = 0; i < n_patterns; ++i) {
        SW_TRY_OR(fail, add_pattern(list, patterns[i]));
    }
    return SW_OK;
fail:
    sw_file_list_fini(list);
    return st;
}

void sw_file_list_fini(struct sw_file_list *list)
{
    for (int i = 0; i < list->n; ++i) {
        sw_free(list->paths[i]);
    }
    sw_free(list->paths);
    *list = (struct sw_file_list){0};
}

sw_status sw_data_each_file(const char *const *patterns, int n_patterns,
                            sw_status (*fn)(void *ctx, const char *path), void *ctx)
{
    struct sw_file_list list;
    sw_status st = SW_OK;
    SW_TRY(sw_file_list_init(&list, patterns, n_patterns));
    for (int i = 0; i < list.n && st >= 0; ++i) {
        st = fn(ctx, list.paths[i]);
    }
    sw_file_list_fini(&list);
    return st;
}

static bool ends_with(const char *path, const char *ending)
{
    const size_t n = strlen(path), n_ending = strlen(ending);
    return n >= n_ending && strcmp(path + n - n_ending, ending) == 0;
}

enum sw_source_kind sw_source_kind_of(const char *path)
{
    if (ends_with(path, ".bin")) {
        return SW_SOURCE_SHARD;
    }
    return ends_with(path, ".jsonl") || ends_with(path, ".ndjson") ? SW_SOURCE_JSONL
                                                                   : SW_SOURCE_TEXT;
}

/* ---- files that are no running text ---- */

#define MAKE_LINES                                                                                 \
    "make JSON lines of it (.jsonl): one object a line, with \"text\", or \"prompt\" and "         \
    "\"completion\""

static const struct structured {
    const char *what, *advice;
    const char *endings[10];
} structured[] = {
    {"JSON", MAKE_LINES, {".json", ".geojson", ".ipynb"}},
    {"a table", MAKE_LINES, {".csv", ".tsv", ".parquet", ".arrow", ".feather", ".xls", ".xlsx"}},
    {"markup", "take the text out of it", {".xml", ".html", ".htm", ".xhtml"}},
    {"a document", "save it as plain text", {".pdf", ".doc", ".docx", ".odt", ".epub", ".rtf"}},
    {"packed", "unpack it", {".gz", ".bz2", ".xz", ".zst", ".zip", ".7z", ".tar", ".tgz"}},
    {"no text",
     "token ids go into a .bin shard",
     {".npy", ".npz", ".pt", ".pth", ".safetensors", ".h5", ".pkl", ".gguf"}},
};

static const struct structured *structure_by_name(const char *path)
{
    const size_t len = strlen(path);
    for (size_t i = 0; i < SW_LEN(structured); i++) {
        for (size_t k = 0; k < SW_LEN(structured[i].endings) && structured[i].endings[k]; k++) {
            const char *ending = structured[i].endings[k];
            const size_t n = strlen(ending);
            if (len > n && strcasecmp(path + len - n, ending) == 0) {
                return &structured[i];
            }
        }
    }
    return NULL;
}

static bool is_space(char c)
{
    return c == ' ' || c == '\t' || c == '\r' || c == '\n';
}

/* An array or objects of JSON from the first to the last character, under whatever name. */
static bool looks_like_json(const char *text, size_t len)
{
    size_t first = 0, second;
    while (first < len && is_space(text[first])) {
        first++;
    }
    while (len > first && is_space(text[len - 1])) {
        len--;
    }
    if (len - first < 2) {
        return false;
    }
    for (second = first + 1; second < len - 1 && is_space(text[second]);) {
        second++;
    }
    const char open = text[first], next = text[second], close = text[len - 1];
    return (open == '{' && next == '"' && close == '}') ||
           (open == '[' && close == ']' && (next == '{' || next == '[' || next == '"'));
}

static sw_status check_is_text(const char *path, const struct structured *by_name, const char *text,
                               size_t len)
{
    const struct structured *kind = by_name                      ? by_name
                                    : looks_like_json(text, len) ? structured
                                                                 : NULL;
    if (!kind) {
        return SW_OK;
    }
    return SW_FAIL(SW_E_FORMAT, "%s: %s %s, given as text: %s; --as-text takes it as it is", path,
                   by_name ? "by its name it is" : "it looks like", kind->what, kind->advice);
}

/* ---- documents ---- */

static const char byte_order_mark[] = "\xEF\xBB\xBF";

static sw_status get_text(const struct sw_json_doc *doc, const struct sw_json *object,
                          const char *key, const struct sw_json **out)
{
    *out = sw_json_get(object, key);
    if (*out && (*out)->type != SW_JSON_STRING) {
        return SW_FAIL(SW_E_FORMAT, "%s: \"%s\" is %s, wanted a string", sw_json_name(doc), key,
                       sw_json_type_name((*out)->type));
    }
    return SW_OK;
}

/* {"text"} or {"prompt", "completion"}; other keys are the user's own. */
static sw_status read_object(const struct sw_json_doc *doc, const struct sw_json *object,
                             sw_document_fn fn, void *ctx)
{
    const struct sw_json *text, *prompt, *completion;
    struct sw_document document = {.name = sw_json_name(doc), .completion = ""};
    if (object->type != SW_JSON_OBJECT) {
        return SW_FAIL(SW_E_FORMAT, "%s: %s, wanted an object", sw_json_name(doc),
                       sw_json_type_name(object->type));
    }
    SW_TRY(get_text(doc, object, "text", &text));
    SW_TRY(get_text(doc, object, "prompt", &prompt));
    SW_TRY(get_text(doc, object, "completion", &completion));
    if (!text == !(prompt && completion) || (text && (prompt || completion))) {
        return SW_FAIL(SW_E_FORMAT,
                       "%s: wanted \"text\", or \"prompt\" and \"completion\"; found%s%s%s%s",
                       sw_json_name(doc), text ? " \"text\"" : "", prompt ? " \"prompt\"" : "",
                       completion ? " \"completion\"" : "",
                       text || prompt || completion ? "" : " none of them");
    }
    document.text = text ? text->string : prompt->string;
    document.text_len = text ? text->string_len : prompt->string_len;
    if (completion) {
        document.has_completion = true;
        document.completion = completion->string;
        document.completion_len = completion->string_len;
    }
    return fn(ctx, &document);
}

static sw_status read_line(const char *path, int64_t i_line, const char *line, size_t len,
                           sw_document_fn fn, void *ctx)
{
    sw_status st;
    struct sw_str name = {0};
    struct sw_json_doc *doc = NULL;
    sw_str_printf(&name, "%s line %lld", path, (long long)i_line);
    SW_TRY_OR(done, sw_json_parse(sw_str_text(&name), line, len, SW_JSON_STRICT, &doc));
    SW_TRY_OR(done, read_object(doc, sw_json_root(doc), fn, ctx));
done:
    sw_json_close(doc);
    sw_str_fini(&name);
    return st;
}

static bool is_blank(const char *line, size_t len)
{
    for (size_t i = 0; i < len; ++i) {
        if (line[i] != ' ' && line[i] != '\t' && line[i] != '\r') {
            return false;
        }
    }
    return true;
}

static sw_status read_lines(const char *path, const char *data, size_t len, sw_document_fn fn,
                            void *ctx)
{
    int64_t i_line = 1;
    for (size_t at = 0; at < len; ++i_line) {
        const char *end = memchr(data + at, '\n', len - at);
        const size_t n = end ? (size_t)(end - (data + at)) : len - at;
        if (!is_blank(data + at, n)) {
            SW_TRY(read_line(path, i_line, data + at, n, fn, ctx));
        }
        at += n + 1;
    }
    return SW_OK;
}

sw_status sw_source_read(const char *path, bool as_text, sw_document_fn fn, void *ctx)
{
    sw_status st;
    struct sw_map map;
    const enum sw_source_kind kind = as_text ? SW_SOURCE_TEXT : sw_source_kind_of(path);
    const struct structured *by_name =
        kind == SW_SOURCE_TEXT && !as_text ? structure_by_name(path) : NULL;
    if (kind == SW_SOURCE_SHARD) {
        return SW_FAIL(SW_E_CONFIG, "%s: holds token ids, wanted text", path);
    }
    SW_TRY(sw_map_open(path, &map));
    const size_t n_mark = sizeof(byte_order_mark) - 1;
    const size_t skip =
        map.len >= n_mark && memcmp(map.data, byte_order_mark, n_mark) == 0 ? n_mark : 0;
    const struct sw_document whole = {
        .name = path, .text = map.data + skip, .text_len = map.len - skip, .completion = ""};
    if (whole.text_len == 0) {
        st = SW_FAIL(SW_E_FORMAT, "%s: the file is empty", path);
    } else if (kind == SW_SOURCE_JSONL) {
        st = read_lines(path, whole.text, whole.text_len, fn, ctx);
    } else {
        st = as_text ? SW_OK : check_is_text(path, by_name, whole.text, whole.text_len);
        st = st < 0 ? st : fn(ctx, &whole);
    }
    sw_map_close(&map);
    return st;
}
