// SPDX-License-Identifier: Apache-2.0
// A model as ONNX files: which part of its forward each file has, and the names of inputs and
// outputs, which are those of Hugging Face's Optimum.
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "onnx/emit.h"

/* One file: outputs, and values that are inputs of it. */
struct part {
    const char *name; /* of the file */
    struct {
        const char *name;
        sw_value value;
    } outputs[4], inputs[4];
    int n_outputs, n_inputs;
    const char *mask; /* name of the input attention_mask */
    const char *free_names[ONNX_N_FREE];
};

/* ---- which ops a file needs ---- */

static bool is_input(const struct part *part, sw_value v)
{
    for (int i = 0; i < part->n_inputs; i++) {
        if (part->inputs[i].value == v) {
            return true;
        }
    }
    return false;
}

/* Marks the ops that outputs depend on: producers come before users. */
static void mark_needed(struct sw_onnx_emit *e, const struct part *part)
{
    bool *wanted = e->wanted;
    for (int i = 0; i < part->n_outputs; i++) {
        wanted[part->outputs[i].value] = true;
    }
    for (int32_t i = e->graph->n_ops - 1; i >= 0; i--) {
        const struct sw_op *op = &e->graph->ops[i];
        for (int k = 0; k < op->n_out; k++) {
            const sw_value v = op->out[k];
            e->needed[i] = e->needed[i] || (v >= 0 && wanted[v] && !is_input(part, v));
        }
        for (int k = 0; k < op->n_in && e->needed[i]; k++) {
            wanted[op->in[k]] = true;
        }
    }
}

/* ---- leaves ---- */

static void add_input(struct sw_onnx_emit *e, const char *name, sw_value v)
{
    struct sw_onnx_file *file = &e->file;
    SW_ASSERT(file->n_inputs < (int)SW_LEN(file->inputs));
    file->inputs[file->n_inputs++] = (struct sw_onnx_port){
        name, sw_onnx_type_of(e->graph->values[v].dtype), e->forward->dims[v]};
    e->names[v] = name;
}

/* Inputs of the task. Positions are counted in the graph. */
static void add_inputs(struct sw_onnx_emit *e, const struct part *part)
{
    for (int i = 0; i < part->n_inputs; i++) {
        add_input(e, part->inputs[i].name, part->inputs[i].value);
    }
    for (sw_value v = 0; v < e->graph->n_values; v++) {
        const struct sw_value_info *info = &e->graph->values[v];
        if (info->role != SW_ROLE_INPUT || !e->wanted[v] || strcmp(info->name, "positions") == 0) {
            continue;
        }
        add_input(e, strcmp(info->name, "attention_mask") == 0 ? part->mask : info->name, v);
    }
}

/* The elements of a constant as the file has them: integers as int64. NULL: out of memory. */
static void *wide_data(const struct sw_value_info *info)
{
    const int64_t n = sw_shape_elems(&info->shape);
    const bool integers = info->dtype == SW_I32;
    const size_t bytes = integers ? (size_t)n * sizeof(int64_t) : sw_value_bytes(info);
    void *data = sw_alloc("onnx", bytes + 1);
    for (int64_t i = 0; i < n && integers && data; i++) {
        ((int64_t *)data)[i] = ((const int32_t *)info->data)[i];
    }
    if (data && !integers) {
        memcpy(data, info->data, bytes);
    }
    return data;
}

/* A table for short rows and one for long ones, of which a graph reads that for its tokens. */
static void add_tables(struct sw_onnx_emit *e, sw_value v)
{
    const struct sw_value_info *info = &e->graph->values[v];
    const struct sw_onnx_size *tokens = &e->forward->dims[v].of[0];
    struct sw_onnx_tables tables;
    const sw_status st = sw_onnx_forward_tables(e->forward, v, &tables);
    if (st < 0) {
        sw_onnx_fail(&e->file, st);
        return;
    }
    const struct sw_value_info *less = &tables.less->values[v];
    const char *both[3] = {
        sw_onnx_tensor(&e->file, less->name, sw_onnx_type_of(less->dtype), less->shape, less->data),
        sw_onnx_tensor(&e->file, info->name, sw_onnx_type_of(info->dtype), info->shape, info->data),
        NULL};
    sw_graph_close(tables.less);
    e->scope = "sizes";
    const char *n = sw_onnx_size_value(e, tokens);
    const char *is_long = ONNX_ADD(e, "Greater", n, sw_onnx_int(&e->file, tables.rows));
    const char *first =
        ONNX_ADD(e, "Mul", sw_onnx_cast(e, is_long, ONNX_I64), sw_onnx_int(&e->file, tables.rows));
    e->names[v] =
        sw_onnx_slice(e, sw_onnx_concat(e, both, 0), 0, first, ONNX_ADD(e, "Add", first, n));
}

static void add_constant(struct sw_onnx_emit *e, sw_value v)
{
    const struct sw_value_info *info = &e->graph->values[v];
    const struct sw_onnx_dims *dims = &e->forward->dims[v];
    struct sw_shape shape = info->shape;
    enum sw_onnx_constant kind = ONNX_FIXED;
    if (!sw_onnx_forward_constant(e->forward, v, &kind)) {
        add_tables(e, v);
        return;
    }
    void *data = wide_data(info);
    if (!data) {
        sw_onnx_fail(&e->file, SW_FAIL(SW_E_NOMEM, "out of host memory for an ONNX graph"));
        return;
    }
    shape.dims[0] = kind == ONNX_REPEATED ? 1 : shape.dims[0];
    e->names[v] = sw_onnx_tensor(&e->file, info->name, sw_onnx_type_of(info->dtype), shape, data);
    sw_free(data);
    e->centered[v] = kind == ONNX_CENTERED;
    e->scope = "sizes";
    if (kind == ONNX_REPEATED) {
        e->names[v] = ONNX_ADD(e, "Expand", e->names[v], sw_onnx_shape_value(e, dims));
    } else if (kind == ONNX_PREFIX && shape.rank == 1) { /* positions; others are read by row */
        e->names[v] = sw_onnx_slice(e, e->names[v], 0, sw_onnx_int(&e->file, 0),
                                    sw_onnx_size_value(e, &dims->of[0]));
    }
}

static void add_leaf(struct sw_onnx_emit *e, sw_value v)
{
    const struct sw_value_info *info = &e->graph->values[v];
    switch (info->role) {
    case SW_ROLE_PARAM:
        e->names[v] =
            sw_onnx_tensor(&e->file, info->name, sw_onnx_type_of(info->dtype), info->shape, NULL);
        return;
    case SW_ROLE_INPUT: /* positions; the others are there */
        e->names[v] = sw_onnx_range(e, &e->forward->dims[v].of[e->forward->dims[v].rank - 1]);
        return;
    case SW_ROLE_STATE:
        if (info->data) {
            add_constant(e, v);
            return;
        }
        break;
    case SW_ROLE_TRANSIENT:
    case SW_ROLE_GRAD:
        break;
    }
    sw_onnx_refuse(e, "reads what a forward of logits has not");
}

/* ---- ops ---- */

/* A table by distance is whole, whatever the number of tokens: only these ops know. */
static bool knows_distances(enum sw_op_kind kind)
{
    return kind == SW_OP_EMBEDDING || kind == SW_OP_RELATIVE_BIAS || kind == SW_OP_RELATIVE_SCORES;
}

static void emit_op(struct sw_onnx_emit *e, const struct sw_op *op)
{
    const struct sw_onnx_row *row = sw_onnx_row_of(op->kind);
    const struct sw_graph *g = e->graph;
    e->op = op;
    for (int k = 0; k < op->n_in; k++) {
        if (!e->names[op->in[k]]) {
            add_leaf(e, op->in[k]);
        }
        e->scope = op->scope >= 0 ? g->scopes[op->scope].name : "";
        if (e->file.status >= 0 && e->centered[op->in[k]] && !knows_distances(op->kind)) {
            sw_onnx_refuse(e, "reads a table by distance");
        }
    }
    if (e->file.status < 0) {
        return;
    }
    if (!row->emit) {
        sw_onnx_refuse(e, row->reason ? row->reason : "has no row in the table of ONNX nodes");
        return;
    }
    row->emit(e);
}

/* The tensor of an output has its name. A tensor that is something else already is copied. */
static void add_output(struct sw_onnx_emit *e, const char *name, sw_value v)
{
    struct sw_onnx_file *file = &e->file;
    const char *made = e->names[v];
    bool renamed = false;
    for (int i = 0; i < file->n_outputs; i++) {
        made = made == file->outputs[i].name ? "" : made;
    }
    for (int64_t i = 0; i < file->n_nodes; i++) {
        struct sw_onnx_node *node = &file->nodes[i];
        if (made && *made && node->out == made) {
            node->out = name;
            renamed = true;
        }
        for (int k = 0; k < node->n_in && renamed; k++) {
            node->in[k] = node->in[k] == made ? name : node->in[k];
        }
    }
    if (!renamed && file->status >= 0) {
        e->scope = "";
        ONNX_ADD(e, "Identity", e->names[v]);
        file->nodes[file->n_nodes - 1].out = name;
    }
    file->outputs[file->n_outputs++] = (struct sw_onnx_port){
        name, sw_onnx_type_of(e->graph->values[v].dtype), e->forward->dims[v]};
    e->names[v] = name;
}

static sw_status emit_all(struct sw_onnx_emit *e, const struct part *part)
{
    mark_needed(e, part);
    add_inputs(e, part);
    for (int32_t i = 0; i < e->graph->n_ops && e->file.status >= 0; i++) {
        if (e->needed[i]) {
            emit_op(e, &e->graph->ops[i]);
        }
    }
    for (int i = 0; i < part->n_outputs && e->file.status >= 0; i++) {
        add_output(e, part->outputs[i].name, part->outputs[i].value);
    }
    return e->file.status;
}

static sw_status write_part(const struct sw_onnx_forward *f, const struct part *part,
                            const struct sw_onnx_export_options *options,
                            struct sw_onnx_summary *summary)
{
    const size_t n_values = (size_t)f->graph->n_values + 1;
    struct sw_onnx_emit e = {.forward = f, .graph = f->graph, .opset = options->opset, .scope = ""};
    sw_arena_init(&e.file.arena, "onnx");
    e.file.opset = options->opset;
    e.file.graph_name = f->model->ops->model_type;
    memcpy(e.file.free_names, part->free_names, sizeof part->free_names);
    e.names = sw_alloc_zero("onnx", n_values, sizeof *e.names);
    e.centered = sw_alloc_zero("onnx", n_values, sizeof *e.centered);
    e.needed = sw_alloc_zero("onnx", (size_t)f->graph->n_ops + 1, sizeof *e.needed);
    e.wanted = sw_alloc_zero("onnx", n_values, sizeof *e.wanted);
    sw_status st = e.names && e.centered && e.needed && e.wanted
                       ? emit_all(&e, part)
                       : SW_FAIL(SW_E_NOMEM, "out of host memory for an ONNX graph");
    st = st < 0 ? st : sw_onnx_write(&e.file, options, part->name, summary);
    sw_onnx_file_fini(&e.file);
    sw_names_close(&e.memo);
    sw_free(e.memos);
    sw_free(e.names);
    sw_free(e.centered);
    sw_free(e.needed);
    sw_free(e.wanted);
    sw_free(e.parts);
    return st;
}

/* ---- the files of a model ---- */

static void add_part_output(struct part *part, const char *name, sw_value v)
{
    if (v >= 0) {
        part->outputs[part->n_outputs].name = name;
        part->outputs[part->n_outputs++].value = v;
    }
}

/* The outputs that the losses of the task compare, or the trunk's. */
static void add_outputs(const struct sw_onnx_forward *f, struct part *part)
{
    const struct sw_task *task = f->model->task;
    for (int i = 0; i < task->n_losses; i++) {
        const struct sw_task_loss *loss = &task->losses[i];
        add_part_output(part, loss->recorded ? loss->recorded : loss->output,
                        sw_graph_find_output(f->graph, loss->output));
    }
    if (task->n_losses == 0) {
        add_part_output(part, "last_hidden_state", sw_graph_find_output(f->graph, "hidden"));
    }
}

/* The decoder's ids, which our graph makes from labels. */
static sw_value shifted_labels(const struct sw_graph *g)
{
    for (int32_t i = 0; i < g->n_ops; i++) {
        const char *name = g->values[g->ops[i].in[0]].name;
        if (g->ops[i].kind == SW_OP_SHIFT_RIGHT && name && strcmp(name, "labels") == 0) {
            return g->ops[i].out[0];
        }
    }
    return SW_NO_VALUE;
}

static sw_status write_whole(const struct sw_onnx_forward *f,
                             const struct sw_onnx_export_options *options,
                             struct sw_onnx_summary *summary)
{
    struct part part = {
        .name = "model.onnx", .mask = "attention_mask", .free_names = {"batch", "sequence", ""}};
    add_outputs(f, &part);
    if (part.n_outputs == 0) {
        return SW_FAIL(SW_E_UNSUP, "%s: its forward has no output to export",
                       f->model->ops->model_type);
    }
    return write_part(f, &part, options, summary);
}

static sw_status write_two(const struct sw_onnx_forward *f,
                           const struct sw_onnx_export_options *options,
                           struct sw_onnx_summary *summary)
{
    struct part encoder = {.name = "encoder_model.onnx",
                           .mask = "attention_mask",
                           .free_names = {"batch", "sequence", ""}};
    add_part_output(&encoder, "last_hidden_state", f->encoded);
    SW_TRY(write_part(f, &encoder, options, summary));
    struct part decoder = {
        .name = "decoder_model.onnx",
        .mask = "encoder_attention_mask",
        .free_names = {"batch", "encoder_sequence", "sequence"},
        .inputs = {{"input_ids", shifted_labels(f->graph)}, {"encoder_hidden_states", f->encoded}},
        .n_inputs = 2};
    add_outputs(f, &decoder);
    return write_part(f, &decoder, options, summary);
}

/* Removes the files of an export of another kind of model. */
static sw_status remove_others(const char *folder, bool two)
{
    static const char *const names[2][4] = {{"encoder_model.onnx", "encoder_model.onnx.data",
                                             "decoder_model.onnx", "decoder_model.onnx.data"},
                                            {"model.onnx", "model.onnx.data", NULL, NULL}};
    for (size_t i = 0; i < SW_LEN(names[0]) && names[two][i]; i++) {
        char path[4096];
        snprintf(path, sizeof path, "%s/%s", folder, names[two][i]);
        if (access(path, F_OK) == 0 && unlink(path) != 0) {
            return SW_FAIL(SW_E_IO, "cannot remove %s, which another export left", path);
        }
    }
    return SW_OK;
}

sw_status sw_onnx_export(const struct sw_onnx_export_options *options, struct sw_onnx_summary *out)
{
    struct sw_onnx_forward f;
    const bool two = sw_model_is_seq2seq(options->model);
    *out = (struct sw_onnx_summary){.opset = options->opset};
    if (options->opset < SW_ONNX_LEAST_OPSET || options->opset > SW_ONNX_MOST_OPSET) {
        return SW_FAIL(SW_E_ARG, "opset %d; wanted %d to %d", options->opset, SW_ONNX_LEAST_OPSET,
                       SW_ONNX_MOST_OPSET);
    }
    if (options->dtype != SW_F32 && options->dtype != SW_F16 && options->dtype != SW_BF16) {
        return SW_FAIL(SW_E_ARG, "dtype %s; wanted f32, f16 or bf16",
                       sw_dtype_name(options->dtype));
    }
    SW_TRY(sw_onnx_forward_open(options->model, options->dtype, &f));
    sw_status st = two ? write_two(&f, options, out) : write_whole(&f, options, out);
    sw_onnx_forward_close(&f);
    return st < 0 ? st : remove_others(options->folder, two);
}
