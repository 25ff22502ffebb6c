// SPDX-License-Identifier: Apache-2.0
// Reports on finished runs: an HTML page, and the differences between two runs or plans. No call
// here is collective.
#pragma once

#include <stdbool.h>

#include "spillway/status.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { SW_REPORT_MOST_RUNS = 16 };

struct sw_report_options {
    const char *const *runs; /* [n_runs] folders that sw_train wrote to, finished or not */
    int n_runs;              /* 1 .. SW_REPORT_MOST_RUNS */
    const char *output;      /* NULL: RUN/report.html; for several runs ./report.html */
};

/*
 * sw_report_write - one HTML file that needs no network and runs no script.
 *
 * out_path     path of the report; the caller's: sw_text_free
 *
 * SW_E_ARG     a folder is not a run, or the output exists and is not a report; names it
 * SW_E_FORMAT  a file of a run is damaged; names file and line. An incomplete last line, as a
 *              killed run leaves it, is not an error
 */
SW_API sw_status sw_report_write(const struct sw_report_options *options, char **out_path);

/*
 * sw_report_picture - pictures as one HTML file that needs no network and runs no script.
 *
 * json         what sw_plan_cluster_text, sw_plan_scale_text or sw_plan_published_text
 *              (spillway/look.h) wrote as JSON. It has every number of the pictures
 * path         the file; a page of spillway is replaced
 *
 * SW_E_ARG     the text is not one of these, or the file exists and is not such a page
 * SW_E_FORMAT  the text is not JSON
 */
SW_API sw_status sw_report_picture(const char *json, const char *path);

/*
 * sw_compare_text - differences between two runs (folders) or two plans (files of `plan --json`).
 * For runs this includes the first step whose loss or norm differs in any bit.
 *
 * out_same     true if nothing that is compared differs
 * out          the caller's: sw_text_free
 */
SW_API sw_status sw_compare_text(const char *a, const char *b, bool json, bool *out_same,
                                 char **out);

#ifdef __cplusplus
}
#endif
