// SPDX-License-Identifier: Apache-2.0
// Functions with which other rooms read and steer an open engine. The engine's fields are private
// to this room.
#include <string.h>

#include "engine/private.h"

static struct sw_task_sizes sizes_of(const struct sw_engine *e)
{
    const struct sw_forward_spec spec = {
        .batch = e->sizes.batch, .tokens = e->sizes.tokens, .targets = e->sizes.targets};
    return e->model ? sw_model_sizes(e->model, &spec) : (struct sw_task_sizes){0};
}

struct sw_engine_facts sw_engine_facts(const sw_engine *e)
{
    return (struct sw_engine_facts){
        .config = e->config,
        .plan = e->plan,
        .train_program = e->programs.train,
        .device = e->device,
        .host = e->host,
        .executor = e->executor,
        .kernel_set = sw_device_kernel_set(e->device),
        .device_name = e->device->what,
        .model_folder = e->source.folder,
        .dtype = e->dtype,
        .export_dtype = e->source.dtype,
        .trains = e->optimizer.trains,
        .rule = &e->optimizer.rule,
        .rounds = e->sizes.rounds,
        .profile = e->options.run.profile,
        .lora = e->lora != NULL,
        .task = e->model ? e->model->task : NULL,
        .sizes = sizes_of(e),
        .context = e->model ? e->model->max_tokens : 0,
        .seed = e->seed,
        .comm = e->options.run.comm,
        .rank = e->rank,
        .ranks = e->ranks,
        .generate_tokens = e->options.generate.tokens,
    };
}

const struct engine_param *sw_engine_param(const sw_engine *e, int32_t i)
{
    return &e->params.items[i];
}

bool sw_engine_is_name_of(const sw_engine *e, const struct engine_param *param, const char *name)
{
    char buf[512];
    const char *alias = "";
    bool found = false;
    for (int i = 0; e->model && alias && !found; i++) {
        alias = e->model->ops->alias(e->model, param->work->name, i, buf, sizeof buf);
        found = alias && strcmp(alias, name) == 0;
    }
    return found;
}

const struct engine_param *sw_engine_param_of_file(const sw_engine *e, const char *name)
{
    const struct engine_param *other = NULL;
    for (int32_t i = 0; i < e->params.n; i++) {
        const struct engine_param *param = &e->params.items[i];
        if ((param->file_name && strcmp(param->file_name, name) == 0) ||
            strcmp(param->work->name, name) == 0) {
            return param;
        }
        other = !other && sw_engine_is_name_of(e, param, name) ? param : other;
    }
    return sw_engine_ignores(e, name) ? NULL : other;
}

bool sw_engine_ignores(const sw_engine *e, const char *name)
{
    return e->model && e->model->ops->ignores(e->model, name);
}

int sw_engine_terms(const sw_engine *e)
{
    return e->loss.n_terms;
}

const double *sw_engine_losses(const sw_engine *e)
{
    return e->loss.local;
}

static const struct sw_port *find_output(const sw_engine *e, const char *name)
{
    return sw_program_output(&e->plan->programs[e->programs.logits], name, 0);
}

int64_t sw_engine_output_elems(const sw_engine *e, const char *name)
{
    const struct sw_port *port = find_output(e, name);
    return port ? sw_shape_elems(&port->shape) : -1;
}

sw_status sw_engine_output(sw_engine *e, const char *name, float *out)
{
    return sw_engine_read_output(e, find_output(e, name), out);
}

bool sw_engine_trace_written(const sw_engine *e, int64_t *out_first, int64_t *out_last)
{
    *out_first = e->trace.first;
    *out_last = sw_min_i64(e->trace.last, e->progress.step);
    return e->trace.written;
}

void sw_engine_override_lr(sw_engine *e, double lr)
{
    e->optimizer.lr_override = lr;
}

void sw_engine_join_training(sw_engine *e, const struct sw_engine_training *training)
{
    e->training = *training;
}

sw_status sw_engine_replace_executor(sw_engine *e, struct sw_executor_options options)
{
    options.swap = sw_engine_swap(e);
    options.host = e->host;
    sw_executor_close(e->executor);
    e->executor = NULL;
    SW_TRY(sw_executor_open(e->plan, e->device, &options, &e->executor));
    SW_TRY(sw_engine_zero_states(e));
    return sw_engine_init_weights(e);
}
