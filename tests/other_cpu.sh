#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# other_cpu.sh MODEL COMMAND..: runs commands on a processor that this machine is not.
#
# Bochs, a PC in software, emulates a processor of that MODEL (`bochs -help cpu` lists them), at some tens of millions of
# instructions a second. It boots a Linux that has busybox, and the files that the COMMANDs and $FILES name, where they
# lie here, with their shared libraries. Each COMMAND is a line of a shell in this folder; it may run LIMIT (600) seconds
# of the emulated clock, whose second is 100 million instructions. Its output is printed, then "STATUS SECONDS COMMAND";
# the status is the number of commands that failed. docs/building.md says what was run so. Read from the environment:
#
# SCRATCH    a folder for the files of the machine, which are kept then
# BOCHS      the program (bochs), built with --enable-x86-64 --enable-avx --enable-evex --enable-amx
# BIOS       BIOS-bochs-latest; VGABIOS-lgpl-latest.bin is beside it, or in a folder VGABIOS-lgpl there
# KERNEL     a Linux with serial console, initramfs and devtmpfs built in: /boot/vmlinuz-* of Debian, cloud or not
# ISOLINUX   isolinux.bin, and LDLINUX, ldlinux.c32 (packages isolinux, syslinux-common)
# BUSYBOX    statically linked (busybox-static), default /bin/busybox; and XORRISO, which makes the disc (xorriso)
set -uo pipefail

if [ $# -lt 2 ]; then
    sed -n '3,/^set/{/^set/d;s/^# \{0,1\}//;p}' "$0"
    exit 2
fi
model=$1
shift
share=/usr/share/bochs bios=${BIOS:-$share/BIOS-bochs-latest}
busybox=${BUSYBOX:-/bin/busybox} isolinux=${ISOLINUX:-/usr/lib/ISOLINUX/isolinux.bin}
ldlinux=${LDLINUX:-/usr/lib/syslinux/modules/bios/ldlinux.c32} xorriso=${XORRISO:-xorriso} bochs=${BOCHS:-bochs}
kernel=${KERNEL:-/boot/vmlinuz-$(uname -r)}
vga=$(find "$(dirname "$bios")" -name VGABIOS-lgpl-latest.bin 2> /dev/null | head -n 1)
for need in "$bios" "${vga:-VGABIOS-lgpl-latest.bin}" "$busybox" "$isolinux" "$ldlinux" "$kernel"; do
    [ -r "$need" ] || { echo "skipped: there is no $need"; exit 77; }
done
for need in "$bochs" "$xorriso"; do
    command -v "$need" > /dev/null || { echo "skipped: there is no program $need"; exit 77; }
done
scratch=${SCRATCH:-$(mktemp -d)}
[ -n "${SCRATCH:-}" ] || trap 'rm -rf "$scratch"' EXIT
root=$scratch/root
rm -rf "$root" "$scratch/disc" "$scratch/console"
mkdir -p "$root"/{proc,sys,dev,tmp,bin} "$root$PWD" "$scratch/disc"

# ---- what it finds there ----

put() { # <path>: where it lies here; programs without their debug information
    local path
    path=$(realpath -s "$1")
    [ ! -e "$root$path" ] || return 0
    mkdir -p "$root$(dirname "$path")"
    strip -o "$root$path" "$path" 2> /dev/null || cp -rL "$path" "$root$path"
    [ ! -x "$path" ] || chmod +x "$root$path"
}

for word in $* ${FILES:-}; do
    [ -e "$word" ] || continue
    put "$word"
    [ -d "$word" ] || for library in $(ldd "$word" 2> /dev/null | grep -o '/[^ ]*'); do put "$library"; done
done
cp "$busybox" "$root/bin/busybox"
ln -s busybox "$root/bin/sh"
printf '%s\n' "$@" > "$root/commands"
cat > "$root/init" << EOF
#!/bin/sh
/bin/busybox --install -s /bin
mount -t proc none /proc
mount -t sysfs none /sys
mount -t devtmpfs none /dev
mkdir -p /dev/shm
mount -t tmpfs none /dev/shm
mount -t tmpfs none /tmp
ifconfig lo 127.0.0.1 up
export HOME=/tmp PATH=/bin SPILLWAY_FIXTURES="${SPILLWAY_FIXTURES:-}"
cd "$PWD"
grep -m 1 'model name' /proc/cpuinfo
grep -m 1 flags /proc/cpuinfo | grep -o -E 'avx[a-z0-9_]*|amx[a-z0-9_]*' | xargs echo features:
while read -r command; do
    start=\$(cut -d . -f 1 /proc/uptime)
    timeout -s KILL ${LIMIT:-600} sh -c "\$command" < /dev/null 2>&1
    echo "==== \$? \$((\$(cut -d . -f 1 /proc/uptime) - start)) \$command"
done < /commands
echo "==== end"
sleep 1 # until the console has it
poweroff -f
EOF
chmod +x "$root/init"

# ---- the machine ----

(cd "$root" && find . | "$busybox" cpio -o -H newc 2> /dev/null | gzip -1) > "$scratch/disc/initrd"
cp "$kernel" "$scratch/disc/vmlinuz"
cp "$isolinux" "$ldlinux" "$scratch/disc/"
# Without feature 580 (fsrm): Bochs has that one and not the bit of MISC_ENABLE that allows rep movs, and Linux up to 6.1
# at least then moves memory wrongly.
cat > "$scratch/disc/isolinux.cfg" << EOF
DEFAULT linux
LABEL linux
KERNEL vmlinuz
APPEND initrd=initrd console=ttyS0,115200 quiet clearcpuid=580 mitigations=off nokaslr panic=-1
EOF
"$xorriso" -as mkisofs -quiet -o "$scratch/disc.iso" -b isolinux.bin -c boot.cat -no-emul-boot -boot-load-size 4 \
    -boot-info-table "$scratch/disc" 2> "$scratch/xorriso" || { cat "$scratch/xorriso"; exit 1; }
cat > "$scratch/bochsrc" << EOF
cpu: model=$model, ips=100000000, cpuid_freq=ips
memory: guest=2048, host=2048
romimage: file=$bios, options=fastboot
vgaromimage: file=$vga
ata0-master: type=cdrom, path=$scratch/disc.iso, status=inserted
boot: cdrom
com1: enabled=1, mode=file, dev=$scratch/console
display_library: nogui
clock: sync=none
log: $scratch/log
panic: action=fatal
speaker: enabled=0
EOF
touch "$scratch/console"
"$bochs" -q -f "$scratch/bochsrc" > "$scratch/screen" 2>&1 < /dev/null &
machine=$!
trap 'kill $machine 2> /dev/null; [ -n "${SCRATCH:-}" ] || rm -rf "$scratch"' EXIT
tail -n +1 -f --pid=$machine "$scratch/console" | tr -d '\r' | sed -u 's/^==== \([0-9]\)/\1/; /^==== end/Q'
kill $machine 2> /dev/null
if ! grep -q '^==== end' "$scratch/console"; then
    echo "other_cpu.sh: the machine stopped"
    tail -n 5 "$scratch/log"
    exit 1
fi
exit "$(grep -c '^==== [1-9]' "$scratch/console")"
