// SPDX-License-Identifier: Apache-2.0
// One optimizer step: the executor runs the phases of the plan's step in order. Between phases the
// engine provides micro-batches, the losses of all ranks and the rates of the step. Sums have a
// canonical order: each micro-batch's gradient is computed alone and added in the order of k. If a
// step fails in a phase that can be rolled back, the engine returns to the state before the step.
// On several ranks a disk failure is deferred: the rank keeps taking part, and all ranks learn of
// it before the step counts.
#include "engine/private.h"

static const struct sw_step *step_of(const struct sw_engine *e)
{
    return &e->plan->step;
}

static const struct sw_step_phase *next_phase(const struct sw_engine *e)
{
    return &e->plan->step.phases[e->progress.phase];
}

bool sw_engine_writes_in_place(const struct sw_engine *e)
{
    return e->optimizer.trains && e->plan->tier_bytes[SW_TIER_DISK] > 0 &&
           !e->plan->update.two_slots;
}

/* ---- steps that fail ---- */

/* Rolls the step back. No committed state has changed: the next micro-batch begins a new step. */
static sw_status give_up(struct sw_engine *e, sw_status st)
{
    char message[1024];
    snprintf(message, sizeof message, "%s", sw_error_message());
    sw_executor_forget_fault(e->executor);
    sw_engine_pause_trace(e);
    e->progress.phase = 0;
    e->progress.rolled_back = true;
    return SW_FAIL(st, "%s", message);
}

/* Handles the failure of the current phase. Other ranks may be in any phase by now, unless they
 * agreed. */
static sw_status fail_step(struct sw_engine *e, sw_status st)
{
    char message[1024];
    const bool safe = e->progress.phase < step_of(e)->n_safe;
    if (safe && (e->world.size == 1 || next_phase(e)->action == SW_STEP_AGREE)) {
        return give_up(e, st);
    }
    e->progress.failed = true;
    if (!safe && sw_engine_writes_in_place(e)) {
        snprintf(message, sizeof message, "%s", sw_error_message());
        return SW_FAIL(
            st,
            "%s; updates on the disk are written in place (spillway.disk_slots), so load a "
            "checkpoint or open again",
            message);
    }
    return st;
}

static sw_status check_ready(const struct sw_engine *e)
{
    if (e->progress.failed) {
        return SW_FAIL(SW_E_ARG,
                       "an earlier step failed half way%s; load a checkpoint or open again",
                       sw_engine_writes_in_place(e)
                           ? ", and updates on the disk are written in place (spillway.disk_slots)"
                           : "");
    }
    if (e->programs.train < 0) {
        return SW_FAIL(SW_E_ARG, "this engine was opened without training");
    }
    return SW_OK;
}

/* ---- values from outside the plan ---- */

/* Sets the values that the kernels read for this rank's micro-batch of round j: k = j R + r, where
 * r is its number along the data axis. */
static void set_round(struct sw_engine *e, int64_t j)
{
    struct sw_executor *ex = e->executor;
    const double micro =
        (double)(e->progress.samples / e->sizes.batch + j * e->data.size + e->data.rank);
    sw_executor_set_of(ex, j, SW_SCALAR_SEED_LO, (double)(uint32_t)e->seed);
    sw_executor_set_of(ex, j, SW_SCALAR_SEED_HI, (double)(uint32_t)(e->seed >> 32));
    sw_executor_set_of(ex, j, SW_SCALAR_MICRO, micro);
    sw_executor_set_of(ex, j, SW_SCALAR_FIRST, j == 0);
    sw_executor_set_of(ex, j, SW_SCALAR_LOSS_SCALE, e->optimizer.scaler.scale);
}

/* Repairs what a step that was rolled back has left. */
static sw_status recover(struct sw_engine *e)
{
    if (e->progress.rolled_back) {
        SW_TRY(sw_executor_roll_back(e->executor));
        e->progress.rolled_back = false;
    }
    return SW_OK;
}

static sw_status begin_step(struct sw_engine *e)
{
    sw_engine_begin_trace(e);
    SW_TRY(recover(e));
    for (int64_t j = 0; j < e->sizes.rounds; j++) {
        set_round(e, j);
    }
    return SW_OK;
}

/* Does not wait: the value is there once the executor has joined. Of a pipeline's stages, the last
 * one has the losses. */
static sw_status fetch_loss(struct sw_engine *e, int64_t j, int micro)
{
    const int n = 2 * e->loss.n_terms;
    const struct sw_port *const *from = &e->loss.outputs[n * micro];
    const struct sw_port *const *totals = e->loss.totals[micro];
    for (int i = 0; i < n && from[i]; i++) {
        SW_TRY(sw_executor_fetch(e->executor, from[i], j, i));
    }
    for (int i = 0, at = n; i < SW_ENGINE_TOTALS; i++) {
        SW_TRY(totals[i] ? sw_executor_fetch(e->executor, totals[i], j, at) : SW_OK);
        at += totals[i] ? (int)sw_shape_elems(&totals[i]->shape) : 0;
    }
    return SW_OK;
}

static void take_loss(struct sw_engine *e, int64_t j)
{
    const int n = e->loss.outputs[0] ? sw_engine_n_sums(&e->loss) : 0;
    for (int i = 0; i < n; i++) {
        e->loss.local[n * j + i] = sw_executor_fetched(e->executor, j, i);
    }
}

/* All ranks get all losses, so that all print the same loss and use the same scale. */
static sw_status total_losses(struct sw_engine *e)
{
    struct engine_loss *l = &e->loss;
    if (e->world.size > 1) {
        const size_t n = (size_t)(sw_engine_n_sums(l) * e->sizes.rounds);
        SW_TRY(sw_comm_all_gather(e->options.run.comm, l->local, l->all, n * sizeof *l->local,
                                  "the losses"));
    }
    sw_engine_total_losses(l, &e->sizes, &e->mesh);
    return SW_OK;
}

/* Applies 1/K (or 1 over all targets) and 1/scale once, to the fp32 sum. Norm and overflow are not
 * yet known. */
static void set_rates(struct sw_engine *e)
{
    struct engine_optimizer *o = &e->optimizer;
    struct sw_executor *ex = e->executor;
    const double share = sw_engine_loss_share(&e->loss, &e->sizes);
    const double t = (double)(e->progress.applied + 1);
    sw_engine_next_rates(o, e->progress.applied);
    sw_executor_set(ex, SW_SCALAR_GRAD_FACTOR, share / o->scaler.scale);
    sw_executor_set(ex, SW_SCALAR_OVERFLOW_FACTOR, share);
    sw_executor_set(ex, SW_SCALAR_LR, o->rates.lr);
    sw_executor_set(ex, SW_SCALAR_BETA1, o->rates.beta1);
    sw_executor_set(ex, SW_SCALAR_BETA2, o->rates.beta2);
    sw_executor_set(ex, SW_SCALAR_STEP, t);
    sw_executor_set(ex, SW_SCALAR_SQUARES_KEPT, sw_update_squares_kept(&o->rule.attrs, t));
    sw_executor_set(ex, SW_SCALAR_CLIP, 1);
    sw_executor_set(ex, SW_SCALAR_SKIP, 0);
}

static sw_status on_losses(void *ctx)
{
    struct sw_engine *e = ctx;
    for (int64_t j = 0; j < e->sizes.local; j++) {
        take_loss(e, j);
    }
    SW_TRY(total_losses(ctx));
    set_rates(ctx);
    return SW_OK;
}

static sw_status on_agree(void *ctx, sw_status fault)
{
    return sw_engine_agree(ctx, fault, "the end of a step");
}

/* ---- running the phases ---- */

static bool is_run(const struct sw_step_phase *phase, enum sw_segment segment)
{
    return phase->action == SW_STEP_RUN && phase->segment == segment;
}

/* True if phase i is a forward of micro-batches of this rank. */
static bool is_forward(const struct sw_engine *e, int32_t i)
{
    const struct sw_step *step = step_of(e);
    return i >= 0 && i < step->n_phases && is_run(&step->phases[i], SW_SEGMENT_FORWARD) &&
           step->phases[i].n_micro > 0;
}

/* Runs the next phase. micro_batches: the checked micro-batches that it computes; NULL = none. */
static sw_status advance(struct sw_engine *e, const struct sw_batch *micro_batches)
{
    const struct sw_step_phase *phase = next_phase(e);
    const struct sw_step_hooks hooks = {e, on_losses, on_agree};
    const int n = is_forward(e, e->progress.phase) ? phase->n_micro : 0;
    if (e->progress.phase == 0) {
        const sw_status begun = begin_step(e);
        if (begun < 0) {
            return fail_step(e, begun);
        }
    }
    for (int i = 0; i < n && phase->chunk == 0; i++) {
        SW_TRY(sw_engine_give_inputs(e, e->programs.train, i, phase->round + i, &micro_batches[i]));
    }
    sw_status st = sw_executor_walk(e->executor, &hooks, &e->progress.phase, e->progress.phase + 1);
    const bool has_loss = phase->chunk == e->config->parallel.chunks - 1;
    for (int i = 0; i < n && has_loss && st >= 0; i++) {
        st = fetch_loss(e, phase->round + i, i);
    }
    return st < 0 ? fail_step(e, st) : SW_OK;
}

sw_status sw_engine_settle(struct sw_engine *e)
{
    int32_t at;
    if (e->executor && e->progress.phase == 0) {
        sw_executor_forget_read(e->executor); /* the caller may use its memory, or change tensors */
    }
    if (!e->executor || e->progress.phase > 0 || !sw_executor_is_due(e->executor)) {
        return SW_OK; /* a forward has run it */
    }
    SW_TRY(check_ready(e));
    const struct sw_step_hooks hooks = {e, on_losses, on_agree};
    SW_TRY(recover(e));
    const sw_status st = sw_executor_settle(e->executor, &hooks, &at);
    if (st >= 0) {
        return SW_OK;
    }
    if (e->world.size == 1 || step_of(e)->phases[at].action == SW_STEP_AGREE) {
        return give_up(e, st);
    }
    e->progress.failed = true;
    return st;
}

/* Waits until the results and the communicator are available to the caller. */
static sw_status join(struct sw_engine *e)
{
    const sw_status st = sw_executor_join(e->executor);
    return st < 0 ? fail_step(e, st) : SW_OK;
}

/* Runs up to and including the next backward. */
static sw_status go_back(struct sw_engine *e)
{
    while (!is_run(next_phase(e), SW_SEGMENT_BACKWARD)) {
        SW_TRY(advance(e, NULL));
    }
    return advance(e, NULL);
}

static void count_step(struct sw_engine *e, struct sw_step_report *out)
{
    *out = (struct sw_step_report){
        .loss = sw_engine_step_loss(&e->loss, &e->sizes),
        .grad_norm = sw_executor_get(e->executor, SW_SCALAR_NORM),
        .lr = e->optimizer.rates.lr,
        .loss_scale = e->optimizer.scaler.scale,
        .skipped = sw_executor_get(e->executor, SW_SCALAR_SKIP) != 0,
        .targets = e->loss.count,
    };
    struct engine_progress *p = &e->progress;
    p->phase = 0;
    p->step++;
    p->samples += e->sizes.batch * e->sizes.micro_batches;
    p->applied += !out->skipped;
    out->step = p->step;
    out->applied = p->applied;
    out->samples = p->samples;
}

/* Runs the remaining phases. micro_batches: checked, by round; NULL = no forward remains */
static sw_status finish(struct sw_engine *e, const struct sw_batch *micro_batches,
                        struct sw_step_report *out)
{
    while (e->progress.phase < step_of(e)->n_phases) {
        const bool forward = is_forward(e, e->progress.phase);
        SW_TRY(advance(e, forward ? &micro_batches[next_phase(e)->round] : NULL));
    }
    struct sw_step_report report;
    count_step(e, &report);
    SW_TRY(sw_engine_end_trace(e));
    SW_TRY(sw_scaler_update(&e->optimizer.scaler, report.skipped));
    if (out) {
        *out = report;
    }
    return SW_OK;
}

/* ---- public calls ---- */

/* A step in parts takes one micro-batch at a time, so each must run alone. */
static sw_status check_parts(const struct sw_engine *e, const char *what)
{
    if (e->config->parallel.pipe > 1) {
        return SW_FAIL(SW_E_CONFIG,
                       "%s: with spillway.mesh.pipe %lld the stages run several micro-batches at "
                       "once: sw_train_batch does it",
                       what, (long long)e->config->parallel.pipe);
    }
    if (sw_engine_runs_at_once(e)) {
        return SW_FAIL(SW_E_CONFIG,
                       "%s: under spillway.schedule \"%s\" all micro-batches of a step run "
                       "together: sw_train_batch does it",
                       what, sw_schedule_name((enum sw_step_schedule)e->config->spillway.schedule));
    }
    return check_ready(e);
}

sw_status sw_forward(sw_engine *e, const struct sw_batch *batch, double *out_loss)
{
    SW_TRY(check_parts(e, "sw_forward"));
    if (is_forward(e, e->progress.phase - 1)) {
        return SW_FAIL(SW_E_ARG, "sw_forward: the backward of the micro-batch before is missing");
    }
    if (!is_forward(e, e->progress.phase)) {
        return SW_FAIL(SW_E_ARG, "sw_forward: a step has %lld micro-batches here; sw_step is due",
                       (long long)e->sizes.local);
    }
    SW_TRY(sw_engine_check_inputs(e, e->programs.train, 0, batch));
    const int64_t round = next_phase(e)->round;
    SW_TRY(advance(e, batch));
    SW_TRY(join(e));
    take_loss(e, round);
    if (out_loss) {
        *out_loss = sw_engine_mean_loss(e, &e->loss.local[sw_engine_n_sums(&e->loss) * round]);
    }
    return SW_OK;
}

sw_status sw_backward(sw_engine *e)
{
    SW_TRY(check_parts(e, "sw_backward"));
    if (!is_forward(e, e->progress.phase - 1)) {
        return SW_FAIL(SW_E_ARG, "sw_backward: wanted a call of sw_forward before");
    }
    SW_TRY(go_back(e));
    return join(e);
}

static sw_status check_trains(const struct sw_engine *e)
{
    return e->optimizer.trains
               ? SW_OK
               : SW_FAIL(SW_E_CONFIG, "optimizer: the configuration has no such block");
}

/* Number of this rank's micro-batches whose backward is done. */
static int64_t n_done(const struct sw_engine *e)
{
    int64_t n = 0;
    for (int32_t i = 0; i < e->progress.phase; i++) {
        const struct sw_step_phase *phase = &step_of(e)->phases[i];
        n += is_run(phase, SW_SEGMENT_BACKWARD) ? phase->n_micro : 0;
    }
    return n;
}

sw_status sw_step(sw_engine *e, struct sw_step_report *out)
{
    SW_TRY(check_parts(e, "sw_step"));
    SW_TRY(check_trains(e));
    if (n_done(e) != e->sizes.local || is_forward(e, e->progress.phase - 1)) {
        return SW_FAIL(SW_E_ARG, "sw_step: %lld of %lld micro-batches are done",
                       (long long)n_done(e), (long long)e->sizes.local);
    }
    return finish(e, NULL, out);
}

sw_status sw_train_batch(sw_engine *e, const struct sw_batch *micro_batches, int64_t n,
                         struct sw_step_report *out)
{
    if (n != e->sizes.local) {
        return SW_FAIL(SW_E_ARG, "sw_train_batch: %lld micro-batches given, a step has %lld here",
                       (long long)n, (long long)e->sizes.local);
    }
    SW_TRY(sw_engine_check_idle(&e->progress, "sw_train_batch"));
    SW_TRY(check_ready(e));
    SW_TRY(check_trains(e));
    const struct sw_program *program = &e->plan->programs[e->programs.train];
    for (int64_t j = 0; j < n; j++) { /* check all of them before the first one runs */
        const sw_status st = sw_engine_check_inputs(
            e, e->programs.train, (int)(j % program->micro_batches), &micro_batches[j]);
        if (st < 0) {
            return sw_fail_prefix(st, "micro-batch %lld", (long long)j);
        }
    }
    return finish(e, micro_batches, out);
}

sw_status sw_engine_check_idle(const struct engine_progress *p, const char *what)
{
    return p->phase == 0 ? SW_OK : SW_FAIL(SW_E_ARG, "%s: a step is under way", what);
}

/* Checks that `what` may run the program on this batch, and finishes the update that is due.
 * `option` is the sw_initialize option that plans the program. */
static sw_status check_call(struct sw_engine *e, int i_program, const char *what,
                            const char *option, const struct sw_batch *batch)
{
    if (i_program < 0) {
        return SW_FAIL(SW_E_ARG, "%s: the engine was opened without %s", what, option);
    }
    SW_TRY(sw_engine_check_idle(&e->progress, what));
    const sw_status st = sw_engine_check_inputs(e, i_program, 0, batch);
    return st < 0 ? sw_fail_prefix(st, "%s", what) : sw_engine_settle(e);
}

sw_status sw_engine_evaluate(sw_engine *e, const struct sw_batch *batch, double *out)
{
    SW_TRY(check_call(e, e->programs.eval, "sw_evaluate", "evaluate.loss", batch));
    SW_TRY(sw_engine_give_inputs(e, e->programs.eval, 0, -1, batch));
    SW_TRY(sw_executor_forward(e->executor, e->programs.eval));
    for (int i = 0; i < 2 * e->loss.n_terms; i++) {
        SW_TRY(sw_engine_read_scalar(e, e->loss.eval_outputs[i], &out[i]));
    }
    float totals[2 * SW_ENGINE_MAX_TOTALS] = {0};
    for (int i = 0, at = 0; i < SW_ENGINE_TOTALS; i++) {
        const struct sw_port *port = e->loss.eval_totals[i];
        SW_TRY(port ? sw_engine_read_output(e, port, totals + at) : SW_OK);
        at += port ? (int)sw_shape_elems(&port->shape) : 0;
    }
    for (int i = 0; i < 2 * e->loss.n_totals; i++) {
        out[2 * e->loss.n_terms + i] = (double)totals[i];
    }
    return SW_OK;
}

sw_status sw_engine_evaluated(sw_engine *e, const char *name, float *out)
{
    const struct sw_port *port =
        e->programs.eval < 0 ? NULL
                             : sw_program_output(&e->plan->programs[e->programs.eval], name, 0);
    return port ? sw_engine_read_output(e, port, out)
                : SW_FAIL(SW_E_ARG, "the program has no output \"%s\"", name);
}

sw_status sw_evaluate(sw_engine *e, const struct sw_batch *batch, double *out_sum,
                      double *out_count)
{
    double terms[SW_ENGINE_MAX_SUMS];
    SW_TRY(sw_engine_evaluate(e, batch, terms));
    const bool one = e->loss.n_terms == 1 && e->loss.weights[0] == 1;
    *out_sum = one ? terms[0] : sw_engine_mean_loss(e, terms) * terms[1];
    *out_count = terms[1];
    return SW_OK;
}

sw_status sw_evaluate_terms(sw_engine *e, const struct sw_batch *batch, double *out)
{
    double terms[SW_ENGINE_MAX_SUMS];
    SW_TRY(sw_engine_evaluate(e, batch, terms));
    memcpy(out, terms, 2 * (size_t)e->loss.n_terms * sizeof *out);
    return SW_OK;
}

sw_status sw_engine_read_output(struct sw_engine *e, const struct sw_port *port, float *out)
{
    const int64_t n = sw_shape_elems(&port->shape);
    if (port->dtype == SW_F32) {
        return sw_executor_read(e->executor, port, out, (size_t)n * sizeof *out);
    }
    /* The narrow values are read into the tail of out and widened from the front. */
    char *narrow = (char *)out + (size_t)n * (sizeof *out - sw_dtype_bytes(port->dtype));
    SW_TRY(sw_executor_read(e->executor, port, narrow, sw_port_bytes(port)));
    for (int64_t i = 0; i < n; i++) {
        const double value = sw_load_f64(port->dtype, narrow, i);
        out[i] = (float)value;
    }
    return SW_OK;
}

/* The output that sw_logits returns. Without a head it is the output of the last layer; a user's
 * own forward names it "logits". */
static const struct sw_port *logits_of(const struct sw_engine *e)
{
    const struct sw_task *task = e->weights.model ? e->weights.model->task : NULL;
    const char *output = !task ? "logits" : task->n_losses > 0 ? task->losses[0].output : "hidden";
    return sw_program_output(&e->plan->programs[e->programs.logits], output, 0);
}

int64_t sw_logits_elems(const sw_engine *e)
{
    const struct sw_port *port = e->programs.logits < 0 ? NULL : logits_of(e);
    return port ? sw_shape_elems(&port->shape) : 0;
}

sw_status sw_logits_shape(const sw_engine *e, struct sw_shape *out, int *out_tokens)
{
    const struct sw_task *task = e->weights.model ? e->weights.model->task : NULL;
    if (e->programs.logits < 0) {
        return SW_FAIL(SW_E_ARG, "sw_logits_shape: the engine was opened without evaluate.logits");
    }
    const struct sw_port *port = logits_of(e);
    if (!port) {
        return SW_FAIL(SW_E_ARG, "sw_logits_shape: the forward has no output \"logits\"");
    }
    const bool reads_tokens = task && sw_task_input_of(task, "input_ids");
    const bool is_place = task && task->n_losses > 0 && task->losses[0].kind == SW_LOSS_PLACE;
    *out = port->shape;
    *out_tokens = reads_tokens && (port->shape.rank > 2 || is_place) ? 1 : -1;
    return SW_OK;
}

sw_status sw_logits(sw_engine *e, const struct sw_batch *batch, float *out)
{
    SW_TRY(check_call(e, e->programs.logits, "sw_logits", "evaluate.logits", batch));
    if (out && !logits_of(e)) {
        return SW_FAIL(SW_E_ARG, "sw_logits: the forward has no output \"logits\"");
    }
    SW_TRY(sw_engine_give_inputs(e, e->programs.logits, 0, -1, batch));
    SW_TRY(sw_executor_forward(e->executor, e->programs.logits));
    return out ? sw_engine_read_output(e, logits_of(e), out) : SW_OK;
}
