// SPDX-License-Identifier: Apache-2.0
// Verification of a checkpoint's bytes: whole files are read once from begin to end, on a thread
// beside the reader of the tensors.
#include "ckpt/private.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { PIECE_BYTES = 1 << 20 };

struct sw_ckpt_verification {
    const struct sw_ckpt *ckpt;
    int64_t first, stride;
    pthread_t thread;
    bool has_thread;
    atomic_bool stop;
    void *piece; /* [PIECE_BYTES] */
    sw_status status;
    char message[1024]; /* message of the failure, as error records belong to threads */
};

static sw_status digest_bytes(const struct sw_ckpt_verification *v, int64_t i_file, int fd,
                              struct sw_digest *digest)
{
    for (int64_t left = v->ckpt->manifest.files[i_file].bytes; left > 0;) {
        const ssize_t n = read(fd, v->piece, (size_t)sw_min_i64(PIECE_BYTES, left));
        if (n < 0 && errno == EINTR) {
            continue;
        }
        if (n <= 0) {
            return sw_ckpt_fail_file(v->ckpt, i_file,
                                     n < 0 ? strerror(errno) : "it became shorter");
        }
        if (atomic_load(&v->stop)) {
            return SW_FAIL(SW_E_STOP, "the verification was stopped");
        }
        sw_digest_update(digest, v->piece, (size_t)n);
        left -= n;
    }
    return SW_OK;
}

static sw_status verify_file(const struct sw_ckpt_verification *v, int64_t i_file)
{
    const struct ckpt_manifest *m = &v->ckpt->manifest;
    const struct ckpt_file *file = &m->files[i_file];
    struct sw_digest *digest;
    char hex[33];
    int fd;
    SW_TRY(sw_ckpt_open_file(v->ckpt, i_file, &fd));
    sw_status st = sw_digest_open_named(m->digest_name, &digest);
    if (st >= 0) {
        posix_fadvise(fd, 0, 0, POSIX_FADV_SEQUENTIAL);
        st = digest_bytes(v, i_file, fd, digest);
        sw_digest_hex(digest, hex);
        sw_digest_close(digest);
    }
    close(fd);
    SW_TRY(st);
    if (strcmp(hex, file->digest) != 0) {
        return SW_FAIL(SW_E_FORMAT, "%s/%s is damaged: %s %s, the manifest says %.64s",
                       v->ckpt->path, file->name, m->digest_name, hex, file->digest);
    }
    return SW_OK;
}

static sw_status verify_files(const struct sw_ckpt_verification *v)
{
    for (int64_t i = v->first; i < v->ckpt->manifest.n_files; i += v->stride) {
        SW_TRY(verify_file(v, i));
    }
    return SW_OK;
}

static void *verify_main(void *arg)
{
    struct sw_ckpt_verification *v = arg;
    v->status = verify_files(v);
    if (v->status < 0) {
        snprintf(v->message, sizeof(v->message), "%s", sw_error_message());
    }
    return NULL;
}

static sw_status make(const struct sw_ckpt *ckpt, int64_t first, int64_t stride,
                      struct sw_ckpt_verification **out)
{
    SW_ASSERT(first >= 0 && stride > 0);
    struct sw_ckpt_verification *v = sw_alloc_zero("checkpoint", 1, sizeof(*v));
    SW_TRY_ALLOC(v, "the verification of a checkpoint");
    v->ckpt = ckpt;
    v->first = first;
    v->stride = stride;
    v->piece = sw_alloc("checkpoint", PIECE_BYTES);
    if (!v->piece) {
        sw_free(v);
        return SW_FAIL(SW_E_NOMEM, "out of host memory for the verification of a checkpoint");
    }
    *out = v;
    return SW_OK;
}

sw_status sw_ckpt_verify_begin(const struct sw_ckpt *ckpt, int64_t first, int64_t stride,
                               struct sw_ckpt_verification **out)
{
    struct sw_ckpt_verification *v;
    SW_TRY(make(ckpt, first, stride, &v));
    const int error = sw_thread_start(&v->thread, verify_main, v);
    if (error) {
        sw_ckpt_verify_wait(v, true);
        return SW_FAIL(SW_E_IO, "no thread for the verification of a checkpoint: %s",
                       strerror(error));
    }
    v->has_thread = true;
    *out = v;
    return SW_OK;
}

sw_status sw_ckpt_verify_wait(struct sw_ckpt_verification *v, bool stop)
{
    if (!v) {
        return SW_OK;
    }
    if (v->has_thread) {
        atomic_store(&v->stop, stop);
        sw_work_at("comparing digests", 0, 0);
        pthread_join(v->thread, NULL);
        sw_work_end();
    }
    const sw_status st = v->status < 0 && !stop ? SW_FAIL(v->status, "%s", v->message) : SW_OK;
    sw_free(v->piece);
    sw_free(v);
    return st;
}

sw_status sw_ckpt_verify(const struct sw_ckpt *ckpt)
{
    struct sw_ckpt_verification *v;
    SW_TRY(make(ckpt, 0, 1, &v));
    sw_work_at("comparing digests", 0, 0);
    const sw_status st = verify_files(v);
    sw_work_end();
    sw_ckpt_verify_wait(v, true);
    SW_TRY(st);
    return SW_OK;
}
