// SPDX-License-Identifier: Apache-2.0
// Declarations that the files of "spillway io" share: the options of the store, and its files.
#pragma once

#include "cli/cli.h"
#include "spillway/nvme.h"

struct io_run {
    const struct command *command;
    struct words paths;   /* paths of the files to make */
    struct words folders; /* the given folders or files */
    int64_t bytes, loops;
    struct sw_nvme_options options;
    bool json, keep;
    bool made; /* the files were made here and may be removed */
};

double io_now_s(void);
/* Formats a size as "1.0 MiB"; returns buf. */
const char *io_size(char *buf, size_t cap, int64_t bytes);
/* Opens the store on new files, or on existing ones if options.reopen. */
sw_status io_open(struct io_run *run, sw_nvme **out);
/* Removes the files that were made, unless they are to be kept. */
void io_remove(const struct io_run *run);

/* The verbs; each returns the exit status. */
int io_bench(struct io_run *run);
int io_tune(struct io_run *run);
int io_verify(struct io_run *run);
