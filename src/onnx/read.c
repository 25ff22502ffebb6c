// SPDX-License-Identifier: Apache-2.0
// The graph of a file: nodes, values and edges, each looked at a fixed number of times. What is not
// read is refused here by name, before anything is computed.
#include "onnx/reading.h"

#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#include "onnx/file.h"
#include "onnx/fold.h"
#include "onnx/onnx.h"
#include "text/text.h"

/* ---- shared ---- */

sw_status sw_onnx_grow(void *array, int32_t n, int32_t *cap, size_t bytes)
{
    void *old, *grown;
    if (n < *cap) {
        return SW_OK;
    }
    if (*cap > INT32_MAX / 2) {
        return SW_FAIL(SW_E_UNSUP, "the file has more than %d nodes or values", INT32_MAX / 2);
    }
    const int32_t more = *cap > 0 ? 2 * *cap : 16;
    memcpy(&old, array, sizeof old);
    grown = sw_realloc("onnx", old, (size_t)more * bytes);
    SW_TRY_ALLOC(grown, "the graph of an ONNX file");
    memcpy(array, &grown, sizeof grown);
    *cap = more;
    return SW_OK;
}

sw_status sw_onnx_want_bytes(const struct sw_proto_field *field, const char *what)
{
    return field->wire == SW_PROTO_BYTES
               ? SW_OK
               : SW_FAIL(SW_E_FORMAT, "%s has wire type %d, wanted bytes", what, field->wire);
}

sw_status sw_onnx_want_int(const struct sw_proto_field *field, const char *what)
{
    return field->wire == SW_PROTO_VARINT
               ? SW_OK
               : SW_FAIL(SW_E_FORMAT, "%s has wire type %d, wanted a number", what, field->wire);
}

sw_status sw_onnx_read_text(struct sw_onnx_graph *g, const struct sw_proto_field *field,
                            const char *what, const char **out)
{
    struct sw_str *str = &g->own->scratch;
    SW_TRY(sw_onnx_want_bytes(field, what));
    const size_t valid = sw_utf8_valid_len((const char *)field->bytes, field->len);
    if (valid < field->len) {
        return SW_FAIL(SW_E_FORMAT, "%s is not UTF-8 at its byte %zu", what, valid);
    }
    if (field->len > 0 && memchr(field->bytes, '\0', field->len)) {
        return SW_FAIL(SW_E_FORMAT, "%s has a NUL byte", what);
    }
    sw_str_clear(str);
    sw_str_append(str, (const char *)field->bytes, field->len);
    if (str->failed) {
        return SW_FAIL(SW_E_NOMEM, "out of host memory for the names of an ONNX file");
    }
    *out = sw_str_text(str);
    return SW_OK;
}

/* Bytes of the packed number at an offset; 0 = it does not end there, or is too long. */
static size_t packed_bytes(const struct sw_proto_field *field, int wire, size_t at)
{
    enum { MOST_VARINT = 10 };
    const size_t left = field->len - at;
    if (wire != SW_PROTO_VARINT) {
        const size_t bytes = wire == SW_PROTO_FIXED32 ? 4 : 8;
        return left < bytes ? 0 : bytes;
    }
    for (size_t i = 0; i < left && i < MOST_VARINT; i++) {
        if (field->bytes[at + i] < 0x80) {
            return i + 1;
        }
    }
    return 0;
}

sw_status sw_onnx_next_number(const struct sw_proto_field *field, int wire, size_t *at,
                              int64_t *out, bool *out_more)
{
    if (field->wire != SW_PROTO_BYTES) {
        if (field->wire != wire) {
            return SW_FAIL(SW_E_FORMAT, "field %lld has wire type %d, wanted %d",
                           (long long)field->number, field->wire, wire);
        }
        *out_more = *at == 0;
        *out = field->integer;
        *at = 1;
        return SW_OK;
    }
    *out_more = *at < field->len;
    if (!*out_more) {
        return SW_OK;
    }
    const size_t bytes = packed_bytes(field, wire, *at);
    if (bytes == 0) {
        return SW_FAIL(SW_E_FORMAT, "a number of field %lld ends early", (long long)field->number);
    }
    const int bits = wire == SW_PROTO_VARINT ? 7 : 8;
    uint64_t value = 0;
    for (size_t i = 0; i < bytes; i++) {
        value |= ((uint64_t)field->bytes[*at + i] & ((1U << bits) - 1)) << (uint64_t)bits * i;
    }
    *out = (int64_t)value;
    *at += bytes;
    return SW_OK;
}

bool sw_onnx_elems(int rank, const int64_t *dims, size_t elem_bytes, int64_t *out)
{
    int64_t n = 1, bytes;
    bool zero = false;
    for (int i = 0; i < rank; i++) {
        zero = zero || dims[i] == 0;
    }
    for (int i = 0; i < rank; i++) { /* a dimension of 0 hides no overflow of the others */
        if (dims[i] < 0 || (dims[i] > 0 && !sw_mul_i64(n, dims[i], &n))) {
            return false;
        }
    }
    *out = zero ? 0 : n;
    return sw_mul_i64(n, (int64_t)elem_bytes, &bytes);
}

/* A word that is kept once: the name of an operator or an attribute. */
sw_status sw_onnx_keep_word(struct sw_onnx_graph *g, const char *text, const char **out)
{
    struct sw_onnx_graph_own *own = g->own;
    const int32_t found = sw_names_find(&own->words, 0, text);
    if (found >= 0) {
        *out = own->kept[found];
        return SW_OK;
    }
    SW_TRY(sw_onnx_grow(&own->kept, own->n_kept, &own->cap_kept, sizeof *own->kept));
    const char *word = sw_arena_strdup(&own->arena, text);
    if (!word || !sw_names_add(&own->words, 0, word, own->n_kept)) {
        return SW_FAIL(SW_E_NOMEM, "out of host memory for the names of an ONNX file");
    }
    own->kept[own->n_kept++] = word;
    *out = word;
    return SW_OK;
}

sw_status sw_onnx_keep_text(struct sw_onnx_graph *g, const char *text, const char **out)
{
    *out = *text ? sw_arena_strdup(&g->own->arena, text) : "";
    SW_TRY_ALLOC(*out, "the names of an ONNX file");
    return SW_OK;
}

/* ---- values ---- */

/* The value of that name, added if it is new. */
sw_status sw_onnx_value_of(struct sw_onnx_graph *g, const char *name, int32_t *out)
{
    struct sw_onnx_graph_own *own = g->own;
    *out = sw_names_find(&own->names, 0, name);
    if (*out >= 0) {
        return SW_OK;
    }
    SW_TRY(sw_onnx_grow(&g->values, g->n_values, &own->cap_values, sizeof *g->values));
    struct sw_onnx_graph_value *v = &g->values[g->n_values];
    *v = (struct sw_onnx_graph_value){
        .kind = ONNX_VALUE_UNMADE, .rank = -1, .producer = -1, .i_out = -1, .first_use = -1};
    SW_TRY(sw_onnx_keep_text(g, name, &v->name));
    if (!sw_names_add(&own->names, 0, v->name, g->n_values)) {
        return SW_FAIL(SW_E_NOMEM, "out of host memory for the names of an ONNX file");
    }
    *out = g->n_values++;
    return SW_OK;
}

static const char *plain(const char *text, char out[200])
{
    return sw_plain_words(text, out, 200);
}

/* ---- initializers ---- */

static sw_status read_initializer(struct sw_onnx_graph *g, const struct sw_proto_field *field)
{
    const struct sw_onnx_data *data;
    const char *name;
    char words[200];
    int32_t i;
    SW_TRY(sw_onnx_read_tensor(g, field, true, "initializer", &name, &data));
    if (!*name) {
        return SW_FAIL(SW_E_FORMAT, "an initializer has no name");
    }
    SW_TRY(sw_onnx_value_of(g, name, &i));
    struct sw_onnx_graph_value *v = &g->values[i];
    if (v->kind != ONNX_VALUE_UNMADE) {
        return SW_FAIL(SW_E_FORMAT, "two initializers have the name %s", plain(name, words));
    }
    v->kind = sw_onnx_is_float(data->type) && data->rank > 0 && data->n > 0 ? ONNX_VALUE_WEIGHT
                                                                            : ONNX_VALUE_CONSTANT;
    v->is_initializer = true;
    v->type = data->type;
    v->rank = data->rank;
    memcpy(v->dims, data->dims, sizeof v->dims);
    v->data = data;
    return SW_OK;
}

/* ---- inputs and outputs ---- */

struct port {
    const char *name;
    int64_t type;
    int rank; /* -1 = unknown */
    int64_t dims[ONNX_READ_RANK];
    const char *sizes[ONNX_READ_RANK];
};

static sw_status read_dim(struct sw_onnx_graph *g, const struct sw_proto_field *field,
                          struct port *port)
{
    struct sw_proto proto = {field->bytes, field->len, 0};
    struct sw_proto_field part;
    const char *text;
    bool more;
    SW_TRY(sw_onnx_want_bytes(field, "a dimension"));
    if (port->rank == ONNX_READ_RANK) {
        return SW_FAIL(SW_E_UNSUP, "it has more than %d dimensions", ONNX_READ_RANK);
    }
    const int k = port->rank++;
    port->dims[k] = -1;
    port->sizes[k] = "";
    for (;;) {
        SW_TRY(sw_proto_next(&proto, &part, &more));
        if (!more) {
            return SW_OK;
        }
        if (part.number == ONNX_DIM_VALUE) {
            SW_TRY(sw_onnx_want_int(&part, "a dimension"));
            if (part.integer < 0) {
                return SW_FAIL(SW_E_FORMAT, "dimension %d is %lld, wanted 0 or more", k,
                               (long long)part.integer);
            }
            port->dims[k] = part.integer;
        } else if (part.number == ONNX_DIM_NAME) {
            SW_TRY(sw_onnx_read_text(g, &part, "the name of a dimension", &text));
            SW_TRY(sw_onnx_keep_word(g, text, &port->sizes[k]));
        }
    }
}

/* Reads the message within a field, and calls visit for each of its fields. */
static sw_status each(const struct sw_proto_field *field, const char *what,
                      sw_status (*visit)(struct sw_onnx_graph *g, const struct sw_proto_field *part,
                                         struct port *port),
                      struct sw_onnx_graph *g, struct port *port)
{
    struct sw_proto proto = {field->bytes, field->len, 0};
    struct sw_proto_field part;
    bool more;
    SW_TRY(sw_onnx_want_bytes(field, what));
    for (;;) {
        SW_TRY(sw_proto_next(&proto, &part, &more));
        if (!more) {
            return SW_OK;
        }
        SW_TRY(visit(g, &part, port));
    }
}

static sw_status visit_shape(struct sw_onnx_graph *g, const struct sw_proto_field *part,
                             struct port *port)
{
    return part->number == ONNX_SHAPE_DIM ? read_dim(g, part, port) : SW_OK;
}

static sw_status visit_tensor_type(struct sw_onnx_graph *g, const struct sw_proto_field *part,
                                   struct port *port)
{
    if (part->number == ONNX_TENSOR_TYPE_ELEM) {
        port->type = part->integer;
        return sw_onnx_want_int(part, "elem_type");
    }
    if (part->number == ONNX_TENSOR_TYPE_SHAPE) {
        port->rank = 0;
        return each(part, "a shape", visit_shape, g, port);
    }
    return SW_OK;
}

static sw_status visit_type(struct sw_onnx_graph *g, const struct sw_proto_field *part,
                            struct port *port)
{
    return part->number == ONNX_TYPE_TENSOR ? each(part, "a type", visit_tensor_type, g, port)
                                            : SW_OK;
}

static sw_status visit_port(struct sw_onnx_graph *g, const struct sw_proto_field *part,
                            struct port *port)
{
    const char *text;
    if (part->number == ONNX_VALUE_NAME) {
        SW_TRY(sw_onnx_read_text(g, part, "the name of an input or output", &text));
        return sw_onnx_keep_text(g, text, &port->name);
    }
    return part->number == ONNX_VALUE_TYPE ? each(part, "a type", visit_type, g, port) : SW_OK;
}

static sw_status read_input(struct sw_onnx_graph *g, const struct sw_proto_field *field)
{
    struct port port = {.rank = -1, .name = ""};
    char words[200];
    int32_t i;
    SW_TRY(each(field, "an input", visit_port, g, &port));
    SW_TRY(sw_onnx_value_of(g, port.name, &i));
    struct sw_onnx_graph_value *v = &g->values[i];
    if (v->kind == ONNX_VALUE_INPUT) {
        return SW_FAIL(SW_E_FORMAT, "two inputs of the model have the name %s",
                       plain(port.name, words));
    }
    if (v->kind !=
        ONNX_VALUE_UNMADE) { /* an initializer: the input's default, which nobody changes */
        return SW_OK;
    }
    const enum sw_onnx_type type =
        port.type > 0 && port.type <= ONNX_BF16 ? (enum sw_onnx_type)port.type : ONNX_TEXTS;
    if (port.rank < 0 || !sw_onnx_type_name(type)) {
        return SW_FAIL(
            SW_E_UNSUP, "input %s of the model: wanted a tensor of numbers with a shape, found %s",
            plain(port.name, words), port.rank < 0 ? "no shape" : "elements of another type");
    }
    const char **sizes = sw_arena_array(&g->own->arena, ONNX_READ_RANK, sizeof *sizes);
    SW_TRY_ALLOC(sizes, "the inputs of an ONNX file");
    memcpy(sizes, port.sizes, sizeof port.sizes);
    v->kind = ONNX_VALUE_INPUT;
    v->type = type;
    v->rank = port.rank;
    memcpy(v->dims, port.dims, sizeof v->dims);
    v->sizes = sizes;
    g->inputs[g->n_inputs++] = i;
    return SW_OK;
}

static sw_status read_output(struct sw_onnx_graph *g, const struct sw_proto_field *field)
{
    struct port port = {.rank = -1, .name = ""};
    char words[200];
    int32_t i;
    SW_TRY(each(field, "an output", visit_port, g, &port));
    i = sw_names_find(&g->own->names, 0, port.name);
    if (i < 0) {
        return SW_FAIL(SW_E_FORMAT, "output %s of the model: no node makes it",
                       plain(port.name, words));
    }
    g->values[i].is_output = true;
    g->output_names[g->n_outputs] = g->values[i].name;
    g->outputs[g->n_outputs++] = i;
    return SW_OK;
}

/* ---- the graph ---- */

typedef sw_status (*part_fn)(struct sw_onnx_graph *g, const struct sw_proto_field *field);

/* One pass over the graph, for one kind of field. */
static sw_status pass(struct sw_onnx_graph *g, const struct sw_proto_field *field, int number,
                      part_fn read)
{
    struct sw_proto proto = {field->bytes, field->len, 0};
    struct sw_proto_field part;
    bool more;
    for (;;) {
        SW_TRY(sw_proto_next(&proto, &part, &more));
        if (!more) {
            return SW_OK;
        }
        if (part.number == number) {
            SW_TRY(read(g, &part));
        }
    }
}

static sw_status count_ports(struct sw_onnx_graph *g, const struct sw_proto_field *field)
{
    struct sw_arena *arena = &g->own->arena;
    struct sw_proto proto = {field->bytes, field->len, 0};
    struct sw_proto_field part;
    size_t n_in = 1, n_out = 1;
    bool more;
    SW_TRY(sw_onnx_want_bytes(field, "the graph"));
    for (;;) {
        SW_TRY(sw_proto_next(&proto, &part, &more));
        if (!more) {
            break;
        }
        n_in += part.number == ONNX_GRAPH_INPUT;
        n_out += part.number == ONNX_GRAPH_OUTPUT;
        if (part.number == ONNX_GRAPH_SPARSE) {
            return SW_FAIL(SW_E_UNSUP, "sparse initializers are not read");
        }
    }
    g->inputs = sw_arena_array(arena, n_in, sizeof *g->inputs);
    g->outputs = sw_arena_array(arena, n_out, sizeof *g->outputs);
    g->output_names = sw_arena_array(arena, n_out, sizeof *g->output_names);
    if (!g->inputs || !g->outputs || !g->output_names) {
        return SW_FAIL(SW_E_NOMEM, "out of host memory for the graph of an ONNX file");
    }
    return SW_OK;
}

static sw_status check_values(const struct sw_onnx_graph *g)
{
    char words[200], reader[300];
    for (int32_t i = 0; i < g->n_values; i++) {
        const struct sw_onnx_graph_value *v = &g->values[i];
        if (v->kind == ONNX_VALUE_UNMADE) {
            return SW_FAIL(SW_E_FORMAT,
                           "%s: input %s: wanted an output of a node, an input of the model or an "
                           "initializer, found none",
                           sw_onnx_node_words(&g->nodes[v->producer], reader, sizeof reader),
                           plain(v->name, words));
        }
    }
    if (g->n_outputs == 0) {
        return SW_FAIL(SW_E_FORMAT, "the graph has no output");
    }
    return SW_OK;
}

static sw_status read_graph(struct sw_onnx_graph *g, const struct sw_proto_field *field)
{
    SW_TRY(count_ports(g, field));
    SW_TRY(pass(g, field, ONNX_GRAPH_INITIALIZER, read_initializer));
    SW_TRY(pass(g, field, ONNX_GRAPH_INPUT, read_input));
    SW_TRY(pass(g, field, ONNX_GRAPH_NODE, sw_onnx_read_node));
    SW_TRY(pass(g, field, ONNX_GRAPH_OUTPUT, read_output));
    SW_TRY(check_values(g));
    SW_TRY(sw_onnx_check_ranges(g));
    SW_TRY(sw_onnx_count_uses(g));
    return SW_OK;
}

sw_status sw_onnx_count_uses(struct sw_onnx_graph *g)
{
    int64_t n = 0;
    for (int32_t i = 0; i < g->n_values; i++) {
        g->values[i].n_uses = 0;
    }
    for (int32_t i = 0; i < g->n_nodes; i++) {
        for (int32_t k = 0; k < g->nodes[i].n_in; k++) {
            if (g->nodes[i].in[k] >= 0) {
                g->values[g->nodes[i].in[k]].n_uses++;
                n++;
            }
        }
    }
    if (n > INT32_MAX) {
        return SW_FAIL(SW_E_UNSUP, "the graph has more than %d edges", INT32_MAX);
    }
    g->uses = sw_arena_array(&g->own->arena, (size_t)n + 1, sizeof *g->uses);
    SW_TRY_ALLOC(g->uses, "the graph of an ONNX file");
    g->n_uses = 0;
    for (int32_t i = 0; i < g->n_values; i++) {
        g->values[i].first_use = g->n_uses;
        g->n_uses += g->values[i].n_uses;
        g->values[i].n_uses = 0;
    }
    for (int32_t i = 0; i < g->n_nodes; i++) {
        for (int32_t k = 0; k < g->nodes[i].n_in; k++) {
            if (g->nodes[i].in[k] >= 0) {
                struct sw_onnx_graph_value *v = &g->values[g->nodes[i].in[k]];
                g->uses[v->first_use + v->n_uses++] = (struct sw_onnx_graph_use){i, k};
            }
        }
    }
    return SW_OK;
}

/* ---- the model ---- */

static sw_status read_opset(struct sw_onnx_graph *g, const struct sw_proto_field *field)
{
    struct sw_proto proto = {field->bytes, field->len, 0};
    struct sw_proto_field part;
    const char *text;
    bool more, own = true;
    int64_t version = 0;
    SW_TRY(sw_onnx_want_bytes(field, "an opset"));
    for (;;) {
        SW_TRY(sw_proto_next(&proto, &part, &more));
        if (!more) {
            break;
        }
        if (part.number == ONNX_OPSET_DOMAIN) {
            SW_TRY(sw_onnx_read_text(g, &part, "the domain of an opset", &text));
            own = !*text || strcmp(text, "ai.onnx") == 0;
        } else if (part.number == ONNX_OPSET_VERSION) {
            SW_TRY(sw_onnx_want_int(&part, "the version of an opset"));
            version = part.integer;
        }
    }
    if (!own) {
        return SW_OK; /* a node of another domain is refused by its name */
    }
    if (version < SW_ONNX_LEAST_OPSET || version > SW_ONNX_MOST_OPSET) {
        return SW_FAIL(SW_E_UNSUP, "opset %lld, wanted %d to %d", (long long)version,
                       SW_ONNX_LEAST_OPSET, SW_ONNX_MOST_OPSET);
    }
    g->opset = (int)version;
    return SW_OK;
}

static sw_status refuse_function(struct sw_onnx_graph *g, const struct sw_proto_field *field)
{
    struct sw_proto proto = {field->bytes, field->len, 0};
    struct sw_proto_field part;
    const char *text = "";
    char words[200];
    bool more = true;
    SW_TRY(sw_onnx_want_bytes(field, "a function"));
    while (more) {
        SW_TRY(sw_proto_next(&proto, &part, &more));
        if (more && part.number == ONNX_FUNCTION_NAME) {
            SW_TRY(sw_onnx_read_text(g, &part, "the name of a function", &text));
            break;
        }
    }
    return SW_FAIL(SW_E_UNSUP,
                   "function %s of the model: wanted a graph without functions of its own, export "
                   "it with optimize=True",
                   plain(text, words));
}

static sw_status read_model(struct sw_onnx_graph *g)
{
    struct sw_proto proto = {g->files[0].bytes, g->files[0].len, 0};
    struct sw_proto_field part, graph = {0};
    bool more;
    for (;;) {
        SW_TRY(sw_proto_next(&proto, &part, &more));
        if (!more) {
            break;
        }
        switch (part.number) {
        case ONNX_MODEL_IR_VERSION:
            SW_TRY(sw_onnx_want_int(&part, "ir_version"));
            g->ir_version = part.integer;
            break;
        case ONNX_MODEL_GRAPH:
            if (graph.number) {
                return SW_FAIL(SW_E_FORMAT, "the model has two graphs");
            }
            graph = part;
            break;
        case ONNX_MODEL_OPSET:
            SW_TRY(read_opset(g, &part));
            break;
        case ONNX_MODEL_FUNCTION:
            return refuse_function(g, &part);
        case ONNX_MODEL_TRAINING:
            return SW_FAIL(SW_E_UNSUP, "training_info is not read");
        default:
            break;
        }
    }
    if (!graph.number) {
        return SW_FAIL(SW_E_FORMAT, "the file has no graph: it is not ONNX, or is damaged");
    }
    if (g->opset == 0) {
        return SW_FAIL(SW_E_FORMAT, "the model has no opset of ONNX's own operators");
    }
    return read_graph(g, &graph);
}

sw_status sw_onnx_graph_open(const char *path, struct sw_onnx_graph **out)
{
    struct sw_onnx_graph *g = sw_alloc_zero("onnx", 1, sizeof *g);
    SW_TRY_ALLOC(g, "the graph of an ONNX file");
    int32_t i_file;
    sw_status st = SW_OK;
    g->own = sw_alloc_zero("onnx", 1, sizeof *g->own);
    if (!g->own) {
        sw_free(g);
        return SW_FAIL(SW_E_NOMEM, "out of host memory for the graph of an ONNX file");
    }
    sw_arena_init(&g->own->arena, "onnx");
    g->path = sw_arena_strdup(&g->own->arena, path);
    if (!g->path) {
        st = SW_FAIL(SW_E_NOMEM, "out of host memory for the graph of an ONNX file");
        goto fail;
    }
    if (!sw_folder_of(path, g->own->folder, sizeof g->own->folder)) {
        st = SW_FAIL(SW_E_ARG, "the path of the ONNX file is too long");
        goto fail;
    }
    const char *name = strrchr(path, '/');
    SW_TRY_OR(fail, sw_onnx_map_file(g, name ? name + 1 : path, &i_file));
    st = read_model(g);
    if (st < 0) {
        sw_fail_prefix(st, "%s", path);
        goto fail;
    }
    *out = g;
    return SW_OK;
fail:
    sw_onnx_graph_close(g);
    return st;
}

void sw_onnx_graph_close(struct sw_onnx_graph *g)
{
    if (!g) {
        return;
    }
    for (int i = 0; i < g->n_files && !g->source; i++) {
        if (g->files[i].bytes) {
            munmap((void *)(uintptr_t)g->files[i].bytes, g->files[i].len);
        }
    }
    if (!g->source) {
        sw_free(g->files);
    }
    struct sw_onnx_graph_own *own = g->own;
    sw_onnx_free_buffers(own->buffers);
    sw_free(g->nodes);
    sw_free(g->values);
    sw_free(own->kept);
    sw_free(own->ranges);
    sw_names_close(&own->names);
    sw_names_close(&own->words);
    sw_str_fini(&own->scratch);
    sw_arena_fini(&own->arena);
    sw_free(own);
    sw_free(g);
}

/* ---- looking at it ---- */

int32_t sw_onnx_graph_find(const struct sw_onnx_graph *graph, const char *name)
{
    const struct sw_onnx_graph *g = graph->source ? graph->source : graph;
    return sw_names_find(&g->own->names, 0, name);
}

const struct sw_onnx_graph_attr *sw_onnx_attr(const struct sw_onnx_graph_node *node,
                                              const char *name)
{
    for (int32_t i = 0; i < node->n_attrs; i++) {
        if (strcmp(node->attrs[i].name, name) == 0) {
            return &node->attrs[i];
        }
    }
    return NULL;
}

int64_t sw_onnx_attr_int(const struct sw_onnx_graph_node *node, const char *name, int64_t or_else)
{
    const struct sw_onnx_graph_attr *attr = sw_onnx_attr(node, name);
    return attr && attr->kind == ONNX_ATTR_INT ? attr->integer : or_else;
}

double sw_onnx_attr_number(const struct sw_onnx_graph_node *node, const char *name, double or_else)
{
    const struct sw_onnx_graph_attr *attr = sw_onnx_attr(node, name);
    return attr && attr->kind == ONNX_ATTR_FLOAT ? attr->number : or_else;
}

const char *sw_onnx_attr_text(const struct sw_onnx_graph_node *node, const char *name,
                              const char *or_else)
{
    const struct sw_onnx_graph_attr *attr = sw_onnx_attr(node, name);
    return attr && attr->kind == ONNX_ATTR_TEXT ? attr->text : or_else;
}

const char *sw_onnx_node_words(const struct sw_onnx_graph_node *node, char *out, size_t cap)
{
    char name[200], op[64];
    sw_plain_words(node->op, op, sizeof op);
    if (*node->name) {
        snprintf(out, cap, "node %s (%s)", plain(node->name, name), op);
    } else {
        snprintf(out, cap, "node %d (%s)", node->index, op);
    }
    return out;
}

const char *sw_onnx_value_words(const struct sw_onnx_graph_value *value, char *out, size_t cap)
{
    const char *type = sw_onnx_type_name(value->type);
    struct sw_str text = {0};
    sw_str_printf(&text, "%s", type ? type : "?");
    if (value->rank < 0) {
        sw_str_puts(&text, " [..]");
    } else {
        sw_str_puts(&text, " [");
        for (int i = 0; i < value->rank; i++) {
            sw_str_puts(&text, i > 0 ? ", " : "");
            if (value->dims[i] >= 0) {
                sw_str_printf(&text, "%lld", (long long)value->dims[i]);
            } else {
                sw_str_puts(&text, "?");
            }
        }
        sw_str_putc(&text, ']');
    }
    snprintf(out, cap, "%s", sw_str_text(&text));
    sw_str_fini(&text);
    return out;
}
