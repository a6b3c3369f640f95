-- file_scenarios.lua: uses of ml.save and ml.load, and of files of data; the others are in scenarios.lua.
local helper = require "spec.helper"
local ml = require "meshlua"

local core, P, NamedSharding, nn = ml.core, ml.P, ml.NamedSharding, ml.nn

local M = {}

local function add(name, scenario)
  scenario.name = name
  M[#M + 1] = scenario
end

local mesh = ml.make_mesh({4, 2}, {"data", "model"})

local function put(x, ...) return ml.device_put(x, NamedSharding(mesh, P(...))) end

local folder = os.tmpname()
os.remove(folder)
assert(ml.core.make_folder(folder))
local guard = setmetatable({}, {__gc = function() os.execute("rm -r " .. folder) end})

add("trees of tensors into files, and out of them", {
  make = function()
    return {x = {w = put(ml.arange(64.0):reshape {2, 32}, "model", nil), h = {{b = ml.arange(8)}}},
      into = {w = nn.Param(put(ml.zeros {32, 2}, "data", nil)), h = {{b = ml.zeros({8}, "int32")}}},
      guard = guard}
  end,
  run = function(s)
    local map, found = {{"t.{*}", "{*}"}, {"w", "w", {"transpose"}}}, {}
    for k, name in ipairs {"a.safetensors", "a.npz", "hf/"} do
      local file, into = folder .. "/" .. name, name == "hf/"
      assert(ml.save(file, into and {w = s.into.w, h = s.x.h} or s.x,
        into and {shard_bytes = 100, map = map, cast = "float64"} or nil))
      found[k] = into and assert(ml.load(file, {into = s.into, map = map, cast = true}))
        or assert(ml.load(file, {mesh = mesh, rules = {{"^w$", P(nil, "model")}}, tree = true}))
    end
    assert(ml.save(folder .. "/a.gguf", s.x, {encoding = "Q8_0", metadata = {k = "v"}}))
    found[4] = assert(ml.load(folder .. "/a.gguf", {cast = "float16", partial = "w"}))
    return found
  end,
  check = function(s, r)
    assert(r[1].w:bytes() == s.x.w:bytes() and r[2].h[1].b:bytes() == s.x.h[1].b:bytes())
    assert(r[3].h[1].b:bytes() == s.x.h[1].b:bytes() and r[4].w.dtype == "float16")
  end,
  intact = function()
    local list <close> = assert(io.popen("ls -A " .. folder .. " " .. folder .. "/hf 2>/dev/null"))
    local text = list:read "a"
    assert(not text:find "part", text)
  end,
})

local saved = 0

add("checkpoints of a state, and back", {
  make = function()
    local w = put(ml.arange(64.0):reshape {2, 32}, "model", nil)
    return {x = {w = nn.Param(w), n = nn.Param(ml.arange(8))},
      into = {w = nn.Param(put(ml.zeros {2, 32}, nil, "data")), n = nn.Param(ml.zeros({8}, "int32"))},
      tokens = core.tokens("abcdefgh", 1), guard = guard}
  end,
  run = function(s)
    core.interrupt_stops(true)
    core.interrupt_stops(false)
    core.ask_save()
    saved = saved + 1
    local manager <close> = assert(ml.checkpoint.Manager(folder .. "/run", {async = false}))
    assert(manager:save(saved, {model = s.x}, {state = {data = core.tokens_fingerprint(s.tokens)}}))
    assert(core.free_bytes(folder) > 0)
    local found = assert(manager:restore {model = s.into})
    core.sleep(0)
    assert(core.is_locked(folder .. "/run/.lock"))
    return {found, manager:steps(), core.take_save(), core.hash_box(s.x.w, {0, 0}, {2, 32})}
  end,
  check = function(s, r)
    assert(r[1].step == saved and r[3] == true and #r[4] == 32)
    assert(s.into.w:bytes() == s.x.w:bytes() and s.into.n:bytes() == s.x.n:bytes())
  end,
  intact = function()
    core.take_save()
    core.interrupt_stops(false)
    local list = core.list_folder(folder .. "/run") or {}
    for _, name in ipairs(list) do assert(name == ".lock" or name:find "^%.?step%-%d+", name) end
  end,
})

add("a command that is written to", {
  run = function()
    local to <close> = assert(core.pipe "cat >/dev/null; exit 3")
    local taken = to:write "some text"
    to:finish()
    while not to:ended() do core.sleep(0.001) end
    return {taken, to:write "more", {to:ended()}}
  end,
  check = function(_, r) assert(r[1] == 9 and r[3][1] == "exit" and r[3][2] == 3) end,
})

-- ---- data -------------------------------------------------------------------------------------------

local hello = "\x1f\x8b\8\0\0\0\0\0\0\3\xcbH\xcd\xc9\xc9W\xc8@\x90\0\x80\x88\xf9\xe5\x11\0\0\0" -- gzip

add("data", {
  make = function() return {folder = helper.file "" .. ".folder", file = helper.file "bytes in a file"} end,
  run = function(s)
    local tokens = core.tokens(core.gunzip(hello), 1)
    local rows = tokens:windows({0, 6, 12}, {5}, "int32")
    local parts = tokens:windows(core.shuffled(1, 0, 8, 9), {2, 4}, "uint8", NamedSharding(mesh, P "data"))
    local file = core.data_file(s.file)
    local inside = core.tokens(file, 1, 6, 9)
    local read = {file:size(), file:head(5), file:all(), inside:bytes(), inside:windows({0, 4}, {2}, "int32")}
    local both = core.tokens_join {inside, core.tokens("!?", 1)}
    local all = {both, 8, 3, false, 7, 1}
    local reader <close> = core.reader()
    local ahead = core.rows(all, 2, {2}, "int32", nil, false, reader)
    local last = core.rows(all, 2, {2}, "int32", NamedSharding(mesh, P()))
    local numbers = {both:numbers(8, 11), both:place(8), both:cut(32):numbers(), core.tokens_on_disk(both),
      core.pack({{1, 2}}, "int32", {1, 2}), core.shuffled_place(1, 3, 2, 9), core.learn {{1.5}},
      core.private_folder "ids" or false}
    assert(core.truncate(s.file, 15))
    assert(core.make_folder(s.folder))
    os.remove(s.folder)
    local workers <close> = core.workers(1, "fault.doubled", package.path, "", {{"x", "int32", {2}}})
    local made = workers and workers:call({x = {1, 2}, t = {"a", 1.5, true, {}}}, 7)
    repeat made = made and (made:wait() or made) until type(made) ~= "userdata"
    return {#tokens, rows, parts, tokens:bytes(6, 11), tokens:width(), tokens:largest(), read, numbers,
      ahead:wait(), last, made}
  end,
  check = function(_, r)
    assert(r[1] == 17 and r[4] == "hello" and r[2]:at(3):totable()[5] == ("o"):byte())
    assert(r[7][1] == 15 and r[7][2] == "bytes" and r[7][4] == "in a file")
    for _, rows in ipairs {r[9], r[10]} do helper.close(rows, {{101, 33}, {63, 7}}) end
    assert(r[11] == ("<i4i4"):pack(2, 14))
    assert(r[8][1][1] == 101 and #r[8][3] == 6 and r[8][4] == true and #r[8][5] == 8)
  end,
})

return M
