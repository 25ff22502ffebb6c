// SPDX-License-Identifier: Apache-2.0
// Any bytes as a cluster's file: refused with a message or read; what was read is written, and
// reads again to the same text.
#include "cluster/cluster.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct sw_cluster *cluster, *again;
    struct sw_str first = {0}, second = {0};
    sw_log_set_level(SW_LOG_ERROR);
    if (sw_cluster_parse("fuzz", (const char *)data, size, &cluster) < 0) {
        SW_ASSERT(*sw_error_message());
        return 0;
    }
    SW_ASSERT(sw_cluster_sharers(cluster, SW_SHARER_NODE) >= 1);
    sw_cluster_write(cluster, &first);
    SW_ASSERT(!first.failed && sw_cluster_parse("again", first.ptr, first.len, &again) == SW_OK);
    sw_cluster_write(again, &second);
    SW_ASSERT(!second.failed && strcmp(first.ptr, second.ptr) == 0);
    sw_cluster_close(cluster);
    sw_cluster_close(again);
    sw_str_fini(&first);
    sw_str_fini(&second);
    return 0;
}
