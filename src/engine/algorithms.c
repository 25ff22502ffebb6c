// SPDX-License-Identifier: Apache-2.0
// Compares the algorithms that a library chose for matrix products (sw_device_algorithms): between
// ranks, and with the run that wrote a checkpoint. Runs with another placement or sharding use
// other products, so only products common to both are compared.
#include <string.h>

#include "engine/agree.h"

/* One entry of such a text: "5x7x3 of f32 to f32, ..: algorithm 3 tile 2". */
struct entry {
    const char *text;
    size_t question, all; /* lengths: the question including ": ", and the whole entry */
};

/* Reads the entry at *at and moves *at to the next entry. False at the end. */
static bool next_entry(const char **at, struct entry *out)
{
    const char *end = strstr(*at, "; ");
    out->text = *at;
    out->all = end ? (size_t)(end - *at) : strlen(*at);
    *at += out->all + (end ? 2 : 0);
    const char *colon = strstr(out->text, ": ");
    out->question = colon && colon < out->text + out->all ? (size_t)(colon + 2 - out->text) : 0;
    return out->all > 0;
}

static bool find_question(const char *text, const struct entry *asked, struct entry *out)
{
    while (next_entry(&text, out)) {
        if (out->question == asked->question &&
            memcmp(out->text, asked->text, asked->question) == 0) {
            return true;
        }
    }
    return false;
}

bool sw_engine_next_other_algorithm(const char **was, const char *is,
                                    struct sw_other_algorithm *out)
{
    struct entry old, now;
    while (next_entry(was, &old)) {
        if (old.question > 0 && find_question(is, &old, &now) &&
            (old.all != now.all || memcmp(old.text, now.text, old.all) != 0)) {
            snprintf(out->product, sizeof out->product, "%.*s", (int)old.question - 2, old.text);
            snprintf(out->was, sizeof out->was, "%.*s", (int)(old.all - old.question),
                     old.text + old.question);
            snprintf(out->is, sizeof out->is, "%.*s", (int)(now.all - now.question),
                     now.text + now.question);
            return true;
        }
    }
    return false;
}

/* Each rank compares all others with rank 0, so that all ranks report the same error. */
static sw_status compare_ranks(const char *all, size_t slice, int ranks)
{
    for (int r = 1; r < ranks; r++) {
        struct sw_other_algorithm other;
        const char *of_0 = all;
        if (sw_engine_next_other_algorithm(&of_0, all + (size_t)r * slice, &other)) {
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

static sw_status gather(const struct sw_engine *e, const struct sw_str *text)
{
    const int64_t len = (int64_t)text->len;
    int64_t longest = 0;
    SW_TRY(sw_engine_gather(e, len, "the algorithms' lengths"));
    for (int r = 0; r < e->ranks; r++) {
        longest = sw_max_i64(longest, e->words[r]);
    }
    if (longest == 0) {
        return SW_OK;
    }
    const size_t slice = (size_t)longest + 1; /* includes the terminating NUL */
    char *all = sw_alloc_zero("engine", (size_t)e->ranks, slice);
    SW_TRY_ALLOC(all, "the algorithms of ranks");
    char *mine = all + (size_t)e->rank * slice;
    memcpy(mine, sw_str_text(text), text->len);
    sw_status st = sw_comm_all_gather(e->options.run.comm, mine, all, slice, "the algorithms");
    st = st < 0 ? st : compare_ranks(all, slice, e->ranks);
    sw_free(all);
    return st;
}

sw_status sw_engine_agree_on_algorithms(const struct sw_engine *e)
{
    struct sw_str text = {0};
    if (e->ranks == 1 || e->config->spillway.allow_other_math) {
        return SW_OK;
    }
    sw_device_algorithms(e->device, &text);
    const sw_status st =
        text.failed ? SW_FAIL(SW_E_NOMEM, "out of host memory for algorithms") : gather(e, &text);
    sw_str_fini(&text);
    return st;
}
