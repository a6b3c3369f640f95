# tests.cmake - every test as one entry of ctest: unit/LAYER/NAME, spec/NAME (and fault, fuzz, golden,
# ... by folder), gate/NAME.

# What only calls and compares is compiled without optimization: in a fifth of the time, which would be a fifth of
# a checked build's. Not so where it computes much itself.
function(plain_test target source)
  if(NOT source MATCHES "/kernels/test_(index|lines|misc|movement|rowwise)\\.c$")
    target_compile_options(${target} PRIVATE -O0)
  endif()
endfunction()

# ---- unit: those of a layer link that layer and the ones below it, so that a call upwards fails to
# link --------------------------------------------------------------------------------------------
function(unit_tests folder)
  file(GLOB_RECURSE tests CONFIGURE_DEPENDS RELATIVE ${CMAKE_SOURCE_DIR}/tests/unit/${folder}
       tests/unit/${folder}/test_*.c)
  foreach(test ${tests})
    set(source ${CMAKE_SOURCE_DIR}/tests/unit/${folder}/${test})
    string(REPLACE ".c" "" name ${test})
    string(MAKE_C_IDENTIFIER unit_${folder}_${name} target)
    add_executable(${target} ${source} ${ARGN})
    plain_test(${target} ${source})
    target_include_directories(${target} PRIVATE host kernels tests/unit)
    target_link_libraries(${target} PRIVATE m ${CMAKE_DL_LIBS} Threads::Threads PkgConfig::ZLIB
                                            PkgConfig::JANSSON)
    add_test(NAME unit/${folder}/${name} COMMAND ${target} WORKING_DIRECTORY ${CMAKE_SOURCE_DIR})
  endforeach()
endfunction()
set(below "")
foreach(name base ir op pass)
  list(APPEND below $<TARGET_OBJECTS:${name}>)
  unit_tests(${name} ${below})
endforeach()
unit_tests(run $<TARGET_OBJECTS:base> $<TARGET_OBJECTS:ir> $<TARGET_OBJECTS:run> ${kernel_objects})
unit_tests(kernels ${kernel_objects})

if(MPI_FOUND) # whose functions the test has itself
  add_executable(dist_test_mpi tests/dist/test_mpi.c $<TARGET_OBJECTS:meshlua_mpi>)
  target_include_directories(dist_test_mpi PRIVATE host kernels tests/unit)
  target_link_libraries(dist_test_mpi PRIVATE PkgConfig::MPI)
  add_test(NAME dist/test_mpi COMMAND dist_test_mpi)
  set_tests_properties(dist/test_mpi PROPERTIES ENVIRONMENT ASAN_OPTIONS=detect_leaks=0) # what MPI may still use
endif()

# Who attacks a job: see tests/dist/stranger_spec.lua.
add_executable(dist_stranger tests/dist/stranger.c $<TARGET_OBJECTS:base> $<TARGET_OBJECTS:ir>
                             $<TARGET_OBJECTS:run> ${kernel_objects})
target_include_directories(dist_stranger PRIVATE host kernels)
target_link_libraries(dist_stranger PRIVATE m ${CMAKE_DL_LIBS} Threads::Threads PkgConfig::ZLIB PkgConfig::JANSSON)

# What notes how files change, and makes such calls fail: see tests/fault/recorded.lua.
add_library(fault_recorder MODULE tests/fault/recorder.c)
target_link_libraries(fault_recorder PRIVATE ${CMAKE_DL_LIBS} Threads::Threads)
target_compile_options(fault_recorder PRIVATE -fvisibility=default)
set_target_properties(fault_recorder PROPERTIES PREFIX "")

# ---- fuzz/disk/NAME: readers of files of tensors, fed with what a driver makes of small ones -------
# In checked builds two seconds each, and the same inputs on every machine; more: build-checked/fuzz_disk_NAME
# --seconds=T FILE...
set(fuzz_length --count=20000)
if(MESHLUA_CHECKED)
  set(fuzz_length --count=200000)
endif()
foreach(name safetensors npy npz gguf)
  file(GLOB corpus CONFIGURE_DEPENDS tests/oracle/disk/*.${name})
  add_executable(fuzz_disk_${name} tests/fuzz/disk/${name}.c tests/fuzz/disk/main.c $<TARGET_OBJECTS:base>
                                   $<TARGET_OBJECTS:ir> $<TARGET_OBJECTS:run> ${kernel_objects})
  target_include_directories(fuzz_disk_${name} PRIVATE host kernels tests/fuzz/disk)
  target_link_libraries(fuzz_disk_${name} PRIVATE m ${CMAKE_DL_LIBS} Threads::Threads PkgConfig::ZLIB
                                                  PkgConfig::JANSSON)
  add_test(NAME fuzz/disk/${name} COMMAND fuzz_disk_${name} ${fuzz_length} ${corpus})
  if(MESHLUA_CHECKED)
    set_tests_properties(fuzz/disk/${name} PROPERTIES LABELS slow)
  endif()
endforeach()

# ---- pass/NAME: a pass alone, graph in and graph out --------------------------------------------
# Memory runs out in them everywhere: as in checked builds each piece is asked for on its own.
set(layers "")
foreach(name base ir op pass)
  list(APPEND layers "$<FILTER:$<TARGET_OBJECTS:${name}>,EXCLUDE,/base/(arena|map|vec)[.]>")
endforeach()
function(case_runner target)
  add_executable(${target} tests/cases.c ${ARGN} host/base/arena.c host/base/map.c host/base/vec.c ${layers})
  target_compile_definitions(${target} PRIVATE MESHLUA_CHECKED)
  target_include_directories(${target} PRIVATE host kernels tests)
  target_link_libraries(${target} PRIVATE m ${CMAKE_DL_LIBS} Threads::Threads)
endfunction()
case_runner(pass_cases tests/pass/run.c tests/pass/plan_text.c)
file(GLOB folders CONFIGURE_DEPENDS RELATIVE ${CMAKE_SOURCE_DIR}/tests tests/pass/*)
foreach(folder ${folders})
  if(IS_DIRECTORY ${CMAKE_SOURCE_DIR}/tests/${folder})
    add_test(NAME ${folder} COMMAND pass_cases tests/${folder} WORKING_DIRECTORY ${CMAKE_SOURCE_DIR})
  endif()
endforeach()

# ---- op: the shape, factors and vjp of every row of the table, each alone -------------------------
case_runner(op_cases tests/op/run.c)
add_test(NAME op COMMAND op_cases tests/op WORKING_DIRECTORY ${CMAKE_SOURCE_DIR})
case_runner(op_parse tests/unit/op/test_parse.c)
target_include_directories(op_parse PRIVATE tests/unit)
add_test(NAME op/parse COMMAND op_parse 100)

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
# What others start removes what it leaves on purpose.
set_tests_properties(dist/segments PROPERTIES RUN_SERIAL ON)

# ---- tiers: what takes more than two seconds of a core, or waits for long; the longest begin first.
# `script/test --quick` leaves them out.
set(slow
    spec/misuse dist/mpi cuda/epilogue fault/core fault/ops cuda/run fault/kill spec/train/resume
    spec/transform/vmap_ops spec/plan/plan spec/nn/pretrained spec/fuzz dist/hosts dist/data
    dist/fault spec/train/program golden/gpt3 repl/sessions dist/replicas dist/stranger
    unit/kernels/test_rowwise spec/insight/proposals spec/insight/processor spec/insight/sound
    spec/plan/page spec/convnet dist/exchange spec/docs spec/train/inspect
    unit/kernels/test_matmul spec/manager golden/plan spec/op/sharded spec/locale spec/op/gradient
    spec/checkpoint/save dist/checkpoint unit/kernels/test_attention spec/dtype
    unit/run/job/test_channel cuda/failures cuda/processes cuda/kernels/rowwise cuda/kernels/reduce
    cuda/kernels/lines dist/agree dist/seeds dist/processes dist/stop dist/transfer spec/jit
    unit/kernels/test_movement spec/op/value spec/checkpoint/verbs golden/device cuda/algorithm
    unit/kernels/test_reduce cuda/sharded spec/random cuda/kernels/attention spec/layout/reshard
    cuda/kernels/attention_wgmma spec/attribute cuda/kernels/attention_mma unit/kernels/test_misc
    spec/manual/fuzz spec/train/memory unit/kernels/test_lines spec/init spec/train/layout
    spec/nn/smollm dist/files repl/complete fault/power dist/output spec/scale spec/insight/reasons
    spec/checkpoint/map spec/control/carries spec/manual/meshes spec/interrupt unit/kernels/test_index
    unit/run/disk/test_direct unit/kernels/test_fused unit/kernels/test_conv cuda/kernels/movement
    spec/train/leaves_runs)
set(next # those that would else begin last, and be what is waited for
    spec/mlp spec/program spec/nn/llama spec/transfer spec/train/precision spec/plan/estimate pass/define
    spec/manual/oracle op/parse)
set(once # of whole programs or of Lua, whose C others run: where sanitizers watch, by name alone
    fault/kill fault/power dist/hosts dist/output dist/replicas dist/seeds dist/stop golden/gpt3 repl/complete
    spec/insight/proposals spec/plan/page spec/plan/plan spec/train/resume spec/train/inspect
    spec/train/guard spec/train/replay spec/train/trained spec/train/program spec/chat/chat
    spec/data/shards spec/train/leaves_runs)
set(cost 1000)
foreach(name ${slow} ${next})
  if(TEST ${name})
    set_tests_properties(${name} PROPERTIES COST ${cost})
    math(EXPR cost "${cost} - 1")
  elseif(NOT name MATCHES "^cuda/" OR (TARGET cuda_kernels_attention AND NOT MESHLUA_SANITIZE))
    message(FATAL_ERROR "tests/tests.cmake: ${name} is among the slow tests, and is none")
  endif()
  if(TEST ${name} AND NOT name IN_LIST next)
    set_property(TEST ${name} PROPERTY LABELS slow)
  endif()
endforeach()
foreach(name ${once})
  set_property(TEST ${name} APPEND PROPERTY LABELS once)
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
  add_test(NAME gate/luacheck COMMAND ${LUACHECK} --quiet --no-color bench/worker.lua bench/processes.lua bench/gpu bench/rows docs lualib models tests
           WORKING_DIRECTORY ${CMAKE_SOURCE_DIR})
  set_tests_properties(gate/luacheck PROPERTIES COST 900) # of those that are not slow the longest
endif()
