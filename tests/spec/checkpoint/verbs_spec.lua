-- devices: 4
-- verbs_spec.lua: the verbs inspect, diff, check and convert, on files, folders and checkpoints.
local helper = require "spec.helper"
local ml = require "meshlua"
local core = ml.core

local folder

local function at(name) return folder .. "/" .. name end

local function write(name, bytes)
  local handle <close> = assert(io.open(at(name), "wb"))
  handle:write(bytes)
end

--- Runs a verb on files of the folder, "@name"; what it says names them so, too.
local function says(...)
  local words = {...}
  for i, word in ipairs(words) do words[i] = word:gsub("^@", folder .. "/") end
  local out, err, code = helper.run(words)
  local plain = folder:gsub("%p", "%%%0") .. "/"
  return (out:gsub(plain, "")), (err:gsub(plain, "")), code
end

--- Runs it, which must end with this code; what it said.
local function ends(wanted, ...)
  local out, err, code = says(...)
  assert.equal(wanted, code, table.concat({...}, " ") .. "\n" .. out .. err)
  return out .. err
end

local function json(...)
  local out = says(...)
  return assert(core.json(out), out)
end

local function flip(name, place)
  local handle <close> = assert(io.open(at(name), "r+b"))
  handle:seek("set", place)
  local byte = handle:read(1):byte()
  handle:seek("set", place)
  handle:write(string.char(byte ~ 0x40))
end

--- Checkpoints of the steps 1 and 2 in the folder "run/checkpoints", which differ in one row of the model.
local function make_checkpoints()
  assert(core.make_folder(at "run"))
  local manager = assert(ml.checkpoint.Manager(at "run/checkpoints", {async = false}))
  local mesh = ml.make_mesh({2, 2}, {"data", "model"})
  local w = ml.random.normal(ml.random.key(0), {64, 128})
  for step = 1, 2 do
    if step == 2 then w = w + ml.concat({ml.zeros {3, 128}, ml.ones {1, 128}, ml.zeros {60, 128}}, 1) end
    local sharding = ml.NamedSharding(mesh, ml.P("data", "model"))
    local trees = {model = {w = ml.nn.Param(ml.device_put(w, sharding)), b = ml.nn.Param(ml.zeros {64})},
      optimizer = {mu = {w = ml.nn.Param(ml.ones {64, 128})}}}
    assert(manager:save(step, trees, {metrics = {loss = 1.5}, force = true}))
    assert(manager:wait())
  end
  manager:close()
end

before_each(function()
  folder = os.tmpname()
  os.remove(folder)
  assert(core.make_folder(folder))
  local w = ml.arange(12.0):reshape(3, 4)
  local tree = {w = w, h = {{k = ml.ones({2, 2}, "bfloat16")}}, s = ml.tensor(1.5),
    i = ml.tensor({1, 2, 2^53 // 1 | 0}, "int64")}
  assert(ml.save(at "a.safetensors", tree))
  tree.w = w + ml.tensor {{0, 0, 0, 0}, {0, 1e-3, 0, 0}, {0, 0, 0, 2}}
  tree.h[1].k, tree.i, tree.x = ml.ones {2, 2}, ml.tensor({1, 2, (2^53 // 1 | 0) + 1}, "int64"), ml.zeros {2}
  assert(ml.save(at "b.safetensors", tree))
end)

after_each(function() os.execute("rm -rf " .. folder) end)

describe("inspect", function()
  it("says what a file holds", function()
    assert.equal([[
a.safetensors: safetensors, 4 tensors, 356 B
metadata:
  format  pt
  bytes  dtype     shape  tensor
   24 B  int64     [3]    i
    4 B  float32   []     s
   48 B  float32   [3,4]  w
    8 B  bfloat16  [2,2]  h.1.k
]], (says("inspect", "@a.safetensors")))
    local found = json("inspect", "@a.safetensors", "--json")
    assert.same({4, 356, "safetensors"}, {#found.tensors, found.bytes, found.kind})
    assert.same({name = "w", dtype = "float32", encoding = "F32", file = "a.safetensors", shape = {3, 4},
      bytes = 48}, found.tensors[3])
    assert.truthy(says("inspect", "@a.safetensors", "--json"):find('"shape":[]', 1, true))
  end)

  it("says which layouts a checkpoint was saved with, of a run the newest's", function()
    make_checkpoints()
    local out = ends(0, "inspect", "@run")
    assert.truthy(out:find("checkpoints of steps 1, 2; the newest:\n", 1, true), out)
    local head = "\nstep 2, saved by 1 process; 3 tensors, 64.52 KiB\nloss 1.5\nlayouts"
    assert.truthy(out:find(head, 1, true), out)
    assert.truthy(out:find('1  data:2,model:2 P("data", "model")\n', 1, true), out)
    assert.truthy(out:find("float32  1       [64,128]  w\n", 1, true), out)
    for line in out:gmatch "[^\n]+" do assert.truthy(#line < 80, line) end
    local found = json("inspect", "@run/checkpoints/step-00000001", "--json")
    assert.same({1, 1, "checkpoint", 1.5}, {found.step, found.processes, found.kind, found.metrics.loss})
    assert.equal('data:2,model:2 P("data", "model")', found.tensors[2].layout)
  end)

  it("refuses what is none", function()
    assert.truthy(ends(3, "inspect", "@none"):find("inspect: none: No such file or directory", 1, true))
    write("cut.safetensors", "\x40\1\0\0\0\0\0\0{}")
    local out = ends(3, "inspect", "@cut.safetensors")
    assert.truthy(out:find("a header of 320 bytes, in a file of 10", 1, true), out)
    assert.truthy(ends(3, "inspect", "@"):find("has no model.safetensors", 1, true))
    assert.truthy(ends(2, "inspect"):find("it needs PATH", 1, true))
    assert.truthy(ends(2, "inspect", "@a.safetensors", "--jsn"):find("did you mean --json?", 1, true))
    out = ends(2, "inspect", "@a.safetensors", "--devices=8")
    assert.truthy(out:find("unknown option --devices", 1, true), out)
  end)

  it("follows links to what it is given, and waits for no pipe", function()
    make_checkpoints()
    os.execute(("cd %s && ln -s run link && ln -s a.safetensors l.safetensors && mkfifo pipe"):format(folder))
    assert.truthy(ends(0, "inspect", "@link"):find("checkpoints of steps 1, 2", 1, true))
    assert.truthy(ends(0, "check", "@link"):find("step 2, 2 files", 1, true))
    assert.truthy(ends(0, "inspect", "@l.safetensors"):find("4 tensors", 1, true))
    for _, verb in ipairs {"inspect", "check"} do
      assert.truthy(ends(3, verb, "@pipe"):find("pipe: it is neither a file nor a folder", 1, true))
    end
  end)

  it("starts neither devices nor ranks", function()
    local out, err, code = helper.shell(([[WORLD_SIZE=2 MESHLUA_DEVICES=cuda "$MESHLUA" inspect %s]]):format(
      at "a.safetensors"))
    assert.same({"", 0}, {err, code})
    assert.truthy(out:find("4 tensors", 1, true))
  end)
end)

describe("diff", function()
  it("says the largest differences and the first element", function()
    assert.equal([[
  largest  relative  elements  first  tensor
  none                                h.1.k (bfloat16 and float32)
  1        1.11e-16  1         [3]    i
  2        0.1538    2         [2,2]  w
only in b.safetensors:
  x
2 of 4 tensors: different; 1 in one of the two alone
]], ends(1, "diff", "@a.safetensors", "@b.safetensors"))
    local found = json("diff", "@a.safetensors", "@b.safetensors", "--json")
    assert.same({4, 2, {}, {"x"}}, {found.compared, found.differ, found.only_a, found.only_b})
    local w = found.tensors[3]
    assert.same({"w", 2, 2, {2, 2}}, {w.name, w.elements, w.largest, w.first})
    assert.equal("4 tensors: equal\n", ends(0, "diff", "@a.safetensors", "@a.safetensors"))
  end)

  it("tells shapes, and numbers that are none or none of a size", function()
    local inf, nan = math.huge, 0 / 0
    assert(ml.save(at "x.safetensors", {a = ml.zeros {2, 3}, n = ml.tensor {nan, inf, -0.0, 1}}))
    assert(ml.save(at "y.safetensors", {a = ml.zeros {3, 2}, n = ml.tensor {nan, 2, 0.0, 1}}))
    assert.equal([[
  largest  relative  elements  first  tensor
  shapes   [2,3]     [3,2]            a
  inf      inf       2         [2]    n
2 of 2 tensors: different
]], ends(1, "diff", "@x.safetensors", "@y.safetensors"))
  end)

  it("compares checkpoints, and their model with a file", function()
    make_checkpoints()
    local out = ends(1, "diff", "@run/checkpoints/step-00000001", "@run")
    assert.truthy(out:find("128       [4,1]  model.w\n1 of 3 tensors: different\n", 1, true), out)
    ends(0, "convert", "@run", "@model.safetensors")
    assert.equal("2 tensors: equal\n", ends(0, "diff", "@run", "@model.safetensors"))
  end)
end)

describe("check", function()
  it("reads every byte of all checkpoints", function()
    make_checkpoints()
    local out = ends(0, "check", "@run")
    assert.truthy(out:find "step%-00000001: step 1, 2 files, [%d.]+ KiB, 6 units, hashes equal\n", out)
    local catalog <close> = core.catalog(at "run/checkpoints/step-00000002/model.safetensors")
    local begin
    for _, entry in ipairs(catalog:entries()) do
      if entry.name == "w" then begin = entry.begin end
    end
    flip("run/checkpoints/step-00000002/model.safetensors", begin + 4 * (40 * 128 + 70))
    out = ends(1, "check", "@run")
    assert.truthy(out:find("broken: run/checkpoints/step-00000002/model.safetensors: w: 1 of 4 units have "
      .. "another hash; the first is [32,64] from [33,65] on\n", 1, true), out)
    assert.truthy(out:find("step-00000001: step 1", 1, true), out)
    local found = json("check", "@run", "--json")
    assert.same({false, 0, 1}, {found.whole, #found.checked[1].broken, #found.checked[2].broken})
  end)

  it("finds what is cut off, swapped or missing", function()
    make_checkpoints()
    local step = "run/checkpoints/step-00000002/"
    local function broken(wanted)
      local out = ends(1, "check", "@run/checkpoints/step-00000002")
      assert.truthy(out:find("broken: " .. step .. wanted, 1, true), out)
    end
    local size = select(2, core.path_kind(at(step .. "optimizer.safetensors")))
    os.execute(("cd %s && truncate -s -1 optimizer.safetensors"):format(at(step)))
    broken(("optimizer.safetensors: %d bytes, and the manifest says %d"):format(size - 1, size))
    os.remove(at(step .. "part-0000.json"))
    os.execute(("cd %s && truncate -s +1 optimizer.safetensors"):format(at(step)))
    broken "part-0000.json: it is missing"
    os.remove(at(step .. "manifest.json"))
    broken "manifest.json: "
  end)

  it("has rules alone for other files", function()
    assert.truthy(ends(0, "check", "@a.safetensors"):find("4 tensors, 356 B; no hashes: headers", 1, true))
    write("cut.safetensors", "\x40\1\0\0\0\0\0\0{}")
    local out = ends(1, "check", "@cut.safetensors")
    assert.truthy(out:find("broken: cut.safetensors: a header of 320", 1, true), out)
    ends(3, "check", "@none")
  end)
end)

describe("convert", function()
  it("makes every format, single and in several files, and back", function()
    ends(0, "convert", "@a.safetensors", "@folder/", "--shard-bytes=0.04kB")
    assert.truthy(core.path_kind(at "folder/model.safetensors.index.json"))
    assert.equal("4 tensors: equal\n", ends(0, "diff", "@a.safetensors", "@folder"))
    ends(0, "convert", "@folder", "@c.npz", "--dtype=float32")
    ends(0, "diff", "@folder", "@c.npz")
    ends(0, "convert", "@c.npz", "@c.gguf")
    ends(0, "diff", "@folder", "@c.gguf")
    ends(0, "convert", "@c.gguf", "@folder/", "--overwrite")
    assert.equal("file", core.path_kind(at "folder/model.safetensors"))
    assert.equal(nil, (core.path_kind(at "folder/model.safetensors.index.json")))
    assert.equal(nil, (core.path_kind(at "folder/model-00001-of-00003.safetensors")))
    assert.equal("4 tensors: equal\n", ends(0, "diff", "@c.gguf", "@folder"))
    local found = json("convert", "@a.safetensors", "@d.safetensors", "--json")
    assert.same({4, 356, 1}, {found.tensors, found.bytes, found.files})
  end)

  it("writes dtypes and encodings as load and save do", function()
    local x = ml.random.normal(ml.random.key(3), {8, 64})
    assert(ml.save(at "x.safetensors", {x = x, v = ml.ones {7}, n = ml.tensor({1}, "int32")}))
    ends(0, "convert", "@x.safetensors", "@x16.safetensors", "--dtype=bfloat16")
    local found = ml.load(at "x16.safetensors")
    assert.same({"bfloat16", "int32"}, {found.x.dtype, found.n.dtype})
    helper.close(ml.astype(x, "bfloat16"), found.x)
    ends(0, "convert", "@x.safetensors", "@x.gguf", "--encoding=Q8_0")
    found = json("inspect", "@x.gguf", "--json")
    local of = {}
    for _, t in ipairs(found.tensors) do of[t.name] = t.encoding end
    assert.same({x = "Q8_0", v = "F32", n = "I32"}, of)
    helper.close(x, ml.load(at "x.gguf").x, 0.02)
    ends(0, "convert", "@x.gguf", "@y.gguf", "--encoding=Q8_0")
    assert.equal("3 tensors: equal\n", ends(0, "diff", "@x.gguf", "@y.gguf"))
  end)

  it("reads numpy's column order", function()
    local head = "{'descr': '<f4', 'fortran_order': True, 'shape': (2, 3), }"
    head = head .. (" "):rep(117 - #head) .. "\n"
    write("f.npy", "\x93NUMPY\1\0" .. ("<I2"):pack(#head) .. head .. ("<ffffff"):pack(1, 4, 2, 5, 3, 6))
    ends(0, "convert", "@f.npy", "@c.npy")
    helper.close(ml.tensor {{1, 2, 3}, {4, 5, 6}}, (ml.load(at "c.npy")))
    assert.equal("1 tensor: equal\n", ends(0, "diff", "@f.npy", "@c.npy"))
  end)

  it("refuses what cannot be, and leaves nothing behind", function()
    assert(ml.save(at "big.safetensors", {x = ml.tensor {1, 1e30}}))
    for _, case in ipairs {
      {2, "@a.safetensors", "@b.safetensors", "b.safetensors: it is there; take another name"},
      {2, "@a.safetensors", "@c.xyz", "c.xyz: its name does not say which format"},
      {2, "@a.safetensors", "@c.npy", "a.safetensors holds 4 tensors, and a .npy file one"},
      {2, "@a.safetensors", "@c.npz", "--encoding=Q8_0", "--encoding is for .gguf files"},
      {2, "@a.safetensors", "@c.npz", "--dtype=flot32", "did you mean float32?"},
      {2, "@a.safetensors", "@c.npz", "numpy has no dtype BF16"},
      {2, "@big.safetensors", "@c.safetensors", "--dtype=float16", "float16 cannot hold its value 1e+30"},
      {3, "@a.safetensors", "@none/c.safetensors", "none/c.safetensors.part cannot be made: No such file"},
      {3, "@none", "@c.safetensors", "none: No such file or directory"},
      {3, "@none", "@new/", "none: No such file or directory"},
      {2, "@big.safetensors", "@new/", "--dtype=float16", "float16 cannot hold its value 1e+30"},
    } do
      local wanted = table.remove(case)
      local said = ends(case[1], "convert", table.unpack(case, 2))
      assert.truthy(said:find(wanted, 1, true), said)
    end
    local names = core.list_folder(folder)
    table.sort(names)
    assert.same({"a.safetensors", "b.safetensors", "big.safetensors"}, names)
  end)

  it("leaves nothing behind where Ctrl-C ends it", function()
    local bytes = 1 << 29
    local head = ('{"a":{"dtype":"F32","shape":[%d],"data_offsets":[0,%d]}}'):format(bytes >> 2, bytes)
    write("large.safetensors", ("<I8"):pack(#head) .. head)
    os.execute(("truncate -s %d %s"):format(8 + #head + bytes, at "large.safetensors"))
    local _, _, code = helper.shell(([["$MESHLUA" convert %s %s/new/ & p=$!
      until [ -s %s/new/model.safetensors.part ]; do sleep 0.01; done; kill -INT $p; wait $p]]):format(
      at "large.safetensors", folder, folder))
    assert.equal(130, code)
    assert.equal(nil, (core.path_kind(at "new")))
  end)

  it("holds a few pieces of a tensor at a time, whatever its size", function()
    if helper.watched then return helper.pending "a sanitizer takes memory of its own" end
    local bytes = 160 << 20
    local head = ('{"x":{"dtype":"F32","shape":[%d,1024],"data_offsets":[0,%d]}}'):format(bytes >> 12, bytes)
    write("large.safetensors", ("<I8"):pack(#head) .. head)
    os.execute(("truncate -s %d %s"):format(8 + #head + bytes, at "large.safetensors")) -- a hole
    local out, err = helper.shell(([[ulimit -v 150000
      "$MESHLUA" convert %s %s --dtype=bfloat16 && "$MESHLUA" diff %s %s]]):format(at "large.safetensors",
      at "small.safetensors", at "large.safetensors", at "small.safetensors"))
    assert.truthy(out:find("1 tensor: equal\n", 1, true), out .. err)
  end)
end)
