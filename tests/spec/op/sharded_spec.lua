-- devices: 8
-- sharded_spec.lua: every op on sharded tensors gives what it gives on one device, values and gradients, and
-- sends nothing where its row promises so.
local ml = require "meshlua"
local data = require "spec.op.data"
local helper = require "spec.helper"
local rows = require "spec.op.rows"

local P, meshes = ml.P, {}

local function mesh_of(...)
  local sizes, name = {...}, table.concat({...}, ",")
  if not meshes[name] then
    local names, ids, n = {}, {}, 1
    for i, size in ipairs(sizes) do names[i], n = ("xyz"):sub(i, i), n * size end
    for i = 1, n do ids[i] = i - 1 end
    meshes[name] = ml.make_mesh(sizes, names, ids)
  end
  return meshes[name]
end

local function dtype_of(row)
  local list = rows.dtypes(row)
  return list[2] == "float32" and list[2] or list[1]
end

local function put(tensors, mesh, specs)
  local out = {}
  for k, x in ipairs(tensors) do out[k] = ml.device_put(x, ml.NamedSharding(mesh, specs[k])) end
  return out
end

--- The gradients of the results' products with fixed numbers.
local function gradient_of(row, numbers)
  return ml.jit(ml.grad(function(...)
    local total
    for i, y in ipairs {row.call(...)} do
      if numbers[i] then
        local part = ml.sum(y:astype "float32" * numbers[i])
        total = total and total + part or part
      end
    end
    return total
  end, {argnums = rows.differentiable(row)}))
end

--- A row's inputs, results and gradients on one device.
local function whole(row)
  local g = rows.generator(row)
  local case = {g = g, dtype = dtype_of(row)}
  case.inputs = rows.inputs(row, case.dtype, g)
  case.results = {row.call(table.unpack(case.inputs))}
  if #rows.differentiable(row) == 0 then return case end
  local numbers = {}
  for i, y in ipairs(case.results) do
    numbers[i] = data.is_float(y.dtype) and data.tensor(data.random(g, {}, "float32", y.shape))
  end
  case.gradient = gradient_of(row, numbers)
  case.gradients = case.gradient(table.unpack(case.inputs))
  return case
end

--- Sums come in another order: `times` what the row allows.
local function same(row, dtype, what, expected, actual, times)
  assert.equal(#expected, #actual)
  for i, y in ipairs(actual) do
    assert.equal(expected[i].dtype, y.dtype)
    local tolerance = times * rows.tolerance(row, y.dtype, dtype)
    local found = data.difference(data.flat(expected[i]), data.flat(y), tolerance)
    if found then error(("%s %d: %s (%s)"):format(what, i, found, ml.typeof(y))) end
  end
end

local function check_values(row, case, args)
  same(row, case.dtype, "result", case.results, {ml.jit(row.call)(table.unpack(args))}, row.exact and 0 or 2)
  if case.gradient then
    local gradients = case.gradient(table.unpack(args))
    same({tolerance = row.tolerance}, case.dtype, "gradient", case.gradients, gradients, 4)
  end
end

-- ---- along one letter -------------------------------------------------------------------------------

--- The small letters among a row's operands, in their order.
local function letters_of(row)
  local seen, list = {}, {}
  for c in table.concat((rows.rule(row))):gmatch "%l" do
    if not seen[c] then list[#list + 1] = c end
    seen[c] = true
  end
  return list
end

--- The number of devices for a letter: the most that divide all its dims.
local function parts_of(row, case, letter)
  local operands, results = rows.rule(row)
  local function fits(words, tensors, n)
    for k, word in ipairs(words) do
      local d = word:find(letter, 1, true)
      if d and (tensors[k].shape[d] == 0 or tensors[k].shape[d] % n ~= 0) then return false end
    end
    return true
  end
  for _, n in ipairs {8, 4, 2, 3} do
    if fits(operands, case.inputs, n) and fits(results, case.results, n) then return n end
  end
end

local function spec_along(word, letter)
  local entries = {}
  for d = 1, #word do entries[d] = word:sub(d, d) == letter and "x" or ml.P.none end
  return ml.P(table.unpack(entries, 1, #word))
end

local function count_having(words, letter)
  local n = 0
  for _, word in ipairs(words) do n = n + (word:find(letter, 1, true) and 1 or 0) end
  return n
end

local function describe_plan(plan)
  local list = {}
  for i, c in ipairs(plan:collectives()) do list[i] = c.op .. " over " .. table.concat(c.axes, ",") end
  return #list == 0 and "nothing" or table.concat(list, "; ")
end

local function count_sums(plan)
  local n = 0
  for _, c in ipairs(plan:collectives()) do
    if c.op ~= "all_reduce" then return math.huge end
    n = n + 1
  end
  return n
end

local function expect_sums(what, plan, least, most)
  local n = count_sums(plan)
  if n < least or n > most then
    error(("%s sends %s; promised are %d to %d sums"):format(what, describe_plan(plan), least, most), 2)
  end
end

local function check_promise(row, case, letter, mesh)
  local operands, results = rows.rule(row)
  local specs = {}
  for k, word in ipairs(operands) do specs[k] = spec_along(word, letter) end
  local args = put(case.inputs, mesh, specs)
  local call = ml.jit(row.call)
  local out, having = {call(table.unpack(args))}, count_having(results, letter)
  local plan = call:plan(table.unpack(args))
  if having == #results then
    expect_sums("the value", plan, 0, 0)
    for i, y in ipairs(out) do
      local want = tostring(spec_along(results[i], letter))
      assert.equal(want, tostring(y.sharding.spec), "the result is elsewhere: " .. ml.typeof(y))
    end
  elseif having == 0 then
    expect_sums("the value", plan, 1, row.sums or #results)
  end
  check_values(row, case, args)
  if not case.gradient or having < #results then return end
  -- What lacks the letter was spread along it: its gradient is a sum.
  local sums = 0
  for _, k in ipairs(rows.differentiable(row)) do
    sums = sums + (operands[k]:find(letter, 1, true) and 0 or 1)
  end
  expect_sums("the gradient", case.gradient:plan(table.unpack(args)), 0, sums)
end

describe("split along one letter:", function()
  for _, row in ipairs(rows.tried) do
    local letters = row.mesh and {} or letters_of(row)
    if #letters > 0 then
      it(row.name, function()
        local case = whole(row)
        for _, letter in ipairs(letters) do
          local n = parts_of(row, case, letter)
          if n then
            local ok, message = pcall(check_promise, row, case, letter, mesh_of(n, 8 // n))
            if not ok then error(("'%s' over %d devices: %s"):format(letter, n, message), 0) end
          end
        end
      end)
    end
  end
end)

-- ---- in random layouts ------------------------------------------------------------------------------

local grids = {{8}, {4, 2}, {2, 4}, {2, 2, 2}, {2, 3}}

--- The row on a mesh, its inputs in the layouts that spec_of(generator, mesh, shape) draws.
local function check_in_layouts(row, case, mesh, spec_of)
  local specs, texts = {}, {}
  for k, x in ipairs(case.inputs) do
    specs[k] = spec_of(case.g, mesh, x.shape)
    texts[k] = tostring(specs[k])
  end
  local ok, message = pcall(check_values, row, case, put(case.inputs, mesh, specs))
  if not ok then error(("%s on %s: %s"):format(table.concat(texts, " "), tostring(mesh), message), 0) end
end

describe("in random layouts:", function()
  for _, row in ipairs(rows.tried) do
    if #row.inputs > 0 then
      it(row.name, function()
        local case = whole(row)
        for _ = 1, helper.watched and 1 or 3 do
          local mesh = row.mesh or mesh_of(table.unpack(case.g.pick(grids)))
          check_in_layouts(row, case, mesh, data.random_spec)
        end
      end)
    end
  end
end)

-- ---- unevenly ---------------------------------------------------------------------------------------

--- Most dims split over axes that need not divide them.
local function uneven_spec(g, mesh, shape)
  local names, entries = table.move(mesh.axis_names, 1, #mesh.axis_names, 1, {}), {}
  for d = 1, #shape do
    entries[d] = P.none
    if #names > 0 and g.int(1, 4) > 1 then
      local entry = {uneven = "pad"}
      repeat entry[#entry + 1] = table.remove(names, g.int(1, #names)) until #names == 0 or g.int(1, 3) > 1
      entries[d] = entry
    end
  end
  return P(table.unpack(entries, 1, #shape))
end

describe("with dims that devices do not divide, padded:", function()
  for _, row in ipairs(rows.tried) do
    if #row.inputs > 0 and not row.mesh then
      it(row.name, function()
        local case = whole(row)
        for _, grid in ipairs {{3, 2}, {5}} do
          check_in_layouts(row, case, mesh_of(table.unpack(grid)), uneven_spec)
        end
      end)
    end
  end
end)

-- ---- made in place ----------------------------------------------------------------------------------

describe("what comes from nothing is made where it belongs:", function()
  for _, row in ipairs(rows.tried) do
    if #row.inputs == 0 then
      it(row.name, function()
        local g, expected = rows.generator(row), {row.call()}
        for _, grid in ipairs {{8}, {4, 2}, {2, 2, 2}} do
          local mesh, shardings = mesh_of(table.unpack(grid)), {}
          for i, y in ipairs(expected) do
            shardings[i] = ml.NamedSharding(mesh, data.random_spec(g, mesh, y.shape))
          end
          local made = ml.jit(function() return row.call() end, {mesh = mesh, out_shardings = shardings})
          for i, y in ipairs {made()} do
            assert.equal(expected[i]:bytes(), y:bytes())
            assert.equal(tostring(shardings[i].spec), tostring(y.sharding.spec))
          end
          assert.equal("nothing", describe_plan(made:plan()))
        end
      end)
    end
  end
end)
