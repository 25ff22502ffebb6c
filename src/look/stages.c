// SPDX-License-Identifier: Apache-2.0
// Compares the ZeRO stages: bytes that one rank of many would hold and send at each stage. The
// plans of all four stages are made, but not run. The table also has the formulas of the ZeRO paper
// and of docs/zero.md.
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "json/json.h"
#include "look/private.h"
#include "show/show.h"
#include "spillway/look.h"

enum { N_STAGES = 4 };

struct stages {
    int ranks, configured;
    struct sw_mesh mesh;
    struct sw_str mesh_line;         /* the mesh in words */
    bool budgets;                    /* budgets are configured */
    bool fits[N_STAGES];             /* fits the budgets */
    struct sw_str refused[N_STAGES]; /* reason why a stage is impossible; empty = possible */
    struct sw_policy policy; /* tiers and tiles of the configuration, for the stage they need */
    enum sw_step_schedule schedule;
    /* values chosen for "auto" at the configured stage, used for all stages: as edits, and as
     * text */
    bool is_auto;
    char sets[4][96];
    int n_sets;
    struct sw_str chosen, chosen_json;
    enum sw_dtype dtype;
    int64_t micro_batches;
    struct sw_paper paper;
    struct sw_plan_table tables[N_STAGES];
    struct sw_transfers moved[N_STAGES]; /* per step */
};

/* Reads stage, offloading and budgets from the configuration. */
static sw_status read_config(const struct sw_engine_options *o, struct stages *out)
{
    struct sw_config *config = NULL;
    if (o->config.path) {
        SW_TRY(sw_config_load(o->config.path, o->config.sets, o->config.n_sets, &config));
    } else {
        const char *text = o->config.text ? o->config.text : "{}";
        SW_TRY(sw_config_parse("configuration", text, strlen(text), o->config.sets,
                               o->config.n_sets, &config));
    }
    sw_config_warn(config);
    out->configured = (int)config->zero.stage;
    out->policy = (struct sw_policy){
        .states_tier = sw_tier_of(config->zero.offload_optimizer.device),
        .params_tier = sw_tier_of(config->zero.offload_param.device),
        .tile_bytes = (size_t)config->spillway.tile_bytes,
    };
    out->is_auto = sw_config_is_auto(config);
    out->budgets = config->spillway.device_memory_bytes > 0 ||
                   config->spillway.host_memory_bytes > 0 || config->spillway.nvme_space_bytes > 0;
    const char *device = o->run.device ? o->run.device : config->spillway.device;
    out->budgets |= strncmp(device, "sim:", 4) == 0; /* what its cluster has */
    sw_config_close(config);
    return SW_OK;
}

enum { MOST_EDITS = 8, EDIT = 64 };

/* Writes the edits with which a stage is planned, and returns their number. A stage that does not
 * support a technique of the configuration is planned without it. */
static int edit_stage(const struct stages *s, int stage, bool budgets, char edits[MOST_EDITS][EDIT])
{
    int n = 0;
    snprintf(edits[n++], EDIT, "zero_optimization.stage=%d", stage);
    if (!budgets) {
        snprintf(edits[n++], EDIT, "spillway.device_memory=null");
        snprintf(edits[n++], EDIT, "spillway.host_memory=null");
        snprintf(edits[n++], EDIT, "spillway.nvme_space=null");
    }
    for (int i = 0; i < sw_n_techniques && stage != s->configured && n < MOST_EDITS; i++) {
        const struct sw_technique *row = sw_techniques[i];
        if (row->stage && row->stage(&s->policy) > stage) {
            snprintf(edits[n++], EDIT, "%s=null", row->keys);
        }
    }
    return n;
}

/* Opens the plan of rank 0. The caller closes comm after the engine. */
static sw_status open_stage(const struct sw_engine_options *options, int stage, bool budgets,
                            const struct stages *s, sw_comm **comm, sw_engine **out)
{
    struct sw_engine_options o = *options;
    const char *sets[64];
    char edits[MOST_EDITS][EDIT];
    int n = options->config.n_sets;
    if (n + MOST_EDITS + (int)SW_LEN(s->sets) > (int)SW_LEN(sets)) {
        return SW_FAIL(SW_E_ARG, "too many --set");
    }
    if (n > 0) {
        memcpy(sets, options->config.sets, (size_t)n * sizeof *sets);
    }
    for (int i = 0; i < s->n_sets; i++) {
        sets[n++] = s->sets[i];
    }
    const int n_edits = edit_stage(s, stage, budgets, edits);
    for (int i = 0; i < n_edits; i++) {
        sets[n++] = edits[i];
    }
    o.config.sets = sets;
    o.config.n_sets = n;
    o.plan.only = true;
    SW_TRY(sw_comm_open(&(struct sw_transport){.size = s->ranks}, comm));
    o.run.comm = *comm;
    const sw_status st = sw_initialize(&o, out);
    if (st < 0) {
        sw_comm_close(*comm, true);
    }
    return st;
}

static void add_set(struct stages *s, const struct sw_config *config, const char *path)
{
    struct sw_str value = {0};
    sw_json_write(sw_config_value(config, path), 0, &value);
    snprintf(s->sets[s->n_sets++], sizeof *s->sets, "%s=%s", path, sw_str_text(&value));
    s->chosen.failed |= value.failed;
    sw_str_fini(&value);
}

/* Chooses once for the whole table: at the configured stage, within the budgets. */
static sw_status choose(const struct sw_engine_options *options, struct stages *s)
{
    sw_engine *e = NULL;
    sw_comm *comm;
    if (!s->is_auto) {
        return SW_OK;
    }
    SW_TRY(open_stage(options, s->configured, true, s, &comm, &e));
    const struct sw_config *config = sw_engine_facts(e).config;
    add_set(s, config, "spillway.micro_batch");
    add_set(s, config, "spillway.recompute");
    add_set(s, config, "spillway.recompute_blocks");
    if (sw_config_origin_of(config, "spillway.micro_batch") == SW_CONFIG_PLANNED) {
        add_set(s, config, "train_micro_batch_size_per_gpu");
    }
    sw_config_print_chosen(config, false, &s->chosen);
    sw_config_print_chosen(config, true, &s->chosen_json);
    sw_close(e);
    sw_comm_close(comm, false);
    return SW_OK;
}

/* Plans without budgets, so that the table also shows what does not fit. */
static sw_status plan_stage(const struct sw_engine_options *options, int stage, struct stages *out)
{
    sw_engine *e = NULL;
    sw_comm *comm;
    SW_TRY(open_stage(options, stage, false, out, &comm, &e));
    const struct sw_engine_facts f = sw_engine_facts(e);
    out->dtype = f.dtype;
    out->schedule = (enum sw_step_schedule)f.config->spillway.schedule;
    out->micro_batches = sw_engine_micro_batches(e);
    out->paper = sw_paper_widths(f.dtype, f.rule);
    out->moved[stage] = sw_plan_transfers(f.plan, f.rounds);
    out->mesh = f.mesh;
    if (stage == out->configured) {
        sw_engine_print_mesh(e, &out->mesh_line);
    }
    const struct sw_plan_options plan = {
        .mesh = f.mesh,
        .rule = f.trains ? f.rule : NULL,
        .policy = {.stage = stage, .micro_batches = out->micro_batches}};
    sw_status st = sw_plan_tabulate(f.plan, &plan, &out->tables[stage]);
    sw_close(e);
    sw_comm_close(comm, false);
    if (st < 0 || !out->budgets) {
        return st;
    }
    st = open_stage(options, stage, true, out, &comm, &e);
    if (st >= 0) {
        sw_close(e);
        sw_comm_close(comm, false);
    }
    out->fits[stage] = st >= 0;
    return st == SW_E_NOMEM ? SW_OK : st;
}

/* ---- numbers ---- */

static double states_of(const struct sw_plan_table *t)
{
    double sum = 0;
    for (int k = 0; k < SW_HELD_STATES; k++) {
        sum += (double)t->held[k];
    }
    return sum;
}

static int data_ranks(const struct stages *s)
{
    return sw_mesh_size(&s->mesh, SW_BATCH_AXES);
}

static double paper_of(const struct stages *s, int stage)
{
    return sw_paper_bytes(&s->paper, stage, (double)s->tables[stage].elems,
                          (double)s->tables[stage].trained, data_ranks(s));
}

static struct sw_sent_parts sent_of(const struct sw_plan_table *t)
{
    struct sw_sent_parts sum = {0};
    for (int k = 0; k < SW_SENT_COUNT; k++) {
        const struct sw_sent_parts *p = &t->sent[k];
        sum.bytes += p->bytes;
        sum.formula += p->formula;
        sum.second += p->second;
        sum.sparse += p->sparse;
        sum.kept += p->kept;
        sum.spared += p->spared;
        sum.stays += p->stays;
        sum.padding += p->padding;
        sum.rows += p->rows;
        sum.matrices += p->matrices;
    }
    return sum;
}

/* ---- text output ---- */

static bool is_refused(const struct stages *s, int stage)
{
    return s->refused[stage].len > 0;
}

static void add_line(const struct stages *s, struct sw_str *out, const char *label,
                     const double values[N_STAGES])
{
    sw_str_printf(out, "%-32s", label);
    for (int i = 0; i < N_STAGES; i++) {
        if (is_refused(s, i)) {
            sw_str_printf(out, " %16s", "-");
        } else {
            sw_str_printf(out, " %16.0f", values[i] + 0.0);
        }
    }
    sw_str_putc(out, '\n');
}

/* Omits a row that is zero at every stage. */
static void add_part(const struct stages *s, struct sw_str *out, const char *label,
                     const double values[N_STAGES])
{
    bool any = false;
    for (int i = 0; i < N_STAGES; i++) {
        any |= values[i] > 0.5 || values[i] < -0.5;
    }
    if (any) {
        add_line(s, out, label, values);
    }
}

static void add_head(struct sw_str *out, const struct stages *s, const char *what)
{
    sw_str_printf(out, "%-32s", what);
    for (int i = 0; i < N_STAGES; i++) {
        sw_str_printf(out, "%15s %d", i == s->configured ? "-> stage" : "stage", i);
    }
    sw_str_putc(out, '\n');
}

static void print_held(const struct stages *s, struct sw_str *out)
{
    static const char *const labels[SW_HELD_COUNT] = {
        "parameters",
        "gradients, summed",
        "optimizer states",
        "  parameters kept whole",
        "  sums of further uses",
        "  statistics, caches, constants",
        "  at the peak: gathered",
        "  loaded from other tiers",
        "  gradients to be sent",
        "  activations",
        "  received from other ranks",
        "  workspace of kernels",
        "  unused gaps",
    };
    double v[N_STAGES], paper[N_STAGES], total[N_STAGES], padding[N_STAGES];
    add_head(out, s, "bytes held by one rank");
    for (int k = 0; k < SW_HELD_COUNT; k++) {
        for (int i = 0; i < N_STAGES; i++) {
            v[i] = (double)s->tables[i].held[k];
        }
        (k < SW_HELD_STATES ? add_line : add_part)(s, out, labels[k], v);
        if (k + 1 == SW_HELD_STATES) {
            for (int i = 0; i < N_STAGES; i++) {
                total[i] = states_of(&s->tables[i]);
                paper[i] = paper_of(s, i);
                padding[i] = s->tables[i].padding;
            }
            add_line(s, out, "= model states", total);
            add_line(s, out, "  including padding", padding);
            add_line(s, out, "  by the paper's formula", paper);
            sw_str_puts(out, "besides them\n");
        }
    }
}

static void print_tiers(const struct stages *s, struct sw_str *out)
{
    double v[N_STAGES];
    for (int t = 0; t < SW_TIER_COUNT; t++) {
        char label[32];
        snprintf(label, sizeof label, "= %s", sw_tier_name((enum sw_tier)t));
        for (int i = 0; i < N_STAGES; i++) {
            v[i] = (double)s->tables[i].tier_bytes[t];
        }
        add_line(s, out, label, v);
    }
}

static void print_short(const struct stages *s, struct sw_str *out)
{
    char text[32];
    sw_str_printf(out, "%-32s", "  device, rounded");
    for (int i = 0; i < N_STAGES; i++) {
        const size_t bytes = s->tables[i].tier_bytes[SW_TIER_DEVICE];
        sw_str_printf(out, " %16s",
                      is_refused(s, i) ? "-" : sw_format_bytes(text, sizeof text, (double)bytes));
    }
    if (s->budgets) {
        sw_str_printf(out, "\n%-32s", "  fits the budgets");
        for (int i = 0; i < N_STAGES; i++) {
            sw_str_printf(out, " %16s", is_refused(s, i) ? "-" : s->fits[i] ? "yes" : "no");
        }
    }
    sw_str_putc(out, '\n');
}

/* Omits the section if nothing is offloaded. */
static void print_moved(const struct stages *s, struct sw_str *out)
{
    static const struct {
        const char *label;
        enum sw_tier tier;
        bool in;
    } rows[] = {{"copied from the host", SW_TIER_HOST, true},
                {"copied to the host", SW_TIER_HOST, false},
                {"read from the disk", SW_TIER_DISK, true},
                {"written to the disk", SW_TIER_DISK, false}};
    double v[N_STAGES], sum = 0;
    for (int i = 0; i < N_STAGES; i++) {
        for (int t = 0; t < SW_TIER_COUNT; t++) {
            sum += (double)(s->moved[i].in[t] + s->moved[i].out[t]);
        }
    }
    if (sum == 0) {
        return;
    }
    add_head(out, s, "bytes one rank moves in a step");
    for (size_t k = 0; k < SW_LEN(rows); k++) {
        for (int i = 0; i < N_STAGES; i++) {
            const struct sw_transfers *t = &s->moved[i];
            v[i] = (double)(rows[k].in ? t->in : t->out)[rows[k].tier];
        }
        add_part(s, out, rows[k].label, v);
    }
    sw_str_putc(out, '\n');
}

/* Prints why the bytes sent differ from the formula. */
static void print_differences(const struct stages *s, const struct sw_sent_parts sums[N_STAGES],
                              struct sw_str *out)
{
    static const struct {
        const char *label;
        size_t at;
    } parts[] = {
        {"  + further uses, dense", offsetof(struct sw_sent_parts, second)},
        {"  + further uses, sparse", offsetof(struct sw_sent_parts, sparse)},
        {"  + kept whole, at the update", offsetof(struct sw_sent_parts, kept)},
        {"  - whole, reused or unread", offsetof(struct sw_sent_parts, spared)},
        {"  - stays for all micro-batches", offsetof(struct sw_sent_parts, stays)},
        {"  + padding", offsetof(struct sw_sent_parts, padding)},
        {"  - rows instead of slices", offsetof(struct sw_sent_parts, rows)},
        {"  + momentum of matrices", offsetof(struct sw_sent_parts, matrices)},
    };
    for (size_t k = 0; k < SW_LEN(parts); k++) {
        double v[N_STAGES];
        for (int i = 0; i < N_STAGES; i++) {
            memcpy(&v[i], (const char *)&sums[i] + parts[k].at, sizeof v[i]);
        }
        add_part(s, out, parts[k].label, v);
    }
}

static void print_sent(const struct stages *s, struct sw_str *out)
{
    static const char *const labels[SW_SENT_COUNT] = {"gradients to their owners",
                                                      "weights gathered for forward",
                                                      "weights gathered for backward",
                                                      "gathered at the update",
                                                      "norms, overflow",
                                                      "other exchanges"};
    double v[N_STAGES], formula[N_STAGES], boundary[N_STAGES];
    struct sw_sent_parts sums[N_STAGES];
    add_head(out, s, "bytes sent by one rank in a step");
    for (int k = 0; k < SW_SENT_COUNT; k++) {
        for (int i = 0; i < N_STAGES; i++) {
            v[i] = (double)s->tables[i].sent[k].bytes;
        }
        (k < SW_SENT_OTHER ? add_line : add_part)(s, out, labels[k], v);
    }
    for (int i = 0; i < N_STAGES; i++) {
        sums[i] = sent_of(&s->tables[i]);
        v[i] = (double)sums[i].bytes;
        formula[i] = sums[i].formula;
        boundary[i] = s->tables[i].boundary;
    }
    add_line(s, out, "= sent", v);
    add_line(s, out, "  by the formula", formula);
    print_differences(s, sums, out);
    for (int k = SW_SENT_STATS; k < SW_SENT_COUNT; k++) {
        char label[32];
        snprintf(label, sizeof label, "  + %s", labels[k]);
        for (int i = 0; i < N_STAGES; i++) {
            v[i] = (double)s->tables[i].sent[k].bytes;
        }
        add_part(s, out, label, v);
    }
    add_part(s, out, "\"reduce\": \"boundary\", formula", boundary);
}

static void print_text(const struct stages *s, struct sw_str *out)
{
    const struct sw_plan_table *t = &s->tables[s->configured];
    const struct sw_paper *p = &s->paper;
    const int n = data_ranks(s);
    const long long rounds = (long long)sw_ceil_div(s->micro_batches, n);
    sw_str_printf(
        out,
        "%lld parameters%s, %s, R = %d %sranks, K = %lld micro-batches a step, m = %lld on "
        "a rank%s; -> is the configured stage\n",
        (long long)t->elems, n < s->ranks ? " of rank 0" : "", sw_dtype_name(s->dtype), n,
        n < s->ranks ? "data " : "", (long long)s->micro_batches, rounds,
        sw_schedule_is_at_once(s->schedule) ? ", scheduled vertically" : "");
    sw_str_printf(out, "%s\n", sw_str_text(&s->mesh_line));
    if (s->chosen.len > 0) {
        sw_str_printf(out, "chosen: %s\n\n", sw_str_text(&s->chosen));
    }
    print_held(s, out);
    print_tiers(s, out);
    print_short(s, out);
    sw_str_putc(out, '\n');
    print_moved(s, out);
    print_sent(s, out);
    sw_str_printf(
        out,
        "\nThe paper's formulas, bytes per parameter: %g at stage 0, %g + %g/R at 1, "
        "%g + %g/R at 2, %g/R at 3.\n"
        "The formulas of bytes sent, times (R-1)/R: (m c + 4) P at stage 0, (m c + w) P at "
        "1 and 2, %s P\nat 3, with P parameters, c bytes of a gradient on the "
        "wire and w of a weight. docs/zero.md explains each line.\n",
        p->work + p->grad + p->states, p->work + p->grad, p->states, p->work, p->grad + p->states,
        p->work + p->grad + p->states,
        sw_schedule_is_at_once(s->schedule) ? "(2 w + m c)" : "m (2 w + c)");
    for (int i = 0; i < N_STAGES; i++) {
        if (is_refused(s, i)) {
            sw_str_printf(out, "Stage %d is refused: %s\n", i, sw_str_text(&s->refused[i]));
        }
    }
}

/* ---- JSON output ---- */

/* Writes the bytes sent, by kind. Other exchanges are left out if there are none. */
static void json_sent(const struct sw_plan_table *t, struct sw_str *out)
{
    const struct sw_sent_parts sum = sent_of(t);
    sw_str_puts(out, ",\"sent\":{");
    for (int k = 0; k < SW_SENT_COUNT; k++) {
        if (k < SW_SENT_OTHER || t->sent[k].bytes > 0) {
            sw_str_printf(out, "\"%s\":{\"bytes\":%lld,\"formula\":%.0f},",
                          sw_sent_name((enum sw_sent)k), (long long)t->sent[k].bytes,
                          t->sent[k].formula);
        }
    }
    sw_str_printf(out,
                  "\"total\":{\"bytes\":%lld,\"formula\":%.0f,\"second\":%.0f,\"sparse\":%.0f,"
                  "\"kept\":%.0f,\"spared\":%.0f,\"stays\":%.0f,\"padding\":%.0f,\"rows\":%.0f,"
                  "\"matrices\":%.0f}}",
                  (long long)sum.bytes, sum.formula, sum.second, sum.sparse, sum.kept, sum.spared,
                  sum.stays, sum.padding, sum.rows, sum.matrices);
}

static void json_stage(const struct stages *s, int stage, struct sw_str *out)
{
    const struct sw_plan_table *t = &s->tables[stage];
    sw_str_printf(out, "%s{\"stage\":%d,", stage > 0 ? "," : "", stage);
    if (is_refused(s, stage)) {
        sw_str_puts(out, "\"refused\":");
        sw_json_write_string(s->refused[stage].ptr, s->refused[stage].len, out);
        sw_str_putc(out, '}');
        return;
    }
    sw_str_puts(out, "\"held\":{");
    for (int k = 0; k < SW_HELD_COUNT; k++) {
        sw_str_printf(out, "%s\"%s\":%zu", k > 0 ? "," : "", sw_held_name((enum sw_held)k),
                      t->held[k]);
    }
    sw_str_printf(out, "},\"model_states\":%.0f,\"padding\":%.0f,\"model_states_paper\":%.0f",
                  states_of(t), t->padding, paper_of(s, stage));
    for (int k = 0; k < SW_TIER_COUNT; k++) {
        sw_str_printf(out, ",\"%s_bytes\":%zu", sw_tier_name((enum sw_tier)k), t->tier_bytes[k]);
    }
    if (s->budgets) {
        sw_str_printf(out, ",\"fits\":%s", s->fits[stage] ? "true" : "false");
    }
    for (int k = SW_TIER_HOST; k < SW_TIER_COUNT; k++) {
        const char *name = sw_tier_name((enum sw_tier)k);
        sw_str_printf(out, ",\"moved_from_%s\":%lld,\"moved_to_%s\":%lld", name,
                      (long long)s->moved[stage].in[k], name, (long long)s->moved[stage].out[k]);
    }
    json_sent(t, out);
    sw_str_putc(out, '}');
}

/* Writes the tables of all stages, and which stage is configured. */
static void print_json(const struct stages *s, struct sw_str *out)
{
    sw_str_printf(out,
                  "{\"parameters\":%lld,\"trained\":%lld,\"dtype\":\"%s\",\"ranks\":%d,"
                  "\"data_ranks\":%d,"
                  "\"micro_batches\":%lld,\"schedule\":\"%s\",\"configured_stage\":%d,",
                  (long long)s->tables[s->configured].elems,
                  (long long)s->tables[s->configured].trained, sw_dtype_name(s->dtype), s->ranks,
                  data_ranks(s), (long long)s->micro_batches, sw_schedule_name(s->schedule),
                  s->configured);
    if (s->chosen_json.len > 0) {
        sw_str_printf(out, "\"chosen\":{%s},", sw_str_text(&s->chosen_json));
    }
    sw_str_puts(out, "\"stages\":[");
    for (int i = 0; i < N_STAGES; i++) {
        json_stage(s, i, out);
    }
    sw_str_puts(out, "]}");
}

sw_status sw_plan_stages_text(const struct sw_engine_options *options, int ranks, bool json,
                              char **out)
{
    struct stages s = {.ranks = ranks};
    struct sw_str text = {0};
    SW_TRY_OPTIONS(options);
    SW_TRY(read_config(options, &s));
    sw_status st = choose(options, &s);
    for (int stage = 0; stage < N_STAGES && st >= 0; stage++) {
        st = plan_stage(options, stage, &s);
        if (stage != s.configured && (st == SW_E_CONFIG || st == SW_E_UNSUP)) {
            sw_str_puts(&s.refused[stage], sw_error_message());
            text.failed |= s.refused[stage].failed;
            st = SW_OK;
        }
    }
    if (st >= 0) {
        (json ? print_json : print_text)(&s, &text);
    }
    text.failed |= s.chosen.failed || s.chosen_json.failed || s.mesh_line.failed;
    sw_str_fini(&s.mesh_line);
    sw_str_fini(&s.chosen);
    sw_str_fini(&s.chosen_json);
    for (int stage = 0; stage < N_STAGES; stage++) {
        sw_str_fini(&s.refused[stage]);
    }
    return sw_look_give(st, &text, out);
}
