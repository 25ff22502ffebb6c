// SPDX-License-Identifier: Apache-2.0
// A small training state for the tests of checkpoints: tensors of odd shapes whose every element is
// a function of (seed, tensor, place), so that any box read back can be checked without a stored
// copy.
#pragma once

#include "ckpt/ckpt.h"

/* A new empty folder, in memory where the machine has that. path [64]. */
void make_root(char *path);
void remove_tree(const char *path);

/* Saves the state of `seed` by n_writers, each holding a flat slice of every tensor. */
sw_status save_state(const char *dir, int64_t step, uint64_t seed, int n_writers, int keep_last,
                     double val_loss);
/* NULL when ckpt holds exactly the state of its own seed, whole and in boxes; else what is
 * wrong. */
const char *check_state(struct sw_ckpt *ckpt);
/* Opens the newest of dir: its step when its contents are right and verified, 0 when there is none;
 * else -1, and a message is printed. */
int64_t newest_step(const char *dir);
/* Entries of a folder that are leftovers of a save. */
int count_leftovers(const char *dir);
