// SPDX-License-Identifier: Apache-2.0
// Chooses the checkpoint that a run resumes from. A damaged committed checkpoint is never skipped
// silently: the run is refused, and the message names the newest intact one. Exception: a launcher
// that restarts a job (--restarts) takes that one by itself. A restart repeats the whole command:
// its --resume-from counts until the job has saved a checkpoint.
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "job/training.h"

/* Set by `spillway launch` on the second and later starts of a job. */
static bool is_restart(void)
{
    return getenv("SPILLWAY_RESTART") != NULL;
}

/* Verifies every byte. false: the error record has the reason. */
static bool is_intact(const char *path)
{
    struct sw_ckpt *ckpt = NULL;
    sw_status st = sw_ckpt_open(path, &ckpt);
    if (st == SW_OK) {
        st = sw_ckpt_verify(ckpt);
        sw_ckpt_close(ckpt);
    }
    return st == SW_OK;
}

/* The newest intact checkpoint of a list other than `except`; NULL = there is none. */
static const char *find_intact(const struct sw_ckpt_list *list, const char *except)
{
    for (int64_t i = 0; i < list->n_items; i++) {
        const struct sw_ckpt_summary *item = &list->items[i];
        if (item->complete && !item->problem && (!except || strcmp(item->path, except) != 0) &&
            is_intact(item->path)) {
            return item->path;
        }
    }
    return NULL;
}

/* Adds a remedy to the message about the damaged checkpoint `path`. */
static sw_status advise(const struct sw_ckpt_list *list, const char *path, sw_status st)
{
    char why[2048];
    snprintf(why, sizeof why, "%s", sw_error_message());
    const char *intact = find_intact(list, path);
    return intact
               ? SW_FAIL(
                     st,
                     "%s; the newest intact checkpoint is %s; --resume-from %s continues from it",
                     why, intact, intact)
               : SW_FAIL(st, "%s; there is no intact checkpoint in its folder", why);
}

/* Chooses the newest intact checkpoint for a restart, and logs the damaged ones before it. */
static sw_status choose_intact(const struct sw_ckpt_list *list, const struct sw_ckpt_summary **out)
{
    const struct sw_ckpt_summary *damaged = sw_ckpt_newest_damaged(list);
    if (damaged) {
        sw_log(SW_LOG_WARN, "%s is damaged and skipped: %s", damaged->path, damaged->problem);
    }
    for (int64_t i = 0; i < list->n_items && list->items[i].complete; i++) {
        const struct sw_ckpt_summary *item = &list->items[i];
        if (item->problem) { /* another version: it cannot be verified */
            return SW_FAIL(SW_E_UNSUP, "the newest checkpoint: %s", item->problem);
        }
        if (is_intact(item->path)) {
            *out = item;
            return SW_OK;
        }
        sw_log(SW_LOG_WARN, "%s is damaged and skipped: %s", item->path, sw_error_message());
    }
    return SW_FAIL(SW_E_FORMAT, "no checkpoint of it is intact");
}

/* Chooses the newest checkpoint. *out is unchanged if there is none and none is required. */
static sw_status choose_newest(const struct sw_train_options *o, const struct sw_ckpt_list *list,
                               const struct sw_ckpt_summary **out)
{
    if (list->n_items == 0) {
        return o->resume ? SW_FAIL(SW_E_ARG,
                                   "--resume: there is no checkpoint in %s; --resume-if-any would "
                                   "begin a new run",
                                   o->output)
                         : SW_OK;
    }
    if (is_restart()) {
        const sw_status st = choose_intact(list, out);
        return st < 0 ? sw_fail_prefix(st, "--output %s", o->output) : st;
    }
    const struct sw_ckpt_summary *damaged = sw_ckpt_newest_damaged(list);
    if (damaged) {
        SW_FAIL(SW_E_FORMAT, "the checkpoint %s is damaged: %s", damaged->path, damaged->problem);
        return advise(list, damaged->path, SW_E_FORMAT);
    }
    if (list->items[0].problem) { /* falling back to an older one would lose work silently */
        return SW_FAIL(SW_E_UNSUP, "the newest checkpoint in %s: %s", o->output,
                       list->items[0].problem);
    }
    *out = &list->items[0];
    return SW_OK;
}

/* Refuses an --output folder with checkpoints unless the run resumes from them. */
static sw_status check_new(const struct sw_train_options *o, const struct sw_ckpt_list *list)
{
    return list->n_items == 0
               ? SW_OK
               : SW_FAIL(SW_E_ARG,
                         "--output %s has checkpoints of a run (%s); --resume continues it, "
                         "and a new run needs another folder",
                         o->output, list->items[0].name);
}

static bool lies_in(const char *path, const char *folder)
{
    char parent[PATH_MAX], wanted[PATH_MAX];
    if (!realpath(path, parent) || !realpath(folder, wanted)) {
        return false;
    }
    *strrchr(parent, '/') = '\0';
    return strcmp(parent, wanted) == 0;
}

static sw_status choose_named(const struct sw_train_options *o, const struct sw_ckpt_list *list,
                              struct sw_job_start *out)
{
    struct sw_ckpt *ckpt = NULL;
    const sw_status st = sw_ckpt_open(o->resume_from, &ckpt);
    if (st == SW_PENDING) {
        return SW_FAIL(SW_E_ARG, "--resume-from %s: there is no checkpoint", o->resume_from);
    }
    if (st < 0) {
        return sw_fail_prefix(st, "--resume-from");
    }
    snprintf(out->path, sizeof out->path, "%s", sw_ckpt_path(ckpt));
    out->serial = sw_ckpt_identity(ckpt).serial;
    sw_ckpt_close(ckpt);
    out->continues = lies_in(out->path, o->output);
    return out->continues ? SW_OK : check_new(o, list);
}

/* Whether an earlier start of this command saved the newest checkpoint, so that a restart takes
 * that one instead of the command's own --resume-from. */
static bool has_begun(const struct sw_train_options *o, const struct sw_ckpt_list *list)
{
    struct sw_ckpt *ckpt = NULL;
    if (list->n_items == 0 || sw_ckpt_open(list->items[0].path, &ckpt) != SW_OK) {
        return false;
    }
    const struct sw_json *state = sw_ckpt_meta(ckpt)->training;
    const struct sw_json *from = state ? sw_json_get(state, "resume_from") : NULL;
    const bool same =
        from && from->type == SW_JSON_STRING && strcmp(from->string, o->resume_from) == 0;
    sw_ckpt_close(ckpt);
    return same;
}

static sw_status choose(const struct sw_train_options *o, struct sw_job_start *out)
{
    struct sw_ckpt_list list;
    const struct sw_ckpt_summary *newest = NULL;
    sw_status st;
    SW_TRY(sw_ckpt_list(o->output, &list));
    if (o->resume_from && !(is_restart() && has_begun(o, &list))) {
        st = choose_named(o, &list, out);
    } else if (sw_job_goes_on(o)) {
        st = choose_newest(o, &list, &newest);
        snprintf(out->path, sizeof out->path, "%s", newest ? newest->path : "");
        out->serial = newest ? newest->serial : 0;
        out->continues = true; /* the run may have been killed before its first checkpoint */
    } else {
        st = check_new(o, &list);
    }
    sw_ckpt_list_fini(&list);
    return st;
}

sw_status sw_job_choose_start(struct job *job)
{
    struct sw_job_start *start = &job->start;
    const sw_status st = job->leads ? choose(job->options, start) : SW_OK;
    if (!job->comm) {
        return st;
    }
    SW_TRY(sw_comm_agree(job->comm, st, "choosing a checkpoint"));
    SW_TRY(sw_comm_broadcast(job->comm, 0, start, sizeof *start, "the choice of a checkpoint"));
    start->path[sizeof start->path - 1] = '\0';
    return SW_OK;
}

/* Renames checkpoints newer than the one resumed from, else the next start would choose them. The
 * serial tells, because the user may spell the path in another way than the list. */
static sw_status set_aside(const struct job *job)
{
    struct sw_ckpt_list list;
    struct sw_str name = {0};
    sw_status st = SW_OK;
    SW_TRY(sw_ckpt_list(job->options->output, &list));
    for (int64_t i = 0; i < list.n_items && st >= 0; i++) {
        const struct sw_ckpt_summary *item = &list.items[i];
        if (item->complete ? item->serial > job->start.serial : item->step > job->steps.first) {
            st = sw_ckpt_set_aside(item->path, &name);
            if (st >= 0) {
                sw_log(SW_LOG_WARN,
                       "%s is newer than the checkpoint that the run continues from; it "
                       "is renamed to %s",
                       item->path, sw_str_text(&name));
            }
        }
    }
    sw_str_fini(&name);
    sw_ckpt_list_fini(&list);
    return st;
}

sw_status sw_job_load(struct job *job)
{
    if (!job->start.path[0]) {
        return SW_OK;
    }
    sw_status st = sw_load(job->engine, job->start.path);
    if (st < 0 && job->leads) {
        struct sw_ckpt_list list;
        char why[2048];
        snprintf(why, sizeof why, "%s", sw_error_message());
        const bool damaged = !is_intact(job->start.path);
        SW_FAIL(st, "%s", why); /* restores the error of sw_load, which is_intact may replace */
        if (damaged && sw_ckpt_list(job->options->output, &list) >= 0) {
            st = advise(&list, job->start.path, st);
            sw_ckpt_list_fini(&list);
        }
        return st;
    }
    SW_TRY(st);
    SW_TRY(sw_job_patience_load(job));
    job->steps.first = job->steps.saved = sw_engine_step(job->engine);
    return job->leads && job->start.continues ? set_aside(job) : SW_OK;
}
