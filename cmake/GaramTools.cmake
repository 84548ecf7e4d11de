# Compiler cache and linker, when the machine has them.
find_program(GARAM_CCACHE ccache)
if(GARAM_CCACHE)
  set(CMAKE_CXX_COMPILER_LAUNCHER "${GARAM_CCACHE}")
  set(CMAKE_CUDA_COMPILER_LAUNCHER "${GARAM_CCACHE}")
endif()
# mold 1.10 makes programs that cannot be loaded (read-only data that begins at a .tbss of the page before) and
# hangs over others; the default linker takes a fraction of a second for ours.
find_program(GARAM_MOLD mold)
if(GARAM_MOLD)
  execute_process(COMMAND "${GARAM_MOLD}" --version OUTPUT_VARIABLE mold_version ERROR_QUIET)
  if(mold_version MATCHES "mold ([0-9]+)" AND CMAKE_MATCH_1 GREATER_EQUAL 2)
    add_link_options($<HOST_LINK:-fuse-ld=mold>)
  endif()
endif()

add_compile_options(
  $<$<COMPILE_LANGUAGE:CXX>:-Wall> $<$<COMPILE_LANGUAGE:CXX>:-Wextra>
  # Designated initialisers leave out what keeps its default.
  $<$<COMPILE_LANGUAGE:CXX>:-Wno-missing-field-initializers>
  $<$<COMPILE_LANGUAGE:CXX>:-Wshadow> $<$<COMPILE_LANGUAGE:CXX>:-Wnon-virtual-dtor>
  # d*q - m must be rounded twice wherever it is compiled: quantised formats promise bits.
  $<$<COMPILE_LANGUAGE:CXX>:-ffp-contract=off>
  # Messages with a source position show src/…, wherever the checkout lay.
  "$<$<COMPILE_LANGUAGE:CXX>:-fmacro-prefix-map=${PROJECT_SOURCE_DIR}/=>")

if(CMAKE_CXX_COMPILER_ID STREQUAL GNU AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
  # g++ 12 warns of an overlap in `"literal" + std::string` that is not there (its bug 105651).
  add_compile_options($<$<COMPILE_LANGUAGE:CXX>:-Wno-restrict>)
endif()

if(GARAM_SANITIZE)
  # Any finding of the undefined-behaviour sanitizer ends the program: a report alone fails no test.
  set(sanitize -fsanitize=${GARAM_SANITIZE} -fno-sanitize-recover=all -fno-omit-frame-pointer)
  add_compile_options("$<$<COMPILE_LANGUAGE:CXX>:${sanitize}>")
  add_link_options(-fsanitize=${GARAM_SANITIZE})
endif()
