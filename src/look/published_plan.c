// SPDX-License-Identifier: Apache-2.0
// Plans and walks a published run on its cluster. What the run does not say is assumed by fixed
// rules, and said.
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "look/private.h"
#include "look/published.h"

enum { HEAD = 128, WIDTH_STEP = 1024, TOKENS = 1024, VOCAB = 51200 };

static bool is(const char *text, const char *word)
{
    return text && strcmp(text, word) == 0;
}

static sw_status refuse(const struct pub_run *run, const char *key, const char *what)
{
    return SW_FAIL(SW_E_UNSUP, "%s:%d: %s: %s: %s", run->file, run->line, key, run->id, what);
}

/* ---- what is not published ---- */

/* GPT models of this size have about as many layers as a width has heads of 128. */
static void assume_shape(struct pub_model *m, struct sw_str *assumed)
{
    if (m->layers > 0 && m->hidden > 0) {
        return;
    }
    const double width = cbrt(m->parameters * HEAD / 12);
    m->hidden = (int64_t)fmax(WIDTH_STEP, floor(width / WIDTH_STEP) * WIDTH_STEP);
    m->layers =
        (int64_t)fmax(1, floor(m->parameters / (12 * (double)m->hidden * (double)m->hidden) + 0.5));
    sw_str_printf(assumed, "%lld layers of width %lld; ", (long long)m->layers,
                  (long long)m->hidden);
}

struct pub_model sw_published_model(const struct pub_run *run, struct sw_str *assumed)
{
    struct pub_model m = run->model;
    assume_shape(&m, assumed);
    if (m.heads == 0) {
        m.heads = m.hidden / HEAD;
        sw_str_printf(assumed, "%lld heads; ", (long long)m.heads);
    }
    if (m.seq_len == 0) {
        m.seq_len = TOKENS;
        sw_str_printf(assumed, "%d tokens; ", TOKENS);
    }
    if (m.vocab == 0) {
        m.vocab = VOCAB;
        sw_str_printf(assumed, "a vocabulary of %d; ", VOCAB);
    }
    return m;
}

static int64_t cuts_of(const struct pub_setup *s)
{
    return sw_max_i64(1, s->tensor) * sw_max_i64(1, s->pipe);
}

/* The samples of a replica, and how many of them are a micro-batch. */
static void cut_batch(const struct pub_run *run, double each, struct pub_prediction *p)
{
    const double cuts = (double)cuts_of(&run->setup), replicas = (double)run->devices / cuts;
    p->rows = each / cuts;
    p->micro_batches = (int64_t)fmax(1, (double)run->setup.global_batch / replicas / each);
}

/* Samples per device and micro-batch, and micro-batches of a replica. False: they follow from
 * nothing. *is_open: the micro-batch is not published, and is searched. */
static bool find_batch(const struct pub_run *run, const struct pub_fitted *fitted,
                       struct pub_prediction *p, bool *is_open)
{
    const struct pub_setup *s = &run->setup;
    const bool is_divided = s->rows == 0 && fitted->tokens == 0 && s->global_batch > 0;
    p->rows = s->rows;
    p->micro_batches = sw_max_i64(1, s->micro_batches);
    p->chunks = sw_max_i64(1, s->chunks);
    *is_open = is_divided && s->micro_batch == 0;
    if (s->rows == 0 && fitted->tokens > 0) {
        p->rows = fmax(1, floor(fitted->tokens / (double)p->model.seq_len + 0.5));
        sw_str_printf(&p->assumed, "%.0f tokens a step, fitted; ", fitted->tokens);
    } else if (is_divided) {
        cut_batch(run, (double)sw_max_i64(1, s->micro_batch), p);
    }
    return p->rows > 0;
}

/* Who counts 8 FLOPs a parameter and token recomputes the forward. */
static bool recomputes(const struct pub_run *run)
{
    return run->setup.recompute || run->by_parameters;
}

static sw_status check(const struct pub_run *run, const struct sw_accounting *accounting)
{
    if (run->setup.sequence_parallel) {
        return refuse(run, "setup.sequence_parallel",
                      "a sequence parallel region is not simulated yet");
    }
    if (is(run->setup.recompute, "attention core")) {
        return refuse(run, "setup.recompute", "blocks are not recomputed in part");
    }
    if (run->setup.pipe > 1 && accounting && !accounting->as_planned) {
        char what[160];
        snprintf(what, sizeof what,
                 "the accounting %.60s has no pipelines; wanted ours, or one with \"as_planned\"",
                 accounting->name);
        return refuse(run, "setup.pipe", what);
    }
    return run->model.parameters > 0 || run->model.layers > 0
               ? SW_OK
               : refuse(run, "model", "the model is not published");
}

double sw_published_parameters(const struct pub_model *m)
{
    return 12 * (double)m->layers * (double)m->hidden * (double)m->hidden;
}

double sw_published_flops(const struct pub_run *run, const struct pub_model *m, double samples)
{
    const double s = (double)m->seq_len, h = (double)m->hidden, l = (double)m->layers;
    const double others = s / (6 * h) + (double)m->vocab / (16 * l * h);
    return 8 * sw_published_parameters(m) * samples * s * (run->by_parameters ? 1 : 1 + others);
}

double sw_published_by_formula(const struct pub_run *run)
{
    static const double tera = 1e12, giga = 1e9;
    const struct pub_formula *by = &run->group->formula;
    struct sw_str assumed = {0};
    const struct pub_model m = sw_published_model(run, &assumed);
    const double parameters = m.parameters, samples = run->setup.rows;
    const double flops = run->by_parameters ? 8 * parameters * samples * (double)m.seq_len
                                            : sw_published_flops(run, &m, samples);
    double seconds = flops / (by->tflops * tera);
    if (is(run->setup.states, "nvme") && by->disk_gb_s > 0) {
        seconds += by->disk_bytes * parameters / ((double)run->nodes * by->disk_gb_s * giga);
    }
    if (by->network_gb_s > 0) {
        seconds += by->network_bytes * parameters / (by->network_gb_s * giga);
    }
    sw_str_fini(&assumed);
    return flops / seconds / tera;
}

/* ---- the plan ---- */

static void put_tier(const char *key, const char *where, struct sw_str *out)
{
    if (is(where, "host") || is(where, "nvme")) {
        sw_str_printf(out, ",\"%s\":{\"device\":\"%s\"%s}", key, is(where, "host") ? "cpu" : where,
                      is(where, "nvme") ? ",\"nvme_path\":\"/nvme\"" : "");
    }
}

/* Gives a node the drives that the run had. */
static void fit_drives(const struct pub_run *run, struct sw_cluster *c)
{
    for (int i = 0; i < c->n_disks && run->setup.drives > 0; i++) {
        c->disks[i].count.value = (double)run->setup.drives;
    }
}

/* The budgets of the cluster, which the drives may change; or none. Then what is loaded ahead has
 * no budget to follow from, and is that of any device with more than 2 GiB; and states on the host
 * are updated there, as those systems do. */
static void put_budgets(const struct pub_run *run, const struct sw_cluster *c, bool budgets,
                        struct sw_str *out)
{
    const double ranks = fmin((double)run->devices, c->node.devices.value);
    if (!budgets) {
        sw_str_puts(out, ",\"device_memory\":null,\"host_memory\":null,\"nvme_space\":null,"
                         "\"transfer_bytes\":1073741824");
        sw_str_puts(out, is(run->setup.states, "host") ? ",\"update\":\"host\"" : "");
    } else if (run->setup.drives > 0) {
        sw_str_printf(out, ",\"nvme_space\":%.0f", floor(sw_cluster_disk_space(c) / ranks));
    }
}

static void write_config(const struct pub_run *run, const struct pub_prediction *p,
                         const struct sw_cluster *c, bool budgets, struct sw_str *out)
{
    const struct pub_setup *s = &run->setup;
    sw_str_printf(out,
                  "{\"train_micro_batch_size_per_gpu\":%.0f,\"gradient_accumulation_steps\":%lld,"
                  "\"%s\":{\"enabled\":true},\"optimizer\":{\"type\":\"AdamW\",\"params\":"
                  "{\"lr\":0.0001}},\"activation_checkpointing\":{\"cpu_checkpointing\":%s},"
                  "%s\"zero_optimization\":{\"stage\":%lld",
                  fmax(1, p->rows * (double)cuts_of(s)), (long long)p->micro_batches,
                  is(s->dtype, "bf16") ? "bf16" : "fp16",
                  is(s->checkpoints, "host") ? "true" : "false",
                  s->in_backward ? "\"gradient_clipping\":0," : "", (long long)s->stage);
    put_tier("offload_optimizer", s->states, out);
    put_tier("offload_param", s->stage == 3 ? s->parameters : NULL, out);
    if (s->prefetch > 0) {
        sw_str_printf(out, ",\"stage3_prefetch_bucket_size\":%lld", (long long)s->prefetch);
    }
    sw_str_printf(out,
                  "},\"spillway\":{\"recompute\":\"%s\",\"mesh\":{\"tensor\":%lld,\"pipe\":%lld}",
                  recomputes(run) ? "blocks" : "none", (long long)sw_max_i64(1, s->tensor),
                  (long long)sw_max_i64(1, s->pipe));
    if (s->pipe > 1) {
        sw_str_puts(out, ",\"reduce\":\"boundary\"");
    }
    if (s->vertical) {
        sw_str_puts(out, ",\"schedule\":\"vertical\"");
    }
    if (s->in_backward) {
        sw_str_puts(out, ",\"disk_slots\":2");
    }
    if (s->next_forward) {
        sw_str_puts(out, ",\"clipped_update\":\"next_forward\"");
    }
    if (s->late_share > 0) {
        sw_str_printf(out, ",\"next_forward_share\":%g", s->late_share);
    }
    if (s->tile_bytes > 0) {
        sw_str_printf(out, ",\"tile_bytes\":%lld", (long long)s->tile_bytes);
    }
    if (p->chunks > 1) {
        sw_str_printf(out, ",\"schedule\":\"interleaved\",\"chunks\":%lld", (long long)p->chunks);
    }
    put_budgets(run, c, budgets, out);
    sw_str_puts(out, "}}");
}

static void write_model(const struct pub_model *m, struct sw_str *out)
{
    sw_str_printf(out,
                  "{\"model_type\":\"gpt2\",\"architectures\":[\"GPT2LMHeadModel\"],"
                  "\"activation_function\":\"gelu_new\",\"n_layer\":%lld,\"n_embd\":%lld,"
                  "\"n_head\":%lld,\"n_positions\":%lld,\"vocab_size\":%lld,\"attn_pdrop\":0,"
                  "\"resid_pdrop\":0,\"embd_pdrop\":0}",
                  (long long)m->layers, (long long)m->hidden, (long long)m->heads,
                  (long long)m->seq_len, (long long)m->vocab);
}

/* Engine options of a run, and the texts that they borrow. */
struct asked {
    struct sw_engine_options options;
    struct sw_str config, model, device;
};

static void drop(struct asked *a)
{
    sw_str_fini(&a->config);
    sw_str_fini(&a->model);
    sw_str_fini(&a->device);
}

/* Release with drop, also after a failure. */
static sw_status ask(const struct pub_run *run, const struct pub_prediction *p, bool budgets,
                     struct asked *a)
{
    struct sw_cluster *c = NULL;
    *a = (struct asked){0};
    SW_TRY(sw_cluster_open(run->cluster, &c));
    const sw_status st = sw_cluster_check_size(c, run->nodes, run->devices);
    fit_drives(run, c);
    write_config(run, p, c, budgets, &a->config);
    sw_cluster_close(c);
    if (st < 0) {
        return sw_fail_prefix(st, "%s:%d: devices: %s", run->file, run->line, run->id);
    }
    write_model(&p->model, &a->model);
    sw_str_printf(&a->device, "sim:%s", run->cluster);
    a->options = (struct sw_engine_options){.config.text = a->config.ptr,
                                            .model.path = a->model.ptr,
                                            .inputs.seq_len = p->model.seq_len,
                                            .run.device = a->device.ptr,
                                            .train = {.wanted = true, .no_dropout = true}};
    return a->config.failed || a->model.failed || a->device.failed
               ? SW_FAIL(SW_E_NOMEM, "out of host memory for a published run")
               : SW_OK;
}

/* refusal: as for sw_lineup_try */
static sw_status open_lineup(const struct pub_run *run, const struct pub_prediction *p,
                             bool budgets, struct sw_plan_refusal *refusal, struct sw_lineup *out)
{
    struct asked a;
    sw_status st = ask(run, p, budgets, &a);
    st = st < 0 ? st : sw_lineup_try(&a.options, (int)run->devices, refusal, out);
    drop(&a);
    return st;
}

/* ---- the step ---- */

static void fit_cluster(const struct pub_run *run, const struct pub_fitted *fitted,
                        struct sw_cluster *c, struct pub_prediction *p)
{
    p->sustained = c->device.sustained;
    for (int i = 0; i < c->n_links; i++) {
        struct sw_cluster_link *link = &c->links[i];
        if (link->joint == SW_JOINT_NODES && fitted->reached > 0) {
            p->reached = link->reached;
            link->reached =
                (struct sw_figure){fitted->reached, SW_FIGURE_FITTED, "published runs", 0};
        }
    }
    if (fitted->sustained > 0) {
        c->device.sustained.value = fitted->sustained;
    }
    fit_drives(run, c);
}

static void find_tiers(const struct sw_lineup *lineup, struct pub_prediction *p)
{
    sw_look_tiers(lineup, p->bytes, p->there);
    p->fits = true;
    for (int t = 0; t < SW_TIER_COUNT; t++) {
        p->fits &= p->bytes[t] <= p->there[t];
    }
}

static sw_status walk(const struct pub_run *run, const struct sw_accounting *accounting,
                      const struct sw_cluster *c, const struct sw_lineup *lineup,
                      struct pub_prediction *p)
{
    const struct sw_cost_mesh mesh = {.cluster = c,
                                      .ranks = run->devices,
                                      .accounting = accounting,
                                      .parameters = sw_published_parameters(&p->model),
                                      .states_on_disk = is(run->setup.states, "nvme"),
                                      .parameters_on_disk = is(run->setup.parameters, "nvme")};
    struct sw_clock_report clock;
    double flops;
    find_tiers(lineup, p);
    SW_TRY(sw_look_cluster_step(lineup, &mesh, &clock, &flops));
    const double samples = p->rows * (double)run->devices * (double)p->micro_batches;
    p->seconds = clock.seconds;
    p->bound = clock.bound;
    memcpy(p->part, clock.part, sizeof p->part);
    p->tflops =
        sw_published_flops(run, &p->model, samples) / clock.seconds / (double)run->devices / 1e12;
    return SW_OK;
}

/* In another accounting the plan has no budgets, unless it is as planned: that system's memory is
 * not ours. */
static sw_status predict(const struct pub_run *run, const struct sw_accounting *accounting,
                         const struct sw_cluster *c, struct sw_plan_refusal *refusal,
                         struct pub_prediction *p)
{
    struct sw_lineup lineup;
    SW_TRY(open_lineup(run, p, !accounting || accounting->as_planned, refusal, &lineup));
    const sw_status st = walk(run, accounting, c, &lineup, p);
    sw_lineup_close(&lineup);
    return st;
}

/* ---- what is searched ---- */

struct search {
    const struct pub_run *run;
    const struct sw_accounting *accounting;
    const struct sw_cluster *cluster;
    int tried, fitting;
};

/* Takes a prediction if it fits and is faster than `best`; else *slower is set. */
static sw_status try_one(struct search *s, struct pub_prediction one, struct pub_prediction *best,
                         bool *slower)
{
    struct sw_plan_refusal refusal;
    const sw_status st = predict(s->run, s->accounting, s->cluster, &refusal, &one);
    s->tried++;
    *slower = st >= 0 && one.fits && best->seconds > 0 && best->seconds <= one.seconds;
    if (st >= 0 && one.fits) {
        s->fitting++;
        *best = *slower ? *best : one;
    }
    return st == SW_E_NOMEM ? SW_OK : st;
}

/* Micro-batches of a power of two that divide a replica's batch, until one is slower than the last:
 * the larger ones fill and drain the pipeline longer still. */
static sw_status search_micro_batch(struct search *s, struct pub_prediction *best)
{
    enum { LARGEST = 16 };
    const int64_t batch = s->run->setup.global_batch * cuts_of(&s->run->setup) / s->run->devices;
    struct pub_prediction one = *best;
    bool slower = false;
    for (int64_t each = 1; each <= LARGEST && batch % each == 0 && !slower; each *= 2) {
        cut_batch(s->run, (double)each, &one);
        SW_TRY(try_one(s, one, best, &slower));
    }
    return SW_OK;
}

/* Chunks of at least one block, which need as many micro-batches as a multiple of the stages. */
static sw_status search_chunks(struct search *s, struct pub_prediction *best)
{
    const int64_t pipe = s->run->setup.pipe;
    struct pub_prediction one = *best;
    for (int64_t chunks = 2; chunks * pipe <= one.model.layers && one.micro_batches % pipe == 0;
         chunks++) {
        one.chunks = chunks;
        if (one.model.layers % (chunks * pipe) == 0) {
            bool slower;
            SW_TRY(try_one(s, one, best, &slower));
        }
    }
    return SW_OK;
}

/* Searches the micro-batch first, then the chunks with the best one. */
static sw_status search(struct search *s, bool micro_batch, struct pub_prediction *p)
{
    const bool chunks = s->run->setup.pipe > 1 && s->run->setup.chunks == 0;
    if (micro_batch) {
        SW_TRY(search_micro_batch(s, p));
    } else {
        bool slower;
        SW_TRY(try_one(s, *p, p, &slower));
    }
    if (chunks && s->fitting > 0) {
        SW_TRY(search_chunks(s, p));
    }
    if (s->fitting == 0) { /* says which bytes are missing */
        return predict(s->run, s->accounting, s->cluster, NULL, p);
    }
    const double each = p->rows * (double)cuts_of(&s->run->setup);
    if (micro_batch) {
        sw_str_printf(&p->assumed, "micro-batches of %.0f; ", each);
    }
    if (chunks) {
        sw_str_printf(&p->assumed, "%lld chunk%s a stage; ", (long long)p->chunks,
                      p->chunks == 1 ? "" : "s");
    }
    sw_str_printf(&p->assumed, "the fastest of %d plans that fit, of %d; ", s->fitting, s->tried);
    return SW_OK;
}

/* refusal: as for sw_lineup_try */
static sw_status predict_as(const struct pub_run *run, const struct sw_accounting *accounting,
                            const struct pub_fitted *fitted, struct sw_plan_refusal *refusal,
                            struct pub_prediction *out)
{
    struct sw_cluster *c = NULL;
    bool micro_batch = false;
    *out = (struct pub_prediction){0};
    SW_TRY(check(run, accounting));
    out->model = sw_published_model(run, &out->assumed);
    if (!find_batch(run, fitted, out, &micro_batch)) {
        return refuse(run, "setup.rows", "the batch is not published");
    }
    if (!run->setup.recompute && recomputes(run)) {
        sw_str_puts(&out->assumed, "all blocks are recomputed; ");
    }
    SW_TRY(sw_cluster_open(run->cluster, &c));
    fit_cluster(run, fitted, c, out);
    struct search s = {.run = run, .accounting = accounting, .cluster = c};
    const bool is_open = micro_batch || (run->setup.pipe > 1 && run->setup.chunks == 0);
    const sw_status st =
        is_open ? search(&s, micro_batch, out) : predict(run, accounting, c, refusal, out);
    sw_cluster_close(c);
    return st;
}

sw_status sw_published_predict(const struct pub_run *run, const struct sw_accounting *accounting,
                               const struct pub_fitted *as, struct pub_prediction *out)
{
    return predict_as(run, accounting, as ? as : &run->group->fitted, NULL, out);
}

sw_status sw_published_try(const struct pub_run *run, struct pub_prediction *out)
{
    struct sw_plan_refusal refusal;
    return predict_as(run, NULL, &run->group->fitted, &refusal, out);
}

sw_status sw_published_lanes(const struct pub_run *run, const struct pub_prediction *p,
                             struct sw_str *out)
{
    struct pub_prediction again = *p;
    struct pub_run ours = *run;
    struct sw_cluster *c = NULL;
    struct sw_lineup lineup;
    ours.setup = run->ours;
    SW_TRY(sw_cluster_open(run->cluster, &c));
    fit_cluster(run, &run->group->fitted, c, &again);
    sw_status st = open_lineup(&ours, p, true, NULL, &lineup);
    if (st >= 0) {
        const struct sw_cost_mesh mesh = {.cluster = c, .ranks = run->devices};
        st = sw_look_put_lanes(&lineup, &mesh, p->seconds, out);
        sw_lineup_close(&lineup);
    }
    sw_cluster_close(c);
    return st;
}

/* ---- capacities ---- */

/* A plan of ours, with what is assumed. */
static sw_status assume(const struct pub_run *run, struct pub_prediction *p)
{
    bool is_open;
    *p = (struct pub_prediction){0};
    p->model = sw_published_model(run, &p->assumed);
    return find_batch(run, &(struct pub_fitted){0}, p, &is_open)
               ? SW_OK
               : refuse(run, "setup.rows", "the batch is not published");
}

sw_status sw_published_fits(const struct pub_run *run, struct pub_prediction *out)
{
    struct sw_plan_refusal refusal;
    struct sw_lineup lineup;
    SW_TRY(assume(run, out));
    SW_TRY(open_lineup(run, out, true, &refusal, &lineup));
    find_tiers(&lineup, out);
    sw_lineup_close(&lineup);
    return SW_OK;
}

sw_status sw_published_most(const struct pub_run *run, struct look_most *out)
{
    struct pub_prediction p;
    struct asked a;
    sw_status st = assume(run, &p);
    sw_str_fini(&p.assumed);
    SW_TRY(st);
    st = ask(run, &p, true, &a);
    st = st < 0 ? st : sw_look_most_layers(&a.options, (int)run->devices, out);
    drop(&a);
    return st;
}
