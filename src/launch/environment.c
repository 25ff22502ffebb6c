// SPDX-License-Identifier: Apache-2.0
// The environment of the ranks: variables whose name begins as DeepSpeed's list says, every line of
// .deepspeed_env (home folder, then current folder), then what --export names. Later ones win.
#include "launch/private.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char *const prefixes[] = {"MLFLOW", "PYTHON", "MV2", "UCX", "NCCL", "SPILLWAY"};
/* Left out where the cluster says that it sets them itself. */
static const char *const cluster_own[] = {"NCCL_IB_HCA", "UCX_NET_DEVICES"};

static bool is_name(const char *name)
{
    if (!isalpha((unsigned char)*name) && *name != '_') {
        return false;
    }
    while (isalnum((unsigned char)*name) || *name == '_') {
        name++;
    }
    return *name == '\0';
}

static const char *value_of(const char *const *environment, const char *name)
{
    const size_t len = strlen(name);
    for (; *environment; environment++) {
        if (strncmp(*environment, name, len) == 0 && (*environment)[len] == '=') {
            return *environment + len + 1;
        }
    }
    return NULL;
}

const char *sw_launch_own_value(const struct sw_launch_options *options, const char *name)
{
    return value_of(options->environment ? options->environment : (const char *const *)environ,
                    name);
}

static bool is_exported(const char *const *environment, const char *name)
{
    for (size_t i = 0; i < SW_LEN(cluster_own) && value_of(environment, "AISC_JOB_NAME"); i++) {
        if (strcmp(name, cluster_own[i]) == 0) {
            return false;
        }
    }
    for (size_t i = 0; i < SW_LEN(prefixes); i++) {
        if (strncmp(name, prefixes[i], strlen(prefixes[i])) == 0) {
            return is_name(name); /* a shell's function, for example, is no name */
        }
    }
    return false;
}

static sw_status by_prefix(struct sw_arena *arena, const char *const *environment,
                           struct words *out)
{
    for (const char *const *at = environment; *at; at++) {
        const char *equals = strchr(*at, '=');
        char *name = equals ? sw_arena_strndup(arena, *at, (size_t)(equals - *at)) : NULL;
        if (equals) {
            SW_TRY_ALLOC(name, "the environment");
        }
        if (name && is_exported(environment, name)) {
            SW_TRY(sw_launch_set(arena, out, name, equals + 1));
        }
    }
    return SW_OK;
}

static char *trim(char *text)
{
    text += strspn(text, " \t\r");
    size_t len = strlen(text);
    while (len > 0 && strchr(" \t\r", text[len - 1])) {
        text[--len] = '\0';
    }
    return text;
}

static sw_status by_line(struct sw_arena *arena, const char *path, int line, char *text,
                         struct words *out)
{
    text = trim(text);
    if (!*text || *text == '#') {
        return SW_OK;
    }
    char *equals = strchr(text, '=');
    if (!equals) {
        return SW_FAIL(SW_E_FORMAT, "%s:%d: wanted NAME=VALUE, got \"%s\"", path, line, text);
    }
    *equals = '\0';
    const char *name = trim(text);
    if (!is_name(name)) {
        return SW_FAIL(SW_E_FORMAT, "%s:%d: wanted the name of a variable, got \"%s\"", path, line,
                       name);
    }
    return sw_launch_set(arena, out, name, trim(equals + 1));
}

static sw_status by_file(struct sw_arena *arena, const char *folder, const char *name,
                         struct words *out)
{
    const char *path = *name == '/' ? name : sw_arena_printf(arena, "%s/%s", folder, name);
    SW_TRY_ALLOC(path, "a path");
    if (access(path, F_OK) != 0) {
        return SW_OK;
    }
    char *at;
    SW_TRY(sw_launch_read_file(arena, path, &at));
    for (int line = 1; at; line++) {
        char *here = strsep(&at, "\n");
        SW_TRY(by_line(arena, path, line, here, out));
    }
    return SW_OK;
}

static sw_status by_request(struct sw_arena *arena, const char *const *environment,
                            const char *request, struct words *out)
{
    const char *equals = strchr(request, '=');
    const size_t len = equals ? (size_t)(equals - request) : strlen(request);
    char *name = sw_arena_strndup(arena, request, len);
    SW_TRY_ALLOC(name, "the environment");
    if (!is_name(name)) {
        return SW_FAIL(SW_E_CONFIG, "--export: wanted NAME or NAME=VALUE, got \"%s\"", request);
    }
    const char *value = equals ? equals + 1 : value_of(environment, name);
    if (equals && strcmp(name, "SPILLWAY_JOB_SECRET") == 0) {
        return SW_FAIL(
            SW_E_CONFIG,
            "--export %s: every user can read a command line; set it in the environment, which "
            "is passed on",
            name);
    }
    if (!value) {
        return SW_FAIL(SW_E_CONFIG, "--export: %s is not set here; wanted %s=VALUE", name, name);
    }
    return sw_launch_set(arena, out, name, value);
}

sw_status sw_launch_exports(struct sw_arena *arena, const struct sw_launch_options *options,
                            struct words *out)
{
    const char *const *environment =
        options->environment ? options->environment : (const char *const *)environ;
    const char *file = value_of(environment, "DS_ENV_FILE");
    const char *home = options->home ? options->home : value_of(environment, "HOME");
    const char *folder = options->folder ? options->folder : ".";
    file = file && *file ? file : ".deepspeed_env";
    SW_TRY(by_prefix(arena, environment, out));
    if (home && *file != '/') {
        SW_TRY(by_file(arena, home, file, out));
    }
    SW_TRY(by_file(arena, folder, file, out));
    for (int i = 0; i < options->n_exports; i++) {
        SW_TRY(by_request(arena, environment, options->exports[i], out));
    }
    return SW_OK;
}
