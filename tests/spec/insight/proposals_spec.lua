-- devices: fake:h200:8
-- proposals_spec.lua: specs that would serve a step better are found, told as lines to paste, and give what they
-- promise; looking for them changes nothing.
local helper = require "spec.helper"
local ml = require "meshlua"
local blocks = require "spec.seeds.block"
local proposals = require "meshlua.insight.proposals"
local P, NamedSharding, nn, optim = ml.P, ml.NamedSharding, ml.nn, ml.optim

local mesh = ml.make_mesh({4, 2}, {"batch", "model"})
local WIDTH, HIDDEN = 1024, 4096

local function put(shape, ...) return ml.device_put(ml.ones(shape), NamedSharding(mesh, P(...))) end

local function batch() return put({64, 128, WIDTH}, "batch") end

--- The MLP half of a block, every Param by the axes that `axes_of` gives for its name.
local function half(axes_of, rules)
  return ml.init(function(rngs)
    local function linear(name, n_in, n_out)
      local axes, bias_axes = axes_of(name), axes_of(name .. "_bias")
      return nn.Linear(n_in, n_out, {rngs = rngs, axes = axes, bias_axes = bias_axes})
    end
    return {norm = nn.LayerNorm(WIDTH, {rngs = rngs, axes = axes_of "norm"}),
      up = linear("up", WIDTH, HIDDEN), down = linear("down", HIDDEN, WIDTH)}
  end, {mesh = mesh, rules = rules})
end

local names = {norm = {"embed"}, up = {"embed", "hidden"}, up_bias = {"hidden"}, down = {"hidden", "embed"},
  down_bias = {"embed"}}
local function by_name(name) return names[name] end
local function on_model() return P("model") end

--- A training step of it, and its arguments.
local function training(model, rules)
  local step = ml.jit(function(m, o, x)
    local loss, grads = ml.value_and_grad(function(v)
      return ((x + v.down(nn.gelu(v.up(v.norm(x))))) ^ 2):mean()
    end)(m)
    o:update(m, grads)
    return loss
  end, {mesh = mesh, rules = rules})
  return step, model, optim.adam(model, {lr = 1e-3}), batch()
end

local function explained(...)
  local e = ml.explain(...)
  return e, e.proposals
end

local function lines_of(p)
  local lines = {}
  for i, edit in ipairs(p.edits) do lines[i] = edit.line .. " " .. edit.how end
  return lines
end

--- What the line is that one pastes.
local function pasted(edit)
  return table.unpack(assert(load("local P = ... return {" .. edit.line .. "}"))(P))
end

--- The step that has the specs pasted takes and holds what was promised.
local function keeps_promise(p, ...)
  local plan = ml.explain(...).plan
  local j = proposals.judge(plan)
  assert.equal(p.seconds, j.seconds)
  assert.equal(p.peak, j.peak)
end

local mlp = ml.jit(function(x, up, up_bias, down, down_bias)
  return (x + (nn.gelu(x:matmul(up) + up_bias):matmul(down) + down_bias)):sum()
end)

describe("better specs", function()
  it("003 L538: of products by their contraction dims are Megatron's pair", function()
    local args = {batch(), put({WIDTH, HIDDEN}, "model"), put({HIDDEN}, "model"),
      put({HIDDEN, WIDTH}, "model"), put({WIDTH}, "model")}
    local e, p = explained(mlp, table.unpack(args))
    assert.same({'P(nil, "model") for up, in place of P("model", nil)'}, lines_of(p))
    assert.truthy(e:find('P(nil, "model") for up, in place of P("model", nil): saves 16.3 us, 5.25% of the '
      .. "step, for all_to_all over model at ", 1, true), tostring(e))
    args[2] = put({WIDTH, HIDDEN}, table.unpack({nil, "model"}, 1, 2))
    keeps_promise(p, mlp, table.unpack(args))
  end)

  it("of a Param are its axes, and its moments go with it", function()
    local _, p = explained(training(half(on_model)))
    assert.same({'axes = P(nil, "model") for m.up.kernel, in place of P("model")'}, lines_of(p))
    keeps_promise(p, training(half(function(name) return name == "up" and P(nil, "model") or P("model") end)))
  end)

  it("of Params by a function are rules before it", function()
    local rules = {function() return P("model") end, {"embed", false}, {"hidden", false}}
    local alike = table.move(rules, 1, #rules, 1, {})
    local _, p = explained(training(half(by_name, rules), alike))
    assert.same({'{"^up%.kernel$", P(nil, "model")}, before the other rules'}, lines_of(p))
    table.insert(rules, 1, (pasted(p.edits[1])))
    keeps_promise(p, training(half(by_name, rules), rules))
  end)

  it("of Params by a pattern are another P there", function()
    local rules = {{"up.kernel", P("model", nil)}, {"down.kernel", P("model", nil)}, {"embed", false},
      {"hidden", false}}
    local _, p = explained(training(half(by_name, rules), rules))
    assert.equal('{"up.kernel", P(nil, "model")}, in place of {"up.kernel", P("model", nil)}', lines_of(p)[1])
    rules[1] = pasted(p.edits[1])
    assert.equal(1, #p.edits)
    keeps_promise(p, training(half(by_name, rules), rules))
  end)

  it("by logical names are other rows, two where one takes the other's axis", function()
    local rules = {{"embed", "model"}, {"embed", false}, {"hidden", false}}
    local e, p = explained(training(half(by_name, rules), rules))
    assert.same({'{"embed", false}, {"hidden", "model"}, in place of {"embed", "model"}, {"hidden", false}'},
      lines_of(p))
    assert.truthy(e.findings[1].mend:find('^with {"embed", false}, {"hidden", "model"} in place of '),
      tostring(e))
    rules[1], rules[3] = pasted(p.edits[1])
    keeps_promise(p, training(half(by_name, rules), rules))
  end)

  helper.figures("003 L538: of the whole block are heads and Megatron's pair, one after the other", function()
    local rules = {table.unpack(blocks.rules.slides)}
    local function forward(with)
      local block = ml.init(function(rngs) return blocks.TransformerBlock(WIDTH, 16, HIDDEN, 0.1, rngs) end,
        {mesh = mesh, rules = with})
      local step = ml.jit(function(m, x) return (m(x) ^ 2):mean() end, {mesh = mesh, rules = with})
      return step, block, batch()
    end
    local _, p = explained(forward(rules))
    local lines, with = table.concat(lines_of(p), "\n"), {}
    assert.truthy(lines:find('{"^linear1%.kernel$", P(nil, "model")}, before the other', 1, true), lines)
    assert.truthy(lines:find('{"heads", "model"}, in place of {"heads", false}', 1, true), lines)
    for _, edit in ipairs(p.edits) do
      if edit.kind == "front" then with[#with + 1] = pasted(edit) end
    end
    table.move(rules, 1, #rules, #with + 1, with)
    for i, row in ipairs(with) do
      if type(row) == "table" and row[1] == "heads" then with[i] = {"heads", "model"} end
    end
    keeps_promise(p, forward(with))
  end)

  it("of layers alike are one, of stacks too", function()
    local function model(stack)
      return ml.init(function(rngs)
        local function layer()
          return {up = nn.Linear(WIDTH, HIDDEN, {rngs = rngs, axes = P("model"), use_bias = false}),
            down = nn.Linear(HIDDEN, WIDTH, {rngs = rngs, axes = P("model"), use_bias = false})}
        end
        return stack and {h = nn.stack(2, layer)} or {h = {layer(), layer()}}
      end, {mesh = mesh})
    end
    local function apply(layer, x) return x + layer.down(nn.gelu(layer.up(x))) end
    local unrolled = ml.jit(function(m, x)
      for _, layer in ipairs(m.h) do x = apply(layer, x) end
      return x:sum()
    end)
    local _, p = explained(unrolled, model(false), batch())
    assert.same({'axes = P(nil, "model") for m.h.*.up.kernel, in place of P("model")'}, lines_of(p))
    local scanned = ml.jit(function(m, x) return nn.scan(m.h, x, apply):sum() end)
    _, p = explained(scanned, model(true), batch())
    assert.same({'axes = P(nil, nil, "model") for m.h.up.kernel, in place of P(nil, "model", nil)'},
      lines_of(p))
  end)

  it("are found around shard_map, and not looked for on explicit axes", function()
    local explicit = ml.make_mesh({4, 2}, {"batch", "model"}, {axis_types = {batch = "explicit",
      model = "explicit"}})
    local function on(shape, ...) return ml.device_put(ml.ones(shape), NamedSharding(explicit, P(...))) end
    local gradient = ml.jit(ml.grad(function(x, w, v)
      return (nn.gelu(x:matmul(w)):matmul(v, {out_sharding = P("batch", nil)}) ^ 2):mean()
    end, {argnums = {2, 3}}))
    local _, p = explained(gradient, on({4096, WIDTH}, "batch"), on({WIDTH, HIDDEN}, nil, "model"),
      on({HIDDEN, WIDTH}, "model"))
    assert.same({0, 0}, {#p.edits, p.tried}) -- the ops' own layouts ask for what is sent
    local manual = ml.jit(function(x, w)
      return ml.shard_map(function(rows, own) return rows:matmul(own) end,
        {mesh = mesh, in_specs = {P("batch"), P(nil, "model")}, out_specs = P("batch", "model")})(x, w)
    end)
    _, p = explained(manual, put({4096, WIDTH}, "batch"), put({WIDTH, HIDDEN}, "model"))
    assert.same({'P(nil, "model") for w, in place of P("model", nil)'}, lines_of(p))
  end)
end)

describe("no better spec", function()
  it("is told where nothing is sent, or where none is", function()
    local product = ml.jit(function(x, w) return x:matmul(w) end)
    local e, p = explained(product, batch(), put({WIDTH, HIDDEN}, nil, "model"))
    assert.same({0, 0}, {#p.edits, p.tried})
    assert.falsy(e:find "better specs")
    local megatron = {{"embed", false}, {"hidden", "model"}}
    e, p = explained(training(half(by_name, megatron), megatron))
    assert.same({}, p.edits)
    assert.is_true(p.tried > 0)
    assert.falsy(e:find "better specs")
  end)

  it("is planned beyond the bound, which is said", function()
    local most = proposals.most
    for _, bound in ipairs {0, 3, 4, 7, 12, 18} do
      proposals.most = bound
      local e, p = explained(mlp, batch(), put({WIDTH, HIDDEN}, "model"), put({HIDDEN}, "model"),
        put({HIDDEN, WIDTH}, "model"), put({WIDTH}, "model"))
      proposals.most = most
      assert.is_true(p.tried <= bound, p.tried .. " of " .. bound)
      assert.is_true(p.untried > 0)
      if #p.edits == 0 then
        assert.truthy(e:find("no better spec found in " .. p.tried .. " plans?; %d+ more were not tried"),
          tostring(e))
      end
      local gain = 0
      for _, edit in ipairs(p.edits) do gain = gain + edit.gain end
      assert.near(e.work.seconds - (p.seconds or e.work.seconds), gain, 1e-9)
    end
  end)

  it("moves a result that only looks like an input", function()
    local lone = ml.make_mesh({8}, {"model"})
    local step = ml.jit(function(x) return x - x:mean(2, {keepdims = true}) end)
    local _, p = explained(step, ml.device_put(ml.ones {1024, 1024}, NamedSharding(lone, P(nil, "model"))))
    assert.same({}, p.edits)
    assert.is_true(p.tried > 0)
    local beside = ml.jit(function(x, w, s) return x:matmul(w):sum(), ml.softmax(s, 2) end)
    _, p = explained(beside, put({2048, 2048}, "batch"), put({2048, 2048}, nil, "model"),
      put({256, 256}, "batch", "model"))
    assert.same({}, p.edits)
  end)

  it("is one that the step cannot have", function()
    local step = ml.jit(function(x, w)
      assert(w.sharding.spec == P("model", nil), "this one alone")
      return x:matmul(w):sum()
    end)
    local _, p = explained(step, batch(), put({WIDTH, HIDDEN}, "model", nil))
    for _, edit in ipairs(p.edits) do assert.falsy(edit.how:find "for w") end
  end)
end)

describe("a step that is traced otherwise the next time", function()
  local function x() return put({1024, 1024}, "batch", "model") end
  local function w() return put({1024, 1024}, "model") end
  local function told_of(f)
    local n = 0
    local e, p = explained(ml.jit(function(...)
      n = n + 1
      return f(n, ...)
    end), x(), w())
    assert.same({}, p.edits)
    assert.is_nil(e.better)
    assert.same({}, e.between_hosts)
    return e
  end

  it("is told of no other layout, but why", function()
    local e = told_of(function(n, a, b)
      local y = a
      for _ = 1, math.max(1, 5 - n) do y = y:matmul(b) end
      return y:sum()
    end)
    assert.truthy(e:find "traced once more the step is another: it takes .- in place of .-; so no other "
      , tostring(e))
    for _, later in ipairs {1, 3} do
      e = told_of(function(n, a, b) return n > later and a or a:matmul(b) end)
      assert.truthy(e:find "the step is another: it has other results; so no other layout", tostring(e))
      e = told_of(function(n, a, b)
        if n > later then return a:matmul(b), a end
        return a:matmul(b)
      end)
      assert.truthy(e:find "the step is another: it has other results", tostring(e))
    end
  end)

  it("may raise any error", function()
    local bad = setmetatable({}, {__tostring = function() error "no text" end})
    for _, value in ipairs {"text", bad, false} do
      local e = told_of(function(n, a, b)
        if n > 1 then error(value) end
        return a:matmul(b)
      end)
      assert.truthy(e:find "the step is another: it raises an error", tostring(e))
    end
  end)
end)

describe("better specs are told", function()
  it("with the result that lies otherwise, where an axis splits nothing", function()
    local step = ml.jit(function(x, v, w) return x:matmul(v):matmul(w) end)
    local args = {put({1024, 1024}, nil, "model"), put {1024, 1024}, put {1024, 1024}}
    local e, p = explained(step, table.unpack(args))
    assert.same({'P("batch", nil) for x, in place of P(nil, "model")'}, lines_of(p))
    assert.equal("result 1 lies as float32[1024@batch,1024] then, not as float32[1024,1024]", p.moved)
    assert.truthy(e:find("; " .. p.moved, 1, true), tostring(e))
    local both = ml.jit(function(x, v, w)
      local y = x:matmul(v)
      return y, y:matmul(w), y:tanh()
    end)
    p = ml.explain(both, table.unpack(args)).proposals
    assert.truthy(p.moved:find "^result 1 lies as .-, not as .-; 2 more lie otherwise, too$", p.moved)
  end)

  it("of inputs without a name by their number", function()
    local step = ml.jit(function(...)
      local t, x, w = ...
      return x:matmul(w) + t.b:sum()
    end)
    local e, p = explained(step, {b = put {4}, c = put {8}}, put({1024, 1024}, nil, "model"),
      put({1024, 1024}, "model"))
    assert.equal('P(nil, "model") for input 4, in place of P("model", nil)', lines_of(p)[1])
    assert.truthy(e:find("split on model by input 3, input 4", 1, true), tostring(e))
    local x, w = put({1024, 1024}, "batch", "model"), put({1024, 1024}, "model")
    e = explained(ml.jit(function(v) return x:matmul(w):sum() + v:sum() end), x)
    assert.falsy(e:find "splits [%w, ]* and %)", tostring(e))
    assert.falsy(e:find "splits and", tostring(e))
    e = explained(ml.jit(function(v) return x:matmul(w):sum() + v:sum() end), put({64, 64}, "batch", "model"))
    assert.truthy(e:find "splits v and input %d, met in the trace%)", tostring(e))
  end)

  it("beside findings, which count inputs without a name, too", function()
    local x = put({1024, 1024}, "batch", "model")
    local to = NamedSharding(mesh, P("model", "batch"))
    local moved = ml.jit(function(...) return (...):constrain(to):tanh() end)
    local e = explained(moved, x)
    assert.truthy(e:find "moves input 1 to another layout at every call", tostring(e))
  end)

  it("as Lua", function()
    local text = require("meshlua.sharding.rules").text
    for _, rule in ipairs {{'a"b', 'm"'}, {"^a%.b\\c\n$", P("model")}, {"x", {"a", "b\n"}}, {"x", {}},
        {"x", false}, {"x", "a", uneven = "pad", priority = 1}} do
      assert.falsy(text(rule):find "\n", text(rule))
      assert.same(rule, pasted {line = text(rule)})
    end
  end)
end)

describe("looking for better specs", function()
  helper.figures("changes nothing, and finds the same again", function()
    local rules = {{"embed", "model"}, {"embed", false}, {"hidden", false}}
    local step, model, opt, x = training(half(by_name, rules), rules)
    local function all()
      local words = {tostring(step:stats()), tostring(x.sharding)}
      for _, t in ipairs {model, opt} do
        local leaves, paths = ml.tree.leaves(t)
        for i, leaf in ipairs(leaves) do words[#words + 1] = paths[i] .. " " .. tostring(leaf.sharding) end
      end
      for _, row in ipairs(rules) do words[#words + 1] = ("%s %s"):format(row[1], row[2]) end
      return table.concat(words, "\n")
    end
    local before, plan = all(), tostring(step:plan(model, opt, x))
    local first = explained(step, model, opt, x)
    assert.equal(before, all())
    assert.equal(plan, tostring(step:plan(model, opt, x)))
    assert.equal(tostring(first), tostring((explained(step, model, opt, x))))
    assert.is_nil(require("meshlua.sharding.rules").instead)
  end)

  it("leaves what was computed alone", function()
    local out, err, status = helper.run {"--devices=8", helper.file([[
      local ml = require "meshlua"
      local P, NamedSharding = ml.P, ml.NamedSharding
      local mesh = ml.make_mesh({4, 2}, {"batch", "model"})
      local values = ml.arange(64 * 128.0):reshape {64, 128}
      local w = ml.nn.Param(ml.device_put(values, NamedSharding(mesh, P("model"))))
      local x = ml.device_put(ml.ones {32, 64}, NamedSharding(mesh, P("batch")))
      local step = ml.jit(function(p, v)
        local y = v:matmul(p)
        p:set(p * 2)
        return y:sum()
      end)
      local e = ml.explain(step, w, x)
      print(e.proposals.tried > 0, w.sharding.spec, step(w, x):item(), w:get():sum():item(),
        step(w, x):item())
    ]], ".lua")}
    assert.equal("", err)
    assert.equal('true\tP("model", nil)\t1073610752.0\t67100672.0\t2147221504.0\n', out)
    assert.equal(0, status)
  end)
end)
