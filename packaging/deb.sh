#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# deb.sh FOLDER: Debian packages of the commit that is checked out, in FOLDER; built from its tarball, on Debian 12 with
# what debian/control asks for (apt-get build-dep ./).
set -eu
folder=$(realpath "$1")
here=$(cd "$(dirname "$0")" && pwd)
scratch=$(mktemp -d "$folder/build-XXXXXX")
trap 'rm -rf "$scratch"' EXIT
tarball=$("$here/tarball.sh" "$scratch")
tar -xzf "$tarball" -C "$scratch"
cd "$scratch"/spillway-*/
dpkg-buildpackage -us -uc -b
mv ../*.deb ../*.buildinfo ../*.changes "$folder"
ls "$folder"/*.deb
