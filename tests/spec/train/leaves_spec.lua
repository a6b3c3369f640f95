-- devices: 8
-- leaves_spec.lua: accumulation with bits = "mesh": whatever mesh the batch is split over, loss, gradients and what is
-- written have the same bits.
local helper = require "spec.helper"
local ml = require "meshlua"

local nn, P, NamedSharding = ml.nn, ml.P, ml.NamedSharding
local FIRST = ml.devices()

--- A mesh of the first devices, or nil for none.
local function mesh_of(sizes, names)
  if not sizes then return nil end
  local n = 1
  for _, size in ipairs(sizes) do n = n * size end
  return ml.make_mesh(sizes, names or {"data"}, table.move(FIRST, 1, n, 1, {}))
end

-- A net with what sums over the batch in every way: a table that is looked up and is the head, too, attention, norms,
-- statistics, dropout.
local Net = nn.module "Net"
function Net:init(rngs)
  self.table = nn.Embed(11, 16, {rngs = rngs, axes = {"vocab", "embed"}})
  self.norm = nn.LayerNorm(16, {rngs = rngs, axes = {"embed"}})
  self.attn = nn.MultiHeadAttention(16, 2, {rngs = rngs, axes = {"embed", "heads"}, causal = true})
  self.batch_norm = nn.BatchNorm(16, {rngs = rngs, axes = {"embed"}})
  self.up = nn.Linear(16, 32, {rngs = rngs, axes = {"embed", "hidden"}})
  self.down = nn.Linear(32, 16, {rngs = rngs, axes = {"hidden", "embed"}})
  self.drop = nn.Dropout(0.25)
end
function Net:__call(ids, rngs)
  local x = self.table(ids):constrain {"batch", "tokens", "embed"}
  x = x + self.drop(self.attn(self.norm(x)), rngs)
  x = self.batch_norm(x + self.down(nn.gelu(self.up(x)):constrain {"batch", "tokens", "hidden"}))
  return self.table:attend(self.drop(x, rngs)):constrain {"batch", "tokens", "vocab"}
end

local RULES = {{"batch", "data"}, {"batch", false}, {"hidden", "model"}, {"hidden", false},
  {"heads", "model"}, {"heads", false}, {"tokens", false}, {"embed", false}, {"vocab", false}}

--- The training step of a net, and its arguments.
local function step_of(n, mesh)
  local model = ml.init(function(rngs) return Net(rngs) end, {mesh = mesh, rules = RULES, seed = 1}):train()
  local opt, rngs = ml.optim.adamw(model, {lr = 0.01, clip = 0.5}), nn.Rngs(3)
  local ids = ml.random.randint(ml.random.key(5), {16, 6}, 0, 11)
  if mesh then
    ml.device_put(rngs, NamedSharding(mesh, P()))
    ids = ml.device_put(ids, NamedSharding(mesh, P "data"))
  end
  local step = ml.jit(function(m, o, r, batch)
    local loss, grads = ml.accumulate(n, function(part)
      return ml.value_and_grad(function(v)
        return nn.softmax_cross_entropy_with_integer_labels(v(part, r), part):mean()
      end)(m)
    end, batch, {bits = "mesh"})
    return loss, o:update(m, grads).grad_norm
  end, {mesh = mesh, rules = RULES})
  return step, {model, opt, rngs, ids}
end

--- The elements of a tensor, exactly.
local function bits(x)
  local list = x:reshape {-1}:totable()
  for i, v in ipairs(list) do list[i] = ("%a"):format(v) end
  return table.concat(list, " ")
end

--- Losses and norms of two steps, and what model, moments, statistics and counts hold then.
local function trained(n, mesh)
  local step, args = step_of(n, mesh)
  local held = {}
  for _ = 1, 2 do
    local loss, norm = step(table.unpack(args))
    held[#held + 1] = ("%a %a"):format(loss:item(), norm:item())
  end
  local leaves, paths = ml.tree.leaves {model = args[1], opt = args[2], rngs = args[3]}
  for i, box in ipairs(leaves) do held[#held + 1] = paths[i] .. " " .. bits(box:get()) end
  return held
end

--- fn of a batch of this many rows in leaves, jitted.
local function leaves(n, fn)
  return ml.jit(function(x) return ml.accumulate(n, fn, x, {bits = "mesh"}) end)
end

local function split(mesh, x, ...) return ml.device_put(x, NamedSharding(mesh, P(...))) end

describe("leaves", function()
  it("give the same bits on data:1, 2, 4, 8 and on no mesh: losses, Params, moments, counts", function()
    local want = trained(8, nil)
    assert.not_equal(want[1], want[2])
    for _, size in ipairs {1, 2, 4, 8} do assert.same(want, trained(8, mesh_of {size})) end
  end)

  it("give the same bits along data beside an axis that splits the model", function()
    local names = {"data", "model"}
    assert.same(trained(4, mesh_of({1, 2}, names)), trained(4, mesh_of({4, 2}, names)))
  end)

  it("are added as a tree of neighbours: what each gives alone, by hand", function()
    local x = ml.random.normal(ml.random.key(0), {64, 24})
    local w = ml.random.normal(ml.random.key(1), {24, 40})
    local function of_part(part)
      return ml.value_and_grad(function(v) return (ml.tanh(part:matmul(v)) ^ 2):mean() end)(w)
    end
    local alone, sums = ml.jit(of_part), {}
    for k = 0, 15 do sums[k + 1] = {alone(x:slice {4 * k + 1, 4 * k + 4})} end
    while #sums > 1 do
      local above = {}
      for i = 1, #sums, 2 do
        above[#above + 1] = {sums[i][1] + sums[i + 1][1], sums[i][2] + sums[i + 1][2]}
      end
      sums = above
    end
    for _, size in ipairs {1, 4} do -- sixteen of one device are runs of four
      local loss, gradient = leaves(16, of_part)(split(mesh_of {size}, x, "data"))
      assert.equal((sums[1][1] / 16):item(), loss:item())
      assert.equal(bits(sums[1][2] / 16), bits(gradient))
    end
  end)

  it("lie where the rules put the batch, if it was computed in the trace", function()
    local x, want = ml.random.normal(ml.random.key(0), {16, 33}), nil
    for _, size in ipairs {1, 4} do
      local mesh = mesh_of {size}
      local step = ml.jit(function(v)
        return ml.accumulate(8, function(part) return part:mean() end, v:sin(), {bits = "mesh"})
      end, {mesh = mesh, rules = RULES})
      local mean = step(split(mesh, x, "data"))
      want = want or mean:item()
      assert.equal(want, mean:item())
    end
  end)

  it("sum 16-bit floats in float32 and round once", function()
    local x = ml.random.normal(ml.random.key(0), {64, 8}, "bfloat16")
    local function of_part(part) return part:sum(1) end
    local want
    for _, size in ipairs {1, 2, 8} do
      local sum = leaves(8, of_part)(split(mesh_of {size}, x, "data"))
      assert.equal("bfloat16", sum.dtype)
      want = want or bits(sum)
      assert.equal(want, bits(sum))
    end
  end)

  it("have random keys of their own, by their number", function()
    local mesh, seen = mesh_of {4}, {}
    local stack = ml.jit(function(rngs, x)
      return ml.accumulate(4, function(part, leaf)
        return ml.random.uniform(rngs.default(), {3}) * ml.one_hot(leaf, 4):reshape {4, 1} + 0 * part:sum()
      end, x, {bits = "mesh"})
    end)
    local rngs = ml.device_put(nn.Rngs(7), NamedSharding(mesh, P()))
    local rows = stack(rngs, split(mesh, ml.ones {8}, "data")) * 4
    assert.equal(1, rngs.default.count:item())
    for k = 0, 3 do
      local key = ml.random.fold_in(ml.random.fold_in(ml.random.key(7), 0), k)
      assert.equal(bits(ml.random.uniform(key, {3})), bits(rows:at(k + 1)))
      seen[bits(rows:at(k + 1))] = true
    end
    local n = 0
    for _ in pairs(seen) do n = n + 1 end
    assert.equal(4, n)
  end)

  it("reduce once over devices, behind the last of them", function()
    local mesh = mesh_of {4}
    local w, x = split(mesh, ml.ones {33, 7}), split(mesh, ml.ones {16, 33}, "data")
    local step = ml.jit(function(v, batch)
      return ml.accumulate(8, function(part)
        return ml.value_and_grad(function(m) return (part:matmul(m) ^ 2):mean() end)(v)
      end, batch, {bits = "mesh"})
    end)
    local list = step:plan(w, x):collectives()
    assert.equal(1, #list)
    assert.same({"all_reduce", 1, 4 * (33 * 7 + 1)}, {list[1].op, list[1].times, list[1].bytes})
  end)

  it("are what verify asks equal bits of; a sum beside them is found", function()
    local mesh = mesh_of {4}
    local step, args = step_of(8, mesh)
    local report = ml.verify(step, table.unpack(args))
    assert.is_true(report.ok and report.exact, tostring(report))
    assert.truthy(tostring(report):find "^the same bits on Mesh")
    local x = split(mesh, ml.random.normal(ml.random.key(0), {64, 33}), "data")
    local beside = ml.verify(ml.jit(function(v)
      return ml.accumulate(8, function(part) return part:mean() end, v, {bits = "mesh"}) + (v ^ 2):mean()
    end), x)
    assert.is_false(beside.ok)
    assert.truthy(tostring(beside):find("summed as the mesh cuts it", 1, true), tostring(beside))
  end)

  it("that cannot be are errors with the sizes that can", function()
    local function of_part(part) return part:sum() end
    local x = ml.ones {24, 2}
    for message, call in pairs {
      ["[E_VALUE] accumulate: 6 leaves are no binary tree; take 4 or 8"] = {6, x},
      ["[E_VALUE] accumulate: 0 leaves are no binary tree; take 1 or 2"] = {0, x},
      ["[E_SHAPE] accumulate: the batch has 24 rows, which 16 leaves do not divide; take 16 or 32 rows, or 8 "
        .. "leaves or fewer (a power of two)"] = {16, x},
      ["[E_INDIVISIBLE] accumulate: 4 leaves for 8 devices along data: each has at least one; take 8 leaves, "
        .. "or 4 devices or fewer"] = {4, split(mesh_of {8}, x, "data")},
      ["[E_INDIVISIBLE] accumulate: 8 leaves do not lie evenly on the 3 devices along data; take 1, 2, 4 or "
        .. "another power of two of them"] = {8, split(mesh_of {3}, x, "data")},
      ["[E_SPEC] accumulate: the batch is split over model and data, in another order than Mesh(data=2"] =
        {8, split(mesh_of({2, 2}, {"data", "model"}), x, {"model", "data"})},
    } do helper.raises(message, leaves(call[1], of_part), call[2]) end
    helper.raises("[E_SPEC] accumulate: nothing says over which axes of Mesh(data=4)", ml.jit(function(v)
      return ml.accumulate(8, of_part, v * 2, {bits = "mesh"})
    end), split(mesh_of {4}, x, "data"))
    helper.raises("[E_STATE] accumulate: bits = \"mesh\" is of traced functions", ml.accumulate, 8, of_part,
      x, {bits = "mesh"})
    helper.raises("[E_VALUE] accumulate: bits = exact", ml.accumulate, 8, of_part, x, {bits = "exact"})
    helper.raises("[E_STATE] accumulate: there are leaves around it", leaves(2, function(part)
      return ml.accumulate(2, of_part, part, {bits = "mesh"})
    end), x)
    local count = nn.Param(ml.tensor(0), {kind = "count"})
    helper.raises("[E_STATE] accumulate: the function writes a Param of dtype int32", ml.jit(function(c, v)
      return ml.accumulate(2, function(part)
        c[1]:set(c[1] + 1)
        return part:sum()
      end, v, {bits = "mesh"})
    end), {count}, x)
    assert.equal(0, count:item())
  end)

  it("are --bits=mesh of the training program", function()
    local text = {}
    for i = 1, 2000 do text[i] = ("line %d of many "):format(i % 97) end
    local data = helper.file(table.concat(text))
    local function train(options)
      return helper.shell(('"$MESHLUA" models/train.lua --layers=1 --width=16 --heads=2 --seq=8 --sample=0 '
        .. '--dropout=0.1 --steps=2 --rules=dp --log-every=1 --eval-batches=0 --data=%s %s'):format(data,
        options))
    end
    local want
    for _, on in ipairs {"none", "data:4", "none --microbatches=8"} do
      local metrics = helper.file ""
      local out, err, code = train(("--bits=mesh --batch=16 --metrics=%s --overwrite --mesh=%s"):format(
        metrics, on))
      assert.equal(0, code, err)
      assert.truthy(out:find("bits: the batch is 8 leaves of 2 rows", 1, true), out)
      local held = {}
      for line in io.lines(metrics) do
        held[#held + 1] = line:match '"loss":[^,]+' .. line:match '"grad_norm":[^,]+'
      end
      want = want or held
      assert.equal(2, #held)
      assert.same(want, held)
    end
    for options, message in pairs {
      ["--bits=mesh:16 --batch=24 --mesh=none"] = "--batch=24: the batch has 24 rows, which 16 leaves",
      ["--bits=mesh --batch=16 --mesh=data:2 --microbatches=8"] = "take --bits=mesh:16, or fewer",
      ["--bits=mesh --batch=16 --mesh=data:2 --rules=fsdp"] = "is split over data, as the batch is",
      ["--bits=maybe --mesh=none"] = "expected mesh, or mesh:16",
    } do
      local _, err, code = train(options)
      assert.equal(2, code, err)
      assert.truthy(err:find(message, 1, true), err)
    end
  end)
end)
