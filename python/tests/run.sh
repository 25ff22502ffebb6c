#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# run.sh <libspillway.so> <spillway> [pytest's options]: the tests of the Python package, from the source tree. Skipped
# (77) where no Python has numpy and pytest; SPILLWAY_PYTHON names one.
set -eu
library=$1 program=$2
shift 2
here=$(cd "$(dirname "$0")" && pwd)
for python in ${SPILLWAY_PYTHON:-python3 /usr/bin/python3}; do
    if "$python" -c 'import numpy, pytest' 2> /dev/null; then
        cd "$here"
        PYTHONPATH=$here/.. PYTHONDONTWRITEBYTECODE=1 SPILLWAY_LIBRARY=$library SPILLWAY_PROGRAM=$program \
            exec "$python" -m pytest -q -p no:cacheprovider "$@"
    fi
done
echo "skipped: ${SPILLWAY_PYTHON:-python3} has no numpy, or no pytest (apt-get install python3-numpy python3-pytest)"
exit 77
