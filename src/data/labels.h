// SPDX-License-Identifier: Apache-2.0
// labels - the classes of a task: their names, and the class of a record.
#pragma once

#include "data/record.h"
#include "task/task.h"

struct sw_labels {
    const char *const *names; /* [n]; NULL: classes are the numbers 0 .. n - 1 */
    int64_t n;
    struct sw_names places; /* index of names */
};
/* names [n] is borrowed, or NULL. Among equal names the first is the class. */
sw_status sw_labels_init(struct sw_labels *labels, const char *const *names, int64_t n);
void sw_labels_fini(struct sw_labels *labels);

/* The class of a JSON value, a number or a name. The message of SW_E_FORMAT has the record and the
 * class, and lists the known classes. */
sw_status sw_label_of(const struct sw_labels *labels, const struct sw_json_doc *doc,
                      const struct sw_json *value, int32_t *out);
/* Reads a number, or a text that is a number. */
sw_status sw_number_of(const struct sw_json_doc *doc, const struct sw_json *value, float *out);

/* The field with the labels of a task's records. */
struct sw_field_wanted sw_label_field(const struct sw_task *task, const struct sw_columns *columns);
