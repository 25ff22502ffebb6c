// SPDX-License-Identifier: Apache-2.0
// record - reads any data file as a sequence of records, which are objects with named fields. A
// JSON line is a record. A table row becomes an object of texts. Each SQuAD question gets its
// context. A text file is one record with the field "text".
#pragma once

#include "data/data.h"
#include "json/json.h"

/* The record is lent for the call; sw_json_name(doc) is "file line 7". */
typedef sw_status (*sw_record_fn)(void *ctx, const struct sw_json_doc *doc,
                                  const struct sw_json *record);
/*
 * sw_records_read - calls fn with each record of a file, in order.
 *
 * numbered     tables have no header line: their columns are "1", "2", ..
 *
 * SW_E_FORMAT  the file is malformed (the message has the line), or holds no record
 * SW_E_UNSUP   the extension is not of a known format
 */
sw_status sw_records_read(const char *path, bool numbered, sw_record_fn fn, void *ctx);
/* Reads a file as one text, whatever its name. */
sw_status sw_records_read_text(const char *path, sw_record_fn fn, void *ctx);
/* Reads a text in memory like a file of that name. The extension decides the format. */
sw_status sw_records_parse(const char *path, const char *text, size_t len, bool numbered,
                           sw_record_fn fn, void *ctx);

/* Names of the fields to use. All zero: well-known names. */
struct sw_columns {
    const char *text[2]; /* first and second text; NULL: not given */
    const char *label;   /* labels, tags or targets; NULL: not given */
};
struct sw_columns sw_columns_of(const struct sw_dataset_options *options);
/* Whether a column is named by its number: tables then have no header line. */
bool sw_columns_are_numbered(const struct sw_columns *columns);

/* A field that may have one of several names. */
struct sw_field_wanted {
    const char *given;        /* the name that the user gave, or NULL */
    const char *const *usual; /* if NULL: names to try in order; ends with NULL */
    const char *flag;         /* the flag that sets another name */
};
/* NULL: the record has none of the fields. */
const struct sw_json *sw_record_find(const struct sw_json *record,
                                     const struct sw_field_wanted *wanted);
/* Gets a field. The message of SW_E_FORMAT lists the fields that the record has. */
sw_status sw_record_get(const struct sw_json_doc *doc, const struct sw_json *record,
                        const struct sw_field_wanted *wanted, const struct sw_json **out);
/* Gets a field that must be a string. */
sw_status sw_record_get_text(const struct sw_json_doc *doc, const struct sw_json *record,
                             const struct sw_field_wanted *wanted, const struct sw_json **out);
