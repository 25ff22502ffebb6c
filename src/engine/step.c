// SPDX-License-Identifier: Apache-2.0
// One optimizer step: K times forward and backward (or once for all of them, vertically), then the update. The canonical order of sums
// (docs/ARCHITECTURE.md, "What may change a bit"): each micro-batch's gradient is computed alone and added in the order of k.
//
// A step that fails is given up, and the engine is as it was before it, where nothing that counts has changed: before
// anything is updated, and where updates are written to a second place (plan->two_places) up to the last segment. On several
// ranks a disk that fails is kept for the end: its rank goes on with what the others wait for, and before
// the step counts all of them hear of it.
#include <math.h>

#include "engine/private.h"

bool sw_engine_writes_in_place(const struct sw_engine *e)
{
    return e->trains && e->plan->tier_bytes[SW_TIER_DISK] > 0 && !e->plan->two_places;
}

/* ---- steps that fail ---- */

/* Nothing that counts has changed: the next micro-batch begins a step. */
static sw_status give_up(struct sw_engine *e, sw_status st)
{
    char message[1024];
    snprintf(message, sizeof message, "%s", sw_error_message());
    sw_executor_hold_faults(e->executor, false);
    sw_executor_forget_fault(e->executor);
    sw_engine_pause_trace(e);
    e->n_forward = e->n_backward = 0;
    e->mend = true;
    return SW_FAIL(st, "%s", message);
}

/* changed: something of what counts may not be what it was. On several ranks others may be anywhere by now. */
static sw_status broke(struct sw_engine *e, sw_status st, bool changed)
{
    char message[1024];
    if (!changed && e->ranks == 1) {
        return give_up(e, st);
    }
    e->failed = true;
    sw_executor_hold_faults(e->executor, false);
    if (changed && sw_engine_writes_in_place(e)) {
        snprintf(message, sizeof message, "%s", sw_error_message());
        return SW_FAIL(st,
                       "%s; what is updated on the disk is written in place (spillway.disk_slots): "
                       "load a checkpoint or open again",
                       message);
    }
    return st;
}

/* Transfers may be under way between two segments: faults are held back from the first to the update. */
static sw_status run(struct sw_engine *e, enum sw_segment segment, bool idle)
{
    sw_executor_hold_faults(e->executor, e->ranks > 1 && e->plan->two_places);
    if (e->mend) {
        SW_TRY(sw_executor_mend(e->executor));
        e->mend = false;
    }
    return (idle ? sw_executor_run_idle : sw_executor_run)(e->executor, e->programs.train, segment);
}

/* ---- the parts of a step ---- */

static sw_status check_ready(const struct sw_engine *e)
{
    if (e->failed) {
        return SW_FAIL(
            SW_E_ARG, "an earlier step failed half way%s; load a checkpoint or open again",
            sw_engine_writes_in_place(e) ? ", and what it updates on the disk is written "
                                           "in place (spillway.disk_slots)"
                                         : "");
    }
    if (e->programs.train < 0) {
        return SW_FAIL(SW_E_ARG, "this engine was opened without training");
    }
    return SW_OK;
}

/* Its parts are those of the horizontal schedule. */
static sw_status check_horizontal(const struct sw_engine *e, const char *what)
{
    if (e->vertical) {
        return SW_FAIL(SW_E_CONFIG,
                       "%s: under spillway.schedule \"vertical\" all micro-batches of a step run "
                       "together: sw_train_batch does it",
                       what);
    }
    return SW_OK;
}

/* Whether one run of the training program computes all micro-batches of this rank. */
static bool runs_once(const struct sw_engine *e)
{
    return e->plan->programs[e->programs.train].micro_batches > 1;
}

/* What the kernels of this rank's micro-batch of round j read: k = j R + rank. */
static void set_round(struct sw_engine *e, int64_t j)
{
    struct sw_executor *ex = e->executor;
    const int64_t left = e->micro_batches - j * e->ranks;
    const int row = runs_once(e) ? (int)j : 0;
    const double micro = (double)(e->samples / e->batch + j * e->ranks + e->rank);
    sw_executor_set_of(ex, row, SW_SCALAR_SEED_LO, (double)(uint32_t)e->seed);
    sw_executor_set_of(ex, row, SW_SCALAR_SEED_HI, (double)(uint32_t)(e->seed >> 32));
    sw_executor_set_of(ex, row, SW_SCALAR_MICRO, micro);
    sw_executor_set_of(ex, row, SW_SCALAR_FIRST, j == 0);
    sw_executor_set_of(ex, row, SW_SCALAR_LOSS_SCALE, e->scaler.scale);
    sw_executor_set_active(ex, row, (int)sw_min_i64(left, e->ranks));
}

static bool is_last(const struct sw_engine *e, int64_t round)
{
    return e->trains && round == e->rounds - 1;
}

static sw_status read_loss(struct sw_engine *e, int64_t j)
{
    const sw_value *from = &e->loss_outputs[runs_once(e) ? 2 * j : 0];
    double *loss = &e->losses[2 * j];
    SW_TRY(sw_engine_read_scalar(e, e->programs.train, from[0], &loss[0]));
    return sw_engine_read_scalar(e, e->programs.train, from[1], &loss[1]);
}

static sw_status forward(struct sw_engine *e, const struct sw_batch *batch, double *out_loss)
{
    SW_TRY(check_ready(e));
    if (e->n_forward != e->n_backward) {
        return SW_FAIL(SW_E_ARG, "sw_forward: the backward of the micro-batch before is missing");
    }
    if (e->n_forward == e->local) {
        return SW_FAIL(SW_E_ARG, "sw_forward: a step has %lld micro-batches here; sw_step is due",
                       (long long)e->local);
    }
    if (e->n_forward == 0) {
        sw_engine_begin_trace(e);
    }
    SW_TRY(sw_engine_give_inputs(e, e->programs.train, 0, batch));
    set_round(e, e->n_forward);
    sw_executor_set_boundary(e->executor, is_last(e, e->n_forward));
    sw_status st = run(e, SW_SEGMENT_FORWARD, false);
    st = st < 0 ? st : read_loss(e, e->n_forward);
    if (st < 0) {
        return broke(e, st, false);
    }
    const double *loss = &e->losses[2 * e->n_forward];
    e->n_forward++;
    if (out_loss) {
        *out_loss = loss[1] > 0 ? loss[0] / loss[1] : 0;
    }
    return SW_OK;
}

sw_status sw_forward(sw_engine *e, const struct sw_batch *batch, double *out_loss)
{
    SW_TRY(check_horizontal(e, "sw_forward"));
    SW_TRY(check_ready(e));
    SW_TRY(sw_engine_check_inputs(e, e->programs.train, 0, batch));
    return forward(e, batch, out_loss);
}

/* All ranks know all losses, so that all print, and scale by, the same. */
static sw_status total_losses(struct sw_engine *e)
{
    const double *all = e->losses;
    if (e->ranks > 1) {
        SW_TRY(sw_comm_all_gather(e->options.comm, e->losses, e->all_losses,
                                  2 * (size_t)e->rounds * sizeof *e->losses, "the losses"));
        all = e->all_losses;
    }
    struct engine_totals t = {0};
    for (int64_t k = 0; k < e->micro_batches; k++) {
        const double *loss = &all[2 * (k % e->ranks * e->rounds + k / e->ranks)];
        t.sum += loss[0];
        t.count += loss[1];
        t.means += loss[1] > 0 ? loss[0] / loss[1] : 0;
    }
    e->totals = t;
    return SW_OK;
}

/* 1/K and 1/scale, or one over all targets, are applied once to the fp32 sum. */
static void set_boundary(struct sw_engine *e)
{
    struct sw_executor *ex = e->executor;
    const double targets = e->totals.count;
    double share = 1.0 / (double)e->micro_batches;
    if (e->token_mean) {
        const struct sw_graph *g = e->plan->programs[e->programs.train].graph;
        const struct sw_op *mean = &g->ops[g->values[sw_graph_find_output(g, "loss")].producer];
        share = targets > 0 ? 1 / (mean->attrs.loss_mean.weight * targets) : 0;
    }
    e->rates = sw_schedule_at(&e->schedule, 0, e->applied);
    if (!isnan(e->lr_override)) {
        e->rates.lr = e->lr_override;
    }
    sw_executor_set(ex, SW_SCALAR_GRAD_FACTOR, share / e->scaler.scale);
    sw_executor_set(ex, SW_SCALAR_OVERFLOW_FACTOR, share);
    sw_executor_set(ex, SW_SCALAR_LR, e->rates.lr);
    sw_executor_set(ex, SW_SCALAR_BETA1,
                    e->rule.attrs.kind == SW_UPDATE_SGD ? e->rule.momentum : e->rates.beta1);
    sw_executor_set(ex, SW_SCALAR_BETA2, e->rates.beta2);
    sw_executor_set(ex, SW_SCALAR_STEP, (double)(e->applied + 1));
    if (e->plan->boundary_in_backward) { /* neither is known before the last update */
        sw_executor_set(ex, SW_SCALAR_CLIP, 1);
        sw_executor_set(ex, SW_SCALAR_SKIP, 0);
    }
}

/* Before the last backward of a step where norms or updates run within it, else before the update. */
static sw_status reach_boundary(struct sw_engine *e)
{
    SW_TRY(total_losses(e));
    set_boundary(e);
    return SW_OK;
}

static sw_status run_backward(struct sw_engine *e)
{
    if (is_last(e, e->n_backward) && e->plan->boundary_in_backward) {
        SW_TRY(reach_boundary(e));
    }
    return run(e, SW_SEGMENT_BACKWARD, false);
}

static bool may_have_updated(const struct sw_engine *e)
{
    return e->plan->updates_in_backward && !e->plan->two_places;
}

static sw_status backward(struct sw_engine *e)
{
    SW_TRY(check_ready(e));
    if (e->n_backward != e->n_forward - 1) {
        return SW_FAIL(SW_E_ARG, "sw_backward: there is no forward to go back through");
    }
    const sw_status st = run_backward(e);
    if (st < 0) {
        return broke(e, st, e->n_backward == e->rounds - 1 && may_have_updated(e));
    }
    e->n_backward++;
    return SW_OK;
}

sw_status sw_backward(sw_engine *e)
{
    SW_TRY(check_horizontal(e, "sw_backward"));
    return backward(e);
}

/* All micro-batches of this rank, each at its place of one program; in the last ones the rank may be idle. */
static sw_status run_vertical(struct sw_engine *e)
{
    for (int64_t j = 0; j < e->rounds; j++) {
        set_round(e, j);
    }
    sw_executor_set_boundary(e->executor, e->trains);
    SW_TRY(run(e, SW_SEGMENT_FORWARD, false));
    for (int64_t j = 0; j < e->local; j++) {
        SW_TRY(read_loss(e, j));
    }
    if (e->trains && e->plan->boundary_in_backward) {
        SW_TRY(reach_boundary(e));
    }
    return run(e, SW_SEGMENT_BACKWARD, false);
}

static sw_status vertical(struct sw_engine *e, const struct sw_batch *micro_batches)
{
    SW_TRY(check_ready(e));
    sw_engine_begin_trace(e);
    for (int64_t j = 0; j < e->local; j++) {
        SW_TRY(sw_engine_give_inputs(e, e->programs.train, (int)j, &micro_batches[j]));
    }
    const sw_status st = run_vertical(e);
    if (st < 0) {
        return broke(e, st, may_have_updated(e));
    }
    e->n_forward = e->n_backward = e->local;
    return SW_OK;
}

/* A rank without a micro-batch in the last round still serves the others there. */
static sw_status idle_round(struct sw_engine *e)
{
    if (e->local == e->rounds || runs_once(e)) {
        return SW_OK;
    }
    set_round(e, e->rounds - 1);
    sw_executor_set_boundary(e->executor, true);
    SW_TRY(run(e, SW_SEGMENT_FORWARD, true));
    if (e->plan->boundary_in_backward) {
        SW_TRY(reach_boundary(e));
    }
    return run(e, SW_SEGMENT_BACKWARD, true);
}

static sw_status run_update(struct sw_engine *e)
{
    SW_TRY(idle_round(e));
    if (!e->plan->boundary_in_backward) {
        SW_TRY(reach_boundary(e));
    }
    return run(e, SW_SEGMENT_UPDATE, false);
}

/* What was written beside what is counts from here on, on all ranks or on none. */
static sw_status settle(struct sw_engine *e)
{
    const struct sw_program *program = &e->plan->programs[e->programs.train];
    sw_executor_hold_faults(e->executor, false);
    if (e->ranks > 1) {
        const sw_status st =
            sw_engine_agree(e, sw_executor_fault(e->executor), "the end of a step");
        if (st < 0) {
            return give_up(e, st);
        }
    }
    if (program->segment_first[SW_SEGMENT_SETTLE] < program->n_instrs) {
        const sw_status st = sw_executor_run(e->executor, e->programs.train, SW_SEGMENT_SETTLE);
        if (st < 0) {
            return broke(e, st, true);
        }
    }
    if (sw_executor_get(e->executor, SW_SCALAR_SKIP) == 0) {
        sw_executor_commit(e->executor);
    }
    return SW_OK;
}

static sw_status step(struct sw_engine *e, struct sw_step_report *out)
{
    SW_TRY(check_ready(e));
    if (!e->trains) {
        return SW_FAIL(SW_E_CONFIG, "optimizer: the configuration has no such block");
    }
    if (e->n_backward != e->local || e->n_forward != e->local) {
        return SW_FAIL(SW_E_ARG, "sw_step: %lld of %lld micro-batches are done",
                       (long long)e->n_backward, (long long)e->local);
    }
    if (e->local == 0 && !runs_once(e)) {
        sw_engine_begin_trace(e);
    }
    const sw_status st = run_update(e);
    if (st < 0) {
        return broke(e, st, !e->plan->two_places);
    }
    if (e->plan->two_places) {
        SW_TRY(settle(e));
    }
    const struct engine_totals totals = e->totals;
    struct sw_step_report report = {
        .loss = e->token_mean ? (totals.count > 0 ? totals.sum / totals.count : 0)
                              : totals.means / (double)e->micro_batches,
        .grad_norm = sw_executor_get(e->executor, SW_SCALAR_NORM),
        .lr = e->rates.lr,
        .loss_scale = e->scaler.scale,
        .skipped = sw_executor_get(e->executor, SW_SCALAR_SKIP) != 0,
        .targets = totals.count,
    };
    e->n_forward = e->n_backward = 0;
    e->step++;
    e->samples += e->batch * e->micro_batches;
    e->applied += !report.skipped;
    report.step = e->step;
    report.applied = e->applied;
    report.samples = e->samples;
    SW_TRY(sw_engine_end_trace(e));
    SW_TRY(sw_scaler_update(&e->scaler, report.skipped));
    if (out) {
        *out = report;
    }
    return SW_OK;
}

sw_status sw_step(sw_engine *e, struct sw_step_report *out)
{
    SW_TRY(check_horizontal(e, "sw_step"));
    return step(e, out);
}

sw_status sw_train_batch(sw_engine *e, const struct sw_batch *micro_batches, int64_t n,
                         struct sw_step_report *out)
{
    if (n != e->local) {
        return SW_FAIL(SW_E_ARG, "sw_train_batch: %lld micro-batches given, a step has %lld here",
                       (long long)n, (long long)e->local);
    }
    if (e->n_forward != 0) {
        return SW_FAIL(SW_E_ARG, "sw_train_batch: a step is under way");
    }
    SW_TRY(check_ready(e));
    for (int64_t j = 0; j < n; j++) { /* all of them before the first one runs */
        const sw_status st = sw_engine_check_inputs(e, e->programs.train, runs_once(e) ? (int)j : 0,
                                                    &micro_batches[j]);
        if (st < 0) {
            return sw_fail_prefix(st, "micro-batch %lld", (long long)j);
        }
    }
    if (runs_once(e)) {
        SW_TRY(vertical(e, micro_batches));
        return step(e, out);
    }
    for (int64_t k = 0; k < n; k++) {
        SW_TRY(forward(e, &micro_batches[k], NULL));
        SW_TRY(backward(e));
    }
    return step(e, out);
}

sw_status sw_engine_agree(struct sw_engine *e, sw_status st, const char *what)
{
    return e->ranks == 1 ? st : sw_comm_agree(e->options.comm, st, what);
}

static sw_status check_idle(const struct sw_engine *e, int i_program, const char *what)
{
    if (i_program < 0) {
        return SW_FAIL(SW_E_ARG, "%s: the engine was opened without it", what);
    }
    if (e->n_forward != 0) {
        return SW_FAIL(SW_E_ARG, "%s: a step is under way", what);
    }
    return SW_OK;
}

sw_status sw_evaluate(sw_engine *e, const struct sw_batch *batch, double *out_sum,
                      double *out_count)
{
    SW_TRY(check_idle(e, e->programs.eval, "sw_evaluate"));
    SW_TRY(sw_engine_check_inputs(e, e->programs.eval, 0, batch));
    SW_TRY(sw_engine_give_inputs(e, e->programs.eval, 0, batch));
    SW_TRY(sw_executor_run(e->executor, e->programs.eval, SW_SEGMENT_FORWARD));
    double sum = 0, count = 0;
    SW_TRY(sw_engine_read_scalar(e, e->programs.eval, e->eval_sum, &sum));
    SW_TRY(sw_engine_read_scalar(e, e->programs.eval, e->eval_count, &count));
    *out_sum = sum;
    *out_count = count;
    return SW_OK;
}

sw_status sw_engine_read_output(struct sw_engine *e, int i_program, sw_value v, float *out)
{
    const struct sw_value_info *info = &e->plan->programs[i_program].graph->values[v];
    const int64_t n = sw_shape_elems(&info->shape);
    if (info->dtype == SW_F32) {
        return sw_executor_read(e->executor, i_program, v, out, (size_t)n * sizeof *out);
    }
    /* The narrow values are read into the tail of out and widened from the front. */
    char *narrow = (char *)out + (size_t)n * (sizeof *out - sw_dtype_bytes(info->dtype));
    SW_TRY(sw_executor_read(e->executor, i_program, v, narrow,
                            (size_t)n * sw_dtype_bytes(info->dtype)));
    for (int64_t i = 0; i < n; i++) {
        const double value = sw_load_f64(info->dtype, narrow, i);
        out[i] = (float)value;
    }
    return SW_OK;
}

int64_t sw_logits_elems(const sw_engine *e)
{
    if (e->programs.logits < 0) {
        return 0;
    }
    const struct sw_graph *g = e->plan->programs[e->programs.logits].graph;
    return sw_shape_elems(&g->values[sw_graph_find_output(g, "logits")].shape);
}

sw_status sw_logits(sw_engine *e, const struct sw_batch *batch, float *out)
{
    SW_TRY(check_idle(e, e->programs.logits, "sw_logits"));
    SW_TRY(sw_engine_check_inputs(e, e->programs.logits, 0, batch));
    SW_TRY(sw_engine_give_inputs(e, e->programs.logits, 0, batch));
    SW_TRY(sw_executor_run(e->executor, e->programs.logits, SW_SEGMENT_FORWARD));
    const struct sw_graph *g = e->plan->programs[e->programs.logits].graph;
    return sw_engine_read_output(e, e->programs.logits, sw_graph_find_output(g, "logits"), out);
}
