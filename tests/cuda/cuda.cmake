# cuda.cmake - what is tested of CUDA without a GPU: a CUDA of our own that runs on the CPU
# (standin/), and the tests that go through it. Only where the toolkit's headers and a C++ compiler
# are found.
include(CheckLanguage)
check_language(CXX)
if(NOT CUDA_INCLUDE OR NOT CMAKE_CXX_COMPILER)
  return()
endif()
enable_language(CXX)

# ---- the stand-ins: libraries of the same names, in a folder of their own -----------------------
set(standin_source ${CMAKE_SOURCE_DIR}/tests/cuda/standin)
set(standin ${CMAKE_BINARY_DIR}/standin)
function(standin_library target file)
  add_library(${target} SHARED ${ARGN})
  set_target_properties(${target} PROPERTIES PREFIX "" OUTPUT_NAME ${file} SUFFIX ""
                                             LIBRARY_OUTPUT_DIRECTORY ${standin}
                                             LINKER_LANGUAGE CXX)
  target_include_directories(${target} SYSTEM PRIVATE ${CUDA_INCLUDE})
  target_include_directories(${target} PRIVATE ${standin_source})
  target_compile_features(${target} PRIVATE cxx_std_17)
  target_compile_options(${target} PRIVATE $<$<CONFIG:Release>:-O2;-g1>) # as the rest
endfunction()

set(cudart_sources fiber block warp device stream memory isolate library)
list(TRANSFORM cudart_sources PREPEND ${standin_source}/)
list(TRANSFORM cudart_sources APPEND .cpp)
standin_library(standin_cudart libcudart.so.13 ${cudart_sources})
standin_library(standin_nvrtc libnvrtc.so.13 ${standin_source}/nvrtc.cpp)
target_compile_definitions(standin_nvrtc PRIVATE STANDIN_CXX="${CMAKE_CXX_COMPILER}"
                                                 STANDIN_SHIM="${standin_source}/shim.h")
standin_library(standin_cublaslt libcublasLt.so.13 ${standin_source}/cublaslt.c)
target_link_libraries(standin_cublaslt PRIVATE standin_cudart m)

if(NCCL_INCLUDE)
  standin_library(standin_nccl libnccl.so.2 ${standin_source}/nccl.c)
  target_include_directories(standin_nccl SYSTEM PRIVATE ${NCCL_INCLUDE})
  target_link_libraries(standin_nccl PRIVATE standin_cudart Threads::Threads)
endif()

# ---- the stand-ins themselves ---------------------------------------------------------------------
add_executable(cuda_test_standin ${standin_source}/test_standin.cpp)
target_include_directories(cuda_test_standin SYSTEM PRIVATE ${CUDA_INCLUDE})
target_include_directories(cuda_test_standin PRIVATE ${standin_source} tests/unit)
target_link_libraries(cuda_test_standin PRIVATE standin_cudart standin_nvrtc)
add_test(NAME cuda/standin COMMAND cuda_test_standin)
foreach(which wild stuck large several)
  add_test(NAME cuda/standin_${which} COMMAND cuda_test_standin ${which})
endforeach()
if(MESHLUA_SANITIZE MATCHES address) # which ends the process
  set_tests_properties(cuda/standin_wild PROPERTIES WILL_FAIL ON)
endif()

# ---- the library of GPUs over them ----------------------------------------------------------------
if(NCCL_INCLUDE AND TARGET meshlua_cuda)
  file(MAKE_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
  add_executable(cuda_test_nccl tests/cuda/test_nccl.c)
  target_include_directories(cuda_test_nccl PRIVATE host kernels tests/unit)
  target_link_libraries(cuda_test_nccl PRIVATE ${CMAKE_DL_LIBS})
  add_dependencies(cuda_test_nccl standin_nccl meshlua_cuda)
  add_test(NAME cuda/nccl COMMAND cuda_test_nccl $<TARGET_FILE:meshlua_cuda> ${CMAKE_BINARY_DIR}/tests)
  set_tests_properties(cuda/nccl PROPERTIES ENVIRONMENT LD_LIBRARY_PATH=${standin}
                                            FAIL_REGULAR_EXPRESSION "standin:") # its complaints
endif()

# ---- rows: what they ask for, without the library that runs it -----------------------------------
add_executable(cuda_test_products tests/cuda/test_products.c kernels/cuda/matmul.c
               kernels/cuda/view.c ${kernel_objects})
target_include_directories(cuda_test_products PRIVATE kernels tests/unit tests/unit/kernels)
target_link_libraries(cuda_test_products PRIVATE m)
add_test(NAME cuda/products COMMAND cuda_test_products)

if(TARGET meshlua_cuda)
  add_executable(cuda_test_rows tests/cuda/test_rows.c $<TARGET_OBJECTS:meshlua_cuda>
                 $<TARGET_OBJECTS:cuda_host> ${kernel_objects})
  target_include_directories(cuda_test_rows PRIVATE kernels tests/unit)
  target_link_libraries(cuda_test_rows PRIVATE PkgConfig::XXHASH Threads::Threads
                                               ${CMAKE_DL_LIBS} m)
  add_test(NAME cuda/rows COMMAND cuda_test_rows)
endif()

# ---- host/cuda over the stand-ins, with kernels that only these tests know --------------------------
foreach(name device cache failures choice)
  set(target cuda_test_${name})
  add_executable(${target} tests/cuda/test_${name}.c tests/cuda/rows.c kernels/cuda/launches.c
                 $<TARGET_OBJECTS:cuda_host>)
  target_include_directories(${target} SYSTEM PRIVATE ${CUDA_INCLUDE})
  target_include_directories(${target} PRIVATE host kernels tests/unit)
  target_link_libraries(${target} PRIVATE standin_cudart PkgConfig::XXHASH Threads::Threads
                                          ${CMAKE_DL_LIBS} m)
  add_test(NAME cuda/${name} COMMAND ${target})
  set_tests_properties(cuda/${name} PROPERTIES ENVIRONMENT
                       "LD_LIBRARY_PATH=${standin};STANDIN_MEMORY=268435456")
endforeach()
set_property(TEST cuda/failures APPEND PROPERTY ENVIRONMENT
             "STANDIN_GPUS=2;STANDIN_MEMORY=100000000;GLIBC_TUNABLES=glibc.malloc.tcache_count=0") # which counts as in use

# ---- kernels: the unit tests of the CPU's, compiled once more for a GPU ---------------------------
# A file of the cache is good for one version of the stand-ins: they are part of its folder's name.
file(GLOB standin_files CONFIGURE_DEPENDS ${standin_source}/*)
set(standin_text "")
foreach(file ${standin_files})
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${file})
  file(SHA256 ${file} hash)
  string(APPEND standin_text ${hash})
endforeach()
string(SHA256 standin_hash "${standin_text}")
string(SUBSTRING ${standin_hash} 0 12 standin_hash)
set(standin_cache ${standin}/cache-${standin_hash})

if(NOT TARGET meshlua_cuda)
  return()
endif()
function(kernel_test name source)
  set(target cuda_kernels_${name})
  add_executable(${target} ${source} ${kernel_objects})
  plain_test(${target} ${CMAKE_SOURCE_DIR}/${source})
  target_include_directories(${target} PRIVATE host kernels tests/unit
                             tests/unit/kernels tests/cuda)
  target_compile_definitions(${target} PRIVATE KC_CUDA KC_LIBRARY="$<TARGET_FILE:meshlua_cuda>")
  target_link_libraries(${target} PRIVATE m ${CMAKE_DL_LIBS} Threads::Threads)
  add_dependencies(${target} meshlua_cuda standin_cudart standin_nvrtc standin_cublaslt)
  add_test(NAME cuda/kernels/${name} COMMAND ${target})
  set_tests_properties(cuda/kernels/${name} PROPERTIES ENVIRONMENT
                       "LD_LIBRARY_PATH=${standin};${ARGN}")
  file(APPEND ${kernel_list} "${target}\n")
endfunction()
set(kernel_list ${CMAKE_BINARY_DIR}/cuda_kernels.txt) # for script/test-gpu
file(WRITE ${kernel_list} "")
set(kernel_families attention conv fused index lines matmul misc movement reduce rowwise window)
if(MESHLUA_SANITIZE) # these compile the most variants
  list(REMOVE_ITEM kernel_families lines reduce rowwise)
endif()
foreach(name ${kernel_families})
  kernel_test(${name} tests/unit/kernels/test_${name}.c KC_CACHE=${standin_cache})
endforeach()
# Their device code through the real NVRTC, where it is found; KC_CASES=0 KC_COMPILE=0: all of it.
find_library(CUDA_NVRTC libnvrtc.so.13 HINTS ${CUDA_INCLUDE}/../lib64 ${CUDA_INCLUDE}/../lib)
if(CUDA_NVRTC AND NOT MESHLUA_SANITIZE)
  add_library(strict_nvrtc SHARED tests/cuda/strict_nvrtc.c)
  set_target_properties(strict_nvrtc PROPERTIES PREFIX "" OUTPUT_NAME libnvrtc.so.13 SUFFIX ""
                                                LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/strict)
  target_include_directories(strict_nvrtc SYSTEM PRIVATE ${CUDA_INCLUDE})
  target_compile_definitions(strict_nvrtc PRIVATE STRICT_NVRTC="${CUDA_NVRTC}")
  target_link_libraries(strict_nvrtc PRIVATE ${CMAKE_DL_LIBS})
  foreach(name attention conv index lines matmul misc movement reduce rowwise window)
    add_dependencies(cuda_kernels_${name} strict_nvrtc)
    add_test(NAME cuda/compiles/${name} COMMAND cuda_kernels_${name})
    set_tests_properties(cuda/compiles/${name} PROPERTIES ENVIRONMENT
                         "LD_LIBRARY_PATH=${CMAKE_BINARY_DIR}/strict;KC_COMPILE=1")
  endforeach()
endif()
# Without a folder no algorithm is timed: the log has what was launched.
kernel_test(cublaslt tests/cuda/test_cublaslt.c KC_CASES=0
            STANDIN_CUBLASLT_LOG=${standin}/cublaslt.log)

# Attention with whole blocks, by the products of warps and by those of warpgroups.
if(MESHLUA_SANITIZE)
  return()
endif()
foreach(products mma wgmma)
  set(name cuda/kernels/attention_${products})
  set(variables "LD_LIBRARY_PATH=${standin};KC_CACHE=${standin_cache};KC_CASES=0")
  if(products STREQUAL wgmma)
    list(APPEND variables KC_WGMMA=1)
  endif()
  add_test(NAME ${name} COMMAND cuda_kernels_attention blocks)
  set_tests_properties(${name} PROPERTIES ENVIRONMENT "${variables}")
endforeach()
