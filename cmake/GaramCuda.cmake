# The CUDA language, and the library garam_cuda of all kernels in src/garam/kernels/cuda.
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

find_package(CUDAToolkit 13 REQUIRED)

file(GLOB_RECURSE sources CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/src/garam/kernels/cuda/*.cu"
  "${PROJECT_SOURCE_DIR}/src/garam/kernels/cuda/*.cpp")
add_library(garam_cuda STATIC ${sources})
target_include_directories(garam_cuda PUBLIC "${PROJECT_SOURCE_DIR}/src")
target_compile_options(garam_cuda PRIVATE
  $<$<COMPILE_LANGUAGE:CUDA>:--expt-relaxed-constexpr> $<$<COMPILE_LANGUAGE:CUDA>:-lineinfo>)
target_link_libraries(garam_cuda PUBLIC garam_core CUDA::cudart_static CUDA::cublasLt)
