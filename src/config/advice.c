// SPDX-License-Identifier: Apache-2.0
// The values of "auto" keys that a refusal is about.
#include "config/private.h"

#include <stdio.h>

void sw_config_print_auto(int64_t micro_batch, int64_t recompute_every, struct sw_str *out)
{
    if (micro_batch > 0) {
        sw_str_printf(out, "micro-batch \"auto\" (at %lld)%s", (long long)micro_batch,
                      recompute_every >= 0 ? ", " : "");
    }
    if (recompute_every >= 0) {
        sw_str_printf(out, "spillway.recompute \"auto\" (at %s%.0d)",
                      recompute_every == 0   ? "\"none\""
                      : recompute_every == 1 ? "\"blocks\""
                                             : "",
                      recompute_every > 1 ? (int)recompute_every : 0);
    }
}
