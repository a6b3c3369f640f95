-- devices: 8
-- records_spec.lua: records from tensors, npy files and functions; mapped, picked, mixed; read ahead of their step.
local helper = require "spec.helper"
local ml = require "meshlua"
local core, data, P, NamedSharding = ml.core, ml.data, ml.P, ml.NamedSharding
local file = helper.file

--- Asserts nil, a message with this text, and a code.
local function fails(wanted, wanted_code, value, message, code)
  assert.same({nil, wanted_code}, {value, code})
  assert.truthy(message:find(wanted, 1, true), message)
end

local function numbers(n, from)
  local list = {}
  for i = 1, n do list[i] = (from or 0) + i - 1 end
  return list
end

describe("records", function()
  it("come from tensors, whatever their dtype", function()
    local x = ml.random.normal(ml.random.key(0), {5, 2, 3}, {dtype = "bfloat16"})
    local records = data.tensors {x = x, y = {1, 2, 3, 4, 5}, z = {true, false, true, true, false}}
    local batch = records:batch {4, 0, 4}
    assert.equal(ml.take(x, ml.tensor {4, 0, 4}, 1):bytes(), batch.x:bytes())
    assert.same({{5, 1, 5}, {false, true, false}}, {batch.y:totable(), batch.z:totable()})
    assert.same({y = 2, z = false}, {y = records:get(1).y, z = records:get(1).z})
    helper.raises("4 in 'x'", data.tensors, {x = {1, 2, 3, 4}, y = {1, 2}})
    helper.raises("its first dim counts", data.tensors, {x = ml.tensor(1)})
    helper.raises("E_VALUE", data.tensors, {x = "text"})
  end)

  it("come from npy files, which stay where they are", function()
    local x, y = file("", ".npy"), file("", ".npy")
    ml.save(x, ml.arange(24.0):reshape {6, 4})
    ml.save(y, ml.arange(6):astype "int64")
    local records = assert(data.npy {x = x, y = y})
    local on = NamedSharding(ml.make_mesh({2, 4}, {"data", "model"}), P("data", "model"))
    local before = data.bytes_read()
    local batch = records:batch({5, 1}, {x = on})
    assert.equal(2 * 4 * 4 + 2 * 8, data.bytes_read() - before)
    assert.same({{{20, 21, 22, 23}, {4, 5, 6, 7}}, {5, 1}}, {batch.x:totable(), batch.y:totable()})
    assert.equal("int64", batch.y.dtype)
    ml.save(y, ml.arange(5))
    fails("5 records, but", "E_IO", data.npy {x = x, y = y})
    fails("column by column", "E_IO", data.npy {x = "tests/oracle/disk/fortran.npy"})
    fails("it does not begin as npy files do", "E_PARSE", data.npy {x = file("\x93NUMPY\1\0", ".npy")})
    fails("No such file", "E_IO", data.npy {x = "/nonexistent/x.npy"})
  end)

  it("come from a function of the id, and no two differ in shape", function()
    local asked = 0
    local records = data.computed(10000, function(id)
      asked = asked + 1
      return {x = id == 7312 and {1, 2} or {id, id + 1, id + 2}, half = id / 2}
    end)
    local batch = records:batch {7311, 3}
    assert.equal(3, asked)
    assert.same({{7311, 7312, 7313}, {3, 4, 5}}, batch.x:totable())
    assert.same({"int32", "float32"}, {batch.x.dtype, batch.half.dtype})
    helper.raises("record 7312: field 'x' must be int32[3]: dim 1 has 2 of 3", records.batch, records, {7312})
    local odd = data.computed(3, function(id) return {x = id == 2 and 1.5 or id} end)
    helper.raises("record 2: field 'x' must be int32[]: 1.5 is not of int32", odd.batch, odd, {0, 2})
    helper.raises("it has no field 'y'", function()
      data.computed(2, function(id) return id == 0 and {x = 1, y = 2} or {x = 1} end):batch {1}
    end)
    helper.raises("nested deeper than 8", data.computed, 1, function()
      local x = {}
      x[1] = x
      return {x = x}
    end)
    helper.raises("record 0: field 'x' must be int32[2,0]: dim 2 is a number", data.computed, 1, function()
      return {x = {{}, 1}}
    end)
    for _, wrong in ipairs {5, {}, {1}, {x = print}, {x = {1, true}}} do
      helper.raises("E_VALUE", data.computed, 2, function() return wrong end)
    end
  end)

  it("are mapped and picked; an index is built once", function()
    local path, looked = file "", 0
    os.remove(path)
    local squares = data.tensors({x = numbers(100)}):map(function(record, id)
      assert(record.x == id)
      return {square = {record.x, record.x ^ 2}}
    end)
    local function odd(record)
      looked = looked + 1
      return record.square[1] % 2 == 1
    end
    local first = assert(squares:filter(odd, {file = path}))
    local again = assert(squares:filter(odd, {file = path}))
    assert.same({50, 50, 100}, {#first, #again, looked})
    assert.same({{99, 9801}, {1, 1}}, again:batch({49, 0}).square:totable())
    assert.same(first:fingerprint(), again:fingerprint())
    -- Of other data it is built anew; what is no index stays.
    local other = data.tensors({x = numbers(100, 1)}):map(function(r) return {square = {r.x, 1}} end)
    assert.same({50, 200}, {#assert(other:filter(odd, {file = path})), looked})
    -- And where a byte of it is wrong.
    local ids = again:batch({0, 7, 49}).square:totable()
    local _, size = core.path_kind(path)
    for at = 15, size - 1, helper.watched and 64 or 13 do
      local handle <close> = assert(io.open(path, "r+b"))
      handle:seek("set", at)
      local byte = handle:read(1):byte()
      handle:seek("set", at)
      handle:write(string.char(byte ~ 1 << at % 8))
      handle:close()
      assert.same(ids, assert(squares:filter(odd, {file = path})):batch({0, 7, 49}).square:totable())
    end
    local text = file "my diary"
    fails("it is not the index of a filter", "E_IO", squares:filter(odd, {file = text}))
    fails("No such file", "E_IO", squares:filter(odd, {file = "/nonexistent/index"}))
    fails("none of 100 records is left", "E_VALUE", squares:filter(function() return false end))
  end)

  it("say which step has one of them", function()
    local records = data.tensors {x = numbers(37)}
    local batches = records:shuffled {batch = 5, seed = 3}
    for id = 0, 36 do
      for epoch = 0, 2 do
        local step, row = batches:where(id, epoch)
        assert.equal(id, batches(step).x:totable()[row])
        assert.equal(epoch, ((step - 1) * 5 + row - 1) // 37)
      end
    end
    helper.raises("E_VALUE", batches.where, batches, 37)
    helper.raises("E_VALUE", batches.where, batches, 0, -1)
  end)
end)

describe("mixed records", function()
  local function kind(n, from) return data.tensors {x = numbers(n, from)} end

  it("come by their weights: any prefix within one record", function()
    for _, weights in ipairs {{0.7, 0.3}, {1, 1, 1}, {0.05, 0.9, 0.05}, {3, 2, 5, 7, 11}, {1, 999},
        {math.pi, math.exp(1), 0.1}} do
      local kinds, sum, had, worst = {}, 0, {}, 0
      for k, weight in ipairs(weights) do kinds[k], sum, had[k] = kind(7, 1000 * k), sum + weight, 0 end
      local batches = data.mix(kinds, weights):shuffled {batch = 2000, seed = 1}
      for i, x in ipairs(batches(1).x:totable()) do
        had[x // 1000] = had[x // 1000] + 1
        for k, weight in ipairs(weights) do worst = math.max(worst, math.abs(had[k] - i * weight / sum)) end
      end
      assert.truthy(worst <= 1, worst)
    end
  end)

  it("are each drawn once before any comes again, and found again", function()
    local mixed = data.mix({kind(10), kind(3, 100)}, {3, 1})
    local batches, seen = mixed:shuffled {batch = 8, seed = 4}, {}
    for step = 1, 5 do
      for _, x in ipairs(batches(step).x:totable()) do seen[x] = (seen[x] or 0) + 1 end
    end
    for x = 0, 9 do assert.equal(3, seen[x]) end
    for id = 0, 12 do
      local step, row = batches:where(id, 1)
      assert.equal(mixed:get(id).x, batches(step).x:totable()[row])
    end
    assert.same(numbers(10), mixed:batch(numbers(10)).x:totable())
  end)

  it("must be alike", function()
    helper.raises("field 'x' is int32[] in the first records, float32[2] in number 2", data.mix,
      {kind(2), data.tensors {x = {{1.5, 2}}}}, {1, 1})
    helper.raises("is int32[] in the first records, nothing in number 2", data.mix,
      {kind(2), data.tensors {y = {1}}}, {1, 1})
    helper.raises("1 weight for 2", data.mix, {kind(2), kind(2)}, {1})
    helper.raises("it must be above 0", data.mix, {kind(2)}, {0})
    helper.raises("E_VALUE", data.mix, {}, {})
    helper.raises("expected Records", data.mix, {1}, {1})
  end)
end)

describe("batches of files", function()
  local bytes = {}
  for i = 0, 9999 do bytes[i + 1] = string.char(i * 7 % 251) end
  local text = table.concat(bytes)

  it("are read ahead, and are what they would be", function()
    local on_disk, in_memory = core.tokens(core.data_file(file(text)), 1), core.tokens(text, 1)
    local mesh = ml.make_mesh({4, 2}, {"data", "model"})
    local sharding = NamedSharding(mesh, P("data", "model"))
    local at = {inputs = sharding, labels = sharding}
    local ahead = data.windows(on_disk, 16):shuffled {batch = 8, shardings = at, prefetch = 5}
    local alone = data.windows(on_disk, 16):shuffled {batch = 8, shardings = at, prefetch = 0}
    local memory = data.windows(in_memory, 16):shuffled {batch = 8, shardings = at}
    for _, step in ipairs {1, 2, 3, 9, 10, 4, 4, 200, 201} do
      local a, b, c = ahead(step), alone(step), memory(step)
      for _, name in ipairs {"inputs", "labels"} do
        assert.equal(c[name]:bytes(), a[name]:bytes())
        assert.equal(c[name]:bytes(), b[name]:bytes())
      end
    end
    assert.same({"files", "number"}, {ahead.waited_for, math.type(ahead.wait) and "number"})
    helper.raises("option 'prefetch'", function() return data.windows(on_disk, 16):shuffled {batch = 1,
      prefetch = -1} end)
  end)

  it("of several files are of one list, across their borders", function()
    local folder = file "" .. ".shards"
    assert(core.make_folder(folder))
    local paths = {folder .. "/a_1.bin", folder .. "/a_2.bin", folder .. "/b.bin"}
    for i, path in ipairs(paths) do
      local handle <close> = assert(io.open(path, "wb"))
      handle:write(text:sub(2 * i, 2 * i + 19))
    end
    local both = assert(data.tokens {paths[1], paths[2]})
    local whole = core.tokens(text:sub(2, 21) .. text:sub(4, 23), 2)
    assert.same({20, whole:bytes(), whole:numbers(8, 12)}, {#both, both:bytes(), both:numbers(8, 12)})
    assert.same({paths[2], 2}, {both:place(11)})
    assert.equal(whole:largest(), both:largest())
    local ids = numbers(4)
    assert.equal(data.windows(whole, 4):batch(ids).labels:bytes(),
      data.windows(both, 4):batch(ids).labels:bytes())
    assert.equal(both:bytes(), assert(data.tokens(folder .. "/a_*.bin")):bytes())
    fails("there is no such file", "E_IO", data.tokens(folder .. "/c*"))
    assert(core.truncate(paths[3], 0))
    fails(paths[3] .. ": the file is empty", "E_IO", data.tokens(paths))
    core.disk_task {{"remove", folder}}:wait()
  end)

  it("that become shorter raise at the step that needs them, and nothing is lost", function()
    local path = file(text)
    local records = data.windows(core.tokens(core.data_file(path), 1), 99)
    local batches = records:shuffled {batch = 4, seed = 1}
    local first = batches(1).inputs:bytes()
    assert(core.truncate(path, 5000))
    local failed
    for step = 2, 25 do
      local ok, message = pcall(batches, step)
      if not ok then
        failed = failed or step
        local wanted = path .. ": bytes %d+ to %d+ cannot be read: it has become shorter"
        assert.truthy(message:find(wanted), message)
        helper.raises("E_IO", batches, step) -- again
      end
    end
    assert.truthy(failed > 1)
    local handle <close> = assert(io.open(path, "r+b"))
    handle:write(text)
    handle:flush()
    assert.equal(first, batches(1).inputs:bytes())
    assert.equal(4 * 99 * 4, #batches(failed).inputs:bytes())
  end)

  it("are given up with what has begun them", function()
    local records = data.windows(core.tokens(core.data_file(file(text)), 1), 64)
    assert.equal(0, helper.left_behind(function()
      local batches = records:shuffled {batch = 64, prefetch = 8}
      for _ = 1, 3 do batches(1) end
      batches = nil -- luacheck: ignore
      collectgarbage()
    end))
  end)
end)
