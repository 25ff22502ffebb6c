#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Compares plan --predict with measured steps, case by case (see predict.c). Then it repeats the cases with a disk, while
# the system's block controller throttles reads and writes to MB_A_SECOND. If there is no such controller, or no
# permission to use it, it says so.
#   predict.sh BENCH_PREDICT FOLDER_ON_DISK [MB_A_SECOND] [options of bench_predict]
set -eu
[ $# -ge 2 ] || { sed -n '3,6s/^# *//p' "$0" >&2; exit 2; }
bench=$1 folder=$2 limit=${3:-200}
shift 2
[ $# -eq 0 ] || shift

for name in memory states-cpu both-cpu vertical packed lora states-nvme states-nvme-cpu both-nvme \
    stage0 stage1 stage2 stage3 pipe pipe-wire tensor tensor-wire; do
    "$bench" --only $name --path "$folder" "$@"
done

without() { echo "no slower disk: $1"; exit 0; }
[ "$(id -u)" -eq 0 ] || without "needs root"
disk=$(findmnt -no MAJ:MIN -T "$folder" | tr -d ' ')
[ ! -e "/sys/dev/block/$disk/partition" ] || disk=$(cat "/sys/dev/block/$disk/../dev")
[ -e "/sys/dev/block/$disk" ] || without "$folder is on no block device"
bytes=$((limit * 1000000))
root=/sys/fs/cgroup
if [ -d $root/blkio ]; then # version 1
    group=$root/blkio$(sed -n 's/^[0-9]*:blkio:\(.*\)$/\1/p' /proc/self/cgroup)/spillway-bench-$$
elif grep -qw io $root/cgroup.subtree_control 2> /dev/null; then
    group=$root/spillway-bench-$$
else
    without "no block controller"
fi
mkdir "$group" 2> /dev/null || without "cannot make $group"
clean_up() {
    for i in 1 2 3 4 5 6 7 8 9 10; do
        rmdir "$group" 2> /dev/null && return
        sleep 0.1
    done
}
trap clean_up EXIT
if [ -d $root/blkio ]; then
    echo "$disk $bytes" > "$group/blkio.throttle.read_bps_device" || without "cannot limit $disk"
    echo "$disk $bytes" > "$group/blkio.throttle.write_bps_device" || without "cannot limit $disk"
else
    echo "$disk rbps=$bytes wbps=$bytes" > "$group/io.max" || without "cannot limit $disk"
fi
echo "the disk reads and writes $limit MB a second at most:"
for name in states-nvme states-nvme-cpu both-nvme; do
    sh -c 'echo $$ > "$0/cgroup.procs"; exec "$@"' "$group" "$bench" --only $name --path "$folder" "$@"
done
