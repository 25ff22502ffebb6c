// SPDX-License-Identifier: Apache-2.0
// spillway io verify: writes the whole range in pieces of odd lengths, several in flight. It then
// rewrites every second stretch of an odd length, and reads all back in other pieces. Each byte is
// a function of its offset and of the pass that wrote it last. So a byte at a wrong offset, or
// overwritten by a neighbour, is detected. Then the files are reopened and everything is compared
// again.
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/io.h"

enum { IN_FLIGHT = 8, MOST_PIECE = (3 << 20) + 5, STRETCH = 12289 };

/* Piece sizes: rows of 448, 449 and 7 floats, single bytes, and sizes around blocks. */
static const int64_t write_pieces[] = {448 * 4, 449 * 4,      7 * 4,        1,     4095,
                                       4096,    4097,         511,          65535, (1 << 20) + 1,
                                       3,       131072 + 512, (3 << 20) + 5};
static const int64_t read_pieces[] = {449 * 4,       1,    65537,   8192, 7 * 4,
                                      (2 << 20) - 3, 4097, 448 * 4, 513};

struct check {
    sw_nvme *store;
    int64_t bytes;
    unsigned char *memory[IN_FLIGHT]; /* one spare byte in front varies the alignment */
    struct sw_nvme_segment segments[IN_FLIGHT][2];
    int64_t offsets[IN_FLIGHT], lengths[IN_FLIGHT]; /* length 0 = not in flight */
    sw_nvme_ticket tickets[IN_FLIGHT];
    int64_t wrong_at; /* -1 = none */
};

static uint64_t mixed(uint64_t x)
{
    x += 0x9e3779b97f4a7c15u;
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    return x ^ x >> 31;
}

/* The value of byte `at` after pass 1, or after both passes. */
static unsigned char byte_at(int64_t at, bool both)
{
    const uint64_t writer = both && at / STRETCH % 2 ? 1 : 0;
    return (unsigned char)(mixed(((uint64_t)at >> 3 << 1) + writer) >> (at % 8 * 8));
}

/* ---- one piece ---- */

/* Splits a piece into two segments, so that scatter lists are covered too. */
static void lay_out(struct check *c, int i, int64_t offset, int64_t length)
{
    unsigned char *at = c->memory[i] + offset % 8;
    const int64_t first = length / 3;
    c->segments[i][0] = (struct sw_nvme_segment){at, (size_t)first};
    c->segments[i][1] = (struct sw_nvme_segment){at + first, (size_t)(length - first)};
    c->offsets[i] = offset;
    c->lengths[i] = length;
}

static sw_status end_piece(struct check *c, int i, bool read, bool both)
{
    const int64_t length = c->lengths[i];
    if (length == 0) {
        return SW_OK;
    }
    const sw_status st = sw_nvme_wait(c->store, c->tickets[i], 0);
    c->lengths[i] = 0;
    const unsigned char *at = c->segments[i][0].data;
    for (int64_t k = 0; st == SW_OK && read && k < length && c->wrong_at < 0; k++) {
        if (at[k] != byte_at(c->offsets[i] + k, both)) {
            c->wrong_at = c->offsets[i] + k;
        }
    }
    return st;
}

static sw_status begin_piece(struct check *c, int i, int64_t offset, int64_t length, bool read,
                             bool both)
{
    lay_out(c, i, offset, length);
    unsigned char *at = c->segments[i][0].data;
    if (read) {
        memset(at, 0, (size_t)length);
        return sw_nvme_begin_read(c->store, offset, c->segments[i], 2, &c->tickets[i]);
    }
    for (int64_t k = 0; k < length; k++) {
        at[k] = byte_at(offset + k, both);
    }
    return sw_nvme_begin_write(c->store, offset, c->segments[i], 2, &c->tickets[i]);
}

/* ---- passes ---- */

enum pass { WRITE_ALL, WRITE_STRETCHES, READ_FIRST, READ_BOTH };

/* The next piece of this pass from `at` on: moves *at to its start and returns its length, 0 at the
 * end. */
static int64_t next_piece(const struct check *c, enum pass pass, int64_t n, int64_t *at)
{
    const bool read = pass >= READ_FIRST;
    const int64_t *pieces = read ? read_pieces : write_pieces;
    const size_t n_pieces = read ? sizeof read_pieces / sizeof *read_pieces
                                 : sizeof write_pieces / sizeof *write_pieces;
    int64_t length = pieces[(size_t)n % n_pieces];
    if (pass == WRITE_STRETCHES) {
        if (*at / STRETCH % 2 == 0) {
            *at = (*at / STRETCH + 1) * STRETCH;
        }
        const int64_t left = STRETCH - *at % STRETCH;
        length = length < left ? length : left;
    }
    return length < c->bytes - *at ? length : *at < c->bytes ? c->bytes - *at : 0;
}

static sw_status run_pass(struct check *c, enum pass pass)
{
    const bool read = pass >= READ_FIRST, both = pass == WRITE_STRETCHES || pass == READ_BOTH;
    sw_status st = SW_OK;
    int64_t at = 0, length;
    for (int64_t n = 0; st == SW_OK && (length = next_piece(c, pass, n, &at)) > 0; n++) {
        const int i = (int)(n % IN_FLIGHT);
        st = end_piece(c, i, read, both);
        if (st == SW_OK) {
            st = begin_piece(c, i, at, length, read, both);
        }
        at += length;
    }
    for (int i = 0; i < IN_FLIGHT && st == SW_OK; i++) {
        st = end_piece(c, i, read, both);
    }
    return st;
}

static int report(const struct io_run *run, const struct check *c, const char *what, sw_status st)
{
    if (st < 0) {
        return cli_error(run->command, CLI_FAILED);
    }
    if (c->wrong_at >= 0) {
        return cli_fail(run->command, CLI_FAILED, "%s: byte %lld is wrong", what,
                        (long long)c->wrong_at);
    }
    printf("%-40s right\n", what);
    return -1;
}

static int run_passes(const struct io_run *run, struct check *c)
{
    static const struct {
        enum pass pass;
        const char *what;
    } passes[] = {{WRITE_ALL, "writing all in odd pieces"},
                  {READ_FIRST, "reading in other pieces"},
                  {WRITE_STRETCHES, "rewriting every second stretch"},
                  {READ_BOTH, "reading stretches and neighbours"}};
    int status = -1;
    for (size_t i = 0; i < sizeof passes / sizeof *passes && status < 0; i++) {
        status = report(run, c, passes[i].what, run_pass(c, passes[i].pass));
    }
    return status < 0 ? report(run, c, "making it durable", sw_nvme_flush(c->store)) : status;
}

static int run_reopened(const struct io_run *run, struct check *c)
{
    struct io_run again = *run;
    again.options.reopen = true;
    sw_nvme_close(c->store);
    c->store = NULL;
    sw_status st = io_open(&again, &c->store);
    st = st == SW_OK ? run_pass(c, READ_BOTH) : st;
    const int status = report(run, c, "reading after opening again", st);
    if (status >= 0 || run->options.checksum_bytes == 0) {
        return status;
    }
    return report(run, c, "checksums", sw_nvme_verify(c->store, NULL));
}

int io_verify(struct io_run *run)
{
    struct check c = {.bytes = run->bytes, .wrong_at = -1};
    bool enough = true;
    for (int i = 0; i < IN_FLIGHT; i++) {
        c.memory[i] = malloc(MOST_PIECE + 8);
        enough = enough && c.memory[i];
    }
    int status = enough ? -1 : cli_fail(run->command, CLI_FAILED, "out of memory");
    if (status < 0 && io_open(run, &c.store) < 0) {
        status = cli_error(run->command, CLI_REFUSED);
    }
    status = status < 0 ? run_passes(run, &c) : status;
    status = status < 0 ? run_reopened(run, &c) : status;
    sw_nvme_close(c.store);
    for (int i = 0; i < IN_FLIGHT; i++) {
        free(c.memory[i]);
    }
    io_remove(run);
    return status < 0 ? CLI_DONE : status;
}
