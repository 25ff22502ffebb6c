// SPDX-License-Identifier: Apache-2.0
// Compares two plan files; show/diff.c compares their contents.
#include "show/show.h"
#include "spillway/look.h"

sw_status sw_plan_diff_text(const char *path_a, const char *path_b, bool json, bool *out_same,
                            char **out)
{
    const char *const paths[2] = {path_a, path_b};
    struct sw_plan_source source[2];
    char *texts[2] = {NULL, NULL};
    struct sw_str report = {0};
    sw_status st = SW_OK;
    for (int i = 0; i < 2; i++) {
        source[i].name = paths[i];
        SW_TRY_OR(done, sw_file_read(paths[i], &texts[i], &source[i].len));
        source[i].text = texts[i];
    }
    SW_TRY_OR(done, sw_plan_diff(source, json, out_same, &report));
    *out = report.ptr;
    report.ptr = NULL;
done:
    sw_str_fini(&report);
    sw_free(texts[0]);
    sw_free(texts[1]);
    return st;
}
