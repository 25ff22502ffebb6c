// SPDX-License-Identifier: Apache-2.0
// An MPI whose ranks are threads: each rank is one thread, which makes all calls of that rank. A
// message is copied when it is sent.
#include "comm/tests/mock_mpi.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

enum { MOST_REQUESTS = 256 };

struct message {
    struct message *next;
    int from, to, tag, bytes;
    char data[];
};

struct request {
    bool taken, receives;
    void *data;
    int bytes, peer, tag;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct message *first; /* oldest first */
static int n_inside;          /* ranks between init and leaving */
static _Thread_local int my_rank, my_size;
static _Thread_local struct request requests[MOST_REQUESTS];

static int init(int *rank, int *size)
{
    *rank = my_rank;
    *size = my_size;
    return 0;
}

static int slot(int *out)
{
    for (int i = 0; i < MOST_REQUESTS; i++) {
        if (!requests[i].taken) {
            requests[i] = (struct request){.taken = true};
            *out = i;
            return 0;
        }
    }
    return 1;
}

static int isend(const void *data, int bytes, int peer, int tag, int *request)
{
    struct message *m = sw_alloc("comm", sizeof *m + (size_t)bytes);
    if (!m || slot(request) != 0) {
        sw_free(m);
        return 1;
    }
    *m = (struct message){NULL, my_rank, peer, tag, bytes};
    memcpy(m->data, data, (size_t)bytes);
    pthread_mutex_lock(&lock);
    struct message **at = &first;
    while (*at) {
        at = &(*at)->next;
    }
    *at = m;
    pthread_mutex_unlock(&lock);
    return 0;
}

static int irecv(void *data, int bytes, int peer, int tag, int *request)
{
    if (slot(request) != 0) {
        return 1;
    }
    requests[*request] = (struct request){true, true, data, bytes, peer, tag};
    return 0;
}

/* The place of the oldest message to this rank; peer -1 = from any rank. The lock is held. */
static struct message **find(int peer, int tag)
{
    struct message **at = &first;
    while (*at &&
           ((*at)->to != my_rank || (*at)->tag != tag || (peer >= 0 && (*at)->from != peer))) {
        at = &(*at)->next;
    }
    return at;
}

static int test(int request, int *done)
{
    struct request *r = &requests[request];
    *done = !r->receives;
    pthread_mutex_lock(&lock);
    struct message **at = r->receives ? find(r->peer, r->tag) : NULL;
    if (at && *at) {
        struct message *m = *at;
        SW_ASSERT(m->bytes <= r->bytes);
        memcpy(r->data, m->data, (size_t)m->bytes);
        *at = m->next;
        sw_free(m);
        *done = 1;
    }
    pthread_mutex_unlock(&lock);
    r->taken = !*done;
    return 0;
}

static int cancel(int request)
{
    requests[request].taken = false;
    return 0;
}

static int probe(int tag, int *here, int *peer)
{
    pthread_mutex_lock(&lock);
    const struct message *m = *find(-1, tag);
    *here = m != NULL;
    *peer = m ? m->from : -1;
    pthread_mutex_unlock(&lock);
    return 0;
}

static int finalize(void)
{
    return 0;
}

static void describe(int code, char *text, int cap)
{
    snprintf(text, (size_t)cap, "error %d", code);
}

const struct sw_mpi_module *test_mpi_enter(int rank, int size)
{
    static const struct sw_mpi_module module = {.version = SW_MPI_MODULE_VERSION,
                                                .init = init,
                                                .isend = isend,
                                                .irecv = irecv,
                                                .test = test,
                                                .cancel = cancel,
                                                .probe = probe,
                                                .finalize = finalize,
                                                .describe = describe};
    my_rank = rank;
    my_size = size;
    memset(requests, 0, sizeof requests);
    pthread_mutex_lock(&lock);
    n_inside++;
    pthread_mutex_unlock(&lock);
    return &module;
}

void test_mpi_leave(void)
{
    pthread_mutex_lock(&lock);
    n_inside--;
    while (n_inside == 0 && first) { /* nobody receives these any more */
        struct message *m = first;
        first = m->next;
        sw_free(m);
    }
    pthread_mutex_unlock(&lock);
}
