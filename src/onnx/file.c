// SPDX-License-Identifier: Apache-2.0
// Building an ONNX graph in memory: nodes with unique names, constants that are there once.
#include "onnx/file.h"

#include <stdio.h>
#include <string.h>

/* Kinds of entries in the table of names. */
enum { NAME_TENSOR, NAME_COUNT };

void sw_onnx_file_fini(struct sw_onnx_file *file)
{
    sw_free(file->nodes);
    sw_free(file->tensors);
    sw_free(file->counts);
    sw_names_close(&file->names);
    sw_arena_fini(&file->arena);
}

void sw_onnx_fail(struct sw_onnx_file *file, sw_status status)
{
    file->status = file->status < 0 ? file->status : status;
}

static void fail_memory(struct sw_onnx_file *file)
{
    if (file->status >= 0) {
        file->status = SW_FAIL(SW_E_NOMEM, "out of host memory for an ONNX graph");
    }
}

/* Room for one more item; false: out of memory. */
static bool grow(struct sw_onnx_file *file, void **items, int64_t n, int64_t *cap, size_t bytes)
{
    if (n < *cap) {
        return true;
    }
    const int64_t more = *cap > 0 ? 2 * *cap : 256;
    void *grown = sw_realloc("onnx", *items, (size_t)more * bytes);
    if (!grown) {
        fail_memory(file);
        return false;
    }
    *items = grown;
    *cap = more;
    return true;
}

static const char *keep(struct sw_onnx_file *file, const char *text)
{
    const char *kept = sw_arena_strdup(&file->arena, text);
    if (!kept) {
        fail_memory(file);
    }
    return kept ? kept : "";
}

/* "SCOPE/OP", or "SCOPE/OP_N" after the first one. */
static const char *node_name(struct sw_onnx_file *file, const char *scope, const char *op)
{
    char plain[320], numbered[352];
    snprintf(plain, sizeof plain, "%s%s%s", scope, *scope ? "/" : "", op);
    const int32_t known = sw_names_find(&file->names, NAME_COUNT, plain);
    if (known < 0) {
        const char *kept = keep(file, plain);
        if (grow(file, (void **)&file->counts, file->n_counts, &file->cap_counts,
                 sizeof *file->counts)) {
            file->counts[file->n_counts] = 1;
            if (!sw_names_add(&file->names, NAME_COUNT, kept, (int32_t)file->n_counts++)) {
                fail_memory(file);
            }
        }
        return kept;
    }
    snprintf(numbered, sizeof numbered, "%s_%d", plain, file->counts[known]++);
    return keep(file, numbered);
}

const char *sw_onnx_add(struct sw_onnx_file *file, const char *scope, const char *op,
                        const char *const *in)
{
    if (file->status < 0 ||
        !grow(file, (void **)&file->nodes, file->n_nodes, &file->cap_nodes, sizeof *file->nodes)) {
        return "";
    }
    struct sw_onnx_node *node = &file->nodes[file->n_nodes++];
    *node = (struct sw_onnx_node){.op = op, .name = node_name(file, scope, op)};
    while (in[node->n_in]) {
        node->n_in++;
    }
    node->in = sw_arena_array(&file->arena, (size_t)node->n_in + 1, sizeof *node->in);
    if (!node->in) {
        fail_memory(file);
        node->n_in = 0;
    }
    for (int k = 0; k < node->n_in; k++) {
        node->in[k] = in[k];
    }
    node->out = sw_arena_printf(&file->arena, "%s_output_0", node->name);
    if (!node->out) {
        fail_memory(file);
        node->out = "";
    }
    return node->out;
}

const char *sw_onnx_more(struct sw_onnx_file *file)
{
    if (file->status < 0) {
        return "";
    }
    struct sw_onnx_node *node = &file->nodes[file->n_nodes - 1];
    node->more = sw_arena_printf(&file->arena, "%s_output_1", node->name);
    if (!node->more) {
        fail_memory(file);
    }
    return node->more ? node->more : "";
}

/* ---- attributes ---- */

static struct sw_onnx_attr *add_attr(struct sw_onnx_file *file, const char *name,
                                     enum sw_onnx_attr_kind kind)
{
    if (file->status < 0) {
        return &file->lost;
    }
    struct sw_onnx_node *node = &file->nodes[file->n_nodes - 1];
    SW_ASSERT(node->n_attrs < ONNX_MAX_ATTRS);
    struct sw_onnx_attr *attr = &node->attrs[node->n_attrs++];
    *attr = (struct sw_onnx_attr){.name = name, .kind = kind};
    return attr;
}

void sw_onnx_set_int(struct sw_onnx_file *file, const char *name, int64_t value)
{
    add_attr(file, name, ONNX_ATTR_INT)->integer = value;
}

void sw_onnx_set_float(struct sw_onnx_file *file, const char *name, double value)
{
    add_attr(file, name, ONNX_ATTR_FLOAT)->number = value;
}

void sw_onnx_set_text(struct sw_onnx_file *file, const char *name, const char *text)
{
    add_attr(file, name, ONNX_ATTR_TEXT)->text = text;
}

void sw_onnx_set_ints(struct sw_onnx_file *file, const char *name, const int64_t *ints, int n)
{
    int64_t *copy = sw_arena_array(&file->arena, (size_t)n + 1, sizeof *copy);
    if (!copy) {
        fail_memory(file);
        return;
    }
    memcpy(copy, ints, (size_t)n * sizeof *copy);
    struct sw_onnx_attr *attr = add_attr(file, name, ONNX_ATTR_INTS);
    attr->ints = copy;
    attr->n = n;
}

/* ---- initializers ---- */

size_t sw_onnx_type_bytes(enum sw_onnx_type type)
{
    switch (type) {
    case ONNX_I64:
    case ONNX_U64:
    case ONNX_F64:
        return 8;
    case ONNX_F32:
    case ONNX_I32:
    case ONNX_U32:
        return 4;
    case ONNX_F16:
    case ONNX_BF16:
    case ONNX_I16:
    case ONNX_U16:
        return 2;
    case ONNX_BOOL:
    case ONNX_I8:
    case ONNX_U8:
        return 1;
    case ONNX_TEXTS:
        return 0;
    }
    return 0;
}

enum sw_onnx_type sw_onnx_type_of(enum sw_dtype dtype)
{
    switch (dtype) {
    case SW_F16:
        return ONNX_F16;
    case SW_BF16:
        return ONNX_BF16;
    case SW_F64:
        return ONNX_F64;
    case SW_F32:
        return ONNX_F32;
    default:
        return ONNX_I64; /* all integers */
    }
}

const char *sw_onnx_tensor(struct sw_onnx_file *file, const char *name, enum sw_onnx_type type,
                           struct sw_shape shape, const void *data)
{
    const int32_t known = sw_names_find(&file->names, NAME_TENSOR, name);
    if (known >= 0) {
        return file->tensors[known].name;
    }
    if (file->status < 0 || !grow(file, (void **)&file->tensors, file->n_tensors,
                                  &file->cap_tensors, sizeof *file->tensors)) {
        return "";
    }
    struct sw_onnx_tensor *t = &file->tensors[file->n_tensors];
    const uint64_t bytes = (uint64_t)sw_shape_elems(&shape) * sw_onnx_type_bytes(type);
    *t = (struct sw_onnx_tensor){
        .name = keep(file, name), .type = type, .shape = shape, .bytes = bytes};
    if (data) {
        void *copy = sw_arena_alloc(&file->arena, (size_t)bytes + 1);
        if (!copy) {
            fail_memory(file);
            return "";
        }
        memcpy(copy, data, (size_t)bytes);
        t->data = copy;
    }
    if (!sw_names_add(&file->names, NAME_TENSOR, t->name, (int32_t)file->n_tensors++)) {
        fail_memory(file);
    }
    return t->name;
}

const char *sw_onnx_ints(struct sw_onnx_file *file, const int64_t *ints, int n)
{
    char name[512];
    int len = snprintf(name, sizeof name, "int64 [");
    SW_ASSERT(n <= 2 * ONNX_MAX_RANK);
    for (int i = 0; i < n; i++) {
        len += snprintf(name + len, sizeof name - (size_t)len, "%s%lld", i ? ", " : "",
                        (long long)ints[i]);
    }
    snprintf(name + len, sizeof name - (size_t)len, "]");
    return sw_onnx_tensor(file, name, ONNX_I64, SW_SHAPE(n), ints);
}

const char *sw_onnx_int(struct sw_onnx_file *file, int64_t value)
{
    return sw_onnx_ints(file, &value, 1);
}

const char *sw_onnx_scalar(struct sw_onnx_file *file, int64_t value)
{
    char name[64];
    snprintf(name, sizeof name, "int64 %lld", (long long)value);
    return sw_onnx_tensor(file, name, ONNX_I64, (struct sw_shape){0}, &value);
}

const char *sw_onnx_number(struct sw_onnx_file *file, enum sw_onnx_type type, double value)
{
    char name[64];
    unsigned char data[8];
    const float single = (float)value;
    const enum sw_dtype dtype = type == ONNX_F16 ? SW_F16 : type == ONNX_BF16 ? SW_BF16 : SW_F32;
    snprintf(name, sizeof name, "%s %.9g", sw_dtype_name(dtype), value);
    sw_convert(dtype, data, SW_F32, &single, 1);
    return sw_onnx_tensor(file, name, type, (struct sw_shape){0}, data);
}
