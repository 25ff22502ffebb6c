// SPDX-License-Identifier: Apache-2.0
// One thread, one timeline, and a ring of times. The thread waits for marks in order. A query for a
// mark that it has not seen waits for the thread.
#include "run/watch.h"

#include <pthread.h>
#include <string.h>

struct sw_watch {
    struct sw_device *dev;
    struct sw_timeline *timeline;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    int64_t n_marks, n_passed, most;
    int64_t *at_ns; /* [most] the time of mark m is at m % most */
    bool ends, has_thread, failed;
};

static void *watch_main(void *arg)
{
    struct sw_watch *w = arg;
    pthread_mutex_lock(&w->lock);
    while (!w->ends) {
        if (w->n_passed == w->n_marks) {
            pthread_cond_wait(&w->changed, &w->lock);
            continue;
        }
        const int64_t next = w->n_passed + 1;
        pthread_mutex_unlock(&w->lock);
        const sw_status st = w->dev->ops->timeline_wait(w->dev, w->timeline, next);
        const int64_t now = sw_now_ns();
        pthread_mutex_lock(&w->lock);
        w->failed |= st < 0;
        w->at_ns[next % w->most] = st < 0 ? 0 : now;
        w->n_passed = next;
        pthread_cond_broadcast(&w->changed);
    }
    pthread_mutex_unlock(&w->lock);
    return NULL;
}

static sw_status start(struct sw_watch *w)
{
    const int error = sw_thread_start(&w->thread, watch_main, w);
    w->has_thread = error == 0;
    return error ? SW_FAIL(SW_E_NOMEM, "no thread for the times of phases: %s", strerror(error))
                 : SW_OK;
}

sw_status sw_watch_open(struct sw_device *dev, int64_t most, struct sw_watch **out)
{
    struct sw_watch *w = sw_alloc_zero("run", 1, sizeof *w);
    SW_TRY_ALLOC(w, "the times of phases");
    w->dev = dev;
    w->most = most + 1;
    pthread_mutex_init(&w->lock, NULL);
    pthread_cond_init(&w->changed, NULL);
    w->at_ns = sw_alloc_zero("run", (size_t)w->most, sizeof *w->at_ns);
    sw_status st = w->at_ns ? dev->ops->timeline_open(dev, &w->timeline)
                            : SW_FAIL(SW_E_NOMEM, "out of host memory for the times of phases");
    st = st < 0 ? st : start(w);
    if (st < 0) {
        sw_watch_close(w);
        return st;
    }
    *out = w;
    return SW_OK;
}

void sw_watch_close(struct sw_watch *w)
{
    if (!w) {
        return;
    }
    if (w->has_thread) {
        pthread_mutex_lock(&w->lock);
        w->ends = true;
        pthread_cond_broadcast(&w->changed);
        pthread_mutex_unlock(&w->lock);
        pthread_join(w->thread, NULL);
    }
    if (w->timeline) {
        w->dev->ops->timeline_close(w->dev, w->timeline);
    }
    pthread_cond_destroy(&w->changed);
    pthread_mutex_destroy(&w->lock);
    sw_free(w->at_ns);
    sw_free(w);
}

sw_status sw_watch_mark(struct sw_watch *w, struct sw_stream_queue *on, int64_t *out_mark)
{
    const int64_t mark = w->n_marks + 1; /* only this thread writes it */
    SW_TRY(w->dev->ops->stream_signal(w->dev, on, w->timeline, mark));
    pthread_mutex_lock(&w->lock);
    w->n_marks = mark;
    pthread_cond_broadcast(&w->changed);
    pthread_mutex_unlock(&w->lock);
    *out_mark = mark;
    return SW_OK;
}

int64_t sw_watch_passed_ns(struct sw_watch *w, int64_t mark)
{
    pthread_mutex_lock(&w->lock);
    while (w->n_passed < mark && !w->failed) {
        pthread_cond_wait(&w->changed, &w->lock);
    }
    const int64_t at = w->n_passed < mark ? 0 : w->at_ns[mark % w->most];
    pthread_mutex_unlock(&w->lock);
    return at;
}
