-- devices: 8
-- vmap_ops_spec.lua: every op on many examples gives what it gives on each, whichever of its operands are mapped;
-- and so do gradients, whole and sharded. C3 is the number in the checklist of JAX's semantics.
local helper = require "spec.helper"
local ml = require "meshlua"
local data = require "spec.op.data"
local rows = require "spec.op.rows"

local N = 4 -- examples

--- The row's inputs for each example.
local function examples_of(row, dtype)
  local g, list = rows.generator(row), {}
  for i = 1, N do list[i] = rows.inputs(row, dtype, g) end
  return list
end

--- Which operands are mapped, as lists of booleans: all at once, each alone, each left out.
---@param few boolean? all at once and each alone; all at once where a sanitizer watches
local function combinations(n, few)
  local list = {}
  for bits = 1, (1 << n) - 1 do
    local ones, mapped = 0, {}
    for k = 1, n do
      mapped[k] = bits >> (k - 1) & 1 == 1
      ones = ones + (mapped[k] and 1 or 0)
    end
    local alone, left_out = ones == 1 and not (few and helper.watched), ones == n - 1 and not few
    if ones == n or alone or left_out then list[#list + 1] = mapped end
  end
  return list
end

--- The arguments of example i, and those of all: operands that are not mapped are the first example's.
local function arguments(examples, mapped)
  local each, all = {}, {}
  for i = 1, N do
    each[i] = {}
    for k, x in ipairs(examples[i]) do each[i][k] = mapped[k] and x or examples[1][k] end
  end
  for k, x in ipairs(examples[1]) do
    local column = {}
    for i = 1, N do column[i] = examples[i][k] end
    all[k] = mapped[k] and ml.stack(column) or x
  end
  return each, all
end

local function words(mapped)
  local list = {}
  for k, m in ipairs(mapped) do list[k] = m and "mapped" or "shared" end
  return table.concat(list, ", ")
end

local function axes_of(mapped)
  local axes = {}
  for k, m in ipairs(mapped) do axes[k] = m and 1 or false end
  return axes
end

--- Raises unless the results of all are those of each, stacked.
local function compare(row, dtype, each, all, times)
  assert.equal(#each[1], #all)
  for r, y in ipairs(all) do
    assert.equal(each[1][r].dtype, y.dtype)
    for i = 1, N do
      local limit = times * rows.tolerance(row, y.dtype, dtype)
      local found = data.difference(data.flat(each[i][r]), data.flat(y:at(i)), limit)
      if found then error(("result %d of example %d: %s"):format(r, i, found), 0) end
    end
  end
end

local function dtype_of(row)
  local list = rows.dtypes(row)
  return list[2] == "float32" and list[2] or list[1]
end

local function check(row, mapped, put)
  local dtype = dtype_of(row)
  local each, all = arguments(examples_of(row, dtype), mapped)
  local results = {}
  for i = 1, N do results[i] = {row.call(table.unpack(each[i]))} end
  if put then all = put(all, mapped) end
  local many = ml.jit(ml.vmap(row.call, {in_axes = axes_of(mapped)}))
  compare(row, dtype, results, {many(table.unpack(all))}, 2)
end

describe("vmap of every op: C3:", function()
  for _, row in ipairs(rows.tried) do
    if #row.inputs > 0 and not row.mesh then
      it(row.name, function()
        for k, mapped in ipairs(combinations(#row.inputs)) do
          if helper.watched and k > 1 then break end -- what all together is comes below
          local ok, message = pcall(check, row, mapped)
          if not ok then error(words(mapped) .. ": " .. tostring(message), 0) end
        end
      end)
    end
  end
end)

local mesh = ml.make_mesh({2, 4}, {"x", "y"})

describe("vmap of every op with the examples split over devices: C3:", function()
  for _, row in ipairs(rows.tried) do
    if #row.inputs > 0 and not row.mesh then
      it(row.name, function()
        local mapped = {}
        for k in ipairs(row.inputs) do mapped[k] = true end
        check(row, mapped, function(all)
          for k, x in ipairs(all) do all[k] = ml.device_put(x, ml.NamedSharding(mesh, ml.P "y")) end
          return all
        end)
      end)
    end
  end
end)

--- The gradients of the results' products with fixed numbers.
local function gradient(row, numbers)
  return ml.grad(function(...)
    local total
    for i, y in ipairs {row.call(...)} do
      if numbers[i] then
        local part = ml.sum(y * numbers[i])
        total = total and total + part or part
      end
    end
    return total
  end, {argnums = rows.differentiable(row)})
end

describe("vmap of the gradient of every op: C3:", function()
  for _, row in ipairs(rows.tried) do
    if #rows.differentiable(row) > 0 and not row.mesh then
      it(row.name, function()
        local examples = examples_of(row, "float64")
        local g, numbers = rows.generator(row, 1), {}
        for i, y in ipairs {row.call(table.unpack(examples[1]))} do
          numbers[i] = data.is_float(y.dtype) and data.tensor(data.random(g, {}, y.dtype, y.shape))
        end
        local grad = gradient(row, numbers)
        for _, mapped in ipairs(combinations(#row.inputs, true)) do
          local each, all = arguments(examples, mapped)
          local results = {}
          for i = 1, N do results[i] = grad(table.unpack(each[i])) end
          local ok, message = pcall(function()
            local many = ml.vmap(grad, {in_axes = axes_of(mapped)})
            compare(row, "float64", results, many(table.unpack(all)), 16)
          end)
          if not ok then error(words(mapped) .. ": " .. tostring(message), 0) end
        end
      end)
    end
  end
end)

it("vmap knows every op that a script can call: C3", function()
  for name, def in pairs(rows.ops) do
    assert.truthy(rows.made_by_passes[name] or def.batch, "op '" .. name .. "' has no batch rule")
  end
end)
