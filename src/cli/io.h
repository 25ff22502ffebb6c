// SPDX-License-Identifier: Apache-2.0
// What the parts of "spillway io" share: how the store is to be opened, and on which files.
#pragma once

#include "cli/cli.h"
#include "spillway/nvme.h"

struct io_run {
    const struct command *command;
    struct words paths;   /* files that do not exist yet */
    struct words folders; /* as given */
    int64_t bytes, loops;
    struct sw_nvme_options options;
    bool json, keep;
    bool made; /* the files are ours: only then are they removed */
};

double io_now_s(void);
/* "1.0 MiB" and so on; returns buf. */
const char *io_size(char *buf, size_t cap, int64_t bytes);
/* New files, but with options.reopen. */
sw_status io_open(struct io_run *run, sw_nvme **out);
/* Those that were made, unless they are to be kept. */
void io_remove(const struct io_run *run);

/* Exit statuses. */
int io_bench(struct io_run *run);
int io_tune(struct io_run *run);
int io_verify(struct io_run *run);
