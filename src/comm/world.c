// SPDX-License-Identifier: Apache-2.0
// Determines whether this process is one of several that a launcher started, and how they
// communicate: through the module for the launcher's MPI, or TCP. The environment decides; an MPI
// is never started unless a launcher of it was used.
#include <ctype.h>
#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "comm/mpi/mpi.h"

static const struct flavour {
    const char *name, *file;
    const char *package;       /* the Debian package that the module is built with */
    const char *size_names[2]; /* environment variables with the number of ranks */
} flavours[] = {
    {"Open MPI", "spillway_openmpi.so", "libopenmpi-dev", {"OMPI_COMM_WORLD_SIZE", NULL}},
    {"MPICH", "spillway_mpich.so", "libmpich-dev", {"PMI_SIZE", "MPI_LOCALNRANKS"}},
};

/* A positive number from the environment, else 0. */
static int number_of(const char *name)
{
    const char *text = name ? getenv(name) : NULL;
    return text ? atoi(text) : 0;
}

/* srun gives the number of tasks; its PMI type tells which MPI can be used. */
static const struct flavour *find_slurm(int *out_size)
{
    const int size = number_of("SLURM_STEP_NUM_TASKS");
    if (size < 2 || !getenv("SLURM_PROCID")) {
        return NULL;
    }
    *out_size = size;
    return getenv("PMIX_RANK") || !getenv("PMI_RANK") ? &flavours[0] : &flavours[1];
}

static const struct flavour *find_flavour(int *out_size)
{
    for (size_t i = 0; i < SW_LEN(flavours); i++) {
        for (int k = 0; k < 2; k++) {
            *out_size = number_of(flavours[i].size_names[k]);
            if (*out_size > 0) {
                return &flavours[i];
            }
        }
    }
    return find_slurm(out_size);
}

static sw_status load(const struct flavour *flavour, const struct sw_mpi_module **out)
{
    char path[PATH_MAX + 256];
    const struct sw_mpi_module *(*entry)(void) = NULL;
    if (!sw_module_find(flavour->file, path, sizeof path)) {
        return SW_FAIL(SW_E_UNSUP,
                       "there is no %s; install %s and build again, or start the ranks by "
                       "\"spillway launch\", which needs no MPI",
                       path, flavour->package);
    }
    /* plug-ins of the MPI look up its symbols globally */
    void *handle = dlopen(path, RTLD_NOW | RTLD_GLOBAL);
    if (handle) {
        *(void **)&entry = dlsym(handle, "sw_mpi_module");
    }
    if (!entry) {
        const char *why = dlerror();
        return SW_FAIL(SW_E_UNSUP, "%s: %s", path, why ? why : "it has no sw_mpi_module");
    }
    *out = entry();
    if ((*out)->version != SW_MPI_MODULE_VERSION) {
        return SW_FAIL(SW_E_UNSUP, "%s: version %d, wanted %d", path, (*out)->version,
                       SW_MPI_MODULE_VERSION);
    }
    return SW_OK;
}

/* A variable that has to be a decimal number of that range. */
static sw_status read_number(const char *name, int least, int most, int *out)
{
    const char *text = getenv(name);
    char *end = NULL;
    errno = 0;
    const long value = text ? strtol(text, &end, 10) : 0;
    if (!text || !isdigit((unsigned char)*text) || *end || errno != 0 || value < least ||
        value > most) {
        return SW_FAIL(SW_E_CONFIG, "%s is \"%s\": wanted a number from %d to %d", name,
                       text ? text : "", least, most);
    }
    *out = (int)value;
    return SW_OK;
}

static sw_status read_world(int *out_size)
{
    int rank;
    *out_size = 1;
    if (!getenv("WORLD_SIZE")) {
        return SW_OK;
    }
    SW_TRY(read_number("WORLD_SIZE", 1, INT_MAX, out_size));
    return getenv("RANK") ? read_number("RANK", 0, *out_size - 1, &rank) : SW_OK;
}

/* Launchers that only start processes, which then find each other. */
static sw_status open_tcp(int size, double deadline_s, struct sw_transport *out)
{
    const char *host = getenv("MASTER_ADDR");
    int rank = 0, port = 0;
    if (!getenv("RANK") || !host || !getenv("MASTER_PORT")) {
        return SW_FAIL(
            SW_E_CONFIG,
            "WORLD_SIZE is %d, so RANK, MASTER_ADDR and MASTER_PORT are required; found RANK %s, "
            "MASTER_ADDR %s, MASTER_PORT %s",
            size, getenv("RANK") ? getenv("RANK") : "unset", host ? host : "unset",
            getenv("MASTER_PORT") ? getenv("MASTER_PORT") : "unset");
    }
    SW_TRY(read_number("RANK", 0, size - 1, &rank));
    SW_TRY(read_number("MASTER_PORT", 1, 65535, &port));
    struct sw_job_secret secret;
    SW_TRY(sw_job_secret_read(getenv("SPILLWAY_JOB_SECRET"), getenv("SPILLWAY_JOB_SECRET_FILE"),
                              getenv("SPILLWAY_JOB_ID"), &secret));
    const struct sw_tcp_options options = {.rank = rank,
                                           .size = size,
                                           .host = host,
                                           .port = port,
                                           .deadline_s = deadline_s,
                                           .secret = secret.known ? secret.key : NULL,
                                           .job = secret.job};
    if (!secret.known && options.rank == 0) {
        sw_log(
            SW_LOG_WARN,
            "SPILLWAY_JOB_SECRET is not set: ranks meet on loopback only, where any user of this "
            "machine could take part");
    }
    return sw_tcp_open(&options, out);
}

static sw_status open_mpi(const struct flavour *flavour, int size, double deadline_s,
                          struct sw_transport *out)
{
    const struct sw_mpi_module *module = NULL;
    const sw_status st = load(flavour, &module);
    if (st < 0) {
        return sw_fail_prefix(
            st,
            "started as one of %d processes of %s, which this build does not support; "
            "SPILLWAY_MPI=off trains each alone",
            size, flavour->name);
    }
    SW_TRY(sw_mpi_open(module, deadline_s, out));
    if (out->size > 1) {
        return SW_OK;
    }
    /* otherwise each would train alone, and write into the same folder */
    out->close(out->ctx, false);
    return SW_FAIL(
        SW_E_UNSUP,
        "started as one of %d processes, but %s finds this one alone; give srun the --mpi "
        "that it was built for (pmix, pmi2), clear the environment of another mpirun, or set "
        "SPILLWAY_MPI=off to train each alone",
        size, flavour->name);
}

sw_status sw_world_open(double deadline_s, sw_comm **out)
{
    const char *choice = getenv("SPILLWAY_MPI");
    const bool off = choice && strcmp(choice, "off") == 0;
    int size = 0;
    const struct flavour *flavour = off ? NULL : find_flavour(&size);
    struct sw_transport transport;
    *out = NULL;
    if (flavour && size > 1) {
        SW_TRY(open_mpi(flavour, size, deadline_s, &transport));
    } else {
        SW_TRY(read_world(&size));
        if (size == 1) {
            return SW_OK;
        }
        SW_TRY(open_tcp(size, deadline_s, &transport));
    }
    const sw_status opened = sw_comm_open(&transport, out);
    if (opened < 0) {
        transport.close(transport.ctx, true);
    }
    return opened;
}

bool sw_world_is_mpi(void)
{
    int size = 0;
    return find_flavour(&size) != NULL;
}

sw_status sw_world_text(char **out_text)
{
    struct sw_str text = {0};
    for (size_t i = 0; i < SW_LEN(flavours); i++) {
        char path[PATH_MAX + 256];
        const bool found = sw_module_find(flavours[i].file, path, sizeof path);
        if (found) {
            sw_str_printf(&text, "✓ %s\n", flavours[i].name);
        } else {
            sw_str_printf(&text,
                          "✗ %-9s no ranks under its mpirun: there is no %s (apt-get install %s, "
                          "build again)\n",
                          flavours[i].name, flavours[i].file, flavours[i].package);
        }
    }
    if (text.failed) {
        sw_str_fini(&text);
        return SW_FAIL(SW_E_NOMEM, "out of host memory for a report");
    }
    *out_text = text.ptr;
    return SW_OK;
}
