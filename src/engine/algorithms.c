// SPDX-License-Identifier: Apache-2.0
// Compares the algorithms that a library chose for matrix products (sw_device_algorithms): between
// ranks, and with the run that wrote a checkpoint. Runs with another placement or sharding use
// other products, so only products common to both are compared.
#include <string.h>

#include "engine/agree.h"

/* Each rank compares all others with rank 0, so that all ranks report the same error. */
static sw_status compare_ranks(const char *all, size_t slice, int ranks)
{
    for (int r = 1; r < ranks; r++) {
        struct sw_other_algorithm other;
        const char *of_0 = all;
        if (sw_device_next_other_algorithm(&of_0, all + (size_t)r * slice, &other)) {
            return SW_FAIL(
                SW_E_CONFIG,
                "the product of %s is computed by %s on rank 0, by %s on rank %d; "
                "spillway.allow_other_math permits ranks of several kinds, but then results depend "
                "on which rank computes what",
                other.product, other.was, other.is, r);
        }
    }
    return SW_OK;
}

/* Gathers the texts of all ranks and compares them. Collective. If no rank has a text, there is
 * nothing to compare. */
static sw_status gather(const struct sw_engine *e, const struct sw_str *text)
{
    const int64_t len = (int64_t)text->len;
    int64_t longest = 0;
    SW_TRY(sw_engine_gather(e, len, "the algorithms' lengths"));
    for (int r = 0; r < e->world.size; r++) {
        longest = sw_max_i64(longest, e->words[r]);
    }
    if (longest == 0) {
        return SW_OK;
    }
    const size_t slice = (size_t)longest + 1; /* includes the terminating NUL */
    char *all = sw_alloc_zero("engine", (size_t)e->world.size, slice);
    SW_TRY_ALLOC(all, "the algorithms of ranks");
    char *mine = all + (size_t)e->world.rank * slice;
    memcpy(mine, sw_str_text(text), text->len);
    sw_status st = sw_comm_all_gather(e->options.run.comm, mine, all, slice, "the algorithms");
    st = st < 0 ? st : compare_ranks(all, slice, e->world.size);
    sw_free(all);
    return st;
}

sw_status sw_engine_agree_on_algorithms(const struct sw_engine *e)
{
    struct sw_str text = {0};
    if (e->world.size == 1 || e->config->spillway.allow_other_math) {
        return SW_OK;
    }
    sw_device_algorithms(e->device, &text);
    const sw_status st =
        text.failed ? SW_FAIL(SW_E_NOMEM, "out of host memory for algorithms") : gather(e, &text);
    sw_str_fini(&text);
    return st;
}
