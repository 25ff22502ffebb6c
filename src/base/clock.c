// SPDX-License-Identifier: Apache-2.0
// The monotonic clock: intervals, never dates.
#include "base/base.h"

#include <time.h>

int64_t sw_now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * INT64_C(1000000000) + now.tv_nsec;
}

double sw_now_s(void)
{
    return (double)sw_now_ns() * 1e-9;
}
