// SPDX-License-Identifier: Apache-2.0
// Optimizer traces: parameters and states after every step, from recorded gradients. The update op
// runs through plan and executor as in training, but its gradients are inputs instead of results of
// a backward pass.
#include <math.h>
#include <string.h>

#include "check/private.h"
#include "config/config.h"
#include "device/device.h"
#include "graph/graph.h"
#include "optim/optim.h"
#include "plan/plan.h"
#include "run/run.h"

struct trace {
    struct check *c;
    struct sw_config *config;
    struct sw_update_rule rule;
    struct sw_schedule schedule;
    struct sw_safetensors *inputs;
    struct sw_device *device;
    struct sw_plan *plan;
    struct sw_executor *executor;
    int64_t steps;
    double *worst; /* largest error so far, [tensors in the recording] */
};

static void trace_fini(struct trace *t)
{
    sw_executor_close(t->executor);
    sw_plan_close(t->plan);
    sw_device_close(t->device);
    sw_safetensors_close(t->inputs);
    sw_config_close(t->config);
    sw_free(t->worst);
}

static void query(void *ctx, const struct sw_op_desc *desc, struct sw_kernel_info *out)
{
    sw_device_query(ctx, desc, out);
}

static sw_status read_config(struct trace *t)
{
    static const char *const keys[] = {"type", "params"}; /* other keys describe the run */
    const struct sw_json *block = sw_json_get(sw_json_root(t->c->doc), "optimizer");
    struct sw_str text = {0};
    sw_str_puts(&text, "{\"train_batch_size\": 1, \"gradient_clipping\": 0, \"optimizer\": {");
    for (size_t i = 0; i < SW_LEN(keys); i++) {
        const struct sw_json *value = sw_json_get(block, keys[i]);
        if (value) {
            sw_str_printf(&text, "%s\"%s\": ", i ? ", " : "", keys[i]);
            sw_json_write(value, 0, &text);
        }
    }
    sw_str_puts(&text, "}}");
    sw_status st = sw_config_parse("reference.json", sw_str_text(&text), text.len,
                                   t->c->options->sets, t->c->options->n_sets, &t->config);
    sw_str_fini(&text);
    SW_TRY(st);
    SW_TRY(sw_config_resolve(t->config, 1, 0));
    SW_TRY(sw_config_check_built(t->config));
    SW_TRY(sw_update_rule_init(&t->config->optimizer, true, &t->rule));
    t->rule.moments = (enum sw_moments)t->config->spillway.moments;
    return sw_schedule_init(&t->schedule, t->config, 1);
}

/* Builds a graph with a parameter for each "init." tensor, whose gradient is an input. */
static sw_status build(struct trace *t, struct sw_graph **out)
{
    const struct sw_graph_options options = {.dtype = SW_F32, .grad_dtype = SW_F32};
    struct sw_graph *g = NULL;
    SW_TRY(sw_graph_open(&options, &g));
    g->streams =
        sw_alloc_zero("graph", (size_t)sw_safetensors_count(t->inputs) + 1, sizeof *g->streams);
    if (!g->streams) {
        sw_graph_close(g);
        return SW_FAIL(SW_E_NOMEM, "out of host memory for an optimizer trace");
    }
    for (int64_t i = 0; i < sw_safetensors_count(t->inputs); i++) {
        const struct sw_safetensor *tensor = sw_safetensors_at(t->inputs, i);
        char name[256];
        if (strncmp(tensor->name, "init.", 5) != 0) {
            continue;
        }
        if (tensor->dtype != SW_F32) {
            sw_graph_close(g);
            return SW_FAIL(SW_E_FORMAT, "%s: %s has dtype %s, wanted F32", tensor->file,
                           tensor->name, tensor->dtype_name);
        }
        snprintf(name, sizeof name, "grad.%s", tensor->name + 5);
        const sw_value param =
            sw_param(g, tensor->name + 5, tensor->shape, (struct sw_init){SW_INIT_ZERO, 0});
        g->streams[g->n_streams++] =
            (struct sw_stream){.param = param, .grad = sw_input(g, name, SW_F32, tensor->shape)};
    }
    *out = g;
    return SW_OK;
}

static sw_status open_trace(struct trace *t)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/../inputs.safetensors", t->c->path);
    SW_TRY(read_config(t));
    SW_TRY(sw_safetensors_open(path, &t->inputs));
    SW_TRY(sw_check_none_empty(t->inputs));
    const struct sw_json *rates = sw_json_get(sw_json_root(t->c->doc), "lr_used");
    t->steps = rates ? rates->n_children : 0;
    if (t->steps < 1) {
        return SW_FAIL(SW_E_FORMAT, "%s: lr_used is missing", t->c->path);
    }
    const bool reference = t->config->spillway.kernels == SW_KERNELS_REFERENCE;
    SW_TRY(sw_device_open(reference ? "cpu:reference" : t->config->spillway.device,
                          (int)t->config->spillway.threads, &t->device));
    struct sw_graph *g = NULL;
    SW_TRY(build(t, &g));
    const struct sw_program_spec spec = {SW_PROGRAM_TRAIN, g};
    const struct sw_plan_options options = {.device = {query, t->device},
                                            .policy.micro_batches = 1,
                                            .rule = &t->rule,
                                            .staging_bytes = t->device->staging_bytes};
    const struct sw_executor_options ex = {0};
    const sw_status st = sw_plan_open(&spec, 1, &options, &t->plan);
    sw_graph_close(g);
    SW_TRY(st);
    return sw_executor_open(t->plan, t->device, &ex, &t->executor);
}

static sw_status set_start(struct trace *t)
{
    for (int32_t i = 0; i < t->plan->n_persistent; i++) {
        const struct sw_persistent *item = &t->plan->persistent[i];
        SW_TRY(sw_executor_zero(t->executor, item));
        if (item->role == SW_ROLE_PARAM) {
            char name[512];
            snprintf(name, sizeof name, "init.%s", item->name);
            const struct sw_safetensor *start = sw_safetensors_find(t->inputs, name);
            if (!start) {
                return SW_FAIL(SW_E_FORMAT, "%s: no tensor %s", t->c->path, name);
            }
            SW_TRY(sw_executor_load(t->executor, item, 0, start->data, start->bytes));
        }
    }
    return SW_OK;
}

static sw_status one_step(struct trace *t, int64_t s, double lr)
{
    const struct sw_program *program = &t->plan->programs[0];
    const struct sw_rates rates = sw_schedule_at(&t->schedule, 0, s);
    for (int32_t i = 0; i < program->ports.n_inputs; i++) {
        const struct sw_port *port = &program->ports.inputs[i];
        const struct sw_safetensor *grads = sw_safetensors_find(t->inputs, port->name);
        const size_t bytes = sw_port_bytes(port);
        if (!grads || grads->dtype != SW_F32 || grads->bytes < (size_t)(s + 1) * bytes) {
            return SW_FAIL(SW_E_FORMAT, "%s: %s has no step %lld", t->c->path, port->name,
                           (long long)s);
        }
        SW_TRY(sw_executor_write(t->executor, port, (const char *)grads->data + (size_t)s * bytes,
                                 bytes));
    }
    sw_executor_set(t->executor, SW_SCALAR_GRAD_FACTOR, 1);
    sw_executor_set(t->executor, SW_SCALAR_OVERFLOW_FACTOR, 1);
    sw_executor_set(t->executor, SW_SCALAR_LR, lr);
    sw_executor_set(t->executor, SW_SCALAR_BETA1, rates.beta1);
    sw_executor_set(t->executor, SW_SCALAR_BETA2, rates.beta2);
    sw_executor_set(t->executor, SW_SCALAR_STEP, (double)(s + 1));
    sw_executor_set(t->executor, SW_SCALAR_SQUARES_KEPT,
                    sw_update_squares_kept(&t->rule.attrs, (double)(s + 1)));
    int32_t phase = 0; /* no computation precedes the update */
    return sw_executor_walk(t->executor, NULL, &phase, t->plan->step.n_phases);
}

/* ---- comparing: "float64.exp_avg.matrix" [steps, ..] ---- */

/* Name of a state in the recordings; NULL = it is not compared. */
static const char *recorded_name(const struct sw_persistent *item)
{
    const bool compared = sw_state_infos[item->state].purpose == SW_STATE_SAVED ||
                          item->state == SW_STATE_TRUST_RATIO;
    return item->role == SW_ROLE_PARAM        ? "param"
           : item->state == SW_STATE_MOMENTUM ? "momentum_buffer"
           : compared                         ? sw_state_infos[item->state].name
                                              : NULL;
}

static const char *const series[] = {"float64", "float32", "deepspeed_cpu"};

/* Decodes 8-bit codes to their values; another state holds the scales. */
static sw_status decode(struct trace *t, const struct sw_persistent *item, float *out)
{
    enum sw_codes kind;
    const enum sw_state_kind scales_kind = sw_state_scales(item->state, &kind);
    const struct sw_persistent *of_scales =
        sw_plan_find_state(t->plan, item->param, scales_kind, 0);
    const int64_t n = sw_shape_elems(&item->shape), n_runs = sw_ceil_div(n, SW_CODE_RUN);
    SW_ASSERT(of_scales);
    float *scales = sw_alloc("check", (size_t)n_runs * sizeof *scales);
    uint8_t *codes = sw_alloc("check", (size_t)n);
    sw_status st =
        scales && codes ? SW_OK : SW_FAIL(SW_E_NOMEM, "out of host memory for an optimizer trace");
    st = st < 0 ? st : sw_executor_save(t->executor, item, 0, codes, (size_t)n);
    st = st < 0
             ? st
             : sw_executor_save(t->executor, of_scales, 0, scales, (size_t)n_runs * sizeof *scales);
    for (int64_t i = 0; st >= 0 && i < n_runs; i++) {
        const int64_t first = i * SW_CODE_RUN;
        sw_decode_run(kind, codes + first, scales[i], sw_min_i64(SW_CODE_RUN, n - first),
                      out + first);
    }
    sw_free(scales);
    sw_free(codes);
    return st;
}

static sw_status compare_item(struct trace *t, const struct sw_persistent *item, const char *name,
                              const char *recorded, int64_t s, float *ours)
{
    const int64_t n = sw_shape_elems(&item->shape);
    SW_TRY(item->dtype == SW_U8
               ? decode(t, item, ours)
               : sw_executor_save(t->executor, item, 0, ours, (size_t)n * sizeof *ours));
    for (size_t k = 0; k < SW_LEN(series); k++) {
        const struct sw_safetensor *ref =
            sw_check_tensor(t->c, "%s.%s.%s", series[k], recorded, name);
        if (!ref) {
            continue;
        }
        if (sw_check_elems(ref) != t->steps * n) {
            return SW_FAIL(SW_E_FORMAT, "%s: %s has %lld values, wanted %lld", ref->file, ref->name,
                           (long long)sw_check_elems(ref), (long long)(t->steps * n));
        }
        double *worst = &t->worst[ref - sw_safetensors_at(t->c->ref, 0)];
        for (int64_t i = 0; i < n; i++) {
            *worst = sw_check_worse(*worst, fabs(ours[i] - sw_check_value(ref, s * n + i)));
        }
    }
    return SW_OK;
}

static sw_status compare_step(struct trace *t, int64_t s, float *ours)
{
    for (int32_t i = 0; i < t->plan->n_persistent; i++) {
        const struct sw_persistent *item = &t->plan->persistent[i];
        const char *recorded = recorded_name(item);
        const char *param = item->role == SW_ROLE_PARAM ? item->name : item->param;
        if (recorded) {
            SW_TRY(compare_item(t, item, param, recorded, s, ours));
        }
    }
    return SW_OK;
}

/* Where a rule has no second moment and the recording has one, it must be 0: that of DeepSpeed's
 * Lion, which never changes. */
static void expect_no_second_moment(struct trace *t)
{
    for (int32_t i = 0; i < t->plan->n_persistent; i++) {
        const struct sw_persistent *item = &t->plan->persistent[i];
        if (item->role != SW_ROLE_PARAM ||
            sw_plan_find_state(t->plan, item->name, SW_STATE_EXP_AVG_SQ, 0)) {
            continue;
        }
        const struct sw_safetensor *ref =
            sw_check_tensor(t->c, "deepspeed_cpu.exp_avg_sq.%s", item->name);
        for (int64_t k = 0; ref && k < sw_check_elems(ref); k++) {
            double *worst = &t->worst[ref - sw_safetensors_at(t->c->ref, 0)];
            *worst = sw_check_worse(*worst, fabs(sw_check_value(ref, k)));
        }
    }
}

/* Prints errors relative to the largest value of the tensor at any step. */
static void print_rows(struct trace *t)
{
    const struct check *c = t->c;
    for (int64_t i = 0; i < sw_safetensors_count(c->ref); i++) {
        const struct sw_safetensor *ref = sw_safetensors_at(c->ref, i);
        if (!c->understood[i]) {
            continue;
        }
        double largest = 1e-30;
        for (int64_t k = 0; k < sw_check_elems(ref); k++) {
            largest = fmax(largest, fabs(sw_check_value(ref, k)));
        }
        sw_check_row(t->c, ref->name, t->worst[i] / largest,
                     sw_check_number(c, "tolerance.rel_to_max", 1e-6),
                     strncmp(ref->name, "deepspeed_cpu.", 14) == 0
                         ? "that kernel computes 1 - beta in float32"
                         : NULL);
    }
}

static sw_status run_trace(struct trace *t, float *ours)
{
    const struct sw_json *rate = sw_json_get(sw_json_root(t->c->doc), "lr_used")->first;
    t->worst =
        sw_alloc_zero("check", (size_t)sw_safetensors_count(t->c->ref) + 1, sizeof *t->worst);
    SW_TRY_ALLOC(t->worst, "an optimizer trace");
    SW_TRY(set_start(t));
    for (int64_t s = 0; s < t->steps; s++, rate = rate->next) {
        SW_TRY(one_step(t, s, rate->number));
        SW_TRY(compare_step(t, s, ours));
    }
    expect_no_second_moment(t);
    print_rows(t);
    return SW_OK;
}

sw_status sw_check_optimizer(struct check *c)
{
    struct trace t = {.c = c};
    float *ours = NULL;
    sw_status st = open_trace(&t);
    if (st >= 0) {
        int64_t most = 1;
        for (int32_t i = 0; i < t.plan->n_persistent; i++) {
            most = sw_max_i64(most, sw_shape_elems(&t.plan->persistent[i].shape));
        }
        ours = sw_alloc("check", (size_t)most * sizeof *ours);
        st = ours ? run_trace(&t, ours)
                  : SW_FAIL(SW_E_NOMEM, "out of host memory for an optimizer trace");
    }
    sw_free(ours);
    trace_fini(&t);
    return st;
}
