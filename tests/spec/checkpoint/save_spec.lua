-- devices: 8
-- save_spec.lua: tensors in files: every format and dtype, from one layout into another, and what is refused.
local helper = require "spec.helper"
local lib = require "meshlua.lib"
local map_of = require "meshlua.checkpoint.map"
local random_map = require "spec.checkpoint.random_map"
local ml = require "meshlua"

local nn, P, NamedSharding = ml.nn, ml.P, ml.NamedSharding

local mesh = ml.make_mesh({4, 2}, {"x", "y"})
local layouts = {P(), P "x", P(nil, "y"), P("y", "x"), P {"x", "y"}, P(nil, {"y", "x"})}

local function on(t, spec) return ml.device_put(t, NamedSharding(mesh, spec)) end

local folder

local function path(name) return folder .. "/" .. name end

local function read(name)
  local file <close> = assert(io.open(path(name), "rb"))
  return file:read "a"
end

local function write(name, text)
  local file <close> = assert(io.open(path(name), "wb"))
  file:write(text)
end

--- The names in the folder.
local function names()
  local list = {}
  local found <close> = assert(io.popen("ls -A '" .. folder .. "'"))
  for name in found:lines() do list[#list + 1] = name end
  return list
end

local function values(dtype, shape)
  local n = ml.arange(ml.zeros(shape).size)
  if dtype == "bool" then return (n % 3):eq(0):reshape(shape) end
  local x = (dtype:find "float" and n * 0.37 - 3.0 or n * 7 + 1):astype(dtype)
  return x:reshape(shape)
end

local dtypes = {"float32", "bfloat16", "float16", "float64", "int32", "int64", "uint32", "uint8", "bool"}
local holds = {
  safetensors = dtypes, npy = {}, npz = {},
  gguf = {"float32", "bfloat16", "float16", "float64", "int32", "int64"},
}
for _, dtype in ipairs(dtypes) do
  if dtype ~= "bfloat16" then
    table.insert(holds.npy, dtype)
    table.insert(holds.npz, dtype)
  end
end

local function same(expected, got)
  assert.equal(expected.dtype, got.dtype)
  assert.same({table.unpack(expected.shape)}, {table.unpack(got.shape)})
  assert.is_true(expected:bytes() == got:bytes())
end

before_each(function()
  folder = os.tmpname()
  os.remove(folder)
  assert(os.execute("mkdir " .. folder))
end)
after_each(function() os.execute("rm -r " .. folder) end)

describe("save and load", function()
  for _, format in ipairs {"safetensors", "npz", "gguf"} do
    it(format .. " keeps the bits of every dtype, in whatever layout they were and are wanted", function()
      local tree, all = {lists = {}}, {}
      for k, dtype in ipairs(holds[format]) do
        local x = values(dtype, {8, 16})
        tree.lists[k] = on(x, layouts[k % #layouts + 1])
        all["lists." .. k] = x
      end
      if format ~= "gguf" then
        tree.scalar, tree.empty = ml.tensor(2.5), ml.zeros {0, 3}
        all.scalar, all.empty = tree.scalar, tree.empty
      end
      assert(ml.save(path("a." .. format), tree))
      assert.same({"a." .. format}, names())
      for k, spec in ipairs(layouts) do
        local loaded = assert(ml.load(path("a." .. format), {mesh = mesh, sharding = function(name, shape)
          return #shape == 2 and shape[1] > 0 and name and spec or nil
        end}))
        local count = 0
        for name, x in pairs(loaded) do
          count = count + 1
          same(all[name], x)
          if name:find "lists" then assert.equal(NamedSharding(mesh, spec), x.sharding) end
        end
        assert.equal(k and #ml.tree.leaves(tree), count)
      end
      local first = read("a." .. format)
      assert(ml.save(path("b." .. format), ml.tree.map(function(x) return x end, tree)))
      assert.is_true(first == read("b." .. format)) -- the same tree, the same bytes
    end)
  end

  it("npy holds one tensor, without a name", function()
    for k, dtype in ipairs(holds.npy) do
      local x = values(dtype, {8, 16})
      assert(ml.save(path "x.npy", on(x, layouts[k % #layouts + 1])))
      same(x, (assert(ml.load(path "x.npy"))))
      local back = ml.load(path "x.npy", {mesh = mesh, sharding = P("y", "x")})
      same(x, back)
      assert.equal(NamedSharding(mesh, P("y", "x")), back.sharding)
    end
    local box = nn.Param(ml.zeros {8, 4}, {kind = "param"})
    assert(ml.save(path "x.npy", {w = ml.ones {8, 4}}))
    assert.equal(box, (ml.load(path "x.npy", {into = box})))
    same(ml.ones {8, 4}, box:get())
    assert.equal(1, ml.load(path "x.npy", {into = {other = box}}).other:get():totable()[1][1])
    assert.error_matches(function() ml.save(path "y.npy", {a = ml.ones {1}, b = ml.ones {1}}) end,
      "E_VALUE.*there are 2")
    assert.error_matches(function() ml.load(path "x.npy", {into = {a = box, b = nn.Param(ml.ones {1})}}) end,
      "E_VALUE.*names tell which is which")
  end)

  it("a value that is on no mesh is saved, and loaded so", function()
    assert(ml.save(path "a.safetensors", {x = ml.arange(5)}))
    local loaded, metadata = ml.load(path "a.safetensors")
    same(ml.arange(5), loaded.x)
    assert.is_nil(loaded.x.sharding.mesh)
    assert.same({format = "pt"}, metadata)
  end)

  it("keeps metadata: texts in safetensors, GGUF's values in GGUF", function()
    assert(ml.save(path "a.safetensors", {x = ml.arange(5)}, {metadata = {step = "12", ["ü"] = "\n\"x\""}}))
    local _, metadata = ml.load(path "a.safetensors")
    assert.same({format = "pt", step = "12", ["ü"] = "\n\"x\""}, metadata)
    local x = {x = ml.arange(5)}
    assert.error_matches(function() ml.save(path "a.safetensors", x, {metadata = {step = 12}}) end,
      "E_VALUE.*step is a number; safetensors holds texts")
    local given = {["general.architecture"] = "gpt2", n = 3, eps = 0.5, list = {"a", "b"}, flag = true}
    assert(ml.save(path "a.gguf", {x = ml.arange(5)}, {metadata = given}))
    _, metadata = ml.load(path "a.gguf")
    for key, value in pairs(given) do assert.same(value, metadata[key]) end
    assert.error_matches(function() ml.save(path "a.npz", x, {metadata = {}}) end, "E_VALUE.*'metadata'")
  end)

  it("gives nested tables where asked, lists from numbers", function()
    local tree = {h = {{w = ml.arange(3)}, {w = ml.arange(4)}}, ["10x"] = ml.arange(2)}
    assert(ml.save(path "a.safetensors", tree))
    local back = assert(ml.load(path "a.safetensors", {tree = true}))
    assert.equal(2, #back.h)
    same(tree.h[2].w, back.h[2].w)
    same(tree["10x"], back["10x"])
    assert(ml.save(path "b.safetensors", {["a.b"] = ml.arange(3), a = ml.arange(2)}))
    assert.error_matches(function() ml.load(path "b.safetensors", {tree = true}) end,
      "E_VALUE.*leave out tree")
    same(ml.arange(3), ml.load(path "b.safetensors")["a.b"])
  end)

  it("loads by rules: a path's P, or a function of path and tensor", function()
    local x = {w = values("float32", {8, 4}), b = values("float32", {4}), s = ml.tensor(1.0)}
    assert(ml.save(path "a.safetensors", x))
    local t = ml.load(path "a.safetensors", {mesh = mesh, rules = {{"^w$", P("x", "y")}}})
    assert.equal(NamedSharding(mesh, P("x", "y")), t.w.sharding)
    assert.equal(NamedSharding(mesh, P()), t.b.sharding)
    t = ml.load(path "a.safetensors", {mesh = mesh, rules = {ml.shard_largest("x", 2)}})
    assert.equal(NamedSharding(mesh, P("x", nil)), t.w.sharding)
    assert.equal(NamedSharding(mesh, P "x"), t.b.sharding)
    same(x.w, t.w)
    local uneven = {mesh = mesh, sharding = {b = P {"x", "y"}}}
    assert.error_matches(function() ml.load(path "a.safetensors", uneven) end, "E_INDIVISIBLE")
  end)

  it("casts where asked: to a dtype on both ways, to what is there", function()
    local x = {w = values("float32", {4, 4}), ids = ml.arange(4)}
    assert(ml.save(path "a.safetensors", x, {cast = "bfloat16"}))
    local t = ml.load(path "a.safetensors")
    same(x.w:astype "bfloat16", t.w)
    same(x.ids, t.ids)
    t = ml.load(path "a.safetensors", {cast = "float64"})
    same(x.w:astype "bfloat16":astype "float64", t.w)
    same(x.ids, t.ids)
    local model = {w = nn.Param(ml.zeros {4, 4}), ids = nn.Param(ml.zeros({4}, "int32"))}
    assert.error_matches(function() ml.load(path "a.safetensors", {into = model}) end,
      "E_DTYPE.*'w' is bfloat16 in the file, w is float32; cast = true")
    assert(ml.load(path "a.safetensors", {into = model, cast = true}))
    same(x.w:astype "bfloat16":astype "float32", model.w:get())
    assert(ml.save(path "b.npz", x, {cast = "float16"}))
    same(x.w:astype "float16", ml.load(path "b.npz").w)
    assert(ml.save(path "c.safetensors", {w = ml.tensor {1e30}}))
    local nothing, message, code = ml.load(path "c.safetensors", {cast = "float16"})
    assert.is_nil(nothing)
    assert.matches("c.safetensors", message)
    assert.equal("E_VALUE", code)
    nothing, message, code = ml.save(path "d.safetensors", {w = ml.tensor {1e30}}, {cast = "float16"})
    assert.is_nil(nothing)
    assert.matches("d.safetensors", message)
    assert.equal("E_VALUE", code)
    assert.same({"a.safetensors", "b.npz", "c.safetensors"}, names())
  end)

  it("GGUF: a word for matrices, vectors stay float32", function()
    local x = {w = values("float32", {3, 64}), odd = values("float32", {2, 5}), b = values("float32", {64})}
    for _, word in ipairs {"F32", "F16", "BF16"} do
      assert(ml.save(path "a.gguf", x, {encoding = word}))
      local t = ml.load(path "a.gguf")
      local dtype = {F32 = "float32", F16 = "float16", BF16 = "bfloat16"}
      same(x.w:astype(dtype[word]), t.w)
      same(x.b, t.b)
    end
    assert.error_matches(function() ml.save(path "a.gguf", x, {encoding = "Q4_K"}) end, "E_VALUE.*Q8_0")
    assert.error_matches(function() ml.save(path "a.npz", x, {encoding = "F32"}) end, "E_VALUE.*'encoding'")
  end)
end)

describe("Q8_0", function()
  it("has each row's blocks of 32 as whole numbers with a scale, whatever the layout", function()
    local x = ml.random.normal(ml.random.key(0), {16, 64})
    local tree = {w = on(x, P("x", "y")), t = on(x, P(nil, {"y", "x"})), b = values("float32", {64}),
      odd = values("float32", {4, 33}), ids = ml.arange(5), half = x:astype "bfloat16"}
    assert(ml.save(path "a.gguf", tree, {encoding = "Q8_0", metadata = {["general.architecture"] = "none"}}))
    assert.same({"a.gguf"}, names())
    local encodings = {}
    for _, entry in ipairs(ml.core.catalog(path "a.gguf"):entries()) do
      encodings[entry.name] = entry.encoding
    end
    assert.same({w = "Q8_0", t = "Q8_0", b = "F32", odd = "F32", ids = "I32", half = "Q8_0"}, encodings)
    local t, metadata = ml.load(path "a.gguf", {mesh = mesh, sharding = {w = P("y", "x"), t = P("x", "y")}})
    same(t.w, t.t)
    same(tree.b, t.b)
    same(tree.odd, t.odd)
    assert.equal("none", metadata["general.architecture"])
    local blocks = x:reshape(16, 2, 32)
    local scale = (blocks:abs():max(3, true) / 127):astype "float16":astype "float32"
    local off = (t.w:reshape(16, 2, 32) - blocks):abs() / scale
    assert.is_true(off:max():item() < 0.6)
    local whole = t.w:reshape(16, 2, 32) / scale
    assert.is_true((whole - whole:round()):abs():max():item() < 1e-4)
  end)

  it("holds no value beyond its scale; then nothing is written, and nothing left", function()
    for _, value in ipairs {1e9, math.huge, 0 / 0} do
      write("a.gguf", "old")
      local tree = {w = ml.full({2, 32}, value)}
      local nothing, message, code = ml.save(path "a.gguf", tree, {encoding = "Q8_0"})
      assert.is_nil(nothing)
      assert.equal("E_VALUE", code)
      assert.matches('tensor "w": Q8_0 cannot hold', message)
      assert.same({"a.gguf"}, names())
      assert.equal("old", read "a.gguf")
    end
  end)
end)

-- ---- models -----------------------------------------------------------------------------------------

local Net = nn.module "Net"

function Net:init(rngs)
  self.name, self.size = "net", {wide = 8} -- static: the code makes it
  self.embed = nn.Embed(8, 16, {rngs = rngs, axes = {"vocab", "embed"}})
  self.h = {}
  for k = 1, 2 do self.h[k] = nn.Linear(16, 16, {rngs = rngs, axes = {"embed", "mlp"}}) end
  self.head = self.embed -- tied
end

local rules = {{"vocab", "y"}, {"embed", false}, {"mlp", "x"}}

local function net(seed, with) return ml.init(Net, {mesh = mesh, rules = with or rules, seed = seed}) end

local function state(model)
  local found = {}
  ml.tree.visit(model, function(name, leaf) found[name] = leaf:bytes() end)
  return found
end

describe("a model", function()
  it("is saved by its paths, what is tied once, and loaded in the layouts that it has", function()
    local a, b = net(1), net(2, {{"vocab", false}, {"embed", "y"}, {"mlp", false}})
    assert(ml.save(path "m.safetensors", a))
    local flat = ml.load(path "m.safetensors")
    local found = ml.core.tree_keys(flat)
    assert.same({"embed.embedding", "h.1.bias", "h.1.kernel", "h.2.bias", "h.2.kernel"}, found)
    local before = b.h[1].kernel.sharding
    local back, report = ml.load(path "m.safetensors", {into = b})
    assert.equal(b, back)
    assert.same({missing = {}, unexpected = {}, metadata = {format = "pt"}}, report)
    assert.same(state(a), state(b))
    assert.equal(before, b.h[1].kernel.sharding)
    assert.equal(b.head, b.embed)
    -- Optimizers are trees, too, and plain tensors stand in their tables.
    local plain = {model = net(3), more = {x = ml.zeros {3}}}
    assert(ml.save(path "p.safetensors", {model = a, more = {x = ml.arange(3.0)}}))
    assert(ml.load(path "p.safetensors", {into = plain}))
    assert.same(state(a), state(plain.model))
    same(ml.arange(3.0), plain.more.x)
    local opt, other = ml.optim.adamw(a, {lr = 1e-3}), ml.optim.adamw(b, {lr = 1e-3})
    assert(ml.save(path "o.safetensors", {opt = opt}))
    assert(ml.load(path "o.safetensors", {into = {opt = other}}))
    assert.same(state(opt), state(other))
  end)

  it("trains on after loading, and a step that is there need not be traced again", function()
    local a = net(1)
    local opt = ml.optim.sgd(a, {lr = 0.1})
    local step = ml.jit(function(model, o, ids)
      local loss, grads = ml.value_and_grad(function(m) return (m.h[1](m.embed(ids)) ^ 2):mean() end)(model)
      o:update(model, grads)
      return loss
    end, {mesh = mesh, rules = rules})
    local ids = ml.arange(8)
    assert(ml.save(path "a.safetensors", a))
    local first = step(a, opt, ids):item()
    step(a, opt, ids)
    assert(ml.load(path "a.safetensors", {into = a}))
    assert.equal(first, step(a, opt, ids):item())
    local misses = helper.traces(step)
    assert.equal(1, misses)
  end)

  it("that the file does not fit stays as it is; the first ten differences are told", function()
    local a, b = net(1), net(2)
    local before = state(b)
    local tree = {embed = {embeding = a.embed.embedding},
      h = {{kernel = ml.zeros {16, 8}, bias = a.h[1].bias}}}
    assert(ml.save(path "m.safetensors", tree))
    local ok, message = pcall(ml.load, path "m.safetensors", {into = b})
    assert.is_false(ok)
    for _, text in ipairs {"E_SHAPE", "differ in 5 places",
      "h.1.kernel is [16,8] in the file; h.1.kernel [16,16]",
      "embed.embedding is not in the file; is it 'embed.embeding'?",
      "'embed.embeding' is in the file, and nobody takes it; is it 'embed.embedding'?",
      "h.2.kernel is not in the file"} do
      assert.is_truthy(message:find(text, 1, true), message)
    end
    assert.same(before, state(b))
    local many = {}
    for k = 1, 25 do many["t" .. k] = ml.zeros {1} end
    assert(ml.save(path "n.safetensors", many))
    ok, message = pcall(ml.load, path "n.safetensors", {into = b})
    assert.is_false(ok)
    assert.is_truthy(message:find("differ in 30 places", 1, true))
    assert.is_truthy(message:find("and 20 more", 1, true))
    -- One value of the last tensor does not fit in the dtype.
    local half = {a = nn.Param(ml.zeros({2}, "float16")), b = nn.Param(ml.zeros({2}, "float16"))}
    assert(ml.save(path "h.safetensors", {a = ml.ones {2}, b = ml.tensor {1.0, 1e9}}))
    local nothing, _, code = ml.load(path "h.safetensors", {into = half, cast = true})
    assert.is_nil(nothing)
    assert.equal("E_VALUE", code)
    assert.same({0, 0}, half.a:get():totable())
  end)

  it("may take a part of the file, or more than the file has, where that is asked for", function()
    local a, b = net(1), net(2)
    local before = state(b)
    assert(ml.save(path "m.safetensors", a))
    assert(ml.load(path "m.safetensors", {into = b, partial = "^h%."}))
    assert.equal(before["embed.embedding"], b.embed.embedding:bytes())
    same(a.h[2].kernel, b.h[2].kernel)
    assert.error_matches(function() ml.load(path "m.safetensors", {into = b, partial = {"^h", "^g"}}) end,
      "E_KEY.*'^g'")
    assert(ml.save(path "n.safetensors", {embed = a.embed, other = ml.zeros {1}}))
    b = net(2)
    local _, report = assert(ml.load(path "n.safetensors", {into = b, strict = false}))
    assert.same({"h.1.bias", "h.1.kernel", "h.2.bias", "h.2.kernel"}, report.missing)
    assert.same({"other"}, report.unexpected)
    same(a.embed.embedding, b.embed.embedding)
    local t = ml.load(path "m.safetensors", {partial = {"bias"}})
    assert.same({"h.1.bias", "h.2.bias"}, ml.core.tree_keys(t))
  end)

  it("that is tied takes a file that has both, where they are the same", function()
    local map = {{"wte", "embed"}, {"head", "head.kernel"}, {tie = "head", to = "wte"}}
    local tied, untied = {embed = nn.Param(ml.zeros {4, 2})}, {embed = nn.Param(ml.zeros {4, 2}),
      head = {kernel = nn.Param(ml.zeros {4, 2})}}
    local x = values("float32", {4, 2})
    assert(ml.save(path "both.safetensors", {wte = x, head = x + 0}))
    assert(ml.save(path "other.safetensors", {wte = x, head = x + 1}))
    assert(ml.save(path "one.safetensors", {wte = x}))
    assert(ml.load(path "both.safetensors", {into = tied, map = map}))
    same(x, tied.embed:get())
    assert(ml.load(path "one.safetensors", {into = untied, map = map}))
    same(x, untied.head.kernel:get())
    assert(ml.load(path "other.safetensors", {into = untied, map = map}))
    same(x + 1, untied.head.kernel:get())
    assert.error_matches(function() ml.load(path "other.safetensors", {into = tied, map = map}) end,
      "'head' and 'wte' differ in the file")
  end)

  it("that is only planned gets its tensors, too", function()
    local types = ml.abstract(function() return net(1) end)
    assert(ml.save(path "m.safetensors", net(1)))
    assert(ml.load(path "m.safetensors", {into = types}))
    same(net(1).h[1].kernel:get(), types.h[1].kernel)
    assert.equal(net(1).h[1].kernel.sharding, types.h[1].kernel.sharding)
  end)

  it("goes through a name map, in both directions, sharded on both sides", function()
    local map = {{"wte", "embed.embedding"}, {"layer.{i}.weight", "h.{i+1}.kernel", {"transpose"}},
      {"layer.{i}.bias", "h.{i+1}.bias"}, {prefix = "model."}, {ignore = "mask$"}}
    local a, b = net(1), net(2)
    assert(ml.save(path "m.safetensors", a, {map = map}))
    local t = ml.load(path "m.safetensors")
    assert.same({"layer.0.bias", "layer.0.weight", "layer.1.bias", "layer.1.weight", "wte"},
      ml.core.tree_keys(t))
    same(a.h[1].kernel:T(), t["layer.0.weight"])
    assert(ml.load(path "m.safetensors", {into = b, map = map}))
    assert.same(state(a), state(b))
    t = ml.load(path "m.safetensors", {map = map, tree = true, mesh = mesh, sharding = P "x",
      partial = "kernel"})
    same(a.h[2].kernel, t.h[2].kernel)
    -- Layers as one tensor.
    local stacked = {{"layer.{i}.weight", "w", {"transpose"}, {"stack", 1}},
      {"layer.{i}.bias", "b", {"stack", 2}}, {"wte", "e"}}
    t = ml.load(path "m.safetensors", {map = stacked, mesh = mesh, sharding = {w = P("y", "x")}})
    same(ml.stack({a.h[1].kernel:get(), a.h[2].kernel:get()}, 1), t.w)
    same(ml.stack({a.h[1].bias:get(), a.h[2].bias:get()}, 2), t.b)
    assert(ml.save(path "s.safetensors", t, {map = stacked}))
    assert.is_true(read "m.safetensors" == read "s.safetensors")
    assert.error_matches(function() ml.save(path "s.safetensors", {w = t.w, q = t.w}, {map = stacked}) end,
      "E_VALUE.*q: no rule of the map takes it")
    local short = {into = b, map = {{"wte", "embed.embedding"}}}
    assert.error_matches(function() ml.load(path "m.safetensors", short) end,
      "h.1.bias: no rule of the map gives it")
  end)
end)

describe("random maps", function()
  it("are gone through sharded, in both directions, as they are in plain Lua", function()
    math.randomseed(3, 4)
    local random, done = math.random, 0
    for _ = 1, helper.watched and 15 or 80 do
      local shape = {}
      for d = 1, random(1, 3) do shape[d] = 8 * random(1, 2) end
      local chain = random_map.chain(random, shape)
      local map, stacked = {{"f.{i}", "m.{i}", table.unpack(chain)}}, random(1, 2) == 1
      local d = random(1, #shape + 1)
      if stacked then
        map[1][2] = "m"
        table.insert(map[1], {"stack", d})
        table.insert(shape, d, 8)
      end
      local name = stacked and "m" or "m.7"
      local n = lib.product(shape)
      local plain = {shape = shape}
      for k = 1, n do plain[k] = k - 1 end
      local m = map_of.compile("test", map)
      local _, _, problems = m:write {{path = name, shape = shape, dtype = "int32"}}
      if #problems == 0 then
        local specs = {P(), P "x", P {"y", "x"}}
        if #shape > 1 then table.move({P(nil, "y"), P("y", "x"), P(nil, {"x", "y"})}, 1, 3, 4, specs) end
        local x = on(ml.arange(n):reshape(shape), specs[random(1, #specs)])
        assert(ml.save(path "a.safetensors", {[name] = x}, {map = map}))
        local files = random_map.written(m, {[name] = plain})
        for entry, t in pairs(ml.load(path "a.safetensors")) do
          local expected = files[entry]
          assert.same(expected.shape, {table.unpack(t.shape)})
          assert.is_true(ml.tensor({table.unpack(expected, 1, n)}, "int32"):bytes() == t:bytes())
        end
        local other = specs[random(1, #specs)]
        same(x, ml.load(path "a.safetensors", {map = map, mesh = mesh, sharding = other})[name])
        done = done + 1
      end
    end
    assert.is_true(done > (helper.watched and 9 or 50))
  end)
end)

-- ---- folders ----------------------------------------------------------------------------------------

describe("a folder of Hugging Face", function()
  it("has one file, or several with an index, and no stale one", function()
    local a, b = net(1), net(2)
    assert(ml.save(folder .. "/hf/", a))
    assert.same(state(a), state(ml.load(folder .. "/hf", {into = b})))
    assert(ml.save(folder .. "/hf", a, {shard_bytes = 1100}))
    local index = ml.core.json(read "hf/model.safetensors.index.json")
    assert.equal(4 * (8 * 16 + 2 * (16 * 16 + 16)), index.metadata.total_size)
    assert.equal("model-00002-of-00003.safetensors", index.weight_map["h.1.kernel"])
    local listed = io.popen("ls -A " .. folder .. "/hf"):read "a"
    assert.equal(4, select(2, listed:gsub("\n", "")))
    for _, name in ipairs {"/hf/", "/hf/model.safetensors.index.json"} do
      b = net(2)
      assert(ml.load(folder .. name, {into = b}))
      assert.same(state(a), state(b))
    end
    assert(ml.save(folder .. "/hf/model.safetensors.index.json", a, {shard_bytes = 100000}))
    assert.equal("model.safetensors\n", io.popen("ls -A " .. folder .. "/hf"):read "a")
  end)

  it("is never half of one save and half of another", function()
    local function tree(x) return {a = ml.full({4}, x), b = ml.full({4}, x), c = ml.full({4}, x)} end
    local function loaded()
      local t, message = ml.load(folder)
      if not t then
        assert.matches("no model.safetensors.index.json", message)
        return nil
      end
      assert.same({t.a:totable()[1], t.a:totable()[1]}, {t.b:totable()[1], t.c:totable()[1]})
      return t.a:totable()[1]
    end
    assert(ml.save(folder, tree(1.0), {shard_bytes = 16}))
    assert(os.execute("mkdir " .. path "model-00001-of-00002.safetensors"))
    assert(os.execute("mkdir " .. path "model-00001-of-00002.safetensors/x"))
    assert.is_nil((ml.save(folder, tree(2.0), {shard_bytes = 32})))
    assert.equal(1.0, loaded())
    assert(os.execute("rm -r " .. path "model-00001-of-00002.safetensors"))
    assert(os.execute("rm " .. path "model-00003-of-00003.safetensors"))
    assert(os.execute("mkdir -p " .. path "model-00003-of-00003.safetensors/x"))
    assert.is_nil((ml.save(folder, tree(3.0), {shard_bytes = 16})))
    assert.is_nil(loaded())
    assert(os.execute("rm -r " .. path "model-00003-of-00003.safetensors"))
    assert(ml.save(folder, tree(4.0), {shard_bytes = 16}))
    assert.equal(4.0, loaded())
    assert(ml.save(folder, tree(5.0)))
    assert.equal(5.0, loaded())
    assert.same({"model.safetensors"}, names())
  end)

  it("is refused where index and files differ", function()
    assert(ml.save(folder .. "/", {a = ml.ones {4}, b = ml.ones {4}, c = ml.ones {4}}, {shard_bytes = 16}))
    local index = "model.safetensors.index.json"
    local text = read(index)
    local function refused(pattern, change)
      write(index, change)
      local nothing, message, code = ml.load(folder)
      assert.is_nil(nothing)
      assert.equal("E_PARSE", code)
      assert.matches(pattern, message)
      assert.matches("index.json", message)
    end
    refused("'z' is in model%-00001%-of%-00003.safetensors, which has no such",
      (text:gsub('"a":', '"z":"model-00001-of-00003.safetensors","a":')))
    refused("has the tensor 'a', and weight_map says nothing",
      (text:gsub('"a":"model%-00001', '"z":"model-00001')))
    refused("says that 'a' is in model%-00002%-of%-00003.safetensors, which has no such",
      (text:gsub("model%-00001", "model-00002")))
    refused("which is no file of this folder", (text:gsub("model%-00001", "../model-00001")))
    refused("no weight_map", "{}")
    refused("duplicate", '{"weight_map": {}, "weight_map": {}}')
    write(index, text)
    os.remove(path "model-00002-of-00003.safetensors")
    local nothing, message, code = ml.load(folder)
    assert.is_nil(nothing)
    assert.equal("E_IO", code)
    assert.matches("model%-00002%-of%-00003", message)
    nothing, message = ml.load(folder .. "/nothing/")
    assert.is_nil(nothing)
    assert.matches("nothing", message)
  end)
end)

-- ---- what is refused --------------------------------------------------------------------------------

describe("nothing on the disk changes where", function()
  it("a call is wrong", function()
    write("a.safetensors", "old")
    local x = {w = ml.ones {2}}
    for _, case in ipairs {
      {"E_VALUE.*step is a number", "a.safetensors", {w = ml.ones {2}, step = 3}},
      {"E_VALUE.*h.1.name is a string", "a.safetensors", {h = {{name = "x"}}}},
      {"E_VALUE.*has no name", "a.safetensors", ml.ones {2}},
      {"E_VALUE.*two tensors of the tree have the path '10'", "a.safetensors",
        {[10] = ml.ones {1}, ["10"] = ml.zeros {1}}},
      {"E_VALUE.*got a number", "a.safetensors", 3}, {"E_VALUE.*which format", "a.bin", x},
      {"E_VALUE.*which format", "model", x}, {"E_KEY.*'shard_byte'", "a.safetensors", x, {shard_byte = 3}},
      {"E_VALUE.*'shard_bytes' is for folders", "a.safetensors", x, {shard_bytes = 3}},
      {"E_VALUE.*'numbers' is for a map", "a.safetensors", x, {numbers = {}}},
      {"E_VALUE.*for floats", "a.safetensors", x, {cast = "int32"}},
      {"E_VALUE.*without values", "a.safetensors", ml.abstract(function() return {w = ml.ones {2}} end)},
      {"E_VALUE.*rule 1", "a.safetensors", x, {map = {{"a"}}}},
    } do
      local ok, message = pcall(ml.save, path(case[2]), case[3], case[4])
      assert.is_false(ok)
      assert.matches(case[1], message)
      assert.matches("save_spec", message)
    end
    assert.error_matches(function()
      ml.jit(function(w) ml.save(path "a.safetensors", {w = w}) return w end)(ml.ones {2})
    end, "E_TRACED")
    assert.same({"a.safetensors"}, names())
    assert.equal("old", read "a.safetensors")
  end)

  it("a name does not suit the format", function()
    write("a.safetensors", "old")
    write("a.gguf", "old")
    for _, case in ipairs {{"a.safetensors", "\xff"}, {"a.gguf", ("n"):rep(70)},
      {"a.safetensors", "__metadata__"}} do
      local nothing, message, code = ml.save(path(case[1]), {[case[2]] = ml.ones {2}})
      assert.is_nil(nothing)
      assert.matches(case[1], message, 1, true)
      assert.is_string(code)
      assert.equal("old", read(case[1]))
    end
    local nothing, _, code = ml.save(path "a.gguf", {w = ml.zeros({2}, "bool")})
    assert.is_nil(nothing)
    assert.equal("E_DTYPE", code)
    assert.same({"a.gguf", "a.safetensors"}, names())
  end)

  it("a save was ended: what it has left is in nobody's way", function()
    write("a.gguf.part", ("x"):rep(10000))
    assert(os.execute("ln -s /dev/null " .. path "b.gguf.part"))
    for _, name in ipairs {"a.gguf", "b.gguf", "c.gguf"} do
      assert(ml.save(path(name), {a = ml.arange(3), b = ml.arange(3)}))
    end
    assert.same({"a.gguf", "b.gguf", "c.gguf"}, names())
    assert.is_true(read "a.gguf" == read "c.gguf" and read "b.gguf" == read "c.gguf")
  end)

  it("a file may not be as large as it must", function()
    write("a.safetensors", "old")
    local script = helper.file(([[
      local ml = require "meshlua"
      for _, name in ipairs {"a.safetensors", "a.gguf", "a.npz", "a.npy"} do
        local tree = {x = ml.zeros {64, 1024}}
        local nothing, message, code = ml.save("%s/" .. name, tree)
        assert(nothing == nil and code == "E_IO" and message:find("a.", 1, true), message)
        print(message:gsub(".*/", ""), nil)
      end
    ]]):format(folder), ".lua")
    local out, err, code = helper.shell(('trap "" XFSZ; ulimit -f 16; "$MESHLUA" %s | cat'):format(script))
    assert.equal(0, code, err)
    assert.equal(4, select(2, out:gsub("File too large", "")), out .. err)
    assert.same({"a.safetensors"}, names())
    assert.equal("old", read "a.safetensors")
  end)

  it("a tensor has no values any more", function()
    local x, y = ml.ones {4}, ml.ones {4}
    ml.jit(function(v) return v + 1 end, {donate = {1}})(y)
    assert.error_matches(function() ml.save(path "a.safetensors", {x = x, y = y}) end, "E_DELETED")
    assert.error_matches(function() ml.save(path "a.npz", {x = x, y = y}) end, "E_DELETED")
    assert.same({}, names())
  end)

  it("the disk refuses", function()
    local nothing, message, code = ml.save(path "no/a.safetensors", {w = ml.ones {2}})
    assert.is_nil(nothing)
    assert.matches("no/a.safetensors", message)
    assert.equal("E_IO", code)
    assert(os.execute("mkdir " .. path "a.safetensors.part"))
    write("a.safetensors", "old")
    nothing, message, code = ml.save(path "a.safetensors", {w = ml.ones {2}})
    assert.is_nil(nothing)
    assert.matches("a.safetensors.part", message)
    assert.equal("E_IO", code)
    assert.equal("old", read "a.safetensors")
    nothing, message, code = ml.load(path "none.safetensors")
    assert.is_nil(nothing)
    assert.matches("none.safetensors", message)
    assert.equal("E_IO", code)
    write("b.safetensors", "x")
    nothing, message, code = ml.load(path "b.safetensors", {into = net(1)})
    assert.is_nil(nothing)
    assert.matches("b.safetensors", message)
    assert.equal("E_PARSE", code)
  end)

  it("a call of load is wrong", function()
    assert(ml.save(path "a.safetensors", {w = ml.ones {2}}))
    local box = {w = nn.Param(ml.zeros {2})}
    for _, case in ipairs {
      {"E_VALUE.*is for tensors that come as a table", {into = box, tree = true}},
      {"E_VALUE.*cast = true", {into = box, cast = "float32"}}, {"E_VALUE.*cast is a dtype", {cast = true}},
      {"E_VALUE.*for a map", {numbers = {}}}, {"E_VALUE.*does not change", {into = ml.ones {2}}},
      {"E_VALUE.*into", {into = 3}}, {"E_VALUE.*no pattern|E_VALUE.*partial", {partial = "["}},
      {"E_KEY", {int = box}}, {"E_VALUE.*sharding", {sharding = 3}},
    } do
      local ok, message = pcall(ml.load, path "a.safetensors", case[2])
      assert.is_false(ok)
      local any = false
      for pattern in case[1]:gmatch "[^|]+" do any = any or message:find(pattern) ~= nil end
      assert.is_true(any, message)
    end
    assert.same({0, 0}, box.w:get():totable())
  end)
end)

describe("a save that is killed", function()
  it("leaves the file that was there, or the new one", function()
    local script = helper.file(([[
      local ml = require "meshlua"
      local trees = {}
      for k = 0, 1 do trees[k] = {a = ml.full({300, 1000}, k, "int32"), b = ml.full({10}, k, "int32")} end
      for k = 0, 1 << 30 do assert(ml.save("%s/a.safetensors", trees[k %% 2])) end
    ]]):format(folder), ".lua")
    math.randomseed(5)
    assert(ml.save(path "a.safetensors", {a = ml.zeros({300, 1000}, "int32"), b = ml.zeros({10}, "int32")}))
    local kinds = {}
    for _ = 1, helper.watched and 3 or 12 do
      helper.shell(('"$MESHLUA" %s & P=$!; sleep %.3f; kill -9 $P; wait $P'):format(script,
        0.02 + math.random() * 0.15))
      local t = assert(ml.load(path "a.safetensors"))
      local k = t.b:totable()[1]
      kinds[k] = true
      assert.same({k, k}, {t.a:min():item(), t.a:max():item()})
    end
    assert.is_not_nil(next(kinds))
    assert(ml.save(path "a.safetensors", {a = ml.zeros {1}}))
    assert.same({"a.safetensors"}, names())
  end)
end)

describe("memory", function()
  it("is given back", function()
    local x = {w = on(values("float32", {8, 16}), P "x")}
    assert.equal(0, helper.left_behind(function()
      assert(ml.save(path "a.safetensors", x))
      assert(ml.load(path "a.safetensors", {mesh = mesh, sharding = P(nil, "y")}))
      assert(ml.load(path "a.safetensors", {into = {w = nn.Param(ml.zeros {8, 16})}}))
    end))
  end)
end)
