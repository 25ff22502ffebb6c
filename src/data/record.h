// SPDX-License-Identifier: Apache-2.0
// record - data files as records: objects with named fields, one after the other, whatever the file
// is. JSON lines are that; a row of a table becomes an object of texts; SQuAD's questions each get
// their context; a text is one record with "text".
#pragma once

#include "data/data.h"
#include "json/json.h"

/* The record is lent for the call; sw_json_name(doc) is "file line 7". */
typedef sw_status (*sw_record_fn)(void *ctx, const struct sw_json_doc *doc,
                                  const struct sw_json *record);
/*
 * sw_records_read - calls fn with each record of a file, in order.
 *
 * numbered     a table has no line of names: its columns are "1", "2", ..
 *
 * SW_E_FORMAT  names the file and the line, or says that it holds no record
 * SW_E_UNSUP   no format that is known by this ending
 */
sw_status sw_records_read(const char *path, bool numbered, sw_record_fn fn, void *ctx);
/* A file of whatever name as one text. */
sw_status sw_records_read_text(const char *path, sw_record_fn fn, void *ctx);
/* Of a text in memory, as if it were a file of that name: what the ending says. */
sw_status sw_records_parse(const char *path, const char *text, size_t len, bool numbered,
                           sw_record_fn fn, void *ctx);

/* Which fields hold what. All zero: well-known names. */
struct sw_columns {
    const char *text[2]; /* of the first and the second text; NULL: not said */
    const char *label;   /* of labels, tags or targets; NULL: not said */
};
struct sw_columns sw_columns_of(const struct sw_dataset_options *options);
/* Whether a column is named by its number, so that tables begin with their first row. */
bool sw_columns_are_numbered(const struct sw_columns *columns);

/* What a record has where one of several fields is wanted. */
struct sw_field_wanted {
    const char *given;        /* the user's; NULL: one of .. */
    const char *const *usual; /* .. these, the first that is there; ends with NULL */
    const char *flag;         /* which names another */
};
/* NULL: it has none of them. */
const struct sw_json *sw_record_find(const struct sw_json *record,
                                     const struct sw_field_wanted *wanted);
/* SW_E_FORMAT lists the fields that there are. */
sw_status sw_record_get(const struct sw_json_doc *doc, const struct sw_json *record,
                        const struct sw_field_wanted *wanted, const struct sw_json **out);
/* The same, and it is a string. */
sw_status sw_record_get_text(const struct sw_json_doc *doc, const struct sw_json *record,
                             const struct sw_field_wanted *wanted, const struct sw_json **out);
