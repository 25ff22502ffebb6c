#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# tarball.sh <packaging/tarball.sh>: two tarballs of a commit - one made in another clone, under another mask, time zone
# and time - are the same bytes, and hold the files of the commit and nothing that was not committed.
set -eu
script=$(realpath "$1")
root=$(dirname "$script")/..
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
git -C "$root" rev-parse HEAD > /dev/null 2>&1 || { echo "skipped: this tree is no clone of git"; exit 77; }

mkdir "$scratch/first" "$scratch/second"
"$script" "$scratch/first" > /dev/null
git clone -q --shared "$root" "$scratch/clone"
touch "$scratch/clone/stray" "$scratch/clone/LICENSE"
(umask 077; TZ=Asia/Tokyo LC_ALL=C "$scratch/clone/packaging/tarball.sh" "$scratch/second" > /dev/null)
cmp "$scratch"/first/*.tar.gz "$scratch"/second/*.tar.gz

tar -tzf "$scratch"/first/*.tar.gz | sed 's|^[^/]*/||' | grep -v '/$' | LC_ALL=C sort | grep . > "$scratch/holds"
git -C "$root" ls-tree -r --name-only HEAD | LC_ALL=C sort > "$scratch/wanted"
diff "$scratch/wanted" "$scratch/holds"
echo "$(wc -l < "$scratch/holds") files, $(wc -c < "$(ls "$scratch"/first/*)") bytes"
