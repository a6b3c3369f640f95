-- pathologies.lua: programs that run and waste, each with what the command that one tries first should say in
-- its
-- first lines, and of which line: the one that ends with "-- !". Each: a name, a function that gives the
-- text, what it says.
local ml = require "meshlua"
local P, NamedSharding, nn, optim = ml.P, ml.NamedSharding, ml.nn, ml.optim

--- A mesh of the first devices of 64.
local function mesh_of(sizes, names)
  local devices, n = {}, 1
  for _, size in ipairs(sizes) do n = n * size end
  for i = 1, n do devices[i] = i - 1 end
  return ml.make_mesh(sizes, names, devices)
end

local grid, row8 = mesh_of({2, 4}, {"data", "model"}), mesh_of({8}, {"data"})

local function put(mesh, x, ...) return ml.device_put(x, NamedSharding(mesh, P(...))) end
local function ones(mesh, shape, ...) return put(mesh, ml.ones(shape), ...) end
local function explained(...) return tostring(ml.explain(...)) end

--- A model of one product and its optimizer, trained under rules.
local function trained(rules, mesh, size, make)
  local model = ml.init(function(rngs)
    return {up = nn.Linear(size or 64, size or 64, {axes = {"in", "out"}, rngs = rngs, use_bias = false})}
  end, {mesh = mesh, rules = rules})
  local opt = (make or optim.adamw)(model, {lr = 1e-3})
  local step = ml.jit(function(m, o, x)
    local loss, grads = ml.value_and_grad(function(v) return (v.up(x) ^ 2):mean() end)(m)
    o:update(m, grads)
    return loss
  end, {mesh = mesh, rules = rules})
  return step, model, opt, ones(mesh, {512, size or 64}, "data")
end

local list = {}
local function case(name, text, says) list[#list + 1] = {name, text, says} end

case("batch and weight on one axis", function()
  local step = ml.jit(function(x, w)
    return ml.matmul(x, w) -- !
  end)
  return explained(step, ones(grid, {64, 256, 1024}, "model"), ones(grid, {1024, 4096}, nil, "model"))
end, "mesh axis data splits nothing: its 2 devices do the same work; 50%% of the compute is unique")

case("an axis that nothing uses", function()
  local step = ml.jit(function(x, w)
    return nn.relu(x:matmul(w)) -- !
  end)
  return explained(step, ones(grid, {512, 256}, "data"), ones(grid, {256, 256}))
end, "mesh axis model splits nothing: its 4 devices do the same work")

case("half of the model is not split", function()
  local step = ml.jit(function(x, up, down, w)
    local h = nn.gelu(x:matmul(up)):matmul(down)
    return h:matmul(w) -- !
  end)
  return explained(step, ones(grid, {512, 256}, "data"), ones(grid, {256, 1024}, nil, "model"),
    ones(grid, {1024, 256}, "model"), ones(grid, {256, 1024}))
end, "products are not split over mesh axis model: its 4 devices do them alike")

case("a rule whose pattern matches nothing", function()
  local rules = {{"kernal$", P("data")}, {"in", false}, {"out", false}}
  local model = ml.init(function(rngs) return {up = nn.Linear(8, 8, {axes = {"in", "out"}, rngs = rngs})} end,
    {mesh = row8, rules = rules})
  return tostring(ml.explain_rules(rules, model, row8))
end, 'rule 1, {"kernal$", P%("data"%)}, matches no Param: there is up.bias, up.kernel')

case("the same, asked of the step", function()
  return explained(trained({{"up.weight$", P("data")}, {"in", false}, {"out", false}}, row8))
end, 'rule 1, {"up.weight$", P%("data"%)}, matches no Param')

case("a rule whose axis another dim has taken", function()
  local rules = {{"in", "data"}, {"out", "data"}, {"out", false}}
  local model = ml.init(function(rngs) return {up = nn.Linear(8, 8, {axes = {"in", "out"}, rngs = rngs})} end,
    {mesh = row8, rules = rules})
  return tostring(ml.explain_rules(rules, model, row8))
end, "rule 2, {\"out\", \"data\"}, is not used for dim 2 of up.kernel: 'in' already uses mesh axis 'data' ")

case("a weight gathered in every turn of a loop", function()
  local step = ml.jit(function(w, x)
    return (ml.scan(function(h)
      return ml.tanh(h:matmul(w)), nil -- !
    end, x, nil, {length = 32}))
  end)
  return explained(step, ones(row8, {1024, 1024}, "data"), ones(row8, {256, 1024}, "data"))
end, "all_gather over data of argument w gives the same in each of 32 turns of the loop")

case("weights gathered for each microbatch", function()
  local step = ml.jit(function(w, x)
    local _, grads = ml.accumulate(8, function(part)
      return ml.value_and_grad(function(v)
        return (part:matmul(v) ^ 2):mean() -- !
      end)(w)
    end, x)
    return w - grads * 0.1
  end)
  return explained(step, ones(row8, {1024, 1024}, "data"), ones(row8, {512, 1024}, "data"))
end, "all_gather over data of argument w gives the same in each of 8 turns of the loop")

case("optimizer state whole where Params are split", function()
  return explained(trained({{opt = {"kernel", P()}}, {"in", "data"}, {"out", false}}, row8, 1024))
end, "the Params are split over data and their optimizer state is not: every device holds 8.00 MiB of it")

case("a replicated optimizer that takes much", function()
  return explained(trained({{"in", false}, {"out", false}}, row8, 1 << 15))
end, "every device along data holds all of the optimizer state, 8.00 GiB")

case("the tensor axis across hosts", function()
  local mesh = ml.make_mesh({8, 8}, {"model", "data"}) -- !
  local step = ml.jit(function(x, up, down) return nn.gelu(x:matmul(up)):matmul(down) end)
  return explained(step, ones(mesh, {4096, 4096}, "data"), ones(mesh, {4096, 16384}, nil, "model"),
    ones(mesh, {16384, 4096}, "model"))
end, "mesh axis model goes from one host to another, and its 8 devices would fit into one: .-"
  .. "put it last: make_mesh%({8, 8}, {\"data\", \"model\"}%): saves")

case("a vocabulary that does not divide, padded", function()
  local w = put(grid, ml.ones {13, 256}, {"model", uneven = "pad"})
  local step = ml.jit(function(x, table_)
    return x:matmul(table_:transpose()) -- !
  end)
  return explained(step, ones(grid, {512, 256}, "data"), w)
end, "18.8%% of the work is done on padding %(dim 1 of table_, 13 on 4 places: use 16%)")

case("a vocabulary that does not divide, whole", function()
  local w = put(grid, ml.ones {50257, 64}, {"model", uneven = "replicate"})
  local step = ml.jit(function(x, table_)
    return x:matmul(table_:transpose()) -- !
  end)
  return explained(step, ones(grid, {512, 64}, "data"), w)
end, "table_ is whole on every device: no dim of it that was to be split over model divides by 4")

case("a batch that does not divide", function()
  local x = put(row8, ml.ones {12, 256}, {"data", uneven = "pad"})
  local step = ml.jit(function(images, w)
    return images:matmul(w) -- !
  end)
  return explained(step, x, ones(row8, {256, 256}))
end, "25%% of the work is done on padding %(dim 1 of images, 12 on 8 places: use 16%)")

case("key heads fewer than places", function()
  local mesh = mesh_of({8}, {"model"})
  local step = ml.jit(function(x, wk)
    local k = x:matmul(wk):reshape {4, 64, 2, 32}
    return ml.einsum("bthd,bshd->bhts", k, k) -- !
  end)
  return explained(step, ones(mesh, {4, 64, 256}), ones(mesh, {256, 64}, nil, "model"))
end, "mesh axis model .- devices do the same work")

case("inputs alone in bf16", function()
  local step = ml.jit(function(x, w)
    return x:astype "bfloat16":matmul(w) -- !
  end)
  return explained(step, ones(row8, {4096, 4096}, "data"), ones(row8, {4096, 4096}))
end, "one operand is bfloat16 and the other float32, so the product runs in float32, at")

case("weights alone in bf16", function()
  local step = ml.jit(function(x, w)
    return x:matmul(w) -- !
  end)
  return explained(step, ones(row8, {4096, 4096}, "data"), ones(row8, {4096, 4096}):astype "bfloat16")
end, "one operand is bfloat16 and the other float32")

case("a stray float64", function()
  local step = ml.jit(function(x, w)
    return x:matmul(w) -- !
  end)
  return explained(step, ones(row8, {4096, 4096}, "data"), put(row8, ml.ones({4096, 4096}, "float64")))
end, "one operand is float32 and the other float64, so the product runs in float64")

case("recomputation where there is room", function()
  local step = ml.jit(function(w, x)
    local f = ml.remat(function(v)
      local h = x
      for _ = 1, 4 do
        h = ml.tanh(h:matmul(v)) -- !
      end
      return h
    end)
    return ml.grad(function(v) return f(v):sum() end)(w)
  end)
  return explained(step, ones(row8, {512, 512}), ones(row8, {1024, 512}, "data"))
end, "of the work computes again what ml.remat does not keep, and there is room to keep it")

case("a trace for every step", function()
  local step = ml.jit(function(x, i)
    return x * i
  end, {static = {"i"}})
  for i = 1, 6 do step(ones(row8, {64, 64}, "data"), i) end
  return explained(step, ones(row8, {64, 64}, "data"), 7)
end, "the step was traced in 6 of 6 calls; the last time: ")

case("all_reduce where each keeps a part", function()
  local step = ml.jit(function(w, m, x)
    local g = ml.grad(function(v)
      return (x:matmul(v) ^ 2):mean() -- !
    end)(w)
    g = g:constrain(NamedSharding(row8, P()))
    return m * 0.9 + g * 0.1
  end)
  return explained(step, ones(row8, {1024, 1024}), ones(row8, {1024, 1024}, "data"), ones(row8, {512,
    1024}, "data"))
end, "all_reduce over data makes all of .- on every device, and at .- each takes a part of it")

case("a sum made twice", function()
  local step = ml.jit(function(x)
    return ml.shard_map(function(block)
      local total = ml.psum(block:sum(), "data")
      return ml.psum(total, "data") -- !
    end, {mesh = row8, in_specs = {P("data")}, out_specs = P()})(x)
  end)
  return explained(step, ones(row8, {64, 64}, "data"))
end, "all_reduce over data adds up what is already the same on its devices, 8 times")

case("gathered, and cut again", function()
  local step = ml.jit(function(x, w)
    local h = x:matmul(w)
    h = h:constrain(NamedSharding(row8, P())) -- !
    return (h * 2):constrain(NamedSharding(row8, P("data")))
  end)
  return explained(step, ones(row8, {4096, 256}, "data"), ones(row8, {256, 256}))
end, "all_gather over data makes all of .- on every device, and at .- each takes a part of it")

case("an update that is not in place", function()
  local w = ml.core.box_new(ones(row8, {1024, 1024}), {kind = "param"})
  local step = ml.jit(function(v, x)
    local old = v:get()
    v:set(old - (x:sum(1) * 1e-3)) -- !
    return old
  end)
  return explained(step, w, ones(row8, {512, 1024}, "data"))
end, "v is not updated in place, which takes 4.00 MiB more: its old value is still needed then")

case("donate = false", function()
  local w = ml.core.box_new(ones(row8, {1024, 1024}), {kind = "param"})
  local step = ml.jit(function(v, x)
    v:set(v - (x:sum(1) * 1e-3)) -- !
  end, {donate = false})
  return explained(step, w, ones(row8, {512, 1024}, "data"))
end, "v is not updated in place, which takes 4.00 MiB more: the step may not write over it")

case("a large tensor met in the function", function()
  local w = ones(row8, {1024, 1024})
  local step = ml.jit(function(x)
    return x:matmul(w) -- !
  end)
  return explained(step, ones(row8, {512, 1024}, "data"))
end, "a tensor of 4.00 MiB is met inside the function, whole on every device")

case("more than a device holds", function()
  local step = ml.jit(function(x, w) return x:matmul(w) end)
  return explained(step, ones(grid, {1 << 12, 1 << 18}, "data"), ones(grid, {1 << 18, 1 << 18}))
end, "it does not fit: the plan needs")

case("more parts than there is work for", function()
  local mesh = ml.make_mesh({2, 32}, {"data", "model"})
  local step = ml.jit(function(x, up, down) return nn.gelu(x:matmul(up)):matmul(down) end)
  return explained(step, ones(mesh, {1 << 16, 1024}, "data"), ones(mesh, {1024, 1024}, nil, "model"),
    ones(mesh, {1024, 1024}, "model"))
end, "over%-sharded: .- of the time is communication")

case("logits made whole", function()
  local step = ml.jit(function(x, w, y)
    local logits = x:matmul(w)
    logits = logits:constrain(NamedSharding(grid, P("data"))) -- !
    return nn.softmax_cross_entropy_with_integer_labels(logits, y):mean()
  end)
  return explained(step, ones(grid, {4096, 256}, "data"), ones(grid, {256, 8192}, nil, "model"),
    put(grid, ml.zeros({4096}, "int32"), "data"))
end, "the constraint makes all of matmul .- on every device along model, which then do the same at")

case("moved there and back", function()
  local step = ml.jit(function(x, w)
    local h = x:matmul(w):constrain(NamedSharding(row8, P(nil, "data")))
    return ml.tanh(h):constrain(NamedSharding(row8, P("data"))) -- !
  end)
  return explained(step, ones(row8, {4096, 256}, "data"), ones(row8, {256, 256}))
end, "all_to_all over data moves back what all_to_all moved at")

case("an op that needs whole what is split", function()
  local step = ml.jit(function(x)
    return x:sort(1) -- !
  end)
  return explained(step, ones(row8, {4096, 64}, "data"))
end, "keys of sort: dim 1 is split on data but is needed whole")

case("an argument that is moved at every call", function()
  local step = ml.jit(function(x, w)
    return (x:constrain(NamedSharding(row8, P("data"))) * 2):matmul(w) -- !
  end)
  return explained(step, ones(row8, {65536, 256}, nil, "data"), ones(row8, {256, 8}))
end, "all_to_all over data moves x to another layout at every call")

case("columns behind columns", function()
  local step = ml.jit(function(x, up, down)
    return nn.gelu(x:matmul(up)):matmul(down):sum() -- !
  end)
  local function half(shape, ...) return put(grid, ml.ones(shape, "bfloat16"), ...) end
  return explained(step, half({512, 4096}, "data"), half({4096, 16384}, nil, "model"),
    half({16384, 4096}, nil, "model"))
end, "all_gather over model takes .- of the time, because down lies as it does, .- with down as P")

return list
