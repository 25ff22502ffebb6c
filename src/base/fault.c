// SPDX-License-Identifier: Apache-2.0
// Fault points. The list of armed points is read from SPILLWAY_FAULT once, at the first pass, or
// set by a test. A program without faults pays one relaxed load a pass.
#include "base/base.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MAX_POINTS = 16, NAME_CAP = 32 };
enum { KILL = SW_FAULT_SHORT + 1 }; /* never returned, so not in the public list */

struct point {
    char name[NAME_CAP];
    int64_t passes_left; /* 1 = acts at the next pass; 0 = is over */
    int action;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* guards points, n_points */
static struct point points[MAX_POINTS];
static int n_points;
static _Atomic bool armed;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static bool parse_action(const char *text, size_t len, int *out)
{
    static const struct {
        const char *name;
        int action;
    } actions[] = {{"eio", SW_FAULT_EIO},
                   {"enospc", SW_FAULT_ENOSPC},
                   {"short", SW_FAULT_SHORT},
                   {"kill", KILL}};
    for (size_t i = 0; i < SW_LEN(actions); i++) {
        if (strlen(actions[i].name) == len && memcmp(actions[i].name, text, len) == 0) {
            *out = actions[i].action;
            return true;
        }
    }
    return false;
}

/* One "name:n:action" of len bytes. */
static sw_status parse_point(const char *text, size_t len, struct point *out)
{
    const char *end = text + len;
    const char *colon = memchr(text, ':', len);
    const size_t name_len = colon ? (size_t)(colon - text) : 0;
    char *after = NULL;
    long long n = 0;
    errno = 0;
    if (colon) {
        n = strtoll(colon + 1, &after, 10);
    }
    struct point point = {0};
    if (name_len == 0 || name_len >= NAME_CAP || !after || errno != 0 || n < 1 || after >= end ||
        *after != ':' || !parse_action(after + 1, (size_t)(end - after - 1), &point.action)) {
        return SW_FAIL(SW_E_ARG,
                       "fault \"%.*s\": wanted name:n:action with n >= 1 and action eio, enospc, "
                       "short or kill",
                       (int)len, text);
    }
    memcpy(point.name, text, name_len);
    point.passes_left = n;
    *out = point;
    return SW_OK;
}

static sw_status set_points(const char *spec)
{
    struct point parsed[MAX_POINTS];
    int n = 0;
    while (spec && *spec) {
        const size_t len = strcspn(spec, ",");
        if (n == MAX_POINTS) {
            return SW_FAIL(SW_E_ARG, "more than %d faults at once", MAX_POINTS);
        }
        SW_TRY(parse_point(spec, len, &parsed[n]));
        n++;
        spec += len + (spec[len] == ',');
    }
    pthread_mutex_lock(&lock);
    if (n) {
        memcpy(points, parsed, (size_t)n * sizeof(*parsed));
    }
    n_points = n;
    pthread_mutex_unlock(&lock);
    atomic_store_explicit(&armed, n > 0, memory_order_relaxed);
    return SW_OK;
}

static void read_environment(void)
{
    const char *spec = getenv("SPILLWAY_FAULT");
    if (spec && set_points(spec) < 0) {
        sw_log(SW_LOG_ERROR, "SPILLWAY_FAULT is ignored: %s", sw_error_message());
    }
}

sw_status sw_fault_set(const char *spec)
{
    pthread_once(&once, read_environment); /* so that a later first pass does not overwrite it */
    SW_TRY(set_points(spec));
    return SW_OK;
}

enum sw_fault_action sw_fault_point(const char *name)
{
    pthread_once(&once, read_environment);
    if (!atomic_load_explicit(&armed, memory_order_relaxed)) {
        return SW_FAULT_NONE;
    }
    int action = SW_FAULT_NONE;
    pthread_mutex_lock(&lock);
    for (int i = 0; i < n_points; i++) {
        struct point *point = &points[i];
        if (point->passes_left > 0 && strcmp(point->name, name) == 0 && --point->passes_left == 0) {
            action = point->action;
        }
    }
    pthread_mutex_unlock(&lock);
    if (action == KILL) {
        kill(getpid(), SIGKILL);
    }
    return (enum sw_fault_action)action;
}

bool sw_fault_fails(const char *name, size_t *len)
{
    const enum sw_fault_action action = sw_fault_point(name);
    if (action == SW_FAULT_EIO || action == SW_FAULT_ENOSPC) {
        errno = action == SW_FAULT_EIO ? EIO : ENOSPC;
        return true;
    }
    if (action == SW_FAULT_SHORT && len) {
        *len = (*len + 1) / 2;
    }
    return false;
}
