// SPDX-License-Identifier: Apache-2.0
// The batch arithmetic: train = micro-batch x accumulation x ranks, with what is missing derived.
// Division rounds down as DeepSpeed's does, and then the product must be exact.
#include "config/private.h"

struct triad {
    const struct sw_config_impl *impl;
    int64_t train, micro, steps;
    int64_t ranks;
    bool has_train, has_micro, has_steps; /* given, or derived by now */
};

static sw_status refuse(const struct triad *t, const char *key, const char *what)
{
    return sw_config_refuse(t->impl, 0, key,
                            "%s (train_batch_size %lld, train_micro_batch_size_per_gpu %lld, "
                            "gradient_accumulation_steps %lld, ranks %lld)",
                            what, (long long)t->train, (long long)t->micro, (long long)t->steps,
                            (long long)t->ranks);
}

static sw_status product(const struct triad *t, int64_t a, int64_t b, int64_t *out)
{
    return sw_mul_i64(a, b, out)
               ? SW_OK
               : refuse(t, "train_batch_size", "the product of the batch keys exceeds 64 bits");
}

static sw_status neither(const struct triad *t)
{
    return sw_config_refuse(t->impl, 0, "train_batch_size",
                            "neither train_batch_size nor train_micro_batch_size_per_gpu is given");
}

/* Whether the values that are known are positive. */
static sw_status check_positive(const struct triad *t)
{
    if (t->has_train && t->train <= 0) {
        return refuse(t, "train_batch_size", "not positive");
    }
    if (t->has_micro && t->micro <= 0) {
        return refuse(t, "train_micro_batch_size_per_gpu", "the micro-batch is not positive");
    }
    if (t->has_steps && t->steps <= 0) {
        return refuse(t, "gradient_accumulation_steps", "the accumulation is not positive");
    }
    return SW_OK;
}

static sw_status derive(struct triad *t)
{
    int64_t all;
    if (t->has_train && t->has_micro && t->has_steps) {
        return SW_OK;
    }
    if (t->has_train && t->has_micro) {
        t->steps = t->train / t->micro / t->ranks;
    } else if (t->has_train && t->has_steps) {
        t->micro = t->train / t->ranks / t->steps;
    } else if (t->has_micro) {
        t->steps = t->has_steps ? t->steps : 1;
        SW_TRY(product(t, t->micro, t->steps, &all));
        SW_TRY(product(t, all, t->ranks, &t->train));
    } else if (t->has_train) {
        t->steps = 1;
        t->micro = t->train / t->ranks;
    } else {
        return neither(t);
    }
    t->has_train = t->has_micro = t->has_steps = true;
    return SW_OK;
}

static sw_status by_ranks(struct triad *t, int64_t *out_k)
{
    int64_t all;
    SW_TRY(check_positive(t)); /* before they divide */
    SW_TRY(derive(t));
    SW_TRY(check_positive(t));
    SW_TRY(product(t, t->steps, t->ranks, out_k));
    SW_TRY(product(t, *out_k, t->micro, &all));
    return all == t->train
               ? SW_OK
               : refuse(t, "train_batch_size", "is not micro-batch x accumulation x ranks");
}

/* K is fixed: ranks only decide how many micro-steps they need for it. */
static sw_status by_count(struct triad *t, int64_t k)
{
    int64_t all;
    SW_TRY(check_positive(t));
    if (t->has_micro) {
        SW_TRY(product(t, t->micro, k, &all));
        t->train = t->has_train ? t->train : all;
    } else if (t->has_train) {
        t->micro = t->train / k;
        SW_TRY(product(t, t->micro, k, &all));
    } else {
        return neither(t);
    }
    t->steps = sw_ceil_div(k, t->ranks);
    t->has_train = t->has_micro = t->has_steps = true;
    SW_TRY(check_positive(t));
    return all == t->train
               ? SW_OK
               : sw_config_refuse(t->impl, 0, "train_batch_size",
                                  "%lld is not micro-batch size x micro-batches, %lld x %lld",
                                  (long long)t->train, (long long)t->micro, (long long)k);
}

static bool is_on(const struct sw_config *config, const char *path)
{
    const struct sw_json *node = sw_config_value(config, path);
    return node && node->type == SW_JSON_BOOL && node->boolean;
}

/* The `elasticity` block decides, for the ranks at hand. What it decides must not contradict the
 * batch keys, for whoever wrote them means them. */
static sw_status by_elasticity(const struct sw_config *config, struct triad *t, int64_t *k)
{
    struct sw_config_elastic found;
    SW_TRY(sw_config_elastic(config, t->ranks, &found));
    const int64_t train = found.train_batch_size, micro = found.micro_batch_size;
    sw_config_elastic_fini(&found);
    if (!is_on(config, "elasticity.ignore_non_elastic_batch_info")) {
        if (t->has_micro && t->micro != micro) {
            return sw_config_refuse(
                t->impl, 0, "train_micro_batch_size_per_gpu",
                "%lld contradicts elasticity, which computes %lld on %lld ranks",
                (long long)t->micro, (long long)micro, (long long)t->ranks);
        }
        if (t->has_train && t->train != train) {
            return sw_config_refuse(t->impl, 0, "train_batch_size",
                                    "%lld contradicts elasticity, which computes %lld",
                                    (long long)t->train, (long long)train);
        }
        const int64_t steps = sw_ceil_div(train / micro, t->ranks);
        if (t->has_steps && t->steps != steps) {
            return sw_config_refuse(
                t->impl, 0, "gradient_accumulation_steps",
                "%lld contradicts elasticity, which computes %lld on %lld ranks",
                (long long)t->steps, (long long)steps, (long long)t->ranks);
        }
    }
    if (*k > 0 && *k != train / micro) {
        return sw_config_refuse(
            t->impl, 0, "elasticity",
            "on %lld ranks it needs %lld micro-batches of %lld samples per step, but the step "
            "has %lld",
            (long long)t->ranks, (long long)(train / micro), (long long)micro, (long long)*k);
    }
    t->train = train;
    t->micro = micro;
    *k = train / micro;
    t->steps = sw_ceil_div(*k, t->ranks);
    return SW_OK;
}

static sw_status put(struct sw_config *config, const char *path, bool given, int64_t value)
{
    struct config_entry *entry = sw_config_find_entry(config, path);
    struct sw_json *node =
        sw_json_put_i64(config->impl->effective, entry->value->parent, entry->field->key, value);
    SW_TRY_ALLOC(node, "the configuration");
    entry->value = node;
    if (!given) {
        entry->origin = SW_CONFIG_DERIVED;
    }
    return SW_OK;
}

sw_status sw_config_resolve(struct sw_config *config, int ranks, int64_t micro_batches)
{
    struct sw_config_impl *impl = config->impl;
    if (ranks < 1 || micro_batches < 0) {
        return SW_FAIL(SW_E_ARG,
                       "wanted positive numbers of ranks and micro-batches, got %d and %lld", ranks,
                       (long long)micro_batches);
    }
    const bool *has = impl->given_batch;
    struct triad t = {impl,
                      impl->batch.train_batch_size,
                      impl->batch.micro_batch_size,
                      impl->batch.accumulation_steps,
                      ranks,
                      has[0],
                      has[1],
                      has[2]};
    int64_t k = micro_batches ? micro_batches : config->spillway.micro_batches;
    if (config->spillway.micro_batch == SW_MICRO_BATCH_AUTO) {
        SW_TRY(sw_config_check_auto(config, ranks, micro_batches));
        config->batch = (struct sw_batch_config){.train_batch_size = t.train, .ranks = ranks};
        return SW_OK;
    }
    if (is_on(config, "elasticity.enabled")) {
        SW_TRY(by_elasticity(config, &t, &k));
    } else if (k > 0) {
        SW_TRY(by_count(&t, k));
    } else {
        SW_TRY(by_ranks(&t, &k));
    }
    SW_TRY(put(config, "train_batch_size", has[0], t.train));
    SW_TRY(put(config, "train_micro_batch_size_per_gpu", has[1], t.micro));
    SW_TRY(put(config, "gradient_accumulation_steps",
               has[2] && t.steps == impl->batch.accumulation_steps, t.steps));
    config->batch = (struct sw_batch_config){t.train, t.micro, t.steps, k, ranks};
    return SW_OK;
}
