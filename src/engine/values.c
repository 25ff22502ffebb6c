// SPDX-License-Identifier: Apache-2.0
// The parameters of an engine by name, as its users see them.
#include "engine/private.h"

static sw_status find_range(const struct sw_weights *w, const char *name, int64_t first, int64_t n,
                            const struct sw_parameter **out)
{
    const struct sw_parameter *param = sw_weights_find(w, name);
    if (!param) {
        return SW_FAIL(SW_E_ARG, "no parameter \"%s\" in this model", name);
    }
    if (!sw_dtype_is_float(param->work->dtype)) {
        return SW_FAIL(SW_E_UNSUP, "%s is quantized: it has codes of type %s, and no values", name,
                       sw_dtype_name(param->work->dtype));
    }
    const int64_t elems = sw_shape_elems(&param->work->layout.whole);
    if (first < 0 || n < 0 || first > elems - n) {
        return SW_FAIL(SW_E_ARG, "%s: elements %lld to %lld of %lld", name, (long long)first,
                       (long long)(first + n), (long long)elems);
    }
    *out = param;
    return SW_OK;
}

sw_status sw_get_weight(sw_engine *e, const char *name, int64_t first, int64_t n, float *out)
{
    const struct sw_parameter *param = NULL;
    SW_TRY(find_range(&e->weights, name, first, n, &param));
    SW_TRY(sw_engine_settle(e));
    return sw_weights_get(&e->weights, param, first, n, out);
}

sw_status sw_set_weight(sw_engine *e, const char *name, int64_t first, int64_t n, const float *src)
{
    const struct sw_parameter *param = NULL;
    SW_TRY(sw_engine_check_idle(&e->progress, "sw_set_weight"));
    SW_TRY(find_range(&e->weights, name, first, n, &param));
    SW_TRY(sw_engine_settle(e));
    return sw_weights_set(&e->weights, param, first, n, src);
}

int32_t sw_engine_n_tensors(const sw_engine *e)
{
    return e->weights.params.n;
}

sw_status sw_engine_tensor(const sw_engine *e, int32_t i, const char **out_name,
                           struct sw_shape *out_shape)
{
    if (i < 0 || i >= e->weights.params.n) {
        return SW_FAIL(SW_E_ARG, "tensor %d of %d", i, e->weights.params.n);
    }
    *out_name = e->weights.params.items[i].work->name;
    *out_shape = e->weights.params.items[i].work->layout.whole;
    return SW_OK;
}

int64_t sw_engine_parameters(const sw_engine *e)
{
    int64_t sum = 0;
    for (int32_t i = 0; i < e->weights.params.n; i++) {
        sum += sw_weights_elems(&e->weights, &e->weights.params.items[i]);
    }
    return sum;
}
