# SPDX-License-Identifier: Apache-2.0
# fuzz/fuzz_<x>.c: a target in libFuzzer's form, linked with the rooms whose headers it includes. Two
# tests each, on the seeds in fuzz/seeds/<x>: fuzz/<x>, short (20000 executions, or what `// EXECUTIONS 5000` in the
# source says), and fuzz/<x>_million, labelled slow. fuzz/<x>_libfuzzer, slow too, runs it for a minute under clang's
# libFuzzer, which fuzz/libfuzzer_build builds in a folder of its own. Exit 77 means skipped.

set(fuzz_root "${PROJECT_SOURCE_DIR}/fuzz")
set(libfuzzer "${PROJECT_BINARY_DIR}/libfuzzer")
add_custom_target(fuzz_targets)
file(GLOB fuzz_sources CONFIGURE_DEPENDS "${fuzz_root}/fuzz_*.c")
foreach(source IN LISTS fuzz_sources)
    get_filename_component(target "${source}" NAME_WE)
    string(REGEX REPLACE "^fuzz_" "" stem "${target}")
    sw_leaves_out(fuzz/${stem} left_out)
    if(left_out)
        continue()
    endif()
    add_executable(${target} "${source}")
    set_target_properties(${target} PROPERTIES RUNTIME_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/fuzz")
    file(STRINGS "${source}" includes REGEX "^#include \"[a-z]+/")
    foreach(line IN LISTS includes)
        string(REGEX REPLACE "^#include \"([a-z]+)/.*" "\\1" room "${line}")
        target_link_libraries(${target} PRIVATE sw_${room})
    endforeach()
    target_link_libraries(${target} PRIVATE sw_base sw_compile)
    add_dependencies(fuzz_targets ${target})
    if(SPILLWAY_FUZZ)
        target_link_options(${target} PRIVATE -fsanitize=fuzzer)
        continue()
    endif()
    target_sources(${target} PRIVATE "${fuzz_root}/driver.c")
    file(GLOB seeds "${fuzz_root}/seeds/${stem}")
    file(STRINGS "${source}" executions LIMIT_INPUT 500 REGEX "^// EXECUTIONS [0-9]+")
    string(REGEX MATCH "[0-9]+" executions "${executions};20000")
    add_test(NAME fuzz/${stem} COMMAND ${target} -n ${executions} ${seeds})
    add_test(NAME fuzz/${stem}_million COMMAND ${target} -n 1000000 ${seeds})
    set_tests_properties(fuzz/${stem} PROPERTIES LABELS fuzz TIMEOUT 600)
    set_tests_properties(fuzz/${stem}_million PROPERTIES LABELS "fuzz;slow" TIMEOUT 14400)
    set_tests_properties(fuzz/${stem} fuzz/${stem}_million PROPERTIES SKIP_RETURN_CODE 77
        ENVIRONMENT "ASAN_OPTIONS=abort_on_error=1;UBSAN_OPTIONS=abort_on_error=1")
    add_test(NAME fuzz/${stem}_libfuzzer COMMAND sh "${fuzz_root}/libfuzzer.sh" "${libfuzzer}" ${stem})
    set_tests_properties(fuzz/${stem}_libfuzzer PROPERTIES LABELS "fuzz;slow" TIMEOUT 1200 SKIP_RETURN_CODE 77
        FIXTURES_REQUIRED libfuzzer)
endforeach()
if(NOT SPILLWAY_FUZZ)
    add_test(NAME fuzz/libfuzzer_build COMMAND sh "${fuzz_root}/libfuzzer.sh" "${libfuzzer}" build)
    set_tests_properties(fuzz/libfuzzer_build PROPERTIES LABELS "fuzz;slow" TIMEOUT 14400 SKIP_RETURN_CODE 77
        FIXTURES_SETUP libfuzzer)
endif()
