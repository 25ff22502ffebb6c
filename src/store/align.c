// SPDX-License-Identifier: Apache-2.0
// Alignment requirements of O_DIRECT. Where the kernel can report them (statx, STATX_DIOALIGN), it
// is asked for the alignment of memory and of offsets. Elsewhere one read at each of 512, 4096 and
// the file system's block size finds the smallest that works. In addition, offsets are kept to
// whole file system blocks: ext4 and XFS serialize direct writes of partial blocks with all other
// writes of the file.
#include "store/private.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/stat.h>
#include <stdint.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { SMALLEST = 512, LARGEST = 65536 };

static bool is_power_of_two(size_t value)
{
    return value != 0 && (value & (value - 1)) == 0;
}

/* Reads at an offset that is a multiple of `align`, but of no larger power of two. Reading past the
 * end also counts as success. */
static bool takes(int fd, char *memory, size_t align)
{
    ssize_t n;
    do {
        n = pread(fd, memory + align, align, (off_t)align);
    } while (n < 0 && errno == EINTR);
    return n >= 0;
}

static size_t probe(int fd, size_t block)
{
    char *memory = sw_alloc_aligned("store", LARGEST, 2 * (size_t)LARGEST);
    size_t found = 0;
    if (memory) {
        const size_t tries[] = {SMALLEST, 4096, block};
        for (size_t i = 0; i < SW_LEN(tries) && !found; i++) {
            found = takes(fd, memory, tries[i]) ? tries[i] : 0;
        }
        sw_free(memory);
    }
    return found;
}

/* Returns false if the kernel cannot report the alignment. */
static bool ask(int fd, struct alignment *out)
{
#if defined(STATX_DIOALIGN)
    struct statx info;
    memset(&info, 0, sizeof info);
    if (statx(fd, "", AT_EMPTY_PATH, STATX_DIOALIGN, &info) != 0 ||
        !(info.stx_mask & STATX_DIOALIGN)) {
        return false;
    }
    out->offset = info.stx_dio_offset_align;
    out->memory = info.stx_dio_mem_align;
    out->direct = is_power_of_two(out->offset) && is_power_of_two(out->memory);
    return true;
#else
    (void)fd;
    (void)out;
    return false;
#endif
}

void sw_store_alignment(int fd, const char *path, struct alignment *out)
{
    struct stat info;
    size_t block = 4096;
    *out = (struct alignment){.direct = false, .offset = 1, .memory = 1};
    if (fstat(fd, &info) == 0 && is_power_of_two((size_t)info.st_blksize) &&
        info.st_blksize >= SMALLEST && info.st_blksize <= LARGEST) {
        block = (size_t)info.st_blksize;
    }
    if (!ask(fd, out)) {
        const size_t found = probe(fd, block);
        *out = (struct alignment){.direct = found != 0, .offset = found, .memory = found};
    }
    if (!out->direct || out->offset > LARGEST) {
        *out = (struct alignment){.direct = false, .offset = 1, .memory = 1};
        return;
    }
    sw_log(SW_LOG_DEBUG, "%s: O_DIRECT at offsets of %zu, memory of %zu, blocks of %zu", path,
           out->offset, out->memory, block);
    out->offset = out->offset > block ? out->offset : block;
}
