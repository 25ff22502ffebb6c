// SPDX-License-Identifier: Apache-2.0
// How many processors this process may really use: the affinity mask, and the quota of the control
// groups it is in (a container on a large machine often gets two processors' worth of time).
#include "base/base.h"

#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { PATH_CAP = 1024 };

static int affinity_count(void)
{
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof(set), &set) == 0) {
        return CPU_COUNT(&set);
    }
    const long online = sysconf(_SC_NPROCESSORS_ONLN);
    return online > 0 ? (int)online : 1;
}

static int processors_of(int64_t quota, int64_t period)
{
    return quota > 0 && period > 0 ? (int)sw_max_i64(1, sw_ceil_div(quota, period)) : 0;
}

/* Version 2: cpu.max holds "quota period" or "max period". 0 = no limit. */
static int quota_v2(const char *folder)
{
    char path[PATH_CAP + 32];
    snprintf(path, sizeof(path), "/sys/fs/cgroup%s/cpu.max", folder);
    FILE *file = fopen(path, "re");
    if (!file) {
        return 0;
    }
    long long quota = 0, period = 0;
    const bool limited = fscanf(file, "%lld %lld", &quota, &period) == 2;
    fclose(file);
    return limited ? processors_of(quota, period) : 0;
}

static int64_t read_number(const char *path)
{
    FILE *file = fopen(path, "re");
    long long value = 0;
    if (file) {
        if (fscanf(file, "%lld", &value) != 1) {
            value = 0;
        }
        fclose(file);
    }
    return value;
}

static int quota_v1(void)
{
    return processors_of(read_number("/sys/fs/cgroup/cpu/cpu.cfs_quota_us"),
                         read_number("/sys/fs/cgroup/cpu/cpu.cfs_period_us"));
}

/* Every group up to the root may limit us: the smallest counts. */
static int quota_count(void)
{
    char line[PATH_CAP] = "", folder[PATH_CAP] = "";
    FILE *file = fopen("/proc/self/cgroup", "re");
    while (file && fgets(line, sizeof(line), file)) {
        if (strncmp(line, "0::/", 4) == 0) {
            snprintf(folder, sizeof(folder), "%s", line + 3);
            folder[strcspn(folder, "\n")] = '\0';
        }
    }
    if (file) {
        fclose(file);
    }
    int best = quota_v1();
    for (;;) {
        const int here = quota_v2(folder);
        best = here > 0 && (best == 0 || here < best) ? here : best;
        char *slash = strrchr(folder, '/');
        if (!slash) {
            return best;
        }
        *slash = '\0';
    }
}

uint64_t sw_cpu_mask(void)
{
    cpu_set_t set;
    CPU_ZERO(&set);
    return sched_getaffinity(0, sizeof(set), &set) == 0 ? sw_hash(SW_HASH_INIT, &set, sizeof(set))
                                                        : 0;
}

int sw_cpu_share(int n_alike, int n_here)
{
    const int mask = affinity_count() / n_alike, quota = quota_count();
    const int share = quota > 0 && quota / n_here < mask ? quota / n_here : mask;
    return share > 1 ? share : 1;
}

int sw_cpu_count(void)
{
    return sw_cpu_share(1, 1);
}
