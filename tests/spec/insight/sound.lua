-- sound.lua: 20 programs as they should be: explain has no finding on any. Each: a name, and a function that
-- gives
-- a step and its arguments.
local ml = require "meshlua"
local P, NamedSharding, nn = ml.P, ml.NamedSharding, ml.nn
package.path = "models/?.lua;" .. package.path

local function put(mesh, x, ...) return ml.device_put(x, NamedSharding(mesh, P(...))) end

--- A training step of a recipe under one of its rule sets.
local function recipe(name, sizes, names, rules, change, microbatches)
  return function()
    local M = require(name)
    local cfg = {}
    for key, value in pairs(M.config) do cfg[key] = key == "dropout" and 0.0 or value end
    for key, value in pairs(change or {}) do cfg[key] = value end
    local mesh = ml.make_mesh(sizes, names)
    rules = type(rules) == "table" and rules or M.rules[rules]
    local model = ml.init(function(rngs) return M.build(cfg, rngs) end, {mesh = mesh, rules = rules})
    local opt = M.optimizer(model, cfg)
    local step = ml.jit(function(m, o, x, y)
      local _, grads, loss = ml.accumulate(microbatches or 1, function(part)
        return ml.value_and_grad(function(v) return M.loss(v, part.x, part.y) end)(m)
      end, {x = x, y = y})
      o:update(m, grads)
      return loss
    end, {mesh = mesh, rules = rules})
    local rows = NamedSharding(mesh, P(names[1]))
    local function batch(...) return ml.device_put(ml.zeros({cfg.batch, ...}, cfg.seq and "int32"
      or "uint8"), rows) end
    if cfg.seq then return step, model, opt, batch(cfg.seq), batch(cfg.seq) end
    return step, model, opt, batch(28, 28), batch()
  end
end

local DATA, GRID = {{8}, {"data"}}, {{4, 2}, {"data", "model"}}

--- A stack of two products on a mesh, trained by plain descent.
local function mlp(grid, up, down, batch)
  return function()
    local mesh = ml.make_mesh(grid[1], grid[2])
    local step = ml.jit(function(w, v, x, y)
      local loss, g = ml.value_and_grad(function(p)
        return ((nn.gelu(x:matmul(p.w)):matmul(p.v) - y) ^ 2):mean()
      end)({w = w, v = v})
      return loss, w - g.w * 0.1, v - g.v * 0.1
    end)
    return step, put(mesh, ml.ones {256, 1024}, table.unpack(up, 1, 2)),
      put(mesh, ml.ones {1024, 256}, table.unpack(down, 1, 2)), put(mesh, ml.ones {512, 256}, batch),
      put(mesh, ml.ones {512, 256}, batch)
  end
end

return {
  {"data parallel MLP", mlp(DATA, {}, {}, "data")},
  {"Megatron's MLP", mlp(GRID, {nil, "model"}, {"model"}, "data")},
  {"Megatron's MLP alone", mlp({{8}, {"model"}}, {nil, "model"}, {"model"}, nil)},
  {"a recipe's MLP, data parallel", recipe("mlp", {8}, {"data"}, "dp")},
  {"GPT, data parallel", recipe("gpt", {8}, {"data"}, "dp")},
  {"GPT, FSDP", recipe("gpt", {8}, {"data"}, "fsdp")},
  {"GPT, split blocks", recipe("gpt", {4, 2}, {"data", "model"}, "tp")},
  {"GPT, split blocks and tokens", recipe("gpt", {4, 2}, {"data", "model"}, "tp_sp")},
  {"GPT, FSDP and split blocks", recipe("gpt", {4, 2}, {"data", "model"}, "fsdp_tp")},
  {"GPT, microbatches", recipe("gpt", {8}, {"data"}, "dp", nil, 2)},
  {"GPT in bf16", recipe("gpt", {8}, {"data"}, "dp", {precision = "bf16"})},
  {"LLaMA, split blocks", recipe("llama", {4, 2}, {"data", "model"}, "tp")},
  {"LLaMA, FSDP", recipe("llama", {8}, {"data"}, "fsdp")},
  {"convnet, data parallel", recipe("convnet", {8}, {"data"}, "dp")},
  {"experts on the batch's axis", function()
    local mesh = ml.make_mesh({8}, {"data"})
    local rules = {{"batch", "data"}, {"expert", "data"}, {"batch", false}, {"embed", false}, {"mlp", false}}
    local layer = ml.init(function(rngs) return nn.MoE(64, 256, 8, {rngs = rngs}) end, {mesh = mesh,
      rules = rules})
    return ml.jit(function(m, x)
      return ml.grad(function(v)
        local y, balance = v(x:constrain {"batch", false, "embed"})
        return (y * y):sum() + 0.01 * balance
      end)(m)
    end, {mesh = mesh, rules = rules}), layer, put(mesh, ml.ones {16, 32, 64}, "data")
  end},
  {"a stack that is scanned", function()
    local mesh = ml.make_mesh({4, 2}, {"data", "model"})
    return ml.jit(function(up, down, x)
      return (ml.scan(function(h, w) return h + nn.gelu(h:matmul(w.up)):matmul(w.down), nil end, x,
        {up = up, down = down}))
    end), put(mesh, ml.ones {6, 128, 512}, nil, nil, "model"), put(mesh, ml.ones {6, 512, 128}, nil, "model"),
      put(mesh, ml.ones {64, 128}, "data")
  end},
  {"means over devices by hand", function()
    local mesh = ml.make_mesh({8}, {"data"})
    return ml.jit(function(w, x)
      return ml.shard_map(function(v, block)
        local own = ml.pcast(v, "data")
        return ml.pmean(ml.grad(function(u) return (block:matmul(u) ^ 2):mean() end)(own), "data")
      end, {mesh = mesh, in_specs = {P(), P("data")}, out_specs = P()})(w, x)
    end), put(mesh, ml.ones {64, 64}), put(mesh, ml.ones {512, 64}, "data")
  end},
  {"a ring by hand", function()
    local mesh = ml.make_mesh({8}, {"data"})
    local pairs_ = {}
    for i = 0, 7 do pairs_[i + 1] = {i, (i + 1) % 8} end
    return ml.jit(function(x, w)
      return ml.shard_map(function(own, v)
        return (ml.scan(function(c)
          return {block = ml.ppermute(c.block, "data", pairs_), sum = c.sum + c.block:matmul(v)}, nil
        end, {block = own, sum = own:matmul(v)}, nil, {length = 7})).sum
      end, {mesh = mesh, in_specs = {P("data"), P()}, out_specs = P("data")})(x, w)
    end), put(mesh, ml.ones {512, 64}, "data"), put(mesh, ml.ones {64, 64})
  end},
  {"an embedding split by rows", function()
    local mesh = ml.make_mesh({4, 2}, {"data", "model"})
    return ml.jit(function(table_, ids) return table_:take(ids, 1) end), put(mesh,
      ml.ones {16384, 256}, "model"), put(mesh, ml.zeros({64, 64}, "int32"), "data")
  end},
  {"attention over heads and batch", function()
    local mesh = ml.make_mesh({4, 2}, {"data", "model"})
    local function heads() return put(mesh, ml.ones {8, 64, 4, 32}, "data", nil, "model") end
    return ml.jit(function(q, k, v) return nn.attention(q, k, v, {causal = true}) end), heads(), heads(),
      heads()
  end},
}
