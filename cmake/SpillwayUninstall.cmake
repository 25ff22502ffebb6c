# SPDX-License-Identifier: Apache-2.0
# cmake -D BUILD=<build folder> -P SpillwayUninstall.cmake: removes what `cmake --install` of this build put there last,
# and of the folders that it made those that are empty then.

set(manifest "${BUILD}/install_manifest.txt")
set(record "${BUILD}/install_folders.txt")
if(NOT EXISTS "${manifest}")
    message(FATAL_ERROR "${manifest} is not there: nothing was installed from this build")
endif()
file(STRINGS "${manifest}" files)
foreach(file IN LISTS files)
    file(REMOVE "$ENV{DESTDIR}${file}")
endforeach()
if(EXISTS "${record}")
    file(STRINGS "${record}" folders)
    list(REMOVE_DUPLICATES folders)
    list(SORT folders ORDER DESCENDING) # what is in a folder before it
    foreach(folder IN LISTS folders)
        file(GLOB left "$ENV{DESTDIR}${folder}/*" "$ENV{DESTDIR}${folder}/.[!.]*")
        if(NOT left)
            file(REMOVE_RECURSE "$ENV{DESTDIR}${folder}")
        endif()
    endforeach()
endif()
file(REMOVE "${manifest}" "${record}")
