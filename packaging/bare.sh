# SPDX-License-Identifier: Apache-2.0
# bare.sh: bare systems of Debian 12 for tests that install and build as a user does. To be sourced by bash, with $here
# a folder of the project. Wants root and mmdebstrap, and git for `commit`; else the caller is skipped (77). Packages
# come from where this machine has its own from.
#
# $scratch         a folder that is removed at the end
# SPILLWAY_BUILT   a folder that keeps the bare system, and what callers build, between runs

say() { printf '\n== %s (%d s)\n' "$*" "$SECONDS"; }
skip() { echo "skipped: $*"; exit 77; }
[ "$(id -u)" -eq 0 ] || skip "changing the root wants to be root"
command -v mmdebstrap > /dev/null || skip "no mmdebstrap (apt-get install mmdebstrap)"
sources=$(ls /etc/apt/sources.list.d/debian.sources 2> /dev/null || ls /etc/apt/sources.list)
git -C "$here" rev-parse HEAD > /dev/null 2>&1 || skip "no git: the commit that is checked out is what is packed"

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
built=${SPILLWAY_BUILT:-$scratch/built}
mkdir -p "$built"
bare=$built/bare.tar
install='apt-get install -y -qq --no-install-recommends'

if [ ! -e "$bare" ]; then
    say "a bare Debian 12"
    mmdebstrap --quiet --variant=minbase bookworm "$bare.part" "$sources" --format=tar
    mv "$bare.part" "$bare"
fi

# fresh <name>: unpacks a system of its own
fresh() {
    mkdir "$scratch/$1"
    tar -xf "$bare" -C "$scratch/$1"
    cp /etc/resolv.conf "$scratch/$1/etc/resolv.conf"
    printf '127.0.0.1\tlocalhost\n::1\tlocalhost ip6-localhost\n' > "$scratch/$1/etc/hosts" # as an installed system has
}
# within <name> <line of the shell> [<folder of this machine>]: runs the line in that system, with its own /proc,
# /dev/shm and /dev/pts, and with that folder under its own name
within() {
    unshare --mount --fork bash -ec 'mount -t proc proc "$1/proc"
        mkdir -p "$1/dev/shm" "$1/dev/pts"
        mount -t tmpfs tmpfs "$1/dev/shm"
        mount -t devpts -o newinstance,ptmxmode=0666 devpts "$1/dev/pts"
        mount --bind "$1/dev/pts/ptmx" "$1/dev/ptmx"
        if [ -n "$3" ]; then
            mkdir -p "$1$3"
            mount --bind -o ro "$3" "$1$3"
        fi
        exec env -i PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LANG=C.UTF-8 \
            DEBIAN_FRONTEND=noninteractive chroot "$1" sh -ec "$2"' bash "$scratch/$1" "$2" "${3:-}"
}
# commit <folder>: the tree of the commit that is checked out
commit() {
    mkdir -p "$1"
    git -C "$here/$(git -C "$here" rev-parse --show-cdup)" archive HEAD | tar -x -C "$1"
}
