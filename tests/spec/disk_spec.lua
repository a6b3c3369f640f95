-- devices: 8
-- disk_spec.lua: folders, small files, locks and hashes, as checkpoints use them: what each call does, and what it
-- says where it cannot.
local helper = require "spec.helper"
local ml = require "meshlua"
local core, P = ml.core, ml.P
local read = helper.read

local folder -- of the test

local function inside(name) return folder .. "/" .. name end

local function write(path, text)
  local handle <close> = assert(io.open(path, "wb"))
  assert(handle:write(text))
end

--- What is in the folder and below it: {path = text, or its kind}.
local function tree(path, out, prefix)
  out = out or {}
  for _, name in ipairs(core.list_folder(path)) do
    local at, shown = path .. "/" .. name, (prefix or "") .. name
    local kind = core.path_kind(at)
    out[shown] = kind == "file" and read(at) or kind
    if kind == "folder" then tree(at, out, shown .. "/") end
  end
  return out
end

local function run(calls) return core.disk_task(calls):wait() end

before_each(function()
  folder = os.tmpname()
  os.remove(folder)
  assert(run {{"make", folder}})
end)
after_each(function() os.execute("chmod -R u+w " .. folder .. "; rm -rf " .. folder) end)

describe("disk_task", function()
  it("makes its calls in order", function()
    assert.is_true(run {
      {"make", inside "a"}, {"make", inside "a"}, {"make", inside "a/b"}, {"write", inside "a/x", "one\0two"},
      {"write", inside "a/y", "longer than what comes"}, {"write", inside "a/y", "short"},
      {"write", inside "a/b/none", ""}, {"sync", inside "a"}, {"move", inside "a/x", inside "a/b/x"},
      {"write", inside "old", "old"}, {"move", inside "a/y", inside "old"},
      {"move_new", inside "a/b/x", inside "new"}, {"move_new", inside "a/b", inside "c"}})
    assert.same({a = "folder", c = "folder", ["c/none"] = "", new = "one\0two", old = "short"}, tree(folder))
    assert.is_true(run {})
  end)

  it("ends at the first that fails, and says which and why", function()
    write(inside "file", "text")
    write(inside "other", "text")
    os.execute(("ln -s file %s"):format(inside "link"))
    local rows = {
      {{"make", inside "no/folder"}, inside "no/folder", "No such file or directory"},
      {{"write", inside "no/file", "text"}, inside "no/file", "No such file or directory"},
      {{"write", folder, "text"}, folder, "Is a directory"},
      {{"write", inside "link", "text"}, inside "link", "Too many levels of symbolic links"},
      {{"sync", inside "no"}, inside "no", "No such file or directory"},
      {{"sync", inside "file"}, inside "file", "Not a directory"},
      {{"move", inside "no", inside "x"}, inside "no", "No such file or directory"},
      {{"move_new", inside "no", inside "x"}, inside "no", "No such file or directory"},
      {{"move_new", inside "file", inside "other"}, inside "file", "File exists"},
      {{"move_new", inside "file", inside "link"}, inside "file", "File exists"},
      {{"remove", inside "file/x"}, inside "file/x", "Not a directory"},
    }
    for i, row in ipairs(rows) do
      local calls = {}
      for k = 1, i do calls[k] = {"make", inside "made"} end
      calls[i + 1] = row[1]
      calls[i + 2] = {"write", inside "not", "made"}
      assert.same({nil, row[2] .. ": " .. row[3], i + 1}, {run(calls)})
      assert.is_nil(core.path_kind(inside "not"))
    end
    assert.same({"text", "text"}, {read(inside "file"), read(inside "other")})
  end)

  it("removes all below a name, but nothing that a link points to", function()
    assert(run {{"make", inside "keep"}, {"write", inside "keep/x", "kept"}, {"make", inside "go"},
      {"make", inside "go/deep"}, {"write", inside "go/deep/x", "x"}, {"write", inside "go/y", "y"}})
    os.execute(("ln -s %s %s; ln -s ../keep/x %s"):format(inside "keep", inside "go/dir", inside "go/x"))
    os.execute(("ln -s %s %s"):format(inside "keep", inside "alone"))
    assert.is_true(run {{"remove", inside "go"}, {"remove", inside "alone"}, {"remove", inside "nowhere"}})
    assert.same({keep = "folder", ["keep/x"] = "kept"}, tree(folder))
    local path, made = folder, {}
    for i = 1, 12 do
      path = path .. "/d"
      made[i] = {"make", path}
    end
    assert(run(made))
    assert.same({nil, inside "d" .. ": Too many levels of symbolic links", 1}, {run {{"remove", inside "d"}}})
    assert(run {{"move", inside "d/d", inside "e"}})
    assert.is_nil((run {{"remove", inside "e"}}))
    for _, name in ipairs {"e/d/d/d/d/d", "e", "d"} do assert.is_true((run {{"remove", inside(name)}})) end
  end)

  it("keeps its texts, whatever becomes of the list", function()
    local function calls()
      local list = {}
      for i = 1, 200 do list[i] = {"write", inside("file" .. i), ("text %d "):format(i):rep(50)} end
      return list
    end
    local want = {}
    for i, call in ipairs(calls()) do want["file" .. i] = call[3] end
    local task = core.disk_task(calls())
    for _ = 1, 5 do
      collectgarbage()
      for i = 1, 300 do helper.sink = ("other %d "):format(i):rep(50) end
    end
    assert.is_true(task:wait())
    assert.is_true(task:poll())
    assert.is_true(task:wait())
    assert.same(want, tree(folder))
  end)

  it("refuses what is no list of calls, and then makes none", function()
    local x = inside "x"
    for _, row in ipairs {
      {nil, "the calls"}, {{1}, "a call"}, {{{"make", x}, {"drop", x}}, "there is no call 'drop'"},
      {{{"make", x}, {"makes", x}}, "there is no call 'makes'"}, {{{"make", x}, {"remove"}}, "a path"},
      {{{"make", x}, {"write", x .. "/y"}}, "a text or name"}, {{{"make", x}, {"move", x}}, "a text or name"},
      {{{"make", x}, {"move_new", x, {}}}, "a text or name"}, {{{"make", x}, {}}, "a call"}} do
      helper.raises("disk_task: " .. row[2], core.disk_task, row[1])
      assert.is_nil(core.path_kind(x))
    end
  end)
end)

describe("a lock", function()
  it("is had by one, who stands in it", function()
    local path = inside "lock"
    local mine = assert(core.lock(path, "process 1"))
    assert.equal("process 1", read(path))
    local none, message, who = core.lock(path, "process 2")
    assert.same({nil, path .. ": it is locked", "process 1"}, {none, message, who})
    assert.equal("process 1", read(path))
    mine:close()
    mine:close()
    local _ <close> = assert(core.lock(path, "2"))
    assert.equal("2", read(path))
  end)

  it("says where it cannot be", function()
    os.execute(("ln -s x %s"):format(inside "link"))
    for name, why in pairs {["no/lock"] = "No such file or directory", [""] = "Is a directory",
      link = "Too many levels of symbolic links"} do
      assert.same({nil, ("%s: %s"):format(inside(name), why)}, {core.lock(inside(name), "text")})
    end
  end)

  it("is given back where it is dropped", function()
    assert(core.lock(inside "lock", "a"))
    collectgarbage()
    assert.truthy(core.lock(inside "lock", "b"))
  end)
end)

describe("looking", function()
  it("names kinds, sizes and what is in a folder", function()
    write(inside "b", "12345")
    write(inside "B", "")
    write(inside ".hidden", "1")
    os.execute(("ln -s b %s; mkfifo %s; mkdir %s"):format(inside "link", inside "pipe", inside "folder"))
    assert.same({".hidden", "B", "b", "folder", "link", "pipe"}, core.list_folder(folder))
    assert.same({}, core.list_folder(inside "folder"))
    assert.same({"file", 5}, {core.path_kind(inside "b")})
    assert.same({"file", 0}, {core.path_kind(inside "B")})
    assert.same({"folder", "link", "other"}, {(core.path_kind(folder)), (core.path_kind(inside "link")),
      (core.path_kind(inside "pipe"))})
    assert.equal(0, select("#", core.path_kind(inside "none")))
    for _, name in ipairs {"none", "b"} do
      local none, message = core.list_folder(inside(name))
      assert.is_nil(none)
      assert.truthy(message:find(inside(name) .. ": ", 1, true), message)
    end
  end)

  it("reads files of a size, and nothing else", function()
    write(inside "b", "12345\0x")
    write(inside "empty", "")
    os.execute(("ln -s b %s; mkfifo %s"):format(inside "link", inside "pipe"))
    assert.equal("12345\0x", core.read_file(inside "b", 7))
    assert.equal("", core.read_file(inside "empty", 0))
    for _, row in ipairs {{"b", "7 bytes are more than such a file has"}, {"pipe", "it is no file"},
      {"", "it is no file"}, {"none", "No such file or directory"},
      {"link", "Too many levels of symbolic links"}} do
      local text, message = core.read_file(inside(row[1]), 6)
      assert.same({nil, ("%s: %s"):format(inside(row[1]), row[2])}, {text, message})
    end
    assert.equal(0, helper.left_behind(function() core.read_file(inside "b", 7) end))
  end)

  it("knows the room that is left, and sleeps", function()
    local bytes = core.free_bytes(folder)
    local pipe <close> = io.popen("df --output=avail -B1 " .. folder)
    local said = math.tointeger(tonumber(pipe:read "a":match "(%d+)%s*$"))
    assert.truthy(bytes > said / 2 - 1 and bytes < said * 2 + 1, ("%d, %d"):format(bytes, said))
    local none, message = core.free_bytes(inside "none")
    assert.same({nil, inside "none" .. ": No such file or directory"}, {none, message})
    local began = os.time()
    core.sleep(-1)
    core.sleep(0)
    core.sleep(0.05)
    assert.truthy(os.time() - began < 30)
  end)
end)

describe("hash_box", function()
  local formats = {float32 = "<f", float64 = "<d", int32 = "<i4", uint8 = "<I1"}

  --- The bytes of a box of x, row-major, from its values; at from 0.
  local function bytes_of(x, at, size)
    local out = {}
    local function walk(values, d)
      if d > #size then
        out[#out + 1] = string.pack(formats[x.dtype], values)
        return
      end
      for i = 1, size[d] do walk(values[at[d] + i], d + 1) end
    end
    walk(x:totable(), 1)
    return table.concat(out)
  end

  it("is that of the elements' bytes, wherever they lie", function()
    local mesh = ml.make_mesh({2, 4}, {"x", "y"})
    local boxes = {{{0, 0}, {8, 12}}, {{0, 0}, {1, 1}}, {{7, 11}, {1, 1}}, {{3, 0}, {2, 12}},
      {{0, 2}, {8, 5}}, {{1, 2}, {6, 9}}, {{2, 3}, {0, 4}}, {{2, 3}, {4, 0}}}
    for dtype in pairs(formats) do
      local whole = ml.arange(96):reshape(8, 12):astype(dtype)
      local turned = ml.arange(96):reshape(12, 8):astype(dtype)
      local list = {whole, turned:T(), ml.broadcast(whole:slice({1, 1}), {8, 12})}
      for _, spec in ipairs {P("x", "y"), P("y", "x"), P({"x", "y"}), P(nil, "y"), P()} do
        list[#list + 1] = ml.device_put(whole, ml.NamedSharding(mesh, spec))
      end
      for i, x in ipairs(list) do
        for _, box in ipairs(boxes) do
          assert.equal(core.hash128(bytes_of(x, box[1], box[2])), core.hash_box(x, box[1], box[2]),
            ("%s %d: %d,%d"):format(dtype, i, box[1][1], box[1][2]))
        end
      end
    end
    assert.equal(core.hash128(string.pack("<f", 3)), core.hash_box(ml.tensor(3.0), {}, {}))
    assert.equal(core.hash128 "", core.hash_box(ml.zeros {0, 3}, {0, 0}, {0, 3}))
  end)

  it("is none where elements are missing", function()
    local x = ml.arange(12.0):reshape(3, 4)
    for _, box in ipairs {{{0, 0}, {4, 4}}, {{0, 0}, {3, 5}}, {{3, 0}, {1, 1}}, {{0, 4}, {1, 1}}} do
      assert.is_nil(core.hash_box(x, box[1], box[2]))
    end
    helper.raises("hash_box: the ranks differ", core.hash_box, x, {0}, {3})
    helper.raises("hash_box: the ranks differ", core.hash_box, x, {0, 0}, {3})
  end)
end)
