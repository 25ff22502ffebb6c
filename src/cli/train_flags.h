// SPDX-License-Identifier: Apache-2.0
// The flags of "spillway train". "spillway plan" takes the same, so that it plans exactly what
// would be trained.
#pragma once

#include "cli/cli.h"
#include "cli/model_flags.h"
#include "spillway/train.h"

enum { CLI_TRAIN_FLAGS = 96, CLI_PATH_CAP = 4096 };

struct train_flags {
    struct sw_train_options o;
    struct task_flags task;
    struct auto_flags auto_;
    struct words data, data_weights, val_data, sets, rates;
    double *weights; /* [data_weights.n] owned */
    const char *dtype, *export, *device, *device_memory, *host_memory, *nvme_space, *trace,
        *trace_steps, *quantize;
    double label_smoothing, epochs;   /* -1 = not given */
    int64_t seed, threads, log_every; /* -1 = not given; also for o.steps */
    char *owned[12];                  /* edits of the configuration */
};

void cli_train_init(struct train_flags *flags);
/* Writes the table of flags into out [CLI_TRAIN_FLAGS]; returns the number of flags. */
int cli_train_table(struct train_flags *flags, struct flag *out);
/* Completes flags.o after parsing; flags that stand for configuration keys become edits. Returns -1
 * to go on, else the exit status. */
int cli_train_resolve(const struct command *command, struct train_flags *flags);
void cli_train_fini(struct train_flags *flags);
