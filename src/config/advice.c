// SPDX-License-Identifier: Apache-2.0
// Messages of a search for a plan about keys: those that cannot be honoured, and those that would
// help. Only this room knows the names of keys; callers decide what helps in the terms of config.h.
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

sw_status sw_config_refuse_blocks(int64_t asked, int64_t n_blocks)
{
    return SW_FAIL(SW_E_CONFIG,
                   "spillway.recompute_blocks: wanted at most the blocks of the model, %lld, and "
                   "it is %lld",
                   (long long)n_blocks, (long long)asked);
}

void sw_config_print_auto(int64_t micro_batch, int64_t recompute_every, struct sw_str *out)
{
    if (micro_batch > 0) {
        sw_str_printf(out, "micro-batch \"auto\" (at %lld)%s", (long long)micro_batch,
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

void sw_config_print_helps(unsigned helps, struct sw_str *out)
{
    static const struct {
        unsigned help;
        const char *before, *text;
    } all[] = {
        {SW_HELP_RECOMPUTE, ", ", "spillway.recompute \"blocks\""},
        {SW_HELP_RECOMPUTE_MORE, ", ", "a larger spillway.recompute_blocks"},
        {SW_HELP_HORIZONTAL, ", ", "spillway.schedule \"horizontal\""},
        {SW_HELP_OFFLOAD_STATES, ", ", "zero_optimization.offload_optimizer.device \"cpu\""},
        {SW_HELP_SMALLER_TILES, ", ", "a smaller spillway.tile_bytes"},
        {SW_HELP_OFFLOAD_TILES, ", ",
         "zero_optimization.offload_param with tiles (spillway.tile_bytes)"},
        {SW_HELP_TILES, ", ", "tiles (spillway.tile_bytes)"},
        {SW_HELP_SUB_GROUP, ", ", "a smaller zero_optimization.sub_group_size"},
        {SW_HELP_THREADS, ", ", "fewer spillway.threads"},
        {SW_HELP_LOSS_CHUNK, ", ", "a smaller spillway.loss_chunk"},
        {SW_HELP_SMALLER_BATCH, ", ", "a smaller train_micro_batch_size_per_gpu or --seq-len"},
        {SW_HELP_OFFLOAD_LESS, ", ",
         "more ranks, or not to offload all of zero_optimization.offload_optimizer and "
         "offload_param"},
        {SW_HELP_CHECKPOINT_LESS, ", or ", "of activation_checkpointing.cpu_checkpointing"},
        {SW_HELP_NO_CHECKPOINTING, ", ",
         "no activation_checkpointing.cpu_checkpointing, or a smaller "
         "train_micro_batch_size_per_gpu or --seq-len"},
        {SW_HELP_ONE_SLOT, ", or ", "spillway.disk_slots 1"},
    };
    const size_t before = out->len;
    for (size_t i = 0; i < SW_LEN(all); i++) {
        if (helps & all[i].help) {
            sw_str_puts(out, out->len > before ? all[i].before : "");
            sw_str_puts(out, all[i].text);
        }
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
    if (change->recompute_all) {
        snprintf(items[n++], sizeof *items, "spillway.recompute_blocks null");
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
