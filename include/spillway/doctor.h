// SPDX-License-Identifier: Apache-2.0
// Capabilities of this machine and this build. Only sw_doctor_cluster and sw_doctor_mesh_text
// are collective.
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "spillway/comm.h"
#include "spillway/engine.h"
#include "spillway/status.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Measures the machine for a few seconds and reports. n_threads 0 = all. Free *out with
 * sw_text_free. */
SW_API sw_status sw_doctor_text(int n_threads, char **out);

/*
 * sw_doctor_mesh_text - the mesh of a configuration: ranks along each axis, and the coordinates of
 * each rank. Of ranks that a launcher started it has the hosts, too.
 *
 * ranks        0 = those that a launcher started, or one; then it is collective
 * out          the caller's: sw_text_free; empty on ranks above 0
 *
 * SW_E_CONFIG  the sizes do not make up the ranks
 *
 * Other errors are those of sw_world_open.
 */
SW_API sw_status sw_doctor_mesh_text(const struct sw_engine_config *config, int ranks, char **out);

/* Options for measuring a cluster. */
struct sw_doctor_cluster {
    const char *path;   /* file to write, in the format of docs/clusters.md */
    const char *device; /* as for `spillway train --device`; NULL = the configuration's default */
    const char *disk;   /* folder that offloading would use; NULL = the cluster has no disks */
    const char *model;  /* model whose kernels are timed; NULL = gpt2 */
    int64_t seq_len;    /* tokens of its sequences; 0 = the model's */
    sw_comm *comm;      /* ranks that measure together; NULL = those that a launcher started */
};
/*
 * sw_doctor_cluster - measures this machine, or all hosts of a started job, as a cluster.
 *
 * It takes some seconds. Each rank stands for a device, and each host for a node. Collective.
 *
 * out_wrote    true on rank 0, which writes the file
 *
 * SW_E_CONFIG  hosts have different numbers of ranks, or ranks do not fill one host after the other
 * SW_E_UNSUP   the device is an emulated or simulated one
 *
 * Other errors are those of sw_initialize and sw_world_open.
 */
SW_API sw_status sw_doctor_cluster(const struct sw_doctor_cluster *options, bool *out_wrote);

/* Model families that are built, one line each: model_type, class, presets. Free *out with
 * sw_text_free. */
SW_API sw_status sw_models_text(char **out);

#ifdef __cplusplus
}
#endif
