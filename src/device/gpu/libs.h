// SPDX-License-Identifier: Apache-2.0
// libs - finds libraries of GPU vendors, for the products here and for the report of `doctor`.
#pragma once

#include <stdbool.h>
#include <stddef.h>

/*
 * sw_gpu_find_library - finds the file of a library, for dlopen.
 *
 * name    file name: "libcublasLt.so.13"
 * path    result, absolute if that is known
 *
 * Looks in the folders of SPILLWAY_GPU_LIBS (separated by ':'), in the system's search path
 * (ldconfig, LD_LIBRARY_PATH), in the folders of CUDA and ROCm, and in Python packages
 * (site-packages/nvidia/.../lib) of an active environment or of the first python3 in PATH. False:
 * not
 * found.
 */
bool sw_gpu_find_library(const char *name, char *path, size_t cap);

/* Looks only in the folders of SPILLWAY_GPU_LIBS. */
bool sw_gpu_find_named(const char *name, char *path, size_t cap);
