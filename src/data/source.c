// SPDX-License-Identifier: Apache-2.0
// Data files: globs, kinds, plain text, JSON lines.
#include "data/source.h"

#include "data/data.h"
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
    if (access(pattern, F_OK) == 0) { /* an existing file name may contain brackets */
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

/* ---- structured files ---- */

#define MAKE_LINES                                                                                 \
    "make JSON lines of it (.jsonl): one object a line, with \"text\", or \"prompt\" and "         \
    "\"completion\""

/* pandas reads the columnar formats, and writes a JSON object for each row. */
#define CONVERT(format)                                                                            \
    "convert it: python3 -c \"import sys, pandas; pandas.read_" format                             \
    "(sys.argv[1]).to_json(sys.argv[2], orient='records', lines=True)\" IN OUT.jsonl"

static const struct structured {
    const char *what, *advice;
    const char *endings[10];
} structured[] = {
    {"JSON", MAKE_LINES, {".json", ".geojson", ".ipynb"}},
    {"a table", MAKE_LINES, {".csv", ".tsv", ".xls", ".xlsx"}},
    {"Parquet", CONVERT("parquet"), {".parquet", ".pq"}},
    {"Arrow", CONVERT("feather"), {".arrow", ".feather"}},
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

const char *sw_source_conversion(const char *path)
{
    const struct structured *kind = structure_by_name(path);
    return kind && strncmp(kind->advice, "convert", 7) == 0 ? kind->advice : NULL;
}

static bool is_space(char c)
{
    return c == ' ' || c == '\t' || c == '\r' || c == '\n';
}

/* Whether the text is a JSON array or objects from first to last character, whatever its name. */
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

enum { BLOCK_BYTES = 1 << 16 };
static const char byte_order_mark[] = "\xEF\xBB\xBF";

static sw_status get_text(const struct sw_json_doc *doc, const struct sw_json *object,
                          const char *key, const struct sw_json **out)
{
    *out = sw_json_get(object, key);
    if (*out && (*out)->type == SW_JSON_NULL) { /* the cell of a table that has no value */
        *out = NULL;
    }
    if (*out && (*out)->type != SW_JSON_STRING) {
        return SW_FAIL(SW_E_FORMAT, "%s: \"%s\" is %s, wanted a string", sw_json_name(doc), key,
                       sw_json_type_name((*out)->type));
    }
    return SW_OK;
}

struct documents {
    sw_document_fn fn;
    void *ctx;
};

/* As in TRL, messages have precedence over "text", and "text" over the other forms of a chat. */
static enum sw_chat_form form_of(const struct sw_json *object)
{
    const struct sw_json *text = sw_json_get(object, "text");
    const enum sw_chat_form form = sw_chat_form_of(object);
    const bool running = text && text->type != SW_JSON_NULL;
    return running && form != SW_CHAT_MESSAGES && form != SW_CHAT_CONVERSATIONS ? SW_CHAT_NONE
                                                                                : form;
}

/* Reads {"text"}, {"prompt", "completion"} or a chat. Other keys are ignored. */
static sw_status read_object(void *documents, const struct sw_json_doc *doc,
                             const struct sw_json *object)
{
    const sw_document_fn fn = ((const struct documents *)documents)->fn;
    void *const ctx = ((const struct documents *)documents)->ctx;
    const struct sw_json *text, *prompt, *completion;
    struct sw_document document = {
        .name = sw_json_name(doc), .text = "", .completion = "", .doc = doc, .line = object};
    document.form = form_of(object);
    if (document.form != SW_CHAT_NONE && document.form != SW_CHAT_PAIR) {
        return fn(ctx, &document);
    }
    SW_TRY(get_text(doc, object, "text", &text));
    SW_TRY(get_text(doc, object, "prompt", &prompt));
    SW_TRY(get_text(doc, object, "completion", &completion));
    if (!text == !(prompt && completion) || (text && (prompt || completion))) {
        return SW_FAIL(SW_E_FORMAT,
                       "%s: wanted \"text\", \"messages\", \"conversations\", \"instruction\" and "
                       "\"output\", or \"prompt\" and \"completion\"; found%s%s%s%s",
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

/* JSON lines: only one line, and the file block that it ends in, are in memory. */
struct lines {
    const char *path;
    sw_status (*fn)(void *ctx, const struct sw_json_doc *doc, const struct sw_json *object);
    void *ctx;
    struct sw_str line; /* the line's part from earlier blocks */
    int64_t i_line;     /* from 1 */
};

static sw_status read_line(const struct lines *in, const char *line, size_t len)
{
    sw_status st;
    struct sw_str name = {0};
    struct sw_json_doc *doc = NULL;
    sw_str_printf(&name, "%s line %lld", in->path, (long long)in->i_line);
    SW_TRY_OR(done, sw_json_parse(sw_str_text(&name), line, len, SW_JSON_STRICT, &doc));
    const struct sw_json *object = sw_json_root(doc);
    if (object->type != SW_JSON_OBJECT) {
        st = SW_FAIL(SW_E_FORMAT, "%s: %s, wanted an object", sw_json_name(doc),
                     sw_json_type_name(object->type));
        goto done;
    }
    SW_TRY_OR(done, in->fn(in->ctx, doc, object));
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

static sw_status end_line(struct lines *in, const char *rest, size_t len)
{
    const char *line = rest;
    if (in->line.len > 0) {
        sw_str_append(&in->line, rest, len);
        line = sw_str_text(&in->line);
        len = in->line.len;
    }
    if (in->line.failed) {
        return SW_FAIL(SW_E_NOMEM, "%s line %lld: out of host memory", in->path,
                       (long long)in->i_line);
    }
    if (!is_blank(line, len)) {
        SW_TRY(read_line(in, line, len));
    }
    sw_str_clear(&in->line);
    in->i_line++;
    return SW_OK;
}

static sw_status take_block(struct lines *in, const char *block, size_t len)
{
    for (const char *end; (end = memchr(block, '\n', len)) != NULL;) {
        const size_t n = (size_t)(end - block);
        SW_TRY(end_line(in, block, n));
        block += n + 1;
        len -= n + 1;
    }
    sw_str_append(&in->line, block, len);
    return SW_OK;
}

size_t sw_source_mark_len(const char *text, size_t len)
{
    const size_t n = sizeof(byte_order_mark) - 1;
    return len >= n && memcmp(text, byte_order_mark, n) == 0 ? n : 0;
}

static sw_status fail_empty(const char *path)
{
    return SW_FAIL(SW_E_FORMAT, "%s: the file is empty", path);
}

static sw_status read_blocks(int fd, size_t bytes, char *block, struct lines *in)
{
    for (size_t at = 0; at < bytes; at += BLOCK_BYTES) {
        const size_t n = bytes - at < BLOCK_BYTES ? bytes - at : BLOCK_BYTES;
        SW_TRY(sw_file_read_at(fd, in->path, block, n, (int64_t)at));
        const size_t skip = at == 0 ? sw_source_mark_len(block, n) : 0;
        if (skip == bytes) {
            return fail_empty(in->path);
        }
        SW_TRY(take_block(in, block + skip, n - skip));
    }
    return in->line.len > 0 || in->line.failed ? end_line(in, "", 0) : SW_OK;
}

sw_status sw_source_lines(const char *path,
                          sw_status (*fn)(void *ctx, const struct sw_json_doc *doc,
                                          const struct sw_json *object),
                          void *ctx)
{
    int fd;
    size_t bytes;
    struct lines in = {.path = path, .fn = fn, .ctx = ctx, .i_line = 1};
    SW_TRY(sw_file_open(path, &fd, &bytes));
    char *block = sw_alloc("data file", BLOCK_BYTES);
    sw_status st = block ? SW_OK : SW_FAIL(SW_E_NOMEM, "out of host memory for %s", path);
    st = st >= 0 && bytes == 0 ? fail_empty(path) : st;
    st = st >= 0 ? read_blocks(fd, bytes, block, &in) : st;
    sw_str_fini(&in.line);
    sw_free(block);
    close(fd);
    return st;
}

/* A text is one document, held in memory. It is not mapped, because a file truncated meanwhile
 * would crash the process. */
static sw_status read_text(const char *path, bool as_text, sw_document_fn fn, void *ctx)
{
    const struct structured *by_name = as_text ? NULL : structure_by_name(path);
    char *data;
    size_t len;
    SW_TRY(sw_file_read(path, &data, &len));
    const size_t skip = sw_source_mark_len(data, len);
    const struct sw_document whole = {
        .name = path, .text = data + skip, .text_len = len - skip, .completion = ""};
    sw_status st = whole.text_len == 0 ? fail_empty(path) : SW_OK;
    st = st < 0 || as_text ? st : check_is_text(path, by_name, whole.text, whole.text_len);
    st = st < 0 ? st : fn(ctx, &whole);
    sw_free(data);
    return st;
}

sw_status sw_source_read(const char *path, bool as_text, sw_document_fn fn, void *ctx)
{
    switch (as_text ? SW_SOURCE_TEXT : sw_source_kind_of(path)) {
    case SW_SOURCE_SHARD:
        return SW_FAIL(SW_E_CONFIG, "%s: holds token ids, wanted text", path);
    case SW_SOURCE_JSONL:
        return sw_source_lines(path, read_object, &(struct documents){fn, ctx});
    default:
        return read_text(path, as_text, fn, ctx);
    }
}
