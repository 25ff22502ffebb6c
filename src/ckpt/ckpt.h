// SPDX-License-Identifier: Apache-2.0
// ckpt - checkpoints: the state that a run needs to resume, written by one or more ranks and read
// by any number. A checkpoint is a folder checkpoint-STEP of safetensors files and one
// manifest.json; docs/checkpoint.md has the format. Invariant: whatever ends a save (a kill, a full
// disk, a power loss), the folder holds the old complete checkpoint or the new one, and a partial
// one never looks complete. The room knows no engine: tensors come in through a callback, in
// pieces, and go out by name and box.
#pragma once

#include "base/base.h"
#include "json/json.h"
#include "layout/layout.h"
#include "tensor/tensor.h"

/* ---- one writer at a time ---- */

/* Lock of a folder of checkpoints. Writers hold it; readers do not. */
struct sw_ckpt_lock;
/*
 * sw_ckpt_acquire - lock a folder for writing, until release or the end of the process.
 *
 * Two holders in one process exclude each other, too. Child processes do not inherit the
 * descriptor.
 *
 * dir          created if it does not exist
 * wait_s       longest wait for a holder that is ending; 0: do not wait
 *
 * SW_E_ARG     another holder has the lock; names its host and process
 * SW_E_UNSUP   the file system (named) does not support locks
 */
sw_status sw_ckpt_acquire(const char *dir, double wait_s, struct sw_ckpt_lock **out);
/* NULL is a no-op. */
void sw_ckpt_release(struct sw_ckpt_lock *lock);
const char *sw_ckpt_lock_dir(const struct sw_ckpt_lock *lock);
/* Time that a job waits for its predecessor to end. */
#define SW_CKPT_WAIT_S 10.0

/* ---- saving ---- */

/* One box of one tensor that a writer holds. The boxes of all writers cover each tensor exactly
 * once. */
struct sw_ckpt_tensor {
    const char *param; /* "transformer.h.0.attn.c_attn.weight" */
    const char *kind; /* "master" (decoded fp32 weights), "exp_avg", "exp_avg_sq", "momentum", .. */
    enum sw_dtype dtype;
    struct sw_shape shape; /* shape of the whole tensor */
    struct sw_box box;
};

/* Elements [first, first + n) of the box of tensors[i_tensor], row-major, into dst in its dtype. */
typedef sw_status (*sw_ckpt_read_fn)(void *ctx, int64_t i_tensor, int64_t first, int64_t n,
                                     void *dst);
/* Most bytes per call of it; also all the memory that a save uses for tensors. */
enum { SW_CKPT_PIECE_BYTES = 1 << 20 };

struct sw_ckpt_scaler {
    double scale;
    int64_t iteration, last_overflow, hysteresis_left;
};

/* Metric that selects the best checkpoint, instead of the validation loss. */
struct sw_ckpt_metric {
    const char *name; /* NULL: there is none */
    double value;     /* NaN: not known */
    bool falls;       /* lower is better */
};

/* Everything beside tensors. Strings and config are borrowed. A schedule is a function of `applied`
 * and the configuration, so it has no state of its own. */
struct sw_ckpt_meta {
    int64_t step;    /* optimizer steps so far, skipped ones included; names the folder */
    int64_t applied; /* applied steps: the position of the schedule */
    int64_t samples; /* data cursor, in global samples */
    uint64_t seed;
    double val_loss; /* NaN: not known */
    struct sw_ckpt_metric metric;
    uint64_t fingerprint;   /* math fingerprint (docs/ARCHITECTURE.md) */
    const char *kernel_set; /* NULL: not told */
    const char *algorithms; /* a library's choices for matrix products; NULL: none, or not told */
    struct sw_ckpt_scaler scaler;
    const struct sw_json *config; /* an object: effective configuration; NULL: {} */
    const struct sw_json *data;   /* an object: record of the training data; NULL: not told */
    /* An object of the training that saved it, kept as it is; NULL: none. */
    const struct sw_json *training;
};

struct sw_ckpt_save_options {
    const struct sw_ckpt_lock *lock; /* lock of the folder of checkpoints */
    int keep_last; /* newest complete ones that stay, and the best besides; 0 = all */
};

/*
 * sw_ckpt_save - one writer's whole save: begin, write_part, commit.
 *
 * On failure the files written so far are removed, as far as possible. An old checkpoint that
 * cannot be deleted is named in the log; the next save tries again.
 *
 * SW_E_IO      names the path and the reason; older checkpoints are intact. "is saved, but": the
 *              new checkpoint is complete, but `latest` or `best` does not name it
 */
sw_status sw_ckpt_save(const struct sw_ckpt_save_options *options, const struct sw_ckpt_meta *meta,
                       const struct sw_ckpt_tensor *tensors, int64_t n_tensors,
                       sw_ckpt_read_fn read, void *ctx);

/* A save by several writers on a shared file system:
 *   1. Rank 0, which holds the lock, begins and gives the token to all ranks.
 *   2. Each rank writes its part, in parallel.
 *   3. When all have agreed that they succeeded, rank 0 commits.
 * Rank 0 drops a save that is abandoned; the next begin removes what dead runs left. The token is
 * new for each save, so that no two saves write to the same files. */
sw_status sw_ckpt_begin(const struct sw_ckpt_lock *lock, int64_t step, uint64_t *out_token);
sw_status sw_ckpt_write_part(const char *dir, int64_t step, uint64_t token, int rank,
                             const struct sw_ckpt_tensor *tensors, int64_t n_tensors,
                             sw_ckpt_read_fn read, void *ctx);
sw_status sw_ckpt_commit(const struct sw_ckpt_save_options *options,
                         const struct sw_ckpt_meta *meta, uint64_t token, int n_ranks);
void sw_ckpt_drop(const struct sw_ckpt_lock *lock, int64_t step, uint64_t token);

/* ---- loading ---- */

struct sw_ckpt; /* an open checkpoint; one thread at a time */

/*
 * sw_ckpt_open - open for reading.
 *
 * path         a folder of checkpoints (or its "/latest"): opens the newest one, and names older
 *              damaged ones in the log; its "/best": opens the one with the lowest validation loss;
 *              or a checkpoint itself
 *
 * SW_PENDING   the folder is not there or holds no checkpoint; *out is not set
 * SW_E_FORMAT  path is a checkpoint, or a folder of checkpoints whose newest one is damaged: says
 *              what is missing and names the newest readable one
 * SW_E_UNSUP   it requires a feature, or has a version, that this program does not know
 */
sw_status sw_ckpt_open(const char *path, struct sw_ckpt **out);
/* Opens the checkpoint that sw_ckpt_open(path) gave to another rank; `name` is its sw_ckpt_name. If
 * path is a checkpoint itself, opens that one. */
sw_status sw_ckpt_open_named(const char *path, const char *name, struct sw_ckpt **out);
void sw_ckpt_close(struct sw_ckpt *ckpt);

const char *sw_ckpt_path(const struct sw_ckpt *ckpt);
/* The last component of its path. */
const char *sw_ckpt_name(const struct sw_ckpt *ckpt);
const char *sw_ckpt_digest_name(const struct sw_ckpt *ckpt);

/* Identity of a checkpoint, by which ranks check that they opened the same one. */
struct sw_ckpt_identity {
    int64_t serial, step, samples;
    uint64_t manifest; /* hash of its text, which holds the digests of all files */
};
struct sw_ckpt_identity sw_ckpt_identity(const struct sw_ckpt *ckpt);
/* The metadata; lent until close. */
const struct sw_ckpt_meta *sw_ckpt_meta(const struct sw_ckpt *ckpt);

struct sw_ckpt_entry {
    const char *param, *kind;
    enum sw_dtype dtype;
    struct sw_shape shape;
};
int64_t sw_ckpt_n_tensors(const struct sw_ckpt *ckpt);
const struct sw_ckpt_entry *sw_ckpt_entry(const struct sw_ckpt *ckpt, int64_t i_tensor);
/* Index of a tensor; -1 if there is none. */
int64_t sw_ckpt_find(const struct sw_ckpt *ckpt, const char *param, const char *kind);

/*
 * sw_ckpt_read - read the elements of one box, whatever boxes they were written as.
 *
 * box          NULL: the whole tensor
 * dtype        of dst: the tensor's own, or any float when the tensor is one
 * dst          [elements of box] row-major
 */
sw_status sw_ckpt_read(struct sw_ckpt *ckpt, int64_t i_tensor, const struct sw_box *box,
                       enum sw_dtype dtype, void *dst);
/* Reads elements [first, first + n) of the flattened tensor. */
sw_status sw_ckpt_read_flat(struct sw_ckpt *ckpt, int64_t i_tensor, int64_t first, int64_t n,
                            enum sw_dtype dtype, void *dst);

/* Reads every byte and compares the digests. SW_E_FORMAT names the first file that differs. */
sw_status sw_ckpt_verify(const struct sw_ckpt *ckpt);

/*
 * sw_ckpt_verify_begin - verify files first, first + stride, .., on another thread.
 *
 * Ranks that share a checkpoint take first = rank, stride = ranks: each file is read once.
 *
 * ckpt         stays open, and may be read from, until wait
 * out          must be passed to sw_ckpt_verify_wait
 */
struct sw_ckpt_verification;
sw_status sw_ckpt_verify_begin(const struct sw_ckpt *ckpt, int64_t first, int64_t stride,
                               struct sw_ckpt_verification **out);
/* Waits for the result. stop: cancel, because the result is no longer needed. NULL gives SW_OK. */
sw_status sw_ckpt_verify_wait(struct sw_ckpt_verification *verification, bool stop);

/* ---- inspection ---- */

struct sw_ckpt_summary {
    const char *name, *path;
    int64_t step;
    bool complete;
    const char *problem; /* why it is incomplete or unreadable by this program; else NULL */
    /* the fields below are set for complete checkpoints only */
    int64_t serial; /* counts the saves into this folder: the newest has the highest */
    int64_t bytes, n_writers;
    uint64_t fingerprint;
    double val_loss;
    struct sw_ckpt_metric metric;
};
struct sw_ckpt_list {
    struct sw_ckpt_summary *items; /* newest first; incomplete ones at the end */
    int64_t n_items;
    struct sw_arena arena;
};
/* Lists the checkpoints of a folder. The list is empty if the folder does not exist. */
sw_status sw_ckpt_list(const char *dir, struct sw_ckpt_list *out);
void sw_ckpt_list_fini(struct sw_ckpt_list *list);
/* The damaged checkpoint of the highest step, unless the newest readable one has a higher step;
 * NULL = none. A committed folder is damaged if its manifest cannot be read. */
const struct sw_ckpt_summary *sw_ckpt_newest_damaged(const struct sw_ckpt_list *list);
/* Renames a checkpoint to PATH.set-aside, or that name with a number, which readers ignore. Writes
 * the new name to out. The caller holds the lock. */
sw_status sw_ckpt_set_aside(const char *path, struct sw_str *out);

enum sw_ckpt_relation { SW_CKPT_BOTH, SW_CKPT_ONLY_FIRST, SW_CKPT_ONLY_SECOND, SW_CKPT_RESHAPED };
struct sw_ckpt_difference {
    struct sw_ckpt_entry entry; /* from the first checkpoint, if it has the tensor */
    enum sw_ckpt_relation relation;
    /* SW_CKPT_BOTH only */
    int64_t n_different; /* elements; two NaN count as equal */
    double max_abs;      /* infinite if only one of two elements is NaN */
};
struct sw_ckpt_diff {
    struct sw_ckpt_difference *items; /* every tensor of both; those of the first come first */
    int64_t n_items;
};
/* Compares two checkpoints by streaming both. Entries borrow from the two checkpoints. */
sw_status sw_ckpt_diff(struct sw_ckpt *first, struct sw_ckpt *second, struct sw_ckpt_diff *out);
void sw_ckpt_diff_fini(struct sw_ckpt_diff *diff);
