// SPDX-License-Identifier: Apache-2.0
// The shape of the rows of a cluster's file. They are not config's: those belong to the one struct
// that a ds_config.json becomes, with its defaults and old spellings. Here nothing has a default.
#pragma once

#include "cluster/cluster.h"

enum cluster_row_type {
    ROW_FORMAT, /* int64_t: the number of the format */
    ROW_TEXT,   /* const char *: not empty */
    ROW_NAME,   /* const char *: one of `words` */
    ROW_WORD,   /* int: index of one of `words` */
    ROW_FLAG,   /* bool */
    ROW_FIGURE, /* struct sw_figure: {"value": .., "kind": .., "source": ..} */
    ROW_OBJECT, /* `section`, at this offset */
    ROW_LIST    /* pointer to structs that are `section`; their number is at `at_count` */
};

struct cluster_row {
    const char *key;
    enum cluster_row_type type;
    size_t at, at_count;
    double unit; /* of a figure, in SI units */
    const char *const *words;
    const struct cluster_section *section;
    bool is_whole, is_share, may_be_zero, is_optional;
};

struct cluster_section {
    const struct cluster_row *rows;
    size_t n_rows;
    size_t bytes, at_line; /* of an element of a list, and of its line in it */
};

extern const struct cluster_section sw_cluster_top;
extern const char *const sw_cluster_kinds[]; /* by enum sw_figure_kind; NULL-terminated */
enum { SW_CLUSTER_FORMAT = 1 };
