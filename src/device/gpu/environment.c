// SPDX-License-Identifier: Apache-2.0
// Environment variables of the vendors' runtimes, without which streams that wait could block each
// other.
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "device/gpu/open.h"

/* A stream that waits blocks the streams that share its hardware queue, among them perhaps the one
 * that it waits for. A rank has a stream for each of the twelve queues of its plan, and RCCL and
 * NCCL have one for each communicator, of which there are up to eleven. */
enum { LEAST_QUEUES = 24 };

#define BLOCKED "a stream that waits would block others"
/* value: set unless the variable has this one, or at least `least`. */
static const struct variable {
    const char *backend, *name, *value;
    int least; /* least number; 0 = the value itself is needed */
    const char *why;
} variables[] = {
    {"cuda", "CUDA_DEVICE_MAX_CONNECTIONS", "32", LEAST_QUEUES, BLOCKED},
    {"hip", "GPU_MAX_HW_QUEUES", "24", LEAST_QUEUES, BLOCKED},
    /* Also loads the kernels of libraries. Lazy loading at the first launch waits for all streams,
     * and those may wait for work that this thread has not queued yet. */
    {"cuda", "CUDA_MODULE_LOADING", "EAGER", 0,
     "the first launch of a kernel would wait for all streams"},
};

/* Ranks that are threads open devices at the same time. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static bool suffices(const struct variable *v, const char *is)
{
    char *end;
    const long number = strtol(is, &end, 10);
    return v->least ? *is && !*end && number >= v->least : strcmp(is, v->value) == 0;
}

static void put(const struct variable *v)
{
    const char *is = getenv(v->name);
    if (is && suffices(v, is)) {
        return;
    }
    if (is) {
        char least[32];
        snprintf(least, sizeof least, "%d or more", v->least);
        sw_log(SW_LOG_WARN, "%s=%s: wanted %s, since %s; this process sets %s", v->name, is,
               v->least ? least : v->value, v->why, v->value);
    }
    setenv(v->name, v->value, 1);
}

void sw_gpu_set_environment(const char *backend)
{
    pthread_mutex_lock(&lock);
    for (size_t i = 0; i < SW_LEN(variables); i++) {
        if (strcmp(variables[i].backend, backend) == 0) {
            put(&variables[i]);
        }
    }
    pthread_mutex_unlock(&lock);
}
