#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# tarball.sh [FOLDER]: the sources of the commit that is checked out as FOLDER/spillway-VERSION.tar.gz, the same bytes
# wherever and whenever it is made: times, owners and modes are the commit's. Prints its path.
set -eu
folder=$(realpath "${1:-.}")
cd "$(dirname "$0")/.."
version=$(sed -n 's/^project(spillway VERSION \([0-9.]*\).*/\1/p' CMakeLists.txt)
out=$folder/spillway-$version.tar.gz
git -c tar.umask=0022 archive --format=tar --prefix="spillway-$version/" HEAD | gzip -9n > "$out.part"
mv "$out.part" "$out"
echo "$out"
