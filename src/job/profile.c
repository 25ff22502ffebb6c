// SPDX-License-Identifier: Apache-2.0
// The profile of one step (flops_profiler). Instructions are measured in that step alone. The time
// of a whole step is taken from the unmeasured step before, if there is one. Measuring changes no
// bit.
#include <stdio.h>
#include <string.h>

#include "job/private.h"
#include "show/show.h"

static const struct sw_profile_config *config_of(const struct sw_job_profile *p)
{
    return &p->facts->config->profile;
}

static const struct sw_program *program_of(const struct sw_job_profile *p)
{
    return &p->facts->plan->programs[p->facts->train_program];
}

sw_status sw_job_profile_open(const struct sw_engine_facts *facts, int64_t first_step,
                              int64_t last_step, struct sw_job_profile *out)
{
    const struct sw_profile_config *c = &facts->config->profile;
    if (!c->enabled || last_step <= first_step) {
        return SW_OK;
    }
    if (c->step <= first_step && first_step > 0) {
        return SW_OK; /* the profile was written before the run was interrupted */
    }
    if (c->step > last_step) {
        return SW_FAIL(SW_E_CONFIG,
                       "flops_profiler.profile_step is %lld: this run has steps %lld to %lld",
                       (long long)c->step, (long long)first_step + 1, (long long)last_step);
    }
    out->facts = facts;
    out->ns = sw_alloc_zero("train", (size_t)program_of(out)->n_instrs + 1, sizeof *out->ns);
    SW_TRY_ALLOC(out->ns, "a profile");
    return SW_OK;
}

void sw_job_profile_close(struct sw_job_profile *profile)
{
    sw_free(profile->ns);
    *profile = (struct sw_job_profile){0};
}

static void read_ns(struct sw_job_profile *p, bool difference)
{
    for (int32_t i = 0; i < program_of(p)->n_instrs; i++) {
        const int64_t now = sw_executor_profile(p->facts->executor, p->facts->train_program, i).ns;
        p->ns[i] = difference ? now - p->ns[i] : now;
    }
}

void sw_job_profile_begin(struct sw_job_profile *p, int64_t step)
{
    if (p->facts && step == config_of(p)->step) {
        read_ns(p, false);
        p->before = sw_executor_measure(p->facts->executor, true);
    }
}

static sw_status print(const struct sw_job_profile *p, struct sw_str *out)
{
    const struct sw_profile_config *c = config_of(p);
    const struct sw_module_profile profile = {
        .model = p->model,
        .program = p->facts->train_program,
        .ns = p->ns,
        .runs = p->local,
        .step = c->step,
        .batch = p->batch,
        .ranks = p->facts->data.size,
        .forward_s = p->seconds[0] / (double)p->local,
        .backward_s = p->seconds[1] / (double)p->local,
        .update_s = p->seconds[2],
        .recompute_fwd_factor = c->recompute_fwd_factor,
        .module_depth = c->module_depth,
        .top_modules = c->top_modules,
        .detailed = c->detailed,
    };
    return sw_plan_profile(p->facts->plan, &profile, out);
}

static sw_status put(const struct sw_job_profile *p, const struct sw_str *text, FILE *out)
{
    const char *path = config_of(p)->output_file;
    char folder[4096];
    if (!path || !*path) {
        fputs(sw_str_text(text), out);
        return SW_OK;
    }
    if (!sw_folder_of(path, folder, sizeof folder)) {
        return SW_FAIL(SW_E_CONFIG, "the path is too long");
    }
    SW_TRY(sw_mkdirs(folder));
    return sw_output_text(path, text->ptr, text->len);
}

/* A failure to write the profile does not end the training. */
static void tell(const struct sw_job_profile *p, FILE *out)
{
    struct sw_str text = {0};
    sw_status st = print(p, &text);
    st = st < 0 ? st : put(p, &text, out);
    if (st < 0) {
        sw_log(SW_LOG_WARN, "flops_profiler: %s", sw_error_message());
    }
    sw_str_fini(&text);
}

void sw_job_profile_end(struct sw_job_profile *p, const struct sw_job_step *step, bool leads,
                        FILE *out)
{
    if (!p->facts) {
        return;
    }
    const bool measured = step->report.step == config_of(p)->step;
    if (!measured || p->seconds[0] == 0) {
        p->seconds[0] = sw_job_seconds(step, SW_JOB_FORWARD_NS);
        p->seconds[1] = sw_job_seconds(step, SW_JOB_BACKWARD_NS);
        p->seconds[2] = sw_job_seconds(step, SW_JOB_UPDATE_NS);
    }
    if (!measured) {
        return;
    }
    sw_executor_measure(p->facts->executor, p->before);
    read_ns(p, true);
    if (leads) {
        tell(p, out);
    }
    sw_job_profile_close(p);
}
