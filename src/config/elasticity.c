// SPDX-License-Identifier: Apache-2.0
// DeepSpeed's `elasticity` block, versions 0.1 and 0.2: one global batch that as many numbers of
// ranks as possible divide. A candidate is a micro-batch, or the least common multiple of all of
// them, times the largest highly composite number that keeps it within the bound; the candidate
// with most divisors wins. Pure arithmetic: training itself keeps K fixed and asks nothing of this
// file.
#include "config/private.h"

#include <limits.h>
#include <math.h>
#include <stdio.h>

#include "spillway/config.h"

enum { MOST_MICRO_BATCHES = 64 };
/* Bounds the search for divisors, which goes to the square root of the batch. */
static const int64_t largest_batch = INT64_C(1) << 40;

/* Numbers with more divisors than every smaller one, as DeepSpeed lists them. */
static const int64_t highly_composite[] = {
    1,      2,      4,      6,      12,     24,     36,     48,    60,    120,
    180,    240,    360,    720,    840,    1260,   1680,   2520,  5040,  7560,
    10080,  15120,  20160,  25200,  27720,  45360,  50400,  55440, 83160, 110880,
    166320, 221760, 277200, 332640, 498960, 554400, 665280, 720720};

/* The block as it was given, with DeepSpeed's defaults for what may be left out. */
struct elasticity {
    const struct sw_config *config;
    int64_t micro[MOST_MICRO_BATCHES];
    int n_micro;
    int64_t max_batch, min_ranks, max_ranks;
    int64_t ranks_per_node, model_parallel;
    double version;
    bool prefer_larger;
};

/* ---- reading the block ---- */

static sw_status refuse(const struct elasticity *e, const char *key, const char *text)
{
    char path[64];
    snprintf(path, sizeof path, "elasticity%s%s", *key ? "." : "", key);
    const struct config_entry *entry = sw_config_find_entry(e->config, path);
    return sw_config_refuse(e->config->impl, entry ? entry->line : 0, path, "%s", text);
}

static const struct sw_json *member(const struct sw_config *config, const char *key)
{
    char path[64];
    snprintf(path, sizeof path, "elasticity.%s", key);
    /* the algorithm has defaults of its own, and two keys without any */
    const struct config_entry *entry = sw_config_find_entry(config, path);
    return entry && entry->origin != SW_CONFIG_DEFAULT ? entry->value : NULL;
}

/* Types and ranges of single values were checked when the file was read. */
static int64_t integer(const struct sw_config *config, const char *key, int64_t fallback)
{
    const struct sw_json *node = member(config, key);
    return node && node->type == SW_JSON_INT ? node->integer : fallback;
}

static bool boolean(const struct sw_config *config, const char *key, bool fallback)
{
    const struct sw_json *node = member(config, key);
    return node && node->type == SW_JSON_BOOL ? node->boolean : fallback;
}

static double number(const struct sw_config *config, const char *key, double fallback)
{
    const struct sw_json *node = member(config, key);
    if (!node || (node->type != SW_JSON_INT && node->type != SW_JSON_FLOAT)) {
        return fallback;
    }
    return node->type == SW_JSON_INT ? (double)node->integer : node->number;
}

static sw_status read_micro_batches(struct elasticity *e)
{
    const struct sw_json *list = member(e->config, "micro_batch_sizes");
    if (!list) {
        return refuse(e, "micro_batch_sizes", "is required");
    }
    if (list->type != SW_JSON_ARRAY) {
        return refuse(e, "micro_batch_sizes", "is not a list");
    }
    if (list->n_children < 1 || list->n_children > MOST_MICRO_BATCHES) {
        return refuse(e, "micro_batch_sizes", "must have 1 to 64 numbers");
    }
    for (const struct sw_json *node = list->first; node; node = node->next) {
        if (node->type != SW_JSON_INT) {
            return refuse(e, "micro_batch_sizes", "has an element that is not an integer");
        }
        if (node->integer < 1) {
            return refuse(e, "micro_batch_sizes", "has an element below 1");
        }
        e->micro[e->n_micro++] = node->integer;
    }
    return SW_OK;
}

static sw_status read_block(const struct sw_config *config, struct elasticity *e)
{
    *e = (struct elasticity){
        .config = config,
        .max_batch = integer(config, "max_train_batch_size", 0),
        .min_ranks = integer(config, "min_gpus", 1),
        .max_ranks = integer(config, "max_gpus", 10000),
        .ranks_per_node = integer(config, "num_gpus_per_node", 1),
        .model_parallel = integer(config, "model_parallel_size", 1),
        .version = number(config, "version", 0.2),
        .prefer_larger = boolean(config, "prefer_larger_batch", true),
    };
    if (!boolean(config, "enabled", false)) {
        return refuse(e, "enabled", "is missing or not enabled");
    }
    if (!e->max_batch) {
        return refuse(e, "max_train_batch_size", "is required");
    }
    SW_TRY(read_micro_batches(e));
    if (e->min_ranks > e->max_ranks) {
        return refuse(e, "min_gpus", "is larger than max_gpus");
    }
    if (e->version != 0.1 && e->version != 0.2) {
        return refuse(e, "version", "is not 0.1 or 0.2");
    }
    if (e->model_parallel > 1 && e->version != 0.2) {
        return refuse(e, "model_parallel_size", "needs version 0.2");
    }
    return SW_OK;
}

/* ---- version 0.1: the batch with most divisors ---- */

static sw_status least_common_multiple(const struct elasticity *e, int64_t *out)
{
    int64_t lcm = 1;
    for (int i = 0; i < e->n_micro; i++) {
        const int64_t factor = lcm / sw_common_divisor(lcm, e->micro[i]);
        if (!sw_mul_i64(factor, e->micro[i], &lcm) || lcm > largest_batch) {
            return refuse(e, "micro_batch_sizes", "their least common multiple is too large");
        }
    }
    *out = lcm;
    return SW_OK;
}

/* The largest multiple of base by a highly composite number within the bound; base where none
 * is. */
static int64_t candidate(int64_t base, int64_t max_batch)
{
    int64_t factor = 1;
    for (size_t i = 0; i < SW_LEN(highly_composite); i++) {
        factor = highly_composite[i] <= max_batch / base ? highly_composite[i] : factor;
    }
    return factor * base;
}

/* Does some micro-batch, any number of times on each of n ranks, make the batch? */
static bool divides(const struct elasticity *e, int64_t batch, int64_t n)
{
    for (int i = 0; i < e->n_micro; i++) {
        if (batch % e->micro[i] == 0 && batch / e->micro[i] % n == 0) {
            return true;
        }
    }
    return false;
}

struct range {
    int64_t low, high;
};

/* How many numbers of ranks within the range divide the batch; into out, ascending, unless NULL. */
static int count_ranks(const struct elasticity *e, int64_t batch, struct range range, int64_t *out)
{
    int n = 0;
    int64_t root = 1;
    while (root <= batch / root) {
        root++;
    }
    root--;
    /* Divisors up to the root ascend, and their partners ascend while they descend. */
    for (int64_t i = 1; i <= root; i++) {
        if (batch % i == 0 && i >= range.low && i <= range.high && divides(e, batch, i)) {
            n += out ? (out[n] = i, 1) : 1;
        }
    }
    for (int64_t i = root; i >= 1; i--) {
        const int64_t partner = batch / i;
        if (batch % i == 0 && partner != i && partner >= range.low && partner <= range.high &&
            divides(e, batch, partner)) {
            n += out ? (out[n] = partner, 1) : 1;
        }
    }
    return n;
}

static sw_status most_divisible(const struct elasticity *e, int64_t max_batch, struct range range,
                                struct sw_config_elastic *out)
{
    int64_t bases[MOST_MICRO_BATCHES + 1], best = 0;
    int n_best = 0;
    for (int i = 0; i < e->n_micro; i++) {
        bases[i] = e->micro[i];
        if (e->micro[i] > max_batch) {
            return refuse(e, "micro_batch_sizes",
                          "a micro-batch is larger than max_train_batch_size (of a node, in 0.2)");
        }
    }
    SW_TRY(least_common_multiple(e, &bases[e->n_micro]));
    for (int i = 0; i <= e->n_micro; i++) {
        const int64_t batch = candidate(bases[i], max_batch);
        if (batch > largest_batch) {
            return refuse(e, "max_train_batch_size", "is too large");
        }
        const int n = count_ranks(e, batch, range, NULL);
        if (n > n_best || (n && n == n_best && (e->prefer_larger ? batch > best : batch < best))) {
            best = batch;
            n_best = n;
        }
    }
    if (n_best == 0) {
        return refuse(e, "max_gpus",
                      "no number of ranks from min_gpus to max_gpus divides a batch");
    }
    int64_t *ranks = sw_alloc("elasticity", (size_t)n_best * sizeof *ranks);
    SW_TRY_ALLOC(ranks, "numbers of ranks");
    count_ranks(e, best, range, ranks);
    *out = (struct sw_config_elastic){.train_batch_size = best, .ranks = ranks, .n_ranks = n_best};
    return SW_OK;
}

static sw_status version_1(const struct elasticity *e, struct sw_config_elastic *out)
{
    return most_divisible(e, e->max_batch, (struct range){e->min_ranks, e->max_ranks}, out);
}

/* ---- version 0.2: in units of nodes, and a way out for a count that is not among them ---- */

static bool has_ranks(const struct sw_config_elastic *elastic, int64_t n)
{
    for (int i = 0; i < elastic->n_ranks; i++) {
        if (elastic->ranks[i] == n) {
            return true;
        }
    }
    return false;
}

/* The largest (or smallest) batch that the ranks at hand can make, for these ranks alone. DeepSpeed
 * computes it in double precision: nodes need not be whole. */
static sw_status only_these(const struct elasticity *e, int64_t world_size, double per_node,
                            struct sw_config_elastic *out)
{
    const double ranks = (double)world_size / (double)e->ranks_per_node * per_node;
    double best = 0;
    for (int i = 0; i < e->n_micro; i++) {
        const double least = (double)e->micro[i] * ranks;
        const double batch = floor((double)e->max_batch / least) * least;
        if (i == 0 || (e->prefer_larger ? batch > best : batch < best)) {
            best = batch;
        }
    }
    if (best < 1) {
        return refuse(e, "max_train_batch_size", "is too small for that many ranks");
    }
    out->train_batch_size = (int64_t)best;
    out->ranks[0] = (int64_t)ranks;
    out->n_ranks = 1;
    return SW_OK;
}

static sw_status version_2(const struct elasticity *e, int64_t world_size,
                           struct sw_config_elastic *out)
{
    if (world_size == 0) {
        return refuse(e, "version", "version 0.2 needs the number of ranks");
    }
    if (e->ranks_per_node % e->model_parallel != 0) {
        return refuse(e, "num_gpus_per_node", "is not divisible by model_parallel_size");
    }
    const int64_t per_node = e->ranks_per_node / e->model_parallel;
    const struct range nodes = {sw_max_i64(e->min_ranks / e->ranks_per_node, 1),
                                e->max_ranks / e->ranks_per_node};
    const int64_t max_batch = e->max_batch / per_node;
    SW_TRY(most_divisible(e, max_batch,
                          (struct range){nodes.low, nodes.high ? nodes.high : max_batch}, out));
    for (int i = 0; i < out->n_ranks; i++) {
        out->ranks[i] *= per_node;
    }
    out->train_batch_size *= per_node;
    if (has_ranks(out, world_size / e->model_parallel)) {
        return SW_OK;
    }
    return only_these(e, world_size, (double)per_node, out);
}

/* The largest micro-batch that divides what one rank does. */
static sw_status choose_micro_batch(const struct elasticity *e, int64_t world_size,
                                    struct sw_config_elastic *out)
{
    if (!has_ranks(out, world_size)) {
        return refuse(
            e, "",
            "the number of ranks does not divide the batch; --elastic 0 lists the valid ones");
    }
    for (int i = 0; i < e->n_micro; i++) {
        if (out->train_batch_size / world_size % e->micro[i] == 0) {
            out->micro_batch_size = sw_max_i64(out->micro_batch_size, e->micro[i]);
        }
    }
    return out->micro_batch_size
               ? SW_OK
               : refuse(e, "micro_batch_sizes", "none of them divides a rank's share of the batch");
}

/* ---- the public functions ---- */

sw_status sw_config_elastic(const struct sw_config *config, int64_t world_size,
                            struct sw_config_elastic *out)
{
    struct elasticity e;
    struct sw_config_elastic found = {0};
    sw_status st;
    if (world_size < 0) {
        return SW_FAIL(SW_E_ARG, "elasticity: wanted at least 0 ranks, got %lld",
                       (long long)world_size);
    }
    SW_TRY(read_block(config, &e));
    SW_TRY_OR(free_ranks,
              e.version == 0.1 ? version_1(&e, &found) : version_2(&e, world_size, &found));
    if (world_size > 0) {
        SW_TRY_OR(free_ranks, choose_micro_batch(&e, world_size, &found));
    }
    *out = found;
    return SW_OK;
free_ranks:
    sw_config_elastic_fini(&found);
    return st;
}

void sw_config_elastic_fini(struct sw_config_elastic *elastic)
{
    sw_free(elastic->ranks);
    *elastic = (struct sw_config_elastic){0};
}

static void write_elastic(const struct sw_config_elastic *elastic, int64_t world_size, bool json,
                          struct sw_str *out)
{
    const long long batch = elastic->train_batch_size, micro = elastic->micro_batch_size;
    sw_str_printf(out, json ? "{\"train_batch_size\": %lld" : "train_batch_size %lld\n", batch);
    if (world_size > 0) {
        sw_str_printf(out,
                      json ? ", \"ranks\": %lld, \"micro_batch\": %lld, \"accumulation\": %lld"
                           : "%lld ranks: micro-batch %lld, %lld accumulation steps\n",
                      (long long)world_size, micro, batch / world_size / micro);
    }
    sw_str_puts(out, json ? ", \"valid_ranks\": [" : "valid numbers of ranks:");
    for (int i = 0; i < elastic->n_ranks; i++) {
        sw_str_printf(out, "%s%lld", !json ? " " : i ? ", " : "", (long long)elastic->ranks[i]);
    }
    sw_str_puts(out, json ? "]}\n" : "\n");
}

sw_status sw_config_elastic_text(const struct sw_config_options *options, char **out_text)
{
    struct sw_config *config;
    struct sw_config_elastic elastic;
    struct sw_str text = {0};
    SW_TRY_OPTIONS(options);
    SW_TRY(sw_config_load(options->path, options->sets, options->n_sets, &config));
    const sw_status st = sw_config_elastic(config, options->elastic_ranks, &elastic);
    sw_config_close(config);
    SW_TRY(st);
    write_elastic(&elastic, options->elastic_ranks, options->json, &text);
    sw_config_elastic_fini(&elastic);
    if (text.failed) {
        sw_str_fini(&text);
        return SW_FAIL(SW_E_NOMEM, "out of host memory for the text");
    }
    *out_text = text.ptr;
    return SW_OK;
}
