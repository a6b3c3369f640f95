-- File = module = symbol prefix: a global symbol of x.c begins with x_, so that a name says where it lives.
local gate = require "gate"
local build = assert(arg[1], "usage: symbols_gate.lua BUILD_FOLDER")

--- Other prefixes that a file may use, by the file's path without its ending; the first that fits counts.
local exceptions = {
  {"^host/op/op$", "op_"},
  {"^host/op/apply$", "op_"},      -- the part of op.h that brings operands together
  {"^host/op/loop$", "op_"},       -- the parts of op.h that build nodes with regions
  {"^host/op/branch$", "op_"},
  {"^host/op/", "op_row_"},        -- families give rows and nothing else
  {"^host/pass/reshard$", "reshard"},
  {"^host/pass/flow$", "flow_"},
  {"^host/pass/fuse_", "fuse_"},   -- parts of fuse.h
  {"^host/pass/partition_control$", "partition_"}, -- parts of partition.h
  {"^host/pass/", "pass_"},        -- pass_<file>
  {"^host/base/map$", "hash_"},
  {"^host/base/str$", "bytes_text"},
  {"^host/ir/attr$", "scalar_"},
  {"^host/ir/layout$", "axes_"},
  {"^host/ir/print$", "graph_"},   -- parts of graph.h
  {"^host/ir/parse$", "graph_"},
  {"^host/ir/equal$", "graph_"},
  {"^host/ir/parse_", "parse_"},   -- parts of parse.h
  {"^host/ir/verify$", "graph_"},
  {"^host/run/bind$", "exec_"},    -- parts of exec.h
  {"^host/run/schedule$", "exec_"},
  {"^host/run/join$", "exec_"},
  {"^host/run/merge$", "exec_"},
  {"^host/run/launch$", "exec_"},
  {"^host/run/comm_local$", "exec_"},
  {"^host/run/link_", "link_"},    -- parts of link.h
  {"^host/mpi/mpi$", "comm_transport_open"},
  {"^host/cuda/cuda$", "device_"}, -- the symbols of run/gpu/device.h
  {"^host/cuda/plan$", "cuda_"},   -- the builder of kernels/cuda/row.h, beside plan_
  {"^host/cuda/products$", "cuda_"}, -- its part that calls cublasLt
  {"^host/run/profile_", "profile_"}, -- parts of profile.h
  {"^host/lua/core$", "luaopen_meshlua"},
  {"^host/lua/l?jit[a-z_]*$", "jit_"}, -- parts of jit.h and trace.h
  {"^host/lua/ltrace$", "trace_"},
  {"^host/main$", "main"},
  {"^embedded$", "core_"},         -- the generated half of core.c
  {"^embedded_cuda$", "source_"},  -- that of cuda/source.c
  {"^kernels/cuda/view$", "cuda_"},
  {"^kernels/cuda/rows$", "cuda_"},
  {"^kernels/cuda/fused_", "fused_"}, -- part of fused.c
  {"^kernels/", "k_"},
}

local function fits(module, symbol)
  local name = module:match "[^/]+$"
  if symbol:find("^" .. name .. "_") or symbol == name then return true end
  for _, row in ipairs(exceptions) do
    if module:find(row[1]) then
      local wanted = row[2] == "pass_" and "pass_" .. name or row[2]
      return symbol:sub(1, #wanted) == wanted
    end
  end
  return false
end

--- What a sanitizer, the compiler or the header of NVTX adds.
local function is_foreign(symbol)
  return symbol:find "^__" or symbol:find "^asan%." or symbol:find "^%.L"
    or symbol:find "^nvtx" or symbol == "InitializeInjectionNvtx2_fnptr"
end

local looked = 0
local command = ("find %s/CMakeFiles -name '*.c.o' -exec nm -A -g --defined-only {} +")
for _, line in ipairs(gate.output(command:format(build))) do
  local module, kind, symbol = line:match "%.dir/(.*)%.c%.o:%x* (%a) (%S+)$"
  if symbol and not is_foreign(symbol) and not (module:find "^tests/" or module:find "^bench/") then
    looked = looked + 1
    if not fits(module, symbol) then gate.fail(module .. ".c", "global symbol %s (%s)", symbol, kind) end
  end
end
gate.finish(looked, [[make the symbol static, or give it the file's name as prefix. A file that is one part of
another's header gets a row in `exceptions` of tests/gate/symbols_gate.lua.]])
