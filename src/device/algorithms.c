// SPDX-License-Identifier: Apache-2.0
// Compares two texts of sw_device_algorithms. Runs with another placement or sharding use other
// products, so only products common to both are compared.
#include <stdio.h>
#include <string.h>

#include "device/device.h"

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

bool sw_device_next_other_algorithm(const char **was, const char *is,
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
