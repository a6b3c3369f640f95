-- checks.lua: what only data shows, looked for on request: a step's values are computed once, its results go
-- nowhere.
local alone = require "meshlua.insight.alone"
local core = require "meshlua.core"
local lib = require "meshlua.lib"
local ops = require "meshlua.ops"

local M = {}

local FEW = 8 -- elements: shards that small may be alike by chance

local function line_of(node) return node.where:match "^(.-:%d+)" or node.where end

local function bytes_of(x) return core.put_across(x):bytes() end

--- The shards of a tensor by their bytes.
local function shards_by_bytes(x)
  local by_text = {}
  for _, shard in ipairs(x:addressable_shards()) do
    local text = shard.data:bytes()
    by_text[text] = by_text[text] or {}
    table.insert(by_text[text], shard)
  end
  return by_text
end

--- Is a value inside shard_map the same on all devices along the axes that it may differ along?
local function equal_blocks(x, value)
  local all = core.put_across(x.run({x.program:blocks(value)})[1])
  local text = all:bytes()
  local each = #text // all.shape[1]
  return text:sub(1, -each - 1) == text:sub(each + 1)
end

-- ---- the checks: each gets x {program, params, inputs, nodes, def (value -> node), mesh, marks} and
-- add(cause, line, mend) --

local checks = {}

--- Shards of an input that hold the same rows.
function checks.equal_shards(x, add)
  for i, p in ipairs(x.params) do
    local own = x.inputs[i]
    if not p.state and p.sharding and p.part < p.bytes and own.size > FEW then
      for text, shards in pairs(shards_by_bytes(own)) do
        local places, seen = {}, {}
        for _, s in ipairs(shards) do
          local words = {}
          for d, range in ipairs(s.index) do words[d] = range[1] .. ":" .. range[2] end
          local place = table.concat(words, ",")
          if not seen[place] then seen[place], places[#places + 1] = true, s.device end
        end
        local each = p.bytes // own.size
        local constant = text:sub(1, -each - 1) == text:sub(each + 1) or #text <= FEW * each
        if #places > 1 and not constant then
          add(("argument %s: devices %s hold the same rows as parts of one batch"):format(p.name,
            table.concat(places, ", ", 1, math.min(#places, 4))), nil,
            "let each process read its own part of the data: rows by process_index()")
          break
        end
      end
    end
  end
end

--- The nodes' operands of that name; nil where it has none.
local function operand(node, name)
  local k = 0
  for word in node.operands:gmatch "[^,]+" do
    k = k + 1
    if word == name then return node.inputs[k] end
  end
end

--- Is all that the value is made of met in the trace, and no argument or state?
local function is_captured(x, value, seen)
  local node = x.def[value]
  if seen[value] then return true end
  seen[value] = true
  if node.op == "param" then
    local p = x.param_of[value]
    return p ~= nil and not p.state and p.name == ""
  end
  for _, v in ipairs(node.inputs) do
    if not is_captured(x, v, seen) then return false end
  end
  return true
end

--- Random bits that are the same where they should not be: in two places, in each block, in every step.
function checks.equal_bits(x, add)
  local seen = {}
  for _, node in ipairs(x.nodes) do
    local key = operand(node, "key") or not operand(node, "lo") and operand(node, "k0") -- lo: it makes keys
    if key and node.role == "forward" and not node.region then
      local line, other = line_of(node), operand(node, "k1") or key
      if node.inner then
        if x.mesh and x.mesh.size > 1 and equal_blocks(x, key) and equal_blocks(x, other) then
          add("each block of the shard_map gets the same random bits: its key is the same on all devices",
            line,
            "fold the place into the key: random.fold_in(key, ml.axis_index(axis))")
        end
      elseif is_captured(x, key, {}) then
        add("the random bits are the same in every step: their key is met in the function", line,
          "pass the key as an argument, and another one for each step; or use nn.Rngs")
      else
        local values = x.run {key, other}
        local text = bytes_of(values[1]) .. bytes_of(values[2]) .. node.types[1]:gsub("@[%w_]+", "")
        if seen[text] and seen[text] ~= node then
          add(("the same random bits as at %s: their key is used twice"):format(line_of(seen[text])), line,
            "split the key, or fold another number in")
        end
        seen[text] = node
      end
    end
  end
end

--- Where a value that is averaged over devices is divided by what is not the same on all of them.
function checks.means_of_means(x, add)
  local users = {}
  for _, node in ipairs(x.nodes) do
    for _, v in ipairs(node.inputs) do
      users[v] = users[v] or {}
      table.insert(users[v], node)
    end
  end
  local function summed(value, far)
    for _, user in ipairs(far < 8 and users[value] or {}) do
      if user.op == "all_reduce" or user.op == "reduce_scatter" then return true end
      if user.op ~= "manual_exit" and #user.outputs == 1 and user.inner and summed(user.outputs[1],
        far + 1) then
        return true
      end
    end
  end
  for _, node in ipairs(x.nodes) do
    if node.op == "div" and node.inner and not node.region and node.role == "forward"
      and node.types[1]:find("{V", 1, true) and summed(node.outputs[1], 0) then
      if not equal_blocks(x, node.inputs[2]) then
        add("a mean of means: each device divides by its own count, and the counts differ", line_of(node),
          "sum the parts and the counts over the devices, and divide then")
      end
    end
  end
end

--- Tokens that no expert has room for.
function checks.lost_tokens(x, add)
  for _, mark in ipairs(x.marks) do
    local node = x.nodes[mark.node]
    if node and not node.inner then
      local places = ops.sum(ops.sum(ops.astype(x.run({node.outputs[1]})[1], "float32"), 4), 3)
      local tokens, found = places.size, ops.sum(places):item()
      local lost = tokens - ops.sum(ops.astype(ops.gt(places, 0), "float32")):item()
      if lost >= 0.01 * tokens or found < 0.9 * tokens * mark.top_k then
        add(("%d of %d tokens find no expert with room, and %.3g%% of all choices are dropped"):format(lost,
          tokens,
          100 * (1 - found / (tokens * mark.top_k))), line_of(node),
          "a larger capacity_factor, or more weight on the balance loss")
      end
    end
  end
end

-- ---- the report ---------------------------------------------------------------------------------------

local Report = {__name = "Checks"}
Report.__index = Report

Report.__tostring = core.plain(function(self)
  if #self.findings == 0 then return "nothing found: shards, random bits, means over devices and experts" end
  local lines = {}
  for _, f in ipairs(self.findings) do
    lines[#lines + 1] = ("%d. %s%s"):format(#lines // 2 + 1, f.cause, f.where and ", at " .. f.where or "")
    lines[#lines + 1] = "   -> " .. f.mend
  end
  return table.concat(lines, "\n")
end)

--- Looks for what only data shows, with these arguments: shards of a batch that hold the same rows; random
--- bits (of dropout, say) that are the same in two places, in each block of a shard_map, or in every step;
--- means over devices of what each divided by a count of its own; tokens that no expert has room for. Values
--- inside are computed, nothing is written. What stands in loops and branches is not looked at.
---@param step any what ml.jit returned
---@param ... any its arguments
---@return table report {findings: list of {check, cause, where?, mend}}; as a text by tostring
function M.checks(step, ...)
  alone.check_step("checks", step)
  local marks = {}
  lib.checking = marks
  local traced, program = pcall(step.program, step, ...)
  lib.checking = nil
  if not traced then error(program, 0) end
  local held <close> = program
  local x = {program = held, params = held:params(), nodes = held:nodes(), marks = marks, def = {},
    param_of = {},
    inputs = {}}
  for i, p in ipairs(x.params) do
    x.param_of[p.value], x.inputs[i] = p, core.is_box(p.object) and p.object:get() or p.object
    x.mesh = x.mesh or p.sharding and p.sharding.mesh
  end
  for _, node in ipairs(x.nodes) do
    for _, v in ipairs(node.outputs) do x.def[v] = node end
  end
  function x.run(values) return held:run(values, x.inputs) end
  local report = setmetatable({findings = {}}, Report)
  for _, name in ipairs {"equal_shards", "means_of_means", "equal_bits", "lost_tokens"} do
    checks[name](x, function(cause, where, mend)
      report.findings[#report.findings + 1] = {check = name, cause = cause, where = where, mend = mend}
    end)
  end
  return report
end

return lib.export(M, "", true)
