// SPDX-License-Identifier: Apache-2.0
// What models there are; what a path is that was given for a model and holds none: a run, whose
// model lies further in, or a checkpoint, of which one can be made.
#include <errno.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "ckpt/ckpt.h"
#include "engine/private.h"
#include "spillway/doctor.h"

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
                       "%s: these are weights alone; their folder, with config.json, is wanted",
                       path);
    }
    if (!there || !S_ISDIR(info.st_mode) || is_there(path, "config.json")) {
        return SW_OK; /* a preset, a file, a folder of the hub; or what opening says of it */
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
        return SW_FAIL(SW_E_ARG,
                       "%s is a run of adapters, which are %.*s/adapter: their base is wanted, and "
                       "them as --adapter",
                       path, (int)len, path);
    }
    if (is_there(path, "adapter_config.json")) {
        return SW_FAIL(SW_E_ARG, "%s is an adapter: its base is wanted, and it as --adapter", path);
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

sw_status sw_models_text(char **out)
{
    struct sw_str text = {0};
    sw_model_list(&text);
    if (text.failed) {
        sw_str_fini(&text);
        return SW_FAIL(SW_E_NOMEM, "out of host memory for a list");
    }
    *out = text.ptr;
    return SW_OK;
}
