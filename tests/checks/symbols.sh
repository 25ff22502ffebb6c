#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# symbols.sh <libspillway.so> <libspillway.a>: the shared library exports only sw_ names; the archive
# defines no other global name; and objects keep no writable data, except what belongs to a process:
# state belongs to handles, so that several ranks can live in one process.
set -eu
shared=$1
static=$2
bad=0

exported=$(nm -D --defined-only "$shared" | awk '{ print $NF }' | sed 's/@.*//')
[ -n "$exported" ] || { echo "$shared exports nothing"; bad=1; }
foreign=$(printf '%s\n' "$exported" | grep -v '^sw_' || true)
if [ -n "$foreign" ]; then
    printf '%s\n' "$foreign" | sed "s|^|exported without sw_: |"
    bad=1
fi

foreign=$(nm -g --defined-only "$static" | awk 'NF == 3 { print $3 }' | grep -v '^sw_' || true)
if [ -n "$foreign" ]; then
    printf '%s\n' "$foreign" | sed "s|^|global without sw_: |"
    bad=1
fi

# alloc counts, log has a level and a sink, fault has its points: see base.h. The environment belongs
# to the process, and so does the lock under which device/gpu/environment.c sets its variables.
writable=$(objdump -t "$static" | awk '
    /file format/ { object = $1; sub(/:$/, "", object) }
    object ~ /^(alloc|log|fault|environment)\.c/ { next }
    $0 ~ / O \.(data|bss)(\.[^r]|\t| )/ { print object " " $NF }')
if [ -n "$writable" ]; then
    printf '%s\n' "$writable" | sed "s|^|writable data: |"
    bad=1
fi

[ $bad -eq 0 ] && echo "$(printf '%s\n' "$exported" | wc -l) exported names"
exit $bad
