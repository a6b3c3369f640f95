-- trained_spec.lua: what of a model is trained, and how: frozen parameters, rates and decays by pattern, adapters, the
-- running mean, batches that are gathered; that runs which go on come to the same bits; what is exported.
local core = require "meshlua.core"
local helper = require "spec.helper"
local ml = require "meshlua"
local trained = require "meshlua.train.trained"
package.path = "models/?.lua;" .. package.path
local gpt = require "gpt"
local shell = helper.shell
local read = helper.read

local words = {}
for i = 1, 600 do words[i] = ("line %d of many "):format(i * i % 97) end
local TEXT, folder = os.tmpname(), os.tmpname()
setup(function()
  local file <close> = assert(io.open(TEXT, "wb"))
  file:write(table.concat(words))
  os.remove(folder)
  assert(core.make_folder(folder))
end)
teardown(function()
  os.remove(TEXT)
  core.disk_task {{"remove", folder}}:wait()
end)

local SIZES = "--layers=1 --width=16 --heads=2 --seq=8"
local SMALL = SIZES .. " --batch=8 --warmup=1 --sample=0 --eval-batches=2 --steps=6"

local function run(options)
  return shell(('"$MESHLUA" train gpt %s --data=%s %s'):format(SMALL, TEXT, options))
end

local function train(options)
  local out, err, code = run(options)
  assert.equal(0, code, err)
  return out
end

local function refuses(wanted, options)
  local _, err, code = run(options)
  assert.equal(2, code, err)
  assert.truthy(err:find(wanted, 1, true), err)
end

--- The tensors of a checkpoint's tree.
local function tensors(out, tree, step)
  return assert(ml.load(("%s/%s/checkpoints/step-%08d/%s.safetensors"):format(folder, out, step or 6, tree)))
end

local OTHERS = {lora = "", freeze = "", lr_of = "", decay_of = ""}

--- A run of so many steps on a small model (default none), with changes of how it is trained.
local function small(changes, steps, optimizer)
  local cfg = setmetatable({layers = 1, width = 16, heads = 2, seq = 8, batch = 8, steps = steps or 1,
    warmup = 1}, {__index = gpt.config})
  local recipe = setmetatable({optimizer = optimizer}, {__index = gpt})
  local values = setmetatable(changes, {__index = OTHERS})
  local made = ml.train.run(recipe, {config = cfg, seed = 1, data = assert(gpt.data(cfg, TEXT)),
    rules = gpt.rules.dp, ema = changes.ema, prepare = function(r) trained.apply(r.model, values, 1) end})
  if steps then made:train(function() end) end
  return made
end

local function bits(t) return table.concat(t:reshape(-1):totable(), " ") end

describe("parameters", function()
  it("that are frozen keep their bits, and have no state", function()
    local before, after = small({}).model, small({freeze = "wte,wpe,ln_"}, 3)
    for _, path in ipairs {"wte.embedding", "wpe", "ln_f.scale"} do
      local a, b = before, after.model
      for key in path:gmatch "[^.]+" do a, b = a[key], b[key] end
      assert.equal(bits(a:get()), bits(b:get()), path)
    end
    assert.not_equal(bits(before.h[1].mlp.up.kernel:get()), bits(after.model.h[1].mlp.up.kernel:get()))
    local all, own = after:parameters()
    assert.same({7536, 3216}, {all, own})
    for _, leaf in ipairs((ml.tree.leaves(after.optimizer.state))) do
      assert.not_equal(256, leaf.shape[1])
    end
  end)

  it("have rates and decays of their own, as an optimizer of their own would", function()
    local chosen, other = "up", {lr = 0.03 * 0.25, weight_decay = 0.4 * 0.5}
    local function adamw(o)
      return ml.optim.adamw {lr = o.lr, eps = 1e-3, weight_decay = o.weight_decay}
    end
    local base = {lr = 0.03, weight_decay = 0.4}
    local function groups(model)
      return ml.optim.multi_transform({own = adamw(other), rest = adamw(base)},
        function(path) return path:find(chosen) and "own" or "rest" end), model
    end
    local wanted = small({}, 3, function(model) return ml.optim.Optimizer(model, (groups(model))) end)
    local fused = small({lr_of = chosen .. ":0.25", decay_of = chosen .. ":0.5"}, 3, function(model)
      return ml.optim.adamw(model, {lr = 0.03, eps = 1e-3, weight_decay = 0.4})
    end)
    local chain = small({lr_of = chosen .. ":0.25", decay_of = chosen .. ":0.5"}, 3, function(model)
      return ml.optim.Optimizer(model, ml.optim.chain(ml.optim.scale_by_adam {eps = 1e-3},
        ml.optim.add_decayed_weights(0.4), ml.optim.scale_by_learning_rate(0.03)))
    end)
    local a, b, c = ml.tree.leaves(wanted.model), ml.tree.leaves(fused.model), ml.tree.leaves(chain.model)
    for i, leaf in ipairs(a) do
      local x, y, z = leaf:get(), b[i]:get(), c[i]:get()
      assert.truthy(ml.max(ml.abs(x - y)):item() < 1e-6 and ml.max(ml.abs(x - z)):item() < 1e-6, i)
    end
  end)

  it("have a running mean", function()
    local follow = small({ema = 0.75}, 1)
    local before, means = ml.tree.leaves(small({}).model), ml.tree.leaves(follow:state().ema)
    for i, leaf in ipairs((ml.tree.leaves(follow.model))) do
      local wanted = before[i]:get() * 0.75 + leaf:get() * 0.25
      assert.truthy(ml.max(ml.abs(wanted - means[i]:get())):item() < 1e-7, i)
    end
  end)

  it("have patterns that must find something, and are written as said", function()
    refuses("--freeze: the pattern 'nope' finds no Param; there are h.1.", "--freeze=nope")
    refuses("--freeze: every Param is frozen; nothing is left to train", "--freeze=.")
    refuses("--lr-of: the pattern 'nope' finds no Param", "--lr-of=nope:2")
    refuses("lora: the pattern 'nope' finds no Linear", "--lora=nope:2")
    refuses("--lr-of=wte: expected patterns and factors from 0 on", "--lr-of=wte")
    refuses("--decay-of=wte:-1: expected patterns and factors", "--decay-of=wte:-1")
    refuses("--lora=attn: expected a pattern of layers and a rank, as in attn:8", "--lora=attn")
    refuses("--lora trains nothing but its adapters; leave --freeze away", "--lora=attn:2 --freeze=wte")
    refuses("--ema=1: it must be below 1", "--ema=1")
  end)
end)

describe("a step", function()
  it("gathers the gradients of many batches", function()
    local function losses(options, name)
      local path = folder .. "/" .. name
      train(("--mesh=none --metrics=%s %s"):format(path, options))
      local list = {}
      for line in io.lines(path) do list[#list + 1] = tonumber(line:match '"loss":([^,]+)') end
      return list
    end
    local gathered = losses("--accumulate=4", "gathered")
    assert.same(losses("--batch=32 --microbatches=4", "cut"), gathered)
    for i, loss in ipairs(losses("--batch=32", "whole")) do assert.near(loss, gathered[i], 1e-5) end
    assert.truthy(train("--mesh=none --accumulate=4"):find("\nbatch=32 ", 1, true))
  end)
end)

describe("a run that goes on", function()
  local options = "--mesh=data:2,model:2 --ema=0.9 --lr-of=query:0.5 --dropout=0.1 --save-every=3 --out="

  for name, how in pairs {adapters = "--lora=attn:2", frozen = "--freeze=wte,mlp"} do
    it("comes to the same bits with " .. name .. " and a running mean", function()
      local a, b = folder .. "/a" .. name, folder .. "/b" .. name
      train(how .. " " .. options .. a)
      train(how .. " " .. options .. b)
      train(how .. " --resume=3 " .. options .. b)
      for _, tree in ipairs {"model", "optimizer", "ema", "rngs"} do
        local path = ("/checkpoints/step-00000006/%s.safetensors"):format(tree)
        assert.equal(read(a .. path), read(b .. path), tree)
      end
      refuses("trained.ema: 0.9 in the checkpoint, 0.8 now; trained.", "--ema=0.8 --resume --out=" .. b)
    end)
  end

  it("has kept the weights that it began with, beside its adapters", function()
    train("--mesh=none --eval-batches=0 --out=" .. folder .. "/base")
    local from = folder .. "/base/checkpoints/step-00000006"
    local said = train(("--mesh=none --from=%s --lora=attn:2 --out=%s/tuned --export=%s/hf/"):format(from,
      folder, folder))
    assert.truthy(said:find("gpt: 256 of 7792 parameters; ", 1, true), said)
    local base, tuned = tensors("base", "model"), tensors("tuned", "model")
    for name, tensor in pairs(base) do assert.equal(bits(tensor), bits(tuned[name]), name) end
    local adapters = assert(ml.load(folder .. "/tuned/adapters.safetensors"))
    local query = "h.1.attn.query."
    assert.equal(bits(tuned[query .. "lora_a"]), bits(adapters[query .. "lora_a"]))
    -- What is exported has the adapters in its kernels.
    local merged = assert(ml.train.from_pretrained(gpt, folder .. "/hf", {rules = gpt.rules.dp}))
    local more = ml.matmul(adapters[query .. "lora_a"], adapters[query .. "lora_b"]:reshape(2, 16))
    local wanted = base[query .. "kernel"] + more:reshape(16, 2, 8)
    assert.truthy(ml.max(ml.abs(wanted - merged.h[1].attn.query.kernel:get())):item() < 1e-6)
    refuses("it is there; take another, or --overwrite", ("--mesh=none --export=%s/hf/"):format(folder))
    refuses("expected a folder/ or a file.gguf", "--mesh=none --export=weights.bin")
    local _, err, code = shell '"$MESHLUA" train mlp --export=x.gguf'
    assert.equal(2, code)
    assert.truthy(err:find("the recipe mlp says not how such a model is written: it lacks formats.gguf", 1,
      true), err)
  end)
end)
