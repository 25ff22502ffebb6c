// SPDX-License-Identifier: Apache-2.0
// The rank's side of the connection to the launcher: a thread that reports the rank's position
// every second. It only writes. If the launcher is gone, reports stop and the rank goes on.
#include "launch/private.h"

#include <errno.h>
#include <limits.h>
#include <netdb.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

static const double patience_s = 30.0; /* with a launcher that hangs up */

struct sw_launch_link {
    int fd, rank;
    pthread_t thread;
    pthread_mutex_t lock; /* guards what follows */
    pthread_cond_t wake;  /* of `ending` */
    bool ending;
    int64_t step; /* -1: none yet */
    char what[61];
};

sw_status sw_launch_connect(const char *address, int *out_fd)
{
    char host[256];
    const char *colon = strrchr(address, ':');
    const struct addrinfo hints = {.ai_family = AF_INET, .ai_socktype = SOCK_STREAM};
    struct addrinfo *found = NULL;
    if (!colon || (size_t)(colon - address) >= sizeof host) {
        return SW_FAIL(SW_E_CONFIG, "SPILLWAY_LAUNCH: wanted host:port, got \"%s\"", address);
    }
    snprintf(host, sizeof host, "%.*s", (int)(colon - address), address);
    const int bad = getaddrinfo(host, colon + 1, &hints, &found);
    if (bad) {
        return SW_FAIL(SW_E_IO, "SPILLWAY_LAUNCH: %s: %s", address, gai_strerror(bad));
    }
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const struct timeval limit = {.tv_sec = 10};
    if (fd >= 0) {
        setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit); /* of connect, too */
        setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    }
    const bool good = fd >= 0 && connect(fd, found->ai_addr, found->ai_addrlen) == 0;
    const int why = errno;
    freeaddrinfo(found);
    if (!good) {
        if (fd >= 0) {
            close(fd);
        }
        return SW_FAIL(SW_E_IO, "SPILLWAY_LAUNCH: the launcher at %s does not answer: %s", address,
                       strerror(why));
    }
    *out_fd = fd;
    return SW_OK;
}

static bool say(int fd, const char *line)
{
    return send(fd, line, strlen(line), MSG_NOSIGNAL) == (ssize_t)strlen(line);
}

/* One line without its end; "" when there is none. */
static void hear_line(int fd, char out[SW_LAUNCH_LINE_CAP])
{
    size_t n = 0;
    while (n < SW_LAUNCH_LINE_CAP - 1 && recv(fd, out + n, 1, 0) == 1 && out[n] != '\n') {
        n++;
    }
    out[n < SW_LAUNCH_LINE_CAP - 1 && out[n] == '\n' ? n : 0] = '\0';
}

enum said { SAID_ALL, BROKE, NOT_OURS };

static enum said prove_both(int fd, const struct sw_job_secret *secret, const char *kind,
                            int number, const uint8_t nonce[SW_NONCE_BYTES])
{
    char host[HOST_NAME_MAX + 1] = "", hello[SW_LAUNCH_LINE_CAP], line[SW_LAUNCH_LINE_CAP];
    char out[SW_LAUNCH_LINE_CAP + 1];
    gethostname(host, sizeof host - 1);
    sw_launch_report_hello(kind, number, host, (long)getpid(), nonce, hello);
    snprintf(out, sizeof out, "%s\n", hello);
    if (!say(fd, out)) {
        return BROKE;
    }
    memset(line, 0, sizeof line);
    hear_line(fd, line);
    if (!*line) {
        return BROKE;
    }
    if (!sw_launch_report_answer(secret, hello, nonce, line, out)) {
        return NOT_OURS;
    }
    strcat(out, "\n");
    return say(fd, out) ? SAID_ALL : BROKE;
}

/* A launcher that has too many strangers at once may let a connection go: it is tried again. */
sw_status sw_launch_introduce(const char *address, const struct sw_job_secret *secret,
                              const char *kind, int number, int *out_fd)
{
    const double until = sw_now_s() + patience_s;
    uint8_t nonce[SW_NONCE_BYTES];
    if (!secret->known) {
        return SW_FAIL(
            SW_E_CONFIG,
            "SPILLWAY_LAUNCH is set, but SPILLWAY_JOB_SECRET is not; the launcher at %s accepts "
            "its own job only",
            address);
    }
    for (;;) {
        int fd;
        SW_TRY(sw_draw_bytes(nonce, sizeof nonce));
        SW_TRY(sw_launch_connect(address, &fd));
        const enum said said = prove_both(fd, secret, kind, number, nonce);
        if (said == SAID_ALL) {
            *out_fd = fd;
            return SW_OK;
        }
        close(fd);
        if (said == NOT_OURS) {
            return SW_FAIL(
                SW_E_PEER,
                "SPILLWAY_LAUNCH: the listener at %s does not prove the secret of this job "
                "(SPILLWAY_JOB_SECRET, SPILLWAY_JOB_ID)",
                address);
        }
        if (sw_now_s() >= until) {
            return SW_FAIL(SW_E_IO, "SPILLWAY_LAUNCH: the launcher at %s hung up", address);
        }
        nanosleep(&(struct timespec){0, 50000000}, NULL);
    }
}

/* Called with the lock; the line is sent without it. */
static bool say_place(struct sw_launch_link *link)
{
    char line[128];
    snprintf(line, sizeof line, "at %d %lld %s\n", link->rank, (long long)link->step,
             *link->what ? link->what : "-");
    pthread_mutex_unlock(&link->lock);
    const bool good = say(link->fd, line);
    pthread_mutex_lock(&link->lock);
    return good;
}

static void *beat(void *arg)
{
    struct sw_launch_link *link = arg;
    bool heard = true;
    pthread_mutex_lock(&link->lock);
    while (!link->ending && heard) {
        struct timespec until;
        heard = say_place(link);
        clock_gettime(CLOCK_MONOTONIC, &until);
        until.tv_sec++;
        while (!link->ending &&
               pthread_cond_timedwait(&link->wake, &link->lock, &until) != ETIMEDOUT) {
        }
    }
    pthread_mutex_unlock(&link->lock);
    return NULL;
}

static sw_status start(struct sw_launch_link *link)
{
    pthread_condattr_t attr;
    pthread_mutex_init(&link->lock, NULL);
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&link->wake, &attr);
    pthread_condattr_destroy(&attr);
    const int bad = sw_thread_start(&link->thread, beat, link);
    if (bad) {
        pthread_cond_destroy(&link->wake);
        pthread_mutex_destroy(&link->lock);
        return SW_FAIL(SW_E_IO, "no thread to report to the launcher: %s", strerror(bad));
    }
    return SW_OK;
}

sw_status sw_launch_link_open(int rank, struct sw_launch_link **out)
{
    const char *address = getenv("SPILLWAY_LAUNCH");
    struct sw_job_secret secret;
    sw_status st;
    if (!address || !*address) {
        *out = NULL;
        return SW_OK;
    }
    SW_TRY(sw_job_secret_read(getenv("SPILLWAY_JOB_SECRET"), getenv("SPILLWAY_JOB_SECRET_FILE"),
                              getenv("SPILLWAY_JOB_ID"), &secret));
    struct sw_launch_link *link = sw_alloc_zero("launch", 1, sizeof *link);
    SW_TRY_ALLOC(link, "the connection to the launcher");
    link->rank = rank;
    link->step = -1;
    SW_TRY_OR(free_link, sw_launch_introduce(address, &secret, "hello", rank, &link->fd));
    SW_TRY_OR(close_fd, start(link));
    *out = link;
    return SW_OK;
close_fd:
    close(link->fd);
free_link:
    sw_free(link);
    return st;
}

void sw_launch_link_at(struct sw_launch_link *link, int64_t step, const char *what)
{
    if (!link) {
        return;
    }
    pthread_mutex_lock(&link->lock);
    link->step = step;
    size_t n = 0;
    for (; what && what[n] && n < sizeof link->what - 1; n++) {
        link->what[n] = what[n] > ' ' && what[n] != 127 ? what[n] : '_'; /* one word of the line */
    }
    link->what[n] = '\0';
    pthread_mutex_unlock(&link->lock);
}

void sw_launch_link_close(struct sw_launch_link *link, int status)
{
    char line[64];
    if (!link) {
        return;
    }
    pthread_mutex_lock(&link->lock);
    link->ending = true;
    pthread_cond_signal(&link->wake);
    pthread_mutex_unlock(&link->lock);
    pthread_join(link->thread, NULL);
    snprintf(line, sizeof line, "bye %d %d\n", link->rank, status);
    say(link->fd, line);
    close(link->fd);
    pthread_cond_destroy(&link->wake);
    pthread_mutex_destroy(&link->lock);
    sw_free(link);
}
