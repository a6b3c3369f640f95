-- No op has a hole: each has words, a gradient or the word that it has none, a sharding rule, and something
-- that runs it on every level of kernels. Its row stands in the file that the list of ops names.
local gate = require "gate"
require "meshlua"
local core = require "meshlua.core"
local program = require "meshlua.program"

local kernels = {}
for _, level in ipairs {"naive", "default", "v3", "v4"} do
  kernels[level] = program.kernels(level) -- nil: not for this processor
end

local looked = 0
for _, op in ipairs(core.ops()) do
  looked = looked + 1
  local function need(ok, what) if not ok then gate.fail("op " .. op.name, what) end end
  need(op.doc and #op.doc > 0, "it has no words (doc)")
  -- What the passes make: no gradient is ever taken of it, and its layout is its maker's business.
  local made = op.of_passes or op.runs == "collective"
  need(made or op.grad ~= "-",
    "it has no gradient and no word that it has none (vjp, expand or OPF_NO_GRAD)")
  -- a node with regions: the flow through them is its sharding rule (op_init holds it to have one)
  need(made or op.factors or op.runs == "control", "it has no sharding rule (factors)")
  need(made or op.batch or op.runs == "control", "it has no rule for many examples (batch)")
  local traced = op.name == "param" or op.name == "placeholder" or op.name == "gather_examples"
  need(traced or op.runs ~= "-",
    "nothing runs it (view, emit, instr, kernel, split or collective)")
  if not ({view = 1, fused = 1, collective = 1, control = 1, split = 1, ["-"] = 1})[op.runs] then
    for level, names in pairs(kernels) do
      need(names[op.runs], ("kernel '%s' is not in the table of level '%s'"):format(op.runs, level))
    end
  end
end
for name, family in gate.read("host/op/oplist.h"):gmatch "\nOP%(([%w_]+), ([%w_]+)%)" do
  looked = looked + 1
  local text = gate.read("host/op/" .. family .. ".c")
  if not text:find("op_row_" .. name .. "%f[^%w_]") and not text:find("%f[%w_]" .. name .. "%f[^%w_]") then
    gate.fail("op " .. name, "host/op/%s.c has no row of it", family)
  end
end

-- A struct that one file reads stands in that file.
local readers = {}
for _, file in ipairs(gate.files "^host/.*%.c$") do
  for name in gate.read(file):gmatch "%f[%w]%u%w*Attr%f[%W]" do
    readers[name] = readers[name] or {}
    readers[name][file] = true
  end
end
for name in gate.read("host/op/attrs.h"):gmatch "\n} (%w+);" do
  local first = next(readers[name] or {})
  looked = looked + 1
  if first and not next(readers[name], first) then
    gate.fail("host/op/attrs.h", name .. " is read by " .. first .. " alone: it stands there, beside the row")
  end
end
gate.finish(looked, [[fill the op's row in host/op/<family>.c; a kernel stands under its name in the rows at
the end of kernels/cpu/<family>.c and of kernels/cpu/naive_*.c.]])
