// SPDX-License-Identifier: Apache-2.0
// Units that are put aside: a binary heap, the earliest next event first.
#include "walk/ranks.h"

static bool is_earlier(const struct clock *c, int a, int b)
{
    const struct unit *x = &c->units[c->aside[a]], *y = &c->units[c->aside[b]];
    return x->next != y->next ? x->next < y->next : x < y;
}

static void swap(struct clock *c, int a, int b)
{
    const int unit = c->aside[a];
    c->aside[a] = c->aside[b];
    c->aside[b] = unit;
    c->units[c->aside[a]].place = a;
    c->units[c->aside[b]].place = b;
}

static void rise(struct clock *c, int at)
{
    for (; at > 0 && is_earlier(c, at, (at - 1) / 2); at = (at - 1) / 2) {
        swap(c, at, (at - 1) / 2);
    }
}

static void sink(struct clock *c, int at)
{
    for (int least = at;; at = least) {
        for (int k = 2 * at + 1; k <= 2 * at + 2 && k < c->n_aside; k++) {
            least = is_earlier(c, k, least) ? k : least;
        }
        if (least == at) {
            return;
        }
        swap(c, at, least);
    }
}

void sw_clock_put_aside(struct clock *c, struct unit *u, double next)
{
    u->next = next;
    u->place = c->n_aside;
    c->aside[c->n_aside++] = (int)(u - c->units);
    rise(c, u->place);
}

void sw_clock_take_back(struct clock *c, struct unit *u)
{
    const int at = u->place, last = --c->n_aside;
    if (at != last) {
        swap(c, at, last);
        rise(c, at);
        sink(c, at);
    }
    u->place = -1;
}
