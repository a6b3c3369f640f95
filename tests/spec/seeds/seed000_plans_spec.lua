-- devices: fake:64
-- The post "Distributed Training with JAX Simplified", at its own sizes on 64 devices: planned, not run.
local helper = require "spec.helper"
local ml = require "meshlua"
local twin = require "spec.seeds.twin"
local P, NamedSharding = ml.P, ml.NamedSharding

local mesh = ml.make_mesh({8, 8}, {"data", "model"})

--- A tensor of ones with the layout P(...): its bytes are planned for, and nowhere.
local function ones(shape, ...)
  return ml.device_put(ml.ones(shape), NamedSharding(mesh, P(...)))
end

--- What every device of the mesh holds, as a list of {device, ...} for each range, in order.
local function holders(x)
  local list, place = {}, {}
  for i, range in ipairs(twin.ranges(x)) do
    if not place[range] then
      list[#list + 1] = {range = range}
      place[range] = #list
    end
    table.insert(list[place[range]], x:addressable_shards()[i].device)
  end
  return list
end

local BATCH, WEIGHT = {64, 2048, 12288}, {12288, 49152}
local WEIGHT_BYTES = 12288 * 49152 * 4
local forward = ml.jit(function(batch, weight) return batch:matmul(weight) end)

--- How much of the work that the devices do in a plan is needed once: 1 is perfect.
local function unique_share(plan)
  local once = 2 * 64 * 2048 * 12288 * 49152
  return once / (plan:flops() * mesh.size)
end

describe("the mesh", function()
  it("000 L79: 8x8 devices with named axes", function()
    assert.equal(64, mesh.size)
    assert.same({data = 8, model = 8}, mesh.shape)
    assert.same({"data", "model"}, mesh.axis_names)
    assert.truthy(tostring(mesh):find "^Mesh%(data=8, model=8%) of devices {{0,1,2,3,4,5,6,7},{8,")
  end)

  it("000 L89: a row is one batch slice, a column one piece of the model", function()
    local ids = {}
    for id in twin.printed(ml.visualize_mesh, mesh):gmatch "CPU (%d+)" do ids[#ids + 1] = tonumber(id) end
    assert.same(ml.devices(), ids)
    local rows = holders(ones({64}, "data"))
    assert.same({range = "1..8", 0, 1, 2, 3, 4, 5, 6, 7}, rows[1])
    assert.same({range = "57..64", 56, 57, 58, 59, 60, 61, 62, 63}, rows[8])
    local columns = holders(ones({4, 64}, nil, "model"))
    assert.same({range = "1..4 1..8", 0, 8, 16, 24, 32, 40, 48, 56}, columns[1])
    assert.same({range = "1..4 57..64", 7, 15, 23, 31, 39, 47, 55, 63}, columns[8])
  end)
end)

describe("PartitionSpec", function()
  it("000 L110: its entries go with the tensor's dims, not the mesh's", function()
    local x = ones(BATCH, "data", nil, "model")
    assert.equal("float32[64@data,2048,12288@model]", ml.typeof(x))
    assert.equal('P("data", nil, "model")', tostring(x.sharding.spec))
    local message = helper.raises("has 4 entries but the tensor has rank 3", function()
      ml.device_put(x, NamedSharding(mesh, P("data", nil, "model", nil)))
    end)
    assert.truthy(message:find "^tests/spec/seeds/seed000_plans_spec%.lua:%d+: %[E_SPEC%]")
  end)

  it("000 L123: a batch of 6.4 GB, 100.7 MB of it on each device", function()
    local spec = P("data", nil, "model")
    local make = ml.jit(function() return ml.ones(BATCH) end, {out_shardings = NamedSharding(mesh, spec)})
    assert.same({8, 2048, 1536}, make().sharding:shard_shape(BATCH))
    assert.equal(8 * 2048 * 1536 * 4, make:plan():memory().results) -- 100.7 MB
    assert.is_true(make:plan():memory().peak < 101e6) -- and no device ever makes the whole
  end)
end)

describe("the layout of a weight", function()
  it("000 L173: split on the data axis it is sharded, not different", function()
    local weight = ones(WEIGHT, "data", nil)
    local rows = holders(weight)
    assert.same({range = "1..1536 1..49152", 0, 1, 2, 3, 4, 5, 6, 7}, rows[1])
    assert.same({range = "1537..3072 1..49152", 8, 9, 10, 11, 12, 13, 14, 15}, rows[2])
    assert.same({range = "3073..4608 1..49152", 16, 17, 18, 19, 20, 21, 22, 23}, rows[3])
    -- Every use gathers it, so that each batch slice meets the whole weight.
    local batch = ones(BATCH, "data", nil, nil)
    local gathers = forward:plan(batch, weight):collectives()
    assert.equal(1, #gathers)
    assert.equal("all_gather", gathers[1].op)
    assert.same({"data"}, gathers[1].axes)
    assert.equal(WEIGHT_BYTES, gathers[1].outputs[1].bytes) -- 2.416 GB
    local told = ml.explain(forward, batch, weight)
    assert.truthy(told:find("1 x  all_gather over data  float32[1536,49152]", 1, true), told)
    assert.truthy(told:find("w of matmul: dim 1 is split on data, which splits dim 1 of x", 1, true), told)
    assert.truthy(told:find("FSDP on data: weight lies over the axis that splits the data", 1, true), told)
    assert.same({{name = "weight", axis = "data", gathers = 1, bytes = WEIGHT_BYTES,
      sent = WEIGHT_BYTES * 7 / 8}}, told.fsdp)
  end)

  it("000 L199: split on the model axis it needs no communication forward", function()
    local weight = ones(WEIGHT, nil, "model")
    assert.same({12288, 6144}, twin.local_shape(weight))
    assert.same({}, twin.collectives(forward:plan(ones(BATCH, "data", nil, nil), weight)))
  end)

  it("000 L230: batch and weight on one axis leave an eighth of the work unique", function()
    local batch, weight = ones(BATCH, "model", nil, nil), ones(WEIGHT, nil, "model")
    local plan = forward:plan(batch, weight)
    local gathers = plan:collectives()
    assert.equal(1, #gathers) -- of the 2.4 GB weight, not of the 6.4 GB batch
    assert.equal("all_gather", gathers[1].op)
    assert.equal(WEIGHT_BYTES, gathers[1].outputs[1].bytes)
    assert.truthy(gathers[1].why:find("w of matmul: dim 2 is split on model", 1, true))
    assert.equal(0.125, unique_share(plan))
    -- explain says so, and names the mend, which does what is said of it.
    local told = ml.explain(forward, batch, weight)
    assert.equal(0.125, told.work.unique)
    assert.truthy(told:find("12.5% of the compute is unique", 1, true))
    assert.equal("weight", told.better.argument)
    assert.equal(P(nil, "data"), told.better.spec)
    assert.equal(1.0, told.better.unique)
    local mended = forward:plan(batch, ones(WEIGHT, nil, "data"))
    assert.equal(1.0, unique_share(mended))
    assert.same({}, twin.collectives(mended))
  end)

  it("000 L253: orthogonal splits leave no work done twice", function()
    local plan = forward:plan(ones(BATCH, "data", nil, nil), ones(WEIGHT, nil, "model"))
    assert.same({}, twin.collectives(plan))
    assert.equal(1.0, unique_share(plan))
  end)
end)

describe("device_put", function()
  it("000 L210: splits the batch at once, before any step", function()
    local batch = ml.ones(BATCH)
    local sharded = ml.device_put(batch, NamedSharding(mesh, P("data", nil, nil)))
    for i, shard in ipairs(sharded:addressable_shards()) do
      local position = (i - 1) // 8
      assert.equal(i - 1, shard.device)
      assert.same({8 * position + 1, 8 * position + 8}, shard.index[1])
    end
  end)
end)

describe("the memory of GPT-3", function()
  -- One matrix stands for the 175e9 parameters.
  local update = ml.jit(function(weights, grads, m, v)
    m, v = m * 0.9 + grads * 0.1, v * 0.999 + grads * grads * 0.001
    return weights - m / (ml.sqrt(v) + 1e-8) * 1e-4, m, v
  end)
  local function state(dtype, ...)
    local list = {}
    for i = 1, 4 do
      list[i] = ml.device_put(ml.zeros({1024000, 170898}, dtype), NamedSharding(mesh, P(...)))
    end
    return table.unpack(list)
  end
  local GB = 1e9

  it("000 L313: 8-way model parallelism does not fit 80 GB, 64-way does", function()
    local weights = state("float16", "model")
    local rows, columns = table.unpack(twin.local_shape(weights))
    helper.close(21.875, rows * columns / 1e9, 1e-5) -- of 175 billion parameters
    helper.close(43.75, rows * columns * 2 / GB, 1e-5)
    local eightfold = update:plan(state("float16", "model")):memory()
    helper.close(175.0, eightfold.arguments / GB, 1e-5) -- weights, gradients and two moments; not 64
    local everywhere = update:plan(state("float16", {"data", "model"})):memory()
    helper.close(21.9, everywhere.arguments / GB, 2e-3)
    assert.is_true(eightfold.arguments > 80 * GB and everywhere.arguments < 80 * GB)
    local unsharded = update:plan(state("float32")):memory()
    helper.close(700, unsharded.arguments / 4 / GB, 1e-5) -- the parameters alone
  end)
end)
