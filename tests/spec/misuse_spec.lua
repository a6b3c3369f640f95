-- misuse_spec.lua: every public function works or raises an error of the form "file:line: [E_CODE] text" at the
-- caller's line, whatever it is called with; and leaves everything usable.
local helper = require "spec.helper"
local misuse = require "spec.misuse"
local ml = require "meshlua"

local core = ml.core
local DRAWN = helper.watched and 5 or 25 -- lists of arguments that are drawn for each function

local function tensor() return ml.reshape(ml.arange(6.0), {2, 3}) end
local function ids() return ml.tensor {0, 1} end
local function mesh() return ml.make_mesh({ml.device_count()}, {"data"}) end

--- The names of a table's functions, in order.
local function functions(t)
  local names = {}
  for name, value in pairs(t) do
    if type(value) == "function" then names[#names + 1] = name end
  end
  table.sort(names)
  return names
end

local function check_usable(where)
  assert(not core.is_tracing(), where .. ": a trace is left open")
  assert(core.mesh_current() == nil and core.rules_current() == nil, where .. ": a context is left")
end

--- Is this an error as errors must be? Its place is the line of misuse.lua that calls.
local function is_good(message, anywhere)
  if type(message) ~= "string" then return false end
  local place = anywhere and "[^\n]-" or "[^\n]-misuse%.lua"
  return message == "raised" or message:find("^" .. place .. ":%d+: %[E_%u+%] ") ~= nil
end

local function check(name, fn, first, anywhere)
  local bad = {}
  misuse.call(fn, first, DRAWN, function(arguments, ok, result)
    local where = ("%s(%s)"):format(name, arguments)
    check_usable(where)
    if not ok and not is_good(result, anywhere) then bad[#bad + 1] = where .. ": " .. tostring(result) end
  end)
  if #bad > 0 then error(("%d calls end badly, as\n  %s"):format(#bad, table.concat(bad, "\n  ", 1,
    math.min(#bad, 5)))) end
end

--- A test for each function of a table.
local function describe_all(prefix, t, first, except)
  for _, name in ipairs(functions(t)) do
    if not (except and except[name]) then
      it(prefix .. name, function() check(prefix .. name, t[name], first) end)
    end
  end
end

-- What lasts is looked at below.
local lasts = {set_mesh = true, ["random.debug_key_reuse"] = true}

describe("called with anything,", function()
  for _, called in ipairs(misuse.rows()) do
    local row = called.row
    if not lasts[row.name] then
      it(row.name, function() check(row.name, misuse.bound(called), misuse.firsts(row)) end)
    end
  end
  describe_all("Param:", core.methods "meshlua.Param", {function() return core.box_new(tensor(),
    {kind = "param"}) end})
  describe_all("ml.remat_policies.", ml.remat_policies, {})

  for name, fn in pairs {
    ["a jitted function"] = ml.jit(function(...) return ... end),
    ["a gradient"] = ml.grad(function(x) return ml.sum(x) end),
    ["a pullback"] = select(2, ml.vjp(function(x) return x * 2 end, tensor())),
    ["a field of a tensor"] = function(...) return tensor()[...] end,
    ["a field of a mesh"] = function(...) return mesh()[...] end,
    ["an entry of a P"] = function(...) return ml.P("a", nil)[...] end,
    ["ml.random.debug_key_reuse"] = function(...)
      ml.random.debug_key_reuse(...)
      ml.random.debug_key_reuse(false)
    end,
    ["ml.set_mesh"] = function(...)
      local _ <close> = ml.set_mesh(...)
    end,
    ["tostring"] = function(...) return (...) == nil or tostring((...)) end,
    ["an operator"] = function(x, y) return tensor() + x, y * tensor() end,
  } do
    it(name, function() check(name, fn, {tensor}, name:find " a" or name:find "operator"
      or name == "a gradient" or name:find "^ml") end)
  end
end)

describe("drawn calls,", function()
  -- Others, or more of them: meshlua -e "CALLS=1000000 SEED=7" tests/specs.lua tests/spec/misuse_spec.lua
  local calls, seed = rawget(_G, "CALLS"), rawget(_G, "SEED")
  local log = rawget(_G, "LOG") -- a file: the call under way, for one that does not return

  it("by the types of their rows, work or raise", function()
    local bad, count = {}, calls or helper.watched and 2000 or 30000
    misuse.seed(seed or 1)
    misuse.draw(misuse.rows(), count, function(call, ok, result)
      check_usable(call)
      if not ok and not is_good(result) then bad[#bad + 1] = call .. ": " .. tostring(result) end
    end, log and function(call)
      local file <close> = assert(io.open(log, "w"))
      file:write(call)
    end)
    if #bad > 0 then
      error(("%d of %d calls end badly, as\n  %s"):format(#bad, count, table.concat(bad, "\n  ", 1,
        math.min(#bad, 20))))
    end
  end)
end)

describe("called with anything, the core's", function()
  -- What they do is meant for tests, lasts, writes files, or runs commands.
  local except = {fail_alloc = true, set_devices = true, make_folder = true, truncate = true, dump = true,
    expand = true, npz = true, set_mesh = true, plant = true, profile_start = true, on_misuse = true,
    pipe = true}
  describe_all("core.", core, {tensor}, except)
  describe_all("op.", core.op, {tensor, ids})
end)

describe("afterwards", function()
  it("everything works as before", function()
    check_usable("at the end")
    local step = ml.jit(function(x) return (x * 2):sum() end)
    assert.equal(30.0, step(tensor()):item())
    assert.same({0.0, 2.0, 4.0}, ml.grad(function(x) return (x * x):sum() end)(tensor()):totable()[1])
    helper.raises("[E_SHAPE] matmul", ml.matmul, tensor(), tensor())
  end)
end)
