// SPDX-License-Identifier: Apache-2.0
// Limits of the system on this process.
#include "base/base.h"

#include <errno.h>
#include <string.h>
#include <sys/resource.h>

sw_status sw_allow_files(int64_t needed)
{
    struct rlimit limit;
    const rlim_t want = (rlim_t)needed;
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= want) {
        return SW_OK;
    }
    if (limit.rlim_max < want) {
        return SW_FAIL(SW_E_CONFIG, "wanted %lld open files, the limit is %lld (ulimit -Hn)",
                       (long long)needed, (long long)limit.rlim_max);
    }
    limit.rlim_cur = want;
    return setrlimit(RLIMIT_NOFILE, &limit) == 0
               ? SW_OK
               : SW_FAIL(SW_E_IO, "the limit of open files cannot be raised to %lld: %s",
                         (long long)needed, strerror(errno));
}
