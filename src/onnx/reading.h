// SPDX-License-Identifier: Apache-2.0
// What the readers of a file share. Private to the files that read,
// fold and rewrite.
#pragma once

#include "onnx/read.h"

struct sw_onnx_graph_own {
    struct sw_arena arena; /* of names, edges, attributes */
    struct sw_names names; /* of values */
    struct sw_names words; /* of operators and attributes: each is kept once */
    const char **kept;     /* [n_kept] words */
    struct sw_str scratch;
    int32_t n_seen; /* nodes of the file so far */
    int32_t cap_nodes, cap_values, n_kept, cap_kept, cap_files;
    char folder[4096];
    struct sw_onnx_range { /* external data */
        int32_t i_file;
        uint64_t offset, bytes;
        const char *name;
    } * ranges;
    int32_t n_ranges, cap_ranges;
    struct sw_onnx_buffer *buffers; /* folded: computed constants */
};

/* Makes room for one more element of an array of *cap. */
sw_status sw_onnx_grow(void *array, int32_t n, int32_t *cap, size_t bytes);
/* Checks that a field holds bytes. what names the field. */
sw_status sw_onnx_want_bytes(const struct sw_proto_field *field, const char *what);
sw_status sw_onnx_want_int(const struct sw_proto_field *field, const char *what);
/* A text of a field, checked and NUL-terminated, in own->scratch until the next call. */
sw_status sw_onnx_read_text(struct sw_onnx_graph *g, const struct sw_proto_field *field,
                            const char *what, const char **out);
/* Numbers of a repeated field, which may be packed: the next one. *at: offset within a packed
 * field; starts at 0. */
sw_status sw_onnx_next_number(const struct sw_proto_field *field, int wire, size_t *at,
                              int64_t *out, bool *out_more);

/* Keeps a word once, such as the name of an operator; keeps any other text. */
sw_status sw_onnx_keep_word(struct sw_onnx_graph *g, const char *text, const char **out);
sw_status sw_onnx_keep_text(struct sw_onnx_graph *g, const char *text, const char **out);

/* The kind of a value until something is found that makes it. Its producer is then the first node
 * that reads it. */
#define ONNX_VALUE_UNMADE ONNX_VALUE_GONE
/* The value of that name, added if it is new. */
sw_status sw_onnx_value_of(struct sw_onnx_graph *g, const char *name, int32_t *out);
/* Reads a NodeProto. */
sw_status sw_onnx_read_node(struct sw_onnx_graph *g, const struct sw_proto_field *field);

/* Reads a TensorProto. of: what has it, for messages. *out is of the arena; *out_name too. */
sw_status sw_onnx_read_tensor(struct sw_onnx_graph *g, const struct sw_proto_field *field,
                              bool external, const char *of, const char **out_name,
                              const struct sw_onnx_data **out);
/* Maps the file itself, or one of external data. name: relative to the folder. */
sw_status sw_onnx_map_file(struct sw_onnx_graph *g, const char *name, int32_t *out);
/* No two ranges of external data overlap. */
sw_status sw_onnx_check_ranges(struct sw_onnx_graph *g);
/* Fills uses of all values. */
sw_status sw_onnx_count_uses(struct sw_onnx_graph *g);
/* Mapped bytes of a file that are not needed for now leave the memory of this process. */
void sw_onnx_forget(const void *bytes, size_t len);
const char *sw_onnx_type_name(enum sw_onnx_type type); /* "f32", "i64", ..; NULL = not read */
/* Product of dims and bytes of an element; false if it overflows. */
bool sw_onnx_elems(int rank, const int64_t *dims, size_t elem_bytes, int64_t *out);
void sw_onnx_free_buffers(struct sw_onnx_buffer *buffers);
