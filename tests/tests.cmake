# tests.cmake - every test as one entry of ctest: unit/LAYER/NAME, spec/NAME (and fault, fuzz, golden,
# ... by folder), gate/NAME.

# ---- unit: those of a layer link that layer and the ones below it, so that a call upwards fails to
# link --------------------------------------------------------------------------------------------
function(unit_tests folder)
  file(GLOB tests CONFIGURE_DEPENDS tests/unit/${folder}/test_*.c)
  foreach(source ${tests})
    get_filename_component(name ${source} NAME_WE)
    set(target unit_${folder}_${name})
    add_executable(${target} ${source} ${ARGN})
    target_include_directories(${target} PRIVATE host kernels tests/unit)
    target_link_libraries(${target} PRIVATE m ${CMAKE_DL_LIBS} Threads::Threads)
    add_test(NAME unit/${folder}/${name} COMMAND ${target})
  endforeach()
endfunction()
set(below "")
foreach(name base ir op pass)
  list(APPEND below $<TARGET_OBJECTS:${name}>)
  unit_tests(${name} ${below})
endforeach()
unit_tests(run $<TARGET_OBJECTS:base> $<TARGET_OBJECTS:ir> $<TARGET_OBJECTS:run> ${kernel_objects})
unit_tests(kernels ${kernel_objects})

# Who attacks a job: see tests/dist/stranger_spec.lua.
add_executable(dist_stranger tests/dist/stranger.c $<TARGET_OBJECTS:base> $<TARGET_OBJECTS:ir>
                             $<TARGET_OBJECTS:run> ${kernel_objects})
target_include_directories(dist_stranger PRIVATE host kernels)
target_link_libraries(dist_stranger PRIVATE m ${CMAKE_DL_LIBS} Threads::Threads)

# ---- pass/NAME: a pass alone, graph in and graph out --------------------------------------------
add_executable(pass_cases tests/pass/run.c $<TARGET_OBJECTS:base> $<TARGET_OBJECTS:ir>
                          $<TARGET_OBJECTS:op> $<TARGET_OBJECTS:pass>)
target_include_directories(pass_cases PRIVATE host kernels)
target_link_libraries(pass_cases PRIVATE m ${CMAKE_DL_LIBS} Threads::Threads)
file(GLOB folders CONFIGURE_DEPENDS RELATIVE ${CMAKE_SOURCE_DIR}/tests tests/pass/*)
foreach(folder ${folders})
  if(IS_DIRECTORY ${CMAKE_SOURCE_DIR}/tests/${folder})
    add_test(NAME ${folder} COMMAND pass_cases tests/${folder} WORKING_DIRECTORY ${CMAKE_SOURCE_DIR})
  endif()
endforeach()

include(${CMAKE_SOURCE_DIR}/tests/cuda/cuda.cmake)

# ---- specs: busted, run by the program. "-- devices: 8" in a spec's first line is its --devices --
file(GLOB_RECURSE specs CONFIGURE_DEPENDS RELATIVE ${CMAKE_SOURCE_DIR}/tests tests/*_spec.lua)
foreach(spec ${specs})
  set(file ${CMAKE_SOURCE_DIR}/tests/${spec})
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${file})
  file(STRINGS ${file} first LIMIT_COUNT 1)
  set(flags "")
  if(first MATCHES "^-- devices: *([^ ]+)")
    set(flags --devices=${CMAKE_MATCH_1})
  endif()
  if(MESHLUA_SANITIZE)
    list(APPEND flags -e "SANITIZE='${MESHLUA_SANITIZE}'")
  endif()
  string(REPLACE "_spec.lua" "" name ${spec})
  add_test(NAME ${name} COMMAND meshlua ${flags} tests/specs.lua tests/${spec}
           WORKING_DIRECTORY ${CMAKE_SOURCE_DIR})
  if(name MATCHES "^cuda/") # the leak sanitizer does not get by the libraries of CUDA
    set_tests_properties(${name} PROPERTIES ENVIRONMENT ASAN_OPTIONS=detect_leaks=0)
  endif()
endforeach()

# ---- tiers: what takes more than about three seconds of a core, the longest first, which so begin
# first, too. `script/test --quick` leaves them out --------------------------------------------------
set(slow
    dist/mpi fault/ops fault/core golden/gpt3 spec/misuse spec/convnet spec/op/sharded spec/jit
    dist/fault dist/data spec/transform/vmap_ops cuda/join golden/plan golden/device
    spec/layout/reshard spec/op/value cuda/merge dist/run cuda/processes spec/train/program
    spec/random dist/agree spec/op/gradient spec/train/layout dist/seeds spec/attribute
    spec/dtype spec/train/memory spec/manual/fuzz dist/stop spec/fuzz unit/kernels/test_rowwise
    spec/init cuda/kernels/rowwise cuda/run cuda/sharded cuda/kernels/reduce
    unit/kernels/test_matmul spec/mlp spec/insight/reasons spec/program spec/train/precision
    dist/output cuda/kernels/attention_wgmma unit/run/test_channel unit/kernels/test_movement
    spec/layout/placement cuda/kernels/lines cuda/kernels/attention)
set(cost 1000)
foreach(name ${slow})
  if(TEST ${name})
    set_tests_properties(${name} PROPERTIES LABELS slow COST ${cost})
    math(EXPR cost "${cost} - 1")
  elseif(NOT name MATCHES "^cuda/")
    message(FATAL_ERROR "tests/tests.cmake: ${name} is among the slow tests, and is none")
  endif()
endforeach()

# ---- gates: what holds for the tree as a whole; once is enough ----------------------------------
if(MESHLUA_SANITIZE)
  return()
endif()
file(GLOB gates CONFIGURE_DEPENDS tests/gate/*_gate.lua)
foreach(gate ${gates})
  get_filename_component(name ${gate} NAME_WE)
  string(REPLACE "_gate" "" name ${name})
  add_test(NAME gate/${name} COMMAND meshlua ${gate} ${CMAKE_BINARY_DIR}
           WORKING_DIRECTORY ${CMAKE_SOURCE_DIR})
  set_tests_properties(gate/${name} PROPERTIES SKIP_RETURN_CODE 77)
endforeach()
find_program(LUACHECK luacheck)
if(LUACHECK)
  add_test(NAME gate/luacheck COMMAND ${LUACHECK} --quiet --no-color bench/worker.lua bench/processes.lua bench/gpu bench/rows lualib models tests
           WORKING_DIRECTORY ${CMAKE_SOURCE_DIR})
endif()
