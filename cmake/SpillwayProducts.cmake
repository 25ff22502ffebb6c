# SPDX-License-Identifier: Apache-2.0
# What is installed and run: libspillway.so and .a of the same objects, the program, benches, examples.

get_property(room_objects GLOBAL PROPERTY SPILLWAY_OBJECTS)
get_property(room_external GLOBAL PROPERTY SPILLWAY_EXTERNAL)
set(object_files "")
foreach(objects IN LISTS room_objects)
    list(APPEND object_files $<TARGET_OBJECTS:${objects}>)
endforeach()

# The number in the library's name is that of the binary interface; tests/checks/abi.sh watches over it.
set(abi_header "${PROJECT_SOURCE_DIR}/include/spillway/abi.h")
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS "${abi_header}")
file(STRINGS "${abi_header}" SPILLWAY_ABI_VERSION REGEX "^#define SW_ABI_VERSION [0-9]+$")
string(REGEX REPLACE "[^0-9]+" "" SPILLWAY_ABI_VERSION "${SPILLWAY_ABI_VERSION}")

if(object_files)
    add_library(spillway SHARED ${object_files})
    add_library(spillway_static STATIC ${object_files})
    set_target_properties(spillway PROPERTIES VERSION ${PROJECT_VERSION}
        SOVERSION ${SPILLWAY_ABI_VERSION})
    set_target_properties(spillway_static PROPERTIES OUTPUT_NAME spillway)
    if(NOT SPILLWAY_SAN AND NOT SPILLWAY_TSAN) # a sanitizer leaves its run time to the program
        target_link_options(spillway PRIVATE LINKER:--no-undefined)
    endif()
    foreach(product IN ITEMS spillway spillway_static)
        set_target_properties(${product} PROPERTIES LINKER_LANGUAGE C)
        target_include_directories(${product} PUBLIC
            $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include>
            $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
        target_link_libraries(${product} PRIVATE
            $<BUILD_INTERFACE:sw_compile> Threads::Threads ${CMAKE_DL_LIBS} m)
        foreach(ext IN LISTS room_external)
            target_link_libraries(${product} PRIVATE $<BUILD_INTERFACE:${ext}>)
        endforeach()
        add_library(spillway::${product} ALIAS ${product})
    endforeach()
endif()

if(EXISTS "${PROJECT_SOURCE_DIR}/src/cli/main.c" AND TARGET spillway_static)
    add_executable(spillway_program "${PROJECT_SOURCE_DIR}/src/cli/main.c")
    set_target_properties(spillway_program PROPERTIES OUTPUT_NAME spillway)
    if(TARGET sw_cli_objects)
        target_sources(spillway_program PRIVATE $<TARGET_OBJECTS:sw_cli_objects>)
    endif()
    target_include_directories(spillway_program PRIVATE "${PROJECT_SOURCE_DIR}/src")
    target_link_libraries(spillway_program PRIVATE spillway_static sw_compile ${room_external})
endif()

# Manual pages and completion: the program prints them, where it can be run.
if(TARGET spillway_program AND NOT CMAKE_CROSSCOMPILING)
    set(manual "${PROJECT_SOURCE_DIR}/cmake/SpillwayManual.cmake")
    set(SPILLWAY_MANUAL "${PROJECT_BINARY_DIR}/manual")
    add_custom_command(OUTPUT "${SPILLWAY_MANUAL}/man1/spillway.1"
        COMMAND "${CMAKE_COMMAND}" -D PROGRAM=$<TARGET_FILE:spillway_program> -D OUTPUT=${SPILLWAY_MANUAL} -P "${manual}"
        DEPENDS spillway_program "${manual}" VERBATIM)
    add_custom_target(spillway_manual ALL DEPENDS "${SPILLWAY_MANUAL}/man1/spillway.1")
endif()

# spillway_<mpi>.so: beside the program in the build, in <libdir>/spillway when installed.
set(mpi_module "${PROJECT_SOURCE_DIR}/src/comm/mpi/module")
foreach(mpi IN LISTS SPILLWAY_MPI_MODULES)
    set(output "${PROJECT_BINARY_DIR}/spillway_${mpi}.so")
    add_custom_command(OUTPUT "${output}"
        COMMAND "${SPILLWAY_MPI_WRAPPER_${mpi}}" -std=gnu17 -O2 -g -fPIC -shared -fvisibility=hidden
            -Wall -Wextra "$<$<BOOL:${SPILLWAY_WERROR}>:-Werror>" -o "${output}"
            "-I${PROJECT_SOURCE_DIR}/src" "${mpi_module}/module.c"
        DEPENDS "${mpi_module}/module.c" "${mpi_module}/module.h" COMMAND_EXPAND_LISTS VERBATIM)
    add_custom_target(spillway_${mpi}_module ALL DEPENDS "${output}")
endforeach()

# bench/<x>.c: one program each, made by the target `bench` and by name.
add_custom_target(bench)
file(GLOB bench_sources CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/bench/*.c")
foreach(source IN LISTS bench_sources)
    get_filename_component(stem "${source}" NAME_WE)
    add_executable(bench_${stem} EXCLUDE_FROM_ALL "${source}")
    set_target_properties(bench_${stem} PROPERTIES
        RUNTIME_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/bench")
    target_link_libraries(bench_${stem} PRIVATE sw_look)
    add_dependencies(bench bench_${stem})
endforeach()

# MPI's own collectives, for bench_zero under mpirun.
foreach(mpi IN LISTS SPILLWAY_MPI_MODULES)
    set(source "${PROJECT_SOURCE_DIR}/bench/mpi/own.c")
    set(output "${PROJECT_BINARY_DIR}/bench/own_${mpi}.so")
    add_custom_command(OUTPUT "${output}"
        COMMAND "${CMAKE_COMMAND}" -E make_directory "${PROJECT_BINARY_DIR}/bench"
        COMMAND "${SPILLWAY_MPI_WRAPPER_${mpi}}" -std=gnu17 -O2 -fPIC -shared -fvisibility=hidden
            -Wall -Wextra "$<$<BOOL:${SPILLWAY_WERROR}>:-Werror>" -o "${output}" "${source}"
        DEPENDS "${source}" COMMAND_EXPAND_LISTS VERBATIM)
    add_custom_target(bench_own_${mpi} DEPENDS "${output}")
    add_dependencies(bench bench_own_${mpi})
    add_dependencies(bench_zero spillway_${mpi}_module)
endforeach()

# examples/<x>.c see what a user sees: the public headers and the shared library.
if(SPILLWAY_EXAMPLES AND TARGET spillway)
    file(GLOB example_sources CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/examples/*.c")
    foreach(source IN LISTS example_sources)
        get_filename_component(stem "${source}" NAME_WE)
        sw_leaves_out(example/${stem} left_out)
        if(left_out)
            continue()
        endif()
        add_executable(example_${stem} "${source}")
        set_target_properties(example_${stem} PROPERTIES OUTPUT_NAME ${stem}
            RUNTIME_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/examples")
        target_link_libraries(example_${stem} PRIVATE spillway sw_compile)
        if(BUILD_TESTING)
            add_test(NAME example/${stem} COMMAND example_${stem}
                WORKING_DIRECTORY "${PROJECT_BINARY_DIR}")
            set_tests_properties(example/${stem} PROPERTIES SKIP_RETURN_CODE 77 TIMEOUT 600
                LABELS example)
        endif()
    endforeach()
endif()
