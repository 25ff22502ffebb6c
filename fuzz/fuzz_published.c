// SPDX-License-Identifier: Apache-2.0
// Any bytes as a file of published runs: refused with a message, or read with everything that
// predictions rely on.
#include "look/published.h"

#include <math.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct pub_file *file;
    sw_log_set_level(SW_LOG_ERROR);
    if (sw_published_parse("fuzz", (const char *)data, size, &file) < 0) {
        SW_ASSERT(*sw_error_message());
        return 0;
    }
    for (int i = 0; i < file->n_runs; i++) {
        const struct pub_run *run = &file->runs[i];
        SW_ASSERT(run->id && run->group && run->cluster && run->source && run->reading);
        SW_ASSERT(run->tflops[1] >= run->tflops[0]);
        SW_ASSERT(run->judge != PUB_JUDGED || run->tflops[0] > 0);
    }
    for (int i = 0; i < file->n_capacities; i++) {
        const struct pub_capacity *c = &file->capacities[i];
        SW_ASSERT(c->id && c->what && c->unit && c->source);
        SW_ASSERT(!c->rule || sw_published_by_bytes(c) > 0);
        SW_ASSERT(c->judge != PUB_FITS || c->plan.cluster);
    }
    sw_published_close(file);
    return 0;
}
