// SPDX-License-Identifier: Apache-2.0
// Parts of JSON and of tables that several views of a cluster have.
#include <string.h>

#include "json/json.h"
#include "look/private.h"

void sw_look_put_number(const char *before, double x, struct sw_str *out)
{
    sw_str_puts(out, before);
    sw_json_write_f64(x, out);
}

void sw_look_put_text(const char *before, const char *text, struct sw_str *out)
{
    sw_str_puts(out, before);
    if (text) {
        sw_json_write_string(text, strlen(text), out);
    } else {
        sw_str_puts(out, "null");
    }
}

void sw_look_put_tiers(const size_t bytes[SW_TIER_COUNT], const size_t there[SW_TIER_COUNT],
                       struct sw_str *out)
{
    for (int t = 0; t < SW_TIER_COUNT; t++) {
        sw_str_printf(out, "%s\"%s\":{\"bytes\":%zu,\"there_are\":%zu}",
                      t > 0 ? "," : "\"tiers\":{", sw_tier_name((enum sw_tier)t), bytes[t],
                      there[t]);
    }
    sw_str_putc(out, '}');
}

void sw_look_print_tiers(const size_t bytes[SW_TIER_COUNT], const size_t there[SW_TIER_COUNT],
                         struct sw_str *out)
{
    sw_str_printf(out, "%-22s %16s %16s %8s\n", "bytes of a rank", "it takes", "there are",
                  "share");
    for (int t = 0; t < SW_TIER_COUNT; t++) {
        sw_str_printf(out, "  %-20s %16zu %16zu", sw_tier_name((enum sw_tier)t), bytes[t],
                      there[t]);
        if (there[t] > 0) {
            sw_str_printf(out, " %7.2f%%", 100 * (double)bytes[t] / (double)there[t]);
        }
        sw_str_putc(out, '\n');
    }
}
