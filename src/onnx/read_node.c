// SPDX-License-Identifier: Apache-2.0
// Nodes of a file, with their attributes and scopes. A node reads what was made before it: so nodes
// that are not in order, and cycles, are found as soon as they are read.
#include <stdio.h>
#include <string.h>

#include "onnx/file.h"
#include "onnx/reading.h"

static const char *plain(const char *text, char out[200])
{
    return sw_plain_words(text, out, 200);
}

/* ---- attributes ---- */

struct list {
    void *elems;
    int32_t n, cap;
};

static sw_status add_numbers(const struct sw_proto_field *part, int wire, size_t bytes,
                             struct list *out)
{
    size_t at = 0;
    for (;;) {
        int64_t number;
        bool more;
        SW_TRY(sw_onnx_next_number(part, wire, &at, &number, &more));
        if (!more) {
            return SW_OK;
        }
        SW_TRY(sw_onnx_grow(&out->elems, out->n, &out->cap, bytes));
        if (bytes == sizeof(float)) {
            const struct sw_proto_field field = {.integer = number};
            ((float *)out->elems)[out->n++] = sw_proto_float(&field);
        } else {
            ((int64_t *)out->elems)[out->n++] = number;
        }
    }
}

static sw_status read_attr_field(struct sw_onnx_graph *g, const struct sw_proto_field *part,
                                 struct sw_onnx_graph_attr *attr, struct list *ints,
                                 struct list *floats)
{
    const char *text;
    switch (part->number) {
    case ONNX_ATTRIBUTE_NAME:
        SW_TRY(sw_onnx_read_text(g, part, "the name of an attribute", &text));
        return sw_onnx_keep_word(g, text, &attr->name);
    case ONNX_ATTRIBUTE_KIND:
        attr->kind = part->integer >= 0 && part->integer <= 14
                         ? (enum sw_onnx_attr_kind)part->integer
                         : (enum sw_onnx_attr_kind)0;
        return sw_onnx_want_int(part, "the type of an attribute");
    case ONNX_ATTRIBUTE_FLOAT:
        attr->number = (double)sw_proto_float(part);
        return part->wire == SW_PROTO_FIXED32
                   ? SW_OK
                   : SW_FAIL(SW_E_FORMAT, "a float has wire type %d", part->wire);
    case ONNX_ATTRIBUTE_INT:
        attr->integer = part->integer;
        return sw_onnx_want_int(part, "an integer of an attribute");
    case ONNX_ATTRIBUTE_TEXT:
        SW_TRY(sw_onnx_read_text(g, part, "the text of an attribute", &text));
        return sw_onnx_keep_text(g, text, &attr->text);
    case ONNX_ATTRIBUTE_INTS:
        return add_numbers(part, SW_PROTO_VARINT, sizeof(int64_t), ints);
    case ONNX_ATTRIBUTE_FLOATS:
        return add_numbers(part, SW_PROTO_FIXED32, sizeof(float), floats);
    case ONNX_ATTRIBUTE_TENSOR:
        return sw_onnx_read_tensor(g, part, false, "tensor", &text, &attr->data);
    case ONNX_ATTRIBUTE_REFERENCE:
        return SW_FAIL(SW_E_FORMAT, "an attribute refers to one of a function, outside of any");
    default:
        return SW_OK;
    }
}

static sw_status check_attr(const struct sw_onnx_graph_attr *attr)
{
    char words[200];
    switch (attr->kind) {
    case ONNX_ATTR_FLOAT:
    case ONNX_ATTR_INT:
    case ONNX_ATTR_INTS:
    case ONNX_ATTR_FLOATS:
    case ONNX_ATTR_TEXTS:
        return SW_OK;
    case ONNX_ATTR_TEXT:
    case ONNX_ATTR_TENSOR:
        if (attr->kind == ONNX_ATTR_TENSOR && !attr->data) {
            return SW_FAIL(SW_E_FORMAT, "attribute %s has no tensor", plain(attr->name, words));
        }
        return SW_OK;
    case ONNX_ATTR_GRAPH:
    case ONNX_ATTR_GRAPHS:
        return SW_FAIL(SW_E_UNSUP,
                       "attribute %s is a graph: wanted a model without nested graphs, export it "
                       "without control flow",
                       plain(attr->name, words));
    default:
        return SW_FAIL(SW_E_UNSUP, "attribute %s is of type %d, which is not read",
                       plain(attr->name, words), (int)attr->kind);
    }
}

/* Moves a list into the arena. */
static sw_status settle(struct sw_onnx_graph *g, struct list *list, size_t bytes, const void **out)
{
    void *copy = sw_arena_array(&g->own->arena, (size_t)list->n + 1, bytes);
    SW_TRY_ALLOC(copy, "an attribute of an ONNX file");
    if (list->n > 0) {
        memcpy(copy, list->elems, (size_t)list->n * bytes);
    }
    *out = copy;
    return SW_OK;
}

static sw_status read_attr_fields(struct sw_onnx_graph *g, const struct sw_proto_field *field,
                                  struct sw_onnx_graph_attr *attr, struct list *ints,
                                  struct list *floats)
{
    struct sw_proto proto = {field->bytes, field->len, 0};
    struct sw_proto_field part;
    const void *elems;
    bool more;
    SW_TRY(sw_onnx_want_bytes(field, "an attribute"));
    for (;;) {
        SW_TRY(sw_proto_next(&proto, &part, &more));
        if (!more) {
            break;
        }
        SW_TRY(read_attr_field(g, &part, attr, ints, floats));
    }
    SW_TRY(check_attr(attr));
    if (attr->kind == ONNX_ATTR_INTS) {
        SW_TRY(settle(g, ints, sizeof(int64_t), &elems));
        attr->ints = elems;
        attr->n = ints->n;
    } else if (attr->kind == ONNX_ATTR_FLOATS) {
        SW_TRY(settle(g, floats, sizeof(float), &elems));
        attr->floats = elems;
        attr->n = floats->n;
    }
    return SW_OK;
}

static sw_status read_attribute(struct sw_onnx_graph *g, const struct sw_proto_field *field,
                                struct sw_onnx_graph_attr *attr)
{
    struct list ints = {0}, floats = {0};
    *attr = (struct sw_onnx_graph_attr){.name = "", .text = ""};
    const sw_status st = read_attr_fields(g, field, attr, &ints, &floats);
    sw_free(ints.elems);
    sw_free(floats.elems);
    return st;
}

/* ---- scopes ---- */

/* "/bert/encoder/layer.0/MatMul" of the older exporter and "h.0.attn/MatMul" of ours are
 * "bert.encoder.layer.0" and "h.0.attn". */
static sw_status scope_of_name(struct sw_onnx_graph *g, const char *name, const char **out)
{
    const char *last = strrchr(name, '/');
    *out = "";
    name += *name == '/';
    if (!last || last <= name) {
        return SW_OK;
    }
    char *scope = sw_arena_strndup(&g->own->arena, name, (size_t)(last - name));
    SW_TRY_ALLOC(scope, "the names of an ONNX file");
    for (char *at = scope; *at; at++) {
        *at = *at == '/' ? '.' : *at;
    }
    *out = scope;
    return SW_OK;
}

/* The newer exporter lists scopes from the outermost to the node's own name, as Python prints it:
 * ['', 'encoder', 'encoder.layer.0', 'linear']. The last but one is the module's. */
static sw_status scope_of_list(struct sw_onnx_graph *g, const char *list, const char **out)
{
    const char *parts[2] = {NULL, NULL}; /* the last two */
    size_t lens[2] = {0, 0};
    for (const char *at = strpbrk(list, "'\""); at; at = strpbrk(at, "'\"")) {
        const char *end = strchr(at + 1, *at);
        if (!end) {
            break;
        }
        parts[0] = parts[1];
        lens[0] = lens[1];
        parts[1] = at + 1;
        lens[1] = (size_t)(end - at - 1);
        at = end + 1;
    }
    if (parts[0] && lens[0] > 0) {
        *out = sw_arena_strndup(&g->own->arena, parts[0], lens[0]);
        SW_TRY_ALLOC(*out, "the names of an ONNX file");
    }
    return SW_OK;
}

static sw_status read_metadata(struct sw_onnx_graph *g, const struct sw_proto_field *field,
                               const char **out_scope)
{
    static const char key[] = "pkg.torch.onnx.name_scopes";
    struct sw_proto proto = {field->bytes, field->len, 0};
    struct sw_proto_field part, value = {0};
    const char *text;
    bool more, found = false;
    SW_TRY(sw_onnx_want_bytes(field, "metadata"));
    for (;;) {
        SW_TRY(sw_proto_next(&proto, &part, &more));
        if (!more) {
            break;
        }
        if (part.number == ONNX_ENTRY_KEY) {
            found = part.wire == SW_PROTO_BYTES && part.len == sizeof key - 1 &&
                    memcmp(part.bytes, key, part.len) == 0;
        } else if (part.number == ONNX_ENTRY_VALUE) {
            value = part;
        }
    }
    if (found && value.number == ONNX_ENTRY_VALUE) {
        SW_TRY(sw_onnx_read_text(g, &value, "metadata of a node", &text));
        SW_TRY(scope_of_list(g, text, out_scope));
    }
    return SW_OK;
}

/* ---- nodes ---- */

static bool is_quantised(const char *op)
{
    static const char *const ops[] = {"QuantizeLinear", "DequantizeLinear", "DynamicQuantizeLinear",
                                      "MatMulInteger", "ConvInteger"};
    for (size_t i = 0; i < SW_LEN(ops); i++) {
        if (strcmp(op, ops[i]) == 0) {
            return true;
        }
    }
    return strncmp(op, "QLinear", strlen("QLinear")) == 0;
}

static sw_status check_op(const char *op, const char *domain)
{
    char words[200];
    if (*domain && strcmp(domain, "ai.onnx") != 0) {
        return SW_FAIL(SW_E_UNSUP, "its operator is of domain %s, wanted one of ONNX's own",
                       plain(domain, words));
    }
    if (!*op) {
        return SW_FAIL(SW_E_FORMAT, "it has no operator");
    }
    if (strcmp(op, "If") == 0 || strcmp(op, "Loop") == 0 || strcmp(op, "Scan") == 0) {
        return SW_FAIL(SW_E_UNSUP, "control flow is not read: export the model without it");
    }
    if (is_quantised(op)) {
        return SW_FAIL(SW_E_UNSUP,
                       "quantised operators are not trained: export the model unquantised");
    }
    return SW_OK;
}

static sw_status read_in(struct sw_onnx_graph *g, const struct sw_proto_field *part,
                         struct sw_onnx_graph_node *node)
{
    const char *text;
    int32_t i = -1;
    SW_TRY(sw_onnx_read_text(g, part, "the name of an input", &text));
    if (*text) {
        SW_TRY(sw_onnx_value_of(g, text, &i));
        if (g->values[i].kind == ONNX_VALUE_UNMADE && g->values[i].producer < 0) {
            g->values[i].producer = (int32_t)(node - g->nodes); /* the first node that reads it */
        }
    }
    node->in[node->n_in++] = i;
    return SW_OK;
}

static sw_status read_out(struct sw_onnx_graph *g, const struct sw_proto_field *part,
                          struct sw_onnx_graph_node *node)
{
    const char *text;
    char words[200], reader[300];
    int32_t i = -1;
    SW_TRY(sw_onnx_read_text(g, part, "the name of an output", &text));
    if (*text) {
        SW_TRY(sw_onnx_value_of(g, text, &i));
        struct sw_onnx_graph_value *v = &g->values[i];
        if (v->kind != ONNX_VALUE_UNMADE) {
            return SW_FAIL(SW_E_FORMAT,
                           "output %s is also that of another node, an input of the "
                           "model or an initializer",
                           plain(v->name, words));
        }
        if (v->producer >= 0) {
            return SW_FAIL(SW_E_FORMAT,
                           "%s reads its output %s before it is made: nodes are not in order, or "
                           "in a cycle",
                           v->producer == node - g->nodes
                               ? "it"
                               : sw_onnx_node_words(&g->nodes[v->producer], reader, sizeof reader),
                           plain(v->name, words));
        }
        v->kind = ONNX_VALUE_COMPUTED;
        v->producer = (int32_t)(node - g->nodes);
        v->i_out = node->n_out;
    }
    node->out[node->n_out++] = i;
    return SW_OK;
}

/* The parts of a node that its messages name, and how many it has of the others. */
static sw_status count_parts(struct sw_onnx_graph *g, const struct sw_proto_field *field,
                             struct sw_onnx_graph_node *node, const char **out_domain)
{
    struct sw_proto proto = {field->bytes, field->len, 0};
    struct sw_proto_field part;
    const char *text;
    bool more;
    SW_TRY(sw_onnx_want_bytes(field, "a node"));
    for (;;) {
        SW_TRY(sw_proto_next(&proto, &part, &more));
        if (!more) {
            return SW_OK;
        }
        if (proto.at > INT32_MAX) { /* all counts are below it */
            return SW_FAIL(SW_E_UNSUP, "it has more than %d bytes", INT32_MAX);
        }
        switch (part.number) {
        case ONNX_NODE_INPUT:
            node->n_in++;
            break;
        case ONNX_NODE_OUTPUT:
            node->n_out++;
            break;
        case ONNX_NODE_ATTRIBUTE:
            node->n_attrs++;
            break;
        case ONNX_NODE_NAME:
            SW_TRY(sw_onnx_read_text(g, &part, "the name of a node", &text));
            SW_TRY(sw_onnx_keep_text(g, text, &node->name));
            SW_TRY(scope_of_name(g, node->name, &node->scope));
            break;
        case ONNX_NODE_OP:
            SW_TRY(sw_onnx_read_text(g, &part, "the operator of a node", &text));
            SW_TRY(sw_onnx_keep_word(g, text, &node->op));
            break;
        case ONNX_NODE_DOMAIN:
            SW_TRY(sw_onnx_read_text(g, &part, "the domain of a node", &text));
            SW_TRY(sw_onnx_keep_word(g, text, out_domain));
            break;
        default:
            break;
        }
    }
}

static sw_status read_parts(struct sw_onnx_graph *g, const struct sw_proto_field *field,
                            struct sw_onnx_graph_node *node)
{
    struct sw_arena *arena = &g->own->arena;
    struct sw_proto proto = {field->bytes, field->len, 0};
    struct sw_proto_field part;
    bool more;
    const size_t n_edges = (size_t)node->n_in + (size_t)node->n_out;
    int32_t *edges = sw_arena_array(arena, n_edges + 1, sizeof *edges);
    struct sw_onnx_graph_attr *attrs =
        sw_arena_array(arena, (size_t)node->n_attrs + 1, sizeof *attrs);
    SW_TRY_ALLOC(edges, "the graph of an ONNX file");
    SW_TRY_ALLOC(attrs, "the graph of an ONNX file");
    node->in = edges;
    node->out = edges + node->n_in;
    node->attrs = attrs;
    node->n_in = node->n_out = node->n_attrs = 0;
    for (;;) {
        SW_TRY(sw_proto_next(&proto, &part, &more));
        if (!more) {
            return SW_OK;
        }
        if (part.number == ONNX_NODE_INPUT) {
            SW_TRY(read_in(g, &part, node));
        } else if (part.number == ONNX_NODE_ATTRIBUTE) {
            SW_TRY(read_attribute(g, &part, &attrs[node->n_attrs]));
            node->n_attrs++;
        } else if (part.number == ONNX_NODE_METADATA) {
            SW_TRY(read_metadata(g, &part, &node->scope));
        }
    }
}

static sw_status read_outs(struct sw_onnx_graph *g, const struct sw_proto_field *field,
                           struct sw_onnx_graph_node *node)
{
    struct sw_proto proto = {field->bytes, field->len, 0};
    struct sw_proto_field part;
    bool more;
    for (;;) {
        SW_TRY(sw_proto_next(&proto, &part, &more));
        if (!more) {
            return SW_OK;
        }
        if (part.number == ONNX_NODE_OUTPUT) {
            SW_TRY(read_out(g, &part, node));
        }
    }
}

/* A node of Constant is a constant, and not a node. */
static sw_status settle_constant(struct sw_onnx_graph *g, struct sw_onnx_graph_node *node)
{
    const struct sw_onnx_graph_attr *attr = node->n_attrs == 1 ? &node->attrs[0] : NULL;
    struct sw_onnx_data *data = sw_arena_alloc(&g->own->arena, sizeof *data);
    SW_TRY_ALLOC(data, "a constant of an ONNX file");
    if (!attr || node->n_out != 1 || node->out[0] < 0 || node->n_in != 0) {
        return SW_FAIL(SW_E_FORMAT, "wanted one attribute and one output");
    }
    *data = (struct sw_onnx_data){.i_file = -1, .n = 1};
    if (strcmp(attr->name, "value") == 0 && attr->kind == ONNX_ATTR_TENSOR) {
        *data = *attr->data;
        data->i_file = -1; /* not a weight */
    } else if (attr->kind == ONNX_ATTR_INTS || attr->kind == ONNX_ATTR_FLOATS) {
        const bool ints = attr->kind == ONNX_ATTR_INTS;
        data->type = ints ? ONNX_I64 : ONNX_F32;
        data->elems = ints ? (const void *)attr->ints : (const void *)attr->floats;
        data->rank = 1;
        data->n = data->dims[0] = attr->n;
    } else if (attr->kind == ONNX_ATTR_INT) {
        data->type = ONNX_I64;
        data->elems = &attr->integer;
    } else if (attr->kind == ONNX_ATTR_FLOAT) {
        float *elem = sw_arena_alloc(&g->own->arena, sizeof *elem);
        SW_TRY_ALLOC(elem, "a constant of an ONNX file");
        *elem = (float)attr->number;
        data->type = ONNX_F32;
        data->elems = elem;
    } else {
        char words[200];
        return SW_FAIL(SW_E_UNSUP, "attribute %s of type %d is not read", plain(attr->name, words),
                       (int)attr->kind);
    }
    data->bytes = (uint64_t)data->n * sw_onnx_type_bytes(data->type);
    struct sw_onnx_graph_value *v = &g->values[node->out[0]];
    v->kind = ONNX_VALUE_CONSTANT;
    v->type = data->type;
    v->rank = data->rank;
    memcpy(v->dims, data->dims, sizeof v->dims);
    v->data = data;
    v->producer = v->i_out = -1;
    return SW_OK;
}

static sw_status read_node_parts(struct sw_onnx_graph *g, const struct sw_proto_field *field,
                                 struct sw_onnx_graph_node *node)
{
    const char *domain = "";
    SW_TRY(count_parts(g, field, node, &domain));
    SW_TRY(check_op(node->op, domain));
    SW_TRY(read_parts(g, field, node));
    SW_TRY(read_outs(g, field, node));
    if (strcmp(node->op, "Constant") == 0) {
        SW_TRY(settle_constant(g, node));
        g->n_nodes--;
    }
    return SW_OK;
}

sw_status sw_onnx_read_node(struct sw_onnx_graph *g, const struct sw_proto_field *field)
{
    char words[300];
    SW_TRY(sw_onnx_grow(&g->nodes, g->n_nodes, &g->own->cap_nodes, sizeof *g->nodes));
    struct sw_onnx_graph_node *node = &g->nodes[g->n_nodes];
    *node =
        (struct sw_onnx_graph_node){.name = "", .op = "", .scope = "", .index = g->own->n_seen++};
    g->n_nodes++;
    const sw_status st = read_node_parts(g, field, node);
    return st < 0 ? sw_fail_prefix(st, "%s", sw_onnx_node_words(node, words, sizeof words)) : st;
}
