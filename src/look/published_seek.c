// SPDX-License-Identifier: Apache-2.0
// What a published run does not say, and has no default: its batch, its ZeRO stage, where its
// states are, its mesh. The nearest place that fits is taken, and of its plans in ours the fastest.
#include <string.h>

#include "cluster/cluster.h"
#include "look/published.h"

enum {
    MOST_SAMPLES = 4096,
    FULL_STAGE = 3,
    /* Micro-batches of a pipeline whose batch is not published, per stage: from 4 on the bubble
     * hardly matters (Huang et al. 2019, GPipe, arXiv 1811.06965, section 2). */
    ROUNDS_OF_A_STAGE = 4
};

struct seek {
    struct pub_run trial;
    struct pub_setup found;
    struct pub_prediction best; /* of what was found; tflops 0 = nothing fits yet */
    double latest;              /* TFLOP/s of the mesh that was tried last; 0 = it does not fit */
    int64_t layers, tensor;     /* blocks of the model; most slices */
    int fitting;
};

static bool is_on_device(const char *where)
{
    return !where || strcmp(where, "device") == 0;
}

/* The fastest yet, or released. */
static void keep(struct seek *s, const struct pub_setup *setup, struct pub_prediction *p)
{
    s->fitting++;
    s->latest = p->tflops;
    if (p->tflops <= s->best.tflops) {
        sw_str_fini(&p->assumed);
        return;
    }
    sw_str_fini(&s->best.assumed);
    s->best = *p;
    s->found = *setup;
}

/* A setup that fits the cluster replaces the last one that did. */
static sw_status try_setup(struct seek *s, const struct pub_setup *setup, bool *fits,
                           struct pub_setup *last, struct pub_prediction *of_last)
{
    struct pub_prediction p;
    s->trial.setup = *setup;
    const sw_status st = sw_published_try(&s->trial, &p);
    *fits = st >= 0 && p.fits;
    sw_str_fini(*fits ? &of_last->assumed : &p.assumed);
    *last = *fits ? *setup : *last;
    *of_last = *fits ? p : *of_last;
    return st == SW_E_NOMEM ? SW_OK : st;
}

/* The largest micro-batch of a power of two. */
static sw_status try_batches(struct seek *s, struct pub_setup setup)
{
    const int64_t pipe = sw_max_i64(1, setup.pipe), cuts = pipe * sw_max_i64(1, setup.tensor);
    const bool is_unknown = setup.unknown & PUB_BATCH;
    struct pub_setup last = setup;
    struct pub_prediction of_last = {0};
    bool fits = true;
    sw_status st = SW_OK;
    s->latest = 0;
    setup.unknown &= ~(unsigned)PUB_BATCH;
    if (is_unknown && pipe > 1) {
        setup.micro_batches = pipe * ROUNDS_OF_A_STAGE;
    }
    for (int64_t each = 1; each <= (is_unknown ? MOST_SAMPLES : 1) && fits && st >= 0; each *= 2) {
        setup.rows = is_unknown ? (double)each / (double)cuts : setup.rows;
        st = try_setup(s, &setup, &fits, &last, &of_last);
    }
    if (of_last.tflops > 0) {
        keep(s, &last, &of_last);
    }
    return st;
}

/* Tensor slices take the devices of a node if the heads allow it, and stages other nodes (Narayanan
 * et al. 2021, arXiv 2104.04473, takeaway 1): twice as many, until they are slower. */
static sw_status try_meshes(struct seek *s, struct pub_setup setup)
{
    double fewer = 0;
    if (!(setup.unknown & PUB_MESH)) {
        return try_batches(s, setup);
    }
    setup.unknown &= ~(unsigned)PUB_MESH;
    setup.tensor = s->tensor;
    setup.chunks = 1;
    for (setup.pipe = 1; setup.pipe <= sw_min_i64(s->trial.nodes, s->layers); setup.pipe *= 2) {
        if (s->trial.nodes % setup.pipe == 0) {
            SW_TRY(try_batches(s, setup));
            if (s->latest < fewer) {
                break;
            }
            fewer = s->latest;
        }
    }
    return SW_OK;
}

/* Optimizer states off the device need a stage that divides them, and parameters stage 3. */
static sw_status try_stages(struct seek *s, struct pub_setup setup)
{
    if (!(setup.unknown & PUB_STAGE)) {
        return try_meshes(s, setup);
    }
    setup.unknown &= ~(unsigned)PUB_STAGE;
    setup.stage = !is_on_device(setup.parameters) ? FULL_STAGE : !is_on_device(setup.states);
    for (; setup.stage <= FULL_STAGE; setup.stage++) {
        SW_TRY(try_meshes(s, setup));
    }
    return SW_OK;
}

/* From the device outwards, until something fits. */
static sw_status try_places(struct seek *s, struct pub_setup setup)
{
    static const struct {
        const char *states, *parameters;
    } places[] = {{"device", "device"},
                  {"host", "device"},
                  {"host", "host"},
                  {"nvme", "host"},
                  {"nvme", "nvme"}};
    const bool full = setup.stage == FULL_STAGE || setup.unknown & PUB_STAGE;
    if (!(setup.unknown & PUB_PLACE)) {
        return try_stages(s, setup);
    }
    setup.unknown &= ~(unsigned)PUB_PLACE;
    for (size_t i = 0; i < SW_LEN(places) && s->fitting == 0; i++) {
        setup.states = places[i].states;
        setup.parameters = places[i].parameters;
        if (full || is_on_device(setup.parameters)) {
            SW_TRY(try_stages(s, setup));
        }
    }
    return SW_OK;
}

/* ---- what was found ---- */

static void say(const struct seek *s, unsigned unknown, struct sw_str *out)
{
    const struct pub_setup *f = &s->found;
    const int64_t pipe = sw_max_i64(1, f->pipe), tensor = sw_max_i64(1, f->tensor);
    if (unknown & PUB_MESH) {
        sw_str_printf(out, "%lld ranks along tensor, %lld stages; ", (long long)tensor,
                      (long long)pipe);
    }
    if (unknown & PUB_STAGE) {
        sw_str_printf(out, "ZeRO stage %lld; ", (long long)f->stage);
    }
    if (unknown & PUB_PLACE) {
        sw_str_printf(out, "states: %s, parameters: %s; ", f->states, f->parameters);
    }
    if (unknown & PUB_BATCH) {
        if (pipe > 1) {
            sw_str_printf(out, "%lld ", (long long)f->micro_batches);
        }
        sw_str_printf(out, "micro-batches of %.0f, the largest that fit; ",
                      f->rows * (double)(tensor * pipe));
    }
    if (s->fitting > 1) {
        sw_str_printf(out, "the fastest in ours of %d that fit; ", s->fitting);
    }
}

static void take(const struct pub_setup *found, struct pub_setup *out)
{
    if (out->unknown & PUB_BATCH) {
        out->rows = found->rows;
        out->micro_batches = found->micro_batches;
    }
    if (out->unknown & PUB_STAGE) {
        out->stage = found->stage;
    }
    if (out->unknown & PUB_PLACE) {
        out->states = found->states;
        out->parameters = found->parameters;
    }
    if (out->unknown & PUB_MESH) {
        out->tensor = found->tensor;
        out->pipe = found->pipe;
        out->chunks = found->chunks;
    }
    out->unknown = 0;
}

/* Asks for the last plan again, with advice. */
static sw_status refuse(const struct seek *s)
{
    struct pub_prediction p;
    const sw_status st = sw_published_predict(&s->trial, NULL, NULL, &p);
    sw_str_fini(&p.assumed);
    return st < 0 ? sw_fail_prefix(st, "no plan of ours fits; the last one that was tried")
                  : SW_FAIL(SW_E_NOMEM, "no plan of ours fits");
}

static sw_status find_sizes(struct seek *s)
{
    struct sw_cluster *c = NULL;
    struct sw_str assumed = {0};
    SW_TRY(sw_cluster_open(s->trial.cluster, &c));
    s->tensor = sw_min_i64(s->trial.devices, (int64_t)c->node.devices.value);
    sw_cluster_close(c);
    const struct pub_model model = sw_published_model(&s->trial, &assumed);
    sw_str_fini(&assumed);
    s->layers = model.layers;
    while (model.heads % s->tensor > 0) {
        s->tensor /= 2;
    }
    return SW_OK;
}

sw_status sw_published_seek(struct pub_run *run, struct pub_prediction *ours)
{
    struct seek s = {.trial = *run};
    *ours = (struct pub_prediction){0};
    sw_status st = find_sizes(&s);
    st = st < 0 ? st : try_places(&s, run->ours);
    st = st >= 0 && s.fitting == 0 ? refuse(&s) : st;
    if (st < 0) {
        sw_str_fini(&s.best.assumed);
        return st;
    }
    *ours = s.best;
    say(&s, run->ours.unknown, &ours->assumed);
    take(&s.found, &run->setup);
    take(&s.found, &run->ours);
    return SW_OK;
}
