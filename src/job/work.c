// SPDX-License-Identifier: Apache-2.0
// The progress bar of long work. The work only reports its position. A separate thread draws the
// bar, so that its time advances during a long step.
#include <errno.h>
#include <pthread.h>
#include <string.h>
#include <time.h>

#include "base/base.h"
#include "job/progress.h"
#include "spillway/progress.h"

static const double PATIENCE_S = 0.5; /* a bar for shorter work would flicker */
enum { TICK_NS = 200 * 1000 * 1000 };

struct sw_work_bar {
    pthread_mutex_t lock;
    pthread_cond_t woken;
    pthread_t thread;
    bool ends;
    struct progress progress;
    const char *what; /* a literal; NULL = no work in progress */
    int64_t done, of;
    double began_s;
    struct sw_work_listener before;
};

/* Draws the elapsed time, or the time left at the speed so far. */
static void draw(struct sw_work_bar *bar)
{
    char time[32], text[160];
    const double spent = sw_now_s() - bar->began_s;
    if (!bar->what || spent < PATIENCE_S) {
        return;
    }
    const double share = bar->of > 0 ? (double)bar->done / (double)bar->of : 0;
    sw_format_eta(share > 0 ? spent / share - spent : spent, time, sizeof time);
    if (bar->of > 0) {
        snprintf(text, sizeof text, "%s %.0f%%\t%s%s", bar->what, 100 * share,
                 share > 0 ? "eta " : "", time);
    } else {
        snprintf(text, sizeof text, "%s\t%s", bar->what, time);
    }
    sw_progress_step(&bar->progress, text, share, LINE_PASSES);
}

static void *tick(void *arg)
{
    struct sw_work_bar *bar = arg;
    pthread_mutex_lock(&bar->lock);
    while (!bar->ends) {
        struct timespec until;
        clock_gettime(CLOCK_REALTIME, &until);
        until.tv_nsec += TICK_NS;
        until.tv_sec += until.tv_nsec / 1000000000;
        until.tv_nsec %= 1000000000;
        if (pthread_cond_timedwait(&bar->woken, &bar->lock, &until) == ETIMEDOUT) {
            draw(bar);
        }
    }
    pthread_mutex_unlock(&bar->lock);
    return NULL;
}

static void take(void *ctx, const char *what, int64_t done, int64_t of)
{
    struct sw_work_bar *bar = ctx;
    pthread_mutex_lock(&bar->lock);
    if (!what) {
        sw_progress_clear(&bar->progress);
    } else if (!bar->what || strcmp(what, bar->what) != 0 || done < bar->done) {
        bar->began_s = sw_now_s();
    }
    bar->what = what;
    bar->done = done;
    bar->of = of;
    pthread_mutex_unlock(&bar->lock);
}

struct sw_work_bar *sw_work_show(FILE *out)
{
    const struct progress progress = sw_progress_start(out, false);
    struct sw_work_bar *bar = progress.live ? sw_alloc_zero("progress", 1, sizeof *bar) : NULL;
    if (!bar) {
        return NULL;
    }
    bar->progress = progress;
    pthread_mutex_init(&bar->lock, NULL);
    pthread_cond_init(&bar->woken, NULL);
    const int error = sw_thread_start(&bar->thread, tick, bar);
    if (error) {
        pthread_cond_destroy(&bar->woken);
        pthread_mutex_destroy(&bar->lock);
        sw_free(bar);
        return NULL;
    }
    bar->before = sw_work_listen((struct sw_work_listener){take, bar});
    return bar;
}

void sw_work_hide(struct sw_work_bar *bar)
{
    if (!bar) {
        return;
    }
    sw_work_listen(bar->before);
    pthread_mutex_lock(&bar->lock);
    bar->ends = true;
    pthread_cond_signal(&bar->woken);
    pthread_mutex_unlock(&bar->lock);
    pthread_join(bar->thread, NULL);
    sw_progress_clear(&bar->progress);
    pthread_cond_destroy(&bar->woken);
    pthread_mutex_destroy(&bar->lock);
    sw_free(bar);
}

void sw_work_clear(void)
{
    sw_work_end();
}
