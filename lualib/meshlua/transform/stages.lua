-- stages.lua: what a jitted function becomes for certain arguments, step by step: step:trace(...) the ops as
-- written, step:lower(...) the program of one device with its collectives, compile() what runs. Nothing runs
-- on the way; arguments may be types (ml.ShapeDtypeStruct, ml.abstract).
local core = require "meshlua.core"
local lib = require "meshlua.lib"
local tree = require "meshlua.tree"

local raise = lib.raise

local M = {}

--- The stages in their order, as --dump names them; expand is there only where it is switched on.
local STAGES = core.stages()

--- Arguments with tensors without values in the place of types.
local function with_structs(args)
  for i = 1, args.n do
    local structs = {}
    tree.visit(args[i], function(_, leaf)
      if getmetatable(leaf) == tree.TensorType then
        structs[leaf] = core.shape_dtype_struct(leaf.shape, leaf.dtype, leaf.sharding)
      end
    end)
    if next(structs) then args[i] = tree.replace(args[i], structs) end
  end
  return args
end

--- A tree like x with fn(leaf) for each tensor; numbers among the arguments are scalars.
local function mapped(x, fn)
  if type(x) == "number" then x = core.tensor(x) end
  return tree.map_with_path(function(_, leaf) return fn(leaf) end, x)
end

local function each(list, fn)
  local out = {}
  for i = 1, list.n do out[i] = mapped(list[i], fn) end
  return out
end

-- ---- Traced, Lowered, Compiled: views of one table of facts, {program, texts, plan, args, results} --------

---@class Traced
---@class Lowered
---@class Compiled
local Traced, Lowered, Compiled = {}, {}, {}

local function facts_of(step, ...)
  local args = with_structs(table.pack(...))
  local all = table.pack(core.jit_lower(step, table.unpack(args, 1, args.n)))
  local facts, texts = {program = all[1], plan = all[3], args = args}, {}
  for stage, text in all[2]:gmatch "%z([%l_]+)%z([^%z]*)" do texts[stage] = text end
  facts.texts, facts.results = texts, table.pack(table.unpack(all, 4, all.n))
  return facts
end

local function text_of(who, facts, stage)
  local text = facts.texts[stage]
  if not text then
    local near = lib.nearest(tostring(stage), STAGES)
    raise("E_KEY", "%s: there is no stage '%s'%s; there are %s", who, stage,
      near and " (did you mean '" .. near .. "'?)" or "", table.concat(STAGES, ", "))
  end
  return text
end

local function view(class, facts) return setmetatable({facts = facts}, class) end

--- The program as written, and the types of what goes in and comes out: a list with a tree for each argument
--- and for each value.
function Traced:as_text() return text_of("as_text", self.facts, "trace") end
function Traced:lower() return view(Lowered, self.facts) end

--- The program of one device, in local shapes, with its collectives; or as it is after another stage.
---@param stage string? default "comm"
---@return string
function Lowered:as_text(stage) return text_of("as_text", self.facts, stage or "comm") end
function Lowered:compile() return view(Compiled, self.facts) end

--- The plan: its steps and where their memory lies; or the program after another stage.
---@param stage string? default "plan"
---@return string
function Compiled:as_text(stage) return text_of("as_text", self.facts, stage or "plan") end

--- What a call costs each device: {flops, bytes_accessed (memory read and written), bytes_sent (by collectives),
--- collectives (how many), optimal_seconds (at the speed of the target, nothing overlapping)}.
---@return {flops: number, bytes_accessed: number, bytes_sent: number, collectives: integer, optimal_seconds: number}
function Compiled:cost_analysis()
  local plan = self.facts.plan
  local cost = {flops = plan:flops(), bytes_accessed = 0.0, bytes_sent = 0.0, collectives = 0,
    optimal_seconds = 0.0}
  for _, s in ipairs(plan:steps()) do
    cost.bytes_accessed = cost.bytes_accessed + s.traffic
    cost.optimal_seconds = cost.optimal_seconds + s.seconds
    if s.axes then
      cost.bytes_sent, cost.collectives = cost.bytes_sent + s.sent, cost.collectives + 1
    end
  end
  return cost
end

--- What a call holds on each device, in bytes: {argument_size_in_bytes, output_size_in_bytes, temp_size_in_bytes,
--- alias_size_in_bytes (of the outputs, what lies in donated arguments), peak_memory_in_bytes}.
---@return table<string, number>
function Compiled:memory_analysis()
  local memory = self.facts.plan:memory()
  return {argument_size_in_bytes = memory.arguments, output_size_in_bytes = memory.results + memory.aliased,
    temp_size_in_bytes = memory.temporaries, alias_size_in_bytes = memory.aliased,
    peak_memory_in_bytes = memory.peak}
end

--- Runs it. Raises E_VALUE, naming each argument that is not as it was compiled for.
function Compiled:__call(...) return self.facts.program(...) end

-- ---- fields ------------------------------------------------------------------------------------------------

local function type_of(leaf)
  local sharding = leaf.sharding
  return setmetatable({shape = leaf.shape, dtype = leaf.dtype, ndim = leaf.ndim, size = leaf.size,
    sharding = sharding.mesh and sharding or nil}, tree.TensorType)
end
local function sharding_of(leaf) return leaf.sharding end

local types = {in_avals = function(facts) return each(facts.args, type_of) end,
  out_avals = function(facts) return each(facts.results, type_of) end}
local placed = {in_avals = types.in_avals, out_avals = types.out_avals,
  input_shardings = function(facts) return each(facts.args, sharding_of) end,
  output_shardings = function(facts) return each(facts.results, sharding_of) end}

for name, entry in pairs {Traced = {Traced, types}, Lowered = {Lowered, types},
  Compiled = {Compiled, placed}} do
  local class, fields = entry[1], entry[2]
  lib.hold(class, name .. ":")
  lib.export_checked(class, name .. ":")
  class.__name, class.__tostring = name, class.as_text
  class.__index = function(self, key)
    local field = fields[key]
    if field then return field(rawget(self, "facts")) end
    return class[key] or lib.unknown(name, key)
  end
end

-- ---- methods of jitted functions -----------------------------------------------------------------------------

--- Traces for these arguments, and shows the ops as written.
local function trace(step, ...) return view(Traced, facts_of(step, ...)) end

--- Lowers for these arguments: for one device, with collectives.
local function lower(step, ...) return view(Lowered, facts_of(step, ...)) end

local plan = core.methods("meshlua.jit").plan
local methods = {trace = trace, lower = lower, plan = function(step, ...)
  local args = with_structs(table.pack(...))
  return plan(step, table.unpack(args, 1, args.n))
end}
for name, fn in pairs(methods) do core.methods("meshlua.jit")[name] = core.wrap(fn, false, "jit:" .. name) end

return M
