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
 * that the exporter writes itself: the card of the base speaks of the base. */
static bool is_sidecar(const char *name)
{
    static const char *const weights[] = {".safetensors", ".safetensors.index.json",
                                          ".bin",         ".bin.index.json",
                                          ".pt",          ".pth",
                                          ".ckpt",        ".h5",
                                          ".msgpack",     ".onnx",
                                          ".onnx.data",   ".onnx_data",
                                          ".gguf",        ".tmp"};
    if (name[0] == '.' || strcmp(name, "config.json") == 0 || strcasecmp(name, "README.md") == 0) {
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

sw_status sw_hf_copy_sidecars(const char *src_path, const char *dst_path)
{
    SW_TRY(sw_mkdirs(dst_path));
    if (sw_hf_is_same_folder(src_path, dst_path)) {
        return SW_OK;
    }
    struct allowed allowed;
    SW_TRY(find_allowed(src_path, &allowed));
    DIR *dir = opendir(src_path);
    if (!dir) {
        return SW_FAIL(SW_E_IO, "cannot list %s: %s", src_path, strerror(errno));
    }
    sw_status st = SW_OK;
    const struct dirent *entry;
    while (st == SW_OK && (entry = readdir(dir)) != NULL) {
        if (is_sidecar(entry->d_name)) {
            st = copy_entry(src_path, dst_path, entry->d_name, &allowed);
        }
    }
    closedir(dir);
    SW_TRY(st);
    return SW_OK;
}
