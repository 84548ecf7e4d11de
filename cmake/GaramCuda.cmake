# The CUDA language, and the library garam_cuda of every src/garam/**/cuda/*.cu.
# CMAKE_CUDA_ARCHITECTURES comes from the preset.
if(NOT CMAKE_CUDA_COMPILER)
  find_program(GARAM_NVCC nvcc HINTS /usr/local/cuda/bin)
  if(NOT GARAM_NVCC)
    message(FATAL_ERROR "GARAM_CUDA is on, but there is no nvcc on PATH or in /usr/local/cuda/bin: "
      "install the CUDA toolkit (13 or later), set CMAKE_CUDA_COMPILER, or use the preset cpu.")
  endif()
  set(CMAKE_CUDA_COMPILER "${GARAM_NVCC}")
endif()
enable_language(CUDA)

# CMake 3.25 does not know that nvcc speaks C++20 and would pass no -std at all.
set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION "-std=c++20")
set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION "-std=c++20")
set(CMAKE_CUDA_STANDARD 20)
set(CMAKE_CUDA_EXTENSIONS OFF)

file(GLOB_RECURSE GARAM_CUDA_SOURCES CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/src/garam/*.cu")
list(FILTER GARAM_CUDA_SOURCES INCLUDE REGEX "/cuda/[^/]+\\.cu$")
list(LENGTH GARAM_CUDA_SOURCES count)
if(count EQUAL 0)
  set(note "GARAM_CUDA: there are no CUDA sources under src/garam yet, only the CPU program is built")
  message(STATUS "${note}")
  add_custom_target(garam_cuda COMMAND "${CMAKE_COMMAND}" -E echo "${note}" VERBATIM)
else()
  message(STATUS "GARAM_CUDA: ${count} CUDA sources for architectures ${CMAKE_CUDA_ARCHITECTURES}")
  add_library(garam_cuda STATIC ${GARAM_CUDA_SOURCES})
  target_include_directories(garam_cuda PUBLIC "${PROJECT_SOURCE_DIR}/src")
endif()
