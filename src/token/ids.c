// SPDX-License-Identifier: Apache-2.0
// The growing array of token ids.
#include "token/token.h"

sw_status sw_ids_push(struct sw_ids *ids, int32_t id)
{
    if (ids->len == ids->cap) {
        const int64_t cap = ids->cap ? 2 * ids->cap : 64;
        size_t bytes;
        int32_t *grown = NULL;
        if (sw_mul_size((size_t)cap, sizeof(*ids->ptr), &bytes)) {
            grown = sw_realloc("token ids", ids->ptr, bytes);
        }
        SW_TRY_ALLOC(grown, "token ids");
        ids->ptr = grown;
        ids->cap = cap;
    }
    ids->ptr[ids->len++] = id;
    return SW_OK;
}

void sw_ids_clear(struct sw_ids *ids)
{
    ids->len = 0;
}

void sw_ids_fini(struct sw_ids *ids)
{
    sw_free(ids->ptr);
    *ids = (struct sw_ids){0};
}
