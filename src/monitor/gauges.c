// SPDX-License-Identifier: Apache-2.0
// The text file that Prometheus' collectors read. It holds only current values, so nothing is
// synced; a rename replaces the text atomically.
#include <math.h>
#include <string.h>

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

sw_status sw_gauges_write(struct sw_output *out, const struct sw_gauge *gauges, int n)
{
    struct sw_str text = {0};
    sw_gauges_text(gauges, n, &text);
    const sw_status st = text.failed ? SW_FAIL(SW_E_NOMEM, "out of host memory for %s", out->path)
                                     : sw_output_put(out, sw_str_text(&text), text.len, false);
    sw_str_fini(&text);
    return st;
}
