// SPDX-License-Identifier: Apache-2.0
// A reader of event files that shares only the checksum with the writer. Another test compares that
// checksum with values of other programs. The test fails if a checksum of a record is wrong.
#pragma once

#include <dirent.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "support/test.h"

enum { MOST_POINTS = 512 };
struct read_points {
    int n, n_starts;
    int64_t x[MOST_POINTS], start_x[8];
    double value[MOST_POINTS];
    char tag[MOST_POINTS][64];
    char version[32];
};

static inline uint64_t little(const unsigned char *at, int bytes)
{
    uint64_t bits = 0;
    for (int i = bytes - 1; i >= 0; i--) {
        bits = bits << 8 | at[i];
    }
    return bits;
}

static inline uint32_t mask(uint32_t crc)
{
    return ((crc >> 15) | (crc << 17)) + 0xa282ead8u;
}

static inline uint64_t varint(const unsigned char **at)
{
    uint64_t n = 0;
    int shift = 0;
    do {
        n |= (uint64_t)(**at & 127) << shift;
        shift += 7;
    } while (*(*at)++ & 128);
    return n;
}

static inline void read_value(const unsigned char *at, const unsigned char *end,
                              struct read_points *out)
{
    assert_true(out->n < MOST_POINTS);
    while (at < end) {
        const uint64_t key = varint(&at);
        if (key == (1 << 3 | 2)) {
            const uint64_t len = varint(&at);
            snprintf(out->tag[out->n], 64, "%.*s", (int)len, (const char *)at);
            at += len;
        } else {
            assert_int_equal(key, 2 << 3 | 5);
            const uint32_t bits = (uint32_t)little(at, 4);
            float value;
            memcpy(&value, &bits, sizeof value);
            out->value[out->n] = value;
            at += 4;
        }
    }
    out->n++;
}

static inline void read_message(const unsigned char *at, const unsigned char *end,
                                struct read_points *out)
{
    int64_t x = 0;
    while (at < end) {
        const uint64_t key = varint(&at);
        uint64_t len = 0;
        switch (key) {
        case 1 << 3 | 1:
            at += 8;
            break;
        case 2 << 3 | 0:
            x = (int64_t)varint(&at);
            break;
        case 3 << 3 | 2:
            len = varint(&at);
            snprintf(out->version, sizeof out->version, "%.*s", (int)len, (const char *)at);
            at += len;
            break;
        case 5 << 3 | 2:
            len = varint(&at);
            for (const unsigned char *stop = at + len; at < stop;) {
                assert_int_equal(varint(&at), 1 << 3 | 2);
                const uint64_t bytes = varint(&at);
                out->x[out->n] = x;
                read_value(at, at + bytes, out);
                at += bytes;
            }
            break;
        default:
            assert_int_equal(key, 7 << 3 | 2);
            assert_int_equal(varint(&at), 2);
            assert_int_equal(at[0], 1 << 3);
            assert_int_equal(at[1], 1);
            out->start_x[out->n_starts++] = x;
            at += 2;
        }
    }
}

static inline void read_events(const char *path, struct read_points *out)
{
    char *text = NULL;
    size_t len = 0;
    assert_int_equal(sw_file_read(path, &text, &len), SW_OK);
    const unsigned char *at = (const unsigned char *)text, *end = at + len;
    while (at < end) {
        assert_true(end - at >= 16);
        const uint64_t bytes = little(at, 8);
        assert_int_equal(little(at + 8, 4), mask(sw_crc32c(0, at, 8)));
        assert_true(bytes <= (uint64_t)(end - at) - 16);
        assert_int_equal(little(at + 12 + bytes, 4), mask(sw_crc32c(0, at + 12, bytes)));
        read_message(at + 12, at + 12 + bytes, out);
        at += 16 + bytes;
    }
    sw_free(text);
}

static inline int by_event_name(const struct dirent **a, const struct dirent **b)
{
    return strcmp((*a)->d_name, (*b)->d_name);
}

static inline int is_event_file(const struct dirent *one)
{
    return strstr(one->d_name, "tfevents") != NULL;
}

/* All of a folder, in the order in which TensorBoard reads them. */
static inline int read_folder(const char *path, struct read_points *out)
{
    struct dirent **names = NULL;
    const int n = scandir(path, &names, is_event_file, by_event_name);
    *out = (struct read_points){0};
    for (int i = 0; i < n; i++) {
        char file[1024];
        snprintf(file, sizeof file, "%s/%s", path, names[i]->d_name);
        if (strstr(names[i]->d_name, ".spillway")) {
            read_events(file, out);
        }
        free(names[i]);
    }
    free(names);
    return n;
}

/* The only event file of a folder. */
static inline void find_events(const char *folder, char *out, size_t cap)
{
    struct dirent **names = NULL;
    assert_int_equal(scandir(folder, &names, is_event_file, by_event_name), 1);
    snprintf(out, cap, "%s/%s", folder, names[0]->d_name);
    free(names[0]);
    free(names);
}
