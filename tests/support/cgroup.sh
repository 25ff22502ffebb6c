#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Runs a command in a memory cgroup of its own, without swap. Needs root, and a memory controller: that of
# version 1 inside the caller's group, or that of version 2 at the root.
#   cgroup.sh NAME BYTES COMMAND..    status of the command; 77 where no such group can be had
# The last line on standard error has the most bytes that were charged to the group, page cache included.
set -eu
name=$1 bytes=$2
shift 2

[ "$(id -u)" -eq 0 ] || { echo "cgroup.sh: needs root" >&2; exit 77; }
root=/sys/fs/cgroup
if [ -d "$root/memory" ]; then
    own=$(sed -n 's/^[0-9]*:memory:\(.*\)$/\1/p' /proc/self/cgroup)
    group=$root/memory$own/$name
    limit=memory.limit_in_bytes most=memory.max_usage_in_bytes
elif grep -qw memory "$root/cgroup.subtree_control" 2> /dev/null; then
    group=$root/$name
    limit=memory.max most=memory.peak
else
    echo "cgroup.sh: no memory controller" >&2
    exit 77
fi
mkdir "$group" 2> /dev/null || { echo "cgroup.sh: cannot make $group" >&2; exit 77; }
clean_up() {
    # the kernel may take a moment to see that its last process ended
    for i in 1 2 3 4 5 6 7 8 9 10; do
        rmdir "$group" 2> /dev/null && return
        sleep 0.1
    done
}
trap clean_up EXIT
if ! echo "$bytes" > "$group/$limit" 2> /dev/null; then
    echo "cgroup.sh: cannot limit $group" >&2
    exit 77
fi
for key in memory.memsw.limit_in_bytes=$bytes memory.swappiness=0 memory.swap.max=0; do
    [ ! -e "$group/${key%%=*}" ] || echo "${key#*=}" > "$group/${key%%=*}" 2> /dev/null || true
done
status=0
sh -c 'echo $$ > "$0/cgroup.procs"; exec "$@"' "$group" "$@" || status=$?
echo "cgroup.sh: $(cat "$group/$most" 2> /dev/null || echo unknown) bytes at most" >&2
exit $status
