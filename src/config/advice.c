// SPDX-License-Identifier: Apache-2.0
// What a search for a plan says of keys: those that cannot be honoured, and those that would help.
// The names of keys are this room's; whoever decides what helps says it in the terms of config.h.
#include "config/private.h"

#include <stdio.h>

sw_status sw_config_refuse_slots_of_tiles(size_t tile_bytes)
{
    return SW_FAIL(SW_E_CONFIG,
                   "spillway.disk_slots 2: LAMB of parameters in tiles (of %zu bytes) reads "
                   "what it has written, and has one slot for it",
                   tile_bytes);
}

sw_status sw_config_refuse_slots(void)
{
    return SW_FAIL(SW_E_CONFIG, "spillway.disk_slots 2 wants all optimizer states off the device: "
                                "zero_optimization.offload_optimizer with a ratio of 1");
}

sw_status sw_config_refuse_tiles(void)
{
    return SW_FAIL(SW_E_CONFIG, "spillway.tile_bytes: tiles want stage 3 with "
                                "zero_optimization.offload_param and offload_optimizer, and no "
                                "keep_gradients");
}

void sw_config_print_auto(int64_t micro_batch, int64_t recompute_every, struct sw_str *out)
{
    if (micro_batch > 0) {
        sw_str_printf(out, "spillway.micro_batch \"auto\" (at %lld)%s", (long long)micro_batch,
                      recompute_every >= 0 ? ", " : "");
    }
    if (recompute_every >= 0) {
        sw_str_printf(out, "spillway.recompute \"auto\" (at %s%.0d)",
                      recompute_every == 0   ? "\"none\""
                      : recompute_every == 1 ? "\"blocks\""
                                             : "",
                      recompute_every > 1 ? (int)recompute_every : 0);
    }
}

void sw_config_print_change(const struct sw_config_change *change, struct sw_str *out)
{
    static const char *const devices[] = {"none", "cpu", "nvme"};
    const int states = change->offload_optimizer, params = change->offload_param;
    const char *path =
        states == SW_OFFLOAD_NVME || params == SW_OFFLOAD_NVME ? " with its nvme_path" : "";
    char items[6][96];
    int n = 0;
    if (change->recompute) {
        snprintf(items[n++], sizeof *items, "spillway.recompute \"blocks\"");
    }
    if (change->stage > 0) {
        snprintf(items[n++], sizeof *items, "zero_optimization.stage %d", change->stage);
    }
    if (states != SW_OFFLOAD_NONE) {
        snprintf(items[n++], sizeof *items, "zero_optimization.offload_optimizer.device \"%s\"%s",
                 devices[states], path);
    }
    if (params != SW_OFFLOAD_NONE) {
        snprintf(items[n++], sizeof *items, "zero_optimization.offload_param.device \"%s\"%s",
                 devices[params], path);
    }
    if (change->host_memory_bytes > 0) {
        snprintf(items[n++], sizeof *items, "spillway.device_memory %zu",
                 change->device_memory_bytes);
        snprintf(items[n++], sizeof *items, "spillway.host_memory %zu", change->host_memory_bytes);
    }
    for (int i = 0; i < n; i++) {
        sw_str_printf(out, "%s%s",
                      i == 0       ? "; it fits with "
                      : i + 1 == n ? " and "
                                   : ", ",
                      items[i]);
    }
    sw_str_puts(out, change->tiles ? ", in tiles" : "");
}
