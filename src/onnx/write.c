// SPDX-License-Identifier: Apache-2.0
// Writes an ONNX graph. Fields are in the order of their numbers, as Google's serializer has them.
// Weights pass through one buffer, into the file itself or into NAME.data beside it.
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "onnx/file.h"

enum { PIECE = 1 << 18, BUFFER = 1 << 16, PAGE = 4096 };

/* State of one file while it is written. */
struct writing {
    struct sw_onnx_file *file;
    const struct sw_onnx_export_options *options;
    const char *data_name; /* of the file of external data; NULL = none */
    struct sw_proto_writer proto;
    struct sw_output out;
    unsigned char *buffer; /* [BUFFER] small writes */
    size_t n_buffered;
    float *piece; /* [PIECE] */
    void *narrow; /* [PIECE] in the dtype of the export */
};

/* ---- bytes ---- */

static sw_status flush(struct writing *w)
{
    const size_t n = w->n_buffered;
    w->n_buffered = 0;
    return n > 0 ? sw_output_add(&w->out, w->buffer, n) : SW_OK;
}

static sw_status put(void *ctx, const void *data, size_t len)
{
    struct writing *w = ctx;
    if (len > BUFFER - w->n_buffered) {
        SW_TRY(flush(w));
    }
    if (len > BUFFER) {
        return sw_output_add(&w->out, data, len);
    }
    memcpy(w->buffer + w->n_buffered, data, len);
    w->n_buffered += len;
    return SW_OK;
}

/* Passes on the values of a parameter, in the dtype of the export. */
static sw_status put_values(struct writing *w, const struct sw_onnx_tensor *tensor,
                            void (*add)(struct writing *w, const void *data, uint64_t len))
{
    const struct sw_onnx_values *values = &w->options->values;
    const int64_t elems = sw_shape_elems(&tensor->shape);
    const enum sw_dtype dtype = w->options->dtype;
    for (int64_t first = 0; first < elems; first += PIECE) {
        const int64_t n = sw_min_i64(elems - first, PIECE);
        SW_TRY(values->fetch(values->ctx, tensor->name, &tensor->shape, first, n, w->piece));
        if (dtype != SW_F32) {
            sw_convert(dtype, w->narrow, SW_F32, w->piece, n);
        }
        add(w, dtype == SW_F32 ? (const void *)w->piece : w->narrow,
            (uint64_t)n * sw_dtype_bytes(dtype));
        SW_TRY(w->proto.status);
    }
    return SW_OK;
}

static void add_inside(struct writing *w, const void *data, uint64_t len)
{
    sw_proto_add(&w->proto, data, len);
}

static void add_outside(struct writing *w, const void *data, uint64_t len)
{
    w->proto.status = w->proto.status < 0 ? w->proto.status : put(w, data, (size_t)len);
}

/* ---- messages ---- */

static void write_attribute(struct sw_proto_writer *p, const struct sw_onnx_attr *attr)
{
    sw_proto_begin(p, ONNX_NODE_ATTRIBUTE);
    sw_proto_put_text(p, ONNX_ATTRIBUTE_NAME, attr->name);
    switch (attr->kind) {
    case ONNX_ATTR_FLOAT:
        sw_proto_put_float(p, ONNX_ATTRIBUTE_FLOAT, (float)attr->number);
        break;
    case ONNX_ATTR_INT:
        sw_proto_put_int(p, ONNX_ATTRIBUTE_INT, attr->integer);
        break;
    case ONNX_ATTR_TEXT:
        sw_proto_put_text(p, ONNX_ATTRIBUTE_TEXT, attr->text);
        break;
    case ONNX_ATTR_INTS:
        for (int i = 0; i < attr->n; i++) {
            sw_proto_put_int(p, ONNX_ATTRIBUTE_INTS, attr->ints[i]);
        }
        break;
    default:
        SW_ASSERT(false); /* no row writes others */
    }
    sw_proto_put_int(p, ONNX_ATTRIBUTE_KIND, attr->kind);
    sw_proto_end(p);
}

static void write_node(struct sw_proto_writer *p, const struct sw_onnx_node *node)
{
    sw_proto_begin(p, ONNX_GRAPH_NODE);
    for (int i = 0; i < node->n_in; i++) {
        sw_proto_put_text(p, ONNX_NODE_INPUT, node->in[i]);
    }
    sw_proto_put_text(p, ONNX_NODE_OUTPUT, node->out);
    if (node->more) {
        sw_proto_put_text(p, ONNX_NODE_OUTPUT, node->more);
    }
    sw_proto_put_text(p, ONNX_NODE_NAME, node->name);
    sw_proto_put_text(p, ONNX_NODE_OP, node->op);
    for (int i = 0; i < node->n_attrs; i++) {
        write_attribute(p, &node->attrs[i]);
    }
    sw_proto_end(p);
}

static void write_entry(struct sw_proto_writer *p, const char *key, const char *value)
{
    sw_proto_begin(p, ONNX_TENSOR_EXTERNAL);
    sw_proto_put_text(p, ONNX_ENTRY_KEY, key);
    sw_proto_put_text(p, ONNX_ENTRY_VALUE, value);
    sw_proto_end(p);
}

static void write_external(struct writing *w, const struct sw_onnx_tensor *tensor)
{
    char number[32];
    write_entry(&w->proto, "location", w->data_name);
    snprintf(number, sizeof number, "%llu", (unsigned long long)tensor->offset);
    write_entry(&w->proto, "offset", number);
    snprintf(number, sizeof number, "%llu", (unsigned long long)tensor->bytes);
    write_entry(&w->proto, "length", number);
    sw_proto_put_int(&w->proto, ONNX_TENSOR_LOCATION, ONNX_EXTERNAL);
}

static void write_tensor(struct writing *w, const struct sw_onnx_tensor *tensor)
{
    struct sw_proto_writer *p = &w->proto;
    sw_proto_begin(p, ONNX_GRAPH_INITIALIZER);
    for (int d = 0; d < tensor->shape.rank; d++) {
        sw_proto_put_int(p, ONNX_TENSOR_DIMS, tensor->shape.dims[d]);
    }
    sw_proto_put_int(p, ONNX_TENSOR_TYPE, tensor->type);
    sw_proto_put_text(p, ONNX_TENSOR_NAME, tensor->name);
    if (!tensor->data && w->data_name) {
        write_external(w, tensor);
    } else {
        sw_proto_put_bytes(p, ONNX_TENSOR_RAW, tensor->bytes);
        if (tensor->data || !p->put) {
            sw_proto_add(p, tensor->data, tensor->bytes);
        } else if (p->status >= 0) {
            const sw_status st = put_values(w, tensor, add_inside);
            p->status = p->status < 0 ? p->status : st;
        }
    }
    sw_proto_end(p);
}

static void write_dims(struct writing *w, const struct sw_onnx_dims *dims)
{
    struct sw_proto_writer *p = &w->proto;
    for (int d = 0; d < dims->rank; d++) {
        const struct sw_onnx_size *size = &dims->of[d];
        char text[96] = "";
        int len = size->c1 != 1 ? snprintf(text, sizeof text, "%lld", (long long)size->c1) : 0;
        for (int k = 0; k < ONNX_N_FREE; k++) {
            if (size->free[k]) {
                len += snprintf(text + len, sizeof text - (size_t)len, "%s%s", len ? "*" : "",
                                w->file->free_names[k]);
            }
        }
        if (size->c0 != 0) {
            snprintf(text + len, sizeof text - (size_t)len, "%+lld", (long long)size->c0);
        }
        sw_proto_begin(p, ONNX_SHAPE_DIM);
        if (sw_onnx_is_fixed(size)) {
            sw_proto_put_int(p, ONNX_DIM_VALUE, size->c0);
        } else {
            sw_proto_put_text(p, ONNX_DIM_NAME, text);
        }
        sw_proto_end(p);
    }
}

static void write_port(struct writing *w, int field, const struct sw_onnx_port *port)
{
    struct sw_proto_writer *p = &w->proto;
    sw_proto_begin(p, field);
    sw_proto_put_text(p, ONNX_VALUE_NAME, port->name);
    sw_proto_begin(p, ONNX_VALUE_TYPE);
    sw_proto_begin(p, ONNX_TYPE_TENSOR);
    sw_proto_put_int(p, ONNX_TENSOR_TYPE_ELEM, port->type);
    sw_proto_begin(p, ONNX_TENSOR_TYPE_SHAPE);
    write_dims(w, &port->dims);
    sw_proto_end(p);
    sw_proto_end(p);
    sw_proto_end(p);
    sw_proto_end(p);
}

static void write_graph(struct writing *w)
{
    struct sw_proto_writer *p = &w->proto;
    const struct sw_onnx_file *file = w->file;
    sw_proto_begin(p, ONNX_MODEL_GRAPH);
    for (int64_t i = 0; i < file->n_nodes; i++) {
        write_node(p, &file->nodes[i]);
    }
    sw_proto_put_text(p, ONNX_GRAPH_NAME, file->graph_name);
    for (int64_t i = 0; i < file->n_tensors; i++) {
        if (p->put) {
            sw_work_at("writing the model", i, file->n_tensors);
        }
        write_tensor(w, &file->tensors[i]);
    }
    for (int i = 0; i < file->n_inputs; i++) {
        write_port(w, ONNX_GRAPH_INPUT, &file->inputs[i]);
    }
    for (int i = 0; i < file->n_outputs; i++) {
        write_port(w, ONNX_GRAPH_OUTPUT, &file->outputs[i]);
    }
    sw_proto_end(p);
}

/* The version of the file format that came with an opset (ONNX's Versioning.md). */
static int64_t ir_version(int opset)
{
    return opset >= 23 ? 11 : opset >= 21 ? 10 : opset >= 19 ? 9 : 8;
}

static void write_model(struct writing *w)
{
    struct sw_proto_writer *p = &w->proto;
    sw_proto_put_int(p, ONNX_MODEL_IR_VERSION, ir_version(w->file->opset));
    sw_proto_put_text(p, ONNX_MODEL_PRODUCER, "spillway");
    write_graph(w);
    sw_proto_begin(p, ONNX_MODEL_OPSET);
    sw_proto_put_text(p, ONNX_OPSET_DOMAIN, "");
    sw_proto_put_int(p, ONNX_OPSET_VERSION, w->file->opset);
    sw_proto_end(p);
}

/* ---- files ---- */

/* Places the weights, each at the start of a page. Returns the bytes of all weights. */
static uint64_t place(struct sw_onnx_file *file, uint64_t *out_end)
{
    uint64_t end = 0, bytes = 0;
    for (int64_t i = 0; i < file->n_tensors; i++) {
        struct sw_onnx_tensor *tensor = &file->tensors[i];
        if (!tensor->data) {
            tensor->offset = sw_round_up(end, PAGE);
            end = tensor->offset + tensor->bytes;
            bytes += tensor->bytes;
        }
    }
    *out_end = end;
    return bytes;
}

static sw_status begin(struct writing *w, const char *name, char path[4096])
{
    const int n = snprintf(path, 4096, "%s/%s", w->options->folder, name);
    if (n < 0 || n >= 4096) {
        return SW_FAIL(SW_E_ARG, "%s: the path is too long", w->options->folder);
    }
    SW_TRY(sw_output_open(path, false, &w->out));
    return sw_output_begin(&w->out);
}

static sw_status finish(struct writing *w, sw_status st)
{
    st = st < 0 ? st : flush(w);
    st = st < 0 ? st : sw_output_commit(&w->out, true);
    sw_output_close(&w->out);
    w->n_buffered = 0;
    return st;
}

static sw_status write_data_file(struct writing *w)
{
    static const unsigned char zeros[PAGE];
    char path[4096];
    uint64_t at = 0;
    sw_status st = begin(w, w->data_name, path);
    for (int64_t i = 0; i < w->file->n_tensors && st >= 0; i++) {
        const struct sw_onnx_tensor *tensor = &w->file->tensors[i];
        if (tensor->data) {
            continue;
        }
        sw_work_at("writing the model", i, w->file->n_tensors);
        st = put(w, zeros, (size_t)(tensor->offset - at));
        st = st < 0 ? st : put_values(w, tensor, add_outside);
        at = tensor->offset + tensor->bytes;
    }
    return finish(w, st);
}

static sw_status write_model_file(struct writing *w, const char *name, uint64_t *out_bytes)
{
    char path[4096];
    uint64_t len = 0;
    write_model(w);
    SW_TRY(sw_proto_measured(&w->proto, put, w, &len));
    if (len > INT32_MAX) {
        return SW_FAIL(SW_E_UNSUP, "%s: %llu bytes; a protocol buffer has 2 GiB at most", name,
                       (unsigned long long)len);
    }
    sw_status st = begin(w, name, path);
    if (st >= 0) {
        write_model(w);
        st = sw_proto_written(&w->proto);
    }
    *out_bytes = len;
    return finish(w, st);
}

static sw_status write_both(struct writing *w, const char *name, struct sw_onnx_summary *summary)
{
    const int64_t most =
        w->options->inside_bytes > 0 ? w->options->inside_bytes : SW_ONNX_INSIDE_BYTES;
    char data_name[64], stale[4096];
    uint64_t end, len = 0;
    const bool external = place(w->file, &end) > (uint64_t)most;
    snprintf(data_name, sizeof data_name, "%s.data", name);
    snprintf(stale, sizeof stale, "%s/%s", w->options->folder, data_name);
    if (external) {
        w->data_name = data_name;
        SW_TRY(write_data_file(w)); /* before the file that names it */
        summary->bytes += (int64_t)end;
        summary->external = true;
    }
    SW_TRY(write_model_file(w, name, &len));
    if (!external && unlink(stale) != 0 && errno != ENOENT) {
        return SW_FAIL(SW_E_IO, "cannot remove %s: %s", stale, strerror(errno));
    }
    for (int64_t i = 0; i < w->file->n_tensors; i++) {
        summary->weights += !w->file->tensors[i].data;
    }
    summary->nodes += w->file->n_nodes;
    summary->bytes += (int64_t)len;
    snprintf(summary->files[summary->n_files++], sizeof summary->files[0], "%s", name);
    return SW_OK;
}

sw_status sw_onnx_write(struct sw_onnx_file *file, const struct sw_onnx_export_options *options,
                        const char *name, struct sw_onnx_summary *summary)
{
    struct writing w = {.file = file, .options = options};
    w.buffer = sw_alloc("onnx", BUFFER);
    w.piece = sw_alloc("onnx", PIECE * sizeof *w.piece);
    w.narrow = sw_alloc("onnx", PIECE * sizeof *w.piece);
    sw_status st = w.buffer && w.piece && w.narrow
                       ? write_both(&w, name, summary)
                       : SW_FAIL(SW_E_NOMEM, "out of host memory for an ONNX file");
    sw_work_end();
    sw_proto_writer_fini(&w.proto);
    sw_free(w.buffer);
    sw_free(w.piece);
    sw_free(w.narrow);
    return st;
}
