// SPDX-License-Identifier: Apache-2.0
// The store keeps files on fast disks: requests, tickets, alignment, checksums, over the backends
// uring/, posix/ and fault/. The public header is the room's interface. Invariant: a request ends
// with all of its bytes right, or with an error that names them.
#pragma once

#include "base/base.h"
#include "spillway/nvme.h"
