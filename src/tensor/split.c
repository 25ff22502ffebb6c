// SPDX-License-Identifier: Apache-2.0
// Which ranks of the tensor axis have which units of a split dimension.
#include "tensor/tensor.h"

int64_t sw_split_repeats(const struct sw_tensor_split *split, int64_t length)
{
    int64_t sum = 0;
    for (int g = 0; g < split->n_groups; g++) {
        sum += split->group[g];
    }
    return sum > 0 ? sw_max_i64(length / sum, 1) : 1;
}

struct sw_tensor_split sw_split_over(const struct sw_tensor_split *split, int64_t length, int ranks)
{
    const int64_t repeats = sw_split_repeats(split, length);
    if (repeats == 1 || (ranks > repeats && ranks % repeats == 0)) {
        return *split;
    }
    return (struct sw_tensor_split){
        .dim = split->dim, .n_groups = 1, .group = {length}, .unit = length / repeats};
}

int sw_split_sharing(const struct sw_tensor_split *split, int group, int ranks)
{
    const int64_t units = sw_ceil_div(split->group[group], sw_max_i64(split->unit, 1));
    return units > 0 && units < ranks && ranks % units == 0 ? ranks / (int)units : 1;
}
