// SPDX-License-Identifier: Apache-2.0
// Any bytes as ds_config.json: refused with a message or read; what was read is printed, resolved,
// and reads again to the same effective values.
#include "config/config.h"
#include "optim/optim.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void write_json(const struct sw_config *config, struct sw_str *out)
{
    sw_config_write_json(config, 0, out);
    SW_ASSERT(!out->failed);
}

static void read_again(const struct sw_config *config)
{
    struct sw_str first = {0}, second = {0};
    struct sw_config *again;
    write_json(config, &first);
    SW_ASSERT(sw_config_parse("again", first.ptr, first.len, NULL, 0, &again) == SW_OK);
    write_json(again, &second);
    SW_ASSERT(strcmp(first.ptr, second.ptr) == 0);
    sw_config_close(again);
    sw_str_fini(&first);
    sw_str_fini(&second);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct sw_config *config;
    struct sw_str text = {0};
    struct sw_schedule schedule;
    sw_log_set_level(SW_LOG_ERROR);
    if (sw_config_parse("fuzz", (const char *)data, size, NULL, 0, &config) < 0) {
        SW_ASSERT(*sw_error_message());
        return 0;
    }
    read_again(config);
    for (int ranks = 1; ranks <= 3; ranks++) {
        if (sw_config_resolve(config, ranks, 0) == SW_OK) {
            const struct sw_batch_config *b = &config->batch;
            SW_ASSERT(b->micro_batch_size > 0 && b->micro_batches > 0);
            SW_ASSERT(b->train_batch_size == b->micro_batch_size * b->micro_batches);
        }
    }
    sw_config_print(config, &text);
    sw_config_print_json(config, &text);
    sw_config_list_unbuilt(config, &text);
    if (sw_schedule_init(&schedule, config, sw_schedule_groups(&config->scheduler)) == SW_OK) {
        for (int i = 0; i < 3; i++) {
            sw_schedule_at(&schedule, 0, (int64_t)i * i * 1000);
        }
    }
    sw_str_fini(&text);
    sw_config_close(config);
    return 0;
}
