// SPDX-License-Identifier: Apache-2.0
// What `plan --search` varies: the values of each family, which of them contradict each other, the
// edits of the configuration that make a plan of them, and its verdict.
#include "look/choices.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "json/json.h"

enum { CHUNKS_OF = 100 }; /* a value of the schedule: its number, and its chunks times this */

/* By the planner's measure of its work: about a minute of a processor. */
static const int64_t MOST_INSTRS = INT64_C(96) << 18;

/* ---- values ---- */

static const struct {
    const char *name, *key;
    int64_t values[CHOICE_VALUES];
    int n;
} families[CHOICE_COUNT] = {
    [CHOICE_MESH] = {"mesh", NULL, {0}, 0},
    [CHOICE_STAGE] = {"stage", "zero_optimization.stage", {0, 1, 2, 3}, 4},
    [CHOICE_STATES] = {"optimizer states",
                       "zero_optimization.offload_optimizer.device",
                       {SW_TIER_DEVICE, SW_TIER_HOST, SW_TIER_DISK},
                       SW_TIER_COUNT},
    [CHOICE_PARAMETERS] = {"parameters",
                           "zero_optimization.offload_param.device",
                           {SW_TIER_DEVICE, SW_TIER_HOST, SW_TIER_DISK},
                           SW_TIER_COUNT},
    [CHOICE_CHECKPOINTS] = {"kept activations",
                            "activation_checkpointing.cpu_checkpointing",
                            {SW_TIER_DEVICE, SW_TIER_HOST},
                            2},
    [CHOICE_RECOMPUTE] = {"recompute", "spillway.recompute", {0, 1, 2, 4}, 4},
    [CHOICE_MICRO_BATCH] = {"micro-batch", NULL, {1, 2, 4, 8, 16, 32}, 6},
    [CHOICE_SCHEDULE] = {"schedule",
                         "spillway.schedule",
                         {SW_STEP_HORIZONTAL, SW_STEP_VERTICAL, SW_STEP_1F1B, SW_STEP_ZERO_BUBBLE,
                          SW_STEP_GPIPE, SW_STEP_INTERLEAVED + 2 * CHUNKS_OF,
                          SW_STEP_INTERLEAVED + 4 * CHUNKS_OF, SW_STEP_INTERLEAVED + 8 * CHUNKS_OF},
                         8},
    [CHOICE_TILES] = {"tiles", "spillway.tile_bytes", {0, 64 << 20, 512 << 20}, 3},
};

const char *sw_choice_name(enum choice_family family)
{
    return families[family].name;
}

static int64_t value_of(const struct choices *c, const struct sw_choice *choice, int family)
{
    return c->values[family][choice->at[family]];
}

static const struct sw_mesh *mesh_of(const struct choices *c, const struct sw_choice *choice)
{
    return &c->meshes[choice->at[CHOICE_MESH]];
}

/* Ranks with different micro-batches. */
static int data_of(const struct choices *c, const struct sw_choice *choice)
{
    return sw_mesh_size(mesh_of(c, choice), SW_BATCH_AXES);
}

static int pipe_of(const struct choices *c, const struct sw_choice *choice)
{
    return sw_mesh_size(mesh_of(c, choice), 1U << SW_AXIS_PIPE);
}

/* ---- values that contradict each other ---- */

/* Gives a family a value. False: the configuration has another one. */
static bool set(const struct choices *c, struct sw_choice *choice, int family, int64_t value)
{
    for (int i = 0; i < c->space.n_values[family]; i++) {
        if (c->values[family][i] == value) {
            choice->at[family] = i;
            return true;
        }
    }
    return false;
}

static bool adapt_tiers(const struct choices *c, int family, struct sw_choice *choice)
{
    const bool is_stage = family == CHOICE_STAGE;
    bool good = true;
    if (value_of(c, choice, CHOICE_PARAMETERS) != SW_TIER_DEVICE &&
        value_of(c, choice, CHOICE_STAGE) < 3) {
        good = is_stage ? set(c, choice, CHOICE_PARAMETERS, SW_TIER_DEVICE)
                        : set(c, choice, CHOICE_STAGE, 3);
    }
    if (value_of(c, choice, CHOICE_STATES) != SW_TIER_DEVICE &&
        value_of(c, choice, CHOICE_STAGE) < 1) {
        good = good && (is_stage ? set(c, choice, CHOICE_STATES, SW_TIER_DEVICE)
                                 : set(c, choice, CHOICE_STAGE, 1));
    }
    if (value_of(c, choice, CHOICE_CHECKPOINTS) != SW_TIER_DEVICE &&
        value_of(c, choice, CHOICE_RECOMPUTE) == 0) {
        good =
            good && (family == CHOICE_RECOMPUTE ? set(c, choice, CHOICE_CHECKPOINTS, SW_TIER_DEVICE)
                                                : set(c, choice, CHOICE_RECOMPUTE, 1));
    }
    if (value_of(c, choice, CHOICE_TILES) > 0 &&
        value_of(c, choice, CHOICE_PARAMETERS) == SW_TIER_DEVICE) {
        good = good && family != CHOICE_TILES && set(c, choice, CHOICE_TILES, 0);
    }
    return good;
}

/* The micro-batch divides the samples of a replica; a smaller one is taken if need be. */
static bool adapt_batch(const struct choices *c, int family, struct sw_choice *choice)
{
    const int64_t data = data_of(c, choice);
    if (c->samples % data != 0) {
        return false;
    }
    while (c->samples / data % value_of(c, choice, CHOICE_MICRO_BATCH) != 0) {
        if (family == CHOICE_MICRO_BATCH || choice->at[CHOICE_MICRO_BATCH] == 0) {
            return false;
        }
        choice->at[CHOICE_MICRO_BATCH]--;
    }
    return true;
}

static bool adapt_schedule(const struct choices *c, int family, struct sw_choice *choice)
{
    const int64_t value = value_of(c, choice, CHOICE_SCHEDULE), chunks = value / CHUNKS_OF;
    const int64_t pipe = pipe_of(c, choice);
    const int64_t rounds =
        c->samples / data_of(c, choice) / value_of(c, choice, CHOICE_MICRO_BATCH);
    const enum sw_step_schedule schedule = (enum sw_step_schedule)(value % CHUNKS_OF);
    const bool is_possible = sw_schedule_is_of_pipeline(schedule) == (pipe > 1) &&
                             (chunks == 0 || rounds % pipe == 0) &&
                             (schedule != SW_STEP_VERTICAL || rounds > 1);
    return is_possible ||
           (family != CHOICE_SCHEDULE &&
            set(c, choice, CHOICE_SCHEDULE, pipe > 1 ? SW_STEP_1F1B : SW_STEP_HORIZONTAL));
}

static bool adapt(void *ctx, int family, struct sw_choice *choice)
{
    const struct choices *c = ctx;
    return adapt_tiers(c, family, choice) && adapt_batch(c, family, choice) &&
           (c->is_kept[CHOICE_SCHEDULE] || adapt_schedule(c, family, choice));
}

/* ---- words and edits ---- */

static void print_schedule(int64_t value, struct sw_str *out)
{
    const int64_t chunks = value / CHUNKS_OF;
    sw_str_puts(out, sw_schedule_name((enum sw_step_schedule)(value % CHUNKS_OF)));
    if (chunks > 0) {
        sw_str_printf(out, " in %lld chunks", (long long)chunks);
    }
}

void sw_choice_print(const struct choices *c, enum choice_family family, int value,
                     struct sw_str *out)
{
    char words[SW_MESH_WORDS], bytes[32];
    if (family == CHOICE_MESH) { /* there may be more meshes than values of another family */
        sw_str_puts(out, sw_mesh_words(&c->meshes[value], words));
        return;
    }
    const int64_t v = c->values[family][value];
    switch (family) {
    case CHOICE_STATES:
    case CHOICE_PARAMETERS:
    case CHOICE_CHECKPOINTS:
        sw_str_puts(out, sw_tier_name((enum sw_tier)v));
        return;
    case CHOICE_SCHEDULE:
        print_schedule(v, out);
        return;
    case CHOICE_RECOMPUTE:
        sw_str_printf(out,
                      v == 0   ? "none"
                      : v == 1 ? "blocks"
                               : "groups of %lld blocks",
                      (long long)v);
        return;
    case CHOICE_TILES:
        sw_str_puts(out, v == 0 ? "as the budget needs"
                                : sw_format_bytes(bytes, sizeof bytes, (double)v));
        return;
    default:
        sw_str_printf(out, "%lld", (long long)v);
    }
}

static void put_tier(const char *key, int64_t tier, char *out)
{
    snprintf(out, CHOICE_EDIT, "zero_optimization.%s={\"device\":\"%s\"%s}", key,
             tier == SW_TIER_DEVICE ? "none"
             : tier == SW_TIER_HOST ? "cpu"
                                    : "nvme",
             tier == SW_TIER_DISK ? ",\"nvme_path\":\"/nvme\"" : "");
}

static void put_value(int family, int64_t v, char *out)
{
    switch (family) {
    case CHOICE_STATES:
        put_tier("offload_optimizer", v, out);
        return;
    case CHOICE_PARAMETERS:
        put_tier("offload_param", v, out);
        return;
    case CHOICE_CHECKPOINTS:
        snprintf(out, CHOICE_EDIT, "%s=%s", families[family].key,
                 v == SW_TIER_HOST ? "true" : "false");
        return;
    case CHOICE_RECOMPUTE:
        snprintf(out, CHOICE_EDIT, v > 0 ? "%s=%lld" : "%s=none", families[family].key,
                 (long long)v);
        return;
    case CHOICE_SCHEDULE:
        snprintf(out, CHOICE_EDIT, "%s=%s", families[family].key,
                 sw_schedule_name((enum sw_step_schedule)(v % CHUNKS_OF)));
        return;
    default:
        snprintf(out, CHOICE_EDIT, "%s=%lld", families[family].key, (long long)v);
    }
}

int sw_choice_edits(const struct choices *c, const struct sw_choice *choice,
                    char edits[CHOICE_EDITS][CHOICE_EDIT])
{
    const struct sw_mesh *mesh = mesh_of(c, choice);
    const int64_t each = value_of(c, choice, CHOICE_MICRO_BATCH);
    const int64_t chunks = value_of(c, choice, CHOICE_SCHEDULE) / CHUNKS_OF;
    int n = 0;
    if (!c->is_kept[CHOICE_MESH]) {
        const int expert = sw_mesh_size(mesh, 1U << SW_AXIS_EXPERT);
        char more[32] = "";
        if (expert > 1) {
            snprintf(more, sizeof more, ",\"expert\":%d", expert);
        }
        snprintf(edits[n++], CHOICE_EDIT,
                 "spillway.mesh={\"pipe\":%d,\"tensor\":%d,\"context\":%d%s}",
                 sw_mesh_size(mesh, 1U << SW_AXIS_PIPE), sw_mesh_size(mesh, 1U << SW_AXIS_TENSOR),
                 sw_mesh_size(mesh, 1U << SW_AXIS_CONTEXT), more);
    }
    snprintf(edits[n++], CHOICE_EDIT, "train_batch_size=%lld", (long long)c->samples);
    snprintf(edits[n++], CHOICE_EDIT, "train_micro_batch_size_per_gpu=%lld", (long long)each);
    snprintf(edits[n++], CHOICE_EDIT, "gradient_accumulation_steps=%lld",
             (long long)(c->samples / data_of(c, choice) / each));
    for (int f = 0; f < CHOICE_COUNT; f++) {
        if (families[f].key && !c->is_kept[f]) {
            put_value(f, value_of(c, choice, f), edits[n++]);
        }
    }
    if (chunks > 0 && !c->is_kept[CHOICE_SCHEDULE]) {
        snprintf(edits[n++], CHOICE_EDIT, "spillway.chunks=%lld", (long long)chunks);
    }
    return n;
}

/* ---- a verdict ---- */

static sw_status walk(const struct choices *c, const struct sw_lineup *lineup,
                      struct sw_choice_try *t)
{
    const struct sw_cost_mesh mesh = {.cluster = c->cluster, .ranks = c->ranks};
    struct sw_clock_report clock;
    for (int s = 0; s < lineup->n; s++) {
        const struct sw_engine_facts f = sw_engine_facts(lineup->stages[s].engine);
        t->n_instrs += sw_plan_count_ops(f.plan) +
                       (int64_t)f.plan->programs[0].n_instrs * sw_max_i64(1, f.rounds) / 4;
    }
    SW_TRY(sw_look_cluster_step(lineup, &mesh, &clock, &t->flops));
    t->seconds = clock.seconds;
    t->bound = clock.bound;
    return SW_OK;
}

sw_status sw_choice_open(const struct choices *c, const struct sw_choice *choice,
                         struct sw_plan_refusal *refusal, struct sw_lineup *out)
{
    struct sw_engine_options o = c->options;
    char edits[CHOICE_EDITS][CHOICE_EDIT];
    const char *more[CHOICE_EDITS], **sets = NULL;
    const int n = sw_choice_edits(c, choice, edits);
    for (int i = 0; i < n; i++) {
        more[i] = edits[i];
    }
    SW_TRY(sw_engine_join_sets(&o.config, more, n, &sets));
    o.config.sets = sets;
    o.config.n_sets += n;
    const sw_status st = sw_lineup_try(&o, c->ranks, refusal, out);
    sw_free(sets);
    return st;
}

static sw_status judge(void *ctx, struct sw_choice_try *t)
{
    const struct choices *c = ctx;
    struct sw_plan_refusal refusal = {.missing = 0};
    struct sw_lineup lineup;
    sw_status st = sw_choice_open(c, &t->choice, &refusal, &lineup);
    if (st >= 0) {
        st = walk(c, &lineup, t);
        sw_lineup_close(&lineup);
    } else if (st == SW_E_NOMEM && refusal.missing > 0) {
        t->result = SW_MESH_MISSES;
        t->missing = refusal.missing;
        t->tier = refusal.tier;
        t->n_instrs = refusal.n_instrs;
        st = SW_OK;
    } else if (st == SW_E_CONFIG || st == SW_E_UNSUP || st == SW_E_ARG) {
        t->result = SW_MESH_REFUSED;
        snprintf(t->refused, sizeof t->refused, "%.*s", (int)strcspn(sw_error_message(), ";\n"),
                 sw_error_message());
        st = SW_OK;
    }
    return st;
}

/* ---- the space ---- */

static bool is_given(const struct sw_config *config, const char *key)
{
    const enum sw_config_origin origin = sw_config_origin_of(config, key);
    return origin == SW_CONFIG_FILE || origin == SW_CONFIG_SET;
}

/* The configuration's value of a family. */
static int64_t configured(const struct sw_config *config, int family)
{
    const struct sw_zero_config *zero = &config->zero;
    switch (family) {
    case CHOICE_STAGE:
        return zero->stage;
    case CHOICE_STATES:
        return sw_tier_of((enum sw_offload_device)zero->offload_optimizer.device);
    case CHOICE_PARAMETERS:
        return sw_tier_of((enum sw_offload_device)zero->offload_param.device);
    case CHOICE_CHECKPOINTS:
        return config->activation.cpu_checkpointing ? SW_TIER_HOST : SW_TIER_DEVICE;
    case CHOICE_RECOMPUTE:
        return config->spillway.recompute.every;
    case CHOICE_SCHEDULE:
        return config->spillway.schedule +
               (config->parallel.chunks > 1 ? config->parallel.chunks * CHUNKS_OF : 0);
    default:
        return config->spillway.tile_bytes;
    }
}

static void take_families(const struct sw_config *config, struct choices *c)
{
    const int tiers = c->cluster->n_disks > 0 ? SW_TIER_COUNT : SW_TIER_DISK;
    for (int f = 0; f < CHOICE_COUNT; f++) {
        c->is_kept[f] = families[f].key && is_given(config, families[f].key);
        const int most = f == CHOICE_STATES || f == CHOICE_PARAMETERS ? tiers : families[f].n;
        c->space.n_values[f] = c->is_kept[f] ? 1 : most;
        memcpy(c->values[f], families[f].values, sizeof c->values[f]);
        if (c->is_kept[f]) {
            c->values[f][0] = configured(config, f);
        }
    }
}

/* Ranks that share sums are on one node. Meshes without the context axis come first. The expert
 * axis is that of the configuration. */
static int list_meshes(const struct choices *c, const struct sw_parallel_config *p,
                       struct sw_mesh *out)
{
    const int64_t node = (int64_t)c->cluster->node.devices.value;
    int n = 0;
    for (int64_t context = 1; context <= node; context++) {
        for (int64_t tensor = 1; tensor * context <= node; tensor++) {
            const int64_t whole = tensor * context * p->expert;
            for (int64_t pipe = 1; pipe <= c->ranks / whole; pipe++) {
                const int64_t data = c->ranks / (pipe * whole);
                const bool is_asked =
                    !c->is_kept[CHOICE_MESH] ||
                    (p->pipe == pipe && p->tensor == tensor && p->context == context);
                if (c->ranks % (pipe * whole) != 0 || !is_asked ||
                    c->samples % (data * p->expert) != 0) {
                    continue;
                }
                if (out) {
                    out[n] = (struct sw_mesh){.size = {[SW_AXIS_PIPE] = (int)pipe,
                                                       [SW_AXIS_DATA] = (int)data,
                                                       [SW_AXIS_EXPERT] = (int)p->expert,
                                                       [SW_AXIS_CONTEXT] = (int)context,
                                                       [SW_AXIS_TENSOR] = (int)tensor}};
                }
                n++;
            }
        }
    }
    return n;
}

/* The batch of the configuration, on all ranks that its own mesh leaves to the data axis. A given
 * one needs no ranks: each mesh must divide it. */
static sw_status take_batch(struct sw_config *config, struct choices *c)
{
    const struct sw_parallel_config *p = &config->parallel;
    const struct sw_json *given = sw_config_value(config, "train_batch_size");
    const double cut =
        c->is_kept[CHOICE_MESH] ? (double)p->pipe * (double)p->tensor * (double)p->context : 1;
    if (fmod(c->ranks, cut * (double)p->expert) != 0) {
        char why[96];
        snprintf(why, sizeof why,
                 "pipe x expert x tensor x context is %.0f, which does not divide %d ranks",
                 cut * (double)p->expert, c->ranks);
        return sw_config_refuse_mesh(config, why);
    }
    if (is_given(config, "train_batch_size") && given->type == SW_JSON_INT && given->integer > 0) {
        c->samples = given->integer;
        return SW_OK;
    }
    SW_TRY(sw_config_resolve(config, (int)(c->ranks / cut), 0));
    c->samples = config->batch.train_batch_size;
    return SW_OK;
}

static sw_status take_meshes(const struct sw_config *config, struct choices *c)
{
    const struct sw_parallel_config *p = &config->parallel;
    const bool is_kept = c->is_kept[CHOICE_MESH];
    if (is_kept && (double)p->tensor * (double)p->context > c->cluster->node.devices.value) {
        char why[128];
        snprintf(why, sizeof why,
                 "tensor x context is %lld, but a node has %.0f devices; a search spreads neither "
                 "over several nodes",
                 (long long)(p->tensor * p->context), c->cluster->node.devices.value);
        return sw_config_refuse_mesh(config, why);
    }
    const int n = list_meshes(c, p, NULL);
    if (n == 0) {
        return SW_FAIL(SW_E_CONFIG,
                       "no mesh of %d ranks on nodes of %.0f devices divides steps of %lld samples",
                       c->ranks, c->cluster->node.devices.value, (long long)c->samples);
    }
    c->meshes = sw_alloc_zero("look", (size_t)n, sizeof *c->meshes);
    SW_TRY_ALLOC(c->meshes, "the meshes of a search");
    c->space.n_values[CHOICE_MESH] = list_meshes(c, p, c->meshes);
    return SW_OK;
}

/* From what needs the least time to what needs the least memory. */
static void take_starts(struct choices *c)
{
    static const int64_t steps[][5] = {/* stage, states, parameters, checkpoints, micro-batch */
                                       {1, SW_TIER_DEVICE, SW_TIER_DEVICE, SW_TIER_DEVICE, 4},
                                       {1, SW_TIER_DEVICE, SW_TIER_DEVICE, SW_TIER_DEVICE, 1},
                                       {3, SW_TIER_DEVICE, SW_TIER_DEVICE, SW_TIER_DEVICE, 4},
                                       {3, SW_TIER_DEVICE, SW_TIER_DEVICE, SW_TIER_DEVICE, 1},
                                       {1, SW_TIER_HOST, SW_TIER_DEVICE, SW_TIER_DEVICE, 1},
                                       {3, SW_TIER_HOST, SW_TIER_DEVICE, SW_TIER_DEVICE, 1},
                                       {3, SW_TIER_HOST, SW_TIER_HOST, SW_TIER_HOST, 1},
                                       {3, SW_TIER_DISK, SW_TIER_HOST, SW_TIER_HOST, 1},
                                       {3, SW_TIER_DISK, SW_TIER_DISK, SW_TIER_HOST, 1}};
    static const int of[] = {CHOICE_STAGE, CHOICE_STATES, CHOICE_PARAMETERS, CHOICE_CHECKPOINTS,
                             CHOICE_MICRO_BATCH};
    for (size_t s = 0; s < SW_LEN(steps); s++) {
        struct sw_choice *start = &c->starts[c->space.n_starts];
        bool good = true;
        *start = (struct sw_choice){0};
        set(c, start, CHOICE_RECOMPUTE, 1);
        for (size_t k = 0; k < SW_LEN(of); k++) {
            good &= set(c, start, of[k], steps[s][k]) || c->is_kept[of[k]];
        }
        c->space.n_starts += good;
    }
}

/* Leaves out flags that name a micro-batch: the edits of a plan have it. */
static sw_status take_sets(const struct sw_engine_config *given, struct choices *c)
{
    static const char *const flags[] = {"--batch-size=", "--accumulate="};
    c->sets = sw_alloc("look", ((size_t)given->n_sets + 1) * sizeof *c->sets);
    SW_TRY_ALLOC(c->sets, "the configuration");
    c->options.config.sets = c->sets;
    c->options.config.n_sets = 0;
    for (int i = 0; i < given->n_sets; i++) {
        bool is_batch = false;
        for (size_t k = 0; k < SW_LEN(flags); k++) {
            is_batch |= strncmp(given->sets[i], flags[k], strlen(flags[k])) == 0;
        }
        if (!is_batch) {
            c->sets[c->options.config.n_sets++] = given->sets[i];
        }
    }
    return SW_OK;
}

static sw_status fill(const struct sw_engine_options *options, struct choices *c)
{
    static const char *const axes[] = {"spillway.mesh.pipe", "spillway.mesh.tensor",
                                       "spillway.mesh.context"};
    const struct sw_engine_config *given = &options->config;
    const char *text = given->text ? given->text : "{}";
    struct sw_config *config = NULL;
    SW_TRY(given->path ? sw_config_load(given->path, given->sets, given->n_sets, &config)
                       : sw_config_parse("configuration", text, strlen(text), given->sets,
                                         given->n_sets, &config));
    take_families(config, c);
    for (size_t i = 0; i < SW_LEN(axes); i++) {
        c->is_kept[CHOICE_MESH] |=
            sw_config_origin_of(config, axes[i]) != SW_CONFIG_DEFAULT && !config->parallel.is_auto;
    }
    sw_status st = take_batch(config, c);
    st = st < 0 ? st : take_meshes(config, c);
    st = st < 0 ? st : take_sets(given, c);
    sw_config_close(config);
    take_starts(c);
    return st;
}

sw_status sw_choices_open(const struct sw_engine_options *options, const struct sw_cluster *cluster,
                          int ranks, struct choices *out)
{
    *out = (struct choices){.options = *options, .cluster = cluster, .ranks = ranks};
    const sw_status st = fill(options, out);
    out->space.n_families = CHOICE_COUNT;
    out->space.starts = out->starts;
    out->space.most_instrs = MOST_INSTRS;
    out->space.ctx = out;
    out->space.adapt = adapt;
    out->space.judge = judge;
    if (st < 0) {
        sw_choices_close(out);
    }
    return st;
}

void sw_choices_close(struct choices *c)
{
    sw_free(c->meshes);
    sw_free(c->sets);
    c->meshes = NULL;
    c->sets = NULL;
}
