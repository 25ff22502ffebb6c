// SPDX-License-Identifier: Apache-2.0
// Declarations shared by the files of ckpt: names on disk, system calls with fault points, the
// manifest in memory.
#pragma once

#include <limits.h>

#include "ckpt/ckpt.h"

/* ---- names ---- */

#define CKPT_MANIFEST "manifest.json"
#define CKPT_PREFIX "checkpoint-"
#define CKPT_UNFINISHED ".tmp" /* being written: "checkpoint-STEP.TOKEN.tmp" */
#define CKPT_RETIRED ".old"    /* being deleted, or waiting for its successor to take its name */

/* Upper limit of all counts in a checkpoint. Every JSON reader represents them exactly, and a sum
 * of two does not overflow. */
#define CKPT_MOST (INT64_C(1) << 53)

/* "dir/checkpoint-STEP" and suffix into path[PATH_MAX]. SW_E_IO when it is too long. */
sw_status sw_ckpt_folder(const char *dir, int64_t step, const char *suffix, char *path);
/* "dir/checkpoint-STEP.TOKEN.tmp" into path[PATH_MAX]. */
sw_status sw_ckpt_unfinished(const char *dir, int64_t step, uint64_t token, char *path);
/* "dir/name" into path[PATH_MAX]. */
sw_status sw_ckpt_join(const char *dir, const char *name, char *path);
/* The step of "checkpoint-STEP" + suffix, as sw_ckpt_folder writes it; false for any other name. */
bool sw_ckpt_parse_name(const char *name, const char *suffix, int64_t *out_step);
/* Whether this is the name of an unfinished checkpoint, with a token, or without one as in older
 * versions. */
bool sw_ckpt_is_unfinished(const char *name);

/* ---- disk.c: fault points mkdir, write, fsync, rename, unlink ---- */

/* mkdir -p, each new name made durable. */
sw_status sw_ckpt_make_folders(const char *path);
/* A new, empty folder. */
sw_status sw_ckpt_make_folder(const char *path);
sw_status sw_ckpt_sync_folder(const char *path);
sw_status sw_ckpt_rename(const char *from, const char *to);
/* Writes all of it; `path` is for messages. */
sw_status sw_ckpt_write(int fd, const char *path, const void *data, size_t len);
sw_status sw_ckpt_sync(int fd, const char *path);
sw_status sw_ckpt_unlink(const char *path);
/* Removes a file, or a folder with its content. The manifest goes first, so that a partly removed
 * checkpoint never looks complete. */
sw_status sw_ckpt_remove(const char *path);
bool sw_ckpt_exists(const char *path);
/* Names in a folder, without "." and "..", in byte order. */
sw_status sw_ckpt_names(const char *path, struct sw_arena *arena, const char ***out,
                        int64_t *out_n);

/* ---- manifest.c ---- */

struct ckpt_file {
    const char *name;
    int64_t bytes;
    const char *digest; /* hexadecimal */
};
struct ckpt_piece {
    struct sw_box box;
    int64_t i_file, offset; /* file, and offset of the first byte in it */
    const char *key;        /* in the file's header */
};
struct ckpt_stored {
    struct sw_ckpt_entry entry;
    struct ckpt_piece *pieces;
    int64_t n_pieces;
};
struct ckpt_manifest {
    int64_t serial, n_writers, total_bytes;
    uint64_t hash; /* hash of its text */
    struct sw_ckpt_meta meta;
    const char *digest_name;
    struct ckpt_file *files;
    int64_t n_files;
    struct ckpt_stored *tensors; /* sorted by (param, kind) */
    int64_t n_tensors;
    struct sw_arena arena;
    struct sw_json_doc *doc; /* owns the strings */
};

/* Writes folder/manifest.json durably, from meta and the part lists of all ranks in `folder`. Then
 * removes the part lists. */
sw_status sw_ckpt_manifest_write(const char *folder, const struct sw_ckpt_meta *meta,
                                 int64_t serial, int n_ranks);
/*
 * Reads and checks the manifest. Checks that every file it names exists with the right size.
 *
 * SW_E_FORMAT, SW_E_IO  the checkpoint is not complete
 * SW_E_UNSUP            the checkpoint is newer than this program; only out->serial and
 *                       out->meta.step are set
 */
sw_status sw_ckpt_manifest_read(const char *folder, struct ckpt_manifest *out);
void sw_ckpt_manifest_fini(struct ckpt_manifest *manifest);
int64_t sw_ckpt_manifest_find(const struct ckpt_manifest *manifest, const char *param,
                              const char *kind);
/* Name of a file of one rank's part. */
void sw_ckpt_part_name(int rank, const char *extension, char *buf, size_t cap);

/* Sorts the pieces by their start on the first axis. SW_E_FORMAT, which names `where`: the pieces
 * do not cover each element of the tensor exactly once. */
sw_status sw_ckpt_check_cover(const char *where, struct ckpt_stored *tensor);

/* The boxes, as arrays "start" and "dims" of a JSON object. */
sw_status sw_ckpt_put_i64s(struct sw_json_doc *doc, struct sw_json *object, const char *key,
                           const int64_t *values, int n);

/* ---- read.c ---- */

struct sw_ckpt {
    char *path;
    int folder; /* open descriptor, so that files are found even if the name is reused */
    struct ckpt_manifest manifest;
    int *fds; /* [n_files]; -1: not opened yet */
    struct {
        unsigned char *mem; /* [WINDOW_BYTES] */
        int64_t i_file, start, len;
    } window;
};
/* Opens a separate descriptor for one data file. */
sw_status sw_ckpt_open_file(const struct sw_ckpt *ckpt, int64_t i_file, int *out_fd);
sw_status sw_ckpt_fail_file(const struct sw_ckpt *ckpt, int64_t i_file, const char *why);

/* ---- scan.c ---- */

/* Cleans a folder before a save: removes files that dead runs left, and renames a retired
 * checkpoint back if its successor was never completed. Logs both. The caller holds the lock. */
sw_status sw_ckpt_heal(const char *dir);
/* The readable checkpoint with the best metric or validation loss; the newest among equal ones.
 * NULL if none has a value. */
const struct sw_ckpt_summary *sw_ckpt_best(const struct sw_ckpt_list *list);
