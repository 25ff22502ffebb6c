# SPDX-License-Identifier: Apache-2.0
# Optional dependencies: probe, define SW_HAVE_<X> as 0 or 1, and remember the line for the summary.
#
# sw_dependency(<KEY> HEADER <h> LIBRARY <l>.. PACKAGE <Debian package> WITHOUT <what is lost>)
# makes the INTERFACE target sw_ext_<KEY>, empty when the dependency is absent or switched off.

set_property(GLOBAL PROPERTY SPILLWAY_SUMMARY "")

function(sw_record_dependency key found note)
    if(found)
        set(line "  ✓ ${key}")
        set(value 1)
    else()
        set(line "  ✗ ${key}: ${note}")
        set(value 0)
    endif()
    set_property(GLOBAL APPEND PROPERTY SPILLWAY_SUMMARY "${line}")
    target_compile_definitions(sw_compile INTERFACE SW_HAVE_${key}=${value})
    set(SW_HAVE_${key} ${value} PARENT_SCOPE)
endfunction()

function(sw_dependency key)
    cmake_parse_arguments(PARSE_ARGV 1 arg "" "HEADER;LIBRARY;PACKAGE;WITHOUT" "")
    add_library(sw_ext_${key} INTERFACE)
    set(found FALSE)
    set(note "${arg_WITHOUT} (apt-get install ${arg_PACKAGE})")
    if(SPILLWAY_MINIMAL OR SPILLWAY_${key} STREQUAL "OFF")
        set(note "${arg_WITHOUT} (switched off)")
    else()
        find_path(SPILLWAY_${key}_INCLUDE_DIR ${arg_HEADER})
        find_library(SPILLWAY_${key}_LIBRARY ${arg_LIBRARY})
        mark_as_advanced(SPILLWAY_${key}_INCLUDE_DIR SPILLWAY_${key}_LIBRARY)
        if(SPILLWAY_${key}_INCLUDE_DIR AND SPILLWAY_${key}_LIBRARY)
            set(found TRUE)
            target_include_directories(sw_ext_${key} SYSTEM INTERFACE
                "${SPILLWAY_${key}_INCLUDE_DIR}")
            target_link_libraries(sw_ext_${key} INTERFACE "${SPILLWAY_${key}_LIBRARY}")
            set_property(GLOBAL APPEND PROPERTY SPILLWAY_PRIVATE_LIBS "-l${arg_LIBRARY}")
        elseif(NOT SPILLWAY_${key} STREQUAL "AUTO")
            message(FATAL_ERROR "SPILLWAY_${key} is ${SPILLWAY_${key}}, but ${arg_HEADER} or the "
                "library ${arg_LIBRARY} was not found. On Debian: apt-get install ${arg_PACKAGE}")
        endif()
    endif()
    sw_record_dependency(${key} ${found} "${note}")
    set(SW_HAVE_${key} ${SW_HAVE_${key}} PARENT_SCOPE)
endfunction()

sw_dependency(DNNL HEADER dnnl.h LIBRARY dnnl PACKAGE libdnnl-dev
    WITHOUT "matrix products use our own kernels, which are slower")
sw_dependency(URING HEADER liburing.h LIBRARY uring PACKAGE liburing-dev
    WITHOUT "files are read and written by helper threads instead of io_uring")
sw_dependency(PCRE2 HEADER pcre2.h LIBRARY pcre2-8 PACKAGE libpcre2-dev
    WITHOUT "no tokenizers that split text by a regular expression")
sw_dependency(UTF8PROC HEADER utf8proc.h LIBRARY utf8proc PACKAGE libutf8proc-dev
    WITHOUT "no tokenizers that normalise Unicode")
sw_dependency(PNG HEADER png.h LIBRARY png PACKAGE libpng-dev
    WITHOUT "no pictures of PNG files")
sw_dependency(JPEG HEADER jpeglib.h LIBRARY jpeg PACKAGE libjpeg-dev
    WITHOUT "no pictures of JPEG files")
sw_dependency(XXHASH HEADER xxhash.h LIBRARY xxhash PACKAGE libxxhash-dev
    WITHOUT "checkpoint files carry CRC-32C instead of XXH3-128")
sw_dependency(HWLOC HEADER hwloc.h LIBRARY hwloc PACKAGE libhwloc-dev
    WITHOUT "launch --bind-cores takes each processor for a core; memory for GPUs is of any NUMA node")
sw_dependency(CMOCKA HEADER cmocka.h LIBRARY cmocka PACKAGE libcmocka-dev
    WITHOUT "tests use the small runner in tests/support")

# MPI: a module for each that is here, compiled by its own wrapper (binary interfaces differ) and opened
# at run time by src/comm/world.c.
set(mpi_without "ranks are threads of one process (apt-get install libopenmpi-dev openmpi-bin)")
set(SPILLWAY_MPI_MODULES "")
if(SPILLWAY_MINIMAL OR SPILLWAY_MPI STREQUAL "OFF")
    set(mpi_without "ranks are threads of one process (switched off)")
else()
    foreach(wrapper IN ITEMS mpicc.openmpi mpicc.mpich mpicc)
        find_program(SPILLWAY_${wrapper} ${wrapper})
        mark_as_advanced(SPILLWAY_${wrapper})
        if(NOT SPILLWAY_${wrapper})
            continue()
        endif()
        file(WRITE "${PROJECT_BINARY_DIR}/mpi_flavour.c" "#include <mpi.h>\n"
            "#ifdef OPEN_MPI\nflavour openmpi\n#elif defined MPICH_VERSION\nflavour mpich\n#endif\n")
        execute_process(COMMAND "${SPILLWAY_${wrapper}}" -E "${PROJECT_BINARY_DIR}/mpi_flavour.c"
            OUTPUT_VARIABLE preprocessed ERROR_QUIET)
        if(preprocessed MATCHES "flavour ([a-z]+)" AND
           NOT CMAKE_MATCH_1 IN_LIST SPILLWAY_MPI_MODULES)
            list(APPEND SPILLWAY_MPI_MODULES ${CMAKE_MATCH_1})
            set(SPILLWAY_MPI_WRAPPER_${CMAKE_MATCH_1} "${SPILLWAY_${wrapper}}")
        endif()
    endforeach()
    if(NOT SPILLWAY_MPI_MODULES AND NOT SPILLWAY_MPI STREQUAL "AUTO")
        message(FATAL_ERROR "SPILLWAY_MPI is ${SPILLWAY_MPI}, but no wrapper mpicc was found. "
            "On Debian: apt-get install libopenmpi-dev openmpi-bin")
    endif()
endif()
if(SPILLWAY_MPI_MODULES)
    sw_record_dependency(MPI TRUE "")
else()
    sw_record_dependency(MPI FALSE "${mpi_without}")
endif()

function(sw_print_summary)
    get_property(lines GLOBAL PROPERTY SPILLWAY_SUMMARY)
    message(STATUS "spillway ${PROJECT_VERSION}, ${CMAKE_BUILD_TYPE}, "
        "${CMAKE_C_COMPILER_ID} ${CMAKE_C_COMPILER_VERSION}; optional dependencies:")
    foreach(line IN LISTS lines)
        message(STATUS "${line}")
    endforeach()
endfunction()
