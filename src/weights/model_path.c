// SPDX-License-Identifier: Apache-2.0
// Finds models by path, or by hub name in Hugging Face's local cache. A path without a model may be
// a run, whose model is in a subfolder, or a checkpoint.
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "ckpt/ckpt.h"
#include "weights/private.h"

static bool is_there(const char *folder, const char *name)
{
    struct sw_str path = {0};
    sw_str_printf(&path, "%s/%s", folder, name);
    const bool there = !path.failed && access(path.ptr, F_OK) == 0;
    sw_str_fini(&path);
    return there;
}

static bool has_checkpoints(const char *folder)
{
    struct sw_ckpt_list list;
    if (sw_ckpt_list(folder, &list) < 0) {
        return false;
    }
    const bool any = list.n_items > 0;
    sw_ckpt_list_fini(&list);
    return any;
}

/* ---- Hugging Face's cache: models--ORG--NAME/{refs/main, snapshots/COMMIT/} ---- */

/* NAME or ORG/NAME, of the characters that the hub allows; no part begins with a dot or a dash. */
static bool is_hub_name(const char *name)
{
    static const char allowed[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-._";
    const size_t first = strspn(name, allowed);
    const char *rest = name + first + (name[first] == '/');
    const size_t second = strspn(rest, allowed);
    const bool any = first > 0 && (name[first] != '/' || second > 0);
    return any && !strchr(".-", name[0]) && !(*rest && strchr(".-", *rest)) && rest[second] == '\0';
}

/* Finds the cache folder by huggingface_hub's rules:
 * https://huggingface.co/docs/huggingface_hub/package_reference/environment_variables */
static void cache_folder(struct sw_str *out)
{
    static const struct {
        const char *variable, *below;
    } places[] = {{"HF_HUB_CACHE", ""},
                  {"HUGGINGFACE_HUB_CACHE", ""},
                  {"HF_HOME", "/hub"},
                  {"XDG_CACHE_HOME", "/huggingface/hub"},
                  {"HOME", "/.cache/huggingface/hub"}};
    for (size_t i = 0; i < SW_LEN(places); i++) {
        const char *value = getenv(places[i].variable);
        if (value && *value) {
            sw_str_printf(out, "%s%s", value, places[i].below);
            return;
        }
    }
    sw_str_printf(out, ".cache/huggingface/hub");
}

/* Finds the snapshot folder that refs/main names. SW_E_IO: there is none. */
static sw_status find_snapshot(const char *name, const char *cache, struct sw_str *out)
{
    const char *slash = strchr(name, '/');
    const int first = slash ? (int)(slash - name) : (int)strlen(name);
    struct sw_str folder = {0}, ref = {0};
    char *commit = NULL;
    size_t len = 0;
    sw_str_printf(&folder, "%s/models--%.*s%s%s", cache, first, name, slash ? "--" : "",
                  slash ? slash + 1 : "");
    sw_str_printf(&ref, "%s/refs/main", sw_str_text(&folder));
    sw_status st = sw_file_read(sw_str_text(&ref), &commit, &len);
    if (st >= 0) {
        commit[strspn(commit, "0123456789abcdef")] = '\0';
        sw_str_printf(out, "%s/snapshots/%s", sw_str_text(&folder), commit);
    }
    sw_free(commit);
    sw_str_fini(&ref);
    sw_str_fini(&folder);
    return st >= 0 && out->failed ? SW_FAIL(SW_E_NOMEM, "out of host memory for a path") : st;
}

sw_status sw_model_find(const char *name, char **out)
{
    struct sw_str cache = {0}, found = {0};
    sw_status st = SW_OK;
    cache_folder(&cache);
    if (access(name, F_OK) == 0 || sw_model_is_preset(name) || !is_hub_name(name)) {
        sw_str_printf(&found, "%s", name);
    } else if (find_snapshot(name, sw_str_text(&cache), &found) < 0 ||
               access(sw_str_text(&found), F_OK) != 0) {
        st = SW_FAIL(
            SW_E_IO,
            "%s: no such file, no preset of that name (\"spillway models\" lists them), and "
            "no model in Hugging Face's cache %s; \"hf download %s\" brings one there",
            name, sw_str_text(&cache), name);
    }
    if (st >= 0 && (found.failed || cache.failed)) {
        st = SW_FAIL(SW_E_NOMEM, "out of host memory for the path of a model");
    }
    sw_str_fini(&cache);
    if (st < 0) {
        sw_str_fini(&found);
        return st;
    }
    *out = found.ptr;
    return SW_OK;
}

/* ---- contents of a path ---- */

sw_status sw_model_check_path(const char *path)
{
    struct stat info;
    const size_t whole = strlen(path), len = whole - (whole > 1 && path[whole - 1] == '/');
    const bool there = stat(path, &info) == 0;
    if (!there && !sw_model_is_preset(path)) {
        return SW_FAIL(SW_E_IO,
                       "%s: %s, and no preset of that name (\"spillway models\" lists them)", path,
                       strerror(errno));
    }
    if (whole > 12 && strcmp(path + whole - 12, ".safetensors") == 0 && S_ISREG(info.st_mode)) {
        return SW_FAIL(SW_E_ARG,
                       "%s: these are weights alone; wanted their folder, with config.json", path);
    }
    if (!there || !S_ISDIR(info.st_mode) || is_there(path, "config.json")) {
        return SW_OK; /* a preset, a file or a model folder; or the open reports the error */
    }
    if (is_there(path, "manifest.json")) {
        return SW_FAIL(
            SW_E_ARG, "%s is a checkpoint: \"spillway export %s --output DIR\" makes a model of it",
            path, path);
    }
    if (is_there(path, "model/config.json")) {
        return SW_FAIL(SW_E_ARG, "%s is a run, its model is %.*s/model", path, (int)len, path);
    }
    if (is_there(path, "adapter/adapter_config.json")) {
        return SW_FAIL(
            SW_E_ARG,
            "%s is a run of adapters, which are %.*s/adapter; wanted their base as the model, "
            "and them as --adapter",
            path, (int)len, path);
    }
    if (is_there(path, "adapter_config.json")) {
        return SW_FAIL(SW_E_ARG,
                       "%s is an adapter; wanted its base as the model, and it as --adapter", path);
    }
    if (has_checkpoints(path)) {
        return SW_FAIL(
            SW_E_ARG,
            "%s is a run without a model: \"spillway export %s --output DIR\" makes one of "
            "its newest checkpoint",
            path, path);
    }
    return SW_OK;
}
