// SPDX-License-Identifier: Apache-2.0
// Tables of combinations. Impossible ones are refused when the file is read. Valid ones that are
// not built yet are refused by name before training; to enable one later, remove its row.
#include "config/private.h"

#include <stdio.h>
#include <string.h>

struct rule {
    const char *path; /* key that the message names */
    bool (*broken)(const struct sw_config *config);
    const char *text;
};

static sw_status refuse_rule(const struct sw_config *config, const struct rule *rule)
{
    const struct config_entry *entry = sw_config_find_entry(config, rule->path);
    return sw_config_refuse(config->impl, entry ? entry->line : 0, rule->path, "%s", rule->text);
}

/* ---- what cannot be ---- */

static bool both_precisions(const struct sw_config *c)
{
    return c->fp16.enabled && c->bf16.enabled;
}

static bool dynamic_without_window(const struct sw_config *c)
{
    return c->fp16.enabled && c->fp16.loss_scale == 0 && c->fp16.loss_scale_window <= 0;
}

static bool dynamic_without_minimum(const struct sw_config *c)
{
    return c->fp16.enabled && c->fp16.loss_scale == 0 && c->fp16.min_loss_scale <= 0;
}

/* fp32 has the gradients times the scale, and its reciprocal. */
static bool scale_outside_f32(const struct sw_config *c)
{
    const double scale = c->fp16.loss_scale;
    return c->fp16.enabled && scale != 0 && !(scale >= 0x1p-126 && scale <= 0x1p127);
}

static bool fp16_masters_without_zero(const struct sw_config *c)
{
    return c->fp16.master_weights_and_grads && c->zero.stage == 0;
}

static bool bf16_masters_without_zero(const struct sw_config *c)
{
    return c->bf16.master_weights_and_grads && c->zero.stage == 0;
}

static bool bf16_states_without_zero(const struct sw_config *c)
{
    return c->bf16.optimizer_states && c->zero.stage == 0;
}

static bool bf16_states_without_masters(const struct sw_config *c)
{
    return c->bf16.optimizer_states && !c->bf16.master_weights_and_grads;
}

static bool sum_at_stage_3(const struct sw_config *c)
{
    return c->zero.stage == 3 && sw_config_choice_is(c, "gradient_allreduce_op", "sum");
}

static bool no_norm_elsewhere(const struct sw_config *c)
{
    return !c->zero.compute_grad_norm && c->zero.stage != 1 && c->zero.stage != 2;
}

static bool ratio_below_stage_3(const struct sw_config *c)
{
    return c->zero.offload_optimizer.ratio < 1 && c->zero.stage != 3;
}

static bool share_at_the_end(const struct sw_config *c)
{
    return c->spillway.next_forward_share < 1 && c->spillway.clipped_update == SW_CLIPPED_END;
}

static bool states_without_path(const struct sw_config *c)
{
    return c->zero.offload_optimizer.device == SW_OFFLOAD_NVME &&
           c->zero.offload_optimizer.nvme_path.n == 0;
}

static bool params_without_path(const struct sw_config *c)
{
    return c->zero.offload_param.device == SW_OFFLOAD_NVME &&
           c->zero.offload_param.nvme_path.n == 0;
}

static bool has_empty(const struct sw_config_strings *paths)
{
    for (int i = 0; i < paths->n; i++) {
        if (!*paths->items[i]) {
            return true;
        }
    }
    return false;
}

static bool states_with_empty_path(const struct sw_config *c)
{
    return c->zero.offload_optimizer.device == SW_OFFLOAD_NVME &&
           has_empty(&c->zero.offload_optimizer.nvme_path);
}

static bool params_with_empty_path(const struct sw_config *c)
{
    return c->zero.offload_param.device == SW_OFFLOAD_NVME &&
           has_empty(&c->zero.offload_param.nvme_path);
}

static bool states_off_without_zero(const struct sw_config *c)
{
    return c->zero.offload_optimizer.device != SW_OFFLOAD_NONE && c->zero.stage == 0;
}

static bool states_on_disk_below_stage_3(const struct sw_config *c)
{
    return c->zero.offload_optimizer.device == SW_OFFLOAD_NVME && c->zero.stage != 3;
}

static bool params_off_below_stage_3(const struct sw_config *c)
{
    return c->zero.offload_param.device != SW_OFFLOAD_NONE && c->zero.stage != 3;
}

static bool bucket_without_old_form(const struct sw_config *c)
{
    const struct config_entry *size = sw_config_find_entry(c, "allgather_size");
    return size && size->value->type != SW_JSON_NULL && !c->impl->old_zero_form;
}

static bool bad_betas(const struct sw_config *c)
{
    const struct sw_config_numbers *betas = &c->optimizer.betas;
    if (!sw_config_find_entry(c, "optimizer.params.betas")) {
        return false;
    }
    return betas->n != 2 || betas->items[0] >= 1 || betas->items[1] >= 1;
}

static bool nesterov_without_momentum(const struct sw_config *c)
{
    return c->optimizer.type == SW_OPTIMIZER_SGD && c->optimizer.nesterov &&
           (c->optimizer.momentum <= 0 || c->optimizer.dampening != 0);
}

static bool nothing_but_smoothing(const struct sw_config *c)
{
    return c->spillway.label_smoothing >= 1;
}

static bool smoothed_weights(const struct sw_config *c)
{
    return c->spillway.token_weights && c->spillway.label_smoothing > 0;
}

static bool nothing_of_cosines(const struct sw_config *c)
{
    return c->spillway.contrastive.scale <= 0;
}

static bool nothing_of_preferences(const struct sw_config *c)
{
    return c->spillway.preference.beta <= 0;
}

static bool nothing_into_adapters(const struct sw_config *c)
{
    return c->spillway.lora.dropout >= 1;
}

static bool short_moments_of_others(const struct sw_config *c)
{
    return c->spillway.moments != SW_MOMENTS_FP32 && c->optimizer.type != SW_OPTIMIZER_NONE &&
           c->optimizer.type != SW_OPTIMIZER_ADAM;
}

static bool two_choose_moments(const struct sw_config *c)
{
    return sw_config_is_8bit(c->impl->optimizer) && c->spillway.moments != SW_MOMENTS_8BIT;
}

static bool boundary_without_whole_gradients(const struct sw_config *c)
{
    return c->spillway.reduce == SW_REDUCE_BOUNDARY && c->zero.stage >= 2;
}

static bool library_sums_by_host(const struct sw_config *c)
{
    return c->spillway.library_sums && c->spillway.comm == SW_COMM_BY_HOST;
}

static bool host_updates_without_states(const struct sw_config *c)
{
    return c->spillway.update == SW_PLACE_HOST &&
           c->zero.offload_optimizer.device != SW_OFFLOAD_CPU;
}

static bool host_updates_by_norms(const struct sw_config *c)
{
    return c->spillway.update == SW_PLACE_HOST && c->optimizer.type == SW_OPTIMIZER_LAMB;
}

static bool is_muon(const struct sw_config *c)
{
    return c->optimizer.type == SW_OPTIMIZER_MUON;
}

static bool host_updates_of_matrices(const struct sw_config *c)
{
    return c->spillway.update == SW_PLACE_HOST && is_muon(c);
}

static bool tiles_of_matrices(const struct sw_config *c)
{
    return c->spillway.tile_bytes > 0 && is_muon(c);
}

/* A rate of its own is a factor of lr, which a schedule moves. */
static bool rates_without_lr(const struct sw_config *c)
{
    return is_muon(c) && c->optimizer.lr == 0 &&
           (c->optimizer.muon_lr > 0 || c->optimizer.adam_lr > 0);
}

static bool is_adafactor(const struct sw_config *c)
{
    return c->optimizer.type == SW_OPTIMIZER_ADAFACTOR;
}

static bool host_updates_by_lines(const struct sw_config *c)
{
    return c->spillway.update == SW_PLACE_HOST && is_adafactor(c);
}

static bool tiles_by_lines(const struct sw_config *c)
{
    return c->spillway.tile_bytes > 0 && is_adafactor(c);
}

static bool has_rate(const struct sw_config *c)
{
    const struct config_entry *lr = sw_config_find_entry(c, "optimizer.params.lr");
    return lr && lr->value->type != SW_JSON_NULL;
}

static bool two_choose_rate(const struct sw_config *c)
{
    return is_adafactor(c) && c->optimizer.relative_step && has_rate(c);
}

static bool schedule_of_relative_step(const struct sw_config *c)
{
    return is_adafactor(c) && c->optimizer.relative_step && c->scheduler.type != SW_SCHEDULER_NONE;
}

static bool nobody_chooses_rate(const struct sw_config *c)
{
    return is_adafactor(c) && !c->optimizer.relative_step && !has_rate(c);
}

static bool warmup_of_no_relative_step(const struct sw_config *c)
{
    return is_adafactor(c) && c->optimizer.warmup_init && !c->optimizer.relative_step;
}

static bool bad_eps(const struct sw_config *c)
{
    return is_adafactor(c) && c->optimizer.adafactor_eps.n != 2;
}

static bool nothing_passes(const struct sw_config *c)
{
    return is_adafactor(c) && c->optimizer.clip_threshold == 0;
}

static bool two_choose_recompute(const struct sw_config *c)
{
    return c->spillway.recompute.every == SW_CONFIG_AUTO && c->activation.number_checkpoints != 0;
}

static bool blocks_of_auto(const struct sw_config *c)
{
    return c->spillway.recompute.every == SW_CONFIG_AUTO && c->spillway.recompute.blocks > 0;
}

static bool blocks_of_nothing(const struct sw_config *c)
{
    return c->spillway.recompute.every == 0 && c->spillway.recompute.blocks > 0;
}

/* ---- the mesh ---- */

static enum sw_step_schedule schedule_of(const struct sw_config *c)
{
    return (enum sw_step_schedule)c->spillway.schedule;
}

static bool pipeline_schedule_without_pipe(const struct sw_config *c)
{
    return c->parallel.pipe == 1 && !c->parallel.is_auto &&
           sw_schedule_is_of_pipeline(schedule_of(c));
}

static bool vertical_in_pipeline(const struct sw_config *c)
{
    return c->parallel.pipe > 1 && schedule_of(c) == SW_STEP_VERTICAL;
}

static bool horizontal_in_pipeline(const struct sw_config *c)
{
    return c->parallel.pipe > 1 && schedule_of(c) == SW_STEP_HORIZONTAL;
}

static bool chunks_of_others(const struct sw_config *c)
{
    return c->parallel.chunks > 1 && schedule_of(c) != SW_STEP_INTERLEAVED;
}

static bool interleaved_without_chunks(const struct sw_config *c)
{
    return c->parallel.chunks == 1 && schedule_of(c) == SW_STEP_INTERLEAVED;
}

static bool muon_in_parts(const struct sw_config *c)
{
    return c->parallel.tensor > 1 && is_muon(c);
}

static bool adafactor_in_parts(const struct sw_config *c)
{
    return c->parallel.tensor > 1 && is_adafactor(c);
}

static bool gathers_nothing_again(const struct sw_config *c)
{
    return c->parallel.gather_again && (c->parallel.tensor == 1 || !c->parallel.sequence_parallel);
}

static const struct rule impossible[] = {
    {"spillway.schedule", pipeline_schedule_without_pipe,
     "is for pipelines and needs spillway.mesh.pipe above 1; without it, \"horizontal\" and "
     "\"vertical\" work"},
    {"spillway.schedule", vertical_in_pipeline,
     "\"vertical\" is not supported with spillway.mesh.pipe above 1; \"gpipe\", \"1f1b\", "
     "\"interleaved\" and \"zero-bubble\" work"},
    {"spillway.schedule", horizontal_in_pipeline,
     "\"horizontal\" is for one stage; with spillway.mesh.pipe above 1, leave it out or give "
     "\"gpipe\", \"1f1b\", \"interleaved\" or \"zero-bubble\""},
    {"spillway.chunks", chunks_of_others,
     "above 1 needs spillway.schedule \"interleaved\"; leave it out for other schedules"},
    {"spillway.schedule", interleaved_without_chunks,
     "\"interleaved\" needs spillway.chunks of at least 2; with one chunk, \"1f1b\" is the same"},
    {"spillway.mesh.tensor", muon_in_parts,
     "above 1 is not supported for Muon, which updates whole matrices; use ranks along pipe or "
     "data, or AdamW"},
    {"spillway.mesh.tensor", adafactor_in_parts,
     "above 1 is not supported for Adafactor, which needs means over the whole tensor; use ranks "
     "along pipe or data, or AdamW"},
    {"spillway.gather_again", gathers_nothing_again,
     "needs spillway.mesh.tensor above 1 and spillway.sequence_parallel; otherwise ranks have the "
     "inputs of products without gathering"},
    {"bf16.enabled", both_precisions, "fp16 and bf16 are both enabled; enable one"},
    {"fp16.loss_scale_window", dynamic_without_window, "must be > 0 with dynamic scaling"},
    {"fp16.loss_scale", scale_outside_f32, "wanted 0 or 2^-126 to 2^127, the range of fp32"},
    {"fp16.min_loss_scale", dynamic_without_minimum, "must be > 0 with dynamic scaling"},
    {"fp16.fp16_master_weights_and_grads", fp16_masters_without_zero, "needs ZeRO stage 1, 2 or 3"},
    {"bf16.bf16_master_weights_and_grads", bf16_masters_without_zero, "needs ZeRO stage 1, 2 or 3"},
    {"bf16.bf16_optimizer_states", bf16_states_without_zero, "needs ZeRO stage 1, 2 or 3"},
    {"bf16.bf16_optimizer_states", bf16_states_without_masters,
     "needs bf16_master_weights_and_grads"},
    {"gradient_allreduce_op", sum_at_stage_3, "\"sum\" is not supported at stage 3"},
    {"zero_optimization.compute_grad_norm", no_norm_elsewhere,
     "false is supported only at stages 1 and 2"},
    {"zero_optimization.offload_optimizer.ratio", ratio_below_stage_3,
     "a ratio below 1 is supported only at stage 3"},
    {"spillway.next_forward_share", share_at_the_end,
     "below 1 needs clipped_update \"next_forward\""},
    {"zero_optimization.offload_optimizer.nvme_path", states_without_path,
     "is required with device nvme"},
    {"zero_optimization.offload_param.nvme_path", params_without_path,
     "is required with device nvme"},
    {"zero_optimization.offload_optimizer.nvme_path", states_with_empty_path,
     "wanted a folder, got an empty path"},
    {"zero_optimization.offload_param.nvme_path", params_with_empty_path,
     "wanted a folder, got an empty path"},
    {"zero_optimization.offload_optimizer.device", states_off_without_zero,
     "offloading optimizer states needs ZeRO stage 1, 2 or 3"},
    {"zero_optimization.offload_optimizer.device", states_on_disk_below_stage_3,
     "\"nvme\" is supported only at stage 3"},
    {"zero_optimization.offload_param.device", params_off_below_stage_3,
     "offloading parameters is supported only at stage 3"},
    {"allgather_size", bucket_without_old_form,
     "is valid only with \"zero_optimization\": true; use zero_optimization.allgather_bucket_size"},
    {"optimizer.params.betas", bad_betas, "wanted two numbers below 1"},
    {"optimizer.params.nesterov", nesterov_without_momentum,
     "needs momentum above 0 and no dampening"},
    {"spillway.label_smoothing", nothing_but_smoothing, "wanted a number below 1"},
    {"spillway.label_smoothing", smoothed_weights, "is not built beside spillway.token_weights"},
    {"spillway.preference.beta", nothing_of_preferences, "wanted a number above 0"},
    {"spillway.contrastive.scale", nothing_of_cosines, "wanted a number above 0"},
    {"spillway.lora.lora_dropout", nothing_into_adapters, "wanted a number below 1"},
    {"spillway.moments", short_moments_of_others,
     "\"bf16\" and \"8bit\" are supported only for Adam and AdamW"},
    {"spillway.moments", two_choose_moments,
     "contradicts optimizer.type, as Adam8bit and AdamW8bit keep 8-bit moments; leave this out, "
     "or use Adam or AdamW"},
    {"spillway.reduce", boundary_without_whole_gradients,
     "\"boundary\" needs whole gradients, which stages 2 and 3 do not keep"},
    {"spillway.library_sums", library_sums_by_host,
     "needs a library that exchanges: spillway.comm \"library\", or \"auto\" on GPUs"},
    {"spillway.update", host_updates_without_states,
     "\"host\" needs optimizer states in host memory: zero_optimization.offload_optimizer.device "
     "\"cpu\""},
    {"spillway.update", host_updates_by_norms,
     "\"host\" is not supported for LAMB, which needs norms between its two halves"},
    {"spillway.update", host_updates_of_matrices,
     "\"host\" is not supported for Muon, which needs whole matrices between its two halves"},
    {"spillway.tile_bytes", tiles_of_matrices,
     "tiles are not supported for Muon, which updates whole matrices"},
    {"optimizer.params.lr", rates_without_lr, "must be > 0 with muon_lr or adam_lr"},
    {"spillway.update", host_updates_by_lines,
     "\"host\" is not supported for Adafactor, which needs means over the whole tensor"},
    {"spillway.tile_bytes", tiles_by_lines,
     "tiles are not supported for Adafactor, which needs means over the whole tensor"},
    {"optimizer.params.eps", bad_eps,
     "wanted two numbers: the term added to squares, and the smallest scale"},
    {"optimizer.params.clip_threshold", nothing_passes, "must be > 0"},
    {"optimizer.params.lr", two_choose_rate,
     "relative_step, true by default, chooses the rate; leave lr out, or set relative_step to "
     "false"},
    {"optimizer.params.lr", nobody_chooses_rate, "is required if relative_step is false"},
    {"optimizer.params.warmup_init", warmup_of_no_relative_step, "needs relative_step"},
    {"scheduler.type", schedule_of_relative_step,
     "relative_step, true by default, chooses the rate; leave the scheduler out, or set lr and "
     "relative_step to false"},
    {"spillway.recompute", two_choose_recompute,
     "\"auto\" and activation_checkpointing.number_checkpoints exclude each other"},
    {"spillway.recompute_blocks", blocks_of_auto,
     "is chosen by spillway.recompute \"auto\"; leave it out"},
    {"spillway.recompute_blocks", blocks_of_nothing,
     "needs spillway.recompute: \"blocks\" or a number"},
};

sw_status sw_config_check(const struct sw_config *config)
{
    for (size_t i = 0; i < SW_LEN(impossible); i++) {
        if (impossible[i].broken(config)) {
            return refuse_rule(config, &impossible[i]);
        }
    }
    return SW_OK;
}

/* ---- what is not built yet ---- */

static bool is_one_bit(const struct sw_config *c)
{
    static const char *const names[] = {"OneBitAdam", "OneBitLamb", "ZeroOneAdam"};
    for (size_t i = 0; i < SW_LEN(names); i++) {
        if (c->optimizer.name && strcmp(c->optimizer.name, names[i]) == 0) {
            return true;
        }
    }
    return false;
}

static bool optimizer_not_built(const struct sw_config *c)
{
    return c->impl->optimizer && !c->impl->optimizer->built && !is_one_bit(c);
}

static bool scheduler_not_built(const struct sw_config *c)
{
    return c->impl->scheduler && !c->impl->scheduler->built;
}

static bool coarse_accumulation(const struct sw_config *c)
{
    return c->data_types.grad_accum != SW_DTYPE_COUNT && c->data_types.grad_accum != SW_F32;
}

static bool other_clipping(const struct sw_config *c)
{
    return c->optimizer.max_grad_norm != 0 &&
           c->optimizer.max_grad_norm != c->misc.gradient_clipping;
}

static const struct rule unbuilt[] = {
    {"optimizer.type", optimizer_not_built, "this optimizer is not built yet"},
    {"optimizer.type", is_one_bit,
     "not built: compressed momenta leave an error on each rank, so results would depend on the "
     "number of ranks"},
    {"scheduler.type", scheduler_not_built, "this schedule is not built yet"},
    {"data_types.grad_accum_dtype", coarse_accumulation,
     "only fp32 accumulation of gradients is built"},
    {"optimizer.params.max_grad_norm", other_clipping,
     "clipping by the optimizer is not built, and gradient_clipping has another value; set that "
     "instead"},
};

static bool is_true(const struct sw_json *object, const char *key)
{
    const struct sw_json *node = object ? sw_json_get(object, key) : NULL;
    return node && node->type == SW_JSON_BOOL && node->boolean;
}

/* Nothing is asked by null, false, an empty block, or one whose `enabled` is false. */
static bool is_idle(const struct sw_json *value)
{
    switch (value->type) {
    case SW_JSON_NULL:
        return true;
    case SW_JSON_BOOL:
        return !value->boolean;
    case SW_JSON_ARRAY:
        return value->n_children == 0;
    case SW_JSON_OBJECT: {
        const struct sw_json *enabled = sw_json_get(value, "enabled");
        return value->n_children == 0 ||
               (enabled && enabled->type == SW_JSON_BOOL && !enabled->boolean);
    }
    default:
        return false;
    }
}

static bool is_default(const struct config_entry *entry)
{
    struct sw_json_doc *doc;
    const char *text = entry->field->default_json;
    if (sw_json_parse(entry->path, text, strlen(text), SW_JSON_STRICT, &doc) != SW_OK) {
        return false;
    }
    const bool same = sw_config_json_equal(entry->value, sw_json_root(doc));
    sw_json_close(doc);
    return same;
}

static bool asks(const struct config_entry *entry)
{
    if (entry->origin == SW_CONFIG_DEFAULT || entry->field->status == STATUS_BUILT ||
        entry->field->status == STATUS_NEEDLESS) {
        return false;
    }
    if (entry->section->flags & SECTION_GATED && !is_true(entry->value->parent, "enabled")) {
        return false;
    }
    if (entry->field->type == FIELD_JSON && is_idle(entry->value)) {
        return false;
    }
    return !is_default(entry);
}

struct report {
    struct sw_str *out;
    int n;
};

static void add(const struct sw_config *config, struct report *report,
                const struct config_entry *entry, const char *path, const char *text,
                const char *why)
{
    char where[512];
    sw_config_where(config->impl, entry ? entry->line : 0, where, sizeof where);
    report->n++;
    sw_str_printf(report->out, "%s: %s", where, path);
    if (entry) {
        sw_str_puts(report->out, " ");
        sw_json_write(entry->value, 0, report->out);
    }
    sw_str_printf(report->out, ": %s%s%s\n", text, why ? "; " : "", why ? why : "");
}

static const char *refusal_of(const struct config_field *field)
{
    return field->status == STATUS_GONE ? "not built, and removed from DeepSpeed itself"
                                        : "not built yet";
}

/* Reports blocks that request a feature by their presence: once each, by their first row. */
static void add_askers(const struct sw_config *config, struct report *report)
{
    const struct config_section *last = NULL;
    for (int i = 0; i < config->impl->n_entries; i++) {
        const struct config_entry *entry = &config->impl->entries[i];
        if (entry->section->flags & SECTION_ASKS && entry->section != last) {
            last = entry->section;
            add(config, report, NULL, last->path, refusal_of(entry->field), NULL);
        }
    }
}

sw_status sw_config_list_unbuilt(const struct sw_config *config, struct sw_str *out)
{
    struct report report = {out, 0};
    for (size_t i = 0; i < SW_LEN(unbuilt); i++) {
        if (unbuilt[i].broken(config)) {
            add(config, &report, sw_config_find_entry(config, unbuilt[i].path), unbuilt[i].path,
                unbuilt[i].text, NULL);
        }
    }
    for (int i = 0; i < config->impl->n_entries; i++) {
        const struct config_entry *entry = &config->impl->entries[i];
        if (!(entry->section->flags & SECTION_ASKS) && asks(entry)) {
            add(config, &report, entry, entry->path, refusal_of(entry->field), entry->field->why);
        }
    }
    add_askers(config, &report);
    return report.n ? SW_FAIL(SW_E_UNSUP, "%d keys request features that are not built", report.n)
                    : SW_OK;
}

sw_status sw_config_check_built(const struct sw_config *config)
{
    struct sw_str list = {0};
    sw_status st = sw_config_list_unbuilt(config, &list);
    if (st < 0) {
        const char *text = sw_str_text(&list);
        st = SW_FAIL(SW_E_UNSUP, "%.*s", (int)strcspn(text, "\n"), text);
    }
    sw_str_fini(&list);
    return st;
}

/* ---- small questions about the whole ---- */

/* Shell pattern with * and ?; a star backtracks to the last one only, which is enough. */
static bool matches(const char *pattern, const char *text)
{
    const char *star = NULL, *retry = NULL;
    while (*text) {
        if (*pattern == '*') {
            star = ++pattern;
            retry = text;
        } else if (*pattern == '?' || *pattern == *text) {
            pattern++;
            text++;
        } else if (star) {
            pattern = star;
            text = ++retry;
        } else {
            return false;
        }
    }
    while (*pattern == '*') {
        pattern++;
    }
    return *pattern == '\0';
}

bool sw_config_is_frozen(const struct sw_config *config, const char *name)
{
    for (int i = 0; i < config->spillway.frozen.n; i++) {
        if (matches(config->spillway.frozen.items[i], name)) {
            return true;
        }
    }
    return false;
}

struct sw_recompute sw_config_recompute(const struct sw_config *config, int64_t n_blocks)
{
    struct sw_recompute out = config->spillway.recompute;
    const int64_t kept = sw_min_i64(config->activation.number_checkpoints, n_blocks);
    if (out.every == 0 && kept > 0) {
        out.every = sw_ceil_div(n_blocks, kept);
    }
    return out;
}
