// SPDX-License-Identifier: Apache-2.0
// libs - where libraries of GPU vendors are: of the products here, of the report of `doctor`.
#pragma once

#include <stdbool.h>
#include <stddef.h>

/*
 * sw_gpu_find_library - the file of a library, for dlopen.
 *
 * name    file name: "libcublasLt.so.13"
 * path    where it is, absolute where that is known
 *
 * Looks in the folders of SPILLWAY_GPU_LIBS (apart by ':'), where the system looks (ldconfig,
 * LD_LIBRARY_PATH), in the folders of CUDA and ROCm, and among the packages of Python
 * (site-packages/nvidia/.../lib), also of an environment that is active, or whose python3 is the
 * first in PATH. False: nowhere.
 */
bool sw_gpu_find_library(const char *name, char *path, size_t cap);

/* The same in the folders of SPILLWAY_GPU_LIBS alone. */
bool sw_gpu_find_named(const char *name, char *path, size_t cap);
