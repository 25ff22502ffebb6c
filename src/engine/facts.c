// SPDX-License-Identifier: Apache-2.0
// Functions with which other rooms read and steer an open engine. The engine's fields are private
// to this room.
#include <string.h>

#include "engine/private.h"

static struct sw_task_sizes sizes_of(const struct sw_engine *e)
{
    const struct sw_forward_spec spec = {.batch = e->sizes.rows * e->sizes.batch,
                                         .tokens = e->sizes.tokens,
                                         .targets = e->sizes.targets};
    return e->weights.model ? sw_model_sizes(e->weights.model, &spec) : (struct sw_task_sizes){0};
}

static int64_t pad_id_of(const struct sw_model *model)
{
    return model && model->pad_id < model->vocab ? sw_max_i64(model->pad_id, -1) : -1;
}

struct sw_engine_facts sw_engine_facts(const sw_engine *e)
{
    return (struct sw_engine_facts){
        .config = e->config,
        .plan = e->plan,
        .weights = &e->weights,
        .train_program = e->programs.train,
        .device = e->device,
        .host = e->host,
        .executor = e->executor,
        .kernel_set = sw_device_kernel_set(e->device),
        .device_name = e->device->what,
        .model_folder = e->weights.source.folder,
        .dtype = e->dtype,
        .export_dtype = e->weights.source.dtype,
        .trains = e->optimizer.trains,
        .rule = &e->optimizer.rule,
        .rounds = e->sizes.rounds,
        .threads = e->machine.threads,
        .profile = e->options.run.profile,
        .lora = e->weights.lora != NULL,
        .task = e->weights.model ? e->weights.model->task : NULL,
        .sizes = sizes_of(e),
        .pad_id = pad_id_of(e->weights.model),
        .context = e->weights.model ? e->weights.model->max_tokens : 0,
        .seed = e->seed,
        .comm = e->options.run.comm,
        .mesh = e->mesh,
        .world = e->world,
        .data = e->data,
        .generate_tokens = e->options.generate.tokens,
    };
}

const struct sw_mesh_choice *sw_engine_mesh_choice(const sw_engine *e)
{
    return e->search.mesh.n > 0 ? &e->search.mesh : NULL;
}

struct sw_weights *sw_engine_weights(sw_engine *e)
{
    return &e->weights;
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

void sw_engine_join_training(sw_engine *e, const struct sw_training *training)
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
    e->weights.executor = e->executor;
    SW_TRY(sw_weights_zero_states(&e->weights));
    return sw_weights_draw(&e->weights);
}
