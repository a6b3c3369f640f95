-- devices: 8
-- manager_spec.lua: ml.checkpoint.Manager: what lies on the disk, what comes back on which mesh, what stays, what is
-- refused.
local core = require "meshlua.core"
local helper = require "spec.helper"
local manager_of = require "meshlua.checkpoint.manager"
local manifest = require "meshlua.checkpoint.manifest"
local ml = require "meshlua"
local is_whole = require("meshlua.checkpoint.check").checkpoint
local read = helper.read

local P = ml.P

local function temporary()
  local name = os.tmpname()
  os.remove(name)
  return name
end

local function remove(path) core.disk_task {{"remove", path}}:wait() end

--- Runs fn(folder), which is gone afterwards.
local function within(fn)
  local folder = temporary()
  local ok, message = pcall(fn, folder)
  remove(folder)
  if not ok then error(message, 0) end
end

local function write(path, text)
  local file <close> = assert(io.open(path, "wb"))
  file:write(text)
end

local function mesh_of(sizes) return ml.make_mesh(sizes, {"data", "model"}) end

--- A tree of Params of several dtypes; `specs` are theirs, on a mesh or none.
local function trees(mesh, specs, step)
  local function param(name, x)
    if mesh then x = ml.device_put(x, ml.NamedSharding(mesh, specs[name] or P())) end
    return helper.param(x)
  end
  return {model = {
    w = param("w", ml.arange(128.0):reshape(16, 8) * 0.5 + step), h = param("h", ml.arange(64.0):reshape(8, 8)
      :astype "bfloat16"), s = param("s", ml.full({}, step + 0.25))},
    other = {ids = param("ids", ml.arange(24):reshape(8, 3) + step),
      flag = param("flag", ml.arange(5):gt(step)), none = param("none", ml.zeros({0, 4}))}}
end

local one = {w = P("data", "model"), h = P(nil, "model"), ids = P "data"}
local two = {w = P("model", "data"), h = P("data", nil), ids = P "model"}

local function values(t)
  local list = {}
  ml.tree.visit(t, function(path, leaf)
    list[#list + 1] = path .. " " .. leaf.dtype
    list[#list + 1] = ml.all_gather_to_host(leaf:get()):bytes()
  end)
  return list
end

--- A folder with the steps saved.
local function saved(folder, steps, options)
  local manager = assert(ml.checkpoint.Manager(folder, options))
  for _, step in ipairs(steps) do
    assert(manager:save(step, trees(mesh_of {4, 2}, one, step), {metrics = {loss = (step - 20) ^ 2}}))
    assert(manager:wait())
  end
  return manager
end

--- nil, message with this text, code.
local function refused(text, code, ok, message, got)
  assert.equal(nil, ok)
  assert.truthy(message and message:find(text, 1, true), message)
  if code then assert.equal(code, got) end
end

describe("a Manager", function()
  it("gives back what was saved, on any mesh", function()
    within(function(folder)
      local manager <close> = saved(folder, {3})
      local wanted = values(trees(mesh_of {4, 2}, one, 3))
      for _, case in ipairs {{{4, 2}, one}, {{4, 2}, two}, {{2, 4}, two}, {{8, 1}, one}, {}} do
        local there = trees(case[1] and mesh_of(case[1]), case[2], 7)
        local found = assert(manager:restore(there))
        assert.same({step = 3, state = {}, metrics = {loss = 289.0}}, found)
        assert.same(wanted, values(there))
      end
    end)
  end)

  it("lays down whole tensors, texts with their hashes, nothing of devices", function()
    within(function(folder)
      saved(folder, {3}):close()
      assert.same({"manifest.json", "model.safetensors", "other.safetensors", "part-0000.json", "state.json"},
        core.list_folder(folder .. "/step-00000003"))
      local catalog = assert(core.catalog(folder .. "/step-00000003/model.safetensors"))
      local names = {}
      for i, entry in ipairs(catalog:entries()) do names[i] = entry.name .. " " .. entry.encoding end
      assert.same({"s F32", "w F32", "h BF16"}, names)
      catalog:close()
      local m = assert(is_whole(folder .. "/step-00000003"))
      assert.same({3, 1}, {m.step, m.processes})
      table.sort(m.layouts)
      assert.same({'data:4,model:2 P("data", "model")', 'data:4,model:2 P("data", nil)', "data:4,model:2 P()",
        "data:4,model:2 P(nil)", 'data:4,model:2 P(nil, "model")', "data:4,model:2 P(nil, nil)"}, m.layouts)
    end)
  end)

  it("saves what Params held when it was asked, while steps write them", function()
    within(function(folder)
      local manager <close> = assert(ml.checkpoint.Manager(folder))
      local x = helper.param(ml.device_put(ml.zeros {1 << 20}, ml.NamedSharding(mesh_of {4, 2}, P "data")))
      local step = ml.jit(function(p) p:set(p + 1) end)
      step(x)
      for i = 1, 3 do
        assert(manager:save(i, {model = {x = x}}))
        step(x)
      end
      assert(manager:wait())
      for i = 1, 3 do
        local y = helper.param(ml.zeros {1 << 20})
        assert(manager:restore({model = {x = y}}, {step = i}))
        assert.same({i + 0.0, i + 0.0}, {y:get():min():item(), y:get():max():item()})
      end
      assert.equal(4.0, x:get():max():item())
    end)
  end)

  it("holds no second state where memory forbids it", function()
    local code = [[
      local ml = require "meshlua"
      local x = ml.nn.Param(ml.zeros {1 << 24})
      local step = ml.jit(function(p) p:set(p + 1) end)
      step(x)
      local before = ml.core.memory().peak
      local manager <close> = assert(ml.checkpoint.Manager(FOLDER, {memory = MEMORY}))
      for i = 1, 2 do
        assert(manager:save(i, {model = {x = x}}))
        step(x)
      end
      assert(manager:wait())
      local peak = ml.core.memory().peak - before
      for i = 1, 2 do
        assert(manager:restore({model = {x = x}}, {step = i}))
        assert(x:get():min():item() == i and x:get():max():item() == i)
      end
      print(peak)
    ]]
    local function peak_with(memory)
      local peak, said
      within(function(folder)
        local file = helper.file(code, ".lua")
        local out, err, status = helper.shell(
          ('"$MESHLUA" -e FOLDER=\'"%s"\' -e MEMORY=%d %s'):format(folder, memory, file))
        assert.equal(0, status, err)
        peak = tonumber(out)
        said = err
      end)
      return peak, said
    end
    local state = 1 << 26
    local peak, text = peak_with(1 << 30)
    assert.truthy(peak >= state)
    assert.equal("", text)
    peak, text = peak_with(state - 1)
    assert.truthy(peak < state // 2)
    assert.matches("^meshlua: [^\n]*: steps wait while a checkpoint is written: its 64.00 MiB are more than "
      .. "option 'memory' %(64.00 MiB%) allows\n$", text) -- of two saves, once
  end)

  it("waits for the writer where a step finds no memory beside it", function()
    if helper.watched then return helper.pending "a sanitizer takes memory of its own" end
    local code = [[
      local ml = require "meshlua"
      local x = ml.nn.Param(ml.zeros {1 << 25})
      local step = ml.jit(function(p) p:set(p + 1) end)
      step(x)
      local manager <close> = assert(ml.checkpoint.Manager(FOLDER))
      local status = assert(io.open "/proc/self/stat"):read "a"
      local pid, size = status:match "^%d+", tonumber(status:match("%) " .. ("%S+ "):rep(20) .. "(%d+)"))
      local function limit(to) assert(os.execute(("prlimit --pid %d --as=%s:"):format(pid, to))) end
      limit(size + (96 << 20))
      assert(manager:save(1, {model = {x = x}}))
      step(x)
      assert(manager:wait())
      assert(x:get():min():item() == 2 and x:get():max():item() == 2)
      limit "unlimited"
      assert(manager:restore({model = {x = x}}, {step = 1}))
      print(x:get():min():item(), x:get():max():item())
    ]]
    within(function(folder)
      local out, err, status = helper.shell(
        ('"$MESHLUA" -e FOLDER=\'"%s"\' %s'):format(folder, helper.file(code, ".lua")))
      assert.equal(0, status, err)
      assert.equal("1.0\t1.0\n", out)
    end)
  end)

  it("lets go of what is written: a step takes no other memory then", function()
    within(function(folder)
      local manager <close> = assert(ml.checkpoint.Manager(folder))
      local x = helper.param(ml.device_put(ml.zeros {1 << 20}, ml.NamedSharding(mesh_of {4, 2}, P "data")))
      local step = ml.jit(function(p) p:set(p + 1) end)
      step(x)
      for i = 1, 2 do
        local before = x:address()
        assert(manager:save(i, {model = {x = x}}))
        local writer = manager.save_under_way.writer
        while not writer:poll() do core.sleep(0.001) end
        step(x)
        assert.equal(before, x:address())
      end
      assert.equal(0, step:plan(x):copies())
    end)
  end)

  it("keeps the latest, those of keep_every, and the best", function()
    within(function(folder)
      local options = {keep = 2, keep_every = 10, best = "loss"}
      local manager <close> = saved(folder, {5, 10, 15, 19, 25, 30, 35}, options)
      assert.same({10, 19, 30, 35}, manager:steps())
      assert.equal(35, manager:latest())
    end)
    within(function(folder)
      local manager <close> = saved(folder, {1, 2, 3, 4}, {keep = 2, best = {metric = "loss", mode = "max"}})
      assert.same({1, 3, 4}, manager:steps())
    end)
  end)

  it("prunes nothing that would leave fewer than two whole ones", function()
    within(function(folder)
      saved(folder, {1, 2, 3}, {keep = 2}):close()
      write(folder .. "/step-00000003/model.safetensors", "short")
      local manager <close> = saved(folder, {4}, {keep = 2})
      assert.same({2, 4}, manager:steps())
    end)
  end)

  it("saves when it is time", function()
    within(function(folder)
      local manager <close> = assert(ml.checkpoint.Manager(folder, {every_steps = 3, async = false}))
      local saves = {}
      for step = 1, 7 do saves[step] = manager:save(step, {model = {x = helper.param(ml.ones {2})}}) end
      assert.same({false, false, true, false, false, true, false}, saves)
      assert.truthy(manager:save(8, {model = {x = helper.param(ml.ones {2})}}, {force = true}))
    end)
    within(function(folder)
      local manager <close> = assert(ml.checkpoint.Manager(folder, {every_minutes = 1e-9}))
      assert.truthy(manager:save(1, {model = {x = helper.param(ml.ones {2})}}))
    end)
  end)

  it("takes plain values along", function()
    within(function(folder)
      local manager <close> = assert(ml.checkpoint.Manager(folder))
      local state = {config = {lr = 3e-4, name = "a \"b\"\n", list = {1, 2.5, 3.0, 0.1 + 0.2}}, on = true}
      assert(manager:save(1, {model = {x = helper.param(ml.ones {2})}}, {state = state}))
      assert.same(state, assert(manager:restore {model = {x = helper.param(ml.zeros {2})}}).state)
    end)
  end)

  it("casts, and leaves Params that are not saved, where that is asked for", function()
    within(function(folder)
      local manager <close> = saved(folder, {3})
      local x, y = helper.param(ml.zeros({16, 8}, "bfloat16")), helper.param(ml.ones {3})
      local t = {model = {w = x, extra = y}}
      refused("model.extra is not in the checkpoint; model.w is bfloat16[16,8], the checkpoint has "
        .. "float32[16,8]; model.h is in the checkpoint alone", "E_VALUE", manager:restore(t))
      assert.equal(0.0, x:get():max():item())
      assert(manager:restore(t, {cast = true, partial = true}))
      assert.same({66.5, 1.0}, {x:get():max():item(), y:get():max():item()})
    end)
  end)

  it("is one run's at a time", function()
    within(function(folder)
      local manager = saved(folder, {1})
      refused("another run writes here (process ", "E_STATE", ml.checkpoint.Manager(folder))
      manager:close()
      assert(ml.checkpoint.Manager(folder)):close()
    end)
  end)

  it("gives its folder free where it is garbage", function()
    within(function(folder)
      collectgarbage "stop"
      saved(folder, {1})
      local manager, message = ml.checkpoint.Manager(folder)
      collectgarbage "restart"
      assert(manager, message):close()
    end)
  end)

  it("removes what a dead one began, and follows no link", function()
    within(function(folder)
      saved(folder, {1}):close()
      assert(core.make_folder(folder .. "/.step-00000002.abc/deep"))
      os.execute(("ln -s %s/step-00000001 %s/.step-00000002.abc/link"):format(folder, folder))
      local manager <close> = assert(ml.checkpoint.Manager(folder))
      assert.same({".lock", "step-00000001"}, core.list_folder(folder))
      assert.truthy(is_whole(folder .. "/step-00000001"))
      assert.same({1}, manager:steps())
    end)
  end)

  it("refuses what cannot be", function()
    within(function(folder)
      local manager <close> = saved(folder, {1})
      local x = {model = {x = helper.param(ml.ones {2})}}
      refused("there is a checkpoint of this step already", "E_STATE", manager:save(1, x))
      refused("there is no checkpoint of step 9; there are 1", "E_IO", manager:restore(x, {step = 9}))
      assert.error_matches(function() manager:save(1.5, x) end, "the step is 1.5")
      assert.error_matches(function() manager:save(2, {["a/b"] = x}) end, "a tree is called")
      assert.error_matches(function() manager:save(2, {}) end, "expected a table of trees")
      assert.error_matches(function() ml.checkpoint.Manager(folder, {keep = 1}) end, "from 2 on")
      assert.error_matches(function() ml.checkpoint.Manager(folder, {kep = 3}) end, "did you mean 'keep'")
      assert.error_matches(function() ml.checkpoint.Manager(folder, {best = 3}) end, "the name of a metric")
      assert.error_matches(function() manager:restore {model = {w = ml.ones {2}}} end, "only Params")
    end)
    within(function(folder)
      local manager <close> = assert(ml.checkpoint.Manager(folder))
      refused("there is no checkpoint", "E_IO", manager:restore {model = {x = helper.param(ml.ones {2})}})
    end)
    local file = helper.file "x"
    refused("Not a directory", "E_IO", ml.checkpoint.Manager(file))
    refused("/proc", "E_IO", ml.checkpoint.Manager "/proc/nowhere")
  end)
end)

describe("a broken checkpoint", function()
  --- Breaks step 2 of two, and what is said of it; step 1 is taken only where that is asked for.
  local function broken(how, said)
    within(function(folder)
      local manager <close> = saved(folder, {1, 2})
      how(folder .. "/step-00000002")
      local there = trees(mesh_of {4, 2}, one, 9)
      local before = values(there)
      refused(said, "E_IO", manager:restore(there))
      assert.same(before, values(there))
      assert.equal(1, assert(manager:restore(there, {pass_over = true})).step)
      assert.same(values(trees(mesh_of {4, 2}, one, 1)), values(there))
    end)
  end

  it("is named, and passed over where that is asked for", function()
    local function cut(name) return function(path) write(path .. name, read(path .. name):sub(1, -2)) end end
    broken(cut "/manifest.json", "manifest.json: it is cut short")
    broken(cut "/model.safetensors", "model.safetensors")
    broken(cut "/part-0000.json", "part-0000.json")
    broken(cut "/state.json", "state.json")
    broken(function(path) os.remove(path .. "/part-0000.json") end, "part-0000.json: it is missing")
    broken(function(path) os.remove(path .. "/manifest.json") end, "manifest.json")
    broken(function(path)
      os.rename(path .. "/model.safetensors", path .. "/x")
      os.execute(("ln -s x %s/model.safetensors"):format(path))
    end, "model.safetensors: it is a link, not a file")
    broken(function(path)
      write(path .. "/model.safetensors", (read(path:gsub("2$", "1") .. "/model.safetensors")))
    end, "its hash is not the manifest's")
  end)

  it("that names what is outside of its folder is refused", function()
    broken(function(path)
      local m = assert(manifest.read(path))
      m.files[1].name = "../step-00000001/model.safetensors"
      write(path .. "/manifest.json", manifest.seal(m, manifest.ORDER))
    end, "it names a file outside its folder")
    broken(function(path)
      local m = assert(manifest.read(path))
      m.checkpoint = 2
      write(path .. "/manifest.json", manifest.seal(m, manifest.ORDER))
    end, "it is of a later version (2; this one reads up to 1)")
  end)

  it("is noticed whichever byte is cut off or changed", function()
    within(function(folder)
      saved(folder, {2}):close()
      local path = folder .. "/step-00000002"
      local flips = helper.watched and 30 or 1000
      local names, x = core.list_folder(path), 12345
      local function random(n)
        x = x * 6364136223846793005 + 1442695040888963407
        return (x >> 33) % n + 1
      end
      for _ = 1, flips do
        local name = names[random(#names)]
        local text = read(path .. "/" .. name)
        local at, bit = random(#text), 1 << random(8) - 1
        local changed = string.char(text:byte(at) ~ bit)
        write(path .. "/" .. name, text:sub(1, at - 1) .. changed .. text:sub(at + 1))
        local ok, faults = is_whole(path)
        assert.equal(nil, ok, ("%s: byte %d"):format(name, at))
        assert.truthy(faults[1]:find(path, 1, true), faults[1])
        write(path .. "/" .. name, text)
      end
      for _, name in ipairs(names) do
        local text = read(path .. "/" .. name)
        for n = 0, #text - 1, math.max(1, #text // 50) do
          write(path .. "/" .. name, text:sub(1, n))
          assert.equal(nil, (is_whole(path)), ("%s: cut at %d"):format(name, n))
        end
        write(path .. "/" .. name, text)
      end
      assert.truthy(is_whole(path))
    end)
  end)
end)

describe("a checkpoint of the first version", function()
  it("is read, on any mesh", function()
    local v1 = require "spec.checkpoint_v1"
    local path = "tests/spec/checkpoint_v1/step-00000003"
    assert.truthy(is_whole(path))
    for _, mesh in ipairs {mesh_of {4, 2}, false} do
      local there = v1.trees(function(_, x)
        return mesh and ml.device_put(x, ml.NamedSharding(mesh, x.ndim == 2 and P(nil, "model") or P())) or x
      end, function(dtype) return ml.zeros({4, 6}, dtype) end)
      local found = assert(manager_of.restore_from(path, there, {}))
      assert.same({step = 3, metrics = v1.METRICS, state = v1.STATE}, found)
      assert.same(values(v1.trees(function(_, x) return x end, v1.values)), values(there))
    end
  end)
end)

describe("the manifest", function()
  it("of GPT-3 175B on 4096 devices takes less than a second and a megabyte", function()
    local code = [[
      package.path = "./?.lua;tests/?.lua;" .. package.path
      local ml, gpt3 = require "meshlua", require "golden.gpt3"
      local manifest = require "meshlua.checkpoint.manifest"
      local recipe = require "models.gpt"
      local cfg = gpt3.config {}
      local list = gpt3.rules()
      local mesh = ml.make_mesh({512, 8}, {"data", "model"})
      cfg.batch = 512
      local model = ml.init(function(rngs) return recipe.build(cfg, rngs) end, {mesh = mesh, rules = list})
      local opt = ml.optim.adamw(model, {lr = 1e-4, master = true})
      local before = os.clock()
      local plan = assert(manifest.plan {model = model, optimizer = opt})
      local text = manifest.seal(manifest.make(plan, 100, {nonce = "0", processes = 512}), manifest.ORDER)
      print(("%.3f %d %d %d"):format(os.clock() - before, #text, #plan.files, plan.bytes))
    ]]
    local out, err, status = helper.shell('"$MESHLUA" --devices=fake:h200:4096 ' .. helper.file(code, ".lua"))
    assert.equal(0, status, err)
    local seconds, bytes, files, all = out:match "(%S+) (%d+) (%d+) (%d+)"
    assert.truthy(tonumber(seconds) < (helper.watched and 20 or 1), out)
    assert.truthy(tonumber(bytes) < 1e6, out)
    assert.truthy(tonumber(files) > 100 and tonumber(all) > 175e9 * 12, out)
  end)

  it("is of files that are not larger than said, with an index for other readers", function()
    within(function(folder)
      local plan = assert(manifest.plan({model = trees(nil, nil, 1).model}, 600))
      local names = {}
      for i, file in ipairs(plan.files) do names[i] = file.name end
      assert.same({"model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"}, names)
      local index = assert(core.json(plan.indexes[1][2]))
      assert.same({"model.safetensors.index.json", 516 + 128, "model-00001-of-00002.safetensors"},
        {plan.indexes[1][1], index.metadata.total_size, index.weight_map.w})
      assert.truthy(folder)
    end)
  end)
end)
