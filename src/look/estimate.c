// SPDX-License-Identifier: Apache-2.0
// DeepSpeed's memory estimates as a table, for a model or for two numbers. A layer consists of the
// parameters whose names differ only in the last part.
#include <string.h>

#include "engine/engine.h"
#include "show/show.h"
#include "spillway/look.h"

/* Length of the module's name: everything before the last dot. */
static size_t module_len(const char *name)
{
    const char *dot = strrchr(name, '.');
    return dot ? (size_t)(dot - name) : 0;
}

/* Number of parameters in the largest module. */
static int64_t largest_layer(const sw_engine *e)
{
    int64_t largest = 0;
    const struct sw_parameters *params = &sw_engine_facts(e).weights->params;
    const int32_t n = params->n;
    for (int32_t i = 0; i < n; i++) {
        const char *name = params->items[i].work->name;
        const size_t len = module_len(name);
        int64_t sum = 0;
        for (int32_t k = 0; k < n; k++) {
            const struct sw_persistent *other = params->items[k].work;
            if (module_len(other->name) == len && strncmp(other->name, name, len) == 0) {
                sum += sw_shape_elems(&other->layout.whole);
            }
        }
        largest = sum > largest ? sum : largest;
    }
    return largest;
}

/* Counts the parameters of a model. It is planned for a micro-batch of one token, and not
 * opened. */
static sw_status count_model(const struct sw_estimate_options *o, struct sw_estimate_case *out)
{
    const struct sw_engine_options options = {.config.text = "{\"train_batch_size\": 1}",
                                              .model.path = o->model,
                                              .evaluate.loss = true,
                                              .plan.only = true};
    sw_engine *e = NULL;
    SW_TRY(sw_initialize(&options, &e));
    out->parameters = sw_engine_parameters(e);
    out->largest_layer = largest_layer(e);
    sw_close(e);
    return SW_OK;
}

static const char *place(bool offloaded)
{
    return offloaded ? "cpu" : "none";
}

static sw_status add_row(const struct sw_estimate_case *c, bool json, struct sw_str *out)
{
    char host[32], device[32];
    struct sw_estimate e;
    SW_TRY(sw_estimate(c, &e));
    if (json) {
        sw_str_printf(out,
                      "%s{\"stage\":%d,\"offload_optimizer\":%s,\"offload_param\":%s,"
                      "\"zero_init\":%s,\"cpu_bytes_per_node\":%lld,\"gpu_bytes\":%lld,"
                      "\"largest_layer_bytes\":%lld}",
                      out->len > 0 && out->ptr[out->len - 1] == '}' ? "," : "", c->stage,
                      c->offload_optimizer ? "true" : "false", c->offload_param ? "true" : "false",
                      c->zero_init ? "true" : "false", (long long)e.host_bytes_per_node,
                      (long long)e.device_bytes, (long long)e.layer_bytes);
        return SW_OK;
    }
    sw_str_printf(out, "%-6d %-10s %-10s %-10s %18lld %18lld   %10s %10s\n", c->stage,
                  place(c->offload_optimizer), c->stage == 3 ? place(c->offload_param) : "-",
                  c->stage == 3 ? (c->zero_init ? "yes" : "no") : "-",
                  (long long)e.host_bytes_per_node, (long long)e.device_bytes,
                  sw_format_bytes(host, sizeof host, (double)e.host_bytes_per_node),
                  sw_format_bytes(device, sizeof device, (double)e.device_bytes));
    return SW_OK;
}

static sw_status add_rows(const struct sw_estimate_case *base, bool json, struct sw_str *out)
{
    struct sw_estimate_case c = *base;
    c.stage = 2;
    for (int optimizer = 1; optimizer >= 0; optimizer--) {
        c.offload_optimizer = optimizer;
        SW_TRY(add_row(&c, json, out));
    }
    c.stage = 3;
    for (int i = 0; i < 6 && c.largest_layer > 0; i++) { /* stage 3 needs the size of a layer */
        c.offload_optimizer = i < 4;
        c.offload_param = i < 2;
        c.zero_init = i % 2 == 0;
        SW_TRY(add_row(&c, json, out));
    }
    return SW_OK;
}

static void add_head(const struct sw_estimate_case *c, bool json, struct sw_str *out)
{
    if (json) {
        sw_str_printf(out,
                      "{\"parameters\":%lld,\"largest_layer_parameters\":%lld,"
                      "\"gpus_per_node\":%lld,\"nodes\":%lld,\"additional_buffer_factor\":%.17g,"
                      "\"cases\":[",
                      (long long)c->parameters, (long long)c->largest_layer,
                      (long long)c->ranks_per_node, (long long)c->nodes, c->buffer_factor);
        return;
    }
    sw_str_printf(out,
                  "%lld parameters, largest layer %lld; %lld node%s of %lld device%s, buffer "
                  "factor %g; bytes of model states by DeepSpeed's formulas:\n"
                  "%-6s %-10s %-10s %-10s %18s %18s\n",
                  (long long)c->parameters, (long long)c->largest_layer, (long long)c->nodes,
                  c->nodes == 1 ? "" : "s", (long long)c->ranks_per_node,
                  c->ranks_per_node == 1 ? "" : "s", c->buffer_factor, "stage", "optimizer",
                  "parameters", "zero.Init", "host of a node", "one device");
}

sw_status sw_estimate_text(const struct sw_estimate_options *o, char **out)
{
    struct sw_estimate_case base = {.parameters = o->parameters,
                                    .largest_layer = o->largest_layer,
                                    .ranks_per_node = o->ranks_per_node,
                                    .nodes = o->nodes,
                                    .buffer_factor = o->buffer_factor};
    if (o->model) {
        SW_TRY(count_model(o, &base));
    }
    struct sw_str text = {0};
    add_head(&base, o->json, &text);
    sw_status st = add_rows(&base, o->json, &text);
    sw_str_puts(&text, o->json ? "]}\n" : "");
    if (st >= 0 && text.failed) {
        st = SW_FAIL(SW_E_NOMEM, "out of host memory for a report");
    }
    if (st < 0) {
        sw_str_fini(&text);
        return st;
    }
    *out = text.ptr;
    return SW_OK;
}
