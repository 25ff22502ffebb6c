# SPDX-License-Identifier: Apache-2.0
# cmake -D PROGRAM=<spillway> -D OUTPUT=<folder> -P SpillwayManual.cmake: manual pages and completion, as the program
# prints them from the tables of its flags.

function(print_into file)
    get_filename_component(folder "${OUTPUT}/${file}" DIRECTORY)
    file(MAKE_DIRECTORY "${folder}")
    execute_process(COMMAND "${PROGRAM}" ${ARGN} OUTPUT_FILE "${OUTPUT}/${file}" COMMAND_ERROR_IS_FATAL ANY)
endfunction()

file(REMOVE_RECURSE "${OUTPUT}")
execute_process(COMMAND "${PROGRAM}" --help OUTPUT_VARIABLE help COMMAND_ERROR_IS_FATAL ANY)
string(REGEX MATCHALL "\n  [a-z]+ " commands "${help}")
print_into(man1/spillway.1 help --man)
foreach(command IN LISTS commands)
    string(STRIP "${command}" command)
    print_into(man1/spillway-${command}.1 help --man ${command})
endforeach()
print_into(bash/spillway completion bash)
print_into(zsh/_spillway completion zsh)
print_into(fish/spillway.fish completion fish)
