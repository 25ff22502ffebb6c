// SPDX-License-Identifier: Apache-2.0
// pickle - files of torch.save: an archive (zip.c) that holds a pickle (pickle.c), a small program
// that makes a dictionary of tensors. Private to hf; other rooms see struct sw_safetensor.
#pragma once

#include "hf/private.h"

struct sw_zip_member {
    const char *name; /* [name_len], without a NUL */
    size_t name_len;
    const unsigned char *data;
    size_t bytes;
};
struct sw_zip {
    const struct sw_zip_member *members; /* sorted by name */
    size_t n;
};

/* The members of the archive `bytes`, borrowed. SW_E_FORMAT names path and member. */
sw_status sw_zip_read(struct sw_arena *arena, const char *path, const void *bytes, size_t len,
                      struct sw_zip *out);
const struct sw_zip_member *sw_zip_find(const struct sw_zip *zip, const char *name, size_t len);

/*
 * sw_pickle_read - the tensors of an archive of torch.save.
 *
 * The machine has a list of allowed instructions and names, and calls nothing. Others are refused
 * by name. Contiguous tensors borrow their data from `bytes`. Data of other tensors, names and the
 * list are in the arena. Of each tensor, name, dtype, dtype_name, shape, data and bytes are set.
 *
 * SW_E_FORMAT  names path and tensor, or the place in the pickle
 */
sw_status sw_pickle_read(struct sw_arena *arena, const char *path, const void *bytes, size_t len,
                         struct sw_safetensor **out, int64_t *out_n);
