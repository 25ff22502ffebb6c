// SPDX-License-Identifier: Apache-2.0
// The table of scalars: what follows from what was set.
#include <math.h>

#include "graph/graph.h"

void sw_scalars_complete(double scalars[SW_SCALAR_COUNT])
{
    const double t = scalars[SW_SCALAR_STEP];
    scalars[SW_SCALAR_CORRECTION1] = 1 - pow(scalars[SW_SCALAR_BETA1], t);
    scalars[SW_SCALAR_CORRECTION2] = 1 - pow(scalars[SW_SCALAR_BETA2], t);
}
