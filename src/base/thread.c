// SPDX-License-Identifier: Apache-2.0
// Threads of the library receive no signals: those are for the program's own threads.
#include "base/base.h"

#include <pthread.h>
#include <signal.h>

int sw_thread_start(pthread_t *out, void *(*main)(void *), void *ctx)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    const int error = pthread_create(out, NULL, main, ctx);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return error;
}
