// SPDX-License-Identifier: Apache-2.0
// Keys that are "auto": the values that they may take, and their replacement. Afterwards they are
// values like any others, so that no other file needs to handle "auto".
#include "config/private.h"

#include <stdio.h>
#include <string.h>

/* Limits the search for divisors, which goes up to the square root. */
static const int64_t most_samples = INT64_C(1) << 40;

static const char *const micro_batch_key = "spillway.micro_batch";
static const char *const batch_key = "train_micro_batch_size_per_gpu";
static const char *const recompute_key = "spillway.recompute";
static const char *const recompute_blocks_key = "spillway.recompute_blocks";

bool sw_config_is_auto(const struct sw_config *config)
{
    return config->spillway.micro_batch == SW_MICRO_BATCH_AUTO ||
           config->spillway.recompute.every == SW_CONFIG_AUTO;
}

static bool is_elastic(const struct sw_config *config)
{
    const struct sw_json *node = sw_config_value(config, "elasticity.enabled");
    return node && node->type == SW_JSON_BOOL && node->boolean;
}

/* All that a rank computes in a step, where the micro-batch and the accumulation divide it. */
static int64_t samples_of_a_rank(const struct sw_config *config, int ranks)
{
    const int64_t train = config->impl->batch.train_batch_size;
    return train % ranks == 0 ? train / ranks : 0;
}

static int64_t largest_divisor(int64_t n, int64_t most)
{
    int64_t best = 0;
    for (int64_t i = 1; n > 0 && i <= n / i; i++) {
        if (n % i == 0) {
            best = i <= most && i > best ? i : best;
            best = n / i <= most && n / i > best ? n / i : best;
        }
    }
    return best;
}

int64_t sw_config_largest_micro_batch(const struct sw_config *config, int ranks,
                                      int64_t micro_batches, int64_t most)
{
    const struct sw_config_impl *impl = config->impl;
    const int64_t k = micro_batches > 0 ? micro_batches : config->spillway.micro_batches;
    most = impl->plans_micro_batch ? sw_min_i64(most, SW_CONFIG_MOST_PLANNED) : most;
    if (!impl->given_batch[0]) {
        return most; /* the global batch follows from it */
    }
    const int64_t samples = k > 0 ? impl->batch.train_batch_size : samples_of_a_rank(config, ranks);
    if (k > 0 || impl->given_batch[2]) { /* it is fixed by them */
        const int64_t parts = k > 0 ? k : impl->batch.accumulation_steps;
        const int64_t only = parts > 0 && samples % parts == 0 ? samples / parts : 0;
        return only <= most ? only : 0;
    }
    return largest_divisor(samples, most);
}

int64_t sw_config_micro_batches_of(const struct sw_config *config, int ranks, int64_t micro_batches,
                                   int64_t micro_batch)
{
    const struct sw_config_impl *impl = config->impl;
    const int64_t k = micro_batches > 0 ? micro_batches : config->spillway.micro_batches;
    if (k > 0 || micro_batch < 1) {
        return k;
    }
    return impl->given_batch[0]   ? impl->batch.train_batch_size / micro_batch
           : impl->given_batch[2] ? impl->batch.accumulation_steps * ranks
                                  : ranks;
}

/* If the global batch follows from the micro-batch, only the accumulation can be wrong. */
static sw_status check_open_batch(const struct sw_config *config, int ranks, int64_t micro_batches)
{
    const struct sw_config_impl *impl = config->impl;
    const int64_t steps = impl->given_batch[2] ? impl->batch.accumulation_steps : 1;
    const int64_t k = micro_batches > 0 ? micro_batches : config->spillway.micro_batches;
    if (steps < 1 || steps > most_samples / ranks || k > most_samples) {
        return sw_config_refuse(impl, 0, "gradient_accumulation_steps",
                                "wanted 1 to %lld on %d ranks, got %lld",
                                (long long)(most_samples / ranks), ranks, (long long)steps);
    }
    return SW_OK;
}

sw_status sw_config_check_auto(const struct sw_config *config, int ranks, int64_t micro_batches)
{
    const struct sw_config_impl *impl = config->impl;
    const int line = impl->plans_micro_batch ? impl->micro_batch_line
                                             : sw_config_find_entry(config, micro_batch_key)->line;
    const char *key = impl->plans_micro_batch ? batch_key : micro_batch_key;
    const int64_t train = impl->batch.train_batch_size;
    if (is_elastic(config)) {
        return sw_config_refuse(impl, line, key,
                                "\"auto\" and the elasticity block both choose it; leave one out");
    }
    if (impl->given_batch[1]) {
        return sw_config_refuse(
            impl, line, key,
            "\"auto\" chooses train_micro_batch_size_per_gpu, but that is given as %lld; leave "
            "one out",
            (long long)impl->batch.micro_batch_size);
    }
    if (!impl->given_batch[0] && impl->plans_micro_batch) {
        return check_open_batch(config, ranks, micro_batches);
    }
    if (!impl->given_batch[0]) {
        return sw_config_refuse(impl, line, key, "\"auto\" needs train_batch_size, to divide it");
    }
    if (train < 1 || train > most_samples) {
        return sw_config_refuse(impl, line, key,
                                "\"auto\" needs a train_batch_size from 1 to %lld, got %lld",
                                (long long)most_samples, (long long)train);
    }
    if (sw_config_largest_micro_batch(config, ranks, micro_batches, train) == 0) {
        return sw_config_refuse(
            impl, line, key,
            "\"auto\": no micro-batch size makes micro-batch x accumulation x ranks equal to "
            "train_batch_size (train_batch_size %lld, gradient_accumulation_steps %lld, ranks "
            "%d, spillway.micro_batches %lld)",
            (long long)train, (long long)impl->batch.accumulation_steps, ranks,
            (long long)(micro_batches > 0 ? micro_batches : config->spillway.micro_batches));
    }
    return SW_OK;
}

static sw_status put(struct sw_config *config, const char *path, struct sw_json *value)
{
    struct config_entry *entry = sw_config_find_entry(config, path);
    SW_TRY_ALLOC(value, "the configuration");
    entry->value = value;
    entry->origin = SW_CONFIG_PLANNED;
    return SW_OK;
}

static struct sw_json *block(const struct sw_config *config)
{
    return sw_config_find_entry(config, micro_batch_key)->value->parent;
}

sw_status sw_config_open_micro_batch(struct sw_config *config)
{
    struct sw_config_impl *impl = config->impl;
    struct sw_json_doc *doc = impl->effective;
    struct config_entry *entry = sw_config_find_entry(config, batch_key);
    SW_TRY(put(config, batch_key, sw_json_put_str(doc, sw_json_root(doc), batch_key, "auto")));
    entry->origin = impl->micro_batch_line > 0 ? SW_CONFIG_FILE : SW_CONFIG_SET;
    entry->line = impl->micro_batch_line;
    config->spillway.micro_batch = SW_MICRO_BATCH_AUTO;
    return SW_OK;
}

/* The number is where every DeepSpeed file has it. */
static sw_status choose_micro_batch(struct sw_config *config, int64_t micro_batch)
{
    struct sw_config_impl *impl = config->impl;
    struct sw_json_doc *doc = impl->effective;
    SW_TRY(put(config, batch_key, sw_json_put_i64(doc, sw_json_root(doc), batch_key, micro_batch)));
    SW_TRY(
        put(config, micro_batch_key, sw_json_put(doc, block(config), "micro_batch", SW_JSON_NULL)));
    config->spillway.micro_batch = SW_MICRO_BATCH_GIVEN;
    impl->batch.micro_batch_size = micro_batch;
    impl->given_batch[1] = true;
    impl->chose_micro_batch = true;
    return SW_OK;
}

static sw_status choose_recompute(struct sw_config *config, struct sw_recompute chosen)
{
    struct sw_json_doc *doc = config->impl->effective;
    const char *word = chosen.every == 0 ? "none" : chosen.every == 1 ? "blocks" : NULL;
    SW_TRY(put(config, recompute_key,
               word ? sw_json_put_str(doc, block(config), "recompute", word)
                    : sw_json_put_i64(doc, block(config), "recompute", chosen.every)));
    if (chosen.blocks > 0) {
        SW_TRY(put(config, recompute_blocks_key,
                   sw_json_put_i64(doc, block(config), "recompute_blocks", chosen.blocks)));
    }
    config->spillway.recompute = chosen;
    config->impl->chose_recompute = true;
    return SW_OK;
}

sw_status sw_config_choose(struct sw_config *config, int64_t micro_batch,
                           struct sw_recompute recompute, const char *from)
{
    struct sw_config_impl *impl = config->impl;
    if (from) {
        impl->chosen_from = sw_arena_strdup(&impl->arena, from);
        SW_TRY_ALLOC(impl->chosen_from, "the configuration");
    }
    if (config->spillway.micro_batch == SW_MICRO_BATCH_AUTO && micro_batch > 0) {
        SW_TRY(choose_micro_batch(config, micro_batch));
    }
    if (config->spillway.recompute.every == SW_CONFIG_AUTO && recompute.every >= 0) {
        SW_TRY(choose_recompute(config, recompute));
    }
    return SW_OK;
}

sw_status sw_config_assume_micro_batch(struct sw_config *config, int ranks)
{
    const bool open = config->spillway.micro_batch == SW_MICRO_BATCH_AUTO;
    if (!open || !config->impl->plans_micro_batch) {
        return SW_OK;
    }
    config->impl->assumes_micro_batch = true;
    return choose_micro_batch(config, sw_config_largest_micro_batch(config, ranks, 0, INT64_MAX));
}

void sw_config_print_chosen(const struct sw_config *config, bool json, struct sw_str *out)
{
    const struct sw_config_impl *impl = config->impl;
    const struct {
        bool chosen;
        const char *name, *path, *value; /* the key that was "auto", and what holds its value now */
    } keys[] = {
        {impl->chose_mesh, "mesh", "spillway.mesh", "spillway.mesh.pipe"},
        {impl->chose_micro_batch, "micro_batch",
         impl->plans_micro_batch ? batch_key : micro_batch_key, batch_key},
        {impl->chose_recompute, "recompute", recompute_key, recompute_key},
        {impl->chose_recompute && config->spillway.recompute.blocks > 0, "recompute_blocks",
         recompute_blocks_key, recompute_blocks_key},
    };
    int n = 0;
    for (size_t i = 0; i < SW_LEN(keys); i++) {
        if (keys[i].chosen) {
            sw_str_puts(out, n++ == 0 ? "" : json ? "," : ", ");
            sw_str_printf(out, json ? "\"%s\":" : "%s ", json ? keys[i].name : keys[i].path);
            const struct sw_json *value = sw_config_value(config, keys[i].value);
            sw_json_write(i == 0 ? value->parent : value, 0, out); /* the mesh is a block */
        }
    }
    if (n > 0 && impl->chosen_from && !json) {
        sw_str_printf(out, ", kept from %s", impl->chosen_from);
    }
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
