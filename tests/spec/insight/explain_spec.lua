-- devices: fake:64
-- explain_spec.lua: what ml.explain says: figures exact, the text letter by letter, layouts that would serve
-- better found.
local helper = require "spec.helper"
local ml = require "meshlua"
local P, NamedSharding = ml.P, ml.NamedSharding

local mesh = ml.make_mesh({8, 8}, {"data", "model"})

--- A tensor of ones with the layout P(...): its bytes are planned for, and nowhere.
local function ones(shape, ...) return ml.device_put(ml.ones(shape), NamedSharding(mesh, P(...))) end

local BATCH, WEIGHT = {64, 2048, 12288}, {12288, 49152}
local WEIGHT_BYTES = 12288 * 49152 * 4
local forward = ml.jit(function(batch, weight) return batch:matmul(weight) end)

local function notes(e) return table.concat(e.notes, "\n") end

--- The findings, as a text.
local function found(e)
  local list = {}
  for i, f in ipairs(e.findings) do list[i] = ("%s, at %s -> %s"):format(f.cause, f.where, f.mend) end
  return table.concat(list, "\n")
end

describe("explain", function()
  it("000 L230: batch and weight on one axis: an eighth of the compute is unique, and the mend makes it all",
    function()
      local batch, weight = ones(BATCH, "model", nil, nil), ones(WEIGHT, nil, "model")
      local e = ml.explain(forward, batch, weight)
      assert.equal(0.125, e.work.unique)
      assert.equal(1, e.count)
      assert.equal(1, e.by_op.all_gather.count)
      assert.equal(WEIGHT_BYTES / 8, e.by_op.all_gather.bytes)
      assert.equal(WEIGHT_BYTES * 7 / 8, e.sent)
      assert.same({"data"}, e.unused_axes)
      assert.truthy(found(e):find("^mesh axis data splits nothing: its 8 devices do the same work; 12.5%% of "
        .. "the compute is unique, at tests/spec/insight/explain_spec.lua:%d+ "), found(e))
      -- The mend is named, and does what is said of it.
      assert.equal(1.0, e.better.unique)
      assert.equal("weight", e.better.argument)
      assert.equal('P(nil, "data")', tostring(e.better.spec))
      assert.truthy(found(e):find('with weight as P(nil, "data") it would take 8.01 times less, '
        .. "with 100% of the compute unique", 1, true), found(e))
      assert.truthy(e:find('better specs, each planned with those above it: 24.74 s in place of 198.1 s; '
        .. "result 1 lies as float32[64@model,2048,49152@data] then, not as float32[64@model,2048,49152] "
        .. 'P(nil, "data") for weight, in place of P(nil, "model"): ', 1, true), tostring(e))
      local mended = ml.explain(forward, batch, ones(WEIGHT, nil, "data"))
      assert.equal(1.0, mended.work.unique)
      assert.equal(0, mended.count)
      assert.is_nil(mended.better)
    end)

  it("000 L173: a weight on the data axis is FSDP, with what its gathers cost", function()
    local e = ml.explain(forward, ones(BATCH, "data", nil, nil), ones(WEIGHT, "data", nil))
    assert.same({{name = "weight", axis = "data", gathers = 1, bytes = WEIGHT_BYTES,
      sent = WEIGHT_BYTES * 7 / 8}},
      e.fsdp)
    assert.truthy(notes(e):find("FSDP on data: weight lies over the axis that splits the data, and is "
      .. "gathered for each use: 1 all_gather of 2.25 GiB in all, 1.97 GiB sent", 1, true), notes(e))
  end)

  it("000 L253: orthogonal splits send nothing and repeat nothing", function()
    local e = ml.explain(forward, ones(BATCH, "data", nil, nil), ones(WEIGHT, nil, "model"))
    assert.equal(0, e.count)
    assert.equal(1.0, e.work.unique)
    assert.equal(0, e.work.share)
    assert.same({}, e.unused_axes)
    assert.same({}, e.notes)
    assert.same({}, e.findings)
  end)

  it("says what each collective moves, for which line and why, and who asked for it", function()
    local e = ml.explain(forward, ones(BATCH, "data", nil, nil), ones(WEIGHT, "data", nil))
    local row = e.collectives[1]
    assert.equal("all_gather", row.op)
    assert.same({"data"}, row.axes)
    assert.same({"weight float32[12288@data,49152]"}, row.tensors)
    assert.truthy(row.where[1]:find "^tests/spec/insight/explain_spec.lua:%d+$")
    assert.same({"w of matmul: dim 1 is split on data, which splits dim 1 of x"}, row.reasons)
    assert.same({"data by argument weight, argument batch"}, row.by)
    local reason = row.members[1].reasons[1]
    assert.same({{kind = "argument", name = "weight", axis = "data", index = 2},
      {kind = "argument", name = "batch", axis = "data", index = 1}}, reason.origins)
  end)

  it("names the Param whose split an update keeps, not the update's line", function()
    local rules = {{"in", "data"}, {"out", "model"}}
    local model = ml.init(function(rngs)
      return {up = ml.nn.Linear(64, 64, {axes = {"in", "out"}, rngs = rngs, use_bias = false})}
    end, {mesh = mesh, rules = rules})
    local opt = ml.optim.adamw(model, {lr = 1e-3, clip = 1.0})
    local line = debug.getinfo(1, "l").currentline + 3
    local step = ml.jit(function(m, o, x)
      local loss, grads = ml.value_and_grad(function(v) return (v.up(x) ^ 2):mean() end)(m)
      return loss, o:update(m, grads).grad_norm
    end, {mesh = mesh, rules = rules})
    local e = ml.explain(step, model, opt, ones({512, 64}, "data"))
    local named = false
    for _, row in ipairs(e.collectives) do
      local by = table.concat(row.by, "; ")
      assert.falsy(by:find((":%d"):format(line), 1, true), by)
      named = named or by:find("data by Param m.up.kernel", 1, true) ~= nil
    end
    assert.is_true(named, tostring(e))
  end)

  it("the memory of a device by kind of tensor adds up", function()
    local param = function(shape, kind, ...) return ml.core.box_new(ones(shape, ...), {kind = kind}) end
    local w, m = param({1024, 1024}, "param", nil, "model"), param({1024, 1024}, "opt_state", nil, "model")
    local step = ml.jit(function(weight, moment, x)
      local loss, grad = ml.value_and_grad(function(v) return x:matmul(v:get()):tanh():mean() end)({get =
        function() return weight:get() end, w = weight})
      moment:set(moment * 0.9 + grad.w * 0.1)
      weight:set(weight - moment * 0.1)
      return loss
    end)
    local e = ml.explain(step, w, m, ones({512, 1024}, "data"))
    local each = 1024 * 1024 / 8 * 4
    assert.equal(each, e.memory.groups["parameters"])
    assert.equal(each, e.memory.groups["optimizer state"])
    assert.equal(512 * 1024 / 8 * 4, e.memory.groups["inputs"])
    assert.is_true(e.memory.groups["activations"] + e.memory.groups["gradients"] > 0)
    local arguments = 0
    for _, name in ipairs {"parameters", "optimizer state", "other state", "inputs"} do
      arguments = arguments + e.memory.groups[name]
    end
    assert.equal(e.memory.arguments, arguments)
    assert.equal(e.memory.results, e.memory.groups["results"])
    assert.is_true(e.memory.groups["activations"] + e.memory.groups["gradients"]
      + e.memory.groups["other temporaries"] <= e.memory.temporaries)
  end)

  it("names over-sharding, and the data parallelism that would serve better", function()
    local step = ml.jit(function(x, w1, w2) return ml.matmul(ml.matmul(x, w1):tanh(), w2) end)
    local e = ml.explain(step, ones({1 << 18, 4}, "data"), ones({4, 64}, nil, "model"),
      ones({64, 64}, "model"))
    assert.is_true(e.work.share > 0.5)
    assert.truthy(found(e):find("over-sharded: ", 1, true), found(e))
    assert.truthy(e.better, notes(e))
    assert.is_true(e.better.gain > 2)
    assert.equal(0, e.better.share)
    assert.truthy(notes(e):find(e.better.text, 1, true))
    assert.same({data = 64, model = 1}, e.better.mesh.shape)
    assert.equal("on Mesh(data=64, model=1) (data splits x)", e.better.text)
  end)

  it("says of a better mesh what its axis splits: weights, data, or both", function()
    local grid = ml.make_mesh({4, 16}, {"data", "model"})
    local function make(shape, ...)
      return ml.device_put(ml.ones(shape), ml.NamedSharding(grid, ml.P(...)))
    end
    -- Few rows and large weights: better with all devices along the weights.
    local step = ml.jit(function(x, up, down) return ml.nn.gelu(x:matmul(up)):matmul(down) end)
    local e = ml.explain(step, make({16, 4096}, "data"), make({4096, 16384}, nil, "model"),
      make({16384, 4096}, "model"))
    assert.equal("on Mesh(data=1, model=64) (model splits up and down)", e.better and e.better.text)
    local held = ml.core.box_new(make({64, 64}, "data"), {})
    local fsdp = ml.jit(function(x, y, w) return ml.matmul(x:matmul(w):tanh(), y) end)
    e = ml.explain(fsdp, make({4096, 64}, "data"), make({64, 64}, "model"), held)
    assert.equal("on Mesh(data=64, model=1) (data splits x and Params)", e.better and e.better.text)
  end)

  it("names large tensors that every device holds", function()
    local e = ml.explain(forward, ones({64, 8, 1024}, "data"), ones {1024, 1024})
    assert.same({{name = "weight", bytes = 4 * 1024 * 1024, copies = 64}}, e.replicated)
    assert.truthy(notes(e):find("every device holds all of weight (4.00 MiB)", 1, true))
  end)

  it("takes a plan, too", function()
    local plan = forward:plan(ones(BATCH, "data", nil, nil), ones(WEIGHT, "data", nil))
    local e = ml.explain(plan)
    assert.equal(1, e.count)
    assert.equal(WEIGHT_BYTES * 7 / 8, e.sent)
  end)

  it("on a target of its own says that a step does not fit", function()
    local out, err, status = helper.run {"--devices=fake:h100:8", helper.file([[
      local ml = require "meshlua"
      local P, NamedSharding = ml.P, ml.NamedSharding
      local mesh = ml.make_mesh({8}, {"data"})
      local function ones(shape, ...) return ml.device_put(ml.ones(shape), NamedSharding(mesh, P(...))) end
      local step = ml.jit(function(x, w) return (x:matmul(w)):sum() end)
      local e = ml.explain(step, ones({8192, 150000}, "data"), ones {150000, 150000})
      print(e.fits, e.misfit)
    ]], ".lua")}
    assert.equal("", err)
    assert.equal(0, status)
    assert.truthy(out:find("false\tthe plan needs", 1, true), out)
  end)

  it("refuses what is no step", function()
    helper.raises("[E_VALUE] explain: expected a function made by ml.jit, or a plan, got a table",
      ml.explain, {})
  end)

  it("prints this", function()
    local out, err, status = helper.run {"--devices=8", helper.file([[
local ml = require "meshlua"
local P, NamedSharding = ml.P, ml.NamedSharding
local mesh = ml.make_mesh({4, 2}, {"data", "model"})
local function put(shape, ...) return ml.device_put(ml.ones(shape), NamedSharding(mesh, P(...))) end
local step = ml.jit(function(w, v, x)
  local loss, g = ml.value_and_grad(function(u) return ml.mean(ml.matmul(ml.tanh(ml.matmul(x, u)), v)) end)(w)
  return loss, w - g * 0.1
end)
local e = ml.explain(step, put({64, 256}, "data", "model"), put({256, 32}, "model"), put({512, 64}, "data"))
print((tostring(e):gsub("/[^ ]*/[^ /]*%.lua", "step.lua")))
]], ".lua")}
    assert.equal("", err)
    assert.equal(0, status)
    local width = 0
    for line in out:gmatch "[^\n]+" do width = math.max(width, #line) end
    assert.is_true(width <= 100, "a line of " .. width)
    assert.equal([[
Mesh(data=4, model=2) of cpu; every figure is of one device
14 steps, 4 of them collectives, which send 48.01 KiB: 1 all_gather 24.00 KiB, 2 all_reduce 10
  B, 1 reduce_scatter 24.00 KiB
    1 x  all_gather over data      float32[16,128]   24.00 KiB  4.05 us
         at step.lua:6
         of w float32[64@data,256@model]
         as w of matmul: dim 1 is split on data, which splits dim 1 of x
         split on data by argument w, argument x
    1 x  all_reduce over model     float32[1,1]            4 B  2 us
         at step.lua:6
         of matmul float32[512@data,32]{U:model}
         as matmul runs over dim 2 of x and dim 1 of w, split on model
         split on model by argument w, argument v
    1 x  reduce_scatter over data  float32[64,128]   24.00 KiB  4.05 us
         at step.lua:6
         of matmul float32[64,256@model]{U:data}
         as matmul runs over dim 1 of x and dim 1 of w, split on data
         split on data by argument x
    1 x  all_reduce over data      float32[1,1]            6 B  2 us
         at step.lua:6
         of sum float32[1,1]{U:data}
         as sum runs over dim 1 of x, split on data
         split on data by argument x
memory: 240.07 KiB at most
  inputs                56.00 KiB
  results                8.00 KiB
  activations           64.00 KiB
  other temporaries     80.00 KiB
  temporaries take 176.06 KiB; most are in use in step 8, matmul at step.lua:6
work: 6.388e+06 operations (100% unique), 824.01 KiB read and written
time at best: 95 us of computing, 12.1 us of sending: 11.3% is communication
all devices together, on this processor: 757 us of one thread
note: FSDP on data: w lies over the axis that splits the data, and is gathered for each use: 1
        all_gather of 32.00 KiB in all, 24.00 KiB sent
]], out)
  end)
end)
