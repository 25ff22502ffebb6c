// SPDX-License-Identifier: Apache-2.0
// Ranks as threads: exchange and gathering, and that nobody hangs: a rank that gives up, stays away or
// comes with something else is named by all others.
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "run/run.h"
#include "support/test.h"

enum { RANKS = 4, N = 37, PATIENT_S = 600 };

struct member {
    const struct sw_collectives *ops;
    int mode;
    sw_status st;
    bool good;
    char message[256];
};

static sw_status exchange(struct member *m)
{
    const struct sw_collectives *o = m->ops;
    int32_t src[RANKS * N], dst[RANKS * N];
    m->good = true;
    for (int turn = 0; turn < 50; turn++) {
        for (int r = 0; r < RANKS; r++) {
            for (int i = 0; i < N; i++) {
                src[r * N + i] = o->rank * 10000 + r * 1000 + i + turn;
            }
        }
        SW_TRY(o->all_to_all(o->ctx, src, dst, N * sizeof *src, "a gradient"));
        for (int r = 0; r < RANKS; r++) {
            for (int i = 0; i < N; i++) {
                m->good &= dst[r * N + i] == r * 10000 + o->rank * 1000 + i + turn;
            }
        }
        memset(dst, 0xff, sizeof dst);
        memcpy(dst + o->rank * N, src, N * sizeof *src); /* in place */
        SW_TRY(o->all_gather(o->ctx, dst + o->rank * N, dst, N * sizeof *src, "a parameter"));
        for (int r = 0; r < RANKS; r++) {
            for (int i = 0; i < N; i++) {
                m->good &= dst[r * N + i] == r * 10000 + i + turn;
            }
        }
    }
    return SW_OK;
}

static sw_status misbehave(struct member *m)
{
    const struct sw_collectives *o = m->ops;
    int32_t src[RANKS] = {0}, dst[RANKS];
    SW_TRY(o->all_gather(o->ctx, src, dst, 4, "first"));
    if (o->rank == 2 && m->mode == 1) {
        o->abort(o->ctx, SW_E_IO);
        return SW_E_IO;
    }
    if (o->rank == 2 && m->mode == 2) {
        return SW_OK; /* stays away */
    }
    if (o->rank == 2 && m->mode == 3) {
        return o->all_to_all(o->ctx, src, dst, 4, "another");
    }
    return o->all_gather(o->ctx, src, dst, 4, "second");
}

static void *run(void *arg)
{
    struct member *m = arg;
    m->st = m->mode == 0 ? exchange(m) : misbehave(m);
    snprintf(m->message, sizeof m->message, "%s", sw_error_message());
    return NULL;
}

static void run_all(struct member *members, int mode, double deadline_s)
{
    struct sw_thread_ranks *world = NULL;
    pthread_t threads[RANKS];
    assert_int_equal(sw_thread_ranks_open(RANKS, deadline_s, &world), SW_OK);
    for (int r = 0; r < RANKS; r++) {
        members[r] = (struct member){.ops = sw_thread_ranks_at(world, r), .mode = mode};
        assert_int_equal(pthread_create(&threads[r], NULL, run, &members[r]), 0);
    }
    for (int r = 0; r < RANKS; r++) {
        pthread_join(threads[r], NULL);
    }
    sw_thread_ranks_close(world);
}

static void slices_arrive(void **state)
{
    (void)state;
    struct member members[RANKS];
    run_all(members, 0, PATIENT_S);
    for (int r = 0; r < RANKS; r++) {
        assert_int_equal(members[r].st, SW_OK);
        assert_true(members[r].good);
    }
}

/* Do all that saw the failure of rank 2 name it? Else the message that does not. */
static const char *not_naming_rank_2(const struct member *members, int mode)
{
    for (int r = 0; r < RANKS; r++) {
        const bool itself = r == 2 && mode < 3; /* failed, or was never there */
        if (!itself &&
            (members[r].st != SW_E_PEER || (r != 2 && !strstr(members[r].message, "rank 2")))) {
            return members[r].message;
        }
    }
    return NULL;
}

static void failures_are_named(void **state)
{
    (void)state;
    for (int mode = 1; mode <= 3; mode += 2) {
        struct member members[RANKS];
        run_all(members, mode, PATIENT_S);
        const char *wrong = not_naming_rank_2(members, mode);
        if (wrong) {
            fail_msg("mode %d: \"%s\" does not name rank 2", mode, wrong);
        }
    }
}

/* On a machine with much else to do others are late, too: then a longer deadline must tell them apart. */
static void who_stays_away_is_named(void **state)
{
    (void)state;
    struct member members[RANKS];
    const char *wrong = "";
    for (double deadline_s = 0.2; wrong && deadline_s < PATIENT_S; deadline_s *= 4) {
        run_all(members, 2, deadline_s);
        wrong = not_naming_rank_2(members, 2);
    }
    if (wrong) {
        fail_msg("\"%s\" does not name rank 2", wrong);
    }
}

/* Ranks are threads: too many are refused before the first starts. */
static void too_many_ranks_are_refused(void **state)
{
    struct sw_thread_ranks *world = NULL;
    (void)state;
    assert_int_equal(sw_thread_ranks_open(SW_THREAD_RANKS_MAX + 1, 1, &world), SW_E_ARG);
    assert_int_equal(sw_thread_ranks_open(0, 1, &world), SW_E_ARG);
    assert_int_equal(sw_thread_ranks_open(2, 0, &world), SW_E_ARG);
    assert_int_equal(sw_thread_ranks_open(2, NAN, &world), SW_E_ARG);
    assert_null(world);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(slices_arrive),
        cmocka_unit_test(failures_are_named),
        cmocka_unit_test(who_stays_away_is_named),
        cmocka_unit_test(too_many_ranks_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
