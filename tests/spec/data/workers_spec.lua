-- workers_spec.lua: a module's function maps records in threads of its own, ahead of the step that needs it.
local helper = require "spec.helper"
local ml = require "meshlua"
local data = ml.data

local list = {}
for i = 1, 400 do list[i] = i - 1 end
local records = data.tensors {x = list}

--- A module of this text, under a name that is not there yet.
local names = 0
local function module(text)
  names = names + 1
  local name = "records_module_" .. names
  package.preload[name] = nil
  local path = helper.file(text, ".lua")
  local folder, file = path:match "^(.*)/([^/]*)%.lua$"
  package.path = folder .. "/?.lua;" .. package.path
  return file
end

describe("a map in workers", function()
  it("gives what it gives in the main state", function()
    local name = module "return function(record, id) return {y = {record.x / 2, id}, even = id % 2 == 0} end"
    local here, there = records:map((require(name))), records:map(name, {workers = 2})
    local a, b = here:shuffled {batch = 16, seed = 2}, there:shuffled {batch = 16, seed = 2, prefetch = 3}
    for _, step in ipairs {1, 2, 3, 9, 4, 4, 30} do
      local x, y = a(step), b(step)
      assert.same({x.y:totable(), x.even:totable()}, {y.y:totable(), y.even:totable()})
    end
    assert.same({"a function", "workers"}, {a.waited_for, b.waited_for})
    assert.same(here:fingerprint(), there:fingerprint())
    local both = data.mix({here, there:filter(function(r) return r.even end)}, {1, 1})
    assert.equal(16, #both:shuffled({batch = 16})(2).even:totable())
  end)

  it("raises at the step that needs the record, and says which and where", function()
    local name = module [[return function(record, id)
      if id == 31 then error("no such word") end
      if id == 32 then return {y = {1, 2}} end
      if id == 33 then return {z = 1} end
      if id == 34 then return 5 end
      if id == 35 then return {y = 1.5} end
      if id == 36 then error({}) end
      return {y = id}
    end]]
    local mapped = records:map(name)
    local wanted = {"no such word", "field 'y': table is not of int32", "it has no field 'y'",
      "a record is a table of fields, not a number", "field 'y': 1.5 is not of int32",
      "an error that is no text"}
    for i, text in ipairs(wanted) do
      local wanted_place = "record " .. 30 + i .. ": '" .. name .. "' in a worker: "
      helper.raises(wanted_place, mapped.batch, mapped, {3, 30 + i})
      helper.raises(text, mapped.batch, mapped, {3, 30 + i})
    end
    assert.same({30, 37}, mapped:batch({30, 37}).y:totable())
    local batches, failed = mapped:shuffled {batch = 8, seed = 1}, 0
    for step = 1, 50 do
      local ok, message = pcall(batches, step)
      if not ok then
        failed = failed + 1
        assert.truthy(message:find "record 3[1-6]: ")
      end
    end
    assert.truthy(failed > 0 and failed <= 6)
  end)

  it("knows modules of plain Lua alone", function()
    helper.raises("not found", records.map, records, "no.such.module")
    helper.raises("must return a function", records.map, records, module "return {}")
    helper.raises("field 't' of what module", records.map, records,
      module "return function() return {t = 'a'} end")
    helper.raises("E_VALUE", records.map, records, module "return function() return {y = 1} end",
      {workers = 0})
    local tensors = records:map(module [[require "meshlua" return function() return {y = 1} end]])
    helper.raises("workers have no tensors", tensors.batch, tensors, {0})
  end)

  it("ends where nobody waits for it, also one that would not end", function()
    local mapped = records:map(module [[return function(record, id)
      while id > 0 do end
      return {y = id}
    end]], {workers = 1})
    local batches = mapped:shuffled {batch = 1, seed = 3}
    local first = mapped:batch({0}).y:item()
    local step = batches:where(0, 0)
    local from = ml.core.clock()
    batches = mapped:shuffled {batch = 1, seed = 3, prefetch = 5}
    assert.equal(first, batches(step).y:item()) -- the next five are under way, without end
    batches, mapped = nil, nil -- luacheck: ignore
    collectgarbage()
    collectgarbage()
    assert.truthy(ml.core.clock() - from < 20)
  end)

  helper.figures("is not waited for: below 1% of the time, with 2 ms a record", function()
    local name = module [[return function(record, id)
      local from = os.clock()
      while os.clock() - from < 0.002 do end -- all threads' time: less of its own
      return {y = id}
    end]]
    local mapped = records:map(name, {workers = 1})
    local best = 1
    for _ = 1, 5 do -- other work on the machine only makes it longer
      local batches, waited = mapped:shuffled {batch = 2, seed = 1}, 0
      batches(1)
      local from = ml.core.clock()
      for step = 2, 8 do
        ml.core.sleep(0.04) -- a step on other processors
        batches(step)
        waited = waited + batches.wait
      end
      best = math.min(best, waited / (ml.core.clock() - from))
      if best < 0.01 then break end
    end
    assert.truthy(best < 0.01, ("%.2f%% of the time was waited"):format(100 * best))
  end)
end)
