// SPDX-License-Identifier: Apache-2.0
// The training job from start to end: setup, the loop over steps and the work between them, on one
// rank or many.
#include "spillway/train.h"

#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "ckpt/ckpt.h"
#include "config/config.h"
#include "job/training.h"
#include "launch/launch.h"
#include "model/model.h"
#include "run/run.h"
#include "spillway/checkpoint.h"
#include "spillway/comm.h"
#include "spillway/look.h"

/* ---- setting up ---- */

/* Refuses options that need validations if there are none. */
static sw_status check_validation(const struct sw_train_options *o)
{
    if (o->n_val_data > 0 && o->eval_every < 1) {
        return SW_FAIL(SW_E_ARG, "--val-data needs --eval-every, the steps between validations");
    }
    if (o->export_best && (o->eval_every < 1 || o->no_export)) {
        return SW_FAIL(SW_E_ARG, "--export best %s",
                       o->no_export ? "and --no-export exclude each other"
                                    : "needs --eval-every: without validations there is no best");
    }
    if (o->early_stopping != 0 && (o->early_stopping < 0 || o->eval_every < 1)) {
        return o->early_stopping < 0
                   ? SW_FAIL(SW_E_ARG, "--early-stopping is %lld; wanted a number of validations",
                             (long long)o->early_stopping)
                   : SW_FAIL(SW_E_ARG,
                             "--early-stopping needs --eval-every, as it counts validations");
    }
    if (o->task.metric && o->eval_every < 1) {
        return SW_FAIL(SW_E_ARG, "--metric needs --eval-every, as validations compute it");
    }
    return SW_OK;
}

static sw_status check_options(const struct sw_train_options *o)
{
    const bool model = o->model && *o->model, output = o->output && *o->output;
    if (!model || o->n_data < 1 || !output) {
        return SW_FAIL(SW_E_ARG, "train needs %s",
                       !model          ? "--model"
                       : o->n_data < 1 ? "--data"
                                       : "--output");
    }
    SW_TRY(check_validation(o));
    if (o->resume + o->resume_if_any + (o->resume_from != NULL) > 1) {
        return SW_FAIL(SW_E_ARG, "--resume, --resume-if-any and --resume-from exclude each other");
    }
    SW_TRY(sw_job_chat_check(o));
    SW_TRY(sw_job_check_length(o));
    if (o->steps < 1 && o->epochs == 0) {
        return SW_FAIL(SW_E_ARG, "--steps is %lld; wanted at least 1", (long long)o->steps);
    }
    if (!(o->deadline_s >= 0 && o->deadline_s <= SW_DEADLINE_MAX_S)) {
        return SW_FAIL(SW_E_ARG, "--deadline is %g; wanted above 0, at most %d", o->deadline_s,
                       SW_DEADLINE_MAX_S);
    }
    if (o->ranks < 0 || o->ranks > INT_MAX) {
        return SW_FAIL(SW_E_ARG, "--ranks is %lld; wanted at most 2147483647", (long long)o->ranks);
    }
    return SW_OK;
}

/* Longest wait for other ranks, in seconds. */
static double deadline_of(const struct sw_train_options *options)
{
    return options->deadline_s > 0 ? options->deadline_s : 300;
}

/* Reads atomically: a signal handler in any thread, or another rank's thread, may set it. */
static bool asked_to_stop(const struct job *job)
{
    return job->options->stop && __atomic_load_n(job->options->stop, __ATOMIC_RELAXED) != 0;
}

/* A restarted or resumed run waits for the folder, because its predecessor may still be ending. A
 * rank 0 that was cut off from the others holds it until its deadline. */
static double wait_for_folder(const struct job *job)
{
    const bool waits = sw_job_goes_on(job->options) || getenv("SPILLWAY_LAUNCH");
    return getenv("SPILLWAY_RESTART") ? deadline_of(job->options) + SW_CKPT_WAIT_S
           : waits                    ? SW_CKPT_WAIT_S
                                      : 0;
}

/* Tries for as long as the other ranks can wait. *out_again: somebody else has the folder, and
 * until_s has not come yet. */
static sw_status try_folder(struct job *job, double until_s, bool *out_again)
{
    const double most = job->comm ? deadline_of(job->options) / 2 : SW_CKPT_WAIT_S;
    const double end = fmin(until_s, sw_now_s() + fmin(most, SW_CKPT_WAIT_S));
    sw_status st;
    do {
        st = sw_ckpt_acquire(job->options->output, 0, &job->lock);
        if (st == SW_E_ARG && asked_to_stop(job)) {
            st = SW_FAIL(SW_E_STOP, "stopped before the first step");
        }
        const double left_s = until_s - sw_now_s();
        if (st == SW_E_ARG && left_s > 0 && !job->told.waits) {
            sw_log(SW_LOG_WARN, "waiting up to %.0f s: %s", left_s, sw_error_message());
            job->told.waits = true;
        }
    } while (st == SW_E_ARG && sw_now_s() < end);
    *out_again = st == SW_E_ARG && sw_now_s() < until_s;
    return st < 0 ? sw_fail_prefix(st, "--output") : st;
}

/* Rank 0 holds the lock on the folder for all ranks, from before the first read to the end of the
 * run. The others learn again and again that it still waits. */
static sw_status hold_folder(struct job *job)
{
    const double until_s = sw_now_s() + wait_for_folder(job);
    bool again = false;
    sw_status st = SW_OK;
    do {
        st = job->leads ? try_folder(job, until_s, &again) : SW_OK;
        SW_TRY(job->comm ? sw_comm_broadcast(job->comm, 0, &again, sizeof again, "holding --output")
                         : SW_OK);
    } while (again);
    SW_TRY(job->comm ? sw_comm_agree(job->comm, st, "holding --output") : st);
    return sw_job_choose_start(job);
}

/* Checks for a stop before the first step, when there is nothing to save. */
static sw_status go_on(const struct job *job)
{
    return asked_to_stop(job) ? SW_FAIL(SW_E_STOP, "stopped before the first step") : SW_OK;
}

/* Compares the options that decide which collectives a rank takes part in, and when. */
static sw_status agree(const struct job *job)
{
    const struct sw_train_options *o = job->options;
    char flags[256];
    if (job->facts.world.size == 1) {
        return SW_OK;
    }
    snprintf(flags, sizeof flags, "%lld %lld %lld %lld %lld %lld %lld %d",
             (long long)job->steps.all, (long long)o->eval_every, (long long)o->eval_batches,
             (long long)o->sample_every, (long long)o->sample_tokens, (long long)o->save_every,
             (long long)o->early_stopping, sw_job_goes_on(o));
    return sw_job_agree(job->comm, job->dataset, &job->rows, flags);
}

static sw_status set_up(struct job *job)
{
    SW_TRY(go_on(job));
    SW_TRY(sw_model_check_path(job->options->model));
    SW_TRY(sw_job_open_tokenizer(job));
    SW_TRY(go_on(job));
    SW_TRY(sw_job_prepare_reference(job));
    SW_TRY(go_on(job));
    SW_TRY(sw_job_open_engine(job));
    SW_TRY(go_on(job));
    SW_TRY(sw_job_open_dataset(job));
    SW_TRY(sw_job_give_reference(job));
    SW_TRY(sw_job_make_batches(job));
    SW_TRY(agree(job));
    SW_TRY(sw_job_prepare_sample(job));
    SW_TRY(go_on(job));
    SW_TRY(sw_job_tell_engine(job));
    SW_TRY(sw_job_load(job));
    SW_TRY(sw_job_check_model(job));
    SW_TRY(sw_engine_limit_trace(job->engine, job->steps.all));
    SW_TRY(sw_job_profile_open(&job->facts, job->steps.first, job->steps.all, &job->told.profile));
    job->told.profile.model = job->options->model;
    job->told.profile.batch = job->batch;
    job->told.profile.local = sw_max_i64(job->local, 1);
    SW_TRY(go_on(job));
    return job->leads ? sw_job_open_metrics(job) : SW_OK;
}

/* Sets up the run, then waits until all ranks are ready. */
static sw_status start(struct job *job)
{
    SW_TRY(hold_folder(job));
    SW_TRY(set_up(job));
    return job->comm ? sw_comm_barrier(job->comm, "the first step") : SW_OK;
}

/* ---- the loop ---- */

/* Runs this rank's micro-batches through the engine. numbers: those of this rank. */
static sw_status train_rows(struct job *job, struct sw_job_step *step)
{
    struct sw_queue_times after[SW_QUEUE_COUNT];
    struct sw_phase_times began, ended;
    int64_t *numbers = step->mine.numbers;
    struct sw_alloc_stats besides; /* memory outside the plan, of all ranks in this process */
    sw_executor_queue_times(job->facts.executor, step->mine.queues.of);
    sw_executor_phase_times(job->facts.executor, &began);
    numbers[SW_JOB_ROUTED] = -sw_job_routed(&job->facts);
    const struct sw_job_loads before = sw_job_expert_loads(&job->facts);
    const int64_t begin = sw_now_ns();
    for (int64_t j = 0; j < job->local; j++) { /* micro-batch k = j R + r of the global batch */
        const int64_t k = j * job->facts.data.size + job->facts.data.rank;
        SW_TRY(
            sw_job_fetch(job, SW_SPLIT_TRAIN, sw_engine_samples(job->engine) + k * job->batch, j));
    }
    SW_TRY(sw_job_contrast(job));
    SW_TRY(sw_train_batch(job->engine, job->rows.batches, job->local, &step->report));
    numbers[SW_JOB_STEP_NS] = sw_now_ns() - begin;
    sw_executor_queue_times(job->facts.executor, after);
    sw_executor_phase_times(job->facts.executor, &ended);
    sw_queue_record_end(&step->mine.queues, after);
    numbers[SW_JOB_ROUTED] += sw_job_routed(&job->facts);
    const struct sw_job_loads loads = sw_job_expert_loads(&job->facts);
    numbers[SW_JOB_EXPERTS_LOADED] = loads.chosen - before.chosen;
    numbers[SW_JOB_EXPERTS_MOST] = loads.most - before.most;
    sw_job_count_phases(&began, &ended, numbers);
    sw_alloc_get_stats(&besides);
    for (int t = 0; t < SW_TIER_COUNT; t++) {
        numbers[SW_JOB_DEVICE + t] = sw_engine_tier_bytes(job->engine, t);
    }
    numbers[SW_JOB_BESIDES] = besides.live_bytes;
    numbers[SW_JOB_RESIDENT] = sw_job_resident_bytes();
    return SW_OK;
}

/* Writes the samples and saves that follow some steps, on all ranks alike. They take time, so a
 * signal that arrives meanwhile is honoured before the next step. */
static sw_status follow(struct job *job, const struct sw_step_report *report, bool *stopped)
{
    const struct sw_train_options *o = job->options;
    const bool samples =
        o->sample_every > 0 && report->step % o->sample_every == 0 && job->tokenizer;
    const bool saves = o->save_every > 0 && report->step % o->save_every == 0;
    SW_TRY(samples ? sw_job_print_sample(job) : SW_OK);
    SW_TRY(saves ? sw_job_save(job, false) : SW_OK);
    return samples || saves
               ? sw_job_share_stop(job->comm, &job->shared, asked_to_stop(job), stopped)
               : SW_OK;
}

/* The newest checkpoint is intact if its weights have given a finite loss since. */
static sw_status not_finite(const struct job *job, const struct sw_step_report *report,
                            const char *what, double value)
{
    const char *is = isnan(value) ? "nan" : value > 0 ? "inf" : "-inf";
    const long long step = report->step, saved = job->steps.saved;
    if (saved < 0) {
        return SW_FAIL(SW_E_ARG, "step %lld: %s is %s; no checkpoint was saved before it", step,
                       what, is);
    }
    if (saved <= job->steps.sound) {
        return SW_FAIL(SW_E_ARG, "step %lld: %s is %s; the checkpoint of step %lld is intact", step,
                       what, is, saved);
    }
    return SW_FAIL(SW_E_ARG,
                   "step %lld: %s is %s, and the weights that gave it are those of the checkpoint "
                   "of step %lld; --resume-from continues from an earlier one",
                   step, what, is, saved);
}

/* Refuses to go on, or to save, after an update by NaN or infinity. A skipped step changed
 * nothing. */
static sw_status check_finite(struct job *job, const struct sw_step_report *report)
{
    if (report->skipped) {
        return SW_OK;
    }
    if (!isfinite(report->loss)) {
        return not_finite(job, report, "the loss", report->loss);
    }
    job->steps.sound = report->step - 1;
    return isfinite(report->grad_norm)
               ? SW_OK
               : not_finite(job, report, "the norm of the gradient", report->grad_norm);
}

/* Takes one step. All ranks stop after the same step, whichever got the signal. */
static sw_status one_step(struct job *job, bool *stopped)
{
    const struct sw_train_options *o = job->options;
    struct sw_job_step step = {0};
    const struct sw_step_report *report = &step.report;
    sw_job_profile_begin(&job->told.profile, sw_engine_step(job->engine) + 1);
    SW_TRY(train_rows(job, &step));
    SW_TRY(check_finite(job, report));
    job->loss = report->loss;
    step.validated = o->eval_every > 0 && report->step % o->eval_every == 0;
    if (step.validated) {
        SW_TRY(sw_job_validate(job));
        sw_job_patience_add(job);
    }
    step.mine.numbers[SW_JOB_STOP] = asked_to_stop(job);
    SW_TRY(sw_job_share(job->comm, &job->shared, &step));
    *stopped = step.most[SW_JOB_STOP] != 0;
    sw_job_count_routers(job->engine, step.most, &step.routers);
    step.val_loss = job->val_loss;
    sw_job_list_metrics(job, &step.metrics);
    SW_TRY(job->leads ? sw_job_write_metrics(job, &step) : SW_OK);
    SW_TRY(job->leads ? sw_job_monitors_add(&job->told.monitors, &step) : SW_OK);
    if (!o->quiet && job->leads) {
        sw_job_print_step(job, &step);
    }
    sw_job_profile_end(&job->told.profile, &step, job->leads, job->out);
    return follow(job, report, stopped);
}

/* Writes run.json, before the first step and at the end of the run. end: why the run ended. */
static sw_status record_run(struct job *job, const char *end)
{
    if (!job->leads) {
        return SW_OK;
    }
    const struct sw_run_record record = {
        .options = job->options,
        .engine = job->engine,
        .facts = &job->facts,
        .data = sw_json_root(job->data),
        .tokenizer = job->tokenizer,
        .first_step = job->steps.first,
        .last_step = sw_engine_step(job->engine),
        .end = end,
        .steps = job->steps.all,
        .coverage =
            job->options->eval_every > 0 ? sw_job_validated(job) : (struct sw_job_coverage){0},
        .samples = sw_dataset_n_samples(job->dataset, SW_SPLIT_TRAIN),
    };
    SW_TRY(sw_run_record_write(&record));
    return end ? SW_OK : sw_job_keep_lines(job->options->output, "samples.jsonl", job->steps.first);
}

static sw_status run_steps(struct job *job, bool *stopped)
{
    job->began_s = sw_now_s();
    sw_pace_mark(&job->told.pace, job->began_s, job->steps.first);
    SW_TRY(record_run(job, NULL));
    SW_TRY(sw_job_claim_model(job));
    SW_TRY(sw_job_save_beside(job));
    while (sw_engine_step(job->engine) < job->steps.all && !*stopped &&
           !sw_job_patience_ends(job)) {
        sw_launch_link_at(job->link, sw_engine_step(job->engine) + 1, "training");
        SW_TRY(one_step(job, stopped));
    }
    return SW_OK;
}

/* ---- the end ---- */

/* The reason of the end, for run.json. */
static const char *why_it_ended(const struct job *job, bool stopped, char *buf, size_t cap)
{
    if (stopped) {
        return "stopped";
    }
    if (sw_engine_step(job->engine) >= job->steps.all) {
        return "last step";
    }
    snprintf(buf, cap, "early stopping: ");
    sw_job_patience_text(job, buf + strlen(buf), cap - strlen(buf));
    return buf;
}

static sw_status finish(struct job *job, bool stopped)
{
    char why[160];
    SW_TRY(sw_engine_finish_trace(job->engine));
    SW_TRY(sw_job_save(job, stopped));
    SW_TRY(record_run(job, why_it_ended(job, stopped, why, sizeof why)));
    int64_t first, last;
    if (sw_engine_trace_written(job->engine, &first, &last)) {
        fprintf(job->out, "trace: %s, steps %lld to %lld\n", job->facts.config->spillway.trace,
                (long long)first, (long long)last);
    }
    if (stopped) {
        fprintf(job->out, "stopped at step %lld with a checkpoint; --resume continues from it\n",
                (long long)sw_engine_step(job->engine));
        return SW_OK;
    }
    if (!job->options->no_export && job->leads) {
        SW_TRY(sw_job_export_model(job));
    }
    if (job->options->profile) {
        char *text = NULL;
        SW_TRY(sw_profile_text(job->engine, &text));
        fputs(text, job->out);
        sw_text_free(text);
    }
    return SW_OK;
}

static sw_status end(struct job *job, bool stopped, struct sw_train_result *result)
{
    const double seconds = sw_now_s() - job->began_s;
    const int64_t step = sw_engine_step(job->engine);
    const double units = (double)sw_job_units(job);
    *result = (struct sw_train_result){
        .step = step,
        .loss = job->loss,
        .val_loss = job->val_loss,
        .seconds = seconds,
        .tokens_per_s = seconds > 0 ? (double)(step - job->steps.first) * units / seconds : 0,
        .stopped = stopped && step < job->steps.all,
        .stopped_early = step < job->steps.all && sw_job_patience_ends(job),
    };
    const sw_status st = finish(job, result->stopped);
    result->val_loss = job->val_loss; /* the last checkpoint may have validated */
    return st;
}

static void tear_down(struct job *job)
{
    if (job->told.metrics) {
        fclose(job->told.metrics);
    }
    sw_job_monitors_close(&job->told.monitors);
    sw_job_profile_close(&job->told.profile);
    sw_close(job->engine);
    sw_dataset_close(job->dataset);
    sw_job_chat_close(&job->chat);
    sw_free(job->edits.items);
    sw_tokenizer_close(job->tokenizer);
    sw_job_rows_close(&job->rows);
    sw_job_settings_fini(&job->told.writing);
    sw_job_measure_close(&job->measure);
    sw_job_close_reference(job);
    sw_job_close_contrast(job);
    sw_job_task_close(&job->task);
    sw_job_shared_close(&job->shared);
    sw_json_close(job->data);
    sw_json_close(job->told.state);
    sw_ckpt_release(job->lock);
}

/* ---- one rank, and many ---- */

/* The ranks of this process: all of them, or one if a launcher started it. */
struct team {
    const struct sw_train_options *options;
    FILE *out, *quiet;
    struct sw_work_listener listener; /* the calling thread's listener, for rank 0 */
    bool *started;                    /* set by rank 0, as the result is */
    struct sw_train_result *result;
    struct sw_launch_link *link; /* link to the launcher of this process; NULL = none */
};

static sw_status train_rank(const struct team *team, sw_comm *comm, FILE *out, bool *started,
                            struct sw_train_result *result)
{
    struct job job = {.options = team->options,
                      .link = team->link,
                      .comm = comm,
                      .leads = !comm || sw_comm_rank(comm) == 0,
                      .out = out,
                      .progress = sw_progress_start(out, team->options->bar),
                      .val_loss = NAN,
                      .patience = {.best = NAN},
                      .steps = {.saved = -1, .validated = -1, .sound = -1}};
    bool stopped = false;
    for (int i = 0; i < SW_METRIC_COUNT; i++) {
        job.measure.of[i] = NAN;
    }
    sw_status st = start(&job);
    *started = st >= 0;
    if (st >= 0) {
        sw_job_print_head(&job);
        sw_job_print_room(&job);
        st = run_steps(&job, &stopped);
    }
    sw_progress_end(&job.progress);
    st = st < 0 ? st : end(&job, stopped, result);
    if (st >= 0) {
        sw_job_print_end(&job, result);
    }
    tear_down(&job);
    return st;
}

static sw_status rank_main(void *ctx, sw_comm *comm)
{
    const struct team *t = ctx;
    struct sw_train_result ignored;
    bool started;
    if (sw_comm_rank(comm) == 0) {
        sw_work_listen(t->listener);
    }
    return sw_comm_rank(comm) == 0 ? train_rank(t, comm, t->out, t->started, t->result)
                                   : train_rank(t, comm, t->quiet, &started, &ignored);
}

static sw_status train_threads(struct team *t)
{
    return sw_threads_run((int)t->options->ranks, deadline_of(t->options), rank_main, t);
}

/* Runs one rank, in a process that a launcher started. */
static sw_status train_in_world(struct team *t, sw_comm *comm)
{
    const int rank = sw_comm_rank(comm), size = sw_comm_size(comm);
    sw_status st = sw_launch_link_open(rank, &t->link);
    if (st >= 0 && t->options->ranks > 0 && t->options->ranks != size) {
        st = SW_FAIL(
            SW_E_ARG,
            "--ranks %lld: %d processes were started, and each is one rank; leave --ranks out",
            (long long)t->options->ranks, size);
    }
    if (st >= 0) {
        st = train_rank(t, comm, rank == 0 ? t->out : t->quiet, t->started, t->result);
    }
    if (st < 0) {
        sw_comm_abort(comm, st);
        sw_fail_prefix(st, "rank %d of %d", rank, size);
    }
    sw_comm_close(comm, st < 0);
    sw_launch_link_close(t->link, st < 0);
    return st;
}

sw_status sw_train(const struct sw_train_options *options, FILE *out, bool *started,
                   struct sw_train_result *result)
{
    struct team t = {.options = options, .out = out, .started = started, .result = result};
    sw_comm *world = NULL;
    *started = false;
    SW_TRY_OPTIONS(options);
    SW_TRY(check_options(options));
    SW_TRY(sw_world_open(deadline_of(options), &world));
    if (!world && options->ranks <= 1) {
        SW_TRY(sw_launch_link_open(0, &t.link));
        const sw_status alone = train_rank(&t, NULL, out, started, result);
        sw_launch_link_close(t.link, alone < 0);
        return alone;
    }
    t.quiet = fopen("/dev/null", "w");
    if (!t.quiet) {
        sw_comm_close(world, true);
        return SW_FAIL(SW_E_NOMEM, "no resources for ranks");
    }
    t.listener = sw_work_listen((struct sw_work_listener){0});
    sw_work_listen(t.listener);
    const sw_status st = world ? train_in_world(&t, world) : train_threads(&t);
    fclose(t.quiet);
    return st;
}
