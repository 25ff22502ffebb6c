// SPDX-License-Identifier: Apache-2.0
// The mesh of an engine: ranks along axes, as the configuration divides them.
#include "engine/private.h"

sw_status sw_engine_check_mesh(const struct sw_engine *e)
{
    const struct sw_parallel_config *p = &e->config->parallel;
    const struct {
        const char *key;
        int64_t size;
    } axes[] = {{"spillway.mesh.pipe", p->pipe},
                {"spillway.mesh.tensor", p->tensor},
                {"spillway.mesh.context", p->context}};
    for (size_t i = 0; i < SW_LEN(axes); i++) {
        if (axes[i].size > 1) {
            return SW_FAIL(
                SW_E_UNSUP,
                "%s %lld: not built yet in this version; ranks along the data axis work, "
                "with ZeRO stage 3 and offloading for models that are too large for one",
                axes[i].key, (long long)axes[i].size);
        }
    }
    return SW_OK;
}
