// SPDX-License-Identifier: Apache-2.0
// The text that Prometheus' collectors read from a file. It is no record, only what is now: nothing
// is synced, and a rename makes the new text visible at once.
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "json/json.h"
#include "monitor/monitor.h"

void sw_gauges_text(const struct sw_gauge *gauges, int n, struct sw_str *out)
{
    for (int i = 0; i < n; i++) {
        const struct sw_gauge *g = &gauges[i];
        if (i == 0 || strcmp(gauges[i - 1].name, g->name) != 0) {
            sw_str_printf(out, "# HELP %s %s\n# TYPE %s %s\n", g->name, g->help, g->name,
                          g->counts ? "counter" : "gauge");
        }
        sw_str_puts(out, g->name);
        if (g->label) {
            sw_str_printf(out, "{%s}", g->label);
        }
        sw_str_putc(out, ' ');
        if (isfinite(g->value)) {
            sw_json_write_f64(g->value, out);
        } else {
            sw_str_puts(out, isnan(g->value) ? "NaN" : g->value > 0 ? "+Inf" : "-Inf");
        }
        sw_str_putc(out, '\n');
    }
}

static sw_status replace(const char *path, const char *beside, const struct sw_str *text)
{
    FILE *file = fopen(beside, "w");
    bool good = file && fwrite(text->ptr, 1, text->len, file) == text->len;
    int error = errno;
    if (file && fclose(file) != 0) {
        error = good ? errno : error;
        good = false;
    }
    if (good && rename(beside, path) != 0) {
        error = errno;
        good = false;
    }
    if (!good && file) {
        unlink(beside);
    }
    return good ? SW_OK : SW_FAIL(SW_E_IO, "%s: %s", path, strerror(error));
}

sw_status sw_gauges_write(const char *path, const struct sw_gauge *gauges, int n)
{
    struct sw_str text = {0}, beside = {0};
    sw_gauges_text(gauges, n, &text);
    sw_str_printf(&beside, "%s.tmp", path);
    const sw_status st = text.failed || beside.failed
                             ? SW_FAIL(SW_E_NOMEM, "out of host memory for %s", path)
                             : replace(path, beside.ptr, &text);
    sw_str_fini(&text);
    sw_str_fini(&beside);
    return st;
}
