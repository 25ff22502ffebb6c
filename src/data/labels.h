// SPDX-License-Identifier: Apache-2.0
// labels - the classes of a task: what their names are, and which one a record says.
#pragma once

#include "data/record.h"
#include "task/task.h"

struct sw_labels {
    const char *const *names; /* [n]; NULL: they are the numbers 0 .. n - 1 */
    int64_t n;
    struct sw_names places; /* of names */
};
/* names [n]: lent, or NULL. Of equal ones the first is the class. */
sw_status sw_labels_init(struct sw_labels *labels, const char *const *names, int64_t n);
void sw_labels_fini(struct sw_labels *labels);

/* The class of a value: a number of JSON, or a name. SW_E_FORMAT names record and class, and lists
 * those that there are. */
sw_status sw_label_of(const struct sw_labels *labels, const struct sw_json_doc *doc,
                      const struct sw_json *value, int32_t *out);
/* A number, or a text that is one. */
sw_status sw_number_of(const struct sw_json_doc *doc, const struct sw_json *value, float *out);

/* Where the labels of a task's records are. */
struct sw_field_wanted sw_label_field(const struct sw_task *task, const struct sw_columns *columns);
