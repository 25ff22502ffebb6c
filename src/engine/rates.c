// SPDX-License-Identifier: Apache-2.0
// Reads the rates of a machine as a user writes them: "bf16=800".
#include <limits.h>
#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/private.h"

/* Rates in units of 1e9 per second. */
static const struct {
    const char *name;
    enum sw_load kinds[3];
    int n_kinds;
} given[] = {
    {"f32", {SW_LOAD_PRODUCTS_F32}, 1},
    {"bf16", {SW_LOAD_PRODUCTS_BF16}, 1},
    {"f16", {SW_LOAD_PRODUCTS_F16}, 1},
    {"copy", {SW_LOAD_OTHER, SW_LOAD_COPIES_IN, SW_LOAD_COPIES_OUT}, 3},
    {"memory", {SW_LOAD_OTHER}, 1}, /* after "copy", which has it too */
    {"disk_read", {SW_LOAD_DISK_READ}, 1},
    {"disk_write", {SW_LOAD_DISK_WRITTEN}, 1},
    {"comm", {SW_LOAD_SENT}, 1},
    {"host", {SW_LOAD_HOST}, 1},
};
/* Other names, with the factor of their unit. */
static const struct {
    const char *name;
    double unit;
    size_t offset; /* of a double in struct sw_machine_rates */
} others[] = {
    {"comm_latency", 1e-6, offsetof(struct sw_machine_rates, latency)},
    {"node", 1e9, offsetof(struct sw_machine_rates, node)},
    {"net", 1e9, offsetof(struct sw_machine_rates, net)},
};
static const char node_ranks_name[] = "node_ranks";

/* The number of a rate, in its unit. */
static bool set_rate(const char *name, double value, struct sw_machine_rates *rates)
{
    for (size_t i = 0; i < SW_LEN(others); i++) {
        if (strcmp(name, others[i].name) == 0) {
            *(double *)((char *)rates + others[i].offset) = value * others[i].unit;
            return true;
        }
    }
    if (strcmp(name, node_ranks_name) == 0) {
        rates->node_ranks = value >= 1 && value <= INT_MAX ? (int)value : 0;
        return true;
    }
    for (size_t i = 0; i < SW_LEN(given); i++) {
        for (int k = 0; strcmp(name, given[i].name) == 0 && k < given[i].n_kinds; k++) {
            rates->work[given[i].kinds[k]] = value * 1e9;
        }
        if (strcmp(name, given[i].name) == 0) {
            return true;
        }
    }
    return false;
}

static sw_status refuse_rate(const char *text, const char *name)
{
    const char *names[SW_LEN(given) + SW_LEN(others) + 1] = {node_ranks_name};
    size_t n = 1;
    for (size_t i = 0; i < SW_LEN(given); i++) {
        names[n++] = given[i].name;
    }
    for (size_t i = 0; i < SW_LEN(others); i++) {
        names[n++] = others[i].name;
    }
    const char *nearest = sw_nearest(name, names, n);
    return SW_FAIL(
        SW_E_ARG,
        "--rates %s: wanted NAME=NUMBER with f32, bf16, f16 (GFLOP/s), copy, memory, "
        "disk_read, disk_write, comm, node, net, host (GB/s), comm_latency (microseconds) or "
        "node_ranks (ranks of a host)%s",
        text, sw_hint(nearest).text);
}

static sw_status take_rate(const char *text, struct sw_machine_rates *rates)
{
    char name[64], *end = NULL;
    const char *equals = strchr(text, '=');
    struct sw_machine_rates taken = *rates;
    snprintf(name, sizeof name, "%.*s", equals ? (int)sw_min_i64(equals - text, 60) : 60, text);
    const double value = equals ? strtod(equals + 1, &end) : 0;
    if (!equals || !set_rate(name, value, &taken)) {
        return refuse_rate(text, name);
    }
    if (end == equals + 1 || *end || !(value > 0 && isfinite(value))) {
        return SW_FAIL(SW_E_ARG, "--rates %s: wanted a number above 0", text);
    }
    if (strcmp(name, node_ranks_name) == 0 && taken.node_ranks != value) {
        return SW_FAIL(SW_E_ARG, "--rates %s: wanted a whole number of ranks", text);
    }
    *rates = taken;
    return SW_OK;
}

sw_status sw_engine_take_rates(const char *const *texts, int n, struct sw_machine_rates *rates)
{
    for (int i = 0; i < n; i++) {
        SW_TRY(take_rate(texts[i], rates));
    }
    return SW_OK;
}
