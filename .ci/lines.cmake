# SPDX-License-Identifier: Apache-2.0
# Less debug information: lines, no variables. The code is that of the default type, RelWithDebInfo; it compiles and
# links in three quarters of the time.
set(CMAKE_C_FLAGS_RELWITHDEBINFO "-O2 -g1 -DNDEBUG" CACHE STRING "Flags of .ci/run")
set(CMAKE_CXX_FLAGS_RELWITHDEBINFO "-O2 -g1 -DNDEBUG" CACHE STRING "Flags of .ci/run")
