#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# gpu_compile.sh LOG COMMAND..: compiles, and keeps what the compiler says in LOG: among the warnings,
# which are shown, the registers of each kernel.
log=$1
shift
if "$@" >"$log" 2>&1; then
    grep -i "warning" "$log" | grep -v "kernel-resource-usage" >&2
    exit 0
fi
cat "$log" >&2
rm -f "$log"
exit 1
