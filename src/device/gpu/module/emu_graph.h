// SPDX-License-Identifier: Apache-2.0
// emu_graph - stand-ins for the graph calls of CUDA and HIP. They check what the vendors forbid:
// calls that may not be captured, a capture that another thread ends, and a graph on the wrong
// device or after its release. A forbidden call ends in a code of CUDA's numbers, and the capture
// is then invalid.
#pragma once

#include "device/gpu/module/emu_stream.h"

enum emu_code {
    EMU_INVALID = 1,
    EMU_NO_MEMORY = 2,
    EMU_WRONG_NODE = 3,
    EMU_BAD_HANDLE = 400,
    EMU_NOT_CAPTURABLE = 900,
    EMU_CAPTURE_INVALID = 901,
    EMU_NOT_CAPTURED = 904,
    EMU_WRONG_THREAD = 908,
};
const char *emu_describe(int code);

/* Refuses a call that may not be captured; 0 = the stream is not captured. */
int emu_forbid(struct emu_stream *stream);
/* Refuses a call while the calling thread captures any stream. */
int emu_forbid_here(void);

int emu_capture_begin(int device, struct emu_stream *stream);
int emu_capture_end(int device, struct emu_stream *stream, void **out, int *n_nodes);
int emu_replay(int device, struct emu_stream *stream, void *graph);
int emu_graph_release(int device, void *graph);
