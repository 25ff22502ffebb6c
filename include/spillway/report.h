// SPDX-License-Identifier: Apache-2.0
// Looking back at runs: one page for people, and where two runs or plans differ.
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
    const char *output;      /* NULL: RUN/report.html; of several runs report.html here */
};

/*
 * sw_report_write - one HTML file that needs no network and runs no script.
 *
 * out_path     where it is; the caller's: sw_text_free
 *
 * SW_E_ARG     a folder is no run, or the output is a file that is no report: names it
 * SW_E_FORMAT  a file of a run is damaged: names file and line. A last line that was cut off, as a
 *              kill leaves it, is none
 */
SW_API sw_status sw_report_write(const struct sw_report_options *options, char **out_path);

/*
 * sw_compare_text - where two runs (folders) or two plans (files of `plan --json`) differ, and the
 * first step whose loss or norm differs in any bit.
 *
 * out_same     nothing that is compared differs
 * out          the caller's: sw_text_free
 */
SW_API sw_status sw_compare_text(const char *a, const char *b, bool json, bool *out_same,
                                 char **out);

#ifdef __cplusplus
}
#endif
