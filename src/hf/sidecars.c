// SPDX-License-Identifier: Apache-2.0
// hf/sidecars - the files beside the weights. config.json is read. All others are copied unchanged
// when a model is exported.

#include "hf/private.h"

#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>

static bool ends_with(const char *name, const char *suffix)
{
    const size_t len = strlen(name), suffix_len = strlen(suffix);
    return len >= suffix_len && strcmp(name + len - suffix_len, suffix) == 0;
}

/* The config.json beside a file; an empty object if there is none. */
static sw_status read_beside(const char *path, struct sw_json_doc **out)
{
    const char *slash = strrchr(path, '/');
    char file[4096];
    const int n =
        snprintf(file, sizeof file, "%.*sconfig.json", slash ? (int)(slash - path) + 1 : 0, path);
    if (n < 0 || (size_t)n >= sizeof file) {
        return SW_FAIL(SW_E_ARG, "%s: the path is too long", path);
    }
    struct stat info;
    return stat(file, &info) == 0 ? sw_json_read(file, SW_JSON_STRICT, out)
                                  : sw_json_new(path, out);
}

sw_status sw_hf_read_config(const char *path, struct sw_json_doc **out)
{
    struct stat info;
    if (stat(path, &info) != 0) {
        return SW_FAIL(SW_E_IO, "cannot read %s: %s", path, strerror(errno));
    }
    if (!S_ISDIR(info.st_mode) && ends_with(path, ".onnx")) {
        return read_beside(path, out);
    }
    if (!S_ISDIR(info.st_mode)) {
        SW_TRY(sw_json_read(path, SW_JSON_STRICT, out));
        return SW_OK;
    }
    char *file = sw_hf_join(path, "config.json");
    SW_TRY_ALLOC(file, path);
    const sw_status st = sw_json_read(file, SW_JSON_STRICT, out);
    sw_free(file);
    SW_TRY(st);
    return SW_OK;
}

/* No weights in any of the formats that folders on the hub hold, none of their indexes, and no file
 * that the exporter writes itself: the card of the base speaks of the base, and a folder with
 * adapter_config.json is read as an adapter's. */
static bool is_sidecar(const char *name)
{
    static const char *const weights[] = {".safetensors", ".safetensors.index.json",
                                          ".bin",         ".bin.index.json",
                                          ".pt",          ".pth",
                                          ".ckpt",        ".h5",
                                          ".msgpack",     ".onnx",
                                          ".onnx.data",   ".onnx_data",
                                          ".gguf",        ".tflite",
                                          ".ot",          ".mlmodel",
                                          ".tmp"};
    if (name[0] == '.' || strcmp(name, "config.json") == 0 ||
        strcmp(name, "adapter_config.json") == 0 || strcasecmp(name, "README.md") == 0) {
        return false;
    }
    for (size_t i = 0; i < SW_LEN(weights); i++) {
        if (ends_with(name, weights[i])) {
            return false;
        }
    }
    return true;
}

/* ---- where links may lead ---- */

/* The model's folder, links resolved, and the blobs of the hub cache that it is a snapshot of:
 * models--x/snapshots/<rev>/ has links to models--x/blobs/. A link to anywhere else would publish a
 * file of the user's under the model's name. */
struct allowed {
    char folder[PATH_MAX];
    char blobs[PATH_MAX]; /* "" = none */
};

bool sw_hf_hub_folder(const char *resolved, char out[PATH_MAX])
{
    static const char snapshots[] = "/snapshots";
    if (!sw_folder_of(resolved, out, PATH_MAX) || !ends_with(out, snapshots)) {
        return false;
    }
    out[strlen(out) - (sizeof(snapshots) - 1)] = '\0';
    const char *slash = strrchr(out, '/');
    return slash && strncmp(slash + 1, SW_HF_HUB_PREFIX, sizeof(SW_HF_HUB_PREFIX) - 1) == 0;
}

static sw_status find_allowed(const char *src_path, struct allowed *out)
{
    char model[PATH_MAX];
    if (!realpath(src_path, out->folder)) {
        return SW_FAIL(SW_E_IO, "cannot read %s: %s", src_path, strerror(errno));
    }
    out->blobs[0] = '\0';
    if (sw_hf_hub_folder(out->folder, model) &&
        snprintf(out->blobs, sizeof(out->blobs), "%s/blobs", model) >= (int)sizeof(out->blobs)) {
        out->blobs[0] = '\0';
    }
    return SW_OK;
}

static bool lies_in(const char *path, const char *folder)
{
    const size_t len = strlen(folder);
    return len > 0 && strncmp(path, folder, len) == 0 &&
           (path[len] == '/' || folder[len - 1] == '/');
}

/* ---- copying ---- */

static sw_status copy_entry(const char *src_path, const char *dst_path, const char *name,
                            const struct allowed *allowed)
{
    char *src = sw_hf_join(src_path, name);
    char *dst = sw_hf_join(dst_path, name);
    char resolved[PATH_MAX];
    sw_status st = SW_OK;
    struct stat info;
    if (!src || !dst) {
        st = SW_FAIL(SW_E_NOMEM, "out of host memory for %s", dst_path);
    } else if (!realpath(src, resolved) || lstat(resolved, &info) != 0) {
        st = SW_FAIL(SW_E_IO, "cannot read %s: %s", src, strerror(errno));
    } else if (!S_ISREG(info.st_mode)) {
        st = SW_OK;
    } else if (!lies_in(resolved, allowed->folder) && !lies_in(resolved, allowed->blobs)) {
        sw_log(SW_LOG_WARN,
               "%s is a link to %s, out of the model's folder, and is not copied to %s", src,
               resolved, dst_path);
    } else {
        st = sw_file_copy(resolved, dst);
        if (st == SW_E_FORMAT) { /* a pointer of Git LFS: whoever needs the file refuses it */
            sw_log(SW_LOG_WARN, "%s; it is not copied to %s", sw_error_message(), dst_path);
            st = SW_OK;
        }
    }
    sw_free(dst);
    sw_free(src);
    return st;
}

bool sw_hf_is_same_folder(const char *a, const char *b)
{
    struct stat x, y;
    return stat(a, &x) == 0 && stat(b, &y) == 0 && x.st_dev == y.st_dev && x.st_ino == y.st_ino;
}

/* A folder's entry is copied if `takes` says so; NULL takes all. */
static sw_status copy_entries(const char *src_path, const char *dst_path,
                              const struct allowed *allowed, bool (*takes)(const char *name))
{
    DIR *dir = opendir(src_path);
    if (!dir) {
        return SW_FAIL(SW_E_IO, "cannot list %s: %s", src_path, strerror(errno));
    }
    sw_status st = SW_OK;
    const struct dirent *entry;
    while (st == SW_OK && (entry = readdir(dir)) != NULL) {
        if (!takes || takes(entry->d_name)) {
            st = copy_entry(src_path, dst_path, entry->d_name, allowed);
        }
    }
    closedir(dir);
    return st;
}

/* ---- modules of sentence-transformers ---- */

static const char modules_name[] = "modules.json", pooling_name[] = "1_Pooling";

/* Reads modules.json of a folder. *first: its first module; NULL if there is no such file. A file
 * that is no list stays a sidecar like others, with a warning. The caller closes *doc. */
static sw_status read_modules(const char *folder, struct sw_json_doc **doc,
                              const struct sw_json **first)
{
    char *file = sw_hf_join(folder, modules_name);
    SW_TRY_ALLOC(file, folder);
    struct stat info;
    *doc = NULL;
    *first = NULL;
    const bool is_there = stat(file, &info) == 0;
    if (is_there && sw_json_read(file, SW_JSON_STRICT, doc) < 0) {
        sw_log(SW_LOG_WARN, "%s; no modules are copied", sw_error_message());
    } else if (is_there && sw_json_root(*doc)->type != SW_JSON_ARRAY) {
        sw_log(SW_LOG_WARN, "%s: wanted a list of modules; no modules are copied", file);
    } else if (is_there) {
        *first = sw_json_root(*doc)->first;
    }
    sw_free(file);
    return SW_OK;
}

static const char *text_of(const struct sw_json *module, const char *key)
{
    const struct sw_json *text = module->type == SW_JSON_OBJECT ? sw_json_get(module, key) : NULL;
    return text && text->type == SW_JSON_STRING ? text->string : "";
}

static bool is_visible(const char *name)
{
    return name[0] != '.';
}

static sw_status copy_module(const char *src_path, const char *dst_path, const char *name,
                             const struct allowed *allowed)
{
    char *src = sw_hf_join(src_path, name), *dst = sw_hf_join(dst_path, name);
    char resolved[PATH_MAX];
    sw_status st = src && dst ? SW_OK : SW_FAIL(SW_E_NOMEM, "out of host memory for %s", dst_path);
    const bool is_there = st >= 0 && realpath(src, resolved); /* Normalize may have no folder */
    if (st >= 0 && (!is_visible(name) || strchr(name, '/') ||
                    (is_there && !lies_in(resolved, allowed->folder)))) {
        sw_log(SW_LOG_WARN,
               "%s: the path \"%s\" of a module is no subfolder, and is not copied to %s", src_path,
               name, dst_path);
    } else if (is_there) {
        st = sw_mkdirs(dst);
        st = st < 0 ? st : copy_entries(src, dst, allowed, is_visible);
    }
    sw_free(dst);
    sw_free(src);
    return st;
}

/* Copies the subfolders that modules.json names; without such a file it does nothing. */
static sw_status copy_modules(const char *src_path, const char *dst_path,
                              const struct allowed *allowed)
{
    struct sw_json_doc *doc;
    const struct sw_json *m;
    sw_status st = read_modules(src_path, &doc, &m);
    for (; m && st >= 0; m = m->next) {
        const char *name = text_of(m, "path"); /* "" is the model's folder */
        st = *name ? copy_module(src_path, dst_path, name, allowed) : SW_OK;
    }
    sw_json_close(doc);
    return st;
}

static sw_status write_text(const char *folder, const char *name, const char *text)
{
    char *file = sw_hf_join(folder, name);
    SW_TRY_ALLOC(file, folder);
    const sw_status st = sw_file_write_atomic(file, text, strlen(text));
    sw_free(file);
    return st;
}

/* *normalizes: the base has a module Normalize. Warns of modules that training left out, such as
 * Dense. */
static sw_status judge_modules(const char *folder, bool *normalizes)
{
    struct sw_json_doc *doc;
    const struct sw_json *m;
    const sw_status st = read_modules(folder, &doc, &m);
    *normalizes = false;
    for (; m && st >= 0; m = m->next) {
        const char *name = text_of(m, "type");
        *normalizes = *normalizes || ends_with(name, ".Normalize");
        if (*name && !ends_with(name, ".Transformer") && !ends_with(name, ".Pooling") &&
            !ends_with(name, ".Normalize")) {
            sw_log(SW_LOG_WARN, "%s/%s: the module %s is neither trained nor exported", folder,
                   modules_name, name);
        }
    }
    sw_json_close(doc);
    return st;
}

sw_status sw_hf_save_pooling(const char *folder, int64_t width, bool first_token)
{
    bool normalizes;
    char text[384];
    SW_TRY(judge_modules(folder, &normalizes));
    snprintf(text, sizeof text,
             "{\n  \"word_embedding_dimension\": %lld,\n  \"pooling_mode_cls_token\": %s,\n"
             "  \"pooling_mode_mean_tokens\": %s,\n  \"pooling_mode_max_tokens\": false,\n"
             "  \"pooling_mode_mean_sqrt_len_tokens\": false\n}\n",
             (long long)width, first_token ? "true" : "false", first_token ? "false" : "true");
    char *sub = sw_hf_join(folder, pooling_name);
    SW_TRY_ALLOC(sub, folder);
    sw_status st = sw_mkdirs(sub);
    st = st < 0 ? st : write_text(sub, "config.json", text);
    sw_free(sub);
    SW_TRY(st);
    snprintf(text, sizeof text,
             "[\n"
             "  {\"idx\": 0, \"name\": \"0\", \"path\": \"\", "
             "\"type\": \"sentence_transformers.models.Transformer\"},\n"
             "  {\"idx\": 1, \"name\": \"1\", \"path\": \"%s\", "
             "\"type\": \"sentence_transformers.models.Pooling\"}%s\n"
             "]\n",
             pooling_name,
             normalizes ? ",\n  {\"idx\": 2, \"name\": \"2\", \"path\": \"2_Normalize\", "
                          "\"type\": \"sentence_transformers.models.Normalize\"}"
                        : "");
    return write_text(folder, modules_name, text);
}

sw_status sw_hf_copy_sidecars(const char *src_path, const char *dst_path)
{
    SW_TRY(sw_mkdirs(dst_path));
    if (sw_hf_is_same_folder(src_path, dst_path)) {
        return SW_OK;
    }
    struct allowed allowed;
    SW_TRY(find_allowed(src_path, &allowed));
    SW_TRY(copy_entries(src_path, dst_path, &allowed, is_sidecar));
    return copy_modules(src_path, dst_path, &allowed);
}
